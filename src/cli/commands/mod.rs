//! The commands: each calls the daemon and prints the result.
//!
//! It owns what all commands use: a connection and the streams. It must not decide anything that the daemon decides.

pub(super) mod acp;
pub(super) mod adopt;
pub(super) mod archive;
pub(super) mod create;
pub(super) mod doctor;
pub(super) mod export_import;
pub(super) mod generate;
pub(super) mod history;
pub(super) mod inspect;
pub(super) mod lifecycle;
pub(super) mod list;
pub(super) mod mv;
pub(super) mod set;

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use bridge_protocol::ErrorKind;
use bridge_protocol::agent::AgentInfo;
use bridge_protocol::conversation::Conversation;
use bridge_protocol::method::{self, Method};
use bridge_protocol::raw::RawJson;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueHint};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::de::DeserializeOwned;

use super::CommandDefinition;
use super::complete;
use super::connect::{Daemon, DaemonConnector};
use super::humanize::{self, Clock};
use super::output::{ATTENTION, Output, one_line};
use super::problem::{CommandResult, Exit, Problem};
use super::progress::with_progress;
use super::select;
use crate::paths::shell_word;

pub(super) use history::{Pager, turns};

/// The context of a command.
pub(super) struct Context<'a> {
    /// Finds the daemon.
    pub(super) connector: DaemonConnector,
    /// The streams to write to.
    pub(super) output: &'a mut Output,
    /// The definition of the daemon's command line.
    pub(super) daemon_definition: CommandDefinition,
    /// Whether to delete without asking for confirmation.
    pub(super) yes: bool,
    /// The name of the command; `None` if the program was called without one, and the user picks a conversation to chat in.
    pub(super) command: Option<String>,
}

impl Context<'_> {
    /// Connects, and starts a daemon if none answers. Prints a note if the running daemon does not use the file of `--config`.
    ///
    /// # Errors
    /// See [`DaemonConnector::connect`].
    pub(super) async fn connect(&mut self) -> CommandResult<Daemon> {
        let (data, home) = (&self.connector.paths.data, &self.connector.daemon_options.home);
        // The option may be mistyped. Editors show what `acp` prints as an error.
        let is_new = home.is_some() && !data.exists() && self.command.as_deref() != Some("acp");
        let daemon = self.connector.connect().await?;
        if is_new && data.exists() {
            let what = format!("created a new data folder: {}", data.display());
            self.output.note_unedited(&what)?;
        }
        if let Some(config) = &self.connector.daemon_options.config
            && daemon.has_other_config(config)
        {
            let file = config.display();
            self.output.note(&match config.exists() {
                true => format!(
                    "the running daemon uses another configuration file, not {file} (to restart it: sessionctl stop)"
                ),
                false => format!("there is no configuration file {file}; the running daemon uses another one"),
            })?;
        }
        Ok(daemon)
    }

    /// Warns that the built-in agent only echoes, and explains how to use a coding agent. A conversation that already has a
    /// session gets no warning, and neither does a user who made the built-in agent the default although another is installed.
    pub(super) async fn warn_of_echo(
        &mut self,
        daemon: &Daemon,
        conversation: &Conversation,
    ) -> CommandResult {
        if conversation.head.is_some() {
            return Ok(());
        }
        let known = daemon.call(method::ListAgents::default()).await?;
        let mut answering = known
            .agents
            .iter()
            .filter(|known| known.name == conversation.agent);
        let Some(echo) = answering.find(|agent| agent.kind == ECHO) else {
            return Ok(());
        };
        if let Some(real) = known.agents.iter().find(|agent| is_real(agent)) {
            if echo.default {
                return Ok(());
            }
            let name = one_line(real.name.as_str());
            let what = format!(
                "the built-in echo answers here. To talk to {name}: sessionctl new --agent {}",
                shell_word(&name)
            );
            return self.output.warning("warning:", &what);
        }
        let how = known.install.values().next().map_or_else(String::new, |line| {
            format!(" To install one: {line} && sessionctl stop")
        });
        let what = format!("no coding agent is installed, so the built-in echo answers.{how}");
        self.output.warning("warning:", &what)
    }

    /// Connects, and selects the conversation that a command uses: see [`select::conversation`].
    ///
    /// # Errors
    /// As [`select::conversation`] and [`DaemonConnector::connect`].
    pub(super) async fn connect_and_select(
        &mut self,
        given: Option<&str>,
    ) -> CommandResult<(Daemon, Conversation)> {
        let daemon = self.connect().await?;
        let conversation = select::conversation(self, &daemon, given).await?;
        Ok((daemon, conversation))
    }

    /// Prints a note if the user named the conversation by the id of an earlier session, which the command does not use.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(super) fn note_earlier_session(
        &mut self,
        given: Option<&str>,
        conversation: &Conversation,
    ) -> CommandResult {
        let given = given.filter(|given| select::is_id(given));
        let (Some(given), Some(head)) = (given, &conversation.head) else {
            return Ok(());
        };
        let named = [conversation.id.to_string(), head.to_string()];
        if named.iter().any(|id| id.starts_with(given)) || conversation.title.contains(given) {
            return Ok(());
        }
        let undo = self.output.advice(conversation.id).undo();
        self.output.note_dim(&format!(
            "Session {} is an earlier session of conversation {}; this command uses the newest, {}. Go back with: {undo}",
            humanize::short(given),
            humanize::short_id(conversation.id),
            humanize::short(head.as_str()),
        ))
    }

    /// Asks the user whether a command should proceed. `what` describes the action without a full stop: "Delete …". Without a
    /// terminal the command proceeds, unless it `needs_yes` because it deletes something for good.
    ///
    /// # Errors
    /// The user declined; or there is no terminal and `--yes` is required.
    pub(super) fn confirm(&self, what: &str, needs_yes: bool) -> CommandResult {
        let asks = self.asks();
        if self.yes || !(asks || needs_yes) {
            return Ok(());
        }
        if !asks {
            let problem = Problem::usage(format!(
                "cannot ask \"{}?\" without a terminal, and --yes was not given",
                one_line(what)
            ));
            return Err(problem.hint(format!("to confirm it: sessionctl --yes {}", this_command())));
        }
        let question = self
            .output
            .note_look
            .paint(ATTENTION, &format!("{}?", one_line(what)));
        let mut answer = String::new();
        let asked = write!(io::stderr(), "{question} [y/N] ")
            .and_then(|()| io::stdin().lock().read_line(&mut answer))
            // Ctrl-D does not end the line.
            .and_then(|_| match answer.ends_with('\n') {
                true => Ok(()),
                false => writeln!(io::stderr()),
            });
        asked.map_err(|error| Problem::failed(format!("cannot ask on this terminal: {error}")))?;
        match answer.trim().to_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(Problem::failed("cancelled; nothing was changed")),
        }
    }

    /// Whether [`confirm`](Self::confirm) asks: there is a terminal, and `--yes` was not given.
    pub(super) fn asks(&self) -> bool {
        !self.yes && io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// Makes the main call of a command. Shows its progress if it takes long, and prints the answer with `--json`. Text that is
    /// written for people afterwards is not printed with `--json`: see [`Output`].
    ///
    /// # Errors
    /// The daemon returns an error.
    pub(super) async fn call_and_print<M: Method>(
        &mut self,
        daemon: &Daemon,
        call: M,
    ) -> CommandResult<M::Answer> {
        let (answer, raw) = self.call_with_progress(daemon, call).await?;
        if self.output.json {
            self.output.raw(&raw)?;
        }
        Ok(answer)
    }

    /// Makes a call, and shows its progress if it takes long. Also returns the bytes of the answer.
    ///
    /// # Errors
    /// The daemon returns an error.
    pub(super) async fn call_with_progress<M: Method>(
        &self,
        daemon: &Daemon,
        call: M,
    ) -> CommandResult<(M::Answer, RawJson)> {
        with_progress(self.output, daemon, M::NAME, daemon.call_raw(call)).await
    }
}

