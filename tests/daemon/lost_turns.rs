//! Transcripts that a loss of power has made shorter than what was acknowledged: the conversation continues with what
//! is left, and reports how many turns are missing.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use bridge_protocol::ConversationId;
use bridge_protocol::error::{BridgeError, ErrorKind};
use bridge_protocol::event::Event;
use bridge_protocol::link::{Fidelity, Resumed, Via};
use bridge_protocol::turn::TurnResult;
use serde_json::{Value, json};

use super::edits::places;
use crate::continuing::{GO_ON, go_on, prompts};
use crate::home::{Daemon, Home, kill_now};
use crate::keeping::{keep, lose};
use crate::resumed::check_resumed;
use crate::support::{App, Events};

/// What is left on disk of the last turn of a transcript.
#[derive(Clone, Copy, Debug)]
enum Left {
    /// Nothing.
    Nothing,
    /// A part of its last record.
    Torn,
    /// Zeros of the same length.
    Zeros,
    /// All but the last record, which is replaced by zeros.
    ZerosAtTheEnd,
}

/// Overwrites the file in place with what is left of it, so that hard links to it change too.
fn cut(path: &Path, left: Left) {
    let whole = fs::read(path).unwrap();
    let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    // The first record that contains "three" is the prompt.
    let first_with = |word: &str| {
        let mut lines = lines.iter();
        lines.position(|line| String::from_utf8_lossy(line).contains(word))
    };
    let before = lines[..first_with("three").unwrap()].concat();
    let reply = first_with("echo: three").unwrap();
    let up_to_reply = lines[..reply].concat();
    let zeros = |mut kept: Vec<u8>| {
        kept.resize(whole.len(), 0);
        kept
    };
    let content = match left {
        Left::Nothing => before,
        Left::Torn => whole[..up_to_reply.len() + 40].to_vec(),
        Left::Zeros => zeros(before),
        Left::ZerosAtTheEnd => zeros(up_to_reply),
    };
    let mut file = File::options().write(true).truncate(true).open(path).unwrap();
    file.write_all(&content).unwrap();
}

async fn prompt(app: &App, id: ConversationId, least: &str) -> Result<Value, BridgeError> {
    let params = json!({"conversationId": id, "prompt": "go on", "minFidelity": least});
    app.call("conversation/prompt", params).await
}

#[tokio::test]
async fn what_is_left_is_gone_on_with_and_what_is_missing_is_counted() {
    for left in [Left::Nothing, Left::Torn, Left::Zeros, Left::ZerosAtTheEnd] {
        let home = Home::new();
        let (daemon, app, id) = home.begun(&["one", "two", "three"]).await;
        let path = home.transcript_of(&app, id).await;
        daemon.kill();
        cut(&path, left);
        let (_daemon, app) = home.opened().await;
        let strict = prompt(&app, id, "full").await;
        assert_eq!(strict.unwrap_err().kind, ErrorKind::NotResumable);
        let turn: TurnResult = serde_json::from_value(prompt(&app, id, "partial").await.unwrap()).unwrap();
        let resumed = turn.resumed.unwrap();
        assert_eq!(
            (resumed.via, resumed.fidelity, resumed.missing_turns),
            (Via::Resume, Fidelity::Partial, 1),
            "{left:?}"
        );
        let remembered = app.remembered(id).await;
        assert_eq!(remembered[..2], ["one", "two"], "{left:?}");
        assert_eq!(remembered.last().unwrap(), "go on", "{left:?}");
    }
}

/// A new session starts only if the caller passes `minFidelity: none`; then the number of missing turns is reported.
#[tokio::test]
async fn where_nothing_is_left_only_who_asks_for_it_begins_anew() {
    let home = Home::keeping_nothing();
    let (daemon, app, id) = home.begun(&["one", "two"]).await;
    let path = home.transcript_of(&app, id).await;
    daemon.kill();
    fs::write(&path, vec![0; 4_096]).unwrap();
    let (_daemon, app) = home.opened().await;
    let told = prompt(&app, id, "text").await;
    assert_eq!(told.unwrap_err().kind, ErrorKind::NotResumable);
    let turn: TurnResult = serde_json::from_value(prompt(&app, id, "none").await.unwrap()).unwrap();
    let resumed = turn.resumed.unwrap();
    check_resumed(&resumed, Via::Fresh, Fidelity::None, 2);
}

/// A prompt that starts a tool and whose turn never ends.
pub(crate) const CUT_SHORT: &str = "[[write made.txt x]][[hang]] build it";

