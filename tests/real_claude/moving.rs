//! Conversations that move to another folder. The model must receive the same as without the move, and the
//! agent's own list must show the session in the new folder.

use bridge_protocol::link::{Fidelity, Via};
use bridge_protocol::method::MoveTree;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

use super::bridge::Bridge;
use super::carrying::PARALLEL;
use super::sdk::Told;
use crate::reading::said;
use crate::support::claude::Account;
use crate::support::model_server::{model, user};
use crate::support::signs::Watched;

const LONG: &str = r#"[[tool Bash {"command":"seq 1 20000","description":"count"}]] [[text counted]]"#;

/// The sessions that the agent lists for a folder, as its picker shows them.
fn listed_in(bridge: &Bridge, folder: &Path) -> Vec<(String, String)> {
    let adapter = bridge.lab.adapter();
    let listed = adapter
        .call("session/list", json!({"cwd": folder}))
        .expect("session/list");
    adapter.stop();
    let text = |session: &Value, name: &str| session[name].as_str().expect("a text").to_owned();
    let sessions = listed["sessions"].as_array().expect("a list").iter();
    sessions
        .map(|session| (text(session, "sessionId"), text(session, "cwd")))
        .collect()
}

/// D1: the session is open and has a long tool result in a separate file; the new folder has a long,
/// non-ASCII name.
#[test]
#[ignore = "installs the real adapter"]
fn a_conversation_goes_on_whole_in_another_folder() {
    let mut bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.begun(&["first words", PARALLEL, LONG]);
    let head = bridge.head(id);
    let (old, name) = (bridge.lab.project(), "é".repeat(120));
    let new = bridge.lab.scratch().join(format!("Größe & more/{name}"));
    fs::create_dir_all(&new).expect("a folder");
    let new = new.canonicalize().expect("a folder");
    let told = bridge.history(id);
    let cwd = |folder: &Path| folder.to_str().expect("a path in UTF-8").to_owned();
    assert_eq!(listed_in(&bridge, &old), [(head.clone(), cwd(&old))]);
    assert_eq!(listed_in(&bridge, &new), []);

    let moved = bridge.move_to(id, &new).expect("conversation/move");
    assert!(moved.moved >= 2, "{moved:?}");
    assert_eq!(listed_in(&bridge, &new), [(head.clone(), cwd(&new))]);
    assert_eq!(listed_in(&bridge, &old), []);
    assert_eq!(bridge.lab.transcripts().len(), 1);
    assert_eq!(Told::of(&bridge.lab).session(&head)["cwd"], cwd(&new));
    assert_eq!(bridge.findings(&head), []);
    assert_eq!(bridge.history(id), told);

    let turn = bridge.prompted(id, "there now");
    let resumed = turn.resumed.expect("a resume");
    assert_eq!(
        (resumed.fidelity, turn.upstream_id.as_str()),
        (Fidelity::Full, head.as_str())
    );
    // The text must be identical, or the model's cache would not apply.
    let before = said(&told);
    assert_eq!(
        bridge.lab.model.asked("there now"),
        [&before[..], &[user("there now")]].concat()
    );
    assert_eq!(bridge.lab.transcripts().len(), 1);

    // Moves back after a restart, with the turns made in the new folder.
    bridge.stop_daemon();
    bridge.start_daemon();
    bridge.move_to(id, &old).expect("conversation/move");
    bridge.prompted(id, "back again");
    let behind = [user("there now"), model("ok: there now"), user("back again")];
    assert_eq!(
        bridge.lab.model.asked("back again"),
        [&before[..], &behind].concat()
    );
    assert_eq!(listed_in(&bridge, &old), [(head, cwd(&old))]);
    assert_eq!(bridge.findings(&bridge.head(id)), []);
}

