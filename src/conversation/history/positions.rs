//! Places in a history where a branch can leave it: after a message, or before a turn.

use bridge_protocol::history::{GapKind, HistoryGap};
use bridge_protocol::{CheckpointId, UpstreamId};
use jiff::Timestamp;

use super::{History, SessionTranscript};
use crate::conversation::error::ConversationError;
use crate::conversation::transcript_facts;
use crate::transcript::checkpoint::PlaceRef;
use crate::transcript::message::{ContentPart, TranscriptMessageKind};

/// Where a branch leaves a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct BranchPoint {
    /// The session to branch.
    pub session: UpstreamId,
    /// The last checkpoint in it that the branch keeps.
    pub checkpoint: CheckpointId,
    /// How many turns the branch keeps, an unfinished last one included, if they were counted.
    pub turns: Option<u64>,
}

/// The position of a message in a history.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct MessagePosition {
    /// The index of its session in the history.
    session: usize,
    /// Its index in that session.
    message: usize,
}

impl History {
    /// Finds the message that a place names; `None` if it is in no transcript of this history.
    pub(in super::super) fn position_of(&self, reference: &PlaceRef) -> Option<MessagePosition> {
        let (owner, record) = (reference.upstream_id(), reference.record_uuid());
        self.sessions.iter().enumerate().find_map(|(number, session)| {
            let is_of_agent = match reference {
                PlaceRef::Checkpoint(reference) => reference.agent == session.agent.as_str(),
                PlaceRef::Message(_) => true,
            };
            let message = is_of_agent.then(|| session.find(owner, record)).flatten()?;
            Some(MessagePosition {
                session: number,
                message,
            })
        })
    }

    /// The number of the message that a record of the session `owner` is in this history, as itself or as a copy, and `true`.
    /// If a branch left the record out, the number of the last message that the branch took from that session, and `false`.
    pub(super) fn kept_until(&mut self, owner: &str, record: &str) -> Option<(usize, bool)> {
        let mut sessions = self.sessions.iter();
        let own = sessions.find_map(|session| Some(session.messages_before + session.find(owner, record)?));
        if let Some(own) = own {
            return Some((own, true));
        }
        // Where the user went back within the last session's own file, nothing tells where the branch began.
        let is_open_ended = self
            .sessions
            .last()
            .is_some_and(|head| head.upstream_id.as_str() == owner);
        let mut last_taken = None;
        for session in &mut self.sessions {
            let exact = session.copied_from.clone();
            let mut has_copies = None;
            for message in 0..session.transcript.messages() {
                let turn = session.transcript.turn_of(message);
                let is_exact = |turns: usize| turn.is_none_or(|turn| turn < turns);
                let source = match &exact {
                    Some((source, turns)) if is_exact(*turns) => {
                        Some((source.to_string(), session.transcript.record_id(message)))
                    }
                    // A session that contains copies begins with one. The messages of another need not be read.
                    _ if has_copies != Some(false) => {
                        let read = session.read_or_gap(|open| open.message(message), &mut self.gaps);
                        read.and_then(|read| {
                            has_copies.get_or_insert(read.copied_from.is_some());
                            read.copied_from
                        })
                    }
                    _ => None,
                };
                let (source, copied) =
                    source.unwrap_or_else(|| (session.file_owner(message).to_string(), String::new()));
                let number = session.messages_before + message;
                // Copies of copies of a session keep its record ids, if they are exact.
                if copied == record {
                    return Some((number, true));
                }
                if source == owner && !is_open_ended {
                    last_taken = Some((number, false));
                }
            }
        }
        last_taken
    }

    /// Whether a message is the prompt of its turn or a part of it. True for a message before the first turn, which no turn has.
    pub(in super::super) fn is_prompt(&mut self, position: MessagePosition) -> bool {
        let Some(session) = self.sessions.get_mut(position.session) else {
            return false;
        };
        let turn = session.transcript.turn_of(position.message);
        // Whatever its kind, the first message of a turn began it.
        let is_first = |turn| session.transcript.turn(turn).start == position.message;
        if turn.is_none_or(is_first) {
            return true;
        }
        let read = session.read_or_gap(|open| open.message(position.message), &mut self.gaps);
        read.is_some_and(|read| read.kind == TranscriptMessageKind::Prompt)
    }

