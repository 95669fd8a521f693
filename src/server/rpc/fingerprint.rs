//! What a call says, as a hash by which a repetition is known. Pure.
//!
//! Two calls say the same when their parameters mean the same: blanks, the order of an object's members, escapes in
//! texts and defaults that are written out make no difference. Who asks for a hash has filled the defaults in.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

/// Content that is nested deeper than this is taken as it is written: it is no reason to run out of stack.
const MAX_DEPTH: usize = 64;

/// The hash of a method and its content.
pub(super) fn fingerprint(method: &str, content: &impl Serialize) -> String {
    let mut text = String::new();
    // What cannot be written as JSON did not come in as JSON.
    if let Ok(raw) = serde_json::value::to_raw_value(content) {
        write_canonical(&raw, MAX_DEPTH, &mut text);
    }
    let mut hash = Sha256::new();
    hash.update(method.as_bytes());
    hash.update([0]);
    hash.update(text.as_bytes());
    hash.finalize()
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Writes a value in the one form that all values of the same meaning have. Numbers keep their digits.
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
    // A text with half a surrogate pair is JSON and no text: it stands for itself.
    if written.is_err() {
        text.push_str(json);
    }
}

/// Length first, so that no text can look like what stands around it.
fn write_text(value: &str, text: &mut String) {
    text.push_str(&value.len().to_string());
    text.push('"');
    text.push_str(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(json: &str) -> String {
        fingerprint("m", &serde_json::from_str::<&RawValue>(json).unwrap())
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
        assert_ne!(fingerprint("m", &1), fingerprint("n", &1));
    }

    #[test]
    fn depth_costs_no_stack() {
        let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
        let raw = RawValue::from_string(deep);
        if let Ok(raw) = raw {
            assert_eq!(fingerprint("m", &raw).len(), 32);
        }
    }
}
