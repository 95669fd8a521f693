//! Implements the methods of the contract: checks the parameters, sends a call to a mailbox, and returns the result.
//!
//! All of the daemon's protocols call this room, with typed parameters and answers. Only this room knows both the conversations
//! and the contract's errors. A method about one conversation sends its call before its first await, so that calls reach the
//! mailbox in order of arrival.

mod agents;
mod conversations;
mod errors;
mod fingerprint;
mod lifecycle;
mod parameters;
mod transcripts;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bridge_protocol::conversation::SessionInfo;
use bridge_protocol::method::{Handle, Method};
use bridge_protocol::raw::RawJson;
use bridge_protocol::{BridgeError, ConversationId, ConversationRef, Cursor, ErrorKind};
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot};

use crate::agent::client::ClientProfile;
use crate::agent::message::{AgentError, CallError};
use crate::conversation::answer::{Answer, CallKey};
use crate::conversation::client_request::ClientMessage;
use crate::conversation::effect::Call;
use crate::conversation::error::ConversationError;
use crate::conversation::registry::Registry;
use crate::store::RequestId;
use fingerprint::fingerprint;

pub use crate::conversation::actor::ClientSwitchReason;
use crate::conversation::actor::Message;
pub use crate::conversation::client_request::{ClientRequest, ClientSuitability};
pub use crate::conversation::effect::NewTurn;
pub use crate::conversation::events::{Delivery, EncodedEvent, Subscriber};
pub use crate::conversation::replay::Replay;

/// The longest idempotency key: enough for a few UUIDs and a name. Keys are stored for days.
const MAX_REQUEST_ID_BYTES: usize = 256;

/// A client's request to stop the daemon.
#[derive(Clone, Copy, Debug)]
pub struct StopRequest {
    /// How long running turns may take to end. `None` means the configured grace.
    pub grace: Option<Duration>,
}

/// The state that the methods act on.
pub struct Bridge {
    /// All conversations.
    pub registry: Arc<Registry>,
    /// The folder that holds everything, if there is one; otherwise the data folder.
    pub home: PathBuf,
    /// The bridge socket.
    pub socket: PathBuf,
    /// When the daemon started.
    pub started: Instant,
    /// The database that this start, or an earlier one that is not settled yet, replaced and set aside, if any.
    pub set_aside_store: Option<PathBuf>,
    /// The channel for requests to stop. One request is enough.
    pub stop: mpsc::Sender<StopRequest>,
}

/// What the daemon can do with the earlier turns of a conversation, by what it knows of the agent's transcripts.
#[derive(Clone, Copy, Debug, Default)]
pub struct TurnAbilities {
    /// Whether it can list them and replace their prompts.
    pub lists: bool,
    /// Whether it can fork the session after one of them.
    pub forks_after: bool,
}

/// The implementation of one method.
trait Act<M: Method>: Send + Sync + 'static {
    /// Fills in defaults that only the daemon knows, so that a call with explicit defaults has the same content.
    fn complete(&self, _params: &mut M) {}

    /// Executes the call. `request` is its idempotency key, if it has one.
    fn act(&self, params: M, request: Option<CallKey>) -> impl Future<Output = Outcome<M>> + Send;
}

/// Implements [`Act`] for methods that only need [`Act::act`]. Each entry names the method, and binds the bridge, the
/// parameters and the idempotency key.
macro_rules! handlers {
    ($( $method:ident($bridge:ident, $params:pat, $request:pat) $body:block )+) => { $(
        impl $crate::bridge::Act<$method> for $crate::bridge::Bridge {
            async fn act(
                &$bridge,
                $params: $method,
                $request: Option<$crate::conversation::answer::CallKey>,
            ) -> $crate::bridge::Outcome<$method> $body
        }
    )+ };
}

use handlers;

/// The answer of a method, or its error.
type Outcome<M> = Result<<M as Method>::Answer, ConversationError>;

impl<M: Method> Handle<M> for Bridge
where
    Self: Act<M>,
{
    async fn handle(&self, params: M) -> Result<M::Answer, BridgeError> {
        self.carry_out(params, |params, request| self.act(params, request))
            .await
    }
}

