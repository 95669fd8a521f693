//! `continue`: continues a turn that a limit, a missing sign-in, a crash or a stop cut short, now or at a time.

use std::collections::HashSet;
use std::rc::Rc;

use bridge_protocol::ErrorKind;
use bridge_protocol::conversation::{ContinueAt, Conversation, ConversationState};
use bridge_protocol::method;
use bridge_protocol::raw::{PromptContent, RawJson};
use clap::Args;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ToSpan, civil};
use serde::Serialize;
use serde_json::json;

use super::question;
use super::send::report_turn;
use super::turn::{ConversationFollower, FollowTarget, continue_now, is_running};
use crate::cli::advice::Advice;
use crate::cli::commands::{Context, collect_pages};
use crate::cli::connect::Daemon;
use crate::cli::humanize::{self, Clock};
use crate::cli::output::{DIM, Output, one_line};
use crate::cli::problem::{CommandResult, Exit, Problem};
use crate::cli::select::{ConversationArgs, HERE};
use crate::paths::{shell_quoted, shell_word};

/// Filters of `--all`: the states in which a conversation waits, and a turn that was cut short in any state.
const CUT_SHORT_FILTERS: [(Option<ConversationState>, Option<bool>); 4] = [
    (Some(ConversationState::Limited), None),
    (Some(ConversationState::Interrupted), None),
    (Some(ConversationState::Failed), None),
    (None, Some(true)),
];

/// `continue`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without a time, continues now and follows the turn. If the agent has recorded the prompt of that turn, it is asked to continue, or \
the text of --text is sent. Otherwise the prompt is sent again, followed by that text. Queued prompts are sent after it.

A scheduled continuation survives restarts and is sent exactly once. If you send a prompt earlier and the agent answers it, the \
continuation is cancelled.

With --all, each conversation whose usage limit still applies continues at its reset. Exits with 1 if one could not be continued.

Examples:
  sessionctl continue .
  sessionctl continue . --at-reset
  sessionctl continue . --at 6:30 --text 'Now run the long tests'
  sessionctl continue . --at +2h
  sessionctl continue . --cancel
  sessionctl continue --all")]
#[command(group = clap::ArgGroup::new("when").args(["at_reset", "at", "cancel", "all"]))]
pub(in crate::cli) struct Continue {
    #[command(flatten)]
    target: ConversationArgs,
    /// Continue every turn that was cut short, except for turns that you cancelled
    #[arg(long, conflicts_with = "conversation")]
    all: bool,
    /// Continue when the usage limit resets
    #[arg(long)]
    at_reset: bool,
    /// Continue at this time: 18:30, +1h, or YYYY-MM-DDTHH:MM (local)
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// Cancel the scheduled continuation
    #[arg(long)]
    cancel: bool,
    /// Prompt to send (default: the scheduled one, or a request to continue); required if no turn was cut short
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["cancel", "all"])]
    text: Option<String>,
}

