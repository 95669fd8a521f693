//! Carrying out what is done to the files of a conversation: moves and repairs. They wait until nobody of ours has them open.

use std::sync::Arc;

use super::super::{Actor, JobDone};
use crate::conversation::destination::Destination;
use crate::conversation::effect::Input;
use crate::conversation::error::ConversationError;
use crate::conversation::moving::{self, MoveRequest};
use crate::conversation::repairing::{self, Done, RepairRequest};
use crate::conversation::services::chain_text;
use crate::conversation::work::Progress;
use crate::transcript::moving::Moving;
use crate::transcript::moving::SharedNeighbours;

impl Actor {
    /// Takes the files into another folder, once nobody of ours has them open.
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
            noting: self.noting.take(),
            progress,
            neighbours,
        };
        let moving = moving::carry_out(Arc::clone(&self.services), request);
        self.job = Some(Box::pin(async move {
            JobDone::Moved(job, moving.await.map(Box::new))
        }));
    }

    /// The move is on disk. That it is done is noted beside the loop: until then the next life would find that out.
    pub(in crate::conversation::actor) fn keep_move(&mut self) {
        let Some(moved) = self.moved.take() else { return };
        self.noting = Some(tokio::task::spawn_blocking(move || {
            if let Err(error) = moved.keep() {
                tracing::warn!(
                    error = chain_text(&error),
                    "the end of a move could not be noted; the next start does"
                );
            }
        }));
    }

    pub(super) fn take_move_back(&mut self, job: u64) {
        let moved = self.moved.take();
        self.job = Some(Box::pin(async move {
            let back = tokio::task::spawn_blocking(move || moved.is_none_or(Moving::take_back));
            if !matches!(back.await, Ok(true)) {
                tracing::error!(
                    "a move that could not be written down could not be taken back wholly either"
                );
            }
            JobDone::MovedBack(job)
        }));
    }

    /// Makes a repaired copy of the head, once nobody of ours has it open.
    pub(super) fn repair(&mut self, job: u64, output_limit: Option<u64>, progress: Arc<Progress>) {
        let request = RepairRequest {
            record: self.model.record.clone(),
            output_limit,
            closed: self.closed.clone(),
            progress,
        };
        let repairing = repairing::carry_out(Arc::clone(&self.services), request);
        self.job = Some(Box::pin(async move {
            JobDone::Repaired(job, repairing.await.map(Box::new))
        }));
    }

    /// Takes a copy that was made in hand until it is written down whose it is.
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
