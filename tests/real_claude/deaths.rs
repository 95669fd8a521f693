//! Something is killed or deleted in the middle of work: during a turn, during a tool, during two turns at
//! once, or the transcript of an open session.

use std::fs;
use std::path::PathBuf;

use bridge_protocol::conversation::ConversationState;
use bridge_protocol::link::{Fidelity, Via};
use bridge_protocol::turn::StopReason;
use bridge_protocol::{ConversationId, ErrorKind};

use super::bridge::Bridge;
use super::limits::echoed;
use super::survival::{bash, is_filler, kill_children};
use crate::continuation::{
    GO_ON, begin_together, check_brought_back, check_died, continue_after_shared_death, went_on,
};
use crate::processes::{Process, assert_gone, tool};
use crate::resumed::check_resumed;
use crate::support::claude::Account;
use crate::support::model_server::{Said, What, model, tool_use, user};
use crate::support::signs::Watched;

const BROKEN_OFF: &str = "cut short [[slow 300 0.1]]";

/// F31: the adapter lives on, and reports that its process for the session has died.
#[test]
#[ignore = "installs the real adapter"]
fn f31_a_child_killed_in_a_turn_fails_it_and_the_next_prompt_has_it_all() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let (id, head) = bridge.conversed();
    let running = bridge.begin_prompt(id, BROKEN_OFF, None);
    bridge.wait_written(id, BROKEN_OFF);
    bridge.lab.model.wait_for(BROKEN_OFF);
    let ended = bridge.agent_processes();
    kill_children(&bridge);
    check_died(&bridge, id, &running.wait().expect("a turn result"));
    assert_gone(&children(ended));

    check_brought_back(&bridge, id, &head);
    check_sent(&bridge, &[&echoed("first")[..], &[user(BROKEN_OFF)]].concat());
    assert_eq!(bridge.lab.model.times_asked(BROKEN_OFF), 1);
}

/// F31, F18: the same during a tool. Neither the prompt nor the tool is started again. The tool runs in its
/// own process session and ends with the adapter at the latest.
#[test]
#[ignore = "installs the real adapter"]
fn f31_a_child_killed_in_a_tool_fails_the_turn_and_neither_is_begun_again() {
    let mut bridge = or_skip!(Bridge::start(Account::Key));
    let (id, head) = bridge.conversed();
    let lasting = lasting_tool();
    let running = bridge.begin_prompt(id, &lasting, None);
    let tool = allow_tool(&bridge, id, &head);
    let family = bridge.agent_processes();
    let child = family
        .iter()
        .find(|process| process.command.contains("stream-json"));
    child.expect("the adapter's child").kill();
    let turn = running.wait().expect("a turn result");
    check_died(&bridge, id, &turn);
    let failure = turn.failure.expect("a failure");
    assert!(!failure.retryable, "a tool had started: {failure:?}");

    check_brought_back(&bridge, id, &head);
    check_sent(&bridge, &[&echoed("first")[..], &cut_short_in(&lasting)].concat());
    assert_eq!(bridge.lab.model.times_asked(&lasting), 1);
    bridge.stop_daemon();
    assert_gone(&family);
    assert_gone(&[tool]);
}

mod smoke {
    use super::*;

    /// F18: the processes of a killed adapter are ended too, and neither the prompt nor its tool is started
    /// again.
    #[test]
    #[ignore = "installs the real adapter"]
    fn f18_an_adapter_killed_in_a_tool_takes_the_tool_along_and_neither_is_begun_again() {
        let bridge = or_skip!(Bridge::start(Account::Key));
        let (id, head) = bridge.conversed();
        let lasting = lasting_tool();
        let running = bridge.begin_prompt(id, &lasting, None);
        let tool = allow_tool(&bridge, id, &head);
        let family = bridge.agent_processes();
        bridge.adapter().kill();
        let turn = running.wait().expect("a turn result");
        check_died(&bridge, id, &turn);
        let failure = turn.failure.expect("a failure");
        assert!(!failure.retryable, "a tool had started: {failure:?}");
        assert_gone(&family);
        assert_gone(&[tool]);

        check_brought_back(&bridge, id, &head);
        check_sent(&bridge, &[&echoed("first")[..], &cut_short_in(&lasting)].concat());
        assert_eq!(bridge.lab.model.times_asked(&lasting), 1);
    }
}

/// F23: the turns of two conversations end with the adapter that they share, and it is unknown which one
/// caused its death. Each can be continued on request, in its own session.
#[test]
#[ignore = "installs the real adapter"]
fn f23_turns_that_died_with_their_adapter_are_continued() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let both = [(); 2].map(|()| bridge.conversed());
    let prompts = ["one [[slow 300 0.1]]", "two [[slow 300 0.1]]"];
    let ids = [0, 1].map(|which| both[which].0);
    let running = begin_together(&bridge, ids, prompts);
    let family = bridge.agent_processes();
    bridge.adapter().kill();
    continue_after_shared_death(&bridge, ids, running);
    assert_gone(&family);
    for ((id, head), prompt) in both.into_iter().zip(prompts) {
        assert_eq!(went_on(&bridge, id), StopReason::EndTurn);
        assert_eq!((bridge.head(id), bridge.chain(id).len()), (head, 1));
        let next = format!("after {}", &prompt[..3]);
        bridge.prompted(id, &next);
        let mut said = bridge.lab.model.asked(&next);
        said.retain(|said| !is_filler(said));
        let [_, answer] = echoed(GO_ON);
        let expected = [
            &echoed("first")[..],
            &[user(prompt), user(GO_ON), answer, user(&next)],
        ]
        .concat();
        assert_eq!(said, expected);
        assert_eq!(bridge.lab.model.times_asked(prompt), 1);
    }
    assert_eq!(bridge.lab.model.times_asked(GO_ON), 2);
}

