//! A move that is carried out: copies, comparisons, names.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::super::TranscriptError;
use super::super::copy::{make_folder, sync_folder};
use super::super::relocate::relocate;
use super::journal::{Journal, Note, Written, rename};
use super::{Step, comparing, holders, is_same_file};
use crate::files::durable::NewFile;

/// How much is read at once, in bytes.
const BUFFER_BYTES: usize = 256 * 1024;

/// How much of the end of a file is looked at again before it goes, in bytes.
const TAIL_BYTES: u64 = 4096;

/// How many files are copied at once.
const AT_ONCE: usize = 4;

/// Who is told how many bytes more were read, and may end the move.
type Watch<'a> = &'a (dyn Fn(u64) -> io::Result<()> + Sync);

/// Who watches a move.
pub struct Watched<'a> {
    /// Is told how many bytes more were read, and may end the move.
    pub step: Watch<'a>,
    /// Is told of each file that is about to get its name, and how many bytes it has.
    pub placing: &'a mut dyn FnMut(&Step, u64),
}

/// A move that has begun. Unless it is [kept](Moving::keep) it is taken back when this is dropped; and when the program is
/// killed by [`settle`](super::settle).
#[derive(Debug)]
pub struct Moving {
    journal: Journal,
    is_over: bool,
    /// Of tests: after how many changes on disk it breaks off, as if the program were killed.
    #[cfg(test)]
    pub(super) breaks_off_after: Option<std::sync::atomic::AtomicUsize>,
}

/// A source as it was when it was copied.
struct Seen {
    written: Written,
    tail: Vec<u8>,
}

impl Moving {
    /// Writes down what is about to move, under a [name](super::name) of its own. `subject` says whose move it is, for
    /// [`settle`](super::settle).
    ///
    /// # Errors
    /// [`TranscriptError::Io`].
    pub fn begin(
        data: &Path,
        name: &str,
        subject: String,
        steps: Vec<Step>,
    ) -> Result<Self, TranscriptError> {
        Ok(Self {
            journal: Journal::begin(data, name, subject, steps)?,
            is_over: false,
            #[cfg(test)]
            breaks_off_after: None,
        })
    }

    /// Puts all files into their new places, and takes them from their old ones. After a failure it is still to be taken
    /// back.
    ///
    /// # Errors
    /// [`TranscriptError::AlreadyExists`] for a file that is there and differs, [`TranscriptError::Changed`] and
    /// [`TranscriptError::InUse`] for one that somebody else uses, [`TranscriptError::Unlike`] for a copy that went wrong,
    /// and what cannot be read or written.
    pub fn carry_out(&mut self, watched: &mut Watched<'_>) -> Result<(), TranscriptError> {
        let steps = self.journal.steps().to_vec();
        let leaving = steps.iter().filter(|step| !step.stays);
        let leaving: Vec<PathBuf> = leaving.map(|step| step.from.clone()).collect();
        holders::check(&leaving)?;
        let copied = self.copy_all(&steps, watched.step)?;
        let (seen, written): (Vec<Seen>, Vec<Option<Written>>) = copied.into_iter().unzip();
        self.journal.note(Note::Copied(written.clone()))?;
        self.changed()?;

        let mut folders = BTreeSet::new();
        let mut in_place = Vec::new();
        for (number, step) in steps.iter().enumerate() {
            let Some(written) = written[number] else { continue };
            (watched.placing)(step, written.bytes);
            let is_in_place = step.is_in_place();
            if is_in_place.map_err(TranscriptError::io("read", &step.to))? {
                // Its source has to make room first.
                in_place.push(number);
                continue;
            }
            rename(&self.journal.temporary(number), &step.to)?;
            self.changed()?;
            folders.extend(step.to.parent().map(Path::to_owned));
        }
        sync_folders(&mut folders)?;

        holders::check(&leaving)?;
        for (number, step) in steps.iter().enumerate() {
            if step.stays {
                continue;
            }
            let kept = self.journal.kept(number);
            seen[number].check(&step.from)?;
            folders.extend(step.from.parent().map(Path::to_owned));
            rename(&step.from, &kept)?;
            self.changed()?;
            // Whoever had it open may have written to it until now.
            seen[number].check_bytes(&kept, &step.from)?;
            if in_place.contains(&number) {
                rename(&self.journal.temporary(number), &step.to)?;
                self.changed()?;
            }
        }
        for folder in folders.clone().into_iter().rev() {
            remove_emptied(&folder, &mut folders);
        }
        folders.insert(self.journal.kept_folder());
        sync_folders(&mut folders)
    }

