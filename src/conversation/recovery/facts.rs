//! The facts that a climb starts from, the facts that it is given, and the steps that it asks for.

use bridge_protocol::id::{AgentName, CheckpointId, UpstreamId};
use bridge_protocol::link::{Fidelity, Relation, Via};

use crate::transcript::turn_counts::TurnCounts;

/// A session that the conversation may be resumed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The agent's id of it.
    pub upstream_id: UpstreamId,
    /// The agent that holds it.
    pub agent: AgentName,
    /// The place after which its history does not belong to this conversation; `None`: all of it does.
    pub until: Option<CheckpointId>,
    /// Turns acknowledged on the links that came after it, which are lost when it is taken up.
    pub turns_after: u64,
    /// Whether another conversation owns it too, so that it may be copied but never written to.
    pub shared: bool,
}

/// The head, as the planner needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The agent's id of it.
    pub upstream_id: UpstreamId,
    /// The agent that holds it.
    pub agent: AgentName,
    /// Whether the agent was ever seen to take a prompt on it.
    pub written: bool,
    /// What it has to do with the session that it came from.
    pub relation: Relation,
    /// Turns acknowledged on it.
    pub turns: u64,
    /// Turns that it contained when it was made; 0 if they could not be counted.
    pub carried_turns: u64,
}

impl Head {
    /// Opening it.
    pub(super) fn open(&self, via: Via) -> Step {
        Step::Open {
            upstream_id: self.upstream_id.clone(),
            via,
        }
    }

    /// Copying all of it.
    pub(super) fn copy(&self, via: Via) -> Step {
        Step::Copy {
            source: self.upstream_id.clone(),
            until: None,
            via,
        }
    }
}

/// What is asked of a climb.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goal {
    /// The head, when the chain has one.
    pub head: Option<Head>,
    /// Its ancestors by reference, nearest first.
    pub ancestors: Vec<Source>,
    /// The least fidelity that will do.
    pub min_fidelity: Fidelity,
    /// Whether the agent offers `session/resume`.
    pub can_resume: bool,
    /// Whether the agent offers `session/load`.
    pub can_load: bool,
    /// Whether the bridge can read and copy this agent's transcripts.
    pub can_read_transcripts: bool,
    /// The ids that the agent has refused in this climb already (a prompt on the open session, say).
    pub refused: Vec<(UpstreamId, Via, String)>,
    /// Whether the last turn met a usage limit, which is then the cause of a roll.
    pub limited: bool,
    /// Whether the head was restored before this climb, and what it lacks was not reported: however the agent opens it, it
    /// comes from our backup.
    pub was_restored: bool,
}

/// What was found on disk: the head's transcript, and one entry for each ancestor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// The head's.
    pub head: Option<TurnCounts>,
    /// Why the head's transcript cannot be used, if it exists or may exist, as a full sentence.
    pub unreadable_reason: Option<String>,
    /// The ancestors', nearest first.
    pub ancestors: Vec<Option<TurnCounts>>,
    /// How many turns of the conversation's history can be read as text at all.
    pub readable_turns: u64,
    /// How many turns were acknowledged on the links that came after those, and cannot be read.
    pub turns_after_readable: u64,
    /// Whether the head's transcript is in a place where its agent does not look, and can be moved back.
    pub is_misplaced: bool,
    /// Whether the head's transcript is missing or blank, and we have a copy of our own.
    pub has_backup: bool,
}

/// What to try next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Open the session under its own id.
    Open {
        /// Which.
        upstream_id: UpstreamId,
        /// `Resume`, `Load`, or `FreshProcess` in a new process; `Located` when its transcript is to be brought back before,
        /// `Archive` when our copy of it is to be put back before; `OlderLink` of an ancestor.
        via: Via,
    },
    /// Look at the transcripts on disk.
    Inspect,
    /// Copy a transcript under a new id, and resume that.
    Copy {
        /// Which.
        source: UpstreamId,
        /// Up to where; `None`: all of it.
        until: Option<CheckpointId>,
        /// `Copied`, `Rebuilt` or `OlderLink`.
        via: Via,
    },
    /// A new session that gets the history as text.
    Text,
    /// A new session.
    Fresh,
    /// There is nothing left to try.
    GiveUp,
}

impl Step {
    /// How it brings a session back.
    pub(super) fn via(&self) -> Via {
        match self {
            Self::Open { via, .. } | Self::Copy { via, .. } => *via,
            Self::Text => Via::Text,
            Self::Fresh | Self::Inspect | Self::GiveUp => Via::Fresh,
        }
    }

    /// The session that it is about.
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
    /// Its transcript could not be brought back to where the agent looks for it.
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
