//! Size limits of imported bundles. They are the same as for values that a client sends, so that each record fits into
//! a response.

use bridge_protocol::error::ErrorKind;
use serde_json::{Value, json};

use super::bad_bundles::{Bench, with_manifest};
use crate::carrying::import;
use crate::home::Home;
use crate::support::refused;

const MIB: usize = 1024 * 1024;

fn question(bytes: usize) -> Value {
    json!([{"id": "i", "kind": "permission", "request": {"text": "x".repeat(bytes)},
        "raisedAt": "2026-11-03T10:00:00Z", "orphaned": true}])
}

fn missing(sessions: usize, bytes: usize) -> Value {
    let session =
        |number| json!({"upstreamId": format!("{number}"), "agent": "loopback", "detail": "x".repeat(bytes)});
    (0..sessions).map(session).collect()
}

/// A record that is larger than a response can be would end every list at its page, so the import is refused.
#[tokio::test]
async fn what_no_list_could_hold_is_refused() {
    let bench = Bench::new().await;
    let good = bench.entries();
    let with = |path: &[&str], value: Value| {
        with_manifest(&good, |manifest| {
            let member = path.iter().fold(manifest, |value, name| &mut value[*name]);
            *member = value;
        })
    };
    let long = |bytes| json!("x".repeat(bytes));
    let table = [
        ("a title", with(&["conversation", "title"], long(5 * 1024))),
        ("a model", with(&["settings", "model"], long(5 * 1024))),
        (
            "a model of megabytes",
            with(&["settings", "model"], long(40 * MIB)),
        ),
        ("a mode", with(&["settings", "mode"], long(5 * 1024))),
        ("a namespace", with(&["conversation", "namespace"], long(1024))),
        (
            "a question",
            with(&["conversation", "interrupts"], question(40 * MIB)),
        ),
        (
            "instructions",
            with(&["settings", "systemPrompt"], long(40 * MIB)),
        ),
        (
            "a link",
            with_manifest(&good, |manifest| {
                manifest["chain"][0]["fromCheckpointId"] = long(40 * MIB);
            }),
        ),
        (
            "an entry of the lineage",
            with_manifest(&good, |manifest| {
                manifest["lineage"][0]["fromCheckpointId"] = long(40 * MIB);
            }),
        ),
        ("a missing session", with(&["missing"], missing(1, 40 * MIB))),
        (
            "many missing sessions",
            with(&["missing"], missing(40 * 1024, 1024)),
        ),
    ];
    let table = table.map(|(what, bytes)| (what, bytes, ErrorKind::InvalidParams));
    bench.refuses_trusted(table.to_vec()).await;
}

/// The same limits apply to settings that a client sends.
#[tokio::test]
async fn a_model_and_a_mode_are_names() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    for member in ["model", "mode"] {
        let settings = json!({member: "x".repeat(5 * 1024)});
        let params = json!({"cwd": home.project(), "settings": settings});
        refused(
            app.call("conversation/new", params).await,
            ErrorKind::InvalidParams,
        );
        let params = json!({"conversationId": id, "settings": settings});
        refused(
            app.call("conversation/update", params).await,
            ErrorKind::InvalidParams,
        );
    }
}

/// Revisions can still be counted after an import, and the title is shown on one line.
#[tokio::test]
async fn a_revision_and_a_title_of_a_bundle_do_no_harm() {
    let bench = Bench::new().await;
    let bytes = with_manifest(&bench.entries(), |manifest| {
        manifest["conversation"]["revision"] = json!(u64::MAX);
        manifest["conversation"]["title"] = json!("two\nlines\u{1b}[2J");
    });
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let path = home.path().join("bundle");
    std::fs::write(&path, bytes).unwrap();
    let imported = import(&app, json!({"path": path, "cwd": home.project()}))
        .await
        .unwrap();
    assert_eq!(imported.title, "two lines[2J");
    assert!(imported.revision < 1 << 53, "{}", imported.revision);
    app.send(imported.id, "next").await;
}
