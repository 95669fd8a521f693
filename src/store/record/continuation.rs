//! Scheduled continuations, as stored.

use bridge_protocol::conversation::Continuation;
use bridge_protocol::raw::PromptContent;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::is_false;

/// A scheduled continuation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingContinuation {
    /// When it is due, by the system's clock. If the clock is set back, it is sent late.
    pub at: Timestamp,
    /// How many attempts were made: it was sent, or its session could not be opened.
    #[serde(default)]
    pub attempts: u32,
    /// Whether it was sent since it was scheduled.
    #[serde(default, skip_serializing_if = "is_false")]
    pub sent: bool,
    /// Whether its agent process ended while turns of several conversations were running, any of which may be the
    /// cause. It is then sent in a separate process. If that one ends too, it is not sent again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub apart: bool,
    /// Whether the held prompts are sent after it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub line: bool,
    /// The text to send if the interrupted prompt is in the transcript, or if there is none. If the interrupted
    /// prompt is sent again, the text follows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<PromptContent>,
    /// The user's text that was scheduled for a later time, if this continuation comes first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub later: Option<DeferredText>,
}

/// A text that is scheduled for a later time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeferredText {
    /// When it is due.
    pub at: Timestamp,
    /// The text.
    pub text: PromptContent,
    /// Whether the held prompts are sent after it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub line: bool,
}

impl PendingContinuation {
    /// Creates a continuation that is due at once.
    #[must_use]
    pub fn at_once(now: Timestamp) -> Self {
        Self {
            at: now,
            attempts: 0,
            sent: false,
            apart: false,
            line: false,
            text: None,
            later: None,
        }
    }

    /// Returns the continuation that follows after this one was done or given up: that of the later text. It may
    /// already be overdue.
    #[must_use]
    pub fn into_next(self, now: Timestamp) -> Option<Self> {
        let later = self.later?;
        Some(Self {
            at: later.at.max(now),
            attempts: 0,
            sent: false,
            apart: false,
            line: later.line,
            text: Some(later.text),
            later: None,
        })
    }

    /// Returns the continuation that is due after `now`: this one, or that of the later text.
    #[must_use]
    pub fn into_next_after(self, now: Timestamp) -> Option<Self> {
        match self.at > now {
            true => Some(self),
            false => self.into_next(now).filter(|next| next.at > now),
        }
    }

    /// Returns the remaining continuation after the interrupted turn is settled. The prompt that would continue it is
    /// dropped; the text and the held prompts remain.
    #[must_use]
    pub fn without_interrupted_prompt(self, now: Timestamp) -> Option<Self> {
        match self.text.is_none() && !self.line {
            true => self.into_next(now),
            false => Some(self),
        }
    }

    /// Returns this continuation after `prompt` was sent for it. A text at the end of the prompt was sent, or is part
    /// of the interrupted prompt, so it is removed.
    #[must_use]
    pub fn after_sending(self, prompt: &PromptContent) -> Self {
        Self {
            text: self.text.filter(|text| !prompt.ends_with(text)),
            ..self
        }
    }

    /// Returns the text and its due time, if it has to wait for something that is continued first.
    #[must_use]
    pub fn into_deferred_text(self) -> Option<DeferredText> {
        let (at, line) = (self.at, self.line);
        let text = self.text.map(|text| DeferredText { at, text, line });
        text.or(self.later)
    }
}

impl From<&PendingContinuation> for Continuation {
    fn from(pending: &PendingContinuation) -> Self {
        Self {
            at: pending.at,
            attempts: pending.attempts,
        }
    }
}
