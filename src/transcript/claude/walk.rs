//! Walks along the parents, and collects the records of a branch.

use std::collections::BTreeMap;

use hashbrown::HashTable;

use super::entries::{Entries, ParentLookup, RecordMark};
use super::facts::RecordRole;

/// The records of one branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// The offsets of its records, ascending.
    pub offsets: Vec<u64>,
    /// The offsets of its prompts, ascending.
    pub prompt_offsets: Vec<u64>,
    /// The offset of its last record.
    pub leaf_offset: u64,
    /// The uuid of its last record.
    pub leaf_uuid: String,
    /// Whether it begins with a compaction whose earlier messages are not in this file.
    pub cut_by_compaction: bool,
    /// How many records name a parent that is missing. Something is lost at each of them.
    pub missing_parents: usize,
    /// The offset of the record whose parent is missing, so that it and the newest messages after it are left out.
    pub excluded_offset: Option<u64>,
    /// The newest undamaged branch with messages after this one's end, which is left out.
    pub newer_branch: Option<NewerBranch>,
    /// The offsets of the records whose parent is missing, or closes a circle, with the uuid of the record that replaces the
    /// parent on the branch. `None` if the branch begins with the record.
    pub joins: BTreeMap<u64, Option<String>>,
}

/// An undamaged branch with messages after the end of the branch that a resume continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewerBranch {
    /// The offset of its last message.
    pub offset: u64,
    /// How many messages are only on this branch.
    pub messages: usize,
}

/// The result of a walk along the parents.
#[derive(Debug)]
pub(super) struct Walk {
    leaf: usize,
    on_branch: Vec<bool>,
    pub(super) cut_by_compaction: bool,
    /// How many named parents are missing, or close a circle.
    pub(super) missing_parents: usize,
    /// The record whose missing parent ended the walk, if no other record replaced the parent.
    excluded: Option<usize>,
    /// The records whose parent is missing, with the records that replace the parents.
    joined: Vec<(usize, Option<usize>)>,
    pub(super) newer_branch: Option<NewerBranch>,
}

impl Walk {
    /// Walks from `leaf` to the beginning.
    ///
    /// A missing parent is replaced by the record before in the file, as observed with Claude Code 2.1.316: so only
    /// the damaged record is lost, not everything before it.
    pub(super) fn from(entries: &Entries, leaf: usize, follow_compaction: bool) -> Self {
        let mut walk = Self::starting_at(entries, leaf);
        walk.follow(entries, follow_compaction, true);
        walk.add_parallel_calls(entries, leaf);
        walk
    }

    /// Adds the records that the agent wrote for itself after the end of the branch, up to the next prompt, such as
    /// those that it repeats for the model after a compaction. Does nothing within a turn, because records there, such
    /// as text that the user typed, belong to the rest of that turn.
    pub(super) fn extend_to_next_prompt(&mut self, entries: &Entries) {
        let mut end = self.leaf;
        for (position, parent) in self.descendants(entries, |position| !entries[position].is_sidechain) {
            match entries[position].role {
                RecordRole::Other => end = position,
                RecordRole::Assistant | RecordRole::ToolResult => return,
                _ => {
                    end = parent;
                    break;
                }
            }
        }
        let leaf = self.leaf;
        // At most as many steps as there are records, because parents may form a circle.
        let way_back = entries.ancestors(end).take_while(|position| *position != leaf);
        way_back.for_each(|position| self.on_branch[position] = true);
        self.leaf = end;
    }

    /// Walks from `leaf` as long as the parents exist.
    pub(super) fn unjoined(entries: &Entries, leaf: usize) -> Self {
        let mut walk = Self::starting_at(entries, leaf);
        walk.follow(entries, false, false);
        walk.add_parallel_calls(entries, leaf);
        walk
    }

    /// The last record of the message that contains `leaf`, or of the results of its calls; else `leaf` itself.
    pub(super) fn end_of_calls(entries: &Entries, leaf: usize) -> usize {
        let mut walk = Self::starting_at(entries, leaf);
        walk.follow(entries, false, false);
        let way_back = walk.on_branch.clone();
        walk.add_parallel_calls(entries, entries.len());
        let is_added = |position: &usize| walk.on_branch[*position] && !way_back[*position];
        (leaf..entries.len()).rfind(is_added).unwrap_or(leaf)
    }

