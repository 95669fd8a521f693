#![allow(
    clippy::needless_pass_by_value,
    reason = "lines are written where they are used, as json!"
)]

use std::io::Cursor;

use serde_json::{Value, json};

use super::HistoryEnd;
use super::history::CodexHistory;
use crate::transcript::message::{ContentPart, Speaker, TranscriptMessage, TranscriptMessageKind};

/// A session of Codex 0.166.0: a reply, a tool, a limit, an interruption, a reply, a compaction, a reply.
pub(super) const ROOT: &str = include_str!("../../../tests/fixtures/transcripts/codex/0.166.0-limit.jsonl");
pub(super) const ROOT_ID: &str = "01a1fcbf-db36-73c1-ae0a-836a46b096da";

fn book(parts: &[(&str, &str, HistoryEnd)], until: Option<(u16, &str)>) -> Option<CodexHistory> {
    let mut builder = CodexHistory::up_to(until);
    for (id, text, cut) in parts {
        builder
            .read_part(text.as_bytes(), id, *cut)
            .expect("bytes are read");
    }
    builder.reaches_end().then_some(builder)
}

fn whole(text: &str) -> CodexHistory {
    book(&[("s", text, HistoryEnd::default())], None).expect("a book")
}

fn read(book: &CodexHistory, texts: &[&str]) -> Vec<TranscriptMessage> {
    let read = |message: usize| {
        let text = texts[usize::from(book.entries[message].part)];
        let read = book.message(Cursor::new(text), message).expect("bytes are read");
        read.expect("a message")
    };
    (0..book.entries.len()).map(read).collect()
}

/// A message in a few words.
fn words(message: &TranscriptMessage) -> String {
    let said = message.parts.iter().map(|part| match part {
        ContentPart::Text(text) => text.chars().take(24).collect(),
        ContentPart::Thought(text) => format!("({text})"),
        ContentPart::ToolCall { name, input_json, .. } => format!("{name} {input_json}"),
        ContentPart::ToolResult { text, is_error, .. } => {
            format!("= {} {is_error:?}", text.lines().last().unwrap_or_default())
        }
        ContentPart::Image { mime_type, data } => format!("{mime_type} {data}"),
        ContentPart::Other { kind, .. } => format!("<{kind}>"),
    });
    let said: Vec<String> = said.collect();
    let sort = match message.kind {
        TranscriptMessageKind::Prompt => "prompt",
        TranscriptMessageKind::Ordinary if message.speaker == Speaker::Model => "reply",
        TranscriptMessageKind::Ordinary => "result",
        TranscriptMessageKind::Summary => "summary",
        TranscriptMessageKind::AgentNote => "aside",
        TranscriptMessageKind::Error => "error",
    };
    format!("{sort}: {}", said.join(" | "))
}

fn told(book: &CodexHistory, texts: &[&str]) -> Vec<String> {
    read(book, texts).iter().map(words).collect()
}

fn prompts(book: &CodexHistory, texts: &[&str]) -> Vec<String> {
    let told = told(book, texts);
    let prompts = told.iter().filter_map(|line| line.strip_prefix("prompt: "));
    prompts.map(str::to_owned).collect()
}

/// A line of a rollout; without an ordinal where none is given.
fn line(ordinal: Option<u64>, kind: &str, payload: Value) -> String {
    let mut line = json!({"timestamp": "2026-11-03T12:00:00.000Z", "type": kind, "payload": payload});
    if let Some(ordinal) = ordinal {
        line["ordinal"] = json!(ordinal);
    }
    format!("{line}\n")
}

fn item(payload: Value) -> String {
    line(None, "response_item", payload)
}

fn user(text: &str) -> String {
    item(json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}))
}

fn model(text: &str) -> String {
    item(json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}))
}

