//! The ladder with Codex: its rollouts are read and moved back into place, but never copied or cut. A script stands in
//! for Codex itself.

use std::fs;
use std::path::PathBuf;

use bridge_protocol::conversation::ConversationState;
use bridge_protocol::error::ErrorKind;
use bridge_protocol::event::Event;
use bridge_protocol::link::{Fidelity, Relation, Via};
use bridge_protocol::turn::FailureKind;
use bridge_protocol::{CheckpointId, ConversationId, UpstreamId};
use serde_json::{Value, json};

use super::error_words;
use crate::codex::{ROOT_ID, rollout};
use crate::codex_watching::{adopt, home};
use crate::continuing::{AT_ONCE, go_on};
use crate::home::Home;
use crate::scripted::{self, HELD, HELD_BY, REFUSE_LOAD};
use crate::signs::Watched;
use crate::support::{App, refused, tried};

/// A prompt to which the scripted Codex responds that no user is signed in.
const SIGNED_OUT: &str =
    r#"{"jsonrpc":"2.0","id":$P,"error":{"code":-32000,"message":"Authentication required"}}"#;

/// Codex's error for a session whose file it does not find.
pub(crate) const UNKNOWN: &str = "no rollout found for thread id 1";

pub(crate) fn refuse_load(home: &Home, details: &str) {
    let data = json!({"details": details});
    refuse_load_with(
        home,
        &json!({"code": -32603, "message": "Internal error", "data": data}),
    );
}

fn refuse_load_with(home: &Home, error: &Value) {
    fs::write(home.path().join(REFUSE_LOAD), error.to_string()).unwrap();
}

/// Asserts that the session resumes with full fidelity once Codex no longer refuses to load it.
async fn opens_again(app: &App, home: &Home, id: ConversationId) {
    fs::remove_file(home.path().join(REFUSE_LOAD)).unwrap();
    assert_eq!(app.resumed(id).await.fidelity, Fidelity::Full);
    assert_eq!(app.get(id).await.head.unwrap().as_str(), ROOT_ID);
}

fn ways(attempts: &[Value]) -> Vec<&str> {
    let ways = attempts.iter().map(|tried| tried["via"].as_str());
    ways.map(Option::unwrap).collect()
}

/// Moves the rollout into another folder below Codex's own, and returns its new path.
pub(crate) fn move_to(home: &Home, folder: &str) -> PathBuf {
    let path = rollout(home, ROOT_ID);
    let folder = home.path().join("codex").join(folder);
    fs::create_dir_all(&folder).unwrap();
    let moved = folder.join(path.file_name().unwrap());
    fs::rename(path, &moved).unwrap();
    moved
}

async fn not_resumable(app: &App, id: ConversationId) -> Vec<Value> {
    let resume = app
        .call("conversation/resume", json!({"conversationId": id}))
        .await;
    let error = refused(resume, ErrorKind::NotResumable);
    error.details["attempts"].read().unwrap()
}

