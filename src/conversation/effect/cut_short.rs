//! Facts about a prompt whose turn was cut short: whether its agent ended because of it, and whether the agent has it.

/// How a conversation was involved in the end of its agent's process, as far as is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeathInvolvement {
    /// No other conversation's turn ran in it.
    #[default]
    Alone,
    /// It ended unexpectedly while turns of several conversations ran in it, any of which may be the cause.
    Suspect,
    /// Not involved: the daemon ended the process because of another conversation.
    Bystander,
}

/// Whether a prompt reached the agent, according to the agent's transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptArrival {
    /// The transcript does not contain it after the position where the transcript ended before the prompt was sent.
    Absent,
    /// The transcript contains it.
    Present,
    /// The transcript contains it, and its last turn is complete: another program, or the agent itself, has continued it.
    Answered,
    /// Unknown: the transcript cannot be read, or no longer contains the position.
    Unknown,
}
