//! Transcripts that are damaged, which the agent resumes without a word.

use std::fs;

use bridge_protocol::conversation::Settings;
use bridge_protocol::error::ErrorKind;
use bridge_protocol::link::{Fidelity, Via};

use crate::bridge::Bridge;
use crate::support::claude::Account;
use crate::support::model_server::What;

/// Makes a conversation of three turns, closes it, and hands the lines of its transcript to `change`.
fn three_turns(bridge: &Bridge, change: impl FnOnce(&mut Vec<String>)) -> bridge_protocol::ConversationId {
    let id = bridge.conversation(Settings::default());
    for text in ["number one", "number two", "number three"] {
        bridge.prompted(id, text);
    }
    bridge.close(id);
    let path = bridge.lab.transcript(&bridge.head(id)).expect("the transcript");
    let text = fs::read_to_string(&path).expect("the transcript");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
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

/// What the model is sent of the three turns, behind a prompt that goes on.
fn sent(bridge: &Bridge) -> Vec<String> {
    let said = bridge.lab.model.asked("go on");
    said.into_iter()
        .filter_map(|said| match said.what {
            What::Text(text) => Some(text.trim().to_owned()),
            _ => None,
        })
        .collect()
}

/// A record in the middle is torn: the agent joins what is left, without a word, and the model misses that record
/// alone. We say that something is missing, and our own reading of the file is the model's.
#[test]
#[ignore = "installs the real adapter"]
fn a_torn_record_in_the_middle_is_told_and_read_as_the_model_reads_it() {
    let Some(bridge) = Bridge::start(Account::Key) else {
        return;
    };
    let id = three_turns(&bridge, |lines| {
        let torn = reply_to(lines, "number two");
        lines[torn].replace_range(1..20, "@");
    });
    let path = bridge.lab.transcript(&bridge.head(id)).expect("the transcript");
    let read = session_bridge::transcript::reading::turns(&path, None).expect("the turns");
    let resumed = bridge.prompted(id, "go on").resumed.expect("it was closed");
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
    let read: Vec<String> = read
        .into_iter()
        .flat_map(|turn| [turn.prompt, turn.reply])
        .filter(|text| !text.is_empty())
        .collect();
    assert_eq!(read, sent(&bridge)[..5]);
    assert_eq!(
        (resumed.via, resumed.fidelity, resumed.missing_turns),
        (Via::Resume, Fidelity::Partial, 1)
    );
}

/// The last turn is cut off, as a disk does that lost its power: nothing in the file is wrong, and it is told.
#[test]
#[ignore = "installs the real adapter"]
fn a_lost_tail_is_told() {
    let Some(bridge) = Bridge::start(Account::Key) else {
        return;
    };
    let id = three_turns(&bridge, |lines| {
        let prompt = lines.iter().position(|line| line.contains("number three"));
        lines.truncate(prompt.expect("the last prompt"));
    });
    let resumed = bridge.prompted(id, "go on").resumed.expect("it was closed");
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
    assert_eq!(
        (resumed.via, resumed.fidelity, resumed.missing_turns),
        (Via::Resume, Fidelity::Partial, 1)
    );
}

/// The agent's own commands are prompts to us and none to it: that is no loss.
#[test]
#[ignore = "installs the real adapter"]
fn commands_of_the_agents_own_are_no_loss() {
    let Some(bridge) = Bridge::start(Account::Key) else {
        return;
    };
    let id = bridge.conversation(Settings::default());
    for text in ["number one", "/cost", "number two", "/compact", "number three"] {
        bridge.prompted(id, text);
    }
    bridge.close(id);
    let resumed = bridge.prompted(id, "go on").resumed.expect("it was closed");
    assert_eq!(
        (resumed.via, resumed.fidelity, resumed.missing_turns),
        (Via::Resume, Fidelity::Full, 0)
    );
}

/// The agent has nothing to resume, and we start nothing in silence.
#[test]
#[ignore = "installs the real adapter"]
fn an_empty_transcript_is_not_resumed() {
    let Some(bridge) = Bridge::start(Account::Key) else {
        return;
    };
    for garbage in [None, Some("@@@")] {
        let id = three_turns(&bridge, |lines| {
            lines.clear();
            lines.extend(garbage.map(str::to_owned));
        });
        let error = bridge
            .prompt(id, "go on")
            .expect_err("there is nothing to go on from");
        assert_eq!(error.kind, ErrorKind::NotResumable, "{error:?}");
        assert!(
            error.detail("attempts")[0]["error"]
                .as_str()
                .is_some_and(|text| text.contains("not found")),
            "{error:?}"
        );
    }
}
