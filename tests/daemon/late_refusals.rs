//! Agents that report only long after a prompt was sent that they do not know its session.

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::ConversationState;
use bridge_protocol::event::Event;
use bridge_protocol::link::Via;
use bridge_protocol::turn::{FailureKind, StopReason, TurnResult};
use serde_json::{Value, json};

use super::error_words;
use crate::home::{Daemon, Home};
use crate::scripted;
use crate::support::App;

/// A prompt that the agent refuses only after `TELL` is sent. The usage update before that does not count as a sign of
/// work.
const REFUSED_WHEN_TOLD: &str = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":$S,"update":{"sessionUpdate":"usage_update","used":1,"size":2}}}
await 77
{"jsonrpc":"2.0","id":$P,"error":{"code":-32002,"message":"Resource not found","data":{"sessionId":$S}}}
hold"#;

/// A prompt for another conversation that triggers the refusal: the response to this unknown request is what the first
/// prompt awaits.
const TELL: &str = r#"{"jsonrpc":"2.0","id":77,"method":"scripted/unknown","params":{"sessionId":$S}}"#;

async fn make(app: &App, home: &Home) -> ConversationId {
    app.make_of(&home.project(), "scripted").await
}

/// Sends the prompt, waits until it counts as accepted although the agent has not begun to work, and then has it
/// refused. Returns the client, its pending request and the turn's id.
async fn refused_late(
    daemon: &Daemon<'_>,
    app: &App,
    home: &Home,
    id: ConversationId,
) -> (crate::support::Raw, u64, String) {
    let other = make(app, home).await;
    let mut raw = daemon.raw().await;
    let (request, turn_id) = raw.run(id, REFUSED_WHEN_TOLD).await;
    app.send(other, TELL).await;
    (raw, request, turn_id)
}

fn prompts(home: &Home) -> usize {
    scripted::heard_lines(home, "scripted")
        .iter()
        .filter(|line| line.contains("session/prompt") && line.contains("await 77"))
        .count()
}

#[tokio::test]
async fn the_turn_goes_on_under_its_id_in_the_session_that_is_opened_then() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let (daemon, app) = home.opened().await;
    let id = make(&app, &home).await;
    let mut events = app.events(id).await;
    let (mut raw, request, turn_id) = refused_late(&daemon, &app, &home, id).await;
    let sent = |event: &Event| matches!(event, Event::Update { .. }).then_some(());
    events.find(sent).await;
    events.find(sent).await;
    // The prompt now runs in the second session, so it can be cancelled under the same turn id.
    let cancelled = app
        .call(
            "conversation/cancel",
            json!({"conversationId": id, "turnId": turn_id}),
        )
        .await
        .unwrap();
    assert_eq!(cancelled["cancelled"], json!(true));
    let turn: TurnResult = serde_json::from_value(raw.answer(request).await["result"].clone()).unwrap();
    assert_eq!(
        (turn.turn_id.as_str(), turn.stop_reason),
        (turn_id.as_str(), StopReason::Cancelled)
    );
    assert_eq!(turn.resumed.unwrap().via, Via::Fresh);
    assert_eq!(prompts(&home), 2, "the prompt is sent to each session once");
    let accepted = |line: &Value| line["params"]["result"]["event"]["type"] == "promptAccepted";
    assert!(
        !raw.passed.iter().any(accepted),
        "the prompt is accepted only once"
    );
}

#[tokio::test]
async fn a_turn_that_finds_no_other_session_ends_with_a_result() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let (daemon, app) = home.opened().await;
    let id = make(&app, &home).await;
    let head = app.send(id, "\n").await.upstream_id;
    let (mut raw, request, turn_id) = refused_late(&daemon, &app, &home, id).await;
    let answer = raw.answer(request).await;
    let turn: TurnResult =
        serde_json::from_value(answer["result"].clone()).unwrap_or_else(|error| panic!("{error}: {answer}"));
    assert_eq!(
        (turn.turn_id.as_str(), turn.stop_reason),
        (turn_id.as_str(), StopReason::Failed)
    );
    let failure = turn.failure.unwrap();
    assert_eq!(failure.kind, FailureKind::Unknown);
    error_words::check("late_refusals", "unknown", &failure.message);
    let conversation = app.get(id).await;
    assert_eq!(
        (conversation.state, conversation.head),
        (ConversationState::Failed, Some(head))
    );
    assert_eq!(prompts(&home), 1);
}
