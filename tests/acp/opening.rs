//! Creating, loading, resuming, forking, listing, closing and deleting sessions.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::editor::{Answered, Editor, eventually, run, show};
use super::recorder::Recorder;
#[cfg(target_os = "linux")]
use crate::daemon::refused_sessions::{OPENS_NOTHING, change_requests, configure};
use crate::gate::Gate;
use crate::home::Home;
use crate::scripted;

/// The kind of the update that announces commands.
const COMMANDS: &str = "available_commands_update";

fn is_update(message: &Value, kind: &str) -> bool {
    message["params"]["update"]["sessionUpdate"] == kind
}

/// The line of a script that reports a command.
pub(super) fn commands_report() -> String {
    let commands = json!([{"name": "slow", "description": "Reported late"}]);
    scripted::update(&json!({"sessionUpdate": COMMANDS, "availableCommands": commands}))
}

/// Makes the scripted agent report commands, in a session of its own. From then on, loads of its sessions wait for theirs.
pub(super) fn report_commands(editor: &mut Editor, home: &Home) {
    let session = editor.new_session_of("scripted", home);
    editor.prompt(&session, &commands_report()).result();
}

/// Loads a session in a new process. The whole history must come before the answer.
fn loaded(home: &Home, session: &str) -> Answered {
    let mut editor = Editor::start(home);
    let answered = editor.on("session/load", session, home);
    let mut messages = answered.before.iter();
    for message in messages.clone() {
        assert_eq!(message["params"]["sessionId"], session, "{message}");
    }
    let last = messages.next_back().unwrap();
    assert!(is_update(last, COMMANDS), "{answered:?}");
    assert_eq!(
        answered.kinds().iter().filter(|kind| **kind == COMMANDS).count(),
        1
    );
    assert_eq!(answered.result()["sessionId"], session);
    assert_eq!(answered.result()["modes"]["currentModeId"], "default");
    assert_eq!(answered.result()["configOptions"][0]["id"], "model");
    // After the answer only the commands may follow, if the agent was slow to report them.
    let were_reported = last.to_string().contains("[[recall]]");
    let mut next = editor.call("session/list", json!({})).before;
    next.retain(|message| were_reported || !is_update(message, COMMANDS));
    assert_eq!(next, [] as [Value; 0]);
    answered
}

#[test]
fn nothing_is_said_of_a_session_before_the_editor_knows_it() {
    let home = Home::new();
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    let made = editor.call("session/new", json!({"cwd": home.project(), "mcpServers": []}));
    assert_eq!(made.before, [] as [Value; 0]);
    let session = &made.result()["sessionId"];
    let modes = &made.result()["modes"];
    assert_eq!(modes["currentModeId"], "default");
    assert_eq!(modes["availableModes"][0]["id"], "default");
    assert_eq!(made.result()["configOptions"][0]["id"], "model");
    let next = editor.next();
    assert!(is_update(&next, COMMANDS), "{next}");
    assert_eq!(next["params"]["sessionId"], *session);
}

