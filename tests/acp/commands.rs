//! Slash commands for actions that have no button in an editor.

use std::fs;

use bridge_protocol::turn::CONTINUE_PROMPT;
use serde_json::{Value, json};

use super::editor::{Answered, Editor, eventually, run, sessionctl, show};
use crate::gate::Gate;
use crate::home::{Daemon, Home};
use crate::scripted;

const OURS: [&str; 6] = ["rewind", "edit", "fork", "undo", "continue", "history"];

fn said(answered: &Answered) -> String {
    assert_eq!(answered.result()["stopReason"], "end_turn");
    answered.said()
}

#[test]
fn the_commands_are_announced_behind_the_agents_own() {
    let home = Home::new();
    let _daemon = home.start();
    let announced = |editor: &mut Editor, count: usize| {
        editor.new_session(&home);
        let messages = editor.until(|message| {
            let commands = message["params"]["update"]["availableCommands"].as_array();
            commands.is_some_and(|commands| commands.len() == count)
        });
        let commands = &messages.last().unwrap()["params"]["update"]["availableCommands"];
        let names = commands
            .as_array()
            .unwrap()
            .iter()
            .map(|command| command["name"].clone());
        names.collect::<Vec<Value>>()
    };
    let names = announced(&mut Editor::start(&home), 8);
    assert_eq!(names[..2], ["[[recall]]", "[[settings]]"]);
    assert_eq!(names[2..], OURS);
    let app = json!({"_meta": {"sessiond": {}}});
    assert_eq!(
        announced(&mut Editor::with(&home, app), 2),
        ["[[recall]]", "[[settings]]"]
    );
}

#[test]
fn a_thread_goes_back_and_comes_back_under_its_id() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    for text in ["one", "two", "three"] {
        editor.prompt(&session, text).result();
    }
    for list in ["/rewind", "/history"] {
        assert_eq!(said(&editor.prompt(&session, list)), "1. one\n2. two\n3. three");
    }
    assert!(said(&editor.prompt(&session, "/rewind 1")).starts_with("Went back to after turn 1."));
    assert_eq!(editor.recalled(&session), ["one"], "a command reached the agent");
    let undone = said(&editor.prompt(&session, "/undo"));
    assert!(
        undone.starts_with("Undone.") && !undone.contains("fork"),
        "{undone}"
    );
    assert_eq!(editor.recalled(&session), ["one", "two", "three"]);
    for (refused, why) in [
        ("/rewind x", "not the number of a turn"),
        ("/rewind 9", "9"),
        ("/edit 1", "/edit 3 New text"),
    ] {
        let words = said(&editor.prompt(&session, refused));
        assert!(words.contains(why), "{refused}: {words}");
    }
}

#[test]
fn an_earlier_prompt_is_replaced() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    for text in ["one", "two", "three"] {
        editor.prompt(&session, text).result();
    }
    let edited = editor.prompt(&session, "/edit 2 another");
    assert_eq!(said(&edited), "echo: another");
    assert_eq!(edited.texts("user_message_chunk"), [] as [&str; 0]);
    assert_eq!(editor.recalled(&session), ["one", "another"]);
    let edited = editor.prompt(&session, "/edit\t1\tfirst");
    assert_eq!(said(&edited), "echo: first");
}

/// The agent refuses copies, so the history before the edited turn is sent to a new session as text. Each later edit is of a
/// turn before or at the beginning of that session.
#[test]
fn an_edit_as_text_begins_in_an_older_session() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    for text in ["one", "two", "[[say three]][[forget copies]]"] {
        editor.prompt(&session, text).result();
    }
    for (edit, kept, dropped, last) in [
        ("/edit 3 better", ["one", "two"], "three", "better"),
        ("/edit 3 better still", ["one", "two"], "three", "better still"),
        ("/edit 2 another", ["one", "echo: one"], "two", "another"),
    ] {
        editor.prompt(&session, edit).result();
        let recalled = editor.recalled(&session);
        let [retold] = &recalled[..] else {
            panic!("{edit}: {recalled:?}")
        };
        assert!(kept.iter().all(|kept| retold.contains(kept)), "{edit}: {retold}");
        assert!(
            !retold.contains(dropped) && retold.ends_with(last),
            "{edit}: {retold}"
        );
    }
}

/// The place of the edit is looked up in another thread first; a cancellation and a prompt that arrive
/// meanwhile must not overtake the edit.
#[test]
fn an_edit_is_cancelled_before_its_turn_begins() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::after_one_turn(&home);
    let edit = editor.begin_prompt(&session, "/edit 1 [[hang]]");
    editor.cancel(&session);
    assert_eq!(editor.finish(edit).result()["stopReason"], "cancelled");
    // This edit waits until the branch of the cancelled one is dropped.
    let edit = editor.begin_prompt(&session, "/edit 1 two");
    let next = editor.begin_prompt(&session, "three");
    assert_eq!(said(&editor.finish(edit)), "echo: two");
    assert_eq!(said(&editor.finish(next)), "echo: three");
}

