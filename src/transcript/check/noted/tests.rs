use proptest::prelude::*;

use super::*;
use crate::transcript::fields::Fields;
use crate::transcript::lines::{text_of_same_length, trimmed};
use crate::transcript::record::{Block, Record};
use crate::transcript::scan::{Scanned, Scanner};

/// A line as `record` reads it: the words by which the scanner is judged.
fn decoded(line: &[u8]) -> Scanned<Said> {
    let bytes = trimmed(line);
    if bytes.is_empty() {
        return Scanned::Blank;
    }
    let text = text_of_same_length(bytes);
    let Some(record) = Record::parse(&text) else {
        return Scanned::Garbage;
    };
    let mut said = Said {
        strange: strange(&record),
        version: record.fields.text("version"),
        session_id: record.fields.text("sessionId"),
        ..Said::default()
    };
    if let Some(result) = record.fields.object("toolUseResult") {
        let is_name = |id: &String| !id.is_empty() && !id.contains(['/', '\0']);
        let subagent = result.text("agentId").filter(is_name).map(SideFile::Subagent);
        let path = result.text("persistedOutputPath").map(SideFile::ToolResult);
        said.files = path.into_iter().chain(subagent).collect();
    }
    for block in record.message().map(|message| message.blocks).unwrap_or_default() {
        match block {
            Block::ToolUse(call) => said.items.push(Item::Call {
                id: hash_of(&call.id),
                tool: quoted(&call.name),
            }),
            Block::ToolResult {
                tool_use_id, text, ..
            } => {
                said.items.push(Item::Result {
                    id: hash_of(&tool_use_id),
                });
                said.files.extend(persisted_path(&text));
            }
            _ => {}
        }
    }
    Scanned::Record(said)
}

/// What of a record is not known, as the history tells it.
fn strange(record: &Record<'_>) -> Option<Strange> {
    let kind = record.fields.text("type")?;
    if !CHAIN_KINDS.contains(&kind.as_str()) {
        return Some(Strange::Kind(quoted(&kind)));
    }
    if !matches!(kind.as_str(), "user" | "assistant") {
        return None;
    }
    let content = record
        .fields
        .object("message")
        .and_then(|message| message.raw("content"));
    if content.is_none_or(|content| !content.get().starts_with(['"', '['])) {
        return Some(Strange::Content);
    }
    let blocks = record.message().unwrap_or_default().blocks;
    let strange = blocks.into_iter().find_map(|block| match block {
        Block::ToolResult { strange, .. } => strange.into_iter().next().map(type_of),
        Block::Text(_) | Block::ToolUse(_) => None,
        Block::Other { kind, .. } if is_known_block(kind.as_bytes()) => None,
        Block::Other { kind, json } if kind == "thinking" => {
            let text = Fields::parse(&json).and_then(|thought| thought.text("thinking"));
            text.is_none().then_some(kind)
        }
        Block::Other { kind, .. } => Some(kind),
    });
    strange.map(Strange::Part)
}

fn type_of(block: Block) -> String {
    match block {
        Block::Other { kind, .. } => kind,
        Block::ToolUse(_) => "tool_use".to_owned(),
        Block::ToolResult { .. } => "tool_result".to_owned(),
        Block::Text(_) => "text".to_owned(),
    }
}

fn scanned(line: &[u8], piece: usize) -> Scanned<Said> {
    let mut scanner = Scanner::<SaidNoted>::default();
    for piece in line.chunks(piece) {
        assert_eq!(scanner.feed(piece), (piece.len(), false));
    }
    scanner.finish()
}

/// JSON in which the names that matter stand at all depths.
fn json() -> impl Strategy<Value = String> {
    let text = prop::sample::select(vec![
        "tool_use",
        "tool_result",
        "text",
        "t1",
        "t2",
        "a/b",
        "",
        "Bash",
        "te\\u0078t",
        "user",
        "thinking",
        "image",
        "hologram",
        "\\ud83d",
        "\\ud83d\\ude00é\\n",
        "<persisted-output>\\nFull output saved to: /p/tool-results/x.txt\\n\\nPreview",
        "<persisted-output>",
        "saved to: tool-results/y",
    ]);
    let scalar = prop_oneof![
        5 => text.prop_map(|text| format!("\"{text}\"")),
        1 => prop::sample::select(vec!["true", "null", "1", "[]", "{}", "01", "]"]).prop_map(str::to_owned),
    ];
    scalar.prop_recursive(6, 60, 6, |value| {
        let name = prop::sample::select(vec![
            "type", "type", "id", "name", "tool_use_id", "content", "content", "text", "thinking", "message", "message", "toolUseResult", "agentId",
            "persistedOutputPath", "sessionId", "input", "version", "cont\\u0065nt",
        ]);
        let member = (name, value.clone()).prop_map(|(name, value)| format!("\"{name}\":{value}"));
        prop_oneof![
            1 => prop::collection::vec(value, 0..4).prop_map(|items| format!("[{}]", items.join(", "))),
            3 => prop::collection::vec(member, 0..7).prop_map(|members| format!("{{{}}}", members.join(" ,"))),
        ]
    })
}

