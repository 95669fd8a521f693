//! Steering a turn: `cancel`, `resume`, `answer`.

use bridge_protocol::client::Call as _;
use bridge_protocol::link::Fidelity;
use bridge_protocol::method;
use clap::Args;

use super::{Context, conversation_ref};
use crate::cli::exit::Exit;
use crate::cli::output::{ATTENTION, DIM};
use crate::cli::problem::{Outcome, Problem};
use crate::cli::question;
use crate::cli::words;

/// Stop the running turn
#[derive(Debug, Args)]
pub(in crate::cli) struct Cancel {
    /// Conversation id, an id prefix (6 or more characters), or . (newest in this folder)
    #[arg(value_name = "CONV")]
    pub(in crate::cli) conversation: String,
    /// Cancel queued prompts too
    #[arg(long)]
    pub(in crate::cli) queued: bool,
}

/// Answer a question from the agent
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sessionctl answer . INTERRUPT allow_once
  sessionctl answer . INTERRUPT '{\"action\":\"decline\"}'")]
pub(in crate::cli) struct Answer {
    /// Conversation id, an id prefix (6 or more characters), or . (newest in this folder)
    #[arg(value_name = "CONV")]
    pub(in crate::cli) conversation: String,
    /// Id of the question, as printed by sessionctl show
    #[arg(value_name = "INTERRUPT")]
    pub(in crate::cli) interrupt: String,
    /// Id of the option, `cancel`, or an ACP outcome as a JSON object
    #[arg(value_name = "OPTION")]
    pub(in crate::cli) option: String,
}

/// Stops the running turn.
pub(in crate::cli) async fn cancel(context: &mut Context<'_>, options: Cancel) -> Outcome<Exit> {
    let daemon = context.connect().await?;
    let conversation = conversation_ref(&daemon, &options.conversation).await?;
    let answer = daemon
        .call(method::Cancel {
            conversation_id: conversation,
            queued: options.queued,
            ..Default::default()
        })
        .await?;
    if context.output.json {
        context.answer(&daemon, "conversation/cancel")?;
    } else if !answer.cancelled {
        context.output.note("there was nothing to cancel")?;
    }
    Ok(Exit::Done)
}

/// Opens the session and tells how.
pub(in crate::cli) async fn resume(context: &mut Context<'_>, word: &str) -> Outcome<Exit> {
    let daemon = context.connect().await?;
    let conversation = conversation_ref(&daemon, word).await?;
    let answer = daemon
        .call(method::Resume {
            conversation_id: conversation,
            ..Default::default()
        })
        .await?;
    if context.output.json {
        context.answer(&daemon, "conversation/resume")?;
        return Ok(Exit::Done);
    }
    let look = context.output.look;
    for line in words::tried(&answer.resumed.attempts) {
        context.output.line(&look.paint(DIM, &line))?;
    }
    let line = words::resumed(&answer.resumed);
    let style = if answer.resumed.fidelity == Fidelity::Full {
        None
    } else {
        Some(ATTENTION)
    };
    let line = style.map_or(line.clone(), |style| look.paint(style, &line));
    context.output.line(&line)?;
    Ok(Exit::Done)
}

/// Answers a question of the agent.
pub(in crate::cli) async fn answer(context: &mut Context<'_>, options: Answer) -> Outcome<Exit> {
    let daemon = context.connect().await?;
    let conversation = conversation_ref(&daemon, &options.conversation).await?;
    let answer = daemon
        .call(method::Respond {
            conversation_id: conversation,
            interrupt_id: options.interrupt.into(),
            outcome: question::outcome(&options.option),
            by: Some(question::ANSWERER.to_owned()),
            ..Default::default()
        })
        .await
        .map_err(|error| match Problem::from(error) {
            problem if matches!(problem.exit, Exit::NotFound | Exit::Usage) => problem.hint(format!(
                "sessionctl show {} tells which questions are open, and how they may be answered",
                options.conversation
            )),
            problem => problem,
        })?;
    if context.output.json {
        context.answer(&daemon, "conversation/respond")?;
    } else if let Some(turn) = answer.turn_id {
        context.output.note(&format!(
            "the agent that asked is gone; turn {turn} tells its successor"
        ))?;
    }
    Ok(Exit::Done)
}
