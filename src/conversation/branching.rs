//! Makes a branch of a session: the agent's own fork where it has one, else a copy of its transcript.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bridge_protocol::id::{CheckpointId, UpstreamId};
use bridge_protocol::link::{Attempt, Fidelity, Resumed, Via};

use crate::agent::catalog::AgentEntry;
use crate::agent::message::CallError;
use crate::store::ConversationRecord;
use crate::transcript::TranscriptError;
use crate::transcript::library::Library;

use super::climbing::{acquire, check_folder, refuse_known};
use super::disk;
use super::effect::{Branched, Opened};
use super::error::ConversationError;
use super::growth::Tally;
use super::recovery::OnDisk;
use super::services::{Services, chain_text};
use super::upstream::{self, OpenError, Opening, UpstreamSession};

/// What to branch, and how.
pub(super) struct BranchRequest {
    /// The conversation as it stands.
    pub record: ConversationRecord,
    /// The session to branch off.
    pub from: UpstreamId,
    /// The place in it, where somebody named one.
    pub at: Option<CheckpointId>,
    /// The branch's folder.
    pub cwd: String,
    /// Whether a turn runs in it, so that what is not finished has to be left out.
    pub busy: bool,
    /// The least that the branch has to keep.
    pub min_fidelity: Fidelity,
}

impl BranchRequest {
    /// Turns acknowledged on the session that is branched off.
    fn acknowledged(&self) -> u64 {
        let links = self.record.chain.links();
        let link = links.iter().find(|link| link.upstream_id == self.from);
        link.map_or(0, |link| link.carried_turns + link.turns)
    }

    /// How many of them it took along from elsewhere.
    fn carried(&self) -> u64 {
        let links = self.record.chain.links();
        let link = links.iter().find(|link| link.upstream_id == self.from);
        link.map_or(0, |link| link.carried_turns)
    }
}

/// What the disk says of a session.
#[derive(Default)]
struct Look {
    /// The place after its last turn.
    place: Option<CheckpointId>,
    /// How many turns it holds.
    turns: u64,
    /// How many of those that were acknowledged it lacks.
    missing_turns: u64,
    /// How many prompts stand in the branch, where it is there already.
    prompts: Option<u64>,
    /// Whether it is there and cannot be read, so that nobody knows what it lacks.
    is_unread: bool,
}

impl Look {
    fn at(file: Result<Option<OnDisk>, TranscriptError>, acknowledged: u64) -> Self {
        let is_unread = file.is_err();
        let file = disk::seen(file);
        Self {
            place: None,
            prompts: None,
            turns: file.as_ref().map_or(0, |file| file.turns),
            missing_turns: file.map_or(0, |file| file.missing_turns(acknowledged)),
            is_unread,
        }
    }

    /// What a branch with this transcript keeps.
    fn fidelity(&self) -> Fidelity {
        if self.missing_turns == 0 && !self.is_unread {
            Fidelity::Full
        } else {
            Fidelity::Partial
        }
    }
}

/// How many turns a branch has to hold: those that were acknowledged on its source, but of a source in which somebody went
/// back within the agent those that stand at the `place` where it is branched off. What was gone back behind is never taken
/// along, and what stands behind the place is none of those that were acknowledged.
fn expected(source: Option<&OnDisk>, place: Option<&OnDisk>, acknowledged: u64) -> u64 {
    let (Some(source), Some(place)) = (source, place) else {
        return acknowledged;
    };
    let running = source.turns.saturating_sub(place.turns);
    let place = OnDisk {
        turns_anywhere: source.turns_anywhere.saturating_sub(running),
        ..place.clone()
    };
    match place.went_back(acknowledged) {
        true => place.turns,
        false => acknowledged,
    }
}

/// Makes the branch.
///
/// # Errors
/// Why there is none; the source is as it was.
pub(super) async fn branch(
    services: Arc<Services>,
    request: BranchRequest,
) -> Result<(Branched, Option<UpstreamSession>), ConversationError> {
    let entry = services.agent(&request.record.agent)?;
    check_folder(&request.cwd)?;
    refuse_too_little(&services, &entry, &request).await?;
    let mut native_error = None;
    // A fork while a turn runs takes the unanswered prompt along, and one of the whole session takes all: the copy can leave
    // that out.
    if !request.busy && request.at.is_none() {
        match native(&services, &entry, &request).await {
            Ok(made) => return Ok(made),
            Err(error) => native_error = Some(error),
        }
    }
    match copy(&services, &entry, &request).await {
        Ok(branched) => Ok((branched, None)),
        Err(copy_error) => Err(match native_error {
            Some(ConversationError::Unsupported(_)) | None => copy_error,
            Some(error) => error,
        }),
    }
}

