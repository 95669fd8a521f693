//! Moves all conversations and transcripts of a folder: first the conversations that ran there, one by one, then the
//! transcripts that belong to none.
//!
//! Owns the order, and that either everything moves or nothing does: if one step fails, the steps before it are undone;
//! after a kill, the next start undoes them. How the files of a conversation move is decided by its own task.

mod paused_conversations;
mod planning;

use std::cmp::Reverse;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::MovedKind;
use bridge_protocol::transcript::{TreeMove as ToldMove, TreeMoveAnswer, TreeMoveList};
use tokio::sync::MutexGuard;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::super::answer::{Answer, CallKey};
use super::super::destination::{Destination, Tree};
use super::super::effect::{Call, MoveRequest};
use super::super::error::{ConversationError, StoreFailure};
use super::super::folder::{normalized_folder, real_folder, usable_folder};
use super::super::moving::{self, MoveOwner};
use super::super::running_work::Progress;
use super::super::tree_moves::{MovedConversation, TreeMove, TreeMoveDescription, TreeMoveState};
use super::Registry;
use crate::chain::has_moved_from;
use crate::files::is_passing;
use crate::transcript::moving::{self as files, MoveStep, RunningMove, SharedRemainingForks};
use paused_conversations::PausedConversations;
use planning::{TreeMovePlan, plan, plan_undo};

/// How long the move of a folder can be undone. By then the user has seen whether everything is in the right place.
const UNDO_PERIOD: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The end of every error after which nothing was moved.
const NOTHING_MOVED: &str = "; nothing was moved";

/// A request to move a folder, or to undo such a move.
#[derive(Debug)]
pub enum TreeMoveRequest {
    /// Move everything that ran in a folder.
    Move(Tree),
    /// Undo the move with this id.
    Undo(Uuid),
}

/// Does the work of [`Registry::tree_of`]. Blocks.
fn check_tree(from: &str, to: &str) -> Result<Tree, ConversationError> {
    let (from, to) = (normalized_folder("from", from)?, usable_folder("to", to)?);
    let real = real_folder(&to).ok_or_else(|| {
        ConversationError::InvalidCwd(format!(
            "{to} resolves to a path that is not UTF-8 and cannot be sent to agents"
        ))
    })?;
    if from == to || from == real {
        return Err(ConversationError::invalid(
            "to",
            format!("{from} and {to} are the same folder; give the folder's old path and its new path"),
        ));
    }
    let is_link = fs::symlink_metadata(&from).is_ok_and(|metadata| metadata.is_symlink());
    if let Some(leads_to) = fs::canonicalize(&from).ok().filter(|_| is_link)
        && leads_to != Path::new(&real)
    {
        // The conversations that ran there may belong to another project by now.
        let leads_to = leads_to.display();
        return Err(ConversationError::invalid(
            "from",
            format!(
                "{from} is a link to {leads_to}; to move the conversations of that folder, give its own path"
            ),
        ));
    }
    let mut known = vec![from.clone()];
    known.extend(without_links_above(&from).filter(|other| *other != from));
    for old in &known {
        for new in [&to, &real] {
            let nested = [(old, new), (new, old)];
            let nested = nested
                .into_iter()
                .find(|(inner, outer)| Path::new(inner).starts_with(outer));
            if let Some((inner, outer)) = nested {
                let why = format!(
                    "{inner} is inside {outer}, so it is unclear which folder a conversation belongs to; move the conversations \
                     one by one with sessionctl mv"
                );
                return Err(ConversationError::invalid("to", why));
            }
        }
    }
    Ok(Tree {
        from: known,
        to,
        real,
    })
}

/// A path with the links above its last name resolved, as far as its folders exist. The last name itself is not resolved:
/// what it led to may have changed.
fn without_links_above(path: &str) -> Option<String> {
    let mut above = Path::new(path).ancestors().skip(1);
    let (part, real) = above.find_map(|part| Some((part, fs::canonicalize(part).ok()?)))?;
    let whole = real.join(Path::new(path).strip_prefix(part).ok()?);
    whole.into_os_string().into_string().ok()
}

