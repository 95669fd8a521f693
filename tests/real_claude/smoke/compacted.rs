//! Forks of a session that was compacted twice: automatically within a turn, and on request.

use std::fs;

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::{BranchedVia, Settings};
use bridge_protocol::link::{Fidelity, Via};
use serde_json::Value;

use crate::branching::{asked_before, goes_on};
use crate::real_claude::bridge::Bridge;
use crate::support::claude::Account;
use crate::support::entry::AgentEntry;

/// The agent compacts the history after the first call.
const COMPACTED: &str = r#"[[tool Bash {"command":"echo one","description":"d"}]] [[tool Bash {"command":"echo two","description":"d"}]] [[text both]]"#;

const AFTER: &str = r#"after both [[tool Bash {"command":"echo three","description":"d"}]] [[text counted]]"#;

/// Both the agent's fork and the daemon's cut rename the records that each compaction has kept. So every fork
/// must send the model what the source sends with its next prompt, in the same agent process and in another.
#[test]
#[ignore = "installs the real adapter"]
fn d7_every_fork_of_a_compacted_session_sends_what_its_source_sends_next() {
    let window = |agent: &mut AgentEntry| {
        let tokens = ("CLAUDE_CODE_AUTO_COMPACT_WINDOW".to_owned(), "100000".to_owned());
        agent.env.push(tokens);
    };
    let mut bridge = or_skip!(Bridge::start_changed(Account::Key, window));
    let id = bridge.conversation(Settings::default());
    bridge.lab.model.tell_tokens(COMPACTED, 195_000);
    bridge.lab.model.tell_summary(&format!("it goes on: {COMPACTED}"));
    for prompt in ["first words", COMPACTED, "/compact", AFTER] {
        bridge.prompted(id, prompt);
    }

    let native = forked(&bridge, id, None, BranchedVia::Native);
    let place = bridge.checkpoints(id).pop().expect("a checkpoint").id;
    let cut = forked(&bridge, id, Some(place.as_str()), BranchedVia::Cut);
    // After the restart no session is open.
    bridge.stop_daemon();
    bridge.start_daemon();
    let cold = forked(&bridge, id, None, BranchedVia::Native);
    let of_fork = forked(&bridge, native, None, BranchedVia::Native);

    let branches = [
        (native, "on the agent's fork"),
        (cut, "on our cut"),
        (cold, "on a fork by a new process"),
        (of_fork, "on a fork of a fork"),
    ];
    bridge.prompted(id, "on the source");
    let expected = asked_before(&bridge, "on the source");
    for (branch, text) in branches {
        check_renamed(&bridge, branch);
        bridge.prompted(branch, text);
        asked_before(&bridge, text).check_is(&expected, text);
    }
    bridge.stop_daemon();
    bridge.start_daemon();
    for (index, (branch, text)) in branches.into_iter().enumerate() {
        goes_on(&bridge, branch, [text, &format!("resumed {index}")], Via::Resume);
    }
}

fn forked(bridge: &Bridge, id: ConversationId, at: Option<&str>, via: BranchedVia) -> ConversationId {
    let fork = bridge.fork_at(id, false, at.map(str::to_owned));
    let fork = fork.expect("conversation/fork");
    assert_eq!((fork.fidelity, fork.via), (Fidelity::Full, Some(via)));
    fork.conversation.id
}

/// Checks that the records that each compaction has kept are in the fork's own transcript.
fn check_renamed(bridge: &Bridge, branch: ConversationId) {
    let transcript = bridge.lab.transcript(&bridge.head(branch)).expect("the fork");
    let text = fs::read_to_string(transcript).expect("the fork");
    let records: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a record"))
        .collect();
    let compactions: Vec<&Value> = records
        .iter()
        .filter(|record| record["subtype"] == "compact_boundary")
        .collect();
    assert_eq!(compactions.len(), 2);
    for compaction in compactions {
        let kept = &compaction["compactMetadata"]["preservedMessages"];
        let ids = kept["uuids"].as_array().expect("the kept messages");
        assert!(!ids.is_empty());
        for id in ids.iter().chain([&kept["anchorUuid"]]) {
            assert!(records.iter().any(|record| record["uuid"] == *id), "{id}");
        }
    }
}
