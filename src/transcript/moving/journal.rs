//! What a move is about to do, on disk before it does it, so that whoever finds it half done can end it.
//!
//! Owns the folder of each move: its journal, and the originals, which it took from their places. They are kept until the move
//! is recorded, so that all of it can be taken back. A move whose journal cannot be read is set aside with them. Blocks.

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata};
use std::io::{self, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::super::TranscriptError;
use super::super::copy::{make_folder, rename_if_free, sync_folder};
use super::Step;
use super::comparing::{begin_alike, is_same};
use crate::files::checked_lines::{self, CheckedFile, ReadError};
use crate::files::durable::{self, missing_folders};
use crate::files::set_aside::{self, Unreadable, set_aside};
use crate::files::{entries, is_absence};

/// The folder below the daemon's own in which moves keep what they need.
pub const FOLDER: &str = "moves";

/// The journal's name there.
pub const JOURNAL: &str = "journal";

/// The folder beside it for the files that were taken from their places.
const KEPT: &str = "kept";

/// A line of a journal.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Note {
    /// What the move is, and all that it makes. The first line.
    #[serde(rename_all = "camelCase")]
    Begun {
        /// Whose move it is, in the words of who asked for it.
        subject: String,
        /// What goes where.
        steps: Vec<Step>,
        /// The files that are written first, one for each step.
        temporary: Vec<PathBuf>,
        /// The folders that are made.
        folders: Vec<PathBuf>,
    },
    /// All copies are whole; their names follow. None for one that was there already.
    Copied(Vec<Option<Written>>),
    /// It is recorded. Older versions wrote this, and kept the originals.
    Done,
}

/// A file as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Written {
    device: u64,
    inode: u64,
    pub(super) bytes: u64,
    modified_secs: i64,
    modified_nanos: i64,
}

impl Written {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified_secs: metadata.mtime(),
            modified_nanos: metadata.mtime_nsec(),
        }
    }
}

/// The journal of one move.
#[derive(Debug)]
pub(super) struct Journal {
    folder: PathBuf,
    file: CheckedFile,
    notes: Vec<Note>,
}

impl Journal {
    /// Writes down a move that is about to begin.
    pub(super) fn begin(
        data: &Path,
        name: &str,
        subject: String,
        steps: Vec<Step>,
    ) -> Result<Self, TranscriptError> {
        let all = data.join(FOLDER);
        let folder = all.join(name);
        make_folder(&folder.join(KEPT))?;
        let mut folders = Vec::new();
        for step in &steps {
            let target = step.to.parent().unwrap_or(Path::new("/"));
            for folder in missing_folders(target) {
                if !folders.iter().any(|known| known == folder) {
                    folders.push(folder.to_owned());
                }
            }
        }
        let temporary = steps.iter().map(|step| {
            let folder = step.to.parent().unwrap_or(Path::new("/"));
            folder.join(format!(".{}.tmp", Uuid::new_v4()))
        });
        let temporary = temporary.collect();
        let begun = Note::Begun {
            subject,
            steps,
            temporary,
            folders,
        };
        let path = folder.join(JOURNAL);
        let file = CheckedFile::create(&path, &begun).map_err(TranscriptError::io("create", &path))?;
        sync_folder(&all)?;
        sync_folder(data)?;
        Ok(Self {
            folder,
            file,
            notes: vec![begun],
        })
    }

    pub(super) fn note(&mut self, note: Note) -> Result<(), TranscriptError> {
        let written = self.file.append(&note);
        written.map_err(TranscriptError::io("write", &self.folder.join(JOURNAL)))?;
        self.notes.push(note);
        Ok(())
    }

    pub(super) fn steps(&self) -> &[Step] {
        match self.notes.first() {
            Some(Note::Begun { steps, .. }) => steps,
            _ => &[],
        }
    }

    pub(super) fn temporary(&self, number: usize) -> PathBuf {
        match self.notes.first() {
            Some(Note::Begun { temporary, .. }) => temporary.get(number).cloned().unwrap_or_default(),
            _ => PathBuf::new(),
        }
    }

    pub(super) fn kept(&self, number: usize) -> PathBuf {
        kept(&self.folder, number)
    }

    pub(super) fn kept_folder(&self) -> PathBuf {
        self.folder.join(KEPT)
    }

    /// It is recorded: deletes the originals and the journal.
    pub(super) fn finish(&self) {
        remove(&self.folder);
    }

    /// Takes all of it back. Whether nothing of it is left.
    pub(super) fn take_back(&self) -> bool {
        let is_done = put_all_back(&self.folder, &self.notes);
        if is_done {
            remove_taken_back(&self.folder);
            // That of other moves stays.
            let _ = self.folder.parent().map(fs::remove_dir);
        }
        is_done
    }
}

/// Takes back what is left of the move of this name that was not done. Whether nothing of it is left.
#[must_use]
pub fn take_back(data: &Path, name: &str) -> bool {
    let folder = data.join(FOLDER).join(name);
    let notes = match read(&folder.join(JOURNAL)) {
        Ok(notes) => notes,
        Err(error) => return error.is_absence(),
    };
    let is_back = !matches!(notes.last(), Some(Note::Done)) && put_all_back(&folder, &notes);
    if is_back {
        remove_taken_back(&folder);
    }
    is_back
}

