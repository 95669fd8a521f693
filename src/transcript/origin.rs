//! The origin of a transcript, as it records it, for any format. Pure.

/// The origin of a transcript, as it records it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// The folder in which the last record of the conversation was written.
    pub cwd: Option<String>,
    /// The last title that the user gave it.
    pub title: Option<String>,
    /// The position up to which its history was copied from another session.
    pub forked_from: Option<ForkedFrom>,
    /// The number of turns on its live branch, including those before a compaction.
    pub turns: usize,
    /// How many records name a parent that is missing. Something is lost at each of them.
    pub missing_parents: usize,
}

/// A position in another session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkedFrom {
    /// The session.
    pub session_id: String,
    /// The uuid of its last message that was copied, or the id of the last turn that was copied. `None` if the transcript
    /// does not record it.
    pub record_uuid: Option<String>,
}