/// What each part of a message is, where the file says so, and otherwise by the marks that Codex looks for.
#[test]
fn what_codex_writes_in_the_users_name_is_no_prompt() {
    let instructions = "# AGENTS.md instructions for /p\n\n<INSTRUCTIONS>\nx\n</INSTRUCTIONS>";
    let skill = "<skill>\n<name>a</name>\n</skill>";
    let goal = "<codex_internal_context source=\"goal\">\nx\n</codex_internal_context>";
    let text = |text: &str| json!({"type": "input_text", "text": text});
    let picture = || json!({"type": "input_image", "image_url": "data:image/png;base64,AA=="});
    let marked = vec![
        text("<image name=[Image #1]>"),
        picture(),
        text("</image>"),
        text("why?"),
    ];
    let ide = "# Context from my IDE setup:\n\n## Open tabs:\n- a.rs\n\n## My request for Codex:\nwhy?";
    for (content, kinds, typed) in [
        (vec![text("hi")], json!(["user.text"]), Some(&["hi"][..])),
        (vec![text("careful")], json!(["hooks.additional_context"]), None),
        (vec![text(skill)], json!(["user.text"]), Some(&[skill])),
        (
            vec![text(skill), text("hi")],
            json!(["skills.x", "user.text"]),
            Some(&["hi"]),
        ),
        (vec![picture()], json!(["user.image"]), Some(&[""])),
        // Kinds of other parts, and a kind that says nothing.
        (
            vec![text("hi"), text("ho")],
            json!(["goal.internal_context"]),
            Some(&["hi", "ho"]),
        ),
        (vec![text("hi")], json!(["unknown"]), Some(&["hi"])),
        (vec![text(skill)], json!(["unknown"]), None),
        (vec![text(skill)], json!(null), None),
        (vec![text(instructions), text(goal)], json!(null), None),
        (
            vec![text("<recommended_plugins>\nx\n</recommended_plugins>")],
            json!(null),
            None,
        ),
        (
            vec![text("<hook_prompt hook_run_id=\"a\">x</hook_prompt>")],
            json!(null),
            None,
        ),
        (
            vec![text(" <external_page>x</external_page>\n")],
            json!(null),
            None,
        ),
        (
            vec![text("# AGENTS.md is wrong")],
            json!(null),
            Some(&["# AGENTS.md is wrong"]),
        ),
        (
            vec![text("<skill> is ugly")],
            json!(null),
            Some(&["<skill> is ugly"]),
        ),
        (vec![text("<b>bold</b>")], json!(null), Some(&["<b>bold</b>"])),
        (vec![text(ide)], json!(null), Some(&["why?"])),
        (marked, json!(null), Some(&["", "", "why?"])),
    ] {
        let line = item(json!({
            "type": "message", "role": "user", "content": content,
            "internal_chat_message_metadata_passthrough": {"content_item_kinds": kinds},
        }));
        let history = whole(&line);
        let read = history
            .message(Cursor::new(&line), 0)
            .unwrap()
            .expect("a message");
        let expected = typed.map_or(TranscriptMessageKind::AgentNote, |_| {
            TranscriptMessageKind::Prompt
        });
        assert_eq!(read.kind, expected, "{line}");
        assert_eq!(read.typed, typed.unwrap_or_default(), "{line}");
        assert_eq!(read.parts.len(), content.len(), "the message is whole: {line}");
    }
}

#[test]
fn rollouts_of_older_versions() {
    let context = user("<environment_context>\n</environment_context>");
    let meta = line(None, "session_meta", json!({"id": "s", "cwd": "/home/u/project"}));
    let old = [
        meta.as_str(),
        &context,
        &user("one"),
        &model("1"),
        &user("<b>two</b>"),
        &model("2"),
    ]
    .concat();
    let book = whole(&old);
    assert_eq!(
        told(&book, &[&old]),
        [
            "aside: <environment_context>\n</",
            "prompt: one",
            "reply: 1",
            "prompt: <b>two</b>",
            "reply: 2"
        ]
    );
    assert_eq!(book.turn_name(1), Some(("t2", "s")));
    assert_eq!(
        (book.entries[1].record_id(), book.find("s", "l3")),
        ("l3".to_owned(), Some(1))
    );
    assert_eq!(book.find("s", "t1"), Some(2));
    let first = self::book(&[("s", &old, HistoryEnd::default())], Some((0, "t1"))).expect("a book");
    assert_eq!((first.turns.len(), first.entries.len()), (1, 3));

    // The first ones had no envelope; the reasoning is told as far as it is there.
    let bare = concat!(
        r#"{"id":"s","timestamp":"2025-05-03T12:00:00.000Z","instructions":null}"#,
        "\n",
        r#"{"record_type":"state"}"#,
        "\n",
        r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"one"}]}"#,
        "\n",
        r#"{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"x"}"#,
        "\n",
        r#"{"type":"function_call","name":"shell","arguments":"not json","call_id":"c1"}"#,
        "\n",
        r#"{"type":"function_call_output","call_id":"c1","output":"{\"output\":\"no\\n\",\"metadata\":{\"exit_code\":2}}"}"#,
        "\n",
    );
    let book = whole(bare);
    assert_eq!(book.meta.upstream_id.as_deref(), Some("s"));
    assert_eq!(
        told(&book, &[bare]),
        [
            "prompt: one",
            "reply: (hm)",
            r#"reply: shell "not json""#,
            "result: = no Some(true)"
        ]
    );
}

