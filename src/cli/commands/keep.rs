//! Kept copies of transcripts: `keep`, `restore`.

use bridge_protocol::client::Call as _;
use bridge_protocol::keep::UnclaimedSession;
use bridge_protocol::method;
use bridge_protocol::{AgentName, BridgeError, ConversationRef, ErrorKind, UpstreamId};
use clap::Args;
use jiff::Timestamp;
use jsonrpsee::core::client::Error as ClientError;

use super::transcripts::size;
use super::{Context, conversation_ref};
use crate::cli::connect::Daemon;
use crate::cli::exit::Exit;
use crate::cli::output::{DIM, one_line, pad};
use crate::cli::problem::Outcome;
use crate::cli::progress::watched;
use crate::cli::words;

/// Back up transcripts, or show the usage of all copies
#[derive(Debug, Args)]
pub(in crate::cli) struct Keep {
    /// Conversation or session id to back up; omit to show usage and orphaned copies
    #[arg(value_name = "CONV|ID")]
    pub(in crate::cli) target: Option<String>,
    /// Delete the orphaned copies of this session id instead of making a copy
    #[arg(long, requires = "target")]
    pub(in crate::cli) forget: bool,
    /// Agent that wrote the transcript, if several agents have this id
    #[arg(long, value_name = "NAME", requires = "target")]
    pub(in crate::cli) agent: Option<String>,
}

/// Restore deleted transcripts from their copies
#[derive(Debug, Args)]
pub(in crate::cli) struct Restore {
    /// Conversation or session id to restore
    #[arg(value_name = "CONV|ID")]
    pub(in crate::cli) target: String,
    /// Agent that wrote the transcript, if several agents have this id
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) agent: Option<String>,
}

/// What a call names: a session, or a conversation.
type Named = (Option<UpstreamId>, Option<ConversationRef>);

/// Copies the transcripts of a conversation, or tells what all copies are together.
pub(in crate::cli) async fn keep(context: &mut Context<'_>, options: Keep) -> Outcome<Exit> {
    let Keep {
        target,
        forget: is_forgotten,
        agent,
    } = options;
    let daemon = context.connect().await?;
    if let Some(id) = target.as_deref().filter(|_| is_forgotten) {
        return forget(context, &daemon, UpstreamId::new(id), agent.map(Into::into)).await;
    }
    let (id, conversation) = match &target {
        Some(target) => named(&daemon, target, agent.is_some()).await?,
        None => (None, None),
    };
    let call = daemon.call(method::Keep {
        upstream_id: id,
        conversation_id: conversation,
        agent: agent.map(Into::into),
    });
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
        tell_unclaimed(context, &answer.unclaimed, total.unclaimed)?;
    }
    Ok(Exit::Done)
}

/// What is kept and no conversation has, with how it is put back and how it goes.
fn tell_unclaimed(context: &mut Context<'_>, sessions: &[UnclaimedSession], count: u64) -> Outcome<()> {
    if count == 0 {
        return Ok(());
    }
    let of_them = format!(
        "of no conversation: {} (restore ID puts one back, keep --forget ID deletes its copies)",
        words::count(count, "session", "sessions")
    );
    context.output.line(&of_them)?;
    let now = Timestamp::now();
    let ages: Vec<String> = sessions
        .iter()
        .map(|one| words::age(one.changed_at, now))
        .collect();
    let sizes: Vec<String> = sessions.iter().map(|one| size(one.bytes)).collect();
    let widest = |texts: &[String]| texts.iter().map(String::len).max().unwrap_or_default();
    let (aged, sized) = (widest(&ages), widest(&sizes));
    for ((session, age), size) in sessions.iter().zip(&ages).zip(&sizes) {
        let agent = session.agent.as_ref().map_or("no agent", AgentName::as_str);
        let line = format!(
            "{}  {}  {}  {}  {}",
            one_line(session.upstream_id.as_str()),
            pad(age, aged),
            pad(size, sized),
            one_line(agent),
            one_line(&session.title)
        );
        context.output.line(line.trim_end())?;
    }
    if count > sessions.len() as u64 {
        let more = words::count(count - sessions.len() as u64, "older one", "older ones");
        context
            .output
            .line(&context.output.look.paint(DIM, &format!("and {more}")))?;
    }
    Ok(())
}

/// Deletes the copies of a session that no conversation has.
async fn forget(
    context: &mut Context<'_>,
    daemon: &Daemon,
    id: UpstreamId,
    agent: Option<AgentName>,
) -> Outcome<Exit> {
    let call = daemon.call(method::Forget {
        upstream_id: id,
        agent,
    });
    let answer = watched(context.output, daemon, "transcript/forget", call).await?;
    if context.output.json {
        context.answer(daemon, "transcript/forget")?;
    } else if answer.needed {
        let stays = "the copies stay until those are gone whose histories begin in them";
        context.output.note(stays)?;
    }
    Ok(Exit::Done)
}

/// Puts kept transcripts back to where their agent looks for them.
pub(in crate::cli) async fn restore(context: &mut Context<'_>, options: Restore) -> Outcome<Exit> {
    let Restore { target, agent } = options;
    let daemon = context.connect().await?;
    let (id, conversation) = named(&daemon, &target, agent.is_some()).await?;
    let call = daemon.call(method::Restore {
        upstream_id: id,
        conversation_id: conversation,
        agent: agent.map(Into::into),
    });
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
    match daemon
        .call(method::GetConversation {
            conversation_id: target.into(),
        })
        .await
    {
        Ok(_) => Ok((None, Some(target.into()))),
        Err(error) if is_unknown(&error) => Ok(by_id),
        Err(error) => Err(error.into()),
    }
}

fn is_unknown(error: &ClientError) -> bool {
    matches!(error, ClientError::Call(error) if BridgeError::from(error.clone()).kind == ErrorKind::NotFound)
}
