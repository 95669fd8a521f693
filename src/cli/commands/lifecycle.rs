//! Commands that end a session or a conversation (`close`, `reset`, `rm`), and that start or stop the daemon (`start`, `stop`).

use std::time::Duration;

use bridge_protocol::conversation::{Conversation, DeleteAnswer, RemainingReason, TranscriptsOnDelete};
use bridge_protocol::method;
use bridge_protocol::raw::RawJson;
use bridge_protocol::{ErrorKind, UpstreamId};
use clap::Args;
use serde_json::json;

use super::Context;
use crate::cli::connect::Daemon;
use crate::cli::output::one_line;
use crate::cli::problem::{CommandResult, DOCTOR_HINT, Exit, Problem};
use crate::cli::select::ConversationArgs;
use crate::cli::talk::turn::is_running;
use crate::cli::{humanize, start as starting};
use crate::paths::shell_word;

/// How long a daemon may take to stop, in addition to the time for running turns.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// Delete a conversation permanently
///
/// The transcripts and their backups stay unless --transcripts is given; sessionctl adopt makes a new conversation from them. On a
/// terminal, rm asks first. Without a terminal it deletes at once, and --transcripts requires --yes.
#[derive(Debug, Args)]
pub(in crate::cli) struct Remove {
    #[command(flatten)]
    pub(in crate::cli) target: ConversationArgs,
    /// Delete the transcripts too: the agent's files and all backups
    #[arg(long)]
    transcripts: bool,
}

/// Start the daemon if it is not running
#[derive(Debug, Args)]
pub(in crate::cli) struct Start {
    /// Print the path of the daemon's socket
    #[arg(long)]
    print_socket: bool,
}

/// Stop the daemon
///
/// Running turns are cancelled. The next command starts the daemon again.
#[derive(Debug, Args)]
pub(in crate::cli) struct Stop {
    /// Time for running turns to end, in milliseconds (default: cancel_grace_ms in the configuration)
    #[arg(long, value_name = "MS", value_parser = milliseconds)]
    grace_ms: Option<u64>,
}

/// Parses a number of milliseconds.
fn milliseconds(word: &str) -> Result<u64, &'static str> {
    let hint = "give a number of milliseconds: sessionctl stop --grace-ms 5000";
    word.parse().map_err(|_| hint)
}

/// Closes the session.
pub(in crate::cli) async fn close(context: &mut Context<'_>, target: &ConversationArgs) -> CommandResult {
    let (daemon, conversation) = context.connect_and_select(target.name()).await?;
    let close = method::Close::of(conversation.id);
    context.call_and_print(&daemon, close).await?;
    let name = humanize::name_in_sentence(&conversation);
    let done = match conversation.live {
        true => format!("Closed {name}. The next prompt opens its session again."),
        false => format!("The session of {name} was not open."),
    };
    context.output.note_unedited(&done)
}

/// Starts an empty session in the same conversation.
pub(in crate::cli) async fn reset(context: &mut Context<'_>, target: &ConversationArgs) -> CommandResult {
    let (daemon, conversation) = context.connect_and_select(target.name()).await?;
    let name = humanize::name_in_sentence(&conversation);
    if conversation.head.is_some() {
        let what = format!("Start an empty session in {name}, without its history");
        confirm_unless_running(context, &conversation, &what, false)?;
    }
    let reset = method::Reset::of(conversation.id);
    let reset = context.call_and_print(&daemon, reset).await;
    reset.map_err(|problem| with_cancel_hint(problem, &conversation))?;
    let mut done = format!("Reset {name}. Its next prompt starts an empty session.");
    if conversation.continuation.is_some() {
        done.push_str(" The scheduled continuation is cancelled.");
    }
    if conversation.head.is_some() {
        let undo = context.output.advice(conversation.id).undo();
        let undo = context.output.with_daemon_options(&undo);
        done.push_str(&format!(" Undo with: {undo}"));
    }
    context.output.note_unedited(&done)
}

/// Asks as [`Context::confirm`], unless the daemon would refuse the command because a turn is running.
fn confirm_unless_running(
    context: &Context<'_>,
    conversation: &Conversation,
    what: &str,
    needs_yes: bool,
) -> CommandResult {
    if is_running(conversation.state) && context.asks() {
        let id = humanize::short_id(conversation.id);
        let problem = Problem::new(Exit::Busy, "a turn is running; cancel it first");
        return Err(problem.hint(format!("cancel the turn: sessionctl cancel {id}")));
    }
    context.confirm(what, needs_yes)
}

/// Adds the command that cancels the running turn to a refusal to end a session.
pub(in crate::cli) fn with_cancel_hint(problem: Problem, conversation: &Conversation) -> Problem {
    if !is_running(conversation.state) {
        return problem;
    }
    let id = humanize::short_id(conversation.id);
    problem.hint_if(
        ErrorKind::Busy,
        format!("cancel the turn: sessionctl cancel {id}"),
    )
}

