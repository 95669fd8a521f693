use std::fs;

use bridge_protocol::check::Finding;
use serde_json::json;

use super::*;
use crate::files::durable::tests::Disk;
use crate::transcript::claude::reading;
use crate::transcript::tests::{self, NEW, OLD, transcript};

mod random;

fn index(source: &Path) -> Index {
    reading::index(source).expect("an index")
}

fn chain(uuid: &str, parent: &str, kind: &str, text: &str) -> String {
    tests::chain(uuid, parent, kind, text, "")
}

/// How many prompts and how many breaks the repaired copy of these records has.
fn joined(lines: &[String]) -> (usize, usize) {
    let (folder, source) = transcript((lines.join("\n") + "\n").as_bytes());
    let read = index(&source);
    let joined = read.select_joined().expect("a branch");
    let copy = repair(&source, &read, &joined, folder.path(), NEW).expect("a copy");
    let live = index(&copy.path).select(None, true).expect("a branch");
    (live.prompt_offsets.len(), live.breaks)
}

#[test]
fn a_branch_without_some_of_its_parents_is_whole_in_its_copy() {
    let lines = [
        chain("u1", "", "user", "one"),
        chain("a1", "u1", "assistant", "first"),
        r#"{"type":"last-prompt","leafUuid":"a1"}"#.to_owned(),
        chain("u2", "gone", "user", "two"),
        "garbage".to_owned(),
        chain("a2", "u2", "assistant", "second"),
        r#"{"type":"mode","mode":"plan"}"#.to_owned(),
        chain("u3", "a2", "user", "three"),
        r#"{"type":"custom-title","customTitle":"Named at the end"}"#.to_owned(),
    ];
    let (folder, source) = transcript((lines.join("\n") + "\n").as_bytes());
    let read = index(&source);
    // The agent goes on from the place that it noted.
    let live = read.select(None, true).expect("a branch");
    assert_eq!((live.leaf_uuid.as_str(), live.breaks), ("a1", 1));
    let joined = read.select_joined().expect("a branch");
    assert_eq!(joined.leaf_uuid.as_str(), "u3");
    let copy = repair(&source, &read, &joined, folder.path(), NEW).expect("a copy");
    let live = index(&copy.path).select(None, true).expect("a branch");
    assert_eq!((live.leaf_uuid.as_str(), live.breaks), ("u3", 0));
    assert_eq!(live.prompt_offsets.len(), 3);
    let expected = [
        lines[0].replace(OLD, NEW),
        lines[1].replace(OLD, NEW),
        lines[3].replace(OLD, NEW).replace("gone", "a1"),
        lines[5].replace(OLD, NEW),
        lines[6].clone(),
        lines[7].replace(OLD, NEW),
        lines[8].clone(),
    ];
    let repairs = Repairs {
        left_out: 1,
        joined: 1,
        ..Repairs::default()
    };
    assert_eq!(copy.repairs, repairs);
    let written = fs::read_to_string(&copy.path).expect("the copy");
    assert_eq!(written, expected.join("\n") + "\n");
}

/// A writer that appended its records twice: only the last of one uuid is reached by it.
#[test]
fn a_record_that_stands_twice_is_no_ancestor_of_itself() {
    let lines = [
        chain("u1", "", "user", "one"),
        chain("a1", "u1", "assistant", "first"),
        "garbage".to_owned(),
        chain("a2", "u2", "assistant", "second"),
        chain("a2", "u2", "assistant", "second"),
        chain("u3", "a2", "user", "three"),
    ];
    assert_eq!(joined(&lines), (2, 0));
}

/// The damage lies in what both branches share, and is not why the newer one was left.
#[test]
fn a_branch_that_was_left_is_not_brought_back_by_a_repair() {
    let lines = [
        chain("u1", "", "user", "one"),
        "garbage".to_owned(),
        chain("u2", "a1", "user", "two"),
        chain("a2", "u2", "assistant", "second"),
        chain("b1", "a2", "user", "kept"),
        chain("b2", "b1", "assistant", "kept"),
        chain("c1", "a2", "user", "left"),
        chain("c2", "c1", "assistant", "left"),
        chain("c3", "c2", "user", "left too"),
        r#"{"type":"last-prompt","leafUuid":"b2"}"#.to_owned(),
    ];
    let (_folder, source) = transcript((lines.join("\n") + "\n").as_bytes());
    let read = index(&source);
    let live = read.select(None, true).expect("a branch");
    assert_eq!((live.leaf_uuid.as_str(), live.breaks > 0), ("b2", true));
    assert_eq!(read.select_joined(), None);
}

