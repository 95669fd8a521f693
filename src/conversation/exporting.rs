//! Exporting a conversation, as plain JSON for other programs or as a bundle to continue it elsewhere.
//!
//! Owns the choice of what an export contains and where its file goes. The agents' files are only read. A conversation
//! with a running turn is exported as it is at that moment. Blocks; call it from a blocking thread.

mod files;
mod portable;
mod secrets;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bridge_protocol::UpstreamId;
use bridge_protocol::conversation::Conversation;
use bridge_protocol::export::{ExportAnswer, ExportFormat, ExportedFile, MissingSession};
use bridge_protocol::link::LineageEntry;
use bridge_protocol::raw::RawJson;
use indexmap::IndexMap;

use super::bundle::{self, BundleError, BundledAgent, Manifest};
use super::effect::PromptArrival;
use super::error::ConversationError;
use super::folder::{absolute_path, real_folder};
use super::history::missing_turns_gap;
use super::running_work::Progress;
use super::services::{Services, SessionRef, now};
use super::state::view_of_record;
use super::transition::end_unfinished;
use crate::archive::Unpacked;
use crate::files::durable::make_folders;
use crate::paths::names;
use crate::store::{ConversationRecord, PendingTurn};
use crate::transcript::copy;
use crate::transcript::parts::SessionFile;
use bridge_protocol::turn::FailureKind;
use files::{BundleFiles, SessionWithFiles};

/// The longest part of a title in a file name, in bytes. A name has at most 255, with date, number and suffix.
const NAME_LIMIT_BYTES: usize = 180;

/// The limit on files with the same name and date.
const SAME_NAME_LIMIT: u32 = 1_000;

/// A snapshot of a conversation to export.
pub(super) struct ExportRequest {
    pub(super) record: ConversationRecord,
    /// The lineage, up to the record's last entry.
    pub(super) lineage: Vec<LineageEntry>,
    /// The conversation as clients see it, live or not.
    pub(super) view: Conversation,
    /// The usage that the agent reported last.
    pub(super) usage: Option<RawJson>,
    /// Whether to export the values of MCP servers' `env` and `headers`.
    pub(super) secrets: bool,
}

/// Exports a conversation, to `path` if given.
///
/// # Errors
/// If the path cannot be used, the history cannot be read or is too long for an answer, or a file changes meanwhile.
pub(super) fn export(
    services: &Services,
    request: ExportRequest,
    format: ExportFormat,
    path: Option<&str>,
    progress: &Progress,
) -> Result<ExportAnswer, ConversationError> {
    let target = path.map(usable_target).transpose()?;
    match (format, target) {
        (ExportFormat::Json, None) => portable::export_to_answer(services, request, progress),
        (ExportFormat::Json, Some(target)) => portable::export_to_file(services, request, &target, progress),
        (ExportFormat::Bundle, Some(target)) => export_bundle(services, request, target, [], progress),
        (ExportFormat::Bundle, None) => {
            let (target, others) = default_targets(services, &request.view)?;
            export_bundle(services, request, target, others, progress)
        }
    }
}

/// Writes a bundle to `target`, or to one of `others` if `target` is taken by the time the bundle is complete.
fn export_bundle(
    services: &Services,
    request: ExportRequest,
    target: PathBuf,
    others: impl IntoIterator<Item = PathBuf>,
    progress: &Progress,
) -> Result<ExportAnswer, ConversationError> {
    let (manifest, sources, kept) = build_manifest(services, request, progress)?;
    // Each file is read once more.
    progress.expect_bytes(manifest.bytes());
    let first = target.clone();
    let written = copy::create_first(target, others, |writer| {
        bundle::pack::pack(writer, &first, &manifest, &sources, progress)
    })?;
    // `kept` must live until here: dropping it deletes the unpacked backups.
    let file = ExportedFile {
        missing: manifest.missing,
        missing_values: manifest.missing_values,
        kept: sessions_from_backup(&kept),
        ..ExportedFile::default()
    };
    export_answer(&written, file)
}

/// The sessions that were read from backups, each once.
fn sessions_from_backup(kept: &[Unpacked]) -> Vec<UpstreamId> {
    let ids: BTreeSet<&str> = kept
        .iter()
        .flat_map(Unpacked::sessions)
        .map(String::as_str)
        .collect();
    ids.into_iter().map(UpstreamId::from).collect()
}

