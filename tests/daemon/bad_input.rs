//! Invalid input is refused with the right code and kind, whether a retry may help, and a message that says why.

use std::fs;

use bridge_protocol::conversation::ConversationState;
use bridge_protocol::error::ErrorKind;
use bridge_protocol::turn::StopReason;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::error_words;
use crate::home::Home;
use crate::scripted::{self, REFUSE_LOAD};
use crate::support::{Refusal, refused};
use crate::test_programs;

const UNKNOWN: &str = "00000000-0000-4000-8000-000000000000";

#[tokio::test]
async fn a_folder_that_cannot_be_used_is_refused() {
    let home = Home::new();
    let daemon = home.start();
    let mut raw = daemon.raw().await;
    let file = home.config_file();
    let missing = home.path().join("nowhere");
    let table = [
        "project",
        "",
        "~/project",
        missing.to_str().unwrap(),
        file.to_str().unwrap(),
    ];
    let id = daemon.app().await.make(&home.project()).await;
    for cwd in table {
        let (is_relative, mut expected) = (!cwd.starts_with('/'), Refusal(1004, "invalidCwd", false));
        let mut calls = vec![
            ("conversation/new", json!({"cwd": cwd})),
            ("conversation/fork", json!({"conversationId": id, "cwd": cwd})),
            ("conversation/move", json!({"conversationId": id, "cwd": cwd})),
        ];
        if is_relative {
            expected = Refusal(-32602, "invalidParams", false);
            // Lists accept a folder that does not exist, but not a relative path.
            calls.push(("conversation/list", json!({"cwd": cwd})));
            calls.push(("transcript/list", json!({"cwd": cwd})));
        }
        for (method, params) in calls {
            let data = raw.refused(method, params, expected).await;
            let parameter = if is_relative { json!("cwd") } else { Value::Null };
            assert_eq!(data["parameter"], parameter, "{method} {cwd}");
        }
    }
}

#[tokio::test]
async fn a_name_that_leads_nowhere_is_refused_by_every_method() {
    let home = Home::new();
    let daemon = home.start();
    let mut raw = daemon.raw().await;
    let app = daemon.app().await;
    let gone = app.make(&home.project()).await;
    app.ask("conversation/delete", gone).await;
    let with = |name: &str, more: Value| {
        let mut params = more;
        params["conversationId"] = json!(name);
        params
    };
    let methods = [
        ("get", json!({})),
        ("update", json!({"title": "x"})),
        ("prompt", json!({"prompt": "x"})),
        ("cancel", json!({})),
        ("resume", json!({})),
        ("fork", json!({})),
        ("chain", json!({})),
        ("lineage", json!({})),
        ("respond", json!({"interruptId": "x", "outcome": {}})),
        ("close", json!({})),
        ("reset", json!({})),
        ("delete", json!({})),
        ("subscribe", json!({})),
    ];
    for (method, params) in methods {
        let method = format!("conversation/{method}");
        for name in [UNKNOWN, "0123", "", "not an id"] {
            let expected = Refusal(1001, "notFound", false);
            raw.refused(&method, with(name, params.clone()), expected).await;
        }
        let gone = gone.to_string();
        for name in [&gone[..], &gone[..6]] {
            let expected = Refusal(1001, "notFound", false);
            let data = raw.refused(&method, with(name, params.clone()), expected).await;
            let at = data["deletedAt"].as_str().unwrap();
            assert!(at.parse::<Timestamp>().is_ok(), "{method}: {data}");
        }
    }
}

#[tokio::test]
async fn an_agent_that_is_not_configured_is_named_for_programs() {
    let home = Home::new();
    let daemon = home.start();
    let mut raw = daemon.raw().await;
    for (method, params) in [
        ("conversation/new", json!({"cwd": home.project(), "agent": "hal"})),
        ("agent/logout", json!({"agent": "hal"})),
        ("transcript/list", json!({"agent": "hal"})),
    ] {
        let data = raw
            .refused(method, params, Refusal(1001, "notFound", false))
            .await;
        assert_eq!(data["agent"], "hal", "{method}");
    }
}

