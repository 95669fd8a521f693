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

use super::answer::{Answer, Request};
use super::effect::{Deadline, Effect, Effects, Input, Ledger, Milestone, Now, WritePart};
use super::error::{ConversationError, StoreFailure};
use super::state::{Job, JobKind, Model, Saving, Turn, TurnPhase};

/// How long until a failed write is repeated, in milliseconds: a full disk has to be fixed by the user.
pub(super) const REWRITE_AFTER_MS: u64 = 5_000;

/// What a call has changed.
struct Changed {
    /// The record as it was, one revision before.
    before: Box<ConversationRecord>,
    /// What goes down with the record.
    ledger: Ledger,
    /// Events to send once it is on disk.
    events: Vec<Event>,
}

impl Changed {
    /// A change of nothing but the record.
    fn from(before: ConversationRecord) -> Self {
        Self {
            before: Box::new(before),
            ledger: Ledger::default(),
            events: Vec::new(),
        }
    }
}

impl<R> Model<R> {
    /// Takes one input and returns the effects, answers last.
    pub fn apply(&mut self, input: Input<R>, now: Now) -> Effects<R> {
        let before = self.state();
        let mut effects = Effects::default();
        match input {
            Input::Call {
                call,
                request,
                kept,
                reply,
            } => {
                self.admit(call, request, kept, reply, now, &mut effects);
            }
            Input::Opened { job, opened } => self.opened(job, *opened, now, &mut effects),
            Input::OpenFailed { job, error } => self.open_failed(job, &error, now, &mut effects),
            Input::Branched { job, result } => self.branched(job, result, now, &mut effects),
            Input::Edited { job, result } => self.edit_made(job, result, now, &mut effects),
            Input::LookedBack { job, result } => self.looked_back(job, result, now, &mut effects),
            Input::Moved { job, result } => self.moved(job, result, now, &mut effects),
            Input::Repaired { job, result } => self.repaired(job, result, now, &mut effects),
            Input::MovedBack { job } => self.moved_back(job, &mut effects),
            Input::SessionClosed { job, remaining } => {
                self.session_closed(job, remaining, now, &mut effects);
            }
            Input::Configured { job, result } => self.configured(job, result, now, &mut effects),
            Input::Written { parts, result } => {
                for part in parts {
                    self.written(part, result.clone(), now, &mut effects);
                }
            }
            Input::Anchored {
                turn_id,
                anchor,
                earlier,
            } => {
                self.note_arrival(earlier);
                self.anchored(&turn_id, anchor, now, &mut effects);
            }
            Input::Ascertained { job, arrival } => self.ascertained(job, arrival, now, &mut effects),
            Input::Due(turn_id) => self.fall_due(turn_id, now),
            Input::PromptAnswered { answer, in_company } => {
                self.prompt_answered(answer, in_company, now, &mut effects);
            }
            Input::PromptNotSent { error, is_ending } => {
                self.prompt_not_sent(error, is_ending, now, &mut effects);
            }
            Input::Question {
                kind,
                params,
                interrupt_id,
            } => {
                self.question(kind, params, interrupt_id, now, &mut effects);
            }
            Input::QuestionWithdrawn(id) => self.question_withdrawn(&id, &mut effects),
            Input::AgentDied {
                status,
                stderr_tail,
                part,
            } => {
                self.agent_died(&status, &stderr_tail, part, now, &mut effects);
            }
            Input::AgentRetired => self.agent_retired(),
            Input::Elapsed(deadline) => self.elapsed(deadline, now, &mut effects),
            Input::HandedOver(opened) => self.handed_over(*opened, now, &mut effects),
            Input::Stop { grace_ms } => self.stop(grace_ms, now, &mut effects),
        }
        self.advance(now, &mut effects);
        self.keep_up(now, &mut effects);
        let after = self.state();
        if before != after {
            effects.emit(Event::StateChanged { state: after });
        }
        effects
    }

    /// Starts what has been waiting for its turn, when nothing is in its way.
    fn advance(&mut self, now: Now, effects: &mut Effects<R>) {
        if self.job.is_some() || self.closing.is_some() || self.held {
            return;
        }
        self.give_up_on_the_dying(now, effects);
        if self.turn.is_none() && !self.stopping {
            self.take_from_queue(now, effects);
        }
        let continuation = self.record.continuation.as_ref();
        if continuation.is_some_and(|continuation| continuation.at > now) {
            // Another has taken the place of the one that was due.
            self.due = None;
        }
        if self.turn.is_none() && !self.stopping && self.due.is_some() && self.record.interrupts.is_empty() {
            self.begin_continuation(now, effects);
        }
        if self.job.is_some() || self.advance_edit(now, effects) {
            return;
        }
        let waits_for_session = self
            .turn
            .as_ref()
            .is_some_and(|turn| turn.phase == TurnPhase::Waiting);
        let is_editing = self.turn.as_ref().is_some_and(Turn::is_unaccepted_edit);
        if waits_for_session || (!self.resume_waiters.is_empty() && !is_editing) {
            self.ensure_session(effects);
        }
    }

