//! Repaired copies of transcripts: of the head of a conversation, and of sessions that are nobody's.
//!
//! Owns when a copy is made at all, and that it is only taken when it has none of what it was made for. Blocks, but for waiting
//! until nobody writes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bridge_protocol::UpstreamId;
use bridge_protocol::check::{CheckAnswer, Finding, FindingKind, Repairs};
use bridge_protocol::link::Fidelity;
use uuid::Uuid;

use super::checking::{check_answer, check_claude, check_rollout, read_root, unusable};
use super::climbing::store_error;
use super::closed_sessions::ClosedSessions;
use super::copies;
use super::disk;
use super::effect::RepairedHead;
use super::error::ConversationError;
use super::history::History;
use super::keeping;
use super::services::{Services, chain_text};
use super::uncommitted_copies::UncommittedCopy;
use super::work::{EndedEarly, Progress};
use crate::agent::catalog::AgentEntry;
use crate::store::ConversationRecord;
use crate::transcript::TranscriptError;
use crate::transcript::locate::{file_name, own_folder};
use crate::transcript::meter::{Meter, metered};
use crate::transcript::repair::{self, Repaired};
use crate::transcript::shelf::Format;
use crate::transcript::{reading, rollouts};

/// What is to be repaired.
pub(super) struct RepairRequest {
    /// The conversation as it stands.
    pub record: ConversationRecord,
    /// What has to have ended before.
    pub closed: ClosedSessions,
    /// Where is noted how far it has come.
    pub progress: Arc<Progress>,
}

/// What came of it.
pub(super) struct Done {
    /// As it is told.
    pub answer: CheckAnswer,
    /// The copy, where one was made.
    pub made: Option<(RepairedHead, UncommittedCopy)>,
}

/// A transcript and what was found in it.
pub(super) struct Damaged<'a> {
    /// The agent's own folder.
    pub root: &'a Path,
    /// The session.
    pub id: &'a UpstreamId,
    /// The file that counts.
    pub path: PathBuf,
    /// What a check says.
    pub answer: CheckAnswer,
}

/// A copy that holds.
pub(super) struct Copied {
    /// The new session.
    pub upstream_id: UpstreamId,
    /// Its file.
    pub copy: UncommittedCopy,
    /// The uuid of the source's record with which it ends, where records have any.
    last_uuid: Option<String>,
    turns: u64,
    /// Whether nothing that counts was lost by the damage.
    is_whole: bool,
}

/// Repairs the head of a conversation, once nobody of ours writes to it.
///
/// # Errors
/// [`ConversationError::Busy`] when somebody writes to it, [`ConversationError::TranscriptDamaged`] when no copy would be whole,
/// and what cannot be read or written. Nothing is left behind by a failure.
pub(super) async fn carry_out(
    services: Arc<Services>,
    request: RepairRequest,
) -> Result<Done, ConversationError> {
    request.closed.ended().await?;
    let (record, progress) = (request.record, request.progress);
    let meter: Arc<dyn Meter> = Arc::clone(&progress) as Arc<dyn Meter>;
    let work = move || {
        let done = metered(meter, || of_head(&services, &record));
        // Here, since a copy that is not wanted is removed when it is dropped, which blocks.
        progress
            .step(0)
            .map_err(|EndedEarly| ConversationError::ShuttingDown)?;
        done
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| ConversationError::Lost)?
}

