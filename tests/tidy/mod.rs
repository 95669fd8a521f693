//! The conventions of this code base, checked by ordinary tests. Each rule is a function over text and has a
//! test that shows that it can fail.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test may fail by panicking, its helpers too"
)]

mod code;
mod lasting;

use std::fs;
use std::path::{Path, PathBuf};

use code::{code_of, split_tests};

/// The rooms in order: each may use only those before it.
const ROOMS: [&str; 14] = [
    "paths",
    "files",
    "chain",
    "transcript",
    "archive",
    "store",
    "agent",
    "conversation",
    "diagnosis",
    "bridge",
    "server",
    "acp",
    "daemon",
    "cli",
];

/// Rooms that may use fewer rooms than their place in the order allows.
const NARROWER: [(&str, &[&str]); 1] = [("cli", &["paths"])];

/// Modules that only decide, with all modules below them. A module whose heading says that it is pure is
/// checked too, without the modules below it.
const PURE: [&str; 30] = [
    "src/chain",
    "src/conversation/state",
    "src/conversation/transition",
    "src/conversation/recovery",
    "src/transcript/fields",
    "src/transcript/lines",
    "src/transcript/check",
    "src/transcript/claude/history",
    "src/transcript/claude/check",
    "src/transcript/claude/entries",
    "src/transcript/claude/facts",
    "src/transcript/claude/index",
    "src/transcript/claude/origin",
    "src/transcript/claude/record",
    "src/transcript/claude/summary",
    "src/transcript/claude/walk",
    "src/transcript/codex/history",
    "src/transcript/codex/check",
    "src/transcript/codex/last_turn",
    "src/transcript/codex/facts",
    "src/transcript/codex/item",
    "src/transcript/codex/line",
    "src/transcript/codex/rename",
    "src/transcript/codex/decompressed",
    "src/transcript/summary",
    "src/transcript/checkpoint",
    "src/transcript/preamble",
    "src/agent/failure",
    "src/agent/envelope",
    "src/agent/kinds",
];

/// Names that a pure module must not use: I/O, the store, and clocks.
const IMPURE: [&str; 8] = [
    "tokio",
    "std::fs",
    "std::net",
    "sled",
    "SystemTime",
    "Instant::now",
    "Timestamp::now",
    "Zoned::now",
];

/// Channels without a limit.
const UNBOUNDED: [&str; 4] = [
    "unbounded_channel",
    "mpsc::channel()",
    "unbounded(",
    "UnboundedSender",
];

/// Waiting for time to pass, or polling, instead of waiting for a signal.
const SLEEPS: [&str; 5] = [
    "thread::sleep",
    "time::sleep(",
    "sleep_until(",
    "yield_now",
    "spin_loop",
];

/// The maximum number of lines of each document. A longer document must be shortened.
const DOCUMENTS: [(&str, usize); 4] = [
    ("README.md", 150),
    ("ARCHITECTURE.md", 250),
    ("CONTRIBUTING.md", 120),
    ("packaging/docs/", 199),
];

/// Calls that measure time, wait for a time, or read the current time.
const TIMES: [&str; 9] = [
    "Instant::now",
    "SystemTime::now",
    "Timestamp::now",
    "Zoned::now",
    "elapsed()",
    "timeout(",
    "recv_timeout(",
    "wait_timeout(",
    "set_read_timeout(",
];

/// The files that may use [`TIMES`], with the reason.
const TIMED: [(&str, &[&str]); 4] = [
    (
        "a limit after which a test fails instead of hanging",
        &[
            "src/agent/inbox/tests.rs",
            "src/agent/pool/tests.rs",
            "src/agent/process/tests.rs",
            "src/agent/wire/tests.rs",
            "src/server/outbox/tests.rs",
            "src/server/stream.rs",
            "src/server/tests/foreign_user.rs",
            "src/server/tests/support.rs",
            "src/transcript/watch/tests.rs",
            "tests/acp/editor.rs",
            "tests/crash/client.rs",
            "tests/daemon/home.rs",
            "tests/daemon/starting.rs",
            "tests/daemon/support.rs",
            "tests/loopback/client.rs",
            "tests/packaging/clients.rs",
            "tests/real_clients/mod.rs",
            "tests/support/acp_client.rs",
            "tests/support/bridge.rs",
            "tests/support/model_server.rs",
            "tests/support/signs.rs",
        ],
    ),
    (
        "a simulated clock that only the test advances",
        &[
            "src/agent/pool/tests.rs",
            "src/conversation/registry/tests.rs",
            "src/conversation/registry/watching/tests.rs",
            "src/conversation/wakeups.rs",
            "src/daemon/presence.rs",
        ],
    ),
    (
        "a base instant that is passed to the tested code",
        &["src/agent/pool/backoff.rs", "src/server/socket.rs"],
    ),
    (
        "a time in the future that is passed to a daemon or an agent",
        &[
            "tests/faults/going_on.rs",
            "tests/real_claude/limits.rs",
            "tests/real_claude/smoke/contract.rs",
            "tests/real_codex/limits.rs",
            "tests/support/model_server.rs",
        ],
    ),
];