/// F12, D14: the agent has deleted the transcript before the conversation moves. The transcript and the long
/// result are restored in the new folder, and stay there after a restart.
#[test]
#[ignore = "installs the real adapter"]
fn f12_what_was_deleted_before_a_move_goes_on_whole_in_the_new_folder() {
    let mut bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.begun(&["first words", PARALLEL, LONG]);
    let (head, told) = (bridge.head(id), bridge.history(id));
    bridge.close(id);
    bridge.keep(id);
    fs::remove_dir_all(bridge.lab.transcript_root().join("projects")).expect("deleted");
    let new = bridge.lab.scratch().join("elsewhere é");
    fs::create_dir_all(&new).expect("a folder");
    let new = new.canonicalize().expect("a folder");
    bridge.move_to(id, &new).expect("conversation/move");
    let cwd = new.to_str().expect("a path in UTF-8").to_owned();
    let mut expected = said(&told);
    for (text, via) in [("there now", Via::Archive), ("after a restart", Via::Resume)] {
        let turn = bridge.prompted(id, text);
        let resumed = turn.resumed.expect("a resume");
        assert_eq!(
            (resumed.via, resumed.fidelity, turn.upstream_id.as_str()),
            (via, Fidelity::Full, head.as_str())
        );
        let asked = bridge.lab.model.asked(text);
        assert_eq!(asked, [&expected[..], &[user(text)]].concat());
        expected.extend([user(text), model(&format!("ok: {text}"))]);
        assert_eq!(listed_in(&bridge, &new), [(head.clone(), cwd.clone())]);
        assert_eq!(listed_in(&bridge, &bridge.lab.project()), []);
        assert_eq!(bridge.findings(&head), []);
        bridge.stop_daemon();
        bridge.start_daemon();
    }
    assert_eq!(Told::of(&bridge.lab).session(&head)["cwd"], cwd);
}

const SUBAGENT: &str = r#"[[tool Agent {"description":"look","prompt":"[[text words of the subagent]]","subagent_type":"general-purpose","run_in_background":false}]] [[text looked]]"#;

/// The long results and subagents of a fork stay in the folder of its source. Both must stay complete,
/// whichever of them moves.
#[test]
#[ignore = "installs the real adapter"]
fn what_a_fork_borrows_is_there_wherever_it_and_its_source_go() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let source = bridge.begun(&[LONG, SUBAGENT]);
    let fork = bridge.fork(source, false).conversation.id;
    bridge.prompted(fork, "on the branch");
    let told = bridge.history(fork);
    for (number, moved) in [source, fork].into_iter().enumerate() {
        let folder = bridge.lab.scratch().join(format!("elsewhere {number}"));
        fs::create_dir_all(&folder).expect("a folder");
        bridge.move_to(moved, &folder).expect("conversation/move");
        for id in [source, fork] {
            assert_eq!(bridge.findings(&bridge.head(id)), [], "{number}");
            // `bundle` checks that nothing is missing.
            bridge.bundle(id);
        }
        assert_eq!(bridge.history(fork), told);
    }
    bridge.prompted(fork, "there now");
    let asked = bridge.lab.model.asked("there now");
    assert_eq!(asked, [&said(&told)[..], &[user("there now")]].concat());
}

