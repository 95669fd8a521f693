//! Contract tests of the adapter alone: the facts that the daemon relies on, checked by what the model
//! received. If a new version of the adapter breaks one, these tests show it first.

use std::fs;

use serde_json::{Value, json};

use crate::support::acp_client::{AcpClient, Notification};
use crate::support::claude::{Account, ClaudeLab, project_folder};
use crate::support::model_server::{Said, model, tool_result, tool_use, user};

/// An id of no session.
const NOBODY: &str = "6f1a1f5e-0000-4000-8000-000000000000";

fn opening(lab: &ClaudeLab) -> Value {
    let raw_events = json!([{"type": "system", "subtype": "init"}, {"type": "rate_limit_event"}]);
    let meta = json!({"claudeCode": {"emitRawSDKMessages": raw_events}});
    json!({"cwd": lab.project(), "mcpServers": [], "_meta": meta})
}

fn opening_of(lab: &ClaudeLab, session_id: &str) -> Value {
    let mut params = opening(lab);
    params["sessionId"] = session_id.into();
    params
}

fn new_session(lab: &ClaudeLab, adapter: &AcpClient) -> String {
    let result = adapter.call("session/new", opening(lab)).expect("session/new");
    result["sessionId"].as_str().expect("an id").to_owned()
}

/// A lab, its adapter, and a new session there.
fn opened(account: Account) -> Option<(ClaudeLab, AcpClient, String)> {
    let lab = ClaudeLab::new(account)?;
    let adapter = lab.adapter();
    let session = new_session(&lab, &adapter);
    Some((lab, adapter, session))
}

/// Another adapter, which has resumed this session.
fn resumed(lab: &ClaudeLab, session_id: &str) -> AcpClient {
    let adapter = lab.adapter();
    let opening = opening_of(lab, session_id);
    adapter.call("session/resume", opening).expect("session/resume");
    adapter
}

fn fork(adapter: &AcpClient, params: Value) -> String {
    let result = adapter.call("session/fork", params).expect("session/fork");
    result["sessionId"].as_str().expect("an id").to_owned()
}

fn prompted(adapter: &AcpClient, session_id: &str, text: &str) {
    let result = adapter.prompt(session_id, text).expect("an ordinary turn");
    assert_eq!(result["stopReason"], "end_turn");
}

/// An echoed turn in the form in which the model receives it later.
fn echoed(text: &str) -> [Said; 2] {
    [user(text), model(&format!("ok: {text}"))]
}

/// Asserts that the adapter does not know this session. The daemon classifies recorded examples of both
/// errors.
fn assert_unknown(error: &Value, session_id: &str, what: &str) {
    assert_eq!(
        (&error["code"], &error["data"]["sessionId"]),
        (&json!(-32002), &json!(session_id)),
        "{what}: {error}"
    );
}

/// The raw events of this type that the adapter has sent.
fn raw_events(adapter: &AcpClient, kind: &str) -> Vec<Value> {
    let of_kind = |notification: Notification| {
        let message = &notification.params["message"];
        (notification.method == "_claude/sdkMessage" && message["type"] == kind).then(|| message.clone())
    };
    adapter.notifications().into_iter().filter_map(of_kind).collect()
}

#[test]
#[ignore = "installs the real adapter"]
fn a_new_session_writes_nothing_and_is_unknown_elsewhere_until_prompted() {
    let (lab, adapter, session) = or_skip!(opened(Account::Key));
    assert_eq!(lab.transcripts(), Vec::<std::path::PathBuf>::new());

    let elsewhere = lab.adapter();
    for method in ["session/fork", "session/resume", "session/load"] {
        let error = elsewhere
            .call(method, opening_of(&lab, &session))
            .expect_err(method);
        assert_unknown(&error, &session, method);
    }

    prompted(&adapter, &session, "hello");
    assert!(lab.transcript(&session).is_some());
}

#[test]
#[ignore = "installs the real adapter"]
fn unknown_ids_are_told_apart_from_other_failures() {
    let lab = or_skip!(ClaudeLab::new(Account::Key));
    let adapter = lab.adapter();
    for method in ["session/fork", "session/resume", "session/load"] {
        let error = adapter.call(method, opening_of(&lab, NOBODY)).expect_err(method);
        assert_unknown(&error, NOBODY, method);
        let error = adapter
            .call(method, opening_of(&lab, "not-a-uuid"))
            .expect_err(method);
        if method == "session/fork" {
            assert_unknown(&error, "not-a-uuid", method);
            continue;
        }
        let details = error["data"]["details"].as_str().unwrap_or_default();
        assert!(
            error["code"] == -32603 && details.contains("requires a valid session ID"),
            "{method}: {error}"
        );
    }
    let error = adapter.prompt(NOBODY, "hello").expect_err("a refusal");
    assert_unknown(&error, NOBODY, "session/prompt");
    assert_eq!(
        adapter.call("session/close", json!({"sessionId": NOBODY})),
        Ok(json!({}))
    );

    let mut gone = opening(&lab);
    gone["cwd"] = json!(lab.scratch().join("gone"));
    let error = adapter.call("session/new", gone).expect_err("a missing folder");
    assert_eq!(error["code"], -32602, "{error}");
}

