//! Restoring kept sessions to where their agents look for them: always as a copy, never over a file that differs, and the transcript
//! after everything that belongs to it.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Component, Path, PathBuf};

use super::folder::{Folder, LIST};
use super::list::BUFFER_BYTES;
use super::{Archive, Key, root_name};
use crate::files::durable::unfinished;
use crate::files::identity::{Hashed, sha256};
use crate::files::is_absence;
use crate::files::set_aside::{Unreadable, set_aside};
use crate::transcript::TranscriptError;
use crate::transcript::blank::is_blank;
use crate::transcript::copy::{fill_temporary, make_folder, rename_if_free, settle};
use crate::transcript::dialect::Dialect;
use crate::transcript::fields::Fields;
use crate::transcript::lines::Lines;
use crate::transcript::meter::Metered;
use crate::transcript::moving::holders;
use crate::transcript::parts::is_lines;
use crate::transcript::record::line_text;
use crate::transcript::relocate::{Relocation, relocate};
use crate::transcript::rollouts::LINEAGE_LIMIT;

/// How much of a copy is looked at for the folder that its records name, in bytes.
const BEGINNING_BYTES: u64 = 1024 * 1024;

/// Is called when a transcript is about to get its name, with the id of its session and how many bytes it has.
pub type Placing<'a> = &'a mut dyn FnMut(&str, u64) -> Result<(), TranscriptError>;

/// Where a copy is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptFrom {
    /// The folder in which the transcript was when it was kept last, below the agent's own.
    pub folder: PathBuf,
    /// The first folder that its records name.
    pub cwd: Option<String>,
}

/// A session of a history.
pub(super) struct Member {
    pub(super) key: Key,
    /// Its transcript. `None` if that is missing or blank, and a copy is kept.
    pub(super) there: Option<PathBuf>,
    /// A text that changes when something else would be read from the copy.
    pub(super) state: String,
}

/// Where kept files go.
pub(super) struct Target<'a> {
    /// The agent's folder, or one that is laid out as it.
    pub(super) root: &'a Path,
    /// The folder in which the session runs.
    pub(super) cwd: Option<&'a Path>,
    /// What the records name instead of what they name in the copy.
    pub(super) relocation: &'a Relocation,
    /// Whether they go there only to be read, and no longer if nobody waits for that.
    pub(super) is_scratch: bool,
}

impl Archive {
    /// Restores a session, and those that it continues by reference, to where their agent looks for them. If `cwd` is unknown, they
    /// go to the folder in which they were. `lacking` says how many turns each transcript will lack; its mark records that before
    /// the transcript is there, and `placing` is called then too. Returns the restored files: none if the transcript is there and
    /// holds all that is kept. Other files that are there stay as they are. A [blank](is_blank) transcript counts as missing, and is
    /// set aside if it is in the way.
    ///
    /// # Errors
    /// [`TranscriptError::NotFound`] if no transcript is kept, [`TranscriptError::AlreadyExists`] if one is there that holds
    /// something else, [`TranscriptError::Io`].
    pub fn restore(
        &self,
        dialect: &dyn Dialect,
        key: &Key,
        (cwd, relocation): (Option<&Path>, &Relocation),
        lacking: impl Fn(&str) -> u64,
        placing: Placing<'_>,
    ) -> Result<Vec<PathBuf>, TranscriptError> {
        let there = dialect.locate(&key.root, &key.upstream_id)?;
        let is_whole = holds_all(dialect, &self.kept(key)?, &there, relocation)?;
        let members = self.history(dialect, key)?.into_iter().rev();
        let missing = members.filter(|member| member.there.is_none() && !(is_whole && member.key == *key));
        let mut restored = Vec::new();
        for Member { key, .. } in missing {
            let folder = self.kept(&key)?;
            let target = Target {
                root: &key.root,
                cwd,
                relocation,
                is_scratch: false,
            };
            let put = self.marked(&key, lacking(&key.upstream_id), |mark| {
                put(dialect, &folder, &target, |bytes| {
                    mark().and_then(|()| placing(&key.upstream_id, bytes))
                })
            });
            restored.extend(put?.into_iter().map(|(path, _)| path));
        }
        Ok(restored)
    }

    /// Where the copy of a transcript is from that would be restored. `None` if none is kept.
    ///
    /// # Errors
    /// [`TranscriptError::InvalidId`], [`TranscriptError::Io`].
    pub fn kept_from(&self, key: &Key) -> Result<Option<KeptFrom>, TranscriptError> {
        let Some(folder) = self.open(key)? else {
            return Ok(None);
        };
        let Some((copy, bytes)) = folder.best_transcript()? else {
            return Ok(None);
        };
        let text = folder.text(copy, bytes.min(BEGINNING_BYTES))?;
        Ok(Some(KeptFrom {
            folder: PathBuf::from(&folder.list.folder),
            cwd: first_cwd(text).map_err(TranscriptError::io("read", &folder.path))?,
        }))
    }

