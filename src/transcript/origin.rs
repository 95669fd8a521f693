//! Where a transcript says that it came from: its folder, its title, and the session that it was forked off.
//!
//! One pass, in the memory of an index. Pure; knows nothing of what is made of it.

use std::io::{self, BufRead};
use std::sync::Arc;

use super::claude::Index;
use super::lines::{Lines, text_of_same_length, trimmed};
use super::record::{Record, RecordHeader, RecordKind};

/// What a transcript says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// The folder that the last record of the conversation ran in.
    pub cwd: Option<String>,
    /// The title that a person gave it; the last one counts.
    pub title: Option<String>,
    /// The place that its history was copied from.
    pub forked_from: Option<ForkedFrom>,
    /// The turns of its live branch, those before a compaction included.
    pub turns: usize,
    /// How often a parent is named that is not there: each time something is lost.
    pub breaks: usize,
}

/// A place in another session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkedFrom {
    /// The session.
    pub session_id: String,
    /// The uuid of its last message that was copied, or what names the last turn that came along; none where the transcript
    /// does not tell.
    pub record_uuid: Option<String>,
}

/// A message that was copied from another session: where it stands here, and where it stood there.
struct Copied {
    offset: u64,
    session_id: Arc<str>,
    record_uuid: Box<str>,
}

impl Origin {
    /// Reads all lines of a transcript, from its first byte on.
    ///
    /// # Errors
    /// What the reader answers.
    pub fn read(reader: impl BufRead) -> io::Result<Self> {
        let mut origin = Self::default();
        let mut index = Index::default();
        let mut copied: Vec<Copied> = Vec::new();
        let mut lines = Lines::new(reader, 0);
        while let Some(line) = lines.next_line()? {
            let text = text_of_same_length(trimmed(line.bytes));
            let Some(record) = Record::parse(&text) else {
                continue;
            };
            let header = record.header();
            index.push_with(line.offset, &record, &header);
            if header.kind == RecordKind::Other("custom-title".to_owned()) {
                origin.title = record.fields.text("customTitle").or(origin.title);
            }
            if header.uuid.is_none() || header.is_sidechain {
                continue;
            }
            copied.extend(copied_from(&header, line.offset, copied.last()));
            origin.cwd = header.cwd.or(origin.cwd);
        }
        if let Some(selection) = index.select(None, true) {
            origin.turns = selection.prompt_offsets().len();
            origin.breaks = selection.breaks();
            let last = copied
                .iter()
                .rev()
                .find(|message| selection.contains(message.offset));
            origin.forked_from = last.map(|message| ForkedFrom {
                session_id: message.session_id.to_string(),
                record_uuid: Some(message.record_uuid.to_string()),
            });
        }
        Ok(origin)
    }
}

fn copied_from(header: &RecordHeader, offset: u64, last: Option<&Copied>) -> Option<Copied> {
    if !matches!(header.kind, RecordKind::User | RecordKind::Assistant) {
        return None;
    }
    let (session_id, record_uuid) = header.forked_from.as_ref()?;
    // The same one for each record, mostly.
    let session_id = match last {
        Some(last) if *last.session_id == **session_id => Arc::clone(&last.session_id),
        _ => session_id.as_str().into(),
    };
    Some(Copied {
        offset,
        session_id,
        record_uuid: record_uuid.as_str().into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(uuid: &str, parent: &str, more: &str) -> String {
        let parent = if parent.is_empty() {
            "null".to_owned()
        } else {
            format!("\"{parent}\"")
        };
        format!(
            r#"{{"type":"user","uuid":"{uuid}","parentUuid":{parent},"origin":{{"kind":"human"}},"message":{{"content":"x"}}{more}}}"#
        )
    }

    fn read(lines: &[String]) -> Origin {
        Origin::read(lines.join("\n").as_bytes()).expect("bytes are read")
    }

    #[test]
    fn the_last_title_and_the_last_folder_count() {
        let told = read(&[
            r#"{"type":"custom-title","customTitle":"first"}"#.to_owned(),
            prompt("u1", "", r#","cwd":"/home/u/a""#),
            prompt("u2", "u1", r#","cwd":"/home/u/b""#),
            prompt("s1", "", r#","isSidechain":true,"cwd":"/home/u/c""#),
            r#"{"type":"custom-title","customTitle":"second"}"#.to_owned(),
            r#"{"type":"custom-title","customTitle":7}"#.to_owned(),
        ]);
        assert_eq!(told.cwd.as_deref(), Some("/home/u/b"));
        assert_eq!(told.title.as_deref(), Some("second"));
        assert_eq!((told.turns, told.breaks, told.forked_from), (2, 0, None));
    }

    #[test]
    fn the_fork_is_the_last_copied_message_of_the_live_branch() {
        let from = |uuid: &str| format!(r#","forkedFrom":{{"sessionId":"s0","messageUuid":"{uuid}"}}"#);
        let told = read(&[
            prompt("u1", "", &from("a1")),
            prompt("u2", "u1", &from("a2")),
            // Gone back to behind the first turn: the second one did not come along.
            prompt("u3", "u1", ""),
        ]);
        let place = told.forked_from.expect("a fork");
        assert_eq!(
            (place.session_id.as_str(), place.record_uuid.as_deref()),
            ("s0", Some("a1"))
        );
        assert_eq!(told.turns, 2);
    }

    #[test]
    fn garbage_says_nothing() {
        for bytes in [&b""[..], b"\n\n", b"@@@\n{\n", b"\0\0\0", b"\xff\xfe\n[]\n7"] {
            assert_eq!(Origin::read(bytes).expect("bytes are read"), Origin::default());
        }
    }
}
