//! The demonstration: plays the main use case against a real daemon, and checks the result of each step.
//!
//! It owns the steps, and a temporary folder that it removes afterwards. It runs commands of this program as separate
//! processes, and talks only to the loopback agent, whose directive `[[recall]]` returns the history that it runs on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output as Ended, Stdio};
use std::time::Duration;

use bridge_protocol::ConversationRef;
use bridge_protocol::conversation::ConversationState;
use bridge_protocol::event::Event;
use bridge_protocol::method;
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use super::connect::{Daemon, DaemonConnector};
use super::event_stream::EventStream;
use super::humanize;
use super::output::{BAD, DIM, GOOD, Output, STRONG, one_line};
use super::problem::{CommandResult, Exit, Problem};
use super::signals::termination_signal;
use super::start::{self, DaemonOptions};
use crate::paths::{Environment, Paths, shell_word};

/// Run a self-checking demo in a temporary folder
///
/// Takes about a minute. Plays a conversation that loses its agent session in several ways, and checks each time that the agent
/// still has the whole history. Your own conversations and agents are not used.
#[derive(Debug, Args)]
pub(in crate::cli) struct Demo {
    /// Keep the temporary folder
    #[arg(long)]
    pub(in crate::cli) keep: bool,
}

/// The directive that makes the built-in agent return the history that it runs on.
const RECALL: &str = "[[recall]]";

/// Replaces, in lists of prompts, a prompt that the daemon wrote to continue a turn or to pass an answer on.
const AUTOMATIC_PROMPT: &str = "(automatic)";

/// How long one command may take. Most take milliseconds; one that waits for a limit takes some seconds.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);

/// The signal of the system that the output has no reader.
const SIGPIPE: u8 = 13;

const INTRODUCTION: &str = "\
The main job: one conversation that outlives the sessions under it.

A small built-in agent plays the coding agent; [[words in brackets]] make it misbehave. Each line with $ is a command that you \
could type. The prompt [[recall]] asks the agent which turns it has before it: that is the proof in each step, and a turn itself, \
so that it is counted the next time.";

/// Printed before the demonstration, on a terminal.
const DURATION: &str = "\
This takes about a minute. The demo has its own daemon in a temporary folder; your conversations and agents are not used. Ctrl-C \
ends it.
";

/// The steps. Each begins with `#` and its title; each line below is a verb and its arguments. [`DemoRun::run_step`] defines
/// the verbs.
const STEPS: &str = r#"
# A conversation and two turns
new The main job
say Remember the word heron
say [[tool read {"path":"a.rs"}]][[say I have read a.rs]]
whole
# A usage limit, after which the conversation continues automatically
limited Write the report [[limit 2]]
continues
whole
# A usage limit, after which the agent refuses the session
limited [[forget]][[limit 1]]
continues
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

/// Plays the demonstration.
///
/// # Errors
/// It cannot be set up, a signal stops it, or its output cannot be written. A failed check is printed, and the exit code is
/// then [`Exit::Failed`].
pub(super) async fn demo(output: &mut Output, options: &Demo) -> CommandResult {
    // From here on a signal does not end the process at once, so that the demonstration can be cleaned up first.
    let stopped = termination_signal()
        .map_err(|error| Problem::failed(format!("cannot listen for signals: {error}")))?;
    let mut play = DemoRun::set_up(output)?;
    let played = tokio::select! {
        // Checked first: Ctrl-C may also end a daemon that is being started, but that failure is not the cause.
        biased;
        number = stopped => {
            let name = match number {
                1 => "the end of its terminal (SIGHUP)",
                2 => "Ctrl-C",
                _ => "SIGTERM",
            };
            let what = format!("the demonstration was stopped by {name}");
            Err(Problem::new(Exit::Signal(number), what))
        }
        played = play.run_steps() => played,
    };
    // Clean up before reporting, because the output may be closed.
    let cleaned = play.clean_up(options.keep).await;
    let reported = played
        .and_then(|()| play.heading("Cleaning up"))
        .and_then(|()| match &cleaned {
            Ok(done) => play.check(true, done),
            Err(failed) => play.check(false, failed),
        });
    if let Err(problem) = reported {
        return Err(match problem.message {
            Some(_) => problem,
            // The output was closed before the end, so the demonstration has not shown a result.
            None => problem.with_exit(Exit::Signal(SIGPIPE)),
        });
    }
    if play.failed_checks > 0 {
        return Err(Problem::failed(format!("{} checks failed", play.failed_checks))
            .hint("sessionctl demo --keep keeps the folder, with the daemon's log in log/"));
    }
    let holds = play.output.look.paint(GOOD, "Every step holds.");
    play.output.line(&holds)
}