    /// The folder of a session whose transcript is kept.
    pub(super) fn kept(&self, key: &Key) -> Result<Folder<'_>, TranscriptError> {
        let folder = self.open(key)?.filter(|folder| folder.transcript().is_some());
        folder.ok_or_else(|| TranscriptError::NotFound {
            upstream_id: key.upstream_id.clone(),
            root: self.folder.join(root_name(&key.root)),
        })
    }

    /// A session and those in which its history begins, the nearest first, as far as each is there or kept.
    pub(super) fn history(&self, dialect: &dyn Dialect, key: &Key) -> Result<Vec<Member>, TranscriptError> {
        let mut members: Vec<Member> = Vec::new();
        let mut wanted = Some(key.clone());
        while let Some(key) = wanted.take() {
            if members.len() >= LINEAGE_LIMIT || members.iter().any(|member| member.key == key) {
                break;
            }
            let mut there = dialect.locate(&key.root, &key.upstream_id)?.into_iter();
            let there = there.find(|path| !is_blank(path).unwrap_or(false));
            let (base, state) = match &there {
                Some(path) => {
                    let base = dialect
                        .text(path)
                        .and_then(|text| dialect.base(&mut BufReader::with_capacity(BUFFER_BYTES, text)));
                    let base = base.map_err(TranscriptError::io("read", path))?;
                    (base, path.to_string_lossy().into_owned())
                }
                None => match self.kept(&key) {
                    Ok(folder) => (folder.base()?, folder.state()),
                    // It may never have been backed up. A reader of the session that continues it reports that.
                    Err(TranscriptError::NotFound { .. }) => break,
                    Err(error) => return Err(error),
                },
            };
            wanted = base.map(|upstream_id| Key {
                root: key.root.clone(),
                upstream_id,
            });
            members.push(Member { key, there, state });
        }
        Ok(members)
    }
}

/// Puts the kept files of a session below a root, the transcript last: a failure means that it is not there. Returns each file
/// that was written, with its length. `placing` is called before the transcript is there, with its length.
pub(super) fn put(
    dialect: &dyn Dialect,
    folder: &Folder<'_>,
    target: &Target<'_>,
    mut placing: impl FnMut(u64) -> Result<(), TranscriptError>,
) -> Result<Vec<(PathBuf, u64)>, TranscriptError> {
    let below = inside(Path::new(&folder.list.folder), &folder.path)?;
    let place = |name: &str| -> Result<PathBuf, TranscriptError> {
        let name = inside(Path::new(name), &folder.path)?;
        Ok(dialect.place(target.root, target.cwd, below, name))
    };
    let transcript = folder.transcript();
    let names = folder.list.files.keys().map(String::as_str);
    let others: Vec<&str> = names.filter(|name| Some(*name) != transcript).collect();
    let mut files = Vec::new();
    if let Some((copy, bytes)) = folder.best_transcript()?.filter(|_| !others.is_empty()) {
        let named = dialect.named_files(&folder.key().root, &mut folder.text(copy, bytes)?);
        for (name, below) in named.map_err(TranscriptError::io("read a copy in", &folder.path))? {
            let path = target.root.join(below);
            if others.contains(&name.as_str()) && path != place(&name)? {
                files.push((name, path));
            }
        }
    }
    for name in others.into_iter().chain(transcript) {
        files.push((name.to_owned(), place(name)?));
    }
    let mut written = Vec::new();
    for (name, path) in files {
        let placed = |bytes| match Some(name.as_str()) == transcript {
            true => placing(bytes),
            false => Ok(()),
        };
        if let Some(bytes) = write(folder, &name, &path, target, placed)? {
            written.push((path, bytes));
        }
    }
    Ok(written)
}

/// A path from the list, which leads to nowhere else.
fn inside<'a>(path: &'a Path, place: &Path) -> Result<&'a Path, TranscriptError> {
    if path.components().all(|part| matches!(part, Component::Normal(_))) {
        return Ok(path);
    }
    let what = format!("it names {}, which is no name below a folder", path.display());
    Err(TranscriptError::Unreadable {
        path: place.join(LIST),
        why: Unreadable::Damaged(what),
    })
}

