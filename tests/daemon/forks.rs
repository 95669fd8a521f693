//! Forks at the head, in place and side by side.

use bridge_protocol::conversation::ConversationState;
use bridge_protocol::error::ErrorKind;
use bridge_protocol::event::Event;
use bridge_protocol::link::{Fidelity, LinkReason, Relation};
use serde_json::{Value, json};

use crate::damaged::tear;
use crate::home::Home;
use crate::support::{id_in, refused};

#[tokio::test]
async fn side_by_side_both_go_on_from_the_same_history() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let with = json!({"title": "parent", "namespace": "an.app"});
    let id = app.make_with(&home.project(), with).await.id;
    let source = app.send(id, "shared").await.upstream_id;
    let mut events = app.events(id).await;
    let fork = app.fork(id, false).await.unwrap();
    let branch = fork.conversation;
    assert_ne!(branch.id, id);
    assert_eq!(fork.fidelity, Fidelity::Full);
    let link = fork.link.unwrap();
    assert_eq!(
        branch.head,
        Some(link.upstream_id.clone()),
        "the head is not the branch"
    );
    assert_eq!(
        (link.reason, link.relation),
        (LinkReason::Forked, Relation::Carries)
    );
    assert_eq!(link.from_upstream_id, Some(source.clone()));
    let parent = branch.parent.unwrap();
    assert_eq!(parent.conversation_id, id);
    assert!(parent.checkpoint_id.is_some());
    assert_eq!(parent.checkpoint_id, link.from_checkpoint_id);
    assert_eq!(
        (branch.title.as_str(), branch.namespace.as_str()),
        ("parent", "an.app")
    );
    let Event::Forked { conversation_id, .. } = events.until("forked").await else {
        unreachable!()
    };
    assert_eq!(conversation_id, branch.id);

    app.send(id, "only here").await;
    app.send(branch.id, "only there").await;
    assert_eq!(app.remembered(id).await, ["shared", "only here"]);
    assert_eq!(app.remembered(branch.id).await, ["shared", "only there"]);
    assert_eq!(app.get(id).await.head, Some(source), "source head changed");
}

/// F39: a branch keeps its history if it is closed, or its daemon is killed, before its first turn.
#[tokio::test]
async fn a_branch_is_there_before_its_first_turn() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&["shared"]).await;
    let closed = app.fork(id, false).await.unwrap().conversation.id;
    app.close(closed).await;
    assert_eq!(app.remembered(closed).await, ["shared"]);
    let killed = app.fork(id, false).await.unwrap().conversation.id;
    let in_place = app.fork(id, true).await.unwrap();
    assert_eq!(in_place.conversation.id, id);
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    assert_eq!(app.get(id).await.head, in_place.conversation.head);
    for id in [killed, id] {
        assert_eq!(app.remembered(id).await, ["shared"]);
    }
}

#[tokio::test]
async fn in_place_the_branch_becomes_the_head_and_the_source_stays_a_link() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    let source = app.send(id, "shared").await.upstream_id;
    let fork = app.fork(id, true).await.unwrap();
    assert_eq!(fork.conversation.id, id);
    let link = fork.link.unwrap();
    assert_eq!(fork.conversation.head, Some(link.upstream_id.clone()));
    let chain = app.chain(id).await;
    let ids: Vec<&str> = chain.iter().map(|link| link.upstream_id.as_str()).collect();
    assert_eq!(ids, [source.as_str(), link.upstream_id.as_str()]);
    let turn = app.send(id, "on the branch").await;
    assert_eq!(turn.upstream_id, link.upstream_id);
    assert_eq!(app.remembered(id).await, ["shared", "on the branch"]);
}

