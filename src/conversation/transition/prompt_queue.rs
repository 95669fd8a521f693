//! The queue of prompts: joining it, leaving it, being held in it and being released.
//!
//! A prompt is in the record from when it joins until its turn is recorded, which replaces it. A prompt in the record that
//! is neither in the queue nor the running turn was sent to an earlier daemon, and is held.

use bridge_protocol::conversation::OnBusy;
use bridge_protocol::id::TurnId;
use bridge_protocol::method::Cancel;
use bridge_protocol::raw::RawJson;
use bridge_protocol::turn::StopReason;

use crate::conversation::answer::{Answer, CallKey, Caller};
use crate::conversation::effect::{Ledger, Milestone};
use crate::conversation::error::{ConversationError, StoreFailure};
use crate::conversation::prompt_request::{DroppedPrompt, PromptRequest};
use crate::conversation::state::{Model, Turn, TurnPhase};
use crate::store::{PendingContinuation, QueuedPromptRecord, RequestRecord, RestingState};

impl<R> Model<R> {
    /// Begins a turn, or queues its prompt.
    pub(super) fn prompt(&mut self, request: PromptRequest<R>, on_busy: OnBusy) {
        let is_free = self.turn.is_none() && self.queue.is_empty();
        if (is_free || on_busy == OnBusy::Queue)
            && let Some(position) = self.held_position(&request.caller)
        {
            self.release_held(position, request);
            return;
        }
        if is_free {
            self.start_turn(request);
            return;
        }
        let others = self.queue_length();
        let refusal = match on_busy {
            OnBusy::Fail if self.turn.is_none() => {
                "a turn was interrupted, and other prompts are queued after it; continue or cancel the turn, or queue this prompt too"
                    .to_owned()
            }
            OnBusy::Fail => "a turn is running; wait for its end, cancel it, or queue the prompt".to_owned(),
            OnBusy::Queue if others >= self.rules.prompt_queue => match self.held_prompts().count() {
                0 => format!("{others} prompts are queued already; wait until some of them have run"),
                held => format!(
                    "{others} prompts are queued already, {held} of them held since the daemon ended; wait, continue them with \
                     sessionctl continue {}, or cancel them",
                    self.record.id
                ),
            },
            OnBusy::Queue => {
                self.enqueue(request);
                return;
            }
        };
        let refusal = Err(ConversationError::Busy(refusal));
        self.answer(request.caller, refusal);
    }

    /// The queue position of the held prompt that came with this request.
    fn held_position(&self, caller: &Caller<R>) -> Option<u64> {
        let mut held = self.held_prompts();
        let is_same =
            |prompt: &QueuedPromptRecord| prompt.request.as_ref().is_some_and(|key| caller.has_key(key));
        let found = held.find(|(_, prompt)| is_same(prompt));
        found.map(|(position, _)| position)
    }

    /// Releases the held prompt at this position, whose client re-sent its request, and all held prompts before it.
    fn release_held(&mut self, position: u64, request: PromptRequest<R>) {
        let is_released = self.is_interrupted_turn_next();
        let held = self.held_prompts().filter(|(at, _)| *at <= position);
        let held = held.map(|(at, prompt)| PromptRequest {
            is_released,
            ..PromptRequest::from_held(at, prompt)
        });
        let mut released: Vec<_> = held.collect();
        if let Some(own) = released.pop() {
            released.push(PromptRequest {
                turn_id: own.turn_id,
                queue_position: own.queue_position,
                is_released,
                ..request
            });
        }
        self.queue_in_order(released);
    }

    /// Whether the interrupted turn is about to be continued, before the prompts that are held after it. While a question is
    /// open, it is not continued.
    fn is_interrupted_turn_next(&self) -> bool {
        self.is_interrupted_turn_due() && self.record.interrupts.is_empty()
    }

