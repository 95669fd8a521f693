//! The task that reads the agent's output and notices its end.
//!
//! It owns the agent's output. It scans each line once and passes it on under the connection's lock, in order. It
//! waits only for the agent. If an inbox fills up, it yields briefly but does not wait.

use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;

use super::routes::Refusal;
use super::{Shared, WireOptions};
use crate::agent::envelope::{Envelope, EnvelopeKind, Malformed, OversizedLineIds, answered_request};
use crate::agent::message::{
    AgentRequestId, CallError, INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, MethodName, RawId,
    RequestKind, method,
};
use crate::agent::process::{Death, DeathWatch};
use crate::agent::split::{SplitLine, Splitter};

/// How many bytes are read at once: the capacity of a pipe.
const READ_BYTES: usize = 64 * 1024;

/// From this many queued entries, the reader yields after each line, so that the inbox's owner can catch up.
const YIELD_FROM_ENTRIES: usize = 1_024;

/// How long the process may take to end after its output ended. Without output an agent is useless, but its exit
/// status explains the cause.
const EXIT_AFTER_END_OF_OUTPUT: Duration = Duration::from_secs(2);

/// How long the output must be quiet, after the process ended or closed its input, to count as ended. A descendant
/// may keep the pipe open forever.
const QUIET_AFTER_END: Duration = Duration::from_millis(100);

/// How long to read from a descendant that keeps writing.
const DRAIN_AFTER_END: Duration = Duration::from_secs(1);

/// Reads until the agent has ended, then notifies everyone.
pub(super) async fn run(
    shared: Arc<Shared>,
    mut input: impl AsyncRead + Unpin + Send,
    mut process: DeathWatch,
) {
    // If this task fails, callers must not wait forever.
    let ending = EndAnnouncer { shared: &shared };
    read_all(&shared, &mut input, &mut process).await;
    ending.announce(process.death_within(EXIT_AFTER_END_OF_OUTPUT).await);
}

/// Announces the agent's end. Does so when dropped, if not before.
struct EndAnnouncer<'shared> {
    shared: &'shared Shared,
}

impl EndAnnouncer<'_> {
    fn announce(&self, death: Death) {
        let death = Arc::new(death);
        self.shared.routes().agent_died(&death);
        self.shared.death.send_if_modified(|known| {
            let is_first = known.is_none();
            known.get_or_insert(death);
            is_first
        });
        // The writer has nothing left to write to.
        self.shared.close_input.cancel();
    }
}

impl Drop for EndAnnouncer<'_> {
    fn drop(&mut self) {
        if self.shared.death.borrow().is_none() {
            self.announce(Death::default());
        }
    }
}

/// Reads until the output ends, or until the process or its input has ended and the output is quiet.
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
            // Check this before the output: a descendant may fill the pipe faster than it is read.
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
                // If a process was killed in the middle of a line, that line has no line end.
                // Its process has ended, which says more about an answer that was cut than the answer does.
                if let Some(SplitLine::Line(line)) = splitter.next_line() {
                    match Envelope::scan_bytes(line) {
                        Ok(_) => drop(route_line(shared, line)),
                        Err(_) => shared.stray_output.send_modify(|stray| stray.add(line)),
                    }
                }
                return;
            }
            Ok(bytes) => splitter.advance(bytes),
            Err(error) => {
                tracing::debug!(%error, "cannot read the agent's output");
                return;
            }
        }
        while let Some(piece) = splitter.next_line() {
            let waiting = match piece {
                SplitLine::Line(line) => route_line(shared, line),
                SplitLine::TooLong(ids) => {
                    shared.record_received();
                    let limit_bytes = shared.options.max_line_bytes;
                    fail_skipped_request(shared, &ids, CallError::TooLong { limit_bytes });
                    0
                }
            };
            if waiting > YIELD_FROM_ENTRIES {
                tokio::task::yield_now().await;
            }
        }
        if draining_until.is_some_and(|until| Instant::now() >= until) {
            return;
        }
    }
}

/// Passes one line on. Returns how many entries are queued in the inbox that it went to.
fn route_line(shared: &Shared, line: &[u8]) -> usize {
    let last_sent = shared.record_received();
    // Most clients of agents replace bytes that are not UTF-8, as Node.js does.
    let text = std::str::from_utf8(line).map_or_else(|_| String::from_utf8_lossy(line), Cow::Borrowed);
    let (mut rest, mut waiting) = (&*text, 0);
    loop {
        match Envelope::scan(rest) {
            Ok(envelope) => return waiting.max(route_message(shared, &envelope, last_sent)),
            // A message without a line end after it.
            Err(Malformed::Syntax { at })
                if let Some((first, more)) = rest.split_at_checked(at)
                    && let Ok(first) = Envelope::scan(first) =>
            {
                waiting = waiting.max(route_message(shared, &first, last_sent));
                rest = more;
            }
            Err(reason) => {
                skip_malformed(shared, rest, reason);
                return waiting;
            }
        }
    }
}

