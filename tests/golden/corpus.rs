//! The transcripts for the golden files: those in `tests/fixtures/transcripts`, damaged variants of them, and
//! shapes that none of the recorded versions has written.

use std::fs;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Claude,
    Codex,
    Qwen,
}

impl Format {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Qwen => "qwen",
        }
    }
}

/// A transcript.
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) format: Format,
    pub(crate) id: String,
    pub(crate) content: Vec<u8>,
    is_packed: bool,
}

impl Sample {
    /// Writes the transcript to the place where its agent would have written it.
    pub(crate) fn put(&self, agents: &Path) {
        let place = match self.format {
            Format::Claude => format!("claude/projects/-home-u-project/{}.jsonl", self.id),
            Format::Codex => format!(
                "codex/sessions/2026/11/21/rollout-2026-11-21T06-16-34-{}.jsonl{}",
                self.id,
                if self.is_packed { ".zst" } else { "" }
            ),
            Format::Qwen => format!("qwen/projects/-home-u-project/chats/{}.jsonl", self.id),
        };
        let path = agents.join(place);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match self.is_packed {
            true => fs::write(&path, zstd::encode_all(&self.content[..], 3).unwrap()).unwrap(),
            false => fs::write(&path, &self.content).unwrap(),
        }
        // Later than every record, so that the listed time must come from the last record.
        let time = UNIX_EPOCH + Duration::from_secs(1_900_000_000);
        fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(time)
            .unwrap();
    }
}

/// All samples of a format; a transcript comes before those that continue it.
pub(crate) fn samples(format: Format) -> Vec<Sample> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/transcripts")
        .join(format.name());
    let mut paths: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort_by_key(|path| path.with_extension(""));
    let mut samples: Vec<Sample> = paths
        .iter()
        .map(|path| {
            let content = fs::read(path).unwrap();
            sample(
                format,
                path.file_stem().unwrap().to_str().unwrap(),
                id_of(&content, format),
                content,
            )
        })
        .collect();
    let base = match format {
        Format::Claude => "2.1.316",
        Format::Codex => "0.166.0",
        Format::Qwen => "0.24.4",
    };
    let base = samples.iter().find(|sample| sample.name == base).unwrap();
    let (old, text) = (base.id.clone(), String::from_utf8(base.content.clone()).unwrap());
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let middle = lines.len() / 2;
    let without =
        |range: std::ops::Range<usize>| [&lines[..range.start], &lines[range.end..]].concat().concat();
    let half = lines[middle].len() / 2;
    let swapped = {
        let mut lines = lines.clone();
        lines.swap(middle, middle + 3);
        lines.concat()
    };
    let unknown = "{\"type\":\"of-tomorrow\",\"uuid\":\"x\",\"payload\":[1,{\"deep\":null}]}\n";
    let long = format!(
        "{{\"type\":\"of-tomorrow\",\"text\":\"{}\"}}\n",
        "x".repeat(3_000_000)
    );
    let variants: [(&str, Vec<u8>); 11] = [
        ("without-last-line", without(lines.len() - 1..lines.len()).into()),
        ("without-middle-lines", without(middle..middle + 3).into()),
        (
            "torn",
            [&lines[..middle].concat(), &lines[middle][..half]]
                .concat()
                .into(),
        ),
        (
            "garbage-line",
            text.replacen(lines[middle], &lines[middle][half..], 1).into(),
        ),
        (
            "line-twice",
            text.replacen(lines[middle], &lines[middle].repeat(2), 1).into(),
        ),
        ("lines-swapped", swapped.into()),
        ("blank-lines", text.replace('\n', "\n\n \n").into()),
        ("crlf", text.replace('\n', "\r\n").into()),
        ("nul-bytes", [text.as_bytes(), &[0; 300], b"\n"].concat()),
        (
            "unknown-record",
            text.replacen(lines[middle], &format!("{}{unknown}", lines[middle]), 1)
                .into(),
        ),
        (
            "long-line",
            text.replacen(lines[middle], &format!("{}{long}", lines[middle]), 1)
                .into(),
        ),
    ];
    for (number, (name, content)) in variants.into_iter().enumerate() {
        let id = format!("{}{number:012}", &old[..24]);
        let content = replaced(content, old.as_bytes(), id.as_bytes());
        samples.push(sample(format, name, id, content));
    }
    match format {
        Format::Claude => samples.extend(shapes()),
        Format::Qwen => {}
        Format::Codex => {
            let id = format!("{}{:012}", &old[..24], 99);
            let content = replaced(text.into_bytes(), old.as_bytes(), id.as_bytes());
            let mut packed = sample(format, "compressed", id, content);
            packed.is_packed = true;
            samples.push(packed);
        }
    }
    samples
}

fn sample(format: Format, name: &str, id: String, content: Vec<u8>) -> Sample {
    Sample {
        name: name.to_owned(),
        format,
        id,
        content,
        is_packed: false,
    }
}