/// The arguments of this process, quoted for a shell.
fn this_command() -> String {
    let words = std::env::args_os().skip(1);
    let words = words.map(|word| shell_word(&word.to_string_lossy()));
    words.collect::<Vec<_>>().join(" ")
}

/// The kind of the built-in agent.
pub(super) const ECHO: &str = "loopback";

/// Whether an agent other than the built-in one is installed.
pub(super) fn has_real_agent(agents: &[AgentInfo]) -> bool {
    agents.iter().any(is_real)
}

fn is_real(agent: &AgentInfo) -> bool {
    agent.found && agent.kind != ECHO
}

/// What a list shows, and how much of it.
#[derive(Debug, Args)]
pub(super) struct Filter {
    /// Words to find (default: list all)
    #[arg(value_name = "WORDS")]
    words: Vec<String>,
    /// List only those of this agent
    #[arg(long, value_name = "NAME", add = complete::agent())]
    agent: Option<String>,
    /// List only those of this folder
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, value_parser = real_folder)]
    cwd: Option<String>,
    /// Maximum number of entries
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 50, allow_negative_numbers = true, value_parser = count)]
    limit: u32,
    /// List all entries
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

impl Filter {
    /// Replaces the word `.` with a filter for this folder.
    fn expand_dot(&mut self) -> CommandResult {
        let before = self.words.len();
        self.words.retain(|word| word != select::HERE);
        if self.words.len() < before && self.cwd.is_none() {
            self.cwd = Some(this_folder()?);
        }
        Ok(())
    }

    fn query(&self) -> Option<String> {
        (!self.words.is_empty()).then(|| self.words.join(" "))
    }

    /// The words that list all entries with the same filters.
    fn for_all(&self) -> String {
        let options = [("--agent", &self.agent), ("--cwd", &self.cwd)];
        let options = options
            .into_iter()
            .filter_map(|(name, value)| Some(format!("{name} {} ", shell_word(value.as_ref()?))));
        let words = self.words.iter().map(|word| shell_word(word) + " ");
        words.chain(options).collect::<String>() + "--all"
    }

