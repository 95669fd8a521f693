//! The daemon's status and its running work.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::ConversationId;

/// The status of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoreStatus {
    /// Whether the store is in memory only.
    pub ephemeral: bool,
    /// The sequence number of the last durable change.
    pub sequence: u64,
    /// The size of the journal in bytes.
    pub journal_bytes: u64,
    /// The path to which a store that could not be opened was moved; absent unless that happened at this start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_aside: Option<String>,
    /// Why changes can no longer be made durable; absent while they can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// The answer of `daemon/status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DaemonStatus {
    /// The daemon's version.
    pub version: String,
    /// The version of this protocol.
    pub protocol_version: u32,
    /// The daemon's process id.
    pub pid: u32,
    /// The folder that contains everything (`SESSIOND_HOME` or `--home`); without one, the data folder.
    pub home: String,
    /// The path of the bridge socket.
    #[serde(default)]
    pub socket: String,
    /// For how long the daemon has run, in seconds.
    pub uptime_seconds: u64,
    /// The number of conversations.
    pub conversations: u64,
    /// The number of conversations whose session is open in a running agent.
    pub live: u64,
    /// The number of running agent processes.
    pub agents: u64,
    /// The store.
    pub store: StoreStatus,
}

/// The progress of a call that takes long because it reads or writes many files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Work {
    /// The method.
    pub method: String,
    /// The conversation that the call is about; absent if it is about none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<ConversationId>,
    /// How many bytes are done.
    pub done_bytes: u64,
    /// How many bytes there are in total, as far as known yet.
    pub total_bytes: u64,
}

/// The answer of `daemon/work`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkAnswer {
    /// The running calls, oldest first.
    pub work: Vec<Work>,
}
