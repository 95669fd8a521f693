//! The folder of one session's copies: links and compressed files, and the list that says which of them count.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::MutexGuard;

use rustix::io::Errno;

use super::list::{BUFFER_BYTES, Copy, List, Stamp, open};
use super::{HeldFile, Key};
use crate::files::durable::{self, NewFile};
use crate::files::identity::{Hashed, sha256};
use crate::files::set_aside::{Unreadable, set_aside};
use crate::files::{entries, is_absence};
use crate::transcript::TranscriptError;
use crate::transcript::dialect::Dialect;
use crate::transcript::lines::Lines;
use crate::transcript::parts::{Part, is_lines, whole_lines};
use crate::transcript::shelf::Format;

/// The list's own file.
pub(super) const LIST: &str = "kept.json";

/// The list while it is written.
const NEW_LIST: &str = "kept.json.new";

/// How much effort goes into compressing: zstd's own default, some 300 MB/s.
const LEVEL: i32 = 3;

/// The folder of one session's copies.
pub(super) struct Folder<'a> {
    pub(super) path: PathBuf,
    pub(super) list: List,
    has_changed: bool,
    /// Files that are no longer listed, to be deleted once the list on disk says so.
    dropped: Vec<String>,
    /// Keeps others from the session. `None` for readers of all sessions.
    _locked: Option<MutexGuard<'a, ()>>,
}

