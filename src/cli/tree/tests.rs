//! Trees as they are drawn.

use bridge_protocol::conversation::{Conversation, ConversationState, Parent, Settings};
use bridge_protocol::history::Checkpoint;
use bridge_protocol::link::{Fidelity, LineageEntry, LineageReason, Link, LinkReason, Relation, RollCause};
use jiff::Timestamp;

use super::{Family, draw};
use crate::cli::output::Look;

fn at() -> Timestamp {
    "2026-11-03T10:00:00Z".parse().unwrap()
}

fn conversation(digit: char, title: &str) -> Conversation {
    let id = format!("{}-0000-4000-8000-000000000000", digit.to_string().repeat(8));
    Conversation {
        id: id.parse().unwrap(),
        namespace: String::new(),
        agent: "loopback".into(),
        cwd: "/home/u/project".to_owned(),
        title: title.to_owned(),
        state: ConversationState::Idle,
        live: false,
        head: None,
        chain_length: 0,
        parent: None,
        settings: Settings::default(),
        limit: None,
        interrupts: Vec::new(),
        queue: Vec::new(),
        failure: None,
        cut_short: false,
        continuation: None,
        usage: None,
        created_at: at(),
        updated_at: at(),
        revision: 1,
    }
}

fn entry(upstream: &str, reason: LineageReason, from: Option<&str>) -> LineageEntry {
    LineageEntry {
        seq: 1,
        upstream_id: upstream.into(),
        agent: "loopback".into(),
        cwd: "/home/u/project".to_owned(),
        reason,
        relation: if from.is_some() {
            Relation::Carries
        } else {
            Relation::Fresh
        },
        from_upstream_id: from.map(Into::into),
        from_checkpoint_id: None,
        turns: 0,
        carried_turns: 0,
        written: true,
        at: at(),
        cause: (reason == LineageReason::Rolled).then_some(RollCause::Forgotten),
        fidelity: Fidelity::Full,
        in_chain: true,
        attempts: Vec::new(),
    }
}

fn link(upstream: &str, turns: u64) -> Link {
    Link {
        upstream_id: upstream.into(),
        agent: "loopback".into(),
        cwd: "/home/u/project".to_owned(),
        reason: LinkReason::Created,
        relation: Relation::Carries,
        from_upstream_id: None,
        from_checkpoint_id: None,
        turns,
        carried_turns: 0,
        written: true,
        at: at(),
        cause: None,
    }
}

fn family(digit: char, links: Vec<Link>, entries: Vec<LineageEntry>, forks: Vec<Family>) -> Family {
    Family {
        conversation: conversation(digit, "T"),
        links,
        entries,
        checkpoints: None,
        forks,
        asked_for: false,
    }
}

fn check(family: &Family, expected: &str) {
    let drawn = draw(family, Look::default()).join("\n");
    assert_eq!(drawn, expected.trim_matches('\n'), "\n{drawn}\n");
}

#[test]
fn the_way_to_the_head_is_one_column() {
    let family = family(
        '1',
        vec![link("a", 2), link("b", 3)],
        vec![
            entry("a", LineageReason::Created, None),
            entry("b", LineageReason::Rolled, Some("a")),
            entry("b", LineageReason::Updated, None),
        ],
        vec![],
    );
    check(
        &family,
        r#"
conversation 11111111 "T" (loopback, idle)
o a created, 2 turns
* b rolled (forgotten), carries the history, full, 3 turns  <- head
"#,
    );
}

#[test]
fn what_came_along_is_told_apart_from_what_ran_since() {
    let adopted = |in_lineage: u64| LineageEntry {
        carried_turns: in_lineage,
        ..entry("a", LineageReason::Adopted, None)
    };
    let mut carrying = link("a", 1);
    carrying.carried_turns = 7;
    let copied = entry("b", LineageReason::Copied, Some("a"));
    let mut copy = link("b", 0);
    copy.carried_turns = 8;
    // Lineages of older versions do not say it; the chain does.
    check(
        &family('1', vec![carrying, copy], vec![adopted(0), copied], vec![]),
        r#"
conversation 11111111 "T" (loopback, idle)
o a adopted, carries 7 turns, 1 turn since
* b copied, full, carries 8 turns, 0 turns since  <- head
"#,
    );
    // A session that has left the chain is in the lineage alone.
    check(
        &family('1', vec![], vec![adopted(7)], vec![]),
        r#"
conversation 11111111 "T" (loopback, idle)
o a adopted, carries 7 turns, 0 turns since, no longer in the chain
"#,
    );
}

#[test]
fn branches_stand_beside_it() {
    let side = family(
        '2',
        vec![link("s", 1)],
        vec![entry("s", LineageReason::Forked, Some("a"))],
        vec![],
    );
    let family = family(
        '1',
        vec![link("a", 2), link("c", 1)],
        vec![
            entry("a", LineageReason::Created, None),
            entry("b", LineageReason::Edited, Some("a")),
            entry("b", LineageReason::Abandoned, Some("a")),
            entry("d", LineageReason::Copied, Some("b")),
            entry("c", LineageReason::Forked, Some("a")),
        ],
        vec![side],
    );
    check(
        &family,
        r#"
conversation 11111111 "T" (loopback, idle)
o a created, 2 turns
|-o b edited, carries the history, full, 0 turns, abandoned
| o d copied, carries the history, full, 0 turns, no longer in the chain
|-conversation 22222222 "T" (loopback, idle)
| * s forked, carries the history, full, 1 turn  <- head
* c forked, carries the history, full, 1 turn  <- head
"#,
    );
}

