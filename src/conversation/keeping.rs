//! Backups of transcripts: which files of an agent are backed up, and restoring them.
//!
//! Owns the channel through which conversations ask for a backup of a session, and the settings of the user. The copies
//! belong to the archive. Blocks, except for the request for a backup.

mod moved;
mod reading;

use crate::store::{ConversationRecord, StoreError, TranscriptRoot};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bridge_protocol::link::Link;
use bridge_protocol::{AgentName, UpstreamId};
use jiff::Timestamp;
use tokio::sync::Notify;

use super::error::ConversationError;
use super::services::{Services, chain_text};
use crate::agent::catalog::AgentEntry;
use crate::archive::{Archive, KeptFrom, Key, MissingTurns, Noticed};
use crate::files::misplaced::Misplaced;
use crate::transcript::TranscriptError;
use crate::transcript::blank::is_blank;
use crate::transcript::dialect::Dialect;
use crate::transcript::relocate::Relocation;
use crate::transcript::shelf::Format;

pub(super) use reading::in_place_of_lost;

/// How many sessions may be asked for at once: more than turns end in the time of one round.
const ASKED: usize = 1_024;

/// What the user has set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepRules {
    /// Whether transcripts are kept without being asked for.
    pub is_on: bool,
    /// For how many days after they were last written to; for ever where none is given.
    pub days: Option<u64>,
    /// How much all copies may take on the disk.
    pub bytes: Option<u64>,
}

impl Default for KeepRules {
    fn default() -> Self {
        Self {
            is_on: true,
            days: None,
            bytes: None,
        }
    }
}

/// How a session is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// Its files get second names.
    Linked,
    /// They are copied.
    Packed,
}

/// A session that is to be kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Session {
    /// The agent that has it.
    pub agent: AgentName,
    /// The folder that it runs in.
    pub cwd: String,
    /// The agent's own id of it.
    pub upstream_id: UpstreamId,
}

impl From<&Link> for Session {
    fn from(link: &Link) -> Self {
        Self {
            agent: link.agent.clone(),
            cwd: link.cwd.clone(),
            upstream_id: link.upstream_id.clone(),
        }
    }
}

/// What is kept, and what is to be.
#[derive(Debug)]
pub struct Keeper {
    /// The copies.
    pub archive: Archive,
    /// What the user has set.
    pub rules: KeepRules,
    asked: Mutex<BTreeMap<Session, Depth>>,
    wake: Notify,
    /// What was reported to be in place of a folder of copies. Every backup meets it.
    misplaced: Mutex<BTreeSet<PathBuf>>,
}

impl Keeper {
    /// Copies in this folder.
    #[must_use]
    pub fn new(folder: PathBuf, rules: KeepRules) -> Self {
        Self {
            archive: Archive::new(folder),
            rules,
            asked: Mutex::default(),
            wake: Notify::new(),
            misplaced: Mutex::default(),
        }
    }

    /// Something was written to this session; it is kept soon, where that is on. One that is asked for beyond what can wait is
    /// kept when it is asked for again, or within the day.
    pub fn ask(&self, session: Session, depth: Depth) {
        if !self.rules.is_on || session.upstream_id.is_empty() {
            return;
        }
        let mut asked = self.lock();
        if asked.len() < ASKED || asked.contains_key(&session) {
            let wanted = asked.entry(session).or_insert(depth);
            *wanted = depth.max(*wanted);
        }
        drop(asked);
        self.wake.notify_one();
    }

    /// Until something is asked for.
    pub async fn wait(&self) {
        self.wake.notified().await;
    }

    /// What was asked for since this was called last.
    #[must_use]
    pub fn take(&self) -> BTreeMap<Session, Depth> {
        std::mem::take(&mut *self.lock())
    }

