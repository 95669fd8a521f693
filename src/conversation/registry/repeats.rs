//! Idempotency keys of calls that no task of a conversation handles: a repeated call joins the running one, or gets the
//! stored result.
//!
//! Prompts, changes, forks, answers, resets and deletions store their key together with their change, in the state
//! machine of the conversation. This module handles all others. Those that make a record commit their result with it
//! (see [`CallKey::answered`]); the others, such as an export, commit it when they have one, and are carried out again
//! if the daemon is killed before that: an export to a path then finds its own file there, and is refused.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bridge_protocol::ConversationId;
use futures_util::FutureExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::super::answer::{Answer, CallKey, MadeConversation};
use super::super::error::ConversationError;
use super::super::services::{chain_text, now};
use super::Registry;
use crate::store::{Change, RequestId, RequestRecord};

/// How long a stop waits for work that other threads do.
const PATIENCE_AT_STOP: Duration = Duration::from_secs(5);

type Outcome = Option<Result<Answer, ConversationError>>;

/// What a key is unique in, and the key.
type Place = (Option<ConversationId>, RequestId);

/// The calls with a key that run now.
#[derive(Default)]
pub(super) struct Underway {
    calls: Mutex<HashMap<Place, Running>>,
}

struct Running {
    fingerprint: String,
    outcome: watch::Receiver<Outcome>,
}

/// Takes a call off the list when it is over, however it ends.
struct Listed {
    registry: Arc<Registry>,
    place: Place,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.registry.underway.lock().remove(&self.place);
    }
}

impl Underway {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Place, Running>> {
        // Each change to the map is one call: it is whole after any panic.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The call that runs under this key.
    ///
    /// # Errors
    /// When it has another content.
    pub(super) fn find(
        &self,
        of: Option<ConversationId>,
        request: &CallKey,
    ) -> Result<Option<watch::Receiver<Outcome>>, ConversationError> {
        match self.lock().get(&(of, request.id.clone())) {
            Some(running) if request.has_content_of(&running.fingerprint) => {
                Ok(Some(running.outcome.clone()))
            }
            Some(_) => Err(request.differs()),
            None => Ok(None),
        }
    }
}

impl Registry {
    /// Carries a call out once. `start` is called before the first await, and only if the call is not a repetition. The
    /// call continues if its caller disconnects. Calls that fail are not remembered.
    ///
    /// # Errors
    /// As the call; when the key was used with another content; when the result cannot be written down.
    pub async fn once<F>(
        self: &Arc<Self>,
        of: Option<ConversationId>,
        request: Option<CallKey>,
        start: impl FnOnce() -> F,
    ) -> Result<Answer, ConversationError>
    where
        F: Future<Output = Result<Answer, ConversationError>> + Send + 'static,
    {
        // The daemon stops when the conversations have, and what they were asked is answered. An agent may take a quarter of an
        // hour to sign in: nobody waits for that at a stop.
        self.once_until(of.is_some(), of, request, start).await
    }

    /// As [`Registry::once`]. A stop waits for the call and for its answer to be recorded, if it `holds_a_stop`.
    async fn once_until<F>(
        self: &Arc<Self>,
        holds_a_stop: bool,
        of: Option<ConversationId>,
        request: Option<CallKey>,
        start: impl FnOnce() -> F,
    ) -> Result<Answer, ConversationError>
    where
        F: Future<Output = Result<Answer, ConversationError>> + Send + 'static,
    {
        let Some(request) = request else {
            return start().await;
        };
        let mut outcome = match self.underway.find(of, &request)? {
            Some(running) => running,
            None => match self.kept(of, Some(&request))? {
                Some(kept) => return Ok(kept),
                None => self.run_once(holds_a_stop, of, request, start()),
            },
        };
        match outcome.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or(Err(ConversationError::Lost)),
            Err(_) => Err(ConversationError::Lost),
        }
    }

