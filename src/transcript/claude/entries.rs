//! The chain records of an index: 48 bytes each, and some more to find it by its uuid.
//!
//! Ids are stored whole, a uuid in 16 bytes and any other as text, so two records are never mistaken for one. Only
//! `message.id` is stored as a hash, with a random key: if two replies had the same hash, they would be treated as one
//! when parallel calls are collected. No file can cause that on purpose, and chance practically cannot.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::iter::successors;
use std::ops::Index;

use hashbrown::HashTable;

use super::facts::{ChainFacts, LogicalParent, RecordRole};
use crate::transcript::record_id::RecordId;

/// The chain records of a transcript, in the order of the file.
#[derive(Debug, Clone, Default)]
pub(super) struct Entries {
    entries: Vec<ChainEntry>,
    /// The first record with each id.
    first_by_id: HashTable<u32>,
    /// For an id that several records have: the last record, by the first one. The last one is used.
    last_duplicates: HashMap<u32, u32>,
    /// How many bytes the ids take that are not uuids.
    text_bytes: usize,
    /// The parents that were not yet in the file when they were named, by the record that names them.
    unknown_parents: BTreeMap<u32, RecordId>,
    logical_parents: BTreeMap<u32, LogicalParent>,
    hasher: RandomState,
}

/// One record.
#[derive(Debug, Clone)]
pub(super) struct ChainEntry {
    pub(super) offset: u64,
    pub(super) id: RecordId,
    /// The hash of its `message.id`; 0 without one.
    pub(super) message_hash: u64,
    /// The first record with the parent's id.
    parent: u32,
    pub(super) role: RecordRole,
    pub(super) is_sidechain: bool,
    pub(super) mark: RecordMark,
}

// There may be millions of them.
const _: () = assert!(size_of::<ChainEntry>() <= 48);

/// What else is to be known of a record. No record has two of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordMark {
    None,
    /// It names the message in another session of which it is a copy.
    Forked,
    /// It is of an unknown kind, and not a subagent's.
    Unknown,
    /// The user typed it during a turn. It is not a message in Claude Code's file, and a resume chooses its branch by messages
    /// alone, so its role is [`RecordRole::Other`].
    Steering,
}

impl ChainEntry {
    /// Whether it is a message, and not a subagent's.
    pub(super) fn is_message(&self) -> bool {
        self.role != RecordRole::Other && !self.is_sidechain
    }
}

/// The parent of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParentLookup {
    /// The record names none.
    None,
    /// The position of the parent.
    Found(usize),
    /// The record names a parent that is not in the file.
    Missing,
}

const NO_PARENT: u32 = u32::MAX;
const UNKNOWN_PARENT: u32 = u32::MAX - 1;

impl Index<usize> for Entries {
    type Output = ChainEntry;

    fn index(&self, position: usize) -> &ChainEntry {
        &self.entries[position]
    }
}

impl Entries {
    /// Creates empty entries for a later part of the same transcript, to be [appended](Self::append) to these.
    pub(super) fn new_later_part(&self) -> Self {
        Self {
            hasher: self.hasher.clone(),
            ..Self::default()
        }
    }

    /// Adds the next record, which begins at `offset`.
    pub(super) fn push(&mut self, offset: u64, chain: ChainFacts) {
        let entry = ChainEntry {
            offset,
            id: chain.uuid,
            message_hash: chain.message_id.map_or(0, |id| self.message_hash(&id)),
            parent: NO_PARENT,
            role: chain.role,
            is_sidechain: chain.is_sidechain,
            mark: if chain.is_forked {
                RecordMark::Forked
            } else if chain.is_unknown && !chain.is_sidechain {
                RecordMark::Unknown
            } else if chain.is_steering {
                RecordMark::Steering
            } else {
                RecordMark::None
            },
        };
        self.push_entry(entry, chain.parent, chain.logical_parent);
    }

    /// Adds the records of a later part of the transcript, which was created by [`Self::new_later_part`].
    pub(super) fn append(&mut self, later: &Self) {
        self.entries.reserve_exact(later.len());
        for (position, entry) in (0u32..).zip(&later.entries) {
            let parent = match entry.parent {
                NO_PARENT => None,
                UNKNOWN_PARENT => later.unknown_parents.get(&position).cloned(),
                first => Some(later[first as usize].id.clone()),
            };
            let logical_parent = later.logical_parents.get(&position).cloned();
            self.push_entry(entry.clone(), parent, logical_parent);
        }
    }

    /// Adds an entry, and sets its parent.
    fn push_entry(
        &mut self,
        mut entry: ChainEntry,
        parent: Option<RecordId>,
        logical_parent: Option<LogicalParent>,
    ) {
        let Some(position) = u32::try_from(self.entries.len())
            .ok()
            .filter(|position| *position < UNKNOWN_PARENT)
        else {
            return;
        };
        let hash = self.hasher.hash_one(&entry.id);
        let first = self.first(hash, &entry.id);
        if let RecordId::Text(text) = &entry.id {
            self.text_bytes += text.len();
        }
        entry.parent = NO_PARENT;
        self.entries.push(entry);
        match first {
            Some(first) => {
                self.last_duplicates.insert(first, position);
            }
            None => {
                let (entries, hasher) = (&self.entries, &self.hasher);
                let again = |position: &u32| hasher.hash_one(&entries[*position as usize].id);
                self.first_by_id.insert_unique(hash, position, again);
            }
        }
        if let Some(parent) = parent {
            let parent_position = self.known(position, &parent);
            self.entries[position as usize].parent = parent_position.unwrap_or(UNKNOWN_PARENT);
            if parent_position.is_none() {
                self.unknown_parents.insert(position, parent);
            }
        }
        self.logical_parents
            .extend(logical_parent.map(|parent| (position, parent)));
    }

