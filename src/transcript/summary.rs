//! The summary of a transcript for a list, read from the two ends of its file, in any format.
//!
//! This module defines what a title is, and how much of a file is read for it. Each format reads the ends in its own
//! `summary`. Pure.

use super::fields::Fields;
use super::lines::line_text;

/// How much of each end of a file is read, in bytes. In ordinary transcripts this contains the first prompt and a
/// record with a time.
pub const END_BYTES: usize = 64 * 1024;

/// How much of the beginning is read, in bytes, if the first [`END_BYTES`] do not contain the first prompt: a prompt
/// may contain pictures, and an agent may write its instructions before it.
pub const FAR_HEAD_BYTES: usize = 512 * 1024;

/// The maximum length of a title, in characters: more than a list shows.
pub const TITLE_CHARS: usize = 200;

/// The two ends of a file. The part between them is not read, and a line that is cut is skipped.
#[derive(Debug, Clone, Copy)]
pub struct Ends<'a> {
    /// The beginning, or all of a short file.
    pub head: &'a [u8],
    /// The end, which may begin within a line. Empty if `head` is the whole file.
    pub tail: &'a [u8],
}

/// The summary of a transcript in a list. Anything may be missing: the file may be empty, damaged, or of an unknown version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TranscriptSummary {
    /// The user's name for it, else the agent's title, else the first line of the first prompt.
    pub title: Option<String>,
    /// The user's last prompt as the agent recorded it, shortened like a title. Only read if there is no title.
    pub last_prompt: Option<String>,
    /// The folder in which the agent last worked.
    pub cwd: Option<String>,
    /// The session that it was forked from.
    pub forked_from: Option<String>,
    /// Whether it is the session of a subagent, not one that the user began.
    pub is_subagent: bool,
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

/// The lines of `bytes`, last one first. Faster than the standard library, which examines the bytes one at a time.
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

/// Reads what the end of a file adds to its summary, in formats in which all records have a `timestamp`: the time of the last
/// record, and the last title that was given, in a record that contains `marker`.
pub(super) fn read_end(
    summary: &mut TranscriptSummary,
    ends: Ends<'_>,
    marker: &[u8],
    given_title: impl Fn(&Fields<'_>) -> Option<String>,
) {
    let marker = memchr::memmem::Finder::new(marker);
    let mut given = None;
    for line in ends.from_end() {
        let may_name = given.is_none() && marker.find(line).is_some();
        if summary.last_at.is_some() && !may_name {
            continue;
        }
        let text = line_text(line);
        let Some(record) = Fields::parse(&text) else {
            continue;
        };
        summary.last_at = summary.last_at.take().or_else(|| record.text("timestamp"));
        if may_name {
            given = given_title(&record);
        }
    }
    // An empty title removes the title that was given.
    let given = given.and_then(|given| title_of(&given));
    summary.title = given.or(summary.title.take());
}

/// The first line of a text that is not blank, shortened to [`TITLE_CHARS`].
#[must_use]
pub fn title_of(text: &str) -> Option<String> {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().take(TITLE_CHARS).collect())
}
