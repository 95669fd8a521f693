//! One session of an agent: opening, forking, configuring and closing it, with its lines in order.
//!
//! Owns the wait for an answer that arrives through the inbox of a session. Decides nothing about conversations.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

use bridge_protocol::conversation::{Limit, SessionInfo, Settings};
use bridge_protocol::id::UpstreamId;
use bridge_protocol::link::Resumed;
use bridge_protocol::raw::RawJson;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::agent::catalog::AgentEntry;
use crate::agent::failure::{self, Evidence, FailureKind};
use crate::agent::inbox::{InboxReceiver, InboxSender, Incoming, inbox};
use crate::agent::kinds::{AgentKind, ModelSetting};
use crate::agent::members::{Members, to_object};
use crate::agent::message::{AgentError, AgentRequestId, CallError, MethodName, method};
use crate::agent::pool::Lease;
use crate::agent::session::{AgentCalls, SETTING_DEADLINE, SessionOptions};
use crate::agent::wire::{Attachment, Connection, SessionHandle};
use crate::store::{ConversationRecord, ReportedSettings};

use super::closed_sessions::ClosedSessions;
use super::effect::OpenedSession;
use super::error::ConversationError;
use super::replay::Replay;
use super::reported_settings::{
    SettingChange, contradicts, has_category, is_current, is_no_longer_offered, note_accepted, note_update,
    offers_mode, setting_changes,
};
use super::services::{Services, chain_text, now};
use super::transcript_growth::PromptTally;
pub use super::uncommitted_copies::UncommittedCopy;
use super::unended_session::{UnendedSession, discard_copy};

/// How long an agent that replays a session after its answer must send nothing until the replay counts as ended.
const REPLAY_PAUSE: Duration = Duration::from_millis(250);

/// A session that is open in an agent, with everything that is needed to use it.
pub struct UpstreamSession {
    /// A lease of the process, for as long as the session is used.
    pub lease: Lease,
    /// The session's entry in the process's routes.
    pub attachment: Attachment,
    /// The sending side of its inbox, for new requests.
    pub sender: InboxSender,
    /// The agent's lines for this session.
    pub inbox: InboxReceiver,
    /// Lines that came while the session was being opened and were not handled yet.
    pub early_lines: Vec<Incoming>,
    /// The prompt that the agent has not answered yet: its turn runs.
    pub prompt: Option<AgentRequestId>,
    /// The requests of clients that the agent has not answered yet.
    pub forwarded_requests: HashMap<AgentRequestId, oneshot::Sender<Result<Box<RawValue>, CallError>>>,
    /// The settings that the agent is asked for.
    pub setting_requests: Option<SettingRequests>,
    /// The requests for settings that the agent has not answered yet. It may accept one long after its deadline.
    pub unanswered_settings: HashMap<AgentRequestId, SettingChange>,
    /// Whether the session's own process may still write after the agent has reported that the session is closed.
    pub close_answers_early: bool,
    /// How many prompts its transcript may contain.
    pub prompt_tally: PromptTally,
    /// How long the agent may take to close the session, unless the close is forced.
    pub deadline: Duration,
    /// The copy of a transcript from which it was opened, until the session is used or, for an edit, its branch is recorded.
    pub copy: Option<UncommittedCopy>,
}

/// Settings that the agent is asked for, one after the other. They fail if this is dropped.
pub struct SettingRequests {
    /// The request that the agent has not answered yet.
    pub current: Option<AgentRequestId>,
    /// Those that follow.
    pub next: VecDeque<SettingChange>,
    /// Further parameters for the agent, as an editor sent them.
    pub params: Option<RawJson>,
    /// Receives the end of the last request.
    pub reply: oneshot::Sender<Result<(), OpenError>>,
}

impl Drop for UpstreamSession {
    fn drop(&mut self) {
        if let Some(copy) = self.copy.take() {
            discard_copy(copy, self.lease.agent().has_stopped());
        }
        // What the agent still sends under this handle is ignored. A newer attachment stays.
        self.lease.connection().detach(&self.attachment);
    }
}

