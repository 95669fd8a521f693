//! Edits of earlier prompts: the history before the prompt continues with the new prompt, the replaced turns are kept,
//! and an undo brings them back.

use std::path::PathBuf;

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::{BranchedVia, ConversationState, EditAnswer, UndoAnswer};
use bridge_protocol::error::{BridgeError, ErrorKind};
use bridge_protocol::event::Event;
use bridge_protocol::link::{Fidelity, LinkReason, Relation};
use bridge_protocol::method::{Edit, Fork, History, Undo};
use bridge_protocol::raw::{PromptContent, RawJson};
use bridge_protocol::turn::StopReason;
use serde_json::{Value, json};

use super::unresponsive_folders::{Mount, start};
use crate::carrying::files_below;
use crate::continuing::{continued, go_on};
use crate::gate::Gate;
use crate::home::Home;
use crate::signs::Watched;
use crate::support::{App, refused};

const PROMPTS: [&str; 3] = ["one", r#"two [[tool read {"path":"a"}]][[say done]]"#, "three"];

async fn edit(app: &App, id: ConversationId, at: &str, text: &str) -> Result<EditAnswer, BridgeError> {
    let prompt = PromptContent::text(text);
    app.result(Edit {
        conversation_id: id.into(),
        at: at.to_owned(),
        prompt,
        ..Default::default()
    })
    .await
}

async fn undo(app: &App, id: ConversationId) -> Result<UndoAnswer, BridgeError> {
    app.result(Undo {
        conversation_id: id.into(),
        ..Default::default()
    })
    .await
}

/// Returns the checkpoint of each turn and the message id of its prompt.
pub(super) async fn places(app: &App, id: ConversationId) -> Vec<[String; 2]> {
    let mut prompts = Vec::new();
    let mut seen = None;
    for message in app
        .answer(History {
            conversation_id: id.into(),
            ..Default::default()
        })
        .await
        .messages
    {
        if message.checkpoint_id != seen {
            prompts.push(message.id);
            seen = message.checkpoint_id;
        }
    }
    let checkpoints = app.checkpoints(id).await.into_iter();
    let places = checkpoints.zip(prompts);
    places
        .map(|(checkpoint, prompt)| [checkpoint.id.as_str().to_owned(), prompt])
        .collect()
}

#[tokio::test]
async fn d2_any_earlier_prompt_is_replaced_and_brought_back() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&PROMPTS).await;
    let source = app.get(id).await.head.unwrap();
    let transcript = home.transcript_of(&app, id).await;
    let before = std::fs::read(&transcript).unwrap();
    let places = places(&app, id).await;
    for (index, at) in places
        .iter()
        .enumerate()
        .flat_map(|(index, both)| both.iter().map(move |at| (index, at)))
    {
        let mut events = app.events(id).await;
        let edited = edit(&app, id, at, "better").await.unwrap();
        assert_eq!(edited.turn.stop_reason, StopReason::EndTurn);
        assert_eq!(
            (edited.fidelity, edited.dropped),
            (Fidelity::Full, 3 - index as u64)
        );
        let link = edited.link.unwrap();
        assert_eq!((link.reason, link.turns), (LinkReason::Edited, 1));
        assert_eq!(app.get(id).await.head, Some(link.upstream_id.clone()));
        assert_eq!(edited.turn.upstream_id, link.upstream_id);
        let relation = match index {
            0 => (Relation::Fresh, None, Some(BranchedVia::Fresh)),
            _ => (Relation::Carries, Some(source.clone()), Some(BranchedVia::Cut)),
        };
        assert_eq!(
            (link.relation, link.from_upstream_id.clone(), edited.via),
            relation
        );
        let Event::Edited {
            link: told, dropped, ..
        } = events.until("edited").await
        else {
            unreachable!()
        };
        assert_eq!((told.upstream_id, dropped), (link.upstream_id, edited.dropped));
        let expected = [&PROMPTS[..index], &["better"]].concat();
        assert_eq!(app.remembered(id).await, expected);
        assert_eq!(app.checkpoints(id).await.len(), index + 2);

        let undone = undo(&app, id).await.unwrap();
        assert_eq!(undone.link.upstream_id, source);
        assert_eq!((undone.link.reason, undone.dropped), (LinkReason::Undone, 2));
        assert_eq!(undone.conversation.head, Some(source.clone()));
        events.until("undone").await;
        assert_eq!(std::fs::read(&transcript).unwrap(), before, "the source changed");
    }
    assert_eq!(app.remembered(id).await, PROMPTS);
    refused(undo(&app, id).await, ErrorKind::Conflict);
}

