//! Forks that Codex made are adopted without their sources: the link refers to the source session. Codex itself is
//! never started.

use std::fs;

use serde_json::json;

use crate::codex::{DEEP_ID, EARLY_ID, ROOT_ID, rollout};
use crate::codex_rollouts::{adopt, history, home, said};

/// The history of a fork of a fork begins in the files of its sources. If the first of them is missing, that is
/// reported.
#[tokio::test]
async fn a_fork_of_codex_is_adopted_by_itself() {
    for root_is_there in [true, false] {
        let home = home();
        if !root_is_there {
            fs::remove_file(rollout(&home, ROOT_ID)).unwrap();
        }
        let (_daemon, app) = home.opened().await;
        let params = json!({"upstreamId": DEEP_ID, "cwd": home.project()});
        let answer = app.call("conversation/adopt", params).await.unwrap();
        let deep = &answer["conversation"];
        match root_is_there {
            true => assert_eq!(answer.get("missing"), None),
            false => assert_eq!(answer["missing"][0]["upstreamId"], json!(ROOT_ID)),
        }
        let named = json!({"conversationId": deep["id"]});
        let chain = app.call("conversation/chain", named).await.unwrap();
        let [link] = chain["links"].as_array().unwrap().as_slice() else {
            panic!("{chain}");
        };
        let (turns, messages) = if root_is_there { (3, 6) } else { (2, 4) };
        assert_eq!(
            json!([
                link["upstreamId"],
                link["relation"],
                link["fromUpstreamId"],
                link["carriedTurns"],
                link["reason"]
            ]),
            json!([DEEP_ID, "carries", EARLY_ID, turns, "adopted"])
        );
        assert_eq!(said(&history(&app, deep).await).len(), messages);
        // The session that it was forked from belongs to no conversation yet and can be adopted too.
        let early = adopt(&app, &home, EARLY_ID).await;
        assert_ne!(early["id"], deep["id"]);
        let listed = app
            .call("transcript/list", json!({"agent": "codex"}))
            .await
            .unwrap();
        for transcript in listed["transcripts"].as_array().unwrap() {
            let owner = match transcript["upstreamId"].as_str().unwrap() {
                EARLY_ID => Some(&early["id"]),
                DEEP_ID => Some(&deep["id"]),
                _ => None,
            };
            assert_eq!(transcript.get("conversationId"), owner, "{transcript}");
        }
    }
}