/// The agent's answer when it opened a session.
#[derive(Debug)]
pub struct OpenResponse {
    /// The id under which the session is known.
    pub upstream_id: UpstreamId,
    /// What the agent reported about the session.
    pub info: SessionInfo,
    /// What the agent replayed, if it loaded the session.
    pub replay: Option<Replay>,
}

impl OpenResponse {
    /// The report of the opened session for the conversation.
    #[must_use]
    pub fn into_opened(self, session: &UpstreamSession, resumed: Resumed) -> OpenedSession {
        let capabilities = &session.lease.initialized().capabilities;
        OpenedSession {
            upstream_id: self.upstream_id,
            link: None,
            resumed,
            preamble: None,
            loaded: None,
            can_reopen: capabilities.resume || capabilities.load_session,
            session_info: self.info,
        }
    }
}

/// The way in which a session is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// `session/new`.
    New {
        /// The previous mode of the conversation. It is applied unless the settings name a mode: the mode decides which tools
        /// run without a question, and a new session may begin in a mode that asks less.
        last_mode: Option<String>,
    },
    /// `session/resume`.
    Resume(UpstreamId),
    /// `session/load`. The updates that the agent replays are not sent to subscribers; they are returned if `wants_replay`.
    Load {
        /// The session.
        id: UpstreamId,
        /// Whether a client waits for the replay.
        wants_replay: bool,
    },
    /// `session/fork` of this session: up to and including the message with this id of the agent's own, or whole.
    Fork(UpstreamId, Option<String>),
}

/// Why a session was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The agent did not open the session.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The agent opened the session, but refused one of the conversation's settings.
    #[error("the agent refused the setting {setting} = {value}")]
    Setting {
        /// Which: `model`, `mode` or the id of an option.
        setting: String,
        /// Its value.
        value: String,
        /// What the session offers instead.
        offered: Box<SessionInfo>,
        /// The agent's error.
        #[source]
        source: CallError,
    },
}

impl OpenError {
    /// Why a setting was not applied. If the process has ended, another process may still accept the setting.
    pub(super) fn from_setting(change: &SettingChange, known: &SessionInfo, source: CallError) -> Self {
        match source {
            CallError::Died(_) | CallError::Closing | CallError::Stalled => Self::Call(source),
            source => Self::Setting {
                setting: change.name().to_owned(),
                value: change.value().to_owned(),
                offered: Box::new(SessionInfo {
                    modes: known.modes.clone(),
                    config_options: known.config_options.clone(),
                    ..SessionInfo::default()
                }),
                source,
            },
        }
    }
}

/// Opens a session in a running process and applies the settings of the record to it. If the opening is given up half-way,
/// the process gets no new sessions: it hangs, or already has the session open that a later call would open. A session that
/// is not returned, but to which the agent may still write, is added to `closed`.
///
/// # Errors
/// The agent's error, with the setting if the agent refused one.
pub(super) async fn open_session(
    services: &Services,
    entry: &AgentEntry,
    lease: Lease,
    opening: &OpenMode,
    cwd: &str,
    record: &ConversationRecord,
    closed: &ClosedSessions,
) -> Result<(UpstreamSession, OpenResponse), OpenError> {
    // A session whose id is not known yet has no transcript of the conversation.
    let unended = match opening {
        OpenMode::New { .. } | OpenMode::Fork(..) => None,
        OpenMode::Resume(id) | OpenMode::Load { id, .. } => Some(UnendedSession::new(
            lease.agent(),
            SessionHandle::new(id.as_str()),
            None,
            entry.kind.close_answers_early,
        )),
    };
    let mut guard = OpenGuard {
        lease,
        attachment: None,
        unended,
        has_ended: false,
        closed,
    };
    let opened = open_attached(services, entry, &mut guard, opening, cwd, record).await;
    guard.has_ended = true;
    // An agent that did not answer may still open the session.
    if let Err(OpenError::Call(CallError::TimedOut { .. } | CallError::Stalled)) = &opened
        && let Some(unended) = guard.unended.take()
    {
        closed.add_given_up(unended);
    }
    opened
}

