use proptest::prelude::*;

use super::*;
use crate::transcript::lines::{text_of_same_length, trimmed};
use crate::transcript::record::Record;
use crate::transcript::scan::Scanner;

type Scanned = crate::transcript::scan::Scanned<Seen>;

/// A line as `record` reads it: the words by which the scanner is judged.
fn parsed(line: &[u8]) -> Scanned {
    let bytes = trimmed(line);
    if bytes.is_empty() {
        return Scanned::Blank;
    }
    let text = text_of_same_length(bytes);
    match Record::parse(&text) {
        Some(record) => Scanned::Record(Seen::of(&record)),
        None => Scanned::Garbage,
    }
}

fn scanned_in_pieces(line: &[u8], piece: usize) -> Scanned {
    let mut scanner = Scanner::<ChainNoted>::default();
    for piece in line.chunks(piece.max(1)) {
        assert_eq!(scanner.feed(piece), (piece.len(), false));
    }
    scanner.finish()
}

fn scanned(line: &[u8]) -> Scanned {
    scanned_in_pieces(line, line.len())
}

fn role(line: &str) -> Role {
    match scanned(line.as_bytes()) {
        Scanned::Record(Seen {
            chain: Some(note), ..
        }) => note.role,
        other => panic!("{other:?}: {line}"),
    }
}

#[test]
fn what_the_agents_parser_refuses_is_garbage() {
    for line in [
        "",
        " ",
        "x",
        "[]",
        "1",
        "null",
        "{",
        "{}}",
        "{} {}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{,}",
        "{\"a\":[1,]}",
        "{\"a\":[,1]}",
        "{\"a\":[1 2]}",
        "{\"a\":{]}",
        "{\"a\":[}]}",
        "{\"a\":tru}",
        "{\"a\":truex}",
        "{\"a\":nul",
        "{'a':1}",
        "{a:1}",
        "{\"a\":01}",
        "{\"a\":1.}",
        "{\"a\":.5}",
        "{\"a\":+1}",
        "{\"a\":-}",
        "{\"a\":1e}",
        "{\"a\":1e+}",
        "{\"a\":--1}",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\\u12g4\"}",
        "{\"a\":\"\\u12\"}",
        "{\"a\":\"\t\"}",
        "{\"a\":\"\u{1}\"}",
        "{\"a\":\"\0\"}",
        "{\"a\":\"x",
        "{\"a\":\"x\\\"}",
        "{\"a\":1}\0x",
        "{\"a\" \0:1}",
        "\u{feff}x",
        "{\u{feff}}",
        "{\"a\":1}\u{feff}x",
    ] {
        assert_eq!(scanned(line.as_bytes()), parsed(line.as_bytes()), "{line:?}");
        assert!(
            !matches!(scanned(line.as_bytes()), Scanned::Record(_)),
            "{line:?}"
        );
    }
    for line in [
        &b"{\"a\":1}\xFF"[..],
        b"\xFF{}",
        b"\xEF\xBB{}",
        b"\xEF\xBB",
        b"{\xC3\xA9}",
    ] {
        assert_eq!(scanned(line), Scanned::Garbage, "{line:?}");
    }
}

#[test]
fn what_it_takes_is_a_record() {
    for line in [
        "{}",
        " { } ",
        "\u{feff}{}",
        "\0\0{}\0\r",
        "{\"a\":[[],{},[{}]]}",
        "{\"a\":-0.5e-10, \"b\" : [1,2 , 3] }",
        "{\"a\":\"\\ud83d\"}",
        "{\"a\\ud83d\":1,\"\\udc00x\":{\"\\ud83d\":2}}",
        "{\"\":null,\"\":true,\"\":false}",
        "{\"a\":\"\u{7f}é\"}",
        "{\"a\":0}",
        "{\"a\":1E5}",
    ] {
        assert_eq!(
            scanned(line.as_bytes()),
            Scanned::Record(Seen::default()),
            "{line:?}"
        );
        assert_eq!(
            parsed(line.as_bytes()),
            Scanned::Record(Seen::default()),
            "{line:?}"
        );
    }
    assert_eq!(scanned(b"{\"a\":\"\xFF\xFE\"}"), Scanned::Record(Seen::default()));
    let deep = [b"{\"a\":".as_slice(), &[b'['; 10_000], &[b']'; 10_000], b"}"].concat();
    assert_eq!(scanned(&deep), Scanned::Record(Seen::default()));
    assert_eq!(scanned(&deep[..deep.len() - 2]), Scanned::Garbage);
}

