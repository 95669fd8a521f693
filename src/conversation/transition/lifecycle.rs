//! Closing, hibernating, resetting, deleting, stopping.

use crate::chain::ClearReason;
use crate::conversation::answer::Answer;
use crate::conversation::effect::{Deadline, Effect, Effects, Milestone, Now};
use crate::conversation::error::ConversationError;
use crate::conversation::state::{AfterClose, Job, JobKind, Model, Session, TurnPhase};
use crate::store::Resting;
use bridge_protocol::event::Event;
use bridge_protocol::link::LineageEntry;

impl<R> Model<R> {
    /// Closes the session; the next prompt brings it back.
    pub(super) fn close(&mut self, reply: R, effects: &mut Effects<R>) {
        if self.turn.is_some() {
            let error =
                ConversationError::Busy("a turn is running; cancel it or wait for its end".to_owned());
            effects.push(Effect::Answer(reply, Err(error)));
            return;
        }
        match &mut self.job {
            Some(job) => match &mut job.kind {
                JobKind::Closing { replies, .. } => replies.push(reply),
                _ => {
                    let error = ConversationError::Busy("the session is being opened; try again".to_owned());
                    effects.push(Effect::Answer(reply, Err(error)));
                }
            },
            None if self.session == Session::Closed => effects.push(Effect::Answer(reply, Ok(Answer::Done))),
            None => self.begin_close(vec![reply], AfterClose::Nothing, false, effects),
        }
    }

    /// Closes the session and then clears the chain or deletes the conversation.
    pub(super) fn close_then(
        &mut self,
        then: AfterClose<R>,
        delete_transcripts: bool,
        now: Now,
        effects: &mut Effects<R>,
    ) {
        let busy = if self.turn.is_some() {
            Some("a turn is running; cancel it first")
        } else if self.job.is_some() {
            Some("the session is being opened, closed or branched; try again when that is done")
        } else {
            None
        };
        if let Some(busy) = busy {
            let (AfterClose::Reset(reply, request) | AfterClose::Delete(reply, request)) = then else {
                return;
            };
            self.answer(
                reply,
                request.as_ref(),
                Err(ConversationError::Busy(busy.to_owned())),
                effects,
            );
            return;
        }
        if self.session == Session::Closed && !delete_transcripts {
            self.after_close(then, now, effects);
        } else {
            self.begin_close(Vec::new(), then, delete_transcripts, effects);
        }
    }

    fn begin_close(
        &mut self,
        replies: Vec<R>,
        then: AfterClose<R>,
        delete_transcripts: bool,
        effects: &mut Effects<R>,
    ) {
        effects.push(Effect::Disarm(Deadline::Idle));
        let job = self.start_job(JobKind::Closing { replies, then });
        effects.push(Effect::CloseSession {
            job,
            delete_transcripts,
            by_force: false,
        });
        self.session = Session::Closed;
    }

    /// The session is closed.
    pub(super) fn session_closed(&mut self, job: u64, now: Now, effects: &mut Effects<R>) {
        let Some(JobKind::Closing { replies, then }) = self.finish_job(job) else {
            return;
        };
        effects.emit(Event::Closed {});
        for reply in replies {
            effects.push(Effect::Answer(reply, Ok(Answer::Done)));
        }
        self.after_close(then, now, effects);
    }

    fn after_close(&mut self, then: AfterClose<R>, now: Now, effects: &mut Effects<R>) {
        match then {
            AfterClose::Nothing => {}
            AfterClose::Reset(reply, request) => {
                let before = Some(Box::new(self.record.clone()));
                let entries = self.clear_chain(ClearReason::Reset, now);
                self.record.resting = Resting::Idle;
                self.record.limit = None;
                self.record.failure = None;
                self.record.interrupts.clear();
                self.info = bridge_protocol::conversation::SessionInfo::default();
                self.touch(now);
                let answer = Answer::Conversation(Box::new(self.view()));
                let kept = self.done_request(request.as_ref(), &answer, now);
                let milestone = Milestone::Answer {
                    reply,
                    request,
                    answer: Box::new(answer),
                    events: vec![Event::Reset {}],
                    before,
                };
                self.write(entries, Vec::new(), kept, milestone, effects);
            }
            AfterClose::Delete(reply, request) => {
                let before = Box::new(self.record.clone());
                let entries = self.clear_chain(ClearReason::Deleted, now);
                self.record.deleted_at = Some(now);
                self.record.interrupts.clear();
                self.touch(now);
                let kept = self.done_request(request.as_ref(), &Answer::Done, now);
                self.write(
                    entries,
                    Vec::new(),
                    kept,
                    Milestone::Deleted {
                        reply,
                        request,
                        before,
                    },
                    effects,
                );
            }
        }
    }

