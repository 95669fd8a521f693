//! Plans the move of a folder: which conversations move, and which transcripts that belong to none. Blocks.
//!
//! A session belongs to the folder that it began in. That is read from the name of the folder that contains its transcript,
//! as the agent does.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bridge_protocol::conversation::MovedKind;
use bridge_protocol::transcript::TreeMoveAnswer;
use uuid::Uuid;

use super::super::super::destination::{Destination, Tree};
use super::super::super::error::ConversationError;
use super::super::super::folder::check_folder;
use super::super::super::moving::{self, move_error};
use super::super::super::services::Services;
use super::super::super::tree_moves::{MovedConversation, TreeMove, TreeMoveState};
use super::super::transcripts::FolderTranscripts;
use super::{record_error, with_conversation};
use crate::files::open_file;
use crate::store::ConversationRecord;
use crate::transcript::fields::Fields;
use crate::transcript::locate::{own_folder, project_folder};
use crate::transcript::moving::{self as files, MoveStep, RemainingForks, SessionPlan, SharedRemainingForks};
use crate::transcript::transcript_list::ListedTranscript;

/// How much of a transcript is searched for the folder that it began in, in bytes.
const BEGINNING_BYTES: u64 = 1024 * 1024;

/// The plan of a folder's move.
#[derive(Default)]
pub(super) struct TreeMovePlan {
    /// The conversations that move.
    pub(super) parts: Vec<MovedConversation>,
    /// The steps for files that belong to no conversation.
    pub(super) unowned_steps: Vec<MoveStep>,
    /// The answer, except what is moved and how that is undone.
    pub(super) answer: TreeMoveAnswer,
    /// The forks that stay in the folders of moving sessions.
    pub(super) neighbours: SharedRemainingForks,
}

/// The source of each target path.
type Targets = HashMap<PathBuf, PathBuf>;

/// Plans the move of a folder. Blocks.
pub(super) fn plan(
    services: &Services,
    tree: &Tree,
    listed: &[FolderTranscripts],
) -> Result<TreeMovePlan, ConversationError> {
    let destination = Destination::Tree(tree.clone());
    let mut planned = TreeMovePlan::default();
    let mut owned = HashSet::new();
    for found in services.store.recent() {
        let record = found?;
        owned.extend(resumable_sessions(&record));
        if !destination.is_reached(&record) {
            planned.add_conversation(services, &record, MovedConversation::new(tree, &record))?;
        }
    }
    let unowned = unowned_transcripts(tree, listed, &owned, &mut planned.answer.left_out);
    let mut neighbours = RemainingForks::new(unowned.iter().map(|(_, path, _)| path.to_path_buf()).collect());
    let mut targets = Targets::new();
    for (root, path, cwd) in &unowned {
        let Some(to) = tree.new_real_path(cwd) else {
            continue;
        };
        let folder = own_folder(root, Path::new(&to));
        let session =
            files::plan(path, &folder, &tree.path_mapping(), &mut neighbours).map_err(move_error)?;
        planned.add_unowned_session(session, &mut targets);
    }
    planned.add_project_memory(&mut targets)?;
    files::check_targets_free(&planned.unowned_steps).map_err(move_error)?;
    Ok(planned)
}

/// The sessions that a conversation can be resumed from.
fn resumable_sessions(record: &ConversationRecord) -> impl Iterator<Item = String> {
    let links = record.chain.links().iter();
    links.map(|link| link.upstream_id.as_str().to_owned())
}

