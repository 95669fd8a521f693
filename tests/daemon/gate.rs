//! A loopback agent behind a gate: a shell that passes on the daemon's lines, and stops before a call on request.
//!
//! To the daemon, the shell is the agent's process. The loopback agent is its child, and the shell ends when the child
//! does. After a held call, nothing is passed on until the gate is opened, so meanwhile the agent owes the response to
//! that call. A call is held only once; the next process passes it on.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};

use crate::home::Home;
use crate::signs::Watched;

/// `$1` is the folder of the gate; the other arguments are the agent's command line.
const SCRIPT: &str = r#"
gate=$1; shift
echo $$ >> "$gate/starts"
if [ -e "$gate/broken" ]; then cat "$gate/broken" >&2; exit 3; fi
while IFS= read -r line; do
    if [ -e "$gate/hold" ]; then
        read -r method < "$gate/hold"
        case $line in *"\"method\":\"$method\""*)
            mv "$gate/hold" "$gate/held"
            if [ -e "$gate/then" ]; then mv "$gate/then" "$gate/hold"; fi
            read -r _ < "$gate/opened"
        esac
    fi
    printf '%s\n' "$line"
done | { sh -c 'echo $$ >> "$0/children"; exec "$@"' "$gate" "$@" || kill $$; } | if [ -e "$gate/loads" ]; then
    sed -u 's/"resume":{}/"unknown":{}/'
else
    cat
fi
"#;

/// The gate of one home, in front of the agent `gated`.
pub(crate) struct Gate {
    folder: PathBuf,
    program: String,
    /// Writing to this pipe opens the gate. It is open for reading and writing, so that a write does not wait for a
    /// reader.
    opener: File,
}

impl Gate {
    /// Returns a home with this agent, and with this text after the agent's configuration.
    pub(crate) fn home_with(text: &str) -> (Home, Self) {
        let home = Home::new();
        let folder = PathBuf::from(home.folder_named("gate"));
        let script = folder.join("gate.sh");
        fs::write(&script, SCRIPT).unwrap();
        mknodat(
            CWD,
            folder.join("opened"),
            FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let opener = File::options().read(true).write(true).open(folder.join("opened"));
        let gate = Self {
            opener: opener.unwrap(),
            folder,
            program: env!("CARGO_BIN_EXE_sessiond").to_owned(),
        };
        let data = home.data();
        let arguments = [
            script.to_str().unwrap(),
            gate.folder.to_str().unwrap(),
            &gate.program,
            "loopback-agent",
            "--data",
            data.to_str().unwrap(),
        ];
        home.configure(&format!(
            "default_agent = \"gated\"\n{text}\n[agents.gated]\nkind = \"loopback\"\ncommand = \"/bin/sh\"\nargs = {arguments:?}\n",
        ));
        (home, gate)
    }

    pub(crate) fn home() -> (Home, Self) {
        Self::home_with("")
    }

    /// Holds the next call of this method.
    pub(crate) fn hold(&self, method: &str) {
        fs::write(self.folder.join("hold"), format!("{method}\n")).unwrap();
    }

    /// Holds the next call of the first method, and after it the next call of the second one.
    pub(crate) fn hold_then(&self, first: &str, then: &str) {
        fs::write(self.folder.join("then"), format!("{then}\n")).unwrap();
        self.hold(first);
    }

    /// Waits until the call is held.
    pub(crate) fn wait_until_held(&self) {
        let held = self.folder.join("held");
        Watched::below(&self.folder).wait_for("call that is held", || held.exists().then_some(()));
        fs::remove_file(held).unwrap();
    }

    /// Passes on the held call and everything after it.
    pub(crate) fn open(&self) {
        (&self.opener).write_all(b"\n").unwrap();
    }

    /// Makes the agent offer no `session/resume`, from its next start on.
    pub(crate) fn offer_no_resume(&self) {
        fs::write(self.folder.join("loads"), "").unwrap();
    }

    /// Makes each process of the agent die at its start with these last words, or ends that with `None`.
    pub(crate) fn break_with(&self, last_words: Option<&str>) {
        let broken = self.folder.join("broken");
        match last_words {
            Some(words) => fs::write(broken, format!("{words}\n")).unwrap(),
            None => fs::remove_file(broken).unwrap(),
        }
    }

    /// Returns the pids of all processes that were started as the agent, in order.
    pub(crate) fn starts(&self) -> Vec<u32> {
        self.pids_in("starts")
    }

    /// Waits for the child of the newest agent process, and returns the pids of both.
    pub(crate) fn last(&self) -> (u32, u32) {
        let starts = self.starts();
        let child = Watched::below(&self.folder).wait_for("child", || {
            let children = self.pids_in("children");
            (children.len() == starts.len()).then(|| *children.last().unwrap())
        });
        (*starts.last().unwrap(), child)
    }

    /// Kills the newest agent process and its child. The child has not read the held call.
    pub(crate) fn kill_last(&self) {
        let (process, child) = self.last();
        for pid in [child, process] {
            // If the daemon is dead, a process may have read the end of its input and ended already.
            let _ended = kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::KILL);
        }
    }

    /// Returns the pids in a file, ignoring an incomplete last line.
    fn pids_in(&self, name: &str) -> Vec<u32> {
        let text = fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        let whole = text
            .split_inclusive('\n')
            .filter_map(|line| line.strip_suffix('\n'));
        whole.map(|pid| pid.parse().unwrap()).collect()
    }

    /// Returns the pids of the loopback agents that run behind the gate.
    pub(crate) fn children(&self, home: &Home) -> Vec<u32> {
        let processes = home.processes().into_iter();
        let children =
            processes.filter(|(_, line)| line.starts_with(&self.program) && line.contains("loopback-agent"));
        children.map(|(pid, _)| pid).collect()
    }
}