    /// Empties the chain by the user's own act; the lineage goes on.
    fn clear_chain(&mut self, reason: ClearReason, now: Now) -> Vec<LineageEntry> {
        let mut cleared = self.record.chain.clear(reason, now);
        for entry in &mut cleared.entries {
            // A conversation that was never opened has an agent and a folder all the same.
            if entry.upstream_id.is_empty() {
                entry.agent = self.record.agent.clone();
                entry.cwd.clone_from(&self.record.cwd);
            }
        }
        cleared.entries
    }

    /// The settings were applied, or refused: then they are as they were.
    pub(super) fn configured(
        &mut self,
        job: u64,
        result: Result<(), ConversationError>,
        now: Now,
        effects: &mut Effects<R>,
    ) {
        let Some(JobKind::Configuring {
            reply,
            request,
            before,
        }) = self.finish_job(job)
        else {
            return;
        };
        match result {
            Ok(()) => self.write_update(reply, request, before, now, effects),
            Err(error) => {
                self.record.settings = before.settings;
                self.record.title = before.title;
                self.answer(reply, request.as_ref(), Err(error), effects);
            }
        }
    }

    /// Sets the deadline after which an idle conversation gives its agent's memory back.
    pub(super) fn arm_idle(&mut self, effects: &mut Effects<R>) {
        if self.rules.idle_ms > 0 && matches!(self.session, Session::Live(_)) {
            effects.push(Effect::Arm(Deadline::Idle, self.rules.idle_ms));
        }
    }

    /// Nobody asked for anything in a while. A session that could not be brought back stays, and so does one with an
    /// open question.
    pub(super) fn hibernate(&mut self, effects: &mut Effects<R>) {
        let can_reopen = matches!(&self.session, Session::Live(live) if live.can_reopen);
        let quiet = self.turn.is_none() && self.queue.is_empty() && self.job.is_none();
        if can_reopen && quiet && self.record.interrupts.is_empty() {
            self.begin_close(Vec::new(), AfterClose::Nothing, false, effects);
        } else {
            self.arm_idle(effects);
        }
    }

    /// The daemon stops: what waits is refused, what runs is cancelled.
    pub(super) fn stop(&mut self, grace_ms: u64, effects: &mut Effects<R>) {
        self.stopping = true;
        for asked in std::mem::take(&mut self.queue) {
            if let Some(reply) = asked.reply {
                self.answer(
                    reply,
                    asked.request.as_ref(),
                    Err(ConversationError::ShuttingDown),
                    effects,
                );
            }
        }
        for (reply, _) in std::mem::take(&mut self.resume_waiters) {
            effects.push(Effect::Answer(reply, Err(ConversationError::ShuttingDown)));
        }
        match self.job.take() {
            Some(Job {
                kind: JobKind::Opening,
                ..
            }) => effects.push(Effect::AbandonJob),
            Some(Job {
                kind: JobKind::Branching(branching),
                ..
            }) => {
                effects.push(Effect::AbandonJob);
                let refusal = Err(ConversationError::ShuttingDown);
                self.answer(branching.reply, branching.request.as_ref(), refusal, effects);
            }
            // What is under way here ends by itself.
            other => self.job = other,
        }
        match self.turn.as_ref().map(|turn| turn.phase) {
            Some(TurnPhase::Waiting) => self.fail_waiting(&ConversationError::ShuttingDown, effects),
            Some(TurnPhase::Sent | TurnPhase::Accepted) => {
                if let Some(turn) = &mut self.turn
                    && !turn.cancelled
                {
                    turn.cancelled = true;
                    effects.push(Effect::SendCancel);
                    effects.push(Effect::Arm(Deadline::Cancel, grace_ms));
                }
            }
            Some(TurnPhase::Recording | TurnPhase::Ending) | None => {}
        }
    }
}
