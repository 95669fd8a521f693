//! Importing a bundle: continues a conversation that was exported elsewhere.
//!
//! Owns the checks before any file is put in place, and where the files go. Everything is first checked in a folder of
//! the daemon. If the conversation cannot be recorded, the files are removed again. Blocks; call it from a blocking
//! thread.

mod folders;
mod import_intents;
mod placed_files;
mod rollout;
mod settings;
mod translation;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bridge_protocol::conversation::{ConversationState, Parent, Settings};
use bridge_protocol::export::{ImportAnswer, MissingSession, UnchangedLines};
use bridge_protocol::link::{Fidelity, LineageEntry};
use bridge_protocol::method::Import;
use bridge_protocol::{AgentName, ConversationId, UpstreamId};
use serde::Serialize;
use uuid::Uuid;

use super::bundle::unpack::{manifest, unpack};
use super::bundle::{BundleError, BundledSession, Manifest};
use super::error::ConversationError;
use super::folder::{absolute_path, real_folder};
use super::naming::{check_namespace, check_title, normalized_title};
use super::page::{ENTRY_LIMIT_BYTES, encoded_bytes};
use super::registry::check_settings;
use super::running_work::Progress;
use super::services::{Services, now};
use super::state::view_of_record;
use super::unfinished::{UndoPolicy, has_owner};
use crate::agent::catalog::AgentEntry;
use crate::chain::Chain;
use crate::files::identity;
use crate::store::{Change, ConversationRecord, RestingState, TranscriptRoot};
use crate::transcript::codex::HistoryBase;
use crate::transcript::locate::own_folder;
use crate::transcript::relocate::Relocation;
use folders::FolderChoice;
pub(crate) use import_intents::IMPORT_INTENTS;
pub(super) use placed_files::PlacedFiles;
use placed_files::place_files;
use translation::NameTranslation;

/// The highest revision that an import takes over, since bundles may contain any number. Beyond twice this, many programs do not
/// read the numbers of JSON exactly.
const MAX_REVISION: u64 = 1 << 52;

/// An imported conversation whose files are in place but that is not recorded yet.
pub(super) struct PreparedImport {
    pub(super) placed_files: PlacedFiles,
    pub(super) record: ConversationRecord,
    pub(super) change: Change,
    pub(super) answer: ImportAnswer,
}

/// The ids, agents and folders of an import.
struct ImportPlan {
    id: ConversationId,
    /// The local agents, by their names in the bundle.
    agents: BTreeMap<AgentName, Arc<AgentEntry>>,
    cwd: String,
    translation: NameTranslation,
}

/// Checks a bundle and puts its files in place.
///
/// # Errors
/// If the bundle is damaged or cannot be used here, or its ids are taken. Nothing is left behind then.
pub(super) fn import(
    services: &Arc<Services>,
    import: &Import,
    progress: &Progress,
) -> Result<PreparedImport, ConversationError> {
    let path = usable_path(&import.path)?;
    let placement = FolderChoice::of(import)?;
    let manifest = manifest(&path)?;
    check_texts(&manifest)?;
    let plan = plan_import(services, &manifest, import, &placement)?;
    if !import.new_ids {
        check_free(services, &manifest, &plan)?;
    }
    let given = manifest.settings.clone();
    let given = settings::relocated(given, &manifest.conversation.cwd, &plan.cwd);
    let (settings, left_out) = settings::trusted_settings(given, import.trust_settings);
    let links = translated_chain(&manifest, &plan)?;
    // Each file is read twice: from the bundle, and to put it in place.
    progress.expect_bytes(manifest.bytes().saturating_mul(2));
    // Only one import runs at a time, so any existing plan is unfinished.
    undo_unfinished(services);
    let owner_services = Arc::clone(services);
    let may_have_owner = move |session: &UpstreamId| may_have_owner(&owner_services, session);
    let mut placed = PlacedFiles::begin(&services.data_folder, plan.id, Box::new(may_have_owner))
        .map_err(BundleError::from)?;
    let files = unpack(&path, &manifest, placed.staging_folder(), progress)?;
    let results = result_paths(&manifest, &plan);
    let bases = rollout::continued_sessions(&manifest, &files)?;
    let mut files = files.as_slice();
    let missing = manifest.missing.iter().map(|gone| translate_missing(gone, &plan));
    let missing: Vec<MissingSession> = missing.collect();
    let mut unchanged = Vec::new();
    for session in &manifest.sessions {
        let (own, rest) = files.split_at(session.files.len().min(files.len()));
        files = rest;
        let lines = place_session_files(
            &mut placed,
            &manifest,
            session,
            own,
            (&plan, import.new_ids, &results, &bases),
            progress,
        )?;
        if lines > 0 {
            unchanged.push(UnchangedLines {
                upstream_id: plan.translation.session(&session.upstream_id),
                agent: plan.translation.agent(&session.agent),
                lines,
            });
        }
    }
    let fidelity = import_fidelity(&manifest, |session| {
        let id = plan.translation.session(session);
        unchanged.iter().any(|lines| lines.upstream_id == id)
    });
    let (record, change) = new_record(services, &manifest, &plan, links, settings, fidelity);
    let answer = ImportAnswer {
        conversation: view_of_record(&record),
        missing,
        unchanged,
        left_out,
        missing_values: manifest.missing_values,
    };
    Ok(PreparedImport {
        placed_files: placed,
        record,
        change,
        answer,
    })
}

