//! `daemon/…` and `rpc.discover`: the daemon itself.

use super::methods;
use crate::conversation::Empty;
use crate::daemon::{DaemonStatus, WorkAnswer};
use crate::diagnosis::Diagnosis;
use crate::openrpc::OpenRpcDocument;

methods! {
    trait HandleDaemon;

    /// Shows how the daemon is doing.
    "daemon/status" => Status() -> DaemonStatus, [] {}

    /// Lists the running calls that read or write many files, oldest first, and how far each has come.
    "daemon/work" => RunningWork() -> WorkAnswer, [] {}

    /// Checks what the daemon depends on: its store, disk space, agents, their transcripts and for how long they keep
    /// them, and left-over processes. Changes nothing, except that a journal with damaged lines is written anew from the
    /// database while changes wait.
    "daemon/diagnose" => Diagnose() -> Diagnosis, [] {
        /// Whether to start agents that do not run and ask for their version. Default: true.
        agents: Option<bool>,
        /// The caller's own `PATH`: reports agents that are found there and not on the daemon's. Default: only the
        /// daemon's own is searched.
        path: Option<String>,
    }

    /// Stops the daemon. Running turns get some time to end.
    "daemon/shutdown" => Shutdown() -> Empty, [] {
        /// For how long running turns may still run, in milliseconds. Default: the configured `cancel_grace_ms`.
        grace_ms: Option<u64>,
    }

    /// Returns this document: the methods, events and errors of the daemon as OpenRPC.
    "rpc.discover" => Discover() -> OpenRpcDocument, [] {}
}
