//! Idempotency keys. A key of a running call is refused to a call with other content. A repeated call that no task of a
//! conversation handles joins the running one, or gets the stored result.
//!
//! Prompts, changes, forks, answers, resets and deletions store their key together with their change, in the state
//! machine of the conversation, which also joins their repeated calls. This module handles all other calls. Those that make a
//! record commit their result with it (see [`CallKey::to_answered_record`]). The rest, such as an export, commit the result
//! when they are done. If the daemon is killed before that, a repeated call runs again; an export to a path is then refused,
//! as its file exists.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bridge_protocol::ConversationId;
use futures_util::FutureExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::super::answer::{Answer, CallKey, MadeConversation};
use super::super::error::ConversationError;
use super::super::lock::lock;
use super::super::services::{chain_text, now};
use super::Registry;
use crate::store::{Change, RequestId, RequestRecord};

/// How long a stop waits for work that other threads do.
const STOP_WAIT_LIMIT: Duration = Duration::from_secs(5);

type CallResult = Option<Result<Answer, ConversationError>>;

/// An idempotency key and the conversation in which it is unique, if any.
type ScopedKey = (Option<ConversationId>, RequestId);

/// Running calls that have an idempotency key.
#[derive(Clone, Default)]
pub(super) struct RunningCalls(Arc<Mutex<HashMap<ScopedKey, RunningCall>>>);

struct RunningCall {
    fingerprint: String,
    /// `None`: the conversation's task handles the call.
    outcome: Option<watch::Receiver<CallResult>>,
}

/// Removes a call from the running ones when dropped, however the call ends.
pub(in crate::conversation) struct RunningCallGuard {
    calls: RunningCalls,
    key: ScopedKey,
}

impl Drop for RunningCallGuard {
    fn drop(&mut self) {
        lock(&self.calls.0).remove(&self.key);
    }
}

/// The result of registering a call.
pub(super) enum Entered {
    New(RunningCallGuard),
    /// The call repeats a running one, which has this outcome.
    Repeated(Option<watch::Receiver<CallResult>>),
}

impl RunningCalls {
    /// Registers a call as running, unless it repeats a running call.
    ///
    /// # Errors
    /// When the running call with this key has other content.
    pub(super) fn enter(
        &self,
        scope: Option<ConversationId>,
        request: &CallKey,
        outcome: Option<watch::Receiver<CallResult>>,
    ) -> Result<Entered, ConversationError> {
        let key = (scope, request.id.clone());
        match lock(&self.0).entry(key.clone()) {
            Entry::Occupied(running) if request.has_same_content(&running.get().fingerprint) => {
                Ok(Entered::Repeated(running.get().outcome.clone()))
            }
            Entry::Occupied(_) => Err(request.content_conflict()),
            Entry::Vacant(vacant) => {
                let fingerprint = request.fingerprint.clone();
                vacant.insert(RunningCall { fingerprint, outcome });
                let calls = self.clone();
                Ok(Entered::New(RunningCallGuard { calls, key }))
            }
        }
    }
}

impl Registry {
    /// Runs a call once per key. `start` is called before the first await, and only if the call is not a repetition. The
    /// call continues if its caller disconnects. Failures are not stored.
    ///
    /// # Errors
    /// Those of the call; when the key was used with other content; when the result cannot be stored.
    pub async fn run_idempotent<F>(
        self: &Arc<Self>,
        of: Option<ConversationId>,
        request: Option<CallKey>,
        start: impl FnOnce() -> F,
    ) -> Result<Answer, ConversationError>
    where
        F: Future<Output = Result<Answer, ConversationError>> + Send + 'static,
    {
        // A stop waits for calls to conversations, so that they are answered. It does not wait for other calls: signing in to
        // an agent may take a quarter of an hour.
        self.run_idempotent_until(of.is_some(), of, request, start).await
    }

