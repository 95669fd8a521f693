//! Putting kept sessions back where their agents resume them: always a copy, never over a file that differs, the transcript
//! behind everything that belongs to it.

use std::fs::{self, DirBuilder, File};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};

use sha2::{Digest, Sha256};

use super::folder::Folder;
use super::list::{BUFFER_BYTES, digest, hex, pass};
use super::{Archive, Key};
use crate::transcript::TranscriptError;
use crate::transcript::codex::unpacked::Unpacked;
use crate::transcript::codex::{HistoryBase, read_meta};
use crate::transcript::copy::{fill_temporary, missing_folders, settle};
use crate::transcript::locate::{is_absence, located, own_folder};
use crate::transcript::rollouts::{self, LINEAGE_LIMIT, place_of};

impl Archive {
    /// Puts the kept files of a session of Claude into the folder in which it is looked for from `cwd`; where that is not
    /// known, into that in which they were. Gives what was put there: nothing where the transcript is there and holds all that is kept. What lies beside it is left as it is.
    ///
    /// # Errors
    /// [`TranscriptError::NotFound`] when no transcript is kept, [`TranscriptError::AlreadyExists`] when one is there that
    /// holds something else, [`TranscriptError::Io`].
    pub fn restore_claude(&self, key: &Key, cwd: Option<&Path>) -> Result<Vec<PathBuf>, TranscriptError> {
        let place = self.place(key)?;
        let _held = self.lock(key);
        let (folder, transcript) = kept(&place, key)?;
        let there = located(&key.root, &key.upstream_id, cwd)?.paths;
        if holds_all(&folder, &transcript, &there)? {
            return Ok(Vec::new());
        }
        let target = match cwd {
            Some(cwd) => own_folder(&key.root, cwd),
            None => key.root.join(inside_folder(folder.place(), &place)?),
        };
        let others = folder.names().filter(|name| *name != transcript);
        let mut restored = Vec::new();
        for name in others.chain([transcript.as_str()]) {
            let path = target.join(inside(name, &place)?);
            if write(&folder, name, &path, &key.root)? {
                restored.push(path);
            }
        }
        Ok(restored)
    }

    /// The same of a session of Codex, with the rollouts in which its history begins.
    ///
    /// # Errors
    /// As [`Archive::restore_claude`].
    pub fn restore_codex(&self, key: &Key) -> Result<Vec<PathBuf>, TranscriptError> {
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
                    if !holds_all(&folder, &name, &there)? {
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
            let path = place_of(&key.root, inside(&name, &place)?);
            let path = path.unwrap_or_else(|| key.root.join("sessions").join(&name));
            if write(&folder, &name, &path, &key.root)? {
                restored.push(path);
            }
        }
        Ok(restored)
    }

    /// How many bytes a restored transcript would have; none where none is kept.
    ///
    /// # Errors
    /// [`TranscriptError::InvalidId`], [`TranscriptError::Io`].
    pub fn restored_bytes(&self, key: &Key) -> Result<Option<u64>, TranscriptError> {
        let place = self.place(key)?;
        let _held = self.lock(key);
        let Some(folder) = Folder::open(&place)? else {
            return Ok(None);
        };
        let Some(name) = folder.transcript() else {
            return Ok(None);
        };
        Ok(folder.best(name)?.map(|(_, bytes)| bytes))
    }
}

/// The folder of a session whose transcript is kept, and the transcript's name.
fn kept(place: &Path, key: &Key) -> Result<(Folder, String), TranscriptError> {
    let nothing = || TranscriptError::NotFound {
        upstream_id: key.upstream_id.clone(),
        root: place.parent().unwrap_or(place).to_owned(),
    };
    let folder = Folder::open(place)?.ok_or_else(nothing)?;
    let name = folder.transcript().ok_or_else(nothing)?.to_owned();
    Ok((folder, name))
}

/// A name from the list, which leads to nowhere else.
fn inside<'a>(name: &'a str, place: &Path) -> Result<&'a Path, TranscriptError> {
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

