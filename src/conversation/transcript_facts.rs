//! The transcripts of an agent, and what the ladder and the branches need to know of them. Blocks; call it from a blocking
//! thread.

use std::path::{Path, PathBuf};

use bridge_protocol::id::{AgentName, CheckpointId, UpstreamId};
use bridge_protocol::link::Link;
use jiff::SignedDuration;

use crate::agent::catalog::AgentEntry;
use crate::archive::SessionKey;
use crate::chain::SessionCut;
use crate::transcript::TranscriptError;
use crate::transcript::checkpoint::CheckpointRef;
use crate::transcript::dialect::{AgentHome, Dialect, NewSession, Session};
use crate::transcript::open_transcript::OpenTranscript;
use crate::transcript::turn_counts::TurnCounts;

use super::services::{Services, chain_text, now};
use super::uncommitted_copies::UncommittedCopy;

/// How many sessions of an agent are looked for to see whether its folder is the right one.
const CHECKED_SESSIONS: usize = 50;

/// How long ago a conversation was used at most that is looked at for this. Agents delete older transcripts.
const CHECKED_AGE: SignedDuration = SignedDuration::from_hours(7 * 24);

/// The transcripts of an agent.
#[derive(Clone, Copy)]
pub(super) struct AgentTranscripts<'a> {
    pub services: &'a Services,
    pub entry: &'a AgentEntry,
    /// Reads them.
    pub dialect: &'static dyn Dialect,
    /// The agent's own folder, or an unpacked backup with the same layout.
    pub root: &'a Path,
}

/// A copy of a transcript, as the transcript of a new session.
pub(super) struct NewCopy {
    /// The session.
    pub upstream_id: UpstreamId,
    /// Its transcript.
    pub path: PathBuf,
    /// Deletes the copy, unless it is kept.
    pub uncommitted: UncommittedCopy,
}

impl<'a> AgentTranscripts<'a> {
    /// The transcripts in another folder.
    pub(super) fn in_folder(self, root: &'a Path) -> Self {
        Self { root, ..self }
    }

    /// The folder, with the index of what was read before.
    pub(super) fn home(self) -> AgentHome<'a> {
        self.services.home(self.root)
    }

    /// A session that runs in the folder `cwd`.
    pub(super) fn session(self, cwd: &'a str, id: &'a UpstreamId) -> Session<'a> {
        self.home().session(Some(cwd), id.as_str())
    }

    /// The archive's key for a session.
    pub(super) fn key(self, id: &UpstreamId) -> SessionKey {
        SessionKey {
            root: self.root.to_owned(),
            upstream_id: id.as_str().to_owned(),
        }
    }

    /// The path of a session's transcript.
    ///
    /// # Errors
    /// As [`Dialect::find`].
    pub(super) fn find(self, cwd: &str, id: &UpstreamId) -> Result<PathBuf, TranscriptError> {
        self.dialect.find(self.home().session(Some(cwd), id.as_str()))
    }

    /// Counts the turns in the transcript of a head or of another link.
    ///
    /// # Errors
    /// As [`Self::turn_counts`].
    pub(super) fn link_turn_counts(
        self,
        cwd: &str,
        link: &Link,
    ) -> Result<Option<TurnCounts>, TranscriptError> {
        let found = self.turn_counts(cwd, &link.upstream_id, None)?;
        Ok(found.map(|file| file.with_copied_turns(link.carried_turns)))
    }

    /// Counts the turns in one transcript, whole or up to a checkpoint; `None` if there is no transcript with that checkpoint.
    ///
    /// # Errors
    /// As [`Dialect::turn_counts`].
    pub(super) fn turn_counts(
        self,
        cwd: &str,
        id: &UpstreamId,
        until: Option<&CheckpointId>,
    ) -> Result<Option<TurnCounts>, TranscriptError> {
        let until = until.and_then(record_uuid);
        let session = self.home().session(Some(cwd), id.as_str());
        self.dialect.turn_counts(session, until.as_deref())
    }

    /// The checkpoint after the last turn of a session, finished or not.
    ///
    /// # Errors
    /// As [`Dialect::open`].
    pub(super) fn last_checkpoint(
        self,
        cwd: &str,
        id: &UpstreamId,
    ) -> Result<Option<CheckpointId>, TranscriptError> {
        let opened = self
            .dialect
            .open(self.home().session(Some(cwd), id.as_str()), None)?;
        let last = opened.turns().checked_sub(1);
        Ok(last.map(|last| turn_end(&*opened, &self.entry.name, id, last)))
    }

    /// The last checkpoint of the part of a session that ends at `cut`; `None` if that is the whole session.
    ///
    /// # Errors
    /// As [`Dialect::open`], if the turns must be counted.
    pub(super) fn cut_point(
        self,
        cwd: &str,
        id: &UpstreamId,
        cut: &SessionCut,
    ) -> Result<Option<CheckpointId>, TranscriptError> {
        let Some(most) = cut.max_turns else {
            return Ok(cut.at.clone());
        };
        let until: Option<CheckpointRef> = cut.at.as_ref().and_then(|at| at.as_str().parse().ok());
        let session = self.home().session(Some(cwd), id.as_str());
        let opened = self.dialect.open(session, until.as_ref())?;
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        if opened.turns() <= most {
            return Ok(cut.at.clone());
        }
        Ok(Some(turn_end(
            &*opened,
            &self.entry.name,
            id,
            most.saturating_sub(1),
        )))
    }

    /// Copies a session's transcript under a new id, whole or cut at a checkpoint, to where the agent first looks for sessions
    /// of the folder `to`. The agent may not look where the source is, for example if a folder has become a link.
    ///
    /// # Errors
    /// If the transcript is missing or cannot be read, or the copy cannot be written.
    pub(super) fn copy_session(
        self,
        (cwd, to): (&str, &str),
        id: &UpstreamId,
        until: Option<&CheckpointId>,
    ) -> Result<NewCopy, TranscriptError> {
        let source = self.find(cwd, id)?;
        let until = until.and_then(record_uuid);
        let copied = self.copy_transcript(Some(to), &source, id, |new| {
            self.dialect
                .copy(&self.services.index_cache, &source, new, until.as_deref())
        });
        copied.map(|(copy, ())| copy)
    }

    /// Copies a transcript into a new session; `make` writes the copy. The copy is noted before it is made, and is deleted
    /// unless a conversation later refers to it.
    ///
    /// # Errors
    /// Those of `make`, and if the copy cannot be noted.
    pub(super) fn copy_transcript<T>(
        self,
        cwd: Option<&str>,
        source: &Path,
        id: &UpstreamId,
        make: impl FnOnce(&NewSession) -> Result<T, TranscriptError>,
    ) -> Result<(NewCopy, T), TranscriptError> {
        let new = self.dialect.new_session(self.root, cwd, source, id.as_str())?;
        let upstream_id = UpstreamId::new(new.id.as_str());
        let plans = &self.services.copy_plans;
        plans.begin(&upstream_id, &new.path)?;
        let made = make(&new)?;
        plans.record_complete(&upstream_id, &new.path);
        self.services.old_bytes.note_copy(&upstream_id, &new.path);
        let copy = NewCopy {
            uncommitted: plans.uncommitted(&upstream_id, new.path.clone()),
            upstream_id,
            path: new.path,
        };
        Ok((copy, made))
    }
}

