//! The daemon as an editor sees it: `sessionctl acp` as a separate process, with the built-in agent as its
//! agent.
//!
//! Tests wait for messages or for the end of a process, never for a time to pass.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking, also in its helpers"
)]
#![allow(
    clippy::needless_pass_by_value,
    reason = "parameters are written where they are sent, as json!"
)]

mod agent_replays;
mod cancelling;
mod commands;
mod editor;
mod editors;
mod extras;
mod forwarding;
mod handshake;
mod lines;
mod opening;
mod options;
mod passing;
mod pipe;
mod profile;
mod prompting;
mod questions;
mod recorder;
mod replaying;
mod requirements;
mod settings;
mod stalled;
mod subagents;
mod titles;
mod unanswered;

use crate::home::Home;
use crate::support::DEADLINE;
