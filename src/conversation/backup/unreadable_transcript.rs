//! Advice about a transcript that is damaged, or that the disk fails to read. A bad sector stays, so that waiting does not help,
//! but the backup may be whole. Only the user knows which file is the right one, so it is not replaced automatically.

use std::path::Path;

use bridge_protocol::UpstreamId;

use crate::conversation::services::Services;
use crate::conversation::transcript_facts::AgentTranscripts;
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
    let links = record.chain.links().iter().rev();
    let mut its_keys = links.filter_map(|link| {
        let transcripts = services.transcripts(&link.agent)?;
        let found = transcripts.find(&link.cwd, &link.upstream_id);
        found
            .is_ok_and(|path| path == transcript)
            .then(|| transcripts.key(&link.upstream_id))
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

impl AgentTranscripts<'_> {
    /// The command that restores the backup of a damaged transcript. `None` unless the backup has what the transcript has lost,
    /// and every acknowledged turn.
    pub(in crate::conversation) fn command_to_restore(
        self,
        id: &UpstreamId,
        transcript: &Path,
    ) -> Option<String> {
        let holders = self.services.store.holders(id, None).ok()?;
        let own = holders.iter().filter_map(|holder| holder.chain.link(id));
        let acknowledged = own.map(|link| link.turns + link.carried_turns).max();
        let key = self.key(id);
        let is_better = self
            .archive()
            .has_lost_lines(&key, transcript, acknowledged.unwrap_or_default());
        if !is_better.ok()? {
            return None;
        }
        let close = holders
            .iter()
            .map(|holder| format!("sessionctl close {} && ", holder.id));
        let (close, aside) = (close.collect::<String>(), move_aside(transcript)?);
        let word = shell_word(id.as_str());
        Some(format!("{close}{aside} && sessionctl archive restore {word}"))
    }
}

/// The command that gives a transcript another name, which no agent reads.
fn move_aside(transcript: &Path) -> Option<String> {
    let aside = set_aside::free_name(transcript).ok()?;
    let [from, to] = [transcript, &aside].map(|path| shell_word(&path.to_string_lossy()));
    Some(format!("mv {from} {to}"))
}
