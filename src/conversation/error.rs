//! Errors of calls about a conversation. The room `bridge` maps them to wire codes.

use std::fmt;
use std::path::{Path, PathBuf};

use bridge_protocol::conversation::{Limit, SessionInfo};
use bridge_protocol::link::{Attempt, Fidelity};
use bridge_protocol::raw::RawJson;
use bridge_protocol::{AgentName, CheckpointId, ConversationId};
use jiff::Timestamp;
use tokio::task::JoinError;

use super::services::chain_text;
use crate::store::StoreError;
use crate::transcript::TranscriptError;

/// Why a call about a conversation was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConversationError {
    /// There is no such conversation, session or question.
    #[error("{what}")]
    NotFound {
        /// What was not found, as a sentence.
        what: String,
    },
    /// There is no such agent.
    #[error(
        "there is no agent \"{name}\"; the agents are: {known}. {}",
        agent_advice(install.as_deref(), config_problem.as_deref())
    )]
    UnknownAgent {
        /// What was looked for.
        name: AgentName,
        /// The names of all agents.
        known: String,
        /// The command that installs it, if the daemon finds this agent automatically.
        install: Option<String>,
        /// What a user has to do so that the daemon uses the present configuration file, if it differs from the one in use.
        config_problem: Option<String>,
    },
    /// There is no such checkpoint.
    #[error("there is no checkpoint \"{id}\" here; sessionctl checkpoints lists them")]
    CheckpointNotFound {
        /// What was looked for.
        id: CheckpointId,
    },
    /// The conversation was deleted.
    #[error("conversation {id} was deleted at {at:.3}; its id is never used again")]
    Deleted {
        /// Which.
        id: ConversationId,
        /// When.
        at: Timestamp,
    },
    /// The name matches several conversations.
    #[error("{}", ambiguous(name, candidates, *is_whole))]
    Ambiguous {
        /// The given name.
        name: String,
        /// The matching conversations.
        candidates: Vec<ConversationId>,
        /// Whether it is a complete upstream id, so that more characters would not help.
        is_whole: bool,
    },
    /// The user's input matches several conversations.
    #[error("\"{name}\" matches {} conversations: {}; use the id of one of them", candidates.len(), title_list(candidates))]
    AmbiguousName {
        /// The given name.
        name: String,
        /// The matching conversations; only some if there are many.
        candidates: Vec<Candidate>,
    },
    /// The ids of several transcripts start with the user's input.
    #[error(
        "\"{name}\" matches {count} transcripts: {}{}; give more characters",
        title_list(candidates), if candidates.len() < *count { ", …" } else { "" }
    )]
    AmbiguousTranscript {
        /// The given name.
        name: String,
        /// Which transcripts; only some if there are many.
        candidates: Vec<Candidate>,
        /// How many there are.
        count: usize,
    },
    /// The user's input matches no conversation.
    #[error(
        "no conversation matches \"{name}\"; give its id, the agent's own session id, at least 6 characters of either, or a \
         part of its title"
    )]
    NoConversation {
        /// The given name.
        name: String,
        /// The transcripts whose ids start with it and that can be adopted; only some if there are many.
        transcripts: Vec<Candidate>,
    },
    /// Several agents have a transcript with this id.
    #[error(
        "several agents have a transcript \"{name}\": {}; pass one of them as agent",
        join_list(agents)
    )]
    AmbiguousAgents {
        /// The given name.
        name: String,
        /// Which agents.
        agents: Vec<AgentName>,
    },
    /// Nothing can be resumed from the transcript.
    #[error("{0}")]
    TranscriptDamaged(String),
    /// Something else has to end first.
    #[error("{0}")]
    Busy(String),
    /// A turn runs in some of the conversations that a call is about.
    #[error("{what}")]
    BusyConversations {
        /// What runs, as a sentence.
        what: String,
        /// Which.
        conversations: Vec<ConversationId>,
    },
    /// The move to undo was part of a move of the whole folder.
    #[error(
        "the conversation was moved together with its folder; undo the move of the folder: sessionctl mv --undo {undo_id}"
    )]
    PartOfTree {
        /// The id for `transcript/undo`.
        undo_id: String,
    },
    /// The folder cannot be used.
    #[error("{0}")]
    InvalidCwd(String),
    /// A parameter cannot be used.
    #[error("{why}")]
    InvalidParams {
        /// The parameter, or the place in it: `settings.model`.
        parameter: &'static str,
        /// Why not, as a sentence.
        why: String,
    },
    /// The agent's program cannot be run.
    #[error("{0}")]
    AgentUnavailable(String),
    /// The agent answered with an error.
    #[error("{message}")]
    AgentError {
        /// The agent's words.
        message: String,
        /// Its JSON-RPC error.
        upstream: Option<RawJson>,
    },
    /// The agent does not accept a setting.
    #[error("{message}")]
    SettingRefused {
        /// Which setting, its value, and the agent's words.
        message: String,
        /// Which setting: `model`, `mode` or the id of an option.
        setting: String,
        /// Its JSON-RPC error.
        upstream: Option<RawJson>,
        /// What the session offers.
        offered: Box<SessionInfo>,
    },
    /// The agent's failure is temporary: a usage limit, an overloaded server, no network, a session that another
    /// program writes to, or no answer in time.
    #[error("{message}")]
    Transient {
        /// The agent's words.
        message: String,
        /// Its JSON-RPC error.
        upstream: Option<RawJson>,
        /// The limit, if the failure is a usage limit.
        limit: Option<Limit>,
    },
    /// The agent requires a sign-in.
    #[error("{message}")]
    AuthRequired {
        /// The agent's words.
        message: String,
        /// Its JSON-RPC error.
        upstream: Option<RawJson>,
    },
    /// The operation is not supported.
    #[error("{0}")]
    Unsupported(String),
    /// The session could not be brought back with the requested fidelity.
    #[error("the session could not be reopened{}; {}", required_history(*wanted), attempts_text(attempts))]
    NotResumable {
        /// The least fidelity that was requested.
        wanted: Fidelity,
        /// Everything that was tried.
        attempts: Vec<Attempt>,
    },
    /// The call conflicts with the present state.
    #[error("{0}")]
    Conflict(String),
    /// Restoring a backup would replace an existing file.
    #[error(
        "{} exists and differs from the backup; to restore the backup, move that file away first",
        path.display()
    )]
    NotReplaced {
        /// Which.
        path: PathBuf,
    },
    /// The question has been answered.
    #[error("the question was already answered by {by}")]
    InterruptResolved {
        /// Who answered it first.
        by: String,
    },
    /// Another client changed the conversation first.
    #[error("the conversation is at revision {is}, not {expected}; read it again and repeat the change")]
    RevisionMismatch {
        /// What was expected.
        expected: u64,
        /// What it is.
        is: u64,
    },
    /// The change could not be made durable, or a file could not be read.
    #[error("{0}")]
    StoreFailed(StoreFailure),
    /// The daemon is stopping.
    #[error("the daemon is stopping")]
    ShuttingDown,
    /// An error about a conversation or session whose id the caller needs, because it is new or the call named it otherwise.
    #[error("{error}")]
    WithId {
        /// The member of the error's data that has the id.
        member: &'static str,
        /// The whole id.
        id: String,
        /// Why.
        error: Box<ConversationError>,
    },
    /// An internal failure: a task or thread panicked, or a value could not be encoded.
    #[error("an internal error interrupted the call; try again, and see the daemon's log if it fails again")]
    Internal,
}

