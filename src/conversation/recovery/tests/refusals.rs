//! Climbs that begin below what the agent has refused already: a prompt on the open session, or a copy.

use bridge_protocol::link::{Fidelity, Relation, Via};

use super::ladder::*;
use crate::conversation::recovery::*;

#[test]
fn what_a_process_forgot_that_had_it_open_is_asked_for_by_its_id_first() {
    let refused = vec![("h".into(), Via::Live, "no such session".to_owned())];
    let goal = Goal { refused, ..goal() };
    let climbed = check(
        goal,
        &Facts::default(),
        &["resume h"],
        Some((Via::Resume, Fidelity::Full, 0)),
    );
    assert!(climbed.kept_head);
    let vias: Vec<Via> = climbed
        .end
        .unwrap()
        .attempts
        .iter()
        .map(|attempt| attempt.via)
        .collect();
    assert_eq!(vias, [Via::Live, Via::Resume]);
}

#[test]
fn f16_a_copy_that_is_refused_too_is_not_copied_again() {
    let refused = vec![
        ("a".into(), Via::Resume, "no such session".to_owned()),
        ("h".into(), Via::Copied, "no such session".to_owned()),
    ];
    let mut goal = Goal {
        refused,
        head: Some(head("h", 0)),
        ancestors: vec![source("a", 0)],
        ..goal()
    };
    goal.head.as_mut().unwrap().relation = Relation::Carries;
    goal.head.as_mut().unwrap().written = true;
    let met = facts(disk(on_disk(4), &[on_disk(4)], 4), &[]);
    let climbed = climb(goal, &met);
    assert!(
        !climbed.steps.contains(&"copied h".to_owned()),
        "{:?}",
        climbed.steps
    );
}

/// An agent whose transcripts are read and not copied, and that has lost sight of one.
#[test]
fn what_lies_elsewhere_is_brought_back_before_anything_else() {
    let unreadable = Goal {
        can_read_transcripts: false,
        ..goal()
    };
    let astray = Inspection {
        is_misplaced: true,
        ..disk(None, &[], 4)
    };
    let met = facts(astray.clone(), &[("resume h", unknown())]);
    let climbed = check(
        unreadable.clone(),
        &met,
        &["resume h", "inspect", "located h"],
        Some((Via::Located, Fidelity::Full, 0)),
    );
    assert!(climbed.kept_head);
    let failing = [("resume h", unknown()), ("located h", other())];
    check(
        unreadable.clone(),
        &facts(astray.clone(), &failing),
        &["resume h", "inspect", "located h", "text"],
        Some((Via::Text, Fidelity::Text, 0)),
    );
    // What hinders that can be mended; to roll into a retelling cannot.
    let hindered = [("resume h", unknown()), ("located h", misplaced())];
    check(
        unreadable.clone(),
        &facts(astray.clone(), &hindered),
        &["resume h", "inspect", "located h", "give up"],
        None,
    );
    // It was brought back for this prompt, and refused all the same.
    let refused = |via| ("h".into(), via, "no such session".to_owned());
    let again = Goal {
        refused: vec![refused(Via::Resume), refused(Via::Located)],
        ..unreadable
    };
    check(
        again,
        &facts(astray, &[]),
        &["inspect", "text"],
        Some((Via::Text, Fidelity::Text, 0)),
    );
}

#[test]
fn what_the_agent_does_not_have_is_forgotten_whatever_came_before() {
    let mut climb = Climb::new(goal());
    fails(&mut climb, process());
    fails(&mut climb, unknown());
    assert!(climb.is_head_forgotten());
}
