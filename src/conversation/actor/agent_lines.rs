//! Handles the lines of the agent, in order.

use std::sync::Arc;

use bridge_protocol::Cursor;
use bridge_protocol::event::Event;
use bridge_protocol::id::InterruptId;
use bridge_protocol::raw::RawJson;
use bridge_protocol::time;
use bridge_protocol::turn::InterruptKind;
use jiff::Timestamp;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::agent::envelope::Line;
use crate::agent::inbox::Incoming;
use crate::agent::kinds::{RAW_EVENT_METHOD, announced_transcript};
use crate::agent::message::{AgentError, AgentRequestId, CallError, MethodName, RawId, RequestKind, method};
use crate::agent::process::Death;
use crate::agent::subagent;
use crate::conversation::client_request::ClientRequest;
use crate::conversation::events::{EncodedEvent, Subscriber};
use crate::conversation::reported_settings::SettingChange;
use crate::conversation::services::now;
use crate::conversation::state::Model;
use crate::conversation::transcript_growth::TranscriptGrowth;
use crate::conversation::upstream::{OpenError, SettingRequests, send_setting, upstream_json};

use super::{Actor, OpenQuestion};

impl Actor {
    /// Handles a round of lines. All get the same time.
    pub(super) fn handle_lines(&mut self, lines: &mut Vec<Incoming>) {
        let at = now();
        let at_text = time::text(at);
        let mut lines = lines.drain(..);
        while let Some(incoming) = lines.next() {
            // The remaining lines of a session that was dropped during the round are ignored.
            if self.session.is_none() {
                return;
            }
            if !self.model.must_delay_agent_lines() {
                self.note_line(&incoming, at);
            }
            // A line that must wait, perhaps for what the state machine made of it, is handled again later.
            if self.model.must_delay_agent_lines() {
                if let Some(session) = &mut self.session {
                    session.early_lines.push(incoming);
                    session.early_lines.extend(lines);
                }
                return;
            }
            self.handle_line(incoming, at, &at_text);
        }
    }

    /// Shows the state machine an update, or a request for a client, before the line is passed on. Only the few kinds that the
    /// conversation stores are decoded.
    fn note_line(&mut self, incoming: &Incoming, at: Timestamp) {
        match incoming {
            Incoming::Notification { method: name, line } if name.as_str() == method::SESSION_UPDATE => {
                let Some(update) = line.update() else { return };
                let kind = line.update_kind().unwrap_or_default();
                let is_of_subagent = self.params_of_subagent(line).is_some();
                self.note(at, |model| match is_of_subagent {
                    true => model.apply_subagent_update(&kind),
                    false => model.apply_update(&kind, update, line.text()),
                });
            }
            Incoming::Request { method: name, .. } if question_kind(name).is_none() => {
                self.note(at, Model::note_client_request);
            }
            _ => {}
        }
    }

    fn handle_line(&mut self, incoming: Incoming, at: Timestamp, at_text: &str) {
        match incoming {
            Incoming::Notification { method: name, line } if name.as_str() == method::SESSION_UPDATE => {
                self.handle_update(&line, at_text);
            }
            Incoming::Notification { method: name, line } => {
                self.handle_notification(name.as_str(), &line, at);
            }
            Incoming::Request {
                id,
                method: name,
                line,
            } => self.handle_request(id, name, &line, at),
            Incoming::Response { request, outcome, .. } => self.handle_response(request, outcome, at),
            Incoming::Overflow { dropped } => {
                tracing::warn!(conversation = %self.model.id(), dropped, "updates of the agent were dropped: they arrived faster than they were processed, or were too long or too deeply nested");
                self.stream.mark_all_lagged(at_text);
            }
            Incoming::Died(death) => self.handle_death(&death, at),
        }
    }

