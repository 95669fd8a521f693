//! Carries out a move: copies, compares and renames files.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::TranscriptError;
use super::super::copy::{make_folder, sync_folder};
use super::super::meter::ProgressReader;
use super::super::relocate::rewrite_lines;
use super::super::threads;
use super::journal::{self, KIND, MoveDescription};
use super::{MoveStep, comparison, open_files};
use crate::files::durable::{NewFile, missing_folders, temporary_path};
use crate::files::identity::{FileIdentity, same_content};
use crate::files::intent::{self, Intent};
use crate::files::{none_if_absent, open_with_metadata};

/// The size of the buffer, in bytes.
const BUFFER_BYTES: usize = 256 * 1024;

/// How many files are copied in parallel.
const PARALLEL_COPIES: usize = 4;

/// Called with the number of bytes of each read; may stop the move.
type ProgressCallback<'a> = &'a (dyn Fn(u64) -> io::Result<()> + Sync);

/// A file that was copied, and is about to move.
struct CopiedFile<'a> {
    step: &'a MoveStep,
    /// The copy, next to its destination.
    temporary: &'a Path,
    /// Where the original goes if it does not stay.
    original_path: PathBuf,
    /// The identity of the original.
    source: FileIdentity,
    /// The identity of the copy. `None` if the destination has the same content already; the copy is then deleted.
    written: Option<FileIdentity>,
    /// Whether the destination is the original's name, which must be freed first.
    is_in_place: bool,
}

/// A move in progress. Dropping it undoes the move unless it was [committed](RunningMove::commit). If the program is
/// killed, [`settle`](super::settle) decides later.
#[derive(Debug)]
pub struct RunningMove {
    intent: Intent<MoveDescription>,
    steps: Vec<MoveStep>,
    /// The temporary copies, one for each step.
    temporary: Vec<PathBuf>,
    is_finished: bool,
    /// For tests: stops after this many changes on disk, as if the program were killed.
    #[cfg(test)]
    pub(super) stop_after_changes: Option<std::sync::atomic::AtomicUsize>,
}

impl RunningMove {
    /// Records the steps of a move in a new journal. `subject` identifies the caller's move for
    /// [`settle`](super::settle).
    ///
    /// # Errors
    /// [`TranscriptError::Io`].
    pub fn begin(
        data: &Path,
        name: &str,
        subject: String,
        steps: Vec<MoveStep>,
    ) -> Result<Self, TranscriptError> {
        let mut folders = Vec::new();
        let mut temporary = Vec::new();
        for step in &steps {
            let target = step.to.parent().unwrap_or(Path::new("/"));
            for folder in missing_folders(target) {
                if !folders.iter().any(|known| known == folder) {
                    folders.push(folder.to_owned());
                }
            }
            temporary.push(temporary_path(&step.to));
        }
        let groups = journal::preparation_steps(folders, temporary.clone());
        let intent = Intent::begin(&KIND, data, name, MoveDescription::Subject(subject), groups);
        Ok(Self {
            intent: intent.map_err(TranscriptError::io("create", &data.join(KIND.folder).join(name)))?,
            steps,
            temporary,
            is_finished: false,
            #[cfg(test)]
            stop_after_changes: None,
        })
    }

    /// Moves all files. After a failure the move must still be undone. `on_bytes` is called with the number of bytes of each
    /// read, and may stop the move; `on_placing` for each file that is about to get its final name, with its size in bytes.
    ///
    /// # Errors
    /// [`TranscriptError::AlreadyExists`] for a target that exists and differs, [`TranscriptError::Changed`] and
    /// [`TranscriptError::InUse`] for a file that another program uses, [`TranscriptError::CopyDiffers`] for a copy that
    /// differs from its source, and [`TranscriptError::Io`].
    pub fn run(
        &mut self,
        on_bytes: ProgressCallback<'_>,
        on_placing: &mut dyn FnMut(&MoveStep, u64),
    ) -> Result<(), TranscriptError> {
        let (steps, temporary) = (self.steps.clone(), self.temporary.clone());
        let leaving = steps.iter().filter(|step| !step.stays);
        let leaving: Vec<PathBuf> = leaving.map(|step| step.from.clone()).collect();
        open_files::check_not_open(&leaving)?;
        let files = self.copy_all(&steps, &temporary, on_bytes)?;
        let numbered = files.iter().enumerate();
        let groups = numbered.map(|(number, file)| {
            let paths = (file.step.from.as_path(), file.step.to.as_path());
            journal::file_steps(number, paths, file.step.stays, file.is_in_place, file.written)
        });
        let recorded = self.intent.record_steps(groups.collect());
        recorded.map_err(TranscriptError::io("write", self.intent.path()))?;
        self.count_change()?;

        let mut changed_folders = self.place_copies(&files, on_placing)?;
        sync_folders(&mut changed_folders)?;
        open_files::check_not_open(&leaving)?;
        let mut changed_folders = self.take_originals(&files)?;
        for folder in changed_folders.clone().into_iter().rev() {
            remove_emptied(&folder, &mut changed_folders);
        }
        changed_folders.extend(
            files
                .first()
                .and_then(|file| file.original_path.parent().map(Path::to_owned)),
        );
        sync_folders(&mut changed_folders)
    }

