//! Restoring kept sessions to where their agents look for them: always as a copy, never over a file that differs, and the transcript
//! after everything that belongs to it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::{Component, Path, PathBuf};

use sha2::{Digest, Sha256};

use super::folder::Folder;
use super::list::{BUFFER_BYTES, digest, hex, pass};
use super::{Archive, Key};
use crate::files::durable::unfinished;
use crate::files::is_absence;
use crate::files::set_aside::{Unreadable, set_aside};
use crate::transcript::TranscriptError;
use crate::transcript::blank::is_blank;
use crate::transcript::codex::unpacked::Unpacked;
use crate::transcript::codex::{HistoryBase, read_meta};
use crate::transcript::copy::{fill_temporary, make_folder, rename_if_free, settle};
use crate::transcript::fields::Fields;
use crate::transcript::lines::Lines;
use crate::transcript::locate::{locate, own_folder};
use crate::transcript::meter::Metered;
use crate::transcript::moving::holders;
use crate::transcript::parts::is_lines;
use crate::transcript::record::line_text;
use crate::transcript::relocate::{RESULTS, Relocation, named_results, relocate, result_name};
use crate::transcript::rollouts::{self, LINEAGE_LIMIT, place_of};

/// How much of a copy is looked at for the folder that its records name, in bytes.
const BEGINNING_BYTES: u64 = 1024 * 1024;

/// Is called when a transcript is about to get its name, with the id of its session and how many bytes it has.
pub type Placing<'a> = &'a mut dyn FnMut(&str, u64) -> Result<(), TranscriptError>;

/// Where a copy is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptFrom {
    /// The folder in which the transcript was when it was copied, below the agent's own.
    pub folder: PathBuf,
    /// The first folder that its records name.
    pub cwd: Option<String>,
}

impl Archive {
    /// Puts the kept files of a session that stands alone into the folder in which it is looked for from `cwd`; where that is not
    /// known, into that in which they were. Their records name other folders by `relocation`; what tools gave is put to where
    /// the records name it, too. The transcript will lack `lacking` turns, which its mark says before it is there; `placing` is
    /// called then, too. Gives what was put there: nothing where the transcript is there and holds all that is kept. What lies
    /// beside it is left as it is. A [blank](is_blank) transcript counts as missing, and is set aside if it is in the way.
    ///
    /// # Errors
    /// [`TranscriptError::NotFound`] when no transcript is kept, [`TranscriptError::AlreadyExists`] when one is there that
    /// holds something else, [`TranscriptError::Io`].
    pub fn restore_alone(
        &self,
        key: &Key,
        cwd: Option<&Path>,
        relocation: &Relocation,
        lacking: u64,
        placing: Placing<'_>,
    ) -> Result<Vec<PathBuf>, TranscriptError> {
        let place = self.place(key)?;
        let _held = self.lock(key);
        let (folder, transcript) = kept(&place, key)?;
        let there = locate(&key.root, &key.upstream_id, cwd)?;
        if holds_all(&folder, &transcript, &there, relocation)? {
            return Ok(Vec::new());
        }
        // The transcript is the last file, so that a failure means that it is not there.
        self.marked(key, lacking, |mark| {
            let mut placing = |id: &str, bytes| mark().and_then(|()| placing(id, bytes));
            put_claude(
                &folder,
                &transcript,
                key,
                &key.root,
                cwd,
                relocation,
                &mut placing,
            )
        })
    }

    /// Where the copy of a transcript is from that would be restored; none where none is kept.
    ///
    /// # Errors
    /// [`TranscriptError::InvalidId`], [`TranscriptError::Io`].
    pub fn kept_from(&self, key: &Key) -> Result<Option<KeptFrom>, TranscriptError> {
        let place = self.place(key)?;
        let _held = self.lock(key);
        let Some(folder) = Folder::open(&place)? else {
            return Ok(None);
        };
        let Some(name) = folder.transcript() else {
            return Ok(None);
        };
        let Some((copy, bytes)) = folder.best(name)? else {
            return Ok(None);
        };
        let text = folder.text(copy)?.take(bytes.min(BEGINNING_BYTES));
        Ok(Some(KeptFrom {
            folder: folder.place_of(copy).to_owned(),
            cwd: first_cwd(text).map_err(TranscriptError::io("read", &place))?,
        }))
    }

