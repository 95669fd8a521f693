//! What is wrong with a transcript, as `transcript/check` tells it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::UpstreamId;
use crate::link::Fidelity;

/// What is wrong with a place in a transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum FindingKind {
    /// There is no record of a conversation in it.
    NothingToResume,
    /// The last line breaks off within a record.
    TornLine,
    /// A line that is no record.
    GarbageLine,
    /// A line too long to be read, or with too much in it to be read whole.
    OversizedLine,
    /// A record names a parent that is not there.
    BrokenParent,
    /// The history begins behind records that it leaves out.
    CutOff,
    /// The last message of a branch that is newer than the one with which a resume goes on, and not damaged.
    NewerBranch,
    /// A tool was called, and its result is not there.
    ToolUseWithoutResult,
    /// Two records with one uuid.
    DuplicateUuid,
    /// Records that say they are of another session.
    ForeignSessionId,
    /// A file that a record names and that is not there: a long result of a tool, or what a subagent said.
    MissingSideFile,
    /// The transcript of another session, in which this one begins, is not there or not whole.
    MissingSource,
    /// A tool's result, and the tool was never called.
    ResultWithoutToolUse,
    /// Records that are numbered, and not in order, or twice.
    BrokenOrder,
    /// It lies where its agent puts what is not to be used any more.
    Archived,
    /// Another copy of it has more in it, or copies lie in several folders, so that the agent does not take the best one.
    OtherCopy,
    /// Records of a kind, or with a content of a form, that this version of the bridge does not know, as a newer agent writes
    /// them: no damage.
    UnknownRecord,
    /// A word that this version of the crate does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

impl FindingKind {
    /// Whether something is wrong; else it is only good to know.
    ///
    /// A kind that a newer bridge tells and this crate does not know counts as something wrong: nearly all are, and it is
    /// better to look at what the detail says once too often than to take a damaged transcript for whole.
    #[must_use]
    pub fn is_damage(self) -> bool {
        self != Self::UnknownRecord
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NothingToResume => "nothing to resume",
            Self::TornLine => "torn line",
            Self::GarbageLine => "garbage line",
            Self::OversizedLine => "oversized line",
            Self::BrokenParent => "broken parent link",
            Self::CutOff => "history cut off",
            Self::NewerBranch => "newer branch left aside",
            Self::ToolUseWithoutResult => "tool use without result",
            Self::DuplicateUuid => "duplicate uuid",
            Self::ForeignSessionId => "foreign session id",
            Self::MissingSideFile => "missing side file",
            Self::MissingSource => "missing source",
            Self::ResultWithoutToolUse => "result without tool use",
            Self::BrokenOrder => "broken order",
            Self::Archived => "archived",
            Self::OtherCopy => "another copy",
            Self::UnknownRecord => "unknown record",
            Self::Unknown => "something unknown",
        })
    }
}

/// One thing that is wrong with a transcript.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The line, counted from 1; 0 where it is the file as a whole.
    pub line: u64,
    /// What it is.
    pub kind: FindingKind,
    /// What it does to a resume, in words.
    pub detail: String,
}

/// The answer of `transcript/check`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckAnswer {
    /// What was found, in the order of the lines; in a transcript that is whole nothing, or nothing that is damage.
    pub findings: Vec<Finding>,
    /// How many more there are than are told, where there are very many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u64,
    /// The session that a repaired copy is, where one was asked for and something was found that it does not have, or results
    /// were cut in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repaired: Option<UpstreamId>,
    /// What was changed in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repairs: Option<Repairs>,
    /// How much the copy has of what the session had: `full` when nothing is missing, else `partial`. A later resume of the copy
    /// is measured against the copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fidelity: Option<Fidelity>,
    /// What is still found in it, by its own lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<Finding>,
    /// The sessions that were checked in our own kept copies, since their agent's files of them are gone; absent when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<UpstreamId>,
}

/// What a repaired copy has other than its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Repairs {
    /// Lines that are no records and were left out.
    #[serde(default)]
    pub left_out: u64,
    /// Records that were joined to another one, since their parents are not there.
    #[serde(default)]
    pub joined: u64,
    /// Results of tools that were filled in, as the agent does it.
    #[serde(default)]
    pub filled_in: u64,
    /// Texts of results that were cut, since they are longer than was asked for.
    #[serde(default)]
    pub cut_outputs: u64,
    /// How many bytes of them were left out.
    #[serde(default)]
    pub cut_bytes: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
