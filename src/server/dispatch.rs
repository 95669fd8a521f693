//! One request brought to its method, and the method's outcome made into an answer.
//!
//! Owns what a method is given besides its parameters. Each call is polled once before this room returns, so that a
//! handler that hands its work on before it first waits has done so in the order in which the requests arrived.
//! Knows nothing about reading, writing or how many calls run.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use bridge_protocol::{BridgeError, ErrorKind};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jsonrpsee::core::traits::IdProvider;
use jsonrpsee::types::{Id, Params, SubscriptionId};
use jsonrpsee::{
    BoundedSubscriptions, ConnectionId, Extensions, MethodCallback, MethodResponse, MethodSink, Methods,
    SubscriptionState,
};
use serde_json::value::RawValue;

use super::envelope::{Call, CallId, Entry, Rejection};
use super::fault;

/// The text of an answer; none where nothing is answered, or where it went out already.
pub(super) type Answer = Option<Box<str>>;

/// What became of a request when it was admitted.
pub(super) enum Admitted {
    /// It is done.
    Done(Answer),
    /// It goes on.
    Running(BoxFuture<'static, Answer>),
    /// It goes on, and no later request of this connection may be admitted before it is done: a subscription has to
    /// be in place before the prompt that follows it.
    Ordering(BoxFuture<'static, Answer>),
}

/// The methods, as one connection sees them.
pub(super) struct Dispatcher {
    pub(super) methods: Methods,
    pub(super) connection_id: ConnectionId,
    /// What each method is given: `ConnectionInfo` among it.
    pub(super) extensions: Extensions,
    /// Where jsonrpsee sends the answers to subscriptions.
    pub(super) sink: MethodSink,
    pub(super) subscriptions: BoundedSubscriptions,
    pub(super) response_bytes: usize,
}

/// Subscription ids that count up, unique within the daemon, so that they are short on the wire and clear in logs.
#[derive(Debug)]
struct CountingIds;

static NEXT_SUBSCRIPTION_ID: AtomicU64 = AtomicU64::new(1);

impl IdProvider for CountingIds {
    fn next_id(&self) -> SubscriptionId<'static> {
        SubscriptionId::Num(NEXT_SUBSCRIPTION_ID.fetch_add(1, Ordering::Relaxed))
    }
}

impl Dispatcher {
    /// Admits a request that stands alone on its line.
    pub(super) fn admit(&self, entry: Entry<'_>) -> Admitted {
        self.admit_entry(entry, false)
    }

    /// Admits a request of a batch, where a subscription is refused: its answer could not be told apart from the
    /// batch's, and would come too late for its events.
    pub(super) fn admit_in_batch(&self, entry: Entry<'_>) -> Admitted {
        self.admit_entry(entry, true)
    }

    fn admit_entry(&self, entry: Entry<'_>, in_batch: bool) -> Admitted {
        let Call { id, method, params } = match entry {
            Ok(call) => call,
            Err(Rejection { id, error }) => return Admitted::Done(Some(fault::answer(id, error))),
        };
        let refuse = |error| Admitted::Done(id.as_ref().map(|id| fault::answer(Some(id.raw), error)));
        let Some((name, callback)) = self.methods.method_with_name(&method) else {
            let message = format!("there is no method {method:?}");
            return refuse(BridgeError::new(ErrorKind::MethodNotFound, message));
        };
        let params = match check_params(params, matches!(callback, MethodCallback::Unsubscription(_))) {
            Ok(params) => params,
            Err(error) => return refuse(error),
        };
        if matches!(callback, MethodCallback::Subscription(_)) {
            if in_batch {
                return refuse(fault::invalid_request(format!(
                    "{name} cannot be part of a batch"
                )));
            }
            if id.is_none() {
                tracing::debug!(method = name, "a subscription without an id is ignored");
                return Admitted::Done(None);
            }
        }
        self.call(name, callback, id.as_ref(), params)
    }