/// Records of messages, well formed.
fn messages() -> impl Strategy<Value = String> {
    let text = prop::sample::select(vec![
        "\"x\"",
        "7",
        "\"<persisted-output>\\nsaved to: /p/tool-results/x.txt\\nrest\"",
        "\" \\n<persisted-output> saved to: \\ud83d/tool-results/\\u00fc \\n\"",
        "\"saved to: /p/tool-results/z\"",
        "\"<persisted-output>\"",
    ]);
    let id = prop::sample::select(vec!["\"t1\"", "\"t2\"", "\"t\\u0033\"", "null"]);
    let answer = prop_oneof![
        3 => text.clone().prop_map(str::to_owned),
        2 => prop::collection::vec((prop::sample::select(vec!["text", "image", "hologram", "tool_use"]), text.clone()), 0..3).prop_map(|blocks| {
            let blocks: Vec<String> = blocks.iter().map(|(kind, text)| format!(r#"{{"type":"{kind}","text":{text}}}"#)).collect();
            format!("[{}]", blocks.join(","))
        }),
        1 => prop::collection::vec(text.clone(), 0..3).prop_map(|texts| format!("[{}]", texts.join(","))),
    ];
    let block = prop_oneof![
        (id.clone(), text.clone()).prop_map(|(id, name)| format!(
            r#"{{"type":"tool_use","id":{id},"name":{name},"input":{{"id":1}}}}"#
        )),
        (id, answer).prop_map(|(id, answer)| format!(
            r#"{{"tool_use_id":{id},"content":{answer},"type":"tool_result"}}"#
        )),
        text.clone()
            .prop_map(|text| format!(r#"{{"type":"text","text":{text}}}"#)),
        text.clone()
            .prop_map(|text| format!(r#"{{"type":"thinking","thinking":{text}}}"#)),
        text.prop_map(|text| format!(r#"{{"text":{text},"type":"hologram"}}"#)),
        Just("7".to_owned()),
    ];
    let result = prop::sample::select(vec![
        "",
        r#","toolUseResult":{"agentId":"x7","persistedOutputPath":"/a"}"#,
        r#","toolUseResult":{"agentId":"../x"}"#,
        r#","toolUseResult":"x","sessionId":"s2""#,
        r#","type":"hologram","version":"9""#,
        r#","type":"hologram","version":"9","type":"system","version":9"#,
        r#","message":{"content":{"text":"x"}}"#,
        r#","message":{"content":[],"content":null}"#,
        r#","message":"x""#,
    ]);
    (prop::collection::vec(block, 0..5), result).prop_map(|(blocks, result)| {
        format!(
            r#"{{"type":"user","message":{{"content":[{}]}}{result}}}"#,
            blocks.join(",")
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn both_ways_say_the_same(line in json(), piece in 1usize..40) {
        prop_assert_eq!(scanned(line.as_bytes(), piece), decoded(line.as_bytes()));
    }

    #[test]
    fn both_ways_say_the_same_of_messages(line in messages(), piece in 1usize..40) {
        prop_assert_eq!(scanned(line.as_bytes(), piece), decoded(line.as_bytes()));
    }
}

#[test]
fn a_long_result_is_looked_at_as_far_as_a_file_is_named_there() {
    let line = |before: usize, behind: usize| {
        format!(
            r#"{{"message":{{"content":[{{"type":"tool_result","tool_use_id":"t","content":"<persisted-output>{}saved to: tool-results/é\n{}"}}]}}}}"#,
            " ".repeat(before),
            "x".repeat(behind)
        )
    };
    let long = line(0, 10 * RESULT_BYTES);
    assert_eq!(scanned(long.as_bytes(), 4096), decoded(long.as_bytes()));
    let Scanned::Record(said) = scanned(line(RESULT_BYTES, 0).as_bytes(), 4096) else {
        panic!("a record");
    };
    assert_eq!((said.files.len(), said.items.len()), (0, 1));
}

#[test]
fn of_a_name_that_is_given_twice_the_last_value_counts() {
    for block in [
        r#"{"type":"tool_result","tool_use_id":"t1","tool_use_id":null}"#,
        r#"{"type":"tool_use","id":"t1","name":"x","id":2}"#,
        r#"{"type":"tool_use","id":"t1","name":"x","name":[]}"#,
        r#"{"type":"tool_use","id":"t1","name":"x","type":0}"#,
        r#"{"type":"tool_result","tool_use_id":"t","content":"<persisted-output>saved to: tool-results/a","content":"x"}"#,
        r#"{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"<persisted-output>saved to: tool-results/a","text":1}]}"#,
    ] {
        let line = format!(r#"{{"message":{{"content":[{block}]}}}}"#);
        assert_eq!(scanned(line.as_bytes(), 7), decoded(line.as_bytes()), "{line}");
    }
}

#[test]
fn of_a_record_with_too_many_calls_it_is_known_that_there_are_more() {
    let line = |results: usize| {
        let block = r#"{"type":"tool_result","tool_use_id":"t"}"#;
        format!(
            r#"{{"message":{{"content":[{}]}}}}"#,
            vec![block; results].join(",")
        )
    };
    for (results, noted, has_more) in [
        (ITEMS_LIMIT, ITEMS_LIMIT, false),
        (ITEMS_LIMIT + 1, ITEMS_LIMIT, true),
    ] {
        let Scanned::Record(said) = scanned(line(results).as_bytes(), 65_536) else {
            panic!("a record");
        };
        assert_eq!((said.items.len(), said.has_more), (noted, has_more));
    }
}
