//! Rules of the wire contract that apply to all methods: parameters, times, names, repeated calls.

use std::collections::BTreeSet;
use std::fs;

use bridge_protocol::error::ErrorKind;
use serde_json::{Value, json};

use crate::home::Home;
use crate::support::refused;

/// Collects the times in a value: all members that are called `at`, `…At` or `until`.
fn times(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member.as_str() {
                    Some(text) if name == "at" || name == "until" || name.ends_with("At") => {
                        found.push(text.to_owned());
                    }
                    _ => times(member, found),
                }
            }
        }
        Value::Array(elements) => elements.iter().for_each(|element| times(element, found)),
        _ => {}
    }
}

#[tokio::test]
async fn an_unknown_parameter_is_refused_with_the_nearest_name() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["one"]).await;
    for (method, parameter, nearest) in [
        ("conversation/fork", "inplace", Some("`inPlace`")),
        ("conversation/fork", "in_place", Some("`inPlace`")),
        ("conversation/fork", "chekpoint", None),
        ("conversation/prompt", "onbusy", Some("`onBusy`")),
        ("conversation/reset", "force", None),
        ("daemon/status", "verbose", None),
        ("conversation/subscribe", "conversation", Some("`conversationId`")),
    ] {
        let mut params = json!({});
        if method != "daemon/status" && method != "conversation/subscribe" {
            params["conversationId"] = json!(id);
        }
        params[parameter] = json!(true);
        let error = refused(app.call(method, params).await, ErrorKind::InvalidParams);
        assert_eq!(error.detail("parameter"), parameter, "{method}");
        // The contract promises that the message contains the name.
        if let Some(nearest) = nearest {
            assert!(error.message.contains(nearest), "{}", error.message);
        }
    }
    // The refused calls did nothing.
    let listed = app.call("conversation/list", json!({})).await.unwrap();
    assert_eq!(listed["conversations"].as_array().unwrap().len(), 1);
    assert_eq!(app.recall(id).await.len(), 1);
}

/// Only what belongs to the agent passes unchecked: its configuration options, and objects in ACP's form.
#[tokio::test]
async fn an_unknown_setting_is_refused_with_the_nearest_name() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let id = app.make(&home.project()).await;
    let before = app.get(id).await;
    for (setting, nearest) in [("systemprompt", Some("`systemPrompt`")), ("neverHeardOf", None)] {
        for (method, mut params) in [
            ("conversation/new", json!({"cwd": home.project()})),
            (
                "conversation/update",
                json!({"conversationId": id, "title": "new"}),
            ),
        ] {
            params["settings"] = json!({"mode": "default", setting: "loop-2"});
            let error = refused(app.call(method, params).await, ErrorKind::InvalidParams);
            assert_eq!(
                error.detail("parameter"),
                format!("settings.{setting}"),
                "{method}"
            );
            // The contract promises that the message contains the name.
            if let Some(nearest) = nearest {
                assert!(error.message.contains(nearest), "{}", error.message);
            }
        }
    }
    assert_eq!(app.get(id).await, before);
    let listed = app.call("conversation/list", json!({})).await.unwrap();
    assert_eq!(listed["conversations"].as_array().unwrap().len(), 1);
    let server = json!({"name": "files", "command": "/bin/true", "args": [], "env": [], "neverHeardOf": 1});
    let settings = json!({"config": {"neverHeardOf": "1"}, "mcpServers": [server]});
    let made = app
        .make_with(&home.project(), json!({"settings": settings}))
        .await;
    assert_eq!(json!(made.settings), settings);
}

#[tokio::test]
async fn every_time_has_three_fraction_digits() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&[]).await;
    let mut raw = daemon.raw().await;
    raw.subscribe(id).await;
    let later = "2099-01-01T00:00:00Z";
    app.send(id, "one").await;
    app.send(id, "two").await;
    let continued = json!({"conversationId": id, "at": later, "text": "go"});
    let mut answers = vec![app.call("conversation/continue", continued).await.unwrap()];
    for method in ["get", "chain", "lineage", "checkpoints", "history"] {
        answers.push(app.ask(&format!("conversation/{method}"), id).await);
    }
    answers.push(app.call("transcript/list", json!({})).await.unwrap());
    answers.push(raw.event("checkpointSaved").await);
    answers.push(app.ask("conversation/export", id).await);
    let mut found = Vec::new();
    for answer in &answers {
        let before = found.len();
        times(answer, &mut found);
        assert!(found.len() > before, "no time in {answer}");
    }
    for time in found {
        let is_fit = time.len() == "2026-11-24T03:57:09.123Z".len()
            && time.as_bytes()[19] == b'.'
            && time.ends_with('Z');
        assert!(is_fit, "{time}");
    }
}

#[tokio::test]
async fn a_repeated_call_returns_its_result_whatever_has_happened_to_its_folder() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["one"]).await;
    let folder = home.path().join("elsewhere");
    fs::create_dir(&folder).unwrap();
    let fork = json!({"conversationId": id, "cwd": folder, "requestId": "f1"});
    let new = json!({"cwd": folder, "requestId": "n1"});
    let first = app.call("conversation/fork", fork.clone()).await.unwrap();
    let made = app.call("conversation/new", new.clone()).await.unwrap();
    fs::remove_dir(&folder).unwrap();
    assert_eq!(app.call("conversation/fork", fork).await.unwrap(), first);
    assert_eq!(app.call("conversation/new", new).await.unwrap(), made);
    // A call that spells out defaults, or names the conversation in another way, is the same request.
    let prefix = &id.to_string()[..8];
    let again =
        json!({"conversationId": prefix, "cwd": folder, "requestId": "f1", "inPlace": false, "at": null});
    assert_eq!(app.call("conversation/fork", again).await.unwrap(), first);
    let other = json!({"conversationId": id, "cwd": folder, "requestId": "f1", "inPlace": true});
    refused(app.call("conversation/fork", other).await, ErrorKind::Conflict);
}

