//! A fork at a message with an id from the agent, as JetBrains' client requests it.

use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::real_claude::bridge::Bridge;
use crate::real_clients::ClientLab;
use crate::real_clients::editor::{Editor, command};
use crate::support::claude::Account;

#[test]
#[ignore = "installs the real adapter"]
fn a_session_of_claude_is_forked_at_a_message() {
    const FIRST: &str = "first words";
    const AFTER: &str = "[[text last words]]";
    let bridge = or_skip!(Bridge::start(Account::Key));
    let lab = or_skip!(ClientLab::of(&bridge));
    let (mut editor, _) = Editor::initialized(&mut command(&lab, &["--agent", "claude"]), json!({}));
    let session = editor.new_session(&lab);
    let first = editor.prompt(&session, &format!("[[text {FIRST}]]"));
    editor.prompt(&session, "[[text second words]]").result();
    let mut updates = first.updates().into_iter();
    let message = updates.find(|update| update["sessionUpdate"] == "agent_message_chunk");
    assert_eq!(first.said(), FIRST);
    let hash: String = Sha256::digest(FIRST)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let point = json!({
        "version": 1,
        "messageId": message.expect("the message")["messageId"],
        "messageFingerprint": format!("sha256:{hash}"),
        "messageOccurrence": 1,
    });
    let params = json!({
        "sessionId": session, "cwd": lab.project(), "mcpServers": [], "_meta": {"jetbrains": {"air": {"fork": point}}},
    });
    let fork = editor.call("session/fork", params).result()["sessionId"].clone();
    editor.prompt(fork.as_str().expect("an id"), AFTER).result();
    let asked = format!("{:?}", bridge.lab.model.asked(AFTER));
    assert!(
        asked.contains(FIRST) && !asked.contains("second words"),
        "{asked}"
    );
}
