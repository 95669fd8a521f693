//! `tests/FAILURES.md`: the tests that it names exist, and each failure that a test names is in it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{root, text};

/// How many of other people's failures are told apart, as `F1` to `F42`.
const FAILURES: u32 = 42;

/// What is wrong with the table of failures: a row without tests, a failure that is named twice, a test that
/// is not there, tests none of which says that it means the failure. `read` gives the text of a file.
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

/// The numbers up to this one that are neither a row of the table nor told as missing above it, or are both.
/// Such a line begins with the number, as "- F29, a subagent".
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

/// The failures that a test means, in its name or above it; none where a file has no such function, or it is
/// not marked as a test.
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
    let table = text("tests/FAILURES.md");
    let wrong = wrong_in_table(&table, read);
    assert!(wrong.is_empty(), "tests/FAILURES.md: {wrong:#?}");
    let lost = unaccounted(&table, FAILURES);
    assert!(lost.is_empty(), "tests/FAILURES.md does not mention {lost:?}");
}

#[test]
fn each_failure_that_a_test_means_is_in_the_table() {
    let known = meant(&text("tests/FAILURES.md"));
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
