//! The lines of a file, one after another, each with its bytes at hand unless it is very long.
//!
//! Holds a window of the file that grows with the longest line up to a limit; what is longer is read in pieces, and again
//! when it is copied.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// How much is read at once, in bytes.
const PIECE_BYTES: usize = 256 * 1024;

/// The longest line that is held, in bytes.
pub(super) const HELD_LINE_BYTES: usize = 8 * 1024 * 1024;

/// A file, up to where it is to be read.
#[derive(Debug)]
pub(super) struct Source {
    file: File,
    end: u64,
    held_line_bytes: usize,
    window: Vec<u8>,
    /// Where the window begins.
    start: u64,
    /// How much of the window is filled.
    filled: usize,
}

/// A line, without its newline.
#[derive(Debug, Clone)]
pub(super) struct Found {
    /// Where it begins.
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// Whether a newline ends it.
    pub(super) ended: bool,
    /// Where it is in the window; none where it is too long.
    place: Option<Range<usize>>,
}

impl Found {
    /// Where the next one begins.
    pub(super) fn next(&self) -> u64 {
        self.offset + self.bytes + u64::from(self.ended)
    }
}

impl Source {
    /// A file, of which nothing is read from `end` on.
    pub(super) fn new(file: File, end: u64, held_line_bytes: usize) -> Self {
        Self {
            file,
            end,
            held_line_bytes,
            window: vec![0; PIECE_BYTES.min(held_line_bytes)],
            start: 0,
            filled: 0,
        }
    }

    /// The line that begins at `offset`, which is behind the one before; none at the end.
    ///
    /// # Errors
    /// What the system answers.
    pub(super) fn line(&mut self, offset: u64) -> io::Result<Option<Found>> {
        let mut at = self.at(offset);
        let mut searched = at;
        loop {
            let fresh = self.window.get(searched..self.filled).unwrap_or_default();
            if let Some(newline) = memchr::memchr(b'\n', fresh) {
                return Ok(Some(Self::found(offset, at..searched + newline, true)));
            }
            if self.start + self.filled as u64 >= self.end {
                let place = at..self.filled;
                return Ok((!place.is_empty()).then(|| Self::found(offset, place, false)));
            }
            if self.filled - at >= self.held_line_bytes {
                return self.long(offset).map(Some);
            }
            self.window.copy_within(at..self.filled, 0);
            (self.start, self.filled) = (offset, self.filled - at);
            (at, searched) = (0, self.filled);
            if self.filled == self.window.len() {
                self.window.resize(self.filled * 2, 0);
            }
            self.fill()?;
        }
    }

    /// The bytes of a line that is not too long.
    pub(super) fn held(&self, line: &Found) -> Option<&[u8]> {
        self.window.get(line.place.clone()?)
    }

    /// Hands on the bytes of a line, some at a time.
    ///
    /// # Errors
    /// What the system answers.
    pub(super) fn each_piece(&self, line: &Found, mut take: impl FnMut(&[u8])) -> io::Result<()> {
        if let Some(held) = self.held(line) {
            take(held);
            return Ok(());
        }
        self.pieces(line.offset..line.offset + line.bytes, |piece| {
            take(piece);
            Ok(())
        })
    }

    /// Writes some bytes of a line.
    ///
    /// # Errors
    /// What the system or the writer answers.
    pub(super) fn copy(&self, line: &Found, range: Range<usize>, writer: &mut dyn Write) -> io::Result<()> {
        match self.held(line) {
            Some(held) => writer.write_all(held.get(range).unwrap_or_default()),
            None => {
                let place = line.offset + range.start as u64..line.offset + range.end as u64;
                self.pieces(place, |piece| writer.write_all(piece))
            }
        }
    }

    fn found(offset: u64, place: Range<usize>, ended: bool) -> Found {
        Found {
            offset,
            bytes: place.len() as u64,
            ended,
            place: Some(place),
        }
    }

    /// Where an offset is in the window, which may begin anew for it.
    fn at(&mut self, offset: u64) -> usize {
        let at = offset
            .checked_sub(self.start)
            .and_then(|at| usize::try_from(at).ok());
        at.filter(|at| *at <= self.filled).unwrap_or_else(|| {
            (self.start, self.filled) = (offset, 0);
            0
        })
    }

    /// Reads on. A file that ends early has become shorter.
    fn fill(&mut self) -> io::Result<()> {
        let behind = self.start + self.filled as u64;
        let room = self.window.len() - self.filled;
        let wanted = usize::try_from(self.end - behind).map_or(room, |left| left.min(room));
        let free = self.window.get_mut(self.filled..self.filled + wanted);
        match read_at(&self.file, free.unwrap_or_default(), behind)? {
            0 => self.end = behind,
            read => self.filled += read,
        }
        Ok(())
    }

    /// A line whose end is not in the window.
    fn long(&self, offset: u64) -> io::Result<Found> {
        let (mut bytes, mut ended) = (0, false);
        self.pieces(offset..self.end, |piece| {
            let newline = memchr::memchr(b'\n', piece);
            if !ended {
                bytes += newline.unwrap_or(piece.len()) as u64;
                ended = newline.is_some();
            }
            match ended {
                true => Err(io::ErrorKind::Other.into()),
                false => Ok(()),
            }
        })
        .or_else(|error| if ended { Ok(()) } else { Err(error) })?;
        Ok(Found {
            offset,
            bytes,
            ended,
            place: None,
        })
    }

    fn pieces(&self, place: Range<u64>, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut piece = vec![0; PIECE_BYTES];
        let mut at = place.start;
        while at < place.end {
            let wanted = usize::try_from(place.end - at).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
            let read = read_at(&self.file, piece.get_mut(..wanted).unwrap_or_default(), at)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            take(piece.get(..read).unwrap_or_default())?;
            at += read as u64;
        }
        Ok(())
    }
}

fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match file.read_at(buffer, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}
