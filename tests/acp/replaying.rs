//! Loads of a conversation that continues at the same time.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};

use bridge_protocol::turn::CONTINUE_PROMPT;
use serde_json::{Value, json};

use super::editor::{Editor, eventually, run, show};
use super::opening::{commands_report, report_commands};
use super::unanswered::begin_held_setting;
use crate::gate::Gate;
use crate::home::Home;
use crate::scripted;

/// A load sends its first page before it reads the last one. It reads the last page again while the newest
/// turn is missing from it.
#[test]
fn a_turn_that_ends_during_a_load_is_shown_once() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::after_one_turn(&home);
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

/// Starts a prompt that is not accepted until the gate is opened, because another client's setting is unanswered.
fn begin_unaccepted(editor: &mut Editor, session: &str, home: &Home, gate: &Gate) -> (u64, Child) {
    let setting = begin_held_setting(home, session, gate);
    let turn = editor.begin_prompt(session, "two");
    eventually(|| show(home, session)["state"] == "prompting");
    (turn, setting)
}

/// Writes a prompt to a transcript, like an agent that writes prompts before it sends anything.
fn write_prompt(transcript: &Path, text: &str) {
    let written = fs::read_to_string(transcript).unwrap();
    let records = written
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let records: Vec<Value> = records.filter(|record| record["uuid"].is_string()).collect();
    let mut prompt = records
        .iter()
        .find(|record| record["type"] == "user")
        .unwrap()
        .clone();
    prompt["parentUuid"] = records.last().unwrap()["uuid"].clone();
    prompt["uuid"] = json!("0b2f6c1e-7a53-4c0e-9a43-5d1f0e1c7b22");
    prompt["timestamp"] = json!("2099-01-01T00:00:00.000Z");
    prompt["message"]["content"] = json!(text);
    fs::write(transcript, format!("{written}{prompt}\n")).unwrap();
}

/// How often each of these texts is shown.
fn counts<'a>(messages: &[Value], texts: &[&'a str]) -> Vec<(&'a str, usize)> {
    let count = |text: &str| {
        let updates = messages.iter().map(|message| &message["params"]["update"]);
        updates.filter(|update| update["content"]["text"] == text).count()
    };
    texts.iter().map(|text| (*text, count(text))).collect()
}

/// An editor that loads the session again has forgotten the prompt that it sent itself.
#[test]
fn a_prompt_that_is_not_accepted_during_a_load_is_shown_once() {
    for (is_own, is_written) in [(false, false), (false, true), (true, false), (true, true)] {
        let (home, gate) = Gate::home();
        let _daemon = home.start();
        let (mut editor, session) = Editor::after_one_turn(&home);
        let shown = show(&home, &session);
        let transcript = home.transcript(shown["head"].as_str().unwrap()).unwrap();
        let (turn, mut setting) = begin_unaccepted(&mut editor, &session, &home, &gate);
        if is_written {
            write_prompt(&transcript, "two");
        }
        let mut other = Editor::start(&home);
        let reader = if is_own { &mut editor } else { &mut other };
        let mut messages = reader.on("session/load", &session, &home).before;
        gate.open();
        messages
            .extend(reader.until(|message| message["params"]["update"]["content"]["text"] == "echo: two"));
        let texts = ["one", "echo: one", "two", "echo: two"];
        assert_eq!(
            counts(&messages, &texts),
            texts.map(|text| (text, 1)),
            "own: {is_own}, written: {is_written}"
        );
        editor.finish(turn).result();
        assert!(setting.wait().unwrap().success());
    }
}

#[test]
fn an_editor_that_loads_the_session_again_is_shown_its_queued_prompt() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    let first = editor.begin_prompt(&session, "[[ask may I]] [[say one]]");
    let asked = editor.until_permission_asked();
    let second = editor.begin_prompt(&session, "two");
    // Requests are handled in order, so the load begins after the prompt is queued, and before the third arrives.
    let load = editor.begin_on("session/load", &session, &home);
    let third = editor.begin_prompt(&session, "three");
    let mut messages = editor.finish(load).before;
    editor.allow(&asked);
    for turn in [first, second, third] {
        let answered = editor.finish(turn);
        answered.result();
        messages.extend(answered.before);
    }
    let texts = [
        "[[ask may I]] [[say one]]",
        "one",
        "two",
        "echo: two",
        "three",
        "echo: three",
    ];
    let expected = texts.map(|text| (text, usize::from(text != "three")));
    assert_eq!(counts(&messages, &texts), expected);
}

/// An editor that offers files, and a session.
fn with_files(home: &Home) -> (Editor, String) {
    let mut editor = Editor::with(home, json!({"fs": {"readTextFile": true}}));
    let session = editor.new_session(home);
    (editor, session)
}

/// Starts a load of an open session with other servers. The load has to wait, before it gets a snapshot,
/// because the agent has not answered a setting of another client.
fn begin_held_load(editor: &mut Editor, session: &str, home: &Home, gate: &Gate) -> (u64, Child) {
    let setting = begin_held_setting(home, session, gate);
    let server = json!({"name": "a", "command": "/bin/true", "args": [], "env": []});
    let params = json!({"sessionId": session, "cwd": home.project(), "mcpServers": [server]});
    let load = editor.begin("session/load", params);
    // Requests are handled in order, so once the next one is answered, the load has begun.
    editor.call("session/list", json!({})).result();
    (load, setting)
}

