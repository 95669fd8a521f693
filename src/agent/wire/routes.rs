//! The routing tables of one connection: who waits for which response, and which handle goes to which inbox.
//!
//! Synchronous and without I/O. Every function runs under the connection's lock. This module does not know tasks or
//! pipes.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::{Attachment, MAX_CALLS_IN_FLIGHT, SessionHandle};
use crate::agent::envelope::{Envelope, Line};
use crate::agent::inbox::{InboxSender, Incoming, MAX_OPEN_REQUESTS, PushResult};
use crate::agent::message::{
    AgentError, AgentRequestId, CallError, INTERNAL_ERROR, INVALID_REQUEST, MethodName, PARSE_ERROR, RawId,
};
use crate::agent::process::Death;
use crate::agent::subagent;

/// How many lines are stashed for unknown handles. An agent may mention a session before it answers the request for
/// it.
const MAX_STASHED_LINES: usize = 64;
/// How many bytes of lines are stashed.
const MAX_STASHED_BYTES: usize = 256 * 1024;
/// How many detached handles are remembered. Their late lines are dropped instead of stashed.
const MAX_DETACHED: usize = 64;
/// The longest session id, in bytes. The store accepts none longer. Known agents use 36 bytes.
const HANDLE_LIMIT_BYTES: usize = 1_024;

/// Who waits for a response.
#[derive(Debug)]
pub(super) enum Pending {
    /// A caller.
    Call(oneshot::Sender<Result<Box<RawValue>, CallError>>),
    /// A session's owner. `opens` if the result names a session to route to the inbox.
    Inbox { inbox: InboxSender, opens: bool },
}

/// Why a request of the agent was not passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    UnknownSession,
    TooMany,
    /// The agent is already using the id; an answer would be ambiguous.
    Duplicate,
}

#[derive(Debug)]
struct Waiter {
    method: MethodName,
    pending: Pending,
}

#[derive(Debug)]
struct Route {
    inbox: InboxSender,
    generation: u64,
    open_requests: usize,
    /// The sessions of its subagents, the newest last.
    subagents: VecDeque<Arc<str>>,
}

/// An unanswered request of the agent, and its inbox.
#[derive(Debug)]
struct AgentRequest {
    inbox: InboxSender,
    /// Absent if the request belongs to one of our requests and to no session.
    attachment: Option<Attachment>,
}

/// The routing tables; see the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Routes {
    waiters: HashMap<AgentRequestId, Waiter>,
    routes: HashMap<Arc<str>, Route>,
    /// The sessions of subagents, with the handle of the session that they belong to.
    subagents: HashMap<Arc<str>, Arc<str>>,
    agent_requests: HashMap<RawId, AgentRequest>,
    stash: VecDeque<(Box<str>, MethodName, Line)>,
    stashed_bytes: usize,
    detached: VecDeque<SessionHandle>,
    /// Unanswered requests of the agent whose session was detached.
    orphaned_requests: Vec<RawId>,
    last_generation: u64,
    death: Option<Arc<Death>>,
}

impl Routes {
    pub(super) fn register(
        &mut self,
        request: AgentRequestId,
        method: &str,
        pending: Pending,
    ) -> Result<(), CallError> {
        self.check_alive()?;
        if self.waiters.len() >= MAX_CALLS_IN_FLIGHT {
            return Err(CallError::TooManyCalls);
        }
        self.waiters.insert(
            request,
            Waiter {
                method: MethodName::from_wire(method),
                pending,
            },
        );
        Ok(())
    }

    pub(super) fn awaits(&self, request: AgentRequestId) -> bool {
        self.waiters.contains_key(&request)
    }

    pub(super) fn forget(&mut self, request: AgentRequestId) {
        self.waiters.remove(&request);
    }

    pub(super) fn attached_count(&self) -> usize {
        self.routes.len()
    }

    /// Whether a session is open under this handle.
    pub(super) fn is_attached(&self, handle: &str) -> bool {
        self.routes.contains_key(handle)
    }

    /// Returns the requests to refuse as cancelled. Call this after every change that can end a route.
    pub(super) fn take_orphaned(&mut self) -> Vec<RawId> {
        std::mem::take(&mut self.orphaned_requests)
    }

    /// Routes a handle. Replaces its earlier attachment.
    pub(super) fn attach(
        &mut self,
        handle: &SessionHandle,
        inbox: &InboxSender,
    ) -> Result<Attachment, CallError> {
        self.check_alive()?;
        self.remove_route(handle.as_str(), None);
        self.detached.retain(|detached| detached != handle);
        self.last_generation += 1;
        let generation = self.last_generation;
        let route = Route {
            inbox: inbox.clone(),
            generation,
            open_requests: 0,
            subagents: VecDeque::new(),
        };
        self.subagents.remove(handle.as_str());
        self.routes.insert(Arc::clone(&handle.0), route);
        self.deliver_stashed(handle.as_str(), inbox);
        Ok(Attachment {
            handle: handle.clone(),
            generation,
        })
    }

