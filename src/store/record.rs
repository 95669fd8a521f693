//! The records that the store holds, each with its version, and the change that carries them.
//!
//! Members that a later version adds are optional here (`#[serde(default)]`), so that records without them stay
//! readable. A record of a newer version is read as far as its members are known and never written again.

mod continuation;

use std::collections::BTreeMap;

use bridge_protocol::conversation::{BranchedVia, Limit, OnLimit, Parent, Settings};
use bridge_protocol::link::{Fidelity, LineageEntry, Link};
use bridge_protocol::raw::{PromptContent, RawJson};
use bridge_protocol::turn::Interrupt;
use bridge_protocol::{AgentName, ConversationId, ConversationRef, InterruptId, TurnId, UpstreamId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::chain::Chain;

pub use continuation::{LaterText, PendingContinuation};

/// The version of the records that this program writes.
pub const RECORD_VERSION: u32 = 1;

/// What the store keeps of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConversationRecord {
    /// [`RECORD_VERSION`] of the program that wrote it.
    pub version: u32,
    /// Its id: the same for life.
    pub id: ConversationId,
    /// The app that it belongs to; empty when none was given.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The agent that it talks to.
    pub agent: AgentName,
    /// The absolute folder in which it runs.
    pub cwd: String,
    /// What people call it; empty when nobody has named it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// Its upstream sessions; the last is the head.
    #[serde(default)]
    pub chain: Chain,
    /// The conversation that it branched off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// How its session is to be set up.
    #[serde(default)]
    pub settings: Settings,
    /// What the agent last reported of how it is set up. It is shown; of it only the mode is applied, to a session that replaces
    /// another.
    #[serde(default, skip_serializing_if = "Reported::is_empty")]
    pub reported: Reported,
    /// What the agent last reported of its usage, as it was at the end of the last turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<RawJson>,
    /// The limit that it has run into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// The prompt whose turn was cut short and that nothing has made up for since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<CutPrompt>,
    /// What goes out by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continuation: Option<PendingContinuation>,
    /// The questions that wait for a person.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interrupts: Vec<Interrupt>,
    /// The newest questions that were answered, and by whom, so that a late answer is told who was first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answered: Vec<AnsweredInterrupt>,
    /// The turn that has begun and has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<PendingTurn>,
    /// The prompts that wait in line, by their places in it; those that nobody in this life of the daemon waits for are held.
    /// A map, so that each long one is a file of its own that is not written again when another comes or goes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub waiting: BTreeMap<u64, WaitingPrompt>,
    /// Its state while no turn runs.
    #[serde(default)]
    pub resting: Resting,
    /// Why it failed, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it last changed: the order of the list.
    pub updated_at: Timestamp,
    /// Counts its durable changes.
    #[serde(default)]
    pub revision: u64,
    /// When it was deleted. The record stays, so that its id resolves for ever and is never used again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<Timestamp>,
}

/// What an agent reports of a session's set-up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Reported {
    /// The current mode's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// The current value of the option of category `model`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The current values of other options, by their ids.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, RawJson>,
}

/// A question that has been answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AnsweredInterrupt {
    /// The question.
    pub id: InterruptId,
    /// Who answered: the client's name, `cancel`, `agent`, `policy` or `reset`.
    pub by: String,
}

/// A turn that has been accepted and has not ended, as far as it is known to have come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingTurn {
    /// The turn.
    pub turn_id: TurnId,
    /// What was asked.
    pub prompt: PromptContent,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// The session that it goes to; absent while that is not open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_id: Option<UpstreamId>,
    /// How far it has come.
    pub phase: TurnPhase,
    /// What stood at the end of the transcript before it was sent; absent where that cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<Anchor>,
    /// The least fidelity that will do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_fidelity: Option<Fidelity>,
    /// Whether it is the conversation going on by itself.
    #[serde(default, skip_serializing_if = "is_false")]
    pub continues: bool,
    /// Whether the agent showed that it has the prompt. Kept where no transcript can be asked.
    #[serde(default, skip_serializing_if = "is_false")]
    pub taken: bool,
    /// The request that started it, when the caller named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    /// The digest of that request's content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// The branch that it goes out on, where it replaces an earlier prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit: Option<PendingEdit>,
}

/// The branch of a prompt that replaces an earlier one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingEdit {
    /// Its link.
    pub link: Link,
    /// How much of what stood before the turn came along.
    pub fidelity: Fidelity,
    /// How many turns are in the history no longer, the replaced one included.
    pub dropped: u64,
    /// How it was made.
    pub via: BranchedVia,
    /// Whether the prompt was accepted on it, so that it is in the chain.
    pub accepted: bool,
}

