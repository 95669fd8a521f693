//! Repairing the head: the session is closed, its transcript is copied, and the chain continues with the copy.

use bridge_protocol::check::CheckAnswer;
use bridge_protocol::link::{LinkReason, RollCause};

use crate::chain::NewLink;
use crate::conversation::answer::{Answer, Caller};
use crate::conversation::effect::{CallChange, NewBranch};
use crate::conversation::state::{Model, OperationKind};
use crate::store::RestingState;

impl<R> Model<R> {
    /// The transcript was checked, and a copy was made if there was something to repair.
    pub(super) fn repaired(&mut self, check: Box<CheckAnswer>, branch: Option<NewBranch>, caller: Caller<R>) {
        let answer = Answer::Checked(check);
        let Some(branch) = branch else {
            // A repeated call gets the same answer, even if the transcript has changed.
            if caller.key.is_none() {
                self.answer(caller, Ok(answer));
                return;
            }
            let before = self.record.clone();
            self.bump_revision();
            self.answer_change(caller, answer, before);
            return;
        };
        let before = self.record.clone();
        let (agent, cwd) = (self.record.agent.clone(), self.record.cwd.clone());
        let link = NewLink {
            cause: Some(RollCause::Damaged),
            written: true,
            ..branch.to_link(agent, cwd, LinkReason::Rebuilt)
        };
        let ledger = self.append_link(link, branch.fidelity);
        if self.record.resting == RestingState::Failed {
            // The failure was about the damaged session.
            self.record.resting = match self.record.limit {
                Some(_) => RestingState::Limited,
                None => RestingState::Idle,
            };
            self.record.failure = None;
        }
        self.bump_revision();
        self.write_result(
            OperationKind::Repair,
            ledger,
            CallChange::new(caller, answer, before),
        );
    }
}