/// Whether a transcript is there that holds all that is kept of it, as it was or as it would be restored.
///
/// # Errors
/// [`TranscriptError::AlreadyExists`] if one is there that does not.
fn holds_all(
    dialect: &dyn Dialect,
    folder: &Folder<'_>,
    there: &[PathBuf],
    relocation: &Relocation,
) -> Result<bool, TranscriptError> {
    let Some(first) = there.first() else {
        return Ok(false);
    };
    let Some((copy, bytes)) = folder.best_transcript()? else {
        return Ok(false);
    };
    if bytes == 0 {
        // Nothing is kept that could replace anything.
        return Ok(true);
    }
    let kept = pour(folder.text(copy, bytes)?, bytes, relocation, &mut io::sink());
    let kept = kept.map_err(TranscriptError::io("read", first))?;
    let begins_with_kept = |path: &Path| -> io::Result<bool> {
        for kept in &kept {
            let mut text = Hashed::new(dialect.text(path)?.take(kept.1));
            io::copy(&mut text, &mut io::sink())?;
            if text.passed() == *kept {
                return Ok(true);
            }
        }
        Ok(false)
    };
    let mut other = None;
    for path in there {
        let failed = TranscriptError::io("read", path);
        let looked = begins_with_kept(path).and_then(|begins| Ok((begins, is_blank(path)?)));
        match looked.map_err(failed)? {
            (true, _) => return Ok(true),
            (_, true) => {}
            (_, false) => other = other.or(Some(path.clone())),
        }
    }
    other.map_or(Ok(false), |path| Err(TranscriptError::AlreadyExists { path }))
}

/// The first folder that a text's records name.
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

/// Writes a kept text of this length, with other folders in its records. Returns the digest and the length of what was read and of
/// what was written.
fn pour(
    text: impl Read,
    bytes: u64,
    relocation: &Relocation,
    to: &mut dyn Write,
) -> io::Result<[(String, u64); 2]> {
    let (mut source, mut written) = (Hashed::new(text), Hashed::new(to));
    if relocation.is_nothing() {
        io::copy(&mut source, &mut written)?;
    } else {
        let reader = BufReader::with_capacity(BUFFER_BYTES, &mut source);
        let unchanged = relocate(reader, &mut written, relocation)?;
        if unchanged > 0 {
            tracing::warn!(
                unchanged,
                "lines are too long to be changed; they are restored as they are"
            );
        }
    }
    let source = source.passed();
    match source.1 < bytes {
        true => Err(io::ErrorKind::UnexpectedEof.into()),
        false => Ok([source, written.passed()]),
    }
}

/// Writes what is kept of a file, unless one of its name is there. A blank transcript in its place is set aside once the copy is
/// whole. Returns how many bytes were written; `placing` is called with them before the file is there.
fn write(
    folder: &Folder<'_>,
    name: &str,
    path: &Path,
    target: &Target<'_>,
    placing: impl FnOnce(u64) -> Result<(), TranscriptError>,
) -> Result<Option<u64>, TranscriptError> {
    // Files beside a transcript may be empty as they should be.
    let is_in_the_way = match path.symlink_metadata() {
        Ok(_) if !name.contains('/') && is_blank(path).map_err(TranscriptError::io("read", path))? => true,
        Ok(_) => return Ok(None),
        Err(error) if is_absence(&error) => false,
        Err(error) => return Err(TranscriptError::io("look at", path)(error)),
    };
    let Some((copy, bytes)) = folder.best(name)? else {
        return Ok(None);
    };
    let parent = path.parent().unwrap_or(target.root);
    make_folder(parent)?;
    // Always the same, so that the next attempt finds what a kill left.
    let temporary = unfinished(parent, &sha256(name.as_bytes())[..16], "restored");
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
        let text = folder.text(copy, bytes)?;
        let poured = match target.is_scratch {
            true => pour(Metered::new(text, bytes), bytes, relocation, writer),
            false => pour(text, bytes, relocation, writer),
        };
        let [source, written] = poured.map_err(TranscriptError::io("restore", path))?;
        if !copy.is_link() && source.0 != copy.sha256 {
            let error = io::Error::new(io::ErrorKind::InvalidData, "the kept copy is damaged");
            return Err(TranscriptError::io("restore", path)(error));
        }
        Ok(written.1)
    })?;
    if is_in_the_way {
        set_blank_aside(path)?;
    }
    placing(written)?;
    match settle(&temporary, path) {
        Ok(()) => Ok(Some(written)),
        // Another process wrote it in the meantime. Files beside a transcript are not compared.
        Err(TranscriptError::AlreadyExists { .. }) if name.contains('/') => Ok(None),
        Err(error) => Err(error),
    }
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
