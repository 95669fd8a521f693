//! `send`: one prompt, followed to the end of its turn.

use std::path::PathBuf;
use std::rc::Rc;

use bridge_protocol::client::Call as _;
use bridge_protocol::conversation::{Conversation, OnBusy, OnLimit};
use bridge_protocol::method;
use clap::{Args, ValueHint};

use super::files;
use super::turn::{Ended, OnQuestion, Start, Talk};
use crate::cli::commands::{Context, this_folder};
use crate::cli::connect::Daemon;
use crate::cli::exit::Exit;
use crate::cli::output::DIM;
use crate::cli::problem::Outcome;
use crate::cli::{select, words};

/// `send`.
#[derive(Debug, Args)]
#[command(after_help = "\
Only the answer is printed to standard output, everything else to standard error. Ctrl-C cancels the turn. A second Ctrl-C ends \
the command and leaves the turn running.

Examples:
  sessionctl send . 'Why does the test fail?'
  git diff | sessionctl send 90e2e180 'Review this:' -
  sessionctl send --new --file notes.md 'Summarize the notes'
  sessionctl send . -- --a prompt that begins with dashes")]
pub(in crate::cli) struct Send {
    /// Conversation: id, part of its title, or . (the last one used in this folder)
    #[arg(value_name = "CONV", required_unless_present = "new")]
    pub(in crate::cli) conversation: Option<String>,
    /// Prompt; - inserts standard input
    #[arg(value_name = "TEXT", allow_hyphen_values = false)]
    pub(in crate::cli) text: Vec<String>,
    /// Attach a file; can be repeated
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    file: Vec<PathBuf>,
    /// Send to a new conversation in this folder; CONV is omitted
    #[arg(long)]
    new: bool,
    /// Queue the prompt if a turn is running (default: fail as busy)
    #[arg(long)]
    queue: bool,
    /// If a usage limit stops the turn, schedule it for the limit's reset and exit
    #[arg(long)]
    wait_limit: bool,
    /// How to handle questions of the agent (default: ask on a terminal, otherwise leave)
    #[arg(long, value_name = "WHAT")]
    on_question: Option<OnQuestion>,
}

/// Sends a prompt and follows the turn to its end.
pub(in crate::cli) async fn send(context: &mut Context<'_>, options: Send) -> Outcome<Exit> {
    let (name, text): (_, Vec<String>) = match options.new {
        true => (
            None,
            options.conversation.into_iter().chain(options.text).collect(),
        ),
        false => (options.conversation, options.text),
    };
    let text = files::text_of(&text)?;
    files::check(&text, &options.file)?;
    let daemon = context.connect().await?;
    let conversation = match options.new {
        true => new(context, &daemon, None).await?,
        false => select::conversation(context, &daemon, name.as_deref()).await?,
    };
    if context.output.note_look.columns.is_some() {
        context.warn_of_echo(&daemon, &conversation.agent).await?;
    }
    let content = files::prompt(&daemon, &conversation, &text, &options.file).await?;
    let mut prompt = Start::prompt(conversation.id, content);
    if options.queue {
        prompt.on_busy = OnBusy::Queue;
    }
    if options.wait_limit {
        prompt.on_limit = OnLimit::Wait;
    }
    let mut talk = Talk::new(context, Rc::new(daemon), &conversation, options.on_question)?;
    let ended = talk.follow(Start::Prompt(prompt)).await?;
    finish(&talk, &ended)
}

/// The exit of a command that followed one turn.
pub(super) fn finish(talk: &Talk<'_>, ended: &Ended) -> Outcome<Exit> {
    let Some(turn) = ended.turn() else {
        return Ok(Exit::Done);
    };
    match talk.problem_of(turn) {
        Some(problem) if !talk.screen.output.json => Err(problem),
        _ => Ok(Exit::of_turn(turn)),
    }
}

/// Creates a conversation in this folder.
pub(super) async fn new(
    context: &mut Context<'_>,
    daemon: &Daemon,
    agent: Option<String>,
) -> Outcome<Conversation> {
    let call = method::NewConversation {
        agent: agent.map(Into::into),
        cwd: this_folder()?,
        ..Default::default()
    };
    let conversation = daemon.call(call).await?.conversation;
    select::use_here(daemon, conversation.id).await;
    let look = context.output.note_look;
    let (sign, id) = (look.sign("→", "->"), words::short_id(conversation.id));
    let line = look.paint(DIM, &format!("{sign} {id} (new, {})", conversation.agent));
    context.output.note(&line)?;
    Ok(conversation)
}
