//! The members of one record, by where they stand in its line: what a cut changes of a record is found so without decoding it.
//!
//! Goes over a line that is known to be a record, in pieces of any size, and holds no more of it than short values of the
//! members that matter. What is in a nested value is passed over by its brackets and strings. Of a line that is no record
//! nothing that it says is of use, but for that it says so where the brackets are not closed. Pure.

use std::borrow::Cow;
use std::ops::Range;

use crate::transcript::fields::lenient_text;
use crate::transcript::lines::text_of_same_length;

/// How much of a string is held, in bytes. Ids have 36.
const HELD_BYTES: usize = 4096;

/// As much of a name as decides which one it is, in bytes: none that matters is longer, with every letter escaped.
const NAME_BYTES: usize = 256;

/// A member that matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    Type,
    Subtype,
    Uuid,
    ParentUuid,
    LogicalParentUuid,
    LeafUuid,
    SessionId,
    ForkedFrom,
    CompactMetadata,
    Attachment,
    /// One that a fork of the agent's own leaves out.
    LeftOut,
}

/// Where a member stands in its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) name: Name,
    /// Where its name begins.
    start: usize,
    pub(super) value: Range<usize>,
    comma_before: Option<usize>,
    comma_behind: Option<usize>,
    /// Where the text of a string is held that is not too long.
    held: Option<Range<usize>>,
}

/// Goes over a line.
#[derive(Debug, Default)]
pub(super) struct Members {
    state: State,
    /// How many brackets are open.
    depth: usize,
    /// How many bytes were seen before this piece.
    before: usize,
    /// Whether the piece before ended within a string behind a backslash that escapes what follows.
    is_escaped: bool,
    name: Vec<u8>,
    name_start: usize,
    /// The member whose value is read, where it matters.
    current: Option<Name>,
    value_start: usize,
    comma: Option<usize>,
    held: Vec<u8>,
    held_start: usize,
    /// Where the record's last bracket is.
    end: Option<usize>,
    members: Vec<Member>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Before,
    NameOrEnd,
    Name,
    Colon,
    Value,
    /// A value that is a string.
    Text,
    /// A number or a word.
    Scalar,
    /// Within an object or array, outside of strings.
    Nested,
    NestedText,
    CommaOrEnd,
    After,
    Garbage,
}

impl Members {
    /// Makes it ready for the next line.
    pub(super) fn clear(&mut self) {
        self.state = State::Before;
        self.depth = 0;
        self.before = 0;
        self.is_escaped = false;
        self.current = None;
        self.comma = None;
        self.held.clear();
        self.end = None;
        self.members.clear();
    }

    /// Those that matter, in the order of the line.
    pub(super) fn all(&self) -> &[Member] {
        &self.members
    }

    /// Where the record's closing bracket is; none where it is not closed.
    pub(super) fn end(&self) -> Option<usize> {
        self.end.filter(|_| self.state == State::After)
    }