/// The history that the agent should remember.
#[derive(Clone, Debug, Default)]
struct ExpectedHistory {
    /// The prompts of the turns that ended well, in order, including the recalls.
    prompts: Vec<String>,
    /// Prompts of turns that were cut short, which the agent may or may not remember.
    cut_short: Vec<String>,
}

impl ExpectedHistory {
    /// Describes how the prompts that the agent remembers are wrong. Returns `None` if they are the whole history, once and in
    /// order.
    fn mismatch<'p>(&self, recalled: impl Iterator<Item = &'p str>) -> Option<String> {
        let prompts = recalled.map(|prompt| match humanize::mark_daemon_prompt(prompt) {
            Some(_) => AUTOMATIC_PROMPT,
            None => prompt,
        });
        let is_whole = |prompt: &&str| !self.cut_short.iter().any(|cut| cut == prompt);
        let kept: Vec<&str> = prompts.filter(is_whole).collect();
        (kept != self.prompts).then(|| format!("the agent remembers {kept:?} instead of {:?}", self.prompts))
    }
}

/// A run of the demonstration with its conversation.
struct DemoRun<'a> {
    connector: DaemonConnector,
    output: &'a mut Output,
    /// The temporary folder with all files of the demonstration.
    folder: PathBuf,
    /// How many numbered headings were printed so far.
    heading_count: u32,
    /// How many checks failed so far.
    failed_checks: u32,
    /// A connection attempt, which may be starting a daemon.
    pending_connection: Option<JoinHandle<CommandResult<Daemon>>>,
    /// The conversation's id, shortened as the program prints it.
    id: String,
    history: ExpectedHistory,
}

impl<'a> DemoRun<'a> {
    /// Creates a new private folder for a separate daemon: the user's data is not touched, and the user's configuration is not
    /// read. The folder's name is new each time, so that demonstrations do not interfere with each other.
    fn set_up(output: &'a mut Output) -> CommandResult<Self> {
        let temporary = std::env::temp_dir();
        let made = temporary.canonicalize().and_then(|temporary| {
            let folder = tempfile::Builder::new()
                .prefix("sessiond-demo-")
                .tempdir_in(temporary)?;
            fs::create_dir(project_folder(folder.path()))?;
            Ok(folder.keep())
        });
        let folder = made.map_err(|error| Problem::file_error("make a folder in", &temporary, &error))?;
        let reach = DaemonConnector {
            paths: Paths::resolve(Some(&folder), None, None, &Environment::default())?,
            is_socket_explicit: false,
            may_start: true,
            daemon_options: DaemonOptions {
                home: Some(folder.clone()),
                ..DaemonOptions::default()
            },
        };
        Ok(Self {
            connector: reach,
            output,
            folder,
            heading_count: 0,
            failed_checks: 0,
            pending_connection: None,
            id: String::new(),
            history: ExpectedHistory::default(),
        })
    }

    /// Stops the daemon, and removes the folder unless `keep` is set. Returns what was done, or what failed.
    async fn clean_up(&mut self, keep: bool) -> Result<String, String> {
        if let Some(connecting) = self.pending_connection.take() {
            // Wait for a daemon that is starting, so that it can be found and stopped. Whether the start succeeded does not
            // matter.
            drop(connecting.await);
        }
        let stopped = match self.command(&["stop"]) {
            Ok(mut stop) => stop.output().await.map_err(|error| error.to_string()),
            Err(problem) => Err(problem.text()),
        };
        let stopped = stopped.and_then(|ended| match ended.status.success() {
            true => Ok(()),
            false => Err(one_line(&String::from_utf8_lossy(&ended.stderr))),
        });
        let removed = match keep {
            true => Ok(format!("the folder is kept: {}", self.folder.display())),
            false => match fs::remove_dir_all(&self.folder) {
                Ok(()) => Ok("the folder is removed".to_owned()),
                Err(error) => Err(format!("the folder is removed: {error}")),
            },
        };
        stopped.map_err(|why| format!("the daemon stops: {why}"))?;
        removed
    }

