//! The whole conversation, damaged and repaired. The model must receive exactly what it would have received,
//! except for lost records and what replaces them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::slice;

use bridge_protocol::check::{FindingKind, Repairs};
use bridge_protocol::history::Message;
use bridge_protocol::link::LinkReason;
use serde_json::Value;
use uuid::Uuid;

use super::*;
use crate::branching::asked_before;
use crate::real_claude::carrying::LONG;
use crate::support::model_server::Said;

/// Parallel calls as in [`PARALLEL`], after the compaction.
const AGAIN: &str = r#"[[tool Bash {"command":"echo three","description":"three"} ;; Bash {"command":"echo four","description":"four"}]] [[think another thought|compared again]]"#;

const NEXT: &str = "what comes next";

/// The replies to [`BEHIND_COMPACTION`] and to [`LONG`], the last prompt.
const REPLIES: [&str; 2] = ["ok: behind the compaction", "counted"];

struct Damage {
    what: &'static str,
    change: fn(&mut Vec<String>),
    found: &'static [FindingKind],
    repairs: Repairs,
    /// Changes the messages that the model would have received into those it must receive after the repair.
    sent: fn(&mut Vec<Value>),
}

/// The numbers of lines left out, records joined and results filled in.
const fn repairs(left_out: u64, joined: u64, filled_in: u64) -> Repairs {
    Repairs {
        left_out,
        joined,
        filled_in,
    }
}

/// The first damage is done to the session itself, the others to copies of it.
const DAMAGES: [Damage; 4] = [
    Damage {
        what: "garbage stands behind the compaction, and the last line breaks off",
        change: |lines| {
            let last = lines[reply_of(lines, REPLIES[1])][..100].to_owned();
            lines.push(last);
            lines.insert(reply_of(lines, REPLIES[0]) + 1, "@@@".to_owned());
        },
        found: &[FindingKind::GarbageLine, FindingKind::TornLine],
        repairs: repairs(2, 0, 0),
        sent: |_| {},
    },
    Damage {
        what: "the last reply breaks off",
        change: |lines| {
            lines.truncate(reply_of(lines, REPLIES[1]) + 1);
            let last = lines.last_mut().expect("the last reply");
            last.truncate(last.len() / 2);
        },
        found: &[FindingKind::TornLine],
        repairs: repairs(1, 0, 0),
        // The agent does the same after a result without a reply.
        sent: |messages| {
            let reply = place_of(messages, REPLIES[1]);
            messages[reply]["content"][0]["text"] = json!("No response requested.");
        },
    },
    Damage {
        what: "a reply is gone",
        change: |lines| {
            lines.remove(reply_of(lines, REPLIES[0]));
        },
        found: &[FindingKind::BrokenParent],
        repairs: repairs(0, 1, 0),
        // The agent joins two consecutive prompts into one message.
        sent: |messages| {
            let reply = place_of(messages, REPLIES[0]);
            messages.remove(reply);
            let next = messages.remove(reply);
            let is_user = |message: &Value| message["role"] == "user";
            let prompt = messages[..reply].iter().rposition(is_user).expect("its prompt");
            let blocks = messages[prompt]["content"].as_array_mut().expect("blocks");
            let text = &mut blocks.last_mut().expect("its prompt")["text"];
            *text = json!(format!("{BEHIND_COMPACTION}\n"));
            blocks.extend(next["content"].as_array().expect("blocks").clone());
        },
    },
    Damage {
        what: "a record is gone of which the model is told nothing",
        change: |lines| {
            let attachment = reply_of(lines, REPLIES[0]) + 1;
            assert!(lines[attachment].contains(r#""type":"attachment""#));
            lines.remove(attachment);
        },
        found: &[FindingKind::BrokenParent],
        repairs: repairs(0, 1, 0),
        sent: |_| {},
    },
];

/// The index of the line with the record of a reply.
fn reply_of(lines: &[String], reply: &str) -> usize {
    let content = json!([{"type": "text", "text": reply}]);
    let is_it = |line: &String| {
        let record: Value = serde_json::from_str(line).unwrap_or_default();
        record["type"] == "assistant" && record["message"]["content"] == content
    };
    let place = lines.iter().rposition(is_it);
    place.unwrap_or_else(|| panic!("no record of {reply:?}"))
}

/// The index of the message with a reply.
fn place_of(messages: &[Value], reply: &str) -> usize {
    let is_it = |block: &Value| block["text"] == reply;
    let has_it = |message: &Value| {
        let blocks = message["content"].as_array();
        blocks.is_some_and(|blocks| blocks.iter().any(is_it))
    };
    let place = messages.iter().position(has_it);
    place.unwrap_or_else(|| panic!("no message with {reply:?}"))
}

fn session_of(transcript: &Path) -> String {
    let name = transcript.file_stem().expect("a name");
    name.to_string_lossy().into_owned()
}

/// The files that belong to a transcript, by their relative names.
fn beside(transcript: &Path) -> BTreeMap<String, String> {
    let folder = transcript.with_extension("");
    let files_in = |name: &'static str| {
        let entries = fs::read_dir(folder.join(name)).expect("a folder beside the transcript");
        entries.map(move |entry| {
            let path = entry.expect("an entry").path();
            let text = fs::read_to_string(&path).expect("a file beside the transcript");
            let file = path.file_name().expect("a name").to_string_lossy();
            (format!("{name}/{file}"), text)
        })
    };
    let found: BTreeMap<String, String> = ["subagents", "tool-results"]
        .into_iter()
        .flat_map(files_in)
        .collect();
    // The transcript of a subagent, its description, and a long result.
    assert_eq!(found.len(), 3, "{:?}", found.keys());
    found
}

/// Copies a session under a new id, and adopts the copy as another conversation.
fn copied(bridge: &Bridge, transcript: &Path) -> ConversationId {
    let (old, new) = (session_of(transcript), Uuid::new_v4().to_string());
    let target = transcript.with_file_name(format!("{new}.jsonl"));
    for (name, text) in beside(transcript) {
        let path = target.with_extension("").join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text.replace(&old, &new)).expect("a copy");
    }
    let text = fs::read_to_string(transcript).expect("the transcript");
    fs::write(target, text.replace(&old, &new)).expect("a copy");
    bridge.adopt(&new).expect("conversation/adopt").id
}

