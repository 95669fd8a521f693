//! The classifier's tables: what each source of evidence means. The sources are independent, except that the text
//! refines vague ones.

use serde_json::Value;

use super::{FailureKind, FailureVerdict};
use crate::agent::kinds::AgentKind;

/// Classifies by `data.errorKind` (Claude and loopback): the error kinds of the Claude SDK and its adapter.
pub(super) fn by_agent_error_kind(data: Option<&Value>, text: &str) -> Option<FailureVerdict> {
    let kind = data?.get("errorKind")?.as_str()?;
    Some(match kind {
        "rate_limit" => FailureVerdict::of(FailureKind::RateLimited),
        "overloaded" => FailureVerdict::of(FailureKind::Overloaded),
        // No credit is a limit, but waiting does not reset it.
        "billing_error" => FailureVerdict::not_retryable(FailureKind::RateLimited),
        "authentication_failed"
        | "oauth_org_not_allowed"
        | "account_on_hold"
        | "verification_required"
        | "cloud_credential_error" => FailureVerdict::of(FailureKind::AuthRequired),
        "invalid_request" | "model_not_found" => {
            too_long(text).unwrap_or(FailureVerdict::of(FailureKind::InvalidRequest))
        }
        "transport_lost" | "worker_shutdown" => FailureVerdict::of(FailureKind::AgentDied),
        // These include a refused connection and 529. Only the text distinguishes them. None of them is a limit, even
        // if the text mentions one.
        "server_error" | "unknown" | "no_result" | "incomplete_tool_call" | "max_output_tokens" => {
            by_text(text)
                .filter(|verdict| verdict.kind != FailureKind::RateLimited)
                .unwrap_or_else(FailureVerdict::transient_server_fault)
        }
        _ => return None,
    })
}

/// Classifies by `codexErrorInfo`: a name, or an object with one member of that name that holds an HTTP status.
pub(super) fn by_codex_error(info: Option<&Value>, text: &str) -> Option<FailureVerdict> {
    let info = info?;
    let (name, detail) = match info {
        Value::String(name) => (name.as_str(), None),
        Value::Object(members) => {
            let (name, detail) = members.iter().next()?;
            (name.as_str(), Some(detail))
        }
        _ => return None,
    };
    let status = || {
        detail?
            .get("httpStatusCode")?
            .as_u64()
            .and_then(|status| u16::try_from(status).ok())
    };
    Some(match name {
        "usageLimitExceeded" | "rateLimitExceeded" => {
            no_credit(text).unwrap_or(FailureVerdict::of(FailureKind::RateLimited))
        }
        "contextWindowExceeded" => FailureVerdict::of(FailureKind::ContextOverflow),
        "serverOverloaded" => FailureVerdict::of(FailureKind::Overloaded),
        "unauthorized" => FailureVerdict::of(FailureKind::AuthRequired),
        "badRequest" | "cyberPolicy" | "sandboxError" => {
            too_long(text).unwrap_or(FailureVerdict::of(FailureKind::InvalidRequest))
        }
        "internalServerError" => by_http_status(500, text),
        "httpConnectionFailed"
        | "responseStreamConnectionFailed"
        | "responseStreamDisconnected"
        | "responseTooManyFailedAttempts" => match status() {
            Some(status) => by_http_status(status, text),
            // A limit that arrives within the stream is reported as a broken stream.
            None => by_text(text).unwrap_or(FailureVerdict::of(FailureKind::Network)),
        },
        _ => return None,
    })
}

/// Classifies error 1001 of Codex's adapter: its app-server ended. `data` says how it ended, whether the adapter
/// restarts it, and how long the adapter waits first (codex-acp 2.6.0).
pub(super) fn by_codex_server_gone(code: Option<i64>, data: Option<&Value>) -> Option<FailureVerdict> {
    const SERVER_GONE: i64 = 1001;
    let data = data.filter(|_| code == Some(SERVER_GONE))?;
    let is_restarted = data.get("restartable")?.as_bool()? || data.get("retryAfterMs").is_some();
    Some(if is_restarted {
        FailureVerdict::of(FailureKind::AgentDied)
    } else {
        FailureVerdict::not_retryable(FailureKind::AgentDied)
    })
}

/// Classifies by `_meta.jetbrains.air.sessionFailure`: a category, refined by the text.
pub(super) fn by_failure_record(agent: &AgentKind, record: &Value, text: &str) -> Option<FailureVerdict> {
    let offers = |action: &str| {
        let actions = record.get("actions").and_then(Value::as_array);
        actions.is_some_and(|actions| actions.iter().any(|offered| offered.as_str() == Some(action)))
    };
    Some(match record.get("category").and_then(Value::as_str)? {
        "limit" => match too_long(text) {
            Some(verdict) => verdict,
            // The budget of this session, which waiting does not refill.
            None if offers("new_session") => FailureVerdict::not_retryable(FailureKind::RateLimited),
            None => FailureVerdict::of(FailureKind::RateLimited),
        },
        "access" => FailureVerdict::of(FailureKind::AuthRequired),
        "request" => too_long(text).unwrap_or(FailureVerdict::of(FailureKind::InvalidRequest)),
        "connection" => FailureVerdict::of(agent.connection_failure),
        // The category of overload, never of a limit.
        "service" => by_text(text)
            .filter(|verdict| verdict.kind != FailureKind::RateLimited)
            .unwrap_or_else(FailureVerdict::transient_server_fault),
        _ => return None,
    })
}

