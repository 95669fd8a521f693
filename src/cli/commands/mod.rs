//! The commands: each asks the daemon and says what it answered.
//!
//! It owns what a command is made of: a connection and the streams. It must not decide anything that the daemon decides.

pub(super) mod adopt;
pub(super) mod archive;
mod astray;
pub(super) mod attach;
pub(super) mod carry;
pub(super) mod doctor;
pub(super) mod edit;
pub(super) mod generate;
pub(super) mod go_on;
pub(super) mod lifecycle;
pub(super) mod list;
pub(super) mod look;
pub(super) mod make;
pub(super) mod man;
pub(super) mod mv;
pub(super) mod past;
pub(super) mod send;
pub(super) mod set;
pub(super) mod steer;
pub(super) mod transcripts;
pub(super) mod tree;
mod view;

use std::path::{Path, PathBuf};

use bridge_protocol::client::Call as _;
use bridge_protocol::method;
use bridge_protocol::{AgentName, ConversationRef};

use super::Definition;
use super::args::Command;
use super::connect::{Daemon, Reach};
use super::exit::Exit;
use super::output::{ATTENTION, Output};
use super::problem::{Outcome, Problem};
use astray::Named;

pub(super) use tree::gather;

/// What every command is given.
pub(super) struct Context<'a> {
    /// How the daemon is found.
    pub(super) reach: Reach,
    /// Where to write.
    pub(super) output: &'a mut Output,
    /// The daemon's command line.
    pub(super) daemon: Definition,
    /// Whether not to ask before something is deleted.
    pub(super) yes: bool,
}

impl Context<'_> {
    /// Connects, and starts a daemon when none answers. Tells when one answers that does not use the file of `--config`.
    ///
    /// # Errors
    /// See [`Reach::connect`].
    pub(super) async fn connect(&mut self) -> Outcome<Daemon> {
        let daemon = self.reach.connect().await?;
        if let Some(config) = &self.reach.launch.config
            && daemon.has_other_config(config)
        {
            self.output.note(&format!(
                "the running daemon has another configuration file: {} is not used (to restart it: sessionctl stop)",
                config.display()
            ))?;
        }
        Ok(daemon)
    }

    /// Warns that the built-in agent answers, which only echoes, if that is because no coding agent is installed.
    pub(super) async fn warn_of_echo(&mut self, daemon: &Daemon, agent: &AgentName) -> Outcome {
        let known = daemon.call(method::ListAgents::default()).await?;
        let is_real = |kind: &str| kind != "loopback";
        let answers = known.agents.iter().find(|known| known.name == *agent);
        if answers.is_none_or(|agent| is_real(&agent.kind))
            || known
                .agents
                .iter()
                .any(|agent| agent.found && is_real(&agent.kind))
        {
            return Ok(());
        }
        let mark = self.output.note_look.paint(ATTENTION, "warning:");
        let how = known.install.values().next().map_or_else(String::new, |line| {
            format!(" To install one: {line} && sessionctl stop")
        });
        self.output.note(&format!(
            "{mark} no coding agent is installed, so the built-in echo answers.{how}"
        ))
    }

    /// Says what was done, or prints the answer of the method if JSON was asked for.
    pub(super) fn done(&mut self, daemon: &Daemon, method: &str, what: &str) -> Outcome<Exit> {
        if self.output.json {
            self.answer(daemon, method)?;
        } else {
            self.output.note(what)?;
        }
        Ok(Exit::Done)
    }

    /// Prints the bytes of the last answer of a method.
    pub(super) fn answer(&mut self, daemon: &Daemon, method: &str) -> Outcome {
        match daemon.answer(method) {
            Some(answer) => self.output.raw(&answer),
            None => Ok(()),
        }
    }
}

/// Carries a command out.
///
/// # Errors
/// When it did not work; what is to be told and the exit code are in the problem.
pub(super) async fn run(command: Command, context: &mut Context<'_>) -> Outcome<Exit> {
    let named = Named::by(&command);
    match command.run(context).await {
        Err(problem) => Err(named.hinted(context, problem).await),
        done => done,
    }
}

/// What the word for a conversation means: `.` is the newest one of this folder, anything else is the daemon's to look
/// up.
pub(super) async fn conversation_ref(daemon: &Daemon, word: &str) -> Outcome<ConversationRef> {
    if word != "." {
        return Ok(word.into());
    }
    let folder = this_folder()?;
    let page = daemon
        .call(method::ListConversations {
            cwd: Some(folder.clone()),
            limit: Some(1),
            ..Default::default()
        })
        .await?;
    match page.conversations.first() {
        Some(conversation) => Ok(conversation.id.into()),
        None => Err(
            Problem::new(Exit::NotFound, format!("no conversation in {folder} yet"))
                .hint("sessionctl new creates one; sessionctl ls lists those of other folders"),
        ),
    }
}

/// The current folder, as it is sent to the daemon.
fn this_folder() -> Outcome<String> {
    let folder = std::env::current_dir().map_err(|error| {
        Problem::new(
            Exit::Failed,
            format!("the current folder cannot be used: {error}"),
        )
    })?;
    text_of(folder)
}

/// The folder without symbolic links, so that it is the same whichever way it was named. One that does not exist stays
/// as it is: the daemon says what is wrong with it.
fn real_folder(folder: &Path) -> Outcome<String> {
    let resolved = folder.canonicalize().or_else(|_| std::path::absolute(folder));
    text_of(resolved.map_err(|error| Problem::file("use", folder, &error))?)
}

fn text_of(path: PathBuf) -> Outcome<String> {
    path.into_os_string().into_string().map_err(|path| {
        Problem::new(
            Exit::Usage,
            format!(
                "the path {} is not UTF-8 and cannot be sent",
                path.to_string_lossy()
            ),
        )
    })
}
