//! Where a transcript says that it came from: its folder, its title, and the session whose records it begins with.
//!
//! A fork says of each message which one it is a copy of. Older versions of Claude Code resumed a session in a new file that
//! begins with the old one's records as they were, as does a file that was copied by hand: those bear another session's id.
//!
//! The index says which lines tell it. Pure; knows nothing of what is made of it.

use std::io::{self, BufRead, Seek, SeekFrom};

use super::claude::Index;
use super::scan::{Grammar, Held, Noted, Scanned, ScannedLines, Scanner};

/// What a transcript says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// The folder that the last record of the conversation ran in.
    pub cwd: Option<String>,
    /// The title that a person gave it; the last one counts.
    pub title: Option<String>,
    /// The place that its history was copied from.
    pub forked_from: Option<ForkedFrom>,
    /// When its first message of its own was written, RFC 3339, as it stands there.
    pub began_at: Option<String>,
    /// The turns of its live branch, those before a compaction included.
    pub turns: usize,
    /// How often a parent is named that is not there: each time something is lost.
    pub breaks: usize,
}

/// Which session a record of a transcript was written in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whose {
    /// There is no such record.
    Nobodys,
    /// The transcript's own.
    Own,
    /// Another one, in which this is its place.
    Copied(ForkedFrom),
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

impl Origin {
    /// What the transcript of the session `own` says of itself: `index` is its own, and `reader` gives its bytes. Of the
    /// transcript no more is read than the lines that say it, some tens at most, and of these no more is held than what they
    /// say.
    ///
    /// # Errors
    /// What the reader answers.
    pub fn of(index: &Index, own: &str, mut reader: impl BufRead + Seek) -> io::Result<Self> {
        let mut said =
            |offset: Option<u64>| offset.map_or(Ok(Said::default()), |offset| said_at(&mut reader, offset));
        let mut origin = Self {
            title: said(index.title_offset())?.title,
            cwd: said(index.cwd_offset())?.cwd,
            ..Self::default()
        };
        let Some(selection) = index.select(None, true) else {
            return Ok(origin);
        };
        origin.turns = selection.prompt_offsets().len();
        origin.breaks = selection.breaks();
        let messages = index.messages_of(&selection);
        // What came from elsewhere stands first, so that one look tells of most transcripts that nothing did.
        let mut others = 0..messages.len();
        while !others.is_empty() {
            let middle = match others.start {
                0 if others.end == messages.len() => 0,
                start => start + others.len() / 2,
            };
            match said(messages.get(middle).copied())?.copied_as_it_was(own) {
                Some(_) => others.start = middle + 1,
                None => others.end = middle,
            }
        }
        let last_other = others
            .start
            .checked_sub(1)
            .and_then(|last| messages.get(last).copied());
        let last_copied = index.last_copied(&selection);
        let last = last_other.max(last_copied);
        origin.forked_from = said(last)?.copied_from(own);
        let first_own = messages.partition_point(|offset| Some(*offset) <= last);
        origin.began_at = said(messages.get(first_own).copied())?.at;
        Ok(origin)
    }
}

impl Whose {
    /// Whose a record of the transcript of the session `own` is; as for [`Origin::of`].
    ///
    /// # Errors
    /// What the reader answers.
    pub fn of(index: &Index, own: &str, uuid: &str, mut reader: impl BufRead + Seek) -> io::Result<Self> {
        let Some(offset) = index.offset_of(uuid) else {
            return Ok(Self::Nobodys);
        };
        let copied = said_at(&mut reader, offset)?.copied_from(own);
        Ok(copied.map_or(Self::Own, Self::Copied))
    }
}

/// The longest text that is taken of a line, in bytes: no folder has a longer name, and a title is cut to less.
const TEXT_LIMIT_BYTES: usize = 64 * 1024;

/// What a line says of where its transcript came from.
#[derive(Debug, Default)]
struct Said {
    title: Option<String>,
    cwd: Option<String>,
    session_id: Option<String>,
    message_uuid: Option<String>,
    /// Of the record itself.
    uuid: Option<String>,
    own_session_id: Option<String>,
    at: Option<String>,
}

impl Said {
    /// The place in another session that the record is a copy of.
    fn copied_from(self, own: &str) -> Option<ForkedFrom> {
        let as_it_was = self.copied_as_it_was(own);
        let (Some(session_id), Some(uuid)) = (self.session_id, self.message_uuid) else {
            return as_it_was;
        };
        as_it_was.or(Some(ForkedFrom {
            session_id,
            record_uuid: Some(uuid),
        }))
    }

