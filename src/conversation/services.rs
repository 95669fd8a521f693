//! The daemon's services for conversations. Shared by all of them, and without the state of any conversation.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bridge_protocol::conversation::Conversation;
use bridge_protocol::diagnosis::Diagnostic;
use bridge_protocol::event::Event;
use bridge_protocol::link::{LineageEntry, Link};
use bridge_protocol::time;
use bridge_protocol::{AgentName, UpstreamId};
use jiff::Timestamp;
use tokio::task::JoinHandle;

use crate::agent::catalog::{AgentEntry, Catalog};
use crate::agent::client::ClientProfile;
use crate::agent::failure::strip_terminal_codes;
use crate::agent::inbox::InboxLimits;
use crate::agent::kinds::{self, AgentKind};
use crate::agent::pool::Pool;
use crate::store::{Change, ConversationRecord, Store, StoreError};
use crate::transcript::dialect::AgentHome;
use crate::transcript::index_cache::IndexCache;

use super::backup::Backups;
use super::effect::Ledger;
use super::error::ConversationError;
use super::events::Hub;
use super::old_bytes::OldBytes;
use super::read_queues::ReadQueues;
use super::running_work::RunningWork;
use super::state::Rules;
use super::transcript_facts::AgentTranscripts;
use super::transcript_growth::RecheckQueue;
use super::uncommitted_copies::CopyPlans;
use super::wakeups::WakeupQueue;

/// The parts of the daemon that conversations use.
pub struct Services {
    /// The store of everything durable.
    pub store: Store,
    /// The agents' processes.
    pub pool: Pool,
    /// The configured agents.
    pub catalog: Catalog,
    /// Compares the present configuration file with the one in use.
    pub diagnose_configuration: Box<dyn Fn() -> Diagnostic + Send + Sync>,
    /// Events of all conversations.
    pub hub: Arc<Hub>,
    /// Limits and deadlines of each conversation.
    pub rules: Rules,
    /// The daemon's data folder.
    pub data_folder: PathBuf,
    /// How much of an agent's output may wait for a conversation.
    pub inbox_limits: InboxLimits,
    /// How long an agent may take to open, fork or close a session.
    pub session_deadline: Duration,
    /// The positions of records in transcripts that were read.
    pub index_cache: IndexCache,
    /// Transcripts to check after the end of a turn, for the task that watches transcripts.
    pub rechecks: RecheckQueue,
    /// How much of each transcript is not new, for the same task.
    pub old_bytes: OldBytes,
    /// Copies of transcripts that are being made.
    pub copy_plans: CopyPlans,
    /// The queue of scheduled continuations.
    pub wakeups: WakeupQueue,
    /// The backups of transcripts, and the sessions that wait to be backed up.
    pub backups: Backups,
    /// The running calls that take long because of the files that they read or write.
    pub running_work: Arc<RunningWork>,
    /// The queues of readers, by folder.
    pub read_queues: ReadQueues,
}

impl Services {
    /// The change that stores a record, and what it adds to the rest of the store.
    pub(super) fn change(&self, record: ConversationRecord, ledger: Ledger) -> Change {
        let (id, entry) = (record.id, self.catalog.get(&record.agent));
        let added = entry.into_iter().flat_map(|entry| {
            let root = entry.transcript_root();
            ledger
                .upstream
                .iter()
                .map(move |added| (id, root.clone(), added.clone()))
        });
        Change {
            upstream: added.collect(),
            lineage: ledger.lineage.into_iter().map(|entry| (id, entry)).collect(),
            requests: ledger.requests,
            conversation: Some(record),
            ..Change::default()
        }
    }

