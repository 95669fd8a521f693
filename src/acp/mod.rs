//! The daemon as an agent of the Agent Client Protocol (ACP): editors connect to the daemon instead of to an agent.
//!
//! Each connection is one editor. Its sessions are conversations: `session/new` returns a conversation's id, and later messages
//! about a session use the id that the editor used. This room owns version 1 of the protocol on the editor's side:
//!
//! | module | what it does |
//! |---|---|
//! | `editor` | reads the editor's lines, starts its requests in order and answers them |
//! | `handshake` | `initialize`; signing in and out |
//! | `session_requests` | new, load, resume, fork, list, close and delete |
//! | `fork_point` | the message at which a JetBrains client forks |
//! | `prompting` | prompts, cancellations, and the messages for failed turns |
//! | `settings` | modes, options and models |
//! | `session` | one session of the editor: forwards the conversation's events as updates |
//! | `peer` | requests to the editor, and its answers to the agent's questions |
//! | `forwarding` | forwards the agent's file and terminal requests to the editor |
//! | `editor_capabilities` | the capabilities of the editor |
//! | `commands` | rewind, edit, fork, undo, continue and history as commands in a prompt |
//! | `message` | the text of messages, and errors in the protocol's codes |
//!
//! Content is forwarded as raw JSON; only the session id is replaced. The room makes no decisions about a conversation. It
//! calls `bridge`, as the daemon's own protocol does.

mod commands;
mod editor;
mod editor_capabilities;
mod fork_point;
mod forwarding;
mod handshake;
mod message;
mod peer;
mod prompting;
mod session;
mod session_requests;
mod settings;

pub use editor::AcpService;
