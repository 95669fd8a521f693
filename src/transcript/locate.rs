//! The locations of transcripts: folder names, and the search by id.
//!
//! This module owns the rule by which Claude names a folder after a working directory. The search does not rely on that
//! rule: the rule loses information, folders move, and a session may be resumed from another folder. This module reads
//! folders, but no file content.

use std::fs;
use std::path::{Path, PathBuf};

use super::TranscriptError;
use crate::files::{FILE_NAME_LIMIT_BYTES, entries, is_absence};

/// The longest folder name that is a whole path, in UTF-16 units; longer ones are cut and get a hash.
const FOLDER_LIMIT_UNITS: usize = 200;

/// The folder, below `projects`, in which Claude keeps the transcripts of a working directory.
///
/// `cwd` must be resolved already (no symbolic links): the agent resolves it first.
#[must_use]
pub fn project_folder(cwd: &Path) -> String {
    let path = cwd.to_string_lossy();
    let mut hash: i32 = 0;
    let mut units = 0;
    let mut name = String::new();
    for unit in path.encode_utf16() {
        hash = hash.wrapping_mul(31).wrapping_add(i32::from(unit));
        units += 1;
        if units <= FOLDER_LIMIT_UNITS {
            name.push(folder_character(unit));
        }
    }
    if units > FOLDER_LIMIT_UNITS {
        name.push('-');
        name.push_str(&base36(hash.unsigned_abs()));
    }
    name
}

/// The character in a folder name for a UTF-16 unit of the working directory.
pub(super) fn folder_character(unit: u16) -> char {
    let plain = u8::try_from(unit).ok().filter(u8::is_ascii_alphanumeric);
    plain.map_or('-', char::from)
}

/// The file name of a transcript.
///
/// # Errors
/// [`TranscriptError::InvalidId`] for an id that cannot be a single file name: upstream ids are opaque, and
/// come from outside.
pub fn file_name(upstream_id: &str) -> Result<String, TranscriptError> {
    let name = format!("{upstream_id}.jsonl");
    let usable = !upstream_id.is_empty()
        && !matches!(upstream_id, "." | "..")
        && !upstream_id.contains(['/', '\0'])
        && name.len() <= FILE_NAME_LIMIT_BYTES;
    if usable {
        Ok(name)
    } else {
        Err(TranscriptError::InvalidId {
            id: upstream_id.to_owned(),
        })
    }
}

/// All files below `root` with the transcript `upstream_id`, in the order of their paths, but the one in the folder of `cwd`
/// first, because the agent prefers it. Empty if there is none.
///
/// # Errors
/// [`TranscriptError::InvalidId`], and [`TranscriptError::Io`] if `projects` exists and cannot be read, or if no file was
/// found and one of the folders cannot be searched.
pub fn locate(root: &Path, upstream_id: &str, cwd: Option<&Path>) -> Result<Vec<PathBuf>, TranscriptError> {
    let mut found = in_projects(root, &file_name(upstream_id)?)?;
    let own = cwd.map(|cwd| own_folder(root, cwd));
    found.sort_by_key(|path| path.parent() != own.as_deref());
    Ok(found)
}

/// All files of this name in the folders of the projects, in the order of their paths. The name is relative to such a folder.
///
/// # Errors
/// As [`locate`].
pub(super) fn in_projects(root: &Path, name: &str) -> Result<Vec<PathBuf>, TranscriptError> {
    let (mut paths, mut failure) = (Vec::new(), None);
    let projects = root.join("projects");
    for folder in entries(&projects).map_err(TranscriptError::io("read the folder", &projects))? {
        let path = folder.join(name);
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_file() => paths.push(path),
            Err(error) if !is_absence(&error) && failure.is_none() => {
                failure = Some(TranscriptError::io("look for a transcript at", &path)(error));
            }
            _ => {}
        }
    }
    // The transcript may be in the folder that cannot be searched.
    if let Some(failure) = failure.filter(|_| paths.is_empty()) {
        return Err(failure);
    }
    paths.sort();
    Ok(paths)
}

/// The folder in which the agent keeps the transcripts of a working directory and looks for them first. It may not
/// exist yet.
#[must_use]
pub fn own_folder(root: &Path, cwd: &Path) -> PathBuf {
    let resolved = fs::canonicalize(cwd).unwrap_or_else(|_| cwd.to_owned());
    root.join("projects").join(project_folder(&resolved))
}