/// D1: a project is renamed. The agent must list in the new folder everything that it listed in the old one,
/// including sessions made without the daemon, and the model must receive the same as before.
#[test]
#[ignore = "installs the real adapter"]
fn d1_a_renamed_project_goes_along_with_what_was_said_there_without_the_bridge() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.begun(&["first words", PARALLEL]);
    let (old, head) = (bridge.lab.project(), bridge.head(id));
    let deep = old.join("deep");
    fs::create_dir(&deep).expect("a folder");
    let adapter = bridge.lab.adapter();
    let made = adapter.call("session/new", json!({"cwd": deep, "mcpServers": []}));
    let alone = made.expect("session/new")["sessionId"]
        .as_str()
        .expect("an id")
        .to_owned();
    adapter.prompt(&alone, "said alone").expect("a turn");
    adapter.stop();
    let told = bridge.history(id);
    let cwd = |folder: &Path| folder.to_str().expect("a path in UTF-8").to_owned();
    // The agent's own settings, in which its terminal program records projects, must stay unchanged. The
    // session is closed, so no process writes them meanwhile.
    bridge.close(id);
    let settings = bridge.lab.transcript_root().join(".claude.json");
    let read = || -> Value {
        let text = fs::read_to_string(&settings).expect("the agent's settings");
        serde_json::from_str(&text).expect("JSON")
    };
    let mut noted = read();
    noted["projects"] = json!({cwd(&old): {"hasTrustDialogAccepted": true}});
    fs::write(&settings, noted.to_string()).expect("the agent's settings");

    let new = bridge.lab.scratch().join("renamed é");
    fs::rename(&old, &new).expect("another name");
    // The lab starts adapters in this folder.
    fs::create_dir(&old).expect("a folder");
    let moved = bridge.answer(MoveTree {
        from: cwd(&old),
        to: cwd(&new),
        ..Default::default()
    });
    assert_eq!(moved.left_out, Vec::<String>::new());
    assert_eq!(read(), noted);
    assert_eq!(listed_in(&bridge, &new), [(head.clone(), cwd(&new))]);
    let inner = new.join("deep");
    assert_eq!(listed_in(&bridge, &inner), [(alone.clone(), cwd(&inner))]);
    for gone in [&old, &deep] {
        assert_eq!(listed_in(&bridge, gone), []);
    }

    bridge.prompted(id, "there now");
    let asked = bridge.lab.model.asked("there now");
    assert_eq!(asked, [&said(&told)[..], &[user("there now")]].concat());
    let adapter = bridge.lab.adapter();
    let resumed = adapter.call(
        "session/resume",
        json!({"sessionId": alone, "cwd": inner, "mcpServers": []}),
    );
    resumed.expect("session/resume");
    adapter.prompt(&alone, "alone there").expect("a turn");
    adapter.stop();
    assert_eq!(
        bridge.lab.model.asked("alone there"),
        [user("said alone"), model("ok: said alone"), user("alone there")]
    );
}

/// D14: the files that a native fork borrows are copied to it when its first turn has ended, so the fork
/// survives the deletion of its source.
#[test]
#[ignore = "installs the real adapter"]
fn what_a_fork_borrows_outlives_its_source() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let source = bridge.begun(&[LONG, SUBAGENT]);
    let fork = bridge.fork(source, false).conversation.id;
    bridge.prompted(fork, "on the branch");
    let transcript = bridge.lab.transcript(&bridge.head(fork)).expect("a transcript");
    let beside = transcript.with_extension("");
    let is_there = |folder: &str| fs::read_dir(beside.join(folder)).is_ok_and(|files| files.count() > 0);
    Watched::below(&bridge.lab.transcript_root()).wait_for("copies of what the fork borrows", || {
        ["subagents", "tool-results"]
            .into_iter()
            .all(is_there)
            .then_some(())
    });
    let told = bridge.history(fork);
    let old = bridge.lab.transcript(&bridge.head(source)).expect("a transcript");
    assert_eq!(bridge.delete_with_transcripts(source), []);
    // The agent also deletes the files that belong to the transcript.
    assert!(!old.exists() && !old.with_extension("").exists());
    // The transcript belongs to the agent, so its text still refers to the result in the source's folder. The
    // daemon has copied the result to the fork's folder.
    let findings = bridge.findings(&bridge.head(fork));
    let missing = findings
        .iter()
        .filter(|finding| finding.detail.contains("tool-results"));
    assert_eq!(missing.count(), findings.len(), "{findings:?}");
    assert_eq!(
        fs::read_dir(beside.join("tool-results"))
            .expect("the results")
            .count(),
        1
    );
    bridge.prompted(fork, "without its source");
    let asked = bridge.lab.model.asked("without its source");
    assert_eq!(asked, [&said(&told)[..], &[user("without its source")]].concat());
}
