//! A transcript in another place: under another session id, in another folder.
//!
//! Of a record the tokens that name the folder and the session are replaced; every other byte stays, so that what was
//! said, and what is not understood, stays what it was. Pure; knows no files and nothing of why a transcript moves.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::ops::Range;

use super::check::PERSISTED_RESULT;
use super::fields::{Fields, Json, lenient_text};
use super::lines::trimmed;

/// The longest line that is held to be looked into, in bytes. One that is longer goes through as it is: prompts with
/// pictures stay far below.
pub const HELD_LINE_LIMIT_BYTES: usize = 64 * 1024 * 1024;

/// What a path of a tool's result has behind the folder of its session.
pub(super) const RESULTS: &str = "/tool-results/";

/// What is to be replaced in the records of a transcript.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Relocation {
    /// Folders and what they become, with everything below them. Of several that fit the longest counts.
    pub folders: Vec<(String, String)>,
    /// Session ids and what they become.
    pub sessions: BTreeMap<String, String>,
    /// Tools' results beside the transcripts, by their paths from the session's folder on (`ID/tool-results/NAME`), and
    /// the absolute paths that they have now.
    pub results: BTreeMap<String, String>,
}

impl Relocation {
    /// Whether nothing is replaced.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.folders.iter().all(|(from, to)| from == to)
            && self.sessions.is_empty()
            && self.results.is_empty()
    }

    /// The folder in the new place; none when it is below none of those that move.
    #[must_use]
    pub fn folder(&self, path: &str) -> Option<String> {
        let below = |from: &str| -> Option<usize> {
            let rest = path.strip_prefix(from.trim_end_matches('/'))?;
            (rest.is_empty() || rest.starts_with('/')).then_some(rest.len())
        };
        let (rest, to) = self
            .folders
            .iter()
            .filter_map(|(from, to)| Some((below(from)?, to)))
            .min_by_key(|(rest, _)| *rest)?;
        Some(format!(
            "{}{}",
            to.trim_end_matches('/'),
            &path[path.len() - rest..]
        ))
    }

    /// A line, without its newline, as it stands in the new place.
    #[must_use]
    pub fn line<'a>(&self, line: &'a [u8]) -> Cow<'a, [u8]> {
        match self.replacements(line) {
            Some(replacements) if !replacements.is_empty() => {
                let mut written = Vec::with_capacity(line.len() + 64);
                let mut at = 0;
                for (place, text) in replacements {
                    written.extend_from_slice(&line[at..place.start]);
                    written.extend_from_slice(text.as_bytes());
                    at = place.end;
                }
                written.extend_from_slice(&line[at..]);
                Cow::Owned(written)
            }
            _ => Cow::Borrowed(line),
        }
    }

    /// Where the result of a tool is now, by the path that it had.
    fn result(&self, path: &str) -> Option<String> {
        self.results.get(result_name(path)?).cloned()
    }

    /// The paths in the texts that stand in place of long results.
    fn result_texts(&self, record: &str, fields: &Fields<'_>) -> Vec<(Range<usize>, String)> {
        if self.results.is_empty() || memchr::memmem::find(record.as_bytes(), RESULTS.as_bytes()).is_none() {
            return Vec::new();
        }
        let mut places = Vec::new();
        for text in standing_for_results(fields) {
            let json = text.get();
            let named = lenient_text(json).and_then(|text| persisted_path(&text).map(str::to_owned));
            let Some((old, new)) = named.and_then(|old| Some((inner(&old), inner(&self.result(&old)?))))
            else {
                continue;
            };
            // As it stands there; written in another way it is left alone.
            let from = (json.as_ptr() as usize).checked_sub(record.as_ptr() as usize);
            if let (Some(from), Some(at)) = (from, json.find(&old)) {
                places.push((from + at..from + at + old.len(), new));
            }
        }
        places
    }

    /// The places of a line and what stands there then, in their order; none where the line is no record.
    pub(super) fn replacements(&self, line: &[u8]) -> Option<Vec<(Range<usize>, String)>> {
        let record = trimmed(line);
        // Places are those of the line, before whose record a mark may stand.
        let start = record.as_ptr() as usize - line.as_ptr() as usize;
        let text = std::str::from_utf8(record).ok()?;
        let fields = Fields::parse(text)?;
        let mut replacements = Vec::new();
        let mut look = |fields: &Fields<'_>, name: &str, to: &dyn Fn(&str) -> Option<String>| {
            let Some(place) = fields.place(text, name) else {
                return;
            };
            let Some(old) = lenient_text(&text[place.clone()]) else {
                return;
            };
            if let Some(new) = to(&old).filter(|new| *new != old) {
                replacements.push((place.start + start..place.end + start, token(new)));
            }
        };
        let session = |id: &str| self.sessions.get(id).cloned();
        look(&fields, "cwd", &|path| self.folder(path));
        look(&fields, "sessionId", &session);
        if let Some(from) = fields.object("forkedFrom") {
            look(&from, "sessionId", &session);
        }
        if let Some(result) = fields.object("toolUseResult") {
            look(&result, "persistedOutputPath", &|path| self.result(path));
        }
        let places = self.result_texts(text, &fields).into_iter();
        replacements.extend(places.map(|(place, new)| (place.start + start..place.end + start, new)));
        replacements.sort_by_key(|(place, _)| place.start);
        Some(replacements)
    }
}

