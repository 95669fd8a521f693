//! A client's socket, registered with the runtime only for the directions that it waits for.
//!
//! A socket that is registered for both directions wakes the daemon whenever the client reads: each sent event then costs a
//! task switch and a system call, only to report room that is not needed. Here the socket is registered for input only. A
//! second descriptor is registered while a write waits for room.
//!
//! Owns the descriptor; dropping this closes the connection. Knows nothing about lines or queues.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::retry_on_intr;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;

/// A client's socket.
pub(super) struct Socket {
    descriptor: AsyncFd<OwnedFd>,
}

impl Socket {
    /// Takes over a socket.
    ///
    /// # Errors
    /// If the runtime cannot register it.
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        let descriptor = watch(OwnedFd::from(stream.into_std()?), Interest::READABLE)?;
        Ok(Self { descriptor })
    }

    /// Waits for input and reads it. Returns 0 at the end of input. Cancel-safe.
    ///
    /// # Errors
    /// The system's error, for example a reset by the client.
    pub(super) async fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        let mut read = |socket: &OwnedFd| Ok(retry_on_intr(|| rustix::io::read(socket, &mut *into))?);
        self.descriptor.async_io(Interest::READABLE, &mut read).await
    }

    /// Writes as much as the socket accepts without blocking. Rust programs ignore the signal for a closed socket.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if the socket accepts nothing, or the system's error.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(retry_on_intr(|| {
            rustix::io::write(self.descriptor.get_ref(), bytes)
        })?)
    }

    /// Waits until the socket has room, or until the client has disconnected.
    ///
    /// # Errors
    /// When the runtime cannot watch it.
    pub(super) async fn writable(&self) -> io::Result<()> {
        self.watch_writing()?.writable().await?.retain_ready();
        Ok(())
    }

    /// Resolves when the client has closed its socket, but not if it has only finished sending. The end of input looks the same
    /// in both cases; only the readiness to write shows a hang-up.
    ///
    /// # Errors
    /// When the runtime cannot watch it.
    pub(super) async fn closed_by_client(&self) -> io::Result<()> {
        let watched = self.watch_writing()?;
        loop {
            let mut room = watched.writable().await?;
            if room.ready().is_write_closed() {
                return Ok(());
            }
            room.clear_ready();
        }
    }

    fn watch_writing(&self) -> io::Result<AsyncFd<OwnedFd>> {
        watch(self.descriptor.get_ref().try_clone()?, Interest::WRITABLE)
    }
}

#[allow(
    deprecated,
    reason = "its successor is unsafe for types whose descriptor may change under the registration; these keep theirs"
)]
fn watch<T: AsRawFd>(descriptor: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(descriptor, interest)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Turns a hang into a failure.
    const DEADLINE: Duration = Duration::from_secs(60);

    fn run<T>(test: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async { tokio::time::timeout(DEADLINE, test).await.unwrap() })
    }

    #[test]
    fn a_client_that_leaves_ends_the_wait_for_room() {
        run(async {
            let (server, client) = UnixStream::pair().unwrap();
            let socket = Socket::new(server).unwrap();
            while socket.try_write(&[7; 4096]).is_ok() {}
            let mut waiting = Box::pin(socket.writable());
            assert!(futures_util::poll!(&mut waiting).is_pending());
            drop(client);
            waiting.await.unwrap();
            let error = socket.try_write(&[7]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        });
    }
}
