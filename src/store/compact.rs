//! Compaction: writes a new journal with only the content of the trees.
//!
//! This module owns the steps and their order. A crash may follow any of them:
//!
//! 1. Sync the trees, so that their position on disk is that of the beginning of the new journal. Write the new
//!    journal under a temporary name and sync it.
//! 2. Rename it into place and sync the folder.
//! 3. Write its position to the trees.
//! 4. Remove unreferenced bodies.
//!
//! Before the rename, the old journal is used; afterwards, the new one is. If the trees' mark still names the old one,
//! the next start updates it. The lineage is always copied in full.

use std::collections::HashSet;
use std::ops::Bound;
use std::path::Path;

use super::apply::{self, AppliedState, JournalChange, LineageValue};
use super::body::Bodies;
use super::error::StoreError;
use super::journal::{Journal, NewJournal};
use super::keyspace::{Keyspace, PAGE_ENTRIES, TreeId, WriteBatch, each_page};
use super::packed;
use super::value::StoredValue;

/// The shortest journal worth compacting, in bytes. Reading a shorter one costs less than replacing it.
const SMALLEST_JOURNAL_BYTES: u64 = 1 << 20;

/// A new journal: synced, but not yet in place.
pub(super) struct CompactedJournal {
    journal: NewJournal,
    applied: AppliedState,
    /// The bodies that the new journal references.
    referenced_bodies: HashSet<String>,
    /// The number of its conversations that are not deleted.
    conversations: u64,
}

/// The trees of records, in the order in which a journal lists them. All other trees are derived from these.
pub(super) const RECORD_TREES: [TreeId; 5] = [
    TreeId::Conversations,
    TreeId::Lineage,
    TreeId::Upstream,
    TreeId::Requests,
    TreeId::Processes,
];

/// Whether at least half of the journal is obsolete.
pub(super) fn is_due(state: &AppliedState) -> bool {
    let length = state.position.end_offset;
    length > SMALLEST_JOURNAL_BYTES && length / 2 >= state.live_bytes
}

/// Writes the content of the trees to a new journal. Nothing may be committed meanwhile.
///
/// # Errors
/// Also if a value cannot be read or a conversation is missing: a damaged database is never written to a journal.
pub(super) fn write(
    path: &Path,
    keyspace: &Keyspace,
    state: &AppliedState,
) -> Result<CompactedJournal, StoreError> {
    let mut compacted = CompactedJournal {
        journal: NewJournal::begin(path, state.position.sequence)?,
        applied: state.clone(),
        referenced_bodies: HashSet::new(),
        conversations: 0,
    };
    for tree_id in RECORD_TREES {
        compacted.copy(keyspace, tree_id)?;
    }
    if state.is_to_erase {
        // Write this to the journal too, because a later start may rebuild the database from it.
        compacted.push(&JournalChange {
            erases: true,
            ..JournalChange::default()
        })?;
    }
    if compacted.conversations != state.conversations {
        return Err(StoreError::DamagedValue {
            what: "list of conversations",
        });
    }
    compacted.journal.sync()?;
    Ok(compacted)
}

impl CompactedJournal {
    /// Replaces the old journal; see [`NewJournal::put_in_place`]. Returns the new one, the position of the trees in it, and
    /// the bodies that it references.
    pub(super) fn put_in_place(self) -> Result<(Journal, AppliedState, HashSet<String>), StoreError> {
        let journal = self.journal.put_in_place()?;
        let position = journal.position().clone();
        let state = AppliedState {
            live_bytes: position.end_offset,
            position,
            ..self.applied
        };
        Ok((journal, state, self.referenced_bodies))
    }

    fn copy(&mut self, keyspace: &Keyspace, tree_id: TreeId) -> Result<(), StoreError> {
        let page = |from: Bound<&[u8]>| match tree_id.is_packed() {
            true => packed::page(keyspace, tree_id, from, &[], PAGE_ENTRIES),
            false => keyspace.page(tree_id, from, PAGE_ENTRIES),
        };
        each_page(page, |pairs| {
            let mut entry = JournalChange::default();
            for (key, bytes) in &pairs {
                self.conversations += u64::from(add(&mut entry, tree_id, key, bytes)?);
            }
            let values = entry.conversations.iter().chain(&entry.requests);
            let values = values.chain(entry.lineage.iter().map(|lineage| &lineage.value));
            let named = values.flat_map(|value| value.bodies.values());
            self.referenced_bodies
                .extend(named.map(|body| body.sha256.clone()));
            self.push(&entry)
        })
    }

    fn push(&mut self, entry: &JournalChange) -> Result<(), StoreError> {
        let text = serde_json::to_string(entry).map_err(StoreError::unwritable("change"))?;
        self.journal.push(&text)
    }
}

/// Adds a record from the trees to `entry`, as a change that creates it. Returns whether it is a conversation that is
/// not deleted.
///
/// # Errors
/// If the record is damaged. `entry` is unchanged then.
pub(super) fn add(
    entry: &mut JournalChange,
    tree_id: TreeId,
    key: &[u8],
    bytes: &[u8],
) -> Result<bool, StoreError> {
    let damaged = || StoreError::DamagedChunk {
        space: tree_id.name(),
    };
    match tree_id {
        TreeId::Conversations => {
            let value = StoredValue::from_bytes("conversation", bytes)?;
            let is_alive = apply::check_conversation(key, bytes)?;
            entry.conversations.push(value);
            return Ok(is_alive);
        }
        TreeId::Lineage => {
            let (id, seq) = apply::read_lineage_key(key).ok_or_else(damaged)?;
            let value = StoredValue::from_bytes("lineage entry", bytes)?;
            entry.lineage.push(LineageValue { id, seq, value });
        }
        TreeId::Upstream => entry
            .upstream
            .push(apply::read_upstream_key(key).ok_or_else(damaged)?),
        TreeId::Requests => {
            apply::check_request(bytes)?;
            entry.requests.push(StoredValue::from_bytes("request", bytes)?);
        }
        TreeId::Processes => {
            let process = serde_json::from_slice(bytes);
            entry
                .processes
                .push(process.map_err(|_| StoreError::DamagedValue { what: "process" })?);
        }
        TreeId::RequestExpiry | TreeId::Recent | TreeId::Unfinished | TreeId::Meta => {}
    }
    Ok(false)
}

/// Copies all trees into an empty database, except for the mark.
pub(super) fn copy_trees(from: &Keyspace, to: &Keyspace) -> Result<(), StoreError> {
    for tree_id in TreeId::ALL.into_iter().filter(|tree_id| *tree_id != TreeId::Meta) {
        let page = |after: Bound<&[u8]>| from.page(tree_id, after, PAGE_ENTRIES);
        each_page(page, |pairs| {
            let writes = pairs
                .into_iter()
                .map(|(key, value)| ((tree_id, key), Some(value)));
            to.apply_one_by_one(writes.collect())
        })?;
    }
    Ok(())
}

/// Records in the trees their position in the journal that is now in place.
pub(super) fn record_position(keyspace: &Keyspace, state: &AppliedState) -> Result<(), StoreError> {
    let mut draft = WriteBatch::new(keyspace);
    state.write(&mut draft)?;
    keyspace.apply(draft.into_writes())
}

/// Removes the bodies that the journal in place does not reference.
pub(super) fn remove_unreferenced_bodies(bodies: &Bodies, named: &HashSet<String>) {
    if let Err(error) = bodies.remove_unreferenced(named) {
        // They only take disk space; the next compaction tries again.
        tracing::warn!(%error, "cannot remove unused bodies");
    }
}
