//! A conversation with everything that one can hold: tools that ran side by side, thinking, a subagent, a
//! compaction, turns that failed and that were interrupted. Wherever one goes back to in it, and however it
//! is brought back, the model is sent what it would have been sent there, to the letter: so that what its
//! server has kept of the conversation serves still.

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

/// Before the compaction, and behind it: of what was compacted Codex sends the prompts alone.
const PARALLEL: [&str; 2] = [
    r#"[[tool exec_command {"cmd":"echo one"} ;; exec_command {"cmd":"echo two"}]] [[think a long thought|compared]]"#,
    r#"[[tool exec_command {"cmd":"echo three"} ;; exec_command {"cmd":"echo four"}]] [[think another thought|compared again]]"#,
];

const BEHIND_COMPACTION: &str = "behind the compaction [[think a third thought|thought over]]";

/// The last tool gives the notice of the subagent's end the time to come within the turn.
const SUBAGENT: &str = r#"[[tool multi_agent_v1.spawn_agent {"message":"[[text words of the subagent]]"}]] [[tool multi_agent_v1.wait_agent {"targets":["THE SUBAGENT"]}]] [[tool exec_command {"cmd":"echo five"}]] [[text looked]]"#;

const FAILED: &str = "failed [[err 500]]";

/// The prompts of [`whole`], but for what was asked of the agent itself, and the last.
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

/// Has the conversation.
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

/// The first request of a prompt's turn.
fn asked(bridge: &Bridge, prompt: &str) -> Prefix {
    Prefix::of(&bridge.lab.model.first_asked(prompt))
}

/// By a fork that is told the place; the turns that failed and were broken off too.
// Against D2.
#[test]
#[ignore = "installs the real adapter"]
fn d7_branches_and_edits_have_to_the_letter_what_stands_before_their_place() {
    let Some(mut bridge) = Bridge::start() else {
        return;
    };
    let id = whole(&bridge);
    check_holds_all(&bridge.lab.model.asked(LAST));
    let source = bridge.lab.transcript(&bridge.head(id)).expect("the source");
    let before = fs::read(&source).expect("the source");
    branches_behind_each(&bridge, id, &PROMPTS, LAST, BranchedVia::Native, || {});
    assert_eq!(fs::read(&source).expect("the source"), before);
    edits_of_each(&bridge, id, &PROMPTS, LAST, BranchedVia::Native, || {});
    assert!(fs::read(&source).expect("the source").starts_with(&before));

    // A branch of a branch, at a place that stands in the first one's file, after a restart.
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

/// One after the other of one conversation, each with all that was sent before it.
#[test]
#[ignore = "installs the real adapter"]
fn whatever_a_conversation_goes_through_the_model_is_sent_the_same_beginning() {
    let Some(mut bridge) = Bridge::start() else {
        return;
    };
    let id = whole(&bridge);
    let last = goes_through(&mut bridge, id);

    // Deleted, and restored from what was kept.
    bridge.close(id);
    bridge.keep(id);
    let path = bridge.lab.transcript(&bridge.head(id)).expect("the rollout");
    let kept = fs::read(&path).expect("the rollout");
    fs::remove_file(&path).expect("removed");
    goes_on(&bridge, id, [last, "restored"], Via::Archive);
    assert!(fs::read(&path).expect("it is back").starts_with(&kept));
}

/// Each branch and each edit has what was kept put back.
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
        assert!(fs::read(&path).expect("it is there").starts_with(&kept));
        fs::remove_file(&path).expect("removed");
    };
    branches_behind_each(&bridge, id, &PROMPTS, LAST, BranchedVia::Native, delete);
    assert_eq!(fs::read(&path).expect("it is there"), kept);
    edits_of_each(&bridge, id, &PROMPTS, LAST, BranchedVia::Native, delete);
}

/// The last reply is torn, and a line that breaks off stands behind it; later a result further up is torn in
/// the copy.
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
    // Codex has opened it for the first time, and noted its settings.
    assert!(now.starts_with(&whole_copy));
    assert_eq!(bridge.foreign_writers(id), writers);
    let turn = bridge.prompted(id, "go on");
    assert_eq!(turn.upstream_id, first);
    let before = asked(&bridge, LAST);
    before.check_begins(&asked(&bridge, "go on"), "go on");
    // All but the reply.
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
    // The model is told of the result that is gone, as the check says; all else is there.
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

/// What is compared holds what it is meant to hold.
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
    // What was compacted is not there.
    assert!(
        sent.contains(&user(PARALLEL[0])) && !sent.contains(&model("compared")),
        "{sent:#?}"
    );
}

fn kinds(findings: &[Finding]) -> Vec<FindingKind> {
    findings.iter().map(|finding| finding.kind).collect()
}

/// Tears the last line of the head's rollout that holds all these words, and puts `end` behind the file. The
/// file, and what is in it.
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