impl Registry {
    /// Checks the folders of a move of `from` to `to`, which must exist.
    ///
    /// # Errors
    /// [`ConversationError::InvalidCwd`] and [`ConversationError::InvalidParams`] for folders that cannot be used, and as
    /// [`Services::read_at_folder`](super::super::services::Services::read_at_folder).
    pub async fn tree_of(&self, from: String, to: String) -> Result<Tree, ConversationError> {
        self.services
            .read_at_folder(&to, move |to| check_tree(&from, to))
            .await
    }

    /// Plans the move of a folder without doing it.
    ///
    /// # Errors
    /// As for the move.
    pub async fn plan_tree(&self, tree: Tree) -> Result<TreeMoveAnswer, ConversationError> {
        let (_, planned) = self.plan_request(&TreeMoveRequest::Move(tree)).await?;
        Ok(planned.answer)
    }

    /// The moves of folders that can be undone, newest first.
    ///
    /// # Errors
    /// When the records of moves cannot be read.
    pub async fn tree_moves(&self) -> Result<TreeMoveList, ConversationError> {
        let look = self.services.blocking(|services| {
            let mut known = TreeMove::read_all(&services.data_folder)?;
            known.sort_by_cached_key(|known| Reverse(known.rank()));
            let moves = known.into_iter().filter_map(undoable_move).collect();
            Ok(TreeMoveList { moves })
        });
        look.await?.map_err(|error: io::Error| {
            ConversationError::StoreFailed(StoreFailure {
                text: format!("the records of folder moves cannot be read ({error})"),
                is_transient: is_passing(&error),
                unreadable: None,
            })
        })
    }

    /// Moves everything that ran in a folder, or undoes such a move. It continues if the caller disconnects.
    ///
    /// # Errors
    /// When a conversation is busy, a file exists at a target, or a write fails; when the move to undo is no longer known or was
    /// undone, or a conversation was moved since. Then nothing is moved.
    pub async fn move_tree(
        self: &Arc<Self>,
        target: TreeMoveRequest,
        request: Option<CallKey>,
    ) -> Result<Answer, ConversationError> {
        let (registry, key) = (Arc::clone(self), request.clone());
        let call = move || async move {
            let tasks = registry.tasks.clone();
            let work = async move {
                let _turn = registry.tree_move_lock.lock().await;
                if let Some(answer) = registry.recorded_tree_answer(key.as_ref()).await? {
                    return Ok(answer);
                }
                registry.undo_interrupted_tree_moves().await?;
                registry.plan_and_move_tree(&target, key).await
            };
            Answer::from_value(&tasks.spawn(work).await??)
        };
        self.run_idempotent(None, request, call).await
    }

    /// The answer of an earlier call with this key, from the record of its move: after a kill, the store may not have it.
    async fn recorded_tree_answer(
        &self,
        request: Option<&CallKey>,
    ) -> Result<Option<TreeMoveAnswer>, ConversationError> {
        let Some(request) = request else { return Ok(None) };
        let moves = self.recorded_tree_moves().await?.into_iter();
        let mut moves = moves.filter(|moves| moves.state != TreeMoveState::Underway);
        let same = moves.find(|moves| {
            moves
                .description
                .asked
                .as_ref()
                .is_some_and(|one| one.id == request.id)
        });
        match same {
            Some(moves) if moves.description.asked.as_ref() != Some(request) => {
                Err(request.content_conflict())
            }
            Some(moves) => Ok(moves.answer),
            None => Ok(None),
        }
    }

    /// Undoes the moves of folders that were interrupted, at a start. The files that belong to no conversation must be settled
    /// before.
    pub(super) async fn settle_tree_moves(self: &Arc<Self>) {
        if self.services.store.status().is_ephemeral {
            return;
        }
        // A panic is in the log, and the next start repeats this.
        let _swept = self
            .services
            .blocking(|services| TreeMove::settle_unreadable(&services.data_folder))
            .await;
        if let Err(error) = self.undo_interrupted_tree_moves().await {
            tracing::error!(%error, "an interrupted move of a folder could not be undone; the next move of a folder and the next start try again");
        }
        for known in self.recorded_tree_moves().await.unwrap_or_default() {
            if known.state != TreeMoveState::Underway && is_undo_expired(&known) {
                known.delete_record();
            }
        }
    }

