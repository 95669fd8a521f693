//! Titles from agents and from other clients.

use serde_json::{Value, json};

use super::editor::{Editor, run, show};
use crate::home::Home;
use crate::scripted;

/// A client other than an editor renames the conversation, and then removes its title.
#[test]
fn a_new_title_reaches_the_editors_that_have_the_session_open() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::after_one_turn(&home);
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
    // Another change sends no title.
    run(&home, &["set", &session, "model=loop-2"]);
    let answered = editor.prompt(&session, "two");
    assert!(!answered.kinds().contains(&"session_info_update"), "{answered:?}");
}

/// The line of a script that reports this title.
fn titled(title: &str) -> String {
    scripted::update(&json!({"sessionUpdate": "session_info_update", "title": title}))
}

/// The titles that were reported, in order.
fn titles(messages: &[Value]) -> Vec<Value> {
    let updates = messages.iter().map(|message| &message["params"]["update"]);
    let infos = updates.filter(|update| update["sessionUpdate"] == "session_info_update");
    infos.map(|info| info["title"].clone()).collect()
}

/// The agent's latest title is used until a client sets one.
#[test]
fn the_latest_title_of_the_agent_counts_unless_a_client_gave_one() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    let session = editor.new_session_of("scripted", &home);
    let stored = || show(&home, &session)["title"].clone();
    scripted::answer(&home, &json!({"session/set_mode": {"result": {}}}));
    for title in ["first", "second"] {
        let answered = editor.prompt(&session, &titled(title));
        assert_eq!(titles(&answered.before), [title]);
        // This change is reported to editors.
        run(&home, &["set", &session, &format!("mode={title}")]);
        let answered = editor.prompt(&session, &scripted::chunk("hello"));
        assert_eq!(titles(&answered.before), [] as [Value; 0]);
        assert_eq!(stored(), title);
    }
    run(&home, &["set", &session, "title=mine"]);
    let answered = editor.prompt(&session, &titled("third"));
    assert_eq!(titles(&answered.before), ["mine"]);
    assert_eq!(stored(), "mine");
}

/// Claude's adapter reports the latest prompt as the title while it has no better one.
#[test]
fn a_title_that_only_repeats_a_later_prompt_does_not_count() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    let session = editor.new_session_of("scripted", &home);
    // Every prompt here begins like this.
    let beginning = titled("")[..20].to_owned() + "…";
    for (title, stored, shown) in [
        (&*beginning, &*beginning, vec![&*beginning]),
        ("a name", "a name", vec!["a name"]),
        (&*beginning, "a name", vec![]),
    ] {
        let answered = editor.prompt(&session, &titled(title));
        assert_eq!(titles(&answered.before), shown);
        assert_eq!(show(&home, &session)["title"], stored);
    }
}
