//! The two directions of a client's socket, each registered with the runtime only for what it waits for.
//!
//! A socket that is registered for both wakes the daemon whenever the client has read something: for each event that
//! goes out a task switch and a system call, only to learn of room that nobody missed. Here the reading side waits for
//! input alone, and the writing side is registered while a write that found no room waits for some.
//!
//! Owns the descriptor. Knows nothing about lines or queues.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::net::UnixStream;

/// Where the system does not offer to keep the signal away, the standard library has it ignored.
#[cfg(target_os = "linux")]
const SEND_FLAGS: SendFlags = SendFlags::NOSIGNAL;
#[cfg(not(target_os = "linux"))]
const SEND_FLAGS: SendFlags = SendFlags::empty();

/// The way in.
pub(super) struct ReadSide {
    socket: AsyncFd<Arc<OwnedFd>>,
}

/// The way out; the client sees its end when this is dropped.
pub(super) struct WriteSide {
    socket: Arc<OwnedFd>,
}

/// Parts a socket.
///
/// # Errors
/// When the runtime does not take it.
pub(super) fn split(stream: UnixStream) -> io::Result<(ReadSide, WriteSide)> {
    let socket = Arc::new(OwnedFd::from(stream.into_std()?));
    let read_side = ReadSide {
        socket: watch(Arc::clone(&socket), Interest::READABLE)?,
    };
    Ok((read_side, WriteSide { socket }))
}

#[allow(
    deprecated,
    reason = "its successor is unsafe for types whose descriptor may change under the registration; these keep theirs"
)]
fn watch<T: AsRawFd>(descriptor: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(descriptor, interest)
}

impl AsFd for ReadSide {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.get_ref().as_fd()
    }
}

impl AsyncRead for ReadSide {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut readiness = ready!(self.socket.poll_read_ready(context))?;
            let room = into.initialize_unfilled();
            let room_bytes = room.len();
            match rustix::io::read(self.socket.get_ref(), room) {
                Ok(read) => {
                    // What did not fill the room was all there is; the next byte is told anew.
                    if read > 0 && read < room_bytes {
                        readiness.clear_ready();
                    }
                    into.advance(read);
                    return Poll::Ready(Ok(()));
                }
                Err(Errno::WOULDBLOCK) => readiness.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }
}

impl WriteSide {
    /// Writes what the socket takes now.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when it takes nothing, else what the system says.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(&self.socket, bytes, SEND_FLAGS)?)
    }

    /// Waits until the socket takes something, or until the client is gone.
    ///
    /// # Errors
    /// When the runtime cannot watch it.
    pub(super) async fn writable(&self) -> io::Result<()> {
        // A descriptor of its own, since the reading side has registered the other.
        let watched = watch(self.socket.try_clone()?, Interest::WRITABLE)?;
        let _ready = watched.writable().await?;
        Ok(())
    }
}

impl Drop for WriteSide {
    fn drop(&mut self) {
        if let Err(error) = rustix::net::shutdown(&self.socket, Shutdown::Write) {
            tracing::trace!(%error, "a client was gone before its last answer");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

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
    fn what_comes_in_pieces_is_read_in_order_to_its_end() {
        run(async {
            let (server, mut client) = UnixStream::pair().unwrap();
            let (mut read_side, _write_side) = split(server).unwrap();
            let mut piece = [0; 4];
            for text in ["abcd", "ef", "ghij", "k"] {
                client.write_all(text.as_bytes()).await.unwrap();
                let read = read_side.read(&mut piece).await.unwrap();
                assert_eq!(&piece[..read], text.as_bytes());
            }
            drop(client);
            assert_eq!(read_side.read(&mut piece).await.unwrap(), 0);
        });
    }

    #[test]
    fn a_full_socket_is_waited_for_and_its_end_is_told() {
        run(async {
            let (server, mut client) = UnixStream::pair().unwrap();
            let (_read_side, write_side) = split(server).unwrap();
            let mut sent = 0;
            let piece = [7; 4096];
            for _ in 0..3 {
                loop {
                    match write_side.try_write(&piece) {
                        Ok(written) => sent += written,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        Err(error) => panic!("{error}"),
                    }
                }
                let mut drained = vec![0; sent];
                client.read_exact(&mut drained).await.unwrap();
                sent = 0;
                write_side.writable().await.unwrap();
            }
            drop(write_side);
            assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
        });
    }

    #[test]
    fn a_client_that_leaves_ends_the_wait_for_room() {
        run(async {
            let (server, client) = UnixStream::pair().unwrap();
            let (_read_side, write_side) = split(server).unwrap();
            while write_side.try_write(&[7; 4096]).is_ok() {}
            let leaves = async {
                tokio::task::yield_now().await;
                drop(client);
            };
            let (waited, ()) = tokio::join!(write_side.writable(), leaves);
            waited.unwrap();
            let error = write_side.try_write(&[7]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        });
    }
}