    /// Ends an attachment if it is still the newest.
    pub(super) fn detach(&mut self, attachment: &Attachment) {
        self.remove_route(attachment.handle.as_str(), Some(attachment.generation));
        if !self.routes.contains_key(attachment.handle.as_str())
            && !self.detached.contains(&attachment.handle)
        {
            if self.detached.len() == MAX_DETACHED {
                self.detached.pop_front();
            }
            self.detached.push_back(attachment.handle.clone());
        }
    }

    /// Passes a notification on. Returns how many entries are queued in its inbox.
    pub(super) fn notification(&mut self, handle: &str, method: MethodName, line: &Envelope<&str>) -> usize {
        let Some((owner, route)) = self.route(handle) else {
            self.stash(handle, method, line);
            return 0;
        };
        let pushed = route.inbox.push_update(method, line.to_line());
        let announced = line
            .update_kind()
            .and_then(|kind| subagent::announced_session(&kind, line.update()?));
        if let Some(announced) = announced {
            self.add_subagent(&owner, &announced);
        }
        match pushed {
            PushResult::Queued(waiting) => waiting,
            PushResult::Dropped => usize::MAX,
            PushResult::Closed => {
                tracing::debug!(handle, "a session's owner was dropped without detaching it");
                self.remove_route(&owner, None);
                0
            }
        }
    }

    /// Returns the route of a session and its handle. For a subagent's session, these are of the session that it
    /// belongs to.
    fn route(&self, handle: &str) -> Option<(Arc<str>, &Route)> {
        let found = self.routes.get_key_value(handle);
        let found = found.or_else(|| self.routes.get_key_value(self.subagents.get(handle)?));
        found.map(|(handle, route)| (Arc::clone(handle), route))
    }

    /// Routes a subagent's session from its announcement on. Does nothing if the session is already routed.
    fn add_subagent(&mut self, owner: &Arc<str>, session: &str) {
        if session.len() > HANDLE_LIMIT_BYTES
            || self.routes.contains_key(session)
            || self.subagents.contains_key(session)
        {
            return;
        }
        let Some(route) = self.routes.get_mut(owner) else {
            return;
        };
        if route.subagents.len() == subagent::MAX_SESSIONS
            && let Some(oldest) = route.subagents.pop_front()
        {
            self.subagents.remove(&oldest);
        }
        let inbox = route.inbox.clone();
        let key: Arc<str> = session.into();
        route.subagents.push_back(Arc::clone(&key));
        self.subagents.insert(key, Arc::clone(owner));
        self.deliver_stashed(session, &inbox);
    }

    /// Passes on a notification about a request of the agent, to the inbox of that request.
    pub(super) fn notify_about_request(
        &mut self,
        id: &RawId,
        method: MethodName,
        line: &Envelope<&str>,
    ) -> usize {
        match self
            .agent_requests
            .get(id)
            .map(|asked| asked.inbox.push_update(method, line.to_line()))
        {
            Some(PushResult::Queued(waiting)) => waiting,
            _ => 0,
        }
    }

    /// Passes on a notification that names no session and may concern any.
    pub(super) fn broadcast(&mut self, method: &MethodName, line: &Line) {
        for inbox in self.inboxes() {
            inbox.push_update(method.clone(), line.clone());
        }
    }

    /// Records updates that were lost, in one session or in all if the session is unknown.
    pub(super) fn overflow(&mut self, handle: Option<&str>) {
        if let Some((_, route)) = handle.and_then(|handle| self.route(handle)) {
            route.inbox.push_overflow(1);
            return;
        }
        if handle.is_none() {
            for inbox in self.inboxes() {
                inbox.push_overflow(1);
            }
        }
    }

    /// Passes on a request of the agent.
    pub(super) fn request(
        &mut self,
        id: RawId,
        method: MethodName,
        line: &Envelope<&str>,
    ) -> Result<(), Refusal> {
        if self.agent_requests.contains_key(&id) {
            return Err(Refusal::Duplicate);
        }
        let (inbox, attachment) = match line.session_id() {
            Some(handle) => {
                let (owner, route) = self.route(&handle).ok_or(Refusal::UnknownSession)?;
                if route.open_requests >= MAX_OPEN_REQUESTS {
                    return Err(Refusal::TooMany);
                }
                let handle = SessionHandle(owner);
                (
                    route.inbox.clone(),
                    Some(Attachment {
                        handle,
                        generation: route.generation,
                    }),
                )
            }
            None => (self.inbox_of_request(line).ok_or(Refusal::UnknownSession)?, None),
        };
        if attachment.is_none() && self.agent_requests.len() >= MAX_CALLS_IN_FLIGHT {
            return Err(Refusal::TooMany);
        }
        let incoming = Incoming::Request {
            id: id.clone(),
            method,
            line: line.to_line(),
        };
        if inbox.push_control(incoming) == PushResult::Closed {
            return Err(Refusal::UnknownSession);
        }
        if let Some(route) = attachment
            .as_ref()
            .and_then(|one| self.routes.get_mut(one.handle.as_str()))
        {
            route.open_requests += 1;
        }
        self.agent_requests.insert(id, AgentRequest { inbox, attachment });
        Ok(())
    }

