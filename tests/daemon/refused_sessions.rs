//! Sessions that their agent does not open although their transcripts are whole.

use std::fs;
use std::path::Path;

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::ConversationState;
use bridge_protocol::error::ErrorKind;
use bridge_protocol::link::{Fidelity, Via};
use bridge_protocol::turn::TurnResult;
use serde_json::{Value, json};

use super::edits::places;
use crate::continuing::go_on;
use crate::home::Home;
use crate::keeping::{keep, lose};
use crate::support::{App, refused, tried};

/// The agent does not know `session/resume`.
const RESUMES_NOTHING: &str = r#"s/"method":"session\/resume"/"method":"session\/refused"/"#;

/// The agent ends when it is to resume a session.
const ENDS_AT_RESUME: &str = r#"/"method":"session\/resume"/Q"#;

/// The agent knows neither `session/resume` nor `session/load`.
pub(crate) const OPENS_NOTHING: &str =
    r#"s/"method":"session\/\(resume\|load\)"/"method":"session\/refused"/"#;

/// Configures the built-in agent behind `sed`, which changes what the agent gets.
pub(crate) fn configure(home: &Path, text: &str) {
    let (data, script) = (home.join("data"), home.join("requests.sed"));
    fs::create_dir_all(home.join("config")).unwrap();
    fs::write(
        home.join("config/config.toml"),
        format!(
            "default_agent = \"filtered\"\n{text}\n[agents.filtered]\nkind = \"loopback\"\ncommand = \"/bin/sh\"\n\
             args = [\"-c\", 'sed -u -f \"$2\" | \"$0\" loopback-agent --data \"$1\"', '{}', '{}', '{}']\n",
            env!("CARGO_BIN_EXE_sessiond"),
            data.display(),
            script.display()
        ),
    )
    .unwrap();
    change_requests(home, "");
}

/// Changes what the agent gets, from the next start of its process on.
pub(crate) fn change_requests(home: &Path, script: &str) {
    fs::write(home.join("requests.sed"), script).unwrap();
}

fn filtered(text: &str) -> Home {
    let home = Home::new();
    configure(home.path(), text);
    home
}

async fn prompt(app: &App, id: ConversationId, least: &str) -> TurnResult {
    let params = json!({"conversationId": id, "prompt": "go on", "minFidelity": least});
    serde_json::from_value(app.call("conversation/prompt", params).await.unwrap()).unwrap()
}

#[tokio::test]
async fn a_session_that_cannot_be_resumed_is_loaded() {
    for script in [RESUMES_NOTHING, ENDS_AT_RESUME] {
        let home = filtered("");
        let (daemon, app) = home.opened().await;
        let id = app.begun(&home.project(), &["first"]).await;
        let head = app.get(id).await.head.unwrap();
        daemon.kill();
        change_requests(home.path(), script);
        let (_daemon, app) = home.opened().await;
        let turn = prompt(&app, id, "full").await;
        assert_eq!(turn.upstream_id, head);
        assert_eq!(
            tried(&turn.resumed.unwrap()),
            [
                (Via::Resume, false),
                (Via::FreshProcess, false),
                (Via::Load, true)
            ]
        );
        assert_eq!(app.remembered(id).await, ["first", "go on"]);
        assert_eq!(app.lineage(id).await.len(), 1);
    }
}

/// A restored backup and a copy are loaded then too.
#[tokio::test]
async fn what_takes_the_place_of_a_session_that_cannot_be_resumed_is_loaded() {
    let opening = [
        (Via::Resume, false),
        (Via::FreshProcess, false),
        (Via::Load, false),
    ];
    for via in [Via::Archive, Via::Copied] {
        let home = filtered("[keep]\nenabled = false\n");
        let (daemon, app) = home.opened().await;
        let text = match via {
            Via::Copied => "[[forget]]",
            _ => "first",
        };
        let id = app.begun(&home.project(), &[text]).await;
        app.close(id).await;
        if via == Via::Archive {
            keep(&app, json!({"conversationId": id})).await.unwrap();
            lose(&home);
        }
        daemon.kill();
        change_requests(home.path(), RESUMES_NOTHING);
        let (_daemon, app) = home.opened().await;
        let resumed = prompt(&app, id, "full").await.resumed.unwrap();
        assert_eq!(tried(&resumed), [&opening[..], &[(via, true)]].concat());
        assert_eq!(app.remembered(id).await, [text, "go on"]);
    }
}

