//! The definition of the command line: the program, its global options, and its commands.
//!
//! It owns what all commands share. Each command's module defines its arguments. Help, completions and manual pages are
//! generated from these definitions.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};

use super::commands::{
    Context, Filter, acp, adopt, archive, create, doctor, export_import, generate, history, inspect,
    lifecycle, list, mv, set,
};
use super::demo;
use super::output::one_line;
use super::problem::{CommandResult, Problem};
use super::select::ConversationArgs;
use super::start::DaemonOptions;
use super::talk::{answer, chat, continuation, edit, send};
use crate::paths;

/// Continue conversations with coding agents across limits and crashes
///
/// CONV names a conversation: its id, an agent session id that it has used, the first 6 or more characters of either, part of
/// its title, or . for the conversation last used in this folder. On a terminal, omit CONV to pick one. Commands start the
/// daemon, sessiond, if it is not running.
#[derive(Debug, Parser)]
#[command(
    name = "sessionctl",
    version,
    max_term_width = 100,
    help_template = TEMPLATE,
    after_help = AFTER_HELP,
    after_long_help = format!("{AFTER_HELP}\n\n{VARIABLES}\n{}", paths::HELP),
)]
pub(super) struct Arguments {
    /// Options of every command.
    #[command(flatten)]
    pub(super) global: Global,
    /// The command.
    #[command(subcommand)]
    pub(super) command: Option<Command>,
    /// The name of the command.
    #[arg(skip)]
    pub(super) name: Option<String>,
}

/// clap's default layout, in which the groups of [`GROUPS`] (`before-help`) replace the list of commands.
const TEMPLATE: &str =
    "{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}Options:\n{options}{after-help}";

const AFTER_HELP: &str = "\
Without a command, on a terminal, sessionctl lets you pick or start a conversation and chat in it.

Examples:
  sessionctl new --title 'First steps'
  sessionctl send . 'Hello there'
  sessionctl history .

Exit codes: 0 done, 1 failed, 2 usage, 3 no daemon, 4 not found, 5 busy or conflict, 6 agent failure, 7 limited, \
8 unanswered question.

sessionctl help COMMAND describes a command and its options. sessionctl demo is a tour.";

const VARIABLES: &str = "\
Environment:
  VISUAL, EDITOR
    Editor for sessionctl edit
  PAGER
    Pager on a terminal (default: less). Set it to an empty value for no pager
  NO_COLOR
    If set, print without color
  LC_ALL, LC_CTYPE, LANG
    Locale. Symbols beyond ASCII are printed only in a UTF-8 locale";

/// The heading of the options that every command has.
const GLOBAL: &str = "Global options";

/// Options accepted before or after the command.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = GLOBAL)]
pub(super) struct Global {
    /// Which daemon.
    #[command(flatten)]
    pub(super) launch: DaemonOptions,
    /// Do not start the daemon; fail if it is not running
    #[arg(long, global = true)]
    pub(super) no_start: bool,
    /// Print results as JSON, one object per line. A long list has one object per page; a stream has one per event and then the
    /// result, each with its type
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// When to print in color
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(super) color: ColorChoice,
    /// Do not ask for confirmation
    #[arg(long, short, global = true)]
    pub(super) yes: bool,
    /// Print only results and errors
    #[arg(long, short, global = true)]
    pub(super) quiet: bool,
    /// Log each request to standard error; -vv logs all messages
    #[arg(long, short, global = true, action = clap::ArgAction::Count, conflicts_with = "quiet")]
    pub(super) verbose: u8,
}

