//! Deleting a conversation with its transcripts: what is deleted, and what remains and is reported.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use bridge_protocol::ConversationId;
use bridge_protocol::error::ErrorKind;
use serde_json::{Value, json};

use super::error_words;
use super::queued_prompts::answer_to;
use crate::home::Home;
use crate::support::{App, refused};

/// Makes a home whose agent is the loopback agent, configured as this kind, and a conversation with that agent. Returns
/// them and the session's id.
async fn conversed(kind: &str) -> (Home, ConversationId, String) {
    let home = Home::keeping_nothing();
    home.configure(&config(kind, env!("CARGO_BIN_EXE_sessiond"), &home));
    let (daemon, app) = home.opened().await;
    let new = json!({"agent": "mine", "cwd": home.project()});
    let made = app.call("conversation/new", new).await.unwrap();
    let id: ConversationId = made["conversation"]["id"].as_str().unwrap().parse().unwrap();
    let turn = app.send(id, "one").await;
    // After the reset, the session is no longer in the chain, but still belongs to the conversation.
    let reset = app.call("conversation/reset", json!({"conversationId": id}));
    reset.await.unwrap();
    drop(app);
    drop(daemon);
    (home, id, turn.upstream_id.as_str().to_owned())
}

fn config(kind: &str, program: &str, home: &Home) -> String {
    let data = home.data();
    let data = data.display();
    format!(
        "[keep]\nenabled = false\n[agents.mine]\nkind = \"{kind}\"\ncommand = \"{program}\"\n\
         args = [\"loopback-agent\", \"--data\", \"{data}\"]\n"
    )
}

async fn delete(app: &App, id: ConversationId) -> Value {
    let params = json!({"conversationId": id, "transcripts": "delete", "requestId": "gone"});
    let answer = app.call("conversation/delete", params.clone()).await.unwrap();
    let again = app.call("conversation/delete", params).await.unwrap();
    assert_eq!(again, answer, "the repeated answer differs");
    let get = app.call("conversation/get", json!({"conversationId": id}));
    refused(get.await, ErrorKind::NotFound);
    answer
}

/// Only the agent can delete its transcripts, and it cannot be started: the answer reports what remains.
#[tokio::test]
async fn what_its_agent_cannot_be_asked_to_delete_is_told() {
    for is_configured in [true, false] {
        let (home, id, head) = conversed("generic").await;
        home.configure(&match is_configured {
            true => config("generic", "/nonexistent/agent", &home),
            false => "default_agent = \"loopback\"\n".to_owned(),
        });
        let (_daemon, app) = home.opened().await;
        let answer = delete(&app, id).await;
        let left = &answer["remaining"][0];
        assert_eq!(
            (&left["upstreamId"], &left["reason"], left.get("path")),
            (&json!(head), &json!("failed"), None)
        );
        error_words::check("conversation/delete", "failed", left["message"].as_str().unwrap());
        assert_eq!(answer["remaining"].as_array().unwrap().len(), 1);
        assert!(home.transcript(&head).is_some());
    }
}

/// What happened to the folder of the transcripts while no daemon ran.
#[derive(Clone, Copy, PartialEq)]
enum Folder {
    Usual,
    /// The folder that contains it cannot be read.
    Loop,
    /// Files cannot be removed from it.
    ReadOnly,
}

/// The daemon deletes the transcripts that it can read without their agent, and reports the path of each one that it
/// cannot delete.
#[tokio::test]
async fn a_transcript_that_can_be_read_goes_without_its_agent_or_is_told_with_its_place() {
    for state in [Folder::Usual, Folder::Loop, Folder::ReadOnly] {
        if state == Folder::ReadOnly && rustix::process::geteuid().is_root() {
            eprintln!("skipped: no rights keep root from removing a file");
            continue;
        }
        let (home, id, head) = conversed("loopback").await;
        let path = home.transcript(&head).unwrap();
        let folder = path.parent().unwrap();
        match state {
            Folder::Usual => {}
            Folder::Loop => {
                let all = folder.parent().unwrap();
                fs::remove_dir_all(all).unwrap();
                symlink(all, all).unwrap();
            }
            Folder::ReadOnly => fs::set_permissions(folder, Permissions::from_mode(0o500)).unwrap(),
        }
        home.configure(&config("loopback", "/nonexistent/agent", &home));
        let (_daemon, app) = home.opened().await;
        let answer = delete(&app, id).await;
        let place = match state {
            Folder::Usual => {
                assert_eq!((answer, path.exists()), (json!({}), false));
                continue;
            }
            Folder::Loop => Value::Null,
            Folder::ReadOnly => {
                fs::set_permissions(folder, Permissions::from_mode(0o700)).unwrap();
                json!(path)
            }
        };
        let left = &answer["remaining"][0];
        assert_eq!((&left["path"], &left["reason"]), (&place, &json!("failed")));
        error_words::check("conversation/delete", "failed", left["message"].as_str().unwrap());
    }
}

