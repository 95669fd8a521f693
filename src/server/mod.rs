//! The daemon's socket: JSON-RPC 2.0, one message a line, over a Unix socket that only its owner can reach.
//!
//! This room owns where the socket file is and who may connect ([`bind`], [`socket`]), how lines
//! become requests (`envelope`), how one connection reads them (`connection`), admits and answers them ([`calls`],
//! [`answer`]), and the one queue that leads back to the client ([`outbox`]). `stream` is the client's socket. None of these
//! knows what a method does: the methods come in as a table, which `methods` makes of the bridge's.
//!
//! The way in: bytes → lines → envelope → first poll of the handler, in the order of arrival →
//! what the connection has `admitted`. The way out: answers and events → [`outbox::Outbox`] → one writer.

mod admitted;
pub mod answer;
pub mod bind;
pub mod calls;
mod connection;
mod envelope;
mod methods;
pub mod outbox;
mod parameters;
pub mod socket;
mod stream;
mod subscriber;
#[cfg(test)]
mod tests;

pub use admitted::Admitted;
pub use bind::{BindError, PrivateSocket, SocketFile};
pub use calls::{Handler, Methods};
pub(crate) use calls::{panicked, poll_once};
pub use connection::{Dialogue, Service};
pub use methods::methods;
pub use outbox::{Feed, Outbox, OutboxLimits, PushError};
pub use socket::{ConnectionLimit, SocketLimits, serve};
