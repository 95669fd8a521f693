//! One session of an editor: passes the events of its conversation on as updates and questions.
//!
//! Owns what may be sent about the session and when: nothing before the answer that makes it known to the editor, and nothing
//! after a cancelled prompt's answer until the next request. Events come in the conversation's own order and are passed on
//! without waiting.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bridge_protocol::conversation::{Conversation, RunningTurn, SessionInfo};
use bridge_protocol::event::{Event, EventEnvelope};
use bridge_protocol::raw::{PromptContent, RawJson};
use bridge_protocol::turn::{Interrupt, InterruptKind, StopReason};
use bridge_protocol::{BridgeError, CheckpointId, ConversationId, ErrorKind, InterruptId, TurnId};
use indexmap::IndexSet;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::{Notify, oneshot};

use super::forwarding::Forwarding;
use super::peer::{Asked, Open, Peer};
use super::{commands, message};
use crate::agent::message::{RequestKind, method};
use crate::bridge::{Bridge, Encoded, Taken};
use crate::server::PushError;

mod held;
mod lines;
mod prompts;
mod subscriber;

use held::{Held, Until};
use prompts::OwnPrompt;

/// How many URLs that the editor was asked to open are remembered.
const OPEN_URLS: usize = 64;

/// The newest turns whose checkpoints are looked for.
const ENDED_TURNS: usize = 8;

/// A session of an editor.
pub(super) struct Session {
    /// Its id, as the editor wrote it.
    pub(super) name: String,
    /// Held while a request about the session must not be overtaken. Those who wait get it in the order of arrival.
    pub(super) order: Arc<tokio::sync::Mutex<()>>,
    /// Notified when the agent has reported its commands.
    pub(super) commands_reported: Notify,
    /// Notified when a turn has its checkpoint.
    checkpoint_saved: Notify,
    /// Notified when prompts were cancelled or the session was closed.
    prompts_cancelled: Notify,
    /// The beginning of each update, encoded once.
    head: String,
    pub(super) peer: Arc<Peer>,
    pub(super) forwarding: Forwarding,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    conversation: Option<ConversationId>,
    /// With what the editor opened it last, beside what the protocol names.
    params: Option<RawJson>,
    /// The number of the subscription that counts; none before the first. Events of earlier ones are ignored. A later one counts
    /// from its first event on.
    subscription: u64,
    /// During a load of an open session: the number of the earlier subscription, which takes what the agent asks of the editor until
    /// the next one begins. Its events are ignored.
    asked_by: Option<u64>,
    /// Whether the next snapshot is that of a load.
    replays: bool,
    /// The number of the newest subscription.
    last_subscription: u64,
    /// What waits until it may be sent; none while everything is sent at once.
    held: Option<Held>,
    /// The editor's prompts that are not answered, in the order of arrival.
    prompts: Vec<OwnPrompt>,
    /// How many prompts were accepted since the snapshot.
    accepted: usize,
    /// The running turn, of any client, and whether the editor has cancelled it.
    running: Option<(TurnId, bool)>,
    /// Whether the user was told that updates of this turn are missing.
    is_lossy: bool,
    /// The commands, as the agent reported them.
    commands: Option<RawJson>,
    /// The options, as the agent reported them.
    options: Option<RawJson>,
    /// The newest turns that ended, with the checkpoints after them.
    ended: VecDeque<(TurnId, Timestamp, Option<CheckpointId>)>,
    /// Whether a command of the editor changes the history at the moment.
    changes_history: bool,
    /// Whether the history was edited, and the new prompt did not come yet.
    was_edited: bool,
    /// The questions that the editor was asked, with the ids of the requests.
    questions: HashMap<InterruptId, u64>,
    /// The sessions of subagents that the editor knows.
    subagents: IndexSet<String>,
    /// The agent's own id of the session, once it has announced one of those.
    id_of_agent: String,
    /// The ids of the URLs that the editor was asked to open, the newest last.
    urls: VecDeque<String>,
}

/// The conversation when a subscription began.
pub(super) struct Snapshot {
    pub(super) conversation: Conversation,
    /// When it was taken.
    pub(super) at: Timestamp,
    pub(super) running: Option<RunningTurn>,
    /// The updates of the running turn, as they came.
    pub(super) updates: Vec<Encoded>,
    pub(super) info: SessionInfo,
}

