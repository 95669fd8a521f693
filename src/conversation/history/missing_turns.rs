//! Finds acknowledged turns that are missing from the transcript of a session.

use bridge_protocol::history::{GapKind, HistoryGap};
use bridge_protocol::link::Link;

use crate::archive::{MissingTurns, Unpacked};
use crate::conversation::services::Services;
use crate::conversation::transcript_facts::log_unreadable;
use crate::transcript::TranscriptError;

/// Reports the acknowledged turns that the file of a link lacks, for readers that report the present state and do not wait
/// for the agent. Turns that the user removed by going back are still in the file, and branches are not losses. `None` if no
/// file can be read, which is reported separately. If the file is missing, `backup` is its backup.
///
/// Codex may record nothing for a command that its adapter answers, so a rollout never proves a loss.
///
/// # Errors
/// As [`unreported_missing_turns`](crate::archive::Archive::unreported_missing_turns).
pub(in crate::conversation) fn missing_turns_gap(
    services: &Services,
    link: &Link,
    backup: Option<&Unpacked>,
) -> Result<Option<HistoryGap>, TranscriptError> {
    let Some(transcripts) = services.transcripts(&link.agent) else {
        return Ok(None);
    };
    let read = transcripts.in_folder(backup.map_or(transcripts.root, Unpacked::root));
    let acknowledged = link.turns.saturating_add(link.carried_turns);
    let (mut gone, mut why) = match log_unreadable(read.link_turn_counts(&link.cwd, link)) {
        Some(file) => (
            file.missing_turns(acknowledged),
            "are lost, not whole, or not written yet",
        ),
        None => {
            // A missing beginning is reported separately, and it is unknown how many turns it contained.
            let session = read.session(&link.cwd, &link.upstream_id);
            let open = read.dialect.open(session, None).ok();
            let open = open.filter(|open| !open.lacks_beginning());
            let Some(recorded) = open.and_then(|open| open.max_recorded_turns()) else {
                return Ok(None);
            };
            let gone = acknowledged.saturating_sub(recorded);
            (
                gone,
                "are lost, not written yet, or were commands that the agent does not record",
            )
        }
    };
    if backup.is_some_and(|backup| backup.has_session(link.upstream_id.as_str())) {
        // The file alone may not show the loss, because it also contains cancelled turns.
        let key = transcripts.key(&link.upstream_id);
        let later = match transcripts.archive().missing_turns(&key, acknowledged) {
            Err(error) if error.is_passing() => return Err(error),
            later => later.unwrap_or_default(),
        };
        match later {
            Some(MissingTurns::Known(later)) => gone = gone.max(later),
            Some(MissingTurns::Unknown) if gone == 0 => return Ok(Some(unknown_gap(link, "is read from"))),
            Some(MissingTurns::Unknown) | None => {}
        }
        why = "are newer than its backup, or lost";
    }
    Ok(unreported_gap(services, link, gone)?.or_else(|| gap_of_turns(link, gone, why)))
}

/// Reports the turns that the file of a link lacks because it was restored from an older copy, if its conversation was not
/// resumed since. `None` if they are not more than `shown`, the missing turns that the file itself shows.
///
/// # Errors
/// As [`unreported_missing_turns`](crate::archive::Archive::unreported_missing_turns).
pub(super) fn unreported_gap(
    services: &Services,
    link: &Link,
    shown: u64,
) -> Result<Option<HistoryGap>, TranscriptError> {
    let Some(transcripts) = services.transcripts(&link.agent) else {
        return Ok(None);
    };
    let missing = transcripts
        .archive()
        .unreported_missing_turns(&transcripts.key(&link.upstream_id))?;
    Ok(missing.and_then(|missing| match missing {
        MissingTurns::Known(lost) if lost > shown => {
            gap_of_turns(link, lost, "are later than the copy from which it was restored")
        }
        MissingTurns::Unknown if shown == 0 => Some(unknown_gap(link, "was restored from")),
        MissingTurns::Known(_) | MissingTurns::Unknown => None,
    }))
}

fn unknown_gap(link: &Link, how: &str) -> HistoryGap {
    HistoryGap {
        upstream_id: link.upstream_id.clone(),
        kind: GapKind::Behind,
        detail: format!("it {how} a copy that lacks an unknown number of turns"),
    }
}

fn gap_of_turns(link: &Link, missing: u64, why: &str) -> Option<HistoryGap> {
    let ran = link.turns.saturating_add(link.carried_turns);
    (missing > 0).then(|| HistoryGap {
        upstream_id: link.upstream_id.clone(),
        kind: GapKind::Behind,
        detail: format!("{missing} of the {ran} turns that ran on it are not in its file: they {why}"),
    })
}
