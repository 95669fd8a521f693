//! What is asked, and what an answer means.

use bridge_protocol::raw::RawJson;
use bridge_protocol::turn::{Interrupt, InterruptKind};
use serde_json::{Value, json};

use super::{choices, command, lines, outcome, pick, refusal};

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

fn permission() -> Interrupt {
    interrupt(
        Some(json!({"toolCallId": "1", "title": "rm\u{1b}[2J a.rs"})),
        Some(json!([
            {"optionId": "allow_once", "name": "Allow", "kind": "allow_once"},
            {"optionId": "reject_once", "kind": "reject_once"},
        ])),
        json!({}),
    )
}

#[test]
fn a_question_is_shown_with_numbered_options() {
    assert_eq!(
        lines(&permission()),
        ["? rm[2J a.rs", "  1  Allow", "  2  reject_once"]
    );
    let elicitation = interrupt(None, None, json!({"message": "Which branch?"}));
    assert_eq!(lines(&elicitation), ["? Which branch?"]);
    assert_eq!(lines(&interrupt(None, None, json!(7))), ["? the agent asks"]);
}

#[test]
fn an_answer_is_a_number_an_id_or_a_name() {
    let choices = choices(&permission());
    let table = [
        ("1", Some("allow_once")),
        (" 2 \n", Some("reject_once")),
        ("reject_once", Some("reject_once")),
        ("allow", Some("allow_once")),
        ("0", None),
        ("3", None),
        ("", None),
        ("perhaps", None),
    ];
    for (typed, expected) in table {
        assert_eq!(pick(&choices, typed).as_deref(), expected, "{typed:?}");
    }
}

#[test]
fn an_outcome_is_an_option_a_cancel_or_given_whole() {
    let table = [
        (
            "allow_once",
            json!({"outcome": "selected", "optionId": "allow_once"}),
        ),
        ("cancel", json!({"outcome": "cancelled"})),
        (r#"{"action":"accept"}"#, json!({"action": "accept"})),
        ("{broken", json!({"outcome": "selected", "optionId": "{broken"})),
    ];
    for (option, expected) in table {
        let outcome: Value = serde_json::from_str(outcome(option).get()).unwrap();
        assert_eq!(outcome, expected, "{option}");
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
        let refusal: Value = refusal(&options(kinds)).read().unwrap();
        assert_eq!(refusal, expected, "{kinds:?}");
    }
    let elicitation = Interrupt {
        kind: InterruptKind::Elicitation,
        ..options(&[])
    };
    assert_eq!(
        refusal(&elicitation).read::<Value>().unwrap(),
        json!({"action": "decline"})
    );
}

#[test]
fn it_is_told_how_a_question_is_answered() {
    assert_eq!(
        command("5d0c2a4e", &permission()),
        "answer with: sessionctl answer 5d0c2a4e int-1 OPTION (one of: allow_once, reject_once)"
    );
    let free = interrupt(None, None, json!({"message": "Which branch?"}));
    assert!(command("5d0c2a4e", &free).contains("sessionctl answer 5d0c2a4e int-1 '{"));
}
