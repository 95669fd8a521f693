//! Claude's transcripts: one file per session, in a folder that is named after the session's working directory.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use bridge_protocol::check::{Finding, FindingKind};
use uuid::Uuid;

use super::index::ClaudeIndex;
use super::summary::summary;
use super::{copy, cut, duplicates, reading, rejoin, repair};
use crate::transcript::TranscriptError;
use crate::transcript::check::CheckReport;
use crate::transcript::checkpoint::CheckpointRef;
use crate::transcript::dialect::{
    Abilities, AgentHome, Continuation, Dialect, Layout, MissingSource, NewSession, RepairedCopy, Session,
    SessionParts, TranscriptState, open_first,
};
use crate::transcript::fields::Fields;
use crate::transcript::index_cache::IndexCache;
use crate::transcript::lines::{Lines, line_text};
use crate::transcript::locate::{self, file_name, own_folder};
use crate::transcript::open_transcript::{BoxedTranscript, OpenTranscript};
use crate::transcript::origin::Origin;
use crate::transcript::parts::{self, SessionFiles, parts};
use crate::transcript::relocate::{RESULTS, named_result_paths, result_name};
use crate::transcript::summary::{Ends, TranscriptSummary};
use crate::transcript::turn_counts::TurnCounts;

/// The prefix of subagents' transcripts, in versions that stored them next to the sessions' files. None of these is a session.
const SUBAGENT_PREFIX: &str = "agent-";

/// The transcripts of Claude Code, and of the built-in agent.
#[derive(Debug)]
pub(crate) struct Claude;

impl Dialect for Claude {
    fn abilities(&self) -> Abilities {
        Abilities {
            can_copy: true,
            can_delete: true,
            finds_by_folder: true,
            forks_borrow_files: true,
            ..Abilities::default()
        }
    }

    fn layout(&self) -> Layout {
        Layout {
            tops: &["projects"],
            folders: Some(&[None]),
        }
    }

