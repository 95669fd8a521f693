//! Finds the change that an undo reverts: the last edit, fork in place, move, reset or clear in a lineage that was not yet
//! undone, or the last roll that replaced a whole session with less history.

use bridge_protocol::UpstreamId;
use bridge_protocol::link::{LineageEntry, LineageReason, Link, LinkReason, Relation, RollCause};

use super::{NewLink, Origins};

/// The effect of an undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UndoEffect {
    /// An earlier head becomes the head again.
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
    /// The reason of the change that left it. `None` if the conversation left it automatically, because its agent did not open
    /// it.
    pub left_by: Option<LineageReason>,
    /// How many turns were acknowledged in the abandoned branch.
    pub dropped_turns: u64,
    /// Whether the reverted change was made within one folder. Then the conversation stays in its present folder, even if the
    /// session was left behind in another one. A reset returns to the folder of its head.
    pub keeps_folder: bool,
}

/// The sessions since the last branch or reset, the head last.
#[derive(Default)]
struct Branch {
    sessions: Vec<UpstreamId>,
    /// As in [`EarlierHead`]; also `None` for the current branch.
    left_by: Option<LineageReason>,
    /// As in [`EarlierHead`].
    keeps_folder: bool,
}

impl Branch {
    /// Begins another branch, and returns this one.
    fn abandon(&mut self, left_by: Option<LineageReason>, keeps_folder: bool) -> Self {
        Self {
            left_by,
            keeps_folder,
            ..std::mem::take(self)
        }
    }
}

/// A change that can be undone.
enum UndoableChange {
    Branched(Branch),
    Moved { from: String },
}

/// The changes that can be undone, with the next one to undo last, and the current branch.
struct UndoStack {
    changes: Vec<UndoableChange>,
    current: Branch,
}

/// Returns the effect of the next undo. `None` if there is nothing to undo. The lineage is ordered oldest first.
/// `is_passed_over`: whether to skip a change and undo the one before it.
///
/// An undo never reverts another undo. After two edits, the first undo returns to the head before the second edit, and
/// the next undo to the head before the first edit. Automatic changes since then (a repair, or a roll that left no session
/// that can be restored) belong to the abandoned branch.
#[must_use]
pub fn next_undo(
    lineage: &[LineageEntry],
    links: &[Link],
    mut is_passed_over: impl FnMut(&UndoEffect) -> bool,
) -> Option<UndoEffect> {
    let UndoStack {
        changes: mut done,
        mut current,
    } = read_undo_stack(lineage);
    let cwd = links.last().map(|head| &head.cwd);
    loop {
        let (effect, branch) = match done.pop()? {
            // The folder was moved back while the chain was empty, so no entry records that.
            UndoableChange::Moved { from } if Some(&from) == cwd => continue,
            UndoableChange::Moved { from } => (UndoEffect::Move { cwd: from }, None),
            UndoableChange::Branched(branch) => {
                let earlier = earlier_head(&branch, &current, lineage, links)?;
                (UndoEffect::Branch(Box::new(earlier)), Some(branch))
            }
        };
        if !is_passed_over(&effect) {
            return Some(effect);
        }
        if let Some(mut branch) = branch {
            branch.sessions.append(&mut current.sessions);
            current = branch;
        }
    }
}

/// Whether a move from this folder was not undone yet, even if other changes followed it.
#[must_use]
pub fn has_moved_from(folder: &str, lineage: &[LineageEntry]) -> bool {
    move_from(folder, &read_undo_stack(lineage).changes).is_some()
}

/// Returns the index of the last move from this folder.
fn move_from(folder: &str, done: &[UndoableChange]) -> Option<usize> {
    done.iter()
        .rposition(|done| matches!(done, UndoableChange::Moved { from } if from == folder))
}

