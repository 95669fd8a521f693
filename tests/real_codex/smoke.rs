//! The tests that run at every check: each promise once. Modules named `smoke` in other folders belong to
//! them; all other tests of real adapters run on demand.

use std::fs;

use bridge_protocol::conversation::BranchedVia;
use bridge_protocol::link::Fidelity;

use crate::branching::{asked_before, survives_everything};
use crate::real_codex::bridge::Bridge;

const PARALLEL: &str = r#"[[tool exec_command {"cmd":"echo one"} ;; exec_command {"cmd":"echo two"}]] [[think a long thought|compared]]"#;

#[test]
#[ignore = "installs the real adapter"]
fn a_conversation_survives_branches_edits_restarts_a_move_and_a_deletion() {
    let mut bridge = or_skip!(Bridge::start());
    survives_everything(&mut bridge, &["first words", PARALLEL], BranchedVia::Native);
}

/// A fork of a compacted session, made live or after a restart, must send the model what the source sends
/// with its next prompt.
#[test]
#[ignore = "installs the real adapter"]
fn d7_a_fork_of_a_compacted_session_sends_what_its_source_sends_next() {
    let mut bridge = or_skip!(Bridge::start());
    let id = bridge.begun(&["first words", PARALLEL, "/compact", "after it"]);
    let source = bridge.lab.transcript(&bridge.head(id)).expect("the source");
    let text = fs::read_to_string(source).expect("the source");
    assert!(text.contains(r#""type":"compacted""#));
    let fork = |bridge: &Bridge| {
        let fork = bridge.fork(id, false);
        assert_eq!(
            (fork.fidelity, fork.via),
            (Fidelity::Full, Some(BranchedVia::Native))
        );
        fork.conversation.id
    };
    let live = fork(&bridge);
    bridge.stop_daemon();
    bridge.start_daemon();
    let cold = fork(&bridge);
    bridge.prompted(id, "on the source");
    let expected = asked_before(&bridge, "on the source");
    for (branch, text) in [(live, "on a fork"), (cold, "on a later one")] {
        bridge.prompted(branch, text);
        asked_before(&bridge, text).check_is(&expected, text);
    }
}