/// Sends `CUT_SHORT`, or replaces a turn with it, and returns once its tool has started.
pub(crate) async fn begin(daemon: &Daemon<'_>, app: &App, id: ConversationId, turn: Option<usize>) {
    let mut events = app.events(id).await;
    let (method, params) = match turn {
        None => (
            "conversation/prompt",
            json!({"conversationId": id, "prompt": CUT_SHORT}),
        ),
        Some(turn) => {
            let at = places(app, id).await[turn][0].clone();
            (
                "conversation/edit",
                json!({"conversationId": id, "at": at, "prompt": CUT_SHORT}),
            )
        }
    };
    let mut raw = daemon.raw().await;
    raw.send(method, params).await;
    until_tool(&mut events).await;
}

async fn until_tool(events: &mut Events) {
    let has_tool = |event: &Event| match event {
        Event::Update { update, .. } => update.get().contains("tool_call").then_some(()),
        _ => None,
    };
    events.find(has_tool).await;
}

/// Makes a conversation without copies. Its last turn, a prompt or an edit of an earlier one, was interrupted by the
/// end of the daemon, and its transcript was deleted after that.
async fn lost_behind_a_tool(home: &Home, before: &[&str], edit: Option<usize>) -> ConversationId {
    let (daemon, app) = home.opened().await;
    let id = app.begun(&home.project(), before).await;
    begin(&daemon, &app, id, edit).await;
    daemon.kill();
    let (daemon, app) = home.opened().await;
    fs::remove_file(home.transcript_of(&app, id).await).unwrap();
    drop(daemon);
    id
}

/// The agent had received the first prompt and worked on it. No acknowledged turn is missing, but the turn that the
/// history showed is.
#[tokio::test]
async fn a_first_turn_that_was_cut_short_and_lost_is_missed() {
    for (before, edit) in [(&[][..], None), (&["one", "two"], Some(0))] {
        let home = Home::keeping_nothing();
        let id = lost_behind_a_tool(&home, before, edit).await;
        let (_daemon, app) = home.opened().await;
        let told = prompt(&app, id, "text").await;
        assert_eq!(told.unwrap_err().kind, ErrorKind::NotResumable, "{edit:?}");
        let turn: TurnResult = serde_json::from_value(prompt(&app, id, "none").await.unwrap()).unwrap();
        check_resumed(&turn.resumed.unwrap(), Via::Fresh, Fidelity::None, 1);
        // The missing turn was reported once, so the next resume is full.
        app.close(id).await;
        let turn: TurnResult = serde_json::from_value(prompt(&app, id, "full").await.unwrap()).unwrap();
        check_resumed(&turn.resumed.unwrap(), Via::Resume, Fidelity::Full, 0);
    }
}

/// If the session of an interrupted edit is lost, the conversation continues from the turns that the edit kept, and
/// reports the edit's turn as missing.
#[tokio::test]
async fn an_edit_that_was_cut_short_and_lost_is_missed() {
    let home = Home::keeping_nothing();
    let id = lost_behind_a_tool(&home, &["one", "two", "three"], Some(2)).await;
    let (_daemon, app) = home.opened().await;
    let resumed = app.send(id, "go on").await.resumed.unwrap();
    check_resumed(&resumed, Via::OlderLink, Fidelity::Partial, 1);
    assert_eq!(app.remembered(id).await, ["one", "two", "go on"]);
}

/// A session that lacks the interrupted turn gets its prompt again: a request to continue its last turn would continue
/// another one. This also holds if the session was brought back earlier.
#[tokio::test]
async fn what_was_cut_short_and_lost_is_continued_with_its_prompt() {
    let cases = [
        (&[][..], None, Via::Fresh, false),
        (&["one", "two", "three"], Some(2), Via::OlderLink, false),
        (&["one", "two", "three"], Some(2), Via::OlderLink, true),
    ];
    for (before, edit, via, is_resumed_first) in cases {
        let home = Home::keeping_nothing();
        let id = lost_behind_a_tool(&home, before, edit).await;
        let (_daemon, app) = home.opened().await;
        let mut events = app.events(id).await;
        if is_resumed_first {
            app.ask("conversation/resume", id).await;
        }
        go_on(&app, id, json!({"at": "now"})).await;
        let (resumed, sent) = resumed_with(&mut events).await;
        check_resumed(&resumed, via, Fidelity::Partial, 1);
        assert_eq!(sent, CUT_SHORT);
        until_tool(&mut events).await;
        let kept = &before[..edit.unwrap_or(0)];
        assert_eq!(prompts(&app, &home, id).await, [kept, &[CUT_SHORT]].concat());
    }
}

/// Waits until the session is resumed and a prompt is accepted. Returns how it was resumed, and the prompt.
async fn resumed_with(events: &mut Events) -> (Resumed, String) {
    let Event::Resumed { resumed } = events.until("resumed").await else {
        unreachable!()
    };
    let Event::PromptAccepted { prompt, .. } = events.until("promptAccepted").await else {
        unreachable!()
    };
    (resumed, prompt.to_text())
}

