//! The catalog of agents: what each one is, how it is started, and where its transcripts are.
//!
//! Built once at start from the configuration; reads no configuration itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bridge_protocol::AgentName;
use bridge_protocol::raw::RawJson;

use super::client::ClientProfile;
use super::kinds::{self, AgentKind, ForkPointSupport};
use super::policy::InterruptPolicy;
use super::pool::{Launch, PoolKey};
use crate::transcript::transcript_list::Format;

/// One agent.
#[derive(Clone, Debug)]
pub struct AgentEntry {
    /// The agent's name in the configuration.
    pub name: AgentName,
    /// The kind of agent.
    pub kind: &'static AgentKind,
    /// How to start a process of it.
    pub launch: Launch,
    /// The folder of its transcripts. `None` if unknown, or if they are not files.
    pub transcripts: Option<PathBuf>,
    /// The format of its transcripts, if its kind does not decide it.
    pub transcript_format: Option<Format>,
    /// The policy for answering its questions.
    pub interrupts: InterruptPolicy,
    /// Further parameters for opening its sessions, from the client that it is started for.
    pub session_params: Option<RawJson>,
    /// Whether neither its program nor the folder of its transcripts existed when the daemon started. It is listed once either
    /// exists.
    pub is_expected: bool,
}

impl AgentEntry {
    /// Returns the key under which its processes are pooled.
    #[must_use]
    pub fn pool_key(&self) -> PoolKey {
        PoolKey::new(self.name.as_str(), &self.launch)
    }

    /// Returns the agent as started for this client, or for the daemon itself if `client` is `None`.
    #[must_use]
    pub fn for_client(self: &Arc<Self>, client: Option<&ClientProfile>) -> Arc<Self> {
        let Some(client) = client else {
            return Arc::clone(self);
        };
        let mut entry = Self::clone(self);
        let Launch {
            command,
            initialize,
            wire,
        } = &mut entry.launch;
        if let Some((_, arguments)) = client.arguments.as_ref().filter(|(of, _)| *of == self.name) {
            command.args.extend(arguments.iter().map(Into::into));
        }
        initialize.client_capabilities = Some(client.capabilities_for_agent().into_raw());
        initialize.client_info = client.info.clone().map(RawJson::into_raw);
        initialize.client_params = client.other_params.clone().map(RawJson::into_raw);
        wire.allowed_requests.extend(client.offered_methods());
        wire.allows_extensions = true;
        entry.session_params.clone_from(&client.session_params);
        Arc::new(entry)
    }

    /// Returns the program and its arguments as text.
    #[must_use]
    pub fn command_line(&self) -> Vec<String> {
        let command = &self.launch.command;
        std::iter::once(command.program.to_string_lossy().into_owned())
            .chain(
                command
                    .args
                    .iter()
                    .map(|argument| argument.to_string_lossy().into_owned()),
            )
            .collect()
    }

    /// Whether its program exists and can be executed.
    #[must_use]
    pub fn is_program_found(&self) -> bool {
        find_program(&self.launch.command.program, self.search_path().as_deref()).is_some()
    }

    /// Whether it is one of the agents of this machine.
    fn is_present(&self) -> bool {
        let has_transcripts = || self.transcripts.as_ref().is_some_and(|folder| folder.is_dir());
        !self.is_expected || self.is_program_found() || has_transcripts()
    }

    /// Returns a path at which the program was searched for, if it is a folder or a file that is not executable.
    #[must_use]
    pub fn find_unusable_program(&self) -> Option<PathBuf> {
        candidates(&self.launch.command.program, self.search_path().as_deref())
            .find(|candidate| candidate.exists())
    }

    /// Returns the search path for its program.
    #[must_use]
    pub fn search_path(&self) -> Option<std::ffi::OsString> {
        self.launch.command.search_path()
    }

    /// Returns the root of its transcripts. An upstream id is unique within one root.
    #[must_use]
    pub fn transcript_root(&self) -> crate::store::TranscriptRoot {
        match &self.transcripts {
            Some(folder) => crate::store::TranscriptRoot::new(folder.to_string_lossy()),
            None => crate::store::TranscriptRoot::new(format!("agent:{}", self.name)),
        }
    }

    /// Returns the folder and the format of its transcripts, if the bridge can list and read them.
    #[must_use]
    pub fn listed_transcripts(&self) -> Option<(&Path, Format)> {
        Some((
            self.transcripts.as_deref()?,
            self.transcript_format.or(self.kind.transcript_format)?,
        ))
    }

    /// Returns the folder and the format of its transcripts, if the bridge can also copy and cut them.
    #[must_use]
    pub fn copyable_transcripts(&self) -> Option<(&Path, Format)> {
        self.listed_transcripts()
            .filter(|(_, format)| format.dialect().abilities().can_copy)
    }

    /// Whether a session can be forked after an earlier turn: as a cut copy, or by the agent itself.
    #[must_use]
    pub fn forks_at_turns(&self) -> bool {
        let forks_itself = !matches!(self.kind.fork_point, ForkPointSupport::None);
        self.copyable_transcripts().is_some() || forks_itself && self.listed_transcripts().is_some()
    }
}

/// All agents: the configured ones in the order of the configuration, then those that were found or may be found later.
#[derive(Clone, Debug)]
pub struct Catalog {
    entries: Vec<Arc<AgentEntry>>,
    default: Option<AgentName>,
}

impl Catalog {
    /// Creates a catalog. Without `default`, each call of [`default_agent`](Self::default_agent) looks for an
    /// installed agent.
    #[must_use]
    pub fn new(entries: Vec<AgentEntry>, default: Option<AgentName>) -> Self {
        Self {
            entries: entries.into_iter().map(Arc::new).collect(),
            default,
        }
    }

