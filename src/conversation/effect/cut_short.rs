//! Facts about a prompt whose turn was cut short.

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
