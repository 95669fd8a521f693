//! Agents: listing them, errors of agents, signing in and out.

use std::fs;

use bridge_protocol::error::ErrorKind;
use serde_json::{Value, json};

use crate::home::Home;
use crate::scripted;
use crate::support::{refused, refused_call};

#[tokio::test]
async fn the_agents_are_listed_with_what_they_can_do_once_they_have_run() {
    let home = Home::with_config("[agents.missing]\ncommand = \"/nonexistent/agent\"\nargs = [\"--acp\"]\n");
    let (_daemon, app) = home.opened().await;
    let agents = |listed: Value| listed["agents"].as_array().unwrap().clone();
    let before = agents(app.call("agent/list", json!({})).await.unwrap());
    let named =
        |agents: &[Value], name: &str| agents.iter().find(|agent| agent["name"] == name).unwrap().clone();
    let missing = named(&before, "missing");
    assert_eq!(missing["kind"], "generic");
    assert_eq!(missing["command"], json!(["/nonexistent/agent", "--acp"]));
    assert_eq!(
        (&missing["found"], &missing["running"], &missing["default"]),
        (&json!(false), &json!(false), &json!(false))
    );
    let loopback = named(&before, "loopback");
    assert_eq!(
        (&loopback["found"], &loopback["running"], &loopback["default"]),
        (&json!(true), &json!(false), &json!(true))
    );
    assert!(loopback.get("capabilities").is_none());

    app.begun(&home.project(), &["x"]).await;
    let after = agents(app.call("agent/list", json!({})).await.unwrap());
    let loopback = named(&after, "loopback");
    assert_eq!(loopback["running"], true);
    assert_eq!(loopback["capabilities"]["loadSession"], true);
    assert_eq!(loopback["authMethods"][0]["id"], "loopback-login");
}

#[tokio::test]
async fn signing_in_goes_by_the_agents_own_methods() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let sign_in = |method: &str| json!({"agent": "loopback", "methodId": method});
    assert_eq!(
        app.call("agent/authenticate", sign_in("loopback-login"))
            .await
            .unwrap(),
        json!({})
    );
    let error = refused(
        app.call("agent/authenticate", sign_in("by-magic")).await,
        ErrorKind::AgentError,
    );
    assert_eq!(error.detail("upstream")["code"], -32602);
}

/// F1: signing out keeps every conversation's chain, unless the call asks for a reset.
#[tokio::test]
async fn signing_out_clears_chains_only_when_asked() {
    let home = Home::with_config("[agents.second]\nkind = \"loopback\"\n");
    let (_daemon, app, id) = home.begun(&[]).await;
    let other = app.make_of(&home.project(), "second").await;
    app.send(id, "mine").await;
    app.send(other, "of another agent").await;
    app.call("agent/logout", json!({"agent": "loopback"}))
        .await
        .unwrap();
    assert_eq!(app.remembered(id).await, ["mine"]);
    app.call("agent/logout", json!({"agent": "loopback", "reset": true}))
        .await
        .unwrap();
    assert_eq!(app.get(id).await.head, None);
    assert_eq!(app.lineage(id).await.len(), 2, "the lineage stays");
    assert_eq!(
        app.get(other).await.chain_length,
        1,
        "another agent's chain is kept"
    );
    assert_eq!(app.recall(id).await, []);
    assert_eq!(app.remembered(other).await, ["of another agent"]);
}

/// If an agent refuses to open a session, the error contains the agent's own message, and nothing of the attempt is
/// left.
#[tokio::test]
async fn an_agent_that_refuses_a_new_session_is_told_in_its_own_words() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let (_daemon, app) = home.opened().await;
    let id = app.make_of(&home.project(), "scripted").await;
    let refusal = home.path().join(scripted::REFUSE_NEW);
    let table = [
        (
            json!({"code": -32000, "message": "Authentication required"}),
            ErrorKind::AuthRequired,
        ),
        (
            json!({"code": -32603, "message": "Out of paper", "data": {"tray": [2]}}),
            ErrorKind::AgentError,
        ),
    ];
    for (error, kind) in table {
        std::fs::write(&refusal, error.to_string()).unwrap();
        let told = refused(app.try_send(id, "\n").await, kind);
        if kind == ErrorKind::AgentError {
            assert_eq!(told.detail("upstream"), error);
            let digits = "123456789012345678901234567890.10";
            let precise =
                format!(r#"{{"code":-32603,"message":"Out of paper","data":{{"z":{digits},"a":1e400}}}}"#);
            std::fs::write(&refusal, &precise).unwrap();
            let told = refused(app.try_send(id, "\n").await, kind);
            assert_eq!(told.details["upstream"].get(), precise, "details changed");
        }
        let conversation = app.get(id).await;
        assert_eq!((conversation.chain_length, conversation.live), (0, false));
    }
    std::fs::remove_file(&refusal).unwrap();
    assert!(app.send(id, "\n").await.failure.is_none());
}

