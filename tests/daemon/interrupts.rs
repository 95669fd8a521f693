//! Questions of the agent (interrupts): every client sees them, the first answer wins, and they survive the end of the
//! agent and of the daemon.

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::ConversationState;
use bridge_protocol::error::ErrorKind;
use bridge_protocol::event::Event;
use bridge_protocol::turn::{Interrupt, InterruptKind, StopReason};
use serde_json::{Value, json};

use crate::home::{Daemon, Home, kill_now};
use crate::scripted;
use crate::support::{App, Events, Raw, refused};

const PROMPT: &str = "[[ask may I write?]][[write made.txt words]]";

fn selected(option: &str) -> Value {
    json!({"outcome": "selected", "optionId": option})
}

fn answer(id: ConversationId, interrupt: &Interrupt, outcome: Value) -> Value {
    json!({"conversationId": id, "interruptId": interrupt.id, "outcome": outcome})
}

/// Starts a turn and waits until its agent has asked a question. Returns the conversation, the question, the client,
/// and the id of the client's pending prompt.
async fn asking(daemon: &Daemon<'_>, app: &App) -> (ConversationId, Interrupt, Raw, u64) {
    let id = app.make(&daemon.home.project()).await;
    let mut raw = daemon.raw().await;
    let (request, _) = raw.run(id, PROMPT).await;
    raw.event("interruptRaised").await;
    let interrupt = app.get(id).await.interrupts.remove(0);
    (id, interrupt, raw, request)
}

fn was_written(home: &Home) -> bool {
    home.path().join("project/made.txt").exists()
}

/// Waits for the answer to a question, and checks who gave it and what it is.
async fn check_resolved(events: &mut Events, question: &Interrupt, by: &str, outcome: &Value) {
    let take = |event: &Event| match event {
        Event::InterruptResolved {
            interrupt_id,
            by,
            outcome,
        } => Some((interrupt_id.clone(), by.clone(), outcome.read::<Value>().unwrap())),
        _ => None,
    };
    let expected = (question.id.clone(), by.to_owned(), outcome.clone());
    assert_eq!(events.find(take).await, expected);
}

/// D15: a question stays open for clients that connect later. The first answer wins, and every client is notified of
/// it.
#[tokio::test]
async fn a_client_that_attaches_later_sees_the_question_and_can_answer_it() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let (id, interrupt, mut raw, request) = asking(&daemon, &app).await;
    assert_eq!(interrupt.kind, InterruptKind::Permission);
    assert!(!interrupt.orphaned);
    let call: Value = interrupt.tool_call.as_ref().unwrap().read().unwrap();
    assert_eq!(call["title"], "may I write?");
    let options: Value = interrupt.options.as_ref().unwrap().read().unwrap();
    assert_eq!(options[0]["optionId"], "allow_once");
    assert!(!was_written(&home));

    let later = daemon.app().await;
    let mut events = later.events(id).await;
    let Event::Snapshot { conversation, .. } = events.next().await.event else {
        panic!("a snapshot")
    };
    assert_eq!(conversation.interrupts, std::slice::from_ref(&interrupt));
    assert_eq!(conversation.state, ConversationState::Awaiting);

    let mut params = answer(id, &interrupt, selected("allow_once"));
    for by in ["", "policy", "a\nb", &"x".repeat(65)] {
        params["by"] = by.into();
        let refusal = app.call("conversation/respond", params.clone()).await;
        refused(refusal, ErrorKind::InvalidParams);
    }
    params["by"] = "the desktop".into();
    assert_eq!(
        later.call("conversation/respond", params.clone()).await.unwrap(),
        json!({})
    );
    check_resolved(&mut events, &interrupt, "the desktop", &selected("allow_once")).await;
    assert_eq!(
        raw.event("interruptResolved").await["by"],
        "the desktop",
        "the other client is notified"
    );
    let late = refused(
        app.call("conversation/respond", params).await,
        ErrorKind::InterruptResolved,
    );
    assert_eq!(late.detail("by"), "the desktop");
    assert_eq!(raw.answer(request).await["result"]["stopReason"], "end_turn");
    assert!(was_written(&home));
}

#[tokio::test]
async fn a_refused_permission_ends_what_was_asked_for() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let (id, interrupt, mut raw, request) = asking(&daemon, &app).await;
    let params = answer(id, &interrupt, selected("reject_once"));
    app.call("conversation/respond", params).await.unwrap();
    assert_eq!(raw.answer(request).await["result"]["stopReason"], "end_turn");
    assert!(!was_written(&home));
    assert_eq!(app.recall(id).await[0].assistant, "refused: may I write?");
}