/// The command.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Talk to an agent
    Chat(chat::Chat),
    /// Send a prompt and print the answer
    Send(send::Send),
    /// Follow a conversation as it happens
    #[command(after_help = answer::ATTACH_HELP)]
    Attach(ConversationArgs),
    /// Answer a question from the agent
    Answer(answer::Answer),
    /// Stop the running turn
    Cancel(answer::Cancel),
    /// Continue turns that were cut short, now or at a time
    #[command(alias = "recover")]
    Continue(continuation::Continue),
    /// Open the agent session without sending a prompt
    Resume(ConversationArgs),
    /// List conversations, those of this folder first
    #[command(alias = "list")]
    Ls(list::List),
    /// Show the details of a conversation
    Show(ConversationArgs),
    /// Show the messages of a conversation
    ///
    /// Prints the oldest message first; with -n, starts at a prompt. Each tool call is shortened to one line. On a terminal, each
    /// prompt has the number of its turn, for fork --at and edit --at.
    History(history::HistoryArgs),
    /// Draw a conversation with its sessions and forks
    ///
    /// Below each session are its newest turns, numbered as in the history. The numbers include failed and cancelled turns, which do
    /// not count as completed.
    Tree(ConversationArgs),
    /// List the turns to fork from or to edit, newest first
    Checkpoints(history::HistoryArgs),
    /// List agent transcripts on this machine, newest first
    ///
    /// Every word must occur in the title, folder, path or id; case is ignored.
    Transcripts(Filter),
    Adopt(adopt::Adopt),
    New(create::New),
    Fork(create::Fork),
    /// Replace an earlier prompt and print the new answer
    Edit(edit::Edit),
    /// Undo the last edit, in-place fork, move or reset
    ///
    /// Run it again to undo the change before that one. To undo the move of a project folder, use sessionctl mv --undo.
    Undo(ConversationArgs),
    Set(set::Set),
    #[command(hide = true)]
    Rename(set::Rename),
    Mv(mv::Mv),
    /// Start an empty session; can be undone
    ///
    /// The next prompt starts without the history. To bring the history back, use sessionctl undo.
    Reset(ConversationArgs),
    /// Close the agent session until the next prompt
    Close(ConversationArgs),
    #[command(aliases = ["remove", "delete"])]
    Rm(lifecycle::Remove),
    #[command(subcommand)]
    Archive(archive::Archive),
    /// Back up transcripts now, as archive add
    #[command(hide = true)]
    Keep(archive::ArchiveArgs),
    /// Restore deleted transcripts, as archive restore
    #[command(hide = true)]
    Restore(archive::ArchiveArgs),
    Check(adopt::Check),
    Export(export_import::Export),
    Import(export_import::Import),
    /// List the agent sessions that make up a conversation
    ///
    /// The last session is the head, which the next prompt resumes. Sessions marked undone belong to an undone edit, fork or reset.
    /// Failed and cancelled turns are in the history, but do not count as completed.
    Chain(ConversationArgs),
    /// Show the log of all changes to a conversation's sessions
    ///
    /// Lists the oldest change first. Includes sessions that chain no longer lists, and failed attempts to reopen a session.
    Lineage(ConversationArgs),
    /// List the configured agents
    Agents,
    Doctor(doctor::Doctor),
    /// Show daemon status
    Status,
    Start(lifecycle::Start),
    Stop(lifecycle::Stop),
    Acp(acp::Acp),
    Demo(demo::Demo),
    Completions(generate::Completions),
    Man(generate::Man),
    #[command(hide = true)]
    Generate(generate::Generate),
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// The command failed; the problem has the message and the exit code.
    pub(super) async fn run(self, context: &mut Context<'_>) -> CommandResult {
        let is_text = matches!(
            self,
            Self::Acp(_) | Self::Demo(_) | Self::Completions(_) | Self::Man(_) | Self::Generate(_)
        );
        if is_text && context.output.json {
            let name = context.command.as_deref().unwrap_or_default();
            return Err(Problem::usage(format!("{name} prints text and has no --json"))
                .hint(format!("see its options: sessionctl help {name}")));
        }
        match self {
            Self::Chat(options) => chat::chat(context, options).await,
            Self::Send(options) => send::send(context, options).await,
            Self::Attach(target) => answer::attach(context, target).await,
            Self::Answer(options) => answer::answer(context, options).await,
            Self::Cancel(options) => answer::cancel(context, options).await,
            Self::Continue(options) => continuation::continue_(context, options).await,
            Self::Resume(target) => answer::resume(context, target).await,
            Self::Ls(options) => list::list(context, options).await,
            Self::Show(target) => inspect::show(context, target).await,
            Self::History(past) => history::history(context, past).await,
            Self::Tree(target) => inspect::tree(context, target).await,
            Self::Checkpoints(past) => history::checkpoints(context, past).await,
            Self::Transcripts(options) => list::transcripts(context, options).await,
            Self::Adopt(options) => adopt::adopt(context, options).await,
            Self::New(new) => create::new(context, new).await,
            Self::Fork(fork) => create::fork(context, fork).await,
            Self::Edit(options) => edit::edit(context, options).await,
            Self::Undo(target) => edit::undo(context, target).await,
            Self::Set(set) => set::set(context, set).await,
            Self::Rename(rename) => set::rename(context, rename).await,
            Self::Mv(options) => mv::mv(context, options).await,
            Self::Reset(target) => lifecycle::reset(context, &target).await,
            Self::Close(target) => lifecycle::close(context, &target).await,
            Self::Rm(remove) => lifecycle::remove(context, remove).await,
            Self::Archive(command) => archive::archive(context, command).await,
            Self::Keep(subject) => archive::archive(context, archive::Archive::Add(subject)).await,
            Self::Restore(subject) => archive::archive(context, archive::Archive::Restore(subject)).await,
            Self::Check(options) => adopt::check(context, options).await,
            Self::Export(options) => export_import::export(context, options).await,
            Self::Import(options) => export_import::import(context, options).await,
            Self::Chain(target) => inspect::chain(context, target).await,
            Self::Lineage(target) => inspect::lineage(context, target).await,
            Self::Agents => inspect::agents(context).await,
            Self::Doctor(options) => doctor::doctor(context, options).await,
            Self::Status => inspect::status(context).await,
            Self::Start(start) => lifecycle::start(context, &start).await,
            Self::Stop(stop) => lifecycle::stop(context, stop).await,
            Self::Acp(options) => acp::acp(context, options).await,
            Self::Demo(options) => demo::demo(context.output, &options).await,
            Self::Completions(options) => generate::completions(context, &options),
            Self::Man(options) => generate::man(context, &options),
            Self::Generate(options) => generate::generate(context, &options),
        }
    }
}