#[test]
#[ignore = "installs the real adapter"]
fn a_killed_adapters_session_is_resumed_with_its_history() {
    let (lab, adapter, session) = or_skip!(opened(Account::Key));
    let with_tool = r#"[[tool Bash {"command":"echo hi","description":"greet"}]] [[text greeted]]"#;
    prompted(&adapter, &session, "first");
    prompted(&adapter, &session, with_tool);
    adapter.kill();

    let adapter = lab.adapter();
    let resumed = adapter
        .call("session/resume", opening_of(&lab, &session))
        .expect("session/resume");
    assert_eq!(resumed["sessionId"], session.as_str());
    prompted(&adapter, &session, "again");
    let mut expected = echoed("first").to_vec();
    expected.extend([
        user(with_tool),
        model("calling"),
        tool_use("Bash"),
        tool_result("hi"),
        model("greeted"),
    ]);
    expected.push(user("again"));
    assert_eq!(lab.model.asked("again"), expected);
}

#[test]
#[ignore = "installs the real adapter"]
fn an_adapter_killed_during_a_turn_has_the_prompt_on_disk() {
    let (lab, adapter, session) = or_skip!(opened(Account::Key));
    prompted(&adapter, &session, "first");
    let cut_short = "cut short [[slow 200 0.1]]";
    adapter.begin_prompt(&session, cut_short);
    // The adapter writes up to 0.1 s later than it sends updates. If it were killed at the first update, the
    // prompt would not be on disk. So this looks at the file again at each update.
    adapter.wait_notification("the prompt in the transcript", |_| {
        let transcript = lab.transcript(&session).expect("a transcript");
        fs::read_to_string(transcript)
            .expect("the transcript")
            .contains(cut_short)
    });
    adapter.kill();

    let adapter = resumed(&lab, &session);
    prompted(&adapter, &session, "again");
    let mut expected = echoed("first").to_vec();
    expected.extend([user(cut_short), model("No response requested."), user("again")]);
    assert_eq!(lab.model.asked("again"), expected);
}

#[test]
#[ignore = "installs the real adapter"]
fn a_fork_copies_the_history_at_once_and_leaves_its_source() {
    let (lab, adapter, source) = or_skip!(opened(Account::Key));
    prompted(&adapter, &source, "first");

    let branch = fork(&adapter, opening_of(&lab, &source));
    assert_ne!(branch, source);
    assert!(lab.transcript(&branch).is_some());
    prompted(&adapter, &branch, "on the branch");
    prompted(&adapter, &source, "on the source");
    let after_first = |text: &str| [&echoed("first")[..], &[user(text)]].concat();
    assert_eq!(lab.model.asked("on the branch"), after_first("on the branch"));
    assert_eq!(lab.model.asked("on the source"), after_first("on the source"));

    // The same with a process that never had the source open.
    let cold = lab.adapter();
    let branch = fork(&cold, opening_of(&lab, &source));
    prompted(&cold, &branch, "cold");
    let expected = [&echoed("first")[..], &echoed("on the source"), &[user("cold")]].concat();
    assert_eq!(lab.model.asked("cold"), expected);
}

#[test]
#[ignore = "installs the real adapter"]
fn a_fork_can_be_cut_after_a_message() {
    let (lab, adapter, source) = or_skip!(opened(Account::Key));
    prompted(&adapter, &source, "first");
    prompted(&adapter, &source, "second");
    prompted(&adapter, &source, "third");
    let of_second = adapter.wait_notification("the answer to the second prompt", |notification| {
        notification.params["update"]["content"]["text"] == "second"
    });
    let message_id = of_second.params["update"]["messageId"]
        .as_str()
        .expect("a message id")
        .to_owned();

    let at = |message_id: &str| {
        let mut params = opening_of(&lab, &source);
        params["_meta"]["jetbrains"] =
            json!({"air": {"version": 1, "fork": {"version": 1, "messageId": message_id}}});
        params
    };
    let branch = fork(&adapter, at(&message_id));
    prompted(&adapter, &branch, "instead of the third");
    let expected = [
        &echoed("first")[..],
        &echoed("second"),
        &[user("instead of the third")],
    ]
    .concat();
    assert_eq!(lab.model.asked("instead of the third"), expected);

    let error = adapter
        .call("session/fork", at("msg_of_nobody"))
        .expect_err("a refusal");
    assert_eq!(error["code"], -32602, "{error}");
}

