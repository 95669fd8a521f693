//! Sessions: new, load, resume, fork, list, close and delete.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bridge_protocol::conversation::{Conversation, Settings};
use bridge_protocol::history::{GapKind, HistoryForm, HistoryPage, HistoryUpdate};
use bridge_protocol::link::{Resumed, Via};
use bridge_protocol::method::{
    Cancel, Delete, Fork, GetConversation, History, ListConversations, ListTranscripts, NewConversation,
    Resume,
};
use bridge_protocol::raw::RawJson;
use bridge_protocol::transcript::Transcript;
use bridge_protocol::{
    AgentName, BridgeError, CheckpointId, ConversationId, ConversationRef, Cursor, ErrorKind, time,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::OwnedMutexGuard;

use super::editor::{Answered, Connection, is_deleted};
use super::fork_point::ForkPoint;
use super::message::{self, Failure, Reply};
use super::prompting::submit_in_order;
use super::session::{Session, Snapshot, chunks_of, has_turn};
use crate::agent::members::Members;
use crate::bridge::{ClientSwitchReason, EncodedEvent, Replay};

/// How long the answer to a load waits for the agent's commands. Agents report them right after they open the session, and a
/// load replays everything before its answer.
const COMMANDS_WAIT_LIMIT: Duration = Duration::from_secs(2);

/// How long a load waits for the newest turn. Agents write it up to 100 ms after its end.
const NEWEST_TURN_WAIT_LIMIT: Duration = Duration::from_secs(1);
const NEWEST_TURN_PAUSE: Duration = Duration::from_millis(50);

/// The update that ends the replay of a load, for JetBrains' clients that request it.
const REPLAY_END: &str = r#"{"sessionUpdate":"session_info_update","_meta":{"jetbrains":{"air":{"version":1,"loadReplayEnd":true}}}}"#;

/// The message that the settings of an open request apply only at the next opening.
const SETTINGS_DEFERRED_TEXT: &str = "The session is open in its agent with other MCP servers or folders than this editor asks for. \
                             Those of the editor apply when the agent next opens it.\n\n";

/// The message in place of the older updates of a running turn.
const UPDATES_OMITTED_TEXT: &str =
    "\n\nEarlier updates of this turn are missing here. Reopen the thread after the turn.\n\n";

/// The number of messages on one page of a replayed history.
pub(super) const HISTORY_PAGE: u32 = 1_000;

/// The parameters of new, load, resume and fork.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OpenParams {
    cwd: String,
    #[serde(default)]
    mcp_servers: Option<Vec<RawJson>>,
    #[serde(default)]
    additional_directories: Option<Vec<String>>,
    #[serde(default, rename = "_meta")]
    meta: Value,
    /// The parameters that only the agent uses.
    #[serde(skip)]
    other: Option<RawJson>,
}

/// The daemon's extensions of a request, in `_meta.sessiond`.
#[derive(Default, Deserialize)]
pub(super) struct SessiondExtensions {
    agent: Option<AgentName>,
    #[serde(default)]
    namespace: String,
    at: Option<String>,
    pub(super) edit: Option<String>,
}

impl SessiondExtensions {
    pub(super) fn read(meta: &Value) -> Result<Self, Failure> {
        let extras = meta.pointer("/sessiond");
        if extras.is_some_and(|extras| !extras.is_object()) {
            // Serde also reads an array, by position.
            let why = "_meta.sessiond must be an object";
            return Err(Failure::of(ErrorKind::InvalidParams, why));
        }
        let extras = extras.map(Self::deserialize);
        let read = extras.unwrap_or_else(|| Ok(Self::default()));
        read.map_err(|error| Failure::of(ErrorKind::InvalidParams, format!("_meta.sessiond: {error}")))
    }
}

/// The result of new, load, resume and fork.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OpenResult<'a> {
    session_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    modes: Option<&'a RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    config_options: Option<&'a RawJson>,
    /// The other members of the agent's answer.
    #[serde(flatten)]
    other: Members,
}

/// The two lists that `session/list` combines; a cursor starts with its list's letter.
const OF_CONVERSATIONS: &str = "c";
const OF_TRANSCRIPTS: &str = "t";

impl OpenParams {
    fn read(params: &str) -> Result<Self, Failure> {
        let mut opening: Self = message::read(params)?;
        let names = ["sessionId", "cwd", "mcpServers", "additionalDirectories"];
        opening.other = message::other_params(params, &names);
        match opening.cwd.starts_with('/') {
            true => Ok(opening),
            false => Err(Failure::of(
                ErrorKind::InvalidParams,
                "cwd must be an absolute path",
            )),
        }
    }

