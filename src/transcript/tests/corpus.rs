//! Transcripts as each version of the agents writes them (`tests/fixtures/transcripts`, where it says how they were made):
//! every one is read without loss, and what is read is pinned.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test may fail by panicking, its helpers too"
)]

mod damage;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::transcript::claude::book::Book;
use crate::transcript::claude::record::Record;
use crate::transcript::claude::{copy, reading, summary};
use crate::transcript::codex::{self, rollouts};
use crate::transcript::dialect::Home;
use crate::transcript::library::Library;
use crate::transcript::lines::{Lines, line_text};
use crate::transcript::message::{Part, Sort, TranscriptMessage};
use crate::transcript::shelf::Format;
use crate::transcript::summary::{Ends, TranscriptSummary};
use crate::transcript::tests::told_live;
use bridge_protocol::check::FindingKind;
use serde_json::Value;
use tempfile::TempDir;

const PARALLEL: &str = r#"[[tool Bash {"command":"echo one","description":"one"} ;; Bash {"command":"echo two","description":"two"}]] [[think a long thought|compared]]"#;
const TASK: &str = r#"[[tool Task {"description":"look","prompt":"words for the subagent","subagent_type":"general-purpose"}]] [[text looked]]"#;
const AGENT: &str = r#"[[tool Agent {"description":"look","prompt":"words for the subagent","subagent_type":"general-purpose","run_in_background":false}]] [[text looked]]"#;
const COUNT: &str = r#"[[tool Bash {"command":"seq 1 20000","description":"count"}]] [[text counted]]"#;

const HOME: &str = "/home/u/project";
const SHELL: &str = r#"[[tool shell {"command":["echo","one"]}]] [[text greeted]]"#;
const EXEC: &str = r#"[[tool exec_command {"cmd":"echo one"}]] [[text greeted]]"#;
const FIRST: &str = "first [[text hi one]]";
const SECOND: &str = r#"second [[tool exec_command {"cmd":"echo tooled"}]] [[text after tool]]"#;
const FIFTH: &str = "fifth [[text five]]";

/// An id that no transcript here has.
const NEW_ID: &str = "6f1a1f5e-0000-4000-8000-000000000000";

/// What is pinned of one of Claude's.
struct Claude {
    /// The version that wrote it, as the file is called.
    name: &'static str,
    upstream_id: &'static str,
    title: &'static str,
    forked_from: Option<&'static str>,
    /// The prompts of its live branch, those before a compaction too, and how many tools each called.
    turns: &'static [(&'static str, usize)],
    /// The last reply.
    reply: &'static str,
    /// Commands of the agent's own, and their output.
    asides: usize,
    /// What lies beside it and is not kept here.
    findings: &'static [FindingKind],
}

const CLAUDE: &[Claude] = &[
    Claude {
        name: "1.0.128",
        upstream_id: "64178a95-f9bc-487a-b41d-cfa03c81b55f",
        // Given by the agent.
        title: "A title",
        forked_from: None,
        turns: &[("first words", 0), (PARALLEL, 2), (TASK, 1), ("and now", 0)],
        reply: "ok: and now",
        asides: 0,
        findings: &[],
    },
    Claude {
        name: "2.0.30",
        upstream_id: "086ae182-0b11-48bd-bfd2-9c463d810364",
        title: "first words",
        forked_from: None,
        turns: &[("first words", 0), (PARALLEL, 2), (TASK, 1), ("and now", 0)],
        reply: "ok: and now",
        asides: 0,
        findings: &[FindingKind::MissingSideFile],
    },
    Claude {
        name: "2.1.100",
        upstream_id: "f9b7cfed-c46b-47fd-a43f-b92e3a1ab117",
        title: "first words",
        forked_from: None,
        turns: &[("first words", 0), (PARALLEL, 2), (TASK, 1), ("and now", 0)],
        reply: "ok: and now",
        asides: 0,
        findings: &[FindingKind::MissingSideFile],
    },
    Claude {
        name: "2.1.316",
        upstream_id: "e874e3da-dcac-439a-bd62-fe577fb0d8a1",
        title: "first words",
        forked_from: None,
        turns: &[
            ("first words", 0),
            (PARALLEL, 2),
            (AGENT, 1),
            (COUNT, 1),
            ("refused [[err 500]]", 0),
            ("after the compaction", 0),
            ("broken off [[slow 100 0.1]]", 0),
            ("and now", 0),
        ],
        reply: "ok: and now",
        asides: 3,
        findings: &[FindingKind::MissingSideFile, FindingKind::MissingSideFile],
    },
    Claude {
        name: "2.1.316-fork",
        upstream_id: "2ec1ca28-e74a-4b79-9100-2cf81bba38b9",
        title: "first words (fork)",
        forked_from: Some("e874e3da-dcac-439a-bd62-fe577fb0d8a1"),
        turns: &[
            ("first words", 0),
            (PARALLEL, 2),
            (AGENT, 1),
            (COUNT, 1),
            ("refused [[err 500]]", 0),
            ("on the branch", 0),
        ],
        reply: "ok: on the branch",
        asides: 0,
        findings: &[FindingKind::MissingSideFile, FindingKind::MissingSideFile],
    },
    Claude {
        name: "2.1.329",
        upstream_id: "21535b63-3e2e-4527-a672-7ff7c408b062",
        title: "first words",
        forked_from: None,
        turns: &[("first words", 0), (PARALLEL, 2), (TASK, 1), ("and now", 0)],
        reply: "ok: and now",
        asides: 0,
        findings: &[FindingKind::MissingSideFile],
    },
];

