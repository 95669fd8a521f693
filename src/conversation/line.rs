//! The queue of prompts that wait for the turns before them, in memory and in the record. Pure.
//!
//! A prompt has an entry in the record from when it joins the queue until its turn is recorded, so that the next daemon
//! knows it. No caller waits for it there: it is held until a client sends its request again.

use bridge_protocol::conversation::{Conversation, OnLimit, QueuedPrompt};
use bridge_protocol::id::TurnId;
use bridge_protocol::link::Fidelity;
use bridge_protocol::raw::{PromptContent, RawJson};
use jiff::Timestamp;

use crate::store::{PendingContinuation, PendingTurn, TurnPhase as Progress, WaitingPrompt};

use super::answer::{Answer, Caller};
use super::effect::NewTurn;
use super::error::ConversationError;
use super::state::Model;

/// The prompt's caller and what it asked.
#[derive(Debug)]
pub struct Waiting<R> {
    /// Whose prompt it is.
    pub turn_id: TurnId,
    /// Further parameters for the agent.
    pub params: Option<RawJson>,
    /// What was asked.
    pub prompt: PromptContent,
    /// When it was admitted.
    pub asked_at: Timestamp,
    /// The least fidelity that will do.
    pub min_fidelity: Fidelity,
    /// Who waits for the end; nobody for a turn that the daemon started.
    pub caller: Caller<R>,
    /// What to do when it meets a usage limit.
    pub on_limit: OnLimit,
    /// Whether it is a scheduled continuation.
    pub continues: bool,
    /// Its place in the queue, if it had to wait.
    pub place: Option<u64>,
    /// Whether an earlier daemon queued it, and no client has sent its request again since.
    pub is_held: bool,
    /// Whether it is sent because the conversation continues, even if a client has sent its request again since.
    pub is_let_out: bool,
    /// Whether the conversation continues with it, and after it with the other held prompts. Until its turn is recorded,
    /// the continuation in the record belongs to it.
    pub leads: bool,
    /// That continuation, once it is recorded.
    pub led_by: Option<PendingContinuation>,
}

impl<R> Waiting<R> {
    /// A new prompt, with or without a caller.
    #[must_use]
    pub fn new(
        turn: impl Into<NewTurn>,
        prompt: PromptContent,
        asked_at: Timestamp,
        caller: Caller<R>,
    ) -> Self {
        let NewTurn { id, params } = turn.into();
        Self {
            turn_id: id,
            params,
            prompt,
            asked_at,
            min_fidelity: Fidelity::Text,
            caller,
            on_limit: OnLimit::Fail,
            continues: false,
            place: None,
            is_held: false,
            is_let_out: false,
            leads: false,
            led_by: None,
        }
    }

    /// A prompt that is held, on its way out.
    #[must_use]
    pub fn held(place: u64, held: &WaitingPrompt) -> Self {
        let caller = Caller {
            reply: None,
            request: held.request.clone(),
        };
        Self {
            min_fidelity: held.min_fidelity,
            on_limit: held.on_limit,
            place: Some(place),
            is_held: true,
            is_let_out: true,
            ..Self::new(held.turn_id.clone(), held.prompt.clone(), held.asked_at, caller)
        }
    }

    /// Its place in the line on the record.
    #[must_use]
    pub fn listed(&self) -> WaitingPrompt {
        WaitingPrompt {
            turn_id: self.turn_id.clone(),
            prompt: self.prompt.clone(),
            asked_at: self.asked_at,
            min_fidelity: self.min_fidelity,
            on_limit: self.on_limit,
            request: self.caller.request.clone(),
        }
    }

    /// Its place on the record, with no session to go to yet.
    #[must_use]
    pub fn pending(&self, now: Timestamp) -> PendingTurn {
        let request = self.caller.request.as_ref();
        PendingTurn {
            turn_id: self.turn_id.clone(),
            prompt: self.prompt.clone(),
            accepted_at: now,
            upstream_id: None,
            phase: Progress::Sent,
            anchor: None,
            min_fidelity: Some(self.min_fidelity),
            continues: self.continues,
            taken: false,
            request_id: request.map(|request| request.id.clone()),
            fingerprint: request.map(|request| request.fingerprint.clone()),
            edit: None,
        }
    }
}

/// A prompt that will not be sent.
#[derive(Debug)]
pub struct Dropped<R> {
    /// Who waits for its end; nobody for a turn that the daemon started and for a prompt that is held.
    pub caller: Caller<R>,
    /// The answer to their callers, whether the change could be recorded or not.
    pub result: Result<Answer, ConversationError>,
}

impl<R> Model<R> {
    /// The prompts that are held, in their order.
    pub fn held(&self) -> impl Iterator<Item = (u64, &WaitingPrompt)> {
        let running = self.turn.as_ref().and_then(|turn| turn.asked.place);
        let waits = move |place: &u64| self.queue.iter().any(|waiting| waiting.place == Some(*place));
        let all = self.record.waiting.iter().map(|(place, prompt)| (*place, prompt));
        all.filter(move |(place, _)| running != Some(*place) && !waits(place))
    }

    /// Whether any is.
    #[must_use]
    pub fn has_held(&self) -> bool {
        self.held().next().is_some()
    }

    /// How many prompts wait, held ones included.
    #[must_use]
    pub fn count_in_line(&self) -> usize {
        self.queue.len() + self.held().count()
    }

    /// The line as clients may know it: what is not on disk yet does not wait yet.
    pub(super) fn show_line(&self, view: &mut Conversation) {
        let held = self.held().map(|(_, prompt)| shown_held(prompt));
        view.queue = held.collect();
        view.cut_short = self.record.cut.is_some() || !view.queue.is_empty();
        let on_disk = &self.writer.on_disk.waiting;
        let is_shown = |asked: &&Waiting<R>| {
            let listed = asked.place.and_then(|place| on_disk.get(&place));
            listed.is_some_and(|listed| listed.turn_id == asked.turn_id)
        };
        let waiting = self.queue.iter().filter(is_shown);
        view.queue.extend(waiting.map(|waiting| QueuedPrompt {
            turn_id: waiting.turn_id.clone(),
            queued_at: waiting.asked_at,
            held: false,
        }));
    }
}

/// A prompt that is held, as clients know it.
#[must_use]
pub fn shown_held(prompt: &WaitingPrompt) -> QueuedPrompt {
    QueuedPrompt {
        turn_id: prompt.turn_id.clone(),
        queued_at: prompt.asked_at,
        held: true,
    }
}
