//! Calls that name a transcript by its session id: checking it, and creating a conversation from a session that another
//! program made.
//!
//! Files are read on blocking threads; the decisions are made here. Nothing here writes to a transcript.

use std::path::PathBuf;
use std::sync::Arc;

use bridge_protocol::check::CheckAnswer;
use bridge_protocol::conversation::AdoptAnswer;
use bridge_protocol::export::MissingSession;
use bridge_protocol::link::{Fidelity, LinkReason, Relation};
use bridge_protocol::method::Adopt;
use bridge_protocol::{AgentName, ConversationId, UpstreamId};

use super::super::answer::{Answer, CallKey};
use super::super::checking::{
    check_answer, check_session, check_unpacked_backup, head_to_check, readable_transcripts,
};
use super::super::effect::{Call, Ledger};
use super::super::error::ConversationError;
use super::super::folder::usable_stored_folder;
use super::super::naming::{check_title, shortened_title};
use super::super::services::{Services, chain_text, now};
use super::super::state::view_of_record;
use super::super::transcript_facts;
use super::Registry;
use super::transcripts::AgentFolder;
use crate::agent::catalog::AgentEntry;
use crate::chain::NewLink;
use crate::store::{ConversationRecord, TranscriptRoot};
use crate::transcript::TranscriptError;
use crate::transcript::dialect::AgentHome;
use crate::transcript::origin::Origin;
use crate::transcript::transcript_list::listed_title;

/// The copies of a transcript with one id in an agent's folder; at least one.
pub(super) struct LocatedTranscript {
    pub(super) folder: AgentFolder,
    pub(super) id: UpstreamId,
    pub(super) paths: Vec<PathBuf>,
}

impl LocatedTranscript {
    /// Chooses the copy that the agent uses in the folder `cwd`; without `cwd`, in the folder of the last use. Blocks.
    pub(super) fn choose_copy(
        &self,
        home: AgentHome<'_>,
        cwd: Option<&str>,
    ) -> Result<(PathBuf, Origin), ConversationError> {
        let recorded = self
            .folder
            .format
            .dialect()
            .find_with_origin(home.session(cwd, self.id.as_str()));
        Ok(recorded?)
    }
}

impl Registry {
    /// Makes a conversation of a transcript, or returns the conversation that has it. The chain begins with this session; its
    /// link refers to the session that it was forked from, which can be adopted too. The conversation is durable before it is
    /// announced.
    ///
    /// # Errors
    /// When there is no such transcript, several agents have one, it has no turn that could be resumed, the folder cannot be
    /// used, or the change could not be written.
    pub async fn adopt(
        self: &Arc<Self>,
        adoption: Adopt,
        request: Option<CallKey>,
    ) -> Result<Answer, ConversationError> {
        let (registry, key) = (Arc::clone(self), request.clone());
        let work = || async move { registry.adopt_now(adoption, key).await };
        self.run_idempotent(None, request, work).await
    }

    async fn adopt_now(
        self: &Arc<Self>,
        mut adoption: Adopt,
        request: Option<CallKey>,
    ) -> Result<Answer, ConversationError> {
        if self.stop.is_cancelled() {
            return Err(ConversationError::ShuttingDown);
        }
        check_title(adoption.title.as_deref().unwrap_or_default())?;
        let (id, agent) = (adoption.upstream_id.clone(), adoption.agent.clone());
        let adopt = |upstream_id| {
            adoption.upstream_id = upstream_id;
            self.adopt_session(adoption, request)
        };
        self.with_whole_id("conversation/adopt", id, agent.as_ref(), adopt)
            .await
    }