/// A prompt with a picture, or with only a picture, replaces a prompt whose turn had a tool call, and is itself
/// replaced again.
#[tokio::test]
async fn d2_a_picture_comes_with_an_edit_and_goes_with_one() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let picture = json!({"type": "image", "mimeType": "image/png", "data": "QQ=="});
    let with_words = vec![picture.clone(), json!({"type": "text", "text": "look"})];
    for blocks in [with_words, vec![picture]] {
        let id = app.begun(&home.project(), &PROMPTS).await;
        let at = places(&app, id).await[1][0].clone();
        let kinds: Vec<&str> = blocks.iter().filter_map(|block| block["type"].as_str()).collect();
        let prompt = PromptContent::blocks(blocks.iter().cloned().map(RawJson::from).collect());
        let edited = app
            .answer(Edit {
                conversation_id: id.into(),
                at,
                prompt,
                ..Default::default()
            })
            .await;
        assert_eq!((edited.fidelity, edited.dropped), (Fidelity::Full, 2));
        let history = app
            .answer(History {
                conversation_id: id.into(),
                ..Default::default()
            })
            .await;
        let parts = &history.messages[2].content;
        assert!(parts.iter().map(|part| part.kind.as_str()).eq(kinds));
        assert_eq!(
            (parts[0].mime_type.as_deref(), parts[0].data.as_deref()),
            (Some("image/png"), Some("QQ=="))
        );
        // Replaces first the turn after the picture, which keeps the picture, and then the picture's own turn, which
        // removes it.
        app.send(id, "on").await;
        let behind = places(&app, id).await[2][1].clone();
        edit(&app, id, &behind, "on again").await.unwrap();
        let transcript = || async { std::fs::read_to_string(home.transcript_of(&app, id).await).unwrap() };
        assert!(transcript().await.contains("QQ=="));
        let own = places(&app, id).await[1][1].clone();
        edit(&app, id, &own, "in words").await.unwrap();
        assert!(!transcript().await.contains("QQ=="));
        assert_eq!(app.remembered(id).await, ["one", "in words"]);
        for _ in 0..3 {
            undo(&app, id).await.unwrap();
        }
        assert_eq!(app.remembered(id).await, PROMPTS);
    }
}

/// Replaced turns stay reachable. Undo reverts the last edit first.
#[tokio::test]
async fn d2_an_undo_goes_back_edit_by_edit() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&PROMPTS).await;
    let last = places(&app, id).await[2][0].clone();
    edit(&app, id, &last, "third").await.unwrap();
    let second = places(&app, id).await[1][1].clone();
    edit(&app, id, &second, "second").await.unwrap();
    app.send(id, "on").await;
    assert_eq!(app.remembered(id).await, ["one", "second", "on"]);
    // A fork can begin at a checkpoint that an edit has replaced.
    let fork = app
        .answer(Fork {
            conversation_id: id.into(),
            at: Some(last),
            ..Default::default()
        })
        .await;
    assert_eq!(app.remembered(fork.conversation.id).await, PROMPTS);
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    undo(&app, id).await.unwrap();
    assert_eq!(app.remembered(id).await, ["one", PROMPTS[1], "third"]);
    undo(&app, id).await.unwrap();
    assert_eq!(app.remembered(id).await, PROMPTS);
}

/// The agent names a session after its first prompt.
#[tokio::test]
async fn an_undo_brings_back_the_title_unless_a_client_chose_one() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["one", "on"]).await;
    let first = places(&app, id).await[0][1].clone();
    edit(&app, id, &first, "two").await.unwrap();
    assert_eq!(app.get(id).await.title, "two");
    assert_eq!(undo(&app, id).await.unwrap().conversation.title, "one");
    assert_eq!(app.get(id).await.title, "one");
    for chosen in ["chosen", "two"] {
        edit(&app, id, &first, "two").await.unwrap();
        let title = json!({"conversationId": id, "title": chosen});
        app.call("conversation/update", title).await.unwrap();
        undo(&app, id).await.unwrap();
        assert_eq!(app.get(id).await.title, chosen);
    }
}

