//! Turns as text.

use bridge_protocol::raw::RawJson;
use serde_json::{Value, json};

use super::{Look, Renderer};

fn rendered(look: Look, updates: &[Value]) -> String {
    let mut renderer = Renderer::new(look);
    let mut text: String = updates
        .iter()
        .map(|update| renderer.update(&RawJson::from(update.clone())))
        .collect();
    text.push_str(&renderer.end_turn());
    text
}

fn words(text: &str) -> Value {
    json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}})
}

fn thought(text: &str) -> Value {
    json!({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": text}})
}

fn tool(id: &str, title: &str, status: &str) -> Value {
    json!({"sessionUpdate": "tool_call", "toolCallId": id, "title": title, "status": status})
}

fn tool_update(id: &str, status: &str) -> Value {
    json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "status": status})
}

#[test]
fn words_run_on_and_end_with_a_line() {
    let plain = Look::default();
    assert_eq!(rendered(plain, &[words("one "), words("two")]), "one two\n");
    assert_eq!(rendered(plain, &[words("one\n")]), "one\n");
    assert_eq!(rendered(plain, &[words("")]), "");
}

#[test]
fn a_tool_has_a_line_when_it_starts_and_when_it_ends() {
    let updates = [
        words("I read"),
        tool("1", "Read\na.rs", "pending"),
        tool_update("1", "in_progress"),
        tool_update("1", "completed"),
        tool_update("1", "completed"),
        tool("2", "rm b.rs", "failed"),
        tool_update("3", "completed"),
        words("done"),
    ];
    assert_eq!(
        rendered(Look::default(), &updates),
        "I read\n> Read a.rs\n+ Read a.rs: done\nx rm b.rs: failed\n+ tool: done\ndone\n"
    );
}

#[test]
fn thoughts_are_dimmed_and_apart() {
    let coloured = Look {
        coloured: true,
        ..Look::default()
    };
    assert_eq!(
        rendered(coloured, &[thought("hm"), words("yes")]),
        "\u{1b}[2mhm\u{1b}[0m\nyes\n"
    );
}

#[test]
fn a_plan_is_shown_when_it_changes() {
    let plan = |status: &str| {
        json!({"sessionUpdate": "plan", "entries": [
            {"content": "Look", "status": "completed"},
            {"content": "Change", "status": status},
        ]})
    };
    assert_eq!(
        rendered(
            Look::default(),
            &[plan("pending"), plan("pending"), plan("in_progress")]
        ),
        "plan\n  [x] Look\n  [ ] Change\nplan\n  [x] Look\n  [~] Change\n"
    );
}

#[test]
fn what_is_not_known_says_nothing() {
    let updates = [
        json!({"sessionUpdate": "never_heard_of", "content": 1}),
        json!({"sessionUpdate": "agent_message_chunk", "content": "not a block"}),
        json!({"sessionUpdate": "tool_call"}),
        json!([1]),
    ];
    assert_eq!(rendered(Look::default(), &updates), "");
}

#[test]
fn other_content_is_named() {
    let updates = [
        json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "image", "data": "AAAA"}}),
        json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "resource_link", "uri": "file:///a"}}),
    ];
    assert_eq!(rendered(Look::default(), &updates), "[image][file:///a]\n");
}
