//! A history that Codex compacts automatically in the middle of a turn, because the model reports that it has
//! become too long.

use std::fs;

use bridge_protocol::conversation::{BranchedVia, Settings};

use super::bridge::Bridge;
use crate::branching::{branches_behind_each, edits_of_each, goes_through};
use crate::support::model_server::{What, user};

/// Codex compacts after the first call, which it does not repeat after the summary.
const COMPACTED: &str =
    r#"[[tool exec_command {"cmd":"echo one"}]] [[tool exec_command {"cmd":"echo two"}]] [[text both]]"#;

const SUMMARY: &str = r#"it goes on: [[tool exec_command {"cmd":"echo two"}]] [[text both]]"#;

const BEHIND: &str =
    r#"behind it [[tool exec_command {"cmd":"echo three"}]] [[think a thought|thought over]]"#;

const PROMPTS: [&str; 4] = ["first words", "second words", COMPACTED, BEHIND];

const LAST: &str = "at the end";

#[test]
#[ignore = "installs the real adapter"]
fn d7_what_was_compacted_within_a_turn_is_so_on_each_branch_and_behind_each_edit() {
    let mut bridge = or_skip!(Bridge::start());
    let id = bridge.conversation(Settings::default());
    bridge.lab.model.tell_tokens(COMPACTED, 200_000);
    bridge.lab.model.tell_summary(SUMMARY);
    for prompt in PROMPTS {
        bridge.prompted(id, prompt);
    }
    bridge.prompted(id, LAST);
    // The compacted answers must be missing; the prompts and the summary must be there.
    let sent = bridge.lab.model.asked(LAST);
    assert!(sent.contains(&user("first words")), "{sent:#?}");
    let has = |text: &str| {
        sent.iter()
            .any(|said| matches!(&said.what, What::Text(said) if said.contains(text)))
    };
    assert!(!has("ok: first words") && has("thought over"), "{sent:#?}");
    let source = bridge.lab.transcript(&bridge.head(id)).expect("the source");
    let before = fs::read_to_string(&source).expect("the source");
    let compacted = before
        .lines()
        .position(|line| line.contains(r#""type":"compacted""#));
    let has_result = |result: &str| {
        before
            .lines()
            .position(|line| line.contains("function_call_output") && line.contains(result))
    };
    let results = [r"Output:\none\n", r"Output:\ntwo\n"].map(has_result);
    assert!(
        results[0] < compacted && compacted < results[1] && results[0].is_some(),
        "the history was not compacted within the turn: {results:?} {compacted:?}"
    );

    branches_behind_each(&bridge, id, &PROMPTS, LAST, BranchedVia::Native, || {});
    assert_eq!(fs::read_to_string(&source).expect("the source"), before);
    edits_of_each(&bridge, id, &PROMPTS, LAST, BranchedVia::Native, || {});
    goes_through(&mut bridge, id);
}