#[test]
fn a_load_replays_the_whole_history_before_its_answer() {
    let home = Home::new();
    let daemon = home.start();
    let (mut editor, session) = Editor::after_one_turn(&home);
    editor
        .prompt(&session, r#"[[tool Read {"path":"a"}]] [[say two]]"#)
        .result();
    assert_eq!(editor.close(&session).result(), &json!({}));
    assert!(editor.end().0.success());
    let first = loaded(&home, &session);
    assert_eq!(first.texts("agent_message_chunk"), ["echo: one", "two"]);
    assert_eq!(first.texts("user_message_chunk")[0], "one");
    let tools = ["tool_call", "tool_call_update"];
    let kinds = first.kinds();
    assert!(kinds.windows(2).any(|pair| pair == tools), "{kinds:?}");
    drop(daemon);
    // Each load sends the same message ids, even with another daemon and agent process.
    let _daemon = home.start();
    let again = loaded(&home, &session);
    let history = |loaded: &Answered| {
        let updates = loaded.updates().into_iter();
        let history = updates.filter(|update| update["sessionUpdate"] != COMMANDS);
        history.cloned().collect::<Vec<Value>>()
    };
    assert_eq!(history(&again), history(&first));
}

#[test]
fn a_session_that_was_never_prompted_is_loaded_and_resumed_in_a_new_process() {
    let home = Home::new();
    let daemon = home.start();
    let (editor, session) = Editor::in_session(&home);
    editor.kill();
    assert_eq!(loaded(&home, &session).kinds(), [COMMANDS]);
    drop(daemon);
    let _daemon = home.start();
    assert_eq!(loaded(&home, &session).kinds(), [COMMANDS]);
    let mut editor = Editor::start(&home);
    let resumed = editor.on("session/resume", &session, &home);
    assert_eq!(resumed.before, [] as [Value; 0]);
    assert_eq!(resumed.result()["sessionId"], session.as_str());
    let said = editor.prompt(&session, "hello");
    assert_eq!(said.texts("agent_message_chunk"), ["echo: hello"]);
}

#[test]
fn sessions_are_listed_forked_and_deleted() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::after_one_turn(&home);
    let fork = editor.on("session/fork", &session, &home);
    let branch = fork.session_id();
    assert_ne!(branch, session);
    let recalled = editor.prompt(&branch, "[[recall]]");
    assert!(recalled.said().contains("echo: one"), "{recalled:?}");

    let other = home.folder_named("other");
    let elsewhere = editor.call("session/new", json!({"cwd": other, "mcpServers": []}));
    let elsewhere = elsewhere.session_id();
    let mut listed = |params: Value| -> Vec<String> {
        let page = editor.call("session/list", params);
        let sessions = page.result()["sessions"].as_array().unwrap().clone();
        assert!(sessions.iter().all(|session| session["cwd"].is_string()));
        sessions
            .iter()
            .map(|session| session["sessionId"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(listed(json!({"cwd": other})), [elsewhere.as_str()]);
    let mut both = listed(json!({"cwd": home.project()}));
    both.sort();
    let mut expected = [session.clone(), branch.clone()];
    expected.sort();
    assert_eq!(both, expected);
    assert_eq!(listed(json!({})).len(), 3);

    // A prefix of an id is not accepted.
    editor
        .call("session/delete", json!({"sessionId": &session[..8]}))
        .result();
    assert_eq!(editor.on("session/load", &session[..8], &home).code(), -32002);
    editor.on("session/resume", &session, &home).result();
    assert_eq!(editor.delete(&session).result(), &json!({}));
    let left = editor.call("session/list", json!({"cwd": home.project()}));
    let left = left.result()["sessions"].as_array().unwrap();
    assert_eq!(
        left.len(),
        1,
        "{left:?}: the session or its transcript is still listed"
    );
    assert_eq!(left[0]["sessionId"], branch.as_str());
    assert_eq!(editor.on("session/load", &session, &home).code(), -32002);
}

/// A home whose agent has a transcript with one turn, made by another program, and the session's id.
fn home_with_foreign_transcript(made: &Home) -> (Home, String) {
    let transcript = {
        let _daemon = made.start();
        let mut editor = Editor::start(made);
        let session = editor.new_session(made);
        editor.prompt(&session, "from elsewhere").result();
        let shown = show(made, &session);
        made.transcript(shown["head"].as_str().unwrap()).unwrap()
    };
    let home = Home::new();
    let folder = home.data().join("loopback/projects/-some-folder");
    std::fs::create_dir_all(&folder).unwrap();
    let id = transcript.file_stem().unwrap().to_str().unwrap().to_owned();
    std::fs::copy(&transcript, folder.join(transcript.file_name().unwrap())).unwrap();
    // A transcript without any message.
    let silent = folder.join("259807c8-0119-4ff3-a1d5-4bc6b18433cd.jsonl");
    std::fs::write(
        silent,
        "{\"type\":\"summary\",\"summary\":\"x\",\"leafUuid\":\"u\"}\n",
    )
    .unwrap();
    // A transcript that contains only a command of the agent.
    let cleared = json!({
        "type": "user", "uuid": "u", "cwd": home.project(),
        "message": {"role": "user", "content": "<command-name>/clear</command-name>"},
    });
    let name = "ef6ad6ec-6a4f-42ae-94a7-4b8b4a8ab1f2.jsonl";
    std::fs::write(folder.join(name), format!("{cleared}\n")).unwrap();
    (home, id)
}

#[test]
fn a_transcript_that_was_made_elsewhere_is_listed_and_loaded() {
    let made = Home::new();
    let (home, id) = home_with_foreign_transcript(&made);
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    // A method that the protocol does not define does not adopt the transcript as a conversation.
    assert_eq!(editor.call("_unnamed", json!({"sessionId": id})).code(), -32002);
    let listed = editor.call("session/list", json!({}));
    let listed = listed.result()["sessions"].as_array().unwrap();
    assert_eq!((listed.len(), &listed[0]["sessionId"]), (1, &json!(id)));
    // The session keeps the id that the editor used.
    let answered = loaded(&home, &id);
    assert_eq!(answered.texts("agent_message_chunk"), ["echo: from elsewhere"]);
}

#[test]
fn a_transcript_whose_folder_is_gone_is_loaded_in_the_folder_of_the_editor() {
    let made = Home::new();
    let (home, id) = home_with_foreign_transcript(&made);
    drop(made);
    let _daemon = home.start();
    let answered = loaded(&home, &id);
    assert_eq!(answered.texts("agent_message_chunk"), ["echo: from elsewhere"]);
    assert_eq!(show(&home, &id)["cwd"], home.project().as_str());
}

#[test]
fn requests_behind_a_load_wait_for_it() {
    let home = Home::new();
    let _daemon = home.start();
    let (editor, session) = Editor::after_one_turn(&home);
    assert!(editor.end().0.success());
    let mut editor = Editor::start(&home);
    let load = editor.begin_on("session/load", &session, &home);
    let [mode, option] = editor.begin_settings(&session);
    let prompt = editor.begin_prompt(&session, "[[settings]]");
    let replayed = editor.finish(load);
    assert_eq!(
        replayed.kinds(),
        ["user_message_chunk", "agent_message_chunk", COMMANDS]
    );
    assert_eq!(editor.finish(mode).result(), &json!({}));
    let options = editor.finish(option);
    assert_eq!(options.result()["configOptions"][0]["currentValue"], "loop-2");
    let said = editor.finish(prompt).said();
    assert!(said.contains("loop-2") && said.contains("plan"), "{said}");
}

/// The prompt makes the daemon reopen the session, and the settings arrive before it is open.
#[test]
fn settings_wait_while_a_session_is_reopened() {
    let (home, gate) = Gate::home();
    let _daemon = home.start();
    let (mut editor, session) = Editor::after_one_turn(&home);
    gate.hold("session/resume");
    gate.kill_last();
    let prompt = editor.begin_prompt(&session, "[[settings]]");
    gate.wait_until_held();
    let [mode, option] = editor.begin_settings(&session);
    let mut answers = editor.call("session/list", json!({})).before;
    gate.open();
    answers.retain(|message| message["id"].is_u64());
    while answers.len() < 3 {
        let message = editor.next();
        let is_answer = [prompt, mode, option].iter().any(|id| message["id"] == *id);
        answers.extend(is_answer.then_some(message));
    }
    let failed = answers.iter().filter(|answer| answer["error"].is_object());
    assert_eq!(failed.collect::<Vec<_>>(), [] as [&Value; 0]);
    let said = editor.prompt(&session, "[[settings]]");
    let said = said.said();
    assert!(said.contains("loop-2") && said.contains("plan"), "{said}");
}

#[test]
fn a_daemon_that_stops_ends_a_load() {
    let (home, gate) = Gate::home();
    let daemon = home.start();
    let (editor, session) = Editor::after_one_turn(&home);
    editor.kill();
    drop(daemon);
    let daemon = home.start();
    gate.hold("session/resume");
    let mut editor = Editor::start(&home);
    let load = editor.begin_on("session/load", &session, &home);
    gate.wait_until_held();
    daemon.signal(Signal::TERM);
    let answered = editor.finish(load);
    assert!(answered.answer["error"].is_object(), "{answered:?}");
    assert_eq!(editor.ended().0.code(), Some(3));
    drop(daemon);
    let _daemon = home.start();
    assert_eq!(
        loaded(&home, &session).texts("agent_message_chunk"),
        ["echo: one"]
    );
}

/// The first turn has no reply, so the two prompts follow each other directly.
#[test]
fn a_running_turn_is_replayed_once() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    let first = editor.begin_prompt(&session, "[[hang]]");
    let state = || -> Value {
        let shown = show(&home, &session);
        shown["state"].clone()
    };
    eventually(|| state() == "prompting");
    editor.cancel(&session);
    assert_eq!(editor.finish(first).result()["stopReason"], "cancelled");
    editor.begin_prompt(&session, "[[say begun]] [[ask may I]]");
    editor.until_said("begun");
    editor.kill();
    let mut editor = Editor::start(&home);
    let replayed = editor.on("session/load", &session, &home);
    let prompts = replayed.texts("user_message_chunk");
    let running = prompts.iter().filter(|text| text.contains("begun")).count();
    assert_eq!(running, 1, "{prompts:?}");
    assert_eq!(replayed.texts("agent_message_chunk"), ["begun"]);
}

#[test]
fn nothing_of_one_editors_session_reaches_another() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut one, mut other) = (Editor::start(&home), Editor::start(&home));
    let session = one.new_session(&home);
    one.prompt(&session, "secret").result();
    assert_eq!(other.close(&session).before, [] as [Value; 0]);
    // An editor that has opened the session sees the updates of its turns.
    other.on("session/resume", &session, &home).result();
    let running = one.begin_prompt(&session, "again");
    other.until_said("again");
    other.until_said("echo: again");
    let answered = one.finish(running);
    assert_eq!(
        answered.texts("user_message_chunk"),
        [] as [&str; 0],
        "the editor's own prompt was sent back to it"
    );
}

