//! The agents' own transcripts: reading them, naming places in them, finding and copying them.
//!
//! Owns what is known of the formats and of the folders in which agents keep them. `record`, `fields`,
//! `lines`, `rewrite`, `scan`, `message`, `claude`, `codex`, `qwen`, `summary`, `check`, `on_disk`, `origin`, `relocate`, `checkpoint` and `preamble` are pure: they
//! work on bytes and values that are handed to them. `cache`, `locate`, `parts`, `blank`, `side_files`, `copy`, `cut`, `repair`, `reading`, `library`, `rollouts`,
//! `dialect`, `opened`, `shelf`, `moving`, `removing`, `syncing` and `watch` are the disk side; they block, and are called from threads that may. Nothing here knows a
//! conversation, a chain, a socket or a runtime, and nothing here ever edits a transcript in place.

pub mod blank;
pub mod borrowed_files;
mod cache;
pub mod check;
pub mod checkpoint;
pub mod claude;
pub mod codex;
pub mod copy;
pub mod cut;
pub mod dialect;
mod error;
pub mod fields;
pub mod library;
pub mod lines;
pub mod locate;
pub mod message;
pub mod meter;
pub mod moving;
pub mod on_disk;
pub mod opened;
pub mod origin;
pub mod parts;
pub mod preamble;
pub mod qwen;
pub mod reading;
pub mod record;
pub mod relocate;
pub mod removing;
pub mod repair;
pub mod rewrite;
pub mod rollouts;
mod scan;
pub mod shelf;
mod side_files;
pub mod summary;
pub mod syncing;
#[cfg(test)]
mod tests;
pub mod watch;

pub use error::TranscriptError;