/// The texts of a record that may stand in place of long results: those of tools' results, and those by which the agent
/// replaced some later (`content-replacement`).
fn standing_for_results<'a>(fields: &Fields<'a>) -> Vec<Json<'a>> {
    let mut texts = Vec::new();
    let replaced = fields.array("replacements").unwrap_or_default().into_iter();
    texts.extend(replaced.filter_map(|entry| Fields::parse(entry.get())?.raw("replacement")));
    let message = fields.object("message");
    let content = message.and_then(|message| message.array("content"));
    for block in content.unwrap_or_default() {
        let Some(block) = Fields::parse(block.get()) else {
            continue;
        };
        if block.text("type").as_deref() == Some("tool_result") {
            let parts = block.array("content").unwrap_or_default().into_iter();
            texts.extend(block.raw("content"));
            texts.extend(parts.filter_map(|part| Fields::parse(part.get())?.raw("text")));
        }
    }
    texts
}

/// The paths of the files that a record names as those into which long results were put.
pub(super) fn named_results(fields: &Fields<'_>) -> Vec<String> {
    let texts = standing_for_results(fields).into_iter();
    let texts = texts.filter_map(|text| persisted_path(&lenient_text(text.get())?).map(str::to_owned));
    let result = fields.object("toolUseResult");
    texts
        .chain(result.and_then(|result| result.text("persistedOutputPath")))
        .collect()
}

/// The name of a tool's result from the folder of its session on, of an absolute path and of one from the transcript's
/// folder on.
pub(super) fn result_name(path: &str) -> Option<&str> {
    let (folder, _) = path.split_once(RESULTS)?;
    let from = folder.rfind('/').map_or(0, |slash| slash + 1);
    Some(&path[from..])
}

/// The path of the file into which a result was put, from the text that stands in its place.
fn persisted_path(text: &str) -> Option<&str> {
    let (beginning, before_path) = PERSISTED_RESULT;
    let text = text.trim_start().strip_prefix(beginning)?;
    Some(text.split_once(before_path)?.1.lines().next()?.trim())
}

/// A text as a JSON string.
fn token(text: String) -> String {
    serde_json::Value::from(text).to_string()
}

/// A text as it stands within a JSON string.
fn inner(text: &str) -> String {
    let token = token(text.to_owned());
    token[1..token.len() - 1].to_owned()
}

/// Writes lines as they stand in the new place, which is what `line` makes of each, without its newline. `step` is told how
/// many bytes were read, and may end it.
/// Gives how many lines were longer than [`HELD_LINE_LIMIT_BYTES`] and went through as they were.
///
/// # Errors
/// What reader, writer or `step` answer.
pub fn relocate(
    reader: impl BufRead,
    writer: &mut dyn Write,
    line: impl Fn(&[u8]) -> Cow<'_, [u8]>,
    step: impl FnMut(u64) -> io::Result<()>,
) -> io::Result<u64> {
    relocate_within(HELD_LINE_LIMIT_BYTES, reader, writer, line, step)
}

