//! Reading a bundle.
//!
//! A bundle is not trusted: it may be incomplete or malicious. Its entries must be exactly those of the manifest, in
//! that order, as regular files with those sizes and hashes. The name of an entry never becomes a path. The manifest
//! limits how much is written. Blocks.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{
    BUFFER_BYTES, BUNDLE_FORMAT, BUNDLE_VERSION, BundleError, HashingReader, MANIFEST_LIMIT_BYTES,
    MANIFEST_NAME, Manifest, ended_early_or, file_error,
};
use crate::conversation::running_work::Progress;
use crate::files::is_passing;

/// The limit on the decompression window, as a power of two in bytes: four times the window of bundles written here, and little
/// enough to be harmless.
const WINDOW_LOG_LIMIT: u32 = 23;

/// The limit for the zero padding after the last entry, in bytes: tar pads the end of an archive.
const PADDING_LIMIT_BYTES: u64 = 1024 * 1024;

/// The first bytes of a zstd file.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

type Archive = tar::Archive<zstd::Decoder<'static, BufReader<File>>>;

/// Reads and checks the manifest of a bundle.
///
/// # Errors
/// [`BundleError`] if the file cannot be read, is not a bundle, or has a newer version.
pub(in crate::conversation) fn manifest(path: &Path) -> Result<Manifest, BundleError> {
    let mut archive = open(path)?;
    let mut entries = archive.entries().map_err(invalid_bundle(path))?.raw(true);
    let mut entry = next_entry(path, &mut entries)?.ok_or_else(|| not_a_bundle(path))?;
    if entry.path_bytes() != MANIFEST_NAME.as_bytes()
        || !is_plain(&entry)
        || entry.size() > MANIFEST_LIMIT_BYTES
    {
        return Err(not_a_bundle(path));
    }
    let mut text = Vec::new();
    entry.read_to_end(&mut text).map_err(invalid_bundle(path))?;
    read_manifest(&text).map_err(|error| match error {
        BundleError::Invalid(why) => BundleError::Invalid(format!(
            "the manifest of {} cannot be used: {why}",
            path.display()
        )),
        other => other,
    })
}

pub(super) fn read_manifest(text: &[u8]) -> Result<Manifest, BundleError> {
    #[derive(Deserialize)]
    struct Version {
        format: String,
        version: u32,
    }
    let invalid = |error: serde_json::Error| BundleError::Invalid(error.to_string());
    let header: Version = serde_json::from_slice(text).map_err(invalid)?;
    if header.format != BUNDLE_FORMAT {
        return Err(BundleError::Invalid(format!(
            "its format is {:?}, not a session bundle",
            header.format
        )));
    }
    if header.version > BUNDLE_VERSION {
        return Err(BundleError::NewerVersion(header.version));
    }
    let manifest: Manifest = serde_json::from_slice(text).map_err(invalid)?;
    manifest.check().map_err(BundleError::Invalid)?;
    Ok(manifest)
}

/// Writes all files of a bundle into the empty `folder`, numbered from 0. `manifest` must be the one read from this
/// file. Returns the paths in the order of the manifest. All files have been verified when this returns.
///
/// # Errors
/// [`BundleError`]. The caller deletes what was written so far.
pub(in crate::conversation) fn unpack(
    path: &Path,
    manifest: &Manifest,
    folder: &Path,
    progress: &Progress,
) -> Result<Vec<PathBuf>, BundleError> {
    // For a while each file exists twice: here and at its destination, which may be on another disk.
    check_room(folder, manifest.bytes().saturating_mul(2))?;
    let mut archive = open(path)?;
    let mut entries = archive.entries().map_err(invalid_bundle(path))?.raw(true);
    // Skips the manifest, which was checked before; the next entries are compared with it.
    next_entry(path, &mut entries)?;
    let mut written = Vec::new();
    for file in manifest.sessions.iter().flat_map(|session| &session.files) {
        let Some(mut entry) = next_entry(path, &mut entries)? else {
            return Err(BundleError::Invalid(format!(
                "{} ends before {}",
                path.display(),
                file.path
            )));
        };
        let is_expected = entry.path_bytes() == file.path.as_bytes() && is_plain(&entry);
        if !is_expected || entry.size() != file.bytes {
            return Err(BundleError::Invalid(format!(
                "{} does not hold {} as its manifest says",
                path.display(),
                file.path
            )));
        }
        let target = folder.join(written.len().to_string());
        let mut output = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&target)
            .map_err(file_error("create", &target))?;
        let mut hashing = HashingReader::new(&mut entry, file.bytes, progress);
        copy(&mut hashing, &mut output).map_err(|failure| match failure {
            CopyFailure::Reading(error) => ended_early_or(error, invalid_bundle(path)),
            CopyFailure::Writing(error) => file_error("write", &target)(error),
        })?;
        if hashing
            .digest()
            .is_none_or(|digest| !digest.eq_ignore_ascii_case(&file.sha256))
        {
            return Err(BundleError::Invalid(format!(
                "{} is damaged: {} is not what its manifest says",
                path.display(),
                file.path
            )));
        }
        written.push(target);
    }
    if next_entry(path, &mut entries)?.is_some() {
        return Err(BundleError::Invalid(format!(
            "{} holds more than its manifest says",
            path.display()
        )));
    }
    check_end(path, archive.into_inner())?;
    Ok(written)
}

