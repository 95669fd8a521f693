//! Agent processes, shared between the conversations that can share them.
//!
//! One process for each key; callers that come together share one start, and `initialize` runs once in it. A start
//! that fails, or a process that dies young, backs off; a person's request tries all the same. A process that nobody
//! has leased for a while is stopped. Generations tell a process from its successor under the same key, so a late
//! clean-up never removes the newer one. What a dead process has left behind may still write to its transcripts, so a
//! successor is handed out only when all of that has ended too.
//!
//! It owns every agent process of the daemon. It must not know sessions or conversations: a lease is all that it
//! counts.

mod backoff;
mod keeper;
mod key;
mod lease;
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
use super::process::{AgentCommand, Instance, SpawnError, SpawnRecorder, StopDeadlines};
use super::session::{AgentCalls, InitializeRequest, Initialized};
use super::wire::{Chatter, Connection, WireOptions};
use backoff::Backoff;
use keeper::Leases;
pub use key::PoolKey;
pub use lease::Lease;

/// Keys that are remembered at once: agents, times the environments and capabilities that clients bring.
const MAX_KEYS: usize = 256;

/// How the pool works.
#[derive(Debug, Clone)]
pub struct PoolSettings {
    /// A process that nobody has leased for so long is stopped.
    pub idle: Duration,
    /// From the spawn to the answer to `initialize`. Adapters need 0.3 s; a cold disk or a busy machine much more.
    pub initialize: Duration,
    /// For every stop that the pool decides on itself.
    pub stop: StopDeadlines,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(10 * 60),
            initialize: Duration::from_secs(30),
            stop: StopDeadlines::default(),
        }
    }
}

/// Everything that a start needs.
#[derive(Debug, Clone, Default)]
pub struct Launch {
    /// The program.
    pub command: AgentCommand,
    /// What it is told first.
    pub initialize: InitializeRequest,
    /// How its connection is kept.
    pub wire: WireOptions,
}

/// Which start of a process it is; rises over the whole pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(u64);

impl fmt::Display for Generation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Who asks for a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// The daemon itself: it waits out a backoff.
    Background,
    /// A person, who may just have mended what was broken: one try at once.
    Now,
}

/// Why there is no agent.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AcquireError {
    /// The process could not be started, or ended at once.
    #[error("the agent {agent} could not be started")]
    Spawn {
        /// Its configured name.
        agent: String,
        /// Why.
        #[source]
        source: Arc<SpawnError>,
    },
    /// It runs, but refused or never answered `initialize`, and has been stopped.
    #[error("the agent {agent} could not be initialized{printed}")]
    Initialize {
        /// Its configured name.
        agent: String,
        /// What it printed on its standard output.
        printed: Box<Chatter>,
        /// Why; the agent's error among others, as when a login is missing.
        #[source]
        source: Box<CallError>,
    },
    /// It prints other things than messages, and has been stopped.
    #[error("the agent {agent} does not speak the protocol{printed}; check its command and arguments")]
    Chatters {
        /// Its configured name.
        agent: String,
        /// What it printed on its standard output.
        printed: Box<Chatter>,
    },
    /// It speaks another version of the protocol, and has been stopped.
    #[error(
        "the agent {agent} speaks version {theirs} of the protocol, not version {ours}, which this daemon speaks"
    )]
    Version {
        /// Its configured name.
        agent: String,
        /// The version that it chose.
        theirs: u64,
        /// The only one that it was offered.
        ours: u64,
    },
    /// More kinds of processes are asked for than the pool keeps apart.
    #[error("too many different agents and environments are in use")]
    TooManyKeys,
    /// The pool is shutting down.
    #[error("agents are no longer started: the daemon is stopping")]
    ShuttingDown,
}

/// A running agent that has been initialized.
#[derive(Debug)]
pub struct Agent {
    key: PoolKey,
    generation: Generation,
    pid: u32,
    connection: Connection,
    initialized: Arc<Initialized>,
    leases: Leases,
    stop: CancellationToken,
    /// Why it was ended although others used it.
    condemned: OnceLock<String>,
    stopped: watch::Receiver<bool>,
}

impl Agent {
    /// The key under which it was started.
    #[must_use]
    pub fn key(&self) -> &PoolKey {
        &self.key
    }

    /// Which start it is.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its connection.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// What it said about itself.
    #[must_use]
    pub fn initialized(&self) -> &Initialized {
        &self.initialized
    }

    /// Its methods.
    #[must_use]
    pub fn calls(&self) -> AgentCalls {
        AgentCalls::new(self.connection.clone(), Arc::clone(&self.initialized))
    }

    /// Ends it, although others may use it: they see its death, and are told why. For one that no longer answers.
    pub fn condemn(&self, why: &str) {
        // Who was first has said why.
        let _first = self.condemned.set(why.to_owned());
        self.stop.cancel();
    }

    /// Why it was ended although others used it; none of one that ended by itself.
    #[must_use]
    pub fn condemned(&self) -> Option<&str> {
        self.condemned.get().map(String::as_str)
    }

