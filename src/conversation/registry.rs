//! Finds or starts the task of a conversation, and answers calls that need no task.
//!
//! Owns the map from conversation id to mailbox, and the closed sessions to which an agent may still write. A task is
//! registered before it runs.

mod adopting;
mod agents;
mod backups;
mod export_import;
mod filter;
mod idempotency;
mod moving;
mod previous_run;
mod queries;
mod reading;
mod repairing;
mod resolving;
#[cfg(test)]
mod tests;
mod transcripts;
mod tree_moves;
mod unclaimed_backups;
mod watching;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bridge_protocol::conversation::{Conversation, SessionInfo, Settings};
use bridge_protocol::link::Fidelity;
use bridge_protocol::method::NewConversation;
use bridge_protocol::transcript::Unwatched;
use bridge_protocol::{ConversationId, ConversationRef, Cursor};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::store::{
    Change, ConversationRecord, LookupError, LostPart, RequestRecord, ResolvedBy, SalvagedRecord,
};

use super::actor::{Actor, Deliver, MAILBOX_CAPACITY, Message, Reply};
use super::answer::{Answer, CallKey, MadeConversation};
use super::closed_sessions::AllClosedSessions;
use super::effect::{Call, IncomingCall};
use super::error::ConversationError;
use super::events::Subscriber;
use super::folder::{normalized_folder, usable_folder};
use super::last_used::LastUsed;
use super::lock::lock;
use super::lost_parts;
use super::naming::{check_namespace, check_setting_name, check_title, normalized_title};
use super::services::{Services, now};
use super::state::{Model, Rules, view_of_record};

#[cfg(test)]
pub(super) use watching::tests::registry as registry_of_tests;

pub use backups::SessionSelector;
pub use filter::Filter;
pub(super) use idempotency::RunningCallGuard;
use idempotency::{Entered, RunningCalls};
pub use transcripts::TranscriptFilter;
use transcripts::TranscriptLists;
pub use tree_moves::TreeMoveRequest;
use watching::SyncQueue;

/// How many searches through all conversations run at once. Each keeps a core busy.
const SEARCHES_AT_ONCE: usize = 1;

/// All conversations.
pub struct Registry {
    services: Arc<Services>,
    live: Mutex<HashMap<ConversationId, Entry>>,
    /// The sessions that conversations have closed. Kept here because they outlive the tasks.
    closed_sessions: AllClosedSessions,
    /// Held by an adoption or an import, from its last check for a conversation that has the session until the commit.
    creation_lock: tokio::sync::Mutex<()>,
    /// Running calls with an idempotency key.
    running_calls: RunningCalls,
    /// Held by each search through all conversations, which limits how many run at once.
    search_permits: Semaphore,
    /// The last scan of each folder of transcripts.
    transcript_lists: Mutex<TranscriptLists>,
    /// The folders of transcripts that cannot be watched.
    unwatched: Mutex<Vec<Unwatched>>,
    /// Transcript changes that are reported after they are synced.
    sync_queue: Arc<SyncQueue>,
    /// Held by a move of a folder. Meanwhile no conversation is made of a transcript, since the file may be moved.
    tree_move_lock: tokio::sync::Mutex<()>,
    /// What `.` means in each folder.
    last_used: Arc<LastUsed>,
    stop: CancellationToken,
    /// How long running turns may continue once the daemon stops, in milliseconds.
    stop_grace_ms: Arc<AtomicU64>,
    tasks: TaskTracker,
}

/// A live conversation.
struct Entry {
    mailbox: mpsc::Sender<Message>,
    published: watch::Receiver<Arc<Conversation>>,
    /// Missing parts without which the conversation cannot continue. If there are any, its task only deletes it.
    essential_lost: Vec<LostPart>,
}

