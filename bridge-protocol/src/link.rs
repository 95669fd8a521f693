//! Links: the chain of a conversation, its lineage, and how its sessions are reopened.

use std::cmp::Ordering;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::declare::{objects, words};
use crate::id::{AgentName, CheckpointId, UpstreamId};

/// Declares why a link joined the chain. The lineage has the same reasons and more.
macro_rules! reasons {
    ($( $(#[$about:meta])+ $reason:ident, )+) => {
        words! {
            /// Why a link joined the chain.
            LinkReason { $( $(#[$about])+ $reason, )+ }

            /// The reason of a lineage entry: a reason of a link, or one that adds no link.
            LineageReason {
                $(
                    /// See [`LinkReason`].
                    $reason,
                )+
                /// The user reset the conversation: its chain was cleared.
                Reset,
                /// The user deleted the conversation.
                Deleted,
                /// A branch was abandoned: its first prompt was never accepted.
                Abandoned,
                /// The head stayed the same; its folder, agent or state changed. Before a reset, another link left the chain
                /// with these turns.
                Updated,
            }
        }

        impl From<LinkReason> for LineageReason {
            fn from(reason: LinkReason) -> Self {
                match reason {
                    $(LinkReason::$reason => Self::$reason,)+
                    LinkReason::Unknown => Self::Unknown,
                }
            }
        }
    };
}

reasons! {
    /// The agent created a new session.
    Created,
    /// A branch from the head or from a checkpoint.
    Forked,
    /// A branch in which a prompt was replaced.
    Edited,
    /// The same session in another folder.
    Moved,
    /// The agent could not continue under the previous id.
    Rolled,
    /// A transcript that another program made.
    Adopted,
    /// Restored from a kept copy.
    Restored,
    /// An exact copy of the transcript under a new id.
    Copied,
    /// A repaired copy of the transcript under a new id.
    Rebuilt,
    /// An earlier head that an undo brought back.
    Undone,
}

words! {
    /// How a link's transcript relates to the session that it came from.
    Relation {
        /// The transcript itself contains the earlier history.
        Carries,
        /// The earlier history is that of the source session, up to the checkpoint.
        Follows,
        /// There is no earlier history.
        Fresh,
    }
}

/// Why a conversation rolled to another upstream id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum RollCause {
    /// After a usage limit, the session could not be continued.
    Limit,
    /// The agent no longer knows the id, although the transcript exists.
    Forgotten,
    /// The transcript is missing.
    Lost,
    /// The transcript cannot be read.
    Damaged,
    /// The user entered the agent's own `/clear`.
    Cleared,
    /// Another program continued the session.
    Foreign,
    /// The agent died, and refused the id afterwards.
    AgentDied,
    /// Any other cause, or a value that this version of the crate does not know. The daemon's log has the details.
    #[serde(other)]
    Other,
}

words! {
    /// How much of the history the agent has. Default for a caller's minimum: `text`.
    #[derive(Default)]
    Fidelity {
        /// None of it: a new session. Happens only on request.
        None,
        /// The last turns as text.
        #[default]
        Text,
        /// An older state: the last turns are missing.
        Partial,
        /// All of it.
        Full,
    }
}

impl PartialOrd for Fidelity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Fidelity {
    fn cmp(&self, other: &Self) -> Ordering {
        // An unknown value, which is declared last, guarantees nothing and ranks lowest.
        let rank = |fidelity: &Self| (*fidelity != Self::Unknown, *fidelity as u8);
        rank(self).cmp(&rank(other))
    }
}

objects! {
    /// A link: one upstream session of a conversation.
    Link {
        /// The session, by the agent's own id.
        upstream_id: UpstreamId,
        /// The agent of the session.
        agent: AgentName,
        /// The folder that it runs in, as an absolute path.
        cwd: String,
        /// Why it joined the chain.
        reason: LinkReason,
        /// How it relates to `fromUpstreamId`.
        relation: Relation,
        /// The session that it came from; absent if none.
        from_upstream_id: Option<UpstreamId> = default,
        /// The checkpoint of that session at which it begins; absent if none.
        from_checkpoint_id: Option<CheckpointId> = default,
        /// The number of turns acknowledged on it so far.
        turns: u64,
        /// The number of turns that its transcript contained at the start, from the session that it is a branch or copy
        /// of; absent when 0.
        carried_turns: u64 = default,
        /// Whether the agent ever accepted a prompt on it, so that a transcript is expected.
        written: bool,
        /// When it joined the chain.
        at: Timestamp as time,
        /// The cause of a roll; absent for other reasons.
        cause: Option<RollCause> = default,
    }
}

objects! {
    /// A lineage entry: one change of a conversation's chain. Entries are never deleted.
    LineageEntry {
        /// The number of the entry within the conversation: 1, 2, 3, without gaps.
        seq: u64,
        /// The upstream id that the entry is about; absent (in Rust empty) if it is about none: `reset` or `deleted` of a
        /// conversation that never had a session.
        #[serde(deserialize_with = "UpstreamId::or_none")]
        upstream_id: UpstreamId = default,
        /// The agent of the session.
        agent: AgentName,
        /// The folder that it runs in, as an absolute path.
        cwd: String,
        /// What happened.
        reason: LineageReason,
        /// How the link relates to the session that it came from.
        relation: Relation,
        /// The session that it came from; absent if none.
        from_upstream_id: Option<UpstreamId> = default,
        /// The checkpoint of that session at which it begins; absent if none.
        from_checkpoint_id: Option<CheckpointId> = default,
        /// The number of turns acknowledged on the link when the entry was written.
        turns: u64,
        /// See [`Link`].
        carried_turns: u64 = default,
        /// Whether the agent had accepted a prompt on it by then.
        written: bool,
        /// When it happened.
        at: Timestamp as time,
        /// The cause of a roll; absent for other reasons.
        cause: Option<RollCause> = default,
        /// How much of the history the session had.
        fidelity: Fidelity,
        /// Whether the upstream id is in the chain now.
        in_chain: bool,
        /// The failed attempts to reopen the session before this one, and why they failed; absent when there are none.
        /// Long reasons are cut.
        attempts: Vec<Attempt> = default,
    }
}

words! {
    /// How a session was reopened.
    Via {
        /// It was already open in a running agent.
        Live,
        /// With `session/resume`.
        Resume,
        /// With `session/load`.
        Load,
        /// With `session/resume` or `session/load` in a new process.
        FreshProcess,
        /// After its transcript was found in another folder and brought back.
        Located,
        /// After its kept copy was restored.
        Archive,
        /// As an exact copy under a new id.
        Copied,
        /// As a repaired copy under a new id.
        Rebuilt,
        /// As the nearest ancestor that could be resumed.
        OlderLink,
        /// As a new session that received the history as text.
        Text,
        /// As a new session.
        Fresh,
    }
}

objects! {
    /// One attempt to reopen a session.
    Attempt {
        /// The session that was tried; absent if the attempt had none.
        upstream_id: Option<UpstreamId> = default,
        /// How it was tried.
        via: Via,
        /// Why it failed; absent if it worked.
        error: Option<String> = default,
    }

    /// How a conversation was reopened, and what was lost.
    Resumed {
        /// The session that is open now.
        upstream_id: UpstreamId,
        /// How it was opened.
        via: Via,
        /// How much of the history the agent has.
        fidelity: Fidelity,
        /// How many turns the agent lacks, at least: where a damaged transcript does not show how many turns a gap held, the
        /// gap counts as one. 0 if the fidelity is `full`; also 0 if it is `partial` and the turns cannot be counted, as in
        /// a damaged Codex transcript.
        missing_turns: u64,
        /// All attempts, in order; the last one worked.
        attempts: Vec<Attempt>,
    }
}

impl Resumed {
    /// The former head, if the agent opened neither it nor a copy, although its transcript exists, and a session with less
    /// history replaced it.
    #[must_use]
    pub fn refused_head(&self) -> Option<&UpstreamId> {
        let keeps_less = matches!(self.via, Via::OlderLink | Via::Text | Via::Fresh);
        refused_head(&self.attempts).filter(|_| keeps_less && self.fidelity < Fidelity::Full)
    }
}

impl LineageEntry {
    /// The former head, if the agent opened neither it nor a copy, although its transcript exists, and a session with less
    /// history replaced it.
    #[must_use]
    pub fn refused_head(&self) -> Option<&UpstreamId> {
        let keeps_less = self.reason == LineageReason::Rolled && self.fidelity < Fidelity::Full;
        refused_head(&self.attempts).filter(|_| keeps_less)
    }
}

/// The session that the agent opened neither itself nor as an exact copy. Only a session whose transcript is there, and whole as
/// far as it can be read, is copied like this.
fn refused_head(attempts: &[Attempt]) -> Option<&UpstreamId> {
    let is_refused = |attempt: &&Attempt| attempt.via == Via::Copied && attempt.error.is_some();
    attempts.iter().rev().find(is_refused)?.upstream_id.as_ref()
}
