//! Titles that agents report, or do not report.

use std::fs;

use serde_json::{Value, json};

use crate::home::Home;
use crate::scripted;
use crate::watching::{append_turn, turn};

const SESSION: &str = "5f0c1d7e-29d5-4b7b-8f0b-5c1f2f4f7a11";

/// The line of a script that reports this title.
fn titled(title: &str) -> String {
    scripted::update(&json!({"sessionUpdate": "session_info_update", "title": title}))
}

/// After a resume, Claude's adapter reports the last prompt of a session without a title as its title, also while the next
/// turn runs. A prompt here is a script, so each begins with the title that the agent reports.
#[tokio::test]
async fn a_title_that_only_repeats_the_last_prompt_before_a_resume_does_not_count() {
    let home = Home::new();
    let capabilities = r#"{"loadSession":true,"sessionCapabilities":{"resume":{},"close":{}}}"#;
    let agent = scripted::configured_kind(&home, "claude", capabilities);
    home.folder_named("claude/projects/-p");
    home.configure(&format!("default_agent = \"claude\"\n{agent}"));
    let path = home.path().join(format!("claude/projects/-p/{SESSION}.jsonl"));
    let (asked, answered) = turn(&Value::Null, "mend the parser", "Mended.");
    fs::write(&path, asked + &answered).unwrap();
    append_turn(&path, "now the\nprinter");
    let (_daemon, app) = home.opened().await;
    let adopt = json!({"upstreamId": SESSION, "cwd": home.project()});
    let id = app.made_by("conversation/adopt", adopt).await;
    for title in ["now the printer", "now the…"] {
        app.send(id, &titled(title)).await;
        assert_eq!(app.get(id).await.title, "mend the parser");
        app.close(id).await;
    }
    app.send(id, &titled("Parser and printer")).await;
    assert_eq!(app.get(id).await.title, "Parser and printer");
}

/// The title is the first prompt until the agent reports another.
#[tokio::test]
async fn a_conversation_whose_agent_reports_no_title_has_that_of_its_first_prompt() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let (daemon, app) = home.opened().await;
    let id = app.make_of(&home.project(), "scripted").await;
    let first = scripted::chunk("first");
    app.send(id, &first).await;
    assert_eq!(app.get(id).await.title, first);
    let mut raw = daemon.raw().await;
    let prompt = json!({"conversationId": id, "prompt": format!("{}\nhold", scripted::chunk("second"))});
    raw.subscribe(id).await;
    let request = raw.send("conversation/prompt", prompt).await;
    raw.event("update").await;
    app.ask("conversation/cancel", id).await;
    assert_eq!(raw.answer(request).await["result"]["stopReason"], "cancelled");
    assert_eq!(app.get(id).await.title, first);
    app.send(id, &titled("a name")).await;
    assert_eq!(app.get(id).await.title, "a name");
}
