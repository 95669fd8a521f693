//! One record of a Claude transcript: what the bridge reads from it.
//!
//! A line is one JSON record. Everything is decoded leniently: an unknown record, an unknown member, or a
//! member of an unexpected type is kept or ignored, and a garbage line is a value, not an error. Pure; knows
//! nothing of how records make a history (see `claude`).

use std::borrow::Cow;

use crate::transcript::dialect::TurnEnd;
use crate::transcript::fields::{Fields, Json};
use crate::transcript::message::ContentPart;
use crate::transcript::scan::PrunedRecord;

/// A record, with access to its members.
#[derive(Debug)]
pub struct Record<'a> {
    /// The record's members.
    pub fields: Fields<'a>,
}

/// The `model` of messages that the agent made up itself.
pub const SYNTHETIC_MODEL: &str = "<synthetic>";

/// The text that the agent writes in the user's name when a reply is interrupted, complete or up to a closing part.
pub const INTERRUPTED_TEXT: &str = "[Request interrupted by user";

/// Beginnings of texts in user records that are not prompts, for records without an `origin`: the file is too old for it, or
/// the agent omits it. Texts with which the user prompts the model are not listed: a command that is a prompt begins with
/// `<command-message>`, and the model replies to `<bash-input>` (2.1.316, unless configured otherwise).
const NOT_PROMPTS: [&str; 10] = [
    INTERRUPTED_TEXT,
    "<command-name>",
    "<local-command-stdout>",
    "<local-command-stderr>",
    "<local-command-caveat>",
    "<bash-stdout>",
    "<bash-stderr>",
    "<task-notification>",
    "<system-reminder>",
    // What an editor adds to a prompt: the open file, the selected lines.
    "<ide_",
];

/// Kinds of records that are part of a chain. Of other records only the offset is stored.
pub(super) const CHAIN_KINDS: [&str; 6] = [
    "user",
    "assistant",
    "attachment",
    "system",
    "progress",
    "custom-title",
];

/// Beginnings of the agent's own commands, and of their output.
const AGENT_COMMANDS: [&str; 2] = ["<command-", "<local-command-"];

