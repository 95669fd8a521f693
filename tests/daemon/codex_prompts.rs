//! Texts that Codex and editors add to what the user typed must not appear as prompts in lists, checkpoints and
//! histories.

use std::fs;

use serde_json::{Value, json};

use crate::codex::{self, rollout, write};
use crate::codex_rollouts::{adopt, history, said};
use crate::home::Home;
use crate::support::App;

const ID: &str = "01a1fc15-ffed-7ff1-b050-3a83130f7a03";
const AGENT_ID: &str = "01a1fc16-01ee-76c3-a43d-78487b788798";
const GOAL: &str = "<codex_internal_context source=\"goal\">\nContinue.\n</codex_internal_context>";

/// A rollout in the form of versions before 0.166.
struct Rollout {
    lines: Vec<Value>,
    /// Whether each text names its kind, as in the versions of 2026.
    has_kinds: bool,
}

impl Rollout {
    fn new(home: &Home, has_kinds: bool, meta: Value) -> Self {
        let mut payload = json!({"id": ID, "cwd": home.project(), "source": "cli"});
        let more = meta.as_object().unwrap().clone();
        payload.as_object_mut().unwrap().extend(more);
        let meta = json!({"type": "session_meta", "payload": payload});
        let lines = vec![meta];
        Self { lines, has_kinds }
    }

    fn add(&mut self, kind: &str, payload: Value) {
        let minute = self.lines.len();
        let at = format!("2020-11-03T12:{minute:02}:00.000Z");
        self.lines
            .push(json!({"timestamp": at, "type": kind, "payload": payload}));
    }

    /// Adds a turn that begins with these messages in the user's name. Each part of a message has a kind and a text.
    fn turn(&mut self, messages: &[&[(&str, &str)]], reply: &str) {
        let turn = format!("turn-{}", self.lines.len());
        self.add("event_msg", json!({"type": "task_started", "turn_id": turn}));
        for parts in messages {
            let text = |(_, text): &(&str, &str)| json!({"type": "input_text", "text": text});
            let content: Vec<Value> = parts.iter().map(text).collect();
            let mut message = json!({"type": "message", "role": "user", "content": content});
            if self.has_kinds {
                let kinds: Vec<&str> = parts.iter().map(|(kind, _)| *kind).collect();
                message["internal_chat_message_metadata_passthrough"] =
                    json!({"turn_id": turn, "content_item_kinds": kinds});
            }
            self.add("response_item", message);
        }
        let content = json!([{"type": "output_text", "text": reply}]);
        self.add(
            "response_item",
            json!({"type": "message", "role": "assistant", "content": content}),
        );
        self.add("event_msg", json!({"type": "task_complete", "turn_id": turn}));
    }

    fn prompt(&mut self, text: &str, reply: &str) {
        self.turn(&[&[("user.text", text)]], reply);
    }

    fn write(&self, home: &Home, id: &str) {
        let lines: Vec<String> = self.lines.iter().map(Value::to_string).collect();
        write(&rollout(home, id), lines.join("\n") + "\n");
    }
}

async fn listed(app: &App) -> Vec<(String, String)> {
    let page = app.call("transcript/list", json!({})).await.unwrap();
    let entries = page["transcripts"].as_array().unwrap().iter();
    let word = |entry: &Value, name: &str| entry[name].as_str().unwrap().to_owned();
    entries
        .map(|entry| (word(entry, "upstreamId"), word(entry, "title")))
        .collect()
}

