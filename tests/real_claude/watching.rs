//! Events about the real agent's transcripts while it writes them.

use bridge_protocol::event::Event;
use bridge_protocol::history::Checkpoint;
use serde_json::json;

use super::bridge::Bridge;
use crate::reading::prompts;
use crate::support::claude::Account;

const TOOL: &str = r#"[[tool Bash {"command":"echo hi","description":"greet"}]] [[text done]]"#;

/// Messages with text before a tool call, one after the other, as the other writer produces them.
const THERE: &str = r#"there [[tool Bash {"command":"echo 1","description":"count"}]] [[tool Bash {"command":"echo 2","description":"count"}]] [[text done]]"#;

#[test]
#[ignore = "installs the real adapter"]
fn each_turn_with_tools_is_saved_once_in_order_and_nobody_else_writes() {
    let mut bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.each_turn_is_saved_once((TOOL, "calling\n\ndone", "Bash"));
    assert_eq!(bridge.foreign_writers(id), 0);
}

#[test]
#[ignore = "installs the real adapter"]
fn compactions_clears_and_branches_are_no_foreign_writing() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.begun(&["first", "second", "/compact", "behind the compaction"]);
    let branch = bridge.fork(id, false).conversation.id;
    bridge.prompted(branch, "on the branch");
    bridge.prompted(id, "on the source");
    bridge.prompted(id, "/clear");
    bridge.prompted(id, "behind the clear");
    bridge.fork(id, true);
    bridge.prompted(id, "in place");
    bridge.close(id);
    bridge.prompted(id, "opened again");
    let saved = bridge.saved_until(id, "opened again");
    let of_branch = bridge.saved_until(branch, "on the branch");
    let mine = |saved: &[Checkpoint]| -> Vec<String> {
        let prompts = prompts(saved).into_iter();
        let commands = |prompt: &&str| !prompt.starts_with('/');
        prompts.filter(commands).map(str::to_owned).collect()
    };
    assert_eq!(
        mine(&saved),
        [
            "first",
            "second",
            "behind the compaction",
            "on the source",
            "behind the clear",
            "in place",
            "opened again"
        ]
    );
    assert_eq!(mine(&of_branch), ["on the branch"]);
    assert_eq!(
        (bridge.foreign_writers(id), bridge.foreign_writers(branch)),
        (0, 0)
    );
}

/// The bare adapter, run as by an editor, continues a session that is open in the daemon.
#[test]
#[ignore = "installs the real adapter"]
fn a_second_writer_is_noticed_and_its_turn_is_saved() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.begun(&["here"]);
    bridge.saved_until(id, "here");
    let head = bridge.head(id);
    let other = bridge.lab.adapter();
    let opening = json!({"sessionId": head, "cwd": bridge.lab.project(), "mcpServers": []});
    other.call("session/resume", opening).expect("session/resume");
    assert_eq!(
        bridge.foreign_writers(id),
        0,
        "opening the session was reported as a write"
    );
    other.prompt(&head, THERE).expect("session/prompt");
    let told = bridge.wait_event("the other writer", |event| match &event.event {
        Event::ForeignWriter { upstream_id } if event.conversation_id == id => Some(upstream_id.clone()),
        _ => None,
    });
    assert_eq!(told.as_str(), head);
    let saved = bridge.saved_until(id, THERE);
    assert_eq!(prompts(&saved), ["here", THERE]);
    assert_eq!(bridge.foreign_writers(id), 1);
    // Its messages begin with text, which is a record of its own before the call.
    assert_eq!(
        saved[1].reply, "calling\n\ncalling\n\ndone",
        "the turn was reported before its end"
    );
    let events = bridge.events(id);
    let kinds = events.iter().map(Event::kind);
    let order: Vec<&str> = kinds
        .filter(|kind| ["foreignWriter", "checkpointSaved"].contains(kind))
        .collect();
    assert_eq!(order, ["checkpointSaved", "foreignWriter", "checkpointSaved"]);
    other.stop();
}
