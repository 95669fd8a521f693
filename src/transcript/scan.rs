//! Prunes a line to the members in its format's table, in one pass and without buffering the line.
//!
//! This module accepts the same JSON grammar as the agent ([`Grammar`]): a line that is a record here is a record for
//! the agent too. The pruner reads the bytes once, in pieces of any size, and copies what a [`Filter`] selects into one
//! buffer: the *pruned record*, a JSON object of bounded size. The format's decoder reads it like a whole line. If a
//! name occurs twice, both values are copied, and the decoder uses the last one. `serde_json` took 2.5 times as long to
//! read the same members of whole lines of a 200 MB transcript. Pure: this module does not know files, or how records
//! are connected.

mod filter;
mod lines;
mod strict;
mod strings;

use std::borrow::Cow;

use super::fields::{Fields, Json, ValueSpan, lenient_text};
use super::lines::text_of_same_length;
pub(crate) use filter::Filter;
pub(super) use filter::{BEGINNING_BYTES, ID_LIMIT_BYTES};
pub(super) use lines::{LinePosition, PrunedLine, PrunedLines};
use strict::StringValidator;
pub(crate) use strings::special;
use strings::{plain_length_with_escapes, trim_cut};

/// The maximum number of elements of an array that are copied.
pub(super) use super::fields::INNER_LIMIT as ELEMENTS_LIMIT;

/// The size of the pruned record above which no more elements are copied, and the size above which no more members are.
pub(super) const ELEMENTS_LIMIT_BYTES: usize = 8 << 20;
const MEMBERS_LIMIT_BYTES: usize = 2 * ELEMENTS_LIMIT_BYTES;

/// The longest number that is copied, in bytes: the digits of `u64::MAX`. [`LONG_NUMBER`] replaces longer ones.
const NUMBER_BYTES: usize = 20;
const LONG_NUMBER: &[u8] = b"0.5";

/// The longest name that is compared with a filter's, in bytes, if each character is escaped.
const NAME_BYTES: usize = 64 * 6;

/// The maximum depth of a filter.
const LEVELS: usize = 8;

/// The result of scanning a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scanned<T> {
    /// Only white space or NUL bytes.
    Blank,
    /// Not a JSON object.
    Garbage,
    /// A record, with what was read from it.
    Record(T),
}

/// The JSON grammar that an agent reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grammar {
    /// As in JavaScript: bytes that are not UTF-8 are replaced before parsing, so they are valid inside strings and
    /// nowhere else. Lone surrogates are valid. NUL bytes and byte order marks around a record are ignored.
    JavaScript,
    /// As in `serde_json`: only UTF-8 and pairs of surrogates, nothing but white space around the record, and a
    /// depth of at most [`SERDE_DEPTH`]. Its limit for the size of numbers does not count here.
    Serde,
}

/// The maximum depth of nested objects and arrays that `serde_json` reads.
pub(super) const SERDE_DEPTH: usize = 127;
/// The same for the other grammar: far more than any agent writes, so that a line of nothing but brackets takes little memory.
const DEPTH_LIMIT: usize = 1 << 20;

/// What to read of each line of a format.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PruneTable {
    /// The grammar with which the agent reads its own files.
    pub(crate) grammar: Grammar,
    /// What to copy from a record.
    pub(crate) record: Filter,
}

/// A pruned record.
#[derive(Debug)]
pub(crate) struct PrunedRecord<'a> {
    text: Cow<'a, str>,
    /// The positions of the record and its values.
    spans: &'a [ValueSpan],
    /// Whether some elements of arrays were omitted because there were too many.
    pub(super) has_more: bool,
}

impl PrunedRecord<'_> {
    /// Its members.
    pub(crate) fn fields(&self) -> Fields<'_> {
        let spans = self.spans.get(1..).unwrap_or_default();
        Fields::of(Json::with_spans(&self.text, spans)).unwrap_or_default()
    }
}

