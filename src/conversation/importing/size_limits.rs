//! Limits on what a bundle may contain: no more than a client could send. Pure.
//!
//! Answers and events show parts of a bundle's manifest. If a part fits into no answer, every list that reaches it fails.

use serde::Serialize;

use crate::conversation::bundle::Manifest;
use crate::conversation::error::ConversationError;
use crate::conversation::page::{ENTRY_LIMIT_BYTES, encoded_bytes};

/// Checks that each part of the manifest fits into an answer. Titles and names are checked in `check_texts`.
///
/// # Errors
/// [`ConversationError::InvalidParams`] for the first part that is too large.
pub(super) fn check_sizes(manifest: &Manifest) -> Result<(), ConversationError> {
    let mut conversation = manifest.conversation.clone();
    // Lists show the conversation with these settings.
    conversation.settings = manifest.settings.clone();
    check_size("conversation", &conversation)?;
    check_size("failure", &manifest.failure)?;
    check_size("missing", &manifest.missing)?;
    check_size("missingValues", &manifest.missing_values)?;
    check_size("chain", &manifest.chain)?;
    for entry in &manifest.lineage {
        check_size("lineage", entry)?;
    }
    Ok(())
}

fn check_size(what: &str, part: &impl Serialize) -> Result<(), ConversationError> {
    let bytes = encoded_bytes(part);
    if bytes <= ENTRY_LIMIT_BYTES {
        return Ok(());
    }
    let why = format!(
        "the bundle cannot be imported: {what} in its manifest has {} MiB, more than the {} MiB that an answer can hold",
        bytes.div_ceil(1024 * 1024),
        ENTRY_LIMIT_BYTES / 1024 / 1024
    );
    Err(ConversationError::invalid("path", why))
}
