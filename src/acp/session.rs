//! One session of an editor: forwards the events of its conversation as updates and questions.
//!
//! Owns when messages about the session may be sent: nothing before the answer that makes it known to the editor, and no
//! updates after a cancelled prompt's answer until the next request or turn. Requests and questions of the agent do not wait
//! for that. Events arrive in the conversation's order and are forwarded without waiting.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bridge_protocol::conversation::{Conversation, RunningTurn, SessionInfo};
use bridge_protocol::event::{Event, EventEnvelope};
use bridge_protocol::raw::{PromptContent, RawJson};
use bridge_protocol::turn::{Interrupt, InterruptKind, StopReason};
use bridge_protocol::{BridgeError, CheckpointId, ConversationId, ErrorKind, InterruptId, TurnId};
use indexmap::IndexSet;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};

use super::forwarding::ForwardedRequests;
use super::peer::{ForwardedQuestion, Peer, PendingRequest};
use super::{commands, message};
use crate::agent::message::{RequestKind, method};
use crate::bridge::{Bridge, Delivery, EncodedEvent};
use crate::server::PushError;

mod held_messages;
mod lines;
mod prompts;
mod subscriber;

use held_messages::{HeldMessages, HoldUntil};
use prompts::EditorPrompt;

/// How many of the URLs that the editor was asked to open are remembered.
const OPEN_URLS: usize = 64;

/// How many of the newest ended turns are remembered with their checkpoints.
const ENDED_TURNS: usize = 8;

/// A session of an editor.
pub(super) struct Session {
    /// The session's id, as the editor wrote it.
    pub(super) id: String,
    /// Locked while no other request about the session may overtake. Waiting requests lock it in order of arrival.
    pub(super) order: Arc<tokio::sync::Mutex<()>>,
    /// Notified when the agent has reported its commands.
    pub(super) commands_reported: Notify,
    /// Notified when a turn has its checkpoint.
    checkpoint_saved: Notify,
    /// Notified when prompts were cancelled or the session was closed.
    prompts_cancelled: Notify,
    /// The beginning of each update, encoded once.
    update_prefix: String,
    pub(super) peer: Arc<Peer>,
    pub(super) forwarding: ForwardedRequests,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    conversation: Option<ConversationId>,
    /// The parameters of the editor's last open request, except those that the protocol names.
    open_params: Option<RawJson>,
    /// The number of the current subscription. Events of earlier ones are ignored. A later subscription becomes current with
    /// its first event.
    subscription: u64,
    /// During a load of an open session: the number of the earlier subscription. It still receives the agent's requests to the
    /// editor until the next subscription begins. Its events are ignored.
    load_subscription: Option<u64>,
    /// Whether the next snapshot is that of a load.
    is_load_snapshot: bool,
    /// The number of the newest subscription.
    last_subscription: u64,
    /// The held messages. `None` while messages are sent immediately.
    held: Option<HeldMessages>,
    /// The editor's unanswered prompts, in order of arrival.
    prompts: Vec<EditorPrompt>,
    /// How many prompts were accepted since the snapshot.
    accepted_prompts: usize,
    /// The running turn, of any client, and whether the editor has cancelled it.
    running_turn: Option<(TurnId, bool)>,
    /// Whether the user was notified that updates of this turn are missing.
    has_reported_loss: bool,
    /// The commands, as the agent reported them.
    commands: Option<RawJson>,
    /// The options, as the agent reported them.
    options: Option<RawJson>,
    /// The title, as the editor knows it.
    title: String,
    /// The newest turns that ended, with the checkpoints after them.
    ended_turns: VecDeque<(TurnId, Timestamp, Option<CheckpointId>)>,
    /// Whether a command of the editor is changing the history.
    changes_history: bool,
    /// Whether the history was edited and the new prompt has not arrived yet.
    awaits_edited_prompt: bool,
    /// The questions that the editor was asked, with the ids of the requests.
    questions: HashMap<InterruptId, u64>,
    /// The sessions of subagents that the editor knows.
    subagents: IndexSet<String>,
    /// The agent's own id of the session. Set once the agent has announced a subagent's session.
    agent_session_id: String,
    /// The ids of the URLs that the editor was asked to open, oldest first.
    opened_urls: VecDeque<String>,
}

