//! The rooms of session-bridge, in the order in which each may use only those above it.

#![forbid(unsafe_code)]

pub mod paths;

mod files;

pub mod agent;
pub mod archive;
pub mod chain;
pub mod conversation;
pub mod daemon;
pub mod diagnosis;
pub mod server;
pub mod store;
pub mod transcript;

pub mod cli;