#[test]
fn items_in_each_form() {
    let output =
        |output: Value| item(json!({"type": "function_call_output", "call_id": "c", "output": output}));
    let table = [
        (output(json!("plain")), "result: = plain None"),
        (
            output(json!({"content": "no", "success": false})),
            "result: = no Some(true)",
        ),
        (
            output(
                json!([{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "data:image/png;base64,QUJD"}]),
            ),
            "result: = a None | image/png QUJD",
        ),
        (
            output(json!(
                "Chunk ID: 1\nProcess exited with code 1\nOutput:\nProcess exited with code 0"
            )),
            "result: = Process exited with code 0 Some(true)",
        ),
        (
            output(json!("Output:\nProcess exited with code 1")),
            "result: = Process exited with code 1 None",
        ),
        (output(json!(7)), "result: =  None | <>"),
        (
            output(json!({"rows": [1], "success": true})),
            "result: =  Some(false) | <>",
        ),
        (
            item(json!({"type": "message", "role": "assistant", "content": {"text": "x"}})),
            "reply: <message>",
        ),
        (
            item(
                json!({"type": "reasoning", "summary": [{"type": "graph"}, {"type": "summary_text", "text": "so"}]}),
            ),
            "reply: <graph> | (so)",
        ),
        (
            item(json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": {"a": 1}})),
            "reply: f {\"a\":1}",
        ),
        (
            item(
                json!({"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "*** x"}),
            ),
            r#"reply: apply_patch "*** x""#,
        ),
        (
            item(json!({"type": "local_shell_call", "call_id": "c", "action": {"type": "exec"}})),
            r#"reply: local_shell {"type":"exec"}"#,
        ),
        (
            item(json!({"type": "web_search_call", "action": {"query": "x"}})),
            "reply: <web_search_call>",
        ),
        (
            item(json!({"type": "brand_new", "x": 1.50})),
            "reply: <brand_new>",
        ),
        (
            item(json!({"type": "reasoning", "content": [{"text": "all"}], "summary": [{"text": "short"}]})),
            "reply: (all)",
        ),
        (
            item(
                json!({"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}),
            ),
            "reply: <refusal>",
        ),
        (
            item(
                json!({"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "http://x/y"}]}),
            ),
            "prompt: <input_image>",
        ),
        (
            line(
                None,
                "event_msg",
                json!({"type": "error", "message": "went wrong"}),
            ),
            "error: went wrong",
        ),
        (line(None, "compacted", json!({"message": ""})), "summary: "),
    ];
    for (text, expected) in table {
        assert_eq!(told(&whole(&text), &[&text]), [expected], "{text}");
    }
    let kept = item(json!({"type": "brand_new", "deep": {"x": [1, "ü"]}}));
    let message = read(&whole(&kept), &[&kept]).remove(0);
    let [ContentPart::Other { json, .. }] = &message.parts[..] else {
        panic!("one part")
    };
    assert!(kept.contains(json.as_str()), "byte for byte: {json}");
    for left_out in [
        item(json!({"type": "message", "role": "developer", "content": []})),
        item(json!({"type": "ghost_snapshot"})),
        line(
            None,
            "event_msg",
            json!({"type": "agent_message", "message": "twice"}),
        ),
        line(None, "brand_new", json!({})),
        "{}\n[]\n7\n".to_owned(),
    ] {
        assert_eq!(whole(&left_out).entries.len(), 0, "{left_out}");
    }
}

#[test]
fn a_turn_that_was_taken_back_is_left_out_and_can_still_be_named() {
    let back = |turns: u64| {
        line(
            None,
            "event_msg",
            json!({"type": "thread_rolled_back", "num_turns": turns}),
        )
    };
    let said = [user("one"), model("1"), user("two"), model("2")].concat();
    let gone = format!("{said}{}{}{}", back(1), user("three"), model("3"));
    let book = whole(&gone);
    assert_eq!(prompts(&book, &[&gone]), ["one", "three"]);
    assert_eq!(book.turn_name(1), Some(("t3", "s")));
    let named = self::book(&[("s", &gone, HistoryEnd::default())], Some((0, "t2"))).expect("a book");
    assert_eq!(prompts(&named, &[&gone]), ["one", "two"]);
    for (turns, left) in [(0, 2), (2, 0), (u64::MAX, 0)] {
        let text = format!("{said}{}", back(turns));
        assert_eq!(whole(&text).turns.len(), left, "{turns}");
    }
}

#[test]
fn a_second_prompt_within_a_turn_begins_no_other() {
    let started = |id: &str| {
        line(
            Some(1),
            "event_msg",
            json!({"type": "task_started", "turn_id": id}),
        )
    };
    let text = [
        started("a"),
        user("one"),
        user("and this"),
        model("1"),
        started("b"),
        user("two"),
    ]
    .concat();
    let book = whole(&text);
    assert_eq!(book.turns, [0, 3]);
    // Where the beginning of a turn is lost, its items say where they belong.
    let of = |id: &str, text: &str| {
        let content = json!([{"type": "input_text", "text": text}]);
        let passed = json!({"turn_id": id});
        item(json!({
            "type": "message", "role": "user", "content": content,
            "internal_chat_message_metadata_passthrough": passed,
        }))
    };
    let text = [started("a"), of("a", "one"), "{@@@\n".to_owned(), of("b", "two")].concat();
    let book = whole(&text);
    assert_eq!((book.turns.len(), book.damaged_records), (2, 1));
    assert_eq!(book.turn_name(1), Some(("b", "s")));
}