/// Signing out with a reset clears all chains or none: if a conversation is busy, the call is refused before it changes
/// anything.
#[tokio::test]
async fn signing_out_with_a_reset_does_nothing_while_a_turn_runs() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let id = app.begun(&home.project(), &["kept"]).await;
        ids.push(id);
    }
    let mut holder = daemon.raw().await;
    let (held, _) = holder.hang(ids[1]).await;
    let logout = json!({"agent": "loopback", "reset": true});
    let error = refused(app.call("agent/logout", logout.clone()).await, ErrorKind::Busy);
    let told = error.detail("conversations");
    assert_eq!(told, json!([ids[1]]));
    for id in &ids {
        assert_eq!(app.get(*id).await.chain_length, 1, "nothing was cleared");
    }
    app.call("conversation/cancel", json!({"conversationId": ids[1]}))
        .await
        .unwrap();
    holder.answer(held).await;
    app.call("agent/logout", logout).await.unwrap();
    for id in &ids {
        assert_eq!(app.get(*id).await.chain_length, 0);
    }
}

/// Returns the configuration of an agent that runs this shell script. The daemon reads the script's stdout.
fn shell(name: &str, script: &str) -> String {
    format!("[agents.{name}]\ncommand = \"/bin/sh\"\nkind = \"generic\"\nargs = [\"-c\", '''{script}''']\n")
}

/// An agent with a different protocol version is refused with an error, and its process is ended.
#[tokio::test]
async fn an_agent_of_another_version_of_the_protocol_is_refused() {
    let script = r#"read line; id=${line#*\"id\":}; id=${id%%[,\}]*}
printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":2,"agentCapabilities":{}}}\n' "$id"
exec cat > heard.txt"#;
    let home = Home::with_config(&shell("future", script));
    let (_daemon, app) = home.opened().await;
    let id = app.make_of(&home.project(), "future").await;
    refused(app.try_send(id, "x").await, ErrorKind::AgentUnavailable);
    let left = home.processes();
    assert_eq!(left.len(), 1, "only the daemon is left: {left:?}");
    let heard = std::fs::read_to_string(home.path().join("heard.txt"));
    assert_eq!(heard.unwrap_or_default(), "", "calls after initialize");
}

/// Starting an agent that prints something other than messages fails quickly, and the error contains what it printed.
#[tokio::test]
async fn an_agent_that_prints_no_messages_is_given_up_soon() {
    let chatter =
        "i=0; while [ $i -lt 100 ]; do echo \"Welcome to line $i\"; i=$((i+1)); done; exec cat >/dev/null";
    let dies = "echo \"usage: agent [--acp]\"; echo \"no terminal\" >&2; exit 3";
    // With this timeout, a start that waits for it would take longer than any call of a test may.
    let limits = "[limits]\nagent_start_ms = 3600000\n";
    let home = Home::with_config(&format!(
        "{limits}{}{}",
        shell("chatter", chatter),
        shell("dies", dies)
    ));
    let (_daemon, app) = home.opened().await;
    for agent in ["chatter", "dies"] {
        let id = app.make_with(&home.project(), json!({"agent": agent})).await.id;
        refused_call(agent, app.try_send(id, "x").await, ErrorKind::AgentUnavailable);
    }
    let left = home.processes();
    assert_eq!(left.len(), 1, "only the daemon is left: {left:?}");
}

/// A session id that cannot be stored, or that another session already has, is an error of the agent and is recorded in
/// no history.
#[tokio::test]
async fn a_new_session_with_an_unfit_id_is_refused() {
    let home = Home::with_config(&scripted::configured(
        "scripted",
        Some(r#"{"loadSession":true,"sessionCapabilities":{"close":{}}}"#),
    ));
    let (_daemon, app) = home.opened().await;
    let make = async || app.make_of(&home.project(), "scripted").await;
    let give = |id: &Value| fs::write(home.path().join(scripted::NEXT_SESSION), id.to_string()).unwrap();
    let long = "x".repeat(2_000);
    for given in [
        json!(""),
        json!("  "),
        json!(7),
        json!(" a"),
        json!("a\u{0}b"),
        json!(long),
    ] {
        give(&given);
        let id = make().await;
        refused(app.try_send(id, "\n").await, ErrorKind::AgentError);
        assert_eq!(app.get(id).await.head, None);
    }
    give(&json!("same"));
    let first = make().await;
    app.send(first, "\n").await;
    let second = make().await;
    refused(app.try_send(second, "\n").await, ErrorKind::AgentError);
    // The first session still receives its updates.
    let update = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":$S,"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"heard"}}}}"#;
    assert_eq!(app.say(first, update).await.words, "heard");
    app.close(first).await;
    refused(app.try_send(second, "\n").await, ErrorKind::AgentError);
}
