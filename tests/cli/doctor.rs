//! `doctor`: what it finds with and without a daemon, and how it ends.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::home::Home;
use super::printed::check_seen;
#[cfg(target_os = "linux")]
use super::terminal::Terminal;
use crate::daemon::error_words;

fn found(output: &std::process::Output) -> Vec<Value> {
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    told["diagnostics"].as_array().unwrap().clone()
}

/// Kind and severity of those that are worse than good to know.
fn bad(all: &[Value]) -> Vec<(&str, &str)> {
    let parts = all
        .iter()
        .map(|one| (one["kind"].as_str().unwrap(), one["severity"].as_str().unwrap()));
    parts
        .filter(|(_, severity)| ["warning", "error"].contains(severity))
        .collect()
}

/// What is not this machine's own: which agents it has, and how full its disk is.
fn of_the_home<'a>(bad: Vec<(&'a str, &'a str)>) -> Vec<(&'a str, &'a str)> {
    let is_machine = |kind: &str| ["agent", "room"].contains(&kind);
    bad.into_iter().filter(|(kind, _)| !is_machine(kind)).collect()
}

/// Checks the words of what was found, and those of the next step.
#[track_caller]
fn worded(found: &Value) {
    let kind = found["kind"].as_str().unwrap();
    for member in ["message", "nextStep"] {
        let words = found[member].as_str().unwrap();
        error_words::check(&format!("sessionctl doctor, {member}"), kind, words);
    }
}