    /// Whether it is time to continue the interrupted turn.
    fn is_interrupted_turn_due(&self) -> bool {
        let continuation = self.record.continuation.as_ref();
        self.record.cut.is_some() && continuation.is_some_and(|continuation| continuation.at <= self.now)
    }

    /// Whether the queue waits for the interrupted turn.
    pub(super) fn waits_for_interrupted_turn(&self) -> bool {
        self.is_interrupted_turn_next() && self.queue.front().is_some_and(|first| first.is_released)
    }

    /// Adds released prompts to the queue, in the order in which they were queued.
    fn queue_in_order(&mut self, released: Vec<PromptRequest<R>>) {
        self.queue.extend(released);
        self.queue
            .make_contiguous()
            .sort_by_key(|waiting| waiting.queue_position);
    }

    /// Adds a prompt to the end of the queue.
    fn enqueue(&mut self, mut request: PromptRequest<R>) {
        let last = self.record.waiting.last_key_value().map(|(place, _)| *place);
        // The position of the running turn is free, but the turn may return to it.
        let running = self.turn.as_ref().and_then(|turn| turn.request.queue_position);
        let place = last.max(running).unwrap_or(0) + 1;
        request.queue_position = Some(place);
        self.record.waiting.insert(place, request.to_record());
        let turn_id = request.turn_id.clone();
        // Even after a restart, its request id must not be used for another call.
        let begun = request
            .caller
            .key
            .as_ref()
            .map(|key| self.begun_request_record(key));
        self.queue.push_back(request);
        self.bump_revision();
        self.write(Ledger::with_request(begun), Milestone::PromptQueued(turn_id));
    }

    /// A queued prompt is on disk, or could not be written: then it leaves the queue.
    pub(super) fn enqueue_recorded(&mut self, turn_id: &TurnId, result: Result<(), StoreFailure>) {
        let mut waiting = self.queue.iter();
        // A prompt whose turn has begun meanwhile is recorded as a turn.
        let Some(index) = waiting.position(|waiting| waiting.turn_id == *turn_id) else {
            return;
        };
        let Err(error) = result else { return };
        let Some(request) = self.queue.remove(index) else {
            return;
        };
        self.unlist(&request);
        self.mark_unsaved();
        let refusal = Err(ConversationError::StoreFailed(error));
        self.answer(request.caller, refusal);
    }

    /// Begins the turn of the next queued prompt.
    pub(super) fn start_next_queued(&mut self) {
        if self.waits_for_interrupted_turn() {
            return;
        }
        let Some(mut asked) = self.queue.pop_front() else {
            return;
        };
        // The interrupted turn waits for an answer. Like any other prompt that begins before it, this one replaces it.
        asked.is_released &= !self.is_interrupted_turn_due();
        if let Some(request) = asked.caller.key.as_ref().filter(|_| asked.is_held) {
            self.track_call(request.clone());
        }
        self.start_turn(asked);
    }

    /// Removes the running turn's prompt from the queue in the record: the record has the turn itself now, or the turn ended.
    pub(super) fn remove_from_queue_record(&mut self) {
        let starts_queue = self.is_first_of_release() && self.continues_with_queue();
        let Some(turn) = &mut self.turn else { return };
        if let Some(position) = turn.request.queue_position {
            self.record.waiting.remove(&position);
        }
        if starts_queue {
            // This continuation has begun.
            turn.request
                .release_continuation
                .clone_from(&self.record.continuation);
            self.end_continuation();
            self.due_turn = None;
        }
    }

    /// Puts the running turn's prompt back into the queue in the record, because the record no longer has the turn itself.
    pub(super) fn restore_to_queue_record(&mut self) {
        let Some(turn) = &mut self.turn else { return };
        if let Some(position) = turn.request.queue_position {
            self.record.waiting.insert(position, turn.request.to_record());
        }
        if let Some(continuation) = turn.request.release_continuation.take() {
            self.record.continuation = Some(continuation);
        }
    }

