//! One editor connection: reads its lines, starts its requests in order of arrival, and answers each.
//!
//! Owns the running requests and the sessions that the editor has open. Dropping the connection frees them; the
//! conversations remain. Knows the methods by name only.

use std::collections::HashMap;
use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use bridge_protocol::editor::{AGENT, COMMAND, Chosen};
use bridge_protocol::method::{Handle, Respond};
use bridge_protocol::raw::RawJson;
use bridge_protocol::{
    AgentName, BridgeError, ConversationId, ConversationRef, ErrorKind, TurnId, UpstreamId, method,
};
use futures_util::{FutureExt as _, TryFutureExt as _};
use serde::Deserialize;
use tokio::sync::{OwnedMutexGuard, oneshot};
use tokio_util::sync::CancellationToken;

use super::message::{self, Failure};
use super::peer::{AgentsWithCommands, ForwardedQuestion, Peer, PendingRequest};
use super::session::Session;
use crate::agent::client::ClientProfile;
use crate::agent::envelope::{Envelope, EnvelopeKind, Malformed, OversizedLineIds};
use crate::agent::split::SplitLine;
use crate::bridge::{Bridge, ClientSwitchReason};
use crate::server::{
    Dialogue, Outbox, RequestsInFlight, Service, SocketLimits, check_nesting, panic_error, poll_once,
};

/// The ACP service on its socket: one `Editor` per connection.
#[derive(Clone)]
pub struct AcpService {
    bridge: Arc<Bridge>,
    offers_commands: bool,
    agents_with_commands: AgentsWithCommands,
}

impl AcpService {
    /// The ACP service of this daemon. `commands`: whether editors are offered sessiond's commands.
    pub fn new(bridge: Arc<Bridge>, commands: bool) -> Self {
        Self {
            agents_with_commands: AgentsWithCommands::new(bridge.agents_of_known_kinds()),
            bridge,
            offers_commands: commands,
        }
    }
}

impl Service for AcpService {
    type Dialogue = Editor;

    fn open(&self, outbox: Outbox, limits: Arc<SocketLimits>) -> Editor {
        let connection = Connection {
            bridge: Arc::clone(&self.bridge),
            peer: Peer::new(
                outbox.clone(),
                self.offers_commands,
                self.agents_with_commands.clone(),
            ),
            chosen_agent: Mutex::default(),
            sessions: Mutex::default(),
        };
        Editor {
            connection: Arc::new(connection),
            requests: Arc::default(),
            in_flight: RequestsInFlight::new(outbox),
            limits,
        }
    }
}

/// A connected editor.
pub struct Editor {
    connection: Arc<Connection>,
    /// Unanswered requests: their ids and how to cancel them. Keyed by turn, because an editor may reuse a request id.
    requests: Arc<Mutex<HashMap<TurnId, (String, CancelTarget)>>>,
    in_flight: RequestsInFlight,
    limits: Arc<SocketLimits>,
}

/// What the editor's requests act on.
pub(super) struct Connection {
    pub(super) bridge: Arc<Bridge>,
    pub(super) peer: Arc<Peer>,
    /// The agent that the editor asks for.
    chosen_agent: Mutex<Chosen>,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
}

/// What cancels a request.
#[derive(Clone)]
enum CancelTarget {
    /// A prompt and its turn. The prompt's answer reports the cancellation.
    Turn(Arc<Session>, TurnId),
    /// Any other request: its result is discarded.
    Request(CancellationToken),
}

/// The result of a request.
pub(super) struct Answered {
    pub(super) result: String,
    /// A session that the editor learns of from the answer. Its messages are held back until the answer is sent.
    pub(super) opened: Option<(Arc<Session>, OwnedMutexGuard<()>)>,
    /// The same session, if the request created it.
    pub(super) created: Option<UnsentSession>,
}

/// A session that was created by a request whose answer is still to be sent. If it is dropped before that, because the editor has
/// left or cancelled the request, the conversation is deleted: the editor never learned its id.
pub(super) struct UnsentSession {
    connection: Arc<Connection>,
    session: Option<Arc<Session>>,
}

impl UnsentSession {
    /// The answer was sent.
    fn keep(mut self) {
        self.session = None;
    }
}

impl Drop for UnsentSession {
    fn drop(&mut self) {
        if let Some(session) = self.session.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let connection = Arc::clone(&self.connection);
            runtime.spawn(async move {
                connection.delete_unwanted_session(&session).await;
                connection.forget_closed(&session);
            });
        }
    }
}

