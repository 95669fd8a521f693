//! Every command line in a block of README.md is run, in the order in which they stand there, and says what is shown.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
#[cfg(target_os = "linux")]
use tempfile::TempDir;

use super::readme::{Block, Paper};
use super::shell::{Ids, Said, Shell, ids_of};
#[cfg(target_os = "linux")]
use super::{meant_by, paper, root};

/// Command lines that are not run here, each with why, and with the test that does what it says where there is one.
const ELSEWHERE: [(&str, &str, &str); 19] = [
    (
        "sessionctl keep --forget 6d7e3074-ff17-4e38-b74e-98c3c4cf9faf",
        "the session of that id is a conversation's here, and is refused",
        "tests/cli/transcripts.rs::copies_of_no_conversation_are_listed_and_forgotten",
    ),
    (
        "cargo run --release --bin sessionctl -- demo",
        "builds for minutes; .ci/run runs it as it stands here",
        "tests/packaging/mod.rs::the_script_installs_twice_what_works_and_takes_away_only_that",
    ),
    ("cargo test --workspace", "would run this test again", ""),
    (
        "cargo run --example chat -- SOCKET FOLDER PROMPT",
        "with real ones in the place of its words",
        "tests/packaging/clients.rs::the_one_in_rust_answers_a_question_and_outlives_its_connection",
    ),
    (
        "cargo install --path .",
        "builds for minutes, of the same programs that the tests have; the script installs them too",
        "tests/packaging/mod.rs::the_script_installs_twice_what_works_and_takes_away_only_that",
    ),
    (
        "packaging/install.sh",
        "builds for minutes, unless it is given what was built",
        "tests/packaging/mod.rs::from_source_the_script_installs_twice_what_works_and_takes_away_only_that",
    ),
    (
        "packaging/install.sh --service",
        "talks to the service manager of whoever runs the test",
        "tests/packaging/manager.rs::systemd_runs_the_service_of_the_script_until_that_is_taken_away",
    ),
    (
        "packaging/uninstall.sh",
        "removes what whoever runs the test has installed",
        "tests/packaging/mod.rs::the_script_installs_twice_what_works_and_takes_away_only_that",
    ),
    (
        "packaging/deb.sh target",
        "builds for minutes, unless it is given what was built",
        "tests/packaging/debian.rs::from_source_the_package_is_installed_works_and_is_removed",
    ),
    (
        "systemctl --user status sessiond",
        "needs the service manager of a user; what the units say is done without",
        "tests/packaging/mod.rs::the_service_of_the_script_is_enabled_serves_and_leaves_the_data_alone",
    ),
    (
        "systemctl --user enable --now sessiond.service",
        "needs the service manager of a user",
        "tests/packaging/manager.rs::systemd_runs_the_service_of_the_package_until_that_is_removed",
    ),
    (
        "systemctl --user disable --now sessiond.service sessiond.socket",
        "needs the service manager of a user; that uninstall.sh calls it is shown",
        "tests/packaging/mod.rs::the_service_of_the_script_is_enabled_serves_and_leaves_the_data_alone",
    ),
    (
        "systemctl --user import-environment PATH",
        "needs the service manager of a user",
        "",
    ),
    (
        "systemctl --user restart sessiond",
        "needs the service manager of a user; that what is stopped starts again is shown",
        "tests/packaging/manager.rs::systemd_runs_the_service_of_the_script_until_that_is_taken_away",
    ),
    (
        "npm install -g @agentclientprotocol/claude-agent-acp",
        "fetches some hundred megabytes; the tests with the real adapters install this package",
        "",
    ),
    (
        "npm install -g @agentclientprotocol/codex-acp",
        "fetches some hundred megabytes; the tests with the real adapters install this package",
        "",
    ),
    (
        "sessionctl attach .",
        "follows until it is interrupted",
        "tests/cli/whole.rs::attach_goes_on_when_the_daemon_comes_back",
    ),
    ("codex unarchive ID", "Codex' own program", ""),
    (
        "tar --zstd -tf FILE",
        "not each tar has zstd; that a bundle is such an archive is tested by its reader",
        "",
    ),
];

/// With which programs a command line may begin that is run here. Whatever is new is looked at by a person first.
const RUN: [&str; 4] = ["sessionctl", "export", "kill", "mv"];