    async fn adopt_session(
        self: &Arc<Self>,
        mut adoption: Adopt,
        request: Option<CallKey>,
    ) -> Result<Answer, ConversationError> {
        let entries = self.named_agents(adoption.agent.as_ref())?;
        if let Some(holder) = self.holder(&adoption)? {
            return self.existing_adoption(holder, &adoption.upstream_id).await;
        }
        let given = match &adoption.cwd {
            Some(cwd) => Some(self.usable_folder(cwd).await?),
            None => None,
        };
        let id = adoption.upstream_id.clone();
        let services = Arc::clone(&self.services);
        let read = move || {
            let held = locate_transcript(&services, &entries, &id)?;
            let (dialect, home) = (held.folder.format.dialect(), services.home(&held.folder.root));
            let (path, mut origin) = held.choose_copy(home, given.as_deref())?;
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
            origin.title = origin
                .title
                .filter(|title| !title.is_empty())
                .or_else(|| listed_title(&path, held.folder.format));
            // What another program writes after this size counts as new.
            let bytes = path.metadata().ok().map(|metadata| metadata.len());
            let archived = dialect.unarchive_command(&held.folder.root, &path).is_some();
            let session = home.session(Some(&cwd), id.as_str());
            // A last prompt without an answer does not count as a turn, unless the last line is torn: that may be its answer.
            let on_disk = transcript_facts::log_unreadable(dialect.turn_counts(session, None));
            let ends_torn = dialect.open(session, None).is_ok_and(|open| open.ends_torn());
            let is_unanswered = !ends_torn && on_disk.is_some_and(|file| file.is_last_cut_off);
            origin.turns -= usize::from(is_unanswered);
            let findings = dialect.resume_obstacles(session, &path);
            let missing = missing_beginning(&held, home, &cwd);
            Ok((held.folder.entry, cwd, origin, missing, archived, bytes, findings))
        };
        let (entry, cwd, origin, missing, archived, bytes, findings) =
            self.run_read("conversation/adopt", None, read).await?;
        // One at a time from here on: two calls for one transcript make one conversation.
        let turn = self.lock_for_new_conversation().await?;
        if let Some(holder) = self.holder(&adoption)? {
            // Unlocked first, so that the reads for the answer do not delay other calls.
            drop(turn);
            return self.existing_adoption(holder, &adoption.upstream_id).await;
        }
        if let Some(bytes) = bytes {
            self.services.old_bytes.note_length(&adoption.upstream_id, bytes);
        }
        adoption.title = match adoption.title {
            None => self.title_of_deleted(&adoption.upstream_id, &entry.transcript_root())?,
            given => given,
        };
        let (record, mut ledger) = adopted_record(adoption, entry.name.clone(), cwd, origin);
        let view = view_of_record(&record);
        let answer = Answer::from_value(&AdoptAnswer {
            conversation: view.clone(),
            archived,
            missing,
            findings,
        })?;
        let request = request.map(|request| request.to_answered_record(&answer, now()));
        ledger.requests.extend(request);
        let change = self.services.change(record, ledger);
        self.services.store.commit(change).await?;
        self.services.announce_new(view);
        Ok(answer)
    }

