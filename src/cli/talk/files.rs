//! Files and standard input as parts of a prompt.
//!
//! It owns how a file is sent to the agent: as text if the agent accepts embedded text, otherwise as a link that the agent
//! opens. It must not know what the prompt is for.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bridge_protocol::agent::AgentInfo;
use bridge_protocol::conversation::Conversation;
use bridge_protocol::method;
use bridge_protocol::raw::{PromptContent, RawJson};
use serde_json::{Value, json};

use crate::cli::commands::first_few;
use crate::cli::connect::Daemon;
use crate::cli::humanize;
use crate::cli::output::one_line;
use crate::cli::problem::{CommandResult, Exit, Problem};
use crate::paths::shell_word;

/// The longest prompt: below the daemon's default limit of a line, with room for escapes.
const PROMPT_LIMIT_BYTES: u64 = 12 * 1024 * 1024;

/// Joins the words of a command line into a text; `-` inserts standard input.
pub(super) fn text_from_words(words: &[String]) -> CommandResult<String> {
    let Some(at) = words.iter().position(|word| word == "-") else {
        return Ok(words.join(" "));
    };
    let input = read_text(io::stdin().lock(), "standard input")?;
    let around = [&words[..at], &words[at + 1..]].map(|words| words.join(" "));
    let [before, after] = around;
    let parts = [before, input.trim_end_matches('\n').to_owned(), after];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    Ok(parts.join("\n\n"))
}

/// Checks that the prompt is not empty, and that each file can be read. `to` is what follows `send` in the command of the hint.
///
/// # Errors
/// There is no text and no file, or a file cannot be read.
pub(super) fn check_prompt(text: &str, files: &[impl AsRef<Path>], to: &str) -> CommandResult {
    if text.trim().is_empty() && files.is_empty() {
        let hint =
            format!("give some text, - for standard input, or --file PATH: sessionctl send {to} 'Hello'");
        return Err(Problem::usage("the prompt is empty").hint(hint));
    }
    files.iter().try_for_each(|file| open(file.as_ref()).map(drop))
}

/// Opens a file, and returns its absolute path and its size too.
fn open(path: &Path) -> CommandResult<(PathBuf, File, u64)> {
    let path = fs::canonicalize(path).map_err(|error| unreadable(path, &error))?;
    let file = File::open(&path).map_err(|error| unreadable(&path, &error))?;
    let size = file.metadata().map_err(|error| unreadable(&path, &error))?;
    if size.is_dir() {
        let problem = Problem::usage(format!("{} is a folder", path.display()));
        return Err(problem.hint("name the files in it, or the folder in the text of the prompt"));
    }
    Ok((path, file, size.len()))
}

/// Builds a prompt of a text and attached files.
pub(super) async fn prompt_with_files(
    daemon: &Daemon,
    conversation: &Conversation,
    text: &str,
    files: &[impl AsRef<Path>],
) -> CommandResult<PromptContent> {
    check_prompt(text, files, &humanize::short_id(conversation.id))?;
    if files.is_empty() {
        return Ok(PromptContent::text(text));
    }
    let agents = daemon.call(method::ListAgents::default()).await?.agents;
    let agent = agents.iter().find(|agent| agent.name == conversation.agent);
    let embeds = agent.is_none_or(accepts_embedded_text);
    let mut blocks = Vec::new();
    if !text.trim().is_empty() {
        blocks.push(RawJson::from(json!({"type": "text", "text": text})));
    }
    for file in files {
        blocks.push(file_block(file.as_ref(), embeds)?);
    }
    Ok(PromptContent::blocks(blocks))
}

/// Whether an agent accepts the text of a file. If the agent's capabilities are not known yet, assume that it does, unless its
/// kind is `generic`: agents of all other kinds do.
fn accepts_embedded_text(agent: &AgentInfo) -> bool {
    match &agent.capabilities {
        Some(known) => {
            let known: Value = known.read().unwrap_or_default();
            known["promptCapabilities"]["embeddedContext"] == true
        }
        None => agent.kind != "generic",
    }
}

/// ACP's content block for a file.
fn file_block(path: &Path, embeds: bool) -> CommandResult<RawJson> {
    let (path, mut file, size) = open(path)?;
    let uri = file_uri(&path);
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let mut bytes = Vec::new();
    if embeds && size <= PROMPT_LIMIT_BYTES {
        file.by_ref()
            .take(PROMPT_LIMIT_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| unreadable(&path, &error))?;
        // A device or a pipe has no size.
        if bytes.len() as u64 > PROMPT_LIMIT_BYTES {
            return Err(too_long_problem(&path.to_string_lossy())
                .hint("name it in the text of the prompt, so that the agent reads it"));
        }
        if let Ok(text) = String::from_utf8(bytes) {
            return Ok(RawJson::from(
                json!({"type": "resource", "resource": {"uri": uri, "text": text}}),
            ));
        }
    }
    Ok(RawJson::from(
        json!({"type": "resource_link", "uri": uri, "name": name, "size": size}),
    ))
}

fn unreadable(path: &Path, error: &io::Error) -> Problem {
    let problem = Problem::file_error("read", path, error);
    if error.kind() != io::ErrorKind::NotFound {
        return problem;
    }
    let whole = std::path::absolute(path).unwrap_or_default();
    let folder = whole.ancestors().skip(1).find(|folder| folder.is_dir());
    let folder = shell_word(&folder.unwrap_or(Path::new("/")).to_string_lossy());
    problem
        .with_exit(Exit::Usage)
        .hint(format!("see which files exist: ls {folder}"))
}

