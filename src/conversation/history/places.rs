//! Places in a history where a branch can leave it: after a message, or before a turn.

use bridge_protocol::history::{GapKind, HistoryGap};
use bridge_protocol::{CheckpointId, UpstreamId};
use jiff::Timestamp;

use super::History;
use crate::conversation::disk;
use crate::conversation::error::ConversationError;
use crate::transcript::checkpoint::PlaceRef;
use crate::transcript::message::Part;

/// What of a history stands before a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Kept {
    /// The session in which the place is; none where nothing stands before it.
    pub end: Option<KeptEnd>,
    /// How many turns stand before it, one that it leaves unfinished included.
    pub turns: u64,
}

/// The end of what is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct KeptEnd {
    /// The session that is to be branched.
    pub session: UpstreamId,
    /// The last place in it.
    pub until: CheckpointId,
}

/// Where a message stands.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Spot {
    /// The number of its session in the history.
    session: usize,
    /// Its number in that.
    message: usize,
}

impl History {
    /// Where the record stands that a place is named by; none when it is in no transcript of this history.
    pub(in super::super) fn spot(&self, place: &PlaceRef) -> Option<Spot> {
        let (owner, record) = (place.upstream_id(), place.record_uuid());
        self.sessions.iter().enumerate().find_map(|(number, session)| {
            let is_of_agent = match place {
                PlaceRef::Checkpoint(place) => place.agent == session.agent.as_str(),
                PlaceRef::Message(_) => true,
            };
            let may_hold = is_of_agent && session.open.may_hold(session.upstream_id.as_str(), owner);
            let message = may_hold.then(|| session.open.find(owner, record)).flatten()?;
            Some(Spot {
                session: number,
                message,
            })
        })
    }

    /// The number of the turn that a message belongs to, from 0; none before the first turn.
    pub(super) fn turn_at(&self, spot: Spot) -> Option<usize> {
        let session = self.sessions.get(spot.session)?;
        Some(session.turns_before + session.open.turn_of(spot.message)?)
    }

    /// Why a session is missing from the answer, if it is part of this history and cannot be read.
    pub(in super::super) fn why_untold(&self, upstream_id: &str) -> Option<&str> {
        let mut gaps = self.gaps.listed.iter();
        let is_it = |gap: &&HistoryGap| {
            gap.upstream_id.as_str() == upstream_id
                && matches!(gap.kind, GapKind::Missing | GapKind::Unreadable)
        };
        gaps.find(is_it).map(|gap| gap.detail.as_str())
    }

    /// What is kept of the history when the turn that a message belongs to is replaced.
    ///
    /// # Errors
    /// [`ConversationError::TranscriptDamaged`] when nothing of what stood before the first turn that can be read can be kept, so
    /// that nobody knows what a new session would lack; [`ConversationError::Unsupported`] when it is no whole turn.
    pub(in super::super) fn before_turn_of(&self, spot: Spot) -> Result<Kept, ConversationError> {
        let nothing = Kept { end: None, turns: 0 };
        let Some(session) = self.sessions.get(spot.session) else {
            return Ok(nothing);
        };
        let Some(own) = session.open.turn_of(spot.message) else {
            return Err(ConversationError::Unsupported(
                "the place is before the first turn; there is no prompt to replace".to_owned(),
            ));
        };
        let turns = session.turns_before + own;
        if turns > 0 {
            return Ok(Kept {
                end: self.end_of(turns),
                turns: turns as u64,
            });
        }
        // A summary of what was compacted, say.
        let Some(before) = session.open.turn(own).start.checked_sub(1) else {
            let is_lost = |gap: &&HistoryGap| {
                !matches!(
                    gap.kind,
                    GapKind::Behind | GapKind::UnknownRecord | GapKind::Unknown
                )
            };
            self.refuse_unread()?;
            return match self.gaps.listed.iter().find(is_lost) {
                None => Ok(nothing),
                Some(gap) => Err(ConversationError::TranscriptDamaged(format!(
                    "the turns before that one cannot be read (session {}: {}) and would be lost; sessionctl reset \
                     starts a new chat",
                    gap.upstream_id, gap.detail
                ))),
            };
        };
        if !session.open.can_end_within_turns() {
            return Err(ConversationError::Unsupported(format!(
                "the agent {} branches behind whole turns, and before this one stands something else",
                session.agent
            )));
        }
        Ok(Kept {
            end: Some(KeptEnd {
                session: session.upstream_id.clone(),
                until: disk::checkpoint(
                    &session.agent,
                    &session.owner(before),
                    &session.open.record_id(before),
                ),
            }),
            turns: 0,
        })
    }

