//! A copy under a new id includes the files beside the transcript, so nothing is lost when the old session is deleted.

use std::fs;
use std::path::{Path, PathBuf};

use bridge_protocol::link::{Fidelity, Via};
use serde_json::{Value, json};

use crate::home::Home;

/// Rewrites the record of the only tool result so that it names this file for the full output and, if given, the
/// subagent it came from.
pub(crate) fn name_in_result(transcript: &Path, result: &Path, agent: Option<&str>) {
    let text = fs::read_to_string(transcript).unwrap();
    let mut changed = 0;
    let lines = text.lines().map(|line| {
        let mut record: Value = serde_json::from_str(line).unwrap();
        if record["message"]["content"][0]["type"] == "tool_result" {
            let said = format!(
                "<persisted-output>\nFull output saved to: {}\n\nPreview:\na",
                result.display()
            );
            record["message"]["content"][0]["content"] = json!(said);
            record["toolUseResult"] = json!({"persistedOutputPath": result});
            if let Some(agent) = agent {
                record["toolUseResult"]["agentId"] = json!(agent);
            }
            changed += 1;
        }
        format!("{record}\n")
    });
    let text: String = lines.collect();
    assert_eq!(changed, 1, "{text}");
    fs::write(transcript, text).unwrap();
}

fn put(path: PathBuf, text: &str) -> PathBuf {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path
}

#[tokio::test]
async fn a_copy_under_a_new_id_outlives_the_files_of_the_old_one() {
    let home = Home::keeping_nothing();
    let (_daemon, app) = home.opened().await;
    let id = app
        .begun(
            &home.project(),
            &["one [[tool read {\"a\":1}]]", "[[say two]][[forget]]"],
        )
        .await;
    let old = app.get(id).await.head.unwrap();
    app.close(id).await;
    let transcript = home.transcript(old.as_str()).unwrap();
    let beside = transcript.with_extension("");
    let result = put(beside.join("tool-results/long.txt"), "a long result");
    // The subagent's records name another file and the session's id.
    let of_agent = put(
        beside.join("tool-results/of-agent.txt"),
        "a long result of a subagent",
    );
    let said = json!({"type": "user", "uuid": "s1", "sessionId": old, "agentId": "x1",
        "message": {"content": [{"type": "tool_result", "tool_use_id": "t",
            "content": format!("<persisted-output>\nFull output saved to: {}\n\nPreview:\nb", of_agent.display())}]}});
    put(beside.join("subagents/agent-x1.jsonl"), &format!("{said}\n"));
    put(beside.join("subagents/agent-x1.meta.json"), "{}");
    // No record names this file, as if the agent had been killed during the call.
    put(beside.join("subagents/agent-x2.jsonl"), "{}\n");
    name_in_result(&transcript, &result, Some("x1"));

    let turn = app.send(id, "three").await;
    let resumed = turn.resumed.unwrap();
    assert_eq!(
        (resumed.via, resumed.fidelity),
        (Via::Copied, Fidelity::Full),
        "{resumed:?}"
    );
    assert_ne!(turn.upstream_id, old);
    let copy = home.transcript(turn.upstream_id.as_str()).unwrap();
    fs::remove_file(&transcript).unwrap();
    fs::remove_dir_all(&beside).unwrap();

    let own = copy.with_extension("");
    let table = [
        ("tool-results/long.txt", "a long result"),
        ("tool-results/of-agent.txt", "a long result of a subagent"),
        ("subagents/agent-x1.meta.json", "{}"),
        ("subagents/agent-x2.jsonl", "{}\n"),
    ];
    for (name, text) in table {
        assert_eq!(fs::read_to_string(own.join(name)).unwrap(), text, "{name}");
    }
    let old_place = beside.to_str().unwrap();
    for file in [copy.clone(), own.join("subagents/agent-x1.jsonl")] {
        let text = fs::read_to_string(&file).unwrap();
        assert!(!text.contains(old_place), "{text}");
        assert!(
            text.contains(own.join("tool-results").to_str().unwrap()),
            "{text}"
        );
    }
    let checked = app.ask("transcript/check", id).await;
    assert_eq!(checked["findings"], json!([]));
    assert_eq!(app.remembered(id).await.len(), 3);
}