/// A source file: its path relative to the root, with `/` as separator, and its text.
struct Source {
    path: String,
    text: String,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn sources() -> Vec<Source> {
    let root = root();
    let mut sources = Vec::new();
    for folder in ["src", "tests", "bridge-protocol/src", "bridge-protocol/tests"] {
        collect(&root, &root.join(folder), &mut sources);
    }
    assert!(
        sources.len() > 10,
        "the sources were not found below {}",
        root.display()
    );
    sources
}

fn collect(root: &Path, folder: &Path, sources: &mut Vec<Source>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        // The build folder of a fuzz target contains no sources.
        if path.is_dir() && !path.ends_with("target") {
            collect(root, &path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let relative = path.strip_prefix(root).unwrap();
            sources.push(Source {
                path: relative.to_string_lossy().replace('\\', "/"),
                text: fs::read_to_string(&path).unwrap(),
            });
        }
    }
}

/// The room that a file belongs to, if any.
fn room_of(path: &str) -> Option<&'static str> {
    let name = path.strip_prefix("src/")?.split('/').next()?;
    let name = name.strip_suffix(".rs").unwrap_or(name);
    ROOMS.into_iter().find(|room| *room == name)
}

fn allowed(room: &str) -> Vec<&'static str> {
    if let Some((_, rooms)) = NARROWER.iter().find(|(name, _)| *name == room) {
        return rooms.to_vec();
    }
    ROOMS.into_iter().take_while(|other| *other != room).collect()
}

/// The first name after each `crate::`, including those in a brace list.
fn crate_names(code: &str) -> Vec<(usize, String)> {
    let mut names = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let whole_word =
            !code[..at].ends_with(|character: char| character.is_alphanumeric() || character == '_');
        if !whole_word {
            continue;
        }
        let behind = &code[at + "crate::".len()..];
        let line = code[..at].lines().count().max(1);
        match behind.strip_prefix('{') {
            Some(list) => names.extend(top_of_list(list).into_iter().map(|name| (line, name))),
            None => names.push((line, word(behind))),
        }
    }
    names
}

/// The first name after each chain of `super::` that leads up to the level of the rooms.
fn names_above_rooms(path: &str, code: &str) -> Vec<(usize, String)> {
    let Some(place) = path
        .strip_prefix("src/")
        .and_then(|path| path.strip_suffix(".rs"))
    else {
        return Vec::new();
    };
    let depth = place.strip_suffix("/mod").unwrap_or(place).split('/').count();
    // An inline test module is one level deeper.
    let inline_tests = if path.ends_with("/tests.rs") || path.contains("/tests/") {
        code.len()
    } else {
        split_tests(path, code).0.len()
    };
    let mut names = Vec::new();
    for (at, _) in code.match_indices("super::") {
        let begins_path = !code[..at]
            .ends_with(|character: char| character.is_alphanumeric() || matches!(character, '_' | ':'));
        let behind = code[at..].trim_start_matches("super::");
        let levels = (code.len() - at - behind.len()) / "super::".len();
        if !begins_path || levels != depth + usize::from(at >= inline_tests) {
            continue;
        }
        let line = code[..at].lines().count().max(1);
        match behind.strip_prefix('{') {
            Some(list) => names.extend(top_of_list(list).into_iter().map(|name| (line, name))),
            None => names.push((line, word(behind))),
        }
    }
    names
}

/// The first name of each member of a brace list, up to its closing brace.
fn top_of_list(list: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut depth = 0_usize;
    let mut member_starts = true;
    for (index, character) in list.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => member_starts = true,
            _ if member_starts && !character.is_whitespace() => {
                names.push(word(&list[index..]));
                member_starts = false;
            }
            _ => {}
        }
    }
    names
}

fn word(text: &str) -> String {
    text.chars()
        .take_while(|character| character.is_alphanumeric() || *character == '_')
        .collect()
}

