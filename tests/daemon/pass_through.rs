//! Content that the daemon does not understand passes through unchanged in both directions. Requests that it does not
//! offer to agents are refused.

use bridge_protocol::ConversationId;
use bridge_protocol::event::Event;
use bridge_protocol::turn::StopReason;
use serde_json::{Value, json};

use crate::home::Home;
use crate::scripted;
use crate::support::App;

async fn scripted_conversation(app: &App, home: &Home) -> ConversationId {
    app.make_of(&home.project(), "scripted").await
}

fn home() -> Home {
    Home::with_config(&scripted::configured("scripted", None))
}

fn update(text: &str) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{{\"sessionId\":$S,\"update\":{text}}}}}"
    )
}

/// Updates of unknown kinds, with unusual but valid JSON.
const ODD: [&str; 6] = [
    r#"{"sessionUpdate":"brand_new_kind","unknown":{"fields":[1,null,{"deep":true}]},"_meta":{"vendor/x":1}}"#,
    r#"{ "n":12345678901234567890.123456789 ,"sessionUpdate"	: "agent_message_chunk","tiny":1e-400,"huge":1E+400,"minus":-0.0}"#,
    r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"\u00e9\ud83d\ude00\/\u0041 é😀"}}"#,
    r#"{"sessionUpdate":"tool_call","toolCallId":"t","title":"","rawInput":{"a":1,"a":2,"":{}},"sessionId":"not ours"}"#,
    r#"{"update":{"sessionUpdate":"plan"},"sessionUpdate":"notice","text":"{\"sessionUpdate\":\"plan\"}"}"#,
    r#"{"\u0073essionUpdate":"escaped_key","items":[{"type":"unknown_item"},7,"x"]}"#,
];

#[tokio::test]
async fn updates_pass_byte_for_byte() {
    let home = home();
    let (daemon, app) = home.opened().await;
    let id = scripted_conversation(&app, &home).await;
    let mut raw = daemon.raw().await;
    let mut everything = daemon.raw().await;
    everything.ask("conversation/subscribe", json!({})).await;
    let mut script: Vec<String> = ODD.iter().map(|text| update(text)).collect();
    script.push("hold".to_owned());
    let (request, turn) = raw.run(id, &script.join("\n")).await;
    let expected = ODD.map(|text| {
        format!("\"event\":{{\"type\":\"update\",\"turnId\":\"{turn}\",\"update\":{text}}}}}}}}}")
    });
    assert!(raw.passed.is_empty());
    for client in [&mut raw, &mut everything] {
        for expected in &expected {
            let line = loop {
                let line = client.line().await;
                if line.contains("\"type\":\"update\"") {
                    break line;
                }
            };
            assert!(line.ends_with(expected), "{line}\nlacks\n{expected}");
        }
    }
    // A client that attaches later gets the same bytes, in the snapshot and after a cursor.
    let mut later = app.events(id).await;
    let envelope = later.next().await;
    let Event::Snapshot {
        running: Some(running),
        ..
    } = envelope.event
    else {
        panic!("{envelope:?}")
    };
    let updates: Vec<&str> = running
        .updates
        .iter()
        .map(bridge_protocol::raw::RawJson::get)
        .collect();
    assert_eq!(updates, ODD);
    app.ask("conversation/cancel", id).await;
    raw.answer(request).await;
}

#[tokio::test]
async fn what_clients_say_reaches_the_agent_byte_for_byte() {
    let home = home();
    let (daemon, app) = home.opened().await;
    let id = scripted_conversation(&app, &home).await;
    let mut raw = daemon.raw().await;
    raw.subscribe(id).await;
    let ask = r#"{\"jsonrpc\":\"2.0\",\"id\":{\"odd\":[1.10]},\"method\":\"session/request_permission\",\"params\":{\"sessionId\":$S,\"toolCall\":{\"toolCallId\":\"t\",\"n\":1.50},\"options\":[{\"optionId\":\"o\",\"kind\":\"allow_always\",\"new\":1.0}]}}\nawait {\"odd\":[1.10]}"#;
    let ask = ask.replace(r#"{\"odd\":[1.10]}"#, "71");
    let block = format!(r#"{{ "type" : "text","text":"{ask}", "annotations":{{"priority":0.50}} }}"#);
    let second = r#"{"type":"from_the_future","big":12345678901234567890.10,"e":"\u00e9"}"#;
    raw.write(format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":\"p\",\"method\":\"conversation/prompt\",\"params\":{{\"conversationId\":\"{id}\",\"prompt\":[{block} , {second}]}}}}\n"
    ))
    .await;
    let question = raw.event("interruptRaised").await["interrupt"].clone();
    let outcome = r#"{ "outcome":"selected","optionId":"o","_meta":{"n":1.00,"u":"\u0041"} }"#;
    raw.write(format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":\"r\",\"method\":\"conversation/respond\",\"params\":{{\"conversationId\":\"{id}\",\"interruptId\":{},\"outcome\":{outcome}}}}}\n",
        question["id"]
    ))
    .await;
    loop {
        let line = raw.next().await;
        if line["id"] == "p" {
            assert_eq!(line["result"]["stopReason"], "end_turn", "{line}");
            break;
        }
    }
    let heard = scripted::heard_lines(&home, "scripted");
    let prompt = heard.iter().find(|line| line.contains("session/prompt")).unwrap();
    assert!(prompt.contains(&format!("[{block},{second}]")), "{prompt}");
    let answer = heard
        .iter()
        .find(|line| line.contains("optionId\":\"o\"") && line.contains("result"))
        .unwrap();
    assert!(answer.contains(&format!("{{\"outcome\":{outcome}}}")), "{answer}");
}

