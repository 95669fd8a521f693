//! Runs the commands and clients of the documentation as a reader would. The pages are `README.md` and
//! `packaging/docs/*.md`.
//!
//! - In a block marked `console`, each line that begins with `$ ` is a command, and the following lines are
//!   its output. The blocks of a page run in order, in one shell and one scratch home whose agent is
//!   `loopback`. Each block starts in the same folder.
//! - The output matches if it differs only in ids, times and other numbers. `…` matches any text within a
//!   line; alone on a line, it matches any lines. A command must fail if a line of its output begins with
//!   `error: `, and must succeed otherwise.
//! - The `js` block of `README.md` is a program that prints the answer to its prompt.
//! - Other blocks, for example `sh` blocks that install something, are not run.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test may fail by panicking, its helpers too, and says what it skips"
)]

mod client;
mod console;
mod failures;
mod promises;
mod scratch;
mod shell;

use std::fs;
use std::path::PathBuf;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All pages with their paths.
fn pages() -> Vec<(String, String)> {
    let mut paths = vec!["README.md".to_owned()];
    if let Ok(entries) = fs::read_dir(root().join("packaging/docs")) {
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        paths.extend(
            names
                .filter(|name| name.ends_with(".md"))
                .map(|name| format!("packaging/docs/{name}")),
        );
    }
    paths.sort();
    paths
        .into_iter()
        .map(|path| (text(&path), path))
        .map(|(text, path)| (path, text))
        .collect()
}

/// The contents of all fenced blocks of this language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<Vec<&'a str>> {
    let mut lines = page.lines();
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        let Some(of) = line.strip_prefix("```") else {
            continue;
        };
        let block = lines.by_ref().take_while(|line| *line != "```").collect();
        if of == language {
            found.push(block);
        }
    }
    found
}

#[test]
fn blocks_are_found_by_language() {
    let page = "# A\n```sh\nls\n```\n```console\n$ ls\na\n```\n";
    assert_eq!(blocks(page, "console"), [["$ ls", "a"]]);
}