impl<'a> Record<'a> {
    /// Parses a record. `None` if `text` is not a JSON object.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        Fields::parse(text).map(|fields| Self { fields })
    }

    /// The record of a line that was pruned.
    pub(super) fn of(pruned: &'a PrunedRecord<'_>) -> Self {
        Self {
            fields: pruned.fields(),
        }
    }

    /// Whether it is of this kind. `user` and `assistant` are messages.
    #[must_use]
    pub fn has_kind(&self, kind: &str) -> bool {
        self.fields.str("type").as_deref() == Some(kind)
    }

    /// Returns the content of its message, or the text that the user typed during a turn. `None` if it has neither. A
    /// string becomes one text, and a part of an unknown form becomes [other](ContentPart::Other).
    #[must_use]
    pub fn parts(&self) -> Option<Vec<ContentPart>> {
        let (message, content) = match self.is_steering() {
            true => ("attachment", "prompt"),
            false => ("message", "content"),
        };
        let raw_message = non_null(&self.fields, message)?;
        let Some(message) = Fields::of(raw_message) else {
            return Some(vec![ContentPart::unknown_form(raw_message.get())]);
        };
        Some(match (message.array(content), message.text(content)) {
            (Some(items), _) => {
                let mut parts = Vec::with_capacity(items.len());
                items.into_iter().for_each(|item| add_block(item, &mut parts));
                parts
            }
            (None, Some(text)) => vec![ContentPart::Text(text)],
            (None, None) => vec![ContentPart::unknown_form(
                non_null(&message, content).unwrap_or(raw_message).get(),
            )],
        })
    }

    /// Whether it contains what the user typed during a turn. Claude Code (2.1.316) writes no user record for that, only this
    /// attachment. The agent's own notices have the same type, but another mode, another origin, or `isMeta`.
    #[must_use]
    pub fn is_steering(&self) -> bool {
        let attached = || {
            let attachment = self.fields.object("attachment")?;
            let origin = attachment.object("origin").and_then(|origin| origin.text("kind"));
            let is_typed = attachment.str("type")? == "queued_command"
                && attachment.str("commandMode")? == "prompt"
                && !attachment.flag("isMeta");
            Some(is_typed && origin.is_none_or(|kind| kind == "human"))
        };
        self.has_kind("attachment") && attached().unwrap_or(false)
    }

    /// All texts of its message, separated by empty lines.
    #[must_use]
    pub fn text(&self) -> String {
        let texts = self.parts().unwrap_or_default().into_iter();
        let texts = texts.filter_map(|part| match part {
            ContentPart::Text(text) => Some(text),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n\n")
    }

    /// A text member of its message: the `id` that the model's server assigned, the `model`, or the `stop_reason`.
    #[must_use]
    pub fn message_text(&self, name: &str) -> Option<String> {
        self.fields.object("message")?.text(name)
    }

    /// The session and record from which this record was copied.
    #[must_use]
    pub fn forked_from(&self) -> Option<(String, String)> {
        let from = self.fields.object("forkedFrom")?;
        from.text("sessionId").zip(from.text("messageUuid"))
    }

    /// Whether it replaces a reply: an error of the model's server, or a text that the agent filled in.
    #[must_use]
    pub fn is_filler(&self) -> bool {
        self.has_kind("assistant")
            && (self.fields.flag("isApiErrorMessage")
                || self.message_text("model").as_deref() == Some(SYNTHETIC_MODEL))
    }

    /// Whether the user wrote this record's message.
    ///
    /// Newer files say so (`origin.kind`). In older ones it is a user record with a text, an image or a document,
    /// without a tool's result, and not written by the agent itself.
    #[must_use]
    pub fn is_human_prompt(&self) -> bool {
        let fields = &self.fields;
        if !self.has_kind("user") || fields.flag("isSidechain") {
            return false;
        }
        if let Some(kind) = fields.object("origin").and_then(|origin| origin.str("kind")) {
            return kind == "human";
        }
        if fields.flag("isMeta") || fields.flag("isCompactSummary") || fields.raw("toolUseResult").is_some() {
            return false;
        }
        let parts = self.parts().unwrap_or_default();
        let is_prompt = |part: &ContentPart| match part {
            ContentPart::Text(text) => is_prompt_text(text),
            ContentPart::Other { kind, .. } => matches!(kind.as_str(), "image" | "document"),
            part => matches!(part, ContentPart::Image { .. }),
        };
        !parts.iter().any(ContentPart::is_tool_result) && parts.iter().any(is_prompt)
    }

    /// Whether a turn ends with this record: it is a text with which the model ended its reply, an error in place of a reply,
    /// or the marker of an interruption.
    #[must_use]
    pub fn turn_end(&self) -> TurnEnd {
        if self.has_kind("user") {
            return match self.text().starts_with(INTERRUPTED_TEXT) {
                true => TurnEnd::Ended,
                false => TurnEnd::Open,
            };
        }
        let parts = self.parts().unwrap_or_default();
        let calls = |part: &ContentPart| matches!(part, ContentPart::ToolCall { .. });
        let says = |part: &ContentPart| matches!(part, ContentPart::Text(text) if !text.is_empty());
        if !self.has_kind("assistant") {
            TurnEnd::Open
        } else if self.fields.flag("isApiErrorMessage") {
            TurnEnd::Ended
        } else if parts.iter().any(calls) || !parts.iter().any(says) {
            TurnEnd::Open
        } else {
            match self.message_text("stop_reason").as_deref() {
                Some("tool_use") => TurnEnd::Open,
                // Claude Code asks the model to continue after these, some times (2.1.316). It treats a `pause_turn` as an end.
                None | Some("max_tokens" | "model_context_window_exceeded" | "refusal") => TurnEnd::Ambiguous,
                Some(_) => TurnEnd::Ended,
            }
        }
    }

    /// Whether this is the agent's own command that the user typed, or its output.
    #[must_use]
    pub fn is_agent_command(&self) -> bool {
        let may_be =
            self.has_kind("user") && !self.fields.flag("isCompactSummary") && !self.is_human_prompt();
        may_be && starts_with_any(&self.text(), &AGENT_COMMANDS)
    }
}

/// Returns the part of a prompt that the user typed, without the tags that an editor or the agent puts before it.
pub(super) fn typed_text(mut text: &str) -> &str {
    let added_end = |text: &str| {
        let (tag, _) = text.strip_prefix('<')?.split_once('>')?;
        let is_added = tag.starts_with("ide_") || tag == "system-reminder";
        let end = format!("</{tag}>");
        is_added
            .then(|| text.find(&end).map(|at| at + end.len()))
            .flatten()
    };
    while let Some(end) = added_end(text) {
        text = text[end..].trim_start();
    }
    text
}

/// Whether a text may be a prompt, judging by its beginning. For user records without further hints.
fn is_prompt_text(text: &str) -> bool {
    !starts_with_any(text, &NOT_PROMPTS)
}

fn starts_with_any(text: &str, beginnings: &[&str]) -> bool {
    beginnings.iter().any(|beginning| text.starts_with(beginning))
}

/// Whether records of this kind concern the whole session, wherever they are in the file: the agent's own fork copies all of
/// them (Claude Code 2.1.316).
pub(super) fn is_session_wide(kind: &str) -> bool {
    matches!(
        kind,
        "content-replacement" | "atis-latch" | "tools-used" | "history-suppression" | "relocated"
    )
}

/// The members, type and text of a block of a message.
fn block(json: Json<'_>) -> (Option<Fields<'_>>, String, Option<String>) {
    let Some(fields) = Fields::of(json) else {
        return (None, String::new(), json.text().map(Cow::into_owned));
    };
    let kind = fields.text("type").unwrap_or_default();
    let text = (kind == "text").then(|| fields.text("text")).flatten();
    (Some(fields), kind, text)
}

/// Adds the parts of a block: more than one only for a tool's result with a part of an unknown form.
fn add_block(json: Json<'_>, parts: &mut Vec<ContentPart>) {
    let (fields, kind, text) = block(json);
    let fields = fields.unwrap_or_default();
    let call = || {
        Some(ContentPart::ToolCall {
            id: fields.text("id")?,
            name: fields.text("name")?,
            input_json: fields.raw("input").map_or("{}", Json::get).to_owned(),
        })
    };
    let image = || {
        let source = fields.object("source")?;
        Some(ContentPart::Image {
            mime_type: source.text("media_type")?,
            data: source.text("data")?,
        })
    };
    let known = match kind.as_str() {
        "tool_use" => call(),
        "tool_result" if fields.str("tool_use_id").is_some() => return add_tool_result(&fields, parts),
        "thinking" => fields.text("thinking").map(ContentPart::Thought),
        "image" => image(),
        _ => text.map(ContentPart::Text),
    };
    let json = json.get();
    parts.push(known.unwrap_or_else(|| ContentPart::Other {
        kind,
        json: json.to_owned(),
    }));
}

/// Adds a tool's result, which is a string or a list of blocks. The text blocks become its text, and parts of an unknown
/// form follow it. Of pictures and the like, only the type is shown, and the name of a tool that a search found.
fn add_tool_result(fields: &Fields<'_>, parts: &mut Vec<ContentPart>) {
    let (mut texts, mut unknown_parts) = (Vec::new(), Vec::new());
    if let Some(items) = fields.array("content") {
        for item in items {
            match block(item) {
                (_, _, Some(text)) => texts.push(text),
                (Some(found), kind, None) if kind == "tool_reference" => {
                    texts.push(format!("Tool: {}", found.text("tool_name").unwrap_or_default()));
                }
                (_, kind, None) if is_known_block(&kind) => texts.push(format!("[{kind}]")),
                (_, kind, None) => unknown_parts.push(ContentPart::Other {
                    kind,
                    json: item.get().to_owned(),
                }),
            }
        }
    } else if let Some(text) = fields.text("content") {
        texts.push(text);
    } else {
        unknown_parts.extend(non_null(fields, "content").map(|whole| ContentPart::unknown_form(whole.get())));
    }
    parts.push(ContentPart::ToolResult {
        call_id: fields.text("tool_use_id").unwrap_or_default(),
        text: texts.join("\n"),
        is_error: Some(fields.flag("is_error")),
    });
    parts.append(&mut unknown_parts);
}

/// The text of a member's value. `None` if it is null.
fn non_null<'a>(fields: &Fields<'a>, name: &str) -> Option<Json<'a>> {
    fields.raw(name).filter(|value| value.get() != "null")
}

/// Whether blocks of this type are known but not decoded: they are reported unchanged, or by their type in a tool's result.
/// Thoughts, texts and tools are recognized by their members.
fn is_known_block(kind: &str) -> bool {
    const KNOWN: [&str; 7] = [
        "image",
        "document",
        "redacted_thinking",
        "search_result",
        "container_upload",
        "tool_reference",
        "compaction",
    ];
    KNOWN.contains(&kind) || kind.ends_with("_tool_use") || kind.ends_with("_tool_result")
}

#[cfg(test)]
mod tests;
