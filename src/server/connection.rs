//! One client from its first line to its last answer.
//!
//! Owns the connection's calls: they run inside this task, so that everything a client holds is freed the moment it
//! leaves. Reads one line at a time, has it admitted (see `calls`), and only then reads the next. Nothing here waits for
//! the client to read: an answer that finds no room waits among the running calls.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::calls::{Calls, Methods};
use super::line::LineReader;
use super::outbox::{self, Outbox};
use super::socket::SocketLimits;
use super::stream::{self, ReadSide};

/// How long the last answers may take to reach a client that sends nothing more. A client that reads at all takes
/// them in milliseconds.
const LAST_ANSWERS_MS: u64 = 30_000;

/// Serves one client until it leaves or `stop` is cancelled; then what is in flight is answered first.
///
/// How long that may take is the caller's to limit: dropping the future frees everything at once.
pub(super) async fn run(
    stream: UnixStream,
    id: usize,
    methods: Arc<Methods>,
    limits: Arc<SocketLimits>,
    stop: CancellationToken,
) {
    let (read_side, write_side) = match stream::split(stream) {
        Ok(sides) => sides,
        Err(error) => {
            tracing::warn!(connection = id, %error, "a client cannot be served");
            return;
        }
    };
    let (outbox, writer) = outbox::open(write_side, limits.outbox);
    let _close = CloseOnDrop(outbox.clone());
    let mut writer = AbortOnDropHandle::new(tokio::spawn(writer.run()));
    let mut reader = LineReader::new(read_side, limits.line_bytes);
    let mut calls = Calls::new(methods, outbox.clone(), limits);

    let mut stopped = Box::pin(stop.cancelled());
    loop {
        tokio::select! {
            biased;
            // The peer is gone, or does not speak our language any more.
            _ = &mut writer => return,
            () = &mut stopped => break,
            () = calls.advance(), if !calls.is_idle() => {}
            line = reader.next_line(), if calls.is_open() => match line {
                Ok(Some(line)) => calls.take_line(line),
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!(connection = id, %error, "the client is gone");
                    return;
                }
            },
        }
        // Lines that wait in the buffer are ready at once, however many: the thread has other tasks.
        tokio::task::coop::consume_budget().await;
    }

    // Half closed or stopping: no new work, but what was begun is answered.
    tokio::select! {
        biased;
        _ = &mut writer => return,
        () = calls.finish() => {}
        () = closed_by_peer(reader.source()) => return,
    }
    outbox.finish();
    let last_answers = std::time::Duration::from_millis(LAST_ANSWERS_MS);
    if tokio::time::timeout(last_answers, &mut writer).await.is_err() {
        tracing::debug!(connection = id, "the client does not read its last answers");
    }
}

/// Resolves when the peer has closed its socket, and not when it has only finished sending.
///
/// The end of input looks the same in both cases; the hang-up only shows in the readiness to write. That is watched
/// on a second descriptor, because waiting for a change of it means to forget the present state, which the writer
/// needs.
async fn closed_by_peer(read_side: &ReadSide) {
    let watch = async {
        let descriptor: OwnedFd = read_side.as_fd().try_clone_to_owned()?;
        let watched = UnixStream::from_std(descriptor.into())?;
        loop {
            if watched.ready(Interest::WRITABLE).await?.is_write_closed() {
                return io::Result::Ok(());
            }
            // To report that nothing could be written makes the next turn wait for a change.
            let forget = watched.try_io(Interest::WRITABLE, || {
                io::Result::<()>::Err(io::ErrorKind::WouldBlock.into())
            });
            debug_assert!(forget.is_err());
        }
    };
    if let Err(error) = watch.await {
        tracing::warn!(%error, "cannot watch a client that has finished sending; it is kept until it is answered");
        std::future::pending::<()>().await;
    }
}

/// Closes the outbox when the connection ends, however it ends: its clones live on in subscribers.
struct CloseOnDrop(Outbox);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}
