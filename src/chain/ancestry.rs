//! The ancestry of a session: the sessions that its history came from, found by following references.
//!
//! This module owns how references are followed: through chain and lineage, never by position, never past a fresh
//! start, and each only once, in case they form a ring. It does not know transcripts or whether they exist; it returns
//! sessions and the points at which to cut them.

use std::collections::{HashMap, HashSet};

use bridge_protocol::link::{LineageEntry, LineageReason, Link, LinkReason, Relation};
use bridge_protocol::{AgentName, CheckpointId, UpstreamId};

/// The known facts of an upstream id, and where its history came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkOrigin {
    /// The session's agent.
    pub agent: AgentName,
    /// The absolute folder of the session, as last recorded.
    pub cwd: String,
    /// The session's relation to the session that it came from.
    pub relation: Relation,
    /// The session that it came from.
    pub from_upstream_id: Option<UpstreamId>,
    /// The checkpoint in that session; absent if the history of the whole session was taken.
    pub from_checkpoint_id: Option<CheckpointId>,
    /// How many turns were acknowledged in the session, as last recorded.
    pub turns: u64,
    /// How many of the turns in its transcript it carried over; 0 if they could not be counted.
    pub carried_turns: u64,
    /// Whether it was made by an edit.
    pub edited: bool,
}

/// Where the part of a session ends that belongs to a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionCut {
    /// The last checkpoint that belongs to it; absent if all of the session does.
    pub at: Option<CheckpointId>,
    /// The most turns of the session that belong to it, if a later branch left some of those out that the session's child
    /// carried over.
    pub max_turns: Option<u64>,
}

/// A session that the head's history came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ancestor {
    /// The session's id.
    pub upstream_id: UpstreamId,
    /// The session's agent.
    pub agent: AgentName,
    /// The session's absolute folder.
    pub cwd: String,
    /// Where to cut the session before it is resumed.
    pub cut: SessionCut,
    /// How many turns of the head's history were acknowledged in the session.
    pub turns: u64,
    /// The relation of the session that refers to it.
    pub relation_of_child: Relation,
}

/// A transcript to read a conversation's history from, and how far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistorySource {
    /// The session.
    pub upstream_id: UpstreamId,
    /// Where its part of the history ends.
    pub until: SessionCut,
}

impl SessionCut {
    /// Ends at a checkpoint, or with the session.
    #[must_use]
    pub fn at(checkpoint: Option<CheckpointId>) -> Self {
        Self {
            at: checkpoint,
            max_turns: None,
        }
    }

    /// Whether the whole session belongs to the history.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        *self == Self::default()
    }
}

impl LinkOrigin {
    /// How many turns of the session that it came from are in this one's history: absent if all are, 0 if unknown.
    fn referred_turns(&self) -> Option<u64> {
        self.from_checkpoint_id.as_ref()?;
        match self.relation {
            Relation::Carries => Some(self.carried_turns),
            // The text of an edit ends before the edited turn, that of any other roll at the end of its source.
            _ => self.edited.then_some(0),
        }
    }
}

/// The origin of every upstream id that a conversation ever had, from its lineage and its chain.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    by_id: HashMap<UpstreamId, LinkOrigin>,
}

impl Origins {
    /// Collects the origins. The lineage is ordered oldest first; the chain's links are newer than all of its
    /// entries.
    ///
    /// If an id occurs more than once, the latest entry with an origin wins. An entry has an origin if it starts
    /// fresh or names where it came from. `updated`, `reset` and `deleted` entries have none; they only update facts.
    pub fn collect<'a>(lineage: impl IntoIterator<Item = &'a LineageEntry>, links: &[Link]) -> Self {
        let mut origins = Self::default();
        for entry in lineage {
            origins.add_entry(entry);
        }
        for link in links {
            if let Some(known) = origins.by_id.get_mut(&link.upstream_id) {
                known.agent.clone_from(&link.agent);
                known.cwd.clone_from(&link.cwd);
                known.turns = link.turns;
                known.carried_turns = link.carried_turns;
            } else {
                origins
                    .by_id
                    .insert(link.upstream_id.clone(), LinkOrigin::from(link));
            }
        }
        origins
    }

    /// Returns the origin of an upstream id, for [`ancestors`] and [`history_sources`].
    #[must_use]
    pub fn get(&self, upstream_id: &UpstreamId) -> Option<LinkOrigin> {
        self.by_id.get(upstream_id).cloned()
    }

    fn add_entry(&mut self, entry: &LineageEntry) {
        let has_session = !matches!(entry.reason, LineageReason::Reset | LineageReason::Deleted);
        if !has_session || entry.upstream_id.is_empty() {
            return;
        }
        let names_origin = entry.reason != LineageReason::Updated
            && (entry.relation == Relation::Fresh || entry.from_upstream_id.is_some());
        let known = self.by_id.get_mut(&entry.upstream_id);
        if let (Some(known), false) = (known, names_origin) {
            known.agent.clone_from(&entry.agent);
            known.cwd.clone_from(&entry.cwd);
            known.turns = known.turns.max(entry.turns);
            known.carried_turns = known.carried_turns.max(entry.carried_turns);
            return;
        }
        let known = self.by_id.get(&entry.upstream_id);
        let known_turns = known.map_or(0, |known| known.turns);
        // The entry of an undo names the same origin again.
        let edited = entry.reason == LineageReason::Edited || known.is_some_and(|known| known.edited);
        self.by_id.insert(
            entry.upstream_id.clone(),
            LinkOrigin {
                agent: entry.agent.clone(),
                cwd: entry.cwd.clone(),
                relation: entry.relation,
                from_upstream_id: entry.from_upstream_id.clone(),
                from_checkpoint_id: entry.from_checkpoint_id.clone(),
                turns: entry.turns.max(known_turns),
                carried_turns: entry.carried_turns,
                edited,
            },
        );
    }
}

