//! The agent's own ids of the items of a turn. Its fork takes one of them as the end of the fork.

use std::io;
use std::path::Path;

use memchr::memmem;

use super::{Lineage, Source, text};
use crate::transcript::TranscriptError;
use crate::transcript::codex::line::RolloutLine;
use crate::transcript::lines::{Lines, line_text};

/// The event that contains the id of an item.
const COMPLETED: &[u8] = b"item_completed";

/// The type of a compaction's item.
const COMPACTION: &str = "ContextCompaction";

/// The id of an item of a turn in the history of the session `upstream_id`. The turn is in the file of the session `owner`.
/// This is the last item before the next prompt, so that a compaction after the turn, which the agent counts as a turn of its
/// own, is included. `None` if the agent recorded no items, as older versions did not, or if there is no such turn.
///
/// # Errors
/// As [`find`](super::find), and [`TranscriptError::Io`].
pub fn item_of_turn(
    root: &Path,
    upstream_id: &str,
    owner: &str,
    turn: &str,
) -> Result<Option<String>, TranscriptError> {
    let lineage = Lineage::read(root, upstream_id)?;
    let is_before = |source: &&Source| source.upstream_id != owner;
    let mut item_id = None;
    for source in lineage.sources.iter().skip_while(is_before) {
        if !search(source, turn, &mut item_id).map_err(TranscriptError::io("read", &source.path))? {
            break;
        }
    }
    Ok(item_id)
}

/// Searches one file. Returns whether the search must continue in the next file.
fn search(source: &Source, turn: &str, item_id: &mut Option<String>) -> io::Result<bool> {
    let text = text::open(&source.path).map_err(io::Error::other)?.0;
    let is_item = memmem::Finder::new(COMPLETED);
    let mut lines = Lines::new(text, 0);
    while let Some(line) = lines.next_line()? {
        if is_item.find(line.bytes).is_none() {
            continue;
        }
        let text = line_text(line.bytes);
        let completed = RolloutLine::parse(&text).and_then(|line| {
            let is_it = line.payload.str("type")?.as_bytes() == COMPLETED;
            let item = is_it.then(|| line.payload.object("item")).flatten()?;
            Some((
                line.ordinal,
                line.payload.text("turn_id")?,
                item.text("id")?,
                item.text("type"),
            ))
        });
        let Some((ordinal, of_turn, id, kind)) = completed else {
            continue;
        };
        if source.end.excludes(ordinal, line.offset) {
            break;
        }
        if of_turn == turn || (item_id.is_some() && kind.as_deref() == Some(COMPACTION)) {
            *item_id = Some(id);
        } else if item_id.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_item_before_the_next_prompt_is_found_by_its_turn() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("sessions/2026/11/03");
        std::fs::create_dir_all(&folder).unwrap();
        let id = "01a20272-0000-7000-8000-000000000001";
        let line = |ordinal: u64, turn: &str, kind: &str, id: &str| {
            format!(
                r#"{{"ordinal":{ordinal},"type":"event_msg","payload":{{"type":"item_completed","turn_id":"{turn}","item":{{"type":"{kind}","id":"{id}"}}}}}}"#
            )
        };
        let lines = [
            format!(r#"{{"ordinal":0,"type":"session_meta","payload":{{"id":"{id}"}}}}"#),
            r#"{"ordinal":1,"type":"event_msg","payload":{"type":"task_started","turn_id":"t-1"}}"#.to_owned(),
            r#"{"ordinal":2,"type":"event_msg","payload":{"type":"item_completed","turn_id":"t-1","item":{"type":"UserMessage","id":"i-1","content":[{"type":"text","text":"t-2"}]}}}"#.to_owned(),
            line(3, "t-1", "AgentMessage", "i-2"),
            line(4, "c-1", "ContextCompaction", "i-3"),
            line(5, "t-2", "AgentMessage", "i-4"),
            r#"{"ordinal":6,"type":"event_msg","payload":{"type":"task_complete","turn_id":"t-3"}}"#.to_owned(),
            line(7, "c-2", "ContextCompaction", "i-5"),
            line(8, "c-3", "ContextCompaction", "i-6"),
            line(9, "t-4", "UserMessage", "i-7"),
            line(10, "c-4", "ContextCompaction", "i-8"),
        ];
        let path = folder.join(format!("rollout-2026-11-03T10-00-00-{id}.jsonl"));
        std::fs::write(path, lines.join("\n") + "\n").unwrap();
        let item = |turn| item_of_turn(root.path(), id, id, turn).unwrap();
        // The item of a turn includes compactions after it, up to the next prompt.
        assert_eq!(item("t-1").as_deref(), Some("i-3"));
        assert_eq!(item("t-2").as_deref(), Some("i-6"));
        assert_eq!((item("t-3"), item("t-5")), (None, None));
        assert_eq!(item("t-4").as_deref(), Some("i-8"));
        // A fork does not have later items of its source, but has its own first items.
        let fork = "01a20272-0000-7000-8000-000000000002";
        let lines = [
            format!(
                r#"{{"ordinal":4,"type":"session_meta","payload":{{"id":"{fork}","history_base":{{"thread_id":"{id}","end_ordinal_exclusive":4}}}}}}"#
            ),
            line(5, "c-5", "ContextCompaction", "i-9"),
            line(6, "t-5", "UserMessage", "i-10"),
        ];
        let path = folder.join(format!("rollout-2026-11-03T11-00-00-{fork}.jsonl"));
        std::fs::write(path, lines.join("\n") + "\n").unwrap();
        let of_fork = |owner, turn| item_of_turn(root.path(), fork, owner, turn).unwrap();
        assert_eq!(of_fork(id, "t-1").as_deref(), Some("i-9"));
        assert_eq!(of_fork(fork, "t-5").as_deref(), Some("i-10"));
        assert_eq!((of_fork(id, "t-2"), of_fork(fork, "t-1")), (None, None));
        let unknown = "01a20272-0000-7000-8000-000000000003";
        assert!(item_of_turn(root.path(), unknown, id, "t-1").is_err());
    }
}