#[test]
fn an_edit_waits_until_a_cancelled_one_is_given_up() {
    let (home, gate) = Gate::home();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    for text in ["one", "two"] {
        editor.prompt(&session, text).result();
    }
    gate.hold("session/resume");
    let cancelled = editor.begin_prompt(&session, "/edit 2 three");
    gate.wait_until_held();
    editor.cancel(&session);
    assert_eq!(editor.finish(cancelled).result()["stopReason"], "cancelled");
    let edit = editor.begin_prompt(&session, "/edit 2 four");
    editor.prompt(&session, "/history").result();
    gate.open();
    assert_eq!(said(&editor.finish(edit)), "echo: four");
}

/// The hint names a command that the editor has.
#[test]
fn what_cannot_be_done_names_what_can() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::after_one_turn(&home);
    for (command, words) in [
        ("/rewind 99", "There is no turn 99; /history lists the turns."),
        ("/continue", "no turn was interrupted: send the next prompt"),
    ] {
        assert_eq!(said(&editor.prompt(&session, command)), words);
    }
}

#[test]
fn a_fork_is_in_the_list_of_sessions() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    for text in ["one", "two"] {
        editor.prompt(&session, text).result();
    }
    let words = said(&editor.prompt(&session, "/fork 1"));
    assert!(words.contains("\"one (fork)\""), "{words}");
    let listed = editor.call("session/list", json!({}));
    let sessions = listed.result()["sessions"].as_array().unwrap();
    let ids: Vec<&str> = sessions
        .iter()
        .map(|listed| listed["sessionId"].as_str().unwrap())
        .collect();
    let branch = ids
        .iter()
        .find(|id| words.contains(**id))
        .unwrap_or_else(|| panic!("{words}: {ids:?}"));
    editor.on("session/resume", branch, &home).result();
    assert_eq!(editor.recalled(branch), ["one"]);
    assert_eq!(editor.recalled(&session), ["one", "two"]);
}

#[test]
fn a_limit_is_waited_for_on_request() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    let nothing = said(&editor.prompt(&session, "/continue"));
    assert!(nothing.contains("no turn was interrupted"), "{nothing}");
    editor.prompt(&session, "[[limit 3600]]").result();
    let words = said(&editor.prompt(&session, "/continue"));
    assert!(
        words.starts_with("The turn continues when the limit ends, at 2"),
        "{words}"
    );
}

#[test]
fn a_command_is_refused_in_words_while_a_turn_runs() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::after_one_turn(&home);
    let running = editor.begin_endless(&session);
    let words = said(&editor.prompt(&session, "/rewind 1"));
    assert!(
        words.contains("turn is running") && !words.contains("fork"),
        "{words}"
    );
    let words = said(&editor.prompt(&session, "/continue"));
    assert!(
        words.contains("turn is running") && !words.contains("onLimit"),
        "{words}"
    );
    editor.cancel(&session);
    assert_eq!(editor.finish(running).result()["stopReason"], "cancelled");
}

#[test]
fn a_turn_to_go_back_to_is_chosen_in_a_form() {
    let home = Home::new();
    let _daemon = home.start();
    let mut editor = Editor::with(&home, json!({"elicitation": {"form": {}}}));
    let session = editor.new_session(&home);
    assert_eq!(
        said(&editor.prompt(&session, "/rewind")),
        "This session has no turns yet."
    );
    for text in ["one", "two", "three"] {
        editor.prompt(&session, text).result();
    }
    for (answer, words) in [
        (json!({"action": "cancel"}), "Nothing was changed."),
        (json!({"action": "accept", "content": {"turn": "9"}}), "9"),
        (
            json!({"action": "accept", "content": {"turn": "1"}}),
            "Went back to after turn 1.",
        ),
    ] {
        let rewind = editor.begin_prompt(&session, "/rewind");
        let form = editor.until_asked("elicitation/create");
        assert_eq!(form["params"]["sessionId"], session.as_str());
        let turns = &form["params"]["requestedSchema"]["properties"]["turn"]["oneOf"];
        let expected = json!([
            {"const": "3", "title": "3. three"}, {"const": "2", "title": "2. two"}, {"const": "1", "title": "1. one"},
        ]);
        assert_eq!(*turns, expected);
        editor.answer(&form, answer);
        let told = said(&editor.finish(rewind));
        assert!(told.contains(words), "{told}");
    }
    assert_eq!(editor.recalled(&session), ["one"]);
}

