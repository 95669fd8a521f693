//! Packs many small entries into few values: an ordered map in which neighbours share a chunk.
//!
//! sled needs from twenty bytes to half a kilobyte of bookkeeping per key, and reads its page table at each start.
//! With one key per entry in four trees, a hundred thousand conversations would take most of the time and memory of a
//! start. Packed, the trees other than `conversations` have a few keys per hundred entries.
//!
//! This module owns the format of a chunk, and splits and joins chunks. A chunk's key is a tag and the chunk's lowest entry;
//! the first chunk's key is only the tag. This module does not know what the entries mean.

use std::ops::{Bound, ControlFlow};

use super::error::StoreError;
use super::keyspace::{KeyValue, Keyspace, TreeId, WriteBatch};

/// How large a chunk may become before it is split, in bytes.
///
/// Each change of an entry rewrites its chunk, and each key slows down the start. At this size, the entries of a
/// hundred thousand conversations take about forty thousand keys, and a commit writes a few kilobytes.
const CHUNK_LIMIT_BYTES: usize = 2 << 10;

/// A chunk smaller than this is joined with the previous one, if that leaves room to grow.
const SMALL_CHUNK_BYTES: usize = CHUNK_LIMIT_BYTES / 4;

/// The key of a tree's first chunk.
const FIRST_CHUNK_KEY: &[u8] = &[0];

/// The tag before the lowest entry in the key of each further chunk.
const FURTHER_CHUNK_TAG: u8 = 1;

/// Adds or replaces an entry. Returns its previous value.
pub(super) fn insert(
    draft: &mut WriteBatch<'_>,
    tree_id: TreeId,
    key: &[u8],
    value: &[u8],
) -> Result<Option<Vec<u8>>, StoreError> {
    let (chunk_key, mut entries) = chunk_for(draft, tree_id, key)?;
    let previous = match search(&entries, key) {
        Ok(index) => Some(std::mem::replace(&mut entries[index].1, value.to_vec())),
        Err(index) => {
            entries.insert(index, (key.to_vec(), value.to_vec()));
            None
        }
    };
    put_chunk(draft, tree_id, &chunk_key, entries);
    Ok(previous)
}

/// Removes an entry. Returns its previous value.
pub(super) fn remove(
    draft: &mut WriteBatch<'_>,
    tree_id: TreeId,
    key: &[u8],
) -> Result<Option<Vec<u8>>, StoreError> {
    let (chunk_key, mut entries) = chunk_for(draft, tree_id, key)?;
    let Ok(index) = search(&entries, key) else {
        return Ok(None);
    };
    let (_, removed) = entries.remove(index);
    if chunk_key == FIRST_CHUNK_KEY {
        draft.put(tree_id, FIRST_CHUNK_KEY, encode(&entries));
        return Ok(Some(removed));
    }
    // Write the chunk under a new key: the old one may contain the removed entry, which must not remain in any form.
    draft.remove(tree_id, &chunk_key);
    let previous_chunk = match size(&entries) < SMALL_CHUNK_BYTES {
        true => draft.last(tree_id, Bound::Excluded(&chunk_key))?,
        false => None,
    };
    match previous_chunk {
        Some((before_key, previous_chunk))
            if previous_chunk.len() + size(&entries) <= CHUNK_LIMIT_BYTES / 2 =>
        {
            let mut joined = decode(tree_id, &previous_chunk)?;
            joined.append(&mut entries);
            draft.put(tree_id, &before_key, encode(&joined));
        }
        _ => {
            if let Some((lowest, _)) = entries.first() {
                draft.put(tree_id, &further_chunk_key(lowest), encode(&entries));
            }
        }
    }
    Ok(Some(removed))
}

/// Returns at most `limit` entries whose keys have the prefix, starting at `from`, which is not below the prefix.
pub(super) fn page(
    keyspace: &Keyspace,
    tree_id: TreeId,
    from: Bound<&[u8]>,
    prefix: &[u8],
    limit: usize,
) -> Result<Vec<KeyValue>, StoreError> {
    let mut entries = Vec::new();
    visit_from(keyspace, tree_id, from, |key, value| {
        if entries.len() >= limit || !key.starts_with(prefix) {
            return ControlFlow::Break(());
        }
        entries.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    })?;
    Ok(entries)
}

