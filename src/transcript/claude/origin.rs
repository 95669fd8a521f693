//! The origin of a transcript: its folder, its title, and the session whose records it begins with.
//!
//! Each message of a fork names the message that it is a copy of. Older versions of Claude Code resumed a session in a new
//! file that begins with unchanged records of the old one, and so does a file that was copied by hand. Those records have
//! the other session's id.
//!
//! The index gives the offsets of the relevant lines. Pure; knows nothing of how the origin is used.

use std::io::{self, BufRead, Seek};

use super::ClaudeIndex;
use super::record::Record;
use crate::transcript::lines::{line_at, text_of_same_length, trimmed};
use crate::transcript::origin::{ForkedFrom, Origin};

impl Origin {
    /// Reads the origin of the transcript of the session `own`. `index` is its index, and `reader` reads its bytes. Only the
    /// relevant lines are read, some tens at most, and only their facts are stored.
    ///
    /// # Errors
    /// The reader's error.
    pub fn of(index: &ClaudeIndex, own: &str, mut reader: impl BufRead + Seek) -> io::Result<Self> {
        let mut facts = |offset: Option<u64>| {
            offset.map_or(Ok(OriginFacts::default()), |offset| {
                facts_at(&mut reader, offset, own)
            })
        };
        let mut origin = Self {
            title: facts(index.title)?.title,
            cwd: facts(index.cwd)?.cwd,
            ..Self::default()
        };
        let Some(walk) = index.walk(None, true) else {
            return Ok(origin);
        };
        origin.turns = index.prompts_of(&walk).count();
        origin.missing_parents = walk.missing_parents;
        let messages = index.messages_of(&walk);
        // Copied messages come first, so for most transcripts one read shows that nothing was copied.
        let mut search_range = 0..messages.len();
        while !search_range.is_empty() {
            let middle = match search_range.start {
                0 if search_range.end == messages.len() => 0,
                start => start + search_range.len() / 2,
            };
            match facts(messages.get(middle).copied())?.copied_unchanged {
                Some(_) => search_range.start = middle + 1,
                None => search_range.end = middle,
            }
        }
        let last_other = search_range
            .start
            .checked_sub(1)
            .and_then(|last| messages.get(last).copied());
        let last_copied = index.last_copied_message(&walk);
        let last = last_other.max(last_copied);
        origin.forked_from = facts(last)?.copied_from;
        Ok(origin)
    }
}

/// The facts in a line about the origin of its transcript.
#[derive(Debug, Default)]
struct OriginFacts {
    title: Option<String>,
    cwd: Option<String>,
    /// The position in another session of which the record is a copy.
    copied_from: Option<ForkedFrom>,
    /// The same for a record that still has the other session's id.
    copied_unchanged: Option<ForkedFrom>,
}

/// Reads one line of the transcript of the session `own`.
fn facts_at(reader: &mut (impl BufRead + Seek), offset: u64, own: &str) -> io::Result<OriginFacts> {
    // The line may have been changed after the index was made.
    let facts = line_at(reader, offset, |line| {
        let text = text_of_same_length(trimmed(line));
        Some(OriginFacts::of(&Record::parse(&text)?, own))
    });
    Ok(facts?.unwrap_or_default())
}

impl OriginFacts {
    fn of(record: &Record<'_>, own: &str) -> Self {
        let other = record
            .fields
            .text("sessionId")
            .filter(|id| !id.is_empty() && id != own);
        let unchanged = other.zip(record.fields.text("uuid"));
        let from = |(session_id, uuid)| ForkedFrom {
            session_id,
            record_uuid: Some(uuid),
        };
        Self {
            title: record.fields.text("customTitle"),
            cwd: record.fields.text("cwd"),
            copied_from: unchanged.clone().or_else(|| record.forked_from()).map(from),
            copied_unchanged: unchanged.map(from),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

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
        read_bytes(lines.join("\n").as_bytes())
    }

    fn read_bytes(bytes: &[u8]) -> Origin {
        let index = ClaudeIndex::read(bytes).expect("bytes are read");
        Origin::of(&index, "own", Cursor::new(bytes)).expect("bytes are read")
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
        assert_eq!((told.turns, told.missing_parents, told.forked_from), (2, 0, None));
    }

    #[test]
    fn the_fork_is_the_last_copied_message_of_the_live_branch() {
        let from = |uuid: &str| format!(r#","forkedFrom":{{"sessionId":"s0","messageUuid":"{uuid}"}}"#);
        let told = read(&[
            prompt("u1", "", &from("a1")),
            prompt("u2", "u1", &from("a2")),
            // The user went back to the end of the first turn, so the fork does not contain the second.
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
    fn records_of_another_session_are_where_it_was_resumed_from() {
        let of = |session: &str| format!(r#","sessionId":"{session}""#);
        let table: [(&[&str], Option<(&str, &str)>); 6] = [
            (&["own", "own", "own"], None),
            (&["s0", "own", "own"], Some(("s0", "u0"))),
            (&["s0", "s0", "s1", "own"], Some(("s1", "u2"))),
            // The file was copied under another name, or renamed.
            (&["s0", "s0"], Some(("s0", "u1"))),
            (&["", ""], None),
            (&[], None),
        ];
        for (sessions, from) in table {
            let line = |(number, session): (usize, &&str)| {
                let parent = number
                    .checked_sub(1)
                    .map_or(String::new(), |parent| format!("u{parent}"));
                prompt(&format!("u{number}"), &parent, &of(session))
            };
            let lines: Vec<String> = sessions.iter().enumerate().map(line).collect();
            let told = read(&lines);
            let place = told.forked_from.as_ref();
            let place = place.map(|place| (place.session_id.as_str(), place.record_uuid.as_deref().unwrap()));
            assert_eq!(place, from, "{sessions:?}");
        }
    }
}
