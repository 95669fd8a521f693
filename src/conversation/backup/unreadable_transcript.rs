//! Advice about a transcript that is damaged, or that the disk fails to read. A bad sector stays, so that waiting does not help,
//! but the backup may be whole. Only the user knows which file is the right one, so it is not replaced automatically.

use std::path::{Path, PathBuf};

use bridge_protocol::UpstreamId;

use crate::archive::CopyWithLostTurns;
use crate::conversation::services::{Services, chain_text};
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
        let acknowledged = self.acknowledged_turns(id).ok()?.unwrap_or_default();
        let key = self.key(id);
        let is_better = self.archive().has_lost_lines(&key, transcript, acknowledged);
        is_better
            .ok()?
            .then(|| self.restore_command(id, transcript, &[]))?
    }

    /// The backup with the most turns that a transcript lacks, and the command that restores it. If another copy would be
    /// restored by default, a fork keeps what the conversation has, and the copies that would be used are moved away. `None` also
    /// if the backups cannot be read.
    pub(in crate::conversation) fn backup_with_lost_turns(
        self,
        id: &UpstreamId,
        transcript: &Path,
    ) -> Option<(CopyWithLostTurns, Option<String>)> {
        let (archive, key) = (self.archive(), self.key(id));
        let find = || archive.copy_with_lost_turns(self.dialect, &key, transcript);
        let found = find().and_then(|found| match found {
            // The command closes the session, after which a link is packed under another name.
            Some(copy) if copy.has_links => {
                archive.pack_links(&key, self.acknowledged_turns(id)?)?;
                find()
            }
            found => Ok(found),
        });
        let copy = found.unwrap_or_else(|error| {
            let error = chain_text(&error);
            tracing::warn!(upstream_id = %id, error, "a transcript cannot be compared with its backups");
            None
        })?;
        let command = self.restore_command(id, transcript, &copy.preferred);
        Some((copy, command))
    }

    /// The command that restores the backup of a session, but not from the `preferred` copies.
    fn restore_command(self, id: &UpstreamId, transcript: &Path, preferred: &[PathBuf]) -> Option<String> {
        let holders = self.services.store.holders(id, None).ok()?;
        let forked = holders
            .iter()
            .find(|holder| !preferred.is_empty() && holder.chain.is_head(id));
        let mut steps: Vec<String> = Vec::new();
        steps.extend(forked.map(|holder| format!("sessionctl fork {}", holder.id)));
        steps.extend(
            holders
                .iter()
                .map(|holder| format!("sessionctl close {}", holder.id)),
        );
        for path in std::iter::once(transcript).chain(preferred.iter().map(PathBuf::as_path)) {
            steps.push(move_aside(path)?);
        }
        steps.push(format!("sessionctl archive restore {}", shell_word(id.as_str())));
        Some(steps.join(" && "))
    }
}

/// The command that gives a file another name, which no agent reads.
fn move_aside(transcript: &Path) -> Option<String> {
    let aside = set_aside::free_name(transcript).ok()?;
    let [from, to] = [transcript, &aside].map(|path| shell_word(&path.to_string_lossy()));
    Some(format!("mv {from} {to}"))
}