/// A question survives the death of the agent and of the daemon. If it is allowed then, one turn starts; if it is
/// rejected, none.
// Against D15.
#[tokio::test]
async fn a_question_outlives_the_agent_and_the_daemon() {
    for (option, turns) in [("allow_once", 1), ("reject_once", 0)] {
        let home = Home::new();
        let (daemon, app) = home.opened().await;
        let (id, interrupt, mut raw, request) = asking(&daemon, &app).await;
        kill_now(home.agents()[0]);
        let ended = raw.answer(request).await;
        assert_eq!(ended["result"]["failure"]["kind"], "agentDied");
        let orphan = app.get(id).await;
        assert_eq!(orphan.state, ConversationState::Interrupted);
        assert!(orphan.interrupts[0].orphaned && orphan.interrupts[0].id == interrupt.id);
        daemon.kill();

        let (_daemon, app) = home.opened().await;
        let mut everything = app.events_of(None, None).await;
        let Event::Snapshot { conversation, .. } = everything.next().await.event else {
            panic!("no snapshot of a conversation that is not idle")
        };
        assert_eq!(conversation.interrupts, orphan.interrupts);
        let params = answer(id, &interrupt, selected(option));
        let mut events = app.events(id).await;
        events.next().await;
        let answered = app.call("conversation/respond", params.clone()).await.unwrap();
        let again = app.call("conversation/respond", params).await;
        refused(again, ErrorKind::InterruptResolved);
        if turns == 0 {
            assert_eq!(answered, json!({}));
        } else {
            let Event::TurnEnded { turn } = events.until("turnEnded").await else {
                unreachable!()
            };
            assert_eq!(answered["turnId"], json!(turn.turn_id));
            assert_eq!(turn.stop_reason, StopReason::EndTurn);
        }
        // After either answer nothing is left to continue.
        let shown = app.get(id).await;
        assert_eq!((shown.interrupts, shown.cut_short), (vec![], false));
        assert_eq!(shown.state, ConversationState::Idle);
        let remembered = app.remembered(id).await;
        assert_eq!(remembered.len(), 1 + turns, "{remembered:?}");
        if turns == 1 {
            assert!(remembered[1].contains("may I write?"), "{remembered:?}");
            assert!(remembered[1].contains("The answer is yes"), "{remembered:?}");
        }
    }
}

/// If the daemon is killed while a question is open, the question is kept as orphaned.
#[tokio::test]
async fn a_question_that_was_open_when_the_daemon_was_killed_is_kept() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let (id, interrupt, ..) = asking(&daemon, &app).await;
    daemon.kill();
    let (_daemon, app) = home.opened().await;
    let conversation = app.get(id).await;
    assert_eq!(conversation.state, ConversationState::Interrupted);
    assert_eq!(conversation.interrupts[0].id, interrupt.id);
    assert!(conversation.interrupts[0].orphaned);
    // An ordinary prompt runs although the question is open, and leaves it open.
    assert_eq!(app.say(id, "never mind").await.words, "echo: never mind");
    let conversation = app.get(id).await;
    assert_eq!(
        (conversation.interrupts.len(), conversation.state),
        (1, ConversationState::Interrupted)
    );
    let params = answer(id, &interrupt, selected("reject_once"));
    app.call("conversation/respond", params).await.unwrap();
    assert_eq!(app.get(id).await.state, ConversationState::Idle);
}

/// While a turn runs, allowing an orphaned question is refused with `busy`. The question stays open and can be allowed
/// after the turn.
#[tokio::test]
async fn an_orphan_cannot_be_allowed_while_a_turn_runs() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let (id, interrupt, mut raw, request) = asking(&daemon, &app).await;
    kill_now(home.agents()[0]);
    raw.answer(request).await;
    let mut holder = daemon.raw().await;
    let (held, _) = holder.hang(id).await;
    let params = answer(id, &interrupt, selected("allow_once"));
    let early = app.call("conversation/respond", params.clone()).await;
    refused(early, ErrorKind::Busy);
    app.ask("conversation/cancel", id).await;
    holder.answer(held).await;
    let mut events = app.events(id).await;
    let answered = app.call("conversation/respond", params).await.unwrap();
    assert!(answered["turnId"].is_string());
    events.until("turnEnded").await;
}

/// An elicitation keeps ACP's format: clients see the request as the agent sent it, and the agent gets the answer as
/// the client gave it.
#[tokio::test]
async fn an_elicitation_is_answered_in_the_words_of_acp() {
    let home = Home::with_config(&scripted::configured("scripted", None));
    let (daemon, app) = home.opened().await;
    let id = app.make_of(&home.project(), "scripted").await;
    let script = "{\"jsonrpc\":\"2.0\",\"id\":\"e-1\",\"method\":\"elicitation/create\",\"params\":{\"sessionId\":$S,\
                  \"mode\":\"form\",\"message\":\"Which colour?\",\"extra\":1.10}}\nawait \"e-1\"";
    for (outcome, is_fitting) in [
        (
            json!({"action": "accept", "content": {"colour": "red", "n": 1}}),
            true,
        ),
        (json!({"action": "decline"}), true),
        (json!({"action": "maybe"}), false),
        (json!({"outcome": "selected", "optionId": "x"}), false),
    ] {
        let mut raw = daemon.raw().await;
        let (request, _) = raw.run(id, script).await;
        let question = raw.event("interruptRaised").await["interrupt"].clone();
        assert_eq!(question["kind"], "elicitation");
        assert_eq!(question["request"]["message"], "Which colour?");
        let mut params = json!({"conversationId": id, "interruptId": question["id"], "outcome": outcome});
        let answered = app.call("conversation/respond", params.clone()).await;
        if !is_fitting {
            refused(answered, ErrorKind::InvalidParams);
            params["outcome"] = json!({"action": "cancel"});
            app.call("conversation/respond", params).await.unwrap();
        } else {
            answered.unwrap();
        }
        raw.answer(request).await;
    }
    let heard = scripted::heard(&home, "scripted");
    let results: Vec<&Value> = heard
        .iter()
        .filter(|line| line["id"] == "e-1")
        .map(|line| &line["result"])
        .collect();
    assert_eq!(
        results,
        [
            &json!({"action": "accept", "content": {"colour": "red", "n": 1}}),
            &json!({"action": "decline"}),
            &json!({"action": "cancel"}),
            &json!({"action": "cancel"}),
        ]
    );
}

