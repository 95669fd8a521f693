//! The process: its calls, its queue of prompts, and its end.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::client::Agent;
use super::place::{Place, code};
use crate::words::check;

#[test]
fn initialize_and_a_new_session_say_what_the_agent_can_do() {
    let place = Place::new();
    let mut agent = Agent::start_raw(place.data());
    let answer = agent.call("initialize", json!({ "protocolVersion": 1 })).result();
    let capabilities = &answer["agentCapabilities"];
    assert_eq!(
        (&answer["protocolVersion"], &capabilities["loadSession"]),
        (&json!(1), &json!(true))
    );
    for offered in ["list", "delete", "fork"] {
        assert_eq!(
            capabilities["sessionCapabilities"][offered],
            json!({}),
            "{offered}"
        );
    }
    let methods = answer["authMethods"].as_array().expect("a list");
    assert_eq!(methods.len(), 1);
    assert!(methods[0]["id"].is_string() && methods[0]["name"].is_string());
    assert!(
        agent
            .call("authenticate", json!({ "methodId": "loopback-login" }))
            .outcome
            .is_ok()
    );
    assert_eq!(
        code(&agent.call("authenticate", json!({ "methodId": "x" })).error()),
        -32602
    );
    assert!(agent.call("logout", json!({})).outcome.is_ok());

    let answer = agent
        .call("session/new", json!({ "cwd": place.cwd(), "mcpServers": [] }))
        .result();
    assert!(answer["sessionId"].is_string());
    assert_eq!(
        answer["modes"]["availableModes"].as_array().expect("modes").len(),
        2
    );
    assert_eq!(answer["configOptions"].as_array().expect("options").len(), 1);
    let commands = agent.next_message().expect("an update");
    assert_eq!(
        commands["params"]["update"]["sessionUpdate"],
        "available_commands_update"
    );
}

#[test]
fn prompts_wait_in_line_and_a_cancel_ends_the_line() {
    let place = Place::new();
    let mut agent = place.agent();
    let session = agent.new_session(place.cwd());
    let first = agent.begin_prompt(&session, "[[stream 3 1]]");
    let second = agent.begin_prompt(&session, "second");
    assert_eq!(agent.finish(first).stop_reason(), "end_turn");
    assert_eq!(agent.finish(second).text(), "echo: second");

    let first = agent.begin_prompt(&session, "[[say begun]][[hang]]");
    agent.wait_for_chunk();
    let second = agent.begin_prompt(&session, "never run");
    // The list is answered at once, so the prompt before it has been read.
    agent.call("session/list", json!({})).result();
    agent.cancel(&session);
    let mut reasons = Vec::new();
    while reasons.len() < 2 {
        let message = agent.next_message().expect("an answer");
        if message.get("method").is_none() {
            assert!([first, second].contains(&message["id"].as_u64().expect("an id")));
            reasons.push(message["result"]["stopReason"].clone());
        }
    }
    assert_eq!(reasons, ["cancelled", "cancelled"]);
    let said = agent.recalled(&session);
    assert!(said.iter().all(|(user, _)| user != "never run"));
}

#[test]
fn bad_calls_get_their_errors_and_the_agent_goes_on() {
    let place = Place::new();
    let mut agent = place.agent();
    for params in [
        json!({ "cwd": "relative", "mcpServers": [] }),
        json!({ "cwd": "/nowhere/at/all", "mcpServers": [] }),
        json!({ "mcpServers": [] }),
        json!(null),
    ] {
        assert_eq!(code(&agent.call("session/new", params).error()), -32602);
    }
    assert_eq!(code(&agent.call("session/set_model", json!({})).error()), -32601);
    assert_eq!(code(&agent.call("_own/thing", json!({})).error()), -32601);
    agent.notify("_unknown/notification", json!({}));
    agent.send_line("");
    for (line, expected) in [("not json", -32700), ("[1]", -32600), ("{}", -32600)] {
        agent.send_line(line);
        let message = agent.next_message().expect("an error");
        assert_eq!(
            (code(&message["error"]), &message["id"]),
            (expected, &Value::Null),
            "{line}"
        );
    }
    let session = agent.new_session(place.cwd());
    let error = agent
        .call(
            "session/prompt",
            json!({ "sessionId": session, "prompt": "text" }),
        )
        .error();
    assert_eq!(code(&error), -32602);
    assert_eq!(agent.prompt(&session, "fine").text(), "echo: fine");
}

#[test]
fn the_end_of_input_ends_the_agent_and_the_turn_is_noted() {
    let place = Place::new();
    let mut agent = place.agent();
    let session = agent.new_session(place.cwd());
    agent.begin_prompt(&session, "[[deaf]][[stream 1000000 5]]");
    agent.wait_for_chunk();
    agent.end_input();
    assert!(agent.wait().success());
    let last = place.records(&session).pop().expect("a record");
    assert_eq!(
        last["message"]["content"][0]["text"],
        "[Request interrupted by user]"
    );
    let turn = place.turns(&session).remove(0);
    assert!(
        turn.reply.starts_with("0000000000 "),
        "the text before the interruption is missing"
    );
}

#[test]
fn a_client_that_stops_listening_ends_an_idle_agent() {
    let place = Place::new();
    let mut child = Command::new(env!("CARGO_BIN_EXE_sessiond"))
        .args(["loopback-agent", "--data"])
        .arg(place.data())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the agent starts");
    drop(child.stdout.take());
    let _stdin = child.stdin.take();
    child.wait().expect("it exits although its input is still open");
}

#[test]
fn wrong_arguments_are_told() {
    let output = Command::new(env!("CARGO_BIN_EXE_sessiond"))
        .args(["loopback-agent", "--date", "x"])
        .env_remove("SESSIOND_LOOPBACK_DATA")
        .output()
        .expect("the program runs");
    assert_eq!(output.status.code(), Some(2));
    check(
        "loopback-agent --date x",
        "loopback",
        &String::from_utf8_lossy(&output.stderr),
    );

    let place = Place::new();
    let mut child = Command::new(env!("CARGO_BIN_EXE_sessiond"))
        .arg("loopback-agent")
        .env("SESSIOND_LOOPBACK_DATA", place.data())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the agent starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin
        .write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{}}\n")
        .expect("the agent reads");
    drop(stdin);
    let mut answer = String::new();
    child
        .stdout
        .take()
        .expect("a pipe")
        .read_to_string(&mut answer)
        .expect("an answer");
    assert!(answer.contains("protocolVersion"));
    assert!(child.wait().expect("a status").success());
}
