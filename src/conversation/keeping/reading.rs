//! Sessions whose transcripts are missing or blank, for those who only read them: what is kept of them, with nothing put back.

use std::path::Path;

use bridge_protocol::UpstreamId;

use super::{key, relocation};
use crate::agent::catalog::AgentEntry;
use crate::conversation::services::Services;
use crate::transcript::blank::is_blank;
use crate::transcript::keep::Unpacked;
use crate::transcript::locate::locate;
use crate::transcript::shelf::Format;
use crate::transcript::{TranscriptError, rollouts};

/// Whether the transcript of a session is missing or blank, or of Codex that of one in which it begins.
pub(super) fn is_gone(root: &Path, format: Format, id: &UpstreamId) -> bool {
    match format {
        Format::Claude => locate(root, id.as_str(), None)
            .is_ok_and(|found| found.iter().all(|path| is_blank(path).unwrap_or(false))),
        Format::Codex => match rollouts::files_of(root, id.as_str()) {
            Ok((_, missing)) => missing.is_some(),
            Err(error) => error.is_absence(),
        },
    }
}

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
    if !is_gone(root, format, id) {
        return Ok(None);
    }
    let archive = &services.keeper.archive;
    let key = key(root, id);
    let unpacked = match format {
        Format::Claude => {
            let relocation = relocation(services, entry, &key, id)?;
            archive.unpack_claude(&key, &relocation)
        }
        Format::Codex => archive.unpack_codex(&key),
    };
    match unpacked {
        Ok(unpacked) => Ok(Some(unpacked)),
        Err(TranscriptError::NotFound { .. } | TranscriptError::InvalidId { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
