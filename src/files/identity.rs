//! Checks whether a file is unchanged, and whether two files have the same content.
//!
//! Does not follow links. Blocks.

use std::fs::{Metadata, symlink_metadata};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::digest::hex;
use super::{BUFFER_BYTES, open_file};

/// The identity of a file and its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FileIdentity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) bytes: u64,
    /// The modification time, in seconds and nanoseconds. `None` if it was not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) modified: Option<(i64, i64)>,
}

impl FileIdentity {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: Some((metadata.mtime(), metadata.mtime_nsec())),
        }
    }

    /// Returns the identity of the file at this path.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        Ok(Self::of(&symlink_metadata(path)?))
    }

    /// Whether a file with this metadata has this identity. Ignores the modification time if it was not recorded.
    pub(crate) fn matches(&self, found: &Metadata) -> bool {
        let found = Self::of(found);
        let modified = self.modified.or(found.modified);
        found == Self { modified, ..*self }
    }
}

/// Whether this is a regular file with this size and hash.
///
/// # Errors
/// The system's error.
pub(crate) fn has_content(path: &Path, bytes: u64, sha256: &str) -> io::Result<bool> {
    let found = symlink_metadata(path)?;
    if !found.is_file() || found.len() != bytes {
        return Ok(false);
    }
    let reader = BufReader::with_capacity(BUFFER_BYTES, open_file(path)?.take(bytes));
    let mut hashed = Hashed::new(reader);
    io::copy(&mut hashed, &mut io::sink())?;
    Ok(hashed.digest().eq_ignore_ascii_case(sha256))
}

/// Whether both are regular files with the same content.
///
/// # Errors
/// The system's error.
pub(crate) fn same_content(left: &Path, right: &Path) -> io::Result<bool> {
    let (ours, theirs) = (symlink_metadata(left)?, symlink_metadata(right)?);
    if !theirs.is_file() || ours.len() != theirs.len() {
        return Ok(false);
    }
    let mut left = BufReader::with_capacity(BUFFER_BYTES, open_file(left)?);
    let mut right = BufReader::with_capacity(BUFFER_BYTES, open_file(right)?);
    same_bytes(&mut left, &mut right, ours.len())
}

/// Whether the next `bytes` bytes of two readers are equal. False if one of them ends earlier.
///
/// # Errors
/// The readers' errors.
pub(crate) fn same_bytes(
    left: &mut impl BufRead,
    right: &mut impl BufRead,
    mut bytes: u64,
) -> io::Result<bool> {
    while bytes > 0 {
        let (left_bytes, right_bytes) = (left.fill_buf()?, right.fill_buf()?);
        let most = usize::try_from(bytes).unwrap_or(usize::MAX);
        let length = left_bytes.len().min(right_bytes.len()).min(most);
        if length == 0 || left_bytes[..length] != right_bytes[..length] {
            return Ok(false);
        }
        left.consume(length);
        right.consume(length);
        bytes -= length as u64;
    }
    Ok(true)
}

/// A reader or writer that hashes and counts the bytes that pass through it.
pub(crate) struct Hashed<T> {
    inner: T,
    hash: Sha256,
    bytes: u64,
    last_byte: Option<u8>,
}

impl<T> Hashed<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self {
            inner,
            hash: Sha256::new(),
            bytes: 0,
            last_byte: None,
        }
    }

    /// Returns the SHA-256 of the bytes so far, in hexadecimal digits.
    pub(crate) fn digest(&self) -> String {
        hex(&self.hash.clone().finalize())
    }

    /// Returns the SHA-256 and the number of the bytes so far.
    pub(crate) fn digest_and_bytes(&self) -> (String, u64) {
        (self.digest(), self.bytes)
    }

    /// Returns the last byte so far.
    pub(crate) fn last_byte(&self) -> Option<u8> {
        self.last_byte
    }

    fn add(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        self.last_byte = bytes.last().copied().or(self.last_byte);
    }
}

impl<T: Read> Read for Hashed<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.add(&buffer[..count]);
        Ok(count)
    }
}

impl<T: Write> Write for Hashed<T> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(buffer)?;
        self.add(&buffer[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
