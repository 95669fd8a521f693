//! Reads, finds, copies and moves the agents' own transcripts, and names positions in them.
//!
//! This module has all knowledge of the transcript formats, and of the folders in which agents keep transcripts. Each
//! agent has a module (`claude`, `codex`, `qwen`), whose `dialect` is the interface for code outside this module. Each
//! format converts its records to the messages of `message`, on which checkpoints and pages are based. Modules outside
//! the agents' are shared, but `locate`, `relocate` and `index_cache` also contain code that only Claude needs.
//! `file_read` decides whether a file must be read again, and `indexes` caches what was read.
//!
//! `fields`, `lines`, `rewrite`, `scan`, `record_id`, `message`, `summary`, `check`, `origin`, `relocate`, `turn_counts`,
//! `checkpoint` and `preamble` are pure, as are the agents' files that say so: they work on the bytes and values that they
//! are given. Everything else uses the disk and blocks, so call it from threads that may block. Nothing here knows a
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
mod threads;
pub mod transcript_list;
pub mod turn_counts;
pub mod watch;

pub use error::TranscriptError;