    /// Whether it has ended, or is about to.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.stop.is_cancelled() || self.connection.is_ending()
    }

    /// Whether the process and all its descendants have ended.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        *self.stopped.borrow()
    }

    /// Whether the pool has nothing more to do for its end: it has ended, or was given up.
    fn is_over(&self) -> bool {
        self.has_stopped() || self.stopped.has_changed().is_err()
    }

    /// Waits until the process and all its descendants have ended, or were given up because they survived SIGKILL:
    /// [`has_stopped`](Self::has_stopped) says which. Cancel safe.
    pub async fn stopped(&self) {
        let mut stopped = self.stopped.clone();
        // The keeper drops its end without a word if something survived.
        let _ended = stopped.wait_for(|stopped| *stopped).await;
    }
}

/// All agent processes of one daemon; clones are the same pool.
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
    recorder: Arc<dyn SpawnRecorder>,
    state: Mutex<State>,
    /// Set when the pool shuts down, with the deadlines that hold from then on.
    shutdown: watch::Sender<Option<StopDeadlines>>,
    hurry: CancellationToken,
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
    /// Those that the present one has followed, as far as they have not come to their ends.
    earlier: Vec<Weak<Agent>>,
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
    /// An empty pool. The instance is that of the data folder.
    #[must_use]
    pub fn new(instance: Instance, settings: PoolSettings, recorder: Arc<dyn SpawnRecorder>) -> Self {
        Self {
            inner: Arc::new(Inner {
                instance,
                settings,
                recorder,
                state: Mutex::default(),
                shutdown: watch::Sender::new(None),
                hurry: CancellationToken::new(),
                tasks: TaskTracker::new(),
            }),
        }
    }

    /// The agent of this key, started if it does not run. Dropping the future does not stop a start that others may
    /// wait for. Must be called inside a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`AcquireError`].
    pub async fn acquire(
        &self,
        key: &PoolKey,
        launch: &Launch,
        urgency: Urgency,
    ) -> Result<Lease, AcquireError> {
        self.acquire_newer(key, launch, urgency, None).await
    }

    /// A process other than the one that failed: that one gets no new leases and ends when its last one is released.
    /// Where a newer one runs already, it is that one.
    ///
    /// # Errors
    ///
    /// [`AcquireError`].
    pub async fn fresh(
        &self,
        key: &PoolKey,
        launch: &Launch,
        urgency: Urgency,
        failed: Generation,
    ) -> Result<Lease, AcquireError> {
        self.acquire_newer(key, launch, urgency, Some(failed)).await
    }

    /// Whose processes these are.
    #[must_use]
    pub fn instance(&self) -> &Instance {
        &self.inner.instance
    }

    /// Whether a process is being started that may not be on record yet.
    #[must_use]
    pub fn is_starting(&self) -> bool {
        let state = self.inner.lock();
        let mut slots = state.slots.values();
        slots.any(|slot| matches!(slot.process, SlotProcess::Starting(..)))
    }

    /// The agents that run now and can be acquired.
    #[must_use]
    pub fn running(&self) -> Vec<Arc<Agent>> {
        let state = self.inner.lock();
        let running = state.slots.values().filter_map(|slot| match &slot.process {
            SlotProcess::Running(agent) => Some(Arc::clone(agent)),
            SlotProcess::None | SlotProcess::Starting(..) => None,
        });
        running.collect()
    }

    /// One of the running agents of this name; none is started. For a look: who works with an agent acquires it.
    #[must_use]
    pub fn look_at(&self, name: &str) -> Option<Lease> {
        let state = self.inner.lock();
        let slots = state.slots.iter().filter(|(key, _)| key.agent() == name);
        let mut running = slots.filter_map(|(_, slot)| match &slot.process {
            SlotProcess::Running(agent) if !agent.is_ending() => Some(agent),
            _ => None,
        });
        running.next().map(|agent| Lease::new(Arc::clone(agent)))
    }

    /// The process ids of all agents that have not come to their ends, with everything that they have left behind.
    #[must_use]
    pub fn unended(&self) -> Vec<u32> {
        let state = self.inner.lock();
        let all = state.slots.values().flat_map(|slot| &slot.earlier);
        let alive = all
            .filter_map(Weak::upgrade)
            .filter(|agent| !*agent.stopped.borrow());
        alive.map(|agent| agent.pid).collect()
    }

    /// The other processes of an agent that get no new leases and have not come to their ends. Each serves its users until
    /// then.
    #[must_use]
    pub fn leaving(&self, own: &Agent) -> Vec<Arc<Agent>> {
        let state = self.inner.lock();
        let slots = state.slots.iter();
        let of_agent = slots.filter(|(key, _)| key.agent() == own.key.agent());
        let all = of_agent.flat_map(|(_, slot)| slot.earlier.iter().filter_map(Weak::upgrade));
        let leaves = |agent: &Arc<Agent>| {
            let is_leaving = agent.is_retired() || agent.is_ending();
            agent.generation != own.generation && is_leaving && !agent.is_over()
        };
        all.filter(leaves).collect()
    }

    /// Stops all agents at once and waits until they and all their descendants have ended. Nothing is started
    /// afterwards.
    pub async fn shutdown(&self, deadlines: StopDeadlines) {
        self.inner.shutdown.send_replace(Some(deadlines));
        // Whoever had not seen that has spawned its task once the lock was free.
        drop(self.inner.lock());
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }

    /// Cuts the waits of a running shutdown short: the second signal of an impatient user.
    pub fn hurry(&self) {
        self.inner.hurry.cancel();
    }

    async fn acquire_newer(
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
                Decision::Have(lease) => return Ok(lease),
                Decision::Await(starting) => break starting,
                // Somebody may have it started meanwhile, or the pool be shut down.
                Decision::WaitOut(retry_in) => tokio::select! {
                    () = tokio::time::sleep(retry_in) => {}
                    () = keeper::is_shut_down(&self.inner) => {}
                },
            }
        };
        let outcome = match starting.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone(),
            Err(_) => None,
        };
        // Its task was ended with the runtime, or panicked.
        outcome.unwrap_or(Err(AcquireError::ShuttingDown)).map(Lease::new)
    }
}

