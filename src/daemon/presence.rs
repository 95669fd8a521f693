//! Watches whether the daemon can still be found: its lock file, and the sockets for clients.
//!
//! A socket can disappear while the daemon runs, for example with the runtime folder of a user whose last session
//! ended. A data folder can be removed. This module decides when to check. The caller reacts to a loss.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::lock::DaemonLock;
use crate::server::SocketFile;

/// How often to check, in addition to watching. The lock's folder itself is not watched, because every change is written
/// there. The lock file and the parent of that folder are watched.
const CHECK_EVERY: Duration = Duration::from_secs(60);

/// How long after an event to check. By then, a program that removes all of the daemon's folders is done, so that it
/// does not also remove a new socket.
const CHECK_AFTER: Duration = Duration::from_millis(200);

/// How often to retry listening, for example while the runtime folder is missing.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// What was moved or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LostFile {
    /// The lock file. This daemon can no longer be found by its data folder, and another may start.
    Lock,
    /// The socket with this path. Clients can no longer connect there.
    Socket(PathBuf),
}

/// Watches the daemon's lock file and sockets.
pub(super) struct PresenceWatch<'a> {
    lock: &'a DaemonLock,
    sockets: Vec<SocketFile>,
    /// Reports events at the lock, around its folder, and in the folder of the first socket. `None` while they are
    /// ignored.
    watcher: Option<RecommendedWatcher>,
    changed: Arc<Notify>,
    next_check: Instant,
}

impl<'a> PresenceWatch<'a> {
    pub(super) fn new(lock: &'a DaemonLock, sockets: Vec<SocketFile>) -> Self {
        let changed = Arc::new(Notify::new());
        Self {
            lock,
            watcher: watch(lock, &sockets, &changed),
            sockets,
            changed,
            // Also covers what happened before the watch.
            next_check: Instant::now(),
        }
    }

    /// Waits until something was moved or removed. Cancel safe.
    pub(super) async fn wait_until_lost(&mut self) -> LostFile {
        loop {
            tokio::select! {
                () = self.changed.notified() => {
                    self.next_check = self.next_check.min(Instant::now() + CHECK_AFTER);
                    continue;
                }
                () = tokio::time::sleep_until(self.next_check) => {}
            }
            self.next_check = Instant::now() + CHECK_EVERY;
            if self.lock.is_lost() {
                return LostFile::Lock;
            }
            if let Some(socket) = self.sockets.iter().find(|socket| socket.is_lost()) {
                return LostFile::Socket(socket.path().to_owned());
            }
        }
    }

    /// Switches to the daemon's new socket, which has the path of a lost one.
    pub(super) fn replace_socket(&mut self, socket: SocketFile) {
        let path = socket.path().to_owned();
        // Dropping the lost socket does not remove the new socket's file.
        self.sockets.retain(|own| own.path() != path);
        self.sockets.push(socket);
        self.watcher = watch(self.lock, &self.sockets, &self.changed);
        // Another socket may be lost too.
        self.next_check = Instant::now();
    }

    /// Called if listening on a new socket failed. The old one is reported as lost again after a while. Events in its
    /// folder are ignored, because the retries may cause them.
    pub(super) fn retry_later(&mut self) {
        self.watcher = None;
        self.next_check = Instant::now() + RETRY_EVERY;
    }
}

/// Watches the paths that can be watched. All paths are also checked regularly.
fn watch(lock: &DaemonLock, sockets: &[SocketFile], changed: &Arc<Notify>) -> Option<RecommendedWatcher> {
    let changed = Arc::clone(changed);
    let watcher = notify::recommended_watcher(move |_| changed.notify_one());
    let mut watcher = watcher
        .inspect_err(|error| tracing::debug!(%error, "cannot watch the data folder and the socket"))
        .ok()?;
    let lock = lock.path();
    let around = lock.parent().and_then(Path::parent);
    let socket = sockets.first().and_then(|socket| socket.path().parent());
    for path in [Some(lock), around, socket].into_iter().flatten() {
        if let Err(error) = watcher.watch(path, RecursiveMode::NonRecursive) {
            tracing::debug!(path = %path.display(), %error, "cannot watch; checking regularly");
        }
    }
    Some(watcher)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use std::fs;

    use super::*;
    use crate::daemon::lock::LockInfo;
    use crate::server::PrivateSocket;

    fn lock(folder: &Path) -> DaemonLock {
        let info = LockInfo {
            pid: 1,
            socket: "/nowhere".into(),
            acp_socket: None,
            home: None,
            config: None,
            started_at: jiff::Timestamp::UNIX_EPOCH,
        };
        DaemonLock::acquire(&folder.join(crate::paths::names::LOCK), &info).unwrap()
    }

    /// Includes the listener, which keeps the inode from being reused.
    fn bound(path: &Path) -> (tokio::net::UnixListener, SocketFile) {
        let PrivateSocket { listener, file } = PrivateSocket::bind(path).unwrap();
        (listener, file)
    }

    #[tokio::test]
    async fn a_removed_socket_is_reported_and_its_replacement_is_watched() {
        let (data, run) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (lock, path) = (lock(data.path()), run.path().join("folder/s.sock"));
        let (first, file) = bound(&path);
        let mut listeners = vec![first];
        let mut presence = PresenceWatch::new(&lock, vec![file]);
        for _ in 0..2 {
            fs::remove_dir_all(path.parent().unwrap()).unwrap();
            assert_eq!(presence.wait_until_lost().await, LostFile::Socket(path.clone()));
            let (listener, file) = bound(&path);
            listeners.push(listener);
            presence.replace_socket(file);
        }
        // Another file at the socket's path counts as a loss too.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        assert_eq!(presence.wait_until_lost().await, LostFile::Socket(path.clone()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_removed_lock_is_reported_without_a_watch() {
        let (data, run) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let lock = lock(data.path());
        let (_listener, file) = bound(&run.path().join("s.sock"));
        let mut presence = PresenceWatch::new(&lock, vec![file]);
        presence.retry_later();
        let began = Instant::now();
        let lost = tokio::time::timeout(CHECK_EVERY * 3, presence.wait_until_lost()).await;
        assert!(lost.is_err(), "{lost:?}: nothing was moved");
        // Another file at the lock's path does not make it present.
        let path = data.path().join(crate::paths::names::LOCK);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        assert_eq!(presence.wait_until_lost().await, LostFile::Lock);
        assert!(began.elapsed() <= CHECK_EVERY * 4);
    }
}
