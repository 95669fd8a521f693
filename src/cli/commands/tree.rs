//! `tree`: the conversations that are related by forks, as a picture.

use bridge_protocol::method;

use super::{Context, PAGE, turns};
use crate::cli::connect::Daemon;
use crate::cli::exit::Exit;
use crate::cli::output::{DIM, one_line};
use crate::cli::problem::Outcome;
use crate::cli::select::Target;
use crate::cli::tree::{Member, draw};
use crate::cli::words;

/// Draws a conversation with its ancestors, sessions and forks.
pub(in crate::cli) async fn tree(context: &mut Context<'_>, target: Target) -> Outcome<Exit> {
    let (daemon, asked_for) = context.on(target.name()).await?;
    let answer = context.ask(&daemon, method::TreeOf::of(asked_for.id)).await?;
    if context.output.json {
        return Ok(Exit::Done);
    }
    let unread = |of| Member {
        of,
        steps: Vec::new(),
    };
    let mut members: Vec<Member> = answer.conversations.into_iter().map(unread).collect();
    read_steps(context, &daemon, &mut members).await?;
    let look = context.output.look;
    if let Some(parent) = answer.missing_parent {
        let line = format!("{} (deleted)", words::short_id(parent));
        context.output.line(&look.paint(DIM, &line))?;
    }
    let picture = draw(&members, Some(asked_for.id), look);
    context.output.verbatim(&picture.join("\n"))?;
    if answer.truncated {
        context
            .output
            .note("more forks than one picture can show are left out")?;
    }
    Ok(Exit::Done)
}

/// Reads the newest steps of each conversation. One whose history cannot be read is drawn without, with a note.
async fn read_steps(context: &mut Context<'_>, daemon: &Daemon, members: &mut [Member]) -> Outcome {
    for member in members {
        let id = member.of.conversation.id;
        match turns(daemon, &id.into(), PAGE).await {
            Ok(newest_first) => member.steps = newest_first.into_iter().rev().collect(),
            Err(problem) if problem.exit == Exit::NoDaemon => return Err(problem),
            Err(problem) => {
                let word = format!("without the steps of {}:", words::short_id(id));
                let why = one_line(problem.message.as_deref().unwrap_or_default());
                context.output.warning(&word, &why)?;
            }
        }
    }
    Ok(())
}
