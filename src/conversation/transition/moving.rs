//! Moving to another folder: the session is closed, the files move, and then the chain records it.

use bridge_protocol::conversation::{MoveAnswer, MovedFolder, UndoAnswer};
use bridge_protocol::event::Event;
use bridge_protocol::link::{LineageReason, Link, LinkReason};

use crate::conversation::answer::{Answer, Caller};
use crate::conversation::effect::{CallChange, Ledger, MoveRequest, Work};
use crate::conversation::error::ConversationError;
use crate::conversation::state::{Model, OperationKind};

impl<R> Model<R> {
    /// Begins a move.
    pub(super) fn move_to(&mut self, request: MoveRequest, caller: Caller<R>) {
        if request.destination.is_reached(&self.record) {
            // The files are there already, and the record says so.
            let answer = Answer::Moved(Box::new(MoveAnswer {
                plan: Vec::new(),
                moved: 0,
                left_out: Vec::new(),
                kept: Vec::new(),
            }));
            let before = self.record.clone();
            self.bump_revision();
            self.answer_change(caller, answer, before);
            return;
        }
        let work = Work::Move(request.clone());
        self.start_when_closed(OperationKind::Move(request), caller, work);
    }

    /// Why the session cannot be closed for work on its transcript.
    pub(super) fn refusal_to_leave_agent(&self, to: &str) -> Option<ConversationError> {
        // A continuation that becomes due while the conversation is held waits until it is released.
        let is_due = self.due_turn.is_some() && !self.is_paused;
        let is_busy = self.turn.is_some() || !self.queue.is_empty() || is_due;
        let refusal = if is_busy {
            Some("a turn is running; wait for its end, or cancel it")
        } else if self.operation.is_some() || self.closing.is_some() {
            Some("the session is being opened, closed or branched; try again when that is done")
        } else if self.has_open_question() {
            Some("a question waits for its answer; give one first")
        } else {
            None
        };
        let refusal = refusal.map(|why| ConversationError::Busy(why.to_owned()));
        let would_lose = self.session.is_some() && self.close_would_lose();
        refusal.or_else(|| {
            would_lose.then(|| {
                ConversationError::Conflict(format!(
                    "the agent {} can neither resume nor load a session, so that this one cannot {to}",
                    self.record.agent
                ))
            })
        })
    }

    /// The files are in the new folder.
    pub(super) fn files_moved(&mut self, answer: MoveAnswer, request: MoveRequest, caller: Caller<R>) {
        let (destination, undoes) = (&request.destination, request.undoes);
        let before = self.record.clone();
        let reason = match undoes {
            true => LinkReason::Undone,
            false => LinkReason::Moved,
        };
        let target = |link: &Link, is_head| destination.new_cwd_of_link(&before.cwd, link, is_head);
        let moved = self.record.chain.relocate(target, reason, self.now);
        self.record.cwd = destination.new_cwd(&before);
        self.bump_revision();
        let head = self.record.chain.head().filter(|_| undoes).cloned();
        let answer = match head {
            Some(link) => Answer::Undone(Box::new(UndoAnswer {
                conversation: self.view_when_on_disk(),
                link,
                dropped: 0,
                moved: Some(MovedFolder {
                    from: before.cwd.clone(),
                    to: self.record.cwd.clone(),
                }),
                undone: Some(LineageReason::Moved),
            })),
            None => Answer::Moved(Box::new(answer)),
        };
        let mut events = vec![Event::Moved {
            from: before.cwd.clone(),
            to: self.record.cwd.clone(),
        }];
        if let Answer::Undone(undone) = &answer {
            let link = undone.link.clone();
            events.push(Event::Undone { link, dropped: 0 });
        }
        let change = CallChange::new(caller, answer, before).with_events(events);
        let ledger = Ledger {
            lineage: moved.entries,
            ..Ledger::default()
        };
        self.write_result(OperationKind::Move(request), ledger, change);
    }
}
