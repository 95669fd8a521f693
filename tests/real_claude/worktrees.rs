//! Sessions in the worktrees of a git repository: which of several transcripts of one id the agent takes, and
//! that we know it beforehand.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use bridge_protocol::link::{Fidelity, Via};
use serde_json::json;
use session_bridge::transcript::locate::{located, own_folder};

use super::bridge::Bridge;
use crate::support::claude::Account;
use crate::support::model_server::user;

/// Runs git in a folder; false where there is none, and the agent has none either.
fn git(folder: &Path, arguments: &[&str]) -> bool {
    let who = ["-c", "user.name=u", "-c", "user.email=u@example.com"];
    let mut command = Command::new("git");
    command.args(who).args(arguments).current_dir(folder);
    match command.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        output => {
            let output = output.expect("git runs");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "git {arguments:?}: {said}");
            true
        }
    }
}

/// Where copies lie, where the session is resumed, and which copy the agent takes. `project` is the main
/// worktree, `outside` is no part of the repository.
const CASES: [(&[&str], &str, Option<&str>); 13] = [
    // The only one is found wherever it is.
    (&["a"], "project", Some("a")),
    (&["a"], "outside", Some("a")),
    // That of the cwd itself.
    (&["a", "b"], "b", Some("b")),
    // Of several others one in a worktree.
    (&["outside", "b"], "project", Some("b")),
    (&["outside", "project"], "a", Some("project")),
    (&["outside", "b"], "a/within", Some("b")),
    // Also in that of one that is gone, which git still names.
    (&["outside", "gone"], "a", Some("gone")),
    // Of several worktrees that in which the cwd lies, and then by name, as people order names.
    (&["a", "b"], "b/within", Some("b")),
    (&["a", "project"], "project/nested", Some("project")),
    (&["b", "project"], "a", Some("b")),
    (&["C", "b"], "a", Some("b")),
    (&["C", "gone"], "a", Some("C")),
    // Else none.
    (&["a", "b"], "outside", None),
];

/// A resume takes what we read, in whichever worktree it lies.
#[test]
#[ignore = "installs the real adapter"]
fn of_copies_in_worktrees_the_agent_takes_the_one_that_we_read() {
    let Some(bridge) = Bridge::start(Account::Key) else {
        return;
    };
    let lab = &bridge.lab;
    let project = lab.project();
    if !git(&project, &["init", "-q"]) {
        eprintln!("skipped: there is no git");
        return;
    }
    git(&project, &["commit", "-q", "--allow-empty", "-m", "first"]);
    for worktree in ["../a", "../b", "../C", "../gone", "nested"] {
        git(&project, &["worktree", "add", "-q", "--detach", worktree]);
    }
    for folder in ["outside", "a/within", "b/within"] {
        fs::create_dir(lab.scratch().join(folder)).expect("a folder");
    }
    let gone = lab.scratch().join("gone");
    fs::remove_dir_all(&gone).expect("a worktree");

    let adapter = lab.adapter();
    let opening = json!({"cwd": project, "mcpServers": []});
    let made = adapter.call("session/new", opening).expect("session/new");
    let session = made["sessionId"].as_str().expect("an id").to_owned();
    adapter.prompt(&session, "said before").expect("a turn");
    adapter.stop();
    let root = lab.transcript_root();
    let own = lab.transcript(&session).expect("a transcript");
    let text = fs::read_to_string(&own).expect("the transcript");
    let file = own.file_name().expect("a name");
    let put = |places: &[&str]| {
        for path in lab.transcripts() {
            fs::remove_file(path).expect("a transcript");
        }
        for place in places {
            let folder = own_folder(&root, &lab.scratch().join(place));
            fs::create_dir_all(&folder).expect("a folder");
            let text = text.replace("said before", &format!("said in {place}"));
            fs::write(folder.join(file), text).expect("a copy");
        }
    };
    for (number, (places, cwd, taken)) in CASES.iter().enumerate() {
        put(places);
        let cwd = lab.scratch().join(cwd);
        let found = located(&root, &session, Some(&cwd)).expect("a search");
        let adapter = lab.adapter();
        let opening = json!({"sessionId": session, "cwd": cwd, "mcpServers": []});
        let resumed = adapter.call("session/resume", opening);
        let what = format!("{places:?}, resumed in {}", cwd.display());
        assert_eq!(resumed.is_ok(), taken.is_some(), "{what}: {resumed:?}");
        if let Some(taken) = taken {
            let asked = format!("go on {number}");
            adapter.prompt(&session, &asked).expect("a turn");
            let said = user(&format!("said in {taken}"));
            assert!(lab.model.asked(&asked).contains(&said), "{what}");
            let first = own_folder(&root, &lab.scratch().join(taken)).join(file);
            assert_eq!(found.paths.first(), Some(&first), "{what}");
        }
        let is_found = found.by_folder > 0 || found.paths.len() == 1;
        assert_eq!(is_found, taken.is_some(), "{what}");
        adapter.stop();
    }

    // The session ran in the main worktree, and lies in that of another.
    put(&["outside", "b"]);
    let adopted = bridge.adopt(&session).expect("conversation/adopt");
    let resumed = bridge
        .prompted(adopted.id, "go on adopted")
        .resumed
        .expect("a resume");
    assert_eq!((resumed.via, resumed.fidelity), (Via::Resume, Fidelity::Full));
    assert!(lab.model.asked("go on adopted").contains(&user("said in b")));
}
