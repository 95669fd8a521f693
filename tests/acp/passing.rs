//! What the protocol does not define is forwarded unchanged between editor and agent.

use serde_json::{Value, json};

use super::editor::{Editor, command, eventually, run};
use super::recorder::Recorder;
use crate::home::Home;
use crate::scripted;

/// Members that no version of the protocol defines, in an order and with numbers that a decoder would change.
const UNNAMED: &str = r#""_meta":{"z":1.50,"a":9007199254740993},"of tomorrow":[1E+2]"#;

/// Whether a line contains them. Searched in parts, because the daemon adds its own members to `_meta`.
fn has_unnamed(line: &str) -> bool {
    [r#""z":1.50,"a":9007199254740993"#, r#""of tomorrow":[1E+2]"#]
        .iter()
        .all(|part| line.contains(part))
}

#[test]
fn unnamed_parameters_reach_the_agent() {
    let home = Home::new();
    let recorder = Recorder::in_home(&home);
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    let folder = json!(home.path());
    editor.line(&format!(
        r#"{{"jsonrpc":"2.0","id":801,"method":"session/new","params":{{"cwd":{folder},"mcpServers":[],{UNNAMED}}}}}"#
    ));
    let session = editor.finish(801).session_id();
    let prompt = |id: u64, text: &str, members: &str| {
        let prompt = json!([{"type": "text", "text": text}]);
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"session/prompt","params":{{"sessionId":"{session}","prompt":{prompt},{members}}}}}"#
        )
    };
    editor.line(&prompt(802, "one", UNNAMED));
    editor.finish(802).result();
    // Members addressed to the daemon are not forwarded to the agent.
    editor.line(&prompt(803, "two", r#""_meta":{"sessiond":{}},"tomorrow":1.0"#));
    editor.finish(803).result();
    // Reopening a session repeats the parameters with which it was opened.
    run(&home, &["close", &session]);
    editor.prompt(&session, "three").result();

    let lines = recorder.all_lines();
    let sent = |method: &str| {
        let method = format!(r#""method":"{method}""#);
        let sent = lines.iter().filter(|line| line.contains(&method));
        sent.cloned().collect::<Vec<String>>()
    };
    for method in ["session/new", "session/resume"] {
        let opened = sent(method);
        assert!(!opened.is_empty(), "{method}: {lines:#?}");
        assert!(opened.iter().all(|line| has_unnamed(line)), "{opened:#?}");
    }
    let is_prompt = |text: &str| {
        let text = format!(r#""text":"{text}""#);
        sent("session/prompt")
            .into_iter()
            .find(|line| line.contains(&text))
            .unwrap()
    };
    assert!(has_unnamed(&is_prompt("one")), "{lines:#?}");
    assert!(is_prompt("two").contains(r#""tomorrow":1.0"#), "{lines:#?}");
    assert!(!is_prompt("two").contains("sessiond"), "{lines:#?}");
}

#[test]
fn unnamed_members_of_answers_reach_the_editor() {
    let home = Home::new();
    let script = format!(r#"s/"result":{{/"result":{{{UNNAMED},/"#);
    let _recorder = Recorder::filtered(&home, &format!("sed -u '{script}'"));
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    editor.new_session(&home);
    let opened = editor.received.last().unwrap().clone();
    assert!(has_unnamed(&opened), "{opened}");
    let session: serde_json::Value = serde_json::from_str(&opened).unwrap();
    let session = session["result"]["sessionId"].as_str().unwrap().to_owned();
    editor.prompt(&session, "one").result();
    let ended = editor.received.last().unwrap();
    assert!(has_unnamed(ended), "{ended}");
}

/// An edit by command keeps the attachments of the prompt.
#[test]
fn what_is_attached_to_an_edit_reaches_the_agent() {
    let home = Home::new();
    let recorder = Recorder::in_home(&home);
    let _daemon = home.start();
    let (mut editor, session) = Editor::after_one_turn(&home);
    let attached = json!({"type": "resource_link", "uri": "file:///notes.md", "name": "notes.md"});
    let prompt = json!([{"type": "text", "text": "/edit 1 two"}, attached]);
    let edited = editor.call("session/prompt", json!({"sessionId": session, "prompt": prompt}));
    assert_eq!(edited.result()["stopReason"], "end_turn");
    let lines = recorder.all_lines();
    let edit = lines
        .iter()
        .find(|line| line.contains(r#""text":"two""#))
        .unwrap();
    assert!(edit.contains("file:///notes.md"), "{edit}");
}

#[test]
fn unnamed_members_of_the_handshake_pass_both_ways() {
    let home = Home::new();
    let script = format!(
        r#"s/"result":{{"/"result":{{{UNNAMED},"/;s/"agentCapabilities":{{/"agentCapabilities":{{"of tomorrow":[1E+2],/"#
    );
    let recorder = Recorder::filtered(&home, &format!("sed -u '{script}'"));
    let _daemon = home.start();
    let mut editor = Editor::spawn(&mut command(&home, &[]));
    let info = r#""clientCapabilities":{},"clientInfo":{"name":"raw","version":"1"}"#;
    editor.line(&format!(
        r#"{{"jsonrpc":"2.0","id":801,"method":"initialize","params":{{"protocolVersion":1,{info},{UNNAMED}}}}}"#
    ));
    let about = editor.finish(801);
    let answer = editor.received.last().unwrap();
    assert!(has_unnamed(answer), "{answer}");
    assert_eq!(answer.matches(r#""of tomorrow":[1E+2]"#).count(), 2, "{answer}");
    let about = about.result();
    assert_eq!(about["agentInfo"]["name"], "sessiond");
    assert!(
        about["agentCapabilities"]["_meta"]["sessiond"].is_object(),
        "{about}"
    );
    editor.line(&format!(
        r#"{{"jsonrpc":"2.0","id":802,"method":"authenticate","params":{{"methodId":"loopback-login",{UNNAMED}}}}}"#
    ));
    editor.finish(802).result();
    let sent = recorder.lines_for("raw");
    for method in ["initialize", "authenticate"] {
        let method = format!(r#""method":"{method}""#);
        let line = sent.iter().find(|line| line.contains(&method)).unwrap();
        assert!(has_unnamed(line), "{line}");
    }

    // An editor that describes itself differently gets its own process.
    Editor::start(&home).new_session(&home);
    assert_eq!(recorder.processes(), 2);
}

#[test]
fn what_stands_beside_an_update_reaches_every_editor() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let _daemon = home.start();
    let (mut one, mut other) = (Editor::start(&home), Editor::start(&home));
    let session = one.new_session_of("scripted", &home);
    let beside = |session: &str, text: &str| {
        let update =
            json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}});
        format!(r#"{{"_meta":{{"z":1.50}},"sessionId":{session},"update":{update},"of tomorrow":[1E+2]}}"#)
    };
    let script = [
        format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{}}}"#,
            beside("$S", "first")
        ),
        r#"{"jsonrpc":"2.0","id":"r","method":"session/request_permission","params":{"sessionId":$S,"toolCall":{"toolCallId":"t"},"options":[]}}"#
            .to_owned(),
        r#"await "r""#.to_owned(),
        format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{}}}"#,
            beside("$S", "second")
        ),
    ];
    let turn = one.begin_prompt(&session, &script.join("\n"));
    let asked = one.until_permission_asked();
    other.on("session/load", &session, &home).result();
    one.answer(&asked, json!({"outcome": {"outcome": "cancelled"}}));
    one.finish(turn).result();
    other.until_said("second");
    for editor in [&one, &other] {
        for text in ["first", "second"] {
            let whole = format!(r#""params":{}}}"#, beside(&json!(session).to_string(), text));
            let mut lines = editor.received.iter();
            assert!(
                lines.any(|line| line.ends_with(&whole)),
                "{text}: {:#?}",
                editor.received
            );
        }
    }
}

#[test]
fn unnamed_methods_of_the_agent_reach_the_editor() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let _daemon = home.start();
    let (mut one, mut other) = (Editor::start(&home), Editor::start(&home));
    let session = one.new_session_of("scripted", &home);
    other.on("session/resume", &session, &home).result();
    let script = [
        r#"{"jsonrpc":"2.0","method":"_x\/told","params":{"n":1E+2,"sessionId":$S,"_meta":{"z":1.50}}}"#,
        r#"{"jsonrpc":"2.0","id":"r","method":"_x/ask","params":{"n":1E+2,"sessionId":$S}}"#,
        r#"await "r""#,
    ];
    let turn = one.begin_prompt(&session, &script.join("\n"));
    for editor in [&mut one, &mut other] {
        editor.until_asked("_x/told");
        let told = editor.received.last().unwrap();
        let params = format!(r#""params":{{"n":1E+2,"sessionId":"{session}","_meta":{{"z":1.50}}}}}}"#);
        assert!(told.ends_with(&params), "{told}");
    }
    let asked = one.until_asked("_x/ask");
    let line = one.received.last().unwrap();
    let params = format!(r#""params":{{"n":1E+2,"sessionId":"{session}"}}}}"#);
    assert!(line.ends_with(&params), "{line}");
    let id = &asked["id"];
    one.line(&format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{ "n":1.50 }}}}"#
    ));
    one.finish(turn).result();
    let heard = scripted::heard_lines(&home, "scripted").join("\n");
    assert!(heard.contains(r#""id":"r","result":{ "n":1.50 }}"#), "{heard}");
    // Only the editor that runs the turn gets the request.
    other.prompt(&session, &scripted::chunk("next")).result();
    assert!(
        !other
            .received
            .iter()
            .any(|line| line.contains(r#""method":"_x/ask""#))
    );
}

#[test]
fn unnamed_methods_of_the_editor_reach_the_agent() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    let session = editor.new_session_of("scripted", &home);
    let params = |session: &str| format!(r#"{{"n":1E+2,"sessionId":"{session}","_meta":{{"z":1.50}}}}"#);
    let message =
        |head: &str, session: &str| format!(r#"{{"jsonrpc":"2.0",{head},"params":{}}}"#, params(session));
    editor.line(&message(r#""method":"_x/told""#, &session));
    editor.line(&message(r#""id":801,"method":"_echo""#, &session));
    editor.finish(801);
    let echoed = editor.received.last().unwrap();
    // The daemon replaces the session's id by the agent's.
    let (before, after) = (r#""result":{"n":1E+2,"sessionId":"s"#, r#","_meta":{"z":1.50}}}"#);
    assert!(echoed.contains(before) && echoed.ends_with(after), "{echoed}");
    editor.line(&message(r#""id":802,"method":"session/of_tomorrow""#, &session));
    let refused = editor.finish(802);
    assert_eq!(refused.answer["error"]["message"], "not in the script");
    editor.line(&message(r#""id":803,"method":"_echo""#, "unknown"));
    assert_eq!(editor.finish(803).code(), -32002);
    assert_eq!(editor.call("_echo", json!({"n": 1})).code(), -32601);

    let silent = editor.begin("_silence", json!({"sessionId": session}));
    let heard = || scripted::heard(&home, "scripted");
    eventually(|| heard().iter().any(|message| message["method"] == "_silence"));
    editor.notify("$/cancel_request", json!({"requestId": silent}));
    assert_eq!(editor.finish(silent).code(), -32800);
    eventually(|| {
        heard()
            .iter()
            .any(|message| message["method"] == "$/cancel_request")
    });
    let heard = scripted::heard_lines(&home, "scripted").join("\n");
    assert!(
        heard.contains(r#""method":"_x/told","params":{"n":1E+2,"sessionId":"s"#),
        "{heard}"
    );
}

#[test]
fn unnamed_requests_about_a_session_that_the_editor_has_not_open_are_refused() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let _daemon = home.start();
    let (mut one, mut other) = (Editor::start(&home), Editor::start(&home));
    let session = one.new_session_of("scripted", &home);
    let params = json!({ "sessionId": session });
    other.notify("_x/told", params.clone());
    assert_eq!(other.call("_echo", params.clone()).code(), -32002);
    // A session whose agent process has ended is still open for its editor.
    run(&home, &["close", &session]);
    one.call("_echo", params.clone()).result();
    one.close(&session).result();
    assert_eq!(one.call("_echo", params).code(), -32002);
    let heard = scripted::heard(&home, "scripted");
    assert!(!heard.iter().any(|message| message["method"] == "_x/told"));
}

/// Sends as many requests as may be in flight at an agent.
#[test]
fn cancelled_requests_that_the_agent_never_answers_leave_room_for_others() {
    const IN_FLIGHT: usize = 4_096;
    const AT_ONCE: usize = 64;
    let home = Home::with_config(&scripted::configured("scripted", None));
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    let session = editor.new_session_of("scripted", &home);
    for _ in 0..IN_FLIGHT / AT_ONCE {
        let params = json!({ "sessionId": session });
        let mut open: Vec<u64> = (0..AT_ONCE)
            .map(|_| editor.begin("_silence", params.clone()))
            .collect();
        for silent in &open {
            editor.notify("$/cancel_request", json!({ "requestId": silent }));
        }
        editor.until(|message| {
            open.retain(|silent| message["id"] != *silent || message["error"]["code"] != -32800);
            open.is_empty()
        });
    }
    assert_eq!(editor.prompt(&session, &scripted::chunk("heard")).said(), "heard");
}

#[test]
fn unnamed_parameters_of_settings_and_cancellations_reach_the_agent() {
    let home = Home::new();
    let recorder = Recorder::in_home(&home);
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    let request = |id: u64, method: &str, members: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"sessionId":"{session}",{members},{UNNAMED}}}}}"#
        )
    };
    editor.line(&request(801, "session/set_mode", r#""modeId":"plan""#));
    editor.finish(801).result();
    let option = r#""configId":"model","value":"loop-2""#;
    editor.line(&request(802, "session/set_config_option", option));
    editor.finish(802).result();
    let turn = editor.begin_endless(&session);
    editor.line(&format!(
        r#"{{"jsonrpc":"2.0","method":"session/cancel","params":{{"sessionId":"{session}",{UNNAMED}}}}}"#
    ));
    assert_eq!(editor.finish(turn).result()["stopReason"], "cancelled");
    // The unknown parameters belong to one request only.
    let mode = json!({"sessionId": session, "modeId": "default"});
    editor.call("session/set_mode", mode).result();
    editor.line(&format!(
        r#"{{"jsonrpc":"2.0","id":803,"method":"logout","params":{{{UNNAMED}}}}}"#
    ));
    editor.finish(803).result();

    let lines = recorder.all_lines();
    let sent = |method: &str| {
        let method = format!(r#""method":"{method}""#);
        let sent = lines.iter().filter(|line| line.contains(&method));
        sent.map(|line| has_unnamed(line)).collect::<Vec<bool>>()
    };
    assert_eq!(sent("session/set_mode"), [true, false], "{lines:#?}");
    for method in ["session/set_config_option", "session/cancel", "logout"] {
        assert_eq!(sent(method), [true], "{method}: {lines:#?}");
    }
}

/// An editor may not know such a request, and may never answer it.
#[test]
fn an_unnamed_request_of_the_agent_is_answered_at_the_end_of_its_turn_at_the_latest() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let _daemon = home.start();
    let ask = |id: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"_x/ask","params":{{"sessionId":$S}}}}"#)
    };
    let cancelled_at_agent = |id: &str| {
        eventually(|| {
            let heard = scripted::heard(&home, "scripted");
            let mut answers = heard.iter().filter(|message| message["id"] == id);
            answers.any(|answer| answer["error"]["code"] == -32800)
        });
    };
    let mut editor = Editor::start(&home);
    let session = editor.new_session_of("scripted", &home);
    let turn = editor.begin_prompt(&session, &ask("ended"));
    let ended = editor.finish(turn);
    assert_eq!(ended.result()["stopReason"], "end_turn");
    let request = ended.before.iter().find(|message| message["method"] == "_x/ask");
    let withdrawn = |request: &Value, messages: &[Value]| {
        let mut withdrawals = messages
            .iter()
            .filter(|message| message["method"] == "$/cancel_request");
        withdrawals.any(|message| message["params"]["requestId"] == request["id"])
    };
    assert!(withdrawn(request.unwrap(), &ended.before), "{ended:?}");
    cancelled_at_agent("ended");

    let waiting = |id: &str| format!("{}\nawait \"{id}\"", ask(id));
    let turn = editor.begin_prompt(&session, &waiting("cancelled"));
    let request = editor.until_asked("_x/ask");
    editor.cancel(&session);
    let ended = editor.finish(turn);
    assert_eq!(ended.result()["stopReason"], "cancelled");
    assert!(withdrawn(&request, &ended.before), "{ended:?}");
    cancelled_at_agent("cancelled");

    editor.begin_prompt(&session, &waiting("closed"));
    let request = editor.until_asked("_x/ask");
    let closed = editor.close(&session);
    assert!(withdrawn(&request, &closed.before), "{closed:?}");
    cancelled_at_agent("closed");

    editor.begin_prompt(&session, &waiting("left"));
    editor.until_asked("_x/ask");
    editor.kill();
    cancelled_at_agent("left");
}

#[test]
fn a_notification_without_a_session_reaches_nobody() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    let session = editor.new_session_of("scripted", &home);
    editor.notify("_x/told", json!({"n": 1}));
    editor.line(r#"{"jsonrpc":"2.0","method":"_x/told"}"#);
    editor.line(r#"{"jsonrpc":"2.0","method":"session/cancel","params":{}}"#);
    let script = [
        r#"{"jsonrpc":"2.0","method":"_x/told","params":{"n":1}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","method":"_x/told"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"plan"}}}"#
            .to_owned(),
        scripted::chunk("done"),
    ];
    let ended = editor.prompt(&session, &script.join("\n"));
    assert_eq!(ended.said(), "done");
    // The title is the prompt, which is the script.
    let mut others = editor
        .received
        .iter()
        .filter(|line| !line.contains("session_info_update"));
    assert!(!others.any(|line| line.contains("_x/told") || line.contains("plan")));
    let heard = scripted::heard(&home, "scripted");
    let told = |message: &Value| message["method"] == "_x/told" || message["method"] == "session/cancel";
    assert!(!heard.iter().any(told), "{heard:#?}");
}

/// The agent gets what the editor sends with the fork, and not what it sent when it created the source.
#[test]
fn unnamed_parameters_of_a_fork_reach_the_agent() {
    let home = Home::new();
    let recorder = Recorder::in_home(&home);
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    let params = json!({"cwd": home.project(), "mcpServers": [], "of new": 1, "_meta": {"of new": 1}});
    let session = editor.call("session/new", params).session_id();
    editor.prompt(&session, "one").result();
    let folder = json!(home.project());
    for (id, members) in [(801, format!(",{UNNAMED}")), (802, String::new())] {
        editor.line(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"session/fork","params":{{"sessionId":"{session}","cwd":{folder},"mcpServers":[]{members}}}}}"#
        ));
        editor.finish(id).result();
    }
    let lines = recorder.all_lines();
    let forks = lines
        .iter()
        .filter(|line| line.contains(r#""method":"session/fork""#));
    let forks: Vec<&String> = forks.collect();
    assert_eq!(forks.len(), 2, "{lines:#?}");
    assert!(
        has_unnamed(forks[0]) && !forks[1].contains("tomorrow"),
        "{forks:#?}"
    );
    assert!(!forks.iter().any(|fork| fork.contains("of new")), "{forks:#?}");
}
