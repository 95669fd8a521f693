//! The task of one process, from its spawn to the end of its last descendant.
//!
//! It owns the process, and decides when to end an unused or a retired one. Keys and backoff belong to the pool.

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

/// How many lines that are not messages a program may print before it answers `initialize`. At this number it is
/// reported as not speaking the protocol. Wrappers print a few; a program in interactive mode prints a screen.
const MAX_STRAY_LINES_AT_START: u64 = 32;

/// The use of an agent, and whether it may get new leases.
#[derive(Debug)]
pub(super) struct Leases {
    usage: watch::Sender<LeaseState>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct LeaseState {
    leases: usize,
    is_retired: bool,
    is_signed_out: bool,
    /// Whether it is leased only for inspection.
    is_inspected_only: bool,
}

impl Leases {
    fn new() -> Self {
        Self {
            usage: watch::Sender::new(LeaseState::default()),
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

    /// Marks it as inspected only: it ends with its last lease, unless a caller acquires it.
    pub(super) fn mark_inspected(&self, is_inspected_only: bool) {
        self.usage.send_if_modified(|usage| {
            let was = std::mem::replace(&mut usage.is_inspected_only, is_inspected_only);
            was != is_inspected_only
        });
    }

    /// Denies new leases; it ends with the last one.
    pub(super) fn retire(&self) {
        self.usage.send_modify(|usage| usage.is_retired = true);
    }
}

impl Agent {
    /// Denies new leases; the agent ends with its last one.
    pub fn retire(&self) {
        self.leases.retire();
    }

    /// Retires an agent that reported that nobody is signed in. It may read the credentials only at its start, so its
    /// users should switch to a new process.
    pub fn note_signed_out(&self) {
        self.leases.usage.send_modify(|usage| {
            usage.is_retired = true;
            usage.is_signed_out = true;
        });
    }

    /// Whether it reported that nobody is signed in.
    #[must_use]
    pub fn is_signed_out(&self) -> bool {
        self.leases.usage.borrow().is_signed_out
    }

    /// Waits until it reports that nobody is signed in. Cancel safe.
    pub fn signed_out(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut usage = self.leases.usage.subscribe();
        async move {
            if usage.wait_for(|usage| usage.is_signed_out).await.is_err() {
                // It ended without reporting that.
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

/// Why a process is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndReason {
    Died,
    Unused,
    Terminated,
    Shutdown,
}

/// A process to start.
pub(super) struct StartRequest {
    pub(super) key: PoolKey,
    pub(super) launch: Launch,
    pub(super) generation: Generation,
    /// The processes that it succeeds.
    pub(super) predecessors: Vec<Weak<Agent>>,
}

/// Starts a process, notifies everyone who waits for it, and keeps it until it ends.
pub(super) async fn run(
    pool: Arc<Inner>,
    start_request: StartRequest,
    outcome: watch::Sender<Option<StartOutcome>>,
) {
    let started_at = Instant::now();
    let StartRequest {
        key,
        launch,
        generation,
        predecessors: earlier,
    } = start_request;
    let program = launch.command.program_file();
    let started = match start(&pool, &key, &launch).await {
        Ok((process, connection, initialized)) => tokio::select! {
            biased;
            () = wait_for_shutdown(&pool) => Err((AcquireError::ShuttingDown, Some(process))),
            () = wait_for_predecessors(&earlier) => Ok((process, connection, initialized)),
        },
        failed => failed,
    };
    let (mut process, connection, initialized) = match started {
        Ok(started) => started,
        Err((error, process)) => {
            tracing::info!(agent = key.agent(), %error, "an agent did not start");
            if let Some(process) = process {
                stop_unused(&pool, process).await;
            }
            // Update the pool before notifying the waiters, so that their next try sees it.
            pool.record_failed_start(&key, generation);
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
        program,
        leases: Leases::new(),
        stop: stop.clone(),
        termination_reason: OnceLock::new(),
        stopped,
    });
    pool.record_start(&agent);
    outcome.send_replace(Some(Ok(Arc::clone(&agent))));
    // From here on, only the agent's users and the slot hold it.
    drop(outcome);

    let reason = wait_for_end_reason(&pool, &agent, &stop).await;
    match reason {
        EndReason::Died => pool.record_death(&agent, started_at.elapsed()),
        EndReason::Unused | EndReason::Terminated | EndReason::Shutdown => pool.remove(&agent),
    }
    process.record_descendants().await;
    agent.connection.close_input();
    let report = stop_process(&pool, &mut process).await;
    delete_process_record(&pool, &process, &report).await;
    if report.status.is_some() {
        // Report the stop last: the reader notifies everyone slightly after the process ends.
        agent.connection.died().await;
    }
    if report.is_complete() {
        stopped_sender.send_replace(true);
    }
    // No process writes to the files of its sessions any more.
    tracing::info!(
        agent = agent.key.agent(),
        pid = agent.pid,
        ?reason,
        stopped_by = ?report.last_step,
        swept = report.sweep.ended.len(),
        survivors = report.sweep.survivors.len(),
        "an agent has ended"
    );
}

/// Waits until dead or ending predecessors have ended completely, because their descendants may still write. This runs
/// in parallel with the start of the successor, which usually takes longer.
async fn wait_for_predecessors(earlier: &[Weak<Agent>]) {
    for agent in earlier.iter().filter_map(Weak::upgrade) {
        // A retired process still serves its users.
        if agent.is_ending() {
            agent.stopped().await;
        }
    }
}

type StartedProcess = (ChildProcess, Connection, Initialized);

/// Spawns and initializes a process. An error includes the process if it is still running.
async fn start(
    pool: &Inner,
    key: &PoolKey,
    launch: &Launch,
) -> Result<StartedProcess, (AcquireError, Option<ChildProcess>)> {
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
        () = wait_for_shutdown(pool) => return Err((AcquireError::ShuttingDown, Some(process))),
        initialized = session::initialize(&connection, &launch.initialize, pool.settings.initialize_limit) => initialized,
        () = connection.stray_lines_reached(MAX_STRAY_LINES_AT_START) => {
            let error = AcquireError::NotProtocol {
                agent: agent.to_owned(),
                printed: Box::new(connection.stray_output()),
            };
            return Err((error, Some(process)));
        }
    };
    let printed = Box::new(connection.stray_output());
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
async fn wait_for_end_reason(pool: &Inner, agent: &Agent, stop: &CancellationToken) -> EndReason {
    let mut usage = agent.leases.usage.subscribe();
    loop {
        let now = *usage.borrow_and_update();
        let patience = if now.is_retired || now.is_inspected_only {
            Duration::ZERO
        } else {
            pool.settings.idle_limit
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
            _ = agent.connection.died() => return EndReason::Died,
            () = wait_for_shutdown(pool) => return EndReason::Shutdown,
            () = stop.cancelled() => return EndReason::Terminated,
            // Cannot fail: `agent` owns the sender.
            _ = usage.changed() => {}
            () = unused => if pool.remove_if_unused(agent) { return EndReason::Unused },
        }
    }
}

pub(super) async fn wait_for_shutdown(pool: &Inner) {
    let mut shutdown = pool.shutdown.subscribe();
    if shutdown.wait_for(Option::is_some).await.is_err() {
        // Unreachable while `pool` holds the sender. A dropped sender must not count as a shutdown.
        std::future::pending::<()>().await;
    }
}

/// Ends a process without users.
async fn stop_unused(pool: &Inner, mut process: ChildProcess) {
    let report = stop_process(pool, &mut process).await;
    delete_process_record(pool, &process, &report).await;
}

async fn stop_process(pool: &Inner, process: &mut ChildProcess) -> StopReport {
    let deadlines: Option<StopDeadlines> = *pool.shutdown.borrow();
    process
        .stop(deadlines.unwrap_or(pool.settings.stop), &pool.skip_waits)
        .await
}

/// Deletes the record of a process, unless a descendant survived that the next run of the daemon must end.
async fn delete_process_record(pool: &Inner, process: &ChildProcess, report: &StopReport) {
    if !report.is_complete() {
        return;
    }
    let mark = process.record().mark.clone();
    if let Err(error) = pool.recorder.ended(mark).await {
        tracing::warn!(%error, pid = process.pid(), "cannot record the end of an agent");
    }
}
