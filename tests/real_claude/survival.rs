//! Kills processes, and checks that no process and no part of the history is left behind or lost.

use bridge_protocol::conversation::{ConversationState, Settings};
use bridge_protocol::event::Event;
use bridge_protocol::link::{Fidelity, Via};
use bridge_protocol::turn::{FailureKind, StopReason, TurnResult};

use super::bridge::Bridge;
use crate::processes::{Process, assert_gone, tool};
use crate::resumed::check_resumed;
use crate::support::claude::Account;
use crate::support::model_server::{Said, What, model, tool_result, tool_use, user};

const WITH_TOOL: &str = r#"[[tool Bash {"command":"echo hi","description":"greet"}]] [[text greeted]]"#;

fn after_tool() -> Vec<Said> {
    vec![
        user(WITH_TOOL),
        model("calling"),
        tool_use("Bash"),
        tool_result("hi"),
        model("greeted"),
    ]
}

#[test]
#[ignore = "installs the real adapter"]
fn a_killed_adapters_conversation_goes_on_whole() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.begun(&[WITH_TOOL]);
    let head = bridge.head(id);
    let family = bridge.agent_processes();
    assert!(
        family.len() >= 2,
        "the adapter or its child is missing: {family:?}"
    );
    bridge.adapter().kill();
    assert_gone(&family);

    let turn = bridge.prompted(id, "again");
    assert_eq!(turn.upstream_id.as_str(), head);
    let resumed = turn.resumed.expect("a resume");
    assert_eq!((resumed.via, resumed.fidelity), (Via::Resume, Fidelity::Full));
    let expected = [&after_tool()[..], &[user("again")]].concat();
    assert_eq!(bridge.lab.model.asked("again"), expected);
}

#[test]
#[ignore = "installs the real adapter"]
fn an_adapter_killed_during_a_turn_fails_it_and_the_prompt_is_not_sent_again() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.begun(&[WITH_TOOL]);
    let cut_short = "cut short [[slow 300 0.1]]";
    let running = bridge.begin_prompt(id, cut_short, None);
    bridge.wait_written(id, cut_short);
    let family = bridge.agent_processes();
    bridge.adapter().kill();
    let turn = running.wait().expect("a turn result");
    assert_eq!(turn.stop_reason, StopReason::Failed);
    assert_eq!(
        turn.failure.map(|failure| failure.kind),
        Some(FailureKind::AgentDied)
    );
    assert_eq!(bridge.get(id).state, ConversationState::Interrupted);
    // A surviving child would continue the turn.
    assert_gone(&family);

    bridge.prompted(id, "again");
    check_cut_short(&bridge.lab.model.asked("again"), &after_tool(), cut_short);
    assert_eq!(bridge.get(id).state, ConversationState::Idle);
}

/// The adapter has forgotten a session whose child process has ended, and opens it again on request.
#[test]
#[ignore = "installs the real adapter"]
fn a_session_whose_child_was_killed_while_it_rested_goes_on_whole() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.begun(&[WITH_TOOL]);
    let head = bridge.head(id);
    kill_children(&bridge);

    let turn = bridge.prompted(id, "again");
    check_reopened(&turn, &head);
    let expected = [&after_tool()[..], &[user("again")]].concat();
    assert_eq!(bridge.lab.model.asked("again"), expected);
    assert_eq!(bridge.chain(id).len(), 1);
}

/// The same, but the refusal comes after the daemon has accepted the prompt, as from a busy adapter or after
/// the machine has slept.
#[test]
#[ignore = "installs the real adapter"]
fn a_session_that_is_refused_late_goes_on_whole_in_the_same_turn() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.begun(&[WITH_TOOL]);
    let head = bridge.head(id);
    kill_children(&bridge);
    let adapter = bridge.adapter();
    adapter.freeze();
    let running = bridge.begin_prompt(id, "again", None);
    let accepted = bridge.wait_event("the prompt's acceptance", |event| match &event.event {
        Event::PromptAccepted { turn_id, prompt } if prompt.to_text() == "again" => Some(turn_id.clone()),
        _ => None,
    });
    adapter.thaw();

    let turn = running.wait().expect("a turn result");
    assert_eq!(
        (&turn.turn_id, &turn.stop_reason),
        (&accepted, &StopReason::EndTurn)
    );
    check_reopened(&turn, &head);
    let expected = [&after_tool()[..], &[user("again")]].concat();
    assert_eq!(bridge.lab.model.asked("again"), expected);
    let acceptances = bridge
        .events(id)
        .into_iter()
        .filter(|event| matches!(event, Event::PromptAccepted { turn_id, .. } if *turn_id == accepted));
    assert_eq!(acceptances.count(), 1);
}

