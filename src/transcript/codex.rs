//! Rollouts, the files of Codex' sessions: their names, and their summary in a list.
//!
//! A line is `{timestamp, ordinal, type, payload}`. The first one, `session_meta`, names the session and the session
//! that it continues: a fork contains only its own turns. Facts as of Codex 0.166.0; files of older versions are read
//! too. Pure: works on names and bytes.

pub mod check;
pub mod decompressed;
mod dialect;
mod facts;
pub mod history;
mod item;
mod last_turn;
mod line;
pub mod rename;
pub mod rollouts;

pub(in crate::transcript) use dialect::Codex;
use facts::{LineFacts, LineRole, MEMBERS};
pub use last_turn::{LastTurn, parse_last_turn};
pub use line::{HistoryBase, HistoryEnd, Meta};
use line::{LineKind, RolloutLine};

use std::io::{self, BufRead};
use std::path::Path;

use super::fields::Fields;
use super::lines::line_text;
use super::scan::{PrunedLines, Pruner, Scanned};
use super::summary::{Ends, TranscriptSummary, read_end, title_of};
use super::transcript_list::Format;

/// The format that the configuration of an agent with such transcripts names.
pub const FORMAT: Format = Format::Codex;

/// The type of the event that gives a session a name.
const NAMED: &[u8] = b"thread_name_updated";

/// The prefix of a rollout's file name.
const PREFIX: &str = "rollout-";

/// How many characters an id has: a UUID with its hyphens.
const ID_CHARS: usize = 36;

/// The parsed file name of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RolloutName<'a> {
    /// The session's id.
    pub upstream_id: &'a str,
    /// Whether the file is compressed.
    pub compressed: bool,
}

/// Parses a file name `rollout-<time>-<id>.jsonl`, with `.zst` if compressed. `None` for any other name.
#[must_use]
pub fn rollout_name(name: &str) -> Option<RolloutName<'_>> {
    let (name, compressed) = match name.strip_suffix(".zst") {
        Some(plain) => (plain, true),
        None => (name, false),
    };
    let stem = name.strip_suffix(".jsonl")?.strip_prefix(PREFIX)?;
    let at = stem.len().checked_sub(ID_CHARS)?;
    let upstream_id = stem.get(at..)?;
    let is_id = upstream_id
        .bytes()
        .all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    (is_id && (at == 0 || stem[..at].ends_with('-'))).then_some(RolloutName {
        upstream_id,
        compressed,
    })
}

/// Whether Codex reads a line as a record. `None` for a blank line.
#[must_use]
pub(in crate::transcript) fn is_record(line: &[u8]) -> Option<bool> {
    let mut pruner = Pruner::new(&MEMBERS);
    pruner.feed(line);
    match pruner.finish() {
        Scanned::Record(_) => Some(true),
        Scanned::Garbage => Some(false),
        Scanned::Blank => None,
    }
}

/// The content of a rollout's first record. `None` if there is no record or it is not a `session_meta`. Reads no further than
/// the first record, and does not buffer a whole line.
///
/// # Errors
/// The reader's error.
pub fn read_meta(reader: impl BufRead) -> io::Result<Option<Meta>> {
    let mut lines = PrunedLines::new(reader, 0, &MEMBERS);
    while let Some(line) = lines.next_line()? {
        if let Scanned::Record(record) = line.content {
            let facts = LineFacts::of(&RolloutLine::of(record.fields()));
            return Ok(match facts.role {
                LineRole::Meta(meta) => Some(*meta),
                _ => None,
            });
        }
    }
    Ok(None)
}

/// Whether a rollout is compressed, by its name.
pub(in crate::transcript) fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "zst")
}

/// The list entry of a rollout.
#[must_use]
pub fn summary(ends: Ends<'_>) -> TranscriptSummary {
    let mut summary = TranscriptSummary::default();
    let (mut is_known, mut has_picture) = (false, false);
    for line in ends.from_start() {
        let text = line_text(line);
        let Some(line) = RolloutLine::parse(&text) else {
            continue;
        };
        let payload = &line.payload;
        match line.kind {
            // Older versions wrote the metadata of the forked session after the fork's own.
            LineKind::Meta if line.has_envelope && !is_known => {
                let meta = line.meta();
                is_known = meta.upstream_id.is_some();
                summary.cwd = meta.cwd;
                summary.forked_from = meta.forked_from;
                let source = payload.object("source");
                summary.is_subagent = source.is_some_and(|source| source.raw("subagent").is_some())
                    || payload.str("thread_source").as_deref() == Some("subagent");
            }
            LineKind::Item => {
                summary.title = prompt_of_item(payload);
                has_picture |= item::is_prompt(payload);
            }
            LineKind::Event => summary.title = prompt_of_event(payload),
            _ => {}
        }
        if summary.title.is_some() {
            break;
        }
    }
    if has_picture {
        // A prompt without words.
        summary.title.get_or_insert_with(|| "Image".to_owned());
    }
    read_end(&mut summary, ends, NAMED, name_of);
    summary
}

