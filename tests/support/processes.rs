//! The processes of a test's daemon, observed from outside: by environment and command line as the kernel
//! shows them, and by descriptors, which never refer to a later process with the same id.

use std::fs;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::{Signal, pidfd_send_signal};

use crate::bridge_of::Bridge;
use crate::support::lab::Agent;
use crate::support::signs::{self, Watched};

/// How long a process may take to disappear after its end.
const END_LIMIT: Duration = Duration::from_secs(20);

/// The file in the working directory into which a [`tool`] writes its process id.
const TOOL_PID: &str = "tool.pid";

/// One process under observation.
#[derive(Debug)]
pub(crate) struct Process {
    #[expect(dead_code, reason = "told when a test fails")]
    pid: u32,
    pub(crate) command: String,
    descriptor: OwnedFd,
}

impl<A: Agent> Bridge<A> {
    /// The agent's processes: the adapter, its children, and their tools. All of them have the path of the
    /// test's scratch folder in their environment.
    pub(crate) fn agent_processes(&self) -> Vec<Process> {
        naming(self.lab.scratch().to_str().expect("a path in UTF-8"))
    }

    /// The only adapter among them.
    pub(crate) fn adapter(&self) -> Process {
        let mut found = self.agent_processes();
        found.retain(Process::is_adapter);
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    /// Waits until a [`tool`] has started and returns its process.
    pub(crate) fn begun_tool(&self) -> Process {
        let folder = self.lab.project();
        let pid = Watched::below(&folder).wait_for("pid of the tool", || {
            let text = fs::read_to_string(folder.join(TOOL_PID)).ok()?;
            // The line break shows that the number is complete.
            text.strip_suffix('\n')?.parse().ok()
        });
        Process::of(pid).expect("a tool that runs")
    }
}

impl Process {
    /// The process with this id, or `None` if it no longer exists.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        // The descriptor is opened first: what is read afterwards then belongs to this process, or cannot be
        // read.
        let descriptor = signs::descriptor_of(pid)?;
        let command = shown(pid, "cmdline");
        Some(Self {
            pid,
            command,
            descriptor,
        })
    }

    /// Whether this process is the adapter itself, not one of its children.
    pub(crate) fn is_adapter(&self) -> bool {
        self.command.contains("-acp/dist/index.js")
    }

    /// Sends SIGKILL to this process only.
    pub(crate) fn kill(&self) {
        pidfd_send_signal(&self.descriptor, Signal::KILL).expect("a signal");
    }

    /// Stops the process until [`Process::thaw`].
    pub(crate) fn freeze(&self) {
        pidfd_send_signal(&self.descriptor, Signal::STOP).expect("a signal");
    }

    /// Lets the process continue after [`Process::freeze`].
    pub(crate) fn thaw(&self) {
        pidfd_send_signal(&self.descriptor, Signal::CONT).expect("a signal");
    }

    /// Waits until the parent has reaped the process. Only then does sending a signal to it fail; before, a
    /// signal to the dead process succeeds without effect.
    pub(crate) fn wait_noted(&self) {
        let is_noted = signs::is_noted_within(&self.descriptor, END_LIMIT);
        assert!(
            is_noted,
            "no parent has reaped {self:?}, or Linux is older than 6.9"
        );
    }

    /// Waits until the process ends. Returns whether it ended in time.
    pub(crate) fn ends_within(&self, limit: Duration) -> bool {
        signs::ends_within(&self.descriptor, limit)
    }
}

/// A command that writes its process id into [`TOOL_PID`] and then executes another command in the same
/// process.
pub(crate) fn tool(command: &str) -> String {
    format!("sh -c 'echo $$ > {TOOL_PID}; exec {command}'")
}

/// The processes whose command line or environment contains this text.
pub(crate) fn naming(needle: &str) -> Vec<Process> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(pid) = pid.filter(|pid| *pid != std::process::id()) else {
            continue;
        };
        let Some(process) = Process::of(pid) else { continue };
        if process.command.contains(needle) || shown(pid, "environ").contains(needle) {
            found.push(process);
        }
    }
    found
}

/// Panics if one of these processes still exists after [`END_LIMIT`].
pub(crate) fn assert_gone(processes: &[Process]) {
    let left: Vec<&Process> = processes
        .iter()
        .filter(|process| !process.ends_within(END_LIMIT))
        .collect();
    assert!(left.is_empty(), "left behind: {left:#?}");
}

/// Reads a file of `/proc` whose parts are separated by zero bytes. A file that cannot be read belongs to a
/// process that has ended or that another user owns.
fn shown(pid: u32, file: &str) -> String {
    let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    String::from_utf8_lossy(&bytes)
        .replace('\0', " ")
        .trim()
        .to_owned()
}
