//! Scheduled continuations, as stored.

use bridge_protocol::conversation::Continuation;
use bridge_protocol::raw::PromptContent;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{CutShortPrompt, is_false};

/// How many characters of the text clients get to see: enough to recognize it.
const SHOWN_TEXT_CHARS: usize = 200;

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
    /// Whether the held prompts are sent after it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub line: bool,
    /// The text to send if the interrupted prompt is in the transcript, or if there is none. If the interrupted
    /// prompt is sent again, the text follows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<PromptContent>,
}

impl PendingContinuation {
    /// Creates a continuation that is due at once.
    #[must_use]
    pub fn at_once(now: Timestamp) -> Self {
        Self {
            at: now,
            attempts: 0,
            sent: false,
            line: false,
            text: None,
        }
    }

    /// Returns the prompt of the interrupted turn as it is sent again: followed by the text, if the user gave one.
    #[must_use]
    pub fn prompt_again(&self, cut: &CutShortPrompt) -> PromptContent {
        let prompt = cut.full_prompt();
        match &self.text {
            Some(text) => prompt.followed_by(text),
            None => prompt,
        }
    }

    /// Returns the remaining continuation after the interrupted turn is settled. The prompt that would continue it is
    /// dropped; the text and the held prompts remain.
    #[must_use]
    pub fn without_interrupted_prompt(self) -> Option<Self> {
        (self.text.is_some() || self.line).then_some(self)
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
}

impl From<&PendingContinuation> for Continuation {
    fn from(pending: &PendingContinuation) -> Self {
        Self {
            at: pending.at,
            attempts: pending.attempts,
            text: pending
                .text
                .as_ref()
                .map(|text| text.to_text().chars().take(SHOWN_TEXT_CHARS).collect()),
        }
    }
}
