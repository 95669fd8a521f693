//! Forks a session: writes a new transcript with the history up to a point.
//!
//! Works like Claude's fork: at once, next to the source, with new UUIDs, each record naming the one that it was
//! copied from. Only single tokens of a record are changed, so unknown content is copied too.

use std::collections::HashMap;
use std::path::Path;

use uuid::Uuid;

use super::wire::RpcError;
use crate::transcript::claude::copy::open_lines;
use crate::transcript::claude::reading;
use crate::transcript::lines::text_of_same_length;
use crate::transcript::rewrite::{EditableRecord, Edits, Verdict, json_string};
use crate::transcript::{TranscriptError, copy};

/// Writes the transcript `branch_id` with the history of `source` up to and including the message `point`: a reply's
/// message id or a record's UUID.
pub(super) fn fork(
    source: &Path,
    source_id: &str,
    branch_id: &str,
    point: Option<&str>,
) -> Result<(), RpcError> {
    let index = reading::index(source).map_err(RpcError::internal)?;
    let live_branch = index
        .select(None, true)
        .ok_or_else(|| RpcError::session_not_found(source_id))?;
    let selection = match point {
        None => live_branch,
        Some(point) => {
            let not_found = || RpcError::invalid_params(format!("Fork point message {point} was not found"));
            let last = index
                .last_of_message(&live_branch, point)
                .unwrap_or_else(|| point.to_owned());
            let cut = index.select(Some(&last), true).ok_or_else(not_found)?;
            if !live_branch.contains(cut.leaf_offset) {
                return Err(not_found());
            }
            cut
        }
    };
    let folder = source.parent().unwrap_or(Path::new("."));
    let lines = open_lines(source).map_err(RpcError::internal)?;
    copy::create_in(folder, branch_id, "fork", |writer| {
        let mut new_ids = HashMap::new();
        let copied = lines.rewrite_all(writer, |line, edits| {
            let text = text_of_same_length(line.require_bytes()?);
            let record = EditableRecord::parse(&text).filter(|_| selection.contains(line.offset));
            let Some(record) = record else {
                return Ok(Verdict::Drop);
            };
            edit(&record, source_id, branch_id, &mut new_ids, edits);
            Ok(Verdict::Keep)
        });
        copied.map_err(TranscriptError::io("write the copy of", source))
    })
    .map(drop)
    .map_err(RpcError::internal)
}

fn edit(
    record: &EditableRecord<'_>,
    source_id: &str,
    branch_id: &str,
    new_ids: &mut HashMap<String, String>,
    edits: &mut Edits,
) {
    if let Some(range) = record.position(&["sessionId"]) {
        edits.replace(range, json_string(branch_id));
    }
    for name in ["uuid", "parentUuid", "logicalParentUuid"] {
        if let Some((old, range)) = record.text(&[name]) {
            let new = new_ids.entry(old).or_insert_with(|| Uuid::new_v4().to_string());
            edits.replace(range, json_string(new));
        }
    }
    let (source_id, uuid) = (
        json_string(source_id),
        json_string(&record.fields.text("uuid").unwrap_or_default()),
    );
    let origin = format!(r#"{{"sessionId":{source_id},"messageUuid":{uuid}}}"#);
    match record.position(&["forkedFrom"]) {
        Some(range) => edits.replace(range, origin),
        None => edits.replace(record.end()..record.end(), format!(",\"forkedFrom\":{origin}")),
    }
}
