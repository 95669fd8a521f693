//! Errors of commands: one line describes what failed, a hint describes what to do, and the exit code is for scripts.
//!
//! It owns the message, hint and exit code of each error. It must not know where they are printed.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use bridge_protocol::client::{ClientError, is_lost, refusal};
use bridge_protocol::conversation::{Conversation, SessionInfo};
use bridge_protocol::link::Attempt;
use bridge_protocol::raw::RawJson;
use bridge_protocol::turn::{FailureKind, StopReason, TurnResult};
use bridge_protocol::{BridgeError, ErrorKind};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::advice::Advice;
use super::humanize::{self, Clock};
use super::output::one_line;
use crate::paths::ownership::Untrusted;
use crate::paths::{PathsError, shell_word};

/// The hint if only the doctor may report more.
pub(super) const DOCTOR_HINT: &str = "sessionctl doctor reports more";

/// The reason why a file cannot be written, whatever its permissions are.
pub(super) const READ_ONLY: &str = "the file system is mounted read-only";

/// The system's words for a full disk, with which agents report it.
const DISK_FULL: &str = "No space left on device";

/// An error of a command.
#[derive(Debug)]
pub(super) struct Problem {
    /// The code that the process ends with.
    pub(super) exit: Exit,
    /// What failed, on one line; `None` if nothing is to be printed, for example because the output was closed.
    pub(super) message: Option<String>,
    /// What to do next.
    pub(super) hint: Option<String>,
    /// The conversations that the name matches.
    pub(super) candidates: Vec<Conversation>,
    cause: Cause,
}

/// The source of a problem.
#[derive(Debug)]
enum Cause {
    /// This program, with optional details for `--json`.
    Own(Option<Box<Value>>),
    /// An error of the daemon, with its code and data for `--json`.
    Daemon(Box<BridgeError>),
    /// The connection to the daemon was lost.
    Connection,
}

/// A problem as `--json` prints it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ProblemJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<i32>,
    kind: Value,
    message: &'a str,
    retryable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
    exit_code: u8,
}

/// How a command ended. Scripts can rely on the codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// The command succeeded.
    Success,
    /// The command failed, and no other code fits.
    Failed,
    /// The command line is invalid.
    Usage,
    /// No daemon answers.
    NoDaemon,
    /// No conversation matches, or several do.
    NotFound,
    /// The command conflicts with a running turn or the current state.
    Busy,
    /// The agent failed or is unavailable.
    Agent,
    /// A usage limit stopped the turn.
    Limited,
    /// A question of the agent is still open; another client can answer it.
    QuestionOpen,
    /// A signal with this number stopped the command.
    Signal(u8),
}