/// Returns the undo that restores the latest abandoned branch with this session. It reverts all changes since then.
/// `None` if no branch that can be brought back has the session.
#[must_use]
pub fn undo_to(session: &UpstreamId, lineage: &[LineageEntry], links: &[Link]) -> Option<UndoEffect> {
    let UndoStack {
        changes: done,
        current,
    } = read_undo_stack(lineage);
    let branches = done.iter().filter_map(|done| match done {
        UndoableChange::Branched(branch) => Some(branch),
        UndoableChange::Moved { .. } => None,
    });
    let branches: Vec<&Branch> = branches.collect();
    let found = branches
        .iter()
        .rposition(|branch| branch.sessions.contains(session))?;
    // What the conversation left automatically is part of the branch that the user left.
    let earlier = branches[found..].iter().find(|branch| branch.left_by.is_some())?;
    let earlier = earlier_head(earlier, &current, lineage, links)?;
    Some(UndoEffect::Branch(Box::new(EarlierHead {
        keeps_folder: false,
        ..earlier
    })))
}

/// Whether a session ever had content, as far as the lineage shows. Unacknowledged turns count too, because the
/// transcript may have them. An entry shows content by `written`, by an origin, or by a roll, because only a written
/// head rolls.
fn had_history(lineage: &[LineageEntry], id: &UpstreamId) -> bool {
    let mut entries = lineage.iter().filter(|entry| entry.upstream_id == *id);
    entries.any(|entry| {
        entry.written
            || entry.turns + entry.carried_turns > 0
            || entry.relation != Relation::Fresh
            || entry.reason == LineageReason::Rolled
    })
}

fn read_undo_stack(lineage: &[LineageEntry]) -> UndoStack {
    let mut done: Vec<UndoableChange> = Vec::new();
    let (mut current, mut cwd) = (Branch::default(), "");
    for entry in lineage {
        match entry.reason {
            LineageReason::Reset => {
                let cleared = current.abandon(Some(entry.reason), false);
                // A reset of sessions without content removed nothing, so it cannot be undone.
                if cleared.sessions.iter().any(|id| had_history(lineage, id)) {
                    done.push(UndoableChange::Branched(cleared));
                }
                continue;
            }
            LineageReason::Deleted => {
                done.clear();
                current = Branch::default();
                continue;
            }
            LineageReason::Abandoned => continue,
            // Sessions other than the head move with it, or leave the chain.
            LineageReason::Moved | LineageReason::Updated
                if current.sessions.last() != Some(&entry.upstream_id) =>
            {
                continue;
            }
            LineageReason::Moved => done.push(UndoableChange::Moved { from: cwd.to_owned() }),
            // The user cleared the agent's context. The lineage may not have the turns before that yet, so they are
            // not checked.
            LineageReason::Rolled
                if entry.cause == Some(RollCause::Cleared) && !current.sessions.is_empty() =>
            {
                done.push(UndoableChange::Branched(
                    current.abandon(Some(entry.reason), true),
                ));
            }
            // If there is no session before it, the conversation was forked from another one.
            LineageReason::Forked | LineageReason::Edited if !current.sessions.is_empty() => {
                done.push(UndoableChange::Branched(
                    current.abandon(Some(entry.reason), entry.cwd == cwd),
                ));
            }
            LineageReason::Undone => match move_from(&entry.cwd, &done) {
                // The folder was moved back with all its conversations: undo only the move, and keep the changes since
                // then.
                Some(index) if current.sessions.last() == Some(&entry.upstream_id) => {
                    done.remove(index);
                }
                // Changes after the branch are undone with it, but not the moves of a conversation that stays in its folder.
                _ => {
                    let is_branch = |done: &UndoableChange| matches!(done, UndoableChange::Branched(branch) if branch.sessions.last() == Some(&entry.upstream_id));
                    if let Some(index) = done.iter().rposition(is_branch) {
                        let mut undone = done.split_off(index).into_iter();
                        if let Some(UndoableChange::Branched(earlier)) = undone.next() {
                            current = earlier;
                        }
                        let stays = entry.cwd == cwd;
                        done.extend(
                            undone.filter(|done| stays && matches!(done, UndoableChange::Moved { .. })),
                        );
                    }
                }
            },
            // The agent may open the session again later.
            LineageReason::Rolled
                if entry
                    .refused_head()
                    .is_some_and(|head| current.sessions.last() == Some(head)) =>
            {
                done.push(UndoableChange::Branched(current.abandon(None, true)));
            }
            // The conversation returned automatically to the source of its branch, because the branch was lost.
            _ if matches!(done.last(), Some(UndoableChange::Branched(earlier)) if earlier.sessions.last() == Some(&entry.upstream_id)) => {
                if let Some(UndoableChange::Branched(earlier)) = done.pop() {
                    current = earlier;
                }
            }
            _ => {}
        }
        cwd = &entry.cwd;
        current.sessions.retain(|id| *id != entry.upstream_id);
        current.sessions.push(entry.upstream_id.clone());
    }
    UndoStack {
        changes: done,
        current,
    }
}

