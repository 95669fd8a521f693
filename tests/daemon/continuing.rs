//! Scheduled continuations: work that a limit, a crash or a stop interrupted is continued automatically, exactly once.

use std::fs;
use std::path::Path;

use bridge_protocol::conversation::{Conversation, ConversationState};
use bridge_protocol::event::Event;
use bridge_protocol::turn::{FailureKind, StopReason, TurnResult};
use bridge_protocol::{ConversationId, ErrorKind};
use serde_json::{Value, json};

use super::error_words;
use crate::gate::Gate;
use crate::home::{Home, kill_now};
use crate::signs::Watched;
use crate::support::{App, Events, refused};
use crate::watching::{append_reply, append_turn};

/// The beginning of the text that is sent if the agent already has the prompt.
pub(crate) const GO_ON: &str = "Your last turn was cut short.";

/// A past time: a continuation scheduled for it is sent at once.
pub(crate) const AT_ONCE: &str = "2026-01-01T00:00:00Z";

/// Sends a prompt with `onLimit: wait`.
async fn send_and_wait(app: &App, id: ConversationId, text: &str) -> TurnResult {
    let params = json!({"conversationId": id, "prompt": text, "onLimit": "wait"});
    serde_json::from_value(app.call("conversation/prompt", params).await.unwrap()).unwrap()
}

pub(crate) async fn go_on(app: &App, id: ConversationId, with: Value) -> Value {
    let mut params = json!({"conversationId": id});
    params
        .as_object_mut()
        .unwrap()
        .extend(with.as_object().unwrap().clone());
    app.call("conversation/continue", params).await.unwrap()
}

/// Returns the end of the next turn that a continuation begins.
pub(crate) async fn continued(events: &mut Events) -> TurnResult {
    let turn_id = events
        .find(|event| match event {
            Event::Continued { turn_id } => Some(turn_id.clone()),
            _ => None,
        })
        .await;
    events
        .find(|event| match event {
            Event::TurnEnded { turn } if turn.turn_id == turn_id => Some(turn.clone()),
            _ => None,
        })
        .await
}

/// Returns the prompts in the transcript of the head.
pub(crate) async fn prompts(app: &App, home: &Home, id: ConversationId) -> Vec<String> {
    let text = fs::read_to_string(home.transcript_of(app, id).await).unwrap();
    let records = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let prompt = |record: Value| {
        let content = &record["message"]["content"];
        let text = content.as_str().or(content[0]["text"].as_str());
        let is_said = |text: &&str| record["type"] == "user" && !text.starts_with("[Request interrupted");
        text.filter(is_said).map(ToOwned::to_owned)
    };
    records.filter_map(prompt).collect()
}

/// Removes the first record that contains the text, and everything after it.
fn cut_before(path: &Path, text: &str) {
    let whole = fs::read_to_string(path).unwrap();
    let end = whole.find(text).map(|at| whole[..at].rfind('\n').unwrap() + 1);
    fs::write(path, &whole[..end.unwrap()]).unwrap();
}

#[tokio::test]
async fn d3_a_limited_prompt_goes_on_by_itself_at_the_reset() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["before"]).await;
    let mut events = app.events(id).await;
    let limited = send_and_wait(&app, id, "[[limit 1]]").await;
    let failure = limited.failure.unwrap();
    assert_eq!(failure.kind, FailureKind::RateLimited);
    assert_eq!(
        limited.continuation.as_ref().unwrap().at,
        failure.resets_at.unwrap()
    );
    let shown = app.get(id).await;
    assert_eq!(
        (shown.state, shown.continuation),
        (ConversationState::Limited, limited.continuation)
    );
    let turn = continued(&mut events).await;
    assert_eq!(turn.stop_reason, StopReason::EndTurn);
    let shown = app.get(id).await;
    assert_eq!((shown.state, shown.continuation), (ConversationState::Idle, None));
    // The agent keeps a limited prompt in the history for the model, so the prompt is not sent again.
    let sent = prompts(&app, &home, id).await;
    assert_eq!(sent[..2], ["before", "[[limit 1]]"]);
    assert!(sent[2].starts_with(GO_ON) && sent.len() == 3, "{sent:?}");
}

