//! Codex' rollouts: one file per session, found by the id in its name. It may continue the files of other sessions.

use std::io::{self, BufRead};
use std::path::{Path, PathBuf};

use bridge_protocol::check::{Finding, FindingKind};
use indicatif::BinaryBytes;
use uuid::Uuid;

use super::item::is_prompt;
use super::line::{LineKind, RolloutLine};
use crate::transcript::TranscriptError;
use crate::transcript::blank::is_blank;
use crate::transcript::check::CheckReport;
use crate::transcript::checkpoint::CheckpointRef;
use crate::transcript::codex::rollouts::{self, OpenRollout, RolloutSize};
use crate::transcript::codex::{self, LastTurn, is_compressed, read_meta, rollout_name};
use crate::transcript::dialect::{
    Abilities, AgentHome, Dialect, HistoryFiles, Layout, MissingSource, NewSession, RepairedCopy, Session,
    SessionParts, TranscriptState, TurnEnd, format_turns,
};
use crate::transcript::index_cache::IndexCache;
use crate::transcript::lines::line_text;
use crate::transcript::open_transcript::BoxedTranscript;
use crate::transcript::origin::Origin;
use crate::transcript::parts::rollout_part;
use crate::transcript::summary::{Ends, TranscriptSummary};

/// The transcripts of Codex.
#[derive(Debug)]
pub(crate) struct Codex;

impl Dialect for Codex {
    fn abilities(&self) -> Abilities {
        Abilities {
            continues_by_reference: true,
            ..Abilities::default()
        }
    }

    fn layout(&self) -> Layout {
        Layout {
            tops: &["sessions", "archived_sessions"],
            folders: None,
        }
    }

