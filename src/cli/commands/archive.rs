//! `archive`: the daemon's own copies of transcripts.

use bridge_protocol::client::Call as _;
use bridge_protocol::keep::{KeepAnswer, UnclaimedSession};
use bridge_protocol::{AgentName, ConversationRef, ErrorKind, UpstreamId, method};
use clap::{Args, Subcommand};
use jiff::Timestamp;

use super::Context;
use crate::cli::confirm::Unasked;
use crate::cli::connect::Daemon;
use crate::cli::exit::Exit;
use crate::cli::output::{DIM, one_line, pad};
use crate::cli::problem::Outcome;
use crate::cli::progress::watched;
use crate::cli::select;
use crate::cli::words;

/// List, make, restore and delete copies of transcripts
///
/// Transcripts are copied automatically unless the configuration has [keep] enabled = false. The next prompt of a conversation
/// restores a deleted transcript from its copy. Copies stay when a conversation is deleted without its transcripts; those copies
/// belong to no conversation.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  sessionctl archive ls
  sessionctl archive add .
  sessionctl archive restore 6d7e3074-ff17-4e38-b74e-98c3c4cf9faf
  sessionctl archive prune")]
pub(in crate::cli) enum Archive {
    /// Show the size of all copies, and list those of no conversation
    Ls,
    /// Copy transcripts now
    Add(Subject),
    /// Restore deleted transcripts; existing files are never replaced
    Restore(Subject),
    /// Delete the copies of a session that no conversation has
    Rm(Orphan),
    /// Delete all copies of sessions that no conversation has
    Prune,
}

/// Whose copies.
#[derive(Debug, Args)]
pub(in crate::cli) struct Subject {
    /// Conversation or agent session id
    #[arg(value_name = "CONV|ID")]
    target: String,
    /// Agent that wrote the transcript, if several agents have this id
    #[arg(long, value_name = "NAME")]
    pub(super) agent: Option<String>,
}

/// A session that no conversation has.
#[derive(Debug, Args)]
pub(in crate::cli) struct Orphan {
    /// Agent session id, as archive ls prints it
    #[arg(value_name = "ID")]
    id: String,
    /// Agent that wrote the transcript, if several agents have this id
    #[arg(long, value_name = "NAME")]
    pub(super) agent: Option<String>,
}

/// Runs a command of the archive.
pub(in crate::cli) async fn archive(context: &mut Context<'_>, command: Archive) -> Outcome<Exit> {
    match command {
        Archive::Ls => list(context).await,
        Archive::Add(subject) => add(context, subject).await,
        Archive::Restore(subject) => restore(context, subject).await,
        Archive::Rm(Orphan { id, agent }) => {
            let what = format!("Delete all copies of the session {id}, for good");
            let daemon = context.connect().await?;
            context.confirm(&what, Unasked::NeedsYes)?;
            forget(context, &daemon, UpstreamId::new(id), agent.map(Into::into)).await?;
            Ok(Exit::Done)
        }
        Archive::Prune => prune(context).await,
    }
}

async fn list(context: &mut Context<'_>) -> Outcome<Exit> {
    let daemon = context.connect().await?;
    let answer = all(context, &daemon).await?;
    if context.output.json {
        context.answer(&daemon, "transcript/keep")?;
        return Ok(Exit::Done);
    }
    let total = answer.total.unwrap_or_default();
    let line = format!(
        "{} kept, {}, {} on the disk",
        words::count(total.sessions, "session", "sessions"),
        words::count(total.files, "file", "files"),
        words::size(total.bytes)
    );
    context.output.line(&line)?;
    if !answer.enabled {
        let off = "transcripts are not copied automatically: [keep] enabled = false";
        context.output.line(&context.output.look.paint(DIM, off))?;
    }
    if total.unclaimed == 0 {
        return Ok(Exit::Done);
    }
    let orphans = words::count(total.unclaimed, "session", "sessions");
    context.output.line(&format!("of no conversation: {orphans}"))?;
    let now = Timestamp::now();
    for session in &answer.unclaimed {
        let UnclaimedSession { agent, title, .. } = session;
        let line = format!(
            "{}  {}  {}  {}  {}",
            one_line(session.upstream_id.as_str()),
            pad(&words::age(session.changed_at, now), 6),
            pad(&words::size(session.bytes), 7),
            one_line(agent.as_ref().map_or("no agent", AgentName::as_str)),
            one_line(title)
        );
        context.output.line(line.trim_end())?;
    }
    if let more @ 1.. = total.unclaimed - answer.unclaimed.len() as u64 {
        let more = format!("and {}", words::count(more, "older one", "older ones"));
        context.output.line(&context.output.look.paint(DIM, &more))?;
    }
    context.output.note(
        "sessionctl archive restore ID restores one; sessionctl archive prune deletes the copies of all",
    )?;
    Ok(Exit::Done)
}

