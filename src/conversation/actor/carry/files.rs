//! Carrying out moves and repairs of a conversation's files, once none of the daemon's agents writes to them.

use std::sync::Arc;

use futures_util::TryFutureExt;

use super::super::{Actor, Job};
use crate::conversation::destination::Destination;
use crate::conversation::effect::Found;
use crate::conversation::keeping::Depth;
use crate::conversation::moving::{self, MoveRequest};
use crate::conversation::repairing;
use crate::conversation::services::SessionRef;
use crate::conversation::work::Progress;
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
            progress: Arc::clone(&progress),
            neighbours,
        };
        let moving = moving::carry_out(Arc::clone(&self.services), request);
        let moving = moving.map_ok(|(answer, made)| (Found::Moved(answer), made));
        self.job = Some(Job::new(job, moving).on_files(Some(progress)));
    }

    /// The move is recorded. Its originals are deleted without delaying the loop; after a kill, the next start deletes
    /// them. The moved transcripts are new files, which have no backup yet.
    pub(in crate::conversation::actor) fn keep_move(&mut self) {
        let Some(moved) = self.made.files.take() else {
            return;
        };
        for link in self.model.record.chain.links().iter().filter(|link| link.written) {
            self.services.keeper.ask(SessionRef::from(link), Depth::Linked);
        }
        self.finishing = Some(tokio::task::spawn_blocking(move || moved.keep()));
    }

    /// Makes a repaired copy of the head, once no agent writes to it.
    pub(super) fn repair(&mut self, job: u64, progress: Arc<Progress>) {
        let (services, record) = (Arc::clone(&self.services), self.model.record.clone());
        let (closed, counted) = (self.closed.clone(), Arc::clone(&progress));
        let repairing = repairing::carry_out(services, record, closed, counted);
        let repairing = repairing.map_ok(|(repaired, made)| (Found::Repaired(repaired), made));
        self.job = Some(Job::new(job, repairing).on_files(Some(progress)));
    }
}
