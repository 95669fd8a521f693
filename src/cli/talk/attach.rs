//! `attach`: follows a conversation that any client uses, also across restarts of the daemon.
//!
//! It must not start a daemon that the user stopped.

use std::rc::Rc;

use super::turn::{ConversationFollower, FollowTarget, OnQuestion};
use crate::cli::commands::Context;
use crate::cli::problem::CommandResult;
use crate::cli::select::ConversationArgs;

/// The text at the end of the help of `attach`.
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
