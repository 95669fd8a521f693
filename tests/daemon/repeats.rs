//! Request ids: a repeated call runs once, also if the daemon was killed in between.

use std::fs;

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::ConversationState;
use bridge_protocol::error::ErrorKind;
use serde_json::{Value, json};

use crate::gate::Gate;
use crate::home::Home;
use crate::signs::Watched;
use crate::support::{App, Refusal, id_in, refused};

fn prompt(id: ConversationId, text: &str, request: &str) -> Value {
    json!({"conversationId": id, "prompt": text, "requestId": request})
}

#[tokio::test]
async fn the_same_prompt_again_joins_the_running_turn() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&[]).await;
    let mut first = daemon.raw().await;
    first.subscribe(id).await;
    let text = "[[say working]][[hang]]";
    let asked = first.send("conversation/prompt", prompt(id, text, "r1")).await;
    first.event("promptAccepted").await;
    let mut second = daemon.raw().await;
    let again = second.send("conversation/prompt", prompt(id, text, "r1")).await;
    // Sent after it on the same connection: once this is answered, the repeated call has been admitted.
    let other = Refusal(1012, "conflict", false);
    second
        .refused("conversation/prompt", prompt(id, "something else", "r1"), other)
        .await;
    assert!(second.passed.is_empty(), "the repeated call waits with the first");
    app.ask("conversation/cancel", id).await;
    let answers = (first.answer(asked).await, second.answer(again).await);
    assert_eq!(answers.0["result"]["stopReason"], "cancelled");
    assert_eq!(answers.0["result"], answers.1["result"]);
    assert_eq!(app.recall(id).await.len(), 1);
}

#[tokio::test]
async fn the_same_prompt_afterwards_returns_the_result_and_runs_nothing() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&[]).await;
    let first = app
        .call("conversation/prompt", prompt(id, "once", "r1"))
        .await
        .unwrap();
    let again = app
        .call("conversation/prompt", prompt(id, "once", "r1"))
        .await
        .unwrap();
    assert_eq!(first, again);
    let other = app.call("conversation/prompt", prompt(id, "twice", "r1")).await;
    refused(other, ErrorKind::Conflict);
    let failed = app
        .call("conversation/prompt", prompt(id, "[[fail network]]", "r2"))
        .await;
    let again = app
        .call("conversation/prompt", prompt(id, "[[fail network]]", "r2"))
        .await;
    assert_eq!(failed.unwrap(), again.unwrap(), "a failed turn is a result too");
    // The request ids of another conversation are separate.
    let sibling = app.make(&home.project()).await;
    let theirs = app
        .call("conversation/prompt", prompt(sibling, "once", "r1"))
        .await
        .unwrap();
    assert_ne!(theirs["turnId"], first["turnId"]);

    daemon.kill();
    let (_daemon, app) = home.opened().await;
    let after = app
        .call("conversation/prompt", prompt(id, "once", "r1"))
        .await
        .unwrap();
    assert_eq!(after, first);
    let other = app.call("conversation/prompt", prompt(id, "twice", "r1")).await;
    refused(other, ErrorKind::Conflict);
    assert_eq!(
        app.remembered(id).await,
        ["once"],
        "the failed prompt does not count as a turn"
    );
}

/// F18: a prompt that was sent before the daemon was killed has ended. A repeated call returns that end, and the prompt
/// is not sent again.
#[tokio::test]
async fn a_prompt_that_the_daemon_died_over_is_not_sent_again() {
    let home = Home::new();
    let (daemon, _app, id) = home.begun(&[]).await;
    let mut raw = daemon.raw().await;
    raw.subscribe(id).await;
    let text = "[[write made.txt x]][[hang]]";
    raw.send("conversation/prompt", prompt(id, text, "r1")).await;
    let turn = raw.event("promptAccepted").await["turnId"].clone();
    daemon.kill();

    let (_daemon, app) = home.opened().await;
    assert_eq!(app.get(id).await.state, ConversationState::Interrupted);
    let again = app
        .call("conversation/prompt", prompt(id, text, "r1"))
        .await
        .unwrap();
    assert_eq!(again["turnId"], turn);
    assert_eq!(again["stopReason"], "failed");
    assert_eq!(again["failure"]["kind"], "daemonRestarted");
    assert_eq!(app.remembered(id).await, [text]);
    assert_eq!(app.get(id).await.state, ConversationState::Idle);
}

