//! One run of the daemon, from reading the configuration to the last flush.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::activation;
use super::arguments::Arguments;
use super::config::{CatalogContext, Config};
use super::failure::StartError;
use super::folders;
use super::loaded_config::LoadedConfig;
use super::lock::{DaemonLock, LockInfo};
use super::presence::PresenceWatch;
use super::ready;
use super::servers::{Servers, restore_sockets};
use crate::agent::catalog::Catalog;
use crate::agent::inbox::InboxLimits;
use crate::agent::pool::{Pool, PoolSettings};
use crate::agent::process::{Instance, StopDeadlines};
use crate::agent::sweep::{SweepTarget, adopt_orphans, sweep};
use crate::bridge::Bridge;
use crate::conversation::backup::{BackupRules, Backups};
use crate::conversation::events::{Hub, RingLimits};
use crate::conversation::old_bytes::OldBytes;
use crate::conversation::read_queues::ReadQueues;
use crate::conversation::registry::Registry;
use crate::conversation::services::{Services, chain_text};
use crate::conversation::transcript_growth::RecheckQueue;
use crate::conversation::uncommitted_copies::CopyPlans;
use crate::conversation::unusable_files;
use crate::conversation::wakeups::WakeupQueue;
use crate::files::durable;
use crate::paths::names;
use crate::paths::ownership::{self, Role};
use crate::paths::{Environment, Paths, PathsError};
use crate::server::PrivateSocket;
use crate::store::{Change, OpenReport, Store, StoreOptions};
use crate::transcript::index_cache::IndexCache;

/// The error if the system refuses a signal handler.
const SIGNALS_FAILED: &str = "cannot handle signals";