/// Returns the prompts of a conversation's turns, oldest first.
async fn prompts(app: &App, conversation: &Value) -> Vec<String> {
    let params = json!({"conversationId": conversation["id"]});
    let page = app.call("conversation/checkpoints", params).await.unwrap();
    let turns = page["checkpoints"].as_array().unwrap().iter().rev();
    turns
        .map(|turn| turn["prompt"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn what_codex_writes_in_the_users_name_begins_no_turn() {
    for has_kinds in [true, false] {
        let home = codex::home();
        let mut text = Rollout::new(&home, has_kinds, json!({}));
        let rules = "Be brief.\n".repeat(500);
        let rules = format!("# AGENTS.md instructions for /p\n\n<INSTRUCTIONS>\n{rules}\n</INSTRUCTIONS>");
        let plugins = "<recommended_plugins>\n- X\n</recommended_plugins>";
        let context: &[_] = &[
            ("agents_md.instructions", rules.as_str()),
            (
                "environments.environment_context",
                "<environment_context>\n</environment_context>",
            ),
            ("plugins.recommendations", plugins),
        ];
        text.turn(&[context, &[("user.text", "make all tests pass")]], "1");
        text.turn(&[&[("goal.internal_context", GOAL)]], "2");
        text.turn(&[&[("goal.internal_context", GOAL)]], "3");
        text.prompt("# AGENTS.md lacks a section", "4");
        text.write(&home, ID);
        let (_daemon, app) = home.opened().await;
        let title = "make all tests pass".to_owned();
        assert_eq!(listed(&app).await, [(ID.to_owned(), title.clone())]);
        let conversation = adopt(&app, &home, ID).await;
        assert_eq!(conversation["title"], title);
        let own = [title.as_str(), "# AGENTS.md lacks a section"];
        assert_eq!(prompts(&app, &conversation).await, own, "{has_kinds}");
        let page = history(&app, &conversation).await;
        assert_eq!(said(&page), [own[0], "1", "2", "3", own[1], "4"]);
    }
}

/// When the user goes back, Codex counts only the turns that the user began, not those that Codex began.
#[tokio::test]
async fn going_back_removes_the_turns_that_codex_added_too() {
    let home = codex::home();
    let mut text = Rollout::new(&home, true, json!({}));
    text.prompt("one", "1");
    text.prompt("make all tests pass", "2");
    text.turn(&[&[("goal.internal_context", GOAL)]], "3");
    text.add("event_msg", json!({"type": "thread_rolled_back", "num_turns": 1}));
    text.prompt("something else", "4");
    text.write(&home, ID);
    let (_daemon, app) = home.opened().await;
    let conversation = adopt(&app, &home, ID).await;
    let page = history(&app, &conversation).await;
    assert_eq!(said(&page), ["one", "1", "something else", "4"]);
}

#[tokio::test]
async fn a_short_prompt_begins_with_what_the_user_typed() {
    let home = codex::home();
    let claude = home.path().join("claude");
    let config = fs::read_to_string(home.config_file()).unwrap();
    home.configure(&format!(
        "{config}[agents.claude]\ncommand = \"/nonexistent/claude\"\ntranscripts = \"{}\"\n",
        claude.display()
    ));
    let ide = format!(
        "# Context from my IDE setup:\n\n## Open tabs:\n{}\n## My request for Codex:\nfix the parser",
        "- a.rs: src/a.rs\n".repeat(99)
    );
    let mut text = Rollout::new(&home, false, json!({}));
    text.prompt(&ide, "1");
    text.add("event_msg", json!({"type": "task_started", "turn_id": "picture"}));
    let content = json!([
        {"type": "input_text", "text": "<image name=[Image #1]>"},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
        {"type": "input_text", "text": "</image>"},
        {"type": "input_text", "text": "why is this red"},
    ]);
    let mut picture = json!({"type": "message", "role": "user", "content": content});
    text.add("response_item", picture.clone());
    text.write(&home, ID);
    let mut only_picture = Rollout::new(&home, false, json!({"id": AGENT_ID}));
    picture["content"].as_array_mut().unwrap().truncate(3);
    only_picture.add("response_item", picture);
    only_picture.write(&home, AGENT_ID);
    let opened = "<ide_opened_file>The user opened the file /p/a.rs in the IDE.</ide_opened_file>";
    let record = json!({
        "type": "user", "uuid": "u1", "parentUuid": null, "sessionId": "s1", "cwd": home.project(),
        "timestamp": "2020-11-03T11:00:00.000Z", "origin": {"kind": "human"},
        "message": {"role": "user", "content": [{"type": "text", "text": opened}, {"type": "text", "text": "add a test"}]},
    });
    write(&claude.join("projects/-p/s1.jsonl"), format!("{record}\n"));
    let (_daemon, app) = home.opened().await;
    let mut titles: Vec<String> = listed(&app).await.into_iter().map(|(_, title)| title).collect();
    titles.sort();
    assert_eq!(titles, ["Image", "add a test", "fix the parser"]);

    let conversation = adopt(&app, &home, ID).await;
    assert_eq!(
        prompts(&app, &conversation).await,
        ["fix the parser", "why is this red"]
    );
    let page = history(&app, &conversation).await;
    assert_eq!(
        said(&page),
        [
            &ide,
            "1",
            "<image name=[Image #1]>",
            "</image>",
            "why is this red"
        ],
        "the messages must be complete"
    );
    let conversation = adopt(&app, &home, "s1").await;
    assert_eq!(prompts(&app, &conversation).await, ["add a test"]);
    assert_eq!(said(&history(&app, &conversation).await), [opened, "add a test"]);
}

/// The user did not begin a subagent's session, but it looks so if Codex copied the parent's history into it.
#[tokio::test]
async fn a_subagent_is_not_listed_but_can_be_read() {
    let home = codex::home();
    let spawned = json!({"id": AGENT_ID, "source": {"subagent": {"thread_spawn": {"parent_thread_id": ID, "depth": 1}}}});
    for (id, meta) in [(ID, json!({})), (AGENT_ID, spawned)] {
        let mut text = Rollout::new(&home, true, meta);
        text.prompt("Refactor the billing", "1");
        text.write(&home, id);
    }
    let (_daemon, app) = home.opened().await;
    let expected = (ID.to_owned(), "Refactor the billing".to_owned());
    assert_eq!(listed(&app).await, [expected]);
    let conversation = adopt(&app, &home, AGENT_ID).await;
    assert_eq!(
        said(&history(&app, &conversation).await),
        ["Refactor the billing", "1"]
    );
}
