//! Branches at a place, and edits.

use std::fs;

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::{BranchedVia, Settings};
use bridge_protocol::error::ErrorKind;
use bridge_protocol::link::{Fidelity, Via};

use crate::bridge::Bridge;
use crate::going_back::{asked_before, branches_behind_each, edits_of_each, goes_on, goes_through};
use crate::transcripts::{BROKEN_OFF, WITH_TOOL, asked};

/// The prompts of [`whole`], but for what was asked of the agent itself, and the last.
const PROMPTS: [&str; 5] = ["first words", WITH_TOOL, "third", BROKEN_OFF, "fifth"];

const LAST: &str = "at the end";

/// Has a conversation with a tool, a compaction and a turn that was broken off.
fn whole(bridge: &Bridge) -> ConversationId {
    let id = bridge.conversation(Settings::default());
    for prompt in ["first words", WITH_TOOL, "/compact", "third"] {
        bridge.prompted(id, prompt);
    }
    let running = bridge.begin_prompt(id, BROKEN_OFF, None);
    bridge.wait_written(id, BROKEN_OFF);
    bridge.lab.model.wait_for(BROKEN_OFF);
    assert!(bridge.cancel(id));
    running.wait().expect("a turn");
    bridge.prompted(id, "fifth");
    bridge.prompted(id, LAST);
    id
}

/// One after the other of one conversation, each with all that was sent before it.
#[test]
#[ignore = "installs the real adapter"]
fn whatever_a_conversation_goes_through_the_model_is_sent_the_same_beginning() {
    let Some(mut bridge) = Bridge::start() else {
        return;
    };
    let id = whole(&bridge);
    let last = goes_through(&mut bridge, id);
    bridge.close(id);
    bridge.keep(id);
    let path = bridge.lab.transcript(&bridge.head(id)).expect("the rollout");
    let kept = fs::read(&path).expect("the rollout");
    fs::remove_file(&path).expect("removed");
    goes_on(&bridge, id, [last, "restored"], Via::Archive);
    assert!(fs::read(&path).expect("it is back").starts_with(&kept));
}

/// Each by a fork that is told the place; the turn that was broken off too.
#[test]
#[ignore = "installs the real adapter"]
fn d7_branches_and_edits_have_exactly_what_stands_before_their_place() {
    let Some(mut bridge) = Bridge::start() else {
        return;
    };
    let id = whole(&bridge);
    branches_behind_each(&bridge, id, &PROMPTS, LAST, BranchedVia::Native);
    edits_of_each(&bridge, id, &PROMPTS, LAST, BranchedVia::Native);

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
    assert_eq!(asked(&bridge, "deeper").len(), 3);
    asked_before(&bridge, "deeper").check_is(&asked_before(&bridge, WITH_TOOL), "deeper");
}

/// A compaction is a turn of Codex' own behind the one that somebody asked for. It is of the session that made it.
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
