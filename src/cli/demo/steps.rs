//! The play: a conversation, everything that can happen to the session under it, and the way on each time.
//!
//! It owns the order of the steps and what must hold after each. Pure of how one talks to the daemon: that is the
//! stage's.

use bridge_protocol::ConversationRef;
use bridge_protocol::client::Call as _;
use bridge_protocol::conversation::{Conversation, ConversationState};
use bridge_protocol::event::Event;
use bridge_protocol::link::{Fidelity, Link, Resumed, Via};
use bridge_protocol::method;
use bridge_protocol::raw::PromptContent;
use bridge_protocol::turn::{FailureKind, StopReason};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use rustix::process::{Pid, Signal, kill_process};

use super::stage::{RECALL, Recalled, Said, Stage};
use crate::cli::commands::related;
use crate::cli::connect::Daemon;
use crate::cli::exit::Exit;
use crate::cli::follow::Follower;
use crate::cli::problem::{Outcome, Problem};
use crate::cli::start;
use crate::cli::tree::draw;
use crate::cli::words;

mod going_on;
#[cfg(test)]
mod tests;

/// What the agent should remember.
#[derive(Clone, Debug, Default)]
struct History {
    /// The prompts of the turns that ended well, in order, the questions for the history among them.
    prompts: Vec<String>,
    /// Prompts of turns that were cut short: the agent may remember them or not.
    cut_short: Vec<String>,
}

impl History {
    /// Says what is wrong with what the agent remembers; nothing when it is the whole history, once and in order.
    fn fault(&self, recalled: &[Recalled]) -> Option<String> {
        let kept = self.kept(recalled);
        if kept == self.prompts {
            return None;
        }
        Some(format!(
            "the agent remembers {kept:?} instead of {:?}",
            self.prompts
        ))
    }

    /// What is said of the turns that were cut short and are remembered all the same.
    fn beside(&self, recalled: &[Recalled]) -> String {
        match recalled.len() - self.kept(recalled).len() {
            0 => String::new(),
            1 => ", and the one that was cut short".to_owned(),
            more => format!(", and {more} that were cut short"),
        }
    }

    /// What is remembered of the turns that ended well.
    fn kept(&self, recalled: &[Recalled]) -> Vec<String> {
        recalled
            .iter()
            .map(|turn| turn.user.clone())
            .filter(|user| !self.cut_short.contains(user))
            .collect()
    }
}

/// The play's one conversation.
struct Play {
    id: ConversationRef,
    history: History,
}

