//! Erasure: after a conversation was deleted with its transcripts, no file of the daemon contains its messages or
//! settings.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use bridge_protocol::ConversationId;
use bridge_protocol::error::ErrorKind;
use serde_json::{Value, json};

use super::keeping::{lose, once_kept};
use crate::carrying::files_below;
use crate::home::Home;
use crate::support::{App, Refusal, refused};

/// One word of each title, prompt, answer and setting. None of them may be found after the deletion.
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

/// Returns each file below the data folder and the log's folder that contains one of the secrets, with that secret.
fn files_with_secrets(home: &Home) -> Vec<(PathBuf, &'static str)> {
    files_with(home, &SECRETS)
}

fn files_with<'a>(home: &Home, secrets: &[&'a str]) -> Vec<(PathBuf, &'a str)> {
    let mut found = Vec::new();
    for folder in [home.data(), home.path().join("log")] {
        for file in files_below(&folder) {
            // The socket of a running daemon cannot be read.
            let Ok(bytes) = fs::read(&file) else { continue };
            let has = |secret: &&&str| bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
            let secrets = secrets.iter().filter(has);
            found.extend(secrets.map(|secret| (file.clone(), *secret)));
        }
    }
    found
}

/// Returns the parameters of the call with which [`conversed`] begins.
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

/// Makes a conversation whose record has a title, settings, a request id, and short and long prompts with the secrets.
async fn conversed(home: &Home, app: &App) -> ConversationId {
    let id = app.made_by("conversation/new", first_call(home)).await;
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
    // This prompt is so long that it is stored in a file of its own. Its turn fails, so the record keeps the prompt.
    let long = format!("[[fail network]] {}", "secretlong ".repeat(2_000));
    app.call("conversation/prompt", prompt("long", &long))
        .await
        .unwrap();
    id
}

#[tokio::test]
async fn nothing_of_a_conversation_that_was_deleted_with_its_transcripts_is_in_a_file() {
    let home = Home::new();
    let (daemon, app, other) = home.begun(&["stays"]).await;
    let id = conversed(&home, &app).await;
    let fork = json!({"conversationId": other, "requestId": "fork", "title": "a secrettitle"});
    let forked = app.call("conversation/fork", fork.clone()).await.unwrap();
    let namesake = json!({"cwd": home.project(), "title": format!("after {id}"), "requestId": "namesake"});
    let named = app.call("conversation/new", namesake.clone()).await.unwrap();
    // The daemon is killed during a question, while another prompt is queued.
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

    // Repeating the call that made the conversation, or a call about it, does not carry it out again.
    for (method, call) in [
        ("conversation/new", first_call(&home)),
        ("conversation/fork", fork),
    ] {
        refused(app.call(method, call).await, ErrorKind::NotFound);
    }
    // This call only mentions the conversation's id in a title, so its answer is still known.
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

/// A client that reconnects gets the events that it missed, but none with content of the deleted conversation. The log
/// has none either.
#[tokio::test]
async fn no_event_of_a_conversation_that_was_deleted_with_its_transcripts_is_sent_again() {
    let home = Home::new();
    let (daemon, app, other) = home.begun(&["stays"]).await;
    let cursor = app.events(other).await.next().await.cursor;
    let id = conversed(&home, &app).await;
    let missed = async |last: &str| {
        let title = json!({"conversationId": other, "title": last});
        app.call("conversation/update", title).await.unwrap();
        let mut events = app.events_of(None, Some(cursor.clone())).await;
        let (mut missed, last) = (Vec::new(), json!(last));
        loop {
            let event = json!(events.next().await);
            let is_last = event["event"]["conversation"]["title"] == last;
            missed.push(event.to_string());
            if is_last {
                return missed.concat();
            }
        }
    };
    let before = missed("before").await;
    for secret in ["secrettitle", "secretlater", "secretprompt", "secretlong"] {
        assert!(before.contains(secret), "{secret}: {before}");
    }
    let delete = json!({"conversationId": id, "transcripts": "delete"});
    assert_eq!(app.call("conversation/delete", delete).await.unwrap(), json!({}));
    let after = missed("after").await;
    assert!(SECRETS.iter().all(|secret| !after.contains(secret)), "{after}");
    assert!(
        after.contains("\"deleted\"") && after.contains(&id.to_string()),
        "{after}"
    );
    assert!(after.contains("\"before\""), "{after}");
    let subscribe = json!({"conversationId": id, "after": cursor});
    let gone = Refusal(1001, "notFound", false);
    daemon
        .raw()
        .await
        .refused("conversation/subscribe", subscribe, gone)
        .await;
    let logged = home.logged();
    assert!(SECRETS.iter().all(|secret| !logged.contains(secret)), "{logged}");
}

/// A backup was unpacked to show the history.
#[tokio::test]
async fn nothing_of_a_deleted_conversation_stays_unpacked() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let id = conversed(&home, &app).await;
    app.close(id).await;
    app.ask("transcript/keep", id).await;
    lose(&home);
    let history = app.ask("conversation/history", id).await;
    assert!(history.to_string().contains("secretprompt"), "{history}");
    let unpacked = home.data().join("kept/unpacked");
    let is_there = |(path, _): &(PathBuf, &str)| path.starts_with(&unpacked);
    assert!(files_with_secrets(&home).iter().any(is_there));
    let delete = json!({"conversationId": id, "transcripts": "delete"});
    assert_eq!(app.call("conversation/delete", delete).await.unwrap(), json!({}));
    assert_eq!(files_with_secrets(&home), []);
}