/// Ends what a program that was killed has left of its moves: one that `is_written` says to be part of what is remembered is
/// finished, any other is taken back, and one of which it does not know waits on.
pub fn settle(data: &Path, is_written: impl Fn(&str) -> Option<bool>) {
    let all = data.join(FOLDER);
    let entries = match fs::read_dir(&all) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => {
            tracing::warn!(path = %all.display(), %error, "what moves have left cannot be looked at");
            return;
        }
    };
    for folder in entries.flatten().map(|entry| entry.path()) {
        if !set_aside::is_name(&folder) {
            settle_one(&folder, &is_written);
        }
    }
    // One that is not empty is kept.
    let _ = fs::remove_dir(&all);
}

fn settle_one(folder: &Path, is_written: impl Fn(&str) -> Option<bool>) {
    let path = folder.join(JOURNAL);
    let notes = match read(&path) {
        Ok(notes) => notes,
        // It was killed before it had begun, and had taken nothing.
        Err(error) if error.is_absence() => return remove_taken_back(folder),
        Err(ReadError::Io(error)) => {
            tracing::warn!(path = %path.display(), %error, "the journal of a move cannot be read; what it has done stays, and the journal too");
            return;
        }
        Err(ReadError::Unreadable(why)) => {
            // What became of it is in the log.
            let _reported = set_aside(folder, &why);
            return;
        }
    };
    let Some(Note::Begun { subject, steps, .. }) = notes.first() else {
        let why = Unreadable::Damaged("it does not begin with what the move is".to_owned());
        // What became of it is in the log.
        let _reported = set_aside(folder, &why);
        return;
    };
    let is_done = matches!(notes.last(), Some(Note::Done));
    match is_done.then_some(true).or_else(|| is_written(subject)) {
        Some(true) => {
            tracing::info!(subject, "a move that was recorded is finished");
            finish(folder, steps);
        }
        Some(false) => {
            tracing::info!(subject, "a move that was cut short is taken back");
            if put_all_back(folder, &notes) {
                remove_taken_back(folder);
            }
        }
        None => tracing::warn!(
            subject,
            "it is not known whether a move that was cut short is done"
        ),
    }
}

/// Deletes the originals of a move that an earlier daemon recorded. If a new place does not hold what its original does, something
/// else happened since; then the originals are set aside.
fn finish(folder: &Path, steps: &[Step]) {
    let holds = |(number, step): (usize, &Step)| holds(&step.to, &kept(folder, number));
    let is_held = steps
        .iter()
        .enumerate()
        .map(holds)
        .collect::<io::Result<Vec<bool>>>();
    match is_held {
        Ok(all) if all.iter().all(|is_held| *is_held) => remove(folder),
        Ok(_) => {
            // What became of it is in the log.
            let _reported = set_aside(folder, &Unreadable::OriginalsDiffer);
        }
        Err(error) => {
            tracing::warn!(path = %folder.display(), %error, "the originals of a move cannot be compared; the next start tries again");
        }
    }
}

/// Whether a file begins with the lines of an original, each the same or naming another folder. An original that is missing is held
/// by any.
fn holds(path: &Path, original: &Path) -> io::Result<bool> {
    let open = |path| match File::open(path) {
        Ok(file) => Ok(Some(BufReader::new(file))),
        Err(error) if is_absence(&error) => Ok(None),
        Err(error) => Err(error),
    };
    match (open(original)?, open(path)?) {
        (None, _) => Ok(true),
        (Some(_), None) => Ok(false),
        (Some(original), Some(file)) => begin_alike(original, file),
    }
}

fn read(journal: &Path) -> Result<Vec<Note>, ReadError> {
    checked_lines::read(journal)
}

fn written(notes: &[Note]) -> &[Option<Written>] {
    let copied = notes.iter().find_map(|note| match note {
        Note::Copied(files) => Some(files.as_slice()),
        _ => None,
    });
    copied.unwrap_or_default()
}

/// Whether nothing is left that could be taken back later.
fn put_all_back(folder: &Path, notes: &[Note]) -> bool {
    let Some(Note::Begun {
        steps,
        temporary,
        folders,
        ..
    }) = notes.first()
    else {
        return true;
    };
    let written = written(notes);
    let mut is_done = true;
    let mut note = |path: &Path, result: Result<(), TranscriptError>| {
        if let Err(error) = result {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            tracing::warn!(path = %path.display(), %error, cause, "a move could not be taken back wholly");
            is_done = false;
        }
    };
    let mut touched = BTreeSet::new();
    for (number, step) in steps.iter().enumerate() {
        let kept = kept(folder, number);
        let temporary = temporary.get(number);
        let ours = written.get(number).copied().flatten();
        // In one place the new file makes room; else the source is back before the copy goes.
        let in_place = is_one_place(&step.from, &step.to);
        if in_place {
            note(&step.to, remove_ours(&step.to, ours));
        }
        let back = match kept.exists() {
            true => put_back(&kept, &step.from),
            false => Ok(()),
        };
        let is_back = back.is_ok();
        note(&step.from, back);
        if is_back && !in_place {
            note(&step.to, remove_ours(&step.to, ours));
        }
        if let Some(temporary) = temporary {
            note(temporary, remove_file(temporary));
        }
        touched.extend([&step.from, &step.to].map(|path| path.parent().map(Path::to_owned)));
    }
    for folder in folders.iter().rev() {
        // What somebody else has put something into stays.
        let _ = fs::remove_dir(folder);
    }
    for folder in touched.into_iter().flatten().filter(|folder| folder.exists()) {
        note(&folder, sync_folder(&folder));
    }
    is_done
}