impl Session {
    pub(super) fn new(name: &str, peer: Arc<Peer>) -> Arc<Self> {
        let quoted = Value::from(name);
        Arc::new(Self {
            name: name.to_owned(),
            order: Arc::default(),
            commands_reported: Notify::new(),
            checkpoint_saved: Notify::new(),
            prompts_cancelled: Notify::new(),
            head: format!(
                r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":{quoted},"update":"#
            ),
            peer,
            forwarding: Forwarding::default(),
            state: Mutex::default(),
        })
    }

    /// Notes with what the editor opens it, beside what the protocol names.
    pub(super) fn opens_with(&self, params: Option<RawJson>) {
        self.lock().params = params;
    }

    /// With what the editor opened it last.
    pub(super) fn params(&self) -> Option<RawJson> {
        self.lock().params.clone()
    }

    /// Its conversation, while the editor has it open.
    pub(super) fn conversation(&self) -> Option<ConversationId> {
        self.lock().conversation
    }

    /// Subscribes to the conversation and gives its snapshot. Everything is held back from now on.
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

    /// Holds everything back until the answer that makes the session known.
    fn hold(&self, state: &mut State) {
        let until = Until::Answer;
        let held = state.held.get_or_insert_with(|| Held::new(until, &self.peer));
        held.until = until;
    }

    /// Takes no more events until the session is attached, if it is open: what was held back and what happens meanwhile will be in
    /// the history. Gives the updates that were held back, for a history that cannot be shown.
    pub(super) fn begin_load(&self) -> Vec<Arc<str>> {
        let mut state = self.lock();
        state.replays = true;
        if state.conversation.is_some() {
            // The editor may have forgotten them.
            state.subagents.clear();
            state.asked_by = state.asked_by.or(Some(state.subscription));
            state.subscription = state.next_subscription();
            self.hold(&mut state);
        }
        let held = state.held.as_mut();
        held.map_or_else(Vec::new, |held| held.remove(|line| line.starts_with(UPDATE)))
    }

    /// Detaches, if it was being opened: what opened it failed or was cancelled.
    pub(super) fn abort_opening(&self) {
        let mut state = self.lock();
        if state.holds_until(Until::Answer) {
            self.forget(&mut state);
        }
    }

    /// Forgets the conversation: nothing more is sent about it.
    pub(super) fn detach(&self) {
        self.forget(&mut self.lock());
    }

    fn forget(&self, state: &mut State) {
        let State { questions, held, .. } = state;
        let questions = questions.drain().map(|(_, request)| request);
        let open = questions.filter(|request| self.peer.settle(*request).is_some());
        for request in open.chain(self.forget_forwarded()) {
            if !held.as_ref().is_some_and(|held| held.has_unsent(request)) {
                // An editor that takes nothing has left.
                let _sent = self.peer.outbox.try_push(&[&message::withdrawal(request)]);
            }
        }
        let subscription = state.next_subscription();
        *state = State {
            subscription,
            last_subscription: subscription,
            prompts: std::mem::take(&mut state.prompts),
            params: state.params.take(),
            ..State::default()
        };
        self.prompts_cancelled.notify_waiters();
    }

    /// Whether the agent has reported its commands since the session was attached.
    pub(super) fn commands(&self) -> Option<RawJson> {
        self.lock().commands.clone()
    }

    /// How many prompts were accepted since the snapshot.
    pub(super) fn accepted(&self) -> usize {
        self.lock().accepted
    }

    /// The options, as the agent last reported them.
    pub(super) fn options(&self) -> Option<RawJson> {
        self.lock().options.clone()
    }

    /// Notes the commands of a snapshot, unless newer ones were reported. All are announced as the first of what is held back.
    pub(super) fn hold_commands(&self, commands: Option<RawJson>) {
        let mut state = self.lock();
        state.commands = state.commands.take().or(commands);
        let line = self.line(&self.announcement(&state));
        if let Some(held) = &mut state.held {
            held.push_first(&line);
        }
    }

    /// Announces the commands before everything that is held back.
    pub(super) async fn replay_commands(&self) {
        let update = {
            let mut state = self.lock();
            if let Some(held) = &mut state.held {
                held.remove(is_of_commands);
            }
            self.announcement(&state)
        };
        self.replay_as_it_is(&update).await;
    }

    /// The command of ours that a prompt is, and what follows its name.
    pub(super) fn command_in(&self, prompt: &PromptContent) -> Option<(&'static str, String)> {
        let wanted = self.peer.wants_commands();
        let state = self.lock();
        commands::command_in(prompt, state.commands.as_ref()).filter(|_| wanted)
    }