impl From<String> for Answered {
    fn from(result: String) -> Self {
        Self {
            result,
            opened: None,
            created: None,
        }
    }
}

/// The parameter that most methods have.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SessionParams {
    session_id: String,
}

impl Dialogue for Editor {
    fn take_line(&mut self, line: SplitLine<'_>) {
        let bytes = match line {
            SplitLine::Line(bytes) => bytes,
            SplitLine::TooLong(found) => {
                self.take_unread(&found, "the line is longer than the limit (max_line_bytes)");
                return;
            }
        };
        let envelope = match Envelope::scan_bytes(bytes) {
            Ok(envelope) => envelope,
            Err(error @ Malformed::TooDeep) => {
                self.take_unread(&OversizedLineIds::in_line(bytes).unwrap_or_default(), error);
                return;
            }
            Err(error @ (Malformed::NotAnObject | Malformed::NotAMessage)) => {
                self.refuse(None, Failure::of(ErrorKind::InvalidRequest, error));
                return;
            }
            Err(error) => {
                self.refuse(
                    None,
                    Failure::of(
                        ErrorKind::ParseError,
                        format!("the line is not valid JSON: {error}"),
                    ),
                );
                return;
            }
        };
        let params = envelope.params().filter(|params| *params != "null");
        let params = params.unwrap_or("{}");
        match (envelope.kind(), envelope.method(), envelope.id()) {
            (EnvelopeKind::Request, Some(method), Some(id)) => self.take_request(&method, id, params),
            (EnvelopeKind::Notification, Some(method), _) => self.take_notification(&method, params),
            (EnvelopeKind::Response, _, Some(id)) if envelope.has_outcome() => {
                self.take_answer(id, envelope.result(), envelope.error());
            }
            (_, _, id) => self.refuse(
                id,
                Failure::of(ErrorKind::InvalidRequest, "neither a request nor a response"),
            ),
        }
    }

    fn input_ended(&mut self) {
        self.connection.peer.mark_disconnected();
    }

    fn requests_in_flight(&mut self) -> &mut RequestsInFlight {
        &mut self.in_flight
    }
}

impl Editor {
    /// Polls `work` once, so that requests reach the mailbox in order of arrival. `requests`: as how many requests it counts.
    fn start_request(&mut self, requests: usize, work: impl Future<Output = ()> + Send + 'static) {
        let mut work = AssertUnwindSafe(work).catch_unwind().map(drop).boxed();
        if poll_once(&mut work).is_pending() {
            self.in_flight.run(requests, work);
        }
    }

    /// Handles a message of which only these ids could be read.
    fn take_unread(&mut self, found: &OversizedLineIds, why: impl Display) {
        match (found.id.as_deref(), &found.method) {
            (Some(id), None) => self.take_answer(id, None, None),
            (id, _) => self.refuse(id, Failure::of(ErrorKind::InvalidRequest, why)),
        }
    }

    fn refuse(&mut self, id: Option<&str>, failure: Failure) {
        self.in_flight.answer(message::answer(id, &Err(failure)).into());
    }

    /// Handles the editor's answer to a request. If it has neither a result nor an error, the editor cannot answer. Even an
    /// invalid answer gets no reply.
    fn take_answer(&mut self, id: &str, result: Option<&str>, error: Option<&str>) {
        let Ok(id) = id.parse() else { return };
        let owned = result.map(ToOwned::to_owned);
        match self.connection.peer.take_pending(id) {
            Some(PendingRequest::Forwarded(forwarded)) => forwarded.complete(result, error),
            // The receiver is missing if the command that asked was cancelled.
            Some(PendingRequest::Form(form)) => drop(form.send(owned)),
            Some(PendingRequest::Question(question)) => {
                let connection = Arc::clone(&self.connection);
                let answered = async move { connection.question_answered(question, owned.as_deref()).await };
                self.start_request(0, answered);
            }
            None => {}
        }
    }

