//! Facts from the transcripts of a conversation that the ladder and the branches need. Blocks; call it from a blocking
//! thread.

use std::io;
use std::path::{Path, PathBuf};

use bridge_protocol::id::{CheckpointId, UpstreamId};
use bridge_protocol::link::LineageEntry;
use jiff::Timestamp;
use uuid::Uuid;

use crate::chain::{Ancestor, HistorySource, Origins, ancestors, history_sources};
use crate::store::ConversationRecord;
use crate::transcript::TranscriptError;
use crate::transcript::checkpoint::CheckpointRef;
use crate::transcript::claude::{Branch, BranchOptions, Turn};
use crate::transcript::copy;
use crate::transcript::cut;
use crate::transcript::dialect::find;
use crate::transcript::library::Library;
use crate::transcript::locate::{file_name, own_folder};
use crate::transcript::preamble::{Missing, PastTurn, Preamble, TURN_LIMIT, preamble};
use crate::transcript::repair::repair;

use super::recovery::{Goal, Head, Inspection, OnDisk};
use super::services::chain_text;

/// The origins of every upstream id that a conversation ever held.
#[must_use]
pub(super) fn origins(record: &ConversationRecord, lineage: &[LineageEntry]) -> Origins {
    Origins::collect(lineage, record.chain.links())
}

/// The ancestors of the head, nearest first.
#[must_use]
pub(super) fn ancestors_of_head(record: &ConversationRecord, origins: &Origins) -> Vec<Ancestor> {
    record
        .chain
        .head()
        .map(|head| ancestors(&head.upstream_id, |id| origins.get(id)))
        .unwrap_or_default()
}

/// The uuid of the record that a checkpoint stands at.
#[must_use]
pub(super) fn record_uuid(checkpoint: &CheckpointId) -> Option<String> {
    checkpoint
        .as_str()
        .parse::<CheckpointRef>()
        .ok()
        .map(|parsed| parsed.record_uuid)
}

/// What the disk says of a head.
///
/// # Errors
/// As [`on_disk`].
pub(super) fn head_on_disk(
    library: &Library,
    root: &Path,
    cwd: &str,
    head: &Head,
) -> Result<Option<OnDisk>, TranscriptError> {
    let found = on_disk(library, root, cwd, &head.upstream_id, None)?;
    Ok(found.map(|file| file.with_carried(head.carried_turns)))
}

/// Looks at the transcripts of the head and its ancestors. One of an ancestor that cannot be read is as good as none; that
/// the head's cannot is told.
#[must_use]
pub(super) fn inspect(
    library: &Library,
    root: &Path,
    cwd: &str,
    goal: &Goal,
    origins: &Origins,
) -> Inspection {
    let head = goal.head.as_ref();
    let head = head.map(|head| head_on_disk(library, root, cwd, head));
    let (head, unread) = match head.transpose() {
        Ok(head) => (head.flatten(), None),
        Err(error) => (
            None,
            Some(format!("its transcript cannot be read: {}", chain_text(&error))),
        ),
    };
    let found: Vec<Option<OnDisk>> = goal
        .ancestors
        .iter()
        .map(|source| {
            seen(on_disk(
                library,
                root,
                cwd,
                &source.upstream_id,
                source.until.as_ref(),
            ))
        })
        .collect();
    let readable = history(library, root, cwd, goal, origins, 0);
    Inspection {
        head,
        unread,
        ancestors: found,
        readable_turns: readable.total,
        turns_after_readable: readable.turns_after,
        // Of one that lies elsewhere a copy under a new id leaves no doubt which is meant.
        is_astray: false,
        is_kept: false,
    }
}