#[test]
fn a_question_that_was_answered_during_a_load_is_withdrawn() {
    let (home, gate) = Gate::home();
    let _daemon = home.start();
    let (mut editor, session) = with_files(&home);
    let turn = editor.begin_prompt(&session, "[[ask may I]] [[say done]]");
    let asked = editor.until_permission_asked();
    let (load, mut setting) = begin_held_load(&mut editor, &session, &home, &gate);
    run(&home, &["answer", &session, "allow"]);
    gate.open();
    // The order may vary: the question is withdrawn, and both requests are answered.
    let mut open = vec![load, turn];
    let mut is_withdrawn = false;
    editor.until(|message| {
        if message["method"] == "$/cancel_request" {
            assert_eq!(message["params"]["requestId"], asked["id"]);
            is_withdrawn = true;
        }
        open.retain(|request| message["id"] != *request || message["method"].is_string());
        open.is_empty() && is_withdrawn
    });
    assert!(setting.wait().unwrap().success());
}

#[test]
fn what_the_agent_asks_of_the_editor_during_a_load_waits_for_its_end() {
    let (home, gate) = Gate::home();
    let _daemon = home.start();
    let (mut editor, session) = with_files(&home);
    // The agent blocks until the pipe is read, so its request comes while the load is held.
    let pipe = Path::new(&home.project()).join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let turn = editor.begin_prompt(
        &session,
        r#"[[say begun]] [[write pipe x]] [[call fs/read_text_file {"path":"/a"}]]"#,
    );
    editor.until_said("begun");
    let (load, mut setting) = begin_held_load(&mut editor, &session, &home, &gate);
    assert_eq!(fs::read(&pipe).unwrap(), b"x");
    gate.open();
    let loaded = editor.finish(load);
    loaded.result();
    let asked = editor.until_asked("fs/read_text_file");
    editor.answer(&asked, json!({"content": "text"}));
    let ended = editor.finish(turn);
    assert_eq!(
        ended.texts("agent_message_chunk").last(),
        Some(&r#"{"content":"text"}"#)
    );
    assert!(setting.wait().unwrap().success());
}

/// The agent reports its commands at the end of the turn, and the load waits for them.
#[test]
fn the_updates_of_a_turn_that_ends_during_a_load_come_before_its_answer() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    report_commands(&mut editor, &home);
    let session = editor.new_session_of("scripted", &home);
    let script = [
        scripted::chunk("begun"),
        r#"{"jsonrpc":"2.0","id":"a","method":"session/request_permission","params":{"sessionId":$S,"toolCall":{"toolCallId":"t"},"options":[]}}"#
            .to_owned(),
        r#"await "a""#.to_owned(),
        scripted::chunk("late"),
        commands_report(),
    ];
    let turn = editor.begin_prompt(&session, &script.join("\n"));
    editor.until_said("begun");
    let asked = editor.until_permission_asked();
    let load = editor.begin_on("session/load", &session, &home);
    editor.until_said("begun");
    editor.answer(&asked, json!({"outcome": {"outcome": "cancelled"}}));
    let mut open = vec![load, turn];
    let messages = editor.until(|message| {
        open.retain(|request| message["id"] != *request || message["method"].is_string());
        open.is_empty()
    });
    let position = |matches: &dyn Fn(&Value) -> bool| messages.iter().position(matches).unwrap();
    let late = position(&|message| message["params"]["update"]["content"]["text"] == "late");
    let answer = position(&|message| message["id"] == turn && message["result"].is_object());
    assert!(late < answer, "{messages:?}");
    assert_eq!(messages[answer]["result"]["stopReason"], "end_turn");
}

#[test]
fn the_prompt_that_continues_a_turn_is_not_loaded_as_the_users() {
    let home = Home::new();
    let daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    editor.begin_endless(&session);
    daemon.kill();
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    editor.on("session/load", &session, &home).result();
    editor.prompt(&session, "/continue").result();
    let quoted = format!("say: {CONTINUE_PROMPT}");
    editor.prompt(&session, &quoted).result();
    let loaded = Editor::start(&home).on("session/load", &session, &home);
    assert!(loaded.said().contains(CONTINUE_PROMPT), "{loaded:?}");
    let prompts = loaded.texts("user_message_chunk");
    assert_eq!(prompts, ["[[say begun]] [[hang]]", &quoted]);
}

/// The texts of these messages that were sent as prompts or by the agent, each with whether it is a prompt.
fn shown_texts(messages: &[Value]) -> Vec<(bool, &str)> {
    let updates = messages.iter().map(|message| &message["params"]["update"]);
    let texts = updates.filter_map(|update| {
        let text = update["content"]["text"].as_str()?;
        Some((update["sessionUpdate"] == "user_message_chunk", text))
    });
    texts.collect()
}