/// What is pinned of one of Codex'.
struct Codex {
    name: &'static str,
    upstream_id: &'static str,
    title: &'static str,
    forked_from: Option<&'static str>,
    /// The folder, where it is told; the first versions did not.
    cwd: Option<&'static str>,
    /// The prompts of its history, those in the files that it continues too.
    turns: &'static [&'static str],
    /// What is wrong with it.
    findings: &'static [FindingKind],
}

const CODEX: &[Codex] = &[
    Codex {
        name: "0.29.0",
        upstream_id: "82ace22b-a325-4eb4-b3c2-75701e12acde",
        title: SHELL,
        forked_from: None,
        cwd: None,
        turns: &[SHELL],
        // Written before there were kinds of lines.
        findings: &[FindingKind::NothingToResume],
    },
    Codex {
        name: "0.47.0",
        upstream_id: "01a1fccf-e25a-7211-9236-547a193bd41c",
        title: "first words",
        forked_from: None,
        cwd: Some(HOME),
        turns: &["first words", SHELL, "and now"],
        findings: &[],
    },
    Codex {
        name: "0.80.0",
        upstream_id: "01a1fccf-5c9a-74e0-84e2-7e8787d1d582",
        title: "first words",
        forked_from: None,
        cwd: Some(HOME),
        turns: &["first words", SHELL, "and now"],
        findings: &[],
    },
    Codex {
        name: "0.100.0",
        upstream_id: "01a1fccf-5e72-7003-8aa3-a91937abfb6e",
        title: "first words",
        forked_from: None,
        cwd: Some(HOME),
        turns: &["first words", EXEC, "and now"],
        findings: &[],
    },
    Codex {
        name: "0.141.0",
        upstream_id: "01a1fccf-611b-7b31-8f0d-c74a92f84d5e",
        title: "first words",
        forked_from: None,
        cwd: Some(HOME),
        turns: &["first words", EXEC, "and now"],
        findings: &[],
    },
    Codex {
        name: "0.166.0",
        upstream_id: "01a1fcd0-7929-7e93-a128-e1fa7e8a5751",
        title: "first words",
        forked_from: None,
        cwd: Some(HOME),
        turns: &[
            "first words",
            EXEC,
            "after the compaction",
            "broken off [[slow 100 0.1]]",
            "refused [[err 400]]",
            "and now",
        ],
        findings: &[],
    },
    Codex {
        name: "0.166.0-fork",
        upstream_id: "01a1fcd0-7a83-7693-a1c2-be1af1f5ac8e",
        title: "on the branch",
        forked_from: Some("01a1fcd0-7929-7e93-a128-e1fa7e8a5751"),
        cwd: Some(HOME),
        turns: &["first words", EXEC, "on the branch"],
        findings: &[],
    },
    Codex {
        name: "0.166.0-fork-of-fork",
        upstream_id: "01a1fcd0-7adf-7ec0-9d1b-dd3180ecd393",
        title: "on the second branch",
        forked_from: Some("01a1fcd0-7a83-7693-a1c2-be1af1f5ac8e"),
        cwd: Some(HOME),
        turns: &["first words", EXEC, "on the branch", "on the second branch"],
        findings: &[],
    },
    Codex {
        name: "0.166.0-limit",
        upstream_id: "01a1fcbf-db36-73c1-ae0a-836a46b096da",
        title: FIRST,
        forked_from: None,
        cwd: Some(HOME),
        turns: &[
            FIRST,
            SECOND,
            "third [[err 429]]",
            "fourth [[slow 40 0.3]]",
            FIFTH,
            "sixth [[text six]]",
        ],
        findings: &[],
    },
    Codex {
        name: "0.166.0-limit-fork",
        upstream_id: "01a1fcbf-e886-79d2-a3e6-6c11a0d6eeba",
        title: "on fork [[text forked]]",
        forked_from: Some("01a1fcbf-db36-73c1-ae0a-836a46b096da"),
        cwd: Some(HOME),
        turns: &[
            FIRST,
            SECOND,
            "third [[err 429]]",
            "fourth [[slow 40 0.3]]",
            FIFTH,
            "on fork [[text forked]]",
        ],
        findings: &[],
    },
    Codex {
        name: "0.166.0-limit-early-fork",
        upstream_id: "01a1fcbf-e8e6-7b20-bdec-a0ea0263efff",
        title: "on early fork [[text early]]",
        forked_from: Some("01a1fcbf-db36-73c1-ae0a-836a46b096da"),
        cwd: Some(HOME),
        turns: &[FIRST, "on early fork [[text early]]"],
        findings: &[],
    },
    Codex {
        name: "0.166.0-limit-fork-of-fork",
        upstream_id: "01a1fcbf-e951-7fa1-baa7-4184e695b989",
        title: "deep [[text deep]]",
        forked_from: Some("01a1fcbf-e8e6-7b20-bdec-a0ea0263efff"),
        cwd: Some(HOME),
        turns: &[FIRST, "on early fork [[text early]]", "deep [[text deep]]"],
        findings: &[],
    },
    Codex {
        name: "0.169.0",
        upstream_id: "01a1fcd0-8b2a-7e82-b5c4-669ee19493a3",
        title: "first words",
        forked_from: None,
        cwd: Some(HOME),
        turns: &["first words", EXEC, "and now"],
        findings: &[],
    },
];

