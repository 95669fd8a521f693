//! Checks of transcripts, as the answers to calls. Blocks.

use bridge_protocol::UpstreamId;
use bridge_protocol::check::{CheckAnswer, Finding, FindingKind};
use bridge_protocol::link::Link;

use super::error::ConversationError;
use super::services::Services;
use super::transcript_facts::AgentTranscripts;
use crate::agent::catalog::AgentEntry;
use crate::archive::Unpacked;
use crate::store::ConversationRecord;
use crate::transcript::TranscriptError;
use crate::transcript::check::CheckReport;
use crate::transcript::dialect::format_turns;

/// Checks the backup of a session whose transcript is missing. Blocks.
pub(super) fn check_unpacked_backup(
    transcripts: AgentTranscripts<'_>,
    id: &UpstreamId,
    unpacked: &Unpacked,
) -> Result<CheckAnswer, ConversationError> {
    let report = transcripts
        .dialect
        .check_copy(unpacked.root(), transcripts.root, id.as_str());
    let mut answer = check_answer(report)?;
    answer.kept = unpacked.sessions().iter().map(|id| id.as_str().into()).collect();
    Ok(answer)
}

/// Checks the transcript of a session, and compares it with its backup. Blocks.
pub(super) fn check_session(
    transcripts: AgentTranscripts<'_>,
    link: &Link,
) -> Result<CheckAnswer, ConversationError> {
    let (dialect, acknowledged) = (transcripts.dialect, link.turns + link.carried_turns);
    let session = transcripts.session(&link.cwd, &link.upstream_id);
    let path = dialect.find(session)?;
    let mut answer = check_answer(dialect.check(session, &path))?;
    let Some(at) = transcripts.backup_time_of_lost_part(session, &path) else {
        let id = &link.upstream_id;
        if !answer.findings.is_empty() {
            answer.restore = transcripts.command_to_restore(id, &path);
        }
        if let Some((copy, command)) = transcripts.backup_with_lost_turns(id, &path) {
            let (turns, backup) = (format_turns(copy.turns), copy.path.display());
            let detail = format!(
                "the backup {backup} has {turns} that the transcript lacks; the next resume does not bring them back"
            );
            answer.findings.push(Finding {
                line: 0,
                kind: FindingKind::OtherCopy,
                detail,
            });
            answer.restore = answer.restore.or(command);
        }
        return Ok(answer);
    };
    let present = dialect.turn_counts(session, None)?.map_or(0, |found| found.turns);
    let what = match acknowledged.saturating_sub(present) {
        0 => "records are missing before it".to_owned(),
        1 => "1 turn is missing before it".to_owned(),
        turns => format!("{turns} turns are missing before it"),
    };
    let mut broken = answer.findings.iter_mut();
    if let Some(finding) = broken.find(|finding| finding.kind == FindingKind::BrokenParent) {
        let at = at.strftime("%Y-%m-%d %H:%M UTC");
        finding.detail =
            format!("{what}; the backup of {at} has what is missing, and the next resume restores it");
    }
    Ok(answer)
}

/// Converts a report to an answer.
pub(super) fn check_answer(
    report: Result<CheckReport, TranscriptError>,
) -> Result<CheckAnswer, ConversationError> {
    let report = report?;
    Ok(CheckAnswer {
        findings: report.findings,
        more: report.omitted,
        ..CheckAnswer::default()
    })
}

/// The head of a conversation, whose transcript is to be checked or repaired.
pub(super) fn head_to_check(record: &ConversationRecord) -> Result<&Link, ConversationError> {
    record.chain.head().ok_or_else(|| ConversationError::NotFound {
        what: "the conversation has no session yet, so there is no transcript to check".to_owned(),
    })
}

/// The transcripts of an agent, if they can be read.
pub(super) fn readable_transcripts<'a>(
    services: &'a Services,
    entry: &'a AgentEntry,
) -> Result<AgentTranscripts<'a>, ConversationError> {
    services.transcripts_of(entry).ok_or_else(|| {
        ConversationError::Unsupported(format!(
            "session-bridge reads no transcripts of the agent {}",
            entry.name
        ))
    })
}