    /// Sends an update that the editor takes before everything that is held back, waiting for room. The commands are announced once.
    pub(super) async fn replay(&self, update: &str) {
        let kind = message::kind_of(update);
        let shown = self.shown(&mut self.lock(), &kind, update, None);
        if let Some(shown) = shown.filter(|_| kind != COMMANDS) {
            self.replay_as_it_is(&shown).await;
        }
    }

    /// The same for an update of the running turn.
    pub(super) async fn replay_event(&self, event: &Encoded) {
        let line = self.line_of(&mut self.lock(), event);
        if let Some(line) = line {
            self.replay_line(&line).await;
        }
    }

    /// Sends a message again that was held back.
    pub(super) async fn replay_line(&self, line: &str) {
        let _gone = self.peer.outbox.push_leaving_room(&[line]).await;
    }

    async fn replay_as_it_is(&self, update: &str) {
        // An editor that is gone needs no history.
        let update = [&self.head, update, "}}"];
        let _gone = self.peer.outbox.push_leaving_room(&update).await;
    }

    /// Sends a text to the user as a message of the agent.
    pub(super) fn send_text(&self, words: &str) {
        self.send_own(&self.line(&message::text_chunk(words)));
    }

    /// Says that the agent was faster than its conversation, once in a turn.
    fn updates_are_missing(&self) {
        let mut state = self.lock();
        if !std::mem::replace(&mut state.is_lossy, true) {
            let words =
                "\n\nUpdates are missing here: the agent sent them faster than they could be shown.\n\n";
            drop(state);
            self.send_note(words);
        }
    }

    /// Sends a message of our own. An editor that reads too slowly for it is disconnected: what it lacks would not be noticed.
    pub(super) fn send_own(&self, line: &str) {
        if self.send(&mut self.lock(), line) == Taken::Full {
            self.peer.outbox.abandon();
        }
    }

    /// Tells the user something about the conversation.
    pub(super) fn send_note(&self, words: &str) {
        self.send_own(&self.line(&self.note(words)));
    }

    /// The name under which a command of ours was announced to the editor; none if none are announced.
    pub(super) fn command_named(&self, name: &str) -> Option<String> {
        let wanted = self.peer.wants_commands();
        let state = self.lock();
        wanted.then(|| commands::announced_name(name, state.commands.as_ref()))
    }