#[tokio::test]
async fn a_prefix_that_fits_several_conversations_is_refused_with_all_of_them() {
    let home = Home::new();
    let ids = ["abcdef01", "abcdef02"].map(|start| format!("{start}-0000-4000-8000-000000000000"));
    test_programs::fill_store(&home.data(), &home.project(), Some("ses_shared"), &ids);

    let daemon = home.start();
    let mut raw = daemon.raw().await;
    let expected = Refusal(1002, "ambiguous", false);
    let data = raw
        .refused("conversation/get", json!({"conversationId": "abcdef"}), expected)
        .await;
    assert_eq!(data["candidates"], json!(ids));
    // Several conversations have this complete upstream id, so the caller cannot make it unambiguous by adding
    // characters.
    let shared = Refusal(1002, "ambiguous", false);
    let data = raw
        .refused(
            "conversation/get",
            json!({"conversationId": "ses_shared"}),
            shared,
        )
        .await;
    assert_eq!(data["candidates"], json!(ids));
    let longer = raw
        .ask("conversation/get", json!({"conversationId": "abcdef02"}))
        .await;
    assert_eq!(longer["result"]["conversation"]["id"], ids[1]);
    let short = Refusal(1001, "notFound", false);
    raw.refused("conversation/get", json!({"conversationId": "abcde"}), short)
        .await;
}

#[tokio::test]
async fn a_deleted_id_is_not_found_after_a_restart_either() {
    let home = Home::new();
    let (daemon, app, gone) = home.begun(&[]).await;
    app.ask("conversation/delete", gone).await;
    daemon.kill();
    let daemon = home.start();
    let get = json!({"conversationId": gone});
    let error = refused(
        daemon.app().await.call("conversation/get", get).await,
        ErrorKind::NotFound,
    );
    assert!(error.detail("deletedAt").is_string());
}

#[tokio::test]
async fn an_agent_that_is_not_configured_is_refused_with_those_that_are() {
    let home = Home::new();
    let daemon = home.start();
    let mut raw = daemon.raw().await;
    let expected = Refusal(1001, "notFound", false);
    raw.refused(
        "conversation/new",
        json!({"cwd": home.project(), "agent": "hal"}),
        expected,
    )
    .await;
    let sign_in = json!({"agent": "hal", "methodId": "x"});
    raw.refused("agent/authenticate", sign_in, expected).await;
    raw.refused("agent/logout", json!({"agent": "hal"}), expected)
        .await;
}

/// The agent answers `initialize` and then nothing else.
#[tokio::test]
async fn an_agent_that_opens_no_session_is_given_up_in_the_time_that_is_set_for_it() {
    let answer = r#"{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":1,"agentCapabilities":{}}}"#;
    let script = format!(
        r#"read -r line; id=${{line#*\"id\":}}; printf '{answer}\n' "${{id%%[,\}}]*}}"; cat >/dev/null"#
    );
    let home = Home::with_config(&format!(
        "[limits]\nsession_open_ms = 200\n[agents.mute]\ncommand = \"/bin/sh\"\nargs = [\"-c\", '''{script}''']\n"
    ));
    let (_daemon, app) = home.opened().await;
    let id = app.make_of(&home.project(), "mute").await;
    let error = app.try_send(id, "x").await.unwrap_err();
    error_words::check("an agent that opens no session", "agentError", &error.message);
    // The prompt was not sent, so it can be retried: a machine that is busy now may open a session later.
    assert_eq!((error.kind, error.retryable), (ErrorKind::AgentError, true));
}

/// The error contains the last lines that the agent's program wrote to stderr, which help the user to fix it.
#[tokio::test]
async fn an_agent_that_cannot_be_started_is_told_with_what_is_wrong_with_it() {
    let home = Home::with_config(
        "[limits]\nagent_start_ms = 300\n\
         [agents.missing]\ncommand = \"/nonexistent/agent\"\n\
         [agents.dying]\ncommand = \"/bin/sh\"\nargs = [\"-c\", \"echo 'no licence found' >&2; exit 3\"]\n\
         [agents.garbled]\ncommand = \"/bin/sh\"\nargs = [\"-c\", \"while read -r line; do echo nonsense; done\"]\n\
         [agents.silent]\ncommand = \"/bin/sh\"\nargs = [\"-c\", \"cat >/dev/null\"]\n\
         [agents.folder]\ncommand = \"/tmp\"\n",
    );
    let (_daemon, app) = home.opened().await;
    for agent in ["missing", "dying", "garbled", "silent", "folder"] {
        let id = app.make_with(&home.project(), json!({"agent": agent})).await.id;
        let error = refused(app.try_send(id, "x").await, ErrorKind::AgentUnavailable);
        let conversation = app.get(id).await;
        assert_eq!(conversation.state, ConversationState::Failed, "{agent}");
        if agent == "dying" {
            let message = &error.message;
            assert!(
                message.contains("no licence found") && message.contains("exit status: 3"),
                "{message}"
            );
        }
        assert_eq!(conversation.failure, Some(error.message), "{agent}");
        assert_eq!(conversation.head, None, "{agent}");
        let again = app
            .call("conversation/resume", json!({"conversationId": id}))
            .await;
        refused(again, ErrorKind::AgentUnavailable);
        assert_eq!(app.lineage(id).await, [], "{agent}: a failure is no change");
    }
}