    /// The number of the turn that a message belongs to, from 0; `None` before the first turn.
    pub(super) fn turn_of_position(&self, position: MessagePosition) -> Option<usize> {
        let session = self.sessions.get(position.session)?;
        Some(session.turns_before + session.transcript.turn_of(position.message)?)
    }

    /// The number of the turn that contains a message of the history; `None` before the first turn.
    pub(super) fn turn_of_message(&self, number: usize) -> Option<usize> {
        let session = self.session_of_message(number);
        let message = number - self.sessions.get(session)?.messages_before;
        self.turn_of_position(MessagePosition { session, message })
    }

    /// Where the history ends that remains when the turn that a message belongs to is replaced. `None` if nothing remains.
    ///
    /// # Errors
    /// [`ConversationError::TranscriptDamaged`] if it is the first turn and earlier turns cannot be read, so that it is unknown
    /// what a new session would lack; [`ConversationError::Unsupported`] if the message is before the first turn, or the agent
    /// cannot branch there.
    pub(in super::super) fn point_before_turn(
        &self,
        position: MessagePosition,
    ) -> Result<Option<BranchPoint>, ConversationError> {
        let Some(session) = self.sessions.get(position.session) else {
            return Ok(None);
        };
        let Some(own) = session.transcript.turn_of(position.message) else {
            return Err(ConversationError::Unsupported(
                "the message is before the first turn, so there is no prompt to replace".to_owned(),
            ));
        };
        let turns = session.turns_before + own;
        if turns > 0 {
            return Ok(self.point_after_turns(turns));
        }
        // Messages before the first turn, such as the summary of a compaction, are kept.
        let Some(before) = session.transcript.turn(own).start.checked_sub(1) else {
            let is_lost = |gap: &&HistoryGap| {
                !matches!(
                    gap.kind,
                    GapKind::Behind | GapKind::UnknownRecord | GapKind::Unknown
                )
            };
            self.refuse_unread()?;
            return match self.gaps.listed.iter().find(is_lost) {
                None => Ok(None),
                Some(gap) => {
                    let id = &gap.upstream_id;
                    let repair = match gap.kind {
                        GapKind::Broken => format!("sessionctl check {id} --repair makes a repaired copy, "),
                        _ => String::new(),
                    };
                    Err(ConversationError::TranscriptDamaged(format!(
                        "the turns before that one cannot be read (session {id}: {}) and would be lost; \
                         {repair}sessionctl reset starts an empty session",
                        gap.detail
                    )))
                }
            };
        };
        if !session.transcript.can_end_within_turns() {
            return Err(ConversationError::Unsupported(format!(
                "the agent {} can branch only after a whole turn, and something else precedes this turn",
                session.agent
            )));
        }
        Ok(Some(session.point_at_message(before, 0)))
    }

    /// How many turns at the beginning are the same as in another history, or copies of those.
    pub(in super::super) fn turns_shared_with(&mut self, other: &Self) -> u64 {
        let mut shared = 0;
        while let Some(theirs) = other.checkpoint_id_of_turn(shared) {
            let Some(own) = self.checkpoint(shared) else {
                break;
            };
            if own.id != theirs && own.origin.as_ref() != Some(&theirs) {
                break;
            }
            shared += 1;
        }
        shared as u64
    }

    /// The place after the first `turns` turns.
    fn point_after_turns(&self, turns: usize) -> Option<BranchPoint> {
        let last = turns.checked_sub(1)?;
        let session = self.sessions.get(self.session_of_turn(last))?;
        Some(BranchPoint {
            session: session.upstream_id.clone(),
            checkpoint: session.checkpoint_id(last - session.turns_before),
            turns: Some(turns as u64),
        })
    }

