//! Making conversations and naming them: `new`, `fork`, `rename`.

use std::path::PathBuf;

use bridge_protocol::ErrorKind;
use bridge_protocol::client::Call as _;
use bridge_protocol::conversation::Settings;
use bridge_protocol::method;
use clap::{Args, ValueEnum, ValueHint};

use super::edit::{least, not_branched, place};
use super::{Context, conversation_ref, real_folder, this_folder};
use crate::cli::exit::Exit;
use crate::cli::output::DIM;
use crate::cli::problem::{Outcome, Problem};
use crate::cli::progress::watched;
use crate::cli::words;

/// Create a conversation and print its id
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sessionctl new --title 'Fix the build'
  sessionctl new --agent claude --cwd ~/project")]
pub(in crate::cli) struct New {
    /// Agent, by its name in the configuration (default: default_agent)
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) agent: Option<String>,
    /// Folder that the agent works in (default: current folder)
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(in crate::cli) cwd: Option<PathBuf>,
    /// Title of the conversation
    #[arg(long, value_name = "TEXT")]
    pub(in crate::cli) title: Option<String>,
    /// Model, by the agent's name for it (default: the agent's)
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) model: Option<String>,
    /// Session mode, by the agent's id for it (default: the agent's)
    #[arg(long, value_name = "ID")]
    pub(in crate::cli) mode: Option<String>,
    /// Open the agent session now instead of at the first prompt
    #[arg(long)]
    pub(in crate::cli) open: bool,
}

/// Fork a conversation and print the id of the branch
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sessionctl fork . --at 3
  sessionctl fork . --cwd ../another-checkout
  sessionctl send \"$(sessionctl fork . --title 'Another way')\" 'Try it without the cache'")]
pub(in crate::cli) struct Fork {
    /// Conversation id, an id prefix (6 or more characters), or . (newest in this folder)
    #[arg(value_name = "CONV")]
    pub(in crate::cli) conversation: String,
    /// Continue the same conversation on the branch (default: create a new conversation)
    #[arg(long)]
    pub(in crate::cli) in_place: bool,
    /// Turn to fork after: number (-1 is the last), checkpoint id or message id (default: -1)
    #[arg(long, value_name = "CHECKPOINT", allow_hyphen_values = true)]
    pub(in crate::cli) at: Option<String>,
    /// Existing folder that the branch works in (default: the conversation's folder)
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(in crate::cli) cwd: Option<PathBuf>,
    /// Title of the new conversation
    #[arg(long, value_name = "TEXT", conflicts_with = "in_place")]
    pub(in crate::cli) title: Option<String>,
    /// Fail if the branch would keep less of the history than this (default: text)
    #[arg(long, value_name = "LEVEL")]
    pub(in crate::cli) min_fidelity: Option<MinFidelity>,
}

/// Least acceptable fidelity of a branch's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum MinFidelity {
    /// The complete history
    Full,
    /// An older state of the history, or one that lacks turns
    Partial,
    /// The messages, retold as text
    Text,
    /// No history required
    None,
}

/// Set the title of a conversation
#[derive(Debug, Args)]
pub(in crate::cli) struct Rename {
    /// Conversation id, an id prefix (6 or more characters), or . (newest in this folder)
    #[arg(value_name = "CONV")]
    pub(in crate::cli) conversation: String,
    /// New title
    #[arg(value_name = "TITLE")]
    pub(in crate::cli) title: String,
}

/// Makes a conversation and prints its id.
pub(in crate::cli) async fn new(context: &mut Context<'_>, options: New) -> Outcome<Exit> {
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
pub(in crate::cli) async fn fork(context: &mut Context<'_>, options: Fork) -> Outcome<Exit> {
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
pub(in crate::cli) async fn rename(context: &mut Context<'_>, options: Rename) -> Outcome<Exit> {
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