/// Runs the daemon until it stops.
///
/// # Errors
/// If it cannot start.
pub async fn run(arguments: &Arguments) -> Result<(), StartError> {
    let started = Instant::now();
    let paths = resolve_paths(arguments)?;
    // Before anything is created. Missing entries are checked again when they are created or opened.
    ownership::check(&paths)?;
    let configured = Arc::new(LoadedConfig::read(
        &paths.config_file,
        arguments.config.is_some(),
    )?);
    let config = &configured.config;

    // Before the first file is written.
    handle_file_size_signal().map_err(StartError::io(SIGNALS_FAILED))?;
    folders::create_private(Role::Data, &paths.data)?;
    folders::check_entries(&paths.data)?;
    let info = LockInfo {
        pid: std::process::id(),
        socket: paths.bridge_socket.clone(),
        acp_socket: Some(paths.acp_socket.clone()),
        home: paths.home.clone(),
        config: Some(paths.config_file.clone()),
        started_at: Timestamp::now(),
    };
    let mut lock = DaemonLock::acquire(&paths.lock_file(), &info)?;
    if arguments.ready_on_stdin {
        // The starter's terminal must not end the daemon. This fails for a session leader, which is in its own
        // session already.
        if let Err(error) = rustix::process::setsid() {
            tracing::debug!(%error, "did not leave the starter's session");
        }
    }
    let mut signals = StopSignals::listen().map_err(StartError::io(SIGNALS_FAILED))?;
    let catalog = read_catalog(config, &paths)?;

    let (instance, is_first_run) = load_instance(&paths.data)?;
    let (store, open_report) = open_store(&paths, arguments.ephemeral)?;
    // Before any agent is started.
    if let Err(error) = adopt_orphans() {
        tracing::warn!(%error, "cannot adopt orphaned processes; agents' helpers may outlive the daemon");
    }
    // Before anything closes the store: to the next start, a closed store means that no process is left.
    sweep_previous_run(&store, &instance, is_first_run || open_report.was_closed_cleanly).await;
    // Before any process is started that could inherit it.
    let passed_listener = activation::listener();
    let passed_listener = passed_listener.map_err(StartError::io(
        "the service manager passed no listening Unix socket",
    ))?;
    let pool_settings = PoolSettings {
        idle_limit: Duration::from_millis(config.agent_idle_ms()),
        initialize_limit: Duration::from_millis(config.limits.agent_start_ms),
        ..PoolSettings::default()
    };
    let pool = Pool::new(instance, pool_settings, store.clone());
    let services = Arc::new(Services {
        store: store.clone(),
        pool: pool.clone(),
        catalog,
        diagnose_configuration: {
            let configured = Arc::clone(&configured);
            Box::new(move || configured.diagnose())
        },
        hub: Hub::new(RingLimits::DAEMON, RingLimits::CONVERSATION),
        rules: config.rules(TimeZone::system),
        data_folder: paths.data.clone(),
        inbox_limits: InboxLimits::default(),
        session_deadline: Duration::from_millis(config.limits.session_open_ms),
        index_cache: IndexCache::default(),
        rechecks: RecheckQueue::default(),
        old_bytes: OldBytes::default(),
        copy_plans: CopyPlans::in_data_folder(&paths.data, store.clone()),
        wakeups: WakeupQueue::new(config.limits.continuations),
        backups: Backups::new(paths.data.join(names::KEPT), backup_rules(config, arguments)),
        running_work: Arc::default(),
        read_queues: ReadQueues::default(),
    });
    let registry = Registry::new(services);
    let deletions = registry
        .end_turns_of_previous_run()
        .await
        .map_err(StartError::PreviousRun)?;
    let is_stopped = tokio::select! {
        biased;
        () = signals.received() => true,
        () = settle_previous_run(&registry, &store) => false,
    };
    if is_stopped {
        registry.stop(Duration::ZERO).await;
        close(&store).await;
        return Ok(());
    }

    let socket = match passed_listener {
        Some(listener) => PrivateSocket::from_service_manager(listener, &paths.bridge_socket)?,
        None => PrivateSocket::bind(&paths.bridge_socket)?,
    };
    let (stop_sender, mut stop_requests) = mpsc::channel(1);
    let bridge = Arc::new(Bridge {
        registry: Arc::clone(&registry),
        home: paths.home.clone().unwrap_or_else(|| paths.data.clone()),
        socket: paths.bridge_socket.clone(),
        started,
        set_aside_store: open_report.set_aside,
        stop: stop_sender,
    });
    let mut servers = Servers::new(bridge, &paths.acp_socket, config);
    let mut sockets = vec![servers.serve(socket)];
    match PrivateSocket::bind(&paths.acp_socket) {
        Ok(socket) => sockets.push(servers.serve(socket)),
        // Apps and commands need only the other socket. Editors find no socket, rather than another daemon's.
        Err(error) => {
            tracing::error!(error = chain_text(&error), "cannot listen for editors");
            let acp_socket = None;
            lock.publish(&LockInfo { acp_socket, ..info })?;
        }
    }
    registry.finish_deletions(deletions);
    registry.wake_conversations();
    registry.run_backups();
    announce_ready(arguments, &paths);

    let mut presence = PresenceWatch::new(&lock, sockets);
    let grace = tokio::select! {
        () = signals.received() => None,
        request = stop_requests.recv() => request.and_then(|request| request.grace),
        () = store.removed() => {
            log_removed_folder(&paths.data);
            None
        }
        () = restore_sockets(&mut presence, &mut servers) => {
            log_removed_folder(&paths.data);
            None
        }
    };
    let grace = grace.unwrap_or(Duration::from_millis(config.limits.cancel_grace_ms));
    stop_conversations(&registry, &pool, grace, signals).await;
    servers.stop().await;
    close(&store).await;
    drop(presence);
    // Hold the lock until the process ends, so that a caller that waits for the lock also waits for the process.
    let _held_to_the_end = std::mem::ManuallyDrop::new(lock);
    Ok(())
}

/// Finds out where the daemon's files are.
fn resolve_paths(arguments: &Arguments) -> Result<Paths, StartError> {
    let absolute = |path: &Option<PathBuf>| path.as_deref().map(std::path::absolute).transpose();
    let made = (
        absolute(&arguments.home),
        absolute(&arguments.config),
        absolute(&arguments.socket),
    );
    let (Ok(home), Ok(config), Ok(socket)) = made else {
        return Err(PathsError::NoHome.into());
    };
    let environment = Environment::of_this_process();
    let paths = Paths::resolve(
        home.as_deref(),
        config.as_deref(),
        socket.as_deref(),
        &environment,
    )?;
    Ok(paths)
}

