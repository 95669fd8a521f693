//! Compares facts about each transcript of the corpus that no client can see with `tests/fixtures/golden`: which records
//! are on the branch, and how a transcript changes when it moves to another folder.
//!
//! Only `adapter` uses names of this module, so a rewrite changes that file and no golden file.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, also in its helpers"
)]

mod adapter;
#[path = "../../../tests/golden/corpus.rs"]
mod corpus;
#[path = "../../../tests/golden/dump.rs"]
mod dump;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use corpus::{Format, Sample, samples};
use dump::{compare, described};
use serde_json::Value;

/// The records of a file by the bytes at which they begin, as the agent wrote them.
fn records(content: &[u8]) -> Vec<(u64, Value)> {
    let mut offset = 0;
    let mut records = Vec::new();
    for line in content.split_inclusive(|byte| *byte == b'\n') {
        if let Ok(record) = serde_json::from_slice::<Value>(line) {
            records.push((offset, record));
        }
        offset += line.len() as u64;
    }
    records
}

fn claude(path: &std::path::Path, sample: &Sample, text: &mut String) {
    let facts = adapter::index(path);
    let _ = writeln!(text, "index {}", facts.counts);
    for (offset, record) in records(&sample.content) {
        let Some(id) = record["uuid"].as_str() else {
            continue;
        };
        let parent = record["parentUuid"].as_str().unwrap_or("-");
        let kind = record["type"].as_str().unwrap_or("-");
        let _ = writeln!(
            text,
            "  {offset} {id} {parent} {kind} {}",
            adapter::flags(&facts, offset)
        );
    }
}

fn frozen(format: Format) {
    let folder = tempfile::tempdir().unwrap();
    let samples = samples(format);
    for sample in &samples {
        sample.put(folder.path());
    }
    let mut dumps = BTreeMap::new();
    for sample in &samples {
        let mut text = String::new();
        if format == Format::Claude {
            let name = format!("claude/projects/-home-u-project/{}.jsonl", sample.id);
            let path = folder.path().join(name);
            assert!(fs::metadata(&path).unwrap().is_file());
            claude(&path, sample, &mut text);
        }
        let moved = adapter::relocated(&sample.content, "/home/u/project", "/home/u/elsewhere");
        let source = String::from_utf8_lossy(&sample.content);
        let _ = writeln!(
            text,
            "moved {}",
            described(&String::from_utf8_lossy(&moved), &source)
        );
        dumps.insert(format!("room-{}-{}.txt", format.name(), sample.name), text);
    }
    compare(&format!("room-{}-", format.name()), &dumps);
}

#[test]
fn qwens_records_are_as_frozen() {
    let folder = tempfile::tempdir().unwrap();
    let mut dumps = BTreeMap::new();
    for sample in samples(Format::Qwen) {
        sample.put(folder.path());
        let text = adapter::qwen(&folder.path().join("qwen"), &sample.id);
        dumps.insert(format!("room-qwen-{}.txt", sample.name), text);
    }
    compare("room-qwen-", &dumps);
}

#[test]
fn claudes_records_are_as_frozen() {
    frozen(Format::Claude);
}

#[test]
fn codex_files_are_as_frozen() {
    frozen(Format::Codex);
}
