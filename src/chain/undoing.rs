//! What an undo takes back: the last edit, fork in place, move or reset of a lineage that was not undone yet.

use bridge_protocol::UpstreamId;
use bridge_protocol::link::{LineageEntry, LineageReason, Link, LinkReason, Relation};

use super::{NewLink, Origins};

/// What an undo does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undoing {
    /// An earlier head is the head again.
    Branch(Box<EarlierHead>),
    /// The conversation returns to an earlier folder.
    Move {
        /// The folder.
        cwd: String,
    },
}

/// The head before a branch or a reset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierHead {
    /// Its link.
    pub link: NewLink,
    /// How many turns were acknowledged on the branch that is left.
    pub dropped: u64,
}

/// The sessions of the history since its last branch or reset, the head last.
#[derive(Default)]
struct Branch {
    sessions: Vec<UpstreamId>,
}

/// Something that can be undone.
enum Done {
    Branched(Branch),
    Moved { from: String },
}

/// What the next undo takes back; none if nothing is left to undo. The lineage comes oldest first.
///
/// An undo never takes back another undo: after two edits the first undo leads to the head before the second edit, the next one
/// to the head before the first. What happened automatically since (a roll, a repair) belongs to the branch that is left.
#[must_use]
pub fn undoing(lineage: &[LineageEntry], links: &[Link]) -> Option<Undoing> {
    let has_turns = |id: &UpstreamId| {
        let entries = lineage.iter().filter(|entry| entry.upstream_id == *id);
        entries
            .map(|entry| entry.turns + entry.carried_turns)
            .any(|turns| turns > 0)
    };
    let mut done: Vec<Done> = Vec::new();
    let (mut current, mut cwd) = (Branch::default(), "");
    for entry in lineage {
        match entry.reason {
            LineageReason::Reset => {
                let cleared = std::mem::take(&mut current);
                // A reset of a history without turns took nothing away.
                if cleared.sessions.iter().any(has_turns) {
                    done.push(Done::Branched(cleared));
                }
                continue;
            }
            LineageReason::Deleted => {
                done.clear();
                current = Branch::default();
                continue;
            }
            LineageReason::Abandoned => continue,
            // Sessions that are not the head move along.
            LineageReason::Moved if current.sessions.last() != Some(&entry.upstream_id) => continue,
            LineageReason::Moved => done.push(Done::Moved { from: cwd.to_owned() }),
            // The first one begins a conversation that was forked from another.
            LineageReason::Forked | LineageReason::Edited if !current.sessions.is_empty() => {
                done.push(Done::Branched(std::mem::take(&mut current)));
            }
            LineageReason::Undone => match done.pop() {
                Some(Done::Branched(earlier)) => current = earlier,
                Some(Done::Moved { .. }) | None => {}
            },
            // A branch that was lost: the conversation returned to its source automatically.
            _ if matches!(done.last(), Some(Done::Branched(earlier)) if earlier.sessions.last() == Some(&entry.upstream_id)) => {
                if let Some(Done::Branched(earlier)) = done.pop() {
                    current = earlier;
                }
            }
            _ => {}
        }
        cwd = &entry.cwd;
        current.sessions.retain(|id| *id != entry.upstream_id);
        current.sessions.push(entry.upstream_id.clone());
    }
    let target = match done.pop()? {
        Done::Moved { from } => return Some(Undoing::Move { cwd: from }),
        Done::Branched(mut earlier) => earlier.sessions.pop()?,
    };
    let turns_of = |id: &UpstreamId| {
        let of_chain = links.iter().filter(|link| link.upstream_id == *id);
        let of_lineage = lineage.iter().filter(|entry| entry.upstream_id == *id);
        let turns = of_chain.map(|link| link.turns);
        turns
            .chain(of_lineage.map(|entry| entry.turns))
            .max()
            .unwrap_or(0)
    };
    let dropped = current.sessions.iter().map(turns_of).sum();
    let origin = Origins::collect(lineage, links).get(&target)?;
    let entries = || lineage.iter().filter(|entry| entry.upstream_id == target);
    let link = links.iter().find(|link| link.upstream_id == target);
    Some(Undoing::Branch(Box::new(EarlierHead {
        link: NewLink {
            agent: origin.agent,
            cwd: origin.cwd,
            reason: LinkReason::Undone,
            relation: match origin.from_upstream_id {
                Some(_) => origin.relation,
                None => Relation::Fresh,
            },
            from_upstream_id: origin.from_upstream_id,
            from_checkpoint_id: origin.from_checkpoint_id,
            cause: None,
            turns: turns_of(&target),
            carried_turns: link
                .map_or(0, |link| link.carried_turns)
                .max(entries().map(|entry| entry.carried_turns).max().unwrap_or(0)),
            // What has left the chain is not known to have no transcript, and one that has none is made again.
            written: link.is_none_or(|link| link.written),
            upstream_id: target,
        },
        dropped,
    })))
}

