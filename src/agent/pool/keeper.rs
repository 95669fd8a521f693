//! The task that keeps one process, from its spawn to the end of its last descendant.
//!
//! It owns the process. It decides when an unused one ends and when a retired one does; everything about keys and
//! backoff is the pool's.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{AcquireError, Agent, Generation, Inner, Launch, PoolKey, StartOutcome};
use crate::agent::message::CallError;
use crate::agent::process::{self, ChildProcess, SpawnError, SpawnMark, StopDeadlines, StopReport};
use crate::agent::session::{self, Initialized};
use crate::agent::wire::Connection;

/// Lines without a message before the answer to `initialize`, at which a program counts as none that speaks the
/// protocol. Wrappers greet with a few; a program in its interactive mode prints a screen.
const MAX_CHATTER_AT_START: u64 = 32;

/// Who uses an agent, and whether it may get new users.
#[derive(Debug)]
pub(super) struct Leases {
    usage: watch::Sender<Usage>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Usage {
    leases: usize,
    is_retired: bool,
    is_signed_out: bool,
    /// Whether nobody has wanted to work with it yet.
    is_for_a_look: bool,
}

impl Leases {
    fn new() -> Self {
        Self {
            usage: watch::Sender::new(Usage::default()),
        }
    }

    pub(super) fn add(&self) {
        self.usage.send_modify(|usage| usage.leases += 1);
    }

    pub(super) fn remove(&self) {
        self.usage
            .send_modify(|usage| usage.leases = usage.leases.saturating_sub(1));
    }

    pub(super) fn count(&self) -> usize {
        self.usage.borrow().leases
    }

    /// It ends with the last lease, unless somebody comes to work with it.
    pub(super) fn note_look(&self, is_for_a_look: bool) {
        self.usage.send_if_modified(|usage| {
            let was = std::mem::replace(&mut usage.is_for_a_look, is_for_a_look);
            was != is_for_a_look
        });
    }

    /// It gets no new leases, and ends with the last one.
    pub(super) fn retire(&self) {
        self.usage.send_modify(|usage| usage.is_retired = true);
    }
}

impl Agent {
    /// Has it get no new leases, and end with its last one.
    pub fn retire(&self) {
        self.leases.retire();
    }

    /// The same for one that has said that nobody is signed in: it may have read that at its start, so that those who use it
    /// had better leave it.
    pub fn note_signed_out(&self) {
        self.leases.usage.send_modify(|usage| {
            usage.is_retired = true;
            usage.is_signed_out = true;
        });
    }

    /// Whether it has said that nobody is signed in.
    #[must_use]
    pub fn is_signed_out(&self) -> bool {
        self.leases.usage.borrow().is_signed_out
    }

