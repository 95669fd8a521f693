//! Classifies what went wrong at an agent. One table for all kinds of agents.
//!
//! Data takes precedence over text: the JSON-RPC code, the agents' own error kinds in `data`, an HTTP status in
//! `data`, and the failure record in `_meta`. Only without data do the words of the message decide. [`classify`]
//! classifies a known failure, [`failure_of_result`] detects failures that look like an ordinary end of turn, and
//! [`FailureSigns`] collects the evidence from a turn's updates.
//!
//! This module does not know how a failure is handled, or which conversation it belongs to.
//! The evidence is from one turn, so a failure never affects the classification in another conversation. Pure: the
//! time is a parameter.

mod reset_time;
mod signs;
mod tables;
mod terminal_text;

use jiff::{Timestamp, Zoned};
use serde_json::Value;

use crate::agent::kinds::AgentKind;

pub use bridge_protocol::turn::FailureKind;
use signs::CodexRetry;
pub use signs::FailureSigns;
pub use terminal_text::strip_terminal_codes;

/// A classified failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The kind of failure.
    pub kind: FailureKind,
    /// The agent's message, without wrapping and terminal control sequences, cut to a few KiB. Never empty.
    pub message: String,
    /// When the limit resets, if known. Only for [`FailureKind::RateLimited`].
    pub resets_at: Option<Timestamp>,
    /// Whether the same prompt may succeed later without any other change.
    pub retryable: bool,
    /// Whether the agent reported that it does not have the session. Recovery handles this, not the user.
    pub session_unknown: bool,
}

impl Failure {
    /// A failure that no agent reported, with the usual `retryable` of its kind.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Failure {
        Failure {
            kind,
            message: message.into(),
            resets_at: None,
            retryable: FailureVerdict::of(kind).retryable,
            session_unknown: false,
        }
    }
}

/// What is known about a failed call or the end of a turn. Any part may be missing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Evidence<'a> {
    /// Code of the JSON-RPC error.
    pub code: Option<i64>,
    /// Message of the JSON-RPC error.
    pub message: Option<&'a str>,
    /// `data` of the JSON-RPC error.
    pub data: Option<&'a Value>,
    /// The whole result, if the prompt got one (`stopReason`, `usage`, `_meta`).
    pub result: Option<&'a Value>,
    /// What the turn's updates showed.
    pub signs: Option<&'a FailureSigns>,
}

impl<'a> Evidence<'a> {
    /// Creates evidence from a JSON-RPC error object.
    pub fn of_error(error: &'a Value) -> Self {
        Evidence {
            code: error.get("code").and_then(Value::as_i64),
            message: error.get("message").and_then(Value::as_str),
            data: error.get("data").filter(|data| !data.is_null()),
            ..Evidence::default()
        }
    }

    /// Creates evidence from the result of a `session/prompt`.
    pub fn of_result(result: &'a Value) -> Self {
        Evidence {
            result: Some(result),
            ..Evidence::default()
        }
    }

    /// Adds what the turn's updates showed.
    pub fn with_signs(self, signs: &'a FailureSigns) -> Self {
        Evidence {
            signs: Some(signs),
            ..self
        }
    }
}

/// The conclusion from one source of evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FailureVerdict {
    kind: FailureKind,
    retryable: bool,
}

impl FailureVerdict {
    /// Creates a verdict with the usual `retryable` of its kind.
    fn of(kind: FailureKind) -> FailureVerdict {
        let retryable = matches!(
            kind,
            FailureKind::RateLimited
                | FailureKind::Overloaded
                | FailureKind::Network
                | FailureKind::AgentDied
                | FailureKind::DaemonRestarted
        );
        FailureVerdict { kind, retryable }
    }

    /// Creates a verdict for a failure that waiting does not fix.
    fn not_retryable(kind: FailureKind) -> FailureVerdict {
        FailureVerdict {
            kind,
            retryable: false,
        }
    }

    /// Creates a verdict for an unspecified server fault that usually passes.
    fn transient_server_fault() -> FailureVerdict {
        FailureVerdict {
            kind: FailureKind::Unknown,
            retryable: true,
        }
    }
}