impl Bridge {
    async fn carry_out<M: Method, Acted: Future<Output = Outcome<M>>>(
        &self,
        mut params: M,
        act: impl FnOnce(M, Option<CallKey>) -> Acted,
    ) -> Result<M::Answer, BridgeError>
    where
        Self: Act<M>,
    {
        self.complete(&mut params);
        let request = call_key(&params)?;
        // Before all other checks: a repeated call that succeeded returns its result, regardless of what has happened since.
        if let Some(answer) = self.stored_answer(&params, request.as_ref())? {
            return Ok(answer.read()?);
        }
        let conversation = params.conversation().cloned();
        let acted = act(params, request).await;
        let error = match acted {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let id = conversation.and_then(|conversation| self.registry.resolve(&conversation).ok());
        let error = match (error, id) {
            // The hint for these errors is a command with the conversation's id.
            (error @ (ConversationError::InvalidCwd(_) | ConversationError::Busy(_)), Some(id)) => {
                error.with_id("conversationId", &id)
            }
            (ConversationError::StoreFailed(failure), Some(id)) => {
                ConversationError::StoreFailed(self.registry.add_backup_advice(M::NAME, id, failure).await)
            }
            (error, _) => error,
        };
        Err(error.into())
    }

    /// Starts sending events to a subscriber: those of one conversation or of all, after `after` or after a snapshot.
    ///
    /// # Errors
    /// The conversation no longer exists, or the daemon is stopping.
    pub async fn subscribe(
        &self,
        to: Option<ConversationId>,
        subscriber: Box<dyn Subscriber>,
        after: Option<Cursor>,
    ) -> Result<(), BridgeError> {
        match to {
            Some(id) => self.registry.subscribe(id, subscriber, after)?,
            None => self.registry.subscribe_all(subscriber, after.as_ref()).await,
        }
        Ok(())
    }

    /// Makes the agent of a conversation run for this client, before the calls that follow.
    ///
    /// # Errors
    /// The conversation no longer exists, or too many calls wait for it.
    pub fn run_agent_for(
        &self,
        id: ConversationId,
        client: Arc<ClientProfile>,
        occasion: ClientSwitchReason,
    ) -> Result<(), BridgeError> {
        Ok(self.registry.send(id, Message::RunFor(client, occasion))?)
    }

    /// Asks for what the agent replays when the calls that follow have it load the session of a conversation. Nothing is sent if
    /// the history can be read, or the agent does not load the session for these calls.
    ///
    /// # Errors
    /// The conversation no longer exists, or too many calls wait for it.
    pub fn request_replay(&self, id: ConversationId) -> Result<oneshot::Receiver<Replay>, BridgeError> {
        let (reply, replay) = oneshot::channel();
        self.registry.send(id, Message::Replay(reply))?;
        Ok(replay)
    }

    /// What is known of the session of a conversation, after the calls that came before.
    ///
    /// # Errors
    /// The conversation no longer exists, or too many calls wait for it.
    pub async fn session_info(&self, id: ConversationId) -> Result<SessionInfo, BridgeError> {
        Ok(self.registry.session_info(id).await?)
    }

    /// What can be done with the earlier turns of a conversation.
    ///
    /// # Errors
    /// The conversation does not exist.
    pub fn turn_abilities(&self, id: ConversationId) -> Result<TurnAbilities, BridgeError> {
        let agent = self.registry.view(id)?.agent;
        let entry = self.registry.services().agent(&agent).ok();
        Ok(TurnAbilities {
            lists: entry
                .as_ref()
                .is_some_and(|entry| entry.listed_transcripts().is_some()),
            forks_after: entry.is_some_and(|entry| entry.forks_at_turns()),
        })
    }

    /// Forwards a client's request to the agent of a conversation. Returns the agent's result or error, byte for byte.
    ///
    /// # Errors
    /// The conversation no longer exists, too many calls wait for it, or it is not open in its agent.
    pub async fn forward_request(
        &self,
        id: ConversationId,
        method: String,
        params: RawJson,
        is_of_subagent: bool,
    ) -> Result<Result<RawJson, RawJson>, BridgeError> {
        let (reply, answer) = oneshot::channel();
        let message = ClientMessage {
            method,
            params,
            is_of_subagent,
            reply: Some(reply),
        };
        let message = Message::ForwardToAgent(Box::new(message));
        self.registry.send(id, message)?;
        let answer = answer.await.map_err(|_| {
            let message = "the session is not open in the agent, or was closed before the agent answered";
            BridgeError::new(ErrorKind::AgentUnavailable, message)
        })?;
        match answer {
            Ok(result) => Ok(Ok(RawJson::new(result))),
            Err(CallError::Agent(AgentError { raw: Some(raw), .. })) => Ok(Err(RawJson::new(raw))),
            Err(error) => Err(BridgeError::new(ErrorKind::AgentUnavailable, error.to_string())),
        }
    }

    /// Forwards a client's notification to the agent of a conversation, if its session is open.
    ///
    /// # Errors
    /// The conversation no longer exists, or too many calls wait for it.
    pub fn forward_notification(
        &self,
        id: ConversationId,
        method: String,
        params: RawJson,
        is_of_subagent: bool,
    ) -> Result<(), BridgeError> {
        let message = ClientMessage {
            method,
            params,
            is_of_subagent,
            reply: None,
        };
        let message = Message::ForwardToAgent(Box::new(message));
        Ok(self.registry.send(id, message)?)
    }

    /// Finds the conversation that a reference names.
    ///
    /// # Errors
    /// No conversation or several conversations match.
    pub fn conversation(&self, name: &ConversationRef) -> Result<ConversationId, BridgeError> {
        Ok(self.resolve(name)?)
    }

    fn resolve(&self, name: &ConversationRef) -> Result<ConversationId, ConversationError> {
        self.registry.resolve(name)
    }

    /// The conversation, if the caller named one.
    fn resolve_named(
        &self,
        name: Option<&ConversationRef>,
    ) -> Result<Option<ConversationId>, ConversationError> {
        name.map(|name| self.resolve(name)).transpose()
    }

    /// Returns the answer to an earlier call with the same key, even if the conversation has been deleted.
    fn stored_answer<M: Method>(
        &self,
        params: &M,
        request: Option<&CallKey>,
    ) -> Result<Option<Answer>, ConversationError> {
        let scope = match params.conversation().map(|name| self.resolve(name)) {
            None => None,
            Some(Ok(id) | Err(ConversationError::Deleted { id, .. })) => Some(id),
            // The method itself will refuse the call.
            Some(Err(_)) => return Ok(None),
        };
        self.registry.stored_answer(scope, request)
    }

    /// Sends a call to its conversation and waits for the answer.
    async fn call<T: DeserializeOwned>(
        &self,
        name: &ConversationRef,
        call: Call,
        request: Option<CallKey>,
    ) -> Result<T, ConversationError> {
        let id = self.resolve(name)?;
        let answer = self.registry.call(id, call, request)?;
        answer.await.unwrap_or(Err(ConversationError::Internal))?.read()
    }

    /// Like [`Bridge::call`], for a call whose answer the conversation does not store.
    async fn call_once<T: DeserializeOwned>(
        &self,
        name: &ConversationRef,
        call: Call,
        request: Option<CallKey>,
    ) -> Result<T, ConversationError> {
        let id = self.resolve(name)?;
        let start = || {
            let answer = self.registry.call(id, call, None);
            async move { answer?.await.unwrap_or(Err(ConversationError::Internal)) }
        };
        self.registry
            .run_idempotent(Some(id), request, start)
            .await?
            .read()
    }
}

/// The idempotency key of a call: the caller's id, and a hash of the call's content.
fn call_key<M: Method>(params: &M) -> Result<Option<CallKey>, ConversationError> {
    let Some(id) = params.request_id() else {
        return Ok(None);
    };
    if id.is_empty() || id.len() > MAX_REQUEST_ID_BYTES {
        let why = format!(
            "requestId has {} bytes, and must have 1 to {MAX_REQUEST_ID_BYTES}; omit it to run every call",
            id.len()
        );
        return Err(ConversationError::invalid("requestId", why));
    }
    Ok(Some(CallKey {
        id: RequestId::new(id),
        fingerprint: fingerprint(params),
    }))
}