// Against D3.
#[tokio::test]
async fn it_outlives_the_daemon_and_sends_the_prompt_that_the_transcript_lacks() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&["before"]).await;
    let limited = send_and_wait(&app, id, "[[limit 1]][[say done]]").await;
    let at = limited.continuation.unwrap().at;
    let transcript = home.transcript_of(&app, id).await;
    daemon.kill();
    cut_before(&transcript, "[[limit 1]]");
    let daemon = home.start();
    // No client is connected when the continuation is due.
    Watched::below(transcript.parent().unwrap()).wait_for("prompt, which waits for a client", || {
        let sent = fs::read_to_string(&transcript).unwrap();
        sent.contains("[[limit 1]]").then_some(())
    });
    let app = daemon.app().await;
    let mut events = app.events(id).await;
    events
        .find(|event| match event {
            // The continuation may have run before this client subscribed.
            Event::Snapshot { conversation, .. } => {
                (conversation.state == ConversationState::Idle).then_some(())
            }
            Event::StateChanged { state } => (*state == ConversationState::Idle).then_some(()),
            _ => None,
        })
        .await;
    assert!(app.get(id).await.updated_at >= at);
    assert_eq!(
        prompts(&app, &home, id).await,
        ["before", "[[limit 1]][[say done]]"]
    );
}

/// The daemon was killed after it sent the continuation: the prompt is not sent again.
#[tokio::test]
async fn f18_a_continuation_that_went_out_does_not_go_out_again_after_a_crash() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&[]).await;
    let limited = app.send(id, "[[limit 1]]").await;
    assert_eq!(limited.continuation, None, "no continuation was requested");
    let mut events = app.events(id).await;
    go_on(&app, id, json!({"at": "reset", "text": "[[say on it]][[hang]]"})).await;
    events
        .find(|event| matches!(event, Event::Update { turn_id: Some(_), .. }).then_some(()))
        .await;
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    let shown = app.get(id).await;
    assert_eq!(
        (shown.state, shown.continuation),
        (ConversationState::Interrupted, None)
    );
    assert_eq!(
        prompts(&app, &home, id).await,
        ["[[limit 1]]", "[[say on it]][[hang]]"]
    );
    // The user asks for a continuation: the agent has the prompt, so it gets the text that tells it to continue.
    let mut events = app.events(id).await;
    go_on(&app, id, json!({"at": AT_ONCE})).await;
    assert_eq!(continued(&mut events).await.stop_reason, StopReason::EndTurn);
    let sent = prompts(&app, &home, id).await;
    assert!(sent.len() == 3 && sent[2].starts_with(GO_ON), "{sent:?}");
}

/// The agent cancels the continuation on its own, before writing anything to the transcript: it is scheduled again for
/// later, and is sent once.
#[tokio::test]
async fn a_continuation_that_its_agent_cancels_unasked_is_not_lost() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    let mut events = app.events(id).await;
    let limited = send_and_wait(&app, id, "[[skip next]][[limit 1]]").await;
    let turn = continued(&mut events).await;
    assert_eq!((turn.stop_reason, turn.failure), (StopReason::Cancelled, None));
    let next = turn.continuation.unwrap();
    assert!(next.attempts == 1 && next.at > limited.continuation.unwrap().at);
    let shown = app.get(id).await;
    assert_eq!(
        (shown.state, shown.continuation),
        (ConversationState::Interrupted, Some(next))
    );
    assert_eq!(prompts(&app, &home, id).await, ["[[skip next]][[limit 1]]"]);
    go_on(&app, id, json!({"at": AT_ONCE})).await;
    assert_eq!(continued(&mut events).await.stop_reason, StopReason::EndTurn);
    let sent = prompts(&app, &home, id).await;
    assert!(sent.len() == 2 && sent[1].starts_with(GO_ON), "{sent:?}");
}