    /// The same of a session that may continue others by reference, with the files in which its history begins. `lacking` says how many turns each lacks.
    ///
    /// # Errors
    /// As [`Archive::restore_alone`].
    pub fn restore_with_bases(
        &self,
        key: &Key,
        lacking: impl Fn(&str) -> u64,
        placing: Placing<'_>,
    ) -> Result<Vec<PathBuf>, TranscriptError> {
        // Those that it continues, its own first.
        let mut missing = Vec::new();
        let mut wanted = Some(key.clone());
        let mut seen = Vec::new();
        while let Some(next) = wanted.take() {
            if seen.contains(&next.upstream_id) || seen.len() >= LINEAGE_LIMIT {
                break;
            }
            seen.push(next.upstream_id.clone());
            let there = rollouts::locate(&next.root, &next.upstream_id)?;
            let is_own = next == *key;
            let base = match there.first() {
                Some(path) if !is_own => base_of(text_of(path)?, path)?,
                _ => {
                    let place = self.place(&next)?;
                    let _held = self.lock(&next);
                    let (folder, name) = match kept(&place, &next) {
                        Ok(kept) => kept,
                        // What it continues may never have been kept. Whoever reads it says what is missing.
                        Err(TranscriptError::NotFound { .. }) if !is_own => break,
                        Err(error) => return Err(error),
                    };
                    let base = match folder.best(&name)? {
                        Some((copy, _)) => base_of(folder.text(copy)?, &place)?,
                        None => None,
                    };
                    if !holds_all(&folder, &name, &there, &Relocation::default())? {
                        missing.push(next.clone());
                    }
                    base
                }
            };
            wanted = base.map(|base| Key {
                root: key.root.clone(),
                upstream_id: base.upstream_id,
            });
        }
        let mut restored = Vec::new();
        for key in missing.iter().rev() {
            let place = self.place(key)?;
            let _held = self.lock(key);
            let (folder, name) = kept(&place, key)?;
            let path = rollout_place(&key.root, inside(&name, &place)?);
            let target = Target {
                path: &path,
                root: &key.root,
                relocation: &Relocation::default(),
                is_reading: false,
            };
            let written = self.marked(key, lacking(&key.upstream_id), |mark| {
                write(&folder, &name, &target, |bytes| {
                    mark().and_then(|()| placing(&key.upstream_id, bytes))
                })
            });
            if written? {
                restored.push(path);
            }
        }
        Ok(restored)
    }
}

/// Puts the kept files of a session of Claude below a root, the transcript behind everything that belongs to it.
pub(super) fn put_claude(
    folder: &Folder,
    transcript: &str,
    key: &Key,
    root: &Path,
    cwd: Option<&Path>,
    relocation: &Relocation,
    placing: Placing<'_>,
) -> Result<Vec<PathBuf>, TranscriptError> {
    let target = match cwd {
        Some(cwd) => own_folder(root, cwd),
        None => root.join(inside_folder(folder.place(), folder.path())?),
    };
    let mut restored = Vec::new();
    let mut put = |name: &str, path: PathBuf| -> Result<(), TranscriptError> {
        let target = Target {
            path: &path,
            root,
            relocation,
            is_reading: root != key.root,
        };
        let placed = |bytes| match name == transcript {
            true => placing(&key.upstream_id, bytes),
            false => Ok(()),
        };
        if write(folder, name, &target, placed)? {
            restored.push(path);
        }
        Ok(())
    };
    for (name, below) in named_places(folder, transcript, key)? {
        let path = root.join("projects").join(below);
        if path != target.join(&name) {
            put(&name, path)?;
        }
    }
    let others = folder.names().filter(|name| *name != transcript);
    for name in others.chain([transcript]) {
        put(name, target.join(inside(name, folder.path())?))?;
    }
    Ok(restored)
}

