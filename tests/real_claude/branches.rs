//! Forks: in place, into a new conversation, and while a turn runs.

use std::fs;

use bridge_protocol::conversation::Settings;
use bridge_protocol::link::{Fidelity, LinkReason, Relation};

use super::bridge::Bridge;
use super::carrying::{LONG, PARALLEL, with_names};
use super::sdk::Told;
use crate::support::claude::Account;
use crate::support::model_server::{Said, What, model, user};

/// An echoed turn in the form in which the model receives it later.
fn echoed(text: &str) -> [Said; 2] {
    [user(text), model(&format!("ok: {text}"))]
}

#[test]
#[ignore = "installs the real adapter"]
fn a_branch_in_place_goes_on_and_leaves_its_source_whole() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.begun(&["first"]);
    let source = bridge.head(id);

    let fork = bridge.fork(id, true);
    assert_eq!((fork.conversation.id, fork.fidelity), (id, Fidelity::Full));
    let link = fork.link.expect("a link");
    assert_eq!(
        (
            link.reason,
            link.relation,
            link.from_upstream_id
                .as_ref()
                .map(bridge_protocol::UpstreamId::as_str)
        ),
        (LinkReason::Forked, Relation::Carries, Some(source.as_str()))
    );
    assert_eq!(bridge.head(id), link.upstream_id.as_str());
    let before = fs::read(bridge.lab.transcript(&source).expect("the source")).expect("the source");

    let turn = bridge.prompted(id, "on the branch");
    assert_eq!(turn.upstream_id, link.upstream_id);
    let expected = [&echoed("first")[..], &[user("on the branch")]].concat();
    assert_eq!(bridge.lab.model.asked("on the branch"), expected);
    let after = fs::read(bridge.lab.transcript(&source).expect("the source")).expect("the source");
    assert!(after.starts_with(&before), "the source was changed");
    assert!(!String::from_utf8_lossy(&after).contains("on the branch"));

    // The same after the branch was closed and resumed.
    bridge.close(id);
    bridge.prompted(id, "resumed");
    let expected = [&echoed("first")[..], &echoed("on the branch"), &[user("resumed")]].concat();
    assert_eq!(bridge.lab.model.asked("resumed"), expected);
    let links: Vec<String> = bridge
        .chain(id)
        .iter()
        .map(|link| link.upstream_id.as_str().to_owned())
        .collect();
    assert_eq!(links, [source, link.upstream_id.as_str().to_owned()]);
}

#[test]
#[ignore = "installs the real adapter"]
fn a_branch_side_by_side_and_its_source_both_go_on() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let source = bridge.begun(&["first"]);
    let fork = bridge.fork(source, false);
    let branch = fork.conversation.id;
    assert_ne!(branch, source);
    let parent = fork.conversation.parent.expect("a parent");
    assert_eq!(parent.conversation_id, source);
    assert!(parent.checkpoint_id.is_some());

    bridge.prompted(branch, "on the branch");
    bridge.prompted(source, "on the source");
    let after_first = |text: &str| [&echoed("first")[..], &[user(text)]].concat();
    assert_eq!(
        bridge.lab.model.asked("on the branch"),
        after_first("on the branch")
    );
    assert_eq!(
        bridge.lab.model.asked("on the source"),
        after_first("on the source")
    );

    // Each is an independent session, also for another agent process.
    for (id, own) in [(branch, "on the branch"), (source, "on the source")] {
        bridge.close(id);
        let text = format!("again {own}");
        bridge.prompted(id, &text);
        let expected = [&echoed("first")[..], &echoed(own), &[user(&text)]].concat();
        assert_eq!(bridge.lab.model.asked(&text), expected);
    }
}

/// The places include those within a turn with tools. No branch may have a call without its result, or
/// anything that the agent has to fill in.
#[test]
#[ignore = "installs the real adapter"]
fn d7_a_branch_at_a_message_has_no_call_without_its_result() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.begun(&["first", PARALLEL, "at the end"]);
    let mut whole = bridge.lab.model.asked("at the end");
    whole.push(model("ok: at the end"));
    let mut ends = Vec::new();
    for (index, message) in bridge.history(id).iter().enumerate() {
        let fork = bridge.fork_at(id, false, Some(message.id.clone()));
        let fork = fork.expect("conversation/fork");
        assert_eq!(fork.fidelity, Fidelity::Full);
        let text = format!("behind {index}");
        bridge.prompted(fork.conversation.id, &text);
        let mut said = bridge.lab.model.asked(&text);
        assert_eq!(said.pop(), Some(user(&text)));
        // The agent inserts this reply after a prompt that has none.
        said.pop_if(|said| *said == model("No response requested."));
        assert_eq!(said[..], whole[..said.len()], "{index}");
        ends.push(said.len());
        let of = |is_it: fn(&What) -> bool| said.iter().filter(|said| is_it(&said.what)).count();
        assert_eq!(
            of(|what| matches!(what, What::ToolUse(_))),
            of(|what| matches!(what, What::ToolResult(_))),
            "{index}: {said:#?}"
        );
    }
    assert!(ends.is_sorted(), "{ends:?}");
    assert_eq!((ends.first(), ends.last()), (Some(&1), Some(&whole.len())));
}

