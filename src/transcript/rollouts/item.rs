//! The agent's own names of what a turn is made of: its fork is told a place by one of them.

use std::path::Path;

use memchr::memmem;

use super::find;
use super::text::Text;
use crate::transcript::TranscriptError;
use crate::transcript::codex::item_completed;
use crate::transcript::lines::Lines;

/// The id of an item of a turn in the file of the session `owner`; none where the agent wrote down no items, as older versions
/// did not, or there is no such turn.
///
/// # Errors
/// As [`find`], and [`TranscriptError::Io`].
pub fn item_of_turn(root: &Path, owner: &str, turn: &str) -> Result<Option<String>, TranscriptError> {
    let path = find(root, owner)?;
    let (text, _) = Text::open(&path)?;
    let named = memmem::Finder::new(turn.as_bytes());
    let mut lines = Lines::new(text, 0);
    while let Some(line) = lines.next_line().map_err(TranscriptError::io("read", &path))? {
        if named.find(line.bytes).is_none() {
            continue;
        }
        let item = item_completed(line.bytes).filter(|item| item.turn == turn);
        if let Some(item) = item {
            return Ok(Some(item.id));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_found_by_its_turn_alone() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("sessions/2026/11/03");
        std::fs::create_dir_all(&folder).unwrap();
        let id = "01a20272-0000-7000-8000-000000000001";
        let lines = [
            format!(r#"{{"ordinal":0,"type":"session_meta","payload":{{"id":"{id}"}}}}"#),
            r#"{"ordinal":1,"type":"event_msg","payload":{"type":"task_started","turn_id":"t-1"}}"#.to_owned(),
            r#"{"ordinal":2,"type":"event_msg","payload":{"type":"item_completed","turn_id":"t-1","item":{"type":"UserMessage","id":"i-1","content":[{"type":"text","text":"t-2"}]}}}"#.to_owned(),
            r#"{"ordinal":3,"type":"event_msg","payload":{"type":"item_completed","turn_id":"t-2","item":{"type":"AgentMessage","id":"i-2"}}}"#.to_owned(),
            r#"{"ordinal":4,"type":"event_msg","payload":{"type":"task_complete","turn_id":"t-3"}}"#.to_owned(),
        ];
        let path = folder.join(format!("rollout-2026-11-03T10-00-00-{id}.jsonl"));
        std::fs::write(path, lines.join("\n") + "\n").unwrap();
        let item = |turn| item_of_turn(root.path(), id, turn).unwrap();
        assert_eq!(item("t-1").as_deref(), Some("i-1"));
        assert_eq!(item("t-2").as_deref(), Some("i-2"));
        assert_eq!((item("t-3"), item("t-4")), (None, None));
        let unknown = "01a20272-0000-7000-8000-000000000002";
        assert!(item_of_turn(root.path(), unknown, "t-1").is_err());
    }
}
