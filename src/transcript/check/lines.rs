//! The lines of a text for a check, each looked at in two ways at once, and none of them held.

use std::io::{self, BufRead};

use crate::transcript::scan::{Noted, Scanned, Scanner};

/// Where a line stands.
#[derive(Debug, Clone, Copy)]
pub(in crate::transcript) struct Place {
    /// Counted from 1.
    pub(in crate::transcript) number: u64,
    /// In bytes from the beginning.
    pub(in crate::transcript) offset: u64,
}

/// A line, and what either way of looking at it has noted.
#[derive(Debug)]
pub(in crate::transcript) struct CheckedLine<A, B> {
    pub(in crate::transcript) place: Place,
    /// Its length without the newline.
    pub(in crate::transcript) bytes: u64,
    /// Whether a newline ended it; only the last line can lack one.
    pub(in crate::transcript) ended: bool,
    pub(in crate::transcript) one: Scanned<A>,
    pub(in crate::transcript) other: Scanned<B>,
}

/// Hands on each line, from the first byte on.
///
/// # Errors
/// What the reader answers, with the number of the line in which it did.
pub(in crate::transcript) fn each_line<A: Noted, B: Noted>(
    mut reader: impl BufRead,
    mut take: impl FnMut(CheckedLine<A::Note, B::Note>),
) -> Result<(), (u64, io::Error)> {
    let (mut one, mut other) = (Scanner::<A>::default(), Scanner::<B>::default());
    let mut place = Place { number: 1, offset: 0 };
    let mut offset = 0;
    loop {
        let piece = match reader.fill_buf() {
            Ok(piece) => piece,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err((place.number, error)),
        };
        let is_over = piece.is_empty();
        if is_over && offset == place.offset {
            return Ok(());
        }
        let (taken, ended) = one.feed(piece);
        other.feed(&piece[..taken]);
        reader.consume(taken);
        offset += taken as u64;
        if !ended && !is_over {
            continue;
        }
        take(CheckedLine {
            place,
            bytes: offset - place.offset - u64::from(ended),
            ended,
            one: one.finish(),
            other: other.finish(),
        });
        place = Place {
            number: place.number + 1,
            offset,
        };
    }
}