    /// Plays all steps. A step that cannot be completed counts as failed, and the next one is tried.
    ///
    /// # Errors
    /// There is no daemon, or the output cannot be written.
    async fn run_steps(&mut self) -> CommandResult {
        if self.output.look.columns.is_some() {
            self.output.line(DURATION)?;
        }
        self.output.line(INTRODUCTION)?;
        self.connect().await?;
        for step in STEPS.split("\n# ").skip(1) {
            let mut lines = step.trim_end().lines();
            self.heading_count += 1;
            let title = lines.next().unwrap_or_default();
            self.heading(&format!("{}. {title}", self.heading_count))?;
            for line in lines {
                let (verb, text) = line.split_once(' ').unwrap_or((line, ""));
                match self.run_step(verb, text).await {
                    Err(Problem {
                        message: Some(message),
                        ..
                    }) => {
                        self.check(false, &message)?;
                        // The end of the daemon may have failed the step.
                        self.connect().await?;
                        break;
                    }
                    acted => acted?,
                }
            }
        }
        Ok(())
    }

    async fn run_step(&mut self, verb: &str, text: &str) -> CommandResult {
        let id = self.id.clone();
        match verb {
            "new" => {
                let call = ["new", "--agent", "loopback", "--title", text];
                let printed = self.run(&call, Exit::Success).await?;
                self.id = humanize::short(printed.trim());
                Ok(())
            }
            // A turn, named by how it ends.
            "say" => self.send(text, Exit::Success).await,
            "limited" => self.send(text, Exit::Limited).await,
            "crashes" => self.send(text, Exit::Agent).await,
            "asks" => self.send(text, Exit::QuestionOpen).await,
            // The conversation continues automatically.
            "continues" => {
                self.wait_for_turn_end().await?;
                self.check(true, "it continues without a command")
            }
            // The daemon is killed during a turn, which the waiting command then continues, or between two commands.
            "killed" => self.kill_during_turn(text).await,
            "kill" => self.kill_and_restart().await,
            "answer" => {
                self.run(&["answer", &id, "allow"], Exit::Success).await?;
                // A new turn passes the answer on.
                self.wait_for_turn_end().await
            }
            // The agent has the whole history in its context.
            "whole" => self.check_history().await,
            // A turn sent by the id of the first session, on a branch beside the conversation, and on one that replaces it.
            "by-old-id" => {
                let chain = self.run(&["chain", &id], Exit::Success).await?;
                self.run(&["close", &id], Exit::Success).await?;
                self.id = humanize::short(chain.split('\t').next().unwrap_or_default());
                let said = self.send(text, Exit::Success).await;
                self.id = id;
                said
            }
            "fork" => {
                let call = ["fork", &id, "--title", "Another way"];
                let branch = self.run(&call, Exit::Success).await?;
                let history = self.history.clone();
                self.id = humanize::short(branch.trim());
                let said = match self.send(text, Exit::Success).await {
                    Ok(()) => self.check_history().await,
                    failed => failed,
                };
                (self.id, self.history) = (id, history);
                said?;
                self.print("and the conversation that it came from, without the branch's turns:")
            }
            "fork-in-place" => {
                self.run(&["fork", &id, "--in-place"], Exit::Success).await?;
                self.send(text, Exit::Success).await
            }
            _ => self.run(&["tree", &id], Exit::Success).await.map(drop),
        }
    }

    /// Sends a prompt, checks that the turn ends with this exit code, and adds the prompt to the expected history.
    async fn send(&mut self, text: &str, exit: Exit) -> CommandResult {
        let id = self.id.clone();
        let flag = (exit == Exit::Limited).then_some("--wait-limit");
        let call: Vec<&str> = ["send", &id, text].into_iter().chain(flag).collect();
        self.run(&call, exit).await?;
        match exit {
            Exit::Success => self.history.prompts.push(text.to_owned()),
            _ => self.history.cut_short.push(text.to_owned()),
        }
        Ok(())
    }

