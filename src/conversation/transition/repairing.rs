//! Repairing the head: the session is closed, its transcript is copied, and the chain continues with the copy.

use bridge_protocol::check::CheckAnswer;
use bridge_protocol::event::Event;
use bridge_protocol::link::{LinkReason, Relation, RollCause};

use crate::chain::NewLink;
use crate::conversation::answer::{Answer, Request};
use crate::conversation::effect::{Effect, Effects, Ledger, Milestone, Now, RepairedHead};
use crate::conversation::error::{ConversationError, StoreFailure};
use crate::conversation::state::{AfterClose, JobKind, Model, RepairCall, Session};
use crate::store::{ConversationRecord, Resting};

use super::Changed;

impl<R> Model<R> {
    /// Begins a repair, unless something else has to end first.
    pub(super) fn repair(&mut self, call: RepairCall<R>, effects: &mut Effects<R>) {
        if let Some(refusal) = self.refuses_to_leave_agent("be repaired") {
            self.answer(call.reply, call.request.as_ref(), Err(refusal), effects);
        } else if self.session == Session::Closed {
            self.repair_files(call, effects);
        } else {
            self.begin_close(Vec::new(), AfterClose::Repair(call), false, effects);
        }
    }

    /// None of the daemon's agents writes to the transcript any more.
    pub(super) fn repair_files(&mut self, call: RepairCall<R>, effects: &mut Effects<R>) {
        let progress = call.progress.clone();
        let job = self.start_job(JobKind::Repairing(call));
        effects.push(Effect::Repair { job, progress });
    }

    /// The copy was made, or there is none.
    pub(super) fn repaired(
        &mut self,
        job: u64,
        result: Result<(Box<CheckAnswer>, Option<Box<RepairedHead>>), ConversationError>,
        now: Now,
        effects: &mut Effects<R>,
    ) {
        let Some(JobKind::Repairing(call)) = self.finish_job(job) else {
            effects.push(Effect::DropCopy);
            return;
        };
        let (answer, made) = match result {
            Ok((answer, made)) => (Answer::Checked(answer), made),
            Err(error) => {
                self.answer(call.reply, call.request.as_ref(), Err(error), effects);
                return;
            }
        };
        let Some(made) = made else {
            // The same call is told the same, whatever has become of the transcript since.
            if call.request.is_none() {
                self.answer(call.reply, None, Ok(answer), effects);
                return;
            }
            let changed = Changed::from(self.record.clone());
            self.touch(now);
            self.answer_change(call.reply, call.request, answer, changed, now, effects);
            return;
        };
        let before = Box::new(self.record.clone());
        let link = NewLink {
            upstream_id: made.upstream_id.clone(),
            agent: self.record.agent.clone(),
            cwd: self.record.cwd.clone(),
            reason: LinkReason::Rebuilt,
            relation: Relation::Carries,
            from_upstream_id: Some(made.from.clone()),
            from_checkpoint_id: made.checkpoint,
            cause: Some(RollCause::Damaged),
            turns: 0,
            carried_turns: made.turns,
            written: true,
        };
        let appended = self.record.chain.append(link, made.fidelity, now);
        if self.record.resting == Resting::Failed {
            // What could not be opened was the other one.
            self.record.resting = match self.record.limit {
                Some(_) => Resting::Limited,
                None => Resting::Idle,
            };
            self.record.failure = None;
        }
        self.touch(now);
        let rolled = Event::Rolled {
            from: Some(made.from),
            to: made.upstream_id.clone(),
            cause: RollCause::Damaged,
            fidelity: made.fidelity,
        };
        let ledger = Ledger {
            lineage: appended.entries,
            upstream: vec![made.upstream_id],
            requests: self
                .done_request(call.request.as_ref(), &answer, now)
                .into_iter()
                .collect(),
            events: vec![rolled],
        };
        self.start_job(JobKind::Recording);
        let milestone = Milestone::Repaired {
            reply: call.reply,
            request: call.request,
            answer: Box::new(answer),
            before,
        };
        self.write(ledger, milestone, effects);
    }

    /// The copy is the head on disk, or could not be written down as that: then it goes.
    pub(super) fn repair_recorded(
        &mut self,
        reply: R,
        request: Option<&Request>,
        answer: Answer,
        before: &ConversationRecord,
        result: Result<(), StoreFailure>,
        effects: &mut Effects<R>,
    ) {
        if matches!(self.job.as_ref().map(|job| &job.kind), Some(JobKind::Recording)) {
            self.job = None;
        }
        let head = |record: &ConversationRecord| record.chain.head().map(|head| head.upstream_id.clone());
        // Where something has changed since it goes out with the next write.
        let is_taken_back = result.is_err() && head(&self.record) == head(before);
        effects.push(match is_taken_back {
            true => Effect::DropCopy,
            false => Effect::KeepCopy,
        });
        let result = result.map(|()| answer).map_err(ConversationError::StoreFailed);
        self.answer(reply, request, result, effects);
    }
}
