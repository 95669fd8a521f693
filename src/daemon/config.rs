//! The configuration file: its settings and their defaults.
//!
//! Parses text into values, and values into the catalog of agents. Has no clock, and only checks whether a program or
//! an agent's folder exists. Each error names its line, which `positions` finds.

mod positions;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bridge_protocol::AgentName;
use indexmap::IndexMap;
use jiff::tz::TimeZone;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::agent::catalog::{AgentEntry, Catalog, find_program};
use crate::agent::kinds::{self, AgentKind};
use crate::agent::loopback;
use crate::agent::policy::InterruptPolicy;
use crate::agent::pool::Launch;
use crate::agent::process::AgentCommand;
use crate::agent::session::InitializeRequest;
use crate::agent::wire::WireOptions;
use crate::conversation::backup::BackupRules;
use crate::conversation::state::Rules;
use crate::transcript::transcript_list::Format;

#[cfg(test)]
mod tests;

/// The client capabilities that the daemon declares to agents. It offers no files and no terminal; it keeps questions
/// for its clients.
const CLIENT_CAPABILITIES: &str = r#"{"fs":{"readTextFile":false,"writeTextFile":false},"terminal":false,"elicitation":{"form":{},"url":{}}}"#;

/// The configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The agent to use if none is named.
    pub default_agent: Option<String>,
    /// The agents by name, in the order of the file.
    agents: IndexMap<String, AgentConfig>,
    /// Limits.
    pub limits: Limits,
    /// How transcripts are backed up.
    pub keep: BackupRules,
    /// What editors are offered.
    pub editors: EditorConfig,
    /// The text, for finding lines.
    #[serde(skip)]
    text: String,
}

/// A configured agent.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
struct AgentConfig {
    command: Option<String>,
    args: Option<Vec<String>>,
    env: BTreeMap<String, String>,
    kind: Option<String>,
    transcripts: Option<String>,
    transcript_format: Option<String>,
    interrupts: InterruptPolicy,
}

/// Limits and deadlines.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// After how many minutes without a turn a session is closed. 0: never.
    pub idle_minutes: f64,
    /// After how many minutes an unused agent process is ended.
    pub agent_idle_minutes: f64,
    /// The longest line from a client or an agent, in bytes.
    pub max_line_bytes: usize,
    /// How many events may be queued for one client.
    pub subscriber_events: usize,
    /// How many prompts may be queued behind a running turn.
    pub prompt_queue: usize,
    /// How many milliseconds a cancelled turn has to answer before its session is closed.
    pub cancel_grace_ms: u64,
    /// How many milliseconds an agent may take from its start to its answer to `initialize`. Adapters need 300; a
    /// cold disk or a busy machine needs much more.
    pub agent_start_ms: u64,
    /// How many milliseconds an agent may take to open, fork or close a session, or (at most 60 s) to change a
    /// setting. Opening reads the whole transcript: a gigabyte takes an agent most of a minute.
    pub session_open_ms: u64,
    /// How many scheduled continuations may run at a time.
    pub continuations: usize,
    /// How many clients may be connected.
    pub connections: usize,
    /// How many requests of one client may be unanswered.
    pub requests_in_flight: usize,
}

/// What editors are offered.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EditorConfig {
    /// Whether `/rewind`, `/edit` and the other commands of the daemon are announced.
    pub commands: bool,
}

impl Default for EditorConfig {
    fn default() -> Self {
        Self { commands: true }
    }
}

/// Converts minutes to milliseconds. A value out of range counts as forever.
fn milliseconds(minutes: f64) -> u64 {
    let time = std::time::Duration::try_from_secs_f64(minutes * 60.0).ok();
    time.and_then(|time| u64::try_from(time.as_millis()).ok())
        .unwrap_or(u64::MAX)
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            idle_minutes: 30.0,
            agent_idle_minutes: 10.0,
            max_line_bytes: 16 * 1024 * 1024,
            subscriber_events: 65_536,
            prompt_queue: 32,
            cancel_grace_ms: 5_000,
            agent_start_ms: 30_000,
            session_open_ms: 180_000,
            continuations: 8,
            connections: 512,
            requests_in_flight: 256,
        }
    }
}

