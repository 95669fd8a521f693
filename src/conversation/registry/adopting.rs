//! What is asked about transcripts by their own ids: whether one is whole, and making a conversation of one that was made
//! elsewhere.
//!
//! Files are read on blocking threads; what is decided of them is decided here. Nothing here writes to a transcript.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bridge_protocol::check::CheckAnswer;
use bridge_protocol::conversation::Conversation;
use bridge_protocol::link::{Fidelity, LinkReason, Relation};
use bridge_protocol::{AgentName, CheckpointId, ConversationId, ConversationRef, UpstreamId};

use super::super::answer::{Answer, Request};
use super::super::climbing::store_error;
use super::super::disk;
use super::super::error::ConversationError;
use super::super::folder::usable_folder;
use super::super::naming::{check_title, shortened_title};
use super::super::services::{chain_text, now};
use super::super::state::view_of_record;
use super::Registry;
use crate::agent::catalog::AgentEntry;
use crate::chain::NewLink;
use crate::store::{Change, ConversationRecord};
use crate::transcript::check::Report;
use crate::transcript::checkpoint::CheckpointRef;
use crate::transcript::library::Library;
use crate::transcript::locate::{locate, own_folder};
use crate::transcript::origin::Origin;
use crate::transcript::shelf::Format;
use crate::transcript::{TranscriptError, reading, rollouts};

/// A transcript that is to become a conversation.
#[derive(Clone, Debug)]
pub struct Adoption {
    /// The agent's own id of it.
    pub upstream_id: UpstreamId,
    /// The agent that holds it; looked for at all agents when none is named.
    pub agent: Option<AgentName>,
    /// The conversation's folder; the transcript's own when none is given.
    pub cwd: Option<String>,
    /// What people call it; as the transcript says when nothing is given.
    pub title: Option<String>,
}

/// The transcripts of one id that an agent holds; never none.
struct Held {
    entry: Arc<AgentEntry>,
    root: PathBuf,
    format: Format,
    id: UpstreamId,
    paths: Vec<PathBuf>,
}

impl Registry {
    /// Makes a conversation of a transcript, or gives the one that holds it. The conversation is durable before anyone
    /// hears of it.
    ///
    /// # Errors
    /// When there is no such transcript, several agents have one, it holds nothing that could be resumed, the folder
    /// cannot be used, or the change could not be written.
    pub async fn adopt(
        self: &Arc<Self>,
        adoption: Adoption,
        request: Option<Request>,
    ) -> Result<Answer, ConversationError> {
        let registry = Arc::clone(self);
        let work = || async move {
            let (adopted, archived) = registry.adopt_now(adoption).await?;
            Ok(Answer::Adopted(Box::new(adopted), archived))
        };
        self.once(None, request, work).await
    }

    /// The conversation, and whether its transcript is archived.
    async fn adopt_now(&self, adoption: Adoption) -> Result<(Conversation, bool), ConversationError> {
        if self.stop.is_cancelled() {
            return Err(ConversationError::ShuttingDown);
        }
        check_title(adoption.title.as_deref().unwrap_or_default())?;
        let entries = self.named_agents(adoption.agent.as_ref())?;
        if let Some(holder) = self.holder(&adoption)? {
            return Ok((self.view(holder)?, false));
        }
        let given = adoption.cwd.as_deref().map(usable_folder).transpose()?;
        let id = adoption.upstream_id.clone();
        let services = Arc::clone(&self.services);
        let read = move || {
            let held = find(&entries, &id)?;
            let (path, origin) = match held.format {
                Format::Claude => best_copy(&services.library, &held, given.as_deref())?,
                Format::Codex => rollout(&held)?,
            };
            if origin.turns == 0 {
                let path = path.display();
                return Err(ConversationError::TranscriptDamaged(format!(
                    "{path} holds no turn that could be resumed"
                )));
            }
            let cwd = match given {
                Some(cwd) => cwd,
                None => folder_of(&origin)?,
            };
            let archived = held.format == Format::Codex && rollouts::is_archived(&held.root, &path);
            Ok((held.entry, cwd, origin, archived))
        };
        let (entry, cwd, origin, archived) = self.reading("conversation/adopt", None, read).await?;
        // One at a time from here on: two calls for one transcript make one conversation.
        let _turn = self.creating.lock().await;
        if let Some(holder) = self.holder(&adoption)? {
            return Ok((self.view(holder)?, false));
        }
        let (record, change) = adopted(adoption, &entry, cwd, origin);
        let committed = self.services.store.commit(change).await;
        committed.map_err(|error| store_error(&error))?;
        let view = view_of_record(&record);
        self.services.announce_new(view.clone());
        Ok((view, archived))
    }

