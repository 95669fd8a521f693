//! The chain records of an index: 40 bytes each, and some more to find it by its uuid.
//!
//! Ids are stored whole, a uuid in 16 bytes and any other as text, so two records are never mistaken for one. Only
//! `message.id` is stored as a hash, with a random key: if two replies had the same hash, they would be treated as one
//! when parallel calls are collected. No file can cause that on purpose, and chance practically cannot.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::iter::successors;

use hashbrown::HashTable;

use super::facts::{ChainFacts, Role};
use crate::transcript::record_id::{IdRef, RecordId};

/// The chain records of a transcript, in the order of the file.
#[derive(Debug, Clone, Default)]
pub(super) struct Entries {
    entries: Vec<Entry>,
    /// The first record with each id.
    firsts: HashTable<u32>,
    /// The last record with an id that several records have, by the first one. The last one counts.
    lasts: HashMap<u32, u32>,
    /// Ids that are not uuids.
    texts: Vec<Box<str>>,
    /// The parents that were not yet in the file when they were named, by the record that names them.
    unknown_parents: BTreeMap<u32, RecordId>,
    unknown_logical_parents: BTreeMap<u32, RecordId>,
    /// The last record that each compaction kept, by the compaction's record. It is the logical parent if the named one is
    /// missing.
    kept_tails: BTreeMap<u32, RecordId>,
    hasher: RandomState,
}

/// One record.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// The offset, with flags and the role in the upper bits.
    place: u64,
    /// A uuid, or the index of a text.
    id: [u8; 16],
    /// A hash of `message.id`; 0 without one.
    message: u64,
    /// The first record with the parent's id.
    parent: u32,
    logical_parent: u32,
}

/// A record to add.
struct NewEntry {
    place: u64,
    uuid: RecordId,
    message: u64,
    parent: Option<RecordId>,
    logical_parent: Option<RecordId>,
    kept_tail: Option<RecordId>,
}

/// The parent of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parent {
    /// The record names none.
    None,
    /// The position of the parent.
    Found(usize),
    /// The record names a parent that is not in the file.
    Missing,
}

const NO_PARENT: u32 = u32::MAX;
const UNKNOWN_PARENT: u32 = u32::MAX - 1;

/// Files are never as long as this.
const OFFSET_BITS: u32 = 56;
const SIDECHAIN_BIT: u64 = 1 << 56;
const TEXT_BIT: u64 = 1 << 57;
const FORKED_BIT: u64 = 1 << 58;
const UNKNOWN_BIT: u64 = 1 << 59;
const ROLE_SHIFT: u32 = 60;
const STEERING_BIT: u64 = 1 << 63;