impl Exit {
    /// The code that the process ends with.
    pub(super) const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NoDaemon => 3,
            Self::NotFound => 4,
            Self::Busy => 5,
            Self::Agent => 6,
            Self::Limited => 7,
            Self::QuestionOpen => 8,
            // The shells' convention for a process that a signal ended.
            Self::Signal(signal) => 128 + signal,
        }
    }

    /// The `kind` of an error that does not come from the daemon, in the words of the wire contract.
    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::Success | Self::Failed => "failed",
            Self::Usage => "usage",
            Self::NoDaemon => "noDaemon",
            Self::NotFound => "notFound",
            Self::Busy => "busy",
            Self::Agent => "agentError",
            Self::Limited => "limited",
            Self::QuestionOpen => "questionOpen",
            Self::Signal(_) => "stopped",
        }
    }

    /// The code for an error of the daemon.
    pub(super) const fn of_error(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::InvalidParams => Self::Usage,
            ErrorKind::ShuttingDown => Self::NoDaemon,
            ErrorKind::NotFound | ErrorKind::Ambiguous | ErrorKind::CheckpointNotFound => Self::NotFound,
            ErrorKind::Busy
            | ErrorKind::Conflict
            | ErrorKind::InterruptResolved
            | ErrorKind::RevisionMismatch => Self::Busy,
            ErrorKind::AgentUnavailable
            | ErrorKind::AgentError
            | ErrorKind::AuthRequired
            | ErrorKind::NotResumable => Self::Agent,
            ErrorKind::Limited => Self::Limited,
            _ => Self::Failed,
        }
    }

    /// The code for a turn that has ended.
    pub(super) fn of_turn(turn: &TurnResult) -> Self {
        match (&turn.failure, &turn.stop_reason) {
            (Some(failure), _) => Self::of_failure(failure.kind),
            (None, StopReason::EndTurn) => Self::Success,
            (None, _) => Self::Failed,
        }
    }

    const fn of_failure(kind: FailureKind) -> Self {
        match kind {
            FailureKind::RateLimited => Self::Limited,
            FailureKind::DaemonRestarted => Self::Failed,
            _ => Self::Agent,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// The result of a step of a command.
pub(super) type CommandResult<T = ()> = Result<T, Problem>;

impl Problem {
    /// Creates a problem with this message.
    pub(super) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            message: Some(message.into()),
            ..Self::silent(exit)
        }
    }

    /// Creates the problem of an invalid command line.
    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Creates the problem of a command that failed, if no other code fits.
    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, message)
    }

    /// Creates the problem of a missing daemon.
    pub(super) fn no_daemon(message: impl Into<String>) -> Self {
        Self::new(Exit::NoDaemon, message)
    }

    /// Creates a problem that prints nothing, because everything was printed already. The process ends with this code.
    pub(super) fn silent(exit: Exit) -> Self {
        Self {
            exit,
            message: None,
            hint: None,
            candidates: Vec::new(),
            cause: Cause::Own(None),
        }
    }

    /// The message, for use in another text.
    pub(super) fn text(&self) -> String {
        one_line(self.message.as_deref().unwrap_or_default())
    }

    /// The error of the daemon, if the problem is one.
    fn error(&self) -> Option<&BridgeError> {
        match &self.cause {
            Cause::Daemon(error) => Some(error),
            _ => None,
        }
    }

    /// Whether the connection to the daemon has ended.
    pub(super) fn is_lost_connection(&self) -> bool {
        matches!(self.cause, Cause::Connection)
    }

    /// The kind of the daemon's error, if the problem is one.
    pub(super) fn kind(&self) -> Option<ErrorKind> {
        self.error().map(|error| error.kind)
    }

    /// The text that the data of the daemon's error has under this key.
    pub(super) fn detail(&self, key: &str) -> Option<String> {
        data_text(self.error()?, key)
    }

    /// The session that refused a setting, with the settings that it offers.
    pub(super) fn offered_session(&self) -> Option<SessionInfo> {
        serde_json::from_value(self.error()?.detail("session")).ok()
    }

    /// The id of the process that the problem is about, if known.
    pub(super) fn pid(&self) -> Option<u64> {
        match &self.cause {
            Cause::Own(details) => details.as_deref()?["pid"].as_u64(),
            _ => None,
        }
    }

    /// The attempts to reopen a session, if several failed; the message has the error of a single one.
    pub(super) fn attempts(&self) -> Vec<Attempt> {
        let listed = self.error().map(|error| error.detail("attempts"));
        let attempts: Vec<Attempt> = serde_json::from_value(listed.unwrap_or_default()).unwrap_or_default();
        Some(attempts)
            .filter(|attempts| attempts.len() > 1)
            .unwrap_or_default()
    }

    /// The ids that the daemon's error lists under this key.
    pub(super) fn ids(&self, key: &str) -> Vec<String> {
        let listed = self.error().map(|error| error.detail(key));
        let candidates = listed.as_ref().and_then(Value::as_array).into_iter().flatten();
        let ids = candidates.filter_map(|candidate| candidate["id"].as_str());
        ids.map(str::to_owned).collect()
    }

    /// Adds details that a program needs to handle the problem.
    pub(super) fn with_details(mut self, details: Value) -> Self {
        self.cause = Cause::Own(Some(Box::new(details)));
        self
    }

    /// The problem as one line of JSON, with this hint; `None` if it has no message.
    pub(super) fn json(&self, hint: Option<&str>) -> Option<String> {
        let message = self.message.as_deref()?;
        let error = self.error();
        let printed = ProblemJson {
            code: error.map(|error| error.kind.code()),
            kind: error.map_or_else(|| self.exit.kind().into(), |error| json!(error.kind)),
            message,
            retryable: error.is_some_and(|error| error.retryable),
            data: match &self.cause {
                Cause::Own(details) => details.as_deref().cloned().map(RawJson::from),
                Cause::Daemon(error) => RawJson::from_value(&error.data()).ok(),
                Cause::Connection => None,
            },
            hint,
            exit_code: self.exit.code(),
        };
        let printed = serde_json::to_string(&printed).ok()?;
        Some(format!("{{\"error\":{printed}}}"))
    }

    /// Replaces the message.
    pub(super) fn with_message(mut self, message: String) -> Self {
        self.message = Some(message);
        self
    }

    /// Sets the hint.
    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Sets the hint, if the problem is an error of the daemon of this kind.
    pub(super) fn hint_if(self, kind: ErrorKind, hint: impl Into<String>) -> Self {
        match self.kind() == Some(kind) {
            true => self.hint(hint),
            false => self,
        }
    }

    /// Describes the cause of the problem, which is that this conversation has no turns.
    pub(super) fn without_turns(self, advice: &Advice) -> Self {
        let send = advice.send("Hello");
        self.with_message(format!("conversation {} has no turns yet", advice.conversation))
            .hint(format!("send the first prompt: {send}"))
    }

    /// Replaces the exit code.
    pub(super) fn with_exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// The problem of a file or folder that could not be used. The hint shows the permissions or the file system of the nearest
    /// existing path.
    pub(super) fn file_error(doing: &str, path: &Path, error: &io::Error) -> Self {
        let message = format!("could not {doing} {}: {error}", path.display());
        let whole = std::path::absolute(path).unwrap_or_default();
        let nearest = whole.ancestors().find(|path| path.exists());
        let nearest = shell_word(&nearest.unwrap_or(Path::new("/")).to_string_lossy());
        Self::failed(message).hint(match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem => {
                format!(
                    "{READ_ONLY}; make it writable, or use another folder; see what is mounted: df {nearest}"
                )
            }
            _ => format!("check its permissions: ls -ld {nearest}"),
        })
    }

    /// The problem of output that could not be written. If the output was closed, nothing is printed and it is not a failure.
    pub(super) fn output_error(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::silent(Exit::Success);
        }
        Self::failed(format!("could not write the output: {error}"))
    }

    /// The problem of a daemon that ended while it was needed.
    pub(super) fn connection_lost() -> Self {
        let hint =
            "try again; if it happens again, read the end of its log (sessionctl status prints its folder)";
        Self {
            cause: Cause::Connection,
            ..Self::no_daemon("the daemon closed the connection").hint(hint)
        }
    }
}

