//! Going on with what was cut short: `continue` at a time, `recover` now.

use bridge_protocol::client::Call as _;
use bridge_protocol::method;
use clap::Args;
use std::collections::HashSet;

use bridge_protocol::conversation::{ContinueAt, Conversation, ConversationState};
use bridge_protocol::raw::{PromptContent, RawJson};
use bridge_protocol::{BridgeError, ConversationId, ConversationRef, ErrorKind};

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, civil};
use jsonrpsee::core::ClientError;
use serde::Serialize;

use super::{Context, conversation_ref};
use crate::cli::connect::Daemon;
use crate::cli::exit::Exit;
use crate::cli::output::{DIM, one_line};
use crate::cli::problem::{Outcome, Problem};
use crate::cli::{question, words};

/// Schedule a conversation to continue
///
/// If the agent has recorded the interrupted prompt, it is asked to continue, or TEXT is sent. Otherwise the prompt is
/// sent again, followed by TEXT.
///
/// A scheduled continuation survives restarts of the daemon. If you send a prompt earlier and the agent answers it, the
/// continuation is cancelled.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("when").required(true).args(["at_reset", "at", "now", "cancel"]))]
#[command(after_help = "\
Examples:
  sessionctl continue . --at-reset
  sessionctl continue . --at 06:30 'Now run the long tests'
  sessionctl continue . --cancel")]
pub(in crate::cli) struct Continue {
    /// Conversation id, an id prefix (6 or more characters), or . (newest in this folder)
    #[arg(value_name = "CONV")]
    pub(in crate::cli) conversation: String,
    /// Prompt to send (default: ask the agent to continue); required if no turn was interrupted
    #[arg(value_name = "TEXT", conflicts_with = "cancel")]
    pub(in crate::cli) text: Vec<String>,
    /// Continue when the usage limit resets
    #[arg(long)]
    pub(in crate::cli) at_reset: bool,
    /// Continue at this time: 18:30 or 2026-01-31T18:30 (local), or 2026-01-31T18:30:00Z
    #[arg(long, value_name = "TIME")]
    pub(in crate::cli) at: Option<String>,
    /// Continue now
    #[arg(long)]
    pub(in crate::cli) now: bool,
    /// Cancel the scheduled continuation
    #[arg(long)]
    pub(in crate::cli) cancel: bool,
}

/// Continue interrupted turns now
///
/// If a usage limit still applies, the daemon continues the turn at its reset. To answer an open question, use
/// sessionctl answer. Exits with 1 if a conversation could not be continued.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("which").required(true).args(["conversation", "all"]))]
pub(in crate::cli) struct Recover {
    /// Conversation id, an id prefix (6 or more characters), or . (newest in this folder)
    #[arg(value_name = "CONV")]
    pub(in crate::cli) conversation: Option<String>,
    /// Continue every interrupted conversation, except for turns that you cancelled
    #[arg(long)]
    pub(in crate::cli) all: bool,
}

/// How many conversations are asked for at once.
const PAGE: u32 = 500;

/// What is looked for: the states in which a conversation waits for somebody, and whatever the state a turn that was cut
/// short, as by a sign-in that was missing.
const CUT_SHORT: [(Option<ConversationState>, Option<bool>); 4] = [
    (Some(ConversationState::Limited), None),
    (Some(ConversationState::Interrupted), None),
    (Some(ConversationState::Failed), None),
    (None, Some(true)),
];

/// Has a conversation go on by itself, or not any more.
pub(in crate::cli) async fn continue_at(context: &mut Context<'_>, options: Continue) -> Outcome<Exit> {
    let (now, zone) = (Timestamp::now(), TimeZone::system());
    let at = match &options.at {
        Some(text) => Some(ContinueAt::Time(time(text, now, &zone)?)),
        None if options.now => Some(ContinueAt::Now),
        None => options.at_reset.then_some(ContinueAt::Reset),
    };
    let text = (!options.text.is_empty()).then(|| PromptContent::text(&options.text.join(" ")));
    let daemon = context.connect().await?;
    let conversation = conversation_ref(&daemon, &options.conversation).await?;
    // The answer to a cancellation does not say whether there was anything to cancel.
    let was_scheduled = match options.cancel {
        true => is_scheduled(
            &daemon
                .call(method::GetConversation {
                    conversation_id: conversation.clone(),
                })
                .await?
                .conversation,
        ),
        false => false,
    };
    let answer = daemon
        .call(method::Continue {
            conversation_id: conversation,
            at,
            text,
            cancel: options.cancel,
            ..Default::default()
        })
        .await
        .map_err(in_own_words)?;
    if context.output.json {
        context.answer(&daemon, "conversation/continue")?;
        return Ok(Exit::Done);
    }
    let line = match &answer.continuation {
        Some(continuation) => format!("continues at {}", words::moment(continuation.at, now, &zone)),
        None if was_scheduled => "scheduled continuation cancelled".to_owned(),
        None => {
            context.output.note("nothing was scheduled")?;
            return Ok(Exit::Done);
        }
    };
    context.output.line(&line)?;
    Ok(Exit::Done)
}

