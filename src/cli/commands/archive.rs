//! `archive`: the daemon's backups of transcripts.

use bridge_protocol::keep::UnclaimedSession;
use bridge_protocol::{AgentName, ConversationId, ErrorKind, UpstreamId, method};
use clap::{Args, Subcommand};

use super::Context;
use crate::cli::complete;
use crate::cli::connect::Daemon;
use crate::cli::humanize::{self, Clock};
use crate::cli::output::{DIM, STRONG, one_line};
use crate::cli::problem::{CommandResult, Problem};
use crate::cli::select;
use crate::cli::table::{Table, dim, left, path, plain, right};
use crate::paths::shell_word;

/// The hint for an id that has no backup.
const LIST_HINT: &str = "sessionctl archive ls lists the backups";

/// List, make, restore and delete backups of transcripts
///
/// Transcripts are backed up automatically unless the configuration has [keep] enabled = false. The next prompt of a conversation
/// restores a deleted transcript from its backup. If a conversation is deleted without its transcripts, its backups are
/// kept, and belong to no conversation.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  sessionctl archive ls
  sessionctl archive add .
  sessionctl archive restore 6d7e3074-ff17-4e38-b74e-98c3c4cf9faf
  sessionctl archive prune")]
pub(in crate::cli) enum Archive {
    /// Show the size of all backups, and list those that belong to no conversation
    Ls,
    /// Back up transcripts now
    Add(ArchiveArgs),
    /// Restore deleted transcripts; existing files are never replaced
    Restore(ArchiveArgs),
    /// Delete the backups of a session that belongs to no conversation
    Rm(OrphanArgs),
    /// Delete all backups that belong to no conversation
    Prune,
}

/// Whose backups.
#[derive(Debug, Args)]
pub(in crate::cli) struct ArchiveArgs {
    /// Conversation or agent session id (omit to pick a conversation)
    #[arg(value_name = "CONV|ID", add = complete::conversation())]
    target: Option<String>,
    /// Agent that wrote the transcript, if several agents have this id
    #[arg(long, value_name = "NAME", requires = "target", add = complete::agent())]
    pub(super) agent: Option<String>,
}

/// A session that no conversation has.
#[derive(Debug, Args)]
pub(in crate::cli) struct OrphanArgs {
    /// Agent session id, as archive ls prints it
    #[arg(value_name = "ID", add = complete::unclaimed_session())]
    id: String,
    /// Agent that wrote the transcript, if several agents have this id
    #[arg(long, value_name = "NAME", add = complete::agent())]
    pub(super) agent: Option<String>,
}

/// Runs a subcommand of `archive`.
pub(in crate::cli) async fn archive(context: &mut Context<'_>, command: Archive) -> CommandResult {
    match command {
        Archive::Ls => list(context).await,
        Archive::Add(subject) => add(context, subject).await,
        Archive::Restore(subject) => restore(context, subject).await,
        Archive::Rm(OrphanArgs { id, agent }) => {
            let (id, agent) = (UpstreamId::new(id), agent.map(AgentName::from));
            let daemon = context.connect().await?;
            if !context.yes {
                confirm_deletion(context, &daemon, &id, agent.as_ref()).await?;
            }
            delete_backups(context, &daemon, id, agent).await
        }
        Archive::Prune => prune(context).await,
    }
}

/// Asks for confirmation before the backups of a session are deleted. Does not ask for a session that the daemon does not list,
/// because the daemon refuses to delete it.
async fn confirm_deletion(
    context: &mut Context<'_>,
    daemon: &Daemon,
    id: &UpstreamId,
    agent: Option<&AgentName>,
) -> CommandResult {
    let (answer, _) = context
        .call_with_progress(daemon, method::Keep::default())
        .await?;
    let is_it = |session: &&UnclaimedSession| {
        session.upstream_id == *id && (agent.is_none() || session.agent.as_ref() == agent)
    };
    let about = match answer.unclaimed.iter().find(is_it) {
        Some(session) => format!(
            "{id} {} ({})",
            one_line(&session.title),
            humanize::size(session.bytes)
        ),
        None if answer.total.unwrap_or_default().unclaimed > answer.unclaimed.len() as u64 => id.to_string(),
        None => return Ok(()),
    };
    let what = format!("Permanently delete all backups of session {about}");
    context.confirm(&what, true)
}

