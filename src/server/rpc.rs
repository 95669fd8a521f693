//! The methods of the wire: parameters in, a call into a mailbox, the answer or its error out. No decisions.
//!
//! This is the only place that knows both the conversations and the wire's codes. Each handler puts its call into the
//! mailbox before it first waits, so that calls are admitted in the order in which they arrive.

mod agents;
mod checkpoints;
mod conversations;
mod discovery;
mod errors;
mod fingerprint;
mod lifecycle;
mod parameters;
mod subscriber;
mod transcripts;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bridge_protocol::diagnosis::Diagnostic;
use bridge_protocol::rpc::RpcResult;
use jsonrpsee::RpcModule;
use serde::Serialize;
use tokio::sync::mpsc;

use crate::conversation::answer::Request;
use crate::conversation::error::ConversationError;
use crate::conversation::registry::Registry;
use crate::store::RequestId;
use errors::wire;
use fingerprint::fingerprint;

/// The longest idempotency key: a few UUIDs and a name. Each is kept for days.
const MAX_REQUEST_ID_BYTES: usize = 256;

/// A request to stop that came over the wire.
#[derive(Clone, Copy, Debug)]
pub struct StopRequest {
    /// How long running turns get; the configured grace when none is named.
    pub grace: Option<Duration>,
}

/// What the methods act on.
pub struct Daemon {
    /// All conversations.
    pub registry: Arc<Registry>,
    /// The one folder that everything is under, or the data folder.
    pub home: PathBuf,
    /// When this life began.
    pub started: Instant,
    /// A store that would not open and was set aside at this start.
    pub set_aside: Option<PathBuf>,
    /// What is to be said of the configuration file, as it is now.
    pub configuration: Box<dyn Fn() -> Diagnostic + Send + Sync>,
    /// Where a request to stop goes; one is enough.
    pub stop: mpsc::Sender<StopRequest>,
}

/// The handlers; cheap to clone.
#[derive(Clone)]
struct Handlers {
    daemon: Arc<Daemon>,
}

/// All methods, to be served.
///
/// # Errors
/// When two methods have the same name, which the traits rule out.
pub fn methods(daemon: Arc<Daemon>) -> Result<RpcModule<()>, jsonrpsee::core::RegisterMethodError> {
    bridge_protocol::rpc::module(&Handlers { daemon })
}

/// The idempotency key of a call: the caller's id, and a hash of what the call says, its defaults filled in.
fn request(method: &str, id: Option<String>, content: &impl Serialize) -> RpcResult<Option<Request>> {
    let Some(id) = id else { return Ok(None) };
    if id.is_empty() || id.len() > MAX_REQUEST_ID_BYTES {
        let error = ConversationError::InvalidParams(format!(
            "requestId must have 1 to {MAX_REQUEST_ID_BYTES} bytes, not {}; leave it out to have the call carried out \
             each time",
            id.len()
        ));
        return Err(wire(&error));
    }
    Ok(Some(Request {
        id: RequestId::new(id),
        fingerprint: fingerprint(method, content),
    }))
}
