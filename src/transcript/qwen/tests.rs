//! What is read of transcripts that Qwen Code 0.24.4 wrote, whole and damaged in each way of which it is known what a resume
//! makes of it.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, its helpers too")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use bridge_protocol::check::FindingKind;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Qwen, own_folder, summary, upstream_id};
use crate::transcript::TranscriptError;
use crate::transcript::check::Report;
use crate::transcript::checkpoint::CheckpointRef;
use crate::transcript::dialect::{Dialect, Home, TurnEnd};
use crate::transcript::library::Library;
use crate::transcript::message::Part;
use crate::transcript::opened::Opened;
use crate::transcript::shelf::{Format, Shelf};
use crate::transcript::summary::Ends;

const WHOLE: &str = include_str!("../../../tests/fixtures/transcripts/qwen/0.24.4.jsonl");
const WHOLE_ID: &str = "09f5b69e-2b4e-442e-890b-dfb5feff1f81";
const REWOUND: &str = include_str!("../../../tests/fixtures/transcripts/qwen/0.24.4-rewound.jsonl");
const REWOUND_ID: &str = "bfafd2e1-686e-4d6e-93eb-10ae050877b4";
const CWD: &str = "/home/u/project";

/// The agent's folder.
struct Root {
    folder: TempDir,
    library: Library,
}

impl Root {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            library: Library::default(),
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

    fn home(&self) -> Home<'_> {
        Home {
            library: &self.library,
            root: self.folder.path(),
        }
    }

    fn open(&self, id: &str) -> Opened {
        Qwen.open(self.home().session(Some(CWD), id), None).unwrap()
    }

    fn check(&self, id: &str) -> Report {
        let path = Qwen.find(self.home().session(Some(CWD), id)).unwrap();
        Qwen.check(self.home().session(Some(CWD), id), &path).unwrap()
    }
}