/// Finds the configured agents, and those that are installed.
fn read_catalog(config: &Config, paths: &Paths) -> Result<Catalog, StartError> {
    let this_program = std::env::current_exe();
    let this_program = this_program.map_err(StartError::io("cannot use this program"))?;
    // An editor may start the daemon without HOME.
    let home_folder = std::env::home_dir();
    let context = CatalogContext {
        this_program: &this_program,
        data: &paths.data,
        home: home_folder.as_deref(),
        variable: &|name| std::env::var_os(name),
    };
    config.catalog(&context).map_err(|problem| StartError::Config {
        path: paths.config_file.clone(),
        problem,
    })
}

/// Finishes or undoes the imports, copies and moves of the previous run, before clients are served, which may import. Then
/// watches the transcripts.
async fn settle_previous_run(registry: &Arc<Registry>, store: &Store) {
    let is_settled = registry.settle_unfinished_work().await;
    // A later start may delete files on the assumption that the store is complete, so no plan from before a loss
    // may be left.
    if !is_settled {
        tracing::warn!("the next start reports any damage of the store again");
    } else if let Err(error) = store.delete_open_report() {
        tracing::warn!(
            error = chain_text(&error),
            "the next start reports the damage of the store again"
        );
    }
    registry.watch_transcripts().await;
}

fn log_removed_folder(data: &Path) {
    tracing::error!(folder = %data.display(), "the data folder was removed or replaced; the daemon stops");
}

/// Added to twice the grace when waiting for conversations to stop. A cancelled turn may take one grace, and closing its session
/// another. After that the agents are ended, because a conversation may be waiting for one that does not answer.
const STOP_MARGIN: Duration = Duration::from_secs(1);

/// Ends all turns within `grace`, and then all agents. A signal meanwhile skips the waits.
async fn stop_conversations(registry: &Registry, pool: &Pool, grace: Duration, mut signals: StopSignals) {
    tracing::info!("the daemon stops");
    let skip_waits = CancellationToken::new();
    let second_signal = {
        let (skip_waits, pool) = (skip_waits.clone(), pool.clone());
        tokio::spawn(async move {
            signals.received().await;
            tracing::info!("got a second signal; stopping at once");
            skip_waits.cancel();
            pool.skip_shutdown_waits();
        })
    };
    let mut conversations = std::pin::pin!(registry.stop(grace));
    let has_stopped = tokio::select! {
        () = &mut conversations => true,
        () = skip_waits.cancelled() => true,
        () = tokio::time::sleep(2 * grace + STOP_MARGIN) => false,
    };
    pool.shutdown().await;
    if !has_stopped {
        // They waited for agents, all of which have ended now.
        tokio::select! {
            () = conversations => {}
            () = skip_waits.cancelled() => {}
        }
    }
    second_signal.abort();
}

/// The signals that stop the daemon.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for one of the signals. Cancel safe.
    async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

async fn close(store: &Store) {
    if let Err(error) = store.shutdown().await {
        tracing::error!(
            error = chain_text(&error),
            "cannot flush the store; the journal has everything"
        );
    }
}

/// Makes a write beyond the file size limit fail, as on a full disk, instead of ending the process.
///
/// The signal is handled rather than ignored, because agents would inherit an ignored signal.
fn handle_file_size_signal() -> io::Result<()> {
    let number = rustix::process::Signal::XFSZ.as_raw();
    // The handler stays in place after its listener is dropped.
    signal(SignalKind::from_raw(number)).map(drop)
}

