//! The positions of a transcript's records, and the branch that ends with one of them.
//!
//! The agent (Qwen Code 0.24.4) continues with the last record of the file, whatever it is, and follows the parents from there.
//! A missing parent ends the history: records before it are not sent. Records with the same uuid are one message, and the first
//! of them names the parent. Pure over any buffered reader.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, BufRead};

use super::record::{RecordHeader, RecordKind, for_each_record};
use crate::transcript::indexes::{GrowingIndex, ReadExtent};
use crate::transcript::lines::Lines;
use crate::transcript::record_id::RecordId;

/// One record of the chain.
#[derive(Debug, Clone)]
pub(super) struct IndexEntry {
    pub(super) offset: u64,
    pub(super) bytes: u32,
    pub(super) id: RecordId,
    pub(super) parent: Option<RecordId>,
    pub(super) kind: RecordKind,
    pub(super) is_copied: bool,
}

/// All records of the chain, in the order of the file.
#[derive(Debug, Clone, Default)]
pub(in crate::transcript) struct QwenIndex {
    pub(super) entries: Vec<IndexEntry>,
    /// The first entry with each id.
    first_by_id: HashMap<RecordId, u32>,
    /// The later entries with an id, by its first entry.
    repeats: BTreeMap<u32, Vec<u32>>,
    /// How many bytes were read.
    pub(super) bytes: u64,
    /// The end of the last line that has a newline.
    complete_bytes: u64,
    /// Whether a record was read from an unended last line.
    has_unterminated_record: bool,
    pub(super) garbage_lines: u64,
    pub(super) ends_torn: bool,
    /// The prompts on all branches.
    pub(super) prompts: u64,
}

/// The chain of records that ends with one of them.
#[derive(Debug, Default)]
pub(super) struct Branch {
    /// The entries, the first one first.
    pub(super) positions: Vec<u32>,
    /// The first entry, if its parent is missing or the parents form a circle.
    pub(super) broken_at: Option<u32>,
}

impl QwenIndex {
    fn push(&mut self, offset: u64, bytes: usize, header: RecordHeader) {
        let RecordHeader {
            id,
            parent,
            kind,
            is_copied,
            ..
        } = header;
        let position = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        let first = *self.first_by_id.entry(id.clone()).or_insert(position);
        if first == position {
            self.prompts += u64::from(kind == RecordKind::Prompt);
        } else {
            self.repeats.entry(first).or_default().push(position);
        }
        self.entries.push(IndexEntry {
            offset,
            // Lines are never longer than fits.
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            id,
            parent,
            kind,
            is_copied,
        });
    }

    /// The text of an entry's uuid.
    pub(super) fn uuid(&self, position: u32) -> String {
        self.entries[position as usize].id.text()
    }

    /// Whether there is a record with this id.
    pub(super) fn contains(&self, id: &RecordId) -> bool {
        self.first_by_id.contains_key(id)
    }

    /// The entry with this uuid.
    pub(super) fn find(&self, uuid: &str) -> Option<u32> {
        self.first_by_id.get(&RecordId::new(uuid)).copied()
    }

    /// The later entries with the uuid of this one, which is the first.
    pub(super) fn repeats(&self, position: u32) -> &[u32] {
        self.repeats.get(&position).map_or(&[], Vec::as_slice)
    }

    /// Whether an earlier entry has the same uuid.
    pub(super) fn is_repeated(&self, position: u32) -> bool {
        self.first_by_id.get(&self.entries[position as usize].id) != Some(&position)
    }

    /// The branch that ends with a record, or with the last one. `None` if there is no such record.
    pub(super) fn branch(&self, until: Option<&str>) -> Option<Branch> {
        let leaf = match until {
            Some(uuid) => self.find(uuid)?,
            None => *self.first_by_id.get(&self.entries.last()?.id)?,
        };
        let (mut branch, mut visited) = (Branch::default(), HashSet::new());
        let mut next = Some(leaf);
        while let Some(position) = next.take() {
            visited.insert(position);
            branch.positions.push(position);
            let Some(parent) = &self.entries[position as usize].parent else {
                break;
            };
            next = self.first_by_id.get(parent).copied();
            if next.is_none_or(|parent| visited.contains(&parent)) {
                branch.broken_at = Some(position);
                break;
            }
        }
        branch.positions.reverse();
        Some(branch)
    }
}

impl GrowingIndex for QwenIndex {
    fn extent(&self) -> ReadExtent {
        ReadExtent {
            bytes: self.bytes,
            complete_bytes: self.complete_bytes,
            can_extend: !self.has_unterminated_record,
        }
    }

    fn extend(&mut self, reader: impl BufRead) -> io::Result<()> {
        let mut lines = Lines::new(reader, self.complete_bytes);
        self.ends_torn = false;
        while let Some(line) = lines.next_line()? {
            let (offset, ended) = (line.offset, line.ended);
            let has_garbage = for_each_record(line.bytes, |range, fields| {
                self.has_unterminated_record |= !ended;
                if let Some(header) = RecordHeader::of(fields) {
                    self.push(offset + range.start as u64, range.len(), header);
                }
            });
            let has_garbage = has_garbage || line.oversized;
            match ended {
                true => self.garbage_lines += u64::from(has_garbage),
                false => self.ends_torn = has_garbage,
            }
            if ended {
                self.complete_bytes = lines.offset();
            }
        }
        self.bytes = lines.offset();
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        let place = size_of::<(RecordId, u32)>();
        let repeats = self
            .repeats
            .values()
            .map(|later| size_of_val(later) + later.capacity() * size_of::<u32>());
        repeats.sum::<usize>()
            + self.entries.capacity() * size_of::<IndexEntry>()
            + self.first_by_id.capacity() * place
    }
}
