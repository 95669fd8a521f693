//! Going back in a conversation: `edit` and `undo`, and the places that `--at` names.

use std::cell::RefCell;
use std::io::{Read, Seek, SeekFrom, Write};
use std::process::Command;

use bridge_protocol::ConversationRef;
use bridge_protocol::conversation::EditAnswer;
use bridge_protocol::history::Role;
use bridge_protocol::link::Fidelity;
use bridge_protocol::rpc::{CheckpointRpcClient, ConversationRpcClient};

use super::send::{Following, follow, prompt_of};
use super::{Context, conversation_ref};
use crate::cli::args::{Edit, One};
use crate::cli::connect::Daemon;
use crate::cli::exit::Exit;
use crate::cli::output::{ATTENTION, DIM};
use crate::cli::problem::{Outcome, Problem};
use crate::cli::words;

/// Checkpoints that are asked for at once; the daemon's own limit of a page.
const CHECKPOINT_PAGE: u32 = 500;

/// Replaces an earlier prompt and follows the new turn to its end.
pub(super) async fn edit(context: &mut Context<'_>, options: Edit) -> Outcome<Exit> {
    let daemon = context.connect().await?;
    let conversation = conversation_ref(&daemon, &options.conversation).await?;
    let at = place(&daemon, &conversation, options.at.as_deref().unwrap_or("-1")).await?;
    let words = match options.text.is_empty() {
        false => options.text,
        true => vec![in_editor(&old_prompt(&daemon, &at).await?)?],
    };
    let reads_stdin = words == ["-"];
    let prompt = prompt_of(&words)?;
    let edited: RefCell<Option<EditAnswer>> = RefCell::default();
    let (of_call, text) = (&daemon, prompt.clone());
    let call = async {
        let answer = of_call.edit(conversation.clone(), at, text, None, None).await?;
        let turn = answer.turn.clone();
        edited.replace(Some(answer));
        Ok(turn)
    };
    let following = Following {
        queue: false,
        on_question: options.on_question,
        reads_stdin,
        method: "conversation/edit",
    };
    let followed = follow(context, &daemon, conversation.clone(), &prompt, following, call).await;
    if let Some(answer) = edited.into_inner()
        && !context.output.json
    {
        told(context, &options.conversation, &answer)?;
    }
    followed
}

/// Tells what an edit has changed.
fn told(context: &mut Context<'_>, conversation: &str, answer: &EditAnswer) -> Outcome {
    if answer.link.is_none() {
        return context.output.note("the conversation is as it was");
    }
    let (look, turns) = (
        context.output.note_look,
        words::count(answer.dropped, "turn", "turns"),
    );
    let mut line = format!("in place of {turns}; sessionctl undo {conversation} brings that back");
    let style = match answer.fidelity {
        Fidelity::Full => DIM,
        fidelity => {
            line = format!("{line}; the history before it: {}", words::fidelity(fidelity));
            ATTENTION
        }
    };
    context.output.note(&look.paint(style, &line))
}

/// Takes back the last edit or branch in place.
pub(super) async fn undo(context: &mut Context<'_>, one: &One) -> Outcome<Exit> {
    let daemon = context.connect().await?;
    let conversation = conversation_ref(&daemon, &one.conversation).await?;
    let answer = daemon.undo(conversation, None).await?;
    if context.output.json {
        context.answer(&daemon, "conversation/undo")?;
        return Ok(Exit::Done);
    }
    let head = words::short(answer.link.upstream_id.as_str());
    let dropped = words::count(answer.dropped, "turn", "turns");
    context.output.line(&format!(
        "session {head} is the head again; {dropped} of the branch left behind"
    ))?;
    Ok(Exit::Done)
}

