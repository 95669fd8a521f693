//! What an index takes from a line, read in one pass and without holding the line.
//!
//! Owns the grammar of JSON as far as the agent itself refuses text ([`Grammar`]): what this takes as a record, the agent
//! takes too. It goes over the bytes once, in pieces of any size, hands on the few members that matter and keeps nothing
//! else, so that a line of hundreds of megabytes takes no memory. Which members matter and what they mean is owned by each format
//! ([`Noted`]), and decided there as where a line is decoded whole: both ways to read a line are held together by a test.
//! Pure; knows neither files nor how records hang together.

mod lines;
mod nesting;
mod strict;
mod strings;

pub(super) use lines::{Place, ScannedLine, ScannedLines};
use nesting::Nesting;
use strict::Strict;
pub(super) use strings::Held;
use strings::{special, unfinished};

/// The longest id that is taken, in bytes; agents write 36. A record with a longer one is as good as without.
pub(super) const ID_LIMIT_BYTES: usize = 4096;

/// As much of a text or a name as decides what it is, in bytes: all names and beginnings that are asked for are shorter
/// than 64 characters, of which each may be escaped.
pub(super) const BEGINNING_BYTES: usize = 64 * 6;

/// What a line turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scanned<N> {
    /// Nothing but white space or NUL bytes.
    Blank,
    /// Not a JSON object.
    Garbage,
    /// A record, and what is noted of it.
    Record(N),
}

/// How an agent reads JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grammar {
    /// As JavaScript does: bytes that are not UTF-8 are replaced before, so that they are well within strings and nowhere
    /// else; surrogates may stand alone. NUL bytes and byte order marks around a record are passed over.
    JavaScript,
    /// As `serde_json` does: UTF-8 and pairs of surrogates only, nothing but white space around, and no deeper than
    /// [`SERDE_DEPTH`].
    Serde,
}

/// How many objects and arrays may stand within each other where `serde_json` reads.
pub(super) const SERDE_DEPTH: usize = 127;

/// What a format notes of a record while its line is read. Of a name that is given twice the last value counts, so what was
/// noted of a member is forgotten when it is [named](Noted::name) again.
pub(super) trait Noted: Default {
    /// How the agent reads what it has written.
    const GRAMMAR: Grammar;
    /// What an object or array is; the default is one in which nothing matters.
    type Context: Copy + Default + PartialEq;
    /// The member whose value is read; the default is one that does not matter.
    type Member: Copy + Default + PartialEq;
    /// What is left of a record.
    type Note;

    /// The member of this name.
    fn member(context: Self::Context, name: &[u8]) -> Self::Member;

    /// What the elements of an array are; nothing for an object.
    fn element(context: Self::Context) -> Self::Member;

    /// How much of a string is held as the value of this member, in bytes.
    fn held_bytes(member: Self::Member) -> usize;

    /// A member was named, so what it was before does not count.
    fn name(&mut self, member: Self::Member);

    /// A value begins, with this byte.
    fn begin(&mut self, member: Self::Member, first: u8);

    /// An object or array begins; the outermost one has no context around it.
    fn open(&mut self, around: Option<Self::Context>, member: Self::Member, is_object: bool)
    -> Self::Context;

    /// It is over.
    fn close(&mut self, context: Self::Context);

    /// A string is over, of which so much was held as was asked for.
    fn string(&mut self, member: Self::Member, held: &Held);

    /// A whole number that is not negative is over.
    fn number(&mut self, member: Self::Member, value: u64);

    /// What is noted of the record.
    fn note(self) -> Self::Note;
}

/// Reads a line in pieces.
#[derive(Debug, Default)]
pub(super) struct Scanner<N: Noted> {
    state: State,
    nesting: Nesting,
    /// What the outermost containers are; in deeper ones nothing matters.
    contexts: [N::Context; CONTEXTS],
    /// The member whose value comes next or is being read.
    member: N::Member,
    /// Whether the string that is being read is a member's name.
    is_name: bool,
    held: Held,
    /// The same, where strings are read strictly.
    strict: Strict,
    /// The whole number that is being read.
    number: Option<u64>,
    noted: N,
}

