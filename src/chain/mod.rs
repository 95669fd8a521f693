//! The chain of a conversation: its upstream sessions, the last of which is the head.
//!
//! This module owns the rules of the chain and its lineage. The chain is append-only and holds at most [`CHAIN_LIMIT`]
//! links. The last link is the head, so no call can set a head without extending the chain. Each change also returns
//! entries for the lineage, a log that is never truncated. The chain numbers the entries; the store stores them.
//!
//! Pure: it does not know files, clocks, tasks or databases. Times are parameters.

mod ancestry;
mod restoring;
mod undo;

pub use ancestry::{Ancestor, HistorySource, LinkOrigin, Origins, SessionCut, ancestors, history_sources};
pub use restoring::ChainFault;
pub use undo::{EarlierHead, UndoEffect, has_moved_from, next_undo, undo_to};

use bridge_protocol::link::{Fidelity, LineageEntry, LineageReason, Link, LinkReason, Relation, RollCause};
use bridge_protocol::{AgentName, CheckpointId, UpstreamId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// How many links a chain holds.
///
/// No user goes back through as many as sixteen sessions, and with at most sixteen, a conversation's record is small
/// enough to be rewritten at each change. Links that left the chain stay in the lineage.
pub const CHAIN_LIMIT: usize = 16;

/// The links of a conversation, oldest first, and the number of its next lineage entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Chain {
    links: Vec<Link>,
    /// The `seq` of the next lineage entry. Entries are numbered from 1 without gaps.
    next_lineage_seq: u64,
}

/// An upstream session that is to become the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewLink {
    /// The agent's own id. Trimmed; ignored if empty.
    pub upstream_id: UpstreamId,
    /// The session's agent.
    pub agent: AgentName,
    /// The session's absolute folder.
    pub cwd: String,
    /// Why it is added.
    pub reason: LinkReason,
    /// The session's relation to the session that it came from.
    pub relation: Relation,
    /// The session that it came from.
    pub from_upstream_id: Option<UpstreamId>,
    /// The checkpoint in that session.
    pub from_checkpoint_id: Option<CheckpointId>,
    /// The cause of a roll.
    pub cause: Option<RollCause>,
    /// How many turns were already acknowledged in it.
    pub turns: u64,
    /// How many of its turns come from the session that it came from.
    pub carried_turns: u64,
    /// Whether its transcript is expected to exist.
    pub written: bool,
}

/// Why the chain is cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClearReason {
    /// The user starts an empty session in the same conversation.
    Reset,
    /// The conversation was deleted.
    Deleted,
}

/// The effects of a change besides the change of the chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "the lineage entries have to be written with the chain, in one change"]
pub struct ChainChange {
    /// Entries to add to the lineage, in the same write as the chain. Their `in_chain` is `false`; readers derive it.
    pub entries: Vec<LineageEntry>,
    /// The links that left the chain, oldest first.
    pub removed_links: Vec<Link>,
}

impl Default for Chain {
    fn default() -> Self {
        Self {
            links: Vec::new(),
            next_lineage_seq: 1,
        }
    }
}

impl Chain {
    /// Returns the link to which the next prompt goes. `None` before the first session and after a reset.
    #[must_use]
    pub fn head(&self) -> Option<&Link> {
        self.links.last()
    }

    /// Returns all links, oldest first; the last one is the head.
    #[must_use]
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Returns the number of links, at most [`CHAIN_LIMIT`].
    #[must_use]
    pub fn len(&self) -> usize {
        self.links.len()
    }

    /// Whether the chain has no links.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Returns the `seq` of the last lineage entry, which equals their number; 0 before the first.
    #[must_use]
    pub fn last_lineage_seq(&self) -> u64 {
        self.next_lineage_seq.saturating_sub(1)
    }

    /// Whether the chain contains the upstream id.
    #[must_use]
    pub fn contains(&self, upstream_id: &UpstreamId) -> bool {
        self.link(upstream_id).is_some()
    }

    /// Returns the link of an upstream id.
    #[must_use]
    pub fn link(&self, upstream_id: &UpstreamId) -> Option<&Link> {
        self.links.iter().find(|link| &link.upstream_id == upstream_id)
    }

    /// Whether the upstream id is that of the head.
    #[must_use]
    pub fn is_head(&self, upstream_id: &UpstreamId) -> bool {
        self.head().is_some_and(|head| &head.upstream_id == upstream_id)
    }

