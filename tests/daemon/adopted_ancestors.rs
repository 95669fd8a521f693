//! Transcripts that came from others are adopted with those: the chain is what the files say.

use std::fs;

use bridge_protocol::conversation::{AdoptAnswer, Conversation};
use bridge_protocol::link::{Fidelity, LineageReason, Link, LinkReason, Relation, Via};
use bridge_protocol::{ConversationId, UpstreamId};
use serde_json::{Value, json};

use super::error_words;
use crate::home::Home;
use crate::support::App;

/// The source of a fork may be a conversation by itself: it is that when it has gone on since.
#[tokio::test]
async fn a_source_that_went_on_is_named_and_not_taken_along() {
    let other = Home::new();
    let (daemon, app) = other.opened().await;
    let source = app.make(&other.project()).await;
    let root = app.send(source, "one").await.upstream_id;
    let fork = app.fork(source, false).await.unwrap().conversation.id;
    let head = app.send(fork, "on the branch").await.upstream_id;
    app.send(source, "two").await;
    drop(app);
    drop(daemon);
    let (root, head) = (root.as_str(), head.as_str());
    let home = brought(&other, &[root, head]);
    let (_daemon, app) = home.opened().await;
    let branch = adopt(&app, head).await.conversation.id;
    let links = app.chain(branch).await;
    assert_eq!((ids(&links), froms(&links)), (vec![head], vec![Some(root)]));
    let own = adopt(&app, root).await.conversation.id;
    assert_ne!(own, branch);
    assert_eq!(ids(&app.chain(own).await), [root]);
    let said = |history: Value| history["messages"].as_array().unwrap().len();
    let (of_branch, of_source) = (pages(&app, branch).await.0, pages(&app, own).await.0);
    assert_eq!((said(of_branch), said(of_source)), (4, 4));
}

/// Three sessions, each the agent's own fork of the one before with one turn more: `one`, `two` and `three`,
/// made in another home whose daemon has ended.
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

/// A home into which these transcripts of another one were brought.
fn brought(from: &Home, ids: &[&str]) -> Home {
    let home = Home::new();
    for id in ids {
        put(&home, id, &text_of(from, id));
    }
    home
}