/// Opens the store, and logs what was wrong with it.
fn open_store(paths: &Paths, ephemeral: bool) -> Result<(Store, OpenReport), StartError> {
    if ephemeral {
        return Ok((Store::ephemeral()?, OpenReport::default()));
    }
    let (store, report) = Store::open(
        &paths.data,
        StoreOptions {
            now: Some(Timestamp::now()),
            existed_before: unusable_files::has_earlier_data(&paths.data),
        },
    )?;
    if report.replayed > 0 {
        tracing::info!(
            changes = report.replayed,
            "applied journal changes that the database lacked"
        );
    }
    if let Some(reason) = &report.rebuild_reason {
        tracing::warn!(?reason, set_aside = ?report.set_aside, "rebuilt the database from the journal");
    }
    if let Some(region) = &report.cut_off {
        tracing::warn!(?region, kept = ?report.journal_copy, "cut off the unreadable end of the journal");
    }
    if report.is_damaged() {
        tracing::error!(
            missing = report.missing,
            restored = report.restored,
            unreadable = report.unreadable_values,
            regions = ?report.damaged,
            journal = ?report.journal_copy,
            database = ?report.set_aside,
            "the journal was damaged or missing; {}",
            match report.may_have_lost() {
                true => "changes may be lost, and everything readable in it and in the database is in use",
                false => "it was restored from the database, and nothing is lost",
            }
        );
    }
    Ok((store, report))
}

/// Returns this data folder's random name, and whether it was created now.
fn load_instance(data: &Path) -> Result<(Instance, bool), StartError> {
    let path = data.join(names::INSTANCE);
    let failed = StartError::io(format!("cannot use {}", path.display()));
    match std::fs::read_to_string(&path) {
        Ok(name) if !name.trim().is_empty() => return Ok((Instance::new(name.trim()), false)),
        Ok(_) => {}
        // Damaged: the name is lost, as if the file were missing.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let name = Uuid::new_v4().simple().to_string();
    durable::write(&path, name.as_bytes()).map_err(failed)?;
    Ok((Instance::new(&name), true))
}

/// Ends all processes that an earlier run of the daemon left.
///
/// A run that ended cleanly closed its store after its last agent had ended, and recorded the processes that it could
/// not end. Without such records there is nothing to look for, and the process table is not read.
async fn sweep_previous_run(store: &Store, instance: &Instance, ended_well: bool) {
    let recorded = match store.processes() {
        Ok(recorded) => recorded,
        Err(error) => {
            tracing::error!(
                error = chain_text(&error),
                "cannot read the recorded processes of the previous run"
            );
            Vec::new()
        }
    };
    if ended_well && recorded.is_empty() {
        return;
    }
    let target = SweepTarget::instance(instance.clone(), recorded.clone());
    let swept = tokio::task::spawn_blocking(move || sweep(&target, StopDeadlines::default())).await;
    match swept {
        Ok(report) => {
            for ended in &report.ended {
                tracing::info!(
                    pid = ended.pid,
                    name = ended.name,
                    "ended a process of the previous run"
                );
            }
            for survivor in &report.survivors {
                tracing::error!(
                    pid = survivor.pid,
                    name = survivor.name,
                    "cannot end a process of the previous run"
                );
            }
        }
        Err(error) => tracing::error!(%error, "cannot end the processes of the previous run"),
    }
    let marks: Vec<String> = recorded.into_iter().map(|process| process.mark).collect();
    if !marks.is_empty()
        && let Err(error) = store
            .commit(Change {
                processes_removed: marks,
                ..Change::default()
            })
            .await
    {
        tracing::warn!(
            error = chain_text(&error),
            "cannot delete the process records of the previous run"
        );
    }
}

/// With the store in memory, no backups are made, because no later run would know about them.
fn backup_rules(config: &Config, arguments: &Arguments) -> BackupRules {
    let rules = config.keep;
    BackupRules {
        is_enabled: rules.is_enabled && !arguments.ephemeral,
        ..rules
    }
}

fn announce_ready(arguments: &Arguments, paths: &Paths) {
    if let Err(error) = ready::notify_service_manager("READY=1") {
        tracing::warn!(%error, "cannot notify the service manager");
    }
    if arguments.ready_on_stdin
        && let Err(error) = ready::notify_starter()
    {
        tracing::warn!(%error, "cannot notify the starter");
    }
    tracing::info!(socket = %paths.bridge_socket.display(), pid = std::process::id(), "the daemon is ready");
}
