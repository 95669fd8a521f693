//! Advice about a transcript that is damaged, or that the disk fails to read. A bad sector stays, so that waiting does not help,
//! but the backup may be whole. Only the user knows which file is the right one, so it is not replaced automatically.

use std::path::Path;

use bridge_protocol::UpstreamId;

use super::session_key;
use crate::conversation::services::{Services, SessionRef};
use crate::files::set_aside;
use crate::paths::shell_word;
use crate::store::ConversationRecord;
use crate::transcript::dialect::Session;

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
    let aside = move_aside(transcript)?;
    Some(format!(
        "if the file stays unreadable, continue from its backup: sessionctl close {} && {aside}",
        record.id
    ))
}

/// The command that restores the backup of a damaged transcript. `None` unless the backup has what the transcript has lost, and
/// every acknowledged turn.
pub(in crate::conversation) fn command_to_restore(
    services: &Services,
    session: Session<'_>,
    transcript: &Path,
) -> Option<String> {
    let id = UpstreamId::new(session.id);
    let holders = services.store.holders(&id, None).ok()?;
    let links = holders.iter().flat_map(|holder| holder.chain.links());
    let own = links.filter(|link| link.upstream_id == id);
    let acknowledged = own.map(|link| link.turns + link.carried_turns).max();
    let archive = &services.backups.archive;
    let key = session_key(session.home.root, &id);
    let is_better = archive.has_lost_lines(&key, transcript, acknowledged.unwrap_or_default());
    if !is_better.ok()? {
        return None;
    }
    let close = holders
        .iter()
        .map(|holder| format!("sessionctl close {} && ", holder.id));
    let (close, aside) = (close.collect::<String>(), move_aside(transcript)?);
    let word = shell_word(session.id);
    Some(format!("{close}{aside} && sessionctl archive restore {word}"))
}

/// The command that gives a transcript another name, which no agent reads.
fn move_aside(transcript: &Path) -> Option<String> {
    let aside = set_aside::free_name(transcript).ok()?;
    let [from, to] = [transcript, &aside].map(|path| shell_word(&path.to_string_lossy()));
    Some(format!("mv {from} {to}"))
}
