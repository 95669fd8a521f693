//! Decodes a message of Qwen Code, in the format of Google's API: parts with a text, a call or its response.

use super::record::RecordKind;
use crate::transcript::fields::{Fields, Json, lenient_text};
use crate::transcript::message::{ContentPart, Speaker, TranscriptMessage, TranscriptMessageKind};
use crate::transcript::preamble::split_retelling;

/// The message of a record, `bytes` long.
pub(super) fn message(fields: &Fields<'_>, record_id: String, bytes: u64) -> TranscriptMessage {
    let kind = RecordKind::of(fields);
    let source = fields.object("forkedFrom");
    let parts: Vec<ContentPart> = match kind {
        RecordKind::Compaction => kept_messages(fields).into_iter().flat_map(parts_of).collect(),
        RecordKind::Prompt => parts(fields).flat_map(split_retelling_part).collect(),
        _ => parts(fields).collect(),
    };
    let typed = parts.iter().filter(|_| kind == RecordKind::Prompt);
    TranscriptMessage {
        record_id,
        speaker: match kind {
            RecordKind::Reply | RecordKind::Call => Speaker::Model,
            _ => Speaker::User,
        },
        kind: match kind {
            RecordKind::Prompt => TranscriptMessageKind::Prompt,
            RecordKind::Aside => TranscriptMessageKind::AgentNote,
            RecordKind::Compaction => TranscriptMessageKind::Summary,
            _ => TranscriptMessageKind::Ordinary,
        },
        at: fields.text("timestamp"),
        typed: typed
            .filter_map(ContentPart::as_text)
            .map(str::to_owned)
            .collect(),
        parts,
        copied_from: source.and_then(|source| source.text("sessionId").zip(source.text("messageUuid"))),
        bytes,
    }
}

/// The messages that a compaction left for the model.
pub(super) fn kept_messages<'a>(fields: &Fields<'a>) -> Vec<Json<'a>> {
    let payload = fields.object("systemPayload");
    payload
        .and_then(|payload| payload.array("compressedHistory"))
        .unwrap_or_default()
}

/// The first text of a record's message.
pub(super) fn prompt_text(fields: &Fields<'_>) -> Option<String> {
    parts(fields).find_map(|part| match part {
        ContentPart::Text(text) => Some(split_retelling(&text).1.to_owned()),
        _ => None,
    })
}

/// Splits a retelling and the prompt after it, which Qwen Code joins into one text, into the two parts that were sent.
fn split_retelling_part(part: ContentPart) -> Vec<ContentPart> {
    match part {
        ContentPart::Text(text) => {
            let (retelling, own) = split_retelling(&text);
            let texts = [retelling, own].into_iter().filter(|text| !text.is_empty());
            texts.map(|text| ContentPart::Text(text.to_owned())).collect()
        }
        other => vec![other],
    }
}

/// The parts of a record's message.
pub(super) fn parts<'a>(fields: &Fields<'a>) -> impl Iterator<Item = ContentPart> + use<'a> {
    fields.raw("message").into_iter().flat_map(parts_of)
}

/// The parts of a message, each decoded on demand.
fn parts_of(message: Json<'_>) -> impl Iterator<Item = ContentPart> {
    let parts = Fields::of(message).and_then(|message| message.array("parts"));
    let whole = parts.is_none().then(|| ContentPart::unknown_form(message.get()));
    let parts = parts.into_iter().flatten().map(|part| part_of(part.get()));
    parts.chain(whole)
}

fn part_of(json: &str) -> ContentPart {
    let Some(part) = Fields::parse(json) else {
        return ContentPart::unknown_form(json);
    };
    let called = || {
        let call = part.object("functionCall")?;
        Some(ContentPart::ToolCall {
            id: call.text("id").unwrap_or_default(),
            name: call.text("name")?,
            input_json: call.raw("args").map_or("{}", |args| args.get()).to_owned(),
        })
    };
    let answered = || {
        let response = part.object("functionResponse")?;
        let answer = response.object("response");
        let text_part = |name| {
            let value = answer.as_ref()?.raw(name)?.get();
            Some(lenient_text(value).unwrap_or_else(|| value.to_owned()))
        };
        let error = text_part("error");
        Some(ContentPart::ToolResult {
            call_id: response.text("id")?,
            is_error: Some(error.is_some()),
            text: error.or_else(|| text_part("output")).unwrap_or_default(),
        })
    };
    let pictured = || {
        let data = part.object("inlineData")?;
        let mime_type = data.text("mimeType").filter(|name| name.starts_with("image/"))?;
        Some(ContentPart::Image {
            mime_type,
            data: data.text("data")?,
        })
    };
    let text_part = || match (part.text("text")?, part.flag("thought")) {
        (thought, true) => Some(ContentPart::Thought(thought)),
        (text, false) => Some(ContentPart::Text(text)),
    };
    let known = called().or_else(answered).or_else(pictured).or_else(text_part);
    known.unwrap_or_else(|| ContentPart::unknown_form(json))
}
