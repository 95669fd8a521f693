//! Reads from disk the transcripts of a head that cannot be opened, and its history as text. Blocks.

use bridge_protocol::CheckpointId;
use bridge_protocol::link::Fidelity;

use crate::conversation::error::ConversationError;
use crate::conversation::history::{History, TranscriptScope};
use crate::conversation::recovery::{Goal, Inspection};
use crate::conversation::services::{Services, chain_text};
use crate::conversation::transcript_facts::{self, AgentTranscripts};
use crate::store::ConversationRecord;
use crate::transcript::preamble::{MissingTurnCounts, Preamble, TURN_LIMIT, build_preamble};

/// Inspects the transcripts of the head and its ancestors. An ancestor's transcript that cannot be read counts as missing; if
/// the head's cannot be read, the result says why.
///
/// # Errors
/// If one of them may be readable later, unless the caller accepts a new session: the way that looks best now may lose turns.
pub(super) fn inspect(
    transcripts: AgentTranscripts<'_>,
    record: &ConversationRecord,
    goal: &Goal,
) -> Result<Inspection, ConversationError> {
    let Some(head) = &goal.head else {
        return Ok(Inspection::default());
    };
    let unread = |why: String| {
        Ok(Inspection {
            unreadable_reason: Some(why),
            ..Inspection::default()
        })
    };
    let is_strict = goal.min_fidelity > Fidelity::None;
    let (dialect, root, id) = (transcripts.dialect, transcripts.root, &head.upstream_id);
    let path = transcripts.find(&record.cwd, id).ok();
    if let Some(command) = path.and_then(|path| dialect.unarchive_command(root, &path)) {
        // The transcript is complete, but the user must run a command to unarchive it.
        return unread(format!(
            "it is archived; unarchive it to continue: `{command} {id}`"
        ));
    }
    let scope = TranscriptScope::AgentFilesWithTurns;
    let history = match History::current(transcripts.services, record, scope) {
        Ok(history) => history,
        Err(error) if is_strict && error.is_transient_failure() => return Err(error),
        Err(error) => return unread(chain_text(&error)),
    };
    if is_strict {
        history.refuse_unread()?;
    }
    let (file, unread) = match transcripts.link_turn_counts(&record.cwd, head) {
        Ok(Some(file)) => (Some(file), None),
        Ok(None) => (None, history.unreadable_reason(id).map(str::to_owned)),
        Err(error) if is_strict && error.is_passing() => return Err(error.into()),
        Err(error) => (
            None,
            Some(format!("its transcript cannot be read: {}", chain_text(&error))),
        ),
    };
    let ancestors = goal.ancestors.iter().map(|source| {
        let id = &source.upstream_id;
        let cut = transcripts.cut_point(&record.cwd, id, &source.until);
        let counts = |until: Option<CheckpointId>| transcripts.turn_counts(&record.cwd, id, until.as_ref());
        match cut.and_then(counts) {
            Err(error) if error.is_absence() => Ok(None),
            Err(error) if is_strict && error.is_passing() => Err(error.into()),
            counts => Ok(transcript_facts::log_unreadable(counts)),
        }
    });
    let ancestors = ancestors.collect::<Result<_, ConversationError>>()?;
    Ok(Inspection {
        head: file,
        unreadable_reason: unread,
        ancestors,
        readable_turns: history.turns() as u64,
        turns_after_readable: turns_after(&history, goal),
        is_misplaced: dialect
            .expected_location(root, id.as_str())
            .is_ok_and(|place| place.is_some()),
        has_backup: None,
    })
}

/// Returns the history as text, and the checkpoint at its end if it ends in the head.
pub(super) fn history_as_text(
    services: &Services,
    record: &ConversationRecord,
    goal: &Goal,
) -> (Option<Preamble>, Option<CheckpointId>) {
    let Ok(mut history) = History::current(services, record, TranscriptScope::AgentFilesWithTurns) else {
        return (None, None);
    };
    let turns = history.past_turns(TURN_LIMIT);
    let missing = MissingTurnCounts {
        before: history.turns().saturating_sub(turns.len()),
        after: usize::try_from(turns_after(&history, goal)).unwrap_or(usize::MAX),
    };
    let head = goal.head.as_ref().map(|head| &head.upstream_id);
    let checkpoint = history
        .last_checkpoint()
        .filter(|_| history.last_session() == head);
    (build_preamble(&turns, missing), checkpoint)
}

/// Returns how many turns were acknowledged on the links after the session in which the history ends.
fn turns_after(history: &History, goal: &Goal) -> u64 {
    let last = history.last_session();
    let source = goal
        .ancestors
        .iter()
        .find(|source| Some(&source.upstream_id) == last);
    source.map_or(0, |source| source.turns_after)
}
