//! Compares what the daemon reads from each transcript of the corpus, and writes from it, with
//! `tests/fixtures/golden`.
//!
//! The golden files freeze behaviour while the code is rewritten. They contain only facts, and the daemon
//! runs as a real process, so a change of types does not affect them. `WRITE_GOLDEN=1` rewrites them; read
//! the changes.

pub(crate) mod corpus;
pub(crate) mod dump;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use serde_json::{Value, json};

use crate::carrying::files_below;
use crate::home::Home;
use crate::support::App;
use corpus::{Format, Sample, samples};
use dump::{compare, described, hash, uuids};

/// A short text unchanged; for a longer one, its length and hash.
fn brief(text: &str) -> String {
    if text.len() <= 40 {
        return format!("{text:?}");
    }
    format!("{} bytes {}", text.len(), hash(text.as_bytes()))
}

fn word<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or("-")
}

/// Describes a file that the daemon wrote, and its first difference from its source.
fn written(home: &Home, sample: &Sample, id: &str) -> String {
    let files = files_below(&home.path().join("agents")).into_iter();
    let mut found = files.filter(|path| path.file_name().unwrap().to_string_lossy().contains(id));
    let path = found.find(|path| path.is_file()).unwrap();
    let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
    let source = String::from_utf8_lossy(&sample.content);
    let text = without_new_ids(&text, &source).replace(home.path().to_str().unwrap(), "HOME");
    described(&text, &source)
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
    if sample.format != Format::Claude {
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

async fn frozen(format: Format) {
    let home = Home::new();
    let root = |name: &str| home.path().join("agents").join(name).display().to_string();
    home.configure(&format!(
        "default_agent = \"loopback\"\n[keep]\nenabled = false\n\
         [agents.claude]\ncommand = \"/nonexistent/claude\"\ntranscripts = \"{}\"\n\
         [agents.codex]\ncommand = \"/nonexistent/codex\"\ntranscripts = \"{}\"\n\
         [agents.qwen]\nkind = \"generic\"\ncommand = \"/nonexistent/qwen\"\ntranscript_format = \"qwen\"\n\
         transcripts = \"{}\"\n",
        root("claude"),
        root("codex"),
        root("qwen")
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
    compare(&format!("{}-", format.name()), &dumps);
}

#[tokio::test]
async fn claudes_transcripts_are_read_and_written_as_frozen() {
    frozen(Format::Claude).await;
}

#[tokio::test]
async fn codex_rollouts_are_read_and_written_as_frozen() {
    frozen(Format::Codex).await;
}

#[tokio::test]
async fn qwens_transcripts_are_read_as_frozen() {
    frozen(Format::Qwen).await;
}

/// Replaces each UUID that is not in the source by a number, because it was created in this run.
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