    /// The client re-sent the request of the running turn's prompt: it has a caller again.
    pub(super) fn note_repeated_call(&mut self, request: &CallKey) {
        let turn = self.turn.as_mut();
        if let Some(turn) = turn.filter(|turn| turn.request.caller.has_key(request)) {
            turn.request.is_held = false;
        }
    }

    /// Attaches the reply to the released prompt of the same call, which has no caller. Otherwise returns the reply.
    pub(super) fn join_queued_call(&mut self, request: &CallKey, reply: R) -> Option<R> {
        let mut waiting = self.queue.iter_mut();
        let Some(waiting) = waiting.find(|waiting| waiting.is_held && waiting.caller.has_key(request)) else {
            return Some(reply);
        };
        waiting.caller.reply = Some(reply);
        waiting.is_held = false;
        self.track_call(request.clone());
        None
    }

    /// Removes prompts from the queue, and cancels the running turn.
    pub(super) fn cancel(&mut self, call: &Cancel, params: Option<RawJson>, caller: Caller<R>) {
        let turn_id = call.turn_id.as_ref();
        let matches = |id: &TurnId| call.queued || turn_id == Some(id);
        let mut prompts = Vec::new();
        let mut was_named = false;
        for asked in std::mem::take(&mut self.queue) {
            if !matches(&asked.turn_id) {
                self.queue.push_back(asked);
                continue;
            }
            was_named |= turn_id == Some(&asked.turn_id);
            self.unlist(&asked);
            prompts.push(self.cancelled_prompt(asked.caller, asked.turn_id));
        }
        for prompt in self.take_held_prompts(matches) {
            was_named |= turn_id == Some(&prompt.turn_id);
            prompts.push(self.cancelled_prompt(prompt.request.into(), prompt.turn_id));
        }
        let runs = self
            .turn
            .as_ref()
            .is_some_and(|turn| turn_id.is_none_or(|id| *id == turn.request.turn_id) && !was_named);
        let mut cancels = vec![caller];
        let of_running = if runs { cancels.pop() } else { None };
        if !prompts.is_empty() {
            self.end_continuation_of_empty_queue();
            self.bump_revision();
            self.record_dropped_prompts(prompts, cancels);
        } else {
            for caller in cancels {
                self.answer(caller, Ok(Answer::Cancelled(false)));
            }
        }
        if let Some(caller) = of_running {
            self.cancel_running(params, caller);
        }
    }

    fn cancelled_prompt(&self, caller: Caller<R>, turn_id: TurnId) -> DroppedPrompt<R> {
        let result = self.cancelled_before_start(turn_id);
        DroppedPrompt {
            caller,
            result: Ok(Answer::Turn(Box::new(result))),
        }
    }

    /// Ends a prompt that did not reach an agent. A prompt without a caller is held again, unless it was cancelled. `refused`
    /// is the call that answered a question with this prompt.
    pub(super) fn drop_unsent(
        &mut self,
        request: PromptRequest<R>,
        result: Result<Answer, ConversationError>,
        refused: Option<DroppedPrompt<R>>,
        cancels: Vec<Caller<R>>,
    ) {
        let is_held_again = request.is_held && result.is_err();
        let position = request.queue_position.filter(|_| !is_held_again);
        let was_listed = position.is_some_and(|position| self.record.waiting.remove(&position).is_some());
        if was_listed {
            self.bump_revision();
        }
        let is_kept = result.is_ok() && request.caller.key.is_some();
        // The record on disk must stop naming the turn before the caller is answered: the next start would end the turn by the
        // transcript, which may hold an edit.
        let runs_on_disk = self.writer.may_name_turn(&request.turn_id);
        let prompt = DroppedPrompt {
            caller: request.caller,
            result,
        };
        let prompts = refused.into_iter().chain([prompt]).collect();
        if was_listed || runs_on_disk || is_kept {
            self.record_dropped_prompts(prompts, cancels);
        } else {
            self.prompts_dropped(prompts, cancels, Ok(()));
        }
    }