#[tokio::test]
async fn a_conversation_and_a_fork_are_made_once() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let new = json!({"cwd": home.project(), "title": "one", "requestId": "n1"});
    let made = app.call("conversation/new", new.clone()).await.unwrap();
    assert_eq!(app.call("conversation/new", new.clone()).await.unwrap(), made);
    let other = json!({"cwd": home.project(), "title": "two", "requestId": "n1"});
    refused(app.call("conversation/new", other).await, ErrorKind::Conflict);
    let id = id_in(&made);
    app.send(id, "first").await;
    let fork = json!({"conversationId": id, "title": "branch", "requestId": "f1"});
    let branch = app.call("conversation/fork", fork.clone()).await.unwrap();
    let same = |again: &Value| {
        assert_eq!(again["conversation"]["id"], branch["conversation"]["id"]);
        assert_eq!(again["link"], branch["link"]);
    };
    same(&app.call("conversation/fork", fork.clone()).await.unwrap());
    let other = json!({"conversationId": id, "title": "another", "requestId": "f1"});
    refused(app.call("conversation/fork", other).await, ErrorKind::Conflict);
    daemon.kill();

    let (_daemon, app) = home.opened().await;
    assert_eq!(app.call("conversation/new", new).await.unwrap(), made);
    same(&app.call("conversation/fork", fork).await.unwrap());
    let status = app.call("daemon/status", json!({})).await.unwrap();
    assert_eq!(status["conversations"], 2);
}

/// If the new conversation could not be opened, a repeated call opens it and makes no second one.
#[tokio::test]
async fn a_repeated_new_opens_the_conversation_that_the_first_call_made() {
    let programs = tempfile::tempdir().unwrap();
    let program = programs.path().join("agent");
    let home = Home::with_config(&format!(
        "[agents.late]\nkind = \"generic\"\ncommand = {program:?}\nargs = [\"loopback-agent\", \"--data\", {:?}]\n",
        programs.path()
    ));
    let new = json!({"cwd": home.project(), "agent": "late", "open": true, "requestId": "n1"});
    let mut made = Vec::new();
    for _ in 0..2 {
        let (daemon, app) = home.opened().await;
        for _ in 0..2 {
            let failed = app.call("conversation/new", new.clone()).await.unwrap_err();
            assert_eq!(failed.kind, ErrorKind::AgentUnavailable);
            made.push(failed.detail("conversationId"));
        }
        daemon.kill();
    }
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_sessiond"), &program).unwrap();
    let (daemon, app) = home.opened().await;
    let mut other = new.clone();
    other["open"] = json!(false);
    refused(app.call("conversation/new", other).await, ErrorKind::Conflict);
    let opened = app.call("conversation/new", new.clone()).await.unwrap();
    assert_eq!(opened["conversation"]["live"], true);
    made.push(opened["conversation"]["id"].clone());
    assert!(made.iter().all(|id| *id == made[0]), "{made:?}");
    assert_eq!(app.call("conversation/new", new.clone()).await.unwrap(), opened);
    drop(app);
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    assert_eq!(app.call("conversation/new", new).await.unwrap(), opened);
    let status = app.call("daemon/status", json!({})).await.unwrap();
    assert_eq!(status["conversations"], 1);
}

/// Two identical calls at the same time get the same response, once the session is open.
#[tokio::test]
async fn two_of_the_same_new_at_once_are_answered_when_it_is_open() {
    let home = Home::new();
    let daemon = home.start();
    let (mut first, mut second) = (daemon.raw().await, daemon.raw().await);
    let new = json!({"cwd": home.project(), "open": true, "requestId": "n1"});
    let asked = first.send("conversation/new", new.clone()).await;
    let again = second.send("conversation/new", new).await;
    let answers = (first.answer(asked).await, second.answer(again).await);
    assert_eq!(answers.0["result"]["conversation"]["live"], true);
    assert_eq!(answers.0["result"], answers.1["result"]);
}

