//! The members of a record and their positions in its line, so that a cut changes a record without decoding it.
//!
//! The line must be known to be a record: nested values are skipped by their brackets and strings. Pure.

use std::borrow::Cow;
use std::ops::Range;

use crate::transcript::fields::lenient_text;
use crate::transcript::lines::{text_of_same_length, trimmed};

/// A member and its position in the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member<'a> {
    pub(super) name: Cow<'a, str>,
    /// Where its name begins.
    start: usize,
    pub(super) value: Range<usize>,
}

/// The members of a record.
#[derive(Debug)]
pub(super) struct Members<'a> {
    line: &'a [u8],
    /// The members, in the order of the line.
    pub(super) all: Vec<Member<'a>>,
    /// The position of the record's closing bracket.
    pub(super) end: usize,
}

impl<'a> Members<'a> {
    /// The members of the record in a line. `None` if its brackets are not closed.
    pub(super) fn parse(line: &'a [u8]) -> Option<Self> {
        let record = trimmed(line);
        let start = record.as_ptr() as usize - line.as_ptr() as usize;
        let mut members = Self {
            line,
            all: Vec::with_capacity(16),
            end: start + record.len().checked_sub(1)?,
        };
        let (b'{', b'}') = (line[start], line[members.end]) else {
            return None;
        };
        let mut at = skip_space(line, start + 1);
        while at < members.end {
            let name = at..string_end(line, at)?;
            at = skip_space(line, name.end);
            if *line.get(at)? != b':' {
                return None;
            }
            let value = skip_space(line, at + 1);
            let value = value..value_end(line, value)?;
            at = skip_space(line, value.end);
            members.all.push(Member {
                name: text(&line[name.clone()])?,
                start: name.start,
                value,
            });
            match *line.get(at)? {
                b',' => at = skip_space(line, at + 1),
                _ if at == members.end => return Some(members),
                _ => return None,
            }
        }
        (at == members.end && members.all.is_empty()).then_some(members)
    }

    /// Returns the text of a member that is a string: of the last one, if the name occurs twice.
    pub(super) fn text(&self, name: &str) -> Option<Cow<'a, str>> {
        let member = self.all.iter().rev().find(|member| member.name == name)?;
        self.text_of(member)
    }

    /// The text of a member that is a string.
    pub(super) fn text_of(&self, member: &Member<'_>) -> Option<Cow<'a, str>> {
        let value = &self.line[member.value.clone()];
        value.starts_with(b"\"").then(|| text(value))?
    }

    /// The ranges to remove from the line to omit these members.
    pub(super) fn ranges_to_remove(&self, names: &[&str]) -> Vec<Range<usize>> {
        let mut parts: Vec<Range<usize>> = Vec::new();
        let mut kept_end = None;
        for (number, member) in self.all.iter().enumerate() {
            let next = self
                .all
                .get(number + 1)
                .map_or(member.value.end, |next| next.start);
            if !names.contains(&member.name.as_ref()) {
                kept_end = Some(member.value.end);
            } else if let Some(before) = kept_end.replace(member.value.end) {
                // Remove the comma before it too.
                parts.push(before..member.value.end);
            } else {
                // Remove the comma after it too. No member before it is kept.
                kept_end = None;
                parts.push(member.start..next);
            }
        }
        parts
    }
}

fn skip_space(line: &[u8], at: usize) -> usize {
    let is_space = |byte: &&u8| matches!(**byte, b' ' | b'\t' | b'\r');
    at + line[at.min(line.len())..].iter().take_while(is_space).count()
}

/// The end of the string that begins at this position.
fn string_end(line: &[u8], at: usize) -> Option<usize> {
    let text = line.get(at..)?.strip_prefix(b"\"")?;
    for quote in memchr::memchr_iter(b'"', text) {
        let escapes = text[..quote]
            .iter()
            .rev()
            .take_while(|byte| **byte == b'\\')
            .count();
        if escapes % 2 == 0 {
            return Some(at + 1 + quote + 1);
        }
    }
    None
}

/// The end of the value that begins at this position.
fn value_end(line: &[u8], start: usize) -> Option<usize> {
    let (mut at, mut depth) = (start, 0_usize);
    loop {
        match *line.get(at)? {
            b'"' => at = string_end(line, at)?,
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' if depth > 0 => {
                depth -= 1;
                at += 1;
            }
            b',' | b'}' | b']' | b' ' | b'\t' | b'\r' if depth == 0 => return (at > start).then_some(at),
            _ => {
                at += 1;
                continue;
            }
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

/// The text of a JSON string.
fn text(json: &[u8]) -> Option<Cow<'_, str>> {
    let text = text_of_same_length(json);
    if text.contains('\\') {
        return lenient_text(&text).map(Cow::Owned);
    }
    Some(match text {
        Cow::Borrowed(text) => Cow::Borrowed(&text[1..text.len() - 1]),
        Cow::Owned(text) => Cow::Owned(text[1..text.len() - 1].to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    use super::*;

    const GONE: [&str; 2] = ["slug", "teamName"];

    fn without(line: &str, members: &Members<'_>) -> String {
        let mut left = String::new();
        let mut at = 0;
        for gone in members.ranges_to_remove(&GONE) {
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

        /// The positions are those of the decoded values.
        #[test]
        fn members_are_found_where_they_are(record in prop::collection::vec((name(), json()), 0..6), spaced: bool) {
            let said: Vec<String> = record
                .iter()
                .map(|(name, value)| format!("{}{}{value}", Value::from(name.as_str()), if spaced { " :\t" } else { ":" }))
                .collect();
            let line = format!("{{{}}}", said.join(if spaced { " , " } else { "," }));
            let members = Members::parse(line.as_bytes()).unwrap();
            prop_assert_eq!(members.end, line.len() - 1);
            prop_assert_eq!(members.all.len(), record.len());
            for (member, (name, value)) in members.all.iter().zip(&record) {
                prop_assert_eq!(&member.name, name);
                prop_assert_eq!(&line[member.value.clone()], value.to_string());
                prop_assert_eq!(members.text_of(member).map(Cow::into_owned), value.as_str().map(str::to_owned));
            }
            let left = without(&line, &members);
            let kept = record.iter().filter(|(name, _)| !GONE.contains(&name.as_str()));
            let left = Members::parse(left.as_bytes()).map(|members| members.all.into_iter().map(|member| member.name.into_owned()).collect());
            prop_assert_eq!(left, Some(kept.map(|(name, _)| name.clone()).collect::<Vec<_>>()));
        }
    }

    #[test]
    fn what_is_not_closed_has_no_members() {
        for line in [
            "",
            "{",
            "{\"uuid\":\"x\"",
            "{\"a\":[}",
            "{\"a\":1}x",
            "{\"a\":1,",
            "{\"a\"}",
            "{a}",
            "garbage",
            "[1]",
            "}{",
        ] {
            assert!(Members::parse(line.as_bytes()).is_none(), "{line}");
        }
        let line = "\u{feff}{\"uu\\u0069d\" : \"x\" }\r";
        assert_eq!(
            Members::parse(line.as_bytes()).unwrap().text("uuid").as_deref(),
            Some("x")
        );
    }
}