#[tokio::test]
async fn it_can_be_called_off_and_bad_input_is_told_what_to_do() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    let call = |with: Value| {
        let mut params = json!({"conversationId": id});
        params
            .as_object_mut()
            .unwrap()
            .extend(with.as_object().unwrap().clone());
        let app = &app;
        async move { app.call("conversation/continue", params).await }
    };
    refused(call(json!({})).await, ErrorKind::InvalidParams);
    refused(call(json!({"at": "soon"})).await, ErrorKind::InvalidParams);
    refused(
        call(json!({"at": "reset", "text": ""})).await,
        ErrorKind::InvalidParams,
    );
    refused(call(json!({"at": "reset"})).await, ErrorKind::Conflict);
    refused(call(json!({"at": AT_ONCE})).await, ErrorKind::Conflict);
    assert_eq!(call(json!({"cancel": true})).await.unwrap(), json!({}));

    let limited = send_and_wait(&app, id, "[[limit 3600]]").await;
    assert!(limited.continuation.is_some());
    let mut events = app.events(id).await;
    assert_eq!(call(json!({"cancel": true})).await.unwrap(), json!({}));
    let Event::Updated { conversation } = events.until("updated").await else {
        unreachable!()
    };
    assert_eq!(conversation.continuation, None);
    // A repeated call with the same `requestId` returns the first answer.
    let keyed = json!({"at": "reset", "requestId": "once"});
    let first = call(keyed.clone()).await.unwrap();
    assert_eq!(call(keyed).await.unwrap(), first);
    let other = json!({"at": AT_ONCE, "requestId": "once"});
    refused(call(other).await, ErrorKind::Conflict);
    app.ask("conversation/reset", id).await;
    assert_eq!(app.get(id).await.continuation, None);
}

/// While a continuation waits for hours, the idle session is closed and its agent ends. The session is resumed when the
/// continuation is due.
#[tokio::test]
async fn it_waits_without_its_agent() {
    let home = Home::with_config("[limits]\nidle_minutes = 0.001\n");
    let (_daemon, app, id) = home.begun(&[]).await;
    let mut events = app.events(id).await;
    let limited = send_and_wait(&app, id, "[[limit 3600]]").await;
    events.until("closed").await;
    assert_eq!(app.get(id).await.continuation, limited.continuation);
    go_on(&app, id, json!({"at": AT_ONCE})).await;
    assert_eq!(continued(&mut events).await.stop_reason, StopReason::EndTurn);
}

/// Kills daemon and agent while a prompt is being sent, before or after the agent has read it. Returns the conversation
/// and the prompt's parameters.
async fn killed_with(home: &Home, gate: &Gate, text: &str, is_read: bool) -> (ConversationId, Value) {
    let (daemon, app, id) = home.begun(&["before"]).await;
    if !is_read {
        gate.hold("session/prompt");
    }
    let mut events = app.events(id).await;
    let params = json!({"conversationId": id, "prompt": text, "requestId": "mine"});
    let mut raw = daemon.raw().await;
    raw.send("conversation/prompt", params.clone()).await;
    events
        .until(if is_read { "update" } else { "promptAccepted" })
        .await;
    daemon.kill();
    gate.kill_last();
    (id, params)
}

/// The agent is killed before it reads the prompt. Nothing has been done yet, so the next process gets the prompt,
/// once.
#[tokio::test]
async fn a_prompt_that_a_killed_agent_never_read_goes_out_again() {
    let (home, gate) = Gate::home();
    let (_daemon, app, id) = home.begun(&["before"]).await;
    gate.hold("session/prompt");
    let mut events = app.events(id).await;
    let params = json!({"conversationId": id, "prompt": "never read"});
    let prompt = app.call("conversation/prompt", params);
    let kill = async {
        events.until("promptAccepted").await;
        gate.kill_last();
    };
    let (turn, ()) = tokio::join!(prompt, kill);
    let turn: TurnResult = serde_json::from_value(turn.unwrap()).unwrap();
    assert_eq!(turn.stop_reason, StopReason::EndTurn);
    assert_eq!(prompts(&app, &home, id).await, ["before", "never read"]);
}

