//! Counts the turns and prompts in the transcript of a session while the agent opens it.

use std::path::Path;

use bridge_protocol::id::UpstreamId;
use bridge_protocol::link::Fidelity;
use tokio::task::JoinHandle;

use super::Climber;
use crate::conversation::error::ConversationError;
use crate::conversation::history::{History, TranscriptScope};
use crate::conversation::recovery::Goal;
use crate::conversation::services::{Services, chain_text};
use crate::conversation::transcript_growth::LoadedHistory;
use crate::store::ConversationRecord;
use crate::transcript::TranscriptError;
use crate::transcript::open_transcript::Loss;
use crate::transcript::transcript_list::Format;

/// What a transcript holds.
pub(super) struct LoadedCounts {
    /// What is loaded of it.
    pub(super) loaded: LoadedHistory,
    /// How many prompts it contains, if its format allows them to be counted.
    pub(super) prompts: Option<u64>,
    /// What it lacks, in words, of a format of which the disk is not compared with what was acknowledged.
    pub(super) loss: Option<String>,
    /// How many turns of those that were acknowledged on it are not there, of a rollout that was restored.
    pub(super) missing_turns: u64,
}

impl Climber {
    /// Counts the turns and prompts of a transcript before a prompt is sent, and what our backup of it lacks. None for an
    /// agent whose transcripts this version cannot read.
    pub(super) fn start_counting(
        &self,
        id: &UpstreamId,
        is_restored: bool,
    ) -> JoinHandle<Result<Option<LoadedCounts>, ConversationError>> {
        let id = id.clone();
        self.blocking(move |services, entry, record| match entry.listed_transcripts() {
            Some((root, format)) => count_loaded(services, record, root, format, &id, is_restored),
            None => Ok(None),
        })
    }

    /// The same for an open session: the result of the count that began with the opening, or of one that runs now. None if
    /// the agent stores its transcripts in another place than the daemon looks.
    ///
    /// # Errors
    /// If it may be readable later, unless the caller accepts a new session. The inner error is why it cannot be read here, in
    /// words: whether the agent has loaded all of it nobody knows then.
    pub(super) async fn finish_counting(
        &self,
        goal: &Goal,
        loading: Option<JoinHandle<Result<Option<LoadedCounts>, ConversationError>>>,
        id: &UpstreamId,
        is_restored: bool,
    ) -> Result<Result<Option<LoadedCounts>, String>, ConversationError> {
        let loading = loading.unwrap_or_else(|| self.start_counting(id, is_restored));
        let error = match loading.await.unwrap_or(Err(ConversationError::Lost)) {
            Ok(counted) => return Ok(Ok(counted)),
            Err(error) => error,
        };
        tracing::warn!(
            conversation = %self.request.record.id, upstream_id = %id, error = chain_text(&error),
            "the agent loaded a transcript that cannot be read here; its turns are not counted"
        );
        match error {
            ConversationError::TranscriptDamaged(why) => Ok(Err(format!("it cannot be read here: {why}"))),
            error if error.is_transient_failure() && goal.min_fidelity > Fidelity::None => Err(error),
            // Nothing that says anything about the transcript.
            _ => Ok(Ok(None)),
        }
    }
}

fn count_loaded(
    services: &Services,
    record: &ConversationRecord,
    root: &Path,
    format: Format,
    id: &UpstreamId,
    is_restored: bool,
) -> Result<Option<LoadedCounts>, ConversationError> {
    let damaged = |error: TranscriptError| ConversationError::from_damage(&error, |why| why);
    let dialect = format.dialect();
    let mut own = match dialect.open(services.session(root, &record.cwd, id), None) {
        Err(error) if error.is_absence() => return Ok(None),
        opened => opened.map_err(damaged)?,
    };
    let prompts = own.prompts();
    let head = record.chain.head().filter(|head| head.upstream_id == *id);
    // If the agent records every turn, the ladder itself counts what is missing.
    let recorded = own.max_recorded_turns();
    let lost = recorded.and_then(|_| describe_losses(&own.losses()));
    let lacking = match (recorded, head.filter(|_| is_restored)) {
        // A compaction that was asked for counted as a turn, and is none there.
        (Some(recorded), Some(head)) => (head.turns + head.carried_turns).saturating_sub(recorded),
        _ => 0,
    };
    let lost = match lacking {
        0 => lost,
        _ => Some(format!("the kept copy lacks the last turns ({lacking})")),
    };
    // Of an ancestor, or a copy, the link is not there yet; it holds what is loaded by itself.
    let turns = match head {
        Some(_) => {
            let lineage = services.store.lineage_all(record.id)?;
            History::current(services, record, &lineage, TranscriptScope::AgentFiles)?.turns()
        }
        None => own.turns(),
    };
    let loaded = LoadedHistory {
        turns: turns as u64,
        messages: own.loaded_messages().map_err(damaged)? as u64,
    };
    Ok(Some(LoadedCounts {
        loaded,
        prompts,
        loss: lost,
        missing_turns: lacking,
    }))
}

/// What is lost, as text. A compaction loses nothing that the agent would have loaded.
fn describe_losses(losses: &[Loss]) -> Option<String> {
    let told = losses.iter().filter(|loss| **loss != Loss::Compacted);
    let told: Vec<String> = told.map(Loss::to_string).collect();
    (!told.is_empty()).then(|| told.join("; "))
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