const ROLES: [Role; 6] = [
    Role::Prompt,
    Role::ToolResult,
    Role::Aside,
    Role::OtherUser,
    Role::Assistant,
    Role::Other,
];

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
        let mut place = offset | (chain.role as u64) << ROLE_SHIFT;
        if chain.is_sidechain {
            place |= SIDECHAIN_BIT;
        }
        if chain.is_forked {
            place |= FORKED_BIT;
        }
        if chain.is_unknown {
            place |= UNKNOWN_BIT;
        }
        if chain.is_steering {
            place |= STEERING_BIT;
        }
        self.push_entry(NewEntry {
            place,
            message: chain.message_id.map_or(0, |id| self.message_hash(&id)),
            uuid: chain.uuid,
            parent: chain.parent,
            logical_parent: chain.logical_parent,
            kept_tail: chain.kept_tail,
        });
    }

    /// Adds the records of a later part of the transcript, which was created by [`Self::new_later_part`].
    pub(super) fn append(&mut self, later: &Self) {
        self.entries.reserve_exact(later.len());
        let parent = |parent: u32, unknown: Option<&RecordId>| match parent {
            NO_PARENT => None,
            UNKNOWN_PARENT => unknown.cloned(),
            first => Some(later.id(first as usize).to_owned()),
        };
        for (position, entry) in (0u32..).zip(&later.entries) {
            self.push_entry(NewEntry {
                place: entry.place & !TEXT_BIT,
                uuid: later.id(position as usize).to_owned(),
                message: entry.message,
                parent: parent(entry.parent, later.unknown_parents.get(&position)),
                logical_parent: parent(entry.logical_parent, later.unknown_logical_parents.get(&position)),
                kept_tail: later.kept_tails.get(&position).cloned(),
            });
        }
    }

    fn push_entry(&mut self, note: NewEntry) {
        let Some(position) = u32::try_from(self.entries.len())
            .ok()
            .filter(|position| *position < UNKNOWN_PARENT)
        else {
            return;
        };
        let mut place = note.place;
        let hash = self.hash(note.uuid.as_ref());
        let first = self.first(hash, note.uuid.as_ref());
        let id = match (note.uuid, first) {
            (RecordId::Uuid(value), _) => value.to_be_bytes(),
            (RecordId::Text(_), Some(first)) => {
                place |= TEXT_BIT;
                self.entries[first as usize].id
            }
            (RecordId::Text(text), None) => {
                place |= TEXT_BIT;
                self.texts.push(text);
                (self.texts.len() as u128 - 1).to_be_bytes()
            }
        };
        self.entries.push(Entry {
            place,
            id,
            message: note.message,
            parent: NO_PARENT,
            logical_parent: NO_PARENT,
        });
        match first {
            Some(first) => {
                self.lasts.insert(first, position);
            }
            None => {
                let Self {
                    entries,
                    firsts,
                    texts,
                    hasher,
                    ..
                } = self;
                let again = |position: &u32| hasher.hash_one(id_of(entries, texts, *position as usize));
                firsts.insert_unique(hash, position, again);
            }
        }
        if let Some(parent) = note.parent {
            match self.known(position, &parent) {
                Some(first) => self.entries[position as usize].parent = first,
                None => {
                    self.entries[position as usize].parent = UNKNOWN_PARENT;
                    self.unknown_parents.insert(position, parent);
                }
            }
        }
        if let Some(parent) = note.logical_parent {
            match self.known(position, &parent) {
                Some(first) => self.entries[position as usize].logical_parent = first,
                None => {
                    self.entries[position as usize].logical_parent = UNKNOWN_PARENT;
                    self.unknown_logical_parents.insert(position, parent);
                }
            }
        }
        if let Some(tail) = note.kept_tail {
            self.kept_tails.insert(position, tail);
        }
    }

    /// The number of records.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether several records have the same id.
    pub(super) fn has_duplicates(&self) -> bool {
        !self.lasts.is_empty()
    }

    /// Frees unused capacity.
    pub(super) fn shrink(&mut self) {
        self.entries.shrink_to_fit();
        self.texts.shrink_to_fit();
    }

    /// About how much memory this takes, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let texts = self.texts.iter().map(|text| text.len() + size_of::<Box<str>>());
        let unknown = self.unknown_parents.len() + self.unknown_logical_parents.len() + self.kept_tails.len();
        self.entries.capacity() * size_of::<Entry>()
            + self.firsts.allocation_size()
            + texts.sum::<usize>()
            // The nodes of the trees, and the texts of the ids.
            + unknown * 2 * size_of::<RecordId>()
            + self.lasts.capacity() * 2 * size_of::<u64>()
    }

    /// The position of the record with this id, the last one if there are several.
    pub(super) fn find(&self, id: IdRef<'_>) -> Option<usize> {
        let first = self.first(self.hash(id), id)?;
        Some(self.last(first))
    }

    /// The position of the last record with the same id as this one, if that is another record.
    pub(super) fn replaced_by(&self, position: usize) -> Option<usize> {
        if !self.has_duplicates() {
            return None;
        }
        self.find(self.id(position)).filter(|last| *last != position)
    }

    pub(super) fn offset(&self, position: usize) -> u64 {
        self.entries[position].place & ((1 << OFFSET_BITS) - 1)
    }

    pub(super) fn role(&self, position: usize) -> Role {
        let role = (self.entries[position].place & !STEERING_BIT) >> ROLE_SHIFT;
        ROLES[role as usize % ROLES.len()]
    }

    pub(super) fn is_sidechain(&self, position: usize) -> bool {
        self.entries[position].place & SIDECHAIN_BIT != 0
    }

    /// Whether it is a message, and not a subagent's.
    pub(super) fn is_message(&self, position: usize) -> bool {
        self.role(position) != Role::Other && !self.is_sidechain(position)
    }

    /// Whether it names the message in another session of which it is a copy.
    pub(super) fn is_forked(&self, position: usize) -> bool {
        self.entries[position].place & FORKED_BIT != 0
    }

    /// Whether it is of an unknown kind, and not a subagent's.
    pub(super) fn is_unknown(&self, position: usize) -> bool {
        self.entries[position].place & UNKNOWN_BIT != 0 && !self.is_sidechain(position)
    }

    /// Whether the user typed it during a turn. It is not a message in Claude Code's file, and a resume chooses its branch by
    /// messages alone, so its role is [`Role::Other`].
    pub(super) fn is_steering(&self, position: usize) -> bool {
        self.entries[position].place & STEERING_BIT != 0
    }

    /// The hash of the record's `message.id`; 0 without one.
    pub(super) fn message(&self, position: usize) -> u64 {
        self.entries[position].message
    }

    /// The hash of a `message.id`, as in [`Entries::message`].
    pub(super) fn message_hash(&self, message_id: &str) -> u64 {
        self.hasher.hash_one(message_id).max(1)
    }

    pub(super) fn id(&self, position: usize) -> IdRef<'_> {
        id_of(&self.entries, &self.texts, position)
    }

    pub(super) fn parent(&self, position: usize) -> Parent {
        self.resolved(position, self.entries[position].parent, &self.unknown_parents)
    }

    pub(super) fn logical_parent(&self, position: usize) -> Parent {
        let parent = self.entries[position].logical_parent;
        let named = self.resolved(position, parent, &self.unknown_logical_parents);
        if let Parent::Found(_) = named {
            return named;
        }
        let tail = self.kept_tails.get(&(position as u32));
        let tail = tail.and_then(|tail| self.find(tail.as_ref()));
        // A compaction can only keep what precedes it.
        tail.filter(|tail| *tail < position).map_or(named, Parent::Found)
    }

    /// The record `position` if it is a message, or else its nearest ancestor that is one.
    pub(super) fn nearest_message(&self, position: usize) -> Option<usize> {
        self.ancestors(position)
            .find(|position| self.role(*position) != Role::Other)
    }

    /// Whether the record `to` is an ancestor of `from`.
    pub(super) fn has_ancestor(&self, from: usize, to: usize) -> bool {
        self.ancestors(from).any(|position| position == to)
    }

    /// A record, its parent and so on. Stops after as many steps as there are records, because parents may form a circle.
    pub(super) fn ancestors(&self, position: usize) -> impl Iterator<Item = usize> {
        let parent = |position: &usize| match self.parent(*position) {
            Parent::Found(parent) => Some(parent),
            _ => None,
        };
        successors(Some(position), parent).take(self.len())
    }

    /// The records whose parent is missing, in the order of the file.
    pub(super) fn missing_parents(&self) -> impl Iterator<Item = (usize, &RecordId)> {
        self.unknown_parents
            .iter()
            .filter(|(_, parent)| self.find(parent.as_ref()).is_none())
            .map(|(position, parent)| (*position as usize, parent))
    }

    /// The first record at or after this offset.
    pub(super) fn first_at_or_after(&self, offset: u64) -> usize {
        let mask = (1 << OFFSET_BITS) - 1;
        self.entries.partition_point(|entry| entry.place & mask < offset)
    }

    fn resolved(&self, position: usize, parent: u32, unknown: &BTreeMap<u32, RecordId>) -> Parent {
        match parent {
            NO_PARENT => Parent::None,
            // The parent may have been written later.
            UNKNOWN_PARENT => match unknown.get(&(position as u32)) {
                Some(id) => self.find(id.as_ref()).map_or(Parent::Missing, Parent::Found),
                None => Parent::None,
            },
            first => Parent::Found(self.last(first)),
        }
    }

    fn last(&self, first: u32) -> usize {
        self.lasts.get(&first).copied().unwrap_or(first) as usize
    }

    /// The first record with an id that the record at `position` names. Usually it is the one just before.
    fn known(&self, position: u32, id: &RecordId) -> Option<u32> {
        let id = id.as_ref();
        let before = position.checked_sub(1);
        let before = before.filter(|before| self.id(*before as usize) == id && self.lasts.is_empty());
        before.or_else(|| self.first(self.hash(id), id))
    }

    fn first(&self, hash: u64, id: IdRef<'_>) -> Option<u32> {
        let is_it = |position: &u32| self.id(*position as usize) == id;
        self.firsts.find(hash, is_it).copied()
    }

    fn hash(&self, id: IdRef<'_>) -> u64 {
        self.hasher.hash_one(id)
    }
}

fn id_of<'a>(entries: &[Entry], texts: &'a [Box<str>], position: usize) -> IdRef<'a> {
    let entry = &entries[position];
    let value = u128::from_be_bytes(entry.id);
    if entry.place & TEXT_BIT == 0 {
        return IdRef::Uuid(value);
    }
    let text = usize::try_from(value).ok().and_then(|number| texts.get(number));
    IdRef::Text(text.map_or("", |text| text))
}
