//! Checks of transcripts, as the answers to calls. Blocks.

use std::path::Path;

use bridge_protocol::UpstreamId;
use bridge_protocol::check::CheckAnswer;

use super::error::ConversationError;
use crate::agent::catalog::AgentEntry;
use crate::archive::Unpacked;
use crate::transcript::TranscriptError;
use crate::transcript::check::Report;
use crate::transcript::shelf::Format;

/// The damage in the backup of a session whose transcript is missing. Blocks.
pub(super) fn check_kept(
    entry: &AgentEntry,
    id: &UpstreamId,
    kept: &Unpacked,
) -> Result<CheckAnswer, ConversationError> {
    let (agents, format) = read_root(entry)?;
    let report = format.dialect().check_copy(kept.root(), agents, id.as_str());
    let mut answer = check_answer(report)?;
    answer.kept = kept.sessions().iter().map(|id| id.as_str().into()).collect();
    Ok(answer)
}

/// A report as an answer.
pub(super) fn check_answer(
    report: Result<Report, TranscriptError>,
) -> Result<CheckAnswer, ConversationError> {
    let report = report?;
    Ok(CheckAnswer {
        findings: report.findings,
        more: report.more,
        ..CheckAnswer::default()
    })
}

/// Where an agent keeps transcripts that can be read, and how.
pub(super) fn read_root(entry: &AgentEntry) -> Result<(&Path, Format), ConversationError> {
    entry.listed_transcripts().ok_or_else(|| {
        ConversationError::Unsupported(format!(
            "this version cannot read the transcripts of the agent {}",
            entry.name
        ))
    })
}
