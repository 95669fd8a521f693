//! The way along the parents, and the records that belong to a branch.

use hashbrown::HashTable;

use super::entries::{Entries, Parent};
use super::facts::Role;

/// The records of one branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// Where its records begin, ascending.
    pub offsets: Vec<u64>,
    /// Where its prompts begin, ascending.
    pub prompt_offsets: Vec<u64>,
    /// Where its last record begins.
    pub leaf_offset: u64,
    /// The uuid of its last record.
    pub leaf_uuid: String,
    /// Whether it begins with a compaction whose past is not in this file.
    pub cut_by_compaction: bool,
    /// How often a parent is named that is not there: each time something is lost.
    pub missing_parents: usize,
    /// Where the record begins whose parents break off, so that it and the newest messages behind it are left out.
    pub excluded_offset: Option<u64>,
    /// The newest branch that is left aside with messages behind this one's end, though nothing in it is broken.
    pub newer_branch: Option<NewerBranch>,
    joins: Vec<Join>,
}

/// A record whose parent is not there, or closes a circle, and what stands before it on the branch instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Join {
    /// Where the record begins.
    pub offset: u64,
    /// The uuid of the record before it; none where the branch begins with it.
    pub parent: Option<String>,
}

/// A branch with messages behind the end of the one that a resume goes on with, in which nothing is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewerBranch {
    /// Where its last message begins.
    pub offset: u64,
    /// How many messages are on it alone.
    pub messages: usize,
}

/// What a walk along the parents found.
#[derive(Debug)]
pub(super) struct Walk {
    leaf: usize,
    on_branch: Vec<bool>,
    pub(super) cut_by_compaction: bool,
    /// How many parents are named and not there, or close a circle.
    pub(super) missing_parents: usize,
    /// The record that names the parent at which the way back broke off, where none was joined to it.
    excluded: Option<usize>,
    /// The records whose parent is not there, with those that were taken in its place.
    joined: Vec<(usize, Option<usize>)>,
    newer_branch: Option<NewerBranch>,
}

impl Walk {
    /// Goes from `leaf` to the beginning.
    ///
    /// Where a parent is named and not there it goes on with the record that stands before, as Claude Code was seen to
    /// do (2.1.316): what is lost is the damaged record alone, not all that came before it.
    pub(super) fn from(entries: &Entries, leaf: usize, follow_compaction: bool) -> Self {
        let mut walk = Self::at(entries, leaf);
        walk.follow(entries, follow_compaction, true);
        walk.add_parallel_calls(entries, leaf);
        walk
    }

    /// Goes on from the end, over what the agent wrote behind it for itself, up to the next prompt: such as what it tells the
    /// model anew behind a compaction. Not within a turn: what stands there, as words that came meanwhile, is of what follows.
    pub(super) fn extend_to_next_prompt(&mut self, entries: &Entries) {
        let behind = self.leaf + 1..entries.len();
        let mut hangs = vec![true];
        let mut end = self.leaf;
        for position in behind {
            let hangs_on = |parent: usize| {
                let behind = parent.checked_sub(self.leaf);
                behind.is_some_and(|behind| hangs.get(behind).copied().unwrap_or(false))
            };
            let parent = match entries.parent(position) {
                Parent::Found(parent) if !entries.is_sidechain(position) && hangs_on(parent) => Some(parent),
                _ => None,
            };
            match (parent, entries.role(position)) {
                (Some(_), Role::Other) => end = position,
                (Some(_), Role::Assistant | Role::ToolResult) => return,
                (Some(parent), _) => {
                    end = parent;
                    break;
                }
                (None, _) => {}
            }
            hangs.push(parent.is_some());
        }
        let leaf = self.leaf;
        // No more steps than there are records: the parents may go round in a circle.
        let way_back = entries.ancestors(end).take_while(|position| *position != leaf);
        way_back.for_each(|position| self.on_branch[position] = true);
        self.leaf = end;
    }

    /// Goes from `leaf` as far as there are parents.
    pub(super) fn unjoined(entries: &Entries, leaf: usize) -> Self {
        let mut walk = Self::at(entries, leaf);
        walk.follow(entries, false, false);
        walk.add_parallel_calls(entries, leaf);
        walk
    }

