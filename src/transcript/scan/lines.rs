//! The lines of a text, one after the other, and what is noted of each. None of them is held.

use std::io::{self, BufRead};

use super::{Noted, Scanned, Scanner};
use crate::transcript::lines::LINE_LIMIT_BYTES;

/// What reads a line in pieces: a scanner, or two that look at the same bytes.
pub(in crate::transcript) trait Scan: Default {
    /// What a line turned out to be.
    type Line;

    /// Reads on to the end of the line or of `bytes`: how many bytes were read, and whether the last of them was the
    /// newline.
    fn feed(&mut self, bytes: &[u8]) -> (usize, bool);

    /// What the line was, when it is over.
    fn finish(&mut self) -> Self::Line;
}

impl<N: Noted> Scan for Scanner<N> {
    type Line = Scanned<N::Note>;

    fn feed(&mut self, bytes: &[u8]) -> (usize, bool) {
        Self::feed(self, bytes)
    }

    fn finish(&mut self) -> Self::Line {
        Self::finish(self)
    }
}

impl<A: Noted, B: Noted> Scan for (Scanner<A>, Scanner<B>) {
    type Line = (Scanned<A::Note>, Scanned<B::Note>);

    fn feed(&mut self, bytes: &[u8]) -> (usize, bool) {
        let (taken, ended) = self.0.feed(bytes);
        self.1.feed(&bytes[..taken]);
        (taken, ended)
    }

    fn finish(&mut self) -> Self::Line {
        (self.0.finish(), self.1.finish())
    }
}

/// Where a line stands.
#[derive(Debug, Clone, Copy)]
pub(in crate::transcript) struct Place {
    /// Counted from 1.
    pub(in crate::transcript) number: u64,
    /// In bytes from the beginning.
    pub(in crate::transcript) offset: u64,
}

/// A line that was read.
#[derive(Debug)]
pub(in crate::transcript) struct ScannedLine<T> {
    pub(in crate::transcript) place: Place,
    /// Its length without the newline.
    pub(in crate::transcript) bytes: u64,
    /// Whether a newline ended it; only the last line can lack one.
    pub(in crate::transcript) ended: bool,
    pub(in crate::transcript) what: T,
}

impl<T> ScannedLine<T> {
    /// Whether it is longer than those who read it whole can hold.
    pub(in crate::transcript) fn is_too_long(&self) -> bool {
        self.bytes > LINE_LIMIT_BYTES as u64
    }
}

impl<N> ScannedLine<Scanned<N>> {
    /// What it is for those who read it whole too: one that is too long is no record for them.
    pub(in crate::transcript) fn readable(self) -> Scanned<N> {
        match self.is_too_long() {
            true => Scanned::Garbage,
            false => self.what,
        }
    }
}

/// Reads the lines.
pub(in crate::transcript) struct ScannedLines<R, S> {
    reader: R,
    scanner: S,
    /// Of the line that comes next.
    place: Place,
}

impl<R: BufRead, S: Scan> ScannedLines<R, S> {
    /// Lines of `reader`, whose next byte has the offset `offset`.
    pub(in crate::transcript) fn new(reader: R, offset: u64) -> Self {
        Self {
            reader,
            scanner: S::default(),
            place: Place { number: 1, offset },
        }
    }

    /// The place of the line that comes next, or behind the last one.
    pub(in crate::transcript) fn place(&self) -> Place {
        self.place
    }

    /// The next line; none behind the last.
    ///
    /// # Errors
    /// What the reader answers, but for an interruption, which is tried again.
    pub(in crate::transcript) fn next_line(&mut self) -> io::Result<Option<ScannedLine<S::Line>>> {
        let place = self.place;
        let mut offset = place.offset;
        loop {
            let piece = match self.reader.fill_buf() {
                Ok(piece) => piece,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let is_over = piece.is_empty();
            if is_over && offset == place.offset {
                return Ok(None);
            }
            let (taken, ended) = self.scanner.feed(piece);
            self.reader.consume(taken);
            offset += taken as u64;
            if !ended && !is_over {
                continue;
            }
            self.place = Place {
                number: place.number + 1,
                offset,
            };
            return Ok(Some(ScannedLine {
                place,
                bytes: offset - place.offset - u64::from(ended),
                ended,
                what: self.scanner.finish(),
            }));
        }
    }
}

impl<R: BufRead, N: Noted> ScannedLines<R, Scanner<N>> {
    /// The next record, and where its line begins; none behind the last. What is no record is passed over.
    ///
    /// # Errors
    /// What the reader answers.
    pub(in crate::transcript) fn next_record(&mut self) -> io::Result<Option<(u64, N::Note)>> {
        while let Some(line) = self.next_line()? {
            if let Scanned::Record(note) = line.what {
                return Ok(Some((line.place.offset, note)));
            }
        }
        Ok(None)
    }
}
