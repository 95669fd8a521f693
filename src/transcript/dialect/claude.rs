//! Claude's transcripts: one file a session, in a folder that is named after the one that the session runs in.

use std::path::{Path, PathBuf};

use bridge_protocol::check::{Finding, FindingKind};
use uuid::Uuid;

use super::copies;
use crate::transcript::TranscriptError;
use crate::transcript::blank::is_blank;
use crate::transcript::check::Report;
use crate::transcript::checkpoint::CheckpointRef;
use crate::transcript::dialect::{Abilities, Dialect, Home, RepairedCopy, SessionParts, Standing};
use crate::transcript::library::Library;
use crate::transcript::locate::{self, file_name};
use crate::transcript::opened::Opened;
use crate::transcript::origin::Origin;
use crate::transcript::parts::parts;
use crate::transcript::record::TurnEnd;
use crate::transcript::rollouts::{HistoryFiles, MissingSource};
use crate::transcript::{reading, repair};

/// As Claude Code writes them, and the built-in agent.
#[derive(Debug)]
pub(crate) struct Claude;

impl Dialect for Claude {
    fn can(&self) -> Abilities {
        Abilities {
            cut: true,
            by_folder: true,
            by_reference: false,
            stays: false,
        }
    }

    fn locate(&self, root: &Path, id: &str) -> Result<Vec<PathBuf>, TranscriptError> {
        locate::locate(root, id, None)
    }

    fn find(&self, home: Home<'_>, cwd: &str, id: &str) -> Result<PathBuf, TranscriptError> {
        copies::find(home.library, home.root, cwd, id)
    }

    fn is_ambiguous(&self, home: Home<'_>, cwd: &str, id: &str) -> bool {
        copies::are_ambiguous(home.library, home.root, cwd, id)
    }

    fn recorded(
        &self,
        home: Home<'_>,
        cwd: Option<&str>,
        id: &str,
    ) -> Result<(PathBuf, Origin), TranscriptError> {
        let Some(cwd) = cwd else {
            return copies::find_recorded(home.library, home.root, id);
        };
        let path = self.find(home, cwd, id)?;
        let origin = home.library.origin(&path)?;
        Ok((path, origin))
    }

    fn files(&self, home: Home<'_>, cwd: &str, id: &str) -> Result<HistoryFiles, TranscriptError> {
        Ok((vec![(id.to_owned(), self.find(home, cwd, id)?)], None))
    }

    fn is_gone(&self, root: &Path, id: &str) -> bool {
        let found = self.locate(root, id);
        found.is_ok_and(|found| found.iter().all(|path| is_blank(path).unwrap_or(false)))
    }

    fn open(
        &self,
        home: Home<'_>,
        cwd: &str,
        id: &str,
        until: Option<&CheckpointRef>,
    ) -> Result<Opened, TranscriptError> {
        let path = self.find(home, cwd, id)?;
        Opened::claude(home.library, &path, until.map(|until| until.record_uuid.as_str()))
    }

    fn open_at(&self, home: Home<'_>, place: &CheckpointRef) -> Result<Opened, TranscriptError> {
        let mut failure = TranscriptError::NotFound {
            upstream_id: place.upstream_id.clone(),
            root: home.root.to_owned(),
        };
        for path in self.locate(home.root, &place.upstream_id)? {
            match Opened::claude(home.library, &path, Some(&place.record_uuid)) {
                Err(error) if error.is_absence() => {}
                Err(error) => failure = error,
                opened => return opened,
            }
        }
        Err(failure)
    }

    fn check(
        &self,
        home: Home<'_>,
        cwd: Option<&str>,
        _id: &str,
        path: &Path,
    ) -> Result<Report, TranscriptError> {
        let mut report = reading::check(path)?;
        let beside = cwd.and_then(|cwd| copies::beside(home.library, home.root, cwd, path));
        report.findings.splice(0..0, beside);
        Ok(report)
    }

    fn check_copy(&self, root: &Path, agents: &Path, id: &str) -> Result<Report, TranscriptError> {
        let found = self.locate(root, id)?;
        let path = found.first().ok_or_else(|| TranscriptError::NotFound {
            upstream_id: id.to_owned(),
            root: root.to_owned(),
        })?;
        reading::check_in_place(path, root, agents)
    }

    fn obstacles(&self, home: Home<'_>, cwd: &str, _id: &str, path: &Path) -> Vec<Finding> {
        let beside = copies::beside(home.library, home.root, cwd, path);
        beside
            .into_iter()
            .chain(newer_branch(home.library, path))
            .collect()
    }

    fn standing(&self, library: &Library, path: &Path) -> Result<Standing, TranscriptError> {
        let standing = library.standing(path)?;
        Ok(Standing {
            is_answered: standing.turn_end == TurnEnd::Over,
            turn_end: standing.turn_end,
            prompts: Some(standing.prompts),
            bytes: standing.bytes,
        })
    }

    fn mends(&self, kind: FindingKind) -> bool {
        repair::mends(kind)
    }

    fn repair_target(
        &self,
        _root: &Path,
        folder: &Path,
        _source: &Path,
        _id: &str,
    ) -> Result<(String, PathBuf), TranscriptError> {
        let new_id = Uuid::new_v4().to_string();
        let target = folder.join(file_name(&new_id)?);
        Ok((new_id, target))
    }

    fn repair(
        &self,
        home: Home<'_>,
        source: &Path,
        id: &str,
        target: &Path,
        new_id: &str,
    ) -> Result<RepairedCopy, TranscriptError> {
        let index = home.library.index(source)?;
        // As the ladder does; where another branch was left, and nothing damaged, it stays left.
        let branch = index.select_joined().or_else(|| index.select(None, true));
        let branch = branch.ok_or_else(|| TranscriptError::NothingToResume {
            upstream_id: id.to_owned(),
        })?;
        let made = repair::repair(
            source,
            &index,
            &branch,
            target.parent().unwrap_or(home.root),
            new_id,
        )?;
        Ok(RepairedCopy {
            path: made.path,
            repairs: made.repairs,
            last_uuid: Some(branch.leaf_uuid().to_owned()),
            turns: branch.prompt_offsets().len() as u64,
            is_whole: branch.breaks() == 0,
        })
    }

    fn parts(
        &self,
        home: Home<'_>,
        cwd: &str,
        id: &str,
    ) -> Result<(Vec<SessionParts>, Option<MissingSource>), TranscriptError> {
        let transcript = self.find(home, cwd, id)?;
        let found = parts(&transcript)?;
        let session = SessionParts {
            upstream_id: id.to_owned(),
            transcript,
            parts: found.files,
            left_out: found.left_out,
        };
        Ok((vec![session], None))
    }
}

/// What is said of a newer branch that a resume leaves aside; nothing where nobody can tell.
fn newer_branch(library: &Library, path: &Path) -> Option<Finding> {
    let index = library.index(path).ok()?;
    index.select(None, true)?.newer()?;
    // The lines of a file are counted by a check alone, and few files have such a branch.
    let mut findings = reading::check(path).ok()?.findings.into_iter();
    findings.find(|finding| finding.kind == FindingKind::NewerBranch)
}
