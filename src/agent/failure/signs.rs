//! Evidence of a failure in a turn's updates: limits, retries, a broken thread. Collected during the turn and
//! evaluated once at its end, together with the answer.

use jiff::Timestamp;
use serde_json::Value;

use crate::agent::kinds::RAW_EVENT_METHOD;

/// The longest text that is kept of a failure, in bytes. A client shows it, and the end of a turn is saved even on a
/// full disk. The text of a limit has fewer than 300.
const TEXT_LIMIT_BYTES: usize = 4096;

/// Evidence of a failure from one turn. Create a new one for each turn: other turns and conversations must not affect
/// its classification.
#[derive(Debug, Clone, Default)]
pub struct FailureSigns {
    /// The reset time in this turn's last event that refused requests because of a limit. Such an event is no proof of a
    /// failure: turns succeed after a refused side request. A later `allowed` does not cancel it, because the agent's side requests (titles,
    /// summaries) are in the same stream.
    pub(super) resets_at: Option<Timestamp>,
    /// Whether Codex reported that the thread is broken.
    pub(super) is_thread_broken: bool,
    /// The last retried error, whether or not Codex recovered.
    pub(super) codex_retry: Option<CodexRetry>,
    /// The last text outside any message. Codex reports failures in this way.
    pub(super) last_notice: Option<String>,
}

/// An error that Codex reported and retried.
#[derive(Debug, Clone)]
pub(super) struct CodexRetry {
    /// `codexErrorInfo`.
    pub(super) info: Option<Value>,
    /// The error's text. The message only has the number of the retry.
    pub(super) details: Option<String>,
}

impl CodexRetry {
    fn parse(error: &Value) -> CodexRetry {
        CodexRetry {
            info: error
                .get("codexErrorInfo")
                .filter(|info| !info.is_null())
                .cloned(),
            details: error
                .get("additionalDetails")
                .and_then(Value::as_str)
                .map(|text| bounded(text).to_owned()),
        }
    }
}

impl FailureSigns {
    /// Records a notification of the turn's session.
    pub fn observe(&mut self, method: &str, params: &Value) {
        match method {
            "session/update" => {
                if let Some(update) = params.get("update") {
                    self.observe_update(update);
                }
            }
            RAW_EVENT_METHOD => {
                let message = params.get("message");
                let event = message
                    .and_then(|message| message.get("type"))
                    .and_then(Value::as_str);
                if event == Some("rate_limit_event") {
                    self.note_limit(message.and_then(|message| message.get("rate_limit_info")));
                }
            }
            _ => {}
        }
    }

    fn observe_update(&mut self, update: &Value) {
        match update.get("sessionUpdate").and_then(Value::as_str) {
            Some("usage_update") => self.note_limit(update.pointer("/_meta/_claude~1rateLimit")),
            Some("session_info_update") => {
                if let Some(status) = update
                    .pointer("/_meta/codex/threadStatus/type")
                    .and_then(Value::as_str)
                {
                    self.is_thread_broken = status == "systemError";
                }
                if let Some(error) = update.pointer("/_meta/codex/error") {
                    self.codex_retry = Some(CodexRetry::parse(error));
                }
            }
            Some("agent_message_chunk") if update.get("messageId").is_none_or(Value::is_null) => {
                let text = update.pointer("/content/text").and_then(Value::as_str);
                self.last_notice = text
                    .map(|text| bounded(text).to_owned())
                    .or_else(|| self.last_notice.take());
            }
            _ => {}
        }
    }

    /// Reads `rate_limit_info` of a limit event, or `_meta["_claude/rateLimit"]` of a usage update; both have the same
    /// form. The account's status is in ordinary turns too.
    fn note_limit(&mut self, info: Option<&Value>) {
        if let Some(info) = info
            && info.get("status").and_then(Value::as_str) == Some("rejected")
        {
            let resets_at = info.get("resetsAt").and_then(Value::as_i64);
            self.resets_at = resets_at.and_then(|at| Timestamp::from_second(at).ok());
        }
    }
}

/// The start of a text, at most [`TEXT_LIMIT_BYTES`] of it.
pub(super) fn bounded(text: &str) -> &str {
    let mut end = text.len().min(TEXT_LIMIT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
