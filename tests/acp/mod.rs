//! The daemon as an editor sees it: `sessionctl acp` as a process of its own, spoken to in lines, with the built-in agent behind it.
//!
//! What is waited for is a message or the end of a process, never a time.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking, also in its helpers"
)]
#![allow(
    clippy::needless_pass_by_value,
    reason = "parameters are written where they are sent, as json!"
)]

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

use crate::home::Home;
use crate::support::DEADLINE;
