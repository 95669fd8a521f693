//! Adoption of a fork that was made elsewhere: its link refers to the session that it was forked from. That session is
//! not adopted automatically, but can be.

use std::fs;

use bridge_protocol::UpstreamId;
use bridge_protocol::conversation::AdoptAnswer;
use bridge_protocol::link::{Link, Via};
use serde_json::{Value, json};

use crate::home::Home;
use crate::support::App;

#[tokio::test]
async fn each_session_of_a_family_of_forks_is_a_conversation_of_its_own() {
    let (other, [root, middle, head]) = generations().await;
    let home = brought(&other, &[&root, &middle, &head]);
    let (_daemon, app) = home.opened().await;
    let mut adopted = Vec::new();
    for (id, from, turns) in [
        (&head, Some(middle.as_str()), 3),
        (&middle, Some(root.as_str()), 2),
        (&root, None, 1),
    ] {
        let answer = adopt(&app, id).await;
        assert_eq!(answer.missing, []);
        let conversation = answer.conversation.id;
        let links = app.chain(conversation).await;
        assert_eq!((ids(&links), froms(&links)), (vec![id.as_str()], vec![from]));
        assert_eq!(links[0].carried_turns, turns);
        assert!(!adopted.contains(&conversation));
        adopted.push(conversation);
    }
    let texts = ["one", "two", "three"];
    for (conversation, turns) in adopted.into_iter().zip([3, 2, 1]) {
        app.send(conversation, "go on").await;
        let remembered = app.remembered(conversation).await;
        assert_eq!(remembered, [&texts[..turns], &["go on"]].concat());
    }
}

/// The reference to the source is enough: the history and the ladder read the source's transcript.
#[tokio::test]
async fn a_fork_goes_on_from_its_source_when_its_own_transcript_is_gone() {
    let (other, [_, middle, head]) = generations().await;
    let home = brought(&other, &[&middle, &head]);
    let (_daemon, app) = home.opened().await;
    let source = adopt(&app, &middle).await.conversation.id;
    let fork = adopt(&app, &head).await.conversation.id;
    fs::remove_file(home.transcript(&head).unwrap()).unwrap();
    let history = app.ask("conversation/history", fork).await;
    let gaps = history["gaps"].as_array().unwrap();
    assert_eq!(
        (gaps.len(), &gaps[0]["kind"], &gaps[0]["upstreamId"]),
        (1, &json!("missing"), &json!(head))
    );
    assert_eq!(prompts(&history), 2);
    let resumed = app.send(fork, "go on").await.resumed.unwrap();
    assert_eq!((resumed.via, resumed.missing_turns), (Via::OlderLink, 1));
    assert_eq!(app.remembered(fork).await, ["one", "two", "go on"]);
    // The conversation continued in a copy, so the source's transcript is unchanged.
    assert_eq!(text_of(&home, &middle), text_of(&other, &middle));
    assert_eq!(app.remembered(source).await, ["one", "two"]);
}

/// A fork whose source is missing, or has an id that is not valid, is adopted nevertheless: its own transcript is
/// complete.
#[tokio::test]
async fn a_source_of_no_use_does_not_keep_a_fork_from_being_adopted() {
    let (other, [root, middle, _]) = generations().await;
    let of_middle = text_of(&other, &middle);
    let home = Home::new();
    let table = [
        ("gone", "nowhere"),
        ("outside", "../x"),
        ("blank", " x"),
        ("round", "round"),
    ];
    for (id, from) in table {
        put(&home, id, &of_middle.replace(&middle, id).replace(&root, from));
    }
    let (_daemon, app) = home.opened().await;
    for (id, _) in table {
        let conversation = adopt(&app, id).await.conversation.id;
        assert_eq!(ids(&app.chain(conversation).await), [id]);
        app.send(conversation, "go on").await;
        assert_eq!(
            app.remembered(conversation).await,
            ["one", "two", "go on"],
            "{id}"
        );
    }
}

/// The conversation owns only the adopted session. Its source was made elsewhere and was never adopted, so it is not
/// deleted.
#[tokio::test]
async fn deleting_with_transcripts_spares_the_source() {
    let (other, [_, middle, head]) = generations().await;
    let home = brought(&other, &[&middle, &head]);
    let (_daemon, app) = home.opened().await;
    let id = adopt(&app, &head).await.conversation.id;
    app.erase(id).await;
    assert_eq!(
        [&middle, &head].map(|id| home.transcript(id).is_some()),
        [true, false]
    );
    let anew = adopt(&app, &middle).await.conversation.id;
    assert_eq!(app.remembered(anew).await, ["one", "two"]);
}

/// Returns a home whose daemon has ended, and the ids of its three sessions. Each session is a fork of the previous
/// one, with one turn more: `one`, `two` and `three`.
async fn generations() -> (Home, [String; 3]) {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let mut id = app.make(&home.project()).await;
    let mut ids = Vec::new();
    for text in ["one", "two", "three"] {
        if !ids.is_empty() {
            id = app.fork(id, false).await.unwrap().conversation.id;
        }
        ids.push(app.send(id, text).await.upstream_id.as_str().to_owned());
    }
    drop(app);
    drop(daemon);
    (home, ids.try_into().unwrap())
}

fn text_of(home: &Home, id: &str) -> String {
    fs::read_to_string(home.transcript(id).unwrap()).unwrap()
}

fn put(home: &Home, id: &str, text: &str) {
    let folder = home.data().join("loopback/projects/-some-folder");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(format!("{id}.jsonl")), text).unwrap();
}

/// Returns a new home that contains copies of these transcripts.
fn brought(from: &Home, ids: &[&str]) -> Home {
    let home = Home::new();
    for id in ids {
        put(&home, id, &text_of(from, id));
    }
    home
}

async fn adopt(app: &App, id: &str) -> AdoptAnswer {
    let answer = app.call("conversation/adopt", json!({"upstreamId": id}));
    serde_json::from_value(answer.await.unwrap()).unwrap()
}

fn ids(links: &[Link]) -> Vec<&str> {
    links.iter().map(|link| link.upstream_id.as_str()).collect()
}

fn froms(links: &[Link]) -> Vec<Option<&str>> {
    let froms = links.iter().map(|link| link.from_upstream_id.as_ref());
    froms.map(|from| from.map(UpstreamId::as_str)).collect()
}

/// Returns the number of prompts in a history.
fn prompts(history: &Value) -> usize {
    let messages = history["messages"].as_array().unwrap().iter();
    messages.filter(|message| message["role"] == "user").count()
}
