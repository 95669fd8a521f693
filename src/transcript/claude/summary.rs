//! The list entry of a Claude transcript, read from the two ends of its file.
//!
//! Decodes no more lines than necessary. Pure: works on bytes, and skips what it cannot read.

mod first_words;

use memchr::memmem;

use super::record::Record;
use crate::transcript::fields::Fields;
use crate::transcript::lines::line_text;
use crate::transcript::summary::{Ends, TranscriptSummary, title_of};
use first_words::FirstWords;

/// The longest line that can be a title's record, in bytes. Longer ones are not read.
const TITLE_LINE_BYTES: usize = 8 * 1024;

/// The list entry of a transcript in Claude's format, without its id, which is the file's name.
#[must_use]
pub(in crate::transcript) fn summary(ends: Ends<'_>) -> TranscriptSummary {
    let mut summary = TranscriptSummary::default();
    let mut first_cwd = None;
    let mut first_words = FirstWords::default();
    for line in ends.from_start() {
        let text = line_text(line);
        let Some(record) = Record::parse(&text) else {
            continue;
        };
        if summary.forked_from.is_none() {
            let source = record.fields.object("forkedFrom");
            summary.forked_from = source.and_then(|source| source.text("sessionId"));
        }
        first_cwd = first_cwd.or_else(|| record.fields.text("cwd"));
        first_words.add_record(&record);
        if first_words.is_final() {
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

/// The newest prompt that the agent recorded and that could be a title. The first prompt may be in a line that is not read
/// completely, after a picture.
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

/// The newest title from a title record: the user's, else the agent's, else what older versions called a summary.
fn given_title(ends: Ends<'_>) -> Option<String> {
    let title = memmem::Finder::new(b"-title\"");
    let summary = memmem::Finder::new(b"\"summary\"");
    // Use the newest of each kind. An empty one removes the title.
    let (mut custom, mut ai_title, mut summed) = (None, None, None);
    for line in ends.from_end().filter(|line| line.len() <= TITLE_LINE_BYTES) {
        let is_summary =
            || !matches!(ai_title, Some(Some(_))) && summed.is_none() && summary.find(line).is_some();
        if title.find(line).is_none() && !is_summary() {
            continue;
        }
        let text = line_text(line);
        let Some(record) = Fields::parse(&text) else {
            continue;
        };
        let title_member = |name: &str| record.text(name).map(|title| title_of(&title));
        match record.text("type").as_deref() {
            Some("custom-title") => custom = custom.or_else(|| title_member("customTitle")),
            Some("ai-title") => ai_title = ai_title.or_else(|| title_member("aiTitle")),
            Some("summary") => summed = summed.or_else(|| title_member("summary")),
            _ => {}
        }
        if matches!(custom, Some(Some(_))) {
            break;
        }
    }
    [custom, ai_title, summed].into_iter().flatten().flatten().next()
}

#[cfg(test)]
mod tests;
