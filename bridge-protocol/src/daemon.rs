//! The daemon itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::ConversationId;

/// What the store is and how it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoreStatus {
    /// Whether everything is kept in memory only.
    pub ephemeral: bool,
    /// The sequence number of the last durable change.
    pub sequence: u64,
    /// Size of the journal in bytes.
    pub journal_bytes: u64,
    /// Where a store that would not open was set aside, when that happened at this start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_aside: Option<String>,
    /// Why changes cannot be made durable any more, when they cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// The answer of `daemon/status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DaemonStatus {
    /// The daemon's version.
    pub version: String,
    /// The version of this contract.
    pub protocol_version: u32,
    /// Its process id.
    pub pid: u32,
    /// The one folder that everything is under, or its data folder.
    pub home: String,
    /// The bridge socket.
    #[serde(default)]
    pub socket: String,
    /// For how long it has run, in seconds.
    pub uptime_seconds: u64,
    /// How many conversations there are.
    pub conversations: u64,
    /// How many of them are open in a running agent.
    pub live: u64,
    /// How many agent processes run.
    pub agents: u64,
    /// The store.
    pub store: StoreStatus,
}

/// A call that takes long because of the files that it reads or writes, as far as it has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Work {
    /// The method.
    pub method: String,
    /// The conversation that it is about, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<ConversationId>,
    /// How many bytes are done.
    pub done_bytes: u64,
    /// How many bytes there are to do, as far as it is known by now.
    pub total_bytes: u64,
}

/// The answer of `daemon/work`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkAnswer {
    /// The calls, those that began first first.
    pub work: Vec<Work>,
}
