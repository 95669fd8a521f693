//! Selects the conversation that a command uses.
//!
//! It owns which values a command's `CONV` may have, and what is printed about the selected conversation. The daemon looks
//! conversations up; the picker shows them if none was named.

use std::path::{Path, PathBuf};

use bridge_protocol::conversation::Conversation;
use bridge_protocol::method;
use bridge_protocol::{ConversationId, ErrorKind, UpstreamId};
use clap::Args;

use super::commands::{Context, ECHO, MIN_ID_CHARS, has_real_agent, this_folder};
use super::complete;
use super::connect::Daemon;
use super::humanize;
use super::output::{DIM, truncate};
use super::picker;
use super::problem::{CommandResult, Exit, Problem};
use super::talk::chat;
use crate::paths::shell_word;

/// How many candidates the daemon's error for an ambiguous name lists at most.
const CANDIDATES_LIMIT: usize = 16;

/// The name that means this folder's conversation.
pub(super) const HERE: &str = ".";

/// Arguments of a command that takes only a conversation.
#[derive(Debug, Args)]
pub(super) struct ConversationArgs {
    /// Conversation: id, part of its title, or . (the last one of this folder); omit to pick one
    #[arg(value_name = "CONV", add = complete::conversation())]
    pub(super) conversation: Option<String>,
}

impl ConversationArgs {
    /// What the user typed, if anything.
    pub(super) fn name(&self) -> Option<&str> {
        self.conversation.as_deref()
    }
}

/// Returns the named conversation, or lets the user pick one if none was named. Prints which one it is, unless it was named by
/// id.
///
/// # Errors
/// No conversation or several match, or none was named and there is no terminal to pick one on.
pub(super) async fn conversation(
    context: &mut Context<'_>,
    daemon: &Daemon,
    given: Option<&str>,
) -> CommandResult<Conversation> {
    let conversation = select_silently(context, daemon, given).await?;
    if given.is_some_and(|word| is_id_prefix(&conversation, word)) {
        return Ok(conversation);
    }
    let look = context.output.note_look;
    let line = format!("{} {}", look.sign("→", "->"), humanize::name(&conversation));
    let line = truncate(&line, look.columns.unwrap_or(usize::MAX), look);
    context.output.note_unedited(&look.paint(DIM, &line))?;
    Ok(conversation)
}

/// Like [`conversation`], but prints nothing.
///
/// # Errors
/// No conversation or several match, or none was named and there is no terminal to pick one on.
pub(super) async fn select_silently(
    context: &mut Context<'_>,
    daemon: &Daemon,
    given: Option<&str>,
) -> CommandResult<Conversation> {
    match given {
        Some(word) => resolve(daemon, word).await,
        None => pick(context, daemon, false)
            .await?
            .ok_or_else(no_conversation_named),
    }
}

fn no_conversation_named() -> Problem {
    Problem::usage("no conversation was named")
        .hint("sessionctl ls lists them; . is the last one of this folder")
}

/// Whether the word is a prefix of the conversation's id or of one of its sessions' ids, past ones included. The conversation
/// need not be printed then.
fn is_id_prefix(found: &Conversation, word: &str) -> bool {
    found.id.to_string().starts_with(word) || !is_conversation_id(found, word)
}

/// Whether the word names the conversation itself, and not one of its sessions.
pub(super) fn is_conversation_id(found: &Conversation, word: &str) -> bool {
    let has_title = || found.title.to_lowercase().contains(&word.to_lowercase());
    word == HERE || found.id.to_string().starts_with(word) || has_title()
}

/// Selects the conversation with this name, or the session with this id if there is none. `is_session`: no conversation is meant.
///
/// # Errors
/// As [`conversation`].
pub(super) async fn conversation_or_session(
    context: &mut Context<'_>,
    daemon: &Daemon,
    given: Option<String>,
    is_session: bool,
) -> CommandResult<(Option<Conversation>, Option<UpstreamId>)> {
    let found = match &given {
        Some(_) if is_session => return Ok((None, given.map(UpstreamId::new))),
        given => conversation(context, daemon, given.as_deref()).await,
    };
    match found {
        Err(none) if none.kind() == Some(ErrorKind::NotFound) && given.as_deref() != Some(HERE) => {
            Ok((None, given.map(UpstreamId::new)))
        }
        found => Ok((Some(found?), None)),
    }
}

