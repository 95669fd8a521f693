//! The folder of one session's copies: links, compressed files, and the list that names the valid ones. [`copying`] makes the
//! copies.

mod copying;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::MutexGuard;

use super::list::{ArchivedCopy, BUFFER_BYTES, CopyList, FileStamp, is_transcript, open};
use super::restoring::{CopyOrigin, RelocationLookup};
use super::{ArchivedFile, MissingTurns, SessionKey};
use crate::files::durable;
use crate::files::identity::Hashed;
use crate::files::set_aside::{Unreadable, set_aside};
use crate::files::{entries, is_absence, none_if_absent};
use crate::transcript::TranscriptError;
use crate::transcript::blank::is_blank;
use crate::transcript::dialect::Dialect;
use crate::transcript::fields::Fields;
use crate::transcript::lines::{Lines, line_text};
use crate::transcript::parts::{complete_line_bytes, is_lines};
use crate::transcript::relocate::Relocation;
use crate::transcript::transcript_list::Format;

/// The name of the list's file.
pub(super) const LIST_FILE: &str = "kept.json";

/// The temporary name of a list that is being written.
const NEW_LIST_FILE: &str = "kept.json.new";

/// How much of a copy is searched for the folder that its records name, in bytes.
const BEGINNING_BYTES: u64 = 1024 * 1024;

/// The folder of one session's copies.
pub(super) struct SessionFolder<'a> {
    pub(super) path: PathBuf,
    pub(super) list: CopyList,
    has_changed: bool,
    /// Caches the results of [`SessionFolder::best`], which may have to read all copies.
    best: RefCell<BTreeMap<String, Option<(usize, u64)>>>,
    /// Files that are no longer listed. Deleted after the new list is on disk.
    dropped: Vec<String>,
    /// The lock of the session. `None` for callers that read all sessions.
    locked: Option<MutexGuard<'a, ()>>,
}

impl<'a> SessionFolder<'a> {
    /// Opens the folder of a session, if it exists. The caller has checked that it belongs to the archive.
    ///
    /// # Errors
    /// [`TranscriptError::Unreadable`] if there are copies but their list is missing or unreadable.
    pub(super) fn open(
        path: &Path,
        locked: Option<MutexGuard<'a, ()>>,
    ) -> Result<Option<Self>, TranscriptError> {
        let list = path.join(LIST_FILE);
        let damaged = |why: &str| Err(Unreadable::Damaged(why.to_owned()));
        let read = match fs::read(&list) {
            Ok(text) => CopyList::parse(&text),
            Err(error) if is_absence(&error) => {
                let entries = entries(path).map_err(TranscriptError::io("read the folder", path))?;
                match entries.iter().any(|entry| is_copy(entry)) {
                    true => damaged("it is missing"),
                    false => return Ok(None),
                }
            }
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => damaged("it is a folder"),
            Err(error) => return Err(TranscriptError::io("read", &list)(error)),
        };
        let read = read.map_err(|why| TranscriptError::Unreadable { path: list, why })?;
        Ok(Some(Self::from_list(path, read, locked)))
    }

    fn from_list(path: &Path, list: CopyList, locked: Option<MutexGuard<'a, ()>>) -> Self {
        Self {
            path: path.to_owned(),
            list,
            has_changed: false,
            best: RefCell::default(),
            dropped: Vec::new(),
            locked,
        }
    }

    /// As [`SessionFolder::open`], to change the list. A list without a checksum is compared with its copies first, because
    /// writing it gives it a checksum.
    pub(super) fn open_to_change(
        path: &Path,
        locked: Option<MutexGuard<'a, ()>>,
    ) -> Result<Option<Self>, TranscriptError> {
        let mut folder = Self::open(path, locked)?;
        folder.as_mut().map_or(Ok(()), Self::check_copies)?;
        Ok(folder)
    }

