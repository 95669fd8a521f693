//! A history that Claude Code compacts automatically in the middle of a turn, because the model reports that
//! it has become too long.

use std::fs;

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::{BranchedVia, Settings};

use super::bridge::Bridge;
use crate::branching::{branches_around_a_compaction, branches_behind_each, edits_of_each, goes_through};
use crate::support::claude::Account;
use crate::support::entry::AgentEntry;
use crate::support::model_server::{What, user};

/// The agent compacts after the first call, which it repeats after the summary.
const COMPACTED: &str = r#"[[tool Bash {"command":"echo one","description":"d"}]] [[tool Bash {"command":"echo two","description":"d"}]] [[text both]]"#;

const BEHIND: &str =
    r#"behind it [[tool Bash {"command":"echo three","description":"d"}]] [[think a thought|thought over]]"#;

const PROMPTS: [&str; 4] = ["first words", "second words", COMPACTED, BEHIND];

const LAST: &str = "at the end";

/// A conversation that Claude Code has compacted within its third turn.
fn compacted() -> Option<(Bridge, ConversationId)> {
    let window = |agent: &mut AgentEntry| {
        let tokens = ("CLAUDE_CODE_AUTO_COMPACT_WINDOW".to_owned(), "100000".to_owned());
        agent.env.push(tokens);
    };
    let bridge = Bridge::start_changed(Account::Key, window)?;
    let id = bridge.conversation(Settings::default());
    bridge.lab.model.tell_tokens(COMPACTED, 195_000);
    bridge.lab.model.tell_summary(&format!("it goes on: {COMPACTED}"));
    for prompt in PROMPTS {
        bridge.prompted(id, prompt);
    }
    Some((bridge, id))
}

#[test]
#[ignore = "installs the real adapter"]
fn d7_what_was_compacted_within_a_turn_is_so_on_each_branch_and_behind_each_edit() {
    let Some((mut bridge, id)) = compacted() else {
        return;
    };
    bridge.prompted(id, LAST);
    let source = bridge.lab.transcript(&bridge.head(id)).expect("the source");
    let before = fs::read_to_string(&source).expect("the source");
    let line = |holds: &[&str]| {
        before
            .lines()
            .position(|line| holds.iter().all(|words| line.contains(words)))
    };
    let compacted = line(&[r#""compact_boundary""#]);
    assert!(compacted.is_some(), "the history was not compacted");
    let results = ["one", "two"].map(|result| line(&["tool_result", &format!(r#""content":"{result}""#)]));
    assert!(
        results[0] < compacted && compacted < results[1] && results[0].is_some(),
        "the history was not compacted within the turn: {results:?} {compacted:?}"
    );
    let sent = bridge.lab.model.asked(LAST);
    let has = |text: &str| {
        sent.iter()
            .any(|said| matches!(&said.what, What::Text(said) if said.contains(text)))
    };
    assert!(
        !sent.contains(&user("first words")) && has("thought over"),
        "{sent:#?}"
    );

    branches_behind_each(&bridge, id, &PROMPTS, LAST, BranchedVia::Cut, || {});
    assert_eq!(fs::read_to_string(&source).expect("the source"), before);
    edits_of_each(&bridge, id, &PROMPTS, LAST, BranchedVia::Cut, || {});
    goes_through(&mut bridge, id);

    // The history before the compaction is still too long, and would be compacted again.
    bridge.stop_daemon();
    let never = ("DISABLE_AUTO_COMPACT".to_owned(), "1".to_owned());
    bridge.reconfigure(|agent| agent.env.push(never));
    bridge.start_daemon();
    branches_around_a_compaction(&bridge, id, PROMPTS[0], ["one", "two"], BEHIND);
}