/// How deep what matters stands: in a rollout record, payload, what is passed with it, its list, an element, its origin.
const CONTEXTS: usize = 6;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Before,
    /// This many bytes of a byte order mark were seen.
    Mark(u8),
    Value,
    ValueOrEnd,
    Name,
    NameOrEnd,
    Colon,
    CommaOrEnd,
    String,
    Escape,
    /// This many digits of an escape are to come.
    Unicode(u8),
    Number(Digits),
    /// What is left of `true`, `false` or `null`.
    Word(&'static [u8]),
    After,
    Garbage,
}

/// How far a number has come.
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

impl<N: Noted> Scanner<N> {
    const IS_STRICT: bool = matches!(N::GRAMMAR, Grammar::Serde);

    /// Reads on to the end of the line or of `bytes`: how many bytes were read, and whether the last of them was the
    /// newline.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> (usize, bool) {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if self.state == State::String {
                let rest = &bytes[at..];
                let run = match self.held.is_full() {
                    true => {
                        let run = unfinished(rest);
                        self.held.skip(run);
                        run
                    }
                    false => {
                        let run = special(rest);
                        self.held.push(&rest[..run]);
                        run
                    }
                };
                at += run;
                if Self::IS_STRICT && !self.may_stand(&rest[..run], rest.get(run).copied()) {
                    self.state = State::Garbage;
                    continue;
                }
                match rest.get(run) {
                    Some(b'"') => self.end_string(),
                    Some(b'\\') => match rest.get(run + 1) {
                        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                            self.held.push_escaped(&rest[run..run + 2]);
                            at += 1;
                            if Self::IS_STRICT && !self.strict.is_whole() {
                                self.state = State::Garbage;
                            }
                        }
                        _ => {
                            self.held.push_escaped(b"\\");
                            self.state = State::Escape;
                        }
                    },
                    Some(b'\n') => return (at + 1, true),
                    Some(_) => self.state = State::Garbage,
                    None => return (at, false),
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

    /// What the line was, when it is over; the scanner is ready for the next.
    pub(super) fn finish(&mut self) -> Scanned<N::Note> {
        let state = std::mem::take(&mut self.state);
        self.nesting.clear();
        self.contexts = Default::default();
        self.member = N::Member::default();
        self.is_name = false;
        self.held.clear();
        self.strict = Strict::default();
        let noted = std::mem::take(&mut self.noted);
        match state {
            State::Before => Scanned::Blank,
            State::After => Scanned::Record(noted.note()),
            _ => Scanned::Garbage,
        }
    }

    /// Whether these bytes of a string may stand there, and what ends them; none when the piece is over.
    fn may_stand(&mut self, plain: &[u8], end: Option<u8>) -> bool {
        self.strict.plain(plain)
            && match end {
                Some(b'"') => self.strict.is_whole(),
                Some(_) => self.strict.ends_run(),
                None => true,
            }
    }