#[tokio::test]
async fn a_conversation_continues_now() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["one"]).await;
    let mut events = app.events(id).await;
    let now = json!({"conversationId": id, "at": "now", "text": "and on"});
    app.call("conversation/continue", now).await.unwrap();
    events.turn().await;
    assert_eq!(app.remembered(id).await, ["one", "and on"]);
}

#[tokio::test]
async fn a_reset_can_be_undone() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["one", "two"]).await;
    let head = app.get(id).await.head;
    app.ask("conversation/reset", id).await;
    assert_eq!(app.get(id).await.head, None);
    let undone = app.ask("conversation/undo", id).await;
    assert_eq!(
        (&undone["dropped"], app.get(id).await.head),
        (&json!(0), head.clone())
    );
    assert_eq!(app.remembered(id).await, ["one", "two"]);

    // A reset can also be undone after new turns, which are dropped.
    app.ask("conversation/reset", id).await;
    app.send(id, "three").await;
    let undone = app.ask("conversation/undo", id).await;
    assert_eq!((&undone["dropped"], app.get(id).await.head), (&json!(1), head));
    assert_eq!(app.remembered(id).await[..2], ["one", "two"]);
    let again = app.call("conversation/undo", json!({"conversationId": id})).await;
    refused(again, ErrorKind::Conflict);
}

/// The methods of the contract that change the conversation that they name.
fn changing(document: &Value) -> BTreeSet<&str> {
    let takes = |method: &Value, name: &str| {
        let mut params = method["params"].as_array().unwrap().iter();
        params.any(|param| param["name"] == name)
    };
    let methods = document["methods"].as_array().unwrap().iter();
    let changing = methods.filter(|method| takes(method, "conversationId") && takes(method, "requestId"));
    changing.map(|method| method["name"].as_str().unwrap()).collect()
}

/// Requests about one conversation are admitted in the order in which they arrive on a connection: one that is sent
/// between a prompt and the cancellation of its turn finds that turn running. A method that the contract adds is added
/// here too.
#[tokio::test]
async fn each_method_about_a_conversation_is_admitted_in_its_turn() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let document = app.call("rpc.discover", json!({})).await.unwrap();
    // Parts of a response that show that the turn was running and not cancelled yet.
    let busy = ("/error/data/kind", json!("busy"));
    let prompting = ("/result/conversation/state", json!("prompting"));
    let cancelled = ("/result/cancelled", json!(true));
    let table = [
        ("conversation/cancel", json!({}), &cancelled),
        ("conversation/close", json!({}), &busy),
        ("conversation/continue", json!({"at": "now"}), &busy),
        ("conversation/delete", json!({}), &busy),
        ("conversation/delete", json!({"transcripts": "delete"}), &busy),
        (
            "conversation/edit",
            json!({"at": "cp.loopback.x.y", "prompt": "x"}),
            &busy,
        ),
        ("conversation/fork", json!({"inPlace": true}), &busy),
        ("conversation/move", json!({"cwd": home.path()}), &busy),
        ("conversation/prompt", json!({"prompt": "x"}), &busy),
        ("conversation/reset", json!({}), &busy),
        ("conversation/resume", json!({}), &prompting),
        ("conversation/undo", json!({}), &busy),
        ("conversation/update", json!({"title": "x"}), &prompting),
        ("transcript/check", json!({"repair": true}), &busy),
    ];
    // The responses of these methods do not depend on a turn.
    let independent = [
        "conversation/export",
        "conversation/respond",
        "transcript/keep",
        "transcript/restore",
    ];
    let names = table.iter().map(|(method, ..)| *method).chain(independent);
    assert_eq!(names.collect::<BTreeSet<&str>>(), changing(&document));
    for (method, params, (place, sign)) in table {
        let id = app.begun(&home.project(), &["one"]).await;
        let calls = [
            ("conversation/prompt", json!({"prompt": "[[hang]]"})),
            (method, params),
            ("conversation/cancel", json!({})),
        ];
        let mut burst = String::new();
        for (number, (method, mut params)) in calls.into_iter().enumerate() {
            params["conversationId"] = json!(id);
            let call = json!({"jsonrpc": "2.0", "id": number, "method": method, "params": params});
            burst += &format!("{call}\n");
        }
        let mut raw = daemon.raw().await;
        raw.write(burst).await;
        let mut answers = [Value::Null, Value::Null, Value::Null];
        for _ in 0..answers.len() {
            let answer = raw.next().await;
            let number = answer["id"].as_u64().unwrap();
            answers[usize::try_from(number).unwrap()] = answer;
        }
        assert_eq!(answers[0]["result"]["stopReason"], "cancelled", "{method}");
        assert_eq!(answers[1].pointer(place), Some(sign), "{method}: {}", answers[1]);
        assert_eq!(answers[2]["result"]["cancelled"], true, "{method}");
        assert_eq!(app.remembered(id).await[0], "one", "{method} changes nothing");
    }
}