impl From<BridgeError> for Problem {
    fn from(error: BridgeError) -> Self {
        let exit = Exit::of_error(error.kind);
        Self {
            hint: hint_for(&error),
            message: Some(message_of(&error)),
            cause: Cause::Daemon(Box::new(error)),
            ..Self::silent(exit)
        }
    }
}

impl From<ClientError> for Problem {
    fn from(error: ClientError) -> Self {
        match error {
            error if is_lost(&error) => Self::connection_lost(),
            ClientError::Call(error) => BridgeError::from(error).into(),
            ClientError::Transport(_) | ClientError::RestartNeeded(_) => {
                refusal(&error).map_or_else(Self::connection_lost, |error| {
                    Self::from(error.clone())
                        .hint("close a window or program that is connected, then try again")
                })
            }
            ClientError::ParseError(error) => {
                Self::failed(format!("the daemon's answer could not be read: {error}"))
                    .hint("sessionctl and sessiond have different versions; stop the daemon: sessionctl stop")
            }
            other => Self::failed(other.to_string()),
        }
    }
}

impl From<Untrusted> for Problem {
    fn from(error: Untrusted) -> Self {
        Self::no_daemon(error.to_string())
            .hint(error.hint("sessionctl"))
            .with_details(json!({
                "path": error.culprit,
                "owner": error.owner_uid,
                "mode": format!("{:03o}", error.mode),
            }))
    }
}

