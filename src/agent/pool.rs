//! Agent processes, shared between conversations.
//!
//! The pool has one process per key. Concurrent callers share one start, and `initialize` runs once per process. A
//! failed start, or a process that dies soon, causes a backoff, which a user's request bypasses. A process without
//! leases is stopped after a while. Generations distinguish a process from its successor under the same key, so a late
//! clean-up never removes the newer one. The descendants of a dead process may still write to its transcripts, so a
//! successor is handed out only after all of them have ended.
//!
//! The pool owns every agent process of the daemon. It does not know sessions or conversations; it only counts
//! leases.

mod backoff;
mod key;
mod lease;
mod process_task;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::message::CallError;
use super::process::{AgentCommand, Instance, ProgramFile, SpawnError, StopDeadlines};
use super::session::{AgentCalls, InitializeRequest, Initialized};
use super::sweep::{SweepTarget, sweep};
use super::wire::{Connection, StrayOutput, WireOptions};
use crate::store::Store;
use backoff::Backoff;
pub use key::PoolKey;
pub use lease::Lease;
use lease::Usage;

/// The maximum number of keys. There is one for each agent and each distinct client that it runs for.
const MAX_KEYS: usize = 256;

/// Settings of the pool.
#[derive(Debug, Clone)]
pub struct PoolSettings {
    /// How long a process without leases keeps running.
    pub idle_limit: Duration,
    /// The limit from the spawn to the answer to `initialize`. Adapters need 0.3 s; a cold disk or a busy machine
    /// needs much more.
    pub initialize_limit: Duration,
    /// The deadlines of a stop.
    pub stop: StopDeadlines,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            idle_limit: Duration::from_secs(10 * 60),
            initialize_limit: Duration::from_secs(30),
            stop: StopDeadlines::default(),
        }
    }
}

/// How to start an agent.
#[derive(Debug, Clone, Default)]
pub struct Launch {
    /// The program.
    pub command: AgentCommand,
    /// The `initialize` request.
    pub initialize: InitializeRequest,
    /// The options of its connection.
    pub wire: WireOptions,
}

/// The number of a process start, unique in the pool and increasing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(u64);

impl fmt::Display for Generation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Who requests a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// The daemon itself. It waits for the backoff.
    Background,
    /// A user, who may just have fixed the cause: one try at once.
    Now,
}

/// Why no agent is available.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AcquireError {
    /// The process could not be started, or ended at once.
    #[error("the agent {agent} could not be started")]
    Spawn {
        /// The agent's configured name.
        agent: String,
        /// The cause.
        #[source]
        source: Arc<SpawnError>,
    },
    /// The process runs, but refused or never answered `initialize`, and was stopped.
    #[error("the agent {agent} could not be initialized{printed}")]
    Initialize {
        /// The agent's configured name.
        agent: String,
        /// What it printed on its standard output.
        printed: Box<StrayOutput>,
        /// The cause. An agent's error, for example, if a login is missing.
        #[source]
        source: Box<CallError>,
    },
    /// The process prints lines that are not messages, and was stopped.
    #[error("the agent {agent} does not speak the protocol{printed}; check its command and arguments")]
    NotProtocol {
        /// The agent's configured name.
        agent: String,
        /// What it printed on its standard output.
        printed: Box<StrayOutput>,
    },
    /// The agent speaks another version of the protocol, and was stopped.
    #[error(
        "the agent {agent} speaks version {theirs} of the protocol, not version {ours}, which this daemon speaks"
    )]
    Version {
        /// The agent's configured name.
        agent: String,
        /// The version that the agent chose.
        theirs: u64,
        /// The only version that it was offered.
        ours: u64,
    },
    /// The pool has no room for another key.
    #[error(
        "{MAX_KEYS} kinds of agent processes run, one for each different client, which is the limit; close an editor and try again"
    )]
    TooManyKeys,
    /// The pool is shutting down.
    #[error("agents are no longer started: the daemon is stopping")]
    ShuttingDown,
}

/// A running, initialized agent.
#[derive(Debug)]
pub struct Agent {
    key: PoolKey,
    generation: Generation,
    pid: u32,
    connection: Connection,
    initialized: Arc<Initialized>,
    /// The file of its program at the time of its start.
    program: Option<ProgramFile>,
    usage: watch::Sender<Usage>,
    stop: CancellationToken,
    /// Why it was ended while it was in use.
    termination_reason: OnceLock<String>,
    stopped: watch::Receiver<bool>,
}

impl Agent {
    /// Returns the key under which it was started.
    #[must_use]
    pub fn key(&self) -> &PoolKey {
        &self.key
    }