/// The answer that describes an exported file. `file` lists what it lacks.
fn export_answer(target: &Path, file: ExportedFile) -> Result<ExportAnswer, ConversationError> {
    let metadata = fs::metadata(target);
    let metadata = metadata.map_err(|error| unusable_path(target, &error.to_string()))?;
    Ok(ExportAnswer::File(ExportedFile {
        path: target.to_string_lossy().into_owned(),
        bytes: metadata.len(),
        ..file
    }))
}

/// The manifest of a bundle, its files in order, and the backups that contain some of them.
fn build_manifest(
    services: &Services,
    request: ExportRequest,
    progress: &Progress,
) -> Result<(Manifest, Vec<SessionFile>, Vec<Unpacked>), BundleError> {
    let ExportRequest {
        mut record,
        lineage,
        secrets,
        ..
    } = request;
    let missing_values = match secrets {
        true => Vec::new(),
        false => secrets::remove_secret_values(&mut record.settings),
    };
    let record = record_without_running_turn(record);
    let found = find_all_files(services, &record, &lineage, progress)?;
    let (mut sessions, mut sources) = (Vec::new(), Vec::new());
    for (number, SessionWithFiles { mut session, parts }) in (1..).zip(found.sessions) {
        session.files = bundle::pack::hash_files(number, &parts, progress)?;
        session.real_cwd = real_path(&session.cwd);
        sessions.push(session);
        sources.extend(parts);
    }
    let mut manifest = Manifest {
        format: bundle::BUNDLE_FORMAT.to_owned(),
        version: bundle::BUNDLE_VERSION,
        created_at: now(),
        by: concat!("sessiond ", env!("CARGO_PKG_VERSION")).to_owned(),
        conversation: view_of_record(&record),
        settings: record.settings.clone(),
        failure: record.failure.clone(),
        chain: record.chain.links().to_vec(),
        lineage,
        agents: Vec::new(),
        real_cwd: real_path(&record.cwd),
        sessions,
        missing: found.missing,
        missing_values,
    };
    let agents = manifest.agent_names().into_iter().map(|name| {
        let entry = services.catalog.get(name);
        BundledAgent {
            name: name.clone(),
            kind: entry.map_or("generic", |entry| entry.kind.name).to_owned(),
        }
    });
    manifest.agents = agents.collect();
    Ok((manifest, sources, found.kept))
}

/// The record as if the daemon ended now: a running turn has no agent on the importing machine.
fn record_without_running_turn(mut record: ConversationRecord) -> ConversationRecord {
    // An edit whose prompt was not accepted yet has changed nothing.
    let is_open = |turn: &mut PendingTurn| turn.edit.as_ref().is_some_and(|edit| !edit.accepted);
    record.turn.take_if(is_open);
    let why = "the conversation was exported while the turn ran";
    end_unfinished(
        &mut record,
        FailureKind::DaemonRestarted,
        why,
        PromptArrival::Unknown,
    );
    record
}

/// Finds the files of all sessions of a conversation.
fn find_all_files(
    services: &Services,
    record: &ConversationRecord,
    lineage: &[LineageEntry],
    progress: &Progress,
) -> Result<BundleFiles, BundleError> {
    let mut found = BundleFiles::default();
    let mut kept_head = None;
    for (held, is_written) in sessions_of_conversation(record, lineage) {
        match found.add_session(services, &held) {
            Ok(kept) if record.chain.is_head(&held.upstream_id) => kept_head = kept,
            Ok(_) => {}
            // Most agents write no transcript before the first turn.
            Err(files::NoFiles::Missing(_)) if !is_written => {}
            Err(files::NoFiles::Missing(why)) => found.missing.push(held.missing(why)),
            // A bundle without a transcript that exists would look like a whole one.
            Err(files::NoFiles::Unreadable(error)) => return Err(error.into()),
        }
    }
    found.sessions = files::deduplicate(found.sessions);
    let bytes_of = |found: &[SessionWithFiles]| -> u64 {
        let parts = found.iter().flat_map(|session| &session.parts);
        parts.map(|part| part.bytes).sum()
    };
    let own = bytes_of(&found.sessions);
    progress.expect_bytes(own);
    // Reading transcripts for this reports its own progress.
    let borrowed = files::add_borrowed(&mut found.sessions)?;
    found.missing.extend(borrowed);
    progress.expect_bytes(bytes_of(&found.sessions).saturating_sub(own));
    if let Some(head) = record.chain.head() {
        let gap = missing_turns_gap(services, head, kept_head.as_ref())?;
        found
            .missing
            .extend(gap.map(|gap| SessionRef::from(head).missing(gap.detail)));
    }
    Ok(found)
}