/// The file with a long result and the transcript of a subagent are copied too.
#[test]
#[ignore = "installs the real adapter"]
fn a_branch_at_a_checkpoint_stands_when_its_source_is_deleted() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.conversation(Settings::default());
    let agent = r#"[[tool Agent {"description":"d","prompt":"words for the subagent","subagent_type":"general-purpose","run_in_background":false}]] [[text asked]]"#;
    for prompt in ["first", LONG, agent] {
        bridge.prompt(id, prompt).expect("a turn");
    }
    let source = bridge.head(id);
    let place = bridge.checkpoints(id).pop().expect("a checkpoint").id;
    bridge.prompted(id, "on the source");
    let whole = with_names(bridge.lab.model.asked("on the source"));
    let fork = bridge.fork_at(id, false, Some(place.as_str().to_owned()));
    let branch = fork.expect("conversation/fork").conversation.id;
    bridge.close(id);
    let path = bridge.lab.transcript(&source).expect("the source");
    let beside = path.with_extension("");
    for folder in ["tool-results", "subagents"] {
        assert!(beside.join(folder).is_dir(), "{folder}");
    }
    let told = Told::of(&bridge.lab);
    let subagents = told.subagents(&source);
    assert_eq!(
        (subagents.len(), told.subagents(&bridge.head(branch))),
        (1, subagents)
    );
    fs::remove_file(&path).expect("the source");
    fs::remove_dir_all(&beside).expect("its files");

    bridge.prompted(branch, "on the branch");
    let kept = whole.iter().take_while(|said| **said != user("on the source"));
    let expected: Vec<Said> = kept.cloned().chain([user("on the branch")]).collect();
    assert_eq!(with_names(bridge.lab.model.asked("on the branch")), expected);
    assert_eq!(bridge.findings(&bridge.head(branch)), []);
}

#[test]
#[ignore = "installs the real adapter"]
fn a_branch_that_was_never_prompted_outlives_the_daemon() {
    let mut bridge = or_skip!(Bridge::start(Account::Key));
    let source = bridge.begun(&["first"]);
    let branch = bridge.fork(source, false).conversation.id;
    bridge.stop_daemon();
    bridge.start_daemon();
    let turn = bridge.prompted(branch, "on the branch");
    assert_eq!(turn.resumed.expect("a resume").fidelity, Fidelity::Full);
    let expected = [&echoed("first")[..], &[user("on the branch")]].concat();
    assert_eq!(bridge.lab.model.asked("on the branch"), expected);
}

#[test]
#[ignore = "installs the real adapter"]
fn a_branch_during_a_turn_leaves_out_what_is_not_finished() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let source = bridge.begun(&["first"]);
    let unfinished = "unfinished [[slow 40 0.1]]";
    let running = bridge.begin_prompt(source, unfinished, None);
    bridge.wait_written(source, unfinished);
    let branch = bridge.fork(source, false).conversation.id;
    bridge.prompted(branch, "on the branch");
    let expected = [&echoed("first")[..], &[user("on the branch")]].concat();
    assert_eq!(bridge.lab.model.asked("on the branch"), expected);

    running.wait().expect("the source's turn");
    bridge.prompted(source, "on the source");
    let said = bridge.lab.model.asked("on the source");
    assert_eq!(said[..3], [&echoed("first")[..], &[user(unfinished)]].concat());
    assert_eq!(said.last(), Some(&user("on the source")));
}

/// The agent copies the file of a forked session at once, so the fork can be forked again before its first
/// prompt.
#[test]
#[ignore = "installs the real adapter"]
fn a_branch_of_a_branch_that_was_never_prompted_has_the_whole_history() {
    let mut bridge = or_skip!(Bridge::start(Account::Key));
    let source = bridge.begun(&["first"]);
    let branch = bridge.fork(source, false).conversation.id;
    // One fork is made while the branch is open in the agent, the others after a restart, when nothing is
    // open.
    let early = bridge.fork(branch, false);
    bridge.stop_daemon();
    bridge.start_daemon();
    let late = bridge.fork(branch, false);
    let in_place = bridge.fork(branch, true);
    for fork in [&early, &late, &in_place] {
        assert_eq!(fork.fidelity, Fidelity::Full);
    }
    for fork in [&early, &late] {
        let parent = fork.conversation.parent.as_ref().expect("a parent");
        assert_eq!(parent.conversation_id, branch);
        assert!(parent.checkpoint_id.is_some());
    }
    for (id, own) in [
        (branch, "on the branch"),
        (early.conversation.id, "on the early one"),
        (late.conversation.id, "on the late one"),
        (source, "on the source"),
    ] {
        bridge.prompted(id, own);
        let expected = [&echoed("first")[..], &[user(own)]].concat();
        assert_eq!(bridge.lab.model.asked(own), expected);
    }
}