    async fn recorded_tree_moves(&self) -> Result<Vec<TreeMove>, ConversationError> {
        let known = self
            .services
            .blocking(|services| TreeMove::read_all(&services.data_folder));
        record_result(known.await)
    }

    /// Undoes interrupted moves of folders.
    async fn undo_interrupted_tree_moves(self: &Arc<Self>) -> Result<(), ConversationError> {
        for known in self.recorded_tree_moves().await? {
            if known.state == TreeMoveState::Underway {
                tracing::info!(id = %known.id, "undoing an interrupted move of a folder");
                let back = self.undo_tree_steps(known, None).await;
                back.map_err(|why| {
                    ConversationError::Busy(format!(
                        "an interrupted move of a folder must be undone first, and that failed: {why}"
                    ))
                })?;
            }
        }
        Ok(())
    }

    async fn plan_request(
        &self,
        target: &TreeMoveRequest,
    ) -> Result<(Tree, TreeMovePlan), ConversationError> {
        let services = Arc::clone(&self.services);
        match target {
            TreeMoveRequest::Move(tree) => {
                let listed = self.list_all_transcripts().await?;
                let tree = tree.clone();
                let work = move || Ok((tree.clone(), plan(&services, &tree, &listed)?));
                self.track_work("transcript/move", None).run_blocking(work).await
            }
            TreeMoveRequest::Undo(id) => {
                let id = *id;
                let work = move || plan_undo(&services, id);
                self.track_work("transcript/undo", None).run_blocking(work).await
            }
        }
    }

