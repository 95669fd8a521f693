//! Replacing an earlier prompt, and undoing that.

use std::sync::Arc;

use bridge_protocol::conversation::{EditAnswer, UndoAnswer};
use bridge_protocol::event::Event;
use bridge_protocol::id::{TurnId, UpstreamId};
use bridge_protocol::link::{Fidelity, LineageEntry};
use bridge_protocol::turn::TurnResult;

use crate::chain::{EarlierHead, NewLink, UndoEffect};
use crate::conversation::answer::{Answer, Caller};
use crate::conversation::destination::Destination;
use crate::conversation::edit::{EditBranch, TurnEdit};
use crate::conversation::effect::{
    CallChange, Deadline, Disposition, Effect, Ledger, MoveRequest, Now, Work,
};
use crate::conversation::error::ConversationError;
use crate::conversation::running_work::Progress;
use crate::conversation::state::{LiveSession, Model, OperationKind};
use crate::store::{
    AnsweredInterrupt, ConversationRecord, CutShortPrompt, PendingContinuation, PendingEdit, RestingState,
};
use crate::transcript::moving::SharedRemainingForks;

impl<R> Model<R> {
    /// Why no edit can begin now.
    pub(super) fn refusal_to_edit(&self) -> Option<ConversationError> {
        // The branch of a cancelled edit is given up first, as before a prompt.
        let is_edit = matches!(self.operation_kind(), Some(OperationKind::Edit(_)));
        let is_cancelled = self.turn.is_none() && self.queue.is_empty() && is_edit;
        self.busy_for_history_change("edit").filter(|_| !is_cancelled)
    }

    /// Why the history cannot be changed in place now.
    pub(super) fn busy_for_history_change(&self, what: &str) -> Option<ConversationError> {
        self.busy_with(&format!(
            "a turn is running; wait for its end or cancel it, then {what}"
        ))
    }

    /// Whether the open session is a branch that is not the head yet.
    pub(super) fn is_editing(&self) -> bool {
        let edit = self.turn.as_ref().and_then(|turn| turn.edit.as_ref());
        edit.is_some_and(|edit| edit.unaccepted().is_some())
    }

    /// The session that is open.
    pub fn open_session(&self) -> Option<&UpstreamId> {
        self.session.as_ref().map(|live| &live.upstream_id)
    }

    /// Continues an edit whose prompt was not sent: makes its branch, or sends the prompt there. Returns whether there is one.
    pub(super) fn advance_edit(&mut self) -> bool {
        let Some(turn) = self.waiting_turn() else {
            return false;
        };
        let Some(edit) = turn.edit.as_ref().filter(|edit| edit.accepted().is_none()) else {
            return false;
        };
        let branch = edit.branch.as_ref().map(|branch| &branch.link.upstream_id);
        if branch.is_some() && branch == self.open_session() {
            self.read_anchor();
            return true;
        }
        let (at, min_fidelity) = (edit.at.clone(), turn.request.min_fidelity);
        let kind = OperationKind::Edit(turn.request.turn_id.clone());
        // The branch ended with its agent, and is made again.
        self.abandon_edit();
        self.start(kind, Caller::none(), Work::Edit { at, min_fidelity });
        true
    }

    /// Whether the turn of an edit still waits for its branch.
    pub(super) fn waits_for_edit(&self, turn_id: &TurnId) -> bool {
        self.waiting_turn()
            .is_some_and(|turn| turn.request.turn_id == *turn_id)
    }

    /// The branch is open.
    pub(super) fn edit_branch_opened(&mut self, turn_id: &TurnId, edited: EditBranch) {
        if !self.waits_for_edit(turn_id) {
            // The edit was cancelled meanwhile.
            self.effects.push(Effect::Dispose(Disposition::Drop));
            return;
        }
        let EditBranch {
            opened,
            link,
            fidelity,
            dropped,
            via,
        } = edited;
        self.drop_session();
        self.effects.push(Effect::Attach);
        self.session = Some(LiveSession::new(&opened));
        self.apply_session_info(opened.session_info);
        if let Some(turn) = &mut self.turn {
            turn.resumed = Some(opened.resumed);
            let branch = turn.edit.as_mut().map(|edit| &mut edit.branch);
            if let Some(branch) = branch {
                *branch = link.into_link(self.now).map(|link| PendingEdit {
                    link,
                    fidelity,
                    dropped,
                    via,
                    accepted: false,
                });
            }
        }
    }

