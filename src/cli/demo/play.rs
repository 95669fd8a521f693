//! The play: a conversation, everything that can happen to the session under it, and how it continues each time.
//!
//! It owns the order of the steps and what must hold after each.

use std::sync::Arc;
use std::time::Duration;

use bridge_protocol::client::Call as _;
use bridge_protocol::conversation::{Conversation, ConversationState, OnLimit};
use bridge_protocol::event::Event;
use bridge_protocol::link::{Fidelity, Link, Resumed, Via};
use bridge_protocol::method::{self, Method};
use bridge_protocol::raw::{PromptContent, RawJson};
use bridge_protocol::turn::{FailureKind, StopReason, TurnResult};
use bridge_protocol::{ConversationRef, TurnId};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

use super::stage::Stage;
use crate::cli::connect::Daemon;
use crate::cli::exit::Exit;
use crate::cli::follow::Follower;
use crate::cli::output::{DIM, one_line};
use crate::cli::problem::{Outcome, Problem};
use crate::cli::tree::{Member, draw};
use crate::cli::{start, words};

#[cfg(test)]
mod tests;

/// The directive that makes the built-in agent return the history that it runs on.
const RECALL: &str = "[[recall]]";

/// How long one turn may take. Each takes milliseconds, and a resume a few hundred of them.
const TURN_LIMIT: Duration = Duration::from_secs(60);

/// One turn of the history that the agent runs on, as `[[recall]]` returns it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Recalled {
    /// The prompt's text as it was sent.
    user: String,
}

/// What the agent should remember.
#[derive(Clone, Debug, Default)]
struct History {
    /// The prompts of the turns that ended well, in order, the recalls among them.
    prompts: Vec<String>,
    /// Prompts of turns that were cut short: the agent may remember them or not.
    cut_short: Vec<String>,
}

impl History {
    /// What is remembered of the turns that ended well.
    fn kept(&self, recalled: &[Recalled]) -> Vec<String> {
        let users = recalled.iter().map(|turn| turn.user.clone());
        users.filter(|user| !self.cut_short.contains(user)).collect()
    }

    /// What is wrong with what the agent remembers; nothing if it is the whole history, once and in order.
    fn fault(&self, recalled: &[Recalled]) -> Option<String> {
        let kept = self.kept(recalled);
        (kept != self.prompts).then(|| format!("the agent remembers {kept:?} instead of {:?}", self.prompts))
    }

    /// How many of the turns that were cut short are remembered, to follow a sentence.
    fn beside(&self, recalled: &[Recalled]) -> String {
        match recalled.len() - self.kept(recalled).len() {
            0 => String::new(),
            1 => ", and the one that was cut short".to_owned(),
            more => format!(", and {more} that were cut short"),
        }
    }
}

/// The play's conversation.
struct Play<'a, 'b> {
    stage: &'a mut Stage<'b>,
    daemon: Arc<Daemon>,
    id: ConversationRef,
    history: History,
}

