//! Moves the files of a conversation to another folder.
//!
//! Owns the choice of sessions: those that run in the old folder and belong to no other conversation. Claude stores
//! transcripts by folder, so they move to where Claude looks in the new folder, and the folder in their records is
//! changed. Codex finds a rollout by its id from any folder, so nothing moves. Blocks.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bridge_protocol::conversation::{MoveAnswer, MovedKind, PlannedMove};
use bridge_protocol::link::{Fidelity, LineageReason, Link};
use bridge_protocol::{ConversationId, UpstreamId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::destination::{Destination, Tree};
use super::error::{ConversationError, StoreFailure};
use super::folder::real_folder;
use super::resource::UnrecordedResource;
use super::running_work::{Progress, is_ended_early};
use super::services::{Services, chain_text, now};
use super::transcript_facts::AgentTranscripts;
use super::tree_moves::{TreeMove, TreeMoveState};
use crate::agent::catalog::AgentEntry;
use crate::chain::{Chain, NewLink};
use crate::store::ConversationRecord;
use crate::transcript::TranscriptError;
use crate::transcript::locate::{own_folder, project_folder};
use crate::transcript::moving::{self, MoveStep, RunningMove, SharedRemainingForks, StepKind};

/// The owner of a move, as recorded in its intent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum MoveOwner {
    /// One conversation.
    #[serde(rename_all = "camelCase")]
    Conversation {
        conversation_id: ConversationId,
        /// The number of its last lineage entry before the move.
        after: u64,
    },
    /// The tree move that moves sessions that belong to no conversation.
    Tree(Uuid),
}

impl From<&ConversationRecord> for MoveOwner {
    fn from(record: &ConversationRecord) -> Self {
        Self::Conversation {
            conversation_id: record.id,
            after: record.chain.last_lineage_seq(),
        }
    }
}

/// The files that a move moves, and what it leaves out.
#[derive(Debug, Default)]
struct MovePlan {
    steps: Vec<MoveStep>,
    left_out: Vec<String>,
    /// The sessions whose transcript is missing, but that have a backup.
    kept: Vec<UpstreamId>,
    /// The sessions that stay because another conversation has them too.
    shared: Vec<UpstreamId>,
}

/// Plans a move without changing anything. Blocks.
///
/// # Errors
/// As for a move, except that writing programs are not detected.
pub(super) fn dry_run(
    services: &Services,
    record: &ConversationRecord,
    destination: &Destination,
    neighbours: &SharedRemainingForks,
) -> Result<MoveAnswer, ConversationError> {
    let plan = plan_move(services, record, destination, neighbours)?;
    moving::check_targets_free(&plan.steps).map_err(move_error)?;
    Ok(MoveAnswer {
        moved: 0,
        ..move_answer(plan, record, destination)
    })
}

/// Moves the files of a conversation to another folder, once no agent writes to them. On failure, they are back in place.
///
/// # Errors
/// [`ConversationError::Busy`] if a program writes to them, [`ConversationError::Conflict`] if another file has one of their
/// new paths, and errors of reading and writing.
pub(super) fn move_conversation_files(
    services: &Services,
    record: &ConversationRecord,
    destination: &Destination,
    neighbours: &SharedRemainingForks,
    progress: &Progress,
) -> Result<(MoveAnswer, UnrecordedResource), ConversationError> {
    let plan = plan_move(services, record, destination, neighbours)?;
    if plan.steps.is_empty() {
        return Ok((
            move_answer(plan, record, destination),
            UnrecordedResource::default(),
        ));
    }
    let files = run_move(services, &MoveOwner::from(record), plan.steps.clone(), progress)?;
    Ok((move_answer(plan, record, destination), files.into()))
}