/// Returns the name that a record gives to the session. `None` for other records.
fn name_of(record: &Fields<'_>) -> Option<String> {
    let event = record.object("payload")?;
    let is_name = record.text("type")? == "event_msg" && event.text("type")?.as_bytes() == NAMED;
    is_name.then(|| event.text("thread_name")).flatten()
}

/// The prompt in an item of the model's history, if it is one.
fn prompt_of_item(item: &Fields<'_>) -> Option<String> {
    item::typed_texts(item)?.find_map(|text| title_of(&text))
}

/// The prompt that an event reports.
fn prompt_of_event(event: &Fields<'_>) -> Option<String> {
    let title = |text: String| title_of(item::typed_in_event(&text)?);
    match event.text("type")?.as_str() {
        "user_message" => title(event.text("message")?),
        "item_completed" => {
            let item = event.object("item")?;
            if item.text("type")? != "UserMessage" {
                return None;
            }
            let content = item.array("content")?;
            content
                .into_iter()
                .find_map(|part| title(Fields::of(part)?.text("text")?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod listing_tests {
    use super::*;

    const ID: &str = "01a1fc15-ffed-7ff1-b050-3a83130f7a03";
    const META: &str = r#"{"timestamp":"2026-11-03T12:00:00.000Z","ordinal":0,"type":"session_meta","payload":{"session_id":"01a1fc15-ffed-7ff1-b050-3a83130f7a03","id":"01a1fc15-ffed-7ff1-b050-3a83130f7a03","cwd":"/home/u/project","cli_version":"0.166.0","base_instructions":{"text":"Be precise."}}}"#;
    const CONTEXT: &str = r#"{"timestamp":"2026-11-03T12:00:01.000Z","ordinal":1,"type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"<environment_context>\n  <cwd>/home/u/project</cwd>\n</environment_context>"}],"internal_chat_message_metadata_passthrough":{"content_item_metadata":[{"provenance":{"type":"harness"}}]}}}"#;
    const PROMPT: &str = r#"{"timestamp":"2026-11-03T12:00:02.000Z","ordinal":2,"type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"hello there\nyou"}],"internal_chat_message_metadata_passthrough":{"content_item_metadata":[{"provenance":{"type":"user"}}]}}}"#;
    const ITEM: &str = r#"{"timestamp":"2026-11-03T12:00:03.000Z","ordinal":3,"type":"event_msg","payload":{"type":"item_completed","item":{"type":"UserMessage","content":[{"type":"text","text":"as an event"}]}}}"#;
    const REPLY: &str = r#"{"timestamp":"2026-11-03T12:00:04.000Z","ordinal":4,"type":"event_msg","payload":{"type":"item_completed","item":{"type":"AgentMessage","content":[{"type":"Text","text":"ok"}]}}}"#;
    const OLD: &str = r#"{"timestamp":"2026-11-03T12:00:05.000Z","type":"event_msg","payload":{"type":"user_message","message":"an old one"}}"#;

    fn whole(lines: &[&str]) -> TranscriptSummary {
        let text = lines.join("\n") + "\n";
        summary(Ends {
            head: text.as_bytes(),
            tail: b"",
        })
    }

    #[test]
    fn a_rollout_tells_its_session_its_first_prompt_and_its_last_moment() {
        let expected = TranscriptSummary {
            title: Some("hello there".to_owned()),
            last_prompt: None,
            cwd: Some("/home/u/project".to_owned()),
            forked_from: None,
            is_subagent: false,
            last_at: Some("2026-11-03T12:00:04.000Z".to_owned()),
        };
        assert_eq!(whole(&[META, CONTEXT, PROMPT, ITEM, REPLY]), expected);
    }

    #[test]
    fn the_first_prompt_in_each_form() {
        let older = PROMPT.replace("content_item_metadata", "x");
        let pictured = older.replace(r"hello there\nyou", "<image name=[Image #1]>");
        let older_context = CONTEXT.replace("content_item_metadata", "x");
        let table: &[(&[&str], Option<&str>)] = &[
            (&[META, CONTEXT, REPLY], None),
            (&[META, CONTEXT, ITEM], Some("as an event")),
            (&[META, CONTEXT, OLD], Some("an old one")),
            (&[META, &older_context, &older], Some("hello there")),
            (
                &["garbage", "{}", r#"{"type":"event_msg","payload":[]}"#, PROMPT],
                Some("hello there"),
            ),
            (&[&PROMPT[..60]], None),
            (&[META, &pictured, REPLY], Some("Image")),
            (&[META, &pictured, PROMPT], Some("hello there")),
        ];
        for (lines, title) in table {
            assert_eq!(whole(lines).title.as_deref(), *title, "{lines:?}");
        }
    }

    #[test]
    fn a_name_that_was_given_last_counts_more_than_the_first_prompt() {
        let named = |name: &str| {
            format!(
                r#"{{"timestamp":"2026-11-03T12:00:06.000Z","type":"event_msg","payload":{{"type":"thread_name_updated","thread_id":"x","thread_name":{name}}}}}"#
            )
        };
        let (zebra, newer, long) = (
            named(r#""Zebra name""#),
            named(r#""\n A newer one \nb""#),
            named(&format!("{:?}", "n".repeat(300))),
        );
        let (none, empty) = (named("null"), named(r#""""#));
        let quoted = PROMPT.replace("hello there", "thread_name_updated");
        let other = zebra.replace("event_msg", "response_item");
        let cut = "n".repeat(200);
        let table: &[(&[&str], Option<&str>)] = &[
            (&[META, PROMPT, &zebra, REPLY], Some("Zebra name")),
            (&[META, &zebra, PROMPT], Some("Zebra name")),
            (&[META, &zebra], Some("Zebra name")),
            (&[META, PROMPT, &zebra, &newer, REPLY], Some("A newer one")),
            (
                &[META, PROMPT, &zebra, &quoted, &none, &other],
                Some("Zebra name"),
            ),
            (&[META, PROMPT, &zebra, &empty], Some("hello there")),
            (&[META, PROMPT, &zebra[..120]], Some("hello there")),
            (&[META, PROMPT, &long], Some(&cut)),
        ];
        for (lines, title) in table {
            assert_eq!(whole(lines).title.as_deref(), *title, "{lines:?}");
        }
        let (head, tail) = (
            format!("{META}\n{PROMPT}\n{zebra}\n"),
            format!("{REPLY}\n{newer}\n"),
        );
        let ends = Ends {
            head: head.as_bytes(),
            tail: tail.as_bytes(),
        };
        assert_eq!(summary(ends).title.as_deref(), Some("A newer one"));
    }

    #[test]
    fn a_fork_is_its_own_session_and_names_its_source() {
        let fork = META.replace(ID, "01a1fc16-01ee-76c3-a43d-78487b788798").replacen(
            r#""cwd""#,
            r#""history_base":{"thread_id":"01a1fc15-ffed-7ff1-b050-3a83130f7a03","end_ordinal_exclusive":39},"cwd""#,
            1,
        );
        let summary = whole(&[&fork, META, PROMPT]);
        assert_eq!(summary.forked_from.as_deref(), Some(ID));
    }

    #[test]
    fn names() {
        let named = |compressed| {
            Some(RolloutName {
                upstream_id: ID,
                compressed,
            })
        };
        let table = [
            (format!("rollout-2026-11-03T12-00-00-{ID}.jsonl"), named(false)),
            (format!("rollout-2026-11-03T12-00-00-{ID}.jsonl.zst"), named(true)),
            (format!("rollout-{ID}.jsonl"), named(false)),
            (format!("rollout-x{ID}.jsonl"), None),
            (format!("{ID}.jsonl"), None),
            ("rollout-2026-11-03T12-00-00.jsonl".to_owned(), None),
            (format!("rollout-é{}.jsonl", &ID[..35]), None),
            (format!("rollout-{ID}.json"), None),
            (String::new(), None),
        ];
        for (name, expected) in table {
            assert_eq!(rollout_name(&name), expected, "{name}");
        }
    }

    #[test]
    fn the_first_record_says_which_session_it_is() {
        let meta = |text: &str| {
            // Pieces of any size.
            let read = |capacity| read_meta(io::BufReader::with_capacity(capacity, text.as_bytes()));
            let told = read(64).expect("bytes are read");
            assert_eq!(told, read(3).expect("bytes are read"));
            told.and_then(|meta| meta.upstream_id)
        };
        assert_eq!(meta(META).as_deref(), Some(ID));
        assert_eq!(
            meta(&format!("\n\0\ngarbage\n{META}\n{PROMPT}\n")).as_deref(),
            Some(ID)
        );
        for nothing in [
            String::new(),
            "garbage".to_owned(),
            format!("{PROMPT}\n{META}\n"),
            META[..90].to_owned(),
        ] {
            assert_eq!(meta(&nothing), None, "{nothing}");
        }
    }
}
