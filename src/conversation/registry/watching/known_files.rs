//! Known state of each transcript file: its size at the last check, and up to which byte its turns were judged.
//!
//! Kept in memory only. It starts with the sizes at startup, so that a restarted daemon reports nothing old again. Knows
//! neither conversations nor the content of the files.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::Bound;
use std::path::Path;

use bridge_protocol::UpstreamId;

use crate::transcript::index_cache::FileVersion;

/// State of all files that were seen.
#[derive(Default)]
pub(super) struct KnownFiles {
    hasher: RandomState,
    files: BTreeMap<Box<Path>, KnownFile>,
}

/// A file as it was when it was last read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownFile {
    /// A hash of the session's id. It distinguishes copies in other folders and files with a reused inode.
    session: u64,
    /// Device and inode.
    device_and_inode: (u64, u64),
    pub(super) bytes: u64,
    /// Turns whose last record begins before this byte are reported, or old.
    pub(super) judged_bytes: u64,
    /// Where the file was cut off, if it is shorter than the judged length: a restore may be in progress, or the file
    /// continues from there.
    pub(super) cut_at: u64,
    /// The record of the prompt whose turn was reported last.
    pub(super) last_reported_prompt: Option<String>,
    /// How many prompts the file contained when its turns were last judged.
    pub(super) prompts: Option<u64>,
    /// Whether the file was deleted since.
    is_missing: bool,
}

/// How a file compares with its known state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileComparison {
    /// The same file, unchanged, grown or moved; or a copy of a known file.
    Known,
    /// No file of its session was known.
    New,
    /// The file shrank or was restored, or another file replaced it.
    Replaced,
}

impl KnownFiles {
    /// Records a file that exists at startup: its whole content is old.
    pub(super) fn note_at_start(&mut self, path: &Path, id: &UpstreamId, identity: &FileVersion) {
        let seen = KnownFile {
            judged_bytes: identity.bytes,
            ..self.new_file(id, identity)
        };
        self.put(path, seen);
    }

    /// Whether a file has changed since the last check.
    pub(super) fn differs(&self, path: &Path, identity: &FileVersion) -> bool {
        let seen = self.files.get(path);
        seen.is_none_or(|seen| !seen.is_same_file(identity) || seen.bytes != identity.bytes)
    }

    /// Takes out the state of a file, updated to its present version. The caller must [put](Self::put) it back.
    pub(super) fn take(
        &mut self,
        path: &Path,
        id: &UpstreamId,
        identity: &FileVersion,
    ) -> (KnownFile, FileComparison) {
        let new = self.new_file(id, identity);
        let known = match self.files.remove(path) {
            Some(seen) => Some(seen),
            None => {
                let moved = self
                    .of_session(new.session)
                    .find(|(_, seen)| seen.is_same_file(identity))
                    .map(|(path, _)| path.clone());
                match moved {
                    // The file was moved: the entry of its old path is removed.
                    Some(path) => self.files.remove(&path),
                    // A copy, perhaps still incomplete: what was judged in the original counts as judged.
                    None => self
                        .of_session(new.session)
                        .map(|(_, seen)| seen)
                        .max_by_key(|seen| seen.judged_bytes)
                        .map(|seen| KnownFile {
                            device_and_inode: new.device_and_inode,
                            bytes: new.bytes,
                            ..seen.clone()
                        }),
                }
            }
        };
        let Some(seen) = known else {
            return (new, FileComparison::New);
        };
        let is_same = seen.is_same_file(identity);
        if is_same && seen.bytes <= new.bytes {
            let seen = KnownFile {
                bytes: new.bytes,
                is_missing: false,
                ..seen
            };
            return (seen, FileComparison::Known);
        }
        let was_cut = seen.judged_bytes > seen.bytes;
        let old = KnownFile {
            judged_bytes: seen.judged_bytes.max(new.bytes),
            last_reported_prompt: seen.last_reported_prompt,
            ..new.clone()
        };
        let replaced = if seen.is_missing {
            // The file is being restored and may be incomplete: everything up to the judged length is old.
            old
        } else if is_same {
            // The file shrank in place: a copy is being written over it, or it was cut off and continues from there.
            KnownFile {
                cut_at: if was_cut {
                    seen.cut_at.min(new.bytes)
                } else {
                    new.bytes
                },
                ..old
            }
        } else {
            // Another file replaced it. Its present content is old and is not reported.
            KnownFile {
                judged_bytes: new.bytes,
                ..new
            }
        };
        (replaced, FileComparison::Replaced)
    }

    /// Stores the state of a file.
    pub(super) fn put(&mut self, path: &Path, seen: KnownFile) {
        self.files.insert(Box::from(path), seen);
    }

