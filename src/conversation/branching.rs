//! Forking a session. A fork of the whole session uses the agent's own fork, if it has one. A fork at an earlier place
//! is a copy of the transcript that ends there; agents whose transcripts cannot be cut are asked to fork at that place.

mod editing;
mod known;
mod look;
mod places;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bridge_protocol::conversation::BranchedVia;
use bridge_protocol::id::{AgentName, UpstreamId};
use bridge_protocol::link::{Attempt, Fidelity, Link, Resumed, Via};

use crate::agent::catalog::AgentEntry;
use crate::agent::client::ClientProfile;
use crate::agent::kinds::ForkPointSupport;
use crate::agent::message::CallError;
use crate::store::ConversationRecord;
use crate::transcript::TranscriptError;
use crate::transcript::checkpoint::PlaceRef;
use crate::transcript::meter::{Meter, metered};
use crate::transcript::on_disk::OnDisk;

use super::climbing::{acquire, refuse_known};
use super::closed_sessions::ClosedSessions;
use super::disk::{self, Transcripts};
use super::effect::Branched;
use super::error::{ConversationError, StoreFailure};
use super::folder::check_folder;
use super::growth::Tally;
use super::keeping;
use super::resource::Resource;
use super::services::{Services, chain_text};
use super::upstream::{self, OpenError, Opening};
use super::work::Progress;
use look::{Look, expected};
use places::Place;

/// What to branch, and how.
pub(super) struct Branching {
    /// The rest of the daemon.
    pub services: Arc<Services>,
    /// The conversation's agent, as it runs for `client`.
    pub entry: Arc<AgentEntry>,
    /// The conversation as it stands.
    pub record: ConversationRecord,
    /// The client for which its agent runs; none for the daemon itself.
    pub client: Option<Arc<ClientProfile>>,
    /// The session to branch off.
    pub from: UpstreamId,
    /// The place to fork at, or in the turn to replace, if the caller named one; the place then determines the session.
    pub at: Option<PlaceRef>,
    /// The branch's folder.
    pub cwd: String,
    /// Whether a turn runs in it, so that what is not finished has to be left out.
    pub busy: bool,
    /// The least that the branch has to keep.
    pub min_fidelity: Fidelity,
    /// Where is counted what is read.
    pub progress: Arc<Progress>,
    /// Gets the sessions that are opened and closed on the way.
    pub closed: ClosedSessions,
}

impl Branching {
    /// Turns acknowledged on the session that is branched off, and how many of them it took along from elsewhere.
    fn acknowledged(&self) -> (u64, u64) {
        let links = self.record.chain.links();
        let link = links.iter().find(|link| link.upstream_id == self.from);
        link.map_or((0, 0), |link| {
            (link.carried_turns + link.turns, link.carried_turns)
        })
    }

    /// Makes the branch.
    ///
    /// # Errors
    /// Why there is none; the source is as it was.
    pub(super) async fn branch(mut self) -> Result<(Branched, Resource), ConversationError> {
        self.services.look_at(&self.cwd, check_folder).await?;
        self.services.check_project(&self.entry, &self.record.cwd).await?;
        let source = self.at.as_ref().map(|at| at.upstream_id().into());
        self.bring_back(vec![source.unwrap_or_else(|| self.from.clone())])
            .await?;
        let Some(place) = self.place().await? else {
            self.refuse_too_little().await?;
            // Native first, for a compacted session too: Claude's fork sends the model what its source and our cut would, as the
            // real adapter's test `a_native_fork_of_a_compacted_session_sends_what_its_source_and_a_cut_send` shows.
            let native_error = match self.native(None).await {
                Ok(made) => return Ok(made),
                Err(error) => error,
            };
            return match self.copy_whole().await {
                Ok(made) => Ok(made),
                Err(copy_error) => Err(match native_error {
                    ConversationError::Unsupported(_) => copy_error,
                    // A full disk refuses the agent's fork too, and only our own error says so.
                    _ if copy_error.is_passing_failure() => copy_error,
                    error => error,
                }),
            };
        };
        self.branch_at(&place).await
    }

