//! Titles that other clients give.

use serde_json::{Value, json};

use super::editor::{Editor, run};
use crate::home::Home;

/// A client that is not an editor renames the conversation, and removes its title.
#[test]
fn a_new_title_reaches_the_editors_that_have_the_session_open() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    editor.prompt(&session, "one").result();
    let mut other = Editor::start(&home);
    other.on("session/load", &session, &home).result();
    for title in ["renamed", "renamed again", ""] {
        let renamed = format!("title={title}");
        run(&home, &["set", &session, &renamed]);
        for editor in [&mut editor, &mut other] {
            let is_info = |message: &Value| {
                let update = &message["params"]["update"];
                update["sessionUpdate"] == "session_info_update"
            };
            let told = editor.until(is_info).pop().unwrap();
            let title = Some(title).filter(|title| !title.is_empty());
            assert_eq!(told["params"]["sessionId"], json!(session));
            assert_eq!(told["params"]["update"]["title"], json!(title));
        }
    }
    // Another change says nothing of it.
    run(&home, &["set", &session, "model=loop-2"]);
    let answered = editor.prompt(&session, "two");
    assert!(!answered.kinds().contains(&"session_info_update"), "{answered:?}");
}
