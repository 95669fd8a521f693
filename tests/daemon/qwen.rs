//! Transcripts of Qwen Code below the folder of a configured agent: listed, read, checked, adopted, watched and backed
//! up. Other operations on them are refused. The agent's program is scripted; the test writes the transcripts that it
//! would write.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use bridge_protocol::ConversationId;
use bridge_protocol::error::ErrorKind;
use bridge_protocol::event::Event;
use serde_json::{Value, json};

use crate::home::Home;
use crate::keeping::{keep, once_kept};
use crate::moved_trees::folder_of;
use crate::scripted;
use crate::support::{App, id_in, refused};

const SESSION: &str = "09f5b69e-2b4e-442e-890b-dfb5feff1f81";
const TRANSCRIPT: &str = include_str!("../fixtures/transcripts/qwen/0.24.4.jsonl");

/// For each turn, its lines in the transcript and those of the notes after it.
const TURNS: [std::ops::Range<usize>; 6] = [0..6, 6..19, 19..22, 22..25, 25..29, 29..35];

struct Place {
    home: Home,
    cwd: String,
}

impl Place {
    /// A home with an agent of this transcript format, and a session with these turns.
    fn with(turns: std::ops::Range<usize>) -> Self {
        let home = Home::new();
        let capabilities = r#"{"loadSession":true,"sessionCapabilities":{"list":{},"resume":{}}}"#;
        let settings = format!(
            "kind = \"generic\"\ntranscripts = \"{}\"\ntranscript_format = \"qwen\"",
            home.path().join("qwen").display()
        );
        let agent = scripted::configured_with("mine", Some(capabilities), &settings);
        home.configure(&format!("default_agent = \"loopback\"\n{agent}"));
        let cwd = fs::canonicalize(home.project())
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        let place = Self { home, cwd };
        let path = place.transcript();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, place.turns(turns)).unwrap();
        place
    }

    fn turns(&self, turns: std::ops::Range<usize>) -> String {
        let lines: Vec<&str> = TRANSCRIPT.lines().collect();
        let lines = TURNS[turns].iter().flat_map(|turn| &lines[turn.clone()]);
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        text.replace("/home/u/project", &self.cwd)
    }

    fn transcript(&self) -> PathBuf {
        let folder = self.home.path().join("qwen/projects").join(folder_of(&self.cwd));
        let chats = folder.join("chats");
        chats.join(format!("{SESSION}.jsonl"))
    }

    fn append(&self, text: &str) {
        let mut file = fs::OpenOptions::new()
            .append(true)
            .open(self.transcript())
            .unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }
}

async fn adopt(app: &App) -> (ConversationId, Value) {
    let adopted = app
        .call("conversation/adopt", json!({"upstreamId": SESSION}))
        .await
        .unwrap();
    let id = id_in(&adopted);
    (id, adopted)
}

fn kinds(findings: &Value) -> Vec<(u64, String)> {
    let findings = findings.as_array().unwrap().iter();
    findings
        .map(|finding| {
            (
                finding["line"].as_u64().unwrap(),
                finding["kind"].as_str().unwrap().to_owned(),
            )
        })
        .collect()
}

#[tokio::test]
async fn a_session_is_listed_checked_adopted_and_read() {
    let place = Place::with(0..6);
    let (_daemon, app) = place.home.opened().await;
    let listed = app
        .call("transcript/list", json!({"agent": "mine"}))
        .await
        .unwrap();
    let listed = listed["transcripts"].as_array().unwrap().clone();
    let told: Vec<_> = listed
        .iter()
        .map(|entry| [&entry["upstreamId"], &entry["title"], &entry["cwd"]])
        .collect();
    let title = "first [[text hi one]]";
    assert_eq!(told, [[&json!(SESSION), &json!(title), &json!(place.cwd)]]);
    let checked = app
        .call("transcript/check", json!({"upstreamId": SESSION}))
        .await
        .unwrap();
    assert_eq!(checked["findings"], json!([]));

    let (id, adopted) = adopt(&app).await;
    assert_eq!(adopted["conversation"]["cwd"], json!(place.cwd));
    assert_eq!(adopted["conversation"]["title"], json!(title));
    let steps: Vec<_> = app
        .checkpoints(id)
        .await
        .into_iter()
        .map(|checkpoint| checkpoint.prompt)
        .collect();
    assert_eq!(steps.len(), 6);
    assert!(steps.iter().any(|prompt| prompt == "/compress"), "{steps:?}");
    let messages = app.messages(id).await;
    assert_eq!(messages.len(), 14);
    let head = app.ask("transcript/check", id).await;
    assert_eq!(head["findings"], json!([]));
}

