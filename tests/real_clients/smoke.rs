//! The life of a session in each client.

pub(super) mod acplint;
pub(super) mod faults;
mod forking;
mod handing;
mod schema;

use std::collections::BTreeSet;
use std::process::Output;

use serde_json::{Value, json};

use super::editor::{Answered, Editor, eventually};
use super::sdks::{PYTHON, RUST, Sdk, TYPESCRIPT};
use super::{ClientLab, said, text};
use crate::real_claude::bridge::Bridge;
use crate::support::claude::Account;

/// Prompts that make the built-in agent ask, use a tool and say "read"; start and hang until cancelled; and
/// repeat the history.
const PROMPTS: [&str; 3] = [
    r#"[[ask may I]][[tool Read {"path":"a"}]][[say read]]"#,
    "[[say begun]] [[hang]]",
    "[[recall]]",
];

/// The same for a scripted model behind Claude's adapter, which asks before it uses the tool. The history is
/// checked by what the model received.
pub(super) const PROMPTS_TO_CLAUDE: [&str; 3] = [
    r#"[[tool Bash {"command":"echo made > made.txt","description":"make a file"}]] [[text read]]"#,
    "[[slow 600 1]]",
    "[[text first words again]]",
];

/// The maximum number of times that acpx is started for one request.
const ACPX_TRIES: usize = 20;

/// The error codes of acpx that say that its process is ending and probably has not accepted the request.
const ACPX_LEAVES: [&str; 4] = [
    "QUEUE_OWNER_CLOSED",
    "QUEUE_OWNER_SHUTTING_DOWN",
    "QUEUE_NOT_ACCEPTING_REQUESTS",
    "QUEUE_DISCONNECTED_BEFORE_ACK",
];

/// The agent's text in a turn that must end normally.
fn told(answered: &Answered) -> String {
    assert_eq!(answered.result()["stopReason"], "end_turn", "{answered:?}");
    answered.said()
}

/// Checks that no client has silently created another conversation.
fn only_conversations(lab: &ClientLab, sessions: &[impl AsRef<str>]) {
    let listed = lab.sessionctl(&["ls", "--all"]);
    let conversations = listed["conversations"].as_array().expect("a list");
    let id = |one: &Value| one["id"].as_str().expect("an id").to_owned();
    let ids: BTreeSet<_> = conversations.iter().map(id).collect();
    assert_eq!(ids, sessions.iter().map(|id| id.as_ref().to_owned()).collect());
}

