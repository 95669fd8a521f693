//! Forks at the head or at a checkpoint, in place or as a new conversation.

use bridge_protocol::conversation::{BranchedVia, Conversation, ForkAnswer, Parent};
use bridge_protocol::event::Event;
use bridge_protocol::id::{CheckpointId, ConversationId, UpstreamId};
use bridge_protocol::link::{Fidelity, LinkReason, Relation};

use crate::chain::{Chain, NewLink};
use crate::conversation::answer::{Answer, Caller};
use crate::conversation::effect::{
    CallChange, Disposition, Effect, Fork, Ledger, NewBranch, OpenedSession, Work,
};
use crate::conversation::error::ConversationError;
use crate::conversation::reported_settings::record_opened;
use crate::conversation::state::{Model, OperationKind, view_of_record};
use crate::store::{ConversationRecord, RestingState};

impl<R> Model<R> {
    /// Makes a branch, or refuses if something else has to end first.
    pub(super) fn fork(&mut self, fork: Fork, caller: Caller<R>) {
        let from = match &fork.at {
            Some(at) => Ok(Some(UpstreamId::new(at.upstream_id()))),
            None => self.head_to_branch(),
        };
        match from {
            Ok(Some(from)) => {
                let kind = OperationKind::Branch(fork.clone());
                let busy = self.turn.is_some();
                self.start(kind, caller, Work::Branch { fork, from, busy });
            }
            Ok(None) => self.fork_without_history(fork, caller),
            Err(error) => self.answer(caller, Err(error)),
        }
    }

    /// Why no branch can be made now.
    pub(super) fn refusal_to_fork(&self, fork: &Fork) -> Option<ConversationError> {
        let why = if fork.in_place && self.turn.is_some() {
            "a turn is running; wait for its end or cancel it, or fork into a new conversation instead of in place"
        } else if self.operation.is_some() || fork.in_place && self.closing.is_some() {
            "the session is being opened, closed or branched; try again when that is done"
        } else {
            return None;
        };
        Some(ConversationError::Busy(why.to_owned()))
    }

    /// The session of the head. `None` if the agent has never been sent anything.
    fn head_to_branch(&self) -> Result<Option<UpstreamId>, ConversationError> {
        let Some(head) = self.record.chain.head() else {
            return Ok(None);
        };
        match head.relation {
            // The agent has none of the history yet, and the previous session could not be resumed.
            Relation::Follows if !head.written => Err(ConversationError::Conflict(
                "the history was given as text to a new session that has no turn yet, so there is nothing to fork; send a \
                 prompt first"
                    .to_owned(),
            )),
            Relation::Fresh if !head.written => Ok(None),
            _ => Ok(Some(head.upstream_id.clone())),
        }
    }

    /// Makes a new conversation with the same settings, because there is no history to branch from yet.
    fn fork_without_history(&mut self, fork: Fork, caller: Caller<R>) {
        if fork.in_place {
            let error = ConversationError::Conflict(
                "the conversation has never been prompted: there is nothing to branch from".to_owned(),
            );
            self.answer(caller, Err(error));
            return;
        }
        let record = self.new_conversation_like_this(&fork, None);
        let answer = Answer::Forked(Box::new(ForkAnswer {
            conversation: view_of_record(&record),
            link: None,
            fidelity: Fidelity::Full,
            via: Some(BranchedVia::Fresh),
        }));
        let change = CallChange::of(caller, answer);
        self.write_new_conversation(fork, record, Ledger::default(), change);
    }

    /// The folder of a branch.
    fn cwd_of(&self, fork: &Fork) -> String {
        fork.cwd.as_ref().unwrap_or(&self.record.cwd).clone()
    }

    /// A new conversation with the same setup as this one.
    fn new_conversation_like_this(
        &self,
        fork: &Fork,
        checkpoint_id: Option<CheckpointId>,
    ) -> ConversationRecord {
        let (agent, cwd) = (self.record.agent.clone(), self.cwd_of(fork));
        let mut record = ConversationRecord::new(ConversationId::mint(), agent, cwd, self.now);
        record.namespace.clone_from(&self.record.namespace);
        record.title = fork.title.as_ref().unwrap_or(&self.record.title).clone();
        if fork.title.is_none() {
            record.reported.title.clone_from(&self.record.reported.title);
        }
        record.settings = self.record.settings.clone();
        // What the agent offers, so that an option which it no longer does is forgotten here too.
        record.reported.config.clone_from(&self.record.reported.config);
        record.parent = Some(Parent {
            conversation_id: self.record.id,
            checkpoint_id,
        });
        record
    }