    pub(super) fn is_waiting(&self, id: &RawId) -> bool {
        self.agent_requests.contains_key(id)
    }

    /// Records that a request of the agent was answered.
    pub(super) fn record_answer(&mut self, id: &RawId) {
        let Some(AgentRequest {
            attachment: Some(attachment),
            ..
        }) = self.agent_requests.remove(id)
        else {
            return;
        };
        if let Some(route) = self.routes.get_mut(attachment.handle.as_str())
            && route.generation == attachment.generation
        {
            route.open_requests = route.open_requests.saturating_sub(1);
        }
    }

    /// Passes a response of the agent to its waiter. `last_sent` is as in [`super::Shared::record_received`].
    pub(super) fn response(&mut self, line: &Envelope<&str>, last_sent: Option<AgentRequestId>) {
        let request = match line.id() {
            Some("null") if line.error().is_some_and(is_unread_line_error) => {
                last_sent.filter(|request| self.is_only_sent(*request))
            }
            id => id.and_then(AgentRequestId::from_raw),
        };
        let waiter = request.and_then(|request| {
            let waiter = self.waiters.remove(&request)?;
            Some((request, waiter))
        });
        let Some((request, Waiter { method, pending })) = waiter else {
            tracing::debug!(
                id = line.id(),
                error = line.error(),
                "ignored a response without a request"
            );
            return;
        };
        let mut outcome = outcome_of(line, method.clone());
        let opened = line.result_session_id().filter(|_| outcome.is_ok());
        let opened = opened.as_deref().map(SessionHandle::new);
        if let (Pending::Inbox { opens: true, .. }, Some(handle)) = (&pending, &opened)
            && let Some(detail) = self.handle_conflict(handle)
        {
            outcome = Err(CallError::BadAnswer {
                method: method.clone(),
                detail,
            });
        }
        let opened = opened.filter(|_| outcome.is_ok());
        self.answer(request, pending, outcome, opened);
    }

    /// Whether an error without an id answers this request, the last line sent. An agent that cannot read a line does not know
    /// the line's id. To never fail a request that did arrive, this is true only if the agent has no other request to answer
    /// and no other session.
    fn is_only_sent(&self, request: AgentRequestId) -> bool {
        self.waiters.len() == 1 && self.routes.len() <= 1 && self.awaits(request)
    }

    /// Returns the reason if a new session cannot use this handle. A route is never taken over, because its owner
    /// would receive no further messages.
    fn handle_conflict(&self, handle: &SessionHandle) -> Option<String> {
        let id = handle.as_str();
        let is_taken = || self.routes.get(id).is_some_and(|route| !route.inbox.is_closed());
        if id.trim().is_empty() {
            Some("it names no session".to_owned())
        } else if id.trim() != id || id.chars().any(char::is_control) {
            Some("the session's id starts or ends with spaces, or contains control characters".to_owned())
        } else if id.len() > HANDLE_LIMIT_BYTES {
            Some(format!(
                "the session's id is longer than {HANDLE_LIMIT_BYTES} bytes"
            ))
        } else if is_taken() {
            Some(format!(
                "the new session has the id {id}, and another session is open under that id"
            ))
        } else {
            None
        }
    }

    /// Fails the request whose response was skipped.
    pub(super) fn response_skipped(&mut self, raw_id: &str, why: CallError) {
        let Some(request) = AgentRequestId::from_raw(raw_id) else {
            return;
        };
        let Some(waiter) = self.waiters.remove(&request) else {
            return;
        };
        self.answer(request, waiter.pending, Err(why), None);
    }

    /// Records the agent's end and notifies everyone, once.
    pub(super) fn agent_died(&mut self, death: &Arc<Death>) {
        if self.death.is_some() {
            return;
        }
        self.death = Some(Arc::clone(death));
        let mut inboxes = self.inboxes();
        for (_, waiter) in self.waiters.drain() {
            match waiter.pending {
                Pending::Call(caller) => {
                    // A dropped caller needs no answer.
                    let _gone = caller.send(Err(CallError::Died(Arc::clone(death))));
                }
                Pending::Inbox { inbox, .. } => push_unique(&mut inboxes, &inbox),
            }
        }
        for asked in self.agent_requests.values() {
            push_unique(&mut inboxes, &asked.inbox);
        }
        for inbox in inboxes {
            inbox.push_control(Incoming::Died(Arc::clone(death)));
        }
        self.routes.clear();
        self.subagents.clear();
        self.agent_requests.clear();
        self.stash.clear();
        self.stashed_bytes = 0;
    }

