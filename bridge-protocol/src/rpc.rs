//! The methods of the daemon as jsonrpsee traits. Parameters are objects, by name.
//!
//! With the feature `server` a trait `…Server` is made of each, with `client` a trait `…Client` for every jsonrpsee
//! client. Parameters that are `Option` may be left out; what that means is said at each method.
//!
//! These mean the same everywhere, and are not said again:
//! - `conversationId`: the conversation, by its id, a prefix of it of 6 characters or more, or exactly an upstream id
//!   that it ever held. Without one of these it is `notFound`, with several `ambiguous`.
//! - `requestId`: names a call that changes something. The same id with the same content joins the running call or gets its
//!   result again, for 7 days; with other content it is a `conflict`.
//!
//! Errors carry the codes and `data` of [`crate::error`]: see [`crate::BridgeError`], which converts both ways. A method
//! names the kinds of its own; each may also be `shuttingDown`, or fail by what JSON-RPC itself knows.
//! With the feature `schema` the OpenRPC document is made of the same lines: see [`crate::openrpc`].

#![cfg_attr(
    any(feature = "client", feature = "server"),
    expect(
        clippy::too_many_arguments,
        reason = "a JSON-RPC method has its parameters by name; here they have places"
    )
)]

#[cfg(any(feature = "client", feature = "server"))]
use jsonrpsee::types::ErrorObjectOwned;

#[macro_use]
mod methods;

mod agent;
mod checkpoint;
mod conversation;
mod daemon;
mod discovery;
mod transcript;

#[cfg(feature = "client")]
pub use agent::AgentRpcClient;
#[cfg(feature = "server")]
pub use agent::AgentRpcServer;
#[cfg(feature = "client")]
pub use checkpoint::CheckpointRpcClient;
#[cfg(feature = "server")]
pub use checkpoint::CheckpointRpcServer;
#[cfg(feature = "client")]
pub use conversation::ConversationRpcClient;
#[cfg(feature = "server")]
pub use conversation::ConversationRpcServer;
#[cfg(feature = "client")]
pub use daemon::DaemonRpcClient;
#[cfg(feature = "server")]
pub use daemon::DaemonRpcServer;
#[cfg(feature = "client")]
pub use discovery::DiscoveryRpcClient;
#[cfg(feature = "server")]
pub use discovery::DiscoveryRpcServer;
#[cfg(feature = "schema")]
pub(crate) use methods::describe;
#[cfg(feature = "server")]
pub use methods::module;
#[cfg(feature = "client")]
pub use transcript::TranscriptRpcClient;
#[cfg(feature = "server")]
pub use transcript::TranscriptRpcServer;

/// What a method answers.
#[cfg(any(feature = "client", feature = "server"))]
pub type RpcResult<T> = Result<T, ErrorObjectOwned>;