#[tokio::test]
async fn what_is_no_request_gets_its_error_and_the_connection_goes_on() {
    let home = Home::new();
    let daemon = home.start();
    let mut raw = daemon.raw().await;
    let table = [
        ("garbage", -32700, "parseError"),
        ("{\"half\":", -32700, "parseError"),
        ("\u{0}\u{1}", -32700, "parseError"),
        ("17", -32600, "invalidRequest"),
        ("[]", -32600, "invalidRequest"),
        (r#"{"jsonrpc":"2.0"}"#, -32600, "invalidRequest"),
    ];
    for (line, code, kind) in table {
        raw.write(format!("{line}\n")).await;
        let answer = raw.next().await;
        Refusal(code, kind, false).check(&answer, line);
        assert!(answer["id"].is_null(), "{answer}");
    }
    // The daemon does not interpret the id of a call; it only echoes it.
    for id in ["-7", "-1.50", "2e3", "123456789012345678901234567890", "null"] {
        raw.write(format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"daemon/status\"}}\n"
        ))
        .await;
        let answer = raw.line().await;
        let is_echoed =
            answer.contains(&format!("\"id\":{id},")) || answer.ends_with(&format!("\"id\":{id}}}"));
        assert!(is_echoed && answer.contains("\"result\":"), "{id}: {answer}");
    }
    raw.write(b"\xff\xfe\n").await;
    Refusal(-32700, "parseError", false).check(&raw.next().await, "bad UTF-8");
    let status = raw.ask("daemon/status", json!({})).await;
    assert_eq!(status["result"]["pid"], daemon.pid());
}