/// Visits all entries from this key, in order, until `visit` breaks.
pub(super) fn visit_from(
    keyspace: &Keyspace,
    tree_id: TreeId,
    from: Bound<&[u8]>,
    mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Result<(), StoreError> {
    let is_before = |key: &[u8]| match from {
        Bound::Included(bound) => key < bound,
        Bound::Excluded(bound) => key <= bound,
        Bound::Unbounded => false,
    };
    let start = match from {
        Bound::Included(bound) | Bound::Excluded(bound) => further_chunk_key(bound),
        Bound::Unbounded => FIRST_CHUNK_KEY.to_vec(),
    };
    let mut chunk = keyspace.last(tree_id, Bound::Included(&start))?;
    while let Some((chunk_key, value)) = chunk {
        for entry in Entries::new(tree_id, &value) {
            let (key, value) = entry?;
            if !is_before(key) && visit(key, value).is_break() {
                return Ok(());
            }
        }
        chunk = keyspace.page(tree_id, Bound::Excluded(&chunk_key), 1)?.pop();
    }
    Ok(())
}

/// Writes a chunk. Splits it until each part is within the limit or holds one entry.
fn put_chunk(draft: &mut WriteBatch<'_>, tree_id: TreeId, chunk_key: &[u8], mut entries: Vec<KeyValue>) {
    if size(&entries) > CHUNK_LIMIT_BYTES && entries.len() > 1 {
        let upper = entries.split_off(split_index(&entries));
        if let Some((lowest, _)) = upper.first() {
            let upper_key = further_chunk_key(lowest);
            put_chunk(draft, tree_id, &upper_key, upper);
        }
        put_chunk(draft, tree_id, chunk_key, entries);
        return;
    }
    draft.put(tree_id, chunk_key, encode(&entries));
}

/// Returns the chunk that holds the key, or would hold it.
fn chunk_for(
    draft: &WriteBatch<'_>,
    tree_id: TreeId,
    key: &[u8],
) -> Result<(Vec<u8>, Vec<KeyValue>), StoreError> {
    match draft.last(tree_id, Bound::Included(&further_chunk_key(key)))? {
        Some((chunk_key, value)) => Ok((chunk_key, decode(tree_id, &value)?)),
        None => Ok((FIRST_CHUNK_KEY.to_vec(), Vec::new())),
    }
}

fn further_chunk_key(lowest: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(lowest.len() + 1);
    key.push(FURTHER_CHUNK_TAG);
    key.extend_from_slice(lowest);
    key
}

fn search(entries: &[KeyValue], key: &[u8]) -> Result<usize, usize> {
    entries.binary_search_by(|(entry, _)| entry.as_slice().cmp(key))
}

/// The size of the two lengths before each entry, in bytes.
const LENGTHS_BYTES: usize = 4;

fn size(entries: &[KeyValue]) -> usize {
    entries
        .iter()
        .map(|(key, value)| LENGTHS_BYTES + key.len() + value.len())
        .sum()
}

/// Returns the index at which to split a chunk: the first entry past half of its bytes, but neither the first nor past
/// the last.
fn split_index(entries: &[KeyValue]) -> usize {
    let half = size(entries) / 2;
    let mut before = 0;
    let found = entries.iter().position(|(key, value)| {
        before += LENGTHS_BYTES + key.len() + value.len();
        before > half
    });
    found
        .unwrap_or(1)
        .clamp(1, entries.len().saturating_sub(1).max(1))
}

fn encode(entries: &[KeyValue]) -> Vec<u8> {
    let mut chunk = Vec::with_capacity(size(entries));
    for (key, value) in entries {
        // Longer keys and values were refused earlier. Saturating only avoids a panic.
        for part in [key, value] {
            chunk.extend_from_slice(&u16::try_from(part.len()).unwrap_or(u16::MAX).to_be_bytes());
        }
        chunk.extend_from_slice(key);
        chunk.extend_from_slice(value);
    }
    chunk
}

fn decode(tree_id: TreeId, chunk: &[u8]) -> Result<Vec<KeyValue>, StoreError> {
    Entries::new(tree_id, chunk)
        .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())))
        .collect()
}

/// An iterator over the entries of a chunk. Ends at the first damaged one.
pub(super) struct Entries<'a> {
    tree_id: TreeId,
    rest: &'a [u8],
}

impl<'a> Entries<'a> {
    pub(super) fn new(space: TreeId, chunk: &'a [u8]) -> Self {
        Self {
            tree_id: space,
            rest: chunk,
        }
    }

    fn read(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        let (lengths, after) = self.rest.split_first_chunk::<LENGTHS_BYTES>()?;
        let key_length = usize::from(u16::from_be_bytes([lengths[0], lengths[1]]));
        let value_length = usize::from(u16::from_be_bytes([lengths[2], lengths[3]]));
        let (key, after) = after.split_at_checked(key_length)?;
        let (value, after) = after.split_at_checked(value_length)?;
        self.rest = after;
        Some((key, value))
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<(&'a [u8], &'a [u8]), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let entry = self.read();
        if entry.is_none() {
            self.rest = &[];
        }
        Some(entry.ok_or(StoreError::DamagedChunk {
            space: self.tree_id.name(),
        }))
    }
}

#[cfg(test)]
mod tests;