/// Continues a conversation now or later, or all whose last turn was cut short.
pub(in crate::cli) async fn continue_(context: &mut Context<'_>, options: Continue) -> CommandResult {
    if options.all {
        return continue_all(context).await;
    }
    let clock = Clock::here();
    let advice = Advice::new(
        shell_word(options.target.name().unwrap_or(HERE)),
        context.output.in_chat,
    );
    if options.text.as_ref().is_some_and(|text| text.trim().is_empty()) {
        let at = options
            .at
            .as_deref()
            .map(|at| format!("--at {} ", shell_word(at)));
        let at = at.or(options.at_reset.then(|| "--at-reset ".to_owned()));
        let again = advice.continue_turn(&format!("{}--text 'Continue'", at.unwrap_or_default()));
        return Err(
            Problem::usage("the text is empty").hint(format!("give some text, or omit --text: {again}"))
        );
    }
    let at = match &options.at {
        Some(text) => ContinueAt::Time(parse_future_time(text, clock.now, &clock.zone, &advice)?),
        None if options.at_reset => ContinueAt::Reset,
        None => ContinueAt::Now,
    };
    let (daemon, conversation) = context.connect_and_select(options.target.name()).await?;
    let mut call = continue_now(conversation.id);
    call.at = (!options.cancel).then_some(at);
    call.cancel = options.cancel;
    call.text = options.text.as_deref().map(PromptContent::text);
    // With JSON, the caller polls for the outcome.
    if at == ContinueAt::Now && !options.cancel && !context.output.json {
        let held = match is_running(conversation.state) {
            true => 0,
            false => conversation.queue.iter().filter(|queued| queued.held).count(),
        };
        if held > 0 {
            let prompts = humanize::count(held as u64, "queued prompt", "queued prompts");
            context
                .output
                .note_dim(&format!("continues the turn, then sends {prompts}"))?;
        }
        let mut follower = ConversationFollower::new(context, Rc::new(daemon), &conversation, None);
        let ended = follower.follow(FollowTarget::Continue(call)).await;
        let mut ended = ended.map_err(|problem| {
            with_continue_hint(
                follower.screen.output,
                problem,
                &conversation,
                None,
                options.text.as_deref(),
            )
        })?;
        for _ in 0..held {
            report_turn(&mut follower, ended.as_ref())?;
            let Some(last) = follower.last_cursor.clone() else {
                break;
            };
            match follower.follow(FollowTarget::Since(last)).await? {
                // The next prompt could not be sent, or another client cancelled the rest or deleted the conversation.
                None => {
                    let get = method::GetConversation::of(conversation.id);
                    let now = follower.daemon().call(get).await.ok();
                    let problem = now.and_then(|now| follower.unsent_problem(&now.conversation));
                    return problem.map_or(Ok(()), Err);
                }
                next => ended = next,
            }
        }
        return report_turn(&mut follower, ended.as_ref());
    }
    // The answer to a cancellation does not report whether a continuation was scheduled.
    let was_scheduled =
        conversation.continuation.is_some() || conversation.queue.iter().any(|queued| queued.held);
    let answer = context.call_and_print(&daemon, call).await;
    let answer = answer.map_err(|problem| {
        let at = options.at.as_deref().map(shell_word);
        let at = at.or(options.at_reset.then(|| "+1h".to_owned()));
        with_continue_hint(
            context.output,
            problem,
            &conversation,
            at.as_deref(),
            options.text.as_deref(),
        )
    })?;
    let line = match &answer.continuation {
        Some(continuation) => {
            let at = clock.time_and_distance(continuation.at);
            let cancel = context.output.advice(conversation.id).continue_turn("--cancel");
            let cancel = context.output.with_daemon_options(&cancel);
            format!("Continues at {at}. Cancel with: {cancel}")
        }
        None if was_scheduled => "Cancelled the scheduled continuation.".to_owned(),
        None => {
            context.output.note("Nothing was scheduled.")?;
            return Ok(());
        }
    };
    context.output.line(&line)
}

/// Adds the command that helps to a refusal. `at` is the requested time, and `text` the requested prompt.
pub(super) fn with_continue_hint(
    output: &Output,
    problem: Problem,
    conversation: &Conversation,
    at: Option<&str>,
    text: Option<&str>,
) -> Problem {
    let advice = output.advice(conversation.id);
    let question = conversation.interrupts.first();
    let text = text.filter(|text| !text.contains('\n')).unwrap_or("Continue");
    match (problem.kind(), question) {
        (Some(ErrorKind::Conflict | ErrorKind::Busy), Some(question)) => {
            problem.hint(question::command(&advice, question))
        }
        (Some(ErrorKind::Conflict), None) if conversation.head.is_none() => problem.without_turns(&advice),
        (Some(ErrorKind::Conflict), None) => problem.hint(match at {
            Some(at) => {
                let options = format!("--at {at} --text {}", shell_quoted(text));
                format!("schedule a prompt: {}", advice.continue_turn(&options))
            }
            None => format!("send a prompt: {}", advice.send(text)),
        }),
        (Some(ErrorKind::Busy), None) => problem.hint(format!(
            "follow the running turn with: sessionctl attach {}",
            advice.conversation
        )),
        _ => problem,
    }
}

/// Parses a time that the user typed. A past time is an error, because it would send the prompt immediately.
fn parse_future_time(
    text: &str,
    now: Timestamp,
    zone: &TimeZone,
    advice: &Advice,
) -> CommandResult<Timestamp> {
    let shown = one_line(text);
    match parse_time(text, now, zone) {
        Some(at) if at > now => Ok(at),
        Some(_) => Err(
            Problem::usage(format!("the time is in the past: {shown}")).hint(format!(
                "give a later time, for example in an hour: {}; omit --at to continue now",
                advice.continue_turn("--at +1h")
            )),
        ),
        None => Err(Problem::usage(format!("invalid time: \"{shown}\"")).hint(format!(
            "give a time of day or a time from now: {}, or --at +1h; a date is written as YYYY-MM-DDTHH:MM",
            advice.continue_turn("--at 18:30")
        ))),
    }
}

