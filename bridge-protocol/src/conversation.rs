//! Conversations: the objects that everything else refers to.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::check::Finding;
use crate::export::MissingSession;
use crate::id::{AgentName, CheckpointId, ConversationId, Cursor, TurnId, UpstreamId};
use crate::link::{Fidelity, LineageEntry, Link, Resumed};
use crate::raw::{PromptContent, RawJson};
use crate::turn::{FailureKind, Interrupt, TurnResult};

/// What a conversation is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum ConversationState {
    /// Nothing; it can take a prompt.
    Idle,
    /// A turn is running.
    Prompting,
    /// A turn waits for an answer of the user.
    Awaiting,
    /// A turn was cancelled and has not ended yet.
    Cancelling,
    /// The last prompt hit a usage limit.
    Limited,
    /// The daemon or the agent ended during a turn, or the question of such a turn is still open, or a queued prompt is
    /// held.
    Interrupted,
    /// The conversation is being moved to another folder.
    Moving,
    /// The conversation could not continue. The next prompt tries again.
    Failed,
    /// A value that this version of the crate does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// How to set up the sessions of a conversation. Applied again after each resume and fork.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    /// The model, by the agent's name for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The session mode, by the agent's id for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Configuration options: id to value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<BTreeMap<String, RawJson>>,
    /// Text to add to the agent's own system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// MCP servers, in ACP's shape.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_servers: Option<Vec<RawJson>>,
    /// More folders that the agent may use, as absolute paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub additional_directories: Option<Vec<String>>,
}

/// Where a conversation branched off another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Parent {
    /// The conversation that it branched off.
    pub conversation_id: ConversationId,
    /// The checkpoint at which it branched off; absent if the parent had no prompts yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_id: Option<CheckpointId>,
}

/// The usage limit that a conversation hit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Limit {
    /// The kind of failure.
    pub kind: FailureKind,
    /// When the limit ends; absent if the agent did not report it.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "crate::time::write_optional"
    )]
    pub resets_at: Option<Timestamp>,
}

/// How much of the model's context the conversation fills, and what it has cost, as the agent last reported it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// How many tokens of the context are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
    /// How many tokens the context holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The cost so far, in ACP's shape: `amount` and `currency`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<RawJson>,
}

/// A scheduled continuation: a prompt that is sent automatically at a given time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Continuation {
    /// When it is sent.
    #[serde(serialize_with = "crate::time::write")]
    pub at: Timestamp,
    /// How many times it has been tried.
    pub attempts: u32,
}

/// When a conversation continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContinueAt {
    /// At the end of its usage limit: `"reset"`.
    Reset,
    /// At once: `"now"`.
    Now,
    /// At a time. A past time means now.
    Time(Timestamp),
}

impl Serialize for ContinueAt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Reset => serializer.serialize_str("reset"),
            Self::Now => serializer.serialize_str("now"),
            Self::Time(time) => crate::time::write(time, serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ContinueAt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.as_str() {
            "reset" => Ok(Self::Reset),
            "now" => Ok(Self::Now),
            time => time.parse().map(Self::Time).map_err(|_| {
                D::Error::custom(format!(
                    "invalid time: \"{time}\"; use \"reset\", \"now\" or a time like 2026-01-31T18:00:00Z"
                ))
            }),
        }
    }
}

impl schemars::JsonSchema for ContinueAt {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ContinueAt".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let time = generator.subschema_for::<Timestamp>();
        schemars::json_schema!({
            "description": "When a conversation continues: `reset` (the end of its usage limit), `now`, or a time. A past \
                            time means now.",
            "anyOf": [{ "type": "string", "enum": ["reset", "now"] }, time],
        })
    }
}

/// The answer of `conversation/continue`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContinueAnswer {
    /// The scheduled continuation; absent after it was cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continuation: Option<Continuation>,
}

/// A queued prompt: it waits for the turns before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueuedPrompt {
    /// The id of its future turn. `conversation/cancel` with this id removes it from the queue.
    pub turn_id: TurnId,
    /// When it was queued.
    #[serde(serialize_with = "crate::time::write")]
    pub queued_at: Timestamp,
    /// Whether the prompt is held because the daemon was killed while it was queued. A held prompt is sent by
    /// `conversation/continue`, or when the same call is repeated with the same `requestId`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
}

