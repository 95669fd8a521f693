//! The ways to bring a session back, over the wire: which are tried, in which order, and how the result is reported.

use std::fs;

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::ConversationState;
use bridge_protocol::error::ErrorKind;
use bridge_protocol::event::Event;
use bridge_protocol::link::{Fidelity, LinkReason, Relation, Resumed, RollCause, Via};
use bridge_protocol::turn::StopReason;
use serde_json::{Value, json};

use crate::continuing::AT_ONCE;
use crate::damaged::tear;
use crate::home::{Home, kill_now, wait_for_end};
use crate::resumed::check_resumed;
use crate::scripted;
use crate::support::{refused, tried};

fn full(resumed: &Resumed) {
    assert_eq!(
        (resumed.fidelity, resumed.missing_turns),
        (Fidelity::Full, 0),
        "{resumed:?}"
    );
}

#[tokio::test]
async fn live_a_session_that_is_open_is_used_as_it_is() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    assert_eq!(app.send(id, "first").await.resumed.unwrap().via, Via::Fresh);
    assert_eq!(
        app.send(id, "second").await.resumed,
        None,
        "the session was open, so nothing was resumed"
    );
    let resumed = app.resumed(id).await;
    full(&resumed);
    assert_eq!(tried(&resumed), [(Via::Live, true)]);
}

/// F7: after a restart the session is resumed in the folder that it ran in.
#[tokio::test]
async fn resume_brings_a_session_back_after_the_daemon_was_killed() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let elsewhere = home.folder_named("elsewhere");
    let id = app.make(&elsewhere).await;
    let head = app.send(id, "first").await.upstream_id;
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    let mut events = app.events(id).await;
    let turn = app.send(id, "[[write made.txt x]]").await;
    let resumed = turn.resumed.unwrap();
    full(&resumed);
    assert_eq!(tried(&resumed), [(Via::Resume, true)]);
    assert_eq!(turn.upstream_id, head);
    let Event::Resumed { resumed: told } = events.until("resumed").await else {
        unreachable!()
    };
    assert_eq!(told, resumed, "the event has the same contents as the response");
    assert!(home.path().join("elsewhere/made.txt").exists());
    assert_eq!(app.remembered(id).await[0], "first");
    assert_eq!(app.lineage(id).await.len(), 1);
}

#[tokio::test]
async fn resume_brings_a_session_back_whose_process_was_killed_while_it_rested() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["first"]).await;
    let agent = home.agents()[0];
    kill_now(agent);
    app.once(id, |conversation| !conversation.live).await;
    wait_for_end(agent);
    assert_eq!(
        app.get(id).await.state,
        ConversationState::Idle,
        "nothing was cut short"
    );
    let resumed = app.send(id, "second").await.resumed.unwrap();
    full(&resumed);
    assert_eq!(app.remembered(id).await, ["first", "second"]);
}

