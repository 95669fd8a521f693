//! Reads the backup of a session whose transcript is missing or empty, for callers that only read. Nothing is restored.

use bridge_protocol::UpstreamId;

use super::{has_lost_part, relocation, session_key};
use crate::agent::catalog::AgentEntry;
use crate::archive::{CopyOrigin, Unpacked};
use crate::conversation::services::Services;
use crate::transcript::TranscriptError;

/// The backup of a session whose transcript, or one in which its history begins, is missing, blank, or has lost a part. `None`
/// if the agent has all of them or may have them (a folder cannot be read), or if there is no backup.
///
/// # Errors
/// If the backup cannot be read.
pub(in crate::conversation) fn unpack_backup_of_missing(
    services: &Services,
    entry: &AgentEntry,
    id: &UpstreamId,
) -> Result<Option<Unpacked>, TranscriptError> {
    let Some((root, format)) = entry.listed_transcripts() else {
        return Ok(None);
    };
    let dialect = format.dialect();
    let session = services.home(root).session(None, id.as_str());
    let has_lost_part = || {
        let path = dialect.find(session);
        path.is_ok_and(|path| has_lost_part(services, format, session, &path))
    };
    if !dialect.is_missing(root, id.as_str()) && !has_lost_part() {
        return Ok(None);
    }
    let key = session_key(root, id);
    let relocation = |from: &CopyOrigin| relocation(services, entry, id, None, from);
    match services.backups.archive.unpack(dialect, &key, &relocation) {
        Ok(unpacked) => Ok(Some(unpacked)),
        Err(TranscriptError::NotFound { .. } | TranscriptError::InvalidId { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