    /// As [`SessionFolder::open_to_change`], but creates a missing folder, and deletes the files that a kill left in it. If the
    /// list is damaged, the folder is set aside and a new one is created.
    pub(super) fn open_or_create(
        path: &Path,
        key: &SessionKey,
        locked: MutexGuard<'a, ()>,
    ) -> Result<Self, TranscriptError> {
        let opened = match Self::open_to_change(path, None) {
            Err(TranscriptError::Unreadable {
                why: why @ Unreadable::Damaged(_),
                ..
            }) => {
                set_aside(path, &why).map_err(TranscriptError::io("set aside", path))?;
                None
            }
            opened => opened?,
        };
        let mut folder = match opened {
            Some(folder) => folder,
            None => {
                let made = durable::make_folders(path);
                made.map_err(TranscriptError::io("make the folder", path))?;
                let folder = Self::from_list(path, CopyList::new(key), None);
                // Write the list before any copy. Copies without a list then show that the list was lost.
                folder.write_list()?;
                folder
            }
        };
        folder.locked = Some(locked);
        // Delete the copies that a kill left, which are not listed.
        let swept = || folder.unlisted()?.iter().try_for_each(fs::remove_file);
        swept().map_err(TranscriptError::io("clean up the folder", path))?;
        Ok(folder)
    }

    /// Compares the copies with a list that has no checksum, because a flipped bit in it could cause copies to be deleted. A
    /// copy that differs is removed from the list, and its file is set aside. This reads all copies, but only once: afterwards
    /// the list has a checksum.
    fn check_copies(&mut self) -> Result<(), TranscriptError> {
        if self.list.is_checked() {
            return Ok(());
        }
        if self.path.file_name() != Some(self.list.upstream_id.as_ref()) {
            return Err(TranscriptError::Unreadable {
                path: self.path.join(LIST_FILE),
                why: Unreadable::Damaged("it is the list of another session".to_owned()),
            });
        }
        let mut mismatched = Vec::new();
        for (_, copy) in self.copies() {
            if !self.matches_list(copy)? {
                mismatched.push(copy.clone());
            }
        }
        self.list.files.retain(|_, copies| {
            copies.retain(|copy| !mismatched.contains(copy));
            !copies.is_empty()
        });
        if let Some(other) = mismatched.first() {
            let why = Unreadable::Damaged(format!("the copy {} is not as its list says", other.file));
            // Set aside every unlisted copy, because the flipped bit may be in a file name in the list.
            let unlisted = self.unlisted();
            let unlisted = unlisted.map_err(TranscriptError::io("read the folder", &self.path))?;
            for path in unlisted.iter().filter(|path| is_copy(path)) {
                set_aside(path, &why).map_err(TranscriptError::io("set aside", path))?;
            }
        }
        self.has_changed = true;
        Ok(())
    }

    /// Whether a copy matches its entry in the list.
    ///
    /// # Errors
    /// The system's error if the copy cannot be read now.
    fn matches_list(&self, copy: &ArchivedCopy) -> Result<bool, TranscriptError> {
        let path = self.path.join(&copy.file);
        if !is_copy(Path::new(&copy.file)) {
            return Ok(false);
        }
        let looked = path.symlink_metadata().and_then(|_| {
            // zstd may accept a file that is cut off.
            if copy.is_link() || !self.is_complete(copy)? {
                return Ok(copy.is_link());
            }
            let mut text = Hashed::new(open(&path, copy)?.take(copy.bytes));
            io::copy(&mut text, &mut io::sink())?;
            Ok(text.digest_and_bytes() == (copy.sha256.clone(), copy.bytes))
        });
        match looked {
            Ok(is_as_listed) => Ok(is_as_listed),
            Err(error) if is_damage(&error) => Ok(false),
            Err(error) => Err(TranscriptError::io("read", &path)(error)),
        }
    }

