//! Socket activation: a service manager listens on the daemon's socket and starts the daemon for the first client.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use super::error_words::check_start;
use crate::cli;
use crate::cli::listeners::refused_after_5_seconds;
use crate::home::{Daemon, Home};
use crate::support::App;

/// A shell command that passes the socket to the program as systemd does: as descriptor 3, for this process only.
const PASS: &str = r#"LISTEN_PID=$$ LISTEN_FDS=1 exec "$@" 3<&0 0</dev/null"#;

/// Binds the socket with the permissions that the unit in `packaging` sets.
fn listen(path: &Path) -> UnixListener {
    let folder = path.parent().unwrap();
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .unwrap();
    UnixListener::bind(path).unwrap()
}

/// Returns the command that starts the daemon with the listening socket passed to it.
fn command(home: &Home, listener: &UnixListener) -> Command {
    let program = home.command();
    let mut command = Command::new("/bin/sh");
    command.env_clear();
    command.envs(
        program
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    command
        .current_dir(home.path())
        .args(["-c", PASS, "sh"])
        .arg(program.get_program());
    let passed = OwnedFd::from(listener.try_clone().unwrap());
    command.stdin(Stdio::from(passed)).stdout(Stdio::null());
    command
}

#[tokio::test]
async fn a_client_that_came_before_the_daemon_is_answered_and_the_socket_outlives_it() {
    let home = Home::new();
    let listener = listen(&home.socket());
    for life in 1..=2 {
        // The client connects before any process accepts connections.
        let waiting = App::connect(&home.socket()).await;
        let daemon = Daemon::spawn(&home, command(&home, &listener));
        let id = waiting.begun(&home.project(), &["hello"]).await;
        assert_eq!(waiting.get(id).await.id, id);
        assert_is_not_inherited(&home, &listener);
        waiting.call("daemon/shutdown", json!({})).await.unwrap();
        assert!(daemon.ended().await.success(), "life {life}");
        assert!(home.socket().exists(), "the manager still listens");
    }
}

/// The service manager's listening socket must not hide that a daemon holds the lock: the error must name a daemon that
/// no longer answers, not one that is starting.
#[tokio::test]
async fn a_daemon_that_stops_answering_behind_a_service_manager_is_named() {
    let home = Home::new();
    let listener = listen(&home.socket());
    let waiting = App::connect(&home.socket()).await;
    let daemon = Daemon::spawn(&home, command(&home, &listener));
    waiting.call("daemon/status", json!({})).await.unwrap();
    let frozen = daemon.freeze();
    let output = cli::run(home.path(), &["ls", "--json"]);
    drop(frozen);
    let expected = json!({"path": home.socket(), "pid": daemon.pid()});
    refused_after_5_seconds("ls (stopped daemon)", &output, &expected);
    cli::check(&cli::run(home.path(), &["ls"]), 0, "");
}

/// An agent that inherited the socket would keep it open after the service manager has closed it, and clients would
/// wait forever.
#[cfg(target_os = "linux")]
fn assert_is_not_inherited(home: &Home, listener: &UnixListener) {
    let socket = fs::File::from(OwnedFd::from(listener.try_clone().unwrap()));
    let name = format!("socket:[{}]", socket.metadata().unwrap().ino());
    let open = fs::read_dir(format!("/proc/{}/fd", home.only_agent())).unwrap();
    let names: Vec<_> = open
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
        .collect();
    assert!(!names.is_empty());
    assert!(!names.contains(&name.into()), "{names:?}");
}

#[cfg(not(target_os = "linux"))]
fn assert_is_not_inherited(_: &Home, _: &UnixListener) {}

#[test]
fn a_socket_that_is_elsewhere_or_is_none_is_refused() {
    let home = Home::new();
    let elsewhere = home.path().join("run/other.sock");
    let listener = listen(&elsewhere);
    let (status, said) = Home::run_command(command(&home, &listener));
    let error = check_start("with another home's socket", status.code(), &said);
    for socket in [&elsewhere, &home.socket()] {
        assert!(error.contains(socket.to_str().unwrap()), "{said}");
    }
    assert!(elsewhere.exists() && !home.socket().exists());

    let mut none = command(&home, &listener);
    none.stdin(Stdio::null());
    let (status, said) = Home::run_command(none);
    check_start("with a descriptor that is no socket", status.code(), &said);
}

/// `LISTEN_FDS` is meant for another process if `LISTEN_PID` is not ours.
#[tokio::test]
async fn what_was_passed_to_another_process_is_left_alone() {
    let home = Home::new();
    let mut command = home.command();
    command.env("LISTEN_FDS", "1").env("LISTEN_PID", "1");
    let daemon = home.start_command(command, &[]);
    assert_eq!(
        daemon.app().await.call("daemon/status", json!({})).await.unwrap()["pid"],
        daemon.pid()
    );
}
