//! Links: the chain of a conversation, its lineage, and how its sessions are reopened.

use std::cmp::Ordering;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{AgentName, CheckpointId, UpstreamId};

/// Why a link joined the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum LinkReason {
    /// The agent created a new session.
    Created,
    /// A branch from the head or from a checkpoint.
    Forked,
    /// A branch in which a prompt was replaced.
    Edited,
    /// The same session in another folder.
    Moved,
    /// The agent could not continue under the previous id.
    Rolled,
    /// A transcript that another program made.
    Adopted,
    /// Restored from a kept copy.
    Restored,
    /// An exact copy of the transcript under a new id.
    Copied,
    /// A repaired copy of the transcript under a new id.
    Rebuilt,
    /// An earlier head that an undo brought back.
    Undone,
    /// A value that this version of the crate does not know.
    #[serde(other)]
    Unknown,
}

/// How a link's transcript relates to the session that it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Relation {
    /// The transcript itself contains the earlier history.
    Carries,
    /// The earlier history is that of the source session, up to the checkpoint.
    Follows,
    /// There is no earlier history.
    Fresh,
    /// A value that this version of the crate does not know.
    #[serde(other)]
    Unknown,
}

/// Why a conversation rolled to another upstream id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum RollCause {
    /// After a usage limit, the session could not be continued.
    Limit,
    /// The agent no longer knows the id, although the transcript exists.
    Forgotten,
    /// The transcript is missing.
    Lost,
    /// The transcript cannot be read.
    Damaged,
    /// The user entered the agent's own `/clear`.
    Cleared,
    /// Another program continued the session.
    Foreign,
    /// The agent died, and refused the id afterwards.
    AgentDied,
    /// Any other cause, or a value that this version of the crate does not know. The daemon's log has the details.
    #[serde(other)]
    Other,
}

/// How much of the history the agent has. Default for a caller's minimum: `text`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Fidelity {
    /// None of it: a new session. Happens only on request.
    None,
    /// A summary as text.
    #[default]
    Text,
    /// An older state: the last turns are missing.
    Partial,
    /// All of it.
    Full,
    /// A value that this version of the crate does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

impl Fidelity {
    /// The order of the values; an unknown one guarantees nothing and ranks lowest.
    fn rank(self) -> u8 {
        match self {
            Self::Unknown => 0,
            Self::None => 1,
            Self::Text => 2,
            Self::Partial => 3,
            Self::Full => 4,
        }
    }
}

impl PartialOrd for Fidelity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Fidelity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

/// A link: one upstream session of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Link {
    /// The session, by the agent's own id.
    pub upstream_id: UpstreamId,
    /// The agent of the session.
    pub agent: AgentName,
    /// The folder that it runs in, as an absolute path.
    pub cwd: String,
    /// Why it joined the chain.
    pub reason: LinkReason,
    /// How it relates to `fromUpstreamId`.
    pub relation: Relation,
    /// The session that it came from; absent if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_upstream_id: Option<UpstreamId>,
    /// The checkpoint of that session at which it begins; absent if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_checkpoint_id: Option<CheckpointId>,
    /// The number of turns acknowledged on it so far.
    pub turns: u64,
    /// The number of turns that its transcript contained at the start, from the session that it is a branch or copy of;
    /// absent when 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub carried_turns: u64,
    /// Whether the agent ever accepted a prompt on it, so that a transcript is expected.
    pub written: bool,
    /// When it joined the chain.
    #[serde(serialize_with = "crate::time::write")]
    pub at: Timestamp,
    /// The cause of a roll; absent for other reasons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<RollCause>,
}

/// The reason of a lineage entry: a reason of a link, or one that adds no link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum LineageReason {
    /// See [`LinkReason`].
    Created,
    /// See [`LinkReason`].
    Forked,
    /// See [`LinkReason`].
    Edited,
    /// See [`LinkReason`].
    Moved,
    /// See [`LinkReason`].
    Rolled,
    /// See [`LinkReason`].
    Adopted,
    /// See [`LinkReason`].
    Restored,
    /// See [`LinkReason`].
    Copied,
    /// See [`LinkReason`].
    Rebuilt,
    /// See [`LinkReason`].
    Undone,
    /// The user reset the conversation: its chain was cleared.
    Reset,
    /// The user deleted the conversation.
    Deleted,
    /// A branch was abandoned: its first prompt was never accepted.
    Abandoned,
    /// The head stayed the same; its folder, agent or state changed.
    Updated,
    /// A value that this version of the crate does not know.
    #[serde(other)]
    Unknown,
}

