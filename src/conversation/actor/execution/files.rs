//! Carries out moves and repairs of a conversation's files, once none of the daemon's agents writes to them.

use std::sync::Arc;

use super::super::{Actor, Job};
use crate::conversation::backup::BackupMode;
use crate::conversation::effect::{MoveRequest, WorkResult};
use crate::conversation::moving;
use crate::conversation::repairing;
use crate::conversation::running_work::Progress;
use crate::conversation::services::SessionRef;

impl Actor {
    /// Moves the files to another folder, once no agent writes to them.
    pub(super) fn move_files(&mut self, job: u64, request: MoveRequest) {
        let (services, record) = (Arc::clone(&self.services), self.model.record.clone());
        let (closed, finishing) = (self.closed_sessions.clone(), self.move_cleanup.take());
        let progress = Arc::clone(&request.progress);
        let moving = async move {
            closed.wait_until_ended().await?;
            if let Some(finishing) = finishing {
                // Otherwise the next start could not see where an earlier move put the files. Failed deletions are logged.
                let _finished = finishing.await;
            }
            let work = move |services: &Arc<_>| {
                let (to, neighbours) = (&request.destination, &request.neighbours);
                moving::move_conversation_files(services, &record, to, neighbours, &request.progress)
            };
            let (answer, made) = services.blocking(work).await??;
            Ok((WorkResult::Moved(answer), made))
        };
        self.job = Some(Job::new(job, moving).changing_files(Some(progress)));
    }

    /// Finishes a recorded move: deletes the originals without delaying the loop (after a kill, the next start deletes
    /// them), and backs up the moved transcripts, which are new files.
    pub(in crate::conversation::actor) fn keep_move(&mut self) {
        let Some(moved) = self.last_resource.files.take() else {
            return;
        };
        for link in self.model.record.chain.links().iter().filter(|link| link.written) {
            self.services
                .backups
                .request(SessionRef::from(link), BackupMode::Linked);
        }
        self.move_cleanup = Some(tokio::task::spawn_blocking(move || moved.commit()));
    }

    /// Makes a repaired copy of the head, once no agent writes to it.
    pub(super) fn repair(&mut self, job: u64, progress: Arc<Progress>) {
        let (services, record) = (Arc::clone(&self.services), self.model.record.clone());
        let (closed, counted) = (self.closed_sessions.clone(), Arc::clone(&progress));
        let repairing = repairing::repair_head(services, record, closed, counted);
        self.job = Some(Job::new(job, repairing).changing_files(Some(progress)));
    }
}