impl ConversationError {
    /// The error for an invalid parameter.
    #[must_use]
    pub fn invalid(parameter: &'static str, why: impl Into<String>) -> Self {
        Self::InvalidParams {
            parameter,
            why: why.into(),
        }
    }

    /// This error with the id of the conversation or session, as this member of the error's data.
    #[must_use]
    pub fn with_id(self, member: &'static str, id: &impl ToString) -> Self {
        Self::WithId {
            member,
            id: id.to_string(),
            error: Box::new(self),
        }
    }

    /// The error for a cursor that no page of the list has.
    #[must_use]
    pub(super) fn invalid_cursor() -> Self {
        Self::invalid(
            "cursor",
            "invalid cursor; use a cursor that an earlier page returned, or none",
        )
    }

    /// The error for a parameter that names a file with invalid content.
    #[must_use]
    pub(super) fn in_named_file(self, parameter: &'static str) -> Self {
        match self {
            Self::InvalidParams { why, .. } => Self::InvalidParams { parameter, why },
            other => other,
        }
    }
}

/// A conversation or transcript that the user may have meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its id.
    pub id: String,
    /// Its title. Empty if it has none or was deleted.
    pub title: String,
}

/// Why something could not be made durable, or read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFailure {
    /// What went wrong, with its causes and, if known, what to do.
    pub text: String,
    /// Whether the same call may succeed later.
    pub is_transient: bool,
    /// The file of a session that the disk failed to read. If that is due to a bad sector, no later call succeeds.
    pub unreadable: Option<PathBuf>,
}

