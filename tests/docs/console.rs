//! Runs the `console` blocks of all pages; the parent module describes their format.

use super::scratch::Scratch;
use super::shell::Shell;
use super::{blocks, pages};
use crate::words::at_any_hour;

/// Stands for any text.
const ANY: char = '…';

/// The length of a full id.
const ID_LENGTH: usize = 36;

/// The length of the short ids in lists.
const SHORT_ID_LENGTH: usize = 8;

/// A command and the output that the page shows for it.
#[derive(Debug, PartialEq, Eq)]
struct Shown<'a> {
    command: &'a str,
    output: Vec<&'a str>,
}

fn commands<'a>(block: &[&'a str]) -> Vec<Shown<'a>> {
    let mut commands: Vec<Shown<'a>> = Vec::new();
    for line in block {
        match line.strip_prefix("$ ") {
            Some(command) => commands.push(Shown {
                command,
                output: Vec::new(),
            }),
            None => commands
                .last_mut()
                .expect("a command above its output")
                .output
                .push(line),
        }
    }
    commands
}

/// The id at the start of a text: a UUID or its first part.
fn id_at(text: &str) -> Option<&str> {
    let is_id = |id: &str| {
        id.bytes().enumerate().all(|(place, byte)| match place {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
        })
    };
    let ends = |length: usize| !text[length..].starts_with(|next: char| next.is_ascii_alphanumeric());
    [ID_LENGTH, SHORT_ID_LENGTH].into_iter().find_map(|length| {
        let id = text.get(..length)?;
        (is_id(id) && ends(length)).then_some(id)
    })
}

/// The ids in a text, and the text with `ID` in place of each id, `0` in place of each other number, and
/// times replaced so that it is the same at each hour.
fn without_ids(text: &str) -> (Vec<&str>, String) {
    let (mut ids, mut plain) = (Vec::new(), String::new());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let is_within_word = plain.ends_with(|before: char| before.is_ascii_alphabetic());
        let length = match id_at(rest).filter(|_| !is_within_word) {
            Some(id) => {
                ids.push(id);
                plain.push_str("ID");
                id.len()
            }
            None if next.is_ascii_digit() => {
                plain.push('0');
                rest.chars().take_while(char::is_ascii_digit).count()
            }
            None => {
                plain.push(next);
                next.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    (ids, at_any_hour(&plain))
}

fn line_matches(shown: &str, real: &str) -> bool {
    let (shown, real) = (without_ids(shown).1, without_ids(real).1);
    let pieces: Vec<&str> = shown.split(ANY).collect();
    let [first, between @ .., last] = &pieces[..] else {
        return shown == real;
    };
    let inner = real.strip_prefix(first).and_then(|rest| rest.strip_suffix(last));
    let Some(mut rest) = inner else { return false };
    for piece in between {
        let Some((_, after)) = rest.split_once(piece) else {
            return false;
        };
        rest = after;
    }
    true
}

/// The pairs of matching lines, or `None` if the output does not match.
fn matching<'a>(shown: &[&'a str], real: &[&'a str]) -> Option<Vec<(&'a str, &'a str)>> {
    match (shown.split_first(), real.split_first()) {
        (None, None) => Some(Vec::new()),
        (Some((first, rest)), _) if first.chars().eq([ANY]) => {
            (0..=real.len()).find_map(|skipped| matching(rest, &real[skipped..]))
        }
        (Some((shown, more_shown)), Some((real, more_real))) if line_matches(shown, real) => {
            let mut pairs = matching(more_shown, more_real)?;
            pairs.insert(0, (shown, real));
            Some(pairs)
        }
        _ => None,
    }
}

/// Replaces the page's ids in a command by those of this run.
fn in_this_run(command: &str, known: &[(String, String)]) -> String {
    let mut command = command.to_owned();
    for (shown, real) in known {
        command = command.replace(shown, real);
    }
    command
}

#[test]
fn the_commands_of_all_pages_print_what_the_pages_show() {
    let mut count = 0;
    let mut wrong = Vec::new();
    for (path, page) in pages() {
        let scratch = Scratch::new();
        let mut shell = Shell::start(&scratch.project(), &scratch.variables());
        let mut known: Vec<(String, String)> = Vec::new();
        for block in blocks(&page, "console") {
            // The previous block may have changed the folder.
            shell.run(&format!("cd {}", scratch.project().display()));
            for shown in commands(&block) {
                count += 1;
                let said = shell.run(&in_this_run(shown.command, &known));
                let must_fail = shown.output.iter().any(|line| line.starts_with("error: "));
                let real: Vec<&str> = said.text.lines().collect();
                let Some(pairs) = matching(&shown.output, &real).filter(|_| must_fail == (said.code != 0))
                else {
                    wrong.push(format!(
                        "{path}:\n$ {}\n{}\nprints, and exits with {}:\n{}",
                        shown.command,
                        shown.output.join("\n"),
                        said.code,
                        said.text
                    ));
                    continue;
                };
                for (shown, real) in pairs {
                    let both = without_ids(shown).0.into_iter().zip(without_ids(real).0);
                    for (shown, real) in both {
                        // A later command on the page may use the short form of an id that was shown in full.
                        let parts = (&shown[..SHORT_ID_LENGTH], &real[..SHORT_ID_LENGTH]);
                        for (shown, real) in [(shown, real), parts] {
                            known.push((shown.to_owned(), real.to_owned()));
                        }
                    }
                }
                // Longest first, so that a full id is replaced before its prefix.
                known.sort_by_key(|(shown, _)| std::cmp::Reverse(shown.len()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(count > 0, "no page contains a command");
}

#[test]
fn output_matches_but_for_ids_numbers_and_what_is_left_out() {
    let matches = |shown: &[&str], real: &[&str]| matching(shown, real).is_some();
    let (shown, real) = ("90e2e180", "0a0b0c0d-1111-4222-8333-444455556666");
    assert!(line_matches(shown, real));
    assert!(line_matches(
        "cp.loopback.90e2e180 at 18:30, in 3 s",
        "cp.loopback.0a0b0c0d at 6:12, in 45 s"
    ));
    assert!(!line_matches("at 18:30", "at noon"));
    assert!(line_matches(
        "at 08:55:08 (in 1 h)",
        "at Fri 1 Jan 00:20 (in 1 h)"
    ));
    assert!(line_matches("resets 9:05am", "resets 10:59pm"));
    assert!(line_matches("continues at …", "continues at 6:30"));
    assert!(line_matches("a … c … e", "a b c d e"));
    assert!(!line_matches("a … c … e", "a b d e"));
    assert!(matches(&["…"], &[]));
    assert!(matches(&["a", "…", "d"], &["a", "b", "c", "d"]));
    assert!(!matches(&["a", "…", "d"], &["a", "b", "c"]));
    assert!(!matches(&["a"], &["a", "b"]));
    assert_eq!(
        commands(&["$ a", "b", "$ c"]),
        [
            Shown {
                command: "a",
                output: vec!["b"]
            },
            Shown {
                command: "c",
                output: vec![]
            }
        ]
    );
    let known = [("90e2e180".to_owned(), real.to_owned())];
    assert_eq!(in_this_run("show 90e2e180", &known), format!("show {real}"));
}
