use super::*;

fn header(line: &str) -> RecordHeader {
    Record::parse(line).expect("a record").header()
}

fn is_prompt(line: &str) -> bool {
    let record = Record::parse(line).expect("a record");
    record.is_human_prompt()
}

#[test]
fn the_header_of_a_chain_record() {
    let header = header(
        r#"{"parentUuid":"p","logicalParentUuid":"l","isSidechain":true,"type":"user","uuid":"u","sessionId":"s",
            "origin":{"kind":"human"},"cwd":"/home/u/project","timestamp":"2026-11-20T22:05:50.054Z","isMeta":true,
            "message":{"id":"msg_1","role":"user","content":"hi"},"leafUuid":"f","new":{"x":1e400}}"#,
    );
    assert_eq!(header.kind, RecordKind::User);
    assert_eq!(header.uuid.as_deref(), Some("u"));
    assert_eq!(header.session_id.as_deref(), Some("s"));
    assert_eq!(header.cwd.as_deref(), Some("/home/u/project"));
    assert!(header.is_sidechain && header.is_meta && !header.is_api_error_message);
}

#[test]
fn members_of_another_type_are_absent_and_unknown_kinds_survive() {
    let header = header(r#"{"type":"brand-new","uuid":7,"parentUuid":null,"isMeta":"yes","message":[1]}"#);
    assert_eq!(header.kind, RecordKind::Other);
    assert_eq!((header.uuid, header.is_meta), (None, false));
}

#[test]
fn content_is_text_or_blocks() {
    let text = r#"{"message":{"content":"plain"}}"#;
    let message = Record::parse(text)
        .and_then(|record| record.message())
        .expect("a message");
    assert_eq!(message.blocks, [Block::Text("plain".into())]);

    let blocks = r#"{"message":{"id":"m","model":"x","content":[{"type":"text","text":"a"},
        {"type":"tool_use","id":"t","name":"Read","input":{"n": 1.0}},
        {"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"r"}],"is_error":true},
        {"type":"image","source":{}},{"type":"tool_use"}]}}"#;
    let message = Record::parse(blocks)
        .and_then(|record| record.message())
        .expect("a message");
    assert_eq!(message.id.as_deref(), Some("m"));
    assert_eq!(
        message.blocks[1],
        Block::ToolUse(ToolUse {
            id: "t".into(),
            name: "Read".into(),
            input_json: r#"{"n": 1.0}"#.into()
        })
    );
    assert_eq!(
        message.blocks[2],
        Block::ToolResult {
            tool_use_id: "t".into(),
            text: "r".into(),
            is_error: true,
            strange: Vec::new()
        }
    );
    assert!(matches!(&message.blocks[3], Block::Other { kind, .. } if kind == "image"));
    assert!(matches!(&message.blocks[4], Block::Other { kind, .. } if kind == "tool_use"));
}