/// A guard for the opening of a session. Removes the route of a session that was not opened, and retires the process if the
/// opening is given up half-way.
struct OpenGuard<'a> {
    lease: Lease,
    /// The route, if the session exists already.
    attachment: Option<Attachment>,
    /// The session, if it exists already.
    unended: Option<UnendedSession>,
    has_ended: bool,
    closed: &'a ClosedSessions,
}

impl Drop for OpenGuard<'_> {
    fn drop(&mut self) {
        if let Some(attachment) = &self.attachment {
            self.lease.connection().detach(attachment);
        }
        if !self.has_ended {
            self.lease.retire();
            if let Some(unended) = self.unended.take() {
                self.closed.add_given_up(unended);
            }
        }
    }
}

async fn open_attached(
    services: &Services,
    entry: &AgentEntry,
    guard: &mut OpenGuard<'_>,
    opening: &OpenMode,
    cwd: &str,
    record: &ConversationRecord,
) -> Result<(UpstreamSession, OpenResponse), OpenError> {
    let lease = guard.lease.clone();
    let mut options = session_options(entry, cwd, &record.settings);
    if let OpenMode::Fork(_, Some(point)) = opening {
        // ACP has no field for the fork point. An agent that does not know this one copies the whole session.
        let meta = entry.kind.fork_point_meta(point);
        options
            .meta
            .extend(meta.ok_or_else(|| CallError::Unsupported(MethodName::known(method::SESSION_FORK)))?);
    }
    let calls = lease.calls();
    let (sender, mut receiver) = inbox(services.inbox_limits);
    let request = match opening {
        OpenMode::New { .. } => calls.new_session(&options, &sender)?,
        OpenMode::Fork(id, _) => calls.fork(&SessionHandle::new(id.as_str()), &options, &sender)?,
        OpenMode::Resume(id) => {
            let (request, attachment) = calls.resume(&SessionHandle::new(id.as_str()), &options, &sender)?;
            guard.attachment = Some(attachment);
            request
        }
        OpenMode::Load { id, .. } => {
            let (request, attachment) = calls.load(&SessionHandle::new(id.as_str()), &options, &sender)?;
            guard.attachment = Some(attachment);
            request
        }
    };
    let (mut early, mut replay) = (Vec::new(), None);
    if let OpenMode::Load { id, wants_replay } = opening {
        replay = Some(Replay::new(record.id, id.as_str(), *wants_replay));
    }
    let mut take = |incoming| match &mut replay {
        Some(replay) => early.extend(replay.add(incoming)),
        None => early.push(incoming),
    };
    let deadline = services.session_deadline;
    let connection = lease.connection();
    let answer = await_answer(&mut receiver, connection, request, &mut take);
    let answer = timeout(deadline, answer).await;
    let answer = answer.unwrap_or(Err(CallError::TimedOut { after: deadline }));
    let (raw, attached) = answer.inspect_err(|error| {
        if wants_sign_in(entry, error) {
            // The process may check the sign-in only when it starts, and the user signs in outside of it.
            lease.mark_signed_out();
        }
    })?;
    if matches!(opening, OpenMode::Load { .. }) && entry.kind.replays_after_answer {
        let mut batch = Vec::new();
        let until_pause = async {
            while timeout(REPLAY_PAUSE, receiver.recv_up_to(&mut batch, 64))
                .await
                .is_ok()
            {
                batch.drain(..).for_each(&mut take);
            }
        };
        // An agent that does not pause shows the rest as new.
        let _unended = timeout(deadline, until_pause).await;
    }
    let attachment = attached
        .or(guard.attachment.take())
        .ok_or_else(|| CallError::BadAnswer {
            method: MethodName::known(method::SESSION_NEW),
            detail: "it names no session".to_owned(),
        })?;
    let mut answer = OpenResponse {
        replay,
        ..read_answer(&raw, &attachment)
    };
    let mut session = UpstreamSession {
        lease,
        attachment,
        sender,
        inbox: receiver,
        early_lines: early,
        prompt: None,
        forwarded_requests: HashMap::new(),
        setting_requests: None,
        unanswered_settings: HashMap::new(),
        close_answers_early: entry.kind.close_answers_early,
        prompt_tally: PromptTally::new(matches!(opening, OpenMode::New { .. }).then_some(0)),
        deadline,
        copy: None,
    };
    let mut settings = record.settings.clone();
    if let OpenMode::New { last_mode } = opening {
        let last_mode = last_mode.clone().filter(|mode| offers_mode(&answer.info, mode));
        settings.mode = settings.mode.or(last_mode);
    }
    let (reported, info) = (&record.reported, &mut answer.info);
    if let Err(refused) = apply_settings(entry, &mut session, &settings, reported, info).await {
        guard.closed.close(session);
        return Err(refused);
    }
    Ok((session, answer))
}

