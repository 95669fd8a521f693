//! The daemon's socket: JSON-RPC 2.0, one message a line, over a Unix socket that only its owner can reach.
//!
//! This room owns where the socket file is and who may connect ([`bind`], [`socket`]), how lines
//! become requests (`envelope`), how one connection reads them (`connection`), admits and answers them ([`calls`],
//! [`answer`]), and the one queue that leads back to the client ([`outbox`]). `stream` is the client's socket. None of these
//! knows what a method does: the methods come in as a table, which `methods` makes of the bridge's.
//!
//! The way in: bytes → lines → envelope → first poll of the handler, in the order of arrival →
//! the connection's `requests_in_flight`. The way out: answers and events → [`outbox::Outbox`] → one writer.

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
pub use outbox::{Outbox, OutboxLimits, PushError, SubscriptionSink};
pub use requests_in_flight::RequestsInFlight;
pub use socket::{ConnectionLimit, SocketLimits, serve};
