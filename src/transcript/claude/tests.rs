use std::io::Cursor;

use proptest::prelude::*;

use super::history::{ClaudeHistory, OpenClaudeTranscript};
use super::*;
use crate::transcript::indexes::IndexedBranch;
use crate::transcript::tests::{ToldTurn, told};

/// A transcript in the making: one line a call.
#[derive(Debug, Default)]
struct Script(Vec<String>);

impl Script {
    fn prompt(mut self, uuid: &str, parent: &str, text: &str) -> Self {
        self.0.push(format!(
            r#"{{"type":"user","uuid":"{uuid}","parentUuid":{},"origin":{{"kind":"human"}},"timestamp":"T{uuid}","message":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#,
            json(parent)
        ));
        self
    }
    fn text(mut self, uuid: &str, parent: &str, text: &str) -> Self {
        self.0.push(format!(
            r#"{{"type":"assistant","uuid":"{uuid}","parentUuid":{},"message":{{"id":"m-{uuid}","content":[{{"type":"text","text":"{text}"}}]}}}}"#,
            json(parent)
        ));
        self
    }
    fn call(mut self, uuid: &str, parent: &str, message: &str) -> Self {
        self.0.push(format!(
            r#"{{"type":"assistant","uuid":"{uuid}","parentUuid":{},"message":{{"id":"{message}","content":[{{"type":"tool_use","id":"t-{uuid}","name":"Read","input":{{"of":"{uuid}"}}}}]}}}}"#,
            json(parent)
        ));
        self
    }
    fn result(mut self, uuid: &str, parent: &str) -> Self {
        self.0.push(format!(
            r#"{{"type":"user","uuid":"{uuid}","parentUuid":{},"toolUseResult":"r","message":{{"content":[{{"type":"tool_result","tool_use_id":"t-{parent}","content":"r"}}]}}}}"#,
            json(parent)
        ));
        self
    }
    /// What the agent notes now and then: where the conversation stands.
    fn mark(self, uuid: &str) -> Self {
        self.line(&format!(r#"{{"type":"last-prompt","leafUuid":{}}}"#, json(uuid)))
    }
    fn line(mut self, line: &str) -> Self {
        self.0.push(line.to_owned());
        self
    }
    fn bytes(&self) -> Vec<u8> {
        self.0
            .iter()
            .flat_map(|line| [line.as_bytes(), b"\n"].concat())
            .collect()
    }
    fn read(&self, until: Option<&str>, follow_compaction: bool) -> Branch {
        read(&self.bytes(), until, follow_compaction)
    }
    fn live(&self) -> Branch {
        self.read(None, false)
    }
}

/// A branch as these tests look at it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Branch {
    turns: Vec<ToldTurn>,
    leaf_uuid: Option<String>,
    breaks: usize,
    cut_by_compaction: bool,
}

fn read(bytes: &[u8], until: Option<&str>, follow_compaction: bool) -> Branch {
    let index = ClaudeIndex::read(bytes).expect("memory can be read");
    let Some(branch) = index.select(until, follow_compaction) else {
        return Branch::default();
    };
    Branch {
        turns: told(bytes, &branch),
        leaf_uuid: Some(branch.leaf_uuid.clone()),
        breaks: branch.missing_parents,
        cut_by_compaction: branch.cut_by_compaction,
    }
}

fn json(parent: &str) -> String {
    if parent.is_empty() {
        "null".to_owned()
    } else {
        format!("{parent:?}")
    }
}

fn said(branch: &Branch) -> Vec<(&str, &str)> {
    branch
        .turns
        .iter()
        .map(|turn| (turn.prompt.as_str(), turn.reply.as_str()))
        .collect()
}

#[test]
fn a_mark_written_late_below_an_older_record_hides_nothing() {
    let branch = Script::default()
        .prompt("u1", "", "one")
        .text("a1", "u1", "1")
        .prompt("u2", "a1", "two")
        .line(r#"{"type":"system","uuid":"late","parentUuid":"a1"}"#)
        .live();
    assert_eq!(said(&branch), [("one", "1"), ("two", "")]);
}

#[test]
fn how_turns_end() {
    let error = r#"{"type":"assistant","uuid":"e","parentUuid":"u","isApiErrorMessage":true,"message":{"content":[{"type":"text","text":"limit"}]}}"#;
    let filler = r#"{"type":"assistant","uuid":"f","parentUuid":"u","message":{"model":"<synthetic>","content":[{"type":"text","text":"No response requested."}]}}"#;
    let stopped = r#"{"type":"user","uuid":"i","parentUuid":"a","message":{"content":[{"type":"text","text":"[Request interrupted by user]"}]}}"#;
    let prompt = || Script::default().prompt("u", "", "p");
    // (transcript, whether it ends with a reply, the reply)
    let table = [
        (prompt(), false, ""),
        (prompt().text("a", "u", "x"), true, "x"),
        (prompt().line(error), false, ""),
        (prompt().line(filler), false, ""),
        (prompt().text("a", "u", "part").line(stopped), false, "part"),
        (prompt().call("a", "u", "m"), false, ""),
        (prompt().call("a", "u", "m").result("r", "a"), false, ""),
        (
            prompt()
                .call("a", "u", "m")
                .result("r", "a")
                .text("z", "r", "end"),
            true,
            "end",
        ),
    ];
    for (number, (script, ends_with_reply, reply)) in table.into_iter().enumerate() {
        assert_eq!(said(&script.live()), [("p", reply)], "case {number}");
        let bytes = script.bytes();
        let index = ClaudeIndex::read(&bytes[..]).expect("memory can be read");
        let book = ClaudeHistory::read(&index.into(), None).expect("a branch");
        let ends = OpenClaudeTranscript::new("".as_ref(), Cursor::new(&bytes), book.into()).ends_with_reply();
        assert_eq!(
            ends.expect("memory can be read"),
            ends_with_reply,
            "case {number}"
        );
    }
}

/// Three turns, of which the second has lost the result of its call; the last two hang from what is not there.
fn without_a_result(mark: impl Fn(Script) -> Script) -> Script {
    let one = Script::default().prompt("u1", "", "one").text("a1", "u1", "1");
    mark(one)
        .prompt("u2", "a1", "two")
        .call("c2", "u2", "m2")
        .text("a2", "missing", "2")
        .prompt("u3", "a2", "three")
        .text("a3", "u3", "3")
}

#[test]
fn what_does_not_lead_to_the_place_that_was_noted_last_is_left_out_and_told() {
    let left = without_a_result(|script| script.mark("a1")).live();
    assert_eq!((said(&left), left.breaks), (vec![("one", "1")], 1));
    assert_eq!(left.leaf_uuid.as_deref(), Some("a1"));
    // Wherever in the file it was noted, and also when a note without a place came later.
    let late = without_a_result(|script| script).mark("a1").mark("");
    assert_eq!(said(&late.live()), [("one", "1")]);
    // A circle leads nowhere either.
    let circle = Script::default()
        .prompt("u1", "", "one")
        .text("a1", "u1", "1")
        .mark("a1")
        .prompt("u2", "a2", "round")
        .text("a2", "u2", "and round")
        .live();
    assert_eq!((said(&circle), circle.breaks), (vec![("one", "1")], 1));
}

#[test]
fn a_missing_parent_is_joined_where_the_place_that_was_noted_last_lies_behind_it() {
    let whole = [("one", "1"), ("two", "2"), ("three", "3")];
    for script in [
        without_a_result(|script| script),
        without_a_result(|script| script).mark("a2"),
        without_a_result(|script| script).mark("a3"),
        without_a_result(|script| script.mark("a1")).mark("a3"),
        // The last note counts, even when what it names is not there.
        without_a_result(|script| script.mark("a1")).mark("nowhere"),
        // What was written behind the newest message is of its branch.
        without_a_result(|script| script.mark("x"))
            .line(r#"{"type":"attachment","uuid":"x","parentUuid":"a3"}"#),
        without_a_result(|script| script)
            .line(r#"{"type":"system","uuid":"b","parentUuid":null,"logicalParentUuid":"a3"}"#)
            .mark("b"),
    ] {
        let branch = script.live();
        assert_eq!((said(&branch), branch.breaks), (whole.to_vec(), 1), "{script:?}");
    }
}

#[test]
fn of_two_branches_the_one_that_was_noted_last_is_live() {
    let branches = |mark: &str| {
        let script = Script::default()
            .prompt("u1", "", "one")
            .text("a1", "u1", "1")
            .line(r#"{"type":"attachment","uuid":"x1","parentUuid":"a1"}"#)
            .prompt("u2", "x1", "two")
            .call("c2", "u2", "m2")
            .call("c3", "c2", "m2")
            .result("r2", "c2")
            .result("r3", "c3")
            .text("a2", "r3", "2")
            .prompt("u3", "a1", "newer")
            .text("a3", "u3", "3");
        script.mark(mark).live()
    };
    let newer = [("one", "1"), ("newer", "3")];
    for mark in ["u1", "a1", "u3", "a3"] {
        assert_eq!(said(&branches(mark)), newer, "{mark}");
    }
    // What the next prompt does not hang from is a branch of its own.
    assert_eq!(said(&branches("x1")), [("one", "1")]);
    assert_eq!(said(&branches("a2")), [("one", "1"), ("two", "2")]);
    // Calls that are made together and their results go with each of them.
    for mark in ["c2", "c3", "r2", "r3"] {
        let branch = branches(mark);
        assert_eq!(said(&branch), [("one", "1"), ("two", "")], "{mark}");
        assert_eq!(
            (branch.breaks, branch.leaf_uuid.as_deref()),
            (0, Some("r3")),
            "{mark}"
        );
    }
}

#[test]
fn calls_made_together_that_were_noted_last_lead_to_what_follows() {
    for mark in ["c1", "c2", "r1", "r2"] {
        let branch = Script::default()
            .prompt("u1", "", "one")
            .call("c1", "u1", "m1")
            .call("c2", "c1", "m1")
            .result("r2", "c2")
            .result("r1", "c1")
            .text("a1", "r2", "1")
            .mark(mark)
            .live();
        assert_eq!(said(&branch), [("one", "1")], "{mark}");
    }
}

#[test]
fn what_was_noted_before_a_compaction_counts_no_longer() {
    let compacted = |before: &str, behind: &str| {
        let script = Script::default()
            .prompt("u1", "", "one")
            .text("a1", "u1", "1")
            .mark(before)
            .line(r#"{"type":"system","uuid":"b","parentUuid":null,"logicalParentUuid":"a1"}"#)
            .prompt("u2", "b", "two")
            .text("a2", "u2", "2")
            .mark(behind);
        let branch = script.live();
        branch
            .turns
            .into_iter()
            .map(|turn| turn.prompt)
            .collect::<Vec<_>>()
    };
    assert_eq!(compacted("a1", ""), ["two"]);
    assert_eq!(compacted("", "a1"), ["one"]);
}

proptest! {

    /// Nothing in a file can make reading fail.
    #[test]
    fn any_bytes_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let index = ClaudeIndex::read(&bytes[..]);
        prop_assert!(index.is_ok_and(|index| index.select(None, false).is_none_or(|branch| branch.missing_parents <= index.records())));
    }
}
