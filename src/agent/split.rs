//! Splits bytes into lines, with a limit on buffered bytes.
//!
//! Pure: takes bytes and returns lines as slices of its own buffer, so that only callers that keep a line copy it. A
//! line over the limit is scanned as it passes and never buffered. Used for the agents' pipes, the clients'
//! sockets, and the loopback agent's standard input.

#[cfg(test)]
mod tests;

use std::ops::Range;

use super::envelope::{IdScanner, OversizedLineIds};

/// An empty buffer that grew to more than this many times its usual size for one long line is freed.
const MAX_IDLE_GROWTH: usize = 8;

/// One line, or what the scan found in a line that was too long.
#[derive(Debug, PartialEq, Eq)]
pub enum SplitLine<'buffer> {
    /// Without its line end, never blank. May not be UTF-8.
    Line(&'buffer [u8]),
    /// Over the limit. It was read to its end and dropped.
    TooLong(OversizedLineIds),
}

/// Splits bytes into lines that end in `\n` or `\r\n`. Skips blank lines.
#[derive(Debug)]
pub struct Splitter {
    buffer: Vec<u8>,
    /// The usual size of the buffer, and so of one read.
    usual_bytes: usize,
    max_line_bytes: usize,
    /// The first byte of the current line.
    start: usize,
    /// Where to continue the search for a line end. It ends at `filled`.
    search_start: usize,
    filled: usize,
    /// What was found so far in a line over the limit.
    skipped_line: Option<IdScanner>,
    /// The line to return next.
    line: Option<Range<usize>>,
    has_ended: bool,
}

impl Splitter {
    /// Creates a splitter for lines of at most `max_line_bytes`, without their ends, that reads `usual_bytes` at
    /// once.
    #[must_use]
    pub fn new(max_line_bytes: usize, usual_bytes: usize) -> Self {
        Self {
            buffer: Vec::new(),
            usual_bytes,
            max_line_bytes,
            start: 0,
            search_start: 0,
            filled: 0,
            skipped_line: None,
            line: None,
            has_ended: false,
        }
    }

    /// Returns the space for the next bytes; never empty. Call it when no line is left.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start == self.filled {
            (self.start, self.search_start, self.filled) = (0, 0, 0);
            if self.buffer.len() > self.usual_bytes * MAX_IDLE_GROWTH {
                self.buffer = Vec::new();
            }
        } else if self.start > 0 {
            self.buffer.copy_within(self.start..self.filled, 0);
            self.search_start -= self.start;
            self.filled -= self.start;
            self.start = 0;
        }
        if self.filled == self.buffer.len() {
            let grown = (self.buffer.len() * 2).max(self.usual_bytes);
            self.buffer.resize(grown, 0);
        }
        self.buffer.get_mut(self.filled..).unwrap_or_default()
    }

    /// Records how many bytes were written to [`space`](Self::space). Zero means end of input: the last line then
    /// needs no line end.
    pub fn advance(&mut self, bytes: usize) {
        self.filled = (self.filled + bytes).min(self.buffer.len());
        self.has_ended = bytes == 0;
    }

    /// Whether the end of input was reached.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether there is a complete line.
    pub fn has_line(&mut self) -> bool {
        while self.line.is_none() {
            let unsearched = self
                .buffer
                .get(self.search_start..self.filled)
                .unwrap_or_default();
            let (end, next) = match memchr::memchr(b'\n', unsearched) {
                Some(length) => (self.search_start + length, self.search_start + length + 1),
                None if self.has_ended && (self.start < self.filled || self.skipped_line.is_some()) => {
                    (self.filled, self.filled)
                }
                None => {
                    self.search_start = self.filled;
                    // A byte beyond the limit may be the carriage return of the line end.
                    if self.skipped_line.is_some() || self.filled - self.start > self.max_line_bytes + 1 {
                        self.skip_to(self.filled);
                        self.start = self.filled;
                    }
                    return false;
                }
            };
            let line = self.buffer.get(self.start..end).unwrap_or_default();
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if self.skipped_line.is_some() || line.len() > self.max_line_bytes {
                self.skip_to(end);
                self.line = Some(0..0);
            } else if !line.iter().all(u8::is_ascii_whitespace) {
                self.line = Some(self.start..self.start + line.len());
            }
            (self.start, self.search_start) = (next, next);
        }
        true
    }

    /// Returns the next line.
    pub fn next_line(&mut self) -> Option<SplitLine<'_>> {
        self.has_line();
        let line = self.line.take()?;
        Some(match self.skipped_line.take() {
            Some(scanner) => SplitLine::TooLong(scanner.finish()),
            None => SplitLine::Line(self.buffer.get(line).unwrap_or_default()),
        })
    }

    fn skip_to(&mut self, end: usize) {
        let bytes = self.buffer.get(self.start..end).unwrap_or_default();
        self.skipped_line.get_or_insert_default().feed(bytes);
    }
}
