//! Transcripts that a loss of power has made shorter than what was acknowledged: the conversation goes on
//! with what is there, and says how many turns are missing.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use bridge_protocol::ConversationId;
use bridge_protocol::error::{BridgeError, ErrorKind};
use bridge_protocol::link::{Fidelity, Via};
use bridge_protocol::turn::TurnResult;
use serde_json::{Value, json};

use crate::home::Home;
use crate::support::App;

/// What the disk has of the last turn of a transcript.
#[derive(Clone, Copy, Debug)]
enum Left {
    /// Nothing.
    Nothing,
    /// A part of its last record.
    Torn,
    /// Room for it, filled with zeros.
    Zeros,
    /// All but the last record, whose room is filled with zeros.
    ZerosAtTheEnd,
}

/// Writes the file as the disk has it, in its place: second names of it have the same.
fn cut(path: &Path, left: Left) {
    let whole = fs::read(path).unwrap();
    let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    // Its first record is the prompt.
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
        let (daemon, app) = home.opened().await;
        let id = app.begun(&home.project(), &["one", "two", "three"]).await;
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

/// To begin anew is for a person to say; how much is missing is told then.
#[tokio::test]
async fn where_nothing_is_left_only_who_asks_for_it_begins_anew() {
    let home = Home::keeping_nothing();
    let (daemon, app) = home.opened().await;
    let id = app.begun(&home.project(), &["one", "two"]).await;
    let path = home.transcript_of(&app, id).await;
    daemon.kill();
    fs::write(&path, vec![0; 4_096]).unwrap();
    let (_daemon, app) = home.opened().await;
    let told = prompt(&app, id, "text").await;
    assert_eq!(told.unwrap_err().kind, ErrorKind::NotResumable);
    let turn: TurnResult = serde_json::from_value(prompt(&app, id, "none").await.unwrap()).unwrap();
    let resumed = turn.resumed.unwrap();
    assert_eq!(
        (resumed.via, resumed.fidelity, resumed.missing_turns),
        (Via::Fresh, Fidelity::None, 2)
    );
}