/// Why a configuration is invalid, and where.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct ConfigError {
    /// The line, starting at 1.
    pub line: usize,
    /// What is wrong, and what to do.
    pub problem: String,
}

/// The inputs of the catalog besides the file.
pub struct CatalogContext<'a> {
    /// The path of this program, which contains the loopback agent too.
    pub this_program: &'a Path,
    /// The daemon's data folder.
    pub data: &'a Path,
    /// The user's home folder.
    pub home: Option<&'a Path>,
    /// Looks up a variable of the daemon's environment.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
}

impl Config {
    /// Parses the file's text.
    ///
    /// # Errors
    /// It is not the expected TOML, or a limit is out of range.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut config: Self = toml::from_str(text).map_err(|error| {
            let (line, problem) = positions::describe_error(text, &error);
            ConfigError { line, problem }
        })?;
        text.clone_into(&mut config.text);
        let limit = |name: &str, least: usize| {
            let problem = format!("limits.{name} must be at least {least}");
            config.error_at(&["limits", name], problem)
        };
        let limits = &config.limits;
        let least = [
            ("max_line_bytes", limits.max_line_bytes, 4_096),
            ("subscriber_events", limits.subscriber_events, 16),
            ("continuations", limits.continuations, 1),
            ("connections", limits.connections, 1),
            ("requests_in_flight", limits.requests_in_flight, 1),
        ];
        for (name, value, least) in least {
            if value < least {
                return Err(limit(name, least));
            }
        }
        let backup_minimums = [
            ("days", config.keep.max_days, 1),
            ("bytes", config.keep.max_bytes, 1_000_000),
        ];
        for (name, value, least) in backup_minimums {
            if value.is_some_and(|value| value < least) {
                let problem = format!(
                    "keep.{name} must be at least {least}; remove it for no limit, or set enabled = false for no backups"
                );
                return Err(config.error_at(&["keep", name], problem));
            }
        }
        // With a limit of zero, no session could be opened.
        if limits.session_open_ms == 0 {
            return Err(limit("session_open_ms", 1));
        }
        let minutes = [
            ("idle_minutes", limits.idle_minutes),
            ("agent_idle_minutes", limits.agent_idle_minutes),
        ];
        for (name, value) in minutes {
            if value.is_nan() || value < 0.0 {
                return Err(limit(name, 0));
            }
        }
        Ok(config)
    }

    /// Creates an error at the value with this path of names, or at its last existing parent.
    fn error_at(&self, names: &[&str], problem: String) -> ConfigError {
        ConfigError {
            line: positions::line_of_setting(&self.text, names),
            problem,
        }
    }

    /// After how many milliseconds an unused agent process is ended.
    #[must_use]
    pub fn agent_idle_ms(&self) -> u64 {
        milliseconds(self.limits.agent_idle_minutes)
    }

    /// Returns the rules of each conversation.
    #[must_use]
    pub fn rules(&self, zone: fn() -> TimeZone) -> Rules {
        Rules {
            prompt_queue: self.limits.prompt_queue,
            cancel_grace_ms: self.limits.cancel_grace_ms,
            accept_grace_ms: 500,
            idle_ms: milliseconds(self.limits.idle_minutes),
            interrupts: InterruptPolicy::Ask,
            zone,
        }
    }

    /// Returns the agents: configured ones, those found on `PATH`, those whose transcripts are or may later be on this machine,
    /// and `loopback`.
    ///
    /// # Errors
    /// An agent's settings are invalid, or the default agent does not exist.
    pub fn catalog(&self, context: &CatalogContext<'_>) -> Result<Catalog, ConfigError> {
        let mut entries = Vec::new();
        for (name, agent) in &self.agents {
            entries.push(self.configured_agent(name, agent.clone(), context)?);
        }
        let first_configured = entries.first().map(|entry| entry.name.clone());
        let path = (context.variable)("PATH");
        let mut first_found = None;
        let mut absent = Vec::new();
        for kind in kinds::ALL {
            if entries.iter().any(|entry| entry.name.as_str() == kind.name) {
                continue;
            }
            let with_defaults =
                |program| self.default_agent_of_kind(kind.name, kind, program, BTreeMap::new(), context);
            let mut programs = kind.programs.iter().map(Path::new);
            if let Some(program) = programs.find_map(|program| find_program(program, path.as_deref())) {
                let entry = with_defaults(program);
                first_found.get_or_insert(entry.name.clone());
                entries.push(entry);
            // An agent that is not installed, but whose transcripts can be read without it. Its program and its folder are looked
            // up again whenever they are needed.
            } else if let Some(program) = kind.programs.first()
                && let mut entry = with_defaults(PathBuf::from(program))
                && let Some((root, _)) = entry.listed_transcripts()
            {
                entry.is_expected = !root.is_dir();
                absent.push((entry.name.clone(), program));
                entries.push(entry);
            }
        }
        let loopback = kinds::LOOPBACK.name;
        if !entries.iter().any(|entry| entry.name.as_str() == loopback) {
            entries.push(self.loopback_agent(loopback, BTreeMap::new(), context));
        }
        let default = match &self.default_agent {
            Some(name) => {
                let wrong = |problem| Err(self.error_at(&["default_agent"], problem));
                let name = AgentName::new(name.clone());
                let present = entries.iter().filter(|entry| !entry.is_expected);
                if !present.clone().any(|entry| entry.name == name) {
                    let known = present.map(|entry| entry.name.as_str());
                    let known = known.collect::<Vec<_>>().join(", ");
                    return wrong(format!("unknown default_agent \"{name}\"; known agents: {known}"));
                }
                if let Some((_, program)) = absent.into_iter().find(|(absent, _)| *absent == name) {
                    return wrong(format!(
                        "default_agent is \"{name}\", whose program {program:?} was not found; install it, or set `command` \
                         in [agents.{name}] to the program's full path"
                    ));
                }
                Some(name)
            }
            None => first_configured.or(first_found),
        };
        Ok(Catalog::new(entries, default))
    }

    fn configured_agent(
        &self,
        name: &str,
        agent: AgentConfig,
        context: &CatalogContext<'_>,
    ) -> Result<AgentEntry, ConfigError> {
        let problem = |member: &str, problem: String| {
            self.error_at(&["agents", name, member], format!("agent \"{name}\": {problem}"))
        };
        let kind = match &agent.kind {
            Some(kind) => kinds::named(kind).map_err(|error| problem("kind", error.to_string()))?,
            // An agent named like a kind has that kind.
            None => kinds::named(name).unwrap_or(&kinds::GENERIC),
        };
        let fixed_format = kind.transcript_format.map(Format::name);
        if fixed_format.is_some()
            && agent
                .transcript_format
                .as_deref()
                .is_some_and(|format| Some(format) != fixed_format)
        {
            let text = format!("transcript_format is fixed for the kind \"{kind}\"; remove it");
            return Err(problem("transcript_format", text));
        }
        if *kind == kinds::LOOPBACK && agent.command.is_none() {
            if agent.args.is_some() || agent.transcripts.is_some() {
                let text = "it takes no args and no transcripts, because it uses the daemon's data folder";
                let member = if agent.args.is_some() {
                    "args"
                } else {
                    "transcripts"
                };
                return Err(problem(member, text.to_owned()));
            }
            let mut entry = self.loopback_agent(name, agent.env, context);
            entry.interrupts = agent.interrupts;
            return Ok(entry);
        }
        let program = match agent.command.as_deref().map(str::trim) {
            Some("") | None => kind.programs.first().map(PathBuf::from).ok_or_else(|| {
                let text = "no command; set command = \"…\" to the program that speaks ACP";
                problem("command", text.to_owned())
            })?,
            Some(command) => expand_home(command, context.home),
        };
        if program.components().count() > 1 && program.is_relative() {
            let text = format!(
                "command \"{}\" is a relative path; give an absolute one or a name on PATH",
                program.display()
            );
            return Err(problem("command", text));
        }
        let mut entry = self.default_agent_of_kind(name, kind, program, agent.env, context);
        entry.interrupts = agent.interrupts;
        if let Some(args) = agent.args {
            entry.launch.command.args = args.into_iter().map(OsString::from).collect();
        }
        if let Some(folder) = &agent.transcripts {
            let folder = expand_home(folder, context.home);
            if folder.is_relative() {
                let text = format!(
                    "transcripts \"{}\" is a relative path; give an absolute one",
                    folder.display()
                );
                return Err(problem("transcripts", text));
            }
            entry.transcripts = Some(folder);
        }
        if let Some(name) = agent.transcript_format.as_deref() {
            if entry.transcripts.is_none() {
                let text = "transcript_format needs the folder of the transcripts, as transcripts = \"…\"";
                return Err(problem("transcript_format", text.to_owned()));
            }
            let format = Format::from_name(name).ok_or_else(|| {
                let known = Format::ALL.map(Format::name).join(", ");
                let text = format!("unknown transcript_format \"{name}\": known are {known}");
                problem("transcript_format", text)
            })?;
            entry.transcript_format = Some(format);
        }
        Ok(entry)
    }

    /// Returns an agent of this kind with the default settings.
    fn default_agent_of_kind(
        &self,
        name: &str,
        kind: &'static AgentKind,
        program: PathBuf,
        env: BTreeMap<String, String>,
        context: &CatalogContext<'_>,
    ) -> AgentEntry {
        let variable = |name: &str| {
            let own = env.get(name).map(PathBuf::from);
            own.or_else(|| (context.variable)(name).map(PathBuf::from))
        };
        let home = env.get("HOME").map(PathBuf::from);
        let transcripts = kind.transcript_root(variable, home.as_deref().or(context.home), context.data);
        let command = AgentCommand {
            program,
            args: kind.arguments.iter().map(OsString::from).collect(),
            env,
            env_remove: kind.env_remove.iter().map(|name| (*name).to_owned()).collect(),
        };
        AgentEntry {
            name: AgentName::new(name),
            kind,
            launch: self.agent_launch(command),
            transcripts,
            transcript_format: None,
            interrupts: InterruptPolicy::Ask,
            session_params: None,
            is_expected: false,
        }
    }

    /// Returns the agent built into this program.
    fn loopback_agent(
        &self,
        name: &str,
        env: BTreeMap<String, String>,
        context: &CatalogContext<'_>,
    ) -> AgentEntry {
        let program = context.this_program.to_path_buf();
        let mut entry = self.default_agent_of_kind(name, &kinds::LOOPBACK, program, env, context);
        entry.launch.command.args = vec![loopback::ARGUMENT.into(), "--data".into(), context.data.into()];
        entry
    }

    fn agent_launch(&self, command: AgentCommand) -> Launch {
        let client_capabilities = RawValue::from_string(CLIENT_CAPABILITIES.to_owned()).ok();
        let client_info = serde_json::json!({
            "name": "sessiond", "title": "session bridge", "version": env!("CARGO_PKG_VERSION"),
        });
        Launch {
            command,
            initialize: InitializeRequest {
                client_capabilities,
                client_info: serde_json::value::to_raw_value(&client_info).ok(),
                ..InitializeRequest::default()
            },
            wire: WireOptions {
                max_line_bytes: self.limits.max_line_bytes,
                ..WireOptions::default()
            },
        }
    }
}

/// Expands a leading `~/` to the home folder.
fn expand_home(text: &str, home: Option<&Path>) -> PathBuf {
    match (text.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(text),
    }
}