/// A retold history and the prompt after it are two blocks, which Qwen Code writes as one text.
#[tokio::test]
async fn a_retelling_is_told_apart_from_the_prompt_behind_it() {
    let place = Place::with(0..1);
    let retelling = "The earlier session of this conversation could not be opened again. What was said in it is retold here. \
                     This is the end of the retelling. What follows is new, and is what is to be answered.";
    let text = fs::read_to_string(place.transcript()).unwrap();
    let prompt = "first [[text hi one]]";
    fs::write(
        place.transcript(),
        text.replacen(prompt, &format!("{retelling} {prompt}"), 1),
    )
    .unwrap();
    let (_daemon, app) = place.home.opened().await;
    let (id, adopted) = adopt(&app).await;
    assert_eq!(adopted["conversation"]["title"], json!(prompt));
    assert_eq!(app.checkpoints(id).await[0].prompt, prompt);
    let history = app.ask("conversation/history", id).await;
    let told = history["messages"][0]["content"].as_array().unwrap().iter();
    let told: Vec<_> = told.map(|part| [&part["type"], &part["text"]]).collect();
    let expected = [["retelling", retelling], ["text", prompt]];
    assert_eq!(json!(told), json!(expected));
}

#[tokio::test]
async fn each_turn_that_is_written_is_saved_and_told_as_another_programs() {
    let place = Place::with(0..1);
    let (_daemon, app) = place.home.opened().await;
    let (id, _) = adopt(&app).await;
    app.ask("conversation/resume", id).await;
    let mut events = app.events(id).await;
    let second = place.turns(1..2);
    let (prompt, rest) = second.split_at(second.len() / 2);
    place.append(prompt);
    place.append(rest);
    let (mut saved, mut is_foreign) = (None, false);
    while saved.is_none() || !is_foreign {
        match events.next().await.event {
            Event::CheckpointSaved { checkpoint } => saved = Some((checkpoint.step, checkpoint.prompt)),
            event => is_foreign |= event.kind() == "foreignWriter",
        }
    }
    let (step, prompt) = saved.unwrap();
    assert_eq!((step, prompt.starts_with("second ")), (2, true));
}

