//! `mv`: moves a conversation, or everything that ran in a folder, to another folder.

use std::path::Path;

use bridge_protocol::conversation::{Conversation, MovedKind, PlannedMove};
use bridge_protocol::{AgentName, ErrorKind, UpstreamId, method};
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueHint};

use super::{Context, absolute, real_folder, this_folder, unusable_folder};
use crate::cli::complete;
use crate::cli::connect::Daemon;
use crate::cli::humanize;
use crate::cli::output::{STRONG, one_line};
use crate::cli::problem::{CommandResult, Exit, Problem};
use crate::cli::select::HERE;
use crate::cli::table::{Table, dim, left, path, plain, right};
use crate::paths::shell_word;

/// Move a conversation or a project to another folder
///
/// Given a conversation, moves only that conversation. Given the old path of a folder, moves every session that ran in
/// or below it, including sessions that sessionctl did not start.
///
/// To undo the move of one conversation, use sessionctl undo.
#[derive(Debug, Args)]
#[command(override_usage = "sessionctl mv [OPTIONS] [CONV|OLD] <NEW>\n       \
    sessionctl mv --undo <ID>\n       sessionctl mv --list")]
#[command(after_help = "\
Examples:
  sessionctl mv 5d0c2a ~/src/renamed --dry-run
  sessionctl mv 5d0c2a ~/src/renamed
  mv ~/src/old ~/src/new && sessionctl mv ~/src/old ~/src/new
  sessionctl mv --list
  sessionctl mv --undo 6f0b2f8e-4d6a-4d0e-9c5b-0a4f3f1c9d11")]
pub(in crate::cli) struct Mv {
    /// Conversation to move, or the old path of a project folder, written with a slash
    #[arg(value_name = "CONV|OLD", add = complete::conversation())]
    what: Option<String>,
    /// Existing folder to move to
    #[arg(value_name = "NEW", value_hint = ValueHint::DirPath, value_parser = real_folder)]
    folder: Option<String>,
    /// Print what would be moved, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Undo the folder move with this id, which the move printed
    #[arg(long, value_name = "ID", conflicts_with_all = ["what", "folder", "dry_run"], value_parser = NonEmptyStringValueParser::new())]
    undo: Option<String>,
    /// List the folder moves that can be undone, newest first
    #[arg(long, conflicts_with_all = ["what", "folder", "dry_run", "undo"])]
    list: bool,
}

/// Moves, prints what would be moved, or undoes the move of a folder.
pub(in crate::cli) async fn mv(context: &mut Context<'_>, options: Mv) -> CommandResult {
    match (&options.undo, &options.what, &options.folder) {
        _ if options.list => list(context).await,
        (Some(id), _, _) => undo(context, id).await,
        (None, Some(what), Some(folder)) if what.contains('/') => {
            tree(context, what, folder, options.dry_run).await
        }
        (None, Some(_), Some(folder)) => {
            conversation(context, options.what.as_deref(), folder, options.dry_run).await
        }
        // The user picks the conversation.
        (None, Some(folder), None) if folder != HERE && Path::new(folder).is_dir() => {
            let real = real_folder(folder);
            let real = real.map_err(|error| Problem::file_error("use", Path::new(folder), &error))?;
            conversation(context, None, &real, options.dry_run).await
        }
        (None, what, _) => {
            let what = shell_word(what.as_deref().unwrap_or(HERE));
            let problem = Problem::usage("no target folder was given");
            Err(problem.hint(format!(
                "give an existing folder: sessionctl mv {what} ../new-folder"
            )))
        }
    }
}

async fn conversation(
    context: &mut Context<'_>,
    what: Option<&str>,
    folder: &str,
    dry_run: bool,
) -> CommandResult {
    let (daemon, conversation) = context.connect_and_select(what).await.map_err(|problem| {
        let old = shell_word(&format!("./{}", what.unwrap_or_default()));
        let new = shell_word(folder);
        let hint = format!("to move a folder, write it with a slash: sessionctl mv {old} {new}");
        match what {
            Some(HERE) => problem,
            _ => problem.hint_if(ErrorKind::NotFound, hint),
        }
    })?;
    let call = method::Move {
        cwd: folder.to_owned(),
        dry_run,
        ..method::Move::of(conversation.id)
    };
    let answer = context.call_and_print(&daemon, call).await;
    let answer = answer.map_err(|problem| with_folder_hint(problem, folder))?;
    if answer.plan.is_empty() {
        context
            .output
            .line("nothing to move: the conversation already runs there")?;
    } else if dry_run {
        report_plan(context, &answer.plan)?;
    } else {
        let files = humanize::count(answer.moved, "file", "files");
        let name = humanize::name_in_sentence(&conversation);
        context
            .output
            .line(&format!("Moved {name} and {files} to {}", one_line(folder)))?;
        // The move of a conversation without a session is not part of its history.
        let back = match conversation.head {
            Some(_) => context.output.advice(conversation.id).undo(),
            None => format!(
                "sessionctl mv {} {}",
                humanize::short_id(conversation.id),
                shell_word(&conversation.cwd)
            ),
        };
        context.output.note_dim(&format!("Undo with: {back}"))?;
        note_trust(context, &daemon, Some(&conversation.agent)).await?;
        note_dot(context, &daemon, &conversation).await?;
    }
    report_exceptions(context, &answer.kept, &answer.left_out)
}

