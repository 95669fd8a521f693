//! Conversations: their state, their changes, and the tasks that carry out the changes.
//!
//! The decisions are pure: [`state`] holds a conversation, [`transition`] changes it one step at a time, and [`recovery`]
//! chooses the next way to bring a session back. Each live conversation has one task ([`actor`]), which owns all its
//! state, makes the steps and carries out the effects. [`registry`] finds or starts that task. [`events`] sends
//! events to subscribers. Nothing here knows a socket or a wire code, and no two conversations share state.

pub mod actor;
pub mod answer;
mod arrival;
pub mod backup;
mod branching;
mod bundle;
mod checking;
pub mod client_request;
pub mod climbing;
mod closed_sessions;
mod deleting;
pub mod destination;
pub mod edit;
pub mod effect;
pub mod error;
pub mod events;
mod exporting;
pub mod folder;
pub mod history;
pub mod importing;
mod last_used;
mod lock;
pub mod lost_parts;
mod moving;
pub mod naming;
pub mod old_bytes;
mod page;
pub mod prompt_request;
pub mod read_queues;
pub mod recovery;
pub mod registry;
mod repairing;
pub mod replay;
pub mod reported_settings;
mod resource;
pub mod running_work;
pub mod services;
pub mod state;
pub(crate) mod transcript_facts;
pub mod transcript_growth;
pub mod transition;
pub(crate) mod tree_moves;
pub mod uncommitted_copies;
mod undo_target;
mod unended_session;
mod unfinished;
pub mod unusable_files;
pub mod upstream;
pub mod wakeups;
pub mod writer;