/// Whether something is sent automatically: a continuation, or a prompt that waits for one.
fn is_scheduled(conversation: &Conversation) -> bool {
    conversation.continuation.is_some() || conversation.queue.iter().any(|waiting| waiting.held)
}

/// The same refusal, naming this program's options where they are what helps.
fn in_own_words(error: ClientError) -> Problem {
    let is_conflict = matches!(&error, ClientError::Call(error) if BridgeError::from(error.clone()).kind == ErrorKind::Conflict);
    let problem = Problem::from(error);
    match is_conflict {
        true => problem.hint("--at TIME with a TEXT sends that; sessionctl send sends it at once"),
        false => problem,
    }
}

/// A moment as a person writes it: with its zone, without one by the clock of this machine, or the next time that this
/// clock shows an hour.
fn time(text: &str, now: Timestamp, zone: &TimeZone) -> Outcome<Timestamp> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    let local = |at: civil::DateTime| at.to_zoned(zone.clone()).ok().map(|at| at.timestamp());
    // A time of day may be read from a whole date too, and would lose that.
    let read = if let Ok(at) = text.parse::<civil::DateTime>() {
        local(at)
    } else if let Ok(hour) = text.parse::<civil::Time>() {
        let today = now.to_zoned(zone.clone()).date();
        let at = local(today.to_datetime(hour));
        if at.is_some_and(|at| at > now) {
            at
        } else {
            let tomorrow = today.checked_add(1.day()).ok();
            tomorrow.and_then(|day| local(day.to_datetime(hour)))
        }
    } else {
        None
    };
    read.ok_or_else(|| {
        Problem::new(Exit::Usage, format!("\"{}\" is no time", one_line(text)))
            .hint("give an hour (18:30), a local time (2026-01-31T18:30), or one with its zone (2026-01-31T18:30:00Z)")
    })
}

/// What was done for one conversation.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Recovered {
    conversation_id: ConversationId,
    did: Did,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

/// What can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Did {
    /// It goes on, at once or at the reset of its limit.
    Continues,
    /// Nothing was cut short; its session is open again.
    Opened,
    /// Its question has to be answered by a person.
    Asks,
    /// There was nothing to do.
    Nothing,
    /// It could not be brought back.
    Failed,
}

/// Goes on with everything that a limit, a missing sign-in, a crash or a stop cut short, and tells what it did.
pub(in crate::cli) async fn recover(context: &mut Context<'_>, options: Recover) -> Outcome<Exit> {
    let daemon = context.connect().await?;
    let conversations = match &options.conversation {
        Some(word) => {
            let conversation = conversation_ref(&daemon, word).await?;
            vec![
                daemon
                    .call(method::GetConversation {
                        conversation_id: conversation,
                    })
                    .await?
                    .conversation,
            ]
        }
        None => all_cut_short(&daemon).await?,
    };
    if conversations.is_empty() && !context.output.json {
        context.output.note("no conversation was cut short")?;
    }
    let mut exit = Exit::Done;
    for conversation in conversations {
        let recovered = recover_one(&daemon, &conversation).await?;
        if recovered.did == Did::Failed {
            exit = Exit::Failed;
        }
        tell(context, &conversation, &recovered)?;
    }
    Ok(exit)
}

