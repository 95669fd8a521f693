//! The lines of a transcript with their offsets, from any buffered reader.
//!
//! A line is a run of bytes up to a newline. A last line without a newline is marked as such. One line at a time is
//! buffered, up to a limit. Pure: this module does not know files or the meaning of a line.

use std::borrow::Cow;
use std::io::{self, BufRead, Read, Seek};

/// The longest line that is buffered, in bytes. Prompts with pictures make lines of some tens of megabytes.
/// Longer lines are skipped like garbage, so that a damaged file cannot exhaust the memory.
pub const LINE_LIMIT_BYTES: usize = 256 * 1024 * 1024;
/// How much of a longer line is read at once to skip it, in bytes.
const SKIPPED_BYTES: u64 = 64 * 1024;

/// One line, without its newline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawLine<'a> {
    /// The offset of the line, in bytes from the start of the reader.
    pub offset: u64,
    /// Its bytes; empty if it is oversized.
    pub bytes: &'a [u8],
    /// Whether it was longer than [`LINE_LIMIT_BYTES`] and was skipped.
    pub oversized: bool,
    /// Whether a newline ended it; only the last line can lack one.
    pub ended: bool,
}

/// The text of a line, with bytes that are not UTF-8 replaced.
#[must_use]
pub fn line_text(line: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(trimmed(line))
}

/// Reads lines one after another into the same buffer.
#[derive(Debug)]
pub struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    offset: u64,
}

impl<R: BufRead> Lines<R> {
    /// Lines of `reader`, whose next byte has the offset `offset`.
    pub fn new(reader: R, offset: u64) -> Self {
        Self {
            reader,
            buffer: Vec::new(),
            offset,
        }
    }

    /// The offset of the next byte.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next line, or `None` at the end.
    ///
    /// # Errors
    /// The reader's error. A read that was interrupted is retried.
    pub fn next_line(&mut self) -> io::Result<Option<RawLine<'_>>> {
        self.buffer.clear();
        let offset = self.offset;
        let (mut oversized, mut limit) = (false, LINE_LIMIT_BYTES as u64 + 1);
        loop {
            let mut piece = self.reader.by_ref().take(limit);
            let read = piece.read_until(b'\n', &mut self.buffer)? as u64;
            self.offset += read;
            if read < limit || self.buffer.ends_with(b"\n") {
                break;
            }
            (oversized, limit) = (true, SKIPPED_BYTES);
            self.buffer = Vec::new();
        }
        if self.offset == offset {
            return Ok(None);
        }
        let ended = self.buffer.pop_if(|last| *last == b'\n').is_some();
        if oversized {
            self.buffer.clear();
        }
        Ok(Some(RawLine {
            offset,
            bytes: &self.buffer,
            oversized,
            ended,
        }))
    }
}

/// Seeks to an offset of a file. Keeps the reader's buffer if the offset is within it.
///
/// # Errors
/// When the file cannot be read.
pub fn go_to(reader: &mut impl Seek, offset: u64) -> io::Result<()> {
    let at = reader.stream_position()?;
    // Offsets in a file fit into an `i64`.
    reader.seek_relative(offset.wrapping_sub(at).cast_signed())
}

/// Passes the line at an offset of a file, without its newline, to `read`. Returns `None` if the file ends before it.
///
/// # Errors
/// When the file cannot be read.
pub(super) fn line_at<T>(
    mut reader: impl BufRead + Seek,
    offset: u64,
    read: impl FnOnce(&[u8]) -> Option<T>,
) -> io::Result<Option<T>> {
    go_to(&mut reader, offset)?;
    let mut lines = Lines::new(reader, offset);
    Ok(lines.next_line()?.and_then(|line| read(line.bytes)))
}

/// A line without what may surround its record: a byte order mark, NUL bytes (left by a file system after a
/// crash), white space, the carriage return of a line that was converted on another system.
#[must_use]
pub fn trimmed(line: &[u8]) -> &[u8] {
    let mut rest = line;
    loop {
        rest = match rest {
            [0xEF, 0xBB, 0xBF, tail @ ..] | [0 | b' ' | b'\t' | b'\r', tail @ ..] => tail,
            [head @ .., 0 | b' ' | b'\t' | b'\r' | b'\n'] => head,
            _ => return rest,
        }
    }
}

/// The line as text of the same length: each byte that is not UTF-8 becomes `?`. Positions in the text are
/// positions in the line.
#[must_use]
pub fn text_of_same_length(line: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(line) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => {
            let mut text = String::with_capacity(line.len());
            for chunk in line.utf8_chunks() {
                text.push_str(chunk.valid());
                text.extend(chunk.invalid().iter().map(|_| '?'));
            }
            Cow::Owned(text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_offsets_and_the_unended_one_is_told() {
        let mut lines = Lines::new(&b"ab\n\r\n\nlast"[..], 0);
        let mut seen = Vec::new();
        while let Some(line) = lines.next_line().expect("reading memory") {
            seen.push((line.offset, line.bytes.to_vec(), line.ended));
        }
        assert_eq!(
            seen,
            [
                (0, b"ab".to_vec(), true),
                (3, b"\r".to_vec(), true),
                (5, b"".to_vec(), true),
                (6, b"last".to_vec(), false),
            ]
        );
    }

    #[test]
    fn a_line_is_whole_whatever_the_size_of_the_readers_buffer() {
        let text = b"0123456789\nabc\n";
        for capacity in 1..20 {
            let mut lines = Lines::new(io::BufReader::with_capacity(capacity, &text[..]), 100);
            let first = lines.next_line().expect("reading memory").expect("a line");
            assert_eq!(
                (first.offset, first.bytes, first.ended),
                (100, &b"0123456789"[..], true)
            );
            let second = lines.next_line().expect("reading memory").expect("a line");
            assert_eq!((second.offset, second.bytes), (111, &b"abc"[..]));
            assert_eq!(lines.next_line().expect("reading memory"), None);
        }
    }

    #[test]
    fn what_stands_around_a_record_is_trimmed() {
        for line in [&b"\xEF\xBB\xBF{}"[..], b"{}\r", b"\0\0{}\0\0", b" {} "] {
            assert_eq!(trimmed(line), b"{}");
        }
        assert_eq!(trimmed(b"\0\0\0"), b"");
    }

    #[test]
    fn bad_bytes_keep_their_places() {
        assert_eq!(text_of_same_length(b"a\xFF\xFEb\xE2\x82"), "a??b??");
    }
}