/// If the agent process dies while it loads a session, the same session is loaded in a new process.
#[tokio::test]
async fn fresh_process_is_tried_when_the_process_fails() {
    let home = Home::with_config(&scripted::configured(
        "scripted",
        Some(r#"{"loadSession":true,"sessionCapabilities":{"close":{}}}"#),
    ));
    let (_daemon, app) = home.opened().await;
    let id = app.make_of(&home.project(), "scripted").await;
    let head = app.send(id, "\n").await.upstream_id;
    app.close(id).await;
    fs::write(home.path().join(scripted::CRASH_ON_LOAD), "").unwrap();
    let turn = app.send(id, "\n").await;
    let resumed = turn.resumed.unwrap();
    full(&resumed);
    assert_eq!(tried(&resumed), [(Via::Load, false), (Via::FreshProcess, true)]);
    assert_eq!(turn.upstream_id, head);
}

/// If an agent has no resume, `session/load` is used, and subscribers do not get the history that it replays.
#[tokio::test]
async fn load_brings_a_session_back_without_telling_its_history_again() {
    let home = Home::with_config(&scripted::configured(
        "scripted",
        Some(r#"{"loadSession":true,"sessionCapabilities":{"close":{}}}"#),
    ));
    let (_daemon, app) = home.opened().await;
    let id = app.make_of(&home.project(), "scripted").await;
    app.send(id, "\n").await;
    app.close(id).await;
    let said = app.say(id, "\n").await;
    let resumed = said.turn.resumed.unwrap();
    full(&resumed);
    assert_eq!(tried(&resumed), [(Via::Load, true)]);
    assert_eq!(said.words, "", "replayed messages are not sent to subscribers");
}

/// D4, D16: a session that the agent has forgotten is copied under a new id, with its whole history.
// Against F16.
#[tokio::test]
async fn copied_a_forgotten_session_goes_on_under_a_new_id() {
    for restarts in [false, true] {
        let home = Home::new();
        let mut daemon = home.start();
        let mut app = daemon.app().await;
        let id = app.begun(&home.project(), &["first"]).await;
        let old = app.send(id, "[[say second]][[forget]]").await.upstream_id;
        if restarts {
            daemon.kill();
            daemon = home.start();
            app = daemon.app().await;
        }
        let before = fs::read(home.transcript(old.as_str()).unwrap()).unwrap();
        let mut events = app.events(id).await;
        let turn = app.send(id, "third").await;
        let resumed = turn.resumed.unwrap();
        full(&resumed);
        // The open session refuses the prompt first.
        let refused: &[Via] = if restarts {
            &[Via::Resume]
        } else {
            &[Via::Live, Via::Resume]
        };
        let expected: Vec<_> = refused.iter().map(|via| (*via, false)).collect();
        assert_eq!(tried(&resumed), [&expected[..], &[(Via::Copied, true)]].concat());
        assert_eq!(resumed.attempts[0].upstream_id, Some(old.clone()));
        assert_ne!(turn.upstream_id, old);
        let Event::Rolled {
            from,
            to,
            cause,
            fidelity,
        } = events.until("rolled").await
        else {
            unreachable!()
        };
        assert_eq!((from, to), (Some(old.clone()), turn.upstream_id.clone()));
        assert_eq!((cause, fidelity), (RollCause::Forgotten, Fidelity::Full));
        let chain = app.chain(id).await;
        assert_eq!(chain.len(), 2);
        assert_eq!(
            (chain[1].reason, chain[1].relation),
            (LinkReason::Copied, Relation::Carries)
        );
        assert_eq!(chain[1].from_upstream_id, Some(old.clone()));
        assert_eq!(
            app.remembered(id).await,
            ["first", "[[say second]][[forget]]", "third"]
        );
        let after = fs::read(home.transcript(old.as_str()).unwrap()).unwrap();
        assert_eq!(after, before, "the agent's own file is never written to");
        drop(daemon);
    }
}

/// F5, F16: each forgotten session is replaced once. After 20 times the history is whole, and the oldest id still finds
/// the conversation.
#[tokio::test]
async fn a_session_is_forgotten_again_and_again_and_the_history_stays_whole() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    let mut expected = Vec::new();
    for number in 0..20 {
        let text = format!("[[say {number}]][[forget]]");
        app.send(id, &text).await;
        expected.push(text);
    }
    assert_eq!(app.remembered(id).await, expected);
    assert_eq!(app.chain(id).await.len(), 16, "the chain is bounded");
    let lineage = app.lineage(id).await;
    assert_eq!(lineage.len(), 21, "the lineage is not bounded");
    let oldest = lineage[0].upstream_id.clone();
    let found = app.ask("conversation/get", oldest).await;
    assert_eq!(
        found["conversation"]["id"],
        json!(id),
        "an id that left the chain still finds the conversation"
    );
}

/// If the head's transcript is missing, the conversation continues from the nearest ancestor, at the checkpoint where
/// it left that session.
#[tokio::test]
async fn older_link_takes_up_the_ancestor_and_tells_how_many_turns_are_missing() {
    let home = Home::keeping_nothing();
    let (_daemon, app, id) = home.begun(&[]).await;
    let source = app.send(id, "shared").await.upstream_id;
    app.fork(id, true).await.unwrap();
    app.send(id, "on the branch").await;
    let lost = app.send(id, "[[lose]]").await.upstream_id;
    assert_eq!(home.transcript(lost.as_str()), None);
    let mut events = app.events(id).await;
    let turn = app.send(id, "go on").await;
    let resumed = turn.resumed.unwrap();
    check_resumed(&resumed, Via::OlderLink, Fidelity::Partial, 2);
    let Event::Rolled {
        from,
        cause,
        fidelity,
        ..
    } = events.until("rolled").await
    else {
        unreachable!()
    };
    assert_eq!(
        (from, cause, fidelity),
        (Some(lost), RollCause::Lost, Fidelity::Partial)
    );
    assert_eq!(app.remembered(id).await, ["shared", "go on"]);
    let chain = app.chain(id).await;
    let head = &chain[chain.len() - 1];
    assert_eq!(head.upstream_id, turn.upstream_id);
    assert_eq!(head.from_upstream_id, Some(source));
    assert!(head.from_checkpoint_id.is_some());
}

/// The copy of an ancestor ends where the branch began: later turns of the ancestor are not part of the branch.
#[tokio::test]
async fn older_link_never_brings_back_what_was_left_behind() {
    let home = Home::keeping_nothing();
    let (_daemon, app, id) = home.begun(&["shared"]).await;
    let branch = app.fork(id, false).await.unwrap().conversation.id;
    app.send(id, "only in the source, after the fork").await;
    app.send(branch, "[[lose]]").await;
    let turn = app.send(branch, "go on").await;
    assert_eq!(turn.resumed.unwrap().via, Via::OlderLink);
    assert_eq!(app.remembered(branch).await, ["shared", "go on"]);
    // The source, which another conversation owns, was copied and not written to.
    assert_eq!(
        app.remembered(id).await,
        ["shared", "only in the source, after the fork"]
    );
}

#[tokio::test]
async fn older_link_after_a_copy_was_lost_too() {
    let home = Home::keeping_nothing();
    let (_daemon, app) = home.opened().await;
    let id = app.begun(&home.project(), &["[[say first]][[forget]]"]).await;
    app.send(id, "on the copy").await;
    app.send(id, "[[lose]]").await;
    let turn = app.send(id, "go on").await;
    let resumed = turn.resumed.unwrap();
    check_resumed(&resumed, Via::OlderLink, Fidelity::Partial, 2);
    assert_eq!(app.remembered(id).await, ["[[say first]][[forget]]", "go on"]);
}

/// F15, F17: if nothing can be resumed but the transcript can be read, its text is sent with the next prompt, and the
/// fidelity is reported as `text`.
#[tokio::test]
async fn text_retells_what_can_be_read_and_says_so() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["one"]).await;
    app.send(id, "two").await;
    let old = app.send(id, "[[say three]][[forget copies]]").await.upstream_id;
    tear(&home, old.as_str(), "echo: one");

    let strict = json!({"conversationId": id, "prompt": "go on", "minFidelity": "partial"});
    let error = refused(
        app.call("conversation/prompt", strict).await,
        ErrorKind::NotResumable,
    );
    assert!(!error.detail("attempts").as_array().unwrap().is_empty());
    assert_eq!(
        app.get(id).await.head,
        Some(old.clone()),
        "a failure does not change the head"
    );

    let mut events = app.events(id).await;
    let said = app.say(id, "go on").await;
    assert_eq!(
        said.words, "echo: go on",
        "the agent does not reply to the retold history"
    );
    let resumed = said.turn.resumed.unwrap();
    assert_eq!((resumed.via, resumed.fidelity), (Via::Text, Fidelity::Text));
    let Event::Rolled { cause, fidelity, .. } = events.until("rolled").await else {
        unreachable!()
    };
    assert_eq!((cause, fidelity), (RollCause::Damaged, Fidelity::Text));
    let chain = app.chain(id).await;
    assert_eq!(chain[1].relation, Relation::Follows);
    assert_eq!(chain[1].from_upstream_id, Some(old));
    let remembered = app.remembered(id).await;
    assert_eq!(remembered.len(), 1, "{remembered:?}");
    assert!(
        remembered[0].contains("two") && remembered[0].ends_with("go on"),
        "{remembered:?}"
    );
    // The history is retold once: the next prompt is sent as it is.
    assert_eq!(app.say(id, "and on").await.words, "echo: and on");
    assert_eq!(app.remembered(id).await.last().unwrap(), "and on");
}

