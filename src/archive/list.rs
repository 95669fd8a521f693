//! The list of a session's copies: the copies of each file, and what each of them contains.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::SessionKey;
use crate::files::checked_lines;
use crate::files::set_aside::Unreadable;

/// The size of the buffers for reading and writing, in bytes.
pub(super) const BUFFER_BYTES: usize = 128 * 1024;

/// The version of the list that this program writes, and the newest that it reads: a line with a checksum. Older programs
/// recognize it as newer and leave the list and its copies alone. Adding a member requires a new version, because a program
/// that ignores a member loses it at the next change.
const VERSION: u64 = 3;

/// The version of lists that store the folder and the turns once for all copies of the transcript.
const SHARED_VERSION: u64 = 2;

/// The version of lists without a checksum. Their content is the same as in version 2.
const OLD_VERSION: u64 = 1;

/// The list of one session's copies.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CopyList {
    /// Only in lists without a checksum. In the others, the enclosing line has it.
    #[serde(default, skip_serializing)]
    version: Option<u64>,
    /// The transcript root. For users who look into the folder.
    pub(super) root: String,
    pub(super) upstream_id: String,
    /// In versions 1 and 2: [`ArchivedCopy::folder`] for copies without their own.
    #[serde(default, skip_serializing)]
    folder: String,
    /// In versions 1 and 2: [`ArchivedCopy::turns`] of the newest compressed copy of the transcript.
    #[serde(default, skip_serializing)]
    turns: Option<u64>,
    /// In versions 1 and 2. Not needed: the text of a transcript shows whether it was moved.
    #[serde(default, skip_serializing, rename = "wasMoved")]
    _was_moved: IgnoredAny,
    /// Whether its conversation was deleted. The copies are kept only for the sessions that continue its history.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) released: bool,
    /// The number of the next copy.
    pub(super) next: u64,
    /// The latest observed write to a file of the session, in milliseconds since the epoch.
    pub(super) changed_ms: i64,
    /// The copies of each file, oldest first. The key is the file's path relative to the transcript's folder.
    pub(super) files: BTreeMap<String, Vec<ArchivedCopy>>,
}

impl CopyList {
    /// Decodes a list of this or an earlier version.
    pub(super) fn parse(text: &[u8]) -> Result<Self, Unreadable> {
        let unknown = || serde::de::Error::custom("its version is unknown");
        let read = checked_lines::decode(text, 1, SHARED_VERSION, |text| {
            let list: Self = serde_json::from_slice(text)?;
            match list.version {
                Some(OLD_VERSION) => Ok(list),
                _ => Err(unknown()),
            }
        });
        let list = match read {
            Err(Unreadable::Newer { .. }) => checked_lines::decode(text, 1, VERSION, |_| Err(unknown())),
            read => read,
        };
        list.map(Self::with_shared)
    }

    /// Moves the members that versions 1 and 2 store once per list into the copies.
    fn with_shared(mut self) -> Self {
        let folder = std::mem::take(&mut self.folder);
        let turns = self.turns.take();
        let files = self.files.iter_mut();
        for (_, copies) in files.filter(|(name, _)| is_transcript(name)) {
            if let Some(newest) = copies.iter_mut().rfind(|copy| !copy.is_link()) {
                newest.turns = newest.turns.or(turns);
            }
            for copy in copies.iter_mut().filter(|copy| copy.folder.is_empty()) {
                copy.folder.clone_from(&folder);
            }
        }
        self
    }

    /// Encodes the list as the text of its file.
    pub(super) fn encode(&self) -> io::Result<Vec<u8>> {
        checked_lines::encode(VERSION, self)
    }

    /// Whether it was read with a valid checksum.
    pub(super) fn is_checked(&self) -> bool {
        self.version.is_none()
    }

    pub(super) fn new(key: &SessionKey) -> Self {
        Self {
            version: None,
            root: key.root.to_string_lossy().into_owned(),
            upstream_id: key.upstream_id.clone(),
            folder: String::new(),
            turns: None,
            _was_moved: IgnoredAny,
            released: false,
            next: 1,
            changed_ms: 0,
            files: BTreeMap::new(),
        }
    }
}

/// Whether this is the name of the transcript. The other files are in subfolders.
pub(super) fn is_transcript(name: &str) -> bool {
    !name.contains('/')
}

/// One copy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ArchivedCopy {
    /// The name of the copy's file, in the folder of the list.
    pub(super) file: String,
    /// How many bytes of the source it contains. For a link: how many the file had when it was linked, without a digest.
    pub(super) bytes: u64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) sha256: String,
    /// How many bytes of its file are valid. `None` for a link to the agent's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) packed_bytes: Option<u64>,
    /// The state of the source when it was copied.
    pub(super) source: FileStamp,
    /// For a copy of the transcript: the transcript's folder at that time, relative to the root.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) folder: String,
    /// For a copy of the transcript: how many turns had been acknowledged when it was made. `None` if unknown. A link always
    /// has all turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) turns: Option<u64>,
}

impl ArchivedCopy {
    pub(super) fn is_link(&self) -> bool {
        self.packed_bytes.is_none()
    }
}

/// The identity of a file and its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileStamp {
    device: u64,
    inode: u64,
    pub(super) bytes: u64,
    seconds: i64,
    nanoseconds: i64,
}

impl FileStamp {
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let metadata = path.symlink_metadata()?;
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            seconds: metadata.mtime(),
            nanoseconds: metadata.mtime_nsec(),
        })
    }

    pub(super) fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Returns when it was last written, in milliseconds since the epoch.
    pub(super) fn written_ms(&self) -> i64 {
        self.seconds.saturating_mul(1_000) + self.nanoseconds / 1_000_000
    }
}

/// Opens the text of a copy.
pub(super) fn open(path: &Path, copy: &ArchivedCopy) -> io::Result<Box<dyn Read>> {
    let file = File::open(path)?;
    match copy.packed_bytes {
        // Ignore bytes after that: they were appended before a kill.
        Some(bytes) => Ok(Box::new(zstd::Decoder::new(file.take(bytes))?)),
        None => Ok(Box::new(file)),
    }
}
