//! `mv`: has a conversation, or all that ran in a folder, go on in another one, and tells what went where.

use std::path::{Path, PathBuf};

use bridge_protocol::client::Call as _;
use bridge_protocol::method;
use clap::{Args, ValueHint};

use bridge_protocol::conversation::{MovedKind, PlannedMove};
use bridge_protocol::transcript::{TreeMove, TreeMoveAnswer};
use bridge_protocol::{ErrorKind, UpstreamId};
use jiff::Timestamp;

use super::{Context, conversation_ref, real_folder, text_of};
use crate::cli::exit::Exit;
use crate::cli::output::{ATTENTION, DIM, Look, one_line};
use crate::cli::problem::{Outcome, Problem};
use crate::cli::progress::watched;
use crate::cli::words;

/// Move a conversation or a project to another folder
///
/// With a conversation, only that conversation moves. With the old path of a folder, every session that ran in that
/// folder or below moves, including sessions that were not started by sessionctl.
///
/// To undo the move of one conversation, use sessionctl undo.
#[derive(Debug, Args)]
#[command(override_usage = "sessionctl mv [OPTIONS] <CONV|OLD> <NEW>\n       \
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
    #[arg(value_name = "CONV|OLD", required_unless_present_any = ["undo", "list"])]
    pub(in crate::cli) what: Option<String>,
    /// Existing folder to move to
    #[arg(value_name = "NEW", value_hint = ValueHint::DirPath, required_unless_present_any = ["undo", "list"])]
    pub(in crate::cli) folder: Option<PathBuf>,
    /// Print what would be moved, and change nothing
    #[arg(long)]
    pub(in crate::cli) dry_run: bool,
    /// With OLD: update the folder in the settings and prompt history of Claude Code too
    #[arg(long)]
    pub(in crate::cli) settings: bool,
    /// Undo a folder move, by the id that the move printed
    #[arg(long, value_name = "ID", conflicts_with_all = ["what", "folder", "dry_run", "settings"])]
    pub(in crate::cli) undo: Option<String>,
    /// List the folder moves that can be undone, newest first
    #[arg(long, conflicts_with_all = ["what", "folder", "dry_run", "settings", "undo"])]
    pub(in crate::cli) list: bool,
}

/// Moves, tells what would be moved, or takes a move back.
pub(in crate::cli) async fn mv(context: &mut Context<'_>, options: Mv) -> Outcome<Exit> {
    if options.list {
        return list(context).await;
    }
    match (&options.undo, &options.what, &options.folder) {
        (Some(id), _, _) => undo(context, id).await,
        (None, Some(what), Some(folder)) if what.contains('/') => tree(context, what, folder, &options).await,
        (None, Some(what), Some(folder)) => conversation(context, what, folder, &options).await,
        // The parser asks for both.
        _ => Ok(Exit::Usage),
    }
}

async fn conversation(context: &mut Context<'_>, what: &str, folder: &Path, options: &Mv) -> Outcome<Exit> {
    if options.settings {
        return Err(Problem::new(
            Exit::Usage,
            "--settings goes with the path of a folder, not with one conversation".to_owned(),
        )
        .hint("name the folder that it ran in, with a slash in it: sessionctl mv OLD NEW --settings"));
    }
    let folder = real_folder(folder)?;
    let daemon = context.connect().await?;
    let conversation = conversation_ref(&daemon, what).await?;
    let back = format!("sessionctl undo {conversation} takes it back");
    let call = daemon.call(method::Move {
        conversation_id: conversation,
        cwd: folder,
        dry_run: options.dry_run,
        ..Default::default()
    });
    let answer = watched(context.output, &daemon, "conversation/move", call).await;
    let answer = answer.map_err(no_folder).map_err(|problem| match problem.kind() {
        Some(ErrorKind::NotFound) => problem.hint(format!(
            "a folder is named with a slash in it: sessionctl mv ./{what} NEW; sessionctl ls shows the conversations"
        )),
        _ => problem,
    })?;
    if context.output.json {
        context.answer(&daemon, "conversation/move")?;
        return Ok(Exit::Done);
    }
    if options.dry_run {
        plan(context, &answer.plan)?;
    } else if answer.plan.is_empty() {
        context.output.line("it is there already")?;
    } else {
        let files = words::count(answer.moved, "file", "files");
        context.output.line(&format!("moved with {files}"))?;
        // By its id: in this folder the dot names another one by now.
        let look = context.output.note_look;
        context.output.note(&look.paint(DIM, &back))?;
    }
    kept(context, &answer.kept)?;
    left_out(context, &answer.left_out)
}

