//! The conversation: the object that everything else is about.

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
    /// Nothing; a prompt is welcome.
    Idle,
    /// A turn runs.
    Prompting,
    /// A turn waits for a person.
    Awaiting,
    /// A turn was cancelled and has not ended yet.
    Cancelling,
    /// The last prompt met a usage limit.
    Limited,
    /// A turn was cut short by the end of the daemon or the agent, or its question is still open, or a prompt is held that
    /// waited in line.
    Interrupted,
    /// Its folder is being moved.
    Moving,
    /// It could not go on; the next prompt tries again.
    Failed,
    /// A word that this version of the crate does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// How a session is set up, applied again after each resume and fork.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    /// The model, by the agent's name of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The session mode, by the agent's id of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Configuration options: id to value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<BTreeMap<String, RawJson>>,
    /// Text that is added to the agent's own system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// MCP servers, as ACP describes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_servers: Option<Vec<RawJson>>,
    /// Further absolute folders that the agent may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub additional_directories: Option<Vec<String>>,
}

/// Where a conversation branched off another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Parent {
    /// The conversation that it came from.
    pub conversation_id: ConversationId,
    /// At which place; absent when the parent had never been prompted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_id: Option<CheckpointId>,
}

/// The limit that a conversation has run into.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Limit {
    /// What kind of failure it was.
    pub kind: FailureKind,
    /// When it ends, where the agent said so.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "crate::time::write_optional"
    )]
    pub resets_at: Option<Timestamp>,
}

/// A prompt that goes out by itself at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Continuation {
    /// When.
    #[serde(serialize_with = "crate::time::write")]
    pub at: Timestamp,
    /// How often it has been tried.
    pub attempts: u32,
}

/// When a conversation continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContinueAt {
    /// At the end of its usage limit: `"reset"`.
    Reset,
    /// At once: `"now"`.
    Now,
    /// At a time; a past one means now.
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
            "description": "When a conversation continues: `reset`, at the end of its usage limit; `now`; or at a time. A past \
                            time means now.",
            "anyOf": [{ "type": "string", "enum": ["reset", "now"] }, time],
        })
    }
}

/// Answers `conversation/continue`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContinueAnswer {
    /// What goes out by itself, and when; absent once it was cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continuation: Option<Continuation>,
}

/// A prompt that waits for the turns before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueuedPrompt {
    /// The turn that it will be; `conversation/cancel` takes it out of the line.
    pub turn_id: TurnId,
    /// Since when it waits.
    #[serde(serialize_with = "crate::time::write")]
    pub queued_at: Timestamp,
    /// Whether it is held: the daemon was killed while it waited, so that it goes out when `conversation/continue` says so,
    /// or when the same call comes again under the same `requestId`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
}

/// A conversation as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Conversation {
    /// Its id: the same for life.
    pub id: ConversationId,
    /// The app that it belongs to, by the app's own word; empty when none was given.
    #[serde(default)]
    pub namespace: String,
    /// The agent that it talks to.
    pub agent: AgentName,
    /// The absolute folder in which it runs.
    pub cwd: String,
    /// What people call it; empty when nobody has named it yet.
    #[serde(default)]
    pub title: String,
    /// What it is doing.
    pub state: ConversationState,
    /// Whether its session is open in a running agent.
    pub live: bool,
    /// The upstream id at the end of its chain.
    pub head: Option<UpstreamId>,
    /// How many links its chain has, 16 at most.
    pub chain_length: usize,
    /// The conversation that it branched off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// How its session is set up.
    pub settings: Settings,
    /// The limit that it has run into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Why it is `failed`, in words, with the end of what the agent's program said where that could not be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The questions that wait for a person.
    #[serde(default)]
    pub interrupts: Vec<Interrupt>,
    /// The prompts that wait behind the running turn, in their order, each as soon as it is on disk; and those before them
    /// that are held.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queue: Vec<QueuedPrompt>,
    /// Whether a turn of it was cut short by anything but a person, or a prompt is held, so that `conversation/continue` goes
    /// on with it. It may be `idle` all the same, as after a turn that failed since a sign-in was missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut_short: bool,
    /// The prompt that goes out by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continuation: Option<Continuation>,
    /// When it was made.
    #[serde(serialize_with = "crate::time::write")]
    pub created_at: Timestamp,
    /// When it last changed.
    #[serde(serialize_with = "crate::time::write")]
    pub updated_at: Timestamp,
    /// Counts its durable changes, for `expectedRevision`.
    pub revision: u64,
}

/// What to do with a prompt while another turn runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OnBusy {
    /// Answer `busy`.
    #[default]
    Fail,
    /// Wait in line.
    Queue,
}

/// What to do with a prompt that meets a usage limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OnLimit {
    /// End the turn as failed.
    #[default]
    Fail,
    /// Go on by itself when the limit ends.
    Wait,
}

/// What becomes of the agent's transcripts when a conversation is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum TranscriptsOnDelete {
    /// They stay, and so do the daemon's own copies: `transcript/keep` names those, `transcript/forget` deletes them.
    #[default]
    Keep,
    /// They go too, with what lies beside them and the daemon's own copies.
    Delete,
}

/// Answers `conversation/delete`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeleteAnswer {
    /// Of the transcripts that were to be deleted, those of the conversation's sessions that are still there. The
    /// conversation is deleted all the same, so this is the last word about them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remaining: Vec<RemainingTranscript>,
}

