//! Turns, and the events about them.

use std::fs;
use std::path::PathBuf;

use bridge_protocol::conversation::{ConversationState, Settings};
use bridge_protocol::event::Event;
use bridge_protocol::history::MessageKind;
use bridge_protocol::link::{Fidelity, Via};
use bridge_protocol::turn::StopReason;
use serde_json::Value;

use super::bridge::Bridge;
use crate::support::claude::Account;
use crate::support::model_server::{What, model, tool_result, tool_use, user};

const WITH_TOOL: &str =
    r#"[[tool Bash {"command":"echo hi","description":"greet"}]] [[think a long thought|greeted]]"#;

#[test]
#[ignore = "installs the real adapter"]
fn a_turn_with_a_tool_and_a_thought_is_told_and_is_history_for_the_next() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.conversation(Settings::default());
    let first = bridge.prompted(id, WITH_TOOL);
    let resumed = first.resumed.as_ref().expect("the first prompt opened a session");
    assert_eq!((resumed.via, resumed.fidelity), (Via::Fresh, Fidelity::Full));
    assert_eq!(first.upstream_id.as_str(), bridge.head(id));
    bridge.prompted(id, "and now");

    let mut said = bridge.lab.model.asked("and now");
    // The model may drop or keep its thoughts; a kept thought must be complete.
    said.retain(|said| said.what != What::Thinking("a long thought".into()));
    let expected = [
        user(WITH_TOOL),
        model("calling"),
        tool_use("Bash"),
        tool_result("hi"),
        model("greeted"),
        user("and now"),
    ];
    assert_eq!(said, expected);

    let events = bridge.events(id);
    let kinds = told_of_turn(&events, first.turn_id.as_str());
    let told = |kind: &str| {
        let place = kinds.iter().position(|told| told == kind);
        place.unwrap_or_else(|| panic!("no {kind} among {kinds:?}"))
    };
    assert_eq!((told("promptAccepted"), told("turnEnded")), (0, kinds.len() - 1));
    assert!(told("tool_call") < told("tool_call_update"), "{kinds:?}");
    assert!(
        told("tool_call_update") < told("agent_thought_chunk"),
        "{kinds:?}"
    );
    assert!(told("agent_message_chunk") < told("turnEnded"));
    let finished = updates(&events).find(|update| update["status"] == "completed");
    let finished = finished.expect("the tool's end");
    assert_eq!(finished["_meta"]["claudeCode"]["toolName"], "Bash");
}

