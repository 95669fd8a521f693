//! Long results of tools, cut: what stands in their places says how much is left out, and where all of it is. Pure.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::transcript::fields::{Fields, lenient_text};

/// How what was left out is told; behind it how much that was.
const CUT: &str = "\n\n[Cut off here: ";

/// Members that are no text, of which a part is of no use.
const ENCODED: [&str; 2] = ["base64", "data"];

/// How deep what the agent noted of a result is looked at; what it writes is less deep.
const DEPTH: usize = 16;

/// What becomes of a record.
#[derive(Debug, Default)]
pub(super) struct Cut {
    /// What is to stand at which place of it.
    pub(super) values: Vec<(Range<usize>, Vec<u8>)>,
    /// How many texts of results were cut.
    pub(super) outputs: u64,
    /// How many bytes of them are left out.
    pub(super) bytes: u64,
}

/// Cuts the texts of results in a record that are longer than `limit` bytes; none where none is. What the agent notes of such a
/// result beside is cut with it.
pub(super) fn cut(record: &str, limit: u64, session: &str) -> Option<Cut> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if record.len() <= limit {
        return None;
    }
    let fields = Fields::parse(record.trim_start_matches('\u{feff}'))?;
    let mut cutter = Cutter {
        record,
        limit,
        session,
        cut: Cut::default(),
    };
    let content = fields
        .object("message")
        .and_then(|message| message.array("content"));
    for block in content.unwrap_or_default() {
        let Some(block) = Fields::parse(block.get()).filter(|block| is_of(block, "tool_result")) else {
            continue;
        };
        let Some(content) = block.raw("content") else {
            continue;
        };
        cutter.text(content);
        for part in block.array("content").unwrap_or_default() {
            let part = Fields::parse(part.get()).filter(|part| is_of(part, "text"));
            if let Some(text) = part.as_ref().and_then(|part| part.raw("text")) {
                cutter.text(text);
            }
        }
    }
    let (outputs, bytes) = (cutter.cut.outputs, cutter.cut.bytes);
    if outputs == 0 {
        return None;
    }
    if let Some(noted) = fields.raw("toolUseResult") {
        cutter.texts(noted, DEPTH);
    }
    Some(Cut {
        outputs,
        bytes,
        ..cutter.cut
    })
}

fn is_of(block: &Fields<'_>, kind: &str) -> bool {
    block.text("type").as_deref() == Some(kind)
}

struct Cutter<'a> {
    record: &'a str,
    limit: usize,
    session: &'a str,
    cut: Cut,
}

impl Cutter<'_> {
    /// All texts in a value.
    fn texts(&mut self, value: &RawValue, depth: usize) {
        match value.get().as_bytes().first() {
            _ if depth == 0 => {}
            Some(b'"') => self.text(value),
            Some(b'[') => {
                let elements: Vec<&RawValue> = serde_json::from_str(value.get()).unwrap_or_default();
                for element in elements {
                    self.texts(element, depth - 1);
                }
            }
            Some(b'{') => {
                let members: BTreeMap<String, &RawValue> =
                    serde_json::from_str(value.get()).unwrap_or_default();
                for (name, member) in members {
                    if !ENCODED.contains(&name.as_str()) {
                        self.texts(member, depth - 1);
                    }
                }
            }
            _ => {}
        }
    }

    /// A value that may be a text.
    fn text(&mut self, value: &RawValue) {
        let json = value.get();
        let text = (json.len() > self.limit).then(|| lenient_text(json)).flatten();
        let Some(text) = text.filter(|text| text.len() > self.limit) else {
            return;
        };
        // One that was cut before is longer by what it says of that.
        let before = text.rfind(CUT).filter(|_| text.ends_with(']'));
        if before.is_some_and(|before| before <= self.limit) {
            return;
        }
        let is_boundary = |at: &usize| text.is_char_boundary(*at);
        let head = (0..=self.limit).rev().find(is_boundary).unwrap_or_default();
        let left_out = text.len() - head;
        let told = format!(
            "{}{CUT}{left_out} of the {} bytes of this output are not in this copy of the session. All of it is in session {}.]",
            &text[..head],
            text.len(),
            self.session
        );
        let start = json.as_ptr() as usize - self.record.as_ptr() as usize;
        let value = Value::from(told).to_string().into_bytes();
        self.cut.values.push((start..start + json.len(), value));
        self.cut.outputs += 1;
        self.cut.bytes += left_out as u64;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    proptest! {
        /// The limit falls between characters, whatever they are.
        #[test]
        fn no_output_is_too_strange(text in "[\u{130}\u{1e9e}\u{1f600}a\n\\\\\"]{0,60}|\\PC{0,60}", limit in 0u64..64) {
            let record = json!({"message": {"content": [{"type": "tool_result", "content": [{"type": "text", "text": text}]}]},
                "toolUseResult": {"stdout": text, "other": [text]}}).to_string();
            if let Some(cut) = cut(&record, limit, "session") {
                prop_assert!(text.len() as u64 > limit);
                for (place, value) in cut.values {
                    prop_assert_eq!(lenient_text(&record[place]), Some(text.clone()));
                    let value = String::from_utf8(value).unwrap();
                    prop_assert!(lenient_text(&value).unwrap().contains(CUT));
                }
            }
        }
    }
}