    /// Notes that a command of the editor changes the history, until the guard is dropped.
    pub(super) fn change_history(&self) -> OwnChange<'_> {
        self.lock().changes_history = true;
        OwnChange(self)
    }

    /// Waits for the checkpoint after a turn that has ended.
    pub(super) async fn checkpoint_after(&self, turn: &TurnId) -> CheckpointId {
        loop {
            let saved = self.checkpoint_saved.notified();
            let found = {
                let state = self.lock();
                let ended = state.ended.iter().find(|(ended, ..)| ended == turn);
                ended.and_then(|(.., checkpoint)| checkpoint.clone())
            };
            match found {
                Some(checkpoint) => return checkpoint,
                None => saved.await,
            }
        }
    }

    /// Sends a request of the agent or its withdrawal; false if the editor does not take it. After a cancelled prompt only updates
    /// are held back: the agent may release its terminals.
    pub(super) fn send_request(&self, line: &str) -> bool {
        let mut state = self.lock();
        match state.holds_until(Until::NextTurn) {
            true => self.peer.outbox.try_push(&[line]).is_ok(),
            false => self.send(&mut state, line) == Taken::Yes,
        }
    }

    /// The editor has answered this question, or cannot.
    pub(super) fn answered(&self, question: &InterruptId) {
        self.lock().questions.remove(question);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that runs under the lock can leave it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on_encoded(
        self: &Arc<Self>,
        number: u64,
        event: &Encoded,
        awaited: &mut Option<oneshot::Sender<Snapshot>>,
    ) -> Taken {
        let mut state = self.lock();
        if state.asked_by == Some(number) {
            return Taken::Yes;
        }
        if number > state.subscription {
            (state.subscription, state.asked_by) = (number, None);
        }
        if state.subscription != number || self.peer.outbox.is_closed() {
            return Taken::Gone;
        }
        if let Some(params) = event.of_subagent() {
            return match self.line_of_subagent(&mut state, params) {
                Some(line) => self.send(&mut state, &line),
                None => Taken::Yes,
            };
        }
        match event.update() {
            Some(update) => self.on_update(&mut state, update, event.params()),
            None => match serde_json::from_str::<EventEnvelope>(&event.text) {
                Ok(envelope) => self.on_event(&mut state, envelope, event.updates(), awaited),
                Err(error) => {
                    tracing::error!(%error, "an event of the daemon cannot be read");
                    match awaited {
                        Some(_) => Taken::Gone,
                        None => Taken::Yes,
                    }
                }
            },
        }
    }

    fn on_update(&self, state: &mut State, update: &str, params: Option<&str>) -> Taken {
        let kind = message::kind_of(update);
        let Some(update) = self.shown(state, &kind, update, params) else {
            return Taken::Yes;
        };
        let update = &*update;
        if kind == OPTIONS {
            state.options = message::member(update, "configOptions");
        }
        if kind == COMMANDS {
            let commands = message::member(update, "availableCommands");
            // Reported again with each reopening; the editor has them, and expects none after a load.
            if state.commands == commands {
                return Taken::Yes;
            }
            state.commands = commands;
            self.commands_reported.notify_waiters();
            if self.peer.wants_commands() {
                let commands = commands::announced(state.commands.as_ref());
                let update = message::with_member(update, "availableCommands", commands);
                return self.send_as_it_came(state, &update, params);
            }
        }
        self.send_as_it_came(state, update, params)
    }

    /// Sends an update with what came beside it.
    fn send_as_it_came(&self, state: &mut State, update: &str, params: Option<&str>) -> Taken {
        match params {
            Some(params) => self.send(state, &self.line_with(params, update)),
            None => self.send_update(state, update),
        }
    }

    fn on_event(
        self: &Arc<Self>,
        state: &mut State,
        envelope: EventEnvelope,
        updates: &[Encoded],
        awaited: &mut Option<oneshot::Sender<Snapshot>>,
    ) -> Taken {
        match envelope.event {
            Event::Snapshot {
                conversation,
                running,
                session,
                ..
            } => {
                let is_whole = running.as_ref().is_some_and(|running| !running.truncated);
                if std::mem::take(&mut state.replays) && is_whole && !conversation.interrupts.is_empty() {
                    // A question may come from a subagent's session that the replay announces.
                    for event in updates {
                        drop(self.line_of(state, event));
                    }
                }
                let asked = conversation.interrupts.iter().filter(|asked| !asked.orphaned);
                let asked: Vec<&Interrupt> = asked.collect();
                // What resolved the others came while no events were taken.
                let mut taken =
                    self.withdraw_questions(state, |id| !asked.iter().any(|asked| asked.id == *id));
                for interrupt in asked {
                    taken = self.ask(state, conversation.id, interrupt);
                }
                let mut info = session.unwrap_or_default();
                info.config_options = info
                    .config_options
                    .map(|options| self.peer.client().shown_options(options));
                state.accepted = 0;
                state.running = running.as_ref().map(|running| (running.turn_id.clone(), false));
                state.continuation_missed();
                state.options.clone_from(&info.config_options);
                if let Some(snapshot) = awaited.take() {
                    // The caller may have been cancelled.
                    let _unwanted = snapshot.send(Snapshot {
                        conversation,
                        at: envelope.at,
                        running,
                        updates: updates.to_vec(),
                        info: *info,
                    });
                }
                taken
            }
            // It comes before the turn's prompt.
            Event::Continued { turn_id } => {
                let mut awaited = state
                    .prompts
                    .iter_mut()
                    .filter_map(|own| own.continuation.as_mut());
                if let Some(awaited) = awaited.find(|awaited| awaited.turn.is_none()) {
                    awaited.turn = Some(turn_id);
                }
                Taken::Yes
            }
            Event::Updated { conversation } => {
                state.continuation_changed(&conversation);
                Taken::Yes
            }
            Event::PromptAccepted { turn_id, prompt } => {
                let taken = self.end_hold_after_cancel(state);
                if taken != Taken::Yes {
                    return taken;
                }
                state.accepted += 1;
                let is_own = state.is_own(&turn_id);
                state.running = Some((turn_id, false));
                if std::mem::take(&mut state.was_edited) && !is_own {
                    let _taken = self.send_update(state, &self.note(EDITED_ELSEWHERE));
                }
                match is_own {
                    true => Taken::Yes,
                    // Another client's: the editor does not know it.
                    false => self.send_prompt(state, &prompt),
                }
            }
            Event::TurnEnded { turn } => {
                (state.running, state.is_lossy) = (None, false);
                // An editor may never answer what it does not know.
                for request in self.settle_forwarded(|kind| kind == RequestKind::Unnamed) {
                    let taken = self.send(state, &message::withdrawal(request));
                    if taken != Taken::Yes {
                        return taken;
                    }
                }
                state
                    .ended
                    .push_back((turn.turn_id.clone(), Timestamp::now(), None));
                if state.ended.len() > ENDED_TURNS {
                    state.ended.pop_front();
                }
                if state.is_own(&turn.turn_id)
                    && turn.stop_reason == StopReason::Cancelled
                    && state.held.is_none()
                {
                    state.held = Some(Held::new(Until::NextTurn, &self.peer));
                }
                let mut own = state.prompts.iter_mut();
                if let Some(own) = own.find(|own| *own.turn() == turn.turn_id)
                    && let Some(awaited) = own.continuation.take()
                {
                    // The command may have been cancelled.
                    let _unwanted = awaited.ended.send(turn);
                }
                Taken::Yes
            }
            // It comes after the end of its turn, which may be that of a later one, too.
            Event::CheckpointSaved { checkpoint } => {
                let later = |end: Timestamp| checkpoint.at.is_some_and(|at| at <= end);
                let of_last = state.ended.len().saturating_sub(1);
                let its = state
                    .ended
                    .iter()
                    .position(|(_, end, saved)| saved.is_none() && later(*end));
                if let Some((.., saved)) = state.ended.get_mut(its.unwrap_or(of_last)) {
                    *saved = Some(checkpoint.id);
                    self.checkpoint_saved.notify_waiters();
                }
                Taken::Yes
            }
            Event::Resumed { resumed } => match message::loss_message(&resumed) {
                Some(words) => self.send_update(state, &self.note(&words)),
                None => Taken::Yes,
            },
            Event::Edited { .. } => {
                state.was_edited = true;
                Taken::Yes
            }
            Event::Forked { conversation_id, .. } if Some(conversation_id) != state.conversation => {
                Taken::Yes
            }
            Event::Forked { .. } | Event::Undone { .. } if state.changes_history => Taken::Yes,
            Event::Forked { .. } => self.send_update(state, &self.note(REWOUND_ELSEWHERE)),
            Event::Undone { .. } => self.send_update(state, &self.note(UNDONE_ELSEWHERE)),
            Event::Reset {} => self.send_update(state, &self.note(RESET_ELSEWHERE)),
            Event::InterruptRaised { interrupt } => match state.conversation {
                Some(id) => self.ask(state, id, &interrupt),
                None => Taken::Yes,
            },
            Event::InterruptResolved { interrupt_id, .. } => {
                self.withdraw_questions(state, |id| *id == interrupt_id)
            }
            Event::Deleted {} => {
                self.forget(state);
                Taken::Gone
            }
            _ => Taken::Yes,
        }
    }

    /// Passes a question of the agent to the editor. If the editor cannot show it, a message says how to answer it.
    fn ask(self: &Arc<Self>, state: &mut State, conversation: ConversationId, asked: &Interrupt) -> Taken {
        if state.questions.contains_key(&asked.id) {
            return Taken::Yes;
        }
        let method = match asked.kind {
            InterruptKind::Permission => "session/request_permission",
            _ => {
                let mode = message::text_of(asked.request.get(), "mode").unwrap_or_else(|| "form".to_owned());
                if !self.peer.client().asks(&mode) {
                    let question = message::question_of(asked.request.get());
                    let words = format!(
                        "The agent asks: {question}\n\nThis editor cannot show the question. To answer it, run in a terminal: \
                         sessionctl answer {conversation}"
                    );
                    return self.send_text_in(state, &words);
                }
                // The agent reports when the user is done at the URL, long after the answer.
                state
                    .urls
                    .extend(message::text_of(asked.request.get(), "elicitationId"));
                if state.urls.len() > OPEN_URLS {
                    state.urls.pop_front();
                }
                "elicitation/create"
            }
        };
        let question = Asked::new(Arc::downgrade(self), conversation, asked);
        let Some(request) = self.peer.open(Open::Question(question)) else {
            return Taken::Yes;
        };
        state.questions.insert(asked.id.clone(), request);
        let params = self.for_editor(state, asked.request.get());
        let line = message::request(request, method, &params);
        match state.holds_until(Until::NextTurn) {
            // It must not wait unseen for the editor's next prompt.
            true => taken(self.peer.outbox.try_push(&[&line])),
            false => self.send(state, &line),
        }
    }

    /// Tells the editor that these questions need no answer any more.
    fn withdraw_questions(&self, state: &mut State, is_meant: impl Fn(&InterruptId) -> bool) -> Taken {
        let meant: Vec<(InterruptId, u64)> = state.questions.extract_if(|id, _| is_meant(id)).collect();
        let mut taken = Taken::Yes;
        for (_, request) in meant {
            self.peer.settle(request);
            taken = self.send(state, &message::withdrawal(request));
        }
        taken
    }

    /// Passes a notification of the agent on. That the user is done at a URL concerns only the editor that was asked to open it.
    fn notified(&self, method: &str, params: &str) {
        let line = if method == method::ELICITATION_COMPLETE {
            let id = message::text_of(params, "elicitationId");
            let urls = &mut self.lock().urls;
            let known = id.and_then(|id| urls.iter().position(|known| *known == id));
            let Some(index) = known else { return };
            urls.remove(index);
            message::notification(method, params)
        } else {
            message::notification(method, &self.for_editor(&self.lock(), params))
        };
        self.send_own(&line);
    }

    /// Shows a prompt that the editor did not send.
    fn send_prompt(&self, state: &mut State, prompt: &PromptContent) -> Taken {
        let mut taken = Taken::Yes;
        for update in chunks_of(prompt) {
            taken = self.send_update(state, &update);
        }
        taken
    }

    fn send_text_in(&self, state: &mut State, words: &str) -> Taken {
        self.send_update(state, &message::text_chunk(words))
    }

    fn send_update(&self, state: &mut State, update: &str) -> Taken {
        match state.held {
            Some(_) => self.send(state, &self.line(update)),
            None => taken(self.peer.outbox.try_push(&[&self.head, update, "}}"])),
        }
    }

    /// Sends what was held back after a cancelled prompt.
    fn end_hold_after_cancel(&self, state: &mut State) -> Taken {
        let held = (state.held).take_if(|held| held.until == Until::NextTurn);
        let mut lines = held.iter().flat_map(Held::lines);
        let failed = lines.find_map(|line| self.peer.outbox.try_push(&[line]).err());
        taken(failed.map_or(Ok(()), Err))
    }

    fn send(&self, state: &mut State, line: &str) -> Taken {
        if let Some(held) = &mut state.held {
            if held.push(line) {
                return Taken::Yes;
            }
            if held.until != Until::NextTurn {
                return Taken::Full;
            }
        }
        match self.end_hold_after_cancel(state) {
            Taken::Yes => taken(self.peer.outbox.try_push(&[line])),
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

    /// Whether messages are held back, until then.
    fn holds_until(&self, until: Until) -> bool {
        self.held.as_ref().is_some_and(|held| held.until == until)
    }
}

/// While it is held, a change of the history is the editor's own.
pub(super) struct OwnChange<'a>(&'a Session);

impl Drop for OwnChange<'_> {
    fn drop(&mut self) {
        self.0.lock().changes_history = false;
    }
}

