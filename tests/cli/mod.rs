//! The command line as a process: what it prints, to where, and how it exits.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test may fail by panicking, its helpers too"
)]

mod advice;
mod agents_missing;
mod archive;
mod carrying;
#[cfg(target_os = "linux")]
mod chatting;
mod confirm;
mod continuing;
#[cfg(target_os = "linux")]
mod deleted_meanwhile;
mod demo;
mod doctor;
mod editing;
mod export_names;
mod export_secrets;
#[cfg(target_os = "linux")]
mod finding;
mod foreign_home;
mod forking;
#[cfg(target_os = "linux")]
mod forms;
mod help;
#[cfg(target_os = "linux")]
mod here;
mod history;
mod home;
#[cfg(target_os = "linux")]
mod idle_chat;
mod json_lines;
#[cfg(target_os = "linux")]
mod leaving;
#[cfg(target_os = "linux")]
mod line_breaks;
pub(crate) mod listeners;
#[cfg(target_os = "linux")]
mod lists;
mod live;
#[cfg(target_os = "linux")]
mod looking;
mod moving;
#[cfg(target_os = "linux")]
mod next_steps;
#[cfg(target_os = "linux")]
mod picking;
mod printed;
#[cfg(target_os = "linux")]
mod progress;
#[cfg(target_os = "linux")]
mod questions;
#[cfg(target_os = "linux")]
mod refused;
mod reset_and_rm;
#[cfg(target_os = "linux")]
mod screens;
mod settings;
mod stub;
#[cfg(target_os = "linux")]
mod suspending;
#[cfg(target_os = "linux")]
mod terminal;
mod times;
mod transcripts;
mod turnless;
mod typed_ahead;
#[cfg(target_os = "linux")]
mod unanswered;
mod verbose;
mod wrong_files;