/// Kills the adapter's children and waits until the adapter has noticed.
pub(crate) fn kill_children(bridge: &Bridge) {
    let mut children = bridge.agent_processes();
    children.retain(|process| !process.is_adapter());
    assert!(!children.is_empty());
    for child in &children {
        child.kill();
    }
    for child in &children {
        child.wait_noted();
    }
}

/// Checks that the open session was refused and then reopened under the same id.
fn check_reopened(turn: &TurnResult, head: &str) {
    assert_eq!(turn.upstream_id.as_str(), head);
    let resumed = turn.resumed.as_ref().expect("a resume");
    assert_eq!((resumed.via, resumed.fidelity), (Via::Resume, Fidelity::Full));
    let tried: Vec<(Via, bool)> = resumed
        .attempts
        .iter()
        .map(|attempt| (attempt.via, attempt.error.is_none()))
        .collect();
    assert_eq!(tried, [(Via::Live, false), (Via::Resume, true)]);
}

#[test]
#[ignore = "installs the real adapter"]
fn a_daemon_killed_during_a_turn_tells_so_and_goes_on() {
    let mut bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.begun(&[WITH_TOOL]);
    let cut_short = "cut short [[slow 300 0.1]]";
    let running = bridge.begin_prompt(id, cut_short, Some("the-prompt"));
    bridge.wait_written(id, cut_short);
    let family = bridge.agent_processes();
    bridge.kill_daemon();
    running.wait().expect_err("the connection was cut");

    bridge.start_daemon();
    // The daemon listens only after it has settled everything of its previous run.
    assert!(
        bridge.agent_processes().is_empty(),
        "{:?}",
        bridge.agent_processes()
    );
    assert_gone(&family);
    let now = bridge.get(id);
    assert_eq!((now.state, now.live), (ConversationState::Interrupted, false));
    // The same call gets the end of the turn; nothing is sent again.
    let told = bridge.begin_prompt(id, cut_short, Some("the-prompt")).wait();
    let told = told.expect("the turn's result");
    assert_eq!(told.stop_reason, StopReason::Failed);
    assert_eq!(
        told.failure.map(|failure| failure.kind),
        Some(FailureKind::DaemonRestarted)
    );

    let turn = bridge.prompted(id, "again");
    assert_eq!(turn.resumed.expect("a resume").fidelity, Fidelity::Full);
    check_cut_short(&bridge.lab.model.asked("again"), &after_tool(), cut_short);
    assert_eq!(bridge.get(id).state, ConversationState::Idle);
    assert_eq!(bridge.chain(id).len(), 1);
}

#[test]
#[ignore = "installs the real adapter"]
fn a_closed_conversation_gives_the_memory_of_its_agent_back() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let [id, other] = [(); 2].map(|()| bridge.conversation(Settings::default()));
    bridge.prompted(id, "first");
    let of_first: Vec<Process> = bridge.agent_processes();
    bridge.prompted(other, "other");
    bridge.close(id);
    let children: Vec<Process> = of_first
        .into_iter()
        .filter(|process| !process.is_adapter())
        .collect();
    assert!(!children.is_empty());
    assert_gone(&children);
    // The other conversation stays open, and the closed one can be resumed.
    let live = [id, other].map(|id| bridge.get(id).live);
    assert_eq!(live, [false, true]);
    bridge.prompted(id, "again");
    let expected = [user("first"), model("ok: first"), user("again")];
    assert_eq!(bridge.lab.model.asked("again"), expected);
}

#[test]
#[ignore = "installs the real adapter"]
fn a_deleted_conversations_transcript_does_not_come_back() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.begun(&["first"]);
    let head = bridge.head(id);
    let mut children = bridge.agent_processes();
    children.retain(|process| !process.is_adapter());
    assert_eq!(bridge.delete_with_transcripts(id), []);
    // The agent answers before its child has written everything.
    assert_gone(&children);
    assert_eq!(bridge.lab.transcript(&head), None);
}

