//! Advice about a transcript that the disk fails to read. A bad sector stays, so that waiting does not help, but the backup may be
//! whole. Only the user knows that the disk is broken, so the file is not replaced automatically.

use std::path::Path;

use super::session_key;
use crate::conversation::services::{Services, SessionRef};
use crate::files::set_aside;
use crate::paths::shell_word;
use crate::store::ConversationRecord;

/// How a conversation can continue from the backup of this transcript. `None` if it is not one of its transcripts, or has no
/// backup in another file.
pub(in crate::conversation) fn advice_on_unreadable(
    services: &Services,
    record: &ConversationRecord,
    transcript: &Path,
) -> Option<String> {
    let sessions = record.chain.links().iter().rev().map(SessionRef::from);
    let mut its_keys = sessions.filter_map(|session| {
        let (dialect, found) = services.transcript(&session.agent, &session.cwd, &session.upstream_id)?;
        let is_its = dialect.find(found).is_ok_and(|path| path == transcript);
        is_its.then(|| session_key(found.home.root, &session.upstream_id))
    });
    let archive = &services.backups.archive;
    if !archive.is_backed_up_apart(&its_keys.next()?, transcript).ok()? {
        return None;
    }
    let [from, to] =
        [transcript, &set_aside::free_name(transcript).ok()?].map(|path| shell_word(&path.to_string_lossy()));
    Some(format!(
        "if the file stays unreadable, continue from its backup: sessionctl close {} && mv {from} {to}",
        record.id
    ))
}
