//! What the daemon says of each transcript of the corpus and writes from it, compared with `tests/fixtures/golden`.
//!
//! These files freeze behaviour while the code behind it is rewritten. They contain facts only, and the daemon is a
//! real process, so that no change of types changes them. `WRITE_GOLDEN=1` writes them again; read what changed.

mod corpus;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::carrying::files_below;
use crate::home::Home;
use crate::support::App;
use corpus::{Format, Sample, samples};

/// Set in the environment, this writes the files again.
const WRITE: &str = "WRITE_GOLDEN";

/// All files together, in bytes.
const LIMIT_BYTES: u64 = 600_000;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/golden")
}

fn hash(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest[..8].iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A short text itself, of a longer one its length and hash.
fn brief(text: &str) -> String {
    if text.len() <= 40 {
        return format!("{text:?}");
    }
    format!("{} bytes {}", text.len(), hash(text.as_bytes()))
}

fn word<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or("-")
}

/// The places of all UUIDs in a text.
fn uuids(text: &str) -> Vec<(usize, &str)> {
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

/// The text with a number in place of each UUID that the source lacks: it was made in this run.
fn without_new_ids(text: &str, source: &str) -> String {
    let known: BTreeSet<&str> = uuids(source).into_iter().map(|(_, id)| id).collect();
    let mut numbers = BTreeMap::new();
    let (mut plain, mut end) = (String::with_capacity(text.len()), 0);
    for (at, id) in uuids(text).into_iter().filter(|(_, id)| !known.contains(id)) {
        let next = numbers.len() + 1;
        let number = numbers.entry(id).or_insert(next);
        plain += &text[end..at];
        let _ = write!(plain, "00000000-0000-0000-0000-{number:012}");
        end = at + 36;
    }
    plain + &text[end..]
}

/// The text without its UUIDs.
fn masked(text: &str) -> String {
    let (mut plain, mut end) = (String::with_capacity(text.len()), 0);
    for (at, _) in uuids(text) {
        plain += &text[end..at];
        plain += "ID";
        end = at + 36;
    }
    plain + &text[end..]
}

/// What a written file is, and how it begins to differ from its source.
fn written(home: &Home, sample: &Sample, id: &str) -> String {
    let files = files_below(&home.path().join("agents")).into_iter();
    let mut found = files.filter(|path| path.file_name().unwrap().to_string_lossy().contains(id));
    let path = found.find(|path| path.is_file()).unwrap();
    let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
    let source = String::from_utf8_lossy(&sample.content);
    let text = without_new_ids(&text, &source).replace(home.path().to_str().unwrap(), "HOME");
    // A copy has ids of its own.
    let (masked, source) = (masked(&text), masked(&source));
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

fn findings(list: &Value, into: &mut String, indent: &str) {
    for finding in list.as_array().into_iter().flatten() {
        let _ = writeln!(
            into,
            "{indent}line {} {} {}",
            finding["line"],
            word(finding, "kind"),
            word(finding, "detail")
        );
    }
}

fn part(part: &Value) -> String {
    let mut said = word(part, "type").to_owned();
    for name in ["toolCallId", "name", "mimeType"] {
        if let Some(text) = part[name].as_str() {
            let _ = write!(said, " {text}");
        }
    }
    for name in ["isError", "cutBytes"] {
        if !part[name].is_null() {
            let _ = write!(said, " {name}={}", part[name]);
        }
    }
    for name in ["text", "input", "data", "raw"] {
        match &part[name] {
            Value::Null => {}
            Value::String(text) => said += &format!(" {}", brief(text)),
            other => said += &format!(" {}", brief(&other.to_string())),
        }
    }
    said
}

fn gaps(page: &Value, into: &mut String) {
    for gap in page["gaps"].as_array().into_iter().flatten() {
        let detail = word(gap, "detail");
        let _ = writeln!(
            into,
            "  gap {} {} {detail}",
            word(gap, "upstreamId"),
            word(gap, "kind")
        );
    }
}

async fn dump(app: &App, home: &Home, sample: &Sample, listed: &Value) -> String {
    let mut text = format!("{} bytes {}\n", sample.content.len(), hash(&sample.content));
    let entry = listed["transcripts"].as_array().unwrap().iter();
    let entry = entry.filter(|entry| entry["upstreamId"] == sample.id.as_str());
    for entry in entry {
        let _ = writeln!(
            text,
            "listed {:?} cwd {:?} at {} from {}",
            word(entry, "title"),
            word(entry, "cwd"),
            word(entry, "updatedAt"),
            word(entry, "forkedFrom")
        );
    }
    let agent = sample.format.name();
    let named = json!({"upstreamId": sample.id, "agent": agent});
    text += "check\n";
    match app.call("transcript/check", named.clone()).await {
        Ok(checked) => findings(&checked["findings"], &mut text, "  "),
        Err(error) => text += &format!("  refused: {}\n", json!(error.kind)),
    }
    let mut repairing = named.clone();
    repairing["repair"] = json!(true);
    match app.call("transcript/check", repairing).await {
        Ok(answer) => {
            if let Some(id) = answer["repaired"].as_str() {
                let _ = writeln!(
                    text,
                    "repaired {} {}",
                    answer["repairs"],
                    word(&answer, "fidelity")
                );
                let _ = writeln!(text, "  {}", written(home, sample, id));
                findings(&answer["left"], &mut text, "  left ");
            }
        }
        Err(error) => text += &format!("repair refused: {}\n", json!(error.kind)),
    }
    let mut adopting = named;
    adopting["cwd"] = json!(home.project());
    let conversation = match app.call("conversation/adopt", adopting).await {
        Ok(answer) => answer["conversation"]["id"].clone(),
        Err(error) => return text + &format!("adopt refused: {}\n", json!(error.kind)),
    };
    let params = json!({"conversationId": conversation, "limit": 1000});
    text += "history\n";
    match app.call("conversation/history", params).await {
        Ok(page) => {
            gaps(&page, &mut text);
            for message in page["messages"].as_array().unwrap() {
                let _ = writeln!(
                    text,
                    "  {} {} {} {} turn {}",
                    word(message, "id"),
                    word(message, "role"),
                    word(message, "kind"),
                    word(message, "at"),
                    word(message, "checkpointId").rsplit('.').next().unwrap()
                );
                for one in message["content"].as_array().unwrap() {
                    let _ = writeln!(text, "    {}", part(one));
                }
            }
        }
        Err(error) => text += &format!("  refused: {}\n", json!(error.kind)),
    }
    text += "checkpoints\n";
    let params = json!({"conversationId": conversation, "limit": 500});
    let page = match app.call("conversation/checkpoints", params).await {
        Ok(page) => page,
        Err(error) => return text + &format!("  refused: {}\n", json!(error.kind)),
    };
    gaps(&page, &mut text);
    let places = page["checkpoints"].as_array().unwrap();
    for place in places {
        let _ = writeln!(
            text,
            "  {} {} {} bytes {} prompt {} reply {} tools {} origin {}",
            place["step"],
            word(place, "id"),
            word(place, "at"),
            place["bytes"],
            brief(word(place, "prompt")),
            brief(word(place, "reply")),
            place["tools"],
            word(place, "origin")
        );
    }
    if sample.format == Format::Codex {
        return text;
    }
    let mut steps: Vec<usize> = vec![places.len().saturating_sub(1), places.len() / 2, 0];
    steps.dedup();
    for place in steps.into_iter().filter_map(|step| places.get(step)) {
        let params = json!({"conversationId": conversation, "at": place["id"]});
        let _ = write!(text, "cut at step {}: ", place["step"]);
        text += &match app.call("conversation/fork", params).await {
            Ok(answer) => {
                let made = written(home, sample, word(&answer["conversation"], "head"));
                format!("{} {made}\n", word(&answer, "fidelity"))
            }
            Err(error) => format!("refused: {}\n", json!(error.kind)),
        };
    }
    text
}

/// Fails unless the files of this format are these, each under its name.
fn compare(format: Format, dumps: &BTreeMap<String, String>) {
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
    let (mut bytes, prefix) = (0, format!("{}-", format.name()));
    for entry in fs::read_dir(&folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        bytes += entry.metadata().unwrap().len();
        if name.starts_with(&prefix) && !dumps.contains_key(&name) {
            let _ = writeln!(wrong, "{name}: no transcript has this name; delete the file");
        }
    }
    assert!(wrong.is_empty(), "{WRITE}=1 writes the files again:\n{wrong}");
    assert!(bytes < LIMIT_BYTES, "the golden files have {bytes} bytes");
}

async fn frozen(format: Format) {
    let home = Home::new();
    let root = |name: &str| home.path().join("agents").join(name).display().to_string();
    home.configure(&format!(
        "default_agent = \"loopback\"\n[keep]\nenabled = false\n\
         [agents.claude]\ncommand = \"/nonexistent/claude\"\ntranscripts = \"{}\"\n\
         [agents.codex]\ncommand = \"/nonexistent/codex\"\ntranscripts = \"{}\"\n",
        root("claude"),
        root("codex")
    ));
    let samples = samples(format);
    for sample in &samples {
        sample.put(&home.path().join("agents"));
    }
    let (_daemon, app) = home.opened().await;
    let listed = app
        .call("transcript/list", json!({"agent": format.name(), "limit": 500}))
        .await
        .unwrap();
    let mut dumps = BTreeMap::new();
    for sample in &samples {
        let text = dump(&app, &home, sample, &listed).await;
        let text = text.replace(home.path().to_str().unwrap(), "HOME");
        dumps.insert(format!("{}-{}.txt", format.name(), sample.name), text);
    }
    compare(format, &dumps);
}

#[tokio::test]
async fn claudes_transcripts_are_read_and_written_as_frozen() {
    frozen(Format::Claude).await;
}

#[tokio::test]
async fn codex_rollouts_are_read_and_written_as_frozen() {
    frozen(Format::Codex).await;
}