impl Registry {
    /// A registry without live conversations.
    #[must_use]
    pub fn new(services: Arc<Services>) -> Arc<Self> {
        let last_used = match services.store.status().is_ephemeral {
            true => LastUsed::default(),
            false => LastUsed::in_data_folder(&services.data_folder),
        };
        Arc::new(Self {
            services,
            last_used: Arc::new(last_used),
            live: Mutex::default(),
            closed_sessions: AllClosedSessions::default(),
            creation_lock: tokio::sync::Mutex::default(),
            running_calls: RunningCalls::default(),
            search_permits: Semaphore::new(SEARCHES_AT_ONCE),
            transcript_lists: Mutex::default(),
            unwatched: Mutex::default(),
            sync_queue: Arc::default(),
            tree_move_lock: tokio::sync::Mutex::default(),
            stop: CancellationToken::new(),
            stop_grace_ms: Arc::default(),
            tasks: TaskTracker::new(),
        })
    }

    /// The services that the registry shares with the rest of the daemon.
    #[must_use]
    pub fn services(&self) -> &Arc<Services> {
        &self.services
    }

    /// Resolves the name of a conversation to its id.
    ///
    /// # Errors
    /// When there is none, several, or it was deleted.
    pub fn resolve(&self, name: &ConversationRef) -> Result<ConversationId, ConversationError> {
        match self.services.store.resolve(name) {
            Ok(resolved) => Ok(resolved.id),
            Err(LookupError::NotFound) => Err(ConversationError::NotFound {
                what: format!(
                    "no conversation matches \"{name}\"; give its id, the agent's own session id, or at least 6 \
                     characters of either"
                ),
            }),
            Err(LookupError::Ambiguous { candidates, by }) => Err(ConversationError::Ambiguous {
                name: name.to_string(),
                candidates,
                is_whole: by == ResolvedBy::UpstreamId,
            }),
            Err(LookupError::Deleted { id, at }) => Err(ConversationError::Deleted { id, at }),
            Err(LookupError::Store(error)) => Err(error.into()),
        }
    }

    /// Makes a conversation, and opens its session if requested. The conversation is durable before it is announced.
    ///
    /// # Errors
    /// When agent, folder or settings cannot be used, or the change could not be written; [`ConversationError::WithId`] when its
    /// session could not be opened.
    pub async fn create(
        self: &Arc<Self>,
        new: NewConversation,
        request: Option<CallKey>,
    ) -> Result<Answer, ConversationError> {
        let (registry, key) = (Arc::clone(self), request.clone());
        let work = || async move {
            let is_opened = new.open;
            let created = registry.create_record(new, key).await?;
            if !is_opened {
                return Ok(Answer::Conversation(created));
            }
            match registry.ask(created.id, Call::Resume(Fidelity::Text)).await {
                Ok(Answer::Resumed(conversation, _)) => Ok(Answer::Conversation(conversation)),
                Ok(_) => Err(ConversationError::Internal),
                Err(error) => Err(error.with_id("conversationId", &created.id)),
            }
        };
        self.run_idempotent(None, request, work).await
    }

    /// Makes a conversation, or returns the one that an earlier call with the same key made and could not open.
    async fn create_record(
        &self,
        new: NewConversation,
        request: Option<CallKey>,
    ) -> Result<Box<Conversation>, ConversationError> {
        if self.stop.is_cancelled() {
            return Err(ConversationError::ShuttingDown);
        }
        if let Some(request) = &request
            && let Some(earlier) = self.services.store.request(None, &request.id)?
            && let Some(id) = MadeConversation::from_request(&earlier)
        {
            return Ok(Box::new(self.view(id)?));
        }
        let cwd = self.usable_folder(&new.cwd).await;
        let agent = new.agent.unwrap_or_else(|| self.services.catalog.default_agent());
        self.services.agent(&agent)?;
        let cwd = cwd?;
        check_settings(&new.settings)?;
        check_title(&new.title)?;
        check_namespace(&new.namespace)?;
        let at = now();
        let mut record = ConversationRecord::new(ConversationId::mint(), agent, cwd, at);
        record.title = normalized_title(&new.title);
        record.namespace = new.namespace;
        record.settings = new.settings;
        let view = Box::new(view_of_record(&record));
        let request = request.map(|request| match new.open {
            true => RequestRecord {
                error: MadeConversation::to_json(record.id),
                ..request.to_record(None, at)
            },
            false => request.to_answered_record(&Answer::Conversation(view.clone()), at),
        });
        let change = Change {
            conversation: Some(record),
            requests: request.into_iter().collect(),
            ..Change::default()
        };
        self.services.store.commit(change).await?;
        self.services.announce_new(Conversation::clone(&view));
        Ok(view)
    }