fn rooms_used_above(path: &str, text: &str) -> Vec<String> {
    let Some(room) = room_of(path) else {
        return Vec::new();
    };
    let allowed = allowed(room);
    let code = code_of(text);
    crate_names(&code)
        .into_iter()
        .chain(names_above_rooms(path, &code))
        .filter(|(_, name)| {
            ROOMS.contains(&name.as_str()) && name != room && !allowed.contains(&name.as_str())
        })
        .map(|(line, name)| format!("{path}:{line}: the room {room} must not use {name}"))
        .collect()
}

fn is_pure(path: &str) -> bool {
    PURE.iter().any(|pure| {
        path.strip_prefix(pure)
            .is_some_and(|behind| behind == ".rs" || behind.starts_with('/'))
    })
}

/// Whether a module's heading says that it is pure. "Pure of" something does not count.
fn claims_purity(text: &str) -> bool {
    let heading: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("//!")).collect();
    let heading = heading.join(" ");
    ["Pure.", "Pure:", "Pure;", "Pure and ", "It is pure"]
        .iter()
        .any(|claim| heading.contains(claim))
}

fn impurities(path: &str, text: &str) -> Vec<String> {
    if !is_pure(path) && !claims_purity(text) {
        return Vec::new();
    }
    let code = code_of(text);
    let (shipped, _) = split_tests(path, &code);
    named(path, shipped, &IMPURE, "a pure module must not name")
}

fn unbounded_channels(path: &str, text: &str) -> Vec<String> {
    let code = code_of(text);
    let (shipped, _) = split_tests(path, &code);
    named(path, shipped, &UNBOUNDED, "a channel has a limit; this has none:")
}

fn sleeps_in_tests(path: &str, text: &str) -> Vec<String> {
    // A benchmark may control its own pace; it is not a test.
    if path.starts_with("tests/bench/") {
        return Vec::new();
    }
    let code = code_of(text);
    let (shipped, tests) = split_tests(path, &code);
    let before = shipped.matches('\n').count();
    let rule = "a test waits for a signal, not with";
    let mut found = named_from(path, tests, &SLEEPS, rule, before);
    if !TIMED.iter().any(|(_, files)| files.contains(&path)) {
        found.extend(named_from(path, tests, &TIMES, rule, before));
    }
    found
}

fn named(path: &str, code: &str, words: &[&str], rule: &str) -> Vec<String> {
    named_from(path, code, words, rule, 0)
}

fn named_from(path: &str, code: &str, words: &[&str], rule: &str, lines_before: usize) -> Vec<String> {
    let mut found = Vec::new();
    for (index, line) in code.lines().enumerate() {
        for word in words {
            let in_word = |character: char| character.is_alphanumeric() || character == '_';
            let as_word = line.match_indices(word).any(|(at, _)| {
                let behind = &line[at + word.len()..];
                !(line[..at].ends_with(in_word) || word.ends_with(in_word) && behind.starts_with(in_word))
            });
            if as_word {
                found.push(format!("{path}:{}: {rule} {word}", lines_before + index + 1));
            }
        }
    }
    found
}

fn missing_heading(path: &str, text: &str) -> Vec<String> {
    // Tests in a file beside a module need no heading, because the module's own heading says what it is for.
    if text.starts_with("//!") || path.ends_with("/tests.rs") {
        return Vec::new();
    }
    vec![format!(
        "{path}:1: a module begins with //! and says what it is for"
    )]
}

/// Integration tests use only processes, files and the wire contract, so that they do not depend on the code
/// inside. Exceptions are the benchmarks and the helper programs.
fn imports_from_inside(path: &str, text: &str) -> Vec<String> {
    let is_outside = path.starts_with("tests/")
        && !["tests/bench/", "tests/support/programs/"]
            .iter()
            .any(|exception| path.starts_with(exception));
    if !is_outside {
        return Vec::new();
    }
    let imports = named(
        path,
        &code_of(text),
        &["session_bridge::"],
        "a test from outside imports",
    );
    // The path is a string, so it is searched in the text instead of the code.
    let lines = text.lines().enumerate();
    let included =
        lines.filter(|(_, line)| line.trim_start().starts_with("#[path") && line.contains("../src/"));
    let included = included
        .map(|(index, _)| format!("{path}:{}: a test from outside includes a file of src", index + 1));
    imports.into_iter().chain(included).collect()
}

