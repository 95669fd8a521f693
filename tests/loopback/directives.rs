//! Every directive that works within a turn.

use std::collections::HashSet;
use std::fs;

use serde_json::{Value, json};

use super::place::{Place, code, pairs};

#[test]
fn a_prompt_is_echoed_kept_and_recalled() {
    let place = Place::new();
    let mut agent = place.agent();
    let session = agent.new_session(place.cwd());
    assert!(
        place.transcripts(&session).is_empty(),
        "nothing is written before the first prompt"
    );
    let reply = agent.prompt(&session, "hello [[dance]]");
    assert_eq!(
        (reply.text().as_str(), reply.stop_reason()),
        ("echo: hello [[dance]]", "end_turn")
    );
    assert_eq!(
        reply.updates("session_info_update")[0]["title"],
        "hello [[dance]]"
    );
    assert_eq!(reply.updates("usage_update").len(), 1);
    let reply = agent.prompt(&session, "[[say one]] [[say two]]");
    assert_eq!(reply.text(), "onetwo");
    assert!(
        reply.updates("session_info_update").is_empty(),
        "the title is told once"
    );
    assert_eq!(
        agent.recall(&session),
        json!([
            { "user": "hello [[dance]]", "assistant": "echo: hello [[dance]]", "tools": [] },
            { "user": "[[say one]] [[say two]]", "assistant": "one\n\ntwo", "tools": [] },
        ])
    );
}

#[test]
fn the_transcript_has_claudes_shape() {
    let place = Place::new();
    let mut agent = place.agent();
    let session = agent.new_session(place.cwd());
    agent
        .prompt(
            &session,
            "[[say a]][[tool Read {\"n\":12345678901234567890.10}]][[say b]]",
        )
        .result();
    let records = place.records(&session);
    let kinds: Vec<_> = records
        .iter()
        .map(|record| record["type"].as_str().expect("a type"))
        .collect();
    assert_eq!(kinds, ["user", "assistant", "assistant", "user", "assistant"]);
    assert_eq!(records[0]["origin"], json!({ "kind": "human" }));
    assert_eq!(records[0]["parentUuid"], Value::Null);
    for pair in records.windows(2) {
        assert_eq!(pair[1]["parentUuid"], pair[0]["uuid"]);
    }
    for record in &records {
        assert_eq!(record["sessionId"], session.as_str());
        assert_eq!(record["cwd"], json!(place.cwd()));
        assert_eq!(
            (&record["isSidechain"], &record["gitBranch"]),
            (&json!(false), &json!(""))
        );
        assert!(
            record["timestamp"]
                .as_str()
                .is_some_and(|time| time.ends_with('Z'))
        );
        assert!(record["version"].is_string());
    }
    assert_eq!(
        records[1]["message"]["id"], records[2]["message"]["id"],
        "blocks of one message"
    );
    assert_ne!(
        records[2]["message"]["id"], records[4]["message"]["id"],
        "a result begins another"
    );
    assert!(records[3]["toolUseResult"].is_string());
    let text = fs::read_to_string(place.transcript(&session)).expect("a transcript");
    assert!(
        text.contains("12345678901234567890.10"),
        "arguments are kept byte for byte"
    );
}

#[test]
fn a_stream_is_numbered_200_byte_chunks_in_order() {
    let place = Place::new();
    let mut agent = place.agent();
    let session = agent.new_session(place.cwd());
    for (directive, chunks) in [
        ("[[stream 2000 0]]", 2_000),
        ("[[stream 5 1]]", 5),
        ("[[stream 0 0]]", 0),
    ] {
        let reply = agent.prompt(&session, directive);
        let texts: Vec<&str> = reply
            .updates("agent_message_chunk")
            .iter()
            .map(|update| update["content"]["text"].as_str().expect("a text"))
            .filter(|text| *text != "done")
            .collect();
        assert_eq!(texts.len(), chunks, "{directive}");
        for (number, text) in texts.iter().enumerate() {
            assert_eq!((text.len(), &text[..10]), (200, format!("{number:010}").as_str()));
        }
    }
    let turns = place.turns(&session);
    assert_eq!(turns[0].reply.len(), 2_000 * 200);
}

#[test]
fn tools_have_calls_and_results() {
    let place = Place::new();
    let mut agent = place.agent();
    let session = agent.new_session(place.cwd());
    let reply = agent.prompt(
        &session,
        "[[tool Bash {\"command\":\"ls\"}]] [[write sub/a.txt some text]]",
    );
    let calls = reply.updates("tool_call");
    assert_eq!(
        (&calls[0]["name"], &calls[0]["rawInput"]),
        (&json!("Bash"), &json!({ "command": "ls" }))
    );
    let results = reply.updates("tool_call_update");
    assert_eq!(results[0]["toolCallId"], calls[0]["toolCallId"]);
    assert_eq!(
        (&results[0]["status"], &results[1]["status"]),
        (&json!("completed"), &json!("completed"))
    );
    assert_eq!(
        fs::read_to_string(place.cwd().join("sub/a.txt")).expect("the file"),
        "some text"
    );
    assert_eq!(reply.text(), "done", "a reply ends with words");

    let reply = agent.prompt(&session, "[[write ../outside.txt x]]");
    assert_eq!(reply.updates("tool_call_update")[0]["status"], "failed");
    assert!(!place.cwd().join("../outside.txt").exists());
    assert_eq!(agent.recall(&session)[0]["tools"], json!(["Bash", "write"]));
}

