//! Sessions that their agent does not open although their transcripts are whole.

use std::fs;
use std::path::Path;

use bridge_protocol::ConversationId;
use bridge_protocol::link::Via;
use bridge_protocol::turn::TurnResult;
use serde_json::json;

use crate::home::Home;
use crate::keeping::{keep, lose};
use crate::support::{App, tried};

/// The agent does not know `session/resume`.
const RESUMES_NOTHING: &str = r#"s/"method":"session\/resume"/"method":"session\/refused"/"#;

/// The agent ends when it is to resume a session.
const ENDS_AT_RESUME: &str = r#"/"method":"session\/resume"/Q"#;

/// Configures the built-in agent behind `sed`, which changes what the agent gets.
fn configure(home: &Path, text: &str) {
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
fn change_requests(home: &Path, script: &str) {
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