    /// Whether this was not reported yet. It counts as reported then.
    pub(super) fn is_new(&self, misplaced: &Misplaced) -> bool {
        let mut reported = self.misplaced.lock().unwrap_or_else(PoisonError::into_inner);
        reported.insert(misplaced.path.clone())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Session, Depth>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// By what the archive knows a session.
pub(super) fn key(root: &Path, id: &UpstreamId) -> Key {
    Key {
        root: root.to_owned(),
        upstream_id: id.as_str().to_owned(),
    }
}

/// Backs up a session, with the rollouts in which its history begins. If its transcript is missing, its linked copies are
/// packed.
///
/// # Errors
/// What cannot be found for another reason than that it is gone, read or written.
pub(super) fn keep(
    services: &Services,
    entry: &AgentEntry,
    session: &Session,
    depth: Depth,
    turns: Option<u64>,
) -> Result<Noticed, TranscriptError> {
    let Some((root, format)) = entry.listed_transcripts() else {
        return Ok(Noticed::default());
    };
    let id = &session.upstream_id;
    let found = format.dialect().files(services.session(root, &session.cwd, id));
    let found = found.map(|(files, _)| files);
    let archive = &services.keeper.archive;
    let found = match found {
        Ok(found) => found,
        Err(error) if error.is_absence() => return archive.pack(&key(root, id), None, None),
        Err(error) => return Err(error),
    };
    let mut own = Noticed::default();
    let written = |path: &PathBuf| path.metadata().and_then(|metadata| metadata.modified()).ok();
    let newest = found.iter().filter_map(|(_, path)| written(path)).max();
    let newest = newest.and_then(|at| Timestamp::try_from(at).ok());
    // What cannot be kept of one does not cost the others.
    let mut first = Ok(());
    for (name, path) in found {
        let key = key(root, &UpstreamId::new(name));
        let is_own = key.upstream_id == id.as_str();
        let turns = turns.filter(|_| is_own);
        let kept = match depth {
            Depth::Linked => archive.link(&key, format.dialect(), &path, turns),
            Depth::Packed => archive.pack(&key, Some((format.dialect(), &path)), turns),
        };
        let kept = kept.and_then(|noticed| match newest.filter(|_| !is_own) {
            Some(at) => archive.note_continued(&key, at.as_millisecond()),
            None => {
                own = noticed;
                Ok(())
            }
        });
        first = first.and(kept);
    }
    first.map(|()| own)
}

/// How many turns were acknowledged on a session, including those that it took along. `None` if no conversation has it.
///
/// # Errors
/// If the store cannot be read. Then a copy must not be taken for one of all turns.
pub(super) fn acknowledged(
    services: &Services,
    entry: &AgentEntry,
    id: &UpstreamId,
) -> Result<Option<u64>, StoreError> {
    let mut most = None;
    for owner in services.store.owners(id, Some(&entry.transcript_root()))? {
        let Some(record) = services.store.conversation(owner)? else {
            continue;
        };
        let mut links = record.chain.links().iter();
        let link = links.find(|link| link.upstream_id == *id);
        most = most.max(link.map(|link| link.turns + link.carried_turns));
    }
    Ok(most)
}

/// The folder that a session of a conversation ran in, by which its agent keeps it; that of the conversation where it is not in
/// the chain any more.
pub(super) fn folder_of<'a>(record: &'a ConversationRecord, id: &UpstreamId) -> &'a str {
    let mut links = record.chain.links().iter();
    let link = links.find(|link| link.upstream_id == *id);
    link.map_or(&record.cwd, |link| &link.cwd)
}

/// How many acknowledged turns each session would lack that restoring this one would put in place. Of Codex these are also the
/// sessions that it continues. Only what the restored file does not show is counted: what is missing from one of Claude's is seen
/// whenever it is opened.
///
/// # Errors
/// If the store or the copies cannot be read.
fn losses(
    services: &Services,
    entry: &AgentEntry,
    id: &UpstreamId,
) -> Result<Vec<(UpstreamId, MissingTurns)>, TranscriptError> {
    let Some((root, format)) = entry.listed_transcripts() else {
        return Ok(Vec::new());
    };
    let archive = &services.keeper.archive;
    let none = MissingTurns::Known(0);
    let acknowledged = |id: &UpstreamId| {
        let turns = acknowledged(services, entry, id).map_err(|error| {
            TranscriptError::io("look up the turns of", Path::new(id.as_str()))(io::Error::other(error))
        });
        turns.map(Option::unwrap_or_default)
    };
    let (dialect, home) = (format.dialect(), services.home(root));
    // Files that continue others are found by their ids, in whichever folder the session runs.
    let folder = "";
    if !dialect.can().by_reference {
        if !dialect.is_gone(root, id.as_str()) {
            return Ok(Vec::new());
        }
        let later = archive.turns_behind(&key(root, id), acknowledged(id)?)?;
        return Ok(vec![(id.clone(), later.unwrap_or(none))]);
    }
    let mut losses = Vec::new();
    let path = dialect.find(home.session(Some(folder), id.as_str()));
    if path.is_ok_and(|path| is_blank(&path).unwrap_or(false)) {
        let later = archive.turns_behind(&key(root, id), acknowledged(id)?)?;
        losses.push((id.clone(), later.unwrap_or(none)));
    }
    let Some(kept) = in_place_of_lost(services, entry, id)? else {
        return Ok(losses);
    };
    for session in kept.sessions() {
        let id = UpstreamId::new(session.as_str());
        let acknowledged = acknowledged(&id)?;
        let later = match archive.turns_behind(&key(root, &id), acknowledged)? {
            Some(later) => later,
            None => dialect
                .open(services.home(kept.root()).session(Some(folder), session), None)
                .ok()
                // Every reader reports a missing beginning.
                .filter(|open| !open.begins_elsewhere())
                .and_then(|open| open.turns_recorded_at_most())
                .map_or(none, |recorded| {
                    MissingTurns::Known(acknowledged.saturating_sub(recorded))
                }),
        };
        losses.push((id, later));
    }
    Ok(losses)
}

