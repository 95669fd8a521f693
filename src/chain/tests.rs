use proptest::prelude::*;

use super::*;

const START: Timestamp = Timestamp::UNIX_EPOCH;

fn second(count: i64) -> Timestamp {
    Timestamp::from_second(count).unwrap()
}

fn link(id: &str) -> NewLink {
    NewLink {
        upstream_id: id.into(),
        agent: AgentName::new("claude"),
        cwd: "/home/u/project".to_owned(),
        reason: LinkReason::Rolled,
        relation: Relation::Follows,
        from_upstream_id: None,
        from_checkpoint_id: None,
        cause: None,
        turns: 0,
        carried_turns: 0,
        written: true,
    }
}

fn phantom(id: &str) -> NewLink {
    NewLink {
        written: false,
        ..link(id)
    }
}

fn ids(chain: &Chain) -> Vec<&str> {
    chain
        .links()
        .iter()
        .map(|link| link.upstream_id.as_str())
        .collect()
}

fn left(appended: &ChainChange) -> Vec<&str> {
    appended
        .removed_links
        .iter()
        .map(|link| link.upstream_id.as_str())
        .collect()
}

fn chain_of(ids: &[&str]) -> Chain {
    let mut chain = Chain::default();
    for id in ids {
        let appended = chain.append(link(id), Fidelity::Full, START);
        assert_eq!(appended.entries.len(), 1);
    }
    chain
}

#[test]
fn appending_orders_the_chain() {
    let cases: [(&str, &[&str], &str, &[&str]); 6] = [
        ("to an empty chain", &[], "a", &["a"]),
        ("another id", &["a", "b"], "c", &["a", "b", "c"]),
        ("the head itself", &["a", "b"], "b", &["a", "b"]),
        ("an older id", &["a", "b", "c"], "a", &["b", "c", "a"]),
        ("an id with blanks around", &["a", "b"], "  b\n", &["a", "b"]),
        ("nothing but blanks", &["a", "b"], " \t ", &["a", "b"]),
    ];
    for (name, before, new, after) in cases {
        let mut chain = chain_of(before);
        let appended = chain.append(link(new), Fidelity::Full, START);
        assert_eq!(ids(&chain), after, "{name}");
        assert!(appended.removed_links.is_empty(), "{name}");
        assert_eq!(appended.entries.is_empty(), new.trim().is_empty(), "{name}");
    }
}

#[test]
fn an_empty_id_leaves_no_trace() {
    let mut chain = chain_of(&["a"]);
    let before = chain.clone();
    assert_eq!(
        chain.append(link(""), Fidelity::Full, START),
        ChainChange::default()
    );
    assert_eq!(
        chain.log_abandoned_branch(link("  "), Fidelity::Full, START),
        None
    );
    assert_eq!(chain, before);
}

#[test]
fn the_heads_own_id_updates_it() {
    let mut chain = chain_of(&["a", "b"]);
    let moved = NewLink {
        cwd: "/home/u/elsewhere".to_owned(),
        agent: AgentName::new("claude-next"),
        reason: LinkReason::Moved,
        turns: 4,
        ..phantom("b")
    };
    let appended = chain.append(moved, Fidelity::Full, second(9));
    assert_eq!(ids(&chain), ["a", "b"]);
    let head = chain.head().unwrap();
    assert_eq!(
        (head.cwd.as_str(), head.agent.as_str()),
        ("/home/u/elsewhere", "claude-next")
    );
    assert_eq!((head.turns, head.written), (4, true));
    assert_eq!(
        (head.reason, head.at),
        (LinkReason::Rolled, START),
        "the reason and time do not change"
    );
    let entry = &appended.entries[0];
    assert_eq!(
        (entry.reason, entry.seq, entry.at),
        (LineageReason::Updated, 3, second(9))
    );
    assert_eq!(entry.cwd, "/home/u/elsewhere");
}