/// F11: if no transcript can be read, the error lists all attempts and nothing changes. A new session starts only if
/// the caller passes `minFidelity: none`.
#[tokio::test]
async fn not_resumable_is_told_with_all_attempts_and_starts_nothing() {
    let home = Home::keeping_nothing();
    let (_daemon, app, id) = home.begun(&["first"]).await;
    let head = app.send(id, "[[lose]]").await.upstream_id;
    let chain = app.chain(id).await;
    for _ in 0..2 {
        let error = refused(app.try_send(id, "go on").await, ErrorKind::NotResumable);
        let attempts = error.detail("attempts");
        let attempts = attempts.as_array().unwrap();
        assert!(!attempts.is_empty());
        assert_eq!(attempts[0]["upstreamId"], json!(head));
        assert!(
            attempts.iter().all(|attempt| attempt["error"].is_string()),
            "{attempts:?}"
        );
        let conversation = app.get(id).await;
        assert_eq!(conversation.state, ConversationState::Failed);
        assert_eq!(conversation.head, Some(head.clone()));
        assert_eq!(app.chain(id).await, chain);
    }
    let error = app
        .call("conversation/resume", json!({"conversationId": id}))
        .await;
    refused(error, ErrorKind::NotResumable);

    let anew = json!({"conversationId": id, "prompt": "start anew", "minFidelity": "none"});
    let turn = app.call("conversation/prompt", anew).await.unwrap();
    assert_eq!(turn["stopReason"], "end_turn");
    assert_eq!(
        (&turn["resumed"]["via"], &turn["resumed"]["fidelity"]),
        (&json!("fresh"), &json!("none"))
    );
    assert_eq!(turn["resumed"]["missingTurns"], 2);
    assert_eq!(app.get(id).await.state, ConversationState::Idle);
    assert_eq!(app.remembered(id).await, ["start anew"]);
    let chain = app.chain(id).await;
    assert_eq!((chain.len(), chain[1].relation), (2, Relation::Fresh));
}

