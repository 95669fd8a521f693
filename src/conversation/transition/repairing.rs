//! Repairing the head: the session is closed, its transcript is copied, and the chain continues with the copy.

use bridge_protocol::check::CheckAnswer;
use bridge_protocol::event::Event;
use bridge_protocol::link::{LinkReason, Relation, RollCause};

use crate::chain::NewLink;
use crate::conversation::answer::Answer;
use crate::conversation::effect::{CallChange, Effect, Ledger, Made, RepairedHead, Work};
use crate::conversation::error::ConversationError;
use crate::conversation::state::{AfterClose, JobKind, Model, RepairCall, Session};
use crate::store::{ConversationRecord, Resting};

impl<R> Model<R> {
    /// Begins a repair, unless something else has to end first.
    pub(super) fn repair(&mut self, call: RepairCall<R>) {
        if let Some(refusal) = self.refuses_to_leave_agent("be repaired") {
            self.answer(call.caller, Err(refusal));
        } else if self.session == Session::Closed {
            self.repair_files(call);
        } else {
            self.begin_close(Vec::new(), AfterClose::Repair(call), false);
        }
    }

    /// None of the daemon's agents writes to the transcript any more.
    pub(super) fn repair_files(&mut self, call: RepairCall<R>) {
        let progress = call.progress.clone();
        self.start_job(JobKind::Repairing(call), Work::Repair { progress });
    }

    /// The copy was made, or there is none.
    pub(super) fn repaired(
        &mut self,
        job: u64,
        result: Result<(Box<CheckAnswer>, Option<Box<RepairedHead>>), ConversationError>,
    ) {
        let Some(JobKind::Repairing(call)) = self.finish_job(job) else {
            self.out.push(Effect::DropCopy);
            return;
        };
        let (answer, made) = match result {
            Ok((answer, made)) => (Answer::Checked(answer), made),
            Err(error) => {
                self.answer(call.caller, Err(error));
                return;
            }
        };
        let Some(made) = made else {
            // A repeated call gets the same answer, even if the transcript has changed.
            if call.caller.request.is_none() {
                self.answer(call.caller, Ok(answer));
                return;
            }
            let before = self.record.clone();
            self.touch();
            self.answer_change(call.caller, answer, before);
            return;
        };
        let before = self.record.clone();
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
        let appended = self.record.chain.append(link, made.fidelity, self.now);
        if self.record.resting == Resting::Failed {
            // What could not be opened was the other one.
            self.record.resting = match self.record.limit {
                Some(_) => Resting::Limited,
                None => Resting::Idle,
            };
            self.record.failure = None;
        }
        self.touch();
        let rolled = Event::Rolled {
            from: Some(made.from),
            to: made.upstream_id.clone(),
            cause: RollCause::Damaged,
            fidelity: made.fidelity,
        };
        let ledger = Ledger {
            lineage: appended.entries,
            upstream: vec![made.upstream_id],
            events: vec![rolled],
            ..Ledger::default()
        };
        self.occupy(JobKind::Recording);
        self.write_change(
            ledger,
            CallChange {
                made: Made::Repair,
                ..CallChange::new(call.caller, answer, before)
            },
        );
    }

    /// The copy is recorded as the head, or could not be recorded and is deleted.
    pub(super) fn repair_recorded(&mut self, before: Option<&ConversationRecord>, is_written: bool) {
        let head = |record: &ConversationRecord| record.chain.head().map(|head| head.upstream_id.clone());
        // If something has changed since, it goes out with the next write.
        let is_taken_back = !is_written && before.is_some_and(|before| head(&self.record) == head(before));
        self.out.push(match is_taken_back {
            true => Effect::DropCopy,
            false => Effect::KeepCopy,
        });
    }
}