#[tokio::test]
async fn a_turn_that_came_to_no_end_is_replaced_too() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    for cut in ["[[say so far]][[crash]]", "[[limit 3600]]", "[[fail context]]"] {
        let id = app.begun(&home.project(), &["one", cut]).await;
        let at = places(&app, id).await.pop().unwrap()[1].clone();
        let edited = edit(&app, id, &at, "better").await.unwrap();
        assert_eq!((edited.dropped, edited.fidelity), (1, Fidelity::Full), "{cut}");
        let conversation = app.get(id).await;
        assert_eq!(conversation.state, ConversationState::Idle);
        assert!(!conversation.cut_short && conversation.limit.is_none());
        assert_eq!(app.remembered(id).await, ["one", "better"]);
    }
}

/// A prompt that the agent refused because of a limit was accepted. The limit belongs to the branch, and an undo
/// removes it too.
#[tokio::test]
async fn an_edit_that_meets_a_limit_is_taken_back_with_it() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&PROMPTS).await;
    let at = places(&app, id).await[1][0].clone();
    let edited = edit(&app, id, &at, "[[limit 3600]]").await.unwrap();
    assert_eq!(edited.turn.stop_reason, StopReason::Failed);
    assert_eq!(app.get(id).await.head, edited.link.map(|link| link.upstream_id));
    assert_eq!(app.get(id).await.state, ConversationState::Limited);
    undo(&app, id).await.unwrap();
    let conversation = app.get(id).await;
    assert_eq!(
        (conversation.state, conversation.limit),
        (ConversationState::Idle, None)
    );
    assert_eq!(app.remembered(id).await, PROMPTS);
}

/// A turn that was unfinished before an edit, a fork in place or a reset is unfinished again after the undo, and can be
/// continued.
#[tokio::test]
async fn an_undo_brings_back_the_turn_that_was_cut_short() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let mut left = Vec::new();
    for cut in ["[[say so far]][[crash]]", "[[limit 3600]]"] {
        for change in ["edit", "fork", "reset"] {
            let id = app.begun(&home.project(), &["one", cut]).await;
            if cut == "[[limit 3600]]" {
                go_on(&app, id, json!({"at": "reset"})).await;
            }
            let before = app.get(id).await;
            assert!(before.cut_short, "{cut}");
            let at = places(&app, id).await[0][0].clone();
            match change {
                "edit" => drop(edit(&app, id, &at, "better").await.unwrap()),
                "fork" => {
                    let fork = json!({"conversationId": id, "inPlace": true, "at": at});
                    app.call("conversation/fork", fork).await.unwrap();
                }
                _ => drop(app.ask("conversation/reset", id).await),
            }
            let changed = app.get(id).await;
            assert_eq!((changed.cut_short, &changed.continuation), (false, &None));
            left.push((id, before, format!("{change} after {cut}")));
        }
    }
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    for (id, before, what) in left {
        let mut events = app.events(id).await;
        let undone = undo(&app, id).await.unwrap().conversation;
        events.until("undone").await;
        if let Some(limit) = &before.limit {
            assert_eq!(
                events.until("limited").await,
                Event::Limited { limit: limit.clone() }
            );
        }
        let after = app.get(id).await;
        for shown in [undone, after] {
            assert_eq!((shown.state, shown.cut_short), (before.state, true), "{what}");
            assert_eq!(shown.limit, before.limit, "{what}");
            assert_eq!(shown.continuation, before.continuation, "{what}");
        }
        if before.continuation.is_none() {
            go_on(&app, id, json!({"at": "now"})).await;
            let turn = continued(&mut events).await;
            assert_eq!(turn.stop_reason, StopReason::EndTurn, "{what}");
            assert!(!app.get(id).await.cut_short, "{what}");
        }
    }
}

/// Undo reports the turn of the edit as removed, even if that turn was interrupted.
#[tokio::test]
async fn an_undo_counts_the_turn_that_was_cut_short() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    for (text, dropped) in [
        ("[[say so far]][[crash]]", 1),
        ("[[limit 3600]]", 1),
        ("better", 1),
    ] {
        let id = app.begun(&home.project(), &PROMPTS).await;
        let at = places(&app, id).await[2][0].clone();
        edit(&app, id, &at, text).await.unwrap();
        assert_eq!(undo(&app, id).await.unwrap().dropped, dropped, "{text}");
    }
}

