//! What a deleted conversation said and was set up with is in no file of the daemon's, if its transcripts were deleted too.

use std::fs;
use std::path::PathBuf;

use bridge_protocol::ConversationId;
use bridge_protocol::error::ErrorKind;
use serde_json::{Value, json};

use crate::carrying::files_below;
use crate::home::Home;
use crate::support::{App, refused};

/// What must not be found: a word of each title, prompt, answer and setting.
const SECRETS: [&str; 8] = [
    "secrettitle",
    "secretlater",
    "secretkey",
    "secretsystem",
    "secretprompt",
    "secretlong",
    "secretwaiting",
    "secretquestion",
];

/// The files below the data folder and the log that contain one of the secrets.
fn files_with_secrets(home: &Home) -> Vec<(PathBuf, &'static str)> {
    let mut found = Vec::new();
    for folder in [home.data(), home.path().join("log")] {
        for file in files_below(&folder) {
            // The socket of a running daemon cannot be read.
            let Ok(bytes) = fs::read(&file) else { continue };
            let has = |secret: &&&str| bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
            let secrets = SECRETS.iter().filter(has);
            found.extend(secrets.map(|secret| (file.clone(), *secret)));
        }
    }
    found
}

/// The call with which [`conversed`] begins.
fn first_call(home: &Home) -> Value {
    json!({
        "cwd": home.project(),
        "requestId": "made",
        "title": "a secrettitle",
        "settings": {
            "systemPrompt": "secretsystem",
            "mcpServers": [{
                "name": "x", "command": "/nowhere/x", "args": [],
                "env": [{"name": "KEY", "value": "secretkey"}],
            }],
        },
    })
}

/// A conversation that has said and held everything that a record can hold.
async fn conversed(home: &Home, app: &App) -> ConversationId {
    let made = app.call("conversation/new", first_call(home)).await.unwrap();
    let id: ConversationId = serde_json::from_value(made["conversation"]["id"].clone()).unwrap();
    let named = |request: &str| json!({"conversationId": id, "requestId": request});
    let prompt = |request: &str, text: &str| {
        let mut call = named(request);
        call["prompt"] = json!(text);
        call
    };
    let call = prompt("first", "a secretprompt");
    app.call("conversation/prompt", call).await.unwrap();
    let mut update = named("update");
    update["title"] = json!("secretlater");
    app.call("conversation/update", update).await.unwrap();
    // So long that it is a file of its own; of a turn that is cut short, which is remembered.
    let long = format!("[[fail network]] {}", "secretlong ".repeat(2_000));
    app.call("conversation/prompt", prompt("long", &long))
        .await
        .unwrap();
    id
}

#[tokio::test]
async fn nothing_of_a_conversation_that_was_deleted_with_its_transcripts_is_in_a_file() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let other = app.begun(&home.project(), &["stays"]).await;
    let id = conversed(&home, &app).await;
    let fork = json!({"conversationId": other, "requestId": "fork", "title": "a secrettitle"});
    let forked = app.call("conversation/fork", fork.clone()).await.unwrap();
    let namesake = json!({"cwd": home.project(), "title": format!("after {id}"), "requestId": "namesake"});
    let named = app.call("conversation/new", namesake.clone()).await.unwrap();
    // A question, and a prompt that waits behind it; the daemon is killed with both.
    let mut raw = daemon.raw().await;
    raw.run(id, "[[ask secretquestion?]]").await;
    raw.event("interruptRaised").await;
    let waiting =
        json!({"conversationId": id, "prompt": "secretwaiting", "requestId": "waiting", "onBusy": "queue"});
    raw.send("conversation/prompt", waiting).await;
    app.once(id, |conversation| conversation.queue.len() == 1).await;
    drop((raw, app));
    daemon.kill();

    let (daemon, app) = home.opened().await;
    let told = files_with_secrets(&home);
    for secret in SECRETS {
        assert!(
            told.iter().any(|(_, found)| *found == secret),
            "{secret} was never written"
        );
    }
    for deleted in [json!(id), forked["conversation"]["id"].clone()] {
        let delete = json!({"conversationId": deleted, "transcripts": "delete", "requestId": "delete"});
        let answer = app.call("conversation/delete", delete.clone()).await.unwrap();
        assert_eq!(answer, json!({}));
        assert_eq!(
            app.call("conversation/delete", delete).await.unwrap(),
            answer,
            "again"
        );
    }
    assert_eq!(files_with_secrets(&home), []);

    // Calls that made it, or were about it, are not carried out again.
    for (method, call) in [
        ("conversation/new", first_call(&home)),
        ("conversation/fork", fork),
    ] {
        refused(app.call(method, call).await, ErrorKind::NotFound);
    }
    // One that only names it was made by another call.
    let again = app.call("conversation/new", namesake).await.unwrap();
    assert_eq!(again["conversation"]["id"], named["conversation"]["id"]);
    assert_eq!(app.remembered(other).await, ["stays"]);
    let count = app.call("conversation/list", json!({})).await.unwrap();
    assert_eq!(count["conversations"].as_array().unwrap().len(), 2);
    drop((daemon, app));
    let (_daemon, app) = home.opened().await;
    assert_eq!(files_with_secrets(&home), []);
    assert_eq!(app.remembered(other).await[0], "stays");
}