    /// Locks the creation of conversations, for a call that makes one of transcripts.
    ///
    /// # Errors
    /// [`ConversationError::Busy`] while a folder is moved: the transcripts may be moved with it.
    pub(super) async fn lock_for_new_conversation(&self) -> Result<MutexGuard<'_, ()>, ConversationError> {
        let turn = self.creation_lock.lock().await;
        match self.tree_move_lock.try_lock() {
            Ok(_) => Ok(turn),
            Err(_) => {
                let why = "a folder and its transcripts are being moved; try again when the move is done";
                Err(ConversationError::Busy(why.to_owned()))
            }
        }
    }

    /// Pauses the conversations of a request, and moves them and the other files.
    async fn plan_and_move_tree(
        self: &Arc<Self>,
        target: &TreeMoveRequest,
        request: Option<CallKey>,
    ) -> Result<TreeMoveAnswer, ConversationError> {
        // Waits for a running adoption or import to commit. Later ones are refused.
        drop(self.creation_lock.lock().await);
        let mut paused = PausedConversations::new(self);
        let result = self.pause_and_move_tree(target, request, &mut paused).await;
        paused.resume_conversations().await;
        result
    }

    async fn pause_and_move_tree(
        self: &Arc<Self>,
        target: &TreeMoveRequest,
        request: Option<CallKey>,
        held: &mut PausedConversations,
    ) -> Result<TreeMoveAnswer, ConversationError> {
        let (mut tree, mut planned) = self.plan_request(target).await?;
        loop {
            let missing = held.not_paused(planned.parts.iter().map(|part| part.conversation_id));
            if missing.is_empty() {
                break;
            }
            for id in missing {
                let paused = held.pause(id).await;
                paused.map_err(|error| with_conversation(id, error))?;
            }
            // Planned again, because the conversations may have changed until they were paused.
            (tree, planned) = self.plan_request(target).await?;
        }
        if planned.parts.is_empty() && planned.unowned_steps.is_empty() {
            return Ok(planned.answer);
        }
        let mut answer = planned.answer;
        let files = answer.plan.iter().filter(|one| one.kind != MovedKind::Metadata);
        answer.moved = files.count() as u64;
        let description = TreeMoveDescription {
            tree,
            parts: planned.parts,
            undoes: match target {
                TreeMoveRequest::Move { .. } => None,
                TreeMoveRequest::Undo(id) => Some(*id),
            },
            asked: request,
            number: 0,
        };
        self.move_paused_tree(description, planned.unowned_steps, planned.neighbours, answer)
            .await
    }

    /// Carries out a planned move while all its conversations are paused.
    async fn move_paused_tree(
        self: &Arc<Self>,
        description: TreeMoveDescription,
        steps: Vec<MoveStep>,
        neighbours: SharedRemainingForks,
        mut answer: TreeMoveAnswer,
    ) -> Result<TreeMoveAnswer, ConversationError> {
        let (parts, undoes) = (description.parts.clone(), description.undoes);
        let work = self.track_work(
            match undoes {
                Some(_) => "transcript/undo",
                None => "transcript/move",
            },
            None,
        );
        let begin = self
            .services
            .blocking(|services| TreeMove::begin(&services.data_folder, description));
        let mut known = record_result(begin.await)?;
        let moved = async {
            for part in parts {
                let (id, destination) = (part.conversation_id, Destination::Tree(part.forth));
                self.move_conversation(id, destination, undoes.is_some(), &neighbours, work.progress())
                    .await
                    .map_err(|error| with_conversation(id, error))?;
            }
            if steps.is_empty() {
                return Ok(None);
            }
            // The files that belong to no conversation. They move back unless the returned move is committed.
            let (owner, progress) = (MoveOwner::Tree(known.id), work.progress());
            let run = move |services: &Arc<_>| moving::run_move(services, &owner, steps, &progress);
            self.services.blocking(run).await?.map(Some)
        };
        let steps = match moved.await {
            Ok(steps) => steps,
            Err(error) => return Err(with_undo_failure(self.undo_tree_steps(known, None).await, error)),
        };
        answer.undo_id = undoes.is_none().then(|| known.id.to_string());
        let recorded = answer.clone();
        let writing = tokio::task::spawn_blocking(move || {
            let result = known.finish(recorded);
            (known, result)
        });
        let (known, result) = writing.await?;
        if let Err(error) = result {
            return Err(with_undo_failure(
                self.undo_tree_steps(known, steps).await,
                record_error(&error),
            ));
        }
        if let Some(steps) = steps {
            // Files that could not be deleted are in the log.
            let _kept = tokio::task::spawn_blocking(move || steps.commit()).await;
        }
        Ok(answer)
    }

    /// Moves one conversation, or moves it back.
    async fn move_conversation(
        self: &Arc<Self>,
        id: ConversationId,
        destination: Destination,
        is_undo: bool,
        neighbours: &SharedRemainingForks,
        progress: Arc<Progress>,
    ) -> Result<(), ConversationError> {
        let record = self.record(id)?;
        let to = destination.new_cwd(&record);
        let undoes = is_undo && has_moved_from(&to, &self.services.store.lineage_all(id)?);
        let request = MoveRequest {
            destination,
            undoes,
            neighbours: neighbours.clone(),
            progress,
        };
        self.ask(id, Call::Move(request)).await.map(drop)
    }

    /// Moves everything back that was moved, or returns what could not be moved back. The next move of a folder and the next
    /// start try that again.
    async fn undo_tree_steps(
        self: &Arc<Self>,
        mut tree_move: TreeMove,
        rest: Option<RunningMove>,
    ) -> Result<(), String> {
        let mut failures = Vec::new();
        let moved_back = self.services.blocking(move |services| {
            // The record may say that the move is done although that could not be synced.
            let written = match tree_move.answer {
                Some(_) => tree_move.record_state(TreeMoveState::Underway),
                None => Ok(()),
            };
            let name = TreeMove::intent_name(tree_move.id);
            let is_back =
                rest.is_none_or(RunningMove::undo) && files::undo_unrecorded(&services.data_folder, &name);
            (tree_move, written, is_back)
        });
        let (tree_move, written, is_back) = moved_back.await.map_err(|error| error.to_string())?;
        if let Err(error) = written {
            failures.push(format!("the undo cannot be recorded ({error})"));
        }
        if !is_back {
            failures.push("some files could not be moved back; the log of the daemon lists them".to_owned());
        }
        // With a token of its own, so that the undo also runs while the daemon stops.
        let guard = self
            .services
            .running_work
            .track("transcript/undo", None, CancellationToken::new());
        let neighbours = SharedRemainingForks::default();
        for part in tree_move.description.parts.iter().rev() {
            let id = part.conversation_id;
            let back = match self.destination_back(part) {
                Ok(None) => continue,
                Ok(Some(back)) => {
                    self.move_conversation(id, back, true, &neighbours, guard.progress())
                        .await
                }
                Err(error) => Err(error),
            };
            if let Err(error) = back {
                tracing::error!(conversation = %id, %error, "could not undo the move of a conversation");
                failures.push(format!("conversation {id}: {error}"));
            }
        }
        if !failures.is_empty() {
            return Err(failures.join(", "));
        }
        tree_move.delete_record();
        Ok(())
    }

    /// The destination that moves a conversation back; none if it is already there or no longer exists.
    fn destination_back(&self, part: &MovedConversation) -> Result<Option<Destination>, ConversationError> {
        let id = part.conversation_id;
        let record = match self.record(id) {
            Ok(record) => record,
            Err(ConversationError::NotFound { .. } | ConversationError::Deleted { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        // The conversation's task may know a later folder than its record, if that could not be written.
        let cwd = self.view(id)?.cwd;
        if cwd != record.cwd && part.back.new_path(&cwd).is_some() {
            return Ok(Some(Destination::Tree(part.back.clone())));
        }
        Ok(part.destination_back(&record))
    }
}

/// A failure, and the result of undoing what had been moved before it.
fn with_undo_failure(undone: Result<(), String>, error: ConversationError) -> ConversationError {
    let Err(failures) = undone else { return error };
    if matches!(error, ConversationError::ShuttingDown) {
        // Nothing failed: the next start undoes the rest.
        return error;
    }
    let why = error.to_string();
    let why = why.trim_end_matches(NOTHING_MOVED);
    ConversationError::StoreFailed(
        format!(
            "{why}; the earlier steps could not all be undone ({failures}); the next move of a folder, or the next start of the \
             daemon, tries again"
        )
        .into(),
    )
}

fn record_result<T>(done: Result<io::Result<T>, JoinError>) -> Result<T, ConversationError> {
    done?.map_err(|error| record_error(&error))
}

fn record_error(error: &io::Error) -> ConversationError {
    ConversationError::StoreFailed(StoreFailure {
        is_transient: is_passing(error),
        ..format!("the move cannot be recorded ({error}){NOTHING_MOVED}").into()
    })
}

/// Adds the conversation to an error.
fn with_conversation(id: ConversationId, error: ConversationError) -> ConversationError {
    let message = |why: &str| {
        let why = why.trim_end_matches(NOTHING_MOVED);
        format!("conversation {id}: {why}{NOTHING_MOVED}")
    };
    match error {
        ConversationError::Busy(why) => ConversationError::BusyConversations {
            what: message(&why),
            conversations: vec![id],
        },
        ConversationError::Conflict(why) => ConversationError::Conflict(message(&why)),
        other => other,
    }
}

/// A move that can be undone, as the answer describes it; none for any other move.
fn undoable_move(tree_move: TreeMove) -> Option<ToldMove> {
    let is_done = tree_move.state == TreeMoveState::Done && tree_move.description.undoes.is_none();
    let at = tree_move
        .changed_at()
        .filter(|_| is_done && !is_undo_expired(&tree_move))?;
    let tree = tree_move.description.tree;
    Some(ToldMove {
        undo_id: tree_move.id.to_string(),
        from: tree.from.into_iter().next()?,
        to: tree.to,
        at: at.try_into().ok()?,
        until: at.checked_add(UNDO_PERIOD)?.try_into().ok()?,
        moved: tree_move.answer.map_or(0, |answer| answer.moved),
        conversations: tree_move.description.parts.len() as u64,
    })
}

fn is_undo_expired(known: &TreeMove) -> bool {
    let age = known.changed_at().map(|at| SystemTime::now().duration_since(at));
    matches!(age, Some(Ok(age)) if age > UNDO_PERIOD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_that_a_stop_cuts_short_is_not_a_failure_of_the_disk() {
        let stuck = || Err("the daemon is stopping".to_owned());
        let error = with_undo_failure(stuck(), ConversationError::ShuttingDown);
        assert!(matches!(error, ConversationError::ShuttingDown), "{error}");
        let error = with_undo_failure(stuck(), ConversationError::Internal);
        assert!(matches!(error, ConversationError::StoreFailed(_)), "{error}");
    }
}