#[test]
fn held_prompts_are_named_after_a_load_and_shown_before_their_answers() {
    for (is_settled, method) in [
        (false, "session/load"),
        (true, "session/load"),
        (true, "session/resume"),
    ] {
        let home = Home::new();
        let daemon = home.start();
        let (mut editor, session) = Editor::in_session(&home);
        editor.begin_endless(&session);
        for (index, text) in ["two", "three"].into_iter().enumerate() {
            editor.begin_prompt(&session, text);
            // An empty queue is left out.
            eventually(|| show(&home, &session)["queue"].as_array().map_or(0, Vec::len) == index + 1);
        }
        daemon.kill();
        let _daemon = home.start();
        let mut editor = Editor::start(&home);
        let mut opened = editor.on(method, &session, &home).before;
        opened.extend(editor.call("session/list", json!({})).before);
        let texts = shown_texts(&opened);
        let named = |text: &str| {
            ["two", "three", "/continue"]
                .iter()
                .all(|part| text.contains(part))
        };
        let notes = texts.iter().filter(|(is_prompt, text)| !is_prompt && named(text));
        assert_eq!(notes.count(), 1, "{method}: {texts:?}");
        if is_settled {
            // Without an interrupted turn, the continuation starts with the first held prompt.
            editor.prompt(&session, "one").result();
        }
        let mut other = Editor::start(&home);
        other.on("session/load", &session, &home).result();
        editor.begin_prompt(&session, "/continue");
        let is_last = |message: &Value| message["params"]["update"]["content"]["text"] == "echo: three";
        for editor in [&mut editor, &mut other] {
            let messages = editor.until(is_last);
            let echo = format!("echo: {CONTINUE_PROMPT}");
            let mut expected = vec![
                (true, "two"),
                (false, "echo: two"),
                (true, "three"),
                (false, "echo: three"),
            ];
            if !is_settled {
                expected.insert(0, (false, &echo));
            }
            assert_eq!(shown_texts(&messages), expected, "{method}");
        }
    }
}

/// The agent dies before it has read the prompt, and its next process does not start, so the continuation sends the prompt again.
#[test]
fn a_prompt_that_is_sent_again_is_shown_only_to_an_editor_that_was_not_shown_it() {
    let (home, gate) = Gate::home();
    let _daemon = home.start();
    let (mut editor, session) = Editor::after_one_turn(&home);
    let mut other = Editor::start(&home);
    other.on("session/load", &session, &home).result();
    gate.hold("session/prompt");
    let failed = editor.begin_prompt(&session, "two");
    gate.wait_until_held();
    other.until_said("two");
    gate.break_with(Some("no"));
    gate.kill_last();
    editor.finish(failed).code();
    gate.break_with(None);
    let mut late = Editor::start(&home);
    late.on("session/load", &session, &home).result();
    editor.begin_prompt(&session, "/continue");
    let is_last = |message: &Value| message["params"]["update"]["content"]["text"] == "echo: two";
    for (reader, is_shown) in [(&mut editor, false), (&mut other, false), (&mut late, true)] {
        let messages = reader.until(is_last);
        let texts = shown_texts(&messages);
        let prompts = texts.iter().filter(|text| **text == (true, "two"));
        assert_eq!(prompts.count(), usize::from(is_shown), "{texts:?}");
    }
}

/// The daemon keeps only the newest updates of a turn. The transcripts of the scripted agent cannot be read.
#[test]
fn a_load_in_a_long_turn_shows_its_newest_updates_after_a_note_about_the_older_ones() {
    const UPDATES: usize = 5_000;
    let home = Home::with_config(&scripted::configured("scripted", None));
    let _daemon = home.start();
    let mut script = vec![scripted::chunk("first")];
    script.extend(vec![scripted::chunk("next"); UPDATES]);
    script.extend([scripted::chunk("last"), "hold".to_owned()]);
    let streamed = format!("[[say first]] [[stream {UPDATES} 0]] [[say last]] [[hang]]");
    for (agent, prompt, is_written) in [
        ("loopback", streamed, true),
        ("scripted", script.join("\n"), false),
    ] {
        let mut editor = Editor::start(&home);
        let session = editor.new_session_of(agent, &home);
        let turn = editor.begin_prompt(&session, &prompt);
        editor.until_said("last");
        let loaded = Editor::start(&home).on("session/load", &session, &home);
        loaded.result();
        let shown = shown_texts(&loaded.before);
        let prompts = shown.iter().filter(|text| **text == (true, &*prompt));
        assert_eq!(prompts.count(), 1, "{agent}");
        let note = shown
            .iter()
            .position(|(_, text)| text.contains("are missing here"));
        let (older, newest) = shown.split_at(note.unwrap_or_else(|| panic!("{agent}: {shown:?}")));
        assert_eq!(
            older.contains(&(false, "first")),
            is_written,
            "{agent}: {older:?}"
        );
        assert_eq!(newest.last(), Some(&(false, "last")), "{agent}");
        assert!(
            (4_000..UPDATES).contains(&newest.len()),
            "{agent}: {}",
            newest.len()
        );
        editor.cancel(&session);
        assert_eq!(editor.finish(turn).result()["stopReason"], "cancelled");
    }
}
