//! What went wrong at the agent, told from what it said: one table for every kind of agent.
//!
//! Data decides before text, and text only where there is no data: the JSON-RPC code, the agents' own error
//! kinds in `data`, an HTTP status in `data`, the failure record in `_meta`; then the words of the message.
//! [`classify`] names a failure that is known to be one, [`failure_of_result`] finds those that come dressed
//! as an ordinary end of turn, [`TurnSigns`] collects from a turn's updates what both may need.
//!
//! This room must not know what is done about a failure, which conversation it belongs to (the evidence is
//! that of one turn, so one conversation's failure never classifies another's), or the wire names of the
//! bridge's own protocol. Pure: the time comes in as a parameter.

mod plain;
mod reset_time;
mod signs;
mod tables;

use jiff::{Timestamp, Zoned};
use serde_json::Value;

use crate::agent::profile::AgentKind;

pub use plain::plain;
use signs::CodexRetry;
pub use signs::{RateLimitNotice, RateLimitStatus, TurnSigns};

/// What kind of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// A usage or rate limit refused the prompt. It lifts, often at a known time.
    RateLimited,
    /// The model's servers are overloaded for everybody: no limit of this user, no question of credit.
    Overloaded,
    /// The agent is not signed in, or its account may not do this.
    AuthRequired,
    /// The history and prompt are larger than the model's window.
    ContextOverflow,
    /// The model's servers could not be reached, or the connection broke.
    Network,
    /// The agent or the model refused the request as such; sending it again changes nothing.
    InvalidRequest,
    /// The agent's process ended.
    AgentDied,
    /// The daemon was restarted while the turn ran. Never found by classification.
    DaemonRestarted,
    /// None of these could be told.
    Unknown,
}

impl FailureKind {
    /// Its name in camelCase, as programs read it.
    pub fn as_str(self) -> &'static str {
        match self {
            FailureKind::RateLimited => "rateLimited",
            FailureKind::Overloaded => "overloaded",
            FailureKind::AuthRequired => "authRequired",
            FailureKind::ContextOverflow => "contextOverflow",
            FailureKind::Network => "network",
            FailureKind::InvalidRequest => "invalidRequest",
            FailureKind::AgentDied => "agentDied",
            FailureKind::DaemonRestarted => "daemonRestarted",
            FailureKind::Unknown => "unknown",
        }
    }
}

/// A classified failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What kind it is.
    pub kind: FailureKind,
    /// The agent's own words, without its wrapping, and without what steers a terminal. Never empty.
    pub message: String,
    /// When the limit lifts, where that is known. Only with [`FailureKind::RateLimited`].
    pub resets_at: Option<Timestamp>,
    /// Whether the same prompt may succeed later though nothing but time changes.
    pub retryable: bool,
    /// Whether the agent said that it does not have the session: a matter for recovery, not for the user.
    pub session_unknown: bool,
}

/// What is known of one call that went wrong, or of one turn's end. All of it may be missing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Evidence<'a> {
    /// Code of the JSON-RPC error.
    pub code: Option<i64>,
    /// Message of the JSON-RPC error.
    pub message: Option<&'a str>,
    /// `data` of the JSON-RPC error.
    pub data: Option<&'a Value>,
    /// The whole result, when the prompt was answered with one (`stopReason`, `usage`, `_meta`).
    pub result: Option<&'a Value>,
    /// What the turn's updates said beside.
    pub signs: Option<&'a TurnSigns>,
}

impl<'a> Evidence<'a> {
    /// Evidence of a JSON-RPC error object.
    pub fn of_error(error: &'a Value) -> Self {
        Evidence {
            code: error.get("code").and_then(Value::as_i64),
            message: error.get("message").and_then(Value::as_str),
            data: error.get("data").filter(|data| !data.is_null()),
            ..Evidence::default()
        }
    }

    /// Evidence of the result of a `session/prompt`.
    pub fn of_result(result: &'a Value) -> Self {
        Evidence {
            result: Some(result),
            ..Evidence::default()
        }
    }

    /// The same with what the turn's updates said.
    pub fn with_signs(self, signs: &'a TurnSigns) -> Self {
        Evidence {
            signs: Some(signs),
            ..self
        }
    }
}

/// What a source of evidence says by itself. Each part may be unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Verdict {
    kind: FailureKind,
    retryable: bool,
}