    /// Gives the copies their final names, except those whose originals have the same name. Returns the changed folders.
    fn place_copies(
        &self,
        files: &[CopiedFile<'_>],
        on_placing: &mut dyn FnMut(&MoveStep, u64),
    ) -> Result<BTreeSet<PathBuf>, TranscriptError> {
        let mut folders = BTreeSet::new();
        for file in files {
            let Some(written) = file.written else { continue };
            on_placing(file.step, written.bytes);
            if !file.is_in_place {
                rename(file.temporary, &file.step.to)?;
                self.count_change()?;
                folders.extend(file.step.to.parent().map(Path::to_owned));
            }
        }
        Ok(folders)
    }

    /// Moves the originals away that do not stay, and puts the copies with the same names in their place. Returns the changed
    /// folders.
    fn take_originals(&self, files: &[CopiedFile<'_>]) -> Result<BTreeSet<PathBuf>, TranscriptError> {
        let mut folders = BTreeSet::new();
        for file in files.iter().filter(|file| !file.step.stays) {
            let from = &file.step.from;
            check_unchanged(&file.source, from)?;
            folders.extend(from.parent().map(Path::to_owned));
            let target = fs::canonicalize(from).map_err(TranscriptError::io("look for", from))?;
            rename(from, &file.original_path)?;
            self.count_change()?;
            // Only the name of a link is moved away.
            let original = match file.original_path.is_symlink() {
                true => &target,
                false => &file.original_path,
            };
            // A process that had the file open may have written to it until now.
            check_moved(&file.source, original, from)?;
            if file.is_in_place {
                rename(file.temporary, &file.step.to)?;
                self.count_change()?;
            }
        }
        Ok(folders)
    }

    /// Deletes the originals after the move was recorded. Those that cannot be deleted now are [settled](super::settle) later.
    pub fn commit(mut self) {
        self.is_finished = true;
        // A failed deletion has been logged.
        let _is_finished = self.intent.commit();
    }

    /// Leaves the move for [`settle`](super::settle), which decides whether it is completed or undone.
    pub fn leave_unsettled(mut self) {
        self.is_finished = true;
    }

    /// Moves everything back. Returns whether nothing is left of the move.
    pub fn undo(mut self) -> bool {
        self.is_finished = true;
        self.intent.undo(&|_| false)
    }

    /// Copies all files, some in parallel: while one waits for the disk another is rewritten.
    fn copy_all<'a>(
        &self,
        steps: &'a [MoveStep],
        temporary: &'a [PathBuf],
        on_bytes: ProgressCallback<'_>,
    ) -> Result<Vec<CopiedFile<'a>>, TranscriptError> {
        let has_failed = AtomicBool::new(false);
        let numbered: Vec<_> = steps.iter().zip(temporary).enumerate().collect();
        let copied = threads::for_each(
            &numbered,
            PARALLEL_COPIES,
            || (),
            |(number, (step, temporary)), ()| {
                // After a failure no other copy is started.
                let result = (!has_failed.load(Ordering::Relaxed))
                    .then(|| self.copy(*number, step, temporary, on_bytes));
                has_failed.fetch_or(matches!(result, Some(Err(_))), Ordering::Relaxed);
                result
            },
        );
        let copied = copied.into_iter().flatten().flatten();
        let copied = copied.collect::<Result<Vec<_>, TranscriptError>>()?;
        assert_eq!(copied.len(), steps.len(), "a thread that copied panicked");
        Ok(copied)
    }