/// Two `new` calls with the same request id at the same time make one conversation.
#[tokio::test]
async fn two_of_the_same_new_at_once_make_one_conversation() {
    let home = Home::new();
    let daemon = home.start();
    let mut raw = daemon.raw().await;
    let new = json!({"cwd": home.project(), "requestId": "n1"});
    let requests = [
        raw.send("conversation/new", new.clone()).await,
        raw.send("conversation/new", new).await,
    ];
    let mut ids = Vec::new();
    while ids.len() < 2 {
        let answer = raw.next().await;
        assert!(requests.contains(&answer["id"].as_u64().unwrap()));
        ids.push(answer["result"]["conversation"]["id"].clone());
    }
    assert_eq!(ids[0], ids[1]);
    let status = raw.ask("daemon/status", json!({})).await;
    assert_eq!(status["result"]["conversations"], 1);
}

#[tokio::test]
async fn a_reset_and_a_deletion_are_done_once() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["before"]).await;
    let reset = json!({"conversationId": id, "requestId": "r1"});
    let first = app.call("conversation/reset", reset.clone()).await.unwrap();
    app.send(id, "after").await;
    assert_eq!(app.call("conversation/reset", reset).await.unwrap(), first);
    assert_eq!(
        app.remembered(id).await,
        ["after"],
        "the repeated call did nothing"
    );
    let delete = json!({"conversationId": id, "requestId": "d1"});
    let first = app.call("conversation/delete", delete.clone()).await.unwrap();
    assert_eq!(app.call("conversation/delete", delete).await.unwrap(), first);
    let unkeyed = json!({"conversationId": id});
    refused(
        app.call("conversation/delete", unkeyed).await,
        ErrorKind::NotFound,
    );
}

/// A call that spells out its defaults, or says the same in another form, is the same request.
#[tokio::test]
async fn a_request_says_the_same_with_its_defaults_written_out() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let new = json!({"cwd": home.project(), "requestId": "n1"});
    let made = app.call("conversation/new", new).await.unwrap();
    let full = json!({"cwd": home.project(), "requestId": "n1", "agent": "loopback", "title": "", "namespace": "",
        "open": false, "settings": {}});
    assert_eq!(app.call("conversation/new", full).await.unwrap(), made);
    let id = id_in(&made);
    let mut raw = daemon.raw().await;
    let prompts = [
        "\"once\"",
        r#"[{"type":"text","text":"once"}]"#,
        r#"[ { "text" : "onc\u0065", "type": "text" } ]"#,
    ];
    let mut answers = Vec::new();
    for prompt in prompts {
        for more in ["", r#","onBusy":"fail","onLimit":"fail","minFidelity":"text""#] {
            let params =
                format!("{{\"conversationId\":\"{id}\",\"requestId\":\"r1\",\"prompt\":{prompt}{more}}}");
            raw.write(format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"conversation/prompt\",\"params\":{params}}}\n"
            ))
            .await;
            answers.push(raw.next().await);
        }
    }
    assert!(answers[0]["result"]["turnId"].is_string());
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    for (method, short, long) in [
        (
            "conversation/fork",
            json!({}),
            json!({"inPlace": false, "minFidelity": "text"}),
        ),
        ("conversation/resume", json!({}), json!({"minFidelity": "text"})),
        ("conversation/cancel", json!({}), json!({"queued": false})),
        ("conversation/delete", json!({}), json!({"transcripts": "keep"})),
    ] {
        let mut told = Vec::new();
        for mut params in [short, long] {
            params["conversationId"] = json!(id);
            params["requestId"] = json!(method);
            let answer = app.call(method, params).await;
            told.push(answer.unwrap_or_else(|error| panic!("{method}: {error:?}")));
        }
        assert_eq!(told[0], told[1], "{method}");
    }
}

