//! How a conversation changes: one input in, effects out. Pure: no I/O, no clock, no runtime.
//!
//! `apply` runs to its end; slow work comes back as another input. What must be durable before it is reported is an
//! [`Effect::Write`] with a [`Milestone`], at most one in each step, and is reported when that milestone comes back. The
//! state (`prompting`, `awaiting`) is not a promise and is reported at once; ids, ends and answers wait for the disk.

mod branching;
mod calls;
mod continuing;
mod due;
pub(super) mod editing;
mod ending;
mod hearing;
mod interrupts;
mod lifecycle;
mod line;
mod moving;
mod prompting;
mod repairing;
mod session;
mod settling;

#[cfg(test)]
mod tests;

use bridge_protocol::event::Event;
use bridge_protocol::id::InterruptId;

use crate::store::{ConversationRecord, RequestRecord};

use super::answer::{Answer, Caller, Request};
use super::effect::{
    CallChange, Deadline, Disposition, Effect, Effects, Found, Input, Ledger, Milestone, Now, Work, WritePart,
};
use super::error::{ConversationError, StoreFailure};
use super::state::{Branching, Job, JobKind, Model, Saving, Turn, TurnPhase};

/// How long until a failed write is repeated, in milliseconds: a full disk has to be fixed by the user.
pub(super) const REWRITE_AFTER_MS: u64 = 5_000;

impl<R> Model<R> {
    /// Takes one input and returns the effects, answers last.
    pub fn apply(&mut self, input: Input<R>, now: Now) -> Effects<R> {
        self.now = now;
        let before = self.state();
        match input {
            Input::Call {
                call,
                request,
                kept,
                reply,
            } => {
                self.admit(call, request, kept, reply);
            }
            Input::Worked { job, found } => self.worked(job, found),
            Input::Written { parts, result } => {
                for part in parts {
                    self.written(part, result.clone());
                }
            }
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
            Input::HandedOver(opened) => self.handed_over(*opened),
            Input::Stop { grace_ms } => self.stop(grace_ms),
        }
        self.advance();
        self.keep_up();
        let after = self.state();
        if before != after {
            self.out.emit(Event::StateChanged { state: after });
        }
        self.take_effects()
    }

    /// What the input has caused.
    pub(super) fn take_effects(&mut self) -> Effects<R> {
        std::mem::take(&mut self.out)
    }

