//! Completions that the daemon provides: conversations, checkpoints, sessions, questions and agents.
//!
//! It owns how long a shell waits for them. Only a running daemon is asked; none is started.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use bridge_protocol::conversation::Conversation;
use bridge_protocol::method;
use clap::{ArgMatches, FromArgMatches};
use clap_complete::{ArgValueCompleter, CompletionCandidate};

use super::args::{self, Global};
use super::connect::Daemon;
use super::humanize;
use super::output::one_line;
use super::prompt_text::readable_prompt;
use super::talk::question::subject;

/// How long a shell waits for candidates.
const LIMIT: Duration = Duration::from_secs(1);

/// How many candidates are offered.
const CANDIDATES: u32 = 100;

/// The `COMP_TYPE` of bash when it only lists what a word may become, as after a second Tab.
const COMP_TYPE_LIST: &str = "63";

/// Completes the name of a conversation.
pub(super) fn conversation() -> ArgValueCompleter {
    ArgValueCompleter::new(conversations)
}

/// Completes the number of a turn in a conversation.
pub(super) fn checkpoint() -> ArgValueCompleter {
    ArgValueCompleter::new(checkpoints)
}

/// Completes the id of a session that has a transcript.
pub(super) fn transcript() -> ArgValueCompleter {
    ArgValueCompleter::new(transcripts)
}

/// Completes the id of a session with backups that belong to no conversation.
pub(super) fn unclaimed_session() -> ArgValueCompleter {
    ArgValueCompleter::new(unclaimed_sessions)
}

/// Completes the id of an open question of a conversation.
pub(super) fn question() -> ArgValueCompleter {
    ArgValueCompleter::new(questions)
}

/// Completes the name of an agent.
pub(super) fn agent() -> ArgValueCompleter {
    ArgValueCompleter::new(agents)
}

/// Completes the key of a `KEY=VALUE`.
pub(super) fn keys(keys: [&'static str; 3]) -> ArgValueCompleter {
    ArgValueCompleter::new(move |typed: &OsStr| {
        let typed = typed.to_string_lossy();
        let keys = keys.map(|key| format!("{key}="));
        let meant = keys.into_iter().filter(|key| key.starts_with(&*typed));
        meant.map(CompletionCandidate::new).collect()
    })
}

/// The agents whose names begin with the typed text.
fn agents(typed: &OsStr) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    ask_daemon(async |daemon, _| {
        let agents = daemon.call(method::ListAgents::default()).await.ok()?.agents;
        let names = agents.iter().map(|agent| agent.name.as_str());
        let meant = names.filter(|name| name.starts_with(&*typed));
        Some(meant.map(CompletionCandidate::new).collect())
    })
}

/// The conversations whose ids or titles begin with the typed text, newest first. A title that several have is offered once,
/// with their ids as its description: zsh and fish drop candidates that do not begin with the typed text, as the ids would not.
fn conversations(typed: &OsStr) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    // Outside quotes, a space is typed with a backslash.
    let is_quoted = typed.contains(' ') && !typed.contains('\\');
    let typed = unquoted(&typed);
    ask_daemon(async |daemon, _| {
        let list = method::ListConversations {
            query: Some(typed.clone()).filter(|typed| !typed.trim().is_empty()),
            limit: Some(CANDIDATES),
            ..Default::default()
        };
        let found = daemon.call(list).await.ok()?.conversations;
        let candidates = found.iter().enumerate().filter_map(|(at, conversation)| {
            let (short, whole) = (humanize::short_id(conversation.id), conversation.id.to_string());
            let title = one_line(&conversation.title);
            if whole.starts_with(&typed) {
                let is_longer = typed.len() > short.len();
                return Some((if is_longer { whole } else { short }, title));
            }
            // The daemon prefers the conversation that has the whole title, so that only equal titles are ambiguous.
            let has_title = |one: &&Conversation| one.title == conversation.title;
            let is_first = found.iter().position(|one| has_title(&one)) == Some(at);
            let is_begun = title.to_lowercase().starts_with(&typed.to_lowercase());
            let same = found.iter().filter(has_title);
            let ids: Vec<String> = same.map(|one| humanize::short_id(one.id)).collect();
            // The daemon compares titles as they are.
            let is_whole = title == conversation.title;
            (is_first && is_begun && is_whole).then(|| (shell_candidate(&title, is_quoted), ids.join(", ")))
        });
        let candidates =
            candidates.map(|(word, help)| CompletionCandidate::new(word).help(Some(help.into())));
        Some(candidates.collect())
    })
}

/// The `COMP_TYPE` of bash, or `None` if another shell requests completions. bash passes words with their quoting, and inserts
/// candidates without quoting them.
fn asked_by_bash() -> Option<String> {
    std::env::var("_CLAP_COMPLETE_COMP_TYPE").ok()
}

