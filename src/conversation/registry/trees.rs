//! Having everything of a folder go to another one: the conversations that ran there, one after the other, and then the
//! transcripts that are nobody's.
//!
//! Owns the order, and that all of it goes or nothing does: what has gone before something cannot comes back, and a start ends
//! what a kill has left half way. How the files of one conversation move is that conversation's.

mod planning;

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::MovedKind;
use bridge_protocol::transcript::TreeMoveAnswer;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::super::answer::{Answer, Request};
use super::super::climbing::store_error;
use super::super::destination::{Destination, Tree};
use super::super::effect::Call;
use super::super::error::ConversationError;
use super::super::folder::{usable_folder, wanted_folder};
use super::super::moving;
use super::super::trees::{Begun, Part, State, TreeMove};
use super::super::work::Progress;
use super::Registry;
use crate::chain::{Undoing, undoing};
use crate::transcript::moving::{self as files, Moving, Step};
use planning::{Planned, plan, plan_back};

/// After what time a conversation that could not be told is told again.
const RELEASE_AGAIN: Duration = Duration::from_millis(20);

/// For how long such a move can be undone: as long as the files are kept that it took from their places.
const KNOWN_FOR: Duration = files::KEPT_FOR;

/// The move of the folder `from` to the folder `to`, which is there.
///
/// # Errors
/// [`ConversationError::InvalidCwd`] and [`ConversationError::InvalidParams`] for folders that cannot be meant.
pub fn tree(from: &str, to: &str) -> Result<Tree, ConversationError> {
    let (from, to) = (wanted_folder(from)?, usable_folder(to)?);
    let real = fs::canonicalize(&to)
        .ok()
        .and_then(|real| real.into_os_string().into_string().ok());
    let real = real.ok_or_else(|| {
        ConversationError::InvalidCwd(format!(
            "the path behind {to} is not UTF-8 and cannot be sent to agents"
        ))
    })?;
    if from == to || from == real {
        return Err(ConversationError::InvalidParams(format!(
            "{from} is where it is already; name the folder that it was, and the one that it is now"
        )));
    }
    for (inner, outer) in [(&from, &to), (&from, &real), (&to, &from), (&real, &from)] {
        if Path::new(inner).starts_with(outer) {
            return Err(ConversationError::InvalidParams(format!(
                "{inner} lies in {outer}, and what ran in the one cannot be told from what ran in the other; move \
                 conversations one by one, with conversation/move"
            )));
        }
    }
    let mut known = vec![from.clone()];
    // A link that was left at the old place leads to the new one.
    known.extend(without_links(&from).filter(|other| *other != from && !Path::new(other).starts_with(&real)));
    Ok(Tree {
        from: known,
        to,
        real,
    })
}

/// A path without links, as far as what it names is still there.
fn without_links(path: &str) -> Option<String> {
    let path = Path::new(path);
    let there = path
        .ancestors()
        .find_map(|part| Some((part, fs::canonicalize(part).ok()?)));
    let (part, real) = there?;
    let rest = path.strip_prefix(part).ok()?;
    let whole = if rest.as_os_str().is_empty() {
        real
    } else {
        real.join(rest)
    };
    whole.into_os_string().into_string().ok()
}

impl Registry {
    /// What a move of a folder would do.
    ///
    /// # Errors
    /// As for the move.
    pub async fn plan_tree(
        &self,
        tree: Tree,
        with_settings: bool,
    ) -> Result<TreeMoveAnswer, ConversationError> {
        let shelved = self.movable_transcripts().await?;
        let services = Arc::clone(&self.services);
        let work = move || plan(&services, &tree, with_settings, &shelved);
        let planned = self.begun("transcript/move", None).reading(work).await?;
        Ok(TreeMoveAnswer {
            plan: planned.told,
            left_out: planned.left_out,
            ..TreeMoveAnswer::default()
        })
    }

    /// Moves all that ran in a folder. It goes on when the caller leaves.
    ///
    /// # Errors
    /// When a conversation is busy, something lies where a file goes, or it cannot be written; nothing has moved then.
    pub async fn move_tree(
        self: &Arc<Self>,
        tree: Tree,
        with_settings: bool,
        request: Option<Request>,
    ) -> Result<Answer, ConversationError> {
        let (registry, tasks) = (Arc::clone(self), self.tasks.clone());
        let call = move || {
            let work = async move {
                let _turn = registry.moving_trees.lock().await;
                let shelved = registry.movable_transcripts().await?;
                let (services, planned_tree) = (Arc::clone(&registry.services), tree.clone());
                let plan = move || plan(&services, &planned_tree, with_settings, &shelved);
                let planned = registry.begun("transcript/move", None).reading(plan).await?;
                registry.carry_tree(tree, planned, None).await
            };
            going_on(tasks, work)
        };
        self.once(None, request, call).await
    }

