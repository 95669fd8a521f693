//! Exports with missing parts: what they leave out, and how they report it.

use std::fs;

use bridge_protocol::error::ErrorKind;
#[cfg(target_os = "linux")]
use rustix::io::Errno;
use serde_json::{Value, json};

use super::error_words;
use crate::carrying::{bundle, import};
#[cfg(target_os = "linux")]
use crate::failing_calls::{Call, Calls};
use crate::home::Home;
use crate::support::refused;

#[tokio::test]
async fn keys_of_servers_are_in_no_export_that_does_not_ask_for_them() {
    let (there, here) = (Home::new(), Home::new());
    let (_daemon, app) = there.opened().await;
    let servers = json!([
        {"name": "one", "command": "/bin/true", "args": ["--key", "s3cret"],
         "env": [{"name": "KEY", "value": "s3cret"}], "_meta": {"key": "s3cret"}},
        {"type": "http", "name": "two", "url": "http://me:s3cret@127.0.0.1:9/s3cret?key=s3cret",
         "headers": [{"name": "Authorization", "value": "Bearer s3cret", "was": "s3cret"}]},
        {"type": "sse", "name": "three", "url": "http://127.0.0.1:9/", "headers": {"Authorization": "s3cret"}},
    ]);
    let made = app
        .make_with(&there.project(), json!({"settings": {"mcpServers": servers}}))
        .await;
    let params = json!({"conversationId": made.id});
    let told = app.call("conversation/export", params.clone()).await.unwrap();
    let shown = &told["conversation"]["settings"]["mcpServers"];
    let authorization = json!([{"name": "Authorization"}]);
    assert_eq!(
        *shown,
        json!([
            {"name": "one", "command": "/bin/true", "env": [{"name": "KEY"}]},
            {"type": "http", "name": "two", "headers": authorization},
            {"type": "sse", "name": "three", "headers": authorization},
        ])
    );
    let file = there.path().join("told.json");
    let params = json!({"conversationId": made.id, "format": "json", "path": file});
    app.call("conversation/export", params).await.unwrap();
    let text = fs::read_to_string(&file).unwrap();
    assert!(
        text.contains("Authorization") && !text.contains("s3cret"),
        "{text}"
    );

    let params = json!({"conversationId": made.id, "format": "bundle", "secrets": true});
    let path = app.call("conversation/export", params).await.unwrap()["path"].clone();
    let (_daemon, app) = here.opened().await;
    let imported = import(
        &app,
        json!({"path": path, "cwd": here.project(), "trustSettings": true}),
    )
    .await
    .unwrap();
    let settings = serde_json::to_value(&imported.settings).unwrap();
    assert_eq!(settings["mcpServers"], servers);
}

/// An export does not wait for the agent. It reports turns that are not in the transcript yet.
#[tokio::test]
async fn turns_that_are_not_in_the_file_are_told() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["one"]).await;
    let head = app.get(id).await.head.unwrap();
    let transcript = home.transcript_of(&app, id).await;
    let before = fs::read_to_string(&transcript).unwrap();
    app.send(id, "two").await;
    app.close(id).await;
    let whole = bundle(&app, id).await;
    assert_eq!(whole.get("missing"), None, "{whole}");
    let params = json!({"conversationId": id});
    let told: Value = app.call("conversation/export", params.clone()).await.unwrap();
    assert_eq!(told.get("gaps"), None, "{told}");

    fs::write(&transcript, before).unwrap();
    let short = bundle(&app, id).await;
    assert_eq!(short["missing"][0]["upstreamId"], json!(head));
    let detail = short["missing"][0]["detail"].as_str().unwrap();
    error_words::check_counted("an export of a cut transcript", "missing", detail, &[1, 2]);
    let told = app.call("conversation/export", params).await.unwrap();
    assert_eq!(told["gaps"][0]["upstreamId"], json!(head));
    let detail = told["gaps"][0]["detail"].as_str().unwrap();
    error_words::check_counted("conversation/export", "behind", detail, &[1, 2]);
    let file = home.path().join("told.json");
    let params = json!({"conversationId": id, "format": "json", "path": file});
    let answer = app.call("conversation/export", params).await.unwrap();
    assert_eq!(answer["gaps"], told["gaps"]);
    let text: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(text["gaps"], told["gaps"]);
}

#[tokio::test]
async fn titles_of_any_writing_make_names_that_fit() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    for letter in ["\u{10400}", "\u{4e2d}", "x"] {
        let title = json!({"title": letter.repeat(300)});
        let id = app.make_with(&home.project(), title).await.id;
        for suffix in ["", "-2"] {
            let path = bundle(&app, id).await["path"].as_str().unwrap().to_owned();
            assert!(
                path.ends_with(&format!("{suffix}.session-bundle.tar.zst")),
                "{path}"
            );
        }
    }
    let id = app.make(&home.project()).await;
    let path = home.path().join("x".repeat(300));
    let params = json!({"conversationId": id, "format": "bundle", "path": path});
    let answer = app.call("conversation/export", params).await;
    refused(answer, ErrorKind::InvalidParams);
}

/// If a file is deleted after it was listed, for example by a deletion of the conversation, the export is `busy` and
/// not a failure of the disk.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_file_that_vanishes_during_an_export_is_busy() {
    let home = Home::keeping_nothing();
    let calls = Calls::of(&home, &[Call::Open]);
    let (_daemon, app) = calls.opened().await;
    let id = app.begun(&home.project(), &["one"]).await;
    app.close(id).await;
    let transcript = home.transcript_of(&app, id).await;
    let export = json!({"conversationId": id, "format": "bundle"});
    let mut was_busy = false;
    for opened in 0.. {
        calls.pass(Call::Open, &transcript, opened);
        calls.fail(Call::Open, &transcript, Errno::NOENT, 1);
        let told = app.call("conversation/export", export.clone()).await;
        let has_failed = calls.succeed() > 0;
        match told {
            // The failed open was repeated.
            Ok(_) if has_failed => {}
            Ok(_) => break,
            Err(error) => {
                assert_eq!(
                    (error.kind, error.retryable),
                    (ErrorKind::Busy, true),
                    "{opened}: {error:?}"
                );
                was_busy = true;
            }
        }
    }
    assert!(was_busy);
}
