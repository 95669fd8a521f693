//! The last turns of a history as text, for a new session that continues it.

use bridge_protocol::history::{GapKind, HistoryGap};
use bridge_protocol::{CheckpointId, UpstreamId};

use super::History;
use crate::transcript::claude::record::INTERRUPTED_TEXT;
use crate::transcript::message::{ContentPart, Speaker, TranscriptMessage, TranscriptMessageKind};
use crate::transcript::preamble::{PastTurn, TEXT_LIMIT_CHARS, without_retelling};

impl History {
    /// The last session that can be read; `None` if no session can be read.
    pub(in super::super) fn last_session(&self) -> Option<&UpstreamId> {
        self.sessions.last().map(|session| &session.upstream_id)
    }

    /// The checkpoint after the last turn.
    pub(in super::super) fn last_checkpoint(&self) -> Option<CheckpointId> {
        let session = self.sessions.last()?;
        session
            .transcript
            .turns()
            .checked_sub(1)
            .map(|last| session.checkpoint_id(last))
    }

    /// The last turns, oldest first, up to the limit. If a message of a turn cannot be read, the rest of the turn is still
    /// included.
    pub(in super::super) fn past_turns(&mut self, last: usize) -> Vec<PastTurn> {
        let mut turns = Vec::new();
        let is_lost = |gap: &HistoryGap| {
            matches!(
                gap.kind,
                GapKind::Missing | GapKind::Unreadable | GapKind::Compacted
            )
        };
        let is_whole = !self.gaps.listed.iter().any(is_lost);
        for (position, session) in self.sessions.iter_mut().enumerate().rev() {
            // If all sessions can be read, text that a session was sent about earlier ones is already in those.
            let skip_preamble = position > 0 && is_whole;
            for turn in (0..session.transcript.turns()).rev() {
                if turns.len() == last {
                    break;
                }
                let mut past = PastTurn {
                    prompt: String::new(),
                    reply: String::new(),
                    complete: false,
                };
                for number in session.transcript.turn(turn) {
                    if let Some(read) = session.read_or_gap(|open| open.message(number), &mut self.gaps) {
                        add_message(&mut past, read, skip_preamble);
                    }
                }
                turns.push(past);
            }
        }
        turns.reverse();
        turns
    }
}

fn add_message(past: &mut PastTurn, read: TranscriptMessage, skip_preamble: bool) {
    let is_reply = read.speaker == Speaker::Model && read.kind == TranscriptMessageKind::Ordinary;
    if read.kind == TranscriptMessageKind::Error {
        past.complete = false;
    }
    for part in read.parts {
        match part {
            ContentPart::Text(text) if read.kind == TranscriptMessageKind::Prompt => {
                let own = match skip_preamble {
                    true => without_retelling(&text),
                    false => &text,
                };
                add_text(&mut past.prompt, own);
            }
            ContentPart::Text(text) if is_reply => {
                past.complete = true;
                add_text(&mut past.reply, &text);
            }
            ContentPart::Text(text) if text.starts_with(INTERRUPTED_TEXT) => past.complete = false,
            // The reply continues after the call.
            ContentPart::ToolCall { .. } => past.complete = false,
            _ => {}
        }
    }
}

/// Appends text, but no more than a new session can be sent.
fn add_text(whole: &mut String, text: &str) {
    if !whole.is_empty() && !text.is_empty() {
        whole.push_str("\n\n");
    }
    // One character more than is sent, so that the cut is detected.
    let room = (TEXT_LIMIT_CHARS + 1).saturating_sub(whole.chars().count());
    whole.extend(text.chars().take(room));
}
