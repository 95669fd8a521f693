use super::*;

fn is_prompt(line: &str) -> bool {
    let record = Record::parse(line).expect("a record");
    record.is_human_prompt()
}

#[test]
fn what_has_no_form_that_is_known_is_kept_as_it_stands() {
    let other = |kind: &str, json: &str| ContentPart::Other {
        kind: kind.to_owned(),
        json: json.to_owned(),
    };
    let blocks = |message: &str| {
        let text = format!(r#"{{"type":"user","message":{message}}}"#);
        let record = Record::parse(&text).expect("a record");
        assert!(!record.is_human_prompt(), "{message}");
        record.parts().expect("a message")
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
    let result = |text: &str| ContentPart::ToolResult {
        call_id: "t".to_owned(),
        text: text.to_owned(),
        is_error: Some(false),
    };
    assert_eq!(
        blocks(&answers),
        [
            result("[image]\nr"),
            other("text", rich),
            result(""),
            other("", r#"{"rows":[1]}"#),
            result(""),
        ]
    );
    assert!(Record::parse(r#"{"message":null}"#).is_some_and(|record| record.parts().is_none()));
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
fn what_an_editor_puts_before_a_prompt_was_not_typed() {
    for (text, typed) in [
        ("fix it", "fix it"),
        ("<ide_opened_file>a.rs</ide_opened_file>", ""),
        (
            "<ide_selection>a\n</ide_selection>\n<ide_opened_file>b</ide_opened_file>\nfix it",
            "fix it",
        ),
        ("<system-reminder>a</system-reminder>\nfix it", "fix it"),
        ("<ide_selection>is cut", "<ide_selection>is cut"),
        ("<b>bold</b>", "<b>bold</b>"),
        ("<3", "<3"),
    ] {
        assert_eq!(typed_text(text), typed, "{text}");
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
        (said("\"end_turn\""), TurnEnd::Ended),
        (said("\"stop_sequence\""), TurnEnd::Ended),
        (said("\"pause_turn\""), TurnEnd::Ended),
        (said("\"of_tomorrow\""), TurnEnd::Ended),
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
            TurnEnd::Ended,
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
            TurnEnd::Ended,
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