fn folder(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/transcripts")
        .join(kind)
}

fn bytes(kind: &str, name: &str) -> Vec<u8> {
    let path = folder(kind).join(format!("{name}.jsonl"));
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// One of Claude's under the name that it has in the agent's folder, in a folder of its own.
fn placed(content: &[u8], upstream_id: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("{upstream_id}.jsonl"));
    fs::write(&path, content).unwrap();
    (folder, path)
}

fn texts(message: &TranscriptMessage) -> impl Iterator<Item = &str> {
    message.parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        _ => None,
    })
}

fn records(content: &[u8]) -> Vec<Value> {
    let lines = std::str::from_utf8(content).unwrap().lines();
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Each record as its `sessionId`, if it has one, and the rest of the line.
fn without_session(content: &[u8]) -> Vec<(Option<String>, String)> {
    let lines = std::str::from_utf8(content).unwrap().lines();
    lines
        .map(|line| {
            let record: Value = serde_json::from_str(line).unwrap();
            let id = record["sessionId"].as_str().map(str::to_owned);
            let token = id.as_ref().map(|id| format!(r#""sessionId":"{id}""#));
            // Members of members come before it too: the last one is the record's, but for one that nobody has.
            let rest = match token.and_then(|token| line.rfind(&token).map(|at| (at, token.len()))) {
                Some((at, length)) => format!("{}{}", &line[..at], &line[at + length..]),
                None => line.to_owned(),
            };
            (id, rest)
        })
        .collect()
}

#[test]
fn no_transcript_is_forgotten() {
    for (kind, pinned) in [
        (
            "claude",
            CLAUDE.iter().map(|one| one.name).collect::<BTreeSet<_>>(),
        ),
        ("codex", CODEX.iter().map(|one| one.name).collect()),
    ] {
        let there: BTreeSet<String> = fs::read_dir(folder(kind))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let pinned: BTreeSet<String> = pinned.iter().map(|name| format!("{name}.jsonl")).collect();
        assert_eq!(there, pinned, "{kind}");
    }
}

#[test]
fn every_line_is_a_record_and_all_lines_are_the_file() {
    let claude = CLAUDE.iter().map(|one| ("claude", one.name));
    for (kind, name) in claude.chain(CODEX.iter().map(|one| ("codex", one.name))) {
        let content = bytes(kind, name);
        let mut lines = Lines::new(&content[..], 0);
        let mut read = Vec::new();
        while let Some(line) = lines.next_line().unwrap() {
            assert_eq!(
                (line.offset, line.ended, line.oversized),
                (read.len() as u64, true, false)
            );
            assert!(
                Record::parse(&line_text(line.bytes)).is_some(),
                "{kind} {name} at {}",
                line.offset
            );
            read.extend_from_slice(line.bytes);
            read.push(b'\n');
        }
        assert!(read == content, "{kind} {name} is not the same when it was read");
    }
}

#[test]
fn what_claude_wrote_is_read_as_pinned() {
    for one in CLAUDE {
        let (_folder, path) = placed(&bytes("claude", one.name), one.upstream_id);
        let content = fs::read(&path).unwrap();
        let told = summary::summary(Ends {
            head: &content,
            tail: b"",
        });
        let expected = TranscriptSummary {
            upstream_id: None,
            title: Some(one.title.to_owned()),
            last_prompt: None,
            cwd: Some(HOME.to_owned()),
            forked_from: one.forked_from.map(str::to_owned),
            last_at: told.last_at.clone(),
        };
        assert_eq!(told, expected, "{}", one.name);
        assert!(told.last_at.is_some(), "{}", one.name);

        let told = told_live(&path);
        let turns: Vec<(&str, usize)> = told
            .iter()
            .map(|turn| (turn.prompt.as_str(), turn.calls.len()))
            .collect();
        assert_eq!(turns, one.turns, "{}", one.name);
        assert_eq!(told.last().unwrap().reply, one.reply, "{}", one.name);
        let book = Book::read(&content[..], None).unwrap().unwrap();
        assert_eq!(
            (book.asides(), book.breaks, book.ends_torn()),
            (one.asides, 0, false),
            "{}",
            one.name
        );
        let report = reading::check(&path).unwrap();
        let kinds: Vec<FindingKind> = report.findings.iter().map(|finding| finding.kind).collect();
        assert_eq!(kinds, one.findings, "{}: {:#?}", one.name, report.findings);
    }
}

#[test]
fn what_codex_wrote_is_summed_up_as_pinned() {
    for one in CODEX {
        let content = bytes("codex", one.name);
        let told = codex::summary(Ends {
            head: &content,
            tail: b"",
        });
        assert_eq!(told.upstream_id.as_deref(), Some(one.upstream_id), "{}", one.name);
        assert_eq!(told.title.as_deref(), Some(one.title), "{}", one.name);
        assert_eq!(told.cwd.as_deref(), one.cwd, "{}", one.name);
        assert_eq!(told.forked_from.as_deref(), one.forked_from, "{}", one.name);
        assert!(told.last_at.is_some(), "{}", one.name);
    }
}

/// Forks are read through the files that they continue.
#[test]
fn what_codex_wrote_is_read_as_pinned() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("sessions/2026/11/21");
    fs::create_dir_all(&folder).unwrap();
    for one in CODEX {
        let name = format!("rollout-2026-11-21T06-34-43-{}.jsonl", one.upstream_id);
        fs::write(folder.join(name), bytes("codex", one.name)).unwrap();
    }
    for one in CODEX {
        let (library, root) = (&Library::default(), root.path());
        let session = Home { library, root }.session(None, one.upstream_id);
        let mut open = Format::Codex.dialect().open(session, None).unwrap();
        assert_eq!(open.losses(), [], "{}", one.name);
        let mut prompts = vec![String::new(); open.turns()];
        for (turn, prompt) in prompts.iter_mut().enumerate() {
            for message in open.turn(turn) {
                let message = open.message(message).unwrap().unwrap();
                if message.sort == Sort::Prompt {
                    prompt.extend(texts(&message));
                }
            }
        }
        assert_eq!(prompts, one.turns, "{}", one.name);
        let report = rollouts::check(root, one.upstream_id).unwrap();
        let kinds: Vec<FindingKind> = report.findings.iter().map(|finding| finding.kind).collect();
        assert_eq!(kinds, one.findings, "{}: {:#?}", one.name, report.findings);
    }
}

#[test]
fn a_copy_is_the_same_and_one_under_a_new_id_differs_in_nothing_else() {
    for one in CLAUDE {
        // Also with what no version writes yet.
        let content = bytes("claude", one.name);
        let mut strange = String::new();
        for line in std::str::from_utf8(&content).unwrap().lines() {
            strange.push_str(r#"{"type":"of-tomorrow","sessionId":7,"number":1.50,"list":[ 1,"é"]}"#);
            strange.push('\n');
            strange.push_str(&line.replacen('{', r#"{"tomorrow":{"number":1.50, "sessionId":"x"},"#, 1));
            strange.push('\n');
        }
        for content in [&content[..], strange.as_bytes()] {
            let (_folder, path) = placed(content, one.upstream_id);
            let other = tempfile::tempdir().unwrap();
            let same = copy::copy_as(&path, other.path(), one.upstream_id).unwrap();
            assert!(
                fs::read(&same).unwrap() == content,
                "{} is not the same as a copy",
                one.name
            );

            let renamed = fs::read(copy::copy_as(&path, other.path(), NEW_ID).unwrap()).unwrap();
            let mut expected = without_session(content);
            assert!(
                expected
                    .iter()
                    .any(|(id, _)| id.as_deref() == Some(one.upstream_id))
            );
            for (id, _) in &mut expected {
                if id.as_deref() == Some(one.upstream_id) {
                    *id = Some(NEW_ID.to_owned());
                }
            }
            assert!(
                without_session(&renamed) == expected,
                "{}: more than the id differs",
                one.name
            );
            assert_eq!(records(&renamed).len(), records(content).len());
            let copy = other.path().join(format!("{NEW_ID}.jsonl"));
            assert_eq!(told_live(&copy), told_live(&path));
        }
    }
}