/// Where a rollout of this name goes below a root.
pub(super) fn rollout_place(root: &Path, name: &Path) -> PathBuf {
    place_of(root, name).unwrap_or_else(|| root.join("sessions").join(name))
}

/// Writes what is kept of a file as it is, for being read.
pub(super) fn put_file(folder: &Folder, name: &str, path: &Path, root: &Path) -> Result<(), TranscriptError> {
    let target = Target {
        path,
        root,
        relocation: &Relocation::default(),
        is_reading: true,
    };
    write(folder, name, &target, |_| Ok(())).map(drop)
}

/// The folder of a session whose transcript is kept, and the transcript's name.
pub(super) fn kept(place: &Path, key: &Key) -> Result<(Folder, String), TranscriptError> {
    let nothing = || TranscriptError::NotFound {
        upstream_id: key.upstream_id.clone(),
        root: place.parent().unwrap_or(place).to_owned(),
    };
    let folder = Folder::open(place)?.ok_or_else(nothing)?;
    let name = folder.transcript().ok_or_else(nothing)?.to_owned();
    Ok((folder, name))
}

/// A name from the list, which leads to nowhere else.
pub(super) fn inside<'a>(name: &'a str, place: &Path) -> Result<&'a Path, TranscriptError> {
    inside_folder(Path::new(name), place)
}

fn inside_folder<'a>(path: &'a Path, place: &Path) -> Result<&'a Path, TranscriptError> {
    if path.components().all(|part| matches!(part, Component::Normal(_))) {
        return Ok(path);
    }
    let error = io::Error::new(
        io::ErrorKind::InvalidData,
        format!(
            "its list names {}, which is no name below a folder",
            path.display()
        ),
    );
    Err(TranscriptError::io("use", place)(error))
}

/// Whether a transcript is there that holds all that is kept of it, as it was or as it would be put there.
///
/// # Errors
/// [`TranscriptError::AlreadyExists`] where one is there that does not.
fn holds_all(
    folder: &Folder,
    name: &str,
    there: &[PathBuf],
    relocation: &Relocation,
) -> Result<bool, TranscriptError> {
    let Some(first) = there.first() else {
        return Ok(false);
    };
    let Some((copy, bytes)) = folder.best(name)? else {
        return Ok(false);
    };
    let reading = |error| TranscriptError::io("read", first)(error);
    if bytes == 0 {
        // Nothing is kept that could take the place of anything.
        return Ok(true);
    }
    let kept = pour(folder.text(copy)?, bytes, relocation, &mut io::sink()).map_err(reading)?;
    for path in there {
        for (sum, bytes) in [&kept.text, &kept.source] {
            let begins = begins_with(text_of(path)?, *bytes, sum);
            if begins.map_err(TranscriptError::io("read", path))? {
                return Ok(true);
            }
        }
    }
    for path in there {
        if !is_blank(path).map_err(TranscriptError::io("read", path))? {
            let path = path.clone();
            return Err(TranscriptError::AlreadyExists { path });
        }
    }
    Ok(false)
}

/// A transcript's text, compressed or not.
pub(super) fn text_of(path: &Path) -> Result<Box<dyn Read>, TranscriptError> {
    let open = || -> io::Result<Box<dyn Read>> {
        let file = File::open(path)?;
        if path.extension().is_some_and(|extension| extension == "zst") {
            return Ok(Box::new(Unpacked::forwards(file)?));
        }
        Ok(Box::new(file))
    };
    open().map_err(TranscriptError::io("read", path))
}

pub(super) fn base_of(text: Box<dyn Read>, path: &Path) -> Result<Option<HistoryBase>, TranscriptError> {
    let meta = read_meta(BufReader::with_capacity(BUFFER_BYTES, text));
    let meta = meta.map_err(TranscriptError::io("read", path))?;
    Ok(meta.and_then(|meta| meta.base))
}

