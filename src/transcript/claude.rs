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
//! | the branch, its messages and turns, to which checkpoints refer | `entries`, `walk`, `book` |
//! | a checkpoint, from the messages of one turn | `Digest` in `conversation/history/telling.rs`; its id: `CheckpointRef` in `checkpoint` |
//! | what a list shows, where a session came from | `summary`, `origin` |
//! | what becomes of each record in a whole copy, in a cut | `copy`, `cut`; its files: `side_files`, `borrowed_files` |
//! | what a transcript that has lost its beginning adds to a copy of it | `rejoin` |
//! | what is wrong, and what becomes of each record in a repair | `check`, `repair`; places of added results: `filling` |
//! | opening files for all this | `reading` |
//!
//! `dialect`, `copies`, `copy`, `cut`, `repair`, `reading`, `side_files` and `borrowed_files` use the disk and block; the others are pure
//! over any buffered reader. Nothing here knows conversations.

pub mod borrowed_files;
pub(in crate::transcript) mod check;
mod copies;
pub mod copy;
pub mod cut;
mod dialect;
mod entries;
mod facts;
mod fill_positions;
pub mod history;
mod index;
mod origin;
pub mod reading;
pub mod record;
mod rejoin;
pub mod repair;
pub(in crate::transcript) mod side_files;
pub(in crate::transcript) mod summary;
mod walk;

pub(in crate::transcript) use dialect::Claude;
pub(in crate::transcript) use facts::{BLOCK, INDEX, MESSAGE, RecordFacts};
pub(in crate::transcript) use fill_positions::FillPositions;
pub use index::Index;
pub use walk::{Join, NewerBranch, Selection};

use super::transcript_list::Format;

/// What agents say whose transcripts are like these.
pub const FORMAT: Format = Format::Claude;

#[cfg(test)]
mod tests;