    /// What is wrong with the transcript of a conversation's head.
    ///
    /// # Errors
    /// When there is no such conversation, it has no session, or its transcript is not there or cannot be read.
    pub async fn check_head(&self, name: &ConversationRef) -> Result<CheckAnswer, ConversationError> {
        let record = self.record(self.resolve(name)?)?;
        let head = record.chain.head().ok_or_else(|| ConversationError::NotFound {
            what: "the conversation has no session yet, so that there is no transcript to check".to_owned(),
        })?;
        let entry = self.services.agent(&head.agent)?;
        let (root, format) = read_root(&entry)?;
        let root = root.to_path_buf();
        let (id, cwd) = (head.upstream_id.clone(), head.cwd.clone());
        let services = Arc::clone(&self.services);
        self.reading("transcript/check", Some(record.id), move || match format {
            Format::Claude => {
                let path =
                    disk::find(&services.library, &root, &cwd, &id).map_err(|error| unusable(&error))?;
                check_answer(reading::check(&path))
            }
            Format::Codex => check_answer(rollouts::check(&root, id.as_str())),
        })
        .await
    }

    /// What is wrong with the transcript of this id, whoever made it.
    ///
    /// # Errors
    /// When there is none, several agents have one, or it cannot be read.
    pub async fn check_transcript(
        &self,
        id: UpstreamId,
        agent: Option<&AgentName>,
    ) -> Result<CheckAnswer, ConversationError> {
        let mut entries = self.named_agents(agent)?;
        // Agents that share their transcripts have the same one.
        let mut roots = Vec::new();
        entries.retain(|entry| {
            let root = entry.transcript_root();
            let is_new = !roots.contains(&root);
            roots.push(root);
            is_new
        });
        let services = Arc::clone(&self.services);
        self.reading("transcript/check", None, move || {
            let held = find(&entries, &id)?;
            match (held.format, held.paths.as_slice()) {
                (Format::Codex, _) => check_answer(rollouts::check(&held.root, held.id.as_str())),
                // It need not be read twice.
                (Format::Claude, [only]) => check_answer(reading::check(only)),
                (Format::Claude, _) => {
                    check_answer(reading::check(&best_copy(&services.library, &held, None)?.0))
                }
            }
        })
        .await
    }

    /// The agents among which a transcript is looked for.
    fn named_agents(&self, agent: Option<&AgentName>) -> Result<Vec<Arc<AgentEntry>>, ConversationError> {
        let Some(name) = agent else {
            return Ok(self.services.catalog.entries().to_vec());
        };
        Ok(vec![self.services.agent(name)?])
    }

