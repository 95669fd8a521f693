//! Acting on what there is: `close`, `reset`, `rm`, `stop`.

use bridge_protocol::client::Call as _;
use bridge_protocol::conversation::{RemainingReason, TranscriptsOnDelete};
use bridge_protocol::method;
use bridge_protocol::{ConversationId, ConversationRef, UpstreamId};

use super::{Context, conversation_ref};
use crate::cli::args::{Remove, Stop};
use crate::cli::connect::Daemon;
use crate::cli::exit::Exit;
use crate::cli::output::one_line;
use crate::cli::problem::{Outcome, Problem};
use crate::cli::start;
use crate::cli::words;
use crate::paths::told::shell_word;

/// Closes the session.
pub(super) async fn close(context: &mut Context<'_>, word: &str) -> Outcome<Exit> {
    let daemon = context.connect().await?;
    let conversation = conversation_ref(&daemon, word).await?;
    daemon
        .call(method::Close {
            conversation_id: conversation,
            ..Default::default()
        })
        .await?;
    if context.output.json {
        context.answer(&daemon, "conversation/close")?;
    }
    Ok(Exit::Done)
}

/// Starts a new chat under the same id.
pub(super) async fn reset(context: &mut Context<'_>, word: &str) -> Outcome<Exit> {
    let daemon = context.connect().await?;
    let conversation = conversation_ref(&daemon, word).await?;
    let before = Before::of(&daemon, conversation).await?;
    daemon
        .call(method::Reset {
            conversation_id: before.id.into(),
            ..Default::default()
        })
        .await?;
    if context.output.json {
        context.answer(&daemon, "conversation/reset")?;
        return Ok(Exit::Done);
    }
    let mut line = format!("Reset {}: its next prompt starts a new chat.", before.name());
    if before.has_head {
        line = format!("{line} Undo with: sessionctl undo {}", words::short_id(before.id));
    }
    context.output.note(&line)?;
    Ok(Exit::Done)
}

/// A conversation before a command takes its history away.
struct Before {
    id: ConversationId,
    title: String,
    has_head: bool,
    /// The newest session that has a transcript.
    written: Option<UpstreamId>,
}

impl Before {
    async fn of(daemon: &Daemon, conversation: ConversationRef) -> Outcome<Self> {
        let conversation = daemon
            .call(method::GetConversation {
                conversation_id: conversation,
            })
            .await?
            .conversation;
        let links = daemon
            .call(method::Chain {
                conversation_id: conversation.id.into(),
            })
            .await?
            .links;
        let mut written = links.into_iter().filter(|link| link.written);
        Ok(Self {
            id: conversation.id,
            title: conversation.title,
            has_head: conversation.head.is_some(),
            written: written.next_back().map(|link| link.upstream_id),
        })
    }

    /// Its id, and its title if it has one.
    fn name(&self) -> String {
        let id = words::short_id(self.id);
        match one_line(&self.title) {
            title if title.is_empty() => id,
            title => format!("{id} ({title})"),
        }
    }
}

/// Deletes a conversation.
pub(super) async fn remove(context: &mut Context<'_>, options: Remove) -> Outcome<Exit> {
    let daemon = context.connect().await?;
    let conversation = conversation_ref(&daemon, &options.conversation).await?;
    let before = Before::of(&daemon, conversation).await?;
    let transcripts = options.transcripts.then_some(TranscriptsOnDelete::Delete);
    let answer = daemon
        .call(method::Delete {
            conversation_id: before.id.into(),
            transcripts: transcripts.unwrap_or_default(),
            ..Default::default()
        })
        .await?;
    if context.output.json {
        context.answer(&daemon, "conversation/delete")?;
    }
    let name = before.name();
    let line = match &before.written {
        _ if options.transcripts && answer.remaining.is_empty() => {
            format!("Deleted {name} and its transcripts.")
        }
        Some(session) if !options.transcripts => format!(
            "Deleted {name}; its transcripts are kept. Continue from them under a new id: sessionctl adopt {}",
            shell_word(session.as_str())
        ),
        _ => format!("Deleted {name}."),
    };
    context.output.note(&line)?;
    for left in &answer.remaining {
        let place = left.path.as_deref().unwrap_or(left.upstream_id.as_str());
        let line = format!("still there: {}: {}", one_line(place), one_line(&left.message));
        context.output.note(&line)?;
    }
    let failed = answer
        .remaining
        .iter()
        .filter(|left| left.reason == RemainingReason::Failed);
    match failed.count() {
        0 => Ok(Exit::Done),
        failed => {
            let transcripts = words::count(failed as u64, "transcript", "transcripts");
            let message = format!("the conversation is deleted, but {transcripts} could not be deleted");
            Err(Problem::new(Exit::Failed, message).hint("remove by hand what is named above"))
        }
    }
}

/// Stops the daemon and waits until it has ended. Where none runs, there is nothing to do.
pub(super) async fn stop(context: &mut Context<'_>, options: Stop) -> Outcome<Exit> {
    let Some(daemon) = context.reach.find().await? else {
        context.output.note("no daemon runs")?;
        return Ok(Exit::Done);
    };
    daemon
        .call(method::Shutdown {
            grace_ms: options.grace_ms,
        })
        .await?;
    daemon.closed().await;
    start::wait_for_end(&context.reach.paths).await?;
    if context.output.json {
        context.answer(&daemon, "daemon/shutdown")?;
    }
    Ok(Exit::Done)
}
