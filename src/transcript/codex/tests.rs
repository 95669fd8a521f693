#![allow(
    clippy::needless_pass_by_value,
    reason = "lines are written where they are used, as json!"
)]

use std::io::{Cursor, Read};

use serde_json::{Value, json};

use super::book::{Book, BookBuilder, Growth, HistoryEnd};
use crate::transcript::message::{Part, Sort, Speaker, TranscriptMessage};

/// A session of Codex 0.166.0: a reply, a tool, a limit, an interruption, a reply, a compaction, a reply.
pub(super) const ROOT: &str = include_str!("../../../tests/fixtures/transcripts/codex/0.166.0-limit.jsonl");
pub(super) const FORK: &str =
    include_str!("../../../tests/fixtures/transcripts/codex/0.166.0-limit-fork.jsonl");
const EARLY: &str = include_str!("../../../tests/fixtures/transcripts/codex/0.166.0-limit-early-fork.jsonl");
pub(super) const ROOT_ID: &str = "01a1fcbf-db36-73c1-ae0a-836a46b096da";
const EARLY_ID: &str = "01a1fcbf-e8e6-7b20-bdec-a0ea0263efff";
const FIRST_TURN: &str = "01a1fcbf-db5c-7e90-8043-c4dd5111c2a9";

fn book(parts: &[(&str, &str, HistoryEnd)], until: Option<(u16, &str)>) -> Option<Book> {
    let mut builder = BookBuilder::new(until);
    for (id, text, cut) in parts {
        builder.part(text.as_bytes(), id, *cut).expect("bytes are read");
    }
    builder.finish().map(|(book, _)| book)
}

fn whole(text: &str) -> Book {
    book(&[("s", text, HistoryEnd::default())], None).expect("a book")
}

fn cut_at(ordinal: u64) -> HistoryEnd {
    HistoryEnd {
        ordinal: Some(ordinal),
        offset: None,
    }
}

fn read(book: &Book, texts: &[&str]) -> Vec<TranscriptMessage> {
    let read = |message| {
        let text = texts[book.part_of(message)];
        let read = book.message(Cursor::new(text), message).expect("bytes are read");
        read.expect("a message")
    };
    (0..book.messages()).map(read).collect()
}

/// A message in a few words.
fn words(message: &TranscriptMessage) -> String {
    let said = message.parts.iter().map(|part| match part {
        Part::Text(text) => text.chars().take(24).collect(),
        Part::Thought(text) => format!("({text})"),
        Part::ToolCall { name, input_json, .. } => format!("{name} {input_json}"),
        Part::ToolResult { text, is_error, .. } => {
            format!("= {} {is_error:?}", text.lines().last().unwrap_or_default())
        }
        Part::Image { mime_type, data } => format!("{mime_type} {data}"),
        Part::Other { kind, .. } => format!("<{kind}>"),
    });
    let said: Vec<String> = said.collect();
    let sort = match message.sort {
        Sort::Prompt => "prompt",
        Sort::Ordinary if message.speaker == Speaker::Model => "reply",
        Sort::Ordinary => "result",
        Sort::Summary => "summary",
        Sort::Aside => "aside",
        Sort::Error => "error",
    };
    format!("{sort}: {}", said.join(" | "))
}

fn told(book: &Book, texts: &[&str]) -> Vec<String> {
    read(book, texts).iter().map(words).collect()
}