/// The daemon is killed together with the agent. It reads from the transcript whether the agent got the prompt, and the
/// client can safely retry.
#[tokio::test]
async fn f18_what_a_crash_cut_short_is_told_by_the_transcript_and_a_retry_is_safe() {
    for (text, is_read) in [("never read", false), ("[[say read]][[hang]]", true)] {
        let (home, gate) = Gate::home();
        let (id, params) = killed_with(&home, &gate, text, is_read).await;
        let (_daemon, app) = home.opened().await;
        assert_eq!(app.get(id).await.state, ConversationState::Interrupted, "{text}");
        let turn: TurnResult =
            serde_json::from_value(app.call("conversation/prompt", params).await.unwrap()).unwrap();
        if let Some(failure) = &turn.failure {
            error_words::check(
                "a turn that a kill cut short",
                "daemonRestarted",
                &failure.message,
            );
        }
        let failure = turn.failure.map(|failure| (failure.kind, failure.retryable));
        let expected = is_read.then_some((FailureKind::DaemonRestarted, false));
        assert_eq!(failure, expected, "{text}");
        assert_eq!(prompts(&app, &home, id).await, ["before", text]);
    }
}

/// A tool ran before the agent died: sending the prompt again could run the tool twice.
#[tokio::test]
async fn f18_what_died_behind_a_tool_is_not_called_retryable() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    for (text, retryable) in [
        ("[[say a word]][[crash]]", true),
        ("[[write made.txt x]][[crash]]", false),
    ] {
        let id = app.make(&home.project()).await;
        let failure = app.send(id, text).await.failure.unwrap();
        assert_eq!(
            (failure.kind, failure.retryable),
            (FailureKind::AgentDied, retryable),
            "{text}"
        );
    }
}

/// The continuation meets the next limit and waits for its end. It is sent only once, and other continuations may
/// begin.
#[tokio::test]
async fn a_limit_that_is_still_on_is_met_once() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let id = app.begun(&home.project(), &["[[limit 1]]"]).await;
    let mut events = app.events(id).await;
    go_on(&app, id, json!({"at": "reset", "text": "[[limit 3600]]"})).await;
    let again = continued(&mut events).await.continuation.unwrap();
    // Once another conversation's continuation has ended, this one would have been sent too if it were due.
    let other = app.make(&home.project()).await;
    let mut of_other = app.events(other).await;
    go_on(&app, other, json!({"at": AT_ONCE, "text": "hello"})).await;
    continued(&mut of_other).await;
    assert_eq!(app.get(id).await.continuation, Some(again));
    assert_eq!(prompts(&app, &home, id).await, ["[[limit 1]]", "[[limit 3600]]"]);
}

/// A limit stops the turn of a continuation with a text. The agent has the text by then, so the next continuation only
/// asks it to continue.
#[tokio::test]
async fn d3_a_text_that_meets_a_limit_does_not_go_out_again() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["before"]).await;
    let mut events = app.events(id).await;
    let text = "[[write made.txt x]][[limit 1]]";
    go_on(&app, id, json!({"at": AT_ONCE, "text": text})).await;
    let limited = continued(&mut events).await;
    assert!(limited.continuation.is_some(), "{limited:?}");
    assert_eq!(continued(&mut events).await.stop_reason, StopReason::EndTurn);
    let sent = prompts(&app, &home, id).await;
    assert_eq!(sent[..2], ["before", text]);
    assert!(sent[2].starts_with(GO_ON) && sent.len() == 3, "{sent:?}");
}

