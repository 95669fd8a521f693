//! The commands: each asks the daemon and says what it answered.
//!
//! It owns what a command is made of: a connection and the streams. It must not decide anything that the daemon decides.

mod adopt;
mod astray;
mod carry;
mod doctor;
mod generate;
mod keep;
mod list;
mod look;
mod make;
mod man;
mod mv;
mod past;
mod steer;
mod transcripts;
mod tree;

use bridge_protocol::ConversationRef;
use bridge_protocol::client::Call as _;
use bridge_protocol::method;

use super::args::Command;
use super::connect::{Daemon, Reach};
use super::demo;
use super::exit::Exit;
use super::manual::Definition;
use super::output::Output;
use super::problem::{Outcome, Problem};
use super::talk;
use astray::Named;

pub(super) use past::{CHECKPOINT_PAGE, MESSAGE_PAGE, Pager};
pub(super) use tree::gather;

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
    let named = Named::by(&command);
    match carried_out(command, context).await {
        Err(problem) => Err(named.hinted(context, problem).await),
        done => done,
    }
}

async fn carried_out(command: Command, context: &mut Context<'_>) -> Outcome<Exit> {
    match command {
        Command::New(new) => make::new(context, new).await,
        Command::Fork(fork) => make::fork(context, fork).await,
        Command::Edit(options) => talk::edit::edit(context, options).await,
        Command::Undo(options) => talk::edit::undo(context, options).await,
        Command::Mv(options) => mv::mv(context, options).await,
        Command::Rename(rename) => make::rename(context, rename).await,
        Command::Ls(options) => list::list(context, options).await,
        Command::Transcripts(options) => transcripts::transcripts(context, options).await,
        Command::Show(one) => look::show(context, &one.conversation).await,
        Command::Chain(one) => look::chain(context, &one.conversation).await,
        Command::Lineage(one) => look::lineage(context, &one.conversation).await,
        Command::Checkpoints(past) => past::checkpoints(context, &past).await,
        Command::History(past) => past::history(context, &past).await,
        Command::Agents => look::agents(context).await,
        Command::Status => look::status(context).await,
        Command::Chat(options) => talk::chat::chat(context, options).await,
        Command::Send(options) => talk::send::send(context, options).await,
        Command::Attach(options) => talk::attach::attach(context, options).await,
        Command::Continue(options) => talk::continuing::continue_(context, options).await,
        Command::Cancel(options) => talk::answer::cancel(context, options).await,
        Command::Resume(options) => talk::answer::resume(context, options).await,
        Command::Answer(options) => talk::answer::answer(context, options).await,
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
        Command::Tree(one) => tree::tree(context, &one.conversation).await,
        Command::Demo(options) => demo::demo(context.output, &options).await,
        Command::Generate(options) => generate::generate(context, &options),
        Command::Completions(options) => generate::completions(context, &options),
        Command::Man(options) => man::man(context, &options),
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
        None => Err(Problem::new(
            Exit::NotFound,
            format!("there is no conversation in {folder} yet"),
        )
        .hint("sessionctl new makes one; sessionctl ls shows those of other folders")),
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
