//! The play: a conversation, everything that can happen to the session under it, and how it continues each time.
//!
//! It owns the order of the steps and what must hold after each.

use std::iter::successors;
use std::time::Duration;

use bridge_protocol::conversation::{Conversation, ConversationState, OnLimit};
use bridge_protocol::event::Event;
use bridge_protocol::link::{Fidelity, Resumed, Via};
use bridge_protocol::method::{self, Method};
use bridge_protocol::raw::{PromptContent, RawJson};
use bridge_protocol::turn::{FailureKind, StopReason, TurnResult};
use bridge_protocol::{ConversationId, ConversationRef};
use futures_util::future;
use jiff::Timestamp;
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

const INTRODUCTION: &str = "\
The main job: one conversation that outlives the sessions under it.

A small built-in agent plays the coding agent. Lines with > are prompts to it, lines with < its answers;
[[words in brackets]] make it misbehave. The prompt [[recall]] asks it which turns it has before it: that
is the proof in each step, and a turn itself, so that it is counted the next time.";

/// The steps: `#` and the title of each, and below it what happens: a verb, and where it takes one a prompt. What the verbs mean
/// stands in [`Play::act`].
const STEPS: &str = r#"
# A conversation and two turns
say Remember the word heron
say [[tool read {"path":"a.rs"}]][[say I have read a.rs]]
whole
# A usage limit, after which the conversation continues automatically
limit-continues Write the report [[limit 2]]
whole
# A usage limit, after which the agent refuses the session
limit-passes [[forget]][[limit 1]]
say Continue after the limit
copied
whole
# The agent crashes in the middle of a turn
agent-dies Write the second part [[crash]]
say Continue after the crash
in-full
whole
# The agent refuses the session for no reason at all
say [[say I am about to forget]][[forget]]
say Continue all the same
copied
whole
# The session's transcript is deleted
say [[say I am about to lose it]][[lose]]
say Continue with what is left
honest
whole
# The daemon is killed in the middle of a turn
daemon-dies [[say Begun]][[hang]]
say Continue after the kill
in-full
whole
# A question of the agent, answered after the daemon was killed
asked [[ask May I publish it?]][[say Published]]
whole
# Every id that the conversation ever had still finds it
by-old-id Found by an old id
whole
# A fork: a second conversation with the same history
fork Only on the branch
whole
# A fork in place: the conversation continues in a new session
fork-in-place On the new head
whole
# What the conversation looks like now
picture
"#;

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
    /// What is wrong with what the agent remembers; nothing if it is the whole history, once and in order.
    fn fault(&self, recalled: &[Recalled]) -> Option<String> {
        let users = recalled.iter().map(|turn| &turn.user);
        let kept: Vec<_> = users.filter(|user| !self.cut_short.contains(user)).collect();
        let is_whole = kept.iter().copied().eq(&self.prompts);
        (!is_whole).then(|| format!("the agent remembers {kept:?} instead of {:?}", self.prompts))
    }
}

/// The play's conversation.
struct Play<'a, 'b> {
    stage: &'a mut Stage<'b>,
    daemon: Daemon,
    id: ConversationRef,
    history: History,
    /// The conversation before the step.
    before: Conversation,
    /// The last turn.
    last: Option<TurnResult>,
}

/// Plays all steps. A step that cannot be played to its end counts as failed, and the next one is tried.
///
/// # Errors
/// There is no daemon to play with, or the output cannot be written.
pub(super) async fn play(stage: &mut Stage<'_>) -> Outcome {
    stage.output.line(INTRODUCTION)?;
    let daemon = stage.connect().await?;
    let new = method::NewConversation {
        agent: Some("loopback".into()),
        cwd: stage.project.to_string_lossy().into_owned(),
        title: "The main job".to_owned(),
        ..Default::default()
    };
    let before = daemon.call(new).await?.conversation;
    stage
        .output
        .line(&format!("\nThe conversation's id, for good: {}", before.id))?;
    let mut play = Play {
        stage,
        daemon,
        id: before.id.into(),
        history: History::default(),
        before,
        last: None,
    };
    for step in STEPS.split("\n# ").skip(1) {
        let mut lines = step.trim_end().lines();
        play.stage.step(lines.next().unwrap_or_default())?;
        if let Err(problem) = play.step(lines).await {
            match problem.message {
                Some(message) => play.check(false, &message)?,
                None => return Err(problem),
            }
            // The daemon may be what ended the step.
            play.daemon = play.stage.connect().await?;
        }
    }
    Ok(())
}

