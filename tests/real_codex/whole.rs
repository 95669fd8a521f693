//! A conversation with everything that a conversation can contain: parallel tools, thinking, a subagent, a
//! compaction, failed turns and interrupted turns. Wherever it is branched and however it is resumed, the
//! model must receive exactly what it would have received there, so that the server's cache still applies.

use std::fs;
use std::path::PathBuf;

use bridge_protocol::ConversationId;
use bridge_protocol::check::{Finding, FindingKind};
use bridge_protocol::conversation::{BranchedVia, Settings};
use bridge_protocol::link::{Fidelity, Via};
use bridge_protocol::turn::StopReason;

use super::bridge::Bridge;
use super::transcripts::BROKEN_OFF;
use crate::branching::{asked_before, branches_behind_each, edits_of_each, goes_on, goes_through};
use crate::support::model_server::{Said, What, model, tool_result, tool_use, user};
use crate::support::prefix::Prefix;

/// Parallel calls before the compaction and after it. Of compacted turns Codex sends only the prompts.
const PARALLEL: [&str; 2] = [
    r#"[[tool exec_command {"cmd":"echo one"} ;; exec_command {"cmd":"echo two"}]] [[think a long thought|compared]]"#,
    r#"[[tool exec_command {"cmd":"echo three"} ;; exec_command {"cmd":"echo four"}]] [[think another thought|compared again]]"#,
];

const BEHIND_COMPACTION: &str = "behind the compaction [[think a third thought|thought over]]";

/// The last tool leaves time for the notice of the subagent's end to arrive within the turn.
const SUBAGENT: &str = r#"[[tool multi_agent_v1.spawn_agent {"message":"[[text words of the subagent]]"}]] [[tool multi_agent_v1.wait_agent {"targets":["THE SUBAGENT"]}]] [[tool exec_command {"cmd":"echo five"}]] [[text looked]]"#;

const FAILED: &str = "failed [[err 500]]";

/// The prompts of [`whole`], without the commands for the agent itself and without the last prompt.
const PROMPTS: [&str; 7] = [
    "first words",
    PARALLEL[0],
    BEHIND_COMPACTION,
    PARALLEL[1],
    SUBAGENT,
    FAILED,
    BROKEN_OFF,
];

const LAST: &str = "at the end";

/// Runs the whole conversation.
fn whole(bridge: &Bridge) -> ConversationId {
    let id = bridge.conversation(Settings::default());
    for prompt in [
        "first words",
        PARALLEL[0],
        "/compact",
        BEHIND_COMPACTION,
        PARALLEL[1],
        SUBAGENT,
    ] {
        bridge.prompted(id, prompt);
    }
    let turn = bridge.prompt(id, FAILED).expect("a turn");
    assert_eq!(turn.stop_reason, StopReason::Failed);
    let running = bridge.begin_prompt(id, BROKEN_OFF, None);
    bridge.wait_written(id, BROKEN_OFF);
    bridge.lab.model.wait_for(BROKEN_OFF);
    assert!(bridge.cancel(id));
    let turn = running.wait().expect("a turn");
    assert_eq!(turn.stop_reason, StopReason::Cancelled);
    bridge.prompted(id, LAST);
    id
}

/// The first request in the turn of a prompt.
fn asked(bridge: &Bridge, prompt: &str) -> Prefix {
    Prefix::of(&bridge.lab.model.first_asked(prompt))
}

