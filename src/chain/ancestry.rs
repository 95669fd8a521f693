//! Where a session's history came from: climbing from a link to its ancestors by reference.
//!
//! This module owns the reading of references: through chain and lineage, never by position, never past a fresh
//! start, and to an end also where references form a ring. It must not know what a transcript looks like or whether
//! one is there; it names sessions and the places at which they are cut.

use std::collections::{HashMap, HashSet};

use bridge_protocol::link::{LineageEntry, LineageReason, Link, Relation};
use bridge_protocol::{AgentName, CheckpointId, UpstreamId};

/// What is known of one upstream id: its own facts, and where its history came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkOrigin {
    /// The agent that holds it.
    pub agent: AgentName,
    /// The absolute folder in which it runs, as last recorded.
    pub cwd: String,
    /// What it has to do with the session that it came from.
    pub relation: Relation,
    /// Where it came from.
    pub from_upstream_id: Option<UpstreamId>,
    /// At which place of that session; absent when all of it came along.
    pub from_checkpoint_id: Option<CheckpointId>,
    /// Turns acknowledged on it, as last recorded.
    pub turns: u64,
}

/// A session that the head's history came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ancestor {
    /// Its id.
    pub upstream_id: UpstreamId,
    /// The agent that holds it.
    pub agent: AgentName,
    /// The absolute folder in which it runs.
    pub cwd: String,
    /// Where it is to be cut before it is resumed; absent only when the reference named no place, so that the whole
    /// of it came along.
    pub cut_at: Option<CheckpointId>,
    /// Turns acknowledged on it.
    pub turns: u64,
    /// What the session that refers to it has to do with it.
    pub relation_of_child: Relation,
}

/// One transcript to read a conversation's history from, and how far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistorySource {
    /// The session.
    pub upstream_id: UpstreamId,
    /// The last place that counts; absent when all of it does.
    pub until: Option<CheckpointId>,
}

/// The origin of every upstream id that a conversation ever held, from its lineage and its chain.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    by_id: HashMap<UpstreamId, LinkOrigin>,
}

impl Origins {
    /// Collects the origins. The lineage comes oldest first; the chain's links are newer than any of its entries.
    ///
    /// An id can come twice: the latest entry that gives an origin wins. An entry gives one when it starts fresh or
    /// names where it came from; `updated`, `reset` and `deleted` give none, they only bring facts up to date.
    pub fn collect<'a>(lineage: impl IntoIterator<Item = &'a LineageEntry>, links: &[Link]) -> Self {
        let mut origins = Self::default();
        for entry in lineage {
            origins.learn(entry);
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

    /// What is known of an upstream id, as a lookup for [`ancestors`] and [`history_sources`].
    #[must_use]
    pub fn get(&self, upstream_id: &UpstreamId) -> Option<LinkOrigin> {
        self.by_id.get(upstream_id).cloned()
    }

    fn learn(&mut self, entry: &LineageEntry) {
        let is_about_a_session = !matches!(entry.reason, LineageReason::Reset | LineageReason::Deleted);
        if !is_about_a_session || entry.upstream_id.is_empty() {
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

/// What is known of a session that another one refers to and that the conversation never held: the agent and the folder of
/// the one that refers to it.
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

/// The sessions that the head's history came from, nearest first. The head itself is not among them.
///
/// Each is to be cut at the place that its child referred to, so that what a user edited away does not come back.
/// For that to hold over several generations, a reference must name the session in which its turn was acknowledged
/// first: a fork at a turn that a session merely carries over from another refers to that other one. The checkpoint's
/// recorded origin tells which; whoever makes the link can read it, this module cannot.
///
/// A session that the lookup does not know is still named, with the agent and folder of its child, and ends the climb.
pub fn ancestors(head: &UpstreamId, lookup: impl Fn(&UpstreamId) -> Option<LinkOrigin>) -> Vec<Ancestor> {
    let mut climbed = Vec::new();
    let mut seen = HashSet::from([head.clone()]);
    let mut child = lookup(head);
    while let Some(origin) = child.take() {
        let Some(from) = parent(&origin, &mut seen) else {
            break;
        };
        let known = lookup(&from);
        climbed.push(Ancestor {
            agent: known.as_ref().map_or(origin.agent, |known| known.agent.clone()),
            cwd: known.as_ref().map_or(origin.cwd, |known| known.cwd.clone()),
            turns: known.as_ref().map_or(0, |known| known.turns),
            upstream_id: from,
            cut_at: origin.from_checkpoint_id,
            relation_of_child: origin.relation,
        });
        child = known;
    }
    climbed
}

/// The transcripts that together hold the head's history, oldest first; the head itself is the last.
///
/// A session that starts fresh is enough by itself, and one that carries the history of another holds as much as that
/// one's file does: what that one follows precedes both. One that follows is preceded by the history of its ancestor up to
/// the place that it referred to.
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

/// The session to climb to next: none past a fresh start, without a reference, or where the references close a ring.
fn parent(origin: &LinkOrigin, seen: &mut HashSet<UpstreamId>) -> Option<UpstreamId> {
    if origin.relation == Relation::Fresh {
        return None;
    }
    let from = origin.from_upstream_id.clone()?;
    seen.insert(from.clone()).then_some(from)
}

#[cfg(test)]
mod tests;
