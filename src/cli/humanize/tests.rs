//! Words for times and for what was lost.

use bridge_protocol::UpstreamId;
use bridge_protocol::link::{Attempt, Fidelity, LineageEntry, LineageReason, Resumed, Via};
use jiff::Timestamp;
use jiff::tz::{Offset, TimeZone};
use serde_json::json;

use super::{Clock, distinct_short_ids, fork_title, path, resume_result, sessions_left_by_undo, short};
use crate::cli::advice::Advice;
use crate::cli::output::Look;

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn ages_are_in_the_largest_unit_that_fits() {
    let now = time("2026-11-03T12:00:00Z");
    let table = [
        ("2026-11-03T12:00:05Z", "0 s"),
        ("2026-11-03T11:59:01Z", "59 s"),
        ("2026-11-03T11:59:00Z", "1 min"),
        ("2026-11-03T10:01:00Z", "1 h"),
        ("2026-11-01T11:00:00Z", "2 d"),
    ];
    for (at, expected) in table {
        assert_eq!(
            Clock {
                now,
                zone: TimeZone::UTC
            }
            .age(time(at)),
            expected,
            "{at}"
        );
    }
}

#[test]
fn moments_are_on_the_readers_clock() {
    let now = time("2026-11-03T12:00:00Z");
    let zone = TimeZone::fixed(Offset::constant(1));
    let table = [
        ("2026-11-03T12:00:42Z", "13:00:42 (in 42 s)"),
        ("2026-11-03T12:59:59Z", "13:59:59 (in 59 min)"),
        ("2026-11-03T13:00:00Z", "14:00:00 (in 1 h)"),
        ("2026-11-03T14:30:00Z", "15:30:00 (in 2 h 30 min)"),
        ("2026-11-03T11:59:00Z", "12:59:00 (now)"),
        ("2026-11-05T08:00:00Z", "Thu 05 Nov 09:00 (in 1 d 20 h)"),
    ];
    for (at, expected) in table {
        assert_eq!(
            Clock {
                now,
                zone: zone.clone()
            }
            .time_and_distance(time(at)),
            expected,
            "{at}"
        );
    }
}

#[test]
fn what_is_missing_is_printed() {
    let table = [
        (
            Via::Resume,
            Fidelity::Full,
            0,
            "reopened session 0123abcd (resumed by the agent); nothing is missing",
        ),
        (
            Via::OlderLink,
            Fidelity::Partial,
            2,
            "reopened session 0123abcd (an older state of the history); 2 turns missing",
        ),
        (
            Via::Text,
            Fidelity::Text,
            1,
            "reopened session 0123abcd (a new session with the history as text); text only, without tool calls; 1 turn \
             missing",
        ),
    ];
    for (via, fidelity, missing_turns, expected) in table {
        let mut resumed = Resumed {
            upstream_id: "0123abcd-and-more".into(),
            via,
            fidelity,
            missing_turns,
            attempts: Vec::new(),
        };
        let advice = Advice::new("5d0c2a4e", false);
        assert_eq!(resume_result(&resumed, &advice), expected);
        resumed.attempts.push(Attempt {
            upstream_id: Some("fedc9876-and-more".into()),
            via: Via::Copied,
            error: Some("internal error".to_owned()),
        });
        let kept = match fidelity {
            Fidelity::Full => "",
            _ => {
                "; the whole transcript of session fedc9876 is kept: once the agent opens it again, go back with: \
                  sessionctl undo 5d0c2a4e"
            }
        };
        assert_eq!(resume_result(&resumed, &advice), format!("{expected}{kept}"));
    }
}

/// As many of them as hold for those too that are not shown.
#[test]
fn ids_are_shown_as_far_as_chance_reaches() {
    const RANDOM: &str = "5d0c2a4e-7f61-4b0a-9c36-1e2f3a4b5c6d";
    const TIMED: &str = "01a1fcd0-7929-7e93-a128-e1fa7e8a5751";
    const NEXT: &str = "01a1fcd0-7929-7e93-b128-e1fa7e8a5751";
    assert_eq!(
        (short(RANDOM), short(TIMED)),
        ("5d0c2a4e".into(), "01a1fcd0-7929-7e93".into())
    );
    let table: [(&[&str], &[&str]); 3] = [
        (&[RANDOM], &["5d0c2a4e"]),
        (
            &[TIMED, "session-of-mine"],
            &["01a1fcd0-7929-7e93", "session-of-mine"],
        ),
        (&[TIMED, NEXT], &["01a1fcd0-7929-7e93-a", "01a1fcd0-7929-7e93-b"]),
    ];
    for (ids, shown) in table {
        assert_eq!(distinct_short_ids(ids, on_terminal()), shown);
        assert_eq!(distinct_short_ids(ids, Look::default()), ids);
    }
}