    /// Waits for the end of a turn that the daemon began, and adds its prompt to the expected history.
    async fn wait_for_turn_end(&mut self) -> CommandResult {
        let daemon = self.connect().await?;
        let ended = async {
            let mut events =
                EventStream::start(&daemon, ConversationRef::new(self.id.as_str()), None).await?;
            loop {
                match events.next().await?.envelope.event {
                    // A turn whose session is still being opened does not run yet.
                    Event::Snapshot { conversation, .. }
                        if conversation.continuation.is_none()
                            && matches!(
                                conversation.state,
                                ConversationState::Idle | ConversationState::Failed
                            ) =>
                    {
                        break;
                    }
                    Event::TurnEnded { .. } => break,
                    _ => {}
                }
            }
            CommandResult::Ok(())
        };
        within_limit(ended).await??;
        self.history.prompts.push(AUTOMATIC_PROMPT.to_owned());
        Ok(())
    }

    /// Kills the daemon in the middle of a turn. The command that waits for the turn continues it.
    async fn kill_during_turn(&mut self, text: &str) -> CommandResult {
        let id = self.id.clone();
        let call = ["send", &id, text];
        let mut child = self.spawn(&call)?;
        let mut begun = [0; 5];
        if let Some(stdout) = &mut child.stdout {
            let read = within_limit(stdout.read_exact(&mut begun)).await?;
            read.map_err(|error| Problem::failed(format!("the turn does not begin: {error}")))?;
        }
        self.print(&String::from_utf8_lossy(&begun))?;
        self.history.cut_short.push(text.to_owned());
        self.history.prompts.push(AUTOMATIC_PROMPT.to_owned());
        self.kill_and_restart().await?;
        self.check_exit(child, &call, Exit::Success).await.map(drop)
    }

    /// Kills the daemon's process and starts another one.
    async fn kill_and_restart(&mut self) -> CommandResult {
        let pid = self.daemon_pid().await?;
        self.print(&format!("$ kill -KILL {pid}    (the daemon's process)"))?;
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let killed = process.map(|process| kill_process(process, Signal::KILL));
        if killed != Some(Ok(())) {
            let what = format!("cannot kill the daemon {pid}: {killed:?}");
            return Err(Problem::failed(what));
        }
        start::wait_for_daemon_end(&self.connector.paths).await?;
        let is_another = self.daemon_pid().await? != pid;
        self.check(is_another, "another daemon was started and answers")
    }

    /// The process of the daemon that answers. The lock file is not used: it may name a process that has ended, whose id
    /// another process has now.
    async fn daemon_pid(&mut self) -> CommandResult<u32> {
        let daemon = self.connect().await?;
        Ok(daemon.call(method::Status::default()).await?.pid)
    }

    /// Checks that the agent runs on the whole history. The check is a turn itself, which then belongs to the history.
    async fn check_history(&mut self) -> CommandResult {
        /// One turn of the history that the agent runs on: the prompt's text as it was sent.
        #[derive(Deserialize)]
        struct Recalled {
            user: String,
        }
        let id = self.id.clone();
        let answer = self.run(&["send", &id, RECALL], Exit::Success).await?;
        let recalled: Vec<Recalled> = serde_json::from_str(answer.trim()).map_err(|error| {
            let what = format!("the agent's recall is not what it should be: {error}: {answer}");
            Problem::failed(what)
        })?;
        let fault = self
            .history
            .mismatch(recalled.iter().map(|turn| turn.user.as_str()));
        let turns = humanize::count(recalled.len() as u64, "turn", "turns");
        let what = format!("the agent has the whole history before it: {turns}, in order");
        self.history.prompts.push(RECALL.to_owned());
        self.check(fault.is_none(), &fault.unwrap_or(what))
    }

    /// Connects to the daemon, and starts it if none runs. A start that has begun is finished even if the future is dropped, so
    /// that [`clean_up`](Self::clean_up) can stop the daemon.
    async fn connect(&mut self) -> CommandResult<Daemon> {
        let reach = self.connector.clone();
        let connecting = tokio::spawn(async move { reach.connect().await });
        let connected = self.pending_connection.insert(connecting).await;
        self.pending_connection = None;
        connected.map_err(|error| Problem::failed(error.to_string()))?
    }

    /// Runs a command of this program, prints the command and its output, and returns its standard output.
    async fn run(&mut self, call: &[&str], exit: Exit) -> CommandResult<String> {
        let child = self.spawn(call)?;
        self.check_exit(child, call, exit).await
    }

    fn spawn(&mut self, call: &[&str]) -> CommandResult<Child> {
        let line: Vec<String> = call.iter().map(|word| shell_word(word)).collect();
        let line = format!("$ sessionctl {}", line.join(" "));
        let line = self.output.look.paint(STRONG, &line);
        self.print(&line)?;
        let spawned = self.command(call)?.spawn();
        spawned.map_err(|error| Problem::failed(format!("cannot run this program: {error}")))
    }

