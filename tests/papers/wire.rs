//! What README.md says of the wire: the lines that it shows are sent and told, and its tables are those of the contract.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use bridge_protocol::ErrorKind;
use bridge_protocol::event::Event;
use serde_json::Value;

use super::readme::Paper;
use super::shell::Ids;
use super::{Daemon, paper, run};

/// How long an answer may take before the test fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(90);

/// The folder of the README's app.
const FOLDER_OF_THE_README: &str = "/home/me/project";

/// What stands for a string that is different each time.
const ANY: &str = "…";

/// Whether what is shown was told, with which ids in place of those that are shown. Members may be left out of what is shown.
fn is_told<'a>(shown: &'a Value, real: &'a Value, ids: &mut Vec<(&'a str, &'a str)>) -> bool {
    match (shown, real) {
        (Value::String(shown), _) if shown == ANY => true,
        (Value::String(shown), Value::String(real)) if is_short_id(shown) => {
            ids.push((shown, real));
            true
        }
        (Value::Object(shown), Value::Object(real)) => shown
            .iter()
            .all(|(name, shown)| real.get(name).is_some_and(|real| is_told(shown, real, ids))),
        (shown, real) => shown == real,
    }
}

fn is_short_id(text: &str) -> bool {
    text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The same ids, when what is shown was told.
fn with_told(known: &Ids, shown: &Value, real: &Value) -> Option<Ids> {
    let (mut ids, mut pairs) = (known.clone(), Vec::new());
    let told = is_told(shown, real, &mut pairs) && pairs.iter().all(|(shown, real)| ids.are_one(shown, real));
    told.then_some(ids)
}

#[test]
fn the_lines_of_the_wire_are_sent_and_told_as_the_readme_shows_them() {
    let (readme, daemon) = (paper("README.md"), Daemon::start());
    let mut socket = UnixStream::connect(daemon.socket()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut told = BufReader::new(socket.try_clone().unwrap()).lines();
    let (mut ids, mut count) = (Ids::default(), 0);
    let blocks = Paper::of(&readme).blocks.into_iter();
    for line in blocks
        .filter(|block| block.language == "text")
        .flat_map(|block| block.lines)
    {
        if let Some(request) = line.strip_prefix("→ ") {
            let request = request.replace(FOLDER_OF_THE_README, daemon.project().to_str().unwrap());
            let request = ids.whole_in_this_run(&request);
            socket.write_all(format!("{request}\n").as_bytes()).unwrap();
        } else {
            let shown = line
                .strip_prefix("← ")
                .unwrap_or_else(|| panic!("who says {line}?"));
            let shown: Value = serde_json::from_str(shown).unwrap_or_else(|error| panic!("{shown}: {error}"));
            // Other events may come before.
            let mut passed = Vec::new();
            ids = loop {
                let real = told
                    .next()
                    .unwrap()
                    .unwrap_or_else(|error| panic!("{shown} was not told, but {passed:#?}: {error}"));
                let real: Value = serde_json::from_str(&real).unwrap();
                if let Some(ids) = with_told(&ids, &shown, &real) {
                    break ids;
                }
                let is_answer = real.get("id").is_some();
                assert!(!is_answer, "{shown} was not told, but {real}");
                passed.push(real);
            };
        }
        count += 1;
    }
    assert!(count > 10, "only {count} lines were found");
}

/// The rows of the tables in a section, without their headings.
fn rows<'a>(readme: &'a str, section: &str) -> Vec<Vec<&'a str>> {
    let behind = readme
        .split(&format!("\n### {section}\n"))
        .nth(1)
        .expect("the section");
    let lines = behind.lines().take_while(|line| !line.starts_with('#'));
    let mut rows: Vec<Vec<&str>> = Vec::new();
    for line in lines.filter_map(|line| line.strip_prefix("| ")) {
        let cells = line.strip_suffix('|').unwrap_or(line).split('|').map(str::trim);
        rows.push(cells.collect());
    }
    rows.split_off(1)
}

