//! The loop that rewrites the lines of one file into another, for copies, cuts, repairs, moves, restores and imports.
//!
//! Streams the lines of a source, asks for a verdict on each, and writes those that are kept: every byte except the edited
//! parts. A line longer than the limit is streamed without being buffered. Knows no format and no file, and decides nothing
//! about a line.

use std::io::{self, BufRead, Read, Seek, Write};
use std::ops::Range;

use super::fields::{Fields, Json, lenient_text};
use super::lines::trimmed;

/// A line of the source.
#[derive(Debug)]
pub struct SourceLine<'a> {
    /// The offset of the line.
    pub offset: u64,
    /// Its bytes, without the newline. `None` if it is longer than the limit, so that it cannot be edited.
    pub bytes: Option<&'a [u8]>,
    /// Whether a newline ends it. Set only for lines within the limit. Only the last line can lack one.
    pub ended: bool,
}

impl<'a> SourceLine<'a> {
    /// Its bytes.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if it is too long.
    pub fn require_bytes(&self) -> io::Result<&'a [u8]> {
        let too_long = || {
            let what = "a line is longer than can be held";
            io::Error::new(io::ErrorKind::InvalidData, what)
        };
        self.bytes.ok_or_else(too_long)
    }
}

/// What happens to a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Write it, with the edits.
    Keep,
    /// Do not write it.
    Drop,
}

/// The edits to a line.
#[derive(Debug, Default)]
pub struct Edits {
    replacements: Vec<(Range<usize>, Vec<u8>)>,
}

impl Edits {
    /// Replaces a part of the line with this text. Parts must not overlap.
    pub fn replace(&mut self, place: Range<usize>, text: impl Into<Vec<u8>>) {
        self.replacements.push((place, text.into()));
    }

    /// Writes a line with these edits, and clears them for the next line.
    fn write(&mut self, line: &[u8], writer: &mut dyn Write) -> io::Result<()> {
        self.replacements.sort_by_key(|(range, _)| range.start);
        let mut written = 0;
        for (range, text) in &self.replacements {
            writer.write_all(&line[written..range.start])?;
            writer.write_all(text)?;
            written = range.end;
        }
        writer.write_all(&line[written..])
    }

    fn clear(&mut self) {
        self.replacements.clear();
    }
}

/// A change to every line that drops none, such as renaming a folder.
pub trait LineChange {
    /// Edits a line, which is given without its newline. A line that is not a record must stay as it is.
    fn edit(&self, line: &[u8], edits: &mut Edits);
}

/// Reads lines one after another and writes the result of each.
#[derive(Debug)]
pub struct Rewriter<R> {
    reader: R,
    offset: u64,
    line_limit_bytes: usize,
    adds_final_newline: bool,
    line: Vec<u8>,
    edits: Edits,
}

impl<R: BufRead> Rewriter<R> {
    /// Rewrites the lines of `reader`, which must be at the start of the file. Lines longer than `line_limit_bytes` are not buffered.
    pub fn new(reader: R, line_limit_bytes: usize) -> Self {
        Self {
            reader,
            offset: 0,
            line_limit_bytes,
            adds_final_newline: true,
            line: Vec::new(),
            edits: Edits::default(),
        }
    }

    /// Leaves a last line without a newline as it is. By default a newline is added, so that whatever is appended begins a new
    /// line.
    #[must_use]
    pub fn without_final_newline(mut self) -> Self {
        self.adds_final_newline = false;
        self
    }

