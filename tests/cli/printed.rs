//! What commands print for people on standard error: errors, hints and notes. It is asserted here only; all
//! other tests assert exit codes, `--json`, files and ids.
//!
//! `tests/fixtures/printed-words.txt` has a line for each command line that a test checks, written as
//! `error-words.txt` is: see `tests/daemon/error_words.rs`.

use std::process::Output;

use super::text;
use crate::daemon::error_words::{compare, plain};

/// Checks the exit code, and that the file has what was printed on standard error; gives that.
#[track_caller]
pub(crate) fn check_printed(arguments: &[&str], output: &Output, code: i32) -> String {
    check_stream(arguments, output, code, "=>", &output.stderr)
}

/// The same of standard output, where it is words for people.
#[track_caller]
pub(crate) fn check_shown(arguments: &[&str], output: &Output, code: i32) -> String {
    check_stream(arguments, output, code, "shows", &output.stdout)
}

#[track_caller]
fn check_stream(arguments: &[&str], output: &Output, code: i32, does: &str, stream: &[u8]) -> String {
    let printed = text(stream);
    let command = arguments.join(" ");
    check_pastable(&printed);
    check_said_once(&printed);
    assert_eq!(output.status.code(), Some(code), "{command}: {output:?}");
    let [command, words] = [&command, printed.trim_end()].map(|text| plain(&with_whole_ids(text)));
    compare(
        "printed-words.txt",
        &format!("sessionctl {command} {does} {code}: {words}"),
    );
    printed
}

/// Checks what is seen on a terminal against `printed-words.txt`; ids, times and the size of the context do not matter.
#[track_caller]
pub(crate) fn check_seen(what: &str, seen: &str) {
    let lines = seen
        .trim_end()
        .lines()
        .map(|line| match line.starts_with("context ") {
            true => "context of so many tokens",
            false => line,
        });
    check_pastable(seen);
    let seen = plain(&with_whole_ids(&lines.collect::<Vec<_>>().join("\n")));
    compare("printed-words.txt", &format!("screen of {what}: {seen}"));
}

/// Fails if a command in the text has a word to fill in, or if a time is not that of the user's clock.
#[track_caller]
pub(super) fn check_pastable(printed: &str) {
    for command in commands(printed) {
        let blank = |word: &&str| ["ID", "CONV", "PATH", "DIR", "NAME", "TIME"].contains(word);
        let found = command.split(|end: char| !end.is_alphanumeric()).find(blank);
        assert_eq!(found, None, "cannot be pasted: {command}");
    }
    assert!(!has_utc_time(printed), "not local: {printed}");
}

/// Fails if an error and its hint name the same command.
#[track_caller]
fn check_said_once(printed: &str) {
    let with = |start: &str| {
        let lines = printed.lines().filter(|line| line.starts_with(start));
        lines.flat_map(commands).collect::<Vec<&str>>()
    };
    let (errors, hints) = (with("error: "), with("hint: "));
    let twice = errors.iter().find(|command| hints.contains(command));
    assert_eq!(twice, None, "said twice: {printed}");
}

/// Whether a text has a time as `2026-11-24T03:57:09.123Z`.
fn has_utc_time(text: &str) -> bool {
    let is_part = |letter: char| letter.is_ascii_digit() || "-:.TZ".contains(letter);
    let mut words = text.split(|letter| !is_part(letter));
    words.any(|word| word.len() >= 20 && word.contains('T') && word.ends_with('Z'))
}

/// The commands that a text names, as they can be pasted. One ends with its line, or before what is said of it.
pub(crate) fn commands(told: &str) -> Vec<&str> {
    let starts = told.match_indices("sessionctl ").map(|(at, _)| &told[at..]);
    let ends = [
        "\n",
        "; ",
        " (",
        " imports ",
        " uses ",
        " lists ",
        " declines ",
        " follows ",
    ];
    starts
        .map(|rest| {
            ends.iter()
                .fold(rest, |rest, end| rest.split(end).next().unwrap())
        })
        .collect()
}

/// The text with a whole id for each that is shortened to its first 8 characters.
pub(super) fn with_whole_ids(text: &str) -> String {
    let is_end = |letter: char| !(letter.is_ascii_alphanumeric() || letter == '-');
    let whole = text.split_inclusive(is_end).map(|part| {
        let word = part.trim_end_matches(is_end);
        let is_short = word.len() == 8 && word.bytes().all(|letter| letter.is_ascii_hexdigit());
        match is_short {
            true => format!("{word}-0000-0000-0000-000000000000{}", &part[word.len()..]),
            false => part.to_owned(),
        }
    });
    whole.collect()
}
