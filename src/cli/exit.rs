//! Exit codes, which scripts can rely on.
//!
//! It owns the mapping from errors, failures and stop reasons to codes. It must not know how anything is printed.

use std::process::ExitCode;

use bridge_protocol::ErrorKind;
use bridge_protocol::turn::{FailureKind, StopReason, TurnResult};

/// How a command ended.
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