/// The results of close, resume, cancel, respond and authenticate are stored like those of all calls that change
/// something.
#[tokio::test]
async fn whatever_changes_something_is_done_once() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&[]).await;
    let resume = json!({"conversationId": id, "requestId": "s1"});
    let first = app.call("conversation/resume", resume.clone()).await.unwrap();
    let close = json!({"conversationId": id, "requestId": "c1"});
    app.call("conversation/close", close.clone()).await.unwrap();
    let again = app.call("conversation/resume", resume.clone()).await.unwrap();
    assert_eq!(again, first);
    assert!(!app.get(id).await.live, "the repeated call opened nothing");
    app.send(id, "open again").await;
    app.call("conversation/close", close.clone()).await.unwrap();
    assert!(app.get(id).await.live, "the repeated call closed nothing");

    let mut raw = daemon.raw().await;
    let (asked, turn) = raw.run(id, "[[ask wait?]][[hang]]").await;
    let question = raw.event("interruptRaised").await["interrupt"]["id"].clone();
    let outcome = json!({"outcome": "selected", "optionId": "allow_once"});
    let respond =
        json!({"conversationId": id, "interruptId": question, "outcome": outcome, "requestId": "a1"});
    for _ in 0..2 {
        let answer = app.call("conversation/respond", respond.clone()).await;
        assert_eq!(answer.unwrap(), json!({}));
    }
    let cancel = json!({"conversationId": id, "turnId": turn, "requestId": "x1"});
    for _ in 0..2 {
        let answer = app.call("conversation/cancel", cancel.clone()).await;
        assert_eq!(answer.unwrap(), json!({"cancelled": true}));
    }
    raw.answer(asked).await;
    let sign_in = json!({"agent": "loopback", "methodId": "loopback-login", "requestId": "g1"});
    let sign_out = json!({"agent": "loopback", "reset": true, "requestId": "g2"});
    app.call("agent/authenticate", sign_in.clone()).await.unwrap();
    app.call("agent/logout", sign_out.clone()).await.unwrap();
    app.send(id, "after the reset").await;

    let calls = [
        ("conversation/resume", resume, "minFidelity", json!("full")),
        (
            "conversation/respond",
            respond,
            "outcome",
            json!({"outcome": "cancelled"}),
        ),
        ("conversation/cancel", cancel, "queued", json!(true)),
        ("agent/authenticate", sign_in, "methodId", json!("by-magic")),
        ("agent/logout", sign_out, "reset", json!(false)),
    ];
    repeated(&app, &close, &calls).await;
    assert_eq!(app.remembered(id).await, ["after the reset"]);
    drop((app, raw));
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    repeated(&app, &close, &calls).await;
    assert_eq!(app.remembered(id).await, ["after the reset", "[[recall]]"]);
}

/// Repeats each call, and sends it with one parameter changed under the same key.
async fn repeated(app: &App, close: &Value, calls: &[(&str, Value, &str, Value)]) {
    app.call("conversation/close", close.clone()).await.unwrap();
    // Another method with the same key is refused.
    let other = app.call("conversation/reset", close.clone()).await;
    refused(other, ErrorKind::Conflict);
    for (method, params, changed, value) in calls {
        let again = app.call(method, params.clone()).await;
        again.unwrap_or_else(|error| panic!("{method}: {error:?}"));
        let mut other = params.clone();
        other[*changed] = value.clone();
        refused(app.call(method, other).await, ErrorKind::Conflict);
    }
}