/// The agent continues from the history in its memory, but the file then contains only the later turns, and
/// the loss must be reported.
#[test]
#[ignore = "installs the real adapter"]
fn d4_a_transcript_removed_from_an_open_session_is_missed_once_that_is_closed() {
    let bridge = or_skip!(Bridge::start_changed(Account::Key, |entry| entry.keeps = false));
    let (id, head) = bridge.conversed();
    remove_transcript(&bridge, &head);
    let turn = bridge.prompted(id, "second");
    assert_eq!((turn.upstream_id.as_str(), turn.resumed), (head.as_str(), None));
    let expected = [&echoed("first")[..], &[user("second")]].concat();
    assert_eq!(bridge.lab.model.asked("second"), expected);

    close(&bridge, id);
    let whole = bridge.prompt_at_least(id, "whole or not at all", Fidelity::Full);
    let refused = whole.expect_err("a turn is missing");
    assert_eq!(refused.kind, ErrorKind::NotResumable, "{refused:?}");
    assert_eq!(bridge.lab.model.times_asked("whole or not at all"), 0);

    let turn = bridge.prompted(id, "third");
    assert_eq!(turn.upstream_id.as_str(), head);
    let resumed = turn.resumed.expect("a resume");
    check_resumed(&resumed, Via::Resume, Fidelity::Partial, 1);
    let expected = [&echoed("second")[..], &[user("third")]].concat();
    assert_eq!(bridge.lab.model.asked("third"), expected);
    assert_eq!(bridge.chain(id).len(), 1);
}

/// The same without a turn in between: nothing is left to continue from, and no new session may be started
/// silently.
#[test]
#[ignore = "installs the real adapter"]
fn d4_a_transcript_removed_from_an_open_session_that_is_closed_is_said_to_be_lost() {
    let bridge = or_skip!(Bridge::start_changed(Account::Key, |entry| entry.keeps = false));
    let (id, head) = bridge.conversed();
    remove_transcript(&bridge, &head);
    close(&bridge, id);
    let error = bridge
        .prompt(id, "again")
        .expect_err("there is nothing to continue from");
    assert_eq!(error.kind, ErrorKind::NotResumable, "{error:?}");
    assert_eq!(bridge.lab.model.times_asked("again"), 0);
    assert_eq!((bridge.head(id), bridge.chain(id).len()), (head, 1));
    assert_eq!(bridge.get(id).state, ConversationState::Failed);
}

/// A prompt with a tool that does not end on its own.
fn lasting_tool() -> String {
    // Not a plain `sleep`, for which the agent would not wait.
    bash(&tool("tail -f /dev/null"))
}

/// The messages that the model receives of a turn that was interrupted in its tool, without the text in place
/// of the result.
fn cut_short_in(prompt: &str) -> [Said; 3] {
    [user(prompt), model("calling"), tool_use("Bash")]
}

fn children(mut family: Vec<Process>) -> Vec<Process> {
    family.retain(|process| !process.is_adapter());
    assert!(!family.is_empty(), "the adapter has no child processes");
    family
}

/// Closes the session and waits until the agent has written everything.
fn close(bridge: &Bridge, id: ConversationId) {
    let children = children(bridge.agent_processes());
    bridge.close(id);
    assert_gone(&children);
}

/// Deletes the transcript after it contains the first turn.
fn remove_transcript(bridge: &Bridge, head: &str) {
    let transcript = written(bridge, head, "ok: first");
    fs::remove_file(transcript).expect("the transcript removed");
}

/// Allows a [`lasting_tool`], and waits until it runs and its call is on disk, because the agent writes the
/// call slightly later.
fn allow_tool(bridge: &Bridge, id: ConversationId, head: &str) -> Process {
    bridge.allow_next(id);
    let tool = bridge.begun_tool();
    written(bridge, head, r#""type":"tool_use""#);
    tool
}

/// Waits until the transcript of a session contains a text. Returns its path.
fn written(bridge: &Bridge, head: &str, text: &str) -> PathBuf {
    Watched::below(&bridge.lab.transcript_root()).wait_for("text in the transcript", || {
        let path = bridge.lab.transcript(head)?;
        let holds = fs::read_to_string(&path).ok()?.contains(text);
        holds.then_some(path)
    })
}

/// Checks what the model received with the prompt "again": first these messages, then only what the agent
/// inserts for an interrupted turn.
fn check_sent(bridge: &Bridge, before: &[Said]) {
    let said = bridge.lab.model.asked("again");
    assert_eq!(said[..before.len()], *before, "{said:?}");
    assert_eq!(said.last(), Some(&user("again")));
    let between = &said[before.len()..said.len() - 1];
    assert!(between.iter().all(is_filled_in), "{between:?}");
}

/// Whether the agent has inserted this in place of the result of an interrupted tool, or of the reply. If the
/// tool was killed slightly before the agent, the agent sends its exit code.
fn is_filled_in(said: &Said) -> bool {
    let is_signal = |text: &str| matches!(text, "Exit code 137" | "Exit code 143");
    let is_broken_off = |text: &str| text.starts_with("[Tool call interrupted") || is_signal(text);
    is_filler(said) || matches!(&said.what, What::ToolResult(text) if is_broken_off(text))
}
