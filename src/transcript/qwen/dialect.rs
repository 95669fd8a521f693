//! Implements the operations on transcripts for Qwen Code.

use std::io;
use std::path::{Path, PathBuf};

use bridge_protocol::check::{Finding, FindingKind};

use super::check::{TranscriptContext, check};
use super::index::QwenIndex;
use super::{CHATS, OpenQwenTranscript, locate, own_folder, summary, upstream_id};
use crate::transcript::TranscriptError;
use crate::transcript::check::CheckReport;
use crate::transcript::checkpoint::CheckpointRef;
use crate::transcript::dialect::{
    Abilities, AgentHome, Dialect, Layout, MissingSource, NewSession, RepairedCopy, Session, SessionParts,
    TranscriptState, TurnEnd, open_first,
};
use crate::transcript::index_cache::IndexCache;
use crate::transcript::indexes::GrowingIndex;
use crate::transcript::open_transcript::{BoxedTranscript, OpenTranscript};
use crate::transcript::origin::Origin;
use crate::transcript::reading;
use crate::transcript::summary::{Ends, TranscriptSummary};

/// The transcripts of Qwen Code.
#[derive(Debug)]
pub(crate) struct Qwen;

impl Dialect for Qwen {
    fn abilities(&self) -> Abilities {
        Abilities {
            has_fixed_folder: true,
            ..Abilities::default()
        }
    }

    fn layout(&self) -> Layout {
        Layout {
            tops: &["projects"],
            folders: Some(&[None, Some(CHATS)]),
        }
    }

    fn upstream_id<'a>(&self, name: &'a str) -> Option<&'a str> {
        upstream_id(name)
    }

    fn summary(&self, ends: Ends<'_>) -> TranscriptSummary {
        summary(ends)
    }

    fn locate(&self, root: &Path, id: &str) -> Result<Vec<PathBuf>, TranscriptError> {
        locate(root, id)
    }

    /// The copy in the folder of `cwd`, which the agent uses; else the one with the most turns.
    fn find(&self, session: Session<'_>) -> Result<PathBuf, TranscriptError> {
        let own = session.cwd.map(|cwd| own_folder(session.home.root, cwd));
        best(session.home, session.id, |path| {
            own.is_some() && path.parent() == own.as_deref()
        })
    }

    fn find_with_origin(&self, session: Session<'_>) -> Result<(PathBuf, Origin), TranscriptError> {
        let path = self.find(session)?;
        let origin = read(session.home.index_cache, &path)?.origin()?;
        Ok((path, origin))
    }

    fn open(
        &self,
        session: Session<'_>,
        until: Option<&CheckpointRef>,
    ) -> Result<BoxedTranscript, TranscriptError> {
        let path = self.find(session)?;
        open(session.home, &path, until)
    }

    fn open_at(
        &self,
        home: AgentHome<'_>,
        place: &CheckpointRef,
    ) -> Result<BoxedTranscript, TranscriptError> {
        let found = locate(home.root, &place.upstream_id)?;
        open_first(found, home.root, place, |path| open(home, path, Some(place)))
    }

    fn check(&self, session: Session<'_>, path: &Path) -> Result<CheckReport, TranscriptError> {
        let Session { home, cwd, id } = session;
        let is_there = |cwd| path.parent() == Some(own_folder(home.root, cwd).as_path());
        let place = TranscriptContext {
            id,
            cwd: cwd.map(|cwd| (cwd, is_there(cwd))),
        };
        let opened = read(home.index_cache, path)?;
        let report = check(reading::open(path)?, &opened.history.index, place);
        report.map_err(TranscriptError::io("read", path))
    }

    fn check_copy(&self, root: &Path, _agents: &Path, id: &str) -> Result<CheckReport, TranscriptError> {
        let index_cache = &IndexCache::default();
        let home = AgentHome { index_cache, root };
        let path = best(home, id, |_| false)?;
        self.check(home.session(None, id), &path)
    }

    /// The earlier path. The agent resumes a session only in the folder that its first record names, and this version
    /// cannot rewrite transcripts of this format, so they are not moved.
    fn expected_path(&self, root: &Path, _cwd: Option<&Path>, folder: &Path, name: &Path) -> PathBuf {
        root.join(folder).join(name)
    }

    fn resume_obstacles(&self, session: Session<'_>, path: &Path) -> Vec<Finding> {
        let report = self.check(session, path);
        report.map(|report| report.refusals).unwrap_or_default()
    }

    fn state(&self, index_cache: &IndexCache, path: &Path) -> Result<TranscriptState, TranscriptError> {
        let opened = read(index_cache, path)?;
        let turn_end = opened.history.turn_end();
        Ok(TranscriptState {
            is_answered: turn_end == TurnEnd::Ended,
            turn_end,
            prompts: Some(opened.history.index.prompts),
            bytes: opened.history.index.bytes,
        })
    }

    fn can_fix(&self, _kind: FindingKind) -> bool {
        false
    }

    fn is_prompt(&self, mut line: &[u8]) -> bool {
        let mut index = QwenIndex::default();
        index.extend(&mut line).is_ok() && index.prompts > 0
    }

    fn new_session(
        &self,
        _root: &Path,
        _cwd: Option<&str>,
        source: &Path,
        _id: &str,
    ) -> Result<NewSession, TranscriptError> {
        Err(unsupported("copy", source))
    }

    fn repair(
        &self,
        _session: Session<'_>,
        source: &Path,
        _new: &NewSession,
    ) -> Result<RepairedCopy, TranscriptError> {
        Err(unsupported("repair", source))
    }

    fn parts(
        &self,
        session: Session<'_>,
    ) -> Result<(Vec<SessionParts>, Option<MissingSource>), TranscriptError> {
        Err(unsupported("export", &self.find(session)?))
    }
}

/// The preferred transcript of a session; else the one with the most turns, the first one if several are equal.
fn best(
    home: AgentHome<'_>,
    id: &str,
    is_preferred: impl Fn(&Path) -> bool,
) -> Result<PathBuf, TranscriptError> {
    let found = locate(home.root, id)?;
    let turns = |path: &Path| read(home.index_cache, path).map_or(0, |opened| opened.turns());
    let best = match found.as_slice() {
        [only] => Some(only),
        several => several
            .iter()
            .rev()
            .max_by_key(|path| (is_preferred(path), turns(path))),
    };
    best.cloned()
        .ok_or_else(|| TranscriptError::not_found(home.root, id))
}

fn open(
    home: AgentHome<'_>,
    path: &Path,
    until: Option<&CheckpointRef>,
) -> Result<BoxedTranscript, TranscriptError> {
    let until = until.map(|until| until.record_uuid.as_str());
    Ok(Box::new(OpenQwenTranscript::open(
        &home.index_cache.qwen,
        path,
        until,
    )?))
}

fn read(index_cache: &IndexCache, path: &Path) -> Result<OpenQwenTranscript, TranscriptError> {
    OpenQwenTranscript::open(&index_cache.qwen, path, None)
}

fn unsupported(action: &'static str, path: &Path) -> TranscriptError {
    let why = "this version only reads and backs up transcripts of Qwen Code";
    TranscriptError::io(action, path)(io::Error::new(io::ErrorKind::Unsupported, why))
}
