//! Restores a chain from links and a lineage that were stored elsewhere.
//!
//! This module owns the conditions that imported links and lineage entries must meet. It does not know where they come
//! from.

use std::collections::BTreeSet;

use bridge_protocol::link::{Fidelity, LineageEntry, LineageReason, Link};
use jiff::Timestamp;

use super::{CHAIN_LIMIT, Chain};

/// Why links and a lineage cannot belong to one conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainFault {
    /// The chain has too many links.
    #[error("its chain has more than {CHAIN_LIMIT} links")]
    TooLong,
    /// A link has no session, or two links have the same one.
    #[error("its chain has a link with a missing or repeated session")]
    InvalidLink,
    /// The entries are not numbered 1, 2, 3 and so on.
    #[error("an entry of its lineage is missing")]
    MissingEntry,
    /// The lineage has no entry for a link.
    #[error("its lineage has no entry for the session of a link")]
    UnknownLink,
}

impl Chain {
    /// Creates the chain with these links and this lineage.
    ///
    /// # Errors
    /// See [`ChainFault`].
    pub fn from_parts(links: Vec<Link>, lineage: &[LineageEntry]) -> Result<Self, ChainFault> {
        if links.len() > CHAIN_LIMIT {
            return Err(ChainFault::TooLong);
        }
        let mut seen = BTreeSet::new();
        let is_valid = |link: &Link| {
            let id = link.upstream_id.as_str();
            !id.is_empty() && id.trim() == id && seen.insert(id.to_owned())
        };
        if !links.iter().all(is_valid) {
            return Err(ChainFault::InvalidLink);
        }
        if lineage.iter().zip(1..).any(|(entry, seq)| entry.seq != seq) {
            return Err(ChainFault::MissingEntry);
        }
        let is_logged = |link: &Link| lineage.iter().any(|entry| entry.upstream_id == link.upstream_id);
        if !links.iter().all(is_logged) {
            return Err(ChainFault::UnknownLink);
        }
        Ok(Self {
            links,
            next_lineage_seq: lineage.len() as u64 + 1,
        })
    }

    /// Logs that the head's transcript was restored from a backup. The links do not change. `None` if there is no
    /// head.
    #[must_use = "the lineage entry has to be written with the chain, in one change"]
    pub fn log_restored(&mut self, fidelity: Fidelity, at: Timestamp) -> Option<LineageEntry> {
        let mut head = self.head()?.clone();
        head.at = at;
        head.cause = None;
        Some(self.log(&head, LineageReason::Restored, fidelity))
    }
}

#[cfg(test)]
mod tests {
    use bridge_protocol::link::{LinkReason, Relation};

    use super::super::{NewLink, Origins};
    use super::*;

    fn made() -> (Chain, Vec<LineageEntry>) {
        let mut chain = Chain::default();
        let mut lineage = Vec::new();
        for (id, from) in [("s1", None), ("s2", Some("s1"))] {
            let link = NewLink {
                upstream_id: id.into(),
                agent: "claude".into(),
                cwd: "/home/u".to_owned(),
                reason: LinkReason::Forked,
                relation: Relation::Carries,
                from_upstream_id: from.map(Into::into),
                from_checkpoint_id: from.map(|_| "cp".into()),
                cause: None,
                turns: 1,
                carried_turns: 0,
                written: true,
            };
            lineage.extend(chain.append(link, Fidelity::Full, Timestamp::UNIX_EPOCH).entries);
        }
        (chain, lineage)
    }

    #[test]
    fn a_chain_can_be_rebuilt_from_its_parts() {
        let (chain, lineage) = made();
        assert_eq!(Chain::from_parts(chain.links().to_vec(), &lineage), Ok(chain));
        assert_eq!(Chain::from_parts(Vec::new(), &[]), Ok(Chain::default()));
    }

    #[test]
    fn inconsistent_parts_are_refused() {
        let (chain, lineage) = made();
        let links = chain.links();
        let mut nameless = links.to_vec();
        nameless[0].upstream_id = "".into();
        let twice = vec![links[0].clone(), links[0].clone()];
        let many = vec![links[0].clone(); CHAIN_LIMIT + 1];
        let mut unknown = links.to_vec();
        unknown[1].upstream_id = "s3".into();
        let mut holed = lineage.clone();
        holed[1].seq = 3;
        for (links, lineage, fault) in [
            (nameless, &lineage, ChainFault::InvalidLink),
            (twice, &lineage, ChainFault::InvalidLink),
            (many, &lineage, ChainFault::TooLong),
            (unknown, &lineage, ChainFault::UnknownLink),
            (links.to_vec(), &holed, ChainFault::MissingEntry),
        ] {
            assert_eq!(Chain::from_parts(links, lineage), Err(fault));
        }
    }

    #[test]
    fn a_restore_does_not_change_links_or_origins() {
        let (mut chain, mut lineage) = made();
        let links = chain.links().to_vec();
        let before = Origins::collect(&lineage, &links).get(&"s2".into());
        let entry = chain.log_restored(Fidelity::Full, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!((entry.seq, entry.reason), (3, LineageReason::Restored));
        lineage.push(entry);
        assert_eq!(chain.links(), links);
        assert_eq!(Origins::collect(&lineage, &links).get(&"s2".into()), before);
        assert_eq!(chain.last_lineage_seq(), 3);
        assert!(
            Chain::default()
                .log_restored(Fidelity::Full, Timestamp::UNIX_EPOCH)
                .is_none()
        );
    }
}