/// What one transcript holds, up to a checkpoint or whole; none where there is none that reaches so far.
///
/// # Errors
/// When the folders, or the transcript that is there, cannot be read.
pub(super) fn on_disk(
    library: &Library,
    root: &Path,
    cwd: &str,
    id: &UpstreamId,
    until: Option<&CheckpointId>,
) -> Result<Option<OnDisk>, TranscriptError> {
    let read = find(library, root, cwd, id.as_str()).and_then(|path| {
        let branch = read_at(library, &path, until, 1)?;
        Ok((path, branch))
    });
    let (path, branch) = match read {
        Ok(read) => read,
        Err(error) if error.is_absence() || !is_in_own_folder(root, cwd, id) => return Ok(None),
        Err(error) => return Err(error),
    };
    let turns = branch.total_turns as u64;
    let last = branch.turns.last();
    let turns_at_most = if branch.cut_by_compaction {
        u64::MAX
    } else {
        turns + branch.asides as u64
    };
    let anywhere = || {
        let index = library.index(&path).ok()?;
        // A line that is no record may have been a turn.
        (index.garbage_lines() == 0).then(|| index.turns_at_most())
    };
    let turns_anywhere = match until {
        None if branch.breaks == 0 && !branch.cut_by_compaction => anywhere().unwrap_or(0),
        _ => 0,
    };
    let repaired = || {
        let joined = library.index(&path).ok()?.select_joined()?;
        Some(joined.prompt_offsets().len() as u64)
    };
    let repaired_turns = match until {
        None if branch.breaks > 0 => repaired().unwrap_or(0),
        _ => 0,
    };
    Ok(Some(OnDisk {
        last_is_cut: last
            .is_some_and(|turn| turn.last_uuid == turn.prompt_uuid || (branch.ends_torn && !turn.complete)),
        turns,
        turns_at_most,
        turns_anywhere,
        breaks: branch.breaks as u64,
        repaired_turns,
    }))
}

/// Whether a transcript is, or may be, where the agent looks first. If this user cannot look into the folder, the agent
/// cannot either.
fn is_in_own_folder(root: &Path, cwd: &str, id: &UpstreamId) -> bool {
    let Ok(name) = file_name(id.as_str()) else {
        return false;
    };
    let path = own_folder(root, Path::new(cwd)).join(name);
    !matches!(std::fs::symlink_metadata(path), Err(error) if error.kind() == io::ErrorKind::NotFound)
}

/// For those to whom a transcript that cannot be read is as good as none: the log says why.
#[must_use]
pub(super) fn seen(found: Result<Option<OnDisk>, TranscriptError>) -> Option<OnDisk> {
    found.unwrap_or_else(|error| {
        tracing::warn!(
            error = chain_text(&error),
            "a transcript is there and cannot be read"
        );
        None
    })
}

/// A history as far as it can be read.
#[derive(Default)]
struct Readable {
    /// Its last turns.
    turns: Vec<PastTurn>,
    /// How many there are.
    total: u64,
    /// How many were acknowledged on the links behind it.
    turns_after: u64,
}

/// The history as text, for a new session. It comes from the nearest session that can be read: the head, or else an ancestor
/// up to the place where the head's history left it.
fn history(
    library: &Library,
    root: &Path,
    cwd: &str,
    goal: &Goal,
    origins: &Origins,
    last: usize,
) -> Readable {
    let head = goal.head.as_ref();
    let head = head.map(|head| (head.upstream_id.clone(), None, 0));
    let ancestors = goal.ancestors.iter().map(|source| {
        (
            source.upstream_id.clone(),
            source.until.clone(),
            source.turns_after,
        )
    });
    for (id, until, turns_after) in head.into_iter().chain(ancestors) {
        let mut sources = history_sources(&id, |id| origins.get(id));
        if let Some(own) = sources.last_mut() {
            *own = HistorySource {
                upstream_id: id.clone(),
                until: until.clone().or(own.until.take()),
            };
        }
        let mut turns: Vec<PastTurn> = Vec::new();
        let mut total = 0;
        let mut own_is_readable = false;
        // Whether all that was retold to the next of them stands before it here, in its own words.
        let mut is_whole = true;
        for source in &sources {
            let Ok(branch) = read(
                library,
                root,
                cwd,
                &source.upstream_id,
                source.until.as_ref(),
                last,
            ) else {
                is_whole = false;
                continue;
            };
            own_is_readable |= source.upstream_id == id && branch.total_turns > 0;
            let is_told_before = is_whole && total > 0;
            is_whole &= !branch.cut_by_compaction;
            total += branch.total_turns as u64;
            turns.extend(
                branch
                    .turns
                    .iter()
                    .map(PastTurn::from)
                    .map(|turn| match is_told_before {
                        true => turn.without_retelling(),
                        false => turn,
                    }),
            );
        }
        if own_is_readable {
            let excess = turns.len().saturating_sub(last);
            turns.drain(..excess);
            return Readable {
                turns,
                total,
                turns_after,
            };
        }
    }
    Readable::default()
}

