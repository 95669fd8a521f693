//! The path where Codex put a rollout, and moving a rollout back to it.
//!
//! Codex (0.166) remembers the path of each session's file. If the file was moved, Codex resumes the session without an
//! error, but answers the first prompt with "thread not found". Once the file is back at its path, the session continues in
//! full.

use std::fs;
use std::path::{Path, PathBuf};

use super::{find, is_archived};
use crate::files::durable;
use crate::transcript::TranscriptError;
use crate::transcript::copy::{make_folder, rename_if_free};
use crate::transcript::moving::is_same_file;

/// The folder of rollouts that are not archived, below Codex' own folder.
const SESSIONS_FOLDER: &str = "sessions";

/// The current path of a session's rollout and the path where Codex put it, if they differ. `None` for an archived
/// rollout, because the user moved it to the archive.
///
/// # Errors
/// As [`find`].
pub fn expected_path_if_moved(
    root: &Path,
    upstream_id: &str,
) -> Result<Option<(PathBuf, PathBuf)>, TranscriptError> {
    let path = find(root, upstream_id)?;
    if is_archived(root, &path) {
        return Ok(None);
    }
    let place = expected_path(root, &path).filter(|place| *place != path && !is_same_inode(place, &path));
    Ok(place.map(|place| (path, place)))
}

/// Moves a session's rollout back to the path where Codex put it.
///
/// # Errors
/// As [`find`]; [`TranscriptError::AlreadyExists`] if another file is there, and [`TranscriptError::NotFound`] if the rollout
/// is already there.
pub fn move_to_expected_path(root: &Path, upstream_id: &str) -> Result<PathBuf, TranscriptError> {
    let Some((path, target)) = expected_path_if_moved(root, upstream_id)? else {
        return Err(TranscriptError::not_found(root, upstream_id));
    };
    make_folder(target.parent().unwrap_or(root))?;
    rename_if_free(&path, &target)?;
    // On some file systems the file still has its old name too.
    if is_same_inode(&path, &target)
        && let Err(error) = fs::remove_file(&path)
    {
        tracing::warn!(path = %path.display(), %error, "a rollout that was brought back is still where it was, too");
    }
    for folder in [target.parent(), path.parent()].into_iter().flatten() {
        if let Err(error) = durable::sync_folder(folder) {
            // The move has happened. Only a power failure might undo it.
            tracing::warn!(folder = %folder.display(), %error, "a folder of rollouts could not be synced");
        }
    }
    Ok(target)
}

/// The path where Codex puts a rollout of this name. The folders are named after the date in the name:
/// `rollout-2026-11-03T…` is in `sessions/2026/11/03`.
#[must_use]
pub fn expected_path(root: &Path, path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?;
    // The file name may contain any characters.
    let (date, rest) = name.to_str()?.strip_prefix("rollout-")?.split_at_checked(10)?;
    let parts: Vec<&str> = date.split('-').collect();
    let is_number = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit());
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    (rest.starts_with('T') && lengths == [4, 2, 2] && parts.iter().all(is_number)).then(|| {
        let folder = root
            .join(SESSIONS_FOLDER)
            .join(parts[0])
            .join(parts[1])
            .join(parts[2]);
        folder.join(name)
    })
}

/// Whether two paths lead to the same file, for example through a link among the folders or by two hard links.
fn is_same_inode(left: &Path, right: &Path) -> bool {
    match (fs::metadata(left), fs::metadata(right)) {
        (Ok(left), Ok(right)) => is_same_file(&left, &right),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::transcript::codex::rollout_name;

    const ID: &str = "01a1fc15-ffed-7ff1-b050-3a83130f7a03";
    const NAME: &str = "rollout-2026-11-03T10-00-00-01a1fc15-ffed-7ff1-b050-3a83130f7a03.jsonl";

    fn put(root: &Path, folder: &str, name: &str) -> PathBuf {
        let folder = root.join(folder);
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join(name), folder.to_string_lossy().as_bytes()).expect("a file");
        folder.join(name)
    }

    #[test]
    fn a_name_without_a_day_has_no_place() {
        let root = tempfile::tempdir().expect("a folder");
        let root = root.path();
        let table = [
            ("rollout-2026-11-03T10-00-00-x.jsonl", true),
            ("rollout-2026-11-03T", true),
            ("rollout-2026-11-03 10-00-00-x.jsonl", false),
            ("rollout-26-11-2003T10-00-00-x.jsonl", false),
            ("rollout-../../..-T.jsonl", false),
            ("rollout-.jsonl", false),
            ("other-2026-11-03T10.jsonl", false),
        ];
        for (name, expected) in table {
            assert_eq!(
                expected_path(root, &root.join(name)).is_some(),
                expected,
                "{name}"
            );
        }
        // Two paths to one folder.
        put(root, "sessions/2026/11/03", NAME);
        std::os::unix::fs::symlink(root.join("sessions/2026"), root.join("sessions/2019")).expect("a link");
        assert_eq!(expected_path_if_moved(root, ID).expect("a look"), None);
    }

    proptest! {
        #[test]
        fn no_name_is_too_strange(name in "rollout-(2026-11-0|2026-11-03T|[0-9]|-|T|[\u{130}\u{1e9e}\u{e9}]|\\PC){0,16}(\\.jsonl)?(\\.zst)?") {
            let place = expected_path(Path::new("/r"), &Path::new("/x").join(&name));
            prop_assert!(place.is_none_or(|place| place.ends_with(&name)));
            prop_assert!(rollout_name(&name).is_none_or(|rollout| name.contains(rollout.upstream_id)));
        }
    }
}
