//! The wire contract of session-bridge: what a program needs to talk to `sessiond`, and nothing else.
//!
//! The crate owns the ids, objects, events and errors that cross the socket, and the JSON-RPC methods as
//! jsonrpsee traits. It must not know how the daemon does its work: no store, no process, no path of its own.
//! Without features it is plain data (serde only); `server` and `client` add the traits of their side, and
//! `client` also the Unix socket transport, so that a desktop app needs this crate alone. `schema` makes JSON schemas of
//! the types, and the OpenRPC document of all of it.
//!
//! Names and shapes are stable: fields may be added, never renamed or removed. Fields are camelCase, an absent
//! field and `null` mean the same, unknown fields are ignored.

#![forbid(unsafe_code)]

pub mod agent;
pub mod check;
#[cfg(feature = "client")]
pub mod client;
pub mod conversation;
pub mod daemon;
pub mod diagnosis;
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
pub mod transcript;
pub mod turn;

pub use error::{BridgeError, ErrorKind};
pub use id::{
    AgentName, CheckpointId, ConversationId, ConversationRef, Cursor, InterruptId, TurnId, UpstreamId,
};

/// The version of this contract, as told by `daemon/status`.
pub const PROTOCOL_VERSION: u32 = 1;