/// Checks that the ids are still unused, because another call may have taken them.
///
/// # Errors
/// [`ConversationError::Conflict`] if one is taken.
pub(super) fn check_still_free(
    services: &Services,
    imported: &PreparedImport,
) -> Result<(), ConversationError> {
    conversation_is_free(services, imported.record.id)?;
    for (_, root, id) in &imported.change.upstream {
        session_is_free(services, id, root)?;
    }
    Ok(())
}

fn usable_path(path: &str) -> Result<PathBuf, ConversationError> {
    let path = absolute_path(path)?;
    let why = match fs::metadata(&path) {
        Ok(metadata) if metadata.is_file() => return Ok(path),
        Ok(_) => format!("{} is not a file", path.display()),
        Err(error) => format!("{} cannot be read ({error})", path.display()),
    };
    Err(ConversationError::invalid("path", why))
}

/// Checks names and settings as strictly as those of a call.
fn check_texts(manifest: &Manifest) -> Result<(), ConversationError> {
    check_title(&manifest.conversation.title)
        .and_then(|()| check_namespace(&manifest.conversation.namespace))
        .and_then(|()| check_settings(&manifest.settings))
        .map_err(|error| error.in_named_file("path"))?;
    check_sizes(manifest)
}

/// Checks that each part of the manifest fits into an answer: if one does not, every list that reaches it fails.
///
/// # Errors
/// [`ConversationError::InvalidParams`] for the first part that is too large.
fn check_sizes(manifest: &Manifest) -> Result<(), ConversationError> {
    let mut conversation = manifest.conversation.clone();
    // Lists show the conversation with these settings.
    conversation.settings = manifest.settings.clone();
    check_size("conversation", &conversation)?;
    check_size("failure", &manifest.failure)?;
    check_size("missing", &manifest.missing)?;
    check_size("missingValues", &manifest.missing_values)?;
    check_size("chain", &manifest.chain)?;
    for entry in &manifest.lineage {
        check_size("lineage", entry)?;
    }
    Ok(())
}

fn check_size(what: &str, part: &impl Serialize) -> Result<(), ConversationError> {
    let bytes = encoded_bytes(part);
    if bytes <= ENTRY_LIMIT_BYTES {
        return Ok(());
    }
    let why = format!(
        "the bundle cannot be imported: {what} in its manifest has {} MiB, more than the {} MiB that an answer can hold",
        bytes.div_ceil(1024 * 1024),
        ENTRY_LIMIT_BYTES / 1024 / 1024
    );
    Err(ConversationError::invalid("path", why))
}