/// Checks that `needed` bytes fit on the disk of a folder. If the file system does not say, writing finds out.
fn check_room(folder: &Path, needed: u64) -> Result<(), BundleError> {
    let Ok(disk) = rustix::fs::statvfs(folder) else {
        return Ok(());
    };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    // Some file systems report no size.
    if disk.f_blocks == 0 || needed <= free {
        return Ok(());
    }
    Err(BundleError::NoRoom {
        folder: folder.to_owned(),
        needed,
        free,
    })
}

/// Reads to the end, so that the checksum is verified, and checks that only padding follows.
fn check_end(path: &Path, decoder: impl Read) -> Result<(), BundleError> {
    let trailing = || BundleError::Invalid(format!("{} has more data after its end", path.display()));
    let mut rest = decoder.take(PADDING_LIMIT_BYTES);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match rest.read(&mut buffer).map_err(invalid_bundle(path))? {
            0 if rest.limit() == 0 => return Err(trailing()),
            0 => return Ok(()),
            count if buffer[..count].iter().any(|byte| *byte != 0) => return Err(trailing()),
            _ => {}
        }
    }
}

fn open(path: &Path) -> Result<Archive, BundleError> {
    let mut file = File::open(path).map_err(file_error("open", path))?;
    let mut magic = [0; ZSTD_MAGIC.len()];
    match file.read_exact(&mut magic) {
        Ok(()) if magic == ZSTD_MAGIC => {}
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
            return Err(file_error("read", path)(error));
        }
        _ => return Err(not_a_bundle(path)),
    }
    io::Seek::rewind(&mut file).map_err(file_error("read", path))?;
    let reader = BufReader::with_capacity(BUFFER_BYTES, file);
    let mut decoder = zstd::Decoder::with_buffer(reader).map_err(invalid_bundle(path))?;
    decoder
        .window_log_max(WINDOW_LOG_LIMIT)
        .map_err(invalid_bundle(path))?;
    Ok(tar::Archive::new(decoder))
}

/// The next entry, without interpreting tar extensions: those are entries that the manifest does not name.
fn next_entry<'a, R: Read>(
    path: &Path,
    entries: &mut tar::Entries<'a, R>,
) -> Result<Option<tar::Entry<'a, R>>, BundleError> {
    entries.next().transpose().map_err(invalid_bundle(path))
}

fn is_plain<R: Read>(entry: &tar::Entry<'_, R>) -> bool {
    entry.header().entry_type() == tar::EntryType::Regular
}

enum CopyFailure {
    Reading(io::Error),
    Writing(io::Error),
}

fn copy(reader: &mut impl Read, writer: &mut impl io::Write) -> Result<(), CopyFailure> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => writer.write_all(&buffer[..count]).map_err(CopyFailure::Writing)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(CopyFailure::Reading(error)),
        }
    }
}

fn not_a_bundle(path: &Path) -> BundleError {
    BundleError::Invalid(format!("{} is not a bundle, or is incomplete", path.display()))
}

fn invalid_bundle(path: &Path) -> impl FnOnce(io::Error) -> BundleError + use<> {
    let path = path.to_owned();
    move |error| match is_passing(&error) {
        true => file_error("read", &path)(error),
        false => BundleError::Invalid(format!("{} is damaged or cut off: {error}", path.display())),
    }
}