/// Moves the files of one session of a conversation to a folder, before the session becomes the head again. Returns `None` if it
/// has to stay in its folder, and the moved files otherwise. On failure, they are back in place.
///
/// # Errors
/// As [`move_conversation_files`].
pub(super) fn move_session_files(
    services: &Services,
    record: &ConversationRecord,
    link: &NewLink,
    to: &str,
    progress: &Progress,
) -> Result<Option<UnrecordedResource>, ConversationError> {
    let mut alone = record.clone();
    alone.cwd.clone_from(&link.cwd);
    alone.chain = Chain::default();
    // This copy of the record is used only for the plan; it is not stored.
    let _not_written = alone.chain.append(link.clone(), Fidelity::Full, now());
    let destination = Destination::Folder(to.to_owned());
    let plan = match plan_move(services, &alone, &destination, &SharedRemainingForks::default()) {
        Err(ConversationError::Unsupported(_)) => return Ok(None),
        planned => planned?,
    };
    if !plan.shared.is_empty() {
        return Ok(None);
    }
    if plan.steps.is_empty() {
        return Ok(Some(UnrecordedResource::default()));
    }
    let files = run_move(services, &MoveOwner::from(record), plan.steps, progress)?;
    Ok(Some(files.into()))
}

/// Moves files. On failure, they are back in their old place. Blocks.
///
/// # Errors
/// As [`move_conversation_files`].
pub(super) fn run_move(
    services: &Services,
    owner: &MoveOwner,
    steps: Vec<MoveStep>,
    progress: &Progress,
) -> Result<RunningMove, ConversationError> {
    let name = match owner {
        MoveOwner::Conversation { conversation_id, .. } => format!("{conversation_id}.{}", Uuid::new_v4()),
        MoveOwner::Tree(id) => TreeMove::intent_name(*id),
    };
    let owner = serde_json::to_string(owner)
        .map_err(|error| ConversationError::StoreFailed(error.to_string().into()))?;
    // Each file is read twice: to copy it and to compare the copy.
    progress.expect_bytes(steps.iter().map(|step| 2 * step.bytes).sum());
    let mut files = RunningMove::begin(&services.data_folder, &name, owner, steps).map_err(move_error)?;
    let mut on_placing = |step: &MoveStep, bytes| {
        if step.kind == StepKind::Transcript {
            // None of its turns is new.
            services
                .old_bytes
                .note_length(&step.session.as_str().into(), bytes);
        }
    };
    let result = files.run(&|bytes| progress.add_done_bytes_io(bytes), &mut on_placing);
    if let Err(error) = result {
        if !files.undo() {
            tracing::error!(
                name,
                "a failed move could not be undone completely; the next start tries again"
            );
        }
        return Err(move_error(error));
    }
    Ok(files)
}

/// Completes or undoes the moves that an earlier daemon left unfinished.
pub(super) fn settle_unfinished(services: &Services) {
    // An in-memory store does not know which moves were recorded.
    if services.store.status().is_ephemeral {
        return;
    }
    moving::settle(&services.data_folder, |subject| {
        match serde_json::from_str(subject).ok()? {
            MoveOwner::Conversation {
                conversation_id,
                after,
            } => {
                // While files move, nothing else is added to the lineage.
                let entries = services.store.lineage(conversation_id, after, 1).ok()?;
                let reason = entries.first().map(|entry| entry.reason);
                Some(matches!(
                    reason,
                    Some(LineageReason::Moved | LineageReason::Undone)
                ))
            }
            MoveOwner::Tree(id) => {
                // If the tree move is unknown, decide at a later start.
                let tree_move = TreeMove::read(&services.data_folder, id).ok()??;
                Some(tree_move.state != TreeMoveState::Underway)
            }
        }
    });
}