    /// The answer if a conversation already has the session. If that conversation was reset, its history with the session is
    /// brought back, as by undoing everything after it.
    async fn existing_adoption(
        self: &Arc<Self>,
        holder: ConversationId,
        session: &UpstreamId,
    ) -> Result<Answer, ConversationError> {
        let is_empty = |record: ConversationRecord| record.chain.is_empty();
        if is_empty(self.record(holder)?) {
            let call = |progress| Call::Undo {
                session: Some(session.clone()),
                progress,
            };
            match self.call_detached(holder, "conversation/adopt", call, None).await {
                Ok(_) => {}
                Err(ConversationError::Conflict(_)) if is_empty(self.record(holder)?) => {
                    return Err(ConversationError::Conflict(format!(
                        "conversation {holder} had session {session} and was reset, and the session never became part of a history \
                         that can be brought back"
                    )));
                }
                // Another caller has undone the reset or prompted meanwhile.
                Err(ConversationError::Conflict(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Answer::from_value(&AdoptAnswer {
            conversation: self.view(holder)?,
            archived: self.head_is_archived(holder).await?,
            missing: Vec::new(),
            findings: Vec::new(),
        })
    }

    /// Whether the user archived the session of a conversation's head; false if that is unknown.
    async fn head_is_archived(&self, id: ConversationId) -> Result<bool, ConversationError> {
        let record = self.record(id)?;
        let Some(head) = record.chain.head().cloned() else {
            return Ok(false);
        };
        let look = self.services.blocking(move |services| {
            let Some(transcripts) = services.transcripts(&head.agent) else {
                return false;
            };
            let (dialect, root) = (transcripts.dialect, transcripts.root);
            let path = transcripts.find(&head.cwd, &head.upstream_id);
            path.is_ok_and(|path| dialect.unarchive_command(root, &path).is_some())
        });
        Ok(look.await?)
    }

    /// Checks the transcript of a conversation's head for damage.
    ///
    /// # Errors
    /// When there is no such conversation, it has no session, or its transcript is missing or cannot be read.
    pub async fn check_head(&self, id: ConversationId) -> Result<CheckAnswer, ConversationError> {
        let record = self.record(id)?;
        let head = head_to_check(&record)?;
        let entry = self.services.agent(&head.agent)?;
        readable_transcripts(&self.services, &entry)?;
        self.services.check_project(&entry, &head.cwd).await?;
        let (services, head) = (Arc::clone(&self.services), head.clone());
        self.run_read("transcript/check", Some(record.id), move || {
            let (transcripts, id) = (readable_transcripts(&services, &entry)?, &head.upstream_id);
            if transcripts.dialect.is_missing(transcripts.root, id.as_str())
                && let Some(kept) = transcripts.unpack_backup_of_missing(id)?
            {
                return check_unpacked_backup(transcripts, id, &kept);
            }
            check_session(transcripts, &head)
        })
        .await
    }

    /// Checks the transcript with this id, or whose id starts with it, for damage, whichever program made it.
    ///
    /// # Errors
    /// When there is none, several agents have one, or it cannot be read.
    pub async fn check_transcript(
        &self,
        id: UpstreamId,
        agent: Option<&AgentName>,
    ) -> Result<CheckAnswer, ConversationError> {
        let check = |id| self.check_session(id, agent);
        self.with_whole_id("transcript/check", id, agent, check).await
    }

    async fn check_session(
        &self,
        id: UpstreamId,
        agent: Option<&AgentName>,
    ) -> Result<CheckAnswer, ConversationError> {
        let (entries, roots) = self.agents_with_distinct_roots(agent)?;
        let services = Arc::clone(&self.services);
        let root = agent.and_then(|_| roots.first());
        // If one conversation has the session, the copy in the conversation's folder is checked.
        let cwd_of_owner = match services.store.holders(&id, root)?.as_slice() {
            [only] => only.chain.link(&id).map(|link| link.cwd.clone()),
            _ => None,
        };
        self.run_read("transcript/check", None, move || {
            let held = match locate_transcript(&services, &entries, &id) {
                Ok(held) => held,
                Err(error @ ConversationError::NotFound { .. }) => {
                    return check_backup(&services, &entries, &id)?.ok_or(error);
                }
                Err(error) => return Err(error),
            };
            let (dialect, home) = (held.folder.format.dialect(), services.home(&held.folder.root));
            // With one copy there is nothing to compare, so its folder need not be read first.
            if let [only] = held.paths.as_slice() {
                return check_answer(dialect.check(home.session(None, held.id.as_str()), only));
            }
            let (path, origin) = held.choose_copy(home, cwd_of_owner.as_deref())?;
            let cwd = cwd_of_owner.or(origin.cwd);
            check_answer(dialect.check(home.session(cwd.as_deref(), held.id.as_str()), &path))
        })
        .await
    }

    /// The agents whose transcripts are searched, without those that share the transcripts of an earlier one, and their roots.
    pub(super) fn agents_with_distinct_roots(
        &self,
        agent: Option<&AgentName>,
    ) -> Result<(Vec<Arc<AgentEntry>>, Vec<TranscriptRoot>), ConversationError> {
        let mut entries = self.named_agents(agent)?;
        let mut roots = Vec::new();
        entries.retain(|entry| {
            let root = entry.transcript_root();
            let is_new = !roots
                .iter()
                .any(|known: &TranscriptRoot| known.is_same_folder(&root));
            roots.push(root);
            is_new
        });
        Ok((entries, roots))
    }

    /// The agents whose transcripts are searched: the named one, or all.
    pub(super) fn named_agents(
        &self,
        agent: Option<&AgentName>,
    ) -> Result<Vec<Arc<AgentEntry>>, ConversationError> {
        let Some(name) = agent else {
            return Ok(self.services.catalog.entries().cloned().collect());
        };
        Ok(vec![self.services.agent(name)?])
    }

    /// The conversation that has or had this transcript, not counting deleted ones.
    fn holder(&self, adoption: &Adopt) -> Result<Option<ConversationId>, ConversationError> {
        let named = adoption.agent.as_ref();
        let root = named
            .map(|agent| self.services.agent(agent))
            .transpose()?
            .map(|entry| entry.transcript_root());
        let holders = self
            .services
            .store
            .holders(&adoption.upstream_id, root.as_ref())?;
        match holders.as_slice() {
            [] => Ok(None),
            [only] => Ok(Some(only.id)),
            several => Err(ConversationError::Ambiguous {
                name: adoption.upstream_id.to_string(),
                candidates: several.iter().map(|holder| holder.id).collect(),
                is_whole: true,
            }),
        }
    }

    /// The title of the last deleted conversation that had a session and a title; none if there is none that can be read.
    fn title_of_deleted(
        &self,
        id: &UpstreamId,
        root: &TranscriptRoot,
    ) -> Result<Option<String>, ConversationError> {
        let store = &self.services.store;
        let owners = store.owners(id, Some(root))?.into_iter();
        let records = owners.filter_map(|owner| store.conversation(owner).ok().flatten());
        let titled = records.filter(|record| record.deleted_at.is_some() && !record.title.is_empty());
        let last = titled.max_by_key(|record| record.deleted_at);
        Ok(last.map(|record| record.title))
    }
}

/// The conversation that is made of a transcript, and what is stored with it.
fn adopted_record(
    adoption: Adopt,
    agent: AgentName,
    cwd: String,
    origin: Origin,
) -> (ConversationRecord, Ledger) {
    let at = now();
    let mut record = ConversationRecord::new(ConversationId::mint(), agent.clone(), cwd.clone(), at);
    let is_chosen = adoption.title.is_some();
    let own_title = origin.title.unwrap_or_default();
    record.title = shortened_title(&adoption.title.unwrap_or(own_title));
    record.reported.title = (!is_chosen && !record.title.is_empty()).then(|| record.title.clone());
    // Each resume reports again what is missing from the middle.
    let fidelity = match origin.missing_parents {
        0 => Fidelity::Full,
        _ => Fidelity::Partial,
    };
    let from = origin.forked_from;
    let checkpoint = from.as_ref().and_then(|from| {
        let uuid = from.record_uuid.as_deref()?;
        Some(transcript_facts::make_checkpoint_id(
            &agent,
            &from.session_id.as_str().into(),
            uuid,
        ))
    });
    let link = NewLink {
        relation: match from {
            Some(_) => Relation::Carries,
            None => Relation::Fresh,
        },
        from_upstream_id: from.map(|from| from.session_id.into()),
        from_checkpoint_id: checkpoint,
        // All turns count as carried: the session had them when it was adopted, and none was acknowledged here.
        carried_turns: origin.turns as u64,
        written: true,
        // `Adopted`, however the session was made, so that no undo treats the link as a change of this daemon.
        ..NewLink::new(adoption.upstream_id, agent, cwd, LinkReason::Adopted)
    };
    let appended = record.chain.append(link, fidelity, at);
    (record, Ledger::with_links(appended.entries, Vec::new()))
}

/// The session whose file contains the beginning of a transcript, if that file is missing: the history lacks that part.
/// Blocks.
fn missing_beginning(located: &LocatedTranscript, home: AgentHome<'_>, cwd: &str) -> Vec<MissingSession> {
    let files = located
        .folder
        .format
        .dialect()
        .files(home.session(Some(cwd), located.id.as_str()));
    let missing = files.ok().and_then(|(_, missing)| missing);
    let session = missing.map(|missing| MissingSession {
        upstream_id: missing.upstream_id.into(),
        agent: located.folder.entry.name.clone(),
        detail: format!("{} begins in it: {}", located.id, missing.detail),
    });
    session.into_iter().collect()
}

/// Finds a transcript among those of the agents `entries`. Blocks.
pub(super) fn locate_transcript(
    services: &Services,
    entries: &[Arc<AgentEntry>],
    id: &UpstreamId,
) -> Result<LocatedTranscript, ConversationError> {
    if let [only] = entries {
        readable_transcripts(services, only)?;
    }
    let mut located = Vec::new();
    let mut problems = Vec::new();
    for entry in entries {
        let Some(folder) = AgentFolder::of(entry) else {
            continue;
        };
        match folder.format.dialect().locate(&folder.root, id.as_str()) {
            Ok(paths) if paths.is_empty() => {}
            Ok(paths) => located.push(LocatedTranscript {
                folder,
                id: id.clone(),
                paths,
            }),
            Err(error @ TranscriptError::InvalidId { .. }) => return Err(error.into()),
            // Not fatal: another agent may have the transcript.
            Err(error) => problems.push(chain_text(&error)),
        }
    }
    if located.len() > 1 {
        return Err(ConversationError::AmbiguousAgents {
            name: id.to_string(),
            agents: located
                .into_iter()
                .map(|located| located.folder.entry.name.clone())
                .collect(),
        });
    }
    located.pop().ok_or_else(|| {
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

/// Checks the backup of a session whose transcript none of these agents has. None if there is no backup. Blocks.
fn check_backup(
    services: &Services,
    entries: &[Arc<AgentEntry>],
    id: &UpstreamId,
) -> Result<Option<CheckAnswer>, ConversationError> {
    let mut backups = Vec::new();
    for entry in entries {
        let Some(transcripts) = services.transcripts_of(entry) else {
            continue;
        };
        let backup = transcripts.unpack_backup_of_missing(id)?;
        backups.extend(backup.map(|backup| (transcripts, backup)));
    }
    match backups.as_slice() {
        [] => Ok(None),
        [(transcripts, backup)] => check_unpacked_backup(*transcripts, id, backup).map(Some),
        several => Err(ConversationError::AmbiguousAgents {
            name: id.to_string(),
            agents: several.iter().map(|(of, _)| of.entry.name.clone()).collect(),
        }),
    }
}

/// The folder that a transcript names as the one that it ran in.
fn folder_of(origin: &Origin) -> Result<String, ConversationError> {
    let Some(cwd) = &origin.cwd else {
        return Err(ConversationError::invalid(
            "cwd",
            "the transcript does not say which folder it ran in; give a folder",
        ));
    };
    usable_stored_folder(cwd).map_err(|error| match error {
        ConversationError::InvalidCwd(why) => ConversationError::InvalidCwd(format!(
            "the folder that the transcript ran in cannot be used: {why}; give another one"
        )),
        other => other,
    })
}
