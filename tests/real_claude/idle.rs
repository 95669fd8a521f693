//! What the adapter does in an open session while no turn runs.

use bridge_protocol::link::Fidelity;
use std::fs;

use crate::reading::prompts;
use crate::real_claude::bridge::Bridge;
use crate::support::claude::Account;
use crate::support::entry::AgentEntry;
use crate::support::model_server::{model, user};
use crate::support::signs::Watched;

/// The adapter sends itself `/compact` in a long session shortly before the model's cache expires. That must
/// not count as a write by another process, and no turn may be missing afterwards.
#[test]
#[ignore = "installs the real adapter"]
fn a_session_that_the_adapter_compacts_while_it_is_idle_goes_on_whole() {
    let at_once = |agent: &mut AgentEntry| {
        let change = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        agent.env.extend([
            change("CLAUDE_AGENT_ACP_IDLE_COMPACT_DELAY_MS", "0"),
            change("CLAUDE_CODE_IDLE_COMPACT_MIN_TOKENS", "100000"),
        ]);
    };
    let bridge = or_skip!(Bridge::start_changed(Account::Key, at_once));
    let id = bridge.begun(&["first"]);
    bridge.lab.model.tell_tokens("second", 150_000);
    bridge.prompted(id, "second");
    let head = bridge.head(id);
    let transcript = bridge.lab.transcript(&head).expect("a transcript");
    Watched::below(&bridge.lab.transcript_root()).wait_for("compaction", || {
        let text = fs::read_to_string(&transcript).expect("the transcript");
        text.contains(r#""compact_boundary""#).then_some(())
    });

    bridge.prompted(id, "third");
    assert!(!bridge.lab.model.asked("third").contains(&user("first")));
    let saved = bridge.saved_until(id, "third");
    let own: Vec<String> = prompts(&saved)
        .into_iter()
        .filter(|prompt| !prompt.starts_with('/'))
        .map(str::to_owned)
        .collect();
    assert_eq!(own, ["first", "second", "third"]);
    assert_eq!(bridge.foreign_writers(id), 0);

    bridge.close(id);
    let turn = bridge.prompted(id, "fourth");
    let resumed = turn.resumed.expect("a resume");
    assert_eq!(
        (turn.upstream_id.as_str(), resumed.fidelity, resumed.missing_turns),
        (head.as_str(), Fidelity::Full, 0)
    );
    let fork = bridge.fork(id, false);
    assert_eq!(fork.fidelity, Fidelity::Full);
    let first = bridge.checkpoints(id)[0].clone();
    assert_eq!(first.prompt, "first");
    let edited = bridge.edit(id, bridge.checkpoints(id)[1].id.as_str(), "instead of the second");
    assert_eq!(edited.expect("conversation/edit").fidelity, Fidelity::Full);
    let expected = [user("first"), model("ok: first"), user("instead of the second")];
    assert_eq!(bridge.lab.model.asked("instead of the second"), expected);
}