    /// Takes a move of a folder back.
    ///
    /// # Errors
    /// When it is not known any more or was undone, a conversation is busy or has gone elsewhere since, and as for a move.
    pub async fn undo_tree(
        self: &Arc<Self>,
        id: Uuid,
        request: Option<Request>,
    ) -> Result<Answer, ConversationError> {
        let (registry, tasks) = (Arc::clone(self), self.tasks.clone());
        let call = move || {
            let work = async move {
                let _turn = registry.moving_trees.lock().await;
                let services = Arc::clone(&registry.services);
                let plan = move || plan_back(&services, id);
                let (tree, planned) = registry.begun("transcript/undo", None).reading(plan).await?;
                registry.carry_tree(tree, planned, Some(id)).await
            };
            going_on(tasks, work)
        };
        self.once(None, request, call).await
    }

    /// Ends the moves of folders that a daemon before this one did not bring to their end: what has gone comes back. That of
    /// files that are no conversation's is settled by then.
    pub async fn settle_trees(self: &Arc<Self>) {
        let services = Arc::clone(&self.services);
        if services.store.status().is_ephemeral {
            return;
        }
        let known = tokio::task::spawn_blocking(move || TreeMove::all(&services.data)).await;
        for known in known.unwrap_or_default() {
            match (known.state, known.begun.undoes) {
                (State::Underway, _) => {
                    tracing::info!(id = %known.id, "a move of a folder that was cut short is taken back");
                    self.take_back(known, None).await;
                }
                (_, Some(undone)) => {
                    self.note_undone(undone).await;
                    known.forget();
                }
                _ if is_old(&known) => known.forget(),
                _ => {}
            }
        }
    }

    /// Moves what was planned.
    async fn carry_tree(
        self: &Arc<Self>,
        tree: Tree,
        planned: Planned,
        undoes: Option<Uuid>,
    ) -> Result<TreeMoveAnswer, ConversationError> {
        let mut answer = TreeMoveAnswer {
            plan: planned.told,
            left_out: planned.left_out,
            ..TreeMoveAnswer::default()
        };
        if planned.parts.is_empty() && planned.rest.is_empty() && undoes.is_none() {
            return Ok(answer);
        }
        let held = self
            .hold(planned.parts.iter().map(|part| part.conversation_id))
            .await?;
        let carried = self.carry_held(tree, planned.parts, planned.rest, undoes).await;
        held.release().await;
        let id = carried?;
        let files = answer.plan.iter().filter(|one| one.kind != MovedKind::Metadata);
        answer.moved = files.count() as u64;
        answer.undo_id = id.map(|id| id.to_string());
        Ok(answer)
    }

    /// The same, while none of the conversations takes anything on. Gives what undoes it.
    async fn carry_held(
        self: &Arc<Self>,
        tree: Tree,
        parts: Vec<Part>,
        rest: Vec<Step>,
        undoes: Option<Uuid>,
    ) -> Result<Option<Uuid>, ConversationError> {
        let method = match undoes {
            Some(_) => "transcript/undo",
            None => "transcript/move",
        };
        let begun = self.begun(method, None);
        let data = self.services.data.clone();
        let begin = Begun {
            tree,
            parts: parts.clone(),
            undoes,
        };
        let begin = move || TreeMove::begin(&data, begin);
        let mut known = written(tokio::task::spawn_blocking(begin).await)?;
        for part in parts {
            let (id, destination) = (part.conversation_id, Destination::Tree(part.forth));
            let gone = self.move_one(id, destination, undoes.is_some(), begun.progress());
            if let Err(error) = gone.await {
                self.take_back(known, None).await;
                return Err(of_conversation(id, error));
            }
        }
        let rest = self.move_rest(known.id, rest, begun.progress()).await;
        let mut rest = match rest {
            Ok(rest) => rest,
            Err(error) => {
                self.take_back(known, None).await;
                return Err(error);
            }
        };
        let noting = tokio::task::spawn_blocking(move || {
            let noted = known.note(State::Done);
            (known, noted)
        });
        let (known, noted) = noting.await.map_err(|_| ConversationError::Lost)?;
        if let Err(error) = noted {
            self.take_back(known, rest.take()).await;
            return Err(store_failed(&error));
        }
        if let Some(rest) = rest {
            let keeping = tokio::task::spawn_blocking(move || rest.keep());
            if let Ok(Err(error)) = keeping.await {
                tracing::warn!(%error, "the end of a move could not be noted; the next start does");
            }
        }
        let Some(undone) = undoes else {
            return Ok(Some(known.id));
        };
        self.note_undone(undone).await;
        known.forget();
        Ok(None)
    }

    /// Has conversations take nothing more on.
    async fn hold(
        self: &Arc<Self>,
        ids: impl Iterator<Item = ConversationId>,
    ) -> Result<Held, ConversationError> {
        let mut held = Held {
            registry: Arc::clone(self),
            ids: Vec::new(),
        };
        for id in ids {
            let answer = self.call(id, Call::Hold, None)?.await;
            if let Err(error) = answer.unwrap_or(Err(ConversationError::Lost)) {
                held.release().await;
                return Err(of_conversation(id, error));
            }
            held.ids.push(id);
        }
        Ok(held)
    }

