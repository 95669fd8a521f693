//! The scanner: one pass over a line that checks its JSON and records the positions of the wanted values.
//!
//! Pure. It allocates only for escaped keys. It checks the whole line, because the line is written into
//! other JSON documents unchanged.

use std::borrow::Cow;

use super::{EnvelopeKind, EnvelopeSpans, Malformed, Span, decode_string};
use crate::transcript::scan::special;

/// The deepest nesting that is accepted. Agents nest a few levels; a deeper line is an attack or an accident, and
/// would harm clients that parse recursively.
pub const MAX_DEPTH: usize = 512;

/// Scans one line.
pub(super) fn scan(text: &str) -> Result<EnvelopeSpans, Malformed> {
    let mut parts = EnvelopeSpans::default();
    scan_members(text, &mut parts)?;
    parts.kind = kind_of(text, &parts)?;
    Ok(parts)
}

pub(super) fn answered_request(text: &str) -> Option<&str> {
    let mut parts = EnvelopeSpans::default();
    let is_malformed = scan_members(text, &mut parts).is_err();
    let id = parts.id.slice(text)?;
    let is_answer = parts.has_outcome && parts.method.slice(text).is_none();
    (is_malformed && is_answer).then_some(id)
}

fn scan_members(text: &str, parts: &mut EnvelopeSpans) -> Result<(), Malformed> {
    if u32::try_from(text.len()).is_err() {
        return Err(Malformed::TooLong);
    }
    let mut scanner = Scanner {
        text,
        bytes: text.as_bytes(),
        at: 0,
        depth: 0,
    };
    scanner.skip_space();
    if scanner.peek() != Some(b'{') {
        scanner.skip_value()?;
        scanner.end()?;
        return Err(Malformed::NotAnObject);
    }
    scanner.members(|scanner, key| {
        match &*name(key) {
            "id" => parts.id = scanner.value()?,
            "method" => parts.method = scanner.value()?,
            "params" => parts.params = scan_params(scanner, parts)?,
            "result" => {
                parts.has_outcome = true;
                parts.result = scan_result(scanner, parts)?;
            }
            "error" => {
                parts.has_outcome = true;
                parts.error = scanner.value()?;
            }
            _ => scanner.skip_value()?,
        }
        Ok(())
    })?;
    scanner.end()
}

fn scan_params(scanner: &mut Scanner<'_>, parts: &mut EnvelopeSpans) -> Result<Span, Malformed> {
    // A second `params` replaces the first one.
    (parts.session_id, parts.request_id) = Default::default();
    (parts.update, parts.update_kind) = Default::default();
    parts.has_other_params = false;
    scanner.object_or_value(|scanner, key| {
        match &*name(key) {
            "sessionId" => parts.session_id = scanner.string_value()?,
            "requestId" => parts.request_id = scanner.value()?,
            "update" => {
                parts.update_kind = Span::default();
                parts.update = scanner.object_or_value(|scanner, key| {
                    match &*name(key) {
                        "sessionUpdate" => parts.update_kind = scanner.string_value()?,
                        _ => scanner.skip_value()?,
                    }
                    Ok(())
                })?;
            }
            _ => {
                parts.has_other_params = true;
                scanner.skip_value()?;
            }
        }
        Ok(())
    })
}

fn scan_result(scanner: &mut Scanner<'_>, parts: &mut EnvelopeSpans) -> Result<Span, Malformed> {
    parts.result_session_id = Span::default();
    scanner.object_or_value(|scanner, key| {
        match &*name(key) {
            "sessionId" => parts.result_session_id = scanner.string_value()?,
            _ => scanner.skip_value()?,
        }
        Ok(())
    })
}

fn kind_of(text: &str, parts: &EnvelopeSpans) -> Result<EnvelopeKind, Malformed> {
    let id = parts.id.slice(text);
    let id_is_valid =
        id.is_none_or(|id| matches!(id.as_bytes().first(), Some(b'"' | b'-' | b'0'..=b'9' | b'n')));
    if !id_is_valid {
        return Err(Malformed::NotAMessage);
    }
    match (parts.method.slice(text), id) {
        (Some(method), id) => {
            decode_string(method).ok_or(Malformed::NotAMessage)?;
            Ok(if id.is_some() {
                EnvelopeKind::Request
            } else {
                EnvelopeKind::Notification
            })
        }
        (None, Some(_)) => Ok(EnvelopeKind::Response),
        (None, None) => Err(Malformed::NotAMessage),
    }
}

struct Scanner<'text> {
    text: &'text str,
    bytes: &'text [u8],
    at: usize,
    /// How many objects and arrays are open whose content is skipped.
    depth: usize,
}

impl<'text> Scanner<'text> {
    #[inline]
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    #[inline]
    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn syntax_error<T>(&self) -> Result<T, Malformed> {
        Err(Malformed::Syntax { at: self.at })
    }

