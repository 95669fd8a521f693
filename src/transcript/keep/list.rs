//! The list of a session's copies: which there are, of which file each is, and what it holds.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Key;
use crate::transcript::aside::Unreadable;

/// How much is read and written at once, in bytes.
pub(super) const BUFFER_BYTES: usize = 128 * 1024;

/// The version of the list that this program writes, and the newest that it reads.
const VERSION: u64 = 1;

/// What is kept of one session.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct List {
    version: u64,
    /// For people who look into the folder.
    pub(super) root: String,
    pub(super) upstream_id: String,
    /// The folder below the root in which the transcript was when it was looked at last.
    pub(super) folder: String,
    /// Whether it came into that folder from another one since it was copied last.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) was_moved: bool,
    /// How many turns had been acknowledged on it when it was copied last, where the copy may have no more than those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) turns: Option<u64>,
    /// Whether who had the session has deleted it, and its copies stay for those who continue its history.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) released: bool,
    /// The number that no copy has had yet.
    pub(super) next: u64,
    /// When something of it was last written, as far as it was looked at, in milliseconds since the epoch.
    pub(super) changed_ms: i64,
    /// The copies of each file by its name below the transcript's folder, the oldest first.
    pub(super) files: BTreeMap<String, Vec<Copy>>,
}

impl List {
    /// Reads a list of this or an earlier version.
    pub(super) fn read(text: &[u8]) -> Result<Self, Unreadable> {
        #[derive(Deserialize)]
        struct Version {
            version: u64,
        }
        let damaged = |error: serde_json::Error| Unreadable::Damaged(error.to_string());
        // The form of a newer one is not known.
        let Version { version } = serde_json::from_slice(text).map_err(damaged)?;
        if version > VERSION {
            return Err(Unreadable::Newer {
                version,
                newest: VERSION,
            });
        }
        serde_json::from_slice(text).map_err(damaged)
    }

    pub(super) fn new(key: &Key) -> Self {
        Self {
            version: VERSION,
            root: key.root.to_string_lossy().into_owned(),
            upstream_id: key.upstream_id.clone(),
            folder: String::new(),
            was_moved: false,
            turns: None,
            released: false,
            next: 1,
            changed_ms: 0,
            files: BTreeMap::new(),
        }
    }
}

/// One copy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Copy {
    /// Its own file, beside the list.
    pub(super) file: String,
    /// How many bytes of the source it holds, and their digest; of a link what it held when it was made, and none.
    pub(super) bytes: u64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) sha256: String,
    /// How many bytes of its file count. None: it is a link, and shares what the agent has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) packed_bytes: Option<u64>,
    /// The source as it was then.
    pub(super) source: Stamp,
    /// The folder below the root in which it was then, whose name its text bears; none in lists that older versions wrote.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) folder: String,
}

impl Copy {
    pub(super) fn is_link(&self) -> bool {
        self.packed_bytes.is_none()
    }
}

/// By what a file is known, and whether it is as it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    pub(super) bytes: u64,
    seconds: i64,
    nanoseconds: i64,
}

impl Stamp {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        Ok(Self::from(&path.symlink_metadata()?))
    }

    pub(super) fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// When it was written last.
    pub(super) fn written_ms(&self) -> i64 {
        self.seconds.saturating_mul(1_000) + self.nanoseconds / 1_000_000
    }
}

impl From<&Metadata> for Stamp {
    fn from(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            seconds: metadata.mtime(),
            nanoseconds: metadata.mtime_nsec(),
        }
    }
}

/// The text of a copy.
pub(super) fn open(path: &Path, copy: &Copy) -> io::Result<Box<dyn Read>> {
    let file = File::open(path)?;
    match copy.packed_bytes {
        // What stands behind was appended by somebody who was killed.
        Some(bytes) => Ok(Box::new(zstd::Decoder::new(file.take(bytes))?)),
        None => Ok(Box::new(file)),
    }
}

/// Reads exactly so many bytes, which go through the digest to whoever takes them.
pub(super) fn pass(
    from: &mut dyn Read,
    bytes: u64,
    digest: &mut Sha256,
    mut to: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut left = bytes;
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(BUFFER_BYTES).min(BUFFER_BYTES);
        let read = match from.read(&mut buffer[..most]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        digest.update(&buffer[..read]);
        to(&buffer[..read])?;
        left -= read as u64;
    }
    Ok(())
}

/// SHA-256, as hexadecimal digits.
pub(super) fn digest(bytes: &[u8]) -> String {
    hex(Sha256::new_with_prefix(bytes))
}

pub(super) fn hex(digest: Sha256) -> String {
    let digits = digest.finalize();
    digits.iter().map(|byte| format!("{byte:02x}")).collect()
}