    fn check_alive(&self) -> Result<(), CallError> {
        self.death
            .as_ref()
            .map_or(Ok(()), |death| Err(CallError::Died(Arc::clone(death))))
    }

    fn answer(
        &mut self,
        request: AgentRequestId,
        pending: Pending,
        outcome: Result<Box<RawValue>, CallError>,
        opened: Option<SessionHandle>,
    ) {
        match pending {
            Pending::Call(caller) => {
                if caller.send(outcome).is_err() {
                    tracing::debug!(%request, "the caller of a request was dropped");
                }
            }
            Pending::Inbox { inbox, opens } => {
                let attachment = opened
                    .filter(|_| opens)
                    .and_then(|handle| self.attach(&handle, &inbox).ok());
                inbox.push_control(Incoming::Response {
                    request,
                    outcome,
                    attachment,
                });
            }
        }
    }

    fn inbox_of_request(&self, line: &Envelope<&str>) -> Option<InboxSender> {
        let request = AgentRequestId::from_raw(line.request_id()?)?;
        match &self.waiters.get(&request)?.pending {
            Pending::Inbox { inbox, .. } => Some(inbox.clone()),
            Pending::Call(_) => None,
        }
    }

    /// Returns every inbox with a route, once.
    fn inboxes(&self) -> Vec<InboxSender> {
        let mut inboxes = Vec::with_capacity(self.routes.len());
        for route in self.routes.values() {
            push_unique(&mut inboxes, &route.inbox);
        }
        inboxes
    }

    /// Removes a route (of this generation, if given) and its unanswered requests.
    fn remove_route(&mut self, handle: &str, generation: Option<u64>) {
        let Some(route) = self.routes.get(handle) else {
            return;
        };
        if generation.is_some_and(|generation| generation != route.generation) {
            return;
        }
        let generation = route.generation;
        for subagent in self
            .routes
            .remove(handle)
            .into_iter()
            .flat_map(|route| route.subagents)
        {
            self.subagents.remove(&subagent);
        }
        let belongs = |request: &AgentRequest| {
            request
                .attachment
                .as_ref()
                .is_some_and(|attachment| attachment.generation == generation)
        };
        self.orphaned_requests.extend(
            self.agent_requests
                .extract_if(|_, request| belongs(request))
                .map(|(id, _)| id),
        );
    }

    fn stash(&mut self, handle: &str, method: MethodName, line: &Envelope<&str>) {
        let bytes = line.text().len();
        if bytes > MAX_STASHED_BYTES || self.detached.iter().any(|detached| detached.as_str() == handle) {
            tracing::debug!(handle, bytes, "a line for an unknown session");
            return;
        }
        self.stash.push_back((handle.into(), method, line.to_line()));
        self.stashed_bytes += bytes;
        // Drop the oldest first: their sessions are the least likely to be attached.
        while self.stash.len() > MAX_STASHED_LINES || self.stashed_bytes > MAX_STASHED_BYTES {
            let Some((handle, _, line)) = self.stash.pop_front() else {
                return;
            };
            self.stashed_bytes -= line.text().len();
            tracing::debug!(handle, "dropped a line for an unknown session");
        }
    }

    fn deliver_stashed(&mut self, handle: &str, inbox: &InboxSender) {
        for (owner, method, line) in std::mem::take(&mut self.stash) {
            if *owner == *handle {
                self.stashed_bytes -= line.text().len();
                inbox.push_update(method, line);
            } else {
                self.stash.push_back((owner, method, line));
            }
        }
    }
}

/// Whether an error says that the agent could not read a line.
fn is_unread_line_error(error: &str) -> bool {
    matches!(AgentError::from_raw(error).code, PARSE_ERROR | INVALID_REQUEST)
}

fn push_unique(inboxes: &mut Vec<InboxSender>, inbox: &InboxSender) {
    if !inboxes.iter().any(|known| known.is_same(inbox)) {
        inboxes.push(inbox.clone());
    }
}

fn outcome_of(line: &Envelope<&str>, method: MethodName) -> Result<Box<RawValue>, CallError> {
    if let Some(error) = line.error() {
        return Err(CallError::Agent(AgentError::from_raw(error)));
    }
    let Some(result) = line.result() else {
        let error = AgentError::new(
            INTERNAL_ERROR,
            "the agent answered with neither a result nor an error",
        );
        return Err(CallError::Agent(error));
    };
    RawValue::from_string(result.to_owned()).map_err(|error| CallError::BadAnswer {
        method,
        detail: error.to_string(),
    })
}