    /// The settings that differ from the conversation's. An empty list is ignored, because every editor must send a list of
    /// servers even if it has none.
    fn settings(&mut self, own: &Settings) -> Settings {
        Settings {
            mcp_servers: if_different(self.mcp_servers.take(), own.mcp_servers.as_deref()),
            additional_directories: if_different(
                self.additional_directories.take(),
                own.additional_directories.as_deref(),
            ),
            ..Settings::default()
        }
    }
}

fn if_different<T: PartialEq>(given: Option<Vec<T>>, own: Option<&[T]>) -> Option<Vec<T>> {
    given.filter(|given| !given.is_empty() && *given != own.unwrap_or_default())
}

impl Connection {
    pub(super) async fn new_session(&self, params: &str) -> Result<Answered, Failure> {
        let mut opening = OpenParams::read(params)?;
        let extras = SessiondExtensions::read(&opening.meta)?;
        let new = NewConversation {
            agent: extras.agent.or_else(|| self.chosen_agent_name()),
            cwd: opening.cwd.clone(),
            namespace: extras.namespace,
            settings: opening.settings(&Settings::default()),
            ..NewConversation::default()
        };
        let id = self.run_app_call(new).await?.conversation.id;
        let opened = async {
            let session = self.session(&id.to_string());
            session.set_open_params(opening.other);
            session.attach(&self.bridge, id).await?;
            self.open_at_agent(&session, id, ClientSwitchReason::Opening)
                .await?;
            self.open(session, id).await
        };
        self.open_or_delete(id, opened).await
    }

    /// Opens a new conversation's session. If that fails, the conversation is deleted, because the editor never learned its id.
    async fn open_or_delete(
        &self,
        id: ConversationId,
        opened: impl Future<Output = Result<Answered, Failure>>,
    ) -> Result<Answered, Failure> {
        let opened = opened.await;
        if opened.is_err() {
            self.forget(&id.to_string());
            let _left = self.delete_conversation(id.into()).await;
        }
        opened
    }

    /// Deletes the conversation of a session whose request was cancelled while the session was created.
    pub(super) async fn delete_unwanted_session(&self, session: &Arc<Session>) {
        if let Some(id) = session.conversation() {
            session.detach();
            let _left = self.delete_conversation(id.into()).await;
        }
    }

    /// Opens the session of a conversation in an agent that runs for this editor.
    pub(super) async fn open_at_agent(
        &self,
        session: &Session,
        id: ConversationId,
        occasion: ClientSwitchReason,
    ) -> Result<Resumed, BridgeError> {
        self.run_agent_for(session, id, occasion)?;
        Ok(self.run_app_call(Resume::of(id)).await?.resumed)
    }

    pub(super) async fn load(&self, session: Arc<Session>, params: &str) -> Result<Answered, Failure> {
        // Read before the first await: prompts that arrive later were sent after the editor began to load.
        let earlier = session.prompt_turns();
        let order = Arc::clone(&session.order).lock_owned().await;
        let mut opening = OpenParams::read(params)?;
        let id = self.find_conversation(&session.id, Some(&opening.cwd)).await?;
        let was_open = session.conversation().is_some();
        let mut held = session.begin_load(&earlier);
        let mut requested = self.bridge.request_replay(id)?;
        let reopened = self.reopen(&session, id, &mut opening).await?;
        let replayed = requested.try_recv().ok();
        // Without a turn, what the agent has sent since then is not part of the history.
        let is_missing_from_history = !was_open && !session.has_seen_turn();
        if !was_open {
            held = session.begin_load(&earlier);
        }
        let snapshot = session.attach(&self.bridge, id).await?;
        if !self.replay(&session, &snapshot, replayed).await? || is_missing_from_history {
            for line in held {
                session.replay_line(&line).await;
            }
        }
        let reopened = reopened
            .into_iter()
            .filter(|text| !is_missing_from_history || text == SETTINGS_DEFERRED_TEXT);
        session.hold_commands(snapshot.info.commands.clone());
        for text in reopened.chain(waiting_for_user(&session, &snapshot)) {
            session.replay(&session.note(&text)).await;
        }
        if self.peer.capabilities().wants_replay_end() {
            session.replay(REPLAY_END).await;
        }
        if snapshot.conversation.live {
            self.wait_for_commands(&session, &snapshot.conversation.agent)
                .await;
        }
        session.replay_commands().await;
        open_answer(session, order, &snapshot)
    }