/// The conversation when a subscription began.
pub(super) struct Snapshot {
    pub(super) conversation: Conversation,
    /// When it was taken.
    pub(super) at: Timestamp,
    pub(super) running: Option<RunningTurn>,
    /// The updates of the running turn, unchanged.
    pub(super) updates: Vec<EncodedEvent>,
    pub(super) info: SessionInfo,
}

impl Session {
    pub(super) fn new(name: &str, peer: Arc<Peer>) -> Arc<Self> {
        let quoted = Value::from(name);
        Arc::new(Self {
            id: name.to_owned(),
            order: Arc::default(),
            commands_reported: Notify::new(),
            checkpoint_saved: Notify::new(),
            prompts_cancelled: Notify::new(),
            update_prefix: format!(
                r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":{quoted},"update":"#
            ),
            peer,
            forwarding: ForwardedRequests::default(),
            state: Mutex::default(),
        })
    }

    /// Stores the parameters of the editor's open request, except those that the protocol names.
    pub(super) fn set_open_params(&self, params: Option<RawJson>) {
        self.lock().open_params = params;
    }

    /// The parameters of the editor's last open request.
    pub(super) fn open_params(&self) -> Option<RawJson> {
        self.lock().open_params.clone()
    }

    /// The session's conversation, while the editor has it open.
    pub(super) fn conversation(&self) -> Option<ConversationId> {
        self.lock().conversation
    }

    /// Subscribes to the conversation and returns its snapshot. All messages are held back from now on.
    ///
    /// # Errors
    /// The conversation does not exist, or its task cannot be reached.
    pub(super) async fn attach(
        self: &Arc<Self>,
        bridge: &Arc<Bridge>,
        id: ConversationId,
    ) -> Result<Snapshot, BridgeError> {
        let (sender, snapshot) = oneshot::channel();
        {
            let mut state = self.lock();
            state.conversation = Some(id);
            self.hold(&mut state);
        }
        let attached = match self.subscribe(bridge, id, sender).await {
            Ok(()) => snapshot.await.map_err(|_| {
                let message = "the conversation ended while it was opened; try again";
                BridgeError::new(ErrorKind::InternalError, message)
            }),
            Err(error) => Err(error),
        };
        attached.inspect_err(|_| self.detach())
    }

    async fn subscribe(
        self: &Arc<Self>,
        bridge: &Arc<Bridge>,
        id: ConversationId,
        snapshot: oneshot::Sender<Snapshot>,
    ) -> Result<(), BridgeError> {
        let number = self.lock().next_subscription();
        let subscriber = subscriber::SessionSubscriber {
            session: Arc::downgrade(self),
            number,
            snapshot: Some(snapshot),
            is_slow: false,
        };
        bridge.subscribe(Some(id), Box::new(subscriber), None).await
    }

    /// Holds all messages until the answer that makes the session known to the editor.
    fn hold(&self, state: &mut State) {
        let until = HoldUntil::Answer;
        let held = state
            .held
            .get_or_insert_with(|| HeldMessages::new(until, &self.peer));
        held.until = until;
    }

    /// If the session is open, ignores events until it is attached again, because the history will contain the held events and
    /// those of the meantime. Returns the held updates, in case the history cannot be shown.
    pub(super) fn begin_load(&self) -> Vec<Arc<str>> {
        let mut state = self.lock();
        state.is_load_snapshot = true;
        if state.conversation.is_some() {
            // The editor may have forgotten them.
            state.subagents.clear();
            state.load_subscription = state.load_subscription.or(Some(state.subscription));
            state.subscription = state.next_subscription();
            self.hold(&mut state);
        }
        let held = state.held.as_mut();
        held.map_or_else(Vec::new, |held| held.remove(|line| line.starts_with(UPDATE)))
    }

    /// Detaches if the session was being opened, because the request failed or was cancelled.
    pub(super) fn abort_opening(&self) {
        let mut state = self.lock();
        if state.is_held_until(HoldUntil::Answer) {
            self.forget(&mut state);
        }
    }