    /// A branch was made.
    pub(super) fn branched(&mut self, branched: NewBranch, fork: Fork, caller: Caller<R>) {
        let agent = self.record.agent.clone();
        let link = branched.to_link(agent, self.cwd_of(&fork), LinkReason::Forked);
        if fork.in_place {
            self.branch_in_place(fork, caller, branched, link);
        } else {
            self.branch_side_by_side(fork, caller, branched, link);
        }
    }

    fn branch_in_place(&mut self, fork: Fork, caller: Caller<R>, branched: NewBranch, link: NewLink) {
        self.drop_session();
        let before = Some(Box::new(self.record.clone()));
        self.record.save_unfinished_head();
        let events = match fork.at {
            Some(_) => self.drop_abandoned_turns("fork"),
            None => Vec::new(),
        };
        let mut ledger = self.append_link(link, branched.fidelity);
        ledger.events = events;
        self.record.cwd = self.cwd_of(&fork);
        if let Some(title) = &fork.title {
            self.record.title.clone_from(title);
            self.record.reported.title = None;
        }
        record_branch_info(&mut self.record, &branched);
        self.record.resting = RestingState::Idle;
        self.record.limit = None;
        self.bump_revision();
        let answer = ForkAnswer {
            conversation: Conversation {
                // The state at the time of the answer, when the branch is on disk.
                live: branched.opened_session.is_some(),
                ..self.view_when_on_disk()
            },
            link: self.record.chain.head().cloned(),
            fidelity: branched.fidelity,
            via: Some(branched.via),
        };
        let change = branch_change(caller, answer, branched, before);
        self.write_result(OperationKind::Branch(fork), ledger, change);
    }

    /// Drops what belongs to the abandoned turns: their interrupted prompt and their questions. A text that is scheduled
    /// for a time is kept. Returns the events to send.
    pub(super) fn drop_abandoned_turns(&mut self, by: &str) -> Vec<Event> {
        self.record.cut = None;
        self.end_continuation_text();
        self.drop_questions(by)
    }

    fn branch_side_by_side(&mut self, fork: Fork, caller: Caller<R>, branched: NewBranch, link: NewLink) {
        let mut record = self.new_conversation_like_this(&fork, branched.checkpoint.clone());
        record.chain = Chain::default();
        let appended = record.chain.append(link, branched.fidelity, self.now);
        record_branch_info(&mut record, &branched);
        let answer = ForkAnswer {
            conversation: view_of_record(&record),
            link: record.chain.head().cloned(),
            fidelity: branched.fidelity,
            via: Some(branched.via),
        };
        let change = branch_change(caller, answer, branched, None);
        let ledger = Ledger::with_links(appended.entries, Vec::new());
        self.write_new_conversation(fork, record, ledger, change);
    }

    /// Uses the session that a fork opened for this conversation, unless another one is open or being opened.
    pub fn session_handed_over(&mut self, opened: OpenedSession) {
        let is_free = self.session.is_none() && self.operation.is_none() && self.closing.is_none();
        if is_free && !self.stopping {
            self.announce(opened);
        } else {
            self.effects.push(Effect::Dispose(Disposition::Drop));
        }
    }
}

/// The change that makes a branch. `before`: the record before the change, if the branch is made in place.
fn branch_change<R>(
    caller: Caller<R>,
    answer: ForkAnswer,
    branched: NewBranch,
    before: Option<Box<ConversationRecord>>,
) -> CallChange<R> {
    let id = answer.conversation.id;
    let forked = answer.link.clone().map(|link| Event::Forked {
        link,
        conversation_id: id,
    });
    CallChange {
        events: forked.into_iter().collect(),
        before,
        opened_session: branched.opened_session,
        ..CallChange::of(caller, Answer::Forked(Box::new(answer)))
    }
}

/// Stores what the agent reports about an open branch, so that it is recorded and reported with the branch.
fn record_branch_info(record: &mut ConversationRecord, branched: &NewBranch) {
    if let Some(opened) = &branched.opened_session {
        record_opened(record, &opened.session_info);
    }
}
