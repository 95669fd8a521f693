//! What is asked, and what an answer means.

use std::fs;

use bridge_protocol::raw::RawJson;
use bridge_protocol::turn::{Interrupt, InterruptKind};
use serde_json::{Value, json};

use super::*;

fn interrupt(tool_call: Option<Value>, options: Option<Value>, request: Value) -> Interrupt {
    Interrupt {
        id: "int-1".into(),
        kind: InterruptKind::Permission,
        tool_call: tool_call.map(RawJson::from),
        options: options.map(RawJson::from),
        request: RawJson::from(request),
        raised_at: "2026-11-03T10:00:00Z".parse().unwrap(),
        orphaned: false,
    }
}

fn permission(tool_call: Value) -> Interrupt {
    let options = json!([
        {"optionId": "allow-always", "name": "Yes, and don't ask again for rm", "kind": "allow_always"},
        {"optionId": "allow", "name": "Yes", "kind": "allow_once"},
        {"optionId": "allow-2", "name": "Yes, in a copy", "kind": "allow_once"},
        {"optionId": "reject", "name": "No", "kind": "reject_once"},
    ]);
    interrupt(Some(tool_call), Some(options), json!({}))
}

/// The outcome that a typed text chooses.
fn chosen(question: &Question, asked: &Interrupt, typed: &str) -> Option<RawJson> {
    match question.answer(asked, typed) {
        Reply::Answer(outcome, _) => Some(outcome),
        Reply::Next(..) | Reply::Unknown(_) => None,
    }
}

fn asked(tool_call: Value) -> Vec<String> {
    let question = Question::from_interrupt(&permission(tool_call), None, "/home/u/src", Look::default());
    let lines = question.lines(Look::default());
    lines
        .into_iter()
        .take_while(|line| !line.starts_with("  y  "))
        .collect()
}

/// The agent chooses the ids of its options, and a user pastes the command.
#[test]
fn an_option_is_one_word_in_the_command_that_answers() {
    let options = json!([{"optionId": "go; rm -r x\u{1b}[2J", "name": "Go", "kind": "other"}]);
    let asked = interrupt(None, Some(options), json!({}));
    assert_eq!(
        command(&Advice::new("5d0c2a4e", false), &asked),
        "answer it: sessionctl answer 5d0c2a4e 'go; rm -r x' --question int-1"
    );
}

/// Nobody approves an escape sequence or a change of the direction of writing unseen.
#[test]
fn the_control_characters_of_a_change_are_shown_by_their_names() {
    let new = "\u{1b}[31mred\u{202e}txt\u{9b}2J\u{7f}\tend\r\n";
    let diff = json!({"type": "diff", "path": "a.rs", "oldText": "", "newText": new});
    let shown = asked(json!({"title": "Edit a.rs", "content": [diff]}));
    assert_eq!(shown.last().unwrap(), "  + ^[[31mred<202E>txt<009B>2J^?\tend");
    let input = json!({"command": "printf '\u{1b}]0;x\u{7}'"});
    let shown = asked(json!({"title": "Run", "rawInput": input}));
    assert!(shown.contains(&"    printf '^[]0;x^G'".to_owned()), "{shown:?}");
}

#[test]
fn a_change_is_shown_as_a_diff() {
    let expected = [
        "? Edit a.rs",
        "  in /home/u/src",
        "  /home/u/src/a.rs  +1 -1",
        "    one",
        "  - two",
        "  + zwei",
        "    three",
    ];
    let diff = json!({"type": "diff", "path": "a.rs", "oldText": "one\ntwo\nthree\n", "newText": "one\nzwei\nthree\n"});
    assert_eq!(
        asked(json!({"title": "Edit a.rs", "content": [{"type": "later"}, diff]})),
        expected
    );
    let input =
        json!({"file_path": "a.rs", "old_string": "one\ntwo\nthree", "new_string": "one\nzwei\nthree"});
    assert_eq!(asked(json!({"title": "Edit a.rs", "rawInput": input})), expected);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.txt");
    fs::write(&file, "old\n").unwrap();
    let lines = asked(json!({"title": "Write", "rawInput": {"path": file, "content": "new\n"}}));
    assert_eq!(lines[3..], ["  - old", "  + new"]);
    // A diff may leave out what the file holds, although it exists.
    let diff = json!([{"type": "diff", "path": file, "oldText": null, "newText": "new\n"}]);
    let lines = asked(json!({"title": "Write", "content": diff}));
    assert_eq!(lines[3..], ["  - old", "  + new"]);
}

