//! How a conversation changes: one input in, effects out. Pure: no I/O, no clock, no runtime.
//!
//! `apply` runs to its end; slow work comes back as another input. What must be durable before it is reported is a part of
//! a write with a [`Milestone`](super::effect::Milestone), and is reported when that write is over. The
//! state (`prompting`, `awaiting`) is not a promise and is reported at once; ids, ends and answers wait for the disk.

mod branching;
mod calls;
mod continuing;
mod due;
mod editing;
mod ending;
mod hearing;
mod interrupts;
mod lifecycle;
mod line;
mod moving;
mod prompting;
mod recovering;
mod repairing;
mod session;
mod settling;
mod writing;

#[cfg(test)]
mod tests;

use bridge_protocol::event::Event;

use crate::store::RequestRecord;

use super::answer::{Answer, CallKey, Caller};
use super::effect::{Disposition, Effect, Found, Input, Now, Work};
use super::error::ConversationError;
use super::state::{Model, OpenRequest, Operation, OperationKind, Stage, Turn, TurnPhase};

pub(super) use recovering::{Ended, EndedTurn, end_last_life, end_unfinished};

impl<R> Model<R> {
    /// Takes one input and returns the effects, answers last.
    pub fn apply(&mut self, input: Input<R>, now: Now) -> Vec<Effect<R>> {
        self.now = now;
        let before = self.state();
        match input {
            Input::Call { asked, kept } => self.admit(asked, kept),
            Input::Worked { job, found } => self.worked(job, found),
            Input::Written(result) => self.written(&result),
            Input::Anchored {
                turn_id,
                anchor,
                earlier,
            } => {
                self.note_arrival(earlier);
                self.anchored(&turn_id, anchor);
            }
            Input::Due(turn_id) => self.fall_due(turn_id),
            Input::PromptAnswered { answer, in_company } => {
                self.prompt_answered(answer, in_company);
            }
            Input::PromptNotSent { error, is_ending } => {
                self.prompt_not_sent(error, is_ending);
            }
            Input::Question {
                kind,
                params,
                interrupt_id,
            } => {
                self.question(kind, params, interrupt_id);
            }
            Input::QuestionWithdrawn(id) => self.question_withdrawn(&id),
            Input::AgentDied {
                status,
                stderr_tail,
                part,
            } => {
                self.agent_died(&status, &stderr_tail, part);
            }
            Input::AgentRetired => self.agent_retired(),
            Input::Elapsed(deadline) => self.elapsed(deadline),
            Input::Recovered { why, is_written } => self.recover(&why, is_written),
            Input::HandedOver(opened) => self.handed_over(*opened),
            Input::Stop { grace_ms } => self.stop(grace_ms),
        }
        self.advance();
        self.keep_up();
        let after = self.state();
        if before != after {
            self.emit(Event::StateChanged { state: after });
        }
        self.take_effects()
    }

    /// Ends a step.
    fn finish(&mut self) -> Vec<Effect<R>> {
        self.keep_up();
        self.take_effects()
    }

    /// What the input has caused, in the order in which it is carried out.
    pub(super) fn take_effects(&mut self) -> Vec<Effect<R>> {
        let mut effects = std::mem::take(&mut self.out);
        effects.sort_by_key(Effect::rank);
        effects
    }

    /// Tells the subscribers.
    fn emit(&mut self, event: Event) {
        self.out.push(Effect::Emit(event));
    }

    /// Starts what has been waiting for its turn, when nothing is in its way.
    fn advance(&mut self) {
        if self.op.is_some() || self.closing.is_some() || self.held {
            return;
        }
        self.give_up_on_the_dying();
        if self.turn.is_none() && !self.stopping {
            self.take_from_queue();
        }
        let continuation = self.record.continuation.as_ref();
        if continuation.is_none_or(|continuation| continuation.at > self.now) {
            // Another has taken the place of the one that was due, or none.
            self.due = None;
        }
        if self.turn.is_none() && !self.stopping && self.due.is_some() && self.record.interrupts.is_empty() {
            self.begin_continuation();
        }
        if self.op.is_some() || self.advance_edit() {
            return;
        }
        let waits_for_session = self
            .turn
            .as_ref()
            .is_some_and(|turn| turn.phase == TurnPhase::Waiting);
        let is_editing = self.turn.as_ref().is_some_and(Turn::is_unaccepted_edit);
        if waits_for_session || (!self.resume_waiters.is_empty() && !is_editing) {
            self.ensure_session();
        }
    }