/// Classifies JSON-RPC codes with only one meaning.
pub(super) fn by_code(code: i64) -> Option<FailureVerdict> {
    match code {
        -32000 => Some(FailureVerdict::of(FailureKind::AuthRequired)),
        _ => None,
    }
}

/// Classifies by the code if nothing else is known.
pub(super) fn by_code_alone(code: i64) -> FailureVerdict {
    match code {
        -32700 | -32600 | -32601 | -32602 | -32002 => FailureVerdict::of(FailureKind::InvalidRequest),
        _ => FailureVerdict::of(FailureKind::Unknown),
    }
}

/// Classifies by an HTTP status of the model's servers.
pub(super) fn by_http_status(status: u16, text: &str) -> FailureVerdict {
    match status {
        429 => FailureVerdict::of(FailureKind::RateLimited),
        401 | 403 => FailureVerdict::of(FailureKind::AuthRequired),
        402 => FailureVerdict::not_retryable(FailureKind::RateLimited),
        413 => FailureVerdict::of(FailureKind::ContextOverflow),
        408 => FailureVerdict::of(FailureKind::Network),
        502 | 503 | 504 | 529 => FailureVerdict::of(FailureKind::Overloaded),
        500..=599 => by_text(text)
            .filter(|verdict| verdict.kind == FailureKind::Overloaded)
            .unwrap_or_else(FailureVerdict::transient_server_fault),
        _ => too_long(text).unwrap_or(FailureVerdict::of(FailureKind::InvalidRequest)),
    }
}

/// Lower-case words that identify a failure without data. The first match is used, so the order matters. Before limits
/// come overload (whose advice mentions usage), a full context window ("limit 200000") and missing credit.
const BY_TEXT: &[(&[&str], FailureKind)] = &[
    (
        &[
            "overloaded",
            "at capacity",
            "experiencing high demand",
            "service unavailable",
            "server is busy",
        ],
        FailureKind::Overloaded,
    ),
    (TOO_LONG, FailureKind::ContextOverflow),
    (
        &[
            "process exited unexpectedly",
            "process ended unexpectedly",
            "worker is shutting down",
        ],
        FailureKind::AgentDied,
    ),
    (
        &[
            "hit your limit",
            "hit your usage limit",
            "usage limit reached",
            "rate limit",
            "rate_limit",
            "too many requests",
            "quota exceeded",
            "exceeded your current quota",
        ],
        FailureKind::RateLimited,
    ),
    (
        &[
            "authentication required",
            "failed to authenticate",
            "invalid api key",
            "invalid x-api-key",
            "please run /login",
            "not logged in",
            "unauthorized",
            "oauth token has expired",
        ],
        FailureKind::AuthRequired,
    ),
    (
        &[
            "econnrefused",
            "econnreset",
            "enotfound",
            "etimedout",
            "connection refused",
            "connection error",
            "connection reset",
            "network error",
            "stream disconnected",
            "error sending request",
            "fetch failed",
            "socket hang up",
            "getaddrinfo",
        ],
        FailureKind::Network,
    ),
    (
        &["invalid_request_error", "not found for model"],
        FailureKind::InvalidRequest,
    ),
];

const TOO_LONG: &[&str] = &[
    "prompt is too long",
    "input is too long",
    "request too large",
    "context window",
    "context length",
    "context_length_exceeded",
    "maximum context",
];

/// Words for missing credit: a limit that waiting does not reset.
const NO_CREDIT: &[&str] = &[
    "credit balance is too low",
    "out of credits",
    "insufficient_quota",
    "check your plan and billing details",
];

/// Classifies by the lower-case words of a failure.
pub(super) fn by_text(text: &str) -> Option<FailureVerdict> {
    let has = |needles: &[&str]| needles.iter().any(|needle| text.contains(needle));
    if let Some(verdict) = no_credit(text).filter(|_| !text.contains("overloaded")) {
        return Some(verdict);
    }
    if let Some((_, kind)) = BY_TEXT.iter().find(|(needles, _)| has(needles)) {
        return Some(FailureVerdict::of(*kind));
    }
    status_in(text).map(|status| match status {
        // Only statuses that are unlikely to be another number in this position.
        429 => FailureVerdict::of(FailureKind::RateLimited),
        401 | 403 => FailureVerdict::of(FailureKind::AuthRequired),
        502 | 503 | 504 | 529 => FailureVerdict::of(FailureKind::Overloaded),
        500..=599 => FailureVerdict::transient_server_fault(),
        _ => FailureVerdict::of(FailureKind::InvalidRequest),
    })
}

fn no_credit(text: &str) -> Option<FailureVerdict> {
    NO_CREDIT
        .iter()
        .any(|needle| text.contains(needle))
        .then(|| FailureVerdict::not_retryable(FailureKind::RateLimited))
}

fn too_long(text: &str) -> Option<FailureVerdict> {
    TOO_LONG
        .iter()
        .any(|needle| text.contains(needle))
        .then(|| FailureVerdict::of(FailureKind::ContextOverflow))
}

/// Finds an HTTP status in prose: "API Error: 529", "last status: 429", "rejected (429)".
fn status_in(text: &str) -> Option<u16> {
    ["api error: ", "status: ", "status code ", "status ", "("]
        .iter()
        .find_map(|before| {
            text.match_indices(before).find_map(|(at, _)| {
                let rest = &text[at + before.len()..];
                let digits: &str = &rest[..rest.bytes().take_while(u8::is_ascii_digit).count()];
                let status: u16 = digits.parse().ok()?;
                let closed = *before != "(" || rest[digits.len()..].starts_with(')');
                (closed && (400..600).contains(&status)).then_some(status)
            })
        })
}