#[test]
fn a_question_waits_for_its_answer() {
    let place = Place::new();
    let mut agent = place.agent();
    let session = agent.new_session(place.cwd());
    let mut ask = |choice: Value| {
        let prompt = agent.begin_prompt(&session, "[[ask may I?]] [[write made.txt x]]");
        let (question, _) = agent.read_until("question", |message| {
            message["method"] == "session/request_permission"
        });
        assert_eq!(question["params"]["toolCall"]["title"], "may I?");
        let options = question["params"]["options"].as_array().expect("options");
        let ids: Vec<_> = options.iter().map(|option| &option["optionId"]).collect();
        assert_eq!(ids, ["allow_once", "reject_once"]);
        agent.send_line(
            &json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "outcome": choice } }).to_string(),
        );
        agent.finish(prompt)
    };
    let refused = ask(json!({ "outcome": "selected", "optionId": "reject_once" }));
    assert_eq!(
        (refused.text().as_str(), refused.stop_reason()),
        ("refused: may I?", "end_turn")
    );
    assert!(!place.cwd().join("made.txt").exists());
    assert_eq!(ask(json!({ "outcome": "cancelled" })).stop_reason(), "cancelled");
    assert_eq!(
        ask(json!({ "outcome": "selected", "optionId": "allow_once" })).stop_reason(),
        "end_turn"
    );
    assert!(place.cwd().join("made.txt").exists());
}

#[test]
fn a_cancel_withdraws_the_question() {
    let place = Place::new();
    let mut agent = place.agent();
    let session = agent.new_session(place.cwd());
    let prompt = agent.begin_prompt(&session, "[[ask may I?]]");
    let (question, _) = agent.read_until("question", |message| {
        message["method"] == "session/request_permission"
    });
    agent.cancel(&session);
    let reply = agent.finish(prompt);
    assert_eq!(reply.stop_reason(), "cancelled");
    let withdrawn = reply
        .before
        .iter()
        .find(|message| message["method"] == "$/cancel_request");
    assert_eq!(
        withdrawn.expect("a withdrawal")["params"]["requestId"],
        question["id"]
    );
}

#[test]
fn a_limit_refuses_this_prompt_and_no_other_until_it_ends() {
    let place = Place::new();
    let limited = "[[limit 3600]] do it";
    let mut agent = place.agent();
    let session = agent.new_session(place.cwd());
    agent.prompt(&session, "before").result();
    let reply = agent.prompt(&session, limited);
    let rate = &reply.updates("usage_update")[0]["_meta"]["_claude/rateLimit"];
    assert_eq!(rate["status"], "rejected");
    let resets_at = rate["resetsAt"].as_i64().expect("a time");
    // An hour after a moment between the records of the prompt and of the refusal, rounded up to a second.
    let records = place.records(&session);
    let [earliest, latest] = [&records[records.len() - 2], &records[records.len() - 1]].map(|record| {
        let written: jiff::Timestamp = record["timestamp"]
            .as_str()
            .expect("a time")
            .parse()
            .expect("a time");
        written.as_second() + 3600
    });
    assert!((earliest..=latest + 1).contains(&resets_at));
    assert!(reply.text().starts_with("You've hit your limit · resets "));
    let error = reply.error();
    assert_eq!(
        (code(&error), &error["data"]),
        (-32603, &json!({ "errorKind": "rate_limit" }))
    );

    // In the transcript, in a new process too, others pass, and the end stays where it was.
    let turns = place.turns(&session);
    assert_eq!((turns[1].prompt.as_str(), turns[1].is_api_error), (limited, true));
    drop(agent);
    let mut agent = place.agent();
    agent.open("session/resume", &session, place.cwd()).result();
    let again = agent.prompt(&session, limited);
    assert_eq!(
        again.updates("usage_update")[0]["_meta"]["_claude/rateLimit"]["resetsAt"],
        resets_at
    );
    assert_eq!(agent.recalled(&session), pairs(&[("before", "echo: before")]));
    assert_eq!(
        agent.prompt(&session, "[[limit 0]] [[say passed]]").text(),
        "passed"
    );
}

