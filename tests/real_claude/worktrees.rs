//! Sessions in the worktrees of a git repository. The agent also finds transcripts of other worktrees. A
//! resume must continue the transcript that the daemon reads, whichever worktrees have others.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use bridge_protocol::link::{Fidelity, Via};
use serde_json::json;

use super::bridge::Bridge;
use crate::support::claude::{Account, project_folder};
use crate::support::model_server::user;

/// Runs git in a folder. Returns false if git is not installed; then the agent does not have it either.
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

/// The folders with copies of a transcript, the folder in which the session is resumed, and the copy that the
/// agent must find. `project` is the main worktree, `outside` is not in the repository.
const CASES: [(&[&str], &str, Option<&str>); 6] = [
    // A single copy is found wherever it is.
    (&["a"], "project", Some("a")),
    (&["a"], "outside", Some("a")),
    // The copy in the working directory itself is used.
    (&["a", "b"], "b", Some("b")),
    // None of several copies in other folders is used, even if the agent would use one.
    (&["outside", "b"], "project", None),
    (&["b", "project"], "a", None),
    (&["a", "b"], "outside", None),
];

/// A resume must use the transcript that the daemon reads, in whichever worktree it is.
#[test]
#[ignore = "installs the real adapter"]
fn of_copies_in_worktrees_a_resume_goes_on_with_the_one_that_we_read() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let lab = &bridge.lab;
    let project = lab.project();
    if !git(&project, &["init", "-q"]) {
        eprintln!("skipped: there is no git");
        return;
    }
    git(&project, &["commit", "-q", "--allow-empty", "-m", "first"]);
    for worktree in ["../a", "../b"] {
        git(&project, &["worktree", "add", "-q", "--detach", worktree]);
    }
    fs::create_dir(lab.scratch().join("outside")).expect("a folder");

    let adapter = lab.adapter();
    let opening = json!({"cwd": project, "mcpServers": []});
    let made = adapter.call("session/new", opening).expect("session/new");
    let session = made["sessionId"].as_str().expect("an id").to_owned();
    adapter.prompt(&session, "said before").expect("a turn");
    adapter.stop();
    let root = lab.transcript_root();
    let own = lab.transcript(&session).expect("a transcript");
    let text = fs::read_to_string(&own).expect("the transcript");
    fs::remove_file(own).expect("the transcript");
    // Copies the transcript under a new id; the text of each copy names its folder.
    let copied_to = |places: &[&str]| {
        let id = uuid::Uuid::new_v4().to_string();
        for place in places {
            let folder = project_folder(&root, &lab.scratch().join(place));
            fs::create_dir_all(&folder).expect("a folder");
            let text = text.replace("said before", &format!("said in {place}"));
            let file = folder.join(format!("{id}.jsonl"));
            fs::write(file, text.replace(&session, &id)).expect("a copy");
        }
        id
    };
    let said_first = |id| {
        let first = bridge.history(id).swap_remove(0).content.swap_remove(0);
        first.text.expect("a prompt")
    };
    for (number, (places, cwd, taken)) in CASES.iter().enumerate() {
        let copied = copied_to(places);
        let cwd = lab.scratch().join(cwd);
        let what = format!("{places:?}, resumed in {}", cwd.display());
        let adopted = bridge.adopt_into(&copied, Some(&cwd)).expect(&what).id;
        let read = said_first(adopted);
        let asked = format!("go on {number}");
        let resumed = bridge.prompted(adopted, &asked).resumed.expect(&what);
        assert!(lab.model.asked(&asked).contains(&user(&read)), "{what}");
        match taken {
            // The agent found the copy itself.
            Some(taken) => {
                assert_eq!(
                    (resumed.via, read),
                    (Via::Resume, format!("said in {taken}")),
                    "{what}"
                );
            }
            // The daemon made a copy under a new id.
            None => assert_eq!(resumed.via, Via::Copied, "{what}"),
        }
    }

    // The session ran in the main worktree, but its transcript is in the folder of another.
    let adopted = bridge
        .adopt(&copied_to(&["outside", "b"]))
        .expect("conversation/adopt");
    let resumed = bridge
        .prompted(adopted.id, "go on adopted")
        .resumed
        .expect("a resume");
    assert_eq!((resumed.via, resumed.fidelity), (Via::Copied, Fidelity::Full));
    assert!(lab.model.asked("go on adopted").contains(&user("said in b")));
}
