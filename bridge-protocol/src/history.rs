//! Checkpoints and history: the messages of a conversation, as the agents' transcripts contain them.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{CheckpointId, Cursor, UpstreamId};
use crate::raw::RawJson;

/// A checkpoint: the place after a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Checkpoint {
    /// The checkpoint's id. It stays valid whatever happens to the conversation: it encodes the agent, the session and
    /// the turn's last record, or the turn itself if the agent names turns (Codex). For a running turn, it is the place
    /// that the turn has reached.
    pub id: CheckpointId,
    /// The number of the turn, from 1, in the current history; if no conversation has the session, in the transcript.
    pub step: u64,
    /// The session whose transcript contains the turn. In a fork by reference (Codex), earlier turns are in another
    /// session.
    pub upstream_id: UpstreamId,
    /// The checkpoint before this one; absent on the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<CheckpointId>,
    /// When the turn's last record was written; absent if the record does not say.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "crate::time::write_optional"
    )]
    pub at: Option<Timestamp>,
    /// The first 200 characters of the prompt.
    pub prompt: String,
    /// The first 200 characters of the reply's text.
    pub reply: String,
    /// The tools that were called, each once, in the order of their first calls.
    pub tools: Vec<String>,
    /// The size of the turn's messages in the transcript, in bytes.
    pub bytes: u64,
    /// The checkpoint that this one was copied from; absent unless the transcript is a branch or a copy of another.
    /// Always absent in a fork by reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<CheckpointId>,
}

/// A message: a prompt, a part of a reply, or tool results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    /// The message's id; stable like a checkpoint's id.
    pub id: String,
    /// The role of the author. Tool results have the role `user`.
    pub role: Role,
    /// The kind of message; absent if the user or the model wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<MessageKind>,
    /// When it was written; absent if its record does not say.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "crate::time::write_optional"
    )]
    pub at: Option<Timestamp>,
    /// The content.
    pub content: Vec<MessagePart>,
    /// The checkpoint after the message's turn; absent before the first turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_id: Option<CheckpointId>,
    /// The session whose transcript contains it.
    pub upstream_id: UpstreamId,
}

/// The role of a message's author.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Role {
    /// The user, a tool, or the agent on the user's behalf.
    User,
    /// The model.
    Assistant,
    /// A value that this version of the crate does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// The kind of a message that neither the user nor the model wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum MessageKind {
    /// A summary that replaces compacted history.
    Summary,
    /// Anything else that the agent wrote on the user's behalf: one of its own commands, the output of one, a marker.
    Aside,
    /// An error of the model's service, or a text that the agent filled in, instead of a reply.
    Error,
    /// A value that this version of the crate does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// One part of a message. `type` (in Rust `kind`) decides which other members it has: `text`, `thought` and `retelling`
/// (the daemon's own retelling of an earlier session) have `text`; `image` has `mimeType` and `data`; `toolCall` has
/// `toolCallId`, `name` and `input`; `toolResult` has `toolCallId`, `text` and, if the agent reports it, `isError`.
///
/// Any other type is the agent's own, with the whole block in `raw`. So is a block of one of these types that lacks a
/// required member, and a block without a type, whose `type` is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MessagePart {
    /// The type of part.
    #[serde(rename = "type")]
    pub kind: String,
    /// The text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The id of the tool call: of this one, or of the one that this is the result of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// The name of the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The arguments of the tool call, byte for byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<RawJson>,
    /// Whether the tool failed or was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
    /// The media type of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// The image, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// A block that has no type of its own here, byte for byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<RawJson>,
    /// The full size of the part in bytes, if it was too large and was cut; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_bytes: Option<u64>,
}

/// A gap in the history, or a possible one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryGap {
    /// The session whose transcript has the gap.
    pub upstream_id: UpstreamId,
    /// The kind of gap.
    pub kind: GapKind,
    /// The same as a sentence.
    pub detail: String,
}

/// The kind of a gap in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum GapKind {
    /// The transcript does not exist, or does not contain the place at which the history leaves it.
    Missing,
    /// The transcript cannot be read, or not by this version.
    Unreadable,
    /// Records are damaged or missing.
    Broken,
    /// The transcript does not contain the messages before a compaction.
    Compacted,
    /// The transcript has fewer turns than ran on it: the newest are not written yet, or some are lost.
    Behind,
    /// The branch has records of a kind that this version of the bridge does not know; newer agents write them. Their
    /// content is not returned. Not damage.
    UnknownRecord,
    /// A value that this version of the crate does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// The answer of `conversation/checkpoints`: one page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointPage {
    /// The checkpoints, newest first. For the next page, pass the id of the last one as `before`; the page that ends with
    /// step 1 is the last.
    pub checkpoints: Vec<Checkpoint>,
    /// What the history lacks; absent when nothing is known to be missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<HistoryGap>,
    /// The sessions that were read from their kept copies because the agent's own files are missing; absent when there
    /// are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<UpstreamId>,
}

/// The answer of `checkpoint/get`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointAnswer {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// The messages of its turn, oldest first.
    pub messages: Vec<Message>,
    /// How many more messages the turn has, if they are too large for one answer; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted: Option<u64>,
    /// The sessions that were read from their kept copies because the agent's own files are missing; absent when there
    /// are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<UpstreamId>,
}

/// What `conversation/history` returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum HistoryForm {
    /// The messages.
    #[default]
    Messages,
    /// The messages as ACP's updates.
    Updates,
}

/// A part of the history as ACP's update.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryUpdate {
    /// The body of ACP's `session/update`, as the agent sends it live or when it loads a session: a chunk of a message, a
    /// tool call, its result as `tool_call_update`, or a plan. The `messageId` of a chunk is the message's id here.
    pub update: RawJson,
    /// The checkpoint after the turn; absent before the first turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_id: Option<CheckpointId>,
    /// When it was written; absent if its record does not say.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "crate::time::write_optional"
    )]
    pub at: Option<Timestamp>,
}

/// The answer of `conversation/history`: one page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryPage {
    /// The messages, oldest first; empty if updates were requested.
    pub messages: Vec<Message>,
    /// The same messages as updates; absent unless they were requested. Messages that the agent wrote on the user's behalf
    /// make none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updates: Option<Vec<HistoryUpdate>>,
    /// The cursor of the messages after this page; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<Cursor>,
    /// The cursor of the messages before this page; absent at the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_cursor: Option<Cursor>,
    /// What the history lacks; absent when nothing is known to be missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<HistoryGap>,
    /// The sessions that were read from their kept copies because the agent's own files are missing; absent when there
    /// are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<UpstreamId>,
}
