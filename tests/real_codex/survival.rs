//! Processes of the agent are killed in the middle of a turn, and no part of the history may be lost.

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::{RemainingReason, Settings};
use bridge_protocol::event::Event;
use bridge_protocol::link::{Fidelity, Via};
use bridge_protocol::method::Resume;
use bridge_protocol::turn::StopReason;
use serde_json::json;

use super::bridge::Bridge;
use super::transcripts::{BROKEN_OFF, asked, echoed, only_output};
use crate::continuation::{
    GO_ON, begin_together, check_brought_back, check_died, continue_after_shared_death, went_on,
};
use crate::processes::{Process, assert_gone};
use crate::support::model_server::{Said, model, tool_result, tool_use, user};
use crate::support::signs::Watched;

#[test]
#[ignore = "installs the real adapter"]
fn f31_an_adapter_killed_before_any_tool_fails_its_turn_and_the_next_prompt_has_it_all() {
    let bridge = or_skip!(Bridge::start());
    let (id, head) = bridge.conversed();
    let running = bridge.begin_prompt(id, BROKEN_OFF, None);
    bridge.wait_written(id, BROKEN_OFF);
    bridge.lab.model.wait_for(BROKEN_OFF);
    let family = bridge.agent_processes();
    assert!(
        family.len() >= 2,
        "the adapter or its server is missing: {family:?}"
    );
    bridge.adapter().kill();
    check_died(&bridge, id, &running.wait().expect("a turn result"));
    // A surviving server would continue the turn.
    assert_gone(&family);

    check_brought_back(&bridge, id, &head);
    let expected = [&echoed("first")[..], &[user(BROKEN_OFF), user("again")]].concat();
    assert_eq!(asked(&bridge, "again"), expected);
    assert_eq!(bridge.lab.model.times_asked(BROKEN_OFF), 1);
}

mod smoke {
    use super::*;