/// Scans a line in pieces.
#[derive(Debug)]
pub(crate) struct Pruner {
    table: &'static PruneTable,
    state: State,
    /// The open brackets, and whether each is an object's.
    nesting: Vec<bool>,
    /// The outermost open containers. Nothing is copied from deeper ones.
    levels: [Level; LEVELS],
    /// The member whose name was read last, if it is copied.
    member: Option<&'static (&'static str, Filter)>,
    /// The filter of the string or number that is being read. `room_bytes` is how much more of it may be copied.
    value: Option<&'static Filter>,
    room_bytes: usize,
    is_cut: bool,
    /// Where its copy begins in the pruned record.
    start: usize,
    /// Whether the current string is a member's name. `name` is the part of it from earlier pieces.
    is_name: bool,
    name: Vec<u8>,
    /// The rest of the word that is being read.
    word: &'static [u8],
    /// The state of the current string in the strict grammar.
    strict: StringValidator,
    record: Vec<u8>,
    spans: Vec<ValueSpan>,
    has_more: bool,
}

/// An open container.
#[derive(Debug, Clone, Copy, Default)]
struct Level {
    filter: Option<&'static Filter>,
    elements: usize,
    /// Where its copy begins in the pruned record, and the index of its span.
    start: usize,
    span: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Before,
    /// This many bytes of a byte order mark were read.
    Mark(u8),
    Value,
    ValueOrEnd,
    Name,
    NameOrEnd,
    Colon,
    CommaOrEnd,
    String,
    Escape,
    /// This many digits of an escape are left to read.
    Unicode(u8),
    Number(Digits),
    /// Within `true`, `false` or `null`.
    Word,
    After,
    Garbage,
}

/// The part of a number that was read last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Digits {
    Minus,
    Zero,
    Whole,
    Point,
    Fraction,
    Exponent,
    Sign,
    Power,
}

impl Pruner {
    /// Creates a pruner for lines of a format.
    pub(crate) fn new(table: &'static PruneTable) -> Self {
        Self {
            table,
            state: State::Before,
            nesting: Vec::new(),
            levels: Default::default(),
            member: None,
            value: None,
            room_bytes: 0,
            is_cut: false,
            start: 0,
            is_name: false,
            name: Vec::new(),
            word: &[],
            strict: StringValidator::default(),
            record: Vec::new(),
            spans: Vec::new(),
            has_more: false,
        }
    }

