//! Trees as they are drawn.

use bridge_protocol::conversation::{Conversation, ConversationState, Parent, Settings, TreeMember};
use bridge_protocol::history::Checkpoint;
use bridge_protocol::link::{Fidelity, LineageEntry, LineageReason, Link, LinkReason, Relation, RollCause};
use jiff::Timestamp;

use super::{TreeConversation, draw};
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

fn member(
    digit: char,
    parent: Option<(char, &str)>,
    links: Vec<Link>,
    entries: Vec<LineageEntry>,
) -> TreeConversation {
    let mut conversation = conversation(digit, "T");
    conversation.parent = parent.map(|(digit, at)| Parent {
        conversation_id: self::conversation(digit, "").id,
        checkpoint_id: Some(at.into()),
    });
    let of = TreeMember {
        conversation,
        links,
        entries,
    };
    TreeConversation {
        member: of,
        steps: Vec::new(),
    }
}

#[track_caller]
fn check(members: &[TreeConversation], expected: &str) {
    let drawn = draw(members, None, Look::default()).join("\n");
    assert_eq!(drawn, expected.trim_matches('\n'), "\n{drawn}\n");
}

#[test]
fn sessions_stand_in_the_order_in_which_they_came() {
    let members = [member(
        '1',
        None,
        vec![link("a", 2), link("b", 3)],
        vec![
            entry("a", LineageReason::Created, None),
            entry("b", LineageReason::Rolled, Some("a")),
            entry("b", LineageReason::Updated, None),
        ],
    )];
    check(
        &members,
        r#"
11111111 "T" (loopback, idle)
|- o a created, 2 turns completed
`- * b rolled, cause forgotten, from a, carries the history, 3 turns completed  <- head
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
        &[member('1', None, vec![carrying, copy], vec![adopted(0), copied])],
        r#"
11111111 "T" (loopback, idle)
|- o a adopted, carries 7 turns, 1 turn completed since
`- * b copied, from a, carries 8 turns, 0 turns completed since  <- head
"#,
    );
    // A session that has left the chain is only in the lineage.
    check(
        &[member('1', None, vec![], vec![adopted(7)])],
        r#"
11111111 "T" (loopback, idle)
`- o a adopted, carries 7 turns, 0 turns completed since, no longer in the chain
"#,
    );
}

#[test]
fn forks_stand_below_the_session_that_they_came_from() {
    let members = [
        member(
            '1',
            None,
            vec![link("a", 2), link("c", 1)],
            vec![
                entry("a", LineageReason::Created, None),
                entry("b", LineageReason::Edited, Some("a")),
                entry("b", LineageReason::Abandoned, Some("a")),
                entry("", LineageReason::Reset, None),
                entry("c", LineageReason::Forked, Some("a")),
            ],
        ),
        member(
            '2',
            Some(('1', "x")),
            vec![link("s", 1)],
            vec![entry("s", LineageReason::Forked, Some("a"))],
        ),
        member(
            '3',
            Some(('2', "x")),
            vec![link("t", 0)],
            vec![entry("t", LineageReason::Forked, Some("s"))],
        ),
        // Where it came from is unknown.
        member('4', Some(('1', "x")), vec![], vec![]),
    ];
    check(
        &members,
        r#"
11111111 "T" (loopback, idle)
|- o a created, 2 turns completed
|  `- 22222222 "T" (loopback, idle)
|     `- * s forked, from a, carries the history, 1 turn completed  <- head
|        `- 33333333 "T" (loopback, idle)
|           `- * t forked, from s, carries the history, 0 turns completed  <- head
|- o b edited, from a, carries the history, 0 turns completed, abandoned
|- * c forked, from a, carries the history, 1 turn completed  <- head
`- 44444444 "T" (loopback, idle)
"#,
    );
    let look = Look {
        unicode: true,
        ..Look::default()
    };
    let lines = draw(&members, Some(conversation('2', "").id), look);
    assert!(
        lines[2].ends_with("22222222 \"T\" (loopback, idle)  ← this"),
        "{lines:?}"
    );
    assert!(
        lines[6].starts_with("├─ ○ b") && lines[8].starts_with("└─ "),
        "{lines:?}"
    );
    assert!(
        !draw(&members, Some(conversation('1', "").id), look)
            .join("")
            .contains("← this")
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
fn steps_stand_below_the_session_that_has_them() {
    let mut root = member(
        '1',
        None,
        vec![link("a", 2), link("b", 7)],
        vec![
            entry("a", LineageReason::Created, None),
            LineageEntry {
                from_checkpoint_id: Some("a.1".into()),
                ..entry("b", LineageReason::Edited, Some("a"))
            },
        ],
    );
    root.steps = vec![step(1, "b", Some("a.1"))];
    root.steps.extend((2..=7).map(|number| step(number, "b", None)));
    root.steps[6].prompt = "long ".repeat(20);
    root.steps[5].prompt.clear();
    let mut fork = member(
        '2',
        Some(('1', "b.2")),
        vec![link("s", 3)],
        vec![entry("s", LineageReason::Forked, Some("b"))],
    );
    fork.steps = vec![
        step(1, "s", Some("b.1")),
        step(2, "s", Some("b.2")),
        step(3, "s", None),
    ];
    let mut members = [root, fork];
    check(
        &members,
        r#"
11111111 "T" (loopback, idle)
|- o a created, 2 turns completed
`- * b edited, from a after turn 1, carries the history, 7 turns completed  <- head
   |- ... 1 earlier turn
   |- turn 2 "say 2 and more"
   |- turn 3 "say 3 and more"
   |- turn 4 "say 4 and more"
   |- turn 5 "say 5 and more"
   |- turn 6 [no text]
   |- turn 7 "long long long long long long long long~"
   `- 22222222 "T" (loopback, idle, forked after turn 2)
      `- * s forked, from b, carries the history, 3 turns completed  <- head
         |- ... 2 earlier turns
         `- turn 3 "say 3 and more"
"#,
    );
    // If the parent has gone back behind the checkpoint since, the fork itself still knows.
    members[0].steps.clear();
    let drawn = draw(&members, None, Look::default()).join("\n");
    assert!(
        drawn.contains("forked after turn 2") && drawn.contains("b edited, from a, "),
        "{drawn}"
    );
}

/// What happened to a session since is in `lineage`; the picture shows where it came from.
#[test]
fn a_session_shows_how_it_came_to_be_whatever_happened_since() {
    let members = [member(
        '1',
        None,
        vec![link("a", 2), link("b", 1)],
        vec![
            entry("a", LineageReason::Created, None),
            entry("b", LineageReason::Edited, Some("a")),
            entry("a", LineageReason::Undone, Some("b")),
            entry("b", LineageReason::Moved, Some("a")),
        ],
    )];
    let drawn = draw(&members, None, Look::default()).join("\n");
    assert!(
        drawn.contains("a created") && drawn.contains("b edited"),
        "{drawn}"
    );
}
