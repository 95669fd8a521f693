//! The agents' own transcripts: reading them, naming places in them, finding and copying them.
//!
//! Owns what is known of the formats and of the folders in which agents keep them. Each agent has a folder (`claude`, `codex`,
//! `qwen`), whose `dialect` answers everybody outside this room; its records become the messages of `message`, on which
//! checkpoints and pages are based. What lies beside the folders is shared, but `locate`, `relocate` and `library` also hold what
//! is only Claude's. `file_read` decides whether a file must be read again, `indexes` caches what was read.
//!
//! `fields`, `lines`, `rewrite`, `scan`, `record_id`, `message`, `summary`, `check`, `on_disk`, `origin`, `relocate`,
//! `checkpoint` and `preamble` are pure, as are the files of the folders that say so: they work on bytes and values that are
//! handed to them. All else is the disk side: it blocks, and is called from threads that may. Nothing here knows a
//! conversation, a chain, a socket or a runtime, and nothing here ever edits a transcript in place.

pub mod blank;
mod cache;
pub mod check;
pub mod checkpoint;
pub mod claude;
pub mod codex;
pub mod copy;
pub mod dialect;
mod error;
pub mod fields;
mod file_read;
pub mod index_cache;
mod indexes;
pub mod lines;
pub mod locate;
pub mod message;
pub mod meter;
pub mod moving;
pub mod open_transcript;
pub mod origin;
pub mod parts;
pub mod preamble;
pub mod qwen;
pub(crate) mod reading;
mod record_id;
pub mod relocate;
pub mod rewrite;
pub(crate) mod scan;
pub mod side_file_removal;
pub mod summary;
pub mod syncing;
#[cfg(test)]
pub(crate) mod tests;
pub mod transcript_list;
pub mod turn_counts;
pub mod watch;

pub use error::TranscriptError;
