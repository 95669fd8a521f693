//! Recovery from a panic in the task of a conversation. Subscribers are notified that the conversation failed, and the
//! task restarts from the record on disk with the same subscribers and the same mailbox. After repeated panics the
//! conversation refuses calls for a while.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use bridge_protocol::conversation::ConversationState;
use bridge_protocol::event::Event;
use bridge_protocol::time;
use bridge_protocol::turn::TurnResult;
use futures_util::{FutureExt, StreamExt};
use jiff::SignedDuration;
use tokio::time::{Instant, sleep_until};

use crate::conversation::answer::{Answer, Caller};
use crate::conversation::effect::{Call, CallChange, Deadline, Input, Ledger, Milestone, WritePart};
use crate::conversation::error::ConversationError;
use crate::conversation::registry::{end_failed_task, panic_text};
use crate::conversation::services::{chain_text, now};
use crate::conversation::state::Model;
use crate::conversation::transition::REWRITE_AFTER_MS;
use crate::conversation::upstream::UncommittedCopy;
use crate::store::Change;
use crate::transcript::moving::Moving;

use super::{Actor, Job, Message, Reply};

/// How many panics within [`FAULTS_WITHIN`] make a conversation refuse calls: one that panics at each message would otherwise
/// restart endlessly, and one that panics without any message would keep a thread busy.
pub(in crate::conversation) const FAULTS_LIMIT: usize = 5;

/// See [`FAULTS_LIMIT`].
const FAULTS_WITHIN: Duration = Duration::from_secs(60);

/// How long a conversation refuses calls then.
pub(in crate::conversation) const REFUSES_FOR: Duration = Duration::from_secs(60);

/// The latest panics of a conversation's task.
#[derive(Default)]
pub(super) struct Faults(VecDeque<Instant>);

impl Faults {
    /// Adds one. Returns whether there were too many in a short time.
    pub(super) fn add(&mut self, at: Instant) -> bool {
        self.0
            .retain(|earlier| at.saturating_duration_since(*earlier) < FAULTS_WITHIN);
        self.0.push_back(at);
        if self.0.len() < FAULTS_LIMIT {
            return false;
        }
        self.0.pop_front();
        true
    }
}

/// Until when calls were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Until the time was over.
    Enough,
    /// Until the daemon stopped.
    UntilStop,
}

/// Why something panicked, if it did.
pub(super) async fn fault_of(work: impl Future<Output = ()>) -> Option<String> {
    let done = AssertUnwindSafe(work).catch_unwind().await;
    done.err().map(|panic| panic_text(panic.as_ref()))
}

