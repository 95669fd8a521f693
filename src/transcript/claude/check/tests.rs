use super::*;
use crate::words;

/// Fails if the findings of a case have words that are not in the snapshot.
#[track_caller]
fn check_words(case: &str, told: &str) {
    let line = format!("{case} => {}", told.replace('\n', " / "));
    words::compare("finding-words.txt", &line);
}

const ID: &str = "s1";

fn record(kind: &str, uuid: &str, parent: &str, more: &str) -> String {
    let parent = if parent.is_empty() {
        "null".to_owned()
    } else {
        format!("\"{parent}\"")
    };
    format!(r#"{{"type":"{kind}","uuid":"{uuid}","parentUuid":{parent},"sessionId":"{ID}"{more}}}"#)
}

fn prompt(uuid: &str, parent: &str) -> String {
    record(
        "user",
        uuid,
        parent,
        r#","origin":{"kind":"human"},"message":{"content":"hi"}"#,
    )
}

fn reply(uuid: &str, parent: &str) -> String {
    record(
        "assistant",
        uuid,
        parent,
        r#","message":{"id":"m","content":"ok"}"#,
    )
}

fn call(uuid: &str, parent: &str, id: &str) -> String {
    let more =
        format!(r#","message":{{"content":[{{"type":"tool_use","id":"{id}","name":"Bash","input":{{}}}}]}}"#);
    record("assistant", uuid, parent, &more)
}

fn result(uuid: &str, parent: &str, id: &str, more: &str, text: &str) -> String {
    let more = format!(
        r#","toolUseResult":{{{more}}},"message":{{"content":[{{"type":"tool_result","tool_use_id":"{id}","content":"{text}"}}]}}"#
    );
    record("user", uuid, parent, &more)
}

fn checked(bytes: impl AsRef<[u8]>) -> CheckReport {
    check(bytes.as_ref(), ID, |_| false).expect("bytes are read")
}

/// The kinds that are found, with their lines, and all details as one text.
fn found(lines: &[String]) -> (Vec<(u64, FindingKind)>, String) {
    let report = checked(lines.join("\n") + "\n");
    let details: Vec<&str> = report
        .findings
        .iter()
        .map(|finding| finding.detail.as_str())
        .collect();
    let told = details.join("\n");
    (
        report
            .findings
            .iter()
            .map(|finding| (finding.line, finding.kind))
            .collect(),
        told,
    )
}

fn whole() -> Vec<String> {
    vec![
        r#"{"type":"mode","mode":"default"}"#.to_owned(),
        prompt("u1", ""),
        call("a1", "u1", "t1"),
        result("r1", "a1", "t1", "", "done"),
        reply("a2", "r1"),
        prompt("u2", "a2"),
        reply("a3", "u2"),
    ]
}

#[test]
fn a_missing_parent_is_told_by_what_it_does() {
    let (kinds, told) = found(&[prompt("u1", "gone"), reply("a1", "u1")]);
    assert_eq!(kinds, [(1, FindingKind::BrokenParent)]);
    check_words("no record before", &told);

    let abandoned = [prompt("u1", ""), reply("a1", "gone"), reply("a2", "u1")];
    let (kinds, told) = found(&abandoned);
    assert_eq!(kinds, [(2, FindingKind::BrokenParent)]);
    check_words("a parent of an older branch", &told);

    let (kinds, told) = found(&[prompt("u1", "a1"), reply("a1", "u1")]);
    assert_eq!(kinds, [(1, FindingKind::BrokenParent)]);
    check_words("parents that form a ring", &told);
}

#[test]
fn what_does_not_lead_to_the_place_that_was_noted_last_is_told_to_be_left_out() {
    let mark = |uuid: &str| format!(r#"{{"type":"last-prompt","leafUuid":"{uuid}"}}"#);
    let broken = |marked: &str| {
        let one = [prompt("u1", ""), reply("a1", "u1"), mark(marked)];
        let more = [prompt("u2", "gone"), reply("a2", "u2")];
        found(&[&one[..], &more].concat())
    };
    let (kinds, told) = broken("a1");
    assert_eq!(kinds, [(4, FindingKind::BrokenParent)]);
    check_words("a parent of what follows the noted place", &told);
    let noted_broken = [
        prompt("u1", ""),
        reply("a1", "gone"),
        mark("a1"),
        prompt("u2", "gone too"),
    ];
    let (kinds, told) = found(&noted_broken);
    assert_eq!(
        kinds,
        [(2, FindingKind::BrokenParent), (4, FindingKind::BrokenParent)]
    );
    check_words("a parent of the noted place", &told);

    let twice = [
        prompt("u1", ""),
        mark("u1"),
        reply("a1", "gone"),
        prompt("u2", "gone too"),
    ];
    let (kinds, told) = found(&twice);
    assert_eq!(
        kinds,
        [(3, FindingKind::BrokenParent), (4, FindingKind::BrokenParent)]
    );
    check_words("a parent of neither", &told);
    let (kinds, told) = broken("a2");
    assert_eq!(kinds, [(4, FindingKind::BrokenParent)]);
    check_words("a parent before the noted place", &told);

    let ring = [prompt("u2", "a2"), reply("a2", "u2")];
    let (kinds, told) = found(&[&[prompt("u1", ""), reply("a1", "u1"), mark("a1")][..], &ring].concat());
    assert_eq!(kinds, [(4, FindingKind::BrokenParent)]);
    check_words("a ring after the noted place", &told);
}

#[test]
fn a_newer_branch_that_a_resume_leaves_aside_is_told_and_an_older_one_is_not() {
    let mark = |uuid: &str| format!(r#"{{"type":"last-prompt","leafUuid":"{uuid}"}}"#);
    let one = [prompt("u1", ""), reply("a1", "u1")];
    let gone_back = |marked: &[&str]| {
        let marks: Vec<String> = marked.iter().map(|marked| mark(marked)).collect();
        let two = [prompt("u2", "a1"), reply("a2", "u2")];
        let three = [prompt("u3", "a1"), reply("a3", "u3")];
        found(&[&one[..], &two, &three, &marks].concat())
    };
    let (kinds, told) = gone_back(&["a2"]);
    assert_eq!(kinds, [(6, FindingKind::NewerBranch)]);
    check_words("a newer branch", &told);
    // What was gone back behind is left aside on purpose.
    for marked in [&[][..], &["a3"], &["a1"], &["a2", "a3"], &["nowhere"]] {
        assert_eq!(gone_back(marked), (vec![], String::new()), "{marked:?}");
    }

    // Of a damaged branch the damage is told, and one without any that stands before it too.
    let less = [mark("a1"), prompt("b1", "u1"), prompt("u4", "gone")];
    let (kinds, told) = found(&[&one[..], &less].concat());
    assert_eq!(
        kinds,
        [(4, FindingKind::NewerBranch), (5, FindingKind::BrokenParent)]
    );
    check_words("a newer branch before a damaged one", &told);

    // What the agent notes of itself, and what subagents say, is no message of the conversation.
    let aside = r#","isSidechain":true,"message":{"content":"x"}"#;
    let quiet = [
        mark("a1"),
        prompt("u5", "u1"),
        record("system", "s1", "u5", ""),
        record("user", "x1", "u5", aside),
    ];
    assert_eq!(
        found(&[&one[..], &quiet].concat()).0,
        [(4, FindingKind::NewerBranch)]
    );

    // Of a message that stands there twice the later one is on the way that a resume goes.
    let late = prompt("u6", "u1");
    let twice = [
        prompt("u1", ""),
        reply("a1", "u6"),
        mark("a1"),
        late.clone(),
        late,
    ];
    assert_eq!(found(&twice).0, [(5, FindingKind::DuplicateUuid)]);
}

#[test]
fn a_record_without_a_parent_cuts_off_what_came_before() {
    let mut lines = whole();
    lines[5] = prompt("u2", "");
    let (kinds, told) = found(&lines);
    assert_eq!(kinds, [(6, FindingKind::CutOff)]);
    check_words("a record without a parent", &told);
    // A compaction names what came before, and what a fork left behind is no damage.
    for logical in ["a2", "elsewhere"] {
        let more = format!(r#","subtype":"compact_boundary","logicalParentUuid":"{logical}""#);
        let mut lines = whole();
        lines[5] = record("system", "c1", "", &more);
        lines.insert(6, prompt("u2", "c1"));
        assert_eq!(found(&lines).0, [], "{logical}");
    }
}

#[test]
fn a_result_without_its_call_is_told() {
    let (kinds, told) = found(&[
        prompt("u1", ""),
        reply("a1", "u1"),
        result("r1", "a1", "t1", "", "done"),
        reply("a2", "r1"),
    ]);
    assert_eq!(kinds, [(3, FindingKind::ResultWithoutToolUse)]);
    check_words("a result without its call", &told);
    let (kinds, told) = found(&[
        prompt("u1", ""),
        result("r1", "u1", "t1", "", "done"),
        reply("a1", "u1"),
    ]);
    assert_eq!(kinds, [(2, FindingKind::ResultWithoutToolUse)]);
    check_words("a result without its call on an older branch", &told);
    // Of one that stands there twice the model is sent one.
    let mut lines = whole();
    lines[4] = result("r2", "r1", "t1", "", "done");
    lines[5] = prompt("u2", "r2");
    assert_eq!(found(&lines).0, []);
}

#[test]
fn ids_of_other_sessions_are_told() {
    let lines: Vec<String> = whole()
        .iter()
        .map(|line| line.replace(r#":"s1""#, r#":"s0""#))
        .collect();
    let (kinds, told) = found(&lines);
    assert_eq!(kinds, [(2, FindingKind::ForeignSessionId)]);
    check_words("sessions of other ids", &told);
}

#[test]
fn side_files_are_asked_for_by_what_names_them() {
    let mut lines = whole();
    let path = "/home/u/.claude/projects/-p/s1/tool-results/x.txt";
    lines[3] = result(
        "r1",
        "a1",
        "t1",
        &format!(r#""agentId":"b7","persistedOutputPath":"{path}""#),
        &format!(
            r"<persisted-output>\nOutput too large (9 KB). Full output saved to: {path}\n\nPreview:\nfoo"
        ),
    );
    let asked = std::cell::RefCell::new(Vec::new());
    let text = lines.join("\n");
    let report = check(text.as_bytes(), ID, |file| {
        asked.borrow_mut().push(file.clone());
        matches!(file, SideFile::Subagent(_))
    })
    .expect("bytes are read");
    let kinds: Vec<_> = report
        .findings
        .iter()
        .map(|finding| (finding.line, finding.kind))
        .collect();
    assert!(
        kinds
            .iter()
            .all(|kind| *kind == (4, FindingKind::MissingSideFile)),
        "{kinds:?}"
    );
    assert!(asked.borrow().contains(&SideFile::Subagent("b7".to_owned())));
    assert!(report.findings[0].detail.contains(path));
    assert_eq!(kinds.len(), 1, "one file is told once");
    // A text that speaks of such files names none.
    assert_eq!(
        crate::transcript::relocate::persisted_path(&format!("see: Full output saved to: {path}")),
        None
    );
}

#[test]
fn calls_are_not_said_to_have_no_result_where_not_all_results_were_looked_at() {
    let many = |uuid: &str, count: usize| {
        let block = r#"{"type":"tool_result","tool_use_id":"other"}"#;
        let last = r#"{"type":"tool_result","tool_use_id":"t1"}"#;
        let blocks = [vec![block; count], vec![last]].concat().join(",");
        record(
            "user",
            uuid,
            "a1",
            &format!(r#","toolUseResult":{{}},"message":{{"content":[{blocks}]}}"#),
        )
    };
    let lines = |count| [prompt("u1", ""), call("a1", "u1", "t1"), many("r1", count)];
    let kinds =
        |lines: &[String]| -> Vec<FindingKind> { found(lines).0.iter().map(|(_, kind)| *kind).collect() };
    assert_eq!(kinds(&lines(0)), []);
    assert_eq!(found(&lines(ELEMENTS_LIMIT)).0, [(3, FindingKind::OversizedLine)]);
    check_words("a line with very many results", &found(&lines(ELEMENTS_LIMIT)).1);
}

#[test]
fn of_very_many_sessions_the_first_are_told_and_the_others_counted() {
    let count = FINDINGS_OF_A_KIND_LIMIT + 7;
    let mut lines = whole();
    lines.extend((0..2 * count).map(|number| {
        let own = format!(r#":"other-{}""#, number % count);
        prompt(&format!("x{number}"), "a3").replace(r#":"s1""#, &own)
    }));
    let report = checked(lines.join("\n"));
    let kind = FindingKind::ForeignSessionId;
    let told: Vec<_> = report
        .findings
        .iter()
        .filter(|finding| finding.kind == kind)
        .collect();
    assert_eq!((told.len(), report.omitted), (FINDINGS_OF_A_KIND_LIMIT, 7));
    let last = &told[FINDINGS_OF_A_KIND_LIMIT - 1];
    check_words("the last of very many: ForeignSessionId", &last.detail);
}