/// Refuses a branch that would keep less than was asked for, before anything is made that would have to be taken back.
async fn refuse_too_little(
    services: &Arc<Services>,
    entry: &Arc<AgentEntry>,
    request: &BranchRequest,
) -> Result<(), ConversationError> {
    // A branch never keeps less than a part of the history.
    if request.min_fidelity <= Fidelity::Partial {
        return Ok(());
    }
    let (acknowledged, carried) = (request.acknowledged(), request.carried());
    let look = on_disk(
        services,
        entry,
        &request.record.cwd,
        &request.from,
        move |library, root, cwd, _, id| Look::at(of_source(library, root, cwd, id, carried), acknowledged),
    );
    let look = look.await?;
    if look.fidelity() >= request.min_fidelity {
        return Ok(());
    }
    let missing_turns = look.missing_turns;
    Err(ConversationError::NotResumable {
        wanted: request.min_fidelity,
        attempts: vec![Attempt {
            upstream_id: Some(request.from.clone()),
            via: Via::Live,
            error: Some(match look.is_unread {
                true => "its transcript is there and cannot be read, so that nobody knows what a branch would lack"
                    .to_owned(),
                false => format!(
                    "its transcript has lost turns, {missing_turns} at least, and a branch would lack them too"
                ),
            }),
        }],
    })
}

async fn native(
    services: &Arc<Services>,
    entry: &Arc<AgentEntry>,
    request: &BranchRequest,
) -> Result<(Branched, Option<UpstreamSession>), ConversationError> {
    let lease = acquire(services, entry).await?;
    let capabilities = lease.initialized().capabilities;
    if !capabilities.fork {
        return Err(ConversationError::Unsupported(format!(
            "the agent {} cannot fork a session",
            entry.name
        )));
    }
    let opening = Opening::Fork(request.from.clone());
    let settings = &request.record.settings;
    let opened = upstream::open(services, entry, lease, &opening, &request.cwd, settings).await;
    let (mut session, answer) = opened.map_err(|error| fork_error(entry, &error))?;
    if let Err(error) = refuse_known(services, entry, &session, &answer.upstream_id) {
        upstream::close(session, false, Duration::ZERO).await;
        return Err(error);
    }
    let (acknowledged, carried) = (request.acknowledged(), request.carried());
    let branch = answer.upstream_id.clone();
    let look = on_disk(
        services,
        entry,
        &request.record.cwd,
        &request.from,
        move |library, root, cwd, agent, id| {
            let source = of_source(library, root, cwd, id, carried);
            let expected = match &source {
                Ok(source) => expected(source.as_ref(), source.as_ref(), acknowledged),
                Err(_) => acknowledged,
            };
            // An agent that writes the branch later has nothing but the source to show for it.
            let file = match disk::on_disk(library, root, cwd, &branch, None) {
                Ok(None) => source,
                branch => branch,
            };
            Look {
                place: disk::last_checkpoint(library, root, cwd, agent, id),
                prompts: disk::prompts(library, root, cwd, &branch),
                ..Look::at(file, expected)
            }
        },
    )
    .await?;
    session.tally = Tally::of(look.prompts);
    let fidelity = look.fidelity();
    let resumed = Resumed {
        upstream_id: answer.upstream_id.clone(),
        via: Via::Live,
        fidelity,
        missing_turns: look.missing_turns,
        attempts: vec![Attempt {
            upstream_id: Some(answer.upstream_id.clone()),
            via: Via::Live,
            error: None,
        }],
    };
    let opened = Opened {
        upstream_id: answer.upstream_id.clone(),
        link: None,
        cause: None,
        resumed,
        preamble: None,
        loaded: None,
        can_reopen: capabilities.resume || capabilities.load_session,
        modes: answer.modes,
        config_options: answer.config_options,
    };
    let branched = Branched {
        upstream_id: answer.upstream_id,
        checkpoint: look.place,
        fidelity,
        turns: look.turns,
        open: Some(Box::new(opened)),
    };
    Ok((branched, Some(session)))
}

fn fork_error(entry: &AgentEntry, error: &OpenError) -> ConversationError {
    match error {
        OpenError::Call(CallError::Unsupported(_)) => {
            ConversationError::Unsupported(format!("the agent {} cannot fork a session", entry.name))
        }
        _ => upstream::conversation_error(entry, error),
    }
}