/// Replaces an id in the content by another of the same length.
fn replaced(mut content: Vec<u8>, old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut at = 0;
    while at + old.len() <= content.len() {
        if content[at..].starts_with(old) {
            content[at..at + old.len()].copy_from_slice(new);
            at += old.len();
        } else {
            at += 1;
        }
    }
    content
}

/// The session's id: the first value of this member.
fn id_of(content: &[u8], format: Format) -> String {
    let name = match format {
        Format::Claude | Format::Qwen => "\"sessionId\":\"",
        Format::Codex => "\"id\":\"",
    };
    let text = std::str::from_utf8(content).unwrap();
    let at = text.find(name).unwrap() + name.len();
    text[at..].split('"').next().unwrap().to_owned()
}

/// A record: its uuid, its parent's uuid, its kind, its message, and further members.
type Line = (&'static str, &'static str, &'static str, Value, Value);

fn shapes() -> Vec<Sample> {
    let call = |id: &str| json!({"id": "m1", "content": [{"type": "tool_use", "id": id, "name": "Read", "input": {"path": "a"}}]});
    let result =
        |id: &str| json!({"content": [{"type": "tool_result", "tool_use_id": id, "content": "read"}]});
    let says = |text: &str| json!({"id": text, "content": [{"type": "text", "text": text}], "stop_reason": "end_turn"});
    let ask = |text: &str| json!({"role": "user", "content": text});
    let no = json!({});
    let turn = |more: Vec<Line>| {
        [
            vec![
                ("u1", "", "user", ask("one"), no.clone()),
                ("a1", "u1", "assistant", says("said one"), no.clone()),
            ],
            more,
        ]
        .concat()
    };
    let table: Vec<(&str, Vec<Line>)> = vec![
        (
            "two-branches",
            turn(vec![
                ("u2", "a1", "user", ask("left"), no.clone()),
                ("a2", "u2", "assistant", says("said left"), no.clone()),
                ("u3", "a1", "user", ask("right"), no.clone()),
                ("a3", "u3", "assistant", says("said right"), no.clone()),
            ]),
        ),
        (
            "calls-without-results",
            turn(vec![
                ("u2", "a1", "user", ask("read"), no.clone()),
                ("a2", "u2", "assistant", call("t1"), no.clone()),
                ("a3", "a2", "assistant", call("t2"), no.clone()),
                ("r2", "a3", "user", result("t2"), no.clone()),
                ("u3", "r2", "user", ask("and now"), no.clone()),
                ("a4", "u3", "assistant", call("t3"), no.clone()),
            ]),
        ),
        (
            "sidechain",
            turn(vec![
                (
                    "s1",
                    "",
                    "user",
                    ask("for the subagent"),
                    json!({"isSidechain": true}),
                ),
                (
                    "s2",
                    "s1",
                    "assistant",
                    says("from the subagent"),
                    json!({"isSidechain": true}),
                ),
                ("u2", "a1", "user", ask("two"), no.clone()),
                ("a2", "u2", "assistant", says("said two"), no.clone()),
            ]),
        ),
        (
            "compaction",
            turn(vec![
                (
                    "c1",
                    "",
                    "system",
                    no.clone(),
                    json!({"subtype": "compact_boundary", "logicalParentUuid": "a1", "content": "Conversation compacted"}),
                ),
                (
                    "c2",
                    "c1",
                    "user",
                    ask("a summary of it"),
                    json!({"isCompactSummary": true}),
                ),
                ("u2", "c2", "user", ask("two"), no.clone()),
                ("a2", "u2", "assistant", says("said two"), no.clone()),
            ]),
        ),
        (
            "api-error",
            turn(vec![
                ("u2", "a1", "user", ask("two"), no.clone()),
                (
                    "a2",
                    "u2",
                    "assistant",
                    says("API Error: 500"),
                    json!({"isApiErrorMessage": true, "error": "server_error"}),
                ),
            ]),
        ),
        (
            "missing-parent",
            turn(vec![
                ("u2", "nowhere", "user", ask("two"), no.clone()),
                ("a2", "u2", "assistant", says("said two"), no.clone()),
            ]),
        ),
    ];
    let made = table.into_iter().enumerate().map(|(number, (name, lines))| {
        let id = format!("5a5a5a5a-0000-4000-8000-{number:012}");
        let mut content = String::new();
        for (second, (uuid, parent, kind, message, more)) in lines.into_iter().enumerate() {
            let parent = if parent.is_empty() { Value::Null } else { json!(parent) };
            let mut record = json!({
                "parentUuid": parent, "isSidechain": false, "type": kind, "uuid": uuid, "sessionId": id, "message": message,
                "cwd": "/home/u/project", "timestamp": format!("2026-11-21T06:35:{second:02}.000Z"),
            });
            record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            content += &format!("{record}\n");
        }
        sample(Format::Claude, name, id, content.into_bytes())
    });
    made.collect()
}
