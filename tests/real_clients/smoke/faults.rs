//! In each client, a session survives the deaths of the agent and the daemon, and an agent that forgets it.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{Acpx, ended_well, only_conversations, told};
use crate::processes;
use crate::real_clients::editor::Editor;
use crate::real_clients::sdks::{RUST, Sdk, TYPESCRIPT};
use crate::real_clients::{ClientLab, text};

/// How a fault affects the client in whose turn it happens.
#[derive(Clone, Copy, PartialEq)]
enum Effect {
    /// The connection is lost. The client starts its command again and loads the session.
    Lost,
    /// The turn ends with an error.
    Failed,
    /// The client does not notice it.
    None,
}

/// A fault that happens after a first successful turn.
struct Fault {
    name: &'static str,
    /// The prompt of the first turn.
    first: &'static str,
    /// The prompt of the turn that runs when the fault happens; its reply begins with "begun". `None`: the
    /// fault happens between turns.
    running: Option<&'static str>,
    strike: fn(&ClientLab, &str),
    effect: Effect,
    /// How many sessions of the agent the conversation has at the end.
    links: u64,
}

const FAULTS: [Fault; 7] = [
    Fault {
        name: "the agent is killed between turns",
        first: "[[say one]]",
        running: None,
        strike: kill_agent,
        effect: Effect::None,
        links: 1,
    },
    Fault {
        name: "the agent is killed in a turn",
        first: "[[say one]]",
        running: Some("[[say begun]] [[hang]]"),
        strike: kill_agent,
        effect: Effect::Failed,
        links: 1,
    },
    Fault {
        name: "the daemon is killed between turns",
        first: "[[say one]]",
        running: None,
        strike: kill_daemon,
        effect: Effect::Lost,
        links: 1,
    },
    Fault {
        name: "the daemon is killed in a turn",
        first: "[[say one]]",
        running: Some("[[say begun]] [[hang]]"),
        strike: kill_daemon,
        effect: Effect::Lost,
        links: 1,
    },
    Fault {
        name: "the agent has forgotten the session at the next prompt",
        first: "[[say one]] [[forget]]",
        running: None,
        strike: |_, _| (),
        effect: Effect::None,
        links: 2,
    },
    Fault {
        name: "the agent's transcript is deleted between turns",
        first: "[[say one]]",
        running: None,
        strike: delete_transcript,
        effect: Effect::None,
        links: 1,
    },
    Fault {
        name: "a limit is reached in a turn",
        first: "[[say one]]",
        running: Some("[[say begun]] [[limit 3600]]"),
        strike: |_, _| (),
        effect: Effect::None,
        links: 1,
    },
];

/// Kills the agent's process and waits until it has ended.
fn kill_agent(lab: &ClientLab, _: &str) {
    let mut agents = processes::naming(&text(lab.path()));
    agents.retain(|process| process.command.contains("loopback-agent"));
    let [agent] = &agents[..] else {
        panic!("{agents:?}")
    };
    agent.kill();
    processes::assert_gone(&agents);
}

/// Kills the daemon and waits until it and its agents have ended.
fn kill_daemon(lab: &ClientLab, _: &str) {
    let mut daemons = processes::naming(&text(lab.path()));
    daemons.retain(|process| process.command.contains("sessiond"));
    let lock = fs::read_to_string(lab.path().join("data/sessiond.lock")).expect("a lock file");
    let lock: Value = serde_json::from_str(&lock).expect("JSON");
    let pid = i32::try_from(lock["pid"].as_i64().expect("a pid")).expect("a pid");
    kill_process(Pid::from_raw(pid).expect("a pid"), Signal::KILL).expect("the daemon killed");
    processes::assert_gone(&daemons);
}

/// Keeps a copy of a session's transcript, closes the session, and deletes the transcript.
fn delete_transcript(lab: &ClientLab, session: &str) {
    lab.sessionctl(&["archive", "add", session]);
    lab.sessionctl(&["close", session]);
    let shown = lab.sessionctl(&["show", session]);
    let head = shown["conversation"]["head"].as_str().expect("an id");
    let projects = fs::read_dir(lab.path().join("data/loopback/projects")).expect("a folder");
    let mut transcripts =
        projects.map(|project| project.expect("a folder").path().join(format!("{head}.jsonl")));
    let transcript = transcripts.find(|path| path.exists());
    fs::remove_file(transcript.expect("a transcript")).expect("the transcript deleted");
}