fn of_head(services: &Services, record: &ConversationRecord) -> Result<Done, ConversationError> {
    let head = record.chain.head().ok_or_else(|| ConversationError::NotFound {
        what: "the conversation has no session yet, so that there is no transcript to check".to_owned(),
    })?;
    let entry = services.agent(&head.agent)?;
    let (root, format) = read_root(&entry)?;
    let id = &head.upstream_id;
    keeping::refuse_unreported(services, &entry, record)?;
    // A copy lies beside its source.
    if keeping::is_lost(services, &entry, record, id) {
        keeping::bring_back(services, &entry, record, id)?;
    }
    let (path, answer) = match format {
        Format::Claude => {
            let path =
                copies::find(&services.library, root, &head.cwd, id).map_err(|error| unusable(&error))?;
            let answer = check_claude(&services.library, root, Some(&head.cwd), &path)?;
            (path, answer)
        }
        Format::Codex => {
            let path = rollouts::find(root, id.as_str()).map_err(|error| unusable(&error))?;
            (path, check_rollout(root, id)?)
        }
    };
    let damaged = Damaged {
        root,
        id,
        path,
        answer,
    };
    let folder = own_folder(root, Path::new(&record.cwd));
    let (mut answer, copied) = copy(services, &entry, &damaged, &folder)?;
    let Some(copied) = copied else {
        return Ok(Done { answer, made: None });
    };
    let checkpoint = match &copied.last_uuid {
        Some(uuid) => Some(disk::checkpoint(entry.name.as_str(), id, uuid)),
        None => {
            let lineage = services.store.lineage_all(record.id);
            let lineage = lineage.map_err(|error| store_error(&error))?;
            let history = History::of_conversation(services, record, &lineage)?;
            history
                .last_place()
                .filter(|_| history.last_session() == Some(id))
        }
    };
    let fidelity = fidelity(copied.is_whole && copied.turns >= head.turns + head.carried_turns);
    answer.fidelity = Some(fidelity);
    let made = RepairedHead {
        upstream_id: copied.upstream_id,
        from: id.clone(),
        checkpoint,
        turns: copied.turns,
        fidelity,
    };
    Ok(Done {
        answer,
        made: Some((made, copied.copy)),
    })
}

/// Makes the repaired copy of a transcript in which something was found that a copy does not have; none where
/// there is nothing of the kind. Blocks.
///
/// # Errors
/// As [`carry_out`], and [`ConversationError::Unsupported`] for what is not done with transcripts of this agent.
pub(super) fn copy(
    services: &Services,
    entry: &AgentEntry,
    damaged: &Damaged<'_>,
    folder: &Path,
) -> Result<(CheckAnswer, Option<Copied>), ConversationError> {
    let format = read_root(entry)?.1;
    if format == Format::Codex {
        check_repairable(damaged)?;
    }
    let mut answer = damaged.answer.clone();
    let is_mended = |finding: &Finding| mends(format, finding.kind);
    if !answer.findings.iter().any(is_mended) {
        return Ok((answer, None));
    }
    let before = content_at(&damaged.path);
    let (made, mut copied) = match format {
        Format::Claude => copy_claude(services, damaged, folder)?,
        Format::Codex => copy_rollout(services, damaged)?,
    };
    if content_at(&damaged.path) != before {
        return Err(ConversationError::Busy(format!(
            "{} changed while it was being copied; somebody writes to it",
            damaged.path.display()
        )));
    }
    let report = match format {
        Format::Claude => reading::check(&made.path),
        Format::Codex => rollouts::check(damaged.root, copied.upstream_id.as_str()),
    };
    let refusals = report.as_ref().map_or(0, |report| report.refusals.len());
    let found = check_answer(report)?.findings;
    if let Some(finding) = found.iter().find(|finding| refusals > 0 || is_mended(finding)) {
        return Err(ConversationError::TranscriptDamaged(format!(
            "a repaired copy of it would not be whole either: {}",
            finding.detail
        )));
    }
    services.old_bytes.note_copied(&copied.upstream_id, &made.path);
    copied.is_whole &= is_all_there(&made.repairs);
    answer.left = found
        .into_iter()
        .filter(|finding| finding.kind.is_damage())
        .collect();
    answer.repaired = Some(copied.upstream_id.clone());
    answer.repairs = Some(made.repairs);
    answer.fidelity = Some(fidelity(copied.is_whole));
    tracing::info!(upstream_id = %damaged.id, copy = %copied.upstream_id, path = %made.path.display(), "a repaired copy was made");
    Ok((answer, Some(copied)))
}

/// Whether a copy has all that its source has, but for records whose parents are gone. A result that was filled in says that
/// the true one is not there.
fn is_all_there(repairs: &Repairs) -> bool {
    (repairs.left_out, repairs.filled_in) == (0, 0)
}

