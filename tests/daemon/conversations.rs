//! Making, listing, reading and updating conversations.

use bridge_protocol::conversation::ConversationState;
use bridge_protocol::error::ErrorKind;
use bridge_protocol::event::Event;
use bridge_protocol::turn::StopReason;
use serde_json::{Value, json};

use crate::home::Home;
use crate::support::{App, refused_call};

async fn list(app: &App, params: Value) -> (Vec<String>, Option<Value>) {
    let page = app.call("conversation/list", params).await.unwrap();
    let conversations = page["conversations"].as_array().unwrap();
    let titles = conversations
        .iter()
        .map(|conversation| conversation["title"].as_str().unwrap().to_owned())
        .collect();
    (titles, page.get("nextCursor").cloned())
}

#[tokio::test]
async fn a_new_conversation_is_what_was_asked_for_and_opens_nothing() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let settings = json!({"model": "loop-2", "mode": "plan", "systemPrompt": "Be brief."});
    let with = json!({"title": "A title", "namespace": "an.app", "settings": settings});
    let made = app.make_with(&home.project(), with).await;
    assert_eq!(made, app.get(made.id).await);
    assert_eq!(made.agent.as_str(), "loopback");
    assert_eq!(made.cwd, home.project());
    assert_eq!(
        (made.title.as_str(), made.namespace.as_str()),
        ("A title", "an.app")
    );
    assert_eq!(
        (made.state, made.live, made.chain_length),
        (ConversationState::Idle, false, 0)
    );
    assert_eq!((made.head, made.parent, made.limit), (None, None, None));
    assert_eq!(serde_json::to_value(&made.settings).unwrap(), settings);
    assert_eq!(home.agents().len(), 0, "the agent was started too early");
}

#[tokio::test]
async fn a_new_conversation_may_be_opened_at_once() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let made = app.make_with(&home.project(), json!({"open": true})).await;
    assert!(
        made.live && made.head.is_some() && made.chain_length == 1,
        "{made:?}"
    );
    assert_eq!(
        made.settings.model.as_deref(),
        Some("loop-1"),
        "the agent's own model"
    );
    assert_eq!(made.settings.mode.as_deref(), Some("default"));
    let chain = app.chain(made.id).await;
    assert!(!chain[0].written, "link counts as written");
}

#[tokio::test]
async fn a_conversation_shows_the_usage_that_its_agent_last_reported() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&[]).await;
    assert_eq!(app.get(id).await.usage, None);
    app.send(id, "one").await;
    let first = app.get(id).await.usage.unwrap();
    app.send(id, &"longer ".repeat(1_000)).await;
    let usage = app.get(id).await.usage.unwrap();
    assert!(
        first.used < usage.used && usage.used < usage.size,
        "{first:?} {usage:?}"
    );
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    assert_eq!(app.get(id).await.usage, Some(usage));
}

/// F3, F42: the session's id is in the chain before the first prompt is sent, and stays there even if the turn fails.
#[tokio::test]
async fn the_upstream_id_is_kept_although_the_first_turn_fails() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&[]).await;
    let turn = app.send(id, "[[fail network]]").await;
    assert_eq!(turn.stop_reason, StopReason::Failed);
    let chain = app.chain(id).await;
    assert_eq!(chain.len(), 1);
    assert_eq!(chain[0].upstream_id, turn.upstream_id);
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    assert_eq!(app.get(id).await.head, Some(turn.upstream_id));
}

#[tokio::test]
async fn the_list_is_newest_first_and_comes_in_pages() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let mut ids = Vec::new();
    for number in 0..7 {
        let made = app
            .make_with(&home.project(), json!({"title": format!("t{number}")}))
            .await;
        ids.push(made.id);
    }
    let mut seen = Vec::new();
    let mut cursor = Value::Null;
    let mut pages = 0;
    loop {
        let (titles, next) = list(&app, json!({"limit": 3, "cursor": cursor})).await;
        assert!(titles.len() <= 3);
        seen.extend(titles);
        pages += 1;
        match next {
            Some(next) => cursor = next,
            None => break,
        }
    }
    assert_eq!(pages, 3);
    assert_eq!(seen, ["t6", "t5", "t4", "t3", "t2", "t1", "t0"]);

    app.send(ids[2], "now it is the newest").await;
    let (titles, _) = list(&app, json!({"limit": 2})).await;
    assert_eq!(titles, ["t2", "t6"]);
}

