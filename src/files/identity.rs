//! Whether a file is still the one that was written, and whether two files hold the same.
//!
//! No link is followed. Blocks.

use std::fs::{File, Metadata, symlink_metadata};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::BUFFER_BYTES;

/// What identifies a file and its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) bytes: u64,
    /// When it was written last, in seconds and nanoseconds. `None` if that was not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) modified: Option<(i64, i64)>,
}

impl Identity {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: Some((metadata.mtime(), metadata.mtime_nsec())),
        }
    }

    /// That of the file with this path.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        Ok(Self::of(&symlink_metadata(path)?))
    }

    /// Whether this is that of a file that was found, as far as it was recorded.
    pub(crate) fn is(&self, found: &Metadata) -> bool {
        let found = Self::of(found);
        let modified = self.modified.or(found.modified);
        found == Self { modified, ..*self }
    }
}

/// Whether a file is a regular one of this size and hash.
///
/// # Errors
/// The system's error.
pub(crate) fn holds(path: &Path, bytes: u64, sha256: &str) -> io::Result<bool> {
    let found = symlink_metadata(path)?;
    if !found.is_file() || found.len() != bytes {
        return Ok(false);
    }
    let mut nowhere = io::sink();
    let mut hashed = Hashed::new(&mut nowhere);
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, File::open(path)?.take(bytes));
    io::copy(&mut reader, &mut hashed)?;
    Ok(hashed.digest().eq_ignore_ascii_case(sha256))
}

/// Whether a regular file holds the same as another.
///
/// # Errors
/// The system's error.
pub(crate) fn same_content(left: &Path, right: &Path) -> io::Result<bool> {
    let (ours, theirs) = (symlink_metadata(left)?, symlink_metadata(right)?);
    if !theirs.is_file() || ours.len() != theirs.len() {
        return Ok(false);
    }
    let mut left = BufReader::with_capacity(BUFFER_BYTES, File::open(left)?);
    let mut right = BufReader::with_capacity(BUFFER_BYTES, File::open(right)?);
    begin_alike(&mut left, &mut right, ours.len())
}

/// Whether two readers have the same content for so many bytes. One that ends earlier has not.
///
/// # Errors
/// The readers' errors.
pub(crate) fn begin_alike(
    left: &mut impl BufRead,
    right: &mut impl BufRead,
    mut bytes: u64,
) -> io::Result<bool> {
    while bytes > 0 {
        let (one, other) = (left.fill_buf()?, right.fill_buf()?);
        let most = usize::try_from(bytes).unwrap_or(usize::MAX);
        let length = one.len().min(other.len()).min(most);
        if length == 0 || one[..length] != other[..length] {
            return Ok(false);
        }
        left.consume(length);
        right.consume(length);
        bytes -= length as u64;
    }
    Ok(true)
}

/// A writer that hashes what it passes on.
pub(crate) struct Hashed<'a> {
    writer: &'a mut dyn Write,
    hash: Sha256,
}

impl<'a> Hashed<'a> {
    pub(crate) fn new(writer: &'a mut dyn Write) -> Self {
        Self {
            writer,
            hash: Sha256::new(),
        }
    }

    /// The hash of what was written, in hexadecimal digits.
    pub(crate) fn digest(self) -> String {
        let digits = self.hash.finalize();
        digits.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Write for Hashed<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let count = self.writer.write(buffer)?;
        self.hash.update(&buffer[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}
