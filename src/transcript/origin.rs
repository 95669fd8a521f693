//! Where a transcript says that it came from, whatever its format. Pure.

/// What a transcript says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// The folder that the last record of the conversation ran in.
    pub cwd: Option<String>,
    /// The title that a person gave it; the last one counts.
    pub title: Option<String>,
    /// The place that its history was copied from.
    pub forked_from: Option<ForkedFrom>,
    /// The turns of its live branch, those before a compaction included.
    pub turns: usize,
    /// How often a parent is named that is not there: each time something is lost.
    pub missing_parents: usize,
}

/// A place in another session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkedFrom {
    /// The session.
    pub session_id: String,
    /// The uuid of its last message that was copied, or what names the last turn that came along; none where the transcript
    /// does not tell.
    pub record_uuid: Option<String>,
}