async fn list(context: &mut Context<'_>) -> CommandResult {
    let daemon = context.connect().await?;
    let answer = context.call_and_print(&daemon, method::Keep::default()).await?;
    let total = answer.total.unwrap_or_default();
    let room = match (total.sessions, total.bytes) {
        (0, _) => String::new(),
        (_, 0) => "; sharing the disk space of the transcripts".to_owned(),
        (_, bytes) => format!("; using {} in addition to the transcripts", humanize::size(bytes)),
    };
    let line = format!(
        "backups of {} in {}{room}",
        humanize::count(total.sessions, "session", "sessions"),
        humanize::count(total.files, "file", "files"),
    );
    context.output.line(&line)?;
    if !answer.enabled {
        let off = "transcripts are not backed up automatically: [keep] enabled = false";
        context.output.line(&context.output.look.paint(DIM, off))?;
    }
    if total.unclaimed == 0 {
        return Ok(());
    }
    let orphans = humanize::count(total.unclaimed, "session belongs", "sessions belong");
    context.output.line(&format!("{orphans} to no conversation:"))?;
    let clock = Clock::here();
    let mut table = Table::new([
        left("SESSION"),
        right("CHANGED").optional(),
        right("SIZE"),
        left("AGENT").optional(),
        left("TITLE"),
    ]);
    for session in &answer.unclaimed {
        table.row([
            (session.upstream_id.to_string(), STRONG),
            dim(clock.age_or_date(session.changed_at, context.output.look)),
            plain(humanize::size(session.bytes)),
            dim(session.agent.as_ref().map_or("no agent", AgentName::as_str)),
            plain(session.title.as_str()),
        ]);
    }
    context.output.table(&table, "")?;
    if let more @ 1.. = total.unclaimed - answer.unclaimed.len() as u64 {
        let more = format!("and {}", humanize::count(more, "older one", "older ones"));
        context.output.line(&context.output.look.paint(DIM, &more))?;
    }
    let newest = answer
        .unclaimed
        .first()
        .map(|session| session.upstream_id.as_str());
    let newest = shell_word(newest.unwrap_or_default());
    context.output.note(&format!(
        "restore one: sessionctl archive restore {newest}; delete all of them: sessionctl archive prune"
    ))
}

async fn add(context: &mut Context<'_>, subject: ArchiveArgs) -> CommandResult {
    let daemon = context.connect().await?;
    let (conversation, upstream_id) =
        select::conversation_or_session(context, &daemon, subject.target, subject.agent.is_some()).await?;
    let keep = method::Keep {
        upstream_id,
        conversation_id: conversation.map(|found| found.id.into()),
        agent: subject.agent.map(Into::into),
        ..Default::default()
    };
    let answer = context.call_and_print(&daemon, keep).await;
    let answer = answer.map_err(|problem| {
        let hint = "sessionctl transcripts lists the transcripts with their ids";
        problem.hint_if(ErrorKind::NotFound, hint)
    })?;
    let mut table = Table::new([right("SIZE"), path("FILE")]);
    for file in &answer.kept {
        table.row([plain(humanize::size(file.bytes)), plain(file.path.as_str())]);
    }
    let if_empty = "no transcript to back up yet";
    context.output.table(&table, if_empty)
}

