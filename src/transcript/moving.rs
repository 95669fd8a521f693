//! Moves transcripts and their side files to another folder.
//!
//! A move happens completely or not at all, even if the program is killed. It copies everything next to its
//! destination, syncs the copies and compares them with their sources. Then it renames the copies, and moves the
//! sources into the daemon's own folder, where they stay until the move is recorded. It writes each action to a
//! [journal] before it performs it. It never replaces an existing file with other content, and does not touch a source
//! that has changed meanwhile or that another process holds open. If a transcript is a symbolic link, its content is copied, and
//! the link itself is moved away, and its target stays. Blocks. This module does not know the callers.

pub(crate) mod comparison;
mod execution;
pub mod journal;
pub(crate) mod open_files;
mod remaining_forks;

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::claude::borrowed_files::{Claimed, collect_borrowed};
use super::relocate::{RESULTS, Relocation};
use super::{TranscriptError, claude, parts, transcript_list};
use crate::files::{file_contains, none_if_absent, open_file, refuse_links_below};

pub use execution::RunningMove;
pub use journal::{settle, undo_unrecorded};
pub use remaining_forks::{RemainingForks, SharedRemainingForks};

/// The member of a fork's messages that names their origin.
pub(super) const FORKED: &str = "\"forkedFrom\"";

/// The folder next to a project's transcripts in which Claude Code stores its memory of the project.
pub(super) const MEMORY: &str = "memory";

/// How much of a transcript is read to see whether it is a fork, in bytes: enough to contain the first message.
const BEGINNING_BYTES: u64 = 1024 * 1024;

/// The kind of file that a step moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StepKind {
    /// A transcript.
    Transcript,
    /// A side file of a transcript.
    SideFile,
}

/// The move of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MoveStep {
    /// The session to which the file belongs.
    pub session: String,
    /// The source.
    pub from: PathBuf,
    /// The destination.
    pub to: PathBuf,
    /// The kind of file.
    pub kind: StepKind,
    /// Its length, in bytes.
    pub bytes: u64,
    /// Whether the source stays as well, because records, for example those of forks, refer to it by its path.
    pub stays: bool,
    /// The folders that its records name, and their replacements.
    pub folders: Vec<(String, String)>,
}

impl MoveStep {
    /// The replacements in its records.
    fn relocation(&self) -> Relocation {
        let is_lines = parts::is_lines(&self.from);
        let folders = if is_lines {
            self.folders.clone()
        } else {
            Vec::new()
        };
        Relocation {
            folders,
            ..Relocation::default()
        }
    }

    /// Whether source and destination are the same file name in the same folder, even if by different paths.
    fn is_in_place(&self) -> Result<bool, TranscriptError> {
        let is_one = || -> io::Result<bool> {
            Ok(match none_if_absent(fs::symlink_metadata(&self.to))? {
                Some(to) => is_same_file(&fs::symlink_metadata(&self.from)?, &to),
                None => false,
            })
        };
        is_one().map_err(TranscriptError::io("read", &self.to))
    }
}

/// The steps that move a session with all its files into another folder, and what is not moved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionPlan {
    /// The steps, the transcript first.
    pub steps: Vec<MoveStep>,
    /// The files that are not moved, with the reasons.
    pub left_out: Vec<String>,
}

/// Plans the move of a session into `folder`. `folders` are the replacements in its records. A side file also stays in its
/// place if one of the `neighbours` borrows it.
///
/// # Errors
/// [`TranscriptError::Io`] if the session cannot be read.
pub fn plan(
    transcript: &Path,
    folder: &Path,
    folders: &[(String, String)],
    neighbours: &mut RemainingForks,
) -> Result<SessionPlan, TranscriptError> {
    let mut parts = parts::parts(transcript)?;
    let session = transcript.file_stem().unwrap_or_default().to_string_lossy();
    let project = transcript.parent().unwrap_or(Path::new("/"));
    let own_count = parts.files.len();
    if is_fork(&read_beginning(transcript)?) {
        let mut claimed = Claimed::default();
        for part in &parts.files {
            claimed.add(project, part);
        }
        parts
            .left_out
            .extend(collect_borrowed(&mut parts.files, &mut claimed)?);
    }
    let has_borrower = own_count > 1 && neighbours.has_fork(project, transcript, &session)?;
    let records: Vec<PathBuf> = parts.files.iter().map(|part| part.path.clone()).collect();
    let mut are_named = None;
    let mut steps = Vec::new();
    for (number, part) in parts.files.into_iter().enumerate() {
        let metadata = fs::metadata(&part.path).map_err(TranscriptError::io("read", &part.path))?;
        let is_result = part
            .path
            .parent()
            .is_some_and(|folder| folder.ends_with("tool-results"));
        let is_borrowed = number >= own_count || (number > 0 && has_borrower);
        let name = part.borrowed_name.as_ref().unwrap_or(&part.name);
        let to = folder.join(name);
        refuse_links_below(folder, &to).map_err(TranscriptError::io("write", &to))?;
        let mut step = MoveStep {
            session: session.clone().into_owned(),
            to,
            from: part.path,
            kind: match number {
                0 => StepKind::Transcript,
                _ => StepKind::SideFile,
            },
            bytes: metadata.len(),
            stays: is_result || is_borrowed,
            folders: folders.to_vec(),
        };
        let in_place = step.is_in_place()?;
        if is_result
            && !is_borrowed
            && !in_place
            && step.to.is_file()
            && comparison::is_already_copied(&step)?
        {
            // When a session moves back, the target is the copy that the first move left. The source can go unless records name
            // this folder.
            step.stays = match are_named {
                Some(known) => known,
                None => *are_named.insert(refer_to_results_of(&records, project, &session)?),
            };
        }
        // Skip a file that is already in place and either stays or needs no edits.
        if !in_place || !step.stays && !step.relocation().is_empty() {
            steps.push(step);
        }
    }
    Ok(SessionPlan {
        steps,
        left_out: parts.left_out,
    })
}

