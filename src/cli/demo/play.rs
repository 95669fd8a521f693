//! The play: a conversation, everything that can happen to the session under it, and how it continues each time.
//!
//! It owns the order of the steps and what must hold after each. A step is a row of this program's own commands, each run as a
//! process of its own.

use std::process::{Output, Stdio};
use std::time::Duration;

use bridge_protocol::event::Event;
use bridge_protocol::{ConversationRef, method};
use jiff::Timestamp;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};

use super::stage::Stage;
use crate::cli::exit::Exit;
use crate::cli::follow::Follower;
use crate::cli::output::{DIM, STRONG, one_line};
use crate::cli::problem::{Outcome, Problem};
use crate::cli::{start, words};
use crate::paths::shell_word;

#[cfg(test)]
mod tests;

/// The directive that makes the built-in agent return the history that it runs on.
const RECALL: &str = "[[recall]]";

/// Stands for a prompt of the daemon itself, with which it continues a turn or passes an answer on.
const AUTOMATIC: &str = "(automatic)";

/// How long one command may take. Each takes milliseconds, and one that waits for a limit some seconds.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);

const INTRODUCTION: &str = "\
The main job: one conversation that outlives the sessions under it.

A small built-in agent plays the coding agent; [[words in brackets]] make it misbehave. Each line with $ is a command that you \
could type. The prompt [[recall]] asks the agent which turns it has before it: that is the proof in each step, and a turn itself, \
so that it is counted the next time.";

/// Printed before it, on a terminal.
const DURATION: &str = "\
This takes about a minute. The demo has its own daemon in a temporary folder; your conversations and agents are not used. Ctrl-C \
ends it.
";

/// The steps: `#` and the title of each, and below it what happens: a verb, and what it takes. What the verbs mean stands in
/// [`Play::act`].
const STEPS: &str = r#"
# A conversation and two turns
new The main job
say Remember the word heron
say [[tool read {"path":"a.rs"}]][[say I have read a.rs]]
whole
# A usage limit, after which the conversation continues automatically
limited --wait-limit Write the report [[limit 2]]
continues
whole
# A usage limit, after which the agent refuses the session
limited [[forget]][[limit 1]]
reset
say Continue after the limit
whole
# The agent crashes in the middle of a turn
crashes Write the second part [[crash]]
say Continue after the crash
whole
# The agent refuses the session for no reason at all
say [[say I am about to forget]][[forget]]
say Continue all the same
whole
# The session's transcript is deleted
say [[say I am about to lose it]][[lose]]
say Continue with what is left
whole
# The daemon is killed in the middle of a turn
killed [[say Begun]][[hang]]
whole
# A question of the agent, answered after the daemon was killed
asks [[ask May I publish it?]][[say Published]]
kill
answer
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
tree
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
        let prompt = |turn: &Recalled| match words::own_prompt(&turn.user) {
            Some(_) => AUTOMATIC.to_owned(),
            None => turn.user.clone(),
        };
        let prompts = recalled.iter().map(prompt);
        let kept: Vec<_> = prompts
            .filter(|prompt| !self.cut_short.contains(prompt))
            .collect();
        (kept != self.prompts).then(|| format!("the agent remembers {kept:?} instead of {:?}", self.prompts))
    }
}

/// The play's conversation.
struct Play<'a, 'b> {
    stage: &'a mut Stage<'b>,
    /// Its id, shortened as the program prints it.
    id: String,
    history: History,
}

/// Plays all steps. A step that cannot be played to its end counts as failed, and the next one is tried.
///
/// # Errors
/// There is no daemon to play with, or the output cannot be written.
pub(super) async fn play(stage: &mut Stage<'_>) -> Outcome {
    if stage.output.look.columns.is_some() {
        stage.output.line(DURATION)?;
    }
    stage.output.line(INTRODUCTION)?;
    stage.connect().await?;
    let mut play = Play {
        stage,
        id: String::new(),
        history: History::default(),
    };
    for step in STEPS.split("\n# ").skip(1) {
        let mut lines = step.trim_end().lines();
        play.stage.step(lines.next().unwrap_or_default())?;
        for line in lines {
            let (verb, text) = line.split_once(' ').unwrap_or((line, ""));
            match play.act(verb, text).await {
                Err(Problem {
                    message: Some(message),
                    ..
                }) => {
                    play.stage.check(false, &message)?;
                    // The daemon may be what ended the step.
                    play.stage.connect().await?;
                    break;
                }
                acted => acted?,
            }
        }
    }
    Ok(())
}