fn relocate_within(
    limit_bytes: usize,
    mut reader: impl BufRead,
    writer: &mut dyn Write,
    moved: impl Fn(&[u8]) -> Cow<'_, [u8]>,
    mut step: impl FnMut(u64) -> io::Result<()>,
) -> io::Result<u64> {
    let mut passed = 0;
    let mut line = Vec::new();
    // Whether the line is too long to be held, and what was held of it is written.
    let mut passes = false;
    loop {
        let available = match reader.fill_buf() {
            Ok(available) => available,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if available.is_empty() {
            writer.write_all(&moved(&line))?;
            return Ok(passed);
        }
        let newline = memchr::memchr(b'\n', available);
        let taken = newline.map_or(available.len(), |newline| newline + 1);
        if passes {
            writer.write_all(&available[..taken])?;
        } else {
            line.extend_from_slice(&available[..taken]);
        }
        reader.consume(taken);
        step(taken as u64)?;
        if newline.is_some() {
            if !passes {
                line.pop();
                writer.write_all(&moved(&line))?;
                writer.write_all(b"\n")?;
            }
            line.clear();
            passes = false;
        } else if line.len() > limit_bytes {
            writer.write_all(&line)?;
            line = Vec::new();
            passes = true;
            passed += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use proptest::prelude::*;

    use super::*;

    fn relocation() -> Relocation {
        Relocation {
            folders: vec![
                ("/home/u/a".to_owned(), "/srv/b".to_owned()),
                ("/home/u/a/deep".to_owned(), "/other".to_owned()),
            ],
            sessions: BTreeMap::from([("s1".to_owned(), "n1".to_owned())]),
            results: BTreeMap::from([(
                "s1/tool-results/x.txt".to_owned(),
                "/home/v/é/n1/tool-results/x.txt".to_owned(),
            )]),
        }
    }

    #[test]
    fn the_paths_of_results_follow_their_files_and_nothing_else_that_was_said_does() {
        const OLD: &str = "/home/u/.claude/projects/-a/s1/tool-results/x.txt";
        const NEW: &str = "/home/v/é/n1/tool-results/x.txt";
        let said = r"<persisted-output>\nOutput too large (9 KB). Full output saved to: PATH\n\nPreview:\n\u0041 OLD";
        let table = [
            r#"{"message":{"content":[{"type":"text","text":"OLD"},{"type":"tool_result","content":"SAID"}]},"toolUseResult":{"stdout":"OLD","persistedOutputPath":"PATH"}}"#,
            r#"{"message":{"content":[{"type":"tool_result","content":[{"type":"text","text":"SAID"},{"type":"text","text":"see: saved to: OLD"}]}]}}"#,
            r#"{"message":{"content":"OLD"},"toolUseResult":"OLD","cwd":"/x"}"#,
            r#"{"message":{"content":[{"type":"tool_result","content":"in: <persisted-output> saved to: OLD"}]}}"#,
            r#"{"message":{"content":[{"type":"tool_result","content":"<persisted-output> saved to: /p/s1/tool-results/y.txt"}]}}"#,
        ];
        for record in table {
            let record = record.replace("SAID", said);
            let text = |path: &str| record.replace("PATH", path).replace("OLD", OLD);
            let told = relocation().line(text(OLD).as_bytes()).into_owned();
            assert_eq!(String::from_utf8(told).unwrap(), text(NEW));
        }
    }

    #[test]
    fn folders_move_with_what_is_below_them_and_no_other() {
        let table = [
            ("/home/u/a", Some("/srv/b")),
            ("/home/u/a/", Some("/srv/b/")),
            ("/home/u/a/src", Some("/srv/b/src")),
            ("/home/u/a/deep/er", Some("/other/er")),
            ("/home/u/ab", None),
            ("/home/u", None),
            ("", None),
        ];
        for (from, to) in table {
            assert_eq!(relocation().folder(from).as_deref(), to, "{from}");
        }
        let root = Relocation {
            folders: vec![("/".to_owned(), "/srv".to_owned())],
            ..Relocation::default()
        };
        assert_eq!(root.folder("/x").as_deref(), Some("/srv/x"));
    }

    #[test]
    fn only_the_tokens_that_name_the_place_change() {
        let table = [
            (
                r#"{ "cwd" : "/home/u/a/src", "sessionId":"s1" ,"n":1.50,"message":{"cwd":"/home/u/a","content":"in /home/u/a s1"}}"#,
                r#"{ "cwd" : "/srv/b/src", "sessionId":"n1" ,"n":1.50,"message":{"cwd":"/home/u/a","content":"in /home/u/a s1"}}"#,
            ),
            (
                "\u{feff}{\"forkedFrom\":{\"sessionId\":\"s1\",\"messageUuid\":\"s1\"},\"sessionId\":\"s2\"}\r",
                "\u{feff}{\"forkedFrom\":{\"sessionId\":\"n1\",\"messageUuid\":\"s1\"},\"sessionId\":\"s2\"}\r",
            ),
            (r#"{"cwd":7,"sessionId":null}"#, r#"{"cwd":7,"sessionId":null}"#),
            (r#"{"cwd":"/home/u/a","torn"#, r#"{"cwd":"/home/u/a","torn"#),
            (r#"{"c\u0077d":"\/home/u/a"}"#, r#"{"c\u0077d":"/srv/b"}"#),
            ("", ""),
        ];
        for (line, expected) in table {
            let written = relocation().line(line.as_bytes()).into_owned();
            assert_eq!(String::from_utf8(written).unwrap(), expected);
        }
    }

    #[test]
    fn whatever_stands_between_goes_through_byte_for_byte() {
        let text = b"@@@\n\n{\"cwd\":\"/home/u/a\"}\n\xff\xfe\0\n{\"cwd\":\"/home/u/a\"}";
        let expected = b"@@@\n\n{\"cwd\":\"/srv/b\"}\n\xff\xfe\0\n{\"cwd\":\"/srv/b\"}";
        for size in [1, 7, 4096] {
            let (mut written, mut told) = (Vec::new(), 0);
            let reader = BufReader::with_capacity(size, &text[..]);
            let relocation = relocation();
            relocate(
                reader,
                &mut written,
                |line| relocation.line(line),
                |bytes| {
                    told += bytes;
                    Ok(())
                },
            )
            .unwrap();
            assert_eq!(written, expected);
            assert_eq!(told, text.len() as u64);
        }
    }

    #[test]
    fn a_line_too_long_to_be_held_goes_through_as_it_is() {
        let long = format!("{{\"cwd\":\"/home/u/a\",\"x\":\"{}\"}}", "x".repeat(100));
        let text = format!("{long}\n{{\"cwd\":\"/home/u/a\"}}\n{long}");
        let expected = format!("{long}\n{{\"cwd\":\"/srv/b\"}}\n{long}");
        let mut written = Vec::new();
        let reader = BufReader::with_capacity(8, text.as_bytes());
        let relocation = relocation();
        let passed = relocate_within(32, reader, &mut written, |line| relocation.line(line), |_| Ok(()));
        assert_eq!(passed.unwrap(), 2);
        assert_eq!(String::from_utf8(written).unwrap(), expected);
    }

    proptest! {
        #[test]
        fn no_path_or_text_is_too_strange(
            text in "(<persisted-output>|saved to: |/home/u/a|/s1/tool-results/x.txt|\\n|[\u{130}\u{1e9e}\u{e9}/]|\\PC){0,12}",
        ) {
            let record = serde_json::json!({"cwd": text, "sessionId": "s1", "forkedFrom": {"sessionId": text},
                "message": {"content": [{"type": "tool_result", "content": text}]}, "toolUseResult": {"persistedOutputPath": text}});
            for line in [record.to_string(), format!("\u{feff}{record}\r"), text.clone()] {
                let moved = relocation().line(line.as_bytes()).into_owned();
                let is_record = |line: &[u8]| Fields::parse(&String::from_utf8_lossy(trimmed(line))).is_some();
                prop_assert_eq!(is_record(&moved), is_record(line.as_bytes()));
            }
            prop_assert!(result_name(&text).is_none_or(|name| text.ends_with(name)));
            prop_assert!(persisted_path(&text).is_none_or(|path| text.contains(path)));
        }
    }
}