    /// The lineage of a conversation up to the last entry of its record; later entries are of later changes.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(super) fn lineage_of(&self, record: &ConversationRecord) -> Result<Vec<LineageEntry>, StoreError> {
        let mut lineage = self.store.lineage_all(record.id)?;
        lineage.retain(|entry| entry.seq <= record.chain.last_lineage_seq());
        Ok(lineage)
    }

    /// The transcripts in an agent's folder, with the index of what was read before.
    pub(super) fn home<'a>(&'a self, root: &'a Path) -> AgentHome<'a> {
        AgentHome {
            index_cache: &self.index_cache,
            root,
        }
    }

    /// The transcripts of an agent. `None` if it is not configured, or it is not known where it keeps them.
    pub(super) fn transcripts(&self, agent: &AgentName) -> Option<AgentTranscripts<'_>> {
        self.transcripts_of(self.catalog.get(agent)?)
    }

    /// The transcripts of an agent. `None` if it is not known where the agent keeps them.
    pub(super) fn transcripts_of<'a>(&'a self, entry: &'a AgentEntry) -> Option<AgentTranscripts<'a>> {
        let (root, format) = entry.listed_transcripts()?;
        Some(AgentTranscripts {
            services: self,
            entry,
            dialect: format.dialect(),
            root,
        })
    }

    /// Runs work on a thread that may block.
    pub fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Self>) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let services = Arc::clone(self);
        tokio::task::spawn_blocking(move || work(&services))
    }

    /// Checks a folder, or reads the end of a file in it, on a thread that may block.
    ///
    /// # Errors
    /// Those of `look`, or a temporary failure if the folder does not respond.
    pub async fn read_at_folder<T: Send + 'static>(
        &self,
        folder: &str,
        look: impl FnOnce(&str) -> Result<T, ConversationError> + Send + 'static,
    ) -> Result<T, ConversationError> {
        let queue = self.read_queues.look_queue(folder.into());
        let folder = folder.to_owned();
        queue.run_blocking(move || look(&folder)).await
    }

    /// Runs a quick read of a project's transcripts on a blocking thread.
    ///
    /// # Errors
    /// Those of `look`; a transient failure if the transcripts do not respond.
    pub async fn look_at_project<T: Send + 'static>(
        &self,
        root: &Path,
        cwd: &str,
        look: impl FnOnce() -> Result<T, ConversationError> + Send + 'static,
    ) -> Result<T, ConversationError> {
        let queue = self.read_queues.project_look_queue(root.into(), cwd.to_owned());
        queue.run_blocking(look).await
    }

    /// Checks that the folder of a project's transcripts responds, whether or not there are any. Call it before work
    /// that waits for the folder without a time limit.
    ///
    /// # Errors
    /// As [`Services::look_at_project`].
    pub async fn check_project(&self, entry: &AgentEntry, cwd: &str) -> Result<(), ConversationError> {
        let Some(AgentTranscripts { root, dialect, .. }) = self.transcripts_of(entry) else {
            return Ok(());
        };
        let any = Path::new("any");
        let path = dialect.expected_path(root, Some(Path::new(cwd)), Path::new(""), any);
        let look = move || {
            // Any answer will do, also that the path does not exist.
            let _metadata = path.symlink_metadata();
            Ok(())
        };
        self.look_at_project(root, cwd, look).await
    }

    /// The agent with this name.
    ///
    /// # Errors
    /// [`ConversationError::UnknownAgent`] with the names that are known.
    pub fn agent(&self, name: &AgentName) -> Result<Arc<AgentEntry>, ConversationError> {
        self.catalog
            .get(name)
            .cloned()
            .ok_or_else(|| ConversationError::UnknownAgent {
                name: name.clone(),
                known: self.catalog.names(),
                install: kinds::named(name.as_str())
                    .ok()
                    .and_then(AgentKind::install_command),
                config_problem: self.config_problem(),
            })
    }

    /// What is wrong with the present configuration file, or how to apply it, if it differs from the one in use.
    fn config_problem(&self) -> Option<String> {
        let found = (self.diagnose_configuration)();
        let (file, next) = (found.subject?, found.next_step?);
        Some(format!("{file}: {}; {next}", found.message))
    }

    /// The agent with this name, as it is started for a client.
    ///
    /// # Errors
    /// As [`Services::agent`].
    pub fn agent_for(
        &self,
        name: &AgentName,
        client: Option<&ClientProfile>,
    ) -> Result<Arc<AgentEntry>, ConversationError> {
        Ok(self.agent(name)?.for_client(client))
    }

    /// Notifies the subscribers to all conversations of a new conversation.
    pub fn announce_new(&self, conversation: Conversation) {
        let id = conversation.id;
        let event = Event::Snapshot {
            conversation,
            gap: false,
            running: None,
            unaccepted: None,
            session: None,
        };
        self.hub.announce(id, &event, &time::text(now()));
    }
}

/// A session of an agent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionRef {
    /// The agent that has it.
    pub agent: AgentName,
    /// The folder in which it runs.
    pub cwd: String,
    /// The agent's own id of the session.
    pub upstream_id: UpstreamId,
}

impl SessionRef {
    /// The session with this id. A session that is not in the chain, such as the branch of an edit whose prompt was not
    /// accepted, runs in the conversation's folder.
    #[must_use]
    pub fn in_conversation(record: &ConversationRecord, id: &UpstreamId) -> Self {
        match record.chain.link(id) {
            Some(link) => link.into(),
            None => Self {
                agent: record.agent.clone(),
                cwd: record.cwd.clone(),
                upstream_id: id.clone(),
            },
        }
    }
}

impl From<&Link> for SessionRef {
    fn from(link: &Link) -> Self {
        Self {
            agent: link.agent.clone(),
            cwd: link.cwd.clone(),
            upstream_id: link.upstream_id.clone(),
        }
    }
}

/// The current time. This is the only place where this room reads the clock.
#[must_use]
pub fn now() -> Timestamp {
    Timestamp::now()
}

/// An error with all its causes, in one line. It may contain an agent's text, which may have been meant for a terminal.
#[must_use]
pub fn chain_text(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    strip_terminal_codes(&text)
}