#[cfg(test)]
mod tests {
    use bridge_protocol::link::Fidelity;
    use jiff::Timestamp;

    use super::*;
    use crate::chain::{Chain, ClearReason};

    fn link(id: &str, reason: LinkReason, from: Option<&str>, turns: u64) -> NewLink {
        NewLink {
            upstream_id: id.into(),
            agent: "loopback".into(),
            cwd: format!("/{id}"),
            reason,
            relation: from.map_or(Relation::Fresh, |_| Relation::Carries),
            from_upstream_id: from.map(UpstreamId::from),
            from_checkpoint_id: None,
            cause: None,
            turns,
            carried_turns: 0,
            written: true,
        }
    }

    /// A chain and its lineage after these steps.
    struct Past {
        chain: Chain,
        lineage: Vec<LineageEntry>,
    }

    impl Past {
        fn new() -> Self {
            Self {
                chain: Chain::default(),
                lineage: Vec::new(),
            }
        }

        fn then(mut self, id: &str, reason: LinkReason, from: Option<&str>) -> Self {
            let appended =
                self.chain
                    .append(link(id, reason, from, 0), Fidelity::Full, Timestamp::UNIX_EPOCH);
            self.lineage.extend(appended.entries);
            self
        }

        fn turns(mut self, turns: usize) -> Self {
            for _ in 0..turns {
                self.chain.acknowledge_turn();
            }
            self
        }

        fn next(&self) -> Option<(String, u64)> {
            match undoing(&self.lineage, self.chain.links())? {
                Undoing::Branch(earlier) => {
                    Some((earlier.link.upstream_id.as_str().to_owned(), earlier.dropped))
                }
                Undoing::Move { cwd } => Some((cwd, 0)),
            }
        }

        fn moved(mut self, to: &str, reason: LinkReason) -> Self {
            let from = self.chain.head().unwrap().cwd.clone();
            let target = |link: &Link, is_head: bool| (is_head || link.cwd == from).then(|| to.to_owned());
            let moved = self.chain.relocate(target, reason, Timestamp::UNIX_EPOCH);
            self.lineage.extend(moved.entries);
            self
        }

        fn reset(mut self) -> Self {
            let cleared = self.chain.clear(ClearReason::Reset, Timestamp::UNIX_EPOCH);
            self.lineage.extend(cleared.entries);
            self
        }

        fn undone(mut self) -> Self {
            let undoing = match undoing(&self.lineage, self.chain.links()).unwrap() {
                Undoing::Branch(earlier) => *earlier,
                Undoing::Move { cwd } => return self.moved(&cwd, LinkReason::Undone),
            };
            let appended = self
                .chain
                .append(undoing.link, Fidelity::Full, Timestamp::UNIX_EPOCH);
            self.lineage.extend(appended.entries);
            self
        }
    }

    fn to(id: &str, dropped: u64) -> Option<(String, u64)> {
        Some((id.to_owned(), dropped))
    }

    #[test]
    fn each_undo_takes_back_the_edit_before_the_last() {
        let past = Past::new().then("a", LinkReason::Created, None).turns(3);
        assert_eq!(past.next(), None);
        let past = past.then("b", LinkReason::Edited, Some("a")).turns(1);
        let past = past.then("c", LinkReason::Edited, Some("b")).turns(2);
        assert_eq!(past.next(), to("b", 2));
        let past = past.undone();
        assert_eq!(past.next(), to("a", 1));
        let past = past.turns(4).undone();
        assert_eq!(past.chain.head().unwrap().upstream_id.as_str(), "a");
        assert_eq!(past.chain.head().unwrap().relation, Relation::Fresh);
        assert_eq!(past.chain.head().unwrap().turns, 3);
        assert_eq!(past.next(), None);
        // What is done then can be taken back again.
        let past = past.then("d", LinkReason::Edited, Some("a"));
        assert_eq!(past.next(), to("a", 0));
    }