#[tokio::test]
async fn what_codex_does_not_have_any_more_is_retold_from_its_rollout() {
    let home = home();
    let (_daemon, app) = home.opened().await;
    let id = adopt(&app, &home).await;
    refuse_load(&home, UNKNOWN);
    let resumed = app.resumed(id).await;
    assert_eq!(tried(&resumed), [(Via::Load, false), (Via::Text, true)]);
    assert_eq!((resumed.fidelity, resumed.missing_turns), (Fidelity::Text, 0));
    app.send(id, r#"{"jsonrpc":"2.0","method":"_nothing/new"}"#).await;
    let heard = scripted::heard(&home, "codex");
    let prompt = heard
        .iter()
        .find(|sent| sent["method"] == "session/prompt")
        .unwrap();
    let told = prompt["params"]["prompt"][0]["text"].as_str().unwrap();
    let history = app
        .call(
            "conversation/checkpoints",
            json!({"conversationId": id, "limit": 10}),
        )
        .await
        .unwrap();
    let checkpoints = history["checkpoints"].as_array().unwrap();
    let mut behind = told;
    for checkpoint in checkpoints.iter().rev() {
        for said in [&checkpoint["prompt"], &checkpoint["reply"]] {
            let said = said.as_str().unwrap();
            let at = behind
                .find(said)
                .unwrap_or_else(|| panic!("{said:?} is missing in {told}"));
            behind = &behind[at + said.len()..];
        }
    }
    assert_eq!(checkpoints.len(), 5);
    let link = app.chain(id).await.pop().unwrap();
    assert_eq!(
        (
            link.relation,
            link.from_upstream_id.as_ref().map(UpstreamId::as_str)
        ),
        (Relation::Follows, Some(ROOT_ID))
    );
    assert_eq!(
        link.from_checkpoint_id.as_ref().map(CheckpointId::as_str),
        checkpoints[0]["id"].as_str()
    );
}

/// Codex remembers a rollout's path and looks nowhere else, so the ladder moves the file back there.
#[tokio::test]
async fn located_a_rollout_that_was_moved_is_brought_back() {
    let home = home();
    let (_daemon, app) = home.opened().await;
    let id = adopt(&app, &home).await;
    let place = rollout(&home, ROOT_ID);
    let content = fs::read(&place).unwrap();
    let moved = move_to(&home, "sessions/2020/01/01");
    refuse_load(&home, UNKNOWN);
    // The scripted Codex refuses this load too, so the ladder continues to its next rungs.
    let resumed = app.resumed(id).await;
    let expected = [(Via::Load, false), (Via::Located, false), (Via::Text, true)];
    assert_eq!(tried(&resumed), expected);
    assert_eq!(fs::read(&place).unwrap(), content);
    assert!(!moved.exists());
}

#[tokio::test]
async fn what_a_person_put_away_is_left_there_and_it_is_said_how_it_comes_back() {
    let home = home();
    let (_daemon, app) = home.opened().await;
    let id = adopt(&app, &home).await;
    let moved = move_to(&home, "archived_sessions");
    refuse_load(&home, &format!("session {ROOT_ID} is archived."));
    let attempts = not_resumable(&app, id).await;
    let why = attempts.last().unwrap()["error"].as_str().unwrap();
    assert!(why.contains(&format!("codex unarchive {ROOT_ID}")), "{why}");
    assert!(moved.exists());
    opens_again(&app, &home, id).await;
}

/// Codex has the session but refuses to open it for an unknown reason. The ladder must not replace it with a text of
/// its history.
#[tokio::test]
async fn what_codex_has_and_does_not_open_now_is_not_left_for_a_retelling() {
    let home = home();
    let (_daemon, app) = home.opened().await;
    let id = adopt(&app, &home).await;
    let data = json!({"reason": "thread_of_another_kind"});
    refuse_load_with(
        &home,
        &json!({"code": -32600, "message": "Invalid request", "data": data}),
    );
    let attempts = not_resumable(&app, id).await;
    assert_eq!(ways(&attempts), ["load", "freshProcess"]);
    assert_eq!(app.get(id).await.head.unwrap().as_str(), ROOT_ID);
    opens_again(&app, &home, id).await;
}

/// Another Codex may have the session open and will close it later. The conversation has not failed, and the ladder
/// stops here.
#[tokio::test]
async fn a_session_that_another_program_writes_to_is_waited_for() {
    let home = home();
    let (_daemon, app) = home.opened().await;
    let id = adopt(&app, &home).await;
    let before = app.get(id).await;
    fs::write(home.path().join(REFUSE_LOAD), HELD).unwrap();
    let error = app.try_send(id, "go on").await.unwrap_err();
    assert_eq!((error.kind, error.retryable), (ErrorKind::AgentError, true));
    error_words::check(
        "a session that another program has open",
        "agentError",
        &error.message,
    );
    let after = app.get(id).await;
    assert_eq!((after.state, &after.head), (before.state, &before.head));
    assert_eq!(openings(&home), 1);

    // A scheduled continuation keeps waiting.
    let mut events = app.events(id).await;
    go_on(&app, id, json!({"text": "go on", "at": AT_ONCE})).await;
    let tried_once = |event: &Event| match event {
        Event::Updated { conversation } => conversation
            .continuation
            .as_ref()
            .filter(|continuation| continuation.attempts == 1)
            .map(|_| conversation.state),
        _ => None,
    };
    assert_eq!(events.find(tried_once).await, before.state);
    opens_again(&app, &home, id).await;
}

/// The sibling's running turn keeps the first process alive. That process was started while signed out and still holds
/// the session that was closed in it.
#[tokio::test]
async fn a_session_is_opened_once_the_process_that_it_left_has_ended() {
    let home = home();
    let (daemon, app) = home.opened().await;
    let (id, sibling) = (
        adopt(&app, &home).await,
        app.make_of(&home.project(), "codex").await,
    );
    app.resumed(id).await;
    let head = app.get(id).await.head;
    let mut raw = daemon.raw().await;
    let (running, _) = raw.run(sibling, "hold").await;
    let of_sibling = app.get(sibling).await.head.unwrap();
    let (pid, _) = of_sibling
        .as_str()
        .strip_prefix('s')
        .unwrap()
        .split_once('-')
        .unwrap();
    fs::write(home.path().join(HELD_BY), pid).unwrap();
    let turn = app.send(id, SIGNED_OUT).await;
    assert_eq!(turn.failure.unwrap().kind, FailureKind::AuthRequired);

    let mut waiting = daemon.raw().await;
    let nothing = r#"{"jsonrpc":"2.0","method":"_nothing/new"}"#;
    let params = json!({"conversationId": id, "prompt": nothing});
    let request = waiting.send("conversation/prompt", params).await;
    Watched::below(home.path()).wait_for("opening that is refused", || (openings(&home) == 2).then_some(()));
    app.ask("conversation/cancel", sibling).await;
    assert_eq!(raw.answer(running).await["result"]["stopReason"], "cancelled");
    let turn = waiting.answer(request).await["result"].take();
    assert_eq!(
        (&turn["stopReason"], &turn["resumed"]["fidelity"]),
        (&json!("end_turn"), &json!("full")),
        "{turn}"
    );
    assert_eq!(app.get(id).await.head, head);
    assert_eq!(openings(&home), 3);
}

/// Returns how often Codex was asked to load a session.
fn openings(home: &Home) -> usize {
    let heard = scripted::heard(home, "codex");
    let openings = heard.iter().filter(|sent| sent["method"] == "session/load");
    openings.count()
}

/// No history can be read from the rollout, and only the user may decide to begin anew.
#[tokio::test]
async fn a_rollout_that_cannot_be_read_is_not_left_for_nothing() {
    let home = home();
    let (_daemon, app) = home.opened().await;
    let id = adopt(&app, &home).await;
    let path = rollout(&home, ROOT_ID);
    let content = fs::read(&path).unwrap();
    refuse_load(&home, UNKNOWN);
    fs::write(&path, "{}\n").unwrap();
    assert_eq!(ways(&not_resumable(&app, id).await), ["load"]);

    // The next rollout is compressed and damaged.
    fs::remove_file(&path).unwrap();
    let packed = path.with_extension("jsonl.zst");
    fs::write(&packed, "garbage").unwrap();
    let attempts = not_resumable(&app, id).await;
    assert_eq!(ways(&attempts), ["load", "copied"], "{attempts:?}");
    let why = attempts[1]["error"].as_str().unwrap();
    assert!(why.contains(packed.to_str().unwrap()), "{why}");
    assert_eq!(app.chain(id).await.len(), 1);

    // Once the rollout is readable again, the resume carries over its whole text.
    fs::remove_file(&packed).unwrap();
    fs::write(&path, content).unwrap();
    let resumed = app.resumed(id).await;
    assert_eq!((resumed.fidelity, resumed.missing_turns), (Fidelity::Text, 0));
}

/// An overloaded server is a temporary error: the session still exists, and the next attempt will open it.
#[tokio::test]
async fn what_passes_by_itself_is_no_reason_to_leave_the_session() {
    let home = home();
    let (_daemon, app) = home.opened().await;
    let id = adopt(&app, &home).await;
    let data = json!({"details": "x", "codexErrorInfo": "serverOverloaded"});
    refuse_load_with(
        &home,
        &json!({"code": -32603, "message": "Internal error", "data": data}),
    );
    let overloaded = app
        .call("conversation/resume", json!({"conversationId": id}))
        .await;
    let error = overloaded.unwrap_err();
    assert_eq!((error.kind, error.retryable), (ErrorKind::AgentError, true));
    let loads = scripted::heard(&home, "codex");
    let loads = loads.iter().filter(|sent| sent["method"] == "session/load");
    assert_eq!(loads.count(), 1);
    assert_eq!(app.get(id).await.head.unwrap().as_str(), ROOT_ID);
    opens_again(&app, &home, id).await;
}

/// A limit sets the conversation's state and has its own error kind, also if a resume meets it.
#[tokio::test]
async fn a_limit_that_is_met_by_the_resume_is_told_as_one() {
    let home = home();
    let (_daemon, app) = home.opened().await;
    let id = adopt(&app, &home).await;
    let data = json!({"details": "x", "codexErrorInfo": "usageLimitExceeded"});
    let error = json!({"code": -32603, "message": "You've hit your usage limit", "data": data});
    fs::write(home.path().join(REFUSE_LOAD), error.to_string()).unwrap();
    let limited = app
        .call(
            "conversation/prompt",
            json!({"conversationId": id, "prompt": "go on"}),
        )
        .await;
    let error = refused(limited, ErrorKind::Limited);
    assert!(error.retryable);
    let conversation = app.get(id).await;
    assert_eq!(conversation.state, ConversationState::Limited);
    assert_eq!(conversation.head.unwrap().as_str(), ROOT_ID);
    // A prompt with `onLimit: wait` waits until this limit ends.
    let params = json!({"conversationId": id, "prompt": "go on", "onLimit": "wait"});
    let turn = app.call("conversation/prompt", params).await.unwrap();
    assert_eq!(turn["failure"]["kind"], "rateLimited", "{turn}");
    let continuation = app.get(id).await.continuation.expect("no continuation");
    let at: jiff::Timestamp = turn["continuation"]["at"].as_str().unwrap().parse().unwrap();
    assert_eq!(at, continuation.at);
    fs::remove_file(home.path().join(REFUSE_LOAD)).unwrap();
    assert_eq!(app.resumed(id).await.fidelity, Fidelity::Full);
}