/// Sends the request that changes a setting of an open session. The answer arrives in the inbox.
///
/// # Errors
/// [`CallError`]; nothing was sent then.
pub fn send_setting(
    kind: &AgentKind,
    session: (&AgentCalls, &SessionHandle, &InboxSender),
    change: &SettingChange,
    params: Option<&RawValue>,
    known: &SessionInfo,
) -> Result<AgentRequestId, CallError> {
    let (calls, handle, inbox) = session;
    match change {
        SettingChange::Mode(mode) => calls.set_mode(handle, mode, params, inbox),
        SettingChange::Option(id, value) => {
            calls.set_config_option(handle, id, value.as_raw(), params, inbox)
        }
        SettingChange::Model(model) => match (model_option(known), kind.model_setting) {
            (Some(id), _) => {
                let value = RawJson::from(Value::from(model.as_str()));
                calls.set_config_option(handle, &id, value.as_raw(), params, inbox)
            }
            (None, ModelSetting::ConfigOptionOrSetModel) => calls.set_model(handle, model, params, inbox),
            (None, ModelSetting::ConfigOption) => Err(CallError::Unsupported(MethodName::known(
                method::SESSION_SET_CONFIG_OPTION,
            ))),
        },
    }
}

/// Applies the settings of a conversation to a session that was just opened, unless they are current. Afterwards `known` is
/// what is known of the session. Lines of the agent that this makes obsolete are removed.
///
/// # Errors
/// The first setting that the agent refused, or the end of the agent.
async fn apply_settings(
    entry: &AgentEntry,
    session: &mut UpstreamSession,
    settings: &Settings,
    reported: &ReportedSettings,
    known: &mut SessionInfo,
) -> Result<(), OpenError> {
    let (calls, handle) = (session.lease.calls(), session.attachment.handle.clone());
    let mut handled = session.early_lines.len();
    // An agent may list the options of another model only after its answer to the request for it, but before the next answer.
    let mut may_list_others = false;
    for change in setting_changes(settings, known.config_options.as_ref()) {
        let is_listed = !std::mem::take(&mut may_list_others) || matches!(change, SettingChange::Mode(_));
        let forget = || {
            let (setting, value) = (change.name(), change.value());
            tracing::warn!(agent = %entry.name, setting, value, "the agent no longer offers an option, which is forgotten");
        };
        if is_listed && is_no_longer_offered(reported, known, &change) {
            forget();
            continue;
        }
        if is_listed && is_current(known, &change) {
            continue;
        }
        let listed = known.config_options.clone();
        let target = (&calls, &handle, &session.sender);
        let accepted = match send_setting(entry.kind, target, &change, None, known) {
            Ok(request) => {
                let connection = session.lease.connection();
                let early = &mut session.early_lines;
                let answer = await_answer(&mut session.inbox, connection, request, |line| early.push(line));
                let answer = timeout(SETTING_DEADLINE, answer).await;
                let after = SETTING_DEADLINE;
                answer.unwrap_or(Err(CallError::TimedOut { after }))
            }
            Err(error) => Err(error),
        };
        // What the agent reported before its answer.
        let updates = session.early_lines.iter().skip(handled);
        for (kind, update) in updates.filter_map(|line| update_of(&handle, line)) {
            note_update(known, &kind, update);
        }
        handled = session.early_lines.len();
        if matches!(accepted, Err(CallError::Agent(_))) && is_no_longer_offered(reported, known, &change) {
            forget();
            continue;
        }
        let (answer, _) = accepted.map_err(|source| OpenError::from_setting(&change, known, source))?;
        note_accepted(known, &change, &RawJson::new(answer));
        may_list_others = matches!(change, SettingChange::Model(_)) && known.config_options == listed;
    }
    // All of them came before the last answer.
    let is_outdated = |line: &Incoming| {
        update_of(&handle, line).is_some_and(|(kind, update)| contradicts(known, &kind, update))
    };
    session.early_lines.retain(|line| !is_outdated(line));
    Ok(())
}

