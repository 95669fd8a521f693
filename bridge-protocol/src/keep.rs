//! Kept copies: the daemon's own copies of transcripts and side files, kept even if the agent deletes its files.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{AgentName, UpstreamId};

/// A kept copy of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeptFile {
    /// The path, in the daemon's data folder.
    pub path: String,
    /// The disk space that it uses, in bytes.
    pub bytes: u64,
}

/// The totals of all kept copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeepTotal {
    /// The number of sessions with kept copies.
    pub sessions: u64,
    /// The number of kept files.
    pub files: u64,
    /// The disk space that they use, in bytes. A copy that is still a link to the agent's own file counts as 0.
    pub bytes: u64,
    /// The number of sessions that no conversation has, because it was deleted or there never was one; absent when 0.
    #[serde(default, skip_serializing_if = "crate::link::is_zero")]
    pub unclaimed: u64,
}

/// A session with kept copies that no conversation has: its conversation was deleted, or it never had one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnclaimedSession {
    /// The session, by the agent's own id.
    pub upstream_id: UpstreamId,
    /// The agent of the session; absent if no configured agent has that transcript folder any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// The title of the deleted conversation that had the session; absent if it had none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// When the session was last written to.
    #[serde(serialize_with = "crate::time::write")]
    pub changed_at: Timestamp,
    /// The disk space that its copies use, in bytes. A copy that is still a link to the agent's own file counts as 0.
    pub bytes: u64,
}

/// The answer of `transcript/keep`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeepAnswer {
    /// The kept copies of the named conversation or session.
    pub kept: Vec<KeptFile>,
    /// The totals of all kept copies; absent if a conversation or session was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<KeepTotal>,
    /// The sessions that no conversation has, newest first, at most 1,000; absent if there are none, or if a conversation
    /// or session was named. `transcript/restore` restores one, `transcript/forget` deletes its copies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unclaimed: Vec<UnclaimedSession>,
    /// Whether transcripts are copied automatically.
    #[serde(default)]
    pub enabled: bool,
}

/// The answer of `transcript/restore`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreAnswer {
    /// The paths of the restored files; empty if nothing was missing.
    pub restored: Vec<String>,
    /// How many acknowledged turns of the session are newer than the restored copy, as far as known; absent when 0.
    #[serde(default, skip_serializing_if = "crate::link::is_zero")]
    pub missing_turns: u64,
}

/// The answer of `transcript/forget`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForgetAnswer {
    /// The disk space of the deleted copies, in bytes.
    pub bytes: u64,
    /// Whether the copies are still needed, because the histories of other kept sessions begin in them. They are then
    /// deleted with the last of those sessions. Absent when false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needed: bool,
}
