//! Without a coding agent: who answers is said, and how to install one. And `start`, which needs none.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::home::Home;
use super::printed::check_printed;
use super::text;
use crate::pty::Terminal;

#[test]
fn new_says_that_the_echo_answers_and_how_to_install_an_agent() {
    let home = Home::new();
    home.printed(&["new"], 0);
    // Who asks for the echo gets it without a warning; a program reads JSON only.
    for arguments in [
        &["new", "--agent", "loopback"][..],
        &["new", "--json"],
        &["new", "-q"],
    ] {
        assert_eq!(text(&home.run(arguments).stderr), "", "{arguments:?}");
    }
}

#[test]
fn with_an_agent_on_the_path_nothing_is_said() {
    let home = Home::new();
    let programs = home.path().join("programs");
    fs::create_dir(&programs).unwrap();
    let adapter = programs.join("claude-agent-acp");
    fs::write(&adapter, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&adapter, Permissions::from_mode(0o755)).unwrap();
    let new = || {
        let output = home.command(&["new"]).env("PATH", &programs).output().unwrap();
        assert_eq!(text(&output.stderr), "", "{output:?}");
    };
    new();
    // A user who chose the built-in agent although another one is installed knows who answers.
    home.said(&["stop"]);
    home.configure("default_agent = \"loopback\"\n");
    new();
    let agents: Value = serde_json::from_str(&home.said(&["--json", "agents"])).unwrap();
    let install = agents["install"].as_object().unwrap();
    assert!(
        !install.contains_key("claude") && install.contains_key("codex"),
        "{agents}"
    );
}

#[test]
fn new_with_an_agent_that_is_not_installed_fails_with_the_line_that_installs_it() {
    let home = Home::new();
    let config = "[agents.mine]\nkind = \"claude\"\ncommand = \"/no/such/adapter\"\n\
                  [agents.other]\ncommand = \"/no/such/program\"\n";
    home.configure(config);
    for (agent, code) in [
        ("claude", 6),
        ("mine", 6),
        ("codex", 6),
        ("other", 6),
        ("nobody", 4),
    ] {
        let told = home.printed(&["new", "--agent", agent], code);
        // A chat says the same.
        let mut chat = home.command(&["chat", "--new", "--agent", agent]);
        let (shown, exit) = Terminal::of(200, chat.env("NO_COLOR", "1")).ended();
        assert_eq!((shown.replace('\r', ""), exit), (told, Some(code)), "{agent}");
    }
    let listed: Value = serde_json::from_str(&home.said(&["--json", "ls"])).unwrap();
    assert_eq!(listed["conversations"], json!([]));
}

/// The conversation is made all the same: it can be read.
#[test]
fn adopt_says_how_to_install_an_agent_that_is_missing() {
    const ID: &str = "31111111-2222-4333-8444-555555555555";
    let home = Home::new();
    let folder = home.path().join(".claude/projects/-x");
    fs::create_dir_all(&folder).unwrap();
    let line = json!({"type": "user", "uuid": "u1", "parentUuid": null, "sessionId": ID, "cwd": home.path(),
        "message": {"role": "user", "content": "long ago"}});
    fs::write(folder.join(format!("{ID}.jsonl")), format!("{line}\n")).unwrap();
    let adopt = ["adopt", ID, "--agent", "claude"];
    let output = home.command(&adopt).env("HOME", home.path()).output().unwrap();
    let told = check_printed(&adopt, &output, 0);
    assert!(told.contains("npm install"), "{told}");
    let id = text(&output.stdout);
    assert_eq!(home.shown(id.trim_end())["agent"], "claude");
}

#[test]
fn start_starts_a_daemon_once_and_prints_its_socket() {
    let home = Home::new();
    let socket = home.said(&["start", "--print-socket"]);
    assert!(fs::exists(&socket).unwrap(), "{socket}");
    let status = || -> Value { serde_json::from_str(&home.said(&["--json", "status"])).unwrap() };
    let first = status();
    assert_eq!(first["socket"], socket.as_str());
    super::check(&home.run(&["start"]), 0, "");
    let again: Value = serde_json::from_str(&home.said(&["--json", "start"])).unwrap();
    assert_eq!(again["pid"], first["pid"]);
    let output = home.run(&["start", "--no-start"]);
    assert_eq!(output.status.code(), Some(0), "one runs: {output:?}");
    home.said(&["stop"]);
    assert_eq!(home.run(&["start", "--no-start"]).status.code(), Some(3));
}
