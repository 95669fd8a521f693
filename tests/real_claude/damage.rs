//! Damaged transcripts, which the agent resumes silently.

use std::fs;

use bridge_protocol::check::FindingKind;
use bridge_protocol::error::ErrorKind;
use bridge_protocol::history::GapKind;
use bridge_protocol::link::{Fidelity, Via};
use serde_json::{Value, json};

use super::bridge::Bridge;
use crate::reading::said;
use crate::resumed::check_resumed;
use crate::support::claude::Account;
use crate::support::model_server::{Said, What, model, tool_use, user};

/// Creates a conversation of three turns, closes it, and lets `change` modify the lines of its transcript.
fn three_turns(bridge: &Bridge, change: impl FnOnce(&mut Vec<String>)) -> bridge_protocol::ConversationId {
    let id = bridge.begun(&["number one", "number two", "number three"]);
    bridge.close(id);
    let path = bridge.lab.transcript(&bridge.head(id)).expect("the transcript");
    let text = fs::read_to_string(&path).expect("the transcript");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    note_end(&mut lines);
    change(&mut lines);
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(&path, text).expect("the transcript");
    id
}

fn reply_to(lines: &[String], prompt: &str) -> usize {
    let asked =
        |line: &String| line.starts_with('{') && line.contains(r#""role":"user""#) && line.contains(prompt);
    let prompt = lines.iter().position(asked).expect("the prompt's record");
    let reply = lines
        .iter()
        .skip(prompt)
        .position(|line| line.contains(r#""type":"assistant""#));
    prompt + reply.expect("the reply's record")
}

fn uuid_in(line: &str) -> Option<String> {
    let record: Value = serde_json::from_str(line).ok()?;
    Some(record["uuid"].as_str()?.to_owned())
}

/// Sets the place that the agent has recorded as the end of the conversation: removes all such records and
/// adds one. The agent itself writes them at unpredictable times, mostly when its process ends.
fn note(lines: &mut Vec<String>, place: &str) {
    lines.retain(|line| !line.contains(r#""type":"last-prompt""#));
    lines.push(json!({"type": "last-prompt", "lastPrompt": "x", "leafUuid": place}).to_string());
}

fn note_end(lines: &mut Vec<String>) {
    let last = lines.iter().rev().find_map(|line| uuid_in(line));
    note(lines, &last.expect("a record with a uuid"));
}

/// Records the reply to a prompt as the end of the conversation.
fn note_reply(lines: &mut Vec<String>, prompt: &str) {
    let place = uuid_in(&lines[reply_to(lines, prompt)]);
    note(lines, &place.expect("the reply's uuid"));
}

/// The texts that the model receives of the three turns, up to the prompt "go on".
fn sent(bridge: &Bridge) -> Vec<String> {
    let said = bridge.lab.model.asked("go on");
    said.into_iter()
        .filter_map(|said| match said.what {
            What::Text(text) => Some(text.trim().to_owned()),
            _ => None,
        })
        .collect()
}

/// If a record in the middle is torn, the agent silently joins the rest, and the model misses only that
/// record. The daemon must report the loss, and must read the file as the model receives it.
#[test]
#[ignore = "installs the real adapter"]
fn a_torn_record_in_the_middle_is_told_and_read_as_the_model_reads_it() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = three_turns(&bridge, |lines| {
        let torn = reply_to(lines, "number two");
        lines[torn].replace_range(1..20, "@");
    });
    let page = bridge.first_page(id);
    let resumed = bridge.prompted(id, "go on").resumed.expect("a resume");
    assert_eq!(
        sent(&bridge),
        [
            "number one",
            "ok: number one",
            "number two",
            "number three",
            "ok: number three",
            "go on"
        ]
    );
    let parts = page.messages.into_iter().flat_map(|message| message.content);
    let read: Vec<String> = parts.filter_map(|part| part.text).collect();
    assert_eq!(read, sent(&bridge)[..5]);
    check_resumed(&resumed, Via::Resume, Fidelity::Partial, 1);
}

/// The last turn is cut off, as after a power loss. The file itself has no error, but the loss must be
/// reported.
#[test]
#[ignore = "installs the real adapter"]
fn a_lost_tail_is_told() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = three_turns(&bridge, |lines| {
        let prompt = lines.iter().position(|line| line.contains("number three"));
        lines.truncate(prompt.expect("the last prompt"));
    });
    let resumed = bridge.prompted(id, "go on").resumed.expect("a resume");
    assert_eq!(
        sent(&bridge),
        [
            "number one",
            "ok: number one",
            "number two",
            "ok: number two",
            "go on"
        ]
    );
    check_resumed(&resumed, Via::Resume, Fidelity::Partial, 1);
}

/// Another client has gone back in place, and the agent was killed before it recorded that. The agent
/// continues as if that branch did not exist. Nothing is damaged, but the branch must be reported.
#[test]
#[ignore = "installs the real adapter"]
fn a_branch_that_the_agent_had_not_noted_is_left_out_and_told() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let mut back = String::new();
    let mut end = String::new();
    let id = three_turns(&bridge, |lines| {
        let uuid = |prompt| uuid_in(&lines[reply_to(lines, prompt)]).expect("the reply's uuid");
        (back, end) = (uuid("number one"), uuid("number three"));
    });
    let session = bridge.head(id);
    let path = bridge.lab.transcript(&session).expect("the transcript");
    let adapter = bridge.lab.adapter();
    let options = json!({"options": {"resumeSessionAt": back}});
    let opening = json!({
        "sessionId": session, "cwd": bridge.lab.project(), "mcpServers": [], "_meta": {"claudeCode": options},
    });
    adapter.call("session/resume", opening).expect("session/resume");
    adapter.begin_prompt(&session, "instead [[slow 200 0.1]]");
    let text = || fs::read_to_string(&path).expect("the transcript");
    let is_asked = |line: &str| line.contains(r#""role":"user""#) && line.contains("instead");
    adapter.wait_notification("the prompt in the transcript", |_| text().lines().any(is_asked));
    adapter.kill();
    // The agent may just have recorded the branch, so this removes the record.
    let mut lines: Vec<String> = text().lines().map(str::to_owned).collect();
    note(&mut lines, &end);
    fs::write(&path, lines.join("\n") + "\n").expect("the transcript");

    assert_eq!(bridge.found(&session), [FindingKind::NewerBranch]);
    bridge.prompted(id, "go on");
    assert_eq!(
        sent(&bridge),
        [
            "number one",
            "ok: number one",
            "number two",
            "ok: number two",
            "number three",
            "ok: number three",
            "go on"
        ]
    );
    bridge.close(id);
    assert_eq!(bridge.found(&session), [], "the continued branch is the newest");
}

/// The daemon counts the agent's own commands as prompts, but the model does not receive them. That is not a
/// loss.
#[test]
#[ignore = "installs the real adapter"]
fn commands_of_the_agents_own_are_no_loss() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.begun(&["number one", "/cost", "number two", "/compact", "number three"]);
    bridge.close(id);
    let resumed = bridge.prompted(id, "go on").resumed.expect("a resume");
    check_resumed(&resumed, Via::Resume, Fidelity::Full, 0);
}

/// The agent has nothing to resume, and the daemon must not silently start a new session.
#[test]
#[ignore = "installs the real adapter"]
fn a_transcript_of_garbage_is_not_resumed() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = three_turns(&bridge, |lines| *lines = vec!["@@@".to_owned()]);
    let error = bridge
        .prompt(id, "go on")
        .expect_err("there is nothing to continue from");
    assert_eq!(error.kind, ErrorKind::NotResumable, "{error:?}");
    assert!(
        error.detail("attempts")[0]["error"]
            .as_str()
            .is_some_and(|text| text.contains("not found")),
        "{error:?}"
    );
}

/// A power loss can leave such a file.
#[test]
#[ignore = "installs the real adapter"]
fn an_empty_transcript_is_restored_from_its_copy() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.begun(&["number one", "number two"]);
    bridge.close(id);
    bridge.keep(id);
    let path = bridge.lab.transcript(&bridge.head(id)).expect("the transcript");
    fs::write(&path, "").expect("the transcript");
    let resumed = bridge.prompted(id, "go on").resumed.expect("a resume");
    check_resumed(&resumed, Via::Archive, Fidelity::Full, 0);
    assert_eq!(
        sent(&bridge),
        [
            "number one",
            "ok: number one",
            "number two",
            "ok: number two",
            "go on"
        ]
    );
}

