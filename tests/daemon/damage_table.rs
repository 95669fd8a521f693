//! Each kind of damage to a transcript, for both formats: what each method that reads transcripts answers.
//!
//! The columns of a row: whether the list shows the held session; what a check finds; the number of checkpoints and
//! gaps; the number of texts and gaps; the number of messages of a checkpoint that was listed before the damage; the
//! result of adopting a session that was damaged before; the number of messages and gaps in an export; whether the list
//! shows that other session. A file does not show that whole turns are missing from its end: the gap `behind` comes
//! from what the conversation knows. Only a check reports that a file belongs to a session with another id; other
//! methods read its content.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::home::Home;
use crate::support::App;

const ROLLOUT: &str = include_str!("../fixtures/transcripts/codex/0.166.0-limit-early-fork.jsonl");
const ROLLOUT_ID: &str = "01a1fcbf-e8e6-7b20-bdec-a0ea0263efff";

/// A session that a conversation holds, and one that no conversation ever held.
const HELD: &str = "11111111-2222-4333-8444-555555555555";
const NOBODYS: &str = "22222222-2222-4333-8444-555555555555";

#[derive(Clone, Copy, PartialEq)]
enum Format {
    Claude,
    Codex,
}

impl Format {
    fn agent(self) -> &'static str {
        match self {
            Self::Claude => "loopback",
            Self::Codex => "codex",
        }
    }

    fn folder(self, home: &Home) -> PathBuf {
        match self {
            Self::Claude => home.data().join("loopback/projects/-home-u-project"),
            Self::Codex => home.path().join("codex/sessions/2026/11/21"),
        }
    }

    fn path(self, home: &Home, id: &str) -> PathBuf {
        self.folder(home).join(match self {
            Self::Claude => format!("{id}.jsonl"),
            Self::Codex => format!("rollout-2026-11-21T06-16-34-{id}.jsonl"),
        })
    }

    /// Returns the text of two turns, one string per turn.
    fn turns(self, home: &Home, id: &str) -> [String; 2] {
        match self {
            Self::Claude => [0, 1].map(|turn| {
                let parent = if turn == 0 { "null" } else { "\"a0\"" };
                format!(
                    "{{\"type\":\"user\",\"uuid\":\"u{turn}\",\"parentUuid\":{parent},\"sessionId\":\"{id}\",\"cwd\":\"{}\",\
                     \"origin\":{{\"kind\":\"human\"}},\"message\":{{\"content\":\"ask {turn}\"}}}}\n\
                     {{\"type\":\"assistant\",\"uuid\":\"a{turn}\",\"parentUuid\":\"u{turn}\",\"sessionId\":\"{id}\",\
                     \"message\":{{\"id\":\"m{turn}\",\"content\":[{{\"type\":\"text\",\"text\":\"say {turn}\"}}]}}}}\n",
                    home.project()
                )
            }),
            Self::Codex => {
                // Removes the references to the source, so that the rollout is complete without it.
                let own = ROLLOUT.replace(ROLLOUT_ID, id).replace("history_base", "was_base").replace("forked_from_id", "was_from");
                let second: String = own.lines().skip(1).map(|line| {
                    let line = line.replace("ordinal\":", "ordinal\":1");
                    line.replace("turn_id\":\"01a1", "turn_id\":\"02a1") + "\n"
                }).collect();
                [own, second]
            }
        }
    }

    fn whole(self, home: &Home, id: &str) -> String {
        self.turns(home, id).concat()
    }

    /// Returns the file of another session that has none of this session's texts and ids.
    fn anothers(self, home: &Home) -> String {
        let whole = self.whole(home, "33333333-2222-4333-8444-555555555555");
        let other = match self {
            Self::Claude => [
                ("\"u0\"", "\"v0\""),
                ("\"u1\"", "\"v1\""),
                ("\"a0\"", "\"b0\""),
                ("\"a1\"", "\"b1\""),
                ("\"m0\"", "\"n0\""),
                ("\"m1\"", "\"n1\""),
                ("ask ", "demand "),
                ("say ", "reply "),
            ]
            .as_slice(),
            Self::Codex => &[("a1fcbf-", "b1fcbf-"), ("early", "foreign")],
        };
        other
            .iter()
            .fold(whole, |text, (from, to)| text.replace(from, to))
    }
}

async fn call(app: &App, method: &str, params: Value) -> Result<Value, String> {
    let answer = app.call(method, params).await;
    answer.map_err(|error| format!("{:?}", error.kind))
}

