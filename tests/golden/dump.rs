//! Reads and writes golden files, one for each transcript.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// The environment variable that makes the tests rewrite the golden files.
const WRITE: &str = "WRITE_GOLDEN";

/// The maximum size of all golden files together, in bytes.
const LIMIT_BYTES: u64 = 600_000;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/golden")
}

pub(crate) fn hash(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest[..8].iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The positions of all UUIDs in a text.
pub(crate) fn uuids(text: &str) -> Vec<(usize, &str)> {
    let bytes = text.as_bytes();
    let is_uuid = |at: usize| {
        (0..36).all(|offset| match offset {
            8 | 13 | 18 | 23 => bytes[at + offset] == b'-',
            _ => bytes[at + offset].is_ascii_hexdigit(),
        })
    };
    let mut found = Vec::new();
    let mut at = 0;
    while at + 36 <= bytes.len() {
        if bytes[at + 8] == b'-' && is_uuid(at) {
            found.push((at, &text[at..at + 36]));
            at += 36;
        } else {
            at += 1;
        }
    }
    found
}

/// The text with its UUIDs replaced.
fn masked(text: &str) -> String {
    let (mut plain, mut end) = (String::with_capacity(text.len()), 0);
    for (at, _) in uuids(text) {
        plain += &text[end..at];
        plain += "ID";
        end = at + 36;
    }
    plain + &text[end..]
}

/// Describes a text by its size, and by the first difference from its source.
pub(crate) fn described(text: &str, source: &str) -> String {
    // A copy has different ids, so they are not compared.
    let (masked, source) = (masked(text), masked(source));
    let (mut ours, mut theirs) = (masked.lines(), source.lines());
    let mut line = 1;
    let difference = loop {
        match (ours.next(), theirs.next()) {
            (None, None) => break "all lines are as in the source".to_owned(),
            (None, Some(_)) => break format!("ends before line {line} of the source"),
            (Some(_), None) => break format!("line {line} is not in the source"),
            (Some(one), Some(other)) if one != other => {
                let same = one
                    .bytes()
                    .zip(other.bytes())
                    .take_while(|(one, other)| one == other);
                break format!("line {line} differs from byte {}", same.count());
            }
            _ => line += 1,
        }
    };
    format!(
        "{} bytes {} lines {}: {difference}",
        text.len(),
        text.lines().count(),
        hash(text.as_bytes())
    )
}

/// Panics unless the golden files with this prefix are exactly these, by name and content.
pub(crate) fn compare(prefix: &str, dumps: &BTreeMap<String, String>) {
    let folder = folder();
    if std::env::var_os(WRITE).is_some() {
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in dumps {
            fs::write(folder.join(name), text).unwrap();
        }
    }
    let mut wrong = String::new();
    for (name, text) in dumps {
        let known = fs::read_to_string(folder.join(name)).unwrap_or_default();
        if known != *text {
            let diff = similar::TextDiff::from_lines(&known, text);
            let diff = diff
                .unified_diff()
                .context_radius(1)
                .header("frozen", "now")
                .to_string();
            let shown: Vec<&str> = diff.lines().take(30).collect();
            let _ = writeln!(wrong, "{name}\n{}", shown.join("\n"));
        }
    }
    let mut bytes = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        bytes += entry.metadata().unwrap().len();
        if name.starts_with(prefix) && !dumps.contains_key(&name) {
            let _ = writeln!(wrong, "{name}: no transcript has this name; delete the file");
        }
    }
    assert!(wrong.is_empty(), "{WRITE}=1 rewrites the files:\n{wrong}");
    assert!(bytes < LIMIT_BYTES, "the golden files have {bytes} bytes");
}
