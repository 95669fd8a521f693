//! The lines of a text, one after the other, each pruned. None of them is held.

use std::io::{self, BufRead};

use super::{PrunedRecord, Pruner, Scanned, Table};
use crate::transcript::lines::LINE_LIMIT_BYTES;

/// Where a line stands.
#[derive(Debug, Clone, Copy)]
pub(in crate::transcript) struct LinePosition {
    /// Counted from 1.
    pub(in crate::transcript) number: u64,
    /// In bytes from the beginning.
    pub(in crate::transcript) offset: u64,
}

/// A line that was read.
#[derive(Debug)]
pub(in crate::transcript) struct PrunedLine<'a> {
    pub(in crate::transcript) position: LinePosition,
    /// Its length without the newline.
    pub(in crate::transcript) bytes: u64,
    /// Whether a newline ended it; only the last line can lack one.
    pub(in crate::transcript) ended: bool,
    pub(in crate::transcript) what: Scanned<PrunedRecord<'a>>,
}

impl<'a> PrunedLine<'a> {
    /// Whether it is longer than those who read it whole can hold.
    pub(in crate::transcript) fn is_too_long(&self) -> bool {
        self.bytes > LINE_LIMIT_BYTES as u64
    }

    /// What it is for those who read it whole too: one that is too long is no record for them.
    pub(in crate::transcript) fn readable(self) -> Scanned<PrunedRecord<'a>> {
        match self.is_too_long() {
            true => Scanned::Garbage,
            false => self.what,
        }
    }
}

/// Reads the lines.
pub(in crate::transcript) struct PrunedLines<R> {
    reader: R,
    pruner: Pruner,
    /// Of the line that comes next.
    position: LinePosition,
}

impl<R: BufRead> PrunedLines<R> {
    /// Lines of `reader`, whose next byte has the offset `offset`, read as `table` says.
    pub(in crate::transcript) fn new(reader: R, offset: u64, table: &'static Table) -> Self {
        Self {
            reader,
            pruner: Pruner::new(table),
            position: LinePosition { number: 1, offset },
        }
    }

    /// The position of the line that comes next, or behind the last one.
    pub(in crate::transcript) fn position(&self) -> LinePosition {
        self.position
    }

    /// The next line; none behind the last.
    ///
    /// # Errors
    /// What the reader answers, but for an interruption, which is tried again.
    pub(in crate::transcript) fn next_line(&mut self) -> io::Result<Option<PrunedLine<'_>>> {
        let position = self.position;
        let mut offset = position.offset;
        let ended = loop {
            let piece = match self.reader.fill_buf() {
                Ok(piece) => piece,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let is_over = piece.is_empty();
            if is_over && offset == position.offset {
                return Ok(None);
            }
            let (taken, ended) = self.pruner.feed(piece);
            self.reader.consume(taken);
            offset += taken as u64;
            if ended || is_over {
                break ended;
            }
        };
        self.position = LinePosition {
            number: position.number + 1,
            offset,
        };
        Ok(Some(PrunedLine {
            position,
            bytes: offset - position.offset - u64::from(ended),
            ended,
            what: self.pruner.finish(),
        }))
    }
}