/// D3: another program or the agent itself has continued the session, so nothing is left to continue.
#[tokio::test]
async fn d3_what_was_answered_elsewhere_is_not_gone_on_with() {
    let asked = ["before", "[[limit 3600]]", "elsewhere"];
    for (append, prompts_then) in [
        (append_turn as fn(&Path, &str), &asked[..]),
        (append_reply, &asked[..2]),
    ] {
        let home = Home::new();
        let (_daemon, app, id) = home.begun(&["before"]).await;
        let limited = send_and_wait(&app, id, "[[limit 3600]]").await;
        assert!(limited.continuation.is_some());
        append(&home.transcript_of(&app, id).await, "elsewhere");
        go_on(&app, id, json!({"at": AT_ONCE})).await;
        let is_done = |shown: &Conversation| !shown.cut_short && shown.state == ConversationState::Idle;
        assert_eq!(app.once(id, is_done).await.continuation, None);
        assert_eq!(prompts(&app, &home, id).await, prompts_then);
    }
}

/// The daemon's prompt never reached the agent. A prompt of another program at the same place must not be taken for it.
#[tokio::test]
async fn f18_anothers_prompt_is_not_taken_for_the_one_that_was_cut_short() {
    let (home, gate) = Gate::home();
    let (id, _) = killed_with(&home, &gate, "never read", false).await;
    let (_daemon, app) = home.opened().await;
    append_turn(&home.transcript_of(&app, id).await, "elsewhere");
    let mut events = app.events(id).await;
    go_on(&app, id, json!({"at": AT_ONCE})).await;
    continued(&mut events).await;
    assert_eq!(
        prompts(&app, &home, id).await,
        ["before", "elsewhere", "never read"]
    );
}

/// The user continues the interrupted prompt, and then the client retries it: both are the same prompt.
#[tokio::test]
async fn f18_a_retry_of_what_was_gone_on_with_is_the_same_prompt() {
    let (home, gate) = Gate::home();
    let (id, params) = killed_with(&home, &gate, "never read", false).await;
    let (_daemon, app) = home.opened().await;
    let mut events = app.events(id).await;
    go_on(&app, id, json!({"at": AT_ONCE})).await;
    let turn = continued(&mut events).await;
    let again: TurnResult =
        serde_json::from_value(app.call("conversation/prompt", params).await.unwrap()).unwrap();
    let sent = prompts(&app, &home, id).await;
    assert_eq!(again.turn_id, turn.turn_id, "{again:?}, {turn:?}: {sent:?}");
    assert_eq!(sent, ["before", "never read"]);
}

/// The pending prompt is not in the transcript. A later prompt is, and must not be taken for it.
#[tokio::test]
async fn a_later_prompt_is_not_taken_for_the_one_that_waits() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&["before"]).await;
    send_and_wait(&app, id, "[[limit 4]] one").await;
    let transcript = home.transcript_of(&app, id).await;
    daemon.kill();
    cut_before(&transcript, "[[limit 4]]");
    let (_daemon, app) = home.opened().await;
    let mut events = app.events(id).await;
    app.send(id, "[[fail network]] two").await;
    assert_eq!(continued(&mut events).await.stop_reason, StopReason::EndTurn);
    let sent = prompts(&app, &home, id).await;
    assert_eq!(sent, ["before", "[[fail network]] two", "[[limit 4]] one"]);
}