/// Returns the head of an abandoned branch, as a link.
fn earlier_head(
    earlier: &Branch,
    current: &Branch,
    lineage: &[LineageEntry],
    links: &[Link],
) -> Option<EarlierHead> {
    let target = earlier.sessions.last()?.clone();
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
    Some(EarlierHead {
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
            // Only the head can be unwritten, and a reset logs whether it was.
            written: match link {
                Some(link) => link.written,
                None => entries()
                    .next_back()
                    .is_none_or(|last| last.written || last.reason != LineageReason::Reset),
            },
            upstream_id: target,
        },
        left_by: earlier.left_by,
        dropped_turns: dropped,
        keeps_folder: earlier.keeps_folder,
    })
}

#[cfg(test)]
mod tests {
    use bridge_protocol::link::{Attempt, Fidelity, Via};
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

    /// The chain and its lineage after some steps.
    struct Past {
        chain: Chain,
        lineage: Vec<LineageEntry>,
        /// Whether the sessions that their agent did not open cannot be brought back any more.
        is_lost: bool,
    }

    impl Past {
        /// A session that is lost is not gone back to after the conversation has left it automatically.
        fn passes_over(&self, next: &UndoEffect) -> bool {
            self.is_lost && matches!(next, UndoEffect::Branch(earlier) if earlier.left_by.is_none())
        }

        fn new() -> Self {
            Self {
                chain: Chain::default(),
                lineage: Vec::new(),
                is_lost: false,
            }
        }

        /// The agent opens neither the head nor a copy of it.
        fn refused(mut self, id: &str, fidelity: Fidelity) -> Self {
            let head = self.chain.head().unwrap().upstream_id.clone();
            let link = link(id, LinkReason::Rolled, Some(head.as_str()), 0);
            let appended = self.chain.append(link, fidelity, Timestamp::UNIX_EPOCH);
            self.lineage.extend(appended.entries);
            self.lineage.last_mut().unwrap().attempts = [Via::Resume, Via::Copied]
                .map(|via| Attempt {
                    upstream_id: Some(head.clone()),
                    via,
                    error: Some("internal error".to_owned()),
                })
                .to_vec();
            self
        }

        fn then(mut self, id: &str, reason: LinkReason, from: Option<&str>) -> Self {
            let appended =
                self.chain
                    .append(link(id, reason, from, 0), Fidelity::Full, Timestamp::UNIX_EPOCH);
            self.lineage.extend(appended.entries);
            self
        }

        fn unwritten(mut self, id: &str) -> Self {
            let link = NewLink {
                written: false,
                ..link(id, LinkReason::Created, None, 0)
            };
            let appended = self.chain.append(link, Fidelity::Full, Timestamp::UNIX_EPOCH);
            self.lineage.extend(appended.entries);
            self
        }

        fn prompted(mut self) -> Self {
            self.chain.mark_written();
            self
        }