    /// Waits until the agent has reported its commands. An agent that is not known to do so is not waited for: an editor accepts
    /// commands after the answer too. An agent that was waited for in vain is not waited for again until it reports some.
    async fn wait_for_commands(&self, session: &Session, agent: &AgentName) {
        let reported = session.commands_reported.notified();
        tokio::pin!(reported);
        reported.as_mut().enable();
        let agents = &self.peer.agents_with_commands;
        if session.agent_commands().is_none() && agents.contains(agent) {
            let reported = tokio::time::timeout(COMMANDS_WAIT_LIMIT, reported).await;
            if reported.is_err() && session.agent_commands().is_none() {
                agents.note(agent, false);
            }
        }
    }

    pub(super) async fn resume(&self, session: Arc<Session>, params: &str) -> Result<Answered, Failure> {
        let order = Arc::clone(&session.order).lock_owned().await;
        let mut opening = OpenParams::read(params)?;
        let id = self.find_conversation(&session.id, Some(&opening.cwd)).await?;
        let reopened = self.reopen(&session, id, &mut opening).await?;
        let answered = self.open_in_order(Arc::clone(&session), order, id).await?;
        // The session has already reported the loss in its events.
        for text in reopened.iter().filter(|text| *text == SETTINGS_DEFERRED_TEXT) {
            session.send_note(text);
        }
        Ok(answered)
    }

    pub(super) async fn fork(&self, source: Arc<Session>, params: &str) -> Result<Answered, Failure> {
        let order = source.order.lock().await;
        let mut opening = OpenParams::read(params)?;
        let id = self.find_conversation(&source.id, Some(&opening.cwd)).await?;
        let at = match ForkPoint::read(&opening.meta)? {
            Some(point) => Some(self.fork_message_id(id, &point).await?),
            None => SessiondExtensions::read(&opening.meta)?.at,
        };
        let fork = Fork {
            conversation_id: id.into(),
            at,
            cwd: Some(opening.cwd.clone()),
            ..Fork::default()
        };
        let params = opening.other.clone().unwrap_or_else(|| json!({}).into());
        let branch = submit_in_order(self.bridge.fork(params, fork), order).await?;
        let branch = branch.conversation.id;
        let opened = async {
            let session = self.session(&branch.to_string());
            self.reopen(&session, branch, &mut opening).await?;
            self.open(session, branch).await
        };
        self.open_or_delete(branch, opened).await
    }

    pub(super) async fn list(&self, params: &str) -> Reply {
        #[derive(Deserialize)]
        struct Params {
            #[serde(default)]
            cwd: Option<String>,
            #[serde(default)]
            cursor: Option<String>,
        }
        let Params { cwd, cursor } = message::read(params)?;
        let (list, mut cursor) = match cursor.as_deref().map(|cursor| cursor.split_at_checked(1)) {
            None => (OF_CONVERSATIONS, None),
            Some(Some((list @ (OF_CONVERSATIONS | OF_TRANSCRIPTS), cursor))) => {
                (list, Some(Cursor::new(cursor)))
            }
            Some(_) => {
                return Err(Failure::of(
                    ErrorKind::InvalidParams,
                    "the cursor is not one of session/list",
                ));
            }
        };
        let (mut sessions, mut next_cursor) = (Vec::new(), None);
        if list == OF_CONVERSATIONS {
            let page = ListConversations {
                agent: self.chosen_agent_name(),
                cwd: cwd.clone(),
                cursor: cursor.take(),
                ..ListConversations::default()
            };
            let page = self.run_app_call(page).await?;
            let all = page.conversations.iter();
            sessions.extend(all.map(|one| list_entry(&one.id, &one.cwd, &one.title, one.updated_at)));
            next_cursor = page.next_cursor.map(|next| format!("{OF_CONVERSATIONS}{next}"));
        }
        if next_cursor.is_none() {
            let page = ListTranscripts {
                agent: self.chosen_agent_name(),
                cwd,
                cursor,
                ..ListTranscripts::default()
            };
            let page = match self.run_app_call(page).await {
                // Not every agent's transcripts can be listed.
                Err(error) if error.kind == ErrorKind::Unsupported => None,
                page => Some(page?),
            };
            // Transcripts of conversations are listed as conversations. Those of deleted conversations are not listed, nor those
            // without a folder or without a title, which have no prompt to show. Claude makes one that holds only its command
            // at each `/clear`.
            let is_other = |transcript: &Transcript| {
                if transcript.cwd.is_empty() || ["", "/clear"].contains(&transcript.title.as_str()) {
                    return false;
                }
                let owner = self.bridge.conversation(&transcript.upstream_id.as_str().into());
                owner.is_err_and(|error| !is_deleted(&error))
            };
            if let Some(page) = page {
                let others = page.transcripts.into_iter().filter(is_other);
                sessions.extend(
                    others.map(|one| list_entry(&one.upstream_id, &one.cwd, &one.title, one.updated_at)),
                );
                next_cursor = page.next_cursor.map(|next| format!("{OF_TRANSCRIPTS}{next}"));
            }
        }
        let mut page = json!({ "sessions": sessions });
        if let Some(cursor) = next_cursor {
            page["nextCursor"] = json!(cursor);
        }
        Ok(page.to_string())
    }

