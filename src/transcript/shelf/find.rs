//! The walk through the folders of a root: which transcripts there are, by their names and what a stat tells.

use std::collections::HashSet;
use std::fs::{self, DirEntry, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::Format;
use super::ends::on_threads;
use crate::transcript::library::Identity;

/// What tells that a file has not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) identity: Identity,
    /// Whether it has more names than this one.
    pub(super) has_names: bool,
}

/// A file that was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) stat: Stat,
}

/// What a walk found.
#[derive(Debug, Default)]
pub(super) struct Finding {
    pub(super) found: Vec<Found>,
    pub(super) unreadable: Vec<(PathBuf, io::Error)>,
    /// Whether files are reached by links, or by several names: what changes in them is not told where they are found.
    pub(super) has_aliases: bool,
}

/// What stands in a file's place.
pub(super) enum Look {
    /// A file.
    File(Found),
    /// A link.
    Link,
    /// No file.
    Nothing,
}

impl Finding {
    /// Everything below a root.
    pub(super) fn in_root(root: &Path, format: Format) -> Self {
        let mut finding = Self::default();
        let tops = format.tops(root);
        let folders = match format {
            Format::Claude => tops.iter().flat_map(|top| finding.folders_in(top)).collect(),
            Format::Codex => finding.tree(tops),
        };
        finding.files(&folders, format);
        finding
    }

    /// The names of everything below a root, what stands there not looked at; and what could not be read.
    pub(super) fn names(root: &Path, format: Format) -> (Vec<PathBuf>, Vec<(PathBuf, io::Error)>) {
        let mut finding = Self::default();
        let tops = format.tops(root);
        let folders = match format {
            Format::Claude => tops.iter().flat_map(|top| finding.folders_in(top)).collect(),
            Format::Codex => finding.tree(tops),
        };
        let mut names = Vec::new();
        for folder in folders {
            let named = named_in(&folder, format, |entry| names.push(entry.path()));
            match named {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    finding.unreadable.push((folder, error));
                }
                _ => {}
            }
        }
        (names, finding.unreadable)
    }

    /// Everything in a folder of transcripts, which need not be there.
    pub(super) fn in_folder(folder: &Path, format: Format) -> Self {
        let mut finding = Self {
            has_aliases: folder.is_symlink(),
            ..Self::default()
        };
        let folders = match format {
            Format::Claude => vec![folder.to_owned()],
            Format::Codex => finding.tree(vec![folder.to_owned()]),
        };
        finding.files(&folders, format);
        finding
    }

    /// These folders, which need not be there, and all below them, each once: in the first place where it is reached.
    fn tree(&mut self, mut left: Vec<PathBuf>) -> Vec<PathBuf> {
        left.reverse();
        let mut folders = Vec::new();
        let mut seen = HashSet::new();
        while let Some(folder) = left.pop() {
            let metadata = match fs::metadata(&folder) {
                Ok(metadata) => metadata,
                Err(error) => {
                    if error.kind() != io::ErrorKind::NotFound {
                        self.unreadable.push((folder, error));
                    }
                    continue;
                }
            };
            // By a link a folder may stand within itself.
            if !seen.insert((metadata.dev(), metadata.ino())) {
                self.has_aliases = true;
                continue;
            }
            left.extend(self.folders_in(&folder).into_iter().rev());
            folders.push(folder);
        }
        folders
    }

    /// The folders in a folder, links to folders among them, sorted; none when there is no such folder.
    fn folders_in(&mut self, folder: &Path) -> Vec<PathBuf> {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    self.unreadable.push((folder.to_owned(), error));
                }
                return Vec::new();
            }
        };
        let mut folders = Vec::new();
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.unreadable.push((folder.to_owned(), error));
                    break;
                }
            };
            let is_folder = match entry.file_type() {
                Ok(kind) if kind.is_symlink() => {
                    self.has_aliases = true;
                    fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_dir())
                }
                Ok(kind) => kind.is_dir(),
                Err(_) => false,
            };
            if is_folder {
                folders.push(entry.path());
            }
        }
        folders.sort();
        folders
    }

    /// The files in these folders whose names are wanted, each once: a folder may be reached by several links.
    fn files(&mut self, folders: &[PathBuf], format: Format) {
        let looked = on_threads(folders, |folder, _| files_in(folder, format).map(Some));
        for (folder, looked) in folders.iter().zip(looked) {
            match looked {
                Ok(files) => {
                    let (files, has_links) = files.unwrap_or_default();
                    self.found.extend(files);
                    self.has_aliases |= has_links;
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => self.unreadable.push((folder.clone(), error)),
            }
        }
        let all = self.found.len();
        let mut seen = HashSet::with_capacity(all);
        self.found.retain(|found| {
            let name = found.path.file_name().map(ToOwned::to_owned);
            seen.insert((found.stat.identity.file(), name))
        });
        self.has_aliases |= self.found.len() < all;
    }
}

/// The files in a folder, and whether links are among them.
fn files_in(folder: &Path, format: Format) -> io::Result<(Vec<Found>, bool)> {
    let (mut files, mut has_links) = (Vec::new(), false);
    named_in(folder, format, |entry| {
        let path = entry.path();
        let metadata = match entry.metadata() {
            Ok(metadata) if metadata.is_symlink() => {
                has_links = true;
                fs::metadata(&path)
            }
            metadata => metadata,
        };
        // What cannot be looked at has vanished, or is a link that leads nowhere.
        if let Ok(metadata) = metadata
            && metadata.is_file()
        {
            let stat = Stat::of(&metadata);
            files.push(Found { path, stat });
        }
    })?;
    Ok((files, has_links))
}

/// Hands what is called like a transcript in a folder to `take`.
fn named_in(folder: &Path, format: Format, mut take: impl FnMut(DirEntry)) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| format.is_transcript(name)) {
            take(entry);
        }
    }
    Ok(())
}

/// Looks at one file.
pub(super) fn look(path: &Path) -> Look {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_symlink() => Look::Link,
        Ok(metadata) if metadata.is_file() => Look::File(Found {
            path: path.to_owned(),
            stat: Stat::of(&metadata),
        }),
        _ => Look::Nothing,
    }
}

impl Stat {
    fn of(metadata: &Metadata) -> Self {
        Self {
            identity: Identity::of(metadata),
            has_names: metadata.nlink() > 1,
        }
    }
}
