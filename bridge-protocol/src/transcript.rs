//! The agents' own transcripts, as they are listed: whoever made them.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conversation::PlannedMove;
use crate::id::{AgentName, ConversationId, Cursor, UpstreamId};

/// A transcript on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Transcript {
    /// The agent under whose folder it is.
    pub agent: AgentName,
    /// The session that it is of. Several files may be of one session: copies in other folders.
    pub upstream_id: UpstreamId,
    /// The folder that the agent worked in; empty when the transcript does not say.
    pub cwd: String,
    /// What people called it, else what the agent made of it, else the first line that a person said; empty when there
    /// is none. 200 characters at most.
    pub title: String,
    /// The size of the file, in bytes.
    pub bytes: u64,
    /// How many turns it holds, where that is known without reading the whole file: while the daemon keeps what it read of
    /// it for another call. So it comes and goes, and that there is none says nothing of the transcript.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<u64>,
    /// The time of its last record, else that of the file's last change.
    #[serde(serialize_with = "crate::time::write")]
    pub updated_at: Timestamp,
    /// The conversation that holds or held it; of several the one whose head it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<ConversationId>,
    /// The session that it was forked from, where it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<UpstreamId>,
    /// Where it is.
    pub path: String,
}

/// The answer of `transcript/list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TranscriptPage {
    /// Newest first.
    pub transcripts: Vec<Transcript>,
    /// Where the next page begins; none at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<Cursor>,
    /// Files and folders that could not be read, so that what is in them is missing from the list; some of them when
    /// there are many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
    /// Folders of transcripts in which changes cannot be watched. Lists are right all the same, only slower; of what other
    /// programs write there no event tells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unwatched: Vec<Unwatched>,
}

/// A folder in which changes cannot be watched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Unwatched {
    /// The folder.
    pub path: String,
    /// Why not.
    pub problem: String,
}

/// The answer of `transcript/move` and of `transcript/undo`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TreeMoveAnswer {
    /// What goes where.
    pub plan: Vec<PlannedMove>,
    /// How many files were moved; 0 when only the plan was asked for.
    pub moved: u64,
    /// What `transcript/undo` takes; none when nothing was moved, and of an undo.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo_id: Option<String>,
    /// What is not taken along, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// The sessions that have no transcript any more and of which a copy is kept: it is put back in the new folder as soon as it is
    /// needed, as by the next prompt. Absent when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<UpstreamId>,
}

/// A move of a folder that can be taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TreeMove {
    /// What `transcript/undo` takes.
    pub undo_id: String,
    /// The folder that it was, as it was named.
    pub from: String,
    /// The folder that it went to.
    pub to: String,
    /// When that was done.
    #[serde(serialize_with = "crate::time::write")]
    pub at: Timestamp,
    /// Until when it can be taken back.
    #[serde(serialize_with = "crate::time::write")]
    pub until: Timestamp,
    /// How many files were moved.
    pub moved: u64,
    /// How many conversations went along.
    pub conversations: u64,
}

/// The answer of `transcript/moves`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TreeMoveList {
    /// Newest first.
    pub moves: Vec<TreeMove>,
}