impl Play<'_, '_> {
    async fn act(&mut self, verb: &str, text: &str) -> Outcome {
        let id = self.id.clone();
        match verb {
            "new" => {
                let call = ["new", "--agent", "loopback", "--title", text];
                let printed = self.run(&call, Exit::Done).await?;
                self.id = words::short(printed.trim());
                Ok(())
            }
            // A turn that ends well.
            "say" => self.say(text).await,
            // A turn that meets a usage limit.
            "limited" => {
                let (flag, text) = match text.strip_prefix("--wait-limit ") {
                    Some(text) => (Some("--wait-limit"), text),
                    None => (None, text),
                };
                let call = ["send", &id, text].into_iter().chain(flag);
                self.run(&call.collect::<Vec<_>>(), Exit::Limited).await.map(drop)
            }
            // The conversation continues without a command; or the reset of its limit is waited for.
            "continues" => self.continues().await,
            "reset" => self.reset().await,
            // A turn in which the agent's process ends, or the agent asks.
            "crashes" => self.cut_short(text, Exit::Agent).await,
            "asks" => self.cut_short(text, Exit::Asked).await,
            // The daemon is killed, in a turn that the waiting command then continues; or between two commands.
            "killed" => self.killed(text).await,
            "kill" => self.kill_and_restart().await,
            "answer" => {
                self.run(&["answer", &id, "allow"], Exit::Done).await?;
                self.history.prompts.push(AUTOMATIC.to_owned());
                Ok(())
            }
            // The agent has the whole history before it.
            "whole" => self.whole().await,
            // A turn by the id of the first session, on a branch beside the conversation, and on one in its place.
            "by-old-id" => {
                let daemon = self.stage.connect().await?;
                let links = daemon.call(method::Chain::of(id.as_str())).await?.links;
                let oldest = links.first();
                let oldest =
                    oldest.ok_or_else(|| Problem::new(Exit::Failed, "the chain is empty".to_owned()))?;
                self.run(&["close", &id], Exit::Done).await?;
                self.id = words::short(oldest.upstream_id.as_str());
                let said = self.say(text).await;
                self.id = id;
                said
            }
            "fork" => {
                let branch = self
                    .run(&["fork", &id, "--title", "Another way"], Exit::Done)
                    .await?;
                let history = self.history.clone();
                self.id = words::short(branch.trim());
                let said = match self.say(text).await {
                    Ok(()) => self.whole().await,
                    failed => failed,
                };
                (self.id, self.history) = (id, history);
                said?;
                self.stage
                    .tell("and the conversation that it came from, without the branch's turns:")
            }
            "fork-in-place" => {
                self.run(&["fork", &id, "--in-place"], Exit::Done).await?;
                self.say(text).await
            }
            _ => self.run(&["tree", &id], Exit::Done).await.map(drop),
        }
    }

    /// Sends a prompt that should end well, and adds it to what the agent should remember.
    async fn say(&mut self, text: &str) -> Outcome {
        let id = self.id.clone();
        self.run(&["send", &id, text], Exit::Done).await?;
        self.history.prompts.push(text.to_owned());
        Ok(())
    }

    /// Sends a prompt whose turn does not end well.
    async fn cut_short(&mut self, text: &str, exit: Exit) -> Outcome {
        let id = self.id.clone();
        self.history.cut_short.push(text.to_owned());
        self.run(&["send", &id, text], exit).await.map(drop)
    }

    /// Waits until the scheduled continuation has begun. `whole` waits for its end.
    async fn continues(&mut self) -> Outcome {
        let daemon = self.stage.connect().await?;
        let begun = async {
            let mut follower = Follower::start(&daemon, ConversationRef::new(self.id.as_str())).await?;
            loop {
                match follower.next().await?.envelope.event {
                    Event::Snapshot { conversation, .. } if conversation.continuation.is_none() => break,
                    Event::PromptAccepted { .. } => break,
                    _ => {}
                }
            }
            Outcome::Ok(())
        };
        within_limit(begun).await??;
        self.history.prompts.push(AUTOMATIC.to_owned());
        self.stage.check(true, "it continues without a command")
    }

    /// Waits for the reset of the limit.
    async fn reset(&mut self) -> Outcome {
        let daemon = self.stage.connect().await?;
        let get = method::GetConversation::of(self.id.as_str());
        let limit = daemon.call(get).await?.conversation.limit;
        let resets_at = limit.and_then(|limit| limit.resets_at);
        let wait = resets_at.map(|at| Duration::try_from(at.duration_since(Timestamp::now())));
        if let Some(Ok(wait)) = wait {
            tokio::time::sleep(wait).await;
        }
        self.stage
            .check(resets_at.is_some(), "the limit has a time at which it resets")
    }