/// The transcripts to move that belong to no conversation, each with its agent's folder and the folder that it began in.
fn unowned_transcripts<'a>(
    tree: &Tree,
    listed: &'a [FolderTranscripts],
    held: &HashSet<String>,
    left_out: &mut Vec<String>,
) -> Vec<(&'a Path, &'a Path, String)> {
    let mut leaving = Vec::new();
    let prefixes: Vec<String> = tree
        .from
        .iter()
        .map(|from| project_folder(Path::new(from)))
        .collect();
    for (root, entries) in listed {
        if !root.format.dialect().abilities().finds_by_folder {
            let ran_there = |entry: &&Arc<ListedTranscript>| tree.new_path(&entry.cwd).is_some();
            let entries = entries.iter().filter(ran_there);
            let count = entries.filter(|entry| !held.contains(&entry.upstream_id)).count();
            if count > 0 {
                let agent = &root.entry.name;
                let why = match root.format.dialect().abilities().has_fixed_folder {
                    true => format!(
                        "{agent} resumes only in the folders that their transcripts name, which this version cannot change"
                    ),
                    false => format!("{agent} finds by id and not by folder"),
                };
                left_out.push(format!("{count} of {agent}'s sessions, which {why}"));
            }
            continue;
        }
        for entry in entries {
            if held.contains(&entry.upstream_id) {
                continue;
            }
            let folder = entry.path.parent().and_then(Path::file_name).unwrap_or_default();
            let folder = folder.to_string_lossy();
            let began = began_in(tree, entry, &folder).or_else(|| {
                // For a long path, the name of the folder is truncated.
                let may_be = prefixes
                    .iter()
                    .any(|prefix| folder.starts_with(prefix.get(..200).unwrap_or(prefix)));
                let first = first_folder(&entry.path).filter(|_| may_be)?;
                is_stored_in(tree, &first, &folder).then_some(first)
            });
            match began {
                Some(cwd) => leaving.push((root.root.as_path(), &*entry.path, cwd)),
                None if tree.new_path(&entry.cwd).is_some() => left_out.push(format!(
                    "{} ended in {}, but is stored with the sessions of another folder; it was not moved",
                    entry.path.display(),
                    entry.cwd
                )),
                None => {}
            }
        }
    }
    leaving
}

/// The folder below the tree in which a session began, derived from the folder where it ended: that folder or one above it.
fn began_in(tree: &Tree, entry: &ListedTranscript, folder: &str) -> Option<String> {
    let mut above = Path::new(&entry.cwd).ancestors().filter_map(Path::to_str);
    above
        .find(|cwd| is_stored_in(tree, cwd, folder))
        .map(str::to_owned)
}

/// Whether `cwd` is in the tree, and agents store sessions that began in it in this folder.
fn is_stored_in(tree: &Tree, cwd: &str, folder: &str) -> bool {
    tree.new_path(cwd).is_some() && project_folder(Path::new(cwd)) == folder
}

/// The folder that the first record of a transcript names.
fn first_folder(path: &Path) -> Option<String> {
    let reader = BufReader::new(open_file(path).ok()?.take(BEGINNING_BYTES));
    let mut lines = reader.split(b'\n').map_while(Result::ok);
    lines.find_map(|line| Fields::parse(std::str::from_utf8(&line).ok()?)?.text("cwd"))
}

/// Plans the undo of a move, and returns the reversed tree with it. Blocks.
pub(super) fn plan_undo(services: &Services, id: Uuid) -> Result<(Tree, TreeMovePlan), ConversationError> {
    let known = TreeMove::read(&services.data_folder, id).map_err(|error| record_error(&error))?;
    let known = known.filter(|known| known.description.undoes.is_none());
    let known = known.ok_or_else(|| ConversationError::NotFound {
        what: format!("there is no move \"{id}\"; moves can be undone for 30 days"),
    })?;
    let all = TreeMove::read_all(&services.data_folder).map_err(|error| record_error(&error))?;
    let is_undone = |other: &TreeMove| other.id == id && other.state == TreeMoveState::Undone;
    if all.iter().any(is_undone) {
        return Err(ConversationError::Conflict(format!(
            "the move {id} was undone already"
        )));
    }
    let named = known.description.tree.from.first().map_or("/", String::as_str);
    check_folder(named)?;
    let back = known.description.tree.back_to(named);
    let mut planned = TreeMovePlan::default();
    for part in &known.description.parts {
        let Ok(Some(record)) = services.store.conversation(part.conversation_id) else {
            continue;
        };
        if record.deleted_at.is_some() || part.is_at_origin(&record) {
            continue;
        }
        if part.destination_back(&record).is_none() {
            return Err(ConversationError::Conflict(format!(
                "conversation {} has since moved to {}; undo that move first: sessionctl undo {}",
                record.id, record.cwd, record.id
            )));
        }
        planned.add_conversation(services, &record, part.reversed())?;
    }
    plan_unowned_undo(services, &known, &back, &mut planned)?;
    if planned.parts.is_empty() && planned.unowned_steps.is_empty() {
        return Err(ConversationError::Conflict(format!(
            "everything that the move {id} moved was moved again or deleted; undo the later moves first"
        )));
    }
    Ok((back, planned))
}