/// Classifies a known failure: a JSON-RPC error, or a result for which [`failure_of_result`] is not `None`. `now` is
/// the date for a reset given as a time of day, and the time zone for texts that name none.
pub fn classify(agent: &AgentKind, evidence: &Evidence<'_>, now: &Zoned) -> Failure {
    let record = failure_record(evidence);
    let texts = texts_of(evidence, record);
    let joined = texts.join("\n").to_lowercase();

    let verdict = tables::by_agent_error_kind(evidence.data, &joined)
        .or_else(|| tables::by_codex_server_gone(evidence.code, evidence.data))
        .or_else(|| tables::by_codex_error(codex_error_info(evidence), &joined))
        .or_else(|| record.and_then(|record| tables::by_failure_record(agent, record, &joined)))
        .or_else(|| evidence.code.and_then(tables::by_code))
        .or_else(|| http_status(evidence).map(|status| tables::by_http_status(status, &joined)))
        .or_else(|| tables::by_text(&joined))
        .unwrap_or_else(|| match evidence.code {
            Some(code) => tables::by_code_alone(code),
            None => FailureVerdict::of(FailureKind::Unknown),
        });

    let session_unknown = is_session_unknown(agent, evidence, &joined);
    let verdict = if session_unknown {
        FailureVerdict::of(FailureKind::InvalidRequest)
    } else if is_session_in_use(evidence) {
        FailureVerdict {
            kind: FailureKind::InvalidRequest,
            retryable: true,
        }
    } else {
        verdict
    };
    // A reset time with another kind of failure belongs to a limit that did not cause it.
    let resets_at = (verdict.kind == FailureKind::RateLimited)
        .then(|| resets_at(evidence, &texts, now))
        .flatten();
    Failure {
        kind: verdict.kind,
        message: message_of(evidence, &texts, verdict.kind),
        resets_at,
        retryable: verdict.retryable,
        session_unknown,
    }
}

/// Returns the failure in a turn that was answered with a result, or `None` if the turn ended normally. Neither the
/// stop reason alone nor the model's prose counts: only a failure record in `_meta`, and for Codex, which reports
/// most failures as `end_turn`, a thread that it declared broken.
pub fn failure_of_result(agent: &AgentKind, evidence: &Evidence<'_>, now: &Zoned) -> Option<Failure> {
    let stop_reason = evidence.result?.get("stopReason").and_then(Value::as_str);
    if stop_reason == Some("cancelled") {
        return None;
    }
    let recorded = failure_record(evidence).is_some();
    let broken = evidence.signs.is_some_and(|signs| signs.is_thread_broken);
    (recorded || broken).then(|| classify(agent, evidence, now))
}

/// Creates the failure of an agent whose process ended. Its message is the last line of standard error.
pub fn agent_died(status: &str, standard_error: &str) -> Failure {
    let standard_error = strip_terminal_codes(standard_error);
    let last_words = standard_error.lines().rev().find(|line| !line.trim().is_empty());
    let message = match last_words {
        Some(line) => format!("the agent's process ended ({status}): {}", line.trim()),
        None => format!("the agent's process ended ({status})"),
    };
    Failure::new(FailureKind::AgentDied, message)
}

/// `_meta.jetbrains.air.sessionFailure` of the result, unless it is only a warning.
fn failure_record<'a>(evidence: &Evidence<'a>) -> Option<&'a Value> {
    let record = evidence.result?.pointer("/_meta/jetbrains/air/sessionFailure")?;
    let severity = record.get("severity").and_then(Value::as_str);
    (record.is_object() && severity != Some("warning")).then_some(record)
}

/// `codexErrorInfo` of the error, or of the last error that Codex retried, if the turn ended with that.
fn codex_error_info<'a>(evidence: &Evidence<'a>) -> Option<&'a Value> {
    let in_error = evidence.data.and_then(|data| data.get("codexErrorInfo"));
    in_error.or_else(|| last_codex_retry(evidence)?.info.as_ref())
}

/// Returns the last error that Codex retried, unless Codex recovered and something else ended the turn. The end
/// carries only a message, which contains the retried error's text if it is the same error.
fn last_codex_retry<'a>(evidence: &Evidence<'a>) -> Option<&'a CodexRetry> {
    let signs = evidence.signs?;
    let retry = signs.codex_retry.as_ref()?;
    let ending = evidence.message.or(signs.last_notice.as_deref());
    let is_the_end = match (&retry.details, ending) {
        (Some(details), Some(ending)) => ending.contains(details.trim()),
        _ => true,
    };
    is_the_end.then_some(retry)
}

