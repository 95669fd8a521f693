//! The folder of one session's copies: links and compressed files, and the list that says which of them count.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::list::{BUFFER_BYTES, Copy, List, Stamp, hex, open, pass};
use super::{HeldFile, Key};
use crate::files::durable::{self, NewFile};
use crate::files::set_aside::{Unreadable, set_aside};
use crate::files::{entries, is_absence};
use crate::transcript::TranscriptError;
use crate::transcript::dialect::Dialect;
use crate::transcript::parts::{Part, is_lines, whole_lines};
use crate::transcript::shelf::Format;

/// The list's own file.
pub(super) const LIST: &str = "kept.json";

/// The list while it is written.
const NEW_LIST: &str = "kept.json.new";

/// How much effort goes into compressing: zstd's own default, some 300 MB/s.
const LEVEL: i32 = 3;

/// The folder of one session's copies. Its session is locked meanwhile.
pub(super) struct Folder {
    path: PathBuf,
    list: List,
    has_changed: bool,
    /// Files that are no longer listed, to be deleted once the list on disk says so.
    dropped: Vec<String>,
}

impl Folder {
    /// The folder of a session, if there is one. The archive has checked that it is its own.
    ///
    /// # Errors
    /// [`TranscriptError::Unreadable`] if there are copies but no readable list of them.
    pub(super) fn open(path: &Path) -> Result<Option<Self>, TranscriptError> {
        let place = path.join(LIST);
        let unreadable = |why| TranscriptError::Unreadable {
            path: place.clone(),
            why,
        };
        let text = match fs::read(&place) {
            Ok(text) => text,
            Err(error) if is_absence(&error) => {
                let lost = match entries(path) {
                    Ok(entries) if entries.iter().any(|entry| is_copy(entry)) => "it is missing",
                    Ok(_) => return Ok(None),
                    Err(error) => return Err(TranscriptError::io("read the folder", path)(error)),
                };
                return Err(unreadable(Unreadable::Damaged(lost.to_owned())));
            }
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                return Err(unreadable(Unreadable::Damaged("it is a folder".to_owned())));
            }
            Err(error) => return Err(TranscriptError::io("read", &place)(error)),
        };
        let list = List::read(&text).map_err(unreadable)?;
        Ok(Some(Self::with(path, list)))
    }

    /// As [`Folder::open`], for a list that is about to be changed. Writing it gives it a checksum, so a list without one is
    /// checked first.
    pub(super) fn open_to_change(path: &Path) -> Result<Option<Self>, TranscriptError> {
        let mut folder = Self::open(path)?;
        folder.as_mut().map_or(Ok(()), Self::check_copies)?;
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
        let mut listed = BTreeSet::new();
        let mut others = Vec::new();
        for copy in self.list.files.values().flatten() {
            if self.is_as_listed(copy)? {
                listed.insert(copy.file.clone());
            } else {
                others.push(copy.clone());
            }
        }
        if let Some(other) = others.first() {
            let why = Unreadable::Damaged(format!("the copy {} is not as its list says", other.file));
            // Whatever is not listed: a flipped bit may be in the name.
            for path in entries(&self.path).map_err(TranscriptError::io("read the folder", &self.path))? {
                let name = path.file_name().and_then(|name| name.to_str());
                if is_copy(&path) && is_ours(&path) && name.is_none_or(|name| !listed.contains(name)) {
                    set_aside(&path, &why).map_err(TranscriptError::io("set aside", &path))?;
                }
            }
            self.list.files.retain(|_, copies| {
                copies.retain(|copy| !others.contains(copy));
                !copies.is_empty()
            });
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
        let mut sum = Sha256::new();
        let looked = path.symlink_metadata().and_then(|found| {
            if copy.is_link() {
                return Ok(true);
            }
            // zstd may accept a file that is cut off.
            if !found.is_file() || copy.packed_bytes.is_none_or(|bytes| found.len() < bytes) {
                return Ok(false);
            }
            let mut text = open(&path, copy)?;
            pass(&mut text, copy.bytes, &mut sum, |_| Ok(()))?;
            Ok(hex(sum) == copy.sha256)
        });
        match looked {
            Ok(is_as_listed) => Ok(is_as_listed),
            // Only the system's errors have a number: the others say what is wrong with the content.
            Err(error) if is_absence(&error) || error.raw_os_error().is_none() => Ok(false),
            Err(error) => Err(TranscriptError::io("read", &path)(error)),
        }
    }

    fn with(path: &Path, list: List) -> Self {
        Self {
            path: path.to_owned(),
            list,
            has_changed: false,
            dropped: Vec::new(),
        }
    }

    /// As [`Folder::open`], but the folder is created if it is missing, and what a kill left in it is deleted. A folder whose list
    /// is damaged is set aside, and the session is kept anew.
    pub(super) fn make(path: &Path, key: &Key) -> Result<Self, TranscriptError> {
        let opened = match Self::open_to_change(path) {
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
                let folder = Self::with(path, List::new(key));
                // Before any copy, so that copies without a list show that it was lost.
                folder.write_list()?;
                folder
            }
        };
        let swept = folder.sweep();
        swept.map_err(TranscriptError::io("read the folder", path))?;
        Ok(folder)
    }

    /// Deletes copies that are not listed. Files that the daemon did not write stay.
    fn sweep(&self) -> io::Result<()> {
        let copies = self.list.files.values().flatten();
        let mut listed: BTreeSet<&str> = copies.map(|copy| copy.file.as_str()).collect();
        listed.insert(LIST);
        for path in entries(&self.path)? {
            let name = path.file_name().and_then(|name| name.to_str());
            let is_listed = name.is_some_and(|name| listed.contains(name));
            if !is_listed && is_ours(&path) {
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    }

    /// Writes the list if it has changed, and then deletes the files that it no longer names.
    pub(super) fn save(&mut self) -> Result<(), TranscriptError> {
        if self.list.files.is_empty() {
            return self.discard();
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

    /// Deletes the list of no copies, and the folder if nothing else is in it.
    fn discard(&self) -> Result<(), TranscriptError> {
        let discarded = || match entries(&self.path)?.iter().any(|path| is_copy(path)) {
            // The next sweep sees to it.
            true => Ok(()),
            false => remove_ours(&self.path).map(drop),
        };
        discarded().map_err(TranscriptError::io("remove", &self.path))
    }

    /// Whether it has no copies.
    pub(super) fn is_empty(&self) -> bool {
        self.list.files.is_empty()
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Each copy, with the disk space it takes.
    pub(super) fn held(&self) -> Vec<HeldFile> {
        let copies = self.list.files.values().flatten();
        let held = copies.map(|copy| {
            let path = self.path.join(&copy.file);
            HeldFile {
                bytes: cost(&path, copy.is_link()),
                path,
            }
        });
        held.collect()
    }

    /// When the session was last written to, in milliseconds since the epoch. No copy is of a later time, whatever a list without
    /// a checksum says.
    pub(super) fn changed_ms(&self) -> i64 {
        let copies = self.list.files.values().flatten();
        let written = copies.flat_map(|copy| {
            let now = Stamp::of(&self.path.join(&copy.file)).ok();
            now.filter(|_| copy.is_link()).into_iter().chain([copy.source])
        });
        let written = written.map(|stamp| stamp.written_ms()).max();
        written.unwrap_or_default().max(self.list.changed_ms)
    }

    /// Whether any copy is a link.
    pub(super) fn has_links(&self) -> bool {
        self.list.files.values().flatten().any(Copy::is_link)
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

    /// How many acknowledged turns are later than this copy, if that is known. A link has what the agent appended, so none are.
    pub(super) fn turns_behind(&self, copy: &Copy, acknowledged: u64) -> Option<u64> {
        match copy.is_link() {
            true => Some(0),
            false => self.list.turns.map(|turns| acknowledged.saturating_sub(turns)),
        }
    }

    /// The folder in which the transcript was, below the agent's folder.
    pub(super) fn place(&self) -> &Path {
        Path::new(&self.list.folder)
    }

    /// Whether the copies stay only for the sessions that continue this one.
    pub(super) fn is_released(&self) -> bool {
        self.list.released
    }

    pub(super) fn release(&mut self) {
        self.has_changed |= !std::mem::replace(&mut self.list.released, true);
    }

    /// The name of the transcript, if it is kept.
    pub(super) fn transcript(&self) -> Option<&str> {
        let mut names = self.list.files.keys().map(String::as_str);
        names.find(|name| !name.contains('/'))
    }

    /// What reads its transcript.
    pub(super) fn dialect(&self) -> &'static dyn Dialect {
        let name = self.transcript().unwrap_or_default();
        Format::of_name(name, &self.list.upstream_id).dialect()
    }

    /// The names of all files of which there are copies.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.list.files.keys().map(String::as_str)
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
        // A copy that cannot be read has no lines.
        let lines = |(copy, bytes): &(&Copy, u64)| {
            let text = self.text(copy).ok()?.take(*bytes);
            let lines = BufReader::with_capacity(BUFFER_BYTES, text).split(b'\n');
            Some(lines.map_while(io::Result::ok).count())
        };
        Ok(usable.into_iter().max_by_key(lines))
    }

    /// A text that changes whenever something else would be read from the copies.
    pub(super) fn state(&self) -> String {
        let copies = self
            .list
            .files
            .iter()
            .flat_map(|(name, copies)| copies.iter().map(move |copy| (name, copy)));
        let told = copies.map(|(name, copy)| {
            let stamp = Stamp::of(&self.path.join(&copy.file))
                .ok()
                .filter(|_| copy.is_link());
            format!("{name} {} {} {} {stamp:?}", copy.file, copy.bytes, copy.sha256)
        });
        told.collect::<Vec<_>>().join("\n")
    }

    /// The text of a copy.
    pub(super) fn text(&self, copy: &Copy) -> Result<Box<dyn Read>, TranscriptError> {
        let path = self.path.join(&copy.file);
        open(&path, copy).map_err(TranscriptError::io("open", &path))
    }

    /// Links a file of the agent's. Returns whether the file is known to be shorter than before.
    pub(super) fn link(&mut self, part: &Part) -> Result<bool, TranscriptError> {
        let failed = |error| TranscriptError::io("look at", &part.path)(error);
        let stamp = Stamp::of(&part.path).map_err(failed)?;
        let newest = self.list.files.get(&part.name).and_then(|copies| copies.last());
        let newest = newest.cloned();
        match &newest {
            Some(link) if link.is_link() => {
                let own = Stamp::of(&self.path.join(&link.file));
                if own.is_ok_and(|own| own.is_same_file(&stamp)) {
                    return Ok(stamp.bytes < link.bytes);
                }
                // The agent has replaced the file.
                self.pack_link(&part.name, link)?;
            }
            Some(copy) if copy.source == stamp => return Ok(false),
            Some(_) | None => {}
        }
        // The agent no longer writes to a file that it compressed.
        if part.packed {
            return match newest {
                Some(_) => Ok(false),
                None => self.pack(part),
            };
        }
        let file = self.new_file("link");
        match durable::link(&part.path, &self.path.join(&file)) {
            Ok(()) => {
                self.add(
                    &part.name,
                    Copy {
                        file,
                        bytes: stamp.bytes,
                        sha256: String::new(),
                        packed_bytes: None,
                        source: stamp,
                        ..Copy::default()
                    },
                );
                Ok(false)
            }
            Err(error) if !can_never_link(&error) => Err(failed(error)),
            // It is copied when the session is closed, or within a day.
            Err(_) if newest.is_some() => Ok(false),
            Err(_) => self.pack(part),
        }
    }

    /// Copies what only a link holds, because the file is not among these parts or was replaced, and deletes those links.
    pub(super) fn pack_links(&mut self, parts: &[Part]) -> Result<(), TranscriptError> {
        let copies = self
            .list
            .files
            .iter()
            .flat_map(|(name, copies)| copies.iter().map(move |copy| (name, copy)));
        let links = copies.filter(|(_, copy)| copy.is_link());
        let links: Vec<(String, Copy)> = links.map(|(name, copy)| (name.clone(), copy.clone())).collect();
        let mut first = Ok(());
        for (name, link) in links {
            let own = Stamp::of(&self.path.join(&link.file)).ok();
            let is_shared = parts.iter().filter(|part| part.name == name).any(|part| {
                let there = Stamp::of(&part.path).ok();
                own.zip(there)
                    .is_some_and(|(own, there)| own.is_same_file(&there))
            });
            if !is_shared {
                let packed = self.pack_link(&name, &link);
                first = first.and(packed);
            }
        }
        first
    }

    /// Copies what a link holds, and deletes the link.
    fn pack_link(&mut self, name: &str, link: &Copy) -> Result<(), TranscriptError> {
        let path = self.path.join(&link.file);
        if path.symlink_metadata().is_ok() {
            let part = Part {
                bytes: text_bytes(&path, name)?,
                path,
                name: name.to_owned(),
                packed: false,
                known_as: None,
            };
            self.pack(&part)?;
            // It has everything that the agent wrote, which may be more than was acknowledged.
            self.list.turns = None;
        }
        self.drop_links(name);
        Ok(())
    }

    /// Copies what is not copied yet of a file. Returns whether the file does not continue its earlier copy.
    pub(super) fn pack(&mut self, part: &Part) -> Result<bool, TranscriptError> {
        let failed = |error| TranscriptError::io("copy", &part.path)(error);
        let stamp = Stamp::of(&part.path).map_err(failed)?;
        let mut copies = self.list.files.get(&part.name).into_iter().flatten();
        let newest = copies.rfind(|copy| !copy.is_link()).cloned();
        if let Some(copy) = &newest {
            let is_there = self.is_whole(copy);
            if is_there && copy.source == stamp && copy.bytes == part.bytes {
                self.drop_links(&part.name);
                return Ok(false);
            }
            if is_there && copy.bytes <= part.bytes {
                let grown = self.extended(copy, part, stamp).map_err(failed)?;
                if let Some(grown) = grown {
                    self.replace(&part.name, grown);
                    return Ok(false);
                }
            }
        }
        let file = self.new_file("zst");
        let path = self.path.join(&file);
        let written = || -> io::Result<Copy> {
            let packed = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)?;
            let mut digest = Sha256::new();
            let packed_bytes = append((packed, &path), &mut part.open()?, part.bytes, &mut digest)?;
            Ok(Copy {
                file,
                bytes: part.bytes,
                sha256: hex(digest),
                packed_bytes: Some(packed_bytes),
                source: stamp,
                ..Copy::default()
            })
        };
        let copy = written().inspect_err(|_| {
            // Otherwise the next sweep does.
            let _left = fs::remove_file(&path);
        });
        self.add(&part.name, copy.map_err(failed)?);
        self.drop_links(&part.name);
        Ok(newest.is_some())
    }

    /// A copy extended by what was appended to its source; `None` if the source begins differently.
    fn extended(&self, copy: &Copy, part: &Part, stamp: Stamp) -> io::Result<Option<Copy>> {
        let mut text = part.open()?;
        let mut digest = Sha256::new();
        pass(&mut text, copy.bytes, &mut digest, |_| Ok(()))?;
        if hex(digest.clone()) != copy.sha256 {
            return Ok(None);
        }
        let mut grown = Copy {
            source: stamp,
            bytes: part.bytes,
            ..copy.clone()
        };
        if part.bytes > copy.bytes {
            let path = self.path.join(&copy.file);
            let mut packed = OpenOptions::new().write(true).open(&path)?;
            // Whatever follows was appended before a kill and does not count.
            packed.set_len(copy.packed_bytes.unwrap_or_default())?;
            packed.seek(SeekFrom::End(0))?;
            let bytes = part.bytes - copy.bytes;
            grown.packed_bytes = Some(append((packed, &path), &mut text, bytes, &mut digest)?);
            grown.sha256 = hex(digest);
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

    fn add(&mut self, name: &str, copy: Copy) {
        self.has_changed = true;
        self.list.changed_ms = self.list.changed_ms.max(copy.source.written_ms());
        self.list.files.entry(name.to_owned()).or_default().push(copy);
    }

    /// Replaces a copy by its extended state, and drops the links.
    fn replace(&mut self, name: &str, copy: Copy) {
        self.has_changed = true;
        self.list.changed_ms = self.list.changed_ms.max(copy.source.written_ms());
        let mut copies = self.list.files.get_mut(name).into_iter().flatten();
        if let Some(place) = copies.find(|place| place.file == copy.file) {
            *place = copy;
        }
        self.drop_links(name);
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

/// The entries of a session's folder that the daemon did not write.
///
/// # Errors
/// The system's error.
pub(super) fn strangers(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = entries(folder)?;
    found.retain(|path| !is_ours(path));
    Ok(found)
}

/// Whether a path in a session's folder has a name that the daemon gives, and is no folder.
fn is_ours(path: &Path) -> bool {
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

/// Compresses this many bytes into a file, as a frame of its own, and syncs it. Returns the file's length.
fn append(
    (packed, path): (File, &Path),
    text: &mut dyn Read,
    bytes: u64,
    digest: &mut Sha256,
) -> io::Result<u64> {
    let writer = BufWriter::with_capacity(BUFFER_BYTES, packed);
    let mut encoder = zstd::Encoder::new(writer, LEVEL)?;
    encoder.include_checksum(true)?;
    pass(text, bytes, digest, |read| encoder.write_all(read))?;
    let file = encoder
        .finish()?
        .into_inner()
        .map_err(io::IntoInnerError::into_error)?;
    durable::sync_file(&file, path)?;
    Ok(file.metadata()?.len())
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

/// How many bytes of disk space would be free without a copy.
fn cost(path: &Path, is_link: bool) -> u64 {
    path.symlink_metadata().map_or(0, |metadata| {
        let is_shared = is_link && metadata.nlink() > 1;
        if is_shared { 0 } else { metadata.len() }
    })
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
    error
        .raw_os_error()
        .is_some_and(|code| never.iter().any(|errno| errno.raw_os_error() == code))
}