#[test]
fn a_new_chat_starts_at_the_edge_and_the_last_branch_closes() {
    let side = family(
        '2',
        vec![link("s", 0)],
        vec![entry("s", LineageReason::Forked, Some("n"))],
        vec![],
    );
    let family = family(
        '1',
        vec![link("n", 1)],
        vec![
            entry("a", LineageReason::Created, None),
            entry("", LineageReason::Reset, None),
            entry("n", LineageReason::Created, None),
        ],
        vec![side],
    );
    check(
        &family,
        r#"
conversation 11111111 "T" (loopback, idle)
o a created, 0 turns, no longer in the chain
* n created, 1 turn  <- head
`-conversation 22222222 "T" (loopback, idle)
  * s forked, carries the history, full, 0 turns  <- head
"#,
    );
}

#[test]
fn a_circle_of_references_ends() {
    let family = family(
        '1',
        vec![link("b", 0)],
        vec![
            entry("a", LineageReason::Forked, Some("b")),
            entry("b", LineageReason::Forked, Some("a")),
        ],
        vec![],
    );
    assert_eq!(draw(&family, Look::default()).len(), 3);
}

#[test]
fn forks_of_an_empty_conversation_are_shown() {
    let side = family('2', vec![], vec![], vec![]);
    let family = family('1', vec![], vec![], vec![side]);
    check(
        &family,
        r#"
conversation 11111111 "T" (loopback, idle)
`-conversation 22222222 "T" (loopback, idle)
"#,
    );
}

#[test]
fn signs_are_unicode_where_they_can_be_shown() {
    let family = family(
        '1',
        vec![link("a", 0)],
        vec![entry("a", LineageReason::Created, None)],
        vec![],
    );
    let look = Look {
        unicode: true,
        ..Look::default()
    };
    assert!(draw(&family, look)[1].starts_with("● a"));
}

#[test]
fn a_fork_is_drawn_where_it_came_from_and_marked() {
    let side = family(
        '2',
        vec![link("s", 1)],
        vec![entry("s", LineageReason::Forked, Some("a"))],
        vec![],
    );
    let side = Family {
        asked_for: true,
        ..side
    };
    let family = family(
        '1',
        vec![link("a", 2)],
        vec![entry("a", LineageReason::Created, None)],
        vec![side],
    );
    check(
        &family,
        r#"
conversation 11111111 "T" (loopback, idle)
* a created, 2 turns  <- head
`-conversation 22222222 "T" (loopback, idle)  <- asked for
  * s forked, carries the history, full, 1 turn  <- head
"#,
    );
}

fn step(number: u64, upstream: &str, origin: Option<&str>) -> Checkpoint {
    Checkpoint {
        id: format!("{upstream}.{number}").as_str().into(),
        step: number,
        upstream_id: upstream.into(),
        parent_id: None,
        at: None,
        prompt: format!("say {number}\nand more"),
        reply: String::new(),
        tools: Vec::new(),
        bytes: 0,
        origin: origin.map(Into::into),
    }
}

#[test]
fn steps_stand_below_the_session_that_holds_them_and_branches_tell_theirs() {
    let mut side = family(
        '2',
        vec![link("s", 1)],
        vec![entry("s", LineageReason::Forked, Some("b"))],
        vec![],
    );
    side.conversation.parent = Some(Parent {
        conversation_id: conversation('1', "").id,
        checkpoint_id: Some("b.2".into()),
    });
    let lent = vec![step(1, "b", None), step(2, "b", None), step(3, "s", None)];
    side.checkpoints = Some(lent);
    let mut family = family(
        '1',
        vec![link("a", 2), link("b", 7)],
        vec![
            entry("a", LineageReason::Created, None),
            LineageEntry {
                from_checkpoint_id: Some("a.1".into()),
                ..entry("b", LineageReason::Edited, Some("a"))
            },
        ],
        vec![side],
    );
    let mut steps = vec![step(1, "b", Some("a.1"))];
    steps.extend((2..=7).map(|number| step(number, "b", None)));
    steps[6].prompt = "long ".repeat(20);
    steps[5].prompt.clear();
    family.checkpoints = Some(steps);
    check(
        &family,
        r#"
conversation 11111111 "T" (loopback, idle)
o a created, 2 turns
* b edited behind step 1, carries the history, full, 7 turns  <- head
|   ... 2 more
|   step 3 "say 3 and more"
|   step 4 "say 4 and more"
|   step 5 "say 5 and more"
|   step 6 [no text]
|   step 7 "long long long long long long long long~"
`-conversation 22222222 "T" (loopback, idle), forked behind step 2
  steps 1 to 2 stand in session b
  * s forked, carries the history, full, 1 turn  <- head
      step 3 "say 3 and more"
"#,
    );
    // Where the parent has gone back behind the place since, the fork itself still knows.
    family.checkpoints = None;
    let drawn = draw(&family, Look::default()).join("\n");
    assert!(
        drawn.contains("forked behind step 2") && drawn.contains("b edited, "),
        "{drawn}"
    );
}
