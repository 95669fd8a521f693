use proptest::prelude::*;

use super::*;
use crate::transcript::codex::item::is_prompt;
use crate::transcript::codex::line::{RolloutLine, number};
use crate::transcript::fields::Fields;
use crate::transcript::lines::text_of_same_length;
use crate::transcript::scan::Scanner;

type Scanned = crate::transcript::scan::Scanned<RolloutNote>;

/// A line as `line` and `item` read it where `serde_json` takes it, as Codex reads: the words by which the scanner is judged.
fn parsed(line: &[u8]) -> Scanned {
    if line.iter().all(|byte| b" \t\r".contains(byte)) {
        return Scanned::Blank;
    }
    if serde_json::from_slice::<serde_json::Value>(line).is_err() {
        return Scanned::Garbage;
    }
    let text = text_of_same_length(line);
    RolloutLine::parse(&text).map_or(Scanned::Garbage, |record| Scanned::Record(note(&record)))
}

fn note(record: &RolloutLine<'_>) -> RolloutNote {
    let event = match record.kind {
        LineKind::Event => record.payload.text("type"),
        _ => None,
    };
    let begins = match record.kind {
        LineKind::Item | LineKind::Context => true,
        LineKind::Event => event.as_deref() == Some("task_started"),
        _ => false,
    };
    let what = match (record.kind, event.as_deref()) {
        (LineKind::Meta, _) => What::Meta(Box::new(record.meta())),
        (LineKind::Context, _) => What::Context(record.payload.text("cwd")),
        (LineKind::Item, _) if is_prompt(&record.payload) => What::Prompt,
        (LineKind::Item, _) if is_message(&record.payload) => What::Item,
        (LineKind::Compacted, _) => What::Compacted,
        (LineKind::Event, Some("thread_rolled_back")) => {
            What::RolledBack(number(&record.payload, "num_turns").unwrap_or(0))
        }
        (LineKind::Event, Some("thread_name_updated")) => What::Named(record.payload.text("thread_name")),
        (LineKind::Event, Some("error")) => What::Failure,
        (LineKind::Event, Some("task_complete")) if record.payload.object("error").is_some() => What::Failure,
        _ => What::Nothing,
    };
    RolloutNote {
        ordinal: record.ordinal,
        turn_id: turn_id(&record.payload).filter(|_| begins).map(Into::into),
        what,
    }
}

fn is_message(item: &Fields<'_>) -> bool {
    match item.text("type").as_deref() {
        Some("message") => matches!(item.text("role").as_deref(), Some("user" | "assistant")),
        Some("ghost_snapshot" | "compaction_trigger") | None => false,
        Some(_) => true,
    }
}

fn turn_id(item: &Fields<'_>) -> Option<String> {
    let passed = || {
        let passed = item.object("internal_chat_message_metadata_passthrough");
        passed.and_then(|passed| passed.text("turn_id"))
    };
    let id = item.text("turn_id").or_else(passed);
    id.filter(|id| !id.is_empty())
}

fn scanned_in_pieces(line: &[u8], piece: usize) -> Scanned {
    let mut scanner = Scanner::<LineNoted>::default();
    for piece in line.chunks(piece.max(1)) {
        assert_eq!(scanner.feed(piece), (piece.len(), false));
    }
    scanner.finish()
}

fn scanned(line: &[u8]) -> Scanned {
    scanned_in_pieces(line, line.len())
}

#[test]
fn both_readers_see_the_same_in_what_codex_wrote() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/transcripts/codex");
    let mut lines = 0;
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let text = std::fs::read(entry.expect("a file").path()).expect("a file");
        for line in text.split(|byte| *byte == b'\n') {
            assert_eq!(scanned(line), parsed(line), "{}", String::from_utf8_lossy(line));
            lines += 1;
        }
    }
    assert!(lines > 250, "{lines}");
}

