//! The chain of a conversation and its lineage, as they are told.

use std::cmp::Ordering;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{AgentName, CheckpointId, UpstreamId};

/// Why an upstream id joined the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum LinkReason {
    /// The agent opened a session for us.
    Created,
    /// A branch at the head or at a checkpoint.
    Forked,
    /// A branch in which a prompt was replaced.
    Edited,
    /// The same session in another folder.
    Moved,
    /// The agent would not go on under the old id.
    Rolled,
    /// A transcript made elsewhere.
    Adopted,
    /// Brought back from a kept copy.
    Restored,
    /// An exact copy of the transcript under a new id.
    Copied,
    /// A repaired copy of the transcript under a new id.
    Rebuilt,
    /// An earlier head, taken up again by the user.
    Undone,
    /// A word that this version of the crate does not know.
    #[serde(other)]
    Unknown,
}

/// What a link has to do with the one that it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Relation {
    /// Its transcript holds that history itself.
    Carries,
    /// The history before it is the ancestor's, up to the checkpoint.
    Follows,
    /// Nothing came before it.
    Fresh,
    /// A word that this version of the crate does not know.
    #[serde(other)]
    Unknown,
}

/// Why a conversation rolled on to another upstream id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum RollCause {
    /// A usage limit took the session with it.
    Limit,
    /// The agent no longer knows the id, though its transcript is there.
    Forgotten,
    /// The transcript is gone.
    Lost,
    /// The transcript cannot be read.
    Damaged,
    /// The agent's own `/clear`.
    Cleared,
    /// Another program went on in it.
    Foreign,
    /// The agent died and would not take the id again.
    AgentDied,
    /// Anything else, also a word that this version of the crate does not know; the daemon's log says what.
    #[serde(other)]
    Other,
}

/// How much of the history the agent has. The default is the least that a caller accepts unless it says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Fidelity {
    /// None of it: a fresh start, which happens only on request.
    None,
    /// A summary in text.
    #[default]
    Text,
    /// An older state: the last turns are missing.
    Partial,
    /// All of it.
    Full,
    /// A word that this version of the crate does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

impl Fidelity {
    /// More of the history is more; a word that is not known promises nothing.
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

/// One upstream session that a conversation has had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Link {
    /// The agent's own id of the session.
    pub upstream_id: UpstreamId,
    /// The agent that holds it.
    pub agent: AgentName,
    /// The absolute folder in which it runs.
    pub cwd: String,
    /// Why it joined.
    pub reason: LinkReason,
    /// What it has to do with `fromUpstreamId`.
    pub relation: Relation,
    /// Where it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_upstream_id: Option<UpstreamId>,
    /// At which place of that session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_checkpoint_id: Option<CheckpointId>,
    /// Turns acknowledged on it so far.
    pub turns: u64,
    /// Turns that its transcript held when it was made: those of the session that it is a branch or a copy of.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub carried_turns: u64,
    /// Whether the agent was ever seen to take a prompt on it, so that a transcript is expected.
    pub written: bool,
    /// When it joined.
    #[serde(serialize_with = "crate::time::write")]
    pub at: Timestamp,
    /// The cause of a roll.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<RollCause>,
}

/// What one entry of the lineage records: a link's reasons, and those that touch no link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum LineageReason {
    /// As [`LinkReason`] has it.
    Created,
    /// As [`LinkReason`] has it.
    Forked,
    /// As [`LinkReason`] has it.
    Edited,
    /// As [`LinkReason`] has it.
    Moved,
    /// As [`LinkReason`] has it.
    Rolled,
    /// As [`LinkReason`] has it.
    Adopted,
    /// As [`LinkReason`] has it.
    Restored,
    /// As [`LinkReason`] has it.
    Copied,
    /// As [`LinkReason`] has it.
    Rebuilt,
    /// As [`LinkReason`] has it.
    Undone,
    /// The user cleared the chain.
    Reset,
    /// The user deleted the conversation.
    Deleted,
    /// A branch whose first prompt was never accepted.
    Abandoned,
    /// The head stayed; its folder, agent or state changed.
    Updated,
    /// A word that this version of the crate does not know.
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

/// One entry of the log of everything that ever happened to a conversation's chain. The log is never cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LineageEntry {
    /// Counts from 1 within the conversation, without holes.
    pub seq: u64,
    /// The upstream id that it is about; empty, and not on the wire, where it is about none (`reset`, `deleted` of a
    /// conversation that was never opened).
    #[serde(
        default,
        deserialize_with = "UpstreamId::or_none",
        skip_serializing_if = "UpstreamId::is_empty"
    )]
    pub upstream_id: UpstreamId,
    /// The agent that holds it.
    pub agent: AgentName,
    /// The absolute folder in which it runs.
    pub cwd: String,
    /// What happened.
    pub reason: LineageReason,
    /// What the link has to do with the one that it came from.
    pub relation: Relation,
    /// Where it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_upstream_id: Option<UpstreamId>,
    /// At which place of that session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_checkpoint_id: Option<CheckpointId>,
    /// Turns acknowledged on the link when this was written.
    pub turns: u64,
    /// As [`Link`] has it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub carried_turns: u64,
    /// Whether the agent had been seen to take a prompt on it.
    pub written: bool,
    /// When it happened.
    #[serde(serialize_with = "crate::time::write")]
    pub at: Timestamp,
    /// The cause of a roll.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<RollCause>,
    /// How much of the history came along.
    pub fidelity: Fidelity,
    /// Whether the upstream id is in the chain now.
    pub in_chain: bool,
    /// The ways that were tried before this one to bring the session back, and why they did not work. A long reason is cut.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
}

/// How a session was brought back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Via {
    /// It was open in a running agent.
    Live,
    /// `session/resume`.
    Resume,
    /// `session/load`.
    Load,
    /// The same in a new process.
    FreshProcess,
    /// After the transcript was brought back from another folder.
    Located,
    /// After our kept copy was restored.
    Archive,
    /// As an exact copy under a new id.
    Copied,
    /// As a repaired copy under a new id.
    Rebuilt,
    /// As the nearest ancestor that could be resumed.
    OlderLink,
    /// As a new session that was told the history in words.
    Text,
    /// As a new session.
    Fresh,
    /// A word that this version of the crate does not know.
    #[serde(other)]
    Unknown,
}

/// One try to bring a session back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// The session that was tried, where the try had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_id: Option<UpstreamId>,
    /// How.
    pub via: Via,
    /// Why it did not work; absent on the one that did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How a conversation came to be open again, and what was lost on the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resumed {
    /// The session that is open now.
    pub upstream_id: UpstreamId,
    /// How it was opened.
    pub via: Via,
    /// How much of the history the agent has.
    pub fidelity: Fidelity,
    /// How many turns it lacks; 0 when the fidelity is full, and with `partial` where nobody can count them: a damaged rollout
    /// of Codex.
    pub missing_turns: u64,
    /// Everything that was tried, in order; the one that worked is last.
    pub attempts: Vec<Attempt>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
pub(crate) fn is_zero(count: &u64) -> bool {
    *count == 0
}
