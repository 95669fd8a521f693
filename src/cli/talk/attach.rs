//! `attach`: a conversation as it happens, whoever talks to it, also over a restart of the daemon.
//!
//! It must not start a daemon that was stopped on purpose.

use std::rc::Rc;

use super::turn::{OnQuestion, Start, Talk};
use crate::cli::commands::Context;
use crate::cli::problem::Outcome;
use crate::cli::select::Target;

/// What the help of `attach` says at its end.
pub(in crate::cli) const HELP: &str = "\
Shows the running turn (or the last one) and all later turns, and asks the agent's questions. If the daemon stops, waits up to a \
minute for the next one. Ctrl-C leaves; the turn continues.

Examples:
  sessionctl attach .
  sessionctl attach 90e2e180 --json";

/// Follows a conversation until Ctrl-C or its end.
pub(in crate::cli) async fn attach(context: &mut Context<'_>, target: Target) -> Outcome {
    let (daemon, conversation) = context.on(target.name()).await?;
    let mut talk = Talk::new(context, Rc::new(daemon), &conversation, None);
    talk.unattended = OnQuestion::Wait;
    talk.follow(Start::Watch).await.map(drop)
}
