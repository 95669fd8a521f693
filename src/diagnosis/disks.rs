//! How much room there is where the daemon and the agents write.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bridge_protocol::diagnosis::{Diagnostic, DiagnosticKind, Severity};

use super::size;
use crate::conversation::services::Services;

/// Below this a long turn may fill the disk.
const LITTLE_BYTES: u64 = 1 << 30;

/// Below this nothing large can be written any more: one copy of a long transcript takes as much.
const TOO_LITTLE_BYTES: u64 = 100 << 20;

/// Below this, where files are numbered at all, new ones may be refused.
const LITTLE_FILES: u64 = 1_000;

/// What a disk has.
#[derive(Clone, Copy, Debug)]
struct Room {
    free_bytes: u64,
    total_bytes: u64,
    /// None where the file system does not count them.
    free_files: Option<u64>,
}

/// Each disk once, by the first folder that lies on it: the daemon's own, then those of the agents' transcripts.
pub(super) fn room(services: &Services) -> Vec<Diagnostic> {
    let entries = services.catalog.entries().iter();
    let folders = entries.filter_map(|entry| entry.transcripts.as_deref());
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for folder in std::iter::once(services.data.as_path()).chain(folders) {
        // What is not there yet will be made on the disk of what is.
        let Some((place, metadata)) = existing(folder) else {
            continue;
        };
        if !seen.insert(metadata.dev()) {
            continue;
        }
        match look(&place) {
            Ok(room) => found.push(judged(room).about(folder.to_string_lossy())),
            Err(error) => {
                tracing::warn!(folder = %place.display(), %error, "the free space of a disk is unknown");
            }
        }
    }
    found
}

fn existing(folder: &Path) -> Option<(PathBuf, std::fs::Metadata)> {
    folder
        .ancestors()
        .find_map(|place| Some((place.to_owned(), place.metadata().ok()?)))
}

fn look(folder: &Path) -> rustix::io::Result<Room> {
    let disk = rustix::fs::statvfs(folder)?;
    Ok(Room {
        free_bytes: disk.f_bavail.saturating_mul(disk.f_frsize),
        total_bytes: disk.f_blocks.saturating_mul(disk.f_frsize),
        free_files: (disk.f_files > 0).then_some(disk.f_favail),
    })
}

fn judged(room: Room) -> Diagnostic {
    let lacks_files = room.free_files.is_some_and(|files| files < LITTLE_FILES);
    let severity = match room.free_bytes {
        bytes if bytes < TOO_LITTLE_BYTES || lacks_files => Severity::Error,
        bytes if bytes < LITTLE_BYTES => Severity::Warning,
        _ => Severity::Ok,
    };
    let mut what = format!("{} free of {}", size(room.free_bytes), size(room.total_bytes));
    if let Some(files) = room.free_files.filter(|_| lacks_files) {
        what = format!("{what}, and room for {files} more files");
    }
    let found = Diagnostic::new(DiagnosticKind::Room, severity, what)
        .fact("freeBytes", room.free_bytes)
        .fact("totalBytes", room.total_bytes);
    match severity {
        Severity::Ok => found,
        _ => found.next(
            "free some room there: without it turns fail and nothing can be kept; sessionctl archive ls shows what backups take, \
             and [keep] bytes in the configuration bounds them",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_judged_by_its_free_bytes_and_files() {
        let table = [
            (TOO_LITTLE_BYTES - 1, None, Severity::Error),
            (TOO_LITTLE_BYTES, None, Severity::Warning),
            (LITTLE_BYTES - 1, Some(LITTLE_FILES), Severity::Warning),
            (LITTLE_BYTES, Some(LITTLE_FILES), Severity::Ok),
            (LITTLE_BYTES, Some(LITTLE_FILES - 1), Severity::Error),
        ];
        for (free_bytes, free_files, expected) in table {
            let found = judged(Room {
                free_bytes,
                total_bytes: 1 << 40,
                free_files,
            });
            assert_eq!(found.severity, expected, "{found:?}");
            assert_eq!(found.next_step.is_some(), expected != Severity::Ok);
        }
    }

    #[test]
    fn the_disk_of_a_folder_that_is_not_there_yet_is_that_of_what_is() {
        let folder = tempfile::tempdir().unwrap();
        let (place, _) = existing(&folder.path().join("not/yet")).unwrap();
        assert_eq!(place, folder.path());
        assert!(look(&place).unwrap().total_bytes > 0);
    }
}
