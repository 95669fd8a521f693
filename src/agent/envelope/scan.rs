//! The scanner: one pass over a line that checks its JSON and records the positions of the wanted values.
//!
//! Pure. It allocates only for escaped keys and strings. It checks the whole line, because the line is written into
//! other JSON documents unchanged.

use super::{EnvelopeKind, EnvelopeSpans, Malformed, Span, decode_string};

/// The deepest nesting that is accepted. Agents nest a few levels; a deeper line is an attack or an accident, and
/// would harm clients that parse recursively.
pub const MAX_DEPTH: usize = 512;

const WORD_BITS: usize = 64;
const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

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
    };
    scanner.skip_space();
    if scanner.peek() != Some(b'{') {
        scanner.skip_value()?;
        scanner.end()?;
        return Err(Malformed::NotAnObject);
    }
    scanner.members(|scanner, key| {
        match scanner.name_of(key) {
            KnownKey::Id => parts.id = scanner.value()?,
            KnownKey::Method => parts.method = scanner.value()?,
            KnownKey::Params => parts.params = scan_params(scanner, parts)?,
            KnownKey::Result => {
                parts.has_outcome = true;
                parts.result = scan_result(scanner, parts)?;
            }
            KnownKey::Error => {
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
        match scanner.name_of(key) {
            KnownKey::SessionId => parts.session_id = scanner.string_value()?,
            KnownKey::RequestId => parts.request_id = scanner.value()?,
            KnownKey::Update => {
                parts.update_kind = Span::default();
                parts.update = scanner.object_or_value(|scanner, key| {
                    match scanner.name_of(key) {
                        KnownKey::SessionUpdate => parts.update_kind = scanner.string_value()?,
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
        match scanner.name_of(key) {
            KnownKey::SessionId => parts.result_session_id = scanner.string_value()?,
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

/// The keys that the scanner knows.
enum KnownKey {
    Id,
    Method,
    Params,
    Result,
    Error,
    SessionId,
    RequestId,
    Update,
    SessionUpdate,
    Other,
}

impl KnownKey {
    fn of(key: &[u8]) -> Self {
        match key {
            b"id" => Self::Id,
            b"method" => Self::Method,
            b"params" => Self::Params,
            b"result" => Self::Result,
            b"error" => Self::Error,
            b"sessionId" => Self::SessionId,
            b"requestId" => Self::RequestId,
            b"update" => Self::Update,
            b"sessionUpdate" => Self::SessionUpdate,
            _ => Self::Other,
        }
    }
}

/// A member's key: its range including the quotes, and whether it contains escapes.
#[derive(Clone, Copy)]
struct KeySpan {
    start: usize,
    end: usize,
    escaped: bool,
}

/// The open containers, one bit each: set for an object, clear for an array.
struct Nesting {
    depth: usize,
    objects: [u64; MAX_DEPTH / WORD_BITS],
}

impl Nesting {
    fn push(&mut self, is_object: bool) -> Result<(), Malformed> {
        let bit = 1_u64 << (self.depth % WORD_BITS);
        let word = self
            .objects
            .get_mut(self.depth / WORD_BITS)
            .ok_or(Malformed::TooDeep)?;
        if is_object {
            *word |= bit;
        } else {
            *word &= !bit;
        }
        self.depth += 1;
        Ok(())
    }

    /// Whether the innermost open container is an object. `None` if all are closed.
    fn innermost(&self) -> Option<bool> {
        let index = self.depth.checked_sub(1)?;
        let word = self.objects.get(index / WORD_BITS)?;
        Some(word & (1 << (index % WORD_BITS)) != 0)
    }
}

struct Scanner<'text> {
    text: &'text str,
    bytes: &'text [u8],
    at: usize,
}

impl Scanner<'_> {
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

    fn name_of(&self, key: KeySpan) -> KnownKey {
        if key.escaped {
            let decoded = self.text.get(key.start..key.end).and_then(decode_string);
            return decoded.map_or(KnownKey::Other, |name| KnownKey::of(name.as_bytes()));
        }
        KnownKey::of(self.bytes.get(key.start + 1..key.end - 1).unwrap_or_default())
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
        visit: impl FnMut(&mut Self, KeySpan) -> Result<(), Malformed>,
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

    /// Visits the members of the object that starts here. The visitor must scan each value.
    fn members(
        &mut self,
        mut visit: impl FnMut(&mut Self, KeySpan) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            let key = self.key()?;
            visit(self, key)?;
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return self.syntax_error(),
            }
        }
    }

    /// Scans a key and its colon.
    fn key(&mut self) -> Result<KeySpan, Malformed> {
        self.skip_space();
        if self.peek() != Some(b'"') {
            return self.syntax_error();
        }
        let start = self.at;
        self.at += 1;
        let escaped = self.skip_string()?;
        let key = KeySpan {
            start,
            end: self.at,
            escaped,
        };
        self.skip_space();
        if self.peek() != Some(b':') {
            return self.syntax_error();
        }
        self.at += 1;
        Ok(key)
    }

    /// Skips one value of any kind and depth, without recursion.
    fn skip_value(&mut self) -> Result<(), Malformed> {
        let mut nesting = Nesting {
            depth: 0,
            objects: [0; MAX_DEPTH / WORD_BITS],
        };
        loop {
            self.skip_space();
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    self.skip_string()?;
                }
                Some(open @ (b'{' | b'[')) => {
                    let is_object = open == b'{';
                    self.at += 1;
                    self.skip_space();
                    if self.peek() == Some(if is_object { b'}' } else { b']' }) {
                        self.at += 1;
                    } else {
                        nesting.push(is_object)?;
                        if is_object {
                            self.key()?;
                        }
                        continue;
                    }
                }
                Some(b'-' | b'0'..=b'9') => self.skip_number()?,
                Some(b't') => self.skip_word(b"true")?,
                Some(b'f') => self.skip_word(b"false")?,
                Some(b'n') => self.skip_word(b"null")?,
                _ => return self.syntax_error(),
            }
            loop {
                let Some(in_object) = nesting.innermost() else {
                    return Ok(());
                };
                self.skip_space();
                match (self.peek(), in_object) {
                    (Some(b','), true) => {
                        self.at += 1;
                        self.key()?;
                        break;
                    }
                    (Some(b','), false) => {
                        self.at += 1;
                        break;
                    }
                    (Some(b'}'), true) | (Some(b']'), false) => {
                        self.at += 1;
                        nesting.depth -= 1;
                    }
                    _ => return self.syntax_error(),
                }
            }
        }
    }

    /// Skips the rest of a string after its opening quote. Returns whether it contains an escape.
    fn skip_string(&mut self) -> Result<bool, Malformed> {
        let mut escaped = false;
        loop {
            while let Some(chunk) = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<8>()) {
                let special = special_bytes(u64::from_le_bytes(*chunk));
                if special != 0 {
                    self.at += (special.trailing_zeros() / 8) as usize;
                    break;
                }
                self.at += 8;
            }
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(escaped);
                }
                Some(b'\\') => {
                    escaped = true;
                    self.skip_escape()?;
                }
                Some(0..0x20) | None => return self.syntax_error(),
                Some(_) => self.at += 1,
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

/// Sets the high bit of each of the eight bytes that ends a run of plain text: a quote, a backslash or a control
/// character. The lowest set bit is exact; higher ones may be wrong, because the subtraction borrows.
#[inline]
fn special_bytes(word: u64) -> u64 {
    let quotes = word ^ (ONES * b'"' as u64);
    let backslashes = word ^ (ONES * b'\\' as u64);
    let found = (quotes.wrapping_sub(ONES) & !quotes)
        | (backslashes.wrapping_sub(ONES) & !backslashes)
        | (word.wrapping_sub(ONES * 0x20) & !word);
    found & HIGH_BITS
}
