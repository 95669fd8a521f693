//! Maps names of a bundle to names on this machine: session ids, agents and folders. Pure.

use std::collections::BTreeMap;

use bridge_protocol::link::{Attempt, LineageEntry, Link};
use bridge_protocol::{AgentName, CheckpointId, UpstreamId};

use crate::transcript::checkpoint::CheckpointRef;

/// Maps of names in a bundle to local names. A name in no map stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NameTranslation {
    pub(super) sessions: BTreeMap<UpstreamId, UpstreamId>,
    pub(super) agents: BTreeMap<AgentName, AgentName>,
    pub(super) folders: BTreeMap<String, String>,
}

impl NameTranslation {
    pub(super) fn session(&self, id: &UpstreamId) -> UpstreamId {
        self.sessions.get(id).unwrap_or(id).clone()
    }

    pub(super) fn agent(&self, name: &AgentName) -> AgentName {
        self.agents.get(name).unwrap_or(name).clone()
    }

    pub(super) fn folder(&self, cwd: &str) -> String {
        self.folders.get(cwd).map_or(cwd, String::as_str).to_owned()
    }

    /// Translates a checkpoint id. Text that is not a checkpoint id stays as it is.
    pub(super) fn checkpoint(&self, id: &CheckpointId) -> CheckpointId {
        let Ok(place) = id.as_str().parse::<CheckpointRef>() else {
            return id.clone();
        };
        let place = CheckpointRef {
            agent: self.agent(&place.agent.as_str().into()).as_str().to_owned(),
            upstream_id: self
                .session(&place.upstream_id.as_str().into())
                .as_str()
                .to_owned(),
            record_uuid: place.record_uuid,
        };
        CheckpointId::new(place.to_string())
    }

    pub(super) fn link(&self, link: &Link) -> Link {
        Link {
            upstream_id: self.session(&link.upstream_id),
            agent: self.agent(&link.agent),
            cwd: self.folder(&link.cwd),
            from_upstream_id: link.from_upstream_id.as_ref().map(|id| self.session(id)),
            from_checkpoint_id: link.from_checkpoint_id.as_ref().map(|id| self.checkpoint(id)),
            ..link.clone()
        }
    }

    fn attempt(&self, attempt: &Attempt) -> Attempt {
        Attempt {
            upstream_id: attempt.upstream_id.as_ref().map(|id| self.session(id)),
            ..attempt.clone()
        }
    }

    pub(super) fn entry(&self, entry: &LineageEntry) -> LineageEntry {
        LineageEntry {
            upstream_id: self.session(&entry.upstream_id),
            agent: self.agent(&entry.agent),
            cwd: self.folder(&entry.cwd),
            from_upstream_id: entry.from_upstream_id.as_ref().map(|id| self.session(id)),
            from_checkpoint_id: entry.from_checkpoint_id.as_ref().map(|id| self.checkpoint(id)),
            in_chain: false,
            attempts: entry.attempts.iter().map(|tried| self.attempt(tried)).collect(),
            ..entry.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use bridge_protocol::link::{LinkReason, Relation};
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn references_follow_what_they_name() {
        let words = NameTranslation {
            sessions: BTreeMap::from([("s1".into(), "n1".into()), ("s2".into(), "n2".into())]),
            agents: BTreeMap::from([("claude".into(), "work".into())]),
            folders: BTreeMap::from([("/a".to_owned(), "/b".to_owned())]),
        };
        let link = Link {
            upstream_id: "s2".into(),
            agent: "claude".into(),
            cwd: "/a".to_owned(),
            reason: LinkReason::Forked,
            relation: Relation::Follows,
            from_upstream_id: Some("s1".into()),
            from_checkpoint_id: Some("cp.claude.s1.u9".into()),
            turns: 2,
            carried_turns: 1,
            written: true,
            at: Timestamp::UNIX_EPOCH,
            cause: None,
        };
        let expected = Link {
            upstream_id: "n2".into(),
            agent: "work".into(),
            cwd: "/b".to_owned(),
            from_upstream_id: Some("n1".into()),
            from_checkpoint_id: Some("cp.work.n1.u9".into()),
            ..link.clone()
        };
        assert_eq!(words.link(&link), expected);
        assert_eq!(NameTranslation::default().link(&link), link);
        for id in ["cp.other.x.u", "no place at all", "cp.claude"] {
            assert_eq!(words.checkpoint(&id.into()).as_str(), id);
        }
    }
}
