//! Checks the daemon's folders on the disk. Nothing is created or changed.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use bridge_protocol::diagnosis::{Diagnostic, DiagnosticKind, Severity};
use rustix::fs::{Access, access};

use crate::paths::ownership::{Role, Untrusted};
use crate::paths::{Paths, ownership, shell_word};

/// Permissions of other users, which a private folder must not grant.
const OTHERS_MODE: u32 = 0o077;

/// The minimum free space. With less, a starting daemon cannot write its first files.
const LEAST_BYTES: u64 = 1 << 20;

/// The minimum number of free files.
const LEAST_FILES: u64 = 10;

/// Checks each folder. The daemon checks the content of the configuration.
pub(super) fn check_folders(paths: &Paths) -> Vec<Diagnostic> {
    let untrusted = ownership::untrusted(paths);
    let mut found: Vec<Diagnostic> = untrusted.iter().map(untrusted_folder).collect();
    let folder = |path: &Path, what| {
        let is_refused = untrusted.iter().any(|untrusted| untrusted.culprit == path);
        (!is_refused).then(|| check_folder(path, what))
    };
    found.extend(folder(&paths.data, "data"));
    found.extend(far_away(&paths.data));
    found.extend(folder(&paths.runtime, "sockets"));
    // The runtime folder is often on a separate file system in memory. A daemon that answers checks the disk of the data.
    if device(&paths.runtime) != device(&paths.data) {
        found.extend(full_disk(&paths.runtime));
    }
    // Folders below the data folder are only as accessible as it is.
    if !paths.log.starts_with(&paths.data) {
        found.extend(folder(&paths.log, "log"));
    }
    found
}

/// Reports a folder that another user owns or can change. No daemon starts with it.
fn untrusted_folder(untrusted: &Untrusted) -> Diagnostic {
    let kind = match untrusted.role {
        Role::Configuration => DiagnosticKind::Configuration,
        _ => DiagnosticKind::Folder,
    };
    Diagnostic::new(kind, Severity::Error, untrusted.to_string())
        .about(untrusted.culprit.to_string_lossy())
        .next(untrusted.hint("sessionctl"))
        .fact("owner", untrusted.owner)
        .fact("mode", format!("{:03o}", untrusted.mode))
}

/// The folder, or the nearest one above it that exists.
fn nearest_existing(path: &Path) -> Option<&Path> {
    path.ancestors().find(|place| place.exists())
}

/// The file system that contains a folder, or will contain it.
fn device(path: &Path) -> Option<u64> {
    Some(nearest_existing(path)?.metadata().ok()?.dev())
}

/// Reports that a folder's disk is full.
pub(super) fn full_disk(path: &Path) -> Option<Diagnostic> {
    let disk = rustix::fs::statvfs(nearest_existing(path)?).ok()?;
    let free_bytes = disk.f_bavail.saturating_mul(disk.f_frsize);
    is_full((disk.f_blocks, free_bytes), (disk.f_files, disk.f_favail)).then(|| {
        Diagnostic::new(DiagnosticKind::Room, Severity::Error, "its disk is full")
            .about(path.to_string_lossy())
            .next("free some space there; without it, the daemon may not start")
    })
}

/// Whether a file system is full. `blocks` and `files` are totals; a total of 0 means that the file system does not count them.
fn is_full((blocks, free_bytes): (u64, u64), (files, free_files): (u64, u64)) -> bool {
    blocks > 0 && free_bytes < LEAST_BYTES || files > 0 && free_files < LEAST_FILES
}