/// What all copies take, and which belong to no conversation.
async fn all(context: &mut Context<'_>, daemon: &Daemon) -> Outcome<KeepAnswer> {
    let call = daemon.call(method::Keep::default());
    Ok(watched(context.output, daemon, "transcript/keep", call).await?)
}

async fn add(context: &mut Context<'_>, subject: Subject) -> Outcome<Exit> {
    let daemon = context.connect().await?;
    let (upstream_id, conversation_id) = named(&daemon, &subject).await?;
    let call = daemon.call(method::Keep {
        upstream_id,
        conversation_id,
        agent: subject.agent.map(Into::into),
    });
    let answer = watched(context.output, &daemon, "transcript/keep", call).await?;
    if context.output.json {
        context.answer(&daemon, "transcript/keep")?;
        return Ok(Exit::Done);
    }
    for file in &answer.kept {
        let line = format!("{}  {}", pad(&words::size(file.bytes), 7), one_line(&file.path));
        context.output.line(&line)?;
    }
    if answer.kept.is_empty() {
        context.output.note("no transcript to copy yet")?;
    }
    Ok(Exit::Done)
}

async fn restore(context: &mut Context<'_>, subject: Subject) -> Outcome<Exit> {
    let daemon = context.connect().await?;
    let (upstream_id, conversation_id) = named(&daemon, &subject).await?;
    let call = daemon.call(method::Restore {
        upstream_id,
        conversation_id,
        agent: subject.agent.map(Into::into),
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
        context.output.note(&format!(
            "the copy is older than the conversation: {turns} missing"
        ))?;
    }
    if answer.restored.is_empty() {
        context.output.note("nothing to restore: all files exist")?;
    }
    Ok(Exit::Done)
}

/// Deletes the copies of all sessions that no conversation has.
async fn prune(context: &mut Context<'_>) -> Outcome<Exit> {
    let daemon = context.connect().await?;
    let answer = all(context, &daemon).await?;
    let (orphans, count) = (answer.unclaimed, answer.total.unwrap_or_default().unclaimed);
    let more = count.saturating_sub(orphans.len() as u64);
    if orphans.is_empty() {
        context
            .output
            .note("nothing to delete: all copies belong to conversations")?;
        return Ok(Exit::Done);
    }
    let bytes = orphans.iter().map(|session| session.bytes).sum();
    let sessions = words::count(orphans.len() as u64, "session", "sessions");
    let what = format!(
        "Delete the copies of {sessions} of no conversation ({}), for good",
        words::size(bytes)
    );
    context.confirm(&what, Unasked::NeedsYes)?;
    for session in orphans {
        forget(context, &daemon, session.upstream_id, session.agent).await?;
    }
    if more > 0 {
        let more = words::count(more, "session is", "sessions are");
        context
            .output
            .note(&format!("{more} left; run sessionctl archive prune again"))?;
    }
    Ok(Exit::Done)
}

/// Deletes the copies of a session that no conversation has.
async fn forget(
    context: &mut Context<'_>,
    daemon: &Daemon,
    upstream_id: UpstreamId,
    agent: Option<AgentName>,
) -> Outcome {
    let session = words::short(upstream_id.as_str());
    let call = daemon.call(method::Forget { upstream_id, agent });
    let answer = watched(context.output, daemon, "transcript/forget", call).await?;
    let done = if answer.needed {
        format!("not deleted: other kept sessions depend on the copies of {session}")
    } else {
        format!("Deleted the copies of {session} ({}).", words::size(answer.bytes))
    };
    context.done(daemon, "transcript/forget", &done).map(drop)
}

/// The conversation of this name, unless an agent is named; else the session of this id.
async fn named(daemon: &Daemon, subject: &Subject) -> Outcome<(Option<UpstreamId>, Option<ConversationRef>)> {
    let session = UpstreamId::new(subject.target.as_str());
    if subject.agent.is_some() {
        return Ok((Some(session), None));
    }
    match select::resolve(daemon, &subject.target).await {
        Ok(found) => Ok((None, Some(found.id.into()))),
        Err(problem) if problem.kind() == Some(ErrorKind::NotFound) && subject.target != "." => {
            Ok((Some(session), None))
        }
        Err(problem) => Err(problem),
    }
}