#[test]
#[ignore = "installs the real adapter"]
fn updates_arrive_byte_for_byte() {
    // The adapter's output passes through `tee`, so that it can be compared with what the daemon sends.
    let mut copy = PathBuf::new();
    let bridge = Bridge::start_changed(Account::Key, |entry| {
        copy = entry.transcripts.with_file_name("adapter-output");
        let script = r#""$0" "$@" | tee "$ADAPTER_OUTPUT""#;
        let node = std::mem::replace(&mut entry.command, "/bin/sh".into());
        let mut args = vec!["-c".into(), script.into(), node];
        args.append(&mut entry.args);
        entry.args = args;
        let copy = copy.to_str().expect("a path in UTF-8").to_owned();
        entry.env.push(("ADAPTER_OUTPUT".to_owned(), copy));
    });
    let Some(bridge) = bridge else { return };
    let id = bridge.begun(&[WITH_TOOL]);

    let written = fs::read_to_string(&copy).expect("the adapter's output");
    let lines: Vec<&str> = written
        .lines()
        .filter(|line| line.contains(r#""method":"session/update""#))
        .collect();
    let events = bridge.events(id);
    let heard: Vec<&str> = events
        .iter()
        .filter_map(|event| match event {
            Event::Update { update, .. } => Some(update.get()),
            _ => None,
        })
        .collect();
    assert!(heard.len() > 5, "{heard:?}");
    // Every update must appear once and in order. Updates before the session was announced or after the end
    // of the turn may be missing.
    let mut rest = lines.iter();
    for update in &heard {
        let ending = format!(r#""update":{update}}}}}"#);
        assert!(
            rest.any(|line| line.ends_with(&ending) || line.contains(&format!(r#""update":{update},"#))),
            "the adapter did not write this update: {update}"
        );
    }
}

#[test]
#[ignore = "installs the real adapter"]
fn a_cancelled_turn_ends_as_cancelled_and_the_next_gets_its_own_answer() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.begun(&["first"]);
    let running = bridge.begin_prompt(id, "long [[slow 300 0.1]]", None);
    bridge.wait_event("the first word", |event| {
        matches!(&event.event, Event::Update { update, .. } if update.get().contains("word ")).then_some(())
    });
    assert_eq!(bridge.get(id).state, ConversationState::Prompting);
    assert!(bridge.cancel(id));
    let cancelled = running.wait().expect("a turn result");
    assert_eq!(
        (cancelled.stop_reason, cancelled.failure),
        (StopReason::Cancelled, None)
    );
    assert_eq!(bridge.get(id).state, ConversationState::Idle);

    let next = bridge.prompted(id, "next");
    let events = bridge.events(id);
    let answer: String = events
        .iter()
        .filter_map(|event| match event {
            Event::Update {
                turn_id: Some(turn),
                update,
            } if *turn == next.turn_id => update.read::<Value>().ok(),
            _ => None,
        })
        .filter(|update| update["sessionUpdate"] == "agent_message_chunk")
        .filter_map(|update| update["content"]["text"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(answer, "ok: next");
    let said = bridge.lab.model.asked("next");
    assert_eq!(said[..2], [user("first"), model("ok: first")]);
    assert_eq!(
        said.iter()
            .filter(|said| **said == user("long [[slow 300 0.1]]"))
            .count(),
        1
    );
    assert_eq!(said.last(), Some(&user("next")));
}

#[test]
#[ignore = "installs the real adapter"]
fn the_agents_own_clear_is_seen_as_a_roll() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.begun(&["before"]);
    let cleared = bridge.head(id);
    bridge.prompted(id, "/clear");
    // The command is in the new file. It does not count as a turn, and no turn may be missing, also after a
    // resume.
    let commands = bridge.history(id);
    assert!(
        commands
            .iter()
            .all(|message| message.kind == Some(MessageKind::Aside)),
        "{commands:?}"
    );
    let turns = || bridge.chain(id).iter().map(|link| link.turns).collect::<Vec<_>>();
    assert_eq!(turns(), [1, 0]);
    bridge.close(id);
    let turn = bridge.prompt_at_least(id, "after", Fidelity::Full);
    assert_eq!(turn.expect("a turn").stop_reason, StopReason::EndTurn);
    assert_eq!(turns(), [1, 1]);
    bridge.history(id);
    let head = bridge.head(id);
    assert_ne!(head, cleared);
    let (from, to, cause, fidelity) = bridge.wait_event("the roll", |event| match &event.event {
        Event::Rolled {
            from,
            to,
            cause,
            fidelity,
        } => Some((from.clone(), to.clone(), *cause, *fidelity)),
        _ => None,
    });
    assert_eq!(
        (
            from.as_ref().map(bridge_protocol::UpstreamId::as_str),
            to.as_str()
        ),
        (Some(cleared.as_str()), head.as_str())
    );
    assert_eq!(
        (cause, fidelity),
        (bridge_protocol::link::RollCause::Cleared, Fidelity::None)
    );
    let links: Vec<String> = bridge
        .chain(id)
        .iter()
        .map(|link| link.upstream_id.as_str().to_owned())
        .collect();
    assert_eq!(links, [cleared, head.clone()]);
    assert!(
        bridge.lab.transcript(&head).is_some(),
        "{:?}",
        bridge.lab.transcripts()
    );

    // After a resume the conversation continues after the clear.
    bridge.close(id);
    let turn = bridge.prompt_at_least(id, "resumed", Fidelity::Full);
    assert_eq!(turn.expect("a turn").upstream_id.as_str(), head);
    let said = bridge.lab.model.asked("resumed");
    assert!(
        said.contains(&user("after")) && !said.contains(&user("before")),
        "{said:?}"
    );
}

/// The kinds of the events and updates of one turn.
fn told_of_turn(events: &[Event], turn: &str) -> Vec<String> {
    let told = events.iter().filter_map(|event| match event {
        Event::PromptAccepted { turn_id, .. } if turn_id.as_str() == turn => Some(event.kind().to_owned()),
        Event::TurnEnded { turn: ended } if ended.turn_id.as_str() == turn => Some(event.kind().to_owned()),
        Event::Update {
            turn_id: Some(turn_id),
            update,
        } if turn_id.as_str() == turn => {
            let update: Value = update.read().expect("an update is JSON");
            Some(update["sessionUpdate"].as_str().expect("a kind").to_owned())
        }
        _ => None,
    });
    told.collect()
}

fn updates(events: &[Event]) -> impl Iterator<Item = Value> {
    events.iter().filter_map(|event| match event {
        Event::Update { update, .. } => Some(update.read().expect("an update is JSON")),
        _ => None,
    })
}
