//! What is noted of each chain record, in 40 bytes and some for finding it by its uuid.
//!
//! An id stands here whole, 16 bytes for a uuid and its text for anything else, so two records are never taken for one.
//! Only `message.id` is kept as a hash, keyed at random: two replies with the same one would be taken for one where calls
//! made in parallel are gathered, which no file can bring about on purpose and chance does not.

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
    /// The first record of each id.
    firsts: HashTable<u32>,
    /// The last record of an id that several have, by the first: it is the one that counts.
    lasts: HashMap<u32, u32>,
    /// Ids that are not uuids.
    texts: Vec<Box<str>>,
    /// The parents that were not there when they were named, by who names them.
    unknown_parents: BTreeMap<u32, RecordId>,
    unknown_logical_parents: BTreeMap<u32, RecordId>,
    /// The last records that compactions have kept, by whom that says: what stands before these, unless a logical parent is there.
    kept_tails: BTreeMap<u32, RecordId>,
    hasher: RandomState,
}

/// One record as it is kept.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// The offset, and above it what the record is.
    place: u64,
    /// A uuid, or the number of a text.
    id: [u8; 16],
    /// A hash of `message.id`; 0 without one.
    message: u64,
    /// The first record that has the parent's id.
    parent: u32,
    logical_parent: u32,
}

/// A record that comes in.
struct NewEntry {
    place: u64,
    uuid: RecordId,
    message: u64,
    parent: Option<RecordId>,
    logical_parent: Option<RecordId>,
    kept_tail: Option<RecordId>,
}

/// A parent as a record names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parent {
    /// It names none.
    None,
    /// Where it stands.
    Found(usize),
    /// It is not there.
    Missing,
}

const NO_PARENT: u32 = u32::MAX;
const UNKNOWN_PARENT: u32 = u32::MAX - 1;

/// No file is as long as this.
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
    /// None yet, of a transcript of which others were taken already: they can be [appended](Self::append) to those.
    pub(super) fn new_later_part(&self) -> Self {
        Self {
            hasher: self.hasher.clone(),
            ..Self::default()
        }
    }

    /// Takes one more record, which begins at `offset`, behind all that were taken.
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

    /// Takes the records of a later part of the transcript, which was begun [beside](Self::beside) this.
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

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether several records have the same id.
    pub(super) fn has_duplicates(&self) -> bool {
        !self.lasts.is_empty()
    }

    /// Gives back what was taken in advance.
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
            // An entry of a tree or a map with what stands around it, and the text of an id.
            + unknown * 2 * size_of::<RecordId>()
            + self.lasts.capacity() * 2 * size_of::<u64>()
    }

    /// Where the record stands that has this id; of several the last.
    pub(super) fn find(&self, id: IdRef<'_>) -> Option<usize> {
        let first = self.first(self.hash(id), id)?;
        Some(self.last(first))
    }

    /// Where the last record stands that has the same id as this one, where that is another.
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

    /// Whether it says of which message in another session it is a copy.
    pub(super) fn is_forked(&self, position: usize) -> bool {
        self.entries[position].place & FORKED_BIT != 0
    }

    /// Whether it is of a kind that is not known, and not a subagent's.
    pub(super) fn is_unknown(&self, position: usize) -> bool {
        self.entries[position].place & UNKNOWN_BIT != 0 && !self.is_sidechain(position)
    }

    /// Whether a person typed it while a turn ran. It is not a message in Claude Code's file, and a resume chooses its branch by
    /// messages alone, so its role is [`Role::Other`].
    pub(super) fn is_steering(&self, position: usize) -> bool {
        self.entries[position].place & STEERING_BIT != 0
    }

    /// The hash of the record's `message.id`; 0 without one.
    pub(super) fn message(&self, position: usize) -> u64 {
        self.entries[position].message
    }

    /// As [`Entries::message`], of an id.
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
        // Only what stands before a compaction can have been kept by it.
        tail.filter(|tail| *tail < position).map_or(named, Parent::Found)
    }

    /// The record `position` where it is a message, or the nearest before it by the parents that is one.
    pub(super) fn nearest_message(&self, position: usize) -> Option<usize> {
        self.ancestors(position)
            .find(|position| self.role(*position) != Role::Other)
    }

    /// Whether the parents lead from a record to another.
    pub(super) fn has_ancestor(&self, from: usize, to: usize) -> bool {
        self.ancestors(from).any(|position| position == to)
    }

    /// A record, its parent and so on; no more than there are, as the parents may go round in a circle.
    pub(super) fn ancestors(&self, position: usize) -> impl Iterator<Item = usize> {
        let parent = |position: &usize| match self.parent(*position) {
            Parent::Found(parent) => Some(parent),
            _ => None,
        };
        successors(Some(position), parent).take(self.len())
    }

    /// The records that name a parent which is not there, in the order of the file.
    pub(super) fn missing_parents(&self) -> impl Iterator<Item = (usize, &RecordId)> {
        self.unknown_parents
            .iter()
            .filter(|(_, parent)| self.find(parent.as_ref()).is_none())
            .map(|(position, parent)| (*position as usize, parent))
    }

    /// The record at this offset or the first behind it.
    pub(super) fn first_at_or_after(&self, offset: u64) -> usize {
        let mask = (1 << OFFSET_BITS) - 1;
        self.entries.partition_point(|entry| entry.place & mask < offset)
    }

    fn resolved(&self, position: usize, parent: u32, unknown: &BTreeMap<u32, RecordId>) -> Parent {
        match parent {
            NO_PARENT => Parent::None,
            // It may have come later.
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

    /// The first record with an id that a record at `position` names; mostly it stands just before.
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
