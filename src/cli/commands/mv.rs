//! `mv`: has a conversation go on in another folder, and tells what went where.

use bridge_protocol::conversation::{MovedKind, PlannedMove};
use bridge_protocol::rpc::ConversationRpcClient;

use super::{Context, conversation_ref, real_folder};
use crate::cli::args::Mv;
use crate::cli::exit::Exit;
use crate::cli::output::{ATTENTION, one_line};
use crate::cli::problem::Outcome;
use crate::cli::progress::watched;
use crate::cli::words;

/// Moves a conversation, or tells what would be moved.
pub(super) async fn mv(context: &mut Context<'_>, options: Mv) -> Outcome<Exit> {
    let folder = real_folder(&options.folder)?;
    let daemon = context.connect().await?;
    let conversation = conversation_ref(&daemon, &options.conversation).await?;
    let call = daemon.move_to(conversation, folder, options.dry_run.then_some(true), None);
    let answer = watched(context.output, &daemon, "conversation/move", call).await?;
    if context.output.json {
        context.answer(&daemon, "conversation/move")?;
        return Ok(Exit::Done);
    }
    if options.dry_run {
        for planned in &answer.plan {
            context.output.line(&line(planned))?;
        }
    } else if answer.plan.is_empty() {
        context.output.line("it is there already")?;
    } else {
        let files = words::count(answer.moved, "file", "files");
        context.output.line(&format!("moved with {files}"))?;
    }
    for left in &answer.left_out {
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
    format!("{what:<12}  {from}\n{:>12}  {to}", "to")
}
