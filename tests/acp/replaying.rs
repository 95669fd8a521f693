//! What is replayed while the conversation continues.

use std::fs;

use serde_json::Value;

use super::editor::{Editor, show};
use crate::home::Home;

/// A load shows its first page before it reads the last one, which it reads again while the newest turn is missing.
#[test]
fn a_turn_that_ends_during_a_load_is_shown_once() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    editor.prompt(&session, "one").result();
    let tools = r#"[[tool Read {"path":"a"}]]"#.repeat(600);
    editor.prompt(&session, &tools).result();
    let shown = show(&home, &session);
    let head = shown["head"].as_str().unwrap();
    let transcript = home.transcript(head).unwrap();
    let written = fs::read(&transcript).unwrap();
    editor.prompt(&session, "lost").result();
    fs::write(&transcript, written).unwrap();
    let mut late = Editor::start(&home);
    let load = late.begin_on("session/load", &session, &home);
    let is_said = |message: &Value, text: &str| message["params"]["update"]["content"]["text"] == text;
    let mut messages = late.until(|message| is_said(message, "echo: one"));
    editor.prompt(&session, "between").result();
    messages.extend(late.finish(load).before);
    editor.prompt(&session, "after").result();
    messages.extend(late.until(|message| is_said(message, "echo: after")));
    for text in [
        "one",
        "echo: one",
        "between",
        "echo: between",
        "after",
        "echo: after",
    ] {
        let shown = messages.iter().filter(|message| is_said(message, text));
        assert_eq!(shown.count(), 1, "{text}");
    }
}