/// After a crash of the machine, the database is replaced by one that is rebuilt from the journal.
#[tokio::test]
async fn a_database_that_was_replaced_is_erased_too() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let id = conversed(&home, &app).await;
    drop((daemon, app));
    fs::write(home.data().join("store.trust"), "another boot").unwrap();
    let (_daemon, app) = home.opened().await;
    let replaced = home.data().join("store.broken-1");
    assert_eq!(set_aside(&app).await, json!(replaced));
    let of_replaced = |(path, _): &(PathBuf, &str)| path.starts_with(&replaced);
    assert!(files_with_secrets(&home).iter().any(of_replaced));

    let delete = json!({"conversationId": id, "transcripts": "delete"});
    assert_eq!(app.call("conversation/delete", delete).await.unwrap(), json!({}));
    assert_eq!(files_with_secrets(&home), []);
    assert!(!replaced.exists());
    assert_eq!(set_aside(&app).await, Value::Null);
}

/// Deletes a conversation and its transcripts with `sessionctl`, and returns the message that not everything was
/// erased.
pub(crate) fn removed_in_part(home: &Home, id: ConversationId) -> String {
    let mut remove = Command::new(env!("CARGO_BIN_EXE_sessionctl"));
    remove.env_clear().env("SESSIOND_HOME", home.path());
    remove.args(["rm", "--transcripts", "--yes", &id.to_string()]);
    let output = remove.output().unwrap();
    let words = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{words}");
    words
}

/// Returns the path of the replaced database that the status reports.
async fn set_aside(app: &App) -> Value {
    let mut status = app.call("daemon/status", json!({})).await.unwrap();
    status["store"]["setAside"].take()
}

/// Damaged files stay, because they may hold data that no other file has. The caller learns which files may contain the
/// conversation. Once the user has deleted them, the next start erases the rest.
#[tokio::test]
async fn damaged_files_that_may_hold_what_was_deleted_are_named() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let mut ids = Vec::new();
    for project in ["one", "two"] {
        fs::create_dir(home.path().join(project)).unwrap();
        let made = json!({"cwd": home.path().join(project), "title": "a secrettitle"});
        let id = app.made_by("conversation/new", made).await;
        app.send(id, &"secretlong ".repeat(2_000)).await;
        ids.push(id);
    }
    drop((daemon, app));
    let journal = home.data().join("journal.jsonl");
    let mut bytes = fs::read(&journal).unwrap();
    let at = bytes.len() - 40;
    bytes[at] ^= 4;
    fs::write(&journal, &bytes).unwrap();

    let (daemon, app) = home.opened().await;
    let kept: Vec<String> = ["journal.damaged-1", "store.damaged-1"]
        .map(|name| home.data().join(name).to_str().unwrap().to_owned())
        .into();
    let delete = json!({"conversationId": ids[0], "transcripts": "delete"});
    let answer = app.call("conversation/delete", delete).await.unwrap();
    let named = answer["notErased"].as_str().unwrap();
    assert!(kept.iter().all(|path| named.contains(path)), "{answer}");
    let words = removed_in_part(&home, ids[1]);
    assert!(kept.iter().all(|path| words.contains(path)), "{words}");
    assert!(words.contains("delete them"), "{words}");
    // The files that the daemon uses contain no secret, except for bodies to which the damaged files may refer.
    for (path, secret) in files_with_secrets(&home) {
        let is_kept = kept.iter().any(|kept| path.starts_with(kept));
        assert!(
            is_kept || path.starts_with(home.data().join("bodies")),
            "{secret} in {}",
            path.display()
        );
    }

    drop((daemon, app));
    fs::remove_file(&kept[0]).unwrap();
    fs::remove_dir_all(&kept[1]).unwrap();
    let (_daemon, app) = home.opened().await;
    // The store finishes the erasure before it accepts a change.
    let other = app.begun(&home.project(), &["one"]).await;
    assert_eq!(files_with_secrets(&home), []);
    let delete = json!({"conversationId": other, "transcripts": "delete"});
    assert_eq!(app.call("conversation/delete", delete).await.unwrap(), json!({}));
}

/// An earlier deletion was interrupted while it removed the conversation's backups.
#[tokio::test]
async fn a_deletion_completes_what_an_earlier_one_began() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let id = conversed(&home, &app).await;
    once_kept(&app, |total| total.sessions == 1).await;
    let kept = home.data().join("kept");
    let list = files_below(&kept)
        .into_iter()
        .find(|path| path.ends_with("kept.json"));
    let session = list.unwrap().parent().unwrap().to_owned();
    let removing = kept.join("gone-59203a7f-542f-4ed7-b742-5d054e2d2039");
    fs::rename(session, &removing).unwrap();
    let is_there = |(path, _): &(PathBuf, &str)| path.starts_with(&removing);
    assert!(files_with_secrets(&home).iter().any(is_there));
    let delete = json!({"conversationId": id, "transcripts": "delete"});
    assert_eq!(app.call("conversation/delete", delete).await.unwrap(), json!({}));
    assert_eq!(files_with_secrets(&home), []);
}

/// Request ids are indexed in chunks that are named after their lowest entry. The test needs this many ids to fill more
/// than one chunk.
#[tokio::test]
async fn no_id_of_a_request_stays_in_an_index() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let mut made = Vec::new();
    for number in 0..24 {
        let id = app.make(&home.project()).await;
        let secret = format!("secretrequest{number}.");
        for title in 0..8 {
            let request = format!("{secret}{title}");
            let update = json!({"conversationId": id, "title": format!("{title}"), "requestId": request});
            app.call("conversation/update", update).await.unwrap();
        }
        made.push((id, secret));
    }
    for (id, secret) in made {
        assert_ne!(files_with(&home, &[&secret]), []);
        let delete = json!({"conversationId": id, "transcripts": "delete"});
        assert_eq!(app.call("conversation/delete", delete).await.unwrap(), json!({}));
        assert_eq!(files_with(&home, &[&secret]), []);
    }
}
