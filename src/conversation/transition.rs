//! How a conversation changes: one change in, effects out. Pure: no I/O, no clock, no runtime.
//!
//! `apply` never waits; the result of slow work comes back as another change. What must be durable before it is reported is a
//! part of a write with a [`Milestone`](super::effect::Milestone), and is reported when that write has ended. The
//! state (`prompting`, `awaiting`) is no promise and is reported immediately; ids, ends and answers wait for the disk.

mod agent_updates;
mod branching;
mod calls;
mod continuation;
mod crash_recovery;
mod editing;
mod ending;
mod interrupted_turn;
mod interrupts;
mod lifecycle;
mod moving;
mod prompt_queue;
mod prompting;
mod repairing;
mod session;
mod writing;

#[cfg(test)]
mod tests;

use bridge_protocol::event::Event;

use crate::store::RequestRecord;

use super::answer::{Answer, CallKey, Caller};
use super::effect::{Call, Disposition, Effect, Now, Work, WorkResult};
use super::error::ConversationError;
use super::state::{Model, OpenRequest, Operation, OperationKind, Stage, Turn};

pub(super) use crash_recovery::{EndedTurn, EndedUnfinished, end_turn_of_previous_run, end_unfinished};

impl<R> Model<R> {
    /// One step: makes a change, then starts whatever waits and can start now. Returns the effects, answers last.
    pub fn apply(&mut self, now: Now, change: impl FnOnce(&mut Self)) -> Vec<Effect<R>> {
        self.now = now;
        let before = self.state();
        change(self);
        self.start_waiting_work();
        self.begin_due_write();
        let after = self.state();
        if before != after {
            self.emit(Event::StateChanged { state: after });
        }
        self.take_effects()
    }

    /// A step that starts nothing: for what the agent reports while it works. Nearly all of it changes nothing and costs
    /// nothing.
    pub fn note(&mut self, now: Now, change: impl FnOnce(&mut Self)) -> Vec<Effect<R>> {
        self.now = now;
        change(self);
        self.begin_due_write();
        self.take_effects()
    }

    /// Takes the effects of the step, in the order in which they are carried out.
    pub(super) fn take_effects(&mut self) -> Vec<Effect<R>> {
        let mut effects = std::mem::take(&mut self.effects);
        effects.sort_by_key(Effect::rank);
        effects
    }

    /// Sends an event to the subscribers.
    fn emit(&mut self, event: Event) {
        self.effects.push(Effect::Emit(event));
    }

    /// Starts whatever waits and can start now.
    fn start_waiting_work(&mut self) {
        while self.operation.is_none()
            && self.closing.is_none()
            && let Some((call, params, caller)) = self.waiting_updates.pop_front()
        {
            self.refuse_or_carry_out(Call::Update(call, params), caller);
        }
        if self.operation.is_some() || self.closing.is_some() || self.is_paused {
            return;
        }
        self.fail_after_repeated_agent_deaths();
        if self.turn.is_none() && !self.stopping {
            self.start_next_queued();
        }
        let continuation = self.record.continuation.as_ref();
        if continuation.is_none_or(|continuation| continuation.at > self.now) {
            // The continuation that was due was replaced or removed.
            self.due_turn = None;
        }
        if self.turn.is_none()
            && !self.stopping
            && self.due_turn.is_some()
            && self.record.interrupts.is_empty()
        {
            self.begin_continuation();
        }
        if self.operation.is_some() || self.advance_edit() {
            return;
        }
        let is_editing = self.turn.as_ref().is_some_and(Turn::is_unaccepted_edit);
        if self.waiting_turn().is_some() || (!self.resume_waiters.is_empty() && !is_editing) {
            self.ensure_session();
        }
    }

    /// Begins an operation, with its work outside the state machine.
    fn start(&mut self, kind: OperationKind, caller: Caller<R>, work: Work) {
        let number = self.begin_work(work);
        self.set_operation(kind, caller, Stage::Working(number));
    }

    /// Begins work outside the state machine. Returns the number of the job, which comes back with the result.
    fn begin_work(&mut self, work: Work) -> u64 {
        self.last_job += 1;
        self.effects.push(Effect::Work(self.last_job, work));
        self.last_job
    }

    /// Sets the running operation. No other one begins until it is over.
    fn set_operation(&mut self, kind: OperationKind, caller: Caller<R>, stage: Stage) {
        self.operation = Some(Operation {
            kind,
            caller,
            stage,
            is_unwanted: false,
        });
    }

    /// Handles the result of work outside the state machine. A result that no operation waits for is undone.
    pub fn work_done(&mut self, number: u64, result: Result<WorkResult, ConversationError>) {
        if let Ok(WorkResult::Closed(transcripts)) = result {
            self.session_closed(number, transcripts);
            return;
        }
        let Some(Operation { kind, caller, .. }) = self.operation.take_if(|op| op.stage.is_running(number))
        else {
            self.effects.push(Effect::Dispose(Disposition::Drop));
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
            (OperationKind::Open { .. }, WorkResult::Opened(opened)) => self.opened(*opened),
            (OperationKind::Branch(fork), WorkResult::Branched(branched)) => {
                self.branched(branched, fork, caller);
            }
            (OperationKind::Edit(turn_id), WorkResult::Edited(edited)) => {
                self.edit_branch_opened(&turn_id, *edited);
            }
            (OperationKind::Undo(progress), WorkResult::UndoTargetFound(undoing, title, has_moved_files)) => {
                self.undo_target_found(undoing, title, has_moved_files, caller, progress);
            }
            (OperationKind::Move(request), WorkResult::Moved(answer)) => {
                self.files_moved(answer, request, caller);
            }
            (OperationKind::Repair, WorkResult::Repaired(answer, made)) => {
                self.repaired(answer, made, caller);
            }
            (OperationKind::CheckArrival(death), WorkResult::ArrivalChecked(arrival)) => {
                self.arrival_checked(arrival, death);
            }
            (OperationKind::Configure { title, others }, WorkResult::Configured) => {
                self.write_update(title, *others, caller);
            }
            _ => self.effects.push(Effect::Dispose(Disposition::Drop)),
        }
    }

    /// Answers a call, and all repeated calls with the same key.
    fn answer(&mut self, caller: Caller<R>, result: Result<Answer, ConversationError>) {
        if let Some(request) = &caller.key
            && let Some(index) = self
                .open_requests
                .iter()
                .position(|open| open.key.id == request.id)
        {
            for follower in self.open_requests.swap_remove(index).followers {
                self.effects.push(Effect::Answer(follower, result.clone()));
            }
        }
        if let Some(reply) = caller.reply {
            self.effects.push(Effect::Answer(reply, result));
        }
    }

    /// From now on, a repeated call with this key waits for the answer to the first.
    fn track_call(&mut self, request: CallKey) {
        self.open_requests.push(OpenRequest {
            key: request,
            followers: Vec::new(),
        });
    }

    /// The record of a call with this answer.
    fn answered_request_record(&self, request: Option<&CallKey>, answer: &Answer) -> Option<RequestRecord> {
        let request = request?;
        let result = answer.to_json().ok()?;
        Some(RequestRecord {
            result: Some(result),
            ..self.begun_request_record(request)
        })
    }

    /// The record of a call that has begun.
    fn begun_request_record(&self, request: &CallKey) -> RequestRecord {
        request.to_record(Some(self.record.id), self.now)
    }
}
