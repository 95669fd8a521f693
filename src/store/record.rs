//! The stored records, each with its version, and the change that carries them.
//!
//! Members that a later version adds are optional (`#[serde(default)]`), so that older records stay readable. A record
//! of a newer version is read without its unknown members, and never rewritten.

mod continuation;
mod unfinished_head;

use std::collections::BTreeMap;
use std::path::Path;

use bridge_protocol::conversation::{BranchedVia, Limit, OnLimit, Parent, Settings};
use bridge_protocol::link::{Fidelity, LineageEntry, Link};
use bridge_protocol::raw::{PromptContent, RawJson};
use bridge_protocol::turn::Interrupt;
use bridge_protocol::{AgentName, ConversationId, ConversationRef, InterruptId, TurnId, UpstreamId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::error::{LostPart, StoreError};
use crate::chain::Chain;
use crate::files::digest::{from_hex, hex};

pub use continuation::PendingContinuation;
pub use unfinished_head::UnfinishedHead;

/// The version of the records that this program writes.
pub const RECORD_VERSION: u32 = 1;

/// A stored conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConversationRecord {
    /// [`RECORD_VERSION`] of the program that wrote the record.
    pub version: u32,
    /// The conversation's id, which never changes.
    pub id: ConversationId,
    /// The app that the conversation belongs to; empty if not given.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The agent of the conversation.
    pub agent: AgentName,
    /// The absolute folder in which the agent runs.
    pub cwd: String,
    /// The conversation's title; empty if it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// The upstream sessions; the last one is the head.
    #[serde(default)]
    pub chain: Chain,
    /// The conversation that this one branched off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// The settings with which to open the session.
    #[serde(default)]
    pub settings: Settings,
    /// The settings that the agent last reported. They are only displayed, except that the mode is applied to a
    /// session that replaces another one.
    #[serde(default, skip_serializing_if = "ReportedSettings::is_empty")]
    pub reported: ReportedSettings,
    /// The usage that the agent last reported, as of the end of the last turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<RawJson>,
    /// The usage limit that was hit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// The prompt whose turn was cut short, until it is continued or superseded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<CutShortPrompt>,
    /// The scheduled continuation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continuation: Option<PendingContinuation>,
    /// What former heads had left unfinished when another session replaced them, oldest first. An undo restores it with its
    /// head.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfinished_heads: Vec<UnfinishedHead>,
    /// The open questions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interrupts: Vec<Interrupt>,
    /// The last answered questions and who answered them, so that the reply to a late answer can name who was first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answered: Vec<AnsweredInterrupt>,
    /// The turn that has begun and has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<PendingTurn>,
    /// The queued prompts by position. A prompt without a caller in this run of the daemon is held. This is a map so
    /// that a long prompt is stored in a separate file, which is not rewritten when another prompt is added or
    /// removed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub waiting: BTreeMap<u64, QueuedPromptRecord>,
    /// The state while no turn runs.
    #[serde(default)]
    pub resting: RestingState,
    /// The message of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// When the conversation was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// How many durable changes it has had.
    #[serde(default)]
    pub revision: u64,
    /// The number of its last change, counted over all conversations. Lists are ordered by it and not by time, because
    /// the clock may have been wrong. Only the store sets and reads it.
    #[serde(default, skip_serializing_if = "is_zero", skip_deserializing)]
    pub order: u64,
    /// The number of the change that created it: the order of siblings. Only the store sets and reads it; 0 in records of earlier
    /// versions.
    #[serde(default, skip_serializing_if = "is_zero", skip_deserializing)]
    pub created_order: u64,
    /// The deletion that has begun and will be finished: some of its transcripts may be deleted already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun_deletion: Option<BegunDeletion>,
    /// When it was deleted. The record stays, so that the id still resolves and is never reused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<Timestamp>,
}

/// A deletion of a conversation and its transcripts, which has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BegunDeletion {
    /// The idempotency key of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<CallKey>,
}

/// The readable part of a conversation's record.
#[derive(Clone, Debug)]
pub struct SalvagedRecord {
    /// The record without the lost parts.
    pub record: ConversationRecord,
    /// The lost parts; usually empty.
    pub lost: Vec<LostPart>,
}

/// The settings of a session, as the agent reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReportedSettings {
    /// The current mode's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// The current value of the option with category `model`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The title of the conversation, if no client chose it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The current values of other options, by id.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, RawJson>,
}

