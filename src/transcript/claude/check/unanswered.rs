//! Finds the tool calls on a branch that have no result there.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, BufRead};

use super::facts::{CHECK, MessageFacts};
use crate::transcript::check::CallOrResult;
use crate::transcript::claude::Selection;
use crate::transcript::claude::record::Record;
use crate::transcript::scan::{PrunedLines, Scanned};

/// The calls of a branch that have no result on it: hashes of their ids, by the offsets of the records with the calls. `None`
/// if not all calls and results are known, see [`ELEMENTS_LIMIT`](crate::transcript::scan::ELEMENTS_LIMIT).
///
/// # Errors
/// The reader's error.
pub(in crate::transcript::claude) fn unanswered_calls(
    reader: impl BufRead,
    branch: &Selection,
) -> io::Result<BTreeMap<u64, Vec<u64>>> {
    let mut lines = PrunedLines::new(reader, 0, &CHECK);
    let (mut calls, mut answered) = (BTreeMap::<u64, Vec<u64>>::new(), HashSet::new());
    while let Some(line) = lines.next_line()? {
        let offset = line.position.offset;
        let Scanned::Record(pruned) = line.content else {
            continue;
        };
        if !branch.contains(offset) {
            continue;
        }
        if pruned.has_more {
            return Ok(BTreeMap::new());
        }
        for item in MessageFacts::of(&Record::of(&pruned)).items {
            match item {
                CallOrResult::Call { id, .. } => calls.entry(offset).or_default().push(id),
                CallOrResult::Result { id } => drop(answered.insert(id)),
            }
        }
    }
    calls.retain(|_, ids| {
        ids.retain(|id| !answered.contains(id));
        !ids.is_empty()
    });
    Ok(calls)
}