#[test]
#[ignore = "installs the real adapter"]
fn a_copy_under_a_new_id_resumes_with_the_same_history() {
    let (lab, adapter, session) = or_skip!(opened(Account::Key));
    prompted(&adapter, &session, "first");
    let with_tool = r#"[[tool Bash {"command":"echo hi","description":"greet"}]]"#;
    prompted(&adapter, &session, with_tool);
    adapter.stop();

    let source = lab.transcript(&session).expect("a transcript");
    let copy_id = uuid::Uuid::new_v4().to_string();
    let records = fs::read_to_string(&source).expect("the transcript");
    let (old, new) = (
        format!(r#""sessionId":"{session}""#),
        format!(r#""sessionId":"{copy_id}""#),
    );
    fs::write(
        source.with_file_name(format!("{copy_id}.jsonl")),
        records.replace(&old, &new),
    )
    .expect("the copy");
    fs::remove_file(&source).expect("the deletion");

    let adapter = resumed(&lab, &copy_id);
    prompted(&adapter, &copy_id, "on the copy");
    let mut expected = echoed("first").to_vec();
    expected.extend([
        user(with_tool),
        model("calling"),
        tool_use("Bash"),
        tool_result("hi"),
    ]);
    expected.extend([model("done after 1 steps"), user("on the copy")]);
    assert_eq!(lab.model.asked("on the copy"), expected);
}

#[test]
#[ignore = "installs the real adapter"]
fn a_subscription_limit_tells_its_reset_time_and_keeps_the_prompt() {
    let (lab, adapter, session) = or_skip!(opened(Account::Subscription));
    let resets_at = jiff::Timestamp::now().as_second() + 5400;
    let limited = format!("too much [[err 429 unified=1 ra=1 reset={resets_at}]]");
    // In the first turn of a session the standard protocol does not report the reset time.
    let error = adapter.prompt(&session, &limited).expect_err("a limit");
    assert_eq!(error["data"]["errorKind"], "rate_limit");

    // Only the raw event has the exact time. It may come after the error.
    let limit = adapter.wait_notification("the raw event of the limit", |notification| {
        let message = &notification.params["message"];
        message["type"] == "rate_limit_event" && message["rate_limit_info"]["status"] == "rejected"
    });
    assert_eq!(
        limit.params["message"]["rate_limit_info"]["resetsAt"],
        json!(resets_at)
    );
    // The message contains the time as text, which the daemon reads if there is no such event.
    let message = error["message"].as_str().expect("a message");
    assert!(
        message.contains("hit your limit") && message.contains("resets "),
        "{message}"
    );

    prompted(&adapter, &session, "after it");
    assert_eq!(lab.model.asked("after it"), [user(&limited), user("after it")]);
    adapter.stop();
    let adapter = resumed(&lab, &session);
    prompted(&adapter, &session, "resumed");
    let expected = [&[user(&limited)][..], &echoed("after it"), &[user("resumed")]].concat();
    assert_eq!(lab.model.asked("resumed"), expected);
}

#[test]
#[ignore = "installs the real adapter"]
fn a_resume_keeps_the_model_and_the_system_prompt_which_may_be_given_again() {
    let lab = or_skip!(ClaudeLab::new(Account::Key));
    let adapter = lab.adapter();
    let with_prompt = |mut params: Value| {
        params["_meta"]["systemPrompt"] = json!({"append": "Answer in Latin."});
        params
    };
    let newest = || lab.model.requests().pop().expect("a request");
    let has_prompt = || newest()["system"].to_string().contains("Answer in Latin.");

    let result = adapter
        .call("session/new", with_prompt(opening(&lab)))
        .expect("session/new");
    let session = result["sessionId"].as_str().expect("an id").to_owned();
    prompted(&adapter, &session, "first");
    let usual_model = newest()["model"].clone();
    assert!(has_prompt());

    let error = adapter
        .call(
            "session/set_model",
            json!({"sessionId": session, "modelId": "haiku"}),
        )
        .expect_err("set_model");
    assert_eq!(error["code"], -32601);
    let choice = json!({"sessionId": session, "configId": "model", "value": "haiku"});
    adapter
        .call("session/set_config_option", choice)
        .expect("the config option");
    prompted(&adapter, &session, "second");
    let chosen_model = newest()["model"].clone();
    assert_ne!(chosen_model, usual_model);
    adapter.stop();

    // The first turn stores the prompt in the transcript. A copy may lack these records, so the prompt must
    // be sent again; then it must not appear twice, neither in the system prompt nor as a message.
    for (text, params) in [
        ("third", opening_of(&lab, &session)),
        ("fourth", with_prompt(opening_of(&lab, &session))),
    ] {
        let adapter = lab.adapter();
        adapter.call("session/resume", params).expect("session/resume");
        prompted(&adapter, &session, text);
        assert_eq!(newest()["model"], chosen_model);
        let [system, messages] = ["system", "messages"].map(|part| newest()[part].to_string());
        assert_eq!(system.matches("Answer in Latin.").count(), 1);
        assert!(!messages.contains("Answer in Latin."));
    }
}

#[test]
#[ignore = "installs the real adapter"]
fn clear_rolls_the_transcript_and_only_the_init_event_tells() {
    let (lab, adapter, session) = or_skip!(opened(Account::Key));
    let announced = || -> Vec<String> {
        let inits = raw_events(&adapter, "system").into_iter();
        let inits = inits.filter(|event| event["subtype"] == "init");
        inits
            .filter_map(|event| event["session_id"].as_str().map(str::to_owned))
            .collect()
    };
    prompted(&adapter, &session, "before");
    assert_eq!(announced(), [session.as_str()]);
    adapter.prompt(&session, "/clear").expect("/clear");
    prompted(&adapter, &session, "after");
    // The model receives the command itself and its empty output, but nothing from before it.
    let said = lab.model.asked("after");
    assert!(
        !said.contains(&user("before")) && said.iter().all(|said| said.role == "user"),
        "{said:?}"
    );

    let ids = announced();
    let rolled = ids.last().expect("announced").clone();
    assert_ne!(rolled, session);
    assert!(
        lab.transcript(&rolled).is_some(),
        "announced {ids:?}, wrote {:?}",
        lab.transcripts()
    );
    adapter.stop();

    // The session's own id resumes the history before the clear, the new id the one after it.
    let adapter = lab.adapter();
    for (id, first) in [(&session, "before"), (&rolled, "after")] {
        let text = format!("resumed {first}");
        adapter
            .call("session/resume", opening_of(&lab, id))
            .expect("session/resume");
        prompted(&adapter, id, &text);
        let said = lab.model.asked(&text);
        assert!(
            said.contains(&user(first)) && said.last() == Some(&user(&text)),
            "{said:?}"
        );
        assert_eq!(
            said.iter()
                .filter(|said| **said == user("before") || **said == user("after"))
                .count(),
            1
        );
    }
}

/// The agent finds a session only by the name of its folder.
#[test]
#[ignore = "installs the real adapter"]
fn the_folder_of_a_transcript_is_named_as_we_name_it() {
    let lab = or_skip!(ClaudeLab::new(Account::Key));
    let adapter = lab.adapter();
    let folder = |name: &str| {
        let folder = lab.scratch().join(name);
        fs::create_dir_all(&folder).expect("a folder");
        folder
    };
    let linked = lab.scratch().join("linked");
    std::os::unix::fs::symlink(folder("where it leads"), &linked).expect("a link");
    for cwd in [
        folder("a.b_c-d e"),
        folder("Größe 🦀 \u{65e5}\u{672c}"),
        linked,
        folder(&format!("{}/{}", "long".repeat(30), "longer".repeat(20))),
        folder(&format!("{}/{}", "🦀".repeat(60), "é".repeat(60))),
    ] {
        let mut opening = opening(&lab);
        opening["cwd"] = json!(cwd);
        let made = adapter.call("session/new", opening).expect("session/new");
        let session = made["sessionId"].as_str().expect("an id");
        prompted(&adapter, session, "here");
        let transcript = lab.transcript(session).expect("a transcript");
        let expected = project_folder(&lab.transcript_root(), &cwd);
        assert_eq!(transcript.parent(), Some(&*expected), "{}", cwd.display());
    }
    adapter.stop();
}

/// If copies are in other folders, the agent uses the only one that has messages, but none of several.
#[test]
#[ignore = "installs the real adapter"]
fn a_session_in_several_other_folders_is_not_found() {
    let (lab, adapter, session) = or_skip!(opened(Account::Key));
    prompted(&adapter, &session, "before");
    adapter.stop();
    let own = lab.transcript(&session).expect("a transcript");
    let projects = lab.transcript_root().join("projects");
    let copies = ["-a", "-z"].map(|name| {
        let folder = projects.join(name);
        fs::create_dir(&folder).expect("a folder");
        folder.join(own.file_name().expect("a name"))
    });
    for copy in &copies {
        fs::copy(&own, copy).expect("a copy");
    }
    // A stub without messages in the session's own folder is ignored.
    fs::write(&own, "{\"type\":\"mode\",\"mode\":\"normal\"}\n").expect("a stub");
    let adapter = lab.adapter();
    let opening = opening_of(&lab, &session);
    let refused = adapter.call("session/resume", opening.clone());
    assert_unknown(&refused.expect_err("a refusal"), &session, "session/resume");
    fs::remove_file(&copies[0]).expect("a copy");
    adapter.call("session/resume", opening).expect("session/resume");
    prompted(&adapter, &session, "after");
    assert!(lab.model.asked("after").contains(&user("before")));
    adapter.stop();
}
