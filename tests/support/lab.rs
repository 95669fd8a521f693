//! The surroundings of a real agent: a scripted model, a scratch home, a project folder, and an environment that
//! isolates it from the outside.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use super::acp_client::AcpClient;
use super::model_server::ModelServer;
use super::npm::{Adapter, Skip};

/// A kind of agent.
pub(crate) trait Agent: Sized {
    /// Its name in a configuration of the daemon, which derives its kind from that.
    const NAME: &'static str;

    /// The folder of all of its own files, including its transcripts, below the scratch folder.
    const ROOT: &'static str;

    /// The arguments of its program.
    const ARGUMENTS: &'static [&'static str] = &[];

    /// Installs its program if necessary.
    fn install() -> Result<Adapter, Skip>;

    /// Starts a model server that speaks its protocol.
    fn start_model() -> ModelServer;

    /// Writes its settings.
    fn set_up(lab: &Lab<Self>);

    /// The variables of its environment, besides those of every program.
    fn variables(lab: &Lab<Self>) -> Vec<(&'static str, String)>;

    /// All of its transcripts. Their names end with the ids of their sessions.
    fn transcripts(lab: &Lab<Self>) -> Vec<PathBuf>;
}

/// The agent, model and folders of one test. Dropping it ends and deletes all of them.
pub(crate) struct Lab<A> {
    // Fields are dropped in this order: first the model, so that no late request finds its folders deleted.
    pub(crate) model: ModelServer,
    pub(crate) agent: A,
    adapter: Adapter,
    scratch: TempDir,
}

impl<A: Agent> Lab<A> {
    /// Returns `None` and prints the reason if the agent cannot be installed.
    pub(crate) fn of(agent: A) -> Option<Self> {
        let adapter = match A::install() {
            Ok(adapter) => adapter,
            Err(Skip(reason)) => {
                eprintln!("skipped: {reason}");
                return None;
            }
        };
        let lab = Self {
            model: A::start_model(),
            agent,
            adapter,
            scratch: tempfile::tempdir().expect("a scratch folder"),
        };
        for folder in [lab.project(), lab.home(), lab.transcript_root()] {
            fs::create_dir_all(folder).expect("a folder in the scratch folder");
        }
        A::set_up(&lab);
        Some(lab)
    }

    /// The folder that contains all of the lab's files, without symbolic links. Every process of the agent has its path
    /// in its environment.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.scratch.path().canonicalize().expect("the scratch folder")
    }

    /// The working directory of the sessions, without symbolic links.
    pub(crate) fn project(&self) -> PathBuf {
        self.scratch().join("project")
    }

    fn home(&self) -> PathBuf {
        self.scratch().join("home")
    }

    /// The folder of all of the agent's own files, including its transcripts.
    pub(crate) fn transcript_root(&self) -> PathBuf {
        self.scratch().join(A::ROOT)
    }

    /// Program and arguments of the agent.
    pub(crate) fn command(&self) -> (PathBuf, Vec<PathBuf>) {
        let arguments = A::ARGUMENTS.iter().map(PathBuf::from);
        let script = self.adapter.script.clone();
        (
            self.adapter.node.clone(),
            [script].into_iter().chain(arguments).collect(),
        )
    }

    /// The complete environment of the agent.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        self.adapter.environment(&self.home(), A::variables(self))
    }

    /// Starts and initializes a new process of the agent.
    pub(crate) fn adapter(&self) -> AcpClient {
        AcpClient::initialized(self.command(), self.environment(), &self.project())
    }

    /// All transcripts, sorted by path.
    pub(crate) fn transcripts(&self) -> Vec<PathBuf> {
        let mut found = A::transcripts(self);
        found.sort();
        found
    }

    /// Finds the transcript of a session, in whichever folder it is.
    pub(crate) fn transcript(&self, session_id: &str) -> Option<PathBuf> {
        let is_of_session = |path: &PathBuf| {
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            stem.is_some_and(|stem| stem.ends_with(session_id))
        };
        self.transcripts().into_iter().find(is_of_session)
    }
}
