//! The error that a command reports for a turn that did not end well.
//!
//! Pure: the result of a turn in, an error with a hint out.

use bridge_protocol::turn::{FailureKind, StopReason, TurnResult};

use crate::cli::advice::Advice;
use crate::cli::humanize::{self, Clock};
use crate::cli::output::one_line;
use crate::cli::problem::{Exit, Problem};

/// The problem to report for a turn of this conversation, unless it ended well. `is_said`: whether the agent's answer already
/// ended with the failure's message.
pub(super) fn problem_of(
    turn: &TurnResult,
    advice: &Advice,
    is_said: bool,
    clock: &Clock,
) -> Option<Problem> {
    let exit = Exit::of_turn(turn);
    let Some(failure) = &turn.failure else {
        let message = match &turn.stop_reason {
            StopReason::EndTurn => return None,
            StopReason::Cancelled => "the turn was cancelled",
            StopReason::Refusal => "the model declined to continue",
            StopReason::MaxTokens => "the answer was cut off at the model's output limit",
            StopReason::MaxTurnRequests => "the agent stopped at its limit of model requests in one turn",
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
            format!("start a new chat with: sessionctl reset {}", advice.conversation)
        }
        _ if failure.retryable => format!("continue in a moment with: {}", continuing("")),
        _ => return Some(problem),
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
        problem_of(&turn(stop_reason, failure), &advice, false, &clock)
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
