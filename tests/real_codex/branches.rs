//! Branches at a place, and edits.

use bridge_protocol::conversation::{BranchedVia, Settings};
use bridge_protocol::error::ErrorKind;

use crate::bridge::Bridge;
use crate::going_back::{branches_behind_each, edits_of_each};
use crate::transcripts::{WITH_TOOL, asked};

/// Each by a fork that is told the place; the turn that was broken off too.
#[test]
#[ignore = "installs the real adapter"]
fn d7_branches_and_edits_have_exactly_what_stands_before_their_place() {
    let Some(mut bridge) = Bridge::start() else {
        return;
    };
    let id = bridge.conversation(Settings::default());
    let prompts = ["first words", WITH_TOOL, "third"];
    for prompt in prompts {
        bridge.prompted(id, prompt);
    }
    bridge.prompted(id, "at the end");
    branches_behind_each(&bridge, id, &prompts, "at the end", BranchedVia::Native, asked);
    edits_of_each(&bridge, id, &prompts, "at the end", BranchedVia::Native, asked);

    // A branch of a branch, at a place that stands in the first one's file, after a restart.
    let first = bridge.checkpoints(id)[0].id.clone();
    let at = Some(bridge.checkpoints(id)[1].id.as_str().to_owned());
    let branch = bridge.fork_at(id, false, at).expect("a branch").conversation.id;
    bridge.prompted(branch, "on the branch");
    bridge.stop_daemon();
    bridge.start_daemon();
    assert_eq!(bridge.checkpoints(branch)[0].id, first);
    let deeper = bridge.fork_at(branch, false, Some(first.as_str().to_owned()));
    let deeper = deeper.expect("a branch of a branch").conversation.id;
    bridge.prompted(deeper, "deeper");
    let whole = asked(&bridge, "at the end");
    assert_eq!(asked(&bridge, "deeper")[..2], whole[..2]);
    assert_eq!(asked(&bridge, "deeper").len(), 3);
}

#[test]
#[ignore = "installs the real adapter"]
fn within_a_turn_there_is_no_branch_and_the_refusal_says_where_there_is() {
    let Some(bridge) = Bridge::start() else {
        return;
    };
    let id = bridge.conversation(Settings::default());
    bridge.prompted(id, "first words");
    bridge.prompted(id, WITH_TOOL);
    let history = bridge.history(id);
    let call = history.iter().find(|message| {
        let mut parts = message.content.iter();
        parts.any(|part| part.kind == "toolCall")
    });
    let call = call.expect("a call").id.clone();
    let error = bridge.fork_at(id, false, Some(call)).expect_err("no branch");
    assert_eq!(error.kind, ErrorKind::Unsupported);
    let last = bridge.checkpoints(id)[1].id.clone();
    assert!(error.message.contains(last.as_str()), "{}", error.message);
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
