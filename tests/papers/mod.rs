//! The papers say what is true: the code map names every file, the README every command; its clients work, its command lines
//! are run, and what it shows of the wire is told; the table of failures names tests that are there.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test may fail by panicking and may speak, its helpers too"
)]

#[allow(unreachable_pub, reason = "it is what an app would write")]
mod client;
mod commands;
mod manual;
mod readme;
mod shell;
#[cfg(target_os = "linux")]
mod snippets;
mod wire;

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use bridge_protocol::turn::StopReason;
use tempfile::TempDir;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn paper(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The one code block of this language.
fn block(language: &str) -> String {
    let readme = paper("README.md");
    let fence = format!("```{language}\n");
    let mut parts = readme.split(&fence).skip(1);
    let part = parts.next().unwrap_or_else(|| panic!("no {language} block"));
    assert!(parts.next().is_none(), "more than one {language} block");
    part.split("```").next().unwrap().to_owned()
}

/// Every source file that is not a test, from the root with `/` between.
fn source_files() -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    for folder in ["src", "bridge-protocol/src"] {
        collect(&root().join(folder), &mut files);
    }
    files
}

fn collect(folder: &Path, files: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            // A module's tests in several files are as little on the map as those in one.
            if !path.ends_with("tests") {
                collect(&path, files);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
            files.insert(
                path.strip_prefix(root())
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .replace('\\', "/"),
            );
        }
    }
}

/// The files that a map names: lines such as "- `src/lib.rs`: the rooms".
fn mapped(map: &str) -> BTreeSet<String> {
    map.lines()
        .filter_map(|line| line.strip_prefix("- `")?.split_once("`: "))
        .filter(|(path, what)| path.ends_with(".rs") && !what.trim().is_empty())
        .map(|(path, _)| path.to_owned())
        .collect()
}

/// The commands in the help text, but for the one that clap adds.
fn commands(help: &str) -> Vec<String> {
    help.lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|command| *command != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn each_source_file_is_in_the_code_map() {
    let (files, map) = (source_files(), mapped(&paper("ARCHITECTURE.md")));
    let missing: Vec<_> = files.difference(&map).collect();
    let gone: Vec<_> = map.difference(&files).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "ARCHITECTURE.md lacks {missing:#?} and names {gone:#?}, which are not there"
    );
}

#[test]
fn the_rules_of_the_map_can_fail() {
    let map = mapped("- `src/a.rs`: an a\n- `src/b.rs`\n- `src/c.rs`: \n`src/d.rs`: a d\n");
    assert_eq!(map, BTreeSet::from(["src/a.rs".to_owned()]));
    let found = commands("Usage: x\n\nCommands:\n  new   Make\n  help  Print\n\nOptions:\n  -h\n");
    assert_eq!(found, ["new"]);
}

#[test]
fn each_command_is_in_the_readme() {
    let help = run(Command::new(env!("CARGO_BIN_EXE_sessionctl")).arg("--help"));
    let commands = commands(&String::from_utf8(help.stdout).unwrap());
    assert!(commands.len() > 10, "{commands:?}");
    let readme = paper("README.md");
    let missing: Vec<_> = commands
        .iter()
        .filter(|command| !readme.contains(&format!("`{command}`")))
        .collect();
    assert!(missing.is_empty(), "README.md lacks {missing:?}");
}

/// How many of other people's failures are told apart, as `F1` to `F42`.
const FAILURES: u32 = 42;

/// What is wrong with the table of failures: a row without tests, a failure that is named twice, a test that is not
/// there, tests none of which says that it means the failure. `read` gives the text of a file.
fn wrong_in_table(table: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    let (mut names, mut failures) = (BTreeSet::new(), BTreeSet::new());
    for row in table.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, failure, tests] = cells[..] else {
            wrong.push(format!("{row}: not three cells"));
            continue;
        };
        if !names.insert(name) || !failures.insert(failure) {
            wrong.push(format!("{name}: named twice"));
        }
        let mut tests = tests.split('`').skip(1).step_by(2).peekable();
        if failure.is_empty() || tests.peek().is_none() {
            wrong.push(format!("{name}: nothing said, or no test"));
        }
        let mut is_meant = false;
        for test in tests {
            let found = test
                .split_once("::")
                .and_then(|(path, test)| meant_by(&read(path)?, test));
            match found {
                Some(meant) => is_meant |= meant.contains(name),
                None => wrong.push(format!("{name}: there is no {test}")),
            }
        }
        if !is_meant {
            wrong.push(format!("{name}: no test of it says so"));
        }
    }
    if names.is_empty() {
        wrong.push("no row".to_owned());
    }
    wrong
}

