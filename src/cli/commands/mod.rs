//! The commands: each asks the daemon and says what it answered.
//!
//! It owns what a command is made of: a connection and the streams. It must not decide anything that the daemon decides.

pub(super) mod adopt;
pub(super) mod attach;
mod carry;
mod doctor;
mod edit;
mod generate;
mod go_on;
mod keep;
pub(super) mod list;
mod look;
mod make;
mod man;
mod mv;
pub(super) mod past;
mod send;
mod steer;
pub(super) mod transcripts;
mod tree;
mod view;

use bridge_protocol::{AgentName, ConversationRef, ErrorKind};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::args::Command;
use super::connect::{Daemon, Reach};
use super::demo;
use super::exit::Exit;
use super::manual::Definition;
use super::output::Output;
use super::problem::{Outcome, Problem};
use super::select;
use super::words::Clock;
pub(super) use tree::related;

/// What every command is given.
pub(super) struct Context<'a> {
    /// How the daemon is found.
    pub(super) reach: Reach,
    /// Where to write.
    pub(super) output: &'a mut Output,
    /// The daemon's command line.
    pub(super) daemon: Definition,
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
                "a daemon that runs already has another configuration file: {} is not used (sessionctl stop ends that \
                 daemon)",
                config.display()
            ))?;
        }
        Ok(daemon)
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
    // Otherwise it is the conversation's own folder.
    let takes_folder = matches!(command, Command::New(_) | Command::Adopt(_) | Command::Import(_));
    match carried_out(command, context).await {
        Err(problem) if takes_folder && problem.kind() == Some(ErrorKind::InvalidCwd) => {
            Err(problem.hint("name a folder that exists: --cwd DIR"))
        }
        done => done,
    }
}

async fn carried_out(command: Command, context: &mut Context<'_>) -> Outcome<Exit> {
    match command {
        Command::New(new) => make::new(context, new).await,
        Command::Fork(fork) => make::fork(context, fork).await,
        Command::Edit(options) => edit::edit(context, options).await,
        Command::Undo(one) => edit::undo(context, &one).await,
        Command::Mv(options) => mv::mv(context, options).await,
        Command::Rename(rename) => make::rename(context, rename).await,
        Command::Ls(options) => list::list(context, options).await,
        Command::Transcripts(options) => transcripts::transcripts(context, options).await,
        Command::Show(one) => look::show(context, one).await,
        Command::Chain(one) => look::chain(context, one).await,
        Command::Lineage(one) => look::lineage(context, one).await,
        Command::Checkpoints(past) => past::checkpoints(context, past).await,
        Command::History(past) => past::history(context, past).await,
        Command::Agents => look::agents(context).await,
        Command::Status => look::status(context).await,
        Command::Send(options) => send::send(context, options).await,
        Command::Attach(one) => attach::attach(context, &one.conversation).await,
        Command::Continue(options) => go_on::continue_at(context, options).await,
        Command::Recover(options) => go_on::recover(context, options).await,
        Command::Cancel(cancel) => steer::cancel(context, cancel).await,
        Command::Resume(one) => steer::resume(context, &one.conversation).await,
        Command::Answer(answer) => steer::answer(context, answer).await,
        Command::Close(one) => steer::close(context, &one.conversation).await,
        Command::Reset(one) => steer::reset(context, &one.conversation).await,
        Command::Rm(remove) => steer::remove(context, remove).await,
        Command::Doctor(options) => doctor::doctor(context, options).await,
        Command::Stop(stop) => steer::stop(context, stop).await,
        Command::Adopt(options) => adopt::adopt(context, options).await,
        Command::Check(options) => adopt::check(context, options).await,
        Command::Keep(options) => keep::keep(context, options).await,
        Command::Restore(options) => keep::restore(context, options).await,
        Command::Export(options) => carry::export(context, options).await,
        Command::Import(options) => carry::import(context, options).await,
        Command::Tree(one) => tree::tree(context, one).await,
        Command::Demo(options) => demo::demo(context.output, &options).await,
        Command::Generate(options) => generate::generate(context, &options),
        Command::Completions(options) => generate::completions(context, &options),
        Command::Man(options) => man::man(context, &options),
    }
}

/// The id of the conversation that a word means.
async fn conversation_ref(daemon: &Daemon, word: &str) -> Outcome<ConversationRef> {
    Ok(select::resolve(daemon, word).await?.id.into())
}

/// The fewest characters that an id may be shortened to.
const LEAST_ID_CHARS: usize = 6;

/// The most that is asked for at once; the daemon's own limit of a page.
const PAGE: usize = 500;

/// Collects the entries of all pages, `most` at most, and whether there are more.
///
/// # Errors
/// What a call for a page answers.
async fn pages<T, Cursor>(
    most: usize,
    mut page: impl AsyncFnMut(Option<Cursor>, Option<u32>) -> Outcome<(Vec<T>, Option<Cursor>)>,
) -> Outcome<(Vec<T>, bool)> {
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let limit = (most - all.len()).clamp(1, PAGE);
        let (entries, next) = page(cursor, u32::try_from(limit).ok()).await?;
        let is_over = entries.is_empty() || next.is_none();
        all.extend(entries);
        if is_over || all.len() >= most {
            return Ok((all, !is_over));
        }
        cursor = next;
    }
}

/// The present moment in the user's time zone.
fn clock() -> Clock {
    Clock {
        now: Timestamp::now(),
        zone: TimeZone::system(),
    }
}

/// The first few of several candidates, as an error lists them.
pub(super) fn some_of(mut candidates: impl Iterator<Item = String>) -> String {
    let first: Vec<String> = candidates.by_ref().take(5).collect();
    let more = if candidates.next().is_some() { ", …" } else { "" };
    format!("{}{more}", first.join(", "))
}

/// The same problem; if it is about an agent that does not exist, with the command that lists them.
fn unknown_agent(problem: Problem, agent: Option<&AgentName>) -> Problem {
    let is_it = |agent: &AgentName| {
        let message = problem.message.as_deref().unwrap_or_default();
        message.starts_with(&format!("there is no agent {:?}", agent.as_str()))
    };
    match agent.is_some_and(is_it) {
        true => problem.hint("sessionctl agents lists them"),
        false => problem,
    }
}

/// The current folder, as it is sent to the daemon.
pub(super) fn this_folder() -> Outcome<String> {
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
fn real_folder(folder: &std::path::Path) -> Outcome<String> {
    let resolved = folder.canonicalize().or_else(|_| std::path::absolute(folder));
    text_of(resolved.map_err(|error| Problem::file("use", folder, &error))?)
}

fn text_of(path: std::path::PathBuf) -> Outcome<String> {
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
