//! The types of a climb: its goal, what was found on disk, the steps, and how a step fails.

use bridge_protocol::id::UpstreamId;
use bridge_protocol::link::{Fidelity, Link, Via};

use crate::chain::SessionCut;
use crate::transcript::turn_counts::TurnCounts;

/// A session that the conversation may be resumed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The agent's id of the session.
    pub upstream_id: UpstreamId,
    /// Where the part of its history ends that belongs to this conversation.
    pub until: SessionCut,
    /// Turns acknowledged on later links, which are lost if the conversation is resumed from this session.
    pub turns_after: u64,
    /// Whether another conversation also owns the session, so that it may be copied but never written to.
    pub shared: bool,
}

/// The goal of a climb, and the facts that it starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goal {
    /// The head, if the chain has one.
    pub head: Option<Link>,
    /// The sessions that the head's history came from, nearest first.
    pub ancestors: Vec<Source>,
    /// The lowest fidelity that the caller accepts.
    pub min_fidelity: Fidelity,
    /// Whether the agent offers `session/resume`.
    pub can_resume: bool,
    /// Whether the agent offers `session/load`.
    pub can_load: bool,
    /// Whether the head is loaded rather than resumed if the agent offers both, because a client waits for the replay.
    pub prefers_load: bool,
    /// Whether the bridge can read and copy this agent's transcripts.
    pub can_read_transcripts: bool,
    /// The ids that the agent refused before this climb, such as with a prompt on the open session.
    pub refused: Vec<(UpstreamId, Via, String)>,
    /// Whether the last turn reached a usage limit, which is then the cause of a roll.
    pub limited: bool,
    /// Whether the head was restored from our backup before this climb and the missing turns were not reported yet. Opening
    /// it is then reported as `Archive`.
    pub was_restored: bool,
    /// Whether the agent got a prompt on the head whose turn was cut short and is not counted.
    pub has_interrupted_turn: bool,
    /// How many turns of the head need not be brought back, because the caller sends their prompt again.
    pub resent_turns: u64,
}

/// What was found on disk: the head's transcript, and one entry for each ancestor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// The counts of the head's transcript.
    pub head: Option<TurnCounts>,
    /// Why the head's transcript cannot be used, if it exists or may exist, as a full sentence.
    pub unreadable_reason: Option<String>,
    /// The counts of the ancestors' transcripts, nearest first.
    pub ancestors: Vec<Option<TurnCounts>>,
    /// How many turns of the conversation's history can be read as text.
    pub readable_turns: u64,
    /// How many later turns were acknowledged that cannot be read.
    pub turns_after_readable: u64,
    /// Whether the head's transcript is in a place where its agent does not look, and can be moved back.
    pub is_misplaced: bool,
    /// If the head's transcript is missing or blank: whether we have a backup of it. `None` if it has content, or if the backups
    /// cannot be read.
    pub has_backup: Option<bool>,
}

/// What to try next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Open the session under its own id.
    Open {
        /// The session to open.
        upstream_id: UpstreamId,
        /// `Resume`, `Load`, or `FreshProcess` in a new process; `Located` to move its transcript back first, `Archive` to
        /// restore our backup first; `OlderLink` for an ancestor.
        via: Via,
    },
    /// Look at the transcripts on disk.
    Inspect,
    /// Copy a transcript under a new id, and resume that.
    Copy {
        /// The session to copy.
        source: UpstreamId,
        /// Where the copy ends.
        until: SessionCut,
        /// `Copied`, `Rebuilt` or `OlderLink`.
        via: Via,
    },
    /// Open a new session and send it the history as text.
    Text,
    /// Open a new session without the history.
    Fresh,
    /// Stop: there is nothing left to try.
    GiveUp,
}

impl Step {
    /// Opens the head.
    pub(super) fn open(head: &Link, via: Via) -> Self {
        Self::Open {
            upstream_id: head.upstream_id.clone(),
            via,
        }
    }

    /// Copies all of the head.
    pub(super) fn copy(head: &Link, via: Via) -> Self {
        Self::Copy {
            source: head.upstream_id.clone(),
            until: SessionCut::default(),
            via,
        }
    }

    /// How it brings a session back.
    pub(super) fn via(&self) -> Via {
        match self {
            Self::Open { via, .. } | Self::Copy { via, .. } => *via,
            Self::Text => Via::Text,
            Self::Fresh | Self::Inspect | Self::GiveUp => Via::Fresh,
        }
    }

    /// The session that the step opens or copies.
    pub(super) fn target(&self) -> Option<UpstreamId> {
        match self {
            Self::Open { upstream_id, .. } => Some(upstream_id.clone()),
            Self::Copy { source, .. } => Some(source.clone()),
            Self::Text | Self::Fresh | Self::Inspect | Self::GiveUp => None,
        }
    }
}

/// How a step failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepFailure {
    /// The agent does not know the id.
    SessionUnknown(String),
    /// The process is at fault.
    Process(String),
    /// The transcript could not be moved back to where the agent looks for it.
    Misplaced(String),
    /// Anything else that the agent or the disk answered.
    Other(String),
}

impl StepFailure {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::SessionUnknown(text) | Self::Process(text) | Self::Misplaced(text) | Self::Other(text) => {
                text
            }
        }
    }
}
