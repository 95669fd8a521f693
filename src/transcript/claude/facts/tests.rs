use proptest::prelude::*;

use super::*;
use crate::transcript::scan::tests::pruned::{assert_same, json, pruned};
use crate::transcript::scan::{ID_LIMIT_BYTES, Scanned};

fn facts(fields: Fields<'_>) -> RecordFacts {
    RecordFacts::of(&Record { fields })
}

fn read(line: &str) -> RecordFacts {
    match pruned(&INDEX, line.as_bytes(), 65_536, |record| facts(record.fields())) {
        Scanned::Record(facts) => facts,
        other => panic!("{other:?}: {line}"),
    }
}

#[test]
fn roles_are_told_apart() {
    let user = |rest: &str| format!(r#"{{"uuid":"u","type":"user",{rest}}}"#);
    let content = |content: &str| user(&format!(r#""message":{{"content":{content}}}"#));
    let table = [
        (content(r#""hi""#), RecordRole::Prompt),
        (content(r#"[{"type":"text","text":"hello"}]"#), RecordRole::Prompt),
        (
            content(r#"[{"type":"text","text":"[Request interrupted by user]"}]"#),
            RecordRole::OtherUser,
        ),
        (content(r#"[{"type":"image"},"said"]"#), RecordRole::Prompt),
        (
            content(r#"[{"type":"image","source":{"type":"base64"}}]"#),
            RecordRole::Prompt,
        ),
        (
            content(r#"[{"source":{},"type":"document"}]"#),
            RecordRole::Prompt,
        ),
        (
            content(r#"[{"type":"tool_result","tool_use_id":"t"},{"type":"image"}]"#),
            RecordRole::OtherUser,
        ),
        (
            content(r#"[{"type":"tool_result","tool_use_id":"t","content":[]},{"type":"text","text":"x"}]"#),
            RecordRole::OtherUser,
        ),
        (content(r#"[{"type":"thought"}]"#), RecordRole::OtherUser),
        (content(r#"[["said"]]"#), RecordRole::OtherUser),
        (content(r#""\u003ccommand-name>/x""#), RecordRole::Aside),
        (
            user(r#""isMeta":true,"message":{"content":"hi"}"#),
            RecordRole::OtherUser,
        ),
        (
            user(r#""isMeta":true,"message":{"content":[{"type":"document"}]}"#),
            RecordRole::OtherUser,
        ),
        (
            user(r#""origin":{"kind":"task"},"message":{"content":"hi"}"#),
            RecordRole::OtherUser,
        ),
        (user(r#""origin":{"kind":"human"}"#), RecordRole::Prompt),
        (
            user(r#""isSidechain":true,"message":{"content":"hi"}"#),
            RecordRole::OtherUser,
        ),
        (
            user(r#""toolUseResult":null,"message":{"content":"hi"}"#),
            RecordRole::ToolResult,
        ),
        (
            r#"{"message":{"id":"m"},"uuid":"u","type":"assistant"}"#.to_owned(),
            RecordRole::Assistant,
        ),
        (
            r#"{"uuid":"u","type":"user","type":"system"}"#.to_owned(),
            RecordRole::Other,
        ),
    ];
    for (line, expected) in table {
        assert_eq!(read(&line).chain.expect("in the chain").role, expected, "{line}");
    }
}

#[test]
fn an_id_that_is_too_long_is_as_good_as_none() {
    let line = |length: usize| format!(r#"{{"uuid":"{}"}}"#, "x".repeat(length));
    assert!(read(&line(ID_LIMIT_BYTES)).chain.is_some());
    assert_eq!(read(&line(ID_LIMIT_BYTES + 1)), RecordFacts::default());
}

const NAMES: &[&str] = &[
    "type",
    "type",
    "uuid",
    "uuid",
    "parentUuid",
    "cwd",
    "customTitle",
    "leafUuid",
    "forkedFrom",
    "sessionId",
    "messageUuid",
    "logicalParentUuid",
    "isSidechain",
    "isMeta",
    "isCompactSummary",
    "toolUseResult",
    "compactMetadata",
    "preservedSegment",
    "tailUuid",
    "origin",
    "kind",
    "message",
    "message",
    "id",
    "content",
    "content",
    "text",
    "tool_use_id",
];
const STRINGS: &[&str] = &[
    "user",
    "user",
    "assistant",
    "system",
    "text",
    "tool_result",
    "image",
    "document",
    "custom-title",
    "last-prompt",
    "human",
    "u1",
    "\\u0075ser",
    "te\\u0078t",
    "[Request interrupted by user]",
    "\\u005bRequest interrupted by user for tool use]",
    "<command-name>/x",
    "<local-command-stdout>",
    "0b7e5b0e-1f7c-4d3a-9a51-8d6f2c3e4a5b",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// The table names all that is read of a record.
    #[test]
    fn of_a_pruned_record_the_same_is_read(line in json(NAMES, STRINGS), piece in 1usize..40) {
        assert_same(&INDEX, line.as_bytes(), piece, facts);
    }

    #[test]
    fn of_a_pruned_message_the_same_is_read(rest in json(NAMES, STRINGS), content in json(NAMES, STRINGS)) {
        let line = format!(r#"{{"uuid":"u","type":"user","message":{{"content":[{content},{rest}]}},"x":{rest}}}"#);
        assert_same(&INDEX, line.as_bytes(), 4096, facts);
    }
}