/// Goes through each step of a session's life, in an editor on this SDK.
pub(super) fn live(lab: &ClientLab, sdk: &Sdk, capabilities: &Value, prompts: [&str; 3]) -> Option<()> {
    let [tool, hang, recall] = prompts;
    let (mut editor, about) = sdk.editor(lab, capabilities)?;
    assert_eq!(about["protocolVersion"], 1);
    assert_eq!(about["agentCapabilities"]["loadSession"], true);
    let session = editor.new_session(lab);
    assert!(told(&editor.prompt(&session, "first words")).contains("first words"));
    let prompt = editor.begin_prompt(&session, tool);
    let mut seen = editor.until(|message| message["method"] == "session/request_permission");
    let asked = seen.pop().expect("a question");
    let options = asked["params"]["options"].as_array().expect("options");
    let option = options.iter().find(|option| option["kind"] == "allow_once");
    let option = &option.expect("an option")["optionId"];
    let outcome = json!({"outcome": {"outcome": "selected", "optionId": option}});
    editor.answer(&asked, outcome);
    let used = editor.finish(prompt);
    assert!(told(&used).contains("read"), "{used:?}");
    seen.extend(used.before);
    let is_call = |message: &Value| message["params"]["update"]["sessionUpdate"] == "tool_call";
    assert!(seen.iter().any(is_call), "{seen:?}");
    if capabilities["terminal"] == true {
        use_files_and_terminal(&mut editor, &session);
    }
    let running = editor.begin_prompt(&session, hang);
    editor.until(|message| message["params"]["update"]["sessionUpdate"] == "agent_message_chunk");
    editor.cancel(&session);
    assert_eq!(editor.finish(running).result()["stopReason"], "cancelled");
    editor.close(&session).result();
    ended_well(editor);

    let (mut editor, _) = sdk.editor(lab, capabilities)?;
    let loaded = editor.on("session/load", &session, lab);
    loaded.result();
    for kind in ["user_message_chunk", "agent_message_chunk"] {
        assert!(loaded.texts(kind).concat().contains("first words"), "{loaded:?}");
    }
    editor.on("session/resume", &session, lab).result();
    let fork = editor.on("session/fork", &session, lab).session_id();
    assert_ne!(fork, session);
    assert!(told(&editor.prompt(&fork, recall)).contains("first words"));
    let listed = |editor: &mut Editor| -> Vec<Value> {
        let list = editor.call("session/list", json!({"cwd": lab.project()}));
        let sessions = list.result()["sessions"].as_array().expect("a list").iter();
        sessions.map(|session| session["sessionId"].clone()).collect()
    };
    assert!(listed(&mut editor).contains(&json!(fork)));
    let mut left = vec![&session, &fork];
    if sdk.deletes {
        editor.delete(&fork).result();
        left.truncate(1);
    }
    let listed = listed(&mut editor);
    assert!(listed.contains(&json!(session)), "{listed:?}");
    assert_eq!(listed.contains(&json!(fork)), !sdk.deletes, "{listed:?}");
    assert_eq!(editor.on("session/load", "no such session", lab).code(), -32002);
    ended_well(editor);
    only_conversations(lab, &left);
    Some(())
}

/// Ends an editor, which must succeed and print nothing to stderr, because some editors show that as an
/// error.
fn ended_well(editor: Editor) {
    let (status, complaint) = editor.end();
    assert!(status.success() && complaint.is_empty(), "{status}: {complaint}");
}

