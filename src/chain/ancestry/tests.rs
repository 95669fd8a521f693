use std::collections::HashMap;

use bridge_protocol::link::{Fidelity, LinkReason};
use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::chain::{Chain, ClearReason, NewLink};

/// Parses lines `child relation parent@checkpoint carried`. Without a checkpoint, all of the parent was taken; without a number,
/// three turns were carried over.
fn family(references: &[&str]) -> HashMap<UpstreamId, LinkOrigin> {
    references
        .iter()
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let (relation, reference) = match words[1] {
                "carries" => (Relation::Carries, words.get(2)),
                "follows" | "retells" => (Relation::Follows, words.get(2)),
                _ => (Relation::Fresh, words.get(2)),
            };
            let (from, place) = match reference.map(|text| text.split_once('@').unwrap_or((text, ""))) {
                Some((from, place)) => (Some(UpstreamId::new(from)), (!place.is_empty()).then_some(place)),
                None => (None, None),
            };
            let origin = LinkOrigin {
                agent: AgentName::new("claude"),
                cwd: format!("/home/u/{}", words[0]),
                relation,
                from_upstream_id: from,
                from_checkpoint_id: place.map(CheckpointId::new),
                turns: 3,
                carried_turns: words.get(3).map_or(3, |carried| carried.parse().unwrap()),
                edited: words[1] == "retells",
            };
            (UpstreamId::new(words[0]), origin)
        })
        .collect()
}

fn climb(head: &str, references: &[&str]) -> Vec<String> {
    let family = family(references);
    ancestors(&head.into(), |id| family.get(id).cloned())
        .into_iter()
        .map(|ancestor| {
            let cut = ancestor.cut;
            let place = cut
                .at
                .map_or_else(|| "whole".to_owned(), |place| place.to_string());
            let place = match cut.max_turns {
                Some(most) => format!("{place} up to {most}"),
                None => place,
            };
            format!(
                "{}@{place} {:?} {}",
                ancestor.upstream_id, ancestor.relation_of_child, ancestor.cwd
            )
        })
        .collect()
}

fn read(head: &str, references: &[&str]) -> Vec<String> {
    let family = family(references);
    history_sources(&head.into(), |id| family.get(id).cloned())
        .into_iter()
        .map(|source| {
            let until = source
                .until
                .at
                .map_or_else(|| "end".to_owned(), |place| place.to_string());
            format!("{}..{until}", source.upstream_id)
        })
        .collect()
}

#[test]
fn climbing_follows_references() {
    let tree = ["a fresh", "b carries a@a2", "c follows b@b5", "d carries a@a1"];
    let cases: [(&str, &[&str]); 5] = [
        ("a", &[]),
        ("b", &["a@a2 Carries /home/u/a"]),
        ("c", &["b@b5 Follows /home/u/b", "a@a2 Carries /home/u/a"]),
        // `c` and `b` are nearer by position, but were edited away.
        ("d", &["a@a1 Carries /home/u/a"]),
        ("unknown", &[]),
    ];
    for (head, expected) in cases {
        assert_eq!(climb(head, &tree), expected, "from {head}");
    }
}

#[test]
fn a_reference_without_a_checkpoint_means_all_of_it() {
    assert_eq!(
        climb("b", &["a fresh", "b carries a"]),
        ["a@whole Carries /home/u/a"]
    );
}

/// A branch of what a branch had carried over keeps less of the older session than the first branch did.
#[test]
fn a_nearer_reference_limits_what_is_taken_of_older_sessions() {
    let tree = [
        "a fresh",
        "b carries a@a4 4",
        "within carries b@b1 1",
        "after carries b@b6 6",
        "again carries within@w1 2",
        "unknown carries b@b1 0",
        "text retells b@b1",
        "rolled follows b@b6",
        "all carries b",
        "own follows a@a4",
        "cut carries own@o1 1",
    ];
    let cases: [(&str, &[&str]); 8] = [
        (
            "within",
            &["b@b1 Carries /home/u/b", "a@a4 up to 1 Carries /home/u/a"],
        ),
        (
            "after",
            &["b@b6 Carries /home/u/b", "a@a4 up to 6 Carries /home/u/a"],
        ),
        (
            "again",
            &[
                "within@w1 Carries /home/u/within",
                "b@b1 up to 2 Carries /home/u/b",
                "a@a4 up to 1 Carries /home/u/a",
            ],
        ),
        ("unknown", &["b@b1 Carries /home/u/b"]),
        ("text", &["b@b1 Follows /home/u/b"]),
        ("rolled", &["b@b6 Follows /home/u/b", "a@a4 Carries /home/u/a"]),
        ("all", &["b@whole Carries /home/u/b", "a@a4 Carries /home/u/a"]),
        // What a session follows is not in its transcript, so a branch of that keeps all of it.
        ("cut", &["own@o1 Carries /home/u/own", "a@a4 Follows /home/u/a"]),
    ];
    for (head, expected) in cases {
        assert_eq!(climb(head, &tree), expected, "from {head}");
    }
}