/// The deleted conversation once had this session, which must not prevent the new conversation from deleting it.
#[tokio::test]
async fn a_transcript_that_a_deleted_conversation_had_goes_with_the_next_one() {
    let home = Home::keeping_nothing();
    let (_daemon, app, id) = home.begun(&["one"]).await;
    let head = app.get(id).await.head.unwrap();
    let deleted = app.ask("conversation/delete", id).await;
    assert_eq!(deleted, json!({"adoptable": [head]}));
    let adopt = json!({"upstreamId": head});
    let adopted = app.call("conversation/adopt", adopt).await.unwrap();
    let anew: ConversationId = adopted["conversation"]["id"].as_str().unwrap().parse().unwrap();
    assert_ne!(anew, id);
    assert_eq!(delete(&app, anew).await, json!({}));
    assert_eq!(home.transcript(head.as_str()), None);
}

/// F11: files beside a transcript and other copies of it are deleted with it, whether or not its agent deletes it.
/// Files that a fork refers to stay and are reported, which is not a failure.
#[tokio::test]
async fn what_lies_beside_a_transcript_goes_with_it_unless_a_fork_names_it() {
    let reachable = env!("CARGO_BIN_EXE_sessiond");
    for (program, has_fork) in [
        (reachable, false),
        ("/nonexistent/agent", false),
        (reachable, true),
        ("/nonexistent/agent", true),
    ] {
        let (home, id, head) = conversed("loopback").await;
        let path = home.transcript(&head).unwrap();
        let project = path.parent().unwrap();
        let beside = project.join(&head);
        for folder in ["tool-results", "subagents/deep"] {
            fs::create_dir_all(beside.join(folder)).unwrap();
            fs::write(beside.join(folder).join("agent-1.jsonl"), "{}\n").unwrap();
        }
        let elsewhere = project.with_file_name("-elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::copy(&path, elsewhere.join(path.file_name().unwrap())).unwrap();
        let fork = project.join("a-fork.jsonl");
        if has_fork {
            let forked = json!({"type": "user", "forkedFrom": {"sessionId": head}});
            fs::write(&fork, format!("{forked}\n")).unwrap();
        }
        home.configure(&config("loopback", program, &home));
        let (_daemon, app) = home.opened().await;
        let answer = delete(&app, id).await;
        assert!(home.transcript(&head).is_none(), "a copy is left");
        assert_eq!(beside.exists(), has_fork);
        if has_fork {
            let left = answer["remaining"].as_array().unwrap();
            assert_eq!(left.len(), 1, "{answer}");
            error_words::check(
                "conversation/delete",
                "shared",
                left[0]["message"].as_str().unwrap(),
            );
            assert_eq!(
                (&left[0]["reason"], &left[0]["path"]),
                (&json!("shared"), &json!(beside))
            );
            assert!(fork.exists());
        } else {
            assert_eq!(answer, json!({}));
        }
    }
}

/// Looking up details for the answer must not let the next call of the same client reach the conversation before it is
/// deleted.
#[tokio::test]
async fn a_call_that_is_sent_behind_a_deletion_finds_it_done() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let mut raw = daemon.raw().await;
    for _ in 0..10 {
        let id = app.begun(&home.project(), &["one"]).await;
        app.close(id).await;
        let delete = raw
            .send("conversation/delete", json!({"conversationId": id}))
            .await;
        let prompt = json!({"conversationId": id, "prompt": "two"});
        let prompt = raw.send("conversation/prompt", prompt).await;
        assert!(answer_to(&mut raw, delete).await["result"]["adoptable"].is_array());
        let refused = answer_to(&mut raw, prompt).await;
        assert!(refused["error"].is_object(), "{refused}");
    }
}
