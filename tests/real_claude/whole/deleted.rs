//! The whole conversation after its agent has deleted the transcript with all its files.

use super::*;

/// Each branch and each edit must restore the transcript from the copy.
#[test]
#[ignore = "installs the real adapter"]
fn d14_branches_and_edits_of_what_was_deleted_have_what_stands_before_their_place() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = whole(&bridge);
    bridge.close(id);
    bridge.keep(id);
    let path = bridge.lab.transcript(&bridge.head(id)).expect("the transcript");
    let beside = path.with_extension("");
    let kept = fs::read(&path).expect("the transcript");
    let delete = || {
        assert_eq!(fs::read(&path).expect("the transcript"), kept);
        fs::remove_file(&path).expect("removed");
        fs::remove_dir_all(&beside).expect("removed");
    };
    branches_behind_each(&bridge, id, &PROMPTS, LAST, BranchedVia::Cut, delete);
    delete();
    let native = bridge.fork(id, false);
    assert_eq!(
        (native.fidelity, native.via),
        (Fidelity::Full, Some(BranchedVia::Native))
    );
    bridge.prompted(native.conversation.id, "at the head");
    asked(&bridge, LAST).check_begins(&asked(&bridge, "at the head"), "a fork by the agent");
    edits_of_each(&bridge, id, &PROMPTS, LAST, BranchedVia::Cut, delete);
    bridge.close(id);
    assert!(fs::read(&path).expect("the transcript").starts_with(&kept));
    // Every transcript that refers to a subagent must have the subagent's file.
    for transcript in bridge.lab.transcripts() {
        let session = transcript.file_stem().and_then(|stem| stem.to_str());
        assert_eq!(bridge.findings(session.expect("an id")), [], "{transcript:?}");
    }
}