/// The preamble that contains the history as text.
#[must_use]
pub(super) fn retell(
    library: &Library,
    root: &Path,
    cwd: &str,
    goal: &Goal,
    origins: &Origins,
) -> Option<Preamble> {
    let readable = history(library, root, cwd, goal, origins, TURN_LIMIT);
    let told = readable.turns.len();
    let missing = Missing {
        before: usize::try_from(readable.total)
            .unwrap_or(usize::MAX)
            .saturating_sub(told),
        behind: usize::try_from(readable.turns_after).unwrap_or(usize::MAX),
    };
    preamble(&readable.turns, missing)
}

/// How many prompts stand in the transcript of a session, those of abandoned branches too; none where it cannot be read.
#[must_use]
pub(super) fn prompts(library: &Library, root: &Path, cwd: &str, id: &UpstreamId) -> Option<u64> {
    let path = find(library, root, cwd, id.as_str()).ok()?;
    library.index(&path).ok().map(|index| index.prompts())
}

/// The place after the last turn of a session, finished or not.
#[must_use]
pub(super) fn last_checkpoint(
    library: &Library,
    root: &Path,
    cwd: &str,
    agent: &str,
    id: &UpstreamId,
) -> Option<CheckpointId> {
    let branch = read(library, root, cwd, id, None, 1).ok()?;
    branch
        .turns
        .last()
        .map(|turn| checkpoint(agent, id, &turn.last_uuid))
}

/// The place after the last turn of a session that began before `running_since`, which is when the running turn's
/// prompt went out. What it has said so far may look like a whole reply, so the time decides; a record without one
/// counts when its turn is finished.
#[must_use]
pub(super) fn last_before(
    library: &Library,
    root: &Path,
    cwd: &str,
    agent: &str,
    id: &UpstreamId,
    running_since: Timestamp,
) -> Option<CheckpointId> {
    let branch = read(library, root, cwd, id, None, 2).ok()?;
    // Transcripts tell times in milliseconds.
    let since_ms = running_since.as_millisecond();
    let began_before = |turn: &&Turn| match turn.at.as_deref().map(str::parse::<Timestamp>) {
        Some(Ok(at)) => at.as_millisecond() < since_ms,
        Some(Err(_)) | None => turn.complete,
    };
    branch
        .turns
        .iter()
        .rev()
        .find(began_before)
        .map(|turn| checkpoint(agent, id, &turn.last_uuid))
}

/// The name of a place in a transcript.
pub(super) fn checkpoint(agent: &str, id: &UpstreamId, record_uuid: &str) -> CheckpointId {
    let place = CheckpointRef {
        agent: agent.to_owned(),
        upstream_id: id.as_str().to_owned(),
        record_uuid: record_uuid.to_owned(),
    };
    CheckpointId::new(place.to_string())
}

/// Copies a session's transcript under a new id, whole and as it is or cut at a checkpoint, into the folder where the agent looks
/// first for what runs in `to`: it may well not look where the source is (a folder that has become a link, say).
///
/// The id and the path are passed on before the file exists.
///
/// # Errors
/// When the transcript is not there, cannot be read, or the copy cannot be written. And what is answered by who is told.
pub(super) fn copy_session(
    library: &Library,
    root: &Path,
    (cwd, to): (&str, &str),
    id: &UpstreamId,
    until: Option<&CheckpointId>,
    note: impl FnOnce(&UpstreamId, &Path) -> Result<(), TranscriptError>,
) -> Result<(UpstreamId, PathBuf), TranscriptError> {
    let source = find(library, root, cwd, id.as_str())?;
    let (new_id, folder) = new_place(root, to, note)?;
    let name = new_id.as_str();
    let path = match until.and_then(record_uuid) {
        Some(uuid) => cut::cut(&source, &*library.index(&source)?, &folder, name, &uuid)?,
        None => copy::copy_as(&source, &folder, name)?,
    };
    Ok((new_id, path))
}

