//! The members of one JSON object, each still as text.
//!
//! Decodes only what is requested, tolerates any other content, and can return the position of a value in
//! the text, so that one token can be replaced and every other byte left alone. Pure; knows no format.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The maximum number of members of an object, or elements of an array, that are read. Agents write dozens. Bounds the memory.
pub(in crate::transcript) const INNER_LIMIT: usize = 10_000;

/// The members of a JSON object, in the order of the text.
#[derive(Debug, Default)]
pub struct Fields<'a> {
    members: Vec<(Cow<'a, str>, Json<'a>)>,
}

/// A well-formed JSON value, as text.
#[derive(Debug, Clone, Copy)]
pub struct Json<'a> {
    text: &'a str,
    /// The positions of the values in it, if known.
    spans: Option<&'a [ValueSpan]>,
}

/// The position of a value in an object or array.
#[derive(Debug, Clone, Copy)]
pub(in crate::transcript) struct ValueSpan {
    /// Its name; empty in an array.
    pub(in crate::transcript) name: &'static str,
    /// The offset of its start in the surrounding text.
    pub(in crate::transcript) start: usize,
    pub(in crate::transcript) bytes: usize,
    /// How many of the spans that follow are inside this one.
    pub(in crate::transcript) inner: usize,
}

impl<'a> Fields<'a> {
    /// Parses an object. `None` if `text` is anything but one JSON object, or has more than 10,000 members.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The members of an object. `None` if the value is anything else.
    #[must_use]
    pub fn of(value: Json<'a>) -> Option<Self> {
        if value.spans.is_none() {
            return Self::parse(value.text);
        }
        let mut members = Vec::with_capacity(16);
        members.extend(value.inner());
        value.text.starts_with('{').then_some(Self { members })
    }

    /// The text of a member's value. If a name occurs twice, the last one counts, as for the agents,
    /// which are written in JavaScript.
    #[must_use]
    pub fn raw(&self, name: &str) -> Option<Json<'a>> {
        self.members
            .iter()
            .rev()
            .find(|(key, _)| key == name)
            .map(|(_, value)| *value)
    }

    /// The value of a member that is a string. `None` for any other type.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<String> {
        self.str(name).map(Cow::into_owned)
    }

    /// As [`Fields::text`], borrowed if the string contains no escapes.
    #[must_use]
    pub fn str(&self, name: &str) -> Option<Cow<'a, str>> {
        self.raw(name)?.text()
    }

    /// Whether a member is `true`. A missing member and any other type are `false`.
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        self.raw(name).is_some_and(|raw| raw.get() == "true")
    }

    /// The members of a member that is itself an object.
    #[must_use]
    pub fn object(&self, name: &str) -> Option<Fields<'a>> {
        Self::of(self.raw(name)?)
    }

    /// The elements of a member that is an array.
    #[must_use]
    pub fn array(&self, name: &str) -> Option<Vec<Json<'a>>> {
        self.raw(name)?.array()
    }

    /// The object as JSON text, with the original text of every value.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut json = String::from("{");
        for (name, value) in &self.members {
            if json.len() > 1 {
                json.push(',');
            }
            json.push_str(&serde_json::Value::from(name.as_ref()).to_string());
            json.push(':');
            json.push_str(value.get());
        }
        json.push('}');
        json
    }

    /// The position of a member's value in `text`, which must be the text that was parsed.
    #[must_use]
    pub fn range_of(&self, text: &str, name: &str) -> Option<Range<usize>> {
        let value = self.raw(name)?.get();
        let start = (value.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
        let end = start.checked_add(value.len())?;
        (end <= text.len()).then_some(start..end)
    }
}

impl<'a> Json<'a> {
    /// The value of `text`, with the positions of the values in it.
    pub(in crate::transcript) fn with_spans(text: &'a str, spans: &'a [ValueSpan]) -> Self {
        Self {
            text,
            spans: Some(spans),
        }
    }

    /// Its text.
    #[must_use]
    pub fn get(self) -> &'a str {
        self.text
    }

    /// The elements of an array. `None` if the value is anything else, or has more than 10,000 elements.
    #[must_use]
    pub fn array(self) -> Option<Vec<Self>> {
        if self.spans.is_none() {
            let elements: Elements<'_> = serde_json::from_str(self.text).ok()?;
            return Some(elements.0);
        }
        let is_array = self.text.starts_with('[');
        is_array.then(|| self.inner().map(|(_, element)| element).collect())
    }

    /// The content of a string. `None` if the value is anything else.
    #[must_use]
    pub fn text(self) -> Option<Cow<'a, str>> {
        match self.text.strip_prefix('"')?.strip_suffix('"') {
            Some(text) if memchr::memchr(b'\\', text.as_bytes()).is_none() => Some(Cow::Borrowed(text)),
            _ => lenient_text(self.text).map(Cow::Owned),
        }
    }

    /// The names and values in an object or array whose spans are known.
    fn inner(self) -> impl Iterator<Item = (Cow<'a, str>, Self)> {
        let mut rest = self.spans.unwrap_or_default();
        std::iter::from_fn(move || {
            let (span, rest_spans) = rest.split_first()?;
            let (inner, rest_spans) = rest_spans.split_at_checked(span.inner)?;
            rest = rest_spans;
            let text = self.text.get(span.start..span.start + span.bytes)?;
            Some((Cow::Borrowed(span.name), Self::with_spans(text, inner)))
        })
    }
}

