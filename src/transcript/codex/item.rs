//! Decodes a line of a rollout as a message.
//!
//! This module decides which items belong to the history: texts of the user, the model or a tool, and texts that the
//! agent wrote in the user's name. It omits the agent's instructions to the model. Pure.

use crate::transcript::fields::{Fields, Json};
use crate::transcript::message::{ContentPart, Speaker, TranscriptMessage, TranscriptMessageKind};

use super::line::RolloutLine;

/// The tags around texts that Codex writes in the user's name, for files that do not record the author. Another one is
/// `external_` with the name of a source.
const INJECTED_TAGS: [&str; 11] = [
    "environment_context",
    "user_instructions",
    "recommended_plugins",
    "skill",
    "user_shell_command",
    "turn_aborted",
    "subagent_notification",
    "hook_prompt",
    "codex_internal_context",
    "extension_context",
    "goal_context",
];

/// The beginnings and ends of such texts without tags.
const INJECTED_TEXTS: [(&str, &str); 4] = [
    ("# AGENTS.md instructions", "</INSTRUCTIONS>"),
    ("Warning: The maximum number of unified exec processes ", ""),
    ("Warning: Your account was flagged for potentially high-risk ", ""),
    (
        "Warning: apply_patch was requested via ",
        "Use the apply_patch tool instead of exec_command.",
    ),
];

/// The line with which editors separate what they add, such as the open files, from the user's words.
const REQUEST_HEADING: &str = "## My request for Codex:";

/// The text before the exit code in a command's result, and the number of lines in which it is searched for: the output
/// of the command follows them.
const EXIT_CODE: &str = "Process exited with code ";
const HEADER_LINES: usize = 5;

/// Whether an item contains a prompt of the user.
pub(super) fn is_prompt(item: &Fields<'_>) -> bool {
    typed_texts(item).is_some_and(|mut texts| texts.any(|_| true))
}

/// Returns what the user typed in each part of an item that is the user's: an empty text for a picture. `None` if the item is not
/// a message of the user.
pub(super) fn typed_texts<'a>(item: &Fields<'a>) -> Option<impl Iterator<Item = String> + use<'a>> {
    if item.str("type")? != "message" || item.str("role")? != "user" {
        return None;
    }
    let content = item.array("content")?;
    let authors = Authors::of(item, content.len());
    let typed = move |(number, part): (usize, Json<'_>)| {
        let text = Fields::of(part).and_then(|part| part.text("text"));
        let is_users = authors.is_user(number).unwrap_or_else(|| match &text {
            Some(text) => !is_injected(text),
            None => number == 0,
        });
        is_users.then(|| text.map_or_else(String::new, |text| typed_text(&text).to_owned()))
    };
    Some(content.into_iter().enumerate().filter_map(typed))
}

/// Returns the part of a text that the user typed, without what an editor put before it. Empty for the tags around a picture.
fn typed_text(text: &str) -> &str {
    let is_picture_mark =
        matches!(text, "<image>" | "</image>") || text.starts_with("<image name=") && text.ends_with('>');
    match text.split_once(REQUEST_HEADING) {
        _ if is_picture_mark => "",
        Some((_, typed)) if !typed.trim().is_empty() => typed.trim_start(),
        _ => text,
    }
}

/// As [`typed_text`], for an event, which does not record the author. `None` if Codex wrote the text.
pub(super) fn typed_in_event(text: &str) -> Option<&str> {
    (!is_injected(text)).then(|| typed_text(text))
}

/// Whether an item is a message of the history.
pub(super) fn is_message(item: &Fields<'_>) -> bool {
    match item.str("type").as_deref() {
        Some("message") => matches!(item.str("role").as_deref(), Some("user" | "assistant")),
        None | Some("ghost_snapshot" | "compaction_trigger") => false,
        Some(_) => true,
    }
}

/// Whether a text in the user's name was written by Codex, judging by its beginning and its end, as Codex does. What is
/// between them may be missing.
fn is_injected(text: &str) -> bool {
    let text = text.trim();
    let has_tags = || {
        let (tag, _) = text.strip_prefix('<')?.split_once('>')?;
        let (name, _) = tag.split_once(' ').unwrap_or((tag, ""));
        let is_known = INJECTED_TAGS.contains(&name) || name.starts_with("external_");
        Some(is_known && text.strip_suffix('>')?.strip_suffix(name)?.ends_with("</"))
    };
    has_tags().unwrap_or(false)
        || INJECTED_TEXTS
            .iter()
            .any(|(beginning, end)| text.starts_with(beginning) && text.ends_with(end))
}

/// The authors of the parts of an item, as far as the file names them.
struct Authors {
    /// The type of each part's author (Codex 0.166).
    owners: Vec<Option<String>>,
    /// The kind of each part (versions before it).
    kinds: Vec<Option<String>>,
}

