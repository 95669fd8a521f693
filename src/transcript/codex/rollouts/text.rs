//! The text of a rollout's file, compressed or not, as one reader.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use crate::files::open_with_metadata;
use crate::transcript::TranscriptError;
use crate::transcript::codex::unpacked::Unpacked;
use crate::transcript::file_read::Identity;
use crate::transcript::meter::Metered;
use crate::transcript::reading::READ_BYTES;

/// The text of a rollout.
#[derive(Debug)]
pub(super) enum Text {
    Plain(BufReader<Metered<File>>),
    Packed(Box<Unpacked<Metered<File>>>),
}

impl Text {
    /// The text, and what its file is before any of it is read.
    pub(super) fn open(path: &Path) -> Result<(Self, Identity), TranscriptError> {
        let open = || -> io::Result<(Self, Identity)> {
            let (file, metadata) = open_with_metadata(path)?;
            let identity = Identity::of(&metadata);
            // How much of it will be read is not known: of some only the first line.
            let file = Metered::new(file, 0);
            if path.extension().is_some_and(|extension| extension == "zst") {
                return Ok((Self::Packed(Box::new(Unpacked::new(file)?)), identity));
            }
            let text = BufReader::with_capacity(READ_BYTES, file);
            Ok((Self::Plain(text), identity))
        };
        open().map_err(TranscriptError::io("open", path))
    }
}

impl Read for Text {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(text) => text.read(buffer),
            Self::Packed(text) => text.read(buffer),
        }
    }
}

impl BufRead for Text {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match self {
            Self::Plain(text) => text.fill_buf(),
            Self::Packed(text) => text.fill_buf(),
        }
    }

    fn consume(&mut self, amount: usize) {
        match self {
            Self::Plain(text) => text.consume(amount),
            Self::Packed(text) => text.consume(amount),
        }
    }
}

impl Seek for Text {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            Self::Plain(text) => text.seek(to),
            Self::Packed(text) => text.seek(to),
        }
    }
}
