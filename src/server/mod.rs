//! The daemon's socket: JSON-RPC 2.0, one message per line, over a Unix socket that only its owner can open.
//!
//! This room owns the socket file and who may connect ([`bind`], [`socket`]), how lines become requests (`envelope`), how a
//! connection reads them (`connection`), starts and answers them ([`calls`], [`answer`]), and the queue of messages to
//! the client ([`outbox`]). `stream` is the client's socket. None of these knows what a method does: the methods are a table,
//! which `methods` builds from the bridge's methods.
//!
//! Input: bytes → lines → envelope → first poll of the handler, in order of arrival → the connection's
//! `requests_in_flight`. Output: answers and events → [`outbox::Outbox`] → one writer.

pub mod answer;
pub mod bind;
pub mod calls;
mod connection;
mod envelope;
mod methods;
pub mod outbox;
mod parameters;
mod requests_in_flight;
pub mod socket;
mod stream;
mod subscriber;
#[cfg(test)]
mod tests;

pub use bind::{BindError, PrivateSocket, SocketFile};
pub use calls::{Handler, Methods};
pub(crate) use calls::{panic_error, poll_once};
pub use connection::{Dialogue, Service};
pub use methods::methods;
pub use outbox::{Outbox, OutboxLimits, PushError, QueueMemory, SubscriptionSink};
pub(crate) use parameters::{check_nesting, without_position};
pub use requests_in_flight::RequestsInFlight;
pub use socket::{ConnectionLimit, SocketLimits, serve};