fn fidelity(is_whole: bool) -> Fidelity {
    match is_whole {
        true => Fidelity::Full,
        false => Fidelity::Partial,
    }
}

/// By what is known whether somebody writes to a file. That a copy of it is kept by a link is no change of it.
fn content_at(path: &Path) -> Option<(u64, SystemTime)> {
    let metadata = path.metadata().ok()?;
    Some((metadata.len(), metadata.modified().ok()?))
}

fn mends(format: Format, kind: FindingKind) -> bool {
    match format {
        Format::Claude => repair::mends(kind),
        Format::Codex => rollouts::repair::mends(kind),
    }
}

/// Refuses what a copy of a rollout would not mend.
fn check_repairable(damaged: &Damaged<'_>) -> Result<(), ConversationError> {
    if rollouts::is_archived(damaged.root, &damaged.path) {
        return Err(ConversationError::Conflict(format!(
            "Codex has this session archived; `codex unarchive {}` brings it back, and then it can be repaired",
            damaged.id
        )));
    }
    let report = rollouts::check(damaged.root, damaged.id.as_str()).map_err(|error| unusable(&error))?;
    let mut refusals = report.refusals.iter();
    match refusals.find(|refusal| !rollouts::repair::mends(refusal.kind)) {
        Some(refusal) => Err(ConversationError::TranscriptDamaged(format!(
            "a copy of it would not be whole either: {}",
            refusal.detail
        ))),
        None => Ok(()),
    }
}

fn copy_claude(
    services: &Services,
    damaged: &Damaged<'_>,
    folder: &Path,
) -> Result<(Repaired, Copied), ConversationError> {
    let index = services
        .library
        .index(&damaged.path)
        .map_err(|error| unusable(&error))?;
    // As the ladder does; where another branch was left, and nothing damaged, it stays left.
    let branch = index.select_joined().or_else(|| index.select(None, true));
    let branch = branch.ok_or_else(|| {
        ConversationError::TranscriptDamaged(
            "no message of a conversation is in it, so that there is nothing to make a copy of".to_owned(),
        )
    })?;
    let new_id = UpstreamId::from(Uuid::new_v4().to_string());
    let failed = |error: TranscriptError| ConversationError::StoreFailed(chain_text(&error).into());
    let target = folder.join(file_name(new_id.as_str()).map_err(failed)?);
    services.note_copy(&new_id, &target).map_err(failed)?;
    let made = repair::repair(&damaged.path, &index, &branch, folder, new_id.as_str());
    let made = made.map_err(failed)?;
    services.note_whole_copy(&new_id, &made.path);
    let copied = Copied {
        copy: services.copies.uncommitted(&new_id, made.path.clone()),
        upstream_id: new_id,
        last_uuid: Some(branch.leaf_uuid().to_owned()),
        turns: branch.prompt_offsets().len() as u64,
        is_whole: branch.breaks() == 0,
    };
    Ok((made, copied))
}

fn copy_rollout(services: &Services, damaged: &Damaged<'_>) -> Result<(Repaired, Copied), ConversationError> {
    let new_id = UpstreamId::from(Uuid::now_v7().to_string());
    let failed = |error: TranscriptError| ConversationError::StoreFailed(chain_text(&error).into());
    let (source, id) = (&damaged.path, damaged.id.as_str());
    let target = rollouts::repair::target(damaged.root, source, id, new_id.as_str());
    services.note_copy(&new_id, &target).map_err(failed)?;
    let made = rollouts::repair::repair(source, id, &target, new_id.as_str()).map_err(failed)?;
    services.note_whole_copy(&new_id, &made.path);
    let copy = services.copies.uncommitted(&new_id, made.path.clone());
    let origin = rollouts::origin(damaged.root, new_id.as_str()).map_err(|error| unusable(&error))?;
    let copied = Copied {
        upstream_id: new_id,
        copy,
        last_uuid: None,
        turns: origin.turns as u64,
        is_whole: true,
    };
    Ok((made, copied))
}