/// A copy of the transcript under a new id, up to the place that was named, or the turn before the one that is running.
async fn copy(
    services: &Arc<Services>,
    entry: &Arc<AgentEntry>,
    request: &BranchRequest,
) -> Result<Branched, ConversationError> {
    let Some(root) = entry.readable_transcripts() else {
        let when = match (&request.at, request.busy) {
            (Some(_), _) => " at a checkpoint",
            (None, true) => " while a turn runs",
            (None, false) => "",
        };
        return Err(ConversationError::Unsupported(format!(
            "the agent {} offers no fork{when} and its transcripts cannot be cut",
            entry.name
        )));
    };
    // A turn that was not sent yet, or has ended, needs not be left out.
    let running_since = request.record.turn.as_ref().map(|turn| turn.accepted_at);
    let (acknowledged, carried) = (request.acknowledged(), request.carried());
    let pick =
        move |library: &Library, root: &Path, cwd: &str, agent: &str, id: &UpstreamId| match running_since {
            Some(since) => disk::last_before(library, root, cwd, agent, id, since),
            None => disk::last_checkpoint(library, root, cwd, agent, id),
        };
    let place = match &request.at {
        Some(at) => Some(at.clone()),
        None => on_disk(services, entry, &request.record.cwd, &request.from, pick).await?,
    };
    let Some(place) = place else {
        return Err(ConversationError::Busy(
            "the conversation has no finished turn to branch from yet; wait for the first one to end"
                .to_owned(),
        ));
    };
    let (root, cwd, from) = (
        root.to_path_buf(),
        request.record.cwd.clone(),
        request.from.clone(),
    );
    let until = place.clone();
    let is_named = request.at.is_some();
    let services = Arc::clone(services);
    let task = tokio::task::spawn_blocking(move || {
        let library = &services.library;
        // Before the copy is made, which would else be left behind.
        let whole = of_source(library, &root, &cwd, &from, carried)?;
        let up_to_cut = disk::on_disk(library, &root, &cwd, &from, Some(&until))?;
        // Where somebody named the place, what stands behind it is not owed; what the source has lost may be from before.
        let owed = match (is_named, &whole, &up_to_cut) {
            (true, Some(whole), Some(kept)) => kept.turns + whole.missing_turns(acknowledged),
            _ => expected(whole.as_ref(), up_to_cut.as_ref(), acknowledged),
        };
        let (new_id, path) = disk::copy_session(library, &root, &cwd, &from, Some(&until))?;
        services.old_bytes.note_copied(&new_id, &path);
        let file = disk::on_disk(library, &root, &cwd, &new_id, None);
        Ok((new_id, Look::at(file, owed)))
    });
    let copied = task
        .await
        .map_err(|error| ConversationError::StoreFailed(error.to_string().into()))?;
    let (upstream_id, look) = copied.map_err(|error: TranscriptError| match error {
        TranscriptError::RecordNotFound { .. } => ConversationError::NotFound {
            what: format!("the session {} has no checkpoint {place}", request.from),
        },
        error => ConversationError::AgentError {
            message: format!("the branch could not be cut: {}", chain_text(&error)),
            upstream: None,
        },
    })?;
    Ok(Branched {
        upstream_id,
        checkpoint: Some(place),
        fidelity: look.fidelity(),
        turns: look.turns,
        open: None,
    })
}

/// What the disk says of the session that is branched off.
fn of_source(
    library: &Library,
    root: &Path,
    cwd: &str,
    id: &UpstreamId,
    carried: u64,
) -> Result<Option<OnDisk>, TranscriptError> {
    let found = disk::on_disk(library, root, cwd, id, None)?;
    Ok(found.map(|source| source.with_carried(carried)))
}

/// Asks the disk about a session; nothing is known where the transcripts cannot be read.
async fn on_disk<T: Default + Send + 'static>(
    services: &Arc<Services>,
    entry: &Arc<AgentEntry>,
    cwd: &str,
    id: &UpstreamId,
    pick: impl FnOnce(&Library, &Path, &str, &str, &UpstreamId) -> T + Send + 'static,
) -> Result<T, ConversationError> {
    let Some(root) = entry.readable_transcripts() else {
        return Ok(T::default());
    };
    let (root, cwd, id, agent) = (root.to_path_buf(), cwd.to_owned(), id.clone(), entry.name.clone());
    let services = Arc::clone(services);
    let task = tokio::task::spawn_blocking(move || pick(&services.library, &root, &cwd, agent.as_str(), &id));
    task.await
        .map_err(|error| ConversationError::StoreFailed(error.to_string().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_owes_what_was_acknowledged_and_was_not_gone_back_behind() {
        let file = |turns, turns_anywhere| OnDisk {
            repaired_turns: 0,
            turns,
            turns_at_most: turns,
            turns_anywhere,
            last_is_cut: false,
            breaks: 0,
        };
        // The source, the place (which is read without what stands on other branches), how many were acknowledged, how many
        // the branch has to hold.
        let table = [
            (file(4, 4), file(4, 0), 4, 4),
            (file(4, 11), file(4, 0), 10, 4),
            (file(4, 9), file(4, 0), 10, 10),
            // A turn runs that nobody has acknowledged yet: it makes good for none that is lost.
            (file(5, 5), file(4, 0), 4, 4),
            (file(4, 4), file(3, 0), 4, 4),
            (file(5, 12), file(4, 0), 10, 4),
            (file(5, 10), file(4, 0), 10, 10),
            // Damage.
            (file(4, 0), file(4, 0), 10, 10),
        ];
        for (source, place, acknowledged, owed) in table {
            assert_eq!(
                expected(Some(&source), Some(&place), acknowledged),
                owed,
                "{source:?}, {place:?}, {acknowledged}"
            );
        }
        assert_eq!(expected(None, None, 3), 3);
    }
}
