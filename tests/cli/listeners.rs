//! What listens on the socket: another user's process gets nothing, and one that does not answer is named.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Output;

use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};

use super::printed::{check_pastable, commands, with_whole_ids};
use super::{run, text};

/// Another user.
const STRANGER: u32 = 65534;

/// The error that a command prints with `--json`. Its words, and those of the hint, are compared with the file.
#[track_caller]
pub(crate) fn refused(call: &str, output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(text(&output.stdout), "", "{output:?}");
    let mut told: Value = serde_json::from_str(&text(&output.stderr)).unwrap();
    let error = told["error"].take();
    assert_eq!(error["kind"], "noDaemon", "{error}");
    for (part, words) in [("error", &error["message"]), ("hint", &error["hint"])] {
        let call = format!("sessionctl {call}, {part}");
        check_pastable(words.as_str().unwrap());
        let words = with_whole_ids(words.as_str().unwrap());
        crate::daemon::error_words::check(&call, "noDaemon", &words);
    }
    error
}

/// The socket of a home, in a folder of this user.
fn socket_in(home: &Path) -> PathBuf {
    let run = home.join("run");
    DirBuilder::new().mode(0o700).create(&run).unwrap();
    run.join("sessiond.sock")
}

/// Another user listens, also where this user's own daemon was before. Nothing is sent there.
#[test]
#[cfg(target_os = "linux")]
#[allow(
    clippy::print_stdout,
    reason = "whoever runs the tests sees what was left out"
)]
fn a_listener_of_another_user_is_sent_nothing() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can listen as another user");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let open = folder.path().join("open");
    fs::create_dir(&open).unwrap();
    for (folder, mode) in [(folder.path(), 0o755), (&open, 0o777)] {
        fs::set_permissions(folder, Permissions::from_mode(mode)).unwrap();
    }
    let socket = open.join("s.sock");
    let path = socket.clone();
    // Linux keeps the user per thread, and a listener's is that of the thread that began to listen.
    let listening = std::thread::spawn(move || {
        rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(STRANGER)).unwrap();
        UnixListener::bind(path).unwrap()
    });
    let listener = listening.join().unwrap();
    let home = folder.path().join("home");
    let socket_option = socket.to_str().unwrap();
    for command in [
        &["ls"][..],
        &["send", ".", "secret"],
        &["stop"],
        &["doctor", "--no-agents"],
    ] {
        let arguments = [command, &["--json", "--socket", socket_option, "--no-start"]].concat();
        let output = run(
            folder.path(),
            &[&arguments[..], &["--home", home.to_str().unwrap()]].concat(),
        );
        match command[0] {
            "doctor" => assert_eq!(output.status.code(), Some(3), "{output:?}"),
            _ => {
                let error = refused("(another user's socket)", &output);
                assert_eq!(
                    error["data"],
                    json!({"path": socket, "owner": STRANGER}),
                    "{error}"
                );
            }
        }
        let mut received = String::new();
        let (mut connection, _) = listener.accept().unwrap();
        connection.read_to_string(&mut received).unwrap();
        assert_eq!(received, "", "{command:?}");
    }
}

