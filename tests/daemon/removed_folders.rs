//! What the daemon does when its folders or its socket are removed while it runs.

use std::fs;
use std::process::Command;

use bridge_protocol::error::ErrorKind;
use serde_json::json;

use super::error_words;
use crate::home::Home;

/// The output of `sessionctl ls`, without starting a daemon.
fn listed(home: &Home) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sessionctl"));
    command.env_clear().env("SESSIOND_HOME", home.path());
    let output = command.args(["ls", "--no-start"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Removes the data folder. It is renamed first: else the daemon may write a new file while the others are being
/// deleted.
fn remove_data(home: &Home) {
    let removed = home.path().join("removed");
    fs::rename(home.data(), &removed).unwrap();
    fs::remove_dir_all(removed).unwrap();
}

#[tokio::test]
async fn a_socket_that_is_removed_is_there_again_and_nothing_was_interrupted() {
    let home = Home::new();
    let (daemon, app, id) = home.begun(&[]).await;
    let mut holder = daemon.raw().await;
    let (request, _) = holder.hang(id).await;
    // First the runtime folder is removed, as when its user logs out; then only the socket, as by a clean-up.
    fs::remove_dir_all(home.socket().parent().unwrap()).unwrap();
    assert!(listed(&home).contains(&id.to_string()));
    fs::remove_file(home.socket()).unwrap();
    assert!(listed(&home).contains(&id.to_string()));
    // Existing connections still work, and new ones are served too.
    let late = daemon.app().await;
    let cancelled = late
        .call("conversation/cancel", json!({"conversationId": id}))
        .await;
    assert_eq!(cancelled.unwrap(), json!({"cancelled": true}));
    assert_eq!(holder.answer(request).await["result"]["stopReason"], "cancelled");
    drop((app, holder));
    late.call("daemon/shutdown", json!({})).await.unwrap();
    drop(late);
    assert!(daemon.ended().await.success());
    assert!(!home.socket().exists());
}

#[tokio::test]
async fn a_change_is_refused_once_the_data_folder_is_gone_and_the_daemon_ends() {
    let home = Home::new();
    let (daemon, _app, id) = home.begun(&[]).await;
    let mut raw = daemon.raw().await;
    remove_data(&home);
    let renamed = raw
        .ask(
            "conversation/update",
            json!({"conversationId": id, "title": "lost"}),
        )
        .await;
    let error = &renamed["error"];
    // The daemon may have noticed the removal before the call.
    if error["data"]["kind"] != json!(ErrorKind::ShuttingDown) {
        assert_eq!(error["data"]["kind"], json!(ErrorKind::StoreFailed), "{renamed}");
        assert_eq!(error["data"]["retryable"], false);
        let message = error["message"].as_str().unwrap();
        error_words::check("a data folder that was removed", "storeFailed", message);
    }
    // The daemon stops without a signal, and does not make the removed folders again.
    assert!(daemon.ended().await.success());
    assert!(!home.data().exists() && !home.socket().exists());

    let (_daemon, app) = home.opened().await;
    assert_eq!(
        app.call("conversation/list", json!({})).await.unwrap()["conversations"],
        json!([])
    );
}

#[tokio::test]
async fn a_daemon_whose_folders_are_all_removed_ends_and_makes_none_of_them_again() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    app.make(&home.project()).await;
    remove_data(&home);
    fs::remove_dir_all(home.socket().parent().unwrap()).unwrap();
    assert!(daemon.ended().await.success());
    assert!(!home.data().exists() && !home.socket().parent().unwrap().exists());
}

/// A user restores a backup while the daemon runs. Changes that it acknowledges after that would be in the old folder.
#[tokio::test]
async fn a_daemon_whose_data_folder_is_replaced_ends() {
    let home = Home::new();
    let (daemon, _app, id) = home.begun(&[]).await;
    let aside = home.path().join("data.old");
    fs::rename(home.data(), &aside).unwrap();
    let copied = Command::new("cp").arg("-a").args([&aside, &home.data()]).status();
    assert!(copied.unwrap().success());
    assert!(daemon.ended().await.success());

    let (_daemon, app) = home.opened().await;
    app.get(id).await;
}

/// Users remove lock files. The daemon still runs then, and another one must not touch its database and its agents.
#[tokio::test]
async fn a_daemon_without_its_lock_file_keeps_its_folder() {
    let home = Home::new();
    let (daemon, _app, id) = home.begun(&[]).await;
    // While it is frozen, the daemon cannot notice that the file is missing.
    let frozen = daemon.freeze();
    fs::remove_file(home.data().join("sessiond.lock")).unwrap();
    let elsewhere = home.path().join("elsewhere.sock");
    let (status, said) = home.run(&["--socket", elsewhere.to_str().unwrap()]);
    error_words::check_start("without its lock file", status.code(), &said);
    drop(frozen);
    // It stops, because no client can find it.
    assert!(daemon.ended().await.success());
    let names = fs::read_dir(home.data()).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        names
            .iter()
            .all(|name| !name.to_string_lossy().contains("broken")),
        "{names:?}"
    );

    let (_daemon, app) = home.opened().await;
    app.get(id).await;
}
