//! A clock that is set back: nothing goes out twice, early or never, and nothing seems to have changed before it did so last.

use serde_json::json;

use super::continuing::goes_out;
use super::world::World;
use crate::conversation::effect::Arrival;
use crate::store::Anchor;

const HOUR_SECONDS: i64 = 3_600;

/// A conversation whose second turn was cut short by a limit; it continues automatically at the reset, at 22:59.
fn waiting() -> World {
    let mut world = World::live();
    world.anchor = Some(Anchor::default());
    world.prompt_and_wait("second");
    world.updates(&json!({
        "sessionUpdate": "usage_update",
        "_meta": {"_claude/rateLimit": {"status": "rejected", "resetsAt": 1_795_215_540}}
    }));
    world.refuses(json!({"code": -32603, "message": "limit", "data": {"errorKind": "rate_limit"}}));
    world.forget_log();
    world
}

/// It goes out now, and once.
fn goes_out_once(world: &mut World) {
    let at = world.view().continuation.as_ref().unwrap().at;
    world.passes_to(&at.to_string());
    world.falls_due();
    world.ascertains(Arrival::Absent);
    world.expect_among("send second");
    // The clock is corrected while it runs, and its time comes once more.
    world.clock_is_set_back(HOUR_SECONDS);
    world.falls_due();
    assert!(!world.saw("send"));
    world.says_something();
    world.ends("end_turn");
    assert_eq!(world.view().continuation, None);
    world.forget_log();
    world.falls_due();
    world.expect(&[]);
    assert!(!goes_out(world));
}

#[test]
fn a_reset_is_waited_for_by_the_clock_on_the_wall() {
    let mut world = waiting();
    let before = world.view().continuation.clone();
    world.passes_to("2026-11-20T22:58:59Z");
    world.clock_is_set_back(HOUR_SECONDS);
    world.falls_due();
    world.expect(&[]);
    assert!(!goes_out(&mut world));
    assert_eq!(world.view().continuation, before);
    goes_out_once(&mut world);
}

#[test]
fn nothing_seems_to_have_changed_before_it_did_so_last() {
    let mut world = World::running();
    let (before, revision) = (world.view().updated_at, world.view().revision);
    world.clock_is_set_back(HOUR_SECONDS);
    world.ends("end_turn");
    world.set_title("later");
    let (view, kept) = (world.view(), world.on_disk());
    assert!(view.revision > revision && view.updated_at >= before);
    assert_eq!((kept.revision, kept.updated_at), (view.revision, view.updated_at));
}
