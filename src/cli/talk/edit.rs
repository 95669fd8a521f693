//! `edit` and `undo`, which go back in a conversation, and the turns that `--at` names.

use std::rc::Rc;

use bridge_protocol::agent::AgentInfo;
use bridge_protocol::conversation::{Conversation, EditAnswer};
use bridge_protocol::history::{CheckpointAnswer, MessagePart, Role};
use bridge_protocol::link::{Fidelity, LineageReason};
use bridge_protocol::method;
use bridge_protocol::raw::PromptContent;
use bridge_protocol::{ConversationId, ConversationRef, ErrorKind};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::editor::{self, EditedText};
use super::files;
use super::send::{prompt_word, report_turn, with_text_hint};
use super::turn::{ConversationFollower, FollowTarget, OnQuestion, request_id};
use crate::cli::advice::Advice;
use crate::cli::commands::create::FIDELITIES;
use crate::cli::commands::history::lost_hint;
use crate::cli::commands::lifecycle::with_cancel_hint;
use crate::cli::commands::{Context, inspect, mv, turns, unusable_folder, wire_words};
use crate::cli::complete;
use crate::cli::connect::Daemon;
use crate::cli::humanize;
use crate::cli::output::{ATTENTION, DIM, Output, one_line};
use crate::cli::problem::{CommandResult, Exit, Problem};
use crate::cli::prompt_text::{Untagged, attached_file, untagged};
use crate::cli::select::{ConversationArgs, HERE};
use crate::paths::shell_word;

/// `edit`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sessionctl edit . --at 3 Use a trait instead
  sessionctl edit . --at -2
  sessionctl undo .")]
pub(in crate::cli) struct Edit {
    #[command(flatten)]
    target: ConversationArgs,
    /// Turn to replace: number (-1 is the last), checkpoint id or message id (default: -1)
    #[arg(long, value_name = "CHECKPOINT", allow_hyphen_values = true, value_parser = NonEmptyStringValueParser::new(), add = complete::checkpoint())]
    at: Option<String>,
    /// New prompt; - inserts standard input; omit to edit the old prompt in $EDITOR
    #[arg(value_name = "TEXT", num_args = 0.., allow_hyphen_values = false)]
    text: Vec<String>,
    /// Fail if less than this of the earlier history would be kept (default: text)
    #[arg(long, value_name = "LEVEL", value_parser = wire_words::<Fidelity>(&FIDELITIES))]
    min_fidelity: Option<Fidelity>,
    /// How to handle questions of the agent (default: ask on a terminal, otherwise leave)
    #[arg(long, value_name = "WHAT")]
    on_question: Option<OnQuestion>,
}

/// Replaces an earlier prompt and follows the new turn to its end.
pub(in crate::cli) async fn edit(context: &mut Context<'_>, options: Edit) -> CommandResult {
    let named = options.at.as_deref();
    let found = context.connect_and_select(options.target.name()).await;
    let (daemon, conversation) = found.map_err(|problem| {
        if options.text.iter().any(|word| word == "-") {
            return problem;
        }
        let first = options.target.name().unwrap_or_default();
        with_text_hint(problem, first, &options.text.join(" "), |prompt| {
            let at = named.map_or_else(String::new, |at| format!(" --at {}", shell_word(at)));
            let prompt = prompt_word(prompt);
            format!(
                "the first word names the conversation; to edit the one last used here: sessionctl edit {HERE}{at} {prompt}"
            )
        })
    })?;
    let id = humanize::short_id(conversation.id);
    let at = resolve_turn(context.output, &daemon, conversation.id, named.unwrap_or("-1")).await?;
    let mut written = None;
    let prompt = match options.text.is_empty() {
        false => {
            let text = files::text_from_words(&options.text)?;
            if text.trim().is_empty() {
                let turn = shell_word(named.unwrap_or("-1"));
                let hint = format!(
                    "give its text, or - for standard input: sessionctl edit {id} --at {turn} 'Hello'"
                );
                return Err(Problem::usage("the new prompt is empty").hint(hint));
            }
            PromptContent::text(&text)
        }
        true => {
            let turn = shell_word(named.unwrap_or("-1"));
            let other = format!("sessionctl edit {id} --at {turn} 'Hello'");
            let (opened, files) =
                edit_old_prompt(context, &daemon, &conversation.id.into(), &at, &other).await?;
            // The editor's text is used as it is: a lone dash does not mean standard input.
            PromptContent::text(&written.insert(opened).text).followed_by(&files::reattach(files))
        }
    };
    let call = method::Edit {
        conversation_id: conversation.id.into(),
        at,
        prompt,
        min_fidelity: options.min_fidelity.unwrap_or_default(),
        request_id: Some(request_id()),
    };
    let mut follower =
        ConversationFollower::new(context, Rc::new(daemon), &conversation, options.on_question);
    let ended = follower.follow(FollowTarget::Edit(call)).await;
    let mut is_taken = false;
    let ended = match ended
        .map_err(|problem| with_branch_hint(follower.screen.output, problem, &conversation, named))
    {
        Ok(ended) => {
            is_taken = report_edit(&mut follower)?;
            report_turn(&mut follower, ended.as_ref())
        }
        Err(problem) => Err(problem),
    };
    drop(follower);
    match written {
        Some(written) if !is_taken => keep_unsent_text(context, written, ended),
        _ => ended,
    }
}