#[test]
fn climbing_never_passes_a_fresh_start() {
    let tree = ["a fresh", "b carries a@a2", "c fresh b@b1", "d follows c@c1"];
    assert_eq!(climb("d", &tree), ["c@c1 Follows /home/u/c"]);
    assert_eq!(climb("c", &tree), [""; 0]);
    assert_eq!(read("d", &tree), ["c..c1", "d..end"]);
}

#[test]
fn references_in_a_ring_end_the_climb() {
    let ring = ["a carries b@b1", "b follows c@c1", "c follows a@a1"];
    assert_eq!(
        climb("a", &ring),
        ["b@b1 Carries /home/u/b", "c@c1 Follows /home/u/c"]
    );
    assert_eq!(climb("a", &["a carries a@a1"]), [""; 0]);
    assert_eq!(read("b", &ring), ["a..a1", "c..c1", "b..end"]);
}

#[test]
fn an_ancestor_outside_the_lineage_is_included_and_ends_the_climb() {
    assert_eq!(
        climb("b", &["b carries elsewhere@e3"]),
        ["elsewhere@e3 Carries /home/u/b"]
    );
}

#[test]
fn a_carrying_session_is_read_alone_and_a_following_one_after_its_parent() {
    let tree = [
        "a fresh",
        "b follows a@a2",
        "c carries b@b5",
        "d follows c@c1",
        "e follows d@d9",
    ];
    let cases: [(&str, &[&str]); 5] = [
        ("a", &["a..end"]),
        ("b", &["a..a2", "b..end"]),
        ("c", &["a..a2", "c..end"]),
        ("d", &["a..a2", "c..c1", "d..end"]),
        ("e", &["a..a2", "c..c1", "d..d9", "e..end"]),
    ];
    for (head, expected) in cases {
        assert_eq!(read(head, &tree), expected, "of {head}");
    }
}

fn new_link(id: &str, reason: LinkReason, relation: Relation, from: Option<(&str, &str)>) -> NewLink {
    NewLink {
        upstream_id: id.into(),
        agent: AgentName::new("claude"),
        cwd: "/home/u/project".to_owned(),
        reason,
        relation,
        from_upstream_id: from.map(|(from, _)| from.into()),
        from_checkpoint_id: from.map(|(_, place)| place.into()),
        cause: None,
        turns: 0,
        carried_turns: 0,
        written: true,
    }
}

fn origins_after(links: Vec<NewLink>) -> Origins {
    let mut chain = Chain::default();
    let lineage: Vec<LineageEntry> = links
        .into_iter()
        .flat_map(|link| chain.append(link, Fidelity::Full, Timestamp::UNIX_EPOCH).entries)
        .collect();
    Origins::collect(&lineage, chain.links())
}

#[test]
fn the_latest_entry_with_an_origin_wins() {
    use LinkReason::{Created, Edited, Moved, Undone};
    use Relation::{Carries, Fresh};
    let origin = |links| {
        origins_after(links)
            .get(&"b".into())
            .and_then(|origin| origin.from_upstream_id)
    };

    let first = || {
        vec![
            new_link("a", Created, Fresh, None),
            new_link("b", Edited, Carries, Some(("a", "a1"))),
        ]
    };
    assert_eq!(origin(first()), Some("a".into()));

    let mut updated = first();
    updated.push(new_link("b", Moved, Carries, Some(("x", "x1"))));
    assert_eq!(origin(updated), Some("a".into()), "an update has no origin");

    let mut undone = first();
    undone.extend([
        new_link("c", Edited, Carries, Some(("a", "a2"))),
        new_link("b", Undone, Carries, None),
    ]);
    assert_eq!(
        origin(undone),
        Some("a".into()),
        "a return without a reference has none"
    );

    let mut again = first();
    again.extend([
        new_link("c", Created, Fresh, None),
        new_link("b", Edited, Carries, Some(("c", "c1"))),
    ]);
    assert_eq!(origin(again), Some("c".into()), "a later origin wins");
}

