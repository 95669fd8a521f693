//! What an agent's tool call does: the command that it runs, or the files that it changes.
//!
//! It owns how a call is read and how a change is shown as a diff. Pure, except that the file that would be overwritten is
//! read for its diff. It must not know what is asked about it.

use std::fs;
use std::io;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use crate::cli::humanize;
use crate::cli::output::{ATTENTION, BAD, DIM, GOOD, Look, STRONG, escape_controls, one_line};
use crate::paths::shell_word;

/// The largest file that is read for a diff.
const FILE_LIMIT_BYTES: u64 = 1024 * 1024;

/// Lines of context around a change.
const CONTEXT_LINES: usize = 3;

/// The part of a tool call that the user has to see. A request may omit values that an earlier update contained.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ToolCall {
    pub(super) tool_call_id: Option<String>,
    /// The agent's words for it.
    pub(super) title: Option<String>,
    kind: Option<String>,
    pub(super) raw_input: Option<Value>,
    content: Option<Vec<Value>>,
    /// Whether its end was shown.
    #[serde(skip)]
    pub(super) has_ended: bool,
}

impl ToolCall {
    /// Merges the values of a later update into the call.
    pub(super) fn merge(&mut self, later: Self) {
        self.tool_call_id = later.tool_call_id.or(self.tool_call_id.take());
        self.title = later.title.or(self.title.take());
        self.kind = later.kind.or(self.kind.take());
        self.raw_input = later.raw_input.or(self.raw_input.take());
        let content = later.content.filter(|content| !content.is_empty());
        self.content = content.or(self.content.take());
    }

    /// The result of the call on one line: lines added and removed, or the first line of its output.
    pub(super) fn result(&self) -> Option<String> {
        let (mut added, mut removed, mut changes) = (0, 0, false);
        for edit in self.edits(|_| Ok(String::new())) {
            changes = true;
            let (more, less) = edit.counts();
            added += more;
            removed += less;
        }
        if changes {
            return Some(format!("+{added} -{removed}"));
        }
        let text = self.texts().collect::<Vec<_>>().join("\n");
        // Claude Code's adapter puts the output of a tool between Markdown fences.
        let is_empty = |line: &str| line.trim().is_empty() || line.starts_with("```");
        let mut lines = text.lines().filter(|line| !is_empty(line));
        let first = one_line(lines.next()?);
        Some(match lines.count() {
            0 => first,
            more => format!("{first} (+{})", humanize::count(more as u64, "line", "lines")),
        })
    }

    /// The command that the call runs, with its line breaks.
    pub(super) fn command(&self) -> Option<String> {
        match self.input("command")? {
            Value::String(command) => Some(command.clone()),
            Value::Array(words) => {
                // Quote the words as in a shell, because the user approves the word boundaries too.
                let words = words.iter().map(|word| word.as_str().map(shell_word));
                Some(words.collect::<Option<Vec<String>>>()?.join(" "))
            }
            _ => None,
        }
    }

    pub(super) fn input(&self, name: &str) -> Option<&Value> {
        self.raw_input.as_ref()?.get(name)
    }

    /// The boolean arguments that are true, on one line. The command and the change do not show these, for example running
    /// outside the sandbox or replacing every occurrence of a text.
    pub(super) fn enabled_flags(&self, look: Look) -> Option<String> {
        let input = self.raw_input.as_ref()?.as_object()?;
        let is_on = input.iter().filter(|(_, value)| **value == Value::Bool(true));
        let names: Vec<String> = is_on.map(|(name, _)| one_line(name)).collect();
        (!names.is_empty()).then(|| look.paint(ATTENTION, &format!("  with {}", names.join(", "))))
    }

    pub(super) fn input_text(&self, name: &str) -> Option<&str> {
        self.input(name)?.as_str()
    }

    /// The contents of the call that have this type.
    fn contents(&self, kind: &'static str) -> impl Iterator<Item = &Value> {
        let contents = self.content.iter().flatten();
        contents.filter(move |content| content["type"] == kind)
    }