#[test]
fn a_form_does_not_hold_up_its_session_and_is_withdrawn_by_a_cancel() {
    let home = Home::new();
    let _daemon = home.start();
    let mut editor = Editor::with(&home, json!({"elicitation": {"form": {}}}));
    let session = editor.new_session(&home);
    editor.prompt(&session, "one").result();
    for method in ["session/cancel", "session/close"] {
        let rewind = editor.begin_prompt(&session, "/rewind");
        let form = editor.until_asked("elicitation/create");
        let mode = json!({"sessionId": session, "modeId": "plan"});
        editor.call("session/set_mode", mode).result();
        match method {
            "session/cancel" => editor.notify(method, json!({"sessionId": session})),
            _ => drop(editor.begin(method, json!({"sessionId": session}))),
        }
        let answered = editor.finish(rewind);
        assert_eq!(answered.result()["stopReason"], "cancelled", "{method}");
        let is_withdrawal = |message: &Value| message["params"]["requestId"] == form["id"];
        assert!(answered.before.iter().any(is_withdrawal), "{answered:?}");
    }
}

#[test]
fn the_commands_can_be_turned_off() {
    let home = Home::with_config("[editors]\ncommands = false\n");
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    assert_eq!(said(&editor.prompt(&session, "/history")), "echo: /history");
    let limited = editor.prompt(&session, "[[limit 3600]]");
    let updates = limited.updates().into_iter();
    let commands = updates.filter_map(|update| update["availableCommands"].as_array());
    assert!(commands.flatten().all(|command| command["name"] != "history"));
    assert!(!said(&limited).contains("/continue"), "{limited:?}");
}

#[test]
fn a_change_of_the_history_by_another_client_is_told() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    for text in ["one", "two", "three"] {
        editor.prompt(&session, text).result();
    }
    for (command, words) in [
        (
            vec!["edit", &session, "--at", "3", "another"],
            "replaced an earlier prompt",
        ),
        (
            vec!["fork", "--in-place", &session, "--at", "1"],
            "went back to an earlier turn",
        ),
        (vec!["undo", &session], "undid a change"),
        (vec!["reset", &session], "starts an empty session"),
    ] {
        let done = sessionctl(&home, &command).output().unwrap();
        assert!(done.status.success(), "{command:?}: {done:?}");
        let told = editor.until(|message| message["params"]["update"]["content"]["type"] == "text");
        let told = &told.last().unwrap()["params"]["update"]["content"]["text"];
        let told = told.as_str().unwrap();
        assert!(
            told.contains(words) && told.contains("reopen the thread"),
            "{command:?}: {told}"
        );
        if command[0] == "edit" {
            editor.until_said("another");
            editor.until_said("echo: another");
        }
    }
    // The fork must not affect the original session of the same editor.
    run(&home, &["fork", &session]);
    assert_eq!(said(&editor.prompt(&session, "four")), "echo: four");
}

/// The branch takes long to write, because the turn is large, and the editor cancels the command meanwhile.
#[test]
fn a_cancelled_command_that_went_back_is_reported_as_the_editors_own() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    let large = format!("[[say one]] {}", "x".repeat(8 << 20));
    editor.prompt(&session, &large).result();
    editor.prompt(&session, "two").result();
    editor.prompt(&session, "/history").result();
    let shown = show(&home, &session);
    let transcript = home.transcript(shown["head"].as_str().unwrap()).unwrap();
    let files = || fs::read_dir(transcript.parent().unwrap()).unwrap().count();
    let before = files();
    let rewind = editor.begin_prompt(&session, "/rewind 1");
    eventually(|| files() > before);
    editor.cancel(&session);
    let mut told = editor.finish(rewind).said();
    while !told.contains("ent back to") {
        let message = editor.next();
        told += message["params"]["update"]["content"]["text"]
            .as_str()
            .unwrap_or("");
    }
    assert!(!told.contains("nother client"), "{told}");
}

/// Whether a prompt is queued behind the running turn, and is on disk.
fn has_queue(home: &Home, session: &str) -> bool {
    let shown = sessionctl(home, &["show", "--json", session]).output().unwrap();
    String::from_utf8_lossy(&shown.stdout).contains("queuedAt")
}

#[test]
fn a_continuation_is_answered_at_the_end_of_its_turn() {
    let home = Home::new();
    let daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    editor.begin_endless(&session);
    editor.begin_prompt(&session, "[[say released]] [[hang]]");
    eventually(|| has_queue(&home, &session));
    daemon.kill();
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    editor.on("session/load", &session, &home).result();

    // The interrupted turn, and the prompt queued after it, no longer belong to this editor: no editor waits
    // for their answers.
    let continued = editor.prompt(&session, "/continue");
    assert_eq!(said(&continued), format!("echo: {CONTINUE_PROMPT}"));
    assert_eq!(continued.texts("user_message_chunk"), [] as [&str; 0]);
    editor.until_said("released");
    editor.cancel(&session);
    assert_eq!(said(&editor.prompt(&session, "one")), "echo: one");
}