impl<'a> From<&'a RawValue> for Json<'a> {
    fn from(value: &'a RawValue) -> Self {
        Self {
            text: value.get(),
            spans: None,
        }
    }
}

/// Decodes a JSON string, including one with half a surrogate pair: JavaScript writes such strings and
/// reads them back, so they are no reason to lose a record. The half becomes U+FFFD.
#[must_use]
pub fn lenient_text(json: &str) -> Option<String> {
    if !json.starts_with('"') {
        return None;
    }
    match serde_json::from_str::<String>(json) {
        Ok(text) => Some(text),
        Err(_) => serde_json::from_str::<TextBytes>(json)
            .ok()
            .map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned()),
    }
}

/// The bytes of a JSON string. Surrogate halves are encoded like any other code point.
struct TextBytes(Vec<u8>);

impl<'de> Deserialize<'de> for TextBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BytesVisitor;
        impl Visitor<'_> for BytesVisitor {
            type Value = TextBytes;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<TextBytes, E> {
                Ok(TextBytes(bytes.to_vec()))
            }
        }
        deserializer.deserialize_bytes(BytesVisitor)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Vec<(Cow<'de, str>, Json<'de>)>;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::with_capacity(16);
                while let Some(name) = map.next_key::<&RawValue>()? {
                    if members.len() == INNER_LIMIT {
                        return Err(A::Error::custom("too many members"));
                    }
                    // Half a surrogate pair in a name is no reason to lose the record.
                    let name = Json::from(name).text();
                    let name = name.ok_or_else(|| A::Error::custom("a name is not a string"))?;
                    members.push((name, Json::from(map.next_value::<&RawValue>()?)));
                }
                Ok(members)
            }
        }
        deserializer
            .deserialize_map(MembersVisitor)
            .map(|members| Fields { members })
    }
}

/// The elements of an array.
struct Elements<'a>(Vec<Json<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for Elements<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ElementsVisitor;
        impl<'de> Visitor<'de> for ElementsVisitor {
            type Value = Vec<Json<'de>>;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a JSON array")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = array.next_element::<&RawValue>()? {
                    if elements.len() == INNER_LIMIT {
                        return Err(A::Error::custom("too many elements"));
                    }
                    elements.push(Json::from(element));
                }
                Ok(elements)
            }
        }
        deserializer.deserialize_seq(ElementsVisitor).map(Elements)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_decoded_only_as_what_they_are() {
        let fields =
            Fields::parse(r#"{"a":"x","n":12345678901234567890.123,"t":true,"a":"y","o":{"k":[1]}}"#)
                .expect("an object");
        assert_eq!(fields.text("a").as_deref(), Some("y"), "the last of two counts");
        assert_eq!(fields.text("n"), None);
        assert_eq!(fields.raw("n").map(Json::get), Some("12345678901234567890.123"));
        assert!(fields.flag("t"));
        assert!(!fields.flag("a"));
        let inner = fields.object("o").expect("an object");
        assert_eq!(inner.array("k").map(|items| items.len()), Some(1));
        assert!(fields.object("a").is_none());
    }

    #[test]
    fn anything_but_an_object_is_nothing() {
        for text in ["", "1", "[]", "{", "{\"a\":1", "{\"a\":1} x", "null"] {
            assert!(Fields::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn what_has_too_many_members_or_elements_is_nothing() {
        for (count, is_read) in [(INNER_LIMIT, true), (INNER_LIMIT + 1, false)] {
            let object = format!("{{{}}}", vec!["\"a\":1"; count].join(","));
            assert_eq!(Fields::parse(&object).is_some(), is_read);
            let array = format!("{{\"a\":[{}]}}", vec!["1"; count].join(","));
            let read = Fields::parse(&array).expect("an object").array("a");
            assert_eq!(read.map(|elements| elements.len()), is_read.then_some(count));
        }
    }

    #[test]
    fn half_a_surrogate_pair_does_not_lose_the_text() {
        assert_eq!(
            lenient_text(r#""a\ud83dz""#)
                .as_deref()
                .map(|text| text.starts_with('a')),
            Some(true)
        );
        assert_eq!(lenient_text(r#""\ud83d\ude00""#).as_deref(), Some("😀"));
        assert_eq!(lenient_text("12"), None);
    }

    #[test]
    fn half_a_surrogate_pair_in_a_name_does_not_lose_the_record() {
        let fields = Fields::parse(r#"{"a\ud83d":1,"\udc00":{"b":2},"uu\u0069d":"x"}"#).expect("an object");
        assert_eq!(fields.text("uuid").as_deref(), Some("x"));
        assert!(Fields::parse(r#"{"a\ud83":1}"#).is_none());
        for refused in [r#"{"a\x":1}"#, "{\"a\t\":1}", "{\"\\n\t\":1}", "{a:1}", "{1:1}"] {
            assert!(Fields::parse(refused).is_none(), "{refused}");
        }
    }

    #[test]
    fn a_place_names_exactly_the_token() {
        let text = r#" {"x":{"id":"no"}, "id" : "yes" }"#;
        let place = Fields::parse(text)
            .expect("an object")
            .range_of(text, "id")
            .expect("a place");
        assert_eq!(&text[place], r#""yes""#);
    }
}
