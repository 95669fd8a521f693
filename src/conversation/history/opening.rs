//! Opening the transcripts of a history: the agent's own files or, for callers that only read, their backups.

use std::path::Path;

use bridge_protocol::history::{GapKind, HistoryGap};
use bridge_protocol::link::{Link, Relation};
use bridge_protocol::{AgentName, CheckpointId, UpstreamId};

use super::{History, SessionTranscript, TranscriptScope, unreadable};
use crate::archive::Unpacked;
use crate::chain::{HistorySource, LinkOrigin};
use crate::conversation::error::{ConversationError, StoreFailure};
use crate::conversation::services::{Services, chain_text};
use crate::conversation::transcript_facts::{self, AgentTranscripts};
use crate::transcript::TranscriptError;
use crate::transcript::checkpoint::CheckpointRef;
use crate::transcript::open_transcript::{BoxedTranscript, Loss, OpenTranscript};

impl History {
    /// The history that ends at a checkpoint, read from the transcript that contains it, wherever that is.
    ///
    /// # Errors
    /// [`ConversationError::CheckpointNotFound`]; [`ConversationError::TranscriptDamaged`] if a transcript that may contain it
    /// cannot be read; [`ConversationError::Unsupported`] if this version cannot read the agent's transcripts.
    pub(in crate::conversation) fn ending_at_checkpoint(
        services: &Services,
        id: &CheckpointId,
        place: &CheckpointRef,
        scope: TranscriptScope,
    ) -> Result<Self, ConversationError> {
        let not_found = || ConversationError::CheckpointNotFound { id: id.clone() };
        let agent = AgentName::new(place.agent.as_str());
        let entry = services.catalog.get(&agent).ok_or_else(not_found)?;
        let transcripts = services.transcripts_of(entry).ok_or_else(|| unreadable(&agent))?;
        let upstream_id = UpstreamId::new(place.upstream_id.as_str());
        // A transcript that cannot be read may contain the checkpoint, so do not report that as not found.
        let mut failure = None;
        let dialect = transcripts.dialect;
        let mut open_in = |root: &Path| match dialect.open_at(services.home(root), place) {
            Ok(opened) => Some(opened),
            Err(error) => {
                failure = (!error.is_absence()).then(|| error.into()).or(failure.take());
                None
            }
        };
        let mut opened = open_in(transcripts.root);
        let mut unpacked = None;
        if scope == TranscriptScope::WithBackups
            && opened
                .as_ref()
                .is_none_or(|opened| opened.lacks_beginning() || has_damage(opened))
        {
            unpacked = transcripts
                .unpack_backup_of_missing(&upstream_id)
                .map_err(|error| ConversationError::from_damage(&error, |why| lost_with_backup(&why)))?;
            if let Some(unpacked) = &unpacked {
                opened = open_in(unpacked.root());
            }
        }
        let opened = opened.ok_or_else(|| failure.unwrap_or_else(not_found))?;
        let mut history = Self::default();
        history.push(SessionTranscript {
            agent,
            upstream_id,
            transcript: opened,
            turns_before: 0,
            messages_before: 0,
            copied_from: None,
            backup: unpacked,
        });
        Ok(history)
    }

    /// The sessions that are read from their backups.
    pub(in crate::conversation) fn sessions_from_backup(&self) -> Vec<UpstreamId> {
        let mut kept: Vec<UpstreamId> = Vec::new();
        let unpacked = self.sessions.iter().filter_map(|session| session.backup.as_ref());
        for id in unpacked.flat_map(Unpacked::sessions) {
            if !kept.iter().any(|known| known.as_str() == id) {
                kept.push(UpstreamId::new(id.as_str()));
            }
        }
        kept
    }
}

/// A session of a history that could not be opened.
pub(super) struct OpenFailure {
    pub(super) gap: HistoryGap,
    /// If the same call may succeed later.
    pub(super) failure: Option<StoreFailure>,
}