/// An answered question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AnsweredInterrupt {
    /// The question.
    pub id: InterruptId,
    /// Who answered it: the client's name, `cancel`, `agent`, `policy` or `reset`.
    pub by: String,
}

/// A turn that was accepted and has not ended, with its known progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingTurn {
    /// The turn.
    pub turn_id: TurnId,
    /// The prompt.
    pub prompt: PromptContent,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// The session that the prompt goes to; absent until a session is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_id: Option<UpstreamId>,
    /// The turn's known progress.
    pub phase: TurnPhase,
    /// The end of the transcript before the prompt was sent; absent if it could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<Anchor>,
    /// The minimum fidelity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_fidelity: Option<Fidelity>,
    /// Whether this is a scheduled continuation.
    #[serde(default, skip_serializing_if = "is_false")]
    pub continues: bool,
    /// Whether the agent showed that it has the prompt. Synced at once if the transcript cannot show it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub taken: bool,
    /// The request that started the turn, if the caller gave an id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    /// The digest of that request's content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// The branch on which the prompt is sent, if it replaces an earlier prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit: Option<PendingEdit>,
}

/// The branch of a prompt that replaces an earlier one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingEdit {
    /// The link of the branch.
    pub link: Link,
    /// How much of the history before the turn was kept.
    pub fidelity: Fidelity,
    /// How many turns the history no longer has, including the replaced one.
    pub dropped: u64,
    /// How the branch was made.
    pub via: BranchedVia,
    /// Whether the prompt was accepted on the branch, so that the branch is in the chain.
    pub accepted: bool,
}

/// A queued prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueuedPromptRecord {
    /// The id of its future turn.
    pub turn_id: TurnId,
    /// The prompt.
    pub prompt: PromptContent,
    /// When it was queued.
    pub asked_at: Timestamp,
    /// The minimum fidelity.
    pub min_fidelity: Fidelity,
    /// What to do if it hits a usage limit.
    #[serde(default)]
    pub on_limit: OnLimit,
    /// The request that queued it, if the caller gave an id. Repeating that call takes the prompt out of the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<CallKey>,
}

/// A prompt whose turn was cut short by a limit, a crash or a stop. It can be continued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CutShortPrompt {
    /// The prompt.
    pub prompt: PromptContent,
    /// An earlier prompt that did not reach the agent either. It is sent first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<PromptContent>,
    /// The session that the prompt was sent to; absent if none was open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_id: Option<UpstreamId>,
    /// The end of the transcript before the prompt was sent; absent if it could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<Anchor>,
    /// Whether a tool had started. Then the prompt is never sent again to a session that has the turn.
    #[serde(default, skip_serializing_if = "is_false")]
    pub tool_started: bool,
    /// Whether a question of the agent was open when the turn was cut short. Refusing that question ends the turn too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub asks: bool,
    /// Whether the agent showed that it has the prompt. Its transcript may lack the prompt nevertheless.
    #[serde(default, skip_serializing_if = "is_false")]
    pub taken: bool,
    /// Whether the transcript has the prompt, if that was checked before a later prompt was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrived: Option<bool>,
    /// Whether the chain counts the turn: the agent answered it because the daemon stopped.
    #[serde(default, skip_serializing_if = "is_false")]
    pub counted: bool,
    /// The request of the prompt, if repeating that call still carries it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_request: Option<CallKey>,
    /// The minimum fidelity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_fidelity: Option<Fidelity>,
}

/// The idempotency key of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallKey {
    /// The caller's own id of the call.
    pub id: RequestId,
    /// A hash of the call's content: the same id with another content is a conflict.
    pub fingerprint: String,
}

/// The known progress of a pending turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TurnPhase {
    /// The prompt may have reached the agent. Synced before the prompt is sent.
    Sent,
    /// A tool has started: the prompt is never sent again.
    ToolStarted,
}

/// The end of a transcript before a prompt was sent. Whether the prompt arrived is decided from what follows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Anchor {
    /// The session whose file holds the record, if this session continues another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<UpstreamId>,
    /// The UUID of the transcript's last record; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_uuid: Option<String>,
}

/// The state of a conversation while no turn runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RestingState {
    /// Ready for a prompt.
    #[default]
    Idle,
    /// The last prompt hit a usage limit.
    Limited,
    /// A turn was cut short, or its question is still open.
    Interrupted,
    /// The conversation could not continue.
    Failed,
}

/// A request id chosen by the caller, unique within its conversation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(String);

