//! A session's life in each client.

mod forking;
mod schema;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use super::{ClientLab, python, said, text};
use crate::real_claude::bridge::Bridge;
use crate::support::claude::Account;

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real_clients");

/// Prompts that have the built-in agent ask and use a tool, begin and not end until it is cancelled, and repeat the history.
const PROMPTS: [&str; 3] = [
    r#"[[ask may I]][[tool Read {"path":"a"}]][[say read]]"#,
    "[[say begun]] [[hang]]",
    "[[recall]]",
];

/// The same for a model behind Claude's adapter. What it is sent of the history is seen at the model.
pub(super) const PROMPTS_TO_CLAUDE: [&str; 3] = [
    r#"[[tool Bash {"command":"echo made > made.txt","description":"make a file"}]] [[text read]]"#,
    "[[slow 600 1]]",
    "[[text first words again]]",
];

/// Arguments of a client: its script and what that needs, the folder, the prompts, and the command in front of which it is an
/// editor.
fn arguments(lab: &ClientLab, first: &[&Path], prompts: [&str; 3]) -> Vec<String> {
    let mut all: Vec<String> = first.iter().map(|path| text(path)).collect();
    all.push(text(&lab.project));
    all.extend(prompts.map(str::to_owned));
    all.extend(lab.command());
    all
}

/// The client reports the sessions that it has left. There are no other conversations, so no client created another one.
fn check(lab: &ClientLab, printed: &str) {
    let sessions = printed.strip_prefix("done ").expect("the client's last line");
    let listed = lab.sessionctl(&["ls", "--all"]);
    let conversations = listed["conversations"].as_array().expect("a list");
    let id = |one: &Value| one["id"].as_str().expect("an id").to_owned();
    let ids: BTreeSet<_> = conversations.iter().map(id).collect();
    assert_eq!(ids, sessions.split(' ').map(str::to_owned).collect());
}

/// Runs a client with the real adapter, and looks at the model for the history before the branch's prompt.
pub(super) fn with_claude(run: impl FnOnce(&ClientLab) -> Option<()>) -> Option<()> {
    let bridge = Bridge::start(Account::Key)?;
    run(&ClientLab::of(&bridge)?)?;
    let sent = bridge.lab.model.asked(PROMPTS_TO_CLAUDE[2]);
    let first = sent.first().expect("a history before the branch's prompt");
    assert!(format!("{first:?}").contains("first words"), "{sent:?}");
    Some(())
}

fn typescript(lab: &ClientLab, prompts: [&str; 3]) {
    let script = Path::new(SCRIPTS).join("sdk.mjs");
    let arguments = arguments(lab, &[&script, &lab.clients.sdk], prompts);
    check(lab, &said(&lab.run(&lab.clients.node, &arguments)));
}

pub(super) fn python_sdk(lab: &ClientLab, prompts: [&str; 3]) -> Option<()> {
    let arguments = arguments(lab, &[&Path::new(SCRIPTS).join("sdk.py")], prompts);
    check(lab, &said(&lab.run(&python()?, &arguments)));
    Some(())
}

#[test]
#[ignore = "installs the real adapter"]
fn a_session_lives_in_an_editor_on_the_typescript_sdk() {
    typescript(&or_skip!(ClientLab::new()), PROMPTS);
}

#[test]
#[ignore = "installs the real adapter"]
fn a_session_lives_in_an_editor_on_the_python_sdk() {
    or_skip!(python_sdk(&or_skip!(ClientLab::new()), PROMPTS));
}

#[test]
#[ignore = "installs the real adapter"]
fn a_session_of_claude_lives_in_an_editor_on_the_typescript_sdk() {
    or_skip!(with_claude(|lab| {
        typescript(lab, PROMPTS_TO_CLAUDE);
        Some(())
    }));
}

#[test]
#[ignore = "installs the real adapter"]
fn acpx_finds_its_session_again_in_each_process() {
    let lab = or_skip!(ClientLab::new());
    let agent = lab.command().join(" ");
    let acpx = |words: &[&str]| {
        let acpx = text(&lab.clients.acpx);
        let options = [
            &acpx,
            "--agent",
            &agent,
            "--format",
            "quiet",
            "--ttl",
            "1",
            "--approve-all",
        ];
        let all: Vec<&str> = options.into_iter().chain(words.iter().copied()).collect();
        // It reports the tokens on standard error.
        let output = lab.run(&lab.clients.node, &all);
        said(&Output {
            stderr: Vec::new(),
            ..output
        })
    };
    let session = acpx(&["sessions", "new"]);
    // Each of these is another process; acpx makes another session without a word if the first cannot be loaded.
    assert!(acpx(&["[[ask may I]][[say first words]]"]).contains("first words"));
    assert!(acpx(&["[[recall]]"]).contains("first words"));
    check(&lab, &format!("done {session}"));
    acpx(&["sessions", "close"]);
}