/// `minFidelity: full` refuses a partial resume and accepts a full one.
#[tokio::test]
async fn min_fidelity_full_takes_nothing_less() {
    let home = Home::keeping_nothing();
    let (_daemon, app) = home.opened().await;
    let full = |id: ConversationId| json!({"conversationId": id, "prompt": "go on", "minFidelity": "full"});
    let id = app.begun(&home.project(), &["shared"]).await;
    app.fork(id, true).await.unwrap();
    app.send(id, "[[lose]]").await;
    let strict = app.call("conversation/prompt", full(id)).await;
    refused(strict, ErrorKind::NotResumable);
    let resume = json!({"conversationId": id, "minFidelity": "full"});
    refused(
        app.call("conversation/resume", resume).await,
        ErrorKind::NotResumable,
    );
    assert_eq!(
        app.send(id, "less will do").await.resumed.unwrap().fidelity,
        Fidelity::Partial
    );

    let copied = app.make(&home.project()).await;
    app.send(copied, "[[forget]]").await;
    let turn = app.call("conversation/prompt", full(copied)).await.unwrap();
    assert_eq!(turn["resumed"]["via"], "copied");
}

/// F6: if a session id was handed out but never written to, nothing is lost: a new session replaces it, and no loss is
/// reported.
#[tokio::test]
async fn a_session_that_was_never_written_is_replaced_without_an_alarm() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let made = app.make_with(&home.project(), json!({"open": true})).await;
    let phantom = made.head.unwrap();
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    let strict = json!({"conversationId": made.id, "prompt": "hello", "minFidelity": "full"});
    let turn = app.call("conversation/prompt", strict).await.unwrap();
    assert_eq!(turn["stopReason"], "end_turn");
    assert_eq!(
        (&turn["resumed"]["via"], &turn["resumed"]["fidelity"]),
        (&json!("fresh"), &json!("full"))
    );
    assert_eq!(turn["resumed"]["missingTurns"], 0);
    assert_ne!(turn["upstreamId"], json!(phantom));
    let conversation = app.get(made.id).await;
    assert_eq!(
        (conversation.chain_length, conversation.state),
        (1, ConversationState::Idle)
    );
    assert_eq!(
        app.lineage(made.id).await[0].upstream_id,
        phantom,
        "the lineage keeps the unused id"
    );
}