    /// How many turns from the beginning are the same as in another history, copies among them.
    pub(in super::super) fn turns_shared_with(&mut self, other: &Self) -> u64 {
        let mut shared = 0;
        while let Some(theirs) = other.id_of_step(shared) {
            let Ok(Some(own)) = self.checkpoint(shared) else {
                break;
            };
            if own.id != theirs && own.origin.as_ref() != Some(&theirs) {
                break;
            }
            shared += 1;
        }
        shared as u64
    }

    /// The place after so many turns from the beginning.
    fn end_of(&self, turns: usize) -> Option<KeptEnd> {
        let last = turns.checked_sub(1)?;
        let session = self.sessions.get(self.place_of_turn(last))?;
        Some(KeptEnd {
            session: session.upstream_id.clone(),
            until: session.checkpoint_id(last - session.turns_before),
        })
    }

    /// The place after the last turn that began before a moment, as the records tell the time.
    pub(in super::super) fn before_time(&mut self, at: Timestamp) -> Option<KeptEnd> {
        for number in (0..self.turns()).rev() {
            let place = self.place_of_turn(number);
            let session = self.sessions.get_mut(place)?;
            let prompt = session.open.turn(number - session.turns_before).start;
            let began = session.open.message(prompt).ok().flatten();
            let began = began.and_then(|prompt| prompt.at?.parse::<Timestamp>().ok());
            // Records tell milliseconds. A turn without a time has ended if another one follows.
            let is_before = match began {
                Some(began) => began.as_millisecond() < at.as_millisecond(),
                None => number + 1 < self.turns(),
            };
            if is_before {
                return self.end_of(number + 1);
            }
        }
        None
    }

    /// What is kept of the history up to a message, and with it what makes it whole: behind the last message of a turn that
    /// whole turn, else up to the last message before which every call of a tool has its result. Codex branches behind whole
    /// turns, so there it is always the whole turn.
    ///
    /// # Errors
    /// [`ConversationError::Unsupported`] of a message before the first turn of Codex,
    /// [`ConversationError::TranscriptDamaged`] when the messages before it cannot be read.
    pub(in super::super) fn up_to(&mut self, spot: Spot) -> Result<Kept, ConversationError> {
        let Some(session) = self.sessions.get(spot.session) else {
            return Ok(Kept { end: None, turns: 0 });
        };
        let only_whole_turns = !session.open.can_end_within_turns();
        let turn = session.open.turn_of(spot.message);
        let turns = session.turns_before + turn.map_or(0, |turn| turn + 1);
        let messages = turn.map(|turn| session.open.turn(turn));
        if messages
            .as_ref()
            .is_some_and(|messages| only_whole_turns || spot.message + 1 >= messages.end)
        {
            return Ok(Kept {
                end: self.end_of(turns),
                turns: turns as u64,
            });
        }
        if only_whole_turns {
            return Err(ConversationError::Unsupported(format!(
                "the agent {} branches behind whole turns, and the message is before the first one",
                session.agent
            )));
        }
        let start = messages.map_or(spot.message, |messages| messages.start);
        let last = self.last_whole(spot.session, start..=spot.message)?;
        let end = self.sessions.get(spot.session).map(|session| KeptEnd {
            session: session.upstream_id.clone(),
            until: disk::checkpoint(
                &session.agent,
                &session.owner(last),
                &session.open.record_id(last),
            ),
        });
        Ok(Kept {
            end,
            turns: turns as u64,
        })
    }

    /// The last of these messages up to which no call of a tool waits for its result; the first where there is none.
    fn last_whole(
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
            let Some(read) = session.read(|open| open.message(number), &mut self.gaps)? else {
                self.refuse_unread()?;
                return Err(ConversationError::TranscriptDamaged(
                    "the messages before that place cannot be read".to_owned(),
                ));
            };
            for part in read.parts {
                match part {
                    Part::ToolCall { id, .. } => waiting.push(id),
                    Part::ToolResult { call_id, .. } => waiting.retain(|id| *id != call_id),
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
