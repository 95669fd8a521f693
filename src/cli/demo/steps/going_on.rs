//! What goes on by itself or after the daemon: a limit that resets, and a question that outlives who asked it.

use bridge_protocol::TurnId;
use bridge_protocol::client::Call as _;
use bridge_protocol::conversation::OnLimit;
use bridge_protocol::event::Event;
use bridge_protocol::method;
use bridge_protocol::raw::{PromptContent, RawJson};
use bridge_protocol::turn::{Interrupt, StopReason, TurnResult};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{Play, conversation, head, kill_and_restart, whole};
use crate::cli::connect::Daemon;
use crate::cli::demo::stage::Stage;
use crate::cli::follow::Follower;
use crate::cli::output::one_line;
use crate::cli::problem::Outcome;
use crate::cli::words;

pub(super) async fn limit(stage: &mut Stage<'_>, daemon: &Daemon, play: &mut Play) -> Outcome {
    let before = head(daemon, play).await?;
    let mut follower = Follower::start(daemon, play.id.clone()).await?;
    let prompt = "Write the report [[limit 2]]";
    let limited = stage.say_or_wait(daemon, &play.id, prompt, OnLimit::Wait).await?;
    let Some(continuation) = limited.turn.continuation else {
        return stage.check(false, &format!("it goes on by itself: {:?}", limited.turn));
    };
    let when = words::moment(continuation.at, Timestamp::now(), &TimeZone::system());
    stage.check(
        true,
        &format!("the limit is told; it goes on by itself at {when}"),
    )?;
    let turn_id = loop {
        if let Event::Continued { turn_id } = follower.next().await?.envelope.event {
            break turn_id;
        }
    };
    follow(stage, &mut follower, play, &turn_id).await?;
    let after = head(daemon, play).await?;
    stage.check(before == after, "it went on in the same session")?;
    whole(stage, daemon, play).await
}

pub(super) async fn question(stage: &mut Stage<'_>, daemon: &Daemon, play: &mut Play) -> Outcome {
    let prompt = "[[ask May I publish it?]][[say Published]]";
    play.history.cut_short.push(prompt.to_owned());
    stage.tell(&format!("> {prompt}"))?;
    let mut follower = Follower::start(daemon, play.id.clone()).await?;
    let content = PromptContent::text(prompt);
    let running = daemon.call(method::Prompt {
        conversation_id: play.id.clone(),
        prompt: content,
        ..Default::default()
    });
    let asked = tokio::select! {
        ended = running => {
            return stage.check(false, &format!("the turn waits for an answer: {:?}", ended.map(|turn| turn.stop_reason)));
        }
        asked = asked(&mut follower) => asked?,
    };
    stage.check(true, "the agent asks, and waits for a person")?;
    let daemon = kill_and_restart(stage, daemon).await?;
    let open = conversation(&daemon, play).await?.interrupts;
    let is_kept = open.iter().any(|open| open.id == asked.id && open.orphaned);
    stage.check(is_kept, "the question is still open, although its agent is gone")?;

    let mut follower = Follower::start(&daemon, play.id.clone()).await?;
    let outcome = r#"{"outcome":"selected","optionId":"allow_once"}"#;
    let Ok(outcome) = RawJson::from_text(outcome.to_owned()) else {
        return stage.check(false, "the answer is JSON");
    };
    stage.tell("the answer is yes")?;
    let answer = daemon
        .call(method::Respond {
            conversation_id: play.id.clone(),
            interrupt_id: asked.id,
            outcome,
            ..Default::default()
        })
        .await?;
    let Some(turn_id) = answer.turn_id else {
        return stage.check(false, "the answer starts a turn");
    };
    follow(stage, &mut follower, play, &turn_id).await?;
    let open = conversation(&daemon, play).await?.interrupts;
    stage.check(
        open.is_empty(),
        "the next agent was told, and nothing is open any more",
    )?;
    whole(stage, &daemon, play).await
}

/// The next question.
async fn asked(follower: &mut Follower<'_>) -> Outcome<Interrupt> {
    loop {
        if let Event::InterruptRaised { interrupt } = follower.next().await?.envelope.event {
            return Ok(interrupt);
        }
    }
}

/// Follows a turn that the daemon started to its good end, and adds it to what the agent should remember.
async fn follow(
    stage: &mut Stage<'_>,
    follower: &mut Follower<'_>,
    play: &mut Play,
    turn_id: &TurnId,
) -> Outcome {
    let ended: TurnResult = loop {
        match follower.next().await?.envelope.event {
            Event::PromptAccepted { turn_id: of, prompt } if of == *turn_id => {
                let text = prompt.to_text();
                stage.tell(&format!("> {}    (by itself)", one_line(&text)))?;
                play.history.prompts.push(text);
            }
            Event::TurnEnded { turn } if turn.turn_id == *turn_id => break turn,
            _ => {}
        }
    };
    let is_well = ended.stop_reason == StopReason::EndTurn;
    match is_well {
        true => stage.check(true, "the turn ended well, and nobody sent anything"),
        false => stage.check(false, &format!("the turn ends well: {ended:?}")),
    }
}
