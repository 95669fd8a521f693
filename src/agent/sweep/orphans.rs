//! Orphans: descendants of agents whose parents have ended, and which are therefore children of this process.
//!
//! This module has the kernel make them that, and waits for their ends, or they would stay in the process table. It
//! sends no signals. Descent shows whose they are even if they have cleared their environment.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{WaitOptions, getpid, set_child_subreaper, waitpid};
use tokio::signal::unix::{SignalKind, signal};

use super::table;

/// Whether the orphans among the children of this process are of agents.
static ARE_ADOPTED: AtomicBool = AtomicBool::new(false);

/// See [`super::adopt_orphans`].
pub(super) fn adopt() -> io::Result<()> {
    // The first process of a container gets the orphans of all others, and a program that was replaced by this one may have left
    // children: those are not the agents'.
    if getpid().is_init() || table::children().next().is_some() {
        return Ok(());
    }
    set_child_subreaper(Some(getpid()))?;
    ARE_ADOPTED.store(true, Ordering::Relaxed);
    let mut ended = signal(SignalKind::child())?;
    tokio::spawn(async move {
        while ended.recv().await.is_some() {
            if let Err(error) = tokio::task::spawn_blocking(wait_for_ended).await {
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

/// Takes note of the ends of all orphans that have ended.
fn wait_for_ended() {
    let ended: Vec<_> = table::children().filter(|child| child.has_ended).collect();
    // After the search, which takes a while: a process that was being started meanwhile is in the set now.
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
