//! Bytes into lines, with a limit on what is held.
//!
//! Pure: it is given bytes and gives lines as slices of its own buffer, so that a line is copied once, by whoever
//! keeps it. A line over the limit is looked at as it passes and never held.

#[cfg(test)]
mod tests;

use crate::agent::envelope::{IdScanner, Oversized};

/// Size of the buffer, and so of one read, unless a longer line needs more: what a pipe holds.
const BUFFER_BYTES: usize = 64 * 1024;

/// A buffer that grew beyond this for one long line is given back when it is empty.
const MAX_IDLE_BUFFER_BYTES: usize = 1024 * 1024;

/// One line, or what could be learnt of one that was too long.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'buffer> {
    /// Without its line end.
    Line(&'buffer [u8]),
    TooLong(Oversized),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Splitter {
    buffer: Vec<u8>,
    /// First byte of the line that is being read.
    start: usize,
    /// From here to `filled` has not been searched for a line end.
    searched: usize,
    filled: usize,
    max_line_bytes: usize,
    skipping: Option<IdScanner>,
}

impl Splitter {
    pub(super) fn new(max_line_bytes: usize) -> Self {
        Self {
            buffer: vec![0; BUFFER_BYTES],
            start: 0,
            searched: 0,
            filled: 0,
            max_line_bytes,
            skipping: None,
        }
    }

    /// Where the next bytes go; never empty. To be asked for when `next` gives nothing more.
    pub(super) fn space(&mut self) -> &mut [u8] {
        if self.start == self.filled {
            (self.start, self.searched, self.filled) = (0, 0, 0);
            if self.buffer.len() > MAX_IDLE_BUFFER_BYTES {
                self.buffer = vec![0; BUFFER_BYTES];
            }
        } else if self.start > 0 {
            self.buffer.copy_within(self.start..self.filled, 0);
            self.searched -= self.start;
            self.filled -= self.start;
            self.start = 0;
        }
        if self.filled == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        self.buffer.get_mut(self.filled..).unwrap_or_default()
    }

    /// So many bytes have been put there.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.filled = (self.filled + bytes).min(self.buffer.len());
    }

    /// The next line that is complete.
    pub(super) fn next(&mut self) -> Option<Piece<'_>> {
        let unsearched = self.buffer.get(self.searched..self.filled).unwrap_or_default();
        let Some(length) = memchr::memchr(b'\n', unsearched) else {
            self.searched = self.filled;
            if self.skipping.is_some() || self.filled - self.start > self.max_line_bytes {
                self.skip_to(self.filled);
                self.start = self.filled;
            }
            return None;
        };
        let end = self.searched + length;
        let start = self.start;
        if self.skipping.is_some() || end - start > self.max_line_bytes {
            self.skip_to(end);
        }
        self.start = end + 1;
        self.searched = end + 1;
        match self.skipping.take() {
            Some(scanner) => Some(Piece::TooLong(scanner.finish())),
            None => Some(Piece::Line(self.buffer.get(start..end).unwrap_or_default())),
        }
    }

    /// What stands behind the last line end, when no more will come.
    pub(super) fn rest(&mut self) -> &[u8] {
        let start = std::mem::replace(&mut self.start, self.filled);
        self.searched = self.filled;
        if self.skipping.take().is_some() {
            return &[];
        }
        self.buffer.get(start..self.filled).unwrap_or_default()
    }

    fn skip_to(&mut self, end: usize) {
        let scanner = self.skipping.get_or_insert_default();
        scanner.feed(self.buffer.get(self.start..end).unwrap_or_default());
    }
}
