//! Adoption: transcripts that were made elsewhere become conversations and continue with their whole content.

use std::fs;
use std::path::Path;

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::Conversation;
use bridge_protocol::error::{BridgeError, ErrorKind};
use bridge_protocol::link::{Fidelity, LinkReason, Relation, Via};
use serde_json::{Value, json};

use super::error_words;
use crate::damaged::tear;
use crate::home::Home;
use crate::resumed::check_resumed;
use crate::support::{App, id_in, refused};

/// Copies the transcript from one home into a project folder of another home, in which the agent never wrote.
fn bring(from: &Home, to: &Home, upstream_id: &str, folder: &str) {
    let source = from.transcript(upstream_id).unwrap();
    put(to, upstream_id, folder, &fs::read_to_string(source).unwrap());
}

fn put(home: &Home, upstream_id: &str, folder: &str, text: &str) {
    let folder = home.data().join("loopback/projects").join(folder);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(format!("{upstream_id}.jsonl")), text).unwrap();
}

/// Makes a session with these turns. Returns its home, whose daemon has ended, and the session's id.
async fn made_elsewhere(texts: &[&str]) -> (Home, String) {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&[]).await;
    for text in texts {
        app.send(id, text).await;
    }
    let head = app.get(id).await.head.unwrap();
    drop(app);
    drop(daemon);
    (home, head.as_str().to_owned())
}

async fn adopt(app: &App, params: Value) -> Result<Conversation, BridgeError> {
    let answer = app.call("conversation/adopt", params).await?;
    Ok(serde_json::from_value(answer["conversation"].clone()).unwrap())
}

#[tokio::test]
async fn the_next_prompt_resumes_it_with_all_of_its_history() {
    let (other, id) = made_elsewhere(&["one", "two", "three"]).await;
    let home = Home::new();
    bring(&other, &home, &id, "-some-folder");
    let (_daemon, app) = home.opened().await;
    let mut events = app.events_of(None, None).await;
    let adopted = adopt(&app, json!({"upstreamId": id})).await.unwrap();
    events.until("snapshot").await;
    assert_eq!(adopted.head.as_ref().unwrap().as_str(), id);
    assert_eq!(adopted.cwd, other.project(), "the transcript's own folder");
    assert_eq!(adopted.title, "one", "same title as in the list");
    let link = &app.chain(adopted.id).await[0];
    assert_eq!(
        (
            link.reason,
            link.relation,
            link.turns,
            link.carried_turns,
            link.written
        ),
        (LinkReason::Adopted, Relation::Fresh, 0, 3, true)
    );
    let resumed = app.send(adopted.id, "go on").await.resumed.unwrap();
    check_resumed(&resumed, Via::Resume, Fidelity::Full, 0);
    assert_eq!(app.remembered(adopted.id).await, ["one", "two", "three", "go on"]);
    assert_eq!(app.get(adopted.id).await.head.unwrap().as_str(), id);
}