/// Native forks at a given place, including places after failed and interrupted turns.
// D2: the edits replace earlier prompts.
#[test]
#[ignore = "installs the real adapter"]
fn d7_branches_and_edits_have_to_the_letter_what_stands_before_their_place() {
    let mut bridge = or_skip!(Bridge::start());
    let id = whole(&bridge);
    check_holds_all(&bridge.lab.model.asked(LAST));
    let source = bridge.lab.transcript(&bridge.head(id)).expect("the source");
    let before = fs::read(&source).expect("the source");
    branches_behind_each(&bridge, id, &PROMPTS, LAST, BranchedVia::Native, || {});
    assert_eq!(fs::read(&source).expect("the source"), before);
    edits_of_each(&bridge, id, &PROMPTS, LAST, BranchedVia::Native, || {});
    assert!(fs::read(&source).expect("the source").starts_with(&before));

    // A branch of a branch, at a place in the file of the first branch's source, after a restart.
    let first = bridge.checkpoints(id)[0].id.clone();
    let at = Some(bridge.checkpoints(id)[1].id.as_str().to_owned());
    let branch = bridge.fork_at(id, false, at).expect("a branch").conversation.id;
    bridge.prompted(branch, "on the branch");
    bridge.stop_daemon();
    bridge.start_daemon();
    assert_eq!(bridge.checkpoints(branch)[0].id, first);
    let deeper = bridge.fork_at(branch, false, Some(first.as_str().to_owned()));
    let deeper = deeper.expect("a branch of a branch").conversation.id;
    bridge.prompted(deeper, "deeper");
    asked_before(&bridge, "deeper").check_is(&asked_before(&bridge, PARALLEL[0]), "deeper");
}

/// Does everything to one conversation in sequence; each request must begin with the whole previous one.
#[test]
#[ignore = "installs the real adapter"]
fn whatever_a_conversation_goes_through_the_model_is_sent_the_same_beginning() {
    let mut bridge = or_skip!(Bridge::start());
    let id = whole(&bridge);
    let last = goes_through(&mut bridge, id);

    // Deletes the rollout, and restores it from the copy.
    bridge.close(id);
    bridge.keep(id);
    let path = bridge.lab.transcript(&bridge.head(id)).expect("the rollout");
    let kept = fs::read(&path).expect("the rollout");
    fs::remove_file(&path).expect("removed");
    goes_on(&bridge, id, [last, "restored"], Via::Archive);
    assert!(fs::read(&path).expect("the rollout").starts_with(&kept));
}

/// Each branch and each edit must restore the rollout from the copy.
#[test]
#[ignore = "installs the real adapter"]
fn d14_branches_and_edits_of_what_was_deleted_have_what_stands_before_their_place() {
    let bridge = or_skip!(Bridge::start());
    let id = whole(&bridge);
    let path = bridge.lab.transcript(&bridge.head(id)).expect("the rollout");
    bridge.close(id);
    bridge.keep(id);
    let kept = fs::read(&path).expect("the rollout");
    let delete = || {
        assert!(fs::read(&path).expect("the rollout").starts_with(&kept));
        fs::remove_file(&path).expect("removed");
    };
    branches_behind_each(&bridge, id, &PROMPTS, LAST, BranchedVia::Native, delete);
    assert_eq!(fs::read(&path).expect("the rollout"), kept);
    edits_of_each(&bridge, id, &PROMPTS, LAST, BranchedVia::Native, delete);
}

