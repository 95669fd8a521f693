//! Reads transcripts that Qwen Code 0.24.4 wrote, complete and with each kind of damage whose effect on a resume is known.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, its helpers too")]

use std::fs;
use std::path::{Path, PathBuf};

use bridge_protocol::check::FindingKind;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Qwen, upstream_id};
use crate::transcript::TranscriptError;
use crate::transcript::check::CheckReport;
use crate::transcript::dialect::{AgentHome, Dialect};
use crate::transcript::index_cache::IndexCache;
use crate::transcript::message::ContentPart;
use crate::transcript::open_transcript::BoxedTranscript;

const WHOLE: &str = include_str!("../../../tests/fixtures/transcripts/qwen/0.24.4.jsonl");
const WHOLE_ID: &str = "09f5b69e-2b4e-442e-890b-dfb5feff1f81";
const REWOUND_ID: &str = "bfafd2e1-686e-4d6e-93eb-10ae050877b4";
const CWD: &str = "/home/u/project";

/// The agent's folder.
struct Root {
    folder: TempDir,
    library: IndexCache,
}

impl Root {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            library: IndexCache::default(),
        }
    }

    fn with(id: &str, content: impl AsRef<[u8]>) -> Self {
        let root = Self::new();
        root.write("-home-u-project", id, content);
        root
    }

    fn write(&self, project: &str, id: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let folder = self.folder.path().join("projects").join(project).join("chats");
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(format!("{id}.jsonl"));
        fs::write(&path, content).unwrap();
        path
    }

    fn home(&self) -> AgentHome<'_> {
        AgentHome {
            index_cache: &self.library,
            root: self.folder.path(),
        }
    }

    fn open(&self, id: &str) -> BoxedTranscript {
        Qwen.open(self.home().session(Some(CWD), id), None).unwrap()
    }

    fn check(&self, id: &str) -> CheckReport {
        let path = Qwen.find(self.home().session(Some(CWD), id)).unwrap();
        Qwen.check(self.home().session(Some(CWD), id), &path).unwrap()
    }
}

fn lines(content: &str) -> Vec<Value> {
    content
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn text(records: &[Value]) -> String {
    records.iter().map(|record| format!("{record}\n")).collect()
}

/// What was measured at the model, as far as the file shows it: findings with their lines, whether the agent refuses, and the
/// turns that are left.
#[test]
fn damage_is_found_and_what_is_left_is_read() {
    use FindingKind::{
        BrokenParent, DuplicateUuid, ForeignSessionId, GarbageLine, NothingToResume, OtherCopy,
        ResultWithoutToolUse, ToolUseWithoutResult, TornLine,
    };
    let records = lines(WHOLE);
    let without = |number: usize| {
        let mut records = records.clone();
        records.remove(number - 1);
        text(&records)
    };
    let with = |number: usize, change: &dyn Fn(&mut Value)| {
        let mut records = records.clone();
        change(&mut records[number - 1]);
        text(&records)
    };
    let mut relinked = records.clone();
    relinked[10]["parentUuid"] = relinked[8]["uuid"].clone();
    relinked.remove(9);
    let line = |number: usize| WHOLE.lines().nth(number - 1).unwrap();
    type Expected<'a> = (&'a [(u64, FindingKind)], bool, usize);
    let table: Vec<(&str, String, Expected<'_>)> = vec![
        ("no final newline", WHOLE.trim_end().to_owned(), (&[], false, 6)),
        (
            "blank lines and marks",
            format!("\u{feff}{}", WHOLE.replace('\n', "\r\n\n\0\n")),
            (&[], false, 6),
        ),
        (
            "two records in one line",
            WHOLE.replacen("}\n{", "}{", 1),
            (&[], false, 6),
        ),
        (
            "a torn last line",
            format!("{WHOLE}{}", &line(7)[..90]),
            (&[(36, TornLine)], false, 6),
        ),
        (
            "a torn line with a newline",
            format!("{WHOLE}{}\n", &line(7)[..90]),
            (&[(36, GarbageLine)], false, 6),
        ),
        (
            "a record behind a torn line",
            WHOLE.replacen(line(7), &line(7)[..90], 1).replacen(
                &format!("{}\n", &line(7)[..90]),
                &line(7)[..90],
                1,
            ),
            (&[(7, GarbageLine), (8, BrokenParent)], false, 4),
        ),
        (
            "garbage",
            WHOLE.replacen('\n', "\ngarbage\n", 1),
            (&[(2, GarbageLine)], false, 6),
        ),
        (
            "telemetry is missing",
            without(19),
            (&[(19, BrokenParent)], false, 4),
        ),
        (
            "a circle",
            with(20, &|record| record["parentUuid"] = record["uuid"].clone()),
            (&[(20, BrokenParent)], false, 4),
        ),
        (
            "a record without its session",
            with(19, &|record| {
                drop(record.as_object_mut().unwrap().remove("sessionId"));
            }),
            (&[(20, BrokenParent)], false, 4),
        ),
        (
            "a kind of a newer version",
            with(19, &|record| record["type"] = json!("hologram")),
            (&[], false, 6),
        ),
        (
            "a part of a newer version",
            with(33, &|record| {
                record["message"]["parts"][0] = json!({"hologram": 1});
            }),
            (&[], false, 6),
        ),
        (
            "a line twice",
            format!("{WHOLE}{}\n", line(34)),
            (&[(36, DuplicateUuid)], false, 6),
        ),
        (
            "a result is missing",
            format!("{}\n", WHOLE.lines().take(14).collect::<Vec<_>>().join("\n")),
            (&[(10, ToolUseWithoutResult)], false, 2),
        ),
        (
            "a call is missing",
            text(&relinked[..18]),
            (
                &[(13, ResultWithoutToolUse), (14, ResultWithoutToolUse)],
                false,
                2,
            ),
        ),
        (
            "another session",
            WHOLE.replace(WHOLE_ID, REWOUND_ID),
            (&[(1, ForeignSessionId)], true, 6),
        ),
        (
            "two sessions",
            with(7, &|record| record["sessionId"] = json!(REWOUND_ID)),
            (&[(7, ForeignSessionId)], true, 6),
        ),
        (
            "another folder",
            with(1, &|record| record["cwd"] = json!("/elsewhere")),
            (&[(0, OtherCopy)], true, 6),
        ),
        ("nothing", String::new(), (&[(0, NothingToResume)], true, 0)),
        ("zeros", "\0".repeat(99), (&[(0, NothingToResume)], true, 0)),
        (
            "only garbage",
            "garbage\n[]\n7\n".to_owned(),
            (
                &[
                    (0, NothingToResume),
                    (1, GarbageLine),
                    (2, GarbageLine),
                    (3, GarbageLine),
                ],
                true,
                0,
            ),
        ),
    ];
    for (name, content, (findings, is_refused, left)) in table {
        let root = Root::with(WHOLE_ID, content);
        let report = root.check(WHOLE_ID);
        let found: Vec<_> = report
            .findings
            .iter()
            .map(|finding| (finding.line, finding.kind))
            .collect();
        assert_eq!(found, findings, "{name}: {:?}", report.findings);
        assert_eq!(!report.refusals.is_empty(), is_refused, "{name}");
        let path = Qwen.find(root.home().session(Some(CWD), WHOLE_ID)).unwrap();
        assert_eq!(
            Qwen.resume_obstacles(root.home().session(Some(CWD), WHOLE_ID), &path),
            report.refusals,
            "{name}"
        );
        assert_eq!(root.open(WHOLE_ID).turns(), left, "{name}");
    }
}