/// D3: the number of simultaneous continuations is bounded, however many are due. The next one begins when one has
/// ended.
#[tokio::test]
async fn d3_few_go_on_at_a_time() {
    const ALL: usize = 6;
    let home = Home::with_config("[limits]\ncontinuations = 2\n");
    let (_daemon, app) = home.opened().await;
    let mut events = app.events_of(None, None).await;
    for _ in 0..ALL {
        let id = app.make(&home.project()).await;
        go_on(&app, id, json!({"at": AT_ONCE, "text": "[[say on it]][[hang]]"})).await;
    }
    let (mut working, mut ended, mut most) = (Vec::new(), 0, 0);
    while ended < ALL {
        let told = events.next().await;
        let id = told.conversation_id;
        match told.event {
            Event::Continued { .. } => working.push(id),
            Event::TurnEnded { .. } => {
                working.retain(|other| *other != id);
                ended += 1;
            }
            _ => continue,
        }
        most = most.max(working.len());
        // No other continuation begins before one of these has ended.
        if let Some(id) = working.first()
            && (working.len() == 2 || ended + working.len() == ALL)
        {
            app.ask("conversation/cancel", id).await;
        }
    }
    assert_eq!(most, 2);
}

/// F23: an agent that ignores both the cancel and the close is killed. Turns of other conversations in that process end
/// with the reason and are continued automatically.
#[tokio::test]
async fn f23_an_agent_that_heeds_nothing_goes_and_its_other_conversations_go_on() {
    let (home, gate) = Gate::home_with("[limits]\ncancel_grace_ms = 200\n");
    let (daemon, app) = home.opened().await;
    let (deaf, other) = (app.make(&home.project()).await, app.make(&home.project()).await);
    let mut raw = daemon.raw().await;
    raw.run(deaf, "[[say one]][[hang]]").await;
    let mut of_other = daemon.raw().await;
    let (running, _) = of_other.run(other, "[[say two]][[hang]]").await;
    let mut events = app.events(other).await;
    // From the cancel on, the gate passes nothing more to the agent.
    gate.hold("session/cancel");
    app.ask("conversation/cancel", deaf).await;
    let ended = of_other.answer(running).await["result"].take();
    assert_eq!(ended["failure"]["kind"], "agentDied", "{ended}");
    let why = ended["failure"]["message"].as_str().unwrap();
    error_words::check("the agent heeds no cancel of another's turn", "agentDied", why);
    assert!(ended["continuation"].is_object(), "{ended}");
    assert_eq!(continued(&mut events).await.stop_reason, StopReason::EndTurn);
    let sent = prompts(&app, &home, other).await;
    assert!(sent.len() == 2 && sent[1].starts_with(GO_ON), "{sent:?}");
    assert_eq!(app.send(deaf, "after").await.stop_reason, StopReason::EndTurn);
}

/// F23: a process dies during turns of two conversations, and either turn may be the cause. Both end, keep their
/// sessions, and are continued when the user asks for it.
#[tokio::test]
async fn f23_turns_that_died_together_end_and_can_be_continued() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let mut raw = daemon.raw().await;
    let mut conversations = Vec::new();
    for _ in 0..2 {
        let id = app.begun(&home.project(), &["before"]).await;
        let events = app.events(id).await;
        raw.run(id, "[[say on it]][[hang]]").await;
        conversations.push((id, events));
    }
    kill_now(home.only_agent());
    for (id, events) in &mut conversations {
        let turn = ended(events).await;
        let failure = turn.failure.unwrap();
        assert_eq!((failure.kind, turn.continuation), (FailureKind::AgentDied, None));
        error_words::check(
            "the agent of several conversations dies",
            "agentDied",
            &failure.message,
        );
        let shown = app.get(*id).await;
        assert_eq!(
            (shown.state, shown.continuation),
            (ConversationState::Interrupted, None)
        );
    }
    for (id, events) in &mut conversations {
        let head = app.get(*id).await.head;
        go_on(&app, *id, json!({"at": AT_ONCE})).await;
        assert_eq!(continued(events).await.stop_reason, StopReason::EndTurn);
        assert_eq!(app.get(*id).await.head, head);
    }
}

/// Returns the next turn that ends.
async fn ended(events: &mut Events) -> TurnResult {
    let Event::TurnEnded { turn } = events.until("turnEnded").await else {
        unreachable!()
    };
    turn
}