impl<'a> Folder<'a> {
    /// The folder of a session, if there is one. The archive has checked that it is its own.
    ///
    /// # Errors
    /// [`TranscriptError::Unreadable`] if there are copies but no readable list of them.
    pub(super) fn open(
        path: &Path,
        locked: Option<MutexGuard<'a, ()>>,
    ) -> Result<Option<Self>, TranscriptError> {
        let list = path.join(LIST);
        let damaged = |why: &str| Err(Unreadable::Damaged(why.to_owned()));
        let read = match fs::read(&list) {
            Ok(text) => List::read(&text),
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
        Ok(Some(Self::with(path, read, locked)))
    }

    fn with(path: &Path, list: List, locked: Option<MutexGuard<'a, ()>>) -> Self {
        Self {
            path: path.to_owned(),
            list,
            has_changed: false,
            dropped: Vec::new(),
            _locked: locked,
        }
    }

    /// As [`Folder::open`], for a list that is about to be changed. Writing it gives it a checksum, so a list without one is
    /// checked first.
    pub(super) fn open_to_change(
        path: &Path,
        locked: Option<MutexGuard<'a, ()>>,
    ) -> Result<Option<Self>, TranscriptError> {
        let mut folder = Self::open(path, locked)?;
        folder.as_mut().map_or(Ok(()), Self::check_copies)?;
        Ok(folder)
    }

    /// As [`Folder::open_to_change`], but the folder is created if it is missing, and what a kill left in it is deleted. A folder
    /// whose list is damaged is set aside, and the session is kept anew. The session is locked already.
    pub(super) fn make(path: &Path, key: &Key) -> Result<Self, TranscriptError> {
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
        let folder = match opened {
            Some(folder) => folder,
            None => {
                let made = durable::make_folders(path);
                made.map_err(TranscriptError::io("make the folder", path))?;
                let folder = Self::with(path, List::new(key), None);
                // Before any copy, so that copies without a list show that it was lost.
                folder.write_list()?;
                folder
            }
        };
        // Copies that are not listed are what a kill left.
        let swept = || folder.unlisted()?.iter().try_for_each(fs::remove_file);
        swept().map_err(TranscriptError::io("clean up the folder", path))?;
        Ok(folder)
    }

    /// Checks that the copies are as a list without a checksum says: a flipped bit in it could have them deleted. The list drops a
    /// copy that is not, and its file is set aside. Blocks for as long as it takes to read them, once, because the list gets a
    /// checksum then.
    fn check_copies(&mut self) -> Result<(), TranscriptError> {
        if self.list.is_checked() {
            return Ok(());
        }
        if self.path.file_name() != Some(self.list.upstream_id.as_ref()) {
            return Err(TranscriptError::Unreadable {
                path: self.path.join(LIST),
                why: Unreadable::Damaged("it is the list of another session".to_owned()),
            });
        }
        let mut others = Vec::new();
        for (_, copy) in self.copies() {
            if !self.is_as_listed(copy)? {
                others.push(copy.clone());
            }
        }
        self.list.files.retain(|_, copies| {
            copies.retain(|copy| !others.contains(copy));
            !copies.is_empty()
        });
        if let Some(other) = others.first() {
            let why = Unreadable::Damaged(format!("the copy {} is not as its list says", other.file));
            // Whatever is not listed: a flipped bit may be in the name.
            let unlisted = self.unlisted();
            let unlisted = unlisted.map_err(TranscriptError::io("read the folder", &self.path))?;
            for path in unlisted.iter().filter(|path| is_copy(path)) {
                set_aside(path, &why).map_err(TranscriptError::io("set aside", path))?;
            }
        }
        self.has_changed = true;
        Ok(())
    }

    /// Whether a copy is as the list says.
    ///
    /// # Errors
    /// The system's error if the copy cannot be read now.
    fn is_as_listed(&self, copy: &Copy) -> Result<bool, TranscriptError> {
        let path = self.path.join(&copy.file);
        if !is_copy(Path::new(&copy.file)) {
            return Ok(false);
        }
        let looked = path.symlink_metadata().and_then(|_| {
            // zstd may accept a file that is cut off.
            if copy.is_link() || !self.is_whole(copy) {
                return Ok(copy.is_link());
            }
            let mut text = Hashed::new(open(&path, copy)?.take(copy.bytes));
            io::copy(&mut text, &mut io::sink())?;
            Ok(text.passed() == (copy.sha256.clone(), copy.bytes))
        });
        match looked {
            Ok(is_as_listed) => Ok(is_as_listed),
            // Only the system's errors have a number: the others say what is wrong with the content.
            Err(error) if is_absence(&error) || error.raw_os_error().is_none() => Ok(false),
            Err(error) => Err(TranscriptError::io("read", &path)(error)),
        }
    }

    /// The files in the folder that the daemon wrote and that do not count.
    fn unlisted(&self) -> io::Result<Vec<PathBuf>> {
        let mut listed: BTreeSet<&str> = self.copies().map(|(_, copy)| copy.file.as_str()).collect();
        listed.insert(LIST);
        let is_listed = |path: &Path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| listed.contains(name))
        };
        let mut found = entries(&self.path)?;
        found.retain(|path| is_ours(path) && !is_listed(path));
        Ok(found)
    }

    /// Writes the list if it has changed, and then deletes the files that it no longer names. A folder without copies is deleted.
    pub(super) fn save(&mut self) -> Result<(), TranscriptError> {
        if self.list.files.is_empty() {
            let discarded = || match entries(&self.path)?.iter().any(|path| is_copy(path)) {
                // They are deleted before anything is kept here again.
                true => Ok(()),
                false => remove_ours(&self.path).map(drop),
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
        let written = || -> io::Result<()> {
            let new = self.path.join(NEW_LIST);
            let mut file = NewFile::anew(&new)?;
            file.write_all(&self.list.text()?)?;
            file.sync()?;
            durable::rename(&new, &self.path.join(LIST))?;
            // With the copies that it names.
            durable::sync_folder(&self.path)
        };
        written().map_err(TranscriptError::io("write", &self.path.join(LIST)))
    }

    /// Each copy, with the name of its file.
    fn copies(&self) -> impl Iterator<Item = (&str, &Copy)> {
        let files = self.list.files.iter();
        files.flat_map(|(name, copies)| copies.iter().map(|copy| (name.as_str(), copy)))
    }

    /// The copies that are links.
    pub(super) fn links(&self) -> impl Iterator<Item = (&str, &Copy)> {
        self.copies().filter(|(_, copy)| copy.is_link())
    }

    /// The state of a copy's own file.
    fn stamp(&self, copy: &Copy) -> Option<Stamp> {
        Stamp::of(&self.path.join(&copy.file)).ok()
    }

    /// Each copy, with the disk space it takes.
    pub(super) fn held(&self) -> Vec<HeldFile> {
        let held = self.copies().map(|(_, copy)| {
            let path = self.path.join(&copy.file);
            let bytes = path.symlink_metadata().map_or(0, |metadata| {
                let is_shared = copy.is_link() && metadata.nlink() > 1;
                if is_shared { 0 } else { metadata.len() }
            });
            HeldFile { path, bytes }
        });
        held.collect()
    }

    /// When the session was last written to, in milliseconds since the epoch. No copy is of a later time, whatever a list without
    /// a checksum says.
    pub(super) fn changed_ms(&self) -> i64 {
        let sources = self.copies().map(|(_, copy)| copy.source);
        let links = self.links().filter_map(|(_, copy)| self.stamp(copy));
        let written = sources.chain(links).map(|stamp| stamp.written_ms()).max();
        written.unwrap_or_default().max(self.list.changed_ms)
    }

    pub(super) fn key(&self) -> Key {
        Key {
            root: PathBuf::from(&self.list.root),
            upstream_id: self.list.upstream_id.clone(),
        }
    }

    /// Records that the session counts as written to at this time, if that is later by a day.
    pub(super) fn note_changed(&mut self, at_ms: i64) {
        const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
        if at_ms.saturating_sub(self.list.changed_ms) >= DAY_MS {
            self.list.changed_ms = at_ms;
            self.has_changed = true;
        }
    }

    /// Whether the transcript is in another folder now than when it was kept last. Then it may begin differently, because a move
    /// changes the folders that its records name.
    pub(super) fn was_moved(&self, now: Option<&str>) -> bool {
        !self.list.folder.is_empty() && now.is_some_and(|now| now != self.list.folder)
    }

    /// Records that the transcript is kept as it is now, in this folder below the root; and if it is copied, how many turns were
    /// acknowledged on it.
    pub(super) fn note_kept(&mut self, folder: Option<&str>, copied: Option<Option<u64>>) {
        let folder = folder.unwrap_or(&self.list.folder).to_owned();
        let turns = copied.unwrap_or(self.list.turns);
        self.has_changed |= folder != self.list.folder || turns != self.list.turns;
        (self.list.folder, self.list.turns) = (folder, turns);
    }

    /// Records that the copies stay only for the sessions that continue this one.
    pub(super) fn release(&mut self) {
        self.has_changed |= !std::mem::replace(&mut self.list.released, true);
    }

    /// How many acknowledged turns are later than the copy to restore, if that is known. A link has what the agent appended, so
    /// none are.
    pub(super) fn turns_behind(&self, acknowledged: u64) -> Result<Option<u64>, TranscriptError> {
        let best = self.best_transcript()?;
        Ok(best.and_then(|(copy, _)| match copy.is_link() {
            true => Some(0),
            false => self.list.turns.map(|turns| acknowledged.saturating_sub(turns)),
        }))
    }

    /// The name of the transcript, if it is kept.
    pub(super) fn transcript(&self) -> Option<&str> {
        let mut names = self.list.files.keys().map(String::as_str);
        names.find(|name| !name.contains('/'))
    }

    /// What reads its transcript.
    pub(super) fn dialect(&self) -> &'static dyn Dialect {
        let name = self.transcript().unwrap_or_default();
        Format::of_file(&self.list.folder, name, &self.list.upstream_id).dialect()
    }

    /// The session that its transcript continues by reference.
    pub(super) fn base(&self) -> Result<Option<String>, TranscriptError> {
        let Some((copy, bytes)) = self.best_transcript()? else {
            return Ok(None);
        };
        let base = self.dialect().base(&mut self.text(copy, bytes)?);
        base.map_err(TranscriptError::io("read a copy in", &self.path))
    }

    /// The copy of the transcript to restore, as [`Folder::best`].
    pub(super) fn best_transcript(&self) -> Result<Option<(&Copy, u64)>, TranscriptError> {
        self.transcript().map_or(Ok(None), |name| self.best(name))
    }

    /// The copy of a file to restore, and how many bytes of its text count. For files of lines that is the copy with most lines:
    /// agents only append lines, so one with fewer has lost something, and a move changes their length. Otherwise, and of several
    /// with as many lines, it is the newest.
    pub(super) fn best(&self, name: &str) -> Result<Option<(&Copy, u64)>, TranscriptError> {
        let mut usable = Vec::new();
        for copy in self.list.files.get(name).into_iter().flatten() {
            match copy.is_link() {
                true => usable.push((copy, text_bytes(&self.path.join(&copy.file), name)?)),
                false if self.is_whole(copy) => usable.push((copy, copy.bytes)),
                false => {}
            }
        }
        if usable.len() < 2 || !is_lines(Path::new(name)) {
            return Ok(usable.pop());
        }
        // A copy that cannot be read has no lines, and one that is damaged those before the damage.
        let lines = |(copy, bytes): &(&Copy, u64)| {
            let mut lines = Lines::new(self.text(copy, *bytes).ok()?, 0);
            let mut count = 0_u64;
            while let Ok(Some(_)) = lines.next_line() {
                count += 1;
            }
            Some(count)
        };
        Ok(usable.into_iter().max_by_key(lines))
    }

    /// A text that changes whenever something else would be read from the copies.
    pub(super) fn state(&self) -> String {
        let links: Vec<_> = self.links().map(|(_, copy)| self.stamp(copy)).collect();
        format!("{:?} {links:?}", self.list.files)
    }

    /// The text of a copy, up to this many bytes.
    pub(super) fn text(&self, copy: &Copy, bytes: u64) -> Result<impl BufRead + use<>, TranscriptError> {
        let path = self.path.join(&copy.file);
        let text = open(&path, copy).map_err(TranscriptError::io("open", &path))?;
        Ok(BufReader::with_capacity(BUFFER_BYTES, text.take(bytes)))
    }

    /// Links a file of the agent's. Returns whether the file is known to be shorter than before.
    pub(super) fn link(&mut self, part: &Part) -> Result<bool, TranscriptError> {
        let failed = |error| TranscriptError::io("look at", &part.path)(error);
        let stamp = Stamp::of(&part.path).map_err(failed)?;
        let newest = self.list.files.get(&part.name).and_then(|copies| copies.last());
        let newest = newest.cloned();
        match &newest {
            Some(link) if link.is_link() => {
                if self.stamp(link).is_some_and(|own| own.is_same_file(&stamp)) {
                    return Ok(stamp.bytes < link.bytes);
                }
                // The agent has replaced the file.
                self.pack_link(&part.name, link)?;
            }
            Some(copy) if copy.source == stamp => return Ok(false),
            // The agent no longer writes to a file that it compressed.
            Some(_) if part.packed => return Ok(false),
            Some(_) | None => {}
        }
        if part.packed {
            return self.pack(part);
        }
        match self.add_link(part)? {
            true => Ok(false),
            // It is copied when the session is closed, or within a day.
            false if newest.is_some() => Ok(false),
            false => self.pack(part),
        }
    }

    /// Adds a link to a file of the agent's. Returns false if its file system has no links.
    pub(super) fn add_link(&mut self, part: &Part) -> Result<bool, TranscriptError> {
        let failed = |error| TranscriptError::io("link", &part.path)(error);
        let stamp = Stamp::of(&part.path).map_err(failed)?;
        let file = self.new_file("link");
        match durable::link(&part.path, &self.path.join(&file)) {
            Ok(()) => {
                let link = Copy {
                    file,
                    bytes: stamp.bytes,
                    source: stamp,
                    ..Copy::default()
                };
                self.put(&part.name, link);
                Ok(true)
            }
            Err(error) if can_never_link(&error) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    /// Copies what only a link holds, because the file is not among these parts or was replaced, and deletes those links.
    pub(super) fn pack_links(&mut self, parts: &[Part]) -> Result<(), TranscriptError> {
        let is_shared = |name: &str, link: &Copy| {
            let there = parts.iter().filter(|part| part.name == name);
            let mut there = there.filter_map(|part| Stamp::of(&part.path).ok());
            let own = self.stamp(link);
            there.any(|there| own.is_some_and(|own| own.is_same_file(&there)))
        };
        let links = self.links().filter(|(name, link)| !is_shared(name, link));
        let links: Vec<(String, Copy)> = links
            .map(|(name, link)| (name.to_owned(), link.clone()))
            .collect();
        let packed = links.iter().map(|(name, link)| self.pack_link(name, link));
        // The others are packed even if one fails.
        packed.fold(Ok(()), Result::and)
    }

    /// Copies what a link holds, and deletes the link.
    fn pack_link(&mut self, name: &str, link: &Copy) -> Result<(), TranscriptError> {
        let path = self.path.join(&link.file);
        if path.symlink_metadata().is_ok() {
            self.pack(&Part {
                bytes: text_bytes(&path, name)?,
                path,
                name: name.to_owned(),
                packed: false,
                known_as: None,
            })?;
            // It has everything that the agent wrote, which may be more than was acknowledged.
            self.list.turns = None;
        }
        self.drop_links(name);
        Ok(())
    }

    /// Copies the part of a file that no copy has yet. Returns true if the file does not continue its last copy.
    pub(super) fn pack(&mut self, part: &Part) -> Result<bool, TranscriptError> {
        let failed = |error| TranscriptError::io("copy", &part.path)(error);
        let stamp = Stamp::of(&part.path).map_err(failed)?;
        let mut copies = self.list.files.get(&part.name).into_iter().flatten();
        let newest = copies.rfind(|copy| !copy.is_link()).cloned();
        let is_rewritten = newest.is_some();
        let newest = newest.filter(|copy| self.is_whole(copy) && copy.bytes <= part.bytes);
        let grown = newest.map_or(Ok(None), |copy| self.extended(copy, part, stamp));
        let grown = grown.map_err(failed)?;
        if let Some(copy) = grown {
            self.put(&part.name, copy);
            self.drop_links(&part.name);
            return Ok(false);
        }
        let new = Copy {
            file: self.new_file("zst"),
            sha256: sha256(b""),
            ..Copy::default()
        };
        let path = self.path.join(&new.file);
        let written = self.extended(new, part, stamp).inspect_err(|_| {
            // Otherwise it is deleted before anything is kept here again.
            let _left = fs::remove_file(&path);
        });
        if let Some(copy) = written.map_err(failed)? {
            self.put(&part.name, copy);
        }
        self.drop_links(&part.name);
        Ok(is_rewritten)
    }

    /// A copy with everything that the file has: what it holds, and the rest as a frame of its own, which is synced. A copy without
    /// a frame is begun. `None` if the file does not begin with what the copy holds.
    fn extended(&self, copy: Copy, part: &Part, source: Stamp) -> io::Result<Option<Copy>> {
        if copy.source == source && copy.bytes == part.bytes {
            return Ok(Some(copy));
        }
        let mut text = Hashed::new(part.open()?);
        io::copy(&mut text.by_ref().take(copy.bytes), &mut io::sink())?;
        if text.digest() != copy.sha256 {
            return Ok(None);
        }
        let bytes = part.bytes - copy.bytes;
        let mut grown = Copy {
            source,
            bytes: part.bytes,
            ..copy
        };
        if bytes > 0 || grown.packed_bytes.is_none() {
            let path = self.path.join(&grown.file);
            let mut packed = OpenOptions::new()
                .write(true)
                .create_new(grown.packed_bytes.is_none())
                .mode(0o600)
                .open(&path)?;
            // Whatever follows was appended before a kill and does not count.
            packed.set_len(grown.packed_bytes.unwrap_or_default())?;
            packed.seek(SeekFrom::End(0))?;
            let mut encoder = zstd::Encoder::new(BufWriter::with_capacity(BUFFER_BYTES, packed), LEVEL)?;
            encoder.include_checksum(true)?;
            if io::copy(&mut text.by_ref().take(bytes), &mut encoder)? < bytes {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let packed = encoder.finish()?.into_inner();
            let packed = packed.map_err(io::IntoInnerError::into_error)?;
            durable::sync_file(&packed, &path)?;
            grown.packed_bytes = Some(packed.metadata()?.len());
            grown.sha256 = text.digest();
        }
        Ok(Some(grown))
    }

    /// Whether the file of a compressed copy is there in full.
    fn is_whole(&self, copy: &Copy) -> bool {
        let found = self.path.join(&copy.file).symlink_metadata();
        // What a link leads to is not a copy, and is not appended to.
        let found = found.ok().filter(fs::Metadata::is_file);
        copy.packed_bytes
            .zip(found)
            .is_some_and(|(bytes, found)| bytes <= found.len())
    }

    fn new_file(&mut self, ending: &str) -> String {
        loop {
            let file = format!("{}.{ending}", self.list.next);
            self.list.next += 1;
            // A folder of that name may be there that the daemon did not create.
            if self.path.join(&file).symlink_metadata().is_err() {
                return file;
            }
        }
    }

    /// Lists a copy, or its new state.
    fn put(&mut self, name: &str, copy: Copy) {
        self.list.changed_ms = self.list.changed_ms.max(copy.source.written_ms());
        let copies = self.list.files.entry(name.to_owned()).or_default();
        match copies.iter_mut().find(|known| known.file == copy.file) {
            Some(known) if *known == copy => return,
            Some(known) => *known = copy,
            None => copies.push(copy),
        }
        self.has_changed = true;
    }

    fn drop_links(&mut self, name: &str) {
        let Some(copies) = self.list.files.get_mut(name) else {
            return;
        };
        let links = copies.extract_if(.., |copy| copy.is_link());
        let dropped: Vec<String> = links.map(|copy| copy.file).collect();
        if copies.is_empty() {
            self.list.files.remove(name);
        }
        self.has_changed |= !dropped.is_empty();
        self.dropped.extend(dropped);
    }
}

/// Deletes what the daemon wrote in the folder of a session, and the folder if nothing else is in it. Whether the folder is
/// deleted.
///
/// # Errors
/// The system's error.
pub(super) fn remove_ours(folder: &Path) -> io::Result<bool> {
    let there = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    };
    // Sorted: the list is the last, so that no copy is left without one.
    for path in entries(folder)?.iter().filter(|path| is_ours(path)) {
        there(fs::remove_file(path))?;
    }
    match there(fs::remove_dir(folder)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether a path in a session's folder has a name that the daemon gives, and is no folder.
pub(super) fn is_ours(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let is_named = is_copy(path) || matches!(name, Some(LIST | NEW_LIST));
    is_named && path.symlink_metadata().is_ok_and(|found| !found.is_dir())
}

/// Whether a path has the name of a copy: a number, and what it is.
fn is_copy(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let parts = name.and_then(|name| name.split_once('.'));
    parts.is_some_and(|(number, ending)| {
        let is_number = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
        is_number && matches!(ending, "link" | "zst")
    })
}

/// How much of a file counts, by its name.
fn text_bytes(path: &Path, name: &str) -> Result<u64, TranscriptError> {
    if is_lines(Path::new(name)) {
        return whole_lines(path);
    }
    let metadata = path.symlink_metadata();
    metadata
        .map(|metadata| metadata.len())
        .map_err(TranscriptError::io("look at", path))
}

/// Whether the error means that this file can never be linked.
fn can_never_link(error: &io::Error) -> bool {
    let never = [
        Errno::XDEV,
        Errno::PERM,
        Errno::MLINK,
        Errno::NOTSUP,
        Errno::NOSYS,
    ];
    let code = error.raw_os_error();
    code.is_some_and(|code| never.iter().any(|errno| errno.raw_os_error() == code))
}