/// The numbers up to this one that are neither a row of the table nor told as missing above it, or are both. Such a line
/// begins with the number, as "- F29, a subagent".
fn unaccounted(table: &str, last: u32) -> Vec<String> {
    let begins = |line: &str, mark: &str, name: &str| {
        let rest = line.strip_prefix(mark).and_then(|rest| rest.strip_prefix(name));
        rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
    };
    let is_accounted = |name: &String| {
        let [rows, told] = ["| ", "- "].map(|mark| table.lines().any(|line| begins(line, mark, name)));
        rows != told
    };
    let names = (1..=last).map(|number| format!("F{number}"));
    names.filter(|name| !is_accounted(name)).collect()
}

/// The failures that a test means, in its name or above it; none where a file has no such function, or it is not marked
/// as a test.
fn meant_by(text: &str, name: &str) -> Option<BTreeSet<String>> {
    let (before, _) = text.split_once(&format!("fn {name}("))?;
    // The line of the function itself may begin with `async`.
    let above = before.rsplit_once('\n').map_or("", |(above, _)| above);
    let marks = above
        .lines()
        .rev()
        .map(str::trim)
        .take_while(|line| line.starts_with(['#', '/']));
    let (attributes, comments): (Vec<_>, Vec<_>) = marks.partition(|mark| mark.starts_with('#'));
    let is_test = |mark: &&str| mark.starts_with("#[test") || mark.starts_with("#[tokio::test");
    attributes.iter().find(|mark| is_test(mark))?;
    let first = name.split('_').next();
    Some(comments.into_iter().chain(first).flat_map(meant).collect())
}

