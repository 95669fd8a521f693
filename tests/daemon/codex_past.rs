//! Forks of Codex are adopted with the sessions that they came from. No process of it is ever started.

use std::fs;

use serde_json::{Value, json};

use crate::codex::{DEEP_ID, EARLY_FORK, EARLY_ID, ROOT_ID, rollout};
use crate::codex_rollouts::{FIRST_TURN, adopt, history, home, said};

/// A fork of a fork is adopted with the one that ended where it was forked. The one before went on, and is
/// named with the last turn that was taken along; when it is not there, that is told.
#[tokio::test]
async fn a_fork_of_codex_is_adopted_with_the_sessions_that_it_came_from() {
    for root_is_there in [true, false] {
        let home = home();
        if !root_is_there {
            fs::remove_file(rollout(&home, ROOT_ID)).unwrap();
        }
        let (_daemon, app) = home.opened().await;
        let params = json!({"upstreamId": DEEP_ID, "cwd": home.project()});
        let answer = app.call("conversation/adopt", params).await.unwrap();
        let deep = &answer["conversation"];
        let named = json!({"conversationId": deep["id"]});
        let chain = app.call("conversation/chain", named.clone()).await.unwrap();
        let told: Vec<Value> = chain["links"]
            .as_array()
            .unwrap()
            .iter()
            .map(|link| {
                json!([
                    link["upstreamId"],
                    link["relation"],
                    link["fromUpstreamId"],
                    link["carriedTurns"],
                    link["reason"]
                ])
            })
            .collect();
        let turns = if root_is_there { [2, 3] } else { [1, 2] };
        let expected = [
            json!([EARLY_ID, "carries", ROOT_ID, turns[0], "adopted"]),
            json!([DEEP_ID, "carries", EARLY_ID, turns[1], "adopted"]),
        ];
        let owned = [EARLY_ID, DEEP_ID];
        if root_is_there {
            assert_eq!(answer.get("missing"), None);
            let first = format!("cp.codex.{ROOT_ID}.{FIRST_TURN}");
            assert_eq!(chain["links"][0]["fromCheckpointId"], json!(first));
        } else {
            assert_eq!(answer["missing"][0]["upstreamId"], json!(ROOT_ID));
        }
        assert_eq!(told, expected);
        let listed = app
            .call("transcript/list", json!({"agent": "codex"}))
            .await
            .unwrap();
        for transcript in listed["transcripts"].as_array().unwrap() {
            let id = transcript["upstreamId"].as_str().unwrap();
            let owner = owned.contains(&id).then_some(&deep["id"]);
            assert_eq!(transcript.get("conversationId"), owner, "{id}");
        }
        for id in owned {
            assert_eq!(adopt(&app, &home, id).await["id"], deep["id"], "{id}");
        }
        if root_is_there {
            assert_ne!(adopt(&app, &home, ROOT_ID).await["id"], deep["id"]);
        }
        // The times are those of the files.
        let lineage = app.call("conversation/lineage", named).await.unwrap();
        let early = &lineage["entries"][0];
        assert_eq!(
            (&early["upstreamId"], early["at"].as_str().unwrap()),
            (&json!(EARLY_ID), began_at(EARLY_FORK).as_str())
        );
        let said_in_all = if root_is_there { 6 } else { 4 };
        assert_eq!(said(&history(&app, deep).await).len(), said_in_all);
    }
}

/// When the first prompt in a rollout's own lines was written.
fn began_at(text: &str) -> String {
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut prompts = lines.filter(|line| {
        let is_prompt = line["payload"]["role"] == "user";
        line["type"] == "response_item"
            && is_prompt
            && line["payload"]["content"].to_string().contains("early")
    });
    prompts.next().unwrap()["timestamp"].as_str().unwrap().to_owned()
}
