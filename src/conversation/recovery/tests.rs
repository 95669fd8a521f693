//! Tables of climbs: the goal, the result of each step, the expected steps and outcome. `archive` covers backups, `damaged`
//! damaged heads, `gone_back` turns removed by going back, `properties` what holds for every climb, `refusals` what the agent
//! refused before the climb, and `unread` transcripts that cannot be read.

mod archive;
mod damaged;
mod gone_back;
mod ladder;
mod properties;
mod refusals;
mod unread;

use bridge_protocol::link::{Fidelity, Relation, RollCause, Via};

use super::*;
use crate::chain::SessionCut;
use ladder::*;

/// The agent's two methods need not fail for the same reason.
#[test]
fn a_head_that_two_processes_do_not_resume_is_loaded_before_the_disk_is_read() {
    let steps = &["resume h", "freshProcess h", "load h", "inspect", "copied h"];
    for (fresh, load, taken) in [
        (
            unknown(),
            other(),
            &["resume h", "freshProcess h", "inspect", "copied h"][..],
        ),
        (process(), unknown(), steps),
        (other(), process(), steps),
    ] {
        let failures = [("resume h", other()), ("freshProcess h", fresh), ("load h", load)];
        let met = facts(disk(on_disk(4), &[], 4), &failures);
        check(goal(), &met, taken, Some((Via::Copied, Fidelity::Full, 0)));
    }
    let met = facts(
        Inspection::default(),
        &[("resume h", process()), ("freshProcess h", other())],
    );
    check(goal(), &met, &steps[..3], Some((Via::Load, Fidelity::Full, 0)));
    // A client waits for the replay.
    let goal_with_replay = Goal {
        prefers_load: true,
        ..goal()
    };
    let met = facts(
        Inspection::default(),
        &[("load h", process()), ("freshProcess h", other())],
    );
    let steps = ["load h", "freshProcess h", "resume h"];
    check(
        goal_with_replay,
        &met,
        &steps,
        Some((Via::Resume, Fidelity::Full, 0)),
    );
    // There is no other method.
    for (can_resume, first) in [(true, "resume h"), (false, "load h")] {
        let goal = Goal {
            can_resume,
            can_load: !can_resume,
            ..goal()
        };
        let met = facts(
            disk(on_disk(4), &[], 4),
            &[(first, other()), ("freshProcess h", other())],
        );
        let steps = [first, "freshProcess h", "inspect", "copied h"];
        check(goal, &met, &steps, Some((Via::Copied, Fidelity::Full, 0)));
    }
}

#[test]
fn what_follows_a_load_is_loaded_too() {
    let mut climb = Climb::new(goal());
    let loads =
        |climb: &Climb| [Via::Resume, Via::FreshProcess, Via::Load, Via::Copied].map(|via| climb.loads(via));
    for _ in 0..3 {
        assert_eq!(loads(&climb), [false, false, true, false]);
        fails(&mut climb, other());
    }
    assert_eq!(loads(&climb), [false, true, true, true]);
}

/// It may have been ended by what another conversation did in it.
#[test]
fn for_a_process_that_ended_under_a_copy_nothing_less_is_taken_before_it_was_tried_in_a_fresh_one() {
    let mut climb = Climb::new(goal());
    fails(&mut climb, unknown());
    assert_eq!(climb.next_step(), Step::Inspect);
    climb.inspected(disk(on_disk(4), &[], 4));
    let copy = climb.next_step();
    assert!(matches!(copy, Step::Copy { via: Via::Copied, .. }));
    assert!(!climb.needs_fresh_process(&copy));
    fails(&mut climb, process());
    let again = climb.next_step();
    assert_eq!(again, copy);
    assert!(climb.needs_fresh_process(&again));
    fails(&mut climb, process());
    let less = climb.next_step();
    assert_eq!(less, Step::Text);
    assert!(!climb.needs_fresh_process(&less));
}

#[test]
fn older_link_or_text_whichever_keeps_more() {
    // Turns of the ancestor, of the head, and what is expected.
    let cases = [
        (6, 4, "text", Via::Text, Fidelity::Text, 0),
        (30, 4, "olderLink a", Via::OlderLink, Fidelity::Partial, 4),
        (6, 44, "text", Via::Text, Fidelity::Text, 30),
        (20, 0, "olderLink a", Via::OlderLink, Fidelity::Full, 0),
    ];
    for (older, newer, step, via, fidelity, missing) in cases {
        let mut goal = goal_with_ancestor();
        goal.ancestors[0].turns_after = newer;
        goal.head = Some(Link {
            relation: Relation::Follows,
            written: true,
            ..head("h", newer)
        });
        let lost = facts(
            disk(None, &[on_disk(older)], older + newer),
            &[("resume h", unknown())],
        );
        check(
            goal,
            &lost,
            &["resume h", "inspect", step],
            Some((via, fidelity, missing)),
        );
    }
}

#[test]
fn the_nearest_of_equal_ancestors_comes_first() {
    let mut goal = goal_with_ancestor();
    goal.min_fidelity = Fidelity::Partial;
    goal.ancestors = vec![source("a", 4), source("b", 4)];
    let lost = facts(
        disk(None, &[on_disk(6), on_disk(6)], 0),
        &[
            ("resume h", unknown()),
            ("olderLink a", other()),
            ("olderLink b", other()),
        ],
    );
    check(
        goal,
        &lost,
        &["resume h", "inspect", "olderLink a", "olderLink b", "give up"],
        None,
    );
}

