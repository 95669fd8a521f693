//! Snapshots of texts that unit tests and integration tests compare with: `error-words.txt`,
//! `printed-words.txt` and `finding-words.txt` in `tests/fixtures`. All other tests check code, kind and
//! structure, so that a sentence can be changed in one place.
//!
//! A line consists of the case, ` => ` and the text. Run the tests with `WRITE_ERROR_WORDS=1` to add lines;
//! read what changed before you commit. `.ci/run` lists the lines that no test checked.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The environment variable that makes tests add missing lines.
const WRITE: &str = "WRITE_ERROR_WORDS";

/// The environment variable with a folder in which each checked line is recorded, for `.ci/run`.
const NOTE: &str = "CHECKED_WORDS";

/// A number of bytes must have fewer digits than this: from 10,000 on, sizes are shown in KiB.
const LONG_SIZE_DIGITS: usize = 5;

/// How many characters of a run of the same character are kept.
const RUN: usize = 20;

static FILE: Mutex<()> = Mutex::new(());

pub(crate) const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

pub(crate) const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Panics if the error's text is not in the file.
#[track_caller]
pub(crate) fn check(call: &str, kind: &str, message: &str) {
    compare(
        "error-words.txt",
        &format!("{} => {kind}: {}", plain(call), plain(message)),
    );
}

/// Panics if this fixture file lacks the line.
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
        // A single write, so that processes that record at the same time do not mix their lines.
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

/// Panics if a large size is not written in KiB or a larger unit.
#[track_caller]
fn check_sizes(text: &str) {
    for (end, _) in text.match_indices(" bytes") {
        let digits = text[..end].bytes().rev().take_while(u8::is_ascii_digit).count();
        assert!(
            digits < LONG_SIZE_DIGITS,
            "a large size in bytes, which is hard to read: {text}"
        );
    }
}

/// The text on one line, without the parts that differ between runs.
#[track_caller]
pub(crate) fn plain(text: &str) -> String {
    check_sizes(text);
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
    // The free space of a disk depends on the machine.
    for unit in ["MiB", "GiB", "TiB", "PiB", "EiB"] {
        plain = plain.replace(&format!("0.0 {unit}"), "0.0 KiB");
    }
    at_any_hour(&plain)
}

/// Replaces times so that a text is the same at each hour. The numbers of the text are already `0`. A time
/// after midnight, which is printed with its day, becomes `0:0:0` like a time of today; a time before noon
/// becomes `0:0pm` like one after it.
pub(crate) fn at_any_hour(text: &str) -> String {
    let mut text = text.replace("0:0am", "0:0pm");
    for day in DAYS {
        for month in MONTHS {
            text = text.replace(&format!("{day} 0 {month} 0:0"), "0:0:0");
            text = text.replace(&format!("{day} 0 {month} 0 0:0"), "0:0:0");
        }
        text = text.replace(&format!("{day} 0:0"), "0:0");
    }
    text
}
