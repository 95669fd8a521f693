//! Qwen Code's transcripts: `projects/<folder>/chats/<session id>.jsonl`, a tree of records in an append-only file.
//!
//! This module owns the names of files and folders, and the list entry of a file. Facts as of Qwen Code 0.24.4: a
//! session id is a UUID (32 to 36 hexadecimal digits and hyphens), and the folder is the working directory with `-` for
//! every other character. A session resumes only in the folder that its first record names. All records are part of the
//! chain, even telemetry, except some notes. Pure, except for `locate`.

mod check;
mod dialect;
mod history;
mod index;
mod message;
mod record;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use super::TranscriptError;
use super::fields::Fields;
use super::lines::line_text;
use super::locate::{folder_character, in_projects};
use super::summary::{Ends, TranscriptSummary, read_end, title_of};
use super::transcript_list::Format;
pub(super) use dialect::Qwen;
pub use history::OpenQwenTranscript;
pub(super) use history::QwenHistory;
use message::prompt_text;
use record::RecordKind;

/// The format of these transcripts.
pub const FORMAT: Format = Format::Qwen;

/// The folder of transcripts in a project's folder. Archived ones are in a subfolder of it and are not searched.
const CHATS: &str = "chats";

/// The length of an id, in characters.
const ID_CHARS: std::ops::RangeInclusive<usize> = 32..=36;

/// The session whose transcript has this name. Other files are next to transcripts: `<id>.ledger.jsonl`, `<id>.worktree.json`.
fn upstream_id(name: &str) -> Option<&str> {
    name.strip_suffix(".jsonl").filter(|id| is_id(id))
}

fn is_id(id: &str) -> bool {
    let is_part = |byte: u8| byte == b'-' || byte.is_ascii_hexdigit();
    ID_CHARS.contains(&id.len()) && id.bytes().all(is_part)
}

/// The folder in which the agent keeps the transcripts of a working directory. The agent does not resolve links in its path.
fn own_folder(root: &Path, cwd: &str) -> PathBuf {
    let name: String = cwd.encode_utf16().map(folder_character).collect();
    root.join("projects").join(name).join(CHATS)
}

/// All transcripts of a session, sorted by path.
///
/// # Errors
/// [`TranscriptError::InvalidId`] if this is not a session id, [`TranscriptError::Io`] if none was found and a folder cannot be
/// read.
fn locate(root: &Path, id: &str) -> Result<Vec<PathBuf>, TranscriptError> {
    if !is_id(id) {
        return Err(TranscriptError::InvalidId { id: id.to_owned() });
    }
    in_projects(root, &format!("{CHATS}/{id}.jsonl"))
}

/// The list entry of a transcript. The id is the file's name.
fn summary(ends: Ends<'_>) -> TranscriptSummary {
    let mut summary = TranscriptSummary::default();
    for line in ends.from_start() {
        let text = line_text(line);
        let Some(fields) = Fields::parse(&text) else {
            continue;
        };
        summary.cwd = summary.cwd.or_else(|| fields.text("cwd"));
        let source = || fields.object("forkedFrom")?.text("sessionId");
        summary.forked_from = summary.forked_from.or_else(source);
        if RecordKind::of(&fields) == RecordKind::Prompt {
            summary.title = prompt_text(&fields).and_then(|text| title_of(&text));
        }
        if summary.title.is_some() {
            break;
        }
    }
    read_end(&mut summary, ends, b"custom_title", record::given_title);
    summary
}
