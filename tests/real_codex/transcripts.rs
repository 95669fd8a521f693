//! Conversations through the daemon, and the transcripts that the real agent wrote of them.

use bridge_protocol::UpstreamId;
use bridge_protocol::conversation::Settings;
use bridge_protocol::link::{Fidelity, LinkReason, Relation};
use serde_json::json;

use crate::bridge::Bridge;
use crate::support::model_server::{Said, What, model, tool_use, user};

const WITH_TOOL: &str = r#"[[tool exec_command {"cmd":"echo hi"}]] [[think a long thought|greeted]]"#;

/// What a model is sent of the turn [`WITH_TOOL`], but for what the tool gave back: that begins with numbers of Codex' own.
fn with_tool() -> Vec<Said> {
    vec![
        user(WITH_TOOL),
        model("calling"),
        tool_use("exec_command"),
        Said {
            role: "user".into(),
            what: What::ToolResult("hi".into()),
        },
        Said {
            role: "assistant".into(),
            what: What::Thinking("a long thought".into()),
        },
        model("greeted"),
    ]
}

/// A turn of the scripted model that only echoes, as the model is sent it.
fn echoed(text: &str) -> Vec<Said> {
    vec![user(text), model(&format!("ok: {text}"))]
}

/// What the model was sent with a prompt; of results only what the tools put out.
fn asked(bridge: &Bridge, text: &str) -> Vec<Said> {
    let mut said = bridge.lab.model.asked(text);
    for said in &mut said {
        if let What::ToolResult(result) = &mut said.what
            && let Some((_, output)) = result.split_once("Output:\n")
        {
            *result = output.to_owned();
        }
    }
    said
}

#[test]
#[ignore = "installs the real adapter"]
fn a_conversation_goes_on_whole_after_a_restart() {
    let Some(mut bridge) = Bridge::start() else {
        return;
    };
    let id = bridge.conversation(Settings::default());
    bridge.prompted(id, "first words");
    bridge.prompted(id, WITH_TOOL);
    let head = bridge.head(id);
    bridge.stop_daemon();
    bridge.start_daemon();
    let turn = bridge.prompted(id, "and now");
    assert_eq!(turn.upstream_id.as_str(), head);
    let resumed = turn.resumed.expect("it was brought back");
    assert_eq!((resumed.fidelity, resumed.missing_turns), (Fidelity::Full, 0));
    let expected = [echoed("first words"), with_tool(), vec![user("and now")]].concat();
    assert_eq!(asked(&bridge, "and now"), expected);
}

#[test]
#[ignore = "installs the real adapter"]
fn branches_and_their_source_go_on_each_with_its_own_history_and_are_listed() {
    let Some(mut bridge) = Bridge::start() else {
        return;
    };
    let id = bridge.conversation(Settings::default());
    bridge.prompted(id, "first words");
    bridge.prompted(id, WITH_TOOL);
    let source = bridge.head(id);
    let fork = bridge.fork(id, false);
    assert_eq!(fork.fidelity, Fidelity::Full);
    let branch = fork.conversation.id;
    bridge.prompted(branch, "on the branch");
    let in_place = bridge.fork(id, true).link.expect("a link");
    assert_eq!(
        (in_place.reason, in_place.relation),
        (LinkReason::Forked, Relation::Carries)
    );
    bridge.prompted(id, "in place");

    // Both also after both were brought back by another process.
    bridge.stop_daemon();
    bridge.start_daemon();
    let common = [echoed("first words"), with_tool()].concat();
    for (conversation, own) in [(branch, "on the branch"), (id, "in place")] {
        assert_eq!(asked(&bridge, own), [&common[..], &[user(own)]].concat());
        let again = format!("again {own}");
        bridge.prompted(conversation, &again);
        let expected = [&common[..], &echoed(own), &[user(&again)]].concat();
        assert_eq!(asked(&bridge, &again), expected);
    }

    // The source alone has the first prompt in its file; what a branch is called is its own first prompt.
    let forked = bridge.head(branch);
    let in_place = in_place.upstream_id.as_str().to_owned();
    assert_eq!(bridge.head(id), in_place);
    assert_eq!(bridge.listed().len(), 3);
    let adapter = bridge.lab.adapter();
    let of_adapter = adapter.call("session/list", json!({})).expect("session/list");
    for (upstream_id, title, owner, origin) in [
        (&source, "first words", id, None),
        (&forked, "on the branch", branch, Some(&source)),
        (&in_place, "in place", id, Some(&source)),
    ] {
        let listed = bridge.listed_of(upstream_id);
        assert_eq!(
            (listed.title.as_str(), listed.conversation_id),
            (title, Some(owner))
        );
        assert_eq!(
            listed.forked_from.as_ref().map(UpstreamId::as_str),
            origin.map(String::as_str)
        );
        let path = bridge.lab.transcript(upstream_id).expect("a rollout");
        assert_eq!(listed.path, path.to_str().expect("a path in UTF-8"));
        assert_eq!(
            listed.cwd,
            bridge.lab.project().to_str().expect("a path in UTF-8")
        );
        let sessions = of_adapter["sessions"].as_array().expect("sessions");
        let session = sessions
            .iter()
            .find(|session| session["sessionId"] == upstream_id.as_str());
        let session = session.unwrap_or_else(|| panic!("the agent does not list {title}: {of_adapter}"));
        assert_eq!(
            (&session["title"], &session["cwd"]),
            (&json!(title), &json!(listed.cwd))
        );
    }
}

/// Codex' own deletion moves the file into another folder.
#[test]
#[ignore = "installs the real adapter"]
fn an_archived_transcript_is_listed_where_it_is() {
    let Some(bridge) = Bridge::start() else {
        return;
    };
    let adapter = bridge.lab.adapter();
    let opening = json!({"cwd": bridge.lab.project(), "mcpServers": []});
    let made = adapter.call("session/new", opening).expect("session/new");
    let session = made["sessionId"].as_str().expect("an id").to_owned();
    adapter.prompt(&session, "put away").expect("a turn");
    let before = bridge.listed_of(&session);
    assert_eq!(
        (before.title.as_str(), before.conversation_id),
        ("put away", None)
    );
    adapter
        .call("session/delete", json!({"sessionId": session}))
        .expect("session/delete");
    adapter.stop();
    let after = bridge.listed_of(&session);
    assert_ne!(before.path, after.path);
    assert!(after.path.contains("/archived_sessions/"), "{}", after.path);
    assert_eq!(
        (after.title, after.cwd, after.bytes),
        (before.title, before.cwd, before.bytes)
    );
}