fn check(rule: impl Fn(&str, &str) -> Vec<String>) {
    let findings: Vec<String> = sources()
        .iter()
        .flat_map(|source| rule(&source.path, &source.text))
        .collect();
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

#[test]
fn no_room_uses_one_above_it() {
    check(rooms_used_above);
}

#[test]
fn pure_modules_are_pure() {
    check(impurities);
}

#[test]
fn no_channel_is_without_a_limit() {
    check(unbounded_channels);
}

#[test]
fn no_test_sleeps() {
    check(sleeps_in_tests);
}

#[test]
fn each_module_says_what_it_is_for() {
    check(missing_heading);
}

#[test]
fn tests_from_outside_import_nothing_from_the_inside() {
    check(imports_from_inside);
}

#[test]
fn no_document_is_too_long() {
    let pages = fs::read_dir(root().join("packaging/docs")).unwrap();
    let pages = pages.map(|page| format!("packaging/docs/{}", page.unwrap().file_name().display()));
    let others = DOCUMENTS.iter().map(|(name, _)| (*name).to_owned());
    for path in pages.chain(others.filter(|name| !name.ends_with('/'))) {
        let (_, most) = DOCUMENTS.iter().find(|(name, _)| path.starts_with(name)).unwrap();
        let lines = fs::read_to_string(root().join(&path)).unwrap().lines().count();
        assert!(lines <= *most, "{path} has {lines} lines; the most is {most}");
    }
}

#[test]
fn each_room_in_the_source_has_its_place() {
    for entry in fs::read_dir(root().join("src")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let name = name.strip_suffix(".rs").unwrap_or(&name);
        assert!(
            ROOMS.contains(&name) || ["lib", "bin"].contains(&name),
            "src/{name} is missing in the order of the rooms"
        );
    }
}

#[test]
fn the_rule_of_rooms_can_fail() {
    let bad = |path: &str, text: &str| rooms_used_above(path, text).len();
    assert_eq!(bad("src/chain/mod.rs", "//! X\nuse crate::store::Store;"), 1);
    assert_eq!(
        bad(
            "src/store/mod.rs",
            "use crate::{chain::Chain, agent::{self, wire}, daemon};"
        ),
        2
    );
    assert_eq!(bad("src/cli/start.rs", "let x = crate::daemon::lock::read();"), 1);
    assert_eq!(bad("src/cli/start.rs", "use crate::chain::Chain;"), 1);
    assert_eq!(bad("src/paths.rs", "use crate::cli;"), 1);
    assert_eq!(
        bad(
            "src/cli/start.rs",
            "use crate::paths::Paths; use crate::cli::exit;"
        ),
        0
    );
    assert_eq!(
        bad(
            "src/store/mod.rs",
            "//! [`crate::daemon`]\nlet x = \"crate::daemon\"; use crate::chain;"
        ),
        0
    );
    assert_eq!(bad("src/bin/sessiond.rs", "use crate::daemon;"), 0);
    // With `super` instead of `crate`.
    assert_eq!(bad("src/chain/mod.rs", "use super::store::Store;"), 1);
    assert_eq!(bad("src/chain/ancestry.rs", "use super::super::store::Store;"), 1);
    assert_eq!(
        bad(
            "src/chain/ancestry.rs",
            "use super::super::{store::Store, daemon};"
        ),
        2
    );
    assert_eq!(bad("src/paths.rs", "let x = super::cli::run();"), 1);
    assert_eq!(
        bad(
            "src/conversation/actor/execution.rs",
            "super::super::super::server::run()"
        ),
        1
    );
    assert_eq!(bad("src/server/rpc.rs", "use super::super::store::Store;"), 0);
    assert_eq!(
        bad(
            "src/store/lookup.rs",
            "use super::agent; use super::super::chain;"
        ),
        0
    );
    let in_tests = |line: &str| format!("fn f() {{}}\n#[cfg(test)]\nmod tests {{\n{line}\n}}");
    assert_eq!(bad("src/paths.rs", &in_tests("use super::cli;")), 0);
    assert_eq!(bad("src/paths.rs", &in_tests("use super::super::cli;")), 1);
    assert_eq!(bad("src/chain/tests.rs", "use super::super::super::store;"), 0);
    assert_eq!(
        bad("src/chain/ancestry/tests.rs", "use super::super::super::store;"),
        1
    );
}

#[test]
fn the_rule_of_purity_can_fail() {
    let bad = |path: &str, text: &str| impurities(path, text).len();
    for line in [
        "use tokio::sync::mpsc;",
        "std::fs::read(path)",
        "let now = Timestamp::now();",
        "let t = std::time::Instant::now();",
        "use sled::Db;",
    ] {
        assert_eq!(bad("src/chain/ancestry.rs", line), 1, "{line}");
        assert_eq!(bad("src/agent/failure.rs", line), 1, "{line}");
        assert_eq!(bad("src/conversation/recovery/plan.rs", line), 1, "{line}");
        assert_eq!(bad("src/agent/failures.rs", line), 0, "{line}");
        let in_tests = format!("fn f() {{}}\n#[cfg(test)]\nmod tests {{\n{line}\n}}");
        assert_eq!(bad("src/chain/ancestry.rs", &in_tests), 0, "{line}");
        let behind_a_test_file = format!("#[cfg(test)]\nmod tests;\n{line}");
        assert_eq!(bad("src/chain/ancestry.rs", &behind_a_test_file), 1, "{line}");
    }
    assert_eq!(bad("src/chain/mod.rs", "// tokio\nlet assled = 1;"), 0);
    for pure in PURE {
        assert!(
            root().join(format!("{pure}.rs")).exists() || root().join(pure).is_dir(),
            "{pure}"
        );
        assert_eq!(bad(&format!("{pure}.rs"), "use tokio::time;"), 1, "{pure}");
    }
    assert_eq!(bad("src/server/x.rs", "//! X.\n//! Pure.\nuse tokio::time;"), 1);
    assert_eq!(
        bad("src/server/x.rs", "//! Pure of tokio.\nuse tokio::time; // Pure."),
        0
    );
}

#[test]
fn the_rule_of_channels_can_fail() {
    let bad = |text: &str| unbounded_channels("src/x.rs", text).len();
    assert_eq!(unbounded_channels("tests/x.rs", "mpsc::channel()").len(), 0);
    assert_eq!(bad("let (a, b) = mpsc::unbounded_channel();"), 1);
    assert_eq!(bad("let (a, b) = std::sync::mpsc::channel();"), 1);
    assert_eq!(bad("let (a, b) = crossbeam::unbounded();"), 1);
    assert_eq!(bad("let (a, b) = mpsc::channel(LIMIT); // not unbounded()"), 0);
    assert_eq!(bad("fn unbounded_channels() {}"), 0);
}

#[test]
fn the_rule_of_sleeps_can_fail() {
    assert_eq!(
        sleeps_in_tests("tests/x.rs", "std::thread::yield_now();").len(),
        1
    );
    assert_eq!(
        sleeps_in_tests("tests/x.rs", "tokio::task::yield_now().await;").len(),
        1
    );
    for line in [
        "let start = std::time::Instant::now();",
        "let before = jiff::Timestamp::now();",
        "let old = SystemTime::now() - age;",
        "let day = Zoned::now().date();",
        "assert!(start.elapsed() < limit);",
        "words.recv_timeout(limit)",
        "tokio::time::timeout(limit, end).await",
        "signal.wait_timeout(state, limit)",
        "stream.set_read_timeout(Some(limit))",
    ] {
        assert_eq!(sleeps_in_tests("tests/x.rs", line).len(), 1, "{line}");
    }
    for (reason, files) in TIMED {
        for file in files {
            let code = code_of(&fs::read_to_string(root().join(file)).unwrap());
            let (_, tests) = split_tests(file, &code);
            assert_ne!(named(file, tests, &TIMES, reason).len(), 0, "{file}: {reason}");
        }
    }
    let line = "std::thread::sleep(limit);\ntokio::time::sleep(limit).await;";
    assert_eq!(sleeps_in_tests("tests/x.rs", line).len(), 2);
    assert_eq!(sleeps_in_tests("src/store/tests.rs", line).len(), 2);
    assert_eq!(sleeps_in_tests("src/store/mod.rs", line).len(), 0);
    let inline = format!("fn f() {{}}\n#[cfg(test)]\nmod tests {{\n{line}\n}}");
    assert_eq!(
        sleeps_in_tests("src/store/mod.rs", &inline)[0],
        "src/store/mod.rs:4: a test waits for a signal, not with thread::sleep"
    );
}

#[test]
fn the_rules_of_form_can_fail() {
    assert_eq!(missing_heading("src/x.rs", "use std::fs;\n").len(), 1);
    assert_eq!(missing_heading("src/x.rs", "//! X\n").len(), 0);
    assert_eq!(missing_heading("src/x/tests.rs", "use super::*;\n").len(), 0);
    let inside = "use session_bridge::store::Store;";
    assert_eq!(imports_from_inside("tests/daemon/x.rs", inside).len(), 1);
    assert_eq!(imports_from_inside("src/x.rs", inside).len(), 0);
    let included = "#[path = \"../../src/paths/names.rs\"]\nmod names;";
    assert_eq!(imports_from_inside("tests/daemon/x.rs", included).len(), 1);
    let own = "#[path = \"../support/signs.rs\"]\nmod signs;";
    assert_eq!(imports_from_inside("tests/daemon/x.rs", own).len(), 0);
}