/// A running turn is not part of a branch. Otherwise its unfinished prompt would be answered twice.
// Against F39.
#[tokio::test]
async fn a_fork_beside_a_running_turn_leaves_the_unfinished_prompt_out() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&["finished"]).await;
    let mut holder = daemon.raw().await;
    let (request, _) = holder.hang(id).await;
    let branch = app.fork(id, false).await.unwrap();
    assert_eq!(branch.fidelity, Fidelity::Full);
    let branch = branch.conversation.id;
    assert_eq!(
        app.get(id).await.state,
        ConversationState::Prompting,
        "the turn must still run"
    );
    assert_eq!(app.remembered(branch).await, ["finished"]);
    app.send(branch, "meanwhile").await;
    app.ask("conversation/cancel", id).await;
    holder.answer(request).await;
    assert_eq!(app.remembered(id).await[0], "finished");
    assert_eq!(
        app.remembered(branch).await,
        ["finished", "[[recall]]", "meanwhile"]
    );
}

/// F39: the fork of a conversation without prompts is a new conversation with the same settings.
#[tokio::test]
async fn a_fork_of_what_was_never_prompted_is_a_new_conversation() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let with = json!({"title": "empty", "settings": {"model": "loop-2"}});
    let id = app.make_with(&home.project(), with).await.id;
    let fork = app
        .call(
            "conversation/fork",
            json!({"conversationId": id, "title": "other"}),
        )
        .await
        .unwrap();
    let branch = &fork["conversation"];
    assert_eq!(
        (&branch["title"], &branch["head"]),
        (&json!("other"), &json!(null))
    );
    assert_eq!(branch["parent"]["conversationId"], json!(id));
    assert!(
        branch["parent"].get("checkpointId").is_none_or(Value::is_null),
        "{branch}"
    );
    assert!(fork.get("link").is_none_or(Value::is_null), "{fork}");
    assert_eq!(fork["fidelity"], "full");
    let branch = serde_json::from_value(branch["id"].clone()).unwrap();
    assert!(app.say(branch, "[[settings]]").await.words.contains("loop-2"));
    assert_eq!(app.get(id).await.head, None);
}

/// F36: a session's settings are applied again after a resume and after each kind of fork.
#[tokio::test]
async fn settings_are_applied_again_after_resume_and_fork() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let server = json!({"name": "tools", "command": "/bin/true", "args": [], "env": []});
    let settings = json!({
        "model": "loop-2", "mode": "plan", "systemPrompt": "Be brief.", "mcpServers": [server],
    });
    let id = app
        .make_with(&home.project(), json!({"settings": settings}))
        .await
        .id;
    let expected = json!({
        "model": "loop-2", "mode": "plan", "systemPrompt": "Be brief.", "cwd": home.project(), "mcpServers": 1,
    });
    let check = async |app: &crate::support::App, id, when: &str| {
        let said = app.say(id, "[[settings]]").await.words;
        assert_eq!(serde_json::from_str::<Value>(&said).unwrap(), expected, "{when}");
    };
    check(&app, id, "new").await;
    app.close(id).await;
    check(&app, id, "resumed").await;
    let beside = app.fork(id, false).await.unwrap().conversation.id;
    check(&app, beside, "forked side by side").await;
    app.close(beside).await;
    check(&app, beside, "forked and resumed").await;
    app.fork(id, true).await.unwrap();
    check(&app, id, "forked in place").await;
    let mut holder = daemon.raw().await;
    let (request, _) = holder.hang(id).await;
    let cut = app.fork(id, false).await.unwrap().conversation.id;
    check(&app, cut, "cut beside a running turn").await;
    app.ask("conversation/cancel", id).await;
    holder.answer(request).await;
    app.send(id, "[[forget]]").await;
    check(&app, id, "copied").await;
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    for id in [id, beside, cut] {
        check(&app, id, "after a restart").await;
    }
}

#[tokio::test]
async fn a_fork_may_have_a_folder_of_its_own() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["shared"]).await;
    let elsewhere = home.folder_named("elsewhere");
    let fork = json!({"conversationId": id, "cwd": elsewhere});
    let branch = app.call("conversation/fork", fork).await.unwrap();
    assert_eq!(branch["conversation"]["cwd"], elsewhere);
    let branch = id_in(&branch);
    app.send(branch, "[[write made.txt x]]").await;
    assert!(home.path().join("elsewhere/made.txt").exists());
    app.close(branch).await;
    assert_eq!(app.remembered(branch).await[0], "shared");
    assert_eq!(app.get(id).await.cwd, home.project());
}

