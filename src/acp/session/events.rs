//! What an editor receives for each event of its conversation: an update, a question, or a note about a change that another
//! client made.

use std::sync::Arc;

use bridge_protocol::event::{Event, EventEnvelope};
use bridge_protocol::history::Checkpoint;
use bridge_protocol::raw::PromptContent;
use bridge_protocol::turn::{Interrupt, InterruptKind, StopReason, TurnResult};
use bridge_protocol::{ConversationId, InterruptId, TurnId};
use jiff::Timestamp;
use serde_json::json;
use tokio::sync::oneshot;

use super::super::peer::{ForwardedQuestion, PendingRequest};
use super::super::{commands, message};
use super::chunks_of;
use super::held_messages::{HeldMessages, HoldUntil};
use super::lines::without_unused_title;
use super::{COMMANDS, SESSION_INFO, Session, Snapshot, State};
use crate::agent::message::{RequestKind, method};
use crate::bridge::{Delivery, EncodedEvent};

/// How many of the URLs that the editor was asked to open are remembered.
const OPEN_URLS: usize = 64;

/// How many of the newest ended turns are remembered with their checkpoints.
const ENDED_TURNS: usize = 8;

impl Session {
    /// Handles an event of the subscription with this number. `sender` awaits the subscription's snapshot.
    pub(super) fn on_encoded(
        self: &Arc<Self>,
        number: u64,
        event: &EncodedEvent,
        sender: &mut Option<oneshot::Sender<Snapshot>>,
    ) -> Delivery {
        let mut state = self.lock();
        if state.load_subscription == Some(number) {
            return Delivery::Delivered;
        }
        if number > state.subscription {
            (state.subscription, state.load_subscription) = (number, None);
        }
        if state.subscription != number || self.peer.outbox.is_closed() {
            return Delivery::Disconnected;
        }
        if let Some(params) = event.subagent_params() {
            return match self.subagent_update_line(&mut state, params) {
                Some(line) => self.send_from_agent(&mut state, &line),
                None => Delivery::Delivered,
            };
        }
        match event.update() {
            Some(update) => match without_unused_title(event, update) {
                Some(update) => self.on_update(&mut state, &update, event.params()),
                None => Delivery::Delivered,
            },
            None => match serde_json::from_str::<EventEnvelope>(&event.text) {
                Ok(envelope) => self.on_event(&mut state, envelope, event.turn_updates(), sender),
                Err(error) => {
                    tracing::error!(%error, "an event of the daemon cannot be read");
                    match sender {
                        Some(_) => Delivery::Disconnected,
                        None => Delivery::Delivered,
                    }
                }
            },
        }
    }

    fn on_update(&self, state: &mut State, update: &str, params: Option<&str>) -> Delivery {
        let kind = message::kind_of(update);
        let Some(update) = self.shown(state, &kind, update, params) else {
            return Delivery::Delivered;
        };
        let update = &*update;
        if kind == SESSION_INFO
            && let Some(title) = message::text_of(update, "title")
        {
            state.title = title;
        }
        if kind == COMMANDS {
            let commands = message::member(update, "availableCommands");
            // Agents report their commands again at each reopening. The editor has them, and expects none after a load.
            if state.commands == commands {
                return Delivery::Delivered;
            }
            state.commands = commands;
            if let Some(agent) = &state.agent {
                self.peer.agents_with_commands.note(agent, true);
            }
            self.commands_reported.notify_waiters();
            if self.peer.wants_commands() {
                let commands = commands::announced_commands(state.commands.as_ref(), state.turn_abilities);
                let update = message::with_member(update, "availableCommands", commands);
                return self.send_unchanged(state, &update, params);
            }
        }
        self.send_unchanged(state, update, params)
    }

    /// Sends an update with the other parameters that came with it.
    fn send_unchanged(&self, state: &mut State, update: &str, params: Option<&str>) -> Delivery {
        match (params, &state.held) {
            (Some(params), _) => self.send_from_agent(state, &self.update_line_with(params, update)),
            (None, Some(_)) => self.send_from_agent(state, &self.update_line(update)),
            (None, None) => self.send_update(state, update),
        }
    }

