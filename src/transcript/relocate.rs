//! Rewrites a transcript for another location: another session id, another folder.
//!
//! In each record only the tokens that name the folder and the session are replaced. Every other byte stays, so that
//! the content, understood or not, does not change. Pure; knows no files and nothing of why a transcript moves.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};

use super::fields::{Fields, Json, lenient_text};
use super::rewrite::{EditableRecord, Edits, LineChange, Rewriter, Verdict, json_string};

/// The longest line that is buffered to be changed, in bytes. Longer lines are copied unchanged. Prompts with
/// pictures stay far below.
pub const HELD_LINE_LIMIT_BYTES: usize = 64 * 1024 * 1024;

/// The part after the session's folder in the path of a tool's result.
pub(super) const RESULTS: &str = "/tool-results/";

/// The replacements in the records of a transcript.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Relocation {
    /// Folders and their replacements, including everything below them. The longest matching folder is used.
    pub folders: Vec<(String, String)>,
    /// Session ids and their replacements.
    pub sessions: BTreeMap<String, String>,
    /// The tools' results next to the transcripts: their paths from the session's folder on (`ID/tool-results/NAME`),
    /// and their new absolute paths.
    pub results: BTreeMap<String, String>,
}

impl Relocation {
    /// Whether nothing is replaced.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.folders.iter().all(|(from, to)| from == to)
            && self.sessions.is_empty()
            && self.results.is_empty()
    }

    /// The new path of a folder. `None` if it is not in any of the folders that move.
    #[must_use]
    pub fn relocated_folder(&self, path: &str) -> Option<String> {
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

    /// Replaces the paths of tools' results in a record.
    pub(super) fn edit_results(&self, line: &[u8], record: &EditableRecord<'_>, edits: &mut Edits) {
        if self.results.is_empty() {
            return;
        }
        if let Some((old, range)) = record.text(&["toolUseResult", "persistedOutputPath"])
            && let Some(new) = self.relocated_result(&old).filter(|new| *new != old)
        {
            edits.replace(range, json_string(&new));
        }
        if memchr::memmem::find(line, RESULTS.as_bytes()).is_none() {
            return;
        }
        for text in texts_replacing_results(&record.fields) {
            let json = text.get();
            let named = lenient_text(json).and_then(|text| persisted_path(&text).map(str::to_owned));
            let Some((old, new)) =
                named.and_then(|old| Some((escaped(&old), escaped(&self.relocated_result(&old)?))))
            else {
                continue;
            };
            // Replaces the path only in this exact spelling. Other spellings are left alone.
            if let Some(at) = json.find(&old) {
                let range = record.position_in_value(text, at..at + old.len());
                edits.replace(range, new);
            }
        }
    }

    /// The new path of a tool's result, from its old path.
    fn relocated_result(&self, path: &str) -> Option<String> {
        self.results.get(result_name(path)?).cloned()
    }
}

impl LineChange for Relocation {
    fn edit(&self, line: &[u8], edits: &mut Edits) {
        if self.is_empty() {
            return;
        }
        let Some(record) = std::str::from_utf8(line).ok().and_then(EditableRecord::parse) else {
            return;
        };
        let mut replace_member = |way: &[&str], to: &dyn Fn(&str) -> Option<String>| {
            if let Some((old, place)) = record.text(way)
                && let Some(new) = to(&old).filter(|new| *new != old)
            {
                edits.replace(place, json_string(&new));
            }
        };
        let session = |id: &str| self.sessions.get(id).cloned();
        replace_member(&["cwd"], &|path| self.relocated_folder(path));
        replace_member(&["sessionId"], &session);
        replace_member(&["forkedFrom", "sessionId"], &session);
        self.edit_results(line, &record, edits);
    }
}

/// The texts of a record that may replace long results: those of tools' results, and those with which the agent
/// replaced results later (`content-replacement`).
fn texts_replacing_results<'a>(fields: &Fields<'a>) -> Vec<Json<'a>> {
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

/// The paths of the files with long results that a record names.
pub(super) fn named_result_paths(fields: &Fields<'_>) -> Vec<String> {
    let texts = texts_replacing_results(fields).into_iter();
    let texts = texts.filter_map(|text| persisted_path(&lenient_text(text.get())?).map(str::to_owned));
    let result = fields.object("toolUseResult");
    texts
        .chain(result.and_then(|result| result.text("persistedOutputPath")))
        .collect()
}