    /// Returns the number of its start.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Returns the process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns its connection.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Returns its answer to `initialize`.
    #[must_use]
    pub fn initialized(&self) -> &Initialized {
        &self.initialized
    }

    /// Returns its methods.
    #[must_use]
    pub fn calls(&self) -> AgentCalls {
        AgentCalls::new(self.connection.clone(), Arc::clone(&self.initialized))
    }

    /// Ends an agent that no longer answers, even while it is in use. Its users see its death and the reason.
    pub fn terminate(&self, why: &str) {
        // Only the first reason is stored.
        let _first = self.termination_reason.set(why.to_owned());
        self.stop.cancel();
    }

    /// Why it was ended while it was in use. `None` if it ended on its own.
    #[must_use]
    pub fn termination_reason(&self) -> Option<&str> {
        self.termination_reason.get().map(String::as_str)
    }

    /// Whether it has ended or is about to.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.stop.is_cancelled() || self.connection.is_ending()
    }

    /// Whether the process and all its descendants have ended.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        *self.stopped.borrow()
    }

    /// Whether the pool is done with it: it has ended, or the pool gave up on it.
    fn is_finished(&self) -> bool {
        self.has_stopped() || self.stopped.has_changed().is_err()
    }

    /// Waits until the process and all its descendants have ended, or until the pool gave up because some survived
    /// SIGKILL. [`has_stopped`](Self::has_stopped) tells the two apart. Cancel safe.
    pub async fn stopped(&self) {
        let mut stopped = self.stopped.clone();
        // If something survived, the process's task drops the sender without setting it.
        let _ended = stopped.wait_for(|stopped| *stopped).await;
    }
}

/// All agent processes of one daemon. Clones share the pool.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Pool")
            .field("instance", &self.inner.instance)
            .finish_non_exhaustive()
    }
}

struct Inner {
    instance: Instance,
    settings: PoolSettings,
    store: Store,
    state: Mutex<State>,
    shutdown: CancellationToken,
    skip_waits: CancellationToken,
    tasks: TaskTracker,
}

#[derive(Default)]
struct State {
    slots: HashMap<PoolKey, Slot>,
    last_generation: u64,
}

#[derive(Default)]
struct Slot {
    backoff: Backoff,
    process: SlotProcess,
    /// The latest answer to `initialize` under this key, and the program that gave it.
    initialized: Option<(Arc<Initialized>, Option<ProgramFile>)>,
    /// All processes under this key that are still referenced: earlier ones and the running one.
    processes: Vec<Weak<Agent>>,
}

type StartOutcome = Result<Arc<Agent>, AcquireError>;

#[derive(Default)]
enum SlotProcess {
    #[default]
    None,
    Starting(Generation, watch::Receiver<Option<StartOutcome>>),
    Running(Arc<Agent>),
}

impl Pool {
    /// Creates an empty pool, whose processes are recorded in the store. `instance` identifies the data folder.
    #[must_use]
    pub fn new(instance: Instance, settings: PoolSettings, store: Store) -> Self {
        Self {
            inner: Arc::new(Inner {
                instance,
                settings,
                store,
                state: Mutex::default(),
                shutdown: CancellationToken::new(),
                skip_waits: CancellationToken::new(),
                tasks: TaskTracker::new(),
            }),
        }
    }