/// Whether two paths are one name in one folder.
fn is_one_place(left: &Path, right: &Path) -> bool {
    let folder = |path: &Path| fs::metadata(path.parent()?).ok();
    let folders = (folder(left), folder(right));
    let is_one = matches!(&folders, (Some(left), Some(right)) if super::is_same_file(left, right));
    is_one && left.file_name() == right.file_name()
}

/// Removes a file if it still is what was written there.
fn remove_ours(path: &Path, ours: Option<Written>) -> Result<(), TranscriptError> {
    let (Some(ours), Ok(there)) = (ours, fs::symlink_metadata(path)) else {
        return Ok(());
    };
    if Written::of(&there) == ours {
        return remove_file(path);
    }
    if (there.dev(), there.ino()) == (ours.device, ours.inode) {
        tracing::warn!(path = %path.display(), "somebody went on with what a move that was cut short had put there; it stays");
    }
    Ok(())
}

fn remove_file(path: &Path) -> Result<(), TranscriptError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(TranscriptError::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// Puts a file that was kept where it was. What is there by now stays, and the other is kept on.
fn put_back(kept: &Path, from: &Path) -> Result<(), TranscriptError> {
    make_folder(from.parent().unwrap_or(Path::new("/")))?;
    match rename(kept, from) {
        Err(TranscriptError::AlreadyExists { .. }) if is_same(kept, from)? => remove_file(kept),
        other => other,
    }
}

/// Gives a file another name where that is free, on another file system too.
pub(super) fn rename(from: &Path, to: &Path) -> Result<(), TranscriptError> {
    match rename_if_free(from, to) {
        Ok(()) => {
            // Some file systems only link.
            let both = (fs::symlink_metadata(from), fs::symlink_metadata(to));
            match both {
                (Ok(left), Ok(right)) if super::is_same_file(&left, &right) => remove_file(from),
                _ => Ok(()),
            }
        }
        Err(TranscriptError::Io { source, .. }) if source.kind() == io::ErrorKind::CrossesDevices => {
            copy_over(from, to)
        }
        Err(error) => Err(error),
    }
}

fn copy_over(from: &Path, to: &Path) -> Result<(), TranscriptError> {
    let mut source = File::open(from).map_err(TranscriptError::io("open", from))?;
    let modified = source.metadata().and_then(|metadata| metadata.modified());
    super::super::copy::create(to, |writer| -> Result<(), TranscriptError> {
        io::copy(&mut source, writer)
            .map(drop)
            .map_err(TranscriptError::io("copy", from))
    })?;
    let set = modified.and_then(|modified| File::open(to)?.set_modified(modified));
    set.map_err(TranscriptError::io("set the time of", to))?;
    if !is_same(from, to)? {
        remove_file(to)?;
        let path = from.to_owned();
        return Err(TranscriptError::Changed { path });
    }
    remove_file(from)
}

fn kept(folder: &Path, number: usize) -> PathBuf {
    folder.join(KEPT).join(number.to_string())
}

/// Removes the folder of a move that was taken back, or had not begun. Where anything is left in it that is not the move's own
/// bookkeeping, it is set aside: files that the move took, for one.
fn remove_taken_back(folder: &Path) {
    let is_bookkeeping = |path: &PathBuf| match path.file_name().and_then(|name| name.to_str()) {
        Some(JOURNAL) => true,
        Some(KEPT) => entries(path).is_ok_and(|kept| kept.is_empty()),
        _ => checked_lines::is_unbegun(path),
    };
    match entries(folder) {
        Ok(entries) if entries.iter().all(is_bookkeeping) => remove(folder),
        Ok(_) => {
            let why = Unreadable::Damaged("no journal says where the files in it belong".to_owned());
            // What became of it is in the log.
            let _reported = set_aside(folder, &why);
        }
        Err(error) => {
            tracing::warn!(path = %folder.display(), %error, "what a move left cannot be looked at");
        }
    }
}

/// Deletes the folder of a move, the journal last: originals without one would be set aside.
fn remove(folder: &Path) {
    let remove_all = |path: &Path| match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    let removed = remove_all(&folder.join(KEPT))
        .and_then(|()| durable::sync_folder(folder))
        .and_then(|()| remove_all(folder));
    if let Err(error) = removed
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %folder.display(), %error, "what a move left could not be removed; the next start tries again");
    }
}
