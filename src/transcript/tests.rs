//! Transcripts that tests make.

pub(crate) mod bad_input;
mod corpus;
mod golden;

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::claude::record::Record;
use super::claude::{ClaudeIndex, Selection};
use super::lines::{Lines, line_text};
use super::message::ContentPart;

/// The session that they are of.
pub(super) const OLD: &str = "11111111-1111-4111-8111-111111111111";
/// One that a copy is of.
pub(super) const NEW: &str = "22222222-2222-4222-8222-222222222222";

/// A transcript with this content, in a folder of its own.
pub(super) fn transcript(content: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(format!("{OLD}.jsonl"));
    fs::write(&path, content).expect("a file");
    (folder, path)
}

/// The names of what lies in a folder, in order.
pub(super) fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

/// A record of a chain, with no parent where its name is empty, and with these members more, each behind a comma.
pub(super) fn chain(uuid: &str, parent: &str, kind: &str, text: &str, more: &str) -> String {
    let origin = match kind {
        "user" => r#","origin":{"kind":"human"}"#,
        _ => "",
    };
    let parent = match parent {
        "" => "null".to_owned(),
        parent => format!("\"{parent}\""),
    };
    format!(
        r#"{{"parentUuid":{parent},"type":"{kind}","uuid":"{uuid}","sessionId":"{OLD}"{origin},"message":{{"content":"{text}"}}{more}}}"#
    )
}

/// A turn of one of Claude's transcripts, as tests compare it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ToldTurn {
    pub(super) prompt: String,
    /// What the model said, texts parted by an empty line.
    pub(super) reply: String,
    /// The ids of the calls of tools.
    pub(super) calls: Vec<String>,
}

/// The turns of a branch.
pub(super) fn told(bytes: &[u8], branch: &Selection) -> Vec<ToldTurn> {
    let mut turns: Vec<ToldTurn> = Vec::new();
    let mut lines = Lines::new(bytes, 0);
    while let Some(line) = lines.next_line().expect("memory can be read") {
        let text = line_text(line.bytes);
        let Some(record) = Record::parse(&text).filter(|_| branch.contains(line.offset)) else {
            continue;
        };
        if record.is_human_prompt() {
            turns.push(ToldTurn {
                prompt: record.text(),
                ..ToldTurn::default()
            });
            continue;
        }
        let is_reply = record.has_kind("assistant") && !record.is_filler();
        let Some(turn) = turns.last_mut().filter(|_| is_reply) else {
            continue;
        };
        let text = record.text();
        if !turn.reply.is_empty() && !text.is_empty() {
            turn.reply.push_str("\n\n");
        }
        turn.reply.push_str(&text);
        let parts = record.parts().unwrap_or_default().into_iter();
        turn.calls.extend(parts.filter_map(|part| match part {
            ContentPart::ToolCall { id, .. } => Some(id),
            _ => None,
        }));
    }
    turns
}

/// The turns of the live branch of a transcript, those before a compaction too.
pub(super) fn told_live(path: &Path) -> Vec<ToldTurn> {
    let bytes = fs::read(path).expect("the transcript");
    let index = ClaudeIndex::read(&bytes[..]).expect("memory can be read");
    let branch = index.select(None, true);
    branch.map_or_else(Vec::new, |branch| told(&bytes, &branch))
}
