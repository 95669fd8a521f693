//! Starting: what makes the daemon refuse to start, and which files a start makes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};

use bridge_protocol::ConversationId;
use rustix::process::Signal;
use serde_json::json;

use super::error_words::check_start;
use crate::home::{Daemon, Home};
use crate::signs::Watched;
use crate::support::DEADLINE;
use crate::test_programs;

#[test]
fn a_configuration_that_is_named_has_to_be_there() {
    let home = Home::new();
    let (status, said) = home.run(&["--config", "elsewhere.toml"]);
    let error = check_start("--config elsewhere.toml", status.code(), &said);
    assert!(error.contains("elsewhere.toml"), "{error}");
    let (status, said) = home.run(&["--colour"]);
    assert_eq!(status.code(), Some(2), "{said}");
}

/// Like other programs, the daemon accepts the null device as an empty configuration.
#[tokio::test]
async fn the_null_device_is_an_empty_configuration() {
    let home = Home::new();
    let daemon = home.start_command(home.command(), &["--config", "/dev/null"]);
    daemon.app().await.call("daemon/status", json!({})).await.unwrap();
}

/// F41: only one daemon runs per data folder. A second one reports the first, and does not disturb it.
#[tokio::test]
async fn a_second_daemon_is_told_of_the_first_and_leaves_it_alone() {
    let home = Home::new();
    let daemon = home.start();
    let elsewhere = home.path().join("other.sock");
    for arguments in [&[][..], &["--socket", elsewhere.to_str().unwrap()]] {
        let (status, said) = home.run(arguments);
        let error = check_start(&arguments.join(" "), status.code(), &said);
        assert!(error.contains(&daemon.pid().to_string()), "{error}");
        assert!(error.contains(home.socket().to_str().unwrap()), "{error}");
        assert!(!elsewhere.exists());
    }
    let status = daemon.app().await.call("daemon/status", json!({})).await.unwrap();
    assert_eq!(status["pid"], daemon.pid());
}

#[test]
fn a_socket_that_cannot_be_is_refused() {
    let home = Home::new();
    let long = home.path().join("x".repeat(110));
    let in_the_way = home.config_file();
    for (socket, what) in [(&long, "a long path"), (&in_the_way, "a file")] {
        let (status, said) = home.run(&["--socket", socket.to_str().unwrap()]);
        check_start(&format!("--socket {what}"), status.code(), &said);
    }
    assert!(in_the_way.exists(), "the existing file is left alone");
    drop(home.start());
}

#[tokio::test]
async fn what_the_daemon_makes_is_its_users_alone() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    app.begun(&home.project(), &["secret"]).await;
    let mode = |path: std::path::PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(home.data()), 0o700);
    assert_eq!(mode(home.path().join("run")), 0o700);
    assert_eq!(mode(home.socket()), 0o600);
    assert_eq!(mode(home.data().join("sessiond.lock")), 0o600);
}

/// An ephemeral daemon works as usual but writes no store, so the next daemon knows nothing.
#[tokio::test]
async fn ephemeral_writes_no_store() {
    let home = Home::new();
    let daemon = home.start_with(&["--ephemeral"]);
    let app = daemon.app().await;
    let id = app.begun(&home.project(), &["first"]).await;
    app.send(id, "[[forget]]").await;
    assert_eq!(app.remembered(id).await, ["first", "[[forget]]"]);
    let status = app.call("daemon/status", json!({})).await.unwrap();
    assert_eq!(status["store"]["ephemeral"], true);
    app.call("daemon/shutdown", json!({})).await.unwrap();
    assert!(daemon.ended().await.success());
    let mut left: Vec<String> = fs::read_dir(home.data())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["instance", "loopback", "sessiond.lock"]);

    let daemon = home.start();
    let status = daemon.app().await.call("daemon/status", json!({})).await.unwrap();
    assert_eq!(status["conversations"], 0);
}

