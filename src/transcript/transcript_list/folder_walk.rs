//! Walks the folders of a root to find transcripts, by their names and a stat.

use std::collections::HashSet;
use std::fs::{self, DirEntry, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::Format;
use super::file_ends::on_threads;
use crate::transcript::file_read::FileVersion;

/// A file that was found.
#[derive(Debug)]
pub(super) struct FoundFile {
    pub(super) path: PathBuf,
    /// Shows whether the file has changed.
    pub(super) identity: FileVersion,
}

impl FoundFile {
    /// The file at a path, or the target of a link. `None` if there is no file.
    pub(super) fn at_path(path: PathBuf) -> Option<Self> {
        let metadata = fs::metadata(&path).ok()?;
        Self::from_metadata(path, &metadata)
    }

    /// As [`Self::at`], for an entry in its folder, which is faster than by path.
    fn from_entry(entry: &DirEntry) -> Option<Self> {
        let metadata = entry.metadata().ok()?;
        match metadata.is_symlink() {
            true => Self::at_path(entry.path()),
            false => Self::from_metadata(entry.path(), &metadata),
        }
    }

    fn from_metadata(path: PathBuf, metadata: &Metadata) -> Option<Self> {
        let identity = FileVersion::of(metadata);
        metadata.is_file().then_some(Self { path, identity })
    }
}

/// The files that a walk found, and the folders that could not be read.
#[derive(Debug, Default)]
pub(super) struct FolderWalk {
    pub(super) files: Vec<FoundFile>,
    pub(super) unreadable: Vec<(PathBuf, io::Error)>,
}

impl FolderWalk {
    /// Finds all transcripts below a root.
    pub(super) fn in_root(root: &Path, format: Format) -> Self {
        let mut finding = Self::default();
        let folders = finding.folders(root, format);
        finding.collect_files(&folders, format);
        finding
    }

    /// The paths of everything below a root that is named like a transcript, without a stat; and the folders that could not be
    /// read.
    pub(super) fn names(root: &Path, format: Format) -> (Vec<PathBuf>, Vec<(PathBuf, io::Error)>) {
        let mut finding = Self::default();
        let mut names = Vec::new();
        for folder in finding.folders(root, format) {
            let named = for_each_transcript_name(&folder, format, |entry| names.push(entry.path()));
            finding.note_unreadable(&folder, named);
        }
        (names, finding.unreadable)
    }

    /// Notes a folder that could not be read, unless it is missing.
    fn note_unreadable<T>(&mut self, folder: &Path, read: io::Result<T>) -> Option<T> {
        match read {
            Ok(read) => return Some(read),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.unreadable.push((folder.to_owned(), error)),
        }
        None
    }

    /// Finds the transcripts in one folder, which may be missing.
    pub(super) fn in_folder(folder: &Path, format: Format) -> Self {
        let mut finding = Self::default();
        let folders = match format.dialect().layout().folders {
            None => finding.folders_below(vec![folder.to_owned()]),
            // A folder that was created or moved here together with its subfolder of transcripts.
            Some([.., Some(name)]) if !folder.ends_with(name) => vec![folder.join(name)],
            Some(_) => vec![folder.to_owned()],
        };
        finding.collect_files(&folders, format);
        finding
    }

    /// All folders below a root that may contain transcripts.
    fn folders(&mut self, root: &Path, format: Format) -> Vec<PathBuf> {
        let mut folders = format.top_folders(root);
        let Some(levels) = format.dialect().layout().folders else {
            return self.folders_below(folders);
        };
        for level in levels {
            folders = match level {
                None => folders
                    .iter()
                    .flat_map(|folder| self.folders_in(folder))
                    .collect(),
                Some(name) => folders.iter().map(|folder| folder.join(name)).collect(),
            };
        }
        folders
    }

    /// These folders, which may be missing, and all folders below them. Each appears once, where it is reached first.
    fn folders_below(&mut self, mut pending: Vec<PathBuf>) -> Vec<PathBuf> {
        pending.reverse();
        let mut folders = Vec::new();
        let mut seen = HashSet::new();
        while let Some(folder) = pending.pop() {
            let Some(metadata) = self.note_unreadable(&folder, fs::metadata(&folder)) else {
                continue;
            };
            // A link can make a folder contain itself.
            if !seen.insert((metadata.dev(), metadata.ino())) {
                continue;
            }
            pending.extend(self.folders_in(&folder).into_iter().rev());
            folders.push(folder);
        }
        folders
    }

    /// The folders in a folder, including links to folders, sorted. Empty if the folder is missing.
    fn folders_in(&mut self, folder: &Path) -> Vec<PathBuf> {
        let entries = self.note_unreadable(folder, fs::read_dir(folder));
        let mut folders = Vec::new();
        for entry in entries.into_iter().flatten() {
            let Some(entry) = self.note_unreadable(folder, entry) else {
                break;
            };
            let is_folder = match entry.file_type() {
                Ok(kind) if kind.is_symlink() => entry.path().is_dir(),
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

    /// Collects the transcripts in these folders, each once: a folder may be reached by several links.
    fn collect_files(&mut self, folders: &[PathBuf], format: Format) {
        let results = on_threads(folders, |folder, _| files_in(folder, format).map(Some));
        for (folder, results) in folders.iter().zip(results) {
            let files = self.note_unreadable(folder, results).flatten();
            self.files.extend(files.unwrap_or_default());
        }
        let mut seen = HashSet::with_capacity(self.files.len());
        self.files.retain(|file| {
            let name = file.path.file_name().map(ToOwned::to_owned);
            seen.insert((file.identity.device_and_inode(), name))
        });
    }
}

/// The transcripts in a folder. An entry without a stat has vanished, or is a link without a target, and is skipped.
fn files_in(folder: &Path, format: Format) -> io::Result<Vec<FoundFile>> {
    let mut files = Vec::new();
    for_each_transcript_name(folder, format, |entry| {
        files.extend(FoundFile::from_entry(&entry));
    })?;
    Ok(files)
}

/// Passes each entry of a folder that is named like a transcript to `take`.
fn for_each_transcript_name(folder: &Path, format: Format, mut take: impl FnMut(DirEntry)) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| format.is_transcript(name)) {
            take(entry);
        }
    }
    Ok(())
}
