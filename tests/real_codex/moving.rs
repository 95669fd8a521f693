//! Conversations that move to another folder. Codex finds a rollout whatever its working directory was, so no
//! file moves.

use bridge_protocol::link::Fidelity;
use bridge_protocol::method::MoveTree;
use std::fs;

use super::bridge::Bridge;
use super::transcripts::{WITH_TOOL, asked, conversed, only_output};
use crate::bridge_of::path_text;
use crate::support::model_server::user;

/// The conversation is a fork, whose history begins in the file of its source.
#[test]
#[ignore = "installs the real adapter"]
fn a_conversation_goes_on_whole_in_another_folder() {
    let mut bridge = or_skip!(Bridge::start());
    let id = bridge.begun(&["first words", WITH_TOOL]);
    bridge.fork(id, true);
    bridge.prompted(id, "on the branch");
    let head = bridge.head(id);
    let folder = bridge.lab.scratch().join("Größe & more");
    fs::create_dir_all(&folder).expect("a folder");
    let rollouts = bridge.lab.transcripts();
    let moved = bridge.move_to(id, &folder).expect("conversation/move");
    assert_eq!((moved.moved, moved.plan.len()), (0, 1));
    assert_eq!(bridge.lab.transcripts(), rollouts);
    for text in ["there now", "and after a restart"] {
        let history = bridge.history(id);
        let turn = bridge.prompted(id, text);
        let resumed = turn.resumed.expect("a resume");
        assert_eq!(
            (resumed.fidelity, turn.upstream_id.as_str()),
            (Fidelity::Full, head.as_str())
        );
        let expected = [&conversed(&history)[..], &[user(text)]].concat();
        assert_eq!(asked(&bridge, text), only_output(expected));
        bridge.stop_daemon();
        bridge.start_daemon();
    }
    // Its tools run in the new folder.
    let text = fs::read_to_string(bridge.lab.transcript(&head).expect("a rollout")).expect("read");
    assert!(text.contains(folder.to_str().expect("a path in UTF-8")), "{text}");

    // The conversation also moves with its whole project when that is renamed.
    let other = bridge.lab.scratch().join("renamed");
    fs::rename(&folder, &other).expect("another name");
    let rollouts = bridge.lab.transcripts();
    let moved = bridge.answer(MoveTree {
        from: path_text(&folder),
        to: path_text(&other),
        ..Default::default()
    });
    assert_eq!((moved.moved, moved.plan.len(), moved.left_out.len()), (0, 1, 0));
    assert_eq!(bridge.lab.transcripts(), rollouts);
    let history = bridge.history(id);
    bridge.prompted(id, "renamed now");
    let expected = [&conversed(&history)[..], &[user("renamed now")]].concat();
    assert_eq!(asked(&bridge, "renamed now"), only_output(expected));
}