impl From<&Link> for LinkOrigin {
    fn from(link: &Link) -> Self {
        Self {
            agent: link.agent.clone(),
            cwd: link.cwd.clone(),
            relation: link.relation,
            from_upstream_id: link.from_upstream_id.clone(),
            from_checkpoint_id: link.from_checkpoint_id.clone(),
            turns: link.turns,
            carried_turns: link.carried_turns,
            edited: link.reason == LinkReason::Edited,
        }
    }
}

/// Creates an origin for a session that another one refers to but that the conversation never had. It has the agent
/// and the folder of the referring session.
impl From<&Ancestor> for LinkOrigin {
    fn from(ancestor: &Ancestor) -> Self {
        Self {
            agent: ancestor.agent.clone(),
            cwd: ancestor.cwd.clone(),
            relation: Relation::Fresh,
            from_upstream_id: None,
            from_checkpoint_id: None,
            turns: ancestor.turns,
            carried_turns: 0,
            edited: false,
        }
    }
}

/// Returns the sessions that the head's history came from, nearest first, without the head.
///
/// Each must be cut at the checkpoint that its child referred to, so that turns which the user edited away do not come
/// back. A later branch may have left its source within the turns that the source had carried over. These are the first turns
/// of both transcripts, so the older session is also cut after as many turns as the branch kept. If that number is unknown,
/// the older session is left out.
///
/// A session that `lookup` does not know is included, with the agent and folder of its child, and ends the climb.
pub fn ancestors(head: &UpstreamId, lookup: impl Fn(&UpstreamId) -> Option<LinkOrigin>) -> Vec<Ancestor> {
    let mut ancestors = Vec::new();
    let mut seen = HashSet::from([head.clone()]);
    let mut child = lookup(head);
    // The most turns in the child's transcript that belong to the head's history, if not all do; 0 if unknown.
    let mut limit = None;
    while let Some(origin) = child.take() {
        let Some(from) = parent(&origin, &mut seen) else {
            break;
        };
        // What the child follows is complete before its own first turn.
        let max_turns = limit.filter(|_| origin.relation == Relation::Carries);
        if max_turns == Some(0) {
            break;
        }
        limit = [max_turns, origin.referred_turns()].into_iter().flatten().min();
        let known = lookup(&from);
        let (turns, carried) = known
            .as_ref()
            .map_or((0, 0), |known| (known.turns, known.carried_turns));
        let own = limit
            .filter(|most| *most > 0)
            .map(|most| most.saturating_sub(carried));
        ancestors.push(Ancestor {
            agent: known.as_ref().map_or(origin.agent, |known| known.agent.clone()),
            cwd: known.as_ref().map_or(origin.cwd, |known| known.cwd.clone()),
            turns: own.map_or(turns, |own| turns.min(own)),
            upstream_id: from,
            cut: SessionCut {
                at: origin.from_checkpoint_id,
                max_turns,
            },
            relation_of_child: origin.relation,
        });
        child = known;
    }
    ancestors
}

/// Returns the transcripts that together hold the head's history, oldest first, with the head last.
///
/// A session that starts fresh has no predecessors. If a session carries the history of another, its transcript
/// contains that history: the other one is skipped, and the other one's predecessors precede both. If a session
/// follows another, the other one's history precedes it, up to the checkpoint that the session refers to.
pub fn history_sources(
    head: &UpstreamId,
    lookup: impl Fn(&UpstreamId) -> Option<LinkOrigin>,
) -> Vec<HistorySource> {
    let mut sources = vec![HistorySource {
        upstream_id: head.clone(),
        until: SessionCut::default(),
    }];
    let mut seen = HashSet::from([head.clone()]);
    let mut child = lookup(head);
    while let Some(origin) = child.take() {
        let Some(from) = parent(&origin, &mut seen) else {
            break;
        };
        child = lookup(&from);
        if origin.relation == Relation::Carries {
            continue;
        }
        sources.push(HistorySource {
            upstream_id: from,
            until: SessionCut::at(origin.from_checkpoint_id),
        });
    }
    sources.reverse();
    sources
}

/// Returns the next session to climb to. `None` past a fresh start, without a reference, or if the references form a
/// ring.
fn parent(origin: &LinkOrigin, seen: &mut HashSet<UpstreamId>) -> Option<UpstreamId> {
    if origin.relation == Relation::Fresh {
        return None;
    }
    let from = origin.from_upstream_id.clone()?;
    seen.insert(from.clone()).then_some(from)
}

#[cfg(test)]
mod tests;
