use super::*;
use crate::transcript::codex::tests::{ROOT, ROOT_ID};

fn standing(id: &str) -> RolloutContext<'_> {
    RolloutContext {
        upstream_id: id,
        is_archived: false,
        is_continuation: false,
        broken_sources: Vec::new(),
    }
}

fn found(text: &str, id: &str) -> Vec<(u64, FindingKind)> {
    let report = check(text.as_bytes(), &standing(id)).expect("bytes are read");
    assert!(report.findings.iter().all(|finding| !finding.detail.is_empty()));
    report
        .findings
        .iter()
        .map(|finding| (finding.line, finding.kind))
        .collect()
}

#[test]
fn each_damage_is_found_in_its_line() {
    let lines: Vec<&str> = ROOT.lines().collect();
    let with = |change: &dyn Fn(&mut Vec<String>)| {
        let mut lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        change(&mut lines);
        lines.join("\n") + "\n"
    };
    let table: Vec<(String, Vec<(u64, FindingKind)>)> = vec![
        (ROOT.to_owned(), vec![]),
        (
            with(&|lines| lines[0] = "{@@@".into()),
            vec![(1, FindingKind::GarbageLine), (2, FindingKind::NothingToResume)],
        ),
        (
            with(&|lines| drop(lines.remove(22))),
            vec![(20, FindingKind::ToolUseWithoutResult)],
        ),
        (
            with(&|lines| drop(lines.remove(19))),
            vec![(22, FindingKind::ResultWithoutToolUse)],
        ),
        (
            with(&|lines| lines[46] = lines[46].replace("\"ordinal\":46", "\"ordinal\":3")),
            vec![(47, FindingKind::BrokenOrder)],
        ),
        (
            ROOT.replacen(&format!("\"id\":\"{ROOT_ID}\""), "\"id\":\"other\"", 1),
            vec![(1, FindingKind::ForeignSessionId)],
        ),
        (
            with(&|lines| lines.insert(22, lines[22].clone())),
            vec![(24, FindingKind::BrokenOrder)],
        ),
        (
            with(&|lines| {
                lines.insert(9, r#"{"type":"hologram","payload":{}}"#.into());
                lines.push(r#"{"type":"hologram","payload":7}"#.into());
            }),
            vec![],
        ),
        (
            with(&|lines| {
                for (at, payload) in [
                    (9, r#"{"type":"message_v2","text":"x"}"#),
                    (
                        10,
                        r#"{"type":"message","role":"user","content":[{"type":"rich_text","text":"x"}]}"#,
                    ),
                    (11, r#"{"type":"message","role":"assistant","content":"x"}"#),
                    (12, r#"{"type":"message","role":"critic","content":[]}"#),
                    (
                        13,
                        r#"{"type":"reasoning","summary":[{"type":"graph","nodes":[]}]}"#,
                    ),
                    (
                        14,
                        r#"{"type":"message","role":"developer","content":[{"type":"rich_text"}]}"#,
                    ),
                    (
                        15,
                        r#"{"type":"reasoning","summary":[],"content":null,"encrypted_content":"x"}"#,
                    ),
                    (16, r#"{"type":"web_search_call","action":{}}"#),
                ] {
                    lines.insert(at, format!(r#"{{"type":"response_item","payload":{payload}}}"#));
                }
            }),
            vec![],
        ),
        (format!("{}\n", lines[0]), vec![(0, FindingKind::NothingToResume)]),
        ("\n \r\n".to_owned(), vec![(0, FindingKind::NothingToResume)]),
        // What Codex itself does not take for a record, though others do.
        (
            with(&|lines| lines[7] = "\0".repeat(lines[7].len())),
            vec![(8, FindingKind::GarbageLine)],
        ),
        (
            with(&|lines| lines[7].insert(0, '\u{feff}')),
            vec![(8, FindingKind::GarbageLine)],
        ),
        (
            with(&|lines| lines[7].insert_str(1, r#""half":"\ud83d","#)),
            vec![(8, FindingKind::GarbageLine)],
        ),
        (
            with(&|lines| {
                let deep = format!("\"deep\":{}{},", "[".repeat(127), "]".repeat(127));
                lines[7].insert_str(1, &deep);
            }),
            vec![(8, FindingKind::GarbageLine)],
        ),
        (
            with(&|lines| {
                let deep = format!("\"deep\":{}{},", "[".repeat(126), "]".repeat(126));
                lines[7].insert_str(1, &deep);
                lines[7].insert_str(1, r#""pair":"\ud83d\ude00é","#);
            }),
            vec![],
        ),
    ];
    for (text, expected) in table {
        assert_eq!(
            found(&text, ROOT_ID),
            expected,
            "{}",
            &text[..text.len().min(200)]
        );
    }
    let many = format!("{ROOT}{}", "garbage\n".repeat(300));
    let standing = RolloutContext {
        is_archived: true,
        ..standing(ROOT_ID)
    };
    let report = check(many.as_bytes(), &standing).expect("bytes are read");
    assert_eq!(
        (report.findings[0].kind, report.findings[0].line),
        (FindingKind::Archived, 0)
    );
    assert_eq!((report.findings.len(), report.omitted), (101, 200));
}

#[test]
fn what_was_taken_back_is_no_part_of_the_history() {
    let meta = format!(r#"{{"type":"session_meta","payload":{{"id":"{ROOT_ID}","cli_version":"0.100.0"}}}}"#);
    let event = |payload: &str| format!(r#"{{"type":"event_msg","payload":{payload}}}"#);
    let item = |payload: &str| format!(r#"{{"type":"response_item","payload":{payload}}}"#);
    let started = |id: &str| event(&format!(r#"{{"type":"task_started","turn_id":"{id}"}}"#));
    let prompt =
        || item(r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"do it"}]}"#);
    let call = |id: &str| {
        item(&format!(
            r#"{{"type":"function_call","call_id":"{id}","name":"exec"}}"#
        ))
    };
    let result = || item(r#"{"type":"function_call_output","call_id":"gone"}"#);
    let back = |turns: u64| event(&format!(r#"{{"type":"thread_rolled_back","num_turns":{turns}}}"#));
    let found = |lines: &[String]| found(&format!("{meta}\n{}\n", lines.join("\n")), ROOT_ID);
    let broken = |line| (line, FindingKind::ToolUseWithoutResult);
    let unasked = |line| (line, FindingKind::ResultWithoutToolUse);

    // With names of turns, and without, as older versions wrote.
    for named in [true, false] {
        let turn = |id: &str| match named {
            true => started(id),
            false => event(r#"{"type":"token_count"}"#),
        };
        let one = [turn("1"), prompt(), call("c1"), result()];
        let two = [turn("2"), prompt(), call("c2"), result()];
        let both = [one.clone(), two.clone()].concat();
        let all = [broken(4), unasked(5), broken(8), unasked(9)];
        assert_eq!(found(&both), all, "{named}");
        let after = |turns| [both.clone(), vec![back(turns)]].concat();
        assert_eq!(found(&after(0)), all, "{named}");
        assert_eq!(found(&after(1)), all[..2], "{named}");
        for turns in [2, u64::MAX] {
            assert_eq!(
                found(&after(turns)),
                [(0, FindingKind::NothingToResume)],
                "{named}"
            );
        }
        // One by one, with a turn between that stands.
        let three = [turn("3"), prompt(), call("c3")];
        let again = [after(1), three.to_vec()].concat();
        assert_eq!(found(&again), [broken(4), unasked(5), broken(13)], "{named}");
        let again = [again, vec![back(2)], three.to_vec()].concat();
        assert_eq!(found(&again), [broken(17)], "{named}");
    }
}
