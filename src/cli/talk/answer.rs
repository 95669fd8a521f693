//! `answer`, `attach`, `cancel` and `resume`: commands about the running turn or the session of a conversation.

use std::rc::Rc;

use bridge_protocol::InterruptId;
use bridge_protocol::conversation::Conversation;
use bridge_protocol::link::Fidelity;
use bridge_protocol::method;
use bridge_protocol::raw::RawJson;
use bridge_protocol::turn::Interrupt;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::answer_reader::AnswerReader;
use super::question::{self, Question};
use super::screen::Screen;
use super::send::report_turn;
use super::turn::{ConversationFollower, FollowTarget, OnQuestion, is_running};
use crate::cli::advice::Advice;
use crate::cli::commands::Context;
use crate::cli::complete;
use crate::cli::connect::Daemon;
use crate::cli::event_stream::snapshot;
use crate::cli::humanize;
use crate::cli::output::{ATTENTION, DIM, one_line};
use crate::cli::problem::{CommandResult, Exit, Problem};
use crate::cli::select::ConversationArgs;

/// `answer`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without an answer, shows the question on a terminal, asks, and follows the turn to its end.
With one, shows on a terminal what is answered, and asks first if not all of it fits there.

Examples:
  sessionctl answer .
  sessionctl answer 90e2e180 allow
  sessionctl answer 90e2e180 deny --question ID
  sessionctl answer 90e2e180 Blue
  sessionctl answer 90e2e180 colour=Blue rooms=1,3
  sessionctl answer 90e2e180 '{\"action\":\"decline\"}'")]
pub(in crate::cli) struct Answer {
    #[command(flatten)]
    target: ConversationArgs,
    /// allow, always (if offered), deny, cancel, an option's name, id or key, FIELD=VALUE for each field of a form, or an
    /// ACP outcome as JSON
    #[arg(value_name = "ANSWER")]
    answer: Vec<String>,
    /// Id of the question (default: the only open one)
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new(), add = complete::question())]
    question: Option<String>,
}

/// `cancel`.
#[derive(Debug, Args)]
pub(in crate::cli) struct Cancel {
    #[command(flatten)]
    target: ConversationArgs,
    /// Cancel queued prompts too
    #[arg(long)]
    queued: bool,
}

/// The text at the end of the help of `attach`.
pub(in crate::cli) const ATTACH_HELP: &str = "\
Shows the running turn (or the last one) and all later turns, and asks the agent's questions. If the daemon stops, waits up to a \
minute for it to start again. Ctrl-C leaves; the turn continues.

Examples:
  sessionctl attach .
  sessionctl attach 90e2e180 --json";

/// Answers a question of the agent.
pub(in crate::cli) async fn answer(context: &mut Context<'_>, options: Answer) -> CommandResult {
    let (daemon, conversation) = context.connect_and_select(options.target.name()).await?;
    let id = humanize::short_id(conversation.id);
    let named = options.question.as_deref();
    let advice = context.output.advice(conversation.id);
    let interrupt = open_question(&conversation, named, &advice)?;
    let answer = options.answer.join(" ");
    if options.answer.is_empty() {
        let interrupt = interrupt.ok_or_else(|| not_open_problem(&id, named.unwrap_or_default()))?;
        return ask(context, daemon, &conversation, interrupt).await;
    }
    let outcome = match &interrupt {
        Some(interrupt) => {
            let outcome = question::parse_answer(interrupt, &options.answer).map_err(|why| {
                Problem::usage(format!("invalid answer: {why}")).hint(question::command(&advice, interrupt))
            })?;
            if !confirm_seen(context, &daemon, &conversation, interrupt, &outcome).await? {
                return ask(context, daemon, &conversation, interrupt.clone()).await;
            }
            outcome
        }
        // The question is not open; the daemon reports what happened to it.
        None => question::selected_outcome(&answer),
    };
    let interrupt_id = match (&interrupt, named) {
        (Some(interrupt), _) => interrupt.id.clone(),
        (None, named) => InterruptId::from(named.unwrap_or_default()),
    };
    let call = question::respond_call(conversation.id, interrupt_id, outcome);
    let answered = context
        .call_and_print(&daemon, call)
        .await
        .map_err(|problem| match problem.exit {
            Exit::NotFound => not_open_problem(&id, named.unwrap_or_default()),
            _ => problem,
        })?;
    let subject = interrupt.as_ref().map(question::subject).unwrap_or_default();
    let is_orphaned = interrupt.is_some_and(|interrupt| interrupt.orphaned);
    let see = format!("Follow the turn with: sessionctl attach {id}");
    let see = context.output.with_daemon_options(&see);
    let follows = match (is_orphaned, &answered.turn_id) {
        (true, None) => "The agent that asked has ended, and so has its turn.".to_owned(),
        (_, Some(_)) => format!("The agent that asked has ended; a new turn passes the answer on. {see}"),
        (false, None) => see,
    };
    context
        .output
        .note_unedited(&format!("Answered {}: {subject}\n{follows}", one_line(&answer)))
}

/// Asks the user the question, and follows the turn to its end.
async fn ask(
    context: &mut Context<'_>,
    daemon: Daemon,
    conversation: &Conversation,
    interrupt: Interrupt,
) -> CommandResult {
    let mut follower = ConversationFollower::new(context, Rc::new(daemon), conversation, None);
    if !follower.is_attended() {
        let (_, running) = snapshot(&follower.daemon(), conversation.id)
            .await
            .unwrap_or_default();
        let updates = running.map(|running| running.updates).unwrap_or_default();
        let lines = question::lines(&interrupt, &conversation.cwd, &updates);
        follower.screen.question(&lines)?;
        return Err(follower.unanswered_problem(&interrupt));
    }
    follower.priority_question = Some(interrupt.id);
    let ended = follower.follow(FollowTarget::Running).await?;
    report_turn(&mut follower, ended.as_ref())
}