    /// Where the branch leaves its source; none at its end, with all of it. A fork while a turn runs would take the unanswered
    /// prompt along, so that it is made at the place before that.
    async fn place(&self) -> Result<Option<Place>, ConversationError> {
        // A turn that was not sent yet, or has ended, needs not be left out.
        let running_since = self.record.turn.as_ref().map(|turn| turn.accepted_at);
        if self.at.is_none() && !self.busy {
            return Ok(None);
        }
        let (record, at, from) = (self.record.clone(), self.at.clone(), self.from.clone());
        self.blocking(move |services, entry| {
            let place = match (at, running_since) {
                (Some(at), _) => places::named(services, entry, &record, &at).map(Some),
                (None, Some(since)) => places::before_time(services, entry, &record, since),
                (None, None) => places::at_end(services, entry, &record, &from),
            };
            place?.map(Some).ok_or_else(no_finished_turn)
        })
        .await
    }

    /// Makes a branch that ends at a place. A cut transcript is preferred to the agent's own fork: its file shows what it
    /// contains, and it needs no process.
    async fn branch_at(&mut self, place: &Place) -> Result<(Branched, Resource), ConversationError> {
        // Before anything is made that would have to be taken back.
        self.from = place.end.session.clone();
        self.refuse_too_little().await?;
        let entry = &self.entry;
        if entry.copyable_transcripts().is_some() {
            return self.cut(place).await;
        }
        if place.point.is_none() {
            let why = match entry.kind.fork_point {
                ForkPointSupport::None => "offers no fork at a place and its transcripts cannot be cut",
                _ => "branches at items that it has written down, and wrote down none of that turn",
            };
            return Err(ConversationError::Unsupported(format!(
                "the agent {} {why}",
                entry.name
            )));
        }
        let mut made = self.native(Some(place)).await;
        if matches!(&made, Err(error) if known::is_unknown_point(error)) && self.open_once().await {
            made = self.native(Some(place)).await;
        }
        made
    }

