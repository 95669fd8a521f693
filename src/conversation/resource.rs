//! The resources that a job created and that no record names yet: an open session, a copy of a transcript, or moved files.
//!
//! They are kept once the record on disk names them, and undone if no record will. If that is uncertain, the next start
//! decides.

use crate::transcript::moving::RunningMove;

use super::uncommitted_copies::UncommittedCopy;
use super::upstream::UpstreamSession;

/// The resources that a job created.
#[derive(Default)]
pub(super) struct UnrecordedResource {
    /// An open session. It has the copy from which it was opened, if there is one.
    pub session: Option<UpstreamSession>,
    /// A copy of a transcript that is not open.
    pub copy: Option<UncommittedCopy>,
    /// Moved files.
    pub files: Option<RunningMove>,
}

impl From<UpstreamSession> for UnrecordedResource {
    fn from(session: UpstreamSession) -> Self {
        Self {
            session: Some(session),
            ..Self::default()
        }
    }
}

impl From<UncommittedCopy> for UnrecordedResource {
    fn from(copy: UncommittedCopy) -> Self {
        Self {
            copy: Some(copy),
            ..Self::default()
        }
    }
}

impl From<RunningMove> for UnrecordedResource {
    fn from(files: RunningMove) -> Self {
        Self {
            files: Some(files),
            ..Self::default()
        }
    }
}

impl UnrecordedResource {
    /// Adds the resources that a later job created.
    pub(super) fn add(&mut self, later: Self) {
        debug_assert!(
            later.session.is_none() || self.session.is_none(),
            "a session that is dropped stays open at the agent"
        );
        self.session = later.session.or(self.session.take());
        self.copy = later.copy.or(self.copy.take());
        self.files = later.files.or(self.files.take());
    }

    /// Leaves copies and files to the next start. Returns the session, which the caller has to close.
    pub(super) fn leave_to_next_start(self) -> Option<UpstreamSession> {
        let mut session = self.session;
        let of_session = session.as_mut().and_then(|session| session.copy.take());
        let copies = self.copy.into_iter().chain(of_session);
        copies.for_each(UncommittedCopy::leave_to_next_start);
        if let Some(files) = self.files {
            files.leave_unsettled();
        }
        session
    }

    /// Deletes the copy and moves the files back. The caller has closed the session.
    pub(super) async fn undo(self) {
        debug_assert!(
            self.session.is_none(),
            "a session that is dropped stays open at the agent"
        );
        if let Some(copy) = self.copy {
            copy.remove().await;
        }
        let Some(files) = self.files else { return };
        let back = tokio::task::spawn_blocking(move || files.undo());
        if !matches!(back.await, Ok(true)) {
            tracing::error!(
                "a move could neither be recorded nor be undone completely; the next start undoes the rest"
            );
        }
    }
}
