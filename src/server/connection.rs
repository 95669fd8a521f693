//! One client from its first line to its last answer.
//!
//! Owns the connection's calls: they run inside this task, so that everything a client holds is freed the moment it
//! leaves. Reads one line at a time, admits it (see `dispatch`), and only then reads the next. Nothing here waits for
//! the client to read: an answer that finds no room waits among the running calls.
//!
//! A subscription's own task is the handler's; it learns of the end by its sink's `closed()`, and its pushes fail.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use bridge_protocol::{BridgeError, ErrorKind};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, join_all, ready};
use futures_util::stream::{FuturesUnordered, StreamExt};
use jsonrpsee::{BoundedSubscriptions, ConnectionId, Extensions, MethodSink, Methods};
use serde_json::value::RawValue;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::dispatch::{Admitted, Answer, Dispatcher};
use super::envelope::{Entry, Incoming, parse_line};
use super::fault;
use super::line::{Line, LineReader};
use super::outbox::{self, Outbox, PushError};
use super::socket::SocketLimits;
use super::stream::{self, ReadSide};

/// How long the last answers may take to reach a client that sends nothing more. A client that reads at all takes
/// them in milliseconds.
const LAST_ANSWERS_MS: u64 = 30_000;

/// What a method may know of the connection that called it: put into its extensions.
#[derive(Debug, Clone)]
pub struct ConnectionInfo {
    /// Unique for the life of the daemon.
    pub id: ConnectionId,
    /// Where the events of its subscriptions go.
    pub outbox: Outbox,
}

