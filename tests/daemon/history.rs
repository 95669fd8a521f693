//! History and checkpoints, read across all sessions of a conversation.

use bridge_protocol::method::{Checkpoints, Edit, History};
use std::fs;

use bridge_protocol::error::ErrorKind;
use bridge_protocol::history::{Checkpoint, CheckpointAnswer, HistoryPage, Message, Role};
use bridge_protocol::raw::PromptContent;
use bridge_protocol::{ConversationId, Cursor};
use serde_json::json;

use crate::damaged::tear;
use crate::home::Home;
use crate::keeping::{lose, once_kept};
use crate::support::{App, refused};

async fn page(
    app: &App,
    id: ConversationId,
    cursor: Option<Cursor>,
    limit: Option<u32>,
    last: Option<u32>,
) -> HistoryPage {
    app.answer(History {
        conversation_id: id.into(),
        cursor,
        limit,
        last,
        ..Default::default()
    })
    .await
}

async fn checkpoints(app: &App, id: ConversationId) -> Vec<Checkpoint> {
    let page = app.answer(Checkpoints {
        conversation_id: id.into(),
        ..Default::default()
    });
    page.await.checkpoints
}

fn words(message: &Message) -> String {
    let texts = message.content.iter().filter(|part| part.kind == "text");
    texts.filter_map(|part| part.text.as_deref()).collect()
}

/// Returns each turn's prompt and its whole reply, in the form that `recall` has.
fn turns(messages: &[Message]) -> Vec<(String, String)> {
    let mut turns: Vec<(String, String)> = Vec::new();
    for message in messages {
        let said = words(message);
        match message.role {
            Role::User if !said.is_empty() => turns.push((said, String::new())),
            Role::Assistant if !said.is_empty() => {
                let reply = &mut turns.last_mut().unwrap().1;
                if !reply.is_empty() {
                    reply.push_str("\n\n");
                }
                reply.push_str(&said);
            }
            _ => {}
        }
    }
    turns
}

/// Asserts that the daemon's history is the same as the agent's.
async fn agrees_with_the_agent(app: &App, id: ConversationId) {
    let recalled: Vec<(String, String)> = app
        .recall(id)
        .await
        .into_iter()
        .map(|turn| (turn.user, turn.assistant))
        .collect();
    let page = page(app, id, None, None, None).await;
    let mut told = turns(&page.messages);
    // The prompt that asked for the agent's history is the last turn.
    assert_eq!(told.pop().unwrap().0, "[[recall]]");
    assert_eq!(told, recalled);
    assert_eq!(page.gaps, []);
    let checkpoints = checkpoints(app, id).await;
    assert_eq!(checkpoints.len(), told.len() + 1);
    for (place, (prompt, _)) in checkpoints.iter().rev().zip(&told) {
        assert_eq!(place.prompt, prompt.chars().take(200).collect::<String>());
    }
}