/// A conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Conversation {
    /// The conversation's id; it never changes.
    pub id: ConversationId,
    /// The app that the conversation belongs to, in the app's own words; empty if none was given.
    #[serde(default)]
    pub namespace: String,
    /// The agent that it talks to.
    pub agent: AgentName,
    /// The folder that it runs in, as an absolute path.
    pub cwd: String,
    /// The title; empty if it has none yet.
    #[serde(default)]
    pub title: String,
    /// What it is doing.
    pub state: ConversationState,
    /// Whether its session is open in a running agent.
    pub live: bool,
    /// The upstream id at the end of the chain; null if the chain is empty.
    pub head: Option<UpstreamId>,
    /// The number of links in the chain, at most 16.
    pub chain_length: usize,
    /// The conversation that this one branched off; absent if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// How its sessions are set up.
    pub settings: Settings,
    /// The usage limit that it hit; absent if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Why the state is `failed`, as a sentence; absent in other states. If the agent's program could not be used, the
    /// end of its output is included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The questions that wait for an answer.
    #[serde(default)]
    pub interrupts: Vec<Interrupt>,
    /// The queued prompts in order, each once it is on disk: first the held ones, then those that wait for the running
    /// turn. Absent when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queue: Vec<QueuedPrompt>,
    /// Whether `conversation/continue` has something to continue: a turn that was interrupted other than by the user, or
    /// a held prompt. The state may still be `idle`, for example after a turn that failed because nobody was signed in.
    /// Absent when false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut_short: bool,
    /// The scheduled continuation; absent if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continuation: Option<Continuation>,
    /// What the agent last reported of its usage; absent if it reported nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// When it was created.
    #[serde(serialize_with = "crate::time::write")]
    pub created_at: Timestamp,
    /// When it last changed.
    #[serde(serialize_with = "crate::time::write")]
    pub updated_at: Timestamp,
    /// The number of its durable changes, for `expectedRevision`.
    pub revision: u64,
}

/// What to do with a prompt while another turn is running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OnBusy {
    /// Refuse the prompt as `busy`.
    #[default]
    Fail,
    /// Queue the prompt.
    Queue,
}

/// What to do with a prompt that hits a usage limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OnLimit {
    /// End the turn as failed.
    #[default]
    Fail,
    /// Schedule a continuation at the end of the limit.
    Wait,
}

/// What to do with the agent's transcripts when a conversation is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum TranscriptsOnDelete {
    /// Keep the transcripts and the daemon's kept copies. `transcript/keep` lists those copies, `transcript/forget`
    /// deletes them.
    #[default]
    Keep,
    /// Delete the transcripts, their side files and the kept copies.
    Delete,
}

/// The answer of `conversation/delete`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeleteAnswer {
    /// The transcripts that should have been deleted and remain, with the reasons; absent when there are none. The
    /// conversation is deleted all the same, so this is the only report of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remaining: Vec<RemainingTranscript>,
}

/// A transcript that should have been deleted with its conversation, and remains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemainingTranscript {
    /// The session.
    pub upstream_id: UpstreamId,
    /// The path of the transcript, or of its folder of side files if only that remains; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Why it remains.
    pub reason: RemainingReason,
    /// The same as a sentence.
    pub message: String,
}

/// Why a transcript remains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum RemainingReason {
    /// The transcript, its side files or its kept copy could not be deleted.
    Failed,
    /// Another conversation has the session too, or a fork in the same folder may need the side files.
    Shared,
    /// The agent archived the session and kept the file.
    Archived,
    /// The session was adopted along with another one: another program made it.
    Adopted,
    /// A value that this version of the crate does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// An answer with one conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConversationAnswer {
    /// The conversation after the call.
    pub conversation: Conversation,
}

/// The answer of `conversation/adopt`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdoptAnswer {
    /// The conversation after the call.
    pub conversation: Conversation,
    /// Whether the user archived the session in the agent: it can be read, but the agent refuses to resume it until it is
    /// unarchived. Absent when false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub archived: bool,
    /// The session that the history came from, if its transcript is missing or unusable: the history begins after it. A
    /// link refers to this session, but the chain does not contain it. Absent if there is none. Not reported if a
    /// conversation already had the transcript.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingSession>,
    /// Findings of `transcript/check` that prevent the agent from resuming the transcript as it is, or from resuming its
    /// newest branch; absent when there are none. Not reported if a conversation already had the transcript.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
}

/// The answer of `conversation/list`: one page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConversationPage {
    /// The conversations, newest first.
    pub conversations: Vec<Conversation>,
    /// The cursor of the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<Cursor>,
}

/// The answer of `conversation/tree`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TreeAnswer {
    /// The first ancestor and all that branched off it: each conversation after its parent, and the branches of one
    /// conversation oldest first.
    pub conversations: Vec<TreeMember>,
    /// The conversation that the first one branched off, if it was deleted or is not on this machine; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_parent: Option<ConversationId>,
    /// Whether there are more branches than one answer holds, 1,000 at most. Absent when false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// A conversation of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TreeMember {
    /// The conversation. Its `parent` says where it branched off.
    pub conversation: Conversation,
    /// Its chain, as `conversation/chain` returns it.
    pub links: Vec<Link>,
    /// Its whole lineage, as `conversation/lineage` returns it.
    pub entries: Vec<LineageEntry>,
}