    fn on_event(
        self: &Arc<Self>,
        state: &mut State,
        envelope: EventEnvelope,
        turn_updates: &[EncodedEvent],
        sender: &mut Option<oneshot::Sender<Snapshot>>,
    ) -> Delivery {
        match envelope.event {
            Event::Snapshot {
                conversation,
                running,
                unaccepted,
                session,
                ..
            } => {
                let started_at = running.as_ref().map(|running| running.started_at);
                let started_at = started_at.or(unaccepted.map(|unaccepted| unaccepted.started_at));
                let snapshot = Snapshot {
                    conversation,
                    newest_since: started_at.unwrap_or(envelope.at),
                    running,
                    updates: turn_updates.to_vec(),
                    info: *session.unwrap_or_default(),
                };
                self.on_snapshot(state, snapshot, sender)
            }
            // This event arrives before the turn's prompt.
            Event::Continued { turn_id } => {
                state.is_continuation_next = true;
                let mut sender = state
                    .prompts
                    .iter_mut()
                    .filter_map(|own| own.continuation.as_mut());
                if let Some(sender) = sender.find(|sender| sender.turn.is_none()) {
                    sender.turn = Some(turn_id);
                }
                Delivery::Delivered
            }
            Event::Updated { conversation } => {
                state.update_continuations(&conversation);
                if state.title == conversation.title {
                    return Delivery::Delivered;
                }
                // Another client renamed the conversation.
                let title = Some(&conversation.title).filter(|title| !title.is_empty());
                let update = json!({"sessionUpdate": SESSION_INFO, "title": title}).to_string();
                state.title = conversation.title;
                // A title may be derived from the agent's, so it is sent like an update of the agent.
                self.send_unchanged(state, &update, None)
            }
            Event::PromptAccepted { turn_id, prompt } => self.on_prompt_accepted(state, turn_id, &prompt),
            Event::TurnEnded { turn } => self.on_turn_ended(state, turn),
            Event::CheckpointSaved { checkpoint } => {
                state.save_checkpoint(checkpoint);
                self.checkpoint_saved.notify_waiters();
                Delivery::Delivered
            }
            Event::Resumed { resumed } => match self.loss_message_in(state, &resumed) {
                Some(words) => self.send_update(state, &self.note(&words)),
                None => Delivery::Delivered,
            },
            Event::Edited { .. } => {
                state.awaits_edited_prompt = true;
                Delivery::Delivered
            }
            Event::Forked { conversation_id, .. } if Some(conversation_id) != state.conversation => {
                Delivery::Delivered
            }
            Event::Forked { .. } | Event::Undone { .. } if state.history_changes > 0 => Delivery::Delivered,
            Event::Forked { .. } => self.send_update(state, &self.note(REWOUND_ELSEWHERE)),
            Event::Undone { .. } => self.send_update(state, &self.note(UNDONE_ELSEWHERE)),
            Event::ForeignWriter { .. } => {
                state.has_foreign_turns = true;
                Delivery::Delivered
            }
            Event::Reset {} => self.send_update(state, &self.note(RESET_ELSEWHERE)),
            Event::InterruptRaised { interrupt } => match state.conversation {
                Some(id) => self.ask(state, id, &interrupt),
                None => Delivery::Delivered,
            },
            Event::InterruptResolved { interrupt_id, .. } => {
                self.withdraw_questions(state, |id| *id == interrupt_id)
            }
            Event::Deleted {} => {
                self.forget(state);
                Delivery::Disconnected
            }
            _ => Delivery::Delivered,
        }
    }

