//! Closing, resetting and deleting conversations.

use bridge_protocol::conversation::ConversationState;
use bridge_protocol::error::ErrorKind;
use bridge_protocol::event::Event;
use bridge_protocol::link::{Fidelity, LineageReason, Relation, Via};
use serde_json::{Value, json};

use crate::home::{Home, wait_for_end};
use crate::support::refused;

#[tokio::test]
async fn a_closed_conversation_comes_back_with_the_next_prompt() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    app.close(id).await;
    let first = app.send(id, "first").await;
    let mut events = app.events(id).await;
    app.close(id).await;
    events.until("closed").await;
    let closed = app.get(id).await;
    assert_eq!((closed.live, closed.state), (false, ConversationState::Idle));
    app.close(id).await;
    let second = app.send(id, "second").await;
    let resumed = second.resumed.unwrap();
    assert_eq!((resumed.via, resumed.missing_turns), (Via::Resume, 0));
    assert_eq!(second.upstream_id, first.upstream_id);
    assert_eq!(app.remembered(id).await, ["first", "second"]);
    assert_eq!(
        app.lineage(id).await.len(),
        1,
        "closing must not change the lineage"
    );
}

/// F2: after a reset, the agent knows nothing of the old chat. The conversation keeps its id and everything that it
/// held before.
#[tokio::test]
async fn a_reset_starts_anew_under_the_same_id() {
    let home = Home::keeping_nothing();
    let (_daemon, app) = home.opened().await;
    let settings = json!({"settings": {"model": "loop-2", "systemPrompt": "Be brief."}});
    let id = app.make_with(&home.project(), settings).await.id;
    let old = app.send(id, "the old chat").await.upstream_id;
    let mut events = app.events(id).await;
    let reset = app.ask("conversation/reset", id).await;
    assert_eq!(reset["conversation"]["id"], json!(id));
    assert_eq!(
        (
            &reset["conversation"]["head"],
            &reset["conversation"]["chainLength"]
        ),
        (&json!(null), &json!(0))
    );
    events.until("reset").await;
    let found = app.ask("conversation/get", &old).await;
    assert_eq!(
        found["conversation"]["id"],
        json!(id),
        "the old id still finds the conversation"
    );

    let said = app.say(id, "[[recall]]").await;
    assert_eq!(said.words, "[]");
    let new = said.turn.upstream_id;
    assert_ne!(new, old);
    assert_eq!(said.turn.resumed.unwrap().via, Via::Fresh);
    assert!(
        app.say(id, "[[settings]]").await.words.contains("loop-2"),
        "the settings stay"
    );
    let chain = app.chain(id).await;
    assert_eq!((chain.len(), chain[0].relation), (1, Relation::Fresh));
    assert_eq!(chain[0].from_upstream_id, None);
    let lineage = app.lineage(id).await;
    let reasons: Vec<LineageReason> = lineage.iter().map(|entry| entry.reason).collect();
    assert_eq!(
        reasons,
        [
            LineageReason::Created,
            LineageReason::Reset,
            LineageReason::Created
        ]
    );
    assert_eq!(lineage[0].upstream_id, old);
    assert!(!lineage[0].in_chain);
    assert!(
        home.transcript(old.as_str()).is_some(),
        "the transcript must stay"
    );
    // If the new session is lost later, the ladder does not fall back to the old one.
    app.send(id, "[[lose]]").await;
    let error = refused(app.try_send(id, "x").await, ErrorKind::NotResumable);
    let tried = error.detail("attempts").to_string();
    assert!(!tried.contains(old.as_str()), "{tried}");
}

#[tokio::test]
async fn a_conversation_can_be_reset_and_deleted_before_anything_was_said() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    app.ask("conversation/reset", id).await;
    assert_eq!(app.say(id, "hello").await.words, "echo: hello");
    let id = app.make(&home.project()).await;
    app.ask("conversation/delete", id).await;
}

