//! Transcripts as each version of the agents writes them (`tests/fixtures/transcripts`, where it says how they were made).

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, its helpers too")]

mod damage;

use std::fs;
use std::path::{Path, PathBuf};

use crate::transcript::claude::copy;
use crate::transcript::tests::told_live;
use crate::transcript::transcript_list::Format;
use serde_json::Value;
use tempfile::TempDir;

/// The folder of the project that all of them are about.
const HOME: &str = "/home/u/project";

/// An id that no transcript here has.
const NEW_ID: &str = "6f1a1f5e-0000-4000-8000-000000000000";

/// The transcripts of a format, with the versions that wrote them.
fn corpus(format: Format) -> Vec<(String, Vec<u8>)> {
    let kind = match format {
        Format::Claude => "claude",
        Format::Codex => "codex",
        Format::Qwen => "qwen",
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/transcripts")
        .join(kind);
    let mut found: Vec<(String, Vec<u8>)> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, fs::read(path).unwrap())
        })
        .collect();
    found.sort();
    found
}

/// The session's id, which is the first text of this name.
fn id_of(content: &[u8], format: Format) -> String {
    let name = match format {
        Format::Claude | Format::Qwen => "sessionId",
        Format::Codex => "id",
    };
    fn found(value: &Value, name: &str) -> Option<String> {
        let object = value.as_object()?;
        let own = object.get(name).and_then(Value::as_str).map(str::to_owned);
        own.or_else(|| object.values().find_map(|value| found(value, name)))
    }
    lines(content)
        .iter()
        .find_map(|line| found(&serde_json::from_slice(line).unwrap(), name))
        .unwrap()
}

fn lines(content: &[u8]) -> Vec<Vec<u8>> {
    content
        .split_inclusive(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect()
}

/// One of Claude's under the name that it has in the agent's folder, in a folder of its own.
fn placed(content: &[u8], upstream_id: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("{upstream_id}.jsonl"));
    fs::write(&path, content).unwrap();
    (folder, path)
}

fn records(content: &[u8]) -> Vec<Value> {
    let lines = std::str::from_utf8(content).unwrap().lines();
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Each record as its `sessionId`, if it has one, and the rest of the line.
fn without_session(content: &[u8]) -> Vec<(Option<String>, String)> {
    let lines = std::str::from_utf8(content).unwrap().lines();
    lines
        .map(|line| {
            let record: Value = serde_json::from_str(line).unwrap();
            let id = record["sessionId"].as_str().map(str::to_owned);
            let token = id.as_ref().map(|id| format!(r#""sessionId":"{id}""#));
            // Members of members come before it too: the last one is the record's, but for one that nobody has.
            let rest = match token.and_then(|token| line.rfind(&token).map(|at| (at, token.len()))) {
                Some((at, length)) => format!("{}{}", &line[..at], &line[at + length..]),
                None => line.to_owned(),
            };
            (id, rest)
        })
        .collect()
}

#[test]
fn a_copy_is_the_same_and_one_under_a_new_id_differs_in_nothing_else() {
    for (name, content) in corpus(Format::Claude) {
        let upstream_id = &*id_of(&content, Format::Claude);
        // Also with what no version writes yet.
        let mut strange = String::new();
        for line in std::str::from_utf8(&content).unwrap().lines() {
            strange.push_str(r#"{"type":"of-tomorrow","sessionId":7,"number":1.50,"list":[ 1,"é"]}"#);
            strange.push('\n');
            strange.push_str(&line.replacen('{', r#"{"tomorrow":{"number":1.50, "sessionId":"x"},"#, 1));
            strange.push('\n');
        }
        for content in [&content[..], strange.as_bytes()] {
            let (_folder, path) = placed(content, upstream_id);
            let other = tempfile::tempdir().unwrap();
            let same = copy::copy_as(&path, other.path(), upstream_id).unwrap();
            assert!(
                fs::read(&same).unwrap() == content,
                "{name} is not the same as a copy"
            );

            let renamed = fs::read(copy::copy_as(&path, other.path(), NEW_ID).unwrap()).unwrap();
            let mut expected = without_session(content);
            assert!(expected.iter().any(|(id, _)| id.as_deref() == Some(upstream_id)));
            for (id, _) in &mut expected {
                if id.as_deref() == Some(upstream_id) {
                    *id = Some(NEW_ID.to_owned());
                }
            }
            assert!(
                without_session(&renamed) == expected,
                "{name}: more than the id differs"
            );
            assert_eq!(records(&renamed).len(), records(content).len());
            let copy = other.path().join(format!("{NEW_ID}.jsonl"));
            assert_eq!(told_live(&copy), told_live(&path));
        }
    }
}
