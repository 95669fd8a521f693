//! Rollouts under other session ids.
//!
//! Of a record the tokens that name a session are replaced by such of the same length, so that what counts the file's
//! bytes still counts right; what was said is left alone. Pure.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use super::line::{LineKind, RolloutLine};
use crate::transcript::fields::Fields;
use crate::transcript::lines::trimmed;

/// The members of a record that name a session, each by the way to it. Of the first line of a session also `id`.
const NAMES: [&[&str]; 8] = [
    &["session_id"],
    &["thread_id"],
    &["forked_from_id"],
    &["history_base", "thread_id"],
    &["latest_token_usage_record", "thread_id"],
    &["latest_token_usage_record", "session_id"],
    &["resume_metadata", "dynamic_tools", "thread_id"],
    &["parent_thread_id"],
];

/// Session ids and what they become.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Renaming {
    /// By the tokens as they stand in a record.
    tokens: BTreeMap<String, String>,
}

impl Renaming {
    /// The same with these ids. Of those of different lengths none is replaced.
    #[must_use]
    pub fn new(ids: impl IntoIterator<Item = (String, String)>) -> Self {
        let token = |id: String| serde_json::Value::from(id).to_string();
        let tokens = ids.into_iter().map(|(old, new)| (token(old), token(new)));
        Self {
            tokens: tokens.filter(|(old, new)| old.len() == new.len()).collect(),
        }
    }

    /// A line, without its newline, under the new ids.
    #[must_use]
    pub fn line<'a>(&self, line: &'a [u8]) -> Cow<'a, [u8]> {
        if self.tokens.is_empty() {
            return Cow::Borrowed(line);
        }
        let places = self.places(line).unwrap_or_default();
        if places.is_empty() {
            return Cow::Borrowed(line);
        }
        let mut written = line.to_vec();
        for (place, token) in places {
            written[place].copy_from_slice(token.as_bytes());
        }
        Cow::Owned(written)
    }

    /// The places of a line and what stands there then; none where the line is no record.
    fn places(&self, line: &[u8]) -> Option<Vec<(Range<usize>, &str)>> {
        let record = trimmed(line);
        // Places are those of the line, before whose record a mark may stand.
        let start = record.as_ptr() as usize - line.as_ptr() as usize;
        let text = std::str::from_utf8(record).ok()?;
        let record = RolloutLine::parse(text)?;
        // What the model is sent.
        if record.kind == LineKind::Item {
            return None;
        }
        let own: &[&[&str]] = match record.kind {
            LineKind::Meta => &[&["id"]],
            _ => &[],
        };
        let mut places = Vec::new();
        for way in own.iter().chain(&NAMES) {
            let Some(place) = place(text, &record.payload, way) else {
                continue;
            };
            if let Some(token) = self.tokens.get(&text[place.clone()]) {
                places.push((place.start + start..place.end + start, token.as_str()));
            }
        }
        Some(places)
    }
}

fn place(text: &str, fields: &Fields<'_>, way: &[&str]) -> Option<Range<usize>> {
    match way {
        [] => None,
        [name] => fields.place(text, name),
        [name, rest @ ..] => place(text, &fields.object(name)?, rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "01a1fc15-ffed-7ff1-b050-3a83130f7a03";
    const NEW: &str = "01a1fc16-01ee-76c3-a43d-78487b788798";

    fn renamed(line: &str) -> String {
        let renaming = Renaming::new([(OLD.to_owned(), NEW.to_owned())]);
        String::from_utf8(renaming.line(line.as_bytes()).into_owned()).unwrap()
    }

    #[test]
    fn what_names_the_session_changes_and_what_was_said_does_not() {
        let changes = [
            r#"{"type":"session_meta","payload":{"id":"ID","session_id" : "ID","cwd":"/ID","x":"ID"}}"#,
            r#"{"type":"session_meta","payload":{"id":"other","forked_from_id":"ID","history_base":{"thread_id":"ID","end_byte_offset":9}}}"#,
            r#"{"type":"event_msg","payload":{"type":"x","thread_id":"ID","message":"ID"}}"#,
            r#"{"type":"compacted","payload":{"latest_token_usage_record":{"session_id":"ID"},"resume_metadata":{"dynamic_tools":{"thread_id":"ID"}}}}"#,
            r#"{"id":"ID","timestamp":"t","instructions":null}"#,
        ];
        for line in changes {
            let told = renamed(&line.replace("ID", OLD));
            let kept = told.replace(NEW, "ID").replace(OLD, "ID");
            assert_eq!(kept, line);
            assert_eq!(told.len(), line.replace("ID", OLD).len());
            assert!(told.contains(NEW), "{told}");
            for said in ["\"cwd\":\"/ID\"", "\"x\":\"ID\"", "\"message\":\"ID\""] {
                let said = said.replace("ID", OLD);
                assert_eq!(
                    told.contains(&said),
                    line.replace("ID", OLD).contains(&said),
                    "{told}"
                );
            }
        }
        let stays = [
            r#"{"type":"response_item","payload":{"type":"message","id":"ID","thread_id":"ID"}}"#,
            r#"{"type":"event_msg","payload":{"id":"ID"}}"#,
            r#"{"type":"event_msg","payload":{"thread_id":"xID"}}"#,
            r#"{"type":"event_msg","payload":{"thread_id":"ID"}"#,
            "",
        ];
        for line in stays {
            let line = line.replace("ID", OLD);
            assert_eq!(renamed(&line), line);
        }
    }

    #[test]
    fn an_id_of_another_length_is_never_put_in() {
        let renaming = Renaming::new([(OLD.to_owned(), "short".to_owned())]);
        let line = format!("{{\"type\":\"session_meta\",\"payload\":{{\"id\":\"{OLD}\"}}}}");
        assert_eq!(renaming.line(line.as_bytes()), line.as_bytes());
    }
}