    /// Runs what reads transcripts on a thread of its own.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Services, &AgentEntry) -> Result<T, ConversationError> + Send + 'static,
    ) -> Result<T, ConversationError> {
        let entry = Arc::clone(&self.entry);
        let meter: Arc<dyn Meter> = Arc::clone(&self.progress) as _;
        let task = self
            .services
            .blocking(move |services| metered(meter, || work(services, &entry)));
        task.await?
    }

    /// Refuses a branch that would keep less than was asked for.
    async fn refuse_too_little(&self) -> Result<(), ConversationError> {
        // A branch never keeps less than a part of the history.
        if self.min_fidelity <= Fidelity::Partial {
            return Ok(());
        }
        let (acknowledged, carried) = self.acknowledged();
        let look = self.on_disk(move |transcripts, cwd, _, id| {
            Look::at(of_source(transcripts, cwd, id, carried), acknowledged)
        });
        let look = look.await?;
        if look.fidelity() >= self.min_fidelity {
            return Ok(());
        }
        if let Some(failure) = look.unread.as_ref().and_then(StoreFailure::of_reading) {
            return Err(ConversationError::StoreFailed(failure));
        }
        let missing_turns = look.missing_turns;
        Err(ConversationError::NotResumable {
            wanted: self.min_fidelity,
            attempts: vec![Attempt {
                upstream_id: Some(self.from.clone()),
                via: Via::Live,
                error: Some(match look.unread {
                    Some(_) => {
                        "its transcript cannot be read, so it is unknown what a branch would lack".to_owned()
                    }
                    None => format!(
                        "its transcript has lost turns (at least {missing_turns}), and a branch would lack them too"
                    ),
                }),
            }],
        })
    }

    /// The agent's own fork, of the whole session or up to a place.
    async fn native(&self, place: Option<&Place>) -> Result<(Branched, Resource), ConversationError> {
        let (services, entry, closed) = (&self.services, &self.entry, &self.closed);
        let lease = acquire(services, entry).await?;
        let capabilities = lease.initialized().capabilities;
        if !capabilities.fork {
            return Err(ConversationError::Unsupported(format!(
                "the agent {} cannot fork a session",
                entry.name
            )));
        }
        let point = place.and_then(|place| place.point.clone());
        let opening = Opening::Fork(self.from.clone(), point);
        let settings = &self.record.settings;
        let opened = upstream::open(services, entry, lease, &opening, &self.cwd, settings, closed).await;
        let (mut session, answer) = opened.map_err(|error| fork_error(entry, &error))?;
        if let Err(error) = refuse_known(services, entry, &session, &answer.upstream_id) {
            closed.close(session, false, Duration::ZERO).closed().await;
            return Err(error);
        }
        let (acknowledged, carried) = self.acknowledged();
        let branch = answer.upstream_id.clone();
        let look = self
            .on_disk(move |transcripts, cwd, agent, id| {
                let source = of_source(transcripts, cwd, id, carried);
                let expected = match &source {
                    Ok(source) => expected(source.as_ref(), source.as_ref(), acknowledged),
                    Err(_) => acknowledged,
                };
                // An agent that writes the branch later has nothing but the source to show for it.
                let file = match disk::on_disk(transcripts, cwd, &branch, None) {
                    Ok(None) => source,
                    branch => branch,
                };
                Look {
                    place: disk::last_checkpoint(transcripts, cwd, agent, id).ok().flatten(),
                    prompts: prompts(transcripts, cwd, &branch),
                    ..Look::at(file, expected)
                }
            })
            .await?;
        session.tally = Tally::of(look.prompts);
        if let Some(place) = place
            && let Err(error) = self.ended_there(&answer.upstream_id, place).await
        {
            closed.close(session, false, Duration::ZERO).closed().await;
            return Err(error);
        }
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
        let branched = Branched {
            upstream_id: answer.upstream_id.clone(),
            from: self.from.clone(),
            checkpoint: place.map(|place| place.end.until.clone()).or(look.place),
            fidelity,
            turns: place.and_then(|place| place.turns).unwrap_or(look.turns),
            via: BranchedVia::Native,
            open: Some(Box::new(answer.opened(&session, resumed))),
        };
        Ok((branched, Resource::from(session)))
    }

    /// Whether a fork ends with the place that the agent was told, as far as there is a file to show it: one that knows nothing
    /// of such places takes all along.
    async fn ended_there(&self, branch: &UpstreamId, place: &Place) -> Result<(), ConversationError> {
        let (branch, cwd, until) = (branch.clone(), self.cwd.clone(), place.end.until.clone());
        self.blocking(move |services, entry| {
            let last = places::last_of(services, entry, &cwd, &branch)?;
            match last.is_none_or(|last| last == until) {
                true => Ok(()),
                false => Err(ConversationError::Unsupported(format!(
                    "the agent {} does not cut its fork at a place: the branch would have held more",
                    entry.name
                ))),
            }
        })
        .await
    }

    /// A copy of the whole transcript under a new id.
    async fn copy_whole(&self) -> Result<(Branched, Resource), ConversationError> {
        if self.entry.copyable_transcripts().is_none() {
            return Err(ConversationError::Unsupported(format!(
                "the agent {} offers no fork and its transcripts cannot be cut",
                self.entry.name
            )));
        }
        let (record, from) = (self.record.clone(), self.from.clone());
        let place = self.blocking(move |services, entry| places::at_end(services, entry, &record, &from));
        let place = place.await?.ok_or_else(no_finished_turn)?;
        self.cut(&place).await
    }

    /// A copy of the transcript under a new id that ends with a place.
    async fn cut(&self, place: &Place) -> Result<(Branched, Resource), ConversationError> {
        let (acknowledged, carried) = self.acknowledged();
        let (cwd, from) = (self.record.cwd.clone(), place.end.session.clone());
        let to = self.cwd.clone();
        let (until, is_named) = (place.end.until.clone(), self.at.is_some());
        let copied = self.blocking(move |services, entry| {
            let Some((root, format)) = entry.copyable_transcripts() else {
                return Ok(None);
            };
            let transcripts = (format.dialect(), services.home(root));
            let copy = || {
                // Before the copy is made, which would else be left behind.
                let whole = of_source(transcripts, &cwd, &from, carried)?;
                let up_to_cut = disk::on_disk(transcripts, &cwd, &from, Some(&until))?;
                // Where somebody named the place, what stands behind it is not owed; what the source has lost may be from before.
                let owed = match (is_named, &whole, &up_to_cut) {
                    (true, Some(whole), Some(kept)) => {
                        // A turn that the place itself cuts short lacks nothing.
                        let begun = kept.turns.saturating_sub(u64::from(kept.last_is_cut));
                        begun + whole.missing_turns(acknowledged)
                    }
                    _ => expected(whole.as_ref(), up_to_cut.as_ref(), acknowledged),
                };
                let copy = disk::copy_session(services, transcripts, (&cwd, &to), &from, Some(&until))?;
                let file = disk::on_disk(transcripts, &cwd, &copy.upstream_id, None);
                Ok((copy, Look::at(file, owed)))
            };
            let copied = copy().map_err(|error: TranscriptError| match error {
                TranscriptError::RecordNotFound { .. } => {
                    ConversationError::CheckpointNotFound { id: until.clone() }
                }
                error => places::not_cut(&error),
            });
            copied.map(Some)
        });
        let (copy, look) = copied.await?.ok_or_else(|| {
            ConversationError::Unsupported(format!(
                "the transcripts of the agent {} cannot be cut",
                self.entry.name
            ))
        })?;
        let branched = Branched {
            upstream_id: copy.upstream_id,
            from: place.end.session.clone(),
            checkpoint: Some(place.end.until.clone()),
            fidelity: look.fidelity(),
            turns: look.turns,
            via: BranchedVia::Cut,
            open: None,
        };
        Ok((branched, Resource::from(copy.uncommitted)))
    }

    /// Asks the disk about the session that is branched off; nothing is known where the transcripts cannot be read.
    async fn on_disk<T: Default + Send + 'static>(
        &self,
        pick: impl FnOnce(Transcripts<'_>, &str, &AgentName, &UpstreamId) -> T + Send + 'static,
    ) -> Result<T, ConversationError> {
        let (cwd, id) = (self.record.cwd.clone(), self.from.clone());
        self.blocking(move |services, entry| {
            let Some((root, format)) = entry.listed_transcripts() else {
                return Ok(T::default());
            };
            let transcripts = (format.dialect(), services.home(root));
            Ok(pick(transcripts, &cwd, &entry.name, &id))
        })
        .await
    }

    /// Restores sessions whose transcripts are missing, as a resume does: those that are to be branched, and those that say what a
    /// branch drops.
    ///
    /// # Errors
    /// When one is gone and what is kept of it cannot be put back, or it was restored with fewer turns and nobody was told.
    async fn bring_back(&self, sessions: Vec<UpstreamId>) -> Result<(), ConversationError> {
        let record = self.record.clone();
        self.blocking(move |services, entry| {
            for id in sessions {
                if record.chain.head().is_some_and(|head| head.upstream_id == id) {
                    keeping::refuse_unreported(services, entry, &record)?;
                }
                // A session of another conversation is refused later.
                if keeping::is_lost(services, entry, &record, &id) && places::is_held(services, &record, &id)?
                {
                    keeping::bring_back(services, entry, &record, &id)?;
                }
            }
            Ok(())
        })
        .await
    }
}

