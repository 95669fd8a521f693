//! Carrying out moves and repairs of a conversation's files, once none of the daemon's agents writes to them.

use std::sync::Arc;

use super::super::{Actor, Job, Resource};
use super::unzip;
use crate::conversation::destination::Destination;
use crate::conversation::effect::Found;
use crate::conversation::keeping::{Depth, Session};
use crate::conversation::moving::{self, MoveRequest};
use crate::conversation::repairing::{self, RepairRequest};
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
        let work = async move {
            let (answer, files) = unzip(moving.await.map(|moved| (moved.answer, moved.files)));
            let made = Resource {
                files: files.flatten(),
                ..Resource::default()
            };
            (Found::Moved(answer), made)
        };
        self.job = Some(Job::on_files(job, work, Some(progress)));
    }

    /// The move is recorded. Its originals are deleted without delaying the loop; after a kill, the next start deletes
    /// them. The moved transcripts are new files, which have no backup yet.
    pub(in crate::conversation::actor) fn keep_move(&mut self) {
        let Some(moved) = self.made.files.take() else {
            return;
        };
        for link in self.model.record.chain.links().iter().filter(|link| link.written) {
            self.services.keeper.ask(Session::from(link), Depth::Linked);
        }
        self.finishing = Some(tokio::task::spawn_blocking(move || moved.keep()));
    }

    pub(super) fn take_move_back(&mut self, job: u64) {
        let moved = self.made.files.take();
        let work = async move {
            let back = tokio::task::spawn_blocking(move || moved.is_none_or(Moving::take_back));
            if !matches!(back.await, Ok(true)) {
                tracing::error!(
                    "a move could neither be recorded nor be undone completely; the next start undoes the rest"
                );
            }
            (Found::MovedBack, Resource::default())
        };
        self.job = Some(Job::on_files(job, work, None));
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
        let work = async move {
            let (found, copy) = unzip(repairing.await.map(|done| {
                let (head, copy) = done.made.unzip();
                ((Box::new(done.answer), head.map(Box::new)), copy)
            }));
            let made = Resource {
                copy: copy.flatten(),
                ..Resource::default()
            };
            (Found::Repaired(found), made)
        };
        self.job = Some(Job::on_files(job, work, Some(progress)));
    }
}
