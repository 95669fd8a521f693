//! Writing the record: what waits for a write, and what happens if it fails.

use bridge_protocol::event::Event;

use crate::conversation::answer::{Answer, Caller};
use crate::conversation::effect::{
    CallChange, Deadline, Disposition, Effect, Fork, Ledger, Milestone, Work, WritePart,
};
use crate::conversation::error::{ConversationError, StoreFailure};
use crate::conversation::state::{Model, Operation, OperationKind, Stage};
use crate::conversation::writer::PendingWrite;
use crate::store::ConversationRecord;

/// How long until a failed write is repeated, in milliseconds: a full disk has to be fixed by the user.
const WRITE_RETRY_MS: u64 = 5_000;

impl<R> Model<R> {
    /// Notes a change of the record by code that does not write it. The step writes it at its end.
    pub(super) fn mark_unsaved(&mut self) {
        self.record.revision += 1;
        self.writer.has_changes = true;
    }

    /// Notes a change of the record by code that also writes it.
    pub(super) fn bump_revision(&mut self) {
        self.record.revision += 1;
        self.record.updated_at = self.now.max(self.record.updated_at);
    }

    /// Writes the record at the end of the step. The milestone waits for that write.
    pub(super) fn write(&mut self, ledger: Ledger, milestone: Milestone<R>) {
        self.writer.add(WritePart { ledger, milestone });
    }

    /// Begins the next write, if one is due. Called at the end of each step.
    pub(super) fn begin_due_write(&mut self) {
        if self.writer.begin(&mut self.record, self.now) {
            self.effects.push(Effect::Write);
        }
    }

    /// Answers a call that changed the record once the change is on disk. A change that could not be written is undone, unless
    /// the record has changed since.
    pub(super) fn answer_change(&mut self, caller: Caller<R>, answer: Answer, before: ConversationRecord) {
        self.write_change(Ledger::default(), CallChange::new(caller, answer, before));
    }

    /// Writes the change made by a call.
    pub(super) fn write_change(&mut self, ledger: Ledger, change: CallChange<R>) {
        let part = self.change_part(ledger, change);
        self.writer.add(part);
    }

    /// Writes the conversation that a fork made.
    pub(super) fn write_new_conversation(
        &mut self,
        fork: Fork,
        record: ConversationRecord,
        ledger: Ledger,
        mut change: CallChange<R>,
    ) {
        change.ends_operation = true;
        self.set_operation(OperationKind::Branch(fork), Caller::none(), Stage::Writing);
        let parts = vec![self.change_part(ledger, change)];
        self.writer.new_conversation = Some(PendingWrite { record, parts });
    }

    fn change_part(&self, mut ledger: Ledger, change: CallChange<R>) -> WritePart<R> {
        let record = self.answered_request_record(change.caller.key.as_ref(), &change.answer);
        ledger.requests.extend(record);
        WritePart {
            ledger,
            milestone: Milestone::Changed(Box::new(change)),
        }
    }

    /// Writes the result of an operation. No other operation begins before the write ends: its result would replace this
    /// one.
    pub(super) fn write_result(&mut self, kind: OperationKind, ledger: Ledger, mut change: CallChange<R>) {
        change.ends_operation = true;
        self.set_operation(kind, Caller::none(), Stage::Writing);
        self.write_change(ledger, change);
    }

    /// Ends the operation whose result is on disk, or could not be written.
    pub(super) fn end_written_operation(&mut self) -> Option<Operation<R>> {
        self.operation.take_if(|op| matches!(op.stage, Stage::Writing))
    }

