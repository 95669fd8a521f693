//! A daemon with the real Claude adapter.

use std::path::PathBuf;

use crate::bridge_of::Lab;
use crate::support::claude::{Account, ClaudeLab};
use crate::support::entry::AgentEntry;
use crate::support::model_server::ModelServer;

pub(crate) type Bridge = crate::bridge_of::Bridge<ClaudeLab>;

impl Lab for ClaudeLab {
    const AGENT: &'static str = "claude";

    fn command(&self) -> (PathBuf, Vec<PathBuf>) {
        ClaudeLab::command(self)
    }

    fn model(&self) -> &ModelServer {
        &self.model
    }

    fn environment(&self) -> Vec<(String, String)> {
        ClaudeLab::environment(self)
    }

    fn transcript_root(&self) -> PathBuf {
        ClaudeLab::transcript_root(self)
    }

    fn scratch(&self) -> PathBuf {
        ClaudeLab::scratch(self)
    }

    fn project(&self) -> PathBuf {
        ClaudeLab::project(self)
    }

    fn transcript(&self, session_id: &str) -> Option<PathBuf> {
        ClaudeLab::transcript(self, session_id)
    }
}

impl Bridge {
    /// Returns `None` and prints the reason if the adapter cannot be installed.
    pub(crate) fn start(account: Account) -> Option<Bridge> {
        Self::start_changed(account, |_| {})
    }

    /// The same as [`Bridge::start`]; `change` may modify the agent's entry in the configuration.
    pub(crate) fn start_changed(account: Account, change: impl FnOnce(&mut AgentEntry)) -> Option<Bridge> {
        Some(Bridge::of(ClaudeLab::new(account)?, change))
    }
}
