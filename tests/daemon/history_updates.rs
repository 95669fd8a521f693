//! History as ACP updates, so that an app can show past and present with the same code.

use std::collections::HashSet;

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
    let home = home_with_transcripts();
    codex::write(
        &codex::rollout(&home, CODEX_SESSION),
        include_str!("../fixtures/transcripts/codex/0.169.0.jsonl"),
    );
    codex::write(
        &home
            .path()
            .join(format!("claude/projects/-home-u-project/{CLAUDE_ID}.jsonl")),
        include_str!("../fixtures/transcripts/claude/2.1.329.jsonl"),
    );
    let (_daemon, app) = home.opened().await;
    let told = async |upstream_id: &str| -> Vec<String> {
        let updates = adopted(&home, &app, upstream_id).await;
        updates.iter().map(line).collect()
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
    let codex = told(CODEX_SESSION).await;
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

/// Panics if an answer has a result without its call.
fn assert_whole(updates: &[Value]) {
    let mut calls = HashSet::new();
    for update in updates {
        let id = update["toolCallId"].as_str();
        match update["sessionUpdate"].as_str().unwrap() {
            "tool_call" => assert!(calls.insert(id), "twice: {updates:?}"),
            "tool_call_update" => assert!(calls.contains(&id), "no call: {updates:?}"),
            _ => {}
        }
    }
}

/// A page that does not continue an earlier one forwards contains the calls of all its results.
#[tokio::test]
async fn pages_from_the_end_begin_with_whole_calls() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let id = app.make(&home.project()).await;
    app.send(id, r#"[[tool Bash {"command":"ls"}]] [[tool look {}]]"#)
        .await;
    app.send(id, "more").await;
    let whole = all(&app, id).await;
    for last in 1..=whole.len() as u32 {
        let params = History {
            last: Some(last),
            ..of(id)
        };
        let part = updates(&page(&app, params).await);
        assert_whole(&part);
        assert!(whole.ends_with(&part), "{part:?}");
    }
    let params = History {
        last: Some(1),
        ..of(id)
    };
    let mut last = page(&app, params).await;
    let mut backwards = updates(&last);
    while let Some(cursor) = last.previous_cursor.take() {
        let params = History {
            cursor: Some(cursor),
            limit: Some(1),
            ..of(id)
        };
        last = page(&app, params).await;
        let part = updates(&last);
        assert_whole(&part);
        backwards.splice(..0, part);
    }
    assert_eq!(backwards, whole);
}

const CLAUDE_SESSION: &str = "5b0f6d1e-2c1a-4e0b-9d3f-6a7b8c9d0e1f";
const CODEX_SESSION: &str = "01a1fcd0-8b2a-7e82-b5c4-669ee19493a3";

/// A home whose agents Claude and Codex have no programs.
fn home_with_transcripts() -> Home {
    let home = Home::new();
    let folder = |name: &str| home.path().join(name);
    home.configure(&format!(
        "default_agent = \"loopback\"\n[agents.codex]\ncommand = \"/nonexistent/codex\"\ntranscripts = \"{}\"\n\
         [agents.claude]\ncommand = \"/nonexistent/claude\"\ntranscripts = \"{}\"\n",
        folder("codex").display(),
        folder("claude").display()
    ));
    home
}

async fn adopted(home: &Home, app: &App, upstream_id: &str) -> Vec<Value> {
    let params = json!({"upstreamId": upstream_id, "cwd": home.project()});
    all(app, app.made_by("conversation/adopt", params).await).await
}

/// A session of Claude: a turn with calls, each with the content of its result and whether it failed, and a turn without.
fn claude_session(calls: &[(&str, Value, Option<(Value, bool)>)]) -> String {
    let mut messages = vec![("user", json!("first"))];
    for (number, (name, input, result)) in calls.iter().enumerate() {
        let id = format!("call-{number}");
        let call = json!([{"type": "tool_use", "id": id, "name": name, "input": input}]);
        messages.push(("assistant", call));
        if let Some((content, failed)) = result {
            let result =
                json!([{"type": "tool_result", "tool_use_id": id, "content": content, "is_error": failed}]);
            messages.push(("user", result));
        }
    }
    messages.push(("user", json!("second")));
    messages.push(("assistant", json!([{"type": "text", "text": "done"}])));
    let mut lines = String::new();
    let mut parent = Value::Null;
    for (number, (role, content)) in messages.into_iter().enumerate() {
        let uuid = json!(format!("00000000-0000-4000-8000-{number:012}"));
        let mut record = json!({
            "parentUuid": parent, "isSidechain": false, "type": role, "uuid": uuid,
            "message": {"role": role, "content": content},
            "timestamp": "2026-11-21T06:35:33.849Z", "userType": "external", "cwd": "/home/u/project",
            "sessionId": CLAUDE_SESSION, "version": "2.1.329",
        });
        if record["message"]["content"][0]["type"] == "tool_result" {
            record["toolUseResult"] = json!({});
        }
        lines += &format!("{record}\n");
        parent = uuid;
    }
    lines
}

#[tokio::test]
async fn calls_of_claude_are_told_as_its_adapter_tells_them() {
    let home = home_with_transcripts();
    let text = |text: &str, failed: bool| Some((json!(text), failed));
    let todos = json!({"todos": [
        {"content": "a"}, {"content": "b", "status": "cancelled"}, {"status": "pending"},
        {"content": "c", "status": "completed"}, {"content": "d", "status": "in_progress", "activeForm": "doing d"},
    ]});
    let question = json!({"questions": [{"question": "Which?", "header": "H", "options": []}]});
    let tool = json!([{"type": "tool_reference", "tool_name": "Fetch"}]);
    let calls = [
        (
            "TodoWrite",
            todos,
            text("<tool_use_error>disabled</tool_use_error>", true),
        ),
        ("AskUserQuestion", question, text("R", false)),
        (
            "Grep",
            json!({"pattern": "x"}),
            text("<tool_use_error>bad</tool_use_error>", true),
        ),
        ("Nope", json!({}), text("no such tool", true)),
        ("ToolSearch", json!({"query": "q"}), Some((tool, false))),
        ("Bash", json!({"command": "sleep 9"}), None),
    ];
    let path = format!("claude/projects/-home-u-project/{CLAUDE_SESSION}.jsonl");
    codex::write(&home.path().join(path), claude_session(&calls));
    let (_daemon, app) = home.opened().await;
    let told = adopted(&home, &app, CLAUDE_SESSION).await;
    assert_whole(&told);
    let entry =
        |content: &str, status: &str| json!({"content": content, "status": status, "priority": "medium"});
    let entries = json!([
        entry("a", "pending"),
        entry("c", "completed"),
        entry("doing d", "in_progress")
    ]);
    assert_eq!(told[1]["entries"], entries);
    let asked = json!([{"type": "content", "content": {"type": "text", "text": "Which?"}}]);
    assert_eq!(told[2]["content"], asked);
    // The turn ended without a result of its last call.
    assert_eq!(
        (&told[10]["title"], &told[10]["status"]),
        (&json!("sleep 9"), &json!("failed"))
    );
    let lines: Vec<String> = told.iter().map(line).collect();
    assert_eq!(
        lines,
        [
            "user_message_chunk \"first\"",
            "plan null",
            "tool_call other \"Which?\"",
            "tool_call_update completed \"R\"",
            "tool_call search \"grep \\\"x\\\"\"",
            "tool_call_update failed \"```\\n<tool_use_error>bad</tool_use_error>\\n```\"",
            "tool_call other \"Nope\"",
            "tool_call_update failed \"```\\nno such tool\\n```\"",
            "tool_call other \"ToolSearch\"",
            "tool_call_update completed \"Tool: Fetch\"",
            "tool_call execute \"sleep 9\"",
            "user_message_chunk \"second\"",
            "agent_message_chunk \"done\"",
        ]
    );
}

/// A session of Codex with these calls and outputs in place of its one call.
fn codex_session(calls: &[(&str, Value, String)]) -> String {
    let fixture = include_str!("../fixtures/transcripts/codex/0.169.0.jsonl");
    let mut lines = String::new();
    for text in fixture.lines() {
        let record: Value = serde_json::from_str(text).unwrap();
        let kind = record["payload"]["type"].as_str().unwrap_or_default();
        if !matches!(kind, "function_call" | "function_call_output") {
            lines += &format!("{text}\n");
            continue;
        }
        for (number, (name, arguments, output)) in calls.iter().enumerate() {
            let mut record = record.clone();
            let payload = &mut record["payload"];
            payload["call_id"] = json!(format!("call-{number}"));
            match kind {
                "function_call" => {
                    payload["name"] = json!(name);
                    payload["arguments"] = json!(arguments.to_string());
                }
                _ => payload["output"] = json!(output),
            }
            lines += &format!("{record}\n");
        }
    }
    lines
}

#[tokio::test]
async fn calls_of_codex_are_told_as_its_adapter_tells_them() {
    let home = home_with_transcripts();
    let patch =
        "*** Begin Patch\n*** Update File: r.txt\n@@\n-l1\n+L1\n*** Add File: n.txt\n+n\n*** End Patch";
    let apply = |patch: &str| json!({"cmd": format!("apply_patch <<'EOF'\n{patch}\nEOF")});
    let printed = |code: u32, output: &str| {
        format!("Wall time: 0.0000 seconds\nProcess exited with code {code}\nOutput:\n{output}")
    };
    let applied = |code: u32, output: &str| {
        printed(
            code,
            &format!("Exit code: {code}\nWall time: 0.1 seconds\nOutput:\n{output}"),
        )
    };
    let shell = json!({"command": ["bash", "-lc", format!("apply_patch <<'EOF'\n{patch}\nEOF\n")]});
    let scripts = [
        format!("apply_patch <<'EOF'\n{patch}\nEOF\nmake\nmake test"),
        format!("apply_patch <<'EOF' && make\n{patch}\nEOF"),
    ];
    let [more, joined] = scripts.clone().map(|script| json!({"cmd": script}));
    let steps = json!({"plan": [{"step": "a", "status": "in_progress"}]});
    let calls = [
        (
            "exec_command",
            apply(patch),
            applied(0, "Success. Updated the following files:\nM r.txt\n"),
        ),
        ("exec_command", apply(patch), applied(1, "no such lines\n")),
        ("shell", shell, applied(0, "Success.\n")),
        (
            "exec_command",
            json!({"cmd": "cat r.txt", "workdir": "sub"}),
            printed(0, "l1\n"),
        ),
        (
            "exec_command",
            json!({"cmd": "cat r.txt | sort"}),
            printed(0, "l1\n"),
        ),
        ("exec_command", more, printed(0, "Exit code: 0\nOutput:\nmade\n")),
        ("exec_command", joined, printed(0, "made\n")),
        (
            "update_plan",
            json!({"plan": "bad"}),
            "failed to parse".to_owned(),
        ),
        ("update_plan", steps, "Plan updated".to_owned()),
    ];
    codex::write(&codex::rollout(&home, CODEX_SESSION), codex_session(&calls));
    let (_daemon, app) = home.opened().await;
    let told = adopted(&home, &app, CODEX_SESSION).await;
    assert_whole(&told);
    let path = |name: &str| format!("{}/{name}", home.project());
    let diffs = json!([
        {"type": "diff", "path": path("r.txt"), "oldText": "l1\n", "newText": "L1\n"},
        {"type": "diff", "path": path("n.txt"), "oldText": null, "newText": "n\n"},
    ]);
    for edit in &told[3..6] {
        assert_eq!(edit["content"], diffs, "{edit}");
    }
    assert_eq!(told[6]["locations"], json!([{"path": path("sub/r.txt")}]));
    let lines: Vec<String> = told[3..told.len() - 3].iter().map(line).collect();
    let expected = [
        "tool_call edit \"Editing files\"".to_owned(),
        "tool_call edit \"Editing files\"".to_owned(),
        "tool_call edit \"Editing files\"".to_owned(),
        format!("tool_call read \"Read file '{}'\"", path("sub/r.txt")),
        "tool_call execute \"cat r.txt | sort\"".to_owned(),
        format!("tool_call execute {}", json!(scripts[0])),
        format!("tool_call execute {}", json!(scripts[1])),
        "tool_call other \"update_plan\"".to_owned(),
        "plan null".to_owned(),
        "tool_call_update completed null".to_owned(),
        "tool_call_update failed \"```console\\nno such lines\\n```\"".to_owned(),
        "tool_call_update completed null".to_owned(),
        "tool_call_update completed null".to_owned(),
        "tool_call_update completed \"```console\\nl1\\n```\"".to_owned(),
        "tool_call_update completed \"```console\\nExit code: 0\\nOutput:\\nmade\\n```\"".to_owned(),
        "tool_call_update completed \"```console\\nmade\\n```\"".to_owned(),
        "tool_call_update completed \"failed to parse\"".to_owned(),
    ];
    assert_eq!(lines, expected);
}