    /// Begins an operation with its work outside.
    fn start(&mut self, kind: OperationKind, caller: Caller<R>, work: Work) {
        let number = self.begin_work(work);
        self.occupy(kind, caller, Stage::Working(number));
    }

    /// Begins work outside. Returns the number under which its result comes back.
    fn begin_work(&mut self, work: Work) -> u64 {
        self.last_job += 1;
        self.out.push(Effect::Work(self.last_job, work));
        self.last_job
    }

    /// Lets no other operation begin until this one is over.
    fn occupy(&mut self, kind: OperationKind, caller: Caller<R>, stage: Stage) {
        self.op = Some(Operation {
            kind,
            caller,
            stage,
            is_unwanted: false,
        });
    }

    /// The result of work outside. What nothing waits for any more is undone.
    fn worked(&mut self, number: u64, result: Result<Found, ConversationError>) {
        if let Ok(Found::Closed(remaining)) = result {
            self.session_closed(number, remaining);
            return;
        }
        let Some(Operation { kind, caller, .. }) = self.op.take_if(|op| op.stage.waits_for(number)) else {
            self.out.push(Effect::Dispose(Disposition::Drop));
            return;
        };
        let found = match (result, &kind) {
            (Ok(found), _) => found,
            (Err(error), OperationKind::Open { min_fidelity }) => {
                self.open_failed(*min_fidelity, &error);
                return;
            }
            (Err(error), OperationKind::Edit(turn_id)) => {
                if self.waits_for_edit(turn_id) {
                    self.fail_unsent_turn(&error);
                }
                return;
            }
            (Err(error), _) => {
                self.answer(caller, Err(error));
                return;
            }
        };
        match (kind, found) {
            (OperationKind::Open { .. }, Found::Opened(opened)) => self.opened(*opened),
            (OperationKind::Branch(fork), Found::Branched(branched)) => {
                self.branched(branched, fork, caller);
            }
            (OperationKind::Edit(turn_id), Found::Edited(edited)) => self.edit_made(&turn_id, *edited),
            (OperationKind::Undo(progress), Found::LookedBack(undoing)) => {
                self.looked_back(undoing, caller, progress);
            }
            (OperationKind::Move { destination, undoes }, Found::Moved(answer)) => {
                self.moved(answer, destination, undoes, caller);
            }
            (OperationKind::Repair, Found::Repaired((answer, made))) => self.repaired(answer, made, caller),
            (OperationKind::Ascertain(death), Found::Ascertained(arrival)) => {
                self.ascertained(arrival, death);
            }
            (OperationKind::Configure { title, settings }, Found::Configured) => {
                self.write_update(title, Some(settings), caller);
            }
            _ => self.out.push(Effect::Dispose(Disposition::Drop)),
        }
    }

    /// Answers a call and everyone who asked the same with the same key.
    fn answer(&mut self, caller: Caller<R>, result: Result<Answer, ConversationError>) {
        if let Some(request) = &caller.request
            && let Some(index) = self
                .open_requests
                .iter()
                .position(|open| open.request.id == request.id)
        {
            for follower in self.open_requests.swap_remove(index).followers {
                self.out.push(Effect::Answer(follower, result.clone()));
            }
        }
        if let Some(reply) = caller.reply {
            self.out.push(Effect::Answer(reply, result));
        }
    }

    /// From now on, a repeated call with this key waits for the answer to the first.
    fn open_call(&mut self, request: CallKey) {
        self.open_requests.push(OpenRequest {
            request,
            followers: Vec::new(),
        });
    }

    /// The record of a call that is answered with this.
    fn done_request(&self, request: Option<&CallKey>, answer: &Answer) -> Option<RequestRecord> {
        let request = request?;
        let result = answer.to_json().ok()?;
        Some(RequestRecord {
            result: Some(result),
            ..self.request_record(request)
        })
    }

    /// The record of a call that has begun.
    fn request_record(&self, request: &CallKey) -> RequestRecord {
        request.record(Some(self.record.id), self.now)
    }
}
