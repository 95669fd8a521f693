//! A shell that runs command lines one at a time.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Printed before the exit code of a command line.
const MARK: &str = "-- ended with ";

/// A shell that keeps its variables and folder from one line to the next.
pub(crate) struct Shell {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// The exit code of a line, and its stdout and stderr in the order of output.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) text: String,
}

impl Shell {
    /// Starts a shell in a folder with only these variables.
    pub(crate) fn start(folder: &Path, variables: &[(&str, String)]) -> Self {
        let mut child = Command::new("/bin/sh")
            .env_clear()
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// Runs a line until it ends.
    pub(crate) fn run(&mut self, line: &str) -> Said {
        let script = format!("{{ {line}\n}} </dev/null 2>&1\nprintf '\\n%s%s\\n' '{MARK}' $?\n");
        self.input.write_all(script.as_bytes()).unwrap();
        let mut text = String::new();
        loop {
            let mut told = String::new();
            assert_ne!(
                self.output.read_line(&mut told).unwrap(),
                0,
                "{line} ended the shell: {text}"
            );
            if let Some(code) = told.strip_prefix(MARK) {
                let code = code.trim_end().parse().unwrap();
                // Removes the line break of the output and the one before the mark.
                let text = text.trim_end_matches('\n').to_owned();
                return Said { code, text };
            }
            text += &told;
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _has_ended = (self.child.kill(), self.child.wait());
    }
}

#[test]
fn a_shell_tells_of_each_line() {
    let mut shell = Shell::start(Path::new("/"), &[]);
    let said = |code, text: &str| Said {
        code,
        text: text.to_owned(),
    };
    assert_eq!(shell.run("cd /dev; a=b"), said(0, ""));
    assert_eq!(
        shell.run("pwd; echo $a >&2; printf c; (exit 3)"),
        said(3, "/dev\nb\nc")
    );
}