/// A prompt whose turn has said some words when its agent dies.
const SAID: &str = "[[say half]][[hang]] describe it";

/// Sends `SAID`, and kills the agent after its words.
async fn dies_after_words(home: &Home, daemon: &Daemon<'_>, app: &App, id: ConversationId) {
    let mut events = app.events(id).await;
    let mut raw = daemon.raw().await;
    let params = json!({"conversationId": id, "prompt": SAID});
    let running = raw.send("conversation/prompt", params).await;
    let has_said = |event: &Event| match event {
        Event::Update { update, .. } => update.get().contains("half").then_some(()),
        _ => None,
    };
    events.find(has_said).await;
    kill_now(home.only_agent());
    let answer = raw.answer(running).await;
    assert_eq!(answer["result"]["failure"]["kind"], "agentDied", "{answer}");
}

/// The agent dies in a turn without tools while the daemon runs, and the transcript is then lost.
#[tokio::test]
async fn a_turn_of_words_whose_agent_died_and_that_was_lost_is_missed() {
    for before in [&[][..], &["one"]] {
        let home = Home::keeping_nothing();
        let (daemon, app) = home.opened().await;
        let id = app.begun(&home.project(), before).await;
        dies_after_words(&home, &daemon, &app, id).await;
        fs::remove_file(home.transcript_of(&app, id).await).unwrap();
        let told = prompt(&app, id, "text").await;
        assert_eq!(told.unwrap_err().kind, ErrorKind::NotResumable, "{before:?}");
        let turn: TurnResult = serde_json::from_value(prompt(&app, id, "none").await.unwrap()).unwrap();
        let missing = before.len() as u64 + 1;
        check_resumed(&turn.resumed.unwrap(), Via::Fresh, Fidelity::None, missing);
    }
}

/// A prompt that waits for its limit stays the interrupted one when the stop of the daemon ends a later turn.
#[tokio::test]
async fn a_prompt_that_waits_is_missed_like_the_later_turn_that_a_stop_ended() {
    let home = Home::keeping_nothing();
    let (daemon, app) = home.opened().await;
    let id = app.make(&home.project()).await;
    let waits = json!({"conversationId": id, "prompt": "[[limit 3600]]", "onLimit": "wait"});
    app.call("conversation/prompt", waits).await.unwrap();
    let mut raw = daemon.raw().await;
    let (running, _) = raw.run(id, SAID).await;
    raw.event("update").await;
    app.call("daemon/shutdown", json!({})).await.unwrap();
    assert_eq!(raw.answer(running).await["result"]["stopReason"], "cancelled");
    assert!(daemon.ended().await.success());

    let (_daemon, app) = home.opened().await;
    assert!(app.get(id).await.continuation.is_some());
    fs::remove_file(home.transcript_of(&app, id).await).unwrap();
    let turn: TurnResult = serde_json::from_value(prompt(&app, id, "none").await.unwrap()).unwrap();
    check_resumed(&turn.resumed.unwrap(), Via::Fresh, Fidelity::None, 2);
}

/// The transcript of an interrupted turn was deleted. What is sent depends on what the backup contains that is restored.
#[tokio::test]
async fn the_prompt_of_an_interrupted_turn_is_looked_for_in_the_restored_backup() {
    for (before, is_kept) in [(&[][..], true), (&["one"], true), (&["one"], false)] {
        let home = Home::keeping_nothing();
        let (daemon, app) = home.opened().await;
        let id = app.begun(&home.project(), before).await;
        let backup = json!({"conversationId": id});
        if !is_kept {
            keep(&app, backup.clone()).await.unwrap();
        }
        dies_after_words(&home, &daemon, &app, id).await;
        if is_kept {
            keep(&app, backup).await.unwrap();
        }
        lose(&home);
        let mut events = app.events(id).await;
        go_on(&app, id, json!({"at": "now"})).await;
        let (resumed, sent) = resumed_with(&mut events).await;
        let (fidelity, missing) = match is_kept {
            true => (Fidelity::Full, 0),
            false => (Fidelity::Partial, 1),
        };
        check_resumed(&resumed, Via::Archive, fidelity, missing);
        let beginning = if is_kept { GO_ON } else { SAID };
        assert!(sent.starts_with(beginning), "{sent}");
    }
}

/// A prompt that hit a limit is in the history, and so in its backup.
#[tokio::test]
async fn a_restored_backup_with_a_limited_prompt_lacks_nothing() {
    let home = Home::keeping_nothing();
    let (_daemon, app) = home.opened().await;
    let id = app.begun(&home.project(), &["one", "[[limit 3600]]"]).await;
    keep(&app, json!({"conversationId": id})).await.unwrap();
    app.close(id).await;
    lose(&home);
    check_resumed(&app.resumed(id).await, Via::Archive, Fidelity::Full, 0);
}