#[test]
fn a_continuation_can_be_cancelled() {
    let home = Home::new();
    let mut daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    for cancel in ["session/cancel", "$/cancel_request", "session/close"] {
        editor.begin_endless(&session);
        editor.begin_prompt(&session, "[[say released]] [[hang]]");
        eventually(|| has_queue(&home, &session));
        daemon.kill();
        daemon = home.start();
        editor = Editor::start(&home);
        editor.on("session/load", &session, &home).result();
        // This prompt settles the interrupted turn; the queued prompt stays held.
        editor.prompt(&session, "one").result();
        let continued = editor.begin_prompt(&session, "/continue");
        editor.until_said("released");
        match cancel {
            "$/cancel_request" => editor.notify(cancel, json!({"requestId": continued})),
            "session/cancel" => editor.notify(cancel, json!({"sessionId": session})),
            _ => drop(editor.begin(cancel, json!({"sessionId": session}))),
        }
        let cancelled = editor.finish(continued);
        assert_eq!(cancelled.result()["stopReason"], "cancelled", "{cancel}");
    }
}

/// A restarted daemon, and a session whose turn was interrupted when the previous daemon was killed.
fn interrupted(home: &Home) -> (Daemon<'_>, String) {
    let daemon = home.start();
    let (mut editor, session) = Editor::in_session(home);
    editor.begin_endless(&session);
    daemon.kill();
    (home.start(), session)
}

#[test]
fn a_continuation_is_called_off_before_it_is_sent() {
    let (home, gate) = Gate::home();
    let (_daemon, session) = interrupted(&home);
    let mut editor = Editor::start(&home);
    gate.hold("session/resume");
    let continued = editor.begin_prompt(&session, "/continue");
    gate.wait_until_held();
    editor.cancel(&session);
    let cancelled = editor.finish(continued);
    assert_eq!(cancelled.result()["stopReason"], "cancelled");
    gate.open();
    assert_eq!(said(&editor.prompt(&session, "one")), "echo: one");
}

/// The cancellation must not end the turn that starts instead.
#[test]
fn a_continuation_that_is_called_off_leaves_the_turn_of_another_client_alone() {
    let (home, gate) = Gate::home();
    let (_daemon, session) = interrupted(&home);
    let (mut editor, mut other) = (Editor::start(&home), Editor::start(&home));
    gate.hold("session/resume");
    let continued = editor.begin_prompt(&session, "/continue");
    gate.wait_until_held();
    let prompt = other.begin_prompt(&session, "[[say mine]] [[ask may I]] [[say done]]");
    eventually(|| has_queue(&home, &session));
    editor.notify("$/cancel_request", json!({"requestId": continued}));
    assert_eq!(editor.finish(continued).result()["stopReason"], "cancelled");
    gate.open();
    let asked = other.until_permission_asked();
    other.allow(&asked);
    let ended = other.finish(prompt);
    assert_eq!(ended.result()["stopReason"], "end_turn");
    assert_eq!(ended.texts("agent_message_chunk"), ["done"]);
}

/// The transcripts of the first agent cannot be read, and those of the second one cannot be cut.
#[test]
fn only_commands_that_can_work_with_the_agent_are_announced() {
    let without = scripted::configured("without", None);
    let settings = "kind = \"generic\"\ntranscript_format = \"qwen\"\ntranscripts = \"/none\"";
    let readable = scripted::configured_with("readable", None, settings);
    let home = Home::with_config(&format!("{without}{readable}"));
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    for (agent, expected) in [
        ("without", vec!["fork", "undo", "continue"]),
        ("readable", vec!["edit", "fork", "undo", "continue", "history"]),
    ] {
        editor.new_session_of(agent, &home);
        let announced = editor.until(|message| message["params"]["update"]["availableCommands"].is_array());
        let commands = announced.last().unwrap()["params"]["update"]["availableCommands"].clone();
        let commands = commands.as_array().unwrap();
        let names = commands.iter().map(|command| command["name"].as_str().unwrap());
        assert_eq!(names.collect::<Vec<_>>(), expected, "{agent}");
        let fork = commands.iter().find(|command| command["name"] == "fork").unwrap();
        assert_eq!(
            fork["input"],
            Value::Null,
            "it takes the number of no turn: {fork}"
        );
    }
}

#[test]
fn a_turn_is_not_continued_while_a_question_of_a_dead_agent_is_open() {
    let home = Home::new();
    let daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    editor.begin_prompt(&session, "[[ask may I]] [[say done]]");
    editor.until_permission_asked();
    daemon.kill();
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    editor.on("session/load", &session, &home).result();
    let words = said(&editor.prompt(&session, "/continue"));
    let command = format!("sessionctl answer {session}");
    assert!(
        words.ends_with(&command) && !words.contains("a later time"),
        "{words}"
    );
}