fn clock() -> Clock {
    Clock {
        now: time("2026-11-03T12:00:00Z"),
        zone: TimeZone::fixed(Offset::constant(1)),
    }
}

fn on_terminal() -> Look {
    Look {
        columns: Some(80),
        ..Look::default()
    }
}

#[test]
fn times_in_tables_are_ages_until_they_are_old_and_elsewhere_local() {
    let table = [
        ("2026-11-03T11:59:00Z", "1 min", "2026-11-03 12:59:00"),
        ("2026-10-04T12:00:01Z", "29 d", "2026-10-04 13:00:01"),
        ("2026-08-03T23:30:00Z", "2026-08-04", "2026-08-04 00:30:00"),
    ];
    for (at, shown, whole) in table {
        assert_eq!(clock().age_or_date(time(at), on_terminal()), shown);
        assert_eq!(clock().age_or_date(time(at), Look::default()), whole);
    }
}

#[test]
fn a_path_below_home_is_short() {
    let home = std::env::var("HOME").unwrap_or_default();
    if home.len() > 1 {
        assert_eq!(path(&format!("{home}/a"), on_terminal()), "~/a");
        assert_eq!(path(&format!("{home}a"), on_terminal()), format!("{home}a"));
    }
    assert_eq!(path("/elsewhere", on_terminal()), "/elsewhere");
}

#[test]
fn a_time_ahead_is_short() {
    let table = [
        ("2026-11-03T14:30:00Z", "15:30"),
        ("2026-11-05T08:00:00Z", "Thu 09:00"),
        ("2026-12-05T08:00:00Z", "Sat 05 Dec 09:00"),
    ];
    for (at, expected) in table {
        assert_eq!(clock().short(time(at)), expected, "{at}");
    }
}

#[test]
fn a_fork_is_told_from_its_parent_by_its_title() {
    for (title, fork) in [
        ("Fix the build", Some("Fix the build (fork)")),
        ("Fix the build (fork)", Some("Fix the build (fork 2)")),
        ("Fix the build (fork 9)", Some("Fix the build (fork 10)")),
        ("A (forked thing)", Some("A (forked thing) (fork)")),
        (" ", None),
    ] {
        assert_eq!(fork_title(title).as_deref(), fork, "{title}");
    }
    assert_eq!(fork_title(&"x".repeat(4096)), None);
}

#[test]
fn an_undo_leaves_what_came_since() {
    let entry = |(id, reason, cwd): &(&str, LineageReason, &str)| -> LineageEntry {
        let entry = json!({"seq": 1, "upstreamId": id, "agent": "a", "cwd": cwd, "reason": reason, "relation": "fresh",
            "turns": 1, "written": true, "at": "2026-11-03T10:00:00Z", "fidelity": "full", "inChain": true});
        serde_json::from_value(entry).unwrap()
    };
    let (created, edited) = (LineageReason::Created, LineageReason::Edited);
    let (moved, undone) = (LineageReason::Moved, LineageReason::Undone);
    let (a, b, c) = (("a", created, "/"), ("b", edited, "/"), ("c", edited, "/"));
    for (changes, left) in [
        (&[a, b][..], &[][..]),
        (&[a, b, ("a", undone, "/")], &["b"]),
        (&[a, b, c, ("b", undone, "/")], &["c"]),
        (&[a, b, c, ("b", undone, "/"), ("a", undone, "/")], &["b", "c"]),
        (&[a, b, ("a", undone, "/"), c], &["b"]),
        (&[a, b, ("b", moved, "/m"), ("b", undone, "/")], &[]),
    ] {
        let entries: Vec<LineageEntry> = changes.iter().map(entry).collect();
        let found: Vec<&str> = sessions_left_by_undo(&entries)
            .into_iter()
            .map(UpstreamId::as_str)
            .collect();
        assert_eq!(found, left, "{changes:?}");
    }
}
