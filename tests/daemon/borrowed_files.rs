//! A fork refers to long tool results and subagents that are stored with the session it was forked from. Exports and
//! copies include those files.

use std::fs;
use std::path::{Path, PathBuf};

use bridge_protocol::ConversationId;
use serde_json::{Value, json};

use super::copied_files::name_in_result;
use super::error_words;
use crate::carrying::{bundle, import};
use crate::home::Home;
use crate::support::App;

/// Makes a fork whose only tool result and whose subagent's transcript are stored with its source. Returns the fork and
/// the folder of that source.
async fn forked(home: &Home, app: &App) -> (ConversationId, PathBuf) {
    let source = app.make(&home.project()).await;
    app.send(source, "one [[tool read {\"a\":1}]]").await;
    let fork = app.fork(source, false).await.unwrap().conversation.id;
    app.send(fork, "two").await;
    app.close(fork).await;
    let lender = home
        .transcript(app.get(source).await.head.unwrap().as_str())
        .unwrap();
    let lender = lender.with_extension("");
    fs::create_dir_all(lender.join("tool-results")).unwrap();
    fs::create_dir_all(lender.join("subagents")).unwrap();
    fs::write(lender.join("tool-results/long.txt"), "a long result").unwrap();
    fs::write(lender.join("subagents/agent-x1.jsonl"), "{\"text\":\"done\"}\n").unwrap();
    let named = lender.join("tool-results/long.txt");
    let transcript = home
        .transcript(app.get(fork).await.head.unwrap().as_str())
        .unwrap();
    name_in_result(&transcript, &named, Some("x1"));
    (fork, lender)
}

/// Returns the path that the transcript records as the file of the tool result.
async fn named(home: &Home, app: &App, id: ConversationId) -> PathBuf {
    let text = fs::read_to_string(home.transcript_of(app, id).await).unwrap();
    let records = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut paths = records.filter_map(|record| {
        let path = record["toolUseResult"]["persistedOutputPath"]
            .as_str()?
            .to_owned();
        let said = record["message"]["content"][0]["content"].as_str().unwrap();
        assert!(said.contains(&format!("saved to: {path}\n")), "{said}");
        Some(PathBuf::from(path))
    });
    paths.next().unwrap()
}

async fn findings(app: &App, id: ConversationId) -> Value {
    let params = json!({"conversationId": id});
    app.call("transcript/check", params).await.unwrap()["findings"].clone()
}

// Against D12.
#[tokio::test]
async fn what_a_fork_borrows_comes_along_with_it() {
    // Kept copies would replace what this test deletes below.
    let (there, here) = (Home::keeping_nothing(), Home::new());
    let (id, lender, fork, path) = {
        let (_daemon, app) = there.opened().await;
        let (id, lender) = forked(&there, &app).await;
        let fork = there.transcript_of(&app, id).await.with_extension("");
        assert_eq!(findings(&app, id).await, json!([]));
        let exported = bundle(&app, id).await;
        assert_eq!(exported.get("missing"), None, "{exported}");
        (id, lender, fork, exported["path"].clone())
    };
    let (_daemon, app) = here.opened().await;
    for new_ids in [false, true] {
        let params = json!({"path": path, "cwd": here.project(), "newIds": new_ids});
        let imported = import(&app, params).await.unwrap();
        assert_eq!(imported.id == id, !new_ids);
        let head = imported.head.unwrap();
        let named = named(&here, &app, imported.id).await;
        let own = here.transcript(head.as_str()).unwrap().with_extension("");
        // The fork may already have copies of these files, since they are copied after the answer to the fork; then the
        // path is in a subfolder.
        assert!(named.starts_with(own.join("tool-results")), "{named:?}");
        assert_eq!(fs::read_to_string(&named).unwrap(), "a long result");
        assert!(own.join("subagents/agent-x1.jsonl").is_file());
        assert_eq!(findings(&app, imported.id).await, json!([]));
        assert_eq!(app.remembered(imported.id).await.len(), 2);
    }

    // The export reports what is missing, unless the fork already has copies: they are made after the answer to the
    // fork.
    fs::remove_dir_all(&lender).unwrap();
    drop(fs::remove_dir_all(&fork));
    let (_daemon, app) = there.opened().await;
    let exported = bundle(&app, id).await;
    let told = exported["missing"][0]["detail"].as_str().unwrap();
    error_words::check("an export without a borrowed file", "missing", told);
    let file = lender.join("tool-results/long.txt");
    assert!(told.contains(file.to_str().unwrap()), "{told}");
}

/// The agent's files still exist; only the daemon's own data is lost.
#[tokio::test]
async fn a_fork_that_is_there_with_its_source_is_found_as_it_is() {
    let home = Home::new();
    let (id, path, before) = {
        let (_daemon, app) = home.opened().await;
        let (id, _) = forked(&home, &app).await;
        (
            id,
            bundle(&app, id).await["path"].clone(),
            named(&home, &app, id).await,
        )
    };
    for gone in ["store", "bodies"] {
        drop(fs::remove_dir_all(home.data().join(gone)));
    }
    fs::remove_file(home.data().join("journal.jsonl")).unwrap();
    let (_daemon, app) = home.opened().await;
    import(&app, json!({"path": path, "sameFolders": true}))
        .await
        .unwrap();
    assert_eq!(named(&home, &app, id).await, before);
    assert!(Path::new(&before).is_file());
    assert_eq!(app.remembered(id).await.len(), 2);
}