/// The results of export, keep, restore and forget are stored too: a repeated call does not change the files again.
#[tokio::test]
async fn files_are_written_restored_and_deleted_once() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&["first"]).await;
    let sibling = app.begun(&home.project(), &["second"]).await;
    let gone = app.begun(&home.project(), &["third"]).await;
    for id in [id, sibling, gone] {
        app.close(id).await;
    }
    let keep = json!({"conversationId": id, "requestId": "r1"});
    let kept = app.call("transcript/keep", keep.clone()).await.unwrap();
    // The request ids of another conversation are separate.
    let theirs = json!({"conversationId": sibling, "requestId": "r1"});
    assert_ne!(app.call("transcript/keep", theirs).await.unwrap(), kept);

    let transcript = home.transcript(app.get(id).await.head.unwrap().as_str()).unwrap();
    fs::remove_file(&transcript).unwrap();
    let restore = json!({"conversationId": id, "requestId": "r2"});
    let restored = app.call("transcript/restore", restore.clone()).await.unwrap();
    assert_eq!(restored["restored"], json!([transcript]));
    let file = home.path().join("exported.json");
    let export = json!({"conversationId": id, "path": file, "requestId": "r3"});
    let exported = app.call("conversation/export", export.clone()).await.unwrap();
    let bundle = json!({"conversationId": id, "format": "bundle", "requestId": "r4"});
    let bundled = app.call("conversation/export", bundle.clone()).await.unwrap();
    let left = app.get(gone).await.head.unwrap();
    app.ask("transcript/keep", gone).await;
    app.ask("conversation/delete", gone).await;
    let forget = json!({"upstreamId": left, "requestId": "r5"});
    let forgotten = app.call("transcript/forget", forget.clone()).await.unwrap();
    assert!(forgotten["bytes"].as_u64().unwrap() > 0);

    for path in [&transcript, &file] {
        fs::remove_file(path).unwrap();
    }
    let calls = [
        ("transcript/keep", keep, kept, "agent", json!("loopback")),
        (
            "transcript/restore",
            restore,
            restored,
            "agent",
            json!("loopback"),
        ),
        ("conversation/export", export, exported, "secrets", json!(true)),
        ("conversation/export", bundle, bundled, "format", json!("json")),
        ("transcript/forget", forget, forgotten, "agent", json!("loopback")),
    ];
    let repeat = async |app: &App| {
        for (method, params, answer, changed, value) in &calls {
            assert_eq!(
                app.call(method, params.clone()).await.as_ref(),
                Ok(answer),
                "{method}"
            );
            let mut other = params.clone();
            other[*changed] = value.clone();
            refused(app.call(method, other).await, ErrorKind::Conflict);
        }
        assert!(
            !transcript.exists() && !file.exists(),
            "the repeated calls wrote nothing"
        );
    };
    repeat(&app).await;
    drop(app);
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    repeat(&app).await;
    let unkeyed = json!({"upstreamId": left});
    refused(app.call("transcript/forget", unkeyed).await, ErrorKind::NotFound);
}

/// A call continues after its client has left, and a repeated call gets its response.
#[tokio::test]
async fn a_client_may_leave_right_after_its_call() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&["first"]).await;
    app.close(id).await;
    let head = app.get(id).await.head.unwrap();
    let file = home.path().join("exported.json");
    let calls = [
        ("transcript/keep", json!({"conversationId": id})),
        ("transcript/keep", json!({"upstreamId": &head.as_str()[..8]})),
        ("transcript/restore", json!({"conversationId": id})),
        ("transcript/restore", json!({"upstreamId": &head.as_str()[..8]})),
        ("conversation/export", json!({"conversationId": id, "path": file})),
        ("conversation/adopt", json!({"upstreamId": &head.as_str()[..8]})),
        ("conversation/new", json!({"cwd": home.project(), "open": true})),
        ("conversation/resume", json!({"conversationId": id})),
        ("conversation/close", json!({"conversationId": id})),
    ];
    for (number, (method, mut params)) in calls.into_iter().enumerate() {
        params["requestId"] = json!(format!("r{number}"));
        let mut raw = daemon.raw().await;
        raw.send(method, params.clone()).await;
        drop(raw);
        if method == "conversation/export" {
            // Wait for the file of the export: otherwise the repeated call might do the work itself. No other call has
            // an effect that can be seen before it is repeated.
            Watched::below(home.path()).wait_for("the export", || file.exists().then_some(()));
        }
        let answer = app.call(method, params.clone()).await;
        let answer = answer.unwrap_or_else(|error| panic!("{method}: {error:?}"));
        assert_eq!(app.call(method, params).await.unwrap(), answer, "{method}");
    }
}