#[tokio::test]
async fn a_prompt_of_20_megabytes_is_refused_with_its_id_and_the_connection_goes_on() {
    let home = Home::new();
    let daemon = home.start();
    let mut raw = daemon.raw().await;
    let id = daemon.app().await.make(&home.project()).await;
    let text = "x".repeat(20 * 1024 * 1024);
    let params = json!({"conversationId": id, "prompt": text});
    let data = raw
        .refused(
            "conversation/prompt",
            params,
            Refusal(-32600, "invalidRequest", false),
        )
        .await;
    assert_eq!(data["limitBytes"], 16 * 1024 * 1024);
    // The id may follow the oversized part of the line, or the line may have none.
    let text = "x".repeat(20 * 1024 * 1024);
    let id_last =
        format!(r#"{{"jsonrpc":"2.0","method":"x","params":{{"id":0,"text":"{text}"}},"id":"last"}}"#);
    for (line, expected) in [(id_last, json!("last")), (text, Value::Null)] {
        raw.write(line + "\n").await;
        let answer = raw.next().await;
        Refusal(-32600, "invalidRequest", false).check(&answer, "a line that is too long");
        assert_eq!(answer["id"], expected);
    }
    let status = raw.ask("daemon/status", json!({})).await;
    assert_eq!(status["result"]["pid"], daemon.pid());
    let chain = raw.ask("conversation/chain", json!({"conversationId": id})).await;
    assert_eq!(chain["result"]["links"], json!([]), "nothing was begun");
}

#[tokio::test]
async fn parameters_that_do_not_fit_their_method_are_refused() {
    let home = Home::new();
    let daemon = home.start();
    let mut raw = daemon.raw().await;
    let id = daemon.app().await.make(&home.project()).await;
    let of = |more: Value| {
        let mut params = more;
        params["conversationId"] = json!(id);
        params
    };
    let project = home.project();
    let folder = home.path().to_str().unwrap();
    let table = [
        ("conversation/prompt", of(json!({"prompt": []})), "prompt"),
        ("conversation/prompt", of(json!({"prompt": ""})), "prompt"),
        ("conversation/prompt", of(json!({"prompt": 7})), "prompt"),
        ("conversation/prompt", of(json!({"prompt": ["text"]})), "prompt"),
        ("conversation/prompt", of(json!({})), "prompt"),
        (
            "conversation/prompt",
            of(json!({"prompt": "x", "onBusy": "wait"})),
            "onBusy",
        ),
        (
            "conversation/prompt",
            of(json!({"prompt": "x", "minFidelity": "most"})),
            "minFidelity",
        ),
        (
            "conversation/prompt",
            of(json!({"prompt": "x", "requestId": ""})),
            "requestId",
        ),
        (
            "conversation/continue",
            of(json!({"at": "now", "text": ""})),
            "text",
        ),
        ("conversation/continue", of(json!({})), "at"),
        ("conversation/fork", of(json!({"at": "elsewhere"})), "at"),
        (
            "conversation/respond",
            of(json!({"interruptId": "x", "outcome": {}, "by": "agent"})),
            "by",
        ),
        ("conversation/new", json!({}), "cwd"),
        ("conversation/new", json!({"cwd": 7}), "cwd"),
        (
            "conversation/new",
            json!({"cwd": "/", "settings": {"model": []}}),
            "settings.model",
        ),
        ("conversation/new", json!([project]), ""),
        ("conversation/get", json!([id]), ""),
        (
            "conversation/new",
            json!({"cwd": project, "settings": {"additionalDirectories": ["relative"]}}),
            "settings.additionalDirectories",
        ),
        (
            "conversation/new",
            json!({"cwd": project, "settings": {"mcpServers": ["server"]}}),
            "settings.mcpServers",
        ),
        (
            "conversation/update",
            of(json!({"settings": {"additionalDirectories": ["relative"]}})),
            "settings.additionalDirectories",
        ),
        ("conversation/export", of(json!({"path": "relative"})), "path"),
        (
            "conversation/export",
            of(json!({"path": "/nonexistent/file"})),
            "path",
        ),
        (
            "conversation/import",
            json!({"path": "relative", "cwd": project}),
            "path",
        ),
        (
            "conversation/import",
            json!({"path": folder, "cwd": project}),
            "path",
        ),
        ("conversation/import", json!({"path": home.config_file()}), "cwd"),
        ("conversation/list", json!({"limit": 0}), "limit"),
        ("conversation/list", json!({"limit": 501}), "limit"),
        ("conversation/list", json!({"limit": -1}), "limit"),
        (
            "conversation/list",
            json!({"namespace": "", "limit": "many"}),
            "limit",
        ),
        ("conversation/list", json!({"cursor": "elsewhere"}), "cursor"),
        ("conversation/list", json!({"state": "asleep"}), "state"),
        ("conversation/lineage", of(json!({"limit": 0})), "limit"),
        ("conversation/history", of(json!({"last": 2000})), "last"),
        ("conversation/history", of(json!({"as": "songs"})), "as"),
        (
            "conversation/history",
            of(json!({"cursor": "elsewhere"})),
            "cursor",
        ),
        (
            "conversation/lineage",
            of(json!({"cursor": "elsewhere"})),
            "cursor",
        ),
        (
            "conversation/delete",
            of(json!({"transcripts": "burn"})),
            "transcripts",
        ),
        (
            "conversation/get",
            json!({"conversationId": {"id": 1}}),
            "conversationId",
        ),
        (
            "conversation/get",
            of(json!({"unheardOf": [1, {"deep": true}]})),
            "unheardOf",
        ),
        ("transcript/move", json!({"from": project, "to": project}), "to"),
        ("transcript/check", json!({}), "upstreamId"),
        ("transcript/forget", json!({"upstreamId": 7}), "upstreamId"),
        ("daemon/shutdown", json!({"graceMs": -1}), "graceMs"),
        ("transcript/restore", json!({"agent": "loopback"}), "agent"),
    ];
    for (method, params, parameter) in table {
        let expected = Refusal(-32602, "invalidParams", false);
        let shown = format!("{method} {params}");
        let data = raw.refused(method, params, expected).await;
        assert_eq!(
            data["parameter"].as_str().unwrap_or_default(),
            parameter,
            "{shown}"
        );
    }
    let unknown = Refusal(-32601, "methodNotFound", false);
    raw.refused("conversation/dance", json!({}), unknown).await;
}

#[tokio::test]
async fn what_this_version_does_not_offer_is_refused_as_unsupported() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let (daemon, app) = home.opened().await;
    let mut raw = daemon.raw().await;
    let expected = Refusal(1010, "unsupported", false);
    raw.refused("agent/logout", json!({"agent": "scripted"}), expected)
        .await;
    // An agent without forks and with transcripts that the daemon cannot read.
    let id = app.make_of(&home.project(), "scripted").await;
    app.send(id, "\n").await;
    for in_place in [true, false] {
        refused(app.fork(id, in_place).await, ErrorKind::Unsupported);
    }
    let head = app.get(id).await.head.unwrap();
    let at = format!("cp.scripted.{head}.record");
    let expected = Refusal(1010, "unsupported", false);
    raw.refused(
        "conversation/fork",
        json!({"conversationId": id, "at": at}),
        expected,
    )
    .await;
}

