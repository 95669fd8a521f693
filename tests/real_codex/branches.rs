//! Branches within turns and of branches, and those of compacted sessions.

use std::fs;

use bridge_protocol::conversation::{BranchedVia, Settings};
use bridge_protocol::history::MessageKind;
use bridge_protocol::link::Fidelity;

use super::bridge::Bridge;
use super::transcripts::{WITH_TOOL, asked, conversed, echoed, only_output};
use crate::branching::asked_before;
use crate::support::model_server::{What, user};
use crate::support::prefix::Prefix;

const LAST: &str = "at the end";

/// A compaction is a turn of Codex' own behind the one that somebody asked for. It is of the session that
/// made it.
#[test]
#[ignore = "installs the real adapter"]
fn d7_a_branch_has_the_compactions_of_its_own_session_and_no_others() {
    let Some(bridge) = Bridge::start() else {
        return;
    };
    let id = bridge.conversation(Settings::default());
    bridge.prompted(id, "first words");
    bridge.prompted(id, WITH_TOOL);
    let place = bridge.checkpoints(id).pop().expect("a checkpoint").id;
    let branch = || {
        let fork = bridge.fork_at(id, false, Some(place.as_str().to_owned()));
        fork.expect("conversation/fork").conversation.id
    };
    let [compacted, plain] = [branch(), branch()];
    bridge.prompted(plain, "on a branch");
    for id in [id, compacted] {
        bridge.prompted(id, "/compact");
    }
    bridge.prompted(compacted, "on a compacted branch");
    bridge.prompted(id, "compacted");
    for (source, text, same) in [
        (id, "behind the source", "compacted"),
        (plain, "behind a branch", "on a branch"),
        (compacted, "behind a compacted branch", "on a compacted branch"),
    ] {
        let fork = bridge.fork_at(source, false, Some(place.as_str().to_owned()));
        let fork = fork.expect("conversation/fork");
        assert_eq!(
            (fork.fidelity, fork.via),
            (Fidelity::Full, Some(BranchedVia::Native))
        );
        bridge.prompted(fork.conversation.id, text);
        asked_before(&bridge, text).check_is(&asked_before(&bridge, same), text);
    }
}

/// Within a turn a branch has what stands up to the message, no call without its result, and nothing that is
/// filled in; in the session that is branched nothing changes.
#[test]
#[ignore = "installs the real adapter"]
fn d7_a_branch_at_a_message_has_no_call_without_its_result() {
    let Some(mut bridge) = Bridge::start() else {
        return;
    };
    let id = bridge.conversation(Settings::default());
    for prompt in ["first words", WITH_TOOL, "/compact", LAST] {
        bridge.prompted(id, prompt);
    }
    let source = bridge.lab.transcript(&bridge.head(id)).expect("the rollout");
    let before = fs::read(&source).expect("the rollout");
    let history = bridge.history(id);
    let summary = history
        .iter()
        .position(|message| message.kind == Some(MessageKind::Summary));
    let mut branches = Vec::new();
    let mut ends = Vec::new();
    for (index, message) in history[..summary.expect("a compaction")].iter().enumerate() {
        if message.kind == Some(MessageKind::Aside) {
            continue;
        }
        let fork = bridge.fork_at(id, false, Some(message.id.clone()));
        let fork = fork.expect("conversation/fork");
        assert_eq!(fork.fidelity, Fidelity::Full);
        let text = format!("behind {index}");
        bridge.prompted(fork.conversation.id, &text);
        let whole = only_output(conversed(&history[..=index]));
        let mut said = asked(&bridge, &text);
        assert_eq!(said.pop(), Some(user(&text)));
        assert_eq!(said[..], whole[..said.len()], "{index}");
        ends.push(said.len());
        let of = |is_it: fn(&What) -> bool| said.iter().filter(|said| is_it(&said.what)).count();
        let [calls, results] = [
            of(|what| matches!(what, What::ToolUse(_))),
            of(|what| matches!(what, What::ToolResult(_))),
        ];
        assert_eq!(calls, results, "{index}: {said:#?}");
        // Only behind the call something is left out.
        assert!(whole.len() - said.len() <= 1, "{index}: {said:#?}");
        let head = bridge.head(fork.conversation.id);
        assert_eq!(bridge.findings(&head), []);
        let told = only_output(conversed(&bridge.history(fork.conversation.id)));
        assert_eq!(told[..said.len()], said);
        branches.push((fork.conversation.id, text, said));
    }
    assert!(ends.is_sorted(), "{ends:?}");
    assert_eq!(fs::read(&source).expect("the rollout"), before);

    // They go on after a restart, when the source is closed.
    bridge.stop_daemon();
    bridge.start_daemon();
    for (branch, text, said) in branches {
        let again = format!("again {text}");
        let turn = bridge.prompted(branch, &again);
        assert_eq!(
            turn.resumed.expect("it was brought back").fidelity,
            Fidelity::Full
        );
        let expected = [&said[..], &echoed(&text), &[user(&again)]].concat();
        assert_eq!(asked(&bridge, &again), expected);
    }
}

