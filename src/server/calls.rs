//! The calls of one connection: started in order of arrival, and each answered when it ends.
//!
//! Owns the running calls and subscriptions. Dropping them frees everything that a client holds. Each call is polled once
//! when it starts. A handler that sends its work to a mailbox before its first await therefore does so in order of arrival.
//! Knows the methods by name only, and nothing about reading or writing lines.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use bridge_protocol::{BridgeError, ErrorKind};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all, ready};
use indicatif::BinaryBytes;
use jsonrpsee::types::SubscriptionId;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use super::answer::{self, AnswerText, CallResult};
use super::connection::{Dialogue, Service};
use super::envelope::{Entry, Incoming, ParsedCall, parse_line, request_id};
use super::outbox::{Outbox, SubscriptionSink};
use super::requests_in_flight::RequestsInFlight;
use super::socket::SocketLimits;
use crate::agent::split::SplitLine;

/// The methods that a socket serves, by name.
pub type Methods = HashMap<&'static str, Handler>;

/// The implementation of a method.
pub enum Handler {
    /// Answers a call. The argument is the text of the parameters, an object.
    Call(Box<dyn Fn(&str) -> BoxFuture<'static, CallResult> + Send + Sync>),
    /// Starts a subscription. The connection's later requests start only after its answer is sent and its events have started.
    Subscribe {
        /// The method name of the notifications that contain the events.
        event: &'static str,
        /// Reads the text of the parameters, an object.
        read: Box<dyn Fn(&str) -> Result<StartSubscription, BridgeError> + Send + Sync>,
    },
    /// Ends a subscription of the same connection.
    Unsubscribe,
}

/// Starts a subscription. The future sends events until there are no more or it is dropped. Its error is the last notification.
pub type StartSubscription =
    Box<dyn FnOnce(SubscriptionSink) -> BoxFuture<'static, Result<(), BridgeError>> + Send>;

/// The calls of one connection that are not answered yet, and its subscriptions.
pub struct Calls {
    methods: Arc<Methods>,
    limits: Arc<SocketLimits>,
    /// A batch counts as one request per entry.
    in_flight: RequestsInFlight,
    /// Running subscriptions. Ended ones are removed when the next one starts.
    subscriptions: HashMap<u64, AbortOnDropHandle<()>>,
}

impl Service for Arc<Methods> {
    type Dialogue = Calls;

    fn open(&self, outbox: Outbox, limits: Arc<SocketLimits>) -> Calls {
        Calls::new(Arc::clone(self), outbox, limits)
    }
}

impl Calls {
    fn new(methods: Arc<Methods>, outbox: Outbox, limits: Arc<SocketLimits>) -> Self {
        Self {
            methods,
            limits,
            in_flight: RequestsInFlight::new(outbox),
            subscriptions: HashMap::new(),
        }
    }

    fn start_batch(&mut self, entries: Vec<Entry<'_>>) {
        let (requests, limit_bytes) = (entries.len(), self.limits.response_bytes);
        let calls = entries.into_iter().enumerate().map(|(position, entry)| {
            let id = entry.id.map(ToOwned::to_owned);
            let call = self.admit(entry, Some(position));
            call.map(move |answer| (id, answer))
        });
        let batch = join_all(calls).map(move |answers| answer::batch_response(answers, limit_bytes));
        self.start_call(requests, batch.boxed());
    }

    /// Polls a call once. If it is ready, it is answered immediately, so that its answer comes before that of the next line.
    fn start_call(&mut self, requests: usize, mut call: BoxFuture<'static, AnswerText>) {
        match poll_once(&mut call) {
            Poll::Ready(answer) => self.answer(answer),
            Poll::Pending => {
                let outbox = self.in_flight.outbox.clone();
                let pushed = call.then(move |answer| push(outbox, answer));
                self.in_flight.run(requests, pushed.boxed());
            }
        }
    }

    fn answer(&mut self, answer: AnswerText) {
        if let Some(text) = answer {
            self.in_flight.answer(text);
        }
    }