/// Whether a text begins with so many bytes of this digest.
fn begins_with(mut text: Box<dyn Read>, bytes: u64, digest: &str) -> io::Result<bool> {
    let mut sum = Sha256::new();
    match pass(&mut text, bytes, &mut sum, |_| Ok(())) {
        Ok(()) => Ok(hex(sum) == digest),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// The first folder that a text's records name.
fn first_cwd(text: impl Read) -> io::Result<Option<String>> {
    let mut lines = Lines::new(BufReader::with_capacity(BUFFER_BYTES, text), 0);
    while let Some(line) = lines.next_line()? {
        let text = line_text(line.bytes);
        if let Some(cwd) = Fields::parse(&text).and_then(|fields| fields.text("cwd")) {
            return Ok(Some(cwd));
        }
    }
    Ok(None)
}

/// The kept files with what tools gave, each with the places where the transcript's records name it, below the folder of all
/// sessions.
fn named_places(
    folder: &Folder,
    transcript: &str,
    key: &Key,
) -> Result<BTreeSet<(String, PathBuf)>, TranscriptError> {
    let results: BTreeSet<&str> = folder.names().filter(|name| name.contains(RESULTS)).collect();
    let mut places = BTreeSet::new();
    let Some((copy, bytes)) = folder.best(transcript)?.filter(|_| !results.is_empty()) else {
        return Ok(places);
    };
    let text = folder.text(copy)?.take(bytes);
    let projects = key.root.join("projects");
    let mut lines = Lines::new(BufReader::with_capacity(BUFFER_BYTES, text), 0);
    let failed = |error| TranscriptError::io("read what is kept of", Path::new(transcript))(error);
    while let Some(line) = lines.next_line().map_err(failed)? {
        if memchr::memmem::find(line.bytes, RESULTS.as_bytes()).is_none() {
            continue;
        }
        let text = line_text(line.bytes);
        let named = Fields::parse(&text).map(|fields| named_results(&fields));
        for path in named.unwrap_or_default() {
            // Of any folder of sessions, and of none else.
            let below = Path::new(&path).strip_prefix(&projects).ok();
            let is_name = |part: Component<'_>| matches!(part, Component::Normal(_));
            let below = below.filter(|below| below.components().all(is_name));
            let name = result_name(&path).filter(|name| results.contains(name));
            let place = name.zip(below);
            places.extend(place.map(|(name, below)| (name.to_owned(), below.to_owned())));
        }
    }
    Ok(places)
}

/// What a kept text is, and what it becomes: the digest of each, and its bytes.
struct Poured {
    source: (String, u64),
    text: (String, u64),
}

/// Writes so many bytes of a kept text, with other folders in its records.
fn pour(
    mut text: Box<dyn Read>,
    bytes: u64,
    relocation: &Relocation,
    to: &mut dyn Write,
) -> io::Result<Poured> {
    if relocation.is_nothing() {
        let mut sum = Sha256::new();
        pass(&mut text, bytes, &mut sum, |read| to.write_all(read))?;
        let whole = (hex(sum), bytes);
        return Ok(Poured {
            source: whole.clone(),
            text: whole,
        });
    }
    let mut source = Summed::of(text.take(bytes));
    let mut written = Summed::of(to);
    let reader = BufReader::with_capacity(BUFFER_BYTES, &mut source);
    let unchanged = relocate(reader, &mut written, relocation)?;
    if unchanged > 0 {
        tracing::warn!(
            unchanged,
            "lines that are too long to be held are restored as they are"
        );
    }
    if source.bytes < bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Poured {
        source: source.end(),
        text: written.end(),
    })
}

/// What is read or written, with its digest and length.
struct Summed<T> {
    inner: T,
    sum: Sha256,
    bytes: u64,
}

impl<T> Summed<T> {
    fn of(inner: T) -> Self {
        Self {
            inner,
            sum: Sha256::new(),
            bytes: 0,
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        self.sum.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    fn end(self) -> (String, u64) {
        (hex(self.sum), self.bytes)
    }
}

impl<T: Read> Read for Summed<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.add(&buffer[..read]);
        Ok(read)
    }
}

impl<T: Write> Write for Summed<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.add(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Where a kept file goes.
struct Target<'a> {
    path: &'a Path,
    root: &'a Path,
    relocation: &'a Relocation,
    /// Whether it is only wanted for being read, and not any more when whoever reads has left.
    is_reading: bool,
}

/// Writes what is kept of a file, unless one of its name is there. A blank transcript in its place is set aside once the copy is
/// whole. Returns whether the file was written; `placing` is called with how many bytes it has, before it is there.
fn write(
    folder: &Folder,
    name: &str,
    target: &Target<'_>,
    placing: impl FnOnce(u64) -> Result<(), TranscriptError>,
) -> Result<bool, TranscriptError> {
    let Target { path, root, .. } = *target;
    // Of the files beside a transcript an empty one may be as it should be.
    let may_be_blank = !name.contains('/') && !target.is_reading;
    let is_in_the_way = match path.symlink_metadata() {
        Ok(_) if may_be_blank && is_blank(path).map_err(TranscriptError::io("read", path))? => true,
        Ok(_) => return Ok(false),
        Err(error) if is_absence(&error) => false,
        Err(error) => return Err(TranscriptError::io("look at", path)(error)),
    };
    let Some((copy, bytes)) = folder.best(name)? else {
        return Ok(false);
    };
    let parent = path.parent().unwrap_or(root);
    make_folder(parent)?;
    // Always the same, so that what a kill leaves is found by the next one.
    let temporary = unfinished(parent, &digest(name.as_bytes())[..16], "restored");
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(TranscriptError::io("remove", &temporary)(error));
        }
        _ => {}
    }
    let nothing = Relocation::default();
    let relocation = match is_lines(Path::new(name)) {
        true => target.relocation,
        false => &nothing,
    };
    let (temporary, written) = fill_temporary(&temporary, |writer: &mut dyn Write| {
        let text = folder.text(copy)?;
        let text = match target.is_reading {
            true => Box::new(Metered::new(text, bytes)),
            false => text,
        };
        let poured = pour(text, bytes, relocation, writer).map_err(TranscriptError::io("restore", path))?;
        if !copy.is_link() && poured.source.0 != copy.sha256 {
            let error = io::Error::new(io::ErrorKind::InvalidData, "the kept copy is damaged");
            return Err(TranscriptError::io("restore", path)(error));
        }
        Ok(poured.text.1)
    })?;
    if is_in_the_way {
        set_blank_aside(path)?;
    }
    placing(written)?;
    match settle(&temporary, path) {
        Ok(()) => {}
        // It has come meanwhile: what it holds is not looked at for what lies beside a transcript.
        Err(TranscriptError::AlreadyExists { .. }) if name.contains('/') => return Ok(false),
        Err(error) => return Err(error),
    }
    Ok(true)
}

/// Sets a blank transcript aside, unless an agent has written to it since it was found to be blank.
///
/// # Errors
/// [`TranscriptError::InUse`] if another process holds it open, [`TranscriptError::AlreadyExists`] if it is not blank any more,
/// [`TranscriptError::Io`] otherwise.
pub(super) fn set_blank_aside(path: &Path) -> Result<(), TranscriptError> {
    holders::check(&[path.to_owned()])?;
    let is_blank = |at: &Path| is_blank(at).map_err(TranscriptError::io("read", at));
    let is_written = || TranscriptError::AlreadyExists {
        path: path.to_owned(),
    };
    if !is_blank(path)? {
        return Err(is_written());
    }
    let why = Unreadable::Damaged("it holds nothing but zeros".to_owned());
    let aside = set_aside(path, &why).map_err(TranscriptError::io("set aside", path))?;
    // An agent may have written to it in between.
    if !is_blank(&aside)? {
        rename_if_free(&aside, path)?;
        return Err(is_written());
    }
    Ok(())
}