/// An id for a copy, and the folder where it goes.
fn new_place(
    root: &Path,
    cwd: &str,
    note: impl FnOnce(&UpstreamId, &Path) -> Result<(), TranscriptError>,
) -> Result<(UpstreamId, PathBuf), TranscriptError> {
    let new_id = UpstreamId::from(Uuid::new_v4().to_string());
    let folder = own_folder(root, Path::new(cwd));
    note(&new_id, &folder.join(file_name(new_id.as_str())?))?;
    Ok((new_id, folder))
}

/// As [`copy_session`], with what stands behind a place where records are missing joined to what stands before it. Gives the
/// place in the session with which the copy ends, too.
///
/// # Errors
/// As [`copy_session`].
pub(super) fn rebuild_session(
    library: &Library,
    root: &Path,
    cwd: &str,
    agent: &str,
    id: &UpstreamId,
    note: impl FnOnce(&UpstreamId, &Path) -> Result<(), TranscriptError>,
) -> Result<(UpstreamId, PathBuf, CheckpointId), TranscriptError> {
    let source = find(library, root, cwd, id.as_str())?;
    let index = library.index(&source)?;
    let branch = index.select_joined().ok_or_else(|| TranscriptError::NotFound {
        upstream_id: id.as_str().to_owned(),
        root: root.to_path_buf(),
    })?;
    let (new_id, folder) = new_place(root, cwd, note)?;
    let made = repair(&source, &index, &branch, &folder, new_id.as_str())?;
    let place = checkpoint(agent, id, branch.leaf_uuid());
    Ok((new_id, made.path, place))
}

/// As much of a session's history as is asked for. What was read of its transcript for another stays in the library.
fn read(
    library: &Library,
    root: &Path,
    cwd: &str,
    id: &UpstreamId,
    until: Option<&CheckpointId>,
    last_turns: usize,
) -> Result<Branch, TranscriptError> {
    read_at(
        library,
        &find(library, root, cwd, id.as_str())?,
        until,
        last_turns,
    )
}