    /// Rewrites all remaining lines.
    ///
    /// # Errors
    /// The errors of the reader, the writer and `decide`.
    pub fn rewrite_all(
        mut self,
        writer: &mut dyn Write,
        mut decide: impl FnMut(&SourceLine<'_>, &mut Edits) -> io::Result<Verdict>,
    ) -> io::Result<()> {
        while self.rewrite_next(writer, &mut decide)?.is_some() {}
        Ok(())
    }

    /// Rewrites the next line. Returns where the one after it begins, or `None` at the end.
    ///
    /// # Errors
    /// The errors of the reader, the writer and `decide`.
    pub fn rewrite_next(
        &mut self,
        writer: &mut dyn Write,
        decide: impl FnOnce(&SourceLine<'_>, &mut Edits) -> io::Result<Verdict>,
    ) -> io::Result<Option<u64>> {
        self.edits.clear();
        self.fill(self.line_limit_bytes + 1)?;
        let read = self.line.len();
        if read == 0 {
            return Ok(None);
        }
        let ended = self.line.pop_if(|last| *last == b'\n').is_some();
        let is_held = ended || self.line.len() <= self.line_limit_bytes;
        let line = SourceLine {
            offset: self.offset,
            bytes: is_held.then_some(self.line.as_slice()),
            ended,
        };
        let verdict = decide(&line, &mut self.edits)?;
        self.offset += read as u64;
        let is_kept = verdict == Verdict::Keep;
        if is_kept {
            self.edits.write(&self.line, writer)?;
        }
        if !is_held {
            self.line = Vec::new();
            self.pass_line(is_kept.then_some(writer))?;
        } else if is_kept && (ended || self.adds_final_newline) {
            writer.write_all(b"\n")?;
        }
        self.line.clear();
        Ok(Some(self.offset))
    }

    /// Whether the next line begins with these bytes.
    ///
    /// # Errors
    /// The reader's error.
    pub fn begins_with(&mut self, beginning: &[u8]) -> io::Result<bool> {
        self.fill(beginning.len())?;
        Ok(self.line.starts_with(beginning))
    }

    /// Skips the next line without buffering it. Returns where the line after it begins.
    ///
    /// # Errors
    /// The reader's error.
    pub fn skip(&mut self) -> io::Result<u64> {
        let ended = self.line.ends_with(b"\n");
        self.offset += self.line.len() as u64;
        self.line.clear();
        if !ended {
            self.pass_line(None)?;
        }
        Ok(self.offset)
    }

    /// Fills the buffer with up to `bytes` of the next line, including what it already contains.
    fn fill(&mut self, bytes: usize) -> io::Result<()> {
        if self.line.ends_with(b"\n") {
            return Ok(());
        }
        let missing = bytes.saturating_sub(self.line.len()) as u64;
        let mut reader = self.reader.by_ref().take(missing);
        reader.read_until(b'\n', &mut self.line).map(drop)
    }

    /// Reads to the end of a line that is not buffered.
    fn pass_line(&mut self, mut writer: Option<&mut dyn Write>) -> io::Result<()> {
        let mut has_ended = false;
        while !has_ended {
            let available = match self.reader.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                available => available?,
            };
            let newline = memchr::memchr(b'\n', available);
            let count = newline.map_or(available.len(), |newline| newline + 1);
            has_ended = newline.is_some() || count == 0;
            if let Some(writer) = writer.as_mut() {
                writer.write_all(&available[..count])?;
                if count == 0 && self.adds_final_newline {
                    writer.write_all(b"\n")?;
                }
            }
            self.reader.consume(count);
            self.offset += count as u64;
        }
        Ok(())
    }
}

impl<R: BufRead + Seek> Rewriter<R> {
    /// Continues with the line that begins at this byte.
    ///
    /// # Errors
    /// The reader's error.
    pub fn go_to(&mut self, offset: u64) -> io::Result<()> {
        let read = self.offset + self.line.len() as u64;
        if offset != read {
            // Offsets in a file fit into an `i64`. A relative seek keeps the reader's buffer.
            self.reader
                .seek_relative(offset.wrapping_sub(read).cast_signed())?;
        }
        self.line.clear();
        self.offset = offset;
        Ok(())
    }
}

/// A record and the positions of its values in the line.
#[derive(Debug)]
pub struct EditableRecord<'a> {
    /// Its members.
    pub fields: Fields<'a>,
    text: &'a str,
    start: usize,
}

