//! Every command line within a sentence or a table of README.md is one that the programs take.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::commands::is_elsewhere;
use super::readme::Paper;
use super::{paper, root, run};

/// Options in sentences that belong to other people's programs.
const OPTIONS_OF_OTHERS: [&str; 1] = ["--resume"];

/// Programs that are not ours: with what else, they are listed.
const OTHERS: [&str; 8] = ["systemctl", "npm", "cargo", "codex", "tar", "zstd", "apt", "dpkg"];

/// The words of a command line, those in quotes as one.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for character in line.chars() {
        match (character, quote) {
            (' ', None) => words.extend(word.take()),
            ('\'' | '"', None) => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (_, Some(open)) if open == character => quote = None,
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}

/// What a program says of its options.
fn help(program: &str, arguments: &[&str]) -> String {
    let said = run(Command::new(program).args(arguments));
    String::from_utf8(said.stdout).unwrap()
}

/// The options in help texts.
fn options(help: &str) -> BTreeSet<&str> {
    help.split(|character: char| character.is_whitespace() || ",=[]".contains(character))
        .filter(|word| word.len() > 2 && word.starts_with("--"))
        .collect()
}

/// What the programs take.
struct Programs {
    commands: BTreeSet<String>,
    options: BTreeSet<String>,
    /// An empty folder, in which no daemon runs.
    home: TempDir,
}

impl Programs {
    fn new() -> Self {
        let sessionctl = env!("CARGO_BIN_EXE_sessionctl");
        let help_of_all = help(sessionctl, &["--help"]);
        let mut texts = vec![
            help(env!("CARGO_BIN_EXE_sessiond"), &["--help"]),
            help(root().join("packaging/install.sh").to_str().unwrap(), &["--help"]),
            help_of_all.clone(),
        ];
        let commands = super::commands(&help_of_all);
        texts.extend(
            commands
                .iter()
                .map(|command| help(sessionctl, &["help", command])),
        );
        let options = texts.iter().flat_map(|text| options(text)).map(str::to_owned);
        Self {
            commands: commands.into_iter().collect(),
            options: options.collect(),
            home: tempfile::tempdir_in("/tmp").unwrap(),
        }
    }

    /// What is wrong with a snippet, as far as it is a command line or an option; `is_missing` where it is one that is not
    /// there yet.
    fn wrong(&self, snippet: &str, is_missing: bool) -> Option<String> {
        if is_elsewhere(snippet) {
            return None;
        }
        let mut words = words(snippet);
        if words.is_empty() {
            return None;
        }
        // Variables that are set for one command.
        let is_set = |word: &String| {
            word.split_once('=')
                .is_some_and(|(name, _)| name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_'))
        };
        words.drain(..words.iter().take_while(|word| is_set(word)).count());
        let first = words.first()?.clone();
        if OTHERS.contains(&&*first) || first.starts_with("packaging/") && first.ends_with(".sh") {
            return (words.len() > 1).then(|| "neither run nor listed as run elsewhere".to_owned());
        }
        if first.starts_with("--") {
            let is_known = self.options.contains(&first) || OPTIONS_OF_OTHERS.contains(&&*first);
            return (!is_known).then(|| format!("no program takes {first}"));
        }
        let is_whole = first == "sessionctl" && !words.iter().any(|word| word == "…");
        words.retain(|word| word != "…");
        let (program, arguments) = match &*first {
            "sessionctl" => (env!("CARGO_BIN_EXE_sessionctl"), &words[1..]),
            "sessiond" => (env!("CARGO_BIN_EXE_sessiond"), &words[1..]),
            command if self.commands.contains(command) => (env!("CARGO_BIN_EXE_sessionctl"), &words[..]),
            _ => return None,
        };
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("SESSIOND_HOME", self.home.path())
            .stdin(Stdio::null());
        if first != "sessiond" {
            command.arg("--no-start");
        }
        // A placeholder where a name is needed.
        command.args(
            arguments
                .iter()
                .map(|word| if word == "COMMAND" { "send" } else { word }),
        );
        // What leaves something out, as a mere name does, is only looked at.
        if !is_whole || arguments.len() < 2 {
            command.arg("--help");
        }
        let output = command.current_dir(self.home.path()).output().unwrap();
        let is_taken = output.status.code() != Some(2);
        (is_taken == is_missing)
            .then(|| String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    }
}

#[test]
fn each_command_line_within_a_sentence_of_the_readme_is_one_that_is_taken() {
    let (readme, programs) = (paper("README.md"), Programs::new());
    let mut wrong = Vec::new();
    let mut count = 0;
    for snippet in Paper::of(&readme).snippets {
        for line in snippet.text.split(" && ").flat_map(|line| line.split(" | ")) {
            let is_missing = snippet.section == "What is not there yet" && line.starts_with("sessionctl ");
            count += usize::from(line.starts_with("sessionctl "));
            let found = programs.wrong(line, is_missing);
            wrong.extend(found.map(|found| format!("{}: `{line}`: {found}", snippet.section)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 20, "only {count} snippets were found");
}

#[test]
fn the_rules_of_the_snippets_can_fail() {
    assert_eq!(words("a 'b c' \"\" d"), ["a", "b c", "", "d"]);

    let programs = Programs::new();
    for (snippet, is_wrong) in [
        ("sessionctl fork CONV --at 3", false),
        ("sessionctl fork --at 3", true),
        ("sessionctl fork CONV --att 3", true),
        ("sessionctl spoon CONV", true),
        ("sessionctl --home /nowhere …", false),
        ("SESSIOND_LOG=debug sessiond --home /nowhere", false),
        ("sessiond --house /nowhere", true),
        ("fork CONV --at", false),
        ("fork --spoon", true),
        ("rm --transcripts", false),
        ("--in-place", false),
        ("--in-peace", true),
        ("--service", false),
        ("--resume", false),
        ("systemctl --user start sessiond", true),
        ("packaging/make.sh now", true),
        ("conversation/fork", false),
    ] {
        assert_eq!(programs.wrong(snippet, false).is_some(), is_wrong, "{snippet}");
    }
    assert!(programs.wrong("sessionctl ls", true).is_some());
    assert_eq!(programs.wrong("sessionctl spoon", true), None);
}
