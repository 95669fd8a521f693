//! Kept copies: the daemon's own copies of transcripts and side files, kept even if the agent deletes its files.

use jiff::Timestamp;

use crate::declare::objects;
use crate::{AgentName, UpstreamId};

objects! {
    /// A kept copy of one file.
    KeptFile {
        /// The path, in the daemon's data folder.
        path: String,
        /// The disk space that it uses, in bytes.
        bytes: u64,
    }

    /// The totals of all kept copies.
    #[derive(Copy, Default)]
    KeepTotal {
        /// The number of sessions with kept copies.
        sessions: u64,
        /// The number of kept files.
        files: u64,
        /// The disk space that they use, in bytes. A copy that is still a link to the agent's own file counts as 0.
        bytes: u64,
        /// The number of sessions that no conversation has, because it was deleted or there never was one; absent when 0.
        unclaimed: u64 = default,
    }

    /// A session with kept copies that no conversation has: its conversation was deleted, or it never had one.
    UnclaimedSession {
        /// The session, by the agent's own id.
        upstream_id: UpstreamId,
        /// The agent of the session; absent if no configured agent has that transcript folder any more.
        agent: Option<AgentName> = default,
        /// The title of the deleted conversation that had the session; absent if it had none.
        title: String = default,
        /// When the session was last written to.
        changed_at: Timestamp as time,
        /// The disk space that its copies use, in bytes. A copy that is still a link to the agent's own file counts as 0.
        bytes: u64,
    }

    /// The answer of `transcript/keep`.
    #[derive(Default)]
    KeepAnswer {
        /// The kept copies of the named conversation or session.
        kept: Vec<KeptFile>,
        /// The totals of all kept copies; absent if a conversation or session was named.
        total: Option<KeepTotal> = default,
        /// The sessions that no conversation has, newest first, at most 1,000; absent if there are none, or if a
        /// conversation or session was named. `transcript/restore` restores one, `transcript/forget` deletes its
        /// copies.
        unclaimed: Vec<UnclaimedSession> = default,
        /// Whether transcripts are copied automatically.
        #[serde(default)]
        enabled: bool,
    }

    /// The answer of `transcript/restore`.
    #[derive(Default)]
    RestoreAnswer {
        /// The paths of the restored files; empty if nothing was missing.
        restored: Vec<String>,
        /// How many acknowledged turns of the session are newer than the restored copy, as far as known; absent when 0.
        missing_turns: u64 = default,
    }

    /// The answer of `transcript/forget`.
    #[derive(Copy, Default)]
    ForgetAnswer {
        /// The disk space of the deleted copies, in bytes.
        bytes: u64,
        /// Whether the copies are still needed, because the histories of other kept sessions begin in them. They are then
        /// deleted with the last of those sessions. Absent when false.
        needed: bool = default,
    }
}