fn check_folder(path: &Path, what: &str) -> Diagnostic {
    let elsewhere = "or use another folder with --home DIR";
    let chmod = || format!("chmod 700 {}", shell_word(&path.to_string_lossy()));
    let is_usable = |path: &Path, how| access(path, how).is_ok();
    let (severity, found, next) = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => match nearest_existing(path) {
            Some(above) if !is_usable(above, Access::WRITE_OK | Access::EXEC_OK) => (
                Severity::Error,
                format!("cannot be created: {} is not writable", above.display()),
                format!("let this user write there, {elsewhere}"),
            ),
            _ => (
                Severity::Note,
                "does not exist yet; the daemon creates it".to_owned(),
                String::new(),
            ),
        },
        Err(error) => (
            Severity::Error,
            format!("cannot be read: {error}"),
            format!("check the permissions of the folders above it, {elsewhere}"),
        ),
        Ok(metadata) if !metadata.is_dir() => (
            Severity::Error,
            "is a file, not a folder".to_owned(),
            format!("move it away, {elsewhere}"),
        ),
        Ok(_) if !is_usable(path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK) => (
            Severity::Error,
            "is not writable".to_owned(),
            format!("{}, {elsewhere}", chmod()),
        ),
        Ok(metadata) if metadata.mode() & OTHERS_MODE != 0 => (
            Severity::Warning,
            format!("is open to others (mode {:o})", metadata.mode() & 0o777),
            chmod(),
        ),
        Ok(_) => (Severity::Ok, "is private to you".to_owned(), String::new()),
    };
    let found = format!("the folder for {what} {found}");
    let found = Diagnostic::new(DiagnosticKind::Folder, severity, found).about(path.to_string_lossy());
    match next.is_empty() {
        true => found,
        false => found.next(next),
    }
}

/// Reports data on a network file system, on which locks and syncs may not work.
#[cfg(target_os = "linux")]
fn far_away(data: &Path) -> Option<Diagnostic> {
    let disk = rustix::fs::statfs(nearest_existing(data)?).ok()?;
    if !is_network(disk.f_type) {
        return None;
    }
    let what = "is on a network file system, where locks and syncs may not work";
    Some(
        Diagnostic::new(DiagnosticKind::Folder, Severity::Warning, what)
            .about(data.to_string_lossy())
            .next("use a folder on a local disk, with --home DIR or XDG_DATA_HOME"),
    )
}

/// Not checked on other systems, which identify their file systems differently.
#[cfg(not(target_os = "linux"))]
fn far_away(_data: &Path) -> Option<Diagnostic> {
    None
}

/// Whether this is a network file system, by its number in the kernel's `magic.h`.
#[cfg(target_os = "linux")]
fn is_network(magic: impl Into<i64>) -> bool {
    const NFS: i64 = 0x6969;
    const SMB: [i64; 3] = [0x517b, 0xff53_4d42, 0xfe53_4d42];
    const PLAN_9_AND_CEPH: [i64; 2] = [0x0102_1997, 0x00c3_6400];
    let magic = magic.into();
    magic == NFS || SMB.contains(&magic) || PLAN_9_AND_CEPH.contains(&magic)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn severity(path: &Path) -> (Severity, bool) {
        let found = check_folder(path, "data");
        (found.severity, found.next_step.is_some())
    }

    #[test]
    fn a_folder_is_judged_by_whose_it_is_and_who_may_enter() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("data");
        assert_eq!(severity(&path), (Severity::Note, false));
        fs::write(&path, "a file").unwrap();
        assert_eq!(severity(&path), (Severity::Error, true));
        assert_eq!(severity(&path.join("below")), (Severity::Error, true));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        for (mode, expected) in [
            (0o755, Severity::Warning),
            (0o710, Severity::Warning),
            (0o700, Severity::Ok),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(severity(&path).0, expected, "{mode:o}");
        }
    }

    #[test]
    fn a_disk_is_full_when_it_counts_and_has_none_left() {
        let table = [
            ((1 << 20, LEAST_BYTES), (100, LEAST_FILES), false),
            ((1 << 20, LEAST_BYTES - 1), (100, LEAST_FILES), true),
            ((1 << 20, LEAST_BYTES), (100, LEAST_FILES - 1), true),
            ((0, 0), (0, 0), false),
        ];
        for (bytes, files, expected) in table {
            assert_eq!(is_full(bytes, files), expected, "{bytes:?} {files:?}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_on_another_machine_is_known_by_its_number() {
        assert!(is_network(0x6969_i64));
        assert!(!is_network(0xef53_i64));
    }
}
