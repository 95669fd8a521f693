//! Splits a line of input into requests, without parsing their parameters.
//!
//! Pure. Decides whether a line is a request, a notification, a batch or invalid, and how an invalid line is answered.
//! Knows no method names and no connection.

use std::borrow::Cow;

use bridge_protocol::BridgeError;
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::answer::{invalid_request, parse_error};

/// The content of a line.
#[derive(Debug)]
pub(super) enum Incoming<'a> {
    /// One request or notification.
    One(Entry<'a>),
    /// A batch with at least one entry.
    Batch(Vec<Entry<'a>>),
}

/// A request or a notification, or the error if it is neither.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    /// The id, if it could be read. A call without an id is a notification, which is never answered.
    pub(super) id: Option<&'a RawValue>,
    pub(super) call: Result<ParsedCall<'a>, BridgeError>,
}

/// A call: the method and its parameters.
#[derive(Debug)]
pub(super) struct ParsedCall<'a> {
    pub(super) method: Cow<'a, str>,
    /// The parameters, unchanged. `None` if they are absent or null.
    pub(super) params: Option<&'a RawValue>,
}

/// Parses a line. `batch_entries` is the maximum number of entries in a batch.
///
/// # Errors
/// The error with which the line is answered, if it is neither a request nor a batch.
pub(super) fn parse_line(line: &[u8], batch_entries: usize) -> Result<Incoming<'_>, BridgeError> {
    let text = std::str::from_utf8(line).map_err(parse_error)?.trim_start();
    if !text.starts_with('[') {
        return Ok(Incoming::One(parse_entry(text)));
    }
    let entries: Vec<&RawValue> = serde_json::from_str(text).map_err(parse_error)?;
    if entries.is_empty() {
        return Err(invalid_request("the batch is empty"));
    }
    if entries.len() > batch_entries {
        return Err(invalid_request(format!(
            "the batch has {} entries, more than the limit of {batch_entries}",
            entries.len()
        )));
    }
    let entries = entries.into_iter().map(|entry| parse_entry(entry.get()));
    Ok(Incoming::Batch(entries.collect()))
}

fn parse_entry(text: &str) -> Entry<'_> {
    #[derive(Deserialize)]
    #[serde(expecting = "an object")]
    struct Envelope<'a> {
        #[serde(borrow, default)]
        jsonrpc: Option<&'a RawValue>,
        #[serde(borrow, default, deserialize_with = "present")]
        id: Option<&'a RawValue>,
        #[serde(borrow, default)]
        method: Option<&'a RawValue>,
        #[serde(borrow, default)]
        params: Option<&'a RawValue>,
    }

    let envelope = match serde_json::from_str::<Envelope<'_>>(text) {
        // serde would also accept an array with the fields in order.
        Ok(_) if !text.starts_with('{') => Err(invalid_request("a request is an object")),
        Ok(envelope) => Ok(envelope),
        Err(error) if error.classify() == Category::Data => {
            Err(invalid_request(format!("not a request: {error}")))
        }
        Err(error) => Err(parse_error(error)),
    };
    let envelope = match envelope {
        Ok(envelope) => envelope,
        Err(error) => {
            return Entry {
                id: None,
                call: Err(error),
            };
        }
    };
    let refused = |id, why: &str| Entry {
        id,
        call: Err(invalid_request(why)),
    };
    let id = envelope.id;
    if id.is_some_and(|raw| !is_id(raw)) {
        return refused(None, "an id is a string, a number or null");
    }
    if envelope.jsonrpc.is_none_or(|version| version.get() != r#""2.0""#) {
        return refused(id, "`jsonrpc` is not \"2.0\"");
    }
    let Some(method) = envelope.method.and_then(decode_string) else {
        return refused(id, "`method` is missing or not a string");
    };
    let params = envelope.params;
    Entry {
        id,
        call: Ok(ParsedCall { method, params }),
    }
}

/// Converts the text found as the id in a line over the limit. `None` if it is not an id.
pub(super) fn request_id(text: String) -> Option<Box<RawValue>> {
    RawValue::from_string(text).ok().filter(|raw| is_id(raw))
}

/// Whether a value can be the id of a request. Ids are never interpreted, only echoed unchanged, so any number is valid.
fn is_id(raw: &RawValue) -> bool {
    match raw.get().as_bytes().first() {
        Some(b'"') => decode_string(raw).is_some(),
        Some(first) => *first == b'-' || first.is_ascii_digit() || raw.get() == "null",
        None => false,
    }
}