/// Plays all steps. A step that cannot be played to its end counts as failed, and the next one is tried.
///
/// # Errors
/// When there is no daemon to play with, or the output cannot be written.
pub(super) async fn play(stage: &mut Stage<'_>) -> Outcome {
    stage.line("The main job: one conversation that outlives the sessions under it.")?;
    stage.line("")?;
    stage.line("A small built-in agent plays the coding agent. Lines with > are prompts to it, lines with < its answers;")?;
    stage.line("[[words in brackets]] make it misbehave. The prompt [[recall]] asks it which turns it has before it: that")?;
    stage.line("is the proof in each step, and a turn itself, so that it is counted the next time.")?;
    let daemon = stage.connect().await?;
    let mut play = begin(stage, &daemon).await?;

    macro_rules! step {
        ($title:literal, $step:expr) => {{
            stage.step($title)?;
            if let Err(problem) = $step.await {
                match problem.message {
                    Some(message) => stage.check(false, &message)?,
                    None => return Err(problem),
                }
            }
        }};
    }
    step!(
        "A usage limit, after which it goes on by itself",
        going_on::limit(stage, &daemon, &mut play)
    );
    step!(
        "A usage limit, after which the agent refuses the session",
        limit_and_gone(stage, &daemon, &mut play)
    );
    step!(
        "The agent crashes in the middle of a turn",
        crash(stage, &daemon, &mut play)
    );
    step!(
        "The agent refuses the session for no reason at all",
        forgotten(stage, &daemon, &mut play)
    );
    step!(
        "The session's transcript is deleted",
        lost(stage, &daemon, &mut play)
    );
    step!(
        "The daemon is killed in the middle of a turn",
        killed(stage, &daemon, &mut play)
    );
    let daemon = stage.connect().await?;
    step!(
        "A question of the agent, answered after the daemon was killed",
        going_on::question(stage, &daemon, &mut play)
    );
    let daemon = stage.connect().await?;
    step!(
        "Any id that it ever had still leads to it",
        by_old_id(stage, &daemon, &mut play)
    );
    step!(
        "A fork beside it: a second conversation with the same past",
        fork_beside(stage, &daemon, &mut play)
    );
    step!(
        "A fork in place: the conversation goes on in a new session",
        fork_in_place(stage, &daemon, &mut play)
    );

    stage.step("What the conversation looks like now")?;
    let look = stage.output.look;
    let sign = look.sign("●", "*");
    stage
        .tell("Each line is a session of the agent, with the turns that ran on it and how it came to be.")?;
    stage.tell(&format!("{sign} is the one in which a conversation goes on.\n"))?;
    let root = daemon
        .call(method::GetConversation {
            conversation_id: play.id.clone(),
        })
        .await?
        .conversation;
    let (members, _) = related(&daemon, root.id).await?;
    for line in draw(&members, None, stage.output.look) {
        stage.tell(&line)?;
    }
    let Some(drawn) = members.first() else {
        return Ok(());
    };
    let turns = turns_on_the_way(&drawn.links);
    // Where the history was retold in words, its turns are one long one for the agent.
    let retold = drawn.entries.iter().any(|entry| entry.fidelity == Fidelity::Text);
    if retold {
        return Ok(());
    }
    stage.check(
        turns == count_of(&play.history.prompts),
        &format!("the sessions from the first down to {sign} hold {turns} turns: as many as the agent has before it now"),
    )
}

/// The turns of the head and of the sessions whose history it carries.
fn turns_on_the_way(links: &[Link]) -> u64 {
    let mut turns = 0;
    let mut at = links.last();
    // Each comes before the one that carries its history, so that this ends.
    let mut left = links.len();
    while let Some(link) = at.filter(|_| left > 0) {
        left -= 1;
        turns += link.turns;
        at = links
            .iter()
            .find(|other| link.from_upstream_id.as_ref() == Some(&other.upstream_id));
    }
    turns
}

async fn begin(stage: &mut Stage<'_>, daemon: &Daemon) -> Outcome<Play> {
    stage.step("A conversation and two turns")?;
    let cwd = stage.project.to_string_lossy().into_owned();
    let answer = daemon
        .call(method::NewConversation {
            agent: Some("loopback".into()),
            cwd,
            title: "The main job".to_owned(),
            ..Default::default()
        })
        .await?;
    let conversation = answer.conversation;
    stage.tell(&format!("the conversation's id, for good: {}", conversation.id))?;
    let mut play = Play {
        id: conversation.id.into(),
        history: History::default(),
    };
    ends_well(stage, daemon, &mut play, "Remember the word heron").await?;
    ends_well(
        stage,
        daemon,
        &mut play,
        "[[tool read {\"path\":\"a.rs\"}]][[say I have read a.rs]]",
    )
    .await?;
    whole(stage, daemon, &mut play).await?;
    Ok(play)
}

async fn limit_and_gone(stage: &mut Stage<'_>, daemon: &Daemon, play: &mut Play) -> Outcome {
    let before = conversation(daemon, play).await?;
    // The session is forgotten in the same turn that the limit ends: afterwards the agent refuses its id.
    let limited = stage.say(daemon, &play.id, "[[forget]][[limit 1]]").await?;
    wait_for_reset(stage, &limited).await?;
    let said = ends_well(stage, daemon, play, "Go on after the limit").await?;
    copied(stage, daemon, play, &before, &said).await
}

async fn crash(stage: &mut Stage<'_>, daemon: &Daemon, play: &mut Play) -> Outcome {
    let prompt = "Write the second part [[crash]]";
    play.history.cut_short.push(prompt.to_owned());
    let crashed = stage.say(daemon, &play.id, prompt).await?;
    let kind = crashed.turn.failure.as_ref().map(|failure| failure.kind);
    stage.check(
        kind == Some(FailureKind::AgentDied),
        "the turn has ended, and says that the agent died",
    )?;
    let said = ends_well(stage, daemon, play, "Go on after the crash").await?;
    resumed_in_full(stage, said.turn.resumed.as_ref())?;
    whole(stage, daemon, play).await
}

