//! Checkpoints and history: the messages of a conversation, as the agents' transcripts contain them.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::declare::{objects, words};
use crate::id::{CheckpointId, Cursor, UpstreamId};
use crate::raw::RawJson;

objects! {
    /// A checkpoint: the place after a turn.
    Checkpoint {
        /// The checkpoint's id. It stays valid whatever happens to the conversation: it encodes the agent, the session
        /// and the turn's last record, or the turn itself if the agent names turns (Codex). For a running turn, it is
        /// the place that the turn has reached.
        id: CheckpointId,
        /// The number of the turn, from 1, in the current history; if no conversation has the session, in the transcript.
        step: u64,
        /// The session whose transcript contains the turn. In a fork by reference (Codex), earlier turns are in another
        /// session.
        upstream_id: UpstreamId,
        /// The checkpoint before this one; absent on the first.
        parent_id: Option<CheckpointId> = default,
        /// When the turn's last record was written; absent if the record does not say.
        at: Option<Timestamp> as time = default,
        /// The first 200 characters of the prompt, as the user typed it: without what an editor put before it.
        prompt: String,
        /// The first 200 characters of the reply's text.
        reply: String,
        /// The tools that were called, each once, in the order of their first calls.
        tools: Vec<String>,
        /// The size of the turn's messages in the transcript, in bytes.
        bytes: u64,
        /// The checkpoint that this one was copied from; absent unless the transcript is a branch or a copy of another.
        /// Always absent in a fork by reference.
        origin: Option<CheckpointId> = default,
    }

    /// A message: a prompt, a part of a reply, or tool results.
    Message {
        /// The message's id; stable like a checkpoint's id.
        id: String,
        /// The role of the author. Tool results have the role `user`.
        role: Role,
        /// The kind of message; absent if the user or the model wrote it.
        kind: Option<MessageKind> = default,
        /// When it was written; absent if its record does not say.
        at: Option<Timestamp> as time = default,
        /// The content.
        content: Vec<MessagePart>,
        /// The checkpoint after the message's turn; absent before the first turn.
        checkpoint_id: Option<CheckpointId> = default,
        /// The session whose transcript contains it.
        upstream_id: UpstreamId,
    }
}

words! {
    /// The role of a message's author.
    Role {
        /// The user, a tool, or the agent on the user's behalf.
        User,
        /// The model.
        Assistant,
    }

    /// The kind of a message that neither the user nor the model wrote.
    MessageKind {
        /// A summary that replaces compacted history.
        Summary,
        /// Anything else that the agent wrote on the user's behalf: one of its own commands, the output of one, a marker.
        Aside,
        /// An error of the model's service, or a text that the agent filled in, instead of a reply.
        Error,
    }
}

objects! {
    /// One part of a message. `type` (in Rust `kind`) decides which other members it has: `text`, `thought` and
    /// `retelling` (the daemon's own retelling of an earlier session) have `text`; `image` has `mimeType` and `data`;
    /// `toolCall` has `toolCallId`, `name` and `input`; `toolResult` has `toolCallId`, `text` and, if the agent reports
    /// it, `isError`.
    ///
    /// Any other type is the agent's own, with the whole block in `raw`. So is a block of one of these types that lacks
    /// a required member, and a block without a type, whose `type` is empty.
    #[derive(Default)]
    MessagePart {
        /// The type of part.
        #[serde(rename = "type")]
        kind: String,
        /// The text.
        text: Option<String> = default,
        /// The id of the tool call: of this one, or of the one that this is the result of.
        tool_call_id: Option<String> = default,
        /// The name of the tool.
        name: Option<String> = default,
        /// The arguments of the tool call, byte for byte.
        input: Option<RawJson> = default,
        /// Whether the tool failed or was refused.
        is_error: Option<bool> = default,
        /// The media type of the image.
        mime_type: Option<String> = default,
        /// The image, in base64. Absent if it was too large; `cutBytes` is its size then.
        data: Option<String> = default,
        /// A block that has no type of its own here, byte for byte.
        raw: Option<RawJson> = default,
        /// The full size of the part in bytes, if it was too large and was cut; absent otherwise.
        cut_bytes: Option<u64> = default,
    }

    /// A gap in the history, or a possible one.
    HistoryGap {
        /// The session whose transcript has the gap.
        upstream_id: UpstreamId,
        /// The kind of gap.
        kind: GapKind,
        /// The same as a sentence.
        detail: String,
    }
}

words! {
    /// The kind of a gap in the history.
    GapKind {
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
    }
}

objects! {
    /// The answer of `conversation/checkpoints`: one page.
    CheckpointPage {
        /// The checkpoints, newest first. For the next page, pass the id of the last one as `before`; the page that
        /// ends with step 1 is the last.
        checkpoints: Vec<Checkpoint>,
        /// What the history lacks; absent when nothing is known to be missing.
        gaps: Vec<HistoryGap> = default,
        /// The sessions that were read from their kept copies because the agent's own files are missing; absent when
        /// there are none.
        kept: Vec<UpstreamId> = default,
    }

    /// The answer of `checkpoint/get`.
    CheckpointAnswer {
        /// The checkpoint.
        checkpoint: Checkpoint,
        /// The messages of its turn, oldest first.
        messages: Vec<Message>,
        /// How many more messages the turn has, if they are too large for one answer; absent otherwise.
        omitted: Option<u64> = default,
        /// The sessions that were read from their kept copies because the agent's own files are missing; absent when
        /// there are none.
        kept: Vec<UpstreamId> = default,
    }
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

objects! {
    /// A part of the history as ACP's update.
    HistoryUpdate {
        /// The body of ACP's `session/update`, as the agent sends it live or when it loads a session: a chunk of a
        /// message, a tool call, its result as `tool_call_update`, or a plan. The `messageId` of a chunk is the
        /// message's id here.
        update: RawJson,
        /// The checkpoint after the turn; absent before the first turn.
        checkpoint_id: Option<CheckpointId> = default,
        /// When it was written; absent if its record does not say.
        at: Option<Timestamp> as time = default,
    }

    /// The answer of `conversation/history`: one page.
    HistoryPage {
        /// The messages, oldest first; empty if updates were requested.
        messages: Vec<Message>,
        /// The same messages as updates; absent unless they were requested. Messages that the agent wrote on the user's
        /// behalf make none.
        updates: Option<Vec<HistoryUpdate>> = default,
        /// The cursor of the messages after this page; absent at the end.
        next_cursor: Option<Cursor> = default,
        /// The cursor of the messages before this page; absent at the beginning.
        previous_cursor: Option<Cursor> = default,
        /// What the history lacks; absent when nothing is known to be missing.
        gaps: Vec<HistoryGap> = default,
        /// The sessions that were read from their kept copies because the agent's own files are missing; absent when
        /// there are none.
        kept: Vec<UpstreamId> = default,
    }
}