    /// Takes over the state of the conversation, asks its open questions, and passes the snapshot to the request that opened it.
    fn on_snapshot(
        self: &Arc<Self>,
        state: &mut State,
        mut snapshot: Snapshot,
        sender: &mut Option<oneshot::Sender<Snapshot>>,
    ) -> Delivery {
        let Snapshot {
            conversation,
            running,
            updates,
            info,
            ..
        } = &mut snapshot;
        let is_load = std::mem::take(&mut state.is_load_snapshot);
        if is_load {
            state.shown_prompt = running.as_ref().map(|running| running.prompt.clone());
        }
        if is_load && !conversation.interrupts.is_empty() {
            // A question may come from a subagent's session that the replay announces.
            for event in updates {
                drop(self.line_of(state, event));
            }
        }
        let open = conversation.interrupts.iter().filter(|open| !open.orphaned);
        let open: Vec<&Interrupt> = open.collect();
        // Questions not in the snapshot were resolved while events were ignored.
        let mut delivery = self.withdraw_questions(state, |id| !open.iter().any(|open| open.id == *id));
        for interrupt in open {
            delivery = self.ask(state, conversation.id, interrupt);
        }
        let options = info.config_options.take();
        info.config_options = options.map(|options| self.peer.capabilities().supported_options(options));
        state.accepted_prompts = 0;
        state.running_turn = running.as_ref().map(|running| running.turn_id.clone());
        state.is_continuation_next = false;
        state.drop_missed_continuations();
        state.title.clone_from(&conversation.title);
        state.agent = Some(conversation.agent.clone());
        if let Some(sender) = sender.take() {
            // The caller may have been cancelled.
            let _unwanted = sender.send(snapshot);
        }
        delivery
    }

    fn on_prompt_accepted(&self, state: &mut State, turn: TurnId, prompt: &PromptContent) -> Delivery {
        let delivery = self.end_hold_after_cancel(state);
        if delivery != Delivery::Delivered {
            return delivery;
        }
        state.accepted_prompts += 1;
        let is_own = state.is_own_turn(&turn);
        let is_sent_again = std::mem::take(&mut state.is_continuation_next);
        let is_sent_again = is_sent_again && state.shown_prompt.as_ref() == Some(prompt);
        let is_known = is_sent_again || state.is_shown_by_editor(&turn);
        state.shown_prompt = Some(prompt.clone());
        state.running_turn = Some(turn);
        if std::mem::take(&mut state.awaits_edited_prompt) && !is_own {
            let _taken = self.send_update(state, &self.note(EDITED_ELSEWHERE));
        }
        // Not before: a note in the middle of what the agent says would read as a part of it.
        if std::mem::take(&mut state.has_foreign_turns) {
            let _taken = self.send_update(state, &self.note(ADDED_ELSEWHERE));
        }
        match is_known {
            true => Delivery::Delivered,
            false => self.send_prompt(state, prompt),
        }
    }

    fn on_turn_ended(&self, state: &mut State, turn: TurnResult) -> Delivery {
        (state.running_turn, state.has_reported_loss) = (None, false);
        state
            .shown_prompt
            .take_if(|_| turn.stop_reason != StopReason::Failed && turn.continuation.is_none());
        // An editor may never answer a request that it does not know.
        for request in self.fail_forwarded(|kind| kind == RequestKind::Extension) {
            let delivery = self.send(state, &message::withdrawal(request));
            if delivery != Delivery::Delivered {
                return delivery;
            }
        }
        let ended = (turn.turn_id.clone(), Timestamp::now(), None);
        state.ended_turns.push_back(ended);
        if state.ended_turns.len() > ENDED_TURNS {
            state.ended_turns.pop_front();
        }
        if state.is_own_turn(&turn.turn_id)
            && turn.stop_reason == StopReason::Cancelled
            && state.held.is_none()
        {
            state.held = Some(HeldMessages::new(HoldUntil::NextTurn, &self.peer));
        }
        let mut own = state.prompts.iter_mut();
        if let Some(own) = own.find(|own| *own.turn() == turn.turn_id)
            && let Some(sender) = own.continuation.take()
        {
            // The command may have been cancelled.
            let _unwanted = sender.ended.send(turn);
        }
        Delivery::Delivered
    }