    /// Does work that no conversation's task does, once if the call has a key.
    ///
    /// # Errors
    /// As the work, and [`Registry::once`].
    pub(super) async fn remembered<T, F>(
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
        let start = || async move { Answer::of(&registry.until_stop(work).await?) };
        self.once_until(true, of, request, start).await?.read()
    }

    /// Waits for work on other threads; when the daemon stops, for no longer than [`PATIENCE_AT_STOP`]: a disk that does not
    /// respond must not hold up a stop.
    async fn until_stop<T>(
        &self,
        work: impl Future<Output = Result<T, ConversationError>>,
    ) -> Result<T, ConversationError> {
        let mut work = pin!(work);
        tokio::select! {
            biased;
            done = &mut work => done,
            () = self.stop.cancelled() => {
                let done = tokio::time::timeout(PATIENCE_AT_STOP, work).await;
                done.unwrap_or(Err(ConversationError::ShuttingDown))
            }
        }
    }

    fn run_once(
        self: &Arc<Self>,
        holds_a_stop: bool,
        of: Option<ConversationId>,
        request: CallKey,
        call: impl Future<Output = Result<Answer, ConversationError>> + Send + 'static,
    ) -> watch::Receiver<Outcome> {
        let (sender, outcome) = watch::channel(None);
        let place = (of, request.id.clone());
        let running = Running {
            fingerprint: request.fingerprint.clone(),
            outcome: outcome.clone(),
        };
        self.underway.lock().insert(place.clone(), running);
        let listed = Listed {
            registry: Arc::clone(self),
            place,
        };
        let run = async move {
            let result = match call.await {
                Ok(answer) => listed.registry.keep(of, &request, answer).await,
                Err(error) => Err(error),
            };
            // Off the list first: who comes now finds what is kept.
            drop(listed);
            sender.send_replace(Some(result));
        };
        // What the call looks at first, it sees as things are now and not after a call that arrives later.
        let mut run = Box::pin(run);
        if tokio::task::unconstrained(run.as_mut()).now_or_never().is_some() {
            return outcome;
        }
        match holds_a_stop {
            true => self.tasks.spawn(run),
            false => tokio::spawn(run),
        };
        outcome
    }

    /// Records the answer of a call, unless the call has recorded one with what it changed, and returns it.
    async fn keep(
        &self,
        of: Option<ConversationId>,
        request: &CallKey,
        answer: Answer,
    ) -> Result<Answer, ConversationError> {
        if let Ok(Some(_)) = self.kept(of, Some(request)) {
            return Ok(answer);
        }
        let record = RequestRecord {
            conversation_id: of,
            ..request.answered(&answer, now())
        };
        let change = Change {
            requests: vec![record],
            ..Change::default()
        };
        if let Err(error) = self.services.store.commit(change).await {
            // It is done: to say that it failed would make the caller do it again.
            tracing::error!(
                request = request.id.as_str(),
                error = chain_text(&error),
                "could not store the result of a call; if it is repeated, it is carried out again"
            );
        }
        Ok(answer)
    }

    /// What an earlier call with this key was answered.
    ///
    /// # Errors
    /// When it had another content, the conversation that it made was deleted, or the store cannot be read.
    pub fn kept(
        &self,
        of: Option<ConversationId>,
        request: Option<&CallKey>,
    ) -> Result<Option<Answer>, ConversationError> {
        let Some(request) = request else { return Ok(None) };
        let kept = self.services.store.request(of, &request.id);
        match kept? {
            Some(kept) if !request.has_content_of(&kept.fingerprint) => Err(request.differs()),
            Some(kept) => match MadeConversation::of(&kept).map(|made| self.salvaged(made)) {
                Some(Err(deleted @ ConversationError::Deleted { .. })) => Err(deleted),
                _ => Ok(kept.result.map(Answer::Json)),
            },
            None => Ok(None),
        }
    }
}
