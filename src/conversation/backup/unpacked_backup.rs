//! Reads the backup of a session whose transcript is missing or empty, for callers that only read. Nothing is restored.

use bridge_protocol::UpstreamId;

use crate::archive::{CopyOrigin, Unpacked};
use crate::conversation::transcript_facts::AgentTranscripts;
use crate::transcript::TranscriptError;

impl AgentTranscripts<'_> {
    /// The backup of a session whose transcript, or one in which its history begins, is missing, blank, or has lost a part.
    /// `None` if the agent has all of them or may have them (a folder cannot be read), or if there is no backup.
    ///
    /// # Errors
    /// If the backup cannot be read.
    pub(in crate::conversation) fn unpack_backup_of_missing(
        self,
        id: &UpstreamId,
    ) -> Result<Option<Unpacked>, TranscriptError> {
        let session = self.home().session(None, id.as_str());
        let has_lost_part = || {
            let path = self.dialect.find(session);
            path.is_ok_and(|path| self.has_lost_part(session, &path))
        };
        if !self.dialect.is_missing(self.root, id.as_str()) && !has_lost_part() {
            return Ok(None);
        }
        let relocation = |from: &CopyOrigin| self.relocation(id, None, from);
        match self.archive().unpack(self.dialect, &self.key(id), &relocation) {
            Ok(unpacked) => Ok(Some(unpacked)),
            Err(TranscriptError::NotFound { .. } | TranscriptError::InvalidId { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