/// Files that no daemon wrote: a name that is not text, and a replaced database with the highest number.
#[tokio::test]
async fn a_start_succeeds_beside_files_that_no_daemon_wrote() {
    let home = Home::new();
    let (daemon, _app, id) = home.begun(&["one"]).await;
    daemon.kill();
    fs::write(home.data().join("instance"), [0xff, 0xfe]).unwrap();
    fs::create_dir(home.data().join(format!("store.broken-{}", u64::MAX))).unwrap();
    fs::write(home.data().join("store/db"), vec![b'x'; 100_000]).unwrap();
    let (_daemon, app) = home.opened().await;
    assert_eq!(app.remembered(id).await, ["one"]);
    assert!(home.data().join("store.broken-1").exists());
}

#[test]
fn a_service_manager_is_told_when_the_daemon_is_ready() {
    let home = Home::new();
    let path = home.path().join("notify.sock");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut command = home.command();
    command.env("NOTIFY_SOCKET", &path).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut word = [0; 64];
    let length = manager.recv(&mut word).unwrap();
    assert_eq!(&word[..length], b"READY=1");
    assert!(home.socket().exists());
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Makes a change, as every daemon does before it starts its first agent: only a daemon that made a change can leave
/// processes behind.
async fn begin_work(daemon: &Daemon<'_>, id: &str) {
    let params = json!({"conversationId": id, "title": "begun"});
    daemon
        .app()
        .await
        .call("conversation/update", params)
        .await
        .unwrap();
}

/// Starts a process with the mark of the killed daemon, which is not recorded in the store.
fn stray(home: &Home) -> Child {
    let instance = fs::read_to_string(home.data().join("instance")).unwrap();
    let mut command = Command::new("cat");
    command.env("SESSIOND_MARK", format!("{}:0123456789abcdef", instance.trim()));
    command.stdin(Stdio::piped()).spawn().unwrap()
}

/// Returns whether the process had ended already, and ends it if not.
fn is_ended(mut stray: Child) -> bool {
    let ended = stray.try_wait().unwrap();
    stray.kill().unwrap();
    stray.wait().unwrap();
    ended.is_some()
}

/// A start that is stopped closes the store that it has built. The next start must still look for processes of the
/// killed daemon.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_start_that_is_stopped_while_it_builds_a_store_anew_hides_no_process_of_a_killed_life() {
    let home = Home::new();
    let ids: Vec<String> = (0..6_000).map(|_| ConversationId::mint().to_string()).collect();
    test_programs::fill_store(&home.data(), &home.project(), None, &ids);
    let daemon = home.start();
    begin_work(&daemon, &ids[0]).await;
    daemon.kill();
    fs::write(home.data().join("store/db"), "no database").unwrap();
    let stray = stray(&home);
    let watched = Watched::below(&home.data());
    let making = home.data().join("store.next");
    let building = Daemon::spawn(&home, home.command());
    let begun = move || watched.wait_for("database in the making", || making.exists().then_some(()));
    tokio::task::spawn_blocking(begun).await.unwrap();
    building.signal(Signal::TERM);
    assert!(building.ended().await.success());
    let _daemon = home.start();
    assert!(is_ended(stray), "the process of the killed life was not ended");
}

/// A process that a killed daemon left is ended, also if the store has to be rebuilt.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_store_that_was_built_anew_has_everything_and_is_believed_at_the_next_start() {
    let home = Home::new();
    let ids: Vec<String> = (0..200).map(|_| ConversationId::mint().to_string()).collect();
    test_programs::fill_store(&home.data(), &home.project(), None, &ids);

    for is_damaged in [false, true, false] {
        let stray = is_damaged.then(|| {
            fs::write(home.data().join("store/db"), "no database").unwrap();
            stray(&home)
        });
        let daemon = home.start();
        if let Some(stray) = stray {
            assert!(is_ended(stray), "the process of the killed life was not ended");
        }
        let status = daemon.app().await.call("daemon/status", json!({})).await.unwrap();
        assert_eq!(status["conversations"], ids.len());
        assert_eq!(status["pid"], daemon.pid());
        // The next start trusts the rebuilt store, although it was not closed.
        let aside = is_damaged.then(|| home.data().join("store.broken-1"));
        assert_eq!(status["store"]["setAside"], json!(aside));
        begin_work(&daemon, &ids[0]).await;
        daemon.kill();
    }
}