const WITH_TOOL: &str = r#"[[tool Bash {"command":"echo hi","description":"greet"}]] [[text done]]"#;

/// The messages of a session before it is damaged: the turns "number one", [`WITH_TOOL`] and "number two".
fn whole() -> Vec<Said> {
    let tool_result = Said {
        role: "user".into(),
        what: What::ToolResult("hi".into()),
    };
    vec![
        user("number one"),
        model("ok: number one"),
        user(WITH_TOOL),
        model("calling"),
        tool_use("Bash"),
        tool_result,
        model("done"),
        user("number two"),
        model("ok: number two"),
    ]
}

const ALL: [usize; 9] = [0, 1, 2, 3, 4, 5, 6, 7, 8];

struct Damage {
    what: &'static str,
    change: fn(&mut Vec<String>),
    found: &'static [FindingKind],
    gaps: &'static [GapKind],
    /// The indices of the [`whole`] messages that a history contains.
    told: &'static [usize],
    /// The indices of the [`whole`] messages that the model receives.
    sent: &'static [usize],
    fidelity: Fidelity,
}

fn result_in(lines: &[String]) -> usize {
    let found = lines
        .iter()
        .position(|line| line.contains(r#""type":"tool_result""#));
    found.expect("the result's record")
}

/// Replaces the parent of a prompt's record by one that does not exist.
fn unknown_parent(lines: &mut [String], prompt: &str) {
    other_parent(lines, prompt, "6f1a1f5e-0000-4000-8000-000000000000");
}

fn other_parent(lines: &mut [String], prompt: &str, parent: &str) {
    let asked = |line: &&mut String| line.contains(r#""role":"user""#) && line.contains(prompt);
    let line = lines.iter_mut().find(asked).expect("the prompt's record");
    let mut record: Value = serde_json::from_str(line).expect("a record");
    record["parentUuid"] = json!(parent);
    *line = record.to_string();
}

/// Whether the agent has inserted this text in place of the result of an interrupted tool call or of the
/// reply to it.
fn is_filled_in(said: &Said) -> bool {
    match &said.what {
        What::ToolResult(text) => text.starts_with("[Tool call interrupted"),
        What::Text(text) => text == "No response requested.",
        _ => false,
    }
}

const DAMAGES: [Damage; 13] = [
    Damage {
        what: "nothing",
        change: |_| {},
        found: &[],
        gaps: &[],
        told: &ALL,
        sent: &ALL,
        fidelity: Fidelity::Full,
    },
    Damage {
        what: "a parent that is not there",
        change: |lines| unknown_parent(lines, "number two"),
        found: &[FindingKind::BrokenParent],
        gaps: &[GapKind::Broken],
        told: &ALL,
        sent: &ALL,
        fidelity: Fidelity::Partial,
    },
    Damage {
        what: "a result that is gone, before the place that was noted last",
        change: |lines| {
            lines.remove(result_in(lines));
        },
        found: &[FindingKind::ToolUseWithoutResult, FindingKind::BrokenParent],
        gaps: &[GapKind::Broken],
        told: &[0, 1, 2, 3, 4, 6, 7, 8],
        sent: &[0, 1, 2, 3, 6, 7, 8],
        fidelity: Fidelity::Partial,
    },
    Damage {
        what: "a result that is gone, and no place noted",
        change: |lines| {
            lines.remove(result_in(lines));
            lines.retain(|line| !line.contains(r#""type":"last-prompt""#));
        },
        found: &[FindingKind::ToolUseWithoutResult, FindingKind::BrokenParent],
        gaps: &[GapKind::Broken],
        told: &[0, 1, 2, 3, 4, 6, 7, 8],
        sent: &[0, 1, 2, 3, 6, 7, 8],
        fidelity: Fidelity::Partial,
    },
    Damage {
        what: "a result that is gone, behind the place that was noted last",
        change: |lines| {
            lines.remove(result_in(lines));
            note_reply(lines, "number one");
        },
        // The records before the gap are left out too.
        found: &[
            FindingKind::NewerBranch,
            FindingKind::ToolUseWithoutResult,
            FindingKind::BrokenParent,
        ],
        gaps: &[GapKind::Broken],
        told: &[0, 1],
        // The agent would send only the messages up to the recorded place; a repaired copy keeps the later
        // ones.
        sent: &[0, 1, 2, 3, 6, 7, 8],
        fidelity: Fidelity::Partial,
    },
    Damage {
        what: "a parent that is not there, behind the call that was noted last",
        change: |lines| {
            unknown_parent(lines, "number two");
            note_reply(lines, "echo hi");
        },
        found: &[FindingKind::NewerBranch, FindingKind::BrokenParent],
        gaps: &[GapKind::Broken],
        told: &[0, 1, 2, 3, 4, 5],
        sent: &ALL,
        fidelity: Fidelity::Partial,
    },
    Damage {
        what: "a branch that is newer than the one that was noted last",
        change: |lines| {
            let parent = uuid_in(&lines[reply_to(lines, "number one")]);
            other_parent(lines, "number two", &parent.expect("a uuid"));
            let done = lines.iter().find(|line| line.contains(r#""text":"done""#));
            let done = done.and_then(|line| uuid_in(line)).expect("the last reply");
            note(lines, &done);
        },
        found: &[FindingKind::NewerBranch],
        gaps: &[],
        told: &[0, 1, 2, 3, 4, 5, 6],
        sent: &[0, 1, 2, 3, 4, 5, 6],
        fidelity: Fidelity::Full,
    },
    Damage {
        what: "a branch that was noted last",
        change: |lines| {
            let parent = uuid_in(&lines[reply_to(lines, "number one")]);
            other_parent(lines, "number two", &parent.expect("a uuid"));
        },
        found: &[],
        gaps: &[],
        told: &[0, 1, 7, 8],
        sent: &[0, 1, 7, 8],
        fidelity: Fidelity::Full,
    },
    Damage {
        what: "a call at the end",
        change: |lines| lines.truncate(result_in(lines)),
        found: &[FindingKind::ToolUseWithoutResult],
        gaps: &[],
        told: &[0, 1, 2, 3, 4],
        sent: &[0, 1, 2, 3, 4],
        fidelity: Fidelity::Full,
    },
    Damage {
        what: "a record twice",
        change: |lines| {
            let reply = reply_to(lines, "number one");
            lines.insert(reply + 1, lines[reply].clone());
        },
        found: &[FindingKind::DuplicateUuid],
        gaps: &[],
        told: &ALL,
        sent: &ALL,
        fidelity: Fidelity::Full,
    },
    Damage {
        what: "records of another session",
        change: |lines| {
            let reply = reply_to(lines, "number one");
            let mut record: Value = serde_json::from_str(&lines[reply]).expect("a record");
            record["sessionId"] = json!("6f1a1f5e-0000-4000-8000-000000000000");
            lines[reply] = record.to_string();
        },
        found: &[FindingKind::ForeignSessionId],
        gaps: &[],
        told: &ALL,
        sent: &ALL,
        fidelity: Fidelity::Full,
    },
    Damage {
        what: "a line that breaks off",
        change: |lines| lines.push(r#"{"type":"user","uuid":"6f1a1f5e-00"#.to_owned()),
        found: &[FindingKind::TornLine],
        gaps: &[],
        told: &ALL,
        sent: &ALL,
        fidelity: Fidelity::Full,
    },
    Damage {
        what: "garbage in place of a reply",
        change: |lines| {
            let reply = reply_to(lines, "number one");
            lines[reply] = "@@@".to_owned();
        },
        found: &[FindingKind::GarbageLine, FindingKind::BrokenParent],
        gaps: &[GapKind::Broken],
        told: &[0, 2, 3, 4, 5, 6, 7, 8],
        sent: &[0, 2, 3, 4, 5, 6, 7, 8],
        fidelity: Fidelity::Partial,
    },
];

/// For damaged sessions made by the bare adapter, the findings of a check, the history, and the messages that
/// the model receives must agree.
#[test]
#[ignore = "installs the real adapter"]
fn each_damage_is_found_and_read_as_the_agent_reads_it() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let adapter = bridge.lab.adapter();
    let opening = json!({"cwd": bridge.lab.project(), "mcpServers": []});
    let sessions = DAMAGES.each_ref().map(|_| {
        let made = adapter.call("session/new", opening.clone()).expect("session/new");
        let id = made["sessionId"].as_str().expect("an id").to_owned();
        for text in ["number one", WITH_TOOL, "number two"] {
            adapter.prompt(&id, text).expect("a turn");
        }
        id
    });
    adapter.stop();
    for (damage, session) in DAMAGES.iter().zip(&sessions) {
        let what = damage.what;
        let path = bridge.lab.transcript(session).expect("the transcript");
        let text = fs::read_to_string(&path).expect("the transcript");
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        note_end(&mut lines);
        (damage.change)(&mut lines);
        // The last line may be torn, so it gets no line break.
        let end = if damage.found == [FindingKind::TornLine] {
            ""
        } else {
            "\n"
        };
        fs::write(&path, lines.join("\n") + end).expect("the transcript");
        assert_eq!(bridge.found(session), damage.found, "{what}");

        let adopted = bridge.adopt(session).expect("conversation/adopt").id;
        let page = bridge.first_page(adopted);
        let of_whole =
            |places: &[usize]| -> Vec<Said> { places.iter().map(|place| whole()[*place].clone()).collect() };
        assert_eq!(said(&page.messages), of_whole(damage.told), "{what}");
        let gaps: Vec<GapKind> = page.gaps.iter().map(|gap| gap.kind).collect();
        assert_eq!(gaps, damage.gaps, "{what}");
        let text = format!("go on {session}");
        let turn = bridge.prompt(adopted, &text).expect("a turn");
        let resumed = turn.resumed.expect("a resume");
        assert_eq!(resumed.fidelity, damage.fidelity, "{what}");
        let is_rebuilt = damage.sent.last() > damage.told.last();
        assert_eq!(resumed.via == Via::Rebuilt, is_rebuilt, "{what}: {resumed:?}");
        let sent = [of_whole(damage.sent), vec![user(&text)]].concat();
        let (filled_in, asked): (Vec<Said>, Vec<Said>) =
            bridge.lab.model.asked(&text).into_iter().partition(is_filled_in);
        assert_eq!(asked, sent, "{what}");
        let expected = match damage.sent {
            [.., 4] => 2,
            [.., 5] => 1,
            _ => 0,
        };
        assert_eq!(filled_in.len(), expected, "{what}");
    }
}
