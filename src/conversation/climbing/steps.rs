//! The steps of a climb that use the disk: checking, moving back, copying and retelling.

use std::sync::Arc;

use bridge_protocol::CheckpointId;
use bridge_protocol::id::UpstreamId;
use bridge_protocol::link::{Fidelity, LinkReason, Relation, Via};
use tokio::task::JoinHandle;

use super::{Climber, Outcome, Unclaimed, inspection};
use crate::agent::pool::Lease;
use crate::archive::MissingTurns;
use crate::conversation::disk;
use crate::conversation::error::ConversationError;
use crate::conversation::keeping;
use crate::conversation::recovery::{Climb, Goal, Inspection, StepFailure};
use crate::conversation::services::{SessionRef, chain_text};
use crate::transcript::TranscriptError;
use crate::transcript::on_disk::OnDisk;

impl Outcome {
    /// A step could not read or write its files. What may pass stops the climb: later rungs would meet it too, or replace the head
    /// with less. A caller who accepts a new session waits for a shortage only.
    fn of_files(error: TranscriptError, goal: &Goal, failure: impl FnOnce(String) -> StepFailure) -> Self {
        let waits = goal.min_fidelity > Fidelity::None;
        match error.is_shortage() || waits && error.is_passing() {
            true => Self::Stop(error.into()),
            false => Self::Failed(failure(chain_text(&error))),
        }
    }
}

impl Climber {
    /// What the disk says of the head, read on a thread of its own.
    pub(super) fn look_at_head(&self, goal: &Goal) -> JoinHandle<Result<Option<OnDisk>, TranscriptError>> {
        let listed = self.entry.listed_transcripts();
        let listed = listed.map(|(root, format)| (root.to_path_buf(), format));
        let cwd = self.record.cwd.clone();
        let head = goal.head.clone();
        self.services.blocking(move |services| match (listed, head) {
            (Some((root, format)), Some(head)) => {
                disk::head_on_disk((format.dialect(), services.home(&root)), &cwd, &head)
            }
            _ => Ok(None),
        })
    }

    /// What the disk says of the head, its ancestors and the history.
    ///
    /// # Errors
    /// As [`inspection::inspect`].
    pub(super) async fn inspect(&self, climb: &Climb) -> Result<Inspection, ConversationError> {
        let Some((root, format)) = self.entry.listed_transcripts() else {
            return Ok(Inspection::default());
        };
        let dialect = format.dialect();
        // Without copies only a retelling is left, and what the agent has and does not open for another reason is not left
        // for that.
        if !climb.goal().readable && !climb.is_forgotten() {
            return Ok(Inspection::default());
        }
        let (root, record) = (root.to_path_buf(), self.record.clone());
        let (goal, entry) = (climb.goal().clone(), Arc::clone(&self.entry));
        let inspect = self.services.blocking(move |services| {
            if goal.head.as_ref().is_some_and(|head| !head.written) {
                // What was branched off and never prompted is made again of what it came from.
                let sources = goal.ancestors.iter().map(|source| &source.upstream_id);
                keeping::put_back_whole(services, &entry, &record, sources);
            }
            let lineage = services.store.lineage_all(record.id)?;
            let transcripts = (dialect, services.home(&root));
            let found = inspection::inspect(services, transcripts, &record, &lineage, &goal)?;
            let head = goal.head.as_ref().map(|head| &head.upstream_id);
            let is_kept = head.is_some_and(|id| {
                keeping::is_missing(services, &root, format, &record.cwd, id)
                    && keeping::is_kept(services, &root, id)
            });
            Ok::<_, ConversationError>(Inspection { is_kept, ..found })
        });
        let unread = |error: String| Inspection {
            unread: Some(error),
            ..Inspection::default()
        };
        match inspect.await {
            Ok(Err(error)) if !error.is_passing_failure() => Ok(unread(chain_text(&error))),
            Ok(inspected) => inspected,
            Err(error) => Ok(unread(error.to_string())),
        }
    }

