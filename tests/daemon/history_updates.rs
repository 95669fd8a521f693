//! History as ACP updates, so that an app can show past and present with the same code.

use bridge_protocol::ConversationId;
use bridge_protocol::event::Event;
use bridge_protocol::history::{HistoryForm, HistoryPage};
use bridge_protocol::method::History;
use serde_json::{Value, json};

use crate::codex;
use crate::home::Home;
use crate::support::App;

async fn page(app: &App, params: History) -> HistoryPage {
    app.answer(History {
        r#as: HistoryForm::Updates,
        ..params
    })
    .await
}

fn of(id: ConversationId) -> History {
    History {
        conversation_id: id.into(),
        ..Default::default()
    }
}

fn updates(page: &HistoryPage) -> Vec<Value> {
    assert_eq!(page.messages, [], "updates instead of messages");
    let updates = page.updates.as_deref().unwrap().iter();
    updates.map(|each| each.update.read().unwrap()).collect()
}

async fn all(app: &App, id: ConversationId) -> Vec<Value> {
    updates(&page(app, of(id)).await)
}

/// Returns the kind and content of an update as one line.
fn line(update: &Value) -> String {
    let kind = update["sessionUpdate"].as_str().unwrap();
    match kind {
        "tool_call" => format!("{kind} {} {}", update["kind"].as_str().unwrap(), update["title"]),
        "tool_call_update" => {
            let shown = update["content"].as_array();
            let shown = shown.map_or(Value::Null, |shown| shown[0]["content"]["text"].clone());
            format!("{kind} {} {shown}", update["status"].as_str().unwrap())
        }
        _ => format!("{kind} {}", update["content"]["text"]),
    }
}

/// Each member of an update from the transcript is in the live update too, except for message ids, which the daemon
/// assigns.
#[tokio::test]
async fn the_past_has_the_shapes_of_the_present() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    let mut events = app.events(id).await;
    let prompt = r#"[[say before]][[tool look {"deep":1.50}]][[say after]]"#;
    app.send(id, prompt).await;
    let mut live = Vec::new();
    for event in events.turn().await {
        if let Event::Update { update, .. } = event.event {
            live.push(update.read::<Value>().unwrap());
        }
    }
    let kinds = ["agent_message_chunk", "tool_call", "tool_call_update"];
    live.retain(|update| kinds.contains(&update["sessionUpdate"].as_str().unwrap()));
    let mut told = all(&app, id).await;
    assert_eq!(
        line(&told.remove(0)),
        format!("user_message_chunk {}", json!(prompt))
    );
    assert_eq!(told.len(), live.len());
    for (told, live) in told.iter().zip(&live) {
        for (name, value) in told.as_object().unwrap() {
            assert!(
                name == "messageId" || live[name] == *value,
                "{name}: {told} {live}"
            );
        }
    }
    let raw = page(&app, of(id)).await.updates.unwrap();
    assert!(
        raw[2].update.get().contains(r#""rawInput":{"deep":1.50}"#),
        "{:?}",
        raw[2]
    );
    assert!(
        raw.iter()
            .all(|each| each.at.is_some() && each.checkpoint_id.is_some())
    );
}

#[tokio::test]
async fn edits_are_diffs_and_todos_a_plan() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    let file = format!("{}/src/a.rs", home.project());
    let edit = json!({"file_path": file, "old_string": "x", "new_string": "y"});
    let todos = json!({"todos": [{"content": "a", "activeForm": "doing a", "status": "in_progress"}]});
    let read = json!({"file_path": file, "offset": 3, "limit": 2});
    app.send(
        id,
        &format!("[[tool Edit {edit}]][[tool TodoWrite {todos}]][[tool Read {read}]]"),
    )
    .await;
    app.send(id, "[[write notes.txt some words]]").await;
    let told = all(&app, id).await;
    let call = |title: &str| {
        let found = told.iter().find(|update| update["title"] == title);
        found.unwrap_or_else(|| panic!("{title}: {told:?}"))
    };
    let edited = call("Edit src/a.rs");
    assert_eq!(edited["kind"], "edit");
    assert_eq!(edited["locations"], json!([{"path": file}]));
    let diff = json!([{"type": "diff", "path": file, "oldText": "x", "newText": "y"}]);
    assert_eq!(edited["content"], diff);
    assert_eq!(
        call("Read src/a.rs (3 - 4)")["locations"],
        json!([{"path": file, "line": 3}])
    );
    assert_eq!(call("notes.txt")["content"][0]["newText"], "some words");
    let plans: Vec<&Value> = told
        .iter()
        .filter(|update| update["sessionUpdate"] == "plan")
        .collect();
    assert_eq!(plans.len(), 1);
    let entry = json!([{"content": "doing a", "status": "in_progress", "priority": "medium"}]);
    assert_eq!(plans[0]["entries"], entry);
    // A result without content keeps the diff, and a plan has no result.
    let results = told
        .iter()
        .filter(|update| update["sessionUpdate"] == "tool_call_update");
    let results: Vec<String> = results.map(line).collect();
    let expected = [
        "completed null",
        "completed \"```\\nRead ran\\n```\"",
        "completed null",
    ];
    assert_eq!(
        results,
        expected.map(|result| format!("tool_call_update {result}"))
    );
}