impl Authors {
    fn of(item: &Fields<'_>, parts: usize) -> Self {
        let metadata = item.object("internal_chat_message_metadata_passthrough");
        let metadata = metadata.unwrap_or_default();
        let owner = |part: Json<'_>| Fields::of(part)?.object("provenance")?.text("type");
        let owners = metadata.array("content_item_metadata").unwrap_or_default();
        let kinds = metadata.array("content_item_kinds").unwrap_or_default();
        // As Codex does: other kinds belong to other parts.
        let kinds = if kinds.len() == parts { kinds } else { Vec::new() };
        Self {
            owners: owners.into_iter().map(owner).collect(),
            kinds: kinds
                .into_iter()
                .map(|kind| kind.text().map(Into::into))
                .collect(),
        }
    }

    /// Whether a part is the user's. `None` if the file does not say.
    fn is_user(&self, part: usize) -> Option<bool> {
        if let Some(Some(owner)) = self.owners.get(part) {
            return Some(owner == "user");
        }
        match self.kinds.get(part)?.as_deref()? {
            "unknown" => None,
            kind => Some(kind.starts_with("user.")),
        }
    }
}

/// Decodes a message. `kind` is its kind as far as the surrounding lines show. `None` if the line is not such a
/// message.
pub(super) fn message(line: &RolloutLine<'_>, mut kind: TranscriptMessageKind) -> Option<TranscriptMessage> {
    let payload = &line.payload;
    let text_part = |text: Option<String>| text.map(ContentPart::Text).into_iter().collect();
    let (speaker, parts) = match kind {
        TranscriptMessageKind::Summary => {
            let text = payload.text("message").filter(|text| !text.is_empty());
            (Speaker::User, text_part(text))
        }
        TranscriptMessageKind::Error => {
            let error = payload.object("error");
            let text = error.as_ref().unwrap_or(payload).text("message");
            (Speaker::Model, text_part(text))
        }
        TranscriptMessageKind::Prompt => (Speaker::User, parts(payload)?),
        TranscriptMessageKind::Ordinary | TranscriptMessageKind::AgentNote => {
            let speaker = speaker(payload)?;
            if speaker == Speaker::User && payload.text("type")? == "message" {
                // The agent wrote it in the user's name.
                kind = TranscriptMessageKind::AgentNote;
            }
            (speaker, parts(payload)?)
        }
    };
    let typed = match kind {
        TranscriptMessageKind::Prompt => typed_texts(payload).into_iter().flatten().collect(),
        _ => Vec::new(),
    };
    Some(TranscriptMessage {
        record_id: String::new(),
        speaker,
        kind,
        at: line.written_at.clone(),
        parts,
        typed,
        copied_from: None,
        bytes: 0,
    })
}

/// How many messages a compaction kept for the model, including its summary. `None` if the version does not record it.
pub(super) fn kept_messages(compacted: &Fields<'_>) -> Option<usize> {
    let kept = compacted.array("replacement_history")?;
    let items = kept.into_iter().filter_map(Fields::of);
    Some(items.filter(is_message).count())
}

fn speaker(item: &Fields<'_>) -> Option<Speaker> {
    let kind = item.text("type")?;
    Some(match kind.as_str() {
        "message" if item.text("role")? == "assistant" => Speaker::Model,
        "message" => Speaker::User,
        kind if kind.ends_with("_output") => Speaker::User,
        _ => Speaker::Model,
    })
}

fn parts(item: &Fields<'_>) -> Option<Vec<ContentPart>> {
    let kind = item.text("type")?;
    let whole_item = || ContentPart::Other {
        kind: kind.clone(),
        json: item.to_json(),
    };
    Some(match kind.as_str() {
        "message" => match item.array("content") {
            Some(content) => content.into_iter().map(part_of_message).collect(),
            None => vec![whole_item()],
        },
        "reasoning" => thoughts(item),
        "function_call" => {
            let arguments = item.text("arguments").map(json_or_text);
            let as_it_stands = || item.raw("arguments").map_or("null", |raw| raw.get()).to_owned();
            vec![call(item, arguments.unwrap_or_else(as_it_stands))]
        }
        "custom_tool_call" => {
            let input = item.raw("input").map_or("null", |input| input.get());
            vec![call(item, input.to_owned())]
        }
        "local_shell_call" => {
            let action = item.raw("action").map_or("null", |action| action.get());
            vec![ContentPart::ToolCall {
                id: item
                    .text("call_id")
                    .or_else(|| item.text("id"))
                    .unwrap_or_default(),
                name: "local_shell".to_owned(),
                input_json: action.to_owned(),
            }]
        }
        "function_call_output" | "custom_tool_call_output" | "mcp_tool_call_output" => results(item),
        _ => vec![whole_item()],
    })
}

