//! Adopts orphans: descendants of agents whose parents have ended become children of this process.
//!
//! This lets a sweep find them even if they have cleared their environment. This module asks the kernel for it and
//! reaps the orphans that have ended, which would otherwise stay in the process table. It sends no signals.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{
    WaitId, WaitIdOptions, WaitIdStatus, WaitOptions, getpid, set_child_subreaper, waitid, waitpid,
};
use tokio::signal::unix::{SignalKind, signal};

use super::table;

/// Whether this process adopts orphans, so that orphans among its children are descendants of agents.
static ARE_ADOPTED: AtomicBool = AtomicBool::new(false);

/// Makes this process adopt descendants whose parents end, and reaps them when they end. Call it in a tokio runtime.
///
/// # Errors
/// If the system refuses.
pub fn adopt_orphans() -> io::Result<()> {
    // Do not adopt as the first process of a container, which gets the orphans of all other processes, or if there are children
    // already, left by a program that this one replaced with exec. Those do not descend from agents.
    if getpid().is_init() || has_children() {
        return Ok(());
    }
    set_child_subreaper(Some(getpid()))?;
    ARE_ADOPTED.store(true, Ordering::Relaxed);
    let mut ended = signal(SignalKind::child())?;
    tokio::spawn(async move {
        while ended.recv().await.is_some() {
            if let Err(error) = tokio::task::spawn_blocking(reap_ended_orphans).await {
                tracing::error!(%error, "cannot wait for orphans that have ended");
            }
        }
    });
    Ok(())
}

/// Whether this process has adopted orphans.
pub(super) fn are_adopted() -> bool {
    ARE_ADOPTED.load(Ordering::Relaxed)
}

/// Whether this process has children, running or ended.
fn has_children() -> bool {
    peek_ended_child().is_ok()
}

/// Returns a child that has ended and is not reaped yet, and leaves it so. `Ok(None)` means that all children run, and
/// an error that there are none.
fn peek_ended_child() -> rustix::io::Result<Option<WaitIdStatus>> {
    waitid(
        WaitId::All,
        WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT,
    )
}

/// Reaps all orphans that have ended.
fn reap_ended_orphans() {
    // Usually an agent has ended, and its own task has reaped it.
    if !matches!(peek_ended_child(), Ok(Some(_))) {
        return;
    }
    let ended: Vec<_> = table::children().filter(|child| child.has_ended).collect();
    // Lock only after the search, which takes a while. A child that was started meanwhile is in the set by then.
    let started = super::started_children();
    let pids = ended
        .iter()
        .map(|child| child.pid)
        .filter(|pid| !started.contains(pid));
    for pid in pids.filter_map(table::as_pid) {
        if let Err(error) = waitpid(Some(pid), WaitOptions::NOHANG) {
            tracing::debug!(%error, ?pid, "cannot wait for an orphan that has ended");
        }
    }
}