    /// Takes one byte outside of the plain text of strings; whether it was used up.
    fn step(&mut self, byte: u8) -> bool {
        match (self.state, byte) {
            (State::Before | State::After, b' ' | b'\t' | b'\r') => {}
            (State::Before | State::After, 0) if !Self::IS_STRICT => {}
            (State::Before, 0xEF) if !Self::IS_STRICT => self.state = State::Mark(1),
            (State::Mark(1), 0xBB) => self.state = State::Mark(2),
            (State::Mark(2), 0xBF) => self.state = State::Before,
            (State::Before, b'{') => self.open(true),
            (State::Number(digits), _) => match digits.next(byte) {
                Some(next) => {
                    self.state = State::Number(next);
                    let number = self.number.filter(|_| next == Digits::Whole);
                    self.number = number.and_then(|number| {
                        let digit = u64::from(byte - b'0');
                        number.checked_mul(10)?.checked_add(digit)
                    });
                }
                None if digits.can_end() => {
                    if let Some(number) = self.number {
                        self.noted.number(self.member, number);
                    }
                    self.state = State::CommaOrEnd;
                    return false;
                }
                None => self.state = State::Garbage,
            },
            (State::Escape, b'u') => {
                self.held.push(b"u");
                self.state = State::Unicode(4);
            }
            (State::Escape, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.held.push(&[byte]);
                self.state = match Self::IS_STRICT && !self.strict.is_whole() {
                    true => State::Garbage,
                    false => State::String,
                };
            }
            (State::Unicode(left), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                self.held.push(&[byte]);
                if Self::IS_STRICT {
                    self.strict.digit(byte);
                }
                self.state = match left {
                    1 if Self::IS_STRICT && !self.strict.ends_unit() => State::Garbage,
                    1 => State::String,
                    _ => State::Unicode(left - 1),
                };
            }
            (State::Word([next, rest @ ..]), _) if byte == *next => {
                self.state = if rest.is_empty() {
                    State::CommaOrEnd
                } else {
                    State::Word(rest)
                };
            }
            (
                State::Value
                | State::ValueOrEnd
                | State::Name
                | State::NameOrEnd
                | State::Colon
                | State::CommaOrEnd,
                b' ' | b'\t' | b'\r',
            ) => {}
            (State::Name | State::NameOrEnd, b'"') => self.begin_name(),
            (State::NameOrEnd, b'}') | (State::ValueOrEnd, b']') => self.close(),
            (State::Colon, b':') => self.state = State::Value,
            (State::CommaOrEnd, b',') => {
                let in_object = self.nesting.is_object();
                self.state = if in_object { State::Name } else { State::Value };
            }
            (State::CommaOrEnd, b'}') if self.nesting.is_object() => self.close(),
            (State::CommaOrEnd, b']') if !self.nesting.is_object() => self.close(),
            (State::Value | State::ValueOrEnd, _) => self.begin_value(byte),
            _ => self.state = State::Garbage,
        }
        true
    }

    fn begin_name(&mut self) {
        let matters = self.context() != N::Context::default();
        self.held.begin(if matters { BEGINNING_BYTES } else { 0 });
        self.is_name = true;
        self.state = State::String;
    }

    fn begin_value(&mut self, byte: u8) {
        if self.member != N::Member::default() {
            self.noted.begin(self.member, byte);
        }
        self.state = match byte {
            b'"' => {
                self.held.begin(N::held_bytes(self.member));
                State::String
            }
            b'{' | b'[' => return self.open(byte == b'{'),
            b'-' => {
                self.number = None;
                State::Number(Digits::Minus)
            }
            b'0' => {
                self.number = Some(0);
                State::Number(Digits::Zero)
            }
            b'1'..=b'9' => {
                self.number = Some(u64::from(byte - b'0'));
                State::Number(Digits::Whole)
            }
            b't' => State::Word(b"rue"),
            b'f' => State::Word(b"alse"),
            b'n' => State::Word(b"ull"),
            _ => State::Garbage,
        };
    }

    fn open(&mut self, is_object: bool) {
        if Self::IS_STRICT && self.nesting.depth() == SERDE_DEPTH {
            self.state = State::Garbage;
            return;
        }
        let around = (self.nesting.depth() > 0).then(|| self.context());
        let context = match around {
            Some(around) if around == N::Context::default() => around,
            around => self.noted.open(around, self.member, is_object),
        };
        if let Some(place) = self.contexts.get_mut(self.nesting.depth()) {
            *place = context;
        }
        self.nesting.push(is_object);
        self.member = N::element(context);
        self.state = if is_object {
            State::NameOrEnd
        } else {
            State::ValueOrEnd
        };
    }

    fn close(&mut self) {
        let context = self.context();
        if context != N::Context::default() {
            self.noted.close(context);
        }
        self.nesting.pop();
        self.member = N::element(self.context());
        self.state = if self.nesting.depth() == 0 {
            State::After
        } else {
            State::CommaOrEnd
        };
    }

    fn context(&self) -> N::Context {
        let place = self.nesting.depth().wrapping_sub(1);
        self.contexts.get(place).copied().unwrap_or_default()
    }

    fn end_string(&mut self) {
        if self.is_name {
            self.is_name = false;
            let context = self.context();
            self.member = N::Member::default();
            if context != N::Context::default() {
                self.member = N::member(context, &self.held.beginning());
                self.noted.name(self.member);
            }
            self.state = State::Colon;
            return;
        }
        self.state = State::CommaOrEnd;
        if self.member != N::Member::default() {
            self.noted.string(self.member, &self.held);
        }
    }
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
