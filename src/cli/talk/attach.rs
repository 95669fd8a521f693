//! `attach`: a conversation as it happens, whoever talks to it, also over a restart of the daemon.
//!
//! It must not start a daemon that was stopped on purpose.

use std::rc::Rc;

use super::turn::{ConversationFollower, FollowTarget, OnQuestion};
use crate::cli::commands::Context;
use crate::cli::problem::CommandResult;
use crate::cli::select::ConversationArgs;

/// What the help of `attach` says at its end.
pub(in crate::cli) const HELP: &str = "\
Shows the running turn (or the last one) and all later turns, and asks the agent's questions. If the daemon stops, waits up to a \
minute for the next one. Ctrl-C leaves; the turn continues.

Examples:
  sessionctl attach .
  sessionctl attach 90e2e180 --json";

/// Follows a conversation until Ctrl-C or its end.
pub(in crate::cli) async fn attach(context: &mut Context<'_>, target: ConversationArgs) -> CommandResult {
    let (daemon, conversation) = context.connect_and_select(target.name()).await?;
    let mut talk = ConversationFollower::new(context, Rc::new(daemon), &conversation, None);
    talk.on_question = OnQuestion::Wait;
    talk.follow(FollowTarget::Watch).await.map(drop)
}
