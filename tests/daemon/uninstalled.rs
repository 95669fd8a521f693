//! Transcripts of agents whose programs are not installed: everything works except opening a session.

use std::fs;
use std::path::Path;

use bridge_protocol::error::ErrorKind;
use serde_json::{Value, json};

use crate::carrying::{bundled, import};
use crate::home::Home;
use crate::support::refused;
use crate::watching::{append_turn, saved};

const SESSION: &str = "5f0c1d7e-29d5-4b7b-8f0b-5c1f2f4f7a10";
const ROLLOUT: &str = "01a1fc15-ffed-7ff1-b050-3a83130f7a03";

fn write(path: &Path, records: &[Value]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let lines: String = records.iter().map(|record| format!("{record}\n")).collect();
    fs::write(path, lines).unwrap();
}

/// Writes transcripts to the places where the agents keep them by default.
fn leave_transcripts(home: &Home) {
    let at = "2020-11-03T12:00:00.000Z";
    let cwd = home.project();
    let said = |uuid: &str, parent: Option<&str>, role: &str, content: Value| {
        json!({
            "type": role, "uuid": uuid, "parentUuid": parent, "sessionId": SESSION, "cwd": cwd, "timestamp": at,
            "message": {"role": role, "content": content, "stop_reason": "end_turn"},
        })
    };
    write(
        &home.path().join(format!(".claude/projects/-p/{SESSION}.jsonl")),
        &[
            said("u1", None, "user", json!("mend the parser")),
            said(
                "a1",
                Some("u1"),
                "assistant",
                json!([{"type": "text", "text": "mended"}]),
            ),
        ],
    );
    let meta = json!({"timestamp": at, "type": "session_meta", "payload": {"id": ROLLOUT, "timestamp": at, "cwd": cwd}});
    write(
        &home.path().join(format!(
            ".codex/sessions/2020/11/03/rollout-2020-11-03T12-00-00-{ROLLOUT}.jsonl"
        )),
        &[meta],
    );
}

#[tokio::test]
async fn what_was_written_by_agents_whose_programs_are_gone_can_be_had() {
    let home = Home::bare();
    leave_transcripts(&home);
    let (_daemon, app) = home.opened().await;

    let agents = app.call("agent/list", json!({})).await.unwrap();
    let told: Vec<Value> = agents["agents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|agent| {
            json!([
                agent["name"],
                agent["found"],
                agent["default"],
                agent["command"][0]
            ])
        })
        .collect();
    assert_eq!(told[0], json!(["claude", false, false, "claude-agent-acp"]));
    assert_eq!(told[1], json!(["codex", false, false, "codex-acp"]));
    assert_eq!(
        (told.len(), &told[2][0], &told[2][2]),
        (3, &json!("loopback"), &json!(true))
    );

    let listed = app.call("transcript/list", json!({})).await.unwrap();
    let mut ids: Vec<&str> = listed["transcripts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|transcript| transcript["upstreamId"].as_str().unwrap())
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, [ROLLOUT, SESSION]);
    let found = app
        .call("transcript/list", json!({"agent": "claude", "query": "parser"}))
        .await
        .unwrap();
    assert_eq!(found["transcripts"][0]["upstreamId"], SESSION);
    let checked = app
        .call("transcript/check", json!({"upstreamId": SESSION}))
        .await
        .unwrap();
    assert_eq!(checked["findings"], json!([]));

    let adopted = app
        .call("conversation/adopt", json!({"upstreamId": SESSION}))
        .await
        .unwrap();
    let id = &adopted["conversation"]["id"];
    assert_eq!(adopted["conversation"]["agent"], "claude");
    let history = app.ask("conversation/history", id).await;
    assert_eq!(history["messages"].as_array().unwrap().len(), 2);
    let exported = app.ask("conversation/export", id).await;
    assert_eq!(exported["messages"], history["messages"]);

    // Only a session needs the program. The conversation stays as it was.
    let chain = app.ask("conversation/chain", id).await;
    let prompt = json!({"conversationId": id, "prompt": "go on"});
    refused(
        app.call("conversation/prompt", prompt).await,
        ErrorKind::AgentUnavailable,
    );
    let open = json!({"agent": "claude", "cwd": home.project(), "open": true});
    let error = refused(
        app.call("conversation/new", open).await,
        ErrorKind::AgentUnavailable,
    );
    // The conversation was made, and can be continued later.
    let made = error.detail("conversationId");
    assert_ne!(made, json!(id));
    let get = app.call("conversation/get", json!({"conversationId": made}));
    assert_eq!(get.await.unwrap()["conversation"]["agent"], "claude");
    let after = app.ask("conversation/chain", id).await;
    assert_eq!(after, chain);

    // If no agent is named, one that can run is used.
    let made = app
        .call("conversation/new", json!({"cwd": home.project(), "open": true}))
        .await
        .unwrap();
    assert_eq!(made["conversation"]["agent"], "loopback");
}