/// The prompts of the turns, and the last words of each.
fn turns(opened: &mut Opened) -> Vec<(String, String)> {
    let mut told = Vec::new();
    for turn in 0..opened.turns() {
        let mut texts = opened.turn(turn).flat_map(|number| {
            let message = opened.message(number).unwrap().unwrap();
            message.parts.into_iter().filter_map(|part| match part {
                Part::Text(text) => Some(text),
                _ => None,
            })
        });
        let first = texts.next().unwrap();
        told.push((first, texts.last().unwrap_or_default()));
    }
    told
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

#[test]
fn a_place_on_a_branch_that_was_left_can_be_opened() {
    let root = Root::with(REWOUND_ID, REWOUND);
    let opened = root.open(REWOUND_ID);
    assert_eq!((opened.turns(), opened.turns_at_most()), (6, 8));
    let records = lines(REWOUND);
    let left = records
        .iter()
        .find(|record| record["message"]["parts"][0]["text"] == "3")
        .unwrap();
    let uuid = left["uuid"].as_str().unwrap();
    let place = CheckpointRef {
        agent: "q".to_owned(),
        upstream_id: REWOUND_ID.to_owned(),
        record_uuid: uuid.to_owned(),
    };
    let opened = Qwen.open_at(root.home(), &place).unwrap();
    assert_eq!((opened.turns(), opened.end_of_turn(2).0.as_str()), (3, uuid));
    // The last turn was cancelled: only what follows it shows that it is over.
    let path = Qwen.find(root.home().session(Some(CWD), REWOUND_ID)).unwrap();
    assert_eq!(
        Qwen.state(&root.library, &path).unwrap().turn_end,
        TurnEnd::Ambiguous
    );
}

/// The three messages that the compaction left, and the two after it.
#[test]
fn what_follows_a_compaction_and_what_it_left_is_loaded() {
    assert_eq!(root_of_whole().open(WHOLE_ID).loaded_messages().unwrap(), 5);
}

/// What was measured at the model, as far as the file shows it: findings with their lines, whether the agent refuses, and the
/// turns that are left.
#[test]
fn damage_is_found_and_what_is_left_is_read() {
    use FindingKind::{
        BrokenParent, DuplicateUuid, ForeignSessionId, GarbageLine, NothingToResume, OtherCopy,
        ResultWithoutToolUse, ToolUseWithoutResult, TornLine, UnknownRecord,
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
            (&[(19, UnknownRecord)], false, 6),
        ),
        (
            "a part of a newer version",
            with(33, &|record| {
                record["message"]["parts"][0] = json!({"hologram": 1});
            }),
            (&[(33, UnknownRecord)], false, 6),
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
            Qwen.obstacles(root.home().session(Some(CWD), WHOLE_ID), &path),
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
            (&Part::Text("again".to_owned()), &first.parts[..]),
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

/// No line costs several times its size: what has too many members or too long an id is no part of the chain.
#[test]
fn hostile_records_are_passed_over() {
    let record = |uuid: &str, parent: &str, more: &str| {
        let parent = json!(parent);
        format!(
            r#"{{"uuid":"{uuid}","parentUuid":{parent},"sessionId":"{WHOLE_ID}","type":"assistant","message":{{"parts":[{{"text":"x"}}]}}{more}}}"#
        )
    };
    let last = lines(WHOLE).last().unwrap()["uuid"].as_str().unwrap().to_owned();
    let long = "i".repeat(4096);
    let table = [
        (record("a", &last, ""), 1, None),
        (
            record("a", &last, &r#","m":1"#.repeat(10_000)),
            0,
            Some(FindingKind::GarbageLine),
        ),
        (record(&long, &last, ""), 0, None),
        (record("a", &long, ""), 0, None),
    ];
    let messages = root_of_whole().open(WHOLE_ID).messages();
    for (line, more, finding) in table {
        let root = Root::with(WHOLE_ID, format!("{WHOLE}{line}\n"));
        assert_eq!(root.open(WHOLE_ID).messages(), messages + more);
        let found: Vec<_> = root
            .check(WHOLE_ID)
            .findings
            .iter()
            .map(|finding| finding.kind)
            .collect();
        assert_eq!(found, Vec::from_iter(finding));
    }
    let many = record("a", &last, "").replace(r#"{"text":"x"}"#, &vec![r#"{"text":"x"}"#; 10_001].join(","));
    let root = Root::with(WHOLE_ID, format!("{WHOLE}{many}\n"));
    let message = root.open(WHOLE_ID).message(messages).unwrap().unwrap();
    assert!(matches!(message.parts[..], [Part::Other { .. }]), "as it stands");
}

#[test]
fn a_turn_is_over_where_its_end_or_a_reply_stands() {
    let table = [
        (1, TurnEnd::Open),
        (3, TurnEnd::Open),
        (4, TurnEnd::Ambiguous),
        (5, TurnEnd::Over),
        (6, TurnEnd::Over),
        (10, TurnEnd::Open),
        (15, TurnEnd::Open),
        (22, TurnEnd::Open),
        (25, TurnEnd::Ambiguous),
        (29, TurnEnd::Over),
    ];
    let root = Root::new();
    for (count, expected) in table {
        let content: String = WHOLE.split_inclusive('\n').take(count).collect();
        // Each is longer than the one before, in the same file, and is read from where that ended.
        let path = root.write("-home-u-project", WHOLE_ID, content);
        let standing = Qwen.state(&root.library, &path).unwrap();
        assert_eq!(standing.turn_end, expected, "{count} lines");
    }
}

#[test]
fn what_grows_is_read_as_what_was_there_from_the_beginning() {
    let root = Root::new();
    for length in (0..WHOLE.len()).step_by(997).chain([WHOLE.len()]) {
        let path = root
            .folder
            .path()
            .join(format!("projects/-home-u-project/chats/{WHOLE_ID}.jsonl"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let old = fs::read(&path).unwrap_or_default();
        let mut file = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .unwrap();
        std::io::Write::write_all(&mut file, &WHOLE.as_bytes()[old.len()..length]).unwrap();
        let fresh = Root::with(WHOLE_ID, &WHOLE[..length]);
        let (mut grown, mut fresh) = (root.open(WHOLE_ID), fresh.open(WHOLE_ID));
        assert_eq!(turns(&mut grown), turns(&mut fresh), "{length}");
        assert_eq!(grown.ends_torn(), fresh.ends_torn(), "{length}");
    }
}

#[test]
fn lists_show_the_title_the_folder_and_the_last_moment() {
    let title = |content: &str| {
        let ends = Ends {
            head: content.as_bytes(),
            tail: b"",
        };
        summary(ends)
    };
    let whole = title(WHOLE);
    assert_eq!(whole.title.as_deref(), Some("first [[text hi one]]"));
    assert_eq!(whole.cwd.as_deref(), Some(CWD));
    assert!(whole.last_at.as_deref() > Some("2026-11-25T21:26:14"));
    let named = |title: &str| json!({"type": "system", "subtype": "custom_title", "systemPayload": {"customTitle": title}});
    let with = format!("{WHOLE}{}\n{}\n", named("old"), named(" New \nname"));
    assert_eq!(title(&with).title.as_deref(), Some("New"));
    let forked = json!({"type": "user", "forkedFrom": {"sessionId": "s0", "messageUuid": "u"}, "message": {"parts": [{"text": "hi"}]}});
    let forked = title(&format!("garbage\n{forked}\n"));
    assert_eq!(
        (forked.forked_from.as_deref(), forked.title.as_deref()),
        (Some("s0"), Some("hi"))
    );
    assert_eq!(title("\0\n{}\n[1]").title, None);
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
            Qwen.find(root.home().session(Some(CWD), id)).is_err() && !Qwen.is_gone(root.folder.path(), id)
        );
        assert!(Qwen.check_copy(root.folder.path(), Path::new("/"), id).is_err());
    }
    let unknown = Qwen.find(root.home().session(Some(CWD), REWOUND_ID));
    assert!(
        matches!(unknown, Err(TranscriptError::NotFound { .. })),
        "{unknown:?}"
    );
}

#[test]
fn the_copy_in_the_folder_of_the_session_counts() {
    let root = Root::with(WHOLE_ID, WHOLE);
    let short: String = WHOLE.split_inclusive('\n').take(5).collect();
    let other = root.write("-other", WHOLE_ID, &short);
    let found = |cwd: &str| Qwen.find(root.home().session(Some(cwd), WHOLE_ID)).unwrap();
    let own = root
        .folder
        .path()
        .join(format!("projects/-home-u-project/chats/{WHOLE_ID}.jsonl"));
    assert_eq!(
        (found(CWD), found("/other"), found("/third")),
        (own.clone(), other.clone(), own.clone())
    );
    assert_eq!(Qwen.recorded(root.home().session(None, WHOLE_ID)).unwrap().0, own);
    let report = Qwen
        .check(root.home().session(Some("/other"), WHOLE_ID), &other)
        .unwrap();
    assert_eq!(report.refusals.len(), 1, "it did not begin there");
    assert!(!Qwen.is_gone(root.folder.path(), WHOLE_ID));
    fs::write(&own, "").unwrap();
    fs::write(&other, "\0\0").unwrap();
    assert!(Qwen.is_gone(root.folder.path(), WHOLE_ID));
}

/// The agent takes the folder as it is given, also in the first record.
#[test]
fn a_folder_that_a_link_leads_to_is_another_one() {
    let root = Root::new();
    let (real, link) = (root.folder.path().join("real"), root.folder.path().join("link"));
    fs::create_dir(&real).unwrap();
    symlink(&real, &link).unwrap();
    let link = link.to_str().unwrap();
    let folder = own_folder(root.folder.path(), link);
    let project = folder
        .parent()
        .and_then(Path::file_name)
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let path = root.write(&project, WHOLE_ID, WHOLE.replace(CWD, link));
    assert_eq!(
        Qwen.find(root.home().session(Some(link), WHOLE_ID)).unwrap(),
        path
    );
    let refusals = |cwd: &str| {
        Qwen.obstacles(root.home().session(Some(cwd), WHOLE_ID), &path)
            .len()
    };
    assert_eq!((refusals(link), refusals(real.to_str().unwrap())), (0, 1));
}

#[test]
fn links_and_folders_in_the_way_are_no_reason_to_panic() {
    let root = Root::with(WHOLE_ID, WHOLE);
    let chats = root.folder.path().join("projects/-home-u-project/chats");
    let id = |number: u8| format!("00000000-0000-4000-8000-0000000000{number:02}");
    symlink(
        chats.join(format!("{WHOLE_ID}.jsonl")),
        chats.join(format!("{}.jsonl", id(1))),
    )
    .unwrap();
    symlink("/nowhere", chats.join(format!("{}.jsonl", id(2)))).unwrap();
    symlink(format!("{}.jsonl", id(3)), chats.join(format!("{}.jsonl", id(3)))).unwrap();
    fs::create_dir(chats.join(format!("{}.jsonl", id(4)))).unwrap();
    fs::create_dir_all(root.folder.path().join("projects/-p/memory")).unwrap();
    symlink("..", root.folder.path().join("projects/-p/chats")).unwrap();
    symlink("-home-u-project", root.folder.path().join("projects/-link")).unwrap();
    fs::write(root.folder.path().join("projects/-p/meta.json"), "{}").unwrap();
    // By a link the file of another session is found, and it says so.
    let report = root.check(&id(1));
    assert_eq!(report.refusals.len(), 1);
    for number in [2, 3, 4] {
        let found = Qwen.find(root.home().session(Some(CWD), &id(number)));
        assert!(found.is_err(), "{number}: {found:?}");
    }
    let mut shelf = Shelf::default();
    shelf.scan(root.folder.path(), Format::Qwen);
    let mut listed: Vec<_> = shelf
        .behind(None)
        .map(|entry| entry.upstream_id.clone())
        .collect();
    listed.sort();
    assert_eq!(listed, [id(1), WHOLE_ID.to_owned()]);
}

#[test]
fn the_folder_of_a_working_directory_has_a_hyphen_for_each_other_character() {
    let root = Path::new("/r");
    for (cwd, name) in [
        ("/home/u/project", "-home-u-project"),
        ("/home/u/a b_c.d", "-home-u-a-b-c-d"),
        ("/é/😀", "-----"),
    ] {
        let expected = root.join("projects").join(name).join("chats");
        assert_eq!(own_folder(root, cwd), expected, "{cwd}");
    }
}
