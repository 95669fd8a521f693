//! Where Codex puts a rollout, and bringing one back that lies elsewhere.
//!
//! Codex (0.166) remembers where it has put the file of each session. It resumes one whose file was moved as if nothing were
//! amiss, and answers the first prompt with "thread not found"; when the file is back at its place it goes on with all of it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{find, is_archived};
use crate::files::durable;
use crate::transcript::TranscriptError;
use crate::transcript::copy::{make_folder, rename_if_free};

/// The folder, below Codex' own, of the rollouts that are in use.
const SESSIONS_FOLDER: &str = "sessions";

/// Where Codex has put a session's rollout, when that lies elsewhere among those that are in use. One that was archived is
/// where a person wanted it.
///
/// # Errors
/// As [`find`].
pub fn expected_place(root: &Path, upstream_id: &str) -> Result<Option<(PathBuf, PathBuf)>, TranscriptError> {
    let path = find(root, upstream_id)?;
    if is_archived(root, &path) {
        return Ok(None);
    }
    let place = expected_path(root, &path).filter(|place| *place != path && !is_same_inode(place, &path));
    Ok(place.map(|place| (path, place)))
}

/// Moves a session's rollout back to where Codex has put it.
///
/// # Errors
/// As [`find`]; [`TranscriptError::AlreadyExists`] when something is there by now, and [`TranscriptError::NotFound`] when it lies
/// at its place.
pub fn move_to_expected_place(root: &Path, upstream_id: &str) -> Result<PathBuf, TranscriptError> {
    let Some((path, place)) = expected_place(root, upstream_id)? else {
        return Err(TranscriptError::NotFound {
            upstream_id: upstream_id.to_owned(),
            root: root.to_owned(),
        });
    };
    make_folder(place.parent().unwrap_or(root))?;
    rename_if_free(&path, &place)?;
    // Some file systems can only give it the second name.
    if is_same_inode(&path, &place)
        && let Err(error) = fs::remove_file(&path)
    {
        tracing::warn!(path = %path.display(), %error, "a rollout that was brought back is still where it was, too");
    }
    for folder in [place.parent(), path.parent()].into_iter().flatten() {
        if let Err(error) = durable::sync_folder(folder) {
            // It is there for everybody; only a loss of power might put it back where it was.
            tracing::warn!(folder = %folder.display(), %error, "a folder of rollouts could not be synced");
        }
    }
    Ok(place)
}

/// Where Codex puts a rollout of this name: by the time in it, which is that of the folders too: `rollout-2026-11-03T…`
/// lies in `sessions/2026/11/03`.
#[must_use]
pub fn expected_path(root: &Path, path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?;
    // A name may hold any characters.
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

/// Whether two paths lead to one file, as by a link among the folders, or by two names of it.
fn is_same_inode(left: &Path, right: &Path) -> bool {
    match (fs::metadata(left), fs::metadata(right)) {
        (Ok(left), Ok(right)) => (left.dev(), left.ino()) == (right.dev(), right.ino()),
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
        // One folder by two ways.
        put(root, "sessions/2026/11/03", NAME);
        std::os::unix::fs::symlink(root.join("sessions/2026"), root.join("sessions/2019")).expect("a link");
        assert_eq!(expected_place(root, ID).expect("a look"), None);
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
