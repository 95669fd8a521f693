//! The journal of a move: its planned steps, and the originals that it moved away.
//!
//! A move that a daemon left unfinished is undone, unless it was recorded. The originals of a recorded move are deleted
//! only if the destinations have all of their content. Blocks.

use std::fs;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::comparison::begins_with_lines_of;
use super::is_same_file;
use crate::files::identity::FileIdentity;
use crate::files::intent::{
    self, Intent, IntentDecision, IntentKind, IntentStep, LogContent, NewName, Original,
};
use crate::files::set_aside::Unreadable;
use crate::files::{is_absence, open_file};
use crate::paths::names;

/// The intents of moves.
pub(crate) const KIND: IntentKind<MoveDescription> = IntentKind {
    folder: names::MOVES,
    log_name: Some("journal"),
    parse_headerless: parse_old_log,
};

/// The description of a move in its journal.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum MoveDescription {
    /// The caller's description of the move.
    Subject(String),
    /// The move is recorded. Older versions wrote this, and kept the originals.
    Recorded,
}

/// A line of an older version.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum OldLine {
    Begun {
        subject: String,
        steps: Vec<OldStep>,
        temporary: Vec<PathBuf>,
        folders: Vec<PathBuf>,
    },
    Copied(Vec<Option<OldWritten>>),
    Done,
}

#[derive(Deserialize)]
struct OldStep {
    from: PathBuf,
    to: PathBuf,
    stays: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OldWritten {
    device: u64,
    inode: u64,
    bytes: u64,
    modified_secs: i64,
    modified_nanos: i64,
}

fn parse_old_log(lines: Vec<Value>) -> Option<LogContent<MoveDescription>> {
    let mut lines = lines.into_iter().map(serde_json::from_value::<OldLine>);
    let Some(Ok(OldLine::Begun {
        subject,
        steps,
        temporary,
        folders,
    })) = lines.next()
    else {
        return None;
    };
    let mut content = LogContent {
        descriptions: vec![MoveDescription::Subject(subject)],
        groups: preparation_steps(folders, temporary),
    };
    for line in lines {
        match line.ok()? {
            OldLine::Begun { .. } => return None,
            OldLine::Done => content.descriptions.push(MoveDescription::Recorded),
            OldLine::Copied(copied) => {
                let pairs = steps.iter().zip(copied).enumerate();
                content.groups.extend(pairs.map(|(number, (step, written))| {
                    let identity = written.map(|written| FileIdentity {
                        device: written.device,
                        inode: written.inode,
                        bytes: written.bytes,
                        modified: Some((written.modified_secs, written.modified_nanos)),
                    });
                    let is_in_place = is_same_place(&step.from, &step.to);
                    file_steps(number, (&step.from, &step.to), step.stays, is_in_place, identity)
                }));
            }
        }
    }
    Some(content)
}

/// The folders and temporary files that a move creates before its copies are complete.
pub(super) fn preparation_steps(folders: Vec<PathBuf>, temporary: Vec<PathBuf>) -> Vec<Vec<IntentStep>> {
    let mut groups = vec![folders.into_iter().map(IntentStep::Folder).collect()];
    groups.extend(
        temporary
            .into_iter()
            .map(|path| vec![IntentStep::Temporary(path)]),
    );
    groups
}

/// The steps that move one file. If its name stays the same, the original must be moved away first; otherwise it stays until
/// the new file is renamed.
pub(super) fn file_steps(
    number: usize,
    (from, to): (&Path, &Path),
    stays: bool,
    is_in_place: bool,
    identity: Option<FileIdentity>,
) -> Vec<IntentStep> {
    let file = identity.map(|identity| {
        IntentStep::File(NewName {
            path: to.to_owned(),
            identity,
            sha256: None,
            session: None,
        })
    });
    let original = (!stays).then(|| IntentStep::Taken(original(number, from, to)));
    let steps = match is_in_place {
        true => [original, file],
        false => [file, original],
    };
    steps.into_iter().flatten().collect()
}

pub(super) fn original(number: usize, from: &Path, to: &Path) -> Original {
    Original {
        from: from.to_owned(),
        to: to.to_owned(),
        kept: number.to_string(),
    }
}

/// Whether two paths have the same name in the same folder.
fn is_same_place(left: &Path, right: &Path) -> bool {
    let folder = |path: &Path| fs::metadata(path.parent()?).ok();
    let folders = (folder(left), folder(right));
    let is_one = matches!(&folders, (Some(left), Some(right)) if is_same_file(left, right));
    is_one && left.file_name() == right.file_name()
}

/// Undoes the move of this name if it was not recorded. Returns whether nothing is left of it.
#[must_use]
pub fn undo_unrecorded(data: &Path, name: &str) -> bool {
    match Intent::find(&KIND, data, name) {
        Ok(intent) => !is_recorded(&intent) && intent.undo(&|_| false),
        Err(error) => error.is_absence(),
    }
}

/// Settles the moves of a program that was killed. If `is_written` says that the move is part of the saved state, the move
/// is completed; if not, it is undone. If that is unknown, the move waits for a later call.
pub fn settle(data: &Path, is_written: impl Fn(&str) -> Option<bool>) {
    // A journal that cannot be listed or settled has been logged.
    let Ok(left) = intent::existing(&KIND, data) else {
        return;
    };
    let _is_settled = intent::settle(&KIND, &left, &|_| false, |intent| {
        let Some(MoveDescription::Subject(subject)) = intent.descriptions().first() else {
            return IntentDecision::SetAside(Unreadable::Damaged(
                "it does not say whose move it is".to_owned(),
            ));
        };
        match is_recorded(intent)
            .then_some(true)
            .or_else(|| is_written(subject))
        {
            Some(true) => decide_recorded(intent),
            Some(false) => {
                tracing::info!(subject, "undoing an interrupted move");
                IntentDecision::Undo
            }
            None => {
                tracing::warn!(subject, "it is unknown whether an interrupted move was completed");
                IntentDecision::Later
            }
        }
    });
}

fn is_recorded(intent: &Intent<MoveDescription>) -> bool {
    matches!(intent.descriptions().last(), Some(MoveDescription::Recorded))
}

/// Decides about a recorded move. If a destination lacks content of its original, something else changed it since.
fn decide_recorded(intent: &Intent<MoveDescription>) -> IntentDecision {
    let mut originals = intent.groups().iter().flatten().filter_map(IntentStep::original);
    let is_missing = originals.find_map(|original| {
        match begins_with_original(&original.to, &intent.original_path(original)) {
            Ok(true) => None,
            missing => Some(missing),
        }
    });
    match is_missing {
        None => IntentDecision::Commit,
        Some(Ok(_)) => IntentDecision::SetAside(Unreadable::OriginalsDiffer),
        Some(Err(error)) => {
            tracing::warn!(path = %intent.path().display(), %error, "the originals of a move cannot be compared; the next start tries again");
            IntentDecision::Later
        }
    }
}

/// Whether a file begins with the lines of an original, except for the folder that they name. True if the original is missing.
fn begins_with_original(path: &Path, original: &Path) -> io::Result<bool> {
    let open = |path| match open_file(path) {
        Ok(file) => Ok(Some(BufReader::new(file))),
        Err(error) if is_absence(&error) => Ok(None),
        Err(error) => Err(error),
    };
    match (open(original)?, open(path)?) {
        (None, _) => Ok(true),
        (Some(_), None) => Ok(false),
        (Some(original), Some(file)) => begins_with_lines_of(original, file),
    }
}