impl<'a> EditableRecord<'a> {
    /// Parses the record in a line, whatever surrounds it. `None` if there is no record.
    #[must_use]
    pub fn parse(line: &'a str) -> Option<Self> {
        let text = std::str::from_utf8(trimmed(line.as_bytes())).ok()?;
        Some(Self {
            fields: Fields::parse(text)?,
            text,
            start: text.as_ptr() as usize - line.as_ptr() as usize,
        })
    }

    /// The position in the line of the value at this path. The path lists member names from the outermost to the innermost.
    #[must_use]
    pub fn position(&self, path: &[&str]) -> Option<Range<usize>> {
        let (name, outer) = path.split_last()?;
        let mut inner = None;
        for name in outer {
            inner = Some(inner.as_ref().unwrap_or(&self.fields).object(name)?);
        }
        let place = inner.as_ref().unwrap_or(&self.fields).range_of(self.text, name)?;
        Some(self.start + place.start..self.start + place.end)
    }

    /// The position of the closing bracket in the line. Members are appended before it.
    #[must_use]
    pub fn end(&self) -> usize {
        self.start + self.text.len() - 1
    }

    /// The position in the line of a part of one of its values.
    #[must_use]
    pub fn position_in_value(&self, value: Json<'_>, part: Range<usize>) -> Range<usize> {
        let start = self.start + value.get().as_ptr() as usize - self.text.as_ptr() as usize;
        start + part.start..start + part.end
    }

    /// The text at this path, and the position of its value.
    #[must_use]
    pub fn text(&self, path: &[&str]) -> Option<(String, Range<usize>)> {
        let place = self.position(path)?;
        let token = &self.text[place.start - self.start..place.end - self.start];
        Some((lenient_text(token)?, place))
    }
}

