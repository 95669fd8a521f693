//! Lists the sessions on disk.

use std::cmp::Reverse;
use std::ffi::OsStr;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::agent::LoopbackAgent;
use super::report;
use super::wire::RpcError;
use crate::transcript::claude::FORMAT;
use crate::transcript::claude::record::Record;
use crate::transcript::fields::Fields;
use crate::transcript::lines::{Lines, line_text};
use crate::transcript::transcript_list;

/// How many sessions one answer contains. Each requires opening a file.
const PAGE_SESSIONS: usize = 50;

/// Answers `session/list`: newest first, without refused sessions.
pub(super) fn list(agent: &LoopbackAgent, params: &Value) -> Result<Value, RpcError> {
    let start = match params["cursor"].as_str() {
        None => 0,
        Some(cursor) => cursor
            .parse()
            .map_err(|_| RpcError::invalid_params("unknown cursor"))?,
    };
    let wanted_cwd = params["cwd"].as_str();
    let transcripts = transcript_list::transcript_versions(&agent.root, FORMAT);
    let mut transcripts: Vec<(Reverse<Timestamp>, PathBuf)> = transcripts
        .map(|(path, identity)| (Reverse(identity.modified_at()), path))
        .collect();
    transcripts.sort();
    let mut sessions = Vec::new();
    let mut next_cursor = None;
    for (position, (Reverse(modified), path)) in transcripts.iter().enumerate().skip(start) {
        if sessions.len() == PAGE_SESSIONS {
            next_cursor = Some(position.to_string());
            break;
        }
        let id = path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
        if !agent.persistent_state.is_refused(id)
            && let Some((cwd, prompt)) = folder_and_first_prompt(path)
            && wanted_cwd.is_none_or(|wanted| wanted == cwd)
        {
            sessions.push(json!({
                "sessionId": id,
                "cwd": cwd,
                "title": report::title_of(&prompt),
                "updatedAt": format!("{modified:.3}"),
            }));
        }
    }
    Ok(match next_cursor {
        Some(cursor) => json!({ "sessions": sessions, "nextCursor": cursor }),
        None => json!({ "sessions": sessions }),
    })
}

/// Returns the first prompt of a transcript.
pub(super) fn first_prompt(path: &Path) -> Option<String> {
    folder_and_first_prompt(path).map(|(_, prompt)| prompt)
}

/// Returns the UUID of a transcript's first record. A copy starts with the same record, and a cut names it as its
/// origin.
pub(super) fn first_record(path: &Path) -> Option<String> {
    let mut lines = Lines::new(BufReader::new(File::open(path).ok()?), 0);
    while let Some(line) = lines.next_line().ok()? {
        let text = line_text(line.bytes);
        let Some(fields) = Fields::parse(&text) else {
            continue;
        };
        if let Some(uuid) = fields.text("uuid") {
            let origin = fields.object("forkedFrom");
            return origin
                .and_then(|origin| origin.text("messageUuid"))
                .or(Some(uuid));
        }
    }
    None
}

/// Returns the working directory and the text of the first prompt, and reads no further. A file without a prompt is
/// not a session.
fn folder_and_first_prompt(path: &Path) -> Option<(String, String)> {
    let mut lines = Lines::new(BufReader::new(File::open(path).ok()?), 0);
    while let Some(line) = lines.next_line().ok()? {
        let text = line_text(line.bytes);
        if let Some(record) = Record::parse(&text).filter(Record::is_human_prompt) {
            return Some((record.fields.text("cwd")?, record.text()));
        }
    }
    None
}
