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
use crate::transcript::rewrite::{EditableRecord, Edits, Verdict, token};
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
    let whole = index
        .select(None, true)
        .ok_or_else(|| RpcError::session_not_found(source_id))?;
    let selection = match point {
        None => whole,
        Some(point) => {
            let not_found = || RpcError::invalid_params(format!("Fork point message {point} was not found"));
            let last = index
                .last_of_message(&whole, point)
                .unwrap_or_else(|| point.to_owned());
            let cut = index.select(Some(&last), true).ok_or_else(not_found)?;
            if !whole.contains(cut.leaf_offset) {
                return Err(not_found());
            }
            cut
        }
    };
    let folder = source.parent().unwrap_or(Path::new("."));
    let lines = open_lines(source).map_err(RpcError::internal)?;
    copy::create_in(folder, branch_id, "fork", |writer| {
        let mut new_ids = HashMap::new();
        let copied = lines.all(writer, |line, edits| {
            let text = text_of_same_length(line.held()?);
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
    if let Some(place) = record.position(&["sessionId"]) {
        edits.replace(place, token(branch_id));
    }
    for name in ["uuid", "parentUuid", "logicalParentUuid"] {
        if let Some((old, place)) = record.text(&[name]) {
            let new = new_ids.entry(old).or_insert_with(|| Uuid::new_v4().to_string());
            edits.replace(place, token(new));
        }
    }
    let (source_id, uuid) = (
        token(source_id),
        token(&record.fields.text("uuid").unwrap_or_default()),
    );
    let origin = format!(r#"{{"sessionId":{source_id},"messageUuid":{uuid}}}"#);
    match record.position(&["forkedFrom"]) {
        Some(place) => edits.replace(place, origin),
        None => edits.replace(record.end()..record.end(), format!(",\"forkedFrom\":{origin}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcript::rewrite::Rewriter;
    use serde_json::{Value, json};

    fn copied(text: &str, mut ids: HashMap<String, String>) -> String {
        let mut written = Vec::new();
        let lines = Rewriter::new(text.as_bytes(), text.len()).leaving_the_end();
        let copied = lines.all(&mut written, |_, edits| {
            edit(
                &EditableRecord::parse(text).expect("a record"),
                "old",
                "new",
                &mut ids,
                edits,
            );
            Ok(Verdict::Keep)
        });
        copied.expect("a copy");
        String::from_utf8(written).expect("text")
    }

    #[test]
    fn a_copied_record_differs_only_in_its_ids() {
        let text = r#"{"uuid":"u1" ,"parentUuid":"p","sessionId":"old","big":12345678901234567890.10,"x":{"uuid":"u1"}}"#;
        let ids = HashMap::from([
            ("u1".to_owned(), "U".to_owned()),
            ("p".to_owned(), "P".to_owned()),
        ]);
        assert_eq!(
            copied(text, ids),
            r#"{"uuid":"U" ,"parentUuid":"P","sessionId":"new","big":12345678901234567890.10,"x":{"uuid":"u1"},"forkedFrom":{"sessionId":"old","messageUuid":"u1"}}"#
        );
    }

    #[test]
    fn a_fork_of_a_fork_names_the_nearer_source() {
        let text = r#"{"uuid":"u1","forkedFrom":{"sessionId":"older","messageUuid":"x"}}"#;
        let value: Value = serde_json::from_str(&copied(text, HashMap::new())).expect("JSON");
        assert_eq!(
            value["forkedFrom"],
            json!({ "sessionId": "old", "messageUuid": "u1" })
        );
    }

    #[test]
    fn an_abandoned_message_cannot_be_forked_at() {
        let folder = tempfile::tempdir().expect("a folder");
        let source = folder.path().join("s.jsonl");
        let record = |uuid: &str, parent: &str| {
            format!(r#"{{"type":"user","uuid":"{uuid}","parentUuid":{parent},"origin":{{"kind":"human"}}}}"#)
        };
        let lines = [record("a", "null"), record("gone", "\"a\""), record("b", "\"a\"")];
        std::fs::write(&source, lines.join("\n")).expect("a file");
        assert!(fork(&source, "s", "branch-1", Some("gone")).is_err());
        assert!(fork(&source, "s", "branch-2", Some("nowhere")).is_err());
        assert!(fork(&source, "s", "branch-3", Some("a")).is_ok());
        let copied = std::fs::read_to_string(folder.path().join("branch-3.jsonl")).expect("the branch");
        assert_eq!(copied.lines().count(), 1);
        assert!(!folder.path().join("branch-1.jsonl").exists());
    }
}
