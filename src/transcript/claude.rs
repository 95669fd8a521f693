//! The history in a Claude transcript: its live branch, divided into turns.
//!
//! A transcript is a tree in an append-only file. The live branch leads from the last message back through its
//! parents. If the position that the agent recorded last in the file is not on that path, the live branch starts
//! there instead. Siblings are abandoned branches, and side chains belong to subagents. The file is read in two
//! passes: the first stores some tens of bytes for each chain record (`index`), the second decodes the requested
//! records.
//!
//! | what | where |
//! |---|---|
//! | the implementation of [`Dialect`](super::dialect::Dialect) | `dialect`; choosing among several copies: `copies` |
//! | one record, decoded | `record` |
//! | one pass over the bytes to the position of each record | `facts`, `index` |
//! | the branch, its messages and turns, to which checkpoints refer | `entries`, `walk`, `history` |
//! | a checkpoint, from the messages of one turn | `CheckpointBuilder` in `conversation/history/wire_messages.rs`; its id: `CheckpointRef` in `checkpoint` |
//! | what a list shows, where a session came from | `summary`, `origin` |
//! | what happens to each record in a whole copy, in a cut | `copy`, `cut`; its files: `side_files`, `borrowed_files` |
//! | what a transcript that has lost its beginning adds to a copy of it | `rejoin` |
//! | damage, and what happens to each record in a repair | `check`, `repair` |
//! | opening files for all this | `reading` |
//!
//! `dialect`, `copies`, `copy`, `cut`, `repair`, `reading`, `side_files` and `borrowed_files` use the disk and block; the
//! others are pure and take any buffered reader. Nothing here knows conversations.

pub mod borrowed_files;
pub(in crate::transcript) mod check;
pub mod copy;
pub mod cut;
mod dialect;
mod duplicates;
mod entries;
mod facts;
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
pub use index::ClaudeIndex;
pub use walk::{NewerBranch, Selection};

use super::transcript_list::Format;

/// The format that the configuration of an agent with such transcripts names.
pub const FORMAT: Format = Format::Claude;

#[cfg(test)]
mod tests;
