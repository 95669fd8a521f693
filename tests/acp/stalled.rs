//! Editors that do not read their input.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::process::Stdio;

use serde_json::{Value, json};

use super::editor::{Editor, Stalled, command, eventually};
use crate::home::Home;
use crate::scripted;

/// After this many calls of another editor, the daemon has processed everything sent before.
const CALLS: usize = 200;

#[test]
fn an_editor_that_does_not_read_is_disconnected_and_takes_no_memory() {
    const EDITORS: usize = 3;
    const ROUNDS: usize = 3;
    /// Two thirds of what all stalled editors together would hold back, and more than those of one round hold
    /// back.
    const MOST: u64 = 384 * 1024 * 1024;
    /// Together 72 MB, more than may wait for one editor. One turn fits, so that an editor that only reads
    /// slowly is not disconnected.
    const TURNS: usize = 4;
    const UPDATES: usize = 900;
    /// More than the buffer of a socket holds, and much less than the queue of a client.
    const BUFFERED: usize = 2 * 1024 * 1024;
    let home = Home::with_config(&scripted::configured("scripted", None));
    let daemon = home.start();
    let mut editor = Editor::start(&home);
    let session = editor.new_session_of("scripted", &home);
    let script = vec![scripted::chunk("$LONG"); UPDATES].join("\n");
    let talk = |editor: &mut Editor| {
        for _ in 0..TURNS {
            editor.prompt(&session, &script).result();
        }
    };
    talk(&mut editor);
    let before = daemon.resident_bytes();
    for _ in 0..ROUNDS {
        let mut stalled: Vec<Stalled> = (0..EDITORS).map(|_| Stalled::start(&home)).collect();
        stalled
            .iter_mut()
            .for_each(|stalled| stalled.open(&session, &home));
        talk(&mut editor);
        for stalled in stalled {
            let written = stalled.rest();
            assert!(written < BUFFERED, "{written}");
        }
    }
    // The allocator may keep freed memory and reuse it.
    if let (Some(before), Some(now)) = (before, daemon.resident_bytes()) {
        assert!(now < before + MOST, "{before} bytes before, {now} now");
    }
    let said = editor.prompt(&session, &scripted::chunk("next"));
    assert_eq!(said.texts("agent_message_chunk"), ["next"]);
}

#[test]
fn garbage_of_an_editor_that_does_not_read_is_bounded() {
    const GARBAGE: &[u8] = &[b'\n'; 8 * 1024];
    const MOST: usize = 64 * 1024 * 1024;
    let home = Home::new();
    let daemon = home.start();
    let mut editor = Editor::start(&home);
    let mut stalled = Stalled::start(&home);
    let lines: Vec<u8> = GARBAGE.iter().flat_map(|end| [b'x', *end]).collect();
    let before = daemon.resident_bytes();
    stalled.stream.set_nonblocking(true).unwrap();
    let (mut written, mut calls) = (0, 0);
    while calls < CALLS {
        match stalled.stream.write(&lines[written % 2..]) {
            Ok(length) => (written, calls) = (written + length, 0),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                editor.call("session/list", json!({})).result();
                calls += 1;
            }
        }
        assert!(written < MOST, "the daemon reads without a limit");
    }
    if let (Some(before), Some(now)) = (before, daemon.resident_bytes()) {
        assert!(now < before + MOST as u64, "{before} bytes before, {now} now");
    }
    // Once the editor reads, it gets an answer to each line.
    stalled.stream.set_nonblocking(false).unwrap();
    let mut answered = 0;
    let mut buffer = vec![0; 64 * 1024];
    while answered < written / 2 {
        let read = stalled.stream.read(&mut buffer).unwrap();
        assert!(read > 0, "{answered} of {} lines", written / 2);
        answered += buffer[..read].iter().filter(|byte| **byte == b'\n').count();
    }
}

/// `sessionctl acp` cannot know why the connection ended.
#[test]
fn the_answer_to_a_prompt_of_an_editor_that_did_not_read_does_not_say_that_the_daemon_ended() {
    const UPDATES: usize = 200;
    let scripted = scripted::configured("scripted", None);
    let home = Home::with_config(&format!("[limits]\nsubscriber_events = 64\n{scripted}"));
    let _daemon = home.start();
    let mut program = command(&home, &["--agent", "scripted"]);
    let pipes = program
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = pipes.spawn().unwrap();
    let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let lines = BufReader::new(output).lines().map_while(Result::ok);
    // The connection may end in the middle of a line.
    let mut messages = lines.filter_map(|line| serde_json::from_str::<Value>(&line).ok());
    let mut next = || messages.next().unwrap();
    let mut send = |id: u64, method: &str, params: Value| {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(input, "{request}").unwrap();
    };
    send(1, "initialize", json!({"protocolVersion": 1}));
    next();
    send(2, "session/new", json!({"cwd": home.project(), "mcpServers": []}));
    let session = next()["result"]["sessionId"].as_str().unwrap().to_owned();
    let script = vec![scripted::chunk("$LONG"); UPDATES].join("\n");
    let prompt = json!([{"type": "text", "text": script}]);
    send(
        3,
        "session/prompt",
        json!({"sessionId": session, "prompt": prompt}),
    );
    eventually(|| home.logged().contains("an editor reads too slowly"));
    let answer = loop {
        let message = next();
        if message["id"] == 3 {
            break message;
        }
    };
    let words = answer["error"]["message"].as_str().unwrap();
    assert!(
        words.starts_with("the connection to the daemon ended before the answer"),
        "{words}"
    );
    assert_eq!(child.wait().unwrap().code(), Some(3));
}