    /// Answers the callers of dropped prompts once the drop is on disk. A caller that has its answer must not find its prompt
    /// in the queue again, nor start it by repeating the call, even after a restart.
    fn record_dropped_prompts(&mut self, prompts: Vec<DroppedPrompt<R>>, cancels: Vec<Caller<R>>) {
        let answered = |prompt: &DroppedPrompt<R>| {
            let answer = prompt.result.as_ref().ok()?;
            self.answered_request_record(prompt.caller.key.as_ref(), answer)
        };
        let ledger = Ledger {
            requests: prompts.iter().filter_map(answered).collect(),
            ..Ledger::default()
        };
        self.write(ledger, Milestone::PromptsDropped { prompts, cancels });
    }

    /// The drop is on disk, or could not be written. The prompts are not sent in either case.
    pub(super) fn prompts_dropped(
        &mut self,
        prompts: Vec<DroppedPrompt<R>>,
        cancels: Vec<Caller<R>>,
        result: Result<(), StoreFailure>,
    ) {
        for prompt in prompts {
            self.answer(prompt.caller, prompt.result);
        }
        let answer = match result {
            Ok(()) => Ok(Answer::Cancelled(true)),
            Err(error) => Err(ConversationError::StoreFailed(error)),
        };
        for caller in cancels {
            self.answer(caller, answer.clone());
        }
    }

    /// Holds the prompts of disconnected callers, who cannot be notified that the daemon stops.
    pub fn hold_for_disconnected(&mut self, has_left: impl Fn(&R) -> bool) {
        let is_unsent = |turn: &&mut Turn<R>| {
            let is_unsent_phase = matches!(turn.phase, TurnPhase::Waiting | TurnPhase::Recording);
            is_unsent_phase && !turn.announced && turn.request.queue_position.is_some()
        };
        let next = self.turn.as_mut().filter(is_unsent).map(|turn| &mut turn.request);
        for waiting in next.into_iter().chain(&mut self.queue) {
            let mut open = self.open_requests.iter();
            let open = open.find(|open| waiting.caller.has_key(&open.key));
            let mut followers = open.into_iter().flat_map(|open| &open.followers);
            if waiting.caller.reply.as_ref().is_none_or(&has_left) && followers.all(&has_left) {
                waiting.is_held = true;
            }
        }
    }

    /// The daemon stops: the callers of queued prompts get that error and can repeat the call. Held prompts stay.
    pub(super) fn refuse_queue(&mut self) {
        self.hold_released_prompts();
        let mut prompts = Vec::new();
        for request in std::mem::take(&mut self.queue) {
            self.unlist(&request);
            prompts.push(DroppedPrompt {
                caller: request.caller,
                result: Err(ConversationError::ShuttingDown),
            });
        }
        if !prompts.is_empty() {
            self.bump_revision();
            self.record_dropped_prompts(prompts, Vec::new());
        }
    }

    /// Removes a prompt of the queue from the record.
    fn unlist(&mut self, request: &PromptRequest<R>) {
        if let Some(position) = request.queue_position {
            self.record.waiting.remove(&position);
        }
    }

    /// Takes these held prompts out of the record.
    fn take_held_prompts(&mut self, is_meant: impl Fn(&TurnId) -> bool) -> Vec<QueuedPromptRecord> {
        let held = self
            .held_prompts()
            .filter(|(_, prompt)| is_meant(&prompt.turn_id));
        let places: Vec<u64> = held.map(|(place, _)| place).collect();
        let waiting = &mut self.record.waiting;
        places.iter().filter_map(|place| waiting.remove(place)).collect()
    }

    /// Removes the held prompts from the record. Returns the answers for callers that repeat their calls.
    pub(super) fn remove_held_prompts(&mut self) -> Vec<RequestRecord> {
        let held = self.take_held_prompts(|_| true).into_iter();
        let cancelled = held.filter_map(|prompt| {
            let result = Answer::Turn(Box::new(self.cancelled_before_start(prompt.turn_id)));
            self.answered_request_record(prompt.request.as_ref(), &result)
        });
        cancelled.collect()
    }

