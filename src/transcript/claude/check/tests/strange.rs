//! Checks of records and forms that this version does not know.

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
    check_words("records of unknown kinds", &told);
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
        check_words(
            &format!("a message of another form: {message}"),
            &strange(message),
        );
    }
    for block in [
        r#"{"type":"text","text":{"rich":"words"}}"#,
        r#"{"type":"thinking","thinking":{}}"#,
        r#"{"type":"rich_text","text":"x"}"#,
        r#"{"type":"tool_use","id":7,"name":"x"}"#,
        "7",
    ] {
        let told = strange(&format!(
            r#","message":{{"content":["x",{block},{{"type":"newer"}}]}}"#
        ));
        check_words(&format!("a part of another form: {block}"), &told);
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
