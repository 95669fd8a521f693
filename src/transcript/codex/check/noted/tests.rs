use proptest::prelude::*;

use super::*;
use crate::transcript::codex::line::{LineKind, RolloutLine};
use crate::transcript::fields::Fields;
use crate::transcript::scan::{Scanned, Scanner};

/// A line as `line` reads it where `serde_json` takes it, as Codex reads: the words by which the scanner is judged.
fn decoded(text: &str) -> Scanned<Said> {
    if serde_json::from_str::<serde_json::Value>(text).is_err() {
        return Scanned::Garbage;
    }
    let Some(record) = RolloutLine::parse(text) else {
        return Scanned::Garbage;
    };
    let payload = &record.payload;
    let item = || {
        let id = hash_of(&payload.text("call_id")?);
        let kind = payload.text("type")?;
        if kind.ends_with("_output") {
            return Some(Item::Result { id });
        }
        let tool = quoted(&payload.text("name").unwrap_or_else(|| kind.clone()));
        kind.ends_with("_call").then_some(Item::Call { id, tool })
    };
    let is_item = record.kind == LineKind::Item;
    let line = Fields::parse(text);
    let has_envelope = line.as_ref().is_some_and(|line| line.object("payload").is_some());
    let kind = line.and_then(|line| line.text("type"));
    let strange = if is_item {
        strange(payload)
    } else {
        let unknown = kind.as_deref().filter(|kind| !KINDS.contains(kind));
        let lacks = (kind.as_deref() == Some("response_item") && !has_envelope).then_some(Strange::Content);
        unknown.map(|kind| Strange::Kind(quoted(kind))).or(lacks)
    };
    Scanned::Record(Said {
        has_envelope,
        strange,
        version: payload.text("cli_version"),
        item: item().filter(|_| is_item),
    })
}

/// What of an item is not known.
fn strange(item: &Fields<'_>) -> Option<Strange> {
    let Some(kind) = item.text("type") else {
        return Some(Strange::Kind(String::new()));
    };
    let part = |json: &str| {
        let Some(part) = Fields::parse(json) else {
            return Some(String::new());
        };
        let kind = part.text("type").unwrap_or_default();
        let member = match kind.as_str() {
            "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text" => "text",
            "input_image" => "image_url",
            "input_audio" | "input_file" | "encrypted_content" => return None,
            _ => return Some(kind),
        };
        part.text(member).is_none().then_some(kind)
    };
    let strange =
        |fields: &Fields<'_>, name: &str| match fields.raw(name).map(serde_json::value::RawValue::get) {
            None | Some("null") => None,
            Some(_) => match fields.array(name) {
                Some(parts) => parts.iter().find_map(|json| part(json.get())).map(Strange::Part),
                None => Some(Strange::Content),
            },
        };
    match kind.as_str() {
        "message" => match item.text("role").unwrap_or_default().as_str() {
            "user" | "assistant"
                if matches!(
                    item.raw("content").map(serde_json::value::RawValue::get),
                    None | Some("null")
                ) =>
            {
                Some(Strange::Content)
            }
            "user" | "assistant" => strange(item, "content"),
            "developer" | "system" => None,
            role => Some(Strange::Kind(format!("message of {role}"))),
        },
        "reasoning" => strange(item, "content").or_else(|| strange(item, "summary")),
        "function_call_output" | "custom_tool_call_output" | "mcp_tool_call_output" => {
            if item.text("output").is_some() {
                return None;
            }
            match item.object("output") {
                Some(output) if output.text("content").is_some() => None,
                Some(output) if output.array("content").is_some() => strange(&output, "content"),
                Some(_) => Some(Strange::Content),
                None => strange(item, "output"),
            }
        }
        kind if ITEMS.contains(&kind) => None,
        kind => Some(Strange::Part(quoted(kind))),
    }
}

fn scanned(line: &str, piece: usize) -> Scanned<Said> {
    let mut scanner = Scanner::<SaidNoted>::default();
    for piece in line.as_bytes().chunks(piece) {
        assert_eq!(scanner.feed(piece), (piece.len(), false));
    }
    scanner.finish()
}

/// Lines in which the names that matter stand at all depths, and twice.
fn lines() -> impl Strategy<Value = String> {
    let text = prop::sample::select(vec![
        "response_item",
        "session_meta",
        "message",
        "function_call",
        "function_call_output",
        "local_shell_call",
        "mcp_tool_call_output",
        "hologram",
        "tool_\\u0063all",
        "c1",
        "c\\u0031",
        "reasoning",
        "user",
        "developer",
        "input_text",
        "input_image",
        "rich_text",
        "\\ud83d",
        "",
    ]);
    let scalar = prop_oneof![
        8 => text.prop_map(|text| format!("\"{text}\"")),
        1 => prop::sample::select(vec!["true", "null", "1", "[]", "{}", "01", "]"]).prop_map(str::to_owned),
    ];
    let value = scalar.prop_recursive(3, 30, 6, |value| {
        let name = prop::sample::select(vec![
            "type", "type", "call_id", "name", "id", "payload", "payload", "cli_version", "typ\\u0065", "role", "content", "content",
            "summary", "output", "text", "image_url",
        ]);
        let member = (name, value.clone()).prop_map(|(name, value)| format!("\"{name}\":{value}"));
        prop_oneof![
            1 => prop::collection::vec(value, 0..3).prop_map(|items| format!("[{}]", items.join(", "))),
            6 => prop::collection::vec(member, 0..7).prop_map(|members| format!("{{{}}}", members.join(" ,"))),
        ]
    });
    let kind = prop::sample::select(vec![
        r#""type":"response_item","#,
        r#""type":"session_meta","#,
        r#""type":"hologram","#,
        "",
    ]);
    prop_oneof![
        1 => value.clone(),
        2 => (kind, value).prop_map(|(kind, value)| format!("{{{kind}\"payload\":{value}}}")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn both_ways_say_the_same(line in lines(), piece in 1usize..40) {
        prop_assert_eq!(scanned(&line, piece), decoded(&line));
    }
}

#[test]
fn calls_and_results_are_noted_with_and_without_an_envelope() {
    let call = r#"{"type":"function_call","call_id":"c1","name":"exec"}"#;
    for line in [
        call.to_owned(),
        format!(r#"{{"type":"response_item","payload":{call}}}"#),
    ] {
        let Scanned::Record(said) = scanned(&line, 7) else {
            panic!("a record");
        };
        let tool = "exec".to_owned();
        assert_eq!(
            said.item,
            Some(Item::Call {
                id: hash_of("c1"),
                tool
            })
        );
    }
}
