//! `transcript/…` and `checkpoint/…`: the agents' transcripts, and places in them.

use super::methods;
use crate::check::CheckAnswer;
use crate::history::CheckpointAnswer;
use crate::id::{AgentName, CheckpointId, ConversationRef, Cursor, UpstreamId};
use crate::keep::{ForgetAnswer, KeepAnswer, RestoreAnswer};
use crate::transcript::{TranscriptPage, TreeMoveAnswer, TreeMoveList};

methods! {
    trait HandleTranscripts;

    /// Lists the transcripts that the agents keep on this machine, whichever program made them, newest first. Covers Claude
    /// Code, Codex, Qwen Code and `loopback`. The first page shows the files as they are now; later pages show the same moment.
    "transcript/list" => ListTranscripts() -> TranscriptPage,
    [NotFound, InvalidCwd, Unsupported, StoreFailed] {
        /// Only those of this agent. Default: all agents whose transcripts can be listed.
        agent: Option<AgentName>,
        /// Only those of this absolute folder. Default: any folder.
        cwd: Option<String>,
        /// Words, each of which must be in the title, the folder, the path or the id, in any case. Default: all.
        query: Option<String>,
        /// The `nextCursor` of the previous page. Default: the first page.
        cursor: Option<Cursor>,
        /// The most entries to return, up to 500. Default: 50.
        limit: Option<u32>,
    }

    /// Checks a transcript, or that of a conversation's head, for damage, and says what the damage means for a resume. Never changes the transcript itself. If
    /// the transcript is missing, its kept copy is checked; a repair restores that copy first.
    ///
    /// With `repair`, writes a sound copy under a new id: lines that are not records are left out, records whose parents are
    /// missing are attached to the record before them, and tool calls without results get the result that the agent itself
    /// would fill in. The answer names the copy as `repaired` and, as `fidelity`, how much of the session it has; there is no
    /// copy where nothing needs repair. A conversation whose head is repaired continues with the copy: its session is closed
    /// and the copy joins the chain as `rebuilt`; during a turn or an open question that is `busy`. A session in the past of a
    /// conversation is refused with `conflict`. The copy of a session that no conversation has belongs to none until it is
    /// adopted.
    "transcript/check" => Check(session, once) -> CheckAnswer, [] {
        /// Whether to write a repaired copy. Default: false.
        repair: bool = default,
    }

    /// Copies the transcripts of a conversation's sessions, or of one session, with their side files into the daemon's data
    /// folder, as far as they are not copied yet, and returns the size of each copy. If no
    /// conversation and no session is named, nothing is copied, and the size of all copies together is returned. Works even where `[keep]` is disabled.
    "transcript/keep" => Keep(session, once) -> KeepAnswer, [] {}

    /// Restores the kept copies of a conversation's sessions, or of one session, to where the agent looks for them. Existing
    /// files are never replaced; a transcript that does not contain its kept copy is a conflict. While the session is open, its
    /// missing transcript is not restored; that is `busy`.
    "transcript/restore" => Restore(session, once) -> RestoreAnswer, [] {}

    /// Deletes the kept copies of a session that no conversation has, as `transcript/keep` lists them in `unclaimed`. The
    /// agent's own transcript stays. The copies of a conversation's session are deleted with the conversation, by
    /// `conversation/delete` with `transcripts`; here they are a conflict.
    "transcript/forget" => Forget(once) -> ForgetAnswer,
    [NotFound, Ambiguous, TranscriptDamaged] {
        /// The session, by the agent's own id.
        upstream_id: UpstreamId,
        /// The agent of the session. Needed where copies of several agents' sessions with this id are kept.
        agent: Option<AgentName>,
    }

    /// Follows a project folder that was renamed: everything that ran in the old folder or below it now runs in the new
    /// one, which has to exist. Covers conversations and transcripts that no conversation has, with their side files.
    /// Files that differ are never replaced. Moves all or nothing, also when the daemon is killed meanwhile.
    "transcript/move" => MoveTree(once) -> TreeMoveAnswer,
    [Busy, InvalidCwd] {
        /// The folder's old absolute path.
        from: String,
        /// The folder's new absolute path, which exists.
        to: String,
        /// Whether to return the plan and change nothing. Default: false.
        dry_run: bool = default,
    }

    /// Undoes a folder's move, for 30 days. What was said since stays.
    "transcript/undo" => UndoTree(once) -> TreeMoveAnswer,
    [NotFound, Busy, InvalidCwd] {
        /// The move: its `undoId`, as its answer and `transcript/moves` report it.
        undo_id: String,
    }

    /// Lists the folder moves that were not undone, for as long as an undo is possible. Whether one can be undone is known
    /// when that is tried: its files may have been moved again since.
    "transcript/moves" => TreeMoves() -> TreeMoveList, [StoreFailed] {}

    /// Returns a checkpoint and the messages of its turn.
    "checkpoint/get" => GetCheckpoint() -> CheckpointAnswer,
    [NotFound, Ambiguous, CheckpointNotFound, Unsupported, TranscriptDamaged, StoreFailed] {
        /// The checkpoint. With `conversationId` also a turn of that conversation's current history as a user names it: `3` (the
        /// third), `-1` (the last), or the id of a message of it.
        checkpoint_id: CheckpointId,
        /// The conversation whose lineage has to contain it. Default: any.
        conversation_id: Option<ConversationRef>,
    }
}
