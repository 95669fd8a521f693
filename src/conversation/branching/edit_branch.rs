//! Makes the branch of an edit. It ends before the replaced turn and is opened in advance, so that only the new prompt
//! remains to be sent.

use std::sync::Arc;

use bridge_protocol::conversation::BranchedVia;
use bridge_protocol::link::{Attempt, Fidelity, LinkReason, Relation, Resumed, Via};

use super::BranchJob;
use crate::agent::pool::Urgency;
use crate::chain::{Chain, NewLink};
use crate::conversation::climbing::{self, ClimbRequest, acquire_process};
use crate::conversation::edit::EditBranch;
use crate::conversation::effect::{NewBranch, OpenedSession};
use crate::conversation::error::ConversationError;
use crate::conversation::folder::check_folder;
use crate::conversation::history::{BranchPoint, History, TranscriptScope};
use crate::conversation::resource::UnrecordedResource;
use crate::conversation::services::now;
use crate::conversation::upstream::{self, OpenMode, UpstreamSession};
use crate::store::ConversationRecord;
use crate::transcript::checkpoint::{CheckpointRef, PlaceRef};
use crate::transcript::preamble::{MissingTurnCounts, TURN_LIMIT, build_preamble};

impl BranchJob {
    /// Makes the branch that ends before the turn, and opens it. The conversation does not change.
    ///
    /// # Errors
    /// If the branch could not be made or opened.
    pub(in crate::conversation) async fn edit(
        mut self,
        at: PlaceRef,
    ) -> Result<(EditBranch, UpstreamSession), ConversationError> {
        self.services
            .read_at_folder(&self.record.cwd, check_folder)
            .await?;
        self.services.check_project(&self.entry, &self.record.cwd).await?;
        // The head is needed to count the turns that the edit drops.
        let head = self.record.chain.head().map(|head| head.upstream_id.clone());
        let sessions = head.into_iter().chain([at.upstream_id().into()]);
        self.restore_missing(sessions.collect()).await?;
        let (place, dropped) = self.blocking(move |job| job.point_before_turn(&at)).await?;
        let Some(place) = place else {
            let (edited, session) = self.new_session().await?;
            return Ok((EditBranch { dropped, ..edited }, session));
        };
        let branch = match self.branch_at(&place).await {
            Ok((branched, made)) => self.open_branch(branched, made).await,
            Err(error) => Err(error),
        };
        let (edited, session) = match branch {
            Ok(done) => done,
            Err(error) if self.min_fidelity <= Fidelity::Text && is_permanent(&error) => {
                // A history as text is better than none, as long as the answer says so.
                self.open_with_text(&place, &error).await.map_err(|()| error)?
            }
            Err(error) => return Err(error),
        };
        Ok((EditBranch { dropped, ..edited }, session))
    }

    /// Opens a new session as the branch, if the replaced turn is the first one and there is nothing to keep.
    async fn new_session(&self) -> Result<(EditBranch, UpstreamSession), ConversationError> {
        let mut record = self.record.clone();
        record.chain = Chain::default();
        let (mut opened, session) = self.climb(record, Fidelity::None).await?;
        let link = opened
            .link
            .take()
            .ok_or_else(|| not_opened_error("a new session"))?;
        opened.resumed.fidelity = Fidelity::Full;
        let link = NewLink {
            reason: LinkReason::Edited,
            relation: Relation::Fresh,
            ..link
        };
        let edited = EditBranch {
            opened,
            link,
            fidelity: Fidelity::Full,
            dropped: 0,
            via: BranchedVia::Fresh,
        };
        Ok((edited, session))
    }

    /// Opens a branch, unless the agent holds it open already.
    async fn open_branch(
        &self,
        branched: NewBranch,
        UnrecordedResource { session, copy, .. }: UnrecordedResource,
    ) -> Result<(EditBranch, UpstreamSession), ConversationError> {
        let (agent, cwd) = (self.record.agent.clone(), self.record.cwd.clone());
        let link = NewLink {
            written: branched.via == BranchedVia::Cut,
            ..branched.to_link(agent, cwd, LinkReason::Edited)
        };
        let edited = |opened, link| EditBranch {
            opened,
            link,
            fidelity: branched.fidelity,
            dropped: 0,
            via: branched.via,
        };
        if let (Some(opened), Some(session)) = (branched.opened_session, session) {
            return Ok((edited(*opened, link), session));
        }
        let mut with_branch = self.record.clone();
        // This copy of the record is used only for the climb; it is not stored.
        let _not_written = with_branch.chain.append(link.clone(), branched.fidelity, now());
        let closed = &self.closed_sessions;
        let error = match self.climb(with_branch, Fidelity::Partial).await {
            Ok((opened, mut session)) if opened.upstream_id == link.upstream_id => {
                session.copy = copy;
                let opened = OpenedSession { link: None, ..opened };
                return Ok((edited(opened, link), session));
            }
            Ok((_, session)) => {
                closed.close(session).wait_until_closed().await;
                not_opened_error("the branch that was cut")
            }
            Err(error) => error,
        };
        if let Some(copy) = copy {
            closed.remove_copy(&link.upstream_id, copy).await;
        }
        Err(error)
    }

