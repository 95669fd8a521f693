use std::fs;

use bridge_protocol::check::Finding;
use serde_json::json;

use super::*;
use crate::transcript::claude::reading;
use crate::transcript::tests::{self, NEW, OLD, transcript};

mod random;

fn index(source: &Path) -> ClaudeIndex {
    reading::index(source).expect("an index")
}

fn chain(uuid: &str, parent: &str, kind: &str, text: &str) -> String {
    tests::chain(uuid, parent, kind, text, "")
}

/// A record of a reply with this message id, or of the results of its calls.
fn record(uuid: &str, parent: &str, message: Option<&str>, content: &Value) -> String {
    let kind = if message.is_some() { "assistant" } else { "user" };
    let mut record = json!({
        "parentUuid": parent, "type": kind, "uuid": uuid, "sessionId": OLD, "cwd": "/project", "version": "2.1.316",
        "timestamp": "2026-11-03T10:00:00.000Z", "message": {"id": message, "role": kind, "content": content},
    });
    if message.is_none() {
        record["toolUseResult"] = json!({});
    }
    record.to_string()
}

fn call(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "Bash", "input": {}})
}

fn answer(id: &str, text: &str) -> Value {
    json!([{"type": "tool_result", "tool_use_id": id, "content": text}])
}

struct Copy {
    _folder: tempfile::TempDir,
    records: Vec<Value>,
    repairs: Repairs,
    findings: Vec<Finding>,
}

impl Copy {
    fn of(lines: &[String]) -> Self {
        let (folder, source) = transcript((lines.join("\n") + "\n").as_bytes());
        let before = fs::read(&source).expect("the source");
        let read = index(&source);
        let branch = read.select_joined().expect("a branch");
        let made = repair(&source, &read, &branch, folder.path(), NEW).expect("a copy");
        assert_eq!(
            fs::read(&source).expect("the source"),
            before,
            "the source is as it was"
        );
        let text = fs::read_to_string(folder.path().join(format!("{NEW}.jsonl"))).expect("the copy");
        Self {
            records: text
                .lines()
                .map(|line| serde_json::from_str(line).expect("a record"))
                .collect(),
            repairs: made,
            findings: reading::check(&folder.path().join(format!("{NEW}.jsonl")))
                .expect("a check")
                .findings,
            _folder: folder,
        }
    }

    /// The way from the last record to the beginning, by the uuids; of a result that was filled in `+` and whose it is.
    fn way_back(&self) -> Vec<String> {
        let by_uuid = |uuid: &Value| self.records.iter().find(|record| record["uuid"] == *uuid);
        let mut way = Vec::new();
        let mut at = self.records.last();
        while let Some(record) = at {
            let name = match record["toolDenialKind"].as_str() {
                Some(_) => format!(
                    "+{}",
                    record["message"]["content"][0]["tool_use_id"]
                        .as_str()
                        .expect("an id")
                ),
                None => record["uuid"].as_str().expect("a uuid").to_owned(),
            };
            way.push(name);
            at = by_uuid(&record["parentUuid"]);
        }
        way
    }
}

/// A reply with several calls is a fan, of which the way back passes one spoke: what is filled in stands where the agent would
/// have put it. The calls of earlier replies stay as they are.
#[test]
fn results_are_filled_in_at_the_end() {
    let first = || chain("u1", "", "user", "one");
    let calls = |uuid: &str, parent: &str, ids: &[&str]| {
        let calls: Vec<Value> = ids.iter().map(|id| call(id)).collect();
        record(uuid, parent, Some("m1"), &Value::from(calls))
    };
    let result = |uuid: &str, parent: &str, id: &str| record(uuid, parent, None, &answer(id, "ok"));
    type Case = (&'static str, Vec<String>, &'static [&'static str], u64, usize);
    let table: [Case; 7] = [
        (
            "one",
            vec![calls("a1", "u1", &["c1"])],
            &["+c1", "a1", "u1"],
            1,
            0,
        ),
        (
            "two calls in one record",
            vec![calls("a1", "u1", &["c1", "c2"])],
            &["+c2", "+c1", "a1", "u1"],
            2,
            0,
        ),
        (
            "one of two in one record",
            vec![calls("a1", "u1", &["c1", "c2"]), result("r1", "a1", "c1")],
            &["+c2", "a1", "u1"],
            1,
            0,
        ),
        (
            "the first of two records",
            vec![
                calls("a1", "u1", &["c1"]),
                calls("a2", "a1", &["c2"]),
                result("r2", "a2", "c2"),
            ],
            &["+c1", "a1", "u1"],
            1,
            0,
        ),
        (
            "behind a gap",
            vec![calls("a1", "gone", &["c1"])],
            &["+c1", "a1", "u1"],
            1,
            0,
        ),
        (
            "a prompt follows",
            vec![calls("a1", "u1", &["c1"]), chain("u2", "a1", "user", "two")],
            &["u2", "a1", "u1"],
            0,
            1,
        ),
        (
            "another reply follows",
            vec![
                calls("a1", "u1", &["c1"]),
                record("a9", "gone", Some("m9"), &json!([call("c9")])),
            ],
            &["+c9", "a9", "a1", "u1"],
            1,
            1,
        ),
    ];
    for (what, mut lines, way, filled_in, left) in table {
        lines.insert(0, first());
        let copy = Copy::of(&lines);
        assert_eq!(copy.way_back(), way, "{what}");
        assert_eq!(copy.repairs.filled_in, filled_in, "{what}");
        let kinds: Vec<FindingKind> = copy.findings.iter().map(|finding| finding.kind).collect();
        assert_eq!(kinds, vec![FindingKind::ToolUseWithoutResult; left], "{what}");
    }
}

/// As a cut: what was noted of the source must still be so.
#[test]
fn a_source_that_was_rewritten_meanwhile_is_not_repaired() {
    let lines = [
        chain("u1", "", "user", "one"),
        chain("a1", "u1", "assistant", "first"),
        chain("u2", "a1", "user", "two"),
    ];
    let text = lines.join("\n") + "\n";
    let (folder, source) = transcript(text.as_bytes());
    let read = index(&source);
    let branch = read.select_joined().expect("a branch");
    let table = [
        text.replacen("\"a1\"", "\"a9\"", 1),
        text.replacen("\"assistant\"", "'assistant'", 1),
        text[..lines[0].len() + 1].to_owned(),
        format!("\n{text}"),
        String::new(),
    ];
    for changed in table {
        fs::write(&source, &changed).expect("the source");
        let error = repair(&source, &read, &branch, folder.path(), NEW).expect_err("another source");
        assert!(
            matches!(error, TranscriptError::Io { action: "repair", .. }),
            "{error}"
        );
        let left = fs::read_dir(folder.path()).expect("the folder");
        assert_eq!(left.count(), 1, "a failure leaves nothing behind: {changed}");
    }
}