fn plan_import(
    services: &Services,
    manifest: &Manifest,
    import: &Import,
    placement: &FolderChoice,
) -> Result<ImportPlan, ConversationError> {
    let mut agents = BTreeMap::new();
    for name in manifest.agent_names() {
        let local = local_agent(services, manifest, name)?;
        let form = local.listed_transcripts().map(|(_, format)| format);
        let mut of_it = manifest.sessions.iter().filter(|session| session.agent == *name);
        if of_it.any(|session| Some(session.form) != form) {
            return Err(ConversationError::Unsupported(format!(
                "this version cannot put transcripts where the agent {} keeps them",
                local.name
            )));
        }
        agents.insert(name.clone(), local);
    }
    let (cwd, folders) = placement.folders(manifest)?;
    let ids = manifest.lineage.iter().map(|entry| &entry.upstream_id);
    let ids = ids.chain(manifest.sessions.iter().map(|session| &session.upstream_id));
    let ids = ids.filter(|id| import.new_ids && !id.is_empty());
    let is_rollout = |id: &UpstreamId| {
        let mut sessions = manifest.sessions.iter();
        sessions.any(|session| {
            session.upstream_id == *id && session.form.dialect().abilities().continues_by_reference
        })
    };
    let translation = NameTranslation {
        folders,
        sessions: ids
            .map(|id| {
                // The same UUID version as the agent's own: Codex ids sort by time.
                let new = if is_rollout(id) {
                    Uuid::now_v7()
                } else {
                    Uuid::new_v4()
                };
                (id.clone(), UpstreamId::new(new.to_string()))
            })
            .collect(),
        agents: agents
            .iter()
            .map(|(bundled, local)| (bundled.clone(), local.name.clone()))
            .collect(),
    };
    let id = if import.new_ids {
        ConversationId::mint()
    } else {
        manifest.conversation.id
    };
    Ok(ImportPlan {
        id,
        agents,
        cwd,
        translation,
    })
}

/// The agent of this machine that replaces the one of the exporting machine.
fn local_agent(
    services: &Services,
    manifest: &Manifest,
    name: &AgentName,
) -> Result<Arc<AgentEntry>, ConversationError> {
    let agent = manifest.agents.iter().find(|agent| agent.name == *name);
    let kind = agent.map_or("", |agent| agent.kind.as_str());
    let local = services.catalog.replacement_for(name, kind);
    local.cloned().ok_or_else(|| {
        ConversationError::AgentUnavailable(format!(
            "the conversation needs the agent \"{name}\" or another one of kind {kind}, and none is configured here; the \
             agents are: {}. Agents are configured in config.toml",
            services.catalog.names()
        ))
    })
}

fn check_free(services: &Services, manifest: &Manifest, plan: &ImportPlan) -> Result<(), ConversationError> {
    conversation_is_free(services, plan.id)?;
    for entry in manifest
        .lineage
        .iter()
        .filter(|entry| !entry.upstream_id.is_empty())
    {
        session_is_free(
            services,
            &entry.upstream_id,
            &transcript_root_of(services, &plan.translation.agent(&entry.agent)),
        )?;
    }
    Ok(())
}

fn conversation_is_free(services: &Services, id: ConversationId) -> Result<(), ConversationError> {
    let held = services.store.conversation(id)?;
    match held {
        None => Ok(()),
        Some(record) => Err(ConversationError::Conflict(format!(
            "conversation {id} {}",
            match record.deleted_at {
                Some(_) => "was deleted here, and its id is never used again; import it under new ids",
                None => "already exists here; to import a second copy, use new ids",
            }
        ))),
    }
}

/// Whether a conversation was recorded, even if it was deleted since. True if the store cannot be read.
fn is_written(services: &Services, id: ConversationId) -> bool {
    services
        .store
        .conversation(id)
        .map_or(true, |held| held.is_some())
}

/// Undoes unfinished imports of earlier daemons, if the store can tell that no conversation owns their files. Returns whether
/// each was undone or set aside.
pub(super) fn undo_unfinished(services: &Services) -> bool {
    let policy = UndoPolicy::of(&services.store);
    let is_written = |id| is_written(services, id);
    let may_have_owner = |session: &UpstreamId| may_have_owner(services, session);
    policy == UndoPolicy::Leave
        || import_intents::settle(&services.data_folder, &policy, is_written, may_have_owner)
}

/// Whether a conversation owns a session, or may own it.
fn may_have_owner(services: &Services, session: &UpstreamId) -> bool {
    has_owner(&services.store, session).unwrap_or(true)
}

fn session_is_free(
    services: &Services,
    id: &UpstreamId,
    root: &TranscriptRoot,
) -> Result<(), ConversationError> {
    let owners = services.store.owners(id, Some(root))?;
    match owners.first() {
        None => Ok(()),
        Some(owner) => Err(ConversationError::Conflict(format!(
            "the session {id} already belongs to conversation {owner} here; to import a second copy, use new ids"
        ))),
    }
}

fn transcript_root_of(services: &Services, agent: &AgentName) -> TranscriptRoot {
    match services.catalog.get(agent) {
        Some(entry) => entry.transcript_root(),
        // An agent that only the lineage names and that is not configured here.
        None => TranscriptRoot::new(format!("agent:{agent}")),
    }
}

