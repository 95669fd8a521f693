//! What goes out by itself, as it is kept.

use bridge_protocol::conversation::Continuation;
use bridge_protocol::raw::PromptContent;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::is_false;

/// What goes out by itself at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingContinuation {
    /// When.
    pub at: Timestamp,
    /// When that was reckoned, where nobody named the time: it is as long to wait from then, whatever becomes of the clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// How often it has been sent, or its session was not to be had.
    #[serde(default)]
    pub attempts: u32,
    /// Whether it has been sent since it was made.
    #[serde(default, skip_serializing_if = "is_false")]
    pub sent: bool,
    /// Whether its agent ended with turns of several conversations under way, any of which may be the cause: it goes out in
    /// a process of its own, and not again where that one ends too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub apart: bool,
    /// Whether the prompts that are held go out behind it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub line: bool,
    /// What is said where the prompt that was cut short is in the transcript, or where there is none; behind that prompt,
    /// where it goes out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<PromptContent>,
    /// What somebody wants to be said later, before whose time this came up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub later: Option<LaterText>,
}

/// A text for a time of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LaterText {
    /// When.
    pub at: Timestamp,
    /// What is said then.
    pub text: PromptContent,
    /// Whether the prompts that are held go out behind it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub line: bool,
}

impl PendingContinuation {
    /// One that goes out at once.
    #[must_use]
    pub fn at_once(now: Timestamp) -> Self {
        Self {
            at: now,
            since: Some(now),
            attempts: 0,
            sent: false,
            apart: false,
            line: false,
            text: None,
            later: None,
        }
    }

    /// What comes up once this is done, or given up: what somebody wants to be said later, whose time may be over by now.
    #[must_use]
    pub fn next(self, now: Timestamp) -> Option<Self> {
        let later = self.later?;
        Some(Self {
            at: later.at.max(now),
            since: None,
            attempts: 0,
            sent: false,
            apart: false,
            line: later.line,
            text: Some(later.text),
            later: None,
        })
    }

    /// What is left once the turn that was cut short is done with: no word that it be gone on with, but the text and the held
    /// prompts that go out all the same.
    #[must_use]
    pub fn without_word(self, now: Timestamp) -> Option<Self> {
        match self.text.is_none() && !self.line {
            true => self.next(now),
            false => Some(self),
        }
    }

    /// It once this prompt has gone out for it: a text that the prompt ends with has been said, or is cut short with it, and
    /// is no text for the next time as well.
    #[must_use]
    pub fn having_sent(self, prompt: &PromptContent) -> Self {
        Self {
            text: self.text.filter(|text| !prompt.ends_with(text)),
            ..self
        }
    }

    /// Its text, and the time of that, where this is to come behind what is gone on with first.
    #[must_use]
    pub fn put_off(self) -> Option<LaterText> {
        let (at, line) = (self.at, self.line);
        let text = self.text.map(|text| LaterText { at, text, line });
        text.or(self.later)
    }

    /// Whether the clock has been set back behind the moment at which the wait was reckoned.
    #[must_use]
    pub fn is_of_another_clock(&self, now: Timestamp) -> bool {
        self.since.is_some_and(|since| since > now)
    }

    /// When its conversation is woken: at its time, or at once to reckon that anew.
    #[must_use]
    pub fn wakes_at(&self, now: Timestamp) -> Timestamp {
        if self.is_of_another_clock(now) {
            now
        } else {
            self.at
        }
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