    /// Forgets the conversation. Nothing more is sent about it.
    pub(super) fn detach(&self) {
        self.forget(&mut self.lock());
    }

    fn forget(&self, state: &mut State) {
        let State { questions, held, .. } = state;
        let questions = questions.drain().map(|(_, request)| request);
        let open = questions.filter(|request| self.peer.take_pending(*request).is_some());
        for request in open.chain(self.fail_all_forwarded()) {
            if !held.as_ref().is_some_and(|held| held.has_unsent(request)) {
                // A failure is ignored: an editor that accepts no messages has disconnected.
                let _sent = self.peer.outbox.try_push(&[&message::withdrawal(request)]);
            }
        }
        let subscription = state.next_subscription();
        *state = State {
            subscription,
            last_subscription: subscription,
            prompts: std::mem::take(&mut state.prompts),
            open_params: state.open_params.take(),
            ..State::default()
        };
        self.prompts_cancelled.notify_waiters();
    }

    /// The agent's commands, if they are known.
    pub(super) fn agent_commands(&self) -> Option<RawJson> {
        self.lock().commands.clone()
    }

    /// How many prompts were accepted since the snapshot.
    pub(super) fn accepted_prompts(&self) -> usize {
        self.lock().accepted_prompts
    }

    /// The options, as the agent last reported them.
    pub(super) fn options(&self) -> Option<RawJson> {
        self.lock().options.clone()
    }

    /// Stores the commands of a snapshot, unless newer ones were reported. The first held message announces all commands.
    pub(super) fn hold_commands(&self, commands: Option<RawJson>) {
        let mut state = self.lock();
        state.commands = state.commands.take().or(commands);
        let line = self.update_line(&self.announcement(&state));
        if let Some(held) = &mut state.held {
            held.push_first(&line);
        }
    }

    /// Announces the commands before all held messages.
    pub(super) async fn replay_commands(&self) {
        let update = {
            let mut state = self.lock();
            if let Some(held) = &mut state.held {
                held.remove(is_commands_update);
            }
            self.announcement(&state)
        };
        self.replay_unchanged(&update).await;
    }

    /// The sessiond command in a prompt, and the text after its name.
    pub(super) fn parse_command(&self, prompt: &PromptContent) -> Option<(&'static str, String)> {
        let wanted = self.peer.wants_commands();
        let state = self.lock();
        commands::parse_command(prompt, state.commands.as_ref()).filter(|_| wanted)
    }

    /// Sends an update before all held messages, and waits for room in the outbox. The commands are announced once.
    pub(super) async fn replay(&self, update: &str) {
        let kind = message::kind_of(update);
        let shown = self.shown(&mut self.lock(), &kind, update, None);
        if let Some(shown) = shown.filter(|_| kind != COMMANDS) {
            self.replay_unchanged(&shown).await;
        }
    }

    /// Like [`Self::replay`], for an update of the running turn.
    pub(super) async fn replay_event(&self, event: &EncodedEvent) {
        let line = self.line_of(&mut self.lock(), event);
        if let Some(line) = line {
            self.replay_line(&line).await;
        }
    }

    /// Sends a line before all held messages, and waits for room in the outbox.
    pub(super) async fn replay_line(&self, line: &str) {
        let _disconnected = self.peer.outbox.push_leaving_room(&[line]).await;
    }

    async fn replay_unchanged(&self, update: &str) {
        // A disconnected editor needs no history.
        let update = [&self.update_prefix, update, "}}"];
        let _gone = self.peer.outbox.push_leaving_room(&update).await;
    }

    /// Sends a text to the user as a message of the agent.
    pub(super) fn send_text(&self, text: &str) {
        self.send_generated(&self.update_line(&message::text_chunk(text)));
    }

    /// Notifies the user, once per turn, that updates are missing because the agent sent them too fast.
    fn report_missing_updates(&self) {
        let mut state = self.lock();
        if !std::mem::replace(&mut state.has_reported_loss, true) {
            let text =
                "\n\nUpdates are missing here: the agent sent them faster than they could be shown.\n\n";
            drop(state);
            self.send_note(text);
        }
    }

