//! Checks of transcripts, as the answers to calls. Blocks.

use std::path::Path;

use bridge_protocol::UpstreamId;
use bridge_protocol::check::{CheckAnswer, FindingKind};

use super::backup;
use super::error::ConversationError;
use super::services::Services;
use crate::agent::catalog::AgentEntry;
use crate::archive::Unpacked;
use crate::transcript::TranscriptError;
use crate::transcript::check::CheckReport;
use crate::transcript::dialect::Session;
use crate::transcript::transcript_list::Format;

/// Checks the backup of a session whose transcript is missing. Blocks.
pub(super) fn check_unpacked_backup(
    entry: &AgentEntry,
    id: &UpstreamId,
    unpacked: &Unpacked,
) -> Result<CheckAnswer, ConversationError> {
    let (agents, format) = readable_root(entry)?;
    let report = format.dialect().check_copy(unpacked.root(), agents, id.as_str());
    let mut answer = check_answer(report)?;
    answer.kept = unpacked.sessions().iter().map(|id| id.as_str().into()).collect();
    Ok(answer)
}

/// Checks the transcript of a session, and compares it with its backup. Blocks.
pub(super) fn check_session(
    services: &Services,
    format: Format,
    session: Session<'_>,
    path: &Path,
    acknowledged: u64,
) -> Result<CheckAnswer, ConversationError> {
    let dialect = format.dialect();
    let mut answer = check_answer(dialect.check(session, path))?;
    let Some(at) = backup::backup_time_of_lost_part(services, format, session, path) else {
        if !answer.findings.is_empty() {
            answer.restore = backup::command_to_restore(services, session, path);
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

/// The folder and format of an agent's transcripts, if they can be read.
pub(super) fn readable_root(entry: &AgentEntry) -> Result<(&Path, Format), ConversationError> {
    entry.listed_transcripts().ok_or_else(|| {
        ConversationError::Unsupported(format!(
            "session-bridge reads no transcripts of the agent {}",
            entry.name
        ))
    })
}