/// Decodes a string. Borrowed from the line if it has no escapes, as with all real method names.
fn decode_string(raw: &RawValue) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str(raw.get()).ok().map(|Text(text)| text)
}

/// Distinguishes an id of `null` from a missing id: serde's `Option` reads both as `None`.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&'a RawValue>::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::answer;

    fn describe(Entry { id, call }: &Entry<'_>) -> String {
        match call {
            Ok(ParsedCall { method, params }) => format!(
                "call {} {method} {}",
                id.map_or("-", RawValue::get),
                params.map_or("-", RawValue::get)
            ),
            Err(error) => {
                let answer: serde_json::Value =
                    serde_json::from_str(&answer::error_response(*id, error)).unwrap();
                format!("error {} {}", answer["id"], answer["error"]["code"])
            }
        }
    }

    fn described(line: &[u8]) -> String {
        match parse_line(line, 3) {
            Err(error) => describe(&Entry {
                id: None,
                call: Err(error),
            }),
            Ok(Incoming::One(entry)) => describe(&entry),
            Ok(Incoming::Batch(entries)) => {
                format!(
                    "batch [{}]",
                    entries.iter().map(describe).collect::<Vec<_>>().join(", ")
                )
            }
        }
    }

    #[test]
    fn only_what_can_be_an_id_is_answered() {
        for (text, is_id) in [
            ("7", true),
            (r#""x""#, true),
            ("null", true),
            ("tru", false),
            ("-1.5", true),
            ("true", false),
        ] {
            assert_eq!(request_id(text.to_owned()).is_some(), is_id, "{text}");
        }
    }

    #[test]
    fn lines_are_taken_apart() {
        let table: &[(&[u8], &str)] = &[
            (
                br#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1}}"#,
                r#"call 1 m {"a":1}"#,
            ),
            (
                br#" {"id":"x","params":null,"method":"m","jsonrpc":"2.0","extra":[]} "#,
                r#"call "x" m -"#,
            ),
            (
                br#"{"jsonrpc":"2.0","id":null,"method":"\u006d"}"#,
                "call null m -",
            ),
            (br#"{"jsonrpc":"2.0","method":"m"}"#, "call - m -"),
            (
                br#"{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}"#,
                "call 1 m [1]",
            ),
            (b"garbage", "error null -32700"),
            (br#"{"jsonrpc":"2.0","id":1,"method":"m""#, "error null -32700"),
            (
                b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}",
                "error null -32700",
            ),
            (b"5", "error null -32600"),
            (b"\"text\"", "error null -32600"),
            (
                br#"{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}"#,
                "error null -32600",
            ),
            (br#"{"jsonrpc":"2.0","id":{},"method":"m"}"#, "error null -32600"),
            (br#"{"jsonrpc":"2.0","id":-1.50,"method":"m"}"#, "call -1.50 m -"),
            (br#"{"jsonrpc":"2.0","id":-7,"method":"m"}"#, "call -7 m -"),
            (
                br#"{"jsonrpc":"2.0","id":true,"method":"m"}"#,
                "error null -32600",
            ),
            (
                br#"{"jsonrpc":"2.0","id":"\ud800","method":"m"}"#,
                "error null -32600",
            ),
            (br#"{"jsonrpc":"1.0","id":1,"method":"m"}"#, "error 1 -32600"),
            (br#"{"id":1,"method":"m"}"#, "error 1 -32600"),
            (br#"{"jsonrpc":"2.0","id":1}"#, "error 1 -32600"),
            (br#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "error 1 -32600"),
            (br#"{"jsonrpc":"2.0","id":1,"method":7}"#, "error 1 -32600"),
            (b"[]", "error null -32600"),
            (b"[1", "error null -32700"),
            (
                br#"[{"jsonrpc":"2.0","id":1,"method":"a"},5,["2.0",1,"m"]]"#,
                "batch [call 1 a -, error null -32600, error null -32600]",
            ),
            (b"[1,2,3,4]", "error null -32600"),
        ];
        for (line, expected) in table {
            assert_eq!(described(line), *expected, "{}", String::from_utf8_lossy(line));
        }
    }
}