impl Play<'_, '_> {
    async fn step(&mut self, lines: impl Iterator<Item = &str>) -> Outcome {
        self.before = self.conversation().await?;
        for line in lines {
            let (verb, text) = line.split_once(' ').unwrap_or((line, ""));
            self.act(verb, text).await?;
        }
        Ok(())
    }

    async fn act(&mut self, verb: &str, text: &str) -> Outcome {
        match verb {
            // A turn that ends well.
            "say" => self.say(text).await,
            // A turn that meets a usage limit, after which the conversation continues in the same session; or the limit is
            // waited for.
            "limit-continues" => self.limit_continues(text).await,
            "limit-passes" => self.limit_passes(text).await,
            // A turn that is cut short.
            "agent-dies" => self.agent_dies(text).await,
            "daemon-dies" => self.daemon_dies(text).await,
            // A turn in which the agent asks, the daemon is killed, and the next one gets the answer.
            "asked" => self.asked(text).await,
            // The session was reopened with nothing missing; on an exact copy under a new id; with what is missing reported.
            "in-full" => self.resumed(|_| true),
            "copied" => self.copied().await,
            "honest" => self.honest(),
            // The agent has the whole history before it.
            "whole" => self.whole().await,
            // A turn by the id of the first session, on a branch beside the conversation, and on one in its place.
            "by-old-id" => self.by_old_id(text).await,
            "fork" => self.fork(text).await,
            "fork-in-place" => self.fork_in_place(text).await,
            _ => self.picture().await,
        }
    }

    async fn agent_dies(&mut self, text: &str) -> Outcome {
        self.history.cut_short.push(text.to_owned());
        self.turns(text, OnLimit::Fail, 1).await?;
        let died = self.failed_with(FailureKind::AgentDied);
        self.check(died, "the turn ended and reports that the agent died")
    }

    async fn daemon_dies(&mut self, text: &str) -> Outcome {
        let begun = |event| match event {
            Event::Update { turn_id, .. } => turn_id,
            _ => None,
        };
        self.cut_short(text, begun).await?;
        self.kill_and_restart().await?;
        let state = self.conversation().await?.state;
        let words = words::state(state);
        let what = format!("the daemon knows that the turn was cut short: the conversation is {words}");
        self.check(state == ConversationState::Interrupted, &what)
    }

    async fn limit_continues(&mut self, text: &str) -> Outcome {
        let limited = self.turns(text, OnLimit::Wait, 2).await?;
        let is_well = limited.before.is_some_and(|turn| turn.continuation.is_some()) && self.ended_well();
        self.check(is_well, "the turn ended well without a prompt from the user")?;
        let after = self.conversation().await?.head;
        self.check(after == self.before.head, "it continued in the same session")
    }

