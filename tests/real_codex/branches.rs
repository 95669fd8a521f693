//! Branches at messages, branches of branches, and branches of compacted sessions.

use std::fs;

use bridge_protocol::conversation::BranchedVia;
use bridge_protocol::link::Fidelity;

use super::bridge::Bridge;
use super::transcripts::{WITH_TOOL, asked, echoed};
use crate::branching::asked_before;
use crate::support::model_server::user;

const LAST: &str = "at the end";

/// For Codex, a compaction on request is a turn of its own after the request. It belongs to the session that
/// made it.
#[test]
#[ignore = "installs the real adapter"]
fn d7_a_branch_has_the_compactions_of_its_own_session_and_no_others() {
    let bridge = or_skip!(Bridge::start());
    let id = bridge.begun(&["first words", WITH_TOOL]);
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
        let (asked, expected) = (asked_before(&bridge, text), asked_before(&bridge, same));
        // After a compaction of a fork, the first turn begins with the agent's own instructions, whose id
        // differs each time.
        match source == compacted {
            true => asked.of_any_session().check_is(&expected.of_any_session(), text),
            false => asked.check_is(&expected, text),
        }
    }
}

/// A branch at a message contains the whole turn, because Codex can branch only after turns. The source
/// session must not change.
#[test]
#[ignore = "installs the real adapter"]
fn d7_a_branch_at_a_message_has_its_whole_turn() {
    let mut bridge = or_skip!(Bridge::start());
    let id = bridge.begun(&["first words", WITH_TOOL, LAST]);
    let source = bridge.lab.transcript(&bridge.head(id)).expect("the rollout");
    let before = fs::read(&source).expect("the rollout");
    let whole = asked(&bridge, LAST);
    let history = bridge.history(id);
    let call = history.iter().find(|message| {
        let mut parts = message.content.iter();
        parts.any(|part| part.kind == "toolCall")
    });
    let call = call.expect("a call").id.clone();
    let second = bridge.checkpoints(id).swap_remove(1).id;
    let fork = bridge.fork_at(id, false, Some(call)).expect("conversation/fork");
    assert_eq!(
        (fork.fidelity, fork.via),
        (Fidelity::Full, Some(BranchedVia::Native))
    );
    assert_eq!(fork.link.expect("a link").from_checkpoint_id, Some(second));
    let branch = fork.conversation.id;
    bridge.prompted(branch, "behind it");
    let expected = [&whole[..whole.len() - 1], &[user("behind it")]].concat();
    assert_eq!(asked(&bridge, "behind it"), expected);
    assert_eq!(fs::read(&source).expect("the rollout"), before);

    // The branch can be resumed after a restart, when its source is closed.
    bridge.stop_daemon();
    bridge.start_daemon();
    let turn = bridge.prompted(branch, "again");
    assert_eq!(turn.resumed.expect("a resume").fidelity, Fidelity::Full);
    let expected = [&whole[..whole.len() - 1], &echoed("behind it"), &[user("again")]].concat();
    assert_eq!(asked(&bridge, "again"), expected);
}

/// A fork into a new conversation leaves out the unfinished turn.
#[test]
#[ignore = "installs the real adapter"]
fn a_branch_during_a_turn_leaves_out_what_is_not_finished() {
    let bridge = or_skip!(Bridge::start());
    let source = bridge.begun(&["first words"]);
    let unfinished = "unfinished [[slow 40 0.1]]";
    let running = bridge.begin_prompt(source, unfinished, None);
    bridge.wait_written(source, unfinished);
    let fork = bridge.fork(source, false);
    assert_eq!(fork.via, Some(BranchedVia::Native));
    bridge.prompted(fork.conversation.id, "on the branch");
    assert_eq!(asked(&bridge, "on the branch").len(), 3);
    running.wait().expect("the source's turn");
}
