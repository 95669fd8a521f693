//! Having everything of a folder go to another one: the conversations that ran there, one after the other, and then the
//! transcripts that are nobody's.
//!
//! Owns the order, and that all of it goes or nothing does: what has gone before something cannot comes back, and a start ends
//! what a kill has left half way. How the files of one conversation move is that conversation's.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::{ConversationState, MovedKind, PlannedMove};
use bridge_protocol::transcript::TreeMoveAnswer;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::super::answer::{Answer, Request};
use super::super::climbing::{check_folder, store_error};
use super::super::destination::{Destination, Tree};
use super::super::effect::Call;
use super::super::error::ConversationError;
use super::super::folder::{usable_folder, wanted_folder};
use super::super::moving::{self, move_error};
use super::super::services::Services;
use super::super::trees::{Begun, Part, State, TreeMove};
use super::super::work::Progress;
use super::Registry;
use crate::chain::{Undoing, undoing};
use crate::store::ConversationRecord;
use crate::transcript::fields::Fields;
use crate::transcript::locate::{own_folder, project_folder};
use crate::transcript::moving::{self as files, Kind, Moving, Neighbours, SessionPlan, Step};
use crate::transcript::shelf::ShelfEntry;

/// For how long such a move can be undone: as long as the files are kept that it took from their places.
const KNOWN_FOR: Duration = files::KEPT_FOR;

/// How much of a transcript is looked at for the folder that it began in, in bytes.
const BEGINNING_BYTES: u64 = 1024 * 1024;

/// What a move of a folder does.
#[derive(Default)]
struct Planned {
    /// The conversations that it takes along.
    parts: Vec<Part>,
    /// The files that are no conversation's.
    rest: Vec<Step>,
    /// All of it, as it is told.
    told: Vec<PlannedMove>,
    left_out: Vec<String>,
}