/// How many acknowledged turns a session would lack if it were restored now. `None` if it would lack none.
///
/// # Errors
/// As [`losses`].
fn lost_turns(
    services: &Services,
    entry: &AgentEntry,
    id: &UpstreamId,
) -> Result<Option<MissingTurns>, TranscriptError> {
    let losses = losses(services, entry, id)?.into_iter();
    let own = losses
        .filter(|(session, _)| session == id)
        .map(|(_, turns)| turns);
    Ok(own.max().filter(|missing| *missing > MissingTurns::Known(0)))
}

/// Refuses a change that begins with the head of a conversation if that was restored with fewer turns and the conversation has
/// not reported it: the change would take the rest for all.
///
/// # Errors
/// [`ConversationError::TranscriptDamaged`].
pub(super) fn refuse_unreported(
    services: &Services,
    entry: &AgentEntry,
    record: &ConversationRecord,
) -> Result<(), ConversationError> {
    let Some(missing) = unreported(services, entry, record) else {
        return Ok(());
    };
    Err(ConversationError::TranscriptDamaged(format!(
        "session {id} was restored from a copy without its last turns ({missing}), which the conversation has not reported yet; close it and \
         resume it first: sessionctl close {id}, then sessionctl resume {id}",
        id = record.id
    )))
}

/// What the restored transcript of a conversation's head lacks that the conversation has not reported. The head of an edit or a fork
/// that was never prompted can be restored too, so it is asked for as well.
pub(super) fn unreported(
    services: &Services,
    entry: &AgentEntry,
    record: &ConversationRecord,
) -> Option<MissingTurns> {
    let ((root, _), head) = entry.listed_transcripts().zip(record.chain.head())?;
    services.keeper.archive.unreported(&key(root, &head.upstream_id))
}

/// Records that a conversation has reported what the restored transcript of a session lacks. If that fails it is reported again.
/// Blocks.
pub(super) fn note_reported(services: &Services, entry: &AgentEntry, id: &UpstreamId) {
    let Some((root, _)) = entry.listed_transcripts() else {
        return;
    };
    if let Err(error) = services.keeper.archive.note_reported(&key(root, id)) {
        tracing::warn!(upstream_id = %id, error = chain_text(&error), "could not record that missing turns were reported; the next resume reports them again");
    }
}