/// The last reply is torn, and a torn line follows it. Later a result further up is torn in the copy.
#[test]
#[ignore = "installs the real adapter"]
fn a_repaired_copy_has_to_the_letter_what_stands_before_the_damage() {
    let bridge = or_skip!(Bridge::start());
    let id = whole(&bridge);
    let reply = format!("ok: {LAST}");
    let torn = tear(
        &bridge,
        id,
        &[r#""type":"response_item""#, &reply],
        "{\"timestamp\":\"20",
    );
    let repaired = bridge.repair(id);
    assert_eq!(
        kinds(&repaired.findings),
        [FindingKind::GarbageLine, FindingKind::TornLine]
    );
    assert_eq!(
        (repaired.fidelity, repaired.left),
        (Some(Fidelity::Partial), Vec::new())
    );
    let first = repaired.repaired.expect("a copy");
    let copy = bridge.lab.transcript(first.as_str()).expect("a copy");
    let whole_copy = fs::read(&copy).expect("a copy");
    let writers = bridge.foreign_writers(id);
    branches_behind_each(&bridge, id, &PROMPTS, LAST, BranchedVia::Native, || {});
    let now = fs::read(&copy).expect("a copy");
    // Codex has opened the copy for the first time and appended its settings.
    assert!(now.starts_with(&whole_copy));
    assert_eq!(bridge.foreign_writers(id), writers);
    let turn = bridge.prompted(id, "go on");
    assert_eq!(turn.upstream_id, first);
    let before = asked(&bridge, LAST);
    before.check_begins(&asked(&bridge, "go on"), "go on");
    // Everything is sent except for the torn reply.
    let said = [&bridge.lab.model.asked(LAST)[..], &[user("go on")]].concat();
    assert_eq!(bridge.lab.model.asked("go on"), said);
    check_is_as_it_was(&torn);

    bridge.close(id);
    let torn = tear(
        &bridge,
        id,
        &[r#""type":"function_call_output""#, r"Output:\nfour"],
        "",
    );
    let repaired = bridge.repair(id);
    let missing = FindingKind::ToolUseWithoutResult;
    assert_eq!(kinds(&repaired.findings), [missing, FindingKind::GarbageLine]);
    assert_eq!(kinds(&repaired.left), [missing]);
    let second = repaired.repaired.expect("a copy");
    bridge.prompted(id, "and on");
    assert_eq!(bridge.head(id), second.as_str());
    asked(&bridge, PARALLEL[1]).check_begins(&asked(&bridge, "and on"), "and on");
    // The model receives a note in place of the missing result, as the check reports; everything else is
    // sent.
    let mut expected = [&said[..], &[model("ok: go on"), user("and on")]].concat();
    let gone = expected
        .iter()
        .position(|said| matches!(&said.what, What::ToolResult(text) if text.ends_with("four")));
    let gone = gone.expect("the result");
    expected.remove(gone);
    expected.insert(gone - 1, tool_result("aborted"));
    assert_eq!(bridge.lab.model.asked("and on"), expected);
    check_is_as_it_was(&torn);
    bridge.close(id);
    assert_eq!(bridge.found(second.as_str()), [missing]);
}

/// Checks that the compared messages contain everything that the conversation is meant to contain.
fn check_holds_all(sent: &[Said]) {
    let thoughts = sent.iter().filter(|said| matches!(said.what, What::Thinking(_)));
    assert_eq!(thoughts.count(), 2, "{sent:#?}");
    let calls = [tool_use("exec_command"), tool_use("exec_command")];
    assert!(sent.windows(2).any(|pair| pair == calls), "{sent:#?}");
    for tool in ["spawn_agent", "wait_agent"] {
        assert!(sent.contains(&tool_use(tool)), "{sent:#?}");
    }
    for prompt in [FAILED, BROKEN_OFF] {
        assert!(sent.contains(&user(prompt)), "{sent:#?}");
    }
    // The compacted reply is not sent.
    assert!(
        sent.contains(&user(PARALLEL[0])) && !sent.contains(&model("compared")),
        "{sent:#?}"
    );
}

fn kinds(findings: &[Finding]) -> Vec<FindingKind> {
    findings.iter().map(|finding| finding.kind).collect()
}

/// Tears the last line of the head's rollout that contains all these words, and appends `end` to the file.
/// Returns the path and the new contents.
fn tear(bridge: &Bridge, id: ConversationId, words: &[&str], end: &str) -> (PathBuf, String) {
    let path = bridge.lab.transcript(&bridge.head(id)).expect("a rollout");
    let text = fs::read_to_string(&path).expect("a rollout");
    let mut lines: Vec<&str> = text.lines().collect();
    let is_it = |line: &&str| words.iter().all(|word| line.contains(word));
    let line = lines.iter().rposition(is_it).expect("the line");
    lines[line] = &lines[line][..40];
    let torn = lines.join("\n") + "\n" + end;
    fs::write(&path, &torn).expect("a rollout");
    (path, torn)
}

fn check_is_as_it_was((path, content): &(PathBuf, String)) {
    assert_eq!(&fs::read_to_string(path).expect("a rollout"), content);
}