    /// Marks a file as missing. Its state is kept, because the file may be restored.
    pub(super) fn mark_missing(&mut self, path: &Path) {
        if let Some(seen) = self.files.get_mut(path) {
            seen.is_missing = true;
        }
    }

    /// Removes the state of a file.
    pub(super) fn forget(&mut self, path: &Path) {
        self.files.remove(path);
    }

    /// The files below a folder that existed at the last check.
    pub(super) fn present_below(&self, folder: &Path) -> impl Iterator<Item = &Path> {
        // In the order of paths, the files in a folder directly follow its own path.
        let from = (Bound::Excluded(folder), Bound::Unbounded);
        let below = self
            .files
            .range::<Path, _>(from)
            .take_while(move |(path, _)| path.starts_with(folder));
        below
            .filter(|(_, seen)| !seen.is_missing)
            .map(|(path, _)| path.as_ref())
    }

    /// The files of a session; usually one. Only new files are looked up, so it is enough to look at each file.
    fn of_session(&self, session: u64) -> impl Iterator<Item = (&Box<Path>, &KnownFile)> {
        self.files.iter().filter(move |(_, seen)| seen.session == session)
    }

    fn new_file(&self, id: &UpstreamId, identity: &FileVersion) -> KnownFile {
        KnownFile {
            session: self.hasher.hash_one(id),
            device_and_inode: identity.device_and_inode(),
            bytes: identity.bytes,
            judged_bytes: 0,
            cut_at: 0,
            last_reported_prompt: None,
            prompts: None,
            is_missing: false,
        }
    }
}

impl KnownFile {
    fn is_same_file(&self, identity: &FileVersion) -> bool {
        self.device_and_inode == identity.device_and_inode()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_found_by_its_folder_and_by_its_session_until_it_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let mut files = KnownFiles::default();
        for (name, id) in [
            ("a/s1", "s1"),
            ("a/b/s2", "s2"),
            ("a b/s3", "s3"),
            ("aa/s1", "s1"),
        ] {
            fs::create_dir_all(path(name).parent().unwrap()).unwrap();
            fs::write(path(name), id).unwrap();
            files.note_at_start(
                &path(name),
                &UpstreamId::new(id),
                &FileVersion::of(&path(name).metadata().unwrap()),
            );
        }
        let below = |files: &KnownFiles, name: &str| {
            let folder = path(name);
            files
                .present_below(&folder)
                .map(Path::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(below(&files, "a"), [path("a/b/s2"), path("a/s1")]);
        assert_eq!(below(&files, "").len(), 4);
        assert_eq!(below(&files, "none"), [] as [&Path; 0]);
        files.mark_missing(&path("a/s1"));
        files.forget(&path("a/b/s2"));
        assert_eq!(below(&files, "a"), [] as [&Path; 0]);
        files.forget(&path("a/s1"));
        // A copy of what is known by one of its names only.
        fs::copy(path("aa/s1"), path("copy")).unwrap();
        let copied = FileVersion::of(&path("copy").metadata().unwrap());
        assert_eq!(
            files.take(&path("copy"), &UpstreamId::new("s1"), &copied).1,
            FileComparison::Known
        );
        let (_, met) = files.take(&path("copy"), &UpstreamId::new("s2"), &copied);
        assert_eq!(met, FileComparison::New);
        files.forget(&path("aa/s1"));
        assert_eq!(
            files.take(&path("copy"), &UpstreamId::new("s1"), &copied).1,
            FileComparison::New
        );
    }

    #[test]
    fn what_is_cut_off_and_put_back_was_judged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s1");
        let id = UpstreamId::new("s1");
        let write = |bytes: usize| {
            // In place: the same file.
            fs::write(&path, "x".repeat(bytes)).unwrap();
            FileVersion::of(&path.metadata().unwrap())
        };
        let mut files = KnownFiles::default();
        files.note_at_start(&path, &id, &write(1_000));
        let mut look = |bytes| {
            let (seen, met) = files.take(&path, &id, &write(bytes));
            files.put(&path, seen.clone());
            (seen.judged_bytes, seen.cut_at, met)
        };
        // On its way back, and there.
        assert_eq!(look(400), (1_000, 400, FileComparison::Replaced));
        assert_eq!(look(700), (1_000, 400, FileComparison::Known));
        assert_eq!(look(300), (1_000, 300, FileComparison::Replaced));
        assert_eq!(look(1_000), (1_000, 300, FileComparison::Known));
        assert_eq!(look(1_200), (1_000, 300, FileComparison::Known));
        // Cut off once more, of which the earlier time says nothing.
        assert_eq!(look(500), (1_000, 500, FileComparison::Replaced));
    }
}
