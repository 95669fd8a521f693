//! The upstream side: agent processes, and the Agent Client Protocol spoken with them.
//!
//! | module | what it does |
//! |---|---|
//! | [`catalog`] | names the configured agents |
//! | [`kinds`] | facts about each kind of agent, one file per kind |
//! | [`client`] | describes the client that a process is started for |
//! | [`pool`] | shares processes between conversations |
//! | [`process`] | starts and stops one process |
//! | [`sweep`] | ends the descendants that a process left behind |
//! | [`wire`] | speaks newline-delimited JSON-RPC with a process |
//! | [`inbox`] | carries the agent's messages to the owner of a session |
//! | [`session`] | the protocol's methods |
//! | [`split`] | splits bytes into lines |
//! | [`envelope`] | scans one line without decoding it |
//! | [`members`] | edits JSON objects without decoding their values |
//! | [`message`] | shared types: ids, method names, errors |
//! | [`subagent`] | how agents announce the sessions of subagents |
//! | [`failure`] | classifies errors |
//! | [`policy`] | answers questions automatically |
//! | [`loopback`] | an agent: a separate program that knows only the protocol |
//!
//! This module owns pipes, processes and request ids. It does not know conversations or subscribers, and decides
//! nothing about recovery: it reports what happened and keeps every answer as the agent wrote it.

pub mod catalog;
pub mod client;
pub mod envelope;
pub mod failure;
pub mod inbox;
pub mod kinds;
pub mod loopback;
pub mod members;
pub mod message;
pub mod policy;
pub mod pool;
pub mod process;
pub mod session;
pub mod split;
pub mod subagent;
pub mod sweep;
pub mod wire;
