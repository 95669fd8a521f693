//! The order of a conversation's events: a cause is reported before its effects.

use bridge_protocol::event::{Event, EventEnvelope};
use bridge_protocol::method::Edit;
use bridge_protocol::raw::PromptContent;
use serde_json::json;

use crate::home::Home;
use crate::scripted;

/// Asks for permission, and sends an update as soon as the answer arrives.
const ASKS: &str = r#"{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"sessionId":$S,"toolCall":{"toolCallId":"t"},"options":[{"optionId":"a","name":"A","kind":"allow_once"}]}}
await 7
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":$S,"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Thanks."}}}}"#;

/// The agent gets the answer only when it is on disk, so a fast agent cannot make the events arrive in the wrong order.
/// The test runs several rounds, because a slow agent would hide an error.
#[tokio::test]
async fn the_answer_to_a_question_is_reported_before_the_updates_that_it_causes() {
    let home = Home::new();
    let agent = scripted::configured("scripted", None);
    home.configure(&format!("default_agent = \"scripted\"\n{agent}"));
    let (_daemon, app, id) = home.begun(&[]).await;
    let mut events = app.events(id).await;
    for round in 0..8 {
        let answering = async {
            let question = |event: &Event| match event {
                Event::InterruptRaised { interrupt } => Some(interrupt.id.clone()),
                _ => None,
            };
            let question = events.find(question).await;
            let outcome = json!({"outcome": "selected", "optionId": "a"});
            let params = json!({"conversationId": id, "interruptId": question, "outcome": outcome});
            app.call("conversation/respond", params).await.unwrap();
            events.turn().await
        };
        let (_, told) = tokio::join!(app.send(id, ASKS), answering);
        let kinds: Vec<_> = told.iter().map(|envelope| envelope.event.kind()).collect();
        let first = kinds
            .iter()
            .find(|kind| matches!(**kind, "interruptResolved" | "update"));
        assert_eq!(first, Some(&"interruptResolved"), "round {round}: {kinds:?}");
        assert!(kinds.contains(&"update"), "round {round}: {kinds:?}");
    }
}

#[tokio::test]
async fn an_edit_is_reported_before_the_events_of_its_turn() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["one", "two"]).await;
    let at = app.checkpoints(id).await[1].id.as_str().to_owned();
    let mut events = app.events(id).await;
    // The question is an event of the turn, and it follows an update that is reported at once.
    let prompt = PromptContent::text("[[say first]][[ask may I?]][[say last]]");
    let edit = app.answer(Edit {
        conversation_id: id.into(),
        at,
        prompt,
        ..Default::default()
    });
    let listening = async {
        let mut told = Vec::new();
        loop {
            let event = events.next().await.event;
            // Updates that belong to no turn may come at any time.
            if !matches!(event, Event::Update { turn_id: None, .. }) {
                told.push(event.kind().to_owned());
            }
            match event {
                Event::InterruptRaised { interrupt } => {
                    let outcome = json!({"outcome": "selected", "optionId": "allow_once"});
                    let params =
                        json!({"conversationId": id, "interruptId": interrupt.id, "outcome": outcome});
                    app.call("conversation/respond", params).await.unwrap();
                }
                Event::TurnEnded { .. } => return told,
                _ => {}
            }
        }
    };
    let (edited, told) = tokio::join!(edit, listening);
    assert_eq!(edited.dropped, 1);
    let at = |kind: &str| {
        let found = told.iter().position(|told| told == kind);
        found.unwrap_or_else(|| panic!("no {kind}: {told:?}"))
    };
    let order = [
        "edited",
        "promptAccepted",
        "update",
        "interruptRaised",
        "interruptResolved",
        "turnEnded",
    ];
    let order = order.map(at);
    assert!(order.is_sorted(), "{told:?}");
}

/// A prompt that is sent before the answer to a fork or an undo arrives refers to the history after that change.
#[tokio::test]
async fn a_fork_in_place_and_an_undo_are_reported_before_the_turn_that_follows() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&["one", "two"]).await;
    let at = app.checkpoints(id).await[1].id.as_str().to_owned();
    for (method, params, event) in [
        (
            "conversation/fork",
            json!({"conversationId": id, "inPlace": true, "at": at}),
            "forked",
        ),
        ("conversation/undo", json!({"conversationId": id}), "undone"),
    ] {
        let mut events = app.events(id).await;
        let mut client = daemon.raw().await;
        let change = client.send(method, params).await;
        let prompt = json!({"conversationId": id, "prompt": "next", "onBusy": "queue"});
        let prompt = client.send("conversation/prompt", prompt).await;
        let told = events.turn().await;
        for call in [change, prompt] {
            assert!(client.answer(call).await["error"].is_null(), "{method}");
        }
        let kinds: Vec<_> = told.iter().map(|envelope| envelope.event.kind()).collect();
        let at = |kind: &str| kinds.iter().position(|told| *told == kind);
        assert!(
            at(event).is_some() && at(event) < at("promptAccepted"),
            "{method}: {kinds:?}"
        );
        // No update of the turn comes before the turn's acceptance.
        let of_turn =
            |envelope: &EventEnvelope| matches!(&envelope.event, Event::Update { turn_id: Some(_), .. });
        let first = told.iter().position(of_turn);
        assert!(at("promptAccepted") < first, "{method}: {kinds:?}");
    }
}