/// How an update begins.
const UPDATE: &str = r#"{"jsonrpc":"2.0","method":"session/update""#;

const COMMANDS: &str = "available_commands_update";
const OPTIONS: &str = "config_option_update";

const EDITED_ELSEWHERE: &str =
    "Another client replaced an earlier prompt of this conversation; reopen the thread to see it so.\n\n";
const REWOUND_ELSEWHERE: &str =
    "Another client went back to an earlier turn of this conversation; reopen the thread to see it so.\n\n";
const RESET_ELSEWHERE: &str = "Another client reset this conversation: the next prompt starts a new chat; reopen the thread to see it so.\n\n";
const UNDONE_ELSEWHERE: &str =
    "Another client undid a change of this conversation; reopen the thread to see it so.\n\n";

/// Whether a message announces commands.
fn is_of_commands(line: &str) -> bool {
    let params = message::member(line, "params").filter(|_| line.contains(COMMANDS));
    let update = params.and_then(|params| message::member(params.get(), "update"));
    update.is_some_and(|update| message::kind_of(update.get()) == COMMANDS)
}

/// A prompt as the updates that show it.
pub(super) fn chunks_of(prompt: &PromptContent) -> impl Iterator<Item = String> {
    let blocks = prompt.as_blocks().iter();
    blocks.map(|block| message::chunk("user_message_chunk", block.get()))
}

fn taken(pushed: Result<(), PushError>) -> Taken {
    match pushed {
        Ok(()) => Taken::Yes,
        Err(PushError::Full) => Taken::Full,
        Err(PushError::Closed) => Taken::Gone,
    }
}