/// A limit or a crash leaves a session whose last prompt has no response.
#[tokio::test]
async fn a_last_prompt_without_an_answer_is_no_lost_turn() {
    for turns in 1..=2 {
        let texts = &["one", "unanswered"][2 - turns..];
        let (other, id) = made_elsewhere(texts).await;
        let text = fs::read_to_string(other.transcript(&id).unwrap()).unwrap();
        let is_last = |line: &&str| line.contains("unanswered") && line.contains(r#""type":"user""#);
        let end = text.find(text.lines().find(is_last).unwrap()).unwrap();
        let end = end + text[end..].find('\n').unwrap() + 1;
        let home = Home::new();
        put(&home, &id, "-some-folder", &text[..end]);
        let (_daemon, app) = home.opened().await;
        let adopted = adopt(&app, json!({"upstreamId": id})).await.unwrap().id;
        let history = app
            .call("conversation/history", json!({"conversationId": adopted}))
            .await;
        assert_eq!(history.unwrap()["gaps"], Value::Null);
        let params = json!({"conversationId": adopted, "prompt": "go on", "minFidelity": "full"});
        let resumed = &app.call("conversation/prompt", params).await.unwrap()["resumed"];
        assert_eq!(
            (&resumed["fidelity"], &resumed["missingTurns"]),
            (&json!("full"), &json!(0))
        );
        assert_eq!(app.remembered(adopted).await, [texts, &["go on"]].concat());
    }
}

/// If a person types while a turn runs, Claude Code records the text as an attachment instead of a message. It is part
/// of that turn.
#[tokio::test]
async fn what_was_said_in_the_middle_of_a_turn_is_part_of_it() {
    let (other, id) = made_elsewhere(&["one"]).await;
    let text = fs::read_to_string(other.transcript(&id).unwrap()).unwrap();
    let prompt = text
        .lines()
        .find(|line| line.contains(r#""type":"user""#))
        .unwrap();
    let prompt: Value = serde_json::from_str(prompt).unwrap();
    let attached = |uuid: &str, parent: &Value, attachment: Value| {
        let mut record = prompt.clone();
        let members = record.as_object_mut().unwrap();
        members.retain(|name, _| !["message", "origin", "promptId"].contains(&name.as_str()));
        members.insert("type".to_owned(), json!("attachment"));
        members.insert("uuid".to_owned(), json!(uuid));
        members.insert("parentUuid".to_owned(), parent.clone());
        members.insert("attachment".to_owned(), attachment);
        record.to_string() + "\n"
    };
    let queued =
        |prompt: Value, mode: &str| json!({"type": "queued_command", "prompt": prompt, "commandMode": mode});
    let blocks = json!([{"type": "text", "text": "and that"}]);
    let said = attached(
        "s1",
        &prompt["uuid"],
        queued(json!("take the other way"), "prompt"),
    ) + &attached("s2", &json!("s1"), queued(blocks, "prompt"))
        + &attached(
            "s3",
            &json!("s2"),
            queued(json!("a task has ended"), "task-notification"),
        );
    let uuid = prompt["uuid"].as_str().unwrap();
    let parent = format!(r#""parentUuid":"{uuid}""#);
    let (before, after) = text.split_at(
        text.find(&parent)
            .map(|at| text[..at].rfind('\n').unwrap() + 1)
            .unwrap(),
    );
    let home = Home::new();
    put(
        &home,
        &id,
        "-some-folder",
        &(before.to_owned() + &said + &after.replacen(&parent, r#""parentUuid":"s3""#, 1)),
    );

    let (_daemon, app) = home.opened().await;
    let id = adopt(&app, json!({"upstreamId": id})).await.unwrap().id;
    let told = app.ask("conversation/history", id).await;
    assert_eq!(told["gaps"], Value::Null);
    let told = told["messages"].as_array().unwrap().iter();
    let told: Vec<(&str, &str)> = told
        .map(|message| {
            (
                message["role"].as_str().unwrap(),
                message["content"][0]["text"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("user", "one"),
            ("user", "take the other way"),
            ("user", "and that"),
            ("assistant", "echo: one")
        ]
    );
    let places = app.ask("conversation/checkpoints", id).await;
    assert_eq!(places["checkpoints"].as_array().unwrap().len(), 1);
    let params = json!({"conversationId": id, "minFidelity": "full"});
    let branch = app.call("conversation/fork", params).await.unwrap();
    assert_eq!(branch["fidelity"], "full");
    let resumed = app.send(id, "go on").await.resumed.unwrap();
    assert_eq!((resumed.fidelity, resumed.missing_turns), (Fidelity::Full, 0));
    assert_eq!(app.remembered(id).await, ["one", "go on"]);
}

/// Repeated adoptions return the same conversation: concurrent ones, later ones, and those after a restart.
#[tokio::test]
async fn a_transcript_is_adopted_once() {
    let (other, id) = made_elsewhere(&["one"]).await;
    let home = Home::new();
    bring(&other, &home, &id, "-a");
    let (daemon, app) = home.opened().await;
    let call = || {
        adopt(
            &app,
            json!({"upstreamId": id, "cwd": home.project(), "title": "Mine"}),
        )
    };
    let (first, second) = tokio::join!(call(), call());
    let first = first.unwrap();
    assert_eq!(first.id, second.unwrap().id);
    assert_eq!((first.title.as_str(), &first.cwd), ("Mine", &home.project()));
    drop(app);
    daemon.kill();

    let (_daemon, app) = home.opened().await;
    let named = json!({"upstreamId": id, "agent": "loopback", "title": "Another"});
    let again = adopt(&app, named).await.unwrap();
    assert_eq!((again.id, again.title.as_str()), (first.id, "Mine"));
    let found = app.ask("conversation/get", &id).await;
    assert_eq!(found["conversation"]["id"], json!(first.id));
    // Once that conversation is deleted, adopting the session makes a new one.
    app.call("conversation/delete", json!({"conversationId": first.id}))
        .await
        .unwrap();
    let anew = adopt(&app, json!({"upstreamId": id})).await.unwrap();
    assert_ne!(anew.id, first.id);
    assert_eq!(app.remembered(anew.id).await, ["one"]);
}

/// When the session of a deleted conversation is adopted, the new conversation gets the title that the user gave the
/// old one, unless the call gives a title.
#[tokio::test]
async fn a_session_of_a_deleted_conversation_gets_its_title_back() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&["one"]).await;
    let head = app.get(id).await.head.unwrap();
    for title in ["First title", "The blue heron"] {
        let held = adopt(&app, json!({"upstreamId": head})).await.unwrap().id;
        let update = json!({"conversationId": held, "title": title});
        app.call("conversation/update", update).await.unwrap();
        app.ask("conversation/delete", held).await;
        let anew = adopt(&app, json!({"upstreamId": head})).await.unwrap();
        assert_eq!(anew.title, title);
        assert_ne!(anew.id, held);
    }
    let held = adopt(&app, json!({"upstreamId": head})).await.unwrap().id;
    app.ask("conversation/delete", held).await;
    drop(app);
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    let given = json!({"upstreamId": head, "title": "Mine"});
    assert_eq!(adopt(&app, given).await.unwrap().title, "Mine");
}

/// A session can be named by any prefix of its id that no other session's id has.
#[tokio::test]
async fn the_beginning_of_an_id_is_enough() {
    let (other, id) = made_elsewhere(&["one"]).await;
    let home = Home::new();
    bring(&other, &home, &id, "-a");
    let text = fs::read_to_string(other.transcript(&id).unwrap()).unwrap();
    for alike in ["alike-1", "alike-2", "alike-22"] {
        put(&home, alike, "-a", &text);
    }
    let (_daemon, app) = home.opened().await;
    let short = json!({"upstreamId": id[..8]});
    let checked = app.call("transcript/check", short.clone()).await.unwrap();
    assert_eq!(checked, json!({"findings": []}));
    let kept = app.call("transcript/keep", short.clone()).await.unwrap();
    assert!(kept["kept"][0]["path"].as_str().unwrap().contains(&id), "{kept}");
    let restored = app.call("transcript/restore", short.clone()).await.unwrap();
    assert_eq!(restored, json!({"restored": []}));
    let adopted = adopt(&app, short.clone()).await.unwrap();
    assert_eq!(adopted.head.unwrap().as_str(), id);
    assert_eq!(adopt(&app, short).await.unwrap().id, adopted.id);

    let several = refused(
        adopt(&app, json!({"upstreamId": "alike-"})).await,
        ErrorKind::Ambiguous,
    );
    let found: Vec<Value> = several.details["transcripts"].read().unwrap();
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(found[0], json!({"id": "alike-1", "title": "one"}));
    // A search for a conversation by a session's id reports that the session can be adopted.
    let find = async |name: &str| {
        let found = app.call("conversation/resolve", json!({"name": name})).await;
        refused(found, ErrorKind::NotFound).detail("transcripts")
    };
    assert_eq!(find("alike-1").await[0]["id"], "alike-1");
    assert_eq!(find("alike-").await.as_array().unwrap().len(), 3);
    assert_eq!(find("nothing").await, Value::Null);

    let whole = adopt(&app, json!({"upstreamId": "alike-2"})).await.unwrap();
    assert_eq!(
        whole.head.unwrap().as_str(),
        "alike-2",
        "a complete id is no prefix"
    );
    let few = adopt(&app, json!({"upstreamId": &id[..5]})).await;
    assert_eq!(few.unwrap_err().kind, ErrorKind::NotFound);
}

/// This works even if the conversation's folder was deleted or its transcript was damaged.
#[tokio::test]
async fn the_beginning_of_an_id_leads_to_the_conversation_that_has_the_session() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let folder = home.folder_named("removed");
    let id = app.begun(&folder, &["one"]).await;
    app.close(id).await;
    let head = app.get(id).await.head.unwrap();
    let short = json!({"upstreamId": &head.as_str()[..8]});
    let transcript = home.transcript(head.as_str()).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(adopt(&app, short.clone()).await.unwrap().id, id);
    fs::write(&transcript, "@@@\n").unwrap();
    assert_eq!(adopt(&app, short.clone()).await.unwrap().id, id);
    fs::remove_file(&transcript).unwrap();
    assert_eq!(adopt(&app, short).await.unwrap().id, id);
}

/// An error about a session that was named by a prefix of its id contains the whole id, so that the suggested command
/// can use it.
#[tokio::test]
async fn the_error_about_a_session_has_its_whole_id() {
    let home = Home::new();
    let silent = "{\"type\":\"mode\",\"mode\":\"default\"}\n";
    put(&home, "silent-session", "-a", silent);
    let (_daemon, app) = home.opened().await;
    for (name, whole) in [
        ("silent-", json!("silent-session")),
        ("silent-session", Value::Null),
    ] {
        let error = refused(
            adopt(&app, json!({"upstreamId": name})).await,
            ErrorKind::TranscriptDamaged,
        );
        assert_eq!(error.detail("upstreamId"), whole, "{name}");
    }
}

/// The error lists some of the matching transcripts, and their total number.
#[tokio::test]
async fn an_id_that_begins_many_others_is_refused_with_their_number() {
    let home = Home::new();
    for number in 10..30 {
        let text = "{\"type\":\"user\",\"uuid\":\"u1\",\"message\":{\"role\":\"user\",\"content\":\"x\"}}\n";
        put(&home, &format!("alike-{number}"), "-a", text);
    }
    let (_daemon, app) = home.opened().await;
    for method in ["conversation/adopt", "transcript/check"] {
        let several = app.call(method, json!({"upstreamId": "alike-"})).await;
        let several = refused(several, ErrorKind::Ambiguous);
        let found: Vec<Value> = several.details["transcripts"].read().unwrap();
        assert_eq!(found.len(), 16, "{found:?}");
        assert!(several.message.contains("20 transcripts"), "{}", several.message);
    }
}

#[tokio::test]
async fn a_repeated_request_is_answered_with_what_it_was() {
    let (other, id) = made_elsewhere(&["one"]).await;
    let home = Home::new();
    bring(&other, &home, &id, "-a");
    let (_daemon, app) = home.opened().await;
    let request = json!({"upstreamId": id, "requestId": "key"});
    let first = adopt(&app, request.clone()).await.unwrap();
    assert_eq!(adopt(&app, request).await.unwrap().id, first.id);
    let other = json!({"upstreamId": id, "requestId": "key", "title": "x"});
    refused(adopt(&app, other).await, ErrorKind::Conflict);
}

#[tokio::test]
async fn a_fork_says_where_it_came_from() {
    let other = Home::new();
    let (parent, fork) = {
        let (_daemon, app, id) = other.begun(&[]).await;
        app.send(id, "one").await;
        app.send(id, "two").await;
        let branch = app.fork(id, false).await.unwrap().conversation.id;
        app.send(branch, "three").await;
        (
            app.get(id).await.head.unwrap(),
            app.get(branch).await.head.unwrap(),
        )
    };
    let home = Home::new();
    bring(&other, &home, fork.as_str(), "-a");
    let (_daemon, app) = home.opened().await;
    let adopted = adopt(&app, json!({"upstreamId": fork})).await.unwrap();
    let links = app.chain(adopted.id).await;
    let [link] = links.as_slice() else {
        panic!("the missing source is in the chain: {links:?}");
    };
    assert_eq!(link.relation, Relation::Carries);
    assert_eq!(link.from_upstream_id.as_ref(), Some(&parent));
    assert!(link.from_checkpoint_id.is_some());
    assert_eq!(link.carried_turns, 3);
    let resumed = app.send(adopted.id, "go on").await.resumed.unwrap();
    assert_eq!((resumed.fidelity, resumed.missing_turns), (Fidelity::Full, 0));
    assert_eq!(app.remembered(adopted.id).await, ["one", "two", "three", "go on"]);
}

/// A record is missing in the middle: what is left is adopted, with partial fidelity.
#[tokio::test]
async fn a_damaged_middle_is_told() {
    let (other, id) = made_elsewhere(&["one", "two", "three"]).await;
    tear(&other, &id, "echo: one");
    let home = Home::new();
    bring(&other, &home, &id, "-a");
    let (_daemon, app) = home.opened().await;
    let adopted = adopt(&app, json!({"upstreamId": id})).await.unwrap();
    assert_eq!(app.lineage(adopted.id).await[0].fidelity, Fidelity::Partial);
    let resumed = app.send(adopted.id, "go on").await.resumed.unwrap();
    assert_eq!(resumed.fidelity, Fidelity::Partial);
    assert_eq!(app.remembered(adopted.id).await, ["one", "two", "three", "go on"]);
}

/// If a transcript exists in several folders, adoption takes the copy in the requested folder, otherwise the one in the
/// folder where the session was last used.
#[tokio::test]
async fn of_several_copies_the_folders_own_is_taken() {
    let (other, id) = made_elsewhere(&["one", "two"]).await;
    let own = other.transcript(&id).unwrap();
    let own = own.parent().unwrap().file_name().unwrap().to_str().unwrap();
    let home = Home::new();
    put(&home, &id, "-0", "");
    put(&home, &id, "-zz", "@@@\n");
    bring(&other, &home, &id, own);
    let (_daemon, app) = home.opened().await;
    let adopted = adopt(&app, json!({"upstreamId": id})).await.unwrap();
    assert_eq!(adopted.cwd, other.project());
    assert_eq!(app.remembered(adopted.id).await, ["one", "two"]);
}

/// Adoption, history, checks, exports and the ladder all take the same copy.
#[tokio::test]
async fn of_copies_in_other_folders_the_one_with_the_most_turns_counts_for_all() {
    let (other, id) = made_elsewhere(&["one", "two", "three"]).await;
    let whole = fs::read_to_string(other.transcript(&id).unwrap()).unwrap();
    let mut stale: Vec<&str> = whole.split_inclusive('\n').collect();
    stale.truncate(2);
    let home = Home::new();
    put(&home, &id, "-z-current", &format!("{whole}garbage\n"));
    // The stale copy was written last, and its folder is first in the order of names.
    put(&home, &id, "-a-stale", &stale.concat());
    let garbage = whole.lines().count() + 1;
    let (_daemon, app) = home.opened().await;
    let params = json!({"upstreamId": id});
    let answer = app.call("conversation/adopt", params.clone()).await.unwrap();
    let adopted = answer["conversation"]["id"].clone();
    let why = answer["findings"][0]["detail"].as_str().unwrap();
    assert!(why.contains("-a-stale"), "{why}");
    error_words::check("the agent takes no copy", "adopt", why);
    let of_it = json!({"conversationId": adopted});
    for named in [&params, &of_it] {
        let checked = app.call("transcript/check", named.clone()).await.unwrap();
        let findings = checked["findings"].as_array().unwrap();
        let places = findings
            .iter()
            .map(|finding| (&finding["line"], &finding["kind"]));
        assert_eq!(
            places.collect::<Vec<_>>(),
            [
                (&json!(0), &json!("otherCopy")),
                (&json!(garbage), &json!("garbageLine"))
            ]
        );
        assert_eq!(findings[0], answer["findings"][0]);
    }
    for method in ["conversation/history", "conversation/export"] {
        let told = app.call(method, of_it.clone()).await.unwrap();
        let gaps = told["gaps"].as_array().unwrap();
        assert_eq!(told["messages"].as_array().unwrap().len(), 6, "{told}");
        // The only gap is the garbage line; no turn is missing.
        assert_eq!((gaps.len(), &gaps[0]["kind"]), (1, &json!("broken")));
    }
    let id: ConversationId = serde_json::from_value(adopted).unwrap();
    let mut events = app.events(id).await;
    let turn = app.send(id, "four").await;
    let resumed = turn.resumed.unwrap();
    assert_eq!((resumed.via, resumed.fidelity), (Via::Copied, Fidelity::Full));
    assert_eq!(app.remembered(id).await, ["one", "two", "three", "four"]);
    let told = [events.turn().await, events.turn().await].concat();
    assert!(told.iter().all(|told| told.event.kind() != "foreignWriter"));
}

/// The agent reads the copy in the conversation's folder. If another folder has a copy with more turns, that is
/// reported.
#[tokio::test]
async fn a_poorer_copy_that_the_agent_takes_is_told() {
    let (other, id) = made_elsewhere(&["one", "two", "three"]).await;
    let transcript = other.transcript(&id).unwrap();
    let whole = fs::read_to_string(&transcript).unwrap();
    let own = transcript
        .parent()
        .unwrap()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap();
    let mut stale: Vec<&str> = whole.split_inclusive('\n').collect();
    stale.truncate(2);
    let home = Home::new();
    put(&home, &id, own, &stale.concat());
    put(&home, &id, "-a-current", &whole);
    let (_daemon, app) = home.opened().await;
    let answer = app
        .call("conversation/adopt", json!({"upstreamId": id}))
        .await
        .unwrap();
    let why = answer["findings"][0]["detail"].as_str().unwrap();
    error_words::check("the agent takes a stale copy", "adopt", why);
    let adopted: Conversation = serde_json::from_value(answer["conversation"].clone()).unwrap();
    assert_eq!(app.chain(adopted.id).await[0].carried_turns, 1);
    let resumed = app.send(adopted.id, "go on").await.resumed.unwrap();
    assert_eq!((resumed.via, resumed.fidelity), (Via::Resume, Fidelity::Full));
    assert_eq!(app.remembered(adopted.id).await, ["one", "go on"]);
}

#[tokio::test]
async fn what_cannot_be_adopted_is_refused_and_leaves_nothing() {
    let (other, id) = made_elsewhere(&["one"]).await;
    let home = Home::with_config("[agents.second]\nkind = \"opencode\"\ncommand = \"/nowhere/opencode\"\n");
    bring(&other, &home, &id, "-a");
    for (name, text) in [
        ("empty", ""),
        ("garbage", "@@@\n{\n\0\0\n"),
        ("torn", r#"{"type":"user","uuid":"u1","par"#),
        ("silent", "{\"type\":\"mode\",\"mode\":\"default\"}\n"),
        (
            "lost",
            "{\"type\":\"user\",\"uuid\":\"u1\",\"cwd\":\"/nowhere\",\"origin\":{\"kind\":\"human\"},\"message\":{\"content\":\"x\"}}\n",
        ),
        (
            "homeless",
            "{\"type\":\"user\",\"uuid\":\"u1\",\"origin\":{\"kind\":\"human\"},\"message\":{\"content\":\"x\"}}\n",
        ),
    ] {
        put(&home, name, "-a", text);
    }
    // A folder with the name of a transcript, and a symbolic link to itself.
    let projects = home.data().join("loopback/projects");
    fs::create_dir(projects.join("-a/folder.jsonl")).unwrap();
    std::os::unix::fs::symlink(projects.join("-loop"), projects.join("-loop")).unwrap();
    let (_daemon, app) = home.opened().await;
    let damaged = ErrorKind::TranscriptDamaged;
    let table = [
        (json!({"upstreamId": "none"}), ErrorKind::NotFound),
        (json!({"upstreamId": "folder"}), ErrorKind::NotFound),
        (json!({"upstreamId": "../a"}), ErrorKind::NotFound),
        (json!({"upstreamId": ""}), ErrorKind::NotFound),
        (json!({"upstreamId": "empty"}), damaged),
        (json!({"upstreamId": "garbage"}), damaged),
        (json!({"upstreamId": "torn"}), damaged),
        (json!({"upstreamId": "silent"}), damaged),
        (json!({"upstreamId": "lost"}), ErrorKind::InvalidCwd),
        (json!({"upstreamId": "homeless"}), ErrorKind::InvalidParams),
        (json!({"upstreamId": id, "cwd": "x"}), ErrorKind::InvalidParams),
        (json!({"upstreamId": id, "agent": "none"}), ErrorKind::NotFound),
        (
            json!({"upstreamId": id, "agent": "second"}),
            ErrorKind::Unsupported,
        ),
        (
            json!({"upstreamId": id, "title": "x".repeat(5_000)}),
            ErrorKind::InvalidParams,
        ),
    ];
    for (params, kind) in table {
        refused(adopt(&app, params).await, kind);
    }
    let all = app.call("conversation/list", json!({})).await.unwrap();
    assert_eq!(all["conversations"], json!([]));
}

#[tokio::test]
async fn a_transcript_of_several_agents_needs_the_agents_name() {
    let (other, id) = made_elsewhere(&["one"]).await;
    let home = Home::new();
    let theirs = home.path().join("theirs");
    home.configure(&format!(
        "default_agent = \"loopback\"\n[agents.second]\nkind = \"claude\"\ncommand = \"/nowhere/claude\"\ntranscripts = \"{}\"\n",
        theirs.display()
    ));
    bring(&other, &home, &id, "-a");
    let theirs = theirs.join("projects/-b");
    fs::create_dir_all(&theirs).unwrap();
    fs::copy(
        other.transcript(&id).unwrap(),
        Path::new(&theirs).join(format!("{id}.jsonl")),
    )
    .unwrap();
    let (_daemon, app) = home.opened().await;
    for method in ["conversation/adopt", "transcript/check"] {
        let error = refused(
            app.call(method, json!({"upstreamId": id})).await,
            ErrorKind::Ambiguous,
        );
        let agents: Vec<String> = error.details["agents"].read().unwrap();
        assert_eq!(agents.len(), 2, "{agents:?}");
        assert!(agents.contains(&"second".to_owned()) && agents.contains(&"loopback".to_owned()));
    }
    let named = json!({"upstreamId": id, "agent": "second"});
    let checked = app.call("transcript/check", named.clone()).await.unwrap();
    assert_eq!(checked, json!({"findings": []}));
    let theirs = adopt(&app, named).await.unwrap();
    assert_eq!(theirs.agent.as_str(), "second");
    // The other agent has a different transcript with the same name.
    let ours = adopt(&app, json!({"upstreamId": id, "agent": "loopback"}))
        .await
        .unwrap();
    assert_ne!(ours.id, theirs.id);
    assert_eq!(app.remembered(ours.id).await, ["one"]);
    refused(adopt(&app, json!({"upstreamId": id})).await, ErrorKind::Ambiguous);
}

/// The agent resumes from the message that it noted last. A newer branch, although undamaged, is not part of what it
/// resumes.
#[tokio::test]
async fn a_newer_branch_that_the_agent_does_not_resume_is_told() {
    let (other, id) = made_elsewhere(&["one", "two", "three"]).await;
    let whole = fs::read_to_string(other.transcript(&id).unwrap()).unwrap();
    let mut records: Vec<Value> = whole
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let place = |text: &str| {
        let said = |record: &Value| record["message"].to_string().contains(text);
        records.iter().position(said).unwrap()
    };
    let (first, second, third) = (place("echo: one"), place("echo: two"), place("three"));
    // The third turn follows the first one, as after going back before the second turn. The noted position is still the
    // second turn.
    records[third]["parentUuid"] = records[first]["uuid"].clone();
    let noted = json!({"type": "last-prompt", "leafUuid": records[second]["uuid"]});
    let lines: Vec<String> = records.iter().chain([&noted]).map(Value::to_string).collect();
    let is_message = |record: &&Value| ["user", "assistant"].iter().any(|kind| record["type"] == *kind);
    let last = records.iter().rposition(|record| is_message(&record)).unwrap() + 1;
    let home = Home::new();
    put(&home, &id, "-a", &(lines.join("\n") + "\n"));
    let (_daemon, app) = home.opened().await;
    let params = json!({"upstreamId": id});
    let checked = app.call("transcript/check", params.clone()).await.unwrap();
    let findings = checked["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 1, "{checked}");
    assert_eq!(
        (&findings[0]["line"], &findings[0]["kind"]),
        (&json!(last), &json!("newerBranch"))
    );
    let answer = app.call("conversation/adopt", params).await.unwrap();
    assert_eq!(answer["findings"], checked["findings"]);
    let adopted = id_in(&answer);
    app.send(adopted, "go on").await;
    assert_eq!(app.remembered(adopted).await, ["one", "two", "go on"]);
    // After that turn, the branch that the agent resumed is the newest one.
    app.close(adopted).await;
    let checked = app.ask("transcript/check", adopted).await;
    assert_eq!(checked["findings"], json!([]));
}