/// Shows a user at a terminal the question that they are answering. Returns false if they would allow a request that is too
/// long to be shown here; they are then asked interactively, so that they read it first.
async fn confirm_seen(
    context: &mut Context<'_>,
    daemon: &Daemon,
    conversation: &Conversation,
    interrupt: &Interrupt,
    outcome: &RawJson,
) -> CommandResult<bool> {
    if context.output.json || AnswerReader::open().is_none() {
        return Ok(true);
    }
    let (_, running) = snapshot(daemon, conversation.id).await?;
    let updates = running.map(|running| running.updates).unwrap_or_default();
    let look = context.output.note_look;
    let question = Question::from_updates(interrupt, &conversation.cwd, &updates, look);
    if question.is_unread() && question.allows(outcome) {
        return Ok(false);
    }
    let quiet = std::mem::take(&mut context.output.quiet);
    let lines = [question.excerpt(look, ""), question.lasting_answers()].concat();
    let shown = Screen::new(context.output).question(&lines);
    context.output.quiet = quiet;
    shown.map(|()| true)
}

/// The question to answer: the named one, or the only open one. Returns `None` if the named one is not open.
fn open_question(
    conversation: &Conversation,
    named: Option<&str>,
    advice: &Advice,
) -> CommandResult<Option<Interrupt>> {
    let id = &advice.conversation;
    let open = &conversation.interrupts;
    match (named, open.as_slice()) {
        (Some(named), open) => Ok(open
            .iter()
            .find(|interrupt| interrupt.id.as_str() == named)
            .cloned()),
        (None, [one]) => Ok(Some(one.clone())),
        (None, []) => {
            let problem = Problem::new(Exit::NotFound, format!("no question is open in {id}"));
            Err(problem.hint(format!("sessionctl show {id} shows what it is doing")))
        }
        (None, [first, ..]) => {
            let each = |interrupt: &Interrupt| {
                format!(
                    "{} ({})",
                    one_line(interrupt.id.as_str()),
                    question::subject(interrupt)
                )
            };
            let questions: Vec<String> = open.iter().map(each).collect();
            let message = format!("several questions are open: {}", questions.join(", "));
            Err(Problem::usage(message).hint(question::command(advice, first)))
        }
    }
}

fn not_open_problem(id: &str, question: &str) -> Problem {
    let message = format!("question {} is not open in {id}", one_line(question));
    Problem::new(Exit::NotFound, message).hint(format!("sessionctl show {id} lists the open questions"))
}

/// Follows a conversation that any client uses, also across restarts of the daemon, until Ctrl-C or its end. Does not start a
/// daemon that the user stopped.
pub(in crate::cli) async fn attach(context: &mut Context<'_>, target: ConversationArgs) -> CommandResult {
    let (daemon, conversation) = context.connect_and_select(target.name()).await?;
    let mut follower = ConversationFollower::new(context, Rc::new(daemon), &conversation, None);
    follower.on_question = OnQuestion::Wait;
    follower.follow(FollowTarget::Watch).await.map(drop)
}

/// Stops the running turn.
pub(in crate::cli) async fn cancel(context: &mut Context<'_>, options: Cancel) -> CommandResult {
    let (daemon, conversation) = context.connect_and_select(options.target.name()).await?;
    let call = method::Cancel {
        queued: options.queued,
        ..method::Cancel::of(conversation.id)
    };
    let answer = context.call_and_print(&daemon, call).await?;
    let id = humanize::short_id(conversation.id);
    if !answer.cancelled {
        return context.output.note(&format!("Nothing to cancel in {id}."));
    }
    let dropped = if options.queued {
        conversation.queue.len()
    } else {
        0
    };
    let prompts = humanize::count(dropped as u64, "queued prompt", "queued prompts");
    let done = match (dropped, is_running(conversation.state)) {
        (0, _) => format!("Cancelled the turn of {id}."),
        (_, false) => return context.output.note(&format!("Cancelled {prompts} of {id}.")),
        (_, true) => format!("Cancelled the turn of {id} and {prompts}."),
    };
    context
        .output
        .note(&format!("{done} The history keeps what the agent has said."))
}

/// Opens the session, and prints how it was opened.
pub(in crate::cli) async fn resume(context: &mut Context<'_>, target: ConversationArgs) -> CommandResult {
    let (daemon, conversation) = context.connect_and_select(target.name()).await?;
    let answer = context
        .call_and_print(&daemon, method::Resume::of(conversation.id))
        .await?;
    let look = context.output.look;
    for line in humanize::failed_attempts(&answer.resumed.attempts) {
        context.output.line(&look.paint(DIM, &line))?;
    }
    if conversation.head.is_none() {
        let (id, session) = (humanize::short_id(conversation.id), answer.resumed.upstream_id);
        let line = format!(
            "opened session {}; it has no turns yet",
            humanize::short(session.as_str())
        );
        context.output.line(&line)?;
        let next = format!("send the first prompt: sessionctl send {id} 'Hello'");
        return context.output.note(&next);
    }
    let advice = context.output.advice(conversation.id);
    let line = context
        .output
        .with_daemon_options(&humanize::resume_result(&answer.resumed, &advice));
    context.output.line(&match answer.resumed.fidelity {
        Fidelity::Full => line,
        _ => look.paint(ATTENTION, &line),
    })
}