/// What is there before the command lines of a section run, in a folder of the section's own.
const SCENES: [(&str, &str); 9] = [
    (
        "Talk to Claude or Codex",
        "echo 'And on the other machine?' > question.txt",
    ),
    (
        "Go on after a limit, a crash or a reboot",
        "sessionctl new && { sessionctl send . 'Fix it [[limit 6000]]' || [ $? = 7 ]; }",
    ),
    (
        "Branch, edit, undo",
        "mkdir ../another && sessionctl new && sessionctl send . One && sessionctl send . Two && sessionctl send . Three",
    ),
    (
        "Move or rename a project",
        "mkdir -p ~/src/elsewhere ~/src/old && (cd ~/src/old && sessionctl new && sessionctl send . Hello) && \
         sessionctl new && sessionctl send . Hello",
    ),
    (
        "Keep transcripts and get them back",
        "sessionctl new && sessionctl send . Hello",
    ),
    (
        "Use sessions that were made elsewhere",
        "sessionctl new && sessionctl send . 'A flaky test' && sessionctl rm .",
    ),
    (
        "Carry a conversation to another machine",
        "mkdir -p ~/src/there && sessionctl new && sessionctl send . Hello",
    ),
    ("Script it", ":"),
    ("Troubleshooting", "sessionctl new && sessionctl send . Hello"),
];

/// A turn that was cut short.
const CRASH: &str = "sessionctl send . 'Do it [[crash]]' || [ $? = 6 ]";

/// What has to be so before a single command line in a block runs, and what that says then, beside what is shown.
const LINES: [(&str, &str, &str); 19] = [
    ("sessionctl agents", "", "loopback"),
    (
        "sessionctl send . - < question.txt",
        "",
        "echo: And on the other machine?",
    ),
    ("sessionctl history . --last 10", "", "> Then mend it"),
    // A question is open then, and nobody answers it.
    (
        "sessionctl cancel .",
        "sessionctl send . '[[ask May I?]]' || [ $? = 8 ]",
        "",
    ),
    ("sessionctl continue . --at-reset", "", "goes on at"),
    (
        "sessionctl continue . --at 06:30 \"Now the long tests\"",
        "",
        " 06:30",
    ),
    ("sessionctl recover .", CRASH, "goes on now"),
    // Of another one, once the first has gone on: they share a process.
    (
        "sessionctl recover --all",
        "sessionctl send . --queue Then && other=$(sessionctl new) && { sessionctl send $other 'Do it [[crash]]' || [ $? = 6 ]; }",
        "goes on now",
    ),
    (
        "sessionctl edit . --at 3 \"Use a trait instead\"",
        "",
        "in place of 1 turn",
    ),
    ("sessionctl undo .", "", "is the head again"),
    ("sessionctl tree .", "", "\"Another way\""),
    ("sessionctl mv . ~/src/elsewhere", "", "moved with 1 file"),
    (
        "mv ~/src/old ~/src/new && sessionctl mv ~/src/old ~/src/new",
        "",
        "moved 1 conversation",
    ),
    (
        "mv ~/src/new ~/src/old && sessionctl mv --undo ID",
        "",
        "moved 1 conversation",
    ),
    ("sessionctl doctor", "", "0 errors"),
    ("sessionctl restore .", "rm \"$(transcript)\"", ".jsonl"),
    ("sessionctl transcripts \"flaky test\"", "", "A flaky test"),
    (
        "sessionctl check . --repair",
        "echo 'no record' >>\"$(transcript)\"",
        "repaired as",
    ),
    ("sessionctl --json ls --limit 5", "", "{\"conversations\":[{"),
];

