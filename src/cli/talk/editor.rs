//! Lets the user write a text in their editor. The temporary file is deleted with the text unless it is kept.
//!
//! It must not know how the text is used.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::process::Command;

use tempfile::NamedTempFile;

use crate::cli::problem::{CommandResult, Problem};
use crate::cli::signals::run_at_terminal;

/// The hint for an edit that was not sent.
const NOTHING_SENT: &str = "nothing was sent; the conversation is unchanged";

/// The text as the user left it in the editor.
pub(super) struct EditedText {
    /// The text.
    pub(super) text: String,
    file: NamedTempFile,
}

impl EditedText {
    /// Keeps the file, so that the user can use the text again, and returns its path.
    ///
    /// # Errors
    /// The file could not be kept.
    pub(super) fn persist(self) -> CommandResult<PathBuf> {
        let Self { text, file } = self;
        let (_, path) = file.keep().map_err(|error| {
            let path = error.file.path().to_owned();
            Problem::file_error("keep what you wrote in", &path, &error.error)
        })?;
        // An editor may have deleted the file.
        if !path.exists() {
            fs::write(&path, text)
                .map_err(|error| Problem::file_error("keep what you wrote in", &path, &error))?;
        }
        Ok(path)
    }
}

/// The first editor of this list that is installed.
fn installed_editor() -> Option<String> {
    let folders = std::env::var_os("PATH")?;
    let is_installed =
        |name: &&str| std::env::split_paths(&folders).any(|folder| folder.join(name).is_file());
    let mut known = ["sensible-editor", "editor", "vi", "nano"].into_iter();
    known.find(is_installed).map(str::to_owned)
}

/// Opens a text in `$VISUAL`, `$EDITOR` or an installed editor, and returns it as the user left it. `other` is how to pass
/// the new prompt without an editor.
///
/// # Errors
/// There is no editor, it failed, or the text is unchanged or empty.
pub(super) fn edit_text(text: &str, other: &str) -> CommandResult<EditedText> {
    let editor = ["VISUAL", "EDITOR"].into_iter().find_map(|name| {
        let editor = std::env::var(name).ok()?;
        Some(editor).filter(|editor| !editor.trim().is_empty())
    });
    // Without a terminal, an editor would wait for a user who is not there.
    let installed = || io::stdin().is_terminal().then(installed_editor).flatten();
    let Some(editor) = editor.or_else(installed) else {
        return Err(
            Problem::usage("no new prompt was given, and no editor is set").hint(format!(
                "give the prompt: {other}; - reads it from standard input, and EDITOR names an editor"
            )),
        );
    };
    let failed = |what: &str, error: io::Error| Problem::failed(format!("{what}: {error}"));
    let mut file = tempfile::Builder::new()
        .prefix("prompt-")
        .suffix(".md")
        .tempfile()
        .map_err(|error| failed("no file can be made for the editor", error))?;
    file.write_all(text.as_bytes())
        .map_err(|error| failed("the old prompt cannot be written down", error))?;
    // Run by a shell, so that EDITOR may contain arguments. The file is passed as an argument and never interpreted as code.
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{editor} \"$1\""), "sh"])
        .arg(file.path());
    let status =
        run_at_terminal(&mut command).map_err(|error| failed("the editor could not be started", error))?;
    let left = read_back(&mut file);
    let is_as_it_was = |left: &str| left == text.trim_end_matches('\n');
    if !status.success() {
        let problem = Problem::failed(format!("the editor failed: {status}"));
        return Err(match left {
            Ok(left) if !is_as_it_was(&left) && !left.is_empty() => {
                let path = EditedText { text: left, file }.persist()?;
                problem.hint(format!("{NOTHING_SENT}; what you wrote is in {}", path.display()))
            }
            _ => problem.hint(NOTHING_SENT),
        });
    }
    let left = left.map_err(|error| failed("the new prompt cannot be read", error))?;
    if is_as_it_was(&left) {
        return Err(Problem::failed("the prompt was not changed")
            .hint(format!("{NOTHING_SENT}; to give it without an editor: {other}")));
    }
    if left.trim().is_empty() {
        return Err(Problem::failed("the prompt is empty").hint(NOTHING_SENT));
    }
    Ok(EditedText { text: left, file })
}

/// Reads the file again, without the last line break.
fn read_back(file: &mut NamedTempFile) -> io::Result<String> {
    // Some editors replace the file, so open its path. If the path was deleted, read the original file.
    let mut named = File::open(file.path());
    let read = named.as_mut().unwrap_or_else(|_| file.as_file_mut());
    let mut left = String::new();
    read.seek(SeekFrom::Start(0))?;
    read.read_to_string(&mut left)?;
    Ok(left.trim_end_matches('\n').to_owned())
}
