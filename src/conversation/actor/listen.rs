//! Reading the lines of the agent, in order.

use bridge_protocol::Cursor;
use bridge_protocol::event::Event;
use bridge_protocol::id::InterruptId;
use bridge_protocol::raw::RawJson;
use bridge_protocol::time;
use bridge_protocol::turn::InterruptKind;
use jiff::Timestamp;
use serde_json::Value;

use crate::agent::envelope::Line;
use crate::agent::inbox::Incoming;
use crate::agent::kinds::{RAW_EVENT_METHOD, announced_transcript};
use crate::agent::message::{AgentError, CallError, MethodName, RawId, method};
use crate::conversation::client_request::ClientRequest;
use crate::conversation::effect::{Input, Part};
use crate::conversation::events::{Encoded, Subscriber};
use crate::conversation::growth::Growth;
use crate::conversation::services::now;
use crate::conversation::state::Session;
use crate::conversation::upstream::upstream_json;

use super::{Actor, OpenQuestion};

/// Whether a request of the agent is for one client, and not a question to the user, which any client may answer.
fn is_for_client(name: &MethodName) -> bool {
    !matches!(
        name.as_str(),
        method::REQUEST_PERMISSION | method::ELICITATION_CREATE
    )
}

impl Actor {
    /// Handles a round of lines. All have one time.
    pub(super) fn hear(&mut self, lines: &mut Vec<Incoming>) {
        let at = now();
        let told_at = time::text(at);
        let mut lines = lines.drain(..);
        while let Some(incoming) = lines.next() {
            // The rest of a session that was given up during the round is ignored.
            let Some(session) = &mut self.session else {
                continue;
            };
            if self.model.is_deaf() {
                session.early.push(incoming);
                session.early.extend(lines);
                return;
            }
            match incoming {
                Incoming::Notification { method: name, line } if name.as_str() == method::SESSION_UPDATE => {
                    if !self.hear_update(&line, at, &told_at)
                        && let Some(session) = &mut self.session
                    {
                        let again = Incoming::Notification { method: name, line };
                        session.early.push(again);
                        session.early.extend(lines);
                        return;
                    }
                }
                Incoming::Notification { method: name, line } => {
                    self.hear_notification(name.as_str(), &line, at);
                }
                Incoming::Request {
                    id,
                    method: name,
                    line,
                } => {
                    if is_for_client(&name) && !self.hear_client_request(at) {
                        if let Some(session) = &mut self.session {
                            let again = Incoming::Request {
                                id,
                                method: name,
                                line,
                            };
                            session.early.push(again);
                            session.early.extend(lines);
                        }
                        return;
                    }
                    self.hear_request(id, name, &line, at);
                }
                Incoming::Response {
                    request,
                    outcome,
                    in_company,
                    ..
                } => {
                    if session.prompt.take_if(|prompt| *prompt == request).is_some() {
                        self.hear_answer(outcome, in_company, at);
                    } else if let Some(reply) = session.passed.remove(&request) {
                        // The client may have left.
                        let _gone = reply.send(outcome);
                    }
                }
                Incoming::Overflow { dropped } => {
                    tracing::warn!(conversation = %self.model.id(), dropped, "updates of the agent were dropped: they arrived faster than they were processed");
                    self.stream.lag_everyone(&told_at);
                }
                Incoming::Died(death) => {
                    let status = death
                        .status
                        .map_or_else(|| "its output ended".to_owned(), |s| s.to_string());
                    session.prompt = None;
                    self.forget_requests();
                    self.dead = self.session.as_ref().map(|session| session.lease.clone());
                    let condemned = self.dead.as_ref().and_then(|dead| dead.termination_reason());
                    let prompts = self
                        .dead
                        .as_ref()
                        .map(|dead| dead.connection().prompts_at_death());
                    let part = match (condemned, prompts) {
                        (Some(_), _) => Part::Bystander,
                        (None, Some(2..)) => Part::Suspect,
                        (None, _) => Part::Alone,
                    };
                    let died = Input::AgentDied {
                        status: condemned.map_or(status, ToOwned::to_owned),
                        stderr_tail: death.stderr_tail.clone(),
                        part,
                    };
                    self.input_at(died, at);
                    self.dead = None;
                }
            }
        }
    }