#[test]
fn a_conversation_whose_agent_is_not_configured_any_more_is_not_unknown() {
    let home = Home::new();
    let _recorder = Recorder::in_home(&home);
    let daemon = home.start();
    let (editor, session) = Editor::after_one_turn(&home);
    editor.kill();
    daemon.kill();
    home.configure("");
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    editor.on("session/load", &session, &home).result();
}

#[test]
fn a_refused_load_leaves_an_open_session_open() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    let relative = json!({"sessionId": session, "cwd": "relative", "mcpServers": []});
    assert_eq!(editor.call("session/load", relative).code(), -32602);
    run(&home, &["send", &session, "elsewhere"]);
    editor.until_said("echo: elsewhere");
}

#[test]
fn a_load_of_an_open_session_says_once_what_was_lost() {
    let home = Home::new();
    let _daemon = home.start();
    let (mut editor, session) = Editor::in_session(&home);
    for text in ["one", "two"] {
        editor.prompt(&session, text).result();
    }
    let shown = show(&home, &session);
    let head = shown["head"].as_str().unwrap();
    let transcript = home.transcript(head).unwrap();
    run(&home, &["close", &session]);
    let whole = fs::read_to_string(&transcript).unwrap();
    let left = whole.lines().take_while(|line| !line.contains("two"));
    fs::write(
        &transcript,
        left.map(|line| format!("{line}\n")).collect::<String>(),
    )
    .unwrap();
    let before = editor.received.len();
    editor.on("session/load", &session, &home).result();
    editor.prompt(&session, "three").result();
    let told = editor.received[before..].iter();
    let told = told.filter(|line| line.contains("was reopened without 1 earlier turn"));
    assert_eq!(told.count(), 1, "{:#?}", editor.received);
}