/// Puts those of these sessions of a conversation back that are gone, and of which all that was acknowledged is kept.
pub(super) fn put_back_whole<'a>(
    services: &Services,
    entry: &AgentEntry,
    record: &ConversationRecord,
    sessions: impl Iterator<Item = &'a UpstreamId>,
) {
    for id in sessions.filter(|id| is_lost(services, entry, record, id)) {
        let put = match lost_turns(services, entry, id) {
            Ok(None) => restore(services, entry, Some(folder_of(record, id)), id).map(drop),
            Ok(Some(_)) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = put {
            tracing::warn!(upstream_id = %id, error = chain_text(&error), "an older session could not be restored");
        }
    }
}

/// Puts a session of a conversation back that is lost, for a change that begins with it. With the sessions of the chain before
/// it, in which its history may begin; without them it is there all the same.
///
/// # Errors
/// When what is kept of it lacks turns, or cannot be put back.
pub(super) fn bring_back(
    services: &Services,
    entry: &AgentEntry,
    record: &ConversationRecord,
    id: &UpstreamId,
) -> Result<(), ConversationError> {
    let gone = |what: String| {
        ConversationError::TranscriptDamaged(format!("the transcript of session {id} is missing, and {what}"))
    };
    let unread = |error| {
        gone(format!(
            "its backup could not be restored: {}",
            chain_text(&error)
        ))
    };
    let is_head = record.chain.head().is_some_and(|head| head.upstream_id == *id);
    if let Some(lost) = lost_turns(services, entry, id).map_err(unread)? {
        return Err(gone(match is_head {
            true => format!(
                "its backup lacks the last turns ({lost}); sessionctl resume {} continues with it and reports what is missing; \
                 after that it can be branched, edited and repaired",
                record.id
            ),
            // A resume restores it only together with the head.
            false => format!(
                "its backup lacks the last turns ({lost}); restore it to use the turns before them: \
                 sessionctl archive restore {id}"
            ),
        }));
    }
    let links = record.chain.links();
    let place = links.iter().position(|link| link.upstream_id == *id);
    let older = links[..place.unwrap_or_default()].iter();
    put_back_whole(services, entry, record, older.map(|link| &link.upstream_id));
    let restored = restore(services, entry, Some(folder_of(record, id)), id).map_err(unread)?;
    tracing::info!(conversation = %record.id, upstream_id = %id, ?restored, "restored a transcript from its backup for a change that needs it");
    Ok(())
}

/// Whether the transcript of a session of a conversation is [missing](is_missing), and kept.
pub(super) fn is_lost(
    services: &Services,
    entry: &AgentEntry,
    record: &ConversationRecord,
    id: &UpstreamId,
) -> bool {
    let Some((root, format)) = entry.listed_transcripts() else {
        return false;
    };
    is_missing(services, root, format, folder_of(record, id), id) && is_kept(services, root, id)
}

/// Whether a session has no transcript, or only a blank one, as a loss of power leaves it.
pub(super) fn is_missing(
    services: &Services,
    root: &Path,
    format: Format,
    cwd: &str,
    id: &UpstreamId,
) -> bool {
    match format.dialect().find(services.session(root, cwd, id)) {
        Ok(path) => is_blank(&path).unwrap_or(false),
        Err(error) => error.is_absence(),
    }
}

/// Whether a session's transcript is kept.
pub(super) fn is_kept(services: &Services, root: &Path, id: &UpstreamId) -> bool {
    let kept = services.keeper.archive.has_transcript(&key(root, id));
    kept.unwrap_or_else(|error| {
        tracing::warn!(upstream_id = %id, %error, "the backups of a session cannot be read");
        false
    })
}

/// Whether a session's transcript is kept, or may be: where what is kept cannot be read nobody knows.
pub(super) fn may_be_kept(services: &Services, root: &Path, id: &UpstreamId) -> bool {
    let kept = services.keeper.archive.has_transcript(&key(root, id));
    kept.unwrap_or(true)
}

/// Puts what is kept of a session back to where its agent looks for it; from which folder that is done, where it is known. Its
/// records name the folder that it has now where they named one from which it was moved since.
/// What the file will lack is recorded first: its conversation reports that at the next resume, whatever happens until then.
/// Gives what was put there.
///
/// # Errors
/// That nothing is kept, that something else is there, what cannot be read or written.
pub(super) fn restore(
    services: &Services,
    entry: &AgentEntry,
    cwd: Option<&str>,
    id: &UpstreamId,
) -> Result<Vec<PathBuf>, TranscriptError> {
    let Some((root, format)) = entry.listed_transcripts() else {
        return Ok(Vec::new());
    };
    let archive = &services.keeper.archive;
    let losses = losses(services, entry, id)?;
    let lacking = |id: &str| {
        let of_session = losses.iter().filter(|(session, _)| session.as_str() == id);
        // An unknown number has its mark already, which stays.
        of_session
            .map(|(_, turns)| *turns)
            .max()
            .map_or(0, MissingTurns::turns)
    };
    let key = key(root, id);
    // None of its turns is new, also for who hears of the file before this is through.
    let mut placing = |id: &str, bytes| {
        services.old_bytes.note(&id.into(), bytes);
        Ok(())
    };
    let dialect = format.dialect();
    let relocation = relocation(services, entry, dialect, &key, id)?;
    let place = (cwd.map(Path::new), &relocation);
    archive.restore(dialect, &key, place, lacking, &mut placing)
}

/// Removes the copies of sessions that are deleted. Those in which histories of others begin stay for as long as these are kept.
/// Returned are those that may still be there although they were to go, each with why.
pub(super) fn forget(
    services: &Services,
    entry: &AgentEntry,
    ids: &[UpstreamId],
) -> Vec<(UpstreamId, TranscriptError)> {
    let Some((root, format)) = entry.listed_transcripts() else {
        return Vec::new();
    };
    let archive = &services.keeper.archive;
    if format.dialect().can().by_reference {
        let all = ids.iter().map(|id| id.as_str().to_owned()).collect();
        let known = entry.transcript_root();
        let removed = archive.remove_unneeded(root, &all, |id| is_used(services, &known, &id.into()));
        // Which of them it was is in the error.
        let failed = removed.err().zip(ids.first());
        return failed
            .map(|(error, id)| (id.clone(), error))
            .into_iter()
            .collect();
    }
    let removed = ids.iter().map(|id| (id, archive.remove(&key(root, id))));
    removed
        .filter_map(|(id, removed)| Some((id.clone(), removed.err()?)))
        .collect()
}

/// Whether a conversation has this session that is not deleted, or may have it.
pub(super) fn is_used(services: &Services, root: &TranscriptRoot, id: &UpstreamId) -> bool {
    let Ok(owners) = services.store.owners(id, Some(root)) else {
        return true;
    };
    owners.into_iter().any(|owner| {
        let record = services.store.conversation(owner);
        record.map_or(true, |record| {
            record.is_some_and(|record| record.deleted_at.is_none())
        })
    })
}

/// The folders that the records of a session are to name instead of those that they name in the kept copy.
fn relocation(
    services: &Services,
    entry: &AgentEntry,
    dialect: &dyn Dialect,
    key: &Key,
    id: &UpstreamId,
) -> Result<Relocation, TranscriptError> {
    let from = match dialect.can().by_folder {
        true => services.keeper.archive.kept_from(key)?,
        // A move leaves the records as they are.
        false => None,
    };
    Ok(Relocation {
        folders: from.map_or(Ok(Vec::new()), |from| moved_since(services, entry, id, &from))?,
        ..Relocation::default()
    })
}

/// The folders from which a session was moved since it was copied, and that in which it is now.
fn moved_since(
    services: &Services,
    entry: &AgentEntry,
    id: &UpstreamId,
    from: &KeptFrom,
) -> Result<Vec<(String, String)>, TranscriptError> {
    let unknown = |error| {
        TranscriptError::io("look for the folders of", Path::new(id.as_str()))(io::Error::other(error))
    };
    let owners = services.store.owners(id, Some(&entry.transcript_root()));
    // What is several conversations' stays where it is when one of them moves.
    let [owner] = owners.map_err(unknown)?[..] else {
        return Ok(Vec::new());
    };
    let lineage = services.store.lineage_all(owner).map_err(unknown)?;
    let real = |folder: &str| fs::canonicalize(folder).ok()?.into_os_string().into_string().ok();
    Ok(moved::folders(&moved::stations(&lineage, id), from, real))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(id: &str) -> Session {
        Session {
            agent: "claude".into(),
            cwd: "/p".to_owned(),
            upstream_id: id.into(),
        }
    }

    #[test]
    fn what_is_asked_for_is_kept_as_deep_as_anybody_wants() {
        let keeper = Keeper::new("/nowhere".into(), KeepRules::default());
        keeper.ask(session("a"), Depth::Linked);
        keeper.ask(session("a"), Depth::Packed);
        keeper.ask(session("a"), Depth::Linked);
        keeper.ask(session("b"), Depth::Linked);
        keeper.ask(session(""), Depth::Linked);
        let asked = keeper.take();
        assert_eq!(
            asked.into_iter().collect::<Vec<_>>(),
            [(session("a"), Depth::Packed), (session("b"), Depth::Linked)]
        );
        assert!(keeper.take().is_empty());
        let off = KeepRules {
            is_on: false,
            ..KeepRules::default()
        };
        let keeper = Keeper::new("/nowhere".into(), off);
        keeper.ask(session("a"), Depth::Packed);
        assert!(keeper.take().is_empty());
    }

    #[test]
    fn what_waits_is_bounded() {
        let keeper = Keeper::new("/nowhere".into(), KeepRules::default());
        for number in 0..2 * ASKED {
            keeper.ask(session(&number.to_string()), Depth::Linked);
        }
        assert_eq!(keeper.take().len(), ASKED);
    }
}
