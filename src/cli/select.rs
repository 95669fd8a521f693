//! The conversation of a command.

use bridge_protocol::client::Call as _;
use bridge_protocol::conversation::Conversation;
use bridge_protocol::method;
use clap::Args;

use super::commands::{Context, conversation_ref};
use super::connect::Daemon;
use super::exit::Exit;
use super::problem::{Outcome, Problem};

/// Arguments of a command that takes only a conversation.
#[derive(Debug, Args)]
pub(super) struct Target {
    /// Conversation: id or its first 6 characters, part of the title, or . (omit to pick one)
    #[arg(value_name = "CONV")]
    pub(super) conversation: Option<String>,
}

impl Target {
    /// The word that names the conversation.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn word(&self) -> Outcome<&str> {
        self.conversation.as_deref().ok_or_else(none_named)
    }
}

/// The conversation that is meant.
///
/// # Errors
/// No conversation or several match, or none was named.
pub(super) async fn conversation(
    _context: &mut Context<'_>,
    daemon: &Daemon,
    given: Option<&str>,
) -> Outcome<Conversation> {
    let conversation_id = conversation_ref(daemon, given.ok_or_else(none_named)?).await?;
    let get = method::GetConversation { conversation_id };
    Ok(daemon.call(get).await?.conversation)
}

fn none_named() -> Problem {
    Problem::new(Exit::Usage, "no conversation was named")
        .hint("sessionctl ls lists them; . means the newest one of this folder")
}