/// The place that a word means: a step as `checkpoints` counts them, `-1` for the last and so on back, or an id.
pub(super) async fn place(daemon: &Daemon, conversation: &ConversationRef, word: &str) -> Outcome<String> {
    let Ok(step) = word.parse::<i64>() else {
        return Ok(word.to_owned());
    };
    let mut before = None;
    let mut wanted = None;
    loop {
        let page = daemon
            .checkpoints(conversation.clone(), before.take(), Some(CHECKPOINT_PAGE))
            .await?;
        let Some(newest) = page.checkpoints.first() else {
            break;
        };
        let step = *wanted.get_or_insert(match step {
            1.. => step,
            _ => i64::try_from(newest.step).unwrap_or(i64::MAX) + 1 + step,
        });
        let is_it =
            |checkpoint: &&bridge_protocol::history::Checkpoint| i64::try_from(checkpoint.step) == Ok(step);
        if let Some(found) = page.checkpoints.iter().find(is_it) {
            return Ok(found.id.as_str().to_owned());
        }
        let last = page.checkpoints.last().filter(|last| last.step > 1);
        before = last.map(|last| last.id.clone());
        if before.is_none() {
            break;
        }
    }
    Err(
        Problem::new(Exit::NotFound, format!("there is no turn {word}")).hint(format!(
            "sessionctl checkpoints {conversation} lists those there are"
        )),
    )
}

/// The text of the prompt of the turn at a place.
async fn old_prompt(daemon: &Daemon, at: &str) -> Outcome<String> {
    if !at.starts_with("cp.") {
        return Err(Problem::new(Exit::Usage, "the new prompt is missing").hint(
            "give it behind --at, or name a step or a checkpoint to have the old prompt opened in an editor",
        ));
    }
    let turn = daemon.get_checkpoint(at.into(), None).await?;
    let mut messages = turn.messages.into_iter();
    let prompt = messages.find(|message| message.role == Role::User && message.kind.is_none());
    let parts = prompt.into_iter().flat_map(|prompt| prompt.content);
    let texts: Vec<String> = parts
        .filter(|part| part.kind == "text")
        .filter_map(|part| part.text)
        .collect();
    Ok(texts.join("\n\n"))
}

/// The text as a person leaves it in `$VISUAL` or `$EDITOR`.
fn in_editor(text: &str) -> Outcome<String> {
    let editor = ["VISUAL", "EDITOR"].into_iter().find_map(|name| {
        let editor = std::env::var(name).ok()?;
        Some(editor).filter(|editor| !editor.trim().is_empty())
    });
    let Some(editor) = editor else {
        return Err(
            Problem::new(Exit::Usage, "the new prompt is missing, and no editor is named")
                .hint("give the prompt on the command line, - for standard input, or set EDITOR"),
        );
    };
    let failed = |what: &str, error: std::io::Error| Problem::new(Exit::Failed, format!("{what}: {error}"));
    let mut file = tempfile::Builder::new()
        .prefix("prompt-")
        .suffix(".md")
        .tempfile()
        .map_err(|error| failed("no file can be made for the editor", error))?;
    file.write_all(text.as_bytes())
        .map_err(|error| failed("the old prompt cannot be written down", error))?;
    // As a shell does, so that EDITOR may have arguments; the file is one of them and never read as code.
    let status = Command::new("sh")
        .args(["-c", &format!("{editor} \"$1\""), "sh"])
        .arg(file.path())
        .status()
        .map_err(|error| failed("the editor could not be started", error))?;
    if !status.success() {
        return Err(
            Problem::new(Exit::Failed, format!("the editor ended with {status}"))
                .hint("nothing was sent; the conversation is as it was"),
        );
    }
    // Some editors put a new file in its place.
    let mut read = std::fs::File::open(file.path())
        .or_else(|_| file.reopen())
        .map_err(|error| failed("the new prompt cannot be read", error))?;
    let mut edited = String::new();
    read.seek(SeekFrom::Start(0))
        .and_then(|_| read.read_to_string(&mut edited))
        .map_err(|error| failed("the new prompt cannot be read", error))?;
    let edited = edited.trim_end_matches('\n').to_owned();
    if edited == text.trim_end_matches('\n') {
        return Err(Problem::new(Exit::Failed, "the prompt was left as it was")
            .hint("nothing was sent; the conversation is as it was"));
    }
    Ok(edited)
}
