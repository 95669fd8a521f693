//! Writes a session's transcript in Claude's format.
//!
//! This module owns the form of the records, and appends each with one write as it happens. The file is the session's
//! only memory: every prompt reads from it where to continue.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::transcript::TranscriptError;
use crate::transcript::claude::reading;
use crate::transcript::claude::record::SYNTHETIC_MODEL;
use crate::transcript::locate::{file_name, locate, project_folder};

/// A transcript that is open for appending.
#[derive(Debug)]
pub(super) struct TranscriptWriter {
    path: PathBuf,
    file: File,
    file_id: String,
    cwd: String,
    leaf: Option<String>,
    needs_newline: bool,
}

/// What some records have besides their message.
#[derive(Clone, Copy, Default)]
struct Marks<'a> {
    is_human: bool,
    is_api_error: bool,
    tool_use_result: Option<&'a str>,
}

impl TranscriptWriter {
    /// Opens the transcript below `root`. `None` if it `must_exist` but does not; otherwise a missing one is created.
    pub(super) fn open(
        root: &Path,
        file_id: &str,
        cwd: &Path,
        must_exist: bool,
    ) -> Result<Option<Self>, TranscriptError> {
        let path = match locate(root, file_id, Some(cwd))?.into_iter().next() {
            Some(path) => path,
            None if must_exist => return Ok(None),
            None => new_path(root, file_id, cwd)?,
        };
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)
            .map_err(TranscriptError::io("open", &path))?;
        let index = reading::index(&path)?;
        let branch = index.select(None, false);
        // The next record follows the agent's own ones after the last message, as in Claude Code.
        let leaf = branch.and_then(|branch| index.select_up_to_next_prompt(&branch.leaf_uuid));
        let leaf = leaf.map(|branch| branch.leaf_uuid);
        let needs_newline = lacks_newline(&mut file).map_err(TranscriptError::io("read", &path))?;
        let cwd = cwd.to_string_lossy().into_owned();
        Ok(Some(Self {
            path,
            file,
            file_id: file_id.to_owned(),
            cwd,
            leaf,
            needs_newline,
        }))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the UUID of the record that the next one follows.
    pub(super) fn leaf(&self) -> Option<&str> {
        self.leaf.as_deref()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.file.metadata().map_or(0, |metadata| metadata.len())
    }

    pub(super) fn prompt(&mut self, content: &[Value]) -> io::Result<String> {
        let marks = Marks {
            is_human: true,
            ..Marks::default()
        };
        self.append("user", json!({ "role": "user", "content": content }), marks)
    }

    /// Appends one content block of a reply, which may be the last one.
    pub(super) fn reply(
        &mut self,
        message_id: &str,
        model: &str,
        block: &impl Serialize,
        is_last: bool,
    ) -> io::Result<String> {
        let message = AssistantMessage {
            stop_reason: is_last.then_some("end_turn"),
            ..AssistantMessage::new(message_id, model, block)
        };
        self.append("assistant", message, Marks::default())
    }

    pub(super) fn api_error(&mut self, text: &str) -> io::Result<String> {
        let block = json!({ "type": "text", "text": text });
        let message_id = Uuid::new_v4().to_string();
        let message = AssistantMessage::new(&message_id, SYNTHETIC_MODEL, &block);
        let marks = Marks {
            is_api_error: true,
            ..Marks::default()
        };
        self.append("assistant", message, marks)
    }

    pub(super) fn tool_result(&mut self, call_id: &str, text: &str, is_error: bool) -> io::Result<String> {
        let block = json!({
            "type": "tool_result", "tool_use_id": call_id, "content": text, "is_error": is_error,
        });
        let marks = Marks {
            tool_use_result: Some(text),
            ..Marks::default()
        };
        self.append("user", json!({ "role": "user", "content": [block] }), marks)
    }

    pub(super) fn interruption(&mut self) -> io::Result<String> {
        let block = json!({ "type": "text", "text": "[Request interrupted by user]" });
        let message = json!({ "role": "user", "content": [block] });
        self.append("user", message, Marks::default())
    }

    /// Appends a command of the agent itself, without arguments and output.
    pub(super) fn own_command(&mut self, name: &str) -> io::Result<String> {
        let text = format!(
            "<command-name>/{name}</command-name>\n            <command-message>{name}</command-message>\n            \
             <command-args></command-args>"
        );
        let message = json!({ "role": "user", "content": text });
        self.append("user", message, Marks::default())
    }

    fn append(&mut self, kind: &str, message: impl Serialize, marks: Marks<'_>) -> io::Result<String> {
        let uuid = Uuid::new_v4().to_string();
        let record = ChainRecord {
            parent_uuid: self.leaf.as_deref(),
            is_sidechain: false,
            kind,
            message,
            is_api_error_message: marks.is_api_error.then_some(true),
            tool_use_result: marks.tool_use_result,
            uuid: &uuid,
            timestamp: now_text(),
            origin: marks.is_human.then_some(Origin { kind: "human" }),
            user_type: "external",
            entrypoint: "loopback",
            cwd: &self.cwd,
            session_id: &self.file_id,
            version: env!("CARGO_PKG_VERSION"),
            git_branch: "",
        };
        let mut line = Vec::with_capacity(1024);
        if self.needs_newline {
            line.push(b'\n');
        }
        serde_json::to_writer(&mut line, &record)?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.needs_newline = false;
        self.leaf = Some(uuid.clone());
        Ok(uuid)
    }
}

/// Returns the current time in the form of the records.
pub(super) fn now_text() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}

fn new_path(root: &Path, file_id: &str, cwd: &Path) -> Result<PathBuf, TranscriptError> {
    let resolved = fs::canonicalize(cwd).unwrap_or_else(|_| cwd.to_owned());
    let folder = root.join("projects").join(project_folder(&resolved));
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .map_err(TranscriptError::io("create the folder", &folder))?;
    Ok(folder.join(file_name(file_id)?))
}

/// Whether the last line lacks its newline, because its writer was killed. The next record must not join that line.
fn lacks_newline(file: &mut File) -> io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ChainRecord<'a, M: Serialize> {
    parent_uuid: Option<&'a str>,
    is_sidechain: bool,
    #[serde(rename = "type")]
    kind: &'a str,
    message: M,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_api_error_message: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_use_result: Option<&'a str>,
    uuid: &'a str,
    timestamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<Origin<'a>>,
    user_type: &'a str,
    entrypoint: &'a str,
    cwd: &'a str,
    session_id: &'a str,
    version: &'a str,
    git_branch: &'a str,
}

#[derive(Serialize)]
struct Origin<'a> {
    kind: &'a str,
}

#[derive(Serialize)]
struct AssistantMessage<'a, B: Serialize> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    role: &'a str,
    model: &'a str,
    content: [&'a B; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_reason: Option<&'a str>,
}

impl<'a, B: Serialize> AssistantMessage<'a, B> {
    fn new(id: &'a str, model: &'a str, block: &'a B) -> Self {
        Self {
            id,
            kind: "message",
            role: "assistant",
            model,
            content: [block],
            stop_reason: None,
        }
    }
}