/// Deletes a conversation.
pub(in crate::cli) async fn remove(context: &mut Context<'_>, options: Remove) -> CommandResult {
    let (daemon, conversation) = context.connect_and_select(options.target.name()).await?;
    let name = humanize::name_in_sentence(&conversation);
    let (what, transcripts) = if options.transcripts {
        let what = format!("Permanently delete {name} with its transcripts and all backups of them");
        (what, TranscriptsOnDelete::Delete)
    } else {
        let what = format!("Delete {name} and keep its transcripts");
        (what, TranscriptsOnDelete::Keep)
    };
    confirm_unless_running(context, &conversation, &what, options.transcripts)?;
    let delete = method::Delete {
        transcripts,
        ..method::Delete::of(conversation.id)
    };
    let answer = context.call_and_print(&daemon, delete).await;
    let answer = answer.map_err(|problem| with_cancel_hint(problem, &conversation))?;
    let done = match options.transcripts {
        true if answer.remaining.is_empty() && answer.not_erased.is_none() => {
            format!("Deleted {name} and its transcripts.")
        }
        true => format!("Deleted {name}."),
        false => {
            let way_back = way_back(&daemon, &conversation, &answer).await;
            format!("Deleted {name}{}", context.output.with_daemon_options(&way_back))
        }
    };
    context.output.note_unedited(&done)?;
    let mut failed = 0;
    for left in &answer.remaining {
        failed += u64::from(left.reason == RemainingReason::Failed);
        let place = left.path.as_deref().unwrap_or(left.upstream_id.as_str());
        let line = format!("not deleted: {}: {}", one_line(place), one_line(&left.message));
        context.output.note(&line)?;
    }
    match (failed, answer.not_erased) {
        (0, None) => Ok(()),
        (0, Some(why)) => {
            let message = format!(
                "the conversation is deleted, but the daemon's files may still contain its messages and settings: {}",
                one_line(&why)
            );
            Err(Problem::failed(message).hint(
                "when that is fixed, stop the daemon; its next start removes the rest: sessionctl stop",
            ))
        }
        _ => {
            let transcripts = humanize::count(failed, "transcript", "transcripts");
            let message = format!("the conversation is deleted, but {transcripts} could not be deleted");
            Err(Problem::failed(message).hint("delete the files listed above yourself"))
        }
    }
}

/// How to continue from the history of a deleted conversation, as the end of a sentence.
pub(in crate::cli) async fn way_back(
    daemon: &Daemon,
    conversation: &Conversation,
    answer: &DeleteAnswer,
) -> String {
    let adopt = |id: &UpstreamId| format!("sessionctl adopt {}", shell_word(id.as_str()));
    let restore = |id: &UpstreamId| {
        let id = shell_word(id.as_str());
        format!("sessionctl archive restore {id} && sessionctl adopt {id}")
    };
    let adopts = answer.adoptable.iter().map(adopt);
    let mut ways = answer.restorable.iter().map(restore).chain(adopts);
    if let Some(first) = ways.next() {
        let (kept, other) = match answer.restorable.is_empty() {
            true => (
                "its transcripts are kept. Continue from them under a new id",
                "an earlier session",
            ),
            false => (
                "its backup is kept. Continue from it under a new id",
                "another session",
            ),
        };
        let others = ways.map(|way| format!("; {other}: {way}"));
        return format!("; {kept}: {first}{}", others.collect::<String>());
    }
    let Some(parent) = &conversation.parent else {
        return ".".to_owned();
    };
    let get = method::GetConversation::of(parent.conversation_id);
    if daemon.call(get).await.is_err() {
        return "; it had no transcript yet.".to_owned();
    }
    let at = parent.checkpoint_id.as_ref();
    let at = at.map_or_else(String::new, |at| format!(" --at {}", shell_word(at.as_str())));
    format!(
        "; it had no transcript yet. Fork again: sessionctl fork {}{at}",
        humanize::short_id(parent.conversation_id)
    )
}

/// Starts the daemon if none runs, and prints which one runs.
pub(in crate::cli) async fn start(context: &mut Context<'_>, options: &Start) -> CommandResult {
    let verb = match context.connector.find().await? {
        Some(_) => "The daemon is already running as",
        None => "Started the daemon as",
    };
    let daemon = context.connect().await?;
    let status = context.call_and_print(&daemon, method::Status::default()).await?;
    if options.print_socket {
        context.output.verbatim(&status.socket)?;
    }
    let done = format!("{verb} process {}.", status.pid);
    context.output.note(&done)
}

/// Stops the daemon and waits until it has ended. Succeeds if none runs.
pub(in crate::cli) async fn stop(context: &mut Context<'_>, options: Stop) -> CommandResult {
    let Some(daemon) = context.connector.find().await? else {
        // Print the same answer as the daemon's.
        if context.output.json {
            context.output.raw(&RawJson::from(json!({})))?;
        }
        context.output.note("the daemon is not running")?;
        return Ok(());
    };
    let shutdown = method::Shutdown {
        grace_ms: options.grace_ms,
    };
    let lock = context.connector.last_lock();
    let holder = lock.and_then(|lock| context.connector.lock_holder_pid(&lock.socket));
    let limit = STOP_LIMIT + Duration::from_millis(options.grace_ms.unwrap_or_default());
    let paths = context.connector.paths.clone();
    let stopped = async {
        context.call_and_print(&daemon, shutdown).await?;
        daemon.closed().await;
        starting::wait_for_daemon_end(&paths).await
    };
    let stopped = tokio::time::timeout(limit, stopped).await;
    stopped.unwrap_or_else(|_| Err(not_stopped_problem(holder, limit)))?;
    let done = "Stopped the daemon. The next command starts it again.";
    context.output.note(done)
}

fn not_stopped_problem(pid: Option<u32>, limit: Duration) -> Problem {
    let (which, hint) = match pid {
        Some(pid) => (
            format!(", process {pid},"),
            format!("wait, or end it: kill -KILL {pid}"),
        ),
        None => (String::new(), DOCTOR_HINT.to_owned()),
    };
    let what = format!("the daemon{which} is still running after {} s", limit.as_secs());
    Problem::no_daemon(what).hint(hint)
}