#[test]
fn the_cause_of_a_roll() {
    let cases = [
        (disk(on_disk(4), &[], 4), unknown(), false, RollCause::Forgotten),
        (disk(None, &[], 4), unknown(), false, RollCause::Lost),
        (disk(damaged(4), &[], 4), unknown(), false, RollCause::Damaged),
        (disk(on_disk(4), &[], 4), process(), false, RollCause::AgentDied),
        (disk(on_disk(4), &[], 4), unknown(), true, RollCause::Limit),
    ];
    for (disk, failure, limited, cause) in cases {
        let met = facts(
            disk,
            &[
                ("resume h", failure),
                ("freshProcess h", process()),
                ("load h", process()),
            ],
        );
        let climbed = climb(Goal { limited, ..goal() }, &met);
        assert_eq!(climbed.cause, cause, "{climbed:?}");
    }
}

#[test]
fn an_agent_that_answers_with_an_error_has_not_died() {
    let met = facts(
        disk(on_disk(4), &[], 4),
        &[
            ("resume h", other()),
            ("freshProcess h", other()),
            ("load h", other()),
        ],
    );
    assert_eq!(climb(goal(), &met).cause, RollCause::Other);
}

#[test]
fn a_transcript_that_was_written_before_we_knew_is_not_given_up() {
    let goal = Goal {
        head: Some(head("h", 0)),
        ..goal()
    };
    let met = facts(
        disk(on_disk(1), &[], 1),
        &[("resume h", unknown()), ("copied h", other()), ("text", other())],
    );
    check(
        goal,
        &met,
        &["resume h", "inspect", "copied h", "text", "give up"],
        None,
    );
}

#[test]
fn an_unwritten_retelling_goes_back_to_what_it_retold() {
    let mut goal = goal_with_ancestor();
    goal.head = Some(Link {
        relation: Relation::Follows,
        ..head("h", 0)
    });
    goal.ancestors = vec![source("a", 0)];
    let met = facts(disk(None, &[on_disk(6)], 6), &[("resume h", unknown())]);
    check(
        goal,
        &met,
        &["resume h", "inspect", "olderLink a"],
        Some((Via::OlderLink, Fidelity::Full, 0)),
    );
}

#[test]
fn d6_a_damaged_ancestor_is_not_copied_either() {
    let met = facts(disk(None, &[damaged(30)], 30), &[("resume h", unknown())]);
    let climbed = climb(goal_with_ancestor(), &met);
    assert!(
        !climbed.steps.contains(&"olderLink a".to_owned()),
        "{:?}",
        climbed.steps
    );
}

#[test]
fn d5_a_copy_of_a_head_that_lost_turns_says_so() {
    let goal = Goal {
        head: Some(head("h", 10)),
        ..goal()
    };
    let met = facts(disk(on_disk(7), &[], 7), &[("resume h", unknown())]);
    check(
        goal,
        &met,
        &["resume h", "inspect", "copied h"],
        Some((Via::Copied, Fidelity::Partial, 3)),
    );
}

#[test]
fn an_ancestor_that_lost_turns_is_not_full() {
    let mut goal = goal_with_ancestor();
    goal.head = Some(Link {
        relation: Relation::Carries,
        written: true,
        ..head("h", 0)
    });
    goal.ancestors = vec![source("a", 0)];
    goal.min_fidelity = Fidelity::Full;
    let met = facts(disk(None, &[on_disk(7)], 10), &[("resume h", unknown())]);
    check(goal, &met, &["resume h", "inspect", "give up"], None);
}

#[test]
fn an_agent_without_transcripts_opens_the_nearest_ancestor_itself() {
    let mut goal = Goal {
        can_read_transcripts: false,
        ..goal_with_ancestor()
    };
    goal.ancestors[0].until = SessionCut::default();
    let met = facts(Inspection::default(), &[("resume h", unknown())]);
    let climbed = check(
        goal,
        &met,
        &["resume h", "inspect", "olderLink a"],
        Some((Via::OlderLink, Fidelity::Partial, 4)),
    );
    assert!(!climbed.kept_head, "the ancestor has to become the head");
}

#[test]
fn an_ancestor_that_is_cut_or_shared_is_never_written_to() {
    for (at, shared) in [(Some("cp".into()), false), (None, true)] {
        let mut goal = Goal {
            can_read_transcripts: false,
            ..goal_with_ancestor()
        };
        goal.ancestors = vec![Source {
            until: SessionCut::at(at),
            shared,
            ..source("a", 4)
        }];
        let met = facts(Inspection::default(), &[("resume h", unknown())]);
        check(goal, &met, &["resume h", "inspect", "give up"], None);
    }
}

#[test]
fn an_agent_that_can_neither_resume_nor_load_is_told_the_history_in_words() {
    let goal = Goal {
        can_resume: false,
        can_load: false,
        ..goal()
    };
    let met = facts(disk(on_disk(4), &[], 4), &[]);
    check(
        goal,
        &met,
        &["inspect", "text"],
        Some((Via::Text, Fidelity::Text, 0)),
    );
}

#[test]
fn a_head_that_holds_fewer_turns_without_damage_is_kept_and_told() {
    let short = facts(disk(on_disk(2), &[on_disk(6)], 8), &[]);
    let climbed = check(
        goal_with_ancestor(),
        &short,
        &["resume h"],
        Some((Via::Resume, Fidelity::Partial, 2)),
    );
    assert!(climbed.kept_head, "somebody may have gone back within the agent");
    // A command of the agent's own was a prompt to us.
    let mut file = on_disk(3);
    file.as_mut().unwrap().max_turns = 4;
    check(
        goal(),
        &facts(disk(file, &[], 3), &[]),
        &["resume h"],
        Some((Via::Resume, Fidelity::Full, 0)),
    );
}
