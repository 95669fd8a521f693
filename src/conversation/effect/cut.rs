//! What is known of a prompt whose turn was cut short: what it had to do with the end of its agent, and whether that has it.

use bridge_protocol::id::UpstreamId;
use bridge_protocol::raw::PromptContent;

use crate::store::{Anchor, CutPrompt, PendingTurn};

/// What a conversation had to do with the end of its agent's process, as far as anybody can tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// No other conversation's turn ran in it.
    #[default]
    Alone,
    /// It ended by itself while turns of several conversations ran in it, any of which may be the cause.
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
    /// It does, and the last turn there came to its end: another program has gone on with it, or the agent by itself.
    Answered,
    /// Nobody can tell: the transcript cannot be read, or the place is not in it any more.
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
