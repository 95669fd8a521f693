//! Our own copies of transcripts, which outlive the agents' own.

use serde::{Deserialize, Serialize};

/// One copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct KeptFile {
    /// Where it is, in the daemon's data folder.
    pub path: String,
    /// What it takes on the disk, in bytes.
    pub bytes: u64,
}

/// What all copies are together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct KeepTotal {
    /// How many sessions are kept.
    pub sessions: u64,
    /// How many files that are.
    pub files: u64,
    /// What they take on the disk, in bytes. A copy that is still a link to the agent's own file takes nothing.
    pub bytes: u64,
}

/// The answer of `transcript/keep`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct KeepAnswer {
    /// The copies of what was named.
    pub kept: Vec<KeptFile>,
    /// What all copies are together, where nothing was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<KeepTotal>,
    /// Whether transcripts are kept without being asked for.
    #[serde(default)]
    pub enabled: bool,
}

/// The answer of `transcript/restore`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RestoreAnswer {
    /// The files that were put back; none where all was there.
    pub restored: Vec<String>,
    /// How many turns of those that were acknowledged on the session are later than the copy that was put back, as far as that
    /// is known.
    #[serde(default, skip_serializing_if = "crate::link::is_zero")]
    pub missing_turns: u64,
}
