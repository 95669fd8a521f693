//! Counts the turns and prompts in the transcript of a session while the agent opens it.

use bridge_protocol::id::UpstreamId;
use bridge_protocol::link::Fidelity;
use tokio::task::JoinHandle;

use super::Climber;
use crate::conversation::error::ConversationError;
use crate::conversation::history::{History, TranscriptScope};
use crate::conversation::recovery::{Goal, MissingContent};
use crate::conversation::services::chain_text;
use crate::conversation::transcript_facts::AgentTranscripts;
use crate::conversation::transcript_growth::LoadedHistory;
use crate::store::ConversationRecord;
use crate::transcript::TranscriptError;
use crate::transcript::open_transcript::{Loss, OpenTranscript};

/// The counts of a transcript that the agent loads.
#[derive(Default)]
pub(super) struct LoadedCounts {
    /// The part of it that the agent loads. `None` if it is not read here.
    pub(super) loaded: Option<LoadedHistory>,
    /// How many prompts it contains, if its format allows them to be counted.
    pub(super) prompts: Option<u64>,
    /// What it lacks: in words only for formats whose turns the ladder does not compare with the acknowledged ones, and in
    /// turns for a rollout restored from a backup.
    pub(super) missing: MissingContent,
}

impl Climber {
    /// Starts to count the turns and prompts of a transcript before a prompt is sent, and what our backup of it lacks. Nothing
    /// is counted for an agent whose transcripts this version cannot read.
    pub(super) fn start_counting(
        &self,
        id: &UpstreamId,
        is_restored: bool,
    ) -> JoinHandle<Result<LoadedCounts, ConversationError>> {
        let id = id.clone();
        self.blocking(
            move |services, entry, record| match services.transcripts_of(entry) {
                Some(transcripts) => count_loaded(transcripts, record, &id, is_restored),
                None => Ok(LoadedCounts::default()),
            },
        )
    }

    /// Waits for the count that began with the opening, or counts the transcript of the open session now. Nothing is counted
    /// if the agent stores its transcripts in another place than the daemon looks. If the transcript cannot be read here, it is
    /// unknown whether the agent has loaded all of it.
    ///
    /// # Errors
    /// If the transcript may be readable later, unless the caller accepts a new session.
    pub(super) async fn finish_counting(
        &self,
        goal: &Goal,
        loading: Option<JoinHandle<Result<LoadedCounts, ConversationError>>>,
        id: &UpstreamId,
        is_restored: bool,
    ) -> Result<LoadedCounts, ConversationError> {
        let loading = loading.unwrap_or_else(|| self.start_counting(id, is_restored));
        let error = match loading.await.unwrap_or(Err(ConversationError::Internal)) {
            Ok(counted) => return Ok(counted),
            Err(error) => error,
        };
        tracing::warn!(
            conversation = %self.request.record.id, upstream_id = %id, error = chain_text(&error),
            "the agent loaded a transcript that cannot be read here; its turns are not counted"
        );
        match error {
            ConversationError::TranscriptDamaged(why) => Ok(LoadedCounts {
                missing: MissingContent {
                    turns: 0,
                    description: Some(format!("it cannot be read here: {why}")),
                },
                ..LoadedCounts::default()
            }),
            error if error.is_transient_failure() && goal.min_fidelity > Fidelity::None => Err(error),
            // Other errors say nothing about the transcript.
            _ => Ok(LoadedCounts::default()),
        }
    }
}

fn count_loaded(
    transcripts: AgentTranscripts<'_>,
    record: &ConversationRecord,
    id: &UpstreamId,
    is_restored: bool,
) -> Result<LoadedCounts, ConversationError> {
    let damaged = |error: TranscriptError| ConversationError::from_damage(&error, |why| why);
    let session = transcripts.session(&record.cwd, id);
    let mut transcript = match transcripts.dialect.open(session, None) {
        Err(error) if error.is_absence() => return Ok(LoadedCounts::default()),
        opened => opened.map_err(damaged)?,
    };
    let prompts = transcript.prompts();
    let head = record.chain.head().filter(|head| head.upstream_id == *id);
    // If the agent records every turn, the ladder itself counts what is missing.
    let recorded = transcript.max_recorded_turns();
    let lost = recorded.and_then(|_| describe_losses(&transcript.losses()));
    let missing = match (recorded, head.filter(|_| is_restored)) {
        // A compaction that the user requested was acknowledged as a turn, but is not recorded as one.
        (Some(recorded), Some(head)) => (head.turns + head.carried_turns).saturating_sub(recorded),
        _ => 0,
    };
    let lost = match missing {
        0 => lost,
        _ => Some(format!("the last turns are missing from the backup ({missing})")),
    };
    // An ancestor or a copy is not in the chain yet; its own transcript holds all that is loaded.
    let turns = match head {
        Some(_) => History::current(transcripts.services, record, TranscriptScope::AgentFiles)?.turns(),
        None => transcript.turns(),
    };
    let loaded = LoadedHistory {
        turns: turns as u64,
        messages: transcript.loaded_messages().map_err(damaged)? as u64,
        later_prompt: match turns > 1 {
            // It serves only to recognize titles.
            true => last_prompt(&mut *transcript).unwrap_or_default(),
            false => None,
        },
    };
    Ok(LoadedCounts {
        loaded: Some(loaded),
        prompts,
        missing: MissingContent {
            turns: missing,
            description: lost,
        },
    })
}

/// What the user typed as the last prompt of a transcript.
fn last_prompt(transcript: &mut dyn OpenTranscript) -> Result<Option<String>, TranscriptError> {
    let Some(last) = transcript.turns().checked_sub(1) else {
        return Ok(None);
    };
    let prompt = transcript.outline(transcript.turn(last).start)?;
    Ok(prompt.map(|prompt| prompt.typed.join("\n")))
}

/// Describes losses as text. A compaction loses nothing that the agent would have loaded, so it is left out.
fn describe_losses(losses: &[Loss]) -> Option<String> {
    let described = losses.iter().filter(|loss| **loss != Loss::Compacted);
    let described: Vec<String> = described.map(Loss::to_string).collect();
    (!described.is_empty()).then(|| described.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_is_told_in_words() {
        let source = || Loss::Source {
            upstream_id: "s1".to_owned(),
            detail: "there is no file".to_owned(),
        };
        for losses in [vec![], vec![Loss::Compacted]] {
            assert_eq!(describe_losses(&losses), None, "{losses:?}");
        }
        for losses in [
            vec![Loss::Damaged(1)],
            vec![Loss::Damaged(3), Loss::Compacted],
            vec![source(), Loss::Damaged(1)],
        ] {
            crate::words::check(&format!("{losses:?}"), "lost", &describe_losses(&losses).unwrap());
        }
    }
}