#[test]
fn a_link_that_returns_keeps_its_state() {
    let mut chain = chain_of(&["root"]);
    let _ = chain.append(
        NewLink {
            relation: Relation::Carries,
            from_upstream_id: Some("root".into()),
            from_checkpoint_id: Some("r1".into()),
            ..phantom("a")
        },
        Fidelity::Full,
        START,
    );
    assert!(chain.acknowledge_turn());
    assert!(chain.acknowledge_turn());
    let _ = chain.append(link("b"), Fidelity::Full, START);
    let undone = NewLink {
        reason: LinkReason::Undone,
        relation: Relation::Carries,
        ..phantom("a")
    };
    let appended = chain.append(undone, Fidelity::Full, second(5));
    let head = chain.head().unwrap();
    assert_eq!((head.turns, head.written), (2, true));
    assert_eq!(head.reason, LinkReason::Undone);
    assert_eq!(head.from_upstream_id, Some("root".into()));
    assert_eq!(head.from_checkpoint_id, Some("r1".into()));
    assert_eq!(head.at, second(5));
    assert_eq!(
        (appended.entries[0].turns, appended.entries[0].written),
        (2, true)
    );
}

/// F34: the chain has a limit.
#[test]
fn beyond_the_limit_the_oldest_leaves() {
    let names: Vec<String> = (0..CHAIN_LIMIT).map(|number| format!("s{number}")).collect();
    let mut chain = chain_of(&names.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(chain.len(), CHAIN_LIMIT);
    let appended = chain.append(link("one more"), Fidelity::Full, START);
    assert_eq!(left(&appended), ["s0"]);
    assert_eq!(chain.len(), CHAIN_LIMIT);
    assert_eq!(ids(&chain).last(), Some(&"one more"));
    let appended = chain.append(link("s5"), Fidelity::Full, START);
    assert!(
        appended.removed_links.is_empty(),
        "removing the older equal entry makes room"
    );
}

#[test]
fn a_phantom_head_leaves_when_another_is_appended_over_it() {
    let mut chain = chain_of(&["a"]);
    let _ = chain.append(phantom("ghost"), Fidelity::Full, START);
    assert_eq!(ids(&chain), ["a", "ghost"]);
    let appended = chain.append(phantom("b"), Fidelity::Full, START);
    assert_eq!(left(&appended), ["ghost"]);
    assert_eq!(ids(&chain), ["a", "b"]);

    assert!(chain.mark_written());
    assert!(!chain.mark_written(), "already recorded");
    let appended = chain.append(link("c"), Fidelity::Full, START);
    assert!(appended.removed_links.is_empty());
    assert_eq!(ids(&chain), ["a", "b", "c"]);
}

#[test]
fn a_phantom_is_updated_by_its_own_id() {
    let mut chain = chain_of(&["a"]);
    let _ = chain.append(phantom("ghost"), Fidelity::Full, START);
    let appended = chain.append(phantom("ghost"), Fidelity::Full, START);
    assert!(appended.removed_links.is_empty());
    assert_eq!(ids(&chain), ["a", "ghost"]);
}

#[test]
fn an_older_id_returns_over_a_phantom() {
    let mut chain = chain_of(&["a", "b"]);
    let _ = chain.append(phantom("ghost"), Fidelity::Full, START);
    let appended = chain.append(link("a"), Fidelity::Full, START);
    assert_eq!(left(&appended), ["ghost"]);
    assert_eq!(ids(&chain), ["b", "a"]);
}

#[test]
fn turns_mark_a_link_as_written() {
    let mut chain = Chain::default();
    assert!(!chain.acknowledge_turn(), "nothing to acknowledge without a head");
    assert!(!chain.mark_written());
    let _ = chain.append(
        NewLink {
            turns: 2,
            ..phantom("a")
        },
        Fidelity::Full,
        START,
    );
    assert!(chain.head().unwrap().written);
}

#[test]
fn clearing_empties_the_chain_but_keeps_the_count() {
    for (reason, logged) in [
        (ClearReason::Reset, LineageReason::Reset),
        (ClearReason::Deleted, LineageReason::Deleted),
    ] {
        let mut chain = chain_of(&["a", "b"]);
        let cleared = chain.clear(reason, second(3));
        assert!(chain.is_empty() && chain.head().is_none());
        assert_eq!(left(&cleared), ["a", "b"]);
        let entry = &cleared.entries[0];
        assert_eq!((entry.reason, entry.seq), (logged, 3));
        assert_eq!(entry.upstream_id.as_str(), "b");
        let appended = chain.append(link("c"), Fidelity::None, START);
        assert_eq!(appended.entries[0].seq, 4);
    }
}

#[test]
fn clearing_an_empty_chain_is_logged_too() {
    let cleared = Chain::default().clear(ClearReason::Deleted, START);
    assert!(cleared.entries[0].upstream_id.is_empty());
    assert_eq!(cleared.entries[0].seq, 1);
}

#[derive(Clone, Debug)]
enum Step {
    Append { id: u8, written: bool },
    Turn,
    Written,
    Clear,
    Abandon { id: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..30_u8, any::<bool>()).prop_map(|(id, written)| Step::Append { id, written }),
        3 => Just(Step::Turn),
        1 => Just(Step::Written),
        1 => Just(Step::Clear),
        1 => (0..30_u8).prop_map(|id| Step::Abandon { id }),
    ]
}