impl RequestId {
    /// Wraps the text unchanged.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The outcome of a request that has an id, so that the same request is not carried out twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestRecord {
    /// [`RECORD_VERSION`] of the program that wrote the record.
    pub version: u32,
    /// The conversation; `None` for a request that creates one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<ConversationId>,
    /// The caller's id of the request.
    pub request_id: RequestId,
    /// The digest of the request's content. The same id with other content is a conflict.
    pub fingerprint: String,
    /// The turn that the request started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// The result, if there is one yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<RawJson>,
    /// What the caller needs of the result, if that is less. It is stored instead of the result if the change cannot be refused
    /// and the result needs a file that cannot be written.
    #[serde(skip)]
    pub short_result: Option<RawJson>,
    /// The error, if there is one yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RawJson>,
    /// When the request arrived. It is deleted [`super::REQUEST_MEMORY_DAYS`] later.
    pub at: Timestamp,
}

/// An agent process, recorded so that the next run of the daemon can end it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProcessRecord {
    /// [`RECORD_VERSION`] of the program that wrote the record.
    pub version: u32,
    /// The random mark in the environment of the process and its descendants.
    pub mark: String,
    /// The process id.
    pub pid: u32,
    /// The process's start time in the kernel's unit; absent if the kernel does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time_ticks: Option<u64>,
    /// The boot in which the process was started. In another boot, process ids and start times mean nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// The agent.
    pub agent: AgentName,
    /// When the process was started.
    pub spawned_at: Timestamp,
}

/// The folder of an agent's transcripts. An upstream id is unique within one root.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TranscriptRoot(String);

impl TranscriptRoot {
    /// Wraps the text unchanged: the absolute path of the folder, or another unique name.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the root as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether both are one folder, perhaps by different paths. Reads links only if the paths differ.
    #[must_use]
    pub fn is_same_folder(&self, other: &Self) -> bool {
        let [own, other] = [self, other].map(|root| Path::new(&root.0));
        let real = |path: &Path| path.canonicalize().ok();
        own == other || real(own).is_some_and(|own| real(other) == Some(own))
    }
}

/// Changes that become durable together, or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The new record of the conversation, including its chain.
    pub conversation: Option<ConversationRecord>,
    /// New lineage entries.
    pub lineage: Vec<(ConversationId, LineageEntry)>,
    /// Upstream ids that a conversation owns from now on. They are never removed.
    pub upstream: Vec<(ConversationId, TranscriptRoot, UpstreamId)>,
    /// Requests to add.
    pub requests: Vec<RequestRecord>,
    /// Requests to delete.
    pub requests_removed: Vec<(Option<ConversationId>, RequestId)>,
    /// Processes to add.
    pub processes_put: Vec<ProcessRecord>,
    /// Marks of processes to delete.
    pub processes_removed: Vec<String>,
    /// Whether the change may use the journal's reserved space. Set for events that already happened and cannot be refused:
    /// the end of a turn, and a deletion after that of the transcripts.
    pub may_use_reserve: bool,
    /// Whether earlier states of the data must be erased from the files. The files are rewritten before the change is
    /// acknowledged; if that fails, the next start rewrites them.
    pub erases: bool,
}

/// The number of a change in the journal, starting at 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sequence(pub u64);

/// The conversation that a name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResolvedConversation {
    /// Its id.
    pub id: ConversationId,
    /// The kind of the name.
    pub by: ResolvedBy,
}

/// The kind of name that identified a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResolvedBy {
    /// The complete id.
    Id,
    /// A prefix of the id.
    Prefix,
    /// An upstream id that the conversation has or had.
    UpstreamId,
}

/// A position in the list of conversations by last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecentCursor(pub(super) [u8; 24]);

impl ConversationRecord {
    /// Creates the record of a conversation that has not been opened yet.
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
            reported: ReportedSettings::default(),
            usage: None,
            limit: None,
            cut: None,
            continuation: None,
            unfinished_heads: Vec::new(),
            interrupts: Vec::new(),
            answered: Vec::new(),
            turn: None,
            waiting: BTreeMap::new(),
            resting: RestingState::Idle,
            failure: None,
            created_at: at,
            updated_at: at,
            revision: 1,
            order: 0,
            created_order: 0,
            begun_deletion: None,
            deleted_at: None,
        }
    }

    /// The prompt whose turn was cut short on the head, if the agent is known to have it.
    #[must_use]
    pub fn interrupted_prompt_of_head(&self) -> Option<&CutShortPrompt> {
        let cut = self.cut.as_ref().filter(|cut| cut.has_arrived() || cut.counted);
        cut.filter(|cut| cut.upstream_id.as_ref().is_some_and(|id| self.chain.is_head(id)))
    }
}