#[test]
fn a_home_that_is_well_is_told_line_by_line() {
    let home = Home::new();
    for when in ["before the first start", "after it"] {
        // An agent that is started is a change on record, and one is not worded as several are.
        let output = home.run(&["doctor", "--no-agents"]);
        let text = super::text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{text}");
        // All else is this machine's own: which agents it has, what they keep, how full its disk is, what else runs on it.
        let own = ["folder  ", "store  ", "left over  "];
        let is_own = |line: &&str| {
            own.iter()
                .any(|kind| line.get(9..).is_some_and(|rest| rest.starts_with(kind)))
        };
        let lines: Vec<&str> = text.lines().filter(is_own).collect();
        check_seen(&format!("doctor, {when}"), &lines.join("\n"));
    }

    let output = home.run(&["--json", "doctor", "--no-agents"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(of_the_home(bad(&found(&output))), []);
}

#[test]
fn a_folder_that_others_may_enter_and_a_changed_configuration_are_warnings() {
    let home = Home::new();
    home.said(&["agents"]);
    let data = home.path().join("data");
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
    home.configure("# later\n");
    let output = home.run(&["--json", "doctor"]);
    assert_eq!(output.status.code(), Some(0));
    let all = found(&output);
    let expected = [("folder", "warning"), ("configuration", "warning")];
    assert_eq!(of_the_home(bad(&all)), expected, "{all:#?}");
    let folder = all.iter().find(|one| one["severity"] == "warning").unwrap();
    worded(folder);
}

/// What keeps it from starting is an error of its own, beside what is seen without one.
#[test]
fn without_a_daemon_it_says_why_there_is_none() {
    let home = Home::new();
    let output = home.run(&["--json", "doctor", "--no-start"]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(bad(&found(&output)), [("daemon", "error")]);

    home.configure("no_such_option = 1\n");
    let output = home.run(&["--json", "doctor"]);
    assert_eq!(output.status.code(), Some(3));
    let all = found(&output);
    assert_eq!(bad(&all), [("daemon", "error")]);
    worded(all.iter().find(|one| one["severity"] == "error").unwrap());
    home.configure("");

    let data = home.path().join("data");
    fs::remove_dir_all(&data).unwrap();
    fs::write(&data, "in the way").unwrap();
    let output = home.run(&["--json", "doctor"]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(bad(&found(&output)), [("folder", "error"), ("daemon", "error")]);
    fs::remove_file(&data).unwrap();
}

#[test]
#[cfg(target_os = "linux")]
fn another_daemon_of_this_user_is_named() {
    let (one, other) = (Home::new(), Home::new());
    one.said(&["agents"]);
    let status: Value = serde_json::from_str(&one.said(&["--json", "status"])).unwrap();
    let output = other.run(&["--json", "doctor", "--no-agents"]);
    let all = found(&output);
    let named = all
        .iter()
        .find(|found| found["kind"] == "otherDaemon" && found["data"]["pid"] == status["pid"]);
    let named = named.unwrap_or_else(|| panic!("{all:#?}"));
    let home = one.path().canonicalize().unwrap();
    assert_eq!(named["data"]["folder"], serde_json::json!(home.join("data")));
    let next = format!("--home {}", home.display());
    assert!(named["nextStep"].as_str().unwrap().contains(&next), "{named}");
    let own: Value = serde_json::from_str(&other.said(&["--json", "status"])).unwrap();
    assert!(
        !all.iter()
            .any(|found| found["kind"] == "otherDaemon" && found["data"]["pid"] == own["pid"]),
        "{all:#?}"
    );
}

/// It neither hangs nor keeps to itself what it has found, and gives one advice; one that answers again is fine again.
#[test]
#[cfg(target_os = "linux")]
fn a_daemon_that_does_not_answer_is_told() {
    let home = Home::new();
    home.said(&["agents"]);
    let frozen = home.freeze_daemon();
    let output = home.run(&["--json", "doctor"]);
    drop(frozen);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let all = found(&output);
    assert_eq!(of_the_home(bad(&all)), [("daemon", "error")], "{all:#?}");
    let about: Vec<&Value> = all.iter().filter(|one| one["kind"] == "daemon").collect();
    assert_eq!(about.len(), 1, "{all:#?}");
    worded(about[0]);
    assert_eq!(home.run(&["doctor", "--no-agents"]).status.code(), Some(0));
}

/// Also where the sockets alone are on it, and once where the data is on it too.
#[test]
#[cfg(target_os = "linux")]
fn a_disk_without_room_is_told_once() {
    // Of so little a disk no daemon could use anything.
    let script = "mount -t tmpfs -o size=512k none \"$1\" && echo mounted >&2 && shift && exec \"$@\"";
    for (disk, about) in [("run", "run"), ("", "data")] {
        let home = Home::new();
        let disk = home.path().join(disk);
        fs::create_dir_all(&disk).unwrap();
        let inner = home.command(&["--json", "doctor", "--no-start"]);
        let mut command = std::process::Command::new("unshare");
        command
            .args(["-Urm", "sh", "-c", script, "sh"])
            .arg(&disk)
            .arg(inner.get_program())
            .args(inner.get_args())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = match command.output() {
            Ok(output) => output,
            Err(error) => {
                eprintln!("skipped: unshare cannot be run: {error}");
                return;
            }
        };
        let told = super::text(&output.stderr);
        if !told.contains("mounted\n") {
            eprintln!("skipped: this user may not mount a disk in memory: {told}");
            return;
        }
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let all = found(&output);
        let full: Vec<&Value> = all.iter().filter(|one| one["kind"] == "room").collect();
        let subject = home.path().join(about);
        assert_eq!(full.len(), 1, "{all:#?}");
        assert_eq!(full[0]["severity"], "error");
        assert_eq!(full[0]["subject"], serde_json::json!(subject));
        assert!(full[0]["nextStep"].is_string());
    }
}

#[test]
fn the_socket_of_another_home_is_told() {
    let (one, other) = (Home::new(), Home::new());
    one.said(&["agents"]);
    other.said(&["agents"]);
    let socket = one.path().join("run/sessiond.sock");
    let output = other.run(&[
        "--json",
        "--socket",
        socket.to_str().unwrap(),
        "doctor",
        "--no-agents",
    ]);
    assert_eq!(of_the_home(bad(&found(&output))), [("daemon", "warning")]);
    let nowhere = [
        "--json",
        "--socket",
        "/nowhere/sessiond.sock",
        "doctor",
        "--no-start",
    ];
    let output = other.run(&nowhere);
    assert_eq!(output.status.code(), Some(3));
    let all = found(&output);
    worded(all.iter().find(|one| one["severity"] == "error").unwrap());
}

/// The next daemon ends them; until then they are told.
#[test]
#[cfg(target_os = "linux")]
fn what_a_daemon_that_is_gone_has_left_is_told() {
    use std::io::{Read as _, Write as _};

    let home = Home::new();
    home.said(&["agents"]);
    home.said(&["stop"]);
    let left_over = || {
        let all = found(&home.run(&["--json", "doctor", "--no-start"]));
        let one = all.into_iter().find(|one| one["kind"] == "leftOver");
        one.map(|one| one["data"]["pids"].clone())
    };
    assert_eq!(left_over(), None);
    let instance = fs::read_to_string(home.path().join("data/instance")).unwrap();
    let mut stray = std::process::Command::new("cat");
    stray.env("SESSIOND_MARK", format!("{}:0123456789abcdef", instance.trim()));
    let piped = std::process::Stdio::piped;
    let mut stray = stray.stdin(piped()).stdout(piped()).spawn().unwrap();
    // Its environment cannot be read before it runs.
    stray.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    stray.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let told = left_over();
    let pid = stray.id();
    stray.kill().unwrap();
    stray.wait().unwrap();
    assert_eq!(told, Some(serde_json::json!([pid])));
}

/// A journal that a newer version wrote keeps the daemon from starting, and the reason is said.
#[test]
fn a_store_of_a_newer_version_is_told() {
    let home = Home::new();
    home.said(&["ls"]);
    home.said(&["stop"]);
    let journal = home.path().join("data/journal.jsonl");
    let text = fs::read_to_string(&journal).unwrap();
    let newer = text.replacen("{\"journal\":1,", "{\"journal\":2,", 1);
    assert_ne!(newer, text);
    fs::write(&journal, &newer).unwrap();
    let output = home.run(&["--json", "doctor"]);
    assert_eq!(output.status.code(), Some(3));
    let all = found(&output);
    let version = concat!("session-bridge ", env!("CARGO_PKG_VERSION"));
    let named = |one: &Value| one["message"].as_str().unwrap().contains(version);
    assert!(all.iter().any(named), "{all:#?}");
    assert_eq!(fs::read_to_string(&journal).unwrap(), newer);
}

/// A daemon may run under any name, and any program may have a daemon's name.
#[test]
#[cfg(target_os = "linux")]
fn a_daemon_is_known_by_its_lock_and_not_by_its_name() {
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    let (home, renamed) = (Home::new(), crate::home::Home::new());
    let mut command = renamed.command();
    command.arg0("bridge");
    let daemon = renamed.start_command(command, &[]);
    let mut namesake = Command::new("cat")
        .arg0("sessiond")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let all = found(&home.run(&["--json", "doctor", "--no-agents", "--no-start"]));
    let namesake_pid = namesake.id();
    drop(namesake.stdin.take());
    namesake.wait().unwrap();
    let pids: Vec<&Value> = all
        .iter()
        .filter(|found| found["kind"] == "otherDaemon")
        .map(|found| &found["data"]["pid"])
        .collect();
    assert!(pids.iter().any(|pid| **pid == daemon.pid()), "{all:#?}");
    assert!(!pids.iter().any(|pid| **pid == namesake_pid), "{all:#?}");
}

/// A daemon looks for agents when it starts. One that it knows, such as by its transcripts, it finds as soon as it is installed,
/// where its own `PATH` leads.
#[test]
fn what_installs_an_agent_stops_the_daemon_if_that_is_needed() {
    let home = Home::new();
    let user = home.path().join("user");
    fs::create_dir_all(&user).unwrap();
    let install_step = |path: &str| {
        let mut command = home.command(&["--json", "doctor", "--no-agents"]);
        let output = command.env("HOME", &user).env("PATH", path).output().unwrap();
        let all = found(&output);
        let agent = all
            .iter()
            .find(|one| one["kind"] == "agent" && one["severity"] == "warning");
        let agent = agent.unwrap_or_else(|| panic!("{all:#?}"));
        worded(agent);
        agent["nextStep"].as_str().unwrap().to_owned()
    };
    assert!(install_step("/programs").contains(" && sessionctl stop"));
    home.said(&["stop"]);
    fs::create_dir_all(user.join(".claude/projects")).unwrap();
    assert!(!install_step("/programs").contains("stop"));
    assert!(install_step("/elsewhere").contains(" && sessionctl stop"));
}

/// The text has the whole width of a narrow terminal.
#[test]
#[cfg(target_os = "linux")]
fn a_narrow_terminal_shows_the_text_below_its_kind() {
    let home = Home::new();
    let doctor = ["doctor", "--no-agents"];
    for (columns, is_below) in [(50, true), (100, false)] {
        let (shown, _) = Terminal::run_plain(&home, columns, &doctor).ended();
        let below = shown.lines().any(|line| line.starts_with("  /"));
        assert_eq!(below, is_below, "{shown}");
        assert!(
            !shown.lines().any(|line| line.starts_with(&" ".repeat(23))) || !is_below,
            "{shown}"
        );
    }
}
