//! Names that a user can type for a conversation: an id, a prefix of an id, a part of a title, `.`.

use std::fs;

use bridge_protocol::ConversationId;
use bridge_protocol::error::ErrorKind;
use bridge_protocol::method::ResolveConversation;
use serde_json::{Value, json};

use super::set_aside::reported;
use crate::home::Home;
use crate::support::{App, Refusal, refused};
use crate::test_programs;

async fn try_find(
    app: &App,
    name: &str,
    cwd: Option<&str>,
) -> Result<ConversationId, bridge_protocol::BridgeError> {
    let answer = app
        .result(ResolveConversation {
            name: name.to_owned(),
            cwd: cwd.map(str::to_owned),
        })
        .await?;
    assert_eq!(answer.conversation, app.get(answer.conversation.id).await);
    Ok(answer.conversation.id)
}

async fn find(app: &App, name: &str, cwd: Option<&str>) -> ConversationId {
    try_find(app, name, cwd).await.unwrap()
}

async fn titled(app: &App, cwd: &str, title: &str) -> ConversationId {
    app.make_with(cwd, json!({"title": title})).await.id
}

#[tokio::test]
async fn a_conversation_is_found_by_its_ids_their_prefixes_and_a_part_of_its_title() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let deploy = titled(&app, &home.project(), "Deploy the Übung").await;
    titled(&app, &home.project(), "Write the manual").await;
    let upstream = app.send(deploy, "hello").await.upstream_id.to_string();
    let id = deploy.to_string();
    for name in [
        &id[..],
        &id[..6],
        &id.to_uppercase()[..13],
        &upstream[..],
        &upstream[..13],
        "Deploy the Übung",
        "deploy",
        "THE ÜB",
        " deploy ",
    ] {
        assert_eq!(find(&app, name, None).await, deploy, "{name}");
    }
}

#[tokio::test]
async fn a_name_that_fits_several_conversations_is_refused_with_the_title_of_each() {
    let home = Home::new();
    let ids = ["abcdef01", "abcdef02"].map(|start| format!("{start}-0000-4000-8000-000000000000"));
    test_programs::fill_store(&home.data(), &home.project(), Some("ses_shared"), &ids);
    let daemon = home.start();
    let (mut raw, app) = (daemon.raw().await, daemon.app().await);
    let ambiguous = Refusal(1002, "ambiguous", false);
    let candidates = |data: Value| {
        let candidates = data["candidates"].as_array().unwrap().iter();
        let mut pairs: Vec<(String, String)> = candidates
            .map(|one| ["id", "title"].map(|name| one[name].as_str().unwrap().to_owned()))
            .map(|[id, title]| (id, title))
            .collect();
        pairs.sort();
        pairs
    };
    let untitled = ids.clone().map(|id| (id, String::new()));
    for name in ["abcdef", "ses_shared"] {
        let data = raw
            .refused("conversation/resolve", json!({"name": name}), ambiguous)
            .await;
        assert_eq!(candidates(data), untitled, "{name}");
    }
    let mut expected = Vec::new();
    for title in ["Deploy", "Deploy again"] {
        let id = titled(&app, &home.project(), title).await;
        expected.push((id.to_string(), title.to_owned()));
    }
    expected.sort();
    // A title that is also a part of another title is ambiguous too.
    let error = refused(try_find(&app, "deploy", None).await, ErrorKind::Ambiguous);
    assert_eq!(
        candidates(json!({"candidates": error.detail("candidates")})),
        expected
    );
    assert_eq!(
        find(&app, "deploy again", None).await.to_string(),
        expected
            .iter()
            .find(|(_, title)| title == "Deploy again")
            .unwrap()
            .0
    );
}

#[tokio::test]
async fn a_name_that_fits_nothing_is_refused_and_so_is_a_folder_that_is_not_absolute() {
    let home = Home::new();
    let daemon = home.start();
    let (mut raw, app) = (daemon.raw().await, daemon.app().await);
    let gone = titled(&app, &home.project(), "goes").await;
    app.ask("conversation/delete", gone).await;
    let missing = Refusal(1001, "notFound", false);
    for name in [
        "",
        " ",
        "goes",
        "no such title",
        "00000000-0000-4000-8000-000000000000",
    ] {
        raw.refused("conversation/resolve", json!({"name": name}), missing)
            .await;
    }
    let data = raw
        .refused("conversation/resolve", json!({"name": gone}), missing)
        .await;
    assert!(data["deletedAt"].is_string());
    let empty = json!({"name": ".", "cwd": home.project()});
    raw.refused("conversation/resolve", empty, missing).await;
    let invalid = Refusal(-32602, "invalidParams", false);
    for params in [json!({"name": "."}), json!({"name": ".", "cwd": "project"})] {
        let data = raw.refused("conversation/resolve", params, invalid).await;
        assert_eq!(data["parameter"], "cwd");
    }
    let data = raw.refused("conversation/resolve", json!({}), invalid).await;
    assert_eq!(data["parameter"], "name");
}

/// `.` does not depend on work in the background, which would change what the user's next command applies to.
#[tokio::test]
async fn a_dot_is_the_conversation_last_used_in_the_folder_else_the_newest() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let (here, there) = (home.project(), home.folder_named("elsewhere"));
    let first = titled(&app, &here, "first").await;
    let second = titled(&app, &here, "second").await;
    let other = titled(&app, &there, "other").await;
    assert_eq!(find(&app, ".", Some(&here)).await, second, "the newest");
    assert_eq!(find(&app, "first", Some(&here)).await, first);
    app.send(second, "it is the newest again").await;
    assert_eq!(find(&app, ".", Some(&here)).await, first);
    // Neither a conversation of another folder nor a call without a folder changes that.
    assert_eq!(find(&app, "other", Some(&here)).await, other);
    assert_eq!(find(&app, "second", None).await, second);
    assert_eq!(find(&app, ".", Some(&format!("{here}/"))).await, first);
    assert_eq!(find(&app, ".", Some(&there)).await, other);

    daemon.kill();
    let (daemon, app) = home.opened().await;
    assert_eq!(find(&app, ".", Some(&here)).await, first, "after a restart");
    app.ask("conversation/delete", first).await;
    assert_eq!(find(&app, ".", Some(&here)).await, second);
    assert_eq!(find(&app, "second", Some(&here)).await, second);
    let moved = json!({"conversationId": second, "cwd": there});
    app.call("conversation/move", moved).await.unwrap();
    refused(try_find(&app, ".", Some(&here)).await, ErrorKind::NotFound);

    // A file that cannot be read is set aside and not used.
    drop(app);
    daemon.kill();
    let file = home.data().join("last-used.json");
    fs::write(&file, "{\"version\":1,").unwrap();
    let (_daemon, app) = home.opened().await;
    assert_eq!(find(&app, ".", Some(&there)).await, second);
    assert_eq!(find(&app, "other", Some(&there)).await, other);
    let aside = file.with_file_name("last-used.json.set-aside-1");
    assert_eq!(fs::read_to_string(&aside).unwrap(), "{\"version\":1,");
    assert_eq!(reported(&app, &home.data()).await, [aside]);
}