async fn forgotten(stage: &mut Stage<'_>, daemon: &Daemon, play: &mut Play) -> Outcome {
    let before = conversation(daemon, play).await?;
    ends_well(stage, daemon, play, "[[say I am about to forget]][[forget]]").await?;
    let said = ends_well(stage, daemon, play, "Go on all the same").await?;
    copied(stage, daemon, play, &before, &said).await
}

async fn lost(stage: &mut Stage<'_>, daemon: &Daemon, play: &mut Play) -> Outcome {
    ends_well(stage, daemon, play, "[[say I am about to lose it]][[lose]]").await?;
    let said = stage.say(daemon, &play.id, "Go on with what is left").await?;
    ended_well(stage, &said)?;
    let Some(resumed) = said.turn.resumed.clone() else {
        return stage.check(false, "it is told how the session was brought back");
    };
    // A copy of the daemon's own brings back what it holds; how much that is shows in what the agent has.
    let is_lossy = matches!(resumed.fidelity, Fidelity::Partial | Fidelity::Text);
    let honest = match resumed.missing_turns {
        0 => resumed.fidelity == Fidelity::Full,
        _ => is_lossy,
    };
    stage.check(
        honest,
        &format!("what is left is told, not guessed: {}", words::resumed(&resumed)),
    )?;
    let recalled = stage.recall(daemon, &play.id).await?;
    if resumed.fidelity == Fidelity::Text {
        // The history stands in words at the beginning of the turn.
        let retold = recalled.first().is_some_and(|turn| turn.user.contains("heron"));
        stage.check(retold, "the history was told to the new session in words")?;
        play.history = History::default();
        let prompts = recalled.into_iter().map(|turn| turn.user);
        play.history.prompts.extend(prompts.chain([RECALL.to_owned()]));
        return Ok(());
    }
    let mut kept = play.history.kept(&recalled);
    let newest = kept.pop();
    stage.check(
        newest.as_deref() == Some("Go on with what is left"),
        "the new prompt stands once, at the end",
    )?;
    let before = count_of(&play.history.prompts);
    let missing = before.saturating_sub(count_of(&kept));
    stage.check(
        play.history.prompts.starts_with(&kept) && !kept.is_empty() && missing == resumed.missing_turns,
        &format!(
            "of the {} before it, the agent has the first {}, in order{}: {missing} missing, as was told",
            words::count(before, "turn", "turns"),
            kept.len(),
            play.history.beside(&recalled),
        ),
    )?;
    kept.extend(newest);
    kept.push(RECALL.to_owned());
    play.history.prompts = kept;
    Ok(())
}

async fn killed(stage: &mut Stage<'_>, daemon: &Daemon, play: &mut Play) -> Outcome {
    let prompt = "[[say Begun]][[hang]]";
    play.history.cut_short.push(prompt.to_owned());
    stage.tell(&format!("> {prompt}"))?;
    let mut follower = Follower::start(daemon, play.id.clone()).await?;
    let running = daemon.call(method::Prompt {
        conversation_id: play.id.clone(),
        prompt: PromptContent::text(prompt),
        ..Default::default()
    });
    let ended_early = tokio::select! {
        ended = running => Some(ended.map(|turn| turn.stop_reason)),
        begun = begun(&mut follower) => { begun?; None }
    };
    if let Some(ended) = ended_early {
        return stage.check(
            false,
            &format!("the turn is still running when it should be: {ended:?}"),
        );
    }
    let daemon = kill_and_restart(stage, daemon).await?;
    let state = conversation(&daemon, play).await?.state;
    stage.check(
        state == ConversationState::Interrupted,
        &format!(
            "it knows that the turn was cut short: the conversation is {}",
            words::state(state)
        ),
    )?;
    let said = ends_well(stage, &daemon, play, "Go on after the kill").await?;
    resumed_in_full(stage, said.turn.resumed.as_ref())?;
    whole(stage, &daemon, play).await
}