/// A call that only reads accepts a request id, and is carried out each time.
#[tokio::test]
async fn what_only_reads_is_not_remembered() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["first"]).await;
    let export = json!({"conversationId": id, "requestId": "r1"});
    let total = json!({"requestId": "r2"});
    for count in 1..3 {
        app.ask("transcript/keep", id).await;
        let told = app.call("conversation/export", export.clone()).await.unwrap();
        assert_eq!(told["turns"], count);
        let told = app.call("transcript/keep", total.clone()).await.unwrap();
        assert_eq!(told["total"]["sessions"], count);
        app.send(id, "next").await;
        let sibling = app.begun(&home.project(), &["another"]).await;
        app.ask("transcript/keep", sibling).await;
    }
    // The key of a call with another method is refused nevertheless.
    let reset = json!({"conversationId": id, "requestId": "r3"});
    app.call("conversation/reset", reset).await.unwrap();
    let export = json!({"conversationId": id, "requestId": "r3"});
    refused(app.call("conversation/export", export).await, ErrorKind::Conflict);
}

/// A deletion can be repeated by any name that identified the conversation.
#[tokio::test]
async fn a_deletion_is_repeated_by_any_name() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["x"]).await;
    let upstream = app.get(id).await.head.unwrap();
    let prefix = id.to_string()[..8].to_owned();
    for name in [id.to_string(), prefix, upstream.to_string()] {
        let delete = json!({"conversationId": name, "requestId": "d1"});
        let answer = app.call("conversation/delete", delete).await;
        assert_eq!(answer.unwrap(), json!({"adoptable": [upstream]}), "{name}");
        let other = json!({"conversationId": name, "requestId": "d1", "transcripts": "delete"});
        let answer = app.call("conversation/delete", other).await;
        refused(answer, ErrorKind::Conflict);
    }
}

#[tokio::test]
async fn a_request_id_says_something_and_is_short() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&[]).await;
    for key in [String::new(), "x".repeat(2_000)] {
        for (method, params) in [
            ("conversation/new", json!({"cwd": home.project()})),
            (
                "conversation/prompt",
                json!({"conversationId": id, "prompt": "x"}),
            ),
            ("conversation/close", json!({"conversationId": id})),
            ("agent/logout", json!({"agent": "loopback"})),
        ] {
            let mut params = params;
            params["requestId"] = json!(key);
            refused(app.call(method, params).await, ErrorKind::InvalidParams);
        }
    }
}

/// The first prompt waits for its session, and the second one is queued after it. Neither has reached the agent.
#[tokio::test]
async fn the_request_id_of_a_waiting_prompt_is_refused_to_other_calls() {
    let (home, gate) = Gate::home();
    let (daemon, app) = home.opened().await;
    let id = app.make(&home.project()).await;
    gate.hold("session/new");
    let mut raw = daemon.raw().await;
    raw.send("conversation/prompt", prompt(id, "one", "w0")).await;
    gate.wait_until_held();
    let queued = json!({"conversationId": id, "prompt": "two", "requestId": "q0", "onBusy": "queue"});
    raw.send("conversation/prompt", queued.clone()).await;
    app.once(id, |conversation| conversation.queue.len() == 1).await;
    let file = home.path().join("exported.json");
    let calls = |request: &str| {
        let call = json!({"conversationId": id, "requestId": request});
        let mut export = call.clone();
        export["path"] = json!(file);
        [
            ("transcript/keep", call.clone()),
            ("conversation/export", export),
            ("conversation/close", call),
        ]
    };
    for request in ["w0", "q0"] {
        for (method, call) in calls(request) {
            refused(app.call(method, call).await, ErrorKind::Conflict);
        }
        let other = json!({"conversationId": id, "requestId": request, "prompt": "x", "onBusy": "queue"});
        refused(app.call("conversation/prompt", other).await, ErrorKind::Conflict);
    }
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    for (method, call) in calls("q0") {
        refused(app.call(method, call).await, ErrorKind::Conflict);
    }
    let sent = app.call("conversation/prompt", queued).await.unwrap();
    assert_eq!(sent["stopReason"], "end_turn");
}
