//! What the README tells of variables is what the help and the manual of the two programs tell.

use std::collections::BTreeSet;
use std::process::Command;

use super::{paper, run};

/// The variables that a program's help tells: the names in the block of them.
fn of_help(program: &str) -> BTreeSet<String> {
    let help = String::from_utf8(run(Command::new(program).arg("--help")).stdout).unwrap();
    let (_, block) = help.split_once("\nEnvironment:\n").expect("a block of variables");
    let lines = block.lines().take_while(|line| !line.is_empty());
    let is_name = |name: &str| {
        name.chars()
            .all(|letter| letter.is_ascii_uppercase() || letter == '_')
    };
    let names = lines.filter_map(|line| line.strip_prefix("  "));
    let names = names.map(|line| line.split(", ").collect::<Vec<_>>());
    names
        .filter(|names| names.iter().all(|name| is_name(name)))
        .flatten()
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_variables_of_the_readme_are_those_of_the_help() {
    let readme = paper("README.md");
    let (_, table) = readme.split_once("\n| variable | |\n").unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let shown: BTreeSet<String> = cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect();
    let mut told = of_help(env!("CARGO_BIN_EXE_sessionctl"));
    told.extend(of_help(env!("CARGO_BIN_EXE_sessiond")));
    // These are in the table of files, where they decide.
    let (folders, told): (BTreeSet<_>, BTreeSet<_>) =
        told.into_iter().partition(|name| name.starts_with("XDG_"));
    assert_eq!(folders.len(), 3, "{folders:?}");
    for name in folders {
        assert!(readme.contains(&format!("`${name}/sessiond/")), "{name}");
    }
    assert_eq!(shown, told);
}
