//! Checkpoints and history: what was said in a conversation, as the agents' own transcripts have it.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{CheckpointId, Cursor, UpstreamId};
use crate::raw::RawJson;

/// The place after a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Checkpoint {
    /// Names the place, whatever becomes of the conversation: it says the agent, the session and the turn's last record, or
    /// the turn itself where the agent gives turns names of their own (Codex).
    /// While the turn runs, it is the place that the turn has come to.
    pub id: CheckpointId,
    /// The number of the turn in the current history, from 1; in its own transcript when no conversation holds it.
    pub step: u64,
    /// The session whose transcript holds it; of a fork by reference (Codex) that is another one for the earlier turns.
    pub upstream_id: UpstreamId,
    /// The checkpoint before it; absent at the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<CheckpointId>,
    /// When the turn's last record was written; absent when that does not say.
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
    /// How many bytes of the transcript the turn's messages take.
    pub bytes: u64,
    /// The checkpoint that this one is a copy of, where the transcript was branched off or copied from another. A fork by
    /// reference has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<CheckpointId>,
}

/// One message: a prompt, one part of a reply, or what tools answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    /// Names the message, as a checkpoint's id names its place.
    pub id: String,
    /// Who said it; tools answer as the user.
    pub role: Role,
    /// What it is, beside the words of a person or of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<MessageKind>,
    /// When it was written; absent when its record does not say.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "crate::time::write_optional"
    )]
    pub at: Option<Timestamp>,
    /// What it says.
    pub content: Vec<MessagePart>,
    /// The checkpoint after the turn that it belongs to; absent before the first turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_id: Option<CheckpointId>,
    /// The session whose transcript holds it.
    pub upstream_id: UpstreamId,
}

/// Who said a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Role {
    /// The person, a tool, or the agent in the person's name.
    User,
    /// The model.
    Assistant,
    /// A word that this version of the crate does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// What a message is, beside words of a person or of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum MessageKind {
    /// What stands in for a past that was compacted.
    Summary,
    /// Something else that the agent wrote in the person's name: a command of its own, its output, a mark.
    Aside,
    /// An error of the model's server, or what the agent filled in, in place of a reply.
    Error,
    /// A word that this version of the crate does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// One part of a message. `kind` (on the wire `type`) says which of the other members are there: `text`, `thought` and
/// `retelling` (of an earlier session, by this daemon) have `text`; `image` has `mimeType` and `data`; `toolCall` has
/// `toolCallId`, `name` and `input`; `toolResult` has `toolCallId`, `text` and, where the agent says so, `isError`. Any other kind is the agent's
/// own, with the whole block in `raw`; so is one of these without what it should have, and one without a name: their form is
/// not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MessagePart {
    /// Which kind of part it is.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The call of a tool that is made or answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// The tool's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The tool's arguments, byte for byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<RawJson>,
    /// Whether the tool failed or was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
    /// The media type of a picture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// A picture, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// A block that has no form of its own here, byte for byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<RawJson>,
    /// Set when the part was too large to be told: how many bytes it has of which not all are here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_bytes: Option<u64>,
}

/// Something that the history lacks, or may lack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryGap {
    /// The session whose transcript it is about.
    pub upstream_id: UpstreamId,
    /// What is wrong.
    pub kind: GapKind,
    /// The same in words.
    pub detail: String,
}

/// What is wrong with a part of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum GapKind {
    /// There is no such transcript, or it does not hold the place up to which it counts.
    Missing,
    /// It cannot be read, or not by this version.
    Unreadable,
    /// Records are damaged or gone.
    Broken,
    /// What was compacted away is not in it.
    Compacted,
    /// Fewer turns stand in it than ran on it: the newest are not written yet, or some are lost.
    Behind,
    /// Records on its branch are of a kind that this version of the bridge does not know, as a newer agent writes them: what
    /// they say is not told. No damage.
    UnknownRecord,
    /// A word that this version of the crate does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// What `conversation/checkpoints` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointPage {
    /// Newest first. Those before the last are found with its id as `before`; there are none before step 1.
    pub checkpoints: Vec<Checkpoint>,
    /// What the history lacks; absent when nothing is known to be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<HistoryGap>,
    /// The sessions that are told from our own kept copies, since their agent's files of them are gone; absent when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<UpstreamId>,
}

/// What `checkpoint/get` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointAnswer {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// The messages of its turn, oldest first.
    pub messages: Vec<Message>,
    /// How many further messages the turn has, when they are too large for one answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted: Option<u64>,
    /// The sessions that are told from our own kept copies, since their agent's files of them are gone; absent when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<UpstreamId>,
}

/// What `conversation/history` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryPage {
    /// Oldest first.
    pub messages: Vec<Message>,
    /// Leads to what comes behind; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<Cursor>,
    /// Leads to what comes before; absent at the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_cursor: Option<Cursor>,
    /// What the history lacks; absent when nothing is known to be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<HistoryGap>,
    /// The sessions that are told from our own kept copies, since their agent's files of them are gone; absent when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<UpstreamId>,
}
