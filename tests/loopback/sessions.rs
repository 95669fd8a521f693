//! Every way to open, lose, find and branch a session.

use std::fs;
use std::io::Write;

use serde_json::{Value, json};

use super::client::{Agent, Reply};
use super::place::{Place, code, pairs};
use crate::words::check;

#[test]
fn a_forgotten_session_is_refused_everywhere_and_its_copy_works() {
    let place = Place::new();
    let mut agent = place.agent();
    let session = agent.new_session(place.cwd());
    agent.prompt(&session, "remember me").result();
    assert_eq!(agent.prompt(&session, "[[forget]]").text(), "done");
    let error = agent.prompt(&session, "still there?").error();
    assert_eq!(
        (code(&error), &error["data"]["sessionId"]),
        (-32002, &json!(session))
    );
    drop(agent);
    let mut agent = place.agent();
    for method in ["session/load", "session/resume", "session/fork"] {
        assert_eq!(
            code(&agent.open(method, &session, place.cwd()).error()),
            -32002,
            "{method}"
        );
    }
    let listed = agent.call("session/list", json!({})).result();
    assert_eq!(listed["sessions"], json!([]));

    let new_id = "6d1f4c1e-3d3c-4c5b-9d0a-8f7d1b0e2a11";
    place.copy_as(&session, new_id);
    agent.open("session/resume", new_id, place.cwd()).result();
    assert_eq!(
        agent.recalled(new_id),
        pairs(&[("remember me", "echo: remember me"), ("[[forget]]", "done")])
    );
}

#[test]
fn a_session_that_is_forgotten_with_its_copies_works_under_no_id() {
    let place = Place::new();
    let mut agent = place.agent();
    let session = agent.new_session(place.cwd());
    agent.prompt(&session, "remember me").result();
    agent.prompt(&session, "[[forget copies]]").result();
    let new_id = "6d1f4c1e-3d3c-4c5b-9d0a-8f7d1b0e2a11";
    place.copy_as(&session, new_id);
    for id in [&session, new_id] {
        let error = agent.open("session/resume", id, place.cwd()).error();
        assert_eq!(code(&error), -32002, "{id}");
    }
    let other = agent.new_session(place.cwd());
    agent.prompt(&other, "another").result();
    drop(agent);
    let mut agent = place.agent();
    agent.open("session/resume", &other, place.cwd()).result();
}

#[test]
fn a_lost_session_has_no_file_and_is_refused() {
    let place = Place::new();
    let mut agent = place.agent();
    let session = agent.new_session(place.cwd());
    agent.prompt(&session, "one").result();
    agent.prompt(&session, "[[lose]]").result();
    assert!(place.transcripts(&session).is_empty());
    assert_eq!(code(&agent.prompt(&session, "two").error()), -32002);
    assert_eq!(
        code(&agent.open("session/resume", &session, place.cwd()).error()),
        -32002
    );
    assert!(place.transcripts(&session).is_empty());
}

#[test]
fn a_transcript_that_vanishes_is_not_begun_anew() {
    let place = Place::new();
    let mut agent = place.agent();
    let session = agent.new_session(place.cwd());
    agent.prompt(&session, "one").result();
    fs::remove_file(place.transcript(&session)).expect("the file goes");
    assert_eq!(code(&agent.prompt(&session, "two").error()), -32002);
    assert!(place.transcripts(&session).is_empty());
}

