//! A pseudo terminal whose session leader is a command, as under a shell, and a user who types into it.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcgetwinsize, tcsetwinsize};

use crate::screen::{ROWS, Screen};

/// Longer than any step takes on a busy machine; only a hang exceeds it.
const PATIENCE: Timespec = Timespec {
    tv_sec: 60,
    tv_nsec: 0,
};

/// A terminal with a running command.
pub(crate) struct Terminal {
    screen: File,
    child: Child,
    settings: Termios,
    shown: String,
    /// The first bytes of a character whose other bytes have not been read yet.
    cut: Vec<u8>,
    display: Screen,
    /// Whether the terminal answers questions of the program, for example where the cursor is.
    answers: bool,
}

impl Terminal {
    /// Runs a command in a new terminal with this many columns.
    pub(crate) fn of(columns: u16, command: &Command) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave: OwnedFd = rustix::fs::open(name, flags, Mode::empty()).unwrap();
        let size = Winsize {
            ws_row: u16::try_from(ROWS).unwrap(),
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&slave, size).unwrap();
        let settings = tcgetattr(&slave).unwrap();

        // Creates a new session whose controlling terminal is stdin.
        let mut leader = Command::new("/usr/bin/env");
        // The tests may run in the background, where these signals are ignored.
        leader.args(["--default-signal=INT,HUP", "setsid", "--ctty"]);
        leader.arg(command.get_program());
        leader.args(command.get_args()).env_clear();
        if let Some(path) = std::env::var_os("PATH") {
            leader.env("PATH", path);
        }
        // The command's own variables come last, because they may replace `PATH`.
        leader.envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        leader.env("TERM", "xterm");
        leader.current_dir(command.get_current_dir().unwrap());
        let child = leader
            .stdin(Stdio::from(slave.try_clone().unwrap()))
            .stdout(Stdio::from(slave.try_clone().unwrap()))
            .stderr(Stdio::from(slave))
            .spawn()
            .unwrap();
        // The `Command` holds further descriptors of the terminal, which would keep it open.
        drop(leader);
        Self {
            screen: File::from(master),
            child,
            settings,
            shown: String::new(),
            cut: Vec::new(),
            display: Screen::new(usize::from(columns)),
            answers: true,
        }
    }

    /// Turns off the terminal's answers to questions of the program.
    pub(crate) fn silent(mut self) -> Self {
        self.answers = false;
        self
    }

    /// Reads until these words are shown, and returns the output up to them. The returned output is not
    /// searched again.
    #[track_caller]
    pub(crate) fn until(&mut self, words: &str) -> String {
        loop {
            if let Some(at) = self.shown.find(words) {
                let rest = self.shown.split_off(at + words.len());
                return std::mem::replace(&mut self.shown, rest);
            }
            assert!(
                self.more(),
                "the output ended without {words:?}: {:?}",
                self.shown
            );
        }
    }

    pub(crate) fn type_in(&mut self, text: &str) {
        self.screen.write_all(text.as_bytes()).unwrap();
    }

    /// Changes the number of columns.
    pub(crate) fn resize(&self, columns: u16) {
        let size = tcgetwinsize(&self.screen).unwrap();
        let ws_col = columns;
        tcsetwinsize(&self.screen, Winsize { ws_col, ..size }).unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Reads to the end. Returns the output and the exit code. Checks that the terminal's settings are
    /// restored.
    pub(crate) fn ended(self) -> (String, Option<i32>) {
        let (shown, _, code) = self.closed();
        (shown, code)
    }

    /// Reads to the end. Returns the final text of the screen and the exit code.
    pub(crate) fn seen(self) -> (String, Option<i32>) {
        let (_, display, code) = self.closed();
        (display.text(), code)
    }

    /// Reads to the end. Returns the final screen and the exit code.
    pub(crate) fn display_at_end(self) -> (Screen, Option<i32>) {
        let (_, display, code) = self.closed();
        (display, code)
    }

    /// The screen after the output read so far.
    pub(crate) fn display(&self) -> &Screen {
        &self.display
    }

    /// Closes the terminal, and waits until the command and its children have ended.
    pub(crate) fn close_window(mut self) {
        let pid = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let children = children.split_whitespace().map(|child| child.parse().unwrap());
        let processes: Vec<Pid> = std::iter::once(pid.cast_signed())
            .chain(children)
            .map(|process| Pid::from_raw(process).unwrap())
            .collect();
        let open = |process: &Pid| pidfd_open(*process, PidfdFlags::empty()).unwrap();
        let watched: Vec<OwnedFd> = processes.iter().map(open).collect();
        drop(self.screen);
        for (process, watched) in processes.iter().zip(&watched) {
            let ended = poll(&mut [PollFd::new(watched, PollFlags::IN)], Some(&PATIENCE)).unwrap();
            if ended == 0 {
                kill_process(*process, Signal::KILL).unwrap();
            }
            assert_ne!(ended, 0, "process {process:?} outlives its terminal");
        }
        self.child.wait().unwrap();
    }

    fn closed(mut self) -> (String, Screen, Option<i32>) {
        while self.more() {}
        let code = self.child.wait().unwrap().code();
        let left = tcgetattr(&self.screen).unwrap();
        let found = &self.settings;
        assert_eq!(
            (left.input_modes, left.output_modes, left.local_modes),
            (found.input_modes, found.output_modes, found.local_modes)
        );
        (self.shown, self.display, code)
    }

    /// Reads the available output. Returns whether the terminal is still in use.
    fn more(&mut self) -> bool {
        let ready = poll(&mut [PollFd::new(&self.screen, PollFlags::IN)], Some(&PATIENCE)).unwrap();
        assert_ne!(
            ready, 0,
            "no more output, but the terminal is still in use: {:?}",
            self.shown
        );
        let mut bytes = [0; 4096];
        match self.screen.read(&mut bytes) {
            Ok(0) => false,
            Ok(count) => {
                let answers = self.display.take(&bytes[..count]);
                if self.answers {
                    self.type_in(&answers);
                }
                // A read may end in the middle of a character.
                self.cut.extend_from_slice(&bytes[..count]);
                let whole = self
                    .cut
                    .utf8_chunks()
                    .next()
                    .map_or(0, |chunk| chunk.valid().len());
                let rest = self.cut.split_off(whole);
                let text = std::mem::replace(&mut self.cut, rest);
                self.shown.push_str(std::str::from_utf8(&text).unwrap());
                true
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => true,
            // No process has the other end open any more.
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
                false
            }
        }
    }
}
