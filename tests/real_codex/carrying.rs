//! Conversations that move to another home, another `CODEX_HOME` and another working directory.

use bridge_protocol::error::ErrorKind;
use bridge_protocol::link::Fidelity;
use std::fs;

use super::bridge::Bridge;
use super::transcripts::{WITH_TOOL, asked, conversed, only_output};
use crate::support::model_server::user;
use crate::transfers::without_ids;

/// The first conversation has a fork in place, the second is a fork of it: their histories span two and three
/// files.
#[test]
#[ignore = "installs the real adapter"]
fn bundles_go_on_whole_in_another_home_and_folder() {
    let there = or_skip!(Bridge::start());
    let Some(mut here) = Bridge::start() else {
        return;
    };
    let id = there.begun(&["first words", WITH_TOOL]);
    there.fork(id, true);
    there.prompted(id, "in place");
    let branch = there.fork(id, false).conversation.id;
    there.prompted(branch, "on the branch");

    // A first conversation here, so that Codex already knows its own files before the others arrive.
    here.begun(&["at home"]);
    // The path has another length than the original folder.
    let folder = here.lab.scratch().join("Größe & more");
    fs::create_dir_all(&folder).expect("a folder");
    for (conversation, new_ids, text) in [
        (id, false, "here now"),
        (id, true, "here again"),
        (branch, true, "the branch here"),
    ] {
        let told = there.history(conversation);
        assert_eq!(there.portable(conversation).messages, told);
        let bundle = there.bundle(conversation);
        let imported = here
            .import(&bundle, &folder, new_ids)
            .expect("conversation/import");
        let head = here.head(imported.id);
        let history = here.history(imported.id);
        assert_eq!(without_ids(history.clone()), without_ids(told.clone()));
        assert_eq!(here.portable(imported.id).messages, history);
        assert_eq!(here.findings(&head), []);
        if !new_ids {
            assert_eq!(history, told);
            assert_eq!((imported.id, &head), (id, &there.head(id)));
        }
        let turn = here.prompted(imported.id, text);
        let resumed = turn.resumed.expect("a resume");
        assert_eq!((resumed.fidelity, resumed.missing_turns), (Fidelity::Full, 0));
        assert_eq!(turn.upstream_id.as_str(), head);
        let expected = [&conversed(&told)[..], &[user(text)]].concat();
        assert_eq!(asked(&here, text), only_output(expected));
        assert_eq!(here.findings(&head), []);
    }

    // The conversations that kept their ids share no file with those that got new ids, and can still be
    // forked.
    here.stop_daemon();
    here.start_daemon();
    let fork = here.fork(id, false).conversation.id;
    here.prompted(fork, "forked here");
    let expected = conversed(&here.history(fork));
    let asked_of = asked(&here, "forked here");
    assert_eq!(only_output(expected[..asked_of.len()].to_vec()), asked_of);
    // The conversation here has continued, so an import must not overwrite it.
    let bundle = there.bundle(id);
    let error = here.import(&bundle, &folder, false).expect_err("a conflict");
    assert_eq!(error.kind, ErrorKind::Conflict);
}
