//! Finds the new checkpoints in the last transcript of a history.

use std::path::Path;

use bridge_protocol::UpstreamId;
use bridge_protocol::history::Checkpoint;

use super::History;

/// How many checkpoints are reported at once when a transcript has grown by many turns; the others are reported later. Each
/// may take some kilobytes of memory until it is sent.
const MAX_NEW_CHECKPOINTS: usize = 256;

/// New checkpoints in a transcript.
#[derive(Debug, Default)]
pub(in super::super) struct NewCheckpoints {
    /// Oldest first, 256 at most.
    pub(in super::super) checkpoints: Vec<Checkpoint>,
    /// The byte offset of the last record of the last of these turns.
    pub(in super::super) end_offset: Option<u64>,
    /// The record id of the last turn's prompt, or the turn's own name.
    pub(in super::super) last_prompt: Option<String>,
    /// Whether there are newer checkpoints.
    pub(in super::super) has_more: bool,
    /// Why the next turn cannot be read, if these end before an unreadable turn.
    pub(in super::super) unreadable_reason: Option<String>,
}

impl History {
    /// How many turns this transcript of a session contains; `None` if the history is read from another copy of it.
    ///
    /// # Errors
    /// Why no copy of the transcript could be read.
    pub(in super::super) fn turns_in_file(
        &self,
        id: &UpstreamId,
        path: &Path,
    ) -> Result<Option<u64>, String> {
        match self.sessions.last().filter(|own| own.upstream_id == *id) {
            Some(own) if own.transcript.path() == path => Ok(Some(own.transcript.turns() as u64)),
            Some(_) => Ok(None),
            None => {
                let gap = self.gaps.listed.iter().find(|gap| gap.upstream_id == *id);
                Err(gap.map_or_else(|| "it is not found".to_owned(), |gap| gap.detail.clone()))
            }
        }
    }

    /// The checkpoints of the last session that end at or after the byte `offset` of its transcript, oldest first; the last
    /// turn is included only `with_last`. The turn of the prompt `told` was reported before, but a compaction or commands of
    /// the agent may have lengthened it.
    ///
    /// Turns `carried` over from another session were reported there. Their count is used only until checkpoints of this
    /// transcript were first looked for, because the agent may write them at any time. After that the offset decides: on a
    /// branch where the user went back there are fewer turns than were carried over, and new ones among them.
    ///
    /// Unreadable turns at the end are left for a later call. An unreadable turn with readable ones after it is skipped,
    /// because otherwise those would never be reported.
    pub(in super::super) fn new_checkpoints_since(
        &mut self,
        path: &Path,
        offset: u64,
        carried: u64,
        told: Option<&str>,
        with_last: bool,
    ) -> NewCheckpoints {
        let mut saved = NewCheckpoints::default();
        let Some(own) = self.sessions.last().filter(|own| own.transcript.path() == path) else {
            return saved;
        };
        let before = own.turns_before;
        let end = own.transcript.turns().saturating_sub(usize::from(!with_last));
        let carried = usize::try_from(carried).unwrap_or(usize::MAX);
        let start = if offset == 0 { carried.min(end) } else { 0 };
        let ends = (start..end)
            .rev()
            .map_while(|turn| own.transcript.end_offset(turn));
        let new = ends.take_while(|at| *at >= offset).count();
        let next = (end - new + MAX_NEW_CHECKPOINTS).min(end);
        // Until all carried turns are in the transcript, the agent has yet to write the rest of them.
        let is_judged = offset > 0 || end > carried;
        let behind = next.checked_sub(1).filter(|_| is_judged);
        saved.end_offset = behind.and_then(|turn| own.transcript.end_offset(turn));
        saved.has_more = next < end;
        let prompt = |turn| match own.transcript.turn_end_id(turn) {
            // Codex gives each turn its own name.
            (name, Some(_)) => name,
            (_, None) => own.transcript.record_id(own.transcript.turn(turn).start),
        };
        let begins_after = |turn| own.transcript.begin_offset(turn).is_some_and(|at| at >= offset);
        let turns: Vec<usize> = (end - new..next)
            .filter(|turn| *turn >= carried || begins_after(*turn))
            .filter(|turn| told.is_none_or(|told| prompt(*turn) != told))
            .collect();
        let prompts: Vec<String> = turns.iter().map(|turn| prompt(*turn)).collect();
        let mut unread = None;
        for (turn, prompt) in turns.into_iter().zip(prompts) {
            let Some(checkpoint) = self.checkpoint(before + turn) else {
                unread.get_or_insert(turn);
                continue;
            };
            unread = None;
            saved.last_prompt = Some(prompt);
            saved
                .checkpoints
                .extend(Some(checkpoint).filter(|told| told.origin.is_none()));
        }
        if let Some(turn) = unread.filter(|_| next == end) {
            let own = self.sessions.last();
            let last = turn.checked_sub(1).filter(|_| is_judged);
            saved.end_offset = last.and_then(|last| own?.transcript.end_offset(last));
            saved.has_more = true;
            let why = self.gaps.listed.last().map(|gap| gap.detail.clone());
            saved.unreadable_reason = Some(why.unwrap_or_default());
        }
        saved
    }
}