    async fn limit_passes(&mut self, text: &str) -> Outcome {
        self.turns(text, OnLimit::Fail, 1).await?;
        let is_limited = self.failed_with(FailureKind::RateLimited);
        let failure = self.last.as_ref().and_then(|turn| turn.failure.as_ref());
        let resets_at = failure.and_then(|failure| failure.resets_at);
        let when = resets_at.map_or_else(|| "no known time".to_owned(), local);
        let what = format!("the limit is reported; it resets at {when}");
        self.check(is_limited && resets_at.is_some(), &what)?;
        let wait = resets_at.map(|at| Duration::try_from(at.duration_since(Timestamp::now())));
        if let Some(Ok(wait)) = wait {
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    async fn asked(&mut self, text: &str) -> Outcome {
        let asked = self
            .cut_short(text, |event| match event {
                Event::InterruptRaised { interrupt } => Some(interrupt),
                _ => None,
            })
            .await?;
        self.check(true, "the agent asks, and waits for a person")?;
        self.kill_and_restart().await?;
        let open = self.conversation().await?.interrupts;
        let is_kept = open.iter().any(|open| open.id == asked.id && open.orphaned);
        self.check(
            is_kept,
            "the question is still open, although its agent has ended",
        )?;
        self.tell("the answer is yes")?;
        let outcome = serde_json::json!({"outcome": "selected", "optionId": "allow_once"});
        let respond = method::Respond {
            interrupt_id: asked.id,
            outcome: RawJson::from(outcome),
            ..method::Respond::of(self.id.clone())
        };
        self.follow(respond, None, 1).await?;
        let is_well = self.ended_well();
        self.check(is_well, "the turn ended well without a prompt from the user")?;
        let is_closed = self.conversation().await?.interrupts.is_empty();
        self.check(
            is_closed,
            "the next agent received the answer, and no question is open",
        )
    }

    /// How the session of the last turn was reopened.
    fn last_resumed(&self) -> Outcome<Resumed> {
        let resumed = self.last.as_ref().and_then(|turn| turn.resumed.clone());
        let missing = || Problem::new(Exit::Failed, "the answer says how the session was resumed");
        resumed.ok_or_else(missing)
    }

    fn resumed(&mut self, holds: impl Fn(Via) -> bool) -> Outcome {
        let resumed = self.last_resumed()?;
        let full = resumed.fidelity == Fidelity::Full && resumed.missing_turns == 0;
        self.check(full && holds(resumed.via), &words::resumed(&resumed))
    }

    async fn copied(&mut self) -> Outcome {
        self.resumed(|via| via == Via::Copied)?;
        let (before, after) = (&self.before, self.conversation().await?);
        let count = after.chain_length;
        let holds = after.id == before.id && after.head != before.head && count == before.chain_length + 1;
        let what = format!("the conversation is the same; {count} sessions are in its chain now");
        self.check(holds, &what)
    }

    /// Forgets the prompts that were reported as missing: the agent need not remember them any more.
    fn honest(&mut self) -> Outcome {
        let resumed = self.last_resumed()?;
        let missing = usize::try_from(resumed.missing_turns).unwrap_or(usize::MAX);
        let last = self.history.prompts.len().saturating_sub(1);
        self.history.prompts.drain(last.saturating_sub(missing)..last);
        let is_honest = (missing == 0) == (resumed.fidelity == Fidelity::Full);
        let what = format!("the loss is reported, not guessed: {}", words::resumed(&resumed));
        self.check(is_honest, &what)
    }

    async fn by_old_id(&mut self, text: &str) -> Outcome {
        let lineage = method::Lineage::of(self.id.clone());
        let entries = self.call(lineage).await?.entries;
        let Some(oldest) = entries.iter().find(|entry| !entry.upstream_id.is_empty()) else {
            return self.check(false, "the lineage knows the first session");
        };
        let old_id = ConversationRef::new(oldest.upstream_id.as_str());
        self.tell(&format!("the id of its very first session was {old_id}"))?;
        let close = method::Close::of(self.id.clone());
        self.call(close).await?;
        let resume = method::Resume::of(old_id.clone());
        let answer = self.call(resume).await?;
        let is_same = answer.conversation.id == self.before.id;
        self.check(is_same, "resuming by that id opens this conversation")?;
        let full = answer.resumed.fidelity == Fidelity::Full;
        self.check(full, &words::resumed(&answer.resumed))?;
        self.id = old_id;
        self.say(text).await?;
        self.id = self.before.id.into();
        Ok(())
    }

    async fn fork(&mut self, text: &str) -> Outcome {
        let source: ConversationId = self.before.id;
        let fork = method::Fork {
            title: Some("Another way".to_owned()),
            ..method::Fork::of(source)
        };
        let branch = self.call(fork).await?.conversation;
        let parent = branch.parent.map(|parent| parent.conversation_id);
        let holds = parent == Some(source) && branch.id != source;
        self.check(holds, "a new conversation that knows its parent")?;
        let history = self.history.clone();
        self.id = branch.id.into();
        self.say(text).await?;
        self.whole().await?;
        (self.id, self.history) = (source.into(), history);
        self.tell("and the conversation that it came from, without the branch's turns:")
    }

    async fn fork_in_place(&mut self, text: &str) -> Outcome {
        let fork = method::Fork {
            in_place: true,
            ..method::Fork::of(self.id.clone())
        };
        let after = self.call(fork).await?.conversation;
        let head = self.before.head.clone();
        let holds = after.id == self.before.id && after.head.is_some() && after.head != head;
        self.check(holds, "the same conversation with a new head")?;
        self.say(text).await?;
        let links = self.call(method::Chain::of(self.id.clone())).await?.links;
        let is_kept = links.iter().any(|link| Some(&link.upstream_id) == head.as_ref());
        self.check(is_kept, "the head before it stays in the chain")
    }

    async fn picture(&mut self) -> Outcome {
        let look = self.stage.output.look;
        let sign = look.sign("●", "*");
        self.tell("Each line is an agent session, with its turns and its origin.")?;
        self.tell(&format!(
            "{sign} marks the session that the next prompt resumes.\n"
        ))?;
        let tree = method::TreeOf::of(self.id.clone());
        let family = self.call(tree).await?.conversations.into_iter();
        let unread = |of| Member {
            of,
            steps: Vec::new(),
        };
        let family: Vec<Member> = family.map(unread).collect();
        for line in draw(&family, None, look) {
            self.tell(&line)?;
        }
        let links = family
            .first()
            .map(|first| first.of.links.as_slice())
            .unwrap_or_default();
        // The head, and the sessions whose history it carries, one after another.
        let carried = successors(links.last(), |link| {
            let mut others = links.iter();
            others.find(|other| link.from_upstream_id.as_ref() == Some(&other.upstream_id))
        });
        let turns: u64 = carried.take(links.len()).map(|link| link.turns).sum();
        let what = format!(
            "the sessions from the first down to {sign} hold {turns} turns: as many as the agent has before it now"
        );
        self.check(turns == self.history.prompts.len() as u64, &what)
    }

    fn tell(&mut self, text: &str) -> Outcome {
        self.stage.tell(text)
    }

    fn check(&mut self, holds: bool, what: &str) -> Outcome {
        self.stage.check(holds, what)
    }

    async fn call<M: Method>(&self, call: M) -> Outcome<M::Answer> {
        self.daemon.call(call).await
    }

    async fn conversation(&self) -> Outcome<Conversation> {
        let get = method::GetConversation::of(self.id.clone());
        Ok(self.call(get).await?.conversation)
    }

    fn failed_with(&self, kind: FailureKind) -> bool {
        let failure = self.last.as_ref().and_then(|turn| turn.failure.as_ref());
        failure.is_some_and(|failure| failure.kind == kind)
    }

    fn ended_well(&self) -> bool {
        let ended_well = |turn: &TurnResult| turn.stop_reason == StopReason::EndTurn;
        self.last.as_ref().is_some_and(ended_well)
    }

    /// Sends a prompt that should end well, and adds it to what the agent should remember.
    async fn say(&mut self, text: &str) -> Outcome {
        self.turns(text, OnLimit::Fail, 1).await?;
        if !self.ended_well() {
            let what = format!("the turn ends well: {:?}", self.last);
            self.check(false, &what)?;
        }
        self.history.prompts.push(text.to_owned());
        Ok(())
    }

    /// Checks that the agent runs on the whole history. Asking is a turn, which belongs to the history from then on.
    async fn whole(&mut self) -> Outcome {
        let answer = self.turns(RECALL, OnLimit::Fail, 1).await?.words;
        let recalled: Vec<Recalled> = serde_json::from_str(answer.trim()).map_err(|error| {
            let what = format!("the agent's recall is not what it should be: {error}: {answer}");
            Problem::new(Exit::Failed, what)
        })?;
        let last = recalled.last().map_or("", |turn| turn.user.as_str());
        let line = format!("< {} turns, the last is {:?}", recalled.len(), one_line(last));
        let line = self.stage.output.look.paint(DIM, &line);
        self.tell(&line)?;
        let fault = self.history.fault(&recalled);
        let whole = self.history.prompts.len();
        let beside = match recalled.len().saturating_sub(whole) {
            0 => String::new(),
            1 => ", and the one that was cut short".to_owned(),
            more => format!(", and {more} that were cut short"),
        };
        let turns = words::count(whole as u64, "turn", "turns");
        let what = format!("the agent has the whole history before it: {turns}, in order{beside}");
        self.history.prompts.push(RECALL.to_owned());
        self.check(fault.is_none(), &fault.unwrap_or(what))
    }
}

impl Play<'_, '_> {
    /// Sends a prompt, and prints it and so many turns to their ends.
    async fn turns(&mut self, text: &str, on_limit: OnLimit, ends: usize) -> Outcome<Heard> {
        self.tell(&format!("> {text}"))?;
        let prompt = method::Prompt {
            prompt: PromptContent::text(text),
            on_limit,
            ..method::Prompt::of(self.id.clone())
        };
        self.follow(prompt, Some(text), ends).await
    }

    /// Makes a call that starts turns, and prints so many of them to their ends. Those that the user did not send are added to
    /// what the agent should remember.
    async fn follow<M: Method>(&mut self, call: M, sent: Option<&str>, ends: usize) -> Outcome<Heard> {
        let look = self.stage.output.look;
        let (mut is_own, mut heard, mut turns) = (sent.is_some(), String::new(), Vec::new());
        let (stage, history) = (&mut *self.stage, &mut self.history);
        let all = watch(&self.daemon, &self.id, call, |event| {
            match event {
                Event::PromptAccepted { prompt, .. } if !std::mem::take(&mut is_own) => {
                    heard.clear();
                    let text = prompt.to_text();
                    stage.tell(&format!("> {}    (automatic)", one_line(&text)))?;
                    history.prompts.push(text);
                }
                // Updates of other shapes are not words.
                Event::Update { update, .. } => {
                    let chunk = update.read::<Chunk>().ok();
                    let chunk = chunk.filter(|chunk| chunk.session_update == "agent_message_chunk");
                    heard.extend(chunk.and_then(|chunk| chunk.content?.text));
                }
                Event::TurnEnded { turn } => {
                    let words = one_line(&heard);
                    if !words.is_empty() && sent != Some(RECALL) {
                        stage.tell(&look.paint(DIM, &format!("< {words}")))?;
                    }
                    // An agent may say in words what it also fails with.
                    let failure = turn.failure.as_ref().map(|failure| one_line(&failure.message));
                    if let Some(failure) = failure.filter(|failure| *failure != words) {
                        stage.tell(&look.paint(DIM, &format!("! {failure}")))?;
                    }
                    if let Some(continuation) = &turn.continuation {
                        let when = local(continuation.at);
                        let what = format!(
                            "the limit is reported; the conversation continues automatically at {when}"
                        );
                        stage.check(true, &what)?;
                    }
                    turns.push(turn);
                    return Ok((turns.len() == ends).then_some(()));
                }
                _ => {}
            }
            Ok(None)
        });
        all.await?;
        self.last = turns.pop();
        Ok(Heard {
            words: heard,
            before: turns.pop(),
        })
    }

    /// Sends a prompt that does not end before the daemon is killed, and waits until this event is seen.
    async fn cut_short<T>(&mut self, text: &str, seen: impl Fn(Event) -> Option<T>) -> Outcome<T> {
        self.history.cut_short.push(text.to_owned());
        self.tell(&format!("> {text}"))?;
        let prompt = method::Prompt {
            prompt: PromptContent::text(text),
            ..method::Prompt::of(self.id.clone())
        };
        watch(&self.daemon, &self.id, prompt, |event| Ok(seen(event))).await
    }

    /// Kills the daemon's process and starts another one.
    async fn kill_and_restart(&mut self) -> Outcome {
        let pid = self.call(method::Status::default()).await?.pid;
        self.tell(&format!("$ kill -9 {pid}    (the daemon's process)"))?;
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let killed = process.map(|process| kill_process(process, Signal::KILL));
        if killed != Some(Ok(())) {
            let what = format!("cannot kill the daemon {pid}: {killed:?}");
            return Err(Problem::new(Exit::Failed, what));
        }
        self.daemon.closed().await;
        start::wait_for_end(&self.stage.reach.paths).await?;
        self.daemon = self.stage.connect().await?;
        let again = self.call(method::Status::default()).await?.pid;
        self.check(again != pid, "another daemon was started and answers")
    }
}

/// What the agent said in the turns that were followed.
struct Heard {
    /// The agent's words in the last one.
    words: String,
    /// The turn before that.
    before: Option<TurnResult>,
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

/// A time on the reader's clock.
fn local(at: Timestamp) -> String {
    words::Clock::here().moment(at)
}

/// Makes a call, and hears the events of the conversation until `each` has what it waits for.
async fn watch<M: Method, T>(
    daemon: &Daemon,
    id: &ConversationRef,
    call: M,
    mut each: impl FnMut(Event) -> Outcome<Option<T>>,
) -> Outcome<T> {
    let mut follower = Follower::start(daemon, id.clone()).await?;
    let heard = async {
        loop {
            if let Some(found) = each(follower.next().await?.envelope.event)? {
                return Ok(found);
            }
        }
    };
    // What is refused has no events to wait for.
    let refused = async {
        match daemon.call(call).await {
            Ok(_) => future::pending().await,
            Err(problem) => Err(problem),
        }
    };
    let first = async {
        tokio::select! {
            heard = heard => heard,
            refused = refused => refused,
        }
    };
    tokio::time::timeout(TURN_LIMIT, first).await.unwrap_or_else(|_| {
        let what = format!("the turn has not ended after {} s", TURN_LIMIT.as_secs());
        Err(Problem::new(Exit::Failed, what))
    })
}