/// A session that got its history as text cannot be forked before its first prompt, but can afterwards.
#[tokio::test]
async fn a_fork_of_a_retelling_waits_for_its_first_prompt() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["one", "two"]).await;
    let old = app.send(id, "[[say three]][[forget copies]]").await.upstream_id;
    tear(&home, old.as_str(), "echo: one");
    let this = json!({"conversationId": id});
    app.close(id).await;

    // Requiring too high a fidelity changes nothing, so a call with a lower one still succeeds.
    let strict = json!({"conversationId": id, "minFidelity": "full"});
    refused(
        app.call("conversation/resume", strict).await,
        ErrorKind::NotResumable,
    );
    let conversation = app.get(id).await;
    assert_eq!(
        (conversation.state, conversation.head),
        (ConversationState::Idle, Some(old))
    );

    let resumed = app.call("conversation/resume", this).await.unwrap();
    assert_eq!(resumed["resumed"]["fidelity"], "text", "{resumed}");
    for in_place in [false, true] {
        refused(app.fork(id, in_place).await, ErrorKind::Conflict);
    }
    app.send(id, "go on").await;
    let branch = app.fork(id, false).await.unwrap().conversation.id;
    let remembered = app.remembered(branch).await;
    assert!(remembered[0].ends_with("go on"), "{remembered:?}");
}

/// A limit belongs to the source. The branch has the history and continues as far as the account allows.
#[tokio::test]
async fn a_limited_conversation_is_branched_whole() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["first"]).await;
    app.send(id, "[[limit 3600]]").await;
    assert_eq!(app.get(id).await.state, ConversationState::Limited);
    let fork = app.fork(id, false).await.unwrap();
    assert_eq!(fork.fidelity, Fidelity::Full);
    let branch = fork.conversation.id;
    assert_eq!(app.remembered(branch).await[0], "first");
    let source = app.get(id).await;
    assert_eq!(source.state, ConversationState::Limited);
    assert!(source.limit.is_some());
}

/// A fork side by side ends before the turn with the question, which stays open. Calls that would change the history
/// below the question are refused.
#[tokio::test]
async fn a_conversation_with_an_open_question_is_branched_and_not_edited() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&["first", "second"]).await;
    let mut raw = daemon.raw().await;
    let (asking, _) = raw.run(id, "[[ask may I?]]").await;
    raw.event("interruptRaised").await;
    let fork = app.fork(id, false).await.unwrap();
    assert_eq!(app.remembered(fork.conversation.id).await, ["first", "second"]);
    let at = app.checkpoints(id).await[1].id.clone();
    for (method, params) in [
        (
            "conversation/edit",
            json!({"conversationId": id, "at": at, "prompt": "instead"}),
        ),
        ("conversation/undo", json!({"conversationId": id})),
        (
            "conversation/fork",
            json!({"conversationId": id, "inPlace": true}),
        ),
        (
            "conversation/move",
            json!({"conversationId": id, "cwd": home.folder_named("other")}),
        ),
    ] {
        let refusal = app.call(method, params).await;
        refused(refusal, ErrorKind::Busy);
    }
    let question = app.get(id).await.interrupts.remove(0).id;
    let outcome = json!({"outcome": "selected", "optionId": "allow_once"});
    let answer = json!({"conversationId": id, "interruptId": question, "outcome": outcome});
    app.call("conversation/respond", answer).await.unwrap();
    assert_eq!(raw.answer(asking).await["result"]["stopReason"], "end_turn");
}

/// Only one fork is made at a time. A second one waits or is refused as busy.
#[tokio::test]
async fn two_forks_at_once_are_each_whole_or_told_to_wait() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["first", "second"]).await;
    let (one, other) = tokio::join!(app.fork(id, false), app.fork(id, false));
    let mut made = Vec::new();
    for forked in [one, other] {
        match forked {
            Ok(fork) => made.push(fork.conversation.id),
            Err(error) => assert_eq!(error.kind, ErrorKind::Busy, "{error:?}"),
        }
    }
    assert!(!made.is_empty());
    for branch in made {
        assert_eq!(app.remembered(branch).await, ["first", "second"]);
    }
}
