//! The daemon from outside: the real program in a home of its own, real agents as processes, clients on its socket.
//!
//! What is waited for is an event, an answer or the end of a process, never a time; the deadline in `support` only
//! turns a hang into a failure. Each daemon is stopped at the end of its test, and no process of it may be left then.
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
mod adopting;
mod agents;
mod apart;
mod bad_bundles;
mod bad_input;
mod bad_transcripts;
#[cfg(target_os = "linux")]
mod broken_agents;
mod cancel;
mod carrying;
mod checking;
mod codex;
mod codex_bundles;
mod codex_ladder;
mod codex_past;
mod codex_rollouts;
mod codex_watching;
mod continuing;
mod contract;
mod conversations;
mod damage_table;
mod damaged;
#[cfg(target_os = "linux")]
mod deaths;
mod deleting;
mod diagnosing;
mod discovery;
mod edits;
mod events;
mod forgetting;
mod fork_places;
mod forks;
#[cfg(target_os = "linux")]
mod full_disk;
#[cfg(target_os = "linux")]
mod gate;
mod gone;
#[cfg(target_os = "linux")]
mod hangs;
mod history;
mod home;
mod in_line;
mod inherited;
mod interrupts;
mod keeping;
#[cfg(target_os = "linux")]
mod killed_imports;
#[cfg(target_os = "linux")]
mod killed_moves;
#[cfg(target_os = "linux")]
mod killed_repairs;
mod ladder;
mod large;
mod late_refusals;
mod late_saving;
mod leaving;
mod lent;
mod limits;
mod loading;
mod lost_turns;
mod many_moves;
mod moved_trees;
mod moving;
mod outside;
mod passing;
mod portable;
mod prompts;
mod repairing;
mod repeats;
#[cfg(target_os = "linux")]
mod said_once;
mod scene;
mod scripted;
mod settings;
#[cfg(target_os = "linux")]
#[path = "../support/signs.rs"]
mod signs;
mod starting;
mod stopping;
mod support;
mod told_exports;
mod transcripts;
mod trusting;
mod undone_trees;
mod unended_sessions;
mod uninstalled;
mod uprooted;
mod watching;
mod wrong_state;