    /// An update, byte for byte. Nothing is awaited and nothing is decoded between the line and its fan-out, but for
    /// the few kinds that the conversation keeps. Returns whether it was passed on: if not, it is to be heard again later.
    fn hear_update(&mut self, line: &Line, at: Timestamp, told_at: &str) -> bool {
        let Some(update) = line.update() else { return true };
        let kind = line.update_kind().unwrap_or_default();
        let effects = self.model.hear_update(&kind, update, line.text(), at);
        if !effects.is_empty() {
            self.carry_out(effects, at);
        }
        if self.model.is_deaf() {
            return false;
        }
        let turn = self.model.turn_of_updates();
        self.stream
            .emit_update(turn, update, line.params_beside_update(), told_at);
        if matches!(
            kind.as_ref(),
            "current_mode_update" | "config_option_update" | "session_info_update"
        ) {
            self.publish();
        }
        true
    }

    fn hear_notification(&mut self, name: &str, line: &Line, at: Timestamp) {
        match name {
            RAW_EVENT_METHOD => {
                self.model.hear_event(name, line.text());
                let params: Option<Value> =
                    line.params().and_then(|params| serde_json::from_str(params).ok());
                if let Some(announced) = params.as_ref().and_then(announced_transcript) {
                    let effects = self.model.silent_roll(announced, at);
                    if !effects.is_empty() {
                        if let Some(session) = &mut self.session {
                            session.tally.cleared();
                        }
                        self.carry_out(effects, at);
                    }
                }
            }
            method::CANCEL_REQUEST => {
                #[derive(serde::Deserialize)]
                #[serde(rename_all = "camelCase")]
                struct Params<'a> {
                    #[serde(borrow)]
                    request_id: &'a serde_json::value::RawValue,
                }
                let withdrawn = line
                    .params()
                    .and_then(|params| serde_json::from_str::<Params<'_>>(params).ok())
                    .map(|params| params.request_id.get().to_owned());
                let found = self
                    .questions
                    .iter()
                    .position(|question| Some(question.raw_id.as_str()) == withdrawn.as_deref());
                if let Some(index) = found {
                    let question = self.questions.swap_remove(index);
                    self.respond_error(&question.raw_id, -32800, "the request was cancelled");
                    self.input_at(Input::QuestionWithdrawn(question.id), at);
                } else if let Some(id) = withdrawn {
                    self.stream.withdraw(Some(&RawId::from_wire(&id)));
                }
            }
            _ => self.stream.notify(name, line.params().unwrap_or("{}")),
        }
    }

    /// Notes a request that one client is to answer. Returns whether it may be passed on: if not, it is to be heard again
    /// later.
    fn hear_client_request(&mut self, at: Timestamp) -> bool {
        let effects = self.model.hear_client_request(at);
        if !effects.is_empty() {
            self.carry_out(effects, at);
        }
        !self.model.is_deaf()
    }

    fn hear_request(&mut self, id: RawId, name: MethodName, line: &Line, at: Timestamp) {
        let kind = match name.as_str() {
            method::REQUEST_PERMISSION => Some(InterruptKind::Permission),
            method::ELICITATION_CREATE => Some(InterruptKind::Elicitation),
            _ => None,
        };
        let Some(params) = line
            .params()
            .and_then(|params| RawJson::from_text(params.to_owned()).ok())
        else {
            self.respond_error(&id, -32602, "the request has no parameters");
            return;
        };
        let Some(kind) = kind else {
            let Some(session) = &self.session else { return };
            let connection = session.lease.connection().clone();
            let request = ClientRequest::new(id, name, params, connection);
            if let Err(request) = self.stream.ask(request) {
                request.refuse();
            }
            return;
        };
        let interrupt_id = InterruptId::mint();
        let is_permission = kind == InterruptKind::Permission;
        self.questions.push(OpenQuestion {
            id: interrupt_id.clone(),
            raw_id: id,
            is_permission,
        });
        let question = Input::Question {
            kind,
            params,
            interrupt_id,
        };
        self.input_at(question, at);
    }

