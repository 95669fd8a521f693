//! One JSON-RPC line, looked at without being decoded.
//!
//! The scan checks that the line is JSON and remembers where the few values stand that routing needs: `id`, `method`,
//! `params.sessionId`, `params.update` and its kind, `result` and `error`. Everything else passes as the bytes that it
//! came as, so unknown fields, unknown update kinds and numbers of any size survive.
//!
//! Pure. It owns no buffer but a line's text, and must not know sessions, requests or what any method means. Where a
//! key is given twice, the last one counts, as in JavaScript, which most agents are written in.

mod oversized;
mod scan;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

pub use oversized::{IdScanner, MAX_ID_BYTES, Oversized};
pub use scan::MAX_DEPTH;

/// Why a line is not a message. A value, not a failure: the connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The bytes are not UTF-8.
    #[error("not UTF-8")]
    NotUtf8,
    /// The text is not JSON from this byte on.
    #[error("not valid JSON at byte {at}")]
    Syntax {
        /// Offset in bytes from the start of the line.
        at: usize,
    },
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// JSON, but not an object: batches are not part of the protocol.
    #[error("not a JSON object")]
    NotAnObject,
    /// An object with neither a method that is a string nor an id that is a string, a number or null.
    #[error("neither a request, a notification nor a response")]
    NotAMessage,
    /// Longer than the offsets can count (4 GiB).
    #[error("line too long to scan")]
    TooLong,
}

/// What kind of message a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// A method with an id: it waits for an answer.
    Request,
    /// A method without an id.
    #[default]
    Notification,
    /// An id without a method. It may still lack both `result` and `error`.
    Response,
}

/// A half-open range of bytes in a line; empty means absent, since no JSON value is empty.
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

/// Where the values stand that routing needs. Strings include their quotes.
#[derive(Debug, Clone, Copy, Default)]
struct Parts {
    kind: Kind,
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
}

/// A look at one line: borrowed, cheap to copy, nothing decoded.
#[derive(Debug, Clone, Copy)]
pub struct Envelope<'line> {
    text: &'line str,
    parts: Parts,
}

impl<'line> Envelope<'line> {
    /// Scans one line, given without its line end.
    ///
    /// # Errors
    ///
    /// [`Malformed`] when the line is not one JSON-RPC message.
    pub fn scan(text: &'line str) -> Result<Self, Malformed> {
        Ok(Self {
            text,
            parts: scan::scan(text)?,
        })
    }

    /// As [`Envelope::scan`], from bytes that may not even be text.
    ///
    /// # Errors
    ///
    /// [`Malformed`] when the line is not one JSON-RPC message in UTF-8.
    pub fn scan_bytes(bytes: &'line [u8]) -> Result<Self, Malformed> {
        Self::scan(std::str::from_utf8(bytes).map_err(|_| Malformed::NotUtf8)?)
    }

    /// The whole line.
    #[must_use]
    pub fn text(&self) -> &'line str {
        self.text
    }

    /// Request, notification or response.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.parts.kind
    }

    /// The id as it stands in the line: a number, a string with its quotes, or `null`.
    #[must_use]
    pub fn id(&self) -> Option<&'line str> {
        self.parts.id.slice(self.text)
    }

    /// The method's name.
    #[must_use]
    pub fn method(&self) -> Option<Cow<'line, str>> {
        decode_string(self.parts.method.slice(self.text)?)
    }

    /// `params` as it stands in the line.
    #[must_use]
    pub fn params(&self) -> Option<&'line str> {
        self.parts.params.slice(self.text)
    }

    /// `params.sessionId`, where it is a string.
    #[must_use]
    pub fn session_id(&self) -> Option<Cow<'line, str>> {
        decode_string(self.parts.session_id.slice(self.text)?)
    }

    /// `params.requestId` as it stands in the line: what `$/cancel_request` and an elicitation outside any session
    /// refer to.
    #[must_use]
    pub fn request_id(&self) -> Option<&'line str> {
        self.parts.request_id.slice(self.text)
    }

    /// `params.update`, byte for byte.
    #[must_use]
    pub fn update(&self) -> Option<&'line str> {
        self.parts.update.slice(self.text)
    }

    /// `params.update.sessionUpdate`, where it is a string.
    #[must_use]
    pub fn update_kind(&self) -> Option<Cow<'line, str>> {
        decode_string(self.parts.update_kind.slice(self.text)?)
    }

    /// `result`, byte for byte; a result of `null` is `Some("null")`.
    #[must_use]
    pub fn result(&self) -> Option<&'line str> {
        self.parts.result.slice(self.text)
    }

    /// `result.sessionId`, where it is a string: how `session/new` and `session/fork` name what they made.
    #[must_use]
    pub fn result_session_id(&self) -> Option<Cow<'line, str>> {
        decode_string(self.parts.result_session_id.slice(self.text)?)
    }

    /// `error`, byte for byte; an error of `null` counts as none, as older JSON-RPC writes it beside a result.
    #[must_use]
    pub fn error(&self) -> Option<&'line str> {
        self.parts.error.slice(self.text).filter(|error| *error != "null")
    }

    /// The line with another `params.sessionId` and not one other byte changed; none where it has no such string.
    #[must_use]
    pub fn with_session_id(&self, session_id: &str) -> Option<String> {
        self.parts.session_id.slice(self.text)?;
        let before = self.text.get(..self.parts.session_id.start as usize)?;
        let after = self.text.get(self.parts.session_id.end as usize..)?;
        let mut spliced = String::with_capacity(before.len() + after.len() + session_id.len() + 2);
        spliced.push_str(before);
        push_json_string(&mut spliced, session_id);
        spliced.push_str(after);
        Some(spliced)
    }

    /// A copy that owns its text, without scanning again.
    #[must_use]
    pub fn to_line(&self) -> Line {
        Line {
            text: Arc::from(self.text),
            parts: self.parts,
        }
    }
}

/// One scanned line that owns its text; a clone shares it.
#[derive(Debug, Clone)]
pub struct Line {
    text: Arc<str>,
    parts: Parts,
}

impl Line {
    /// Scans and copies one line.
    ///
    /// # Errors
    ///
    /// [`Malformed`] when the text is not one JSON-RPC message.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        Ok(Envelope::scan(text)?.to_line())
    }

    /// The look at this line; costs nothing, the scan was done when the line was read.
    #[must_use]
    pub fn envelope(&self) -> Envelope<'_> {
        Envelope {
            text: &self.text,
            parts: self.parts,
        }
    }

    /// The whole line, without its line end.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Length of the text in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.text.len()
    }

    /// `params`, byte for byte.
    #[must_use]
    pub fn params(&self) -> Option<&str> {
        self.parts.params.slice(&self.text)
    }

    /// `params.update`, byte for byte.
    #[must_use]
    pub fn update(&self) -> Option<&str> {
        self.parts.update.slice(&self.text)
    }

    /// `params.update.sessionUpdate`, where it is a string.
    #[must_use]
    pub fn update_kind(&self) -> Option<Cow<'_, str>> {
        decode_string(self.parts.update_kind.slice(&self.text)?)
    }
}

/// The text of a JSON string that is given with its quotes; none where it is not a string, or names half of a
/// surrogate pair, which no text can hold.
fn decode_string(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str::<String>(raw).ok().map(Cow::Owned)
}

/// Appends `text` as a JSON string. Ids and method names hardly ever need an escape, so that case is a plain copy.
pub(super) fn push_json_string(out: &mut String, text: &str) {
    let plain = text
        .bytes()
        .all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\');
    if plain {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        out.push_str(&serde_json::Value::from(text).to_string());
    }
}