    /// The files that the call changes. `before` returns the old text of a file if the diff omits it: Claude Code's adapter
    /// omits it for each file that is written whole, whether it exists or not.
    pub(super) fn edits(&self, before: impl Fn(&str) -> Result<String, String>) -> Vec<FileEdit> {
        let shown = self.contents("diff").filter_map(|diff| {
            let text = |name: &str| diff[name].as_str().map(str::to_owned);
            let path = text("path")?;
            Some(FileEdit {
                old: text("oldText").map_or_else(|| before(&path), Ok),
                new: text("newText")?,
                path,
            })
        });
        shown.collect()
    }

    /// The changed file, taken from the arguments of common tools, for agents that send no diff.
    pub(super) fn edit_of_input(&self, before: impl Fn(&str) -> Result<String, String>) -> Option<FileEdit> {
        let path = self.input_text("file_path").or_else(|| self.input_text("path"))?;
        let pair = (self.input_text("old_string"), self.input_text("new_string"));
        let (old, new) = match pair {
            (Some(old), Some(new)) => (Ok(old.to_owned()), new),
            _ => (before(path), self.input_text("content")?),
        };
        Some(FileEdit {
            path: path.to_owned(),
            old,
            new: new.to_owned(),
        })
    }

    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        let contents = self.contents("content");
        contents.filter_map(|content| content["content"]["text"].as_str())
    }
}

/// A file that a tool call would change.
pub(super) struct FileEdit {
    path: String,
    /// The old text, or why it is not known.
    pub(super) old: Result<String, String>,
    pub(super) new: String,
}

impl FileEdit {
    /// The old text; empty if it is not known.
    pub(super) fn old(&self) -> &str {
        self.old.as_deref().unwrap_or_default()
    }

    /// How many lines the change adds and removes.
    pub(super) fn counts(&self) -> (u64, u64) {
        let (mut added, mut removed) = (0, 0);
        for change in TextDiff::from_lines(self.old(), &self.new).iter_all_changes() {
            match change.tag() {
                ChangeTag::Insert => added += 1,
                ChangeTag::Delete => removed += 1,
                ChangeTag::Equal => {}
            }
        }
        (added, removed)
    }

    /// The absolute path: an agent may send a path relative to its folder.
    pub(super) fn whole_path(&self, folder: &str) -> String {
        let path = Path::new(folder).join(one_line(&self.path));
        path.display().to_string()
    }

    /// The path of the file and the number of changed lines, on one line.
    pub(super) fn summary(&self, folder: &str, look: Look) -> String {
        let path = look.paint(STRONG, &self.whole_path(folder));
        let (added, removed) = self.counts();
        match &self.old {
            Ok(_) => format!("  {path}  +{added} -{removed}"),
            Err(_) => format!("  {path}  +{added}, replaces a file that is not shown"),
        }
    }
}

/// Reads the text of a file that would be overwritten. A file that does not exist is empty.
///
/// # Errors
/// Why the file cannot be shown.
pub(super) fn text_before(file: &Path) -> Result<String, String> {
    let found = match fs::metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        found => found.map_err(|error| error.to_string())?,
    };
    if !found.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    if found.len() > FILE_LIMIT_BYTES {
        return Err(format!("it is larger than {}", humanize::size(FILE_LIMIT_BYTES)));
    }
    let bytes = fs::read(file).map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())
}

/// The changed lines with [`CONTEXT_LINES`] lines around them.
pub(super) fn diff(old: &str, new: &str, look: Look) -> Vec<String> {
    let diff = TextDiff::from_lines(old, new);
    let mut lines = Vec::new();
    for (at, group) in diff.grouped_ops(CONTEXT_LINES).iter().enumerate() {
        if at > 0 {
            lines.push(look.paint(DIM, &format!("  {}", look.sign("⋮", "..."))));
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let (sign, style) = match change.tag() {
                ChangeTag::Delete => ("-", BAD),
                ChangeTag::Insert => ("+", GOOD),
                ChangeTag::Equal => (" ", DIM),
            };
            let text = escape_controls(change.value().trim_end_matches(['\n', '\r']));
            lines.push(format!("  {}", look.paint(style, &format!("{sign} {text}"))));
        }
    }
    lines
}