/// Puts the files of a session in place. Returns how many lines were too long to edit.
fn place_session_files(
    placed: &mut PlacedFiles,
    manifest: &Manifest,
    session: &BundledSession,
    sources: &[PathBuf],
    (plan, new_ids, results, bases): (&ImportPlan, bool, &BTreeMap<String, String>, &[HistoryBase]),
    progress: &Progress,
) -> Result<u64, ConversationError> {
    let entry = plan.agents.get(&session.agent);
    let root = entry.and_then(|entry| entry.listed_transcripts());
    let (root, _) = root.ok_or(ConversationError::Internal)?;
    let new_id = plan.translation.session(&session.upstream_id);
    if session.form.dialect().abilities().continues_by_reference {
        let source = sources.first().ok_or(ConversationError::Internal)?;
        let new_ids = if new_ids {
            Some(&plan.translation.sessions)
        } else {
            None
        };
        let placing =
            rollout::place_rollout(placed, session, source, (root, &new_id), new_ids, bases, progress);
        return Ok(placing?);
    }
    let cwd = plan.translation.folder(&session.cwd);
    let folder = own_folder(root, Path::new(&cwd));
    let mut folders = folder_mapping(&session.cwd, session.real_cwd.as_deref(), &cwd);
    folders.extend(folder_mapping(
        &manifest.conversation.cwd,
        manifest.real_cwd.as_deref(),
        &plan.cwd,
    ));
    let sessions = plan.translation.sessions.iter();
    let sessions = sessions.filter(|_| new_ids).map(|(old, new)| {
        let text = |id: &UpstreamId| id.as_str().to_owned();
        (text(old), text(new))
    });
    let relocation = Relocation {
        folders,
        sessions: sessions.collect(),
        results: results.clone(),
    };
    Ok(place_files(
        placed,
        session,
        sources,
        (&folder, &new_id),
        &relocation,
        progress,
    )?)
}

/// The destinations of all side files, by their paths from the session's folder on. Transcripts refer to tool results by path.
fn result_paths(manifest: &Manifest, plan: &ImportPlan) -> BTreeMap<String, String> {
    let mut results = BTreeMap::new();
    let sessions = manifest.sessions.iter();
    for session in sessions.filter(|session| !session.form.dialect().abilities().continues_by_reference) {
        let entry = plan.agents.get(&session.agent);
        let Some((root, _)) = entry.and_then(|entry| entry.listed_transcripts()) else {
            continue;
        };
        let folder = own_folder(root, Path::new(&plan.translation.folder(&session.cwd)));
        let new_id = plan.translation.session(&session.upstream_id);
        for file in session.files.iter().skip(1) {
            let rest = file.name.strip_prefix(session.upstream_id.as_str());
            // A transcript cannot contain a path that is not UTF-8.
            let target = rest.and_then(|rest| {
                folder
                    .join(format!("{new_id}{rest}"))
                    .into_os_string()
                    .into_string()
                    .ok()
            });
            let Some(target) = target else { continue };
            if let Some(known_as) = &file.known_as {
                // If the owner's file is here too, keep its path, so that the session stays unchanged: it may be here already.
                let owned = folder.join(known_as);
                let is_here = new_id == session.upstream_id
                    && identity::has_content(&owned, file.bytes, &file.sha256).unwrap_or(false);
                let owned = if is_here {
                    owned.into_os_string().into_string().ok()
                } else {
                    None
                };
                results
                    .entry(known_as.clone())
                    .or_insert_with(|| owned.unwrap_or_else(|| target.clone()));
            }
            results.insert(file.name.clone(), target);
        }
    }
    results
}

/// Maps the paths in records of a session that ran in `old`. Agents write a folder as given or without its symbolic
/// links.
fn folder_mapping(old: &str, old_real: Option<&str>, new: &str) -> Vec<(String, String)> {
    if old == new {
        return Vec::new();
    }
    let new_real = real_folder(new).unwrap_or_else(|| new.to_owned());
    match old_real {
        Some(old_real) => vec![(old.to_owned(), new.to_owned()), (old_real.to_owned(), new_real)],
        None => vec![(old.to_owned(), new_real)],
    }
}