fn plan_move(
    services: &Services,
    record: &ConversationRecord,
    destination: &Destination,
    neighbours: &SharedRemainingForks,
) -> Result<MovePlan, ConversationError> {
    let mut plan = MovePlan::default();
    if destination.is_reached(record) {
        return Ok(plan);
    }
    let entry = services.agent(&record.agent)?;
    let Some(transcripts) = movable_transcripts(services, &entry, record, destination, &mut plan.left_out)?
    else {
        return Ok(plan);
    };
    let links = record.chain.links();
    let last = links.len().saturating_sub(1);
    let mut targets = BTreeSet::new();
    for (number, link) in links.iter().enumerate() {
        let target = destination.new_cwd_of_link(&record.cwd, link, number == last);
        let Some(target) = target.filter(|_| link.agent == record.agent) else {
            continue;
        };
        let holders = services
            .store
            .holders(&link.upstream_id, Some(&entry.transcript_root()))?;
        let keeps_it = |other: &&ConversationRecord| {
            other.id != record.id && !destination.moves_session(other, &link.upstream_id)
        };
        if let Some(other) = holders.iter().find(keeps_it) {
            plan.left_out.push(format!(
                "session {} also belongs to conversation {} and was not moved",
                link.upstream_id, other.id
            ));
            plan.shared.push(link.upstream_id.clone());
            continue;
        }
        let Some(transcript) = plan.find_transcript(transcripts, link)? else {
            continue;
        };
        let tree = match destination {
            Destination::Folder(_) => None,
            Destination::Tree(tree) => Some(tree),
        };
        let real = tree.and_then(|tree| tree.new_real_path(&link.cwd));
        let target = real.unwrap_or(target);
        let mut folders = folder_mapping(services, &link.cwd, &target, &transcript);
        folders.extend(tree.into_iter().flat_map(Tree::path_mapping));
        let folder = own_folder(transcripts.root, Path::new(&target));
        let session = moving::plan(&transcript, &folder, &folders, &mut neighbours.lock());
        let session = session.map_err(move_error)?;
        for step in session.steps {
            // A file that several sessions use is moved once.
            if targets.insert(step.to.clone()) {
                plan.steps.push(step);
            }
        }
        plan.left_out.extend(session.left_out);
    }
    Ok(plan)
}

/// The folder of the agent's transcripts, if its transcripts have to move with their conversation. What stays behind is added
/// to `left_out`.
///
/// # Errors
/// [`ConversationError::Unsupported`] if the conversation would lose its sessions.
fn movable_transcripts<'a>(
    services: &'a Services,
    entry: &'a AgentEntry,
    record: &ConversationRecord,
    destination: &Destination,
    left_out: &mut Vec<String>,
) -> Result<Option<AgentTranscripts<'a>>, ConversationError> {
    let has_written_head = record.chain.head().is_some_and(|head| head.written);
    let Some(transcripts) = services.transcripts_of(entry) else {
        return match has_written_head {
            false => Ok(None),
            true => Err(ConversationError::Unsupported(format!(
                "cannot move sessions of the agent {}: this version does not know where it stores them",
                entry.name
            ))),
        };
    };
    let abilities = transcripts.dialect.abilities();
    if abilities.finds_by_folder {
        return Ok(Some(transcripts));
    }
    if abilities.has_fixed_folder && has_written_head {
        let why = format!(
            "the agent {} resumes a session only in the folder that its transcript names, which this version cannot change",
            entry.name
        );
        if matches!(destination, Destination::Folder(_)) {
            return Err(ConversationError::Unsupported(why));
        }
        // The folder was moved already, so the conversation moves too; a new session gets its last turns as text.
        left_out.push(why);
    }
    Ok(None)
}

impl MovePlan {
    /// The transcript of a session. If it is missing there is nothing to move: a backup is later restored to the folder that
    /// the session has by then.
    fn find_transcript(
        &mut self,
        transcripts: AgentTranscripts<'_>,
        link: &Link,
    ) -> Result<Option<PathBuf>, ConversationError> {
        let id = &link.upstream_id;
        match transcripts.find(&link.cwd, id) {
            Ok(transcript) => return Ok(Some(transcript)),
            Err(error) if error.is_absence() => {}
            Err(error) => return Err(move_error(error)),
        }
        if transcripts.has_backup(id) {
            self.kept.push(id.clone());
        } else if link.written {
            self.left_out.push(format!(
                "the transcript of session {id} is missing and has no backup"
            ));
        }
        Ok(None)
    }
}

