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
use crate::transcript::TranscriptError;

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
    let aside = move_command(transcript, transcript)?;
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
            .then(|| self.restore_command(id, transcript, false, &[]))?
    }

    /// The backup with the most turns that a transcript lacks, and the command that restores it. If the backup lacks turns too, a
    /// fork keeps them. Copies that would be restored instead are moved beside the transcript. `None` also if the backups cannot
    /// be read.
    pub(in crate::conversation) fn backup_with_lost_turns(
        self,
        id: &UpstreamId,
        transcript: &Path,
    ) -> Option<(CopyWithLostTurns, Option<String>)> {
        let (archive, key) = (self.archive(), self.key(id));
        let find = || archive.copy_with_lost_turns(self.dialect, &key, transcript);
        let report = |error: TranscriptError| {
            let error = chain_text(&error);
            tracing::warn!(upstream_id = %id, error, "a transcript cannot be compared with its backups");
        };
        let mut copy = find().unwrap_or_else(|error| {
            report(error);
            None
        })?;
        if copy.has_links {
            // The command closes the session, after which a link is packed under another name.
            let packed = self
                .acknowledged_turns(id)
                .and_then(|acknowledged| archive.pack_links(&key, acknowledged));
            match packed.and_then(|_| find()) {
                Ok(packed) => copy = packed?,
                Err(error) => {
                    report(error);
                    return Some((copy, None));
                }
            }
        }
        let command = self.restore_command(id, transcript, copy.lacks_turns, &copy.copies_to_move);
        Some((copy, command))
    }

    /// The command that restores the backup of a session, after these copies of it are moved away. `forks`: whether the present
    /// state of the conversation is kept as a fork.
    fn restore_command(
        self,
        id: &UpstreamId,
        transcript: &Path,
        forks: bool,
        copies_to_move: &[PathBuf],
    ) -> Option<String> {
        let holders = self.services.store.holders(id, None).ok()?;
        let forked = holders.iter().find(|holder| forks && holder.chain.is_head(id));
        let mut steps: Vec<String> = Vec::new();
        steps.extend(forked.map(|holder| format!("sessionctl fork {}", holder.id)));
        let closed = holders.iter();
        steps.extend(closed.map(|holder| format!("sessionctl close {}", holder.id)));
        steps.push(move_command(transcript, transcript)?);
        for copy in copies_to_move {
            let mut beside = transcript.as_os_str().to_owned();
            beside.push(".");
            beside.push(copy.file_name()?);
            steps.push(move_command(copy, Path::new(&beside))?);
        }
        steps.push(format!("sessionctl archive restore {}", shell_word(id.as_str())));
        Some(steps.join(" && "))
    }
}

/// The command that moves a file to a name beside another one. No agent reads a file of such a name.
fn move_command(from: &Path, beside: &Path) -> Option<String> {
    let to = set_aside::free_name(beside).ok()?;
    let [from, to] = [from, &to].map(|path| shell_word(&path.to_string_lossy()));
    Some(format!("mv {from} {to}"))
}
