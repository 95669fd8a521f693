//! Calls that read the history of conversations, or single checkpoints, on a blocking thread.

use std::path::PathBuf;
use std::sync::Arc;

use bridge_protocol::history::{CheckpointAnswer, CheckpointPage, HistoryForm, HistoryPage};
use bridge_protocol::{AgentName, CheckpointId, ConversationId, UpstreamId};
use tokio_util::sync::CancellationToken;

use super::super::backup::advice_on_unreadable;
use super::super::error::{ConversationError, StoreFailure};
use super::super::history::{History, PageStart, TranscriptScope};
use super::super::read_queues::{ReadClass, ReadQueue};
use super::super::running_work::WorkGuard;
use super::super::services::Services;
use super::Registry;
use crate::transcript::checkpoint::CheckpointRef;

impl Registry {
    /// A page of a conversation's checkpoints, newest first.
    ///
    /// # Errors
    /// When `before` is not in its history, or its agent's transcripts cannot be read.
    pub async fn checkpoints(
        &self,
        id: ConversationId,
        before: Option<CheckpointId>,
        limit: usize,
    ) -> Result<CheckpointPage, ConversationError> {
        let (services, is_open) = (Arc::clone(&self.services), self.is_open(id));
        self.run_read_at(
            self.queue_of(Some(id), ReadClass::Quick),
            "conversation/checkpoints",
            Some(id),
            move || history(&services, id, is_open)?.checkpoints(before.as_ref(), limit),
        )
        .await
    }

    /// A page of a conversation's messages, oldest first.
    ///
    /// # Errors
    /// When the cursor is invalid, or its agent's transcripts cannot be read.
    pub async fn history(
        &self,
        id: ConversationId,
        part: PageStart,
        limit: usize,
        form: HistoryForm,
    ) -> Result<HistoryPage, ConversationError> {
        let (services, is_open) = (Arc::clone(&self.services), self.is_open(id));
        let queue = self.queue_of(Some(id), ReadClass::Quick);
        self.run_read_at(queue, "conversation/history", Some(id), move || {
            history(&services, id, is_open)?.page(&part, limit, form)
        })
        .await
    }

    /// A checkpoint with its messages. If a conversation is named, it must have had the checkpoint's session or continue it.
    /// Any other text is a step (`3`, `-1`) or a message id, and is looked up in the conversation's history.
    ///
    /// # Errors
    /// When there is none, or its agent's transcripts cannot be read.
    pub async fn checkpoint(
        &self,
        checkpoint: CheckpointId,
        conversation: Option<ConversationId>,
    ) -> Result<CheckpointAnswer, ConversationError> {
        let services = Arc::clone(&self.services);
        let is_open = conversation.is_some_and(|id| self.is_open(id));
        let named: Option<CheckpointRef> = checkpoint.as_str().parse().ok();
        let queue = match &named {
            Some(named) if conversation.is_none() => {
                let folder = self.folder_of_agent(&AgentName::new(named.agent.as_str()));
                self.services.read_queues.folder_queue(folder, ReadClass::Quick)
            }
            _ => self.queue_of(conversation, ReadClass::Quick),
        };
        self.run_read_at(queue, "checkpoint/get", conversation, move || {
            match (named, conversation) {
                (Some(queue), conversation) => {
                    single_checkpoint(&services, &checkpoint, &queue, conversation)
                }
                (None, Some(id)) => history(&services, id, is_open)?.named_turn(&checkpoint),
                (None, None) => Err(ConversationError::CheckpointNotFound { id: checkpoint }),
            }
        })
        .await
    }

    /// Adds to the error of a call about a conversation how it can continue from its backup, if the disk failed to read its
    /// transcript.
    pub async fn add_backup_advice(
        &self,
        method: &'static str,
        id: ConversationId,
        mut failure: StoreFailure,
    ) -> StoreFailure {
        if let Some(path) = failure.unreadable.clone()
            && let Ok(record) = self.record(id)
        {
            let services = Arc::clone(&self.services);
            let look = move || Ok(advice_on_unreadable(&services, &record, &path));
            if let Ok(Some(advice)) = self.run_read(method, Some(id), look).await {
                failure.text = format!("{}; {advice}", failure.text);
            }
        }
        failure
    }

