//! Scans one JSON-RPC line without decoding it.
//!
//! The scan checks that the line is JSON and records where the values needed for routing are: `id`, `method`,
//! `params.sessionId`, `params.update` and its kind, `result` and `error`. Everything else passes through unchanged,
//! so unknown fields, unknown update kinds and numbers of any size survive.
//!
//! Pure. This module owns only the text of a line. It does not know sessions, requests or the meaning of a method. If
//! a key occurs twice, the last one is used, as in JavaScript, in which most agents are written.

mod oversized;
mod scan;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

pub use oversized::{IdScanner, OversizedLineIds};
pub use scan::MAX_DEPTH;

/// Why a line is not a message. The connection continues after one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The bytes are not UTF-8.
    #[error("not UTF-8")]
    NotUtf8,
    /// The text is not JSON from this byte.
    #[error("not valid JSON at byte {at}")]
    Syntax {
        /// Offset in bytes from the start of the line.
        at: usize,
    },
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// JSON, but not an object. Batches are not part of the protocol.
    #[error("not a JSON object")]
    NotAnObject,
    /// An object with neither a method that is a string nor an id that is a string, a number or null.
    #[error("neither a request, a notification nor a response")]
    NotAMessage,
    /// Longer than the offsets can count (4 GiB).
    #[error("line too long to scan")]
    TooLong,
}

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EnvelopeKind {
    /// A method with an id. The sender waits for a response.
    Request,
    /// A method without an id.
    #[default]
    Notification,
    /// An id without a method. It may lack both `result` and `error`.
    Response,
}

/// A half-open byte range in a line. Empty means absent, because no JSON value is empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Span {
    start: u32,
    end: u32,
}

impl Span {
    fn slice(self, text: &str) -> Option<&str> {
        if self.start == self.end {
            return None;
        }
        text.get(self.start as usize..self.end as usize)
    }
}

/// The positions of the values needed for routing. Strings include their quotes.
#[derive(Debug, Clone, Copy, Default)]
struct EnvelopeSpans {
    kind: EnvelopeKind,
    id: Span,
    method: Span,
    params: Span,
    session_id: Span,
    request_id: Span,
    update: Span,
    update_kind: Span,
    result: Span,
    result_session_id: Span,
    error: Span,
    /// Whether it has a `result` or an `error`, even a null one.
    has_outcome: bool,
    /// Whether `params` has members that are not listed here.
    has_other_params: bool,
}

/// A scanned line, not decoded.
#[derive(Debug, Clone, Copy)]
pub struct Envelope<T> {
    text: T,
    parts: EnvelopeSpans,
}

/// A scanned line that owns its text. Clones share it.
pub type Line = Envelope<Arc<str>>;

/// Returns the id of the request that this malformed line answers: it is an answer up to the place where it is not JSON.
#[must_use]
pub fn answered_request(line: &str) -> Option<&str> {
    scan::answered_request(line)
}

impl<'line> Envelope<&'line str> {
    /// Scans one line, without its line end.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if the line is not one JSON-RPC message.
    pub fn scan(text: &'line str) -> Result<Self, Malformed> {
        Ok(Self {
            text,
            parts: scan::scan(text)?,
        })
    }

    /// Scans one line of bytes that may not be UTF-8.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if the line is not one JSON-RPC message in UTF-8.
    pub fn scan_bytes(bytes: &'line [u8]) -> Result<Self, Malformed> {
        Self::scan(std::str::from_utf8(bytes).map_err(|_| Malformed::NotUtf8)?)
    }

    /// Copies the line, without scanning it again.
    #[must_use]
    pub fn to_line(&self) -> Line {
        Line {
            text: Arc::from(self.text),
            parts: self.parts,
        }
    }
}

impl<T: AsRef<str>> Envelope<T> {
    /// The whole line, without its line end.
    #[must_use]
    pub fn text(&self) -> &str {
        self.text.as_ref()
    }

    /// Whether it is a request, a notification or a response.
    #[must_use]
    pub fn kind(&self) -> EnvelopeKind {
        self.parts.kind
    }

    /// Returns the raw id: a number, a string with its quotes, or `null`.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.parts.id.slice(self.text())
    }

    /// Returns the method's name.
    #[must_use]
    pub fn method(&self) -> Option<Cow<'_, str>> {
        decode_string(self.parts.method.slice(self.text())?)
    }

    /// The raw `params`.
    #[must_use]
    pub fn params(&self) -> Option<&str> {
        self.parts.params.slice(self.text())
    }

    /// `params.sessionId`, if it is a string.
    #[must_use]
    pub fn session_id(&self) -> Option<Cow<'_, str>> {
        decode_string(self.parts.session_id.slice(self.text())?)
    }

    /// Returns the raw `params.requestId`, which `$/cancel_request` and an elicitation outside any session refer to.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.parts.request_id.slice(self.text())
    }

    /// `params.update`, byte for byte.
    #[must_use]
    pub fn update(&self) -> Option<&str> {
        self.parts.update.slice(self.text())
    }

    /// `params.update.sessionUpdate`, if it is a string.
    #[must_use]
    pub fn update_kind(&self) -> Option<Cow<'_, str>> {
        decode_string(self.parts.update_kind.slice(self.text())?)
    }

    /// `result`, byte for byte; a result of `null` is `Some("null")`.
    #[must_use]
    pub fn result(&self) -> Option<&str> {
        self.parts.result.slice(self.text())
    }

    /// `result.sessionId`, if it is a string: the session that `session/new` or `session/fork` created.
    #[must_use]
    pub fn result_session_id(&self) -> Option<Cow<'_, str>> {
        decode_string(self.parts.result_session_id.slice(self.text())?)
    }

    /// `error`, byte for byte. An error of `null` is treated as absent: older JSON-RPC writes it next to a result.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.parts
            .error
            .slice(self.text())
            .filter(|error| *error != "null")
    }

    /// Whether it has a `result` or an `error`, even a null one.
    #[must_use]
    pub fn has_outcome(&self) -> bool {
        self.parts.has_outcome
    }

    /// Returns `params`, if it has members other than the session and the update.
    #[must_use]
    pub fn extra_params(&self) -> Option<&str> {
        self.params().filter(|_| self.parts.has_other_params)
    }
}

/// Decodes a JSON string with its quotes. `None` if it is not a string, or contains half of a surrogate pair.
fn decode_string(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str::<String>(raw).ok().map(Cow::Owned)
}
