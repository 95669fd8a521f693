//! A home with a real daemon in it, which the first command starts.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::printed::{check_printed, check_shown};
#[cfg(target_os = "linux")]
use crate::home::wait_for_end;
use crate::home::{Frozen, kill_now, unsearched_folder};

/// The home. Its daemon ends when it is dropped.
pub(crate) struct Home {
    folder: TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self {
            folder: unsearched_folder(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes the configuration, which the next start of the daemon reads.
    pub(crate) fn configure(&self, text: &str) {
        let folder = self.path().join("config");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("config.toml"), text).unwrap();
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        super::sessionctl(self.folder.path(), arguments)
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// The process of its daemon.
    pub(crate) fn daemon_pid(&self) -> u32 {
        let status: Value = serde_json::from_str(&self.said(&["status", "--json"])).unwrap();
        u32::try_from(status["pid"].as_u64().unwrap()).unwrap()
    }

    /// Kills the daemon as the machine would when memory runs out, and waits until it has ended: until then its socket takes
    /// connections that nobody will serve.
    pub(crate) fn kill_daemon(&self) {
        let pid = self.daemon_pid();
        kill_now(pid);
        #[cfg(target_os = "linux")]
        wait_for_end(pid);
    }

    /// Stops the daemon where it stands.
    pub(crate) fn freeze_daemon(&self) -> Frozen {
        Frozen::new(self.daemon_pid())
    }

    /// The conversation as it is shown.
    pub(crate) fn shown(&self, id: &str) -> Value {
        let shown: Value = serde_json::from_str(&self.said(&["show", id, "--json"])).unwrap();
        shown["conversation"].clone()
    }

    /// The conversation once it is shown so, which is looked at again after each of its events.
    pub(crate) fn once(&self, id: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        self.once_told(id, |_| Some(self.shown(id)).filter(&is_so))
    }

    /// Waits until the agent has said something in the running turn. By then the prompt is in the transcript. If the daemon
    /// were killed earlier, it would send the prompt again.
    pub(crate) fn once_agent_spoke(&self, id: &str) {
        self.once_told(id, |event| event.contains("agent_message_chunk").then_some(()));
    }

    /// The first value that `made` returns for an event.
    fn once_told<T>(&self, id: &str, made: impl Fn(&str) -> Option<T>) -> T {
        let mut attached = self
            .command(&["attach", id, "--json"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let events = BufReader::new(attached.stdout.take().unwrap()).lines();
        let made = events.map(Result::unwrap).find_map(|event| made(&event));
        attached.kill().unwrap();
        attached.wait().unwrap();
        made.expect("the events go on")
    }

    /// What a command prints on standard error, which [`check_printed`] checks, with its exit code.
    #[track_caller]
    pub(crate) fn printed(&self, arguments: &[&str], code: i32) -> String {
        check_printed(arguments, &self.run(arguments), code)
    }

    /// What a command that must work prints on standard output for people, which [`check_shown`] checks.
    #[track_caller]
    pub(crate) fn shows(&self, arguments: &[&str]) -> String {
        check_shown(arguments, &self.run(arguments), 0)
    }

    /// Runs a command as a person pastes it into a shell. Only the shell finds programs on a path: a daemon that the command
    /// starts finds no agents there.
    pub(crate) fn pasted(&self, command: &str) -> Output {
        let programs = Path::new(env!("CARGO_BIN_EXE_sessionctl")).parent().unwrap();
        let mut shell = Command::new("/bin/sh");
        // A variable that was not in the environment is not exported.
        shell.args(["-c", r#"PATH=$0:/usr/bin:/bin; eval "$1""#]);
        shell.arg(programs).arg(command);
        shell.env_clear().env("LC_ALL", "C.UTF-8");
        shell.env("SESSIOND_HOME", self.path()).current_dir(self.path());
        shell.output().unwrap()
    }

    /// What a pasted command that must work prints on standard output.
    #[track_caller]
    pub(crate) fn said_pasted(&self, command: &str) -> String {
        let output = self.pasted(command);
        assert_eq!(output.status.code(), Some(0), "{command}: {output:?}");
        super::text(&output.stdout).trim_end().to_owned()
    }

    /// What a command that must work prints, without the line end.
    #[track_caller]
    pub(crate) fn said(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
        super::text(&output.stdout).trim_end().to_owned()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let stopped = self.run(&["stop"]);
        assert!(
            stopped.status.success() || std::thread::panicking(),
            "{stopped:?}"
        );
    }
}
