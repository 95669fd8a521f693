//! The wording of errors: `tests/fixtures/error-words.txt` has one line for each refusal that a test checks: the call
//! or the test's file, the kind and the message. `PATH`, `ID` and `0` stand for parts that differ between runs.

use std::fs;
use std::path::Path;

pub(crate) use crate::words::{check, compare, plain};

/// Checks a message with counts like [`check`], and also asserts the counts, which the file does not contain.
#[track_caller]
pub(crate) fn check_counted(call: &str, kind: &str, message: &str, counts: &[u64]) {
    check(call, kind, message);
    let digits = message.split(|letter: char| !letter.is_ascii_digit());
    let counted: Vec<u64> = digits.filter_map(|digits| digits.parse().ok()).collect();
    assert_eq!(counted, counts, "{message}");
}

/// Compares what a daemon that fails to start printed with the file of printed messages, and returns the line with the
/// error.
#[track_caller]
pub(crate) fn check_start<'a>(arguments: &str, code: Option<i32>, printed: &'a str) -> &'a str {
    assert_eq!(code, Some(1), "{arguments}: {printed}");
    let error = printed.lines().find(|line| line.starts_with("error: ")).unwrap();
    let words = &printed[printed.find(error).unwrap()..];
    let [command, words] = [&format!("sessiond {arguments}"), words].map(|text| plain(text.trim_end()));
    compare("printed-words.txt", &format!("{command} => 1: {words}"));
    error
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

/// Users read errors in `sessionctl` and do not know the wire protocol. Only errors about a program's wrong call may
/// name a method.
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
