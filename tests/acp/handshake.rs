//! The agent's own part of the answer to `initialize`, and signing in and out.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::Home;
use super::editor::{Editor, command, eventually};
use super::recorder::Recorder;
use crate::home::wait_for_end;
use crate::scripted;

/// Initializes `sessionctl acp` with these arguments as an editor with these capabilities. Also returns the
/// answer.
fn initialized(home: &Home, arguments: &[&str], capabilities: Value) -> (Editor, Value) {
    let params = json!({"clientCapabilities": capabilities});
    Editor::initialized(&mut command(home, arguments), params)
}

/// A filter that replaces the sign-in methods of the built-in agent.
fn with_methods(methods: &str) -> String {
    format!(
        r#"sed -u -e 's|"authMethods":\[[^]]*\]|"authMethods":{methods}|' -e 's|"auth":{{"logout":{{}}}},||'"#
    )
}

#[test]
fn the_editor_signs_in_and_out_as_its_agent_offers_it() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, about) = initialized(&home, &[], json!({}));
    let method = json!({
        "id": "loopback-login", "name": "Log in",
        "description": "The loopback agent has no accounts; this always succeeds",
    });
    assert_eq!(about["authMethods"], json!([method]));
    let capabilities = &about["agentCapabilities"];
    assert_eq!(capabilities["auth"], json!({"logout": {}}));
    assert_eq!(
        capabilities["mcpCapabilities"],
        json!({"http": true, "sse": true})
    );
    let signed_in = editor.call("authenticate", json!({"methodId": "loopback-login"}));
    assert_eq!(signed_in.result(), &json!({}));
    assert_eq!(
        editor.call("authenticate", json!({"methodId": "other"})).code(),
        -32602
    );
    assert_eq!(editor.call("logout", json!({})).result(), &json!({}));
}

#[test]
fn what_the_agent_does_not_offer_is_refused() {
    let home = Home::new();
    Recorder::filtered(&home, &with_methods("[]"));
    let _daemon = home.start();
    let (mut editor, about) = initialized(&home, &[], json!({}));
    assert_eq!(about["authMethods"], json!([]));
    assert!(about["agentCapabilities"].get("auth").is_none(), "{about}");
    let signed_in = editor.call("authenticate", json!({"methodId": "loopback-login"}));
    assert_eq!(signed_in.code(), -32601);
    assert_eq!(editor.call("logout", json!({})).code(), -32601);
}

#[test]
fn a_sign_in_in_a_terminal_runs_the_program_of_the_agent() {
    let home = Home::new();
    let method = r#"{"type":"terminal","id":"t","name":"Log in","args":["login","--now"],"env":{"A":"1"},"_meta":{"n":1.50}}"#;
    let plain = r#"{"id":"p","name":"Plain"}"#;
    Recorder::filtered(
        &home,
        &with_methods(&format!("[{method},{plain}]").replace('[', "\\[")),
    );
    let _daemon = home.start();
    let (_editor, about) = initialized(&home, &[], json!({}));
    assert_eq!(about["authMethods"], json!([{"id": "p", "name": "Plain"}]));
    for (own, expected) in [
        (&[][..], "configured login --now, a variable\n"),
        (
            &["--agent", "recorded", "--", "--extra"],
            "configured --extra login --now, a variable\n",
        ),
    ] {
        let (_editor, about) = initialized(&home, own, json!({"auth": {"terminal": true}}));
        let method = &about["authMethods"][0];
        assert_eq!((&method["id"], &method["env"]), (&json!("t"), &json!({"A": "1"})));
        let appended = method["args"].as_array().unwrap();
        let appended = appended.iter().map(|argument| argument.as_str().unwrap());
        let line: Vec<&str> = own.iter().copied().chain(appended).collect();
        let signed_in = command(&home, &line).output().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&signed_in.stdout),
            expected,
            "{signed_in:?}"
        );
        assert_eq!(signed_in.status.code(), Some(7));
    }
    let unknown = command(&home, &["--agent", "none", "--", "--sessiond-sign-in", "x"]).output();
    let unknown = unknown.unwrap();
    let complaint = String::from_utf8_lossy(&unknown.stderr);
    assert_eq!(unknown.status.code(), Some(6), "{complaint}");
    assert!(complaint.contains("none"), "{complaint}");
}