    /// Handles the answer to a prompt, or to a client's request that was passed on.
    fn handle_response(
        &mut self,
        request: AgentRequestId,
        outcome: Result<Box<RawValue>, CallError>,
        at: Timestamp,
    ) {
        let Some(session) = &mut self.session else { return };
        if session.prompt.take_if(|prompt| *prompt == request).is_some() {
            self.handle_answer(outcome, at);
        } else if let Some(reply) = session.forwarded_requests.remove(&request) {
            // The client may have disconnected.
            let _gone = reply.send(outcome);
        } else if let Some(change) = session.unanswered_settings.remove(&request) {
            let is_awaited = |asked: &SettingRequests| asked.current == Some(request);
            let is_awaited = session.setting_requests.as_ref().is_some_and(is_awaited);
            self.handle_setting_answer(&change, outcome, is_awaited, at);
        }
    }

    /// Handles the answer to a setting, in its order among what the agent reports. What the agent accepts counts, also after the
    /// deadline.
    fn handle_setting_answer(
        &mut self,
        change: &SettingChange,
        outcome: Result<Box<RawValue>, CallError>,
        is_awaited: bool,
        at: Timestamp,
    ) {
        match outcome {
            Ok(answer) => {
                let answer = RawJson::new(answer);
                self.note(at, |model| model.note_setting_accepted(change, &answer));
                self.publish();
                if is_awaited {
                    self.ask_for_next_setting();
                }
            }
            Err(error) if is_awaited => self.end_setting_requests(Err((change, error))),
            Err(_) => {}
        }
    }

    /// Asks the agent for the next setting, if the last one was accepted.
    pub(super) fn ask_for_next_setting(&mut self) {
        let Some(session) = &mut self.session else { return };
        let Some(asked) = session.setting_requests.as_mut() else {
            return;
        };
        let Some(change) = asked.next.pop_front().filter(|_| !asked.reply.is_closed()) else {
            self.end_setting_requests(Ok(()));
            return;
        };
        let calls = session.lease.calls();
        let target = (&calls, &session.attachment.handle, &session.sender);
        let params = asked.params.as_ref().map(RawJson::as_raw);
        match send_setting(self.model.kind, target, &change, params, &self.model.session_info) {
            Ok(request) => {
                asked.current = Some(request);
                session.unanswered_settings.insert(request, change);
            }
            Err(error) => self.end_setting_requests(Err((&change, error))),
        }
    }

    fn end_setting_requests(&mut self, result: Result<(), (&SettingChange, CallError)>) {
        let session = self.session.as_mut();
        if let Some(asked) = session.and_then(|session| session.setting_requests.take()) {
            let known = &self.model.session_info;
            // After the deadline nobody waits for it.
            let _gone = asked
                .reply
                .send(result.map_err(|(change, error)| OpenError::from_setting(change, known, error)));
        }
    }

    fn handle_death(&mut self, death: &Arc<Death>, at: Timestamp) {
        let Some(session) = &mut self.session else { return };
        session.prompt = None;
        if let Some(asked) = session.setting_requests.take() {
            let error = CallError::Died(Arc::clone(death));
            let _gone = asked.reply.send(Err(OpenError::Call(error)));
        }
        let dead = session.lease.clone();
        self.forget_requests();
        let status = death
            .status
            .map_or_else(|| "its output ended".to_owned(), |status| status.to_string());
        let reason = dead.termination_reason().map(ToOwned::to_owned);
        self.dead_agent = Some(dead);
        let is_bystander = reason.is_some();
        let status = reason.unwrap_or(status);
        self.apply_at(at, |model| {
            model.agent_died(&status, &death.stderr_tail, is_bystander);
        });
        self.dead_agent = None;
    }

    /// Sends an update to the subscribers, byte for byte. Nothing is awaited between the line and its fan-out.
    fn handle_update(&mut self, line: &Line, at_text: &str) {
        let Some(update) = line.update() else { return };
        let kind = line.update_kind().unwrap_or_default();
        let turn = self.model.turn_of_updates();
        if let Some(params) = self.params_of_subagent(line) {
            self.stream
                .emit_update_of_subagent(turn.is_some(), params, at_text);
            return;
        }
        let params = subagent::params_beside_update(line);
        let has_unused_title = kind == "session_info_update" && self.model.is_named_otherwise(update);
        self.stream
            .emit_update(turn, update, params, has_unused_title, at_text);
        if matches!(
            kind.as_ref(),
            "current_mode_update" | "config_option_update" | "session_info_update"
        ) {
            self.publish();
        }
        if has_unused_title {
            // Clients of the daemon's own protocol were sent the agent's title.
            let conversation = self.model.view();
            self.stream.emit(&Event::Updated { conversation }, at_text);
        }
    }

