//! Sessions that their agent does not end: changes of their files are refused, however often they are requested, until
//! no process can write to the files.

use std::path::PathBuf;

use bridge_protocol::error::{BridgeError, ErrorKind};
use bridge_protocol::link::LineageReason;
use bridge_protocol::{CheckpointId, ConversationId};
use serde_json::{Value, json};

use crate::carrying::files_below;
use crate::daemon::bad_transcripts::turns;
use crate::home::{Home, kill_now};
use crate::moving::move_to;
use crate::scripted;
use crate::signs::Watched;
use crate::support::{App, refused};

/// A reply of one word.
const SAYS: &str = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":$S,"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Hm."}}}}"#;

/// A home whose agent can reopen sessions but not close them.
fn home() -> Home {
    let home = Home::new();
    configure(&home, "");
    home
}

fn configure(home: &Home, limits: &str) {
    let capabilities = r#"{"loadSession":true,"sessionCapabilities":{}}"#;
    let agent = scripted::configured_kind(home, "claude", capabilities);
    home.configure(&format!("default_agent = \"claude\"\n{limits}\n{agent}"));
}

async fn repair(app: &App, id: ConversationId) -> Result<Value, BridgeError> {
    let params = json!({"conversationId": id, "repair": true});
    app.call("transcript/check", params).await
}

/// Kills the running agents, and waits until the daemon knows that they no longer write: it counts no agents, and has
/// started another one. It does that only when the earlier ones have ended with all their children.
async fn end_agents(home: &Home, app: &App) {
    let changes = Watched::below(home.path());
    let mut agents = home.processes();
    agents.retain(|(_, line)| line.contains("scripted-agent"));
    agents.iter().for_each(|(pid, _)| kill_now(*pid));
    let counts_none = async || {
        let status = app.call("daemon/status", json!({})).await.unwrap();
        (status["agents"] == 0).then_some(())
    };
    changes.wait_for_answer("end of the agents", counts_none).await;
    let started = app.call("daemon/diagnose", json!({"agents": true})).await;
    started.unwrap();
}

#[tokio::test]
async fn files_are_left_alone_until_the_session_has_ended_however_often_it_is_asked_for() {
    let home = home();
    let (_daemon, app, id) = home.begun(&[]).await;
    app.send(id, SAYS).await;
    let elsewhere = home.folder_named("elsewhere");
    for _ in 0..3 {
        let moved = move_to(&app, id, &elsewhere).await;
        refused(moved, ErrorKind::Busy);
        let repaired = repair(&app, id).await;
        refused(repaired, ErrorKind::Busy);
    }
    assert_eq!(app.get(id).await.cwd, home.project());

    end_agents(&home, &app).await;
    move_to(&app, id, &elsewhere).await.unwrap();
    assert_eq!(app.get(id).await.cwd, elsewhere);
}

/// An agent that has not answered in time may still open the session and write to its file.
#[tokio::test]
async fn files_are_left_alone_while_an_agent_may_still_open_the_session() {
    let home = home();
    let (daemon, app, id) = home.begun(&[]).await;
    app.send(id, SAYS).await;
    daemon.kill();
    std::fs::write(home.path().join(scripted::SILENT_ON_LOAD), "").unwrap();
    configure(&home, "[limits]\nsession_open_ms = 500");
    let (_daemon, app) = home.opened().await;
    app.try_send(id, SAYS).await.unwrap_err();
    let elsewhere = home.folder_named("elsewhere");
    for _ in 0..2 {
        let moved = move_to(&app, id, &elsewhere).await;
        refused(moved, ErrorKind::Busy);
    }
    assert_eq!(app.get(id).await.cwd, home.project());
}

/// A conversation that was adopted from a transcript of two turns, and the checkpoint of its last turn.
async fn adopted(home: &Home, app: &App) -> (ConversationId, CheckpointId) {
    let projects = home.path().join("claude/projects/-home-u-project");
    std::fs::create_dir_all(&projects).unwrap();
    std::fs::write(projects.join("s1.jsonl"), turns(home, "s1", 2)).unwrap();
    let adopted = app.call("conversation/adopt", json!({"upstreamId": "s1"})).await;
    let id = serde_json::from_value(adopted.unwrap()["conversation"]["id"].clone()).unwrap();
    (id, app.checkpoints(id).await.pop().unwrap().id)
}

/// The transcripts of all sessions except the adopted one.
fn copies(home: &Home) -> Vec<PathBuf> {
    let mut found = files_below(&home.path().join("claude"));
    found.retain(|path| !path.ends_with("s1.jsonl"));
    found
}

/// If the copy were deleted earlier, the agent might write it again as a stub, or its output would be lost.
#[tokio::test]
async fn the_copy_of_an_edit_that_failed_stays_until_its_session_has_ended() {
    let home = home();
    configure(&home, "[limits]\nsession_open_ms = 500");
    let (_daemon, app) = home.opened().await;
    let (id, at) = adopted(&home, &app).await;
    std::fs::write(home.path().join(scripted::SILENT_ON_LOAD), "").unwrap();
    let edit = json!({"conversationId": id, "at": at, "prompt": "instead"});
    app.call("conversation/edit", edit).await.unwrap_err();
    let elsewhere = home.folder_named("elsewhere");
    for _ in 0..2 {
        let moved = move_to(&app, id, &elsewhere).await;
        refused(moved, ErrorKind::Busy);
        assert_eq!(copies(&home).len(), 1);
    }
    let watched = Watched::below(home.path());
    end_agents(&home, &app).await;
    move_to(&app, id, &elsewhere).await.unwrap();
    watched.wait_for("end of the copy", || copies(&home).is_empty().then_some(()));
}

/// The lineage names a branch for ever. A call that needs its file reports that the file is missing.
#[tokio::test]
async fn an_abandoned_branch_without_a_file_is_reported_as_missing() {
    let home = home();
    let (_daemon, app) = home.opened().await;
    let (id, at) = adopted(&home, &app).await;
    let refusal = r#"{"jsonrpc":"2.0","id":$P,"error":{"code":-32000,"message":"Authentication required"}}"#;
    let edit = json!({"conversationId": id, "at": at, "prompt": refusal});
    app.call("conversation/edit", edit).await.unwrap_err();
    // The response to this update arrives after all earlier changes are written.
    let update = json!({"conversationId": id, "title": "a title"});
    app.call("conversation/update", update).await.unwrap();
    let abandoned = app.lineage(id).await.pop().unwrap();
    assert_eq!(abandoned.reason, LineageReason::Abandoned);
    let branch = abandoned.upstream_id;
    let [copy] = &copies(&home)[..] else { panic!() };
    std::fs::remove_file(copy).unwrap();
    // The branch's id finds the conversation that had it, as every id does.
    let found = app
        .call("conversation/adopt", json!({"upstreamId": branch}))
        .await;
    assert_eq!(found.unwrap()["conversation"]["id"], json!(id));
    let check = app.call("transcript/check", json!({"upstreamId": branch})).await;
    refused(check, ErrorKind::NotFound);
    let place = at.as_str().replace("s1", branch.as_str());
    let fork = json!({"conversationId": id, "at": place});
    let fork = app.call("conversation/fork", fork).await;
    refused(fork, ErrorKind::AgentError);
}