    /// Builds a command of this program that uses the demonstration's daemon.
    fn command(&self, call: &[&str]) -> CommandResult<Command> {
        let mut command = Command::new(start::this_program()?);
        // The demonstration starts the daemon itself, so that it can stop it.
        command.args(["--no-start", "--home"]).arg(&self.folder);
        command.args(call).current_dir(project_folder(&self.folder));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
        Ok(command)
    }

    async fn check_exit(&mut self, child: Child, call: &[&str], exit: Exit) -> CommandResult<String> {
        let ended = within_limit(child.wait_with_output()).await?;
        let Ended {
            status,
            stdout,
            stderr,
        } = ended.map_err(|error| Problem::failed(format!("cannot wait for it: {error}")))?;
        let look = self.output.look;
        let printed = String::from_utf8_lossy(&stdout).into_owned();
        let notes = String::from_utf8_lossy(&stderr).into_owned();
        let recalls = call.contains(&RECALL);
        // If the command was watched until its turn began, the output may begin with the rest of a line.
        let printed_lines = printed.lines().skip_while(|line| line.is_empty());
        for line in printed_lines.filter(|_| !recalls).chain(notes.lines()) {
            self.print(&look.paint(DIM, &look.sanitize(line)))?;
        }
        let code = i32::from(exit.code());
        if status.code() != Some(code) {
            let what = format!("{}: {status} instead of {code}", one_line(&call.join(" ")));
            return Err(Problem::failed(what));
        }
        if exit != Exit::Success {
            self.check(true, &format!("exit code {code} reports it"))?;
        }
        Ok(printed)
    }

    fn heading(&mut self, title: &str) -> CommandResult {
        let heading = self.output.look.paint(STRONG, title);
        self.output.line(&format!("\n{heading}"))
    }

    /// Prints what happens.
    fn print(&mut self, text: &str) -> CommandResult {
        self.output.line(&format!("   {text}"))
    }

    /// Prints whether a check succeeded.
    fn check(&mut self, holds: bool, what: &str) -> CommandResult {
        self.failed_checks += u32::from(!holds);
        let verdict = match holds {
            true => self.output.look.paint(GOOD, "ok"),
            false => self.output.look.paint(BAD, "FAILED"),
        };
        self.print(&format!("{verdict}: {what}"))
    }
}

/// The folder that the agent works in.
fn project_folder(folder: &Path) -> PathBuf {
    folder.join("project")
}

/// The output of a future, unless that takes too long.
async fn within_limit<T>(awaited: impl Future<Output = T>) -> CommandResult<T> {
    tokio::time::timeout(COMMAND_LIMIT, awaited).await.map_err(|_| {
        let what = format!("it has not ended after {} s", COMMAND_LIMIT.as_secs());
        Problem::failed(what)
    })
}

#[cfg(test)]
mod tests {
    use super::{AUTOMATIC_PROMPT, ExpectedHistory, RECALL};
    use bridge_protocol::turn::CONTINUE_PROMPT;

    /// It must see what is missing, doubled or out of order.
    #[test]
    fn only_the_whole_history_once_and_in_order_is_right() {
        let history = ExpectedHistory {
            prompts: ["one", RECALL, AUTOMATIC_PROMPT, "two"]
                .map(str::to_owned)
                .to_vec(),
            cut_short: vec!["crashed".to_owned()],
        };
        let table: [(&[&str], bool); 9] = [
            (&["one", RECALL, CONTINUE_PROMPT, "two"], true),
            (&["one", RECALL, "crashed", CONTINUE_PROMPT, "two"], true),
            (&["one", RECALL, "two"], false),
            (&["one", CONTINUE_PROMPT, "two"], false),
            (&["one"], false),
            (&["two", RECALL, CONTINUE_PROMPT, "one"], false),
            (&["one", RECALL, CONTINUE_PROMPT, "two", "two"], false),
            (&["one", RECALL, CONTINUE_PROMPT, CONTINUE_PROMPT, "two"], false),
            (&[], false),
        ];
        for (prompts, right) in table {
            let fault = history.mismatch(prompts.iter().copied());
            assert_eq!(fault.is_none(), right, "{prompts:?}");
        }
    }
}