/// Returns the HTTP status in the error's `data`, or given as the error code (Gemini sends 429 as the code).
fn http_status(evidence: &Evidence<'_>) -> Option<u16> {
    const NAMES: [&str; 4] = ["httpStatusCode", "httpStatus", "statusCode", "status"];
    let named = evidence
        .data
        .and_then(|data| NAMES.iter().find_map(|name| data.get(name)?.as_i64()));
    named
        .or(evidence.code)
        .filter(|status| (400..600).contains(status))
        .and_then(|status| u16::try_from(status).ok())
}

/// Returns all texts about the failure, the most informative first, without empty ones.
fn texts_of<'a>(evidence: &Evidence<'a>, record: Option<&'a Value>) -> Vec<&'a str> {
    let member = |value: Option<&'a Value>, name: &str| {
        value.and_then(|value| value.get(name)).and_then(Value::as_str)
    };
    let is_error = evidence.code.is_some() || evidence.message.is_some();
    // In a turn that ended with an error, the model's text proves nothing. In Codex's broken turns, the explanation
    // is a chunk and nothing else.
    let spoken = if is_error {
        None
    } else {
        evidence.signs.and_then(|signs| signs.last_notice.as_deref())
    };
    let candidates = [
        member(record, "title"),
        member(record, "details"),
        evidence.message.map(strip_adapter_prefix),
        member(evidence.data, "message"),
        member(evidence.data, "details"),
        evidence.data.and_then(Value::as_str),
        spoken,
        last_codex_retry(evidence).and_then(|retry| retry.details.as_deref()),
    ];
    candidates
        .into_iter()
        .flatten()
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .collect()
}

/// Removes the prefix that the adapters put before each internal error. Empty if there was nothing else.
fn strip_adapter_prefix(message: &str) -> &str {
    let message = message.trim();
    match message.strip_prefix("Internal error") {
        Some(rest) => rest.strip_prefix(':').unwrap_or(rest).trim(),
        None => message,
    }
}

fn message_of(evidence: &Evidence<'_>, texts: &[&str], kind: FailureKind) -> String {
    let texts_and_message = texts.iter().copied().chain(evidence.message);
    let first = texts_and_message
        .map(|text| strip_terminal_codes(text).trim().to_owned())
        .find(|text| !text.is_empty());
    let shortened = first.map(|text| match signs::bounded(&text) {
        start if start.len() < text.len() => format!("{start}…"),
        _ => text,
    });
    shortened.unwrap_or_else(|| match evidence.code {
        Some(code) => format!("the agent answered with error {code} and no message"),
        None => format!("the agent gave no reason ({})", word(kind)),
    })
}

/// The name of a kind, for programs.
fn word(kind: FailureKind) -> String {
    let word = serde_json::to_value(kind).unwrap_or_default();
    word.as_str().unwrap_or_default().to_owned()
}

/// Whether the agent reports that it does not have the requested session.
fn is_session_unknown(agent: &AgentKind, evidence: &Evidence<'_>, joined: &str) -> bool {
    /// ACP's "Resource not found". Claude sends it for a session that it cannot load, never wrote, or whose own
    /// process died.
    const NOT_FOUND: i64 = -32002;
    if evidence.code == Some(NOT_FOUND) {
        return true;
    }
    if evidence.code.is_none() {
        return false;
    }
    let occur = |words: &&[&str]| words.iter().all(|word| joined.contains(word));
    agent.unknown_session.iter().any(occur)
}

/// Whether the agent refuses to open the session because another writer still has it. Codex's app-server counts as a
/// writer for up to a minute after it was asked to close the session, or until it ends.
pub fn is_session_in_use(evidence: &Evidence<'_>) -> bool {
    if evidence.code.is_none() {
        return false;
    }
    let reason = evidence.data.and_then(|data| data.get("reason"));
    match reason.and_then(Value::as_str) {
        Some(reason) => reason == "thread_active_writer",
        None => texts_of(evidence, None)
            .iter()
            .any(|text| text.contains("already has an active writer")),
    }
}

/// Returns when the limit resets: from the agent's own event, from data, or else from the text.
fn resets_at(evidence: &Evidence<'_>, texts: &[&str], now: &Zoned) -> Option<Timestamp> {
    let announced = evidence.signs.and_then(|signs| signs.resets_at);
    let in_data = || {
        let seconds = ["resetsAt", "resets_at"]
            .iter()
            .find_map(|name| evidence.data?.get(name)?.as_i64())?;
        Timestamp::from_second(seconds).ok()
    };
    announced
        .or_else(in_data)
        .or_else(|| texts.iter().find_map(|text| reset_time::find(text, now)))
}

#[cfg(test)]
mod tests;