    /// The text of a member that is a string; of one that is there twice the last counts.
    pub(super) fn text(&self, name: Name) -> Option<Cow<'_, str>> {
        let member = self.members.iter().rev().find(|member| member.name == name)?;
        self.text_of(member)
    }

    /// The text of a member that is a string and not too long.
    pub(super) fn text_of(&self, member: &Member) -> Option<Cow<'_, str>> {
        let text = text_of_same_length(self.held.get(member.held.clone()?)?);
        match text.contains('\\') {
            true => lenient_text(&format!("\"{text}\"")).map(Cow::Owned),
            false => Some(text),
        }
    }

    /// What is to be taken out of the line so that those that a fork leaves out are not there.
    pub(super) fn left_out(&self) -> impl Iterator<Item = Range<usize>> {
        // The comma behind the members at the beginning that go: it went with them.
        let mut gone = None;
        let left_out = self.members.iter().filter(|member| member.name == Name::LeftOut);
        left_out.map(move |member| {
            if let Some(comma) = member.comma_before.filter(|comma| gone != Some(*comma)) {
                return comma..member.value.end;
            }
            gone = member.comma_behind;
            member.start..gone.map_or(member.value.end, |comma| comma + 1)
        })
    }

    /// Reads on.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let place = self.before + at;
            match self.state {
                State::Name | State::Text | State::NestedText => {
                    let (run, is_over) = self.string_end(&bytes[at..]);
                    self.hold(&bytes[at..at + run]);
                    at += run;
                    if is_over {
                        self.end_string(self.before + at + 1);
                        at += 1;
                    }
                    continue;
                }
                State::Nested => {
                    at += self.nested(&bytes[at..], place);
                    continue;
                }
                State::Scalar if matches!(byte, b',' | b'}' | b' ' | b'\t' | b'\r') => {
                    self.end_value(place, None);
                    continue;
                }
                State::Before => match byte {
                    b'{' => {
                        self.depth = 1;
                        self.state = State::NameOrEnd;
                    }
                    0xEF | 0xBB | 0xBF | 0 | b' ' | b'\t' | b'\r' => {}
                    _ => self.state = State::Garbage,
                },
                State::NameOrEnd => match byte {
                    b'"' => {
                        self.name.clear();
                        self.name_start = place;
                        self.begin_string(State::Name);
                    }
                    b'}' => self.close(place),
                    b' ' | b'\t' | b'\r' => {}
                    _ => self.state = State::Garbage,
                },
                State::Colon => match byte {
                    b':' => self.state = State::Value,
                    b' ' | b'\t' | b'\r' => {}
                    _ => self.state = State::Garbage,
                },
                State::Value => self.begin_value(byte, place),
                State::CommaOrEnd => match byte {
                    b',' => {
                        self.comma = Some(place);
                        let last = self.members.last_mut();
                        // Only that of the member just before.
                        if let Some(last) = last.filter(|_| self.current.take().is_some()) {
                            last.comma_behind = Some(place);
                        }
                        self.state = State::NameOrEnd;
                    }
                    b'}' => self.close(place),
                    b' ' | b'\t' | b'\r' => {}
                    _ => self.state = State::Garbage,
                },
                State::After => match byte {
                    0 | b' ' | b'\t' | b'\r' => {}
                    _ => self.state = State::Garbage,
                },
                State::Scalar => {}
                State::Garbage => break,
            }
            at += 1;
        }
        self.before += bytes.len();
    }

    fn close(&mut self, place: usize) {
        self.end = Some(place);
        self.state = State::After;
    }

    fn begin_string(&mut self, state: State) {
        self.is_escaped = false;
        self.state = state;
    }

    fn begin_value(&mut self, byte: u8, place: usize) {
        match byte {
            b' ' | b'\t' | b'\r' => return,
            b'"' => {
                self.held_start = self.held.len();
                self.begin_string(State::Text);
            }
            b'{' | b'[' => {
                self.depth = 2;
                self.state = State::Nested;
            }
            _ => self.state = State::Scalar,
        }
        self.value_start = place;
    }

    /// How many bytes there are of the string that is read, and whether it is over then.
    fn string_end(&mut self, bytes: &[u8]) -> (usize, bool) {
        let backslashes = |end: usize| {
            let before = bytes.get(..end).unwrap_or_default();
            before.iter().rev().take_while(|byte| **byte == b'\\').count()
        };
        let is_escaped = |this: &Self, end: usize| {
            let count = backslashes(end);
            (count % 2 == 1) != (count == end && this.is_escaped)
        };
        let mut from = 0;
        while let Some(quote) = memchr::memchr(b'"', &bytes[from..]) {
            let quote = from + quote;
            if !is_escaped(self, quote) {
                return (quote, true);
            }
            from = quote + 1;
        }
        self.is_escaped = is_escaped(self, bytes.len());
        (bytes.len(), false)
    }

    fn hold(&mut self, bytes: &[u8]) {
        match self.state {
            State::Name => {
                let room = NAME_BYTES.saturating_sub(self.name.len());
                self.name.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
            }
            State::Text if self.current.is_some() => {
                // One byte more says that it is too long.
                let room = (HELD_BYTES + 1).saturating_sub(self.held.len() - self.held_start);
                self.held.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
            }
            _ => {}
        }
    }

    fn end_string(&mut self, end: usize) {
        match self.state {
            State::Name => {
                self.current = Name::of(&self.name);
                self.state = State::Colon;
            }
            State::Text => {
                let held = self.held_start..self.held.len();
                self.end_value(end, Some(held).filter(|held| held.len() <= HELD_BYTES));
            }
            _ => self.state = State::Nested,
        }
    }

    /// How many bytes of an object or array were passed over.
    fn nested(&mut self, bytes: &[u8], place: usize) -> usize {
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                b'"' => {
                    self.begin_string(State::NestedText);
                    return at + 1;
                }
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == 1 {
                        self.end_value(place + at + 1, None);
                        return at + 1;
                    }
                }
                _ => {}
            }
        }
        bytes.len()
    }

    fn end_value(&mut self, end: usize, held: Option<Range<usize>>) {
        self.state = State::CommaOrEnd;
        if let Some(name) = self.current {
            self.members.push(Member {
                name,
                start: self.name_start,
                value: self.value_start..end,
                comma_before: self.comma,
                comma_behind: None,
                held,
            });
        }
    }
}