/// The transcript of a branch `id` off the first records of another, as an agent writes it that forks at a
/// message.
fn branched(text: &str, id: &str, from: &str, records: usize) -> String {
    let renamed = |uuid: &Value| uuid.as_str().map(|uuid| json!(format!("{id}-{uuid}")));
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let chained = lines.filter(|record| record["uuid"].is_string());
    let copies = chained.take(records).map(|mut record| {
        record["forkedFrom"] = json!({"sessionId": from, "messageUuid": record["uuid"]});
        record["sessionId"] = json!(id);
        record["uuid"] = renamed(&record["uuid"]).unwrap();
        record["parentUuid"] = renamed(&record["parentUuid"]).unwrap_or(Value::Null);
        format!("{record}\n")
    });
    copies.collect()
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

async fn found(app: &App, name: &str) -> ConversationId {
    let answer = app.call("conversation/get", json!({"conversationId": name}));
    let conversation: Conversation =
        serde_json::from_value(answer.await.unwrap()["conversation"].clone()).unwrap();
    conversation.id
}

/// How many prompts a history tells.
fn prompts(history: &Value) -> usize {
    let messages = history["messages"].as_array().unwrap().iter();
    messages.filter(|message| message["role"] == "user").count()
}

async fn pages(app: &App, id: ConversationId) -> (Value, Value) {
    let whole = json!({"conversationId": id});
    let history = app.call("conversation/history", whole.clone()).await.unwrap();
    (
        history,
        app.call("conversation/checkpoints", whole).await.unwrap(),
    )
}

#[tokio::test]
async fn a_fork_is_adopted_with_the_sessions_that_it_came_from() {
    let (other, [root, middle, head]) = generations().await;
    let home = brought(&other, &[&root, &middle, &head]);
    let (daemon, app) = home.opened().await;
    let answer = adopt(&app, &head).await;
    assert_eq!(answer.missing, []);
    let id = answer.conversation.id;
    assert_eq!(
        (
            answer.conversation.head.unwrap().as_str(),
            answer.conversation.chain_length
        ),
        (head.as_str(), 3)
    );
    let links = app.chain(id).await;
    assert_eq!(ids(&links), [&root, &middle, &head]);
    assert_eq!(froms(&links), [None, Some(root.as_str()), Some(middle.as_str())]);
    let told: Vec<_> = links
        .iter()
        .map(|link| {
            (
                link.reason,
                link.relation,
                link.turns,
                link.carried_turns,
                link.written,
            )
        })
        .collect();
    let (adopted, carries) = (LinkReason::Adopted, Relation::Carries);
    assert_eq!(
        told,
        [
            (adopted, Relation::Fresh, 0, 1, true),
            (adopted, carries, 0, 2, true),
            (adopted, carries, 0, 3, true)
        ]
    );
    assert!(links.iter().all(|link| link.cwd == other.project()));

    // Each joined when its own first message was written; the one that was asked for joins now.
    let own_prompt = |id: &str, text: &str| {
        let records = text_of(&home, id);
        let mut records = records
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let is_it = |record: &Value| {
            record["message"]["content"]
                .to_string()
                .contains(&format!("\"{text}\""))
        };
        let prompt = records
            .find(|record| record["type"] == "user" && is_it(record))
            .unwrap();
        prompt["timestamp"].as_str().unwrap().parse().unwrap()
    };
    let times: Vec<_> = links.iter().map(|link| link.at).collect();
    let created = answer.conversation.created_at;
    assert_eq!(
        times,
        [own_prompt(&root, "one"), own_prompt(&middle, "two"), created]
    );
    let lineage = app.lineage(id).await;
    let logged: Vec<_> = lineage
        .iter()
        .map(|entry| {
            (
                entry.seq,
                entry.upstream_id.as_str(),
                entry.reason,
                entry.at,
                entry.in_chain,
            )
        })
        .collect();
    let reason = LineageReason::Adopted;
    assert_eq!(
        logged,
        [
            (1, root.as_str(), reason, times[0], true),
            (2, middle.as_str(), reason, times[1], true),
            (3, head.as_str(), reason, times[2], true)
        ]
    );

    // Whichever id is named, it is the same conversation, after a restart too, and it is adopted once.
    drop(app);
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    for name in [&root, &middle, &head] {
        assert_eq!(found(&app, name).await, id);
        let again = adopt(&app, name).await;
        assert_eq!(
            (again.conversation.id, again.conversation.head.unwrap().as_str()),
            (id, head.as_str())
        );
    }
    let (history, checkpoints) = pages(&app, id).await;
    assert_eq!((history.get("gaps"), checkpoints.get("gaps")), (None, None));
    let places = checkpoints["checkpoints"].as_array().unwrap();
    // The link refers to the place that the first own turn stands behind.
    assert_eq!(places[1]["origin"], json!(links[2].from_checkpoint_id));
    let resumed = app.send(id, "go on").await.resumed.unwrap();
    assert_eq!(
        (resumed.via, resumed.fidelity, resumed.missing_turns),
        (Via::Resume, Fidelity::Full, 0)
    );
    assert_eq!(app.remembered(id).await, ["one", "two", "three", "go on"]);
}

#[tokio::test]
async fn what_it_came_from_is_what_is_left_when_its_own_transcript_is_gone() {
    let (other, [root, middle, head]) = generations().await;
    let home = brought(&other, &[&root, &middle, &head]);
    let (_daemon, app) = home.opened().await;
    let id = adopt(&app, &head).await.conversation.id;
    fs::remove_file(home.transcript(&head).unwrap()).unwrap();
    let (history, _) = pages(&app, id).await;
    assert_eq!(
        (&history["gaps"][0]["kind"], &history["gaps"][0]["upstreamId"]),
        (&json!("missing"), &json!(head))
    );
    assert_eq!(prompts(&history), 2);
    let resumed = app.send(id, "go on").await.resumed.unwrap();
    assert_eq!(
        (resumed.via, resumed.fidelity, resumed.missing_turns),
        (Via::OlderLink, Fidelity::Partial, 1)
    );
    assert_eq!(app.remembered(id).await, ["one", "two", "go on"]);
    // It was taken up as a copy: what was made elsewhere is as it was.
    assert_eq!(text_of(&home, &middle), text_of(&other, &middle));
}

/// A branch off the part that a branch had carried over: a turn that it left out does not come back by way of
/// the first.
#[tokio::test]
async fn a_place_is_named_in_the_session_in_which_it_was_written() {
    let (other, [root, middle, head]) = generations().await;
    let home = brought(&other, &[&root, &middle, &head]);
    // The head has three turns, of which the first two are copies; the branch keeps the first.
    let text = text_of(&home, &head);
    let records = text.lines().filter(|line| line.contains("\"uuid\"")).count();
    put(&home, "branch", &branched(&text, "branch", &head, records / 3));
    let (_daemon, app) = home.opened().await;
    let answer = adopt(&app, "branch").await;
    let links = app.chain(answer.conversation.id).await;
    assert_eq!(
        (ids(&links), answer.missing),
        (vec![root.as_str(), "branch"], vec![])
    );
    assert_eq!(links[1].carried_turns, 1);
    let (_, checkpoints) = pages(&app, answer.conversation.id).await;
    let of_root = where_it_was_made(&other, &root).await;
    assert_eq!(
        json!(links[1].from_checkpoint_id),
        of_root["checkpoints"][0]["id"]
    );
    assert_eq!(checkpoints["checkpoints"].as_array().unwrap().len(), 1);
}

/// The checkpoints of a session where it was made.
async fn where_it_was_made(home: &Home, id: &str) -> Value {
    let (_daemon, app) = home.opened().await;
    let params = json!({"conversationId": id});
    app.call("conversation/checkpoints", params).await.unwrap()
}

/// Older versions resumed a session in a new file that begins with the old one's records, under the old one's
/// id.
#[tokio::test]
async fn records_of_another_session_are_the_past_of_what_it_was_resumed_as() {
    let (other, [_, middle, _]) = generations().await;
    let home = brought(&other, &[&middle]);
    put(&home, "resumed", &text_of(&home, &middle));
    let (_daemon, app) = home.opened().await;
    let answer = adopt(&app, "resumed").await;
    let id = answer.conversation.id;
    let links = app.chain(id).await;
    assert_eq!(ids(&links), [middle.as_str(), "resumed"]);
    assert_eq!(links[1].from_upstream_id.as_ref().unwrap().as_str(), middle);
    // The session before that is not there, which is told.
    assert_eq!(answer.missing.len(), 1);
    error_words::check("conversation/adopt", "missing", &answer.missing[0].detail);
    app.send(id, "go on").await;
    let (_, checkpoints) = pages(&app, id).await;
    let places = checkpoints["checkpoints"].as_array().unwrap();
    assert_eq!(places.len(), 3);
    assert_eq!(places[1]["origin"], json!(links[1].from_checkpoint_id));
    assert_eq!(places[0].get("origin"), None);
    assert_eq!(app.remembered(id).await, ["one", "two", "go on"]);
}

#[tokio::test]
async fn what_another_conversation_has_stays_its_own() {
    let (other, [root, middle, head]) = generations().await;
    let home = brought(&other, &[&root, &middle, &head]);
    let (_daemon, app) = home.opened().await;
    let first = adopt(&app, &middle).await.conversation.id;
    let answer = adopt(&app, &head).await;
    let second = answer.conversation.id;
    assert_ne!(first, second);
    assert_eq!(answer.missing, []);
    let links = app.chain(second).await;
    assert_eq!(
        (ids(&links), froms(&links)),
        (vec![head.as_str()], vec![Some(middle.as_str())])
    );
    for (name, owner) in [(&root, first), (&middle, first), (&head, second)] {
        assert_eq!(found(&app, name).await, owner);
    }
    // The reference is enough: history and ladder read what it leads to.
    fs::remove_file(home.transcript(&head).unwrap()).unwrap();
    let (history, _) = pages(&app, second).await;
    let gaps = history["gaps"].as_array().unwrap();
    assert_eq!((gaps.len(), &gaps[0]["upstreamId"]), (1, &json!(head)));
    assert_eq!(prompts(&history), 2);
    assert_eq!(
        app.send(second, "go on").await.resumed.unwrap().via,
        Via::OlderLink
    );
    assert_eq!(app.remembered(second).await, ["one", "two", "go on"]);
    assert_eq!(app.remembered(first).await, ["one", "two"]);
}

#[tokio::test]
async fn a_past_that_is_of_no_use_is_told_and_left_out() {
    let (other, [root, middle, _]) = generations().await;
    let of_middle = text_of(&other, &middle);
    // The session's id, where it says that it came from, and what is told of that.
    let case = |id: &'static str, from: &'static str, words: &'static str| {
        (
            id,
            of_middle.replace(&middle, id).replace(&root, from),
            from,
            words,
        )
    };
    let table = [
        case("gone", "nowhere", "no transcript"),
        case("outside", "../x", "cannot be the name"),
        case("blank", " x", "no session has such an id"),
        case("silent", "empty", "does not hold the place"),
        case("round", "round", "in a circle"),
    ];
    let home = Home::new();
    put(&home, "empty", "");
    for (id, text, ..) in &table {
        put(&home, id, text);
    }
    let (_daemon, app) = home.opened().await;
    for (id, _, missing, words) in table {
        let answer = adopt(&app, id).await;
        assert_eq!(ids(&app.chain(answer.conversation.id).await), [id]);
        let [told] = answer.missing.as_slice() else {
            panic!("{id}: {:?}", answer.missing);
        };
        assert_eq!(
            (told.upstream_id.as_str(), told.agent.as_str()),
            (missing, "loopback")
        );
        assert!(
            told.detail.contains(words) && told.detail.contains(id),
            "{told:?}"
        );
        app.send(answer.conversation.id, "go on").await;
        assert_eq!(
            app.remembered(answer.conversation.id).await,
            ["one", "two", "go on"]
        );
    }
}