fn read_at(
    library: &Library,
    path: &Path,
    until: Option<&CheckpointId>,
    last_turns: usize,
) -> Result<Branch, TranscriptError> {
    let options = BranchOptions {
        until: until.and_then(record_uuid),
        follow_compaction: true,
        last_turns: Some(last_turns),
    };
    library.branch(path, &options)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::transcript::meter::{Meter, metered};

    const CWD: &str = "/nowhere/project";
    const LINES: [&str; 3] = [
        r#"{"type":"user","uuid":"u1","parentUuid":null,"origin":{"kind":"human"},"message":{"content":"hi"}}"#,
        r#"{"type":"assistant","uuid":"a1","parentUuid":"u1","message":{"content":"hello"}}"#,
        r#"{"type":"user","uuid":"u2","parentUuid":"a1","origin":{"kind":"human"},"message":{"content":"and"}}"#,
    ];

    #[derive(Default)]
    struct Counter(AtomicU64);

    impl Meter for Counter {
        fn expect(&self, _: u64) {}

        fn read(&self, bytes: u64) -> std::io::Result<()> {
            self.0.fetch_add(bytes, Ordering::Relaxed);
            Ok(())
        }
    }

    /// What each question reads of a transcript, in bytes, one after the other.
    fn read_bytes(questions: &[&dyn Fn()]) -> Vec<u64> {
        let read = |question: &&dyn Fn()| {
            let counter = Arc::new(Counter::default());
            metered(Arc::clone(&counter) as Arc<dyn Meter>, question);
            counter.0.load(Ordering::Relaxed)
        };
        questions.iter().map(read).collect()
    }

    #[test]
    fn a_resume_reads_a_transcript_once_whatever_it_asks() {
        let root = tempfile::tempdir().unwrap();
        let folder = own_folder(root.path(), Path::new(CWD));
        std::fs::create_dir_all(&folder).unwrap();
        let text = LINES.join("\n") + "\n";
        std::fs::write(folder.join("s1.jsonl"), &text).unwrap();
        let id = UpstreamId::from("s1");
        let library = Library::default();
        let root = root.path();
        let head = || {
            let found = on_disk(&library, root, CWD, &id, None).unwrap().unwrap();
            assert_eq!((found.turns, found.last_is_cut, found.breaks), (2, true, 0));
        };
        let place = || {
            let place = last_checkpoint(&library, root, CWD, "claude", &id).unwrap();
            assert_eq!(record_uuid(&place).as_deref(), Some("u2"));
            let place = last_before(&library, root, CWD, "claude", &id, Timestamp::MIN).unwrap();
            assert_eq!(record_uuid(&place).as_deref(), Some("a1"));
        };
        let cut = || {
            let place = checkpoint("claude", &id, "a1");
            let (new_id, path) =
                copy_session(&library, root, (CWD, CWD), &id, Some(&place), |_, _| Ok(())).unwrap();
            let copied = std::fs::read_to_string(path).unwrap();
            let origins = copied
                .lines()
                .map(|line| line.split_once("\"messageUuid\":").unwrap().1);
            assert_eq!(origins.collect::<Vec<_>>(), ["\"u1\"}}", "\"a1\"}}"]);
            assert_eq!(prompts(&library, root, CWD, &id), Some(2));
            let until = on_disk(&library, root, CWD, &id, Some(&place)).unwrap().unwrap();
            assert_eq!((until.turns, until.last_is_cut), (1, false));
            assert_ne!(new_id, id);
        };
        // Once for all that is asked, and once for the lines that a cut copies.
        let bytes = text.len() as u64;
        assert_eq!(read_bytes(&[&head, &head, &place, &cut]), [bytes, 0, 0, bytes]);
        // Of several the first with turns is taken, and found so without reading it again.
        let other = root.join("projects/other");
        std::fs::create_dir_all(&other).unwrap();
        std::fs::write(other.join("s1.jsonl"), "{}\n").unwrap();
        assert_eq!(read_bytes(&[&head, &place]), [0, 0]);
    }

    #[test]
    fn what_is_there_and_cannot_be_read_is_not_taken_for_lost() {
        let root = tempfile::tempdir().unwrap();
        let folder = own_folder(root.path(), Path::new(CWD));
        std::fs::create_dir_all(&folder).unwrap();
        let id = UpstreamId::from("s1");
        let look = |root: &Path| on_disk(&Library::default(), root, CWD, &id, None);
        assert_eq!(look(root.path()).unwrap(), None);
        // A file in the place of the folder of all folders.
        let other = tempfile::tempdir().unwrap();
        std::fs::write(other.path().join("projects"), "").unwrap();
        assert!(look(other.path()).is_err());
    }

    #[test]
    fn turns_on_other_branches_count_where_every_line_can_be_read() {
        let root = tempfile::tempdir().unwrap();
        let folder = own_folder(root.path(), Path::new(CWD));
        std::fs::create_dir_all(&folder).unwrap();
        let instead = LINES[2].replace("u2", "u3");
        let held = |lines: &[&str], until: Option<&str>| {
            std::fs::write(folder.join("s1.jsonl"), lines.join("\n") + "\n").unwrap();
            let id = UpstreamId::from("s1");
            let until = until.map(|uuid| checkpoint("claude", &id, uuid));
            let found = on_disk(&Library::default(), root.path(), CWD, &id, until.as_ref())
                .unwrap()
                .unwrap();
            (
                found.turns,
                found.turns_at_most,
                found.turns_anywhere,
                found.breaks,
            )
        };
        let [first, reply, second] = LINES;
        let gone_back = [first, reply, second, &instead];
        assert_eq!(held(&gone_back, None), (2, 2, 3, 0));
        assert_eq!(held(&gone_back, Some("u2")), (2, 2, 0, 0));
        assert_eq!(
            held(&[first, reply, second, "garbage", &instead], None),
            (2, 2, 0, 0)
        );
        assert_eq!(held(&[first, "garbage", second, &instead], None).2, 0);
    }
}