    /// Sends a message of the daemon. An editor that reads too slowly for it is disconnected, because it could not see the gap.
    pub(super) fn send_generated(&self, line: &str) {
        if self.send(&mut self.lock(), line) == Delivery::QueueFull {
            self.peer.outbox.abandon();
        }
    }

    /// Sends the user information about the conversation.
    pub(super) fn send_note(&self, text: &str) {
        self.send_generated(&self.update_line(&self.note(text)));
    }

    /// The name under which a sessiond command was announced to the editor. `None` if no commands are announced.
    pub(super) fn announced_command_name(&self, name: &str) -> Option<String> {
        let wanted = self.peer.wants_commands();
        let state = self.lock();
        wanted.then(|| commands::announced_name(name, state.commands.as_ref()))
    }

    /// Marks the history as being changed by a command of the editor, until the guard is dropped.
    pub(super) fn change_history(&self) -> OwnHistoryChange<'_> {
        self.lock().changes_history = true;
        OwnHistoryChange(self)
    }

    /// Waits for the checkpoint after a turn that has ended.
    pub(super) async fn wait_for_checkpoint(&self, turn: &TurnId) -> CheckpointId {
        loop {
            let saved = self.checkpoint_saved.notified();
            let found = {
                let state = self.lock();
                let ended = state.ended_turns.iter().find(|(ended, ..)| ended == turn);
                ended.and_then(|(.., checkpoint)| checkpoint.clone())
            };
            match found {
                Some(checkpoint) => return checkpoint,
                None => saved.await,
            }
        }
    }

    /// Sends a request of the agent or its withdrawal. Returns false if it cannot be sent. After a cancelled prompt only
    /// updates are held back, because the agent may still release its terminals.
    pub(super) fn send_request(&self, line: &str) -> bool {
        let mut state = self.lock();
        match state.is_held_until(HoldUntil::NextTurn) {
            true => self.peer.outbox.try_push(&[line]).is_ok(),
            false => self.send(&mut state, line) == Delivery::Delivered,
        }
    }

    /// Forgets a question that the editor has answered or cannot answer.
    pub(super) fn question_answered(&self, question: &InterruptId) {
        self.lock().questions.remove(question);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code under this lock can leave the state half changed, so poisoning is ignored.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on_encoded(
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
                Some(line) => self.send(&mut state, &line),
                None => Delivery::Delivered,
            };
        }
        match event.update() {
            Some(update) => self.on_update(&mut state, update, event.params()),
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
        if kind == OPTIONS {
            state.options = message::member(update, "configOptions");
        }
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
            self.commands_reported.notify_waiters();
            if self.peer.wants_commands() {
                let commands = commands::announced_commands(state.commands.as_ref());
                let update = message::with_member(update, "availableCommands", commands);
                return self.send_unchanged(state, &update, params);
            }
        }
        self.send_unchanged(state, update, params)
    }

    /// Sends an update with the other parameters that came with it.
    fn send_unchanged(&self, state: &mut State, update: &str, params: Option<&str>) -> Delivery {
        match params {
            Some(params) => self.send(state, &self.update_line_with(params, update)),
            None => self.send_update(state, update),
        }
    }

    fn on_event(
        self: &Arc<Self>,
        state: &mut State,
        envelope: EventEnvelope,
        updates: &[EncodedEvent],
        sender: &mut Option<oneshot::Sender<Snapshot>>,
    ) -> Delivery {
        match envelope.event {
            Event::Snapshot {
                conversation,
                running,
                session,
                ..
            } => {
                let is_whole = running.as_ref().is_some_and(|running| !running.truncated);
                if std::mem::take(&mut state.is_load_snapshot)
                    && is_whole
                    && !conversation.interrupts.is_empty()
                {
                    // A question may come from a subagent's session that the replay announces.
                    for event in updates {
                        drop(self.line_of(state, event));
                    }
                }
                let asked = conversation.interrupts.iter().filter(|asked| !asked.orphaned);
                let asked: Vec<&Interrupt> = asked.collect();
                // Questions not in the snapshot were resolved while events were ignored.
                let mut delivery =
                    self.withdraw_questions(state, |id| !asked.iter().any(|asked| asked.id == *id));
                for interrupt in asked {
                    delivery = self.ask(state, conversation.id, interrupt);
                }
                let mut info = session.unwrap_or_default();
                info.config_options = info
                    .config_options
                    .map(|options| self.peer.capabilities().supported_options(options));
                state.accepted_prompts = 0;
                state.running_turn = running.as_ref().map(|running| (running.turn_id.clone(), false));
                state.drop_missed_continuations();
                state.options.clone_from(&info.config_options);
                state.title.clone_from(&conversation.title);
                if let Some(snapshot) = sender.take() {
                    // The caller may have been cancelled.
                    let _unwanted = snapshot.send(Snapshot {
                        conversation,
                        at: envelope.at,
                        running,
                        updates: updates.to_vec(),
                        info: *info,
                    });
                }
                delivery
            }
            // This event arrives before the turn's prompt.
            Event::Continued { turn_id } => {
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
                self.send_update(state, &update)
            }
            Event::PromptAccepted { turn_id, prompt } => {
                let delivery = self.end_hold_after_cancel(state);
                if delivery != Delivery::Delivered {
                    return delivery;
                }
                state.accepted_prompts += 1;
                let is_own = state.is_own_turn(&turn_id);
                state.running_turn = Some((turn_id, false));
                if std::mem::take(&mut state.awaits_edited_prompt) && !is_own {
                    let _taken = self.send_update(state, &self.note(EDITED_ELSEWHERE));
                }
                match is_own {
                    true => Delivery::Delivered,
                    // Another client sent the prompt, so the editor does not know it.
                    false => self.send_prompt(state, &prompt),
                }
            }
            Event::TurnEnded { turn } => {
                (state.running_turn, state.has_reported_loss) = (None, false);
                // An editor may never answer a request that it does not know.
                for request in self.fail_forwarded(|kind| kind == RequestKind::Extension) {
                    let delivery = self.send(state, &message::withdrawal(request));
                    if delivery != Delivery::Delivered {
                        return delivery;
                    }
                }
                state
                    .ended_turns
                    .push_back((turn.turn_id.clone(), Timestamp::now(), None));
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
            // The checkpoint arrives after the end of its turn, possibly even after the end of a later one.
            Event::CheckpointSaved { checkpoint } => {
                let later = |end: Timestamp| checkpoint.at.is_some_and(|at| at <= end);
                let of_last = state.ended_turns.len().saturating_sub(1);
                let index = state
                    .ended_turns
                    .iter()
                    .position(|(_, end, saved)| saved.is_none() && later(*end));
                if let Some((.., saved)) = state.ended_turns.get_mut(index.unwrap_or(of_last)) {
                    *saved = Some(checkpoint.id);
                    self.checkpoint_saved.notify_waiters();
                }
                Delivery::Delivered
            }
            Event::Resumed { resumed } => match message::loss_message(&resumed) {
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
            Event::Forked { .. } | Event::Undone { .. } if state.changes_history => Delivery::Delivered,
            Event::Forked { .. } => self.send_update(state, &self.note(REWOUND_ELSEWHERE)),
            Event::Undone { .. } => self.send_update(state, &self.note(UNDONE_ELSEWHERE)),
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

    /// Forwards a question of the agent to the editor. If the editor cannot show it, a message explains how to answer it.
    fn ask(self: &Arc<Self>, state: &mut State, conversation: ConversationId, asked: &Interrupt) -> Delivery {
        if state.questions.contains_key(&asked.id) {
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
                    return self.send_text_in(state, &text);
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
        let line = message::request(request, method, &params);
        match state.is_held_until(HoldUntil::NextTurn) {
            // The question must not stay hidden until the editor's next prompt.
            true => push_result(self.peer.outbox.try_push(&[&line])),
            false => self.send(state, &line),
        }
    }

    /// Notifies the editor that these questions no longer need an answer.
    fn withdraw_questions(&self, state: &mut State, matches: impl Fn(&InterruptId) -> bool) -> Delivery {
        let withdrawn: Vec<(InterruptId, u64)> = state.questions.extract_if(|id, _| matches(id)).collect();
        let mut delivery = Delivery::Delivered;
        for (_, request) in withdrawn {
            self.peer.take_pending(request);
            delivery = self.send(state, &message::withdrawal(request));
        }
        delivery
    }

    /// Forwards a notification of the agent. That the user is done at a URL is sent only to the editor that opened it.
    fn handle_notification(&self, method: &str, params: &str) {
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
        self.send_generated(&line);
    }

    /// Shows a prompt that the editor did not send.
    fn send_prompt(&self, state: &mut State, prompt: &PromptContent) -> Delivery {
        let mut delivery = Delivery::Delivered;
        for update in chunks_of(prompt) {
            delivery = self.send_update(state, &update);
        }
        delivery
    }

    fn send_text_in(&self, state: &mut State, text: &str) -> Delivery {
        self.send_update(state, &message::text_chunk(text))
    }

    fn send_update(&self, state: &mut State, update: &str) -> Delivery {
        match state.held {
            Some(_) => self.send(state, &self.update_line(update)),
            None => push_result(self.peer.outbox.try_push(&[&self.update_prefix, update, "}}"])),
        }
    }

    /// Sends what was held back after a cancelled prompt.
    fn end_hold_after_cancel(&self, state: &mut State) -> Delivery {
        let held = (state.held).take_if(|held| held.until == HoldUntil::NextTurn);
        let mut lines = held.iter().flat_map(HeldMessages::lines);
        let failed = lines.find_map(|line| self.peer.outbox.try_push(&[line]).err());
        push_result(failed.map_or(Ok(()), Err))
    }

    fn send(&self, state: &mut State, line: &str) -> Delivery {
        if let Some(held) = &mut state.held {
            if held.push(line) {
                return Delivery::Delivered;
            }
            if held.until != HoldUntil::NextTurn {
                return Delivery::QueueFull;
            }
        }
        match self.end_hold_after_cancel(state) {
            Delivery::Delivered => push_result(self.peer.outbox.try_push(&[line])),
            taken => taken,
        }
    }
}

impl State {
    /// The number of a new subscription.
    fn next_subscription(&mut self) -> u64 {
        self.last_subscription += 1;
        self.last_subscription
    }

    /// Whether messages are held back until this event.
    fn is_held_until(&self, until: HoldUntil) -> bool {
        self.held.as_ref().is_some_and(|held| held.until == until)
    }
}

/// A guard: while it exists, a change of the history is the editor's own.
pub(super) struct OwnHistoryChange<'a>(&'a Session);

impl Drop for OwnHistoryChange<'_> {
    fn drop(&mut self) {
        self.0.lock().changes_history = false;
    }
}

/// The beginning of an update.
const UPDATE: &str = r#"{"jsonrpc":"2.0","method":"session/update""#;

const COMMANDS: &str = "available_commands_update";
const OPTIONS: &str = "config_option_update";
const SESSION_INFO: &str = "session_info_update";

const EDITED_ELSEWHERE: &str = "Another client replaced an earlier prompt of this conversation; reopen the thread to see the change.\n\n";
const REWOUND_ELSEWHERE: &str = "Another client went back to an earlier turn of this conversation; reopen the thread to see the change.\n\n";
const RESET_ELSEWHERE: &str = "Another client reset this conversation: the next prompt starts a new chat; reopen the thread to see the change.\n\n";
const UNDONE_ELSEWHERE: &str =
    "Another client undid a change of this conversation; reopen the thread to see the change.\n\n";

/// Whether a message announces commands.
fn is_commands_update(line: &str) -> bool {
    let params = message::member(line, "params").filter(|_| line.contains(COMMANDS));
    let update = params.and_then(|params| message::member(params.get(), "update"));
    update.is_some_and(|update| message::kind_of(update.get()) == COMMANDS)
}

/// The updates that show a prompt.
pub(super) fn chunks_of(prompt: &PromptContent) -> impl Iterator<Item = String> {
    let blocks = prompt.as_blocks().iter();
    blocks.map(|block| message::chunk("user_message_chunk", block.get()))
}

fn push_result(pushed: Result<(), PushError>) -> Delivery {
    match pushed {
        Ok(()) => Delivery::Delivered,
        Err(PushError::Full) => Delivery::QueueFull,
        Err(PushError::Closed) => Delivery::Disconnected,
    }
}
