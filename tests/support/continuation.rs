//! Scenarios of turns that were cut short, the same for every kind of real agent.

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::{ContinueAt, ConversationState};
use bridge_protocol::event::Event;
use bridge_protocol::link::{Fidelity, Via};
use bridge_protocol::method::Continue;
use bridge_protocol::turn::{FailureKind, StopReason, TurnResult};

use crate::bridge_of::{Bridge, Pending};
use crate::resumed::check_resumed;
use crate::support::lab::Agent;

/// The text that is sent in place of the prompt if the agent already has the prompt.
pub(crate) const GO_ON: &str = "Your last turn was cut short. Continue it from where it stopped.";

/// The stop reason of the turn with which the conversation continued automatically.
pub(crate) fn went_on(bridge: &Bridge<impl Agent>, id: ConversationId) -> StopReason {
    let turn_id = &bridge.wait_event("an automatic continuation", |event| match &event.event {
        Event::Continued { turn_id } if event.conversation_id == id => Some(turn_id.clone()),
        _ => None,
    });
    bridge.wait_event("the end of the continued turn", |event| match &event.event {
        Event::TurnEnded { turn } if turn.turn_id == *turn_id => Some(turn.stop_reason.clone()),
        _ => None,
    })
}

/// Checks that a turn failed because the agent died.
pub(crate) fn check_died(bridge: &Bridge<impl Agent>, id: ConversationId, turn: &TurnResult) {
    assert_eq!(turn.stop_reason, StopReason::Failed, "{turn:?}");
    let kind = turn.failure.as_ref().map(|failure| failure.kind);
    assert_eq!(kind, Some(FailureKind::AgentDied), "{turn:?}");
    assert_eq!(bridge.get(id).state, ConversationState::Interrupted);
}

/// Checks that the prompt "again" opens the same session in another process.
pub(crate) fn check_brought_back(bridge: &Bridge<impl Agent>, id: ConversationId, head: &str) {
    let turn = bridge.prompted(id, "again");
    assert_eq!(turn.upstream_id.as_str(), head);
    check_resumed(&turn.resumed.expect("a resume"), Via::Resume, Fidelity::Full, 0);
    let now = bridge.get(id);
    assert_eq!((now.state, bridge.chain(id).len()), (ConversationState::Idle, 1));
}

/// Starts a turn in each of these conversations and waits until both have reached the model.
pub(crate) fn begin_together(
    bridge: &Bridge<impl Agent>,
    ids: [ConversationId; 2],
    prompts: [&str; 2],
) -> [Pending<TurnResult>; 2] {
    [0, 1].map(|which| {
        let running = bridge.begin_prompt(ids[which], prompts[which], None);
        bridge.wait_written(ids[which], prompts[which]);
        bridge.lab.model.wait_for(prompts[which]);
        running
    })
}

/// Checks that both turns failed because the process they shared died of an unknown cause, and that each can
/// be continued on request.
pub(crate) fn continue_after_shared_death(
    bridge: &Bridge<impl Agent>,
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
        bridge.answer(Continue {
            conversation_id: id.into(),
            at: Some(ContinueAt::Now),
            ..Default::default()
        });
    }
}