/// Plans the move of an agent's memory of a project from one folder into another. These files belong to no session. They
/// also stay if sessions other than those in `leaving` stay. A file whose target exists and differs is not moved.
///
/// # Errors
/// [`TranscriptError::Io`] if something cannot be read.
pub fn plan_memory(
    project: &Path,
    folder: &Path,
    leaving: &HashSet<&Path>,
) -> Result<SessionPlan, TranscriptError> {
    let mut there = transcript_list::files(project, claude::FORMAT);
    let stays = there.any(|path| !leaving.contains(path.as_path()));
    let parts = parts::folder_parts(project, MEMORY);
    let mut plan = SessionPlan {
        steps: Vec::new(),
        left_out: parts.left_out,
    };
    for part in parts.files {
        let metadata = fs::symlink_metadata(&part.path).map_err(TranscriptError::io("read", &part.path))?;
        let step = MoveStep {
            session: String::new(),
            to: folder.join(&part.name),
            from: part.path,
            kind: StepKind::SideFile,
            bytes: metadata.len(),
            stays,
            folders: Vec::new(),
        };
        if let Err(why) = refuse_links_below(folder, &step.to) {
            plan.left_out
                .push(format!("{} stays: {why}", step.from.display()));
            continue;
        }
        let is_in_place = step.is_in_place()?;
        match step.to.exists() && !is_in_place && !comparison::is_already_copied(&step)? {
            true => plan
                .left_out
                .push(format!("{} already exists and differs", step.to.display())),
            false if is_in_place => {}
            false => plan.steps.push(step),
        }
    }
    Ok(plan)
}

/// Whether any of these files refers to a tool result of a session in the folder of this project.
fn refer_to_results_of(records: &[PathBuf], project: &Path, session: &str) -> Result<bool, TranscriptError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let project = project.file_name().unwrap_or_default().to_string_lossy();
    if !project.bytes().chain(session.bytes()).all(is_plain) {
        // Records may write such names in other ways.
        return Ok(true);
    }
    let named = format!("{project}/{session}{RESULTS}");
    for path in records.iter().filter(|path| parts::is_lines(path)) {
        let contains = file_contains(path, named.as_bytes());
        if contains.map_err(TranscriptError::io("read", path))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether these are the first bytes of a fork.
fn is_fork(beginning: &[u8]) -> bool {
    memchr::memmem::find(beginning, FORKED.as_bytes()).is_some()
}

fn read_beginning(path: &Path) -> Result<Vec<u8>, TranscriptError> {
    let mut beginning = Vec::new();
    let read = open_file(path).and_then(|file| file.take(BEGINNING_BYTES).read_to_end(&mut beginning));
    read.map_err(TranscriptError::io("read", path))?;
    Ok(beginning)
}

/// Checks that no target of the steps exists with other content. A [move](RunningMove) refuses that too.
///
/// # Errors
/// [`TranscriptError::AlreadyExists`] for the first such target, and [`TranscriptError::Io`].
pub fn check_targets_free(steps: &[MoveStep]) -> Result<(), TranscriptError> {
    for step in steps {
        let existing = none_if_absent(fs::symlink_metadata(&step.to));
        let Some(existing) = existing.map_err(TranscriptError::io("look at", &step.to))? else {
            continue;
        };
        if step.is_in_place()? || existing.is_file() && comparison::is_already_copied(step)? {
            continue;
        }
        let path = step.to.clone();
        return Err(TranscriptError::AlreadyExists { path });
    }
    Ok(())
}

pub(super) fn is_same_file(left: &Metadata, right: &Metadata) -> bool {
    (left.dev(), left.ino()) == (right.dev(), right.ino())
}