#[tokio::test]
async fn what_the_agent_asks_and_reports_is_kept_as_it_wrote_it() {
    let home = home();
    let (daemon, app) = home.opened().await;
    let id = scripted_conversation(&app, &home).await;
    let call = r#"{"toolCallId":"t" ,"rawInput":{"n":12345678901234567890.10},"new":[]}"#;
    let options = r#"[{"optionId":"o","name":"O","kind":"allow_once","x":1.0}]"#;
    let usage = r#"{"inputTokens": 1.50e3,"vendor":{"deep":[ ]}}"#;
    let script = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"session/request_permission\",\"params\":{{\"sessionId\":$S,\"toolCall\":{call},\"options\":{options},\"later\":{{ }}}}}}\n\
         hold\n"
    );
    let mut raw = daemon.raw().await;
    let (request, _) = raw.run(id, &script).await;
    raw.event("interruptRaised").await;
    let interrupt = app.get(id).await.interrupts.remove(0);
    assert_eq!(interrupt.tool_call.unwrap().get(), call);
    assert_eq!(interrupt.options.unwrap().get(), options);
    assert!(interrupt.request.get().contains(call) && interrupt.request.get().ends_with(r#""later":{ }}"#));
    app.ask("conversation/cancel", id).await;
    raw.answer(request).await;

    let script = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":$P,\"result\":{{\"stopReason\":\"max_tokens\",\"usage\":{usage}}}}}"
    );
    let turn = app.send(id, &script).await;
    assert_eq!(turn.stop_reason, StopReason::MaxTokens);
    assert_eq!(turn.usage.unwrap().get(), usage);
}

/// Requests of the agent for optional client features are refused, unknown messages are ignored, and the turn
/// continues.
#[tokio::test]
async fn what_nobody_offers_is_refused_and_what_nobody_knows_ignored() {
    let home = home();
    let (_daemon, app) = home.opened().await;
    let id = scripted_conversation(&app, &home).await;
    let request = |id: &str, method: &str, session: &str| {
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{{\"sessionId\":{session},\"path\":\"/x\"}}}}\nawait {id}"
        )
    };
    let notification = |method: &str| {
        format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\",\"params\":{{\"sessionId\":$S}}}}")
    };
    let script = [
        request("\"a\"", "fs/read_text_file", "$S"),
        request("\"b\"", "fs/write_text_file", "$S"),
        request("\"c\"", "terminal/create", "$S"),
        request("\"d\"", "_vendor/ask", "$S"),
        request("9007199254740993", "no/such/method", "$S"),
        request("\"f\"", "session/request_permission", "\"somebody else's\""),
        notification("_vendor/notice"),
        notification("session/unknown"),
        "{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{\"sessionId\":\"somebody else's\",\"update\":{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{\"type\":\"text\",\"text\":\"not ours\"}}}}".to_owned(),
        "npm notice: this is no JSON".to_owned(),
        "{\"jsonrpc\":\"2.0\",\"id\":4711,\"result\":{}}".to_owned(),
        "{}".to_owned(),
        update("{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{\"type\":\"text\",\"text\":\"ours\"}}"),
    ];
    let said = app.say(id, &script.join("\n")).await;
    assert_eq!(
        (said.turn.stop_reason, said.words.as_str()),
        (StopReason::EndTurn, "ours")
    );
    let heard = scripted::heard(&home, "scripted");
    for id in [
        json!("a"),
        json!("b"),
        json!("c"),
        json!("d"),
        json!(9_007_199_254_740_993_i64),
        json!("f"),
    ] {
        let answers: Vec<&Value> = heard
            .iter()
            .filter(|line| line["id"] == id && line.get("method").is_none())
            .collect();
        assert_eq!(answers.len(), 1, "{id}");
        assert_eq!(answers[0]["error"]["code"], -32601, "{answers:?}");
    }
    assert_eq!(app.get(id).await.interrupts, []);
}

