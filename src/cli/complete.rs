//! Completions that only the daemon knows: conversations and checkpoints.
//!
//! It owns how long a shell waits for them. A daemon is asked if one runs; none is started.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use bridge_protocol::method;
use clap::{ArgMatches, FromArgMatches};
use clap_complete::CompletionCandidate;

use super::args::{self, Global};
use super::connect::Daemon;
use super::output::one_line;
use super::words;

/// How long a shell waits for candidates.
const LIMIT: Duration = Duration::from_secs(1);

/// How many candidates are offered.
const CANDIDATES: u32 = 100;

/// The conversations whose ids begin with what was typed, newest first, with their titles.
pub(super) fn conversations(typed: &OsStr) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    ask(async |daemon, _| {
        let list = method::ListConversations {
            limit: Some(CANDIDATES),
            ..Default::default()
        };
        let found = daemon.call(list).await.ok()?.conversations.into_iter();
        let found = found.filter(|conversation| conversation.id.to_string().starts_with(&*typed));
        let candidate = found.map(|conversation| {
            let (short, whole) = (words::short_id(conversation.id), conversation.id.to_string());
            let id = if typed.len() > short.len() { whole } else { short };
            CompletionCandidate::new(id).help(Some(one_line(&conversation.title).into()))
        });
        Some(candidate.collect())
    })
}

/// The checkpoints of the conversation on the same command line, newest first: the step of each, with its prompt.
pub(super) fn checkpoints(typed: &OsStr) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    ask(async |daemon, line| {
        let (_, command) = line.subcommand()?;
        let word: &String = command.try_get_one("conversation").ok()??;
        let list = method::Checkpoints {
            conversation_id: super::select::look_up(daemon, word).await.ok()?.id.into(),
            before: None,
            limit: Some(CANDIDATES),
        };
        let found = daemon.call(list).await.ok()?.checkpoints.into_iter();
        let found = found.map(|checkpoint| (checkpoint.step.to_string(), checkpoint.prompt));
        let found = found.filter(|(step, _)| step.starts_with(&*typed));
        let candidate = found.enumerate().map(|(at, (step, prompt))| {
            let help = Some(one_line(&prompt).into());
            CompletionCandidate::new(step).help(help).display_order(Some(at))
        });
        Some(candidate.collect())
    })
}

/// Asks the daemon of the command line that is being typed. The shell passes that line after `--`.
fn ask(
    question: impl AsyncFnOnce(&Daemon, &ArgMatches) -> Option<Vec<CompletionCandidate>>,
) -> Vec<CompletionCandidate> {
    let line: Vec<OsString> = std::env::args_os()
        .skip_while(|word| word != "--")
        .skip(1)
        .collect();
    let answer = async {
        let line = args::command()
            .ignore_errors(true)
            .try_get_matches_from(line)
            .ok()?;
        let reach = super::reach(Global::from_arg_matches(&line).ok()?).ok()?;
        let daemon = reach.find().await.ok()??;
        question(&daemon, &line).await
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else {
        return Vec::new();
    };
    let answer = runtime.block_on(async { tokio::time::timeout(LIMIT, answer).await });
    runtime.shutdown_background();
    answer.ok().flatten().unwrap_or_default()
}