/// A script that asks for permission to use a tool of this kind, and waits for the answer.
fn scripted_question(kind: &str) -> String {
    let options = r#"[{"optionId":"yes","name":"Yes","kind":"allow_once"},{"optionId":"no","name":"No","kind":"reject_once"}]"#;
    let call = format!(r#"{{"toolCallId":"t","title":"Look","kind":"{kind}"}}"#);
    let params = format!(r#"{{"sessionId":$S,"toolCall":{call},"options":{options}}}"#);
    format!(r#"{{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{params}}}"#)
        + "\nawait 7"
}

/// The outcomes that the scripted agent received for its permission requests.
fn answers_to(home: &Home) -> Vec<Value> {
    let heard = scripted::heard(home, "careful").into_iter();
    let answers = heard.filter(|line| line["id"] == 7 && line["method"].is_null());
    answers.map(|line| line["result"]["outcome"].clone()).collect()
}

/// Configures a scripted agent with this policy for questions.
fn with_policy(home: &Home, policy: &str) {
    let settings = format!("kind = \"generic\"\ninterrupts = \"{policy}\"");
    let agent = scripted::configured_with("careful", None, &settings);
    home.configure(&format!("default_agent = \"careful\"\n{agent}"));
}

#[tokio::test]
async fn what_is_only_read_is_permitted_where_that_was_said_and_the_rest_is_asked() {
    let home = Home::new();
    with_policy(&home, "allowReads");
    let (daemon, app, id) = home.begun(&[]).await;
    let mut events = app.events(id).await;
    // The turn ends although no client answers.
    app.send(id, &scripted_question("read")).await;
    assert_eq!(answers_to(&home), [selected("yes")]);
    let Event::InterruptRaised { interrupt } = events.until("interruptRaised").await else {
        unreachable!()
    };
    check_resolved(&mut events, &interrupt, "policy", &selected("yes")).await;
    let late = app.call("conversation/respond", answer(id, &interrupt, selected("no")));
    let late = refused(late.await, ErrorKind::InterruptResolved);
    assert_eq!(late.detail("by"), "policy");
    // The policy does not permit a tool that writes, so the clients are asked.
    let mut raw = daemon.raw().await;
    let (request, _) = raw.run(id, &scripted_question("edit")).await;
    raw.event("interruptRaised").await;
    let asked = app.get(id).await.interrupts.remove(0);
    app.call("conversation/respond", answer(id, &asked, selected("no")))
        .await
        .unwrap();
    raw.answer(request).await;
    assert_eq!(answers_to(&home), [selected("yes"), selected("no")]);
}

#[tokio::test]
async fn everything_is_refused_where_that_was_said() {
    let home = Home::new();
    home.configure("[agents.loopback]\ninterrupts = \"deny\"\n");
    let (_daemon, app, id) = home.begun(&[]).await;
    app.send(id, PROMPT).await;
    assert!(!was_written(&home));
    assert_eq!(app.get(id).await.interrupts, []);
}

/// Of several answers that are sent at the same time, one is accepted and the others are refused with
/// `interruptResolved`.
#[tokio::test]
async fn of_answers_at_the_same_time_the_second_is_told_of_the_first() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let (id, interrupt, mut raw, request) = asking(&daemon, &app).await;
    let mut clients = Vec::new();
    for option in ["allow_once", "reject_once", "allow_once"] {
        let mut client = daemon.raw().await;
        let call = client
            .send("conversation/respond", answer(id, &interrupt, selected(option)))
            .await;
        clients.push((client, call));
    }
    let mut done = 0;
    for (client, call) in &mut clients {
        let answer = client.answer(*call).await;
        match answer.get("result") {
            Some(_) => done += 1,
            None => assert_eq!(answer["error"]["data"]["kind"], "interruptResolved", "{answer}"),
        }
    }
    assert_eq!(done, 1);
    assert!(raw.answer(request).await["result"].is_object());
}