/// A continuation that the user cancelled is not scheduled again.
#[tokio::test]
async fn a_continuation_that_was_cancelled_stays_so_after_an_undo() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["one", "two"]).await;
    go_on(&app, id, json!({"at": "2999-01-01T00:00:00Z", "text": "later"})).await;
    let at = places(&app, id).await[0][0].clone();
    edit(&app, id, &at, "[[fail context]]").await.unwrap();
    assert!(app.get(id).await.continuation.is_some());
    go_on(&app, id, json!({"cancel": true})).await;
    undo(&app, id).await.unwrap();
    assert_eq!(app.get(id).await.continuation, None);
}

/// If the folder or the agent is missing, the edit fails and the head stays the same.
#[tokio::test]
async fn an_edit_that_cannot_be_made_leaves_all_as_it_was() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&PROMPTS).await;
    let at = places(&app, id).await[1][0].clone();
    let lineage = app.lineage(id).await;
    let aside = home.path().join("aside");
    std::fs::rename(home.project(), &aside).unwrap();
    let error = edit(&app, id, &at, "better").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidCwd);
    std::fs::rename(&aside, home.project()).unwrap();
    let conversation = app.get(id).await;
    assert_eq!(
        (conversation.state, app.lineage(id).await),
        (ConversationState::Idle, lineage)
    );
    assert_eq!(app.remembered(id).await, PROMPTS);
}

/// If a copy is refused too, the history before the prompt is sent as text, unless the call requires a higher fidelity.
#[tokio::test]
async fn what_cannot_be_cut_is_retold_and_said_so() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let id = app
        .begun(&home.project(), &["one", "two", "[[say three]][[forget copies]]"])
        .await;
    let at = places(&app, id).await[2][0].clone();
    let head = app.get(id).await.head;
    let strict = json!({"conversationId": id, "at": at, "prompt": "better", "minFidelity": "partial"});
    app.call("conversation/edit", strict).await.unwrap_err();
    assert_eq!(app.get(id).await.head, head);
    let edited = edit(&app, id, &at, "better").await.unwrap();
    assert_eq!(
        (edited.fidelity, edited.via),
        (Fidelity::Text, Some(BranchedVia::Text))
    );
    assert_eq!(edited.link.unwrap().relation, Relation::Follows);
    let remembered = app.remembered(id).await;
    assert_eq!(remembered.len(), 1, "{remembered:?}");
    let told = &remembered[0];
    assert!(
        told.contains("two") && !told.contains("three") && told.ends_with("better"),
        "{told}"
    );
    // This is the first prompt of a session that follows another one, so the branch begins at the end of that other
    // session.
    let first = places(&app, id).await[2][0].clone();
    let edited = edit(&app, id, &first, "better still").await.unwrap();
    assert_eq!(edited.fidelity, Fidelity::Text);
    let remembered = app.remembered(id).await;
    assert!(
        remembered[0].contains("two") && remembered[0].ends_with("better still"),
        "{remembered:?}"
    );
    undo(&app, id).await.unwrap();
    assert!(app.remembered(id).await[0].ends_with("better"));
}

#[tokio::test]
async fn while_a_turn_runs_or_another_edit_there_is_none() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&PROMPTS).await;
    let at = places(&app, id).await[1][0].clone();
    let mut holder = daemon.raw().await;
    let (running, _) = holder.hang(id).await;
    refused(edit(&app, id, &at, "better").await, ErrorKind::Busy);
    refused(undo(&app, id).await, ErrorKind::Busy);
    app.ask("conversation/cancel", id).await;
    holder.answer(running).await;

    let params = json!({"conversationId": id, "at": at, "prompt": "[[say working]][[hang]]"});
    let first = holder.send("conversation/edit", params).await;
    holder.event("promptAccepted").await;
    refused(edit(&app, id, &at, "better").await, ErrorKind::Busy);
    app.ask("conversation/cancel", id).await;
    let answer = holder.answer(first).await;
    assert_eq!(answer["result"]["turn"]["stopReason"], "cancelled", "{answer}");
    assert_eq!(answer["result"]["link"]["reason"], "edited");
}