    fn hear_answer(
        &mut self,
        outcome: Result<Box<serde_json::value::RawValue>, CallError>,
        in_company: bool,
        at: Timestamp,
    ) {
        let answer = match outcome {
            Ok(raw) => Ok(RawJson::new(raw)),
            // The death itself comes behind it and says more.
            Err(CallError::Died(_)) => return,
            Err(CallError::Agent(error)) => Err(upstream_json(&error)),
            Err(error) => Err(upstream_json(&AgentError::new(-32603, error.to_string()))),
        };
        let unreadable = || RawJson::from(serde_json::json!({"code": -32603, "message": "unreadable error"}));
        let answer = answer.map_err(|raw| raw.unwrap_or_else(unreadable));
        self.input_at(Input::PromptAnswered { answer, in_company }, at);
    }

    /// A transcript has grown, whichever program wrote to it. Growth of a session that has left the chain is ignored.
    pub(super) fn grown(&mut self, growth: Growth) {
        let id = &growth.upstream_id;
        if !self.model.record.chain.contains(id) {
            return;
        }
        let at = time::text(now());
        let mut is_foreign = growth.rewritten;
        let is_live = matches!(&self.model.session, Session::Live(live) if live.upstream_id == *id);
        if let Some(session) = self.session.as_mut().filter(|_| is_live) {
            let tally = session.tally;
            let is_exceeded = session.tally.is_exceeded_by(growth.prompts);
            if is_exceeded || growth.replaced {
                tracing::warn!(conversation = %self.model.id(), upstream_id = %id, replaced = growth.replaced, prompts = growth.prompts, ?tally, "another program writes to the transcript of a session that is open here");
                is_foreign = true;
            }
            if is_foreign && self.model.turn.is_none() {
                session.tally.note_foreign();
            }
        }
        if is_foreign {
            let upstream_id = id.clone();
            self.stream.emit(&Event::ForeignWriter { upstream_id }, &at);
        }
        for checkpoint in growth.saved {
            self.stream.emit(&Event::CheckpointSaved { checkpoint }, &at);
        }
    }

    /// Nothing that the agent asked in its session waits for an answer any more.
    pub(super) fn forget_requests(&mut self) {
        self.questions.clear();
        self.stream.withdraw(None);
    }

    fn respond_error(&self, id: &RawId, code: i64, message: &str) {
        let Some(session) = &self.session else { return };
        if let Err(error) = session
            .lease
            .connection()
            .respond(id, Err(&AgentError::new(code, message)))
        {
            tracing::debug!(%error, "the agent could not be answered");
        }
    }

    /// Adds a subscriber: what it missed when that is still held, else where the conversation stands; then live.
    pub(super) fn subscribe(&mut self, subscriber: Box<dyn Subscriber>, after: Option<&Cursor>) {
        let held = after.and_then(|cursor| self.stream.holds_after(cursor));
        let snapshot = if held.is_some() {
            None
        } else {
            self.snapshot(after.is_some())
        };
        self.stream
            .subscribe(subscriber, held, snapshot.as_ref(), &time::text(now()));
    }

    /// Where the conversation stands, for one who attaches.
    pub(super) fn snapshot(&self, gap: bool) -> Option<Encoded> {
        let (updates, truncated) = match &self.model.turn {
            Some(_) => self.stream.turn_updates(),
            None => (Vec::new(), false),
        };
        let is_open = matches!(self.model.session, Session::Live(_));
        let event = Event::Snapshot {
            conversation: self.model.view(),
            gap,
            running: self
                .model
                .running(updates.iter().filter_map(Encoded::to_update).collect(), truncated),
            session: Some(&self.model.info)
                .filter(|info| is_open || **info != Default::default())
                .map(|info| Box::new(info.clone())),
        };
        self.stream.encode_snapshot(&event, updates, &time::text(now()))
    }

    /// Whether the agent runs something besides the session itself (a background command of a tool), which closing
    /// the session would end.
    pub(super) fn agent_works_on(&self) -> bool {
        let Some(session) = &self.session else {
            return false;
        };
        let children = crate::agent::sweep::descendants(session.lease.pid());
        // One child a session is the agent's own (Claude's `claude`); what stands below those are tools.
        children
            .iter()
            .any(|child| !crate::agent::sweep::descendants(*child).is_empty())
    }
}