/// A prompt that waits for the turns before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingPrompt {
    /// The turn that it will be.
    pub turn_id: TurnId,
    /// What was asked.
    pub prompt: PromptContent,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// The least fidelity that will do.
    pub min_fidelity: Fidelity,
    /// What to do when it meets a usage limit.
    #[serde(default)]
    pub on_limit: OnLimit,
    /// The request that it came with, when the caller named it: the same call takes it out of the line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<OpenRequest>,
}

/// A prompt whose turn was cut short by a limit, a crash or a stop, so that it can be gone on with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CutPrompt {
    /// What was asked.
    pub prompt: PromptContent,
    /// What was asked before and has not reached the agent either: it goes out first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<PromptContent>,
    /// The session that it was sent to; absent when none was open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_id: Option<UpstreamId>,
    /// What stood at the end of its transcript before; absent where that cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<Anchor>,
    /// Whether a tool had begun to run: then it is never sent again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub tool_started: bool,
    /// Whether a question of its agent was open when it was cut short: whoever refuses that is done with the turn as well.
    #[serde(default, skip_serializing_if = "is_false")]
    pub asks: bool,
    /// Whether the transcript has it, as far as that was asked before a later prompt went out behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrived: Option<bool>,
    /// The request that it came with, where the same call is still carried out when it comes again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_request: Option<OpenRequest>,
    /// The least fidelity that will do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_fidelity: Option<Fidelity>,
}

/// A request that has no result, since nothing of it reached an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenRequest {
    /// The caller's id of it.
    pub id: RequestId,
    /// The digest of its content.
    pub fingerprint: String,
}

/// How far a pending turn is known to have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TurnPhase {
    /// It may have reached the agent: durable before it is sent.
    Sent,
    /// A tool has begun to run: it is never sent again.
    ToolStarted,
}

/// The end of a transcript before a prompt was sent: behind it is looked for whether that arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Anchor {
    /// The session whose file that record stands in, where it is another one's that this one continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<UpstreamId>,
    /// The uuid of the transcript's last record; absent when there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_uuid: Option<String>,
}

/// The state of a conversation while no turn runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Resting {
    /// A prompt is welcome.
    #[default]
    Idle,
    /// The last prompt met a usage limit.
    Limited,
    /// A turn was cut short, or its question is still open.
    Interrupted,
    /// It could not go on.
    Failed,
}

/// A caller's own id of a request, unique within its conversation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(String);

impl RequestId {
    /// Takes the text as it is.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The id's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What became of a request that its caller gave an id, so that the same one is not carried out twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestRecord {
    /// [`RECORD_VERSION`] of the program that wrote it.
    pub version: u32,
    /// The conversation that it is about; none for a request that makes one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<ConversationId>,
    /// The caller's id of it.
    pub request_id: RequestId,
    /// A digest of its content: the same id with another content is a conflict.
    pub fingerprint: String,
    /// The turn that it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// Its result, once it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<RawJson>,
    /// Its error, once it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RawJson>,
    /// When it came; it is forgotten [`super::REQUEST_MEMORY_DAYS`] later.
    pub at: Timestamp,
}

/// A process that was started for an agent, recorded so that the next life of the daemon can end it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProcessRecord {
    /// [`RECORD_VERSION`] of the program that wrote it.
    pub version: u32,
    /// The random mark in its environment, by which it and its descendants are known.
    pub mark: String,
    /// Its process id.
    pub pid: u32,
    /// When the kernel says that it started, in the kernel's own unit; absent where the kernel does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time_ticks: Option<u64>,
    /// The boot in which it was started: process ids and start times mean nothing in another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// The agent.
    pub agent: AgentName,
    /// When it was started.
    pub spawned_at: Timestamp,
}

/// Where an agent keeps its transcripts: an upstream id is unique within one root.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TranscriptRoot(String);

impl TranscriptRoot {
    /// Takes the text as it is: the absolute path of the folder, or any other name that tells roots apart.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The root's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What is to become durable together: all of it or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The conversation as it is to stand, its chain inline.
    pub conversation: Option<ConversationRecord>,
    /// Entries to add to lineages.
    pub lineage: Vec<(ConversationId, LineageEntry)>,
    /// Upstream ids that the conversation holds from now on; never taken back.
    pub upstream: Vec<(ConversationId, TranscriptRoot, UpstreamId)>,
    /// Requests to remember.
    pub requests: Vec<RequestRecord>,
    /// Requests to forget.
    pub requests_removed: Vec<(Option<ConversationId>, RequestId)>,
    /// Processes to remember.
    pub processes_put: Vec<ProcessRecord>,
    /// Marks of processes to forget.
    pub processes_removed: Vec<String>,
}

/// The number of a change in the journal. Counts from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sequence(pub u64);

/// The conversation that a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Its id.
    pub id: ConversationId,
    /// What the name was.
    pub by: ResolvedBy,
}