#[test]
fn the_errors_of_the_readme_are_those_of_the_contract() {
    let readme = paper("README.md");
    let mut shown = BTreeMap::new();
    for row in rows(&readme, "Errors") {
        let [code, kind, retryable, _data, advice] = row[..] else {
            panic!("{row:?}: not five cells");
        };
        assert!(!advice.is_empty(), "{kind}");
        let before = shown.insert(kind.trim_matches('`').to_owned(), (code.to_owned(), retryable));
        assert_eq!(before, None, "{kind} is shown twice");
    }
    for kind in ErrorKind::ALL {
        let name = serde_json::to_value(kind).unwrap();
        let name = name.as_str().unwrap();
        let (code, retryable) = shown
            .remove(name)
            .unwrap_or_else(|| panic!("README.md lacks {name}"));
        assert_eq!(code, kind.code().to_string(), "{name}");
        let may_be: &[&str] = match kind.usually_retryable() {
            true => &["yes"],
            false => &["no", "told"],
        };
        assert!(may_be.contains(&retryable), "{name}: {retryable}");
    }
    assert_eq!(shown, BTreeMap::new(), "kinds that the contract does not have");
}

#[test]
fn the_events_of_the_readme_are_those_of_the_contract() {
    let readme = paper("README.md");
    let rows = rows(&readme, "Events and their order");
    let shown: BTreeSet<&str> = rows
        .iter()
        .flat_map(|row| row[0].split('`').skip(1).step_by(2))
        .collect();
    assert_eq!(shown, Event::KINDS.iter().copied().collect());
}

#[test]
fn the_failures_of_turns_in_the_readme_are_those_of_the_contract() {
    let contract: Value = serde_json::from_str(&paper("packaging/openrpc.json")).unwrap();
    let kinds = &contract["components"]["schemas"]["FailureKind"];
    let mut names = BTreeSet::new();
    constants(kinds, &mut names);
    assert!(names.len() > 5, "{kinds}");
    let readme = paper("README.md");
    let (_, behind) = readme.split_once("A turn's `failure.kind` is").unwrap();
    let (sentence, _) = behind.split_once(';').unwrap();
    let shown: BTreeSet<String> = sentence
        .split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect();
    assert_eq!(shown, names);
}

/// The words that a schema allows.
fn constants(schema: &Value, names: &mut BTreeSet<String>) {
    match schema {
        Value::Object(members) => {
            names.extend(members.get("const").and_then(Value::as_str).map(str::to_owned));
            members.values().for_each(|member| constants(member, names));
            let listed = members
                .get("enum")
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            names.extend(listed.filter_map(Value::as_str).map(str::to_owned));
        }
        Value::Array(members) => members.iter().for_each(|member| constants(member, names)),
        _ => {}
    }
}

#[test]
fn the_exit_codes_of_the_readme_are_those_of_the_help() {
    let help = run(Command::new(env!("CARGO_BIN_EXE_sessionctl")).arg("--help")).stdout;
    let help = String::from_utf8(help).unwrap();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, behind) = help.split_once("Exit codes: ").unwrap();
    let (codes, _) = behind.split_once('.').unwrap();
    let readme = paper("README.md");
    let told: Vec<String> = rows(&readme, "Script it")
        .into_iter()
        .map(|row| format!("{} {}", row[0], row[1].split(':').next().unwrap()))
        .collect();
    // The table has its rows behind a line of dashes, which begins otherwise.
    assert_eq!(told.join(", "), codes);
}

#[test]
fn the_rules_of_the_wire_can_fail() {
    let told = |shown: &str, real: &str| {
        let [shown, real] = [shown, real].map(|text| serde_json::from_str(text).unwrap());
        with_told(&Ids::default(), &shown, &real).is_some()
    };
    assert!(told(r#"{"a":{"b":"…"}}"#, r#"{"a":{"b":1,"c":2},"d":3}"#));
    assert!(!told(r#"{"a":{"b":"…"}}"#, r#"{"a":{"c":2}}"#));
    assert!(!told(r#"{"a":1}"#, r#"{"a":2}"#));
    let real = r#"["0a0b0c0d-1111-4222-8333-444455556666","1a0b0c0d-1111-4222-8333-444455556666"]"#;
    let real: Value = serde_json::from_str(real).unwrap();
    let mut ids = Ids::default();
    let shown = Value::from("90e2e180");
    ids = with_told(&ids, &shown, &real[0]).unwrap();
    assert!(with_told(&ids, &shown, &real[1]).is_none());
    assert_eq!(ids.whole_in_this_run("90e2e180"), real[0].as_str().unwrap());
    let table = "\n### A\n\n| x | y |\n|---|---|\n| `a` | b |\n\n### B\n| c |\n";
    assert_eq!(rows(table, "A"), [["`a`", "b"]]);
}
