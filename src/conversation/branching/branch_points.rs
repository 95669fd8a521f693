//! Finds in the transcripts the place where a branch leaves its source. Blocks.

use std::io::ErrorKind;

use bridge_protocol::history::GapKind;
use bridge_protocol::link::{LineageEntry, Link};
use bridge_protocol::{CheckpointId, UpstreamId};
use jiff::Timestamp;

use super::BranchJob;
use crate::agent::catalog::AgentEntry;
use crate::conversation::error::{ConversationError, StoreFailure};
use crate::conversation::history::{BranchPoint, History, MessagePosition, TranscriptScope};
use crate::conversation::services::chain_text;
use crate::conversation::transcript_facts::AgentTranscripts;
use crate::transcript::TranscriptError;
use crate::transcript::checkpoint::{CheckpointRef, PlaceRef};

impl BranchJob {
    /// Finds the branch point at a place that the caller named.
    ///
    /// # Errors
    /// [`ConversationError::CheckpointNotFound`] or [`ConversationError::NotFound`] if the place is not in the conversation, and
    /// as [`History::point_after_message`].
    pub(super) fn named_point(&self, at: &PlaceRef) -> Result<BranchPoint, ConversationError> {
        let transcripts = self.readable_transcripts(" at a chosen message")?;
        if let PlaceRef::Checkpoint(place) = at
            && transcripts.dialect.abilities().can_copy
        {
            // The cut looks up the checkpoint itself.
            let session = UpstreamId::new(place.upstream_id.as_str());
            return match self.has_session(&session)? {
                true => Ok(BranchPoint {
                    session,
                    checkpoint: CheckpointId::new(at.to_string()),
                    turns: None,
                }),
                false => Err(no_such_place_error(at)),
            };
        }
        let (mut history, position) = self.find_in_history(at)?;
        let point = history.point_after_message(position)?;
        point.ok_or_else(|| no_such_place_error(at))
    }

    /// Whether a session belongs or belonged to a conversation.
    ///
    /// # Errors
    /// If the lineage cannot be read.
    pub(super) fn has_session(&self, session: &UpstreamId) -> Result<bool, ConversationError> {
        if self.record.chain.contains(session) {
            return Ok(true);
        }
        let lineage = self.services.store.lineage_all(self.record.id)?;
        Ok(lineage.iter().any(|entry| entry.upstream_id == *session))
    }

    /// The place after the last turn that began before `at`; `None` if there is no such turn.
    ///
    /// # Errors
    /// If the transcripts cannot be read.
    pub(super) fn point_before_time(&self, at: Timestamp) -> Result<Option<BranchPoint>, ConversationError> {
        self.readable_transcripts(" while a turn runs")?;
        let mut history = History::current(&self.services, &self.record, TranscriptScope::AgentFiles)?;
        let point = history.point_before_time(at);
        Ok(point.map(|point| BranchPoint { turns: None, ..point }))
    }

    /// The place at the end of the source session; `None` if it has no turn yet.
    ///
    /// # Errors
    /// If the transcripts cannot be read.
    pub(super) fn point_at_end(&self) -> Result<Option<BranchPoint>, ConversationError> {
        self.readable_transcripts(" while a turn runs")?;
        let until = self.last_checkpoint_of(&self.record.cwd, &self.source)?;
        Ok(until.map(|checkpoint| BranchPoint {
            session: self.source.clone(),
            checkpoint,
            turns: None,
        }))
    }

    /// The place after the last turn of a session, if its transcript can be read.
    ///
    /// # Errors
    /// If it may be readable later.
    pub(super) fn last_checkpoint_of(
        &self,
        cwd: &str,
        id: &UpstreamId,
    ) -> Result<Option<CheckpointId>, ConversationError> {
        let Some(transcripts) = self.transcripts() else {
            return Ok(None);
        };
        match transcripts.last_checkpoint(cwd, id) {
            Err(error) if error.is_passing() => Err(error.into()),
            checkpoint => Ok(checkpoint.ok().flatten()),
        }
    }

    /// Finds the branch point before the turn at a place, for an edit that replaces that turn, and how many turns of the current
    /// history the edit drops. There is no point if the replaced turn is the first one.
    ///
    /// # Errors
    /// As [`Self::named_point`].
    pub(super) fn point_before_turn(
        &self,
        at: &PlaceRef,
    ) -> Result<(Option<BranchPoint>, u64), ConversationError> {
        self.readable_transcripts(" before a turn")?;
        let (services, record) = (&self.services, &self.record);
        let mut current = History::current(services, record, TranscriptScope::AgentFiles)?;
        // Check this first: it is unknown which places an unreadable transcript contains.
        let head = record.chain.head().filter(|head| head.written);
        if let Some(head) = head
            && current.last_session() != Some(&head.upstream_id)
        {
            current.refuse_unread()?;
            return Err(ConversationError::TranscriptDamaged(format!(
                "the transcript of the head, session {}, cannot be read, so it is unknown what an edit would keep; \
                 to restore it, if that is possible: sessionctl resume {}",
                head.upstream_id, record.id
            )));
        }
        let (mut history, position) = self.find_in_history(at)?;
        if matches!(at, PlaceRef::Message(_)) && !history.is_prompt(position) {
            return Err(ConversationError::invalid(
                "at",
                format!("at must be a message of the user, and \"{at}\" is not the prompt of its turn"),
            ));
        }
        let point = history.point_before_turn(position)?;
        let kept_turns = point.as_ref().and_then(|point| point.turns).unwrap_or(0);
        let shared = match current.position_of(at) {
            Some(_) => kept_turns,
            // The place is in an earlier history, which may begin with the same turns as the current one.
            None => current.turns_shared_with(&history).min(kept_turns),
        };
        let dropped = (current.turns() as u64).saturating_sub(shared);
        Ok((point, dropped))
    }