    /// Kills the daemon in the middle of a turn. The command that waits for the turn continues it.
    async fn killed(&mut self, text: &str) -> Outcome {
        let id = self.id.clone();
        let call = ["send", &id, text];
        let mut child = self.spawn(&call)?;
        let mut begun = [0; 5];
        if let Some(stdout) = &mut child.stdout {
            let read = within_limit(stdout.read_exact(&mut begun)).await?;
            read.map_err(|error| Problem::new(Exit::Failed, format!("the turn does not begin: {error}")))?;
        }
        self.stage.tell(&String::from_utf8_lossy(&begun))?;
        self.history.cut_short.push(text.to_owned());
        self.history.prompts.push(AUTOMATIC.to_owned());
        self.kill_and_restart().await?;
        self.finish(child, &call, Exit::Done).await.map(drop)
    }

    /// Kills the daemon's process and starts another one.
    async fn kill_and_restart(&mut self) -> Outcome {
        let daemon = self.stage.connect().await?;
        let pid = daemon.call(method::Status::default()).await?.pid;
        self.stage
            .tell(&format!("$ kill -KILL {pid}    (the daemon's process)"))?;
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let killed = process.map(|process| kill_process(process, Signal::KILL));
        if killed != Some(Ok(())) {
            let what = format!("cannot kill the daemon {pid}: {killed:?}");
            return Err(Problem::new(Exit::Failed, what));
        }
        daemon.closed().await;
        start::wait_for_end(&self.stage.reach.paths).await?;
        let daemon = self.stage.connect().await?;
        let again = daemon.call(method::Status::default()).await?.pid;
        self.stage
            .check(again != pid, "another daemon was started and answers")
    }

    /// Checks that the agent runs on the whole history. Asking is a turn, which belongs to the history from then on.
    async fn whole(&mut self) -> Outcome {
        let id = self.id.clone();
        // The continuation may still be running.
        let answer = self.run(&["send", &id, RECALL, "--queue"], Exit::Done).await?;
        let recalled: Vec<Recalled> = serde_json::from_str(answer.trim()).map_err(|error| {
            let what = format!("the agent's recall is not what it should be: {error}: {answer}");
            Problem::new(Exit::Failed, what)
        })?;
        let fault = self.history.fault(&recalled);
        let turns = words::count(recalled.len() as u64, "turn", "turns");
        let what = format!("the agent has the whole history before it: {turns}, in order");
        self.history.prompts.push(RECALL.to_owned());
        self.stage.check(fault.is_none(), &fault.unwrap_or(what))
    }

    /// Runs a command of this program, prints it and what it prints, and returns its standard output.
    async fn run(&mut self, call: &[&str], exit: Exit) -> Outcome<String> {
        let child = self.spawn(call)?;
        self.finish(child, call, exit).await
    }

    fn spawn(&mut self, call: &[&str]) -> Outcome<Child> {
        let line: Vec<String> = call.iter().map(|word| shell_word(word)).collect();
        let line = format!("$ sessionctl {}", line.join(" "));
        let line = self.stage.output.look.paint(STRONG, &line);
        self.stage.tell(&line)?;
        let failed = |error| Problem::new(Exit::Failed, format!("cannot run this program: {error}"));
        let mut command = Command::new(start::this_program()?);
        // The demonstration starts the daemon itself, so that it can stop it.
        command.args(["--no-start", "--home"]).arg(&self.stage.folder);
        command.args(call).current_dir(&self.stage.project);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
        command.spawn().map_err(failed)
    }

    async fn finish(&mut self, child: Child, call: &[&str], exit: Exit) -> Outcome<String> {
        let ended = within_limit(child.wait_with_output()).await?;
        let Output {
            status,
            stdout,
            stderr,
        } = ended.map_err(|error| Problem::new(Exit::Failed, format!("cannot wait for it: {error}")))?;
        let look = self.stage.output.look;
        let printed = String::from_utf8_lossy(&stdout).into_owned();
        let told = String::from_utf8_lossy(&stderr).into_owned();
        let recalls = call.contains(&RECALL);
        // Of a turn that was seen to begin, the rest of a line may come first.
        let printed_lines = printed.lines().skip_while(|line| line.is_empty());
        for line in printed_lines.filter(|_| !recalls).chain(told.lines()) {
            self.stage.tell(&look.paint(DIM, &look.safe(line)))?;
        }
        let code = i32::from(exit.code());
        if status.code() != Some(code) {
            let what = format!("{}: {status} instead of {code}", one_line(&call.join(" ")));
            return Err(Problem::new(Exit::Failed, what));
        }
        if exit != Exit::Done {
            let what = format!("exit code {code} reports it");
            self.stage.check(true, &what)?;
        }
        Ok(printed)
    }
}

/// The output of a future, unless that takes too long.
async fn within_limit<T>(awaited: impl Future<Output = T>) -> Outcome<T> {
    tokio::time::timeout(COMMAND_LIMIT, awaited).await.map_err(|_| {
        let what = format!("it has not ended after {} s", COMMAND_LIMIT.as_secs());
        Problem::new(Exit::Failed, what)
    })
}