    /// Starts a job and returns its number.
    fn start_job(&mut self, kind: JobKind<R>) -> u64 {
        self.last_job += 1;
        self.job = Some(Job {
            number: self.last_job,
            kind,
        });
        self.last_job
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
    fn keep_up(&mut self, now: Now, effects: &mut Effects<R>) {
        if self.is_ahead && self.saving == Saving::AtOnce {
            self.save(now, effects);
        }
        self.publish_chain();
    }

    /// Notes that the record changes by a step that writes it.
    fn touch(&mut self, now: Now) {
        self.record.revision += 1;
        self.record.updated_at = now.max(self.record.updated_at);
    }

    /// Writes the record down, with everything that an earlier failed write left behind.
    fn write(&mut self, ledger: Ledger, milestone: Milestone<R>, effects: &mut Effects<R>) {
        let mut all = std::mem::take(&mut self.unsaved);
        all.append(ledger);
        self.is_ahead = false;
        if self.saving == Saving::Failed {
            self.saving = Saving::AtOnce;
        }
        if !all.upstream.is_empty() {
            self.ids_under_way += 1;
        }
        effects.write(WritePart {
            ledger: all,
            milestone,
        });
    }

    /// Writes the record down as it stands; nothing waits for it.
    fn save(&mut self, now: Now, effects: &mut Effects<R>) {
        self.record.updated_at = now.max(self.record.updated_at);
        self.write(Ledger::default(), Milestone::Saved, effects);
        self.saving = Saving::UnderWay;
    }

    /// Answers a call when what it has changed is on disk. What could not be written is taken back, unless something else has
    /// changed since.
    fn answer_change(
        &mut self,
        reply: R,
        request: Option<Request>,
        answer: Answer,
        changed: Changed,
        now: Now,
        effects: &mut Effects<R>,
    ) {
        let Changed {
            before,
            mut ledger,
            events,
        } = changed;
        ledger
            .requests
            .extend(self.done_request(request.as_ref(), &answer, now));
        let milestone = Milestone::Answer {
            reply,
            request,
            answer: Box::new(answer),
            events,
            before: Some(before),
        };
        self.write(ledger, milestone, effects);
    }

    /// Answers a call and everyone who asked the same with the same key.
    fn answer(
        &mut self,
        reply: R,
        request: Option<&Request>,
        result: Result<Answer, ConversationError>,
        effects: &mut Effects<R>,
    ) {
        self.answer_all(Some(reply), request, result, effects);
    }

    /// The same of a turn, which the daemon may have started itself.
    fn answer_all(
        &mut self,
        reply: Option<R>,
        request: Option<&Request>,
        result: Result<Answer, ConversationError>,
        effects: &mut Effects<R>,
    ) {
        if let Some(request) = request
            && let Some(index) = self
                .open_requests
                .iter()
                .position(|open| open.request.id == request.id)
        {
            for follower in self.open_requests.swap_remove(index).followers {
                effects.push(Effect::Answer(follower, result.clone()));
            }
        }
        if let Some(reply) = reply {
            effects.push(Effect::Answer(reply, result));
        }
    }

    /// Notes what a caller hears before it is on disk: the same call is answered with it meanwhile.
    fn note_heard(&mut self, request: &RequestRecord) {
        self.heard.retain(|heard| heard.request_id != request.request_id);
        self.heard.push(request.clone());
    }

    /// The record of a call that is answered with this.
    fn done_request(&self, request: Option<&Request>, answer: &Answer, now: Now) -> Option<RequestRecord> {
        let request = request?;
        let result = answer.to_json().ok()?;
        Some(RequestRecord {
            result: Some(result),
            ..self.request_record(request, now)
        })
    }

    /// The record of a call that has begun.
    fn request_record(&self, request: &Request, now: Now) -> RequestRecord {
        request.record(Some(self.record.id), now)
    }

    /// A change is on disk, or could not be written: whatever waited for it continues.
    fn written(
        &mut self,
        part: WritePart<R>,
        result: Result<(), StoreFailure>,
        now: Now,
        effects: &mut Effects<R>,
    ) {
        let WritePart { ledger, milestone } = part;
        self.note_written(&milestone, ledger, result.is_ok(), effects);
        match milestone {
            Milestone::Nothing | Milestone::Saved => {}
            Milestone::SessionOpened(opened) => self.session_recorded(*opened, result, now, effects),
            Milestone::PromptRecorded(turn) => self.prompt_recorded(&turn, result, now, effects),
            Milestone::TurnEnded(turn) => self.turn_end_recorded(*turn, effects),
            Milestone::PromptInLine(turn_id) => self.joined_line(&turn_id, result, effects),
            Milestone::PromptsDropped { prompts, cancels } => {
                self.prompts_dropped(prompts, cancels, result, effects);
            }
            Milestone::QuestionRaised(id) => self.question_recorded(&id, effects),
            Milestone::QuestionSettled(settled) => self.question_settled(*settled, effects),
            Milestone::Answer {
                reply,
                request,
                answer,
                events,
                ..
            } => {
                let result = match result {
                    Ok(()) => {
                        for event in events {
                            effects.emit(event);
                        }
                        // Of one that was never prompted: no session, no link, but a conversation.
                        if let Answer::Forked(fork) = &*answer {
                            effects.push(Effect::Announce(Box::new(fork.conversation.clone())));
                        }
                        Ok(*answer)
                    }
                    Err(error) => Err(ConversationError::StoreFailed(error)),
                };
                self.answer(reply, request.as_ref(), result, effects);
            }
            Milestone::Forked {
                reply,
                request,
                branched,
                answer,
                ..
            } => {
                self.fork_recorded(reply, request.as_ref(), *branched, answer, result, now, effects);
            }
            Milestone::Moved {
                reply,
                request,
                answer,
                before,
            } => self.move_recorded(reply, request, *answer, &before, result, effects),
            Milestone::Repaired {
                reply,
                request,
                answer,
                before,
            } => self.repair_recorded(reply, request.as_ref(), *answer, &before, result, effects),
            Milestone::Deleted {
                reply,
                request,
                answer,
                ..
            } => match result {
                Ok(()) => {
                    effects.emit(Event::Deleted {});
                    self.answer(reply, request.as_ref(), Ok(Answer::Deleted(answer)), effects);
                    effects.push(Effect::End);
                }
                Err(error) => {
                    self.deleting = false;
                    let result = Err(ConversationError::StoreFailed(error));
                    self.answer(reply, request.as_ref(), result, effects);
                }
            },
        }
    }

    /// Records what is on disk and what is not, and reports what waited for it.
    fn note_written(
        &mut self,
        milestone: &Milestone<R>,
        ledger: Ledger,
        is_on_disk: bool,
        effects: &mut Effects<R>,
    ) {
        if matches!(milestone, Milestone::Saved) && self.saving == Saving::UnderWay {
            self.saving = Saving::AtOnce;
        }
        // The write of a new conversation says nothing about this one.
        let of_another = matches!(
            milestone,
            Milestone::Answer { before: None, .. } | Milestone::Forked { before: None, .. }
        );
        if of_another {
            return;
        }
        if !ledger.upstream.is_empty() {
            self.ids_under_way = self.ids_under_way.saturating_sub(1);
        }
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
                effects.emit(event);
            }
        } else {
            self.not_written(milestone, ledger, effects);
        }
        self.publish_chain();
    }

    /// A write failed: what it said goes out with the next, but for what a caller is told has failed.
    fn not_written(&mut self, milestone: &Milestone<R>, mut ledger: Ledger, effects: &mut Effects<R>) {
        // That a turn has begun is not worth telling: it failed before it did anything.
        ledger
            .requests
            .retain(|request| request.result.is_some() || request.turn_id.is_none());
        self.take_back(milestone, &mut ledger);
        for request in &ledger.requests {
            self.note_heard(request);
        }
        self.unsaved.append(ledger);
        // That a turn runs is so whatever is on disk.
        let runs =
            |event: &mut Event| matches!(event, Event::PromptAccepted { .. } | Event::Continued { .. });
        for event in self.unsaved.events.extract_if(.., runs) {
            effects.emit(event);
        }
        self.accepts_edit = false;
        self.is_ahead = true;
        self.saving = Saving::Failed;
        effects.push(Effect::Arm(Deadline::Rewrite, REWRITE_AFTER_MS));
    }

    /// Undoes a change that is reported to its caller as failed, unless something has changed since, and removes its entries from
    /// the ledger. Entries of earlier writes stay in the ledger.
    fn take_back(&mut self, milestone: &Milestone<R>, ledger: &mut Ledger) {
        let (before, request): (Option<&ConversationRecord>, _) = match milestone {
            Milestone::Answer { before, request, .. } | Milestone::Forked { before, request, .. } => {
                (before.as_deref(), request)
            }
            Milestone::Deleted { before, request, .. }
            | Milestone::Moved { before, request, .. }
            | Milestone::Repaired { before, request, .. } => (Some(&**before), request),
            _ => return,
        };
        if let Some(request) = request {
            ledger.requests.retain(|kept| kept.request_id != request.id);
        }
        let Some(before) = before.filter(|before| before.revision + 1 == self.record.revision) else {
            return;
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
    }
}