/// The agent opens neither the session nor its copy, so that the conversation continues with the history as text.
async fn roll(home: &Home, id: ConversationId) {
    change_requests(home.path(), OPENS_NOTHING);
    let (_daemon, app) = home.opened().await;
    let turn = app.send(id, "as text").await;
    let resumed = turn.resumed.unwrap();
    assert_eq!((resumed.via, resumed.fidelity), (Via::Text, Fidelity::Text));
    let (_, before) = resumed.attempts.split_last().unwrap();
    assert_eq!(before.last().unwrap().via, Via::Copied);
    change_requests(home.path(), "");
}

async fn undo(app: &App, id: ConversationId) -> Value {
    app.ask("conversation/undo", id).await
}

#[tokio::test]
async fn an_undo_goes_back_to_a_whole_session_that_was_left_for_text() {
    let home = filtered("");
    let (daemon, app) = home.opened().await;
    let id = app.begun(&home.project(), &["first", "second"]).await;
    let head = app.get(id).await.head.unwrap();
    daemon.kill();
    roll(&home, id).await;
    let (_daemon, app) = home.opened().await;
    app.send(id, "as text too").await;
    let undone = undo(&app, id).await;
    assert_eq!(undone["dropped"], 2, "{undone}");
    assert_eq!(undone["link"]["upstreamId"], json!(head), "{undone}");
    assert_eq!(undone["link"]["reason"], "undone", "{undone}");
    assert_eq!(undone.get("undone"), None, "{undone}");
    assert_eq!(app.remembered(id).await, ["first", "second"]);
    let nothing = app.call("conversation/undo", json!({"conversationId": id})).await;
    refused(nothing, ErrorKind::Conflict);
}

#[tokio::test]
async fn an_undo_of_a_roll_brings_back_what_was_unfinished() {
    let home = filtered("");
    let (daemon, app) = home.opened().await;
    let id = app.begun(&home.project(), &["first"]).await;
    app.send(id, "[[limit 3600]]").await;
    go_on(&app, id, json!({"at": "reset"})).await;
    let before = app.get(id).await;
    daemon.kill();
    roll(&home, id).await;
    let (_daemon, app) = home.opened().await;
    let rolled = app.get(id).await;
    assert_eq!((rolled.state, rolled.cut_short), (ConversationState::Idle, false));
    undo(&app, id).await;
    let after = app.get(id).await;
    assert_eq!((after.state, after.cut_short), (ConversationState::Limited, true));
    assert_eq!(
        (after.head, after.continuation),
        (before.head, before.continuation)
    );
}

/// If the session is lost by now, an undo takes back the change before the roll.
#[tokio::test]
async fn an_undo_passes_over_a_session_that_was_lost_after_the_roll() {
    let home = filtered("[keep]\nenabled = false\n");
    let (daemon, app) = home.opened().await;
    let id = app.begun(&home.project(), &["one", "two"]).await;
    let first = app.get(id).await.head.unwrap();
    let at = places(&app, id).await[1][0].clone();
    let edit = json!({"conversationId": id, "at": at, "prompt": "instead"});
    app.call("conversation/edit", edit).await.unwrap();
    let edited = home.transcript_of(&app, id).await;
    daemon.kill();
    roll(&home, id).await;
    fs::remove_file(edited).unwrap();
    let (_daemon, app) = home.opened().await;
    let undone = undo(&app, id).await;
    assert_eq!(
        (&undone["undone"], &undone["dropped"]),
        (&json!("edited"), &json!(2)),
        "{undone}"
    );
    assert_eq!(undone["link"]["upstreamId"], json!(first), "{undone}");
    assert_eq!(app.remembered(id).await, ["one", "two"]);
}
