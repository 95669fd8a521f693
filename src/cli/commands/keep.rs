//! Kept copies of transcripts: `keep`, `restore`.

use bridge_protocol::rpc::{ConversationRpcClient, TranscriptRpcClient};
use bridge_protocol::{BridgeError, ConversationRef, ErrorKind, UpstreamId};
use jsonrpsee::core::client::Error as ClientError;

use super::transcripts::size;
use super::{Context, conversation_ref};
use crate::cli::args::{Keep, Restore};
use crate::cli::connect::Daemon;
use crate::cli::exit::Exit;
use crate::cli::output::{DIM, one_line, pad};
use crate::cli::problem::Outcome;
use crate::cli::progress::watched;
use crate::cli::words;

/// What a call names: a session, or a conversation.
type Named = (Option<UpstreamId>, Option<ConversationRef>);

/// Copies the transcripts of a conversation, or tells what all copies are together.
pub(super) async fn keep(context: &mut Context<'_>, options: Keep) -> Outcome<Exit> {
    let Keep { target, agent } = options;
    let daemon = context.connect().await?;
    let (id, conversation) = match &target {
        Some(target) => named(&daemon, target, agent.is_some()).await?,
        None => (None, None),
    };
    let call = TranscriptRpcClient::keep(&daemon, id, conversation, agent.map(Into::into));
    let answer = watched(context.output, &daemon, "transcript/keep", call).await?;
    if context.output.json {
        context.answer(&daemon, "transcript/keep")?;
        return Ok(Exit::Done);
    }
    let sizes: Vec<String> = answer.kept.iter().map(|file| size(file.bytes)).collect();
    let width = sizes.iter().map(String::len).max().unwrap_or_default();
    for (file, size) in answer.kept.iter().zip(&sizes) {
        let line = format!("{}  {}", pad(size, width), one_line(&file.path));
        context.output.line(&line)?;
    }
    if let Some(total) = answer.total {
        let line = format!(
            "{} kept, {}, {} on the disk",
            words::count(total.sessions, "session", "sessions"),
            words::count(total.files, "file", "files"),
            size(total.bytes)
        );
        context.output.line(&line)?;
        if !answer.enabled {
            let off = "nothing more is kept unless it is named: [keep] enabled = false";
            context.output.line(&context.output.look.paint(DIM, off))?;
        }
    }
    Ok(Exit::Done)
}

/// Puts kept transcripts back to where their agent looks for them.
pub(super) async fn restore(context: &mut Context<'_>, options: Restore) -> Outcome<Exit> {
    let Restore { target, agent } = options;
    let daemon = context.connect().await?;
    let (id, conversation) = named(&daemon, &target, agent.is_some()).await?;
    let call = TranscriptRpcClient::restore(&daemon, id, conversation, agent.map(Into::into));
    let answer = watched(context.output, &daemon, "transcript/restore", call).await?;
    if context.output.json {
        context.answer(&daemon, "transcript/restore")?;
        return Ok(Exit::Done);
    }
    for path in &answer.restored {
        context.output.line(&one_line(path))?;
    }
    if answer.missing_turns > 0 {
        let turns = words::count(answer.missing_turns, "turn", "turns");
        context
            .output
            .note(&format!("the copy was made before the end: {turns} missing"))?;
    }
    if answer.restored.is_empty() {
        context.output.note("all that is kept of it is there already")?;
    }
    Ok(Exit::Done)
}

/// A conversation where there is one of this name and no agent is named, else the session of this id.
async fn named(daemon: &Daemon, target: &str, has_agent: bool) -> Outcome<Named> {
    if target == "." {
        return Ok((None, Some(conversation_ref(daemon, target).await?)));
    }
    let by_id = (Some(UpstreamId::new(target)), None);
    if has_agent {
        return Ok(by_id);
    }
    match daemon.get(target.into()).await {
        Ok(_) => Ok((None, Some(target.into()))),
        Err(error) if is_unknown(&error) => Ok(by_id),
        Err(error) => Err(error.into()),
    }
}

fn is_unknown(error: &ClientError) -> bool {
    matches!(error, ClientError::Call(error) if BridgeError::from(error.clone()).kind == ErrorKind::NotFound)
}
