//! A shell that runs the command lines of a paper one by one, and ids and times that differ from those of the paper.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// What stands before the exit code of a command line.
const MARK: &str = "-- ended with ";

/// The length of an id's beginning, by which it is shown where there is little room.
const SHORT: usize = 8;

/// The length of a whole id.
const WHOLE: usize = 36;

/// A shell, in which variables and the folder stay from one line to the next.
pub(crate) struct Shell {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// How a line ended, and what it said to standard output and standard error in the order in which it said it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) text: String,
}

impl Shell {
    /// A shell in a folder, with nothing but these variables.
    pub(crate) fn start(folder: &Path, variables: &[(&str, &str)]) -> Self {
        let mut child = Command::new("/bin/sh")
            .env_clear()
            .envs(variables.iter().copied())
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// Runs a line to its end.
    pub(crate) fn run(&mut self, line: &str) -> Said {
        let script = format!("{{ {line}\n}} </dev/null 2>&1\nprintf '\\n%s%s\\n' '{MARK}' $?\n");
        self.input.write_all(script.as_bytes()).unwrap();
        let mut text = String::new();
        loop {
            let mut told = String::new();
            assert_ne!(
                self.output.read_line(&mut told).unwrap(),
                0,
                "{line} ended the shell: {text}"
            );
            if let Some(code) = told.strip_prefix(MARK) {
                let code = code.trim_end().parse().unwrap();
                // The line's own end and the one before the mark.
                let text = text.trim_end_matches('\n').to_owned();
                return Said { code, text };
            }
            text += &told;
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _has_ended = (self.child.kill(), self.child.wait());
    }
}

/// A part of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part<'a> {
    Text(&'a str),
    Id(&'a str),
}

/// An id with which a text begins: a UUID, or the beginning of one.
fn id_at(text: &str) -> Option<&str> {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_id = |id: &str| {
        id.bytes().enumerate().all(|(place, byte)| match place {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => is_hex(byte),
        })
    };
    let ends = |length: usize| !text[length..].starts_with(|next: char| next.is_ascii_alphanumeric());
    [WHOLE, SHORT].into_iter().find_map(|length| {
        let id = text.get(..length)?;
        (is_id(id) && ends(length)).then_some(id)
    })
}

fn parts(line: &str) -> Vec<Part<'_>> {
    let (mut parts, mut from, mut place) = (Vec::new(), 0, 0);
    let mut is_inside = false;
    while place < line.len() {
        let rest = &line[place..];
        match id_at(rest).filter(|_| !is_inside) {
            Some(id) => {
                parts.extend((from < place).then(|| Part::Text(&line[from..place])));
                parts.push(Part::Id(id));
                place += id.len();
                from = place;
            }
            None => {
                let next = rest.chars().next().unwrap();
                is_inside = next.is_ascii_alphanumeric();
                place += next.len_utf8();
            }
        }
    }
    parts.extend((from < place).then(|| Part::Text(&line[from..])));
    parts
}

/// The ids in a text.
pub(crate) fn ids_of(text: &str) -> Vec<&str> {
    let parts = parts(text).into_iter();
    parts
        .filter_map(|part| match part {
            Part::Id(id) => Some(id),
            Part::Text(_) => None,
        })
        .collect()
}

/// Times of day, and how long it is until then, as if it were always the same time.
fn timeless(text: &str) -> String {
    let mut told = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("(in ") {
        let (_until, behind) = behind.split_once(')').unwrap_or(("", behind));
        told += before;
        told += "(in …)";
        rest = behind;
    }
    told += rest;
    let is_clock = |word: &str| {
        let word = word.trim_matches(|character: char| !character.is_ascii_digit());
        word.contains(':')
            && word
                .chars()
                .all(|character| character.is_ascii_digit() || character == ':')
    };
    let words = told.split(' ').map(|word| match is_clock(word) {
        true => word.replace(|character: char| character.is_ascii_digit(), "0"),
        false => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Which ids of a paper stand for which of this run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ids(Vec<(String, String)>);

impl Ids {
    /// Whether these are the same: one is known as the other, or both are new.
    pub(crate) fn are_one(&mut self, paper: &str, real: &str) -> bool {
        let known = self
            .0
            .iter()
            .find(|(one, other)| one[..SHORT] == paper[..SHORT] || other[..SHORT] == real[..SHORT]);
        match known {
            Some((one, other)) => one[..SHORT] == paper[..SHORT] && other[..SHORT] == real[..SHORT],
            None => {
                self.0.push((paper.to_owned(), real.to_owned()));
                true
            }
        }
    }

    /// Whether a line of the paper says what was said.
    pub(crate) fn says(&mut self, paper: &str, real: &str) -> bool {
        let (paper, real) = (parts(paper), parts(real));
        paper.len() == real.len()
            && paper.into_iter().zip(real).all(|pair| match pair {
                (Part::Text(paper), Part::Text(real)) => timeless(paper) == timeless(real),
                (Part::Id(paper), Part::Id(real)) => paper.len() == real.len() && self.are_one(paper, real),
                _ => false,
            })
    }

    /// A text of the paper with the ids of this run, as long as they are there.
    pub(crate) fn in_this_run(&self, text: &str) -> String {
        self.replaced(text, |paper, real| real.get(..paper.len()).unwrap_or(real))
    }

    /// A text of the paper with the ids of this run, as far as they are known.
    pub(crate) fn whole_in_this_run(&self, text: &str) -> String {
        self.replaced(text, |_, real| real)
    }

    fn replaced<'a>(&'a self, text: &str, cut: impl Fn(&str, &'a str) -> &'a str) -> String {
        let real = |id: &str| {
            let known = self.0.iter().find(|(paper, _)| paper[..SHORT] == id[..SHORT]);
            known.map(|(_, real)| cut(id, real).to_owned())
        };
        let parts = parts(text).into_iter().map(|part| match part {
            Part::Text(text) => text.to_owned(),
            Part::Id(id) => real(id).unwrap_or_else(|| id.to_owned()),
        });
        parts.collect()
    }
}

#[test]
fn ids_stand_for_each_other_and_times_for_any() {
    let mut ids = Ids::default();
    let (paper, real) = (
        "90e2e180-f428-4be8-a1aa-30346c7236b2",
        "0a0b0c0d-1111-4222-8333-444455556666",
    );
    assert!(ids.says(paper, real));
    assert!(ids.says(
        "as 90e2e180, at 18:30:00 (in 3 s)",
        "as 0a0b0c0d, at 06:12:59 (in 4 min)"
    ));
    assert!(!ids.says("as 90e2e180", "as 0a0b0c0e"));
    assert!(!ids.says("as 90e2e181", "as 0a0b0c0d"));
    assert!(!ids.says("at 18:30", "at noon"));
    assert!(!ids.says(paper, "0a0b0c0d"));
    assert_eq!(
        ids.in_this_run("fork 90e2e180 deadbeef1 7ac1e209"),
        "fork 0a0b0c0d deadbeef1 7ac1e209"
    );
    assert_eq!(ids.in_this_run(paper), real);
    assert_eq!(ids_of(&format!("a {paper}.x 7ac1e209")), [paper, "7ac1e209"]);
}

#[test]
fn a_shell_tells_of_each_line() {
    let mut shell = Shell::start(Path::new("/"), &[]);
    let said = |code, text: &str| Said {
        code,
        text: text.to_owned(),
    };
    assert_eq!(shell.run("cd /dev; a=b"), said(0, ""));
    assert_eq!(
        shell.run("pwd; echo $a >&2; printf c; (exit 3)"),
        said(3, "/dev\nb\nc")
    );
}
