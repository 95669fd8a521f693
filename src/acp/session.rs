//! One session of an editor: forwards the events of its conversation as updates and questions.
//!
//! Owns when messages about the session may be sent: nothing before the answer that makes it known to the editor, and no
//! updates of the agent after a cancelled prompt's answer until the next request or turn. Its requests and questions, and the
//! daemon's own messages, do not wait for that. Events arrive in the conversation's order and are forwarded without waiting.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bridge_protocol::conversation::{Conversation, RunningTurn, SessionInfo};
use bridge_protocol::link::Resumed;
use bridge_protocol::raw::{PromptContent, RawJson};
use bridge_protocol::turn::CONTINUE_PROMPT;
use bridge_protocol::{AgentName, BridgeError, CheckpointId, ConversationId, ErrorKind, InterruptId, TurnId};
use indexmap::IndexSet;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::{Notify, oneshot};

use super::forwarding::ForwardedRequests;
use super::peer::Peer;
use super::{commands, message};
use crate::bridge::{Bridge, Delivery, EncodedEvent, Replay, TurnAbilities};
use crate::server::PushError;

mod events;
mod held_messages;
mod lines;
mod prompts;
mod subscriber;

use held_messages::{HeldMessages, HoldUntil};
use prompts::EditorPrompt;
pub(super) use prompts::has_turn;

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
    /// Notified when the held messages were sent or the session was closed.
    held_sent: Notify,
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
    /// The running turn, of any client, once its prompt was accepted.
    running_turn: Option<TurnId>,
    /// The prompt of the running turn. Kept after a turn that may be continued, because the continuation may send it again. `None`
    /// if the editor does not show it.
    shown_prompt: Option<PromptContent>,
    /// Whether the next accepted prompt is that of a continuation.
    is_continuation_next: bool,
    /// Whether the user was notified that updates of this turn are missing.
    has_reported_loss: bool,
    /// The commands, as the agent reported them.
    commands: Option<RawJson>,
    /// What can be done with earlier turns. Determines which commands of sessiond are announced.
    turn_abilities: TurnAbilities,
    /// The conversation's agent, once the first snapshot has arrived.
    agent: Option<AgentName>,
    /// The title, as the editor knows it.
    title: String,
    /// The newest turns that ended, with the checkpoints after them.
    ended_turns: VecDeque<(TurnId, Timestamp, Option<CheckpointId>)>,
    /// Whether another program has changed the transcript and the user was not notified yet.
    has_foreign_turns: bool,
    /// How many commands of the editor are changing the history.
    history_changes: usize,
    /// Whether the history was edited and the new prompt has not arrived yet.
    awaits_edited_prompt: bool,
    /// The questions that the editor was asked, with the ids of the requests.
    questions: HashMap<InterruptId, u64>,
    /// The open questions that the editor cannot show, with the lines that reported them.
    reported_questions: HashMap<InterruptId, String>,
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
    /// When the running turn began or, before its prompt is accepted, was sent. Without a turn, the time of the snapshot.
    pub(super) newest_since: Timestamp,
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
            held_sent: Notify::new(),
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
        let turn_abilities = bridge.turn_abilities(id).inspect_err(|_| self.detach())?;
        {
            let mut state = self.lock();
            state.turn_abilities = turn_abilities;
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

    /// If the session is open, ignores events until it is attached again, because the history will contain them and the held
    /// ones. `earlier`: the turns of the prompts that the editor sent before the load. Returns the held updates, in case the
    /// history cannot be shown.
    pub(super) fn begin_load(&self, earlier: &[TurnId]) -> Vec<Arc<str>> {
        let mut state = self.lock();
        state.forget_prompts(earlier);
        state.shown_prompt = None;
        state.is_load_snapshot = true;
        if state.conversation.is_some() {
            // The editor may have forgotten them.
            state.subagents.clear();
            state.load_subscription = state.load_subscription.or(Some(state.subscription));
            state.subscription = state.next_subscription();
            self.hold(&mut state);
        }
        let held = state.held.as_mut();
        let is_shown = |line: &str| line.starts_with(UPDATE) && !is_commands_update(line);
        let mut held = held.map_or_else(Vec::new, |held| held.remove(is_shown));
        // The next snapshot reports them again.
        let reported: Vec<String> = state.reported_questions.drain().map(|(_, line)| line).collect();
        held.retain(|line| !reported.iter().any(|reported| **reported == **line));
        held
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
        self.held_sent.notify_waiters();
    }

    /// The agent's commands, if they are known.
    pub(super) fn agent_commands(&self) -> Option<RawJson> {
        self.lock().commands.clone()
    }

    /// How many prompts were accepted since the snapshot, and whether the turn of an accepted prompt runs.
    pub(super) fn accepted_prompts(&self) -> (usize, bool) {
        let state = self.lock();
        (state.accepted_prompts, state.running_turn.is_some())
    }

    /// Whether a turn runs, or has run since the snapshot.
    pub(super) fn has_seen_turn(&self) -> bool {
        let state = self.lock();
        state.running_turn.is_some() || state.accepted_prompts > 0
    }

    /// Stores the commands of a snapshot, unless newer ones were reported. The first held message announces all commands, and no
    /// other does.
    pub(super) fn hold_commands(&self, commands: Option<RawJson>) {
        let mut state = self.lock();
        state.commands = state.commands.take().or(commands);
        let line = self.update_line(&self.announcement(&state));
        if let Some(held) = &mut state.held {
            held.remove(is_commands_update);
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

    /// Sends a history as the agent has replayed it.
    pub(super) async fn replay_agents(&self, mut replayed: Replay) {
        if !replayed.is_whole() {
            let text =
                "A part of the history is missing here: it is too long, or the agent sent it too fast.\n\n";
            self.replay(&self.note(text)).await;
        }
        while let Some(update) = replayed.next_update() {
            self.replay_event(&update).await;
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
            let text = "\n\nUpdates are missing here: the agent sent them faster than they could be shown, or they were too long or \
                        too deeply nested.\n\n";
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

    /// The sessiond command that a prompt of the editor may consist of. `None` if no commands are announced.
    pub(super) fn announced_command(&self, name: &str) -> Option<String> {
        self.command_in(&self.lock(), name)
    }

    fn command_in(&self, state: &State, name: &str) -> Option<String> {
        let announced = || commands::announced_name(name, state.commands.as_ref());
        self.peer.wants_commands().then(|| format!("/{}", announced()))
    }

    /// A message about what was lost when the session was reopened. `None` if nothing was lost.
    pub(super) fn loss_message(&self, resumed: &Resumed) -> Option<String> {
        self.loss_message_in(&self.lock(), resumed)
    }

    fn loss_message_in(&self, state: &State, resumed: &Resumed) -> Option<String> {
        let in_editor = self.command_in(state, "undo");
        let in_shell = || state.conversation.map(|id| format!("sessionctl undo {id}"));
        message::loss_message(resumed, in_editor.or_else(in_shell).as_deref())
    }

    /// Marks the history as being changed by a command of the editor, until the guard is dropped.
    pub(super) fn change_history(&self) -> OwnHistoryChange<'_> {
        self.lock().history_changes += 1;
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

    /// Sends a request of the agent or its withdrawal. Returns false if it cannot be sent.
    pub(super) fn send_request(&self, line: &str) -> bool {
        self.send(&mut self.lock(), line) == Delivery::Delivered
    }

    /// Forgets all questions, because no agent waits for the answers. Returns the requests that the editor has not answered.
    pub(super) fn forget_questions(&self) -> Vec<u64> {
        let questions = std::mem::take(&mut self.lock().questions);
        let requests = questions.into_values();
        requests
            .filter(|request| self.peer.take_pending(*request).is_some())
            .collect()
    }

    /// Forgets a question that the editor has answered or cannot answer.
    pub(super) fn question_answered(&self, question: &InterruptId) {
        self.lock().questions.remove(question);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code under this lock can leave the state half changed, so poisoning is ignored.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Sends a message that does not wait for the next turn. A question must not stay hidden until the editor's next prompt, and
    /// the agent may still release its terminals.
    fn send(&self, state: &mut State, line: &str) -> Delivery {
        let held = state.held.as_mut();
        let held = held.filter(|held| held.until != HoldUntil::NextTurn);
        match held.map(|held| held.push(line)) {
            Some(true) => Delivery::Delivered,
            Some(false) => Delivery::QueueFull,
            None => push_result(self.peer.outbox.try_push(&[line])),
        }
    }

    /// Sends an update or a notification of the agent, which after a cancelled prompt waits for the next turn.
    fn send_from_agent(&self, state: &mut State, line: &str) -> Delivery {
        let held = state.held.as_mut();
        if held.is_some_and(|held| held.until == HoldUntil::NextTurn && held.push(line)) {
            return Delivery::Delivered;
        }
        match self.end_hold_after_cancel(state) {
            Delivery::Delivered => self.send(state, line),
            failed => failed,
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
        let changes = &mut self.0.lock().history_changes;
        // Closing the session has reset the count.
        *changes = changes.saturating_sub(1);
    }
}

/// The beginning of an update.
const UPDATE: &str = r#"{"jsonrpc":"2.0","method":"session/update""#;

const COMMANDS: &str = "available_commands_update";
const OPTIONS: &str = "config_option_update";
const USER_MESSAGE: &str = "user_message_chunk";
const SESSION_INFO: &str = "session_info_update";

/// Whether a message announces commands.
fn is_commands_update(line: &str) -> bool {
    let params = message::member(line, "params").filter(|_| line.contains(COMMANDS));
    let update = params.and_then(|params| message::member(params.get(), "update"));
    update.is_some_and(|update| message::kind_of(update.get()) == COMMANDS)
}

/// The updates that show a prompt. The daemon's request to continue a turn is not shown, as in a history.
pub(super) fn chunks_of(prompt: &PromptContent) -> impl Iterator<Item = String> {
    let is_shown = *prompt != PromptContent::text(CONTINUE_PROMPT);
    let blocks = prompt.as_blocks().iter().filter(move |_| is_shown);
    blocks.map(|block| message::chunk(USER_MESSAGE, block.get()))
}

fn push_result(pushed: Result<(), PushError>) -> Delivery {
    match pushed {
        Ok(()) => Delivery::Delivered,
        Err(PushError::Full) => Delivery::QueueFull,
        Err(PushError::Closed) => Delivery::Disconnected,
    }
}
