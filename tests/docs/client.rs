//! Runs the program in `README.md`.

use std::fs;

use super::scratch::Scratch;
use super::{blocks, root, text};

/// The command with which the README runs the program.
const COMMAND: &str = "sessionctl start && node hello.mjs";

/// The files that the README says to copy next to the program.
const CLIENT: [&str; 2] = ["session-bridge.mjs", "session-bridge-contract.mjs"];

/// The exit code of a shell that cannot find a program.
const COMMAND_NOT_FOUND: i32 = 127;

#[test]
fn the_program_prints_the_answer() {
    let page = text("README.md");
    let [program] = &blocks(&page, "js")[..] else {
        panic!("README.md does not have exactly one js block");
    };
    for said in [CLIENT[0], CLIENT[1], COMMAND] {
        assert!(
            page.contains(&format!("`{said}`")),
            "README.md does not say {said}"
        );
    }
    let scratch = Scratch::new();
    for file in CLIENT {
        let from = root().join("packaging/clients").join(file);
        fs::copy(from, scratch.project().join(file)).unwrap();
    }
    fs::write(scratch.project().join("hello.mjs"), program.join("\n")).unwrap();
    // Node may be installed only for the current user, so the caller's PATH is searched too.
    let mut found = scratch.variables()[0].1.clone();
    if let Ok(path) = std::env::var("PATH") {
        found = format!("{found}:{path}");
    }
    let mut shell = scratch.command("sh");
    let output = shell.env("PATH", found).args(["-c", COMMAND]).output().unwrap();
    if output.status.code() == Some(COMMAND_NOT_FOUND) {
        eprintln!("skipped: there is no node");
        return;
    }
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && printed.contains("echo: Hello"),
        "{output:?}"
    );
}