    fn take_request(&mut self, method: &str, id: &str, params: &str) {
        let limit = self.limits.requests_in_flight;
        if self.in_flight.count() >= limit {
            let why = format!("{limit} requests of this connection are in flight, which is the limit");
            self.refuse(Some(id), Failure::of(ErrorKind::InternalError, why));
            return;
        }
        let stop = CancellationToken::new();
        let session = self.connection.session_of(params);
        // Only a prompt has one.
        let turn = TurnId::mint();
        let cancel = match &session {
            Ok(session) if method == "session/prompt" => {
                session.add_prompt(turn.clone());
                CancelTarget::Turn(Arc::clone(session), turn.clone())
            }
            _ => CancelTarget::Request(stop.clone()),
        };
        lock(&self.requests).insert(turn.clone(), (id.to_owned(), cancel));
        let (id, requests) = (id.to_owned(), Arc::clone(&self.requests));
        let opens_session = matches!(method, "session/load" | "session/resume");
        let creates_session = matches!(method, "session/new" | "session/fork");
        let connection = Arc::clone(&self.connection);
        let target = session.as_ref().ok().cloned();
        let work =
            Arc::clone(&connection).carry_out(method.to_owned(), params.to_owned(), session, turn.clone());
        let work = match creates_session {
            true => complete(Arc::clone(&connection), work).boxed(),
            false => work.boxed(),
        };
        let work = AssertUnwindSafe(work).catch_unwind();
        let method = method.to_owned();
        let answered = async move {
            let outcome = tokio::select! {
                biased;
                outcome = work => outcome.unwrap_or_else(|_| Err(panic_error(&method).into())),
                () = stop.cancelled() => Err(Failure::cancelled()),
            };
            lock(&requests).remove(&turn);
            let (reply, opened, created) = match outcome {
                Ok(Answered {
                    result,
                    opened,
                    created,
                }) => (Ok(result), opened, created),
                Err(failure) => (Err(failure), None, None),
            };
            if let (Some(session), true, None) = (&target, opens_session, &opened) {
                // The next request about the session opens it again.
                session.abort_opening();
            }
            let sent = connection
                .peer
                .outbox
                .push(&[&message::answer(Some(&id), &reply)])
                .await;
            if sent.is_ok() {
                if let Some(created) = created {
                    created.keep();
                }
                if let Some((session, _order)) = opened {
                    session.release().await;
                }
            }
            if let Some(session) = target {
                session.remove_prompt(&turn);
                connection.forget_closed(&session);
            }
        };
        self.start_request(1, answered);
    }

    fn take_notification(&mut self, method: &str, params: &str) {
        match method {
            "$/cancel_request" => {
                #[derive(Deserialize)]
                #[serde(rename_all = "camelCase")]
                struct Params<'a> {
                    #[serde(borrow)]
                    request_id: &'a serde_json::value::RawValue,
                }
                let Ok(Params { request_id }) = serde_json::from_str(params) else {
                    return;
                };
                // Empty if the request was answered already.
                let cancelled: Vec<CancelTarget> = lock(&self.requests)
                    .values()
                    .filter(|(id, _)| id == request_id.get())
                    .map(|(_, cancel)| cancel.clone())
                    .collect();
                for cancel in cancelled {
                    match cancel {
                        CancelTarget::Turn(session, turn) => self.cancel(session, Some(turn), None),
                        CancelTarget::Request(stop) => stop.cancel(),
                    }
                }
            }
            AGENT => {
                if let Ok(chosen) = message::read(params) {
                    *lock(&self.connection.chosen_agent) = chosen;
                }
            }
            _ => {
                let Ok(SessionParams { session_id }) = message::read(params) else {
                    return;
                };
                let connection = &self.connection;
                if method == "session/cancel" && connection.parent_of(&session_id).is_none() {
                    if let Some(session) = connection.known_session(&session_id) {
                        self.cancel(session, None, message::other_params(params, &["sessionId"]));
                    }
                } else if let Ok(params) = message::read(params) {
                    // Forwards to the session's agent what the protocol does not name and what concerns a subagent.
                    connection.forward_unnamed_notification(&session_id, method.to_owned(), params);
                }
            }
        }
    }

    fn cancel(&mut self, session: Arc<Session>, only: Option<TurnId>, params: Option<RawJson>) {
        let connection = Arc::clone(&self.connection);
        self.start_request(0, async move {
            connection.cancel(&session, only.as_ref(), params).await;
        });
    }
}

impl Connection {
    /// The session that a message is about.
    fn session_of(&self, params: &str) -> Result<Arc<Session>, Failure> {
        let SessionParams { session_id } = message::read(params)?;
        Ok(self.session(&session_id))
    }