/// Returns JSON with this many levels of nesting.
fn nested(levels: usize) -> Value {
    (0..levels).fold(json!("inside"), |inner, _| json!([inner]))
}

/// Agents cannot parse a message with deeper nesting than their parsers allow, and their error response then has no id.
#[tokio::test]
async fn parameters_that_are_nested_too_deeply_are_refused() {
    let home = Home::new();
    let (daemon, _app, id) = home.begun(&[]).await;
    let mut raw = daemon.raw().await;
    let prompt = |levels| {
        let block = json!({"type": "text", "text": "hi", "_meta": {"deep": nested(levels)}});
        json!({"conversationId": id, "prompt": [block]})
    };
    let server = |levels| {
        let server =
            json!({"name": "m", "command": "/bin/true", "args": [], "env": [], "_meta": nested(levels)});
        json!({"cwd": home.project(), "settings": {"mcpServers": [server]}})
    };
    let refusal = Refusal(-32602, "invalidParams", false);
    for levels in [97, 130, 1_000] {
        let data = raw.refused("conversation/prompt", prompt(levels), refusal).await;
        assert_eq!(data["parameter"], "prompt");
        let data = raw.refused("conversation/new", server(levels), refusal).await;
        assert_eq!(data["parameter"], "settings");
    }
    let answer = raw.ask("conversation/prompt", prompt(96)).await;
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    let made = raw.ask("conversation/new", server(95)).await;
    let made = made["result"]["conversation"]["id"].clone();
    let answer = raw
        .ask(
            "conversation/prompt",
            json!({"conversationId": made, "prompt": "hi"}),
        )
        .await;
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
}

/// The agent did not keep a prompt that it could not read. A session with only that prompt has nothing to lose, so it
/// is replaced.
#[tokio::test]
async fn a_session_whose_only_prompt_could_not_be_read_is_replaced() {
    let capabilities = json!({"loadSession": true}).to_string();
    let home = Home::with_config(&scripted::configured("scripted", Some(&capabilities)));
    let (_daemon, app) = home.opened().await;
    for code in [-32700, -32600] {
        let id = app.make_of(&home.project(), "scripted").await;
        let error = json!({"code": code, "message": "not readable"});
        let turn = app
            .send(id, &format!(r#"{{"jsonrpc":"2.0","id":$P,"error":{error}}}"#))
            .await;
        assert_eq!(turn.stop_reason, StopReason::Failed, "{turn:?}");
        app.ask("conversation/close", id).await;
        let unknown = json!({"code": -32002, "message": "Resource not found"});
        fs::write(home.path().join(REFUSE_LOAD), unknown.to_string()).unwrap();
        let turn = app.send(id, &scripted::chunk("read")).await;
        assert_eq!(turn.stop_reason, StopReason::EndTurn, "{turn:?}");
        fs::remove_file(home.path().join(REFUSE_LOAD)).unwrap();
    }
}

/// An agent that cannot parse a line sends an error without an id. If the prompt was the last line that it got, the
/// error can only refer to the prompt.
#[tokio::test]
async fn an_error_without_an_id_ends_the_prompt_that_it_can_only_mean() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let (daemon, app) = home.opened().await;
    let id = app.make_of(&home.project(), "scripted").await;
    let error = json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "recursion limit exceeded"}});
    let mut raw = daemon.raw().await;
    let prompt = json!({"conversationId": id, "prompt": format!("{error}\nhold")});
    let answer = raw.ask("conversation/prompt", prompt).await;
    assert!(
        answer["error"].is_object() || answer["result"]["stopReason"] == "failed",
        "{answer}"
    );
    assert!(
        answer.to_string().contains("recursion limit exceeded"),
        "{answer}"
    );

    // If the agent has sent anything since the prompt, it has read the prompt, and the error refers to something else,
    // for example to the daemon's refusal of its request. The turn continues.
    let update =
        json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "begun"}});
    let update = json!({"sessionId": "S", "update": update});
    let update = json!({"jsonrpc": "2.0", "method": "session/update", "params": update})
        .to_string()
        .replace("\"S\"", "$S");
    for sent in [
        update.clone(),
        json!({"jsonrpc": "2.0", "id": 7, "method": "fs/unknown", "params": {}}).to_string(),
        json!({"jsonrpc": "2.0", "method": "unknown", "params": {}}).to_string(),
        json!({"jsonrpc": "2.0"}).to_string(),
    ] {
        let script = format!("{sent}\n{error}\n{update}\nhold");
        let (request, _) = raw.run(id, &script).await;
        raw.event("update").await;
        assert_eq!(app.get(id).await.state, ConversationState::Prompting, "{sent}");
        app.ask("conversation/cancel", id).await;
        assert_eq!(
            raw.answer(request).await["result"]["stopReason"],
            "cancelled",
            "{sent}"
        );
    }
}

