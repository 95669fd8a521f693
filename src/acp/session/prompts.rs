//! The editor's own prompts in a session: their turns, their cancellations, and the continuations that they wait for.

use bridge_protocol::TurnId;
use bridge_protocol::conversation::{Conversation, ConversationState};
use bridge_protocol::turn::TurnResult;
use jiff::Timestamp;
use tokio::sync::oneshot;

use super::{Session, State};

/// A prompt of the editor.
pub(super) struct EditorPrompt {
    /// The id of the turn that the prompt will start.
    turn_id: TurnId,
    is_cancelled: bool,
    /// Whether the editor has loaded the session again since it sent the prompt, and so no longer shows it.
    is_forgotten: bool,
    /// Set if it is a command that continues a turn.
    pub(super) continuation: Option<Continuation>,
}

/// A continuation that a prompt waits for.
pub(super) struct Continuation {
    /// Whether the continuation was seen to be due. Only after that can the wait end without a turn.
    is_due: bool,
    /// The turn, once it has begun.
    pub(super) turn: Option<TurnId>,
    pub(super) ended: oneshot::Sender<TurnResult>,
}

impl Session {
    /// Registers a prompt on arrival, before it is processed. `turn`: the turn that it will start.
    pub(in crate::acp) fn add_prompt(&self, turn: TurnId) {
        self.lock().prompts.push(EditorPrompt {
            turn_id: turn,
            is_cancelled: false,
            is_forgotten: false,
            continuation: None,
        });
    }

    /// Removes the prompt of this turn, which is answered.
    pub(in crate::acp) fn remove_prompt(&self, turn: &TurnId) {
        self.lock().prompts.retain(|own| own.turn_id != *turn);
    }

    /// Whether the prompt of this turn was cancelled.
    pub(in crate::acp) fn is_cancelled(&self, turn: &TurnId) -> bool {
        let state = self.lock();
        let own = state.prompts.iter().find(|own| own.turn_id == *turn);
        own.is_some_and(|own| own.is_cancelled)
    }

    /// The turns of the editor's prompts.
    pub(in crate::acp) fn prompt_turns(&self) -> Vec<TurnId> {
        let state = self.lock();
        state.prompts.iter().map(|own| own.turn().clone()).collect()
    }

    /// From now on, the turn that this prompt continues counts as its own. The receiver gets the end of that turn, or is closed
    /// if the continuation ends without a turn.
    pub(in crate::acp) fn expect_continuation(&self, prompt: &TurnId) -> oneshot::Receiver<TurnResult> {
        let (ended, end) = oneshot::channel();
        if let Some(own) = self.lock().prompts.iter_mut().find(|own| own.turn_id == *prompt) {
            own.continuation = Some(Continuation {
                is_due: false,
                turn: None,
                ended,
            });
        }
        end
    }

    /// The turn that a prompt continues, once it has begun and until it ends.
    pub(in crate::acp) fn continuation_turn(&self, prompt: &TurnId) -> Option<TurnId> {
        let state = self.lock();
        let own = state.prompts.iter().find(|own| own.turn_id == *prompt)?;
        own.continuation.as_ref()?.turn.clone()
    }

    /// Marks the editor's prompts as cancelled: the prompt of this turn, or all. Returns the turns to cancel, without those
    /// already cancelled; for all, also the running turn of another client, if the editor was shown it. A turn that is not
    /// shown yet cannot be meant: the cancellation was sent before, for one that has ended.
    pub(in crate::acp) fn cancel(&self, only: Option<&TurnId>) -> Vec<TurnId> {
        let mut state = self.lock();
        let shown = state.running_turn.clone();
        let of_others = shown.filter(|shown| only.is_none() && !state.is_own_turn(shown));
        let own = state.prompts.iter_mut().rev();
        let own = own.filter(|own| only.is_none_or(|only| *only == own.turn_id));
        let own = own.filter_map(|own| {
            let was_cancelled = std::mem::replace(&mut own.is_cancelled, true);
            (!was_cancelled).then(|| own.turn().clone())
        });
        let turns = own.chain(of_others).collect();
        self.prompts_cancelled.notify_waiters();
        turns
    }

    /// Waits until the prompt of this turn is cancelled.
    pub(in crate::acp) async fn wait_until_cancelled(&self, turn: &TurnId) {
        loop {
            let changed = self.prompts_cancelled.notified();
            if self.is_cancelled(turn) {
                return;
            }
            changed.await;
        }
    }

    /// Waits until the prompt of this turn is cancelled, or the session is closed.
    pub(in crate::acp) async fn wait_until_cancelled_or_closed(&self, turn: &TurnId) {
        loop {
            let changed = self.prompts_cancelled.notified();
            if self.is_cancelled(turn) || self.conversation().is_none() {
                return;
            }
            changed.await;
        }
    }

    /// Whether the running turn is one of the editor's.
    pub(in crate::acp) fn is_own_turn_running(&self) -> bool {
        let state = self.lock();
        let running = state.running_turn.as_ref();
        running.is_some_and(|running| state.is_own_turn(running))
    }
}

impl State {
    /// Ends the wait for continuations whose turn no longer runs, because its end was missed.
    pub(super) fn drop_missed_continuations(&mut self) {
        let running = self.running_turn.as_ref();
        for own in &mut self.prompts {
            (own.continuation).take_if(|awaited| awaited.turn.is_some() && awaited.turn.as_ref() != running);
        }
    }

    /// Whether the turn is that of a prompt of the editor.
    pub(super) fn is_own_turn(&self, turn: &TurnId) -> bool {
        self.prompts.iter().any(|own| own.turn() == turn)
    }

    /// Whether the editor shows the prompt of this turn, because it has sent it. The editor did not send the prompt of a turn that
    /// it only continues.
    pub(super) fn is_shown_by_editor(&self, turn: &TurnId) -> bool {
        let mut own = self.prompts.iter();
        own.any(|own| own.turn_id == *turn && !own.is_forgotten)
    }

    /// The editor loads the session again, and had sent the prompts of these turns before.
    pub(super) fn forget_prompts(&mut self, turns: &[TurnId]) {
        for own in &mut self.prompts {
            own.is_forgotten |= turns.contains(own.turn());
        }
    }

    /// Ends the wait for a continuation that has no turn because it failed, was cancelled or was postponed.
    pub(super) fn update_continuations(&mut self, conversation: &Conversation) {
        let is_due = (conversation.continuation.as_ref()).is_some_and(|due| due.at <= Timestamp::now());
        let runs = has_turn(conversation.state);
        for own in &mut self.prompts {
            if let Some(awaited) = &mut own.continuation {
                awaited.is_due |= is_due;
            }
            (own.continuation)
                .take_if(|awaited| awaited.is_due && awaited.turn.is_none() && !is_due && !runs);
        }
    }
}

/// Whether a conversation in this state has a turn, also one whose prompt was not accepted yet.
pub(in crate::acp) fn has_turn(state: ConversationState) -> bool {
    matches!(
        state,
        ConversationState::Prompting | ConversationState::Awaiting | ConversationState::Cancelling
    )
}

impl EditorPrompt {
    /// The turn that answers the prompt.
    pub(super) fn turn(&self) -> &TurnId {
        let continued = self
            .continuation
            .as_ref()
            .and_then(|awaited| awaited.turn.as_ref());
        continued.unwrap_or(&self.turn_id)
    }
}