    /// Whether it is certain which transcript of a session the agent opens.
    pub(super) async fn is_single(&self, id: &UpstreamId) -> Result<(), Outcome> {
        let Some((root, format)) = self.entry.listed_transcripts() else {
            return Ok(());
        };
        let (root, cwd, id) = (root.to_path_buf(), self.record.cwd.clone(), id.clone());
        let look = self
            .services
            .blocking(move |services| format.dialect().is_ambiguous(services.session(&root, &cwd, &id)));
        match look.await {
            Ok(true) => Err(Outcome::Failed(StepFailure::SessionUnknown(format!(
                "several transcripts have its id, and none is in the folder of {}",
                self.record.cwd
            )))),
            // Whatever else is wrong the agent says.
            Ok(false) | Err(_) => Ok(()),
        }
    }

    /// Puts the transcript of a session where the agent looks for it.
    pub(super) async fn bring_back(&self, goal: &Goal, id: &UpstreamId) -> Result<(), Outcome> {
        let misplaced = |why| Outcome::Failed(StepFailure::Misplaced(why));
        let Some((root, format)) = self.entry.listed_transcripts() else {
            return Err(misplaced("the folder for its transcript is unknown".to_owned()));
        };
        let (root, session) = (root.to_path_buf(), id.clone());
        let moving =
            tokio::task::spawn_blocking(move || format.dialect().bring_back(&root, session.as_str()));
        match moving.await {
            Ok(Ok(place)) => {
                tracing::info!(conversation = %self.record.id, upstream_id = %id, place = %place.display(), "moved a transcript back to where its agent looks for it");
                Ok(())
            }
            Ok(Err(error)) => Err(Outcome::of_files(error, goal, StepFailure::Misplaced)),
            Err(error) => Err(misplaced(error.to_string())),
        }
    }

