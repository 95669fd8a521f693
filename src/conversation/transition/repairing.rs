//! Repairing the head: the session is closed, its transcript is copied, and the chain continues with the copy.

use std::sync::Arc;

use bridge_protocol::check::CheckAnswer;
use bridge_protocol::event::Event;
use bridge_protocol::link::{LinkReason, Relation, RollCause};

use crate::chain::NewLink;
use crate::conversation::answer::{Answer, Caller};
use crate::conversation::effect::{CallChange, Ledger, RepairedHead, Work};
use crate::conversation::state::{Model, OperationKind};
use crate::conversation::work::Progress;
use crate::store::Resting;

impl<R> Model<R> {
    /// Begins a repair, unless something else has to end first.
    pub(super) fn repair(&mut self, progress: Arc<Progress>, caller: Caller<R>) {
        match self.refuses_to_leave_agent("be repaired") {
            Some(refusal) => self.answer(caller, Err(refusal)),
            None => self.start_once_closed(OperationKind::Repair, caller, Work::Repair { progress }),
        }
    }

    /// The transcript was checked, and a copy was made if there was something to repair.
    pub(super) fn repaired(
        &mut self,
        found: Box<CheckAnswer>,
        made: Option<Box<RepairedHead>>,
        caller: Caller<R>,
    ) {
        let answer = Answer::Checked(found);
        let Some(made) = made else {
            // A repeated call gets the same answer, even if the transcript has changed.
            if caller.request.is_none() {
                self.answer(caller, Ok(answer));
                return;
            }
            let before = self.record.clone();
            self.touch();
            self.answer_change(caller, answer, before);
            return;
        };
        let before = self.record.clone();
        let (id, agent) = (made.upstream_id.clone(), self.record.agent.clone());
        let link = NewLink {
            relation: Relation::Carries,
            from_upstream_id: Some(made.from.clone()),
            from_checkpoint_id: made.checkpoint,
            cause: Some(RollCause::Damaged),
            carried_turns: made.turns,
            written: true,
            ..NewLink::new(id, agent, self.record.cwd.clone(), LinkReason::Rebuilt)
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
        self.write_result(
            OperationKind::Repair,
            ledger,
            CallChange::new(caller, answer, before),
        );
    }
}
