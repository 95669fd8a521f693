//! The records of a file, one after the other, and what is noted of each.

use std::io::{self, BufRead};

use super::{Noted, Scanned, Scanner};

/// Reads them without holding a line. What is no record is passed over.
pub(in crate::transcript) struct Records<R, N: Noted> {
    reader: R,
    scanner: Scanner<N>,
    offset: u64,
    is_over: bool,
}

impl<R: BufRead, N: Noted> Records<R, N> {
    /// Those from where the reader stands.
    pub(in crate::transcript) fn of(reader: R) -> Self {
        Self {
            reader,
            scanner: Scanner::default(),
            offset: 0,
            is_over: false,
        }
    }

    /// The next one, and how many bytes behind the beginning its line begins; none behind the last.
    ///
    /// # Errors
    /// What the reader answers.
    pub(in crate::transcript) fn next_record(&mut self) -> io::Result<Option<(u64, N::Note)>> {
        let mut line = self.offset;
        while !self.is_over {
            let piece = match self.reader.fill_buf() {
                Ok(piece) => piece,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.is_over = piece.is_empty();
            let (taken, ended) = self.scanner.feed(piece);
            self.reader.consume(taken);
            self.offset += taken as u64;
            if !ended && !self.is_over {
                continue;
            }
            if let Scanned::Record(note) = self.scanner.finish() {
                return Ok(Some((line, note)));
            }
            line = self.offset;
        }
        Ok(None)
    }
}