impl Fault {
    /// Checks that a load shows each prompt and each reply once, under the same session id.
    fn check_history(&self, lab: &ClientLab, session: &str, editor: &mut Editor) {
        let loaded = editor.on("session/load", session, lab);
        loaded.result();
        let prompts: Vec<&str> = [Some(self.first), self.running, Some("two")]
            .into_iter()
            .flatten()
            .collect();
        assert_eq!(loaded.texts("user_message_chunk"), prompts);
        let begun = self.running.map(|_| "begun");
        let answers: Vec<&str> = [Some("one"), begun, Some("echo: two")]
            .into_iter()
            .flatten()
            .collect();
        let mut shown = loaded.texts("agent_message_chunk");
        // The agent's own message about the limit.
        shown.retain(|text| !text.contains("limit"));
        assert_eq!(shown, answers);
        for message in &loaded.before {
            assert_eq!(message["params"]["sessionId"], session, "{message}");
        }
        let shown = lab.sessionctl(&["show", session]);
        assert_eq!(shown["conversation"]["chainLength"], self.links, "{shown}");
    }
}

fn restarted(lab: &ClientLab, sdk: &Sdk) -> Option<Editor> {
    let (editor, _) = sdk.editor(lab, &json!({}))?;
    Some(editor)
}

/// Creates a session that goes through this fault. Returns its id and the remaining editor.
fn outlives(lab: &ClientLab, sdk: &Sdk, fault: &Fault, mut editor: Editor) -> Option<(String, Editor)> {
    let session = editor.new_session(lab);
    assert_eq!(told(&editor.prompt(&session, fault.first)), "one");
    let running = fault.running.map(|text| {
        let id = editor.begin_prompt(&session, text);
        editor.until_said("begun");
        id
    });
    (fault.strike)(lab, &session);
    if fault.effect == Effect::Lost {
        let (status, complaint) = editor.ended();
        // The Rust SDK reports the exit code of the command as text.
        let is_three = status.code() == Some(3) || complaint.contains("exit status: 3");
        assert!(
            is_three && complaint.contains("the daemon closed the connection"),
            "{status}: {complaint}"
        );
        editor = restarted(lab, sdk)?;
        editor.on("session/load", &session, lab).result();
    } else if let Some(id) = running {
        let answered = editor.finish(id);
        let is_error = answered.answer["error"].is_object();
        assert_eq!(is_error, fault.effect == Effect::Failed, "{answered:?}");
    }
    assert_eq!(told(&editor.prompt(&session, "two")), "echo: two");
    fault.check_history(lab, &session, &mut editor);
    Some((session, editor))
}

/// Applies all faults one after another in one editor, so that the other sessions are open at each fault.
pub(in crate::real_clients) fn outlives_all(sdk: &Sdk) -> Option<()> {
    let lab = ClientLab::new()?;
    let mut editor = restarted(&lab, sdk)?;
    let mut sessions = Vec::new();
    for fault in &FAULTS {
        eprintln!("{}", fault.name);
        let (session, left) = outlives(&lab, sdk, fault, editor)?;
        sessions.push(session);
        editor = left;
    }
    ended_well(editor);
    only_conversations(&lab, &sessions);
    Some(())
}

/// Applies only the faults between turns, because acpx has no running turn that a test could observe.
pub(in crate::real_clients) fn outlives_all_in_acpx() -> Option<()> {
    let lab = ClientLab::new()?;
    let acpx = Acpx { lab: &lab };
    let mut sessions = Vec::new();
    for fault in FAULTS.iter().filter(|fault| fault.running.is_none()) {
        eprintln!("{}", fault.name);
        let session = acpx.run(&["sessions", "new"]);
        assert!(acpx.run(&[fault.first]).contains("one"));
        (fault.strike)(&lab, &session);
        assert!(acpx.run(&["two"]).contains("echo: two"));
        acpx.run(&["sessions", "close"]);
        let mut editor = Editor::with(&lab, json!({}));
        fault.check_history(&lab, &session, &mut editor);
        sessions.push(session);
    }
    only_conversations(&lab, &sessions);
    Some(())
}

#[test]
#[ignore = "installs the real adapter"]
fn a_session_outlives_each_fault_in_an_editor_on_the_typescript_sdk() {
    or_skip!(outlives_all(&TYPESCRIPT));
}

#[test]
#[ignore = "installs the real adapter"]
fn a_session_outlives_each_fault_in_an_editor_on_the_rust_sdk() {
    or_skip!(outlives_all(&RUST));
}