    /// The last record of the message that `leaf` is a part of, or of the results of its calls; else `leaf` itself.
    pub(super) fn end_of_calls(entries: &Entries, leaf: usize) -> usize {
        let mut walk = Self::at(entries, leaf);
        walk.follow(entries, false, false);
        let way_back = walk.on_branch.clone();
        walk.add_parallel_calls(entries, entries.len());
        let is_added = |position: &usize| walk.on_branch[*position] && !way_back[*position];
        (leaf..entries.len()).rfind(is_added).unwrap_or(leaf)
    }

    fn at(entries: &Entries, leaf: usize) -> Self {
        Self {
            leaf,
            on_branch: vec![false; entries.len()],
            cut_by_compaction: false,
            missing_parents: 0,
            excluded: None,
            joined: Vec::new(),
            newer_branch: None,
        }
    }

    /// Leaves aside the way back from the newest message: counts the break because of which it could not be followed, and
    /// notes the newest branch behind the end of this one that could have been.
    pub(super) fn exclude_newest(&mut self, entries: &Entries, way: &Self) {
        let is_broken = way.missing_parents > 0;
        let is_left = |position: &usize| {
            let is_told = self.contains(*position) || (is_broken && way.contains(*position));
            // Of several with one id the last is meant.
            entries.is_message(*position) && !is_told && entries.replaced_by(*position).is_none()
        };
        let newest = (self.leaf + 1..entries.len()).rfind(is_left);
        let newer = newest.map(|newest| Self::unjoined(entries, newest));
        self.newer_branch = newer.filter(|newer| newer.missing_parents == 0).map(|newer| {
            let is_its_own = |position: &usize| entries.is_message(*position) && !self.contains(*position);
            NewerBranch {
                offset: entries.offset(newer.leaf),
                messages: newer.positions().filter(is_its_own).count(),
            }
        });
        self.missing_parents += way.missing_parents;
        self.excluded = way.excluded;
    }

    /// Whether a record is on it.
    pub(super) fn contains(&self, position: usize) -> bool {
        self.on_branch[position]
    }

    /// Where the branch's records stand in the index, ascending.
    pub(super) fn positions(&self) -> impl Iterator<Item = usize> {
        let on_branch = self.on_branch.iter().enumerate();
        on_branch.filter(|(_, on)| **on).map(|(position, _)| position)
    }

    /// How many records on it are of kinds that are not known, with those that hang on its end and no message with them, as
    /// what a newer agent wrote last may do.
    pub(super) fn unknown(&self, entries: &Entries, is_live: bool) -> usize {
        let on_branch = self.positions().filter(|position| entries.is_unknown(*position));
        let mut count = on_branch.count();
        if !is_live || !(self.leaf + 1..entries.len()).any(|position| entries.is_unknown(position)) {
            return count;
        }
        // What hangs on the end, by how far it stands behind it.
        let mut hangs = vec![true];
        for position in self.leaf + 1..entries.len() {
            let hangs_on = |parent: usize| {
                let behind = parent.checked_sub(self.leaf);
                behind.is_some_and(|behind| hangs.get(behind).copied().unwrap_or(false))
            };
            let is_it = entries.role(position) == Role::Other
                && !self.contains(position)
                && matches!(entries.parent(position), Parent::Found(parent) if hangs_on(parent));
            hangs.push(is_it);
            count += usize::from(is_it && entries.is_unknown(position));
        }
        count
    }