/// How many turns the newest conversations completed in sessions of an agent of which neither a transcript nor a backup
/// exists. 0 if one of these sessions has either, or may have it: then the agent's folder is the right one. Blocks.
pub(crate) fn turns_without_transcripts(services: &Services, entry: &AgentEntry) -> u64 {
    let Some(transcripts) = services.transcripts_of(entry) else {
        return 0;
    };
    let oldest = now() - CHECKED_AGE;
    let records = services.store.recent().filter_map(Result::ok);
    let records = records.take_while(|record| record.updated_at >= oldest);
    let heads = records.filter_map(|record| {
        record
            .chain
            .head()
            .filter(|_| record.deleted_at.is_none())
            .cloned()
    });
    let mut turns = 0;
    for head in heads
        .filter(|head| head.agent == entry.name && head.turns > 0)
        .take(CHECKED_SESSIONS)
    {
        let found = transcripts.find(&head.cwd, &head.upstream_id);
        let is_missing = found.is_err_and(|error| error.is_absence());
        if !is_missing || transcripts.may_have_backup(&head.upstream_id) {
            return 0;
        }
        turns += head.turns;
    }
    turns
}

/// The uuid of the record that a checkpoint refers to.
#[must_use]
pub(super) fn record_uuid(checkpoint: &CheckpointId) -> Option<String> {
    checkpoint
        .as_str()
        .parse::<CheckpointRef>()
        .ok()
        .map(|parsed| parsed.record_uuid)
}

/// Treats a transcript that cannot be read as missing, and logs why it cannot be read.
#[must_use]
pub(super) fn log_unreadable(found: Result<Option<TurnCounts>, TranscriptError>) -> Option<TurnCounts> {
    found.unwrap_or_else(|error| {
        tracing::warn!(
            error = chain_text(&error),
            "a transcript exists but cannot be read"
        );
        None
    })
}

/// The checkpoint after a turn of an open transcript.
fn turn_end(opened: &dyn OpenTranscript, agent: &AgentName, id: &UpstreamId, turn: usize) -> CheckpointId {
    let (name, owner) = opened.turn_end_id(turn);
    let owner = owner.map_or_else(|| id.clone(), UpstreamId::from);
    make_checkpoint_id(agent, &owner, &name)
}