    /// Forwards a question of the agent to the editor. If the editor cannot show it, a message explains how to answer it.
    fn ask(self: &Arc<Self>, state: &mut State, conversation: ConversationId, asked: &Interrupt) -> Delivery {
        if state.questions.contains_key(&asked.id) || state.reported_questions.contains_key(&asked.id) {
            return Delivery::Delivered;
        }
        let method = match asked.kind {
            InterruptKind::Permission => "session/request_permission",
            _ => {
                let mode = message::text_of(asked.request.get(), "mode").unwrap_or_else(|| "form".to_owned());
                if !self.peer.capabilities().supports_question(&mode) {
                    let question = message::question_of(asked.request.get());
                    let text = format!(
                        "The agent asks: {question}\n\nThis editor cannot show the question. To answer it, run in a terminal: \
                         sessionctl answer {conversation}"
                    );
                    let line = self.update_line(&message::text_chunk(&text));
                    let delivery = self.send(state, &line);
                    state.reported_questions.insert(asked.id.clone(), line);
                    return delivery;
                }
                // The agent reports when the user is done at the URL, long after the answer.
                state
                    .opened_urls
                    .extend(message::text_of(asked.request.get(), "elicitationId"));
                if state.opened_urls.len() > OPEN_URLS {
                    state.opened_urls.pop_front();
                }
                "elicitation/create"
            }
        };
        let question = ForwardedQuestion::new(Arc::downgrade(self), conversation, asked);
        let Some(request) = self.peer.register_request(PendingRequest::Question(question)) else {
            return Delivery::Delivered;
        };
        state.questions.insert(asked.id.clone(), request);
        let params = self.for_editor(state, asked.request.get());
        self.send(state, &message::request(request, method, &params))
    }

    /// Notifies the editor that these questions no longer need an answer.
    fn withdraw_questions(&self, state: &mut State, matches: impl Fn(&InterruptId) -> bool) -> Delivery {
        state.reported_questions.retain(|id, _| !matches(id));
        let withdrawn: Vec<(InterruptId, u64)> = state.questions.extract_if(|id, _| matches(id)).collect();
        let mut delivery = Delivery::Delivered;
        for (_, request) in withdrawn {
            self.peer.take_pending(request);
            delivery = self.send(state, &message::withdrawal(request));
        }
        delivery
    }

    /// Forwards a notification of the agent. That the user is done at a URL is sent only to the editor that opened it.
    pub(super) fn handle_notification(&self, method: &str, params: &str) {
        let line = if method == method::ELICITATION_COMPLETE {
            let id = message::text_of(params, "elicitationId");
            let urls = &mut self.lock().opened_urls;
            let known = id.and_then(|id| urls.iter().position(|known| *known == id));
            let Some(index) = known else { return };
            urls.remove(index);
            message::notification(method, params)
        } else {
            message::notification(method, &self.for_editor(&self.lock(), params))
        };
        if self.send_from_agent(&mut self.lock(), &line) == Delivery::QueueFull {
            self.peer.outbox.abandon();
        }
    }

    /// Shows a prompt that the editor did not send.
    fn send_prompt(&self, state: &mut State, prompt: &PromptContent) -> Delivery {
        let mut delivery = Delivery::Delivered;
        for update in chunks_of(prompt) {
            delivery = self.send_update(state, &update);
        }
        delivery
    }
}

impl State {
    /// Remembers the checkpoint of an ended turn. It arrives after the end of its turn, possibly even after the end of a later one.
    fn save_checkpoint(&mut self, checkpoint: Checkpoint) {
        let later = |end: Timestamp| checkpoint.at.is_some_and(|at| at <= end);
        let of_last = self.ended_turns.len().saturating_sub(1);
        let index = self
            .ended_turns
            .iter()
            .position(|(_, end, saved)| saved.is_none() && later(*end));
        if let Some((.., saved)) = self.ended_turns.get_mut(index.unwrap_or(of_last)) {
            *saved = Some(checkpoint.id);
        }
    }
}

const EDITED_ELSEWHERE: &str = "Another client replaced an earlier prompt of this conversation; reopen the thread to see the change.\n\n";
const ADDED_ELSEWHERE: &str = "Another program, such as the agent in a terminal, has changed this conversation; reopen the \
                               thread if you do not see the change.\n\n";
const REWOUND_ELSEWHERE: &str = "Another client went back to an earlier turn of this conversation; reopen the thread to see the change.\n\n";
const RESET_ELSEWHERE: &str = "Another client reset this conversation: the next prompt starts an empty session; reopen the thread to see the change.\n\n";
const UNDONE_ELSEWHERE: &str =
    "Another client undid a change of this conversation; reopen the thread to see the change.\n\n";