/// As the agent sends them: in one message, where the first one stands.
#[test]
fn records_with_one_uuid_are_one_message() {
    let records = lines(WHOLE);
    let whole = Root::with(WHOLE_ID, text(&records));
    let position = |kind: &str| {
        let is_it = |record: &Value| record["type"] == kind && record["subtype"].is_null();
        records.iter().position(is_it).unwrap()
    };
    for (number, kind) in [(0, "user"), (1, "assistant")] {
        let mut repeated = records.clone();
        let mut again = records[position(kind)].clone();
        again["message"]["parts"] = json!([{"text": "again"}]);
        again["parentUuid"] = Value::Null;
        repeated.insert(position(kind) + 3, again.clone());
        let root = Root::with(WHOLE_ID, text(&repeated));
        let mut opened = root.open(WHOLE_ID);
        assert_eq!(
            (opened.turns(), opened.prompts()),
            (6, whole.open(WHOLE_ID).prompts())
        );
        let first = whole.open(WHOLE_ID).message(number).unwrap().unwrap();
        let message = opened.message(number).unwrap().unwrap();
        let (last, rest) = message.parts.split_last().unwrap();
        assert_eq!(
            (last, rest),
            (&ContentPart::Text("again".to_owned()), &first.parts[..]),
            "{kind}"
        );
        assert_eq!(message.bytes, first.bytes + again.to_string().len() as u64);
    }
}

fn root_of_whole() -> Root {
    Root::with(WHOLE_ID, WHOLE)
}

/// What a record has is read, and nothing of those behind it in the same line.
#[test]
fn records_in_one_line_are_read_each_by_itself() {
    let root = Root::with(WHOLE_ID, WHOLE.replace("}\n{", "} {"));
    let (mut opened, mut whole) = (root.open(WHOLE_ID), root_of_whole().open(WHOLE_ID));
    assert_eq!(opened.messages(), whole.messages());
    for number in 0..whole.messages() {
        let (read, expected) = (
            opened.message(number).unwrap().unwrap(),
            whole.message(number).unwrap().unwrap(),
        );
        assert_eq!(read.parts, expected.parts);
        // The space before it is its own.
        assert_eq!(read.bytes, expected.bytes + u64::from(number > 0), "{number}");
    }
}

#[test]
fn only_names_of_sessions_are_transcripts() {
    let long = "f".repeat(250);
    let table = [
        (format!("{WHOLE_ID}.jsonl"), Some(WHOLE_ID)),
        (format!("{WHOLE_ID}.ledger.jsonl"), None),
        (format!("{WHOLE_ID}.worktree.json"), None),
        ("memory.jsonl".to_owned(), None),
        ("...jsonl".to_owned(), None),
        (".jsonl".to_owned(), None),
        (format!("{long}.jsonl"), None),
    ];
    for (name, expected) in &table {
        assert_eq!(upstream_id(name), *expected, "{name}");
    }
    let root = Root::with(WHOLE_ID, WHOLE);
    for id in ["memory", "..", ".", "", "a/b", &long, "\0", &"é".repeat(16)] {
        let found = Qwen.locate(root.folder.path(), id);
        assert!(
            matches!(found, Err(TranscriptError::InvalidId { .. })),
            "{id:?}: {found:?}"
        );
        assert!(
            Qwen.find(root.home().session(Some(CWD), id)).is_err()
                && !Qwen.is_missing(root.folder.path(), id)
        );
        assert!(Qwen.check_copy(root.folder.path(), Path::new("/"), id).is_err());
    }
    let unknown = Qwen.find(root.home().session(Some(CWD), REWOUND_ID));
    assert!(
        matches!(unknown, Err(TranscriptError::NotFound { .. })),
        "{unknown:?}"
    );
}