    fn end(&mut self) -> Result<(), Malformed> {
        self.skip_space();
        if self.at == self.bytes.len() {
            Ok(())
        } else {
            self.syntax_error()
        }
    }

    fn span_from(&self, start: usize) -> Span {
        // `scan` refuses lines whose offsets do not fit.
        Span {
            start: start as u32,
            end: self.at as u32,
        }
    }

    /// Scans any value and returns its range.
    fn value(&mut self) -> Result<Span, Malformed> {
        self.skip_space();
        let start = self.at;
        self.skip_value()?;
        Ok(self.span_from(start))
    }

    /// Scans any value. Returns its range if it is a string, or else an empty one.
    fn string_value(&mut self) -> Result<Span, Malformed> {
        let span = self.value()?;
        let is_string = self.bytes.get(span.start as usize) == Some(&b'"');
        Ok(if is_string { span } else { Span::default() })
    }

    /// Scans any value. Visits its members if it is an object.
    fn object_or_value(
        &mut self,
        visit: impl FnMut(&mut Self, &'text str) -> Result<(), Malformed>,
    ) -> Result<Span, Malformed> {
        self.skip_space();
        let start = self.at;
        if self.peek() == Some(b'{') {
            self.members(visit)?;
        } else {
            self.skip_value()?;
        }
        Ok(self.span_from(start))
    }

    /// Visits the members of the object that starts here. The visitor gets the key with its quotes, and must scan each value.
    fn members(
        &mut self,
        mut visit: impl FnMut(&mut Self, &'text str) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        self.entries(b'}', |scanner| {
            let key = scanner.key()?;
            visit(scanner, key)
        })
    }

    /// Visits the entries of the object or array that starts here. The visitor must scan each.
    fn entries(
        &mut self,
        closing: u8,
        mut visit: impl FnMut(&mut Self) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(closing) {
            self.at += 1;
            return Ok(());
        }
        loop {
            visit(self)?;
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(byte) if byte == closing => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return self.syntax_error(),
            }
        }
    }

    /// Scans a key and its colon. Returns the key with its quotes.
    fn key(&mut self) -> Result<&'text str, Malformed> {
        self.skip_space();
        if self.peek() != Some(b'"') {
            return self.syntax_error();
        }
        let start = self.at;
        self.skip_string()?;
        let key = self.text.get(start..self.at).unwrap_or_default();
        self.skip_space();
        if self.peek() != Some(b':') {
            return self.syntax_error();
        }
        self.at += 1;
        Ok(key)
    }

    /// Skips one value of any kind. Recursion is limited by [`MAX_DEPTH`].
    fn skip_value(&mut self) -> Result<(), Malformed> {
        self.skip_space();
        match self.peek() {
            Some(b'"') => self.skip_string(),
            Some(open @ (b'{' | b'[')) => {
                self.depth += 1;
                if self.depth > MAX_DEPTH {
                    return Err(Malformed::TooDeep);
                }
                match open {
                    b'{' => self.members(|scanner, _| scanner.skip_value())?,
                    _ => self.entries(b']', Self::skip_value)?,
                }
                self.depth -= 1;
                Ok(())
            }
            Some(b'-' | b'0'..=b'9') => self.skip_number(),
            Some(b't') => self.skip_word(b"true"),
            Some(b'f') => self.skip_word(b"false"),
            Some(b'n') => self.skip_word(b"null"),
            _ => self.syntax_error(),
        }
    }

    fn skip_string(&mut self) -> Result<(), Malformed> {
        self.at += 1;
        loop {
            self.at += special(self.bytes.get(self.at..).unwrap_or_default());
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.skip_escape()?,
                _ => return self.syntax_error(),
            }
        }
    }

    fn skip_escape(&mut self) -> Result<(), Malformed> {
        self.at += 1;
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 1;
                Ok(())
            }
            Some(b'u') => {
                self.at += 1;
                let digits = self.bytes.get(self.at..self.at + 4);
                if digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
                    self.at += 4;
                    Ok(())
                } else {
                    self.syntax_error()
                }
            }
            _ => self.syntax_error(),
        }
    }

    fn skip_number(&mut self) -> Result<(), Malformed> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.skip_digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.skip_digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.skip_digits()?;
        }
        Ok(())
    }

    fn skip_digits(&mut self) -> Result<(), Malformed> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start {
            self.syntax_error()
        } else {
            Ok(())
        }
    }

    fn skip_word(&mut self, word: &[u8]) -> Result<(), Malformed> {
        if self
            .bytes
            .get(self.at..)
            .is_some_and(|rest| rest.starts_with(word))
        {
            self.at += word.len();
            Ok(())
        } else {
            self.syntax_error()
        }
    }
}

/// Returns a key without its quotes. Empty if it contains half of a surrogate pair.
fn name(key: &str) -> Cow<'_, str> {
    decode_string(key).unwrap_or_default()
}