impl Actor {
    /// Refuses calls because there were too many panics, the last of them for this reason. Subscribers are accepted.
    pub(super) async fn refuse_for_a_while(&mut self, why: &str) -> Refused {
        let id = self.id();
        tracing::error!(
            conversation = %id, why, seconds = REFUSES_FOR.as_secs(),
            "the task of a conversation failed too often; its calls are refused for a while"
        );
        let until = Instant::now() + REFUSES_FOR;
        let wall_clock = SignedDuration::try_from(REFUSES_FOR).unwrap_or_default();
        let retry_at = now().saturating_add(wall_clock).unwrap_or_else(|_| now());
        loop {
            let message = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Refused::UntilStop,
                () = sleep_until(until) => return Refused::Enough,
                message = self.mailbox.recv() => message,
            };
            match message {
                // The registry is gone, and with it the daemon.
                None => return Refused::UntilStop,
                // It ends what a tree move began, which must not last until the daemon restarts.
                Some(Message::Call { call, request, reply }) if matches!(*call, Call::Release) => {
                    let releasing = async { self.message(Message::Call { call, request, reply }) };
                    if let Some(why) = fault_of(releasing).await {
                        tracing::error!(conversation = %id, why, "a conversation could not be released");
                    }
                }
                Some(Message::Call { reply, .. }) => {
                    let why = why.to_owned();
                    let error = ConversationError::Faulty { id, why, retry_at };
                    // A caller that hung up needs no answer.
                    let _gone = reply.send(Err(error));
                }
                Some(Message::Subscribe { subscriber, after }) => {
                    let subscribing = async { self.subscribe(subscriber, after.as_ref()) };
                    if let Some(why) = fault_of(subscribing).await {
                        tracing::error!(conversation = %id, why, "a subscriber could not be added");
                    }
                }
                // Dropping the place frees it for another conversation.
                Some(Message::Due(_)) => self.services.wakings.set(id, Some(retry_at)),
                Some(Message::TakeOver(_, session)) => {
                    self.closed.close(*session, false, Duration::ZERO);
                }
                Some(Message::Grown(growth)) => {
                    // Nothing reports it again.
                    let reporting = async { self.grown(*growth) };
                    if let Some(why) = fault_of(reporting).await {
                        tracing::error!(conversation = %id, why, "a change of the transcript could not be reported");
                    }
                }
                // The caller gets none.
                Some(Message::Snapshot(_)) => {}
            }
        }
    }

    /// Begins anew after a panic, which happened for this reason. How far its work had come is unknown, so that only what is
    /// on disk counts.
    pub(super) async fn begin_anew(&mut self, why: &str) {
        let id = self.id();
        tracing::error!(conversation = %id, why, "the task of a conversation failed");
        // What a step had caused before it panicked does not happen.
        drop(self.model.take_effects());
        self.end_jobs().await;
        self.let_go();
        let recorded = self.settle_writes().await;
        if let Some(moved) = self.made.files.take() {
            let back = tokio::task::spawn_blocking(move || Moving::take_back(moved));
            // The next start takes back what could not be taken back here.
            let _is_back = back.await;
        }
        let record = match self.services.store.conversation(id) {
            Ok(Some(record)) if record.deleted_at.is_none() => record,
            Ok(_) => {
                self.is_over = true;
                return;
            }
            Err(error) => {
                tracing::error!(conversation = %id, error = chain_text(&error), "the record cannot be read");
                self.is_over = true;
                return;
            }
        };
        let on_disk = record.clone();
        let (change, ended) = end_failed_task(&self.services, record, why);
        let written = self.services.store.commit(change.clone()).await;
        let unsaved = written.err().map(|error| {
            tracing::error!(conversation = %id, error = chain_text(&error), "could not record a failure");
            ledger_of(&change)
        });
        let Some(record) = change.conversation else { return };
        let model = Model::new(record, self.model.kind, self.model.rules.clone());
        let failed = std::mem::replace(&mut self.model, model);
        self.model.last_job = failed.last_job;
        // The tree move that holds it releases it.
        self.model.held = failed.held;
        if let Some(unsaved) = unsaved {
            self.model.writer.on_disk = on_disk;
            self.model.writer.unsaved = unsaved;
            self.model.writer.is_ahead = true;
            self.model.writer.has_failed = true;
            let at = Instant::now() + Duration::from_millis(REWRITE_AFTER_MS);
            self.deadlines.push((Deadline::Rewrite, at));
        }
        self.tell_failure(failed, recorded.or(ended.map(|ended| ended.result)));
    }

    /// Reports how the turn ended, and that the conversation failed.
    fn tell_failure(&mut self, failed: Model<Reply>, result: Option<TurnResult>) {
        let at = time::text(now());
        let turn = failed.turn.filter(|turn| turn.announced);
        if let Some((turn, result)) = turn.zip(result) {
            self.stream.emit(&Event::TurnEnded { turn: result.clone() }, &at);
            let answer = self.model.turn_answer(turn.edit.as_ref(), result);
            let mut open = failed.open_requests.into_iter();
            let request = turn.asked.caller.request.as_ref();
            let followers = open
                .find(|open| request.is_some_and(|request| request.id == open.request.id))
                .map(|open| open.followers)
                .unwrap_or_default();
            for reply in turn.asked.caller.reply.into_iter().chain(followers) {
                // A caller that hung up needs no answer.
                let _gone = reply.send(Ok(answer.clone()));
            }
            for reply in turn.cancel_callers.into_iter().filter_map(|caller| caller.reply) {
                let _gone = reply.send(Ok(Answer::Cancelled(turn.cancelled)));
            }
        }
        let state = ConversationState::Failed;
        self.stream.emit(&Event::StateChanged { state }, &at);
        self.publish();
    }

    /// Ends the jobs. Those that change files are waited for: what they have made is taken back, and nothing may begin with the
    /// files before. Another is abandoned.
    async fn end_jobs(&mut self) {
        match self.job.take() {
            Some(Job {
                work,
                is_on_files: true,
                progress,
            }) => {
                if let Some(progress) = progress {
                    progress.end_early();
                }
                // A job that panicked has left nothing, or what the next start settles.
                if let Ok(done) = AssertUnwindSafe(work).catch_unwind().await {
                    self.made.files = done.made.files;
                    if let Some(copy) = done.made.copy {
                        copy.remove().await;
                    }
                }
            }
            other => {
                self.job = other;
                self.abandon_job();
            }
        }
        if let Some(closing) = self.closing.take() {
            // It may delete transcripts.
            let _closed = AssertUnwindSafe(closing.work).catch_unwind().await;
        }
    }

    /// Drops everything else that is under way. The sessions are closed, since their agents may still work.
    fn let_go(&mut self) {
        self.questions.clear();
        self.dead = None;
        self.place = None;
        self.deadlines.clear();
        self.leaves_at = None;
        let sessions = [self.session.take(), self.made.session.take()];
        let copies = self.made.copy.take().into_iter();
        let mut sessions: Vec<_> = sessions.into_iter().flatten().collect();
        let of_sessions = sessions.iter_mut().filter_map(|session| session.copy.take());
        // A record on disk may name them by now. The next start removes those that none names.
        copies.chain(of_sessions).for_each(UncommittedCopy::leave);
        for session in sessions {
            let runs = session.prompt.is_some();
            if runs && let Err(error) = session.lease.calls().cancel(&session.attachment.handle) {
                tracing::warn!(%error, "the cancellation could not be sent");
            }
            let grace = Duration::from_millis(self.model.rules.cancel_grace_ms);
            self.closed.close(session, runs, grace);
        }
    }

    /// Waits for the write that is under way, and reports what it has made durable. Returns the end of the turn, if that is
    /// among it. Parts of the next write are lost with the task: nothing of them is on disk.
    async fn settle_writes(&mut self) -> Option<TurnResult> {
        let mut ended = None;
        while let Some(written) = self.writes.next().await {
            let Input::Written(Ok(())) = *written else {
                // A caller that waits for what could not be written gets the error that its answer was lost.
                continue;
            };
            let under_way = self.model.writer.under_way.take();
            for WritePart { ledger, milestone } in under_way.into_iter().flat_map(|write| write.parts) {
                let at = time::text(now());
                for event in &ledger.events {
                    self.stream.emit(event, &at);
                }
                ended = self.tell_durable(milestone, &at).or(ended);
            }
        }
        ended
    }

    fn tell_durable(&mut self, milestone: Milestone<Reply>, at: &str) -> Option<TurnResult> {
        match milestone {
            Milestone::TurnEnded(turn) => return Some(*turn),
            Milestone::QuestionSettled(settled) => {
                for event in &settled.events {
                    self.stream.emit(event, at);
                }
                // The agent's session is closed, which answers it.
                answer(settled.caller?, Answer::Responded(None));
            }
            Milestone::Changed(change) => self.tell_change(*change, at),
            _ => {}
        }
        None
    }

    fn tell_change(&mut self, change: CallChange<Reply>, at: &str) {
        if change.ends_operation {
            self.keep_move();
        }
        if let Answer::Forked(fork) = &change.answer
            && fork.conversation.id != self.model.id()
        {
            self.services.announce_new(fork.conversation.clone());
        }
        for event in &change.events {
            self.stream.emit(event, at);
        }
        answer(change.caller, change.answer);
    }
}

fn answer(caller: Caller<Reply>, answer: Answer) {
    if let Some(reply) = caller.reply {
        // A caller that hung up needs no answer.
        let _gone = reply.send(Ok(answer));
    }
}

/// What a change contains besides the record.
fn ledger_of(change: &Change) -> Ledger {
    Ledger {
        lineage: change.lineage.iter().map(|(_, entry)| entry.clone()).collect(),
        upstream: change.upstream.iter().map(|(_, _, id)| id.clone()).collect(),
        requests: change.requests.clone(),
        events: Vec::new(),
    }
}
