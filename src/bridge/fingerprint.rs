//! The hash of a call's content, which identifies a repeated call. Pure.
//!
//! Two calls have the same content if their parameters mean the same: whitespace, the order of members, escapes in strings
//! and explicit defaults make no difference.

use std::collections::BTreeMap;

use bridge_protocol::method::Method;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::conversation::answer::FINGERPRINT_VERSION;

/// Content that is nested deeper than this is compared as raw text, so that it cannot exhaust the stack.
const MAX_DEPTH: usize = 64;

/// The parameters that only identify the call and its conversation. They are not part of the content.
const NOT_CONTENT: [&str; 2] = ["requestId", "conversationId"];

/// The hash of a call's method and content.
pub(super) fn fingerprint<M: Method>(params: &M) -> String {
    let mut text = String::new();
    // Always succeeds: the parameters were read from JSON, so they can be written as JSON.
    if let Ok(raw) = serde_json::value::to_raw_value(params)
        && let Ok(mut members) = serde_json::from_str::<BTreeMap<String, &RawValue>>(raw.get())
    {
        members.retain(|name, _| !NOT_CONTENT.contains(&name.as_str()));
        for (name, value) in members {
            write_text(&name, &mut text);
            text.push(':');
            write_canonical(value, MAX_DEPTH, &mut text);
            text.push(',');
        }
    }
    let mut hash = Sha256::new();
    hash.update(M::NAME.as_bytes());
    hash.update([0]);
    hash.update(text.as_bytes());
    let digits: String = hash
        .finalize()
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{FINGERPRINT_VERSION}{digits}")
}

/// Writes a value in canonical form: values with the same meaning have the same form. Numbers keep their digits.
fn write_canonical(raw: &RawValue, depth: usize, text: &mut String) {
    let json = raw.get();
    let written = match json.as_bytes().first() {
        Some(b'{') if depth > 0 => serde_json::from_str::<BTreeMap<String, &RawValue>>(json).map(|members| {
            text.push('{');
            for (name, value) in members {
                write_text(&name, text);
                text.push(':');
                write_canonical(value, depth - 1, text);
                text.push(',');
            }
            text.push('}');
        }),
        Some(b'[') if depth > 0 => serde_json::from_str::<Vec<&RawValue>>(json).map(|items| {
            text.push('[');
            for item in items {
                write_canonical(item, depth - 1, text);
                text.push(',');
            }
            text.push(']');
        }),
        Some(b'"') => serde_json::from_str::<String>(json).map(|value| write_text(&value, text)),
        _ => {
            text.push_str(json);
            Ok(())
        }
    };
    // A string with half of a surrogate pair is valid JSON, but cannot be decoded. It is compared as raw text.
    if written.is_err() {
        text.push_str(json);
    }
}

/// Writes a string, preceded by its length, so that its content cannot be mistaken for syntax.
fn write_text(value: &str, text: &mut String) {
    text.push_str(&value.len().to_string());
    text.push('"');
    text.push_str(value);
}

#[cfg(test)]
mod tests {
    use bridge_protocol::method::{Close, Fork, Reset};

    use super::*;

    fn of(json: &str) -> String {
        let mut text = String::new();
        write_canonical(serde_json::from_str(json).unwrap(), MAX_DEPTH, &mut text);
        text
    }

    #[test]
    fn a_call_is_recognized_by_its_content_and_not_by_its_names() {
        let fork = |json: &str| fingerprint(&serde_json::from_str::<Fork>(json).unwrap());
        let first = fork(r#"{"conversationId":"a","at":"x","requestId":"1"}"#);
        for same in [
            r#"{"conversationId":"b","at":"x","requestId":"2","inPlace":false}"#,
            r#"{"minFidelity":"text","conversationId":"a","cwd":null,"at":"\u0078"}"#,
        ] {
            assert_eq!(fork(same), first, "{same}");
        }
        for other in [
            r#"{"conversationId":"a","at":"y"}"#,
            r#"{"conversationId":"a","at":"x","inPlace":true}"#,
            r#"{"conversationId":"a","cwd":"x"}"#,
        ] {
            assert_ne!(fork(other), first, "{other}");
        }
        let close = fingerprint(&Close::default());
        assert_ne!(close, fingerprint(&Reset::default()));
        assert!(close.starts_with(FINGERPRINT_VERSION));
    }

    #[test]
    fn the_same_in_other_words_is_the_same() {
        for (one, other) in [
            (
                r#"{"a":1,"b":[true,null]}"#,
                r#" { "b" : [ true , null ] , "a" : 1 } "#,
            ),
            (r#"{"t":"é\n"}"#, r#"{"t":"\u00e9\u000a"}"#),
            (r#"{"x":{"b":{},"a":[]}}"#, r#"{"x":{"a":[],"b":{}}}"#),
        ] {
            assert_eq!(of(one), of(other), "{one}");
        }
    }

    #[test]
    fn another_meaning_is_another_hash() {
        let different = [
            r#"{"a":1}"#,
            r#"{"a":"1"}"#,
            r#"{"a":1.0}"#,
            r#"{"a":12345678901234567890123}"#,
            r#"{"a":12345678901234567890124}"#,
            r#"["a",1]"#,
            r#"["b","a"]"#,
            r#"["a","b"]"#,
            r#"["ab"]"#,
            r#"["a\",1\"b"]"#,
            r#""\ud800""#,
            r#""\ud801""#,
        ];
        for (index, one) in different.iter().enumerate() {
            for other in &different[index + 1..] {
                assert_ne!(of(one), of(other), "{one} {other}");
            }
        }
    }

    #[test]
    fn depth_costs_no_stack() {
        let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
        let raw = RawValue::from_string(deep).unwrap();
        let mut text = String::new();
        write_canonical(&raw, MAX_DEPTH, &mut text);
        assert!(text.len() > 200_000);
    }
}
