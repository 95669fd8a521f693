//! The books of one connection: who waits for which answer, which handle goes to which inbox.
//!
//! Synchronous and without I/O; every function runs under the connection's lock. It must not know tasks or pipes.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::{Attachment, Handle, MAX_CALLS_IN_FLIGHT};
use crate::agent::envelope::{Envelope, Line};
use crate::agent::inbox::{InboxSender, Incoming, MAX_OPEN_REQUESTS, Pushed};
use crate::agent::message::{AgentError, CallError, INTERNAL_ERROR, MethodName, RawId, RequestId, method};
use crate::agent::process::Death;

/// Lines that wait for a handle which is not known yet: an agent may speak of a session before it answers for it.
const MAX_STASHED_LINES: usize = 64;
/// Bytes of such lines.
const MAX_STASHED_BYTES: usize = 256 * 1024;
/// Handles that were detached lately, whose late lines are not worth stashing.
const MAX_DETACHED: usize = 64;
/// Longest id of a session, in bytes; the store keeps none longer. Known agents use 36.
const HANDLE_LIMIT_BYTES: usize = 1_024;

/// Who waits for an answer.
#[derive(Debug)]
pub(super) enum Pending {
    /// A caller.
    Call(oneshot::Sender<Result<Box<RawValue>, CallError>>),
    /// A session's owner; `opens` where the result names a session to be routed there.
    Inbox { inbox: InboxSender, opens: bool },
}

/// Why a request of the agent was not passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    UnknownSession,
    TooMany,
    /// Its id is already in use; an answer would be taken for the other one's.
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
}

