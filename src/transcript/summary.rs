//! What is told of a transcript in a list, from the two ends of its file.
//!
//! Owns what a title is and how much of a file is looked at for it. Claude's format is read here, Codex' in `codex`.
//! Decodes no more lines than it takes. Pure: it is handed bytes, and what it cannot read is passed over.

use memchr::memmem;

use super::fields::Fields;
use super::record::{Record, line_text};

mod words;

use words::FirstWords;

/// How much of each end of a file is read, in bytes. The first prompt stands within it in ordinary transcripts, and so
/// does some record that tells the time.
pub const END_BYTES: usize = 64 * 1024;

/// How much of the beginning is read, in bytes, when the first prompt does not stand within [`END_BYTES`]: a prompt may
/// hold pictures, and an agent may write down its instructions before it.
pub const FAR_HEAD_BYTES: usize = 512 * 1024;

/// The longest title, in characters: more than anybody reads in a list.
pub const TITLE_CHARS: usize = 200;

/// The longest line that can be a record of a title, in bytes. Longer ones are not looked into.
const TITLE_LINE_BYTES: usize = 8 * 1024;

/// The two ends of a file. What lies between them is not read; a line that is cut in two is passed over.
#[derive(Debug, Clone, Copy)]
pub struct Ends<'a> {
    /// The beginning; the whole of a short file.
    pub head: &'a [u8],
    /// The end, which begins anywhere in a line; empty when the head is the whole.
    pub tail: &'a [u8],
}

/// What is told of a transcript. Anything may be missing: it may be empty, damaged, or of an unknown version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TranscriptSummary {
    /// The session's id, where the format writes it down for the whole file.
    pub upstream_id: Option<String>,
    /// What people call it, else what the agent made of it, else the first line that a person said.
    pub title: Option<String>,
    /// What a person said last, as the agent noted it, cut as a title is; looked for only where there is no title.
    pub last_prompt: Option<String>,
    /// The folder that the agent last worked in.
    pub cwd: Option<String>,
    /// The session that it was forked from.
    pub forked_from: Option<String>,
    /// The time of its last record, RFC 3339, as written.
    pub last_at: Option<String>,
}

impl<'a> Ends<'a> {
    /// The lines of the beginning, first one first.
    pub fn from_start(self) -> impl Iterator<Item = &'a [u8]> {
        self.head.split(|byte| *byte == b'\n')
    }

    /// The lines of both ends, last one first.
    pub fn from_end(self) -> impl Iterator<Item = &'a [u8]> {
        backwards(self.tail).chain(backwards(self.head))
    }
}

/// The lines of `bytes`, last one first. Unlike the standard library's it does not look at every byte by itself.
fn backwards(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(bytes);
    std::iter::from_fn(move || {
        let bytes = rest?;
        let Some(newline) = memchr::memrchr(b'\n', bytes) else {
            rest = None;
            return Some(bytes);
        };
        rest = Some(&bytes[..newline]);
        Some(&bytes[newline + 1..])
    })
    .filter(|line| !line.is_empty())
}

/// The first line of a text that says something, cut to [`TITLE_CHARS`].
#[must_use]
pub fn title_of(text: &str) -> Option<String> {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().take(TITLE_CHARS).collect())
}

/// What is told of a transcript in Claude's format. Its id is the file's name, and not told here.
#[must_use]
pub fn claude(ends: Ends<'_>) -> TranscriptSummary {
    let mut summary = TranscriptSummary::default();
    let mut first_cwd = None;
    let mut first_words = FirstWords::default();
    for line in ends.from_start() {
        let text = line_text(line);
        let Some(record) = Record::parse(&text) else {
            continue;
        };
        let header = record.header();
        if summary.forked_from.is_none() {
            let source = record.fields.object("forkedFrom");
            summary.forked_from = source.and_then(|source| source.text("sessionId"));
        }
        first_cwd = first_cwd.or(header.cwd.clone());
        first_words.take(&record, &header);
        if first_words.are_said() {
            break;
        }
    }
    for line in ends.from_end() {
        let text = line_text(line);
        let Some(record) = Fields::parse(&text) else {
            continue;
        };
        summary.last_at = summary.last_at.or_else(|| record.text("timestamp"));
        // A subagent may work in another folder than the session.
        if summary.cwd.is_none() && !record.flag("isSidechain") {
            summary.cwd = record.text("cwd");
        }
        if summary.last_at.is_some() && summary.cwd.is_some() {
            break;
        }
    }
    summary.cwd = summary.cwd.or(first_cwd);
    summary.title = given_title(ends).or_else(|| first_words.title());
    if summary.title.is_none() {
        summary.last_prompt = last_prompt(ends);
    }
    summary
}

/// The newest prompt that the agent noted and that could be first words: the first ones may stand in a line that is not read
/// whole, behind a picture.
fn last_prompt(ends: Ends<'_>) -> Option<String> {
    let noted = memmem::Finder::new(b"\"last-prompt\"");
    let mut lines = ends.from_end().filter(|line| noted.find(line).is_some());
    lines.find_map(|line| {
        let text = line_text(line);
        let record = Fields::parse(&text)?;
        let is_note = record.text("type")? == "last-prompt";
        let prompt = is_note.then(|| record.text("lastPrompt")).flatten()?;
        FirstWords::of(&prompt).title()
    })
}

/// The newest title that records of its own give: a person's, else the agent's, else what older agents called a summary.
fn given_title(ends: Ends<'_>) -> Option<String> {
    let title = memmem::Finder::new(b"-title\"");
    let summary = memmem::Finder::new(b"\"summary\"");
    // The newest of each kind counts, also an empty one, which takes the title back.
    let (mut custom, mut made, mut summed) = (None, None, None);
    for line in ends.from_end().filter(|line| line.len() <= TITLE_LINE_BYTES) {
        let is_summary =
            || !matches!(made, Some(Some(_))) && summed.is_none() && summary.find(line).is_some();
        if title.find(line).is_none() && !is_summary() {
            continue;
        }
        let text = line_text(line);
        let Some(record) = Fields::parse(&text) else {
            continue;
        };
        let said = |name: &str| record.text(name).map(|title| title_of(&title));
        match record.text("type").as_deref() {
            Some("custom-title") => custom = custom.or_else(|| said("customTitle")),
            Some("ai-title") => made = made.or_else(|| said("aiTitle")),
            Some("summary") => summed = summed.or_else(|| said("summary")),
            _ => {}
        }
        if matches!(custom, Some(Some(_))) {
            break;
        }
    }
    [custom, made, summed].into_iter().flatten().flatten().next()
}

#[cfg(test)]
mod tests;
