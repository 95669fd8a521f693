//! The lines that a client sends.
//!
//! Owns the reading of one connection. Knows nothing about requests but where the `id` of one would stand, so that a line
//! that is too long to be held can still be answered.

use std::io;

use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::envelope::is_id;
use crate::agent::split::{Piece, Splitter};

/// How much is read at once. Little, because every idle connection holds it.
const READ_BYTES: usize = 8 * 1024;

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

/// Reads lines; the last one needs no line ending.
#[derive(Debug)]
pub struct LineReader<R> {
    source: R,
    splitter: Splitter,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// A reader of lines of at most `limit_bytes`, their endings not counted.
    pub fn new(source: R, limit_bytes: usize) -> Self {
        let splitter = Splitter::new(limit_bytes, READ_BYTES);
        Self { source, splitter }
    }

    /// The next line, or none at the end of input.
    ///
    /// Cancel-safe: dropping the future loses nothing that was read.
    ///
    /// # Errors
    /// What reading from the source fails with; a reset by the peer among them.
    pub async fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        while !self.splitter.has_line() && !self.splitter.has_ended() {
            let read = self.source.read(self.splitter.space()).await?;
            self.splitter.advance(read);
        }
        Ok(self.splitter.next_line().map(|piece| match piece {
            Piece::Line(line) => Line::Full(line),
            Piece::TooLong { found, bytes } => Line::TooLong {
                id: found.id.and_then(request_id),
                bytes_seen: bytes,
            },
        }))
    }

    /// What the lines are read from.
    pub fn source(&self) -> &R {
        &self.source
    }
}

/// The id of a request as it was written, if it is one.
fn request_id(text: String) -> Option<Box<RawValue>> {
    RawValue::from_string(text).ok().filter(|raw| is_id(raw))
}

#[cfg(test)]
mod tests {
    use super::request_id;

    #[test]
    fn only_what_can_be_an_id_is_answered() {
        for (text, is_id) in [
            ("7", true),
            (r#""x""#, true),
            ("null", true),
            ("tru", false),
            ("-1.5", true),
            ("true", false),
        ] {
            assert_eq!(request_id(text.to_owned()).is_some(), is_id, "{text}");
        }
    }
}