#[tokio::test]
async fn the_history_is_what_the_agent_runs_on_also_after_a_fork_and_a_copy() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    assert_eq!(page(&app, id, None, None, None).await.messages, []);
    app.send(id, "one").await;
    app.send(id, r#"[[say first]][[tool look {"deep":1.50}]][[say then]]"#)
        .await;
    agrees_with_the_agent(&app, id).await;
    let of_parent = checkpoints(&app, id).await;
    assert_eq!(of_parent[1].tools, ["look"]);
    assert_eq!(of_parent[1].parent_id.as_ref(), Some(&of_parent[2].id));
    let messages = page(&app, id, None, None, None).await.messages;
    let parts = || messages.iter().flat_map(|message| &message.content);
    let call = parts().find(|part| part.kind == "toolCall").unwrap();
    assert_eq!(call.input.as_ref().unwrap().get(), r#"{"deep":1.50}"#);
    assert!(parts().any(|part| part.kind == "toolResult" && part.tool_call_id == call.tool_call_id));

    let branch = app.fork(id, false).await.unwrap().conversation.id;
    app.send(branch, "apart").await;
    agrees_with_the_agent(&app, branch).await;
    let of_branch = checkpoints(&app, branch).await;
    assert_eq!(of_branch.last().unwrap().origin.as_ref(), Some(&of_parent[2].id));

    app.fork(id, true).await.unwrap();
    agrees_with_the_agent(&app, id).await;

    let before = checkpoints(&app, id).await;
    let old = app.send(id, "[[forget]]").await.upstream_id;
    let new = app.send(id, "behind the copy").await.upstream_id;
    assert_ne!(old, new);
    agrees_with_the_agent(&app, id).await;
    // Copied checkpoints have new ids and name their origins. The old ids stay valid.
    let after = checkpoints(&app, id).await;
    let first = after.last().unwrap();
    assert_eq!(first.origin.as_ref(), Some(&before.last().unwrap().id));
    app.call(
        "checkpoint/get",
        json!({"checkpointId": before.last().unwrap().id}),
    )
    .await
    .unwrap();
}

/// A turn can be named by its step, by its position from the end, or by one of its messages.
#[tokio::test]
async fn a_turn_is_named_by_its_step_or_by_a_message() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["one", "two", "three"]).await;
    let of = json!({"conversationId": id});
    let get = async |name: &str| {
        let turn = json!({"checkpointId": name, "conversationId": id});
        app.call("checkpoint/get", turn).await
    };
    let listed = app.call("conversation/checkpoints", of.clone()).await.unwrap();
    for (name, index) in [("3", 0), ("-1", 0), ("2", 1), ("-2", 1), ("1", 2), ("-3", 2)] {
        let turn = get(name).await.unwrap();
        assert_eq!(turn["checkpoint"], listed["checkpoints"][index], "{name}");
        assert_eq!(turn["messages"].as_array().unwrap().len(), 2, "{name}");
    }
    let told = app.call("conversation/history", of.clone()).await.unwrap();
    for message in told["messages"].as_array().unwrap() {
        let turn = get(message["id"].as_str().unwrap()).await.unwrap();
        assert_eq!(turn["checkpoint"]["id"], message["checkpointId"]);
    }
    let (most, least) = (i64::MAX.to_string(), i64::MIN.to_string());
    for name in ["0", "4", "-4", &most, &least, "msg.x.y", ""] {
        refused(get(name).await, ErrorKind::CheckpointNotFound);
    }
    // A step is only valid together with a conversation.
    let alone = app.call("checkpoint/get", json!({"checkpointId": "1"})).await;
    refused(alone, ErrorKind::CheckpointNotFound);
    app.call("conversation/reset", of).await.unwrap();
    refused(get("1").await, ErrorKind::CheckpointNotFound);
}

#[tokio::test]
async fn a_retelling_is_preceded_by_what_it_retells() {
    let home = Home::keeping_nothing();
    let (_daemon, app, id) = home.begun(&["one", "two"]).await;
    let old = app.send(id, "[[say three]][[forget copies]]").await.upstream_id;
    tear(&home, old.as_str(), "echo: one");
    app.close(id).await;
    app.send(id, "go on").await;
    let page = page(&app, id, None, None, None).await;
    let told: Vec<(String, String)> = turns(&page.messages);
    let prompts: Vec<&str> = told.iter().map(|turn| turn.0.as_str()).collect();
    assert_eq!(prompts, ["one", "two", "[[say three]][[forget copies]]", "go on"]);
    assert_eq!(told[0].1, "", "the reply of a damaged record");
    assert_eq!((page.gaps.len(), &page.gaps[0].upstream_id), (1, &old));
    let retold = page.messages.iter().flat_map(|message| &message.content);
    assert_eq!(retold.filter(|part| part.kind == "retelling").count(), 1);
    let places = checkpoints(&app, id).await;
    assert_eq!(
        (places[0].prompt.as_str(), places[0].step, places.len()),
        ("go on", 4, 4)
    );
    assert_eq!(places[0].parent_id.as_ref(), Some(&places[1].id));

    // A transcript that is missing completely is reported too.
    fs::remove_file(home.transcript(old.as_str()).unwrap()).unwrap();
    let rest = app
        .answer(History {
            conversation_id: id.into(),
            ..Default::default()
        })
        .await;
    assert_eq!(turns(&rest.messages).len(), 1);
    assert_eq!(rest.gaps[0].upstream_id, old);
}

