//! Every line gets the answer that the protocol requires.

use serde_json::{Value, json};

use super::editor::{Editor, command};
use crate::home::Home;

#[test]
fn the_handshake_answers_the_version_that_is_spoken() {
    let home = Home::new();
    let _daemon = home.start();
    let mut editor = Editor::spawn(&mut command(&home, &[]));
    for version in [0, 1, 65535] {
        let answered = editor.call("initialize", json!({"protocolVersion": version}));
        let result = answered.result();
        assert_eq!(result["protocolVersion"], 1);
        let capabilities = &result["agentCapabilities"];
        assert_eq!(capabilities["loadSession"], true);
        let markers = json!({"list": {}, "resume": {}, "fork": {}, "close": {}, "delete": {}});
        assert_eq!(capabilities["sessionCapabilities"], markers);
        let content = json!({"image": true, "audio": false, "embeddedContext": true});
        assert_eq!(capabilities["promptCapabilities"], content);
        assert_eq!(result["authMethods"][0]["id"], "loopback-login");
        assert_eq!(result["agentInfo"]["name"], "sessiond");
        assert!(result["agentInfo"]["version"].is_string());
    }
    assert_eq!(
        home.agents().len(),
        1,
        "exactly one agent must be started, to ask for its sign-in methods"
    );
}

#[test]
fn ids_come_back_byte_for_byte_and_garbage_is_answered() {
    let home = Home::new();
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    for id in ["0", "9007199254740993", "\"a\\u0062\"", "-1.50", "\"\""] {
        editor.line(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"session/close","params":{{"sessionId":"none"}}}}"#
        ));
        let expected = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
        assert_eq!(editor.next_line(), expected);
    }
    let table = [
        ("garbage", -32700),
        (r#"{"jsonrpc":"2.0","id":1"#, -32700),
        ("[]", -32600),
        ("7", -32600),
        (r#"{"jsonrpc":"2.0","id":{},"method":"session/list"}"#, -32600),
    ];
    for (line, code) in table {
        editor.line(line);
        let answer = editor.next();
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&json!(null), &json!(code)),
            "{line}"
        );
    }
    editor.line(r#"{"jsonrpc":"2.0","id":5,"params":{}}"#);
    let answer = editor.next();
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!(5), &json!(-32600))
    );
    // Notifications, and answers to unknown requests, are not answered.
    editor.notify("some/thing", json!({}));
    editor.notify("session/cancel", json!({"sessionId": "none"}));
    editor.notify("$/cancel_request", json!({"requestId": 7}));
    editor.line(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
    let answered = editor.call("session/list", json!({}));
    assert_eq!(
        (answered.before.len(), answered.result()),
        (0, &json!({"sessions": []}))
    );
}

#[test]
fn unknown_sessions_and_methods_have_their_codes() {
    let home = Home::new();
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    let ids = ["", "no-such-session", "7f2c1f0e-5a63-4a56-9df6-1d0f6f7b2f11"];
    for id in ids {
        for method in [
            "load",
            "resume",
            "fork",
            "prompt",
            "set_mode",
            "set_model",
            "set_config_option",
        ] {
            let params = json!({
                "sessionId": id, "cwd": home.project(), "mcpServers": [], "modeId": "plan", "modelId": "m",
                "configId": "model", "value": "m", "prompt": [{"type": "text", "text": "hello"}],
            });
            let answered = editor.call(&format!("session/{method}"), params);
            assert_eq!(answered.code(), -32002, "{method} {id:?}");
        }
        for method in ["close", "delete"] {
            let answered = editor.call(&format!("session/{method}"), json!({"sessionId": id}));
            assert_eq!(answered.result(), &json!({}), "{method} {id:?}");
        }
    }
    // The agent's parser would reject this line without naming the request, which would then stay open.
    let nested = (0..120).fold(json!({}), |nested, _| json!({"in": nested}));
    let nested = json!([{"type": "text", "text": "one", "_meta": nested}]);
    for (method, params, code) in [
        (
            "session/prompt",
            json!({"sessionId": "any", "prompt": nested}),
            -32602,
        ),
        ("session/attach", json!({}), -32601),
        ("_some/method", json!({}), -32601),
        ("session/new", json!({"mcpServers": []}), -32602),
        (
            "session/new",
            json!({"cwd": "relative", "mcpServers": []}),
            -32602,
        ),
        (
            "session/new",
            json!({"cwd": "/no/such/folder", "mcpServers": []}),
            -32602,
        ),
        ("session/prompt", json!({}), -32602),
        ("session/list", json!({"cursor": "7"}), -32602),
    ] {
        assert_eq!(
            editor.call(method, params.clone()).code(),
            code,
            "{method} {params}"
        );
    }
    let listed = editor.call("session/list", json!({}));
    assert_eq!(
        listed.result(),
        &json!({"sessions": []}),
        "a refused request has created a session"
    );
}

#[test]
fn an_id_that_is_used_again_in_flight_loses_no_request() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    let prompt = |editor: &mut Editor, text: &str| {
        let params = json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]});
        let request = json!({"jsonrpc": "2.0", "id": 7, "method": "session/prompt", "params": params});
        editor.line(&request.to_string());
    };
    prompt(&mut editor, "[[ask may I]]");
    prompt(&mut editor, "[[say begun]] [[hang]]");
    let asked = editor.until_permission_asked();
    editor.allow(&asked);
    assert_eq!(editor.finish(7).result()["stopReason"], "end_turn");
    editor.until_said("begun");
    editor.notify("$/cancel_request", json!({"requestId": 7}));
    assert_eq!(editor.finish(7).result()["stopReason"], "cancelled");
}

#[test]
fn parameters_that_are_null_are_none() {
    let home = Home::new();
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    editor.line(r#"{"jsonrpc":"2.0","id":1,"method":"session/list","params":null}"#);
    assert_eq!(editor.finish(1).result(), &json!({"sessions": []}));
    editor.line(r#"{"jsonrpc":"2.0","id":2,"method":"session/list"}"#);
    assert_eq!(editor.finish(2).result(), &json!({"sessions": []}));
}

/// Such a line is not parsed as a whole, but a request must not stay open.
#[test]
fn a_request_that_is_nested_too_deeply_is_refused_under_its_id() {
    const LEVELS: usize = 600;
    let home = Home::new();
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    let nested = format!("{}1{}", r#"{"a":"#.repeat(LEVELS), "}".repeat(LEVELS));
    for id in [r#""deep""#, "7"] {
        editor.line(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"session/list","params":{{"_meta":{nested}}}}}"#
        ));
        let refused = editor.next();
        assert_eq!(
            (refused["id"].to_string(), &refused["error"]["code"]),
            (id.to_owned(), &json!(-32600))
        );
    }
    // An answer of the editor gets no answer.
    editor.line(&format!(r#"{{"jsonrpc":"2.0","id":7,"result":{nested}}}"#));
    assert_eq!(editor.call("session/list", json!({})).before, [] as [Value; 0]);
}

#[test]
fn the_error_of_a_missing_parameter_names_no_position() {
    let home = Home::new();
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    editor.line(r#"{"jsonrpc":"2.0","id":1,"method":"session/new"}"#);
    let refused = editor.finish(1);
    assert_eq!(refused.answer["error"]["message"], "missing field `cwd`");
}