    /// Converts the parameter `cwd` to the form that is stored.
    ///
    /// # Errors
    /// As [`usable_folder`] and [`Services::read_at_folder`].
    async fn usable_folder(&self, cwd: &str) -> Result<String, ConversationError> {
        self.services
            .read_at_folder(cwd, |cwd| usable_folder("cwd", cwd))
            .await
    }

    /// Converts the parameter `cwd` to the form in which conversations are looked up.
    ///
    /// # Errors
    /// As [`normalized_folder`] and [`Services::read_at_folder`].
    pub async fn wanted_folder(&self, cwd: Option<&str>) -> Result<Option<String>, ConversationError> {
        let Some(cwd) = cwd else { return Ok(None) };
        let folder = self
            .services
            .read_at_folder(cwd, |cwd| normalized_folder("cwd", cwd));
        folder.await.map(Some)
    }

    /// Puts a call into a conversation's mailbox without waiting, so that calls are admitted in the order in which they arrive.
    ///
    /// # Errors
    /// If the conversation does not exist or its mailbox is full.
    pub fn call(
        self: &Arc<Self>,
        id: ConversationId,
        mut call: Call,
        request: Option<CallKey>,
    ) -> Result<oneshot::Receiver<Result<Answer, ConversationError>>, ConversationError> {
        let title = match &mut call {
            Call::Update(update, _) => {
                check_settings(&update.settings)?;
                update.title.as_mut()
            }
            Call::Fork(fork) => fork.title.as_mut(),
            _ => None,
        };
        if let Some(title) = title {
            check_title(title)?;
            *title = normalized_title(title);
        }
        let entered = request
            .as_ref()
            .map(|request| self.running_calls.enter(Some(id), request, None));
        let running = match entered.transpose()? {
            Some(Entered::New(guard)) => Some(guard),
            // The conversation's task joins a repeated call to the running one.
            Some(Entered::Repeated(_)) | None => None,
        };
        let (reply, answer) = Reply::new(running);
        let incoming = IncomingCall { call, request, reply };
        self.send(id, Message::Call(Box::new(incoming)))?;
        Ok(answer)
    }

    /// Sends a call without an idempotency key, and waits for its answer.
    async fn ask(self: &Arc<Self>, id: ConversationId, call: Call) -> Result<Answer, ConversationError> {
        let answer = self.call(id, call, None)?;
        answer.await.unwrap_or(Err(ConversationError::Internal))
    }

    /// What is known of the session of a conversation.
    ///
    /// # Errors
    /// As [`Registry::call`].
    pub async fn session_info(
        self: &Arc<Self>,
        id: ConversationId,
    ) -> Result<SessionInfo, ConversationError> {
        let (reply, info) = oneshot::channel();
        self.send(id, Message::SessionInfo(reply))?;
        info.await.map_err(|_| ConversationError::Internal)
    }

    /// Adds a subscriber to one conversation.
    ///
    /// # Errors
    /// As [`Registry::call`].
    pub fn subscribe(
        self: &Arc<Self>,
        id: ConversationId,
        subscriber: Box<dyn Subscriber>,
        after: Option<Cursor>,
    ) -> Result<(), ConversationError> {
        self.send(id, Message::Subscribe { subscriber, after })
    }