/// D1, D9: while the folder is missing, calls are refused with `invalidCwd` and nothing changes. When the folder is
/// back, the conversation continues.
#[tokio::test]
async fn a_folder_that_is_gone_changes_nothing() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let folder = home.folder_named("worktree");
    let id = app.make(&folder).await;
    app.send(id, "first").await;
    app.close(id).await;
    let chain = app.chain(id).await;
    fs::remove_dir(&folder).unwrap();
    let missing = refused(app.try_send(id, "second").await, ErrorKind::InvalidCwd);
    assert_eq!(missing.detail("conversationId"), json!(id));
    let resume = app
        .call("conversation/resume", json!({"conversationId": id}))
        .await;
    refused(resume, ErrorKind::InvalidCwd);
    assert_eq!(app.chain(id).await, chain);
    assert_eq!(app.lineage(id).await.len(), 1);
    fs::create_dir(&folder).unwrap();
    app.send(id, "second").await;
    assert_eq!(app.remembered(id).await, ["first", "second"]);
}

/// D1: the same while the session is open. Its agent would create the old folder again.
#[tokio::test]
async fn a_folder_that_is_renamed_under_an_open_session_is_not_created_again() {
    const WRITE: &str = "[[write a.txt hello]]";
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let folder = home.folder_named("worktree");
    let id = app.begun(&folder, &["first"]).await;
    let renamed = home.path().join("renamed");
    fs::rename(&folder, &renamed).unwrap();
    refused(app.try_send(id, WRITE).await, ErrorKind::InvalidCwd);
    let continuation = json!({"conversationId": id, "at": AT_ONCE, "text": WRITE});
    app.call("conversation/continue", continuation).await.unwrap();
    app.once(id, |now| now.state == ConversationState::Failed).await;
    assert!(!fs::exists(&folder).unwrap());
    let to = json!({"conversationId": id, "cwd": renamed});
    app.call("conversation/move", to).await.unwrap();
    app.send(id, WRITE).await;
    assert!(renamed.join("a.txt").exists());
    assert_eq!(app.remembered(id).await, ["first", WRITE]);
}