fn count(answer: &Value, name: &str) -> usize {
    answer[name].as_array().unwrap().len()
}

fn gaps(answer: &Value) -> String {
    let gaps = answer["gaps"].as_array().map(Vec::as_slice).unwrap_or_default();
    let kinds = gaps
        .iter()
        .map(|gap| format!(" {}", gap["kind"].as_str().unwrap()));
    kinds.collect()
}

/// Returns the answers of all methods in short form.
async fn told(app: &App, home: &Home, format: Format, conversation: &Value, place: &Value) -> [String; 8] {
    let agent = format.agent();
    let listed = call(app, "transcript/list", json!({"agent": agent}))
        .await
        .unwrap();
    let ids = || listed["transcripts"].as_array().unwrap().iter();
    let is_listed = |id: &str| ids().any(|one| one["upstreamId"] == id).to_string();
    let check = call(
        app,
        "transcript/check",
        json!({"upstreamId": HELD, "agent": agent}),
    )
    .await;
    let check = check.map(|answer| {
        let kind = |finding: &Value| format!("{}:{}", finding["line"], finding["kind"].as_str().unwrap());
        let found: Vec<String> = answer["findings"].as_array().unwrap().iter().map(kind).collect();
        found.join(" ")
    });
    let held = json!({"conversationId": conversation});
    let checkpoints = call(app, "conversation/checkpoints", held.clone()).await;
    let history = call(app, "conversation/history", held.clone()).await;
    let texts = |page: Value| {
        let messages = page["messages"].as_array().unwrap().iter();
        let plain = messages.filter(|message| message.get("kind").is_none());
        let parts = plain.flat_map(|message| message["content"].as_array().unwrap());
        let texts = parts.filter(|part| part["type"] == "text").count();
        format!("{texts}{}", gaps(&page))
    };
    let got = call(app, "checkpoint/get", json!({"checkpointId": place})).await;
    let get = call(app, "conversation/get", held.clone()).await;
    assert_eq!(
        get.unwrap()["conversation"]["head"],
        HELD,
        "the damage must not change the chain"
    );
    let adopted = json!({"upstreamId": NOBODYS, "agent": agent, "cwd": home.project()});
    let adopted = call(app, "conversation/adopt", adopted).await;
    let exported = call(app, "conversation/export", held).await;
    let words = |answer: Result<String, String>| answer.unwrap_or_else(|kind| kind);
    [
        is_listed(HELD),
        words(check),
        words(checkpoints.map(|page| format!("{}{}", count(&page, "checkpoints"), gaps(&page)))),
        words(history.map(texts)),
        words(got.map(|answer| count(&answer, "messages").to_string())),
        words(adopted.map(|_| "yes".to_owned())),
        words(exported.map(|answer| format!("{}{}", count(&answer, "messages"), gaps(&answer)))),
        is_listed(NOBODYS),
    ]
}

/// Writes a line of 300 MB between the turns; it is a hole that takes no space on disk.
fn write_long(path: &Path, turns: &[String; 2]) {
    let mut file = fs::File::create(path).unwrap();
    file.write_all(turns[0].as_bytes()).unwrap();
    file.write_all(b"{\"type\":\"x\",\"data\":\"").unwrap();
    file.seek(SeekFrom::Current(300 << 20)).unwrap();
    file.write_all(format!("\"}}\n{}", turns[1]).as_bytes()).unwrap();
}

type Damage = fn(Format, &Home, &str);

const DAMAGES: [(&str, Damage); 9] = [
    ("none", |_, _, _| {}),
    ("empty", |format, home, id| {
        fs::write(format.path(home, id), "").unwrap();
    }),
    ("shrunk", |format, home, id| {
        fs::write(format.path(home, id), &format.turns(home, id)[0]).unwrap();
    }),
    ("gone", |format, home, id| {
        fs::remove_file(format.path(home, id)).unwrap();
    }),
    ("another's", |format, home, id| {
        let path = format.path(home, id);
        fs::remove_file(&path).unwrap();
        fs::write(&path, format.anothers(home)).unwrap();
    }),
    ("a ring", |format, home, id| {
        let path = format.path(home, id);
        fs::remove_file(&path).unwrap();
        symlink(path.file_name().unwrap(), &path).unwrap();
    }),
    ("newer", |format, home, id| {
        let line = r#"{"type":"hologram","uuid":"h1","parentUuid":"a1","version":"99.0.0","payload":{}}"#;
        fs::write(
            format.path(home, id),
            format!("{}{line}\n", format.whole(home, id)),
        )
        .unwrap();
    }),
    ("a long line", |format, home, id| {
        write_long(&format.path(home, id), &format.turns(home, id));
    }),
    ("no folder", |format, home, _| {
        let folder = format.folder(home);
        // Both sessions are in this folder, so it is replaced only once.
        if folder.is_dir() {
            fs::remove_dir_all(&folder).unwrap();
            fs::write(&folder, "in its place").unwrap();
        }
    }),
];

