use std::collections::HashMap;
use std::fs;

use serde_json::json;

use super::*;
use crate::files::durable::tests::Disk;
use crate::transcript::claude::reading;
use crate::transcript::tests::{self, NEW, OLD, told_live};

mod files;

const NEWER: &str = "33333333-3333-4333-8333-333333333333";

fn transcript(lines: &[String]) -> (tempfile::TempDir, PathBuf) {
    tests::transcript((lines.join("\n") + "\n").as_bytes())
}

fn cut_at(source: &Path, new_id: &str, last_uuid: &str) -> PathBuf {
    let index = reading::index(source).expect("an index");
    let folder = source.parent().expect("a folder");
    cut(source, &index, folder, new_id, last_uuid).expect("a cut")
}

fn records(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("a transcript");
    let record = |line: &str| serde_json::from_str(line.trim_matches(['\u{feff}', '\r'])).expect("a record");
    text.lines().map(record).collect()
}

fn chain(uuid: &str, parent: &str, kind: &str, text: &str) -> String {
    let own = format!(r#","slug":"a-plan","turnAttributionKey":"{uuid}""#);
    tests::chain(uuid, parent, kind, text, &own)
}

fn uuids(records: &[Value]) -> HashMap<String, String> {
    let pair = |record: &Value| {
        let old = record["forkedFrom"]["messageUuid"].as_str()?;
        Some((old.to_owned(), record["uuid"].as_str()?.to_owned()))
    };
    records.iter().filter_map(pair).collect()
}

#[test]
fn a_cut_holds_its_branch_and_what_is_beside_it() {
    let lines = [
        r#"{"type":"mode","sessionId":"x"}"#.to_owned(),
        chain("u1", "", "user", "one"),
        chain("a1", "u1", "assistant", "1 named u1"),
        chain("u2", "a1", "user", "abandoned"),
        chain("a2", "u2", "assistant", "gone"),
        "garbage".to_owned(),
        format!(r#"{{"type":"of-tomorrow","sessionId":"{OLD}","n":1.50}}"#),
        r#"{"type":"summary","summary":"kept","leafUuid":"a1"}"#.to_owned(),
        r#"{"type":"summary","summary":"of another branch","leafUuid":"a2"}"#.to_owned(),
        format!(r#"{{"type":"api-request","sessionId":"{OLD}"}}"#),
        r#"{"type":"file-history-snapshot","messageId":"u1"}"#.to_owned(),
        r#"{"type":"custom-title","customTitle":"a title","uuid":"t1"}"#.to_owned(),
        chain("u3", "a1", "user", "two"),
        chain("a3", "u3", "assistant", "2"),
        r#"{"type":"last-prompt","leafUuid":"u3"}"#.to_owned(),
        chain("u4", "a3", "user", "three"),
        r#"{"type":"mode"}"#.to_owned(),
        r#"{"type":"tools-used","tools":["Bash"]}"#.to_owned(),
    ];
    let (folder, source) = transcript(&lines);
    let before = fs::read(&source).expect("the source");
    let disk = Disk::of(folder.path());
    let copy = cut_at(&source, NEW, "a3");
    assert_eq!(disk.check_lasts("a cut"), 1);
    let new = uuids(&records(&copy));
    let kept = |line: usize, parent: &str| {
        let mut record: Value = serde_json::from_str(&lines[line]).expect("a record");
        let old = record["uuid"].as_str().expect("a uuid").to_owned();
        record["uuid"] = Value::from(new[&old].as_str());
        record["parentUuid"] = new
            .get(parent)
            .map_or(Value::Null, |new| Value::from(new.as_str()));
        record["sessionId"] = Value::from(NEW);
        record["forkedFrom"] = json!({"sessionId": OLD, "messageUuid": old});
        let record_object = record.as_object_mut().expect("an object");
        record_object.remove("slug");
        record_object.remove("turnAttributionKey");
        record
    };
    let other = |line: &str| serde_json::from_str(&line.replace(OLD, NEW)).expect("a record");
    let copied = records(&copy);
    let title = copied[5]["uuid"].as_str().expect("a uuid");
    let expected: Vec<Value> = vec![
        other(&lines[0]),
        kept(1, ""),
        kept(2, "u1"),
        other(&lines[6]),
        other(&lines[7].replace("a1", &new["a1"])),
        other(&lines[11].replace("t1", title)),
        kept(12, "a1"),
        kept(13, "u3"),
        other(&lines[17]),
    ];
    assert_eq!(copied, expected);
    assert!(copied.iter().all(|record| record["uuid"] != "t1"));
    let prompts = told_live(&copy);
    let prompts: Vec<&str> = prompts.iter().map(|turn| turn.prompt.as_str()).collect();
    assert_eq!(prompts, ["one", "two"]);
    assert_eq!(fs::read(&source).expect("the source"), before);

    let index = reading::index(&source).expect("an index");
    let refused = |new_id: &str, uuid: &str| cut(&source, &index, folder.path(), new_id, uuid);
    let missing = refused(NEWER, "nowhere");
    assert!(matches!(missing, Err(TranscriptError::RecordNotFound { .. })));
    let taken = refused(NEW, "a3");
    assert!(matches!(taken, Err(TranscriptError::AlreadyExists { .. })));
    // What was noted of the source does not hold any more.
    for changed in [
        String::from_utf8_lossy(&before).replacen("\"u3\"", "\"u5\"", 1),
        String::from_utf8_lossy(&before)[..300].to_owned(),
    ] {
        fs::write(&source, changed).expect("the source");
        let error = refused(NEWER, "a3").expect_err("another source");
        assert!(
            matches!(error, TranscriptError::Io { action: "cut", .. }),
            "{error}"
        );
    }
    let left = fs::read_dir(folder.path()).expect("the folder");
    assert_eq!(left.count(), 2, "a failure leaves nothing behind");

    fs::remove_file(&source).expect("the source");
    let target = folder.path().join("new");
    let failed = cut(&source, &index, &target, NEWER, "a3").expect_err("no source");
    assert!(
        matches!(failed, TranscriptError::Io { action: "open", .. }),
        "{failed}"
    );
    assert!(!target.exists(), "no folder is made for nothing");
}

#[test]
fn a_parent_that_was_written_late_comes_along() {
    let lines = [
        chain("u1", "", "user", "one"),
        chain("u2", "a1", "user", "two"),
        r#"{"type":"mode"}"#.to_owned(),
        r#"{"type":"tools-used","tools":["Bash"]}"#.to_owned(),
        chain("a1", "u1", "assistant", "first"),
        r#"{"type":"atis-latch","atis":""}"#.to_owned(),
        chain("a2", "u2", "assistant", "second"),
    ];
    let (_folder, source) = transcript(&lines);
    let copied = records(&cut_at(&source, NEW, "u2"));
    let kinds: Vec<&str> = copied
        .iter()
        .filter_map(|record| record["type"].as_str())
        .collect();
    assert_eq!(kinds, ["user", "user", "tools-used", "assistant", "atis-latch"]);
}

/// What stands between the end and the next prompt on the way there; nothing of what follows within a turn.
#[test]
fn what_the_agent_wrote_for_itself_before_the_next_prompt_comes_along() {
    let note = |uuid: &str, parent: &str| chain(uuid, parent, "attachment", "told anew");
    let prompt = |parent: &str| chain("u2", parent, "user", "two");
    let aside = format!(
        r#"{{"parentUuid":"n2","type":"user","uuid":"c1","sessionId":"{OLD}","message":{{"content":"<command-name>/cost</command-name>"}}}}"#
    );
    let of_subagent = format!(
        r#"{{"parentUuid":"a1","isSidechain":true,"type":"attachment","uuid":"s1","sessionId":"{OLD}"}}"#
    );
    let result = format!(
        r#"{{"parentUuid":"n1","type":"user","uuid":"r1","sessionId":"{OLD}","toolUseResult":"r","message":{{"content":[]}}}}"#
    );
    let table: [(Vec<String>, &[&str]); 9] = [
        (
            vec![note("n1", "a1"), note("n2", "n1"), prompt("n2")],
            &["n1", "n2"],
        ),
        (
            vec![note("n1", "a1"), note("n2", "n1"), aside, note("n3", "c1")],
            &["n1", "n2"],
        ),
        (
            vec![note("n1", "a1"), note("n2", "n1"), of_subagent],
            &["n1", "n2"],
        ),
        (
            vec![note("n1", "a1"), chain("a2", "n1", "assistant", "and on")],
            &[],
        ),
        (vec![note("n1", "a1"), result], &[]),
        (vec![note("n1", "a1"), prompt("a1")], &[]),
        (vec![prompt("a1"), note("n1", "a1")], &[]),
        (vec![note("n1", "u1"), prompt("n1"), note("n2", "a1")], &["n2"]),
        (vec![note("n1", "n2"), note("n2", "n1")], &[]),
    ];
    for (behind, expected) in table {
        let before = [
            chain("u1", "", "user", "one"),
            chain("a1", "u1", "assistant", "first"),
        ];
        let (_folder, source) = transcript(&[&before[..], &behind].concat());
        let copied = records(&cut_at(&source, NEW, "a1"));
        let origins = copied
            .iter()
            .map(|record| record["forkedFrom"]["messageUuid"].as_str().expect("a uuid"));
        let expected = ["u1", "a1"].iter().chain(expected);
        assert!(origins.eq(expected.copied()), "{behind:#?}: {copied:#?}");
        let branch = reading::index(&source)
            .expect("an index")
            .select(Some("a1"), true);
        assert_eq!(branch.expect("a branch").offsets.len(), 2);
    }
}

#[test]
fn what_refers_to_records_refers_to_the_copies() {
    let compaction = json!({"type": "system", "subtype": "compact_boundary", "uuid": "c1", "parentUuid": null,
        "logicalParentUuid": "a1", "sessionId": OLD, "compactMetadata": {"trigger": "manual", "preTokens": 9,
        "preservedSegment": {"headUuid": "a1", "anchorUuid": "c2", "tailUuid": "a1"},
        "preservedMessages": {"anchorUuid": "c2", "uuids": ["a1"], "allUuids": ["a1", "elsewhere"]}, "runningTurnSends": 3}});
    let summary = json!({"type": "user", "uuid": "c2", "parentUuid": "c1", "isCompactSummary": true, "message": {"content": "so far"}});
    let queued = json!({"type": "attachment", "uuid": "q1", "parentUuid": "c2", "sessionId": "another",
        "attachment": {"type": "queued_command", "prompt": "\"source_uuid\":\"c2\"", "source_uuid": "c2"}});
    let announced = json!({"type": "attachment", "uuid": "q2", "parentUuid": "q1", "forkedFrom": {"sessionId": "x", "messageUuid": "y"},
        "attachment": {"type": "deferred_tools_record", "nameOnlyAnnouncements": ["q1", "gone", "c2"]}});
    let refusal =
        json!({"type": "system", "subtype": "model_refusal_fallback", "uuid": "r1", "parentUuid": "q2"});
    let early = json!({"type": "system", "uuid": "r2", "parentUuid": "r1", "logicalParentUuid": "not here"});
    let lines = [
        chain("u1", "", "user", "one"),
        chain("a1", "u1", "assistant", "first"),
        compaction.to_string(),
        summary.to_string(),
        queued.to_string(),
        announced.to_string(),
        refusal.to_string(),
        early.to_string(),
        chain("a2", "r2", "assistant", "second"),
    ];
    let (_folder, source) = transcript(&lines);
    let copied = records(&cut_at(&source, NEW, "a2"));
    assert_eq!(copied.len(), lines.len());
    let new = uuids(&copied);
    let is = |at: usize, pointer: &str, expected: Value| {
        assert_eq!(copied[at].pointer(pointer), Some(&expected), "{pointer}");
    };
    let of = |old: &str| Value::from(new[old].as_str());
    is(2, "/logicalParentUuid", of("a1"));
    let expected = json!({"trigger": "manual", "preTokens": 9,
        "preservedSegment": {"headUuid": of("a1"), "anchorUuid": of("c2"), "tailUuid": of("a1")},
        "preservedMessages": {"anchorUuid": of("c2"), "uuids": [of("a1")], "allUuids": [of("a1"), "elsewhere"]}});
    is(2, "/compactMetadata", expected);
    is(4, "/attachment/source_uuid", of("c2"));
    is(4, "/attachment/prompt", Value::from("\"source_uuid\":\"c2\""));
    is(4, "/sessionId", Value::from(NEW));
    is(
        5,
        "/attachment/nameOnlyAnnouncements",
        json!([of("q1"), of("c2")]),
    );
    is(5, "/forkedFrom", json!({"sessionId": OLD, "messageUuid": "q2"}));
    is(6, "/neutralizedByFork", Value::from(true));
    is(7, "/logicalParentUuid", Value::Null);
}

/// However long a line is, nothing but the log of requests is left out for its length.
#[test]
fn long_lines_beside_the_branch_come_along_but_for_the_log_of_requests() {
    const HELD: usize = 1000;
    let long = |line: &str| line.replace("LONG", &"x".repeat(HELD));
    let unknown = long(&format!(
        r#"{{"type":"of-tomorrow","said":"LONG","sessionId":"{OLD}"}}"#
    ));
    let lines = [
        chain("u1", "", "user", "one"),
        unknown.clone(),
        long(r#"{"type":"api-request-blob","said":"LONG"}"#),
        chain("a1", "u1", "assistant", "1"),
        chain("u2", "a1", "user", "abandoned"),
        chain("u3", "a1", "user", "two"),
        unknown.clone(),
    ];
    let (folder, source) = transcript(&lines);
    let index = reading::index(&source).expect("an index");
    let reader = io::BufReader::new(fs::File::open(&source).expect("the source"));
    let held = Rewriter::new(reader, HELD);
    let copy = cut_lines(held, &source, &index, folder.path(), NEW, "u3").expect("a cut");
    let copied = fs::read_to_string(copy).expect("a copy");
    let copied: Vec<&str> = copied.lines().collect();
    assert_eq!(copied.len(), 4, "{copied:?}");
    assert_eq!(copied[1], unknown, "as it is, since it was not looked into");
    // One that is held is edited.
    let whole = cut_at(&source, NEWER, "u3");
    let copied = fs::read_to_string(whole).expect("a copy");
    assert_eq!(copied.lines().nth(1), Some(unknown.replace(OLD, NEWER).as_str()));
    assert_eq!(copied.lines().count(), 4);
}