/// The commands under the headings of the help: clap prints all subcommands under one heading.
const GROUPS: [(&str, &str); 6] = [
    ("Talk", "chat send attach answer cancel"),
    ("Continue", "continue resume"),
    ("Find", "ls show history tree checkpoints transcripts adopt"),
    ("Change", "new fork edit undo set mv reset close rm"),
    ("Keep", "archive check export import chain lineage"),
    (
        "Set up",
        "agents doctor status start stop acp demo completions man",
    ),
];

/// Whether the help lists this command.
pub(super) fn is_command(name: &str) -> bool {
    GROUPS
        .iter()
        .any(|(_, names)| names.split(' ').any(|one| one == name))
}

/// Destructive commands. Neither these nor hidden commands are suggested for a mistyped one.
const DESTRUCTIVE: [&str; 4] = ["rm", "reset", "prune", "stop"];

/// The definition of the command line.
pub(super) fn command() -> clap::Command {
    let command = Arguments::command();
    let groups = groups(&command);
    command.before_help(groups)
}

/// Lists the commands under their headings, in the styles of the help.
fn groups(program: &clap::Command) -> StyledStr {
    let styles = program.get_styles();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let names = GROUPS.iter().flat_map(|(_, names)| names.split(' '));
    let width = names.map(str::len).max().unwrap_or_default();
    let groups = GROUPS.map(|(heading, names)| {
        let lines = names.split(' ').map(|name| {
            let about = program.find_subcommand(name).and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            format!("\n  {literal}{name:width$}{literal:#}  {about}")
        });
        format!("{header}{heading}:{header:#}{}", lines.collect::<String>())
    });
    groups.join("\n\n").into()
}

/// Parses a command line.
///
/// # Errors
/// clap's error for an invalid command line or a request for help. It can print itself.
pub(super) fn parse(line: &[OsString]) -> Result<Arguments, clap::Error> {
    let mut command = command();
    let parsed = command.try_get_matches_from_mut(line);
    let mut matches = parsed.map_err(|error| without_harmful_suggestions(error, &command))?;
    let name = matches.subcommand_name().map(str::to_owned);
    let arguments = Arguments::from_arg_matches_mut(&mut matches);
    let arguments = arguments.map_err(|error| error.format(&mut command))?;
    Ok(Arguments { name, ..arguments })
}

