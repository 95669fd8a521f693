//! Which calls of tools on a branch have no result there.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, BufRead};

use super::Item;
use super::noted::SaidNoted;
use crate::transcript::claude::Selection;
use crate::transcript::scan::{ScannedLines, Scanner};

/// The calls of a branch that have no result on it: hashes of their ids, by where the records begin that make them. None where
/// not all calls and results are known, see [`ITEMS_LIMIT`](super::noted::ITEMS_LIMIT).
///
/// # Errors
/// What the reader answers.
pub(in crate::transcript) fn unanswered(
    reader: impl BufRead,
    branch: &Selection,
) -> io::Result<BTreeMap<u64, Vec<u64>>> {
    let mut records = ScannedLines::<_, Scanner<SaidNoted>>::new(reader, 0);
    let (mut calls, mut answered) = (BTreeMap::<u64, Vec<u64>>::new(), HashSet::new());
    while let Some((line, said)) = records.next_record()? {
        if !branch.contains(line) {
            continue;
        }
        if said.has_more {
            return Ok(BTreeMap::new());
        }
        for item in said.items {
            match item {
                Item::Call { id, .. } => calls.entry(line).or_default().push(id),
                Item::Result { id } => drop(answered.insert(id)),
            }
        }
    }
    calls.retain(|_, ids| {
        ids.retain(|id| !answered.contains(id));
        !ids.is_empty()
    });
    Ok(calls)
}