    /// Writes the new content of a file next to its destination.
    fn copy<'a>(
        &self,
        number: usize,
        step: &'a MoveStep,
        temporary: &'a Path,
        on_bytes: ProgressCallback<'_>,
    ) -> Result<CopiedFile<'a>, TranscriptError> {
        make_folder(step.to.parent().unwrap_or(Path::new("/")))?;
        let (source, metadata) =
            open_with_metadata(&step.from).map_err(TranscriptError::io("open", &step.from))?;
        let file = NewFile::create(temporary);
        let mut file = file.map_err(TranscriptError::io("create", temporary))?;
        self.count_change()?;
        let read = ProgressReader::new((&source).take(metadata.len()), on_bytes);
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, read);
        let relocation = step.relocation();
        let written = match relocation.is_empty() {
            true => io::copy(&mut reader, &mut file).map(|_| 0),
            false => rewrite_lines(reader, &mut file, &relocation),
        };
        let unchanged = written.map_err(TranscriptError::io("copy", &step.from))?;
        if unchanged > 0 {
            tracing::warn!(path = %step.from.display(), unchanged, "lines are too long to be changed; they are moved as they are");
        }
        file.flush().map_err(TranscriptError::io("write", temporary))?;
        // Keep the file's time, so that its position in lists and its expiry by the agent do not change.
        let set = metadata
            .modified()
            .and_then(|modified| file.file().set_modified(modified));
        set.map_err(TranscriptError::io("set the time of", temporary))?;
        file.sync().map_err(TranscriptError::io("sync", temporary))?;
        comparison::check_lines(&step.from, temporary, on_bytes)?;
        let source = FileIdentity::of(&metadata);
        check_unchanged(&source, &step.from)?;
        let original = journal::original(number, &step.from, &step.to);
        Ok(CopiedFile {
            step,
            temporary,
            original_path: self.intent.original_path(&original),
            source,
            written: written_file(step, temporary)?,
            is_in_place: step.is_in_place()?,
        })
    }

    /// Counts a change on disk.
    #[cfg_attr(
        not(test),
        expect(
            clippy::unused_self,
            clippy::unnecessary_wraps,
            reason = "tests break off here"
        )
    )]
    fn count_change(&self) -> Result<(), TranscriptError> {
        #[cfg(test)]
        if let Some(remaining) = &self.stop_after_changes {
            let fewer = |remaining: usize| remaining.checked_sub(1);
            if remaining
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer)
                .is_err()
            {
                let error = io::Error::other("the program is killed here");
                return Err(TranscriptError::io("go on with", Path::new("the move"))(error));
            }
        }
        Ok(())
    }
}

impl Drop for RunningMove {
    fn drop(&mut self) {
        if !self.is_finished {
            self.intent.undo(&|_| false);
        }
    }
}

/// The identity of a written copy. `None` if the destination has the same content already; the copy is then deleted.
fn written_file(step: &MoveStep, temporary: &Path) -> Result<Option<FileIdentity>, TranscriptError> {
    let written = FileIdentity::at(temporary).map_err(TranscriptError::io("read", temporary))?;
    let existing = none_if_absent(fs::symlink_metadata(&step.to));
    let existing = existing.map_err(TranscriptError::io("look at", &step.to))?;
    if existing.is_none() || step.is_in_place()? {
        return Ok(Some(written));
    }
    let is_same = same_content(temporary, &step.to);
    if !is_same.map_err(TranscriptError::io("compare", &step.to))? {
        let path = step.to.clone();
        return Err(TranscriptError::AlreadyExists { path });
    }
    fs::remove_file(temporary).map_err(TranscriptError::io("remove", temporary))?;
    Ok(None)
}

/// Checks that a source is the file that was copied. It may be a link.
fn check_unchanged(seen: &FileIdentity, path: &Path) -> Result<(), TranscriptError> {
    let metadata = fs::metadata(path).map_err(TranscriptError::io("read", path))?;
    let path = path.to_owned();
    match seen.matches(&metadata) {
        true => Ok(()),
        false => Err(TranscriptError::Changed { path }),
    }
}

/// Checks that a source did not change before it was moved to `kept`, which may be on another file system.
fn check_moved(seen: &FileIdentity, kept: &Path, source: &Path) -> Result<(), TranscriptError> {
    let found = FileIdentity::at(kept).map_err(TranscriptError::io("read", kept))?;
    let is_renamed = (found.device, found.inode) == (seen.device, seen.inode);
    let path = source.to_owned();
    match found.bytes == seen.bytes && (!is_renamed || found == *seen) {
        true => Ok(()),
        false => Err(TranscriptError::Changed { path }),
    }
}

/// Renames a file if the new name is free.
fn rename(from: &Path, to: &Path) -> Result<(), TranscriptError> {
    intent::rename(from, to).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => TranscriptError::AlreadyExists { path: to.to_owned() },
        _ => TranscriptError::io("rename", from)(error),
    })
}

/// Removes an empty folder, and the folders above it that become empty.
fn remove_emptied(folder: &Path, synced: &mut BTreeSet<PathBuf>) {
    for folder in folder.ancestors() {
        // Stop at the first folder that is not empty, because its parents are not empty either.
        if fs::remove_dir(folder).is_err() {
            return;
        }
        synced.remove(folder);
        synced.extend(folder.parent().map(Path::to_owned));
    }
}

fn sync_folders(folders: &mut BTreeSet<PathBuf>) -> Result<(), TranscriptError> {
    while let Some(folder) = folders.pop_first() {
        sync_folder(&folder)?;
    }
    Ok(())
}
