//! Reads a damaged database: returns each readable record and counts the unreadable ones.
//!
//! This module reads around damage. It reads only the trees of records, because all others are derived from them. It
//! makes no decisions and does not know why the database is read.

use std::ops::Bound;

use super::apply::JournalChange;
use super::compact::{self, RECORD_TREES};
use super::error::StoreError;
use super::keyspace::{KeyValue, Keyspace, PAGE_ENTRIES, TreeId};
use super::packed;

/// Passes all readable records to `each`, a page at a time. Returns how many values are unreadable. An unreadable
/// part of the file counts as one.
///
/// # Errors
/// Only those of `each`.
pub(super) fn read(
    keyspace: &Keyspace,
    mut each: impl FnMut(JournalChange) -> Result<(), StoreError>,
) -> Result<u64, StoreError> {
    let mut unreadable = 0;
    for tree_id in RECORD_TREES {
        unreadable += each_page(keyspace, tree_id, |pairs| {
            let mut entry = JournalChange::default();
            let mut damaged = 0;
            for (key, value) in pairs {
                let mut add = |key: &[u8], value: &[u8]| {
                    damaged += u64::from(compact::add(&mut entry, tree_id, key, value).is_err());
                };
                if !tree_id.is_packed() {
                    add(&key, &value);
                    continue;
                }
                let mut is_cut = false;
                for found in packed::Entries::new(tree_id, &value) {
                    match found {
                        Ok((key, value)) => add(key, value),
                        Err(_) => is_cut = true,
                    }
                }
                damaged += u64::from(is_cut);
            }
            each(entry).map(|()| damaged)
        })?;
    }
    Ok(unreadable)
}

/// Passes all pairs of a tree to `each`, which returns how many of them are damaged. If reading fails in the middle,
/// continues from the other end.
fn each_page(
    keyspace: &Keyspace,
    tree_id: TreeId,
    mut each: impl FnMut(Vec<KeyValue>) -> Result<u64, StoreError>,
) -> Result<u64, StoreError> {
    let mut damaged = 0;
    let mut last: Option<Vec<u8>> = None;
    let mut limit = PAGE_ENTRIES;
    loop {
        let from = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        match keyspace.page(tree_id, from, limit) {
            Ok(pairs) => {
                let Some((key, _)) = pairs.last() else {
                    return Ok(damaged);
                };
                last = Some(key.clone());
                damaged += each(pairs)?;
            }
            Err(_) if limit > 1 => limit = 1,
            Err(error) => {
                tracing::error!(%error, tree = tree_id.name(), "cannot read a part of the database");
                break;
            }
        }
    }
    let mut first: Option<Vec<u8>> = None;
    loop {
        let until = first.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        // Ignore the error at the other end of the gap: the first error was already logged.
        let Ok(Some(pair)) = keyspace.last(tree_id, until) else {
            break;
        };
        if last.as_ref().is_some_and(|last| pair.0 <= *last) {
            break;
        }
        first = Some(pair.0.clone());
        damaged += each(vec![pair])?;
    }
    Ok(damaged + 1)
}