/// An agent that is first used while the daemon runs.
#[tokio::test]
async fn transcripts_that_appear_after_the_start_can_be_listed_and_adopted() {
    let home = Home::bare();
    let (_daemon, app) = home.opened().await;
    let names = async || -> Vec<String> {
        let agents = app.call("agent/list", json!({})).await.unwrap();
        let agents = agents["agents"].as_array().unwrap().iter();
        agents
            .map(|agent| agent["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names().await, ["loopback"]);
    leave_transcripts(&home);
    assert_eq!(names().await, ["claude", "codex", "loopback"]);
    let listed = app.call("transcript/list", json!({})).await.unwrap();
    assert_eq!(listed["transcripts"].as_array().unwrap().len(), 2, "{listed}");
    let adopt = json!({"upstreamId": SESSION});
    let id = app.made_by("conversation/adopt", adopt).await;
    assert_eq!(app.get(id).await.agent.as_str(), "claude");
    // They are watched too.
    let mut events = app.events(id).await;
    append_turn(
        &home.path().join(format!(".claude/projects/-p/{SESSION}.jsonl")),
        "more",
    );
    assert_eq!(saved(&mut events).await.prompt, "more");
}

/// An imported bundle continues with an agent that can start, even if an agent that cannot has the same name as the
/// original.
#[tokio::test]
async fn a_bundle_is_imported_for_an_agent_that_is_there() {
    let (there, here) = (Home::bare(), Home::bare());
    leave_transcripts(&there);
    let path = {
        let (_daemon, app) = there.opened().await;
        let adopt = json!({"upstreamId": SESSION});
        let id = app.made_by("conversation/adopt", adopt).await;
        bundled(&app, id).await
    };
    fs::create_dir_all(here.path().join(".claude/projects")).unwrap();
    here.configure("[agents.work]\nkind = \"claude\"\ncommand = \"/bin/sh\"\n");
    let (_daemon, app) = here.opened().await;
    let agents = app.call("agent/list", json!({})).await.unwrap();
    let told = agents["agents"].as_array().unwrap().iter();
    let told: Vec<Value> = told.map(|agent| json!([agent["name"], agent["found"]])).collect();
    for expected in [json!(["claude", false]), json!(["work", true])] {
        assert!(told.contains(&expected), "{told:?}");
    }
    let made = import(&app, json!({"path": path, "cwd": here.project()}))
        .await
        .unwrap();
    assert_eq!(made.agent.as_str(), "work");
}

/// The message has the line that installs the agent: an app shows it to its user.
#[tokio::test]
async fn a_new_conversation_with_an_agent_that_is_not_installed_is_refused_with_what_installs_it() {
    let home = Home::bare();
    let (_daemon, app) = home.opened().await;
    let agents = app.call("agent/list", json!({})).await.unwrap();
    for (agent, is_known) in [("claude", true), ("nobody", false)] {
        let new = json!({"agent": agent, "cwd": home.project()});
        let error = refused(app.call("conversation/new", new).await, ErrorKind::NotFound);
        assert_eq!(error.detail("agent"), agent);
        let install = agents["install"][agent].as_str();
        assert_eq!(install.is_some(), is_known, "{agent}");
        assert!(
            install.is_none_or(|install| error.message.contains(install)),
            "{}",
            error.message
        );
    }
}