#[test]
fn what_is_switched_on_is_shown_with_the_command_or_the_change() {
    let input =
        json!({"command": "ls", "dangerouslyDisableSandbox": true, "run_in_background": true, "timeout": 5});
    let expected = [
        "? Run in /home/u/src",
        "    ls",
        "  with dangerouslyDisableSandbox, run_in_background",
    ];
    assert_eq!(asked(json!({"title": "ls", "rawInput": input})), expected);
    let input = json!({"file_path": "a.rs", "old_string": "x", "new_string": "y", "replace_all": true});
    let lines = asked(json!({"title": "Edit a.rs", "rawInput": input}));
    assert_eq!(
        lines[2..],
        [
            "  /home/u/src/a.rs  +1 -1",
            "  with replace_all",
            "  - x",
            "  + y"
        ]
    );
}

/// Words of the agent and a long first file hide neither the changes nor the names of further files.
#[test]
fn all_files_are_named_before_the_changes_and_these_come_before_the_agents_words() {
    let long: String = (0..100).map(|line| format!("{line}\n")).collect();
    let words = json!({"type": "content", "content": {"type": "text", "text": "nothing\n".repeat(50)}});
    let first = json!({"type": "diff", "path": "a", "newText": long});
    let second = json!({"type": "diff", "path": "/etc/b", "oldText": "x\n", "newText": ""});
    let lines = asked(json!({"title": "Edit", "content": [words, first, second]}));
    let expected = [
        "? Edit",
        "  in /home/u/src",
        "  /home/u/src/a  +100 -0",
        "  /etc/b  +0 -1",
        "  /home/u/src/a",
        "  + 0",
    ];
    assert_eq!(lines[..6], expected);
    assert!(!lines.iter().any(|line| line.contains("nothing")), "{lines:?}");
    let many: Vec<Value> = (0..40)
        .map(|file| json!({"type": "diff", "path": format!("{file}"), "newText": "x\n"}))
        .collect();
    let lines = asked(json!({"title": "Edit", "content": many}));
    assert_eq!(lines[41], "  /home/u/src/39  +1 -0");
}

#[test]
fn a_file_that_cannot_be_shown_is_not_taken_for_a_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a");
    let write = json!({"title": "Write", "rawInput": {"path": file, "content": "new\n"}});
    for (bytes, why) in [
        (vec![b'x'; 1024 * 1024 + 1], "larger than"),
        (b"\xff\n".to_vec(), "not UTF-8"),
    ] {
        fs::write(&file, bytes).unwrap();
        let lines = asked(write.clone());
        assert!(
            lines[2].ends_with("+1, replaces a file that is not shown"),
            "{lines:?}"
        );
        assert!(lines[3].contains(why), "{lines:?}");
        assert_eq!(lines[4], "  + new");
    }
    fs::remove_file(&file).unwrap();
    assert_eq!(asked(write)[3], "  + new");
}

/// A user sees all of a change before allowing it.
#[test]
fn what_allows_is_distinguished_from_what_refuses() {
    let text: String = (0..100).map(|line| format!("{line}\n")).collect();
    let call = json!({"title": "Write", "content": [{"type": "diff", "path": "a", "newText": text}]});
    let asked = permission(call);
    let question = Question::from_interrupt(&asked, None, "/", Look::default());
    assert!(question.is_unread());
    for (typed, allows) in [
        ("y", true),
        ("a", true),
        ("3", true),
        ("yes", true),
        ("yes, in a copy", true),
        ("n", false),
        ("deny", false),
        ("q", false),
    ] {
        assert_eq!(
            chosen(&question, &asked, typed).is_some_and(|outcome| question.allows(&outcome)),
            allows,
            "{typed}"
        );
    }
}

#[test]
fn arguments_that_are_not_known_are_shown() {
    let lines = asked(json!({"title": "pay", "rawInput": {"amount": 5}}));
    let folder = "  in /home/u/src";
    assert_eq!(lines, ["? pay", folder, "    {", "      \"amount\": 5", "    }"]);
    assert_eq!(
        asked(json!({"title": "Really?", "rawInput": {"question": "Really?"}})),
        ["? Really?", folder]
    );
    // What an earlier update said of the call counts too.
    let known = serde_json::from_value(json!({"rawInput": {"command": "ls"}})).unwrap();
    let question = Question::from_interrupt(
        &permission(json!({"title": "x"})),
        Some(&known),
        "/",
        Look::default(),
    );
    assert_eq!(question.whole(Look::default()), "? Run in /\n    ls\n");
}

#[test]
fn each_option_has_a_key_of_its_own() {
    let asked = permission(json!({"title": "x"}));
    let question = Question::from_interrupt(&asked, None, "/", Look::default());
    let chosen = |typed: &str| {
        let outcome: Value = chosen(&question, &asked, typed)?.read().unwrap();
        outcome["optionId"].as_str().map(str::to_owned)
    };
    let table = [
        ("y", Some("allow")),
        ("a", Some("allow-always")),
        ("n", Some("reject")),
        ("3", Some("allow-2")),
        ("1", None),
        ("Y", None),
        ("q", None),
        ("N", None),
        ("Yes", Some("allow")),
        ("always ", Some("allow-always")),
        ("no", Some("reject")),
        ("yes, in a copy", Some("allow-2")),
        ("maybe", None),
        ("never", None),
        ("nothing", None),
        ("{}", None),
    ];
    for (typed, expected) in table {
        assert_eq!(chosen(typed).as_deref(), expected, "{typed:?}");
    }
    assert_eq!(question.keys(), "yan3d");
    assert!(
        question
            .help("")
            .iter()
            .any(|line| line.contains("don't ask again for rm"))
    );
}