    /// The number of records.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether several records have the same id.
    pub(super) fn has_duplicates(&self) -> bool {
        !self.last_duplicates.is_empty()
    }

    /// Frees unused capacity.
    pub(super) fn shrink(&mut self) {
        self.entries.shrink_to_fit();
    }

    /// About how much memory this takes, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let unknown = self.unknown_parents.len() + 2 * self.logical_parents.len();
        self.entries.capacity() * size_of::<ChainEntry>()
            + self.first_by_id.allocation_size()
            + self.text_bytes
            // The nodes of the trees, and the texts of the ids.
            + unknown * 2 * size_of::<RecordId>()
            + self.last_duplicates.capacity() * 2 * size_of::<u64>()
    }

    /// The position of the record with this id, the last one if there are several.
    pub(super) fn find(&self, id: &RecordId) -> Option<usize> {
        let first = self.first(self.hasher.hash_one(id), id)?;
        Some(self.last(first))
    }

    /// Returns the position of the last record with the same id, if that is not this one.
    pub(super) fn replaced_by(&self, position: usize) -> Option<usize> {
        if !self.has_duplicates() {
            return None;
        }
        self.find(&self[position].id).filter(|last| *last != position)
    }

    /// The hash of a `message.id`, as in [`ChainEntry::message_hash`].
    pub(super) fn message_hash(&self, message_id: &str) -> u64 {
        self.hasher.hash_one(message_id).max(1)
    }

    pub(super) fn parent(&self, position: usize) -> ParentLookup {
        match self.entries[position].parent {
            NO_PARENT => ParentLookup::None,
            // The parent may have been written later.
            UNKNOWN_PARENT => match self.unknown_parents.get(&(position as u32)) {
                Some(id) => self.find(id).map_or(ParentLookup::Missing, ParentLookup::Found),
                None => ParentLookup::None,
            },
            first => ParentLookup::Found(self.last(first)),
        }
    }

    pub(super) fn logical_parent(&self, position: usize) -> ParentLookup {
        let Some(LogicalParent {
            named_id: named,
            kept_tail,
        }) = self.logical_parents.get(&(position as u32))
        else {
            return ParentLookup::None;
        };
        let find = |id: &RecordId| self.find(id);
        // A compaction can only keep what precedes it.
        let tail = || kept_tail.as_ref().and_then(find).filter(|tail| *tail < position);
        match named.as_ref().and_then(find).or_else(tail) {
            Some(found) => ParentLookup::Found(found),
            None if named.is_some() => ParentLookup::Missing,
            None => ParentLookup::None,
        }
    }

    /// The record `position` if it is a message, or else its nearest ancestor that is one.
    pub(super) fn nearest_message(&self, position: usize) -> Option<usize> {
        self.ancestors(position)
            .find(|position| self[*position].role != RecordRole::Other)
    }

    /// Whether the record `to` is an ancestor of `from`.
    pub(super) fn has_ancestor(&self, from: usize, to: usize) -> bool {
        self.ancestors(from).any(|position| position == to)
    }

    /// A record, its parent and so on. Stops after as many steps as there are records, because parents may form a circle.
    pub(super) fn ancestors(&self, position: usize) -> impl Iterator<Item = usize> {
        let parent = |position: &usize| match self.parent(*position) {
            ParentLookup::Found(parent) => Some(parent),
            _ => None,
        };
        successors(Some(position), parent).take(self.len())
    }

    /// The records whose parent is missing, in the order of the file.
    pub(super) fn missing_parents(&self) -> impl Iterator<Item = (usize, &RecordId)> {
        self.unknown_parents
            .iter()
            .filter(|(_, parent)| self.find(parent).is_none())
            .map(|(position, parent)| (*position as usize, parent))
    }

    /// The first record at or after this offset.
    pub(super) fn first_at_or_after(&self, offset: u64) -> usize {
        self.entries.partition_point(|entry| entry.offset < offset)
    }

    fn last(&self, first: u32) -> usize {
        self.last_duplicates.get(&first).copied().unwrap_or(first) as usize
    }

    /// Finds the first record with this id, which the record at `position` names as its parent. Usually it is the
    /// previous one.
    fn known(&self, position: u32, id: &RecordId) -> Option<u32> {
        let before = position.checked_sub(1);
        let before =
            before.filter(|before| self[*before as usize].id == *id && self.last_duplicates.is_empty());
        before.or_else(|| self.first(self.hasher.hash_one(id), id))
    }

    fn first(&self, hash: u64, id: &RecordId) -> Option<u32> {
        let is_it = |position: &u32| self[*position as usize].id == *id;
        self.first_by_id.find(hash, is_it).copied()
    }
}