/// The chain and its lineage, with local names.
fn translated_chain(
    manifest: &Manifest,
    plan: &ImportPlan,
) -> Result<(Chain, Vec<LineageEntry>), ConversationError> {
    let names = &plan.translation;
    let links = manifest.chain.iter().map(|link| names.link(link)).collect();
    let lineage: Vec<LineageEntry> = manifest.lineage.iter().map(|entry| names.entry(entry)).collect();
    let chain = Chain::from_parts(links, &lineage);
    let chain = chain.map_err(|fault| {
        ConversationError::TranscriptDamaged(format!("the bundle cannot be used: {fault}"))
    })?;
    Ok((chain, lineage))
}

/// The record of the imported conversation.
fn new_record(
    services: &Services,
    manifest: &Manifest,
    plan: &ImportPlan,
    (mut chain, mut lineage): (Chain, Vec<LineageEntry>),
    settings: Settings,
    fidelity: Fidelity,
) -> (ConversationRecord, Change) {
    let at = now();
    let (exported, names) = (&manifest.conversation, &plan.translation);
    // The lineage says `restored`, not `adopted`: chain and lineage come from the exported copy.
    lineage.extend(chain.log_restored(fidelity, at));
    let mut record = ConversationRecord::new(plan.id, names.agent(&exported.agent), plan.cwd.clone(), at);
    record.namespace.clone_from(&exported.namespace);
    record.title = normalized_title(&exported.title);
    record.chain = chain;
    record.parent = exported.parent.as_ref().map(|parent| Parent {
        conversation_id: parent.conversation_id,
        checkpoint_id: parent.checkpoint_id.as_ref().map(|id| names.checkpoint(id)),
    });
    record.settings = settings;
    record.limit.clone_from(&exported.limit);
    record.interrupts.clone_from(&exported.interrupts);
    for interrupt in &mut record.interrupts {
        interrupt.orphaned = true;
    }
    record.resting = match exported.state {
        ConversationState::Idle => RestingState::Idle,
        ConversationState::Limited => RestingState::Limited,
        ConversationState::Failed => RestingState::Failed,
        _ => RestingState::Interrupted,
    };
    record.failure.clone_from(&manifest.failure);
    record.created_at = exported.created_at;
    // Clients may still know an earlier revision under this id.
    record.revision = exported.revision.min(MAX_REVISION).saturating_add(1);
    let sessions: BTreeSet<(AgentName, UpstreamId)> = lineage
        .iter()
        .filter(|entry| !entry.upstream_id.is_empty())
        .map(|entry| (entry.agent.clone(), entry.upstream_id.clone()))
        .collect();
    let change = Change {
        upstream: sessions
            .into_iter()
            .map(|(agent, id)| (record.id, transcript_root_of(services, &agent), id))
            .collect(),
        lineage: lineage.into_iter().map(|entry| (record.id, entry)).collect(),
        conversation: Some(record.clone()),
        ..Change::default()
    };
    (record, change)
}

/// How much of the history was imported. `is_unchanged`: whether a session has uneditable lines that the agent may ignore.
fn import_fidelity(manifest: &Manifest, is_unchanged: impl Fn(&UpstreamId) -> bool) -> Fidelity {
    let Some(head) = manifest.chain.last() else {
        return Fidelity::Full;
    };
    let mut sessions = manifest.sessions.iter();
    let of_head = sessions.find(|session| session.upstream_id == head.upstream_id);
    // A Codex fork is useless without the files that it continues.
    let may_continue = of_head.is_some_and(|head| head.form.dialect().abilities().continues_by_reference);
    let has_unchanged = match may_continue {
        true => manifest
            .sessions
            .iter()
            .any(|session| is_unchanged(&session.upstream_id)),
        false => is_unchanged(&head.upstream_id),
    };
    let is_cut = has_unchanged || may_continue && !manifest.missing.is_empty();
    match (of_head.is_some(), manifest.sessions.is_empty()) {
        _ if !head.written => Fidelity::Full,
        (true, _) if is_cut => Fidelity::Partial,
        (true, _) => Fidelity::Full,
        (false, false) => Fidelity::Partial,
        (false, true) => Fidelity::None,
    }
}

fn translate_missing(missing: &MissingSession, plan: &ImportPlan) -> MissingSession {
    MissingSession {
        upstream_id: plan.translation.session(&missing.upstream_id),
        agent: plan.translation.agent(&missing.agent),
        detail: missing.detail.clone(),
    }
}