fn run(steps: &[Step]) -> (Chain, Vec<LineageEntry>) {
    let mut chain = Chain::default();
    let mut lineage = Vec::new();
    for step in steps {
        match step {
            Step::Append { id, written } => {
                let new = NewLink {
                    written: *written,
                    ..link(&format!("s{id}"))
                };
                lineage.extend(chain.append(new, Fidelity::Full, START).entries);
            }
            Step::Turn => {
                chain.acknowledge_turn();
            }
            Step::Written => {
                chain.mark_written();
            }
            Step::Clear => lineage.extend(chain.clear(ClearReason::Reset, START).entries),
            Step::Abandon { id } => {
                lineage.extend(chain.log_abandoned_branch(link(&format!("b{id}")), Fidelity::Full, START));
            }
        }
    }
    (chain, lineage)
}

proptest! {
    // Against F42.
    #[test]
    fn the_rules_hold_after_any_steps(steps in proptest::collection::vec(step(), 0..120)) {
        let (chain, lineage) = run(&steps);

        prop_assert!(chain.len() <= CHAIN_LIMIT);
        let mut unique = ids(&chain);
        unique.sort_unstable();
        unique.dedup();
        prop_assert_eq!(unique.len(), chain.len());
        for earlier in chain.links().iter().rev().skip(1) {
            prop_assert!(earlier.written, "only the head may be a phantom");
        }

        for (index, entry) in lineage.iter().enumerate() {
            prop_assert_eq!(entry.seq, index as u64 + 1);
        }
        prop_assert_eq!(chain.last_lineage_seq(), lineage.len() as u64);

        for step in &steps {
            if let Step::Append { id, .. } = step {
                let name = format!("s{id}");
                prop_assert!(lineage.iter().any(|entry| entry.upstream_id.as_str() == name));
            }
        }
        let last = steps.iter().rev().find_map(|step| match step {
            Step::Append { id, .. } => Some(Some(format!("s{id}"))),
            Step::Clear => Some(None),
            _ => None,
        });
        prop_assert_eq!(
            chain.head().map(|head| head.upstream_id.to_string()),
            last.flatten(),
            "the head is what was appended last"
        );
        for link in chain.links() {
            prop_assert!(chain.contains(&link.upstream_id));
        }
    }

    #[test]
    fn appended_links_are_in_the_chain_or_left_it(steps in proptest::collection::vec(step(), 0..60), id in 0..30_u8) {
        let (mut chain, _) = run(&steps);
        let mut before: Vec<String> = ids(&chain).into_iter().map(str::to_owned).collect();
        let appended = chain.append(link(&format!("s{id}")), Fidelity::Full, START);
        let mut after: Vec<String> = ids(&chain).into_iter().map(str::to_owned).collect();
        after.extend(left(&appended).into_iter().map(str::to_owned));
        before.push(format!("s{id}"));
        before.sort();
        before.dedup();
        after.sort();
        prop_assert_eq!(before, after);
    }
}