impl From<LinkReason> for LineageReason {
    fn from(reason: LinkReason) -> Self {
        match reason {
            LinkReason::Created => Self::Created,
            LinkReason::Forked => Self::Forked,
            LinkReason::Edited => Self::Edited,
            LinkReason::Moved => Self::Moved,
            LinkReason::Rolled => Self::Rolled,
            LinkReason::Adopted => Self::Adopted,
            LinkReason::Restored => Self::Restored,
            LinkReason::Copied => Self::Copied,
            LinkReason::Rebuilt => Self::Rebuilt,
            LinkReason::Undone => Self::Undone,
            LinkReason::Unknown => Self::Unknown,
        }
    }
}

/// A lineage entry: one change of a conversation's chain. Entries are never deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LineageEntry {
    /// The number of the entry within the conversation: 1, 2, 3, without gaps.
    pub seq: u64,
    /// The upstream id that the entry is about; absent (in Rust empty) if it is about none: `reset` or `deleted` of a
    /// conversation that never had a session.
    #[serde(
        default,
        deserialize_with = "UpstreamId::or_none",
        skip_serializing_if = "UpstreamId::is_empty"
    )]
    pub upstream_id: UpstreamId,
    /// The agent of the session.
    pub agent: AgentName,
    /// The folder that it runs in, as an absolute path.
    pub cwd: String,
    /// What happened.
    pub reason: LineageReason,
    /// How the link relates to the session that it came from.
    pub relation: Relation,
    /// The session that it came from; absent if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_upstream_id: Option<UpstreamId>,
    /// The checkpoint of that session at which it begins; absent if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_checkpoint_id: Option<CheckpointId>,
    /// The number of turns acknowledged on the link when the entry was written.
    pub turns: u64,
    /// See [`Link`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub carried_turns: u64,
    /// Whether the agent had accepted a prompt on it by then.
    pub written: bool,
    /// When it happened.
    #[serde(serialize_with = "crate::time::write")]
    pub at: Timestamp,
    /// The cause of a roll; absent for other reasons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<RollCause>,
    /// How much of the history the session had.
    pub fidelity: Fidelity,
    /// Whether the upstream id is in the chain now.
    pub in_chain: bool,
    /// The failed attempts to reopen the session before this one, and why they failed; absent when there are none. Long
    /// reasons are cut.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
}

/// How a session was reopened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Via {
    /// It was already open in a running agent.
    Live,
    /// With `session/resume`.
    Resume,
    /// With `session/load`.
    Load,
    /// With `session/resume` or `session/load` in a new process.
    FreshProcess,
    /// After its transcript was found in another folder and brought back.
    Located,
    /// After its kept copy was restored.
    Archive,
    /// As an exact copy under a new id.
    Copied,
    /// As a repaired copy under a new id.
    Rebuilt,
    /// As the nearest ancestor that could be resumed.
    OlderLink,
    /// As a new session that received the history as text.
    Text,
    /// As a new session.
    Fresh,
    /// A value that this version of the crate does not know.
    #[serde(other)]
    Unknown,
}

/// One attempt to reopen a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// The session that was tried; absent if the attempt had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_id: Option<UpstreamId>,
    /// How it was tried.
    pub via: Via,
    /// Why it failed; absent if it worked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How a conversation was reopened, and what was lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resumed {
    /// The session that is open now.
    pub upstream_id: UpstreamId,
    /// How it was opened.
    pub via: Via,
    /// How much of the history the agent has.
    pub fidelity: Fidelity,
    /// How many turns the agent lacks. 0 if the fidelity is `full`; also 0 if it is `partial` and the turns cannot be
    /// counted, as in a damaged Codex transcript.
    pub missing_turns: u64,
    /// All attempts, in order; the last one worked.
    pub attempts: Vec<Attempt>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
pub(crate) fn is_zero(count: &u64) -> bool {
    *count == 0
}