#[test]
fn an_update_changes_facts_but_not_the_origin() {
    let mut chain = Chain::default();
    let forked = new_link("b", LinkReason::Forked, Relation::Carries, Some(("a", "a1")));
    let mut lineage = chain
        .append(forked, Fidelity::Full, Timestamp::UNIX_EPOCH)
        .entries;
    lineage.push(LineageEntry {
        seq: 2,
        reason: LineageReason::Updated,
        cwd: "/home/u/elsewhere".to_owned(),
        relation: Relation::Fresh,
        from_upstream_id: None,
        ..lineage[0].clone()
    });
    let origin = Origins::collect(&lineage, &[]).get(&"b".into()).unwrap();
    assert_eq!(
        (origin.relation, origin.from_upstream_id),
        (Relation::Carries, Some("a".into()))
    );
    assert_eq!(origin.cwd, "/home/u/elsewhere");
}

#[test]
fn facts_of_links_in_the_chain_come_from_the_chain() {
    let mut chain = Chain::default();
    let entries = chain
        .append(
            new_link("a", LinkReason::Created, Relation::Fresh, None),
            Fidelity::None,
            Timestamp::UNIX_EPOCH,
        )
        .entries;
    assert!(chain.acknowledge_turn());
    let origins = Origins::collect(&entries, chain.links());
    assert_eq!(origins.get(&"a".into()).map(|origin| origin.turns), Some(1));
}

#[test]
fn an_id_that_left_the_chain_is_still_climbed_through() {
    let mut links = vec![new_link("link 0", LinkReason::Created, Relation::Fresh, None)];
    for step in 1..40 {
        let parent = format!("link {}", step - 1);
        links.push(new_link(
            &format!("link {step}"),
            LinkReason::Rolled,
            Relation::Follows,
            Some((&parent, "end")),
        ));
    }
    let origins = origins_after(links);
    assert_eq!(ancestors(&"link 39".into(), |id| origins.get(id)).len(), 39);
}

#[test]
fn a_reset_keeps_the_origins() {
    let mut chain = Chain::default();
    let mut lineage = chain
        .append(
            new_link("b", LinkReason::Forked, Relation::Carries, Some(("a", "a1"))),
            Fidelity::Full,
            Timestamp::UNIX_EPOCH,
        )
        .entries;
    lineage.extend(chain.clear(ClearReason::Reset, Timestamp::UNIX_EPOCH).entries);
    let origins = Origins::collect(&lineage, chain.links());
    assert_eq!(
        origins
            .get(&"b".into())
            .and_then(|origin| origin.from_upstream_id),
        Some("a".into())
    );
}

proptest! {
    #[test]
    fn climbing_ends_and_names_each_session_once(
        references in proptest::collection::vec((0..12_u8, 0..3_u8, 0..12_u8), 0..40),
    ) {
        let words: Vec<String> = references
            .iter()
            .map(|(child, relation, parent)| {
                let relation = ["carries", "follows", "fresh"][usize::from(*relation)];
                format!("s{child} {relation} s{parent}@p")
            })
            .collect();
        let lines: Vec<&str> = words.iter().map(String::as_str).collect();
        let family = family(&lines);
        let head = UpstreamId::new("s0");
        let climbed = ancestors(&head, |id| family.get(id).cloned());
        let mut names: Vec<_> = climbed.iter().map(|ancestor| ancestor.upstream_id.clone()).collect();
        names.push(head.clone());
        names.sort();
        let count = names.len();
        names.dedup();
        prop_assert_eq!(names.len(), count);
        prop_assert!(count <= 12);

        let sources = history_sources(&head, |id| family.get(id).cloned());
        prop_assert_eq!(sources.last().map(|source| &source.upstream_id), Some(&head));
        // Reading follows the same references as climbing, and no more; a carried history is not read twice.
        let followed = climbed.iter().filter(|ancestor| ancestor.relation_of_child == Relation::Follows);
        for (source, ancestor) in sources.iter().rev().skip(1).zip(followed) {
            prop_assert_eq!(&source.upstream_id, &ancestor.upstream_id);
            prop_assert_eq!(&source.until, &ancestor.cut);
        }
    }
}
