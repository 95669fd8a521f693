//! The upstream side: agents as processes, and the Agent Client Protocol spoken with them.
//!
//! From the outside in: [`catalog`] names the agents that are configured and [`profile`] what is known of each kind,
//! [`pool`] shares processes between conversations, [`process`] starts and stops one of them, [`sweep`] ends what it
//! left behind, [`wire`] speaks newline-delimited JSON-RPC with it, [`inbox`] carries what it says to one session's
//! owner, [`session`] knows the protocol's methods, [`split`] cuts bytes into lines, [`envelope`] looks at one line without decoding it, [`message`]
//! holds the words that they share, and [`failure`] says what kind of failure an error is. [`loopback`] is an agent
//! itself: a program of its own, with no way into the daemon but the protocol.
//!
//! The room owns pipes, processes and request ids. It must not know conversations or subscribers, and it decides
//! nothing about recovery: it says what happened and keeps every answer as the agent wrote it.

pub mod catalog;
pub mod envelope;
pub mod failure;
pub mod inbox;
pub mod loopback;
pub mod message;
pub mod policy;
pub mod pool;
pub mod process;
pub mod profile;
pub mod session;
pub mod split;
pub mod sweep;
pub mod wire;