/// The error of a listener that does not answer. The snapshots of words have no numbers: this one is promised.
#[track_caller]
pub(crate) fn refused_after_5_seconds(call: &str, output: &Output, data: &Value) {
    let error = refused(call, output);
    assert_eq!(&error["data"], data, "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(message.ends_with(" within 5 s"), "{message}");
}

/// A daemon that is stopped, as by a debugger, accepts connections and answers none.
#[test]
fn a_stopped_daemon_is_named() {
    let home = crate::home::Home::new();
    let daemon = home.start();
    let frozen = daemon.freeze();
    let output = run(home.path(), &["ls", "--json"]);
    drop(frozen);
    let expected = json!({"path": home.socket(), "pid": daemon.pid()});
    refused_after_5_seconds("ls (stopped daemon)", &output, &expected);
    super::check(&run(home.path(), &["ls"]), 0, "");
}

/// Any program can listen at the path of the socket.
#[test]
fn a_listener_that_never_answers_is_named() {
    let home = tempfile::tempdir().unwrap();
    let socket = socket_in(home.path());
    let _listener = UnixListener::bind(&socket).unwrap();
    let output = run(home.path(), &["ls", "--json"]);
    let expected = json!({"path": socket, "pid": std::process::id()});
    refused_after_5_seconds("ls (silent listener)", &output, &expected);
    assert!(
        !home.path().join("data/journal.jsonl").exists(),
        "a daemon was started"
    );
}

/// Another program's socket, which speaks another language.
#[test]
fn a_listener_that_speaks_something_else_is_named() {
    let home = super::home::Home::new();
    let socket = socket_in(home.path());
    let listener = UnixListener::bind(&socket).unwrap();
    let serving = std::thread::spawn(move || {
        for said in ["HTTP/1.1 400 Bad Request\r\n\r\n", "{\"hello\":1}\n"] {
            let (mut connection, _) = listener.accept().unwrap();
            connection.write_all(said.as_bytes()).unwrap();
            let mut received = Vec::new();
            connection.read_to_end(&mut received).unwrap();
        }
    });
    let expected = json!({"path": socket, "pid": std::process::id()});
    let mut hint = String::new();
    for _ in 0..2 {
        let error = refused(
            "ls (another program's socket)",
            &run(home.path(), &["ls", "--json"]),
        );
        assert_eq!(error["data"], expected, "{error}");
        hint = error["hint"].as_str().unwrap().to_owned();
    }
    serving.join().unwrap();
    assert!(
        !home.path().join("data/journal.jsonl").exists(),
        "a daemon was started"
    );
    // The daemon that it starts is found by the commands that follow.
    home.said_pasted(commands(&hint)[0]);
    home.said(&["ls", "--no-start"]);
}

/// A service manager listens for a daemon that takes long to start: it takes its lock when the client waits already, and is another
/// process than the listener.
#[test]
fn a_daemon_that_starts_behind_a_service_manager_is_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let socket = socket_in(home.path());
    let listener = UnixListener::bind(&socket).unwrap();
    let data = home.path().join("data");
    DirBuilder::new().mode(0o700).create(&data).unwrap();
    let serving = std::thread::spawn(move || {
        // The first one is given up on.
        let (first, _) = listener.accept().unwrap();
        let lock = data.join("sessiond.lock");
        fs::write(&lock, json!({"pid": 1, "socket": socket}).to_string()).unwrap();
        let held = fs::File::open(&lock).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        serve(&listener.accept().unwrap().0);
        drop(first);
    });
    super::check(&run(home.path(), &["ls"]), 0, "");
    serving.join().unwrap();
}

/// The lock file of a daemon that ended long ago names a socket that may be anybody's by now: nothing waits for it.
#[test]
fn the_socket_of_a_daemon_that_ended_is_not_tried() {
    let home = crate::home::Home::new();
    let elsewhere = home.path().join("elsewhere.sock");
    let _silent = UnixListener::bind(&elsewhere).unwrap();
    let data = home.path().join("data");
    DirBuilder::new().mode(0o700).create(&data).unwrap();
    let stale = json!({"pid": std::process::id(), "socket": elsewhere}).to_string();
    fs::write(data.join("sessiond.lock"), stale).unwrap();
    super::check(&run(home.path(), &["ls"]), 0, "");
    super::check(&run(home.path(), &["stop"]), 0, "");
}

/// A lock may be held by a process that cannot be seen, as in a container: no other process is named in its place.
#[test]
#[cfg(target_os = "linux")]
fn doctor_names_no_process_that_is_not_shown_to_hold_the_folder() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    DirBuilder::new().mode(0o700).create(&data).unwrap();
    let lock = data.join("sessiond.lock");
    let bystander = std::os::unix::process::parent_id();
    let nowhere = home.path().join("nowhere.sock");
    fs::write(&lock, json!({"pid": bystander, "socket": nowhere}).to_string()).unwrap();
    let held = fs::File::open(&lock).unwrap();
    flock(&held, FlockOperation::LockExclusive).unwrap();
    let socket = home.path().join("none.sock");
    let socket = socket.to_str().unwrap();
    let output = run(
        home.path(),
        &[
            "doctor",
            "--no-agents",
            "--no-start",
            "--json",
            "--socket",
            socket,
        ],
    );
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let diagnosis: Value = serde_json::from_slice(&output.stdout).unwrap();
    let daemons = diagnosis["diagnostics"].as_array().unwrap().iter();
    let daemons: Vec<&Value> = daemons.filter(|found| found["kind"] == "daemon").collect();
    assert!(daemons.len() >= 2, "{diagnosis:#}");
    for found in daemons {
        assert!(found["data"]["pid"].is_null(), "{found:#}");
    }
}

/// Answers each call of a connection: there is nothing.
fn serve(connection: &UnixStream) {
    for line in BufReader::new(connection).lines() {
        let request: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let result = json!({"conversations": []});
        let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
        // A client leaves when it has what it wants.
        if writeln!(&*connection, "{answer}").is_err() {
            return;
        }
    }
}