    /// Restores our backup of the head's transcript to the place where the agent looks, and the backups of the sessions
    /// before it, which its history may continue. If those fail, the resume continues without them.
    pub(super) async fn restore(&mut self, goal: &Goal, id: &UpstreamId) -> Result<(), Outcome> {
        let failed = |why| Outcome::Failed(StepFailure::Other(why));
        let Some((root, _)) = self.entry.listed_transcripts() else {
            return Err(failed("the folder for its transcript is unknown".to_owned()));
        };
        let (root, record, head) = (root.to_path_buf(), self.record.clone(), id.clone());
        let ancestors: Vec<UpstreamId> = goal
            .ancestors
            .iter()
            .map(|ancestor| ancestor.upstream_id.clone())
            .collect();
        let entry = Arc::clone(&self.entry);
        let head_turns = goal
            .head
            .as_ref()
            .map_or(0, |head| head.turns + head.carried_turns);
        let work = self.services.blocking(move |services| {
            let put_back = |id: &UpstreamId| {
                let cwd = SessionRef::of(&record, id).cwd;
                keeping::restore(services, &entry, Some(&cwd), id)
            };
            for older in ancestors {
                if let Err(error) = put_back(&older)
                    && !error.is_absence()
                {
                    tracing::warn!(upstream_id = %older, error = chain_text(&error), "an older session could not be restored");
                }
            }
            let restored = put_back(&head)?;
            let key = keeping::key(&root, &head);
            let behind = services.keeper.archive.turns_behind(&key, head_turns)?;
            Ok::<_, TranscriptError>((restored, behind))
        });
        match work.await {
            Ok(Ok((restored, behind))) => {
                self.kept_lacks = behind.map_or(0, MissingTurns::turns);
                if behind == Some(MissingTurns::Unknown) {
                    self.unreported = behind;
                }
                tracing::info!(conversation = %self.record.id, upstream_id = %id, ?restored, "restored a transcript from its backup");
                Ok(())
            }
            Ok(Err(error)) => Err(Outcome::of_files(error, goal, StepFailure::Other)),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    pub(super) async fn copy(
        &mut self,
        climb: &Climb,
        lease: Lease,
        source: &UpstreamId,
        until: Option<&CheckpointId>,
        via: Via,
    ) -> Outcome {
        let Some((root, format)) = self.entry.copyable_transcripts() else {
            return Outcome::Failed(StepFailure::Other(
                "this agent's transcripts cannot be copied".to_owned(),
            ));
        };
        let (root, cwd, id, cut) = (
            root.to_path_buf(),
            self.record.cwd.clone(),
            source.clone(),
            until.cloned(),
        );
        let agent = self.entry.name.clone();
        let copied = self.services.blocking(move |services| {
            let transcripts = (format.dialect(), services.home(&root));
            let noting = |id: &_, path: &_| services.note_copy(id, path);
            let (new_id, path, place) = match via {
                Via::Rebuilt => disk::rebuild_session(transcripts, &cwd, &agent, &id, noting)?,
                _ => {
                    let (new_id, path) =
                        disk::copy_session(transcripts, (&cwd, &cwd), &id, cut.as_ref(), noting)?;
                    let end = || {
                        disk::last_checkpoint(transcripts, &cwd, &agent, &id)
                            .ok()
                            .flatten()
                    };
                    (new_id, path, cut.or_else(end))
                }
            };
            services.note_whole_copy(&new_id, &path);
            services.old_bytes.note_copied(&new_id, &path);
            let copy = services.copies.uncommitted(&new_id, path);
            let file = disk::seen(disk::on_disk(transcripts, &cwd, &new_id, None));
            let is_whole = file.as_ref().is_some_and(|file| file.breaks == 0);
            // The answer will say what the copy was to hold.
            let copy = Some(copy).filter(|_| via != Via::Rebuilt || is_whole);
            Ok::<_, TranscriptError>((new_id, copy, place, file.map_or(0, |file| file.turns)))
        });
        let (new_id, copy, place, turns) = match copied.await {
            Ok(Ok((new_id, Some(copy), place, turns))) => (new_id, copy, place, turns),
            Ok(Ok((_, None, ..))) => {
                let why = "its repaired copy would be incomplete too".to_owned();
                return Outcome::Failed(StepFailure::Other(why));
            }
            Ok(Err(error)) => return Outcome::of_files(error, climb.goal(), StepFailure::Other),
            Err(error) => return Outcome::Failed(StepFailure::Other(error.to_string())),
        };
        let mut link = self.older_link(climb, &new_id, source);
        link.from_checkpoint_id = place;
        link.carried_turns = turns;
        link.written = true;
        link.reason = match via {
            Via::Copied => LinkReason::Copied,
            Via::Rebuilt => LinkReason::Rebuilt,
            _ => link.reason,
        };
        let opening = self.reopening(climb, new_id.clone());
        let mut held = Unclaimed {
            session: None,
            copy: Some((new_id, copy)),
            closed: self.closed.clone(),
        };
        let mut outcome = self.open(lease, &opening, Some(link), None).await;
        if let Outcome::Open(open, ..) = &mut outcome {
            open.0.copy = held.copy.take().map(|(_, copy)| copy);
        }
        held.close().await;
        outcome
    }

    pub(super) async fn text(&mut self, climb: &Climb, lease: Lease) -> Outcome {
        let (record, goal) = (self.record.clone(), climb.goal().clone());
        let told = self.services.blocking(move |services| {
            let lineage = services.store.lineage_all(record.id).ok()?;
            let (preamble, place) = inspection::retell(services, &record, &lineage, &goal);
            Some((preamble?, place))
        });
        let Ok(Some((preamble, place))) = told.await else {
            return Outcome::Failed(StepFailure::Other("there is nothing to retell".to_owned()));
        };
        let mut link = self.fresh_link(climb);
        let head = self.record.chain.head();
        link.reason = LinkReason::Rolled;
        link.relation = Relation::Follows;
        link.from_upstream_id = head.map(|head| head.upstream_id.clone());
        link.from_checkpoint_id = place;
        link.cause = Some(climb.cause());
        self.open(lease, &self.anew(), Some(link), Some(preamble.text))
            .await
    }
}
