//! Repaired copies, and what the model receives when the agent resumes them.

use std::fs;

use bridge_protocol::ConversationId;
use bridge_protocol::check::FindingKind;
use bridge_protocol::link::{Fidelity, LinkReason, Via};

use super::bridge::Bridge;
use crate::support::claude::{Account, INTERRUPTED};
use crate::support::model_server::{Said, model, tool_result, tool_use, user};

const WITH_TOOL: &str = r#"[[tool Bash {"command":"echo hi","description":"greet"}]] [[text done]]"#;

const WITH_TWO: &str = r#"[[tool Bash {"command":"echo a","description":"a"};;Bash {"command":"echo b","description":"b"}]] [[text done]]"#;

/// Modifies the lines of the head's transcript.
fn change(bridge: &Bridge, id: ConversationId, change: impl FnOnce(&mut Vec<String>)) {
    let path = bridge.lab.transcript(&bridge.head(id)).expect("the transcript");
    let text = fs::read_to_string(&path).expect("the transcript");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    change(&mut lines);
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(&path, text).expect("the transcript");
}

/// Removes the record with the result that has this output.
fn take_result(lines: &mut Vec<String>, output: &str) {
    let before = lines.len();
    let stdout = format!(r#""stdout":"{output}""#);
    lines.retain(|line| !line.contains(&stdout));
    assert_eq!(lines.len() + 1, before, "the result's record");
}

/// Replaces the beginning of the record of a reply by garbage.
fn tear_reply(lines: &mut [String], text: &str) {
    let is_reply = |line: &&mut String| line.contains(r#""type":"assistant""#) && line.contains(text);
    let reply = lines.iter_mut().find(is_reply).expect("the reply's record");
    reply.replace_range(1..20, "@");
}

/// The transcript has a torn record in the middle and a missing result. The model must receive everything
/// else, without the call, which the agent leaves out. The session is open, and the repair closes it first.
#[test]
#[ignore = "installs the real adapter"]
fn the_model_is_sent_the_repaired_history() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let id = bridge.begun(&["number one", WITH_TOOL, "number two"]);
    let old = bridge.head(id);
    change(&bridge, id, |lines| {
        take_result(lines, "hi");
        tear_reply(lines, "ok: number one");
    });
    assert!(bridge.get(id).live);
    let answer = bridge.repair(id);
    let kinds: Vec<FindingKind> = answer.findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(
        kinds,
        [
            FindingKind::GarbageLine,
            FindingKind::BrokenParent,
            FindingKind::ToolUseWithoutResult,
            FindingKind::BrokenParent
        ]
    );
    let left: Vec<FindingKind> = answer.left.iter().map(|finding| finding.kind).collect();
    assert_eq!(left, [FindingKind::ToolUseWithoutResult]);
    let new = answer.repaired.expect("a copy");
    assert_eq!(bridge.head(id), new.as_str());
    let link = bridge.chain(id).pop().expect("the head");
    assert_eq!(
        (link.reason, link.from_upstream_id),
        (LinkReason::Rebuilt, Some(old.as_str().into()))
    );
    let resumed = bridge.prompted(id, "go on").resumed.expect("a resume");
    assert_eq!((resumed.via, resumed.fidelity), (Via::Resume, Fidelity::Full));
    let expected = [
        user("number one"),
        user(WITH_TOOL),
        model("calling"),
        model("done"),
        user("number two"),
        model("ok: number two"),
        user("go on"),
    ];
    assert_eq!(bridge.lab.model.asked("go on"), expected);
    bridge.close(id);
    assert_eq!(bridge.found(new.as_str()), left);
}

/// Parallel calls at the end of the transcript, with one or all results missing; an earlier reply is torn.
#[test]
#[ignore = "installs the real adapter"]
fn each_of_several_calls_at_the_end_has_a_result() {
    let bridge = or_skip!(Bridge::start(Account::Key));
    let table: [(&[&str], [&str; 2]); 3] = [
        // A call with a result comes first, because the agent appends the filled-in one.
        (&["a"], ["b", INTERRUPTED]),
        (&["b"], ["a", INTERRUPTED]),
        (&["a", "b"], [INTERRUPTED, INTERRUPTED]),
    ];
    for (number, (gone, results)) in table.into_iter().enumerate() {
        let id = bridge.begun(&["number one", WITH_TWO]);
        bridge.close(id);
        change(&bridge, id, |lines| {
            let is_result = |line: &String| line.contains(r#""type":"tool_result""#);
            lines.truncate(lines.iter().rposition(is_result).expect("the results") + 1);
            for output in gone {
                take_result(lines, output);
            }
            tear_reply(lines, "ok: number one");
        });
        let answer = bridge.repair(id);
        let filled_in = answer.repairs.expect("a copy").filled_in;
        assert_eq!(filled_in, gone.len() as u64);
        let text = format!("go on {number}");
        bridge.prompted(id, &text);
        let expected: Vec<Said> = vec![
            user("number one"),
            user(WITH_TWO),
            model("calling"),
            tool_use("Bash"),
            tool_use("Bash"),
            tool_result(results[0]),
            tool_result(results[1]),
            model("No response requested."),
            user(&text),
        ];
        assert_eq!(bridge.lab.model.asked(&text), expected, "{gone:?}");
    }
}
