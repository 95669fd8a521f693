//! Lists the sessions on disk.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::{Value, json};

use super::agent::Agent;
use super::report;
use super::wire::RpcError;
use crate::transcript::claude::record::Record;
use crate::transcript::fields::Fields;
use crate::transcript::lines::{Lines, line_text};
use crate::transcript::locate::project_folders;

/// How many sessions one answer contains. Each requires opening a file.
const PAGE_SESSIONS: usize = 50;

/// An unopened transcript.
struct Found {
    id: String,
    path: PathBuf,
    modified: SystemTime,
}

/// Answers `session/list`: newest first, without refused sessions.
pub(super) fn list(agent: &Agent, params: &Value) -> Result<Value, RpcError> {
    let start = match params["cursor"].as_str() {
        None => 0,
        Some(cursor) => cursor
            .parse()
            .map_err(|_| RpcError::invalid_params("unknown cursor"))?,
    };
    let wanted_cwd = params["cwd"].as_str();
    let mut found = all_transcripts(&agent.root)?;
    found.sort_by(|one, other| {
        other
            .modified
            .cmp(&one.modified)
            .then_with(|| one.id.cmp(&other.id))
    });
    let mut sessions = Vec::new();
    let mut next_cursor = None;
    for (position, transcript) in found.iter().enumerate().skip(start) {
        if sessions.len() == PAGE_SESSIONS {
            next_cursor = Some(position.to_string());
            break;
        }
        if !agent.marks.is_refused(&transcript.id)
            && let Some((cwd, prompt)) = folder_and_first_prompt(&transcript.path)
            && wanted_cwd.is_none_or(|wanted| wanted == cwd)
        {
            sessions.push(json!({
                "sessionId": transcript.id,
                "cwd": cwd,
                "title": report::title_of(&prompt),
                "updatedAt": updated_at(transcript.modified),
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

fn all_transcripts(root: &Path) -> Result<Vec<Found>, RpcError> {
    let mut found = Vec::new();
    for folder in project_folders(root).map_err(RpcError::internal)? {
        // A missing or unreadable folder has no sessions.
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        for path in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
            let id = path.file_stem().and_then(OsStr::to_str).map(str::to_owned);
            if let (Some(id), Some("jsonl")) = (id, path.extension().and_then(OsStr::to_str))
                && let Ok(modified) = path.metadata().and_then(|metadata| metadata.modified())
            {
                found.push(Found { id, path, modified });
            }
        }
    }
    Ok(found)
}

/// Returns the working directory and the text of the first prompt, and reads no further. A file without a prompt is
/// not a session.
fn folder_and_first_prompt(path: &Path) -> Option<(String, String)> {
    let mut lines = Lines::new(BufReader::new(File::open(path).ok()?), 0);
    while let Some(line) = lines.next_line().ok()? {
        let text = line_text(line.bytes);
        if let Some(record) = Record::parse(&text) {
            let header = record.header();
            if record.is_human_prompt() {
                return Some((header.cwd?, record.message()?.text()));
            }
        }
    }
    None
}

fn updated_at(modified: SystemTime) -> Option<String> {
    jiff::Timestamp::try_from(modified)
        .ok()
        .map(|time| format!("{time:.3}"))
}