    fn call(
        &self,
        name: &'static str,
        callback: &MethodCallback,
        id: Option<&CallId<'_>>,
        params: &str,
    ) -> Admitted {
        // A notification runs like a request whose answer is thrown away.
        let parsed_id = id.map_or(Id::Null, |id| id.parsed.clone());
        let raw_id: Option<Box<RawValue>> = id.map(|id| id.raw.to_owned());
        let params = Params::new(Some(params));
        let extensions = self.extensions.clone();
        let (connection_id, limit) = (self.connection_id, self.response_bytes);
        let started = catch_unwind(AssertUnwindSafe(|| match callback {
            MethodCallback::Sync(call) => Started::Done(call(parsed_id, params, limit, extensions)),
            MethodCallback::Unsubscription(call) => {
                Started::Done(call(parsed_id, params, connection_id, limit, extensions))
            }
            MethodCallback::Async(call) => {
                let (id, params) = (parsed_id.into_owned(), params.into_owned());
                Started::Running(call(id, params, connection_id, limit, extensions))
            }
            MethodCallback::Subscription(call) => {
                let Some(subscription_permit) = self.subscriptions.acquire() else {
                    let limit = self.subscriptions.max();
                    let message = format!("this connection has {limit} subscriptions, which is the limit");
                    return Started::Refused(BridgeError::new(ErrorKind::Busy, message));
                };
                let state = SubscriptionState {
                    conn_id: connection_id,
                    id_provider: &CountingIds,
                    subscription_permit,
                };
                Started::Subscribing(call(parsed_id, params, self.sink.clone(), state, extensions))
            }
        }));
        let (running, ordering) = match started {
            Ok(Started::Done(response)) => {
                return Admitted::Done(answer_of(response, raw_id.as_deref()));
            }
            Ok(Started::Refused(error)) => {
                return Admitted::Done(Some(fault::answer(raw_id.as_deref(), error)));
            }
            Ok(Started::Running(running)) => (running, false),
            Ok(Started::Subscribing(running)) => (running, true),
            Err(_) => return Admitted::Done(answer_of_panic(name, raw_id.as_deref())),
        };
        let mut running = AssertUnwindSafe(running).catch_unwind().boxed();
        let answered = move |outcome| match outcome {
            Ok(response) => answer_of(response, raw_id.as_deref()),
            Err(_) => answer_of_panic(name, raw_id.as_deref()),
        };
        match poll_once(&mut running) {
            Poll::Ready(outcome) => Admitted::Done(answered(outcome)),
            Poll::Pending => {
                let running = running.map(answered).boxed();
                match ordering {
                    true => Admitted::Ordering(running),
                    false => Admitted::Running(running),
                }
            }
        }
    }
}

enum Started {
    Done(MethodResponse),
    Refused(BridgeError),
    Running(BoxFuture<'static, MethodResponse>),
    Subscribing(BoxFuture<'static, MethodResponse>),
}

/// The first poll of a call. Whoever keeps the future has to poll it again, which registers a real waker.
fn poll_once<T>(running: &mut BoxFuture<'static, T>) -> Poll<T> {
    // Unconstrained, because a handler that finds the task's budget used up would stop short of the mailbox, and the
    // order of admission would then rest on how the running calls are polled later.
    let first = pin!(tokio::task::unconstrained(running));
    first.poll(&mut Context::from_waker(Waker::noop()))
}

/// Checks the shape of parameters; those of an unsubscription are an array, all others an object.
fn check_params(params: Option<&RawValue>, unsubscription: bool) -> Result<&str, BridgeError> {
    let invalid = |message| BridgeError::new(ErrorKind::InvalidParams, message);
    let one_id = || invalid("parameters are one subscription id in an array");
    let text = params.map_or("", RawValue::get);
    match (unsubscription, text.as_bytes().first()) {
        (true, Some(b'[')) => serde_json::from_str::<[SubscriptionId<'_>; 1]>(text)
            .map(|_| text)
            .map_err(|_| one_id()),
        (true, _) => Err(one_id()),
        // What has only optional parameters may be called without any.
        (false, None) => Ok("{}"),
        (false, Some(b'{')) => Ok(text),
        (false, Some(_)) => Err(invalid("parameters are an object, by name")),
    }
}

fn answer_of(response: MethodResponse, id: Option<&RawValue>) -> Answer {
    // The answer to a subscription went out when it was accepted or rejected. One that was neither comes as an
    // ordinary error.
    if id.is_none() || response.is_subscription() {
        return None;
    }
    let failed = response.is_error();
    let text: Box<str> = response.into_json().into();
    Some(if failed {
        fault::with_complete_data(text)
    } else {
        text
    })
}

fn answer_of_panic(method: &'static str, id: Option<&RawValue>) -> Answer {
    tracing::error!(method, "the handler panicked");
    id.map(|id| {
        let message = format!("{method} failed by a fault of the daemon; see its log");
        fault::answer(Some(id), BridgeError::new(ErrorKind::InternalError, message))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_objects_but_for_unsubscribing() {
        let table = [
            (None, false, Some("{}")),
            (Some("{}"), false, Some("{}")),
            (Some(r#"{"a":[1]}"#), false, Some(r#"{"a":[1]}"#)),
            (Some("[]"), false, None),
            (Some("[1]"), false, None),
            (Some("5"), false, None),
            (Some("[7]"), true, Some("[7]")),
            (Some(r#"["a"]"#), true, Some(r#"["a"]"#)),
            (Some("[7,8]"), true, None),
            (Some("[]"), true, None),
            (Some("[{}]"), true, None),
            (Some(r#"{"subscription":7}"#), true, None),
            (None, true, None),
        ];
        for (params, unsubscription, expected) in table {
            let raw = params.map(|text| RawValue::from_string(text.to_owned()).unwrap());
            assert_eq!(
                check_params(raw.as_deref(), unsubscription).ok(),
                expected,
                "{params:?} {unsubscription}"
            );
        }
    }
}