    /// Finds the history that contains a place: the current one, or else the one that ended with the place's session.
    fn find_in_history(&self, at: &PlaceRef) -> Result<(History, MessagePosition), ConversationError> {
        let (services, record) = (&self.services, &self.record);
        let current = History::current(services, record, TranscriptScope::AgentFiles)?;
        if let Some(position) = current.position_of(at) {
            return Ok((current, position));
        }
        let session = UpstreamId::new(at.upstream_id());
        let lineage = services.store.lineage_all(record.id)?;
        let mut entries = lineage.iter().rev();
        let link = record.chain.link(&session).cloned().or_else(|| {
            let entry = entries.find(|entry| entry.upstream_id == session)?;
            Some(link_from_entry(entry))
        });
        let scope = TranscriptScope::AgentFiles;
        let history = link.map(|link| History::ending_with_link(services, record, &link, scope, None));
        let missing = |history: &History| {
            let reason = history.missing_reason(&session, &[GapKind::Missing, GapKind::Unreadable]);
            reason.map(str::to_owned)
        };
        let mut reason = missing(&current);
        if let Some(history) = history.transpose()? {
            if let Some(position) = history.position_of(at) {
                return Ok((history, position));
            }
            history.refuse_unread()?;
            reason = reason.or_else(|| missing(&history));
        }
        current.refuse_unread()?;
        Err(match reason {
            // The place may exist in the unreadable session, so do not report that it does not.
            Some(why) => ConversationError::TranscriptDamaged(format!(
                "\"{at}\" is in a session that cannot be read and has no backup: {why}"
            )),
            None => no_such_place_error(at),
        })
    }

    fn readable_transcripts(&self, when: &str) -> Result<AgentTranscripts<'_>, ConversationError> {
        self.transcripts().ok_or_else(|| {
            ConversationError::Unsupported(format!(
                "the agent {} cannot fork{when}, and its transcripts cannot be truncated",
                self.entry.name
            ))
        })
    }
}

/// Makes the former link of a session that has left the chain.
fn link_from_entry(entry: &LineageEntry) -> Link {
    Link {
        upstream_id: entry.upstream_id.clone(),
        agent: entry.agent.clone(),
        cwd: entry.cwd.clone(),
        reason: bridge_protocol::link::LinkReason::Unknown,
        relation: entry.relation,
        from_upstream_id: entry.from_upstream_id.clone(),
        from_checkpoint_id: entry.from_checkpoint_id.clone(),
        turns: entry.turns,
        carried_turns: entry.carried_turns,
        written: entry.written,
        at: entry.at,
        cause: entry.cause,
    }
}

/// The agent's own id of a message of the turn at a place, for agents that fork at a message because their transcripts
/// cannot be cut.
///
/// # Errors
/// If the transcript cannot be read.
pub(super) fn fork_message_id(
    entry: &AgentEntry,
    point: &BranchPoint,
) -> Result<Option<String>, ConversationError> {
    let until: Option<CheckpointRef> = point.checkpoint.as_str().parse().ok();
    let Some(((root, format), until)) = entry.listed_transcripts().zip(until) else {
        return Ok(None);
    };
    let item = format.dialect().fork_point(root, point.session.as_str(), &until);
    item.map_err(|error| ConversationError::from_damage(&error, |why| why))
}

/// Converts the error of a failed cut. A disk error may be temporary, so it is no reason to fall back to text.
pub(super) fn cut_error(error: &TranscriptError) -> ConversationError {
    let why = format!("the branch could not be cut: {}", chain_text(error));
    match error {
        TranscriptError::Io { source, .. } if source.kind() == ErrorKind::Unsupported => {
            ConversationError::Unsupported(why)
        }
        TranscriptError::Io { .. } => ConversationError::StoreFailed(StoreFailure {
            is_transient: error.is_passing(),
            ..why.into()
        }),
        _ => ConversationError::AgentError {
            message: why,
            upstream: None,
        },
    }
}

fn no_such_place_error(at: &PlaceRef) -> ConversationError {
    match at {
        PlaceRef::Checkpoint(_) => ConversationError::CheckpointNotFound {
            id: CheckpointId::new(at.to_string()),
        },
        PlaceRef::Message(_) => ConversationError::NotFound {
            what: format!(
                "there is no message \"{at}\" in a session of this conversation; sessionctl history --json lists them"
            ),
        },
    }
}