/// Finds a conversation by id, prefix of an id, part of its title, or `.` for this folder's.
///
/// # Errors
/// No conversation or several match.
pub(super) async fn resolve(daemon: &Daemon, word: &str) -> CommandResult<Conversation> {
    // If the current folder was deleted, `.` fails, but other names still work.
    let cwd = match word {
        HERE => Some(this_folder()?),
        _ => this_folder().ok(),
    };
    look_up_in_folder(daemon, word, cwd).await
}

/// Looks a conversation up without changing what `.` means.
///
/// # Errors
/// No conversation or several match.
pub(super) async fn look_up(daemon: &Daemon, word: &str) -> CommandResult<Conversation> {
    look_up_in_folder(daemon, word, None).await
}

/// Finds a conversation. If it runs in `cwd`, `.` names it there from now on.
async fn look_up_in_folder(daemon: &Daemon, word: &str, cwd: Option<String>) -> CommandResult<Conversation> {
    // For example, from an unset variable of a script.
    if word.trim().is_empty() {
        return Err(no_conversation_named());
    }
    let found = daemon.call(method::ResolveConversation {
        name: word.to_owned(),
        cwd,
    });
    match found.await.map(|answer| answer.conversation) {
        Err(none) if word == HERE && none.kind() == Some(ErrorKind::NotFound) => {
            let hint =
                "start one: sessionctl send --new 'Hello'; list those of other folders: sessionctl ls --all";
            Err(none.hint(match missing_folder(daemon).await {
                Some(old) => {
                    let old = shell_word(&old);
                    format!("{hint}; if you renamed this folder: sessionctl mv {old} {HERE}")
                }
                None => hint.to_owned(),
            }))
        }
        Err(deleted) if deleted.detail("deletedAt").is_some() => {
            let named = method::ListTranscripts {
                query: Some(word.to_owned()),
                ..Default::default()
            };
            let listed = daemon.call(named).await.map(|page| page.transcripts);
            let mut listed = listed.unwrap_or_default().into_iter();
            Err(
                match listed.find(|one| one.upstream_id.as_str().starts_with(word)) {
                    Some(kept) => deleted.hint(adopt_hint(kept.upstream_id.as_str())),
                    None => deleted,
                },
            )
        }
        Err(several) if several.kind() == Some(ErrorKind::Ambiguous) => {
            Err(with_candidates(daemon, several, word).await)
        }
        Err(problem) => Err(match &*problem.ids("transcripts") {
            [] => problem,
            [only] => problem.hint(adopt_hint(only)),
            _ => {
                let word = shell_word(word);
                problem.hint(format!(
                    "list the transcripts with such ids: sessionctl transcripts {word}"
                ))
            }
        }),
        found => found,
    }
}

fn adopt_hint(session: &str) -> String {
    let id = shell_word(session);
    format!("create a conversation from the transcript: sessionctl adopt {id}")
}

/// The former path of this folder, if it was probably renamed or moved: the missing folder of a conversation that has the same
/// parent, or else the same name.
async fn missing_folder(daemon: &Daemon) -> Option<String> {
    let here = PathBuf::from(this_folder().ok()?);
    let listed = daemon.call(method::ListConversations::default()).await.ok()?;
    let folders = listed.conversations.into_iter().map(|one| PathBuf::from(one.cwd));
    let is_beside = |folder: &Path| folder.parent() == here.parent();
    let is_alike = |folder: &Path| is_beside(folder) || folder.file_name() == here.file_name();
    // The conversations are listed by last use, so this finds the latest.
    let missing = folders.filter(|folder| is_alike(folder) && !folder.exists());
    let old = missing.min_by_key(|folder| !is_beside(folder))?;
    old.into_os_string().into_string().ok()
}