impl From<StoreError> for ConversationError {
    fn from(error: StoreError) -> Self {
        Self::StoreFailed((&error).into())
    }
}

/// Why a transcript cannot be read or restored. A temporary error, such as a full disk, is no sign of a damaged transcript.
impl From<TranscriptError> for ConversationError {
    fn from(error: TranscriptError) -> Self {
        let what = chain_text(&error);
        match error {
            TranscriptError::AlreadyExists { path } => Self::NotReplaced { path },
            _ if error.is_absence() => Self::NotFound { what },
            _ => Self::from_damage(&error, |what| what),
        }
    }
}

impl ConversationError {
    /// Whether a read or write failed that may succeed later.
    #[must_use]
    pub(super) fn is_transient_failure(&self) -> bool {
        matches!(self, Self::StoreFailed(failure) if failure.is_transient)
    }

    /// An error for a damaged transcript, with the message that `words` makes. A transient read error stays transient:
    /// it does not prove damage.
    pub(super) fn from_damage(error: &TranscriptError, words: impl FnOnce(String) -> String) -> Self {
        match StoreFailure::from_transient_read(error) {
            Some(failure) => Self::StoreFailed(failure),
            None => Self::TranscriptDamaged(words(chain_text(error))),
        }
    }
}

impl StoreFailure {
    /// Why a transcript could not be read, if the same call may succeed later.
    pub(super) fn from_transient_read(error: &TranscriptError) -> Option<Self> {
        error.is_passing().then(|| error.into())
    }
}

/// Work on another thread panicked.
impl From<JoinError> for ConversationError {
    fn from(_: JoinError) -> Self {
        Self::Internal
    }
}

impl From<&StoreError> for StoreFailure {
    fn from(error: &StoreError) -> Self {
        let mut text = chain_text(error);
        if let Some(path) = error.full_disk_path() {
            let folder = path.parent().unwrap_or(path).display();
            text = format!("{text}; free some room on the disk of {folder} and try again");
        }
        if !error.is_read_error() {
            text = unwritten(&text);
        }
        Self {
            text,
            is_transient: error.is_transient(),
            unreadable: None,
        }
    }
}

/// Why a change could not be written.
impl From<String> for StoreFailure {
    fn from(why: String) -> Self {
        Self {
            text: unwritten(&why),
            is_transient: false,
            unreadable: None,
        }
    }
}

fn unwritten(why: &str) -> String {
    format!("the change could not be written to disk: {why}")
}