async fn row(format: Format, damage: Damage) -> [String; 8] {
    let home = Home::bare();
    // Without backups: missing data must not be read from a copy.
    home.configure(&format!(
        "default_agent = \"loopback\"\n[keep]\nenabled = false\n\
         [agents.codex]\ncommand = \"/nonexistent/codex\"\ntranscripts = \"{}\"\n",
        home.path().join("codex").display()
    ));
    fs::create_dir_all(format.folder(&home)).unwrap();
    for id in [HELD, NOBODYS] {
        fs::write(format.path(&home, id), format.whole(&home, id)).unwrap();
    }
    let (_daemon, app) = home.opened().await;
    let params = json!({"upstreamId": HELD, "agent": format.agent(), "cwd": home.project()});
    let adopted = app.call("conversation/adopt", params).await.unwrap();
    let conversation = &adopted["conversation"]["id"];
    let page = app.ask("conversation/checkpoints", conversation).await;
    let place = &page["checkpoints"][0]["id"];
    for id in [HELD, NOBODYS] {
        damage(format, &home, id);
    }
    let told = told(&app, &home, format, conversation, place).await;
    app.call("daemon/status", json!({})).await.unwrap();
    told
}

async fn table(format: Format) -> String {
    let mut table = String::new();
    for (name, damage) in DAMAGES {
        table += &format!("{name} | {}\n", row(format, damage).await.join(" | "));
    }
    table
}

// Against D6.
#[tokio::test]
async fn what_each_method_says_of_each_damage_to_a_transcript_of_claude() {
    let expected = "\
none | true |  | 2 | 4 | 2 | yes | 4 | true
empty | true | 0:nothingToResume | 0 behind | 0 behind | CheckpointNotFound | TranscriptDamaged | 0 behind | true
shrunk | true |  | 1 behind | 2 behind | CheckpointNotFound | yes | 2 behind | true
gone | false | NotFound | 0 missing | 0 missing | CheckpointNotFound | NotFound | 0 missing | false
another's | true | 1:foreignSessionId | 2 | 4 | CheckpointNotFound | yes | 4 | true
a ring | false | NotFound | 0 missing | 0 missing | CheckpointNotFound | NotFound | 0 missing | false
newer | true |  | 2 unknownRecord | 4 unknownRecord | 2 | yes | 4 unknownRecord | true
a long line | true | 3:oversizedLine | 2 broken | 4 broken | 2 | yes | 4 broken | true
no folder | false | NotFound | 0 missing | 0 missing | CheckpointNotFound | NotFound | 0 missing | false
";
    assert_eq!(table(Format::Claude).await, expected);
}

// Against D6.
#[tokio::test]
async fn what_each_method_says_of_each_damage_to_a_rollout() {
    let expected = "\
none | true |  | 2 | 4 | 2 | yes | 4 | true
empty | true | 0:nothingToResume | 0 behind | 0 behind | CheckpointNotFound | TranscriptDamaged | 0 behind | true
shrunk | true |  | 1 behind | 2 behind | CheckpointNotFound | yes | 2 behind | true
gone | false | NotFound | 0 missing | 0 missing | CheckpointNotFound | NotFound | 0 missing | false
another's | true | 1:foreignSessionId | 2 | 4 | CheckpointNotFound | yes | 4 | true
a ring | false | NotFound | 0 missing | 0 missing | CheckpointNotFound | NotFound | 0 missing | false
newer | true |  | 2 | 4 | 2 | yes | 4 | true
a long line | true | 13:oversizedLine | 2 broken | 4 broken | 2 | yes | 4 broken | true
no folder | false | NotFound | 0 missing | 0 missing | CheckpointNotFound | NotFound | 0 missing | false
";
    assert_eq!(table(Format::Codex).await, expected);
}