async fn restore(context: &mut Context<'_>, subject: ArchiveArgs) -> CommandResult {
    let daemon = context.connect().await?;
    let (conversation, upstream_id) =
        select::conversation_or_session(context, &daemon, subject.target, subject.agent.is_some()).await?;
    let session = upstream_id.as_ref().map(ToString::to_string);
    let word = session.or_else(|| conversation.as_ref().map(|found| found.id.to_string()));
    let agent = subject.agent.clone();
    let open = conversation
        .as_ref()
        .filter(|found| found.live)
        .map(|found| found.id);
    let restore = method::Restore {
        upstream_id,
        conversation_id: conversation.map(|found| found.id.into()),
        agent: subject.agent.map(Into::into),
        ..Default::default()
    };
    let answer = context.call_and_print(&daemon, restore).await;
    let answer = answer.map_err(|problem| match problem.kind() {
        Some(ErrorKind::NotFound) => problem.hint(LIST_HINT),
        Some(ErrorKind::Conflict | ErrorKind::Busy) => {
            with_restore_hint(problem, &word.unwrap_or_default(), agent.as_deref(), open)
        }
        _ => problem,
    })?;
    for path in &answer.restored {
        context.output.verbatim(&one_line(path))?;
    }
    if answer.missing_turns > 0 {
        let turns = humanize::count(answer.missing_turns, "turn", "turns");
        let older = format!("the backup is older than the conversation: {turns} missing");
        context.output.note(&older)?;
    }
    if answer.restored.is_empty() {
        context.output.note("nothing to restore: all files exist")?;
    }
    Ok(())
}

/// Adds the commands that restore the backup to a problem with a file that the backup would replace, or with a session that is
/// open in this conversation.
fn with_restore_hint(
    problem: Problem,
    word: &str,
    agent: Option<&str>,
    open: Option<ConversationId>,
) -> Problem {
    let close = open.map(|id| format!("sessionctl close {id} && "));
    let aside = problem.detail("path").map(|path| {
        let (old, new) = (shell_word(&path), shell_word(&format!("{path}.old")));
        format!("mv {old} {new} && ")
    });
    if close.is_none() && aside.is_none() {
        return problem;
    }
    let before = [close, aside].into_iter().flatten().collect::<String>();
    let agent = agent.map_or_else(String::new, |agent| format!(" --agent {}", shell_word(agent)));
    problem.hint(format!(
        "{before}sessionctl archive restore {}{agent}",
        shell_word(word)
    ))
}

/// Deletes the backups of all sessions that belong to no conversation.
async fn prune(context: &mut Context<'_>) -> CommandResult {
    let daemon = context.connect().await?;
    let (answer, _) = context
        .call_with_progress(&daemon, method::Keep::default())
        .await?;
    let (orphans, count) = (answer.unclaimed, answer.total.unwrap_or_default().unclaimed);
    let more = count.saturating_sub(orphans.len() as u64);
    if orphans.is_empty() {
        let note = "nothing to delete: all backups belong to conversations";
        return context.output.note(note);
    }
    let bytes = orphans.iter().map(|session| session.bytes).sum();
    let sessions = humanize::count(orphans.len() as u64, "session", "sessions");
    let what = format!(
        "Permanently delete the backups of {sessions} without a conversation ({})",
        humanize::size(bytes)
    );
    context.confirm(&what, true)?;
    for session in orphans {
        delete_backups(context, &daemon, session.upstream_id, session.agent).await?;
    }
    if more > 0 {
        let more = humanize::count(more, "session is", "sessions are");
        context
            .output
            .note(&format!("{more} left; delete them too: sessionctl archive prune"))?;
    }
    Ok(())
}

/// Deletes the backups of a session that belongs to no conversation.
async fn delete_backups(
    context: &mut Context<'_>,
    daemon: &Daemon,
    upstream_id: UpstreamId,
    agent: Option<AgentName>,
) -> CommandResult {
    let session = humanize::short(upstream_id.as_str());
    let forget = method::Forget {
        upstream_id,
        agent,
        ..Default::default()
    };
    let answer = context.call_and_print(daemon, forget).await;
    let answer = answer.map_err(|problem| problem.hint_if(ErrorKind::NotFound, LIST_HINT))?;
    context.output.note(&match answer.needed {
        true => format!("not deleted: backups of other sessions depend on those of {session}"),
        false => format!(
            "Deleted the backups of {session} ({}).",
            humanize::size(answer.bytes)
        ),
    })
}