async fn tree(context: &mut Context<'_>, old: &str, new: &Path, options: &Mv) -> Outcome<Exit> {
    // As it was: nothing may be there any more, or a link that leads to the new one.
    let old = std::path::absolute(old).map_err(|error| Problem::file("use", Path::new(old), &error))?;
    let (old, new) = (text_of(old)?, real_folder(new)?);
    let daemon = context.connect().await?;
    let call = daemon.call(method::MoveTree {
        from: old.clone(),
        to: new,
        settings: options.settings,
        dry_run: options.dry_run,
        ..Default::default()
    });
    let answer = watched(context.output, &daemon, "transcript/move", call).await;
    let answer = answer.map_err(no_folder)?;
    if context.output.json {
        context.answer(&daemon, "transcript/move")?;
        return Ok(Exit::Done);
    }
    if answer.plan.is_empty() {
        let what = match answer.left_out.is_empty() {
            true => "nothing ran in",
            false => "nothing moves of what ran in",
        };
        context.output.line(&format!("{what} {}", one_line(&old)))?;
    } else if options.dry_run {
        plan(context, &answer.plan)?;
    } else {
        told(context, &answer)?;
    }
    if let Some(id) = &answer.undo_id {
        let look = context.output.note_look;
        let line = format!("sessionctl mv --undo {id} takes it back");
        context.output.note(&look.paint(DIM, &line))?;
    }
    kept(context, &answer.kept)?;
    left_out(context, &answer.left_out)
}

async fn undo(context: &mut Context<'_>, id: &str) -> Outcome<Exit> {
    let daemon = context.connect().await?;
    let call = daemon.call(method::UndoTree {
        undo_id: id.to_owned(),
        ..Default::default()
    });
    let answer = watched(context.output, &daemon, "transcript/undo", call).await?;
    if context.output.json {
        context.answer(&daemon, "transcript/undo")?;
        return Ok(Exit::Done);
    }
    told(context, &answer)?;
    kept(context, &answer.kept)?;
    left_out(context, &answer.left_out)
}

/// Tells the moves that can be taken back: what each was, and how it is.
async fn list(context: &mut Context<'_>) -> Outcome<Exit> {
    let daemon = context.connect().await?;
    let answer = daemon.call(method::TreeMoves::default()).await?;
    if context.output.json {
        context.answer(&daemon, "transcript/moves")?;
        return Ok(Exit::Done);
    }
    for one in &answer.moves {
        for line in move_lines(one, context.output.look) {
            context.output.line(&line)?;
        }
    }
    if answer.moves.is_empty() {
        context.output.note("no move of a folder can be taken back")?;
    }
    Ok(Exit::Done)
}

fn move_lines(one: &TreeMove, look: Look) -> [String; 2] {
    let day = |at: Timestamp| at.strftime("%Y-%m-%d %H:%M:%SZ").to_string();
    let conversations = words::count(one.conversations, "conversation", "conversations");
    let files = words::count(one.moved, "file", "files");
    let first = format!(
        "{}  {}  {conversations}, {files}",
        one_line(&one.undo_id),
        day(one.at)
    );
    let until = look.paint(DIM, &format!("(until {})", day(one.until)));
    let folders = format!("    {} -> {}", one_line(&one.from), one_line(&one.to));
    [first, format!("{folders}  {until}")]
}

/// The same, with what to do where the folder to go to is none.
fn no_folder(error: impl Into<Problem>) -> Problem {
    match error.into() {
        problem if problem.kind() == Some(ErrorKind::InvalidCwd) => {
            problem.hint("the folder to go to must exist: rename the old one to it, or make it, first")
        }
        problem => problem,
    }
}

fn told(context: &mut Context<'_>, answer: &TreeMoveAnswer) -> Outcome {
    let conversations = answer.plan.iter();
    let conversations = conversations
        .filter(|planned| planned.kind == MovedKind::Metadata)
        .count();
    let files = words::count(answer.moved, "file", "files");
    let conversations = words::count(conversations as u64, "conversation", "conversations");
    context.output.line(&format!("moved {conversations} and {files}"))
}

fn plan(context: &mut Context<'_>, plan: &[PlannedMove]) -> Outcome {
    for planned in plan {
        context.output.line(&line(planned))?;
    }
    Ok(())
}

/// Says of which sessions there is no file to move any more, and what becomes of them.
fn kept(context: &mut Context<'_>, kept: &[UpstreamId]) -> Outcome {
    for id in kept {
        let session = words::short(id.as_str());
        context.output.note(&format!(
            "session {session} has no transcript any more: the next prompt puts what is kept of it into the new folder"
        ))?;
    }
    Ok(())
}

fn left_out(context: &mut Context<'_>, left_out: &[String]) -> Outcome<Exit> {
    for left in left_out {
        let mark = context.output.note_look.paint(ATTENTION, "left where it is:");
        context.output.note(&format!("{mark} {}", one_line(left)))?;
    }
    Ok(Exit::Done)
}

fn line(planned: &PlannedMove) -> String {
    let what = match planned.kind {
        MovedKind::Transcript => "transcript",
        MovedKind::SideFile => "side file",
        MovedKind::Metadata => "conversation",
        MovedKind::Settings => "settings",
        _ => "other",
    };
    let (from, to) = (one_line(&planned.from), one_line(&planned.to));
    match from == to {
        true => format!("{what:<12}  {from}"),
        false => format!("{what:<12}  {from}\n{:>12}  {to}", "to"),
    }
}