#[tokio::test]
async fn pages_lead_forwards_and_back() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    for number in 0..4 {
        app.send(id, &format!("p{number}")).await;
    }
    let whole = page(&app, id, None, None, None).await;
    assert_eq!((whole.messages.len(), whole.next_cursor.is_none()), (8, true));
    let mut forwards = Vec::new();
    let mut cursor = None;
    loop {
        let page = page(&app, id, cursor.take(), Some(3), None).await;
        forwards.extend(page.messages);
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(forwards, whole.messages);
    let mut last = page(&app, id, None, None, Some(3)).await;
    assert!(last.next_cursor.is_none());
    let mut backwards = last.messages;
    while let Some(cursor) = last.previous_cursor.take() {
        last = page(&app, id, Some(cursor), Some(3), None).await;
        assert!(last.next_cursor.is_some());
        let mut longer = last.messages;
        longer.append(&mut backwards);
        backwards = longer;
    }
    assert_eq!(backwards, whole.messages);
    // Reads the newest messages, from the oldest of them on.
    for (last, from) in [(3, 5), (8, 0), (5_000, 0)] {
        let first = page(&app, id, None, Some(2), Some(last)).await;
        assert_eq!(first.messages, whole.messages[from..from + 2]);
        let rest = page(&app, id, first.next_cursor, None, None).await;
        assert_eq!(rest.messages, whole.messages[from + 2..]);
        assert!(rest.next_cursor.is_none());
    }

    let places = checkpoints(&app, id).await;
    assert_eq!(
        places.iter().map(|place| place.step).collect::<Vec<_>>(),
        [4, 3, 2, 1]
    );
    let before = json!({"conversationId": id, "before": places[1].id, "limit": 1});
    let older = app.call("conversation/checkpoints", before).await.unwrap();
    assert_eq!(older["checkpoints"][0], serde_json::to_value(&places[2]).unwrap());

    for mut params in [
        json!({"cursor": "7"}),
        json!({"cursor": "b.msg.x.y"}),
        json!({"cursor": "b.msg.x.y", "last": 1}),
        json!({"last": 0}),
        json!({"last": 0, "limit": 1}),
        json!({"last": 1, "limit": 1_001}),
    ] {
        params["conversationId"] = json!(id);
        refused(
            app.call("conversation/history", params).await,
            ErrorKind::InvalidParams,
        );
    }
    let nowhere = json!({"conversationId": id, "before": "cp.loopback.x.y"});
    refused(
        app.call("conversation/checkpoints", nowhere).await,
        ErrorKind::CheckpointNotFound,
    );
}

/// Replaces the session by a copy, or its last turn by another one.
async fn replace_session(app: &App, id: ConversationId, how: &str) {
    if how.contains("copy") {
        app.send(id, "[[forget]]").await;
        app.send(id, "x").await;
    }
    if how.contains("edit") {
        let edit = app.answer(Edit {
            conversation_id: id.into(),
            at: checkpoints(app, id).await[0].id.to_string(),
            prompt: PromptContent::text("y"),
            ..Default::default()
        });
        edit.await;
    }
}

/// If an edit dropped the place where a page ended, the next page starts where the branch began.
#[tokio::test]
async fn pages_lead_on_after_the_session_is_replaced() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    for how in ["copy", "edit", "copy and edit"] {
        let id = app.begun(&home.project(), &["p0", "p1", "p2", "p3"]).await;
        let mut ends = Vec::new();
        for last in 1..8 {
            let newest = page(&app, id, None, None, Some(last)).await;
            let oldest = page(&app, id, None, Some(last), None).await;
            ends.push((last as usize, newest.previous_cursor, oldest.next_cursor));
        }
        let places = checkpoints(&app, id).await;
        replace_session(&app, id, how).await;
        let whole = page(&app, id, None, None, None).await.messages;
        // An edit of the original session replaces its last turn, of two messages.
        let kept = if how == "edit" { 6 } else { 8 };
        for (count, previous, next) in ends {
            let before = page(&app, id, previous, None, None).await.messages;
            assert_eq!(
                before,
                whole[..(8 - count).min(kept)],
                "{how}: before the last {count}"
            );
            let after = page(&app, id, next, None, None).await.messages;
            assert_eq!(after, whole[count.min(kept)..], "{how}: after the first {count}");
        }
        for (place, steps) in places.iter().zip([&[3, 2, 1][..], &[2, 1], &[1], &[]]) {
            let older = app.answer(Checkpoints {
                conversation_id: id.into(),
                before: Some(place.id.clone()),
                ..Default::default()
            });
            let older = older.await.checkpoints;
            let found: Vec<u64> = older.iter().map(|place| place.step).collect();
            assert_eq!(found, steps, "{how}: before step {}", place.step);
        }
    }
}

