//! Tests of the real program from outside: a daemon in a home of its own, agents as real processes, clients on its
//! socket.
//!
//! A test waits for an event, a response or the end of a process, never for a time; the deadline in `support` only
//! turns a hang into a failure. Each daemon is stopped at the end of its test and must leave no process.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking, also in its helpers"
)]
#![allow(
    clippy::needless_pass_by_value,
    reason = "parameters are written where they are sent, as json!"
)]

mod activated;
mod adopted_forks;
mod adopting;
mod agents;
mod bad_bundles;
mod bad_input;
mod bad_transcripts;
mod blank_transcripts;
mod borrowed_files;
#[cfg(target_os = "linux")]
mod broken_agents;
mod cancel;
pub(crate) mod carrying;
mod checking;
mod circles;
mod clocks;
mod close_reset_delete;
pub(crate) mod codex;
mod codex_bundles;
mod codex_ladder;
mod codex_past;
mod codex_prompts;
pub(crate) mod codex_rollouts;
pub(crate) mod codex_watching;
mod config_errors;
mod confined_imports;
pub(crate) mod continuing;
pub(crate) mod contract;
mod conversations;
mod copied_files;
#[cfg(target_os = "linux")]
mod copied_folders;
mod copy_lists;
mod cut_off_transcripts;
mod damage_table;
pub(crate) mod damaged;
mod damaged_store;
mod data_folders;
#[cfg(target_os = "linux")]
mod deaths;
#[cfg(target_os = "linux")]
mod deleted_transcripts;
mod deleting;
mod diagnosing;
mod discovery;
#[cfg(target_os = "linux")]
mod dying_agents;
mod edits;
mod erasing;
pub(crate) mod error_words;
mod event_order;
mod events;
mod export_reports;
mod export_secrets;
pub(crate) mod external_changes;
#[cfg(target_os = "linux")]
mod failing_deletions;
mod failing_disk;
mod failure_captures;
mod family;
#[cfg(target_os = "linux")]
mod flooding;
pub(crate) mod foreign_home;
mod forgetting;
mod fork_places;
mod forks;
mod full_disk;
#[cfg(target_os = "linux")]
pub(crate) mod gate;
#[cfg(target_os = "linux")]
mod hangs;
mod history;
mod history_updates;
pub(crate) mod home;
mod import_bounds;
mod interrupts;
mod isolation;
pub(crate) mod keeping;
#[cfg(target_os = "linux")]
mod killed_forks;
#[cfg(target_os = "linux")]
mod killed_imports;
#[cfg(target_os = "linux")]
mod killed_moves;
#[cfg(target_os = "linux")]
mod killed_repairs;
mod killed_restores;
mod ladder;
mod large;
mod late_checkpoints;
mod late_refusals;
mod limits;
mod linked_transcripts;
mod loading;
mod lost_changes;
mod lost_turns;
mod many_moves;
mod misplaced_files;
pub(crate) mod moved_trees;
pub(crate) mod moving;
#[cfg(target_os = "linux")]
mod nested_daemons;
mod older_links;
mod pass_through;
mod portable;
mod prompts;
mod queued_prompts;
mod qwen;
#[cfg(target_os = "linux")]
pub(crate) mod refused_sessions;
mod removed_folders;
mod repairing;
mod repeats;
mod resets;
mod resolving;
pub(crate) mod scene;
#[cfg(target_os = "linux")]
mod scheduled_texts;
pub(crate) mod scripted;
mod set_aside;
mod settings;
mod starting;
mod stopping;
mod strangers;
pub(crate) mod support;
mod titles;
mod transcripts;
mod trusting;
mod undone_trees;
mod unended_sessions;
mod uninstalled;
#[cfg(target_os = "linux")]
mod unresponsive_folders;
pub(crate) mod watching;
mod wire_rules;
mod wrong_state;