    /// Carries out a request. Nothing happens before the first poll.
    async fn carry_out(
        self: Arc<Self>,
        method: String,
        params: String,
        session: Result<Arc<Session>, Failure>,
        turn: TurnId,
    ) -> Result<Answered, Failure> {
        let params = params.as_str();
        check_nesting(params)?;
        Ok(match method.as_str() {
            "initialize" => self.initialize(params).await?.into(),
            COMMAND => self.command_of(params)?.into(),
            "authenticate" => self.authenticate(params).await?.into(),
            "logout" => self.logout(params).await?.into(),
            "session/list" => self.list(params).await?.into(),
            "session/new" => self.new_session(params).await?,
            "session/load" => self.load(session?, params).await?,
            "session/resume" => self.resume(session?, params).await?,
            "session/fork" => self.fork(session?, params).await?,
            "session/prompt" => self.prompt(&session?, turn, params).await?.into(),
            "session/cancel" => {
                // The protocol has this as a notification, but every request gets an answer.
                let session = session?;
                match self.parent_of(&session.id) {
                    None => {
                        let params = message::other_params(params, &["sessionId"]);
                        self.cancel(&session, None, params).await;
                    }
                    Some(_) => {
                        self.forward_unnamed_notification(&session.id, method, message::read(params)?);
                    }
                }
                "{}".to_owned().into()
            }
            "session/close" => self.close(&*session?).await?.into(),
            "session/delete" => self.delete(&*session?).await?.into(),
            "session/set_mode" => self.set_mode(&session?, params).await?.into(),
            "session/set_model" => self.set_model(&session?, params).await?.into(),
            "session/set_config_option" => self.set_option(&session?, params).await?.into(),
            _ => match session {
                Ok(session) => self
                    .forward_unnamed_request(&session, method, params)
                    .await?
                    .into(),
                Err(_) => {
                    let why = format!("there is no method {method:?}");
                    return Err(Failure::of(ErrorKind::MethodNotFound, why));
                }
            },
        })
    }

    /// Runs a call of the native API on the bridge, as for an app.
    pub(super) async fn run_app_call<M: method::Method>(&self, params: M) -> Result<M::Answer, BridgeError>
    where
        Bridge: Handle<M>,
    {
        self.bridge.handle(params).await
    }

    /// The agent that the editor asks for. `None` means the default agent.
    pub(super) fn chosen_agent_name(&self) -> Option<AgentName> {
        self.chosen_agent().agent
    }

    pub(super) fn chosen_agent(&self) -> Chosen {
        lock(&self.chosen_agent).clone()
    }

    /// Runs the agent of a conversation for this editor.
    pub(super) fn run_agent_for(
        &self,
        session: &Session,
        id: ConversationId,
        occasion: ClientSwitchReason,
    ) -> Result<(), BridgeError> {
        let client = ClientProfile {
            session_params: session.open_params(),
            ..self.profile()
        };
        self.bridge.run_agent_for(id, Arc::new(client), occasion)
    }

    /// Returns the session with this id and creates it if it is unknown. The conversation need not exist.
    pub(super) fn session(&self, name: &str) -> Arc<Session> {
        let mut sessions = lock(&self.sessions);
        let session = sessions
            .entry(name.to_owned())
            .or_insert_with(|| Session::new(name, Arc::clone(&self.peer)));
        Arc::clone(session)
    }

    /// The session with this id, if the editor has it open or a request about it runs.
    pub(super) fn known_session(&self, name: &str) -> Option<Arc<Session>> {
        lock(&self.sessions).get(name).cloned()
    }

    /// The session whose subagent has this session id. An open session with the same id takes precedence.
    pub(super) fn parent_of(&self, name: &str) -> Option<Arc<Session>> {
        let sessions = lock(&self.sessions);
        if sessions
            .get(name)
            .is_some_and(|open| open.conversation().is_some())
        {
            return None;
        }
        let parent = sessions.values().find(|session| session.has_subagent(name));
        parent.cloned()
    }

    /// Forgets a session that the editor does not know.
    pub(super) fn forget(&self, name: &str) {
        lock(&self.sessions).remove(name);
    }

    /// Forgets a session that the editor does not have open, unless another request about it waits.
    fn forget_closed(&self, session: &Arc<Session>) {
        /// The map's reference and the caller's.
        const OWN_REFERENCES: usize = 2;
        let mut sessions = lock(&self.sessions);
        if session.conversation().is_none() && Arc::strong_count(session) <= OWN_REFERENCES {
            sessions.remove(&session.id);
        }
    }