/// Checkpoints keep their ids in the restored file.
#[tokio::test]
async fn a_checkpoint_is_found_by_its_id_alone_after_a_restore() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&["one", "two", "three"]).await;
    let places = checkpoints(&app, id).await;
    app.close(id).await;
    once_kept(&app, |total| total.bytes > 0).await;
    daemon.kill();
    lose(&home);

    let (_daemon, app) = home.opened().await;
    let restored = app.call("transcript/restore", json!({"conversationId": id}));
    assert_eq!(restored.await.unwrap()["restored"].as_array().unwrap().len(), 1);
    assert_eq!(checkpoints(&app, id).await, places);
    let answer = app.call("checkpoint/get", json!({"checkpointId": places[1].id}));
    let answer: CheckpointAnswer = serde_json::from_value(answer.await.unwrap()).unwrap();
    assert_eq!(answer.checkpoint, places[1]);
    let expected = [("two".to_owned(), "echo: two".to_owned())];
    assert_eq!(turns(&answer.messages), expected);

    // An edit at the checkpoint restores the transcript from its copy first.
    lose(&home);
    let edit = app.answer(Edit {
        conversation_id: id.into(),
        at: places[1].id.to_string(),
        prompt: PromptContent::text("otherwise"),
        ..Default::default()
    });
    assert_eq!(edit.await.dropped, 2);
    assert_eq!(app.remembered(id).await, ["one", "otherwise"]);
}

#[tokio::test]
async fn a_checkpoint_is_found_by_its_id_alone_after_a_restart_and_a_move() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&["one"]).await;
    let head = app.send(id, "two").await.upstream_id;
    let other = app.make(&home.project()).await;
    let places = checkpoints(&app, id).await;
    daemon.kill();
    let path = home.transcript(head.as_str()).unwrap();
    let elsewhere = path.parent().unwrap().with_file_name("by-hand");
    fs::create_dir(&elsewhere).unwrap();
    fs::rename(&path, elsewhere.join(path.file_name().unwrap())).unwrap();

    let (_daemon, app) = home.opened().await;
    assert_eq!(checkpoints(&app, id).await, places);
    for with in [json!({}), json!({"conversationId": id})] {
        let mut params = with;
        params["checkpointId"] = json!(places[0].id);
        let answer = app.call("checkpoint/get", params).await.unwrap();
        let answer: CheckpointAnswer = serde_json::from_value(answer).unwrap();
        assert_eq!(answer.checkpoint, places[0]);
        assert_eq!(
            turns(&answer.messages),
            [("two".to_owned(), "echo: two".to_owned())]
        );
    }
    for params in [
        json!({"checkpointId": "nonsense"}),
        json!({"checkpointId": format!("{}0", places[0].id)}),
        json!({"checkpointId": "cp.nobody.x.y"}),
        json!({"checkpointId": places[0].id, "conversationId": other}),
    ] {
        refused(
            app.call("checkpoint/get", params).await,
            ErrorKind::CheckpointNotFound,
        );
    }
    // A transcript that is cut off, for example because its turn is still being written, gives an answer or an error
    // with its kind.
    fs::write(elsewhere.join(path.file_name().unwrap()), "{\"type\":\"us").unwrap();
    refused(
        app.call("checkpoint/get", json!({"checkpointId": places[0].id}))
            .await,
        ErrorKind::CheckpointNotFound,
    );
    assert_eq!(page(&app, id, None, None, None).await.messages, []);
}