/// Adds a hint to a problem with a new folder that cannot be used.
fn with_folder_hint(problem: Problem, folder: &str) -> Problem {
    let hint = "name an existing folder to move to: sessionctl help mv";
    unusable_folder(problem.hint_if(ErrorKind::InvalidCwd, hint), Some(folder))
}

async fn tree(context: &mut Context<'_>, old: &str, new: &str, dry_run: bool) -> CommandResult {
    // Do not resolve symbolic links: the old folder may be missing, or a link to the new one.
    let old = absolute(old).map_err(|error| Problem::file_error("use", Path::new(old), &error))?;
    let daemon = context.connect().await?;
    let call = method::MoveTree {
        from: old.clone(),
        to: new.to_owned(),
        dry_run,
        ..Default::default()
    };
    let answer = context.call_and_print(&daemon, call).await;
    let answer = answer.map_err(|problem| {
        let problem = with_folder_hint(problem, new);
        match Path::new(&old).exists() && !Path::new(new).exists() {
            true => {
                let (old, new) = (shell_word(&old), shell_word(new));
                problem.hint_if(ErrorKind::InvalidCwd, format!("rename it first: mv {old} {new}"))
            }
            false => problem,
        }
    })?;
    if answer.plan.is_empty() {
        report_exceptions(context, &answer.kept, &answer.left_out)?;
        let old = one_line(&old);
        return Err(match answer.left_out.is_empty() {
            true => Problem::new(Exit::NotFound, format!("nothing ran in {old}"))
                .hint("sessionctl ls --all lists the conversations with their folders"),
            false => Problem::failed(format!("nothing that ran in {old} can be moved")),
        });
    }
    if dry_run {
        report_plan(context, &answer.plan)?;
    } else {
        report_move(context, &answer.plan, answer.moved, "")?;
        note_trust(context, &daemon, None).await?;
    }
    if let Some(id) = &answer.undo_id {
        let undo = undo_command(&old, new, id);
        context.output.note_dim(&format!("Undo with: {undo}"))?;
    }
    report_exceptions(context, &answer.kept, &answer.left_out)
}

/// The command that undoes the move of a folder, which requires that the old folder exists.
fn undo_command(old: &str, new: &str, id: &str) -> String {
    let back = match Path::new(old).exists() {
        true => String::new(),
        false => format!("mv {} {} && ", shell_word(new), shell_word(old)),
    };
    format!("{back}sessionctl mv --undo {id}")
}

/// As [`undo_command`], for a move of which only the id is known. `None` if it cannot be undone any more.
pub(in crate::cli) async fn undo_command_of(daemon: &Daemon, id: &str) -> Option<String> {
    let (old, new) = folders_of(daemon, id).await?;
    Some(undo_command(&old, &new, id))
}

/// The old and the new folder of a move. `None` if it cannot be undone any more.
async fn folders_of(daemon: &Daemon, id: &str) -> Option<(String, String)> {
    let moves = daemon.call(method::TreeMoves::default()).await.ok()?.moves;
    let one = moves.into_iter().find(|one| one.undo_id == id)?;
    Some((one.from, one.to))
}