/// Maps the paths in a session's records to their new paths. Agents write folders without symbolic links.
fn folder_mapping(services: &Services, from: &str, to: &str, transcript: &Path) -> Vec<(String, String)> {
    let to = real_folder(to).unwrap_or_else(|| to.to_owned());
    let mut old_paths = vec![from.to_owned()];
    match real_folder(from) {
        Some(real) => old_paths.push(real),
        // `from` is missing, so only the records know where its links led.
        None => old_paths.extend(recorded_folder(services, transcript)),
    }
    old_paths.dedup();
    old_paths.into_iter().map(|from| (from, to.clone())).collect()
}

/// The folder that the records of a transcript name, if it fits the transcript's place.
fn recorded_folder(services: &Services, transcript: &Path) -> Option<String> {
    let origin = services.index_cache.origin(transcript).ok()?;
    origin.cwd.filter(|cwd| {
        let folder = transcript.parent().and_then(Path::file_name);
        folder.is_some_and(|folder| folder == project_folder(Path::new(cwd)).as_str())
    })
}

/// The folder in which a session that left the chain is now, if it is another one than its link says: it was moved with its
/// folder. Blocks.
pub(super) fn folder_of_moved_session(services: &Services, link: &NewLink) -> Option<String> {
    let transcripts = services.transcripts(&link.agent)?;
    if !transcripts.dialect.abilities().finds_by_folder {
        return None;
    }
    let transcript = transcripts.find(&link.cwd, &link.upstream_id).ok()?;
    let folder = recorded_folder(services, &transcript)?;
    let is_elsewhere = folder != link.cwd && real_folder(&link.cwd).is_none_or(|real| real != folder);
    is_elsewhere.then_some(folder)
}

fn move_answer(plan: MovePlan, record: &ConversationRecord, destination: &Destination) -> MoveAnswer {
    let mut moves: Vec<PlannedMove> = plan.steps.iter().map(planned_move).collect();
    let cwd = destination.new_cwd(record);
    if cwd != record.cwd {
        moves.push(PlannedMove {
            from: record.cwd.clone(),
            to: cwd,
            kind: MovedKind::Metadata,
            bytes: 0,
        });
    }
    MoveAnswer {
        plan: moves,
        moved: plan.steps.len() as u64,
        left_out: plan.left_out,
        kept: plan.kept,
    }
}

/// A step, as the answer describes it.
pub(super) fn planned_move(step: &MoveStep) -> PlannedMove {
    let text = |path: &PathBuf| path.to_string_lossy().into_owned();
    PlannedMove {
        from: text(&step.from),
        to: text(&step.to),
        kind: match step.kind {
            StepKind::Transcript => MovedKind::Transcript,
            StepKind::SideFile => MovedKind::SideFile,
        },
        bytes: step.bytes,
    }
}

/// Converts an error of a file move to the error of the call.
pub(super) fn move_error(error: TranscriptError) -> ConversationError {
    match error {
        TranscriptError::AlreadyExists { path } => ConversationError::Conflict(format!(
            "{} already exists and differs; nothing was moved",
            path.display()
        )),
        TranscriptError::Changed { .. } | TranscriptError::InUse { .. } => {
            ConversationError::Busy(format!("{error}; nothing was moved"))
        }
        TranscriptError::Io { source, .. } if is_ended_early(&source) => ConversationError::ShuttingDown,
        error => ConversationError::StoreFailed(StoreFailure {
            is_transient: error.is_passing(),
            ..format!("{}; nothing was moved", chain_text(&error)).into()
        }),
    }
}