fn prompts(book: &Book, texts: &[&str]) -> Vec<String> {
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

fn loaded(book: &Book, text: &str) -> usize {
    match book.last_compaction() {
        Some(at) => {
            book.kept_messages(Cursor::new(text), at).expect("bytes are read") + book.sent_from(at + 1)
        }
        None => book.sent_from(0),
    }
}

/// What the agent goes on with: what the compaction wrote down, else as older versions did it; instructions and errors are
/// no messages.
#[test]
fn what_is_loaded_is_what_the_model_is_sent() {
    let role = |role: &str| json!({"type": "message", "role": role, "content": []});
    let compacted = |kept: Option<Value>| match kept {
        Some(kept) => line(
            None,
            "compacted",
            json!({"message": "so far", "replacement_history": kept}),
        ),
        None => line(None, "compacted", json!({"message": "so far"})),
    };
    let failure = line(None, "event_msg", json!({"type": "error", "message": "no"}));
    let before = [user("one"), model("ok"), user("two"), failure, model("ok")].concat();
    let kept = json!([role("user"), role("developer"), role("user"), {"type": "ghost_snapshot"}, {"type": "compaction"}, 7]);
    for (text, expected) in [
        (before.clone(), 4),
        (format!("{before}{}", compacted(None)), 3),
        (
            format!("{before}{}{}{}", compacted(None), user("three"), model("ok")),
            5,
        ),
        (format!("{before}{}", compacted(Some(kept.clone()))), 3),
        (
            format!(
                "{before}{}{}{}",
                compacted(Some(json!([]))),
                compacted(Some(kept)),
                user("three")
            ),
            4,
        ),
    ] {
        assert_eq!(loaded(&whole(&text), &text), expected, "{text}");
    }
}

#[test]
fn a_fork_begins_in_the_files_that_it_continues() {
    let parts = [(ROOT_ID, ROOT, cut_at(53)), ("f", FORK, HistoryEnd::default())];
    let forked = book(&parts, None).expect("a book");
    assert_eq!((forked.turns(), forked.damages), (6, 0));
    assert_eq!(
        prompts(&forked, &[ROOT, FORK])[4..],
        ["fifth [[text five]]", "on fork [[text forked]]"]
    );
    assert_eq!(forked.turn_name(0), Some((FIRST_TURN, ROOT_ID)));
    let (own_turn, owner) = forked.turn_name(5).expect("a turn");
    assert_eq!(owner, "f");
    assert_eq!(forked.find("f", own_turn), Some(forked.messages() - 1));
    // The same by offsets alone, and of a source that lost its end.
    let offset = forked.meta.base.as_ref().and_then(|base| base.end_offset);
    let by_offset = HistoryEnd {
        ordinal: None,
        offset,
    };
    let parts = [(ROOT_ID, ROOT, by_offset), ("f", FORK, HistoryEnd::default())];
    assert_eq!(book(&parts, None).expect("a book").turns(), 6);
    let short: String = ROOT.lines().take(20).map(|line| format!("{line}\n")).collect();
    let parts = [
        (ROOT_ID, short.as_str(), cut_at(53)),
        ("f", FORK, HistoryEnd::default()),
    ];
    let lossy = book(&parts, None).expect("a book");
    assert_eq!((lossy.turns(), lossy.damages), (3, 1));

    // Up to a turn of the first file, of the last, and to none that is there.
    let parts = [
        (ROOT_ID, ROOT, cut_at(14)),
        (EARLY_ID, EARLY, HistoryEnd::default()),
    ];
    assert_eq!(book(&parts, Some((0, FIRST_TURN))).expect("a book").messages(), 3);
    assert_eq!(
        book(&parts, Some((1, "01a1fcbf-e918-7c53-9884-4d4940b79587")))
            .expect("a book")
            .turns(),
        2
    );
    assert!(book(&parts, Some((1, FIRST_TURN))).is_none());
    assert!(book(&parts, Some((0, "nowhere"))).is_none());
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
        (book.record_id(1), book.find("s", "l3")),
        ("l3".to_owned(), Some(1))
    );
    assert_eq!(book.find("s", "t1"), Some(2));
    let first = self::book(&[("s", &old, HistoryEnd::default())], Some((0, "t1"))).expect("a book");
    assert_eq!((first.turns(), first.messages()), (1, 3));

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
    let [Part::Other { json, .. }] = &message.parts[..] else {
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
        assert_eq!(whole(&left_out).messages(), 0, "{left_out}");
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
        assert_eq!(whole(&text).turns(), left, "{turns}");
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
    assert_eq!((book.turns(), book.turn(0)), (2, 0..3));
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
    assert_eq!((book.turns(), book.damages), (2, 1));
    assert_eq!(book.turn_name(1), Some(("b", "s")));
}

#[test]
fn no_damage_is_more_than_what_it_hit() {
    let all = prompts(&whole(ROOT), &[ROOT]);
    for end in (0..ROOT.len()).step_by(61) {
        let text = &ROOT[..end];
        let told = prompts(&whole(text), &[text]);
        assert_eq!(told[..], all[..told.len()], "cut at {end}");
        assert_eq!(whole(text).damages, 0, "a last line may still be written");
    }
    let lines: Vec<&str> = ROOT.lines().collect();
    for hit in 0..lines.len() {
        let mut lines = lines.clone();
        lines[hit] = "{@@@";
        let text = lines.join("\n") + "\n";
        let book = whole(&text);
        let told = prompts(&book, &[&text]);
        assert_eq!(book.damages, 1);
        let lost: Vec<_> = all.iter().filter(|prompt| !told.contains(prompt)).collect();
        assert!(
            lost.len() <= 1 && told.len() + lost.len() == all.len(),
            "line {hit}: {lost:?}"
        );
    }
}

#[test]
fn a_file_that_changed_meanwhile_gives_nothing() {
    let book = whole(ROOT);
    let moved = ROOT.replacen("\"ordinal\":7,", "\"ordinal\":8,", 1);
    for changed in ["", &ROOT[1..], &"x".repeat(ROOT.len()), &moved] {
        assert_eq!(
            book.message(Cursor::new(changed), 1).expect("bytes are read"),
            None
        );
    }
    assert_eq!(
        book.message(Cursor::new(ROOT), 999).expect("bytes are read"),
        None
    );
}

/// Wherever a file was when it was first read, to go on with it gives what reading it as a whole gives.
#[test]
fn what_is_appended_is_taken_by_itself() {
    let gone = line(
        None,
        "event_msg",
        json!({"type": "thread_rolled_back", "num_turns": 1}),
    );
    let old = [
        user("one"),
        model("1"),
        "{@@@\n\n".to_owned(),
        user("two"),
        gone,
        user("three"),
    ]
    .concat();
    for (text, step) in [(ROOT, 97), (old.as_str(), 1)] {
        let whole = format!("{:?}", whole(text));
        let mut anew = 0;
        for at in (0..=text.len()).step_by(step) {
            let mut builder = BookBuilder::new(None);
            let end = builder.part(&text.as_bytes()[..at], "s", HistoryEnd::default());
            let end = end.expect("bytes are read");
            let (book, mark) = builder.finish().expect("a book");
            if end.growth == Growth::ReadAnew {
                anew += 1;
                assert!(text[..at].ends_with('}'), "a whole record without its newline");
                continue;
            }
            assert_eq!(
                end.whole_bytes,
                text[..at].rfind('\n').map_or(0, |newline| newline as u64 + 1)
            );
            let rest = &text.as_bytes()[usize::try_from(end.whole_bytes).expect("a place")..];
            let mut builder = BookBuilder::resume(book, mark);
            builder.go_on(rest).expect("bytes are read");
            let (book, _) = builder.finish().expect("a book");
            assert_eq!(format!("{book:?}"), whole, "from {at} on");
        }
        assert!(anew < 10, "{anew}");
    }
}

#[test]
fn what_lies_behind_the_end_of_a_part_does_not_count() {
    let end = |text: &str, until, cut| {
        let mut builder = BookBuilder::new(until);
        builder.part(text.as_bytes(), "s", cut).expect("bytes are read")
    };
    let behind = end(ROOT, None, cut_at(14));
    assert_eq!(behind.growth, Growth::Ignored);
    let last_counted = ROOT[..usize::try_from(behind.whole_bytes).expect("a place")]
        .lines()
        .last();
    assert!(last_counted.is_some_and(|line| line.contains("\"ordinal\":13,")));
    assert_eq!(
        end(ROOT, Some((0, FIRST_TURN)), HistoryEnd::default()).growth,
        Growth::Ignored
    );
    // The turn with which it ends may go on, or more may come before the cut.
    let first_turn: String = ROOT.lines().take(12).map(|line| format!("{line}\n")).collect();
    assert_eq!(
        end(&first_turn, Some((0, FIRST_TURN)), HistoryEnd::default()).growth,
        Growth::Taken
    );
    assert_eq!(end(&first_turn, None, cut_at(14)).growth, Growth::ReadAnew);
}

/// A line that is longer than what is held is passed over, and takes no memory: the reader hands out the same bytes again and
/// again.
#[test]
fn a_line_of_hundreds_of_megabytes_is_passed_over() {
    let begins = ROOT.lines().next().expect("a line").to_owned()
        + "\n{\"type\":\"response_item\",\"payload\":{\"text\":\"";
    let ends = format!("\"}}}}\n{}", user("behind"));
    let long = std::io::repeat(b'x').take(300 << 20);
    let reader =
        std::io::BufReader::with_capacity(1 << 20, begins.as_bytes().chain(long).chain(ends.as_bytes()));
    let mut builder = BookBuilder::new(None);
    builder
        .part(reader, "s", HistoryEnd::default())
        .expect("bytes are read");
    let (book, _) = builder.finish().expect("a book");
    assert_eq!((book.turns(), book.damages), (1, 1));
    assert_eq!(book.record_id(0), "l3");
}