/// Damages the head's transcript. Returns its path and its new contents.
fn damage(bridge: &Bridge, id: ConversationId, change: fn(&mut Vec<String>)) -> (PathBuf, String) {
    let path = bridge.lab.transcript(&bridge.head(id)).expect("the transcript");
    let text = fs::read_to_string(&path).expect("the transcript");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    change(&mut lines);
    let end = match lines.last() {
        Some(last) if last.ends_with('}') => "\n",
        _ => "",
    };
    let text = lines.join("\n") + end;
    fs::write(&path, &text).expect("the transcript");
    (path, text)
}

#[test]
#[ignore = "installs the real adapter"]
fn a_repair_keeps_to_the_letter_all_that_is_not_damaged() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = whole(&bridge);
    bridge.prompted(id, AGAIN);
    bridge.prompted(id, LONG);
    bridge.close(id);
    let session = bridge.head(id);
    let source = bridge.lab.transcript(&session).expect("the transcript");
    let copies = DAMAGES[1..].iter().map(|_| copied(&bridge, &source));
    let ids: Vec<ConversationId> = [id].into_iter().chain(copies).collect();
    let told = bridge.history(id);
    // A native fork is prompted, so that the session itself stays unchanged.
    bridge.prompted(bridge.fork(id, false).conversation.id, NEXT);
    let next = asked_before(&bridge, NEXT);

    for (case, id) in DAMAGES.iter().zip(&ids) {
        let (what, old) = (case.what, bridge.head(*id));
        let (path, damaged) = damage(&bridge, *id, case.change);
        let answer = bridge.repair(*id);
        let found: Vec<FindingKind> = answer.findings.iter().map(|finding| finding.kind).collect();
        assert_eq!((&found[..], &answer.left[..]), (case.found, &[][..]), "{what}");
        assert_eq!(answer.repairs, Some(case.repairs), "{what}");
        assert_eq!(answer.fidelity, Some(Fidelity::Partial), "{what}");
        let new = answer.repaired.expect("a copy").as_str().to_owned();
        let link = bridge.chain(*id).pop().expect("the head");
        assert_eq!(
            (link.upstream_id.as_str(), link.reason, link.from_upstream_id),
            (new.as_str(), LinkReason::Rebuilt, Some(old.as_str().into())),
            "{what}"
        );
        assert_eq!(bridge.findings(&new), [], "{what}");
        let copy = bridge.lab.transcript(&new).expect("the copy");
        let lent = beside(&path).into_iter();
        let lent: BTreeMap<String, String> = lent
            .map(|(name, text)| (name, text.replace(&old, &new)))
            .collect();
        assert_eq!(beside(&copy), lent, "{what}");

        let text = format!("behind {what}");
        let resumed = bridge.prompted(*id, &text).resumed.expect("a resume");
        assert_eq!(
            (resumed.via, resumed.fidelity),
            (Via::Resume, Fidelity::Full),
            "{what}"
        );
        // The copy refers to its own long result. The agent's note about the file to read for the compacted
        // messages stays unchanged.
        let conversation = next.conversation.to_string();
        let conversation = conversation
            .replace(&format!("{session}.jsonl"), &format!("{old}.jsonl"))
            .replace(&format!("/{session}/"), &format!("/{new}/"));
        let mut messages: Vec<Value> = serde_json::from_str(&conversation).expect("messages");
        (case.sent)(&mut messages);
        let expected = Prefix {
            conversation: Value::from(messages),
            ..next.clone()
        };
        asked_before(&bridge, &text).check_is(&expected, what);
        bridge.close(*id);
        assert_eq!(bridge.findings(&new), [], "{what}");
        assert_eq!(fs::read_to_string(&path).expect("the source"), damaged, "{what}");
    }

    // Messages that are no longer sent are repaired too: a branch before the compaction must contain them.
    let history = bridge.history(id);
    let is_reply = |message: &&Message| said(slice::from_ref(message)) == [model("compared")];
    let place = history.iter().find(is_reply).expect("the reply").id.clone();
    let fork = bridge.fork_at(id, false, Some(place)).expect("conversation/fork");
    let text = "before the compaction";
    bridge.prompted(fork.conversation.id, text);
    let summary = told
        .iter()
        .position(|message| message.kind == Some(MessageKind::Summary));
    let expected: Vec<Said> = said(&told[..summary.expect("a summary")]);
    assert_eq!(
        bridge.lab.model.asked(text),
        [&expected[..], &[user(text)]].concat()
    );
}