/// Plans to move back the transcripts that a move took along and that belong to none of its conversations.
fn plan_unowned_undo(
    services: &Services,
    known: &TreeMove,
    back: &Tree,
    planned: &mut TreeMovePlan,
) -> Result<(), ConversationError> {
    let moved = known.answer.iter().flat_map(|answer| &answer.plan);
    let moved = moved.filter(|one| one.kind == MovedKind::Transcript);
    let moved: Vec<_> = moved
        .map(|one| (Path::new(&one.from), Path::new(&one.to)))
        .collect();
    let is_part = |id| {
        known
            .description
            .parts
            .iter()
            .any(|part| part.conversation_id == id)
    };
    let (mut owned, mut moving) = (HashSet::new(), HashSet::new());
    for found in services.store.recent() {
        let record = found?;
        match is_part(record.id) {
            true => moving.extend(resumable_sessions(&record)),
            false => owned.extend(resumable_sessions(&record)),
        }
    }
    let mut neighbours = RemainingForks::new(moved.iter().map(|(_, to)| to.to_path_buf()).collect());
    let mut targets = Targets::new();
    for (from, to) in moved {
        let session = to.file_stem().unwrap_or_default().to_string_lossy();
        if moving.contains(&*session) {
            continue;
        }
        if !to.exists() {
            let path = to.display();
            planned
                .answer
                .left_out
                .push(format!("{path} was moved again or deleted"));
            continue;
        }
        if owned.contains(&*session) {
            planned.answer.left_out.push(format!(
                "the session {session} now belongs to a conversation and was not moved"
            ));
            continue;
        }
        let folder = from.parent().unwrap_or(Path::new("/"));
        let session = files::plan(to, folder, &back.path_mapping(), &mut neighbours).map_err(move_error)?;
        planned.add_unowned_session(session, &mut targets);
    }
    planned.add_project_memory(&mut targets)?;
    files::check_targets_free(&planned.unowned_steps).map_err(move_error)
}

impl TreeMovePlan {
    /// Adds a conversation to the move, unless it is unknown how its agent stores sessions.
    fn add_conversation(
        &mut self,
        services: &Services,
        record: &ConversationRecord,
        part: MovedConversation,
    ) -> Result<(), ConversationError> {
        let destination = Destination::Tree(part.forth.clone());
        match moving::dry_run(services, record, &destination, &self.neighbours) {
            Ok(answer) => {
                self.answer.plan.extend(answer.plan);
                self.answer.left_out.extend(answer.left_out);
                // A session may belong to several conversations.
                let kept = answer.kept.into_iter();
                let new: Vec<_> = kept.filter(|id| !self.answer.kept.contains(id)).collect();
                self.answer.kept.extend(new);
                self.parts.push(part);
                Ok(())
            }
            Err(
                error @ (ConversationError::Unsupported(_)
                | ConversationError::NotFound { .. }
                | ConversationError::UnknownAgent { .. }),
            ) => {
                self.answer
                    .left_out
                    .push(format!("conversation {} was not moved: {error}", record.id));
                Ok(())
            }
            Err(error) => Err(with_conversation(record.id, error)),
        }
    }

    /// Adds the files of a session that belongs to no conversation.
    fn add_unowned_session(&mut self, session: SessionPlan, targets: &mut Targets) {
        for step in session.steps {
            match targets.get(&step.to) {
                None => {
                    targets.insert(step.to.clone(), step.from.clone());
                    self.answer.plan.push(moving::planned_move(&step));
                    self.unowned_steps.push(step);
                }
                // A file that two sessions share is moved once.
                Some(from) if *from == step.from => {}
                Some(from) => self.answer.left_out.push(format!(
                    "{} was not moved, because {} moves to the same place",
                    step.from.display(),
                    from.display()
                )),
            }
        }
        self.answer.left_out.extend(session.left_out);
    }

    /// Adds the memory that an agent keeps of a project, if the project's transcripts move.
    fn add_project_memory(&mut self, targets: &mut Targets) -> Result<(), ConversationError> {
        let transcripts = self
            .answer
            .plan
            .iter()
            .filter(|step| step.kind == MovedKind::Transcript);
        let moved: Vec<_> = transcripts
            .map(|step| (PathBuf::from(&step.from), PathBuf::from(&step.to)))
            .collect();
        let leaving: HashSet<&Path> = moved.iter().map(|(from, _)| from.as_path()).collect();
        let folders = moved
            .iter()
            .filter_map(|(from, to)| Some((from.parent()?, to.parent()?)));
        for (project, folder) in folders.collect::<BTreeSet<_>>() {
            let plan = files::plan_memory(project, folder, &leaving).map_err(move_error)?;
            self.add_unowned_session(plan, targets);
        }
        Ok(())
    }
}
