//! The task that reads what the agent writes, and knows when it has ended.
//!
//! It owns the agent's output. Each line is looked at once and passed on under the connection's lock, in the order of
//! the pipe. It must not wait for anyone but the agent; to an inbox that fills it only gives way for a moment.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;

use super::Shared;
use super::routes::Refusal;
use crate::agent::envelope::{Envelope, Kind, Oversized};
use crate::agent::message::{INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, MethodName, RawId, method};
use crate::agent::process::{Death, DeathWatch};
use crate::agent::split::{Piece, Splitter};

/// How much is read at once: what a pipe holds.
const READ_BYTES: usize = 64 * 1024;

/// From so many waiting on, the reader lets other tasks run after each line, so that the owner can catch up.
const GIVE_WAY_FROM: usize = 1_024;

/// How long the process may take to end after its output has. An agent without output is of no use, but its exit
/// status says why.
const EXIT_AFTER_END_OF_OUTPUT: Duration = Duration::from_secs(2);

/// How long nothing may come after the process has ended, or refused its input, before its output counts as ended too:
/// a descendant may hold the pipe open for ever.
const QUIET_AFTER_END: Duration = Duration::from_millis(100);

/// And how long a descendant that keeps writing is listened to.
const DRAIN_AFTER_END: Duration = Duration::from_secs(1);

/// Reads until the agent has ended, then tells everyone.
pub(super) async fn run(
    shared: Arc<Shared>,
    mut input: impl AsyncRead + Unpin + Send,
    mut process: DeathWatch,
) {
    // Should this task itself fail, nobody must be left waiting.
    let ending = Ending { shared: &shared };
    read_all(&shared, &mut input, &mut process).await;
    ending.tell(process.death_within(EXIT_AFTER_END_OF_OUTPUT).await);
}

/// Tells everyone of the death, at the latest when dropped.
struct Ending<'shared> {
    shared: &'shared Shared,
}

impl Ending<'_> {
    fn tell(&self, death: Death) {
        let death = Arc::new(death);
        self.shared.routes().die(&death);
        self.shared.died.send_if_modified(|known| {
            let is_first = known.is_none();
            known.get_or_insert(death);
            is_first
        });
        // The writer has nothing left to write to.
        self.shared.close_input.cancel();
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if self.shared.died.borrow().is_none() {
            self.tell(Death::default());
        }
    }
}

/// Reads until the output has ended, or the process or its input has and the output is quiet.
async fn read_all(shared: &Shared, input: &mut (impl AsyncRead + Unpin), process: &mut DeathWatch) {
    let mut splitter = Splitter::new(shared.options.max_line_bytes, READ_BYTES);
    let mut draining_until: Option<Instant> = None;
    let mut ended = pin!(async {
        tokio::select! {
            _ = process.ended() => {}
            () = shared.write_failed.cancelled() => {}
        }
    });
    loop {
        let quiet = async {
            match draining_until {
                Some(_) => tokio::time::sleep(QUIET_AFTER_END).await,
                None => std::future::pending().await,
            }
        };
        let read = tokio::select! {
            biased;
            // Before the output: a descendant may fill the pipe faster than it is read.
            () = &mut ended, if draining_until.is_none() => {
                draining_until = Some(Instant::now() + DRAIN_AFTER_END);
                continue;
            }
            read = input.read(splitter.space()) => read,
            () = quiet => return,
        };
        match read {
            Ok(0) => {
                splitter.advance(0);
                // A last line without its end, from a process that was cut off.
                if let Some(Piece::Line(line)) = splitter.next_line() {
                    take_line(shared, line);
                }
                return;
            }
            Ok(bytes) => splitter.advance(bytes),
            Err(error) => {
                tracing::debug!(%error, "the agent's output cannot be read");
                return;
            }
        }
        while let Some(piece) = splitter.next_line() {
            let waiting = match piece {
                Piece::Line(line) => take_line(shared, line),
                Piece::TooLong { found, .. } => {
                    take_too_long(shared, &found);
                    0
                }
            };
            if waiting > GIVE_WAY_FROM {
                tokio::task::yield_now().await;
            }
        }
        if draining_until.is_some_and(|until| Instant::now() >= until) {
            return;
        }
    }
}

