//! Editors that do not read their input.

use std::io::{ErrorKind, Read, Write};

use serde_json::json;

use super::editor::{Editor, Stalled};
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
