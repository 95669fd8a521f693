//! Transcripts that tests make.

mod bad_input;
mod corpus;
mod golden;

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

/// The session that they are of.
pub(super) const OLD: &str = "11111111-1111-4111-8111-111111111111";
/// One that a copy is of.
pub(super) const NEW: &str = "22222222-2222-4222-8222-222222222222";

/// A transcript with this content, in a folder of its own.
pub(super) fn transcript(content: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(format!("{OLD}.jsonl"));
    fs::write(&path, content).expect("a file");
    (folder, path)
}

/// A record of a chain, with no parent where its name is empty, and with these members more, each behind a comma.
pub(super) fn chain(uuid: &str, parent: &str, kind: &str, text: &str, more: &str) -> String {
    let origin = match kind {
        "user" => r#","origin":{"kind":"human"}"#,
        _ => "",
    };
    let parent = match parent {
        "" => "null".to_owned(),
        parent => format!("\"{parent}\""),
    };
    format!(
        r#"{{"parentUuid":{parent},"type":"{kind}","uuid":"{uuid}","sessionId":"{OLD}"{origin},"message":{{"content":"{text}"}}{more}}}"#
    )
}
