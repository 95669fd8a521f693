//! Repaired copies of transcripts: of the head of a conversation, and of sessions that belong to none.
//!
//! Owns when a copy is made, and ensures that it is used only if it has no damage left. Blocks, except while it waits
//! until no agent writes.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use bridge_protocol::UpstreamId;
use bridge_protocol::check::{CheckAnswer, Finding, Repairs};
use bridge_protocol::conversation::BranchedVia;
use bridge_protocol::link::Fidelity;

use super::checking::{check_answer, head_to_check, readable_transcripts};
use super::closed_sessions::ClosedSessions;
use super::effect::{NewBranch, WorkResult};
use super::error::ConversationError;
use super::history::{History, TranscriptScope};
use super::resource::UnrecordedResource;
use super::running_work::{EndedEarly, Progress};
use super::services::Services;
use super::transcript_facts::{AgentTranscripts, NewCopy, make_checkpoint_id};
use crate::files::identity::FileIdentity;
use crate::store::ConversationRecord;
use crate::transcript::TranscriptError;
use crate::transcript::check::CheckReport;
use crate::transcript::dialect::{Dialect, RepairedCopy, Session};
use crate::transcript::meter::{Meter, with_meter};

/// The result of checking a transcript, and the repaired copy with what was repaired, if there was something to repair.
type CheckedCopy = (CheckAnswer, Option<(NewCopy, RepairedCopy)>);

/// Repairs the head of a conversation, once none of the daemon's agents writes to it.
///
/// # Errors
/// [`ConversationError::Busy`] if another program writes to it, [`ConversationError::TranscriptDamaged`] if a copy would be
/// incomplete too, and errors of reading and writing. Nothing is left behind by a failure.
pub(super) async fn repair_head(
    services: Arc<Services>,
    record: ConversationRecord,
    closed: ClosedSessions,
    progress: Arc<Progress>,
) -> Result<(WorkResult, UnrecordedResource), ConversationError> {
    closed.wait_until_ended().await?;
    let meter: Arc<dyn Meter> = Arc::clone(&progress) as Arc<dyn Meter>;
    let result = services.blocking(move |services| {
        let result = with_meter(meter, || repair_head_blocking(services, &record));
        // Checked here, because dropping an unwanted copy deletes it, which blocks.
        progress
            .add_done_bytes(0)
            .map_err(|EndedEarly| ConversationError::ShuttingDown)?;
        result
    });
    result.await?
}

fn repair_head_blocking(
    services: &Services,
    record: &ConversationRecord,
) -> Result<(WorkResult, UnrecordedResource), ConversationError> {
    let head = head_to_check(record)?;
    let entry = services.agent(&head.agent)?;
    let transcripts = readable_transcripts(services, &entry)?;
    let id = &head.upstream_id;
    transcripts.refuse_unreported_loss(record)?;
    // The copy is created next to its source, so that must exist.
    if transcripts.is_missing_with_backup(record, id) {
        transcripts.restore_for_change(record, id)?;
    }
    let session = transcripts.session(&head.cwd, id);
    let path = transcripts.dialect.find(session)?;
    let (mut answer, copied) = make_repaired_copy(transcripts, session, &path, Some(&record.cwd))?;
    let Some((copy, copied)) = copied else {
        let result = WorkResult::Repaired(Box::new(answer), None);
        return Ok((result, UnrecordedResource::default()));
    };
    let checkpoint = match &copied.last_uuid {
        Some(uuid) => Some(make_checkpoint_id(&entry.name, id, uuid)),
        None => {
            let history = History::current(services, record, TranscriptScope::AgentFiles)?;
            history
                .last_checkpoint()
                .filter(|_| history.last_session() == Some(id))
        }
    };
    let fidelity = fidelity(copied.is_complete && copied.turns >= head.turns + head.carried_turns);
    answer.fidelity = Some(fidelity);
    let branch = NewBranch {
        upstream_id: copy.upstream_id,
        source: id.clone(),
        checkpoint,
        turns: copied.turns,
        fidelity,
        via: BranchedVia::Cut,
        opened_session: None,
    };
    let result = WorkResult::Repaired(Box::new(answer), Some(branch));
    Ok((result, UnrecordedResource::from(copy.uncommitted)))
}

