//! The conversation of a command.

use bridge_protocol::ConversationRef;
use bridge_protocol::client::Call as _;
use bridge_protocol::conversation::Conversation;
use bridge_protocol::method;

use super::commands::{Context, conversation_ref};
use super::connect::Daemon;
use super::exit::Exit;
use super::output::{DIM, one_line};
use super::problem::{Outcome, Problem};
use super::words;

/// The conversation that was named.
///
/// # Errors
/// None was named, or there is no such conversation.
pub(super) async fn conversation(
    context: &mut Context<'_>,
    daemon: &Daemon,
    given: Option<&str>,
) -> Outcome<Conversation> {
    let Some(word) = given else {
        let problem = Problem::new(Exit::Usage, "no conversation was named");
        return Err(problem.hint("sessionctl ls lists them; . means the newest in this folder"));
    };
    let conversation_id: ConversationRef = conversation_ref(daemon, word).await?;
    let conversation = daemon
        .call(method::GetConversation { conversation_id })
        .await?
        .conversation;
    if word == "." {
        let look = context.output.note_look;
        let (sign, id) = (look.sign("→", "->"), words::short_id(conversation.id));
        let line = format!("{sign} {id} {}", one_line(&conversation.title));
        let line = look.paint(DIM, line.trim_end());
        context.output.note(&line)?;
    }
    Ok(conversation)
}
