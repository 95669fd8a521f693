//! Judges one transcript for one conversation: which of its turns are new and ended, and who wrote to it.

use std::path::{Path, PathBuf};

use bridge_protocol::link::Link;

use super::super::super::history::{History, TranscriptScope};
use super::super::super::transcript_growth::TranscriptGrowth;
use super::super::Registry;
use super::known_files::{FileComparison, KnownFile};
use crate::store::ConversationRecord;
use crate::transcript::dialect::{TranscriptState, TurnEnd};
use crate::transcript::transcript_list::Format;

/// A transcript that changed.
#[derive(Clone, Debug)]
pub(super) struct ChangedTranscript {
    pub(super) root: PathBuf,
    pub(super) format: Format,
    pub(super) path: PathBuf,
}

/// A conversation that a transcript belongs to.
pub(super) struct OwningConversation {
    pub(super) record: ConversationRecord,
    /// The position of the transcript's session in the chain.
    pub(super) link_index: usize,
}

/// The result of judging a transcript for a conversation.
pub(super) struct Judgement {
    /// Turns whose last record begins before this byte are reported.
    pub(super) judged_bytes: u64,
    pub(super) last_reported_prompt: Option<String>,
    pub(super) prompts: Option<u64>,
    /// Whether the transcript need not be judged again when a turn ends.
    pub(super) is_final: bool,
    /// Whether all turns of this daemon are reported.
    pub(super) is_fully_reported: bool,
}

/// Whether the last of a transcript's `turns` has ended. `first` is the state before the turns were read, `again` the state
/// after that.
fn has_ended(first: &TranscriptState, again: &TranscriptState, turns: u64, acknowledged: u64) -> bool {
    match first.turn_end {
        // The file changed in between; another event follows for that.
        _ if first != again => false,
        TurnEnd::Ended => true,
        // The file does not show whether the turn ended. It has if this daemon acknowledged every turn in the file.
        // A turn of another program is reported with the next record that ends it.
        TurnEnd::Ambiguous => turns <= acknowledged,
        TurnEnd::Open => false,
    }
}

/// Logs a failed read of a transcript; the caller reads it again later.
fn log_unreadable<T, E: std::fmt::Display>(path: &Path, read: Result<T, E>) -> Option<T> {
    let result = read.inspect_err(
        |error| tracing::debug!(path = %path.display(), %error, "a changed transcript cannot be read"),
    );
    result.ok()
}

impl OwningConversation {
    pub(super) fn link(&self) -> Option<&Link> {
        self.record.chain.links().get(self.link_index)
    }

    pub(super) fn is_head(&self) -> bool {
        self.link_index + 1 == self.record.chain.len()
    }
}

/// Reports the changes of a transcript to a conversation. None if it cannot be read.
pub(super) fn judge(
    registry: &Registry,
    owner: &OwningConversation,
    changed: &ChangedTranscript,
    seen: &KnownFile,
    comparison: FileComparison,
    report: impl Fn(TranscriptGrowth),
) -> Option<Judgement> {
    let (path, dialect) = (&changed.path, changed.format.dialect());
    let (services, record) = (&registry.services, &owner.record);
    let link = owner.link()?;
    // A turn always runs on the head.
    let is_running = || owner.is_head() && registry.is_running(record.id);
    let was_running = is_running();
    let state = log_unreadable(path, dialect.state(&services.index_cache, path))?;
    // Checked again: if a turn has begun meanwhile, the state just read may already contain it.
    let is_running = was_running || is_running();
    let may_be_over = state.turn_end != TurnEnd::Open && !is_running;
    let mut growth = TranscriptGrowth {
        prompts: state.prompts,
        replaced: comparison == FileComparison::Replaced && !is_running,
        ..TranscriptGrowth::of(&link.upstream_id)
    };
    let mut judgement = Judgement {
        judged_bytes: seen.judged_bytes,
        last_reported_prompt: seen.last_reported_prompt.clone(),
        prompts: state.prompts,
        is_final: !is_running,
        is_fully_reported: false,
    };
    // Turns before the last have ended, since another prompt follows them.
    if may_be_over || seen.prompts != state.prompts {
        let history = History::ending_with_link(services, record, link, TranscriptScope::AgentFiles, None);
        let mut history = log_unreadable(path, history)?;
        let again = log_unreadable(path, dialect.state(&services.index_cache, path))?;
        let Some(turns) = log_unreadable(path, history.turns_in_file(&link.upstream_id, path))? else {
            // The history is read from another copy. This one counts once the agent continues in it.
            report(growth);
            return Some(judgement);
        };
        let acknowledged = link.turns.saturating_add(link.carried_turns);
        let with_last = may_be_over && has_ended(&state, &again, turns, acknowledged);
        loop {
            let saved = history.new_checkpoints_since(
                path,
                judgement.judged_bytes,
                link.carried_turns,
                judgement.last_reported_prompt.as_deref(),
                with_last,
            );
            judgement.judged_bytes = judgement
                .judged_bytes
                .max(saved.end_offset.map_or(0, |offset| offset + 1));
            judgement.last_reported_prompt = saved.last_prompt.or(judgement.last_reported_prompt);
            growth.new_checkpoints = saved.checkpoints;
            if let Some(error) = saved.unreadable_reason {
                tracing::warn!(path = %path.display(), error, "the last turns of a transcript cannot be read; they are reported when they can be");
                judgement.prompts = seen.prompts;
                judgement.is_final = false;
                break;
            }
            if !saved.has_more {
                // A turn that ended a moment ago may not be in the file at all yet.
                let prompts = state.prompts.unwrap_or(0).max(turns);
                judgement.is_fully_reported = with_last && prompts >= acknowledged;
                break;
            }
            report(growth.clone());
            growth.replaced = false;
        }
    }
    report(growth);
    Some(judgement)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_turn_is_over_when_the_file_says_so_or_it_was_ours() {
        let extent = |turn_end, bytes| TranscriptState {
            turn_end,
            is_answered: false,
            prompts: Some(2),
            bytes,
        };
        let table = [
            (TurnEnd::Ended, 10, 2, 1, true),
            (TurnEnd::Ambiguous, 10, 2, 2, true),
            (TurnEnd::Ambiguous, 10, 2, 1, false),
            (TurnEnd::Open, 10, 2, 2, false),
            // Something was written meanwhile.
            (TurnEnd::Ended, 11, 2, 2, false),
            (TurnEnd::Ambiguous, 11, 2, 2, false),
        ];
        for (turn_end, bytes, turns, acknowledged, expected) in table {
            let (first, again) = (extent(turn_end, 10), extent(turn_end, bytes));
            let ended = has_ended(&first, &again, turns, acknowledged);
            assert_eq!(ended, expected, "{first:?} {again:?} {turns} {acknowledged}");
        }
    }
}
