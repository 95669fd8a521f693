use proptest::prelude::*;

use super::*;
use crate::transcript::fields::Fields;
use crate::transcript::scan::tests::pruned::{assert_same, json};

fn facts(fields: Fields<'_>) -> LineFacts {
    LineFacts::of(&RolloutLine::of(fields))
}

#[test]
fn of_what_codex_wrote_the_same_is_read() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/transcripts/codex");
    let mut lines = 0;
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let text = std::fs::read(entry.expect("a file").path()).expect("a file");
        for line in text.split(|byte| *byte == b'\n') {
            assert_same(&MEMBERS, line, 4096, facts);
            lines += 1;
        }
    }
    assert!(lines > 250, "{lines}");
}

#[test]
fn numbers_count_when_they_are_whole_and_not_too_large() {
    for (number, expected) in [
        ("0", Some(0)),
        ("17", Some(17)),
        ("18446744073709551615", Some(u64::MAX)),
        ("18446744073709551616", None),
        ("184467440737095516150", None),
        ("-1", None),
        ("-0", None),
        ("1.0", None),
        ("1e3", None),
        ("\"5\"", None),
        ("[5]", None),
        ("null", None),
    ] {
        let line = format!(r#"{{"ordinal":{number},"type":"x","payload":{{}}}}"#);
        assert_same(&MEMBERS, line.as_bytes(), 7, facts);
        assert_eq!(
            facts(Fields::parse(&line).expect("an object")).ordinal,
            expected,
            "{line}"
        );
    }
}

/// The end of a text is read too, however long it is.
#[test]
fn a_long_text_of_codex_is_known_by_its_end() {
    for (text, role) in [
        ("<skill>{}\n</skill>\n", LineRole::Item),
        ("<skill>{}\n</skill> what is this?", LineRole::Prompt),
        (
            "# AGENTS.md instructions for /p\n\n<INSTRUCTIONS>{}\n</INSTRUCTIONS>",
            LineRole::Item,
        ),
        (
            "# AGENTS.md instructions for /p\n\n<INSTRUCTIONS>{}\nshorten these",
            LineRole::Prompt,
        ),
    ] {
        for inner in ["é\"\\\n", "word ", "\u{1f600}"] {
            for times in (0..140).chain([100_000]) {
                let text = text.replace("{}", &inner.repeat(times));
                let item =
                    serde_json::json!({"type": "message", "role": "user", "content": [{"text": text}]});
                let line = serde_json::json!({"type": "response_item", "payload": item}).to_string();
                assert_same(&MEMBERS, line.as_bytes(), 77, facts);
                assert_eq!(
                    facts(Fields::parse(&line).expect("an object")).role,
                    role,
                    "{times}"
                );
            }
        }
    }
}

const NAMES: &[&str] = &[
    "type",
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
    "content",
    "text",
    "internal_chat_message_metadata_passthrough",
    "content_item_metadata",
    "content_item_kinds",
    "provenance",
];
const STRINGS: &[&str] = &[
    "session_meta",
    "response_item",
    "event_msg",
    "turn_context",
    "compacted",
    "message",
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
    "user",
    "\\u0075ser",
    "assistant",
    "developer",
    "<environment_context>",
    "\\u003cturn_aborted>",
    "<skill>\\n</skill>",
    "# AGENTS.md instructions\\n</INSTRUCTIONS>",
    "unknown",
    "user.text",
    "a1",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// The table names all that is read of a line.
    #[test]
    fn of_a_pruned_line_the_same_is_read(line in json(NAMES, STRINGS), piece in 1usize..40) {
        assert_same(&MEMBERS, line.as_bytes(), piece, facts);
    }

    #[test]
    fn of_a_pruned_item_the_same_is_read(
        kind in prop::sample::select(vec!["response_item", "event_msg", "turn_context", "compacted", "session_meta", "x"]),
        name in prop::sample::select(vec!["message", "task_started", "task_complete", "error", "thread_rolled_back", "thread_name_updated"]),
        part in json(NAMES, STRINGS),
        owner in json(NAMES, STRINGS),
        part_kind in json(NAMES, STRINGS),
        rest in prop::sample::select(vec![
            "",
            r#","error":{"message":"x"}"#,
            r#","num_turns":2,"cwd":"/home/u","thread_name":"n\u00fc""#,
            r#","id":"s","history_base":{"thread_id":"b","end_ordinal_exclusive":4,"end_byte_offset":99}"#,
            r#","id":"s","forked_from_id":"f""#,
        ]),
        is_bare in any::<bool>(),
    ) {
        let item = format!(
            r#""type":"{name}","role":"user","content":[{part},{{"text":"x"}}],"internal_chat_message_metadata_passthrough":{{"turn_id":"p","content_item_metadata":[{{"provenance":{owner}}},{owner}],"content_item_kinds":[{part_kind},"user.text"]}}{rest}"#
        );
        let line = match is_bare {
            true => format!("{{{item}}}"),
            false => format!(r#"{{"timestamp":"x","ordinal":4,"type":"{kind}","payload":{{{item}}}}}"#),
        };
        assert_same(&MEMBERS, line.as_bytes(), 4096, facts);
    }
}