    /// The same of one that still bears the other session's id.
    fn copied_as_it_was(&self, own: &str) -> Option<ForkedFrom> {
        let other = self
            .own_session_id
            .as_ref()
            .filter(|id| !id.is_empty() && *id != own)?;
        Some(ForkedFrom {
            session_id: other.clone(),
            record_uuid: Some(self.uuid.clone()?),
        })
    }
}

/// Reads one line.
fn said_at(reader: &mut (impl BufRead + Seek), offset: u64) -> io::Result<Said> {
    reader.seek(SeekFrom::Start(offset))?;
    let line = ScannedLines::<_, Scanner<Said>>::new(reader, offset).next_line()?;
    Ok(match line.map(|line| line.what) {
        Some(Scanned::Record(said)) => said,
        // It was changed since the index was made.
        _ => Said::default(),
    })
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Context {
    Record,
    ForkedFrom,
    #[default]
    Other,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Member {
    Title,
    Cwd,
    ForkedFrom,
    SessionId,
    MessageUuid,
    Uuid,
    OwnSessionId,
    At,
    #[default]
    None,
}

impl Said {
    fn place(&mut self, member: Member) -> Option<&mut Option<String>> {
        match member {
            Member::Title => Some(&mut self.title),
            Member::Cwd => Some(&mut self.cwd),
            Member::SessionId => Some(&mut self.session_id),
            Member::MessageUuid => Some(&mut self.message_uuid),
            Member::Uuid => Some(&mut self.uuid),
            Member::OwnSessionId => Some(&mut self.own_session_id),
            Member::At => Some(&mut self.at),
            Member::ForkedFrom | Member::None => None,
        }
    }
}

impl Noted for Said {
    const GRAMMAR: Grammar = Grammar::JavaScript;

    type Context = Context;
    type Member = Member;
    type Note = Self;

    fn member(context: Context, name: &[u8]) -> Member {
        match (context, name) {
            (Context::Record, b"customTitle") => Member::Title,
            (Context::Record, b"cwd") => Member::Cwd,
            (Context::Record, b"uuid") => Member::Uuid,
            (Context::Record, b"sessionId") => Member::OwnSessionId,
            (Context::Record, b"timestamp") => Member::At,
            (Context::Record, b"forkedFrom") => Member::ForkedFrom,
            (Context::ForkedFrom, b"sessionId") => Member::SessionId,
            (Context::ForkedFrom, b"messageUuid") => Member::MessageUuid,
            _ => Member::None,
        }
    }

    fn element(_: Context) -> Member {
        Member::None
    }

    fn held_bytes(member: Member) -> usize {
        match member {
            Member::ForkedFrom | Member::None => 0,
            _ => TEXT_LIMIT_BYTES,
        }
    }

    fn name(&mut self, member: Member) {
        if member == Member::ForkedFrom {
            (self.session_id, self.message_uuid) = (None, None);
        }
        if let Some(place) = self.place(member) {
            *place = None;
        }
    }

    fn begin(&mut self, _: Member, _: u8) {}

    fn open(&mut self, around: Option<Context>, member: Member, is_object: bool) -> Context {
        match (around, member, is_object) {
            (None, ..) => Context::Record,
            (Some(Context::Record), Member::ForkedFrom, true) => Context::ForkedFrom,
            _ => Context::Other,
        }
    }

    fn close(&mut self, _: Context) {}

    fn string(&mut self, member: Member, held: &Held) {
        if let Some(place) = self.place(member) {
            *place = held.text().map(Into::into);
        }
    }

    fn number(&mut self, _: Member, _: u64) {}

    fn note(self) -> Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;
    use crate::transcript::lines::{Lines, text_of_same_length, trimmed};
    use crate::transcript::record::{Record, RecordKind};

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
        let index = Index::read(bytes).expect("bytes are read");
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
    fn records_of_another_session_are_where_it_was_resumed_from() {
        let of = |session: &str| format!(r#","sessionId":"{session}","timestamp":"of {session}""#);
        let table: [(&[&str], Option<(&str, &str)>, Option<&str>); 6] = [
            (&["own", "own", "own"], None, Some("of own")),
            (&["s0", "own", "own"], Some(("s0", "u0")), Some("of own")),
            (&["s0", "s0", "s1", "own"], Some(("s1", "u2")), Some("of own")),
            // A file that was copied under another name, or renamed.
            (&["s0", "s0"], Some(("s0", "u1")), None),
            (&["", ""], None, Some("of ")),
            (&[], None, None),
        ];
        for (sessions, from, began_at) in table {
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
            assert_eq!(
                (place, told.began_at.as_deref()),
                (from, began_at),
                "{sessions:?}"
            );
        }
    }

    #[test]
    fn a_record_says_which_session_it_was_written_in() {
        let lines = [
            prompt("u1", "", r#","sessionId":"s0""#),
            prompt(
                "u2",
                "u1",
                r#","sessionId":"own","forkedFrom":{"sessionId":"s1","messageUuid":"m"}"#,
            ),
            prompt("u3", "u2", r#","sessionId":"own""#),
        ];
        let bytes = lines.join("\n").into_bytes();
        let index = Index::read(bytes.as_slice()).expect("bytes are read");
        let whose = |uuid: &str| Whose::of(&index, "own", uuid, Cursor::new(&bytes)).expect("bytes are read");
        let copied = |session: &str, uuid: &str| {
            Whose::Copied(ForkedFrom {
                session_id: session.to_owned(),
                record_uuid: Some(uuid.to_owned()),
            })
        };
        assert_eq!(
            ["u1", "u2", "u3", "u4"].map(whose),
            [copied("s0", "u1"), copied("s1", "m"), Whose::Own, Whose::Nobodys]
        );
    }

    #[test]
    fn garbage_says_nothing() {
        for bytes in [&b""[..], b"\n\n", b"@@@\n{\n", b"\0\0\0", b"\xff\xfe\n[]\n7"] {
            assert_eq!(read_bytes(bytes), Origin::default());
        }
    }

    /// The same with each line decoded whole: the words by which the other way is judged.
    fn decoded(bytes: &[u8]) -> Origin {
        let index = Index::read(bytes).expect("bytes are read");
        let selection = index.select(None, true);
        let mut origin = Origin::default();
        let mut first_own = None;
        let mut lines = Lines::new(bytes, 0);
        while let Some(line) = lines.next_line().expect("bytes are read") {
            let text = text_of_same_length(trimmed(line.bytes));
            let Some(record) = Record::parse(&text) else {
                continue;
            };
            let header = record.header();
            if header.kind == RecordKind::Other("custom-title".to_owned()) {
                origin.title = record.fields.text("customTitle").or(origin.title);
            }
            if header.uuid.is_none() || header.is_sidechain {
                continue;
            }
            origin.cwd = header.cwd.or(origin.cwd);
            let on_branch = selection
                .as_ref()
                .is_some_and(|branch| branch.contains(line.offset));
            if matches!(header.kind, RecordKind::User | RecordKind::Assistant) && on_branch {
                let from = header.forked_from.map(|(session_id, uuid)| ForkedFrom {
                    session_id,
                    record_uuid: Some(uuid),
                });
                match from {
                    Some(_) => first_own = None,
                    None => first_own = first_own.or_else(|| Some(record.fields.text("timestamp"))),
                }
                origin.forked_from = from.or(origin.forked_from);
            }
        }
        if let Some(selection) = selection {
            origin.turns = selection.prompt_offsets().len();
            origin.breaks = selection.breaks();
        }
        origin.began_at = first_own.flatten();
        origin
    }

    fn line() -> impl Strategy<Value = String> {
        let kind = prop::sample::select(vec!["user", "assistant", "system", "custom-title"]);
        let uuid = prop::sample::select(vec!["u1", "u2", "u3", "u4"]);
        let more = prop::sample::select(vec![
            "",
            r#","cwd":"/home/u/a""#,
            r#","sessionId":"own","timestamp":"2026-11-03T12:00:00Z""#,
            r#","cwd":"/home/\u00fc\ud83d""#,
            r#","cwd":7"#,
            r#","cwd":"/x","cwd":null"#,
            r#","isSidechain":true,"cwd":"/side""#,
            r#","customTitle":"first""#,
            r#","customTitle":"\n\"second\"""#,
            r#","customTitle":{}"#,
            r#","forkedFrom":{"sessionId":"s1","messageUuid":"m1"}"#,
            r#","forkedFrom":{"messageUuid":"m2","sessionId":"s2","x":[{"sessionId":"no"}]},"cwd":"/b""#,
            r#","forkedFrom":{"sessionId":"s3"}"#,
            r#","forkedFrom":{"sessionId":"s4","messageUuid":"m4"},"forkedFrom":[]"#,
            "}",
            "\u{ff}",
        ]);
        (kind, prop::option::weighted(0.9, uuid.clone()), uuid, more).prop_map(
            |(kind, uuid, parent, more)| {
                let uuid = uuid.map_or(String::new(), |uuid| format!(r#""uuid":"{uuid}","#));
                format!(
                    r#"{{{uuid}"parentUuid":"{parent}","type":"{kind}","message":{{"content":"x"}}{more}}}"#
                )
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn both_ways_say_the_same(lines in prop::collection::vec(line(), 0..8), cut in 0usize..20) {
            let bytes = lines.join("\n").into_bytes();
            let bytes = &bytes[..bytes.len().saturating_sub(cut)];
            prop_assert_eq!(read_bytes(bytes), decoded(bytes));
        }
    }
}
