//! The demonstration as a process: however it ends, nothing of it stays.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::printed::check_printed;

/// A demonstration in a temporary folder of its own.
struct Played {
    folder: tempfile::TempDir,
    child: Child,
    told: BufReader<ChildStdout>,
}

impl Played {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_sessionctl"))
            .arg("demo")
            .env_clear()
            .env("TMPDIR", folder.path())
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let told = BufReader::new(child.stdout.take().unwrap());
        Self { folder, child, told }
    }

    /// Reads on until a line holds these words.
    fn until(&mut self, words: &str) {
        let mut line = String::new();
        while !line.contains(words) {
            line.clear();
            assert_ne!(self.told.read_line(&mut line).unwrap(), 0, "{words} is told");
        }
    }

    fn ended(self) -> Output {
        // The reader stays until the end, as a person's terminal would.
        let output = self.child.wait_with_output().unwrap();
        drop(self.told);
        nothing_is_left(self.folder.path());
        output
    }
}

#[track_caller]
fn nothing_is_left(folder: &Path) {
    let files: Vec<_> = fs::read_dir(folder).unwrap().flatten().collect();
    assert!(files.is_empty(), "{files:?}");
    assert_eq!(processes_of(folder), Vec::<String>::new());
}

/// The command lines of the processes whose environment or arguments name the folder.
fn processes_of(folder: &Path) -> Vec<String> {
    let needle = folder.to_str().unwrap();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let shown = |file: &str| {
            let bytes = fs::read(entry.path().join(file)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).replace('\0', " ")
        };
        let command = shown("cmdline");
        if command.contains(needle) || shown("environ").contains(needle) {
            found.push(command);
        }
    }
    found
}

#[test]
fn a_signal_ends_the_demonstration_and_nothing_of_it_stays() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let mut played = Played::start();
        played.until("2. ");
        kill_process(Pid::from_child(&played.child), signal).unwrap();
        let output = played.ended();
        check_printed(&["demo", "stopped by a signal"], &output, code);
    }
}

#[test]
fn a_signal_while_the_daemon_starts_leaves_nothing_either() {
    let mut played = Played::start();
    played.until("The main job");
    kill_process(Pid::from_child(&played.child), Signal::TERM).unwrap();
    assert_eq!(played.ended().status.code(), Some(143));
}

#[test]
#[cfg(target_os = "linux")]
fn a_terminal_is_told_at_once_how_long_it_takes() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = super::sessionctl(folder.path(), &["demo"]);
    command.env("TMPDIR", folder.path());
    let mut terminal = super::terminal::Terminal::of(80, &command);
    let before = terminal.until("about a minute");
    assert!(!before.contains('\n'), "{before:?}");
    terminal.type_in("\x03");
    terminal.exits(130);
    nothing_is_left(folder.path());
}

#[test]
fn a_reader_that_leaves_ends_the_demonstration_and_nothing_of_it_stays() {
    let mut played = Played::start();
    played.until("1. ");
    let Played { folder, child, told } = played;
    drop(told);
    let output = child.wait_with_output().unwrap();
    nothing_is_left(folder.path());
    assert_eq!(output.status.code(), Some(141), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}
