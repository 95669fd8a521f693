//! The wire contract of session-bridge: what a program needs to talk to `sessiond`, and nothing else.
//!
//! The crate owns the ids, objects, events and errors that cross the socket, the table of methods ([`method`]), and the
//! OpenRPC document made from them. It must not know how the daemon does its work: no store, no process, no path of its
//! own. Without features it is plain data and what a server implements; `client` adds the typed client and its Unix
//! socket transport, so that a desktop app needs this crate alone.
//!
//! Names and shapes are stable: fields may be added, never renamed or removed. Fields are camelCase, an absent field and
//! `null` mean the same. Unknown fields of objects are ignored; an unknown parameter of a method is refused.

#![forbid(unsafe_code)]

pub mod agent;
mod by_name;
pub mod check;
#[cfg(feature = "client")]
pub mod client;
pub mod conversation;
pub mod daemon;
mod declare;
pub mod diagnosis;
pub mod editor;
pub mod error;
pub mod event;
pub mod export;
pub mod history;
pub mod id;
pub mod keep;
pub mod link;
pub mod method;
pub mod openrpc;
pub mod raw;
pub mod time;
pub mod transcript;
pub mod turn;

pub use error::{BridgeError, ErrorKind};
pub use id::{
    AgentName, CheckpointId, ConversationId, ConversationRef, Cursor, InterruptId, TurnId, UpstreamId,
};

/// The version of this contract, as `daemon/status` reports it.
pub const PROTOCOL_VERSION: u32 = 1;
