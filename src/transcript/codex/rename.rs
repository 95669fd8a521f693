//! Changes the session ids in rollouts.
//!
//! In each record the tokens that name a session are replaced by tokens of the same length, so that byte counts that
//! refer to the file stay valid. Messages are not changed. Pure.

use std::collections::BTreeMap;

use crate::transcript::rewrite::{EditableRecord, Edits, LineChange, json_string};

/// The paths of the members that name a session.
const NAMES: [&[&str]; 8] = [
    &["payload", "session_id"],
    &["payload", "thread_id"],
    &["payload", "forked_from_id"],
    &["payload", "history_base", "thread_id"],
    &["payload", "latest_token_usage_record", "thread_id"],
    &["payload", "latest_token_usage_record", "session_id"],
    &["payload", "resume_metadata", "dynamic_tools", "thread_id"],
    &["payload", "parent_thread_id"],
];
/// Session ids and their replacements.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Renaming {
    /// The JSON strings of the ids, as in a record.
    tokens: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Renaming {
    /// Creates a renaming of these ids. Ids whose replacement has another length are not replaced.
    #[must_use]
    pub fn new(ids: impl IntoIterator<Item = (String, String)>) -> Self {
        let token = |id: String| json_string(&id).into_bytes();
        let tokens = ids.into_iter().map(|(old, new)| (token(old), token(new)));
        Self {
            tokens: tokens.filter(|(old, new)| old.len() == new.len()).collect(),
        }
    }
}

/// Edits a line to contain the new ids.
impl LineChange for Renaming {
    fn edit(&self, line: &[u8], edits: &mut Edits) {
        if self.tokens.is_empty() {
            return;
        }
        let Some(record) = std::str::from_utf8(line).ok().and_then(EditableRecord::parse) else {
            return;
        };
        let own: &[&[&str]] = match record.fields.str("type").as_deref() {
            // Items are sent to the model and must not change.
            Some("response_item") => return,
            Some("session_meta") => &[&["payload", "id"]],
            // The first line of early versions.
            None => &[&["id"]],
            Some(_) => &[],
        };
        for path in own.iter().chain(&NAMES) {
            let Some(range) = record.position(path) else {
                continue;
            };
            let token = line.get(range.clone()).and_then(|token| self.tokens.get(token));
            if let Some(token) = token {
                edits.replace(range, token.as_slice());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcript::relocate::rewrite_lines;

    const OLD: &str = "01a1fc15-ffed-7ff1-b050-3a83130f7a03";
    const NEW: &str = "01a1fc16-01ee-76c3-a43d-78487b788798";

    fn renamed_by(renaming: &Renaming, line: &str) -> String {
        let mut written = Vec::new();
        rewrite_lines(line.as_bytes(), &mut written, renaming).unwrap();
        String::from_utf8(written).unwrap()
    }

    fn renamed(line: &str) -> String {
        let renaming = Renaming::new([(OLD.to_owned(), NEW.to_owned())]);
        renamed_by(&renaming, line)
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
        assert_eq!(renamed_by(&renaming, &line), line);
    }
}