    async fn climb(
        &self,
        record: ConversationRecord,
        min_fidelity: Fidelity,
    ) -> Result<(OpenedSession, UpstreamSession), ConversationError> {
        let request = ClimbRequest {
            record,
            client: self.client.clone(),
            min_fidelity,
            resends_interrupted_prompt: false,
            replay: None,
            refused: Vec::new(),
            urgency: Urgency::Now,
            // A new branch has a new id, so no session with that id is being closed.
            closing_sessions: Vec::new(),
            closed_sessions: self.closed_sessions.clone(),
        };
        climbing::climb(Arc::clone(&self.services), request).await
    }

    /// Opens a new session that gets the turns before the place as text. Fails if there are no such turns.
    async fn open_with_text(
        &self,
        point: &BranchPoint,
        why: &ConversationError,
    ) -> Result<(EditBranch, UpstreamSession), ()> {
        let (services, entry, record) = (&self.services, &self.entry, &self.record);
        let until = point.checkpoint.clone();
        let building = self.blocking(move |job| {
            let at: Option<CheckpointRef> = until.as_str().parse().ok();
            let Some(at) = at else { return Ok(None) };
            let scope = TranscriptScope::AgentFiles;
            let mut history = History::ending_at_checkpoint(&job.services, &until, &at, scope)?;
            let turns = history.past_turns(TURN_LIMIT);
            let missing = MissingTurnCounts {
                before: history.turns().saturating_sub(turns.len()),
                after: 0,
            };
            Ok(build_preamble(&turns, missing))
        });
        let preamble = building.await.ok().flatten().ok_or(())?;
        let lease = acquire_process(services, entry).await.map_err(drop)?;
        let opened = upstream::open_session(
            services,
            entry,
            lease,
            &OpenMode::New {
                last_mode: record.reported.mode.clone(),
            },
            &record.cwd,
            record,
            &self.closed_sessions,
        )
        .await;
        let (session, answer) = opened.map_err(drop)?;
        let attempt = |via, error| Attempt {
            upstream_id: None,
            via,
            error,
        };
        let resumed = Resumed {
            upstream_id: answer.upstream_id.clone(),
            via: Via::Text,
            fidelity: Fidelity::Text,
            missing_turns: 0,
            attempts: vec![
                attempt(Via::Copied, Some(why.to_string())),
                attempt(Via::Text, None),
            ],
        };
        let link = NewLink {
            relation: Relation::Follows,
            from_upstream_id: Some(point.session.clone()),
            from_checkpoint_id: Some(point.checkpoint.clone()),
            ..NewLink::new(
                answer.upstream_id.clone(),
                record.agent.clone(),
                record.cwd.clone(),
                LinkReason::Edited,
            )
        };
        let opened = OpenedSession {
            preamble: Some(preamble.text),
            ..answer.into_opened(&session, resumed)
        };
        let edited = EditBranch {
            opened,
            link,
            fidelity: Fidelity::Text,
            dropped: 0,
            via: BranchedVia::Text,
        };
        Ok((edited, session))
    }
}

/// Whether an error is permanent, so that the branch cannot be made later either. Temporary errors are no reason to fall
/// back to text.
fn is_permanent(error: &ConversationError) -> bool {
    matches!(
        error,
        ConversationError::NotResumable { .. }
            | ConversationError::Unsupported(_)
            | ConversationError::TranscriptDamaged(_)
            | ConversationError::AgentError { .. }
            | ConversationError::SettingRefused { .. }
    )
}

fn not_opened_error(what: &str) -> ConversationError {
    ConversationError::AgentError {
        message: format!("the agent did not open {what}; the conversation is as it was"),
        upstream: None,
    }
}