    /// Starts a request. `in_batch`: its position in a batch, if it is part of one.
    fn admit(&mut self, entry: Entry<'_>, in_batch: Option<usize>) -> BoxFuture<'static, AnswerText> {
        let Entry { id, call } = entry;
        match call.map(|call| self.admit_call(id, call, in_batch)) {
            Ok(Ok(call)) => call,
            Ok(Err(error)) => ready(answer::response_to(id, Err(error), usize::MAX)).boxed(),
            // Answered even if the id cannot be read.
            Err(error) => ready(Some(answer::error_response(id, &error))).boxed(),
        }
    }

    fn admit_call(
        &mut self,
        id: Option<&RawValue>,
        call: ParsedCall<'_>,
        in_batch: Option<usize>,
    ) -> Result<BoxFuture<'static, AnswerText>, BridgeError> {
        let ParsedCall { method, params } = call;
        let limit = self.limits.requests_in_flight;
        if self.in_flight.count() + in_batch.unwrap_or_default() >= limit {
            let message = format!("{limit} requests of this connection are in flight, which is the limit");
            return Err(BridgeError::new(ErrorKind::Busy, message));
        }
        let methods = Arc::clone(&self.methods);
        let Some((&name, handler)) = methods.get_key_value(&*method) else {
            let message = format!("there is no method {method:?}");
            return Err(BridgeError::new(ErrorKind::MethodNotFound, message));
        };
        match handler {
            Handler::Call(start) => {
                let running = catch_panic(name, || object_params(params).map(start))?;
                let (id, limit_bytes) = (id.map(ToOwned::to_owned), self.limits.response_bytes);
                let call = AssertUnwindSafe(running).catch_unwind().map(move |outcome| {
                    let outcome = outcome.unwrap_or_else(|_| Err(panic_error(name)));
                    answer::response_to(id.as_deref(), outcome, limit_bytes)
                });
                Ok(call.boxed())
            }
            Handler::Unsubscribe => {
                let removed = match subscription_param(params)? {
                    SubscriptionId::Num(id) => self.subscriptions.remove(&id),
                    SubscriptionId::Str(_) => None,
                };
                let was_active = removed.is_some_and(|subscription| !subscription.is_finished());
                let outcome = Ok(was_active.to_string());
                Ok(ready(answer::response_to(id, outcome, usize::MAX)).boxed())
            }
            Handler::Subscribe { event, read } => {
                let params = object_params(params)?;
                // The answer would be part of the batch's answer, and would arrive after the first events.
                if in_batch.is_some() {
                    let message = format!("{name} cannot be part of a batch");
                    return Err(answer::invalid_request(message));
                }
                let Some(id) = id else {
                    tracing::debug!(method = name, "a subscription without an id is ignored");
                    return Ok(ready(None).boxed());
                };
                self.make_room_for_a_subscription()?;
                let begin = catch_panic(name, || read(params))?;
                self.subscribe(id, event, begin);
                Ok(ready(None).boxed())
            }
        }
    }

    fn make_room_for_a_subscription(&mut self) -> Result<(), BridgeError> {
        let limit = self.limits.subscriptions;
        self.subscriptions
            .retain(|_, subscription| !subscription.is_finished());
        if self.subscriptions.len() >= limit {
            let message = format!("this connection has {limit} subscriptions, which is the limit");
            return Err(BridgeError::new(ErrorKind::Busy, message));
        }
        Ok(())
    }

    /// Starts a subscription: sends its answer, then starts its events, both before the next request starts.
    fn subscribe(&mut self, id: &RawValue, event: &'static str, begin: StartSubscription) {
        // Consecutive numbers are short on the wire and readable in logs. They are unique within the daemon.
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let subscription = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let sink = SubscriptionSink::new(self.in_flight.outbox.clone(), event, subscription);
        let accepted = answer::response_to(Some(id), Ok(subscription.to_string()), usize::MAX);
        let outbox = self.in_flight.outbox.clone();
        let (started, has_started) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            push(outbox, accepted).await;
            let subscriber = sink.clone();
            let events = AssertUnwindSafe(async move { begin(sink).await });
            let mut events = events.catch_unwind().boxed();
            let first = poll_once(&mut events);
            drop(started);
            let outcome = match first {
                Poll::Ready(outcome) => outcome,
                Poll::Pending => events.await,
            };
            if let Err(error) = outcome.unwrap_or_else(|_| Err(panic_error(event))) {
                subscriber.fail(&error).await;
            }
        });
        self.subscriptions
            .insert(subscription, AbortOnDropHandle::new(task));
        self.in_flight.block_until(has_started.map(drop).boxed());
    }
}

