//! Opens transcripts for buffered reading that is counted by a meter.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use super::TranscriptError;
use super::meter::Metered;
use crate::files::open_with_metadata;

/// The size of the buffer for reading single records, in bytes.
pub(super) const READ_BYTES: usize = 64 * 1024;

/// The size of the buffer for reading a whole file, in bytes.
const WHOLE_FILE_BYTES: usize = 256 * 1024;

/// Opens a transcript at its first byte, to be read as a whole.
///
/// # Errors
/// [`TranscriptError::Io`].
pub(super) fn open(path: &Path) -> Result<BufReader<Metered<File>>, TranscriptError> {
    let (file, metadata) = open_with_metadata(path).map_err(TranscriptError::io("open", path))?;
    Ok(BufReader::with_capacity(
        WHOLE_FILE_BYTES,
        Metered::new(file, metadata.len()),
    ))
}
