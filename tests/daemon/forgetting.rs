//! Kept copies of sessions that no conversation has: they are listed, restored, and deleted.

use bridge_protocol::error::ErrorKind;
use bridge_protocol::keep::{KeepAnswer, UnclaimedSession};
use serde_json::json;

use super::error_words;
use crate::codex::{HEAD_FORK_ID, ROOT_ID};
use crate::codex_rollouts;
use crate::home::Home;
use crate::keeping::{keep, lose, once_kept};
use crate::support::{App, refused};

async fn all(app: &App) -> KeepAnswer {
    keep(app, json!({})).await.unwrap()
}

fn ids(sessions: &[UnclaimedSession]) -> Vec<&str> {
    sessions.iter().map(|one| one.upstream_id.as_str()).collect()
}

/// D14: deleting a conversation keeps its copies. They are listed with the title, and can be restored or deleted.
#[tokio::test]
async fn copies_outlive_a_deleted_conversation_until_they_are_forgotten() {
    let home = Home::new();
    let (_daemon, app, gone) = home.begun(&["first"]).await;
    let live = app.begun(&home.project(), &["first"]).await;
    let title = json!({"conversationId": gone, "title": "The blue heron"});
    app.call("conversation/update", title).await.unwrap();
    let (gone_id, live_id) = (
        app.get(gone).await.head.unwrap(),
        app.get(live).await.head.unwrap(),
    );
    for id in [gone, live] {
        app.close(id).await;
        keep(&app, json!({"conversationId": id})).await.unwrap();
    }
    assert_eq!(all(&app).await.unclaimed, [], "these sessions have conversations");
    app.ask("conversation/delete", gone).await;

    let kept = all(&app).await;
    assert_eq!(kept.total.unwrap().unclaimed, 1);
    let [unclaimed] = &kept.unclaimed[..] else {
        panic!("{kept:?}");
    };
    assert_eq!(unclaimed.upstream_id, gone_id);
    assert_eq!(
        (
            unclaimed.title.as_str(),
            unclaimed.agent.as_ref().unwrap().as_str()
        ),
        ("The blue heron", "loopback")
    );
    assert!(unclaimed.bytes > 0);

    let forget = async |id: &str| app.call("transcript/forget", json!({"upstreamId": id})).await;
    refused(forget(live_id.as_str()).await, ErrorKind::Conflict);
    assert_eq!(all(&app).await.total.unwrap().sessions, 2);
    refused(forget("../../store").await, ErrorKind::NotFound);
    let other = json!({"upstreamId": gone_id, "agent": "codex"});
    let other = app.call("transcript/forget", other).await;
    refused(other, ErrorKind::NotFound);

    // Until it is deleted, the copy can be restored.
    lose(&home);
    let restore = json!({"upstreamId": gone_id});
    app.call("transcript/restore", restore).await.unwrap();
    let path = home.transcript(gone_id.as_str()).unwrap();

    let forgotten = forget(gone_id.as_str()).await.unwrap();
    assert_eq!(forgotten, json!({"bytes": unclaimed.bytes}));
    let kept = all(&app).await;
    assert_eq!((kept.total.unwrap().sessions, kept.unclaimed), (1, Vec::new()));
    assert!(path.exists(), "the agent's own file was deleted");
    refused(forget(gone_id.as_str()).await, ErrorKind::NotFound);
    assert_eq!(
        app.remembered(live).await,
        ["first"],
        "the other conversation's copy was deleted"
    );
}

/// Copies of sessions whose agent is no longer configured are listed too, and can be deleted.
#[tokio::test]
async fn copies_without_an_agent_can_be_forgotten() {
    let home = Home::new();
    let other = home.path().join("other");
    home.configure(&format!(
        "[agents.mine]\nkind = \"loopback\"\ncommand = \"{}\"\nargs = [\"loopback-agent\", \"--data\", \"{other}\"]\n\
         transcripts = \"{other}/loopback\"\n",
        env!("CARGO_BIN_EXE_sessiond"),
        other = other.display(),
    ));
    let (daemon, app) = home.opened().await;
    let new = json!({"agent": "mine", "cwd": home.project()});
    let made = app.call("conversation/new", new).await.unwrap();
    let id = made["conversation"]["id"].as_str().unwrap().parse().unwrap();
    app.send(id, "first").await;
    once_kept(&app, |total| total.sessions == 1).await;
    drop((app, daemon));
    home.configure("default_agent = \"loopback\"\n");
    let (_daemon, app) = home.opened().await;
    assert_eq!(all(&app).await.unclaimed, [], "this session has a conversation");
    let answer = app.erase(id).await;
    let remaining = &answer["remaining"][0];
    assert_eq!(remaining["reason"], "failed");
    error_words::check(
        "conversation/delete",
        "failed",
        remaining["message"].as_str().unwrap(),
    );
    let kept = all(&app).await;
    assert_eq!((kept.unclaimed.len(), &kept.unclaimed[0].agent), (1, &None));
    let forget = json!({"upstreamId": kept.unclaimed[0].upstream_id});
    app.call("transcript/forget", forget).await.unwrap();
    assert_eq!(all(&app).await.total.unwrap().sessions, 0);
}

/// Codex: a source's copy is deleted with the last kept fork whose history begins in it.
#[tokio::test]
async fn what_other_copies_need_stays_until_they_are_forgotten_too() {
    let home = codex_rollouts::home();
    let (_daemon, app) = home.opened().await;
    keep(&app, json!({"upstreamId": HEAD_FORK_ID})).await.unwrap();
    let kept = all(&app).await;
    assert_eq!(
        (ids(&kept.unclaimed), kept.total.unwrap().sessions),
        (vec![HEAD_FORK_ID], 2)
    );
    let forget = async |id: &str| {
        let answer = app.call("transcript/forget", json!({"upstreamId": id}));
        answer.await.unwrap()
    };
    assert_eq!(forget(ROOT_ID).await, json!({"bytes": 0, "needed": true}));
    let kept = all(&app).await;
    assert_eq!(
        (ids(&kept.unclaimed), kept.total.unwrap().sessions),
        (vec![HEAD_FORK_ID], 2)
    );
    assert!(forget(HEAD_FORK_ID).await["bytes"].as_u64().unwrap() > 0);
    assert_eq!(all(&app).await.total.unwrap().sessions, 0, "a copy is left");
}
