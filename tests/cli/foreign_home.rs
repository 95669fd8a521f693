//! Homes, lock files and logs that another user made: `sessionctl` believes none of them.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::process::Output;

use serde_json::{Value, json};

use super::printed::check_printed;
use super::{run, text};
use crate::daemon::foreign_home::{STRANGER, can_give_away, give_away};

/// The error that a command prints with `--json`: no daemon can be had, for a reason that a program can read.
#[track_caller]
fn refusal(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let mut told: Value = serde_json::from_str(&text(&output.stderr)).unwrap();
    let error = told["error"].take();
    assert_eq!(error["kind"], "noDaemon", "{error}");
    assert!(error["hint"].is_string(), "{error}");
    error
}

/// A home with a configuration that starts a program, made by another user at a place that everybody can
/// write to.
#[test]
fn nothing_is_started_from_a_home_of_another_user() {
    if !can_give_away() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("bridge");
    let (config, planted) = (home.join("config"), folder.path().join("planted"));
    fs::create_dir_all(&config).unwrap();
    let started = format!(
        "[agents.mine]\nkind = \"generic\"\ncommand = \"/usr/bin/touch\"\nargs = [{:?}]\n",
        planted.to_str().unwrap()
    );
    fs::write(config.join("config.toml"), started).unwrap();
    for path in [&config.join("config.toml"), &config, &home] {
        give_away(path);
    }
    fs::set_permissions(&home, fs::Permissions::from_mode(0o777)).unwrap();
    let commands = [
        &["new", "--open", "--json"][..],
        &["status", "--json"],
        &["stop", "--json"],
        &["ls", "--json", "--no-start"],
    ];
    for command in commands {
        let error = refusal(&run(&home, command));
        assert_eq!(error["data"]["path"], json!(home), "{error}");
        assert_eq!(error["data"]["owner"], STRANGER, "{error}");
        assert_eq!(error["data"]["mode"], "777", "{error}");
        assert!(
            !home.join("data").exists() && !home.join("log").exists(),
            "{error}"
        );
    }
    assert!(!planted.exists(), "a stranger's program was started");
}

/// What can be set right by its owner is told with the command that does it.
#[test]
fn a_home_of_ones_own_that_others_can_change_is_refused_with_the_command_that_closes_it() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("my home");
    fs::create_dir(&home).unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o757)).unwrap();
    let error = refusal(&run(&home, &["ls", "--json"]));
    assert_eq!(error["data"]["path"], json!(home), "{error}");
    let hint = error["hint"].as_str().unwrap();
    let command = &hint[hint.find("chmod ").unwrap()..];
    let closed = std::process::Command::new("sh").args(["-c", command]).status();
    assert!(closed.unwrap().success(), "{command}");
    super::check(&run(&home, &["stop"]), 0, "");
}

/// A lock file says where a daemon listens, and what is typed goes there.
#[test]
fn a_lock_file_of_another_user_is_not_believed() {
    if !can_give_away() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("strangers.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    listener.set_nonblocking(true).unwrap();
    let data = home.path().join("data");
    fs::create_dir(&data).unwrap();
    let lock = data.join("sessiond.lock");
    let told = json!({"pid": std::process::id(), "socket": socket, "startedAt": "2026-11-24T00:00:00Z"});
    fs::write(&lock, told.to_string()).unwrap();
    give_away(&lock);
    let is_called = || listener.accept().is_ok();
    let output = run(home.path(), &["ls", "--no-start"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(!is_called(), "{output:?}");

    // The same through a link of the stranger's, to a file of the user's own.
    let own = home.path().join("own.lock");
    fs::remove_file(&lock).unwrap();
    fs::write(&own, told.to_string()).unwrap();
    symlink(&own, &lock).unwrap();
    give_away(&lock);
    let output = run(home.path(), &["ls", "--no-start"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(!is_called(), "{output:?}");
}

/// A log that is a link would have the daemon write to what it names.
#[test]
fn a_log_is_not_followed() {
    let home = tempfile::tempdir().unwrap();
    let (log, precious) = (home.path().join("log"), home.path().join("precious"));
    fs::create_dir(&log).unwrap();
    fs::write(&precious, "precious").unwrap();
    symlink(&precious, log.join("sessiond.log")).unwrap();
    let output = run(home.path(), &["ls"]);
    let told = check_printed(&["ls", "whose log is a link"], &output, 1);
    let link = home.path().join("log/sessiond.log");
    assert!(told.contains(link.to_str().unwrap()), "{told}");
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
}

/// Whoever asks what is wrong is told, too.
#[test]
fn doctor_tells_of_a_home_that_others_can_change() {
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let output = run(home.path(), &["doctor", "--no-agents", "--json"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let told: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    let found = told["diagnostics"].as_array().unwrap().iter();
    let mut errors = found.filter(|one| one["severity"] == "error");
    assert!(errors.any(|one| one["subject"] == json!(home.path())), "{told}");
}