impl From<PathsError> for Problem {
    fn from(error: PathsError) -> Self {
        let hint = match &error {
            PathsError::Relative { source_name, path } => {
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                let path = shell_word(&path.to_string_lossy());
                match source_name.starts_with("--") {
                    true => format!("as an absolute path: sessionctl {source_name} {path}"),
                    false => format!("as an absolute path: export {source_name}={path}"),
                }
            }
            PathsError::NoHome => {
                "keep everything in this folder: sessionctl --home \"$PWD/sessiond\" status".to_owned()
            }
        };
        Self::usage(error.to_string()).hint(hint)
    }
}

/// The daemon's message, with times converted to the user's time zone.
fn message_of(error: &BridgeError) -> String {
    let (id, deleted) = (data_text(error, "conversationId"), data_text(error, "deletedAt"));
    match (id, deleted.and_then(|at| at.parse::<Timestamp>().ok())) {
        (Some(id), Some(at)) => {
            let at = Clock::here().date(at);
            format!("conversation {id} was deleted at {at}; its id is never used again")
        }
        _ => error.message.clone(),
    }
}

/// The value of a key in an error's data, if it is text.
fn data_text(error: &BridgeError, key: &str) -> Option<String> {
    error.detail(key).as_str().map(str::to_owned)
}

