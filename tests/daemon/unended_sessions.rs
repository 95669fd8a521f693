//! Sessions that their agent does not end: what changes their files is refused until nobody can write to them
//! any more, however often it is asked for.

use bridge_protocol::ConversationId;
use bridge_protocol::error::{BridgeError, ErrorKind};
use serde_json::{Value, json};

use crate::home::{Home, kill_now};
use crate::moving::move_to;
use crate::scripted;
use crate::signs::Watched;
use crate::support::App;

/// A reply in one word.
const SAYS: &str = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":$S,"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Hm."}}}}"#;

/// A home whose agent opens sessions again and closes none.
fn home() -> Home {
    let home = Home::new();
    configure(&home, "");
    home
}

fn configure(home: &Home, limits: &str) {
    let capabilities = r#"{"loadSession":true,"sessionCapabilities":{}}"#;
    let agent = scripted::configured("claude", Some(capabilities));
    let transcripts = home.folder_named("claude");
    let kind = format!("kind = \"claude\"\ntranscripts = \"{transcripts}\"");
    let agent = agent.replace("kind = \"generic\"", &kind);
    home.configure(&format!("default_agent = \"claude\"\n{limits}\n{agent}"));
}

async fn repair(app: &App, id: ConversationId) -> Result<Value, BridgeError> {
    let params = json!({"conversationId": id, "repair": true});
    app.call("transcript/check", params).await
}

#[tokio::test]
async fn files_are_left_alone_until_the_session_has_ended_however_often_it_is_asked_for() {
    let home = home();
    let (_daemon, app) = home.opened().await;
    let id = app.make(&home.project()).await;
    app.send(id, SAYS).await;
    let elsewhere = home.folder_named("elsewhere");
    for _ in 0..3 {
        let moved = move_to(&app, id, &elsewhere).await;
        assert_eq!(moved.unwrap_err().kind, ErrorKind::Busy);
        let repaired = repair(&app, id).await;
        assert_eq!(repaired.unwrap_err().kind, ErrorKind::Busy);
    }
    assert_eq!(app.get(id).await.cwd, home.project());

    let log = Watched::below(home.path());
    for (pid, line) in home.processes() {
        if line.contains("scripted-agent") {
            kill_now(pid);
        }
    }
    log.wait_for("report of the agent's end", || {
        home.logged().contains("an agent has ended").then_some(())
    });
    // The log is a moment ahead of what refuses the move.
    while let Err(error) = move_to(&app, id, &elsewhere).await {
        assert_eq!((error.kind, error.retryable), (ErrorKind::Busy, true));
    }
    assert_eq!(app.get(id).await.cwd, elsewhere);
}

/// An agent that has not answered in time may still open the session, and write to it.
#[tokio::test]
async fn files_are_left_alone_while_an_agent_may_still_open_the_session() {
    let home = home();
    let (daemon, app) = home.opened().await;
    let id = app.make(&home.project()).await;
    app.send(id, SAYS).await;
    daemon.kill();
    std::fs::write(home.path().join(scripted::SILENT_ON_LOAD), "").unwrap();
    configure(&home, "[limits]\nsession_open_ms = 1");
    let (_daemon, app) = home.opened().await;
    app.try_send(id, SAYS).await.unwrap_err();
    let elsewhere = home.folder_named("elsewhere");
    for _ in 0..2 {
        let moved = move_to(&app, id, &elsewhere).await;
        assert_eq!(moved.unwrap_err().kind, ErrorKind::Busy);
    }
    assert_eq!(app.get(id).await.cwd, home.project());
}