/// A function for what is above: the path of the transcript with which the newest conversation of a folder goes on.
const TRANSCRIPT: &str = r#"transcript() {
    head="$(sessionctl --json show . | grep -o '"head":"[^"]*' | cut -d'"' -f4)"
    echo "$SESSIOND_HOME"/data/loopback/projects/*/"$head.jsonl"
}"#;

/// Where a command line begins so, it is meant for a machine that knows nothing of what ran before it.
const ON_ANOTHER_MACHINE: &str = "sessionctl import ";

/// The folder that the README names for everything, in place of which the test's own is used.
const FOLDER_OF_THE_README: &str = "/tmp/bridge";

/// A user's home, with the programs on the path. Its daemons end when it is dropped.
struct Scene {
    folder: TempDir,
}

impl Scene {
    fn new() -> Self {
        // A socket's path is short, which not every machine's folder for temporary files is.
        let scene = Self {
            folder: tempfile::tempdir_in("/tmp").unwrap(),
        };
        for machine in ["here", "there"] {
            let config = scene.of(machine).join("config");
            fs::create_dir_all(&config).unwrap();
            // Whom the README talks to is played by the built-in agent.
            let agents = format!(
                "default_agent = \"loopback\"\n[agents.claude]\nkind = \"loopback\"\ncommand = {:?}\n\
                 args = [\"loopback-agent\", \"--data\", {:?}]\ntranscripts = {:?}\n",
                env!("CARGO_BIN_EXE_sessionctl"),
                scene.of(machine).join("claude"),
                scene.of(machine).join("claude/loopback"),
            );
            fs::write(config.join("config.toml"), agents).unwrap();
        }
        scene
    }

    fn of(&self, machine: &str) -> PathBuf {
        self.folder.path().join(machine)
    }

    /// A shell in a folder of this name.
    fn shell(&self, folder: &str) -> Shell {
        let folder = self.folder.path().join("work").join(folder);
        fs::create_dir_all(&folder).unwrap();
        let home = self.folder.path().to_str().unwrap();
        let programs = Path::new(env!("CARGO_BIN_EXE_sessionctl")).parent().unwrap();
        // No agent that this machine has is started.
        let path = format!("{}:/usr/bin:/bin", programs.display());
        let own = self.of("here");
        let variables = [
            ("PATH", &*path),
            ("HOME", home),
            ("SESSIOND_HOME", own.to_str().unwrap()),
            ("LC_ALL", "C.UTF-8"),
        ];
        let mut shell = Shell::start(&folder, &variables);
        assert_eq!(shell.run(TRANSCRIPT).code, 0);
        shell
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for machine in ["here", "there"] {
            let stopped = Command::new(env!("CARGO_BIN_EXE_sessionctl"))
                .arg("--home")
                .arg(self.of(machine))
                .args(["--no-start", "stop"])
                .stdin(Stdio::null())
                .output();
            assert!(stopped.is_ok() || std::thread::panicking(), "{stopped:?}");
        }
    }
}

/// A command line of a block, and what it is shown to say; none where nothing is shown.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    command: &'a str,
    shown: Option<Vec<&'a str>>,
}

/// The command lines of a block of commands; none of another one.
fn lines_of<'a>(block: &Block<'a>) -> Vec<Line<'a>> {
    let mut lines: Vec<Line<'a>> = Vec::new();
    for text in &block.lines {
        match block.language {
            "sh" => lines.push(Line {
                command: text.split("  #").next().unwrap().trim(),
                shown: None,
            }),
            "console" => match (text.strip_prefix("$ "), lines.last_mut()) {
                (Some(command), _) => lines.push(Line {
                    command,
                    shown: Some(Vec::new()),
                }),
                (None, last) => last
                    .and_then(|line| line.shown.as_mut())
                    .unwrap_or_else(|| panic!("{text} is said by nobody"))
                    .push(text),
            },
            _ => {}
        }
    }
    lines.retain(|line| !line.command.is_empty());
    lines
}

/// Whether it is listed as one that is not run here.
pub(crate) fn is_elsewhere(command: &str) -> bool {
    ELSEWHERE.iter().any(|(line, _, _)| *line == command)
}

/// The program with which a line begins, also within `name=$(…)`.
fn program(command: &str) -> &str {
    let first = command.split_whitespace().next().unwrap_or_default();
    first.split_once("=$(").map_or(first, |(_, first)| first)
}

/// Runs one command line as a reader would who follows the README. `ID` is the last id that was told.
fn carry_out(shell: &mut Shell, scene: &Scene, command: &str, told: &str) -> Said {
    let own = scene.of("here");
    let mut line = command.replace(FOLDER_OF_THE_README, own.to_str().unwrap());
    if line.ends_with(" ID") {
        let id = ids_of(told).pop().expect("an id that was told");
        line = line.replace(" ID", &format!(" {id}"));
    }
    if command.starts_with(ON_ANOTHER_MACHINE) {
        line = format!("SESSIOND_HOME={} {line}", scene.of("there").display());
    }
    shell.run(&line)
}

/// That a line said what is shown and what it has to, and ended as that says.
fn check(line: &Line<'_>, says: &str, said: &Said, ids: &mut Ids) {
    let fails = line
        .shown
        .as_ref()
        .is_some_and(|shown| shown.iter().any(|text| text.starts_with("error: ")));
    assert_eq!(said.code != 0, fails, "$ {}\n{said:?}", line.command);
    let is_nothing_done = said.text.contains("nothing to cancel");
    assert!(
        said.text.contains(says) && !is_nothing_done,
        "$ {}\n{said:?}",
        line.command
    );
    if let Some(shown) = &line.shown {
        let real: Vec<&str> = said.text.lines().collect();
        let is_same =
            shown.len() == real.len() && shown.iter().zip(&real).all(|(shown, real)| ids.says(shown, real));
        assert!(is_same, "$ {}\nshown {shown:#?}\nsaid {real:#?}", line.command);
    }
}

#[test]
fn each_command_line_of_the_readme_runs_and_says_what_is_shown() {
    let readme = paper("README.md");
    let scene = Scene::new();
    let mut unused: BTreeSet<&str> = SCENES.iter().map(|(section, _)| *section).collect();
    unused.extend(LINES.iter().map(|(command, _, _)| *command));
    let mut ids = Ids::default();
    let (mut section, mut shell, mut told) = ("", scene.shell("first"), String::new());
    let mut count = 0;
    for block in Paper::of(&readme).blocks {
        if block.section != section {
            section = block.section;
            shell = scene.shell(section);
            unused.remove(section);
            if let Some((_, before)) = SCENES.iter().find(|(named, _)| *named == section) {
                let said = shell.run(before);
                assert_eq!(said.code, 0, "the scene of {section}: {}", said.text);
            }
        }
        told.clear();
        for line in lines_of(&block) {
            if is_elsewhere(line.command) {
                continue;
            }
            assert!(
                RUN.contains(&program(line.command)),
                "{:?} in {section:?} is neither run here nor listed as run elsewhere",
                line.command
            );
            let known = LINES.iter().find(|(command, _, _)| *command == line.command);
            let (command, before, says) = known.copied().unwrap_or((line.command, "", ""));
            unused.remove(command);
            if !before.is_empty() {
                let said = shell.run(before);
                assert_eq!(said.code, 0, "before {command}: {}", said.text);
            }
            let said = carry_out(&mut shell, &scene, &ids.in_this_run(command), &told);
            check(&line, says, &said, &mut ids);
            told.extend([&said.text, "\n"]);
            count += 1;
        }
    }
    assert_eq!(unused, BTreeSet::new(), "of no section and no command line");
    assert!(count > 50, "only {count} command lines were found");
}

#[test]
fn what_is_run_elsewhere_is_in_the_readme_and_its_test_is_there() {
    let readme = paper("README.md");
    let parts = Paper::of(&readme);
    let blocks = parts.blocks.iter().flat_map(lines_of).map(|line| line.command);
    let snippets = parts.snippets.iter().map(|snippet| &*snippet.text);
    let known: BTreeSet<&str> = blocks.chain(snippets).collect();
    for (line, why, test) in ELSEWHERE {
        assert!(known.contains(line), "{line} is not in README.md any more");
        assert!(!why.is_empty(), "{line}");
        if let Some((path, name)) = test.split_once("::") {
            let text = fs::read_to_string(root().join(path)).unwrap();
            assert!(meant_by(&text, name).is_some(), "{line}: there is no {test}");
        }
        // What is told to be installed is what the tests install.
        if let Some(package) = line.strip_prefix("npm install -g ") {
            assert!(
                paper("tests/support/npm.rs").contains(&format!("\"{package}@")),
                "{package}"
            );
        }
    }
}

#[test]
fn the_rules_of_the_command_lines_can_fail() {
    let block = |language, lines| Block {
        section: "",
        language,
        lines,
    };
    let line = |command, shown| Line { command, shown };
    assert_eq!(
        lines_of(&block(
            "sh",
            vec!["# only words", "  # too", "a '#' b   # c", "d"]
        )),
        [line("# only words", None), line("a '#' b", None), line("d", None)]
    );
    assert_eq!(
        lines_of(&block("console", vec!["$ a", "b", "", "$ c"])),
        [line("a", Some(vec!["b", ""])), line("c", Some(vec![]))]
    );
    assert_eq!(lines_of(&block("toml", vec!["a"])), []);
    assert_eq!(program("id=$(sessionctl new)"), "sessionctl");
}
