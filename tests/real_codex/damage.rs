//! Rollouts with a damaged record. The findings of a check and the history must agree with what the agent
//! does with each.

use std::fs;

use bridge_protocol::check::FindingKind;
use bridge_protocol::error::ErrorKind;
use bridge_protocol::history::GapKind;
use bridge_protocol::link::Fidelity;
use serde_json::json;

use super::bridge::Bridge;
use super::transcripts::conversed;
use crate::support::model_server::{Said, model, user};

/// What happens to a reply whose record is damaged, in a session of two turns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The reply is read and sent unchanged.
    Kept,
    /// The reply is neither read nor sent.
    Lost,
}

type Case = (&'static str, fn(&mut Vec<u8>), Fate);

/// Inserts bytes after the beginning of the reply's text.
fn put(line: &mut Vec<u8>, bytes: &[u8]) {
    let text = b"ok: number";
    let place = line.windows(text.len()).position(|window| window == text);
    let place = place.expect("the reply's text") + text.len();
    line.splice(place..place, bytes.iter().copied());
}

fn put_member(line: &mut Vec<u8>, member: &str) {
    line.splice(1..1, member.bytes());
}

fn nested(depth: usize) -> String {
    format!("\"deep\":{}{},", "[".repeat(depth), "]".repeat(depth))
}

const CASES: [Case; 10] = [
    ("nothing", |_| {}, Fate::Kept),
    (
        "white space around",
        |line| {
            line.insert(0, b' ');
            line.extend(*b"\t\r");
        },
        Fate::Kept,
    ),
    (
        "a member twice",
        |line| put_member(line, r#""type":"response_item","#),
        Fate::Kept,
    ),
    ("a byte that is not UTF-8", |line| put(line, b"\x80"), Fate::Lost),
    (
        "half of a pair of surrogates",
        |line| put(line, b"\\ud83d"),
        Fate::Lost,
    ),
    ("a control character", |line| put(line, b"\x01"), Fate::Lost),
    ("NUL bytes in its place", |line| line.fill(0), Fate::Lost),
    ("NUL bytes behind it", |line| line.extend(*b"\0\0"), Fate::Lost),
    (
        "a byte order mark",
        |line| drop(line.splice(0..0, *b"\xEF\xBB\xBF")),
        Fate::Lost,
    ),
    (
        "too deep a value",
        |line| put_member(line, &nested(127)),
        Fate::Lost,
    ),
];

#[test]
#[ignore = "installs the real adapter"]
fn a_damaged_record_is_read_as_the_agent_reads_it() {
    let bridge = or_skip!(Bridge::start());
    let sessions = two_turns_each(&bridge, CASES.len());
    for ((what, change, fate), session) in CASES.iter().zip(&sessions) {
        change_line(&bridge, session, change, |line| {
            let text = String::from_utf8_lossy(line);
            text.contains(r#""type":"response_item""#) && text.contains("ok: number one")
        });
        let lost = *fate == Fate::Lost;
        let mut expected = vec![user("number one")];
        if !lost {
            expected.push(model("ok: number one"));
        }
        expected.extend([user("number two"), model("ok: number two")]);
        let found: &[FindingKind] = if lost { &[FindingKind::GarbageLine] } else { &[] };
        assert_eq!(bridge.found(session), found, "{what}");
        let adopted = bridge.adopt(session).expect("conversation/adopt").id;
        let page = bridge.first_page(adopted);
        assert_eq!(conversed(&page.messages), expected, "{what}");
        let gaps: Vec<GapKind> = page.gaps.iter().map(|gap| gap.kind).collect();
        assert_eq!(gaps, if lost { vec![GapKind::Broken] } else { vec![] }, "{what}");
        let text = format!("go on {session}");
        let turn = bridge.prompt(adopted, &text).expect("a turn");
        let fidelity = if lost { Fidelity::Partial } else { Fidelity::Full };
        assert_eq!(turn.resumed.expect("a resume").fidelity, fidelity, "{what}");
        expected.push(user(&text));
        let sent: Vec<Said> = bridge.lab.model.asked(&text);
        assert_eq!(sent, expected, "{what}");
    }
}

#[test]
#[ignore = "installs the real adapter"]
fn a_damaged_first_line_makes_the_agent_refuse() {
    let bridge = or_skip!(Bridge::start());
    let session = two_turns_each(&bridge, 1).remove(0);
    let adopted = bridge.adopt(&session).expect("conversation/adopt").id;
    change_line(
        &bridge,
        &session,
        |line| put_member(line, "\"x\":\"\\ud83d\","),
        |line| line.starts_with(b"{") && String::from_utf8_lossy(line).contains(r#""type":"session_meta""#),
    );
    assert_eq!(bridge.found(&session)[0], FindingKind::GarbageLine);
    let refusal = bridge.prompt(adopted, "go on").expect_err("a refusal");
    assert_eq!(refusal.kind, ErrorKind::NotResumable);
}

/// Sessions with two turns each, made by the bare adapter.
fn two_turns_each(bridge: &Bridge, count: usize) -> Vec<String> {
    let adapter = bridge.lab.adapter();
    let params = json!({"cwd": bridge.lab.project(), "mcpServers": []});
    let sessions = (0..count)
        .map(|_| {
            let made = adapter.call("session/new", params.clone()).expect("session/new");
            let id = made["sessionId"].as_str().expect("an id").to_owned();
            for text in ["number one", "number two"] {
                adapter.prompt(&id, text).expect("a turn");
            }
            id
        })
        .collect();
    adapter.stop();
    sessions
}

/// Modifies the first line of a session's file for which `meant` holds.
fn change_line(bridge: &Bridge, session: &str, change: impl Fn(&mut Vec<u8>), meant: impl Fn(&[u8]) -> bool) {
    let path = bridge.lab.transcript(session).expect("a rollout");
    let content = fs::read(&path).expect("a rollout");
    let mut lines: Vec<Vec<u8>> = content.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let line = lines.iter_mut().find(|line| meant(line));
    change(line.expect("the line"));
    fs::write(&path, lines.join(&b'\n')).expect("a rollout");
}