    /// Makes an upstream session the head.
    ///
    /// - An empty id is ignored: nothing is changed or logged.
    /// - The head's own id keeps the order and updates folder, agent and state. Logged as `updated`.
    /// - Any other id is appended, after an equal older link was removed. A head that was never written is removed
    ///   first, and beyond [`CHAIN_LIMIT`] the oldest link is removed.
    ///
    /// One id names one transcript, so a link that is added again keeps the facts of the older link: its acknowledged
    /// turns, whether it was written and, if the new link names no origin, its origin.
    pub fn append(&mut self, new: NewLink, fidelity: Fidelity, at: Timestamp) -> ChainChange {
        let Some(mut link) = new.into_link(at) else {
            return ChainChange::default();
        };
        if let Some(head) = self.links.last_mut()
            && head.upstream_id == link.upstream_id
        {
            head.agent = link.agent;
            head.cwd = link.cwd;
            head.turns = head.turns.max(link.turns);
            head.carried_turns = head.carried_turns.max(link.carried_turns);
            head.written |= link.written;
            let mut updated = head.clone();
            updated.at = at;
            updated.cause = link.cause;
            let entry = self.log(&updated, LineageReason::Updated, fidelity);
            return ChainChange {
                entries: vec![entry],
                removed_links: Vec::new(),
            };
        }

        let mut removed = Vec::new();
        if let Some(phantom) = self.links.pop_if(|head| !head.written) {
            removed.push(phantom);
        }
        if let Some(older) = self.position(&link.upstream_id) {
            inherit(&mut link, self.links.remove(older));
        }
        let entry = self.log(&link, link.reason.into(), fidelity);
        self.links.push(link);
        if self.links.len() > CHAIN_LIMIT {
            // The chain grows by one link per call, so at most one link is over the limit. It is older than a removed
            // unwritten head, so it comes first.
            removed.insert(0, self.links.remove(0));
        }
        ChainChange {
            entries: vec![entry],
            removed_links: removed,
        }
    }

    /// Counts an acknowledged turn of the head. Returns whether there is a head.
    ///
    /// The count needs no lineage entry of its own: the next entry for this id contains it, and a reset logs the
    /// counts of all links.
    pub fn acknowledge_turn(&mut self) -> bool {
        let Some(head) = self.links.last_mut() else {
            return false;
        };
        head.turns = head.turns.saturating_add(1);
        head.written = true;
        true
    }

    /// Records that the agent accepted a prompt on the head, so that a transcript is expected. Returns whether this is
    /// new.
    pub fn mark_written(&mut self) -> bool {
        self.links
            .last_mut()
            .is_some_and(|head| !std::mem::replace(&mut head.written, true))
    }

    /// Empties the chain at the user's request. The lineage continues with an entry about the former head. A reset can
    /// be undone, so it first logs the state of the other links.
    pub fn clear(&mut self, reason: ClearReason, at: Timestamp) -> ChainChange {
        let removed = std::mem::take(&mut self.links);
        let mut entries = Vec::new();
        if let (ClearReason::Reset, Some((_, others))) = (reason, removed.split_last()) {
            for link in others {
                entries.extend(self.log_removed_link(link, at));
            }
        }
        let head = removed.last();
        let entry = LineageEntry {
            seq: self.take_seq(),
            upstream_id: head.map_or_else(|| UpstreamId::new(""), |head| head.upstream_id.clone()),
            agent: head.map_or_else(|| AgentName::new(""), |head| head.agent.clone()),
            cwd: head.map(|head| head.cwd.clone()).unwrap_or_default(),
            reason: match reason {
                ClearReason::Reset => LineageReason::Reset,
                ClearReason::Deleted => LineageReason::Deleted,
            },
            relation: Relation::Fresh,
            from_upstream_id: None,
            from_checkpoint_id: None,
            turns: head.map_or(0, |head| head.turns),
            carried_turns: head.map_or(0, |head| head.carried_turns),
            written: head.is_some_and(|head| head.written),
            at,
            cause: None,
            fidelity: Fidelity::None,
            in_chain: false,
            attempts: Vec::new(),
        };
        entries.push(entry);
        ChainChange {
            entries,
            removed_links: removed,
        }
    }

    /// Moves each session for which `target` returns a folder to that folder. The second argument of `target` is
    /// whether the link is the head. The head gets `reason`. The order does not change.
    pub fn relocate(
        &mut self,
        target: impl Fn(&Link, bool) -> Option<String>,
        reason: LinkReason,
        at: Timestamp,
    ) -> ChainChange {
        let mut entries = Vec::new();
        let last = self.links.len().saturating_sub(1);
        for index in 0..self.links.len() {
            let Some(link) = self.links.get_mut(index) else {
                continue;
            };
            let Some(to) = target(link, index == last) else {
                continue;
            };
            link.cwd = to;
            link.reason = if index < last { LinkReason::Moved } else { reason };
            let mut moved = link.clone();
            moved.at = at;
            moved.cause = None;
            let reason = link.reason.into();
            entries.push(self.log(&moved, reason, Fidelity::Full));
        }
        ChainChange {
            entries,
            removed_links: Vec::new(),
        }
    }

