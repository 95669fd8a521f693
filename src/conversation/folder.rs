//! The folder of a conversation: whether it can be used, and in which form its path is stored.
//!
//! Links in the path are not resolved, because a link may lead elsewhere tomorrow. Apart from that, one folder has one
//! form, so that a search by folder finds all of its conversations.

use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use super::error::ConversationError;

/// Checks that a conversation's folder can be used.
///
/// # Errors
/// [`ConversationError::InvalidCwd`], whose message says what to do.
pub fn check_folder(cwd: &str) -> Result<(), ConversationError> {
    check_absolute(cwd)?;
    why_unusable(cwd).map_err(|why| {
        ConversationError::InvalidCwd(format!(
            "{why}; create the folder again, or move the conversation to another one"
        ))
    })
}

/// Checks that a folder exists and can be used. The error says why not.
fn why_unusable(cwd: &str) -> Result<(), String> {
    match fs::metadata(cwd) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(format!("{cwd} is not a folder")),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(format!("there is no folder {cwd}")),
        Err(error) => Err(format!("the folder {cwd} cannot be used ({error})")),
    }
}

/// Checks that a recorded path is absolute.
///
/// # Errors
/// [`ConversationError::InvalidCwd`].
fn check_absolute(cwd: &str) -> Result<(), ConversationError> {
    if Path::new(cwd).is_absolute() {
        return Ok(());
    }
    Err(ConversationError::InvalidCwd(format!(
        "the folder must be an absolute path, not \"{cwd}\""
    )))
}

/// The path of a folder in the form in which it is stored: without `.`, `..`, double slashes and a trailing slash. `parameter`
/// is the parameter of the call that names the folder.
///
/// # Errors
/// [`ConversationError::InvalidParams`] if it is relative, and [`ConversationError::InvalidCwd`] if the folder cannot be used.
pub fn usable_folder(parameter: &'static str, path: &str) -> Result<String, ConversationError> {
    check_absolute_parameter(parameter, path)?;
    usable_stored_folder(path)
}

/// As [`usable_folder`], for a folder that a file names, not a call.
///
/// # Errors
/// [`ConversationError::InvalidCwd`] if the folder cannot be used.
pub(super) fn usable_stored_folder(cwd: &str) -> Result<String, ConversationError> {
    check_absolute(cwd)?;
    why_unusable(cwd).map_err(ConversationError::InvalidCwd)?;
    Ok(normalize(cwd))
}

/// The path by which conversations of a folder are looked up: in the form that [`usable_folder`] stores, even if the folder no
/// longer exists.
///
/// # Errors
/// [`ConversationError::InvalidParams`] if it is relative.
pub fn normalized_folder(parameter: &'static str, path: &str) -> Result<String, ConversationError> {
    check_absolute_parameter(parameter, path)?;
    Ok(normalize(path))
}

/// Refuses a relative path, because the daemon does not run in the client's folder.
fn check_absolute_parameter(parameter: &'static str, path: &str) -> Result<(), ConversationError> {
    if Path::new(path).is_absolute() {
        return Ok(());
    }
    Err(ConversationError::invalid(
        parameter,
        format!(
            "{parameter} must be an absolute path, not \"{path}\": the daemon does not run in the client's folder"
        ),
    ))
}

fn normalize(cwd: &str) -> String {
    let given = Path::new(cwd);
    let plain: PathBuf = given.components().collect();
    let clean = resolve_dots(given);
    // After a symbolic link, `..` is the parent of its target. Then only the path as given is right.
    let is_same = clean == plain
        || match (fs::canonicalize(&clean), fs::canonicalize(given)) {
            (Ok(left), Ok(right)) => left == right,
            // A path that does not exist leads nowhere else.
            (_, Err(_)) => true,
            (Err(_), Ok(_)) => false,
        };
    let stored = if is_same { clean } else { plain };
    stored.to_string_lossy().into_owned()
}

/// The path of a file that the parameter `path` of a call names.
///
/// # Errors
/// [`ConversationError::InvalidParams`] if it is relative.
pub(super) fn absolute_path(path: &str) -> Result<PathBuf, ConversationError> {
    match Path::new(path).is_absolute() {
        true => Ok(PathBuf::from(path)),
        false => Err(ConversationError::invalid(
            "path",
            format!("path must be absolute, not {path:?}"),
        )),
    }
}

/// The path of a folder without symbolic links, as agents write it. `None` if it does not exist, or is not UTF-8.
pub(super) fn real_folder(folder: &str) -> Option<String> {
    fs::canonicalize(folder).ok()?.into_os_string().into_string().ok()
}

/// Removes `.` and `..` from a path by its text alone, without resolving symbolic links.
pub(super) fn resolve_dots(path: &Path) -> PathBuf {
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

    use super::*;

    #[test]
    fn a_relative_path_is_the_fault_of_the_parameter_that_names_it() {
        for path in ["relative", "", "~/project"] {
            for refused in [usable_folder("to", path), normalized_folder("to", path)] {
                assert!(
                    matches!(
                        refused,
                        Err(ConversationError::InvalidParams { parameter: "to", .. })
                    ),
                    "{path}: {refused:?}"
                );
            }
            let recorded = usable_stored_folder(path);
            assert!(
                matches!(recorded, Err(ConversationError::InvalidCwd(_))),
                "{path}: {recorded:?}"
            );
        }
    }
}