impl Dialogue for Calls {
    fn take_line(&mut self, line: SplitLine<'_>) {
        match line {
            SplitLine::Line(bytes) => match parse_line(bytes, self.limits.batch_entries) {
                Ok(Incoming::One(entry)) => {
                    let call = self.admit(entry, None);
                    self.start_call(1, call);
                }
                Ok(Incoming::Batch(entries)) => self.start_batch(entries),
                Err(error) => self.answer(Some(answer::error_response(None, &error))),
            },
            SplitLine::TooLong(found) => {
                let limit = self.limits.line_bytes;
                let error = answer::invalid_request(format!(
                    "the line is longer than the limit of {} (max_line_bytes)",
                    BinaryBytes(limit as u64)
                ));
                let error = error.with("limitBytes", limit);
                let id = found.id.and_then(request_id);
                self.answer(Some(answer::error_response(id.as_deref(), &error)));
            }
        }
    }

    fn requests_in_flight(&mut self) -> &mut RequestsInFlight {
        &mut self.in_flight
    }
}

async fn push(outbox: Outbox, answer: AnswerText) {
    if let Some(text) = answer
        && let Err(error) = outbox.push(&[&text]).await
    {
        tracing::debug!(%error, "an answer was not sent: the client has disconnected");
    }
}

/// The first poll of a call. The caller must poll the future again if it is pending: only that registers a real waker.
pub(crate) fn poll_once<T>(running: &mut BoxFuture<'static, T>) -> Poll<T> {
    // Unconstrained: if the task's budget were used up, a handler would stop before it reaches the mailbox. The order
    // would then depend on how the running calls are polled later.
    let first = pin!(tokio::task::unconstrained(running));
    first.poll(&mut Context::from_waker(Waker::noop()))
}

/// Checks that parameters are an object. They may be absent if all are optional.
fn object_params(params: Option<&RawValue>) -> Result<&str, BridgeError> {
    let text = params.map_or("{}", RawValue::get);
    if text.starts_with('{') {
        return Ok(text);
    }
    let message = "parameters are an object, by name";
    Err(BridgeError::new(ErrorKind::InvalidParams, message))
}

/// The parameter of the method that ends a subscription.
fn subscription_param(params: Option<&RawValue>) -> Result<SubscriptionId<'_>, BridgeError> {
    let text = params.map_or("", RawValue::get);
    let one = serde_json::from_str(text).map(|[id]: [SubscriptionId<'_>; 1]| id);
    one.map_err(|_| {
        let message = "parameters are one subscription id in an array";
        BridgeError::new(ErrorKind::InvalidParams, message)
    })
}

/// Runs the part of a method before its first poll. A panic becomes an error.
fn catch_panic<T>(method: &str, act: impl FnOnce() -> Result<T, BridgeError>) -> Result<T, BridgeError> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|_| Err(panic_error(method)))
}

/// The error of a method that panicked.
pub(crate) fn panic_error(method: &str) -> BridgeError {
    tracing::error!(method, "the handler panicked");
    let message = format!("{method} failed because of an internal error; see the daemon's log");
    BridgeError::new(ErrorKind::InternalError, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_objects_but_for_unsubscribing() {
        let table = [
            (None, Some("{}"), None),
            (Some("{}"), Some("{}"), None),
            (Some(r#"{"a":[1]}"#), Some(r#"{"a":[1]}"#), None),
            (Some("5"), None, None),
            (Some("[7]"), None, Some(SubscriptionId::Num(7))),
            (Some(r#"["a"]"#), None, Some(SubscriptionId::Str("a".into()))),
            (Some("[7,8]"), None, None),
            (Some("[]"), None, None),
            (Some("[{}]"), None, None),
            (Some(r#"{"subscription":7}"#), Some(r#"{"subscription":7}"#), None),
        ];
        for (params, named, subscription) in table {
            let raw = params.map(|text| RawValue::from_string(text.to_owned()).unwrap());
            assert_eq!(object_params(raw.as_deref()).ok(), named, "{params:?}");
            assert_eq!(
                subscription_param(raw.as_deref()).ok(),
                subscription,
                "{params:?}"
            );
        }
    }
}