#[tokio::test]
async fn the_list_is_filtered_by_everything_that_is_named() {
    let home = Home::with_config("[agents.second]\nkind = \"loopback\"\n");
    let (_daemon, app) = home.opened().await;
    let other = home.folder_named("Elsewhere");
    app.make_with(&home.project(), json!({"title": "plain"})).await;
    app.make_with(&home.project(), json!({"title": "Spaced", "namespace": "an.app"}))
        .await;
    app.make_with(&other, json!({"title": "away"})).await;
    let second = app
        .make_with(&home.project(), json!({"title": "second", "agent": "second"}))
        .await;
    app.send(second.id, "[[limit 3600]]").await;
    let table = [
        (json!({"namespace": "an.app"}), vec!["Spaced"]),
        (json!({"namespace": ""}), vec!["second", "away", "plain"]),
        (json!({"agent": "second"}), vec!["second"]),
        (json!({"cwd": other}), vec!["away"]),
        (json!({"state": "limited"}), vec!["second"]),
        (json!({"state": "idle"}), vec!["away", "Spaced", "plain"]),
        (json!({"query": "SPACE"}), vec!["Spaced"]),
        (json!({"query": "elsewhere"}), vec!["away"]),
        (
            json!({"agent": "loopback", "query": "a"}),
            vec!["away", "Spaced", "plain"],
        ),
        (json!({"query": "nothing has this"}), vec![]),
    ];
    for (filter, expected) in table {
        assert_eq!(list(&app, filter.clone()).await.0, expected, "{filter}");
    }
    // Pages with a filter are full, although the filter leaves out some conversations.
    let (first, next) = list(&app, json!({"agent": "loopback", "limit": 2})).await;
    assert_eq!(first, ["away", "Spaced"]);
    let (last, end) = list(&app, json!({"agent": "loopback", "limit": 2, "cursor": next})).await;
    assert_eq!((last, end), (vec!["plain".to_owned()], None));
}

#[tokio::test]
async fn a_deleted_conversation_is_not_listed() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    app.make_with(&home.project(), json!({"title": "stays"})).await;
    let gone = app.make_with(&home.project(), json!({"title": "goes"})).await;
    app.call("conversation/delete", json!({"conversationId": gone.id}))
        .await
        .unwrap();
    assert_eq!(list(&app, json!({})).await.0, ["stays"]);
    let status = app.call("daemon/status", json!({})).await.unwrap();
    assert_eq!(status["conversations"], 1);
}

/// F5: a conversation is also found by an upstream id that is no longer its head.
#[tokio::test]
async fn a_conversation_is_found_by_prefix_and_by_any_id_that_it_ever_held() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    let first = app.send(id, "one").await.upstream_id;
    app.fork(id, true).await.unwrap();
    let second = app.send(id, "two").await.upstream_id;
    assert_ne!(first, second);
    let names = [
        id.to_string(),
        id.to_string()[..6].to_owned(),
        id.to_string()[..13].to_owned(),
        first.to_string(),
        first.to_string()[..8].to_owned(),
        first.to_string()[..13].to_owned(),
        second.to_string(),
        second.to_string()[..6].to_owned(),
    ];
    for name in names {
        let found = app.ask("conversation/get", &name).await;
        assert_eq!(found["conversation"]["id"], json!(id), "{name}");
    }
}