#[tokio::test]
async fn a_damaged_session_is_told_what_a_resume_makes_of_it() {
    let place = Place::with(0..2);
    let (_daemon, app) = place.home.opened().await;
    let check = async || {
        app.call("transcript/check", json!({"upstreamId": SESSION}))
            .await
            .unwrap()
    };
    let whole = fs::read_to_string(place.transcript()).unwrap();
    place.append("{\"uuid\":\"torn");
    assert_eq!(kinds(&check().await["findings"]), [(20, "tornLine".to_owned())]);
    let lines: Vec<&str> = whole.lines().collect();
    let mut without: Vec<&str> = lines.clone();
    without.remove(5);
    without.insert(0, "garbage");
    fs::write(place.transcript(), without.join("\n") + "\n").unwrap();
    let expected = [(1, "garbageLine".to_owned()), (7, "brokenParent".to_owned())];
    assert_eq!(kinds(&check().await["findings"]), expected);
    let (id, adopted) = adopt(&app).await;
    assert!(
        adopted.get("findings").is_none(),
        "the agent continues this session: {adopted}"
    );
    let steps = app.checkpoints(id).await;
    assert_eq!(
        steps.len(),
        1,
        "records before the missing one are not sent to the agent"
    );
    let history = app.ask("conversation/history", id).await;
    assert!(!history["gaps"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn what_the_agent_refuses_is_told_when_it_is_adopted() {
    let place = Place::with(0..2);
    let text = fs::read_to_string(place.transcript()).unwrap();
    let other = "00000000-0000-4000-8000-000000000001";
    fs::write(
        place.transcript(),
        text.replacen(
            &format!("\"sessionId\":\"{SESSION}\""),
            &format!("\"sessionId\":\"{other}\""),
            1,
        ),
    )
    .unwrap();
    let (_daemon, app) = place.home.opened().await;
    let (_, adopted) = adopt(&app).await;
    assert_eq!(kinds(&adopted["findings"]), [(1, "foreignSessionId".to_owned())]);
}

#[tokio::test]
async fn d14_a_deleted_transcript_is_read_from_its_copy_and_restored() {
    let place = Place::with(0..3);
    let (_daemon, app) = place.home.opened().await;
    let (id, _) = adopt(&app).await;
    let before = app.messages(id).await;
    let whole = fs::read(place.transcript()).unwrap();
    keep(&app, json!({"conversationId": id})).await.unwrap();
    assert_eq!(once_kept(&app, |total| total.bytes > 0).await.sessions, 1);
    fs::remove_dir_all(place.home.path().join("qwen/projects")).unwrap();
    assert_eq!(app.messages(id).await, before);
    assert_eq!(
        app.ask("conversation/history", id).await["kept"],
        json!([SESSION])
    );
    assert_eq!(app.ask("transcript/check", id).await["kept"], json!([SESSION]));
    assert!(!place.transcript().exists(), "reads and checks restore nothing");
    let restored = app.ask("transcript/restore", id).await;
    assert_eq!(restored["restored"].as_array().unwrap().len(), 1);
    assert_eq!(fs::read(place.transcript()).unwrap(), whole);
    assert_eq!(app.messages(id).await, before);
}

/// Branches, moves, repairs and imports would have to write transcripts of this format.
#[tokio::test]
async fn what_is_not_done_with_them_is_refused() {
    let place = Place::with(0..2);
    let (_daemon, app) = place.home.opened().await;
    let (id, _) = adopt(&app).await;
    let places = app.checkpoints(id).await;
    let (first, second) = (&places[0].id, &places[1].id);
    let elsewhere = place.home.folder_named("elsewhere");
    let calls = [
        ("conversation/fork", json!({"conversationId": id})),
        ("conversation/fork", json!({"conversationId": id, "at": first})),
        (
            "conversation/move",
            json!({"conversationId": id, "cwd": elsewhere}),
        ),
    ];
    for (method, params) in calls {
        refused(app.call(method, params).await, ErrorKind::Unsupported);
    }
    place.append("garbage\n");
    let repaired = app
        .call("transcript/check", json!({"conversationId": id, "repair": true}))
        .await
        .unwrap();
    assert_eq!(repaired.get("repaired"), None);
    let path = place.home.path().join("made.bundle");
    let bundle = app
        .call(
            "conversation/export",
            json!({"conversationId": id, "format": "bundle", "path": path}),
        )
        .await;
    assert!(bundle.is_err() || !bundle.unwrap()["missing"].as_array().unwrap().is_empty());
    assert_eq!(app.checkpoints(id).await.len(), 2, "refused calls change nothing");
    // An edit retells the earlier history to a new session.
    let script = r#"{"jsonrpc":"2.0","method":"_nothing/new"}"#;
    let edit = json!({"conversationId": id, "at": second, "prompt": [{"type": "text", "text": script}]});
    let edited = app.call("conversation/edit", edit).await.unwrap();
    assert_eq!(
        (&edited["fidelity"], &edited["via"]),
        (&json!("text"), &json!("text"))
    );
}

#[tokio::test]
async fn ids_that_no_session_has_and_links_are_errors() {
    let place = Place::with(0..1);
    let chats = place.transcript().parent().unwrap().to_owned();
    let link = "00000000-0000-4000-8000-000000000002";
    std::os::unix::fs::symlink("/nowhere", chats.join(format!("{link}.jsonl"))).unwrap();
    fs::create_dir_all(chats.parent().unwrap().join("memory")).unwrap();
    let (_daemon, app) = place.home.opened().await;
    let long = "f".repeat(255);
    for id in ["memory", "..", &long, link] {
        for method in ["transcript/check", "conversation/adopt"] {
            let answer = app.call(method, json!({"upstreamId": id, "agent": "mine"})).await;
            refused(answer, ErrorKind::NotFound);
        }
    }
    let listed = app
        .call("transcript/list", json!({"agent": "mine"}))
        .await
        .unwrap();
    assert_eq!(listed["transcripts"].as_array().unwrap().len(), 1);
}

/// The agent's transcripts cannot be cut, so nothing can be forked at an undone turn.
#[tokio::test]
async fn an_undo_names_a_command_that_works_with_the_agent() {
    let place = Place::with(0..2);
    let (_daemon, app) = place.home.opened().await;
    let (id, _) = adopt(&app).await;
    let next = "00000000-0000-4000-8000-000000000003";
    fs::write(
        place.home.path().join(scripted::NEXT_SESSION),
        json!(next).to_string(),
    )
    .unwrap();
    // The transcript that the agent would write.
    fs::write(
        place.transcript().with_file_name(format!("{next}.jsonl")),
        place.turns(0..2).replace(SESSION, next),
    )
    .unwrap();
    let second = app.checkpoints(id).await[1].id.clone();
    let script = r#"{"jsonrpc":"2.0","method":"_nothing/new"}"#;
    let edit = json!({"conversationId": id, "at": second, "prompt": [{"type": "text", "text": script}]});
    app.call("conversation/edit", edit).await.unwrap();
    let undone = crate::cli::run(place.home.path(), &["undo", &id.to_string()]);
    let said = String::from_utf8(undone.stderr).unwrap();
    let (_, at) = said
        .trim_end()
        .split_once(&format!("sessionctl edit {} --at ", &id.to_string()[..8]))
        .expect(&said);
    let at = at.strip_suffix(" 'Hello'").expect(&said);
    assert!(at.contains(next), "{at}");
    let edited = crate::cli::run(place.home.path(), &["edit", &id.to_string(), "--at", at, script]);
    assert_eq!(edited.status.code(), Some(0), "{edited:?}");
}
