//! What becomes of a conversation when its task panics: its subscribers are told that it failed, and it begins anew from what
//! is on disk. They stay subscribed, and what waits in the mailbox is taken then.

use std::time::Duration;

use bridge_protocol::conversation::ConversationState;
use bridge_protocol::event::Event;
use bridge_protocol::turn::TurnResult;
use futures_util::StreamExt;
use tokio::time::Instant;

use crate::conversation::answer::Answer;
use crate::conversation::effect::{Deadline, Input, Ledger, Milestone, WritePart};
use crate::conversation::registry::end_failed_task;
use crate::conversation::services::{chain_text, now};
use crate::conversation::state::{Model, Saving};
use crate::conversation::transition::REWRITE_AFTER_MS;
use crate::conversation::upstream::UncommittedCopy;
use crate::store::Change;
use crate::transcript::moving::Moving;

use super::{Actor, Reply};

impl Actor {
    /// Begins anew after a panic, which happened for this reason. Nobody knows how far it had come with what it was doing, so
    /// that only what is on disk counts.
    pub(super) async fn begin_anew(&mut self, why: &str) {
        let id = self.id();
        tracing::error!(conversation = %id, why, "the task of a conversation failed");
        self.let_go();
        let recorded = self.settle_writes().await;
        if let Some(moved) = self.moved.take() {
            let back = tokio::task::spawn_blocking(move || Moving::take_back(moved));
            // What could not be taken back the next start does.
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
        let (change, ended) = end_failed_task(&self.services, record, why);
        let written = self.services.store.commit(change.clone()).await;
        let unsaved = written.err().map(|error| {
            tracing::error!(conversation = %id, error = chain_text(&error), "the failure could not be written down");
            ledger_of(&change)
        });
        let Some(record) = change.conversation else { return };
        let model = Model::new(record, self.model.kind, self.model.rules.clone());
        let failed = std::mem::replace(&mut self.model, model);
        self.model.last_job = failed.last_job;
        // Whoever moves it together with others releases it.
        self.model.held = failed.held;
        if let Some(unsaved) = unsaved {
            self.model.unsaved = unsaved;
            self.model.is_ahead = true;
            self.model.saving = Saving::Failed;
            let at = Instant::now() + Duration::from_millis(REWRITE_AFTER_MS);
            self.deadlines.push((Deadline::Rewrite, at));
        }
        self.tell_failure(failed, recorded.or(ended.map(|ended| ended.result)));
    }

    /// Tells everybody how the turn ended, and that the conversation failed.
    fn tell_failure(&mut self, failed: Model<Reply>, result: Option<TurnResult>) {
        let at = now().to_string();
        let turn = failed.turn.filter(|turn| turn.announced);
        if let Some((turn, result)) = turn.zip(result) {
            self.stream.emit(&Event::TurnEnded { turn: result.clone() }, &at);
            let answer = self.model.turn_answer(turn.edit.as_ref(), result);
            let mut open = failed.open_requests.into_iter();
            let request = turn.asked.request.as_ref();
            let followers = open
                .find(|open| request.is_some_and(|request| request.id == open.request.id))
                .map(|open| open.followers)
                .unwrap_or_default();
            for reply in turn.asked.reply.into_iter().chain(followers) {
                // A caller that hung up needs no answer.
                let _gone = reply.send(Ok(answer.clone()));
            }
            for reply in turn.cancel_replies {
                let _gone = reply.send(Ok(Answer::Cancelled(turn.cancelled)));
            }
        }
        let state = ConversationState::Failed;
        self.stream.emit(&Event::StateChanged { state }, &at);
        self.publish();
    }

    /// Lets go of all that is under way. The sessions are closed, since their agents may work on.
    fn let_go(&mut self) {
        self.prompt = None;
        self.questions.clear();
        self.dead = None;
        self.place = None;
        self.deadlines.clear();
        self.leaves_at = None;
        self.closing = None;
        if let Some(job) = self.job.take() {
            // It may be about to open a session, which would stay open at the agent for ever.
            tokio::spawn(async move { job.await.close_what_was_opened() });
        }
        let sessions = [self.session.take(), self.arrived.take()];
        let copies = self.copy.take().into_iter();
        let mut sessions: Vec<_> = sessions.into_iter().flatten().collect();
        let of_sessions = sessions.iter_mut().filter_map(|session| session.copy.take());
        // They may be on disk as somebody's by now. The next start removes those that are nobody's.
        copies.chain(of_sessions).for_each(UncommittedCopy::keep);
        for session in sessions {
            self.closed.close(session, false, Duration::ZERO);
        }
    }

    /// Waits for the writes that are under way, and tells what they have made durable. Gives the end of the turn, where that
    /// is among it.
    async fn settle_writes(&mut self) -> Option<TurnResult> {
        let mut ended = None;
        while let Some(written) = self.writes.next().await {
            let Input::Written {
                parts,
                result: Ok(()),
            } = *written
            else {
                // Whoever waits for what could not be written is told that the answer was lost.
                continue;
            };
            for WritePart { ledger, milestone } in parts {
                let at = now().to_string();
                for event in &ledger.events {
                    self.stream.emit(event, &at);
                }
                ended = self.tell_durable(milestone, &at).or(ended);
            }
        }
        ended
    }

    fn tell_durable(&mut self, milestone: Milestone<Reply>, at: &str) -> Option<TurnResult> {
        let (reply, answer) = match milestone {
            Milestone::TurnEnded(turn) => return Some(*turn),
            Milestone::QuestionSettled(event, caller) => {
                self.stream.emit(&event, at);
                (caller?.0, Answer::Responded(None))
            }
            Milestone::Answer {
                reply,
                answer,
                events,
                ..
            } => {
                for event in &events {
                    self.stream.emit(event, at);
                }
                (reply, *answer)
            }
            Milestone::Moved {
                reply,
                answer,
                before,
                ..
            } => {
                self.keep_move();
                let (from, to) = (before.cwd.clone(), self.model.record.cwd.clone());
                self.stream.emit(&Event::Moved { from, to }, at);
                (reply, *answer)
            }
            Milestone::Forked { reply, answer, .. } => (reply, Answer::Forked(answer)),
            Milestone::Repaired { reply, answer, .. } => (reply, *answer),
            Milestone::Deleted { reply, answer, .. } => {
                self.stream.emit(&Event::Deleted {}, at);
                (reply, Answer::Deleted(answer))
            }
            _ => return None,
        };
        // A caller that hung up needs no answer.
        let _gone = reply.send(Ok(answer));
        None
    }
}

/// What a change says beside the record.
fn ledger_of(change: &Change) -> Ledger {
    Ledger {
        lineage: change.lineage.iter().map(|(_, entry)| entry.clone()).collect(),
        upstream: change.upstream.iter().map(|(_, _, id)| id.clone()).collect(),
        requests: change.requests.clone(),
        events: Vec::new(),
    }
}
