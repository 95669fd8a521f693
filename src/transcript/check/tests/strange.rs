//! What this version does not know.

use super::*;

#[test]
fn kinds_of_records_that_are_not_known_are_told_once_each() {
    let mut lines = whole();
    for (uuid, parent) in [("h1", "a3"), ("h2", "h1")] {
        lines.push(record("hologram", uuid, parent, r#","version":"99.0.0""#));
    }
    lines.push(record("quantum", "q1", "h2", ""));
    lines.push(r#"{"type":"ledger","version":"99.0.0"}"#.to_owned());
    let (kinds, told) = found(&lines);
    assert_eq!(
        kinds,
        [(8, FindingKind::UnknownRecord), (10, FindingKind::UnknownRecord)]
    );
    assert!(
        told.contains("2 records") && told.contains("\"hologram\"") && told.contains("version 99.0.0"),
        "{told}"
    );
    assert!(told.contains("1 record ") && !told.contains("ledger"), "{told}");
}

#[test]
fn what_is_said_in_a_form_that_is_not_known_is_told() {
    let strange = |message: &str| {
        let mut lines = whole();
        lines[5] = record(
            "user",
            "u2",
            "a2",
            &format!(r#","origin":{{"kind":"human"}},"version":"99.0.0"{message}"#),
        );
        let (kinds, told) = found(&lines);
        assert!(
            kinds.is_empty() || kinds == [(6, FindingKind::UnknownRecord)],
            "{message}: {kinds:?}"
        );
        assert!(kinds.is_empty() || told.contains("version 99.0.0"), "{told}");
        told
    };
    for message in [
        "",
        r#","message":"words""#,
        r#","message":{"parts":[]}"#,
        r#","message":{"content":{"text":"obj"}}"#,
        r#","message":{"content":{"parts":[{"type":"text","text":"x"}]}}"#,
        r#","message":{"content":null}"#,
    ] {
        let told = strange(message);
        assert!(
            told.contains("content of a form that is not known"),
            "{message}: {told}"
        );
    }
    for (block, kind) in [
        (r#"{"type":"text","text":{"rich":"words"}}"#, "\"text\""),
        (r#"{"type":"thinking","thinking":{}}"#, "\"thinking\""),
        (r#"{"type":"rich_text","text":"x"}"#, "\"rich_text\""),
        (r#"{"type":"tool_use","id":7,"name":"x"}"#, "\"tool_use\""),
        ("7", "a part of a form"),
    ] {
        let told = strange(&format!(
            r#","message":{{"content":["x",{block},{{"type":"newer"}}]}}"#
        ));
        assert!(
            told.contains("not known") && told.contains(kind),
            "{block}: {told}"
        );
    }
    for known in [
        r#"{"type":"text","text":"x"}"#,
        r#"{"type":"image","source":{"type":"url"}}"#,
        r#"{"type":"redacted_thinking","data":"x"}"#,
        r#"{"type":"server_tool_use","id":"s"}"#,
    ] {
        assert_eq!(
            strange(&format!(r#","message":{{"content":[{known}]}}"#)),
            "",
            "{known}"
        );
    }

    let mut lines = whole();
    lines[3] = lines[3].replace(r#""content":"done""#, r#""content":{"rows":[1]}"#);
    let (kinds, _) = found(&lines);
    assert_eq!(kinds, [(4, FindingKind::UnknownRecord)]);
    // A subagent's are none of the history.
    lines[3] = lines[3].replace(r#""toolUseResult""#, r#""isSidechain":true,"toolUseResult""#);
    let (kinds, _) = found(&lines);
    assert!(!kinds.contains(&(4, FindingKind::UnknownRecord)), "{kinds:?}");
}
