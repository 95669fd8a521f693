//! A scratch home with the built-in agent, independent of this machine's agents.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A scratch home. Dropping it stops its daemon.
pub(crate) struct Scratch {
    folder: TempDir,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        // The path of a socket is limited in length.
        let scratch = Self {
            folder: tempfile::tempdir_in("/tmp").unwrap(),
        };
        let config = scratch.home().join("config");
        fs::create_dir_all(&config).unwrap();
        fs::create_dir(scratch.project()).unwrap();
        fs::write(config.join("config.toml"), "default_agent = \"loopback\"\n").unwrap();
        scratch
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.folder.path().join("bridge")
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.folder.path().join("project")
    }

    /// The environment of all programs here. Its PATH contains no installed agent.
    pub(crate) fn variables(&self) -> [(&'static str, String); 5] {
        let programs = Path::new(env!("CARGO_BIN_EXE_sessionctl")).parent().unwrap();
        [
            ("PATH", format!("{}:/usr/bin:/bin", programs.display())),
            ("HOME", self.folder.path().display().to_string()),
            ("SESSIOND_HOME", self.home().display().to_string()),
            ("LC_ALL", "C.UTF-8".to_owned()),
            ("TZ", "UTC".to_owned()),
        ]
    }

    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .envs(self.variables())
            .current_dir(self.project())
            .stdin(Stdio::null());
        command
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let stopped = self.command("sessionctl").args(["--no-start", "stop"]).output();
        assert!(stopped.is_ok() || std::thread::panicking(), "{stopped:?}");
    }
}
