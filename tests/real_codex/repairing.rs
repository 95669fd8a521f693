//! Repaired copies of rollouts, and what the model receives when the agent resumes them.

use std::fs;

use bridge_protocol::check::FindingKind;
use bridge_protocol::conversation::BranchedVia;
use bridge_protocol::link::{Fidelity, LinkReason};

use super::bridge::Bridge;
use crate::support::model_server::{model, user};

/// The record of a reply in the middle is torn, and so is the last line. The session is open, and the repair
/// closes it first.
#[test]
#[ignore = "installs the real adapter"]
fn the_model_is_sent_what_is_left_of_a_torn_rollout() {
    let bridge = or_skip!(Bridge::start());
    let id = bridge.begun(&["number one", "number two"]);
    let old = bridge.head(id);
    let path = bridge.lab.transcript(&old).expect("a rollout");
    let text = fs::read_to_string(&path).expect("a rollout");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let is_reply =
        |line: &String| line.contains(r#""type":"response_item""#) && line.contains("ok: number one");
    let reply = lines.iter().position(is_reply).expect("the reply's record");
    lines[reply].truncate(40);
    let torn = lines.join("\n") + "\n{\"timestamp\":\"20";
    fs::write(&path, &torn).expect("a rollout");
    let answer = bridge.repair(id);
    let kinds: Vec<FindingKind> = answer.findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [FindingKind::GarbageLine, FindingKind::TornLine]);
    let new = answer.repaired.expect("a copy");
    let link = bridge.chain(id).pop().expect("the head");
    assert_eq!((&link.upstream_id, link.reason), (&new, LinkReason::Rebuilt));
    let resumed = bridge.prompted(id, "go on").resumed.expect("a resume");
    assert_eq!(
        (resumed.upstream_id, resumed.fidelity),
        (new.clone(), Fidelity::Full)
    );
    let expected = [
        user("number one"),
        user("number two"),
        model("ok: number two"),
        user("go on"),
    ];
    assert_eq!(bridge.lab.model.asked("go on"), expected);
    assert_eq!(fs::read_to_string(&path).expect("a rollout"), torn);
    bridge.close(id);
    assert_eq!(bridge.found(new.as_str()), []);
    bridge.prompted(id, "and on");
    assert_eq!(bridge.head(id), new.as_str());
}

/// Codex has not opened the copy yet and knows none of its turns.
#[test]
#[ignore = "installs the real adapter"]
fn a_repaired_copy_is_branched_and_edited_before_its_first_prompt() {
    let bridge = or_skip!(Bridge::start());
    for is_edit in [false, true] {
        let id = bridge.begun(&["number one", "number two"]);
        bridge.close(id);
        let path = bridge.lab.transcript(&bridge.head(id)).expect("a rollout");
        let text = fs::read_to_string(&path).expect("a rollout");
        fs::write(&path, text + "{\"timestamp\":\"20").expect("a rollout");
        let answer = bridge.repair(id);
        assert!(answer.repaired.is_some());
        let places = bridge.checkpoints(id);
        let text = format!("instead, by an edit: {is_edit}");
        let how = if is_edit {
            let edited = bridge.edit(id, places[1].id.as_str(), &text);
            let edited = edited.expect("conversation/edit");
            (edited.fidelity, edited.via)
        } else {
            let at = Some(places[0].id.as_str().to_owned());
            let fork = bridge.fork_at(id, false, at).expect("conversation/fork");
            bridge.prompted(fork.conversation.id, &text);
            (fork.fidelity, fork.via)
        };
        assert_eq!(how, (Fidelity::Full, Some(BranchedVia::Native)));
        let expected = [user("number one"), model("ok: number one"), user(&text)];
        assert_eq!(bridge.lab.model.asked(&text), expected);
    }
}
