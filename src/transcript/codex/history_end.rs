//! Where a part of a history ends before its file does.

/// Where a part of a history ends, in the file of a session that another one continues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HistoryEnd {
    /// The ordinal of the first record that does not count.
    pub ordinal: Option<u64>,
    /// The offset of that record, uncompressed; counts where there are no ordinals.
    pub offset: Option<u64>,
}

impl HistoryEnd {
    /// Whether the record that begins at `offset` lies behind it.
    #[must_use]
    pub fn excludes(&self, ordinal: Option<u64>, offset: u64) -> bool {
        match (ordinal, self.ordinal) {
            (Some(ordinal), Some(end)) => ordinal >= end,
            _ => self.offset.is_some_and(|end| offset >= end),
        }
    }
}