    /// It is recorded: the originals go. Those that cannot be deleted now are [settled](super::settle) later.
    pub fn keep(mut self) {
        self.is_over = true;
        self.journal.finish();
    }

    /// Leaves it to [`settle`](super::settle) whether it is done.
    pub fn leave(mut self) {
        self.is_over = true;
    }

    /// Puts everything back where it was. Whether nothing is left of the move.
    pub fn take_back(mut self) -> bool {
        self.is_over = true;
        self.journal.take_back()
    }

    /// Copies all, some at a time: while one waits for the disk another is rewritten.
    fn copy_all(
        &self,
        steps: &[Step],
        watch: Watch<'_>,
    ) -> Result<Vec<(Seen, Option<Written>)>, TranscriptError> {
        let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
        let has_failed = || failure.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        let work = || {
            let mut copied = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(step) = steps.get(number).filter(|_| !has_failed()) else {
                    return copied;
                };
                match self.copy_one(number, step, watch) {
                    Ok(one) => copied.push((number, one)),
                    Err(error) => {
                        let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
                        failure.get_or_insert(error);
                        return copied;
                    }
                }
            }
        };
        let mut copied = thread::scope(|scope| {
            // One that cannot be had is not needed.
            let other = |_| thread::Builder::new().spawn_scoped(scope, work).ok();
            let others: Vec<_> = (1..AT_ONCE.min(steps.len())).filter_map(other).collect();
            let mut copied = work();
            for other in others {
                match other.join() {
                    Ok(more) => copied.extend(more),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            copied
        });
        if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        copied.sort_by_key(|(number, _)| *number);
        Ok(copied.into_iter().map(|(_, one)| one).collect())
    }

    fn copy_one(
        &self,
        number: usize,
        step: &Step,
        watch: Watch<'_>,
    ) -> Result<(Seen, Option<Written>), TranscriptError> {
        make_folder(step.to.parent().unwrap_or(Path::new("/")))?;
        let seen = self.copy(number, step, watch)?;
        Ok((seen, self.is_new(number, step)?))
    }

    /// Writes what will be in the new place beside it.
    fn copy(&self, number: usize, step: &Step, watch: Watch<'_>) -> Result<Seen, TranscriptError> {
        let temporary = self.journal.temporary(number);
        let source = File::open(&step.from).map_err(TranscriptError::io("open", &step.from))?;
        let before = source
            .metadata()
            .map_err(TranscriptError::io("read", &step.from))?;
        let made = NewFile::create(&temporary);
        let mut made = made.map_err(TranscriptError::io("create", &temporary))?;
        self.changed()?;
        let unchanged = fill(step, &source, before.len(), &mut made, watch)?;
        if unchanged > 0 {
            tracing::warn!(path = %step.from.display(), unchanged, "lines that are too long to be held go along as they are");
        }
        made.flush().map_err(TranscriptError::io("write", &temporary))?;
        // What is listed by time stays where it was, and is not kept longer by its agent.
        let set = before
            .modified()
            .and_then(|modified| made.file().set_modified(modified));
        set.map_err(TranscriptError::io("set the time of", &temporary))?;
        made.sync().map_err(TranscriptError::io("sync", &temporary))?;
        comparing::check_lines(&step.from, &temporary, watch)?;
        let seen = Seen {
            written: Written::of(&before),
            tail: tail(&source, before.len()).map_err(TranscriptError::io("read", &step.from))?,
        };
        seen.check(&step.from)?;
        Ok(seen)
    }

    /// The file that was written, unless the same is there already: then it goes.
    fn is_new(&self, number: usize, step: &Step) -> Result<Option<Written>, TranscriptError> {
        let temporary = self.journal.temporary(number);
        let metadata = fs::metadata(&temporary).map_err(TranscriptError::io("read", &temporary))?;
        let written = Some(Written::of(&metadata));
        let there = match fs::symlink_metadata(&step.to) {
            Ok(there) => there,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(written),
            Err(error) => return Err(TranscriptError::io("look at", &step.to)(error)),
        };
        let source = fs::symlink_metadata(&step.from).map_err(TranscriptError::io("read", &step.from))?;
        if is_same_file(&source, &there) {
            return Ok(written);
        }
        if !there.is_file() || !comparing::is_same(&temporary, &step.to)? {
            let path = step.to.clone();
            return Err(TranscriptError::AlreadyExists { path });
        }
        fs::remove_file(&temporary).map_err(TranscriptError::io("remove", &temporary))?;
        Ok(None)
    }

    /// Something has changed on disk.
    #[cfg_attr(
        not(test),
        expect(
            clippy::unused_self,
            clippy::unnecessary_wraps,
            reason = "tests break off here"
        )
    )]
    fn changed(&self) -> Result<(), TranscriptError> {
        #[cfg(test)]
        if let Some(left) = &self.breaks_off_after {
            let fewer = |left: usize| left.checked_sub(1);
            if left
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

impl Drop for Moving {
    fn drop(&mut self) {
        if !self.is_over {
            self.journal.take_back();
        }
    }
}

impl Seen {
    /// Checks that the source is as it was.
    fn check(&self, path: &Path) -> Result<(), TranscriptError> {
        let metadata = fs::symlink_metadata(path).map_err(TranscriptError::io("read", path))?;
        if Written::of(&metadata) != self.written {
            let path = path.to_owned();
            return Err(TranscriptError::Changed { path });
        }
        self.check_bytes(path, path)
    }

    /// Checks that a file holds what the source held, as far as its length and its end tell.
    fn check_bytes(&self, path: &Path, source: &Path) -> Result<(), TranscriptError> {
        let file = File::open(path).map_err(TranscriptError::io("open", path))?;
        let looked = file
            .metadata()
            .and_then(|metadata| Ok((metadata.len(), tail(&file, self.written.bytes)?)));
        let (length, tail) = looked.map_err(TranscriptError::io("read", path))?;
        if length == self.written.bytes && tail == self.tail {
            return Ok(());
        }
        let path = source.to_owned();
        Err(TranscriptError::Changed { path })
    }
}

/// The last bytes of a file that has so many.
fn tail(mut file: &File, bytes: u64) -> io::Result<Vec<u8>> {
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(bytes.saturating_sub(TAIL_BYTES)))?;
    file.take(TAIL_BYTES).read_to_end(&mut tail)?;
    Ok(tail)
}

/// Writes what the file is in its new place. Gives how many lines were too long to be changed.
fn fill(
    step: &Step,
    source: &File,
    bytes: u64,
    writer: &mut dyn Write,
    watch: Watch<'_>,
) -> Result<u64, TranscriptError> {
    let reader = BufReader::with_capacity(BUFFER_BYTES, source.take(bytes));
    let relocation = step.relocation();
    let written = relocate(reader, writer, |line| relocation.line(line), watch);
    let passed = written.map_err(TranscriptError::io("copy", &step.from))?;
    Ok(match relocation.is_nothing() {
        true => 0,
        false => passed,
    })
}

/// Removes a folder that is empty now, and those above it that are empty by that.
fn remove_emptied(folder: &Path, synced: &mut BTreeSet<PathBuf>) {
    for folder in folder.ancestors() {
        // What is not empty stays, and so does all above it.
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
