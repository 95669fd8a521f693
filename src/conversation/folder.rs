//! The folder that a conversation is given: whether it can be used, and how its path is kept.
//!
//! The path stays the user's own (a link is not resolved: it may lead elsewhere tomorrow), but one folder is written in
//! one way, so that what is listed by folder is found.

use std::fs;
use std::path::{Component, Path, PathBuf};

use super::climbing::check_folder;
use super::error::ConversationError;

/// The path as it is kept: without `.` and `..`, doubled slashes and a slash at its end.
///
/// # Errors
/// [`ConversationError::InvalidCwd`] when it is no folder that can be used.
pub fn usable_folder(cwd: &str) -> Result<String, ConversationError> {
    check_folder(cwd)?;
    let given = Path::new(cwd);
    let plain: PathBuf = given.components().collect();
    let clean = without_parents(given);
    // Behind a link `..` leads to where the link points, and then only the path as it was given is right.
    let is_same = clean == plain
        || matches!((fs::canonicalize(&clean), fs::canonicalize(given)), (Ok(left), Ok(right)) if left == right);
    let kept = if is_same { clean } else { plain };
    Ok(kept.to_string_lossy().into_owned())
}

fn without_parents(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for component in path.components() {
        if component == Component::ParentDir {
            clean.pop();
        } else {
            clean.push(component);
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn one_folder_is_written_in_one_way() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("a")).unwrap();
        fs::create_dir_all(root.join("elsewhere/deep")).unwrap();
        fs::create_dir_all(root.join("elsewhere/b")).unwrap();
        fs::create_dir_all(root.join("b")).unwrap();
        symlink(root.join("elsewhere/deep"), root.join("link")).unwrap();
        let root = root.to_str().unwrap();
        for (given, kept) in [
            ("/b", "/b"),
            ("/b/", "/b"),
            ("//b//.", "/b"),
            ("/a/../b", "/b"),
            ("/./a/../a/../b/", "/b"),
            // A link is kept as it is.
            ("/link/", "/link"),
            // Behind one, `..` is another folder than the path reads.
            ("/link/../b", "/link/../b"),
        ] {
            let given = format!("{root}{given}");
            assert_eq!(usable_folder(&given).unwrap(), format!("{root}{kept}"), "{given}");
        }
        assert_eq!(usable_folder("/..").unwrap(), "/");
        assert!(usable_folder("relative").is_err());
        assert!(usable_folder(&format!("{root}/none/../b")).is_err());
    }
}
