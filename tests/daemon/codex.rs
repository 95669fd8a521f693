//! A family of sessions that Codex wrote, and the paths of its rollouts in a home.

use std::fs;
use std::path::{Path, PathBuf};

use crate::home::Home;

pub(crate) const ROOT: &str = include_str!("../fixtures/transcripts/codex/0.166.0-limit.jsonl");
pub(crate) const HEAD_FORK: &str = include_str!("../fixtures/transcripts/codex/0.166.0-limit-fork.jsonl");
pub(crate) const EARLY_FORK: &str =
    include_str!("../fixtures/transcripts/codex/0.166.0-limit-early-fork.jsonl");
pub(crate) const DEEP_FORK: &str =
    include_str!("../fixtures/transcripts/codex/0.166.0-limit-fork-of-fork.jsonl");
pub(crate) const ROOT_ID: &str = "01a1fcbf-db36-73c1-ae0a-836a46b096da";
pub(crate) const HEAD_FORK_ID: &str = "01a1fcbf-e886-79d2-a3e6-6c11a0d6eeba";
pub(crate) const EARLY_ID: &str = "01a1fcbf-e8e6-7b20-bdec-a0ea0263efff";
pub(crate) const DEEP_ID: &str = "01a1fcbf-e951-7fa1-baa7-4184e695b989";

/// Returns a home with a Codex agent whose program does not exist.
pub(crate) fn home() -> Home {
    let home = Home::new();
    home.configure(&format!(
        "default_agent = \"loopback\"\n[agents.codex]\ncommand = \"/nonexistent/codex\"\ntranscripts = \"{}\"\n",
        home.path().join("codex").display()
    ));
    home
}

/// Returns the path of a session's rollout.
pub(crate) fn rollout(home: &Home, id: &str) -> PathBuf {
    let name = format!("codex/sessions/2026/11/21/rollout-2026-11-21T06-16-34-{id}.jsonl");
    home.path().join(name)
}

/// Writes a rollout, and creates its folder.
pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}
