//! Bytes cut into lines, with a limit on the length of a line that is held.
//!
//! Owns the read buffer of one connection. Knows nothing about requests but where the `id` of one would stand, so
//! that a line that is too long to be held can still be answered.

use std::io;

use jsonrpsee::types::Id;
use memchr::memchr;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::agent::envelope::IdScanner;

#[cfg(test)]
mod tests;

/// Room that is kept free for each read. Small, because every idle connection holds it.
const READ_CHUNK_BYTES: usize = 8 * 1024;

/// Capacity above which the buffer is given back once the long line that made it grow is done with.
const KEPT_BUFFER_BYTES: usize = 64 * 1024;

/// One line of input.
#[derive(Debug)]
pub enum Line<'a> {
    /// A line within the limit, without its line ending, never blank. Not checked to be UTF-8.
    Full(&'a [u8]),
    /// A line over the limit. It was read to its end and thrown away.
    TooLong {
        /// The top-level `id` of the JSON object that the line held, where one could be found.
        id: Option<Box<RawValue>>,
        /// How long the line was, without its line ending.
        bytes_seen: u64,
    },
}

/// Cuts a byte stream into lines that end in `\n` or `\r\n`; the last one needs no ending. Blank lines are skipped.
///
/// A line over the limit is scanned for its id and dropped as it comes, so that the buffer never holds more than the
/// limit and one read.
#[derive(Debug)]
pub struct LineReader<R> {
    source: R,
    limit_bytes: usize,
    buffer: Vec<u8>,
    /// Where the current line begins in the buffer.
    start: usize,
    /// How far the buffer has been searched for a line ending; never before `start`.
    searched: usize,
    /// Set while the rest of a line over the limit is being dropped.
    oversized: Option<Oversized>,
    ended: bool,
}

#[derive(Debug)]
struct Oversized {
    scanner: IdScanner,
    bytes_seen: u64,
    /// A carriage return that may turn out to be part of the line ending.
    ends_in_return: bool,
}

enum Found {
    Full {
        start: usize,
        end: usize,
    },
    TooLong {
        id: Option<Box<RawValue>>,
        bytes_seen: u64,
    },
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// A reader of lines of at most `limit_bytes`, their endings not counted.
    pub fn new(source: R, limit_bytes: usize) -> Self {
        Self {
            source,
            limit_bytes,
            buffer: Vec::new(),
            start: 0,
            searched: 0,
            oversized: None,
            ended: false,
        }
    }

    /// The next line, or none at the end of input.
    ///
    /// Cancel-safe: dropping the future loses nothing that was read.
    ///
    /// # Errors
    /// What reading from the source fails with; a reset by the peer among them.
    pub async fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        let found = self.find_line().await?;
        Ok(found.map(|found| match found {
            Found::Full { start, end } => Line::Full(&self.buffer[start..end]),
            Found::TooLong { id, bytes_seen } => Line::TooLong { id, bytes_seen },
        }))
    }

    /// What the lines are read from.
    pub fn source(&self) -> &R {
        &self.source
    }

    async fn find_line(&mut self) -> io::Result<Option<Found>> {
        loop {
            if let Some(found) = self.take_buffered() {
                return Ok(Some(found));
            }
            if self.ended {
                return Ok(self.take_unterminated());
            }
            self.make_room();
            if self.source.read_buf(&mut self.buffer).await? == 0 {
                self.ended = true;
            }
        }
    }

    /// The next line that has its ending in the buffer.
    fn take_buffered(&mut self) -> Option<Found> {
        loop {
            let Some(offset) = memchr(b'\n', &self.buffer[self.searched..]) else {
                self.searched = self.buffer.len();
                // One byte more than the limit may be the carriage return of the ending.
                if self.oversized.is_some() || self.searched - self.start > self.limit_bytes + 1 {
                    self.drop_held();
                }
                return None;
            };
            let (start, end) = (self.start, self.searched + offset);
            self.start = end + 1;
            self.searched = end + 1;
            if let Some(found) = self.finish(start, end) {
                return Some(found);
            }
        }
    }

    /// What follows the last line ending, once the input has ended.
    fn take_unterminated(&mut self) -> Option<Found> {
        let (start, end) = (self.start, self.buffer.len());
        self.start = end;
        self.searched = end;
        self.finish(start, end)
    }

    /// Turns the end of a line, whose beginning may have been dropped already, into a result; none if it is blank.
    fn finish(&mut self, start: usize, end: usize) -> Option<Found> {
        if self.oversized.is_none() {
            let line = &self.buffer[start..end];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.len() <= self.limit_bytes {
                let blank = line.iter().all(u8::is_ascii_whitespace);
                return (!blank).then_some(Found::Full {
                    start,
                    end: start + line.len(),
                });
            }
        }
        let mut oversized = self.oversized.take().unwrap_or_else(Oversized::new);
        oversized.feed(&self.buffer[start..end]);
        Some(oversized.finish())
    }

    /// Scans what is held of a line over the limit, and forgets it.
    fn drop_held(&mut self) {
        self.oversized
            .get_or_insert_with(Oversized::new)
            .feed(&self.buffer[self.start..]);
        self.buffer.clear();
        self.start = 0;
        self.searched = 0;
    }

    /// Makes room for a read. Moves each byte at most once, since a line that stands at the front stays there.
    fn make_room(&mut self) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.searched -= self.start;
            self.start = 0;
        }
        if self.buffer.capacity() > KEPT_BUFFER_BYTES && self.buffer.len() < READ_CHUNK_BYTES {
            self.buffer.shrink_to(READ_CHUNK_BYTES);
        }
        self.buffer.reserve(READ_CHUNK_BYTES);
    }
}

impl Oversized {
    fn new() -> Self {
        Self {
            scanner: IdScanner::new(),
            bytes_seen: 0,
            ends_in_return: false,
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        if let Some(last) = bytes.last() {
            self.ends_in_return = *last == b'\r';
            self.bytes_seen += bytes.len() as u64;
            self.scanner.feed(bytes);
        }
    }

    fn finish(self) -> Found {
        Found::TooLong {
            id: self.scanner.finish().id.and_then(request_id),
            bytes_seen: self.bytes_seen - u64::from(self.ends_in_return),
        }
    }
}

/// The id of a request as it was written, if it is one.
fn request_id(text: String) -> Option<Box<RawValue>> {
    serde_json::from_str::<Id<'_>>(&text).ok()?;
    RawValue::from_string(text).ok()
}