/// Which transcripts there are, each root's.
type Shelved = Vec<(PathBuf, Vec<Arc<ShelfEntry>>)>;

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
        let method = match undoes {
            Some(_) => "transcript/undo",
            None => "transcript/move",
        };
        let mut answer = TreeMoveAnswer {
            plan: planned.told,
            left_out: planned.left_out,
            ..TreeMoveAnswer::default()
        };
        if planned.parts.is_empty() && planned.rest.is_empty() && undoes.is_none() {
            return Ok(answer);
        }
        for part in &planned.parts {
            self.check_idle(part.conversation_id)?;
        }
        let begun = self.begun(method, None);
        let data = self.services.data.clone();
        let begin = Begun {
            tree,
            parts: planned.parts.clone(),
            undoes,
        };
        let begin = move || TreeMove::begin(&data, begin);
        let mut known = written(tokio::task::spawn_blocking(begin).await)?;
        for part in planned.parts {
            let (id, destination) = (part.conversation_id, Destination::Tree(part.forth));
            let gone = self.move_one(id, destination, undoes.is_some(), begun.progress());
            if let Err(error) = gone.await {
                self.take_back(known, None).await;
                return Err(of_conversation(id, error));
            }
        }
        let rest = self.move_rest(known.id, planned.rest, begun.progress()).await;
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
        answer.moved = answer
            .plan
            .iter()
            .filter(|one| one.kind != MovedKind::Metadata)
            .count() as u64;
        match undoes {
            Some(undone) => {
                self.note_undone(undone).await;
                known.forget();
            }
            None => answer.undo_id = Some(known.id.to_string()),
        }
        Ok(answer)
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

    /// Checks that nothing goes on in a conversation.
    fn check_idle(&self, id: ConversationId) -> Result<(), ConversationError> {
        let view = self.view(id)?;
        let goes_on = matches!(
            view.state,
            ConversationState::Prompting
                | ConversationState::Awaiting
                | ConversationState::Cancelling
                | ConversationState::Moving
        );
        match goes_on {
            true => Err(ConversationError::BusyConversations {
                what: format!("conversation {id} is at work; wait for the end of its turn, or cancel it"),
                conversations: vec![id],
            }),
            false => Ok(()),
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

/// What a move of this folder does. Blocks.
fn plan(
    services: &Services,
    tree: &Tree,
    with_settings: bool,
    shelved: &Shelved,
) -> Result<Planned, ConversationError> {
    let destination = Destination::Tree(tree.clone());
    let mut planned = Planned::default();
    let mut held = HashSet::new();
    for found in services.store.recent(None) {
        let (_, record) = found.map_err(|error| store_error(&error))?;
        held.extend(sessions(&record));
        if !destination.is_here(&record) {
            planned.take(services, &record, Part::of(tree, &record))?;
        }
    }
    let leaving = leaving(tree, shelved, &held, &mut planned.left_out);
    let mut neighbours = Neighbours::of(leaving.iter().map(|(_, path, _)| path.to_path_buf()).collect());
    let mut targets = BTreeSet::new();
    for (root, path, cwd) in &leaving {
        let Some(to) = tree.real_target(cwd) else { continue };
        let folder = own_folder(root, Path::new(&to));
        let session = files::plan(path, &folder, &tree.folders(), &mut neighbours).map_err(move_error)?;
        planned.add(session, &mut targets);
    }
    if with_settings {
        for (root, _) in shelved {
            let (steps, left_out) = files::plan_settings(root, &tree.folders()).map_err(move_error)?;
            planned.add(SessionPlan { steps, left_out }, &mut targets);
        }
    }
    files::check_free(&planned.rest).map_err(move_error)?;
    Ok(planned)
}

/// The sessions that a conversation can be resumed from.
fn sessions(record: &ConversationRecord) -> impl Iterator<Item = String> {
    let links = record.chain.links().iter();
    links.map(|link| link.upstream_id.as_str().to_owned())
}

/// The transcripts that go and are no conversation's, each with the folder of its agent and the one that it began in.
fn leaving<'a>(
    tree: &Tree,
    shelved: &'a Shelved,
    held: &HashSet<String>,
    left_out: &mut Vec<String>,
) -> Vec<(&'a Path, &'a Path, String)> {
    let mut leaving = Vec::new();
    let prefixes: Vec<String> = tree
        .from
        .iter()
        .map(|from| project_folder(Path::new(from)))
        .collect();
    for (root, entries) in shelved {
        for entry in entries {
            if held.contains(&entry.upstream_id) {
                continue;
            }
            let folder = entry.path.parent().and_then(Path::file_name).unwrap_or_default();
            let folder = folder.to_string_lossy();
            let began = began_in(tree, entry, &folder).or_else(|| {
                // Of a long path the name of the folder is cut.
                let may_be = prefixes
                    .iter()
                    .any(|prefix| folder.starts_with(&prefix[..prefix.len().min(200)]));
                let first = first_folder(&entry.path).filter(|_| may_be)?;
                is_of(tree, &first, &folder).then_some(first)
            });
            match began {
                Some(cwd) => leaving.push((root.as_path(), &*entry.path, cwd)),
                None if tree.target(&entry.cwd).is_some() => left_out.push(format!(
                    "{} ended in {}, but lies with the sessions of another folder, and stays",
                    entry.path.display(),
                    entry.cwd
                )),
                None => {}
            }
        }
    }
    leaving
}

/// The folder below the tree in which a session began, as far as the one that it ended in tells: that one or one above it.
fn began_in(tree: &Tree, entry: &ShelfEntry, folder: &str) -> Option<String> {
    let mut above = Path::new(&entry.cwd).ancestors().filter_map(Path::to_str);
    above.find(|cwd| is_of(tree, cwd, folder)).map(str::to_owned)
}

/// Whether agents keep in this folder what began in that one below the tree.
fn is_of(tree: &Tree, cwd: &str, folder: &str) -> bool {
    tree.target(cwd).is_some() && project_folder(Path::new(cwd)) == folder
}

/// The folder that the first record of a transcript names.
fn first_folder(path: &Path) -> Option<String> {
    let reader = BufReader::new(File::open(path).ok()?.take(BEGINNING_BYTES));
    let mut lines = reader.split(b'\n').map_while(Result::ok);
    lines.find_map(|line| Fields::parse(std::str::from_utf8(&line).ok()?)?.text("cwd"))
}

/// What taking a move back does, and where that leads. Blocks.
fn plan_back(services: &Services, id: Uuid) -> Result<(Tree, Planned), ConversationError> {
    let known = TreeMove::read(&services.data, id).map_err(|error| store_failed(&error))?;
    let known = known.filter(|known| known.begun.undoes.is_none());
    let known = known.ok_or_else(|| ConversationError::NotFound {
        what: format!("there is no move \"{id}\" that could be undone; they are known for 30 days"),
    })?;
    if known.state == State::Undone {
        return Err(ConversationError::Conflict(format!(
            "the move {id} was undone already"
        )));
    }
    let named = known.begun.tree.from.first().map_or("/", String::as_str);
    check_folder(named)?;
    let back = known.begun.tree.back_to(named);
    let mut planned = Planned::default();
    for part in &known.begun.parts {
        let Ok(Some(record)) = services.store.conversation(part.conversation_id) else {
            continue;
        };
        if record.deleted_at.is_some() || part.is_back(&record) {
            continue;
        }
        if part.way_back(&record).is_none() {
            return Err(ConversationError::Conflict(format!(
                "conversation {} has gone to {} since; have it come back first",
                record.id, record.cwd
            )));
        }
        planned.take(services, &record, part.reversed())?;
    }
    plan_rest_back(services, &known, &back, &mut planned)?;
    Ok((back, planned))
}

/// The files that were no conversation's when they went, back to where they were.
fn plan_rest_back(
    services: &Services,
    known: &TreeMove,
    back: &Tree,
    planned: &mut Planned,
) -> Result<(), ConversationError> {
    let went = files::finished(&services.data, &TreeMove::name(known.id)).map_err(move_error)?;
    let Some(went) = went else { return Ok(()) };
    let mut held = HashSet::new();
    for found in services.store.recent(None) {
        let (_, record) = found.map_err(|error| store_error(&error))?;
        held.extend(sessions(&record));
    }
    let is_there = |step: &&Step| step.to.exists();
    let transcripts = went.steps.iter().filter(|step| step.kind == Kind::Transcript);
    let mut neighbours = Neighbours::of(transcripts.clone().map(|step| step.to.clone()).collect());
    let (mut targets, first) = (BTreeSet::new(), planned.rest.len());
    for step in transcripts.filter(is_there) {
        if held.contains(&step.session) {
            planned.left_out.push(format!(
                "the session {} is a conversation's by now, and stays",
                step.session
            ));
            continue;
        }
        let folder = step.from.parent().unwrap_or(Path::new("/"));
        let session = files::plan(&step.to, folder, &back.folders(), &mut neighbours).map_err(move_error)?;
        planned.add(session, &mut targets);
    }
    let settings = went.steps.iter().filter(|step| step.kind == Kind::Settings);
    let settings = settings.filter(is_there).cloned().map(|step| Step {
        folders: step
            .folders
            .iter()
            .map(|(from, to)| (to.clone(), from.clone()))
            .collect(),
        ..step
    });
    let steps = settings.collect();
    planned.add(
        SessionPlan {
            steps,
            left_out: Vec::new(),
        },
        &mut targets,
    );
    went.restore(&mut planned.rest[first..]);
    files::check_free(&planned.rest).map_err(move_error)
}

impl Planned {
    /// Has a conversation go along, unless nobody knows how its agent keeps its sessions.
    fn take(
        &mut self,
        services: &Services,
        record: &ConversationRecord,
        part: Part,
    ) -> Result<(), ConversationError> {
        match moving::dry_run(services, record, &Destination::Tree(part.forth.clone())) {
            Ok(answer) => {
                self.told.extend(answer.plan);
                self.left_out.extend(answer.left_out);
                self.parts.push(part);
                Ok(())
            }
            Err(ConversationError::Unsupported(why) | ConversationError::NotFound { what: why }) => {
                self.left_out
                    .push(format!("conversation {} stays: {why}", record.id));
                Ok(())
            }
            Err(error) => Err(of_conversation(record.id, error)),
        }
    }

    /// Has files go along that are no conversation's.
    fn add(&mut self, session: SessionPlan, targets: &mut BTreeSet<PathBuf>) {
        for step in session.steps {
            // What one session borrows from another goes once.
            if targets.insert(step.to.clone()) {
                self.told.push(moving::told_step(&step));
                self.rest.push(step);
            }
        }
        self.left_out.extend(session.left_out);
    }
}