fn no_finished_turn() -> ConversationError {
    let why = "the conversation has no finished turn to branch from yet; wait for the first one to end";
    ConversationError::Busy(why.to_owned())
}

fn fork_error(entry: &AgentEntry, error: &OpenError) -> ConversationError {
    match error {
        OpenError::Call(CallError::Unsupported(_)) => {
            ConversationError::Unsupported(format!("the agent {} cannot fork a session", entry.name))
        }
        _ => upstream::conversation_error(entry, error),
    }
}

/// Brings the files that a fork names and that lie with its source to the fork, where its agent keeps them beside transcripts.
/// Blocks.
pub(super) fn bring_files(services: &Services, link: &Link) {
    let Ok(entry) = services.agent(&link.agent) else {
        return;
    };
    let listed = entry.listed_transcripts();
    let listed = listed.map(|(root, format)| (root, format.dialect()));
    let Some((root, dialect)) = listed.filter(|(_, dialect)| dialect.forks_borrow_files()) else {
        return;
    };
    let transcript = dialect.find(services.session(root, &link.cwd, &link.upstream_id));
    let bring = |transcript: PathBuf| {
        let (copies, id) = (&services.copies, &link.upstream_id);
        copies.bring_files(&services.store, id, &transcript)
    };
    if let Err(error) = transcript.and_then(bring) {
        tracing::warn!(upstream = %link.upstream_id, error = chain_text(&error), "could not copy the files that a fork names; they stay with its source");
    }
}

/// What the disk says of the session that is branched off.
fn of_source(
    transcripts: Transcripts<'_>,
    cwd: &str,
    id: &UpstreamId,
    carried: u64,
) -> Result<Option<OnDisk>, TranscriptError> {
    let found = disk::on_disk(transcripts, cwd, id, None)?;
    Ok(found.map(|source| source.with_carried(carried)))
}

/// How many prompts the transcript of a session holds, those of abandoned branches too; none if they cannot be counted.
fn prompts((dialect, home): Transcripts<'_>, cwd: &str, id: &UpstreamId) -> Option<u64> {
    let opened = dialect.open(home.session(Some(cwd), id.as_str()), None);
    opened.ok()?.prompts()
}
