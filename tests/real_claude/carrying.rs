//! Conversations that move to another home, another configuration folder and another working directory.

use bridge_protocol::link::{Fidelity, LinkReason};
use std::fs;
use std::path::Path;

use super::bridge::Bridge;
use super::limits::forget;
use crate::reading::said;
use crate::support::claude::Account;
use crate::support::model_server::{Said, What, model, user};
use crate::transfers::without_ids;

pub(crate) const PARALLEL: &str = r#"[[tool Bash {"command":"echo one","description":"one"} ;; Bash {"command":"echo two","description":"two"}]] [[think a long thought|compared]]"#;

pub(crate) const LONG: &str =
    r#"[[tool Bash {"command":"seq 1 20000","description":"count"}]] [[text counted]]"#;

/// Replaces the path of each file that contains a long result by its name, and checks that the file exists.
pub(crate) fn with_names(mut said: Vec<Said>) -> Vec<Said> {
    for said in &mut said {
        let What::ToolResult(text) = &mut said.what else {
            continue;
        };
        let Some((_, rest)) = text.split_once("saved to: ") else {
            continue;
        };
        let path = rest.lines().next().expect("a path").trim().to_owned();
        assert!(Path::new(&path).is_file(), "{path} does not exist");
        let name = path.rsplit('/').next().expect("a name").to_owned();
        *text = text.replace(&path, &name);
    }
    said
}

/// The chain has a roll and a fork in place, and the fork refers to a file in the folder of another session.
#[test]
#[ignore = "installs the real adapter"]
fn a_bundle_goes_on_whole_in_another_home_and_folder() {
    let there = or_skip!(Bridge::start(Account::Key));
    let Some(mut here) = Bridge::start(Account::Key) else {
        return;
    };
    let id = there.begun(&["first words", PARALLEL]);
    let first = there.head(id);
    forget(&there, id, &first);
    there.prompted(id, "behind the roll");
    there.prompted(id, LONG);
    there.fork(id, true);
    there.prompted(id, "on the branch");
    let chain = there.chain(id);
    let reasons: Vec<LinkReason> = chain.iter().map(|link| link.reason).collect();
    assert_eq!(reasons[1..], [LinkReason::Copied, LinkReason::Forked]);
    let told = there.history(id);
    assert_eq!(there.findings(&there.head(id)), []);
    assert_eq!(there.portable(id).messages, told);
    let bundle = there.bundle(id);

    // A first conversation here, so that the agent already knows its folders before the files arrive.
    here.begun(&["at home"]);
    let folder = here.lab.scratch().join("Größe & more");
    fs::create_dir_all(&folder).expect("a folder");
    let expected = with_names(said(&told));
    for (new_ids, text) in [(false, "here now"), (true, "here again")] {
        let imported = here
            .import(&bundle, &folder, new_ids)
            .expect("conversation/import");
        assert_eq!(imported.id == id, !new_ids);
        let head = here.head(imported.id);
        assert_eq!(here.findings(&head), []);
        let history = here.history(imported.id);
        assert_eq!(with_names(said(&history)), expected);
        assert_eq!(here.portable(imported.id).messages, history);
        assert_eq!(without_ids(history.clone()).len(), told.len());
        let turn = here.prompted(imported.id, text);
        let resumed = turn.resumed.expect("a resume");
        assert_eq!((resumed.fidelity, resumed.missing_turns), (Fidelity::Full, 0));
        assert_eq!(turn.upstream_id.as_str(), head);
        let asked = here.lab.model.asked(text);
        assert_eq!(with_names(asked), [&expected[..], &[user(text)]].concat());
        let now = here.history(imported.id);
        assert_eq!(now[..history.len()], history);
        assert_eq!(now.len(), history.len() + 2);
        assert_eq!(here.findings(&head), []);
    }
    // Paths of results are those of this home; other paths that the agent once sent to the model stay.
    let text = fs::read_to_string(here.lab.transcript(&here.head(id)).expect("a transcript")).expect("read");
    let named = |root: &Path, before: &str| text.contains(&format!("{before}{}/", root.display()));
    for before in ["saved to: ", "\"persistedOutputPath\":\""] {
        assert!(named(&here.lab.transcript_root(), before));
        assert!(!named(&there.lab.transcript_root(), before));
    }

    here.stop_daemon();
    here.start_daemon();
    here.prompted(id, "after a restart");
    let asked = with_names(here.lab.model.asked("after a restart"));
    let behind = [user("here now"), model("ok: here now"), user("after a restart")];
    assert_eq!(asked, [&expected[..], &behind].concat());
}

/// The long results and subagents of a fork stay in the folder of its source, which belongs to another
/// conversation.
#[test]
#[ignore = "installs the real adapter"]
fn what_a_fork_borrows_from_another_conversation_comes_along() {
    let there = or_skip!(Bridge::start(Account::Key));
    let here = or_skip!(Bridge::start(Account::Key));
    let source = there.begun(&[LONG]);
    let lender = there.head(source);
    let fork = there.fork(source, false).conversation.id;
    there.prompted(fork, "on the branch");
    let borrowed = fs::read_to_string(there.lab.transcript(&there.head(fork)).expect("a transcript"));
    assert!(
        borrowed
            .expect("read")
            .contains(&format!("/{lender}/tool-results/"))
    );
    let bundle = there.bundle(fork);
    let expected = with_names(said(&there.history(fork)));
    let folder = here.lab.scratch().join("elsewhere");
    fs::create_dir_all(&folder).expect("a folder");
    for (new_ids, text) in [(false, "here now"), (true, "here again")] {
        let imported = here
            .import(&bundle, &folder, new_ids)
            .expect("conversation/import");
        let head = here.head(imported.id);
        assert_eq!(here.findings(&head), []);
        // `with_names` checks that the path that the model receives exists in this home.
        assert_eq!(with_names(said(&here.history(imported.id))), expected);
        let transcript = here.lab.transcript(&head).expect("a transcript");
        let text_of = fs::read_to_string(&transcript).expect("read");
        let own = transcript.with_extension("").join("tool-results");
        assert!(text_of.contains(&format!("saved to: {}/", own.display())));
        here.prompted(imported.id, text);
        let asked = with_names(here.lab.model.asked(text));
        assert_eq!(asked, [&expected[..], &[user(text)]].concat());
    }
}