async fn undo(context: &mut Context<'_>, id: &str) -> CommandResult {
    let daemon = context.connect().await?;
    let call = method::UndoTree {
        undo_id: id.to_owned(),
        ..Default::default()
    };
    let answer = match context.call_and_print(&daemon, call).await {
        Ok(answer) => answer,
        Err(problem) => {
            let list = "list the moves that can be undone: sessionctl mv --list";
            let back = match folders_of(&daemon, id).await {
                Some((old, new)) if !Path::new(&old).exists() && Path::new(&new).exists() => {
                    format!("move the folder back first: {}", undo_command(&old, &new, id))
                }
                _ => list.to_owned(),
            };
            return Err(problem
                .hint_if(ErrorKind::NotFound, list)
                .hint_if(ErrorKind::Conflict, list)
                .hint_if(ErrorKind::InvalidCwd, back));
        }
    };
    report_move(context, &answer.plan, answer.moved, " back")?;
    report_exceptions(context, &answer.kept, &answer.left_out)
}

/// Lists the folder moves that can be undone.
async fn list(context: &mut Context<'_>) -> CommandResult {
    let daemon = context.connect().await?;
    let answer = context
        .call_and_print(&daemon, method::TreeMoves::default())
        .await?;
    let clock = humanize::Clock::here();
    let mut table = Table::new([
        left("UNDO ID"),
        left("MOVED").optional(),
        left("UNDO UNTIL").optional(),
        right("CONVERSATIONS").optional(),
        right("FILES").optional(),
        path("FROM"),
        path("TO"),
    ]);
    for one in &answer.moves {
        table.row([
            (one.undo_id.clone(), STRONG),
            dim(clock.date(one.at)),
            dim(clock.date(one.until)),
            plain(one.conversations.to_string()),
            plain(one.moved.to_string()),
            plain(humanize::path(&one.from, context.output.look)),
            plain(humanize::path(&one.to, context.output.look)),
        ]);
    }
    let if_empty = "there is no folder move to undo";
    context.output.table(&table, if_empty)
}

/// Prints a note that Claude Code will ask about the new folder: it keeps a list of trusted folders, which a move does not
/// change. With `agent`, prints it only if that agent is Claude Code.
async fn note_trust(context: &mut Context<'_>, daemon: &Daemon, agent: Option<&AgentName>) -> CommandResult {
    let agents = daemon.call(method::ListAgents::default()).await?.agents;
    let mut moved = agents
        .iter()
        .filter(|known| agent.is_none_or(|agent| known.name == *agent));
    match moved.any(|known| known.kind == "claude" && known.found) {
        true => context
            .output
            .note("Claude Code will ask once whether you trust the new folder"),
        false => Ok(()),
    }
}

/// Prints what `.` now names in this folder, if the moved conversation was here.
async fn note_dot(context: &mut Context<'_>, daemon: &Daemon, moved: &Conversation) -> CommandResult {
    if this_folder().ok().as_ref() != Some(&moved.cwd) {
        return Ok(());
    }
    // Look it up without `.`, which would make the result the conversation last used here, even after the move is undone.
    let newest = method::ListConversations {
        cwd: Some(moved.cwd.clone()),
        limit: Some(1),
        ..Default::default()
    };
    let newest = daemon.call(newest).await?.conversations;
    let means = newest
        .first()
        .map_or_else(|| "no conversation".to_owned(), humanize::name);
    context
        .output
        .note_unedited(&format!("In this folder, . now means {means}"))
}

fn report_move(context: &mut Context<'_>, plan: &[PlannedMove], files: u64, back: &str) -> CommandResult {
    let conversations = plan.iter().filter(|planned| planned.kind == MovedKind::Metadata);
    let conversations = humanize::count(conversations.count() as u64, "conversation", "conversations");
    let files = humanize::count(files, "file", "files");
    context
        .output
        .line(&format!("Moved {conversations} and {files}{back}"))
}

fn report_plan(context: &mut Context<'_>, plan: &[PlannedMove]) -> CommandResult {
    for planned in plan {
        let what = match planned.kind {
            MovedKind::Transcript => "transcript",
            MovedKind::SideFile => "side file",
            MovedKind::Metadata => "conversation",
            _ => "other",
        };
        let (from, to) = (one_line(&planned.from), one_line(&planned.to));
        context.output.verbatim(&match from == to {
            true => format!("{what:<12}  {from}"),
            false => format!("{what:<12}  {from}\n{:>12}  {to}", "to"),
        })?;
    }
    Ok(())
}

/// Prints which sessions have no file to move, and what was not moved.
fn report_exceptions(context: &mut Context<'_>, kept: &[UpstreamId], left_out: &[String]) -> CommandResult {
    for id in kept {
        let session = humanize::short(id.as_str());
        context.output.note(&format!(
            "session {session} has no transcript: the next prompt restores its backup into the new folder"
        ))?;
    }
    for left in left_out {
        context.output.warning("not moved:", &one_line(left))?;
    }
    Ok(())
}