/// What kind of name led to a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResolvedBy {
    /// Its whole id.
    Id,
    /// A prefix of its id.
    Prefix,
    /// An upstream id that it holds or held.
    UpstreamId,
}

/// A place in the list of conversations by the time of their last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecentCursor(pub(super) [u8; 24]);

impl ConversationRecord {
    /// A record of a conversation that has not been opened yet.
    #[must_use]
    pub fn new(id: ConversationId, agent: AgentName, cwd: String, at: Timestamp) -> Self {
        Self {
            version: RECORD_VERSION,
            id,
            namespace: String::new(),
            agent,
            cwd,
            title: String::new(),
            chain: Chain::default(),
            parent: None,
            settings: Settings::default(),
            reported: Reported::default(),
            usage: None,
            limit: None,
            cut: None,
            continuation: None,
            interrupts: Vec::new(),
            answered: Vec::new(),
            turn: None,
            waiting: BTreeMap::new(),
            resting: Resting::Idle,
            failure: None,
            created_at: at,
            updated_at: at,
            revision: 1,
            deleted_at: None,
        }
    }

    /// Whether it is anything but idle: something is open that a start of the daemon has to look after, or that whoever
    /// listens to all conversations is told of.
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        let is_open = self.turn.is_some() || !self.interrupts.is_empty() || self.continuation.is_some();
        let is_open = is_open || !self.waiting.is_empty();
        self.deleted_at.is_none() && (is_open || self.resting != Resting::Idle)
    }
}

impl CutPrompt {
    /// It and what was asked before it, as one prompt.
    #[must_use]
    pub fn whole(&self) -> PromptContent {
        match &self.before {
            Some(before) => before.followed_by(&self.prompt),
            None => self.prompt.clone(),
        }
    }

    /// Whether the agent is known to have it.
    #[must_use]
    pub fn has_arrived(&self) -> bool {
        self.tool_started || self.arrived == Some(true)
    }
}

impl From<&PendingTurn> for CutPrompt {
    fn from(turn: &PendingTurn) -> Self {
        Self {
            prompt: turn.prompt.clone(),
            before: None,
            upstream_id: turn.upstream_id.clone(),
            anchor: turn.anchor.clone(),
            tool_started: turn.phase >= TurnPhase::ToolStarted,
            asks: false,
            arrived: turn.taken.then_some(true),
            open_request: None,
            min_fidelity: turn.min_fidelity,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_false(is: &bool) -> bool {
    !is
}

impl Reported {
    /// Whether there is nothing to show.
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Change {
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl RecentCursor {
    /// The conversation that stood there.
    pub(super) fn id(self) -> ConversationId {
        let mut id = [0; 16];
        id.copy_from_slice(&self.0[8..]);
        ConversationId::from_bytes(id)
    }

    /// The cursor as text.
    #[must_use]
    pub fn to_text(&self) -> String {
        super::digest::hex(&self.0)
    }

    /// Reads what [`RecentCursor::to_text`] wrote; none when it is anything else.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        super::digest::from_hex(text)
            .and_then(|bytes| bytes.try_into().ok())
            .map(Self)
    }
}

/// A text that may be all or the beginning of a conversation id.
pub(super) enum IdText {
    Whole(ConversationId),
    /// The lowest and the highest id that begin with it.
    Prefix([u8; 16], [u8; 16]),
    Other,
}

impl IdText {
    /// Reads hexadecimal digits, with hyphens where the id's text has them or without any.
    pub(super) fn read(reference: &ConversationRef) -> Self {
        const HYPHENS_AT: [usize; 4] = [8, 13, 18, 23];
        let text = reference.as_str();
        let hyphenated = text.contains('-');
        let mut digits = Vec::with_capacity(32);
        for (index, character) in text.chars().enumerate() {
            if hyphenated && HYPHENS_AT.contains(&index) {
                if character != '-' {
                    return Self::Other;
                }
                continue;
            }
            let Some(digit) = character.to_digit(16).and_then(|digit| u8::try_from(digit).ok()) else {
                return Self::Other;
            };
            if digits.len() == 32 {
                return Self::Other;
            }
            digits.push(digit);
        }
        if digits.len() < bridge_protocol::id::MIN_PREFIX_CHARS {
            return Self::Other;
        }
        let (mut lowest, mut highest) = ([0x00_u8; 16], [0xFF_u8; 16]);
        for (index, digit) in digits.iter().enumerate() {
            let (byte, shift) = (index / 2, if index % 2 == 0 { 4 } else { 0 });
            lowest[byte] |= digit << shift;
            highest[byte] &= !(0x0F << shift) | (digit << shift);
        }
        if digits.len() == 32 {
            return Self::Whole(ConversationId::from_bytes(lowest));
        }
        Self::Prefix(lowest, highest)
    }
}

#[cfg(test)]
mod tests;