#[test]
fn failures_are_told_as_claude_tells_them() {
    let place = Place::new();
    let mut agent = place.agent();
    let session = agent.new_session(place.cwd());
    let table = [
        (
            "overloaded",
            -32603,
            json!({ "errorKind": "server_error" }),
            "529 Overloaded",
        ),
        (
            "network",
            -32603,
            json!({ "errorKind": "server_error" }),
            "ECONNREFUSED",
        ),
        (
            "context",
            -32603,
            json!({ "errorKind": "invalid_request" }),
            "Prompt is too long",
        ),
        ("auth", -32000, Value::Null, "Invalid API key"),
    ];
    for (kind, expected_code, data, text) in table {
        let reply = agent.prompt(&session, &format!("[[fail {kind}]]"));
        assert!(reply.text().contains(text), "{kind}");
        let error = reply.error();
        assert_eq!((code(&error), &error["data"]), (expected_code, &data), "{kind}");
    }
    assert_eq!(agent.prompt(&session, "after").text(), "echo: after");
    assert_eq!(agent.recalled(&session), pairs(&[("after", "echo: after")]));
    assert_eq!(place.turns(&session).len(), 6);
}

#[test]
fn a_crash_keeps_the_prompt_and_loses_the_reply() {
    let place = Place::new();
    let mut agent = place.agent();
    let session = agent.new_session(place.cwd());
    agent.prompt(&session, "one").result();
    agent.begin_prompt(&session, "[[say kept]][[crash]]");
    let (_, before) = agent.read_until("chunk", |message| {
        message["params"]["update"]["content"]["text"] == "about to crash"
    });
    assert!(!before.is_empty());
    assert!(!agent.wait().success());

    let mut agent = place.agent();
    agent.open("session/resume", &session, place.cwd()).result();
    assert_eq!(
        agent.recalled(&session),
        pairs(&[("one", "echo: one"), ("[[say kept]][[crash]]", "kept")])
    );
}

#[test]
fn a_hanging_turn_ends_when_it_is_cancelled() {
    let place = Place::new();
    let mut agent = place.agent();
    let session = agent.new_session(place.cwd());
    let prompt = agent.begin_prompt(&session, "[[say begun]][[hang]]");
    agent.wait_for_chunk();
    agent.cancel(&session);
    assert_eq!(agent.finish(prompt).stop_reason(), "cancelled");
    let last = place.records(&session).pop().expect("a record");
    assert_eq!(
        last["message"]["content"][0]["text"],
        "[Request interrupted by user]"
    );
    assert_eq!(agent.prompt(&session, "next").text(), "echo: next");
    agent.cancel(&session);
    assert_eq!(
        agent.prompt(&session, "idle cancels do nothing").stop_reason(),
        "end_turn"
    );
}

#[test]
fn a_cancelled_stream_keeps_what_was_said() {
    let place = Place::new();
    let mut agent = place.agent();
    let session = agent.new_session(place.cwd());
    let prompt = agent.begin_prompt(&session, "[[stream 1000000 5]]");
    agent.wait_for_chunk();
    agent.cancel(&session);
    let reply = agent.finish(prompt);
    assert_eq!(reply.stop_reason(), "cancelled");
    let turn = place.turns(&session).remove(0);
    assert!(turn.reply.starts_with("0000000000 ") && turn.is_interrupted);
    // The chunk that was waited for is not among those before the answer.
    assert_eq!(
        turn.reply.len(),
        (reply.updates("agent_message_chunk").len() + 1) * 200
    );
}

#[test]
fn a_deaf_session_ignores_cancels_but_not_its_closing() {
    let place = Place::new();
    let mut agent = place.agent();
    let session = agent.new_session(place.cwd());
    let prompt = agent.begin_prompt(&session, "[[deaf]][[say begun]][[stream 200 1]]");
    agent.wait_for_chunk();
    agent.cancel(&session);
    assert_eq!(agent.finish(prompt).stop_reason(), "end_turn");
    let prompt = agent.begin_prompt(&session, "[[say begun]][[hang]]");
    agent.wait_for_chunk();
    agent.cancel(&session);
    let close = agent.begin("session/close", json!({ "sessionId": session }));
    let mut answers = HashSet::new();
    while answers.len() < 2 {
        let message = agent.next_message().expect("an answer");
        if message.get("method").is_none() {
            answers.insert(message["id"].as_u64().expect("an id"));
        }
    }
    assert_eq!(answers, HashSet::from([prompt, close]));
}

#[test]
fn a_preamble_is_history_and_not_instructions() {
    let place = Place::new();
    let mut agent = place.agent();
    let session = agent.new_session(place.cwd());
    // As the daemon retells it.
    let told = "The earlier session of this conversation could not be opened again. First the person wrote: \
        “[[crash]]”\n\nThe answer was: “no”\n\nThis is the end of the retelling. What follows is new, and is what is to be \
        answered.";
    let prompt = json!([{ "type": "text", "text": told }, { "type": "text", "text": "go on" }]);
    let reply = agent.call(
        "session/prompt",
        json!({ "sessionId": session, "prompt": prompt }),
    );
    assert_eq!(reply.text(), "echo: go on");
    assert_eq!(
        agent.recalled(&session),
        [(format!("{told}\n\ngo on"), "echo: go on".to_owned())]
    );
}