#[test]
fn what_has_no_form_that_is_known_is_kept_as_it_stands() {
    let other = |kind: &str, json: &str| Block::Other {
        kind: kind.to_owned(),
        json: json.to_owned(),
    };
    let blocks = |message: &str| {
        let text = format!(r#"{{"type":"user","message":{message}}}"#);
        let record = Record::parse(&text).expect("a record");
        assert!(!record.is_human_prompt(), "{message}");
        record.message().expect("a message").blocks
    };
    for (message, kept) in [
        (r#"{"content":{"text":"obj"}}"#, r#"{"text":"obj"}"#),
        // No picture as it would be in a list, and so no prompt.
        (r#"{"content":{"type":"image"}}"#, r#"{"type":"image"}"#),
        (r#"{"content":7}"#, "7"),
        (r#"{"parts":[{"text":"x"}]}"#, r#"{"parts":[{"text":"x"}]}"#),
        (r#"{"content":null,"body":"x"}"#, r#"{"content":null,"body":"x"}"#),
        (r#""words""#, r#""words""#),
    ] {
        assert_eq!(blocks(message), [other("", kept)], "{message}");
    }
    let rich = r#"{"type":"text","text":{"rich":"words"}}"#;
    assert_eq!(
        blocks(&format!(r#"{{"content":[{rich}]}}"#)),
        [other("text", rich)]
    );
    let answers = format!(
        r#"{{"content":[{{"type":"tool_result","tool_use_id":"t","content":[{rich},{{"type":"image"}},"r"]}},
            {{"type":"tool_result","tool_use_id":"t","content":{{"rows":[1]}}}},{{"type":"tool_result","tool_use_id":"t"}}]}}"#
    );
    let result = |text: &str, strange| Block::ToolResult {
        tool_use_id: "t".to_owned(),
        text: text.to_owned(),
        is_error: false,
        strange,
    };
    assert_eq!(
        blocks(&answers),
        [
            result("r", vec![other("text", rich)]),
            result("", vec![other("", r#"{"rows":[1]}"#)]),
            result("", vec![]),
        ]
    );
    assert!(Record::parse(r#"{"message":null}"#).is_some_and(|record| record.message().is_none()));
}

#[test]
fn how_a_prompt_is_known() {
    let table = [
        (
            true,
            r#"{"type":"user","origin":{"kind":"human"},"message":{"content":[{"type":"text","text":"a"}]}}"#,
        ),
        (
            false,
            r#"{"type":"user","origin":{"kind":"task"},"message":{"content":"a"}}"#,
        ),
        (
            false,
            r#"{"type":"user","origin":{"kind":"human"},"isSidechain":true,"message":{"content":"a"}}"#,
        ),
        (true, r#"{"type":"user","message":{"content":"old and plain"}}"#),
        (
            true,
            r#"{"type":"user","message":{"content":[{"type":"text","text":"old"}]}}"#,
        ),
        (
            true,
            r#"{"type":"user","message":{"content":[{"type":"image","source":{}}]}}"#,
        ),
        (
            true,
            r#"{"type":"user","message":{"content":[{"type":"document","source":{}}]}}"#,
        ),
        (
            false,
            r#"{"type":"user","isMeta":true,"message":{"content":[{"type":"image"}]}}"#,
        ),
        (
            false,
            r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t"},{"type":"image"}]}}"#,
        ),
        (
            false,
            r#"{"type":"user","message":{"content":[{"type":"hologram"}]}}"#,
        ),
        (
            false,
            r#"{"type":"user","isMeta":true,"message":{"content":"a"}}"#,
        ),
        (
            false,
            r#"{"type":"user","isCompactSummary":true,"message":{"content":"a"}}"#,
        ),
        (
            false,
            r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t"}]}}"#,
        ),
        (
            false,
            r#"{"type":"user","toolUseResult":{},"message":{"content":"a"}}"#,
        ),
        (
            false,
            r#"{"type":"user","message":{"content":[{"type":"text","text":"[Request interrupted by user]"}]}}"#,
        ),
        (
            false,
            r#"{"type":"user","message":{"content":"<command-name>/clear</command-name>"}}"#,
        ),
        (
            false,
            r#"{"type":"assistant","origin":{"kind":"human"},"message":{"content":"a"}}"#,
        ),
        (false, r#"{"type":"user"}"#),
    ];
    for (expected, line) in table {
        assert_eq!(is_prompt(line), expected, "{line}");
    }
}

/// Where no record says whose words they are. What a person sends to the model stays a prompt, tagged or not.
#[test]
fn what_agents_and_editors_write_is_no_prompt() {
    let table = [
        (false, "<bash-stdout>a</bash-stdout><bash-stderr></bash-stderr>"),
        (false, "<bash-stderr>a</bash-stderr>"),
        (false, "<task-notification>\n<task-id>a</task-id>"),
        (false, "<system-reminder>\na</system-reminder>"),
        (false, "<ide_opened_file>a.rs</ide_opened_file>"),
        (false, "<ide_selection>a</ide_selection>"),
        (false, "<local-command-stdout></local-command-stdout>"),
        (true, "<bash-input>ls</bash-input>"),
        (
            true,
            "<command-message>init</command-message>\n<command-name>/init</command-name>",
        ),
        (true, "<context>a</context> do it"),
        (true, "what is a <system-reminder>?"),
    ];
    for (expected, text) in table {
        let block = serde_json::json!({"type": "text", "text": text});
        let question = serde_json::json!({"type": "text", "text": "a question"});
        let said = |content: serde_json::Value| {
            serde_json::json!({"type": "user", "message": {"content": content}}).to_string()
        };
        assert_eq!(is_prompt(&said(text.into())), expected, "{text}");
        assert_eq!(is_prompt(&said(vec![block.clone()].into())), expected, "{text}");
        assert!(is_prompt(&said(vec![block, question].into())), "{text}");
    }
}

#[test]
fn with_which_messages_a_turn_is_over() {
    let said = |stop_reason: &str| {
        format!(
            r#"{{"type":"assistant","message":{{"content":[{{"type":"text","text":"a"}}],"stop_reason":{stop_reason}}}}}"#
        )
    };
    let table = [
        (said("\"end_turn\""), TurnEnd::Over),
        (said("\"stop_sequence\""), TurnEnd::Over),
        (said("\"pause_turn\""), TurnEnd::Over),
        (said("\"of_tomorrow\""), TurnEnd::Over),
        (said("\"tool_use\""), TurnEnd::Open),
        (said("\"max_tokens\""), TurnEnd::Ambiguous),
        (said("\"model_context_window_exceeded\""), TurnEnd::Ambiguous),
        (said("\"refusal\""), TurnEnd::Ambiguous),
        (said("null"), TurnEnd::Ambiguous),
        (
            said("null").replace(
                r#""type":"assistant""#,
                r#""type":"assistant","isApiErrorMessage":true"#,
            ),
            TurnEnd::Over,
        ),
        (
            said("\"end_turn\"").replace(r#""text":"a""#, r#""text":"""#),
            TurnEnd::Open,
        ),
        (
            r#"{"type":"assistant","message":{"content":[{"type":"thinking"}],"stop_reason":"end_turn"}}"#
                .to_owned(),
            TurnEnd::Open,
        ),
        (
            r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t","name":"Read"}]}}"#
                .to_owned(),
            TurnEnd::Open,
        ),
        (
            r#"{"type":"user","message":{"content":"[Request interrupted by user for tool use]"}}"#
                .to_owned(),
            TurnEnd::Over,
        ),
        (
            r#"{"type":"user","message":{"content":"a"}}"#.to_owned(),
            TurnEnd::Open,
        ),
        (
            r#"{"type":"user","isMeta":true,"message":{"content":"Output token limit hit."}}"#.to_owned(),
            TurnEnd::Open,
        ),
        (r#"{"type":"system"}"#.to_owned(), TurnEnd::Open),
    ];
    for (line, expected) in table {
        let record = Record::parse(&line).expect("a record");
        assert_eq!(record.turn_end(), expected, "{line}");
    }
}
