//! Writing a bundle.
//!
//! Owns how files get into the archive. Each file is read twice, first for the hash in the manifest and then for the
//! archive, and its content must be the same both times. Memory use is a few buffers. Blocks.

use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use indicatif::BinaryBytes;

use super::{
    BUFFER_BYTES, BundleError, BundledFile, HashingReader, MANIFEST_LIMIT_BYTES, MANIFEST_NAME, Manifest,
    ended_early_or, file_error,
};
use crate::conversation::running_work::Progress;
use crate::transcript::parts::SessionFile;

/// The zstd level: about as fast as a disk, and compresses a transcript to a fifth.
const COMPRESSION_LEVEL: i32 = 3;

/// Hashes the files of one session for the manifest. `number` distinguishes sessions, starting at 1.
///
/// # Errors
/// [`BundleError`] if a file cannot be read or was shortened.
pub(in crate::conversation) fn hash_files(
    number: usize,
    parts: &[SessionFile],
    progress: &Progress,
) -> Result<Vec<BundledFile>, BundleError> {
    let mut files = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let file = open_part(part)?;
        let mut hashing = HashingReader::new(file, part.bytes, progress);
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, &mut hashing);
        io::copy(&mut reader, &mut io::sink()).map_err(|error| read_error(&part.path, error))?;
        let sha256 = hashing
            .digest()
            .ok_or_else(|| BundleError::Changed(part.path.clone()))?;
        let readable = format!("sessions/{number}/{}", part.name);
        // A name that does not fit into a plain tar header is replaced; the manifest has the real one.
        let fits = tar::Header::new_ustar().set_path(&readable).is_ok();
        files.push(BundledFile {
            path: if fits {
                readable
            } else {
                format!("sessions/{number}/file-{index}")
            },
            name: part.name.clone(),
            known_as: part.borrowed_name.clone(),
            bytes: part.bytes,
            sha256,
        });
    }
    Ok(files)
}

/// Writes a bundle. `sources` are the files of all sessions, in the order of the manifest.
///
/// # Errors
/// [`BundleError`]. The output is then not a valid bundle.
pub(in crate::conversation) fn pack(
    writer: &mut dyn Write,
    target: &Path,
    manifest: &Manifest,
    sources: &[SessionFile],
    progress: &Progress,
) -> Result<(), BundleError> {
    let writing = |error| file_error("write", target)(error);
    let text =
        serde_json::to_vec_pretty(manifest).map_err(|error| BundleError::Invalid(error.to_string()))?;
    if text.len() as u64 > MANIFEST_LIMIT_BYTES {
        return Err(BundleError::Invalid(format!(
            "its manifest would have {}, more than the limit of {}",
            BinaryBytes(text.len() as u64),
            BinaryBytes(MANIFEST_LIMIT_BYTES)
        )));
    }
    let mut encoder = zstd::Encoder::new(writer, COMPRESSION_LEVEL).map_err(writing)?;
    encoder.include_checksum(true).map_err(writing)?;
    let mut archive = tar::Builder::new(encoder);
    let at = u64::try_from(manifest.created_at.as_second()).unwrap_or_default();
    let entry = header(MANIFEST_NAME, text.len() as u64, at).map_err(writing)?;
    archive.append(&entry, text.as_slice()).map_err(writing)?;
    let files = manifest.sessions.iter().flat_map(|session| &session.files);
    for (file, source) in files.zip(sources) {
        let entry = header(&file.path, file.bytes, at).map_err(writing)?;
        let opened = open_part(source)?;
        let mut hashing = HashingReader::new(opened, file.bytes, progress);
        archive
            .append(&entry, &mut hashing)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => BundleError::Changed(source.path.clone()),
                _ => writing(error),
            })?;
        if hashing.digest().as_ref() != Some(&file.sha256) {
            return Err(BundleError::Changed(source.path.clone()));
        }
    }
    let encoder = archive.into_inner().map_err(writing)?;
    encoder.finish().map_err(writing)?;
    Ok(())
}

/// Opens a file that was listed before. If it is missing now, its conversation is being deleted or moved.
fn open_part(part: &SessionFile) -> Result<Box<dyn Read>, BundleError> {
    part.open().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => BundleError::Changed(part.path.clone()),
        _ => file_error("open", &part.path)(error),
    })
}

fn header(path: &str, bytes: u64, at: u64) -> io::Result<tar::Header> {
    let mut header = tar::Header::new_ustar();
    header.set_path(path)?;
    header.set_entry_type(tar::EntryType::Regular);
    header.set_size(bytes);
    header.set_mode(0o600);
    header.set_mtime(at);
    header.set_cksum();
    Ok(header)
}

fn read_error(path: &Path, error: io::Error) -> BundleError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => BundleError::Changed(path.to_owned()),
        _ => ended_early_or(error, |error| file_error("read", path)(error)),
    }
}