    /// Waits until it says that nobody is signed in. Cancel safe.
    pub fn signed_out(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut usage = self.leases.usage.subscribe();
        async move {
            if usage.wait_for(|usage| usage.is_signed_out).await.is_err() {
                // It is gone without having said so.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Whether it gets no new leases.
    #[must_use]
    pub(super) fn is_retired(&self) -> bool {
        self.leases.usage.borrow().is_retired
    }
}

/// Why a process is no longer kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    Died,
    Unused,
    Asked,
    Shutdown,
}

/// What is to be started.
pub(super) struct Start {
    pub(super) key: PoolKey,
    pub(super) launch: Launch,
    pub(super) generation: Generation,
    /// Those that it follows.
    pub(super) earlier: Vec<Weak<Agent>>,
}

/// Starts a process, tells everyone who waits for it, and keeps it to its end.
pub(super) async fn run(pool: Arc<Inner>, it: Start, outcome: watch::Sender<Option<StartOutcome>>) {
    let started_at = Instant::now();
    let Start {
        key,
        launch,
        generation,
        earlier,
    } = it;
    let started = match start(&pool, &key, &launch).await {
        Ok((process, connection, initialized)) => tokio::select! {
            biased;
            () = is_shut_down(&pool) => Err((AcquireError::ShuttingDown, Some(process))),
            () = ends_of(&earlier) => Ok((process, connection, initialized)),
        },
        failed => failed,
    };
    let (mut process, connection, initialized) = match started {
        Ok(started) => started,
        Err((error, process)) => {
            tracing::info!(agent = key.agent(), %error, "an agent did not start");
            if let Some(process) = process {
                end(&pool, process).await;
            }
            // Waiters hear of it when the books are right, so that their next try finds them so.
            pool.failed(&key, generation);
            outcome.send_replace(Some(Err(error)));
            return;
        }
    };
    let stop = CancellationToken::new();
    let (stopped_sender, stopped) = watch::channel(false);
    let agent = Arc::new(Agent {
        key,
        generation,
        pid: process.pid(),
        connection,
        initialized: Arc::new(initialized),
        leases: Leases::new(),
        stop: stop.clone(),
        condemned: OnceLock::new(),
        stopped,
    });
    pool.started(&agent);
    outcome.send_replace(Some(Ok(Arc::clone(&agent))));
    // From here on only the agent's users and the slot hold it.
    drop(outcome);

    let reason = keep(&pool, &agent, &stop).await;
    match reason {
        Reason::Died => pool.died(&agent, started_at.elapsed()),
        Reason::Unused | Reason::Asked | Reason::Shutdown => pool.remove(&agent),
    }
    agent.connection.close_input();
    let report = stop_process(&pool, &mut process).await;
    forget(&pool, &process, &report).await;
    if report.status.is_some() {
        // The stop is reported last: by then the reader has told everybody, which takes a moment longer than the process's end.
        agent.connection.died().await;
    }
    if report.is_complete() {
        stopped_sender.send_replace(true);
    }
    // After this line nothing writes to the files of its sessions.
    tracing::info!(
        agent = agent.key.agent(),
        pid = agent.pid,
        ?reason,
        stopped_by = ?report.stopped_by,
        swept = report.sweep.ended.len(),
        survivors = report.sweep.survivors.len(),
        "an agent has ended"
    );
}

/// Waits for the ends of those that have died, or are about to: what they have left behind may still write. Beside the
/// start of their successor, which takes longer.
async fn ends_of(earlier: &[Weak<Agent>]) {
    for agent in earlier.iter().filter_map(Weak::upgrade) {
        // One that is only retired still serves its users.
        if agent.is_ending() {
            agent.stopped().await;
        }
    }
}

type Started = (ChildProcess, Connection, Initialized);

/// Spawns and initializes; a process that is left over comes back with the error.
async fn start(
    pool: &Inner,
    key: &PoolKey,
    launch: &Launch,
) -> Result<Started, (AcquireError, Option<ChildProcess>)> {
    let agent = key.agent();
    let spawn_failed = |source| AcquireError::Spawn {
        agent: agent.to_owned(),
        source: Arc::new(source),
    };
    let mark = SpawnMark::random(&pool.instance);
    let mut process = process::spawn(&launch.command, agent, &mark, &*pool.recorder)
        .await
        .map_err(|error| (spawn_failed(error), None))?;
    let Some((stdin, stdout)) = process.take_pipes() else {
        let error = SpawnError::System {
            program: launch.command.program.clone(),
            source: std::io::Error::other("the new process has no pipes"),
        };
        return Err((spawn_failed(error), Some(process)));
    };
    let connection = Connection::over(stdout, stdin, process.watch(), launch.wire.clone());
    let initialized = tokio::select! {
        biased;
        () = is_shut_down(pool) => return Err((AcquireError::ShuttingDown, Some(process))),
        initialized = session::initialize(&connection, &launch.initialize, pool.settings.initialize) => initialized,
        () = connection.chatters(MAX_CHATTER_AT_START) => {
            let error = AcquireError::Chatters {
                agent: agent.to_owned(),
                printed: Box::new(connection.chatter()),
            };
            return Err((error, Some(process)));
        }
    };
    let printed = Box::new(connection.chatter());
    match initialized {
        Ok(initialized) if initialized.protocol_version != session::PROTOCOL_VERSION => {
            let error = AcquireError::Version {
                agent: agent.to_owned(),
                theirs: initialized.protocol_version,
                ours: session::PROTOCOL_VERSION,
            };
            Err((error, Some(process)))
        }
        Ok(initialized) => Ok((process, connection, initialized)),
        Err(CallError::Died(death)) => {
            let error = SpawnError::DiedAtOnce {
                program: launch.command.program.clone(),
                death,
                printed: printed.to_string(),
            };
            Err((spawn_failed(error), Some(process)))
        }
        Err(error) => {
            let error = AcquireError::Initialize {
                agent: agent.to_owned(),
                printed,
                source: Box::new(error),
            };
            Err((error, Some(process)))
        }
    }
}

/// Waits until there is a reason to end the process.
async fn keep(pool: &Inner, agent: &Agent, stop: &CancellationToken) -> Reason {
    let mut usage = agent.leases.usage.subscribe();
    loop {
        let now = *usage.borrow_and_update();
        let patience = if now.is_retired || now.is_for_a_look {
            Duration::ZERO
        } else {
            pool.settings.idle
        };
        let unused = async {
            if now.leases == 0 {
                tokio::time::sleep(patience).await;
            } else {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            _ = agent.connection.died() => return Reason::Died,
            () = is_shut_down(pool) => return Reason::Shutdown,
            () = stop.cancelled() => return Reason::Asked,
            // The sender lives in the agent, which is held here.
            _ = usage.changed() => {}
            () = unused => if pool.remove_if_unused(agent) { return Reason::Unused },
        }
    }
}

pub(super) async fn is_shut_down(pool: &Inner) {
    let mut shutdown = pool.shutdown.subscribe();
    if shutdown.wait_for(Option::is_some).await.is_err() {
        // The pool holds the sender and is held here; should that change, this is no shutdown.
        std::future::pending::<()>().await;
    }
}

/// Ends a process that nobody uses.
async fn end(pool: &Inner, mut process: ChildProcess) {
    let report = stop_process(pool, &mut process).await;
    forget(pool, &process, &report).await;
}

async fn stop_process(pool: &Inner, process: &mut ChildProcess) -> StopReport {
    let deadlines: Option<StopDeadlines> = *pool.shutdown.borrow();
    process
        .stop(deadlines.unwrap_or(pool.settings.stop), &pool.hurry)
        .await
}

/// Takes the record of a process away, unless something of it is still there for the next life to end.
async fn forget(pool: &Inner, process: &ChildProcess, report: &StopReport) {
    if !report.is_complete() {
        return;
    }
    let mark = process.record().mark.clone();
    if let Err(error) = pool.recorder.ended(mark).await {
        tracing::warn!(%error, pid = process.pid(), "the end of an agent is not recorded");
    }
}