impl Name {
    fn of(name: &[u8]) -> Option<Self> {
        if name.contains(&b'\\') {
            let text = text_of_same_length(name);
            let text = lenient_text(&format!("\"{text}\""))?;
            return Self::of_plain(text.as_bytes());
        }
        Self::of_plain(name)
    }

    fn of_plain(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"type" => Self::Type,
            b"subtype" => Self::Subtype,
            b"uuid" => Self::Uuid,
            b"parentUuid" => Self::ParentUuid,
            b"logicalParentUuid" => Self::LogicalParentUuid,
            b"leafUuid" => Self::LeafUuid,
            b"sessionId" => Self::SessionId,
            b"forkedFrom" => Self::ForkedFrom,
            b"compactMetadata" => Self::CompactMetadata,
            b"attachment" => Self::Attachment,
            b"teamName"
            | b"agentName"
            | b"sessionKind"
            | b"slug"
            | b"sourceToolAssistantUUID"
            | b"summarizedTurnPromptUuids"
            | b"droppedPromptUuids"
            | b"turnAttributionKey" => Self::LeftOut,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    use super::*;
    use crate::transcript::fields::Fields;

    fn members(line: &str, pieces: usize) -> Members {
        let mut members = Members::default();
        members.feed(b"{\"uuid\":");
        members.clear();
        for piece in line.as_bytes().chunks(pieces.max(1)) {
            members.feed(piece);
        }
        members
    }

    fn without(line: &str, members: &Members) -> String {
        let mut left = String::new();
        let mut at = 0;
        for gone in members.left_out() {
            left.push_str(&line[at..gone.start]);
            at = gone.end;
        }
        left + &line[at..]
    }

    fn json() -> impl Strategy<Value = Value> {
        let text = prop::sample::select(vec![
            "",
            "a",
            "\\",
            "\\\\\"",
            "\"uuid\":\"x\",",
            "}{][",
            "é\n\t",
            "\u{1}",
        ]);
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            text.prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::vec((name(), inner), 0..3)
                    .prop_map(|members| Value::Object(Map::from_iter(members))),
            ]
        })
    }

    fn name() -> impl Strategy<Value = String> {
        let names = [
            "uuid",
            "type",
            "slug",
            "teamName",
            "other",
            "x\"uuid",
            "uuid\\",
            "sessionId",
        ];
        prop::sample::select(names.map(str::to_owned).to_vec())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        /// As they are found where the line is decoded.
        #[test]
        fn members_stand_where_they_stand(record in prop::collection::vec((name(), json()), 0..6), pieces in 1usize..40, spaced: bool) {
            let said: Vec<String> = record
                .iter()
                .map(|(name, value)| format!("{}{}{value}", Value::from(name.as_str()), if spaced { " :\t" } else { ":" }))
                .collect();
            let line = format!("{{{}}}", said.join(if spaced { " , " } else { "," }));
            let members = members(&line, pieces);
            prop_assert_eq!(members.end(), Some(line.len() - 1));
            let matter: Vec<&(String, Value)> =
                record.iter().filter(|(name, _)| Name::of(name.as_bytes()).is_some()).collect();
            prop_assert_eq!(members.all().len(), matter.len());
            for (member, (name, value)) in members.all().iter().zip(&matter) {
                prop_assert_eq!(Some(member.name), Name::of(name.as_bytes()));
                prop_assert_eq!(&line[member.value.clone()], value.to_string());
                prop_assert_eq!(members.text_of(member).map(Cow::into_owned), value.as_str().map(str::to_owned));
            }
            let left = without(&line, &members);
            let kept: Vec<&String> =
                record.iter().map(|(name, _)| name).filter(|name| Name::of(name.as_bytes()) != Some(Name::LeftOut)).collect();
            let fields = Fields::parse(&left);
            prop_assert!(fields.is_some(), "{}", left);
            let parsed: Value = serde_json::from_str(&left).unwrap();
            prop_assert!(parsed.as_object().unwrap().keys().all(|name| kept.contains(&name)));
        }
    }

    #[test]
    fn what_is_not_closed_has_no_end() {
        for line in [
            "",
            "{",
            "{\"uuid\":\"x\"",
            "{\"a\":[}",
            "{\"a\":1}x",
            "garbage",
            "[1]",
        ] {
            assert_eq!(members(line, 3).end(), None, "{line}");
        }
        assert!(
            members("\u{feff}{\"uu\\u0069d\":\"x\"}\r", 2)
                .text(Name::Uuid)
                .is_some()
        );
    }
}