/// Skips a line that is not a message. If it begins as the answer to a request, the request fails.
fn skip_malformed(shared: &Shared, line: &str, reason: Malformed) {
    if reason == Malformed::TooDeep
        && let Some(ids) = OversizedLineIds::in_line(line.as_bytes())
    {
        fail_skipped_request(shared, &ids, CallError::TooDeep);
        return;
    }
    if let Some(id) = answered_request(line) {
        let ids = OversizedLineIds {
            id: Some(id.to_owned()),
            ..OversizedLineIds::default()
        };
        fail_skipped_request(shared, &ids, CallError::Malformed(reason));
        return;
    }
    shared
        .stray_output
        .send_modify(|stray| stray.add(line.as_bytes()));
    tracing::debug!(%reason, bytes = line.len(), "a line of the agent is not a message");
}

/// Passes one message on. Returns how many entries are queued in the inbox that it went to.
fn route_message(shared: &Shared, envelope: &Envelope<&str>, last_sent: Option<AgentRequestId>) -> usize {
    match envelope.kind() {
        EnvelopeKind::Notification => route_notification(shared, envelope),
        EnvelopeKind::Request => {
            route_request(shared, envelope);
            0
        }
        EnvelopeKind::Response => {
            shared.with_routes(|routes| routes.response(envelope, last_sent));
            0
        }
    }
}

fn route_notification(shared: &Shared, line: &Envelope<&str>) -> usize {
    let Some(name) = line.method() else { return 0 };
    let method = MethodName::from_wire(&name);
    if let Some(handle) = line.session_id() {
        return shared.with_routes(|routes| routes.notification(&handle, method, line));
    }
    match (method.as_str(), line.request_id()) {
        (method::CANCEL_REQUEST, Some(id)) => {
            return shared
                .routes()
                .notify_about_request(&RawId::from_wire(id), method, line);
        }
        (method::AUTH_STATUS_UPDATE, _) => take_auth_status(shared, line),
        (method::ELICITATION_COMPLETE, _) => shared.routes().broadcast(&method, &line.to_line()),
        _ => tracing::debug!(%method, "ignored a notification without a session"),
    }
    0
}

/// Stores the agent's report of who is signed in. The agent sends it once, whether or not a caller is waiting.
fn take_auth_status(shared: &Shared, line: &Envelope<&str>) {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params {
        auth_status: Box<RawValue>,
    }
    let Some(params) = line.params() else { return };
    match serde_json::from_str::<Params>(params) {
        Ok(params) => drop(shared.auth_status.send_replace(Some(params.auth_status.into()))),
        Err(error) => tracing::debug!(%error, "cannot parse the agent's authStatus"),
    }
}

fn route_request(shared: &Shared, line: &Envelope<&str>) {
    let (Some(raw_id), Some(name)) = (line.id(), line.method()) else {
        return;
    };
    let method = MethodName::from_wire(&name);
    let WireOptions {
        allowed_requests,
        allows_extensions: allows_unnamed,
        ..
    } = &shared.options;
    let is_unnamed = *allows_unnamed && RequestKind::of(&name) == RequestKind::Extension;
    if !is_unnamed && !allowed_requests.contains(&method) {
        tracing::debug!(%method, "refused a request of the agent: method not offered");
        shared.refuse(raw_id, METHOD_NOT_FOUND, "method not found");
        return;
    }
    let passed = shared.routes().request(RawId::from_wire(raw_id), method, line);
    match passed {
        Ok(()) => {}
        Err(Refusal::UnknownSession) => shared.refuse(raw_id, METHOD_NOT_FOUND, "no such session"),
        Err(Refusal::TooMany) => shared.refuse(raw_id, INTERNAL_ERROR, "too many unanswered requests"),
        Err(Refusal::Duplicate) => tracing::debug!(raw_id, "the agent used a request id twice"),
    }
}

/// Fails the request that a skipped line would have answered.
fn fail_skipped_request(shared: &Shared, line: &OversizedLineIds, why: CallError) {
    tracing::warn!(
        id = line.id,
        method = line.method,
        %why,
        "skipped a line of the agent"
    );
    match (&line.method, &line.id) {
        (None, Some(id)) => shared.routes().response_skipped(id, why),
        (Some(_), Some(id)) => shared.refuse(id, INVALID_REQUEST, "line too long or nested too deeply"),
        _ => shared.routes().overflow(line.session_id.as_deref()),
    }
}