/// Parses a time that the user typed: with a zone, without one (local time), a time of day (its next occurrence), or a duration
/// from now.
fn parse_time(text: &str, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    if let Some(wait) = text.strip_prefix('+') {
        let wait: Span = wait.parse().ok()?;
        return now
            .to_zoned(zone.clone())
            .checked_add(wait)
            .ok()
            .map(|at| at.timestamp());
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time);
    }
    let local = |at: civil::DateTime| at.to_zoned(zone.clone()).ok().map(|at| at.timestamp());
    // Dates come first: a time of day can be parsed from a full date too, which would lose the date.
    if let Ok(at) = text.parse::<civil::DateTime>() {
        return local(at);
    }
    // An hour before ten may be one digit.
    let padded = match text.find(':') {
        Some(1) => format!("0{text}"),
        _ => text.to_owned(),
    };
    let hour: civil::Time = padded.parse().ok()?;
    let today = now.to_zoned(zone.clone()).date();
    let at = local(today.to_datetime(hour));
    at.filter(|at| *at > now).or_else(|| {
        let tomorrow = today.checked_add(1.day()).ok();
        tomorrow.and_then(|day| local(day.to_datetime(hour)))
    })
}

/// The outcome of `continue --all` for one conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum ContinueOutcome {
    /// It continues, now or at the reset of its limit.
    Continues,
    /// Nothing was cut short; its session is open again.
    Opened,
    /// The user has to answer its question.
    Asks,
    /// There was nothing to do.
    Nothing,
    /// It could not be continued.
    Failed,
}

/// Continues all conversations whose last turn was cut short, and prints the outcome of each.
async fn continue_all(context: &mut Context<'_>) -> CommandResult {
    let daemon = context.connect().await?;
    let conversations = find_cut_short(&daemon).await?;
    if conversations.is_empty() {
        context.output.note("No turn was cut short.")?;
    }
    let mut ended = Ok(());
    for conversation in conversations {
        let (did, at, detail) = continue_one(context.output, &daemon, &conversation).await?;
        if did == ContinueOutcome::Failed {
            ended = Err(Problem::silent(Exit::Failed));
        }
        report_outcome(context, &conversation, did, at, detail)?;
    }
    ended
}

async fn find_cut_short(daemon: &Daemon) -> CommandResult<Vec<Conversation>> {
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    for (state, cut_short) in CUT_SHORT_FILTERS {
        let (listed, _) = collect_pages(usize::MAX, async |cursor, limit| {
            let list = method::ListConversations {
                state,
                cut_short,
                cursor,
                limit,
                ..Default::default()
            };
            let page = daemon.call(list).await?;
            Ok((page.conversations, page.next_cursor))
        })
        .await?;
        found.extend(
            listed
                .into_iter()
                .filter(|conversation| seen.insert(conversation.id)),
        );
    }
    Ok(found)
}

