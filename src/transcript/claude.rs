//! The history that a Claude transcript holds: its live branch, cut into turns.
//!
//! A transcript is a tree in a file that is only ever appended to. The live branch leads from the last message
//! back through the parents, or from the place that the agent noted last in the file, where that is not on the way;
//! siblings are abandoned branches, side chains belong to subagents. Two passes over
//! the bytes: the first notes each chain record in some tens of bytes (`index`), the second decodes those that
//! were asked for.
//!
//! | what | where |
//! |---|---|
//! | the answers to [`Dialect`](super::dialect::Dialect) | `dialect`; which of several copies counts: `copies` |
//! | one record, decoded | `record` |
//! | one pass over the bytes to the place of each record | `facts`, `index` |
//! | the branch, its messages and turns, to which checkpoints refer | `walk`, `book`, `message`; texts of turns: `entries`, `turns` |
//! | what a list shows, where a session came from | `summary`, `origin` |
//! | what becomes of each record in a cut | `cut`; its files: `side_files`, `borrowed_files` |
//! | what is wrong, and what becomes of each record in a repair | `check`, `repair`; places of added results: `filling` |
//! | opening files for all this | `reading` |
//!
//! `dialect`, `copies`, `cut`, `repair`, `reading`, `side_files` and `borrowed_files` use the disk and block; the others are pure
//! over any buffered reader. Nothing here knows conversations.

pub mod book;
pub mod borrowed_files;
pub(in crate::transcript) mod check;
mod copies;
pub mod cut;
mod dialect;
mod entries;
mod facts;
mod filling;
mod index;
mod message;
mod origin;
pub mod reading;
pub mod record;
pub mod repair;
pub(in crate::transcript) mod side_files;
pub(in crate::transcript) mod summary;
mod turns;
mod walk;

use std::io::{self, BufRead, Seek, SeekFrom};

pub(in crate::transcript) use dialect::Claude;
pub(in crate::transcript) use facts::{BLOCK, INDEX, MESSAGE, RecordFacts};
pub(in crate::transcript) use filling::FillPositions;
pub use index::Index;
pub use turns::{ToolCall, Turn};
pub use walk::{Join, NewerBranch, Selection};

use super::lines::Lines;
use super::shelf::Format;
use turns::TurnBuilder;

/// What agents say whose transcripts are like these.
pub const FORMAT: Format = Format::Claude;

/// What to read of a transcript.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BranchOptions {
    /// The uuid of the record with which the history ends (it is included); the live branch's last if none.
    pub until: Option<String>,
    /// Whether to go on behind a compaction, to what the model no longer sees.
    pub follow_compaction: bool,
    /// How many turns at most, the newest; all if none. Memory is bounded by these.
    pub last_turns: Option<usize>,
}

/// A history.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Branch {
    /// The turns asked for, oldest first.
    pub turns: Vec<Turn>,
    /// How many turns the branch has, those included that were not asked for.
    pub total_turns: usize,
    /// How many user records on it are neither prompts nor results, nor written by the agent for itself: commands of
    /// the agent's own, which a person typed as well, and their output.
    pub asides: usize,
    /// Whether the history begins with a compaction whose past is not in this file.
    pub cut_by_compaction: bool,
    /// The uuid of the branch's last record; none in a transcript without chain records.
    pub leaf_uuid: Option<String>,
    /// Whether the file ends within a record.
    pub ends_torn: bool,
    /// How often a parent is named that is not there: each time something is lost.
    pub breaks: usize,
}

/// Why a history could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The reader failed.
    #[error("the transcript could not be read")]
    Input(#[source] io::Error),
    /// There is no chain record with the uuid that was asked for.
    #[error("there is no record {uuid}")]
    RecordNotFound {
        /// The uuid that was asked for.
        uuid: String,
    },
}

/// Reads a history from the start of `reader`.
///
/// # Errors
/// [`ReadError::Input`] for the reader's own failures, [`ReadError::RecordNotFound`] when `until` names a record
/// that is not there. Damage within the transcript is no error: see [`Branch::breaks`].
pub fn read_branch<R: BufRead + Seek>(mut reader: R, options: &BranchOptions) -> Result<Branch, ReadError> {
    reader.seek(SeekFrom::Start(0)).map_err(ReadError::Input)?;
    let index = Index::read(&mut reader).map_err(ReadError::Input)?;
    read_indexed_branch(&index, reader, options)
}

/// As [`read_branch`], of a transcript whose index is there already: only the turns that are asked for are read.
///
/// # Errors
/// As [`read_branch`].
pub fn read_indexed_branch<R: BufRead + Seek>(
    index: &Index,
    reader: R,
    options: &BranchOptions,
) -> Result<Branch, ReadError> {
    let Some(selection) = index.select(options.until.as_deref(), options.follow_compaction) else {
        return match &options.until {
            Some(uuid) => Err(ReadError::RecordNotFound { uuid: uuid.clone() }),
            None => Ok(Branch::default()),
        };
    };
    let turns = match selection.start_of_last_turns(options.last_turns) {
        Some(start) => read_turns(reader, &selection, start).map_err(ReadError::Input)?,
        None => Vec::new(),
    };
    Ok(Branch {
        turns,
        total_turns: selection.prompt_offsets().len(),
        asides: selection.asides(),
        cut_by_compaction: selection.cut_by_compaction(),
        leaf_uuid: Some(selection.leaf_uuid().to_owned()),
        ends_torn: index.ends_torn(),
        breaks: selection.breaks(),
    })
}

fn read_turns<R: BufRead + Seek>(mut reader: R, selection: &Selection, start: u64) -> io::Result<Vec<Turn>> {
    reader.seek(SeekFrom::Start(start))?;
    let mut lines = Lines::new(reader, start);
    let mut builder = TurnBuilder::default();
    let mut wanted = selection
        .offsets()
        .iter()
        .copied()
        .skip_while(|offset| *offset < start)
        .peekable();
    while let (Some(offset), Some(line)) = (wanted.peek().copied(), lines.next_line()?) {
        if line.offset == offset {
            builder.push(line.bytes);
            wanted.next();
        }
    }
    Ok(builder.finish())
}

#[cfg(test)]
mod tests;