fn base36(mut value: u32) -> String {
    let mut digits = Vec::new();
    loop {
        digits.extend(char::from_digit(value % 36, 36));
        value /= 36;
        if value == 0 {
            return digits.iter().rev().collect();
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn folder_names() {
        let table = [
            ("/home/u/project", "-home-u-project"),
            ("/home/u/my.app_2", "-home-u-my-app-2"),
            ("/", "-"),
            ("/home/ü", "-home--"),
            // One character outside the basic plane is two units.
            ("/a/😀", "-a---"),
        ];
        for (cwd, folder) in table {
            assert_eq!(project_folder(Path::new(cwd)), folder, "{cwd}");
        }
    }

    #[test]
    fn long_folder_names_are_cut_and_hashed_over_the_whole_path() {
        let exact = format!("/{}", "a".repeat(199));
        assert_eq!(project_folder(Path::new(&exact)), exact.replace('/', "-"));
        let long = format!("/{}", "a".repeat(250));
        let folder = project_folder(Path::new(&long));
        let (cut, hash) = folder.split_at(200);
        assert_eq!(cut, format!("-{}", "a".repeat(199)));
        // Computed independently: h = 31 h + unit over all 251 units, as a 32-bit integer.
        let expected = long.bytes().fold(0_i64, |hash, unit| {
            let next = (hash * 31 + i64::from(unit)) & 0xFFFF_FFFF;
            if next >= 1 << 31 { next - (1 << 32) } else { next }
        });
        let digits = hash.strip_prefix('-').expect("a dash before the hash");
        assert_eq!(i64::from_str_radix(digits, 36), Ok(expected.abs()));
        assert_ne!(project_folder(Path::new(&format!("{long}b"))), folder);
    }

    #[test]
    fn a_folder_that_is_closed_is_told_when_nothing_was_found_elsewhere() {
        use std::os::unix::fs::PermissionsExt;
        let root = tempfile::tempdir().expect("a folder");
        for (folder, id) in [("-closed", "s1"), ("-open", "s2")] {
            let folder = root.path().join("projects").join(folder);
            fs::create_dir_all(&folder).expect("a folder");
            fs::write(folder.join(format!("{id}.jsonl")), "{}\n").expect("a file");
        }
        let closed = root.path().join("projects/-closed");
        let mode = |mode| fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).expect("a mode");
        mode(0o000);
        let looked = ["s1", "s2"].map(|id| locate(root.path(), id, None));
        mode(0o700);
        let [of_closed, of_open] = looked;
        assert_eq!(of_open.expect("a search").len(), 1);
        // Root can read every folder.
        if !rustix::process::geteuid().is_root() {
            let error = of_closed.expect_err("it cannot be looked at");
            assert!(error.to_string().contains("-closed"), "{error}");
        }
    }

    /// Creates the parent of a folder whose path has this many bytes. Paths below that folder can be too long for the
    /// system, which is an error even for root.
    pub(in crate::transcript) fn deep(base: &Path, bytes: usize) -> PathBuf {
        let mut folder = base.to_owned();
        while folder.as_os_str().len() < bytes {
            let left = bytes - folder.as_os_str().len() - 1;
            folder.push("d".repeat(if left > 200 { 100 } else { left }));
        }
        fs::create_dir_all(folder.parent().expect("a folder")).expect("a folder");
        folder
    }

    #[test]
    fn what_cannot_be_looked_at_is_told_when_nothing_was_found_elsewhere() {
        let base = tempfile::tempdir().expect("a folder");
        let [hidden, found] = ["h".repeat(60), "f".to_owned()];
        let root = base.path().join("root");
        let projects = root.join("projects");
        fs::create_dir_all(projects.join("-p")).expect("a folder");
        for id in [&hidden, &found] {
            fs::write(projects.join(format!("-p/{id}.jsonl")), "{}\n").expect("a file");
        }
        // A file in place of a folder, a dangling link and a circular link are not failures.
        fs::write(projects.join("no-folder"), "").expect("a file");
        for (to, name) in [("nowhere", "-p/led.jsonl"), ("-ring", "-ring")] {
            std::os::unix::fs::symlink(to, projects.join(name)).expect("a link");
        }
        assert_eq!(locate(&root, "led", None).expect("a search"), [] as [PathBuf; 0]);

        let far = deep(base.path(), 4040);
        fs::rename(&root, &far).expect("a folder");
        let error = locate(&far, &hidden, None).expect_err("it cannot be looked at");
        assert!(error.to_string().contains(&hidden), "{error}");
        assert_eq!(locate(&far, &found, None).expect("a search").len(), 1);
    }

    #[test]
    fn a_transcript_is_found_in_whatever_folder_and_its_own_comes_first() {
        let root = tempfile::tempdir().expect("a folder");
        let cwd = tempfile::tempdir().expect("a folder");
        let own = project_folder(&cwd.path().canonicalize().expect("a path"));
        for folder in ["-a", "-z", own.as_str()] {
            let folder = root.path().join("projects").join(folder);
            fs::create_dir_all(&folder).expect("a folder");
            fs::write(folder.join("s1.jsonl"), "{}\n").expect("a file");
        }
        fs::create_dir(root.path().join("projects/-a/s2.jsonl")).expect("a folder in a file's place");

        let found = locate(root.path(), "s1", Some(cwd.path())).expect("a search");
        let names: Vec<_> = found
            .iter()
            .filter_map(|path| path.parent()?.file_name())
            .collect();
        assert_eq!(
            names,
            [OsStr::new(&own), OsStr::new("-a"), OsStr::new("-z")].as_slice()
        );
        assert_eq!(
            locate(root.path(), "s2", None).expect("a search"),
            [] as [PathBuf; 0]
        );
        assert_eq!(
            locate(&root.path().join("none"), "s1", None).expect("a search"),
            [] as [PathBuf; 0]
        );
    }
}