/// The conversation follows the agent's own `/clear` to the new transcript, and the old upstream id still finds it.
#[tokio::test]
async fn the_agents_own_clear_is_followed() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    let old = app.send(id, "before").await.upstream_id;
    let mut events = app.events(id).await;
    app.send(id, "[[clear]]").await;
    let Event::Rolled { from, to, cause, .. } = events.until("rolled").await else {
        unreachable!()
    };
    assert_eq!((from, cause), (Some(old.clone()), RollCause::Cleared));
    // The command does not count as a turn of the new session, so no gap is reported.
    let lacks_nothing = async || {
        for method in ["conversation/history", "conversation/export"] {
            let told = app.call(method, json!({"conversationId": id})).await.unwrap();
            assert_eq!(told.get("gaps"), None, "{told}");
        }
    };
    lacks_nothing().await;
    app.send(id, "after").await;
    lacks_nothing().await;
    let chain = app.chain(id).await;
    let links = chain.iter().map(|link| (&link.upstream_id, link.turns));
    assert_eq!(links.collect::<Vec<_>>(), [(&old, 1), (&to, 1)]);
    assert_eq!(chain[1].relation, Relation::Fresh);
    app.close(id).await;
    full(&app.resumed(id).await);
    assert_eq!(
        app.remembered(id).await,
        ["after"],
        "what was cleared does not come back"
    );
    assert_eq!(app.get(id).await.head, Some(to));
    let found = app.ask("conversation/get", old).await;
    assert_eq!(found["conversation"]["id"], json!(id));
}

#[tokio::test]
async fn an_undo_takes_back_the_agents_own_clear() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    let old = app.send(id, "before").await.upstream_id;
    app.send(id, "[[clear]]").await;
    app.send(id, "after").await;
    app.ask("conversation/undo", id).await;
    assert_eq!(app.get(id).await.head, Some(old));
    let remembered = app.remembered(id).await;
    assert!(remembered.contains(&"before".to_owned()), "{remembered:?}");
    assert!(!remembered.contains(&"after".to_owned()), "{remembered:?}");
}

/// An agent that cannot resume and has no readable transcripts: after a restart a prompt is refused, and a new session
/// starts only if the caller asks for one.
#[tokio::test]
async fn an_agent_without_resume_or_transcripts_is_told_as_such() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let (daemon, app) = home.opened().await;
    let id = app.make_of(&home.project(), "scripted").await;
    app.send(id, "\n").await;
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    let error = refused(app.try_send(id, "\n").await, ErrorKind::NotResumable);
    assert_eq!(error.detail("attempts"), json!([]), "there was nothing to try");
    let anew = json!({"conversationId": id, "prompt": "\n", "minFidelity": "none"});
    let turn: Value = app.call("conversation/prompt", anew).await.unwrap();
    assert_eq!(
        (&turn["resumed"]["via"], &turn["resumed"]["fidelity"]),
        (&json!("fresh"), &json!("none"))
    );
}

/// Cancelling a prompt that waits for its session answers the prompt, and the conversation is idle again.
#[tokio::test]
async fn a_prompt_that_waits_for_its_session_can_be_cancelled() {
    let home = Home::with_config(
        "[agents.slow]\ncommand = \"/bin/sh\"\nargs = [\"-c\", \"read -r line; cat >/dev/null\"]\n",
    );
    let (daemon, app) = home.opened().await;
    let id = app.make_of(&home.project(), "slow").await;
    let mut raw = daemon.raw().await;
    let prompt = json!({"conversationId": id, "prompt": "x"});
    let request = raw.send("conversation/prompt", prompt).await;
    let cancelled = raw
        .ask("conversation/cancel", json!({"conversationId": id}))
        .await;
    assert_eq!(cancelled["result"]["cancelled"], true);
    let answer = raw.passed.pop_front().unwrap();
    assert_eq!(
        (&answer["id"], &answer["result"]["stopReason"]),
        (&json!(request), &json!("cancelled"))
    );
    let conversation = app.get(id).await;
    assert_eq!(
        (conversation.state, conversation.chain_length),
        (ConversationState::Idle, 0)
    );
    assert_eq!(
        app.send(app.make(&home.project()).await, "x").await.stop_reason,
        StopReason::EndTurn
    );
}
