//! The processes that a test's daemon has, seen from outside: by their environment and command line, as the
//! kernel shows them, and by descriptors, which no later process can inherit.

use std::fs;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::{Signal, pidfd_send_signal};

use crate::bridge_of::{Bridge, Lab};
use crate::support::signs::{self, Watched};

/// How long a process may take to be gone once nothing holds it.
const END_LIMIT: Duration = Duration::from_secs(20);

/// Where a [`tool`] says which process it is, in the conversation's folder.
const TOOL_PID: &str = "tool.pid";

/// One process, for as long as the test looks at it.
#[derive(Debug)]
pub(crate) struct Process {
    #[expect(dead_code, reason = "told when a test fails")]
    pid: u32,
    pub(crate) command: String,
    descriptor: OwnedFd,
}

impl<L: Lab> Bridge<L> {
    /// The agent's processes: adapter, its children, and the tools of those. They all carry the test's
    /// scratch folder in their environment.
    pub(crate) fn agent_processes(&self) -> Vec<Process> {
        naming(self.lab.scratch().to_str().expect("a path in UTF-8"))
    }

    /// The adapter among them.
    pub(crate) fn adapter(&self) -> Process {
        let mut found = self.agent_processes();
        found.retain(Process::is_adapter);
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    /// The process of a [`tool`], once it has begun.
    pub(crate) fn begun_tool(&self) -> Process {
        let folder = self.lab.project();
        let pid = Watched::below(&folder).wait_for("pid of the tool", || {
            let text = fs::read_to_string(folder.join(TOOL_PID)).ok()?;
            // Its end says that the number is whole.
            text.strip_suffix('\n')?.parse().ok()
        });
        Process::of(pid).expect("a tool that runs")
    }
}

impl Process {
    /// The process of this id; none when it has gone.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        // Opened before it is looked at: what is read is then this process's, or nothing.
        let descriptor = signs::descriptor_of(pid)?;
        let command = shown(pid, "cmdline");
        Some(Self {
            pid,
            command,
            descriptor,
        })
    }

    /// Whether it is the adapter itself and not what it started.
    pub(crate) fn is_adapter(&self) -> bool {
        self.command.contains("-acp/dist/index.js")
    }

    /// SIGKILL to this one alone.
    pub(crate) fn kill(&self) {
        pidfd_send_signal(&self.descriptor, Signal::KILL).expect("a signal");
    }

    /// Stops it where it stands, until it is to go on.
    pub(crate) fn freeze(&self) {
        pidfd_send_signal(&self.descriptor, Signal::STOP).expect("a signal");
    }

    /// Lets it go on after [`Process::freeze`].
    pub(crate) fn thaw(&self) {
        pidfd_send_signal(&self.descriptor, Signal::CONT).expect("a signal");
    }

    /// Waits until its parent has taken note of its end. Only then no signal can be sent to it, not even in
    /// vain.
    pub(crate) fn wait_noted(&self) {
        let is_noted = signs::is_noted_within(&self.descriptor, END_LIMIT);
        assert!(
            is_noted,
            "nobody notes the end of {self:?}, or Linux is older than 6.9"
        );
    }

    /// Waits for its end; whether it came in time.
    pub(crate) fn ends_within(&self, limit: Duration) -> bool {
        signs::ends_within(&self.descriptor, limit)
    }
}

/// A command that says which process it is and then runs another in its place.
pub(crate) fn tool(command: &str) -> String {
    format!("sh -c 'echo $$ > {TOOL_PID}; exec {command}'")
}

/// The processes whose command line or environment names something.
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

/// Fails for each process that is still there when it has had its time.
pub(crate) fn assert_gone(processes: &[Process]) {
    let left: Vec<&Process> = processes
        .iter()
        .filter(|process| !process.ends_within(END_LIMIT))
        .collect();
    assert!(left.is_empty(), "left behind: {left:#?}");
}

/// A file of the kernel's whose parts are divided by zero bytes. One that cannot be read is of a process that
/// has gone, or is somebody else's.
fn shown(pid: u32, file: &str) -> String {
    let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    String::from_utf8_lossy(&bytes)
        .replace('\0', " ")
        .trim()
        .to_owned()
}
