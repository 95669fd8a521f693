//! Damaged transcripts: what the model receives after a resume must agree with the findings of a check and
//! with the history.

use std::fs;
use std::path::Path;

use bridge_protocol::ConversationId;
use bridge_protocol::check::Finding;
use bridge_protocol::check::FindingKind::{
    self, BrokenParent, DuplicateUuid, ForeignSessionId, GarbageLine, OtherCopy, ToolUseWithoutResult,
    TornLine,
};
use bridge_protocol::method::Check;
use serde_json::{Value, json};

use super::Bridge;
use crate::reading::{prompts, said};
use crate::support::model_server::{Said, What};

/// The prompts of the session. Each turn consists of several records, beginning with the prompt.
const PROMPTS: [&str; 3] = [
    "first words",
    r#"second [[tool list_directory {"path":"."}]] [[text listed]]"#,
    "third words",
];

/// What a resume sends of the session's turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// All turns are sent.
    Kept,
    /// The turns from this one on are sent.
    From(usize),
    /// The agent refuses to open the session.
    Refused,
}

struct Records(Vec<Value>);

impl Records {
    fn text(&self) -> String {
        self.0.iter().map(|record| format!("{record}\n")).collect()
    }

    fn position(&self, is_it: impl Fn(&Value) -> bool) -> usize {
        self.0.iter().position(is_it).expect("the record")
    }

    /// The index of the record with the prompt of a turn.
    fn prompt(&self, turn: usize) -> usize {
        self.position(|record| record["message"]["parts"][0]["text"] == PROMPTS[turn])
    }

    fn without(mut self, position: usize) -> String {
        self.0.remove(position);
        self.text()
    }

    fn with(mut self, position: usize, member: &str, value: Value) -> String {
        self.0[position][member] = value;
        self.text()
    }
}

type Case = (&'static str, fn(Records) -> String, Fate, &'static [FindingKind]);

const OTHER: &str = "00000000-0000-4000-8000-000000000001";

const CASES: [Case; 12] = [
    ("nothing", |records| records.text(), Fate::Kept, &[]),
    (
        "no final newline",
        |records| records.text().trim_end().to_owned(),
        Fate::Kept,
        &[],
    ),
    (
        "a torn last line",
        |records| records.text() + "{\"uuid\":\"to",
        Fate::Kept,
        &[TornLine],
    ),
    (
        "garbage, blank lines and a byte order mark",
        |records| records.text().replacen('\n', "\ngarbage\n\n\u{feff}", 1),
        Fate::Kept,
        &[GarbageLine],
    ),
    (
        "two records in one line",
        |records| records.text().replacen("}\n{", "}{", 1),
        Fate::Kept,
        &[],
    ),
    (
        "a note is missing before the third prompt",
        |records| {
            let position = records.prompt(2) - 1;
            records.without(position)
        },
        Fate::From(2),
        &[BrokenParent],
    ),
    (
        "the third prompt is its own parent",
        |records| {
            let position = records.prompt(2);
            let uuid = records.0[position]["uuid"].clone();
            records.with(position, "parentUuid", uuid)
        },
        Fate::From(2),
        &[BrokenParent],
    ),
    (
        "a reply twice",
        |records| {
            let position = records.position(|record| record["type"] == "assistant");
            let line = records.0[position].to_string();
            records.text().replacen(&line, &format!("{line}\n{line}"), 1)
        },
        Fate::Kept,
        &[DuplicateUuid],
    ),
    (
        "it ends with a call",
        |mut records| {
            let position = records.position(|record| record["type"] == "tool_result");
            records.0.truncate(position);
            records.text()
        },
        Fate::Kept,
        &[ToolUseWithoutResult],
    ),
    (
        "it began in another folder",
        |records| records.with(0, "cwd", json!("/elsewhere")),
        Fate::Refused,
        &[OtherCopy],
    ),
    (
        "one record is of another session",
        |records| records.with(3, "sessionId", json!(OTHER)),
        Fate::Refused,
        &[ForeignSessionId],
    ),
    (
        "all are of another session",
        |records| {
            let own = records.0[0]["sessionId"].to_string();
            records.text().replace(&own, &json!(OTHER).to_string())
        },
        Fate::Refused,
        &[ForeignSessionId],
    ),
];