    /// Detaches the editor. The turns of its prompts are cancelled, as the protocol requires. The conversation remains.
    pub(super) async fn close(&self, session: &Session) -> Reply {
        let _order = session.order.lock().await;
        if let Some(id) = session.conversation() {
            self.cancel_turns(id, session.prompt_turns(), None).await?;
        }
        session.detach();
        Ok("{}".to_owned())
    }

    pub(super) async fn delete(&self, session: &Session) -> Reply {
        let _order = session.order.lock().await;
        let conversation = match session.conversation() {
            Some(id) => Ok(id),
            None => self.find_conversation(&session.id, None).await,
        };
        match conversation {
            Ok(id) => self.delete_conversation(id.into()).await?,
            Err(failure) if failure.is_not_found() => {}
            Err(failure) => return Err(failure),
        }
        session.detach();
        Ok("{}".to_owned())
    }

    async fn delete_conversation(&self, id: ConversationRef) -> Result<(), Failure> {
        let cancel = Cancel {
            queued: true,
            ..Cancel::of(id.clone())
        };
        let deleted = async {
            self.run_app_call(cancel).await?;
            self.run_app_call(Delete::of(id)).await
        };
        match deleted.await.map_err(Failure::from) {
            Err(failure) if !failure.is_not_found() => Err(failure),
            _ => Ok(()),
        }
    }

    /// Opens the conversation's session in its agent with these settings. If it is open there with other settings, it is
    /// reopened, unless a turn runs. Returns messages for the user: what was lost, and that the settings do not apply yet. What
    /// the agent sends meanwhile is held back.
    ///
    /// # Errors
    /// If a sign-in is required or the session is not found. Any other failure is logged: the user can still read the session,
    /// and its next prompt tries again.
    async fn reopen(
        &self,
        session: &Arc<Session>,
        id: ConversationId,
        opening: &mut OpenParams,
    ) -> Result<Vec<String>, Failure> {
        session.set_open_params(opening.other.take());
        if session.conversation().is_none() {
            session.attach(&self.bridge, id).await?;
        }
        let reopened = async {
            let conversation = self.run_app_call(GetConversation::of(id)).await?.conversation;
            let settings = opening.settings(&conversation.settings);
            let is_changed = settings != Settings::default();
            if is_changed {
                self.update(id, settings, None).await?;
            }
            // A session is not reopened while a turn runs, and the agent may take long to make the branch for an edit.
            let resumed = match conversation.live && has_turn(conversation.state) {
                true => None,
                false => Some(
                    self.open_at_agent(session, id, ClientSwitchReason::Opening)
                        .await?,
                ),
            };
            let stays_open = resumed.as_ref().is_none_or(|resumed| resumed.via == Via::Live);
            let is_deferred = conversation.live && is_changed && stays_open;
            Ok::<_, BridgeError>((resumed, is_deferred))
        };
        match reopened.await.map_err(Failure::from) {
            Ok((resumed, is_deferred)) => {
                let lost = resumed.and_then(|resumed| session.loss_message(&resumed));
                Ok(lost
                    .into_iter()
                    .chain(is_deferred.then(|| SETTINGS_DEFERRED_TEXT.to_owned()))
                    .collect())
            }
            Err(failure) if failure.is_auth_required() || failure.is_not_found() => Err(failure),
            Err(failure) => {
                tracing::info!(conversation = %id, error = failure.message(), "a session that an editor opens is not open in its agent");
                Ok(Vec::new())
            }
        }
    }

    /// Opens a session that the editor learns of from the answer.
    async fn open(&self, session: Arc<Session>, id: ConversationId) -> Result<Answered, Failure> {
        let order = Arc::clone(&session.order).lock_owned().await;
        self.open_in_order(session, order, id).await
    }