/// A text as a JSON string.
#[must_use]
pub fn json_string(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    match text.bytes().all(is_plain) {
        true => format!("\"{text}\""),
        false => serde_json::Value::from(text).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Cursor};

    use super::*;

    const HELD: usize = 8;

    /// Drops empty lines, edits short ones, and keeps the rest unchanged.
    fn decide(line: &SourceLine<'_>, edits: &mut Edits) -> io::Result<Verdict> {
        match line.bytes {
            Some(b"") => return Ok(Verdict::Drop),
            Some(bytes) => {
                edits.replace(bytes.len()..bytes.len(), ">");
                edits.replace(0..1, "_");
            }
            None => {}
        }
        Ok(Verdict::Keep)
    }

    #[test]
    fn kept_lines_are_written_with_their_edits_whatever_is_read_at_once() {
        let long = "x".repeat(HELD + 1);
        let table = [
            ("", "", ""),
            ("ab\n\nc", "_b>\n_>\n", "_b>\n_>"),
            (
                "12345678\n12345678",
                "_2345678>\n_2345678>\n",
                "_2345678>\n_2345678>",
            ),
            (
                &format!("{long}\nab\n{long}"),
                &format!("{long}\n_b>\n{long}\n"),
                &format!("{long}\n_b>\n{long}"),
            ),
            ("a\n", "_>\n", "_>\n"),
        ];
        for (text, ended, as_it_ends) in table {
            for size in [1, 7, 4096] {
                let lines = || Rewriter::new(BufReader::with_capacity(size, text.as_bytes()), HELD);
                let mut written = (Vec::new(), Vec::new());
                lines().rewrite_all(&mut written.0, decide).unwrap();
                lines()
                    .without_final_newline()
                    .rewrite_all(&mut written.1, decide)
                    .unwrap();
                let written = (
                    String::from_utf8(written.0).unwrap(),
                    String::from_utf8(written.1).unwrap(),
                );
                assert_eq!(written, (ended.to_owned(), as_it_ends.to_owned()), "{text}");
            }
        }
    }

    #[test]
    fn a_long_line_is_dropped_whole_and_lines_are_found_by_their_offsets() {
        let text = format!("{}\nab\ncd\nef\n", "x".repeat(HELD * 3));
        let mut lines = Rewriter::new(Cursor::new(text.as_bytes()), HELD);
        let mut written = Vec::new();
        let long = lines.rewrite_next(&mut written, |line, _| {
            assert_eq!((line.offset, line.bytes), (0, None));
            Ok(Verdict::Drop)
        });
        let next = long.unwrap().unwrap();
        assert_eq!((&text[next as usize..], &written[..]), ("ab\ncd\nef\n", &b""[..]));
        lines.go_to(next + 6).unwrap();
        lines
            .rewrite_next(&mut written, |_, _| Ok(Verdict::Keep))
            .unwrap();
        lines.go_to(next).unwrap();
        let next = lines
            .rewrite_next(&mut written, |_, _| Ok(Verdict::Keep))
            .unwrap();
        assert_eq!(&text[next.unwrap() as usize..], "cd\nef\n");
        assert_eq!(written, b"ef\nab\n");
    }

    #[test]
    fn the_beginning_of_a_line_is_seen_before_the_line_is_held_or_skipped() {
        let text = format!("{}\nab\n\ncd", "x".repeat(HELD * 3));
        for size in [1, 7, 4096] {
            let mut lines = Rewriter::new(BufReader::with_capacity(size, Cursor::new(&text)), HELD);
            let mut written = Vec::new();
            assert!(lines.begins_with(b"xxx").unwrap());
            assert!(!lines.begins_with(b"xxxy").unwrap());
            let second = lines.skip().unwrap();
            assert_eq!(&text[second as usize..], "ab\n\ncd");
            // The check does not look beyond the end of the line.
            assert!(!lines.begins_with(b"ab\n\n").unwrap() && lines.begins_with(b"ab").unwrap());
            let third = lines.skip().unwrap();
            assert!(!lines.begins_with(b"c").unwrap());
            assert_eq!(lines.skip().unwrap(), third + 1);
            assert!(lines.begins_with(b"c").unwrap());
            lines.go_to(second).unwrap();
            assert!(lines.begins_with(b"a").unwrap());
            lines.rewrite_all(&mut written, |_, _| Ok(Verdict::Keep)).unwrap();
            assert_eq!(written, b"ab\n\ncd\n");
        }
    }

    /// A sparse file of many terabytes with only a few lines.
    #[test]
    fn lines_are_found_however_far_apart_they_are() {
        let mut file = tempfile::tempfile().unwrap();
        let places = [0, 5, 3 << 32, (1 << 43) + 7];
        for place in places {
            file.seek(io::SeekFrom::Start(place)).unwrap();
            file.write_all(b"line\n").unwrap();
        }
        file.rewind().unwrap();
        let mut lines = Rewriter::new(BufReader::new(file), HELD);
        for place in [places[3], places[0], places[2], places[1], places[0], places[3]] {
            let mut written = Vec::new();
            lines.go_to(place).unwrap();
            let next = lines
                .rewrite_next(&mut written, |_, _| Ok(Verdict::Keep))
                .unwrap();
            assert_eq!(
                (next, written.as_slice()),
                (Some(place + 5), b"line\n".as_slice())
            );
        }
    }

    #[test]
    fn values_are_found_by_the_way_to_them() {
        let line = "\u{feff}{\"a\":{\"b\": \"\\u0078\"},\"b\":1,\"a\" : {\"b\":\"last\"}}\0";
        let record = EditableRecord::parse(line).unwrap();
        let (text, place) = record.text(&["a", "b"]).unwrap();
        assert_eq!((text.as_str(), &line[place]), ("last", "\"last\""));
        assert_eq!(&line[record.position(&["b"]).unwrap()], "1");
        assert_eq!(record.text(&["b"]), None);
        assert_eq!(record.position(&["b", "a"]), None);
        assert_eq!(&line[record.end()..], "}\0");
        assert!(EditableRecord::parse("{\"a\":1").is_none());
    }
}
