//! Branches within a turn, which continue a part of another session's file: what they go through without that
//! session.

use std::fs;

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::{BranchedVia, RemainingReason, RemainingTranscript, Settings};
use bridge_protocol::link::{Fidelity, Via};

use super::bridge::Bridge;
use super::transcripts::{WITH_TOOL, asked, echoed};
use crate::support::model_server::{Said, user};
use crate::transfers::without_ids;

const ON_THE_BRANCH: &str = r#"[[tool exec_command {"cmd":"echo again"}]] [[text greeted again]]"#;

/// A conversation, a branch within its turn, and one within a turn of that; each with what a model would be
/// sent before its next prompt.
struct Branched {
    source: ConversationId,
    branch: (ConversationId, Vec<Said>),
    deeper: (ConversationId, Vec<Said>),
}

/// A branch behind the last result of a tool.
fn branch_within(bridge: &Bridge, id: ConversationId) -> ConversationId {
    let history = bridge.history(id);
    let result = history.iter().rfind(|message| {
        let mut parts = message.content.iter();
        parts.any(|part| part.kind == "toolResult")
    });
    let place = result.expect("a result").id.clone();
    let fork = bridge.fork_at(id, false, Some(place)).expect("conversation/fork");
    assert_eq!(
        (fork.fidelity, fork.via),
        (Fidelity::Full, Some(BranchedVia::Cut))
    );
    fork.conversation.id
}

fn branched(bridge: &Bridge) -> Branched {
    let source = bridge.conversation(Settings::default());
    for prompt in ["first words", WITH_TOOL, "not for the branch"] {
        bridge.prompted(source, prompt);
    }
    let branch = branch_within(bridge, source);
    bridge.prompted(branch, ON_THE_BRANCH);
    let deeper = branch_within(bridge, branch);
    let before = |id, text: &str| {
        bridge.prompted(id, text);
        let before = asked(bridge, text);
        [&before[..before.len() - 1], &echoed(text)].concat()
    };
    Branched {
        source,
        branch: (branch, before(branch, "behind the branch")),
        deeper: (deeper, before(deeper, "deeper")),
    }
}

/// Goes on and is brought back in this way; the model is sent all that it was sent before.
fn goes_on(bridge: &Bridge, (id, before): &mut (ConversationId, Vec<Said>), text: &str, via: Via) {
    let text = format!("{text} {id}");
    let head = bridge.head(*id);
    let turn = bridge.prompted(*id, &text);
    let resumed = turn.resumed.expect("it was brought back");
    assert_eq!(
        (resumed.via, resumed.fidelity, resumed.missing_turns),
        (via, Fidelity::Full, 0),
        "{text}: {resumed:?}"
    );
    assert_eq!(turn.upstream_id.as_str(), head);
    assert_eq!(asked(bridge, &text), [&before[..], &[user(&text)]].concat());
    assert_eq!(bridge.findings(&head), []);
    before.extend(echoed(&text));
}

/// Codex deletes by putting away, and that is told.
fn is_archived(told: &[RemainingTranscript]) {
    let reasons: Vec<_> = told.iter().map(|it| it.reason).collect();
    assert_eq!(reasons, [RemainingReason::Archived], "{told:?}");
}

fn lose_all(bridge: &mut Bridge) {
    bridge.stop_daemon();
    for folder in ["sessions", "archived_sessions"] {
        let folder = bridge.lab.transcript_root().join(folder);
        if folder.exists() {
            fs::remove_dir_all(folder).expect("deleted");
        }
    }
    bridge.start_daemon();
}

/// D14: from links, and from copies.
#[test]
#[ignore = "installs the real adapter"]
fn d14_a_branch_within_a_turn_comes_back_with_what_it_continues() {
    let Some(mut bridge) = Bridge::start() else {
        return;
    };
    let mut all = branched(&bridge);
    bridge.wait_kept(3);
    for round in ["from a link", "from a copy"] {
        lose_all(&mut bridge);
        goes_on(&bridge, &mut all.deeper, round, Via::Archive);
        // What the deeper one continues has come back with it.
        goes_on(&bridge, &mut all.branch, round, Via::Resume);
        bridge.prompted(all.source, &format!("{round} too"));
        for id in [all.source, all.branch.0, all.deeper.0] {
            bridge.close(id);
            bridge.keep(id);
        }
    }
}

/// Its source is deleted with its transcripts, and later all is.
#[test]
#[ignore = "installs the real adapter"]
fn d14_a_branch_within_a_turn_outlives_what_it_was_branched_from() {
    let Some(mut bridge) = Bridge::start() else {
        return;
    };
    let mut all = branched(&bridge);
    bridge.wait_kept(3);
    is_archived(&bridge.delete_with_transcripts(all.source));
    lose_all(&mut bridge);
    goes_on(&bridge, &mut all.deeper, "after all was deleted", Via::Archive);
    bridge.close(all.deeper.0);
    is_archived(&bridge.delete_with_transcripts(all.branch.0));
    bridge.stop_daemon();
    bridge.start_daemon();
    goes_on(&bridge, &mut all.deeper, "alone", Via::Resume);
}

/// Under the same ids, and under new ones beside them.
#[test]
#[ignore = "installs the real adapter"]
fn a_branch_within_a_turn_goes_on_whole_elsewhere() {
    let (Some(there), Some(here)) = (Bridge::start(), Bridge::start()) else {
        return;
    };
    let all = branched(&there);
    let folder = here.lab.scratch().join("Größe & more");
    fs::create_dir_all(&folder).expect("a folder");
    for new_ids in [false, true] {
        for (id, before) in [&all.deeper, &all.branch] {
            let told = there.history(*id);
            let bundle = there.bundle(*id);
            let imported = here
                .import(&bundle, &folder, new_ids)
                .expect("conversation/import");
            let history = here.history(imported.id);
            assert_eq!(without_ids(history), without_ids(told));
            let mut went = (imported.id, before.clone());
            goes_on(&here, &mut went, "here now", Via::Resume);
        }
    }
}