    fn upstream_id<'a>(&self, name: &'a str) -> Option<&'a str> {
        name.strip_suffix(".jsonl")
            .filter(|id| !id.is_empty() && !name.starts_with(SUBAGENT_PREFIX))
    }

    fn summary(&self, ends: Ends<'_>) -> TranscriptSummary {
        summary(ends)
    }

    fn own_folder(&self, transcript: &Path) -> Option<PathBuf> {
        parts::own_folder(transcript)
    }

    fn locate(&self, root: &Path, id: &str) -> Result<Vec<PathBuf>, TranscriptError> {
        locate::locate(root, id, None)
    }

    fn find(&self, session: Session<'_>) -> Result<PathBuf, TranscriptError> {
        let Session { home, cwd, id } = session;
        match cwd {
            Some(cwd) => duplicates::find(home, cwd, id),
            None => Ok(self.find_with_origin(session)?.0),
        }
    }

    fn is_ambiguous(&self, Session { home, cwd, id }: Session<'_>) -> bool {
        cwd.is_some_and(|cwd| duplicates::are_ambiguous(home, cwd, id))
    }

    fn find_with_origin(&self, session: Session<'_>) -> Result<(PathBuf, Origin), TranscriptError> {
        let home = session.home;
        if session.cwd.is_none() {
            return duplicates::find_recorded(home, session.id);
        }
        let path = self.find(session)?;
        let origin = home.index_cache.origin(&path)?;
        Ok((path, origin))
    }

    fn open(
        &self,
        session: Session<'_>,
        until: Option<&CheckpointRef>,
    ) -> Result<BoxedTranscript, TranscriptError> {
        let path = self.find(session)?;
        let until = until.map(|until| until.record_uuid.as_str());
        Ok(Box::new(session.home.index_cache.open(&path, until)?))
    }

    fn open_at(
        &self,
        home: AgentHome<'_>,
        place: &CheckpointRef,
    ) -> Result<BoxedTranscript, TranscriptError> {
        let found = self.locate(home.root, &place.upstream_id)?;
        open_first(found, home.root, place, |path| {
            Ok(Box::new(home.index_cache.open(path, Some(&place.record_uuid))?))
        })
    }

    fn check(
        &self,
        Session { home, cwd, .. }: Session<'_>,
        path: &Path,
    ) -> Result<CheckReport, TranscriptError> {
        let mut report = reading::check(path)?;
        let beside = cwd.and_then(|cwd| duplicates::find_better_copy(home, cwd, path));
        report.findings.splice(0..0, beside);
        Ok(report)
    }

    fn check_copy(&self, root: &Path, agents: &Path, id: &str) -> Result<CheckReport, TranscriptError> {
        let found = self.locate(root, id)?;
        let path = found
            .first()
            .ok_or_else(|| TranscriptError::not_found(root, id))?;
        reading::check_in_place(path, root, agents)
    }

    fn resume_obstacles(&self, Session { home, cwd, .. }: Session<'_>, path: &Path) -> Vec<Finding> {
        let beside = cwd.and_then(|cwd| duplicates::find_better_copy(home, cwd, path));
        beside
            .into_iter()
            .chain(newer_branch(home.index_cache, path))
            .collect()
    }

    fn newer_branch_end(&self, index_cache: &IndexCache, path: &Path) -> Option<String> {
        index_cache.index(path).ok()?.newer_uuid()
    }

    fn state(&self, index_cache: &IndexCache, path: &Path) -> Result<TranscriptState, TranscriptError> {
        index_cache.state(path)
    }

    fn can_fix(&self, kind: FindingKind) -> bool {
        repair::can_fix(kind)
    }

    fn turn_counts(
        &self,
        session: Session<'_>,
        until: Option<&str>,
    ) -> Result<Option<TurnCounts>, TranscriptError> {
        let read = self
            .find(session)
            .and_then(|path| turn_counts_on_disk(session.home.index_cache, &path, until));
        match read {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.is_absence() || !is_in_own_folder(session) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn continuation(
        &self,
        kept: &mut dyn BufRead,
        transcript: &mut dyn BufRead,
    ) -> io::Result<Option<Continuation>> {
        rejoin::continuation(kept, transcript)
    }

    fn is_prompt(&self, line: &[u8]) -> bool {
        ClaudeIndex::read(line).is_ok_and(|index| index.prompts > 0)
    }

    fn new_session(
        &self,
        root: &Path,
        cwd: Option<&str>,
        source: &Path,
        _id: &str,
    ) -> Result<NewSession, TranscriptError> {
        let id = Uuid::new_v4().to_string();
        let folder = match cwd {
            Some(cwd) => own_folder(root, Path::new(cwd)),
            None => source.parent().unwrap_or(Path::new(".")).to_owned(),
        };
        let path = folder.join(file_name(&id)?);
        Ok(NewSession { id, path })
    }

    fn copy(
        &self,
        index_cache: &IndexCache,
        source: &Path,
        new: &NewSession,
        until: Option<&str>,
    ) -> Result<(), TranscriptError> {
        match until {
            Some(uuid) => cut::cut(source, &*index_cache.index(source)?, new.folder(), &new.id, uuid),
            None => copy::copy_as(source, new.folder(), &new.id),
        }
        .map(drop)
    }

    fn repair(
        &self,
        Session { home, id, .. }: Session<'_>,
        source: &Path,
        new: &NewSession,
    ) -> Result<RepairedCopy, TranscriptError> {
        let index = home.index_cache.index(source)?;
        // Select the branch as recovery does: if nothing is damaged, an abandoned branch stays abandoned.
        let branch = index.select_joined().or_else(|| index.select(None, true));
        let branch = branch.ok_or_else(|| TranscriptError::NothingToResume {
            upstream_id: id.to_owned(),
        })?;
        let repairs = repair::repair(source, &index, &branch, new.folder(), &new.id)?;
        Ok(RepairedCopy {
            repairs,
            last_uuid: Some(branch.leaf_uuid.clone()),
            turns: branch.prompt_offsets.len() as u64,
            is_complete: branch.missing_parents == 0,
        })
    }

    fn own_parts(&self, transcript: &Path) -> Result<SessionFiles, TranscriptError> {
        let path = fs::canonicalize(transcript).map_err(TranscriptError::io("look for", transcript))?;
        let mut parts = parts(&path)?;
        // Side files next to a target with another name belong to that name.
        if let Some(name) = transcript
            .file_name()
            .filter(|name| path.file_name() != Some(name))
            && let Some(own) = parts.files.first_mut()
        {
            own.name = name.to_string_lossy().into_owned();
            parts.files.truncate(1);
        }
        Ok(parts)
    }

    fn expected_path(&self, root: &Path, cwd: Option<&Path>, folder: &Path, name: &Path) -> PathBuf {
        cwd.map_or_else(|| root.join(folder), |cwd| own_folder(root, cwd))
            .join(name)
    }

    fn named_files(&self, root: &Path, text: &mut dyn BufRead) -> io::Result<BTreeSet<(String, PathBuf)>> {
        let mut named = BTreeSet::new();
        let projects = root.join("projects");
        let mut lines = Lines::new(text, 0);
        while let Some(line) = lines.next_line()? {
            if memchr::memmem::find(line.bytes, RESULTS.as_bytes()).is_none() {
                continue;
            }
            let text = line_text(line.bytes);
            let paths = Fields::parse(&text).map(|fields| named_result_paths(&fields));
            for path in paths.unwrap_or_default() {
                // Accept only paths below the folder of all sessions.
                let is_below = Path::new(&path)
                    .strip_prefix(&projects)
                    .is_ok_and(|relative_path| {
                        let mut parts = relative_path.components();
                        parts.all(|part| matches!(part, Component::Normal(_)))
                    });
                let relative_path = Path::new(&path).strip_prefix(root).ok().filter(|_| is_below);
                let place = result_name(&path).zip(relative_path);
                named.extend(place.map(|(name, relative_path)| (name.to_owned(), relative_path.to_owned())));
            }
        }
        Ok(named)
    }

    fn parts(
        &self,
        session: Session<'_>,
    ) -> Result<(Vec<SessionParts>, Option<MissingSource>), TranscriptError> {
        let transcript = self.find(session)?;
        let found = parts(&transcript)?;
        let session = SessionParts {
            upstream_id: session.id.to_owned(),
            transcript,
            parts: found.files,
            left_out: found.left_out,
        };
        Ok((vec![session], None))
    }
}

/// The turn counts of a transcript.
fn turn_counts_on_disk(
    index_cache: &IndexCache,
    path: &Path,
    until: Option<&str>,
) -> Result<TurnCounts, TranscriptError> {
    let mut open = index_cache.open(path, until)?;
    let history = Arc::clone(&open.history);
    let (index, turns) = (&history.index, open.turns() as u64);
    let max_turns = match history.cut_by_compaction {
        true => u64::MAX,
        false => turns + open.agent_notes() as u64,
    };
    let is_whole = until.is_none() && history.missing_parents == 0 && !history.cut_by_compaction;
    // A line that is not a record may have been a turn.
    let turns_on_all_branches = match is_whole && index.garbage_lines == 0 {
        true => index.max_turns(),
        false => 0,
    };
    let repaired_turns = match until {
        None if history.missing_parents > 0 => index
            .select_joined()
            .map_or(0, |joined| joined.prompt_offsets.len() as u64),
        _ => 0,
    };
    let last_turn = open.turns().checked_sub(1).map(|last| open.turn(last));
    let is_last_cut_off = match last_turn {
        None => false,
        Some(messages) => messages.len() == 1 || open.ends_torn() && !open.ends_with_reply()?,
    };
    Ok(TurnCounts {
        is_last_cut_off,
        turns,
        max_turns,
        turns_on_all_branches,
        missing_records: history.missing_parents as u64,
        repaired_turns,
    })
}

/// Whether a transcript is, or may be, in the folder where the agent looks first. If this user cannot read the folder,
/// the agent cannot either.
fn is_in_own_folder(session: Session<'_>) -> bool {
    let (Some(cwd), Ok(name)) = (session.cwd, file_name(session.id)) else {
        return false;
    };
    let path = own_folder(session.home.root, Path::new(cwd)).join(name);
    !matches!(fs::symlink_metadata(path), Err(error) if error.kind() == io::ErrorKind::NotFound)
}

/// The finding about a newer branch that a resume leaves out. `None` if there is none or the file cannot be read.
fn newer_branch(index_cache: &IndexCache, path: &Path) -> Option<Finding> {
    let index = index_cache.index(path).ok()?;
    index.select(None, true)?.newer_branch?;
    // Only a check counts lines, and few files have such a branch.
    let mut findings = reading::check(path).ok()?.findings.into_iter();
    findings.find(|finding| finding.kind == FindingKind::NewerBranch)
}