#[cfg(target_os = "linux")]
#[test]
fn a_whole_session_that_is_left_for_text_is_gone_back_to_with_a_command() {
    let home = Home::new();
    configure(home.path(), "");
    let daemon = home.start();
    let (_editor, session) = Editor::after_one_turn(&home);
    daemon.kill();
    change_requests(home.path(), OPENS_NOTHING);
    let daemon = home.start();
    let mut editor = Editor::start(&home);
    let said = editor.prompt(&session, "two").said();
    assert!(said.contains("go back to it with /undo"), "{said}");
    daemon.kill();
    change_requests(home.path(), "");
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    editor.prompt(&session, "/undo").result();
    let recalled = editor.prompt(&session, "[[recall]]").said();
    assert!(
        recalled.contains("echo: one") && !recalled.contains("two"),
        "{recalled}"
    );
}

#[test]
fn the_servers_and_folders_of_a_load_apply_to_an_open_session() {
    let home = Home::new();
    let filter = r#"sed -u 's/"sessionCapabilities":{/&"additionalDirectories":{},/'"#;
    let recorder = Recorder::filtered(&home, filter);
    let _daemon = home.start();
    let (mut editor, session) = Editor::after_one_turn(&home);
    let folder = home.folder_named("more");
    let server_named = |name: &str| json!({"name": name, "command": "/bin/cat", "args": [], "env": []});
    let load = |editor: &mut Editor, method: &str, servers: Value, folders: Value| {
        let params = json!({
            "sessionId": session, "cwd": home.project(), "mcpServers": servers, "additionalDirectories": folders,
        });
        let loaded = editor.call(method, params);
        loaded.result();
        loaded.said()
    };
    let last_opened = || {
        let is_opening = |line: &&String| line.contains(r#""method":"session/resume""#);
        let opened = recorder.all_lines().iter().rfind(is_opening).cloned();
        let opened: Value = serde_json::from_str(&opened.unwrap()).unwrap();
        (
            opened["params"]["mcpServers"].clone(),
            opened["params"]["additionalDirectories"].clone(),
        )
    };
    for (method, name) in [("session/load", "tools"), ("session/resume", "others")] {
        let server = server_named(name);
        load(&mut editor, method, json!([server]), json!([folder]));
        assert_eq!(last_opened(), (json!([server]), json!([folder])), "{method}");
        // The same servers again change nothing, and neither does an empty list, because every editor must
        // send a list.
        let lines = recorder.all_lines().len();
        load(&mut editor, method, json!([server]), json!([folder]));
        load(&mut editor, method, json!([]), json!([]));
        assert_eq!(recorder.all_lines().len(), lines, "{method}");
    }
    run(&home, &["close", &session]);
    load(&mut editor, "session/load", json!([]), json!([]));
    assert_eq!(last_opened(), (json!([server_named("others")]), json!([folder])));

    // During a turn the servers cannot be changed, and the editor gets a message instead.
    let turn = editor.begin_prompt(&session, "[[ask may I]]");
    let asked = editor.until_permission_asked();
    let mut other = Editor::start(&home);
    let told = load(
        &mut other,
        "session/load",
        json!([server_named("tools")]),
        json!([]),
    );
    assert!(told.contains("apply when the agent next opens it"), "{told}");
    editor.allow(&asked);
    editor.finish(turn).result();
}

/// If the agent sends something about a session before it answers the request that opens it, the editor gets
/// it after the answer.
#[test]
fn what_comes_before_the_agents_answer_follows_the_answer_to_the_editor() {
    let able = r#"{"loadSession":false,"sessionCapabilities":{"close":{},"resume":{}}}"#;
    let home = Home::with_config(&scripted::configured("scripted", Some(able)));
    let update = |update: Value| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":$S,"update":{update}}}}}"#
        )
    };
    let script = [
        scripted::chunk("early"),
        update(json!({"sessionUpdate": "usage_update", "used": 1, "size": 2})),
        update(json!({"sessionUpdate": "plan", "entries": []})),
        r#"{"jsonrpc":"2.0","method":"_early","params":{"sessionId":$S}}"#.to_owned(),
    ];
    std::fs::write(home.path().join(scripted::BEFORE_OPENING), script.join("\n")).unwrap();
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    let meta = json!({"sessiond": {"agent": "scripted"}});
    let params = json!({"cwd": home.project(), "mcpServers": [], "_meta": meta});
    let made = editor.call("session/new", params);
    assert_eq!(made.before, [] as [Value; 0]);
    let session = made.session_id();
    let follows = |messages: Vec<Value>| {
        let mut kinds = Vec::new();
        for message in messages {
            assert_eq!(message["params"]["sessionId"], session.as_str(), "{message}");
            let kind = match message["method"].as_str().unwrap() {
                "session/update" => message["params"]["update"]["sessionUpdate"].clone(),
                method => json!(method),
            };
            if kind != COMMANDS {
                kinds.push(kind);
            }
        }
        assert_eq!(kinds, ["agent_message_chunk", "usage_update", "plan", "_early"]);
    };
    follows(editor.until(|message| message["method"] == "_early"));
    editor.prompt(&session, &scripted::chunk("said")).result();
    for method in ["session/resume", "session/load"] {
        run(&home, &["close", &session]);
        let mut other = Editor::start(&home);
        let opened = other.on(method, &session, &home);
        opened.result();
        let replayed = |message: &Value| {
            let update = &message["params"]["update"];
            // The agent has no transcript to replay.
            let text = update["content"]["text"].as_str().unwrap_or_default();
            text.starts_with("The history cannot be shown")
        };
        let mut seen = opened.before;
        if !seen.iter().any(|message| message["method"] == "_early") {
            seen.extend(other.until(|message| message["method"] == "_early"));
        }
        seen.retain(|message| !replayed(message));
        follows(seen);
    }
}

