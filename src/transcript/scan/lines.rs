//! The pruned lines of a text, one after another. No line is buffered.

use std::io::{self, BufRead};

use super::{PruneTable, PrunedRecord, Pruner, Scanned};
use crate::transcript::lines::LINE_LIMIT_BYTES;

/// The position of a line.
#[derive(Debug, Clone, Copy)]
pub(in crate::transcript) struct LinePosition {
    /// The number of the line, from 1.
    pub(in crate::transcript) number: u64,
    /// The offset in bytes from the beginning.
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
    pub(in crate::transcript) content: Scanned<PrunedRecord<'a>>,
}

impl<'a> PrunedLine<'a> {
    /// Whether it is longer than the limit of the readers that buffer whole lines.
    pub(in crate::transcript) fn is_too_long(&self) -> bool {
        self.bytes > LINE_LIMIT_BYTES as u64
    }

    /// The content for readers that buffer whole lines: a line that is too long is not a record for them.
    pub(in crate::transcript) fn into_readable(self) -> Scanned<PrunedRecord<'a>> {
        match self.is_too_long() {
            true => Scanned::Garbage,
            false => self.content,
        }
    }
}

/// Reads the lines.
pub(in crate::transcript) struct PrunedLines<R> {
    reader: R,
    pruner: Pruner,
    /// The position of the next line.
    position: LinePosition,
}

impl<R: BufRead> PrunedLines<R> {
    /// Lines of `reader`, whose next byte has the offset `offset`, read as `table` says.
    pub(in crate::transcript) fn new(reader: R, offset: u64, table: &'static PruneTable) -> Self {
        Self {
            reader,
            pruner: Pruner::new(table),
            position: LinePosition { number: 1, offset },
        }
    }

    /// The position of the next line, or of the end after the last one.
    pub(in crate::transcript) fn position(&self) -> LinePosition {
        self.position
    }

    /// The next line, or `None` after the last one.
    ///
    /// # Errors
    /// The reader's error. A read that was interrupted is retried.
    pub(in crate::transcript) fn next_line(&mut self) -> io::Result<Option<PrunedLine<'_>>> {
        let position = self.position;
        let mut offset = position.offset;
        let ended = loop {
            let piece = match self.reader.fill_buf() {
                Ok(piece) => piece,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let is_at_end = piece.is_empty();
            if is_at_end && offset == position.offset {
                return Ok(None);
            }
            let (consumed, ended) = self.pruner.feed(piece);
            self.reader.consume(consumed);
            offset += consumed as u64;
            if ended || is_at_end {
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
            content: self.pruner.finish(),
        }))
    }
}