    /// The parameters of a line, if it is about the session of a subagent.
    fn params_of_subagent<'a>(&self, line: &'a Line) -> Option<&'a str> {
        let session = line.session_id()?;
        let own = self.session.as_ref()?.attachment.handle.as_str();
        line.params().filter(|_| session != own)
    }

    fn handle_notification(&mut self, name: &str, line: &Line, at: Timestamp) {
        match name {
            RAW_EVENT_METHOD if self.params_of_subagent(line).is_some() => {}
            RAW_EVENT_METHOD => {
                // The daemon itself asked for it; it is not sent to clients.
                self.model.scan_for_failure_signs(line.text(), name);
                let params: Option<Value> =
                    line.params().and_then(|params| serde_json::from_str(params).ok());
                if let Some(announced) = params.as_ref().and_then(announced_transcript) {
                    let has_rolled = self.note(at, |model| model.silent_roll(announced));
                    if has_rolled && let Some(session) = &mut self.session {
                        session.prompt_tally.reset_after_clear();
                    }
                }
            }
            method::CANCEL_REQUEST => {
                #[derive(serde::Deserialize)]
                #[serde(rename_all = "camelCase")]
                struct Params<'a> {
                    #[serde(borrow)]
                    request_id: &'a RawValue,
                }
                let withdrawn_id = line
                    .params()
                    .and_then(|params| serde_json::from_str::<Params<'_>>(params).ok())
                    .map(|params| params.request_id.get().to_owned());
                let found = self
                    .questions
                    .iter()
                    .position(|question| Some(question.raw_id.as_str()) == withdrawn_id.as_deref());
                if let Some(index) = found {
                    let question = self.questions.swap_remove(index);
                    self.respond_error(&question.raw_id, -32800, "the request was cancelled");
                    self.apply_at(at, |model| model.question_withdrawn(&question.id));
                } else if let Some(id) = withdrawn_id {
                    self.stream.withdraw_requests(Some(&RawId::from_wire(&id)));
                }
            }
            _ => self
                .stream
                .forward_notification(name, line.params().unwrap_or("{}")),
        }
    }

    /// Handles a request of the agent: a question to the user, or a request for a client.
    fn handle_request(&mut self, id: RawId, name: MethodName, line: &Line, at: Timestamp) {
        let Some(params) = line
            .params()
            .and_then(|params| RawJson::from_text(params.to_owned()).ok())
        else {
            self.respond_error(&id, -32602, "the request has no parameters");
            return;
        };
        let Some(kind) = question_kind(&name) else {
            let Some(session) = &self.session else { return };
            let connection = session.lease.connection().clone();
            let request = ClientRequest::new(id, name, params, connection);
            if let Err(request) = self.stream.forward_request(request) {
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
        self.apply_at(at, |model| model.question_asked(kind, params, interrupt_id));
    }

    fn handle_answer(&mut self, outcome: Result<Box<RawValue>, CallError>, at: Timestamp) {
        let answer = match outcome {
            Ok(raw) => Ok(RawJson::new(raw)),
            // The death itself is reported next and says more.
            Err(CallError::Died(_)) => return,
            Err(CallError::Agent(error)) => Err(upstream_json(&error)),
            Err(error) => Err(upstream_json(&AgentError::new(-32603, error.to_string()))),
        };
        self.apply_at(at, |model| model.prompt_answered(answer));
    }

    /// A transcript has grown, whichever program wrote to it. Growth of a session that has left the chain is ignored.
    pub(super) fn transcript_grown(&mut self, growth: TranscriptGrowth) {
        let id = &growth.upstream_id;
        if !self.model.record.chain.contains(id) {
            return;
        }
        let at = time::text(now());
        let mut is_foreign = growth.rewritten;
        let mut has_foreign_prompts = false;
        let is_live = matches!(&self.model.session, Some(live) if live.upstream_id == *id);
        if let Some(session) = self.session.as_mut().filter(|_| is_live) {
            let tally = session.prompt_tally;
            has_foreign_prompts = session.prompt_tally.detect_foreign_prompts(growth.prompts);
            if has_foreign_prompts || growth.replaced {
                tracing::warn!(conversation = %self.model.id(), upstream_id = %id, replaced = growth.replaced, prompts = growth.prompts, ?tally, "another program writes to the transcript of a session that is open here");
                is_foreign = true;
            }
        }
        if let Some(session) = self.session.as_mut().filter(|_| is_live)
            && is_foreign
            && self.model.turn.is_none()
        {
            self.foreign_writer = Some(id.clone());
            // The agent does not know turns that were added, and would continue without them. It reads the transcript when it
            // opens the session again. If the file lost something, the agent may have it still.
            if has_foreign_prompts {
                session.prompt_tally.note_foreign();
                if !self.has_background_work() {
                    self.apply(Model::reopen_later);
                }
            }
        }
        if is_foreign {
            let upstream_id = id.clone();
            self.stream.emit(&Event::ForeignWriter { upstream_id }, &at);
        }
        for checkpoint in growth.new_checkpoints {
            self.stream.emit(&Event::CheckpointSaved { checkpoint }, &at);
        }
    }

    /// Drops the questions and requests of the agent: its session is over, so none of them waits for an answer.
    pub(super) fn forget_requests(&mut self) {
        self.questions.clear();
        self.stream.withdraw_requests(None);
    }

    fn respond_error(&self, id: &RawId, code: i64, message: &str) {
        let Some(session) = &self.session else { return };
        if let Err(error) = session.lease.connection().refuse(id, code, message) {
            tracing::debug!(%error, "the agent could not be answered");
        }
    }

    /// Adds a subscriber. It first gets the events that it missed if they are still held, or else a snapshot; then live ones.
    pub(super) fn subscribe(&mut self, subscriber: Box<dyn Subscriber>, after: Option<&Cursor>) {
        let missed = after.and_then(|cursor| self.stream.holds_after(cursor));
        let snapshot = match missed {
            Some(_) => None,
            None => Some(self.snapshot(after.is_some(), subscriber.is_editor())),
        };
        self.stream
            .subscribe(subscriber, missed, snapshot.as_ref(), &time::text(now()));
    }

    /// A snapshot of the conversation for a new subscriber. An editor also gets the updates of the running turn, unchanged.
    pub(super) fn snapshot(&self, gap: bool, for_editor: bool) -> EncodedEvent {
        let (updates, truncated) = match &self.model.turn {
            Some(_) => self.stream.turn_updates(),
            None => (Vec::new(), false),
        };
        let written = updates
            .iter()
            .filter(|_| !for_editor)
            .filter_map(EncodedEvent::to_update);
        let is_open = self.model.session.is_some();
        let event = Event::Snapshot {
            conversation: self.model.view(),
            gap,
            running: self.model.running_turn(written.collect(), truncated),
            unaccepted: self.model.unaccepted_turn(),
            session: Some(&self.model.session_info)
                .filter(|info| is_open || **info != Default::default())
                .map(|info| Box::new(info.clone())),
        };
        self.stream.snapshot(&event, updates, &time::text(now()))
    }

    /// Whether the agent runs something besides the session itself, such as a background command of a tool. Closing the
    /// session would end it.
    pub(super) fn has_background_work(&self) -> bool {
        let Some(session) = &self.session else {
            return false;
        };
        let children = crate::agent::sweep::descendants(session.lease.pid());
        // One child process per session is the agent's own (Claude's `claude`); their child processes are tools.
        children
            .iter()
            .any(|child| !crate::agent::sweep::descendants(*child).is_empty())
    }
}

/// What kind of question to the user a request of the agent is. `None`: it is a request for a client.
fn question_kind(name: &MethodName) -> Option<InterruptKind> {
    match RequestKind::of(name.as_str()) {
        RequestKind::Permission => Some(InterruptKind::Permission),
        RequestKind::Elicitation => Some(InterruptKind::Elicitation),
        RequestKind::ClientResource | RequestKind::Extension => None,
    }
}
