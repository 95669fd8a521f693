//! Reads the text of a rollout's file, compressed or not.

use std::fmt::Debug;
use std::io::{self, BufRead, BufReader, Seek};
use std::path::Path;

use crate::files::open_with_metadata;
use crate::transcript::TranscriptError;
use crate::transcript::codex::decompressed::DecompressedReader;
use crate::transcript::codex::is_compressed;
use crate::transcript::file_read::{BeforeRead, FileVersion};
use crate::transcript::meter::Metered;
use crate::transcript::reading::READ_BYTES;

/// The text of a rollout.
pub(super) trait RolloutText: BufRead + Seek + Debug + Send {}

impl<R: BufRead + Seek + Debug + Send> RolloutText for R {}

/// Opens the text of a rollout. Also returns the state of the file before the read.
pub(super) fn open(path: &Path) -> Result<(Box<dyn RolloutText>, BeforeRead), TranscriptError> {
    let open = || -> io::Result<(Box<dyn RolloutText>, BeforeRead)> {
        let (file, metadata) = open_with_metadata(path)?;
        let before = BeforeRead::of(&file, FileVersion::of(&metadata));
        // The number of bytes that will be read is unknown: for some files only the first line.
        let file = Metered::new(file, 0);
        let text: Box<dyn RolloutText> = match is_compressed(path) {
            true => Box::new(DecompressedReader::new(file)?),
            false => Box::new(BufReader::with_capacity(READ_BYTES, file)),
        };
        Ok((text, before))
    };
    open().map_err(TranscriptError::io("open", path))
}
