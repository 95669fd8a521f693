//! Whether the daemon still is where others look for it: its lock, and the socket that clients connect to.
//!
//! A socket can go while the daemon runs, as with the runtime folder of a user whose last session has ended; a data folder
//! can be removed. Owns when that is looked for. It must not know what is done about it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::lock::DaemonLock;
use crate::server::SocketFile;

/// How often it is looked, whatever the watch of the socket's folder says: the lock's folder is not watched, since every
/// change is written there.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// How long behind something that happens it is looked: who removes all folders of the daemon has done so then, and is not
/// met by a new socket in one of them.
const SETTLED_AFTER: Duration = Duration::from_millis(200);

/// How often it is tried to listen again while that fails, as where the runtime folder is not there.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// What is not where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Astray {
    /// The lock: whoever looks for this daemon by its data folder finds none, and may start another.
    Lock,
    /// The socket: nobody can connect any more.
    Socket,
}

/// Where the daemon is.
pub(super) struct Standing<'a> {
    lock: &'a DaemonLock,
    socket: SocketFile,
    /// Told of what happens in the socket's folder; none where that cannot be watched.
    watcher: Option<RecommendedWatcher>,
    happened: Arc<Notify>,
    next_look: Instant,
}

impl<'a> Standing<'a> {
    pub(super) fn new(lock: &'a DaemonLock, socket: SocketFile) -> Self {
        let happened = Arc::new(Notify::new());
        Self {
            lock,
            watcher: watch(socket.path(), &happened),
            socket,
            happened,
            // What happened before the watch is seen at once.
            next_look: Instant::now(),
        }
    }

    /// Waits until something is not where it was. Nothing is missed when this is dropped before.
    pub(super) async fn lost(&mut self) -> Astray {
        loop {
            tokio::select! {
                () = self.happened.notified() => {
                    self.next_look = self.next_look.min(Instant::now() + SETTLED_AFTER);
                    continue;
                }
                () = tokio::time::sleep_until(self.next_look) => {}
            }
            self.next_look = Instant::now() + LOOK_EVERY;
            if self.lock.is_astray() {
                return Astray::Lock;
            }
            if self.socket.is_astray() {
                return Astray::Socket;
            }
        }
    }

    /// The daemon listens on a new socket.
    pub(super) fn moved_to(&mut self, socket: SocketFile) {
        self.watcher = watch(socket.path(), &self.happened);
        self.socket = socket;
    }

    /// It could not listen on one: the old one is told as lost again after a while, and whatever happens in its folder is
    /// not waited for, since a try may be what happens.
    pub(super) fn stayed(&mut self) {
        self.watcher = None;
        self.next_look = Instant::now() + RETRY_EVERY;
    }
}

/// Has it told what happens in the folder of the socket.
fn watch(socket: &Path, happened: &Arc<Notify>) -> Option<RecommendedWatcher> {
    let folder = socket.parent()?;
    let happened = Arc::clone(happened);
    let watching = notify::recommended_watcher(move |_| happened.notify_one()).and_then(|mut watcher| {
        watcher.watch(folder, RecursiveMode::NonRecursive)?;
        Ok(watcher)
    });
    match watching {
        Ok(watcher) => Some(watcher),
        Err(error) => {
            tracing::debug!(folder = %folder.display(), %error, "the socket's folder is not watched, but looked at");
            None
        }
    }
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

    /// With its listener, which keeps the number of the file from being used again.
    fn bound(path: &Path) -> (tokio::net::UnixListener, SocketFile) {
        let PrivateSocket { listener, file } = PrivateSocket::bind(path).unwrap();
        (listener, file)
    }

    #[tokio::test]
    async fn a_socket_that_goes_is_told_and_one_in_its_place_is_held_too() {
        let (data, run) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (lock, path) = (lock(data.path()), run.path().join("folder/s.sock"));
        let (first, file) = bound(&path);
        let mut listeners = vec![first];
        let mut standing = Standing::new(&lock, file);
        for _ in 0..2 {
            fs::remove_dir_all(path.parent().unwrap()).unwrap();
            assert_eq!(standing.lost().await, Astray::Socket);
            let (listener, file) = bound(&path);
            listeners.push(listener);
            standing.moved_to(file);
        }
        // Also what another has in its place.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        assert_eq!(standing.lost().await, Astray::Socket);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_that_goes_is_told_without_any_watch() {
        let (data, run) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let lock = lock(data.path());
        let (_listener, file) = bound(&run.path().join("s.sock"));
        let mut standing = Standing::new(&lock, file);
        standing.stayed();
        let began = Instant::now();
        let lost = tokio::time::timeout(LOOK_EVERY * 3, standing.lost()).await;
        assert!(lost.is_err(), "{lost:?}: all is where it was");
        // Another one at its path is not it.
        fs::remove_file(lock.path()).unwrap();
        fs::write(lock.path(), "").unwrap();
        assert_eq!(standing.lost().await, Astray::Lock);
        assert!(began.elapsed() <= LOOK_EVERY * 4);
    }
}
