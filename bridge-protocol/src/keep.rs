//! Our own copies of transcripts, which outlive the agents' own.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{AgentName, UpstreamId};

/// One copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeptFile {
    /// Where it is, in the daemon's data folder.
    pub path: String,
    /// What it takes on the disk, in bytes.
    pub bytes: u64,
}

/// What all copies are together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeepTotal {
    /// How many sessions are kept.
    pub sessions: u64,
    /// How many files that are.
    pub files: u64,
    /// What they take on the disk, in bytes. A copy that is still a link to the agent's own file takes nothing.
    pub bytes: u64,
    /// How many of the sessions no conversation has any more, or none ever had.
    #[serde(default, skip_serializing_if = "crate::link::is_zero")]
    pub unclaimed: u64,
}

/// A session of which copies are kept, and which no conversation has: that was deleted, or there never was one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnclaimedSession {
    /// The agent's own id of it.
    pub upstream_id: UpstreamId,
    /// The agent whose it is; none where no agent is configured any more that has its transcripts there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// What the deleted conversation was called that had it, where it had a title.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// When it was last written to.
    #[serde(serialize_with = "crate::time::write")]
    pub changed_at: Timestamp,
    /// What its copies take on the disk, in bytes. A copy that is still a link to the agent's own file takes nothing.
    pub bytes: u64,
}

/// The answer of `transcript/keep`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeepAnswer {
    /// The copies of what was named.
    pub kept: Vec<KeptFile>,
    /// What all copies are together, where nothing was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<KeepTotal>,
    /// The sessions that no conversation has, the newest first and 1000 at most, where nothing was named. `transcript/restore`
    /// puts one back, `transcript/forget` deletes its copies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unclaimed: Vec<UnclaimedSession>,
    /// Whether transcripts are kept without being asked for.
    #[serde(default)]
    pub enabled: bool,
}

/// The answer of `transcript/restore`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreAnswer {
    /// The files that were put back; none where all was there.
    pub restored: Vec<String>,
    /// How many turns of those that were acknowledged on the session are later than the copy that was put back, as far as that
    /// is known.
    #[serde(default, skip_serializing_if = "crate::link::is_zero")]
    pub missing_turns: u64,
}

/// The answer of `transcript/forget`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForgetAnswer {
    /// What the copies took on the disk that are gone, in bytes.
    pub bytes: u64,
    /// Whether they stay for now: the histories of other kept sessions begin in them, and they go with the last of those.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needed: bool,
}