/// Prints what an edit has changed. Returns whether the new prompt need not be kept: the edit was accepted, so the prompt is in the
/// transcript, or the turn was no edit.
pub(super) fn report_edit(follower: &mut ConversationFollower<'_>) -> CommandResult<bool> {
    let Some(EditAnswer {
        link,
        dropped,
        fidelity,
        ..
    }) = follower.edit_answer.take()
    else {
        return Ok(true);
    };
    if link.is_none() {
        follower.screen.note("Nothing was replaced.")?;
        return Ok(false);
    }
    let turns = humanize::count(dropped, "turn", "turns");
    let undo = follower.advice().undo();
    let line = format!("Replaced {turns}. Undo with: {undo}");
    match fidelity {
        Fidelity::Full => follower.screen.note_styled(DIM, &line)?,
        less => {
            let less = humanize::wire_name(less);
            follower
                .screen
                .note_styled(ATTENTION, &format!("{line} (history before it: {less})"))?;
        }
    }
    Ok(true)
}

/// Keeps the text that was written for an edit that was not accepted, and prints the path of its file.
fn keep_unsent_text(context: &mut Context<'_>, written: EditedText, ended: CommandResult) -> CommandResult {
    let path = written.persist()?;
    let kept = format!("what you wrote is in {}", path.display());
    match ended {
        Err(problem) if problem.message.is_some() => {
            let hint = match &problem.hint {
                Some(hint) => format!("{kept}; {hint}"),
                None => kept,
            };
            Err(problem.hint(hint))
        }
        // With JSON, only problems are printed to standard error.
        ended if context.output.json => Err(Problem::new(
            ended.err().map_or(Exit::Success, |problem| problem.exit),
            kept,
        )),
        ended => context.output.note(&kept).and(ended),
    }
}

