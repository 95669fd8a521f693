//! What is killed or removed in the middle of something: a turn, a tool, two turns at once, an open session's
//! transcript.

use std::fs;
use std::path::PathBuf;

use bridge_protocol::conversation::{ConversationState, Settings};
use bridge_protocol::link::{Fidelity, Via};
use bridge_protocol::turn::{FailureKind, StopReason, TurnResult};
use bridge_protocol::{ConversationId, ErrorKind};

use super::bridge::Bridge;
use super::limits::echoed;
use super::survival::{bash, is_filler, kill_children};
use crate::continuation::{GO_ON, begin_together, continue_after_shared_death, went_on};
use crate::processes::{Process, assert_gone, tool};
use crate::support::claude::Account;
use crate::support::model_server::{Said, What, model, tool_use, user};
use crate::support::signs::Watched;

const BROKEN_OFF: &str = "cut short [[slow 300 0.1]]";

/// F31: the adapter stays, and says that what it had started for the session is gone.
#[test]
#[ignore = "installs the real adapter"]
fn f31_a_child_killed_in_a_turn_fails_it_and_the_next_prompt_has_it_all() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let (id, head) = conversed(&bridge);
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

/// F31, F18: the same in a tool. Neither the prompt nor the tool is begun again. The tool is in a session of
/// its own, and ends with the adapter at the latest.
#[test]
#[ignore = "installs the real adapter"]
fn f31_a_child_killed_in_a_tool_fails_the_turn_and_neither_is_begun_again() {
    let Some(mut bridge) = Bridge::start(Account::Key) else {
        return;
    };
    let (id, head) = conversed(&bridge);
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

    /// F18: what a killed adapter ran is ended with it, and neither the prompt nor its tool is begun again.
    #[test]
    #[ignore = "installs the real adapter"]
    fn f18_an_adapter_killed_in_a_tool_takes_the_tool_along_and_neither_is_begun_again() {
        let bridge = or_skip!(Bridge::start(Account::Key));
        let (id, head) = conversed(&bridge);
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

/// F23: the turns of two conversations end with the adapter that they share, and nobody knows of which. Each
/// is continued on request, in its own session.
#[test]
#[ignore = "installs the real adapter"]
fn f23_turns_that_died_with_their_adapter_are_continued() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let both = [(); 2].map(|()| conversed(&bridge));
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

/// The agent has the history in memory and goes on with it; on disk it leaves only what came after, and that
/// is told.
#[test]
#[ignore = "installs the real adapter"]
fn d4_a_transcript_removed_from_an_open_session_is_missed_once_that_is_closed() {
    let bridge = or_skip!(Bridge::start_changed(Account::Key, |entry| entry.keeps = false));
    let (id, head) = conversed(&bridge);
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
    let resumed = turn.resumed.expect("it was brought back");
    assert_eq!(
        (resumed.via, resumed.fidelity, resumed.missing_turns),
        (Via::Resume, Fidelity::Partial, 1),
        "{resumed:?}"
    );
    let expected = [&echoed("second")[..], &[user("third")]].concat();
    assert_eq!(bridge.lab.model.asked("third"), expected);
    assert_eq!(bridge.chain(id).len(), 1);
}

/// The same, without a turn in between: nothing is left to go on from, and nothing is started in silence.
#[test]
#[ignore = "installs the real adapter"]
fn d4_a_transcript_removed_from_an_open_session_that_is_closed_is_said_to_be_lost() {
    let bridge = or_skip!(Bridge::start_changed(Account::Key, |entry| entry.keeps = false));
    let (id, head) = conversed(&bridge);
    remove_transcript(&bridge, &head);
    close(&bridge, id);
    let error = bridge
        .prompt(id, "again")
        .expect_err("there is nothing to go on from");
    assert_eq!(error.kind, ErrorKind::NotResumable, "{error:?}");
    assert_eq!(bridge.lab.model.times_asked("again"), 0);
    assert_eq!((bridge.head(id), bridge.chain(id).len()), (head, 1));
    assert_eq!(bridge.get(id).state, ConversationState::Failed);
}

/// A conversation that has had a turn, and its session.
fn conversed(bridge: &Bridge) -> (ConversationId, String) {
    let id = bridge.conversation(Settings::default());
    bridge.prompted(id, "first");
    (id, bridge.head(id))
}

/// A prompt with a tool that does not end by itself.
fn lasting_tool() -> String {
    // Not a plain sleep, which the agent will not wait for.
    bash(&tool("tail -f /dev/null"))
}

/// What a model is sent of a turn that ended in its tool, but for what the agent puts in place of the result.
fn cut_short_in(prompt: &str) -> [Said; 3] {
    [user(prompt), model("calling"), tool_use("Bash")]
}

fn children(mut family: Vec<Process>) -> Vec<Process> {
    family.retain(|process| !process.is_adapter());
    assert!(!family.is_empty(), "what the adapter started");
    family
}

/// Closes the session and waits until its agent has written its last.
fn close(bridge: &Bridge, id: ConversationId) {
    let children = children(bridge.agent_processes());
    bridge.close(id);
    assert_gone(&children);
}

/// Takes the transcript away once the first turn stands in it.
fn remove_transcript(bridge: &Bridge, head: &str) {
    let transcript = written(bridge, head, "ok: first");
    fs::remove_file(transcript).expect("the transcript removed");
}

/// Allows a [`lasting_tool`] and waits until it runs and its call is on disk: the agent writes a little later
/// than it does.
fn allow_tool(bridge: &Bridge, id: ConversationId, head: &str) -> Process {
    bridge.allow_next(id);
    let tool = bridge.begun_tool();
    written(bridge, head, r#""type":"tool_use""#);
    tool
}

/// The transcript of a session once it holds a text.
fn written(bridge: &Bridge, head: &str, text: &str) -> PathBuf {
    Watched::below(&bridge.lab.transcript_root()).wait_for("text in the transcript", || {
        let path = bridge.lab.transcript(head)?;
        let holds = fs::read_to_string(&path).ok()?.contains(text);
        holds.then_some(path)
    })
}

fn check_died(bridge: &Bridge, id: ConversationId, turn: &TurnResult) {
    assert_eq!(turn.stop_reason, StopReason::Failed, "{turn:?}");
    let kind = turn.failure.as_ref().map(|failure| failure.kind);
    assert_eq!(kind, Some(FailureKind::AgentDied), "{turn:?}");
    assert_eq!(bridge.get(id).state, ConversationState::Interrupted);
}

/// The next prompt opens the same session again.
fn check_brought_back(bridge: &Bridge, id: ConversationId, head: &str) {
    let turn = bridge.prompted(id, "again");
    assert_eq!(turn.upstream_id.as_str(), head);
    let resumed = turn.resumed.expect("it was brought back");
    assert_eq!(
        (resumed.via, resumed.fidelity, resumed.missing_turns),
        (Via::Resume, Fidelity::Full, 0),
        "{resumed:?}"
    );
    let now = bridge.get(id);
    assert_eq!((now.state, bridge.chain(id).len()), (ConversationState::Idle, 1));
}

/// What the model was sent with "again": this, and what the agent makes of what was broken off.
fn check_sent(bridge: &Bridge, before: &[Said]) {
    let said = bridge.lab.model.asked("again");
    assert_eq!(said[..before.len()], *before, "{said:?}");
    assert_eq!(said.last(), Some(&user("again")));
    let between = &said[before.len()..said.len() - 1];
    assert!(between.iter().all(is_filled_in), "{between:?}");
}

/// What the agent puts in place of a broken off tool's result and of the reply. Where the tool was ended a
/// moment before the agent itself, that is told.
fn is_filled_in(said: &Said) -> bool {
    let is_signal = |text: &str| matches!(text, "Exit code 137" | "Exit code 143");
    let is_broken_off = |text: &str| text.starts_with("[Tool call interrupted") || is_signal(text);
    is_filler(said) || matches!(&said.what, What::ToolResult(text) if is_broken_off(text))
}