fn call(item: &Fields<'_>, input_json: String) -> ContentPart {
    ContentPart::ToolCall {
        id: item.text("call_id").unwrap_or_default(),
        name: item.text("name").unwrap_or_default(),
        input_json,
    }
}

/// The arguments unchanged if they are JSON, else as a JSON string: the model may have written anything.
fn json_or_text(arguments: String) -> String {
    match serde_json::from_str::<serde::de::IgnoredAny>(&arguments) {
        Ok(_) => arguments,
        Err(_) => serde_json::Value::String(arguments).to_string(),
    }
}

fn part_of_message(json: Json<'_>) -> ContentPart {
    let Some(fields) = Fields::of(json) else {
        return unknown_part(json);
    };
    let said = match fields.text("type").as_deref() {
        Some("input_text" | "output_text" | "text") => fields.text("text").map(ContentPart::Text),
        Some("input_image") => fields.text("image_url").and_then(|url| picture(&url)),
        _ => None,
    };
    said.unwrap_or_else(|| unknown_part(json))
}

/// The picture in a `data:` URL.
fn picture(url: &str) -> Option<ContentPart> {
    let (mime_type, data) = url.strip_prefix("data:")?.split_once(";base64,")?;
    Some(ContentPart::Image {
        mime_type: mime_type.to_owned(),
        data: data.to_owned(),
    })
}

/// Returns the readable part of the model's thinking: the text itself, or else its summary. The rest is encrypted.
fn thoughts(item: &Fields<'_>) -> Vec<ContentPart> {
    let thought = |json: Json<'_>| {
        let part = Fields::of(json);
        let text = part.as_ref().and_then(|part| part.text("text"));
        text.map_or_else(|| unknown_part(json), ContentPart::Thought)
    };
    let thoughts = |name: &str| match (item.array(name), non_null(item, name)) {
        (Some(parts), _) => parts.into_iter().map(thought).collect(),
        (None, whole) => whole.map(unknown_part).into_iter().collect::<Vec<_>>(),
    };
    let content = thoughts("content");
    if content.is_empty() {
        thoughts("summary")
    } else {
        content
    }
}

/// A part of an unknown form, as JSON.
fn unknown_part(json: Json<'_>) -> ContentPart {
    let kind = Fields::of(json).and_then(|part| part.text("type"));
    ContentPart::Other {
        kind: kind.unwrap_or_default(),
        json: json.get().to_owned(),
    }
}

/// The text of a member's value. `None` if it is null.
fn non_null<'a>(item: &Fields<'a>, name: &str) -> Option<Json<'a>> {
    item.raw(name).filter(|value| value.get() != "null")
}

/// The parts of a tool's result, which is a string, an object that contains it, or a list of parts. Texts are joined.
fn results(item: &Fields<'_>) -> Vec<ContentPart> {
    let call_id = item.text("call_id").unwrap_or_default();
    let whole = non_null(item, "output");
    let object = item.object("output");
    let success = object
        .as_ref()
        .and_then(|output| output.raw("success")?.get().parse::<bool>().ok());
    let content = match &object {
        Some(output) => output.raw("content"),
        None => whole,
    };
    let (mut texts, mut unknown_parts) = (Vec::new(), Vec::new());
    if let Some(text) = content.and_then(Json::text) {
        texts.push(text.into_owned());
    } else if let Some(parts) = content.and_then(Json::array) {
        for part in parts {
            match part_of_message(part) {
                ContentPart::Text(text) => texts.push(text),
                part => unknown_parts.push(part),
            }
        }
    } else {
        unknown_parts.extend(whole.map(unknown_part));
    }
    let text = texts.join("\n");
    // Older versions wrapped the output of a command in an object that is written as text.
    let wrapped = Fields::parse(&text).and_then(|wrapped| {
        let metadata = wrapped.object("metadata")?;
        Some((
            wrapped.text("output")?,
            super::line::number(&metadata, "exit_code"),
        ))
    });
    let (text, exit_code) = wrapped.unwrap_or_else(|| {
        let code = exit_code(&text);
        (text, code)
    });
    let mut parts = vec![ContentPart::ToolResult {
        call_id,
        text,
        is_error: success
            .map(|success| !success)
            .or(exit_code.map(|code| code != 0)),
    }];
    parts.append(&mut unknown_parts);
    parts
}

/// The exit code that the agent wrote above a command's output. A signal's is negative, which also counts as a failure.
fn exit_code(text: &str) -> Option<u64> {
    let header = text
        .lines()
        .take(HEADER_LINES)
        .take_while(|line| *line != "Output:");
    let mut codes = header.filter_map(|line| line.strip_prefix(EXIT_CODE));
    codes.next().map(|code| code.trim().parse().unwrap_or(1))
}