/// If a response is nested more deeply than parsers allow, the prompt ends with an error; such an update is passed on.
/// No call hangs, and the agent's process stays.
#[tokio::test]
async fn answers_of_an_agent_that_are_nested_too_deeply_end_the_prompt_with_an_error() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let (daemon, app) = home.opened().await;
    let id = app.make_of(&home.project(), "scripted").await;
    app.send(id, "\n").await;
    let processes = home.processes();
    for levels in [129, 300, 505] {
        let deep = deep(levels);
        let answers = [
            format!(r#""result":{{"stopReason":"end_turn","_meta":{deep}}}"#),
            format!(r#""result":{deep}"#),
            format!(r#""error":{{"code":-32000,"message":"out of order","data":{deep}}}"#),
        ];
        for answer in answers {
            let script = format!(r#"{{"jsonrpc":"2.0","id":$P,{answer}}}"#);
            let turn = app.send(id, &script).await;
            assert_eq!(turn.stop_reason, StopReason::Failed, "{levels}: {turn:?}");
            assert!(turn.failure.is_some(), "{levels}: {turn:?}");
        }
        let update =
            format!(r#"{{"sessionUpdate":"tool_call","toolCallId":"t","title":"t","rawInput":{deep}}}"#);
        let script = format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":$S,"update":{update}}}}}"#
        );
        let mut raw = daemon.raw().await;
        raw.subscribe(id).await;
        let prompt = json!({"conversationId": id, "prompt": script});
        raw.send("conversation/prompt", prompt).await;
        // The test's own parser cannot read this line, so it is compared as text.
        while !raw.line().await.contains(&format!("{update}}}")) {}
        app.once(id, |conversation| conversation.state == ConversationState::Idle)
            .await;
    }
    assert_eq!(app.send(id, "\n").await.stop_reason, StopReason::EndTurn);
    assert_eq!(home.processes(), processes, "the agent's process changed");
}

/// Returns nested arrays, deeper than parsers allow.
fn deep(levels: usize) -> String {
    "[".repeat(levels) + &"]".repeat(levels)
}

/// A line that is nested too deeply for the daemon is skipped. If it is a response, the wait for it ends; if it is a
/// question, the question is refused.
#[tokio::test]
async fn lines_of_an_agent_that_are_too_deep_to_read_keep_nobody_waiting() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let (_daemon, app) = home.opened().await;
    let id = app.make_of(&home.project(), "scripted").await;
    for levels in [600, 100_000] {
        let deep = deep(levels);
        let asked = format!(
            r#"{{"jsonrpc":"2.0","id":"q{levels}","method":"session/request_permission","params":{{"sessionId":$S,"options":{deep}}}}}"#
        );
        let turn = app.send(id, &format!("{asked}\nawait \"q{levels}\"")).await;
        assert_eq!(turn.stop_reason, StopReason::EndTurn, "{levels}: {turn:?}");
        let answered =
            format!(r#"{{"jsonrpc":"2.0","id":$P,"result":{{"stopReason":"end_turn","_meta":{deep}}}}}"#);
        let turn = app.send(id, &answered).await;
        assert_eq!(turn.stop_reason, StopReason::Failed, "{levels}: {turn:?}");
        let failure = turn.failure.unwrap();
        assert!(failure.message.contains("nested"), "{failure:?}");
    }
    assert_eq!(app.send(id, "\n").await.stop_reason, StopReason::EndTurn);
}