/// Undoes the last edit, in-place fork, move or reset.
pub(in crate::cli) async fn undo(context: &mut Context<'_>, target: ConversationArgs) -> CommandResult {
    let (daemon, conversation) = context.connect_and_select(target.name()).await?;
    let last = match context.output.json {
        true => None,
        // A conversation whose history cannot be read can still be undone.
        false => {
            let last = turns(&daemon, &conversation.id.into(), 1)
                .await
                .unwrap_or_default();
            last.into_iter().next().map(|last| last.id)
        }
    };
    let answer = context
        .call_and_print(&daemon, method::Undo::of(conversation.id))
        .await;
    let answer = match answer {
        Err(problem) if problem.kind() == Some(ErrorKind::InvalidCwd) => {
            let log = inspect::lineage_entries(context, &daemon, conversation.id)
                .await
                .unwrap_or_default();
            let mut folders = log.iter().rev().map(|entry| entry.cwd.as_str());
            return Err(unusable_folder(
                problem,
                folders.find(|folder| *folder != conversation.cwd),
            ));
        }
        Err(problem) => {
            let id = humanize::short_id(conversation.id);
            let changes = format!("list its changes: sessionctl lineage {id}");
            let hint = "the conversation is unchanged; put the transcript back where its agent looks for it, then undo again";
            let problem = problem
                .hint_if(ErrorKind::Conflict, changes)
                .hint_if(ErrorKind::NotResumable, hint);
            let undo = match problem.detail("undoId") {
                Some(id) => mv::undo_command_of(&daemon, &id).await,
                None => None,
            };
            return Err(match undo {
                Some(undo) => problem
                    .with_message("the conversation was moved together with its folder".to_owned())
                    .hint(format!("undo the move of the folder: {undo}")),
                None => problem,
            });
        }
        Ok(answer) => answer,
    };
    let done = match &answer.moved {
        Some(moved) => format!("Undid the move. The folder is {} again.", one_line(&moved.to)),
        None => {
            let head = humanize::short(answer.link.upstream_id.as_str());
            let turns = match answer.dropped {
                0 => String::new(),
                dropped => format!(" with its {}", humanize::count(dropped, "turn", "turns")),
            };
            let change = match answer.undone {
                Some(LineageReason::Edited) => "edit",
                // Use the name of the command in a chat.
                Some(LineageReason::Forked) if context.output.in_chat => "rewind",
                Some(LineageReason::Forked) => "in-place fork",
                Some(LineageReason::Reset) => "reset",
                Some(LineageReason::Rolled) => "clear",
                _ => "last change",
            };
            format!("Undid the {change}{turns}. The conversation continues in session {head}.")
        }
    };
    context.output.line(&done)?;
    // If the change was undone before its first turn, no turns were dropped.
    if let Some(last) = last.filter(|_| answer.dropped > 0) {
        let turns = humanize::count(answer.dropped, "undone turn is", "undone turns are");
        let agents = daemon.call(method::ListAgents::default()).await?.agents;
        let forks = |agent: &AgentInfo| agent.name == conversation.agent && agent.fork_at;
        let advice = context.output.advice(conversation.id);
        let (how, command) = match agents.iter().any(forks) {
            true => ("continue there in a new conversation", advice.fork(last.as_str())),
            false => (
                "send another prompt in place of the last one",
                advice.edit(last.as_str()),
            ),
        };
        context
            .output
            .note(&format!("{turns} kept. To {how}: {command}"))?;
    }
    Ok(())
}

/// Resolves the value of `--at`: a step (`3`, or `-1` for the last) becomes its checkpoint; any other word is taken as an id.
pub(in crate::cli) async fn resolve_checkpoint(
    output: &Output,
    daemon: &Daemon,
    id: ConversationId,
    word: &str,
) -> CommandResult<String> {
    if word.parse::<i64>().is_err() {
        return match find_turn(daemon, &id.into(), word).await {
            // This agent's turns cannot be listed, so the hint of the later error would not help.
            Err(problem) if problem.kind() == Some(ErrorKind::Unsupported) => Err(problem),
            _ => Ok(word.to_owned()),
        };
    }
    match find_turn(daemon, &id.into(), word).await {
        Ok(turn) => Ok(turn.checkpoint.id.as_str().to_owned()),
        Err(problem) if problem.kind() == Some(ErrorKind::CheckpointNotFound) => {
            let problem = problem.with_message(format!("there is no turn {word}"));
            let last = method::Checkpoints {
                limit: Some(1),
                ..method::Checkpoints::of(id)
            };
            let last = daemon.call(last).await.ok();
            let gap = last.as_ref().and_then(|last| last.gaps.first());
            let advice = output.advice(id);
            Err(
                match (
                    last.as_ref().is_some_and(|last| !last.checkpoints.is_empty()),
                    gap,
                ) {
                    (true, _) => problem.hint(turns_hint(&advice)),
                    (false, None) => problem.without_turns(&advice),
                    (false, Some(gap)) => {
                        let what = format!("no turn can be read: {}", one_line(&gap.detail));
                        problem.with_message(what).hint(lost_hint(&advice))
                    }
                },
            )
        }
        Err(problem) => Err(problem),
    }
}

/// As [`resolve_checkpoint`], but the id of a message, also of a reply, resolves to the checkpoint of its turn.
async fn resolve_turn(
    output: &Output,
    daemon: &Daemon,
    id: ConversationId,
    word: &str,
) -> CommandResult<String> {
    if word.parse::<i64>().is_ok() {
        return resolve_checkpoint(output, daemon, id, word).await;
    }
    match find_turn(daemon, &id.into(), word).await {
        Ok(turn) => Ok(turn.checkpoint.id.as_str().to_owned()),
        Err(problem) if problem.kind() == Some(ErrorKind::Unsupported) => Err(problem),
        // If there is no such turn, the daemon refuses the edit.
        Err(_) => Ok(word.to_owned()),
    }
}