    /// Starts what has been waiting for its turn, when nothing is in its way.
    fn advance(&mut self) {
        if self.job.is_some() || self.closing.is_some() || self.held {
            return;
        }
        self.give_up_on_the_dying();
        if self.turn.is_none() && !self.stopping {
            self.take_from_queue();
        }
        let continuation = self.record.continuation.as_ref();
        if continuation.is_some_and(|continuation| continuation.at > self.now) {
            // Another has taken the place of the one that was due.
            self.due = None;
        }
        if self.turn.is_none() && !self.stopping && self.due.is_some() && self.record.interrupts.is_empty() {
            self.begin_continuation();
        }
        if self.job.is_some() || self.advance_edit() {
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

    /// Begins work outside, as the conversation's job.
    fn start_job(&mut self, kind: JobKind<R>, work: Work) {
        let number = self.begin_work(work);
        self.job = Some(Job {
            number,
            kind,
            once_closed: None,
        });
    }

    /// Begins work outside. Returns the number under which its result comes back.
    fn begin_work(&mut self, work: Work) -> u64 {
        self.last_job += 1;
        self.out.push(Effect::Work(self.last_job, work));
        self.last_job
    }

    /// Lets no job begin until this one is taken off.
    fn occupy(&mut self, kind: JobKind<R>) {
        self.last_job += 1;
        self.job = Some(Job {
            number: self.last_job,
            kind,
            once_closed: None,
        });
    }

    /// The result of work outside. What nothing waits for any more is undone.
    fn worked(&mut self, number: u64, found: Found) {
        if let Found::Closed(remaining) = found {
            self.session_closed(number, remaining);
            return;
        }
        match (self.finish_job(number), found) {
            (Some(JobKind::Opening { .. }), Found::Opened(Ok(opened))) => self.opened(*opened),
            (Some(JobKind::Opening { min_fidelity }), Found::Opened(Err(error))) => {
                self.open_failed(min_fidelity, &error);
            }
            (Some(JobKind::Branching(branching)), Found::Branched(Ok(branched))) => {
                self.branched(branched, branching);
            }
            (Some(JobKind::Editing(turn_id)), Found::Edited(result)) => self.edit_made(&turn_id, result),
            (Some(JobKind::Undoing { caller, progress }), Found::LookedBack(result)) => {
                self.looked_back(result, caller, progress);
            }
            (
                Some(JobKind::Moving {
                    caller,
                    destination,
                    undoes,
                }),
                Found::Moved(Ok(answer)),
            ) => self.moved(answer, &destination, undoes, caller),
            (Some(JobKind::Repairing(caller)), Found::Repaired(Ok((answer, made)))) => {
                self.repaired(answer, made, caller);
            }
            (Some(JobKind::Ascertaining(death)), Found::Ascertained(arrival)) => {
                self.ascertained(arrival, death);
            }
            (
                Some(JobKind::Configuring {
                    caller,
                    title,
                    settings,
                }),
                Found::Configured(Ok(())),
            ) => self.write_update(title, Some(settings), caller),
            (Some(JobKind::TakingBack { caller, failure }), Found::TakenBack) => {
                self.moving = false;
                self.answer(caller, Err(ConversationError::StoreFailed(failure)));
            }
            (
                Some(
                    JobKind::Branching(Branching { caller, .. })
                    | JobKind::Moving { caller, .. }
                    | JobKind::Repairing(caller)
                    | JobKind::Configuring { caller, .. },
                ),
                Found::Branched(Err(error))
                | Found::Moved(Err(error))
                | Found::Repaired(Err(error))
                | Found::Configured(Err(error)),
            ) => {
                self.moving = false;
                self.answer(caller, Err(error));
            }
            _ => self.out.push(Effect::Dispose(Disposition::Drop)),
        }
    }

    /// Takes the job with this number off, or nothing when it is not the current one.
    fn finish_job(&mut self, number: u64) -> Option<JobKind<R>> {
        if self.job.as_ref().is_some_and(|job| job.number == number) {
            return self.job.take().map(|job| job.kind);
        }
        None
    }

    /// Notes that the record has changed by something that writes nothing itself.
    fn note_change(&mut self) {
        self.record.revision += 1;
        self.is_ahead = true;
    }

    /// The one place where a change that nothing waits for gets to disk.
    fn keep_up(&mut self) {
        if self.is_ahead && self.saving == Saving::AtOnce {
            self.save();
        }
        self.publish_chain();
    }

    /// Notes that the record changes by a step that writes it.
    fn touch(&mut self) {
        self.record.revision += 1;
        self.record.updated_at = self.now.max(self.record.updated_at);
    }

    /// Writes the record down, with everything that an earlier failed write left behind.
    fn write(&mut self, ledger: Ledger, milestone: Milestone<R>) {
        let mut all = std::mem::take(&mut self.unsaved);
        all.append(ledger);
        self.is_ahead = false;
        if self.saving == Saving::Failed {
            self.saving = Saving::AtOnce;
        }
        if !all.upstream.is_empty() {
            self.ids_under_way += 1;
        }
        self.out.write(WritePart {
            ledger: all,
            milestone,
        });
    }

    /// Writes the record down as it stands; nothing waits for it.
    fn save(&mut self) {
        self.record.updated_at = self.now.max(self.record.updated_at);
        self.write(Ledger::default(), Milestone::Saved);
        self.saving = Saving::UnderWay;
    }

    /// Answers a call that changed the record only when the change is on disk. A change that could not be written is taken back,
    /// unless something else has changed since.
    fn answer_change(&mut self, caller: Caller<R>, answer: Answer, before: ConversationRecord) {
        self.write_change(Ledger::default(), CallChange::new(caller, answer, before));
    }

    /// Writes down what a call has changed.
    fn write_change(&mut self, mut ledger: Ledger, change: CallChange<R>) {
        let done = self.done_request(change.caller.request.as_ref(), &change.answer);
        ledger.requests.extend(done);
        self.write(ledger, Milestone::Changed(Box::new(change)));
    }

    /// Writes down a change that records what the job made. No other job begins before that: what it made would be mistaken for
    /// the one that is being recorded.
    fn write_end_of_job(&mut self, ledger: Ledger, mut change: CallChange<R>) {
        change.ends_job = true;
        self.occupy(JobKind::Recording);
        self.write_change(ledger, change);
    }

    /// What was being written down for the job is on disk, or could not be written.
    fn end_recording(&mut self) {
        self.job.take_if(|job| matches!(job.kind, JobKind::Recording));
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

    /// Notes what a caller hears before it is on disk: the same call is answered with it meanwhile.
    fn note_heard(&mut self, request: &RequestRecord) {
        self.heard.retain(|heard| heard.request_id != request.request_id);
        self.heard.push(request.clone());
    }

    /// The record of a call that is answered with this.
    fn done_request(&self, request: Option<&Request>, answer: &Answer) -> Option<RequestRecord> {
        let request = request?;
        let result = answer.to_json().ok()?;
        Some(RequestRecord {
            result: Some(result),
            ..self.request_record(request)
        })
    }

    /// The record of a call that has begun.
    fn request_record(&self, request: &Request) -> RequestRecord {
        request.record(Some(self.record.id), self.now)
    }

    /// A change is on disk, or could not be written: whatever waited for it continues.
    fn written(&mut self, part: WritePart<R>, result: Result<(), StoreFailure>) {
        let WritePart { ledger, milestone } = part;
        let is_taken_back = self.note_written(&milestone, ledger, result.is_ok());
        match milestone {
            Milestone::Nothing | Milestone::Saved => {}
            Milestone::SessionOpened(opened) => self.session_recorded(*opened, result),
            Milestone::PromptRecorded(turn) => self.prompt_recorded(&turn, result),
            Milestone::TurnEnded(turn) => self.turn_end_recorded(*turn),
            Milestone::PromptInLine(turn_id) => self.joined_line(&turn_id, result),
            Milestone::PromptsDropped { prompts, cancels } => {
                self.prompts_dropped(prompts, cancels, result);
            }
            Milestone::QuestionRaised(id) => self.question_recorded(&id),
            Milestone::QuestionSettled(settled) => self.question_settled(*settled),
            Milestone::Changed(change) => self.change_written(*change, is_taken_back, result),
        }
    }

    /// What a call has changed is on disk, or could not be written: what the job made for it is kept or undone, and the call is
    /// answered.
    fn change_written(
        &mut self,
        change: CallChange<R>,
        is_taken_back: bool,
        result: Result<(), StoreFailure>,
    ) {
        let CallChange {
            caller,
            answer,
            events,
            before,
            ends_job,
            opened,
        } = change;
        if ends_job {
            self.end_recording();
        }
        if let Err(failure) = result {
            if ends_job && is_taken_back {
                self.start_job(JobKind::TakingBack { caller, failure }, Work::TakeBack);
                return;
            }
            if ends_job {
                self.out.push(Effect::Dispose(Disposition::Leave));
                self.moving = false;
            }
            self.deleting &= !matches!(answer, Answer::Deleted(_));
            self.answer(caller, Err(ConversationError::StoreFailed(failure)));
            return;
        }
        if let (Answer::Forked(fork), None) = (&answer, &before) {
            self.out
                .push(Effect::Announce(Box::new(fork.conversation.clone())));
        }
        events.into_iter().for_each(|event| self.out.emit(event));
        if ends_job {
            self.out.push(Effect::Dispose(Disposition::Keep));
            self.moving = false;
        }
        match (&answer, opened) {
            (Answer::Forked(fork), Some(opened)) if fork.conversation.id != self.record.id => {
                self.out.push(Effect::HandOver(fork.conversation.id, opened));
            }
            (_, Some(opened)) => self.announce(*opened),
            (Answer::Deleted(_), None) => self.out.push(Effect::End),
            _ => {}
        }
        self.answer(caller, Ok(answer));
    }

    /// Records whether a write succeeded, and reports the events that waited for it. Returns whether the change was taken back.
    fn note_written(&mut self, milestone: &Milestone<R>, ledger: Ledger, is_on_disk: bool) -> bool {
        if matches!(milestone, Milestone::Saved) && self.saving == Saving::UnderWay {
            self.saving = Saving::AtOnce;
        }
        // The write of a new conversation says nothing about this one.
        if matches!(milestone, Milestone::Changed(change) if change.before.is_none()) {
            return !is_on_disk;
        }
        if !ledger.upstream.is_empty() {
            self.ids_under_way = self.ids_under_way.saturating_sub(1);
        }
        let mut is_taken_back = false;
        if is_on_disk {
            let is_kept = |heard: &RequestRecord| {
                let mut kept = ledger.requests.iter();
                kept.any(|request| request.request_id == heard.request_id)
            };
            self.heard.retain(|heard| !is_kept(heard));
            for event in ledger.events {
                if matches!(event, Event::Edited { .. }) {
                    self.accepts_edit = false;
                }
                self.out.emit(event);
            }
        } else {
            is_taken_back = self.not_written(milestone, ledger);
        }
        self.publish_chain();
        is_taken_back
    }

    /// A write failed: its ledger is written with the next, except what its caller is told has failed. Returns whether the change
    /// was taken back.
    fn not_written(&mut self, milestone: &Milestone<R>, mut ledger: Ledger) -> bool {
        // A turn that failed before it did anything is not recorded as begun.
        ledger
            .requests
            .retain(|request| request.result.is_some() || request.turn_id.is_none());
        let is_taken_back = self.take_back(milestone, &mut ledger);
        for request in &ledger.requests {
            self.note_heard(request);
        }
        self.unsaved.append(ledger);
        // That a turn runs is so whatever is on disk.
        let runs =
            |event: &mut Event| matches!(event, Event::PromptAccepted { .. } | Event::Continued { .. });
        for event in self.unsaved.events.extract_if(.., runs) {
            self.out.emit(event);
        }
        self.accepts_edit = false;
        self.is_ahead = true;
        self.saving = Saving::Failed;
        self.out.push(Effect::Arm(Deadline::Rewrite, REWRITE_AFTER_MS));
        is_taken_back
    }

    /// Undoes a change that is reported to its caller as failed, unless something has changed since, and removes its entries from
    /// the ledger. Entries of earlier writes stay in the ledger. Returns whether the record is as before.
    fn take_back(&mut self, milestone: &Milestone<R>, ledger: &mut Ledger) -> bool {
        let Milestone::Changed(change) = milestone else {
            return false;
        };
        let (before, request) = (change.before.as_deref(), &change.caller.request);
        if let Some(request) = request {
            ledger.requests.retain(|kept| kept.request_id != request.id);
        }
        let Some(before) = before.filter(|before| before.revision + 1 == self.record.revision) else {
            return false;
        };
        let is_open = |id: &InterruptId| before.interrupts.iter().any(|open| open.id == *id);
        ledger.events.retain(
            |event| !matches!(event, Event::InterruptResolved { interrupt_id, .. } if is_open(interrupt_id)),
        );
        let waiting: Vec<_> = before
            .waiting
            .values()
            .filter_map(|it| it.request.as_ref())
            .collect();
        ledger
            .requests
            .retain(|kept| waiting.iter().all(|request| request.id != kept.request_id));
        let last = before.chain.last_lineage_seq();
        ledger.lineage.retain(|entry| entry.seq <= last);
        let lineage = &ledger.lineage;
        ledger
            .upstream
            .retain(|id| lineage.iter().any(|entry| entry.upstream_id == *id));
        self.record = before.clone();
        true
    }
}