    /// The conversation with this id. A transcript that the daemon did not create is adopted as a new conversation: in its own
    /// folder, or in the editor's if that folder is missing.
    pub(super) async fn find_conversation(
        &self,
        name: &str,
        editor_cwd: Option<&str>,
    ) -> Result<ConversationId, Failure> {
        match self.bridge.conversation(&ConversationRef::new(name)) {
            // A prefix of an id would let an editor delete what it did not name.
            Ok(id) if id.to_string() != name && id.to_string().starts_with(name) => {
                return Err(Failure::unknown_session(name));
            }
            Ok(id) => return Ok(id),
            Err(error) if error.kind == ErrorKind::NotFound && !is_deleted(&error) => {}
            Err(error) => return Err(unknown_session_error(name, error)),
        }
        let adopt = method::Adopt {
            upstream_id: UpstreamId::new(name),
            ..method::Adopt::default()
        };
        let adopted = match (self.run_app_call(adopt.clone()).await, editor_cwd) {
            (Err(error), Some(cwd)) if error.kind == ErrorKind::InvalidCwd => {
                let adopt = method::Adopt {
                    cwd: Some(cwd.to_owned()),
                    ..adopt
                };
                self.run_app_call(adopt).await
            }
            (adopted, _) => adopted,
        };
        match adopted {
            Ok(adopted) => Ok(adopted.conversation.id),
            Err(error) => Err(unknown_session_error(name, error)),
        }
    }

    /// The conversation of a session. Opens the session first if the editor has not.
    pub(super) async fn ensure_attached(&self, session: &Arc<Session>) -> Result<ConversationId, Failure> {
        if let Some(id) = session.conversation() {
            return Ok(id);
        }
        let id = self.find_conversation(&session.id, None).await?;
        session.attach(&self.bridge, id).await?;
        Ok(id)
    }

    /// Takes the editor's answer to a question of the agent. An error leaves the question to other clients.
    async fn question_answered(&self, question: ForwardedQuestion, result: Option<&str>) {
        let session = question.session.upgrade();
        if let Some(session) = &session {
            session.question_answered(&question.id);
        }
        let Some(result) = result else {
            if let Some(session) = session {
                session.send_text(&format!(
                    "This editor cannot answer the question of the agent. To answer it, run in a terminal: sessionctl answer {}",
                    question.conversation
                ));
            }
            return;
        };
        let respond = |(outcome, params)| {
            let respond = Respond {
                conversation_id: question.conversation.into(),
                interrupt_id: question.id.clone(),
                outcome,
                by: Some("editor".to_owned()),
                ..Respond::default()
            };
            self.bridge.respond(params, respond)
        };
        let refusal = match respond(question.outcome(result)).await {
            Err(error) if error.kind == ErrorKind::InvalidParams => {
                respond((question.cancelled(), None)).await.err()
            }
            other => other.err(),
        };
        if let Some(error) = refusal {
            tracing::debug!(%error, "an editor's answer to a question was not taken");
        }
    }
}

/// Runs a request that creates a session to its end, even if the request is cancelled.
async fn complete(
    connection: Arc<Connection>,
    work: impl Future<Output = Result<Answered, Failure>> + Send + 'static,
) -> Result<Answered, Failure> {
    let mut work = work
        .map_ok(|answered| {
            let session = answered.opened.as_ref().map(|(session, _)| Arc::clone(session));
            Answered {
                created: Some(UnsentSession { connection, session }),
                ..answered
            }
        })
        .boxed();
    if let Poll::Ready(result) = futures_util::poll!(&mut work) {
        return result;
    }
    let (sender, receiver) = oneshot::channel();
    tokio::spawn(async move {
        // The session is deleted with a result that is not wanted any more.
        let _unwanted = sender.send(work.await);
    });
    let failed = |_| Err(Failure::of(ErrorKind::InternalError, "the request failed"));
    receiver.await.unwrap_or_else(failed)
}

/// Whether the error means that the conversation was deleted.
pub(super) fn is_deleted(error: &BridgeError) -> bool {
    error.details.contains_key("deletedAt")
}

/// Maps "no such conversation" to the protocol's error; returns any other error as it is.
fn unknown_session_error(name: &str, error: BridgeError) -> Failure {
    match error.kind {
        ErrorKind::NotFound | ErrorKind::Ambiguous | ErrorKind::InvalidParams => {
            Failure::unknown_session(name)
        }
        _ => error.into(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code under these locks can leave the data half changed, so poisoning is ignored.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