/// A page may begin with the result of a call on the previous page.
#[tokio::test]
async fn pages_of_updates_follow_one_another_as_messages_do() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    app.send(id, r#"[[tool Bash {"command":"ls"}]]"#).await;
    app.send(id, "more").await;
    let whole = all(&app, id).await;
    let mut parts = Vec::new();
    let mut cursor = None;
    loop {
        let page = page(
            &app,
            History {
                cursor: cursor.take(),
                limit: Some(1),
                ..of(id)
            },
        )
        .await;
        parts.extend(updates(&page));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(parts, whole);
    assert!(
        whole.iter().any(|update| line(update).contains("```console")),
        "{whole:?}"
    );
    let last = page(
        &app,
        History {
            last: Some(2),
            ..of(id)
        },
    )
    .await;
    assert_eq!(updates(&last), whole[whole.len() - 2..]);
}

#[tokio::test]
async fn what_claude_and_codex_wrote_is_told_as_their_adapters_tell_it() {
    const CLAUDE_ID: &str = "21535b63-3e2e-4527-a672-7ff7c408b062";
    const CODEX_ID: &str = "01a1fcd0-8b2a-7e82-b5c4-669ee19493a3";
    let home = Home::new();
    let folder = |name: &str| home.path().join(name);
    home.configure(&format!(
        "default_agent = \"loopback\"\n[agents.codex]\ncommand = \"/nonexistent/codex\"\ntranscripts = \"{}\"\n\
         [agents.claude]\ncommand = \"/nonexistent/claude\"\ntranscripts = \"{}\"\n",
        folder("codex").display(),
        folder("claude").display()
    ));
    codex::write(
        &codex::rollout(&home, CODEX_ID),
        include_str!("../fixtures/transcripts/codex/0.169.0.jsonl"),
    );
    codex::write(
        &folder("claude").join(format!("projects/-home-u-project/{CLAUDE_ID}.jsonl")),
        include_str!("../fixtures/transcripts/claude/2.1.329.jsonl"),
    );
    let (_daemon, app) = home.opened().await;
    let told = async |upstream_id: &str| -> Vec<String> {
        let params = json!({"upstreamId": upstream_id, "cwd": home.project()});
        let id = app.made_by("conversation/adopt", params).await;
        all(&app, id).await.iter().map(line).collect()
    };
    let claude = told(CLAUDE_ID).await;
    let second = claude.iter().position(|line| line.contains("calling")).unwrap();
    assert_eq!(
        claude[second..second + 7],
        [
            "agent_message_chunk \"calling\"",
            "tool_call execute \"echo one\"",
            "tool_call execute \"echo two\"",
            "tool_call_update completed \"```console\\ntwo\\n```\"",
            "tool_call_update completed \"```console\\none\\n```\"",
            "agent_thought_chunk \"a long thought\"",
            "agent_message_chunk \"compared\"",
        ]
    );
    assert!(
        claude.contains(&"tool_call think \"look\"".to_owned()),
        "{claude:?}"
    );
    assert!(
        !claude.iter().any(|line| line.contains("task-notification")),
        "{claude:?}"
    );
    let codex = told(CODEX_ID).await;
    assert_eq!(
        codex,
        [
            "user_message_chunk \"first words\"",
            "agent_message_chunk \"ok: first words\"",
            "user_message_chunk \"[[tool exec_command {\\\"cmd\\\":\\\"echo one\\\"}]] [[text greeted]]\"",
            "tool_call execute \"echo one\"",
            "tool_call_update completed \"```console\\none\\n```\"",
            "agent_message_chunk \"greeted\"",
            "user_message_chunk \"and now\"",
            "agent_message_chunk \"ok: and now\"",
        ]
    );
}