    /// Leases the agent with this key, and starts it if it is not running. With a `failed` process, leases a newer one:
    /// the failed one gets no new leases and ends with its last one. Dropping the future does not stop a start that others
    /// may wait for. Must be called inside a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`AcquireError`].
    pub async fn acquire(
        &self,
        key: &PoolKey,
        launch: &Launch,
        urgency: Urgency,
        failed: Option<Generation>,
    ) -> Result<Lease, AcquireError> {
        let mut starting = loop {
            let decision = {
                let mut state = self.inner.lock();
                self.inner.decide(&mut state, key, launch, urgency, failed)?
            };
            match decision {
                Decision::Leased(lease) => return Ok(lease),
                Decision::AwaitStart(starting) => break starting,
                // Meanwhile another caller may start it, or the pool may shut down.
                Decision::WaitForBackoff(retry_in) => tokio::select! {
                    () = tokio::time::sleep(retry_in) => {}
                    () = self.inner.shutdown.cancelled() => {}
                },
            }
        };
        let outcome = match starting.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone(),
            Err(_) => None,
        };
        // The task was cancelled with the runtime, or panicked.
        outcome.unwrap_or(Err(AcquireError::ShuttingDown)).map(Lease::new)
    }

    /// Returns the instance that the processes belong to.
    #[must_use]
    pub fn instance(&self) -> &Instance {
        &self.inner.instance
    }

    /// Whether a process is being started whose spawn may not be recorded yet.
    #[must_use]
    pub fn is_starting(&self) -> bool {
        let state = self.inner.lock();
        let mut slots = state.slots.values();
        slots.any(|slot| matches!(slot.process, SlotProcess::Starting(..)))
    }

    /// Returns the running agents that can be acquired.
    #[must_use]
    pub fn running(&self) -> Vec<Arc<Agent>> {
        let state = self.inner.lock();
        let running = state.slots.values().filter_map(|slot| match &slot.process {
            SlotProcess::Running(agent) => Some(Arc::clone(agent)),
            SlotProcess::None | SlotProcess::Starting(..) => None,
        });
        running.collect()
    }

    /// Returns the answer to `initialize` under this key, if known: a process runs, or its program has not changed since it
    /// answered.
    #[must_use]
    pub fn initialized(&self, key: &PoolKey, launch: &Launch) -> Option<Arc<Initialized>> {
        let program = launch.command.program_file();
        let state = self.inner.lock();
        let slot = state.slots.get(key)?;
        let (initialized, answered) = slot.initialized.as_ref()?;
        let runs = matches!(&slot.process, SlotProcess::Running(agent) if !agent.is_ending());
        (runs || *answered == program).then(|| Arc::clone(initialized))
    }

    /// Leases a running agent with this name for inspection, without starting one. To work with an agent, acquire it.
    #[must_use]
    pub fn lease_for_inspection(&self, name: &str) -> Option<Lease> {
        let state = self.inner.lock();
        let slots = state.slots.iter().filter(|(key, _)| key.agent() == name);
        let mut running = slots.filter_map(|(_, slot)| match &slot.process {
            SlotProcess::Running(agent) if !agent.is_ending() => Some(agent),
            _ => None,
        });
        running.next().map(|agent| Lease::new(Arc::clone(agent)))
    }

    /// Returns the process ids of the agents that, with their descendants, have not ended completely.
    #[must_use]
    pub fn remaining_pids(&self) -> Vec<u32> {
        let state = self.inner.lock();
        let all = state.slots.values().flat_map(|slot| &slot.processes);
        let alive = all
            .filter_map(Weak::upgrade)
            .filter(|agent| !*agent.stopped.borrow());
        alive.map(|agent| agent.pid).collect()
    }

    /// Returns the other processes of the same agent that are retired but still running, because they still have
    /// users.
    #[must_use]
    pub fn retiring_agents(&self, own: &Agent) -> Vec<Arc<Agent>> {
        let state = self.inner.lock();
        let slots = state.slots.iter();
        let of_agent = slots.filter(|(key, _)| key.agent() == own.key.agent());
        let all = of_agent.flat_map(|(_, slot)| slot.processes.iter().filter_map(Weak::upgrade));
        let leaves = |agent: &Arc<Agent>| {
            let is_leaving = agent.is_retired() || agent.is_ending();
            agent.generation != own.generation && is_leaving && !agent.is_finished()
        };
        all.filter(leaves).collect()
    }

    /// Retires the unused other processes of the same agent, so that they end and release their resources.
    pub fn retire_unused(&self, own: &Agent) {
        let state = self.inner.lock();
        let slots = state.slots.iter();
        for (_, slot) in slots.filter(|(key, _)| key.agent() == own.key.agent()) {
            if let SlotProcess::Running(agent) = &slot.process
                && agent.generation != own.generation
                && agent.lease_count() == 0
            {
                agent.retire();
            }
        }
    }

    /// Stops all agents at once and waits until they and all their descendants have ended. Nothing is started
    /// afterwards.
    pub async fn shutdown(&self) {
        self.inner.shutdown.cancel();
        // A caller that missed the shutdown has spawned its task by the time the lock is free.
        drop(self.inner.lock());
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
        let remains = SweepTarget::leftovers(self.inner.instance.clone());
        let sweep_deadlines = self.inner.settings.stop.for_sweep(&self.inner.skip_waits);
        match tokio::task::spawn_blocking(move || sweep(&remains, sweep_deadlines)).await {
            Ok(report) => report.survivors.iter().for_each(|survivor| {
                tracing::error!(
                    pid = survivor.pid,
                    name = survivor.name,
                    "a process of an agent cannot be ended"
                );
            }),
            Err(error) => tracing::error!(%error, "the sweep after all agents failed"),
        }
    }

    /// Skips the remaining waits of a running shutdown: the user sent a second signal.
    pub fn skip_shutdown_waits(&self) {
        self.inner.skip_waits.cancel();
    }
}