#[test]
fn an_agent_that_does_not_start_is_no_reason_to_refuse_the_editor() {
    let home = Home::new();
    home.configure("default_agent = \"dies\"\n[agents.dies]\nkind = \"generic\"\ncommand = \"/bin/false\"\n");
    let _daemon = home.start();
    let (mut editor, about) = initialized(&home, &[], json!({}));
    assert_eq!(about["authMethods"], json!([]));
    assert_eq!(about["agentCapabilities"]["promptCapabilities"]["image"], true);
    let made = editor.call("session/new", json!({"cwd": home.project(), "mcpServers": []}));
    assert_eq!(made.code(), -32603);
}

#[test]
fn the_agent_gets_the_arguments_of_its_editor() {
    let home = Home::new();
    let recorder = Recorder::in_home(&home);
    let _daemon = home.start();
    let (mut editor, _) = initialized(&home, &["--", "--extra", "one two"], json!({}));
    let session = editor.new_session(&home);
    assert_eq!(recorder.arguments(), ["configured --extra one two"]);
    // An editor with other arguments gets its own process.
    let (mut other, _) = initialized(&home, &[], json!({}));
    other.on("session/resume", &session, &home).result();
    let mut arguments = recorder.arguments();
    arguments.sort();
    assert_eq!(arguments, ["configured", "configured --extra one two"]);
    // The arguments are not used for other agents.
    let session = editor.new_session_of("loopback", &home);
    assert_eq!(
        editor.prompt(&session, "hello").texts("agent_message_chunk"),
        ["echo: hello"]
    );
}

#[test]
fn an_upgraded_agent_is_asked_again() {
    let home = Home::new();
    let _recorder = Recorder::filtered(&home, &with_methods("[]"));
    let _daemon = home.start();
    let (_first, about) = initialized(&home, &[], json!({}));
    assert_eq!(about["authMethods"], json!([]));
    for (process, line) in home.processes() {
        if line.contains("recorded-agent") || line.contains("loopback-agent") {
            // A process of the pipeline may already have ended together with the others.
            let _ended = kill_process(Pid::from_raw(process.try_into().unwrap()).unwrap(), Signal::KILL);
            wait_for_end(process);
        }
    }
    let program = home.path().join("recorded-agent");
    let upgraded = fs::read_to_string(&program).unwrap();
    let upgraded = upgraded.replace(
        r#"|"authMethods":[]|"#,
        r#"|"authMethods":[{"id":"new","name":"New"}]|"#,
    );
    fs::write(&program, upgraded).unwrap();
    // The daemon may not have noticed yet that the old process has ended.
    eventually(|| {
        let (_editor, about) = initialized(&home, &[], json!({}));
        about["authMethods"][0]["id"] == "new"
    });
}

/// The methods of these capabilities name no session, so the daemon could not forward them to an agent.
#[test]
fn what_cannot_reach_an_agent_is_not_offered() {
    let offered = r#"{"auth":{"logout":{"n":1.50},"status":{}},"mcpCapabilities":{"acp":true,"sse":true},"providers":{},"x":1E+2}"#;
    let home = Home::with_config(&scripted::configured("scripted", Some(offered)));
    let _daemon = home.start();
    let (editor, about) = initialized(&home, &["--agent", "scripted"], json!({}));
    let capabilities = &about["agentCapabilities"];
    assert_eq!(capabilities["auth"], json!({"logout": {"n": 1.50}}));
    assert_eq!(capabilities["mcpCapabilities"], json!({"sse": true}));
    assert!(capabilities.get("providers").is_none(), "{capabilities}");
    let line = editor.received.last().unwrap();
    assert!(
        line.contains(r#""logout":{"n":1.50}"#) && line.contains(r#""x":1E+2"#),
        "{line}"
    );
}
