//! Transcripts: the agents' own files, whichever program made them, and the moves of whole folders.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conversation::PlannedMove;
use crate::id::{AgentName, ConversationId, Cursor, UpstreamId};

/// A transcript on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Transcript {
    /// The agent whose transcript folder contains it.
    pub agent: AgentName,
    /// The session. Several files can belong to one session: copies in other folders.
    pub upstream_id: UpstreamId,
    /// The folder that the agent worked in; empty if the transcript does not say.
    pub cwd: String,
    /// The title that the user gave, else the one that the agent made, else the first line that the user wrote; empty if
    /// there is none. At most 200 characters.
    pub title: String,
    /// The size of the file in bytes.
    pub bytes: u64,
    /// The number of turns, if known without reading the whole file: while the daemon caches what it read of the file for
    /// another call. Its absence means nothing about the transcript.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<u64>,
    /// The time of the last record; if it has none, of the file's last change.
    #[serde(serialize_with = "crate::time::write")]
    pub updated_at: Timestamp,
    /// The conversation that has or had the session; of several, the one whose head it is. Absent if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<ConversationId>,
    /// The session that it was forked from; absent if the transcript does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<UpstreamId>,
    /// The path of the file.
    pub path: String,
}

/// The answer of `transcript/list`: one page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TranscriptPage {
    /// The transcripts, newest first.
    pub transcripts: Vec<Transcript>,
    /// The cursor of the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<Cursor>,
    /// Files and folders that could not be read, so that the list lacks their transcripts; only some if there are many.
    /// Absent when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
    /// Transcript folders whose changes cannot be watched. Lists are still correct, but slower; changes by other programs
    /// cause no events. Absent when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unwatched: Vec<Unwatched>,
}

/// A folder whose changes cannot be watched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Unwatched {
    /// The folder.
    pub path: String,
    /// Why it cannot be watched.
    pub problem: String,
}

/// The answer of `transcript/move` and of `transcript/undo`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TreeMoveAnswer {
    /// The files to move, and where to.
    pub plan: Vec<PlannedMove>,
    /// How many files were moved; 0 for a dry run.
    pub moved: u64,
    /// The id for `transcript/undo`; absent if nothing was moved, and after an undo.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo_id: Option<String>,
    /// The files that are not moved, each with the reason; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// The sessions whose transcripts are missing but have kept copies: a copy is restored to the new folder when it is
    /// needed, for example by the next prompt. Absent when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<UpstreamId>,
}

/// A folder move that can be undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TreeMove {
    /// The id for `transcript/undo`.
    pub undo_id: String,
    /// The old folder, as the call named it.
    pub from: String,
    /// The new folder.
    pub to: String,
    /// When it was moved.
    #[serde(serialize_with = "crate::time::write")]
    pub at: Timestamp,
    /// Until when it can be undone.
    #[serde(serialize_with = "crate::time::write")]
    pub until: Timestamp,
    /// How many files were moved.
    pub moved: u64,
    /// How many conversations were moved.
    pub conversations: u64,
}

/// The answer of `transcript/moves`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TreeMoveList {
    /// The moves, newest first.
    pub moves: Vec<TreeMove>,
}