/// What an acquire does, once the lock is left.
enum Decision {
    Have(Lease),
    WaitOut(Duration),
    Await(watch::Receiver<Option<StartOutcome>>),
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is complete before the lock is left, so a panic elsewhere leaves nothing half done.
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
        if self.shutdown.borrow().is_some() {
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
        let is_out = |agent: &Agent| has_failed(agent) || agent.is_retired() || agent.is_ending();
        match &slot.process {
            // A lease counts from here on, under the lock, so that it cannot be stopped as idle in between.
            SlotProcess::Running(agent) if !is_out(agent) => {
                agent.leases.note_look(false);
                return Ok(Decision::Have(Lease::new(Arc::clone(agent))));
            }
            SlotProcess::Running(agent) => agent.leases.retire(),
            SlotProcess::Starting(_, outcome) => return Ok(Decision::Await(outcome.clone())),
            SlotProcess::None => {}
        }
        slot.process = SlotProcess::None;
        let retry_in = slot.backoff.retry_in(now);
        if urgency == Urgency::Background && !retry_in.is_zero() {
            return Ok(Decision::WaitOut(retry_in));
        }
        state.last_generation += 1;
        let generation = Generation(state.last_generation);
        let (sender, outcome) = watch::channel(None);
        // Whoever is to be apart from now on had its session in a process that was shared, and the other way round.
        let of_agent = state
            .slots
            .iter()
            .filter(|(other, _)| other.agent() == key.agent());
        let earlier = of_agent.flat_map(|(_, slot)| slot.earlier.clone()).collect();
        let slot = state.slots.entry(key.clone()).or_default();
        slot.process = SlotProcess::Starting(generation, outcome.clone());
        let start = keeper::Start {
            key: key.clone(),
            launch: launch.clone(),
            generation,
            earlier,
        };
        self.tasks.spawn(keeper::run(Arc::clone(self), start, sender));
        Ok(Decision::Await(outcome))
    }

    /// A start has succeeded: the agent can be acquired.
    fn started(&self, agent: &Arc<Agent>) {
        let mut state = self.lock();
        if let Some(slot) = state.slots.get_mut(&agent.key)
            && slot.process.generation() == Some(agent.generation)
        {
            slot.process = SlotProcess::Running(Arc::clone(agent));
            slot.earlier.retain(|earlier| earlier.strong_count() > 0);
            slot.earlier.push(Arc::downgrade(agent));
        }
    }

    /// A start has failed.
    fn failed(&self, key: &PoolKey, generation: Generation) {
        let mut state = self.lock();
        let Some(slot) = state.slots.get_mut(key) else {
            return;
        };
        slot.backoff.failed(Instant::now());
        if slot.process.generation() == Some(generation) {
            slot.process = SlotProcess::None;
        }
    }

    /// A process ended by itself after a life of this length.
    fn died(&self, agent: &Agent, lived: Duration) {
        let mut state = self.lock();
        let Some(slot) = state.slots.get_mut(&agent.key) else {
            return;
        };
        slot.backoff.died(Instant::now(), lived);
        if slot.process.generation() == Some(agent.generation) {
            slot.process = SlotProcess::None;
        }
    }

    /// Takes a process out of the pool if nobody has leased it; tells whether it may now be stopped.
    fn remove_if_unused(&self, agent: &Agent) -> bool {
        let mut state = self.lock();
        if agent.leases.count() > 0 {
            return false;
        }
        if let Some(slot) = state.slots.get_mut(&agent.key)
            && slot.process.generation() == Some(agent.generation)
        {
            slot.process = SlotProcess::None;
        }
        true
    }

    /// Takes a process out of the pool whoever uses it.
    fn remove(&self, agent: &Agent) {
        let mut state = self.lock();
        if let Some(slot) = state.slots.get_mut(&agent.key)
            && slot.process.generation() == Some(agent.generation)
        {
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
            || self.earlier.iter().any(|earlier| earlier.strong_count() > 0)
    }
}
