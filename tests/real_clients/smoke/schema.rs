//! Checks every message that the daemon sends to an editor against the schema of the protocol.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::real_clients::editor::{Editor, command};
use crate::real_clients::sdks::SCRIPTS;
use crate::real_clients::{ClientLab, said, text};
use crate::test_programs;

/// The capabilities of an editor that supports everything.
fn everything() -> Value {
    json!({
        "fs": {"readTextFile": true, "writeTextFile": true},
        "terminal": true,
        "session": {"notices": {}, "compaction": {}, "configOptions": {"boolean": {}}},
        "elicitation": {"form": {}, "url": {}},
        "plan": {},
        "subagents": {},
        "auth": {"terminal": true},
        "_meta": {"jetbrains": {"air": {"version": 1, "capabilities": ["loadReplayEnd"]}}},
    })
}

fn editor(lab: &ClientLab, agent: &str, capabilities: &Value) -> Editor {
    let params = json!({"clientCapabilities": capabilities});
    Editor::initialized(&mut command(lab, &["--agent", agent]), params).0
}

/// Goes through a session's life with everything that the built-in agent can do, and with most errors.
fn live(lab: &ClientLab, capabilities: &Value) -> Vec<Editor> {
    let mut editor = editor(lab, "loopback", capabilities);
    editor.call("authenticate", json!({"methodId": "none"}));
    editor.call("logout", json!({}));
    editor.call("session/new", json!({"cwd": "/no/such/folder", "mcpServers": []}));
    let session = editor.new_session(lab);
    let on = |more: Value| {
        let mut params = json!({"sessionId": session});
        let members = params.as_object_mut().expect("an object");
        members.extend(more.as_object().expect("an object").clone());
        params
    };
    editor
        .call("session/set_mode", on(json!({"modeId": "plan"})))
        .result();
    editor.call("session/set_model", on(json!({"modelId": "loop-2"})));
    let option = on(json!({"configId": "model", "value": "loop-2"}));
    editor.call("session/set_config_option", option).result();
    for (method, wrong) in [
        ("session/set_mode", json!({"modeId": "none"})),
        (
            "session/set_config_option",
            json!({"configId": "none", "value": 1}),
        ),
        ("session/prompt", json!({"prompt": 1})),
        ("session/nothing", json!({})),
    ] {
        assert!(
            editor.call(method, on(wrong)).answer["error"].is_object(),
            "{method}"
        );
    }
    for prompt in [
        "one",
        r#"[[say a]] [[tool Read {"file_path":"/a"}]] [[tool TodoWrite {"todos":[{"content":"a","status":"pending"}]}]]"#,
        "[[stream 3 1]] [[write a.txt text]] [[tool Edit {\"file_path\":\"/a\",\"old_string\":\"a\",\"new_string\":\"b\"}]]",
        "[[settings]] [[recall]]",
        "[[fail overloaded]]",
        "[[fail auth]]",
    ] {
        editor.prompt(&session, prompt);
    }
    let asking = editor.begin_prompt(&session, "[[ask may I]]");
    let question = editor.until_permission_asked();
    editor.allow(&question);
    editor.finish(asking).result();
    // An answer that is an error, and an answer by another client.
    for by_another in [false, true] {
        let asking = editor.begin_prompt(&session, "[[ask may I]]");
        let question = editor.until_permission_asked();
        if !by_another {
            editor.refuse(&question);
        }
        lab.sessionctl(&["answer", &session, "allow"]);
        editor.finish(asking).result();
    }
    let hanging = editor.begin_endless(&session);
    editor.prompt(&session, "/rewind 1");
    editor.cancel(&session);
    editor.finish(hanging).result();
    for prompt in [
        "/history",
        "/edit 1 two",
        "/fork 1",
        "/undo",
        "/continue",
        "/rewind x",
        "[[limit 3600]]",
        "/continue",
    ] {
        editor.prompt(&session, prompt).result();
    }
    let rewind = editor.begin_prompt(&session, "/rewind");
    if capabilities["elicitation"].is_object() {
        let form = editor.until_asked("elicitation/create");
        editor.answer(&form, json!({"action": "accept", "content": {"turn": "1"}}));
    }
    editor.finish(rewind).result();
    // Changes by another client are reported.
    lab.sessionctl(&["fork", "--in-place", "--at", "1", &session]);
    let fork = editor.on("session/fork", &session, lab).session_id();
    let mut again = self::editor(lab, "loopback", capabilities);
    again.on("session/load", &session, lab).result();
    again.on("session/resume", &fork, lab).result();
    for method in [
        "session/load",
        "session/resume",
        "session/fork",
        "session/prompt",
        "session/close",
    ] {
        again.on(method, "none", lab);
    }
    again.call("session/list", json!({"cwd": lab.project()})).result();
    again.call("session/close", on(json!({}))).result();
    again.delete(&fork).result();
    vec![editor, again]
}