pub(super) fn open_source(
    services: &Services,
    origin: Option<LinkOrigin>,
    source: &HistorySource,
    scope: TranscriptScope,
) -> Result<SessionTranscript, OpenFailure> {
    let id = &source.upstream_id;
    let gap = |kind, detail: String| OpenFailure {
        gap: HistoryGap {
            upstream_id: id.clone(),
            kind,
            detail,
        },
        failure: None,
    };
    let Some(origin) = origin else {
        return Err(gap(
            GapKind::Missing,
            "nothing is known of this session".to_owned(),
        ));
    };
    let Some(transcripts) = services.transcripts(&origin.agent) else {
        return Err(gap(GapKind::Unreadable, unreadable(&origin.agent).to_string()));
    };
    let open_in = |read: AgentTranscripts<'_>| {
        let until = read.cut_point(&origin.cwd, id, &source.until)?;
        let until: Option<CheckpointRef> = until.and_then(|until| until.as_str().parse().ok());
        let session = read.home().session(Some(&origin.cwd), id.as_str());
        read.dialect.open(session, until.as_ref())
    };
    let mut opened = open_in(transcripts);
    let unpacked = match may_need_backup(&opened) && scope == TranscriptScope::WithBackups {
        true => transcripts
            .unpack_backup_of_missing(id)
            .map_err(|error| OpenFailure {
                failure: StoreFailure::from_transient_read(&error),
                ..gap(GapKind::Unreadable, lost_with_backup(&chain_text(&error)))
            })?,
        false => None,
    };
    if let Some(unpacked) = &unpacked {
        opened = open_in(transcripts.in_folder(unpacked.root()));
    }
    let open = opened.map_err(|error| {
        let kind = match error {
            TranscriptError::NotFound { .. } | TranscriptError::RecordNotFound { .. } => GapKind::Missing,
            _ => GapKind::Unreadable,
        };
        OpenFailure {
            failure: StoreFailure::from_transient_read(&error),
            ..gap(kind, chain_text(&error))
        }
    })?;
    Ok(SessionTranscript {
        copied_from: copied_source(&origin, &*open),
        agent: origin.agent,
        upstream_id: id.clone(),
        transcript: open,
        turns_before: 0,
        messages_before: 0,
        backup: unpacked,
    })
}

/// Whether a transcript, or one that it continues, is missing, may be blank, or has lost records.
fn may_need_backup(opened: &Result<BoxedTranscript, TranscriptError>) -> bool {
    match opened {
        Ok(open) => open.lacks_beginning() || open.turns() == 0 || has_damage(open),
        Err(error) => error.is_absence(),
    }
}

fn has_damage(open: &BoxedTranscript) -> bool {
    let losses = open.losses();
    losses.iter().any(|loss| matches!(loss, Loss::Damaged(_)))
}

fn lost_with_backup(why: &str) -> String {
    format!("the agent's transcript is missing, and its backup cannot be read: {why}")
}

/// Whether the file of a head must be checked for missing turns. That is not needed if it contains all turns of the head,
/// the last one with more than a prompt, or if it is damaged: the report of the damage covers what the file lacks.
pub(super) fn may_miss_turns(session: &SessionTranscript, head: &Link) -> bool {
    let open = &session.transcript;
    let losses = open.losses();
    let is_damaged = losses.iter().any(|loss| matches!(loss, Loss::Damaged(_)));
    let last = open.turns().checked_sub(1).map(|last| open.turn(last).len());
    let acknowledged = head.turns.saturating_add(head.carried_turns);
    let is_whole =
        open.turns() as u64 >= acknowledged && last.is_none_or(|messages| messages > 1) && !open.ends_torn();
    // A backup may be older than the last turns, even if its number of turns does not show that.
    !is_damaged && (!is_whole || session.backup.is_some())
}

/// The session of which this one is an exact copy, which keeps the uuids, and for how many turns.
fn copied_source(origin: &LinkOrigin, open: &dyn OpenTranscript) -> Option<(UpstreamId, usize)> {
    let carries = origin.relation == Relation::Carries;
    let source = origin.from_upstream_id.clone().filter(|_| carries)?;
    let last = transcript_facts::record_uuid(origin.from_checkpoint_id.as_ref()?)?;
    let turns = open.copied_turns(&last)?;
    Some((source, turns))
}