fn use_files_and_terminal(editor: &mut Editor, session: &str) {
    let prompt = editor.begin_prompt(
        session,
        concat!(
            r#"[[call fs/read_text_file {"path":"/a"}]]"#,
            r#"[[call terminal/create {"command":"make"}]]"#,
            r#"[[call terminal/wait_for_exit {"terminalId":"terminal-1"}]]"#,
        ),
    );
    for (method, parameter, value, result) in [
        ("fs/read_text_file", "path", "/a", json!({"content": "unsaved"})),
        (
            "terminal/create",
            "command",
            "make",
            json!({"terminalId": "terminal-1"}),
        ),
        (
            "terminal/wait_for_exit",
            "terminalId",
            "terminal-1",
            json!({"exitCode": 0}),
        ),
    ] {
        let asked = editor.until_asked(method);
        assert_eq!(asked["params"][parameter], value);
        editor.answer(&asked, result);
        if method == "fs/read_text_file" {
            editor.until_said(r#"{"content":"unsaved"}"#);
        }
    }
    assert_eq!(told(&editor.finish(prompt)), r#"{"exitCode":0}"#);
}

/// Goes through a session's life with the real adapter. Checks that the model received the history before the
/// fork's prompt.
pub(super) fn live_with_claude(sdk: &Sdk) -> Option<()> {
    let bridge = Bridge::start(Account::Key)?;
    let lab = ClientLab::of(&bridge)?;
    let capabilities = json!({"auth": {"terminal": true}});
    // Claude's adapter offers this only to a client that supports it.
    let (editor, about) = sdk.editor(&lab, &capabilities)?;
    let methods = about["authMethods"].as_array().expect("a list");
    let method = methods.iter().find(|method| method["type"] == "terminal");
    let arguments = method.expect("a sign-in in a terminal")["args"].as_array();
    let expected = ["--", "--sessiond-sign-in", "--cli"];
    assert_eq!(arguments.expect("arguments")[..3], expected);
    ended_well(editor);
    live(&lab, sdk, &capabilities, PROMPTS_TO_CLAUDE)?;
    let sent = bridge.lab.model.asked(PROMPTS_TO_CLAUDE[2]);
    let first = sent.first().expect("a history before the branch's prompt");
    assert!(format!("{first:?}").contains("first words"), "{sent:?}");
    Some(())
}

fn live_with_loopback(sdk: &Sdk) -> Option<()> {
    let capabilities = json!({"fs": {"readTextFile": true}, "terminal": true});
    live(&ClientLab::new()?, sdk, &capabilities, PROMPTS)
}

#[test]
#[ignore = "installs the real adapter"]
fn a_session_lives_in_an_editor_on_the_typescript_sdk() {
    or_skip!(live_with_loopback(&TYPESCRIPT));
}

#[test]
#[ignore = "installs the real adapter"]
fn a_session_lives_in_an_editor_on_the_python_sdk() {
    or_skip!(live_with_loopback(&PYTHON));
}

#[test]
#[ignore = "installs the real adapter"]
fn a_session_lives_in_an_editor_on_the_rust_sdk() {
    or_skip!(live_with_loopback(&RUST));
}

#[test]
#[ignore = "installs the real adapter"]
fn a_session_of_claude_lives_in_an_editor_on_the_typescript_sdk() {
    or_skip!(live_with_claude(&TYPESCRIPT));
}

/// acpx, connected to the daemon.
struct Acpx<'a> {
    lab: &'a ClientLab,
}

impl Acpx<'_> {
    /// Runs acpx with these words and returns its output.
    fn run(&self, words: &[&str]) -> String {
        let (acpx, agent) = (text(&self.lab.clients.acpx), self.lab.command().join(" "));
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
        // The previous acpx process may be ending. It then accepts no more requests, and reports that or
        // closes the connection.
        let tries = std::iter::repeat_with(|| self.lab.run(&self.lab.clients.node, &all));
        let is_taken = |output: &Output| {
            let complaints = String::from_utf8_lossy(&output.stderr);
            !ACPX_LEAVES.iter().any(|code| complaints.contains(code))
        };
        let output = tries
            .take(ACPX_TRIES)
            .find(is_taken)
            .expect("a process that takes it");
        // acpx reports the used tokens on stderr.
        match output.status.success() {
            true => said(&Output {
                stderr: Vec::new(),
                ..output
            }),
            false => said(&output),
        }
    }
}

#[test]
#[ignore = "installs the real adapter"]
fn acpx_finds_its_session_again_in_each_process() {
    let lab = or_skip!(ClientLab::new());
    let acpx = Acpx { lab: &lab };
    let session = acpx.run(&["sessions", "new"]);
    // Each call runs another process; acpx silently creates another session if it cannot load the first.
    assert!(
        acpx.run(&["[[ask may I]][[say first words]]"])
            .contains("first words")
    );
    assert!(acpx.run(&["[[recall]]"]).contains("first words"));
    only_conversations(&lab, &[&session]);
    acpx.run(&["sessions", "close"]);
}

/// acpx has no commands for forks and deletions, so this covers only the cancellation.
#[test]
#[ignore = "installs the real adapter"]
fn acpx_cancels_the_prompt_of_another_process() {
    let lab = or_skip!(ClientLab::new());
    let acpx = Acpx { lab: &lab };
    let session = acpx.run(&["sessions", "new"]);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| acpx.run(&["[[hang]]"]));
        eventually(|| lab.sessionctl(&["show", &session])["conversation"]["state"] == "prompting");
        acpx.run(&["cancel"]);
        running.join().expect("the end of the prompt");
    });
    assert!(acpx.run(&["[[recall]]"]).contains("[[hang]]"));
    only_conversations(&lab, &[&session]);
}