    /// The place after the last turn that began before `at`, according to the times in the records.
    pub(in super::super) fn point_before_time(&mut self, at: Timestamp) -> Option<BranchPoint> {
        for number in (0..self.turns()).rev() {
            let index = self.session_of_turn(number);
            let session = self.sessions.get_mut(index)?;
            let prompt = session.transcript.turn(number - session.turns_before).start;
            let began = session.transcript.message(prompt).ok().flatten();
            let began = began.and_then(|prompt| prompt.at?.parse::<Timestamp>().ok());
            // Records contain milliseconds. A turn without a time has ended if another one follows.
            let is_before = match began {
                Some(began) => began.as_millisecond() < at.as_millisecond(),
                None => number + 1 < self.turns(),
            };
            if is_before {
                return self.point_after_turns(number + 1);
            }
        }
        None
    }

    /// The branch point after a message: after its turn if it is the turn's last message, otherwise after the last
    /// message up to which every tool call has its result. Codex branches only after whole turns, so there it is always
    /// after the turn.
    ///
    /// # Errors
    /// [`ConversationError::Unsupported`] for a message before the first turn of Codex,
    /// [`ConversationError::TranscriptDamaged`] if the messages before it cannot be read.
    pub(in super::super) fn point_after_message(
        &mut self,
        position: MessagePosition,
    ) -> Result<Option<BranchPoint>, ConversationError> {
        let Some(session) = self.sessions.get(position.session) else {
            return Ok(None);
        };
        let only_whole_turns = !session.transcript.can_end_within_turns();
        let turn = session.transcript.turn_of(position.message);
        let turns = session.turns_before + turn.map_or(0, |turn| turn + 1);
        let messages = turn.map(|turn| session.transcript.turn(turn));
        if messages
            .as_ref()
            .is_some_and(|messages| only_whole_turns || position.message + 1 >= messages.end)
        {
            return Ok(self.point_after_turns(turns));
        }
        if only_whole_turns {
            return Err(ConversationError::Unsupported(format!(
                "the agent {} can branch only after a whole turn, and this message is before the first turn",
                session.agent
            )));
        }
        let start = messages.map_or(position.message, |messages| messages.start);
        let last = self.last_message_without_open_call(position.session, start..=position.message)?;
        let session = self.sessions.get(position.session);
        Ok(session.map(|session| session.point_at_message(last, turns)))
    }

    /// The last of these messages up to which every tool call has its result; the first message if there is none.
    fn last_message_without_open_call(
        &mut self,
        session: usize,
        messages: std::ops::RangeInclusive<usize>,
    ) -> Result<usize, ConversationError> {
        let mut last = *messages.start();
        let mut waiting: Vec<String> = Vec::new();
        let Some(session) = self.sessions.get_mut(session) else {
            return Ok(last);
        };
        for number in messages {
            let Some(read) = session.read_or_gap(|open| open.message(number), &mut self.gaps) else {
                self.refuse_unread()?;
                return Err(ConversationError::TranscriptDamaged(
                    "the messages before that place cannot be read".to_owned(),
                ));
            };
            for part in read.parts {
                match part {
                    ContentPart::ToolCall { id, .. } => waiting.push(id),
                    ContentPart::ToolResult { call_id, .. } => waiting.retain(|id| *id != call_id),
                    _ => {}
                }
            }
            if waiting.is_empty() {
                last = number;
            }
        }
        Ok(last)
    }
}

impl SessionTranscript {
    /// The place after a message of the transcript, up to which the history has this many turns.
    fn point_at_message(&self, message: usize, turns: usize) -> BranchPoint {
        BranchPoint {
            session: self.upstream_id.clone(),
            checkpoint: transcript_facts::make_checkpoint_id(
                &self.agent,
                &self.file_owner(message),
                &self.transcript.record_id(message),
            ),
            turns: Some(turns as u64),
        }
    }
}