/// The texts of the prompts and replies. Calls and results are left out, because the agent fills in missing
/// results.
fn texts(said: &[Said]) -> Vec<&str> {
    said.iter()
        .filter_map(|said| match &said.what {
            What::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

impl Bridge {
    fn check_head(&self, id: ConversationId) -> Vec<Finding> {
        self.answer(Check {
            conversation_id: Some(id.into()),
            ..Default::default()
        })
        .findings
    }

    /// The messages in the history, even if some are missing.
    fn shown(&self, id: ConversationId) -> Vec<Said> {
        said(&self.first_page(id).messages)
    }
}

#[test]
#[ignore = "installs the real adapter"]
fn what_a_resume_sends_is_what_a_check_says() {
    let bridge = or_skip!(Bridge::start());
    let project = bridge.lab.project();
    let agent = bridge.lab.adapter();
    let session = agent
        .call("session/new", json!({"cwd": project, "mcpServers": []}))
        .expect("session/new");
    let id = session["sessionId"].as_str().expect("an id").to_owned();
    for prompt in PROMPTS {
        agent.prompt(&id, prompt).expect("an answer");
    }
    agent.stop();
    let transcript = bridge.lab.transcript(&id).expect("the transcript");
    let whole = fs::read_to_string(&transcript).expect("the transcript");
    let adopted = bridge.adopt(&id).expect("a conversation");
    for (number, (name, damage, fate, findings)) in CASES.into_iter().enumerate() {
        let records = whole
            .lines()
            .map(|line| serde_json::from_str(line).expect("a record"));
        fs::write(&transcript, damage(Records(records.collect()))).expect("the transcript");
        let answer = bridge.check_head(adopted.id);
        let found: Vec<_> = answer.iter().map(|finding| finding.kind).collect();
        assert_eq!(found, findings, "{name}: {answer:?}");
        let history = bridge.shown(adopted.id);
        let shown = bridge.checkpoints(adopted.id);

        let agent = bridge.lab.adapter();
        let loaded = agent.call(
            "session/load",
            json!({"sessionId": id, "cwd": project, "mcpServers": []}),
        );
        assert_eq!(loaded.is_err(), fate == Fate::Refused, "{name}: {loaded:?}");
        if loaded.is_ok() {
            let prompt = format!("case {number}");
            agent.prompt(&id, &prompt).expect("an answer");
            let sent = bridge.sent_before(&prompt);
            let joined: String;
            let mut expected = texts(&history);
            if findings == [DuplicateUuid] {
                // The model gets both records as one message; the history shows two.
                joined = [expected[1], expected[2]].concat();
                expected.splice(1..3, [joined.as_str()]);
            }
            assert_eq!(texts(&sent), expected, "{name}");
            let first = match fate {
                Fate::From(first) => first,
                _ => 0,
            };
            assert_eq!(prompts(&shown), PROMPTS[first..first + shown.len()], "{name}");
        }
        agent.stop();
    }
}

/// A torn last line does no harm until the next record is appended to it.
#[test]
#[ignore = "installs the real adapter"]
fn a_torn_last_line_costs_all_before_it_unless_it_is_ended() {
    let bridge = or_skip!(Bridge::start());
    let project = bridge.lab.project();
    for (end, is_kept) in [("", false), ("\n", true)] {
        let agent = bridge.lab.adapter();
        let session = agent
            .call("session/new", json!({"cwd": project, "mcpServers": []}))
            .expect("session/new");
        let id = session["sessionId"].as_str().expect("an id").to_owned();
        agent.prompt(&id, "first words").expect("an answer");
        agent.stop();
        let transcript = bridge.lab.transcript(&id).expect("the transcript");
        let whole = fs::read_to_string(&transcript).expect("the transcript");
        fs::write(&transcript, format!("{whole}{{\"uuid\":\"to{end}")).expect("the transcript");
        for prompt in ["second words", "third words"] {
            let agent = bridge.lab.adapter();
            let params = json!({"sessionId": id, "cwd": project, "mcpServers": []});
            agent.call("session/load", params).expect("session/load");
            agent.prompt(&id, prompt).expect("an answer");
            agent.stop();
        }
        let sent = bridge.sent_before("third words");
        assert_eq!(texts(&sent).contains(&"first words"), is_kept, "{sent:?}");
    }
}

/// The daemon writes no transcripts of Qwen Code in this version. This checks that the agent would resume
/// copies under a new id completely: one that ends before a prompt, and one that was moved to another folder
/// with its paths changed.
#[test]
#[ignore = "installs the real adapter"]
fn a_cut_or_moved_copy_sends_its_turns() {
    let bridge = or_skip!(Bridge::start());
    let (project, elsewhere) = (bridge.lab.project(), bridge.lab.scratch().join("elsewhere"));
    fs::create_dir_all(&elsewhere).expect("a folder");
    let agent = bridge.lab.adapter();
    let params = json!({"cwd": project, "mcpServers": []});
    let session = agent.call("session/new", params).expect("session/new");
    let id = session["sessionId"].as_str().expect("an id");
    for prompt in PROMPTS {
        agent.prompt(id, prompt).expect("an answer");
    }
    agent.stop();
    let transcript = bridge.lab.transcript(id).expect("the transcript");
    let whole = fs::read_to_string(&transcript).expect("the transcript");
    let records = whole
        .lines()
        .map(|line| serde_json::from_str(line).expect("a record"));
    let records = Records(records.collect());
    let folder = |cwd: &Path| json!(cwd).to_string();
    let moved = records.text().replace(&folder(&project), &folder(&elsewhere));
    let cut = Records(records.0[..records.prompt(2)].to_vec()).text();
    let expected = [
        PROMPTS[0],
        "ok: first words",
        PROMPTS[1],
        "calling",
        "listed",
        PROMPTS[2],
        "ok: third words",
    ];
    for (copy, cwd, text, expected) in [
        (
            "00000000-0000-4000-8000-000000000002",
            &project,
            cut,
            &expected[..5],
        ),
        (
            "00000000-0000-4000-8000-000000000003",
            &elsewhere,
            moved,
            &expected[..],
        ),
    ] {
        let name = cwd
            .to_str()
            .expect("a path")
            .replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
        let chats = bridge
            .lab
            .transcript_root()
            .join("projects")
            .join(name)
            .join("chats");
        fs::create_dir_all(&chats).expect("a folder");
        fs::write(chats.join(format!("{copy}.jsonl")), text.replace(id, copy)).expect("a transcript");
        let agent = bridge.lab.adapter();
        let params = json!({"sessionId": copy, "cwd": cwd, "mcpServers": []});
        agent.call("session/load", params).expect("session/load");
        agent.prompt(copy, copy).expect("an answer");
        agent.stop();
        let sent = bridge.sent_before(copy);
        assert_eq!(texts(&sent), expected, "in {}", cwd.display());
    }
}