/// Makes the id of a checkpoint in a transcript.
pub(super) fn make_checkpoint_id(agent: &AgentName, id: &UpstreamId, record_uuid: &str) -> CheckpointId {
    let checkpoint = CheckpointRef {
        agent: agent.as_str().to_owned(),
        upstream_id: id.as_str().to_owned(),
        record_uuid: record_uuid.to_owned(),
    };
    CheckpointId::new(checkpoint.to_string())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::conversation::registry::Registry;
    use crate::conversation::registry::registry_of_tests as registry;
    use crate::transcript::locate::own_folder;
    use crate::transcript::meter::{Meter, with_meter};

    const CWD: &str = "/nowhere/project";
    const LINES: [&str; 3] = [
        r#"{"type":"user","uuid":"u1","parentUuid":null,"origin":{"kind":"human"},"message":{"content":"hi"}}"#,
        r#"{"type":"assistant","uuid":"a1","parentUuid":"u1","message":{"content":"hello"}}"#,
        r#"{"type":"user","uuid":"u2","parentUuid":"a1","origin":{"kind":"human"},"message":{"content":"and"}}"#,
    ];

    fn transcripts(registry: &Registry) -> AgentTranscripts<'_> {
        registry.services().transcripts(&"claude".into()).unwrap()
    }

    #[derive(Default)]
    struct Counter(AtomicU64);

    impl Meter for Counter {
        fn expect_bytes(&self, _: u64) {}

        fn count_bytes(&self, bytes: u64) -> std::io::Result<()> {
            self.0.fetch_add(bytes, Ordering::Relaxed);
            Ok(())
        }
    }

    /// What each question reads of a transcript, in bytes, one after the other.
    fn read_bytes(questions: &[&dyn Fn()]) -> Vec<u64> {
        let read = |question: &&dyn Fn()| {
            let counter = Arc::new(Counter::default());
            with_meter(Arc::clone(&counter) as Arc<dyn Meter>, question);
            counter.0.load(Ordering::Relaxed)
        };
        questions.iter().map(read).collect()
    }

    #[tokio::test]
    async fn a_resume_reads_a_transcript_once_whatever_it_asks() {
        let root = tempfile::tempdir().unwrap();
        let folder = own_folder(root.path(), Path::new(CWD));
        std::fs::create_dir_all(&folder).unwrap();
        let text = LINES.join("\n") + "\n";
        std::fs::write(folder.join("s1.jsonl"), &text).unwrap();
        let id = UpstreamId::from("s1");
        let data = tempfile::tempdir().unwrap();
        let root = root.path();
        let registry = registry(data.path(), root);
        let transcripts = transcripts(&registry);
        let agent = AgentName::new("claude");
        let head = || {
            let found = transcripts.turn_counts(CWD, &id, None).unwrap().unwrap();
            assert_eq!(
                (found.turns, found.is_last_cut_off, found.missing_records),
                (2, true, 0)
            );
        };
        let place = || {
            let place = transcripts.last_checkpoint(CWD, &id).unwrap().unwrap();
            assert_eq!(record_uuid(&place).as_deref(), Some("u2"));
        };
        let cut = || {
            let place = make_checkpoint_id(&agent, &id, "a1");
            let dialect = transcripts.dialect;
            let source = transcripts.find(CWD, &id).unwrap();
            let new = dialect.new_session(root, Some(CWD), &source, "s1").unwrap();
            dialect
                .copy(&registry.services().index_cache, &source, &new, Some("a1"))
                .unwrap();
            let copied = std::fs::read_to_string(new.path).unwrap();
            let origins = copied
                .lines()
                .map(|line| line.split_once("\"messageUuid\":").unwrap().1);
            assert_eq!(origins.collect::<Vec<_>>(), ["\"u1\"}}", "\"a1\"}}"]);
            let until = transcripts.turn_counts(CWD, &id, Some(&place)).unwrap().unwrap();
            assert_eq!((until.turns, until.is_last_cut_off), (1, false));
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

    #[tokio::test]
    async fn turns_on_other_branches_count_where_every_line_can_be_read() {
        let root = tempfile::tempdir().unwrap();
        let folder = own_folder(root.path(), Path::new(CWD));
        std::fs::create_dir_all(&folder).unwrap();
        let instead = LINES[2].replace("u2", "u3");
        let held = |lines: &[&str], until: Option<&str>| {
            std::fs::write(folder.join("s1.jsonl"), lines.join("\n") + "\n").unwrap();
            let id = UpstreamId::from("s1");
            let until = until.map(|uuid| make_checkpoint_id(&AgentName::new("claude"), &id, uuid));
            let data = tempfile::tempdir().unwrap();
            let registry = registry(data.path(), root.path());
            let transcripts = transcripts(&registry);
            let found = transcripts
                .turn_counts(CWD, &id, until.as_ref())
                .unwrap()
                .unwrap();
            (
                found.turns,
                found.max_turns,
                found.turns_on_all_branches,
                found.missing_records,
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