#[test]
fn of_a_name_that_is_given_twice_the_last_value_counts() {
    for line in [
        r#"{"type":"response_item","payload":{"type":"message"},"payload":7}"#,
        r#"{"type":"event_msg","payload":7,"payload":{"type":"error"},"ordinal":1,"ordinal":"2"}"#,
        r#"{"ordinal":7,"type":"event_msg","type":"turn_context","payload":{"cwd":"/a","cwd":2,"turn_id":"a","turn_id":""}}"#,
        r#"{"type":"event_msg","payload":{"type":"task_complete","error":{},"error":null}}"#,
        r#"{"type":"response_item","payload":{"type":"message","role":"user","content":[{"text":"a","text":1}],"content":[]}}"#,
        r#"{"type":"response_item","payload":{"type":"message","role":"user","content":["a"],"internal_chat_message_metadata_passthrough":{"content_item_metadata":[{"provenance":{"type":"user"},"provenance":1}]}}}"#,
        r#"{"type":"session_meta","payload":{"id":"a","history_base":{"thread_id":"b","end_byte_offset":5,"end_byte_offset":5.0},"history_base":{"thread_id":"c"}}}"#,
    ] {
        assert_eq!(scanned(line.as_bytes()), parsed(line.as_bytes()), "{line}");
    }
}