/// The URI of a file. Bytes that a URI cannot contain are written as `%XX`.
fn file_uri(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    let letters = path.as_os_str().as_bytes().iter().map(|byte| match plain(*byte) {
        true => char::from(*byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    format!("file://{}", letters.collect::<String>())
}

fn read_text(source: impl Read, name: &str) -> CommandResult<String> {
    let not_text = |error: &dyn Display| Problem::usage(format!("could not read {name} as text: {error}"));
    let mut bytes = Vec::new();
    source
        .take(PROMPT_LIMIT_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| not_text(&error))?;
    // Checked first, because the limit may cut a character in two.
    if bytes.len() as u64 > PROMPT_LIMIT_BYTES {
        return Err(
            too_long_problem("the prompt").hint("write the text to a file and attach that with --file PATH")
        );
    }
    String::from_utf8(bytes)
        .map_err(|error| not_text(&error).hint("convert the input to UTF-8, or attach it with --file"))
}

fn too_long_problem(what: &str) -> Problem {
    let limit = humanize::size(PROMPT_LIMIT_BYTES);
    Problem::usage(format!("{what} is longer than {limit}"))
}

/// Attaches files of an earlier prompt again, in the form that the agent received.
pub(super) fn reattach(files: Vec<String>) -> PromptContent {
    let blocks = files
        .into_iter()
        .map(|file| json!({"type": "text", "text": file}).into());
    PromptContent::blocks(blocks.collect())
}

/// The paths that a text mentions as `@PATH`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MentionedPaths {
    /// The files to attach.
    pub(super) files: Vec<String>,
    /// Names that remain text because no such file exists.
    missing: Vec<String>,
    folders: Vec<String>,
}

impl MentionedPaths {
    /// Describes what happens to each name, a line each.
    pub(super) fn lines(&self) -> Vec<String> {
        let sized = |file: &String| {
            let size = fs::metadata(file).map_or(0, |file| file.len());
            format!("{} ({})", one_line(file), humanize::size(size))
        };
        let shown = |names: &[String]| first_few(names.iter().map(|name| one_line(name)));
        let mut lines = Vec::new();
        if !self.missing.is_empty() {
            lines.push(format!("no such file: {}; sent as text", shown(&self.missing)));
        }
        if !self.folders.is_empty() {
            lines.push(format!(
                "a folder, not a file: {}; sent as text",
                shown(&self.folders)
            ));
        }
        if !self.files.is_empty() {
            lines.push(format!("attached: {}", first_few(self.files.iter().map(sized))));
        }
        lines
    }
}

/// Finds the files that a text mentions as `@PATH`, each once. Other words that begin with `@` are text.
pub(super) fn find_mentions(text: &str) -> MentionedPaths {
    let mut named = MentionedPaths::default();
    for word in text.split_whitespace().filter_map(|word| word.strip_prefix('@')) {
        // Punctuation at the end of a sentence is not part of the name.
        let trimmed = word.trim_end_matches(['.', ',', ';', ':', '?', '!', ')', '"', '\'']);
        let path = match Path::new(word).is_file() {
            true => word,
            false => trimmed,
        };
        let list = match path {
            "" => continue,
            file if Path::new(file).is_file() => &mut named.files,
            folder if Path::new(folder).is_dir() => &mut named.folders,
            _ => &mut named.missing,
        };
        if !list.iter().any(|name| name == path) {
            list.push(path.to_owned());
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_only_what_it_may_have() {
        assert_eq!(file_uri(Path::new("/a b/ü%.rs")), "file:///a%20b/%C3%BC%25.rs");
    }

    #[test]
    fn a_file_is_sent_as_the_agent_takes_it() {
        let folder = tempfile::tempdir().unwrap();
        let read = |path: &Path, embeds| {
            file_block(path, embeds)
                .unwrap()
                .read::<serde_json::Value>()
                .unwrap()
        };
        let text = folder.path().join("a.txt");
        fs::write(&text, "one\n").unwrap();
        assert_eq!(read(&text, true)["resource"]["text"], "one\n");
        assert_eq!(read(&text, false)["type"], "resource_link");
        let picture = folder.path().join("b.png");
        fs::write(&picture, [0xff, 0xfe]).unwrap();
        assert_eq!(read(&picture, true)["name"], "b.png");
        assert_eq!(file_block(folder.path(), true).unwrap_err().exit, Exit::Usage);
        assert_eq!(
            file_block(&folder.path().join("none"), true).unwrap_err().exit,
            Exit::Usage
        );
    }

    #[test]
    fn only_files_that_exist_are_attached() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.rs");
        fs::write(&file, "").unwrap();
        let file = file.to_str().unwrap();
        let text = format!("see @{file}, mail me@example.org or @nobody and (@{file}) @{file}");
        let named = find_mentions(&text);
        assert_eq!(named.files, [file]);
        assert_eq!(named.missing, ["nobody"]);
        let named = find_mentions(&format!("@{} @ @gone.rs.", folder.path().display()));
        assert_eq!(named.folders, [folder.path().to_str().unwrap()]);
        assert_eq!(
            (named.files.len(), named.missing),
            (0, vec!["gone.rs".to_owned()])
        );
    }
}
