//! Checks the free space where the daemon and the agents write.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bridge_protocol::diagnosis::{Diagnostic, DiagnosticKind, Severity};

use super::size;
use crate::conversation::services::Services;

/// Below this, a long turn may fill the disk.
const LOW_SPACE_BYTES: u64 = 1 << 30;

/// Below this, nothing large can be written: a copy of a long transcript takes as much.
const CRITICAL_SPACE_BYTES: u64 = 100 << 20;

/// Below this, new files may be refused, if the file system counts files.
const LOW_SPACE_FILES: u64 = 1_000;

/// The space of a disk.
#[derive(Clone, Copy, Debug)]
struct Space {
    free_bytes: u64,
    total_bytes: u64,
    /// `None` if the file system does not count files.
    free_files: Option<u64>,
}

/// Reports each disk once, with the first folder on it: the daemon's, then those of the agents' transcripts.
pub(super) fn check_free_space(services: &Services) -> Vec<Diagnostic> {
    let entries = services.catalog.entries();
    let folders = entries.filter_map(|entry| entry.transcripts.as_deref());
    let mut seen = BTreeSet::new();
    let mut diagnostics = Vec::new();
    for folder in std::iter::once(services.data_folder.as_path()).chain(folders) {
        // A missing folder will be created on the disk of its parent.
        let Some((place, metadata)) = nearest_existing(folder) else {
            continue;
        };
        if !seen.insert(metadata.dev()) {
            continue;
        }
        match space_of(&place) {
            Ok(room) => diagnostics.push(diagnose(room).about(folder.to_string_lossy())),
            Err(error) => {
                tracing::warn!(folder = %place.display(), %error, "cannot determine the free space of a disk");
            }
        }
    }
    diagnostics
}

fn nearest_existing(folder: &Path) -> Option<(PathBuf, std::fs::Metadata)> {
    folder
        .ancestors()
        .find_map(|place| Some((place.to_owned(), place.metadata().ok()?)))
}

fn space_of(folder: &Path) -> rustix::io::Result<Space> {
    let disk = rustix::fs::statvfs(folder)?;
    Ok(Space {
        free_bytes: disk.f_bavail.saturating_mul(disk.f_frsize),
        total_bytes: disk.f_blocks.saturating_mul(disk.f_frsize),
        free_files: (disk.f_files > 0).then_some(disk.f_favail),
    })
}

fn diagnose(space: Space) -> Diagnostic {
    let lacks_files = space.free_files.is_some_and(|files| files < LOW_SPACE_FILES);
    let severity = match space.free_bytes {
        bytes if bytes < CRITICAL_SPACE_BYTES || lacks_files => Severity::Error,
        bytes if bytes < LOW_SPACE_BYTES => Severity::Warning,
        _ => Severity::Ok,
    };
    let mut summary = format!("{} free of {}", size(space.free_bytes), size(space.total_bytes));
    if let Some(files) = space.free_files.filter(|_| lacks_files) {
        summary = format!("{summary}, and room for {files} more files");
    }
    let diagnostic = Diagnostic::new(DiagnosticKind::Room, severity, summary)
        .fact("freeBytes", space.free_bytes)
        .fact("totalBytes", space.total_bytes);
    match severity {
        Severity::Ok => diagnostic,
        _ => diagnostic.next(
            "free some disk space: without it, turns fail and nothing can be saved; sessionctl archive ls shows the size of \
             the backups, and bytes in [keep] of the configuration limits it",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_judged_by_its_free_bytes_and_files() {
        let table = [
            (CRITICAL_SPACE_BYTES - 1, None, Severity::Error),
            (CRITICAL_SPACE_BYTES, None, Severity::Warning),
            (LOW_SPACE_BYTES - 1, Some(LOW_SPACE_FILES), Severity::Warning),
            (LOW_SPACE_BYTES, Some(LOW_SPACE_FILES), Severity::Ok),
            (LOW_SPACE_BYTES, Some(LOW_SPACE_FILES - 1), Severity::Error),
        ];
        for (free_bytes, free_files, expected) in table {
            let found = diagnose(Space {
                free_bytes,
                total_bytes: 1 << 40,
                free_files,
            });
            assert_eq!(found.severity, expected, "{found:?}");
            assert_eq!(found.next_step.is_some(), expected != Severity::Ok);
        }
    }

    #[test]
    fn the_disk_of_a_missing_folder_is_that_of_its_parent() {
        let folder = tempfile::tempdir().unwrap();
        let (place, _) = nearest_existing(&folder.path().join("not/yet")).unwrap();
        assert_eq!(place, folder.path());
        assert!(space_of(&place).unwrap().total_bytes > 0);
    }
}
