//! Checks `tests/COMMANDS.md` and `tests/REQUIREMENTS.md`: each promise names existing tests, and each
//! command has a promise.

use std::collections::BTreeSet;
use std::process::Command;

use super::{root, text};

/// A row of a table.
struct Row<'a> {
    commands: Vec<&'a str>,
    promise: &'a str,
    tests: Vec<&'a str>,
}

fn rows(table: &str) -> Vec<Row<'_>> {
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [commands, promise, tests] = cells[..] else {
            panic!("not three cells: {row}")
        };
        Row {
            commands: commands.split(", ").collect(),
            promise,
            tests: tests.split(", ").map(|test| test.trim_matches('`')).collect(),
        }
    })
    .collect()
}

/// Whether a test with this path of modules and function exists. A module may be defined in the file of
/// another.
fn exists(test: &str) -> bool {
    let (modules, function) = test.rsplit_once("::").unwrap_or(("", test));
    let path = modules.replace("::", "/");
    let files = [format!("tests/cli/{path}"), format!("tests/{path}")].into_iter();
    let mut files = files.flat_map(|file| {
        let file = file.trim_end_matches("/smoke").trim_end_matches('/');
        [format!("{file}.rs"), format!("{file}/mod.rs")]
    });
    files.any(|file| {
        std::fs::read_to_string(root().join(file)).is_ok_and(|text| tests_in(&text).contains(function))
    })
}

/// The names of the tests in a file.
fn tests_in(text: &str) -> BTreeSet<&str> {
    let mut is_test = false;
    let mut names = BTreeSet::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[test") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some((_, function)) = line.split_once("fn ")
            && !line.starts_with("//")
        {
            let name = function.split(['(', '<']).next().filter(|_| is_test);
            names.extend(name);
            is_test = false;
        }
    }
    names
}

/// The commands in the help; each is on its own line, indented by two spaces.
fn commands(help: &str) -> BTreeSet<&str> {
    let lines = help.lines().take_while(|line| *line != "Options:");
    let listed = lines.filter(|line| line.starts_with("  ") && line.len() > 2 && !line.starts_with("   "));
    listed.filter_map(|line| line.split_whitespace().next()).collect()
}

#[test]
fn each_promise_names_tests_that_exist() {
    let tables = ["tests/COMMANDS.md", "tests/REQUIREMENTS.md"].map(text);
    let mut promises = BTreeSet::new();
    for row in tables.iter().flat_map(|table| rows(table)) {
        assert!(!row.promise.is_empty() && promises.insert((row.commands, row.promise)));
        for test in row.tests {
            assert!(exists(test), "there is no test {test}");
        }
    }
    for missing in [
        "finding::no_such_test",
        "nowhere::a_daemon_that_does_not_answer_is_named",
        "",
    ] {
        assert!(!exists(missing), "{missing}");
    }
}

#[test]
fn each_command_has_a_promise() {
    let help = Command::new(env!("CARGO_BIN_EXE_sessionctl"))
        .arg("--help")
        .output()
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let table = text("tests/COMMANDS.md");
    let rows = rows(&table);
    let promised: BTreeSet<&str> = rows.iter().flat_map(|row| row.commands.iter().copied()).collect();
    let commands = commands(&help);
    assert!(commands.len() > 30, "{help}");
    let missing: Vec<_> = commands.difference(&promised).collect();
    assert!(missing.is_empty(), "no promise for {missing:?}");
    let unknown: Vec<_> = promised
        .difference(&commands)
        .filter(|name| !name.starts_with('('))
        .collect();
    assert!(unknown.is_empty(), "no such command: {unknown:?}");
}