    fn follow(&mut self, entries: &Entries, follow_compaction: bool, joins: bool) {
        let mut position = self.leaf;
        loop {
            self.on_branch[position] = true;
            let parent = entries.parent(position);
            let (parent, is_logical) = match parent {
                Parent::None if follow_compaction => (entries.logical_parent(position), true),
                parent => (parent, false),
            };
            position = match parent {
                Parent::None => return,
                Parent::Found(next) if !self.on_branch[next] => next,
                // A circle is damage; what was gathered so far is all that there is.
                Parent::Found(_) => {
                    self.missing_parents += 1;
                    self.excluded = (!joins).then_some(position);
                    self.joined.push((position, None));
                    return;
                }
                // What was compacted away is no longer part of what the model is sent, and may stay behind in a fork.
                Parent::Missing if is_logical => {
                    self.cut_by_compaction = true;
                    return;
                }
                Parent::Missing => {
                    self.missing_parents += 1;
                    if !joins {
                        self.excluded = Some(position);
                        return;
                    }
                    let mut before = (0..position).rev();
                    // Of several with one uuid only the last is ever reached by it.
                    let before = before.find(|before| {
                        !entries.is_sidechain(*before)
                            && !self.on_branch[*before]
                            && entries.replaced_by(*before).is_none()
                    });
                    self.joined.push((position, before));
                    let Some(before) = before else { return };
                    before
                }
            };
        }
    }

    /// Calls that one reply makes in parallel hang in a fan, of which the chain of parents passes only one
    /// spoke. The others before `end` belong to the branch too: blocks of the same message, and results of its calls.
    fn add_parallel_calls(&mut self, entries: &Entries, end: usize) {
        let is_off =
            |on_branch: &[bool], position: usize| !on_branch[position] && !entries.is_sidechain(position);
        let Some(first) = (0..end).find(|position| is_off(&self.on_branch, *position)) else {
            return;
        };
        // The hashes are keyed already; they need no other to be spread.
        let mut messages: HashTable<u64> = HashTable::new();
        for position in self.positions() {
            let message = entries.message(position);
            if entries.role(position) == Role::Assistant && message != 0 {
                let entry = messages.entry(message, |known| *known == message, |known| *known);
                entry.or_insert(message);
            }
        }
        let mut replaced = Vec::new();
        let holds = |message: u64| messages.find(message, |known| *known == message).is_some();
        for position in first..end {
            if !is_off(&self.on_branch, position) {
                continue;
            }
            let Parent::Found(parent) = entries.parent(position) else {
                continue;
            };
            // Of several with one id the last is meant, and it is on the branch already.
            if entries
                .replaced_by(position)
                .is_some_and(|last| self.on_branch[last])
            {
                continue;
            }
            let is_spoke = self.on_branch[parent]
                && match entries.role(position) {
                    Role::Assistant => holds(entries.message(position)),
                    Role::ToolResult => holds(entries.message(parent)),
                    _ => false,
                };
            self.on_branch[position] = is_spoke;
            if is_spoke && entries.replaced_by(position).is_some() {
                replaced.push(position);
            }
        }
        // Those whose last one has come to the branch behind them.
        for position in replaced {
            let last = entries.replaced_by(position);
            self.on_branch[position] = !last.is_some_and(|last| self.on_branch[last]);
        }
    }
}

impl Selection {
    pub(super) fn of(entries: &Entries, walk: &Walk) -> Self {
        let mut joined = walk.joined.clone();
        joined.sort_unstable();
        let joins = joined
            .into_iter()
            .map(|(position, before)| Join {
                offset: entries.offset(position),
                parent: before.map(|before| entries.id(before).text()),
            })
            .collect();
        let is_prompt = |position: &usize| entries.role(*position) == Role::Prompt;
        let offset = |position| entries.offset(position);
        Self {
            offsets: walk.positions().map(offset).collect(),
            prompt_offsets: walk.positions().filter(is_prompt).map(offset).collect(),
            leaf_offset: entries.offset(walk.leaf),
            leaf_uuid: entries.id(walk.leaf).text(),
            cut_by_compaction: walk.cut_by_compaction,
            missing_parents: walk.missing_parents,
            excluded_offset: walk.excluded.map(|left| entries.offset(left)),
            joins,
            newer_branch: walk.newer_branch,
        }
    }

    /// Where the record that begins at this place goes on with another one than its parent.
    pub(in crate::transcript) fn join_at(&self, offset: u64) -> Option<&Join> {
        let place = self.joins.binary_search_by_key(&offset, |join| join.offset);
        self.joins.get(place.ok()?)
    }

    /// Whether the record that begins at `offset` is on the branch.
    #[must_use]
    pub fn contains(&self, offset: u64) -> bool {
        self.offsets.binary_search(&offset).is_ok()
    }
}
