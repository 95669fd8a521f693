//! Carries out the methods of the contract: checks the parameters, sends a call to a mailbox, returns the answer or the error.
//!
//! What every protocol in front of the daemon calls, with typed parameters and answers. The only place that knows both the
//! conversations and the contract's errors. A method about one conversation sends its call before it first waits, so that calls are
//! admitted in the order in which they arrive.

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

use bridge_protocol::diagnosis::Diagnostic;
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
pub use crate::conversation::client_request::{ClientRequest, ClientSuitability};
pub use crate::conversation::effect::NewTurn;
pub use crate::conversation::events::{Delivery, EncodedEvent, Subscriber};

/// The longest idempotency key: a few UUIDs and a name. Each is kept for days.
const MAX_REQUEST_ID_BYTES: usize = 256;

/// A request to stop that came over the wire.
#[derive(Clone, Copy, Debug)]
pub struct StopRequest {
    /// How long running turns get; the configured grace when none is named.
    pub grace: Option<Duration>,
}

/// What the methods act on.
pub struct Bridge {
    /// All conversations.
    pub registry: Arc<Registry>,
    /// The one folder that everything is under, or the data folder.
    pub home: PathBuf,
    /// The bridge socket.
    pub socket: PathBuf,
    /// When this life began.
    pub started: Instant,
    /// A store that would not open and was set aside at this start.
    pub set_aside_store: Option<PathBuf>,
    /// What is to be said of the configuration file, as it is now.
    pub diagnose_configuration: Box<dyn Fn() -> Diagnostic + Send + Sync>,
    /// Where a request to stop goes; one is enough.
    pub stop: mpsc::Sender<StopRequest>,
}

/// Carries out one method.
trait Act<M: Method>: Send + Sync + 'static {
    /// Fills in defaults that only the daemon knows, so that a call has the same content with them written out.
    fn complete(&self, _params: &mut M) {}

    /// Carries the call out. `request` is its idempotency key, where the call has one.
    fn act(&self, params: M, request: Option<CallKey>) -> impl Future<Output = Outcome<M>> + Send;
}

/// Declares handlers, which need nothing of [`Act`] but [`Act::act`]: the method, and the names of what it acts on and with.
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
        // Before anything else is checked: a repeated call that succeeded returns its result whatever has happened since.
        if let Some(answer) = self.stored_answer(&params, request.as_ref())? {
            return Ok(answer.read()?);
        }
        let named = params.conversation().cloned();
        let acted = act(params, request).await;
        Ok(acted.map_err(|error| {
            // The hint for these errors is a command with the conversation's id.
            let concerns_it = matches!(
                error,
                ConversationError::InvalidCwd(_) | ConversationError::Busy(_)
            );
            match named
                .filter(|_| concerns_it)
                .map(|named| self.registry.resolve(&named))
            {
                Some(Ok(id)) => error.with_id("conversationId", &id),
                _ => error,
            }
        })?)
    }

    /// Begins to send events to a subscriber: those of one conversation or of all, after `after` or after a snapshot.
    ///
    /// # Errors
    /// The conversation does not exist any more, or the daemon is stopping.
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

    /// Has the agent of a conversation run for this client, before the calls that follow.
    ///
    /// # Errors
    /// The conversation does not exist any more, or too many calls wait for it.
    pub fn run_agent_for(
        &self,
        id: ConversationId,
        client: Arc<ClientProfile>,
        occasion: ClientSwitchReason,
    ) -> Result<(), BridgeError> {
        Ok(self.registry.run_agent_for(id, client, occasion)?)
    }

    /// Passes a client's request on to the agent of a conversation. Gives the agent's result or error, byte for byte.
    ///
    /// # Errors
    /// The conversation does not exist any more, too many calls wait for it, or it is not open in its agent.
    pub async fn forward_request(
        &self,
        id: ConversationId,
        method: String,
        params: RawJson,
        is_of_subagent: bool,
    ) -> Result<Result<RawJson, RawJson>, BridgeError> {
        let (reply, answer) = oneshot::channel();
        let reply = Some(reply);
        self.registry.forward_message(
            id,
            ClientMessage {
                method,
                params,
                is_of_subagent,
                reply,
            },
        )?;
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

    /// Passes a client's notification on to the agent of a conversation, if its session is open.
    ///
    /// # Errors
    /// The conversation does not exist any more, or too many calls wait for it.
    pub fn forward_notification(
        &self,
        id: ConversationId,
        method: String,
        params: RawJson,
        is_of_subagent: bool,
    ) -> Result<(), BridgeError> {
        let reply = None;
        Ok(self.registry.forward_message(
            id,
            ClientMessage {
                method,
                params,
                is_of_subagent,
                reply,
            },
        )?)
    }

    /// The conversation of this name.
    ///
    /// # Errors
    /// There is none, or there are several.
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

    /// The answer of an earlier call with the same key; of a deleted conversation too.
    fn stored_answer<M: Method>(
        &self,
        params: &M,
        request: Option<&CallKey>,
    ) -> Result<Option<Answer>, ConversationError> {
        let scope = match params.conversation().map(|name| self.resolve(name)) {
            None => None,
            Some(Ok(id) | Err(ConversationError::Deleted { id, .. })) => Some(id),
            // The method itself refuses it.
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
        answer.await.unwrap_or(Err(ConversationError::Lost))?.read()
    }

    /// As [`Bridge::call`], for a call whose answer the conversation does not keep.
    async fn call_once<T: DeserializeOwned>(
        &self,
        name: &ConversationRef,
        call: Call,
        request: Option<CallKey>,
    ) -> Result<T, ConversationError> {
        let id = self.resolve(name)?;
        let start = || {
            let answer = self.registry.call(id, call, None);
            async move { answer?.await.unwrap_or(Err(ConversationError::Lost)) }
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