    /// Releases all held prompts.
    fn release_all_held(&mut self) {
        let held = self
            .held_prompts()
            .map(|(place, prompt)| PromptRequest::from_held(place, prompt));
        let held = held.collect();
        self.queue_in_order(held);
    }

    /// Holds again the prompts without a caller: a turn has failed, and the next one might fail in the same way.
    pub(super) fn hold_released_prompts(&mut self) {
        self.queue.retain(|waiting| !waiting.is_held);
    }

    /// Whether the conversation continues with the held prompts and nothing before them.
    pub(super) fn continues_with_queue(&self) -> bool {
        let continuation = self.record.continuation.as_ref();
        self.record.cut.is_none() && continuation.is_some_and(|it| it.line && it.text.is_none())
    }

    /// A released prompt did not reach its agent: it is held again, and the reason is reported.
    pub(super) fn released_prompt_unsent(&mut self, error: &ConversationError) {
        let is_reported = matches!(error, ConversationError::ShuttingDown)
            || matches!(self.record.resting, RestingState::Limited | RestingState::Failed);
        if !is_reported {
            self.record.resting = RestingState::Failed;
            self.record.failure = Some(format!("a queued prompt could not be sent: {error}"));
            self.mark_unsaved();
        }
    }

    /// Ends a continuation of the queue if no held prompt is left.
    pub(super) fn end_continuation_of_empty_queue(&mut self) {
        if self.continues_with_queue() && !self.is_first_of_release() && !self.has_held_prompts() {
            self.end_continuation();
            self.mark_unsaved();
        }
    }

    /// Whether the running turn is the first of the released prompts, to which the continuation belongs.
    fn is_first_of_release(&self) -> bool {
        self.turn
            .as_ref()
            .is_some_and(|turn| turn.request.is_first_of_release)
    }

    /// Starts the held prompts, if nothing comes before them. Returns whether it did.
    pub(super) fn start_released_queue(&mut self) -> bool {
        if !self.continues_with_queue() {
            return false;
        }
        self.due_turn = None;
        self.release_all_held();
        if let Some(first) = self.queue.front_mut().filter(|first| first.is_held) {
            first.is_first_of_release = true;
        } else {
            // Clients have re-sent all of them meanwhile.
            self.end_continuation();
            self.mark_unsaved();
        }
        self.start_next_queued();
        true
    }

    /// A turn has settled the interrupted prompt. The held prompts come next, if that was requested.
    pub(super) fn settle_queue_continuation(&mut self, continues: bool, stop_reason: &StopReason) {
        if self.turn.as_ref().is_some_and(|turn| turn.request.is_released) {
            // The next continuation has its own time.
            return;
        }
        let Some(ended) = self.record.continuation.take() else {
            return;
        };
        let is_queue_next = ended.line && self.has_held_prompts();
        if !is_queue_next {
            return;
        }
        if !continues {
            self.record.continuation = Some(PendingContinuation { text: None, ..ended });
        } else if *stop_reason != StopReason::Cancelled {
            self.release_all_held();
        }
    }

    /// The queue was cancelled: prompts that did not reach an agent are held again.
    pub(super) fn cancel_release(&mut self) {
        self.hold_released_prompts();
        if let Some(turn) = &mut self.turn {
            turn.request.is_first_of_release = false;
            turn.request.release_continuation = None;
        }
        let is_unsent =
            |turn: &mut Turn<R>| turn.request.is_held && turn.phase == TurnPhase::Waiting && !turn.announced;
        if let Some(turn) = self.turn.take_if(is_unsent) {
            self.open_requests
                .retain(|open| !turn.request.caller.has_key(&open.key));
            self.limit_unwanted_climb();
            self.arm_idle();
        }
    }
}