/// The id of the option of category `model`.
fn model_option(known: &SessionInfo) -> Option<String> {
    let options: Vec<Value> = known.config_options.as_ref()?.read().ok()?;
    let option = options.iter().find(|option| has_category(option, "model"))?;
    Some(option.get("id")?.as_str()?.to_owned())
}

/// The kind of an update and the update itself, if the line is one about this session, not about that of a subagent.
fn update_of<'a>(session: &SessionHandle, line: &'a Incoming) -> Option<(Cow<'a, str>, &'a str)> {
    match line {
        Incoming::Notification { line, .. } => {
            let id = line.session_id();
            let is_own = id.is_none_or(|id| id == session.as_str());
            line.update_kind().zip(line.update()).filter(|_| is_own)
        }
        _ => None,
    }
}

/// The error of opening a session, as the error of a call about a conversation.
#[must_use]
pub fn conversation_error(entry: &AgentEntry, error: &OpenError) -> ConversationError {
    let text = chain_text(error);
    let call = match error {
        OpenError::Call(call) => call,
        OpenError::Setting { source, .. } => source,
    };
    match call {
        CallError::Agent(agent) => {
            let failure = classify(entry, agent);
            if failure.kind == FailureKind::AuthRequired {
                return ConversationError::AuthRequired {
                    message: format!(
                        "the agent {} requires you to sign in: {}",
                        entry.name, failure.message
                    ),
                    upstream: Some(upstream_json(agent)),
                };
            }
            let action = match error {
                OpenError::Setting { setting, value, .. } => {
                    format!("refused the setting {setting} = {value}")
                }
                OpenError::Call(_) => "answered with an error".to_owned(),
            };
            let message = format!("the agent {} {action}: {}", entry.name, failure.message);
            let upstream = Some(upstream_json(agent));
            if is_session_in_use(error) {
                return ConversationError::Transient {
                    message: format!(
                        "the agent {} does not open the session while another program, or one of its own processes that has \
                         not ended yet, writes to it; close it there, or try again in a minute",
                        entry.name
                    ),
                    upstream,
                    limit: None,
                };
            }
            let is_transient = matches!(
                failure.kind,
                FailureKind::RateLimited | FailureKind::Overloaded | FailureKind::Network
            );
            if !is_transient {
                return match error {
                    OpenError::Setting { setting, offered, .. } => ConversationError::SettingRefused {
                        message,
                        setting: setting.clone(),
                        upstream,
                        offered: offered.clone(),
                    },
                    OpenError::Call(_) => ConversationError::AgentError { message, upstream },
                };
            }
            let is_limit = failure.kind == FailureKind::RateLimited;
            ConversationError::Transient {
                message,
                upstream,
                limit: is_limit.then_some(Limit {
                    kind: FailureKind::RateLimited,
                    resets_at: failure.resets_at,
                }),
            }
        }
        CallError::TimedOut { .. } => ConversationError::Transient {
            message: text,
            upstream: None,
            limit: None,
        },
        CallError::Unsupported(_) => ConversationError::Unsupported(text),
        CallError::Died(_) | CallError::Closing | CallError::Stalled => {
            ConversationError::AgentUnavailable(text)
        }
        _ => ConversationError::AgentError {
            message: text,
            upstream: None,
        },
    }
}

/// Whether the agent reports a missing sign-in.
fn wants_sign_in(entry: &AgentEntry, error: &CallError) -> bool {
    matches!(error, CallError::Agent(agent) if classify(entry, agent).kind == FailureKind::AuthRequired)
}

/// Whether the agent reports that another process writes to the session.
pub(super) fn is_session_in_use(error: &OpenError) -> bool {
    let OpenError::Call(CallError::Agent(error)) = error else {
        return false;
    };
    let data = error_data(error);
    failure::is_session_in_use(&error_evidence(error, data.as_ref()))
}

