//! Agents: what is told of them, signing in and out.

use bridge_protocol::error::ErrorKind;
use serde_json::{Value, json};

use crate::home::Home;
use crate::scripted;
use crate::support::refused;

#[tokio::test]
async fn the_agents_are_listed_with_what_they_can_do_once_they_have_run() {
    let home = Home::with_config("[agents.missing]\ncommand = \"/nonexistent/agent\"\nargs = [\"--acp\"]\n");
    let daemon = home.start();
    let app = daemon.app().await;
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

    let id = app.make(&home.project()).await;
    app.send(id, "x").await;
    let after = agents(app.call("agent/list", json!({})).await.unwrap());
    let loopback = named(&after, "loopback");
    assert_eq!(loopback["running"], true);
    assert_eq!(loopback["capabilities"]["loadSession"], true);
    assert_eq!(loopback["authMethods"][0]["id"], "loopback-login");
}

#[tokio::test]
async fn signing_in_goes_by_the_agents_own_methods() {
    let home = Home::new();
    let daemon = home.start();
    let app = daemon.app().await;
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
        "Unknown auth method",
    );
    assert_eq!(error.details["upstream"]["code"], -32602);
}

/// F1: signing out loses no conversation, unless the user asks for that.
#[tokio::test]
async fn signing_out_clears_chains_only_when_asked() {
    let home = Home::with_config("[agents.second]\nkind = \"loopback\"\n");
    let daemon = home.start();
    let app = daemon.app().await;
    let id = app.make(&home.project()).await;
    let other = app
        .make_with(&home.project(), json!({"agent": "second"}))
        .await
        .id;
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
        "another agent's are left alone"
    );
    assert_eq!(app.recall(id).await, []);
    assert_eq!(app.remembered(other).await, ["of another agent"]);
}

/// An agent that refuses to open a session is told in its own words, and nothing is left of the try.
#[tokio::test]
async fn an_agent_that_refuses_a_new_session_is_told_in_its_own_words() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let daemon = home.start();
    let app = daemon.app().await;
    let id = app
        .make_with(&home.project(), json!({"agent": "scripted"}))
        .await
        .id;
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
        let told = refused(
            app.try_send(id, "\n").await,
            kind,
            error["message"].as_str().unwrap(),
        );
        if kind == ErrorKind::AgentError {
            assert_eq!(told.details["upstream"], error);
        }
        let conversation = app.get(id).await;
        assert_eq!((conversation.chain_length, conversation.live), (0, false));
    }
    std::fs::remove_file(&refusal).unwrap();
    assert!(app.send(id, "\n").await.failure.is_none());
}