    /// Reads to the end of the line or of `bytes`. Returns how many bytes were read, and whether the last of them
    /// was the newline.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> (usize, bool) {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if self.state == State::String {
                let rest = &bytes[at..];
                let run = match self.is_name {
                    true => special(rest),
                    false => plain_length_with_escapes(rest),
                };
                let (plain, end) = (&rest[..run], rest.get(run).copied());
                at += run;
                if self.is_strict() && !self.is_valid_plain(plain, end) {
                    self.state = State::Garbage;
                    continue;
                }
                match end {
                    Some(b'"') if self.is_name => self.end_name(plain),
                    Some(b'"') => {
                        self.copy(plain);
                        self.end_string();
                    }
                    Some(b'\\') => {
                        self.copy(plain);
                        self.state = State::Escape;
                    }
                    Some(b'\n') => return (at + 1, true),
                    Some(_) => self.state = State::Garbage,
                    None => {
                        self.copy(plain);
                        return (at, false);
                    }
                }
                at += 1;
            } else if byte == b'\n' {
                return (at + 1, true);
            } else if self.state == State::Garbage {
                let newline = memchr::memchr(b'\n', &bytes[at..]);
                return newline.map_or((bytes.len(), false), |newline| (at + newline + 1, true));
            } else if self.step(byte) {
                at += 1;
            }
        }
        (at, false)
    }

    /// Ends the line and returns what it was. The pruner is then ready for the next line.
    pub(crate) fn finish(&mut self) -> Scanned<PrunedRecord<'_>> {
        let state = std::mem::take(&mut self.state);
        self.nesting.clear();
        self.is_name = false;
        self.name.clear();
        self.strict = StringValidator::default();
        match state {
            State::Before => Scanned::Blank,
            State::After => Scanned::Record(PrunedRecord {
                text: text_of_same_length(&self.record),
                spans: &self.spans,
                has_more: self.has_more,
            }),
            _ => Scanned::Garbage,
        }
    }

    /// How many objects and arrays are open.
    pub(crate) fn depth(&self) -> usize {
        self.nesting.len()
    }

    fn is_strict(&self) -> bool {
        self.table.grammar == Grammar::Serde
    }

    /// Whether these bytes of a string are valid, followed by `end`, or by more bytes if `end` is `None`.
    fn is_valid_plain(&mut self, plain: &[u8], end: Option<u8>) -> bool {
        self.strict.plain(plain)
            && match end {
                Some(b'"') => self.strict.may_end(),
                Some(_) => self.strict.ends_run(),
                None => true,
            }
    }

    /// Processes one byte outside the plain text of strings. Returns whether the byte was consumed.
    fn step(&mut self, byte: u8) -> bool {
        let is_space = matches!(byte, b' ' | b'\t' | b'\r');
        self.state = match self.state {
            state @ (State::Value
            | State::ValueOrEnd
            | State::Name
            | State::NameOrEnd
            | State::Colon
            | State::CommaOrEnd
            | State::Before
            | State::After)
                if is_space =>
            {
                state
            }
            State::Colon if byte == b':' => State::Value,
            State::NameOrEnd if byte == b'}' => self.close(byte),
            State::Name | State::NameOrEnd if byte == b'"' => {
                self.is_name = true;
                State::String
            }
            State::ValueOrEnd if byte == b']' => self.close(byte),
            State::Value | State::ValueOrEnd => self.begin_value(byte),
            State::CommaOrEnd => match (byte, self.nesting.last() == Some(&true)) {
                (b',', true) => State::Name,
                (b',', false) => State::Value,
                (b'}', true) | (b']', false) => self.close(byte),
                _ => State::Garbage,
            },
            State::Number(digits) => match digits.next(byte) {
                Some(next) => {
                    self.copy(&[byte]);
                    State::Number(next)
                }
                None if digits.can_end() => {
                    self.end_number();
                    return false;
                }
                None => State::Garbage,
            },
            State::Word => match self.word.split_first() {
                Some((next, [])) if byte == *next => State::CommaOrEnd,
                Some((next, rest)) if byte == *next => {
                    self.word = rest;
                    State::Word
                }
                _ => State::Garbage,
            },
            State::Escape => match byte {
                b'u' => {
                    self.copy_escape(b"\\u", 6);
                    State::Unicode(4)
                }
                // The previous piece ended within the escape.
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {
                    self.copy_escape(&[b'\\', byte], 2);
                    self.string_or_garbage(self.strict.may_end())
                }
                _ => State::Garbage,
            },
            State::Unicode(remaining_digits) if byte.is_ascii_hexdigit() => {
                self.copy(&[byte]);
                self.strict.digit(byte);
                match remaining_digits {
                    1 => {
                        let may_stand = self.strict.ends_unit();
                        self.string_or_garbage(may_stand)
                    }
                    _ => State::Unicode(remaining_digits - 1),
                }
            }
            State::Before if byte == b'{' => {
                self.record.clear();
                self.spans.clear();
                self.has_more = false;
                self.begin_span("");
                self.open(Some(&self.table.record), byte)
            }
            state @ (State::Before | State::After) if byte == 0 && !self.is_strict() => state,
            State::Before if byte == 0xEF && !self.is_strict() => State::Mark(1),
            State::Mark(1) if byte == 0xBB => State::Mark(2),
            State::Mark(2) if byte == 0xBF => State::Before,
            _ => State::Garbage,
        };
        true
    }

    /// Continues the string, unless the last part of it is invalid in the strict grammar.
    fn string_or_garbage(&self, may_stand: bool) -> State {
        match may_stand || !self.is_strict() {
            true => State::String,
            false => State::Garbage,
        }
    }

    fn end_name(&mut self, end: &[u8]) {
        self.is_name = false;
        self.state = State::Colon;
        self.member = None;
        let object = self.level().and_then(|level| level.filter);
        let found = match object {
            Some(object) if self.name.is_empty() => object.member(end),
            Some(object) => {
                self.hold_name(end);
                let name = format!("\"{}\"", text_of_same_length(&self.name));
                lenient_text(&name).and_then(|name| object.member(name.as_bytes()))
            }
            None => None,
        };
        self.name.clear();
        if let Some(member @ (name, _)) = found
            && self.memory_bytes() < MEMBERS_LIMIT_BYTES
        {
            self.separate(b'{');
            self.record.push(b'"');
            self.record.extend_from_slice(name.as_bytes());
            self.record.extend_from_slice(b"\":");
            self.member = Some(member);
        }
    }

    fn hold_name(&mut self, bytes: &[u8]) {
        let room = NAME_BYTES - self.name.len();
        // A longer name matches no filter, and neither does its beginning.
        self.name.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }

    /// The filter for the next element of the innermost array.
    fn element(&mut self) -> Option<&'static Filter> {
        let is_full = self.memory_bytes() >= ELEMENTS_LIMIT_BYTES;
        let level = self.level()?;
        let elements = level.filter?.elements;
        level.elements += 1;
        if is_full || level.elements > ELEMENTS_LIMIT {
            self.has_more = true;
            return None;
        }
        self.separate(b'[');
        elements
    }

    /// Writes a comma unless this is the first entry of the container that begins with `open`.
    fn separate(&mut self, open: u8) {
        if self.record.last() != Some(&open) {
            self.record.push(b',');
        }
    }

    fn begin_value(&mut self, byte: u8) -> State {
        let value = match self.nesting.last() == Some(&true) {
            true => self.member.take().map(|(name, filter)| (*name, filter)),
            false => self.element().map(|filter| ("", filter)),
        };
        if let Some((name, _)) = value {
            self.begin_span(name);
        }
        let value = value.map(|(_, filter)| filter);
        self.value = value;
        self.is_cut = false;
        self.start = self.record.len();
        self.room_bytes = 0;
        match byte {
            b'"' => {
                if let Some(value) = value {
                    self.record.push(b'"');
                    self.room_bytes = value.text_bytes;
                }
                State::String
            }
            b'{' | b'[' => self.open(value, byte),
            b'-' | b'0'..=b'9' => {
                if value.is_some() {
                    self.room_bytes = NUMBER_BYTES;
                    self.copy(&[byte]);
                }
                let digits = match byte {
                    b'-' => Digits::Minus,
                    b'0' => Digits::Zero,
                    _ => Digits::Whole,
                };
                State::Number(digits)
            }
            b't' => self.begin_word("true"),
            b'f' => self.begin_word("false"),
            b'n' => self.begin_word("null"),
            _ => State::Garbage,
        }
    }

    fn begin_word(&mut self, word: &'static str) -> State {
        if self.value.is_some() {
            self.record.extend_from_slice(word.as_bytes());
            self.end_span(self.spans.len() - 1, self.start);
        }
        self.word = word.as_bytes().get(1..).unwrap_or_default();
        State::Word
    }

    fn open(&mut self, value: Option<&'static Filter>, byte: u8) -> State {
        let is_object = byte == b'{';
        let limit = if self.is_strict() {
            SERDE_DEPTH
        } else {
            DEPTH_LIMIT
        };
        if self.nesting.len() == limit {
            return State::Garbage;
        }
        let (start, span) = (self.record.len(), self.spans.len().wrapping_sub(1));
        let entered = value.filter(|value| value.enters(is_object));
        if value.is_some() {
            self.record.push(byte);
            if entered.is_none() {
                self.record.push(closing(is_object));
                self.end_span(span, start);
            }
        }
        if let Some(level) = self.levels.get_mut(self.nesting.len()) {
            *level = Level {
                filter: entered,
                elements: 0,
                start,
                span,
            };
        }
        self.nesting.push(is_object);
        if is_object {
            State::NameOrEnd
        } else {
            State::ValueOrEnd
        }
    }

    fn close(&mut self, byte: u8) -> State {
        let level = self.level().copied().filter(|level| level.filter.is_some());
        if let Some(level) = level {
            self.record.push(byte);
            self.end_span(level.span, level.start);
        }
        self.nesting.pop();
        if self.nesting.is_empty() {
            State::After
        } else {
            State::CommaOrEnd
        }
    }

    /// The innermost open container, if it is among the outermost [`LEVELS`].
    fn level(&mut self) -> Option<&mut Level> {
        self.levels.get_mut(self.nesting.len().wrapping_sub(1))
    }

    /// The memory that the pruned record takes.
    fn memory_bytes(&self) -> usize {
        self.record.len() + self.spans.len() * size_of::<ValueSpan>()
    }

    fn begin_span(&mut self, name: &'static str) {
        let around = self.level().map_or(0, |level| level.start);
        self.spans.push(ValueSpan {
            name,
            start: self.record.len() - around,
            bytes: 0,
            inner: 0,
        });
    }

    /// Completes a span, whose value begins at `start`.
    fn end_span(&mut self, span: usize, start: usize) {
        let inner = self.spans.len() - span - 1;
        if let Some(span) = self.spans.get_mut(span) {
            (span.bytes, span.inner) = (self.record.len() - start, inner);
        }
    }

    /// Copies bytes of a string or a number while there is room.
    fn copy(&mut self, bytes: &[u8]) {
        if self.is_name {
            return self.hold_name(bytes);
        }
        let copied = bytes.get(..self.room_bytes).unwrap_or(bytes);
        self.room_bytes -= copied.len();
        self.record.extend_from_slice(copied);
        self.is_cut |= copied.len() < bytes.len();
    }

    /// Copies the beginning of an escape if the whole escape has room.
    fn copy_escape(&mut self, beginning: &[u8], bytes: usize) {
        if !self.is_name && self.room_bytes < bytes {
            self.room_bytes = 0;
        }
        self.copy(beginning);
    }

    fn end_string(&mut self) {
        self.state = State::CommaOrEnd;
        let Some(value) = self.value else { return };
        if !self.is_cut {
            self.record.push(b'"');
        } else if value.is_whole {
            self.record.truncate(self.start);
            self.record.extend_from_slice(b"null");
        } else {
            trim_cut(&mut self.record, self.start + 1);
            self.record.push(b'"');
        }
        self.end_span(self.spans.len() - 1, self.start);
    }

    fn end_number(&mut self) {
        self.state = State::CommaOrEnd;
        if self.value.is_none() {
            return;
        }
        if self.is_cut {
            self.record.truncate(self.start);
            self.record.extend_from_slice(LONG_NUMBER);
        }
        self.end_span(self.spans.len() - 1, self.start);
    }
}

const fn closing(is_object: bool) -> u8 {
    if is_object { b'}' } else { b']' }
}

impl Digits {
    fn next(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Minus, b'0') => Self::Zero,
            (Self::Minus | Self::Whole, b'0'..=b'9') => Self::Whole,
            (Self::Zero | Self::Whole, b'.') => Self::Point,
            (Self::Point | Self::Fraction, b'0'..=b'9') => Self::Fraction,
            (Self::Zero | Self::Whole | Self::Fraction, b'e' | b'E') => Self::Exponent,
            (Self::Exponent, b'+' | b'-') => Self::Sign,
            (Self::Exponent | Self::Sign | Self::Power, b'0'..=b'9') => Self::Power,
            _ => return None,
        })
    }

    fn can_end(self) -> bool {
        matches!(self, Self::Zero | Self::Whole | Self::Fraction | Self::Power)
    }
}

#[cfg(test)]
pub(super) mod tests;
