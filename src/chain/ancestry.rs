//! The ancestry of a session: the sessions that its history came from, found by following references.
//!
//! This module owns how references are followed: through chain and lineage, never by position, never past a fresh
//! start, and each only once, in case they form a ring. It does not know transcripts or whether they exist; it returns
//! sessions and the points at which to cut them.

use std::collections::{HashMap, HashSet};

use bridge_protocol::link::{LineageEntry, LineageReason, Link, Relation};
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
    /// Where to cut the session before it is resumed. Absent only if the reference named no checkpoint, so that the
    /// whole session was taken.
    pub cut_at: Option<CheckpointId>,
    /// How many turns were acknowledged in the session.
    pub turns: u64,
    /// The relation of the session that refers to it.
    pub relation_of_child: Relation,
}

/// A transcript to read a conversation's history from, and how far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistorySource {
    /// The session.
    pub upstream_id: UpstreamId,
    /// The last checkpoint that belongs to the history; absent if the whole session does.
    pub until: Option<CheckpointId>,
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
            return;
        }
        let known_turns = self.get(&entry.upstream_id).map_or(0, |known| known.turns);
        self.by_id.insert(
            entry.upstream_id.clone(),
            LinkOrigin {
                agent: entry.agent.clone(),
                cwd: entry.cwd.clone(),
                relation: entry.relation,
                from_upstream_id: entry.from_upstream_id.clone(),
                from_checkpoint_id: entry.from_checkpoint_id.clone(),
                turns: entry.turns.max(known_turns),
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
        }
    }
}

/// Returns the sessions that the head's history came from, nearest first, without the head.
///
/// Each must be cut at the checkpoint that its child referred to, so that turns which the user edited away do not come
/// back. For that to hold over several generations, a reference must name the session in which its turn was first
/// acknowledged. So a fork at a turn that was carried over refers to the session that it was carried over from. The
/// checkpoint's recorded origin names that session. The caller that creates the link can read it; this module cannot.
///
/// A session that `lookup` does not know is included, with the agent and folder of its child, and ends the climb.
pub fn ancestors(head: &UpstreamId, lookup: impl Fn(&UpstreamId) -> Option<LinkOrigin>) -> Vec<Ancestor> {
    let mut ancestors = Vec::new();
    let mut seen = HashSet::from([head.clone()]);
    let mut child = lookup(head);
    while let Some(origin) = child.take() {
        let Some(from) = parent(&origin, &mut seen) else {
            break;
        };
        let known = lookup(&from);
        ancestors.push(Ancestor {
            agent: known.as_ref().map_or(origin.agent, |known| known.agent.clone()),
            cwd: known.as_ref().map_or(origin.cwd, |known| known.cwd.clone()),
            turns: known.as_ref().map_or(0, |known| known.turns),
            upstream_id: from,
            cut_at: origin.from_checkpoint_id,
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
        until: None,
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
            until: origin.from_checkpoint_id,
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