/// The name of a tool's result relative to the project's folder, from an absolute path or one relative to the
/// transcript's folder.
pub(super) fn result_name(path: &str) -> Option<&str> {
    let (folder, _) = path.split_once(RESULTS)?;
    let from = folder.rfind('/').map_or(0, |slash| slash + 1);
    Some(&path[from..])
}

/// The path of the file with a result, from the text that replaces the result.
pub(super) fn persisted_path(text: &str) -> Option<&str> {
    /// The beginning of the text with which Claude replaces a result that it wrote to a file, and the words before the file's
    /// path.
    const PERSISTED_RESULT: (&str, &str) = ("<persisted-output>", "saved to: ");
    let (beginning, before_path) = PERSISTED_RESULT;
    let text = text.trim_start().strip_prefix(beginning)?;
    Some(text.split_once(before_path)?.1.lines().next()?.trim())
}

/// A text, escaped as within a JSON string.
fn escaped(text: &str) -> String {
    let token = json_string(text);
    token[1..token.len() - 1].to_owned()
}

/// Copies lines and applies a change to each. Lines longer than [`HELD_LINE_LIMIT_BYTES`] are copied unchanged. Returns how
/// many of those there are.
///
/// # Errors
/// The errors of the reader and the writer.
pub fn rewrite_lines(
    reader: impl BufRead,
    writer: &mut dyn Write,
    change: &impl LineChange,
) -> io::Result<u64> {
    let mut unchanged = 0;
    let lines = Rewriter::new(reader, HELD_LINE_LIMIT_BYTES).without_final_newline();
    lines.rewrite_all(writer, |line, edits| {
        match line.bytes {
            Some(bytes) => change.edit(bytes, edits),
            None => unchanged += 1,
        }
        Ok(Verdict::Keep)
    })?;
    Ok(unchanged)
}

#[cfg(test)]
mod tests {
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

    fn moved(text: &str) -> String {
        let mut written = Vec::new();
        rewrite_lines(text.as_bytes(), &mut written, &relocation()).unwrap();
        String::from_utf8(written).unwrap()
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
            assert_eq!(moved(&text(OLD)), text(NEW));
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
            assert_eq!(relocation().relocated_folder(from).as_deref(), to, "{from}");
        }
        let root = Relocation {
            folders: vec![("/".to_owned(), "/srv".to_owned())],
            ..Relocation::default()
        };
        assert_eq!(root.relocated_folder("/x").as_deref(), Some("/srv/x"));
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
            assert_eq!(moved(line), expected);
        }
    }

    #[test]
    fn whatever_stands_between_goes_through_byte_for_byte() {
        let text = b"@@@\n\n{\"cwd\":\"/home/u/a\"}\n\xff\xfe\0\n{\"cwd\":\"/home/u/a\"}";
        let expected = b"@@@\n\n{\"cwd\":\"/srv/b\"}\n\xff\xfe\0\n{\"cwd\":\"/srv/b\"}";
        let mut written = Vec::new();
        let unchanged = rewrite_lines(&text[..], &mut written, &relocation());
        assert_eq!((unchanged.unwrap(), &written[..]), (0, &expected[..]));
    }

    proptest! {
        #[test]
        fn no_path_or_text_is_too_strange(
            text in "(<persisted-output>|saved to: |/home/u/a|/s1/tool-results/x.txt|\\n|[\u{130}\u{1e9e}\u{e9}/]|\\PC){0,12}",
        ) {
            let record = serde_json::json!({"cwd": text, "sessionId": "s1", "forkedFrom": {"sessionId": text},
                "message": {"content": [{"type": "tool_result", "content": text}]}, "toolUseResult": {"persistedOutputPath": text}});
            for line in [record.to_string(), format!("\u{feff}{record}\r"), text.clone()] {
                let is_record = |line: &str| EditableRecord::parse(line).is_some();
                prop_assert_eq!(is_record(&moved(&line)), is_record(&line));
            }
            prop_assert!(result_name(&text).is_none_or(|name| text.ends_with(name)));
            prop_assert!(persisted_path(&text).is_none_or(|path| text.contains(path)));
        }
    }
}