/// Makes a repaired copy of a transcript, or returns `None` if it has no damage that a copy would fix. Blocks.
///
/// # Errors
/// As [`repair_head`], and [`ConversationError::Unsupported`] if transcripts of this agent cannot be repaired.
pub(super) fn make_repaired_copy(
    transcripts: AgentTranscripts<'_>,
    session: Session<'_>,
    source: &Path,
    cwd: Option<&str>,
) -> Result<CheckedCopy, ConversationError> {
    let (dialect, home, id) = (transcripts.dialect, session.home, UpstreamId::new(session.id));
    let report = dialect.check(session, source)?;
    check_repairable(dialect, session, source, &report)?;
    let mut answer = check_answer(Ok(report))?;
    let is_fixable = |finding: &Finding| dialect.can_fix(finding.kind);
    if !answer.findings.iter().any(is_fixable) {
        return Ok((answer, None));
    }
    let identity = || fs::metadata(source).map(|found| FileIdentity::of(&found)).ok();
    let before = identity();
    let repair = |new: &_| dialect.repair(home.session(None, session.id), source, new);
    let copied = transcripts.copy_transcript(cwd, source, &id, repair);
    let (copy, mut repaired) = copied.map_err(|error| match error {
        TranscriptError::NothingToResume { .. } => ConversationError::TranscriptDamaged(
            "it contains no messages, so there is nothing to copy".to_owned(),
        ),
        error => ConversationError::StoreFailed((&error).into()),
    })?;
    if identity() != before {
        return Err(ConversationError::Busy(format!(
            "{} changed while it was being copied; another program writes to it",
            source.display()
        )));
    }
    let report = dialect.check(home.session(None, copy.upstream_id.as_str()), &copy.path);
    let refusals = report.as_ref().map_or(0, |report| report.refusals.len());
    let found = check_answer(report)?.findings;
    if let Some(finding) = found.iter().find(|finding| refusals > 0 || is_fixable(finding)) {
        return Err(ConversationError::TranscriptDamaged(format!(
            "a repaired copy would be incomplete too: {}",
            finding.detail
        )));
    }
    repaired.is_complete &= is_complete(&repaired.repairs);
    answer.left = found;
    answer.repaired = Some(copy.upstream_id.clone());
    answer.repairs = Some(repaired.repairs);
    answer.fidelity = Some(fidelity(repaired.is_complete));
    tracing::info!(upstream_id = %id, copy = %copy.upstream_id, path = %copy.path.display(), "made a repaired copy");
    Ok((answer, Some((copy, repaired))))
}

/// Whether a copy has everything in its source except records whose parents are missing. A filled-in tool result means that the
/// real one is missing.
fn is_complete(repairs: &Repairs) -> bool {
    (repairs.left_out, repairs.filled_in) == (0, 0)
}

fn fidelity(is_whole: bool) -> Fidelity {
    match is_whole {
        true => Fidelity::Full,
        false => Fidelity::Partial,
    }
}

/// Refuses a transcript with damage that a copy would not fix.
fn check_repairable(
    dialect: &dyn Dialect,
    session: Session<'_>,
    source: &Path,
    report: &CheckReport,
) -> Result<(), ConversationError> {
    if let Some(command) = dialect.unarchive_command(session.home.root, source) {
        return Err(ConversationError::Conflict(format!(
            "this session is archived; to repair it, unarchive it first: {command} {}",
            session.id
        )));
    }
    let mut refusals = report.refusals.iter();
    match refusals.find(|refusal| !dialect.can_fix(refusal.kind)) {
        Some(refusal) => Err(ConversationError::TranscriptDamaged(format!(
            "a copy would be incomplete too: {}",
            refusal.detail
        ))),
        None => Ok(()),
    }
}
