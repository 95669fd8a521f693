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
use crate::agent::process::{self, ChildProcess, SpawnError, SpawnMark, StopReport};
use crate::agent::session::{self, Initialized};
use crate::agent::wire::Connection;
use crate::store::Change;

/// How many lines that are not messages a program may print before it answers `initialize`. At this number it is
/// reported as not speaking the protocol. Wrappers print a few; a program in interactive mode prints a screen.
const MAX_STRAY_LINES_AT_START: u64 = 32;

/// Why a process is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndReason {
    Died,
    Unused,
    Terminated,
    Shutdown,
}

/// Starts a process that succeeds the `earlier` ones, notifies everyone who waits for it, and keeps it until it ends.
pub(super) async fn run(
    pool: Arc<Inner>,
    key: PoolKey,
    launch: Launch,
    generation: Generation,
    earlier: Vec<Weak<Agent>>,
    outcome: watch::Sender<Option<StartOutcome>>,
) {
    let started_at = Instant::now();
    let program = launch.command.program_file();
    let started = match start(&pool, &key, &launch).await {
        Ok((process, connection, initialized)) => tokio::select! {
            biased;
            () = pool.shutdown.cancelled() => Err((AcquireError::ShuttingDown, Some(process))),
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
            pool.vacate_slot(&key, generation, |backoff| backoff.record_failure(Instant::now()));
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
        usage: watch::Sender::default(),
        stop: stop.clone(),
        termination_reason: OnceLock::new(),
        stopped,
    });
    pool.record_start(&agent);
    outcome.send_replace(Some(Ok(Arc::clone(&agent))));
    // From here on, only the agent's users and the slot hold it.
    drop(outcome);

    let reason = wait_for_end_reason(&pool, &agent, &stop).await;
    pool.vacate_slot(&agent.key, agent.generation, |backoff| {
        if reason == EndReason::Died {
            backoff.record_death(Instant::now(), started_at.elapsed());
        }
    });
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
    let (process, stdin, stdout) = process::spawn(&launch.command, agent, &mark, &pool.store)
        .await
        .map_err(|error| (spawn_failed(error), None))?;
    let connection = Connection::new(stdout, stdin, process.watch(), launch.wire.clone());
    let initialized = tokio::select! {
        biased;
        () = pool.shutdown.cancelled() => return Err((AcquireError::ShuttingDown, Some(process))),
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
    let mut usage = agent.usage.subscribe();
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
            () = pool.shutdown.cancelled() => return EndReason::Shutdown,
            () = stop.cancelled() => return EndReason::Terminated,
            // Cannot fail: `agent` owns the sender.
            _ = usage.changed() => {}
            () = unused => if pool.vacate_if_unused(agent) { return EndReason::Unused },
        }
    }
}

/// Ends a process without users.
async fn stop_unused(pool: &Inner, mut process: ChildProcess) {
    let report = stop_process(pool, &mut process).await;
    delete_process_record(pool, &process, &report).await;
}

async fn stop_process(pool: &Inner, process: &mut ChildProcess) -> StopReport {
    process.stop(pool.settings.stop, &pool.skip_waits).await
}

/// Deletes the record of a process, unless a descendant survived that the next run of the daemon must end.
async fn delete_process_record(pool: &Inner, process: &ChildProcess, report: &StopReport) {
    if !report.is_complete() {
        return;
    }
    let ended = Change {
        processes_removed: vec![process.record().mark.clone()],
        ..Change::default()
    };
    if let Err(error) = pool.store.commit(ended).await {
        tracing::warn!(%error, pid = process.pid(), "cannot record the end of an agent");
    }
}