#[test]
fn numbers_count_when_they_are_whole_and_not_too_large() {
    for (number, expected) in [
        ("0", Some(0)),
        ("17", Some(17)),
        ("18446744073709551615", Some(u64::MAX)),
        ("18446744073709551616", None),
        ("-1", None),
        ("-0", None),
        ("1.0", None),
        ("1e3", None),
        ("\"5\"", None),
        ("[5]", None),
        ("null", None),
    ] {
        let line = format!(r#"{{"ordinal":{number},"type":"x","payload":{{}}}}"#);
        let note = RolloutNote {
            ordinal: expected,
            ..RolloutNote::default()
        };
        assert_eq!(scanned(line.as_bytes()), Scanned::Record(note), "{line}");
        assert_eq!(scanned(line.as_bytes()), parsed(line.as_bytes()), "{line}");
    }
}

/// JSON in which the names that matter stand at all depths.
fn json() -> impl Strategy<Value = String> {
    let string = prop_oneof![
        prop::sample::select(vec![
            "session_meta",
            "response_item",
            "event_msg",
            "turn_context",
            "compacted",
            "message",
            "reasoning",
            "function_call",
            "function_call_output",
            "ghost_snapshot",
            "task_started",
            "task_complete",
            "thread_rolled_back",
            "thread_name_updated",
            "error",
            "user",
            "\\u0075ser",
            "assistant",
            "developer",
            "<environment_context>",
            "\\u003cturn_aborted>",
            "# AGENTS.md",
            "",
            "a1",
            "\\ud83d",
            "é\\n",
            "a rather long text with \\\"quotes\\\" that goes on and on",
        ])
        .prop_map(str::to_owned),
        "[a-z<\\[]{0,30}",
    ];
    let scalar = prop_oneof![
        5 => string.prop_map(|text| format!("\"{text}\"")),
        2 => prop::sample::select(vec!["true", "null", "0", "17", "-1", "1e2", "2.5", "99999999999999999999", "[]", "{}", "01", "tru", "\"", "]"]).prop_map(str::to_owned),
    ];
    scalar.prop_recursive(6, 60, 6, |value| {
        let name = prop::sample::select(vec![
            "type",
            "payload",
            "payload",
            "ordinal",
            "role",
            "id",
            "cwd",
            "thread_name",
            "turn_id",
            "num_turns",
            "error",
            "forked_from_id",
            "history_base",
            "thread_id",
            "end_ordinal_exclusive",
            "end_byte_offset",
            "content",
            "text",
            "internal_chat_message_metadata_passthrough",
            "content_item_metadata",
            "provenance",
            "other",
            "t\\u0079pe",
        ]);
        let member = (name, value.clone()).prop_map(|(name, value)| format!("\"{name}\":{value}"));
        prop_oneof![
            2 => prop::collection::vec(value, 0..4).prop_map(|items| format!("[{}]", items.join(", "))),
            4 => prop::collection::vec(member, 0..7).prop_map(|members| format!("{{{}}}", members.join(","))),
        ]
    })
}

/// Lines that are well formed, with and without an envelope, and whose content decides what they are.
fn lines() -> impl Strategy<Value = String> {
    let text = || {
        prop::sample::select(vec![
            "\"hi\"",
            "\"<environment_context>x\"",
            "\"\\u003cskill>\"",
            "\"\"",
            "5",
            "{\"text\":\"x\"}",
        ])
    };
    let part = prop_oneof![
        4 => text().prop_map(|text| format!(r#"{{"type":"input_text","text":{text}}}"#)),
        1 => Just(r#"{"type":"input_image","image_url":"data:"}"#.to_owned()),
        1 => text().prop_map(str::to_owned),
    ];
    let owner = prop::sample::select(vec![
        r#"{"provenance":{"type":"user"}}"#,
        r#"{"provenance":{"type":"harness"}}"#,
        r#"{"provenance":"user"}"#,
        "{}",
        "7",
    ]);
    let owners = prop::collection::vec(owner, 0..4).prop_map(|owners| owners.join(","));
    let turn = || {
        prop::sample::select(vec![
            "",
            r#""turn_id":"t1","#,
            r#""turn_id":"","#,
            r#""turn_id":3,"#,
        ])
    };
    let passed = (owners, turn(), 0..4).prop_map(|(owners, turn, way)| match way {
        0 => String::new(),
        1 => r#","internal_chat_message_metadata_passthrough":{"turn_id":"p"}"#.to_owned(),
        _ => format!(
            r#","internal_chat_message_metadata_passthrough":{{{turn}"content_item_metadata":[{owners}]}}"#
        ),
    });
    let kind = prop::sample::select(vec![
        "message",
        "message",
        "message",
        "message",
        "reasoning",
        "function_call",
        "ghost_snapshot",
        "task_started",
        "task_complete",
        "error",
        "thread_rolled_back",
        "thread_name_updated",
        "new",
    ]);
    let role = prop::sample::select(vec!["user", "user", "user", "assistant", "developer"]);
    let sort = prop::sample::select(vec![
        "response_item",
        "response_item",
        "response_item",
        "event_msg",
        "event_msg",
        "turn_context",
        "compacted",
        "session_meta",
        "x",
    ]);
    let rest = prop::sample::select(vec![
        "",
        r#","error":{"message":"x"}"#,
        r#","num_turns":2,"cwd":"/home/u","thread_name":"n\u00fc""#,
        r#","id":"s","history_base":{"thread_id":"b","end_ordinal_exclusive":4,"end_byte_offset":99}"#,
        r#","id":"s","forked_from_id":"f""#,
    ]);
    let parts = prop::collection::vec(part, 0..4).prop_map(|parts| parts.join(","));
    (sort, kind, role, turn(), parts, passed, rest, 0..3).prop_map(
        |(sort, kind, role, turn, parts, passed, rest, way)| {
            let item = format!(r#"{turn}"type":"{kind}","role":"{role}","content":[{parts}]{passed}{rest}"#);
            match way {
                0 => format!("{{{item}}}"),
                1 => format!(r#"{{"timestamp":"x","ordinal":4,"type":"{sort}","payload":{{{item}}}}}"#),
                _ => format!(r#"{{"payload":{{{item}}},"type":"{sort}"}}"#),
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever JSON or nearly JSON a line holds, it is the same to both readers, in pieces of any size.
    #[test]
    fn both_readers_see_the_same(line in json(), piece in 1usize..40) {
        let expected = parsed(line.as_bytes());
        prop_assert_eq!(scanned(line.as_bytes()), expected.clone());
        prop_assert_eq!(scanned_in_pieces(line.as_bytes(), piece), expected);
    }

    #[test]
    fn both_readers_see_the_same_lines(line in lines(), piece in 1usize..40) {
        let expected = parsed(line.as_bytes());
        prop_assert!(matches!(expected, Scanned::Record(_)));
        prop_assert_eq!(scanned_in_pieces(line.as_bytes(), piece), expected);
    }

    /// A byte that is another, gone or doubled makes a line garbage for both or for none.
    #[test]
    fn both_readers_see_the_same_damage(line in lines(), place in any::<prop::sample::Index>(), byte in any::<u8>(), way in 0..3) {
        let mut line = line.into_bytes();
        let place = place.index(line.len());
        match way {
            0 => line[place] = byte,
            1 => { line.remove(place); }
            _ => line.insert(place, byte),
        }
        line.retain(|byte| *byte != b'\n');
        prop_assert_eq!(scanned(&line), parsed(&line));
    }
}
