//! The daemon as an agent of the Agent Client Protocol: what an editor talks to in place of an agent.
//!
//! One connection is one editor. Its sessions are conversations: `session/new` answers with a conversation's id, and everything
//! about a session uses the id that the editor used. This room owns how the protocol's version 1 is spoken to an editor:
//!
//! | module | what it does |
//! |---|---|
//! | `editor` | takes the editor's lines, admits its requests in order and answers them |
//! | `handshake` | what the editor learns of the agent; signing in and out |
//! | `session_requests` | new, load, resume, fork, list, close and delete |
//! | `fork_point` | the message at which a client of JetBrains forks |
//! | `prompting` | prompts, cancellations, and the messages for failed turns |
//! | `settings` | modes, options and models |
//! | `session` | one session of the editor: passes the conversation's events on as updates |
//! | `peer` | the way to the editor, and its answers to the agent's questions |
//! | `forwarding` | passes the agent's requests for files and terminals on to the editor |
//! | `editor_capabilities` | the capabilities of the editor |
//! | `commands` | rewind, edit, fork, undo, continue and history as commands in a prompt |
//! | `message` | the text of messages, and errors in the protocol's codes |
//!
//! Content passes as raw JSON: only the id of the session is replaced. The room decides nothing about a conversation; it calls
//! `bridge` as the daemon's own protocol does.

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