    #[test]
    #[ignore = "installs the real adapter"]
    fn f18_an_adapter_killed_in_a_tool_takes_the_tool_along_and_neither_is_begun_again() {
        let bridge = or_skip!(Bridge::start());
        let (id, head) = bridge.conversed();
        let lasting = lasting_tool();
        let running = bridge.begin_prompt(id, &lasting, None);
        let family = with_tool_begun(&bridge);
        bridge.wait_event("the tool", |event| {
            matches!(&event.event, Event::Update { update, .. } if update.get().contains(r#""tool_call""#))
                .then_some(())
        });
        bridge.adapter().kill();
        let turn = running.wait().expect("a turn result");
        check_died(&bridge, id, &turn);
        let failure = turn.failure.expect("a failure");
        assert!(!failure.retryable, "a tool had started: {failure:?}");
        assert_gone(&family);

        check_brought_back(&bridge, id, &head);
        let expected = [&echoed("first")[..], &cut_short_in(&lasting), &[user("again")]].concat();
        assert_eq!(asked(&bridge, "again"), expected);
        assert_eq!(bridge.lab.model.times_asked(&lasting), 1);
    }
}

/// The adapter lives on, reports that its server has died, and starts another one for all of its sessions.
// F31: the death of the server must be reported, and the server must be restarted.
#[test]
#[ignore = "installs the real adapter"]
fn a_server_killed_below_its_adapter_fails_the_turn_and_all_goes_on_where_it_was() {
    let bridge = or_skip!(Bridge::start());
    let (id, head) = bridge.conversed();
    let (other, _) = bridge.conversed();
    let lasting = lasting_tool();
    for (prompt, cut_short) in [
        (BROKEN_OFF, vec![user(BROKEN_OFF)]),
        (&lasting, cut_short_in(&lasting).to_vec()),
    ] {
        let before = asked_next(&bridge, id);
        let running = bridge.begin_prompt(id, prompt, None);
        if prompt == lasting {
            with_tool_begun(&bridge);
        } else {
            bridge.wait_written(id, prompt);
            bridge.lab.model.wait_for(prompt);
        }
        let ended = kill_server(&bridge);
        check_died(&bridge, id, &running.wait().expect("a turn result"));
        assert_gone(&ended);

        bridge.prompted(id, "again");
        assert_eq!((bridge.head(id), bridge.chain(id).len()), (head.clone(), 1));
        assert_eq!(
            asked(&bridge, "again"),
            [before, cut_short, vec![user("again")]].concat()
        );
        assert_eq!(bridge.lab.model.times_asked(prompt), 1);
    }
    bridge.prompted(other, "beside it");
    let expected = [&echoed("first")[..], &[user("beside it")]].concat();
    assert_eq!(asked(&bridge, "beside it"), expected);
}

/// F23: the turns of several conversations end with the server that they share, and it is unknown which one
/// caused its death. Each can be continued on request, in its own session.
#[test]
#[ignore = "installs the real adapter"]
fn f23_turns_that_died_with_their_server_are_continued() {
    let bridge = or_skip!(Bridge::start());
    let ids = [bridge.conversed().0, bridge.conversed().0];
    let prompts = ["one [[slow 50 0.5]]", "two [[slow 50 0.5]]"];
    let running = begin_together(&bridge, ids, prompts);
    kill_server(&bridge);
    continue_after_shared_death(&bridge, ids, running);
    for (id, prompt) in ids.into_iter().zip(prompts) {
        assert_eq!(went_on(&bridge, id), StopReason::EndTurn);
        let next = format!("after {prompt}").replace("[[slow 50 0.5]]", "");
        bridge.prompted(id, next.trim());
        let said = asked(&bridge, next.trim());
        assert!(
            said.contains(&user(prompt)) && said.contains(&user(GO_ON)),
            "{said:?}"
        );
        assert_eq!(bridge.lab.model.times_asked(prompt), 1);
    }
}

/// A session that was opened but not prompted is not on disk, so it ends with the server. Nothing is lost, so
/// no loss may be reported.
#[test]
#[ignore = "installs the real adapter"]
fn f6_a_session_that_was_lost_with_its_server_before_any_prompt_is_replaced() {
    let bridge = or_skip!(Bridge::start());
    let id = bridge.conversation(Settings::default());
    bridge.answer(Resume {
        conversation_id: id.into(),
        ..Default::default()
    });
    let lost = bridge.head(id);
    kill_server(&bridge);
    let turn = bridge.prompted(id, "first");
    let resumed = turn.resumed.expect("a new session");
    assert_eq!((resumed.via, resumed.fidelity), (Via::Fresh, Fidelity::Full));
    assert_ne!(bridge.head(id), lost);
    bridge.prompted(id, "again");
    let expected = [&echoed("first")[..], &[user("again")]].concat();
    assert_eq!(asked(&bridge, "again"), expected);
    assert_eq!(bridge.lab.model.times_asked("first"), 1);
}

/// The messages that the model would receive before the next prompt.
fn asked_next(bridge: &Bridge, id: ConversationId) -> Vec<Said> {
    only_output(super::transcripts::conversed(&bridge.history(id)))
}

/// The file in the working directory with which the tool of [`lasting_tool`] shows that it has started.
const TOOL_BEGUN: &str = "tool-begun";

/// A prompt with a tool that does not end on its own.
fn lasting_tool() -> String {
    let input = json!({"cmd": format!("sh -c 'echo on > {TOOL_BEGUN}; tail -f /dev/null; :'")});
    format!("[[tool exec_command {input}]] [[text told]]")
}

/// The messages that the model receives of a turn that was interrupted in its tool.
pub(crate) fn cut_short_in(prompt: &str) -> [Said; 4] {
    [
        user(prompt),
        model("calling"),
        tool_use("exec_command"),
        tool_result("aborted"),
    ]
}

/// Waits until the tool has started and returns the agent's processes, which include the tool. The sandbox of
/// Codex gives the tool another process id, so it is recognized by its command line.
fn with_tool_begun(bridge: &Bridge) -> Vec<Process> {
    let folder = bridge.lab.project();
    Watched::below(&folder).wait_for("sign of the tool", || {
        folder.join(TOOL_BEGUN).exists().then_some(())
    });
    let family = bridge.agent_processes();
    let is_tool = |process: &Process| process.command.starts_with("sh -c echo on");
    assert!(family.iter().any(is_tool), "{family:#?}");
    family
}

/// Sends SIGKILL to the server of the adapter. Returns the processes that end with it.
pub(crate) fn kill_server(bridge: &Bridge) -> Vec<Process> {
    let mut family = bridge.agent_processes();
    family.retain(|process| !process.is_adapter());
    let server = family
        .iter()
        .find(|process| process.command.ends_with("codex app-server"));
    let server = server.expect("the adapter's server");
    server.kill();
    server.wait_noted();
    family
}

/// D14: a fork is a rollout that continues another one, and both have been deleted.
#[test]
#[ignore = "installs the real adapter"]
fn d14_conversations_whose_rollouts_were_deleted_go_on_whole() {
    let mut bridge = or_skip!(Bridge::start());
    let (id, head) = bridge.conversed();
    let fork = bridge.fork(id, false).conversation.id;
    bridge.prompted(fork, "forked");
    bridge.wait_kept(2);
    let before = [id, fork].map(|id| asked_next(&bridge, id));
    let told = [id, fork].map(|id| (bridge.history(id), bridge.checkpoints(id)));
    bridge.stop_daemon();
    let sessions = bridge.lab.transcript_root().join("sessions");
    std::fs::remove_dir_all(&sessions).expect("deleted");
    bridge.start_daemon();
    // Reading uses the copies and does not restore the rollouts.
    assert_eq!(
        [id, fork].map(|id| (bridge.history(id), bridge.checkpoints(id))),
        told
    );
    assert!(!sessions.exists());
    for (conversation, before) in [fork, id].into_iter().zip(before.into_iter().rev()) {
        let text = format!("after all was deleted: {conversation}");
        let turn = bridge.prompted(conversation, &text);
        let resumed = turn.resumed.expect("a resume");
        assert_eq!(resumed.fidelity, Fidelity::Full, "{resumed:?}");
        // The fork restores the rollout that it continues, so the other conversation can simply be resumed.
        let expected = match conversation == fork {
            true => Via::Archive,
            false => Via::Resume,
        };
        assert_eq!(resumed.via, expected, "{resumed:?}");
        assert_eq!(asked(&bridge, &text), [before, vec![user(&text)]].concat());
        assert_eq!(bridge.chain(conversation).len(), 1);
    }
    assert_eq!(bridge.head(id), head);
}

/// A fork is a rollout that continues another one. Codex deletes a rollout by archiving it, and still finds
/// there what a fork needs.
#[test]
#[ignore = "installs the real adapter"]
fn a_fork_outlives_the_conversation_that_it_was_forked_from() {
    let mut bridge = or_skip!(Bridge::start());
    let (source, head) = bridge.conversed();
    let fork = bridge.fork(source, false).conversation.id;
    bridge.prompted(fork, "forked");
    bridge.wait_kept(2);
    let before = asked_next(&bridge, fork);
    let told = bridge.delete_with_transcripts(source);
    let left = bridge
        .lab
        .transcript(&head)
        .expect("the rollout that the fork needs was deleted");
    let place = left.to_str().map(str::to_owned);
    let told: Vec<_> = told
        .iter()
        .map(|it| (it.upstream_id.as_str(), it.reason, &it.path))
        .collect();
    assert_eq!(told, [(head.as_str(), RemainingReason::Archived, &place)]);
    assert!(
        left.starts_with(bridge.lab.transcript_root().join("archived_sessions")),
        "{left:?}"
    );
    bridge.stop_daemon();
    bridge.start_daemon();
    let turn = bridge.prompted(fork, "after its source was deleted");
    let resumed = turn.resumed.expect("a resume");
    assert_eq!((resumed.via, resumed.fidelity), (Via::Resume, Fidelity::Full));
    let expected = [before, vec![user("after its source was deleted")]].concat();
    assert_eq!(asked(&bridge, "after its source was deleted"), expected);

    // If the archived rollout is deleted for good, the daemon's copy of it still exists.
    let before = asked_next(&bridge, fork);
    bridge.stop_daemon();
    for folder in ["sessions", "archived_sessions"] {
        std::fs::remove_dir_all(bridge.lab.transcript_root().join(folder)).expect("deleted");
    }
    bridge.start_daemon();
    let turn = bridge.prompted(fork, "after all was deleted");
    let resumed = turn.resumed.expect("a resume");
    assert_eq!((resumed.via, resumed.fidelity), (Via::Archive, Fidelity::Full));
    let expected = [before, vec![user("after all was deleted")]].concat();
    assert_eq!(asked(&bridge, "after all was deleted"), expected);
}
