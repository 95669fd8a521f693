//! Sessions whose transcripts are missing or empty, for callers that only read them: the backup is read and nothing is
//! restored.

use bridge_protocol::UpstreamId;

use super::{key, relocation};
use crate::agent::catalog::AgentEntry;
use crate::archive::Unpacked;
use crate::conversation::services::Services;
use crate::transcript::TranscriptError;

/// What is kept of a session whose transcript is missing or blank, or that of one in which it begins. `None` if its agent has it or
/// may have it, because the folder cannot be read, and if nothing is kept.
///
/// # Errors
/// When what is kept cannot be read.
pub(in crate::conversation) fn in_place_of_lost(
    services: &Services,
    entry: &AgentEntry,
    id: &UpstreamId,
) -> Result<Option<Unpacked>, TranscriptError> {
    let Some((root, format)) = entry.listed_transcripts() else {
        return Ok(None);
    };
    let dialect = format.dialect();
    if !dialect.is_gone(root, id.as_str()) {
        return Ok(None);
    }
    let key = key(root, id);
    let relocation = relocation(services, entry, dialect, &key, id)?;
    match services.keeper.archive.unpack(dialect, &key, &relocation) {
        Ok(unpacked) => Ok(Some(unpacked)),
        Err(TranscriptError::NotFound { .. } | TranscriptError::InvalidId { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