/// D14: the vendor deletes old transcripts with all their files. The only rest is a hard link that the daemon
/// made when the turn ended.
#[test]
#[ignore = "installs the real adapter"]
fn d14_a_conversation_whose_transcript_was_deleted_goes_on_whole() {
    let mut bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.begun(&[WITH_TOOL]);
    let head = bridge.head(id);
    bridge.wait_kept(1);
    bridge.prompted(id, "more");
    let expected = [&after_tool()[..], &[user("more"), model("ok: more")]].concat();
    for round in ["from a link", "from a copy"] {
        let whole = bridge.lab.transcript(&head).expect("the transcript");
        let text = std::fs::read(&whole).expect("the transcript");
        let told = (bridge.history(id), bridge.checkpoints(id));
        bridge.stop_daemon();
        std::fs::remove_dir_all(bridge.lab.transcript_root().join("projects")).expect("deleted");
        bridge.start_daemon();
        // Reading uses the copy and does not restore the transcript.
        assert_eq!((bridge.history(id), bridge.checkpoints(id)), told);
        assert_eq!(bridge.lab.transcript(&head), None);
        let turn = bridge.prompted(id, round);
        assert_eq!(turn.upstream_id.as_str(), head);
        let resumed = turn.resumed.expect("a resume");
        check_resumed(&resumed, Via::Archive, Fidelity::Full, 0);
        let restored =
            std::fs::read(bridge.lab.transcript(&head).expect("the transcript")).expect("the transcript");
        assert!(restored.starts_with(&text));
        let asked = bridge.lab.model.asked(round);
        assert!(asked.starts_with(&expected), "{asked:?}");
        bridge.close(id);
        bridge.keep(id);
    }
    assert_eq!(bridge.chain(id).len(), 1);
}

#[test]
#[ignore = "installs the real adapter"]
fn a_stopped_daemon_leaves_no_process_behind() {
    let mut bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.conversation(Settings::default());
    let tool = start_lasting_tool(&bridge, id);
    let family = bridge.agent_processes();
    assert!(bridge.stop_daemon().success());
    assert_gone(&family);
    assert_gone(&[tool]);
}

#[test]
#[ignore = "installs the real adapter"]
fn a_daemon_stopped_during_a_tool_ends_the_tool() {
    let mut bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.conversation(Settings::default());
    // A plain `sleep` would not be awaited by the agent, and some commands run without a question.
    let tool = tool("tail -f /dev/null");
    let running = bridge.begin_prompt(id, &bash(&tool), None);
    bridge.allow_next(id);
    let tool = bridge.begun_tool();
    let family = bridge.agent_processes();
    assert!(bridge.stop_daemon().success());
    assert_gone(&family);
    assert_gone(&[tool]);
    let ended = running.wait().expect("a turn result");
    assert_eq!(ended.stop_reason, StopReason::Cancelled);
}

#[test]
#[ignore = "installs the real adapter"]
fn what_a_killed_daemon_leaves_is_ended_at_the_next_start() {
    let mut bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.conversation(Settings::default());
    let tool = start_lasting_tool(&bridge, id);
    let family = bridge.agent_processes();
    bridge.kill_daemon();
    bridge.start_daemon();
    assert_gone(&[tool]);
    assert_gone(&family);
    let turn = bridge.prompted(id, "again");
    assert_eq!(turn.resumed.expect("a resume").fidelity, Fidelity::Full);
}

/// Runs a tool that outlives its turn, in its own process session.
fn start_lasting_tool(bridge: &Bridge, id: bridge_protocol::ConversationId) -> Process {
    let command = format!(
        "setsid {} >/dev/null 2>&1 </dev/null & echo started",
        tool("sleep 300")
    );
    let running = bridge.begin_prompt(id, &bash(&command), None);
    bridge.allow_next(id);
    running.wait().expect("a turn result");
    bridge.begun_tool()
}

pub(crate) fn bash(command: &str) -> String {
    let input = serde_json::json!({"command": command, "description": "a test's tool"});
    format!("[[tool Bash {input}]]")
}

/// Checks the model's messages: the history before the interrupted prompt, that prompt once, what the agent
/// makes of its unfinished answer, and the next prompt.
fn check_cut_short(said: &[Said], before: &[Said], cut_short: &str) {
    assert_eq!(&said[..before.len()], before);
    assert_eq!(said[before.len()], user(cut_short));
    assert_eq!(said.last(), Some(&user("again")));
    let between = &said[before.len() + 1..said.len() - 1];
    assert!(between.iter().all(is_filler), "{between:?}");
}

/// Whether this is what the agent keeps of an unfinished answer, or inserts in its place.
pub(crate) fn is_filler(said: &Said) -> bool {
    let What::Text(text) = &said.what else {
        return false;
    };
    text.starts_with("word") || text == "No response requested." || text == "[Request interrupted by user]"
}