    /// As [`Registry::run_idempotent`]. If `delays_stop`, a stop waits for the call and until its answer is stored.
    async fn run_idempotent_until<F>(
        self: &Arc<Self>,
        delays_stop: bool,
        scope: Option<ConversationId>,
        request: Option<CallKey>,
        start: impl FnOnce() -> F,
    ) -> Result<Answer, ConversationError>
    where
        F: Future<Output = Result<Answer, ConversationError>> + Send + 'static,
    {
        let Some(request) = request else {
            return start().await;
        };
        let (sender, outcome) = watch::channel(None);
        let entered = self.running_calls.enter(scope, &request, Some(outcome.clone()))?;
        let mut outcome = match entered {
            Entered::New(guard) => {
                match self.stored_answer(scope, Some(&request)).transpose() {
                    Some(earlier) => drop(sender.send_replace(Some(earlier))),
                    None => self.start_call(delays_stop, scope, request, start(), (guard, sender)),
                }
                outcome
            }
            Entered::Repeated(Some(running)) => running,
            // Each method is handled either here or by the conversation's task.
            Entered::Repeated(None) => return Err(ConversationError::Internal),
        };
        match outcome.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or(Err(ConversationError::Internal)),
            Err(_) => Err(ConversationError::Internal),
        }
    }

    /// Runs work that no conversation's task handles; once per key, if the call has one.
    ///
    /// # Errors
    /// Those of the work and of [`Registry::run_idempotent`].
    pub(super) async fn run_idempotent_work<T, F>(
        self: &Arc<Self>,
        of: Option<ConversationId>,
        request: Option<CallKey>,
        work: impl FnOnce(Arc<Self>) -> F,
    ) -> Result<T, ConversationError>
    where
        T: Serialize + DeserializeOwned + Send,
        F: Future<Output = Result<T, ConversationError>> + Send + 'static,
    {
        let (registry, work) = (Arc::clone(self), work(Arc::clone(self)));
        if request.is_none() {
            return work.await;
        }
        let start = || async move { Answer::from_value(&registry.finish_or_stop(work).await?) };
        self.run_idempotent_until(true, of, request, start).await?.read()
    }

    /// Waits for work on other threads; when the daemon stops, for no longer than [`STOP_WAIT_LIMIT`]: a disk that does not
    /// respond must not hold up a stop.
    async fn finish_or_stop<T>(
        &self,
        work: impl Future<Output = Result<T, ConversationError>>,
    ) -> Result<T, ConversationError> {
        let mut work = pin!(work);
        tokio::select! {
            biased;
            done = &mut work => done,
            () = self.stop.cancelled() => {
                let done = tokio::time::timeout(STOP_WAIT_LIMIT, work).await;
                done.unwrap_or(Err(ConversationError::ShuttingDown))
            }
        }
    }

    fn start_call(
        self: &Arc<Self>,
        delays_stop: bool,
        scope: Option<ConversationId>,
        request: CallKey,
        call: impl Future<Output = Result<Answer, ConversationError>> + Send + 'static,
        (guard, sender): (RunningCallGuard, watch::Sender<CallResult>),
    ) {
        let registry = Arc::clone(self);
        let run = async move {
            let result = match call.await {
                Ok(answer) => registry.store_answer(scope, &request, answer).await,
                Err(error) => Err(error),
            };
            // Removed from the running calls before the result is sent: a call that arrives now finds the stored result.
            drop(guard);
            sender.send_replace(Some(result));
        };
        // Polled once here, so that what the call reads first is the state before any later call.
        let mut run = Box::pin(run);
        if tokio::task::unconstrained(run.as_mut()).now_or_never().is_some() {
            return;
        }
        match delays_stop {
            true => self.tasks.spawn(run),
            false => tokio::spawn(run),
        };
    }

    /// Stores the answer of a call, unless the call has committed one with its change. Returns the answer.
    async fn store_answer(
        &self,
        scope: Option<ConversationId>,
        request: &CallKey,
        answer: Answer,
    ) -> Result<Answer, ConversationError> {
        if let Ok(Some(_)) = self.stored_answer(scope, Some(request)) {
            return Ok(answer);
        }
        let record = RequestRecord {
            conversation_id: scope,
            ..request.to_answered_record(&answer, now())
        };
        let change = Change {
            requests: vec![record],
            ..Change::default()
        };
        if let Err(error) = self.services.store.commit(change).await {
            // The call itself succeeded: an error would make the caller repeat it.
            tracing::error!(
                request = request.id.as_str(),
                error = chain_text(&error),
                "could not store the result of a call; if it is repeated, it is carried out again"
            );
        }
        Ok(answer)
    }

    /// The stored answer of an earlier call with this key.
    ///
    /// # Errors
    /// When that call had other content, the conversation that it made was deleted, or the store cannot be read.
    pub fn stored_answer(
        &self,
        scope: Option<ConversationId>,
        request: Option<&CallKey>,
    ) -> Result<Option<Answer>, ConversationError> {
        let Some(request) = request else { return Ok(None) };
        let record = self.services.store.request(scope, &request.id);
        match record? {
            Some(record) if !request.has_same_content(&record.fingerprint) => Err(request.content_conflict()),
            Some(record) => match MadeConversation::from_request(&record).map(|made| self.salvaged(made)) {
                Some(Err(deleted @ ConversationError::Deleted { .. })) => Err(deleted),
                _ => Ok(record.result.map(Answer::Json)),
            },
            None => Ok(None),
        }
    }
}