/// Kills the daemon's process and starts another one.
async fn kill_and_restart(stage: &mut Stage<'_>, daemon: &Daemon) -> Outcome<Daemon> {
    let status = daemon.call(method::Status::default()).await?;
    stage.tell(&format!("$ kill -9 {}    (the daemon's process)", status.pid))?;
    kill(status.pid)?;
    daemon.closed().await;
    start::wait_for_end(&stage.reach.paths).await?;

    let daemon = stage.connect().await?;
    let again = daemon.call(method::Status::default()).await?;
    stage.check(again.pid != status.pid, "another daemon was started and answers")?;
    Ok(daemon)
}

async fn by_old_id(stage: &mut Stage<'_>, daemon: &Daemon, play: &mut Play) -> Outcome {
    let lineage = daemon
        .call(method::Lineage {
            conversation_id: play.id.clone(),
            ..Default::default()
        })
        .await?;
    let oldest = lineage.entries.iter().find(|entry| !entry.upstream_id.is_empty());
    let Some(oldest) = oldest else {
        return stage.check(false, "the lineage knows the first session");
    };
    let old_id = ConversationRef::new(oldest.upstream_id.as_str());
    stage.tell(&format!("the id of its very first session was {old_id}"))?;
    let id = conversation(daemon, play).await?.id;
    daemon
        .call(method::Close {
            conversation_id: play.id.clone(),
            ..Default::default()
        })
        .await?;
    let answer = daemon
        .call(method::Resume {
            conversation_id: old_id.clone(),
            ..Default::default()
        })
        .await?;
    stage.check(
        answer.conversation.id == id,
        "resuming by that id opens this conversation",
    )?;
    resumed_in_full(stage, Some(&answer.resumed))?;
    let said = stage.say(daemon, &old_id, "Found by an old id").await?;
    ended_well(stage, &said)?;
    play.history.prompts.push("Found by an old id".to_owned());
    whole(stage, daemon, play).await
}

async fn fork_beside(stage: &mut Stage<'_>, daemon: &Daemon, play: &mut Play) -> Outcome {
    let answer = daemon
        .call(method::Fork {
            conversation_id: play.id.clone(),
            title: Some("Another way".to_owned()),
            ..Default::default()
        })
        .await?;
    let source = conversation(daemon, play).await?;
    let parent = answer
        .conversation
        .parent
        .as_ref()
        .map(|parent| parent.conversation_id);
    stage.check(
        parent == Some(source.id) && answer.conversation.id != source.id,
        "a new conversation that knows its parent",
    )?;
    let mut branch = Play {
        id: answer.conversation.id.into(),
        history: play.history.clone(),
    };
    ends_well(stage, daemon, &mut branch, "Only on the branch").await?;
    whole(stage, daemon, &mut branch).await?;
    stage.tell("and the conversation that it came from, without the branch's turns:")?;
    whole(stage, daemon, play).await
}

async fn fork_in_place(stage: &mut Stage<'_>, daemon: &Daemon, play: &mut Play) -> Outcome {
    let before = conversation(daemon, play).await?;
    let answer = daemon
        .call(method::Fork {
            conversation_id: play.id.clone(),
            in_place: true,
            ..Default::default()
        })
        .await?;
    let after = answer.conversation;
    stage.check(
        after.id == before.id && after.head.is_some() && after.head != before.head,
        "the same conversation with a new head",
    )?;
    ends_well(stage, daemon, play, "On the new head").await?;
    let chain = daemon
        .call(method::Chain {
            conversation_id: play.id.clone(),
        })
        .await?;
    let kept = chain
        .links
        .iter()
        .any(|link| Some(&link.upstream_id) == before.head.as_ref());
    stage.check(kept, "the head before it stays in the chain")?;
    whole(stage, daemon, play).await
}

/// Sends a prompt that should end well, and adds it to what the agent should remember.
async fn ends_well(stage: &mut Stage<'_>, daemon: &Daemon, play: &mut Play, text: &str) -> Outcome<Said> {
    let said = stage.say(daemon, &play.id, text).await?;
    ended_well(stage, &said)?;
    play.history.prompts.push(text.to_owned());
    Ok(said)
}