/// In place, and with a branch of the branch, by an edit of what came behind.
#[test]
#[ignore = "installs the real adapter"]
fn d7_a_branch_within_a_turn_can_be_branched_and_edited() {
    let Some(bridge) = Bridge::start() else {
        return;
    };
    let id = bridge.conversation(Settings::default());
    for prompt in ["first words", WITH_TOOL, LAST] {
        bridge.prompted(id, prompt);
    }
    let history = bridge.history(id);
    let result = history.iter().find(|message| {
        let mut parts = message.content.iter();
        parts.any(|part| part.kind == "toolResult")
    });
    let result = result.expect("a result").id.clone();
    let fork = bridge.fork_at(id, true, Some(result)).expect("conversation/fork");
    assert_eq!(
        (fork.fidelity, fork.via),
        (Fidelity::Full, Some(BranchedVia::Cut))
    );
    bridge.prompted(id, "in place");
    bridge.prompted(id, "behind it");
    let mut cut = asked(&bridge, "in place");
    assert_eq!(cut.pop(), Some(user("in place")));
    let places = bridge.checkpoints(id);
    assert_eq!(places.len(), 4);
    let deeper = bridge.fork_at(id, false, Some(places[1].id.as_str().to_owned()));
    bridge.prompted(deeper.expect("conversation/fork").conversation.id, "deeper");
    assert_eq!(asked(&bridge, "deeper"), [&cut[..], &[user("deeper")]].concat());
    let edited = bridge
        .edit(id, places[2].id.as_str(), "instead")
        .expect("conversation/edit");
    assert_eq!((edited.fidelity, edited.dropped), (Fidelity::Full, 2));
    assert_eq!(asked(&bridge, "instead"), [&cut[..], &[user("instead")]].concat());
    bridge.undo(id);
    bridge.undo(id);
    bridge.prompted(id, "as it was");
    Prefix::of(&bridge.lab.model.first_asked(LAST)).check_begins(
        &Prefix::of(&bridge.lab.model.first_asked("as it was")),
        "the source",
    );
}

/// Side by side, what is not finished is left out.
#[test]
#[ignore = "installs the real adapter"]
fn a_branch_during_a_turn_leaves_out_what_is_not_finished() {
    let Some(bridge) = Bridge::start() else {
        return;
    };
    let source = bridge.conversation(Settings::default());
    bridge.prompted(source, "first words");
    let unfinished = "unfinished [[slow 40 0.1]]";
    let running = bridge.begin_prompt(source, unfinished, None);
    bridge.wait_written(source, unfinished);
    let fork = bridge.fork(source, false);
    assert_eq!(fork.via, Some(BranchedVia::Native));
    bridge.prompted(fork.conversation.id, "on the branch");
    assert_eq!(asked(&bridge, "on the branch").len(), 3);
    running.wait().expect("the source's turn");
}