/// Continues one conversation. Returns the outcome, when it continues, and additional text to print.
async fn continue_one(
    output: &Output,
    daemon: &Daemon,
    conversation: &Conversation,
) -> CommandResult<(ContinueOutcome, Option<Timestamp>, Option<String>)> {
    if let Some(interrupt) = conversation.interrupts.first() {
        let how = question::command(&output.advice(conversation.id), interrupt);
        let how = output.with_daemon_options(&how);
        return Ok((ContinueOutcome::Asks, None, Some(how)));
    }
    if is_running(conversation.state) {
        return Ok((
            ContinueOutcome::Nothing,
            None,
            Some("a turn is running".to_owned()),
        ));
    }
    let now = Timestamp::now();
    let waits = conversation
        .continuation
        .as_ref()
        .map(|continuation| continuation.at);
    let waits = waits.filter(|at| *at > now);
    let has_held = conversation.queue.iter().any(|waiting| waiting.held);
    if let Some(at) = waits.filter(|_| !has_held) {
        return Ok((ContinueOutcome::Continues, Some(at), None));
    }
    let reset = conversation.limit.as_ref().and_then(|limit| limit.resets_at);
    let mut call = continue_now(conversation.id);
    call.at = Some(match (waits, reset.filter(|at| *at > now)) {
        // Held prompts are sent after the scheduled turn.
        (Some(at), _) => ContinueAt::Time(at),
        (None, Some(_)) => ContinueAt::Reset,
        (None, None) => ContinueAt::Now,
    });
    let problem = match daemon.call(call).await {
        Ok(answer) => {
            let at = answer.continuation.map(|continuation| continuation.at);
            return Ok((ContinueOutcome::Continues, at, None));
        }
        Err(problem) => problem,
    };
    match problem.exit {
        Exit::Busy if conversation.state == ConversationState::Idle => {
            Ok((ContinueOutcome::Nothing, None, None))
        }
        Exit::Busy => match daemon.call(method::Resume::of(conversation.id)).await {
            Ok(answer) => {
                let result = humanize::resume_result(&answer.resumed, &output.advice(conversation.id));
                let result = output.with_daemon_options(&result);
                Ok((ContinueOutcome::Opened, None, Some(result)))
            }
            Err(problem) if problem.exit == Exit::NoDaemon => Err(problem),
            Err(problem) => Ok((ContinueOutcome::Failed, None, problem.message)),
        },
        Exit::NoDaemon => Err(problem),
        _ => Ok((ContinueOutcome::Failed, None, problem.message)),
    }
}

fn report_outcome(
    context: &mut Context<'_>,
    conversation: &Conversation,
    did: ContinueOutcome,
    at: Option<Timestamp>,
    detail: Option<String>,
) -> CommandResult {
    if context.output.json {
        let mut object = json!({"conversationId": conversation.id, "did": did});
        if let Some(at) = at {
            object["at"] = json!(bridge_protocol::time::text(at));
        }
        if let Some(detail) = detail {
            object["detail"] = json!(detail);
        }
        let result = RawJson::from(object);
        return context.output.stream("result", &result);
    }
    let clock = Clock::here();
    let detail = detail.as_deref().map(one_line).unwrap_or_default();
    let queued = match conversation.queue.len() as u64 {
        0 => String::new(),
        queued => format!(
            " and sends {}",
            humanize::count(queued, "queued prompt", "queued prompts")
        ),
    };
    let what = match (did, at.filter(|at| *at > clock.now)) {
        (ContinueOutcome::Continues, Some(at)) => {
            format!("continues at {}{queued}", clock.time_and_distance(at))
        }
        (ContinueOutcome::Continues, None) => format!("continues now{queued}"),
        (ContinueOutcome::Opened, _) => detail,
        (ContinueOutcome::Asks, _) => format!("waits for an answer; {detail}"),
        (ContinueOutcome::Nothing, _) if detail.is_empty() => "was not cut short".to_owned(),
        (ContinueOutcome::Nothing, _) => detail,
        (ContinueOutcome::Failed, _) => format!("could not be continued: {detail}"),
    };
    let look = context.output.look;
    let title = look.paint(DIM, &one_line(&conversation.title));
    let line = format!("{}  {what}  {title}", humanize::short_id(conversation.id));
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
            ("0:30", "2026-11-20T22:30:00Z"),
            ("00:30", "2026-11-20T22:30:00Z"),
            ("+30m", "2026-11-20T22:30:00Z"),
            ("+1h", "2026-11-20T23:00:00Z"),
            ("+1h30m", "2026-11-20T23:30:00Z"),
            ("+1d", "2026-11-21T22:00:00Z"),
            ("23:30", "2026-11-21T21:30:00Z"),
            ("00:00", "2026-11-21T22:00:00Z"),
        ] {
            assert_eq!(parse_time(text, now, &zone).unwrap().to_string(), at, "{text}");
        }
        for text in ["", "soon", "25:00", "2026-02-30T10:00", "+", "+soon"] {
            assert_eq!(parse_time(text, now, &zone), None, "{text}");
        }
        let advice = Advice::new(HERE, false);
        let refused =
            |text: &str| parse_future_time(text, now, &zone, &advice).map_err(|problem| problem.exit);
        assert_eq!(refused("2026-11-20T22:00:00Z"), Err(Exit::Usage));
        assert_eq!(refused("2026-11-21 00:00"), Err(Exit::Usage));
        assert_eq!(refused("+0m"), Err(Exit::Usage));
        assert!(refused("+1m").is_ok());
    }
}