    /// Puts a message into the mailbox of a conversation, and starts its task first if it does not run. Returns the
    /// message if there is no such conversation or the mailbox is full.
    ///
    /// # Errors
    /// The message itself.
    pub fn deliver(self: &Arc<Self>, id: ConversationId, message: Message) -> Result<(), Message> {
        let mut message = message;
        // Two attempts: if the task ends just now, its mailbox is closed, and a new task takes the message.
        for _ in 0..2 {
            let Ok(mailbox) = self.mailbox(id, &message) else {
                return Err(message);
            };
            match mailbox.try_send(message) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(returned)) => return Err(returned),
                Err(TrySendError::Closed(returned)) => {
                    self.forget(id, &mailbox);
                    message = returned;
                }
            }
        }
        Err(message)
    }

    /// Puts a message into the mailbox of a conversation, which reads it before the calls that follow.
    ///
    /// # Errors
    /// As [`Registry::call`].
    pub fn send(self: &Arc<Self>, id: ConversationId, message: Message) -> Result<(), ConversationError> {
        // Looked up first, so that an unknown id gets its own error and not `Busy`.
        self.mailbox(id, &message)?;
        self.deliver(id, message).map_err(|_| {
            ConversationError::Busy(format!(
                "{MAILBOX_CAPACITY} calls wait for this conversation already; try again later"
            ))
        })
    }

    fn mailbox(
        self: &Arc<Self>,
        id: ConversationId,
        message: &Message,
    ) -> Result<mpsc::Sender<Message>, ConversationError> {
        let is_deletion =
            matches!(message, Message::Call(incoming) if matches!(incoming.call, Call::Delete(_)));
        if let Some(entry) = self.lock().get(&id) {
            // If parts are missing, this task was started by a deletion that failed or still runs.
            return match is_deletion || entry.essential_lost.is_empty() {
                true => Ok(entry.mailbox.clone()),
                false => Err(lost_parts::loss_error(id, &entry.essential_lost)),
            };
        }
        if self.stop.is_cancelled() {
            return Err(ConversationError::ShuttingDown);
        }
        let salvaged = self.salvaged(id)?;
        let essential_lost = match lost_parts::can_continue(&salvaged) {
            true => Vec::new(),
            false if is_deletion => salvaged.lost.clone(),
            false => return Err(lost_parts::loss_error(id, &salvaged.lost)),
        };
        Ok(self.start(self.record_to_start(salvaged), essential_lost))
    }

    /// The record with which a conversation starts. Missing parts are logged.
    fn record_to_start(&self, salvaged: SalvagedRecord) -> ConversationRecord {
        if !salvaged.lost.is_empty() {
            let what = lost_parts::describe_loss(salvaged.record.id, &salvaged.lost);
            tracing::error!("{what}");
        }
        lost_parts::record_without_lost(salvaged)
    }

    /// The whole record of a conversation.
    fn record(&self, id: ConversationId) -> Result<ConversationRecord, ConversationError> {
        let salvaged = self.salvaged(id)?;
        match salvaged.lost.as_slice() {
            [] => Ok(salvaged.record),
            lost => Err(lost_parts::loss_error(id, lost)),
        }
    }

    /// The record of a conversation as far as it can be read.
    fn salvaged(&self, id: ConversationId) -> Result<SalvagedRecord, ConversationError> {
        let salvaged = self.services.store.salvaged_conversation(id)?;
        let salvaged = salvaged.ok_or_else(|| ConversationError::NotFound {
            what: format!("there is no conversation {id}"),
        })?;
        match salvaged.record.deleted_at {
            Some(at) => Err(ConversationError::Deleted { id, at }),
            None => Ok(salvaged),
        }
    }

    /// A function with which one conversation sends to another, so that it need not know the registry.
    fn deliverer(self: &Arc<Self>) -> Deliver {
        let registry = Arc::downgrade(self);
        Box::new(move |id, message| match registry.upgrade() {
            Some(registry) => registry.deliver(id, message),
            None => Err(message),
        })
    }

    /// Starts a conversation's task: registered first, then run.
    fn start(
        self: &Arc<Self>,
        record: ConversationRecord,
        essential_lost: Vec<LostPart>,
    ) -> mpsc::Sender<Message> {
        let id = record.id;
        let entry = self.services.catalog.get(&record.agent);
        let kind = entry.map_or(&crate::agent::kinds::GENERIC, |entry| entry.kind);
        let rules = Rules {
            interrupts: entry.map(|entry| entry.interrupts).unwrap_or_default(),
            ..self.services.rules.clone()
        };
        let model = Model::new(record, kind, rules);
        let (actor, mailbox, published) = Actor::new(
            Arc::clone(&self.services),
            model,
            self.stop.clone(),
            Arc::clone(&self.stop_grace_ms),
            self.deliverer(),
            self.closed_sessions.of(id),
        );
        self.lock().insert(
            id,
            Entry {
                mailbox: mailbox.clone(),
                published,
                essential_lost,
            },
        );
        let registry = Arc::downgrade(self);
        let own_mailbox = mailbox.clone();
        self.tasks.spawn(async move {
            let unread = actor.run().await;
            let Some(registry) = registry.upgrade() else {
                return;
            };
            registry.forget(id, &own_mailbox);
            // Messages that arrived while the task was ending start it again.
            registry.redeliver(id, unread);
        });
        mailbox
    }

    /// Delivers the messages that an ended task did not read.
    fn redeliver(self: &Arc<Self>, id: ConversationId, unread: Vec<Message>) {
        for message in unread {
            if let Err(Message::Call(incoming)) = self.deliver(id, message) {
                let error = match self.stop.is_cancelled() {
                    true => ConversationError::ShuttingDown,
                    false => ConversationError::Internal,
                };
                incoming.reply.send(Err(error));
            }
        }
    }

    fn forget(&self, id: ConversationId, mailbox: &mpsc::Sender<Message>) {
        let mut live = self.lock();
        if live
            .get(&id)
            .is_some_and(|entry| entry.mailbox.same_channel(mailbox))
        {
            live.remove(&id);
        }
    }

    /// Wakes the conversations whose scheduled continuation is due, until the daemon stops.
    pub fn wake_conversations(self: &Arc<Self>) {
        let registry = Arc::downgrade(self);
        let (services, stop) = (Arc::clone(&self.services), self.stop.clone());
        self.tasks.spawn(async move {
            let wake = |id, slot| {
                let Some(registry) = registry.upgrade() else {
                    return false;
                };
                match registry.salvaged(id) {
                    Ok(found) if lost_parts::can_continue(&found) => {
                        registry.deliver(id, Message::ContinuationDue(slot)).is_ok()
                    }
                    Ok(found) if lost_parts::is_transient(&found.lost) => false,
                    Ok(found) => {
                        let what = lost_parts::describe_loss(id, &found.lost);
                        tracing::error!("{what}; its scheduled continuation is not sent");
                        true
                    }
                    // The conversation was deleted meanwhile.
                    Err(ConversationError::Deleted { .. } | ConversationError::NotFound { .. }) => true,
                    Err(_) => false,
                }
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = services.wakeups.run(wake) => {}
            }
        });
    }

    /// Stops every conversation and waits until all have ended. Running turns may finish within `grace`.
    pub async fn stop(&self, grace: Duration) {
        self.stop_grace_ms.store(
            u64::try_from(grace.as_millis()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ConversationId, Entry>> {
        lock(&self.live)
    }
}

pub(super) fn check_settings(settings: &Settings) -> Result<(), ConversationError> {
    for (parameter, name) in [
        ("settings.model", &settings.model),
        ("settings.mode", &settings.mode),
    ] {
        check_setting_name(parameter, name.as_deref().unwrap_or_default())?;
    }
    for directory in settings.additional_directories.iter().flatten() {
        if !std::path::Path::new(directory).is_absolute() {
            return Err(ConversationError::invalid(
                "settings.additionalDirectories",
                format!("additionalDirectories must be absolute paths, not \"{directory}\""),
            ));
        }
    }
    for server in settings.mcp_servers.iter().flatten() {
        if !server.get().starts_with('{') {
            return Err(ConversationError::invalid(
                "settings.mcpServers",
                "each of mcpServers must be an object",
            ));
        }
    }
    Ok(())
}

pub(super) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!(
        "internal error of the daemon: {}",
        text.unwrap_or_else(|| "unknown".to_owned())
    )
}