    async fn open_in_order(
        &self,
        session: Arc<Session>,
        order: OwnedMutexGuard<()>,
        id: ConversationId,
    ) -> Result<Answered, Failure> {
        let snapshot = session.attach(&self.bridge, id).await?;
        session.hold_commands(snapshot.info.commands.clone());
        for text in waiting_for_user(&session, &snapshot) {
            session.send_note(&text);
        }
        open_answer(session, order, &snapshot)
    }

    /// Sends the history, and the updates of the running turn so far. A history that cannot be read is sent as the agent has
    /// `replayed` it. Returns whether there is a history.
    async fn replay(
        &self,
        session: &Session,
        snapshot: &Snapshot,
        replayed: Option<Replay>,
    ) -> Result<bool, Failure> {
        let mut has_history = true;
        let running = snapshot.running.as_ref();
        let (mut newest, mut cursor) = (NewestTurns::since(snapshot.newest_since), None);
        loop {
            let page = self.history_page(&snapshot.conversation, cursor).await;
            let page = match page.map_err(Failure::from) {
                Ok(page) => page,
                Err(failure) if failure.is_not_found() => return Err(failure),
                Err(failure) => {
                    has_history = replayed.is_some();
                    match replayed {
                        Some(replayed) => session.replay_agents(replayed).await,
                        None => {
                            let text = format!("The history cannot be shown: {}", failure.message());
                            session.replay(&session.note(&text)).await;
                        }
                    }
                    break;
                }
            };
            for update in page.updates.into_iter().flatten() {
                // The prompt of one more turn may be in the transcript before it is accepted.
                let max_turns = session.accepted_prompts().0 + usize::from(running.is_some()) + 1;
                for earlier in newest.push(update, max_turns) {
                    session.replay(earlier.update.get()).await;
                }
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                // Each page lists the gaps of the whole history. The running turn is not written yet.
                let is_loss = |kind| match kind {
                    GapKind::Missing | GapKind::Unreadable | GapKind::Broken => true,
                    kind => kind == GapKind::Behind && running.is_none(),
                };
                for gap in page.gaps.iter().filter(|gap| is_loss(gap.kind)) {
                    session.replay(&session.note(&gap.detail)).await;
                }
                break;
            }
        }
        // The held events contain the turns whose prompts were accepted since the snapshot. A later event shows a prompt that the
        // agent has written and that is still to be accepted.
        let mut newest = newest.turns;
        let conversation = GetConversation::of(snapshot.conversation.id);
        let state = self.run_app_call(conversation).await?.conversation.state;
        let (accepted, is_accepted) = session.accepted_prompts();
        let known = accepted + usize::from(running.is_some());
        let is_unaccepted = newest.len() > known && has_turn(state) && !is_accepted;
        let reported = accepted + usize::from(is_unaccepted);
        newest.truncate(newest.len().saturating_sub(reported));
        if let Some(running) = running {
            // The updates contain at least what the transcript has of the running turn, unless older ones were omitted. What the
            // transcript has from before the others then takes the place of those.
            let written = newest.pop_front().unwrap_or_default();
            let others_since = snapshot.updates.iter().find_map(EncodedEvent::at);
            let replaces_omitted = |update: &&HistoryUpdate| {
                let is_older = |at| others_since.is_none_or(|since| at < since);
                running.truncated && update.at.is_some_and(is_older)
            };
            let mut written = written.iter().filter(replaces_omitted).peekable();
            if written.peek().is_none() {
                for prompt in chunks_of(&running.prompt) {
                    session.replay(&prompt).await;
                }
            }
            for older in written {
                session.replay(older.update.get()).await;
            }
            if running.truncated {
                session.replay(&session.note(UPDATES_OMITTED_TEXT)).await;
            }
            for event in &snapshot.updates {
                session.replay_event(event).await;
            }
        }
        for later in newest.iter().flatten() {
            session.replay(later.update.get()).await;
        }
        Ok(has_history)
    }

