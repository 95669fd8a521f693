//! Carrying out moves and repairs of a conversation's files, once none of the daemon's agents writes to them.

use std::sync::Arc;

use futures_util::TryFutureExt;

use super::super::{Actor, Job};
use crate::conversation::destination::Destination;
use crate::conversation::effect::Found;
use crate::conversation::keeping::Depth;
use crate::conversation::moving;
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
        let (services, record) = (Arc::clone(&self.services), self.model.record.clone());
        let (closed, finishing) = (self.closed.clone(), self.finishing.take());
        let counted = Arc::clone(&progress);
        let moving = async move {
            closed.ended().await?;
            if let Some(finishing) = finishing {
                // Afterwards the next start could not see that they are where they went. What could not be deleted is in the log.
                let _finished = finishing.await;
            }
            let work = move |services: &Arc<_>| {
                moving::carry_out(services, &record, &destination, &neighbours, &counted)
            };
            let (answer, made) = services.blocking(work).await??;
            Ok((Found::Moved(answer), made))
        };
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