/// Passes one line on; gives how many wait in the inbox that it went to.
fn take_line(shared: &Shared, line: &[u8]) -> usize {
    let line = line.trim_ascii();
    if line.is_empty() {
        return 0;
    }
    let envelope = match Envelope::scan_bytes(line) {
        Ok(envelope) => envelope,
        Err(reason) => {
            shared.chatter.send_modify(|chatter| chatter.add(line));
            tracing::debug!(%reason, bytes = line.len(), "a line of the agent is not a message");
            return 0;
        }
    };
    match envelope.kind() {
        Kind::Notification => take_notification(shared, &envelope),
        Kind::Request => {
            take_request(shared, &envelope);
            0
        }
        Kind::Response => {
            shared.with_routes(|routes| routes.response(&envelope));
            0
        }
    }
}

fn take_notification(shared: &Shared, line: &Envelope<'_>) -> usize {
    let Some(name) = line.method() else { return 0 };
    let method = MethodName::from_wire(&name);
    if let Some(handle) = line.session_id() {
        return shared.with_routes(|routes| routes.notification(&handle, method, line));
    }
    match (method.as_str(), line.request_id()) {
        (method::CANCEL_REQUEST, Some(id)) => {
            return shared.routes().about_asked(&RawId::from_wire(id), method, line);
        }
        (method::AUTH_STATUS_UPDATE, _) => take_auth_status(shared, line),
        (method::ELICITATION_COMPLETE, _) => shared.routes().broadcast(&method, &line.to_line()),
        _ => tracing::debug!(%method, "a notification without a session is ignored"),
    }
    0
}

/// Keeps what the agent says of who is signed in: it says so once, whether or not anybody wants to know yet.
fn take_auth_status(shared: &Shared, line: &Envelope<'_>) {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params {
        auth_status: Box<RawValue>,
    }
    let Some(params) = line.params() else { return };
    match serde_json::from_str::<Params>(params) {
        Ok(params) => drop(shared.auth_status.send_replace(Some(params.auth_status.into()))),
        Err(error) => tracing::debug!(%error, "what the agent says of who is signed in has another form"),
    }
}

fn take_request(shared: &Shared, line: &Envelope<'_>) {
    let (Some(raw_id), Some(name)) = (line.id(), line.method()) else {
        return;
    };
    let method = MethodName::from_wire(&name);
    if !shared.options.allowed_requests.contains(&method) {
        tracing::debug!(%method, "a request of the agent is not offered");
        shared.refuse(raw_id, METHOD_NOT_FOUND, "method not found");
        return;
    }
    let passed = shared.routes().request(RawId::from_wire(raw_id), method, line);
    match passed {
        Ok(()) => {}
        Err(Refusal::UnknownSession) => shared.refuse(raw_id, METHOD_NOT_FOUND, "no such session"),
        Err(Refusal::TooMany) => shared.refuse(raw_id, INTERNAL_ERROR, "too many unanswered requests"),
        Err(Refusal::Duplicate) => tracing::debug!(raw_id, "a request of the agent uses an id twice"),
    }
}

fn take_too_long(shared: &Shared, line: &Oversized) {
    let limit_bytes = shared.options.max_line_bytes;
    tracing::warn!(
        limit_bytes,
        id = line.id,
        method = line.method,
        "a line of the agent is too long"
    );
    match (&line.method, &line.id) {
        (None, Some(id)) => shared.routes().response_too_long(id, limit_bytes),
        (Some(_), Some(id)) => shared.refuse(id, INVALID_REQUEST, "line too long"),
        _ => shared.routes().overflow(line.session_id.as_deref()),
    }
}