#[test]
fn an_answer_is_a_word_an_option_or_given_whole() {
    let permission = permission(json!({"title": "x"}));
    let selected = |id: &str| Some(json!({"outcome": "selected", "optionId": id}));
    let table = [
        ("allow", selected("allow")),
        ("always", selected("allow-always")),
        ("deny", selected("reject")),
        ("allow-2", selected("allow-2")),
        ("yes, in a copy", selected("allow-2")),
        ("cancel", Some(json!({"outcome": "cancelled"}))),
        (r#"{"action":"accept"}"#, Some(json!({"action": "accept"}))),
        ("{broken", None),
        ("y", selected("allow")),
        ("3", selected("allow-2")),
        ("N", None),
        ("perhaps", None),
        ("", None),
    ];
    for (answer, expected) in table {
        let outcome = parse_answer(&permission, &[answer.to_owned()]).ok();
        let outcome = outcome.map(|outcome| outcome.read::<Value>().unwrap());
        assert_eq!(outcome, expected, "{answer}");
    }
    let elicitation = Interrupt {
        kind: InterruptKind::Elicitation,
        ..interrupt(None, None, json!({"message": "Which branch?"}))
    };
    // It has no fields.
    for (answer, expected) in [
        ("allow", json!({"action": "accept", "content": {}})),
        ("deny", json!({"action": "decline"})),
    ] {
        let outcome = parse_answer(&elicitation, &[answer.to_owned()]).unwrap();
        assert_eq!(outcome.read::<Value>().unwrap(), expected);
    }
}

#[test]
fn a_refusal_takes_the_mildest_option_that_grants_nothing() {
    let options = |kinds: &[&str]| {
        let options: Vec<Value> = kinds
            .iter()
            .map(|kind| json!({"optionId": format!("{kind}-id"), "kind": kind}))
            .collect();
        interrupt(None, Some(json!(options)), json!({}))
    };
    let table = [
        (
            &["allow_once", "reject_always", "reject_once"][..],
            json!({"outcome": "selected", "optionId": "reject_once-id"}),
        ),
        (
            &["allow_once", "reject_always"],
            json!({"outcome": "selected", "optionId": "reject_always-id"}),
        ),
        (&["allow_once"], json!({"outcome": "cancelled"})),
        (&[], json!({"outcome": "cancelled"})),
    ];
    for (kinds, expected) in table {
        let refusal: Value = refusal_outcome(&options(kinds)).read().unwrap();
        assert_eq!(refusal, expected, "{kinds:?}");
    }
}

#[test]
fn a_result_is_one_line() {
    let call = |content: Value| serde_json::from_value::<ToolCall>(json!({ "content": content })).unwrap();
    let text = |text: &str| json!([{"type": "content", "content": {"type": "text", "text": text}}]);
    let diff = json!([{"type": "diff", "path": "a", "oldText": "a\nb\n", "newText": "a\nc\nd\n"}]);
    let table = [
        (text("\n wrote  it\n"), Some("wrote it")),
        (text("one\ntwo\nthree"), Some("one (+2 lines)")),
        (text("```rust\none\n```"), Some("one")),
        (diff, Some("+2 -1")),
        (json!([]), None),
        (Value::Null, None),
    ];
    for (content, expected) in table {
        assert_eq!(call(content.clone()).result().as_deref(), expected, "{content}");
    }
}

/// The protocol may get more kinds of options. Only one that is known to reject may be chosen before all of the question was
/// read.
#[test]
fn an_option_allows_unless_it_is_known_to_reject() {
    let kinds = [
        "allow_once",
        "allow_always",
        "reject_once",
        "reject_always",
        "other",
        "",
    ];
    let options = kinds.map(|kind| json!({"optionId": format!("id of {kind}"), "name": "Go", "kind": kind}));
    let asked = interrupt(None, Some(json!(options)), json!({}));
    let question = Question::from_interrupt(&asked, None, "/", Look::default());
    let allows = |outcome: Value| question.allows(&RawJson::from(outcome));
    let chosen = |kind: &str| json!({"outcome": "selected", "optionId": format!("id of {kind}")});
    let allowing = kinds.into_iter().filter(|kind| allows(chosen(kind)));
    assert_eq!(
        allowing.collect::<Vec<_>>(),
        ["allow_once", "allow_always", "other", ""]
    );
    assert!(allows(chosen("an option that was not offered")));
    assert!(!allows(json!({"outcome": "cancelled"})));
}
