//! The words of errors. They are asserted here only; all other tests assert code and kind.
//!
//! `tests/fixtures/error-words.txt` has a line for each refusal that a test checks: the call or the test's
//! file, the kind and the message, with `PATH`, `ID` and `0` for what differs between runs. Run the tests with
//! `WRITE_ERROR_WORDS=1` to add lines; read what changed before you commit. `.ci/run` names the lines that no test checked.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::time_words::at_any_hour;

/// Set in the environment, this adds lines that are missing.
const WRITE: &str = "WRITE_ERROR_WORDS";

/// Set in the environment, this is a folder in which each line that a test checks is noted, for `.ci/run`.
const NOTE: &str = "CHECKED_WORDS";

/// How much of a run of the same character is shown.
const RUN: usize = 20;

static FILE: Mutex<()> = Mutex::new(());

/// Fails if the error has words that are not in the file.
#[track_caller]
pub(crate) fn check(call: &str, kind: &str, message: &str) {
    compare(
        "error-words.txt",
        &format!("{} => {kind}: {}", plain(call), plain(message)),
    );
}

/// The same of words with counts, which the file does not have; fails if they are others.
#[track_caller]
pub(crate) fn check_counted(call: &str, kind: &str, message: &str, counts: &[u64]) {
    check(call, kind, message);
    let digits = message.split(|letter: char| !letter.is_ascii_digit());
    let counted: Vec<u64> = digits.filter_map(|digits| digits.parse().ok()).collect();
    assert_eq!(counted, counts, "{message}");
}

/// Fails if a daemon that does not start prints words that are not in the file of what commands print; gives
/// the error's line.
#[track_caller]
pub(crate) fn check_start<'a>(arguments: &str, code: Option<i32>, printed: &'a str) -> &'a str {
    assert_eq!(code, Some(1), "{arguments}: {printed}");
    let error = printed.lines().find(|line| line.starts_with("error: ")).unwrap();
    let words = &printed[printed.find(error).unwrap()..];
    let [command, words] = [&format!("sessiond {arguments}"), words].map(|text| plain(text.trim_end()));
    compare("printed-words.txt", &format!("{command} => 1: {words}"));
    error
}

/// Fails if this file of fixtures lacks the line.
#[track_caller]
pub(crate) fn compare(file: &str, line: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(file);
    let _guard = FILE.lock().unwrap_or_else(PoisonError::into_inner);
    let text = fs::read_to_string(&path).unwrap_or_default();
    if let Some(folder) = std::env::var_os(NOTE) {
        let notes = Path::new(&folder).join(file);
        let notes = fs::File::options().create(true).append(true).open(notes);
        // In one write, so that processes which note at the same time mix no lines.
        notes.unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }
    let mut lines: BTreeSet<&str> = text.lines().collect();
    if !lines.insert(line) {
        return;
    }
    assert!(
        std::env::var_os(WRITE).is_some(),
        "{} lacks this line; {WRITE}=1 adds it:\n{line}",
        path.display()
    );
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(path, text).unwrap();
}

fn begins_with_uuid(text: &str) -> bool {
    let shape = |(at, letter): (usize, u8)| match at {
        8 | 13 | 18 | 23 => letter == b'-',
        _ => letter.is_ascii_hexdigit(),
    };
    text.len() >= 36 && text.bytes().take(36).enumerate().all(shape)
}

/// The text on one line, without what differs between runs.
pub(crate) fn plain(text: &str) -> String {
    let temporary = std::env::temp_dir();
    let temporary = temporary.to_str().unwrap();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let word = rest.len()
            - rest
                .trim_start_matches(|letter: char| letter.is_ascii_hexdigit() || letter == '-')
                .len();
        let digits = rest.len()
            - rest
                .trim_start_matches(|digit: char| digit.is_ascii_digit())
                .len();
        let (written, length) = if rest.starts_with(temporary) {
            let end = rest.find(|end: char| end.is_whitespace() || "\"',:;)".contains(end));
            ("PATH".to_owned(), end.unwrap_or(rest.len()))
        } else if begins_with_uuid(rest) {
            ("ID".to_owned(), 36)
        } else if word >= 6 && plain.ends_with('"') && rest[word..].starts_with('"') {
            ("ID".to_owned(), word)
        } else if digits > 0 {
            ("0".to_owned(), digits)
        } else {
            let shown = if next.is_control() {
                next.escape_debug().to_string()
            } else {
                next.to_string()
            };
            (shown, next.len_utf8())
        };
        if !plain.ends_with(&written.repeat(RUN)) {
            plain.push_str(&written);
        }
        rest = &rest[length..];
    }
    at_any_hour(&plain)
}

#[test]
fn what_differs_between_runs_is_replaced() {
    let path = std::env::temp_dir().join("sbX1/project");
    let text = format!("{}: 5d0c2a4e-7f61-4b0a-9c36-1e2f3a4b5c6d, 12 \n", path.display());
    assert_eq!(plain(&text), "PATH: ID, 0 \\n");
    for resets in ["10:59pm, at 22:59:08", "9:05am, at Thu 26 Nov 09:05"] {
        assert_eq!(plain(resets), "0:0pm, at 0:0:0", "{resets}");
    }
    assert_eq!(plain("until 18:30"), plain("until Thu 00:20"));
}

/// A person who reads an error has `sessionctl`, not the wire. Only what a program asked for wrongly is named in the wire's words.
#[test]
fn what_people_read_names_no_method() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let of_programs = [
        "unknown parameter `",
        "invalid parameters of ",
        "there is no method ",
    ];
    let spaces = ["agent/", "checkpoint/", "conversation/", "daemon/", "transcript/"];
    for file in ["error-words.txt", "printed-words.txt"] {
        let text = fs::read_to_string(folder.join(file)).unwrap();
        for line in text.lines() {
            let words = line.split_once(" => ").map_or(line, |(_, words)| words);
            let names_a_method = words
                .split([' ', '"', '(', '`'])
                .any(|word| spaces.iter().any(|space| word.starts_with(space)));
            let is_of_a_program = of_programs.iter().any(|begin| words.contains(begin));
            assert!(!names_a_method || is_of_a_program, "{file}: {line}");
        }
    }
}
