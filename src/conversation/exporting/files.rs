//! Finds the files of the sessions in a bundle, and how much of each belongs to the export. Blocks.

use std::collections::BTreeSet;
use std::path::Path;

use bridge_protocol::UpstreamId;
use bridge_protocol::export::MissingSession;

use crate::archive::Unpacked;
use crate::conversation::bundle::{BundledSession, is_session_id, is_side_file_name};
use crate::conversation::services::{Services, SessionRef, chain_text};
use crate::transcript::TranscriptError;
use crate::transcript::claude::borrowed_files::{Claimed, collect_borrowed};
use crate::transcript::parts::SessionFile;

/// A session that goes into a bundle, and its files, which are not hashed yet.
pub(super) struct SessionWithFiles {
    pub(super) session: BundledSession,
    pub(super) parts: Vec<SessionFile>,
}

/// The files of sessions.
#[derive(Default)]
pub(super) struct BundleFiles {
    /// The sessions, each after those that it continues by reference.
    pub(super) sessions: Vec<SessionWithFiles>,
    /// What belongs to them and is not exported.
    pub(super) missing: Vec<MissingSession>,
    /// The backups of those whose whole transcripts the agent no longer has.
    pub(super) kept: Vec<Unpacked>,
}

/// Why there are no files of a session.
pub(super) enum NoFiles {
    /// They are gone or damaged, or cannot be exported.
    Missing(String),
    /// They cannot be read now.
    Unreadable(TranscriptError),
}

impl NoFiles {
    fn of(error: TranscriptError, what: &str) -> Self {
        match error.is_passing() {
            true => Self::Unreadable(error),
            false => Self::Missing(format!("{what}{}", chain_text(&error))),
        }
    }
}

impl BundleFiles {
    /// Adds the files of a session. Returns its backup, if the agent no longer has the whole transcript.
    pub(super) fn add_session(
        &mut self,
        services: &Services,
        held: &SessionRef,
    ) -> Result<Option<Unpacked>, NoFiles> {
        let Some(entry) = services.catalog.get(&held.agent) else {
            return Err(NoFiles::Missing(format!(
                "there is no agent {:?} in the configuration",
                held.agent.as_str()
            )));
        };
        let Some(((_, format), transcripts)) = entry.listed_transcripts().zip(services.transcripts_of(entry))
        else {
            return Err(NoFiles::Missing(format!(
                "session-bridge reads no transcripts of the agent {:?}, so none is exported",
                held.agent.as_str()
            )));
        };
        if !is_session_id(held.upstream_id.as_str()) {
            let why = "its id is not a UUID; only sessions with UUIDs can be exported";
            return Err(NoFiles::Missing(why.to_owned()));
        }
        let kept = transcripts
            .unpack_backup_of_missing(&held.upstream_id)
            .map_err(|error| NoFiles::of(error, "its backup cannot be read: "))?;
        let root = kept.as_ref().map_or(transcripts.root, Unpacked::root);
        let session = transcripts.in_folder(root).session(&held.cwd, &held.upstream_id);
        let read = transcripts.dialect.parts(session);
        let (found, gone) = read.map_err(|error| NoFiles::of(error, ""))?;
        self.missing.extend(gone.map(|gone| MissingSession {
            upstream_id: gone.upstream_id.into(),
            agent: held.agent.clone(),
            detail: format!("{} begins in it: {}", held.upstream_id.as_str(), gone.detail),
        }));
        for mut found in found {
            let is_exported = |part: &mut SessionFile| {
                part.path == found.transcript || is_side_file_name(&part.name, &found.upstream_id)
            };
            let others: Vec<SessionFile> = found.parts.extract_if(.., |part| !is_exported(part)).collect();
            let others = others.iter().map(|part| {
                let path = part.path.display();
                format!("{path} is not exported: only subagents/ and tool-results/ are")
            });
            let left_out = found.left_out.into_iter().chain(others);
            self.missing.extend(left_out.map(|what| held.missing(what)));
            let upstream_id = UpstreamId::new(found.upstream_id);
            let session = BundledSession {
                continued: upstream_id != held.upstream_id,
                upstream_id,
                agent: held.agent.clone(),
                cwd: held.cwd.clone(),
                real_cwd: None,
                form: format,
                folder: folder_below(root, &found.transcript),
                files: Vec::new(),
            };
            self.sessions.push(SessionWithFiles {
                session,
                parts: found.parts,
            });
        }
        self.kept.extend(kept.clone());
        Ok(kept)
    }
}

/// Removes duplicate sessions. If the conversation had a session that another one also continues, its own entry stays.
pub(super) fn deduplicate(found: Vec<SessionWithFiles>) -> Vec<SessionWithFiles> {
    let key = |session: &BundledSession| (session.agent.clone(), session.upstream_id.clone());
    let own = found.iter().map(|found| &found.session);
    let own: BTreeSet<_> = own.filter(|session| !session.continued).map(key).collect();
    let mut seen = BTreeSet::new();
    let is_first = |SessionWithFiles { session, .. }: &SessionWithFiles| {
        let key = key(session);
        !(session.continued && own.contains(&key)) && seen.insert(key)
    };
    let mut found = found;
    found.retain(is_first);
    found
}

/// Adds files that records of Claude's sessions refer to and that belong to sessions outside the bundle. A fork's long results
/// and its subagents stay with the session from which it was forked.
///
/// # Errors
/// If a file cannot be read now.
pub(super) fn add_borrowed(found: &mut [SessionWithFiles]) -> Result<Vec<MissingSession>, TranscriptError> {
    let stands_alone =
        |found: &&mut SessionWithFiles| !found.session.form.dialect().abilities().continues_by_reference;
    let mut claimed = Claimed::default();
    for session in found.iter() {
        let project = session
            .parts
            .first()
            .and_then(|transcript| transcript.path.parent());
        for part in &session.parts {
            claimed.add(project.unwrap_or(Path::new("")), part);
        }
    }
    let sessions = found.iter_mut().filter(stands_alone);
    let mut missing = Vec::new();
    for SessionWithFiles { session, parts } in sessions {
        let detail = match collect_borrowed(parts, &mut claimed) {
            Err(error) if error.is_passing() => return Err(error),
            Err(error) => Some(chain_text(&error)),
            Ok(detail) => detail,
        };
        missing.extend(detail.map(|detail| MissingSession {
            upstream_id: session.upstream_id.clone(),
            agent: session.agent.clone(),
            detail,
        }));
    }
    Ok(missing)
}

fn folder_below(root: &Path, path: &Path) -> String {
    let folder = path.parent().and_then(|folder| folder.strip_prefix(root).ok());
    folder.map_or_else(String::new, |folder| folder.to_string_lossy().into_owned())
}
