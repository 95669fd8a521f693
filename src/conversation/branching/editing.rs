//! The branch of an edit. It is made before the replaced turn and opened in advance, so that only the new prompt is
//! missing.

use std::sync::Arc;
use std::time::Duration;

use bridge_protocol::conversation::BranchedVia;
use bridge_protocol::link::{Attempt, Fidelity, LinkReason, Relation, Resumed, Via};

use super::places::{self, Left, Place};
use super::{BranchRequest, blocking, branch_at, lost, refuse_too_little};
use crate::agent::catalog::AgentEntry;
use crate::agent::client::ClientProfile;
use crate::agent::pool::Urgency;
use crate::chain::{Chain, NewLink};
use crate::conversation::climbing::{self, ClimbRequest, acquire};
use crate::conversation::closed_sessions::ClosedSessions;
use crate::conversation::edit::Edited;
use crate::conversation::effect::{Branched, Opened};
use crate::conversation::error::ConversationError;
use crate::conversation::folder::check_folder;
use crate::conversation::history::{History, Reach};
use crate::conversation::resource::Resource;
use crate::conversation::services::{Services, now};
use crate::conversation::upstream::{self, Opening, UpstreamSession};
use crate::conversation::work::Progress;
use crate::store::ConversationRecord;
use crate::transcript::checkpoint::{CheckpointRef, PlaceRef};
use crate::transcript::preamble::{Missing, TURN_LIMIT, preamble};

/// Which prompt is replaced.
pub(in crate::conversation) struct EditRequest {
    /// The conversation as it stands.
    pub record: ConversationRecord,
    /// The client for which its agent runs; none for the daemon itself.
    pub client: Option<Arc<ClientProfile>>,
    /// The turn, by a place in it.
    pub at: PlaceRef,
    /// The least that the branch has to keep.
    pub min_fidelity: Fidelity,
    /// Where is counted what is read.
    pub progress: Arc<Progress>,
    /// Gets the sessions that are opened and closed on the way.
    pub closed: ClosedSessions,
}

/// Makes the branch that ends before the turn, and opens it. The conversation stays as it is.
///
/// # Errors
/// Why there is none.
pub(in crate::conversation) async fn edit(
    services: Arc<Services>,
    request: EditRequest,
) -> Result<(Edited, UpstreamSession), ConversationError> {
    let entry = services.agent_for(&request.record.agent, request.client.as_deref())?;
    services.look_at(&request.record.cwd, check_folder).await?;
    lost::before_edit(&services, &entry, &request).await?;
    let (record, at) = (request.record.clone(), request.at.clone());
    let left = blocking(&services, &entry, &request.progress, move |services, entry| {
        places::before_turn(services, entry, &record, &at)
    });
    let Left { place, dropped } = left.await?;
    let Some(place) = place else {
        let (edited, session) = begin_anew(&services, &request).await?;
        return Ok((Edited { dropped, ..edited }, session));
    };
    let as_branch = BranchRequest {
        from: place.end.session.clone(),
        at: Some(request.at.clone()),
        cwd: request.record.cwd.clone(),
        busy: false,
        min_fidelity: request.min_fidelity,
        record: request.record.clone(),
        client: request.client.clone(),
        progress: Arc::clone(&request.progress),
        closed: request.closed.clone(),
    };
    refuse_too_little(&services, &entry, &as_branch).await?;
    let cut = match branch_at(&services, &entry, &as_branch, &place).await {
        Ok((branched, made)) => open_branch(&services, &request, branched, made).await,
        Err(error) => Err(error),
    };
    let (edited, session) = match cut {
        Ok(done) => done,
        Err(error) if request.min_fidelity <= Fidelity::Text && is_lasting(&error) => {
            // Told in words is better than not at all, as long as that is said.
            let told = retell(&services, &entry, &request, &place, &error).await;
            told.map_err(|()| error)?
        }
        Err(error) => return Err(error),
    };
    Ok((Edited { dropped, ..edited }, session))
}