    /// Has one conversation go along, or come back.
    async fn move_one(
        self: &Arc<Self>,
        id: ConversationId,
        destination: Destination,
        takes_back: bool,
        progress: Arc<Progress>,
    ) -> Result<(), ConversationError> {
        let record = self.record(id)?;
        let lineage = self.services.store.lineage_all(id);
        let lineage = lineage.map_err(|error| store_error(&error))?;
        // Where something else was done since this is a move of its own, which an undo takes back in its turn.
        let last = undoing(&lineage, record.chain.links());
        let to = destination.of_conversation(&record);
        let undoes = takes_back && matches!(last, Some(Undoing::Move { cwd }) if cwd == to);
        let call = Call::Move {
            destination,
            undoes,
            progress,
        };
        let answer = self.call(id, call, None)?.await;
        answer.map_err(|_| ConversationError::Lost)?.map(drop)
    }

    /// Moves the files that are no conversation's; they go back unless they are kept.
    async fn move_rest(
        &self,
        id: Uuid,
        steps: Vec<Step>,
        progress: Arc<Progress>,
    ) -> Result<Option<Moving>, ConversationError> {
        if steps.is_empty() {
            return Ok(None);
        }
        let services = Arc::clone(&self.services);
        let work = move || moving::carry_out_tree(&services, id, steps, &progress);
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|_| ConversationError::Lost)?.map(Some)
    }

    /// Has everything come back that has gone. What cannot is tried again at the next start.
    async fn take_back(self: &Arc<Self>, known: TreeMove, rest: Option<Moving>) {
        let mut is_back = true;
        if let Some(rest) = rest {
            is_back = matches!(
                tokio::task::spawn_blocking(move || rest.take_back()).await,
                Ok(true)
            );
        }
        // Also when the daemon is about to stop.
        let begun = self
            .works
            .begin("transcript/undo", None, CancellationToken::new());
        for part in known.begun.parts.iter().rev() {
            let id = part.conversation_id;
            let Some(destination) = self.record(id).ok().and_then(|record| part.way_back(&record)) else {
                continue;
            };
            if let Err(error) = self.move_one(id, destination, true, begun.progress()).await {
                tracing::error!(conversation = %id, %error, "could not be taken back; the next start tries again");
                is_back = false;
            }
        }
        if is_back {
            known.forget();
        }
    }

    async fn note_undone(&self, id: Uuid) {
        let services = Arc::clone(&self.services);
        let note = move || match TreeMove::read(&services.data, id)? {
            Some(mut known) => known.note(State::Undone),
            None => Ok(()),
        };
        if let Ok(Err(error)) = tokio::task::spawn_blocking(note).await {
            tracing::warn!(%id, %error, "that a move was undone could not be noted");
        }
    }
}

/// Conversations that take nothing on, until this is dropped.
struct Held {
    registry: Arc<Registry>,
    ids: Vec<ConversationId>,
}

impl Held {
    async fn release(mut self) {
        let (registry, ids) = (Arc::clone(&self.registry), std::mem::take(&mut self.ids));
        release(&registry, ids).await;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let (registry, ids) = (Arc::clone(&self.registry), std::mem::take(&mut self.ids));
        if !ids.is_empty() {
            // Its task panicked.
            let tasks = registry.tasks.clone();
            tasks.spawn(async move { release(&registry, ids).await });
        }
    }
}

async fn release(registry: &Arc<Registry>, ids: Vec<ConversationId>) {
    for id in ids {
        // One with a full mailbox has others to answer first.
        while let Err(ConversationError::Busy(_)) = match registry.call(id, Call::Release, None) {
            Ok(answer) => answer.await.unwrap_or(Err(ConversationError::Lost)),
            Err(error) => Err(error),
        } {
            tokio::time::sleep(RELEASE_AGAIN).await;
        }
    }
}

/// Work that goes on when its caller leaves.
async fn going_on(
    tasks: TaskTracker,
    work: impl Future<Output = Result<TreeMoveAnswer, ConversationError>> + Send + 'static,
) -> Result<Answer, ConversationError> {
    let answer = tasks.spawn(work).await.map_err(|_| ConversationError::Lost)??;
    Ok(Answer::TreeMoved(Box::new(answer)))
}

fn written<T>(done: Result<io::Result<T>, JoinError>) -> Result<T, ConversationError> {
    done.map_err(|_| ConversationError::Lost)?
        .map_err(|error| store_failed(&error))
}

fn store_failed(error: &io::Error) -> ConversationError {
    ConversationError::StoreFailed(
        format!("the move cannot be written down ({error}); nothing was moved").into(),
    )
}

/// The same, with the conversation that it is about.
fn of_conversation(id: ConversationId, error: ConversationError) -> ConversationError {
    let told = |why: &str| {
        let why = why.trim_end_matches("; nothing was moved");
        format!("conversation {id}: {why}; nothing was moved")
    };
    match error {
        ConversationError::Busy(why) => ConversationError::BusyConversations {
            what: told(&why),
            conversations: vec![id],
        },
        ConversationError::Conflict(why) => ConversationError::Conflict(told(&why)),
        other => other,
    }
}

fn is_old(known: &TreeMove) -> bool {
    let age = known.noted_at().map(|at| SystemTime::now().duration_since(at));
    matches!(age, Some(Ok(age)) if age > KNOWN_FOR)
}