/// The hint for an error of the daemon whose message does not always contain one.
fn hint_for(error: &BridgeError) -> Option<String> {
    let id = data_text(error, "conversationId").map(|id| humanize::short(&id));
    if let Some(hint) = id.and_then(|id| hint_about(error, &id)) {
        return Some(hint);
    }
    let hint = match error.kind {
        ErrorKind::InvalidParams if error.detail("parameter") == "title" => "give a shorter title",
        // The message says what to do.
        ErrorKind::NotFound if !error.detail("configurationChanged").is_null() => return None,
        ErrorKind::NotFound if !error.detail("agent").is_null() => "sessionctl agents lists them",
        ErrorKind::NotFound => "sessionctl ls lists the conversations",
        ErrorKind::Ambiguous => "give more characters of the id; sessionctl ls lists them",
        ErrorKind::AgentUnavailable => "sessionctl agents lists the agents and whether they were found",
        ErrorKind::AuthRequired => "sign in with the agent's own program, then try again",
        ErrorKind::Limited => "try again after the limit resets",
        ErrorKind::ShuttingDown => "try again in a moment",
        ErrorKind::StoreFailed => "sessionctl doctor checks the store and its disk",
        ErrorKind::RevisionMismatch => "another client changed it; read it again and repeat the command",
        ErrorKind::MethodNotFound => {
            "the daemon is older than sessionctl; run sessionctl stop, and the next command starts the new one"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

/// The hint for an error about the conversation with this id.
fn hint_about(error: &BridgeError, id: &str) -> Option<String> {
    let hint = match error.kind {
        ErrorKind::NotFound if !error.detail("deletedAt").is_null() => {
            "its transcripts can be adopted if they were kept; list them: sessionctl transcripts".to_owned()
        }
        ErrorKind::Busy => format!("see what it is doing: sessionctl show {id}"),
        ErrorKind::InvalidCwd => {
            format!("in the conversation's new folder, run: sessionctl mv {id} .")
        }
        ErrorKind::NotResumable => format!(
            "list what was tried: sessionctl lineage {id}; start an empty session (can be undone): sessionctl reset {id}"
        ),
        ErrorKind::InterruptResolved => format!("list the open questions: sessionctl show {id}"),
        _ => return None,
    };
    Some(hint)
}

/// The problem to report for a turn of this conversation, unless it ended well. `is_said`: whether the agent's answer already
/// ended with the failure's message.
pub(super) fn of_turn(turn: &TurnResult, advice: &Advice, is_said: bool, clock: &Clock) -> Option<Problem> {
    let exit = Exit::of_turn(turn);
    let Some(failure) = &turn.failure else {
        let message = match &turn.stop_reason {
            StopReason::EndTurn => return None,
            StopReason::Cancelled => "the turn was cancelled",
            StopReason::Refusal => "the model declined to continue",
            StopReason::MaxTokens => "the answer was cut off at the model's output limit",
            StopReason::MaxTurnRequests => "the agent reached its limit of model requests in one turn",
            StopReason::Failed => "the turn failed",
            StopReason::Other(reason) => &format!("the agent stopped with the reason {}", one_line(reason)),
            _ => "the turn stopped for an unknown reason",
        };
        return Some(Problem::new(exit, message));
    };
    let kind = humanize::failure(failure.kind);
    // Some messages already begin with these words.
    let mut message = match failure.message.strip_prefix(kind) {
        _ if is_said => kind.to_owned(),
        Some(rest) => format!("{kind}{rest}"),
        None => format!("{kind}: {}", failure.message),
    };
    if let Some(at) = failure.resets_at {
        message.push_str(&format!("; the limit resets at {}", clock.time_and_distance(at)));
    }
    let problem = Problem::new(exit, message);
    let continuing = |options| advice.continue_turn(options);
    if let Some(continuation) = &turn.continuation {
        let at = clock.time_and_distance(continuation.at);
        return Some(problem.hint(format!(
            "continues at {at}; cancel with: {}",
            continuing("--cancel")
        )));
    }
    let hint = match failure.kind {
        FailureKind::RateLimited => {
            let reset = continuing("--at-reset");
            format!("nothing is lost; continue at the reset with: {reset}")
        }
        FailureKind::AuthRequired => {
            format!("sign in with the agent's own program, then: {}", continuing(""))
        }
        FailureKind::AgentDied | FailureKind::DaemonRestarted => {
            format!(
                "the history has what the agent saved, which may lack the end of its answer; continue with: {}",
                continuing("")
            )
        }
        FailureKind::ContextOverflow => {
            format!(
                "branch off before the history grew too long: {}; or start an empty session (can be undone): \
                 sessionctl reset {}",
                advice.fork("-2"),
                advice.conversation
            )
        }
        FailureKind::InvalidRequest => return Some(problem),
        _ if failure.message.contains(DISK_FULL) => {
            format!("free some space on the disk, then: {}", continuing(""))
        }
        _ if failure.retryable => format!("continue in a moment with: {}", continuing("")),
        _ => format!("continue with: {}", continuing("")),
    };
    Some(problem.hint(hint))
}

#[cfg(test)]
mod tests {
    use bridge_protocol::turn::Failure;

    use super::*;

    fn turn(stop_reason: StopReason, failure: Option<Failure>) -> TurnResult {
        TurnResult {
            turn_id: "turn".into(),
            stop_reason,
            failure,
            upstream_id: "up".into(),
            resumed: None,
            usage: None,
            other: None,
            continuation: None,
        }
    }

    fn problem(stop_reason: StopReason, failure: Option<Failure>) -> Option<Problem> {
        let clock = Clock {
            now: "2026-11-03T12:00:00Z".parse().unwrap(),
            zone: jiff::tz::TimeZone::UTC,
        };
        let advice = Advice::new("5d0c2a4e", false);
        of_turn(&turn(stop_reason, failure), &advice, false, &clock)
    }

    #[test]
    fn a_message_that_says_its_kind_is_not_given_it_again() {
        for (message, expected) in [
            (
                "the agent's process ended (signal 9)",
                "the agent's process ended (signal 9)",
            ),
            ("it is gone", "the agent's process ended: it is gone"),
        ] {
            let failure = Failure {
                kind: FailureKind::AgentDied,
                message: message.to_owned(),
                resets_at: None,
                retryable: true,
                upstream: None,
            };
            let problem = problem(StopReason::Failed, Some(failure)).unwrap();
            assert_eq!(problem.message.as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_good_end_is_no_problem_and_a_cut_answer_is() {
        assert!(problem(StopReason::EndTurn, None).is_none());
        assert_eq!(problem(StopReason::MaxTokens, None).unwrap().exit.code(), 1);
    }
}
