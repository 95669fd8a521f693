//! The manual pages and what completes a command line, as they are printed: that they say what the help says.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::{check, run, text};

/// What `sessionctl` prints; it has to succeed.
#[track_caller]
fn printed(arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
    text(&output.stdout)
}

/// All pages that are installed, by their names.
fn pages() -> BTreeMap<String, String> {
    let folder = tempfile::tempdir().unwrap();
    printed(&["generate", folder.path().to_str().unwrap()]);
    let pages = fs::read_dir(folder.path().join("share/man/man1")).unwrap();
    pages
        .map(|entry| {
            let path = entry.unwrap().path();
            assert_eq!(path.extension().unwrap(), "1");
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect()
}

/// The commands that the help lists, under the headings of their groups.
fn commands() -> Vec<String> {
    let help = printed(&["-h"]);
    let lines = help.lines().skip_while(|line| *line != "Talk:");
    let lines = lines.take_while(|line| *line != "Options:");
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
    names.map(str::to_owned).collect()
}

/// The page as it is read: without what only says how it looks.
fn read(roff: &str) -> String {
    [
        ("\\fB", ""),
        ("\\fI", ""),
        ("\\fR", ""),
        ("\\-", "-"),
        ("\\ ", " "),
        ("\\&", ""),
        ("\\*(Aq", "'"),
        ("\\(ti", "~"),
        ("\\(ga", "`"),
        ("\\\\", "\\"),
    ]
    .iter()
    .fold(roff.to_owned(), |text, (sign, plain)| text.replace(sign, plain))
}

/// The lines of one section of a page.
#[track_caller]
fn section(page: &str, name: &str) -> Vec<String> {
    let page = read(page);
    let mut lines = page.lines().map(str::to_owned);
    let is_heading = |line: String| {
        line.strip_prefix(".SH ")
            .is_some_and(|text| text.trim_matches('"') == name)
    };
    assert!(lines.any(is_heading), "{name} in {page}");
    lines.take_while(|line| !line.starts_with(".SH ")).collect()
}

/// The pages that a page leads to.
fn leads_to(page: &str, name: &str) -> BTreeSet<String> {
    let lines = section(page, name);
    let names = lines
        .iter()
        .filter_map(|line| line.trim_end_matches(',').strip_suffix("(1)"));
    names.map(str::to_owned).collect()
}

#[test]
fn each_command_and_both_programs_have_the_page_that_is_installed() {
    let installed = pages();
    let names: BTreeSet<&str> = installed.keys().map(String::as_str).collect();
    let commands: Vec<(String, String)> = commands()
        .into_iter()
        .map(|command| (format!("sessionctl-{command}"), command))
        .collect();
    let mut expected: BTreeSet<&str> = commands.iter().map(|(name, _)| name.as_str()).collect();
    expected.extend(["sessionctl", "sessiond"]);
    assert_eq!(names, expected);
    for (name, command) in &commands {
        assert_eq!(printed(&["man", command]), installed[name]);
    }
    assert_eq!(printed(&["man", "sessionctl-send"]), installed["sessionctl-send"]);
    assert_eq!(printed(&["man"]), installed["sessionctl"]);
    for program in ["sessionctl", "sessiond"] {
        assert_eq!(printed(&["man", program]), installed[program]);
    }
}

#[test]
fn a_page_that_is_not_there_is_a_usage_error_that_tells_a_near_one() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["sned", "generate", "help", "sessionctl-generate", ""] {
        let output = run(folder.path(), &["man", name]);
        check(&output, 2, "");
        assert!(
            text(&output.stderr).contains("[possible values: new, ls, "),
            "{output:?}"
        );
    }
    let output = run(folder.path(), &["man", "sned"]);
    assert!(text(&output.stderr).contains("'send'"), "{output:?}");
    let output = run(folder.path(), &["--json", "man", "sned"]);
    check(&output, 2, "");
    let told: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(told["error"]["kind"], "usage", "{told}");
}

/// The options in a help text, each as it is named there. Values that one may have stand behind a dash and a
/// space.
fn options(help: &str) -> Vec<String> {
    let lines = help
        .lines()
        .filter_map(|line| line.strip_prefix("  "))
        .map(str::trim_start);
    let lines = lines.filter(|line| line.starts_with('-') && !line.starts_with("- "));
    let named = lines.map(|line| line.split("  ").next().unwrap());
    named.map(str::to_owned).collect()
}

#[test]
fn a_page_has_each_option_and_example_of_the_help() {
    let (mut seen, pages) = (0, pages());
    let daemon = Command::new(env!("CARGO_BIN_EXE_sessiond"))
        .arg("--help")
        .output()
        .unwrap();
    let mut all = vec![
        ("sessiond".to_owned(), text(&daemon.stdout)),
        ("sessionctl".to_owned(), printed(&["--help"])),
    ];
    all.extend(commands().into_iter().map(|command| {
        let help = printed(&[&command, "--help"]);
        (command, help)
    }));
    for (name, help) in all {
        let page = match name.starts_with("session") {
            true => read(&pages[&name]),
            false => read(&pages[&format!("sessionctl-{name}")]),
        };
        for option in options(help.split("\nExamples:").next().unwrap()) {
            let ends = ["\n", " [default: "];
            assert!(
                ends.iter()
                    .any(|end| page.contains(&format!("\n.TP\n{option}{end}"))),
                "{name}: {option:?} in {page}"
            );
            seen += 1;
        }
        let examples = help
            .split_once("\nExamples:\n")
            .map_or("", |(_, examples)| examples);
        for example in examples.lines().take_while(|line| line.starts_with("  ")) {
            assert!(
                page.contains(&format!("\n{}\n", example.trim())),
                "{name}: {example:?} in {page}"
            );
        }
    }
    assert!(seen > 200, "only {seen} options");
}

#[test]
fn pages_have_their_sections_and_none_that_says_nothing() {
    let pages = pages();
    let sections = |name: &str| -> Vec<String> {
        let lines = pages[name].lines().filter_map(|line| line.strip_prefix(".SH "));
        lines
            .map(|heading| heading.trim_matches('"').to_owned())
            .collect()
    };
    let main = [
        "NAME",
        "SYNOPSIS",
        "DESCRIPTION",
        "COMMANDS",
        "GLOBAL OPTIONS",
        "EXIT STATUS",
        "ENVIRONMENT",
        "FILES",
    ];
    assert_eq!(
        sections("sessionctl"),
        [&main[..], &["EXAMPLES", "SEE ALSO"]].concat()
    );
    let daemon = [
        "NAME",
        "SYNOPSIS",
        "DESCRIPTION",
        "OPTIONS",
        "EXIT STATUS",
        "ENVIRONMENT",
        "FILES",
        "SIGNALS",
    ];
    assert_eq!(
        sections("sessiond"),
        [&daemon[..], &["SOCKET ACTIVATION", "SEE ALSO"]].concat()
    );
    for command in commands() {
        let found = sections(&format!("sessionctl-{command}"));
        let order = [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "ARGUMENTS",
            "OPTIONS",
            "GLOBAL OPTIONS",
            "EXIT STATUS",
            "EXAMPLES",
            "SEE ALSO",
        ];
        let known: Vec<&str> = order
            .into_iter()
            .filter(|name| found.iter().any(|found| found == name))
            .collect();
        assert_eq!(found, known, "{command}");
        assert!(found.len() >= 6, "{command}: {found:?}");
    }
}

#[test]
fn pages_lead_to_pages_that_are_there() {
    let pages = pages();
    let names = pages.keys().filter(|name| name.starts_with("sessionctl-"));
    let commands: BTreeSet<String> = names.cloned().collect();
    assert_eq!(leads_to(&pages["sessionctl"], "COMMANDS"), commands);
    let programs: BTreeSet<String> = ["sessionctl", "sessiond"].map(str::to_owned).into();
    for (name, page) in &pages {
        let mut others = programs.clone();
        others.remove(name);
        assert_eq!(leads_to(page, "SEE ALSO"), others, "{name}");
    }
}

#[test]
fn groff_has_nothing_to_say_of_a_page() {
    for (name, page) in pages() {
        let mut groff = Command::new("groff");
        groff.args(["-man", "-ww", "-Tutf8", "-z"]);
        let child = groff.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let Ok(mut child) = child else {
            return;
        };
        child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
        assert_eq!(text(&output.stderr), "", "{name}");
    }
}

#[test]
fn roff_takes_no_line_of_a_page_for_a_request_that_it_is_not() {
    let known = [
        ".SH ", ".TP", ".IP ", ".PP", ".PD", ".RS", ".RE", ".br", ".nf", ".fi", ".nh", ".ad l",
    ];
    for name in commands()
        .iter()
        .map(String::as_str)
        .chain(["sessionctl", "sessiond"])
    {
        let page = printed(&["man", name]);
        // Before the title stands what an apostrophe is.
        let (preamble, page) = page.split_once("\n.TH ").unwrap();
        assert_eq!(preamble.lines().count(), 2, "{name}: {preamble}");
        // An option and its values are apart by an empty line, of clap_mangen's.
        for line in page.replace("\n.br\n\n", "\n").lines() {
            let is_text = !line.starts_with(['.', '\'']) && !line.is_empty();
            assert!(
                is_text || known.iter().any(|request| line.starts_with(request)),
                "{name}: {line:?}"
            );
            assert!(line.is_ascii(), "{name}: {line:?}");
            // What roff would make a hyphen of cannot be copied to a shell.
            let without = line.replace("\\-", "");
            assert!(!without.contains(['-', '\'', '`', '~', '^']), "{name}: {line:?}");
        }
    }
}

/// What is hidden from the help.
const HIDDEN: [&str; 3] = ["generate", "ready-on-stdin", "rebuilt"];

#[test]
fn shells_are_told_how_to_complete_both_programs() {
    for shell in ["bash", "zsh", "fish"] {
        let table = [
            (
                &["completions", shell][..],
                &["attach", "on-question", "no-start"][..],
            ),
            (&["completions", shell, "sessiond"], &["ephemeral", "config"]),
        ];
        for (arguments, words) in table {
            let script = printed(arguments);
            for word in words {
                assert!(script.contains(word), "{arguments:?}: {word}");
            }
            for word in HIDDEN {
                assert!(!script.contains(word), "{arguments:?}: {word}");
            }
        }
        assert_eq!(
            printed(&["completions", shell]),
            printed(&["completions", shell, "sessionctl"])
        );
    }
    let fish = printed(&["completions", "fish"]);
    // Of clap's script, to which these lines are added.
    assert!(
        fish.contains("\nfunction __fish_sessionctl_using_subcommand\n"),
        "{fish}"
    );
    for (below, end) in [
        ("send", "-f"),
        ("man", "-f -a \"new ls "),
        ("completions", "-f -a \"bash "),
    ] {
        let line = format!("complete -c sessionctl -n \"__fish_sessionctl_using_subcommand {below}\" {end}");
        assert!(fish.contains(&line), "{line}");
    }
    for paths in ["import", "mv"] {
        let line = format!("complete -c sessionctl -n \"__fish_sessionctl_using_subcommand {paths}\" -f");
        assert!(!fish.contains(&line), "{line}");
    }
    let zsh = printed(&["completions", "zsh"]);
    for hint in ["FILE:_files'", "DIR:_files -/'", "(leave\\:\"", "PATH:_files'"] {
        assert!(zsh.contains(hint), "{hint}");
    }
}

/// What bash offers at the end of a command line; its last word is what was typed of the next one.
#[track_caller]
fn offered(folder: &Path, program: &str, line: &[&str]) -> Vec<String> {
    let script = r#"
        complete() { :; }
        compopt() { :; }
        source "$1"
        shift
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
        "_$1" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let file = folder.join(format!("completions of {program}"));
    fs::write(&file, printed(&["completions", "bash", program])).unwrap();
    let mut bash = Command::new("bash");
    bash.args(["--noprofile", "--norc", "-c", script, "bash"])
        .arg(file);
    let output: Output = bash.arg(program).args(line).current_dir(folder).output().unwrap();
    assert_eq!(text(&output.stderr), "", "{line:?}");
    text(&output.stdout)
        .lines()
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn bash_completes_commands_options_and_values() {
    if Command::new("bash").arg("--version").output().is_err() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("talk of today.json"), "").unwrap();
    let table: [(&str, &[&str], &[&str]); 12] = [
        ("sessionctl", &["se"], &["send"]),
        ("sessionctl", &["gen"], &[]),
        ("sessionctl", &["send", "--que"], &["--queue"]),
        (
            "sessionctl",
            &["send", "--on-question", ""],
            &["leave", "wait", "deny"],
        ),
        (
            "sessionctl",
            &["--home", "/x", "--json", "send", "--on-question", "d"],
            &["deny"],
        ),
        ("sessionctl", &["fork", ".", "--min-fidelity", "p"], &["partial"]),
        ("sessionctl", &["man", "che"], &["checkpoints", "check"]),
        ("sessionctl", &["man", "sessionc"], &["sessionctl"]),
        ("sessionctl", &["help", "und"], &["undo"]),
        (
            "sessionctl",
            &["export", ".", "--output", "tal"],
            &["talk of today.json"],
        ),
        // A title is no file.
        ("sessionctl", &["new", "--title", "tal"], &["tal"]),
        ("sessiond", &["--ep"], &["--ephemeral"]),
    ];
    for (program, line, expected) in table {
        assert_eq!(
            offered(folder.path(), program, line),
            expected,
            "{program} {line:?}"
        );
    }
    let commands = commands();
    let all = offered(folder.path(), "sessionctl", &[""]);
    let missing: Vec<_> = commands.iter().filter(|command| !all.contains(command)).collect();
    assert!(missing.is_empty(), "{missing:?} in {all:?}");
}
