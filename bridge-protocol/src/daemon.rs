//! The daemon's status and its running work.

use crate::declare::objects;
use crate::id::ConversationId;

objects! {
    /// The status of the store.
    StoreStatus {
        /// Whether the store is in memory only.
        ephemeral: bool,
        /// The sequence number of the last durable change.
        sequence: u64,
        /// The size of the journal in bytes.
        journal_bytes: u64,
        /// The path to which a store that could not be opened was moved; absent unless that happened at this start.
        set_aside: Option<String> = default,
        /// Why changes can no longer be made durable; absent while they can.
        failure: Option<String> = default,
    }

    /// The answer of `daemon/status`.
    DaemonStatus {
        /// The daemon's version.
        version: String,
        /// The version of this protocol.
        protocol_version: u32,
        /// The daemon's process id.
        pid: u32,
        /// The folder that contains everything (`SESSIOND_HOME` or `--home`); without one, the data folder.
        home: String,
        /// The path of the bridge socket.
        #[serde(default)]
        socket: String,
        /// For how long the daemon has run, in seconds.
        uptime_seconds: u64,
        /// The number of conversations.
        conversations: u64,
        /// The number of conversations whose session is open in a running agent.
        live: u64,
        /// The number of running agent processes.
        agents: u64,
        /// The store.
        store: StoreStatus,
    }

    /// The progress of a call that takes long because it reads or writes many files.
    Work {
        /// The method.
        method: String,
        /// The conversation that the call is about; absent if it is about none.
        conversation_id: Option<ConversationId> = default,
        /// How many bytes are done.
        done_bytes: u64,
        /// How many bytes there are in total, as far as known yet.
        total_bytes: u64,
    }

    /// The answer of `daemon/work`.
    #[derive(Default)]
    WorkAnswer {
        /// The running calls, oldest first.
        work: Vec<Work>,
    }
}