impl Verdict {
    /// The verdict with the kind's usual answer to whether trying later may help.
    fn of(kind: FailureKind) -> Verdict {
        let retryable = match kind {
            FailureKind::RateLimited
            | FailureKind::Overloaded
            | FailureKind::Network
            | FailureKind::AgentDied
            | FailureKind::DaemonRestarted => true,
            FailureKind::AuthRequired
            | FailureKind::ContextOverflow
            | FailureKind::InvalidRequest
            | FailureKind::Unknown => false,
        };
        Verdict { kind, retryable }
    }

    /// The verdict for something that time alone does not mend.
    fn lasting(kind: FailureKind) -> Verdict {
        Verdict {
            kind,
            retryable: false,
        }
    }

    /// Something broke at the servers, of a kind that is not told but usually passes.
    fn passing_fault() -> Verdict {
        Verdict {
            kind: FailureKind::Unknown,
            retryable: true,
        }
    }
}

/// Names a failure that is known to be one: a JSON-RPC error, or a result for which
/// [`failure_of_result`] would not be None. `now` dates a reset time that is told as a time of day; its zone
/// is that of texts that name none.
pub fn classify(agent: AgentKind, evidence: &Evidence<'_>, now: &Zoned) -> Failure {
    let record = failure_record(evidence);
    let texts = texts_of(evidence, record);
    let joined = texts.join("\n").to_lowercase();

    let verdict = tables::by_agent_error_kind(evidence.data, &joined)
        .or_else(|| tables::by_codex_server_gone(agent, evidence.code, evidence.data))
        .or_else(|| tables::by_codex_error(codex_error_info(evidence), &joined))
        .or_else(|| record.and_then(|record| tables::by_failure_record(agent, record, &joined)))
        .or_else(|| evidence.code.and_then(tables::by_code))
        .or_else(|| http_status(evidence).map(|status| tables::by_http_status(status, &joined)))
        .or_else(|| tables::by_text(&joined))
        .unwrap_or_else(|| match evidence.code {
            Some(code) => tables::by_code_alone(code),
            None => Verdict::of(FailureKind::Unknown),
        });

    let session_unknown = is_session_unknown(agent, evidence, &joined);
    let verdict = if session_unknown {
        Verdict::of(FailureKind::InvalidRequest)
    } else if is_session_held(agent, evidence) {
        Verdict {
            kind: FailureKind::InvalidRequest,
            retryable: true,
        }
    } else {
        verdict
    };
    // A reset time beside another failure belongs to a limit that did not cause it.
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

/// The failure in a turn that was answered with a result, None when the turn simply ended. Never judged by
/// the stop reason alone, and never by the model's prose: what counts is a failure record in `_meta`, and for
/// Codex, which reports most failures as `end_turn`, a thread that it declared broken.
pub fn failure_of_result(agent: AgentKind, evidence: &Evidence<'_>, now: &Zoned) -> Option<Failure> {
    let stop_reason = evidence.result?.get("stopReason").and_then(Value::as_str);
    if stop_reason == Some("cancelled") {
        return None;
    }
    let recorded = failure_record(evidence).is_some();
    let broken = agent == AgentKind::Codex && evidence.signs.is_some_and(TurnSigns::thread_broke);
    (recorded || broken).then(|| classify(agent, evidence, now))
}

/// The failure of an agent whose process ended, with the last words of its standard error as the message.
pub fn agent_died(status: &str, standard_error: &str) -> Failure {
    let standard_error = plain(standard_error);
    let last_words = standard_error.lines().rev().find(|line| !line.trim().is_empty());
    let message = match last_words {
        Some(line) => format!("the agent's process ended ({status}): {}", line.trim()),
        None => format!("the agent's process ended ({status})"),
    };
    Failure {
        kind: FailureKind::AgentDied,
        message,
        resets_at: None,
        retryable: true,
        session_unknown: false,
    }
}

/// `_meta.jetbrains.air.sessionFailure` of the result, unless it is only a warning.
fn failure_record<'a>(evidence: &Evidence<'a>) -> Option<&'a Value> {
    let record = evidence.result?.pointer("/_meta/jetbrains/air/sessionFailure")?;
    let severity = record.get("severity").and_then(Value::as_str);
    (record.is_object() && severity != Some("warning")).then_some(record)
}

/// `codexErrorInfo` of the error, else of what Codex tried again in this turn, where the turn ended with that.
fn codex_error_info<'a>(evidence: &Evidence<'a>) -> Option<&'a Value> {
    let in_error = evidence.data.and_then(|data| data.get("codexErrorInfo"));
    in_error.or_else(|| last_codex_retry(evidence)?.info())
}