/// What [`Pool::acquire`] does after it releases the lock.
enum Decision {
    Leased(Lease),
    WaitForBackoff(Duration),
    AwaitStart(watch::Receiver<Option<StartOutcome>>),
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is complete before the lock is released, so a panic elsewhere leaves a consistent state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decide(
        self: &Arc<Self>,
        state: &mut State,
        key: &PoolKey,
        launch: &Launch,
        urgency: Urgency,
        failed: Option<Generation>,
    ) -> Result<Decision, AcquireError> {
        if self.shutdown.is_cancelled() {
            return Err(AcquireError::ShuttingDown);
        }
        let now = Instant::now();
        if !state.slots.contains_key(key) && state.slots.len() >= MAX_KEYS {
            state.slots.retain(|_, slot| slot.is_worth_keeping(now));
            if state.slots.len() >= MAX_KEYS {
                return Err(AcquireError::TooManyKeys);
            }
        }
        let slot = state.slots.entry(key.clone()).or_default();
        let has_failed = |agent: &Agent| failed.is_some_and(|failed| agent.generation <= failed);
        let is_unusable = |agent: &Agent| has_failed(agent) || agent.is_retired() || agent.is_ending();
        match &slot.process {
            // The lease is counted under the lock, so that the agent cannot be stopped as idle in between.
            SlotProcess::Running(agent) if !is_unusable(agent) => {
                agent.mark_inspected(false);
                return Ok(Decision::Leased(Lease::new(Arc::clone(agent))));
            }
            SlotProcess::Running(agent) => agent.retire(),
            SlotProcess::Starting(_, outcome) => return Ok(Decision::AwaitStart(outcome.clone())),
            SlotProcess::None => {}
        }
        slot.process = SlotProcess::None;
        let retry_in = slot.backoff.retry_in(now);
        if urgency == Urgency::Background && !retry_in.is_zero() {
            return Ok(Decision::WaitForBackoff(retry_in));
        }
        state.last_generation += 1;
        let generation = Generation(state.last_generation);
        let (sender, outcome) = watch::channel(None);
        // Include other keys: the session may have been open in a process for another client.
        let of_agent = state
            .slots
            .iter()
            .filter(|(other, _)| other.agent() == key.agent());
        let earlier = of_agent.flat_map(|(_, slot)| slot.processes.clone()).collect();
        let slot = state.slots.entry(key.clone()).or_default();
        slot.process = SlotProcess::Starting(generation, outcome.clone());
        let (pool, key, launch) = (Arc::clone(self), key.clone(), launch.clone());
        self.tasks
            .spawn(process_task::run(pool, key, launch, generation, earlier, sender));
        Ok(Decision::AwaitStart(outcome))
    }

    /// Records a successful start: the agent can be acquired.
    fn record_start(&self, agent: &Arc<Agent>) {
        let mut state = self.lock();
        if let Some(slot) = state.slots.get_mut(&agent.key)
            && slot.process.generation() == Some(agent.generation)
        {
            slot.process = SlotProcess::Running(Arc::clone(agent));
            slot.initialized = Some((Arc::clone(&agent.initialized), agent.program));
            slot.processes.retain(|earlier| earlier.strong_count() > 0);
            slot.processes.push(Arc::downgrade(agent));
        }
    }

    /// Removes a process from its slot, unless a newer one is in it. `record` updates the backoff.
    fn vacate_slot(&self, key: &PoolKey, generation: Generation, record: impl FnOnce(&mut Backoff)) {
        let mut state = self.lock();
        state.vacate_slot(key, generation, record);
    }

    /// Takes a process without leases out of its slot. Returns whether it may be stopped.
    fn vacate_if_unused(&self, agent: &Agent) -> bool {
        // Leases are counted under the lock.
        let mut state = self.lock();
        let is_unused = agent.lease_count() == 0;
        if is_unused {
            state.vacate_slot(&agent.key, agent.generation, |_| {});
        }
        is_unused
    }
}

impl State {
    fn vacate_slot(&mut self, key: &PoolKey, generation: Generation, record: impl FnOnce(&mut Backoff)) {
        let Some(slot) = self.slots.get_mut(key) else {
            return;
        };
        record(&mut slot.backoff);
        if slot.process.generation() == Some(generation) {
            slot.process = SlotProcess::None;
        }
    }
}

impl SlotProcess {
    fn generation(&self) -> Option<Generation> {
        match self {
            Self::None => None,
            Self::Starting(generation, _) => Some(*generation),
            Self::Running(agent) => Some(agent.generation),
        }
    }
}

impl Slot {
    fn is_worth_keeping(&self, now: Instant) -> bool {
        !matches!(self.process, SlotProcess::None)
            || !self.backoff.retry_in(now).is_zero()
            || self.processes.iter().any(|earlier| earlier.strong_count() > 0)
    }
}