use std::fs::{DirBuilder, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use printed::{check_printed, commands};
use stub::{DELETED, DIFFERS, GET_RESULT, ID, Stub, turn};

fn sessionctl(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sessionctl"));
    command
        .args(arguments)
        .env_clear()
        // No folder of a user: what is there is on each machine another.
        .env("HOME", home.join("user"))
        .env("SESSIOND_HOME", home)
        .env("LC_ALL", "C.UTF-8")
        .current_dir(home)
        .stdin(Stdio::null());
    command
}

pub(crate) fn run(home: &Path, arguments: &[&str]) -> Output {
    sessionctl(home, arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[track_caller]
pub(crate) fn check(output: &Output, code: i32, stdout: &str) {
    let told = format!("{}\n{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{told}");
    assert_eq!(text(&output.stdout), stdout, "{told}");
}

#[test]
fn json_is_the_daemons_answer_byte_for_byte() {
    let stub = Stub::start();
    let output = run(&stub.home(), &["show", "5d0c2a", "--json"]);
    check(&output, 0, &format!("{GET_RESULT}\n"));
}

/// What a command prints about an error it takes from the error's data, whatever the daemon's words are.
#[test]
fn facts_come_from_the_data_of_an_error() {
    let stub = Stub::start();
    let restore = ["archive", "restore", DIFFERS, "--agent", "claude"];
    let printed = check_printed(&restore, &run(&stub.home(), &restore), 5);
    assert!(
        printed.contains("mv '/t/up 2.jsonl' '/t/up 2.jsonl.old' "),
        "{printed}"
    );
    let show = ["show", DELETED];
    let printed = check_printed(&show, &run(&stub.home(), &show), 4);
    assert!(
        printed.contains(ID) && !printed.contains("no longer known"),
        "{printed}"
    );
}

/// What went with a conversation and what did not is no secret, and only what should have gone is a failure.
#[test]
fn transcripts_that_are_still_there_after_their_conversation_are_told() {
    let stub = Stub::start();
    for (word, code) in [("5d0c2a", 0), (ID, 1)] {
        let remove = ["rm", word, "--transcripts", "--yes"];
        let output = run(&stub.home(), &remove);
        check(&output, code, "");
        check_printed(&remove, &output, code);
    }
    assert_eq!(
        stub.calls_of("conversation/delete")[0]["transcripts"],
        json!("delete")
    );
}

/// Its turn is not shown as this prompt's.
#[test]
fn a_turn_of_another_client_is_not_taken_for_ones_own() {
    let stub = Stub::start();
    let output = run(&stub.home(), &["send", ID, "too late"]);
    check(&output, 5, "");
}

#[test]
fn a_json_stream_is_events_and_then_the_result() {
    let stub = Stub::start();
    let output = run(&stub.home(), &["--json", "send", ID, "hello"]);
    assert_eq!(output.status.code(), Some(0));
    let lines: Vec<Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let kinds: Vec<&str> = lines
        .iter()
        .filter_map(|line| line["event"]["type"].as_str())
        .collect();
    assert_eq!(
        kinds,
        ["snapshot", "promptAccepted", "update", "update", "turnEnded"]
    );
    let types: Vec<&str> = lines.iter().filter_map(|line| line["type"].as_str()).collect();
    assert_eq!(types, ["event", "event", "event", "event", "event", "result"]);
    // The answer as it came, marked as such among the events.
    let answer = turn("end_turn", &Value::Null).to_string();
    let marked = answer.replacen('{', "{\"type\":\"result\",", 1);
    assert_eq!(text(&output.stdout).lines().last(), Some(&*marked));
}

#[test]
fn a_subscription_that_was_cut_off_goes_on_behind_the_last_event() {
    let stub = Stub::start();
    let output = run(&stub.home(), &["send", ID, "lag"]);
    check(&output, 0, "before the gapafter the gap\n");
    let subscriptions = stub.calls_of("conversation/subscribe");
    assert_eq!(subscriptions[1]["after"], "e1:1");
}

#[test]
fn failures_have_their_codes_and_say_what_to_do() {
    let stub = Stub::start();
    let busy = ["send", ID, "busy"];
    let output = run(&stub.home(), &busy);
    check(&output, 5, "");
    check_printed(&busy, &output, 5);
}

#[test]
fn a_daemon_that_has_no_connection_left_is_busy_and_not_gone() {
    let home = crate::home::Home::with_config("[limits]\nconnections = 1\n");
    let daemon = home.start();
    let mut other = UnixStream::connect(home.socket()).unwrap();
    other
        .write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"daemon/status\"}\n")
        .unwrap();
    // Once it is answered, it is the one that is let in.
    other.read_exact(&mut [0]).unwrap();
    // Again and again: the refusal and the first request cross each other.
    for _ in 0..20 {
        let output = run(home.path(), &["show", ID]);
        check(&output, 5, "");
        check_printed(&["show", ID], &output, 5);
    }
    let output = run(home.path(), &["show", ID, "--json"]);
    let told: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(
        (&told["error"]["code"], &told["error"]["kind"]),
        (&json!(1003), &json!("busy"))
    );
    daemon.kill();
}

/// The socket of a process that is being killed takes a connection yet, and ends it without a word.
#[test]
fn a_daemon_that_is_being_killed_is_followed_by_the_next_one() {
    let home = home::Home::new();
    let run = home.path().join("run");
    DirBuilder::new().mode(0o700).create(&run).unwrap();
    for command in [&["ls"][..], &["new"]] {
        let socket = run.join("sessiond.sock");
        home.said(&["stop"]);
        let dying = UnixListener::bind(&socket).unwrap();
        let thread = std::thread::spawn(move || {
            let (connection, _) = dying.accept().unwrap();
            // It listens no more before it is gone.
            drop(dying);
            drop(connection);
        });
        home.said(command);
        thread.join().unwrap();
    }
    let listed: Value = serde_json::from_str(&home.said(&["ls", "--json"])).unwrap();
    assert_eq!(listed["conversations"].as_array().unwrap().len(), 1);
}

#[test]
fn without_a_terminal_a_question_is_left_open_and_told() {
    let stub = Stub::start();
    let output = run(&stub.home(), &["send", ID, "ask"]);
    check(&output, 8, "");
    check_printed(&["send", ID, "ask"], &output, 8);
    assert_eq!(stub.calls_of("conversation/respond"), Vec::<Value>::new());
    assert_eq!(stub.calls_of("conversation/cancel"), Vec::<Value>::new());

    let output = run(&stub.home(), &["send", ID, "ask", "--json"]);
    assert_eq!(output.status.code(), Some(8));
    let error: Value = serde_json::from_str(&text(&output.stderr)).unwrap();
    assert_eq!(error["error"]["kind"], "questionOpen");
    assert_eq!(error["error"]["data"]["interruptId"], "int-1");
}

#[test]
fn a_question_may_be_denied_without_asking() {
    let stub = Stub::start();
    let output = run(&stub.home(), &["send", ID, "ask", "--on-question", "deny"]);
    check(&output, 0, "");
    assert_eq!(
        stub.calls_of("conversation/respond")[0]["outcome"],
        json!({"outcome": "cancelled"})
    );
}

#[test]
fn a_question_may_be_left_to_somebody_else() {
    let stub = Stub::start();
    let mut child = sessionctl(&stub.home(), &["send", ID, "ask", "--on-question", "wait"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("int-1") {
        line.clear();
        assert_ne!(told.read_line(&mut line).unwrap(), 0, "the question is printed");
    }
    check(
        &run(&stub.home(), &["answer", ID, "allow_once", "--question", "int-1"]),
        0,
        "",
    );
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(
        stub.calls_of("conversation/respond")[0]["outcome"],
        json!({"outcome": "selected", "optionId": "allow_once"})
    );
}

#[test]
fn an_interrupt_cancels_the_turn() {
    let stub = Stub::start();
    let send = ["send", ID, "hang"];
    let mut child = sessionctl(&stub.home(), &send)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut streamed = [0; 7];
    child.stdout.as_mut().unwrap().read_exact(&mut streamed).unwrap();
    assert_eq!(&streamed, b"hanging");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    check(&output, 1, "\n");
    assert_eq!(stub.calls_of("conversation/cancel")[0]["turnId"], "turn-1");
    check_printed(&send, &output, 1);
}

#[test]
fn a_reader_that_leaves_ends_the_command_quietly() {
    let stub = Stub::start();
    // The shell alone opens the end that reads, so it closes when the shell ends. Other tests start processes at the same time,
    // which may inherit what this one has open.
    let pipe = stub.home().join("printed");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = Command::new("sh")
        .args(["-c", "read -r line < \"$1\" && echo \"$line\"", "sh"])
        .arg(&pipe)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let written = File::options().write(true).open(&pipe).unwrap();
    let child = sessionctl(&stub.home(), &["attach", ID, "--json"])
        .stdout(written)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let first = text(&reader.wait_with_output().unwrap().stdout);
    assert!(first.contains("snapshot"), "{first}");
    // The next event has no reader.
    check(&run(&stub.home(), &["send", ID, "hello"]), 0, "echo: hello\n");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn without_a_daemon_it_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [["--no-start", "ls"], ["status", "--no-start"]] {
        let output = run(folder.path(), &arguments);
        check(&output, 3, "");
        check_printed(&arguments, &output, 3);
    }
    check(&run(folder.path(), &["stop"]), 0, "");
}

/// The first word names the conversation. The error says what to write if that was left out.
#[test]
fn a_prompt_without_a_conversation_is_told_what_to_write() {
    let home = home::Home::new();
    home.said(&["new", "--title", "Greeting"]);
    for arguments in [
        &["send", "Why does the test fail?"][..],
        &["send", "hello"],
        &["send", "hello", "you there"],
        &["send", "--file", "/dev/null", "hello"],
        &["send", "Greeting"],
        &["send", "."],
        &["send", ".", " "],
    ] {
        let found = arguments.len() > 2 && arguments[1] != ".";
        home.printed(arguments, if found { 4 } else { 2 });
    }
}

/// `--new` and a conversation contradict each other, so nothing is sent.
#[test]
fn a_prompt_goes_to_a_new_conversation_or_to_this_folders() {
    let home = home::Home::new();
    for arguments in [
        &["send", "--new", "."][..],
        &["send", "--new", ".", "--file", "/dev/null", "hi"],
        &["send", ".", "--new", "Review this:", "-"],
    ] {
        home.printed(arguments, 2);
    }
    let told = home.printed(&["send", "--new", ".", "hi", "there"], 2);
    assert_eq!(home.said(&["ls", "--all", "--json"]), r#"{"conversations":[]}"#);
    let [here, new] = commands(&told).try_into().unwrap();
    assert_eq!(home.said_pasted(new), "echo: hi there");
    assert_eq!(home.said_pasted(here), "echo: hi there");

    // By its id the same; what only looks like one is text.
    let id = &home.said(&["new"])[..8];
    let told = home.printed(&["send", id, "--new", "hi", "there"], 2);
    assert_eq!(home.said_pasted(commands(&told)[0]), "echo: hi there");
    assert_eq!(
        home.said(&["send", "--new", "facade", "colours"]),
        "echo: facade colours"
    );
}

/// `send --new` accepts `--agent`. Only an option that takes a value gets the hint about values that start with a dash.
#[test]
fn a_prompt_to_a_new_conversation_may_name_the_agent() {
    let home = home::Home::new();
    let sent = home.said(&["send", "--new", "--agent", "loopback", "hi"]);
    assert_eq!(sent, "echo: hi");
    let refused = home.run(&["send", "--new", "--title", "T", "hi"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let told = text(&refused.stderr);
    assert!(
        !told.contains("--new=") && told.contains("sessionctl help send"),
        "{told}"
    );
    assert_eq!(
        home.run(&["send", ".", "--agent", "loopback", "hi"])
            .status
            .code(),
        Some(2)
    );
}

/// The hint of an empty prompt sends to where the prompt was meant to go.
#[test]
fn an_empty_prompt_names_the_conversation_that_was_meant() {
    let home = home::Home::new();
    for arguments in [&["send", "--new"][..], &["send", "--new", " "]] {
        let told = home.printed(arguments, 2);
        assert_eq!(commands(&told), ["sessionctl send --new 'Hello'"]);
    }
    let id = &home.said(&["new"])[..8];
    let told = home.printed(&["send", id, ""], 2);
    assert_eq!(commands(&told), [format!("sessionctl send {id} 'Hello'")]);
}

#[test]
fn a_call_that_cannot_work_makes_nothing() {
    let home = home::Home::new();
    for call in [
        &["send", "--new", "--file", "nofile", "hello"][..],
        &["show", ""],
        &["send", "", "hello"],
        &["rm", " "],
    ] {
        let refused = home.run(call);
        assert_eq!(refused.status.code(), Some(2), "{call:?}: {refused:?}");
    }
    assert_eq!(home.said(&["ls", "--all", "--json"]), r#"{"conversations":[]}"#);
}

#[test]
fn a_home_that_cannot_be_used_is_told_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let long = folder.path().join("a".repeat(120));
    let broken = folder.path().join("broken");
    std::fs::create_dir_all(broken.join("config")).unwrap();
    std::fs::write(broken.join("config/config.toml"), "zork = 1\n").unwrap();
    let nowhere = Path::new("/proc/nowhere");
    for (what, home, code) in [
        ("a file", &*file, 1),
        ("a long path", &long, 3),
        ("a wrong option", &broken, 3),
        ("no folder", nowhere, 1),
    ] {
        let output = sessionctl(folder.path(), &["ls", "--home", home.to_str().unwrap()])
            .output()
            .unwrap();
        check(&output, code, "");
        check_printed(&["ls", "--home", what], &output, code);
    }
}
