//! Settings: those that a client set, and those that the agent reports.

use bridge_protocol::error::ErrorKind;
use serde_json::{Value, json};

use crate::home::Home;
use crate::scripted;
use crate::support::{App, refused};

/// Settings that the agent reports are shown until newer ones are known, also after the agent or the daemon has ended.
/// They are not applied again, unless they replaced a setting of a client.
#[tokio::test]
async fn what_the_agent_reports_of_settings_is_shown_after_a_restart_too() {
    let capabilities = r#"{"sessionCapabilities":{"resume":{},"close":{}}}"#;
    let home = Home::with_config(&scripted::configured("reporter", Some(capabilities)));
    let (daemon, app) = home.opened().await;
    let plain = app.make_of(&home.project(), "loopback").await;
    app.send(plain, "one").await;
    let settings = json!({"systemPrompt": "Be brief.", "config": {"theme": "dark"}});
    let with = json!({"agent": "reporter", "settings": settings});
    let id = app.make_with(&home.project(), with).await.id;
    let options = json!([
        {"id": "model", "category": "model", "currentValue": "large"},
        {"id": "effort", "category": "thought_level", "currentValue": "high"},
        {"id": "theme", "currentValue": "light"},
        {"id": "essay", "currentValue": "long ".repeat(4_096)},
    ]);
    let update = json!({"sessionUpdate": "config_option_update", "configOptions": options});
    app.send(
        id,
        &format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":$S,"update":{update}}}}}"#
        ),
    )
    .await;
    let expected = [
        (plain, json!({"model": "loop-1", "mode": "default"})),
        (
            id,
            json!({"model": "large", "systemPrompt": "Be brief.", "config": {"effort": "high", "theme": "light"}}),
        ),
    ];
    let check = async |app: &App, when: &str| {
        for (id, settings) in &expected {
            let shown = serde_json::to_value(app.get(*id).await.settings).unwrap();
            assert_eq!(shown, *settings, "{when}");
            let page = app.call("conversation/list", json!({})).await.unwrap();
            let mut listed = page["conversations"].as_array().unwrap().iter();
            let listed = listed.find(|listed| listed["id"] == json!(id)).unwrap();
            assert_eq!(listed["settings"], *settings, "{when}, in the list");
        }
    };
    check(&app, "while it is open").await;
    app.close(id).await;
    check(&app, "closed").await;
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    check(&app, "after a restart").await;
    app.send(id, "{}").await;
    check(&app, "resumed by an agent that reports nothing then").await;
    let applied: Vec<Value> = scripted::heard(&home, "reporter")
        .into_iter()
        .filter(|line| line["method"] == "session/set_config_option")
        .map(|line| line["params"]["configId"].clone())
        .collect();
    assert_eq!(
        applied,
        ["theme", "theme"],
        "only a client's settings, and what replaced them, are applied"
    );
    app.ask("conversation/reset", id).await;
    let left = json!({"systemPrompt": "Be brief.", "config": {"theme": "light"}});
    assert_eq!(serde_json::to_value(app.get(id).await.settings).unwrap(), left);
}

/// The model can be set directly or as an option of the agent. The newest choice counts.
#[tokio::test]
async fn f36_of_two_ways_to_choose_a_model_the_newest_counts() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let as_model = |model: &str| json!({"model": model});
    let as_option = |model: &str| json!({"config": {"model": model}});
    for (first, then) in [
        (as_option("loop-2"), as_model("loop-1")),
        (as_model("loop-2"), as_option("loop-1")),
    ] {
        for is_closed in [false, true] {
            let case = format!("{first}, {then}, closed: {is_closed}");
            let id = app.begun(&home.project(), &["one"]).await;
            let set = async |settings: Value| {
                let params = json!({"conversationId": id, "settings": settings});
                app.call("conversation/update", params).await.unwrap();
            };
            set(first.clone()).await;
            if is_closed {
                app.close(id).await;
            }
            set(then.clone()).await;
            // A change is one request. A resume applies all settings.
            for mode in ["plan", "default"] {
                set(json!({"mode": mode})).await;
                let used = app.say(id, "[[settings]]").await.words;
                let used: Value = serde_json::from_str(&used).unwrap();
                assert_eq!(
                    (&used["model"], &used["mode"]),
                    (&json!("loop-1"), &json!(mode)),
                    "{case}"
                );
                assert_eq!(
                    app.get(id).await.settings.model.as_deref(),
                    Some("loop-1"),
                    "{case}"
                );
                app.close(id).await;
            }
        }
    }
}

/// The agent may drop an option in a new version.
#[tokio::test]
async fn an_option_that_the_agent_does_not_know_is_removed() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["one"]).await;
    app.close(id).await;
    let set = async |settings: Value| {
        let params = json!({"conversationId": id, "settings": settings});
        app.call("conversation/update", params).await.unwrap();
    };
    set(json!({"config": {"dropped": "x", "model": "loop-2"}})).await;
    let prompt = json!({"conversationId": id, "prompt": "two"});
    let error = refused(
        app.call("conversation/prompt", prompt).await,
        ErrorKind::AgentError,
    );
    assert_eq!(error.detail("setting"), "dropped");
    set(json!({"config": {"dropped": null}})).await;
    assert_eq!(app.say(id, "two").await.words, "echo: two");
    let settings = serde_json::to_value(app.get(id).await.settings).unwrap();
    assert_eq!(settings["config"], json!({"model": "loop-2"}));
    set(json!({"config": {"model": null}})).await;
    assert_eq!(app.get(id).await.settings.config, None);
}

/// An agent takes a system prompt, MCP servers and folders only when it opens a session.
#[tokio::test]
async fn a_new_system_prompt_and_new_servers_apply_to_the_next_turn_of_an_open_session() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&["one"]).await;
    let set = async |settings: Value| {
        let params = json!({"conversationId": id, "settings": settings});
        app.call("conversation/update", params).await.unwrap();
    };
    let used = async || {
        let said = app.say(id, "[[settings]]").await.words;
        let used: Value = serde_json::from_str(&said).unwrap();
        (used["systemPrompt"].clone(), used["mcpServers"].clone())
    };
    let server = json!({"name": "tools", "command": "/bin/true", "args": [], "env": []});
    set(json!({"systemPrompt": "Be brief."})).await;
    assert_eq!(used().await, (json!("Be brief."), json!(0)));
    // A running turn goes on in the session in which it began.
    let mut holder = daemon.raw().await;
    let (request, _) = holder.hang(id).await;
    set(json!({"mcpServers": [server]})).await;
    app.ask("conversation/cancel", id).await;
    assert_eq!(holder.answer(request).await["result"]["stopReason"], "cancelled");
    assert_eq!(used().await, (json!("Be brief."), json!(1)));
    // Settings that the session has already do not reopen it.
    let mut events = app.events(id).await;
    set(json!({"systemPrompt": "Be brief.", "mcpServers": [server]})).await;
    set(json!({"model": "loop-2"})).await;
    assert_eq!(app.send(id, "two").await.resumed, None);
    let seen = events.turn().await;
    assert!(seen.iter().all(|seen| seen.event.kind() != "closed"), "{seen:?}");
}