async fn all_cut_short(daemon: &Daemon) -> Outcome<Vec<Conversation>> {
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    for (state, cut_short) in CUT_SHORT {
        let mut cursor = None;
        loop {
            let page = daemon
                .call(method::ListConversations {
                    state,
                    cut_short,
                    cursor,
                    limit: Some(PAGE),
                    ..Default::default()
                })
                .await?;
            let new = page.conversations.into_iter();
            found.extend(new.filter(|conversation| seen.insert(conversation.id)));
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
    }
    Ok(found)
}

async fn recover_one(daemon: &Daemon, conversation: &Conversation) -> Outcome<Recovered> {
    let did = |did, at, detail| Recovered {
        conversation_id: conversation.id,
        did,
        at,
        detail,
    };
    if let Some(interrupt) = conversation.interrupts.first() {
        let how = question::command(&words::short_id(conversation.id), interrupt);
        return Ok(did(Did::Asks, None, Some(how)));
    }
    if matches!(
        conversation.state,
        ConversationState::Prompting | ConversationState::Awaiting | ConversationState::Cancelling
    ) {
        return Ok(did(Did::Nothing, None, Some("a turn is running".to_owned())));
    }
    let now = Timestamp::now();
    let waits = conversation
        .continuation
        .as_ref()
        .map(|continuation| continuation.at);
    let waits = waits.filter(|at| *at > now);
    let has_held = conversation.queue.iter().any(|waiting| waiting.held);
    if let Some(at) = waits.filter(|_| !has_held) {
        return Ok(did(Did::Continues, Some(at), None));
    }
    let reset = conversation.limit.as_ref().and_then(|limit| limit.resets_at);
    let at = match (waits, reset.filter(|at| *at > now)) {
        // What is held goes out behind it.
        (Some(at), _) => ContinueAt::Time(at),
        (None, Some(_)) => ContinueAt::Reset,
        (None, None) => ContinueAt::Now,
    };
    let id = ConversationRef::from(conversation.id);
    let answered = daemon
        .call(method::Continue {
            conversation_id: id.clone(),
            at: Some(at),
            ..Default::default()
        })
        .await;
    let problem = match answered {
        Ok(answer) => {
            let at = answer.continuation.map(|continuation| continuation.at);
            return Ok(did(Did::Continues, at, None));
        }
        Err(error) => Problem::from(error),
    };
    match problem.exit {
        // Nothing of it was cut short.
        Exit::Busy if conversation.state == ConversationState::Idle => Ok(did(Did::Nothing, None, None)),
        Exit::Busy => match daemon
            .call(method::Resume {
                conversation_id: id,
                ..Default::default()
            })
            .await
        {
            Ok(answer) => Ok(did(Did::Opened, None, Some(words::resumed(&answer.resumed)))),
            Err(error) => {
                let problem = Problem::from(error);
                match problem.exit {
                    Exit::NoDaemon => Err(problem),
                    _ => Ok(did(Did::Failed, None, problem.message)),
                }
            }
        },
        Exit::NoDaemon => Err(problem),
        _ => Ok(did(Did::Failed, None, problem.message)),
    }
}

fn tell(context: &mut Context<'_>, conversation: &Conversation, recovered: &Recovered) -> Outcome {
    if context.output.json {
        let object = RawJson::from_value(recovered)
            .map_err(|error| Problem::new(Exit::Failed, format!("it cannot be told: {error}")))?;
        return context.output.raw(&object);
    }
    let (now, zone) = (Timestamp::now(), TimeZone::system());
    let detail = recovered.detail.as_deref().map(one_line).unwrap_or_default();
    let what = match (recovered.did, recovered.at.filter(|at| *at > now)) {
        (Did::Continues, Some(at)) => format!("continues at {}", words::moment(at, now, &zone)),
        (Did::Continues, None) => "goes on now".to_owned(),
        (Did::Opened, _) => detail,
        (Did::Asks, _) => format!("its question is open; {detail}"),
        (Did::Nothing, _) if detail.is_empty() => "nothing was cut short".to_owned(),
        (Did::Nothing, _) => detail,
        (Did::Failed, _) => format!("could not be brought back: {detail}"),
    };
    let look = context.output.look;
    let title = look.paint(DIM, &one_line(&conversation.title));
    let line = format!("{}  {what}  {title}", words::short_id(conversation.id));
    context.output.line(line.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_as_a_person_writes_it() {
        let now: Timestamp = "2026-11-20T22:00:00Z".parse().unwrap();
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        for (text, at) in [
            ("2026-11-21T06:30:00Z", "2026-11-21T06:30:00Z"),
            ("2026-11-21T06:30:00+01:00", "2026-11-21T05:30:00Z"),
            ("2026-11-21T06:30", "2026-11-21T04:30:00Z"),
            ("2026-11-21 06:30:15", "2026-11-21T04:30:15Z"),
            ("2026-12-25T18:30", "2026-12-25T16:30:00Z"),
            ("2026-12-25 18:30", "2026-12-25T16:30:00Z"),
            // It is midnight there.
            ("00:30", "2026-11-20T22:30:00Z"),
            ("23:30", "2026-11-21T21:30:00Z"),
            ("00:00", "2026-11-21T22:00:00Z"),
        ] {
            assert_eq!(time(text, now, &zone).unwrap().to_string(), at, "{text}");
        }
        for text in ["", "soon", "25:00", "2026-02-30T10:00"] {
            assert!(time(text, now, &zone).is_err(), "{text}");
        }
    }
}
