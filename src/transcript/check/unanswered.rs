//! Which calls of tools on a branch have no result there.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, BufRead};

use super::Item;
use super::noted::SaidNoted;
use crate::transcript::claude::Selection;
use crate::transcript::scan::{Scanned, Scanner};

/// The calls of a branch that have no result on it: hashes of their ids, by where the records begin that make them. None where
/// not all calls and results are known, see [`ITEMS_LIMIT`](super::noted::ITEMS_LIMIT).
///
/// # Errors
/// What the reader answers.
pub(in crate::transcript) fn unanswered(
    mut reader: impl BufRead,
    branch: &Selection,
) -> io::Result<BTreeMap<u64, Vec<u64>>> {
    let mut scanner = Scanner::<SaidNoted>::default();
    let (mut calls, mut answered) = (BTreeMap::<u64, Vec<u64>>::new(), HashSet::new());
    let (mut line, mut offset) = (0, 0);
    loop {
        let piece = match reader.fill_buf() {
            Ok(piece) => piece,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let is_over = piece.is_empty();
        let (taken, ended) = scanner.feed(piece);
        reader.consume(taken);
        offset += taken as u64;
        if !ended && !is_over {
            continue;
        }
        if let Scanned::Record(said) = scanner.finish()
            && branch.contains(line)
        {
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
        if is_over {
            break;
        }
        line = offset;
    }
    calls.retain(|_, ids| {
        ids.retain(|id| !answered.contains(id));
        !ids.is_empty()
    });
    Ok(calls)
}
