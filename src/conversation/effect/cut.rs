//! Facts about a prompt whose turn was cut short: whether its agent ended because of it, and whether the agent has it.

use bridge_protocol::id::UpstreamId;
use bridge_protocol::raw::PromptContent;

use crate::store::{Anchor, CutPrompt, PendingTurn};

/// What a conversation had to do with the end of its agent's process, as far as anybody can tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// No other conversation's turn ran in it.
    #[default]
    Alone,
    /// It ended unexpectedly while turns of several conversations ran in it, any of which may be the cause.
    Suspect,
    /// None: the daemon ended it for the sake of another conversation.
    Bystander,
}

/// Whether a prompt reached the agent, by its transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It does not stand behind the place where the transcript ended before it was sent.
    Absent,
    /// It does.
    Present,
    /// It does, and the last turn there is complete: another program, or the agent itself, has continued it.
    Answered,
    /// Unknown: the transcript cannot be read, or no longer contains the position.
    Unknown,
}

/// A prompt that was sent, or may have been.
#[derive(Clone, Debug)]
pub struct Sent {
    /// To which session; none when none was open, so that nothing was sent.
    pub upstream_id: Option<UpstreamId>,
    /// Where its transcript ended before; none where that could not be read.
    pub anchor: Option<Anchor>,
    /// What was sent.
    pub prompt: PromptContent,
}

impl From<&CutPrompt> for Sent {
    fn from(cut: &CutPrompt) -> Self {
        Self {
            upstream_id: cut.upstream_id.clone(),
            anchor: cut.anchor.clone(),
            prompt: cut.prompt.clone(),
        }
    }
}

impl From<&PendingTurn> for Sent {
    fn from(turn: &PendingTurn) -> Self {
        Self {
            upstream_id: turn.upstream_id.clone(),
            anchor: turn.anchor.clone(),
            prompt: turn.prompt.clone(),
        }
    }
}
