//! The chain of a conversation: which upstream sessions it has had, and which of them is its head.
//!
//! This room owns the rules of the chain and of its lineage. The chain is append-only and bounded at
//! [`CHAIN_LIMIT`]; its last link is the head, so that no call can set a head without extending the chain. Each
//! change also yields entries of the lineage, the log that is never cut; numbering them is the chain's business,
//! keeping them is the store's.
//!
//! It is pure: it must not know files, clocks, tasks or databases. Times are passed in.

mod ancestry;
mod restoring;
mod undoing;

pub use ancestry::{Ancestor, HistorySource, LinkOrigin, Origins, ancestors, history_sources};
pub use restoring::ChainFault;
pub use undoing::{EarlierHead, Undoing, undoing, undoing_to};

use bridge_protocol::link::{Fidelity, LineageEntry, LineageReason, Link, LinkReason, Relation, RollCause};
use bridge_protocol::{AgentName, CheckpointId, UpstreamId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// How many links a chain holds at most.
///
/// Sixteen sessions are more than a person climbs back through, and keep a record of a conversation small enough to be
/// written whole at each change. What has left the chain stays in the lineage.
pub const CHAIN_LIMIT: usize = 16;

/// The links of a conversation, oldest first, and the number of its next lineage entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Chain {
    links: Vec<Link>,
    /// The `seq` that the next lineage entry gets; entries count from 1 without holes.
    next_lineage_seq: u64,
}

/// What is known of an upstream session when it is to become the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewLink {
    /// The agent's own id; trimmed, and ignored when nothing is left.
    pub upstream_id: UpstreamId,
    /// The agent that holds it.
    pub agent: AgentName,
    /// The absolute folder in which it runs.
    pub cwd: String,
    /// Why it joins.
    pub reason: LinkReason,
    /// What it has to do with the session that it came from.
    pub relation: Relation,
    /// Where it came from. A place within the part that a session carries over from another is named by the session
    /// in which the turn was acknowledged first, see [`ancestors`].
    pub from_upstream_id: Option<UpstreamId>,
    /// At which place of that session.
    pub from_checkpoint_id: Option<CheckpointId>,
    /// The cause of a roll.
    pub cause: Option<RollCause>,
    /// Turns already acknowledged on it.
    pub turns: u64,
    /// Turns that it holds from where it came from.
    pub carried_turns: u64,
    /// Whether a transcript of it is expected at the agent.
    pub written: bool,
}

/// Why the user cleared the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClearReason {
    /// A new chat under the same id.
    Reset,
    /// The conversation was deleted.
    Deleted,
}

/// What a change did beside changing the chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "the lineage entries have to be written with the chain, in one change"]
pub struct Appended {
    /// What to add to the lineage, with the chain, in one write. `in_chain` is computed at reading and is `false` here.
    pub entries: Vec<LineageEntry>,
    /// The links that are no longer in the chain, oldest first.
    pub left: Vec<Link>,
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
    /// The link that the next prompt goes to; none before the first session and after a reset.
    #[must_use]
    pub fn head(&self) -> Option<&Link> {
        self.links.last()
    }

    /// All links, oldest first; the last is the head.
    #[must_use]
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// How many links there are, [`CHAIN_LIMIT`] at most.
    #[must_use]
    pub fn len(&self) -> usize {
        self.links.len()
    }

    /// Whether there is no link.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// The `seq` of the last lineage entry, which is also how many there are; 0 before the first.
    #[must_use]
    pub fn last_lineage_seq(&self) -> u64 {
        self.next_lineage_seq.saturating_sub(1)
    }

    /// Whether the upstream id is in the chain.
    #[must_use]
    pub fn contains(&self, upstream_id: &UpstreamId) -> bool {
        self.links.iter().any(|link| &link.upstream_id == upstream_id)
    }