    fn upstream_id<'a>(&self, name: &'a str) -> Option<&'a str> {
        rollout_name(name).map(|name| name.upstream_id)
    }

    fn summary(&self, ends: Ends<'_>) -> TranscriptSummary {
        codex::summary(ends)
    }

    fn locate(&self, root: &Path, id: &str) -> Result<Vec<PathBuf>, TranscriptError> {
        rollouts::locate(root, id)
    }

    fn find(&self, session: Session<'_>) -> Result<PathBuf, TranscriptError> {
        rollouts::find(session.home.root, session.id)
    }

    fn find_with_origin(&self, session: Session<'_>) -> Result<(PathBuf, Origin), TranscriptError> {
        Ok((
            self.find(session)?,
            rollouts::origin(session.home.root, session.id)?,
        ))
    }

    fn files(&self, session: Session<'_>) -> Result<HistoryFiles, TranscriptError> {
        rollouts::history_files(session.home.root, session.id)
    }

    fn is_missing(&self, root: &Path, id: &str) -> bool {
        match rollouts::history_files(root, id) {
            Ok((files, missing)) => {
                let is_blank = |path: &Path| is_blank(path).unwrap_or(false);
                missing.is_some() || files.iter().any(|(_, path)| is_blank(path))
            }
            Err(error) => error.is_absence(),
        }
    }

    fn open(
        &self,
        session: Session<'_>,
        until: Option<&CheckpointRef>,
    ) -> Result<BoxedTranscript, TranscriptError> {
        let until = until.map(|until| (until.upstream_id.as_str(), until.record_uuid.as_str()));
        let books = &session.home.index_cache.rollouts;
        let open = OpenRollout::open(books, session.home.root, session.id, until)?;
        Ok(Box::new(open))
    }

    fn open_at(
        &self,
        home: AgentHome<'_>,
        place: &CheckpointRef,
    ) -> Result<BoxedTranscript, TranscriptError> {
        self.open(home.session(None, &place.upstream_id), Some(place))
    }

    fn check(&self, session: Session<'_>, _path: &Path) -> Result<CheckReport, TranscriptError> {
        let mut report = rollouts::check(session.home.root, session.id)?;
        report
            .findings
            .splice(0..0, find_better_copy(session.home.root, session.id));
        Ok(report)
    }

    fn check_copy(&self, root: &Path, _agents: &Path, id: &str) -> Result<CheckReport, TranscriptError> {
        rollouts::check(root, id)
    }

    fn resume_obstacles(&self, session: Session<'_>, _path: &Path) -> Vec<Finding> {
        let (root, id) = (session.home.root, session.id);
        let refusals = rollouts::check(root, id).map(|report| report.refusals);
        let beside = find_better_copy(root, id).into_iter();
        beside.chain(refusals.unwrap_or_default()).collect()
    }

    fn state(&self, _library: &IndexCache, path: &Path) -> Result<TranscriptState, TranscriptError> {
        let (last, bytes) = rollouts::last_turn(path)?;
        Ok(TranscriptState {
            turn_end: match last {
                LastTurn::Running => TurnEnd::Open,
                LastTurn::Ended | LastTurn::Answered => TurnEnd::Ended,
            },
            is_answered: last == LastTurn::Answered,
            prompts: None,
            bytes,
        })
    }

    fn can_fix(&self, kind: FindingKind) -> bool {
        rollouts::repair::can_fix(kind)
    }

    fn is_prompt(&self, line: &[u8]) -> bool {
        let text = line_text(line);
        let record = RolloutLine::parse(&text).filter(|record| record.kind == LineKind::Item);
        record.is_some_and(|record| is_prompt(&record.payload))
    }

    fn new_session(
        &self,
        root: &Path,
        _cwd: Option<&str>,
        source: &Path,
        id: &str,
    ) -> Result<NewSession, TranscriptError> {
        let new_id = Uuid::now_v7().to_string();
        let path = rollouts::repair::target(root, source, id, &new_id);
        Ok(NewSession { id: new_id, path })
    }

    fn repair(
        &self,
        session: Session<'_>,
        source: &Path,
        new: &NewSession,
    ) -> Result<RepairedCopy, TranscriptError> {
        // Count before there is a copy, which an error would leave behind. The copy has the same turns.
        let turns = rollouts::origin(session.home.root, session.id)?.turns as u64;
        let repairs = rollouts::repair::repair(source, session.id, &new.path, &new.id)?;
        Ok(RepairedCopy {
            repairs,
            last_uuid: None,
            turns,
            is_complete: true,
        })
    }

    fn parts(
        &self,
        session: Session<'_>,
    ) -> Result<(Vec<SessionParts>, Option<MissingSource>), TranscriptError> {
        let (files, missing) = self.files(session)?;
        let sessions = files.into_iter().map(|(upstream_id, transcript)| {
            Ok(SessionParts {
                upstream_id,
                parts: vec![rollout_part(&transcript)?],
                transcript,
                left_out: Vec::new(),
            })
        });
        Ok((sessions.collect::<Result<_, TranscriptError>>()?, missing))
    }

    fn expected_path(&self, root: &Path, _cwd: Option<&Path>, _folder: &Path, name: &Path) -> PathBuf {
        rollouts::expected_path(root, name).unwrap_or_else(|| root.join("sessions").join(name))
    }

    fn continued_session(&self, text: &mut dyn BufRead) -> io::Result<Option<String>> {
        let base = read_meta(text)?.and_then(|meta| meta.base);
        Ok(base.map(|base| base.upstream_id))
    }

    fn unarchive_command(&self, root: &Path, path: &Path) -> Option<&'static str> {
        rollouts::is_archived(root, path).then_some("codex unarchive")
    }

    fn expected_location(&self, root: &Path, id: &str) -> Result<Option<PathBuf>, TranscriptError> {
        Ok(rollouts::expected_path_if_moved(root, id)?.map(|(_, place)| place))
    }

    fn move_to_expected_path(&self, root: &Path, id: &str) -> Result<PathBuf, TranscriptError> {
        rollouts::move_to_expected_path(root, id)
    }

    fn fork_point(
        &self,
        root: &Path,
        id: &str,
        until: &CheckpointRef,
    ) -> Result<Option<String>, TranscriptError> {
        rollouts::item_of_turn(root, id, &until.upstream_id, &until.record_uuid)
    }
}

/// A finding about another rollout of a session than the one in use: the other one has more turns, or more bytes.
fn find_better_copy(root: &Path, id: &str) -> Option<Finding> {
    let found = rollouts::locate(root, id).ok()?;
    let (used, others) = found.split_first()?;
    if others.is_empty() {
        return None;
    }
    let extent = |path: &PathBuf| rollouts::rollout_size(path, id).ok();
    let used_size = extent(used);
    let has_more = |other: &RolloutSize| {
        other.turns > 0
            && used_size
                .is_none_or(|used_size| other.turns > used_size.turns || other.bytes > used_size.bytes)
    };
    let others = others.iter().filter_map(|path| Some((extent(path)?, path)));
    let others = others.filter(|(extent, _)| has_more(extent));
    let (most, best) = others.max_by_key(|(extent, _)| *extent)?;
    let is_archived = |path: &Path| rollouts::is_archived(root, path);
    let why = if is_archived(best) && !is_archived(used) {
        "Codex takes this one, since the other is archived"
    } else if is_compressed(best) && !is_compressed(used) {
        "this one counts, since the other is compressed"
    } else {
        "this one counts, since it was written last"
    };
    let amount =
        |extent: RolloutSize| format!("{} in {}", format_turns(extent.turns), BinaryBytes(extent.bytes));
    let detail = format!(
        "another copy has {}, {}, and this one {}, {}: {why}",
        amount(most),
        best.display(),
        used_size.map_or_else(|| "cannot be read".to_owned(), amount),
        used.display()
    );
    Some(Finding {
        line: 0,
        kind: FindingKind::OtherCopy,
        detail,
    })
}