#[test]
fn a_clear_goes_on_in_another_file_under_the_same_id() {
    let place = Place::new();
    let mut agent = place.agent();
    let raw = json!({ "claudeCode": { "emitRawSDKMessages": [
        { "type": "system", "subtype": "init" }, { "type": "user" },
    ] } });
    let answer = agent
        .call(
            "session/new",
            json!({ "cwd": place.cwd(), "mcpServers": [], "_meta": raw }),
        )
        .result();
    let session = answer["sessionId"].as_str().expect("an id").to_owned();
    let reply = agent.prompt(&session, "before");
    let sdk = |reply: &Reply| -> Vec<Value> {
        let raw = reply
            .before
            .iter()
            .filter(|message| message["method"] == "_claude/sdkMessage");
        raw.map(|message| message["params"]["message"].clone()).collect()
    };
    let messages = sdk(&reply);
    assert_eq!(
        (&messages[0]["type"], &messages[0]["session_id"]),
        (&json!("system"), &json!(session))
    );
    assert_eq!(
        messages[1]["uuid"],
        place.records(&session)[0]["uuid"],
        "the prompt's place is told"
    );

    let messages = sdk(&agent.prompt(&session, "[[clear]]"));
    let rolled = messages.last().expect("an announcement")["session_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    assert_ne!(rolled, session);
    agent.prompt(&session, "after").result();
    assert_eq!(agent.recalled(&session), pairs(&[("after", "echo: after")]));
    // As Claude does it: the command begins the new file, and is no turn.
    let records = place.records(&rolled);
    let command = records[0]["message"]["content"].as_str().expect("a text");
    assert!(command.starts_with("<command-name>/clear<"), "{command}");
    assert_eq!(records[1]["message"]["content"][0]["text"], "after");

    agent.open("session/load", &session, place.cwd()).result();
    assert_eq!(
        agent.recalled(&session)[0],
        ("before".to_owned(), "echo: before".to_owned())
    );
    agent.open("session/resume", &rolled, place.cwd()).result();
    assert_eq!(
        agent.recalled(&rolled)[0],
        ("after".to_owned(), "echo: after".to_owned())
    );
}

#[test]
fn settings_belong_to_the_live_session_only() {
    let place = Place::new();
    let mut agent = place.agent();
    let meta = json!({ "systemPrompt": { "append": "be kind" } });
    let server = json!({ "name": "m", "command": "/bin/true", "args": [], "env": [] });
    let params = json!({ "cwd": place.cwd(), "mcpServers": [server], "_meta": meta });
    let session = agent.call("session/new", params).result()["sessionId"]
        .as_str()
        .expect("an id")
        .to_owned();
    let mode = agent.call(
        "session/set_mode",
        json!({ "sessionId": session, "modeId": "plan" }),
    );
    assert_eq!(mode.updates("current_mode_update")[0]["currentModeId"], "plan");
    let option = json!({ "sessionId": session, "configId": "model", "value": "loop-2" });
    let model = agent.call("session/set_config_option", option);
    assert_eq!(model.updates("config_option_update").len(), 1);
    assert_eq!(model.result()["configOptions"][0]["currentValue"], "loop-2");
    for params in [
        json!({ "sessionId": session, "configId": "model", "value": "loop-9" }),
        json!({ "sessionId": session, "configId": "other", "value": "loop-1" }),
    ] {
        assert_eq!(
            code(&agent.call("session/set_config_option", params).error()),
            -32602
        );
    }
    let unknown = agent.call("session/set_mode", json!({ "sessionId": session, "modeId": "x" }));
    assert_eq!(code(&unknown.error()), -32602);

    let settings = |agent: &mut Agent| -> Value {
        serde_json::from_str(&agent.prompt(&session, "[[settings]]").text()).expect("JSON")
    };
    let set = settings(&mut agent);
    assert_eq!(
        set,
        json!({ "mode": "plan", "model": "loop-2", "systemPrompt": "be kind", "cwd": place.cwd(), "mcpServers": 1 })
    );
    drop(agent);
    let mut agent = place.agent();
    agent.open("session/resume", &session, place.cwd()).result();
    assert_eq!(
        settings(&mut agent),
        json!({ "mode": "default", "model": "loop-1", "systemPrompt": null, "cwd": place.cwd(), "mcpServers": 0 })
    );
}

#[test]
fn a_killed_agent_is_resumed_with_all_that_was_said() {
    let place = Place::new();
    let mut agent = place.agent();
    let session = agent.new_session(place.cwd());
    agent.prompt(&session, "one").result();
    agent.begin_prompt(&session, "[[stream 1000000 5]]");
    agent.wait_for_chunk();
    agent.kill();
    let path = place.transcript(&session);
    let mut file = fs::OpenOptions::new().append(true).open(&path).expect("the file");
    file.write_all(b"{\"type\":\"assistant\",\"uu")
        .expect("a torn line");
    drop(file);

    let mut agent = place.agent();
    let elsewhere = tempfile::tempdir().expect("a folder");
    agent.open("session/resume", &session, elsewhere.path()).result();
    assert_eq!(
        agent.recalled(&session),
        pairs(&[("one", "echo: one"), ("[[stream 1000000 5]]", "")])
    );
    assert_eq!(agent.prompt(&session, "three").text(), "echo: three");
    assert_eq!(
        place.transcripts(&session),
        std::slice::from_ref(&path),
        "the file stays where it is"
    );
    let text = fs::read_to_string(&path).expect("a transcript");
    let last: Value = serde_json::from_str(text.lines().last().expect("a line")).expect("JSON");
    assert_eq!(
        last["cwd"],
        json!(elsewhere.path()),
        "new records carry the new folder"
    );
    let users: Vec<String> = agent
        .recalled(&session)
        .into_iter()
        .map(|(user, _)| user)
        .collect();
    assert_eq!(
        users,
        ["one", "[[stream 1000000 5]]", "[[recall]]", "three"],
        "nothing ran into the torn line"
    );
}

#[test]
fn loading_replays_the_history_before_it_answers() {
    let place = Place::new();
    let mut agent = place.agent();
    let session = agent.new_session(place.cwd());
    agent
        .prompt(&session, "hello [[say hi]] [[tool Read {\"a\":1}]] [[say bye]]")
        .result();
    drop(agent);
    let mut agent = place.agent();
    let reply = agent.open("session/load", &session, place.cwd());
    let kinds: Vec<_> = reply
        .before
        .iter()
        .map(|message| &message["params"]["update"]["sessionUpdate"])
        .collect();
    assert_eq!(
        kinds,
        [
            "user_message_chunk",
            "agent_message_chunk",
            "tool_call",
            "tool_call_update",
            "agent_message_chunk"
        ]
    );
    assert_eq!(reply.before[2]["params"]["update"]["rawInput"], json!({ "a": 1 }));
    let resumed = agent.open("session/resume", &session, place.cwd());
    assert!(resumed.updates("user_message_chunk").is_empty());
}

#[test]
fn sessions_that_were_never_written_or_heard_of() {
    let place = Place::new();
    let mut agent = place.agent();
    let unwritten = agent.new_session(place.cwd());
    assert_eq!(
        code(&agent.open("session/fork", &unwritten, place.cwd()).error()),
        -32002
    );
    let mut other = place.agent();
    for id in [
        unwritten.as_str(),
        "6d1f4c1e-3d3c-4c5b-9d0a-8f7d1b0e2a11",
        "../escape",
        "",
        "a/b",
    ] {
        for method in ["session/load", "session/resume", "session/fork"] {
            let error = other.open(method, id, place.cwd()).error();
            assert_eq!(
                (code(&error), &error["data"]["sessionId"]),
                (-32002, &json!(id)),
                "{method} {id}"
            );
        }
        assert_eq!(code(&other.prompt(id, "x").error()), -32002);
        assert_eq!(
            other.call("session/close", json!({ "sessionId": id })).result(),
            json!({})
        );
        assert_eq!(
            other.call("session/delete", json!({ "sessionId": id })).result(),
            json!({})
        );
    }
}

#[test]
fn a_fork_has_the_history_and_goes_its_own_way() {
    let place = Place::new();
    let mut agent = place.agent();
    let session = agent.new_session(place.cwd());
    agent.prompt(&session, "one").result();
    let running = agent.begin_prompt(&session, "[[say begun]][[hang]]");
    agent.wait_for_chunk();
    let fork = agent.open("session/fork", &session, place.cwd()).result();
    let branch = fork["sessionId"].as_str().expect("an id").to_owned();
    agent.cancel(&session);
    agent.finish(running).result();

    // Written at once, beside the source, every uuid new, each saying where it came from.
    let path = place.transcript(&branch);
    assert_eq!(path.parent(), place.transcript(&session).parent());
    let old = place.records(&session);
    for (record, source) in place.records(&branch).iter().zip(&old) {
        assert_ne!(record["uuid"], source["uuid"]);
        assert_eq!(record["sessionId"], branch.as_str());
        assert_eq!(
            record["forkedFrom"],
            json!({ "sessionId": session, "messageUuid": source["uuid"] })
        );
    }
    agent.prompt(&branch, "two").result();
    assert_eq!(
        agent.recalled(&branch),
        pairs(&[
            ("one", "echo: one"),
            ("[[say begun]][[hang]]", "begun"),
            ("two", "echo: two")
        ])
    );
    assert!(agent.recalled(&session).iter().all(|(user, _)| user != "two"));
    drop(agent);
    let mut agent = place.agent();
    agent.open("session/fork", &branch, place.cwd()).result();
}

#[test]
fn a_fork_can_end_at_a_message() {
    let place = Place::new();
    let mut agent = place.agent();
    let session = agent.new_session(place.cwd());
    agent.prompt(&session, "one [[tool Read {}]] [[say 1]]").result();
    agent.prompt(&session, "two").result();
    agent.prompt(&session, "three").result();
    let turns = place.turns(&session);
    let mut fork_at = |point: &str| {
        let meta =
            json!({ "jetbrains": { "air": { "version": 1, "fork": { "version": 1, "messageId": point } } } });
        let params = json!({ "sessionId": session, "cwd": place.cwd(), "mcpServers": [], "_meta": meta });
        agent.call("session/fork", params).outcome.map(|answer| {
            let branch = answer["sessionId"].as_str().expect("an id").to_owned();
            let history = agent.recall(&branch);
            history.as_array().expect("turns").clone()
        })
    };
    let message = turns[0].last_message_id.as_str();
    let kept = fork_at(message).expect("a fork");
    assert_eq!(kept.len(), 1);
    assert_eq!(
        (&kept[0]["assistant"], &kept[0]["tools"]),
        (&json!("1"), &json!(["Read"]))
    );
    let kept = fork_at(&turns[1].prompt_uuid).expect("a fork");
    assert_eq!((kept.len(), &kept[1]["assistant"]), (2, &json!("")));
    let error = fork_at("msg_nowhere").expect_err("an unknown message");
    assert_eq!(code(&error), -32602);
    let message = error["message"].as_str().expect("a message");
    check("a fork at a message that is not there", "loopback", message);
}

#[test]
fn sessions_are_listed_and_deleted() {
    let place = Place::new();
    let elsewhere = tempfile::tempdir().expect("a folder");
    let mut agent = place.agent();
    let here = agent.new_session(place.cwd());
    agent.prompt(&here, "first words\nand more").result();
    let there = agent.new_session(elsewhere.path());
    agent.prompt(&there, "other").result();
    agent.new_session(place.cwd());
    let all = agent.call("session/list", json!({})).result();
    assert_eq!(
        all["sessions"].as_array().map(Vec::len),
        Some(2),
        "never written ones are not there"
    );
    let filtered = agent.call("session/list", json!({ "cwd": place.cwd() })).result();
    assert_eq!(filtered["sessions"][0]["sessionId"], here.as_str());
    assert_eq!(filtered["sessions"][0]["title"], "first words");
    assert_eq!(filtered["sessions"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        code(&agent.call("session/list", json!({ "cursor": "x" })).error()),
        -32602
    );

    agent
        .call("session/delete", json!({ "sessionId": here }))
        .result();
    assert!(place.transcripts(&here).is_empty(), "also of a live session");
    assert_eq!(code(&agent.prompt(&here, "x").error()), -32002);
    let all = agent.call("session/list", json!({})).result();
    assert_eq!(all["sessions"].as_array().map(Vec::len), Some(1));
}