#[tokio::test]
async fn a_long_past_fills_the_chain_and_no_more() {
    let (other, [root, ..]) = generations().await;
    let home = brought(&other, &[&root]);
    let (mut text, mut from) = (text_of(&home, &root), root);
    let records = text.lines().filter(|line| line.contains("\"uuid\"")).count();
    for generation in 1..=20 {
        let id = format!("g{generation}");
        // A turn of its own behind what it carries.
        let mut own = text.replace(&from, &id);
        let carried = branched(&text, &id, &from, records * generation);
        own = own
            .lines()
            .filter(|line| line.contains("\"uuid\""))
            .take(records)
            .map(|line| {
                let mut record: Value = serde_json::from_str(line).unwrap();
                for member in ["uuid", "parentUuid"] {
                    if let Some(uuid) = record[member].as_str() {
                        record[member] = json!(format!("own-{id}-{uuid}"));
                    }
                }
                if record["parentUuid"].is_null() {
                    let last: Value = serde_json::from_str(carried.lines().last().unwrap()).unwrap();
                    record["parentUuid"] = last["uuid"].clone();
                }
                record.as_object_mut().unwrap().remove("forkedFrom");
                format!("{record}\n")
            })
            .collect();
        text = carried + &own;
        put(&home, &id, &text);
        from = id;
    }
    let (_daemon, app) = home.opened().await;
    let answer = adopt(&app, "g20").await;
    let links = app.chain(answer.conversation.id).await;
    let expected: Vec<String> = (5..=20).map(|generation| format!("g{generation}")).collect();
    assert_eq!(
        (ids(&links), answer.missing),
        (expected.iter().map(String::as_str).collect(), vec![])
    );
    assert_eq!(links[0].from_upstream_id.as_ref().unwrap().as_str(), "g4");
    assert_eq!(links[15].carried_turns, 21);
    assert_eq!(app.lineage(answer.conversation.id).await.len(), 16);
}

