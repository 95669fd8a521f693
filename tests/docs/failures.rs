//! Checks `tests/FAILURES.md`: each failure in it has a test that names it, and each failure that the code
//! names is in it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{root, text};

/// The highest number of a failure that begins with `F`.
const FAILURES: u32 = 42;

/// The errors in the table of failures: a row of another form, a row without text, a duplicate name or text,
/// or a failure that no test names.
fn wrong_in_table(table: &str, tested: &BTreeSet<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    let (mut names, mut failures) = (BTreeSet::new(), BTreeSet::new());
    for row in table.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, failure] = cells[..] else {
            wrong.push(format!("{row}: not two cells"));
            continue;
        };
        if !names.insert(name) || !failures.insert(failure) {
            wrong.push(format!("{name}: named twice"));
        }
        if failure.is_empty() {
            wrong.push(format!("{name}: no text"));
        }
        if !tested.contains(name) {
            wrong.push(format!("{name}: no test names it"));
        }
    }
    if names.is_empty() {
        wrong.push("no row".to_owned());
    }
    wrong
}

/// The numbers up to `last` that are neither a row of the table nor an item of the list above it, or that are
/// both. An item begins with the number, for example "- F29: a subagent".
fn unaccounted(table: &str, last: u32) -> Vec<String> {
    let begins = |line: &str, mark: &str, name: &str| {
        let rest = line.strip_prefix(mark).and_then(|rest| rest.strip_prefix(name));
        rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
    };
    let is_accounted = |name: &String| {
        let [row, listed] = ["| ", "- "].map(|mark| table.lines().any(|line| begins(line, mark, name)));
        row != listed
    };
    let names = (1..=last).map(|number| format!("F{number}"));
    names.filter(|name| !is_accounted(name)).collect()
}

/// The failures that the tests in a file name, in the test's name or in the comment above it.
fn tested_in(text: &str) -> BTreeSet<String> {
    let mut tested = BTreeSet::new();
    // The comments and attributes since the last line of code.
    let mut above = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with(['#', '/']) {
            above.push(line);
            continue;
        }
        let is_test = |mark: &&str| mark.starts_with("#[test") || mark.starts_with("#[tokio::test");
        if above.iter().any(is_test) {
            let comments = above.iter().filter(|mark| mark.starts_with('/'));
            tested.extend(comments.flat_map(|comment| named(comment)));
            let name = line
                .split_once("fn ")
                .and_then(|(_, name)| name.split('_').next());
            tested.extend(name.map(named).unwrap_or_default());
        }
        above.clear();
    }
    tested
}

/// The failures that a text names, for example as `F7` or `f7_`.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|character: char| !character.is_ascii_alphanumeric());
    let is_name = |word: &&str| {
        let digits = word.strip_prefix(['F', 'D', 'f', 'd']);
        digits.is_some_and(|digits| {
            (1..=2).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    words.filter(is_name).map(str::to_uppercase).collect()
}

/// The Rust files of `src` and `tests`, with their contents.
fn sources() -> Vec<(PathBuf, String)> {
    let mut files = BTreeSet::new();
    for folder in ["src", "tests"] {
        collect_all(&root().join(folder), &mut files);
    }
    let with_text = |path: PathBuf| (path.clone(), fs::read_to_string(path).unwrap());
    files.into_iter().map(with_text).collect()
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
fn each_failure_has_a_test() {
    let tested = sources().iter().flat_map(|(_, text)| tested_in(text)).collect();
    let table = text("tests/FAILURES.md");
    let wrong = wrong_in_table(&table, &tested);
    assert!(wrong.is_empty(), "tests/FAILURES.md: {wrong:#?}");
    let lost = unaccounted(&table, FAILURES);
    assert!(lost.is_empty(), "tests/FAILURES.md does not mention {lost:?}");
}

#[test]
fn each_failure_that_is_named_is_in_the_table() {
    let known = named(&text("tests/FAILURES.md"));
    for (path, text) in sources() {
        let comments = text.lines().map(str::trim).filter(|line| line.starts_with("//"));
        let names = text.split("fn ").skip(1).filter_map(|rest| rest.split_once('_'));
        let names = names
            .map(|(first, _)| first)
            .filter(|first| first.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        for line in comments.chain(names) {
            let unknown: Vec<_> = named(line).difference(&known).cloned().collect();
            assert!(unknown.is_empty(), "{}: {line}: {unknown:?}", path.display());
        }
    }
}

#[test]
fn the_rules_of_the_table_can_fail() {
    let tests = "/// F1\n#[test]\nfn there() {}\n\n// F4\nfn helper() {}\n#[tokio::test]\n// F2, D3.\nasync fn late() {}\n\
                 #[test]\nfn f5_named() {}\n";
    let tested = tested_in(tests);
    assert_eq!(tested, ["D3", "F1", "F2", "F5"].map(str::to_owned).into());
    let table = |rows: &str| format!("text\n\n| | failure |\n|---|---|\n{rows}\n");
    let good = "| F1 | one |\n| F5 | five |";
    assert_eq!(wrong_in_table(&table(good), &tested), [""; 0]);
    for (row, wrong) in [
        ("| F1 | other |", "F1: named twice"),
        ("| F2 | one |", "F2: named twice"),
        ("| F2 | |", "F2: no text"),
        ("| F4 | four |", "F4: no test names it"),
        ("| F2 | two | more |", "| F2 | two | more |: not two cells"),
    ] {
        let found = wrong_in_table(&table(&format!("{good}\n{row}")), &tested);
        assert!(found.iter().any(|found| found == wrong), "{row}: {found:?}");
    }
    assert!(!wrong_in_table("", &tested).is_empty());
    let listed = "- F2: F4 tests it\n- F3, both\n\n| F1 | one |\n| F3 | three |\n| F45 | more |\n";
    assert_eq!(unaccounted(listed, 5), ["F3", "F4", "F5"]);
    assert_eq!(
        named("/// F7, D15: 0xF0 f12_a"),
        ["D15", "F12", "F7"].map(str::to_owned).into()
    );
}
