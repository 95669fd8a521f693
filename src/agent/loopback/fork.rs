//! A branch of a session: a new transcript with the history up to a point.
//!
//! Done as Claude does it: at once, beside the source, every uuid new, each record saying from which one it
//! was copied. Records are changed token by token, so that what this agent does not know goes along.

use std::collections::HashMap;
use std::io::Write;
use std::ops::Range;
use std::path::Path;

use serde_json::Value;
use uuid::Uuid;

use super::replay::for_each_record;
use super::wire::RpcError;
use crate::transcript::claude::Selection;
use crate::transcript::record::Record;
use crate::transcript::{TranscriptError, copy, reading};

/// Writes the transcript `branch_id` with the history of `source` up to and with the message `point`: a reply's
/// message id or a record's uuid.
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
            if !whole.contains(cut.leaf_offset()) {
                return Err(not_found());
            }
            cut
        }
    };
    copy::create_beside(source, branch_id, |writer| {
        copy_records(source, source_id, branch_id, &selection, writer)
    })
    .map(drop)
    .map_err(RpcError::internal)
}

fn copy_records(
    source: &Path,
    source_id: &str,
    branch_id: &str,
    selection: &Selection,
    writer: &mut dyn Write,
) -> Result<(), TranscriptError> {
    let mut new_ids = HashMap::new();
    let mut written = Ok(());
    for_each_record(source, selection, |text, record| {
        if written.is_ok() {
            let copied = copy_record(text, record, source_id, branch_id, &mut new_ids);
            written = writeln!(writer, "{copied}");
        }
    })?;
    written.map_err(TranscriptError::io("write the copy of", source))
}

fn copy_record(
    text: &str,
    record: &Record<'_>,
    source_id: &str,
    branch_id: &str,
    new_ids: &mut HashMap<String, String>,
) -> String {
    let fields = &record.fields;
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    let mut replace = |name: &str, value: String| {
        edits.extend(fields.place(text, name).map(|place| (place, value)));
    };
    replace("sessionId", quoted(branch_id));
    for name in ["uuid", "parentUuid", "logicalParentUuid"] {
        if let Some(old) = fields.text(name) {
            let new = new_ids.entry(old).or_insert_with(|| Uuid::new_v4().to_string());
            replace(name, quoted(new));
        }
    }
    let uuid = fields.text("uuid").unwrap_or_default();
    let origin = format!(
        r#"{{"sessionId":{},"messageUuid":{}}}"#,
        quoted(source_id),
        quoted(&uuid)
    );
    replace("forkedFrom", origin.clone());
    if fields.raw("forkedFrom").is_none()
        && let Some(end) = text.rfind('}')
    {
        edits.push((end..end, format!(",\"forkedFrom\":{origin}")));
    }
    splice(text, edits)
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn splice(text: &str, mut edits: Vec<(Range<usize>, String)>) -> String {
    edits.sort_by_key(|(place, _)| place.start);
    let mut spliced = String::with_capacity(text.len() + 128);
    let mut rest = 0;
    for (place, new) in edits {
        spliced.push_str(&text[rest..place.start]);
        spliced.push_str(&new);
        rest = place.end;
    }
    spliced.push_str(&text[rest..]);
    spliced
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_copied_record_differs_only_in_its_ids() {
        let text = r#"{"uuid":"u1" ,"parentUuid":"p","sessionId":"old","big":12345678901234567890.10,"x":{"uuid":"u1"}}"#;
        let record = Record::parse(text).expect("a record");
        let mut ids = HashMap::from([
            ("u1".to_owned(), "U".to_owned()),
            ("p".to_owned(), "P".to_owned()),
        ]);
        assert_eq!(
            copy_record(text, &record, "old", "new", &mut ids),
            r#"{"uuid":"U" ,"parentUuid":"P","sessionId":"new","big":12345678901234567890.10,"x":{"uuid":"u1"},"forkedFrom":{"sessionId":"old","messageUuid":"u1"}}"#
        );
    }

    #[test]
    fn a_fork_of_a_fork_names_the_nearer_source() {
        let text = r#"{"uuid":"u1","forkedFrom":{"sessionId":"older","messageUuid":"x"}}"#;
        let record = Record::parse(text).expect("a record");
        let copied = copy_record(text, &record, "old", "new", &mut HashMap::new());
        let value: Value = serde_json::from_str(&copied).expect("JSON");
        assert_eq!(
            value["forkedFrom"],
            json!({ "sessionId": "old", "messageUuid": "u1" })
        );
    }

    #[test]
    fn a_message_that_was_abandoned_is_no_place_to_fork() {
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
