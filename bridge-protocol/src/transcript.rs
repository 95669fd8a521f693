//! Transcripts: the agents' own files, whichever program made them, and the moves of whole folders.

use jiff::Timestamp;

use crate::conversation::PlannedMove;
use crate::declare::objects;
use crate::id::{AgentName, ConversationId, Cursor, UpstreamId};

objects! {
    /// A transcript on disk.
    Transcript {
        /// The agent whose transcript folder contains it.
        agent: AgentName,
        /// The session. Several files can belong to one session: copies in other folders.
        upstream_id: UpstreamId,
        /// The folder that the agent worked in; empty if the transcript does not say.
        cwd: String,
        /// The title that the user gave, else the one that the agent made, else the first line that the user wrote;
        /// empty if there is none. At most 200 characters.
        title: String,
        /// The size of the file in bytes.
        bytes: u64,
        /// The number of turns, if known without reading the whole file: while the daemon caches what it read of the
        /// file for another call. Its absence means nothing about the transcript.
        turns: Option<u64> = default,
        /// The time of the last record; if it has none, of the file's last change.
        updated_at: Timestamp as time,
        /// The conversation that has or had the session; of several, the one whose head it is. Absent if none.
        conversation_id: Option<ConversationId> = default,
        /// The session that it was forked from; absent if the transcript does not say.
        forked_from: Option<UpstreamId> = default,
        /// The path of the file.
        path: String,
    }

    /// The answer of `transcript/list`: one page.
    TranscriptPage {
        /// The transcripts, newest first.
        transcripts: Vec<Transcript>,
        /// The cursor of the next page; absent on the last page.
        next_cursor: Option<Cursor> = default,
        /// Files and folders that could not be read, so that the list lacks their transcripts; only some if there are
        /// many. Absent when there are none.
        unreadable: Vec<String> = default,
        /// Transcript folders whose changes cannot be watched. Lists are still correct, but slower; changes by other
        /// programs cause no events. Absent when there are none.
        unwatched: Vec<Unwatched> = default,
    }

    /// A folder whose changes cannot be watched.
    Unwatched {
        /// The folder.
        path: String,
        /// Why it cannot be watched.
        problem: String,
    }

    /// The answer of `transcript/move` and of `transcript/undo`.
    #[derive(Default)]
    TreeMoveAnswer {
        /// The files to move, and where to.
        plan: Vec<PlannedMove>,
        /// How many files were moved; 0 for a dry run.
        moved: u64,
        /// The id for `transcript/undo`; absent if nothing was moved, and after an undo.
        undo_id: Option<String> = default,
        /// The files that are not moved, each with the reason; absent if there are none.
        left_out: Vec<String> = default,
        /// The sessions whose transcripts are missing but have kept copies: a copy is restored to the new folder when
        /// it is needed, for example by the next prompt. Absent when there are none.
        kept: Vec<UpstreamId> = default,
    }

    /// A folder move that can be undone.
    TreeMove {
        /// The id for `transcript/undo`.
        undo_id: String,
        /// The old folder, as the call named it.
        from: String,
        /// The new folder.
        to: String,
        /// When it was moved.
        at: Timestamp as time,
        /// Until when it can be undone.
        until: Timestamp as time,
        /// How many files were moved.
        moved: u64,
        /// How many conversations were moved.
        conversations: u64,
    }

    /// The answer of `transcript/moves`.
    #[derive(Default)]
    TreeMoveList {
        /// The moves, newest first.
        moves: Vec<TreeMove>,
    }
}