        fn turns(mut self, turns: usize) -> Self {
            for _ in 0..turns {
                self.chain.acknowledge_turn();
            }
            self
        }

        fn next(&self) -> Option<(String, u64)> {
            match next_undo(&self.lineage, self.chain.links(), |next| self.passes_over(next))? {
                UndoEffect::Branch(earlier) => Some((
                    earlier.link.upstream_id.as_str().to_owned(),
                    earlier.dropped_turns,
                )),
                UndoEffect::Move { cwd } => Some((cwd, 0)),
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
            let undoing =
                match next_undo(&self.lineage, self.chain.links(), |next| self.passes_over(next)).unwrap() {
                    UndoEffect::Branch(earlier) => *earlier,
                    UndoEffect::Move { cwd } => return self.moved(&cwd, LinkReason::Undone),
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
    fn a_move_that_was_undone_with_its_folder_leaves_what_was_done_since() {
        let moved = || {
            let past = Past::new().then("a", LinkReason::Created, None).turns(3);
            past.moved("/new", LinkReason::Moved)
        };
        let old = moved().lineage[0].cwd.clone();
        let edited = moved().then("b", LinkReason::Edited, Some("a")).turns(1);
        assert!(has_moved_from(&old, &edited.lineage));
        let back = edited.moved(&old, LinkReason::Undone);
        assert!(!has_moved_from(&old, &back.lineage));
        assert_eq!(back.next(), to("a", 1));
        assert_eq!(back.undone().next(), None);
        // A reset leaves no session that could say that its folder was moved back.
        let mut back = moved().reset().undone();
        let to_old = |_: &Link, _| Some(old.clone());
        let _unheard = back
            .chain
            .relocate(to_old, LinkReason::Undone, Timestamp::UNIX_EPOCH);
        assert_eq!(back.next(), None);
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
        // The next change can be undone again.
        let past = past.then("d", LinkReason::Edited, Some("a"));
        assert_eq!(past.next(), to("a", 0));
    }

    #[test]
    fn automatic_changes_belong_to_the_branch() {
        let past = Past::new().then("a", LinkReason::Created, None).turns(1);
        let past = past.then("b", LinkReason::Forked, Some("a")).turns(1);
        let past = past.then("c", LinkReason::Rolled, Some("b")).turns(2);
        let past = past.then("d", LinkReason::Copied, Some("c"));
        assert_eq!(past.next(), to("a", 3));
        let past = past.undone();
        assert_eq!(past.next(), None);
    }

    #[test]
    fn a_roll_that_left_a_whole_session_for_less_can_be_undone() {
        let edited = || {
            let past = Past::new().then("a", LinkReason::Created, None).turns(1);
            past.then("b", LinkReason::Edited, Some("a")).turns(2)
        };
        let past = edited().refused("c", Fidelity::Text).turns(3);
        assert_eq!(past.next(), to("b", 3));
        let past = past.undone();
        assert_eq!(past.chain.head().unwrap().turns, 2);
        assert_eq!(past.next(), to("a", 2));
        // The agent refuses it again.
        let past = past.refused("d", Fidelity::Partial).turns(1);
        assert_eq!(past.next(), to("b", 1));
        // With a reset, the roll is part of what the reset left.
        let past = past.reset();
        assert_eq!(past.next(), to("d", 0));
        let found = undo_to(&"b".into(), &past.lineage, past.chain.links());
        assert!(
            matches!(found, Some(UndoEffect::Branch(earlier)) if earlier.link.upstream_id.as_str() == "d")
        );
        assert_eq!(past.undone().next(), to("b", 1));
        // An undo passes over a session that can no longer be brought back, and drops its turns too.
        let mut past = edited().refused("c", Fidelity::Text).turns(3);
        past.is_lost = true;
        assert_eq!(past.next(), to("a", 5));
        let past = edited().refused("c", Fidelity::Full).turns(3);
        assert_eq!(past.next(), to("a", 5), "nothing was lost");
    }

    #[test]
    fn a_branch_that_returned_to_its_source_automatically_cannot_be_undone() {
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
    fn a_reset_is_undone_first_and_earlier_changes_afterwards() {
        let past = Past::new().then("a", LinkReason::Created, None).turns(3);
        let past = past.then("b", LinkReason::Edited, Some("a")).turns(1);
        let past = past.reset();
        assert_eq!(past.next(), to("b", 0));
        // A reset of an empty conversation, or of a session without content, takes nothing away.
        let past = past.reset().unwritten("empty").reset();
        assert_eq!(past.next(), to("b", 0));
        let past = past.then("c", LinkReason::Created, None).turns(2);
        assert_eq!(past.next(), to("b", 2));
        let past = past.undone();
        assert_eq!(past.next(), to("a", 1));
        assert_eq!(past.undone().next(), None);
    }

    #[test]
    fn unacknowledged_work_is_brought_back_too() {
        let past = Past::new().unwritten("a").turns(1).reset();
        let past = past.unwritten("b").prompted().reset();
        assert_eq!(past.next(), to("b", 0));
        // The session that it followed had turns, or the user cleared it.
        for from in [Some("b"), None] {
            let past = Past::new().unwritten("a").turns(1).reset();
            let past = past.unwritten("b").turns(2);
            let past = past.then("c", LinkReason::Rolled, from).reset();
            assert_eq!(past.next(), to("c", 0));
        }
    }

    #[test]
    fn an_undo_to_a_session_takes_back_everything_after_it() {
        let past = Past::new().unwritten("a").turns(1).reset();
        let past = past.unwritten("b").turns(1);
        let past = past
            .then("c", LinkReason::Rolled, Some("b"))
            .moved("/d", LinkReason::Moved);
        let mut past = past.unwritten("e").turns(2).reset();
        for (session, head) in [("x", None), ("a", Some("a")), ("c", Some("e")), ("b", Some("e"))] {
            let found = undo_to(&session.into(), &past.lineage, past.chain.links());
            let found = found.map(|found| match found {
                UndoEffect::Branch(earlier) => earlier.link.upstream_id,
                UndoEffect::Move { cwd } => panic!("{cwd}"),
            });
            assert_eq!(found, head.map(UpstreamId::from), "{session}");
        }
        let Some(UndoEffect::Branch(to_a)) = undo_to(&"a".into(), &past.lineage, &[]) else {
            panic!("a can be brought back");
        };
        let appended = past
            .chain
            .append(to_a.link, Fidelity::Full, Timestamp::UNIX_EPOCH);
        past.lineage.extend(appended.entries);
        assert_eq!(past.next(), None);
    }

    #[test]
    fn an_abandoned_branch_cannot_be_undone() {
        let mut past = Past::new().then("a", LinkReason::Created, None).turns(1);
        let entry = past.chain.log_abandoned_branch(
            link("b", LinkReason::Edited, Some("a"), 0),
            Fidelity::Full,
            Timestamp::UNIX_EPOCH,
        );
        past.lineage.extend(entry);
        assert_eq!(past.next(), None);
    }

    #[test]
    fn a_head_that_left_the_chain_is_read_from_the_lineage() {
        let mut past = Past::new().then("a", LinkReason::Created, None).turns(2);
        past = past.then("b", LinkReason::Edited, Some("a")).turns(1);
        for number in 0..20 {
            past = past
                .then(&format!("r{number}"), LinkReason::Rolled, Some("b"))
                .turns(1);
        }
        assert!(!past.chain.contains(&"a".into()));
        // Links that left the chain are in the lineage with their state when they were added.
        let (id, _) = past.next().unwrap();
        assert_eq!(id, "a");
        let past = past.undone();
        assert_eq!(past.chain.head().unwrap().cwd, "/a");
        assert!(past.chain.head().unwrap().written);
    }
}
