//! The first words of the user in a Claude transcript, as the vendor's own library lists them.
//!
//! This module skips the texts that agents and editors put before a prompt or in place of one, which are marked by a
//! tag. The rules are those of the library 2.1.316, and a test compares the two. Pure.

use std::borrow::Cow;

use crate::transcript::claude::record::{INTERRUPTED_TEXT, Record};
use crate::transcript::message::ContentPart;
use crate::transcript::summary::title_of;

/// The beginning of the marker before a pasted text, up to the four characters of its id.
const PASTE_BEGIN: &str = "<pasted_content id=\"";

/// The length of a pasted text's id, in characters.
const PASTE_ID_BYTES: usize = 4;

/// The words that were found so far.
#[derive(Debug, Default)]
pub(super) struct FirstWords {
    prompt: Option<String>,
    /// The first command of the agent's own: the title if there are no other words.
    command: Option<String>,
    attachment: Option<&'static str>,
}

impl FirstWords {
    /// The first words of one text.
    pub(super) fn of(text: &str) -> Self {
        let mut words = Self::default();
        words.add_text(text);
        words
    }

    /// Adds the next record. Its author (`origin`) is ignored: texts that the user did not write have a tag.
    pub(super) fn add_record(&mut self, record: &Record<'_>) {
        let fields = &record.fields;
        let others = ["isSidechain", "isMeta", "isCompactSummary"];
        let is_others = others.iter().any(|flag| fields.flag(flag)) || fields.raw("toolUseResult").is_some();
        if !record.has_kind("user") || is_others || self.is_final() {
            return;
        }
        let parts = record.parts().unwrap_or_default();
        if parts.iter().any(ContentPart::is_tool_result) {
            return;
        }
        for part in &parts {
            if let ContentPart::Text(text) = part {
                self.add_text(text);
            }
        }
        self.attachment = self.attachment.or_else(|| attachment_name(&parts));
    }

    /// Whether the words are final, so that later records cannot change them.
    pub(super) fn is_final(&self) -> bool {
        self.prompt.is_some()
    }

    /// The title in a list.
    pub(super) fn title(self) -> Option<String> {
        let attached = self.attachment.map(str::to_owned);
        self.prompt.or(self.command).or(attached)
    }

    fn add_text(&mut self, text: &str) {
        if self.is_final() {
            return;
        }
        let text = without_paste_marks(text);
        if let Some(name) = between(&text, "<command-name>", "</command-name>") {
            self.command = self.command.take().or_else(|| title_of(name));
        } else if let Some(input) = between(&text, "<bash-input>", "</bash-input>") {
            self.prompt = title_of(&format!("! {}", input.trim()));
        } else if !starts_with_tag(&text) {
            self.prompt = title_of(&text);
        }
    }
}

/// The title of a picture or a document that was sent without text.
fn attachment_name(parts: &[ContentPart]) -> Option<&'static str> {
    let has = |wanted: &str| {
        let is = |part: &ContentPart| matches!(part, ContentPart::Other { kind, .. } if kind == wanted);
        parts.iter().any(is)
    };
    if parts.iter().any(|part| matches!(part, ContentPart::Image { .. })) || has("image") {
        Some("Image")
    } else {
        has("document").then_some("Document")
    }
}

fn between<'a>(text: &'a str, begin: &str, end: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(begin)?;
    Some(rest.split_once(end)?.0)
}

/// Whether a text begins with a tag, `<lower-case name>` with or without attributes, or with the marker of an interruption.
fn starts_with_tag(text: &str) -> bool {
    let text = text.trim_start();
    if let Some(rest) = text.strip_prefix(INTERRUPTED_TEXT) {
        return rest.contains(']');
    }
    let Some(tag) = text
        .strip_prefix('<')
        .filter(|tag| tag.starts_with(|first: char| first.is_ascii_lowercase()))
    else {
        return false;
    };
    let behind =
        tag.trim_start_matches(|of_name: char| of_name.is_ascii_alphanumeric() || "_-".contains(of_name));
    behind.starts_with(|next: char| next == '>' || next.is_whitespace())
}

/// The text with pasted texts in place, each on lines of its own, without the markers around them.
fn without_paste_marks(text: &str) -> Cow<'_, str> {
    if !text.contains(PASTE_BEGIN) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(PASTE_BEGIN) {
        let pasted = after.split_at_checked(PASTE_ID_BYTES).and_then(|(id, after)| {
            let body = after.strip_prefix("\">")?;
            let (body, after) = body.split_once(&format!("\n</pasted_content id=\"{id}\">"))?;
            let is_empty = body.is_empty();
            Some((if is_empty { body } else { body.strip_prefix('\n')? }, after))
        });
        let Some((body, after)) = pasted else { break };
        for part in [before, body] {
            plain.push_str(part);
            plain.push('\n');
        }
        rest = after;
    }
    plain.push_str(rest);
    Cow::Owned(plain)
}
