//! Scenarios of conversations that continue automatically, the same for every kind of real agent.

use bridge_protocol::ConversationId;
use bridge_protocol::client::Call;
use bridge_protocol::conversation::ContinueAt;
use bridge_protocol::event::Event;
use bridge_protocol::method::Continue;
use bridge_protocol::turn::{FailureKind, StopReason, TurnResult};

use crate::bridge_of::{Bridge, Lab, Pending};

/// The text that is sent in place of the prompt if the agent already has the prompt.
pub(crate) const GO_ON: &str = "Your last turn was cut short. Continue it from where it stopped.";

/// The stop reason of the turn with which the conversation continued automatically.
pub(crate) fn went_on(bridge: &Bridge<impl Lab>, id: ConversationId) -> StopReason {
    let turn_id = &bridge.wait_event("an automatic continuation", |event| match &event.event {
        Event::Continued { turn_id } if event.conversation_id == id => Some(turn_id.clone()),
        _ => None,
    });
    bridge.wait_event("the end of the continued turn", |event| match &event.event {
        Event::TurnEnded { turn } if turn.turn_id == *turn_id => Some(turn.stop_reason.clone()),
        _ => None,
    })
}

/// Starts a turn in each of these conversations and waits until both have reached the model.
pub(crate) fn begin_together(
    bridge: &Bridge<impl Lab>,
    ids: [ConversationId; 2],
    prompts: [&str; 2],
) -> [Pending<TurnResult>; 2] {
    [0, 1].map(|which| {
        let running = bridge.begin_prompt(ids[which], prompts[which], None);
        bridge.wait_written(ids[which], prompts[which]);
        bridge.lab.model().wait_for(prompts[which]);
        running
    })
}

/// Checks that both turns failed because the process they shared died of an unknown cause, and that each can
/// be continued on request.
pub(crate) fn continue_after_shared_death(
    bridge: &Bridge<impl Lab>,
    ids: [ConversationId; 2],
    running: [Pending<TurnResult>; 2],
) {
    for (id, turn) in ids.into_iter().zip(running) {
        let turn = turn.wait().expect("a turn result");
        let failure = turn.failure.expect("a failure");
        assert_eq!(
            (failure.kind, failure.retryable),
            (FailureKind::AgentDied, true),
            "{failure:?}"
        );
        assert!(turn.continuation.is_none(), "nothing continues it automatically");
        let client = bridge.client();
        let answer = bridge.call(async move {
            client
                .call(Continue {
                    conversation_id: id.into(),
                    at: Some(ContinueAt::Now),
                    ..Default::default()
                })
                .await
        });
        answer.expect("the continuation on request");
    }
}