    /// Returns the daemon's files in the folder that the list does not name.
    fn unlisted(&self) -> io::Result<Vec<PathBuf>> {
        let mut listed: BTreeSet<&str> = self.copies().map(|(_, copy)| copy.file.as_str()).collect();
        listed.insert(LIST_FILE);
        let is_listed = |path: &Path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| listed.contains(name))
        };
        let mut found = entries(&self.path)?;
        found.retain(|path| is_own_file(path) && !is_listed(path));
        Ok(found)
    }

    /// Writes the list if it has changed, then deletes the files that it no longer names. Deletes the folder if the list is
    /// empty.
    pub(super) fn save(&mut self) -> Result<(), TranscriptError> {
        if self.list.files.is_empty() {
            let discarded = || match entries(&self.path)?.iter().any(|path| is_copy(path)) {
                // The next backup deletes these copies before it makes new ones.
                true => Ok(()),
                false => remove_own_files(&self.path).map(drop),
            };
            return discarded().map_err(TranscriptError::io("remove", &self.path));
        }
        if !std::mem::take(&mut self.has_changed) {
            return Ok(());
        }
        self.write_list()?;
        for file in self.dropped.drain(..) {
            let path = self.path.join(file);
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!(path = %path.display(), %error, "could not delete an obsolete copy");
            }
        }
        Ok(())
    }

    fn write_list(&self) -> Result<(), TranscriptError> {
        let list = self.path.join(LIST_FILE);
        // Also syncs the names of the copies that the list names.
        let write = |text: Vec<u8>| durable::write_as(&self.path.join(NEW_LIST_FILE), &list, &text);
        let written = self.list.encode().and_then(write);
        written.map_err(TranscriptError::io("write", &list))
    }

    /// Returns each copy with the name of the file that it is a copy of.
    fn copies(&self) -> impl Iterator<Item = (&str, &ArchivedCopy)> {
        let files = self.list.files.iter();
        files.flat_map(|(name, copies)| copies.iter().map(|copy| (name.as_str(), copy)))
    }

    /// Returns the copies that are links.
    pub(super) fn links(&self) -> impl Iterator<Item = (&str, &ArchivedCopy)> {
        self.copies().filter(|(_, copy)| copy.is_link())
    }

    /// Returns the current state of the copy's own file.
    fn stamp(&self, copy: &ArchivedCopy) -> Option<FileStamp> {
        FileStamp::read(&self.path.join(&copy.file)).ok()
    }

    /// Returns each copy with the disk space that it takes.
    pub(super) fn archived_files(&self) -> Vec<ArchivedFile> {
        let held = self.copies().map(|(_, copy)| {
            let path = self.path.join(&copy.file);
            let bytes = path.symlink_metadata().map_or(0, |metadata| {
                let is_shared = copy.is_link() && metadata.nlink() > 1;
                if is_shared { 0 } else { metadata.len() }
            });
            ArchivedFile { path, bytes }
        });
        held.collect()
    }

    /// Returns when the session was last written to, in milliseconds since the epoch. Never earlier than the source of any
    /// copy, even if a list without a checksum states an earlier time.
    pub(super) fn changed_ms(&self) -> i64 {
        let sources = self.copies().map(|(_, copy)| copy.source);
        let links = self.links().filter_map(|(_, copy)| self.stamp(copy));
        let written = sources.chain(links).map(|stamp| stamp.written_ms()).max();
        written.unwrap_or_default().max(self.list.changed_ms)
    }

    pub(super) fn key(&self) -> SessionKey {
        SessionKey {
            root: PathBuf::from(&self.list.root),
            upstream_id: self.list.upstream_id.clone(),
        }
    }

    /// Records this time as the last write to the session, if it is at least a day later than the recorded one.
    pub(super) fn record_change_time(&mut self, at_ms: i64) {
        const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
        if at_ms.saturating_sub(self.list.changed_ms) >= DAY_MS {
            self.list.changed_ms = at_ms;
            self.has_changed = true;
        }
    }

    /// Marks the copies as released: they are needed only by the sessions that continue this one.
    pub(super) fn release(&mut self) {
        self.has_changed |= !std::mem::replace(&mut self.list.released, true);
    }

    /// Returns how many acknowledged turns the copy to restore lacks. `None` if no copy of the transcript is usable.
    pub(super) fn missing_turns(&self, acknowledged: u64) -> Result<Option<MissingTurns>, TranscriptError> {
        if let Some(rejoined) = self.rejoin(self.dialect(), None)? {
            return Ok(Some(rejoined.missing_turns(acknowledged)));
        }
        let best = self.best_transcript()?;
        Ok(best.map(|(copy, _)| match copy.turns {
            // A link has everything that the agent appended.
            _ if copy.is_link() || acknowledged == 0 => MissingTurns::Known(0),
            Some(turns) => MissingTurns::Known(acknowledged.saturating_sub(turns)),
            None => MissingTurns::Unknown,
        }))
    }

    /// Returns the name of the transcript, if it has a copy.
    pub(super) fn transcript(&self) -> Option<&str> {
        let mut names = self.list.files.keys().map(String::as_str);
        names.find(|name| is_transcript(name))
    }

    /// Whether a copy of the transcript has content, or may have some because it cannot be read.
    pub(super) fn has_transcript_content(&self) -> bool {
        let mut copies = self.copies().filter(|(name, _)| is_transcript(name));
        copies.any(|(_, copy)| match copy.is_link() {
            true => !is_blank(&self.path.join(&copy.file)).unwrap_or(false),
            false => copy.bytes > 0,
        })
    }

    /// Whether a copy is a link to this file, or may be one because it cannot be read.
    pub(super) fn links_to(&self, file: &FileStamp) -> bool {
        let mut links = self.links().map(|(_, copy)| self.stamp(copy));
        links.any(|link| link.is_none_or(|link| link.is_same_file(file)))
    }

    /// Returns the dialect of its transcript.
    pub(super) fn dialect(&self) -> &'static dyn Dialect {
        let transcripts = self.copies().filter(|(name, _)| is_transcript(name));
        // Any copy will do, because an agent uses the same layout for all of them.
        let (folder, name) = transcripts
            .last()
            .map_or(("", ""), |(name, copy)| (copy.folder.as_str(), name));
        Format::of_file(folder, name, &self.list.upstream_id).dialect()
    }

    /// Returns the id of the session that its transcript continues by reference.
    pub(super) fn continued_session(&self) -> Result<Option<String>, TranscriptError> {
        let dialect = self.dialect();
        let best = match dialect.abilities().continues_by_reference {
            true => self.best_transcript()?,
            false => None,
        };
        let Some((copy, bytes)) = best else {
            return Ok(None);
        };
        let base = dialect.continued_session(&mut self.text(copy, bytes)?);
        base.map_err(TranscriptError::io("read a copy in", &self.path))
    }

    /// Returns the origin of the transcript's copy that would be restored. `None` if no copy is usable.
    pub(super) fn copy_origin(&self) -> Result<Option<CopyOrigin>, TranscriptError> {
        let Some((copy, bytes)) = self.best_transcript()? else {
            return Ok(None);
        };
        let cwd = first_cwd(self.text(copy, bytes.min(BEGINNING_BYTES))?);
        Ok(Some(CopyOrigin {
            folder: PathBuf::from(&copy.folder),
            cwd: cwd.map_err(TranscriptError::io("read", &self.path))?,
        }))
    }

    /// Returns which folders to change in the records of the transcript.
    pub(super) fn relocation(&self, relocation: RelocationLookup<'_>) -> Result<Relocation, TranscriptError> {
        self.copy_origin()?
            .map_or_else(|| Ok(Relocation::default()), |from| relocation(&from))
    }

    /// Returns the copy of the transcript to restore, as [`SessionFolder::best`].
    pub(super) fn best_transcript(&self) -> Result<Option<(&ArchivedCopy, u64)>, TranscriptError> {
        self.transcript().map_or(Ok(None), |name| self.best(name))
    }

    /// Returns the copy of a file to restore, and how many bytes of its text are valid. For a file of lines, this is the copy
    /// with the most lines: agents only append lines, so a copy with fewer has lost some. Bytes are not compared, because a
    /// move changes them. For other files, and among copies with equally many lines, it is the newest. A damaged copy is chosen
    /// only if all are damaged.
    ///
    /// # Errors
    /// The system's error: a copy that cannot be read now may be the best.
    pub(super) fn best(&self, name: &str) -> Result<Option<(&ArchivedCopy, u64)>, TranscriptError> {
        let copies = self.list.files.get(name).map_or(&[][..], Vec::as_slice);
        let known = self.best.borrow().get(name).copied();
        let best = match known {
            Some(best) => best,
            None => self.find_best(name, copies)?,
        };
        self.best.borrow_mut().insert(name.to_owned(), best);
        Ok(best.map(|(index, bytes)| (&copies[index], bytes)))
    }

    fn find_best(
        &self,
        name: &str,
        copies: &[ArchivedCopy],
    ) -> Result<Option<(usize, u64)>, TranscriptError> {
        let mut usable = self.usable(name, copies)?;
        if usable.len() < 2 || !is_lines(Path::new(name)) {
            return Ok(usable.pop());
        }
        let mut best = None;
        for (index, bytes) in usable {
            let lines = self.count_lines(&copies[index], bytes)?;
            best = best.max(Some((lines, index, bytes)));
        }
        Ok(best.map(|(_, index, bytes)| (index, bytes)))
    }

    /// Returns the usable copies of the transcript, oldest first, and how many bytes of each text are valid.
    pub(super) fn usable_transcripts(&self) -> Result<Vec<(&ArchivedCopy, u64)>, TranscriptError> {
        let name = self.transcript().unwrap_or_default();
        let copies = self.list.files.get(name).map_or(&[][..], Vec::as_slice);
        let usable = self.usable(name, copies)?.into_iter();
        Ok(usable.map(|(index, bytes)| (&copies[index], bytes)).collect())
    }

    /// Returns the indexes of the usable copies of a file, and how many bytes of each text are valid.
    fn usable(&self, name: &str, copies: &[ArchivedCopy]) -> Result<Vec<(usize, u64)>, TranscriptError> {
        let mut usable = Vec::new();
        for (index, copy) in copies.iter().enumerate() {
            usable.extend(self.usable_bytes(name, copy)?.map(|bytes| (index, bytes)));
        }
        Ok(usable)
    }

    /// Returns how many bytes of a copy's text are valid. `None` if its file is missing or truncated.
    fn usable_bytes(&self, name: &str, copy: &ArchivedCopy) -> Result<Option<u64>, TranscriptError> {
        let path = self.path.join(&copy.file);
        if !copy.is_link() {
            let is_whole = self
                .is_complete(copy)
                .map_err(TranscriptError::io("look at", &path))?;
            return Ok(is_whole.then_some(copy.bytes));
        }
        match text_bytes(&path, name) {
            Err(error) if error.is_absence() => Ok(None),
            bytes => bytes.map(Some),
        }
    }

    /// Returns whether a copy is undamaged, and how many lines it has before any damage.
    fn count_lines(&self, copy: &ArchivedCopy, bytes: u64) -> Result<(bool, u64), TranscriptError> {
        let mut lines = Lines::new(self.text(copy, bytes)?, 0);
        let mut count = 0;
        loop {
            match lines.next_line() {
                Ok(Some(_)) => count += 1,
                Ok(None) => return Ok((lines.offset() == bytes, count)),
                Err(error) if is_damage(&error) => return Ok((false, count)),
                Err(error) => return Err(TranscriptError::io("read", &self.path.join(&copy.file))(error)),
            }
        }
    }

    /// Returns a text that changes whenever reading the copies would give a different result.
    pub(super) fn state(&self) -> String {
        let links: Vec<_> = self.links().map(|(_, copy)| self.stamp(copy)).collect();
        format!("{:?} {links:?}", self.list.files)
    }

    /// Returns the text of a copy, up to this many bytes.
    pub(super) fn text(
        &self,
        copy: &ArchivedCopy,
        bytes: u64,
    ) -> Result<impl BufRead + use<>, TranscriptError> {
        let path = self.path.join(&copy.file);
        let text = open(&path, copy).map_err(TranscriptError::io("open", &path))?;
        Ok(BufReader::with_capacity(BUFFER_BYTES, text.take(bytes)))
    }

    /// Whether the file of a compressed copy is complete.
    fn is_complete(&self, copy: &ArchivedCopy) -> io::Result<bool> {
        match self.path.join(&copy.file).symlink_metadata() {
            // A symbolic link is not a copy: nothing may be appended to its target.
            Ok(found) => Ok(found.is_file() && copy.packed_bytes.is_some_and(|bytes| bytes <= found.len())),
            Err(error) if is_absence(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn new_file(&mut self, ending: &str) -> String {
        loop {
            let file = format!("{}.{ending}", self.list.next);
            self.list.next += 1;
            // The name may be taken by a folder that the daemon did not create.
            if self.path.join(&file).symlink_metadata().is_err() {
                return file;
            }
        }
    }

    /// Adds a copy to the list, or updates its entry.
    fn put(&mut self, name: &str, copy: ArchivedCopy) {
        self.list.changed_ms = self.list.changed_ms.max(copy.source.written_ms());
        self.best.get_mut().clear();
        let copies = self.list.files.entry(name.to_owned()).or_default();
        match copies.iter_mut().find(|known| known.file == copy.file) {
            Some(known) if *known == copy => return,
            Some(known) => *known = copy,
            None => copies.push(copy),
        }
        self.has_changed = true;
    }

    fn drop_links(&mut self, name: &str) {
        self.drop_copies(name, ArchivedCopy::is_link);
    }

    fn drop_copies(&mut self, name: &str, is_obsolete: impl Fn(&ArchivedCopy) -> bool) {
        let Some(copies) = self.list.files.get_mut(name) else {
            return;
        };
        let obsolete = copies.extract_if(.., |copy| is_obsolete(copy));
        let dropped: Vec<String> = obsolete.map(|copy| copy.file).collect();
        if copies.is_empty() {
            self.list.files.remove(name);
        }
        self.best.get_mut().clear();
        self.has_changed |= !dropped.is_empty();
        self.dropped.extend(dropped);
    }
}

/// Deletes the daemon's files in the folder of a session, and the folder if it is then empty. Returns whether it was
/// deleted.
///
/// # Errors
/// The system's error.
pub(super) fn remove_own_files(folder: &Path) -> io::Result<bool> {
    // In sorted order the list is last, so no copy is ever left without it.
    for path in entries(folder)?.iter().filter(|path| is_own_file(path)) {
        none_if_absent(fs::remove_file(path))?;
    }
    match none_if_absent(fs::remove_dir(folder)) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether a path in a session's folder has a name that the daemon uses, and is not a folder. A file that a running backup has
/// renamed meanwhile counts too.
pub(super) fn is_own_file(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let is_named = is_copy(path) || matches!(name, Some(LIST_FILE | NEW_LIST_FILE));
    is_named && !path.symlink_metadata().is_ok_and(|found| found.is_dir())
}

/// Whether a path has the name of a copy: a number and a suffix for its type.
fn is_copy(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let parts = name.and_then(|name| name.split_once('.'));
    parts.is_some_and(|(number, ending)| {
        let is_number = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
        is_number && matches!(ending, "link" | "zst")
    })
}

/// Whether a copy could not be read because it is damaged or missing. Other errors come from the system, have an error number,
/// and may not occur at the next try.
fn is_damage(error: &io::Error) -> bool {
    is_absence(error) || error.raw_os_error().is_none()
}

/// Returns the first folder that the records of a text name.
fn first_cwd(text: impl BufRead) -> io::Result<Option<String>> {
    let mut lines = Lines::new(text, 0);
    while let Some(line) = lines.next_line()? {
        let text = line_text(line.bytes);
        if let Some(cwd) = Fields::parse(&text).and_then(|fields| fields.text("cwd")) {
            return Ok(Some(cwd));
        }
    }
    Ok(None)
}

/// Returns how many bytes of a file are valid. In a file of lines, these are the complete lines.
fn text_bytes(path: &Path, name: &str) -> Result<u64, TranscriptError> {
    if is_lines(Path::new(name)) {
        return complete_line_bytes(path);
    }
    let metadata = path.symlink_metadata();
    metadata
        .map(|metadata| metadata.len())
        .map_err(TranscriptError::io("look at", path))
}
