//! The agents that this daemon knows: what each is, how it is started, where its transcripts are.
//!
//! Built once, at start, from what the configuration says; reads no configuration itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bridge_protocol::AgentName;

use super::policy::InterruptPolicy;
use super::pool::{Launch, PoolKey};
use super::profile::{AgentKind, Profile};
use crate::transcript::shelf::Format;

/// The name of the agent that always exists.
pub const LOOPBACK: &str = "loopback";

/// One agent.
#[derive(Clone, Debug)]
pub struct AgentEntry {
    /// Its name in the configuration.
    pub name: AgentName,
    /// What it is.
    pub kind: AgentKind,
    /// How a process of it is started.
    pub launch: Launch,
    /// The folder under which its transcripts are; `None`: unknown, or not files.
    pub transcripts: Option<PathBuf>,
    /// Their format, for an agent of whose kind it is not known.
    pub transcript_format: Option<Format>,
    /// What is done with its questions.
    pub interrupts: InterruptPolicy,
}

impl AgentEntry {
    /// What the bridge knows of its kind.
    #[must_use]
    pub fn profile(&self) -> &'static Profile {
        self.kind.profile()
    }

    /// Under which its processes are pooled.
    #[must_use]
    pub fn pool_key(&self) -> PoolKey {
        PoolKey::new(self.name.as_str(), &self.launch)
    }

    /// The program and its arguments, as they are told.
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

    /// Whether its program is there to be run.
    #[must_use]
    pub fn is_found(&self) -> bool {
        find_program(&self.launch.command.program, self.path().as_deref()).is_some()
    }

    /// What stands where its program is looked for and cannot be run: a file that is not executable, or a folder.
    #[must_use]
    pub fn find_unusable(&self) -> Option<PathBuf> {
        candidates(&self.launch.command.program, self.path().as_deref()).find(|candidate| candidate.exists())
    }

    /// The folders in which its program is looked for.
    fn path(&self) -> Option<std::ffi::OsString> {
        let own = self.launch.command.env.get("PATH");
        own.map(std::ffi::OsString::from)
            .or_else(|| std::env::var_os("PATH"))
    }

    /// What tells one set of transcripts from another: an upstream id is unique within it.
    #[must_use]
    pub fn transcript_root(&self) -> crate::store::TranscriptRoot {
        match &self.transcripts {
            Some(folder) => crate::store::TranscriptRoot::new(folder.to_string_lossy()),
            None => crate::store::TranscriptRoot::new(format!("agent:{}", self.name)),
        }
    }

    /// The folder of its transcripts and their form, when the bridge can list and read them.
    #[must_use]
    pub fn listed_transcripts(&self) -> Option<(&Path, Format)> {
        Some((
            self.transcripts.as_deref()?,
            self.transcript_format.or(self.profile().transcript_format)?,
        ))
    }

    /// The folder of its transcripts, when the bridge can also copy and cut them.
    #[must_use]
    pub fn readable_transcripts(&self) -> Option<&Path> {
        let (root, format) = self.listed_transcripts()?;
        format.dialect().can().cut.then_some(root)
    }
}

/// All agents, in the order of the configuration.
#[derive(Clone, Debug)]
pub struct Catalog {
    entries: Vec<Arc<AgentEntry>>,
    default: AgentName,
}

impl Catalog {
    /// A catalog of these agents. A default that is not among them falls back to the first.
    #[must_use]
    pub fn new(entries: Vec<AgentEntry>, default: AgentName) -> Self {
        let entries: Vec<Arc<AgentEntry>> = entries.into_iter().map(Arc::new).collect();
        let known = entries.iter().any(|entry| entry.name == default);
        let first = entries
            .first()
            .map_or_else(|| LOOPBACK.into(), |entry| entry.name.clone());
        Self {
            default: if known { default } else { first },
            entries,
        }
    }

    /// All agents.
    #[must_use]
    pub fn entries(&self) -> &[Arc<AgentEntry>] {
        &self.entries
    }

    /// The agent of this name.
    #[must_use]
    pub fn get(&self, name: &AgentName) -> Option<&Arc<AgentEntry>> {
        self.entries.iter().find(|entry| entry.name == *name)
    }

    /// The agent that goes on where one of another machine did: of the same kind, first one whose program is found, then one
    /// of the same name. Of what is known to speak the protocol and nothing more, one is not as good as another.
    #[must_use]
    pub fn stand_in(&self, name: &AgentName, kind: &str) -> Option<&Arc<AgentEntry>> {
        let is_namesake = |entry: &AgentEntry| entry.name == *name;
        let is_generic = kind == AgentKind::Generic.as_str();
        self.entries
            .iter()
            .filter(|entry| entry.kind.as_str() == kind && (is_namesake(entry) || !is_generic))
            // Of equal ones the first.
            .min_by_key(|entry| (!entry.is_found(), !is_namesake(entry)))
    }

    /// The agent that is used when none is named.
    #[must_use]
    pub fn default_agent(&self) -> &AgentName {
        &self.default
    }

    /// The names of all agents, for messages.
    #[must_use]
    pub fn names(&self) -> String {
        self.entries
            .iter()
            .map(|entry| entry.name.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// Where a program is: itself when it is a path, else the first executable of that name on `path`.
#[must_use]
pub fn find_program(program: &Path, path: Option<&std::ffi::OsStr>) -> Option<PathBuf> {
    candidates(program, path).find(|candidate| is_executable(candidate))
}

/// Where a program may be, in the order in which it is looked for: there where a path leads, else in each folder.
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

    fn entry(name: &str, kind: AgentKind, is_found: bool) -> AgentEntry {
        let command = AgentCommand {
            program: if is_found { "/bin/sh" } else { "/nowhere/sh" }.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            env_remove: Vec::new(),
            working_dir: None,
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
        }
    }

    #[test]
    fn an_agent_stands_in_for_one_of_its_kind_first_where_it_can_start() {
        use AgentKind::{Claude, Codex, Generic};
        type Known<'a> = &'a [(&'a str, AgentKind, bool)];
        let table: &[(Known<'_>, &str, Option<&str>)] = &[
            (&[("b", Claude, true), ("a", Claude, true)], "claude", Some("a")),
            (&[("a", Claude, false), ("b", Claude, true)], "claude", Some("b")),
            (&[("b", Claude, false), ("a", Claude, false)], "claude", Some("a")),
            (&[("b", Claude, false), ("c", Claude, false)], "claude", Some("b")),
            (&[("c", Claude, true), ("b", Claude, true)], "claude", Some("c")),
            (&[("a", Codex, true), ("b", Claude, true)], "claude", Some("b")),
            (&[("a", Codex, true)], "claude", None),
            (
                &[("a", Generic, false), ("b", Generic, true)],
                "generic",
                Some("a"),
            ),
            (&[("b", Generic, true)], "generic", None),
        ];
        for (known, kind, expected) in table {
            let entries = known
                .iter()
                .map(|(name, kind, is_found)| entry(name, *kind, *is_found));
            let catalog = Catalog::new(entries.collect(), "a".into());
            let taken = catalog.stand_in(&"a".into(), kind);
            assert_eq!(taken.map(|entry| entry.name.as_str()), *expected, "{known:?}");
        }
    }
}
