//! How a conversation changes: one input in, effects out. Pure: no I/O, no clock, no runtime.
//!
//! `apply` runs to its end; what takes time comes back as another input. What must be durable before it is told is an
//! [`Effect::Write`] with a [`Milestone`], and is told when that milestone comes back.

mod branching;
mod calls;
mod ending;
mod hearing;
mod interrupts;
mod lifecycle;
mod prompting;
mod session;

use bridge_protocol::event::Event;
use bridge_protocol::id::UpstreamId;
use bridge_protocol::link::LineageEntry;

use crate::store::{RECORD_VERSION, RequestRecord};

use super::answer::{Answer, Request};
use super::effect::{Effect, Effects, Input, Milestone, Now};
use super::error::ConversationError;
use super::state::{Job, JobKind, Model, TurnPhase};

impl<R> Model<R> {
    /// Takes one input and tells what is to be done, answers last.
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
            Input::SessionClosed { job } => self.session_closed(job, now, &mut effects),
            Input::Configured { job, result } => self.configured(job, result, now, &mut effects),
            Input::Written {
                milestone,
                lineage,
                result,
            } => {
                self.written(milestone, lineage, result, now, &mut effects);
            }
            Input::PromptAnswered(answer) => self.prompt_answered(answer, now, &mut effects),
            Input::Question {
                kind,
                params,
                interrupt_id,
            } => {
                self.question(kind, params, interrupt_id, now, &mut effects);
            }
            Input::QuestionWithdrawn(id) => self.question_withdrawn(&id, now, &mut effects),
            Input::AgentDied { status, stderr_tail } => {
                self.agent_died(&status, &stderr_tail, now, &mut effects);
            }
            Input::Elapsed(deadline) => self.elapsed(deadline, now, &mut effects),
            Input::Stop { grace_ms } => self.stop(grace_ms, &mut effects),
        }
        self.advance(now, &mut effects);
        let after = self.state();
        if before != after {
            effects.emit(Event::StateChanged { state: after });
        }
        effects
    }

    /// Starts what has been waiting for its turn, when nothing is in its way.
    fn advance(&mut self, now: Now, effects: &mut Effects<R>) {
        if self.job.is_some() {
            return;
        }
        if self.turn.is_none() && !self.stopping {
            self.take_from_queue(now, effects);
        }
        let waits_for_session = self
            .turn
            .as_ref()
            .is_some_and(|turn| turn.phase == TurnPhase::Waiting);
        if waits_for_session || !self.resume_waiters.is_empty() {
            self.ensure_session(now, effects);
        }
    }

    /// Starts a job and tells its number.
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

    /// Notes that the record changes.
    fn touch(&mut self, now: Now) {
        self.record.revision += 1;
        self.record.updated_at = now.max(self.record.updated_at);
    }

    /// Writes the record down, with everything that an earlier failed write left behind.
    fn write(
        &mut self,
        lineage: Vec<LineageEntry>,
        upstream: Vec<UpstreamId>,
        request: Option<RequestRecord>,
        milestone: Milestone<R>,
        effects: &mut Effects<R>,
    ) {
        let mut entries = std::mem::take(&mut self.unsaved);
        entries.extend(lineage);
        effects.push(Effect::Write {
            lineage: entries,
            upstream,
            request,
            milestone,
        });
    }

    /// Answers a call and everyone who asked the same with the same key.
    fn answer(
        &mut self,
        reply: R,
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
        effects.push(Effect::Answer(reply, result));
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
        RequestRecord {
            version: RECORD_VERSION,
            conversation_id: Some(self.record.id),
            request_id: request.id.clone(),
            fingerprint: request.fingerprint.clone(),
            turn_id: None,
            result: None,
            error: None,
            at: now,
        }
    }

    /// A change is on disk, or could not be written: what waited for it goes on.
    fn written(
        &mut self,
        milestone: Milestone<R>,
        lineage: Vec<LineageEntry>,
        result: Result<(), String>,
        now: Now,
        effects: &mut Effects<R>,
    ) {
        if result.is_err() && !self.take_back(&milestone) {
            let mut entries = lineage;
            entries.append(&mut self.unsaved);
            self.unsaved = entries;
        }
        match milestone {
            Milestone::Nothing => {}
            Milestone::Announce(events) => {
                // A roll that is not on disk happened all the same; its entry goes out with the next write.
                for event in events {
                    effects.emit(event);
                }
            }
            Milestone::SessionOpened(opened, from) => self.session_recorded(*opened, from, result, effects),
            Milestone::PromptRecorded => self.prompt_recorded(result, now, effects),
            Milestone::TurnEnded(turn) => self.turn_end_recorded(*turn, result, effects),
            Milestone::QuestionRaised(id) => self.question_recorded(&id, result, effects),
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
                self.fork_recorded(reply, request.as_ref(), *branched, answer, result, effects);
            }
            Milestone::Deleted { reply, request, .. } => match result {
                Ok(()) => {
                    effects.emit(Event::Deleted {});
                    self.answer(reply, request.as_ref(), Ok(Answer::Done), effects);
                    effects.push(Effect::End);
                }
                Err(error) => {
                    let result = Err(ConversationError::StoreFailed(error));
                    self.answer(reply, request.as_ref(), result, effects);
                }
            },
        }
    }

    /// Takes a change back that its caller is told has failed, unless something has changed since. Tells whether it
    /// did; its lineage entries are then void.
    fn take_back(&mut self, milestone: &Milestone<R>) -> bool {
        let before = match milestone {
            Milestone::Answer { before, .. } | Milestone::Forked { before, .. } => before.as_ref(),
            Milestone::Deleted { before, .. } => Some(before),
            _ => None,
        };
        let Some(before) = before.filter(|before| before.revision + 1 == self.record.revision) else {
            return false;
        };
        self.record = (**before).clone();
        true
    }
}
