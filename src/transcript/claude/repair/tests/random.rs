//! Random damage in random trees: a repaired copy contains what was readable in the source, and no damage that can be fixed.

use std::fs;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::transcript::tests::told_live;

/// A kind of damage to a line.
#[derive(Debug, Clone, Copy)]
enum Damage {
    Gone,
    Garbage,
    Torn,
    Twice,
    Foreign,
}

/// Turns, each of which goes on from one before it, with the calls of its replies, by how many are made at once.
fn tree() -> impl Strategy<Value = Vec<(usize, Vec<usize>)>> {
    let turn = (
        prop_oneof![6 => Just(0usize), 1 => 1usize..4],
        prop::collection::vec(1usize..4, 0..3),
    );
    prop::collection::vec(turn, 1..8)
}

fn damages() -> impl Strategy<Value = Vec<(prop::sample::Index, Damage)>> {
    let damage = prop_oneof![
        Just(Damage::Gone),
        Just(Damage::Garbage),
        Just(Damage::Torn),
        Just(Damage::Twice),
        Just(Damage::Foreign)
    ];
    prop::collection::vec((any::<prop::sample::Index>(), damage), 0..6)
}

/// The lines of such a tree.
fn grown(tree: &[(usize, Vec<usize>)]) -> Vec<String> {
    let (mut lines, mut ends): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for (number, (back, replies)) in tree.iter().enumerate() {
        let before = number.checked_sub(1 + back).map(|turn| ends[turn].clone());
        let mut parent = format!("u{number}");
        lines.push(chain(
            &parent,
            &before.unwrap_or_default(),
            "user",
            &format!("prompt {number}"),
        ));
        for (round, calls) in replies.iter().enumerate() {
            let message = format!("m{number}-{round}");
            let mut called = Vec::new();
            for index in 0..*calls {
                let (id, uuid) = (format!("c-{message}-{index}"), format!("a-{message}-{index}"));
                lines.push(record(&uuid, &parent, Some(&message), &json!([call(&id)])));
                parent.clone_from(&uuid);
                called.push((id, uuid));
            }
            for (id, caller) in called {
                parent = format!("r-{id}");
                lines.push(record(&parent, &caller, None, &answer(&id, "ok")));
            }
        }
        let end = format!("e{number}");
        let text = json!([{"type": "text", "text": format!("reply {number}")}]);
        lines.push(record(&end, &parent, Some(&end), &text));
        ends.push(end);
    }
    lines
}

fn damaged(lines: Vec<String>, damages: &[(prop::sample::Index, Damage)], is_torn: bool) -> String {
    let mut lines: Vec<Vec<String>> = lines.into_iter().map(|line| vec![line]).collect();
    for (at, damage) in damages {
        let line = at.get_mut(&mut lines);
        let Some(first) = line.first().cloned() else {
            continue;
        };
        *line = match damage {
            Damage::Gone => Vec::new(),
            Damage::Garbage => vec!["@@@".to_owned()],
            Damage::Torn => vec![first[..first.len() / 2].to_owned()],
            Damage::Twice => vec![first.clone(), first],
            Damage::Foreign => vec![first.replace(OLD, "another")],
        };
    }
    let text: String = lines.concat().iter().map(|line| format!("{line}\n")).collect();
    match is_torn {
        true => text + "{\"type\":\"us",
        false => text,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn whatever_is_damaged_the_copy_has_all_that_is_read_of_it(tree in tree(), damages in damages(), is_torn in any::<bool>()) {
        let text = damaged(grown(&tree), &damages, is_torn);
        let (folder, source) = transcript(text.as_bytes());
        let read = index(&source);
        let Some(branch) = read.select_joined().or_else(|| read.select(None, true)) else {
            return Ok(());
        };
        repair(&source, &read, &branch, folder.path(), NEW).expect("a copy");
        prop_assert_eq!(fs::read_to_string(&source).expect("the source"), &text[..]);
        let found = reading::check(&folder.path().join(format!("{NEW}.jsonl"))).expect("a check").findings;
        prop_assert!(found.iter().all(|finding| !can_fix(finding.kind)), "{found:?}\n{text}");

        let parse = |line: &str| serde_json::from_str::<Value>(line).ok();
        let copy = fs::read_to_string(folder.path().join(format!("{NEW}.jsonl"))).expect("the copy");
        let copied: Vec<Value> = copy.lines().map(|line| parse(line).expect("a record")).collect();
        let is_there = |record: &Value| copied.iter().any(|copy| (&copy["uuid"], &copy["message"]) == (&record["uuid"], &record["message"]));
        let is_straight = tree.iter().all(|(back, _)| *back == 0);
        let mut offset = 0;
        for line in text.split_inclusive('\n') {
            let is_of_branch = branch.contains(offset);
            offset += line.len() as u64;
            let Some(record) = parse(line) else { continue };
            // Where no turn was left aside every prompt and every last reply is read.
            let is_said = record["message"]["content"].is_string() || record["message"]["content"][0]["type"] == "text";
            let is_read = is_of_branch || (is_straight && is_said);
            prop_assert!(!is_read || is_there(&record), "{record}\n{text}");
        }
        // As the history is told, of which a result that was filled in is no part.
        let told = |path: &Path| -> Vec<(String, String)> {
            told_live(path).into_iter().map(|turn| (turn.prompt, turn.reply)).collect()
        };
        let (before, after) = (told(&source), told(&folder.path().join(format!("{NEW}.jsonl"))));
        let mut rest = after.iter();
        prop_assert!(before.iter().all(|turn| rest.any(|other| other == turn)), "{before:?} {after:?}\n{text}");
    }
}
