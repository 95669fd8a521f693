//! What is remembered of the files: how each was when it was looked at last, and how far it was judged.
//!
//! Lives in memory and begins with the sizes at the start, so that nothing old is told again by the next life. Knows
//! neither conversations nor what stands in the files.

use std::collections::HashMap;
use std::fs::Metadata;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use bridge_protocol::UpstreamId;

/// All files that were seen, by hashes of their paths.
#[derive(Default)]
pub(super) struct Files {
    hasher: RandomState,
    seen: HashMap<u64, Seen>,
}

/// How a file was when it was looked at last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// A hash of the session's id: a copy elsewhere, or a file of the same number, is told apart by it.
    session: u64,
    device: u64,
    inode: u64,
    pub(super) bytes: u64,
    /// Turns whose last record begins before this byte are told, or old.
    pub(super) judged: u64,
    /// The record of the prompt whose turn was told last.
    pub(super) told: Option<String>,
    /// How many prompts it held when its turns were looked at last.
    pub(super) prompts: Option<u64>,
    /// Whether it was removed since.
    is_gone: bool,
}

/// What a file is beside what was known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
    /// The same, grown or moved; or a copy of one that is known.
    Known,
    /// Nothing was known of its session.
    New,
    /// It shrank, or another one stands in its place.
    Replaced,
}

impl Files {
    /// Notes a file that is there at the start: all that stands in it is old.
    pub(super) fn begin(&mut self, path: &Path, id: &UpstreamId, metadata: &Metadata) {
        let seen = Seen {
            judged: metadata.len(),
            ..self.new_seen(id, metadata)
        };
        self.put(path, seen);
    }

    /// Whether a file is not as it was when it was looked at last.
    pub(super) fn differs(&self, path: &Path, metadata: &Metadata) -> bool {
        let seen = self.seen.get(&self.hasher.hash_one(path));
        seen.is_none_or(|seen| !seen.is_file(metadata) || seen.bytes != metadata.len())
    }

    /// What is known of a file, brought up to date. It is to be [put](Self::put) back.
    pub(super) fn take(&mut self, path: &Path, id: &UpstreamId, metadata: &Metadata) -> (Seen, Met) {
        let new = self.new_seen(id, metadata);
        let known = match self.seen.remove(&self.hasher.hash_one(path)) {
            Some(seen) => Some(seen),
            None => {
                let of_it = || self.seen.iter().filter(|(_, seen)| seen.session == new.session);
                let moved = of_it()
                    .find(|(_, seen)| seen.is_file(metadata))
                    .map(|(key, _)| *key);
                match moved {
                    // Its old name tells of nothing now.
                    Some(key) => self.seen.remove(&key),
                    // A copy, which may still be on its way: what was judged in the other is judged.
                    None => of_it()
                        .map(|(_, seen)| seen)
                        .max_by_key(|seen| seen.judged)
                        .map(|seen| Seen {
                            device: new.device,
                            inode: new.inode,
                            bytes: new.bytes,
                            ..seen.clone()
                        }),
                }
            }
        };
        match known {
            Some(seen) if seen.is_file(metadata) && seen.bytes <= new.bytes => {
                let (bytes, is_gone) = (new.bytes, false);
                (
                    Seen {
                        bytes,
                        is_gone,
                        ..seen
                    },
                    Met::Known,
                )
            }
            // It was put back, and may be on its way: all up to where it was judged is still to come.
            Some(seen) if seen.is_gone => {
                let judged = seen.judged.max(new.bytes);
                let told = seen.told;
                (Seen { judged, told, ..new }, Met::Replaced)
            }
            // What stands in it now was not told when it was written, and is not told now.
            Some(_) => {
                let judged = new.bytes;
                (Seen { judged, ..new }, Met::Replaced)
            }
            None => (new, Met::New),
        }
    }

    /// Notes what is known of a file.
    pub(super) fn put(&mut self, path: &Path, seen: Seen) {
        self.seen.insert(self.hasher.hash_one(path), seen);
    }

    /// Notes that a file is not there; it may be put back.
    pub(super) fn note_gone(&mut self, path: &Path) {
        if let Some(seen) = self.seen.get_mut(&self.hasher.hash_one(path)) {
            seen.is_gone = true;
        }
    }

    /// Forgets a file.
    pub(super) fn forget(&mut self, path: &Path) {
        self.seen.remove(&self.hasher.hash_one(path));
    }

    fn new_seen(&self, id: &UpstreamId, metadata: &Metadata) -> Seen {
        Seen {
            session: self.hasher.hash_one(id),
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            judged: 0,
            told: None,
            prompts: None,
            is_gone: false,
        }
    }
}

impl Seen {
    fn is_file(&self, metadata: &Metadata) -> bool {
        (self.device, self.inode) == (metadata.dev(), metadata.ino())
    }
}