    /// The prompt was accepted on the branch, which becomes the head. The `accepted` events are reported after that, and the
    /// agent's later updates after both.
    pub(super) fn accept_edit(&mut self, accepted: Vec<Event>) {
        let edit = self.turn.as_mut().and_then(|turn| turn.edit.as_mut());
        let Some(branch) = edit.and_then(|edit| edit.branch.as_mut()) else {
            return;
        };
        branch.accepted = true;
        let branch = branch.clone();
        self.record.save_unfinished_head();
        let mut events = self.drop_abandoned_turns("edit");
        let entries = append_edit_branch(&mut self.record, &branch);
        if let Some(pending) = &mut self.record.turn {
            pending.edit = Some(branch.clone());
        }
        let link = self.record.chain.head().cloned();
        let edited = link.map(|link| Event::Edited {
            link,
            dropped: branch.dropped,
            fidelity: branch.fidelity,
        });
        events.extend(edited);
        events.extend(accepted);
        // Written together with all other changes of this step.
        self.writer
            .unsaved_ledger
            .append(Ledger::with_links(entries, events));
        self.mark_unsaved();
    }

    /// Whether the agent's lines must wait: an edit that the agent has accepted is being written, and is reported first.
    #[must_use]
    pub fn must_delay_agent_lines(&self) -> bool {
        self.writer.has_unwritten_edit() || self.writer.has_unwritten_question()
    }

    /// Gives up a branch on which the prompt was not accepted: the head stays as it was. A copy that no record names is deleted
    /// with the session. The lineage still lists the branch, because its id leads to the conversation from now on; a call that
    /// needs its file reports that it is missing.
    pub(super) fn abandon_edit(&mut self) {
        if !self.is_editing() {
            return;
        }
        self.drop_session();
        let edit = self.turn.as_mut().and_then(|turn| turn.edit.as_mut());
        let Some(branch) = edit.and_then(|edit| edit.branch.take()) else {
            return;
        };
        let abandoned = log_abandoned_edit(&mut self.record, &branch, self.now);
        let ledger = Ledger::with_links(abandoned.into_iter().collect(), Vec::new());
        self.writer.unsaved_ledger.append(ledger);
        self.mark_unsaved();
    }

    /// Ends an edit whose prompt was not accepted: the conversation is as before.
    pub(super) fn revert_edit(&mut self, error: &ConversationError) {
        self.effects.push(Effect::Disarm(Deadline::Accept));
        self.effects.push(Effect::Disarm(Deadline::Cancel));
        self.revert_prompt();
        self.fail_unsent_turn(error);
    }

    /// Refuses the prompts that were queued after an edit: they were meant for the history that the edit would have made.
    pub(super) fn refuse_prompts_after_edit(&mut self) {
        for waiting in std::mem::take(&mut self.queue) {
            let error = ConversationError::Conflict(
                "the edit queued before this prompt was not accepted, so the history is not the one that the prompt was meant for"
                    .to_owned(),
            );
            self.drop_unsent(waiting, Err(error), None, Vec::new());
        }
    }

    /// The answer about a turn for its caller.
    pub(super) fn turn_answer(&self, edit: Option<&TurnEdit>, result: TurnResult) -> Answer {
        turn_answer(&self.record, edit.map(TurnEdit::accepted), result)
    }

    /// Undoes the last change made in place, after the lineage was read to find it.
    pub(super) fn undo(&mut self, session: Option<UpstreamId>, caller: Caller<R>, progress: Arc<Progress>) {
        let work = Work::FindUndoTarget {
            session,
            progress: Arc::clone(&progress),
        };
        self.start(OperationKind::Undo(progress), caller, work);
    }

    /// The lineage was read, and the target of the undo is known.
    pub(super) fn undo_target_found(
        &mut self,
        effect: Option<UndoEffect>,
        title: Option<String>,
        has_moved_files: bool,
        caller: Caller<R>,
        progress: Arc<Progress>,
    ) {
        let back_to = |cwd: String, progress| MoveRequest {
            destination: Destination::Folder(cwd),
            undoes: true,
            neighbours: SharedRemainingForks::default(),
            progress,
        };
        match effect {
            Some(UndoEffect::Branch(earlier)) => {
                let kind = match has_moved_files {
                    // If this cannot be recorded, the files are moved back.
                    true => OperationKind::Move(back_to(earlier.link.cwd.clone(), progress)),
                    false => OperationKind::Undo(progress),
                };
                self.restore_earlier_head(*earlier, title, caller, kind);
            }
            Some(UndoEffect::Move { cwd }) => match self.refusal_to_leave_agent("move") {
                Some(refusal) => self.answer(caller, Err(refusal)),
                None => self.move_to(back_to(cwd, progress), caller),
            },
            None => {
                let error = ConversationError::Conflict(format!(
                    "nothing to undo in conversation {}",
                    self.record.id
                ));
                self.answer(caller, Err(error));
            }
        }
    }