    fn max_entries(&self) -> usize {
        match self.all {
            true => usize::MAX,
            false => self.limit as usize,
        }
    }
}

/// Parses a word of the wire contract. `words` has each word with its help text.
pub(super) fn wire_words<T>(words: &'static [(&str, &str)]) -> impl TypedValueParser<Value = T>
where
    T: DeserializeOwned + Clone + Send + Sync + 'static,
{
    let words = words
        .iter()
        .map(|(word, about)| PossibleValue::new(*word).help(*about));
    PossibleValuesParser::new(words).try_map(|word| serde_json::from_value::<T>(word.into()))
}

/// The minimum length of a shortened id.
pub(super) const MIN_ID_CHARS: usize = 6;

/// How many entries are requested at once; this is the daemon's limit for a page.
const PAGE_ENTRIES: usize = 500;

/// Collects at most `most` entries from all pages, and returns whether there are more.
///
/// # Errors
/// A call for a page fails.
pub(super) async fn collect_pages<T, Cursor>(
    most: usize,
    mut page: impl AsyncFnMut(Option<Cursor>, Option<u32>) -> CommandResult<(Vec<T>, Option<Cursor>)>,
) -> CommandResult<(Vec<T>, bool)> {
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let limit = (most - all.len()).clamp(1, PAGE_ENTRIES);
        let (entries, next) = page(cursor, u32::try_from(limit).ok()).await?;
        let is_over = entries.is_empty() || next.is_none();
        all.extend(entries);
        if is_over || all.len() >= most {
            return Ok((all, !is_over));
        }
        cursor = next;
    }
}

impl Clock {
    /// The current time in the user's time zone.
    pub(super) fn here() -> Self {
        Self {
            now: Timestamp::now(),
            zone: TimeZone::system(),
        }
    }
}

/// The first few of several candidates, as an error lists them.
pub(super) fn first_few(mut candidates: impl Iterator<Item = String>) -> String {
    let first: Vec<String> = candidates.by_ref().take(5).collect();
    let more = if candidates.next().is_some() { ", …" } else { "" };
    format!("{}{more}", first.join(", "))
}

/// Adds a hint to the refusal of a folder: create it, or name another one if it is a file.
pub(in crate::cli) fn unusable_folder(problem: Problem, folder: Option<&str>) -> Problem {
    let Some(folder) = folder.map(Path::new) else {
        return problem;
    };
    let hint = match folder.metadata() {
        Err(_) if !folder.exists() => create_folder_hint(folder),
        Ok(found) if !found.is_dir() => {
            let parent = folder.parent().unwrap_or(folder).to_string_lossy();
            format!("name a folder, such as that of the file: {}", shell_word(&parent))
        }
        _ => return problem,
    };
    problem.hint_if(ErrorKind::InvalidCwd, hint)
}

fn create_folder_hint(folder: &Path) -> String {
    let folder = shell_word(&folder.to_string_lossy());
    format!("the folder must exist: mkdir -p {folder}")
}

/// Checks the folder of an empty list: fails if it does not exist. `all` is the command that lists the entries of all folders.
fn check_folder(folder: Option<&str>, all: &str) -> CommandResult {
    match folder {
        Some(folder) if !Path::new(folder).is_dir() => {
            let message = format!("the folder {folder} does not exist, and nothing ran in it");
            Err(Problem::new(Exit::NotFound, message).hint(format!("list those of all folders: {all}")))
        }
        _ => Ok(()),
    }
}

/// The current folder, as it is sent to the daemon.
pub(super) fn this_folder() -> CommandResult<String> {
    let folder = std::env::current_dir().and_then(utf8_path);
    folder.map_err(|error| {
        let what = format!("the current folder cannot be used: {error}");
        Problem::failed(what).hint(
            "change to another folder and name the conversation by its id; list all: sessionctl ls --all",
        )
    })
}

/// Resolves symbolic links in a folder of the command line, so that each folder has one name. If it does not exist, only
/// the links of its parent are resolved, or the path is only made absolute. The daemon then reports the problem.
fn real_folder(folder: &str) -> io::Result<String> {
    if folder.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path is empty"));
    }
    let folder = Path::new(folder);
    let in_parent = || {
        let parent = std::path::absolute(folder).ok()?.parent()?.canonicalize().ok()?;
        Some(parent.join(folder.file_name()?))
    };
    folder
        .canonicalize()
        .or_else(|_| in_parent().map_or_else(|| std::path::absolute(folder), Ok))
        .and_then(utf8_path)
}

/// Makes a path of the command line absolute.
fn absolute(file: &str) -> io::Result<String> {
    std::path::absolute(file).and_then(utf8_path)
}

fn utf8_path(path: PathBuf) -> io::Result<String> {
    path.into_os_string().into_string().map_err(|path| {
        let what = format!("the path {} is not UTF-8 and cannot be sent", path.display());
        io::Error::new(io::ErrorKind::InvalidFilename, what)
    })
}

/// Parses a number of entries.
fn count(word: &str) -> Result<u32, String> {
    let count = word.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| "give a number of entries, 1 or more".to_owned())
}