    /// The agents of this machine. A user may install an agent at any time.
    pub fn entries(&self) -> impl Iterator<Item = &Arc<AgentEntry>> {
        self.entries.iter().filter(|entry| entry.is_present())
    }

    /// The agents of this machine, and those that may be used on it later.
    #[must_use]
    pub fn entries_and_expected(&self) -> &[Arc<AgentEntry>] {
        &self.entries
    }

    /// Returns the agent of this name, if it is one of this machine.
    #[must_use]
    pub fn get(&self, name: &AgentName) -> Option<&Arc<AgentEntry>> {
        let mut entries = self.entries.iter();
        entries.find(|entry| entry.name == *name && entry.is_present())
    }

    /// Returns the local agent that replaces an agent of another machine. It has the same kind. Prefers an agent whose
    /// program is found, then one with the same name. A generic agent is replaced only by one with the same name,
    /// because only the name shows that the two are the same program.
    #[must_use]
    pub fn replacement_for(&self, name: &AgentName, kind: &str) -> Option<&Arc<AgentEntry>> {
        let is_namesake = |entry: &AgentEntry| entry.name == *name;
        let is_generic = kind == kinds::GENERIC.name;
        self.entries()
            .filter(|entry| entry.kind.name == kind && (is_namesake(entry) || !is_generic))
            // `min_by_key` returns the first of several equal ones.
            .min_by_key(|entry| (!entry.is_program_found(), !is_namesake(entry)))
    }

    /// Returns the agent to use if none is named. If the catalog was created without a default, this is the first
    /// agent whose program is found now, or else the built-in one. The search is repeated on each call, because a user
    /// may install an agent at any time.
    #[must_use]
    pub fn default_agent(&self) -> AgentName {
        if let Some(default) = &self.default {
            return default.clone();
        }
        let installed = |entry: &&Arc<AgentEntry>| *entry.kind != kinds::LOOPBACK && entry.is_program_found();
        let found = self.entries().find(installed);
        found.map_or_else(|| kinds::LOOPBACK.name.into(), |entry| entry.name.clone())
    }

    /// Returns the names of all agents, for messages.
    #[must_use]
    pub fn names(&self) -> String {
        self.entries()
            .map(|entry| entry.name.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// Finds a program: a path as it is, or else the first executable with that name on `path`.
#[must_use]
pub fn find_program(program: &Path, path: Option<&std::ffi::OsStr>) -> Option<PathBuf> {
    candidates(program, path).find(|candidate| is_executable(candidate))
}

/// Returns the paths where a program may be, in search order.
fn candidates(program: &Path, path: Option<&std::ffi::OsStr>) -> impl Iterator<Item = PathBuf> {
    let is_path = program.components().count() > 1;
    let folders: Vec<PathBuf> = match is_path {
        true => vec![PathBuf::new()],
        false => path.map_or_else(Vec::new, |path| std::env::split_paths(path).collect()),
    };
    let program = program.to_owned();
    folders.into_iter().map(move |folder| folder.join(&program))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::agent::process::AgentCommand;
    use crate::agent::session::InitializeRequest;
    use crate::agent::wire::WireOptions;

    fn entry(name: &str, kind: &'static AgentKind, is_found: bool) -> AgentEntry {
        let command = AgentCommand {
            program: if is_found { "/bin/sh" } else { "/nowhere/sh" }.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            env_remove: Vec::new(),
        };
        AgentEntry {
            name: name.into(),
            kind,
            launch: Launch {
                command,
                initialize: InitializeRequest::default(),
                wire: WireOptions::default(),
            },
            transcripts: None,
            transcript_format: None,
            interrupts: InterruptPolicy::Ask,
            session_params: None,
            is_expected: false,
        }
    }

    #[test]
    fn an_agent_is_replaced_by_one_of_its_kind_that_can_start_if_possible() {
        use kinds::{CLAUDE, CODEX, GENERIC};
        type Known<'a> = &'a [(&'a str, &'static AgentKind, bool)];
        let table: &[(Known<'_>, &str, Option<&str>)] = &[
            (&[("b", &CLAUDE, true), ("a", &CLAUDE, true)], "claude", Some("a")),
            (
                &[("a", &CLAUDE, false), ("b", &CLAUDE, true)],
                "claude",
                Some("b"),
            ),
            (
                &[("b", &CLAUDE, false), ("a", &CLAUDE, false)],
                "claude",
                Some("a"),
            ),
            (
                &[("b", &CLAUDE, false), ("c", &CLAUDE, false)],
                "claude",
                Some("b"),
            ),
            (&[("c", &CLAUDE, true), ("b", &CLAUDE, true)], "claude", Some("c")),
            (&[("a", &CODEX, true), ("b", &CLAUDE, true)], "claude", Some("b")),
            (&[("a", &CODEX, true)], "claude", None),
            (
                &[("a", &GENERIC, false), ("b", &GENERIC, true)],
                "generic",
                Some("a"),
            ),
            (&[("b", &GENERIC, true)], "generic", None),
        ];
        for (known, kind, expected) in table {
            let entries = known
                .iter()
                .map(|(name, kind, is_found)| entry(name, kind, *is_found));
            let catalog = Catalog::new(entries.collect(), Some("a".into()));
            let taken = catalog.replacement_for(&"a".into(), kind);
            assert_eq!(taken.map(|entry| entry.name.as_str()), *expected, "{known:?}");
        }
    }
}