/// Finds a turn of a conversation by its step, or by the id of a checkpoint or message.
async fn find_turn(
    daemon: &Daemon,
    conversation: &ConversationRef,
    at: &str,
) -> CommandResult<CheckpointAnswer> {
    let turn = method::GetCheckpoint {
        checkpoint_id: at.into(),
        conversation_id: Some(conversation.clone()),
    };
    daemon.call(turn).await
}

/// The command that lists the turns.
fn turns_hint(advice: &Advice) -> String {
    format!("list the turns: {}", advice.checkpoints())
}

/// Adds a hint to a problem about the turn that was named, or about history that a branch would lose.
pub(in crate::cli) fn with_branch_hint(
    output: &Output,
    problem: Problem,
    conversation: &Conversation,
    at: Option<&str>,
) -> Problem {
    let advice = output.advice(conversation.id);
    match problem.kind() {
        Some(ErrorKind::InvalidParams)
            if problem.detail("parameter").as_deref() == Some("at")
                && let Some(at) = at =>
        {
            if conversation.head.is_none() {
                return problem.without_turns(&advice).with_exit(Exit::NotFound);
            }
            let what = format!("there is no turn {}", one_line(at));
            problem
                .with_message(what)
                .with_exit(Exit::NotFound)
                .hint(turns_hint(&advice))
        }
        Some(ErrorKind::NotResumable) => problem.hint(format!(
            "the conversation is unchanged; a lower --min-fidelity accepts less; list what was tried: sessionctl \
             lineage {}",
            advice.conversation
        )),
        _ => with_cancel_hint(problem, conversation),
    }
}

/// Opens the prompt of a turn in the editor, and reports parts that the editor cannot show, such as pictures. Returns files
/// that were attached as text, in the form that the agent received. `other` is how to pass the new prompt without an editor.
pub(super) async fn edit_old_prompt(
    context: &mut Context<'_>,
    daemon: &Daemon,
    conversation: &ConversationRef,
    at: &str,
    other: &str,
) -> CommandResult<(EditedText, Vec<String>)> {
    let turn = find_turn(daemon, conversation, at).await?;
    let mut messages = turn.messages.into_iter();
    let prompt = messages.find(|message| message.role == Role::User && message.kind.is_none());
    let parts = prompt.map(|prompt| prompt.content).unwrap_or_default();
    let is_file = |part: &MessagePart| {
        let text = part.text.as_deref().filter(|_| part.cut_bytes.is_none());
        part.kind == "text" && text.and_then(attached_file).is_some()
    };
    let (files, parts): (Vec<_>, Vec<_>) = parts.into_iter().partition(is_file);
    let (text, lost) = text_of_parts(parts);
    let written = editor::edit_text(&text, other)?;
    if let Some(lost) = lost {
        let lost = context.output.note_look.paint(ATTENTION, &lost);
        context.output.note(&lost)?;
    }
    Ok((written, files.into_iter().filter_map(|file| file.text).collect()))
}

/// The text of a prompt, and a sentence about its other parts.
fn text_of_parts(parts: Vec<MessagePart>) -> (String, Option<String>) {
    let is_cut = |part: &MessagePart| part.kind == "text" && part.cut_bytes.is_some();
    let is_cut = parts.iter().any(is_cut);
    let (mut texts, mut pictures, mut others) = (Vec::new(), 0, 0);
    for part in parts {
        match (part.kind.as_str(), part.text) {
            ("text", Some(text)) => texts.push(untagged(&text).map_or(text, Untagged::text)),
            ("text", None) => {}
            ("image", _) => pictures += 1,
            _ => others += 1,
        }
    }
    let beside: Vec<String> = [
        (pictures, "picture", "pictures"),
        (others, "other part", "other parts"),
    ]
    .into_iter()
    .filter(|(count, ..)| *count > 0)
    .map(|(count, one, many)| humanize::count(count, one, many))
    .collect();
    let said = [
        (!beside.is_empty()).then(|| {
            let beside = beside.join(" and ");
            format!("the old prompt also has {beside}, which the new prompt will lack")
        }),
        is_cut.then(|| "the old prompt is too long for the editor: its end is missing".to_owned()),
    ];
    let said: Vec<String> = said.into_iter().flatten().collect();
    (texts.join("\n\n"), (!said.is_empty()).then(|| said.join("; ")))
}
