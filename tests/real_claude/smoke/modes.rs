//! The mode of a session, which decides which tools run without a question.

use std::fs;

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::BranchedVia;
use bridge_protocol::link::Via;
use serde_json::Value;

use crate::branching::asked_before;
use crate::real_claude::bridge::Bridge;
use crate::support::claude::Account;

/// Without its settings file the agent starts in auto mode. A conversation in another mode must keep it, also
/// in the new session for an edit of its first prompt.
#[test]
#[ignore = "installs the real adapter"]
fn a_new_session_starts_in_auto_mode_and_a_conversation_keeps_its_own_mode() {
    let mut bridge = or_skip!(Bridge::start(Account::Key));
    let asking = bridge.begun(&["first", "second"]);
    assert_eq!(mode(&bridge, asking), "default");
    bridge.stop_daemon();
    fs::remove_file(bridge.lab.settings()).expect("the agent's settings");
    bridge.start_daemon();

    let auto = bridge.begun(&["in auto mode"]);
    assert_eq!(mode(&bridge, auto), "auto");

    let resumed = bridge.prompted(asking, "third").resumed.expect("a resume");
    assert_eq!(
        (resumed.via, mode(&bridge, asking)),
        (Via::Resume, "default".to_owned())
    );
    let checkpoints = bridge.checkpoints(asking);
    for at in [None, Some(checkpoints[0].id.as_str().to_owned())] {
        let fork = bridge.fork_at(asking, false, at).expect("conversation/fork");
        let branch = fork.conversation.id;
        let text = format!("{:?}", fork.via);
        bridge.prompted(branch, &text);
        assert_eq!(mode(&bridge, branch), "default", "{text}");
    }
    let edited = bridge.edit(asking, checkpoints[0].id.as_str(), "instead of the first");
    assert_eq!(edited.expect("conversation/edit").via, Some(BranchedVia::Fresh));
    assert_eq!(
        mode(&bridge, asking),
        "default",
        "after an edit of the first prompt"
    );
}

/// When a process opens a compacted session in auto mode, the agent sends a note about the mode once more,
/// after the prompt. It must be the same for a resume, a native fork and a cut.
#[test]
#[ignore = "installs the real adapter"]
fn forks_of_a_compacted_session_in_auto_mode_send_what_their_source_sends_when_it_is_resumed() {
    let mut bridge = or_skip!(Bridge::start(Account::Key));
    bridge.stop_daemon();
    fs::remove_file(bridge.lab.settings()).expect("the agent's settings");
    bridge.start_daemon();
    let id = bridge.begun(&["first", "second", "/compact", "after it"]);
    let place = bridge.checkpoints(id).pop().expect("a checkpoint").id;
    let fork = |at: Option<&str>| {
        let fork = bridge.fork_at(id, false, at.map(str::to_owned));
        fork.expect("conversation/fork").conversation.id
    };
    let branches = [
        (fork(None), "on the agent's fork"),
        (fork(Some(place.as_str())), "on our cut"),
    ];
    bridge.close(id);
    bridge.prompted(id, "on the source");
    assert_eq!(mode(&bridge, id), "auto");
    let expected = asked_before(&bridge, "on the source");
    for (branch, text) in branches {
        bridge.prompted(branch, text);
        asked_before(&bridge, text).check_is(&expected, text);
    }
}

/// The mode that the daemon shows; checks that the agent recorded the same mode with the newest prompt.
fn mode(bridge: &Bridge, id: ConversationId) -> String {
    let shown = bridge.get(id).settings.mode.expect("a mode");
    let transcript = bridge.lab.transcript(&bridge.head(id)).expect("a transcript");
    let text = fs::read_to_string(transcript).expect("the transcript");
    let records = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a record"));
    let mut modes = records.filter_map(|record| record["permissionMode"].as_str().map(str::to_owned));
    assert_eq!(modes.next_back().as_ref(), Some(&shown));
    shown
}