    /// Makes an earlier head the head again. `title`: what its agent calls it, unless the conversation's title is not that of
    /// the present head.
    fn restore_earlier_head(
        &mut self,
        earlier: EarlierHead,
        title: Option<String>,
        caller: Caller<R>,
        kind: OperationKind,
    ) {
        let EarlierHead {
            link,
            left_by,
            dropped_turns: dropped,
            ..
        } = earlier;
        let mut chain = self.record.chain.clone();
        let cwd = link.cwd.clone();
        let appended = chain.append(link, Fidelity::Full, self.now);
        let head = chain.head().filter(|_| !appended.entries.is_empty()).cloned();
        let Some(link) = head else {
            let error = ConversationError::Conflict("the earlier session has no id".to_owned());
            self.answer(caller, Err(error));
            return;
        };
        self.drop_session();
        let before = self.record.clone();
        let mut events = self.drop_abandoned_turns("undo");
        self.record.cwd = cwd;
        self.record.chain = chain;
        if let Some(title) = title.filter(|_| !self.has_chosen_title()) {
            self.record.title.clone_from(&title);
            self.record.reported.title = Some(title);
        }
        self.set_resting_state(RestingState::Idle);
        self.record.failure = None;
        self.record.restore_unfinished_head(self.now);
        // The chain does not count an interrupted turn, unless it is marked as counted. The earlier head may have that turn too.
        let cut = before
            .cut
            .clone()
            .map(|cut| CutShortPrompt { asks: false, ..cut });
        let is_uncounted = cut.as_ref().is_some_and(|cut| !cut.counted);
        let dropped = dropped + u64::from(is_uncounted && cut != self.record.cut);
        self.bump_revision();
        events.push(Event::Undone {
            link: link.clone(),
            dropped,
        });
        let limit = self.record.limit.clone();
        events.extend(limit.map(|limit| Event::Limited { limit }));
        let answer = Answer::Undone(Box::new(UndoAnswer {
            conversation: self.view_when_on_disk(),
            link,
            dropped,
            moved: None,
            undone: left_by,
        }));
        let ledger = Ledger::with_links(appended.entries, Vec::new());
        let change = CallChange::new(caller, answer, before).with_events(events);
        self.write_result(kind, ledger, change);
    }
}

/// Makes the branch of an edit the head.
pub(super) fn append_edit_branch(record: &mut ConversationRecord, branch: &PendingEdit) -> Vec<LineageEntry> {
    let link = NewLink::from(&branch.link);
    record.chain.append(link, branch.fidelity, branch.link.at).entries
}

/// Drops what belongs to the turns that an edit has replaced: their interrupted prompt, its continuation, and the questions
/// from before the edit.
pub(super) fn drop_replaced_turns(record: &mut ConversationRecord, since: Now) {
    record.cut = None;
    let continuation = record.continuation.take();
    record.continuation = continuation.and_then(PendingContinuation::without_interrupted_prompt);
    let replaced = record
        .interrupts
        .extract_if(.., |interrupt| interrupt.raised_at < since);
    let by = "edit".to_owned();
    let answered = replaced.map(|interrupt| AnsweredInterrupt {
        id: interrupt.id,
        by: by.clone(),
    });
    let answered: Vec<_> = answered.collect();
    record.answered.extend(answered);
}

/// Logs the branch of an edit that was given up.
pub(super) fn log_abandoned_edit(
    record: &mut ConversationRecord,
    branch: &PendingEdit,
    now: Now,
) -> Option<LineageEntry> {
    let link = NewLink::from(&branch.link);
    record.chain.log_abandoned_branch(link, branch.fidelity, now)
}

/// The answer about a turn for its caller. `edit`: for the turn of an edit, its branch if the prompt was accepted there.
pub(super) fn turn_answer(
    record: &ConversationRecord,
    edit: Option<Option<&PendingEdit>>,
    turn: TurnResult,
) -> Answer {
    let Some(branch) = edit else {
        return Answer::Turn(Box::new(turn));
    };
    let link = branch.map(|branch| {
        let mut links = record.chain.links().iter();
        let now = links.find(|link| link.upstream_id == branch.link.upstream_id);
        now.unwrap_or(&branch.link).clone()
    });
    Answer::Edited(Box::new(EditAnswer {
        turn,
        link,
        fidelity: branch.map_or(Fidelity::None, |branch| branch.fidelity),
        dropped: branch.map_or(0, |branch| branch.dropped),
        via: branch.map(|branch| branch.via),
    }))
}