/// A transcript that was to be deleted with its conversation, and is still there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemainingTranscript {
    /// The session.
    pub upstream_id: UpstreamId,
    /// Where it lies, as far as that is known: the transcript, or the folder beside it where only that is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Why it is still there.
    pub reason: RemainingReason,
    /// What kept it, in words.
    pub message: String,
}

/// Why a transcript is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum RemainingReason {
    /// It, or the daemon's own copy of it, could not be deleted.
    Failed,
    /// Another conversation has the session too, or a fork in its folder may need what lies beside its transcript.
    Shared,
    /// The agent took it out of its list, and keeps the file.
    Archived,
    /// The session came along when another one was adopted: it was made elsewhere.
    Adopted,
    /// A word that this version of the crate does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// An answer that holds one conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConversationAnswer {
    /// The conversation as it stands after the call.
    pub conversation: Conversation,
}

/// Answers `conversation/adopt`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdoptAnswer {
    /// The conversation as it stands after the call.
    pub conversation: Conversation,
    /// Whether the agent keeps the transcript among those that a person archived: it can be read, and the agent refuses to
    /// resume it until it is taken out of there. Not told of one that a conversation held before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub archived: bool,
    /// The session in which its past ends, where that says to have come from one whose transcript is not there or is of no
    /// use. A link refers to it, and it is not in the chain. Not told of a transcript that a conversation held before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingSession>,
    /// What keeps the agent from resuming the transcript as it is, or the newest of its branches, as `transcript/check` tells it
    /// among the rest. Not told of one that a conversation held before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
}

/// One page of `conversation/list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConversationPage {
    /// Newest first.
    pub conversations: Vec<Conversation>,
    /// Where the next page starts, when there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<Cursor>,
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
    /// The conversation as it stands after the call.
    pub conversation: Conversation,
    /// How it was brought back.
    pub resumed: Resumed,
}

/// The answer of `conversation/fork`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForkAnswer {
    /// The new conversation, or the same one when forked in place.
    pub conversation: Conversation,
    /// The branch; absent when the source has nothing to branch from yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// How much of the history came along.
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
    /// By the agent's own fork.
    Native,
    /// As a copy of the transcript that ends at the place.
    Cut,
    /// As a new session that is told the history in words.
    Text,
    /// As a new session, with nothing to take along.
    Fresh,
    /// A word that this version of the crate does not know.
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
    /// The branch, which is the head; absent when the turn was cancelled before its prompt was accepted: then the head is
    /// what it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// How much of the history before the turn came along.
    pub fidelity: Fidelity,
    /// How many turns it took out of the history, the replaced one included.
    pub dropped: u64,
    /// How the branch was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<BranchedVia>,
}

/// The answer of `conversation/undo`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UndoAnswer {
    /// The conversation as it stands after the call.
    pub conversation: Conversation,
    /// The session that is the head again; of a move that was taken back it is the same one, in the folder before it.
    pub link: Link,
    /// How many turns of the branch that is left are in the history no longer; none where a move was taken back.
    pub dropped: u64,
    /// From where to where the conversation went back; absent where no move was taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<MovedFolder>,
}

/// The folders of a conversation that went from one to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MovedFolder {
    /// The folder before.
    pub from: String,
    /// The folder now.
    pub to: String,
}

/// The answer of `conversation/move`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MoveAnswer {
    /// What goes where.
    pub plan: Vec<PlannedMove>,
    /// How many files were moved; 0 when only the plan was asked for.
    pub moved: u64,
    /// What lies with the files and is not taken along, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// The sessions that have no transcript any more and of which a copy is kept: it is put back in the new folder as soon as it is
    /// needed, as by the next prompt. Absent when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<UpstreamId>,
}

/// One thing that goes to another place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedMove {
    /// Where it is.
    pub from: String,
    /// Where it goes.
    pub to: String,
    /// What it is.
    pub kind: MovedKind,
    /// Its length; 0 of what is no file.
    pub bytes: u64,
}

/// What is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum MovedKind {
    /// A transcript.
    Transcript,
    /// A file beside one.
    SideFile,
    /// The folder of a conversation, as the daemon keeps it.
    Metadata,
    /// A file of the agent's own that names folders, and names others then.
    Settings,
    /// A word that this version of the crate does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// The answer of `conversation/chain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChainAnswer {
    /// Oldest first; the last is the head.
    pub links: Vec<Link>,
}

/// One page of `conversation/lineage`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LineagePage {
    /// Oldest first.
    pub entries: Vec<LineageEntry>,
    /// Where the next page starts, when there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<Cursor>,
}

/// The answer of `conversation/respond`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RespondAnswer {
    /// The turn that the answer started, when it had to start one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
}

/// The turn that runs while a client attaches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunningTurn {
    /// The turn.
    pub turn_id: TurnId,
    /// What was asked.
    pub prompt: PromptContent,
    /// When the turn began. That is before `promptAccepted`: bringing the session back counts, waiting in line does not.
    #[serde(serialize_with = "crate::time::write")]
    pub started_at: Timestamp,
    /// ACP's updates of this turn so far, the newest where not all are kept.
    pub updates: Vec<RawJson>,
    /// Whether older updates were left out.
    pub truncated: bool,
}

/// What the agent last said of its session, each as ACP has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionInfo {
    /// The latest plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<RawJson>,
    /// Modes and which is current.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modes: Option<RawJson>,
    /// Configuration options and their values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_options: Option<RawJson>,
    /// The commands that a prompt may call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commands: Option<RawJson>,
    /// The latest usage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<RawJson>,
}

/// The answer of a method that has nothing to say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Empty {}
