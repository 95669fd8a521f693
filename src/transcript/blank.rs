//! Transcripts without any content, not even damaged records: empty files, and files of zeros as a loss of power leaves them.
//! Blocks.

use std::io::{self, BufRead, BufReader};
use std::path::Path;

use crate::files::open_file;

/// The size of the buffer, in bytes.
const BUFFER_BYTES: usize = 64 * 1024;

/// Whether a file contains no byte but zeros. A file with other content is usually recognized by its first bytes.
///
/// # Errors
/// The system's error; a folder cannot be read.
pub fn is_blank(path: &Path) -> io::Result<bool> {
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, open_file(path)?);
    loop {
        let piece = reader.fill_buf()?;
        if piece.iter().any(|byte| *byte != 0) || piece.is_empty() {
            return Ok(piece.is_empty());
        }
        let read = piece.len();
        reader.consume(read);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_zeros_are_blank() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let zeros = |bytes| vec![0; bytes];
        let late = [zeros(3 * BUFFER_BYTES), b"x".to_vec()].concat();
        for (content, expected) in [
            (zeros(0), true),
            (zeros(1), true),
            (zeros(2 * BUFFER_BYTES + 1), true),
            (b"{}\n".to_vec(), false),
            (b"\n".to_vec(), false),
            (late, false),
        ] {
            fs::write(&path, &content).unwrap();
            assert_eq!(is_blank(&path).unwrap(), expected, "{} bytes", content.len());
        }
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        assert_eq!(is_blank(&pipe).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert!(is_blank(folder.path()).is_err());
        assert!(is_blank(&folder.path().join("none")).is_err());
    }
}