/// What becomes the head when there is nothing to keep.
async fn begin_anew(
    services: &Arc<Services>,
    request: &EditRequest,
) -> Result<(Edited, UpstreamSession), ConversationError> {
    let mut anew = request.record.clone();
    anew.chain = Chain::default();
    let (mut opened, session) = climb(services, request, anew, Fidelity::None).await?;
    let link = opened.link.take().ok_or_else(|| unopened("a new session"))?;
    opened.resumed.fidelity = Fidelity::Full;
    let link = NewLink {
        reason: LinkReason::Edited,
        relation: Relation::Fresh,
        ..link
    };
    let edited = Edited {
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
    services: &Arc<Services>,
    request: &EditRequest,
    branched: Branched,
    Resource { session, copy, .. }: Resource,
) -> Result<(Edited, UpstreamSession), ConversationError> {
    let (agent, cwd) = (request.record.agent.clone(), request.record.cwd.clone());
    let link = NewLink {
        written: branched.via == BranchedVia::Cut,
        ..branched.link(agent, cwd, LinkReason::Edited)
    };
    let edited = |opened, link| Edited {
        opened,
        link,
        fidelity: branched.fidelity,
        dropped: 0,
        via: branched.via,
    };
    if let (Some(opened), Some(session)) = (branched.open, session) {
        return Ok((edited(*opened, link), session));
    }
    let mut with_branch = request.record.clone();
    // Of this copy of the record nothing is kept but the way to the session.
    let _not_written = with_branch.chain.append(link.clone(), branched.fidelity, now());
    let closed = &request.closed;
    let error = match climb(services, request, with_branch, Fidelity::Partial).await {
        Ok((opened, mut session)) if opened.upstream_id == link.upstream_id => {
            session.copy = copy;
            let opened = Opened { link: None, ..opened };
            return Ok((edited(opened, link), session));
        }
        Ok((_, session)) => {
            closed.close(session, false, Duration::ZERO).closed().await;
            unopened("the branch that was cut")
        }
        Err(error) => error,
    };
    if let Some(copy) = copy {
        closed.remove_copy(&link.upstream_id, copy).await;
    }
    Err(error)
}

async fn climb(
    services: &Arc<Services>,
    edit: &EditRequest,
    record: ConversationRecord,
    min_fidelity: Fidelity,
) -> Result<(Opened, UpstreamSession), ConversationError> {
    let request = ClimbRequest {
        record,
        client: edit.client.clone(),
        min_fidelity,
        refused: Vec::new(),
        urgency: Urgency::Now,
        apart: false,
        // No session that was left has the id of a new branch.
        behind: Vec::new(),
        closed: edit.closed.clone(),
    };
    climbing::climb(Arc::clone(services), request).await
}

/// A new session that gets the turns before this one as text. None if there are no such turns.
async fn retell(
    services: &Arc<Services>,
    entry: &Arc<AgentEntry>,
    request: &EditRequest,
    place: &Place,
    why: &ConversationError,
) -> Result<(Edited, UpstreamSession), ()> {
    let record = &request.record;
    let until = place.end.until.clone();
    let told = blocking(services, entry, &request.progress, move |services, _| {
        let at: Option<CheckpointRef> = until.as_str().parse().ok();
        let Some(at) = at else { return Ok(None) };
        let mut history = History::of_place(services, &until, &at, Reach::Agent)?;
        let turns = history.past_turns(TURN_LIMIT);
        let missing = Missing {
            before: history.turns().saturating_sub(turns.len()),
            behind: 0,
        };
        Ok(preamble(&turns, missing))
    });
    let preamble = told.await.ok().flatten().ok_or(())?;
    let lease = acquire(services, entry).await.map_err(drop)?;
    let opened = upstream::open(
        services,
        entry,
        lease,
        &Opening::New {
            last_mode: record.reported.mode.clone(),
        },
        &record.cwd,
        &record.settings,
        &request.closed,
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
        from_upstream_id: Some(place.end.session.clone()),
        from_checkpoint_id: Some(place.end.until.clone()),
        ..NewLink::new(
            answer.upstream_id.clone(),
            record.agent.clone(),
            record.cwd.clone(),
            LinkReason::Edited,
        )
    };
    let opened = Opened {
        preamble: Some(preamble.text),
        ..answer.opened(&session, resumed)
    };
    let edited = Edited {
        opened,
        link,
        fidelity: Fidelity::Text,
        dropped: 0,
        via: BranchedVia::Text,
    };
    Ok((edited, session))
}

/// Whether an error is permanent, so that the branch cannot be made later either. Temporary errors are no reason to fall
/// back to text.
fn is_lasting(error: &ConversationError) -> bool {
    matches!(
        error,
        ConversationError::NotResumable { .. }
            | ConversationError::Unsupported(_)
            | ConversationError::TranscriptDamaged(_)
            | ConversationError::AgentError { .. }
            | ConversationError::SettingRefused { .. }
    )
}

fn unopened(what: &str) -> ConversationError {
    ConversationError::AgentError {
        message: format!("the agent did not open {what}; the conversation is as it was"),
        upstream: None,
    }
}