/// The failures that a text means, as `F7` or `f7_`.
fn meant(text: &str) -> BTreeSet<String> {
    let words = text.split(|character: char| !character.is_ascii_alphanumeric());
    let is_name = |word: &&str| {
        let digits = word.strip_prefix(['F', 'D', 'f', 'd']);
        digits.is_some_and(|digits| {
            (1..=2).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    words.filter(is_name).map(str::to_uppercase).collect()
}

#[test]
fn each_failure_has_its_tests() {
    let read = |path: &str| fs::read_to_string(root().join(path)).ok();
    let table = paper("tests/FAILURES.md");
    let wrong = wrong_in_table(&table, read);
    assert!(wrong.is_empty(), "tests/FAILURES.md: {wrong:#?}");
    let lost = unaccounted(&table, FAILURES);
    assert!(
        lost.is_empty(),
        "tests/FAILURES.md says not what became of {lost:?}"
    );
}

#[test]
fn each_failure_that_a_test_means_is_in_the_table() {
    let known = meant(&paper("tests/FAILURES.md"));
    let mut files = BTreeSet::new();
    collect_all(&root().join("tests/daemon"), &mut files);
    collect_all(&root().join("src"), &mut files);
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let comments = text.lines().map(str::trim).filter(|line| line.starts_with("//"));
        let names = text.split("fn ").skip(1).filter_map(|rest| rest.split_once('_'));
        let names = names
            .map(|(first, _)| first)
            .filter(|first| first.starts_with(['f', 'd']));
        for line in comments.chain(names) {
            let unknown: Vec<_> = meant(line).difference(&known).cloned().collect();
            assert!(unknown.is_empty(), "{}: {line}: {unknown:?}", path.display());
        }
    }
}

fn collect_all(folder: &Path, files: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_all(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.insert(path);
        }
    }
}

#[test]
fn the_rules_of_the_table_can_fail() {
    let read = |path: &str| {
        (path == "a.rs").then(|| {
            "/// F1\n#[test]\nfn there() {}\n\nfn helper() {}\n#[tokio::test]\n/// Why.\nasync fn late() {}\n\
             #[test]\nfn f3_named() {}\n"
                .to_owned()
        })
    };
    let table = |rows: &str| format!("text\n\n| | failure | tests |\n|---|---|---|\n{rows}\n");
    let good = "| F1 | one | `a.rs::there`, `a.rs::late` |";
    let named = "| F3 | three | `a.rs::late`, `a.rs::f3_named` |";
    assert_eq!(wrong_in_table(&table(&format!("{good}\n{named}")), read), [""; 0]);
    for (row, wrong) in [
        ("| F1 | other | `a.rs::there` |", "F1: named twice"),
        ("| F2 | one | `a.rs::there` |", "F2: named twice"),
        ("| F2 | two | |", "F2: nothing said, or no test"),
        ("| F2 | two | `a.rs::gone` |", "F2: there is no a.rs::gone"),
        ("| F2 | two | `a.rs::helper` |", "F2: there is no a.rs::helper"),
        ("| F2 | two | `b.rs::there` |", "F2: there is no b.rs::there"),
        ("| F2 | two | `a.rs::late` |", "F2: no test of it says so"),
        (
            "| F2 | two | `a.rs::there`, `a.rs::f3_named` |",
            "F2: no test of it says so",
        ),
        (
            "| F2 | `a.rs::there` |",
            "| F2 | `a.rs::there` |: not three cells",
        ),
    ] {
        let found = wrong_in_table(&table(&format!("{good}\n{row}")), read);
        assert!(found.iter().any(|found| found == wrong), "{row}: {found:?}");
    }
    assert!(!wrong_in_table("", read).is_empty());
    let told = "- F2, which F4 tests\n- F3, both\n\n| F1 | one |\n| F3 | three |\n| F45 | more |\n";
    assert_eq!(unaccounted(told, 5), ["F3", "F4", "F5"]);
    assert_eq!(
        meant("/// F7, D15: 0xF0 f12_a"),
        ["D15", "F12", "F7"].map(str::to_owned).into()
    );
}

/// A daemon of the test's own, with the built-in agent as its default whatever this machine has installed.
struct Daemon {
    folder: TempDir,
}

impl Daemon {
    fn start() -> Self {
        // A socket's path is short, which not every machine's folder for temporary files is.
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let daemon = Self { folder };
        let config = daemon.home().join("config");
        fs::create_dir_all(&config).unwrap();
        fs::create_dir(daemon.project()).unwrap();
        fs::write(config.join("config.toml"), "default_agent = \"loopback\"\n").unwrap();
        run(daemon.sessionctl().arg("agents"));
        daemon
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    fn project(&self) -> PathBuf {
        self.folder.path().join("project")
    }

    fn socket(&self) -> PathBuf {
        self.home().join("run/sessiond.sock")
    }

    fn sessionctl(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sessionctl"));
        command.arg("--home").arg(self.home());
        // Whoever runs it may have transcripts of their own.
        command.env("HOME", self.folder.path());
        for variable in ["CLAUDE_CONFIG_DIR", "CODEX_HOME"] {
            command.env_remove(variable);
        }
        command
    }

    /// What a client of the README prints; None where there is no such interpreter.
    fn client(&self, interpreter: &str, language: &str, file: &str) -> Option<Vec<String>> {
        let path = self.folder.path().join(file);
        fs::write(&path, block(language)).unwrap();
        let mut command = Command::new(interpreter);
        command.arg(path).arg(self.socket()).current_dir(self.project());
        match command.stdin(Stdio::null()).output() {
            Ok(output) => {
                let said = succeeded(&output);
                Some(said.lines().map(|line| line.trim_end().to_owned()).collect())
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                eprintln!("skipped: {interpreter} is not installed");
                None
            }
            Err(error) => panic!("{interpreter}: {error}"),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // A stop that fails fails the test that follows on this machine's processes, not this one.
        if let Err(error) = self
            .sessionctl()
            .args(["stop", "--no-start"])
            .stdin(Stdio::null())
            .output()
        {
            eprintln!("the daemon was not stopped: {error}");
        }
    }
}

fn run(command: &mut Command) -> Output {
    for variable in ["SESSIOND_HOME", "SESSIOND_SOCKET", "SESSIOND_LOG"] {
        command.env_remove(variable);
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    succeeded(&output);
    output
}

fn succeeded(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{}\n{said}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

/// A client prints the events of its turn as they come, and its stop reason last; only that the turn is on disk may be
/// told behind it.
fn follows_its_turn(said: &[String]) {
    let said = match said {
        [before @ .., last] if last == "checkpointSaved" => before,
        said => said,
    };
    assert_eq!(said.first().map(String::as_str), Some("snapshot"), "{said:#?}");
    assert_eq!(said.last().map(String::as_str), Some("end_turn"), "{said:#?}");
    let place = |what: &str| {
        said.iter()
            .position(|line| line == what)
            .unwrap_or_else(|| panic!("no {what} in {said:#?}"))
    };
    let places = ["promptAccepted", "update echo: Hello", "turnEnded", "end_turn"].map(place);
    assert!(places.is_sorted(), "{said:#?}");
}

#[test]
fn the_node_client_of_the_readme_follows_its_turn() {
    let daemon = Daemon::start();
    if let Some(said) = daemon.client("node", "js", "hello.mjs") {
        follows_its_turn(&said);
    }
}

#[test]
fn the_python_client_of_the_readme_follows_its_turn() {
    let daemon = Daemon::start();
    if let Some(said) = daemon.client("python3", "python", "hello.py") {
        follows_its_turn(&said);
    }
}

#[test]
fn the_rust_client_of_the_readme_is_the_one_that_is_tested() {
    let tested = paper("tests/papers/client.rs");
    let (_heading, code) = tested.split_once("\n\n").unwrap();
    assert_eq!(block("rust"), code);
}

#[tokio::test]
async fn the_rust_client_of_the_readme_follows_its_turn() {
    let daemon = Daemon::start();
    let project = daemon.project();
    let turn = client::hello(&daemon.socket(), project.to_str().unwrap()).await;
    assert_eq!(turn.unwrap().stop_reason, StopReason::EndTurn);
}
