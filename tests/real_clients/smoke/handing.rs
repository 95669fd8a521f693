//! A session of Codex that an editor and an app use alternately.

use serde_json::json;

use crate::processes;
use crate::real_clients::ClientLab;
use crate::real_clients::editor::{Editor, command, eventually};
use crate::real_codex::bridge::Bridge;
use crate::support::model_server::user;

/// Codex releases a session only when its process ends, so each hand-over starts another process, which reads
/// the history.
#[test]
#[ignore = "installs the real adapter"]
fn a_session_of_codex_is_handed_to_an_app_and_back() {
    let bridge = or_skip!(Bridge::start());
    let lab = or_skip!(ClientLab::of(&bridge));
    let start = || Editor::initialized(&mut command(&lab, &["--agent", "codex"]), json!({})).0;
    let prompts = [
        "in the editor",
        "beside it",
        "in it again",
        "in the app",
        "handed back",
    ];
    let [first, beside, again, alone, last] = prompts;
    let mut editor = start();
    let session = editor.new_session(&lab);
    let id = session.parse().expect("an id");
    editor.prompt(&session, first).result();
    bridge.prompted(id, beside);
    editor.until_said(beside);
    editor.prompt(&session, again).result();
    let of_editor = bridge.adapter();
    // Waits until only the adapter and its server run. Codex sometimes runs a program after a turn, and while
    // it does, the session does not change its process.
    let at_rest = || eventually(|| bridge.agent_processes().len() == 2);
    at_rest();
    assert!(editor.end().0.success());
    bridge.prompted(id, alone);
    processes::assert_gone(&[of_editor]);
    let of_app = bridge.adapter();
    let mut editor = start();
    at_rest();
    let loaded = editor.on("session/load", &session, &lab);
    assert_eq!(loaded.texts("user_message_chunk"), prompts[..4]);
    editor.prompt(&session, last).result();
    processes::assert_gone(&[of_app]);
    let asked = bridge.lab.model.asked(last);
    let own = asked
        .iter()
        .filter(|said| prompts.iter().any(|prompt| **said == user(prompt)));
    assert_eq!(own.cloned().collect::<Vec<_>>(), prompts.map(user), "{asked:?}");
}