/// Serves one client until it leaves or `stop` is cancelled; then what is in flight is answered first.
///
/// How long that may take is the caller's to limit: dropping the future frees everything at once.
pub(super) async fn run(
    stream: UnixStream,
    id: ConnectionId,
    methods: Methods,
    limits: Arc<SocketLimits>,
    stop: CancellationToken,
) {
    let (read_side, write_side) = match stream::split(stream) {
        Ok(sides) => sides,
        Err(error) => {
            tracing::warn!(connection = id.0, %error, "a client cannot be served");
            return;
        }
    };
    let (outbox, intake, writer) = outbox::open(write_side, limits.outbox);
    let _close = CloseOnDrop(outbox.clone());
    let mut writer = AbortOnDropHandle::new(tokio::spawn(writer.run()));
    let mut reader = LineReader::new(read_side, limits.line_bytes);
    let mut extensions = Extensions::new();
    extensions.insert(id);
    extensions.insert(ConnectionInfo {
        id,
        outbox: outbox.clone(),
    });
    let dispatcher = Dispatcher {
        methods,
        connection_id: id,
        extensions,
        sink: MethodSink::new_with_limit(intake, u32::try_from(limits.response_bytes).unwrap_or(u32::MAX)),
        subscriptions: BoundedSubscriptions::new(limits.subscriptions),
        response_bytes: limits.response_bytes,
    };
    let mut calls = Calls {
        dispatcher,
        outbox: outbox.clone(),
        limits,
        running: FuturesUnordered::new(),
        in_flight: 0,
        gate: None,
    };

    let mut stopped = Box::pin(stop.cancelled());
    loop {
        tokio::select! {
            biased;
            // The peer is gone, or does not speak our language any more.
            _ = &mut writer => return,
            () = &mut stopped => break,
            () = calls.advance(), if !calls.is_idle() => {}
            line = reader.next_line(), if calls.gate.is_none() => match line {
                Ok(Some(line)) => calls.take_line(line),
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!(connection = id.0, %error, "the client is gone");
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
        tracing::debug!(connection = id.0, "the client does not read its last answers");
    }
}

/// The calls of one connection that are not answered yet.
struct Calls {
    dispatcher: Dispatcher,
    outbox: Outbox,
    limits: Arc<SocketLimits>,
    /// Each resolves, to how many requests it stood for, when its answer is in the outbox.
    running: FuturesUnordered<BoxFuture<'static, usize>>,
    /// Requests in `running`; a batch counts each of its entries.
    in_flight: usize,
    /// While set, no further line is read: something has to be done before the next request may be admitted.
    gate: Option<BoxFuture<'static, ()>>,
}

impl Calls {
    fn is_idle(&self) -> bool {
        self.running.is_empty() && self.gate.is_none()
    }

    /// Drives what is running until one of it is done. Cancel-safe; never ends while idle.
    async fn advance(&mut self) {
        let gate = async {
            match &mut self.gate {
                Some(gate) => gate.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(requests) = self.running.next() => self.in_flight -= requests,
            () = gate => self.gate = None,
            else => std::future::pending().await,
        }
    }

    async fn finish(&mut self) {
        while !self.is_idle() {
            self.advance().await;
        }
    }

    fn take_line(&mut self, line: Line<'_>) {
        match line {
            Line::Full(bytes) => match parse_line(bytes, self.limits.batch_entries) {
                Incoming::One(entry) => self.take_request(entry),
                Incoming::Batch(entries) => self.take_batch(entries),
            },
            Line::TooLong { id, bytes_seen } => {
                let limit = self.limits.line_bytes;
                let error = fault::invalid_request(format!(
                    "the line has {bytes_seen} bytes, more than the limit of {limit} (max_line_bytes)"
                ));
                self.answer(Some(fault::answer(
                    id.as_deref(),
                    error.with("limitBytes", limit),
                )));
            }
        }
    }

    fn take_request(&mut self, entry: Entry<'_>) {
        if let Some(busy) = self.refuse_over_limit(&entry, self.in_flight) {
            return self.answer(busy);
        }
        match self.dispatcher.admit(entry) {
            Admitted::Done(answer) => self.answer(answer),
            Admitted::Running(call) => self.run(1, call),
            Admitted::Ordering(call) => {
                let outbox = self.outbox.clone();
                self.gate = Some(call.then(move |answer| push(outbox, answer)).boxed());
            }
        }
    }

    fn take_batch(&mut self, entries: Vec<Entry<'_>>) {
        let requests = entries.len();
        let mut any_running = false;
        let mut admitted = Vec::with_capacity(requests);
        for (position, entry) in entries.into_iter().enumerate() {
            let id: Option<Box<RawValue>> = match &entry {
                Ok(call) => call.id.as_ref().map(|id| id.raw.to_owned()),
                Err(rejection) => rejection.id.map(ToOwned::to_owned),
            };
            let call = match self.refuse_over_limit(&entry, self.in_flight + position) {
                Some(busy) => Admitted::Done(busy),
                None => self.dispatcher.admit_in_batch(entry),
            };
            admitted.push(match call {
                Admitted::Done(answer) => Either::Left(ready((id, answer))),
                Admitted::Running(call) | Admitted::Ordering(call) => {
                    any_running = true;
                    Either::Right(call.map(move |answer| (id, answer)))
                }
            });
        }
        let limit_bytes = self.limits.response_bytes;
        let batch = join_all(admitted).map(move |answers| join_answers(answers, limit_bytes));
        if any_running {
            return self.run(requests, batch.boxed());
        }
        // Nothing to wait for, so that the answer keeps its place before that of the next line.
        if let Some(answer) = batch.now_or_never() {
            self.answer(answer);
        }
    }

    /// The busy answer to a request that would be one too many; outer none if it may run.
    fn refuse_over_limit(&self, entry: &Entry<'_>, in_flight: usize) -> Option<Answer> {
        let limit = self.limits.requests_in_flight;
        let Ok(call) = entry else { return None };
        (in_flight >= limit).then(|| {
            let message = format!("{limit} requests of this connection are in flight, which is the limit");
            let busy = BridgeError::new(ErrorKind::Busy, message);
            call.id.as_ref().map(|id| fault::answer(Some(id.raw), busy))
        })
    }

    fn run(&mut self, requests: usize, call: BoxFuture<'static, Answer>) {
        let outbox = self.outbox.clone();
        self.in_flight += requests;
        self.running.push(
            call.then(move |answer| push(outbox, answer))
                .map(move |()| requests)
                .boxed(),
        );
    }

    /// Queues an answer that is ready; where there is no room, nothing more is read until there is.
    fn answer(&mut self, answer: Answer) {
        let Some(text) = answer else { return };
        match self.outbox.try_push(&text) {
            Err(PushError::Full) => self.gate = Some(push(self.outbox.clone(), Some(text)).boxed()),
            // Closed: the writer has ended, which ends the connection.
            Ok(()) | Err(PushError::Closed) => {}
        }
    }
}

async fn push(outbox: Outbox, answer: Answer) {
    if let Some(text) = answer
        && let Err(error) = outbox.push(&text).await
    {
        tracing::debug!(%error, "an answer was not wanted any more");
    }
}

/// The answer to a batch. Entries that would make it longer than one message may be are answered with an error.
fn join_answers(answers: Vec<(Option<Box<RawValue>>, Answer)>, limit_bytes: usize) -> Answer {
    let mut joined = String::from("[");
    for (id, answer) in answers {
        let Some(answer) = answer else { continue };
        let answer = if joined.len() + answer.len() > limit_bytes {
            let message = "the answers of this batch are larger than one message may be";
            fault::answer(id.as_deref(), BridgeError::new(ErrorKind::InternalError, message))
        } else {
            answer
        };
        if joined.len() > 1 {
            joined.push(',');
        }
        joined.push_str(&answer);
    }
    // A batch of notifications alone is not answered at all.
    (joined.len() > 1).then(|| (joined + "]").into_boxed_str())
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