    /// The write has ended: whatever waited for it continues.
    pub fn write_done(&mut self, result: &Result<(), StoreFailure>) {
        let Some(PendingWrite { record, mut parts }) = self.writer.in_progress.take() else {
            return;
        };
        match (result, record.id == self.record.id) {
            (Ok(()), true) => self.writer.on_disk = record,
            (Err(_), true) => {
                // Undo the newest change first, so that each one finds the record as it left it.
                parts.iter_mut().rev().for_each(|part| self.revert_change(part));
                self.writer.has_changes = true;
                self.writer.has_failed = true;
                self.effects.push(Effect::Arm(Deadline::Rewrite, WRITE_RETRY_MS));
            }
            (Ok(()), false) => {}
            (Err(_), false) => parts.iter_mut().for_each(|part| part.ledger = Ledger::default()),
        }
        for WritePart { ledger, milestone } in parts {
            match result {
                Ok(()) => ledger.events.into_iter().for_each(|event| self.emit(event)),
                Err(_) => self.retain_unwritten_ledger(ledger),
            }
            let result = result.clone();
            match milestone {
                Milestone::Saved => {}
                Milestone::SessionOpened(opened) => self.session_recorded(*opened, result),
                Milestone::PromptRecorded(turn) => self.prompt_recorded(&turn, result),
                Milestone::TurnEnded(turn) => self.turn_end_recorded(*turn),
                Milestone::PromptQueued(turn_id) => self.enqueue_recorded(&turn_id, result),
                Milestone::PromptsDropped { prompts, cancels } => {
                    self.prompts_dropped(prompts, cancels, result);
                }
                Milestone::QuestionRaised(asked) => self.question_recorded(*asked),
                Milestone::QuestionSettled(settled) => self.question_settled(*settled),
                Milestone::DeletionBegun => self.deletion_begun(result),
                Milestone::Changed(change) => self.change_written(*change, result),
            }
        }
    }

    /// Undoes a change whose caller gets an error, unless the record has changed since.
    fn revert_change(&mut self, part: &mut WritePart<R>) {
        let Milestone::Changed(change) = &mut part.milestone else {
            return;
        };
        if let Some(request) = &change.caller.key {
            let requests = &mut part.ledger.requests;
            requests.retain(|kept| kept.request_id != request.id);
        }
        let is_last = |before: &mut Box<ConversationRecord>| before.revision + 1 == self.record.revision;
        if let Some(before) = change.before.take_if(is_last) {
            // The time of the last change never decreases, even if the clock was set back before the next change.
            let updated_at = self.record.updated_at;
            self.record = ConversationRecord {
                updated_at,
                ..*before
            };
            part.ledger = Ledger::default();
        }
    }

    /// Moves the ledger of a failed write into the next one.
    fn retain_unwritten_ledger(&mut self, mut ledger: Ledger) {
        // A turn that failed before it did anything is not recorded as begun.
        ledger
            .requests
            .retain(|request| request.result.is_some() || request.turn_id.is_none());
        // The turn runs even if its record is not on disk.
        let runs =
            |event: &mut Event| matches!(event, Event::PromptAccepted { .. } | Event::Continued { .. });
        for event in ledger.events.extract_if(.., runs) {
            self.emit(event);
        }
        self.writer.unsaved_ledger.append(ledger);
    }

    /// A call's change is on disk, or could not be written. What was made for it is kept or undone, and the call is
    /// answered.
    pub(super) fn change_written(&mut self, change: CallChange<R>, result: Result<(), StoreFailure>) {
        let CallChange {
            caller,
            answer,
            events,
            before,
            ends_operation,
            opened_session: opened,
        } = change;
        let op = match ends_operation {
            true => self.end_written_operation(),
            false => None,
        };
        if let Err(failure) = result {
            match op.filter(|op| op.kind.creates_resource()) {
                // The change of the record was undone, so what the operation made is undone too.
                Some(op) if before.is_none() => {
                    let number = self.begin_work(Work::UndoWork(failure));
                    self.set_operation(op.kind, caller, Stage::UndoingWork(number));
                    return;
                }
                Some(_) => self.effects.push(Effect::Dispose(Disposition::Leave)),
                None => {}
            }
            if matches!(answer, Answer::Deleted(_)) {
                // `session_closed` does not emit this during a deletion. The deletion failed, so report it now.
                self.emit(Event::Closed {});
            }
            self.answer(caller, Err(ConversationError::StoreFailed(failure)));
            return;
        }
        let branch = match &answer {
            Answer::Forked(fork) if fork.conversation.id != self.record.id => Some(&fork.conversation),
            _ => None,
        };
        if let Some(branch) = branch {
            self.effects.push(Effect::Announce(Box::new(branch.clone())));
        }
        events.into_iter().for_each(|event| self.emit(event));
        if ends_operation {
            self.effects.push(Effect::Dispose(Disposition::Keep));
        }
        match (branch, opened) {
            (Some(branch), Some(opened)) => self.effects.push(Effect::HandOver(branch.id, opened)),
            (None, Some(opened)) => self.announce(*opened),
            (_, None) => {}
        }
        if matches!(answer, Answer::Deleted(_)) {
            self.effects.push(Effect::End);
        }
        self.answer(caller, Ok(answer));
    }
}