/// Once accepted, an edit survives a kill of the daemon and continues like any interrupted turn. Repeating the call
/// returns its result.
#[tokio::test]
async fn an_edit_that_the_daemon_did_not_outlive_stands_once_accepted() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&PROMPTS).await;
    let source = app.get(id).await.head;
    let at = places(&app, id).await[1][0].clone();
    let mut raw = daemon.raw().await;
    raw.subscribe(id).await;
    let params =
        json!({"conversationId": id, "at": at, "prompt": "[[say working]][[hang]]", "requestId": "e1"});
    raw.send("conversation/edit", params.clone()).await;
    raw.event("edited").await;
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    let conversation = app.get(id).await;
    assert_ne!(conversation.head, source);
    assert!(conversation.cut_short);
    let answer = app.call("conversation/edit", params).await.unwrap();
    assert_eq!(answer["turn"]["failure"]["kind"], "daemonRestarted", "{answer}");
    assert_eq!(answer["link"]["upstreamId"], json!(conversation.head));
    assert_eq!(answer["dropped"], 2);
    undo(&app, id).await.unwrap();
    assert_eq!(app.get(id).await.head, source);
    assert!(!app.get(id).await.cut_short);
    assert_eq!(app.remembered(id).await, PROMPTS);
}

/// A branch that was opened for an edit belongs to no conversation if the daemon was killed before it recorded the
/// edit. It is deleted.
#[tokio::test]
async fn a_branch_that_was_being_opened_when_the_daemon_was_killed_is_not_left() {
    let (home, gate) = Gate::home();
    let (daemon, app, id) = home.begun(&PROMPTS).await;
    let transcripts = || files_below(&home.data().join("loopback/projects"));
    let before = transcripts();
    let at = places(&app, id).await[1][0].clone();
    gate.hold("session/resume");
    let mut raw = daemon.raw().await;
    let params = json!({"conversationId": id, "at": at, "prompt": "better"});
    raw.send("conversation/edit", params).await;
    gate.wait_until_held();
    assert_eq!(transcripts().len(), before.len() + 1, "no branch was cut");
    daemon.kill();
    let daemon = home.start();
    assert_eq!(transcripts(), before);
    assert!(files_below(&home.data().join("copies")).is_empty());
    let app = daemon.app().await;
    assert_eq!(app.remembered(id).await, PROMPTS);
    edit(&app, id, &at, "better").await.unwrap();
    // A branch that belongs to a conversation stays after a kill.
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    assert_eq!(app.remembered(id).await, ["one", "better"]);
}

/// The branch exists, but is not recorded yet: the record needs a file in the folder of long prompts, which does not
/// respond.
#[tokio::test]
async fn a_branch_that_was_not_recorded_when_the_daemon_was_killed_is_not_left() {
    let home = Home::new();
    let Some(daemon) = start(&home) else { return };
    let app = daemon.app().await;
    let long = "better ".repeat(4_096);
    app.begun(&home.project(), &[&long]).await;
    let id = app.begun(&home.project(), &PROMPTS).await;
    let at = places(&app, id).await[1][0].clone();
    let projects = home.data().join("loopback/projects");
    let (before, lineage, head) = (
        files_below(&projects),
        app.lineage(id).await,
        app.get(id).await.head,
    );
    let _mount = Mount::over(&daemon, &home.data().join("bodies"));
    let mut raw = daemon.raw().await;
    let params = json!({"conversationId": id, "at": at, "prompt": long});
    raw.send("conversation/edit", params).await;
    Watched::below(&projects).wait_for("branch", || {
        let is_transcript = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "jsonl");
        let transcripts = files_below(&projects);
        (transcripts.iter().filter(is_transcript).count() > before.len()).then_some(())
    });
    daemon.kill();

    let (_daemon, app) = home.opened().await;
    assert_eq!(files_below(&projects), before);
    assert!(files_below(&home.data().join("copies")).is_empty());
    assert_eq!((app.lineage(id).await, app.get(id).await.head), (lineage, head));
    assert_eq!(app.remembered(id).await, PROMPTS);
}

