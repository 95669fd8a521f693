//! Repairs of the head: when they begin, in which order, and what happens if the repair cannot be recorded.

use super::outside::branch;
use super::world::World;

/// The repair begins when the session is closed, and would take the place of the branch that is being made.
#[test]
fn no_branch_is_made_while_the_session_is_closed_for_a_repair() {
    let mut world = World::live();
    let repair = world.repair(None);
    let fork = world.fork(false);
    world.expect_among(&format!("answer {fork} error busy"));
    world.closes();
    world.repaired(Ok(None));
    assert!(world.answers[&repair].is_ok());
    // Any other closing leaves the job free.
    let mut world = World::live();
    world.close();
    let fork = world.fork(false);
    world.branched(Ok(branch("s2")));
    world.closes();
    assert!(world.answers[&fork].is_ok());
}

/// Something else was written with it, and will be.
#[test]
fn what_goes_out_with_the_next_write_stays() {
    let mut world = World::live();
    world.repair(None);
    world.closes();
    world.hold_writes = true;
    world.repaired(Ok(Some("s2")));
    world.set_title("A title");
    world.forget_log();
    world.write_fails();
    // The contract with the copy: its link is in the chain, so that nothing deletes it.
    assert!(world.log().contains(&"leave".to_owned()));
    world.release_writes();
    assert_eq!(world.on_disk().head, Some("s2".into()));
}
