//! A prompt from its call to its turn, and its entry in the queue of prompts that wait for the turns before them. Pure.
//!
//! A prompt has an entry in the record from when it joins the queue until its turn is recorded, so that the next daemon
//! knows it. No caller waits for it there: it is held until a client sends its request again.

use bridge_protocol::conversation::{Conversation, OnLimit, QueuedPrompt};
use bridge_protocol::id::TurnId;
use bridge_protocol::link::Fidelity;
use bridge_protocol::raw::{PromptContent, RawJson};
use jiff::Timestamp;

use crate::store::{PendingContinuation, PendingTurn, QueuedPromptRecord, TurnPhase as Progress};
use crate::transcript::summary::title_of;

use super::answer::{Answer, Caller};
use super::effect::NewTurn;
use super::error::ConversationError;
use super::state::Model;

/// A prompt to run as a turn, with its caller.
#[derive(Debug)]
pub struct PromptRequest<R> {
    /// The id of its turn.
    pub turn_id: TurnId,
    /// Further parameters for the agent.
    pub params: Option<RawJson>,
    /// The prompt itself.
    pub prompt: PromptContent,
    /// When it was admitted.
    pub asked_at: Timestamp,
    /// The least fidelity that is acceptable.
    pub min_fidelity: Fidelity,
    /// The caller that waits for the end of the turn; none for a turn that the daemon started.
    pub caller: Caller<R>,
    /// What to do if the turn hits a usage limit.
    pub on_limit: OnLimit,
    /// Whether it is a scheduled continuation.
    pub is_continuation: bool,
    /// Its position in the queue, if it had to wait.
    pub queue_position: Option<u64>,
    /// Whether an earlier daemon queued it, and no client has re-sent its request since.
    pub is_held: bool,
    /// Whether it is sent because the conversation continues, even if a client has re-sent its request since.
    pub is_released: bool,
    /// Whether the conversation continues with it, and after it with the other held prompts. Until its turn is recorded,
    /// the continuation in the record belongs to it.
    pub is_first_of_release: bool,
    /// That continuation, once the turn is recorded.
    pub release_continuation: Option<PendingContinuation>,
}

impl<R> PromptRequest<R> {
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
            is_continuation: false,
            queue_position: None,
            is_held: false,
            is_released: false,
            is_first_of_release: false,
            release_continuation: None,
        }
    }

    /// A held prompt that is being released.
    #[must_use]
    pub fn from_held(position: u64, held: &QueuedPromptRecord) -> Self {
        let caller = held.request.clone().into();
        Self {
            min_fidelity: held.min_fidelity,
            on_limit: held.on_limit,
            queue_position: Some(position),
            is_held: true,
            is_released: true,
            ..Self::new(held.turn_id.clone(), held.prompt.clone(), held.asked_at, caller)
        }
    }

    /// The prompt as the record stores it while it is queued.
    #[must_use]
    pub fn to_record(&self) -> QueuedPromptRecord {
        QueuedPromptRecord {
            turn_id: self.turn_id.clone(),
            prompt: self.prompt.clone(),
            asked_at: self.asked_at,
            min_fidelity: self.min_fidelity,
            on_limit: self.on_limit,
            request: self.caller.key.clone(),
        }
    }

    /// The turn as the record stores it, without a session.
    #[must_use]
    pub fn to_pending_turn(&self, now: Timestamp) -> PendingTurn {
        let request = self.caller.key.as_ref();
        PendingTurn {
            turn_id: self.turn_id.clone(),
            prompt: self.prompt.clone(),
            accepted_at: now,
            upstream_id: None,
            phase: Progress::Sent,
            anchor: None,
            min_fidelity: Some(self.min_fidelity),
            continues: self.is_continuation,
            taken: false,
            request_id: request.map(|request| request.id.clone()),
            fingerprint: request.map(|request| request.fingerprint.clone()),
            edit: None,
        }
    }
}

/// A prompt that will not be sent.
#[derive(Debug)]
pub struct DroppedPrompt<R> {
    /// The caller that waits for its end; none for a turn that the daemon started and for a held prompt.
    pub caller: Caller<R>,
    /// The answer to the caller, whether or not the change could be recorded.
    pub result: Result<Answer, ConversationError>,
}

impl<R> Model<R> {
    /// The held prompts, in order.
    pub fn held_prompts(&self) -> impl Iterator<Item = (u64, &QueuedPromptRecord)> {
        let running = self.turn.as_ref().and_then(|turn| turn.request.queue_position);
        let is_queued = move |place: &u64| {
            self.queue
                .iter()
                .any(|waiting| waiting.queue_position == Some(*place))
        };
        let all = self.record.waiting.iter().map(|(place, prompt)| (*place, prompt));
        all.filter(move |(place, _)| running != Some(*place) && !is_queued(place))
    }

    /// Whether any prompt is held.
    #[must_use]
    pub fn has_held_prompts(&self) -> bool {
        self.held_prompts().next().is_some()
    }

    /// How many prompts wait, held ones included.
    #[must_use]
    pub fn queue_length(&self) -> usize {
        self.queue.len() + self.held_prompts().count()
    }

    /// Adds the queue to what clients see. A prompt that is not on disk yet is not shown.
    pub(super) fn show_queue(&self, view: &mut Conversation) {
        let held = self.held_prompts().map(|(_, prompt)| held_prompt_view(prompt));
        view.queue = held.collect();
        view.cut_short = self.record.cut.is_some() || !view.queue.is_empty();
        let on_disk = &self.writer.on_disk.waiting;
        let is_shown = |request: &&PromptRequest<R>| {
            let listed = request.queue_position.and_then(|place| on_disk.get(&place));
            listed.is_some_and(|listed| listed.turn_id == request.turn_id)
        };
        let waiting = self.queue.iter().filter(is_shown);
        view.queue.extend(waiting.map(|waiting| QueuedPrompt {
            turn_id: waiting.turn_id.clone(),
            prompt: excerpt(&waiting.prompt),
            queued_at: waiting.asked_at,
            held: false,
        }));
    }
}

/// A held prompt as clients see it.
#[must_use]
pub fn held_prompt_view(prompt: &QueuedPromptRecord) -> QueuedPrompt {
    QueuedPrompt {
        turn_id: prompt.turn_id.clone(),
        prompt: excerpt(&prompt.prompt),
        queued_at: prompt.asked_at,
        held: true,
    }
}

/// The beginning of a prompt, as the queue shows it.
fn excerpt(prompt: &PromptContent) -> String {
    prompt
        .texts()
        .find_map(|text| title_of(&text))
        .unwrap_or_default()
}