fn error_data(error: &AgentError) -> Option<Value> {
    let data = error.data.as_ref()?;
    serde_json::from_str(data.get()).ok()
}

fn error_evidence<'a>(error: &'a AgentError, data: Option<&'a Value>) -> Evidence<'a> {
    Evidence {
        code: Some(error.code),
        message: Some(&error.message),
        data,
        ..Evidence::default()
    }
}

/// Classifies an agent's error.
#[must_use]
pub fn classify(entry: &AgentEntry, error: &AgentError) -> failure::Failure {
    let data = error_data(error);
    let evidence = error_evidence(error, data.as_ref());
    failure::classify(
        entry.kind,
        &evidence,
        &now().to_zoned(jiff::tz::TimeZone::system()),
    )
}

/// The agent's error as its own JSON.
#[must_use]
pub fn upstream_json(error: &AgentError) -> RawJson {
    if let Some(raw) = &error.raw {
        return RawJson::new(raw.clone());
    }
    // Built from its members: `json!` would decode the data and lose digits.
    #[derive(serde::Serialize)]
    struct Members<'a> {
        code: i64,
        message: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<&'a RawValue>,
    }
    let members = Members {
        code: error.code,
        message: &error.message,
        data: error.data.as_deref(),
    };
    RawJson::from_value(&members).unwrap_or_default()
}

fn session_options(entry: &AgentEntry, cwd: &str, settings: &Settings) -> SessionOptions {
    SessionOptions {
        cwd: PathBuf::from(cwd),
        mcp_servers: settings
            .mcp_servers
            .as_ref()
            .and_then(|servers| RawJson::from_value(servers).ok())
            .map(RawJson::into_raw),
        additional_directories: settings
            .additional_directories
            .iter()
            .flatten()
            .map(PathBuf::from)
            .collect(),
        meta: (entry.kind.session_meta)(
            settings
                .system_prompt
                .as_deref()
                .filter(|prompt| !prompt.is_empty()),
        ),
        client_params: entry.session_params.clone().map(RawJson::into_raw),
    }
}

/// Waits for one answer, and passes everything else to `keep`, in order. A question about the request itself is cancelled: the
/// session does not exist yet, nobody can be asked, and the agent may wait for the answer.
async fn await_answer(
    inbox: &mut InboxReceiver,
    connection: &Connection,
    request: AgentRequestId,
    mut keep: impl FnMut(Incoming),
) -> Result<(Box<RawValue>, Option<Attachment>), CallError> {
    let mut batch = Vec::new();
    loop {
        // One at a time: lines after the answer stay in the inbox.
        inbox.recv_up_to(&mut batch, 1).await;
        for incoming in batch.drain(..) {
            match incoming {
                Incoming::Response {
                    request: answered,
                    outcome,
                    attachment,
                    ..
                } if answered == request => {
                    return outcome.map(|raw| (raw, attachment));
                }
                Incoming::Died(death) => return Err(CallError::Died(death)),
                Incoming::Request {
                    id,
                    method: name,
                    line,
                } if name.as_str() == method::ELICITATION_CREATE && line.session_id().is_none() => {
                    let cancelled = RawJson::from(json!({"action": "cancel"}));
                    // An agent that has ended needs no answer.
                    let _ended = connection.respond(&id, Ok(cancelled.as_raw()));
                }
                other => keep(other),
            }
        }
    }
}

fn read_answer(raw: &RawValue, attachment: &Attachment) -> OpenResponse {
    let mut members: Members = serde_json::from_str(raw.get()).unwrap_or_default();
    members.shift_remove("sessionId");
    let mut given = |name| {
        members
            .shift_remove(name)
            .filter(|value: &RawJson| value.get() != "null")
    };
    let (modes, config_options) = (given("modes"), given("configOptions"));
    OpenResponse {
        // Trimmed, as in the chain: an id never begins or ends with blanks.
        upstream_id: attachment.handle.as_str().trim().into(),
        info: SessionInfo {
            modes,
            config_options,
            other: to_object(&members),
            ..SessionInfo::default()
        },
        replay: None,
    }
}