    /// Reads a page of the history. The last page is read again until the newest turn is written.
    async fn history_page(
        &self,
        conversation: &Conversation,
        cursor: Option<Cursor>,
    ) -> Result<HistoryPage, BridgeError> {
        let deadline = tokio::time::Instant::now() + NEWEST_TURN_WAIT_LIMIT;
        loop {
            let history = History {
                cursor: cursor.clone(),
                limit: Some(HISTORY_PAGE),
                r#as: HistoryForm::Updates,
                ..History::of(conversation.id)
            };
            let page = self.run_app_call(history).await?;
            let is_behind = page.gaps.iter().any(|gap| gap.kind == GapKind::Behind);
            let is_last = page.next_cursor.is_none();
            if !(is_behind && is_last) || tokio::time::Instant::now() >= deadline {
                return Ok(page);
            }
            tokio::time::sleep(NEWEST_TURN_PAUSE).await;
        }
    }
}

fn open_answer(
    session: Arc<Session>,
    order: OwnedMutexGuard<()>,
    snapshot: &Snapshot,
) -> Result<Answered, Failure> {
    let result = message::result(&OpenResult {
        session_id: &session.id,
        modes: snapshot.info.modes.as_ref(),
        config_options: snapshot.info.config_options.as_ref(),
        other: snapshot
            .info
            .other
            .as_ref()
            .and_then(|other| other.read().ok())
            .unwrap_or_default(),
    })?;
    Ok(Answered {
        result,
        opened: Some((session, order)),
        created: None,
    })
}

/// Messages for the user about what only the user can continue: questions whose agent has exited, a turn that was cut short, and
/// held prompts. The questions are not asked again: an editor may grant permissions automatically, and that would start a turn.
fn waiting_for_user(session: &Session, snapshot: &Snapshot) -> impl Iterator<Item = String> {
    let Conversation {
        id,
        interrupts,
        queue,
        cut_short,
        continuation,
        state,
        ..
    } = &snapshot.conversation;
    let held = queue.iter().filter(|queued| queued.held);
    let held: String = held.map(|held| format!("- {}\n", held.prompt)).collect();
    let what = match held.as_str() {
        "" => "The last turn was cut short. ".to_owned(),
        // They also count as cut short.
        held => format!("These queued prompts were not sent before the daemon ended:\n\n{held}\n"),
    };
    let can_continue = !has_turn(*state) && interrupts.is_empty() && continuation.is_none();
    let unfinished = (can_continue && (*cut_short || !held.is_empty())).then(|| {
        let how = match session.announced_command("continue") {
            Some(command) => format!("send {command}."),
            None => format!("run in a terminal: sessionctl continue {id}"),
        };
        format!("{what}To continue, {how}\n\n")
    });
    let orphaned = interrupts.iter().filter(|interrupt| interrupt.orphaned);
    let orphaned = orphaned.map(move |interrupt| {
        let question = message::question_of(interrupt.request.get());
        format!(
            "The agent asked: {question}\n\nIts process ended before the answer. To answer, run in a terminal: sessionctl answer {id}\n\n"
        )
    });
    orphaned.chain(unfinished)
}

/// A session in a list.
fn list_entry(id: &impl Serialize, cwd: &str, title: &str, updated_at: Timestamp) -> Value {
    let mut entry = json!({ "sessionId": id, "cwd": cwd, "updatedAt": time::text(updated_at) });
    if !title.is_empty() {
        entry["title"] = json!(title);
    }
    entry
}

/// The newest turns of a history that is read from its beginning: those that began at or after the time `since`.
struct NewestTurns {
    since: Timestamp,
    /// The checkpoint of the turn that is being read.
    checkpoint: Option<Option<CheckpointId>>,
    turns: VecDeque<Vec<HistoryUpdate>>,
}

impl NewestTurns {
    fn since(since: Timestamp) -> Self {
        Self {
            since,
            checkpoint: None,
            turns: VecDeque::new(),
        }
    }

    /// Adds an update. Returns the updates that belong to older turns. At most `max_turns` turns are kept as the newest.
    fn push(&mut self, update: HistoryUpdate, max_turns: usize) -> Vec<HistoryUpdate> {
        let mut earlier = Vec::new();
        if self.checkpoint.as_ref() != Some(&update.checkpoint_id) {
            self.checkpoint = Some(update.checkpoint_id.clone());
            // Timestamps in transcripts have a resolution of milliseconds.
            let since = self.since.as_millisecond();
            if update.at.is_some_and(|at| at.as_millisecond() >= since) {
                self.turns.push_back(Vec::new());
            } else {
                earlier.extend(self.turns.drain(..).flatten());
            }
            while self.turns.len() > max_turns {
                earlier.extend(self.turns.pop_front().into_iter().flatten());
            }
        }
        match self.turns.back_mut() {
            Some(turn) => turn.push(update),
            None => earlier.push(update),
        }
        earlier
    }
}