    /// Reads transcripts on a blocking thread, after waiting for a turn. The read ends some time after its caller disconnects,
    /// and its turn ends with the read.
    ///
    /// # Errors
    /// As [`WorkGuard::run_blocking`] and [`ReadQueue::unless_stalled`].
    pub(super) async fn run_read<T: Send + 'static>(
        &self,
        method: &'static str,
        conversation: Option<ConversationId>,
        read: impl FnOnce() -> Result<T, ConversationError> + Send + 'static,
    ) -> Result<T, ConversationError> {
        let queue = self.queue_of(conversation, ReadClass::Long);
        self.run_read_at(queue, method, conversation, read).await
    }

    /// Runs work that also changes files. Unlike a read, the work is not interrupted when the daemon stops, as long as the stop
    /// waits: the caller must learn what was changed.
    ///
    /// # Errors
    /// Those of the work, [`ConversationError::Internal`] when it panicked, and [`ConversationError::ShuttingDown`] when it was not
    /// begun because the daemon stops.
    pub(super) async fn run_file_change<T: Send + 'static>(
        &self,
        method: &'static str,
        change: impl FnOnce() -> Result<T, ConversationError> + Send + 'static,
    ) -> Result<T, ConversationError> {
        let guard = self
            .services
            .running_work
            .track(method, None, CancellationToken::new());
        let queue = self.services.read_queues.folder_queue(None, ReadClass::Long);
        let change = wait_for_turn(&queue, &guard, change).await?;
        if self.stop.is_cancelled() {
            return Err(ConversationError::ShuttingDown);
        }
        guard.run_blocking(change).await
    }

    /// As [`run_read`](Self::run_read), with a turn in this queue.
    pub(super) async fn run_read_at<T: Send + 'static>(
        &self,
        queue: Arc<ReadQueue>,
        method: &'static str,
        conversation: Option<ConversationId>,
        read: impl FnOnce() -> Result<T, ConversationError> + Send + 'static,
    ) -> Result<T, ConversationError> {
        let guard = self.track_work(method, conversation);
        let read = wait_for_turn(&queue, &guard, read).await?;
        let progress = guard.progress();
        queue.unless_stalled(&progress, guard.run_blocking(read)).await
    }

    /// Whether the agent has the head of a conversation open: then its prompts are on the agent's branch of the transcript.
    fn is_open(&self, id: ConversationId) -> bool {
        self.salvaged_view(id).is_ok_and(|shown| shown.live)
    }

    /// The queue for reads of a conversation's transcripts; without a conversation, of all transcripts.
    pub(super) fn queue_of(&self, id: Option<ConversationId>, class: ReadClass) -> Arc<ReadQueue> {
        let queues = &self.services.read_queues;
        let shown = id.and_then(|id| self.salvaged_view(id).ok());
        let project = shown.and_then(|shown| Some((self.folder_of_agent(&shown.agent)?, shown.cwd)));
        match project {
            Some((folder, cwd)) => queues.project_queue(folder, cwd, class),
            None => queues.folder_queue(None, class),
        }
    }

    fn folder_of_agent(&self, agent: &AgentName) -> Option<PathBuf> {
        let (folder, _) = self.services.catalog.get(agent)?.listed_transcripts()?;
        Some(folder.to_owned())
    }
}

/// Waits for a turn. Returns the work with its turn, which ends when the work does.
///
/// # Errors
/// As [`ReadQueue::acquire`].
async fn wait_for_turn<T>(
    queue: &Arc<ReadQueue>,
    guard: &WorkGuard,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<impl FnOnce() -> T + Send + 'static, ConversationError> {
    let turn = queue.acquire(guard.progress()).await?;
    Ok(move || {
        let _turn = turn;
        work()
    })
}

fn history(services: &Services, id: ConversationId, is_open: bool) -> Result<History, ConversationError> {
    let Some(found) = services.store.salvaged_conversation(id)? else {
        return Ok(History::default());
    };
    let record = found.into_record()?;
    match is_open {
        true => History::current_of_open_session(services, &record),
        false => History::current(services, &record, TranscriptScope::WithBackups),
    }
}

fn single_checkpoint(
    services: &Services,
    id: &CheckpointId,
    place: &CheckpointRef,
    conversation: Option<ConversationId>,
) -> Result<CheckpointAnswer, ConversationError> {
    let not_found = || ConversationError::CheckpointNotFound { id: id.clone() };
    let agent = services.catalog.get(&AgentName::new(place.agent.as_str()));
    let root = agent.ok_or_else(not_found)?.transcript_root();
    let upstream_id = UpstreamId::new(place.upstream_id.as_str());
    let owners = services.store.owners(&upstream_id, Some(&root))?;
    let owner = match (conversation, owners.as_slice()) {
        (Some(named), owners) if owners.contains(&named) => Some(named),
        // A conversation may continue a session by reference without owning it.
        (Some(named), _) => {
            let has_it =
                history(services, named, false).is_ok_and(|history| history.turn_number_of(place).is_some());
            Some(named).filter(|_| has_it).ok_or_else(not_found)?.into()
        }
        (None, [only]) => Some(*only),
        (None, _) => None,
    };
    // If the whole history cannot be read, the turn has no number, but the checkpoint may still exist.
    let current = owner.and_then(|owner| history(services, owner, false).ok());
    let step = current.as_ref().and_then(|history| history.turn_number_of(place));
    if let (Some(current), Some(step)) = (current, step)
        && current.checkpoint_id_of_turn(step).as_ref() == Some(id)
    {
        return current.turn_answer(id, Some(step), None);
    }
    History::ending_at_checkpoint(services, id, place, TranscriptScope::WithBackups)?
        .turn_answer(id, None, step)
}