    fn starting_at(entries: &Entries, leaf: usize) -> Self {
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

    /// Leaves out the branch of the newest message: counts the missing parent that broke it, and records the newest
    /// undamaged branch after the end of this one.
    pub(super) fn exclude_newest(&mut self, entries: &Entries, from_newest: &Self) {
        let is_broken = from_newest.missing_parents > 0;
        let is_left = |position: &usize| {
            let is_told = self.contains(*position) || (is_broken && from_newest.contains(*position));
            // Of several records with one id, only the last one is used.
            entries[*position].is_message() && !is_told && entries.replaced_by(*position).is_none()
        };
        let newest = (self.leaf + 1..entries.len()).rfind(is_left);
        let newer = newest.map(|newest| Self::unjoined(entries, newest));
        self.newer_branch = newer.filter(|newer| newer.missing_parents == 0).map(|newer| {
            let is_its_own = |position: &usize| entries[*position].is_message() && !self.contains(*position);
            NewerBranch {
                offset: entries[newer.leaf].offset,
                messages: newer.positions().filter(is_its_own).count(),
            }
        });
        self.missing_parents += from_newest.missing_parents;
        self.excluded = from_newest.excluded;
    }

    /// Whether a record is on the branch.
    pub(super) fn contains(&self, position: usize) -> bool {
        self.on_branch[position]
    }

    /// The positions of the branch's records in the index, ascending.
    pub(super) fn positions(&self) -> impl DoubleEndedIterator<Item = usize> {
        let on_branch = self.on_branch.iter().enumerate();
        on_branch.filter(|(_, on)| **on).map(|(position, _)| position)
    }

    /// How many records on the branch are of unknown kinds. Includes records that follow its end without a message, which
    /// may be the last ones that a newer agent wrote.
    pub(super) fn count_unknown(&self, entries: &Entries, is_live: bool) -> usize {
        let on_branch = self
            .positions()
            .filter(|position| entries[*position].mark == RecordMark::Unknown);
        let count = on_branch.count();
        if !is_live
            || !(self.leaf + 1..entries.len()).any(|position| entries[position].mark == RecordMark::Unknown)
        {
            return count;
        }
        let is_attached = |position| entries[position].role == RecordRole::Other && !self.contains(position);
        let attached = self.descendants(entries, is_attached);
        count
            + attached
                .filter(|(position, _)| entries[*position].mark == RecordMark::Unknown)
                .count()
    }

    /// The wanted records after the end of the branch that descend from it through wanted records, with their parents.
    fn descendants<'a>(
        &'a self,
        entries: &'a Entries,
        is_wanted: impl Fn(usize) -> bool + 'a,
    ) -> impl Iterator<Item = (usize, usize)> + 'a {
        // For each record from the end of the branch on.
        let mut descends = vec![true];
        (self.leaf + 1..entries.len()).filter_map(move |position| {
            let descends_from = |parent: usize| {
                parent
                    .checked_sub(self.leaf)
                    .and_then(|behind| descends.get(behind))
                    == Some(&true)
            };
            let parent = match entries.parent(position) {
                ParentLookup::Found(parent) if is_wanted(position) && descends_from(parent) => Some(parent),
                _ => None,
            };
            descends.push(parent.is_some());
            Some((position, parent?))
        })
    }

    fn follow(&mut self, entries: &Entries, follow_compaction: bool, joins: bool) {
        let (mut position, mut path) = (self.leaf, Vec::new());
        loop {
            self.on_branch[position] = true;
            path.push(position);
            let parent = entries.parent(position);
            let (parent, is_logical) = match parent {
                ParentLookup::None if follow_compaction => (entries.logical_parent(position), true),
                parent => (parent, false),
            };
            position = match parent {
                ParentLookup::None => return,
                ParentLookup::Found(next) if !self.on_branch[next] => next,
                ParentLookup::Found(next) => return self.open_circle(&path, next, joins),
                // The part before a compaction is no longer sent to the model, and a fork may omit it.
                ParentLookup::Missing if is_logical => {
                    self.cut_by_compaction = true;
                    return;
                }
                ParentLookup::Missing => {
                    self.missing_parents += 1;
                    if !joins {
                        self.excluded = Some(position);
                        return;
                    }
                    let mut earlier = (0..position).rev();
                    // If several records have one uuid, only the last one can be a parent.
                    let preceding = earlier.find(|earlier| {
                        !entries[*earlier].is_sidechain
                            && !self.on_branch[*earlier]
                            && entries.replaced_by(*earlier).is_none()
                    });
                    self.joined.push((position, preceding));
                    let Some(preceding) = preceding else { return };
                    preceding
                }
            };
        }
    }

    /// Ends a walk that reached one of its own records again: a circle is damage. An agent appends, so the wrong parent is the
    /// one that was written after its child. The walk ends at that child, the first one in the file if there are several.
    fn open_circle(&mut self, path: &[usize], again: usize, joins: bool) {
        let start = path.iter().position(|position| *position == again);
        let circle = &path[start.unwrap_or_default()..];
        let parents = circle.iter().skip(1).chain([&again]);
        let wrong = circle
            .iter()
            .zip(parents)
            .filter(|(child, parent)| parent >= child);
        let first = wrong.map(|(child, _)| *child).min().unwrap_or(again);
        for position in path.iter().rev().take_while(|position| **position != first) {
            self.on_branch[*position] = false;
        }
        let dropped_joins = self
            .joined
            .extract_if(.., |(position, _)| !self.on_branch[*position]);
        self.missing_parents -= dropped_joins.count();
        self.missing_parents += 1;
        self.excluded = (!joins).then_some(first);
        self.joined.push((first, None));
    }

    /// Parallel calls of one reply are siblings, and the chain of parents contains only one of them. The others
    /// before `end` belong to the branch too: blocks of the same message, and results of its calls.
    fn add_parallel_calls(&mut self, entries: &Entries, end: usize) {
        let is_off =
            |on_branch: &[bool], position: usize| !on_branch[position] && !entries[position].is_sidechain;
        let Some(first) = (0..end).find(|position| is_off(&self.on_branch, *position)) else {
            return;
        };
        // The hashes are keyed already, so they need no other hash.
        let mut messages: HashTable<u64> = HashTable::new();
        for position in self.positions() {
            let message = entries[position].message_hash;
            if entries[position].role == RecordRole::Assistant && message != 0 {
                let entry = messages.entry(message, |known| *known == message, |known| *known);
                entry.or_insert(message);
            }
        }
        let mut replaced = Vec::new();
        let has_message = |message: u64| messages.find(message, |known| *known == message).is_some();
        for position in first..end {
            if !is_off(&self.on_branch, position) {
                continue;
            }
            let ParentLookup::Found(parent) = entries.parent(position) else {
                continue;
            };
            // Of several records with one id, only the last one is used, and it is on the branch already.
            if entries
                .replaced_by(position)
                .is_some_and(|last| self.on_branch[last])
            {
                continue;
            }
            let is_spoke = self.on_branch[parent]
                && match entries[position].role {
                    RecordRole::Assistant => has_message(entries[position].message_hash),
                    RecordRole::ToolResult => has_message(entries[parent].message_hash),
                    _ => false,
                };
            self.on_branch[position] = is_spoke;
            if is_spoke && entries.replaced_by(position).is_some() {
                replaced.push(position);
            }
        }
        // Records whose last duplicate was added to the branch after them.
        for position in replaced {
            let last = entries.replaced_by(position);
            self.on_branch[position] = !last.is_some_and(|last| self.on_branch[last]);
        }
    }
}

impl Selection {
    pub(super) fn of(entries: &Entries, walk: &Walk) -> Self {
        let joins = walk.joined.iter().map(|(position, preceding)| {
            let parent = preceding.map(|preceding| entries[preceding].id.text());
            (entries[*position].offset, parent)
        });
        let is_prompt = |position: &usize| entries[*position].role == RecordRole::Prompt;
        let offset = |position| entries[position].offset;
        Self {
            offsets: walk.positions().map(offset).collect(),
            prompt_offsets: walk.positions().filter(is_prompt).map(offset).collect(),
            leaf_offset: entries[walk.leaf].offset,
            leaf_uuid: entries[walk.leaf].id.text(),
            cut_by_compaction: walk.cut_by_compaction,
            missing_parents: walk.missing_parents,
            excluded_offset: walk.excluded.map(|left| entries[left].offset),
            joins: joins.collect(),
            newer_branch: walk.newer_branch,
        }
    }

    /// Whether the record that begins at `offset` is on the branch.
    #[must_use]
    pub fn contains(&self, offset: u64) -> bool {
        self.offsets.binary_search(&offset).is_ok()
    }
}