/// Whether a transcript is there that holds all that is kept of it.
///
/// # Errors
/// [`TranscriptError::AlreadyExists`] where one is there that does not.
fn holds_all(folder: &Folder, name: &str, there: &[PathBuf]) -> Result<bool, TranscriptError> {
    let Some((copy, bytes)) = folder.best(name)? else {
        return Ok(false);
    };
    for path in there {
        if begins_with(text_of(path)?, folder.text(copy)?, bytes)
            .map_err(TranscriptError::io("read", path))?
        {
            return Ok(true);
        }
    }
    match there.first() {
        Some(path) => Err(TranscriptError::AlreadyExists { path: path.clone() }),
        None => Ok(false),
    }
}

/// A transcript's text, compressed or not.
fn text_of(path: &Path) -> Result<Box<dyn Read>, TranscriptError> {
    let open = || -> io::Result<Box<dyn Read>> {
        let file = File::open(path)?;
        if path.extension().is_some_and(|extension| extension == "zst") {
            return Ok(Box::new(Unpacked::forwards(file)?));
        }
        Ok(Box::new(file))
    };
    open().map_err(TranscriptError::io("read", path))
}

fn base_of(text: Box<dyn Read>, path: &Path) -> Result<Option<HistoryBase>, TranscriptError> {
    let meta = read_meta(BufReader::with_capacity(BUFFER_BYTES, text));
    let meta = meta.map_err(TranscriptError::io("read", path))?;
    Ok(meta.and_then(|meta| meta.base))
}

/// Whether a text begins with so many bytes of another.
fn begins_with(mut text: Box<dyn Read>, mut other: Box<dyn Read>, bytes: u64) -> io::Result<bool> {
    let mut sums = [Sha256::new(), Sha256::new()];
    let [own, kept] = &mut sums;
    match pass(&mut text, bytes, own, |_| Ok(())) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
        Err(error) => return Err(error),
    }
    pass(&mut other, bytes, kept, |_| Ok(()))?;
    let [own, kept] = sums.map(hex);
    Ok(own == kept)
}

/// Writes what is kept of a file where there is none of its name. Tells whether it did.
fn write(folder: &Folder, name: &str, path: &Path, root: &Path) -> Result<bool, TranscriptError> {
    match path.symlink_metadata() {
        Ok(_) => return Ok(false),
        Err(error) if is_absence(&error) => {}
        Err(error) => return Err(TranscriptError::io("look at", path)(error)),
    }
    let Some((copy, bytes)) = folder.best(name)? else {
        return Ok(false);
    };
    let parent = path.parent().unwrap_or(root);
    let missing = missing_folders(parent);
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(parent)
        .map_err(TranscriptError::io("make the folder", parent))?;
    // Always the same, so that what a kill leaves is found by the next one.
    let temporary = parent.join(format!(".{}.restored.tmp", &digest(name.as_bytes())[..16]));
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(TranscriptError::io("remove", &temporary)(error));
        }
        _ => {}
    }
    let (temporary, ()) = fill_temporary(&temporary, |writer: &mut dyn Write| {
        let mut sum = Sha256::new();
        let mut text = folder.text(copy)?;
        pass(&mut text, bytes, &mut sum, |read| writer.write_all(read))
            .map_err(TranscriptError::io("restore", path))?;
        if !copy.is_link() && hex(sum) != copy.sha256 {
            let error = io::Error::new(io::ErrorKind::InvalidData, "the kept copy is damaged");
            return Err(TranscriptError::io("restore", path)(error));
        }
        Ok(())
    })?;
    match settle(&temporary, path) {
        Ok(()) => {}
        // It has come meanwhile: what it holds is not looked at for what lies beside a transcript.
        Err(TranscriptError::AlreadyExists { .. }) if name.contains('/') => return Ok(false),
        Err(error) => return Err(error),
    }
    for made in missing.into_iter().rev() {
        let above = made.parent().unwrap_or(root);
        let synced = File::open(above).and_then(|folder| folder.sync_all());
        synced.map_err(TranscriptError::io("sync the folder", above))?;
    }
    Ok(true)
}