#[test]
fn roles_are_told_apart() {
    let user = |rest: &str| format!(r#"{{"uuid":"u","type":"user",{rest}}}"#);
    let text = |text: &str| {
        user(&format!(
            r#""message":{{"content":[{{"type":"text","text":"{text}"}}]}}"#
        ))
    };
    let table = [
        (user(r#""message":{"content":"hi"}"#), Role::Prompt),
        (
            user(r#""isMeta":true,"message":{"content":"hi"}"#),
            Role::OtherUser,
        ),
        (
            user(r#""message":{"content":"\u003ccommand-name>/x"}"#),
            Role::Aside,
        ),
        (
            user(r#""origin":{"kind":"task"},"message":{"content":"hi"}"#),
            Role::OtherUser,
        ),
        (user(r#""origin":{"kind":"human"}"#), Role::Prompt),
        (
            user(r#""isSidechain":true,"message":{"content":"hi"}"#),
            Role::OtherUser,
        ),
        (
            user(r#""toolUseResult":null,"message":{"content":"hi"}"#),
            Role::ToolResult,
        ),
        (
            user(
                r#""message":{"content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"x"}]},{"type":"text","text":"x"}]}"#,
            ),
            Role::OtherUser,
        ),
        (
            user(r#""message":{"content":[{"type":"image"},"said"]}"#),
            Role::Prompt,
        ),
        (user(r#""message":{"content":[["said"]]}"#), Role::OtherUser),
        (
            user(r#""message":{"content":[{"type":"image","source":{"type":"base64"}}]}"#),
            Role::Prompt,
        ),
        (
            user(r#""message":{"content":[{"source":{},"type":"document"}]}"#),
            Role::Prompt,
        ),
        (
            user(r#""isMeta":true,"message":{"content":[{"type":"document"}]}"#),
            Role::OtherUser,
        ),
        (
            user(r#""message":{"content":[{"type":"tool_result","tool_use_id":"t"},{"type":"image"}]}"#),
            Role::OtherUser,
        ),
        (
            user(r#""message":{"content":[{"type":"thought"}]}"#),
            Role::OtherUser,
        ),
        (text("[Request interrupted by user]"), Role::OtherUser),
        (text("hello"), Role::Prompt),
        (
            r#"{"message":{"id":"m"},"uuid":"u","type":"assistant"}"#.to_owned(),
            Role::Assistant,
        ),
        (
            r#"{"uuid":"u","type":"user","type":"system"}"#.to_owned(),
            Role::Other,
        ),
    ];
    for (line, expected) in table {
        assert_eq!(role(&line), expected, "{line}");
        assert_eq!(scanned(line.as_bytes()), parsed(line.as_bytes()), "{line}");
    }
}

#[test]
fn of_a_name_that_is_given_twice_the_last_value_counts() {
    for line in [
        r#"{"uuid":"a","uuid":"b"}"#,
        r#"{"uuid":"a","uuid":1}"#,
        r#"{"uuid":"a","type":"user","message":{"content":"hi"},"message":"x"}"#,
        r#"{"uuid":"a","type":"user","message":{"content":"<command-","content":[]}}"#,
        r#"{"uuid":"a","type":"user","message":{"content":[{"type":"text","text":"x","text":1}]}}"#,
        r#"{"uuid":"a","type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"x","type":"text"}]}}"#,
        r#"{"uuid":"a","type":"user","isMeta":true,"isMeta":"true","message":{"content":"x"}}"#,
        r#"{"uuid":"a","type":"user","origin":{"kind":"human"},"origin":[]}"#,
        r#"{"uuid":"a","type":"user","origin":{"kind":"human","kind":2}}"#,
        r#"{"uuid":"a","parentUuid":"b","parentUuid":null,"message":{"id":"m","id":2}}"#,
    ] {
        assert_eq!(scanned(line.as_bytes()), parsed(line.as_bytes()), "{line}");
    }
}

#[test]
fn an_id_that_is_too_long_is_as_good_as_none() {
    let line = |length: usize| format!(r#"{{"uuid":"{}"}}"#, "x".repeat(length));
    assert!(matches!(
        scanned(line(ID_LIMIT_BYTES).as_bytes()),
        Scanned::Record(Seen { chain: Some(_), .. })
    ));
    assert_eq!(
        scanned(line(ID_LIMIT_BYTES + 1).as_bytes()),
        Scanned::Record(Seen::default())
    );
}

/// JSON in which the names that matter stand at all depths.
fn json() -> impl Strategy<Value = String> {
    let string = prop_oneof![
        prop::sample::select(vec![
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
            "a2",
            "",
            "\\u0075ser",
            "te\\u0078t",
            "[Request interrupted by user]",
            "\\u005bRequest interrupted by user for tool use]",
            "<command-name>/x",
            "<local-command-stdout>",
            "\\n\\n",
            "\\ud83d\\ude00",
            "é",
            "\\ud83d",
            "0b7e5b0e-1f7c-4d3a-9a51-8d6f2c3e4a5b",
            "0B7E5B0E-1F7C-4D3A-9A51-8D6F2C3E4A5B",
            "\\\"",
            "\\\\",
            "a rather long text with \\\"quotes\\\" that goes on and on",
        ])
        .prop_map(str::to_owned),
        "[a-z<\\[]{0,40}",
    ];
    let scalar = prop_oneof![
        4 => string.prop_map(|text| format!("\"{text}\"")),
        2 => prop::sample::select(vec!["true", "false", "null", "1", "-0.5e3", "[]", "{}", "01", "1.", "tru", "\"", "\\", "]"]).prop_map(str::to_owned),
    ];
    scalar.prop_recursive(5, 60, 6, |value| {
        let name = prop::sample::select(vec![
            "type", "uuid", "parentUuid", "cwd", "customTitle", "leafUuid", "forkedFrom", "sessionId", "messageUuid", "logicalParentUuid", "isSidechain", "isMeta", "isCompactSummary", "toolUseResult", "compactMetadata", "preservedSegment", "tailUuid", "origin", "kind", "message", "id",
            "content", "text", "tool_use_id", "other", "t\\u0079pe", "m\\u0065ssage",
            "\\ud83d", "uuid\\udc00",
        ]);
        let space = || prop::sample::select(vec!["", "", "", " ", "\t", "\r"]);
        let member = (name, space(), value.clone(), space())
            .prop_map(|(name, before, value, after)| format!("\"{name}\"{before}:{after}{value}"));
        prop_oneof![
            1 => (prop::collection::vec(value, 0..4), space()).prop_map(|(items, space)| format!("[{}{space}]", items.join(","))),
            4 => (prop::collection::vec(member, 0..7), space()).prop_map(|(members, space)| format!("{{{space}{}}}", members.join(","))),
        ]
    })
}

/// Lines that are well formed, with content that decides what a user record is.
fn records() -> impl Strategy<Value = String> {
    let flag = || prop::sample::select(vec!["true", "false", "null", "\"true\""]);
    let text = prop::sample::select(vec![
        "\"hi\"",
        "\"<command-name>\"",
        "\"\\u003clocal-command-stdout>\"",
        "\"[Request interrupted by user]\"",
        "5",
        "\"\"",
    ]);
    let block = prop_oneof![
        text.clone()
            .prop_map(|text| format!(r#"{{"type":"text","text":{text}}}"#)),
        text.clone()
            .prop_map(|text| format!(r#"{{"text":{text},"type":"text"}}"#)),
        text.clone().prop_map(|text| format!(
            r#"{{"type":"tool_result","tool_use_id":{text},"content":[{{"type":"text","text":"x"}}]}}"#
        )),
        text.clone()
            .prop_map(|text| format!(r#"{{"type":"thinking","thinking":{text}}}"#)),
        prop::sample::select(vec!["image", "document"])
            .prop_map(|kind| format!(r#"{{"type":"{kind}","source":{{"type":"text"}}}}"#)),
        text.clone().prop_map(str::to_owned),
    ];
    let content = prop_oneof![
        text.prop_map(str::to_owned),
        prop::collection::vec(block, 0..4).prop_map(|blocks| format!("[{}]", blocks.join(","))),
    ];
    let kind = prop::sample::select(vec![
        "user",
        "user",
        "user",
        "assistant",
        "system",
        "custom-title",
        "last-prompt",
        "x",
    ]);
    let origin = prop::sample::select(vec![
        "",
        "",
        r#","origin":{"kind":"human"}"#,
        r#","origin":{"kind":"x"}"#,
        r#","origin":null"#,
    ]);
    let result = prop::sample::select(vec![
        "",
        "",
        r#","toolUseResult":{"content":"x"}"#,
        r#","forkedFrom":{"sessionId":"s","messageUuid":"m"},"cwd":"/x""#,
        r#","forkedFrom":{"sessionId":"s","messageUuid":1},"cwd":null,"customTitle":"x""#,
        r#","leafUuid":"u1""#,
    ]);
    (kind, flag(), flag(), flag(), origin, result, content, any::<bool>()).prop_map(
        |(kind, side, meta, summary, origin, result, content, early)| {
            let message = format!(r#","message":{{"role":"x","content":{content},"id":"m"}}"#);
            let (before, behind) = if early { (message.as_str(), "") } else { ("", message.as_str()) };
            format!(
                r#"{{"parentUuid":null{before},"type":"{kind}","isSidechain":{side},"isMeta":{meta},"isCompactSummary":{summary}{origin}{result}{behind},"uuid":"u"}}"#
            )
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
    fn both_readers_see_the_same_roles(line in records(), piece in 1usize..40) {
        let expected = parsed(line.as_bytes());
        let is_chained = matches!(&expected, Scanned::Record(seen) if seen.chain.is_some());
        prop_assert!(is_chained);
        prop_assert_eq!(scanned_in_pieces(line.as_bytes(), piece), expected);
    }

    /// A byte that is another, gone or doubled makes a record garbage for both or for none.
    #[test]
    fn both_readers_see_the_same_damage(line in records(), place in any::<prop::sample::Index>(), byte in any::<u8>(), way in 0..3) {
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

    #[test]
    fn both_readers_see_the_same_in_any_bytes(line in prop::collection::vec(prop::sample::select(b"{}[]\",:\\ut1-.e \t\r\0\xEF\xBB\xBF\xFFx\x01".to_vec()), 0..30)) {
        prop_assert_eq!(scanned(&line), parsed(&line));
    }
}