/// Where an unanswered request of the agent was sent.
#[derive(Debug)]
struct Asked {
    inbox: InboxSender,
    /// Absent where it belongs to one of our requests and to no session.
    attachment: Option<Attachment>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Routes {
    waiters: HashMap<RequestId, Waiter>,
    routes: HashMap<Arc<str>, Route>,
    asked: HashMap<RawId, Asked>,
    stash: VecDeque<(Box<str>, MethodName, Line)>,
    stashed_bytes: usize,
    detached: VecDeque<Handle>,
    /// Requests of the agent whose session went away before they had an answer.
    orphaned: Vec<RawId>,
    last_generation: u64,
    death: Option<Arc<Death>>,
    /// How many prompts had no answer then.
    prompts_at_death: usize,
    /// The code of the error with which the last prompt that was answered failed, as long as others may follow.
    failing: Option<i64>,
}

impl Routes {
    pub(super) fn register(
        &mut self,
        request: RequestId,
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

    pub(super) fn awaits(&self, request: RequestId) -> bool {
        self.waiters.contains_key(&request)
    }

    pub(super) fn forget(&mut self, request: RequestId) {
        self.waiters.remove(&request);
    }

    pub(super) fn attached(&self) -> usize {
        self.routes.len()
    }

    /// Whether a session is open under a handle.
    pub(super) fn is_attached(&self, handle: &str) -> bool {
        self.routes.contains_key(handle)
    }

    /// What must now be answered as cancelled; to be asked for after every change that can end a route.
    pub(super) fn take_orphaned(&mut self) -> Vec<RawId> {
        std::mem::take(&mut self.orphaned)
    }

    /// Routes a handle, in place of its earlier attachment.
    pub(super) fn attach(&mut self, handle: &Handle, inbox: &InboxSender) -> Result<Attachment, CallError> {
        self.check_alive()?;
        self.remove_route(handle.as_str(), None);
        self.detached.retain(|detached| detached != handle);
        self.last_generation += 1;
        let generation = self.last_generation;
        let route = Route {
            inbox: inbox.clone(),
            generation,
            open_requests: 0,
        };
        self.routes.insert(Arc::clone(&handle.0), route);
        self.hand_over(handle, inbox);
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

    /// Passes a notification on; gives how many wait in the inbox that it reached.
    pub(super) fn notification(&mut self, handle: &str, method: MethodName, line: &Envelope<'_>) -> usize {
        let Some(route) = self.routes.get(handle) else {
            self.stash(handle, method, line);
            return 0;
        };
        match route.inbox.push_update(method, line.to_line()) {
            Pushed::Waiting(waiting) => waiting,
            Pushed::Dropped => usize::MAX,
            Pushed::Closed => {
                tracing::debug!(handle, "a session's owner went without detaching it");
                self.remove_route(handle, None);
                0
            }
        }
    }

    /// A notification that concerns a request of the agent, and goes where that request went.
    pub(super) fn about_asked(&mut self, id: &RawId, method: MethodName, line: &Envelope<'_>) -> usize {
        match self
            .asked
            .get(id)
            .map(|asked| asked.inbox.push_update(method, line.to_line()))
        {
            Some(Pushed::Waiting(waiting)) => waiting,
            _ => 0,
        }
    }

    /// A notification that names no session and may concern any.
    pub(super) fn broadcast(&mut self, method: &MethodName, line: &Line) {
        for inbox in self.inboxes() {
            inbox.push_update(method.clone(), line.clone());
        }
    }

    /// Updates that were lost before their session could be told from the line.
    pub(super) fn overflow(&mut self, handle: Option<&str>) {
        if let Some(route) = handle.and_then(|handle| self.routes.get(handle)) {
            route.inbox.push_overflow(1);
            return;
        }
        if handle.is_none() {
            for inbox in self.inboxes() {
                inbox.push_overflow(1);
            }
        }
    }

    /// Passes a request of the agent on.
    pub(super) fn request(
        &mut self,
        id: RawId,
        method: MethodName,
        line: &Envelope<'_>,
    ) -> Result<(), Refusal> {
        if self.asked.contains_key(&id) {
            return Err(Refusal::Duplicate);
        }
        let (inbox, attachment) = match line.session_id() {
            Some(handle) => {
                let (key, route) = self
                    .routes
                    .get_key_value(&*handle)
                    .ok_or(Refusal::UnknownSession)?;
                if route.open_requests >= MAX_OPEN_REQUESTS {
                    return Err(Refusal::TooMany);
                }
                let handle = Handle(Arc::clone(key));
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
        if attachment.is_none() && self.asked.len() >= MAX_CALLS_IN_FLIGHT {
            return Err(Refusal::TooMany);
        }
        let incoming = Incoming::Request {
            id: id.clone(),
            method,
            line: line.to_line(),
        };
        if inbox.push_control(incoming) == Pushed::Closed {
            return Err(Refusal::UnknownSession);
        }
        if let Some(route) = attachment
            .as_ref()
            .and_then(|one| self.routes.get_mut(one.handle.as_str()))
        {
            route.open_requests += 1;
        }
        self.asked.insert(id, Asked { inbox, attachment });
        Ok(())
    }

    pub(super) fn is_waiting(&self, id: &RawId) -> bool {
        self.asked.contains_key(id)
    }

    /// A request of the agent has its answer.
    pub(super) fn answered(&mut self, id: &RawId) {
        let Some(Asked {
            attachment: Some(attachment),
            ..
        }) = self.asked.remove(id)
        else {
            return;
        };
        if let Some(route) = self.routes.get_mut(attachment.handle.as_str())
            && route.generation == attachment.generation
        {
            route.open_requests = route.open_requests.saturating_sub(1);
        }
    }

    /// An answer of the agent goes to whoever waits for it.
    pub(super) fn response(&mut self, line: &Envelope<'_>) {
        let waiter = line.id().and_then(RequestId::from_raw).and_then(|request| {
            let waiter = self.waiters.remove(&request)?;
            Some((request, waiter))
        });
        let Some((request, Waiter { method, pending })) = waiter else {
            tracing::debug!(
                id = line.id(),
                error = line.error(),
                "an answer that no one waits for"
            );
            return;
        };
        let mut outcome = outcome_of(line, method.clone());
        let opened = line.result_session_id().filter(|_| outcome.is_ok());
        let opened = opened.as_deref().map(Handle::new);
        if let (Pending::Inbox { opens: true, .. }, Some(handle)) = (&pending, &opened)
            && let Some(detail) = self.unfit(handle)
        {
            outcome = Err(CallError::BadAnswer {
                method: method.clone(),
                detail,
            });
        }
        let opened = opened.filter(|_| outcome.is_ok());
        let in_company = method.as_str() == method::SESSION_PROMPT && self.fails_in_company(&outcome);
        self.answer(request, pending, outcome, opened, in_company);
    }

    /// See [`Incoming::Response`].
    fn fails_in_company(&mut self, outcome: &Result<Box<RawValue>, CallError>) -> bool {
        let code = match outcome {
            Err(CallError::Agent(error)) => Some(error.code),
            _ => None,
        };
        let others = self.prompts() > 0;
        let follows = code.is_some() && self.failing == code;
        self.failing = code.filter(|_| others);
        code.is_some() && others || follows
    }

    fn prompts(&self) -> usize {
        let is_prompt = |waiter: &&Waiter| waiter.method.as_str() == method::SESSION_PROMPT;
        self.waiters.values().filter(is_prompt).count()
    }

    /// Why a new session cannot go by this handle, if so. A route is never taken over: its owner would go deaf.
    fn unfit(&self, handle: &Handle) -> Option<String> {
        let id = handle.as_str();
        let is_taken = || self.routes.get(id).is_some_and(|route| !route.inbox.is_closed());
        if id.trim().is_empty() {
            Some("it names no session".to_owned())
        } else if id.trim() != id || id.chars().any(char::is_control) {
            Some("the session's id has blanks around it or control characters within".to_owned())
        } else if id.len() > HANDLE_LIMIT_BYTES {
            let bytes = id.len();
            Some(format!(
                "the session's id has {bytes} bytes, and the limit is {HANDLE_LIMIT_BYTES}"
            ))
        } else if is_taken() {
            Some(format!(
                "the new session goes by the id {id}, under which another one is open"
            ))
        } else {
            None
        }
    }

    /// An answer that was too long to be read.
    pub(super) fn response_too_long(&mut self, raw_id: &str, limit_bytes: usize) {
        let Some(request) = RequestId::from_raw(raw_id) else {
            return;
        };
        let Some(waiter) = self.waiters.remove(&request) else {
            return;
        };
        self.answer(
            request,
            waiter.pending,
            Err(CallError::TooLong { limit_bytes }),
            None,
            false,
        );
    }

    /// The agent has ended: everybody is told, once.
    pub(super) fn die(&mut self, death: &Arc<Death>) {
        if self.death.is_some() {
            return;
        }
        self.death = Some(Arc::clone(death));
        self.prompts_at_death = self.prompts();
        let mut inboxes = self.inboxes();
        for (_, waiter) in self.waiters.drain() {
            match waiter.pending {
                Pending::Call(caller) => {
                    // A caller that has gone needs no answer.
                    let _gone = caller.send(Err(CallError::Died(Arc::clone(death))));
                }
                Pending::Inbox { inbox, .. } => push_unless_there(&mut inboxes, &inbox),
            }
        }
        for asked in self.asked.values() {
            push_unless_there(&mut inboxes, &asked.inbox);
        }
        for inbox in inboxes {
            inbox.push_control(Incoming::Died(Arc::clone(death)));
        }
        self.routes.clear();
        self.asked.clear();
        self.stash.clear();
        self.stashed_bytes = 0;
    }

    pub(super) fn prompts_at_death(&self) -> usize {
        self.prompts_at_death
    }

    fn check_alive(&self) -> Result<(), CallError> {
        self.death
            .as_ref()
            .map_or(Ok(()), |death| Err(CallError::Died(Arc::clone(death))))
    }

    fn answer(
        &mut self,
        request: RequestId,
        pending: Pending,
        outcome: Result<Box<RawValue>, CallError>,
        opened: Option<Handle>,
        in_company: bool,
    ) {
        match pending {
            Pending::Call(caller) => {
                if caller.send(outcome).is_err() {
                    tracing::debug!(%request, "the caller of a request is gone");
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
                    in_company,
                });
            }
        }
    }

    fn inbox_of_request(&self, line: &Envelope<'_>) -> Option<InboxSender> {
        let request = RequestId::from_raw(line.request_id()?)?;
        match &self.waiters.get(&request)?.pending {
            Pending::Inbox { inbox, .. } => Some(inbox.clone()),
            Pending::Call(_) => None,
        }
    }

    /// Every inbox that a session is routed to, once.
    fn inboxes(&self) -> Vec<InboxSender> {
        let mut inboxes = Vec::with_capacity(self.routes.len());
        for route in self.routes.values() {
            push_unless_there(&mut inboxes, &route.inbox);
        }
        inboxes
    }

    /// Removes a route, of this generation where one is given, and the unanswered requests that belong to it.
    fn remove_route(&mut self, handle: &str, generation: Option<u64>) {
        let Some(route) = self.routes.get(handle) else {
            return;
        };
        if generation.is_some_and(|generation| generation != route.generation) {
            return;
        }
        let generation = route.generation;
        self.routes.remove(handle);
        let belongs = |asked: &Asked| {
            asked
                .attachment
                .as_ref()
                .is_some_and(|attachment| attachment.generation == generation)
        };
        self.orphaned
            .extend(self.asked.extract_if(|_, asked| belongs(asked)).map(|(id, _)| id));
    }

    fn stash(&mut self, handle: &str, method: MethodName, line: &Envelope<'_>) {
        let bytes = line.text().len();
        if bytes > MAX_STASHED_BYTES || self.detached.iter().any(|detached| detached.as_str() == handle) {
            tracing::debug!(handle, bytes, "a line for a session that is not open");
            return;
        }
        self.stash.push_back((handle.into(), method, line.to_line()));
        self.stashed_bytes += bytes;
        // The oldest go first: what no one has claimed for so long will not be.
        while self.stash.len() > MAX_STASHED_LINES || self.stashed_bytes > MAX_STASHED_BYTES {
            let Some((handle, _, line)) = self.stash.pop_front() else {
                return;
            };
            self.stashed_bytes -= line.len_bytes();
            tracing::debug!(handle, "a line for a session that no one has opened");
        }
    }

    fn hand_over(&mut self, handle: &Handle, inbox: &InboxSender) {
        for (owner, method, line) in std::mem::take(&mut self.stash) {
            if *owner == *handle.as_str() {
                self.stashed_bytes -= line.len_bytes();
                inbox.push_update(method, line);
            } else {
                self.stash.push_back((owner, method, line));
            }
        }
    }
}

fn push_unless_there(inboxes: &mut Vec<InboxSender>, inbox: &InboxSender) {
    if !inboxes.iter().any(|known| known.is_same(inbox)) {
        inboxes.push(inbox.clone());
    }
}

fn outcome_of(line: &Envelope<'_>, method: MethodName) -> Result<Box<RawValue>, CallError> {
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