/// Deleting keeps the agent's transcripts unless the call asks to delete them. Then those of the whole lineage are
/// deleted, and no other conversation's.
#[tokio::test]
async fn deleting_keeps_or_deletes_the_transcripts_of_the_whole_lineage() {
    for delete in [false, true] {
        let home = Home::new();
        let (_daemon, app, id) = home.begun(&[]).await;
        let mut held = vec![app.send(id, "one").await.upstream_id];
        app.fork(id, true).await.unwrap();
        held.push(app.send(id, "two").await.upstream_id);
        app.ask("conversation/reset", id).await;
        held.push(app.send(id, "three").await.upstream_id);
        let sibling = app.fork(id, false).await.unwrap().conversation;
        let theirs = app.send(sibling.id, "theirs").await.upstream_id;

        let mut events = app.events(id).await;
        let mut params = json!({"conversationId": id});
        if delete {
            params["transcripts"] = json!("delete");
        }
        app.call("conversation/delete", params).await.unwrap();
        assert!(matches!(events.until("deleted").await, Event::Deleted {}));
        for upstream in &held {
            assert_eq!(home.transcript(upstream.as_str()).is_none(), delete, "{upstream}");
        }
        assert!(home.transcript(theirs.as_str()).is_some());
        assert_eq!(app.remembered(sibling.id).await, ["three", "theirs"]);
        for upstream in held {
            let get = app
                .call("conversation/get", json!({"conversationId": upstream}))
                .await;
            refused(get, ErrorKind::NotFound);
        }
    }
}

/// An idle conversation releases its agent's process, and the next prompt continues it with full fidelity.
// Against F33.
#[tokio::test]
async fn a_conversation_that_rests_gives_its_agent_back_and_goes_on() {
    let home = Home::with_config("[limits]\nidle_minutes = 0.002\nagent_idle_minutes = 0\n");
    let (_daemon, app, id) = home.begun(&[]).await;
    let mut events = app.events(id).await;
    for round in 0..3 {
        let turn = app.send(id, &format!("round {round}")).await;
        assert!(turn.failure.is_none(), "{turn:?}");
        let via = turn.resumed.map(|resumed| (resumed.via, resumed.fidelity));
        assert_eq!(via.unwrap().1, Fidelity::Full);
        // The process that served the turn may already be ending; the daemon does not need it again, so it must end on
        // its own.
        let agents = home.agents();
        events.until("closed").await;
        agents.into_iter().for_each(wait_for_end);
        assert!(
            home.agents().is_empty(),
            "a closed session must not keep a process"
        );
        assert!(!app.get(id).await.live);
    }
    assert_eq!(app.chain(id).await.len(), 1, "the session changed");
    assert_eq!(app.remembered(id).await, ["round 0", "round 1", "round 2"]);
}

/// A client that shows what `updated` contains must not show a deleted conversation again.
#[tokio::test]
async fn nothing_follows_the_deletion_of_a_conversation() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let settings = json!({"title": "plans", "settings": {"systemPrompt": "Be brief."}});
    for (prompt, transcripts) in [("one", "delete"), ("one", "keep"), ("[[fail auth]]", "keep")] {
        let id = app.make_with(&home.project(), settings.clone()).await.id;
        let mut events = app.events(id).await;
        app.send(id, prompt).await;
        if prompt == "[[fail auth]]" {
            // The session is closed meanwhile. Until then, a deletion is refused.
            events.until("closed").await;
        }
        let mut raw = daemon.raw().await;
        raw.subscribe(id).await;
        let params = json!({"conversationId": id, "transcripts": transcripts});
        let deleted = raw.ask("conversation/delete", params).await;
        assert!(deleted["error"].is_null(), "{deleted}");
        let is_deletion = |line: &Value| line["params"]["result"]["event"]["type"] == "deleted";
        // The event may come after the answer.
        while !raw.passed.iter().any(is_deletion) {
            let line = raw.next().await;
            raw.passed.push_back(line);
        }
        raw.ask("daemon/status", json!({})).await;
        assert!(
            is_deletion(&raw.passed[raw.passed.len() - 1]),
            "{prompt} {:?}",
            raw.passed
        );
    }
}
