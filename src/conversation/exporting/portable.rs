//! A conversation as plain JSON, in an answer if it is small enough, or streamed to a file.

use std::io::Write;
use std::path::Path;

use bridge_protocol::export::{ExportAnswer, ExportedFile, PORTABLE_VERSION, PortableConversation};
use bridge_protocol::raw::RawJson;
use indexmap::IndexMap;
use serde::Serialize;

use super::secrets::{keep_names_only, remove_secret_values};
use super::{ExportRequest, export_answer};
use crate::conversation::bundle::BundleError;
use crate::conversation::error::ConversationError;
use crate::conversation::history::{History, TranscriptScope};
use crate::conversation::page::encoded_bytes;
use crate::conversation::running_work::Progress;
use crate::conversation::services::{Services, now};
use crate::transcript::{TranscriptError, copy};

/// The limit for a conversation in an answer, in bytes. Every client of this daemon accepts a line of this length.
const ANSWER_LIMIT_BYTES: usize = 16 * 1024 * 1024;

/// Exports a conversation as an answer.
///
/// # Errors
/// If its agent's transcripts cannot be read, or it is too long.
pub(super) fn export_to_answer(
    services: &Services,
    request: ExportRequest,
    progress: &Progress,
) -> Result<ExportAnswer, ConversationError> {
    let history = History::current(services, &request.record, TranscriptScope::WithBackups)?;
    let mut portable = without_messages(request);
    portable.kept = history.sessions_from_backup();
    let mut room = ANSWER_LIMIT_BYTES
        .checked_sub(encoded_bytes(&portable))
        .ok_or_else(too_long_error)?;
    let mut messages = Vec::new();
    let totals = history.for_each_message(|message| -> Result<(), ConversationError> {
        let length = encoded_bytes(&message) + 1;
        room = room.checked_sub(length).ok_or_else(too_long_error)?;
        messages.push(message);
        Ok(progress
            .add_done_bytes(length as u64)
            .map_err(BundleError::from)?)
    });
    // If the daemon stops, fail: messages that were not read for that reason are not a gap.
    progress.add_done_bytes(0).map_err(BundleError::from)?;
    (portable.turns, portable.gaps) = totals?;
    portable.messages = messages;
    Ok(ExportAnswer::Json(Box::new(portable)))
}

/// Exports a conversation to a file, one message per line. Holds only a few messages in memory.
///
/// # Errors
/// If its agent's transcripts cannot be read, or the file cannot be written.
pub(super) fn export_to_file(
    services: &Services,
    request: ExportRequest,
    target: &Path,
    progress: &Progress,
) -> Result<ExportAnswer, ConversationError> {
    let history = History::current(services, &request.record, TranscriptScope::WithBackups)?;
    let values = match request.secrets {
        true => Vec::new(),
        false => remove_secret_values(&mut request.view.settings.clone()),
    };
    let mut portable = without_messages(request);
    portable.kept = history.sessions_from_backup();
    copy::create(target, |writer| -> Result<(), BundleError> {
        let mut output = CountedOutput {
            writer,
            target,
            progress,
        };
        let [head, _] = members_around_messages(&portable)?;
        let head = text_of(&head)?;
        // Head and tail are separate JSON objects. The messages go between them.
        output.write(head.strip_suffix('}').unwrap_or(&head))?;
        output.write(",\"messages\":[")?;
        let mut separator = "\n";
        let totals = history.for_each_message(|message| -> Result<(), BundleError> {
            output.write(separator)?;
            separator = ",\n";
            output.write(&text_of(&message)?)
        });
        (portable.turns, portable.gaps) = totals?;
        output.write("\n],")?;
        // By now the turns and gaps are known.
        let [_, tail] = members_around_messages(&portable)?;
        let tail = text_of(&tail)?;
        output.write(tail.strip_prefix('{').unwrap_or(&tail))?;
        output.write("\n")
    })?;
    let file = ExportedFile {
        missing_values: values,
        gaps: portable.gaps,
        kept: portable.kept,
        ..ExportedFile::default()
    };
    export_answer(target, file)
}

/// A writer of the file that reports progress.
struct CountedOutput<'a> {
    writer: &'a mut dyn Write,
    target: &'a Path,
    progress: &'a Progress,
}

impl CountedOutput<'_> {
    fn write(&mut self, text: &str) -> Result<(), BundleError> {
        let written = self.writer.write_all(text.as_bytes());
        written.map_err(TranscriptError::io("write", self.target))?;
        Ok(self.progress.add_done_bytes(text.len() as u64)?)
    }
}

/// The JSON members of an export before its messages, and those after.
fn members_around_messages(
    portable: &PortableConversation,
) -> Result<[IndexMap<String, RawJson>; 2], BundleError> {
    let mut before: IndexMap<String, RawJson> =
        serde_json::from_str(&text_of(portable)?).map_err(|_| ConversationError::Internal)?;
    let messages = before.get_index_of("messages").unwrap_or(before.len());
    let after = before.split_off(before.len().min(messages + 1));
    before.truncate(messages);
    Ok([before, after])
}

fn text_of(value: &impl Serialize) -> Result<String, BundleError> {
    // The types rule out an error.
    serde_json::to_string(value).map_err(|_| ConversationError::Internal.into())
}

/// The export of a conversation, without its messages.
fn without_messages(request: ExportRequest) -> PortableConversation {
    let ExportRequest {
        record,
        lineage,
        mut view,
        usage,
        secrets,
    } = request;
    if !secrets {
        keep_names_only(&mut view.settings);
    }
    PortableConversation {
        version: PORTABLE_VERSION,
        exported_at: now(),
        chain: record.chain.links().to_vec(),
        lineage,
        messages: Vec::new(),
        turns: 0,
        usage,
        pending: view.interrupts.clone(),
        gaps: Vec::new(),
        kept: Vec::new(),
        conversation: view,
    }
}

fn too_long_error() -> ConversationError {
    let limit = ANSWER_LIMIT_BYTES / 1024 / 1024;
    ConversationError::invalid(
        "path",
        format!(
            "the conversation is larger than the {limit} MiB of an answer; export it to a file with path"
        ),
    )
}