/// Plays all steps. A step that cannot be played to its end counts as failed, and the next one is tried.
///
/// # Errors
/// There is no daemon to play with, or the output cannot be written.
pub(super) async fn play(stage: &mut Stage<'_>) -> Outcome {
    for line in [
        "The main job: one conversation that outlives the sessions under it.",
        "",
        "A small built-in agent plays the coding agent. Lines with > are prompts to it, lines with < its answers;",
        "[[words in brackets]] make it misbehave. The prompt [[recall]] asks it which turns it has before it: that",
        "is the proof in each step, and a turn itself, so that it is counted the next time.",
    ] {
        stage.output.line(line)?;
    }
    let daemon = Arc::new(stage.connect().await?);
    stage.step("A conversation and two turns")?;
    let new = method::NewConversation {
        agent: Some("loopback".into()),
        cwd: stage.project.to_string_lossy().into_owned(),
        title: "The main job".to_owned(),
        ..Default::default()
    };
    let id = daemon.call(new).await?.conversation.id;
    stage.tell(&format!("the conversation's id, for good: {id}"))?;
    let mut play = Play {
        stage,
        daemon,
        id: id.into(),
        history: History::default(),
    };
    play.ends_well("Remember the word heron").await?;
    play.ends_well(r#"[[tool read {"path":"a.rs"}]][[say I have read a.rs]]"#)
        .await?;
    play.whole().await?;

    macro_rules! step {
        ($title:literal, $step:ident) => {
            play.stage.step($title)?;
            if let Err(problem) = play.$step().await {
                match problem.message {
                    Some(message) => play.stage.check(false, &message)?,
                    None => return Err(problem),
                }
            }
        };
    }
    step!(
        "A usage limit, after which the conversation continues automatically",
        limit
    );
    step!(
        "A usage limit, after which the agent refuses the session",
        limit_and_forgotten
    );
    step!("The agent crashes in the middle of a turn", crash);
    step!("The agent refuses the session for no reason at all", forgotten);
    step!("The session's transcript is deleted", lost);
    step!("The daemon is killed in the middle of a turn", killed);
    play.daemon = Arc::new(play.stage.connect().await?);
    step!(
        "A question of the agent, answered after the daemon was killed",
        question
    );
    play.daemon = Arc::new(play.stage.connect().await?);
    step!(
        "Every id that the conversation ever had still finds it",
        by_old_id
    );
    step!("A fork: a second conversation with the same history", fork_beside);
    step!(
        "A fork in place: the conversation continues in a new session",
        fork_in_place
    );
    play.stage.step("What the conversation looks like now")?;
    play.picture().await
}

impl Play<'_, '_> {
    async fn limit(&mut self) -> Outcome {
        let before = self.conversation().await?.head;
        let daemon = self.daemon.clone();
        let mut follower = Follower::start(&daemon, self.id.clone()).await?;
        let limited = self.say("Write the report [[limit 2]]", OnLimit::Wait).await?.0;
        let Some(continuation) = limited.continuation else {
            return self
                .stage
                .check(false, &format!("the continuation is scheduled: {limited:?}"));
        };
        let when = words::moment(continuation.at, Timestamp::now(), &TimeZone::system());
        let what = format!("the limit is reported; the conversation continues automatically at {when}");
        self.stage.check(true, &what)?;
        let turn = until(&mut follower, |event| match event {
            Event::Continued { turn_id } => Some(turn_id),
            _ => None,
        });
        let turn = turn.await?;
        self.follow(&mut follower, &turn).await?;
        let after = self.conversation().await?.head;
        self.stage
            .check(before == after, "it continued in the same session")?;
        self.whole().await
    }

    async fn limit_and_forgotten(&mut self) -> Outcome {
        let before = self.conversation().await?;
        // The session is forgotten in the turn that meets the limit: afterwards the agent refuses its id.
        let (turn, _) = self.say("[[forget]][[limit 1]]", OnLimit::Fail).await?;
        let failure = turn
            .failure
            .as_ref()
            .filter(|failure| failure.kind == FailureKind::RateLimited);
        let Some(resets_at) = failure.and_then(|failure| failure.resets_at) else {
            return self.stage.check(
                false,
                &format!("the limit is reported with its reset time: {turn:?}"),
            );
        };
        let now = Timestamp::now();
        let when = words::moment(resets_at, now, &TimeZone::system());
        self.stage
            .check(true, &format!("the limit is reported; it resets at {when}"))?;
        if let Ok(wait) = Duration::try_from(resets_at.duration_since(now)) {
            tokio::time::sleep(wait).await;
        }
        self.copied("Continue after the limit", &before).await
    }

    async fn crash(&mut self) -> Outcome {
        let prompt = "Write the second part [[crash]]";
        self.history.cut_short.push(prompt.to_owned());
        let (turn, _) = self.say(prompt, OnLimit::Fail).await?;
        let died = turn
            .failure
            .is_some_and(|failure| failure.kind == FailureKind::AgentDied);
        self.stage
            .check(died, "the turn ended and reports that the agent died")?;
        let turn = self.ends_well("Continue after the crash").await?;
        self.in_full(turn.resumed.as_ref())?;
        self.whole().await
    }

    async fn forgotten(&mut self) -> Outcome {
        let before = self.conversation().await?;
        self.ends_well("[[say I am about to forget]][[forget]]").await?;
        self.copied("Continue all the same", &before).await
    }

    async fn lost(&mut self) -> Outcome {
        self.ends_well("[[say I am about to lose it]][[lose]]").await?;
        let known = self.history.clone();
        let turn = self.ends_well("Continue with what is left").await?;
        let Some(resumed) = turn.resumed else {
            return self
                .stage
                .check(false, "the answer says how the session was resumed");
        };
        // A copy of the daemon's own brings back what it holds; how much that is shows in what the agent has.
        let honest = match resumed.missing_turns {
            0 => resumed.fidelity == Fidelity::Full,
            _ => matches!(resumed.fidelity, Fidelity::Partial | Fidelity::Text),
        };
        let what = format!("the loss is reported, not guessed: {}", words::resumed(&resumed));
        self.stage.check(honest, &what)?;
        let recalled = self.recall().await?;
        if resumed.fidelity == Fidelity::Text {
            // The history stands in words at the beginning of the turn.
            let retold = recalled.first().is_some_and(|turn| turn.user.contains("heron"));
            self.stage
                .check(retold, "the new session received the history as text")?;
            let prompts = recalled.into_iter().map(|turn| turn.user);
            self.history = History {
                prompts: prompts.chain([RECALL.to_owned()]).collect(),
                ..History::default()
            };
            return Ok(());
        }
        let mut kept = known.kept(&recalled);
        let newest = kept.pop();
        let is_new = newest.as_deref() == Some("Continue with what is left");
        self.stage
            .check(is_new, "the new prompt is there once, at the end")?;
        let missing = known.prompts.len().saturating_sub(kept.len());
        let holds =
            known.prompts.starts_with(&kept) && !kept.is_empty() && missing as u64 == resumed.missing_turns;
        let what = format!(
            "of the {} before it, the agent has the first {}, in order{}: {missing} missing, as reported",
            turns(&known.prompts),
            kept.len(),
            known.beside(&recalled),
        );
        self.stage.check(holds, &what)?;
        self.history.prompts = kept
            .into_iter()
            .chain(newest)
            .chain([RECALL.to_owned()])
            .collect();
        Ok(())
    }

    async fn killed(&mut self) -> Outcome {
        let begun = self.cut_short("[[say Begun]][[hang]]", |event| match event {
            Event::Update { turn_id, .. } => turn_id,
            _ => None,
        });
        begun.await?;
        self.kill_and_restart().await?;
        let state = self.conversation().await?.state;
        let what = format!(
            "the daemon knows that the turn was cut short: the conversation is {}",
            words::state(state)
        );
        self.stage.check(state == ConversationState::Interrupted, &what)?;
        let turn = self.ends_well("Continue after the kill").await?;
        self.in_full(turn.resumed.as_ref())?;
        self.whole().await
    }

    async fn question(&mut self) -> Outcome {
        let asked = self.cut_short(
            "[[ask May I publish it?]][[say Published]]",
            |event| match event {
                Event::InterruptRaised { interrupt } => Some(interrupt),
                _ => None,
            },
        );
        let asked = asked.await?;
        self.stage.check(true, "the agent asks, and waits for a person")?;
        self.kill_and_restart().await?;
        let open = self.conversation().await?.interrupts;
        let is_kept = open.iter().any(|open| open.id == asked.id && open.orphaned);
        self.stage
            .check(is_kept, "the question is still open, although its agent is gone")?;
        let daemon = self.daemon.clone();
        let mut follower = Follower::start(&daemon, self.id.clone()).await?;
        self.stage.tell("the answer is yes")?;
        let outcome = serde_json::json!({"outcome": "selected", "optionId": "allow_once"});
        let respond = method::Respond {
            conversation_id: self.id.clone(),
            interrupt_id: asked.id,
            outcome: RawJson::from(outcome),
            ..Default::default()
        };
        let Some(turn) = self.call(respond).await?.turn_id else {
            return self.stage.check(false, "the answer starts a turn");
        };
        self.follow(&mut follower, &turn).await?;
        let is_closed = self.conversation().await?.interrupts.is_empty();
        self.stage
            .check(is_closed, "the next agent was told, and nothing is open any more")?;
        self.whole().await
    }

    async fn by_old_id(&mut self) -> Outcome {
        let lineage = self.call(method::Lineage {
            conversation_id: self.id.clone(),
            ..Default::default()
        });
        let entries = lineage.await?.entries;
        let Some(oldest) = entries.iter().find(|entry| !entry.upstream_id.is_empty()) else {
            return self.stage.check(false, "the lineage knows the first session");
        };
        let old_id = ConversationRef::new(oldest.upstream_id.as_str());
        self.stage
            .tell(&format!("the id of its very first session was {old_id}"))?;
        let id = self.conversation().await?.id;
        let close = method::Close {
            conversation_id: self.id.clone(),
            ..Default::default()
        };
        self.call(close).await?;
        let resume = method::Resume {
            conversation_id: old_id.clone(),
            ..Default::default()
        };
        let answer = self.call(resume).await?;
        let is_same = answer.conversation.id == id;
        self.stage
            .check(is_same, "resuming by that id opens this conversation")?;
        self.in_full(Some(&answer.resumed))?;
        self.id = old_id;
        self.ends_well("Found by an old id").await?;
        self.id = id.into();
        self.whole().await
    }

    async fn fork_beside(&mut self) -> Outcome {
        let fork = method::Fork {
            conversation_id: self.id.clone(),
            title: Some("Another way".to_owned()),
            ..Default::default()
        };
        let branch = self.call(fork).await?.conversation;
        let source = self.conversation().await?.id;
        let parent = branch.parent.map(|parent| parent.conversation_id);
        let holds = parent == Some(source) && branch.id != source;
        self.stage
            .check(holds, "a new conversation that knows its parent")?;
        let history = self.history.clone();
        self.id = branch.id.into();
        self.ends_well("Only on the branch").await?;
        self.whole().await?;
        self.id = source.into();
        self.history = history;
        self.stage
            .tell("and the conversation that it came from, without the branch's turns:")?;
        self.whole().await
    }

    async fn fork_in_place(&mut self) -> Outcome {
        let before = self.conversation().await?;
        let fork = method::Fork {
            conversation_id: self.id.clone(),
            in_place: true,
            ..Default::default()
        };
        let after = self.call(fork).await?.conversation;
        let holds = after.id == before.id && after.head.is_some() && after.head != before.head;
        self.stage.check(holds, "the same conversation with a new head")?;
        self.ends_well("On the new head").await?;
        let chain = method::Chain {
            conversation_id: self.id.clone(),
        };
        let links = self.call(chain).await?.links;
        let is_kept = links
            .iter()
            .any(|link| Some(&link.upstream_id) == before.head.as_ref());
        self.stage
            .check(is_kept, "the head before it stays in the chain")?;
        self.whole().await
    }

    async fn picture(&mut self) -> Outcome {
        let look = self.stage.output.look;
        let sign = look.sign("●", "*");
        self.stage
            .tell("Each line is an agent session, with its turns and its origin.")?;
        self.stage.tell(&format!(
            "{sign} marks the session that the next prompt resumes.\n"
        ))?;
        let tree = method::TreeOf {
            conversation_id: self.conversation().await?.id.into(),
        };
        let family = self.call(tree).await?.conversations;
        let family: Vec<Member> = family.into_iter().map(Member::from).collect();
        for line in draw(&family, None, look) {
            self.stage.tell(&line)?;
        }
        let Some(first) = family.first() else {
            return Ok(());
        };
        // Where the history was retold in words, its turns are one long one for the agent.
        if first.entries.iter().any(|entry| entry.fidelity == Fidelity::Text) {
            return Ok(());
        }
        let turns = turns_on_the_way(&first.links);
        let what = format!(
            "the sessions from the first down to {sign} hold {turns} turns: as many as the agent has before it now"
        );
        self.stage
            .check(turns == self.history.prompts.len() as u64, &what)
    }

    async fn call<M: Method>(&self, call: M) -> Outcome<M::Answer> {
        Ok(self.daemon.call(call).await?)
    }

    async fn conversation(&self) -> Outcome<Conversation> {
        let conversation_id = self.id.clone();
        Ok(self
            .call(method::GetConversation { conversation_id })
            .await?
            .conversation)
    }

    /// Sends a prompt, follows its turn to the end, and prints both. Returns the turn and the agent's words.
    async fn say(&mut self, text: &str, on_limit: OnLimit) -> Outcome<(TurnResult, String)> {
        self.stage.tell(&format!("> {text}"))?;
        let (turn, answer) = exchange(&self.daemon, &self.id, text, on_limit).await?;
        let look = self.stage.output.look;
        let words = one_line(&answer);
        if !words.is_empty() && text != RECALL {
            self.stage.tell(&look.paint(DIM, &format!("< {words}")))?;
        }
        // An agent may say in words what it also fails with.
        let failure = turn.failure.as_ref().map(|failure| one_line(&failure.message));
        if let Some(failure) = failure.filter(|failure| *failure != words) {
            self.stage.tell(&look.paint(DIM, &format!("! {failure}")))?;
        }
        Ok((turn, answer))
    }

    /// Sends a prompt that should end well, and adds it to what the agent should remember.
    async fn ends_well(&mut self, text: &str) -> Outcome<TurnResult> {
        let (turn, _) = self.say(text, OnLimit::Fail).await?;
        if turn.stop_reason != StopReason::EndTurn || turn.failure.is_some() {
            self.stage
                .check(false, &format!("the turn ends well: {turn:?}"))?;
        }
        self.history.prompts.push(text.to_owned());
        Ok(turn)
    }

    /// Sends a prompt that does not end before the daemon is killed, and waits until this event is seen.
    async fn cut_short<T>(&mut self, text: &str, seen: impl Fn(Event) -> Option<T>) -> Outcome<T> {
        self.history.cut_short.push(text.to_owned());
        self.stage.tell(&format!("> {text}"))?;
        let mut follower = Follower::start(&self.daemon, self.id.clone()).await?;
        let running = self.daemon.call(method::Prompt {
            conversation_id: self.id.clone(),
            prompt: PromptContent::text(text),
            ..Default::default()
        });
        tokio::select! {
            ended = running => {
                let ended = ended.map(|turn| turn.stop_reason);
                Err(Problem::new(Exit::Failed, format!("the turn is still running when it should be: {ended:?}")))
            }
            seen = until(&mut follower, seen) => seen,
        }
    }

    /// Follows a turn that the daemon started to its good end, and adds it to what the agent should remember.
    async fn follow(&mut self, follower: &mut Follower<'_>, turn_id: &TurnId) -> Outcome {
        let ended = loop {
            match follower.next().await?.envelope.event {
                Event::PromptAccepted { turn_id: of, prompt } if of == *turn_id => {
                    let text = prompt.to_text();
                    self.stage
                        .tell(&format!("> {}    (automatic)", one_line(&text)))?;
                    self.history.prompts.push(text);
                }
                Event::TurnEnded { turn } if turn.turn_id == *turn_id => break turn,
                _ => {}
            }
        };
        match ended.stop_reason == StopReason::EndTurn {
            true => self
                .stage
                .check(true, "the turn ended well without a prompt from the user"),
            false => self.stage.check(false, &format!("the turn ends well: {ended:?}")),
        }
    }

    /// Asks the agent which history it runs on. Asking is a turn, which belongs to the history from then on.
    async fn recall(&mut self) -> Outcome<Vec<Recalled>> {
        let (_, words) = self.say(RECALL, OnLimit::Fail).await?;
        let recalled: Vec<Recalled> = serde_json::from_str(words.trim()).map_err(|error| {
            let what = format!("the agent's recall is not what it should be: {error}: {words}");
            Problem::new(Exit::Failed, what)
        })?;
        let last = recalled.last().map_or("", |turn| turn.user.as_str());
        let line = format!("< {} turns, the last is {:?}", recalled.len(), one_line(last));
        let line = self.stage.output.look.paint(DIM, &line);
        self.stage.tell(&line)?;
        Ok(recalled)
    }

    /// Checks that the agent runs on the whole history.
    async fn whole(&mut self) -> Outcome {
        let recalled = self.recall().await?;
        let fault = self.history.fault(&recalled);
        let what = format!(
            "the agent has the whole history before it: {}, in order{}",
            turns(&self.history.prompts),
            self.history.beside(&recalled)
        );
        self.history.prompts.push(RECALL.to_owned());
        self.stage.check(fault.is_none(), &fault.unwrap_or(what))
    }

    /// Sends a prompt, and checks that the conversation continues on an exact copy under a new id.
    async fn copied(&mut self, text: &str, before: &Conversation) -> Outcome {
        let resumed = self.ends_well(text).await?.resumed;
        self.in_full(resumed.as_ref())?;
        let is_copy = resumed.is_some_and(|resumed| resumed.via == Via::Copied);
        self.stage.check(
            is_copy,
            "the agent was given an exact copy of the transcript under a new id",
        )?;
        let after = self.conversation().await?;
        let holds = after.id == before.id
            && after.head != before.head
            && after.chain_length == before.chain_length + 1;
        let count = after.chain_length;
        let what = format!("the conversation is the same; {count} sessions are in its chain now");
        self.stage.check(holds, &what)?;
        self.whole().await
    }

    fn in_full(&mut self, resumed: Option<&Resumed>) -> Outcome {
        let Some(resumed) = resumed else {
            return self
                .stage
                .check(false, "the answer says how the session was resumed");
        };
        let full = resumed.fidelity == Fidelity::Full && resumed.missing_turns == 0;
        self.stage.check(full, &words::resumed(resumed))
    }

    /// Kills the daemon's process and starts another one.
    async fn kill_and_restart(&mut self) -> Outcome {
        let pid = self.call(method::Status::default()).await?.pid;
        self.stage
            .tell(&format!("$ kill -9 {pid}    (the daemon's process)"))?;
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let killed = process.map(|process| kill_process(process, Signal::KILL));
        if killed != Some(Ok(())) {
            return Err(Problem::new(
                Exit::Failed,
                format!("cannot kill the daemon {pid}: {killed:?}"),
            ));
        }
        self.daemon.closed().await;
        start::wait_for_end(&self.stage.reach.paths).await?;
        self.daemon = Arc::new(self.stage.connect().await?);
        let again = self.call(method::Status::default()).await?.pid;
        self.stage
            .check(again != pid, "another daemon was started and answers")
    }
}

/// Waits for the first event of which something is taken.
async fn until<T>(follower: &mut Follower<'_>, taken: impl Fn(Event) -> Option<T>) -> Outcome<T> {
    loop {
        if let Some(taken) = taken(follower.next().await?.envelope.event) {
            return Ok(taken);
        }
    }
}

fn turns(prompts: &[String]) -> String {
    words::count(prompts.len() as u64, "turn", "turns")
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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chunk {
    session_update: String,
    content: Option<Text>,
}

#[derive(Deserialize)]
struct Text {
    text: Option<String>,
}

/// Sends a prompt and collects the agent's words until its turn has ended.
async fn exchange(
    daemon: &Daemon,
    id: &ConversationRef,
    text: &str,
    on_limit: OnLimit,
) -> Outcome<(TurnResult, String)> {
    let mut follower = Follower::start(daemon, id.clone()).await?;
    let prompt = daemon.call(method::Prompt {
        conversation_id: id.clone(),
        prompt: PromptContent::text(text),
        on_limit,
        ..Default::default()
    });
    let collect = async {
        let mut words = String::new();
        loop {
            match follower.next().await?.envelope.event {
                Event::Update { update, .. } => {
                    // Updates of other shapes are not words.
                    let chunk = update.read::<Chunk>().ok();
                    let chunk = chunk.filter(|chunk| chunk.session_update == "agent_message_chunk");
                    words.extend(chunk.and_then(|chunk| chunk.content?.text));
                }
                Event::TurnEnded { .. } => return Ok(words),
                _ => {}
            }
        }
    };
    // A prompt that is refused has no turn, and so no end to wait for: then its error ends both.
    let turn = async { prompt.await.map_err(Problem::from) };
    let both = async { tokio::try_join!(turn, collect) };
    tokio::time::timeout(TURN_LIMIT, both).await.unwrap_or_else(|_| {
        let limit = TURN_LIMIT.as_secs();
        Err(Problem::new(
            Exit::Failed,
            format!("the turn has not ended after {limit} s"),
        ))
    })
}