/// New settings reach the open session at once. If the agent refuses one, nothing changes.
#[tokio::test]
async fn an_update_takes_hold_of_the_open_session_or_of_nothing() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["open it"]).await;
    let update =
        json!({"conversationId": id, "title": "named", "settings": {"model": "loop-2", "mode": "plan"}});
    let updated = app.call("conversation/update", update).await.unwrap();
    assert_eq!(updated["conversation"]["title"], "named");
    let said: Value = serde_json::from_str(&app.say(id, "[[settings]]").await.words).unwrap();
    assert_eq!(
        (said["model"].as_str(), said["mode"].as_str()),
        (Some("loop-2"), Some("plan"))
    );

    let before = app.get(id).await;
    for settings in [
        json!({"mode": "chaos"}),
        json!({"model": "loop-9"}),
        json!({"config": {"colour": "red"}}),
    ] {
        let update = json!({"conversationId": id, "settings": settings});
        let call = settings.to_string();
        let error = refused_call(
            &call,
            app.call("conversation/update", update).await,
            ErrorKind::AgentError,
        );
        assert_eq!(error.detail("upstream")["code"], -32602);
        let setting = settings.get("config").unwrap_or(&settings).as_object().unwrap();
        assert_eq!(error.detail("setting"), *setting.keys().next().unwrap());
        let offered = error.detail("session");
        assert_eq!(offered["modes"]["availableModes"][1]["id"], "plan", "{error:?}");
        assert!(offered["configOptions"][0]["options"].is_array(), "{error:?}");
        assert_eq!(app.get(id).await.settings, before.settings);
    }
    let said: Value = serde_json::from_str(&app.say(id, "[[settings]]").await.words).unwrap();
    assert_eq!(
        (said["model"].as_str(), said["mode"].as_str()),
        (Some("loop-2"), Some("plan"))
    );
}

#[tokio::test]
async fn a_conversation_that_nobody_named_takes_the_name_that_the_agent_gives_it() {
    let home = Home::new();
    let (daemon, app, unnamed) = home.begun(&[]).await;
    let named = app.make_with(&home.project(), json!({"title": "mine"})).await.id;
    for id in [unnamed, named] {
        app.send(id, "the first words").await;
    }
    assert_eq!(app.get(unnamed).await.title, "the first words");
    assert_eq!(app.get(named).await.title, "mine");
    daemon.kill();
    let daemon = home.start();
    assert_eq!(daemon.app().await.get(unnamed).await.title, "the first words");
}

#[tokio::test]
async fn the_status_tells_what_runs() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&[]).await;
    let status = app.call("daemon/status", json!({})).await.unwrap();
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status["protocolVersion"], 1);
    assert_eq!(status["pid"], daemon.pid());
    assert_eq!(status["home"], home.path().to_str().unwrap());
    assert_eq!(status["socket"], json!(home.socket()));
    assert_eq!(
        (&status["conversations"], &status["live"], &status["agents"]),
        (&json!(1), &json!(0), &json!(0))
    );
    assert_eq!(status["store"]["ephemeral"], false);
    assert!(status["store"].get("failure").is_none(), "{status}");

    let mut events = app.events(id).await;
    assert!(matches!(
        events.next().await.event,
        Event::Snapshot {
            gap: false,
            running: None,
            ..
        }
    ));
    app.send(id, "x").await;
    let status = app.call("daemon/status", json!({})).await.unwrap();
    assert_eq!((&status["live"], &status["agents"]), (&json!(1), &json!(1)));
    assert!(status["store"]["sequence"].as_u64().unwrap() > 1);
    assert!(status["store"]["journalBytes"].as_u64().unwrap() > 0);
}

/// The folder is stored in its normal form, however it was written.
#[tokio::test]
async fn a_folder_is_kept_without_detours() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let project = home.project();
    home.folder_named("other");
    for given in [
        format!("{project}/"),
        format!("{project}/../project"),
        format!("{project}/./../other/..//project/."),
    ] {
        let made = app.make_with(&given, json!({})).await;
        assert_eq!(made.cwd, project, "{given}");
        let fork = json!({"conversationId": made.id, "cwd": given});
        let branch = app.call("conversation/fork", fork).await.unwrap();
        assert_eq!(branch["conversation"]["cwd"], json!(project), "{given}");
    }
    // The filter of a list accepts the same spellings, even after the folder was deleted.
    for given in [
        format!("{project}/"),
        format!("{project}/../project"),
        format!("{project}//."),
    ] {
        let found = list(&app, json!({"cwd": given})).await.0;
        assert_eq!(found.len(), 6, "{given}");
    }
    std::fs::remove_dir_all(&project).unwrap();
    let (found, _) = list(&app, json!({"cwd": format!("{project}/./")})).await;
    assert_eq!(found.len(), 6);
    assert_eq!(
        list(&app, json!({"cwd": format!("{project}/..")})).await.0.len(),
        0
    );
}