/// What Codex tried again last, unless it got over that and something else ended the turn. The end names nothing but its words:
/// those of what was tried again, when it is the same.
fn last_codex_retry<'a>(evidence: &Evidence<'a>) -> Option<&'a CodexRetry> {
    let retry = evidence.signs?.codex_retry()?;
    let ending = evidence.message.or_else(|| evidence.signs?.last_notice());
    let is_the_end = match (retry.details(), ending) {
        (Some(details), Some(ending)) => ending.contains(details.trim()),
        _ => true,
    };
    is_the_end.then_some(retry)
}

/// An HTTP status told as data: in the error's `data`, or as the code itself (Gemini answers 429 so).
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

/// Everything that was said about the failure, the most telling first, without empty ones.
fn texts_of<'a>(evidence: &Evidence<'a>, record: Option<&'a Value>) -> Vec<&'a str> {
    let member = |value: Option<&'a Value>, name: &str| {
        value.and_then(|value| value.get(name)).and_then(Value::as_str)
    };
    let is_error = evidence.code.is_some() || evidence.message.is_some();
    // What the model says in a turn that ended with an error proves nothing; in Codex's broken turns the
    // explanation is a chunk, and there is no other.
    let spoken = if is_error {
        None
    } else {
        evidence.signs.and_then(TurnSigns::last_notice)
    };
    let candidates = [
        member(record, "title"),
        member(record, "details"),
        evidence.message.map(without_wrapping),
        member(evidence.data, "message"),
        member(evidence.data, "details"),
        evidence.data.and_then(Value::as_str),
        spoken,
        last_codex_retry(evidence).and_then(CodexRetry::details),
    ];
    candidates
        .into_iter()
        .flatten()
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .collect()
}

/// The message without the prefix that the adapters put before every internal error. Empty when nothing else
/// was said.
fn without_wrapping(message: &str) -> &str {
    let message = message.trim();
    match message.strip_prefix("Internal error") {
        Some(rest) => rest.strip_prefix(':').unwrap_or(rest).trim(),
        None => message,
    }
}

fn message_of(evidence: &Evidence<'_>, texts: &[&str], kind: FailureKind) -> String {
    let said = texts.iter().copied().chain(evidence.message);
    let told = said
        .map(|text| plain(text).trim().to_owned())
        .find(|text| !text.is_empty());
    told.unwrap_or_else(|| match evidence.code {
        Some(code) => format!("the agent answered with error {code} and no message"),
        None => format!("the agent gave no reason ({})", kind.as_str()),
    })
}

/// Whether the agent says that it does not have the session that it was asked for.
fn is_session_unknown(agent: AgentKind, evidence: &Evidence<'_>, joined: &str) -> bool {
    /// "Resource not found" of ACP. Answered by Claude for a session that it cannot load, never wrote, or
    /// whose own process died.
    const NOT_FOUND: i64 = -32002;
    if evidence.code == Some(NOT_FOUND) {
        return true;
    }
    if evidence.code.is_none() {
        return false;
    }
    match agent {
        AgentKind::Claude | AgentKind::Loopback => joined.contains("requires a valid session id"),
        AgentKind::Codex => {
            // The latter of a session that it has just opened, when it turns to a file that was moved.
            joined.contains("no rollout found")
                || joined.contains("thread not found")
                // One that it had opened and nothing was written of yet: the server below the adapter ended meanwhile.
                || joined.contains("was lost when the codex app-server restarted")
                || (joined.contains("session ") && joined.contains(" is archived"))
        }
        AgentKind::Gemini | AgentKind::Opencode | AgentKind::Generic => joined.contains("session not found"),
    }
}

/// Whether the agent says that somebody else writes to the session that it was asked for, so that it opens it only when that
/// one is done. Codex' app-server counts among those for a minute, or to its end, what it has been told to close.
pub fn is_session_held(agent: AgentKind, evidence: &Evidence<'_>) -> bool {
    if agent != AgentKind::Codex || evidence.code.is_none() {
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

/// When the limit lifts: by the agent's own event, by data, then by what the text says.
fn resets_at(evidence: &Evidence<'_>, texts: &[&str], now: &Zoned) -> Option<Timestamp> {
    let announced = evidence
        .signs
        .and_then(TurnSigns::rejected)
        .and_then(|notice| notice.resets_at);
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