    /// Logs a branch that never became the head. The links do not change. An empty id is ignored.
    #[must_use = "the lineage entry has to be written with the chain, in one change"]
    pub fn log_abandoned_branch(
        &mut self,
        branch: NewLink,
        fidelity: Fidelity,
        at: Timestamp,
    ) -> Option<LineageEntry> {
        let link = branch.into_link(at)?;
        Some(self.log(&link, LineageReason::Abandoned, fidelity))
    }

    fn position(&self, upstream_id: &UpstreamId) -> Option<usize> {
        self.links
            .iter()
            .position(|link| &link.upstream_id == upstream_id)
    }

    fn take_seq(&mut self) -> u64 {
        let seq = self.next_lineage_seq;
        self.next_lineage_seq += 1;
        seq
    }

    /// Logs a link that leaves the chain, if it has acknowledged turns. Their number is then recorded only in the
    /// lineage.
    fn log_removed_link(&mut self, link: &Link, at: Timestamp) -> Option<LineageEntry> {
        let mut leaving = link.clone();
        leaving.at = at;
        leaving.cause = None;
        (link.turns > 0).then(|| self.log(&leaving, LineageReason::Updated, Fidelity::Full))
    }

    fn log(&mut self, link: &Link, reason: LineageReason, fidelity: Fidelity) -> LineageEntry {
        LineageEntry {
            seq: self.take_seq(),
            upstream_id: link.upstream_id.clone(),
            agent: link.agent.clone(),
            cwd: link.cwd.clone(),
            reason,
            relation: link.relation,
            from_upstream_id: link.from_upstream_id.clone(),
            from_checkpoint_id: link.from_checkpoint_id.clone(),
            turns: link.turns,
            carried_turns: link.carried_turns,
            written: link.written,
            at: link.at,
            cause: link.cause,
            fidelity,
            in_chain: false,
            attempts: Vec::new(),
        }
    }
}

impl From<&Link> for NewLink {
    fn from(link: &Link) -> Self {
        Self {
            upstream_id: link.upstream_id.clone(),
            agent: link.agent.clone(),
            cwd: link.cwd.clone(),
            reason: link.reason,
            relation: link.relation,
            from_upstream_id: link.from_upstream_id.clone(),
            from_checkpoint_id: link.from_checkpoint_id.clone(),
            cause: link.cause,
            turns: link.turns,
            carried_turns: link.carried_turns,
            written: link.written,
        }
    }
}

impl NewLink {
    /// Creates a link to a session without a history.
    #[must_use]
    pub fn new(upstream_id: UpstreamId, agent: AgentName, cwd: String, reason: LinkReason) -> Self {
        Self {
            upstream_id,
            agent,
            cwd,
            reason,
            relation: Relation::Fresh,
            from_upstream_id: None,
            from_checkpoint_id: None,
            cause: None,
            turns: 0,
            carried_turns: 0,
            written: false,
        }
    }

    /// Converts this to a link. `None` if the id is empty.
    #[must_use]
    pub fn into_link(self, at: Timestamp) -> Option<Link> {
        let upstream_id = trimmed(&self.upstream_id)?;
        Some(Link {
            upstream_id,
            agent: self.agent,
            cwd: self.cwd,
            reason: self.reason,
            relation: self.relation,
            from_upstream_id: self.from_upstream_id.as_ref().and_then(trimmed),
            from_checkpoint_id: self.from_checkpoint_id,
            turns: self.turns,
            carried_turns: self.carried_turns,
            // An acknowledged turn means that the session accepted a prompt, so it is written.
            written: self.written || self.turns > 0,
            at,
            cause: self.cause,
        })
    }
}

fn trimmed(upstream_id: &UpstreamId) -> Option<UpstreamId> {
    let text = upstream_id.as_str().trim();
    (!text.is_empty()).then(|| UpstreamId::new(text))
}

fn inherit(link: &mut Link, older: Link) {
    link.turns = link.turns.max(older.turns);
    link.carried_turns = link.carried_turns.max(older.carried_turns);
    link.written |= older.written;
    if link.from_upstream_id.is_none() && link.relation != Relation::Fresh {
        link.relation = older.relation;
        link.from_upstream_id = older.from_upstream_id;
        link.from_checkpoint_id = older.from_checkpoint_id;
    }
}

#[cfg(test)]
mod tests;
