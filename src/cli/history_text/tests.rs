//! How a past reads.

use bridge_protocol::history::Message;
use serde_json::{Value, json};

use super::HistoryRenderer;
use crate::cli::output::Look;

fn message(role: &str, content: &Value) -> Message {
    serde_json::from_value(json!({"id": "m", "role": role, "content": content, "upstreamId": "up-1"}))
        .unwrap()
}

fn aside(text: &str) -> Message {
    let mut message = message("user", &json!([{"type": "text", "text": text}]));
    message.kind = Some(bridge_protocol::history::MessageKind::Aside);
    message
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn call(id: &str, input: &str) -> Value {
    json!({"type": "toolCall", "toolCallId": id, "name": "Bash", "input": {"command": input}})
}

fn answer(id: &str, text: &str) -> Value {
    json!({"type": "toolResult", "toolCallId": id, "text": text})
}

#[track_caller]
fn check(pages: &[Vec<Message>], expected: &str) {
    let mut renderer = HistoryRenderer::new(Look::default());
    let text: String = pages.iter().map(|page| renderer.page(page.clone())).collect();
    let text = text + &renderer.rest();
    assert_eq!(text, expected.trim_start_matches('\n'), "\n{text}");
}

#[test]
fn a_prompt_is_one_whatever_it_is_made_of() {
    let image = json!({"type": "image", "mimeType": "image/png", "data": "aGk="});
    check(
        &[vec![
            message("user", &json!([text("first"), text("second")])),
            message("user", &json!([image])),
            message("user", &json!([text("this\n"), image])),
            message("assistant", &json!([text("yes")])),
        ]],
        "
> first
> second

> [image]

> this
> [image]

yes

",
    );
}

#[test]
fn an_answer_stands_below_its_call() {
    check(
        &[vec![
            message("assistant", &json!([text("calling")])),
            message("assistant", &json!([call("1", "echo one")])),
            message("assistant", &json!([call("2", "echo two")])),
            message("user", &json!([answer("2", "two")])),
            message("user", &json!([answer("1", "one")])),
            message("user", &json!([text("next")])),
        ]],
        r#"
calling

[Bash {"command":"echo one"}]
  -> one
[Bash {"command":"echo two"}]
  -> two

> next

"#,
    );
}

#[test]
fn a_call_waits_for_its_answer_on_a_later_page() {
    let calls = vec![
        message("assistant", &json!([text("calling")])),
        message("assistant", &json!([call("1", "one"), call("2", "two")])),
        message("assistant", &json!([text("meanwhile")])),
    ];
    let answers = |ids: &[&str]| {
        let answers: Vec<Value> = ids.iter().map(|id| answer(id, id)).collect();
        vec![message("user", &json!(answers))]
    };
    let expected = r#"
calling

[Bash {"command":"one"}]
  -> 1
[Bash {"command":"two"}]
  -> 2

meanwhile

"#;
    check(&[calls.clone(), answers(&["2", "1"])], expected);
    check(&[calls.clone(), answers(&["2"]), answers(&["1"])], expected);
    // No answer comes: the next prompt, or the end, shows what there is.
    let mut renderer = HistoryRenderer::new(Look::default());
    assert_eq!(renderer.page(calls.clone()), "calling\n\n");
    let next = vec![message("user", &json!([text("next")]))];
    let shown = renderer.page(next);
    assert!(shown.ends_with("meanwhile\n\n> next\n\n"), "{shown}");
    check(
        &[calls, answers(&["9"])],
        r#"
calling

[Bash {"command":"one"}]
[Bash {"command":"two"}]

meanwhile

  -> 9
"#,
    );
}

#[test]
fn what_has_a_form_that_is_not_known_is_shown_as_it_stands() {
    let raw = |kind: &str, raw: Value| json!({"type": kind, "raw": raw});
    let rich = || raw("text", json!({"type": "text", "text": {"rich": "words"}}));
    check(
        &[vec![
            message("user", &json!([raw("", json!({"text": "obj"}))])),
            message("assistant", &json!([rich()])),
            message("assistant", &json!([raw("rich_text", json!({"x": 1}))])),
            message("user", &json!([rich()])),
        ]],
        r#"
> [unknown] {"text":"obj"}

[unknown text] {"text":{"rich":"words"},"type":"text"}
[rich_text]

> [unknown text] {"text":{"rich":"words"},"type":"text"}

"#,
    );
}

#[test]
fn only_asides_about_the_users_actions_are_shown() {
    check(
        &[vec![
            message("user", &json!([text("go")])),
            aside("[Request interrupted by user]"),
            aside("<command-name>/clear</command-name>\nmore"),
            aside("<command-name>/model</command-name>\n<command-args>opus</command-args>"),
            aside("<local-command-stdout>Set model to \u{1b}[1mopus\u{1b}[22m</local-command-stdout>"),
            aside("<local-command-caveat>Do not answer.</local-command-caveat>"),
            aside(""),
            message("user", &json!([text("next")])),
        ]],
        "
> go

[Request interrupted by user]
[/model opus]
  -> Set model to opus

> next

",
    );
}