    /// Makes an upstream session the head.
    ///
    /// - An empty id is ignored: nothing changes, nothing is logged.
    /// - The head's own id leaves the order alone and brings folder, agent and state up to date; logged as `updated`.
    /// - Any other id is appended, after an equal older entry was removed. A head that was never written leaves
    ///   first, and past [`CHAIN_LIMIT`] the oldest leaves.
    ///
    /// One id names one transcript, so a link that returns keeps what the older entry knew of it: the turns
    /// acknowledged on it, that it was written and, when the new link names no origin, where it came from.
    pub fn append(&mut self, new: NewLink, fidelity: Fidelity, at: Timestamp) -> Appended {
        let Some(mut link) = new.into_link(at) else {
            return Appended::default();
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
            return Appended {
                entries: vec![entry],
                left: Vec::new(),
            };
        }

        let mut left = Vec::new();
        if let Some(phantom) = self.links.pop_if(|head| !head.written) {
            left.push(phantom);
        }
        if let Some(older) = self.position(&link.upstream_id) {
            inherit(&mut link, self.links.remove(older));
        }
        let entry = self.log(&link, link.reason.into(), fidelity);
        self.links.push(link);
        if self.links.len() > CHAIN_LIMIT {
            // The chain grows by one link a call, so one leaves at most. It is older than any phantom.
            left.insert(0, self.links.remove(0));
        }
        Appended {
            entries: vec![entry],
            left,
        }
    }

    /// Notes that a turn was acknowledged on the head. Returns whether there is a head.
    ///
    /// The count is the link's state and needs no lineage entry: the next one that names this id has it, and a reset logs the
    /// counts of all links.
    pub fn acknowledge_turn(&mut self) -> bool {
        let Some(head) = self.links.last_mut() else {
            return false;
        };
        head.turns = head.turns.saturating_add(1);
        head.written = true;
        true
    }

    /// Notes that the agent was seen to take a prompt on the head, so that a transcript is expected. Returns whether
    /// that is news.
    pub fn mark_written(&mut self) -> bool {
        self.links
            .last_mut()
            .is_some_and(|head| !std::mem::replace(&mut head.written, true))
    }

    /// Empties the chain because the user asked for it. The lineage continues, with an entry about the head that was; before that,
    /// a reset, which can be undone, logs what the other links had.
    pub fn clear(&mut self, reason: ClearReason, at: Timestamp) -> Appended {
        let left = std::mem::take(&mut self.links);
        let mut entries = Vec::new();
        if let (ClearReason::Reset, Some((_, others))) = (reason, left.split_last()) {
            for link in others {
                entries.extend(self.log_leaving(link, at));
            }
        }
        let head = left.last();
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
        Appended { entries, left }
    }

    /// Notes that sessions run in another folder from now on: those of which `target` gives one, which is told whether it is the
    /// head's. The head gets this reason. Their order stays.
    pub fn relocate(
        &mut self,
        target: impl Fn(&Link, bool) -> Option<String>,
        reason: LinkReason,
        at: Timestamp,
    ) -> Appended {
        let mut entries = Vec::new();
        let last = self.links.len().saturating_sub(1);
        for number in 0..self.links.len() {
            let Some(link) = self.links.get_mut(number) else {
                continue;
            };
            let Some(to) = target(link, number == last) else {
                continue;
            };
            link.cwd = to;
            link.reason = if number < last { LinkReason::Moved } else { reason };
            let mut moved = link.clone();
            moved.at = at;
            moved.cause = None;
            let reason = link.reason.into();
            entries.push(self.log(&moved, reason, Fidelity::Full));
        }
        Appended {
            entries,
            left: Vec::new(),
        }
    }

    /// Logs a branch that never became the head. The links stay as they are; an empty id is ignored.
    #[must_use = "the lineage entry has to be written with the chain, in one change"]
    pub fn abandon(&mut self, branch: NewLink, fidelity: Fidelity, at: Timestamp) -> Option<LineageEntry> {
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

    /// Logs a link that leaves the chain, if turns were acknowledged on it: the lineage is then all that knows how many.
    fn log_leaving(&mut self, link: &Link, at: Timestamp) -> Option<LineageEntry> {
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
    /// The link that this becomes; none when the id is empty.
    fn into_link(self, at: Timestamp) -> Option<Link> {
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
            // A turn can only have been acknowledged on a session that took its prompt.
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