#[test]
fn parents_in_a_circle_are_a_beginning_in_a_copy() {
    let lines = [
        chain("u1", "a2", "user", "one"),
        chain("a1", "u1", "assistant", "first"),
        chain("u2", "a1", "user", "two"),
        chain("a2", "u2", "assistant", "second"),
    ];
    assert_eq!(joined(&lines), (2, 0));
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
        let text = fs::read_to_string(&made.path).expect("the copy");
        Self {
            records: text
                .lines()
                .map(|line| serde_json::from_str(line).expect("a record"))
                .collect(),
            repairs: made.repairs,
            findings: reading::check(&made.path).expect("a check").findings,
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

#[test]
fn a_result_that_is_missing_is_filled_in_as_the_agent_does() {
    let lines = [
        chain("u1", "", "user", "one"),
        record("a1", "u1", Some("m1"), &json!([call("c1")])),
        record(
            "a2",
            "gone",
            Some("m2"),
            &json!([{"type": "text", "text": "done"}]),
        ),
        chain("u2", "a2", "user", "two"),
    ];
    let copy = Copy::of(&lines);
    assert_eq!(copy.way_back(), ["u2", "a2", "+c1", "a1", "u1"]);
    assert_eq!(copy.findings, []);
    let repairs = Repairs {
        joined: 1,
        filled_in: 1,
        ..Repairs::default()
    };
    assert_eq!(copy.repairs, repairs);
    let mut filled_in = copy.records[2].clone();
    let uuid = filled_in
        .as_object_mut()
        .and_then(|record| record.remove("uuid"))
        .expect("a uuid");
    assert!(Uuid::try_parse(uuid.as_str().expect("a text")).is_ok());
    let block = json!({"type": "tool_result", "content": INTERRUPTED, "is_error": true, "tool_use_id": "c1"});
    let expected = json!({
        "parentUuid": "a1", "isSidechain": false, "type": "user", "message": {"role": "user", "content": [block]},
        "toolUseResult": INTERRUPTED, "toolDenialKind": "interrupted", "sourceToolAssistantUUID": "a1",
        "sessionId": NEW, "cwd": "/project", "version": "2.1.316", "timestamp": "2026-11-03T10:00:00.000Z",
    });
    assert_eq!(filled_in, expected);
}

/// A reply with several calls is a fan, of which the way back passes one spoke: what was filled in stands where the agent would
/// have put it.
#[test]
fn results_are_filled_in_wherever_the_call_stands() {
    let first = || chain("u1", "", "user", "one");
    let calls = |uuid: &str, parent: &str, ids: &[&str]| {
        let calls: Vec<Value> = ids.iter().map(|id| call(id)).collect();
        record(uuid, parent, Some("m1"), &Value::from(calls))
    };
    let done = |parent: &str| {
        record(
            "a9",
            parent,
            Some("m9"),
            &json!([{"type": "text", "text": "done"}]),
        )
    };
    let result = |uuid: &str, parent: &str, id: &str| record(uuid, parent, None, &answer(id, "ok"));
    type Case = (&'static str, Vec<String>, &'static [&'static str], u64);
    let table: [Case; 7] = [
        (
            "at the end",
            vec![first(), calls("a1", "u1", &["c1"])],
            &["+c1", "a1", "u1"],
            1,
        ),
        (
            "a prompt that names the call as its parent",
            vec![
                first(),
                calls("a1", "u1", &["c1"]),
                chain("u2", "a1", "user", "two"),
            ],
            &["u2", "+c1", "a1", "u1"],
            1,
        ),
        (
            "two calls in one record",
            vec![first(), calls("a1", "u1", &["c1", "c2"]), done("a1")],
            &["a9", "+c2", "+c1", "a1", "u1"],
            2,
        ),
        (
            "one of two in one record",
            vec![
                first(),
                calls("a1", "u1", &["c1", "c2"]),
                result("r1", "a1", "c1"),
                done("r1"),
            ],
            &["a9", "r1", "a1", "u1"],
            1,
        ),
        (
            "the first of two records",
            vec![
                first(),
                calls("a1", "u1", &["c1"]),
                calls("a2", "a1", &["c2"]),
                result("r2", "a2", "c2"),
                done("r2"),
            ],
            &["a9", "r2", "a2", "a1", "u1"],
            1,
        ),
        (
            "the second of two records",
            vec![
                first(),
                calls("a1", "u1", &["c1"]),
                calls("a2", "a1", &["c2"]),
                result("r1", "a1", "c1"),
                done("gone"),
            ],
            &["a9", "+c2", "a2", "a1", "u1"],
            1,
        ),
        (
            "what is told of the call stands between",
            vec![
                first(),
                calls("a1", "u1", &["c1"]),
                r#"{"type":"attachment","uuid":"t1","parentUuid":"a1","attachment":{}}"#.to_owned(),
                done("gone"),
            ],
            &["a9", "t1", "+c1", "a1", "u1"],
            1,
        ),
    ];
    for (what, lines, way, filled_in) in table {
        let copy = Copy::of(&lines);
        assert_eq!(copy.way_back(), way, "{what}");
        assert_eq!(copy.repairs.filled_in, filled_in, "{what}");
        assert_eq!(copy.findings, [], "{what}");
        // Nothing of the source is off the branch.
        let (folder, path) = transcript(b"");
        let text: Vec<String> = copy.records.iter().map(Value::to_string).collect();
        fs::write(&path, text.join("\n") + "\n").expect("a file");
        let live = index(&path).select(None, true).expect("a branch");
        assert_eq!(live.offsets.len(), copy.records.len(), "{what}");
        drop(folder);
    }
}

/// As the agent appends them: the model is sent the results of a reply in the order of the file.
#[test]
fn what_is_filled_in_stands_behind_the_results_that_are_there() {
    let lines = [
        chain("u1", "", "user", "one"),
        record("a1", "u1", Some("m1"), &json!([call("c1")])),
        record("a2", "a1", Some("m1"), &json!([call("c2")])),
        record("a3", "a2", Some("m1"), &json!([call("c3")])),
        record("r2", "a2", None, &answer("c2", "ok")),
        record("a9", "gone", Some("m9"), &json!([call("c9")])),
    ];
    let copy = Copy::of(&lines);
    let names: Vec<&str> = copy
        .records
        .iter()
        .map(|record| match record["toolDenialKind"].as_str() {
            Some(_) => record["message"]["content"][0]["tool_use_id"].as_str(),
            None => record["uuid"].as_str(),
        })
        .map(|name| name.expect("a name"))
        .collect();
    assert_eq!(names, ["u1", "a1", "a2", "a3", "r2", "c1", "c3", "a9", "c9"]);
}

#[test]
fn nothing_is_filled_in_of_calls_that_were_answered_or_left() {
    let lines = [
        chain("u1", "", "user", "one"),
        record("b1", "u1", Some("m0"), &json!([call("c0")])),
        record("a1", "u1", Some("m1"), &json!([call("c1")])),
        record("r1", "a1", None, &answer("c1", "ok")),
        "garbage".to_owned(),
        record("a2", "r1", Some("m2"), &json!([{"type": "text", "text": "done"}])),
    ];
    let copy = Copy::of(&lines);
    assert_eq!(copy.repairs.filled_in, 0);
    assert_eq!(copy.way_back(), ["a2", "r1", "a1", "u1"]);
    assert_eq!(copy.records.len(), 4);
    assert_eq!(copy.findings, []);
}

#[test]
fn every_record_is_of_the_new_session() {
    let foreign = "33333333-3333-4333-8333-333333333333";
    let lines = [
        chain("u1", "", "user", "one").replace(OLD, foreign),
        chain("a1", "u1", "assistant", "first"),
        format!(r#"{{"type":"mode","mode":"plan","sessionId":"{OLD}"}}"#),
        format!(r#"{{"type":"summary","sessionId":"{foreign}"}}"#),
    ];
    let copy = Copy::of(&lines);
    let sessions: Vec<&str> = copy
        .records
        .iter()
        .filter_map(|record| record["sessionId"].as_str())
        .collect();
    assert_eq!(sessions, [NEW, NEW, NEW, foreign]);
    assert_eq!(copy.findings, []);
}

#[test]
fn the_files_that_records_name_come_along() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join(format!("{OLD}.jsonl"));
    let own = folder.path().join(OLD);
    fs::create_dir_all(own.join("tool-results")).expect("a folder");
    fs::create_dir_all(own.join("subagents")).expect("a folder");
    let long = own.join("tool-results/r1.txt");
    fs::write(&long, "a long result").expect("a file");
    fs::write(own.join("subagents/agent-x7.jsonl"), "").expect("a file");
    let text = format!(
        "<persisted-output>\nOutput too large. Full output saved to: {}\n",
        long.display()
    );
    let mut result: Value =
        serde_json::from_str(&record("r1", "a1", None, &answer("c1", &text))).expect("a record");
    result["toolUseResult"] = json!({"agentId": "x7", "persistedOutputPath": long});
    let lines = [
        chain("u1", "", "user", "one"),
        record("a1", "u1", Some("m1"), &json!([call("c1")])),
        result.to_string(),
        "garbage".to_owned(),
    ];
    fs::write(&source, lines.join("\n") + "\n").expect("a file");
    let read = index(&source);
    let branch = read.select(None, true).expect("a branch");
    let disk = Disk::of(folder.path());
    let made = repair(&source, &read, &branch, folder.path(), NEW).expect("a copy");
    // The files' folder and the transcript.
    assert_eq!(disk.check_lasts("a repaired copy"), 2);
    let copied = folder.path().join(NEW);
    assert_eq!(
        fs::read_to_string(copied.join("tool-results/r1.txt")).expect("the result"),
        "a long result"
    );
    assert!(copied.join("subagents/agent-x7.jsonl").is_file());
    let written = fs::read_to_string(&made.path).expect("the copy");
    assert!(!written.contains(OLD), "{written}");
    assert_eq!(reading::check(&made.path).expect("a check").findings, []);
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
