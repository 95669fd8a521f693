//! `send`: sends one prompt and follows its turn to the end.

use std::path::PathBuf;
use std::rc::Rc;

use bridge_protocol::ErrorKind;
use bridge_protocol::conversation::{OnBusy, OnLimit};
use bridge_protocol::turn::{StopReason, TurnResult};
use clap::{Args, ValueHint};

use super::files;
use super::question;
use super::turn::{ConversationFollower, FollowTarget, OnQuestion};
use crate::cli::commands::Context;
use crate::cli::commands::create::new_here;
use crate::cli::commands::history::lost_hint;
use crate::cli::complete;
use crate::cli::humanize;
use crate::cli::output::{ATTENTION, DIM, Look, one_line, truncate};
use crate::cli::problem::{CommandResult, Exit, Problem};
use crate::cli::select::{self, ConversationArgs, HERE, is_id};
use crate::paths::shell_word;

/// How many columns to show of a text that was taken as the name of a conversation.
const SHOWN_COLUMNS: usize = 60;

/// The longest prompt that a hint repeats.
const SHOWN_PROMPT_BYTES: usize = 200;

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
    #[command(flatten)]
    target: ConversationArgs,
    /// Prompt; - inserts standard input
    #[arg(value_name = "TEXT", allow_hyphen_values = false)]
    pub(in crate::cli) text: Vec<String>,
    /// Attach a file; can be repeated
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    file: Vec<PathBuf>,
    /// Send to a new conversation in this folder (omit CONV)
    #[arg(long)]
    new: bool,
    /// Agent of the new conversation (default: default_agent in the configuration)
    #[arg(long, value_name = "NAME", requires = "new", add = complete::agent())]
    agent: Option<String>,
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
pub(in crate::cli) async fn send(context: &mut Context<'_>, options: Send) -> CommandResult {
    if options.new
        && let Some(named) = options.target.name()
        && names_conversation(context, named).await?
    {
        return Err(new_and_named_problem(&options, named));
    }
    let (name, text): (_, Vec<String>) = match options.new {
        true => (
            None,
            options
                .target
                .conversation
                .into_iter()
                .chain(options.text)
                .collect(),
        ),
        false => (options.target.conversation, options.text),
    };
    let is_given = !text.is_empty();
    let picked = match (&name, options.new) {
        (None, false) => Some(context.connect_and_select(None).await?),
        _ => None,
    };
    let text = match picked.is_some() && options.file.is_empty() {
        true => {
            context
                .output
                .note("type the prompt; Enter and then Ctrl-D sends it")?;
            vec!["-".to_owned()]
        }
        false => text,
    };
    let text = files::text_from_words(&text)?;
    let to = match (&name, options.new) {
        (_, true) => "--new".to_owned(),
        (Some(name), false) => shell_word(name),
        (None, false) => HERE.to_owned(),
    };
    if let Err(problem) = files::check_prompt(&text, &options.file, &to) {
        return Err(match name {
            Some(name) if !is_given && options.file.is_empty() => no_prompt_problem(context, &name).await,
            _ => problem,
        });
    }
    let (daemon, conversation) = match picked {
        Some(picked) => picked,
        None if options.new => {
            let daemon = context.connect().await?;
            let made = new_here(&daemon, options.agent).await?;
            let look = context.output.note_look;
            let (sign, id) = (look.sign("→", "->"), humanize::short_id(made.id));
            let line = look.paint(DIM, &format!("{sign} {id} (new, {})", made.agent));
            context.output.note(&line)?;
            (daemon, made)
        }
        None => {
            let named = context.connect_and_select(name.as_deref()).await;
            named.map_err(|problem| {
                let to = prompt_word(
                    text.split_whitespace()
                        .next()
                        .filter(|word| is_id(word))
                        .unwrap_or(HERE),
                );
                let problem = match name.as_deref() {
                    Some("-") => problem.hint_if(
                        ErrorKind::NotFound,
                        format!("the first word names the conversation: sessionctl send {to} -"),
                    ),
                    _ => problem,
                };
                with_text_hint(problem, name.as_deref().unwrap_or_default(), &text, |prompt| {
                    format!(
                        "the first word names the conversation; {}",
                        send_commands(HERE, prompt)
                    )
                })
            })?
        }
    };
    context.warn_of_echo(&daemon, &conversation).await?;
    let content = files::prompt_with_files(&daemon, &conversation, &text, &options.file).await?;
    let mut prompt = FollowTarget::prompt(conversation.id, content);
    if options.queue {
        prompt.on_busy = OnBusy::Queue;
    }
    if options.wait_limit {
        prompt.on_limit = OnLimit::Wait;
    }
    let mut follower =
        ConversationFollower::new(context, Rc::new(daemon), &conversation, options.on_question);
    let ended = follower.follow(FollowTarget::Prompt(prompt)).await;
    let asked = conversation.interrupts.iter().find(|question| !question.orphaned);
    let ended = ended.map_err(|problem| match (problem.kind(), asked, &problem.hint) {
        // The running turn waits for the answer to this question.
        (Some(ErrorKind::Busy), Some(asked), _) => problem.hint(question::command(&follower.advice(), asked)),
        (Some(ErrorKind::Busy), None, hint) if !options.queue => {
            let wait = "repeat the command with --queue to wait for a running turn";
            let hint = hint
                .as_ref()
                .map_or_else(|| wait.to_owned(), |hint| format!("{wait}; {hint}"));
            problem.hint(hint)
        }
        (Some(ErrorKind::NotResumable), _, None) => problem.hint(lost_hint(&follower.advice())),
        _ => problem,
    });
    report_turn(&mut follower, ended?.as_ref())
}