/// The agent reports its commands only after the first load. The next load waits for them.
#[test]
fn a_load_waits_for_the_commands_of_an_agent_that_was_slow_before() {
    let able = r#"{"sessionCapabilities":{"resume":{},"close":{}}}"#;
    let home = Home::with_config(&scripted::configured("scripted", Some(able)));
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    let first = editor.new_session_of("scripted", &home);
    let loaded = Editor::start(&home).on("session/load", &first, &home);
    assert!(loaded.kinds().contains(&COMMANDS), "{loaded:?}");
    editor.prompt(&first, &commands_report()).result();

    let second = editor.new_session_of("scripted", &home);
    let mut other = Editor::start(&home);
    let load = other.begin_on("session/load", &second, &home);
    // The agent has no transcript to replay. The load says so, and then waits.
    other.until(|message| {
        let text = message["params"]["update"]["content"]["text"].as_str();
        text.is_some_and(|text| text.starts_with("The history cannot be shown"))
    });
    editor.prompt(&second, &commands_report()).result();
    let loaded = other.finish(load);
    assert_eq!(loaded.kinds(), [COMMANDS]);
    assert_eq!(loaded.updates()[0]["availableCommands"][0]["name"], "slow");
}

/// Editors sign in by the code, and some by what stands beside it.
#[test]
fn a_missing_sign_in_keeps_the_data_of_the_agents_error() {
    let capabilities = r#"{"sessionCapabilities":{"resume":{},"close":{}}}"#;
    let home = Home::with_config(&scripted::configured("scripted", Some(capabilities)));
    let _daemon = home.start();
    let mut editor = Editor::start(&home);
    let session = editor.new_session_of("scripted", &home);
    editor.prompt(&session, &scripted::chunk("hello")).result();
    let data = json!({"authMethods": [{"id": "key", "name": "Key"}]});
    for (code, given, expected) in [
        (-32000, &data, &data),
        // Not every agent uses the protocol's code.
        (-32603, &data, &data),
        (-32000, &Value::Null, &json!("authRequired")),
    ] {
        let error = json!({"code": code, "message": "Authentication required", "data": given});
        let refusal = json!({ "error": error });
        fs::write(home.path().join(scripted::REFUSE_NEW), error.to_string()).unwrap();
        scripted::answer(&home, &json!({"session/resume": refusal}));
        run(&home, &["close", &session]);
        let meta = json!({"sessiond": {"agent": "scripted"}});
        let new = json!({"cwd": home.project(), "mcpServers": [], "_meta": meta});
        let made = editor.call("session/new", new);
        for refused in [made, Editor::start(&home).on("session/resume", &session, &home)] {
            assert_eq!(refused.code(), -32000);
            let told = &refused.answer["error"]["data"];
            let told = if given.is_null() { &told["kind"] } else { told };
            assert_eq!(told, expected, "{code}");
        }
    }
}
