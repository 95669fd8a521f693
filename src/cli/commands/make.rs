//! Making conversations and naming them: `new`, `fork`, `rename`.

use bridge_protocol::ErrorKind;
use bridge_protocol::client::Call as _;
use bridge_protocol::conversation::Settings;
use bridge_protocol::method;

use super::{Context, conversation_ref, real_folder, this_folder};
use crate::cli::args::{Fork, New, Rename};
use crate::cli::exit::Exit;
use crate::cli::output::DIM;
use crate::cli::problem::{Outcome, Problem};
use crate::cli::progress::watched;
use crate::cli::talk::edit::{least, not_branched, place};
use crate::cli::words;

/// Makes a conversation and prints its id.
pub(super) async fn new(context: &mut Context<'_>, options: New) -> Outcome<Exit> {
    let folder = match options.cwd {
        Some(folder) => real_folder(&folder)?,
        None => this_folder()?,
    };
    let new = method::NewConversation {
        agent: options.agent.map(Into::into),
        cwd: folder,
        title: options.title.unwrap_or_default(),
        open: options.open,
        settings: Settings {
            model: options.model,
            mode: options.mode,
            ..Settings::default()
        },
        ..Default::default()
    };
    let daemon = context.connect().await?;
    let answer = daemon
        .call(new)
        .await
        .map_err(|error| match Problem::from(error) {
            // Only the agent can be unknown here.
            problem if problem.exit == Exit::NotFound => {
                problem.hint("sessionctl agents shows which agents there are and what was found")
            }
            problem => match problem.detail("conversationId") {
                Some(id) => problem.hint(format!(
                    "the conversation was made all the same: sessionctl send {id} opens it, sessionctl rm {id} deletes it"
                )),
                None => problem,
            },
        })?;
    if context.output.json {
        context.answer(&daemon, "conversation/new")?;
    } else {
        context.output.line(&answer.conversation.id.to_string())?;
    }
    Ok(Exit::Done)
}

/// Branches off and prints the id of the branch's conversation.
pub(super) async fn fork(context: &mut Context<'_>, options: Fork) -> Outcome<Exit> {
    let folder = options.cwd.as_deref().map(real_folder).transpose()?;
    let names_folder = folder.is_some();
    let daemon = context.connect().await?;
    let conversation = conversation_ref(&daemon, &options.conversation).await?;
    let at = match &options.at {
        Some(at) => Some(place(&daemon, &conversation, at).await?),
        None => None,
    };
    let call = daemon.call(method::Fork {
        conversation_id: conversation,
        in_place: options.in_place,
        at,
        cwd: folder,
        title: options.title,
        min_fidelity: options.min_fidelity.map(least).unwrap_or_default(),
        ..Default::default()
    });
    let answer = watched(context.output, &daemon, "conversation/fork", call).await;
    let answer = answer.map_err(|error| match Problem::from(error) {
        problem if problem.kind() == Some(ErrorKind::InvalidCwd) => problem.hint(match names_folder {
            true => "--cwd names the folder that the branch works in, which must exist",
            false => "fork with --cwd DIR has the branch work in another folder",
        }),
        problem => not_branched(problem, &options.conversation, options.at.as_deref()),
    })?;
    if context.output.json {
        context.answer(&daemon, "conversation/fork")?;
        return Ok(Exit::Done);
    }
    context.output.line(&answer.conversation.id.to_string())?;
    let branch = match &answer.link {
        Some(link) => format!(
            "branched off as {}, fidelity {}",
            words::branch(&link.upstream_id, answer.via),
            words::fidelity(answer.fidelity)
        ),
        None => {
            "there was nothing to branch off from yet; its session starts with its first prompt".to_owned()
        }
    };
    let note = context.output.note_look.paint(DIM, &branch);
    context.output.note(&note)?;
    Ok(Exit::Done)
}

/// Gives a conversation a title.
pub(super) async fn rename(context: &mut Context<'_>, options: Rename) -> Outcome<Exit> {
    let daemon = context.connect().await?;
    let conversation = conversation_ref(&daemon, &options.conversation).await?;
    daemon
        .call(method::Update {
            conversation_id: conversation,
            title: Some(options.title),
            ..Default::default()
        })
        .await?;
    if context.output.json {
        context.answer(&daemon, "conversation/update")?;
    }
    Ok(Exit::Done)
}
