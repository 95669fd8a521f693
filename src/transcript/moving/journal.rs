//! The journal of a move: what it is about to do, and the originals that it took from their places.
//!
//! Owns how a move that a daemon left unfinished is settled: it is taken back unless it was recorded. The originals of a recorded one
//! are deleted only if the new places hold all that they hold. Blocks.

use std::fs;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::comparing::begins_with_lines_of;
use super::is_same_file;
use crate::files::identity::Identity;
use crate::files::intent::{self, Intent, Kind, LogContent, NewName, Original, Outcome, Step};
use crate::files::set_aside::Unreadable;
use crate::files::{is_absence, open_file};
use crate::paths::names;

/// The intents of moves.
pub(crate) const KIND: Kind<About> = Kind {
    folder: names::MOVES,
    log: Some("journal"),
    old,
};

/// What a journal says of its move.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum About {
    /// Whose move it is, in the words of who asked for it.
    Subject(String),
    /// It is recorded. Older versions wrote this, and kept the originals.
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

fn old(lines: Vec<Value>) -> Option<LogContent<About>> {
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
    let mut said = LogContent {
        about: vec![About::Subject(subject)],
        groups: begun(folders, temporary),
    };
    for line in lines {
        match line.ok()? {
            OldLine::Begun { .. } => return None,
            OldLine::Done => said.about.push(About::Recorded),
            OldLine::Copied(copied) => {
                let pairs = steps.iter().zip(copied).enumerate();
                said.groups.extend(pairs.map(|(number, (step, written))| {
                    let identity = written.map(|written| Identity {
                        device: written.device,
                        inode: written.inode,
                        bytes: written.bytes,
                        modified: Some((written.modified_secs, written.modified_nanos)),
                    });
                    let is_in_place = is_one_place(&step.from, &step.to);
                    moved(number, (&step.from, &step.to), step.stays, is_in_place, identity)
                }));
            }
        }
    }
    Some(said)
}

/// What a move makes before its copies are whole.
pub(super) fn begun(folders: Vec<PathBuf>, temporary: Vec<PathBuf>) -> Vec<Vec<Step>> {
    let mut groups = vec![folders.into_iter().map(Step::Folder).collect()];
    groups.extend(temporary.into_iter().map(|path| vec![Step::Temporary(path)]));
    groups
}

/// How one file goes. In its own place the original makes room for the new file; otherwise it stays until that has its name.
pub(super) fn moved(
    number: usize,
    (from, to): (&Path, &Path),
    stays: bool,
    is_in_place: bool,
    identity: Option<Identity>,
) -> Vec<Step> {
    let file = identity.map(|identity| {
        Step::File(NewName {
            path: to.to_owned(),
            identity,
            sha256: None,
            session: None,
        })
    });
    let taken = (!stays).then(|| Step::Taken(original(number, from, to)));
    let steps = match is_in_place {
        true => [taken, file],
        false => [file, taken],
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

/// Whether two paths are one name in one folder.
fn is_one_place(left: &Path, right: &Path) -> bool {
    let folder = |path: &Path| fs::metadata(path.parent()?).ok();
    let folders = (folder(left), folder(right));
    let is_one = matches!(&folders, (Some(left), Some(right)) if is_same_file(left, right));
    is_one && left.file_name() == right.file_name()
}

/// Takes back what is left of the move of this name that was not recorded. Whether nothing of it is left.
#[must_use]
pub fn take_back(data: &Path, name: &str) -> bool {
    match Intent::find(&KIND, data, name) {
        Ok(intent) => !is_recorded(&intent) && intent.undo(&|_| false),
        Err(error) => error.is_absence(),
    }
}

/// Ends what a program that was killed has left of its moves: one that `is_written` says to be part of what is remembered is
/// finished, any other is taken back, and one of which it does not know waits on.
pub fn settle(data: &Path, is_written: impl Fn(&str) -> Option<bool>) {
    // The log has what cannot be listed or settled.
    let Ok(left) = intent::existing(&KIND, data) else {
        return;
    };
    let _is_settled = intent::settle(&KIND, &left, &|_| false, |intent| {
        let Some(About::Subject(subject)) = intent.about().first() else {
            return Outcome::SetAside(Unreadable::Damaged("it does not say whose move it is".to_owned()));
        };
        match is_recorded(intent)
            .then_some(true)
            .or_else(|| is_written(subject))
        {
            Some(true) => finished(intent),
            Some(false) => {
                tracing::info!(subject, "undoing an interrupted move");
                Outcome::Undo
            }
            None => {
                tracing::warn!(subject, "it is unknown whether an interrupted move was completed");
                Outcome::Later
            }
        }
    });
}

fn is_recorded(intent: &Intent<About>) -> bool {
    matches!(intent.about().last(), Some(About::Recorded))
}

/// What becomes of a move that was recorded. If a new place does not hold what its original does, something else happened since.
fn finished(intent: &Intent<About>) -> Outcome {
    let mut originals = intent.groups().iter().flatten().filter_map(Step::original);
    let is_missing = originals.find_map(|original| match holds(&original.to, &intent.kept(original)) {
        Ok(true) => None,
        missing => Some(missing),
    });
    match is_missing {
        None => Outcome::Commit,
        Some(Ok(_)) => Outcome::SetAside(Unreadable::OriginalsDiffer),
        Some(Err(error)) => {
            tracing::warn!(path = %intent.path().display(), %error, "the originals of a move cannot be compared; the next start tries again");
            Outcome::Later
        }
    }
}

/// Whether a file begins with the lines of an original, each the same or naming another folder. An original that is missing is held
/// by any.
fn holds(path: &Path, original: &Path) -> io::Result<bool> {
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