/// Sends the updates that no built-in agent sends; the scripted agent sends the lines of its prompt.
fn scripted(lab: &ClientLab, capabilities: &Value) -> Editor {
    let mut editor = editor(lab, "scripted", capabilities);
    let session = editor.new_session(lab);
    let updates = [
        json!({"sessionUpdate": "plan", "entries": [{"content": "a", "priority": "high", "status": "pending"}]}),
        json!({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "a"}}),
        json!({"sessionUpdate": "current_mode_update", "currentModeId": "plan"}),
        json!({"sessionUpdate": "session_info_update", "title": "a"}),
        json!({"sessionUpdate": "usage_update", "used": 1, "size": 2}),
        json!({"sessionUpdate": "available_commands_update", "availableCommands": [{"name": "undo", "description": "a"}]}),
    ];
    let line = |update: &Value| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":$S,"update":{update}}}}}"#
        )
    };
    let mut script: Vec<String> = updates.iter().map(line).collect();
    script.push(
        r#"{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{"sessionId":$S,"mode":"form","message":"which?","requestedSchema":{"type":"object","properties":{"a":{"type":"string"}}}}}"#
            .to_owned(),
    );
    script.push("await 7".to_owned());
    let prompt = editor.begin_prompt(&session, &script.join("\n"));
    if capabilities["elicitation"].is_object() {
        let question = editor.until_asked("elicitation/create");
        editor.answer(&question, json!({"action": "accept", "content": {"a": "b"}}));
    } else {
        editor.until(|message| {
            message["params"]["update"]["content"]["text"]
                .to_string()
                .contains("which?")
        });
        lab.sessionctl(&["cancel", &session]);
    }
    editor.finish(prompt).result();
    editor
}

#[test]
#[ignore = "installs the real adapter"]
fn every_message_to_an_editor_fits_the_schema() {
    let lab = or_skip!(ClientLab::new());
    let config = format!(
        "default_agent = \"loopback\"\n[agents.scripted]\ncommand = '{}'\nkind = \"generic\"\nargs = [\"scripted-agent\"]\n\
         [agents.scripted.env]\nSCRIPTED_AGENT_LOG = \"scripted.log\"\n",
        test_programs::path().display()
    );
    fs::create_dir_all(lab.home.join("config")).expect("a folder");
    fs::write(lab.home.join("config/config.toml"), config).expect("a configuration");
    let mut messages = String::new();
    for capabilities in [json!({}), everything()] {
        let mut editors = live(&lab, &capabilities);
        editors.push(scripted(&lab, &capabilities));
        for editor in editors {
            for line in &editor.received {
                let message: Value = serde_json::from_str(line).expect("JSON");
                let answered = || editor.methods.get(&message["id"].as_u64()?).map(String::as_str);
                let method = message["method"].as_str().or_else(answered);
                messages.push_str(&json!({"method": method, "message": message}).to_string());
                messages.push('\n');
            }
        }
    }
    // A wrong message, which a checker that checks nothing would accept.
    let wrong = r#"{"method":"session/list","message":{"jsonrpc":"2.0","id":1,"result":{}}}"#;
    messages.push_str(wrong);
    let received = lab.home.join("received.jsonl");
    fs::write(&received, messages).expect("the messages written");
    let script = Path::new(SCRIPTS).join("schema.mjs");
    let arguments = [&script, &lab.clients.ajv, &lab.clients.schemas, &received].map(|path| text(path));
    let misfits = said(&lab.run(&lab.clients.node, &arguments));
    let expected = "ListSessionsResponse: data must have required property 'sessions'\n";
    let message = misfits.strip_prefix(expected);
    let message = message.unwrap_or_else(|| panic!("{misfits}"));
    assert!(!message.contains('\n'), "{misfits}");
}
