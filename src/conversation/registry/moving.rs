//! Calls that move conversations to other folders.

use std::sync::Arc;

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::{ConversationState, MoveAnswer};

use super::super::answer::{Answer, CallKey};
use super::super::destination::Destination;
use super::super::effect::{Call, MoveRequest};
use super::super::error::ConversationError;
use super::super::folder::usable_folder;
use super::super::moving;
use super::super::running_work::Progress;
use super::Registry;
use crate::transcript::moving::SharedRemainingForks;

impl Registry {
    /// Moves a conversation to another folder. The move continues if the caller disconnects.
    ///
    /// # Errors
    /// When something else must end first, a file exists at a target, or a write fails.
    pub async fn move_to(
        self: &Arc<Self>,
        id: ConversationId,
        cwd: String,
        request: Option<CallKey>,
    ) -> Result<Answer, ConversationError> {
        let call = move |progress| {
            Call::Move(MoveRequest {
                destination: Destination::Folder(cwd),
                undoes: false,
                neighbours: SharedRemainingForks::default(),
                progress,
            })
        };
        self.call_detached(id, "conversation/move", call, request).await
    }

    /// Undoes the last change that was made in place, which may be a move.
    ///
    /// # Errors
    /// When there is nothing to undo, something else must end first, or a write fails.
    pub async fn undo(
        self: &Arc<Self>,
        id: ConversationId,
        request: Option<CallKey>,
    ) -> Result<Answer, ConversationError> {
        let call = |progress| Call::Undo {
            session: None,
            progress,
        };
        self.call_detached(id, "conversation/undo", call, request).await
    }

    /// Runs a call that may move files. It continues if the caller disconnects.
    pub(super) async fn call_detached(
        self: &Arc<Self>,
        id: ConversationId,
        method: &'static str,
        call: impl FnOnce(Arc<Progress>) -> Call,
        request: Option<CallKey>,
    ) -> Result<Answer, ConversationError> {
        let guard = self.track_work(method, Some(id));
        let answer = self.call(id, call(guard.progress()), request)?;
        let run = self.tasks.spawn(async move {
            let answer = answer.await;
            drop(guard);
            answer
        });
        match run.await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => Err(ConversationError::Internal),
        }
    }

    /// Plans the move of a conversation without doing it.
    ///
    /// # Errors
    /// As for a move.
    pub async fn plan_move(&self, id: ConversationId, cwd: String) -> Result<MoveAnswer, ConversationError> {
        let guard = self.track_work("conversation/move", Some(id));
        let record = self.record(id)?;
        let services = Arc::clone(&self.services);
        guard
            .run_blocking(move || {
                let cwd = usable_folder("cwd", &cwd)?;
                moving::dry_run(
                    &services,
                    &record,
                    &Destination::Folder(cwd),
                    &SharedRemainingForks::default(),
                )
            })
            .await
    }

    /// Refuses a call that reads the files of a conversation while they are moved.
    ///
    /// # Errors
    /// [`ConversationError::Busy`].
    pub(super) fn refuse_while_moving(&self, id: ConversationId) -> Result<(), ConversationError> {
        let state = self.lock().get(&id).map(|entry| entry.published.borrow().state);
        match state {
            Some(ConversationState::Moving) => Err(being_moved_error()),
            _ => Ok(()),
        }
    }

    /// Replaces an error of a call that read the files of a conversation, if the conversation was moved meanwhile: its files
    /// are not missing then. `cwd` is the conversation's folder when the call began.
    ///
    /// # Errors
    /// Those of the call, or [`ConversationError::Busy`].
    pub(super) fn busy_if_moved<T>(
        &self,
        id: ConversationId,
        cwd: &str,
        result: Result<T, ConversationError>,
    ) -> Result<T, ConversationError> {
        let may_be_moved = match &result {
            Err(ConversationError::NotFound { .. }) => true,
            // A full disk or a folder that does not respond has nothing to do with a move.
            Err(ConversationError::StoreFailed(failure)) => !failure.is_transient,
            _ => false,
        };
        if may_be_moved {
            self.refuse_while_moving(id)?;
            if self.salvaged_view(id).is_ok_and(|now| now.cwd != cwd) {
                return Err(being_moved_error());
            }
        }
        result
    }
}

fn being_moved_error() -> ConversationError {
    let what = "the conversation is being moved to another folder; try again when the move is done";
    ConversationError::Busy(what.to_owned())
}