#[tokio::test]
async fn what_is_no_turn_of_the_conversation_is_refused_and_changes_nothing() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&PROMPTS).await;
    let other = app.begun(&home.project(), &["elsewhere"]).await;
    let [of_other, message_of_other] = places(&app, other).await[0].clone();
    let never = app.make(&home.project()).await;
    let lineage = app.lineage(id).await;
    let history = app.ask("conversation/history", id).await;
    let messages = history["messages"].as_array().unwrap();
    // The tool call, its result and the reply belong to the turn, but are not its prompt.
    let is_own = |message: &&Value| message["role"] == "assistant" || message["content"][0]["type"] != "text";
    let others: Vec<&str> = messages
        .iter()
        .filter(is_own)
        .filter_map(|message| message["id"].as_str())
        .collect();
    assert!(others.len() > PROMPTS.len(), "{history}");
    for at in others {
        let error = edit(&app, id, at, "better").await.unwrap_err();
        assert_eq!(
            (error.kind, error.detail("parameter")),
            (ErrorKind::InvalidParams, json!("at")),
            "{at}"
        );
    }
    for (conversation, at, kind) in [
        (id, of_other.as_str(), ErrorKind::CheckpointNotFound),
        (id, message_of_other.as_str(), ErrorKind::NotFound),
        (never, of_other.as_str(), ErrorKind::CheckpointNotFound),
        (id, "the second", ErrorKind::InvalidParams),
    ] {
        let error = edit(&app, conversation, at, "better").await.unwrap_err();
        assert_eq!(error.kind, kind, "{at}: {error:?}");
    }
    let at = places(&app, id).await[0][0].clone();
    refused(edit(&app, id, &at, "").await, ErrorKind::InvalidParams);
    refused(undo(&app, never).await, ErrorKind::Conflict);
    assert_eq!(app.lineage(id).await, lineage);
    assert_eq!(app.remembered(id).await, PROMPTS);
}

/// Undo reverts a fork in place like an edit, including the change of folder.
#[tokio::test]
async fn a_branch_in_place_is_undone() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&PROMPTS).await;
    let elsewhere = home.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let cwd = elsewhere.to_str().unwrap().to_owned();
    app.answer(Fork {
        conversation_id: id.into(),
        in_place: true,
        cwd: Some(cwd.clone()),
        ..Default::default()
    })
    .await;
    app.send(id, "elsewhere").await;
    assert_eq!(app.get(id).await.cwd, cwd);
    let undone = undo(&app, id).await.unwrap();
    assert_eq!((undone.moved, undone.conversation.cwd), (None, home.project()));
    assert_eq!(app.remembered(id).await, PROMPTS);
}

/// Undo reverts a move in its order among other changes, with its files, and reports no foreign writer.
#[tokio::test]
async fn a_move_is_undone() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&PROMPTS).await;
    app.close(id).await;
    let transcript = home.transcript_of(&app, id).await;
    let elsewhere = home.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let at = places(&app, id).await[2][0].clone();
    edit(&app, id, &at, "better").await.unwrap();
    let mut events = app.events(id).await;
    let to = json!({"conversationId": id, "cwd": elsewhere});
    app.call("conversation/move", to).await.unwrap();
    assert!(!transcript.exists());
    app.send(id, "elsewhere").await;
    app.close(id).await;
    let undone = undo(&app, id).await.unwrap();
    assert_eq!((undone.dropped, &undone.conversation.cwd), (0, &home.project()));
    assert_eq!(undone.moved.unwrap().to, undone.link.cwd);
    assert!(transcript.exists());
    assert_eq!(
        app.remembered(id).await,
        ["one", PROMPTS[1], "better", "elsewhere"]
    );
    // The next undo reverts the edit.
    undo(&app, id).await.unwrap();
    assert_eq!(app.remembered(id).await, PROMPTS);
    loop {
        match events.next().await.event {
            Event::ForeignWriter { .. } => panic!("a foreign writer was reported"),
            Event::Undone { link, .. } if link.cwd == home.project() && link.turns >= 3 => break,
            _ => {}
        }
    }
}

/// If nothing is left of the session to return to, the undo is refused at once and the head stays the same.
#[tokio::test]
async fn an_undo_to_what_is_gone_is_refused_and_changes_nothing() {
    let home = Home::keeping_nothing();
    let (_daemon, app, id) = home.begun(&PROMPTS).await;
    let old = home.transcript_of(&app, id).await;
    let at = places(&app, id).await[1][0].clone();
    edit(&app, id, &at, "better").await.unwrap();
    let before = (app.get(id).await, app.lineage(id).await);
    let aside = home.path().join("aside");
    std::fs::rename(&old, &aside).unwrap();
    refused(undo(&app, id).await, ErrorKind::NotResumable);
    assert_eq!((app.get(id).await, app.lineage(id).await), before);
    assert_eq!(app.remembered(id).await, ["one", "better"]);
    std::fs::rename(&aside, &old).unwrap();
    undo(&app, id).await.unwrap();
    assert_eq!(app.remembered(id).await, PROMPTS);
}