/// A line over the limit is left out, and subscribers are notified with `lagged`.
#[tokio::test]
async fn a_line_of_the_agent_over_the_limit_is_left_out_and_told() {
    let home = Home::with_config(&format!(
        "[limits]\nmax_line_bytes = 8192\n{}",
        scripted::configured("scripted", None)
    ));
    let (_daemon, app) = home.opened().await;
    let id = scripted_conversation(&app, &home).await;
    let chunk = |text: &str| {
        update(&format!(
            "{{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{{\"type\":\"text\",\"text\":\"{text}\"}}}}"
        ))
    };
    // The prompt itself must be shorter than the limit, so the agent makes the line long.
    let script = format!("{}\n{}\n{}", chunk("before"), chunk("$LONG"), chunk("after"));
    let mut events = app.events(id).await;
    events.next().await;
    let turn = app.send(id, &script).await;
    assert_eq!(turn.stop_reason, StopReason::EndTurn);
    let Event::Lagged { cursor } = events.until("lagged").await else {
        unreachable!()
    };
    // An event after the cursor is missing, so the snapshot reports a gap.
    let mut rest = app.events_of(Some(id), Some(cursor)).await;
    let Event::Snapshot { gap, .. } = rest.next().await.event else {
        panic!("no snapshot")
    };
    assert!(gap);
}

/// F35: however many conversations begin at once, one process serves them, and it is initialized once.
#[tokio::test]
async fn three_hundred_sessions_share_one_process_that_was_initialized_once() {
    const SESSIONS: usize = 300;
    let home = home();
    let (daemon, app) = home.opened().await;
    let mut ids = Vec::new();
    for _ in 0..SESSIONS {
        ids.push(scripted_conversation(&app, &home).await);
    }
    let chunk = |number: usize| {
        update(&format!(
            "{{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{{\"type\":\"text\",\"text\":\"{number}\"}}}}"
        ))
    };
    let mut clients = Vec::new();
    for (number, id) in ids.iter().enumerate() {
        let mut raw = daemon.raw().await;
        raw.subscribe(*id).await;
        let prompt = json!({"conversationId": id, "prompt": chunk(number)});
        let request = raw.send("conversation/prompt", prompt).await;
        clients.push((raw, request));
    }
    for (number, (raw, request)) in clients.iter_mut().enumerate() {
        let told = raw.event("update").await;
        assert_eq!(
            told["update"]["content"]["text"],
            number.to_string(),
            "F37: each subscriber gets its own conversation's updates"
        );
        let answer = raw.answer(*request).await;
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    }
    let heard = scripted::heard(&home, "scripted");
    let count = |method: &str| heard.iter().filter(|line| line["method"] == method).count();
    assert_eq!(count("initialize"), 1);
    assert_eq!(count("session/new"), SESSIONS);
    assert_eq!(count("session/prompt"), SESSIONS);
    let status = app.call("daemon/status", json!({})).await.unwrap();
    assert_eq!(
        (&status["live"], &status["agents"]),
        (&json!(SESSIONS), &json!(1))
    );
}

/// F14: updates after the agent's response are sent to subscribers, but belong to no turn. A second response to the
/// same prompt is ignored.
#[tokio::test]
async fn what_is_said_behind_the_answer_belongs_to_no_turn() {
    let home = home();
    let (_daemon, app) = home.opened().await;
    let id = scripted_conversation(&app, &home).await;
    let chunk = |text: &str| {
        update(&format!(
            "{{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{{\"type\":\"text\",\"text\":\"{text}\"}}}}"
        ))
    };
    let script = [
        chunk("in time"),
        "{\"jsonrpc\":\"2.0\",\"id\":$P,\"result\":{\"stopReason\":\"refusal\"}}".to_owned(),
        chunk("late"),
    ];
    let mut events = app.events(id).await;
    let turn = app.send(id, &script.join("\n")).await;
    assert_eq!(turn.stop_reason, StopReason::Refusal);
    let mut seen = Vec::new();
    while seen.len() < 2 {
        if let Event::Update { turn_id, update } = events.next().await.event {
            seen.push((turn_id, crate::support::words_of(&update).unwrap()));
        }
    }
    assert_eq!(
        seen,
        [
            (Some(turn.turn_id), "in time".to_owned()),
            (None, "late".to_owned())
        ]
    );
    let next = app.say(id, &chunk("the next one's own")).await;
    assert_eq!(
        (next.turn.stop_reason, next.words.as_str()),
        (StopReason::EndTurn, "the next one's own")
    );
}

/// An error of the agent ends the turn as a failure, even if its code is unknown.
#[tokio::test]
async fn an_error_that_nobody_knows_is_a_failure_of_the_turn() {
    let home = home();
    let (_daemon, app) = home.opened().await;
    let id = scripted_conversation(&app, &home).await;
    let error = "{\"jsonrpc\":\"2.0\",\"id\":$P,\"error\":{\"code\":-31999,\"message\":\"The tubes are clogged\",\"data\":[1]}}";
    let turn = app.send(id, error).await;
    assert_eq!(turn.stop_reason, StopReason::Failed);
    let failure = turn.failure.unwrap();
    assert_eq!(serde_json::to_value(failure.kind).unwrap(), "unknown");
    assert!(failure.message.contains("The tubes are clogged"), "{failure:?}");
    assert_eq!(app.send(id, "\n").await.stop_reason, StopReason::EndTurn);
}