fn is_bash() -> bool {
    asked_by_bash().is_some()
}

/// A candidate and its description as one text, for bash, which has no descriptions. bash only lists these, and inserts none.
fn with_inline_help(candidate: CompletionCandidate) -> CompletionCandidate {
    let word = candidate.get_value().to_string_lossy();
    match candidate.get_help() {
        Some(help) => {
            CompletionCandidate::new(format!("{word}  {help}")).display_order(candidate.get_display_order())
        }
        None => candidate,
    }
}

/// The typed text, without the quotes of the shell.
fn unquoted(typed: &str) -> String {
    let words = shlex::split(typed).filter(|_| is_bash());
    words.map_or_else(|| typed.to_owned(), |words| words.join(" "))
}

/// A text quoted as a word of the command line. Within quotes, and in other shells, it is not changed.
fn shell_candidate(text: &str, is_quoted: bool) -> String {
    if is_quoted || !is_bash() {
        return text.to_owned();
    }
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+,:@%=".contains(letter);
    let escaped = text.chars().map(|letter| match is_plain(letter) {
        true => letter.to_string(),
        false => format!("\\{letter}"),
    });
    escaped.collect()
}

/// The checkpoints of the conversation that the command line names, newest first: the step of each, with its prompt.
fn checkpoints(typed: &OsStr) -> Vec<CompletionCandidate> {
    ask_daemon(async |daemon, line| {
        let list = method::Checkpoints {
            conversation_id: conversation_on(line, daemon).await?.id.into(),
            before: None,
            limit: Some(CANDIDATES),
        };
        let found = daemon.call(list).await.ok()?.checkpoints.into_iter();
        let found = found.map(|one| (one.step.to_string(), readable_prompt(&one.prompt)));
        Some(described(found, typed))
    })
}

/// The sessions with transcripts, newest first.
fn transcripts(typed: &OsStr) -> Vec<CompletionCandidate> {
    ask_daemon(async |daemon, _| {
        let list = method::ListTranscripts {
            query: Some(typed.to_string_lossy().into_owned()),
            limit: Some(CANDIDATES),
            ..Default::default()
        };
        let found = daemon.call(list).await.ok()?.transcripts.into_iter();
        Some(described(
            found.map(|one| (one.upstream_id.to_string(), one.title)),
            typed,
        ))
    })
}

/// The sessions whose backups belong to no conversation, newest first.
fn unclaimed_sessions(typed: &OsStr) -> Vec<CompletionCandidate> {
    ask_daemon(async |daemon, _| {
        let found = daemon
            .call(method::Keep::default())
            .await
            .ok()?
            .unclaimed
            .into_iter();
        Some(described(
            found.map(|one| (one.upstream_id.to_string(), one.title)),
            typed,
        ))
    })
}

/// The open questions of the conversation that the command line names.
fn questions(typed: &OsStr) -> Vec<CompletionCandidate> {
    ask_daemon(async |daemon, line| {
        let open = conversation_on(line, daemon).await?.interrupts;
        let open = open.iter().map(|one| (one.id.to_string(), subject(one)));
        Some(described(open, typed))
    })
}

/// The conversation that the command line names.
async fn conversation_on(line: &ArgMatches, daemon: &Daemon) -> Option<Conversation> {
    let (_, command) = line.subcommand()?;
    let word: &String = command.try_get_one("conversation").ok()??;
    super::select::look_up(daemon, &unquoted(word)).await.ok()
}

/// The words that begin with the typed text, in this order, each with its description.
fn described(words: impl Iterator<Item = (String, String)>, typed: &OsStr) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    let meant = words.filter(|(word, _)| word.starts_with(&*typed));
    let candidate = meant.enumerate().map(|(at, (word, text))| {
        let help = Some(one_line(&text)).filter(|text| !text.is_empty());
        CompletionCandidate::new(word)
            .help(help.map(Into::into))
            .display_order(Some(at))
    });
    candidate.collect()
}

/// Calls the daemon that the command line being typed names. The shell passes that line after `--`.
fn ask_daemon(
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
        let reach = super::daemon_connector(Global::from_arg_matches(&line).ok()?).ok()?;
        let daemon = reach.find().await.ok()??;
        question(&daemon, &line).await
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else {
        return Vec::new();
    };
    let answer = runtime.block_on(async { tokio::time::timeout(LIMIT, answer).await });
    runtime.shutdown_background();
    let candidates = answer.ok().flatten().unwrap_or_default();
    match asked_by_bash().as_deref() {
        Some(COMP_TYPE_LIST) => candidates.into_iter().map(with_inline_help).collect(),
        _ => candidates,
    }
}