/// Undo can return to a kept copy, and to a branch without prompts if its source still exists.
#[tokio::test]
async fn an_undo_goes_back_to_what_can_be_had_again() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&PROMPTS).await;
    let old = home.transcript_of(&app, id).await;
    app.ask("transcript/keep", id).await;
    let at = places(&app, id).await[1][0].clone();
    edit(&app, id, &at, "better").await.unwrap();
    std::fs::remove_file(&old).unwrap();
    undo(&app, id).await.unwrap();
    assert_eq!(app.remembered(id).await, PROMPTS);

    app.call(
        "conversation/fork",
        json!({"conversationId": id, "inPlace": true}),
    )
    .await
    .unwrap();
    let unprompted = home.transcript_of(&app, id).await;
    let at = places(&app, id).await[2][0].clone();
    edit(&app, id, &at, "another").await.unwrap();
    std::fs::remove_file(&unprompted).unwrap();
    undo(&app, id).await.unwrap();
    assert_eq!(app.remembered(id).await[..3], PROMPTS);
}

/// Configures an agent "opaque" whose transcript format the daemon does not know.
pub(crate) fn configure_opaque(home: &Home) {
    let agent = format!(
        "[agents.opaque]\nkind = \"generic\"\ncommand = \"{}\"\nargs = [\"loopback-agent\", \"--data\", \"{}\"]\n",
        env!("CARGO_BIN_EXE_sessiond"),
        home.data().display()
    );
    home.configure(&agent);
}

/// The daemon cannot read these transcripts, so it cannot report one as missing.
#[tokio::test]
async fn an_undo_to_what_only_its_agent_can_read_is_done() {
    let home = Home::new();
    configure_opaque(&home);
    let (_daemon, app) = home.opened().await;
    let id = app.make_of(&home.project(), "opaque").await;
    app.send(id, "one").await;
    let head = app.get(id).await.head;
    app.call(
        "conversation/fork",
        json!({"conversationId": id, "inPlace": true}),
    )
    .await
    .unwrap();
    app.send(id, "two").await;
    std::fs::remove_dir_all(home.data().join("loopback/projects")).unwrap();
    undo(&app, id).await.unwrap();
    assert_eq!(app.get(id).await.head, head);
}

/// A session that follows one whose transcript is missing does not silently begin anew.
#[tokio::test]
async fn what_stood_before_and_is_gone_is_no_fresh_start() {
    let home = Home::keeping_nothing();
    let (_daemon, app) = home.opened().await;
    let id = app
        .begun(&home.project(), &["one", "[[say two]][[forget copies]]"])
        .await;
    let old = home.transcript_of(&app, id).await;
    app.send(id, "three").await;
    assert_eq!(app.chain(id).await.last().unwrap().relation, Relation::Follows);
    std::fs::remove_file(old).unwrap();
    let at = places(&app, id).await[0][0].clone();
    let head = app.get(id).await.head;
    refused(edit(&app, id, &at, "better").await, ErrorKind::TranscriptDamaged);
    assert_eq!(app.get(id).await.head, head);
}

/// A write error is no reason to send the history as text if a copy could keep it whole: the edit fails, and succeeds
/// later.
#[tokio::test]
async fn an_edit_whose_copy_cannot_be_written_fails_and_tells_no_less() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&PROMPTS).await;
    let places = places(&app, id).await;
    let chain = app.chain(id).await;
    // The intents of copies are written to this folder before a copy is made.
    let notes = home.data().join("copies");
    std::fs::write(&notes, "no folder").unwrap();
    refused(
        edit(&app, id, &places[1][0], "better").await,
        ErrorKind::StoreFailed,
    );
    assert_eq!(app.chain(id).await, chain);
    std::fs::remove_file(&notes).unwrap();
    let edited = edit(&app, id, &places[1][0], "better").await.unwrap();
    assert_eq!(
        (edited.via, edited.fidelity),
        (Some(BranchedVia::Cut), Fidelity::Full)
    );
}