impl SessionRef {
    fn missing(&self, detail: String) -> MissingSession {
        MissingSession {
            upstream_id: self.upstream_id.clone(),
            agent: self.agent.clone(),
            detail,
        }
    }
}

/// All sessions that a conversation ever had, in order of their first use, with the latest data about each and whether it was
/// ever written.
fn sessions_of_conversation(
    record: &ConversationRecord,
    lineage: &[LineageEntry],
) -> Vec<(SessionRef, bool)> {
    let links = record.chain.links().iter();
    let links = links.map(|link| (SessionRef::from(link), link.written));
    let of_lineage = lineage.iter().filter(|entry| !entry.upstream_id.is_empty());
    let entries = of_lineage.map(|entry| {
        let session = SessionRef {
            agent: entry.agent.clone(),
            cwd: entry.cwd.clone(),
            upstream_id: entry.upstream_id.clone(),
        };
        (session, entry.written)
    });
    let mut known: IndexMap<UpstreamId, (SessionRef, bool)> = IndexMap::new();
    for (session, is_written) in entries.chain(links) {
        let id = session.upstream_id.clone();
        let (known, was_written) = known.entry(id).or_insert_with(|| (session.clone(), false));
        *known = session;
        *was_written |= is_written;
    }
    known.into_values().collect()
}

/// The path of a folder without symbolic links, if it differs.
fn real_path(cwd: &str) -> Option<String> {
    real_folder(cwd).filter(|real| real != cwd)
}

/// Checks the path that a caller gives, as far as possible before writing.
fn usable_target(path: &str) -> Result<PathBuf, ConversationError> {
    let target = absolute_path(path)?;
    if target.file_name().is_none() || path.ends_with('/') {
        return Err(unusable_path(&target, "it names no file"));
    }
    match target.parent().map(fs::metadata) {
        Some(Ok(metadata)) if metadata.is_dir() => {}
        Some(Err(error)) => {
            return Err(unusable_path(
                &target,
                &format!("its folder cannot be used ({error})"),
            ));
        }
        _ => return Err(unusable_path(&target, "its parent is not a folder")),
    }
    match target.symlink_metadata() {
        Ok(found) if found.is_dir() => Err(ConversationError::Conflict(format!(
            "{path} is a folder; name a file in it"
        ))),
        Ok(_) => Err(ConversationError::Conflict(format!(
            "{path} exists already, and is not overwritten; name another file"
        ))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(target),
        // For example, the name is too long. Writing would report that only at the end.
        Err(error) => Err(unusable_path(&target, &error.to_string())),
    }
}

fn unusable_path(target: &Path, why: &str) -> ConversationError {
    ConversationError::invalid("path", format!("{} cannot be written: {why}", target.display()))
}

/// The default paths of a bundle: the first free name in the daemon's folder for exports, and the names after it.
fn default_targets(
    services: &Services,
    view: &Conversation,
) -> Result<(PathBuf, impl Iterator<Item = PathBuf> + use<>), ConversationError> {
    let folder = services.data_folder.join(names::EXPORTS);
    make_folders(&folder).map_err(|error| unusable_path(&folder, &error.to_string()))?;
    let stem = format!("{}-{}", file_stem(view), now().strftime("%Y-%m-%d"));
    let full = format!(
        "{} already has {SAME_NAME_LIMIT} exports with this name from today; delete some, or give the path of a file",
        folder.display()
    );
    let mut paths = (1..=SAME_NAME_LIMIT).map(move |number| {
        let number = if number == 1 {
            String::new()
        } else {
            format!("-{number}")
        };
        folder.join(format!("{stem}{number}{}", bundle::BUNDLE_SUFFIX))
    });
    let free = paths.find(|path| path.symlink_metadata().is_err());
    let free = free.ok_or(ConversationError::Conflict(full))?;
    Ok((free, paths))
}

/// The conversation's title as a file name that is valid on any system, or the beginning of its id if nothing remains.
fn file_stem(view: &Conversation) -> String {
    let mut stem = String::new();
    for character in view.title.chars() {
        let before = stem.len();
        if character.is_alphanumeric() {
            stem.extend(character.to_lowercase());
        } else if !stem.is_empty() && !stem.ends_with('-') {
            stem.push('-');
        }
        if stem.len() > NAME_LIMIT_BYTES {
            stem.truncate(before);
            break;
        }
    }
    let stem = stem.trim_end_matches('-');
    if stem.is_empty() {
        return view.id.to_string().chars().take(8).collect();
    }
    stem.to_owned()
}