/// The answer of `conversation/cancel`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CancelAnswer {
    /// Whether there was anything to cancel.
    pub cancelled: bool,
}

/// The answer of `conversation/resume`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResumeAnswer {
    /// The conversation after the call.
    pub conversation: Conversation,
    /// How the session was reopened.
    pub resumed: Resumed,
}

/// The answer of `conversation/fork`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForkAnswer {
    /// The new conversation, or the same one after a fork in place.
    pub conversation: Conversation,
    /// The branch; absent if the source had nothing to branch from yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// How much of the history the branch has.
    pub fidelity: Fidelity,
    /// How the branch was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<BranchedVia>,
}

/// How a branch was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum BranchedVia {
    /// With the agent's own fork.
    Native,
    /// As a copy of the transcript, cut at the checkpoint.
    Cut,
    /// As a new session that receives the history as text.
    Text,
    /// As a new session, because there was no history to take.
    Fresh,
    /// A value that this version of the crate does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// The answer of `conversation/edit`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EditAnswer {
    /// How the turn of the new prompt ended.
    pub turn: TurnResult,
    /// The branch, now the head. Absent if the turn was cancelled before its prompt was accepted: the head is then
    /// unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// How much of the history before the turn the branch has.
    pub fidelity: Fidelity,
    /// How many turns the history lost, the replaced one included.
    pub dropped: u64,
    /// How the branch was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<BranchedVia>,
}

/// The answer of `conversation/undo`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UndoAnswer {
    /// The conversation after the call.
    pub conversation: Conversation,
    /// The session that is the head again. After an undone move it is the same session, in its previous folder.
    pub link: Link,
    /// How many turns of the abandoned branch the history lost; 0 for an undone move.
    pub dropped: u64,
    /// The folders of the undone move; absent if no move was undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<MovedFolder>,
}

/// The folders of an undone move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MovedFolder {
    /// The folder before the undo.
    pub from: String,
    /// The folder now.
    pub to: String,
}

/// The answer of `conversation/move`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MoveAnswer {
    /// The files to move, and where to.
    pub plan: Vec<PlannedMove>,
    /// How many files were moved; 0 for a dry run.
    pub moved: u64,
    /// Files and folders next to the transcripts that are not moved, each with the reason; absent when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// The sessions whose transcripts are missing but have kept copies: a copy is restored to the new folder when it is
    /// needed, for example by the next prompt. Absent when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<UpstreamId>,
}

/// One step of a move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedMove {
    /// The current path.
    pub from: String,
    /// The new path.
    pub to: String,
    /// What is moved.
    pub kind: MovedKind,
    /// The size of the file in bytes; 0 if it is not a file.
    pub bytes: u64,
}

/// What a step moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum MovedKind {
    /// A transcript.
    Transcript,
    /// A side file of a transcript.
    SideFile,
    /// The folder of a conversation in the daemon's records.
    Metadata,
    /// One of the agent's own files that name folders. A move updates those names.
    Settings,
    /// A value that this version of the crate does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// The answer of `conversation/chain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChainAnswer {
    /// The links, oldest first; the last is the head.
    pub links: Vec<Link>,
}

/// The answer of `conversation/lineage`: one page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LineagePage {
    /// The entries, oldest first.
    pub entries: Vec<LineageEntry>,
    /// The cursor of the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<Cursor>,
}

/// The answer of `conversation/respond`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RespondAnswer {
    /// The turn that the answer started; absent if it started none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
}

/// The running turn, as a client that subscribes receives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunningTurn {
    /// The turn.
    pub turn_id: TurnId,
    /// The prompt.
    pub prompt: PromptContent,
    /// When the turn began. Includes the time to reopen the session, so it is before `promptAccepted`; excludes the time
    /// in the queue.
    #[serde(serialize_with = "crate::time::write")]
    pub started_at: Timestamp,
    /// ACP's updates of this turn so far; only the newest if `truncated` is true.
    pub updates: Vec<RawJson>,
    /// Whether older updates were omitted.
    pub truncated: bool,
}

/// What the agent last reported about its session, in ACP's shapes. A member is absent until it was reported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionInfo {
    /// The latest plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<RawJson>,
    /// The modes, and the current one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modes: Option<RawJson>,
    /// The configuration options and their values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_options: Option<RawJson>,
    /// The slash commands that a prompt may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commands: Option<RawJson>,
    /// The latest usage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<RawJson>,
}

/// An empty answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Empty {}