/// Whether the first word after `--new` names a conversation: `.`, or an id that only a conversation has.
async fn names_conversation(context: &Context<'_>, word: &str) -> CommandResult<bool> {
    if word == HERE || !is_id(word) {
        return Ok(word == HERE);
    }
    match context.connector.find().await? {
        Some(daemon) => Ok(select::look_up(&daemon, word).await.is_ok()),
        None => Ok(false),
    }
}

/// The problem of `send --new CONV TEXT`: the words name two conversations.
fn new_and_named_problem(options: &Send, named: &str) -> Problem {
    let (means, word) = match named {
        HERE => (". means the one that was last used here".to_owned(), "the ."),
        id => (format!("{id} is the id of another"), id),
    };
    let message = format!("--new starts a new conversation, and {means}");
    let problem = Problem::usage(message);
    let is_whole = options.file.is_empty() && !options.text.iter().any(|word| word == "-");
    problem.hint(match options.text.join(" ") {
        text if is_whole && !text.is_empty() => send_commands(named, &text),
        _ => format!("leave out --new or {word}"),
    })
}

/// The problem of a call with a single argument, which names the conversation or was meant as the prompt.
async fn no_prompt_problem(context: &Context<'_>, given: &str) -> Problem {
    let to_send = |conversation: &str| {
        format!(
            "give the prompt, - for standard input, or --file PATH: sessionctl send {} 'Hello'",
            shell_word(conversation)
        )
    };
    let problem = Problem::usage("no prompt was given");
    // Ask only a running daemon whether a conversation has this name: the call fails anyway, so do not start one.
    let found = match context.connector.find().await {
        _ if given == HERE => return problem.hint(to_send(given)),
        Ok(Some(daemon)) => select::look_up(&daemon, given).await,
        Ok(None) => Err(Problem::silent(Exit::NotFound)),
        Err(problem) => return problem,
    };
    match found {
        Ok(found) => {
            let message = format!("no prompt was given for {}", humanize::name(&found));
            Problem::usage(message).hint(to_send(&humanize::short_id(found.id)))
        }
        Err(unknown) if unknown.exit == Exit::NotFound && !is_id(given) => {
            let shown = truncate(&one_line(given), SHOWN_COLUMNS, Look::default());
            let message = format!("no prompt was given: \"{shown}\" was taken as the conversation");
            Problem::usage(message).hint(send_commands(HERE, given))
        }
        Err(unknown) if unknown.message.is_some() => unknown,
        Err(_) => problem.hint(to_send(given)),
    }
}

/// Adds a hint to a problem with the first word, which was taken as the conversation: how to send it if it was meant as part
/// of the text.
pub(super) fn with_text_hint(
    problem: Problem,
    first: &str,
    rest: &str,
    hint: impl FnOnce(&str) -> String,
) -> Problem {
    let is_text = !["", "-", HERE].contains(&first) && !is_id(first);
    match problem.kind() {
        Some(ErrorKind::NotFound) if is_text => problem.hint(hint(format!("{first} {rest}").trim_end())),
        _ => problem,
    }
}

/// A prompt as a word of a shell; a long one is read from standard input.
pub(super) fn prompt_word(prompt: &str) -> String {
    let is_short = prompt.len() <= SHOWN_PROMPT_BYTES && !prompt.contains(char::is_control);
    match is_short {
        true => shell_word(prompt),
        false => "-".to_owned(),
    }
}

/// The commands that send a prompt, to this conversation or to a new one.
fn send_commands(conversation: &str, prompt: &str) -> String {
    let prompt = prompt_word(prompt);
    let place = match conversation {
        HERE => "the conversation last used here",
        id => id,
    };
    format!(
        "to {place}: sessionctl send {conversation} {prompt}; to a new one: sessionctl send --new {prompt}"
    )
}

/// Prints the end of a turn that a command followed, and returns the command's result.
pub(super) fn report_turn(
    follower: &mut ConversationFollower<'_>,
    turn: Option<&TurnResult>,
) -> CommandResult {
    let problem = turn.and_then(|turn| Some((turn, follower.problem_of(turn)?)));
    match problem {
        None => Ok(()),
        // The JSON result contains the problem.
        Some((_, problem)) if follower.screen.output.json => Err(Problem::silent(problem.exit)),
        // A cancelled turn is not printed as an error.
        Some((turn, problem)) if turn.stop_reason == StopReason::Cancelled && problem.hint.is_none() => {
            follower.screen.note_styled(ATTENTION, &problem.text())?;
            Err(Problem::silent(problem.exit))
        }
        Some((_, problem)) => Err(problem),
    }
}
