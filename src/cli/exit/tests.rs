//! The exit codes that the contract promises.

use bridge_protocol::ErrorKind;
use bridge_protocol::turn::{Failure, FailureKind, StopReason, TurnResult};

use super::Exit;

fn turn(stop_reason: StopReason, failure: Option<FailureKind>) -> TurnResult {
    TurnResult {
        turn_id: "turn".into(),
        stop_reason,
        failure: failure.map(|kind| Failure {
            kind,
            message: String::new(),
            resets_at: None,
            retryable: false,
        }),
        upstream_id: "up".into(),
        resumed: None,
        usage: None,
        other: None,
        continuation: None,
    }
}

#[test]
fn errors_have_these_codes() {
    let table = [
        (ErrorKind::ParseError, 1),
        (ErrorKind::InvalidRequest, 1),
        (ErrorKind::MethodNotFound, 1),
        (ErrorKind::InvalidParams, 2),
        (ErrorKind::InternalError, 1),
        (ErrorKind::NotFound, 4),
        (ErrorKind::Ambiguous, 4),
        (ErrorKind::Busy, 5),
        (ErrorKind::InvalidCwd, 1),
        (ErrorKind::CheckpointNotFound, 4),
        (ErrorKind::AgentUnavailable, 6),
        (ErrorKind::AgentError, 6),
        (ErrorKind::AuthRequired, 6),
        (ErrorKind::Limited, 7),
        (ErrorKind::Unsupported, 1),
        (ErrorKind::NotResumable, 6),
        (ErrorKind::Conflict, 5),
        (ErrorKind::InterruptResolved, 5),
        (ErrorKind::ShuttingDown, 3),
        (ErrorKind::StoreFailed, 1),
        (ErrorKind::TranscriptDamaged, 1),
        (ErrorKind::RevisionMismatch, 5),
    ];
    let kinds: Vec<ErrorKind> = table.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, ErrorKind::ALL);
    for (kind, code) in table {
        assert_eq!(Exit::of_error(kind).code(), code, "{kind:?}");
    }
}

#[test]
fn turns_have_these_codes() {
    let table = [
        (StopReason::EndTurn, None, 0),
        (StopReason::MaxTokens, None, 1),
        (StopReason::MaxTurnRequests, None, 1),
        (StopReason::Refusal, None, 1),
        (StopReason::Cancelled, None, 1),
        (StopReason::Failed, None, 1),
        (StopReason::Other("tired".to_owned()), None, 1),
        (StopReason::Failed, Some(FailureKind::RateLimited), 7),
        (StopReason::Failed, Some(FailureKind::AgentDied), 6),
        (StopReason::Failed, Some(FailureKind::Overloaded), 6),
        (StopReason::Failed, Some(FailureKind::AuthRequired), 6),
        (StopReason::Failed, Some(FailureKind::ContextOverflow), 6),
        (StopReason::Failed, Some(FailureKind::Network), 6),
        (StopReason::Failed, Some(FailureKind::InvalidRequest), 6),
        (StopReason::Failed, Some(FailureKind::Unknown), 6),
        (StopReason::Failed, Some(FailureKind::DaemonRestarted), 1),
        // An agent that reports a limit as an ordinary end is limited all the same.
        (StopReason::EndTurn, Some(FailureKind::RateLimited), 7),
    ];
    for (stop_reason, failure, code) in table {
        let exit = Exit::of_turn(&turn(stop_reason.clone(), failure));
        assert_eq!(exit.code(), code, "{stop_reason:?} {failure:?}");
    }
}