/// Why a file of a session could not be read or written. The error says which of them.
impl From<&TranscriptError> for StoreFailure {
    fn from(error: &TranscriptError) -> Self {
        let (mut text, is_transient) = (chain_text(error), error.is_passing());
        if is_transient {
            text.push_str("; try again when that has passed");
        }
        Self {
            text,
            is_transient,
            unreadable: error.unreadable_path().map(Path::to_owned),
        }
    }
}

impl fmt::Display for StoreFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

fn ambiguous(name: &str, candidates: &[ConversationId], is_whole: bool) -> String {
    let (count, ids) = (candidates.len(), join_list(candidates));
    if is_whole {
        return format!(
            "\"{name}\" is the agent's session id of {count} conversations: {ids}; use the id of one of them"
        );
    }
    format!("\"{name}\" matches {count} conversations: {ids}; give more characters")
}

/// What helps if there is no agent of a name.
fn agent_advice(install: Option<&str>, config_problem: Option<&str>) -> String {
    match (config_problem, install) {
        (Some(problem), _) => problem.to_owned(),
        (None, Some(install)) => format!("To install it: {install} && sessionctl stop"),
        (None, None) => "Agents are configured in config.toml".to_owned(),
    }
}

/// Names or ids, as a sentence lists them.
pub(super) fn join_list<T: ToString>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    items.join(", ")
}

fn title_list(candidates: &[Candidate]) -> String {
    let each = candidates.iter().map(|candidate| match candidate.title.as_str() {
        "" => candidate.id.clone(),
        title => format!("{} {title}", candidate.id),
    });
    each.collect::<Vec<_>>().join(", ")
}

/// The attempts as text. Each available way is tried, so the list is empty only if the agent offers no way and there is no
/// history to send as text.
fn attempts_text(attempts: &[Attempt]) -> String {
    let why = attempts.last().and_then(|last| last.error.as_ref());
    match (attempts.len(), why) {
        (0, _) => "nothing was tried, because the agent can neither resume nor load a session and too little of the history \
                   can be read"
            .to_owned(),
        // A single reason says everything, for example that a session was archived.
        (1, Some(error)) => format!("1 attempt failed: {error}"),
        (1, None) => "1 attempt failed".to_owned(),
        // The error's details have the reason of each attempt. The message has that of the last one.
        (count, Some(error)) => format!("{count} attempts failed, the last one with: {error}"),
        (count, None) => format!("{count} attempts failed"),
    }
}

/// The least history that was requested, as the end of a clause.
fn required_history(fidelity: Fidelity) -> &'static str {
    match fidelity {
        Fidelity::Full => " with its whole history",
        Fidelity::Partial => ", not even with part of its history",
        Fidelity::Text => ", not even with its history as text",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;
    use std::sync::Arc;

    use rustix::io::Errno;

    use super::*;

    /// If these were reported as damage, users might delete transcripts that are intact.
    #[test]
    fn a_limit_of_the_system_and_a_failing_disk_are_no_damage() {
        let passing = [Errno::MFILE, Errno::NFILE, Errno::NOSPC, Errno::IO, Errno::STALE];
        for (errno, is_passing) in passing
            .map(|errno| (errno, true))
            .into_iter()
            .chain([(Errno::ACCESS, false)])
        {
            let of = ConversationError::from;
            let error = of(TranscriptError::io("read", Path::new("/t.jsonl"))(
                io::Error::from(errno),
            ));
            match error {
                ConversationError::StoreFailed(failure) => {
                    assert!(is_passing && failure.is_transient, "{errno}");
                    assert!(failure.text.contains("/t.jsonl"), "{failure}");
                }
                ConversationError::TranscriptDamaged(_) => assert!(!is_passing, "{errno}"),
                other => panic!("{errno}: {other:?}"),
            }
            let store = StoreError::Io {
                action: "write",
                path: "/journal.jsonl".into(),
                source: Arc::new(io::Error::from(errno)),
            };
            assert_eq!(StoreFailure::from(&store).is_transient, is_passing, "{errno}");
        }
    }
}