    #[test]
    fn a_move_is_taken_back_in_its_turn() {
        let past = Past::new().then("a", LinkReason::Created, None).turns(2);
        let past = past.moved("/b", LinkReason::Moved);
        assert_eq!(past.next(), to("/a", 0));
        let past = past.then("b", LinkReason::Edited, Some("a")).turns(1);
        let past = past.moved("/c", LinkReason::Moved);
        // The edit's session was in "/b", and both were there when it was moved.
        assert_eq!(past.next(), to("/b", 0));
        let past = past.undone();
        assert_eq!(past.chain.head().unwrap().cwd, "/b");
        assert_eq!(past.next(), to("a", 1));
        let past = past.undone();
        assert_eq!(past.next(), to("/a", 0));
        let past = past.undone();
        assert_eq!(past.next(), None);
        assert_eq!(past.chain.head().unwrap().reason, LinkReason::Undone);
    }

    #[test]
    fn what_came_by_itself_belongs_to_the_branch() {
        let past = Past::new().then("a", LinkReason::Created, None).turns(1);
        let past = past.then("b", LinkReason::Forked, Some("a")).turns(1);
        let past = past.then("c", LinkReason::Rolled, Some("b")).turns(2);
        let past = past.then("d", LinkReason::Copied, Some("c"));
        assert_eq!(past.next(), to("a", 3));
        let past = past.undone();
        assert_eq!(past.next(), None);
    }

    #[test]
    fn a_branch_that_fell_back_to_its_source_by_itself_is_nothing_to_undo() {
        let past = Past::new().then("a", LinkReason::Created, None).turns(1);
        let past = past.then("b", LinkReason::Edited, Some("a")).turns(1);
        let past = past.then("c", LinkReason::Forked, Some("b"));
        let past = past.then("b", LinkReason::Rolled, None).turns(1);
        assert_eq!(past.next(), to("a", 2));
    }

    #[test]
    fn a_roll_before_an_edit_is_where_the_undo_leads() {
        let past = Past::new().then("a", LinkReason::Created, None).turns(1);
        let past = past.then("b", LinkReason::Rolled, Some("a")).turns(1);
        let past = past.then("c", LinkReason::Edited, Some("b")).turns(1);
        assert_eq!(past.next(), to("b", 1));
    }

    #[test]
    fn a_fork_from_another_conversation_is_a_beginning() {
        let past = Past::new().then("b", LinkReason::Forked, Some("a")).turns(1);
        assert_eq!(past.next(), None);
        let past = past.then("c", LinkReason::Edited, Some("b"));
        assert_eq!(past.next(), to("b", 0));
    }

    #[test]
    fn a_reset_is_undone_and_what_was_before_it_after_that() {
        let past = Past::new().then("a", LinkReason::Created, None).turns(3);
        let past = past.then("b", LinkReason::Edited, Some("a")).turns(1);
        let past = past.reset();
        assert_eq!(past.next(), to("b", 0));
        // A reset of an empty conversation, or of one without turns, takes nothing away.
        let past = past.reset().then("empty", LinkReason::Created, None).reset();
        assert_eq!(past.next(), to("b", 0));
        let past = past.then("c", LinkReason::Created, None).turns(2);
        assert_eq!(past.next(), to("b", 2));
        let past = past.undone();
        assert_eq!(past.next(), to("a", 1));
        assert_eq!(past.undone().next(), None);
    }

    #[test]
    fn an_abandoned_branch_is_nothing_to_undo() {
        let mut past = Past::new().then("a", LinkReason::Created, None).turns(1);
        let entry = past.chain.abandon(
            link("b", LinkReason::Edited, Some("a"), 0),
            Fidelity::Full,
            Timestamp::UNIX_EPOCH,
        );
        past.lineage.extend(entry);
        assert_eq!(past.next(), None);
    }

    #[test]
    fn a_head_that_has_left_the_chain_is_taken_from_the_lineage() {
        let mut past = Past::new().then("a", LinkReason::Created, None).turns(2);
        past = past.then("b", LinkReason::Edited, Some("a")).turns(1);
        for number in 0..20 {
            past = past
                .then(&format!("r{number}"), LinkReason::Rolled, Some("b"))
                .turns(1);
        }
        assert!(!past.chain.contains(&"a".into()));
        // Those that left the chain too are in the lineage with what they had when they came.
        let (id, _) = past.next().unwrap();
        assert_eq!(id, "a");
        let past = past.undone();
        assert_eq!(past.chain.head().unwrap().cwd, "/a");
        assert!(past.chain.head().unwrap().written);
    }
}