/// Adds the conversations that match to a problem with an ambiguous name.
async fn with_candidates(daemon: &Daemon, mut problem: Problem, word: &str) -> Problem {
    for id in problem.ids("candidates") {
        if let Ok(found) = daemon.call(method::GetConversation::of(id.as_str())).await {
            problem.candidates.push(found.conversation);
        }
    }
    if problem.candidates.is_empty() {
        return problem;
    }
    let count = problem.candidates.len();
    if count >= CANDIDATES_LIMIT {
        let all = format!("list all of them: sessionctl ls --all {}", shell_word(word));
        return problem
            .with_message(format!("{word:?} matches at least {count} conversations"))
            .hint(all);
    }
    let problem = problem.with_message(format!("{word:?} matches {count} conversations"));
    // No command is named: it would be about one of them, which may not be the one to delete.
    match is_id(word) {
        true => problem.hint("give more characters of the id"),
        false => problem.hint("name it by its id"),
    }
}

/// Makes `.` name this conversation in this folder, if it runs here. Failures are ignored, because `.` is only a convenience.
pub(super) async fn set_current(daemon: &Daemon, id: ConversationId) {
    set_current_in(daemon, id, this_folder().ok()).await;
}

/// Makes `.` name this new conversation in its folder.
pub(super) async fn set_current_as_started(daemon: &Daemon, conversation: &Conversation) {
    set_current_in(daemon, conversation.id, Some(conversation.cwd.clone())).await;
}

async fn set_current_in(daemon: &Daemon, id: ConversationId, cwd: Option<String>) {
    let name = id.to_string();
    drop(daemon.call(method::ResolveConversation { name, cwd }).await);
}

/// Whether a word looks like an id or the beginning of one.
pub(super) fn is_id(word: &str) -> bool {
    word.len() >= MIN_ID_CHARS
        && word
            .chars()
            .all(|letter| letter.is_ascii_hexdigit() || letter == '-')
}

/// Lets the user pick a conversation. Returns `None` if one may be created, and the user wants a new one or none exists.
///
/// # Errors
/// There is no terminal to pick one on, or the user leaves.
pub(super) async fn pick(
    context: &mut Context<'_>,
    daemon: &Daemon,
    may_create: bool,
) -> CommandResult<Option<Conversation>> {
    if !picker::is_possible(context.output) {
        return Err(no_conversation_named());
    }
    let picked = picker::pick(context, daemon, may_create).await?;
    if let Some(picked) = &picked {
        set_current(daemon, picked.id).await;
    }
    Ok(picked)
}

/// Runs `sessionctl` without a command: the user picks or starts a conversation and chats in it.
pub(super) async fn start_interactive(context: &mut Context<'_>) -> CommandResult {
    let daemon = context.connect().await?;
    let picked = pick(context, &daemon, true).await?;
    chat::chat_in(context, daemon, picked, None).await
}

/// Fails if this folder has transcripts of an agent, but only the built-in agent is installed.
pub(super) async fn refuse_without_agent(daemon: &Daemon) -> CommandResult {
    let known = daemon.call(method::ListAgents::default()).await?;
    if has_real_agent(&known.agents) {
        return Ok(());
    }
    let transcripts = method::ListTranscripts {
        cwd: Some(this_folder()?),
        ..Default::default()
    };
    let transcripts = daemon.call(transcripts).await?.transcripts;
    let Some(one) = transcripts.into_iter().find(|one| one.agent.as_str() != ECHO) else {
        return Ok(());
    };
    let agent = known.agents.iter().find(|agent| agent.name == one.agent);
    let install = agent.and_then(|agent| known.install.get(&agent.kind));
    let message = format!(
        "this folder has transcripts of {}, whose program is not installed",
        one.agent
    );
    let hint = install.map_or_else(|| "sessionctl doctor".to_owned(), Clone::clone);
    Err(Problem::new(Exit::Agent, message).hint(hint))
}
