//! Carrying out moves and repairs of a conversation's files, once none of the daemon's agents writes to them.

use std::sync::Arc;

use super::super::{Actor, Job, JobDone};
use crate::conversation::destination::Destination;
use crate::conversation::effect::Input;
use crate::conversation::error::ConversationError;
use crate::conversation::moving::{self, MoveRequest};
use crate::conversation::repairing::{self, Done, RepairRequest};
use crate::conversation::work::Progress;
use crate::transcript::moving::Moving;
use crate::transcript::moving::SharedNeighbours;

impl Actor {
    /// Moves the files to another folder, once no agent writes to them.
    pub(super) fn move_files(
        &mut self,
        job: u64,
        destination: Destination,
        neighbours: SharedNeighbours,
        progress: Arc<Progress>,
    ) {
        let request = MoveRequest {
            record: self.model.record.clone(),
            destination,
            closed: self.closed.clone(),
            finishing: self.finishing.take(),
            progress,
            neighbours,
        };
        let progress = Arc::clone(&request.progress);
        let moving = moving::carry_out(Arc::clone(&self.services), request);
        let work = async move { JobDone::Moved(job, moving.await.map(Box::new)) };
        self.job = Some(Job::on_files(work, Some(progress)));
    }

    /// The move is recorded. Its originals are deleted without delaying the loop; after a kill, the next start deletes
    /// them.
    pub(in crate::conversation::actor) fn keep_move(&mut self) {
        let Some(moved) = self.moved.take() else { return };
        self.finishing = Some(tokio::task::spawn_blocking(move || moved.keep()));
    }

    pub(super) fn take_move_back(&mut self, job: u64) {
        let moved = self.moved.take();
        let work = async move {
            let back = tokio::task::spawn_blocking(move || moved.is_none_or(Moving::take_back));
            if !matches!(back.await, Ok(true)) {
                tracing::error!(
                    "a move could neither be recorded nor be undone completely; the next start undoes the rest"
                );
            }
            JobDone::MovedBack(job)
        };
        self.job = Some(Job::on_files(work, None));
    }

    /// Makes a repaired copy of the head, once no agent writes to it.
    pub(super) fn repair(&mut self, job: u64, progress: Arc<Progress>) {
        let request = RepairRequest {
            record: self.model.record.clone(),
            closed: self.closed.clone(),
            progress,
        };
        let progress = Arc::clone(&request.progress);
        let repairing = repairing::carry_out(Arc::clone(&self.services), request);
        let work = async move { JobDone::Repaired(job, repairing.await.map(Box::new)) };
        self.job = Some(Job::on_files(work, Some(progress)));
    }

    /// Holds a copy until the record names it.
    pub(in crate::conversation::actor) fn copy_made(
        &mut self,
        job: u64,
        done: Result<Box<Done>, ConversationError>,
    ) {
        let result = done.map(|done| {
            let (head, copy) = done.made.unzip();
            self.copy = copy;
            (Box::new(done.answer), head.map(Box::new))
        });
        self.input(Input::Repaired { job, result });
    }
}