fn ended_well(stage: &mut Stage<'_>, said: &Said) -> Outcome {
    if said.turn.stop_reason == StopReason::EndTurn && said.turn.failure.is_none() {
        return Ok(());
    }
    stage.check(false, &format!("the turn ends well: {:?}", said.turn))
}

/// Checks that the agent runs on the whole history. Asking is a turn, which belongs to the history from then on.
async fn whole(stage: &mut Stage<'_>, daemon: &Daemon, play: &mut Play) -> Outcome {
    let recalled = stage.recall(daemon, &play.id).await?;
    let fault = play.history.fault(&recalled);
    let turns = words::count(count_of(&play.history.prompts), "turn", "turns");
    let beside = play.history.beside(&recalled);
    play.history.prompts.push(RECALL.to_owned());
    match fault {
        None => stage.check(
            true,
            &format!("the agent has the whole history before it: {turns}, in order{beside}"),
        ),
        Some(fault) => stage.check(false, &fault),
    }
}

fn count_of(prompts: &[String]) -> u64 {
    u64::try_from(prompts.len()).unwrap_or(u64::MAX)
}

/// Checks that the conversation went on by an exact copy under a new id.
async fn copied(
    stage: &mut Stage<'_>,
    daemon: &Daemon,
    play: &mut Play,
    before: &Conversation,
    said: &Said,
) -> Outcome {
    resumed_in_full(stage, said.turn.resumed.as_ref())?;
    let via = said.turn.resumed.as_ref().map(|resumed| resumed.via);
    stage.check(
        via == Some(Via::Copied),
        "the agent was given an exact copy of the transcript under a new id",
    )?;
    let after = conversation(daemon, play).await?;
    stage.check(
        after.id == before.id && after.head != before.head && after.chain_length == before.chain_length + 1,
        &format!(
            "the conversation is the same; {} sessions are in its chain now",
            after.chain_length
        ),
    )?;
    whole(stage, daemon, play).await
}

fn resumed_in_full(stage: &mut Stage<'_>, resumed: Option<&Resumed>) -> Outcome {
    let Some(resumed) = resumed else {
        return stage.check(false, "it is told how the session was brought back");
    };
    let full = resumed.fidelity == Fidelity::Full && resumed.missing_turns == 0;
    stage.check(full, &words::resumed(resumed))
}

/// Checks that a turn was limited and waits until the time that was told.
async fn wait_for_reset(stage: &mut Stage<'_>, said: &Said) -> Outcome {
    let failure = said.turn.failure.as_ref();
    let limited = failure.is_some_and(|failure| failure.kind == FailureKind::RateLimited);
    let Some(resets_at) = failure.and_then(|failure| failure.resets_at).filter(|_| limited) else {
        return stage.check(
            false,
            &format!("a limit is told with its reset time: {:?}", said.turn),
        );
    };
    let now = Timestamp::now();
    let when = words::moment(resets_at, now, &TimeZone::system());
    stage.check(true, &format!("the limit is told; it is lifted at {when}"))?;
    let wait = resets_at.duration_since(now);
    if let Ok(wait) = std::time::Duration::try_from(wait) {
        tokio::time::sleep(wait).await;
    }
    Ok(())
}

async fn begun(follower: &mut Follower<'_>) -> Outcome {
    loop {
        if let Event::Update { turn_id: Some(_), .. } = follower.next().await?.envelope.event {
            return Ok(());
        }
    }
}

fn kill(pid: u32) -> Outcome {
    let failed =
        |why: String| Problem::new(Exit::Failed, format!("the daemon {pid} cannot be killed: {why}"));
    let pid = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| failed("that is no process id".to_owned()))?;
    kill_process(pid, Signal::KILL).map_err(|error| failed(error.to_string()))
}

async fn conversation(daemon: &Daemon, play: &Play) -> Outcome<Conversation> {
    Ok(daemon
        .call(method::GetConversation {
            conversation_id: play.id.clone(),
        })
        .await?
        .conversation)
}

async fn head(daemon: &Daemon, play: &Play) -> Outcome<Option<bridge_protocol::UpstreamId>> {
    Ok(conversation(daemon, play).await?.head)
}