    /// The conversation that has ever had this transcript; one that was deleted has it no more.
    fn holder(&self, adoption: &Adoption) -> Result<Option<ConversationId>, ConversationError> {
        let named = adoption.agent.as_ref();
        let root = named
            .map(|agent| self.services.agent(agent))
            .transpose()?
            .map(|entry| entry.transcript_root());
        let owners = self.services.store.owners(&adoption.upstream_id, root.as_ref());
        let mut holders = Vec::new();
        for id in owners.map_err(|error| store_error(&error))? {
            match self.record(id) {
                Ok(_) => holders.push(id),
                Err(ConversationError::Deleted { .. } | ConversationError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if holders.len() > 1 {
            return Err(ConversationError::Ambiguous {
                name: adoption.upstream_id.to_string(),
                candidates: holders,
                is_whole: true,
            });
        }
        Ok(holders.pop())
    }
}

/// The conversation that a transcript becomes, and what is to be written down.
fn adopted(
    adoption: Adoption,
    entry: &AgentEntry,
    cwd: String,
    origin: Origin,
) -> (ConversationRecord, Change) {
    let at = now();
    let agent = entry.name.clone();
    let mut record = ConversationRecord::new(ConversationId::mint(), agent.clone(), cwd.clone(), at);
    let own_title = || shortened_title(origin.title.unwrap_or_default());
    record.title = adoption.title.unwrap_or_else(own_title);
    let place = |record_uuid: String, session: &str| {
        let place = CheckpointRef {
            agent: agent.as_str().to_owned(),
            upstream_id: session.to_owned(),
            record_uuid,
        };
        CheckpointId::new(place.to_string())
    };
    let from = origin.forked_from;
    let link = NewLink {
        upstream_id: adoption.upstream_id.clone(),
        agent: agent.clone(),
        cwd,
        reason: LinkReason::Adopted,
        relation: if from.is_some() {
            Relation::Carries
        } else {
            Relation::Fresh
        },
        from_upstream_id: from.as_ref().map(|from| from.session_id.as_str().into()),
        from_checkpoint_id: from.and_then(|from| Some(place(from.record_uuid?, &from.session_id))),
        cause: None,
        turns: 0,
        // None of them was acknowledged here: all are what it held when it came.
        carried_turns: origin.turns as u64,
        written: true,
    };
    // What is missing from its middle is told again by each resume.
    let fidelity = if origin.breaks == 0 {
        Fidelity::Full
    } else {
        Fidelity::Partial
    };
    let appended = record.chain.append(link, fidelity, at);
    let change = Change {
        lineage: appended
            .entries
            .into_iter()
            .map(|entry| (record.id, entry))
            .collect(),
        upstream: vec![(record.id, entry.transcript_root(), adoption.upstream_id)],
        conversation: Some(record.clone()),
        ..Change::default()
    };
    (record, change)
}

/// Looks for a transcript at these agents. Blocks.
fn find(entries: &[Arc<AgentEntry>], id: &UpstreamId) -> Result<Held, ConversationError> {
    if let [only] = entries {
        read_root(only)?;
    }
    let mut held = Vec::new();
    let mut problems = Vec::new();
    for entry in entries {
        let Some((root, format)) = entry.listed_transcripts() else {
            continue;
        };
        let located = match format {
            Format::Claude => locate(root, id.as_str(), None),
            Format::Codex => rollouts::locate(root, id.as_str()),
        };
        match located {
            Ok(paths) if paths.is_empty() => {}
            Ok(paths) => held.push(Held {
                entry: Arc::clone(entry),
                root: root.to_path_buf(),
                format,
                id: id.clone(),
                paths,
            }),
            Err(error @ TranscriptError::InvalidId { .. }) => return Err(unusable(&error)),
            // Another agent may have it.
            Err(error) => problems.push(chain_text(&error)),
        }
    }
    if held.len() > 1 {
        return Err(ConversationError::AmbiguousAgents {
            name: id.to_string(),
            agents: held.into_iter().map(|held| held.entry.name.clone()).collect(),
        });
    }
    held.pop().ok_or_else(|| {
        let searched: Vec<&str> = entries
            .iter()
            .filter(|entry| entry.listed_transcripts().is_some())
            .map(|entry| entry.name.as_str())
            .collect();
        problems.insert(
            0,
            format!("there is no transcript \"{id}\" of {}", searched.join(", ")),
        );
        ConversationError::NotFound {
            what: problems.join("; "),
        }
    })
}

/// Of several copies the one that the agent would take: of those with turns the one in the folder of `cwd`, which without
/// that is the folder that the copy itself was last used in, and of these the one that was written last. Blocks.
fn best_copy(
    library: &Library,
    held: &Held,
    cwd: Option<&str>,
) -> Result<(PathBuf, Origin), ConversationError> {
    let mut failure = None;
    let mut best = None;
    for path in &held.paths {
        let origin = match library.origin(path) {
            Ok(origin) => origin,
            Err(error) => {
                failure = Some(error);
                continue;
            }
        };
        let home = cwd.or(origin.cwd.as_deref());
        let is_home =
            home.is_some_and(|cwd| path.parent() == Some(own_folder(&held.root, Path::new(cwd)).as_path()));
        let written = path.metadata().and_then(|metadata| metadata.modified()).ok();
        let rank = (origin.turns > 0, is_home, written);
        if best.as_ref().is_none_or(|(highest, _, _)| rank > *highest) {
            best = Some((rank, path.clone(), origin));
        }
    }
    match (best, failure) {
        (Some((_, path, origin)), _) => Ok((path, origin)),
        (None, Some(error)) => Err(unusable(&error)),
        (None, None) => Err(ConversationError::Lost),
    }
}

/// The folder that a transcript says it ran in.
fn folder_of(origin: &Origin) -> Result<String, ConversationError> {
    let Some(cwd) = &origin.cwd else {
        return Err(ConversationError::InvalidParams(
            "the transcript names no folder that it ran in; name one as cwd".to_owned(),
        ));
    };
    usable_folder(cwd).map_err(|error| match error {
        ConversationError::InvalidCwd(why) => ConversationError::InvalidCwd(format!(
            "the folder that the transcript ran in cannot be used: {why}; name another as cwd"
        )),
        other => other,
    })
}

/// A rollout and those that it continues, of which Codex takes the first that it finds. Blocks.
fn rollout(held: &Held) -> Result<(PathBuf, Origin), ConversationError> {
    let path = held.paths.first().cloned().ok_or(ConversationError::Lost)?;
    let origin = rollouts::origin(&held.root, held.id.as_str()).map_err(|error| unusable(&error))?;
    Ok((path, origin))
}

fn check_answer(report: Result<Report, TranscriptError>) -> Result<CheckAnswer, ConversationError> {
    let report = report.map_err(|error| unusable(&error))?;
    Ok(CheckAnswer {
        findings: report.findings,
        more: report.more,
    })
}

fn read_root(entry: &AgentEntry) -> Result<(&Path, Format), ConversationError> {
    entry.listed_transcripts().ok_or_else(|| {
        ConversationError::Unsupported(format!(
            "this version cannot read the transcripts of the agent {}",
            entry.name
        ))
    })
}

/// A transcript that is not there, or that cannot be read.
fn unusable(error: &TranscriptError) -> ConversationError {
    let is_gone = match error {
        TranscriptError::NotFound { .. } | TranscriptError::InvalidId { .. } => true,
        TranscriptError::Io { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    };
    let what = chain_text(error);
    if is_gone {
        ConversationError::NotFound { what }
    } else {
        ConversationError::TranscriptDamaged(what)
    }
}