/// Whether this is a request for help or the version, and not an error.
pub(super) fn is_help(error: &clap::Error) -> bool {
    !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

/// The problem of an invalid command line: clap's message and tip, and the command that shows the help.
pub(super) fn invalid_call(error: &clap::Error, line: &[OsString]) -> Problem {
    let text = error.render().to_string();
    // clap prints the usage after its message. The help contains it too.
    let sentence = text.split("\n\n").next().unwrap_or_default();
    let sentence = one_line(sentence.trim_start_matches("error: "));
    let mut tip = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix("tip: "));
    let is_empty = matches!(error.get(ContextKind::InvalidValue), Some(ContextValue::String(value)) if value.is_empty())
        && line
            .iter()
            .any(|word| word.is_empty() || word.as_encoded_bytes().ends_with(b"="));
    tip = tip.or(is_empty.then_some("an empty value was given, perhaps from a variable that is not set"));
    let called = command().ignore_errors(true).try_get_matches_from(line).ok();
    let called = called.and_then(|called| called.subcommand_name().map(str::to_owned));
    if let (Some(name), Some(ContextValue::String(unknown))) =
        (called.as_deref(), error.get(ContextKind::InvalidArg))
        && error.kind() == ErrorKind::UnknownArgument
    {
        // Other programs accept a title here.
        if name == "new" && !unknown.starts_with('-') {
            let title = paths::shell_word(unknown);
            return Problem::usage(sentence)
                .hint(format!("to give it a title: sessionctl new --title {title}"));
        }
        if let Some((option, value)) = value_with_dash(name, unknown, line) {
            let value = paths::shell_word(&value);
            return Problem::usage(sentence).hint(format!(
                "pass a value that begins with a dash as {option}={value}"
            ));
        }
        // clap has only one tip, which is wrong for a command that takes no text.
        tip = tip.filter(|_| takes_text(name));
    }
    let help = called.map_or_else(
        || "list the commands: sessionctl help".to_owned(),
        |name| format!("see its arguments: sessionctl help {name}"),
    );
    Problem::usage(sentence).hint(tip.map_or(help.clone(), |tip| format!("{tip}; {help}")))
}

/// If an unknown argument begins with a dash and is the value of the option before it, returns both.
fn value_with_dash(name: &str, unknown: &str, line: &[OsString]) -> Option<(String, String)> {
    let command = command();
    let mut options = command.find_subcommand(name)?.get_opts();
    let pairs = line
        .windows(2)
        .map(|pair| (pair[0].to_string_lossy(), pair[1].to_string_lossy()));
    let (option, value) = pairs.rev().find(|(_, value)| value.starts_with(unknown))?;
    let long = option.strip_prefix("--")?;
    let is_known = options.any(|known| known.get_long() == Some(long) && known.get_action().takes_values());
    is_known.then(|| (option.to_string(), value.to_string()))
}

/// Whether a command accepts any number of words.
fn takes_text(name: &str) -> bool {
    let command = command();
    let command = command.find_subcommand(name);
    let mut last = command.into_iter().flat_map(clap::Command::get_positionals);
    last.any(|last| last.get_num_args().is_some_and(|count| count.max_values() > 1))
}

fn without_harmful_suggestions(mut error: clap::Error, command: &clap::Command) -> clap::Error {
    // Neither a hidden command nor an alias: the help does not say what it does.
    let is_shown = |name: &str| {
        let is_it = |command: &clap::Command| command.get_name() == name && !command.is_hide_set();
        command.get_subcommands().any(is_it)
    };
    if let Some(ContextValue::Strings(mut names)) = error.remove(ContextKind::SuggestedSubcommand) {
        names.retain(|name| !DESTRUCTIVE.contains(&name.as_str()) && is_shown(name));
        if !names.is_empty() {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(names));
        }
    }
    error
}

#[cfg(test)]
mod tests;