/// What came along was made elsewhere, and nobody has named it.
#[tokio::test]
async fn deleting_with_transcripts_spares_what_came_along() {
    let (other, [root, middle, head]) = generations().await;
    let home = brought(&other, &[&root, &middle, &head]);
    let (_daemon, app) = home.opened().await;
    let id = adopt(&app, &head).await.conversation.id;
    let delete = json!({"conversationId": id, "transcripts": "delete"});
    let answer = app.call("conversation/delete", delete).await.unwrap();
    let mut told: Vec<_> = answer["remaining"].as_array().unwrap().iter().collect();
    told.sort_by_key(|left| left["upstreamId"] != json!(root));
    for (left, id) in told.iter().zip([&root, &middle]) {
        let path = home.transcript(id).unwrap();
        assert_eq!(
            (&left["upstreamId"], &left["path"], &left["reason"]),
            (&json!(id), &json!(path), &json!("adopted"))
        );
    }
    assert_eq!(told.len(), 2, "{answer}");
    let is_there = |id| home.transcript(id).is_some();
    assert_eq!(
        [&root, &middle, &head].map(|id| is_there(id)),
        [true, true, false]
    );
    // And it can be adopted for itself now.
    let anew = adopt(&app, &middle).await.conversation.id;
    assert_eq!(app.remembered(anew).await, ["one", "two"]);
}