impl SalvagedRecord {
    /// Returns the chain as a lost part, if it is lost. Without it, the sessions of the conversation are unknown.
    #[must_use]
    pub fn lost_chain(&self) -> Option<&LostPart> {
        self.lost.iter().find(|part| part.is_within("chain"))
    }

    /// Returns the record if the chain is known.
    ///
    /// # Errors
    /// If the chain is lost.
    pub fn into_record(self) -> Result<ConversationRecord, StoreError> {
        match self.lost_chain() {
            Some(part) => Err(StoreError::LostBody(part.clone())),
            None => Ok(self.record),
        }
    }
}

impl CutShortPrompt {
    /// Returns the earlier unsent prompt and this one as one prompt.
    #[must_use]
    pub fn full_prompt(&self) -> PromptContent {
        match &self.before {
            Some(before) => before.followed_by(&self.prompt),
            None => self.prompt.clone(),
        }
    }

    /// Whether the agent is known to have the prompt.
    #[must_use]
    pub fn has_arrived(&self) -> bool {
        self.tool_started || self.arrived.unwrap_or(self.taken)
    }

    /// The conversation has left the session that has the turn: no other one has its prompt.
    pub fn leave_session(&mut self) {
        self.upstream_id = None;
        self.anchor = None;
        self.tool_started = false;
        self.taken = false;
        self.arrived = Some(false);
        self.counted = false;
    }
}

impl PendingTurn {
    /// Returns the idempotency key of the call that started the turn.
    #[must_use]
    pub fn call_key(&self) -> Option<CallKey> {
        let (id, fingerprint) = self.request_id.clone().zip(self.fingerprint.clone())?;
        Some(CallKey { id, fingerprint })
    }
}

impl From<&PendingTurn> for CutShortPrompt {
    fn from(turn: &PendingTurn) -> Self {
        Self {
            prompt: turn.prompt.clone(),
            before: None,
            upstream_id: turn.upstream_id.clone(),
            anchor: turn.anchor.clone(),
            tool_started: turn.phase >= TurnPhase::ToolStarted,
            asks: false,
            taken: turn.taken,
            arrived: None,
            counted: false,
            open_request: None,
            min_fidelity: turn.min_fidelity,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "required by serde")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "required by serde")]
fn is_false(is: &bool) -> bool {
    !is
}

impl ReportedSettings {
    /// Whether nothing was reported.
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Change {
    /// Whether the change is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl RecentCursor {
    /// Returns the conversation at this position.
    pub(super) fn id(self) -> ConversationId {
        let mut id = [0; 16];
        id.copy_from_slice(&self.0[8..]);
        ConversationId::from_bytes(id)
    }

    /// Encodes the cursor as text.
    #[must_use]
    pub fn to_text(&self) -> String {
        hex(&self.0)
    }

    /// Decodes [`RecentCursor::to_text`]. `None` for any other text.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        from_hex(text).and_then(|bytes| bytes.try_into().ok()).map(Self)
    }
}

/// A text that may be a complete conversation id or the beginning of one.
pub(super) enum IdText {
    Whole(ConversationId),
    /// The lowest and the highest id with this prefix.
    Prefix([u8; 16], [u8; 16]),
    Other,
}

impl IdText {
    /// Parses hexadecimal digits, with hyphens where an id's text has them or without any.
    pub(super) fn parse(reference: &ConversationRef) -> Self {
        let text = reference.as_str();
        let digits = text.replace('-', "");
        if !(bridge_protocol::id::MIN_PREFIX_CHARS..=32).contains(&digits.len()) {
            return Self::Other;
        }
        let padded = |fill: &str| Uuid::try_parse(&format!("{digits}{}", fill.repeat(32 - digits.len())));
        let (Ok(lowest), Ok(highest)) = (padded("0"), padded("f")) else {
            return Self::Other;
        };
        let hyphenated = lowest.hyphenated().to_string();
        if text.contains('-') && !hyphenated.starts_with(&text.to_ascii_lowercase()) {
            return Self::Other;
        }
        if digits.len() == 32 {
            return Self::Whole(ConversationId::from_bytes(lowest.into_bytes()));
        }
        Self::Prefix(lowest.into_bytes(), highest.into_bytes())
    }
}

#[cfg(test)]
mod tests;
